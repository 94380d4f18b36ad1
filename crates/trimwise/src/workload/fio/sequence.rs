//! The sequence of a job's operations, as fio decides it.

use std::collections::{BTreeMap, VecDeque};

use super::map::Map;
use super::random::{Lfsr, Skewed, Tausworthe, name_hash};
use super::{Distribution, FileOrder, Generator, Job, READ, Strides, TRIM, Verify, WRITE};

#[derive(Clone, Copy)]
enum Use {
    ReadSize = 0,
    WriteSize = 1,
    TrimSize = 2,
    Mix = 4,
    File = 5,
    Offset = 6,
    FileSize = 7,
    IsRandom = 10,
    Pace = 15,
    Zone = 16,
    WritePace = 17,
    TrimPace = 18,
}

/// Maximum number of draws for the size of a block, if none fits.
const DRAWS_MAX: u32 = 10_000;
/// Resolution with which files are chosen.
const FILE_PARTS: u64 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    Transfer {
        file: usize,
        writes: bool,
        offset: u64,
        bytes: u64,
    },
    Trim {
        file: usize,
        offset: u64,
        bytes: u64,
    },
    Fsync(usize),
    Fdatasync(usize),
    /// Syncs all files of the job, at the end of a loop.
    FsyncAll,
    /// Removes all files of the job, between its loops.
    Unlink,
}

#[derive(Clone, Debug)]
struct File {
    /// First byte that the job uses, or the first of the current zone.
    start: u64,
    offset: u64,
    bytes: u64,
    length: u64,
    is_open: bool,
    is_done: bool,
    last_starts: [Option<u64>; 3],
    last_ends: [u64; 3],
    map: Option<Map>,
    lfsr: Option<Lfsr>,
    skewed: Option<Skewed>,
}

/// The writes that are read again (`verify`).
#[derive(Clone, Debug)]
enum History {
    /// Files, offsets and lengths in the order of the writes.
    Ordered(VecDeque<(usize, u64, u64)>),
    /// Lengths by file and offset, without overwritten ones.
    Sorted(BTreeMap<(usize, u64), u64>),
}

#[derive(Clone, Debug)]
struct Draws {
    offsets: Tausworthe,
    sizes: [Tausworthe; 3],
    mix: Tausworthe,
    zones: Tausworthe,
    is_random: [Tausworthe; 3],
    file: Tausworthe,
    skewed_file: Option<Skewed>,
}

#[derive(Clone, Debug)]
pub struct Sequence {
    job: Job,
    seed: u64,
    draws: Draws,
    files: Vec<File>,
    next_file: usize,
    open_files: usize,
    /// The file of the last operation, and how many more operations it gets before the next file.
    served: Option<(usize, u64)>,
    issued: [u64; 3],
    bytes: [u64; 3],
    /// Bytes and transfers, including those that verify.
    moved_bytes: u64,
    transfers: u64,
    bytes_in_loop: u64,
    zone_bytes: u64,
    /// Operations until an offset is drawn again.
    until_drawn: u64,
    /// Number of operations in the current direction after which a direction is drawn again, and that direction.
    mix_until: u64,
    direction: usize,
    last: Option<usize>,
    history: History,
    /// Reads left of those that verify between writes.
    batch: u64,
    is_verifying: bool,
    in_loop: bool,
    has_begun: bool,
    is_over: bool,
    loops_left: u64,
}

/// fio's golden ratio for hashes.
const SPREAD: u64 = 0x9e37_0001;

/// Returns one of the seeds that fio derives from a job's seed.
fn seed_of(job: &Job, seed: u64, what: Use) -> u64 {
    let spread = |seed: u64, times: u32| (0..times).fold(seed, |seed, _| seed.wrapping_mul(SPREAD));
    let seed = spread(seed, 4 + what as u32);
    seed.wrapping_mul(job.thread_number).wrapping_add(what as u64)
}

pub fn file_sizes(job: &Job) -> Tausworthe {
    Tausworthe::new(seed_of(job, job.seed, Use::FileSize), job.generator == Generator::Tausworthe64)
}

/// Returns the generators of random times between operations in each direction.
pub fn paces(job: &Job, run_seed: u64) -> [Tausworthe; 3] {
    let seed = if job.own_seed { run_seed } else { job.seed };
    [Use::Pace, Use::WritePace, Use::TrimPace].map(|what| Tausworthe::new(seed_of(job, seed, what), false))
}

impl Draws {
    fn new(job: &Job, seed: u64) -> Self {
        let is_64 = job.generator == Generator::Tausworthe64;
        let seed_for = |what| seed_of(job, seed, what);
        let rng = |what, is_64| Tausworthe::new(seed_for(what), is_64);
        // Data that are written and read, or trimmed and written, have the same sizes.
        let write_size = if job.verify.is_some() { Use::ReadSize } else { Use::WriteSize };
        let trim_size = if job.trims_and_writes() { write_size } else { Use::TrimSize };
        let skewed_file = match job.service.order {
            FileOrder::Skewed(shape) => {
                let parts = job.files.len() as u64 * FILE_PARTS;
                Some(Skewed::new(parts.max(1), seed_for(Use::File) as u32, shape, false))
            }
            _ => None,
        };
        Self {
            offsets: rng(Use::Offset, is_64),
            sizes: [Use::ReadSize, write_size, trim_size].map(|what| rng(what, is_64)),
            mix: rng(Use::Mix, false),
            zones: rng(Use::Zone, false),
            is_random: [(); 3].map(|()| rng(Use::IsRandom, false)),
            file: rng(Use::File, is_64),
            skewed_file,
        }
    }
}

impl History {
    fn new(job: &Job) -> Self {
        let is_ordered = job.verify.is_none_or(|verify| verify.in_order) || !job.may_overwrite;
        if is_ordered { Self::Ordered(VecDeque::new()) } else { Self::Sorted(BTreeMap::new()) }
    }

    fn len(&self) -> usize {
        match self {
            Self::Ordered(list) => list.len(),
            Self::Sorted(map) => map.len(),
        }
    }

    fn add(&mut self, file: usize, offset: u64, bytes: u64) {
        match self {
            Self::Ordered(list) => list.push_back((file, offset, bytes)),
            Self::Sorted(map) => {
                let before = map.range(..=(file, offset)).next_back().map(|(&at, &len)| (at, len));
                if let Some((at, len)) = before.filter(|((f, at), len)| *f == file && at + len > offset) {
                    debug_assert!(len > 0);
                    map.remove(&at);
                }
                let after: Vec<_> =
                    map.range((file, offset)..(file, offset + bytes)).map(|(at, _)| *at).collect();
                for at in after {
                    map.remove(&at);
                }
                map.insert((file, offset), bytes);
            }
        }
    }

    fn pop(&mut self) -> Option<(usize, u64, u64)> {
        match self {
            Self::Ordered(list) => list.pop_front(),
            Self::Sorted(map) => map.pop_first().map(|((file, offset), bytes)| (file, offset, bytes)),
        }
    }
}

impl Sequence {
    /// Creates the sequence of a job. `run_seed` is for jobs whose seed fio takes from the system.
    pub fn new(job: &Job, run_seed: u64) -> Self {
        let seed = if job.own_seed { run_seed } else { job.seed };
        let mut new = Self {
            seed,
            draws: Draws::new(job, seed),
            files: Vec::new(),
            next_file: 0,
            open_files: 0,
            served: None,
            issued: [0; 3],
            bytes: [0; 3],
            moved_bytes: 0,
            transfers: 0,
            bytes_in_loop: 0,
            zone_bytes: 0,
            until_drawn: 1,
            mix_until: 0,
            direction: READ,
            last: None,
            history: History::new(job),
            batch: 0,
            is_verifying: false,
            in_loop: false,
            has_begun: false,
            is_over: false,
            loops_left: job.loops,
            job: job.clone(),
        };
        new.files = (0..job.files.len()).map(|file| new.file(file)).collect();
        new
    }

    pub fn file_name(&self, file: usize) -> &str {
        &self.job.files[file].name
    }

    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        self.job.files.iter().map(|file| file.name.as_str())
    }

    /// Returns the seed of the random map and the offsets.
    fn offset_seed(&self) -> u64 {
        seed_of(&self.job, self.seed, Use::Offset)
    }

    fn file(&self, index: usize) -> File {
        let (job, spec) = (&self.job, &self.job.files[index]);
        let ranges = job.sizes.ranges;
        let blocks = spec.bytes.div_ceil(ranges[READ].0.min(ranges[WRITE].0)).max(1);
        let seed = u64::from(name_hash(&spec.seed_name)).wrapping_mul(job.thread_number);
        let seed = seed.wrapping_mul(self.offset_seed()) as u32;
        let skewed = match job.distribution {
            Distribution::Skewed(shape) if job.random => Some(Skewed::new(blocks, seed, shape, true)),
            _ => None,
        };
        let blocks = job.zones.map_or(spec.bytes, |zones| zones.range) / job.least();
        let is_uniform = job.random
            && matches!(
                job.distribution,
                Distribution::Uniform | Distribution::Zoned(_) | Distribution::ZonedBytes(_)
            );
        let lfsr =
            (is_uniform && job.generator == Generator::Lfsr).then(|| Lfsr::new(blocks, self.offset_seed()));
        let map = (is_uniform && job.generator != Generator::Lfsr && job.has_map).then(|| Map::new(blocks));
        File {
            start: spec.offset,
            offset: spec.offset,
            bytes: spec.bytes,
            length: spec.length,
            is_open: false,
            is_done: false,
            last_starts: [None; 3],
            last_ends: [spec.offset; 3],
            map,
            lfsr: lfsr.flatten(),
            skewed,
        }
    }

    fn reset(&mut self, file: usize) {
        let seed = self.offset_seed();
        let file = &mut self.files[file];
        (file.last_starts, file.last_ends) = ([None; 3], [file.offset; 3]);
        if let Some(map) = &mut file.map {
            map.clear();
        }
        if let Some(lfsr) = &mut file.lfsr {
            lfsr.reset(seed);
        }
    }

    fn open(&mut self, file: usize) -> bool {
        if self.files[file].is_open {
            return true;
        }
        if self.open_files >= self.job.open_files {
            return false;
        }
        self.reset(file);
        self.files[file].is_open = true;
        self.open_files += 1;
        true
    }

    fn close(&mut self, file: usize) {
        if std::mem::take(&mut self.files[file].is_open) {
            self.open_files -= 1;
        }
    }

    /// Closes all files and starts over (`clear_io_state`).
    fn clear(&mut self) {
        for file in 0..self.files.len() {
            self.close(file);
            let file = &mut self.files[file];
            file.is_done = false;
            file.offset = file.start;
        }
        (self.mix_until, self.zone_bytes) = (0, 0);
        if self.job.repeats {
            self.draws = Draws::new(&self.job, self.seed);
        }
    }

    /// Bytes after which the job ends, apart from its loops.
    fn limit(&self) -> u64 {
        self.job.io_size.unwrap_or(self.job.size)
    }

    fn has_all_operations(&self) -> bool {
        let factor = if self.job.trims_and_writes() { 2 } else { 1 };
        self.job
            .operations_max
            .is_some_and(|most| self.transfers >= most.saturating_mul(factor).saturating_mul(self.job.loops))
    }

    fn has_all_bytes(&self) -> bool {
        let [read, written, trimmed] = self.bytes;
        let bytes = match self.job.directions {
            [true, true, _] => read + written,
            [_, true, _] => written,
            [true, false, _] => read,
            _ => trimmed,
        };
        bytes >= self.limit().saturating_mul(self.job.loops) || self.has_all_operations()
    }

    /// Returns true if another loop begins (`keep_running`).
    fn keeps_running(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        if self.job.time_based {
            return true;
        }
        if self.loops_left > 0 {
            self.loops_left -= 1;
            return true;
        }
        let most = self.job.sizes.ranges.map(|(_, to)| to).into_iter().max().unwrap_or(1);
        let left = self.limit().saturating_sub(self.moved_bytes);
        let is_done = self.files.iter().all(|file| file.is_done) && self.job.io_size.is_none();
        !self.has_all_operations() && left > 0 && left >= most && !is_done
    }

    /// Bytes that end a loop.
    fn loop_bytes(&self) -> u64 {
        let job = &self.job;
        let io_size = job.io_size.unwrap_or(0);
        let mut bytes = job.size;
        if job.writes() && (!job.random || job.may_overwrite) {
            bytes = bytes.max(io_size);
        }
        if job.writes() && job.verify.is_some_and(|verify| verify.backlog.is_some()) {
            bytes = bytes.saturating_add(job.size);
        }
        if job.trims_and_writes() {
            bytes = bytes.saturating_add(self.limit().saturating_mul(job.loops));
        }
        bytes
    }

    fn next_in_loop(&mut self) -> Option<Io> {
        let writes_nothing = self.job.verify.is_some_and(|verify| verify.is_all) && self.job.writes();
        loop {
            if self.has_all_bytes() && !self.job.time_based
                || self.job.counts_in_loop && self.bytes_in_loop >= self.loop_bytes()
            {
                return None;
            }
            if let Some(io) = self.verified_in_between() {
                return Some(io);
            }
            let io = self.next_of_files()?;
            if !writes_nothing || matches!(io, Io::Transfer { writes: false, .. }) {
                return Some(io);
            }
        }
    }

    fn next_of_files(&mut self) -> Option<Io> {
        let mut failures = 0;
        loop {
            let file = self.choose_file()?;
            if let Some(io) = self.fill(file) {
                return Some(io);
            }
            self.close(file);
            if matches!(self.job.service.order, FileOrder::Skewed(_)) {
                self.reset(file);
                failures += 1;
                if failures > DRAWS_MAX {
                    return None;
                }
            } else {
                self.files[file].is_done = true;
            }
            if self.job.fsync_on_close && self.owes_sync() {
                return Some(Io::Fsync(file));
            }
        }
    }

    /// Returns true if the job writes, is not at the end of a loop, and its last operation was no sync (`should_fsync`).
    pub fn owes_sync(&self) -> bool {
        self.in_loop && self.last.is_some() && self.job.writes()
    }

    /// Reads what was written, after every `verify_backlog` writes.
    fn verified_in_between(&mut self) -> Option<Io> {
        let (every, batch) = self.job.verify.and_then(|verify| verify.backlog)?;
        if self.batch == 0 {
            let is_due = self.history.len() > 0 && (self.history.len() as u64).is_multiple_of(every);
            if !is_due || self.last == Some(READ) {
                return None;
            }
            self.batch = batch;
        }
        let io = self.verifying_read()?;
        self.batch -= 1;
        self.bytes_in_loop += match io {
            Io::Transfer { bytes, .. } => bytes,
            _ => 0,
        };
        Some(io)
    }

    fn verifying_read(&mut self) -> Option<Io> {
        let (file, offset, bytes) = self.history.pop()?;
        self.last = Some(READ);
        self.moved_bytes += bytes;
        self.transfers += 1;
        if self.job.verify.is_some_and(|verify| verify.in_order) {
            self.bytes[WRITE] += bytes; // fio draws the write again, and counts it
        }
        Some(Io::Transfer { file, writes: false, offset, bytes })
    }

    fn choose_file(&mut self) -> Option<usize> {
        let service = &self.job.service;
        if let Some((file, left)) = self.served.filter(|(file, _)| self.files[*file].is_open) {
            if service.order == FileOrder::Sequential {
                return Some(file);
            }
            if left > 0 {
                self.served = Some((file, left - 1));
                return Some(file);
            }
        }
        let run = service.run;
        let is_in_turn = matches!(service.order, FileOrder::RoundRobin | FileOrder::Sequential);
        if self.files.iter().all(|file| file.is_done) {
            return None;
        }
        loop {
            let file = if is_in_turn {
                let file = self.next_file;
                self.next_file = (self.next_file + 1) % self.files.len();
                file
            } else {
                self.drawn_file()
            };
            if !self.files[file].is_done && self.open(file) {
                self.served = Some((file, run - 1));
                return Some(file);
            }
        }
    }

    fn drawn_file(&mut self) -> usize {
        let drawn = match &mut self.draws.skewed_file {
            Some(skewed) => skewed.next() / FILE_PARTS,
            None => self.draws.file.below(self.files.len() as u64),
        };
        drawn as usize
    }

    fn fill(&mut self, file: usize) -> Option<Io> {
        if self.last == Some(WRITE) && self.issued[WRITE] > 0 {
            let is_due = |every: u64| every > 0 && self.issued[WRITE].is_multiple_of(every);
            let (whole, data) = (is_due(self.job.fsync), is_due(self.job.fdatasync));
            if whole || data {
                self.last = None;
                return Some(if whole { Io::Fsync(file) } else { Io::Fdatasync(file) });
            }
        }
        let direction = self.choose_direction(file);
        if let Some(zones) = self.job.zones {
            self.enter_zone(file, direction, zones);
        }
        let (offset, is_random, may_repeat) = self.offset(file, direction)?;
        let bytes = self.length(file, direction, offset, is_random).filter(|bytes| *bytes > 0)?;
        if offset + bytes > self.files[file].length {
            return None;
        }
        let least = self.job.sizes.ranges[direction].0;
        let start = self.files[file].offset;
        let bytes = match &mut self.files[file].map {
            Some(map) if !may_repeat => {
                let added = map.add((offset - start) / least, bytes.div_ceil(least));
                bytes.min(added * least)
            }
            _ => bytes,
        };
        if bytes == 0 {
            return None;
        }
        self.zone_bytes += bytes;
        let at = &mut self.files[file];
        at.last_starts[direction] = Some(offset);
        at.last_ends[direction] = offset + bytes;
        self.issued[direction] += 1;
        self.transfers += 1;
        self.bytes[direction] += bytes;
        self.moved_bytes += bytes;
        self.bytes_in_loop += bytes;
        self.last = Some(direction);
        if direction == WRITE && self.job.verify.is_some_and(|verify| verify.reads) {
            self.history.add(file, offset, bytes);
        }
        Some(match direction {
            TRIM => Io::Trim { file, offset, bytes },
            direction => Io::Transfer { file, writes: direction == WRITE, offset, bytes },
        })
    }

    fn choose_direction(&mut self, file: usize) -> usize {
        match self.job.directions {
            [true, true, _] => {}
            [_, true, true] => {
                let at = &self.files[file];
                return if at.last_starts[WRITE] == at.last_starts[TRIM] { TRIM } else { WRITE };
            }
            [_, true, false] => return WRITE,
            [true, false, _] => return READ,
            _ => return TRIM,
        }
        if self.issued[self.direction] >= self.mix_until {
            let drawn = if self.draws.mix.percent() <= self.job.read_percent { READ } else { WRITE };
            if drawn != self.direction {
                let shares = [self.job.read_percent, 100 - self.job.read_percent];
                self.mix_until = self.issued[self.direction] * shares[1 - self.direction] / 100;
            }
            self.direction = drawn;
        }
        self.direction
    }

    /// Goes on to the next zone if the current one has had its bytes.
    fn enter_zone(&mut self, file: usize, direction: usize, zones: Strides) {
        let at = &mut self.files[file];
        if self.zone_bytes >= zones.size {
            self.zone_bytes = 0;
            at.offset = at.offset.saturating_add(zones.range).saturating_add(zones.skip);
            if at.offset >= at.length {
                at.offset = at.start;
            }
            at.last_ends[direction] = at.offset;
        }
        if at.last_ends[direction] >= at.offset.saturating_add(zones.range) {
            at.last_ends[direction] = at.offset;
        }
        if self.zone_bytes.is_multiple_of(zones.range.max(1)) {
            self.reset(file);
        }
    }

    /// Returns the next offset in the file, and true if it is random and may repeat an earlier one.
    fn offset(&mut self, file: usize, direction: usize) -> Option<(u64, bool, bool)> {
        let job = &self.job;
        let every = job.steps.every;
        self.until_drawn -= 1;
        let is_drawn = self.until_drawn == 0;
        if is_drawn {
            self.until_drawn = every;
        }
        let at = &self.files[file];
        let (relative, is_random, may_repeat) = if job.random && job.trims_and_writes() && direction == WRITE
        {
            (at.last_starts[TRIM]?.checked_sub(at.offset)?, true, true)
        } else if is_drawn && job.random {
            if self.is_random(direction) {
                (self.random_offset(file, direction)?, true, false)
            } else {
                let next = self.sequential_offset(file, direction);
                (next.or_else(|| self.random_offset(file, direction))?, false, true)
            }
        } else if is_drawn {
            (self.sequential_offset(file, direction)?, false, false)
        } else if job.steps.is_identical {
            (at.last_starts[direction].map_or(Some(0), |start| start.checked_sub(at.offset))?, false, true)
        } else {
            let next = self.sequential_offset(file, direction);
            (next.or_else(|| self.random_offset(file, direction))?, false, true)
        };
        let at = &mut self.files[file];
        let offset = relative.checked_add(at.offset)?;
        if relative >= at.bytes || offset >= at.length {
            return None;
        }
        if self.job.random
            && direction == TRIM
            && self.job.trims_and_writes()
            && at.last_starts[TRIM] == Some(offset)
        {
            // The same place again: the next operation must still be its write.
            at.last_starts[WRITE] = at.last_starts[WRITE].map(|start| start.wrapping_sub(1));
        }
        Some((offset, is_random, may_repeat))
    }

    fn is_random(&mut self, direction: usize) -> bool {
        let share = self.job.percent_random[direction];
        share == 100 || self.draws.is_random[direction].percent() <= share
    }

    fn random_offset(&mut self, file: usize, direction: usize) -> Option<u64> {
        let block = self.block(file, direction).or_else(|| {
            if !self.job.time_based && !matches!(self.job.service.order, FileOrder::Skewed(_)) {
                return None;
            }
            self.reset(file);
            self.block(file, direction)
        })?;
        block.checked_mul(self.job.align[direction])
    }

    fn sequential_offset(&mut self, file: usize, direction: usize) -> Option<u64> {
        let (job, at) = (&self.job, &mut self.files[file]);
        let is_at_end = at.last_ends[direction] >= at.bytes.saturating_add(at.start);
        let writes_more = job.writes() && job.io_size.is_some_and(|bytes| bytes > job.size);
        if is_at_end && (job.time_based && self.job.files.len() == 1 || writes_more) {
            at.last_ends[direction] = at.offset;
        }
        if at.last_ends[direction] >= at.length {
            return None;
        }
        let (skip, end) = (job.steps.skip, at.length.min(at.bytes));
        if at.last_ends[direction] == at.offset && at.offset > 0 && skip < 0 {
            at.last_ends[direction] = end;
        }
        let position = at.last_ends[direction].checked_sub(at.offset)?;
        if position == 0 || skip == 0 {
            return Some(position);
        }
        match position.checked_add_signed(skip) {
            Some(position) if position < at.length => Some(position),
            _ if skip > 0 => Some(at.offset),
            _ => end.checked_add_signed(skip),
        }
    }

    /// Returns the number of blocks among which offsets are drawn.
    fn blocks(&self, file: usize, direction: usize) -> u64 {
        let (least, align) = (self.job.sizes.ranges[direction].0, self.job.align[direction]);
        let bytes = self.job.zones.map_or(self.files[file].bytes, |zones| zones.range);
        bytes.saturating_sub(least.saturating_sub(align)) / align
    }

    fn block(&mut self, file: usize, direction: usize) -> Option<u64> {
        if let Some(skewed) = &mut self.files[file].skewed {
            return Some(skewed.next());
        }
        let blocks = self.blocks(file, direction);
        if blocks == 0 {
            return None;
        }
        let (mut first, mut count) = (0, blocks);
        match &self.job.distribution {
            Distribution::Zoned(zones) if !zones[direction].is_empty() => {
                let (from, share) = drawn_zone(&mut self.draws.zones, &zones[direction]);
                (first, count) = (from * blocks / 100, blocks * share / 100);
            }
            Distribution::ZonedBytes(zones) if !zones[direction].is_empty() => {
                let (from, bytes) = drawn_zone(&mut self.draws.zones, &zones[direction]);
                let align = self.job.align[direction];
                first = from / align;
                let end = from.saturating_add(bytes) / align;
                if end > blocks {
                    return None;
                }
                count = end - first;
            }
            Distribution::Sequence(sequence, is_strided) => {
                let (number, of) = (self.issued[direction], sequence.len() as u64);
                let block = sequence[(number % of) as usize];
                let behind = if *is_strided { number / of * of } else { 0 };
                let least = self.job.sizes.ranges[direction].0;
                return Some(block + behind).filter(|block| *block < self.files[file].bytes / least);
            }
            _ => {}
        }
        let drawn = match &mut self.files[file].lfsr {
            Some(lfsr) => lfsr.next()?,
            None => self.draws.offsets.below(count),
        };
        match &self.files[file].map {
            Some(map) if map.has(drawn) => map.next_free(drawn),
            _ => Some(first + drawn),
        }
    }

    fn length(&mut self, file: usize, direction: usize, offset: u64, is_random: bool) -> Option<u64> {
        let (job, at) = (&self.job, &self.files[file]);
        if job.random && job.trims_and_writes() && direction == WRITE {
            return at.last_ends[TRIM].checked_sub(at.last_starts[TRIM]?);
        }
        let direction = match job.sizes.is_by_order {
            true if is_random => WRITE,
            true => READ,
            false => direction,
        };
        let (from, to) = job.sizes.ranges[direction];
        if from == to {
            return Some(from);
        }
        let room = (at.bytes + at.start).saturating_sub(offset);
        if from > room {
            return None;
        }
        let (split, is_unaligned) = (&job.sizes.splits[direction], job.sizes.is_unaligned);
        let draws = &mut self.draws.sizes[direction];
        for _ in 0..DRAWS_MAX {
            let mut bytes = if split.is_empty() {
                from + draws.below(to)
            } else {
                let drawn = draws.draw();
                let (mut sum, mut bytes) = (0, from);
                for &(size, share) in split.iter().filter(|(_, share)| *share > 0) {
                    bytes = size;
                    sum += share;
                    if drawn / sum <= draws.most() / 100 && size <= room {
                        break;
                    }
                }
                bytes
            };
            if !is_unaligned {
                bytes -= bytes % from;
            }
            let bytes = bytes.min(to);
            if bytes <= room {
                return Some(bytes);
            }
        }
        Some(from)
    }
}

/// Draws a zone. Returns the size of everything before it, and its own size.
fn drawn_zone(draws: &mut Tausworthe, zones: &[(u64, u64)]) -> (u64, u64) {
    let draw = draws.percent();
    let (mut accesses, mut before) = (0, 0_u64);
    for &(share, size) in zones {
        accesses += share;
        if draw <= accesses {
            return (before, size);
        }
        before = before.saturating_add(size);
    }
    (0, 0)
}

impl Iterator for Sequence {
    type Item = Io;

    /// Returns the next operation; `None` when the job is over. A job that only its runtime ends is never over.
    fn next(&mut self) -> Option<Io> {
        loop {
            if self.is_verifying {
                if let Some(io) = self.verifying_read() {
                    return Some(io);
                }
                self.is_verifying = false;
            }
            if !self.in_loop {
                if !self.keeps_running() {
                    return None;
                }
                (self.in_loop, self.bytes_in_loop) = (true, 0);
                if std::mem::replace(&mut self.has_begun, true) {
                    self.clear();
                    if self.job.unlinks_in_loops {
                        return Some(Io::Unlink);
                    }
                }
            }
            if let Some(io) = self.next_in_loop() {
                return Some(io);
            }
            let syncs = self.job.end_fsync && self.owes_sync();
            self.in_loop = false;
            self.is_over |= self.bytes_in_loop == 0;
            if self.job.verify.is_some_and(|Verify { reads, .. }| reads) && self.history.len() > 0 {
                self.is_verifying = true;
                self.clear();
            }
            if syncs {
                self.last = None;
                return Some(Io::FsyncAll);
            }
        }
    }
}

#[cfg(test)]
mod tests;
