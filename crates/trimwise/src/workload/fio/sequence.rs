//! The sequence of a job's operations, as fio decides it.

use super::map::Map;
use super::random::{Lfsr, Skewed, Tausworthe, name_hash};
use super::{Distribution, Generator, Job};

const READ: usize = 0;
const WRITE: usize = 1;

/// Purpose of each of fio's seeds.
#[derive(Clone, Copy)]
enum Use {
    ReadSize = 0,
    WriteSize = 1,
    Mix = 4,
    Offset = 6,
    FileSize = 7,
    Zone = 16,
}

/// One operation of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named as what they are")]
pub enum Io {
    /// A read or a write.
    Transfer { file: usize, writes: bool, offset: u64, bytes: u64 },
    /// An fsync of this file.
    Fsync(usize),
    /// An fdatasync of this file.
    Fdatasync(usize),
}

#[derive(Clone, Debug)]
struct File {
    bytes: u64,
    is_done: bool,
    last_ends: [u64; 2],
    map: Option<Map>,
    lfsr: Option<Lfsr>,
    skewed: Option<Skewed>,
}

/// The operations of a job, one after another.
#[derive(Clone, Debug)]
pub struct Sequence {
    job: Job,
    seed: u64,
    offsets: Tausworthe,
    sizes: [Tausworthe; 2],
    mix: Tausworthe,
    zones: Tausworthe,
    files: Vec<File>,
    next_file: usize,
    issued: [u64; 2],
    bytes_in_loop: u64,
    bytes: u64,
    /// Count of operations in the current direction at which a direction is drawn again, and that direction.
    mix_until: u64,
    direction: usize,
    last_wrote: bool,
    loops_left: u64,
}

/// fio's golden ratio for hashes.
const SPREAD: u64 = 0x9e37_0001;

/// Returns one of the seeds that fio derives from that of a job.
fn seed_of(job: &Job, seed: u64, what: Use) -> u64 {
    let spread = |seed: u64, times: u32| (0..times).fold(seed, |seed, _| seed.wrapping_mul(SPREAD));
    let seed = spread(seed, 4 + what as u32);
    seed.wrapping_mul(job.thread_number).wrapping_add(what as u64)
}

pub(super) fn random_size(job: &Job, (from, to): (u64, u64), least: u64, count: usize) -> Vec<u64> {
    if from == to {
        return vec![from; count];
    }
    let is_64 = job.generator == Generator::Tausworthe64;
    let mut rng = Tausworthe::new(seed_of(job, job.seed, Use::FileSize), is_64);
    let one = |_| {
        let bytes = from + rng.below(to - from);
        bytes - bytes % least
    };
    (0..count).map(one).collect()
}

impl Sequence {
    /// Creates the sequence of a job; `run_seed` is for jobs whose seed fio takes from the system.
    pub fn new(job: &Job, run_seed: u64) -> Self {
        let seed = if job.own_seed { run_seed } else { job.seed };
        let [offsets, mix, zones] = [Use::Offset, Use::Mix, Use::Zone].map(|_| Tausworthe::new(0, false));
        let sizes = [offsets.clone(), offsets.clone()];
        let mut new = Self {
            job: job.clone(),
            seed,
            offsets,
            sizes,
            mix,
            zones,
            files: Vec::new(),
            next_file: 0,
            issued: [0; 2],
            bytes_in_loop: 0,
            bytes: 0,
            mix_until: 0,
            direction: READ,
            last_wrote: false,
            loops_left: job.loops - 1,
        };
        new.reseed();
        new.files = job.files.iter().map(|file| new.file(&file.name, file.bytes)).collect();
        new
    }

    /// Returns fio's name of a file.
    pub fn file_name(&self, file: usize) -> &str {
        &self.job.files[file].name
    }

    fn reseed(&mut self) {
        let is_64 = self.job.generator == Generator::Tausworthe64;
        let rng = |what, is_64| Tausworthe::new(seed_of(&self.job, self.seed, what), is_64);
        self.sizes = [rng(Use::ReadSize, is_64), rng(Use::WriteSize, is_64)];
        (self.offsets, self.mix, self.zones) =
            (rng(Use::Offset, is_64), rng(Use::Mix, false), rng(Use::Zone, false));
    }

    fn file(&self, name: &str, bytes: u64) -> File {
        let job = &self.job;
        let seed = seed_of(job, self.seed, Use::Offset);
        let all = job.block_bytes.map(|(from, _)| from);
        let blocks = bytes.div_ceil(all[READ].min(all[WRITE])).max(1);
        let of_name = u64::from(name_hash(name)).wrapping_mul(job.thread_number).wrapping_mul(seed) as u32;
        let skewed = match job.distribution {
            _ if !job.random => None,
            Distribution::Zipf(theta) => Some(Skewed::zipf(blocks, of_name, theta)),
            Distribution::Pareto(h) => Some(Skewed::pareto(blocks, of_name, h)),
            Distribution::Uniform | Distribution::Zoned(_) => None,
        };
        let mut file = File { bytes, is_done: false, last_ends: [0; 2], map: None, lfsr: None, skewed };
        self.reset(&mut file);
        file
    }

    fn least(&self) -> u64 {
        let used = [self.job.reads, self.job.writes];
        let used = self.job.block_bytes.iter().zip(used).filter(|(_, used)| *used);
        used.map(|((from, _), _)| *from).min().unwrap_or(1)
    }

    fn reset(&self, file: &mut File) {
        let job = &self.job;
        file.last_ends = [0; 2];
        if !job.random {
            return;
        }
        let blocks = file.bytes / self.least();
        if job.generator == Generator::Lfsr {
            file.lfsr = Lfsr::new(blocks, seed_of(job, self.seed, Use::Offset));
        } else if job.has_map {
            file.map = Some(Map::new(blocks));
        }
    }

    fn has_all_bytes(&self) -> bool {
        !self.job.time_based && self.bytes >= self.job.size.saturating_mul(self.job.loops)
    }

    fn next_in_loop(&mut self) -> Option<Io> {
        if self.has_all_bytes() || self.job.counts_in_loop && self.bytes_in_loop >= self.job.size {
            return None;
        }
        loop {
            let file = self.choose_file()?;
            if let Some(io) = self.fill(file) {
                return Some(io);
            }
            self.files[file].is_done = true;
        }
    }

    fn choose_file(&mut self) -> Option<usize> {
        for _ in 0..self.files.len() {
            let file = self.next_file;
            self.next_file = (self.next_file + 1) % self.files.len();
            if !self.files[file].is_done {
                return Some(file);
            }
        }
        None
    }

    fn fill(&mut self, file: usize) -> Option<Io> {
        let is_due = |every: u64| every > 0 && self.issued[WRITE].is_multiple_of(every);
        if self.last_wrote && self.issued[WRITE] > 0 && (is_due(self.job.fsync) || is_due(self.job.fdatasync))
        {
            let is_whole = is_due(self.job.fsync);
            self.last_wrote = false;
            return Some(if is_whole { Io::Fsync(file) } else { Io::Fdatasync(file) });
        }
        let direction = self.choose_direction();
        let offset = self.offset(file, direction)?;
        let bytes = self.length(file, direction, offset)?;
        if offset + bytes > self.files[file].bytes {
            return None;
        }
        let least = self.job.block_bytes[direction].0;
        let bytes = match &mut self.files[file].map {
            Some(map) if self.job.random => {
                let added = map.add(offset / least, bytes.div_ceil(least));
                bytes.min(added * least)
            }
            _ => bytes,
        };
        if bytes == 0 {
            return None;
        }
        self.files[file].last_ends[direction] = offset + bytes;
        self.issued[direction] += 1;
        self.bytes += bytes;
        self.bytes_in_loop += bytes;
        self.last_wrote = direction == WRITE;
        Some(Io::Transfer { file, writes: direction == WRITE, offset, bytes })
    }

    fn choose_direction(&mut self) -> usize {
        if !(self.job.reads && self.job.writes) {
            return if self.job.writes { WRITE } else { READ };
        }
        if self.issued[self.direction] >= self.mix_until {
            let drawn = if self.mix.percent() <= self.job.read_percent { READ } else { WRITE };
            if drawn != self.direction {
                let shares = [self.job.read_percent, 100 - self.job.read_percent];
                self.mix_until = self.issued[self.direction] * shares[1 - self.direction] / 100;
            }
            self.direction = drawn;
        }
        self.direction
    }

    fn offset(&mut self, file: usize, direction: usize) -> Option<u64> {
        let bytes = self.files[file].bytes;
        if !self.job.random {
            if self.job.time_based && self.files.len() == 1 && self.files[file].last_ends[direction] >= bytes
            {
                self.files[file].last_ends[direction] = 0;
            }
            return Some(self.files[file].last_ends[direction]).filter(|offset| *offset < bytes);
        }
        let block = self.block(file, direction).or_else(|| {
            if !self.job.time_based {
                return None;
            }
            let mut again = self.files[file].clone();
            self.reset(&mut again);
            self.files[file] = again;
            self.block(file, direction)
        })?;
        Some(block * self.job.block_bytes[direction].0).filter(|offset| *offset < bytes)
    }

    fn block(&mut self, file: usize, direction: usize) -> Option<u64> {
        if let Some(skewed) = &mut self.files[file].skewed {
            return Some(skewed.next());
        }
        let blocks = self.files[file].bytes / self.job.block_bytes[direction].0;
        if blocks == 0 {
            return None;
        }
        let (mut first, mut count) = (0, blocks);
        if let Distribution::Zoned(zones) = &self.job.distribution {
            let draw = self.zones.percent();
            let (mut accesses, mut share) = (0, 0);
            for &(of_accesses, of_file) in zones {
                accesses += of_accesses;
                if draw <= accesses {
                    (first, count) = (share * blocks / 100, blocks * of_file / 100);
                    break;
                }
                share += of_file;
            }
        }
        let drawn = match &mut self.files[file].lfsr {
            Some(lfsr) => lfsr.next()?,
            None => self.offsets.below(count),
        };
        match &self.files[file].map {
            Some(map) if map.has(drawn) => map.next_free(drawn),
            _ => Some(first + drawn),
        }
    }

    fn length(&mut self, file: usize, direction: usize, offset: u64) -> Option<u64> {
        let (from, to) = self.job.block_bytes[direction];
        if from == to {
            return Some(from);
        }
        let room = self.files[file].bytes - offset;
        if from > room {
            return None;
        }
        loop {
            let drawn = from + self.sizes[direction].below(to);
            let bytes = (drawn - drawn % from).min(to);
            if bytes <= room {
                return Some(bytes);
            }
        }
    }
}

impl Iterator for Sequence {
    type Item = Io;

    /// Returns the next operation; `None` when the job is over. A job that only its runtime ends never is.
    fn next(&mut self) -> Option<Io> {
        loop {
            if let Some(io) = self.next_in_loop() {
                return Some(io);
            }
            if self.has_all_bytes() {
                return None;
            }
            if !self.job.time_based {
                self.loops_left = self.loops_left.checked_sub(1)?;
            } else if self.bytes_in_loop == 0 {
                return None; // no file has a block to use
            }
            self.bytes_in_loop = 0;
            self.mix_until = 0;
            if self.job.repeats {
                self.reseed();
            }
            let mut files = std::mem::take(&mut self.files);
            for file in &mut files {
                file.is_done = false;
                self.reset(file);
            }
            self.files = files;
        }
    }
}
