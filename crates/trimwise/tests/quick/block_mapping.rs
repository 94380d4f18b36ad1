//! The block mapping against a naive model of its merge rules, which counts each copy as it makes it.
//!
//! The model knows superblocks as lists of units, finds everything by looking through them, and has no time. The
//! device must have copied, and filled with nothing, exactly as many units.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trimwise::ssd::{BlockMappingConfig, MappingConfig, Ssd, SsdConfig};
use trimwise::units::{Lpn, SimTime, UNIT_BYTES, UnitRange};

/// Units that the host sees; not a whole number of superblocks.
const UNITS: u32 = 301;
const PAGES_PER_BLOCK: u32 = 8;
const PAGE_UNITS: u32 = 2;
/// One die of two planes: a page of each makes a stripe.
const STRIPE: u32 = 2 * PAGE_UNITS;
const SUPERBLOCK: u32 = 2 * PAGES_PER_BLOCK * PAGE_UNITS;

fn config(log_superblocks: u32, streams: u32) -> SsdConfig {
    let mut config = SsdConfig { over_provisioning_percent: None, ..SsdConfig::default() };
    config.capacity_bytes = u64::from(UNITS) * UNIT_BYTES;
    let g = &mut config.geometry;
    (g.channels, g.dies_per_channel, g.planes_per_die, g.superblock_planes) = (1, 1, 2, 2);
    (g.pages_per_block, g.page_bytes) = (PAGES_PER_BLOCK, PAGE_UNITS * UNIT_BYTES as u32);
    g.blocks_per_plane = Some(UNITS.div_ceil(SUPERBLOCK) + log_superblocks + streams + 3);
    config.gc.host_frontiers = streams;
    config.gc.idle = false;
    config.cache.bytes = 64 * UNIT_BYTES;
    config.mapping = MappingConfig::Block(BlockMappingConfig { log_superblocks });
    config
}

/// What a superblock holds, slot by slot up to the next free one: a unit, or nothing.
type Superblock = Vec<Option<u32>>;

#[derive(Clone, Debug)]
struct OpenStream {
    block: u32,
    superblock: Superblock,
    /// Whether what it writes is its logical block's first data.
    in_place: bool,
}

#[derive(Clone, Debug, Default)]
struct Place {
    open: Option<OpenStream>,
    continues: Option<u32>,
    used: u64,
}

#[derive(Clone, Debug)]
struct Naive {
    log_max: usize,
    data: BTreeMap<u32, Superblock>,
    log: Vec<Superblock>,
    /// The unit behind the one that was written last.
    continues: Option<u32>,
    streams: Vec<Place>,
    clock: u64,
    copied: u64,
    padding: u64,
    reclaimed: u64,
}

impl Naive {
    fn new(log_superblocks: u32, streams: u32) -> Self {
        Self {
            log_max: log_superblocks as usize,
            data: BTreeMap::new(),
            log: Vec::new(),
            continues: None,
            streams: vec![Place::default(); streams as usize],
            clock: 0,
            copied: 0,
            padding: 0,
            reclaimed: 0,
        }
    }

    /// Takes a unit out of wherever it is. Returns whether it was anywhere.
    fn take_out(&mut self, lpn: u32) -> bool {
        let open = self.streams.iter_mut().filter_map(|place| place.open.as_mut());
        let everywhere = self.data.values_mut().chain(&mut self.log).chain(open.map(|s| &mut s.superblock));
        let mut found = false;
        for slot in everywhere.flatten() {
            if *slot == Some(lpn) {
                *slot = None;
                found = true;
            }
        }
        found
    }

    fn write(&mut self, lpn: u32, following: u32) {
        let sequential = self.continues == Some(lpn) || following + 1 >= STRIPE;
        self.continues = Some(lpn + 1);
        if let Some(index) = self.stream_for(lpn, sequential) {
            self.take_out(lpn);
            self.clock += 1;
            let place = &mut self.streams[index];
            place.used = self.clock;
            place.continues = Some(lpn + 1);
            let open = place.open.as_mut().expect("just found open");
            open.superblock.push(Some(lpn));
            self.end_if_full(index);
            return;
        }
        if self.log.last().is_none_or(|last| last.len() == SUPERBLOCK as usize) {
            self.make_room();
            self.log.push(Vec::new());
        }
        self.take_out(lpn);
        self.log.last_mut().expect("just made").push(Some(lpn));
    }

    fn stream_for(&mut self, lpn: u32, sequential: bool) -> Option<usize> {
        let open = self.streams.iter().position(|place| place.open.is_some() && place.continues == Some(lpn));
        if open.is_some() || !sequential {
            return open;
        }
        let (block, offset) = (lpn / SUPERBLOCK, lpn % SUPERBLOCK);
        let other =
            self.streams.iter().position(|place| place.open.as_ref().is_some_and(|open| open.block == block));
        let end_of_data = self.data.get(&block).map(|data| data.len() as u32);
        let continues_data = other.is_none() && end_of_data == Some(offset);
        if offset != 0 && !continues_data {
            return None;
        }
        if let Some(other) = other {
            self.close(other);
        }
        let unused = (0..self.streams.len()).find(|&i| self.streams[i].open.is_none());
        let oldest = (0..self.streams.len()).min_by_key(|&i| self.streams[i].used);
        let index = other.or(unused).or(oldest).expect("one stream at least");
        self.close(index);
        let (superblock, in_place) = if continues_data {
            (self.data.remove(&block).expect("it has an end"), true)
        } else if self.data.contains_key(&block) {
            self.make_room();
            (Vec::new(), false)
        } else {
            (Vec::new(), true)
        };
        let open = Some(OpenStream { block, superblock, in_place });
        self.streams[index] = Place { open, continues: Some(lpn), used: 0 };
        Some(index)
    }

    /// Copies a logical block's units to a list until that is `end` long, and fills its stripes with nothing.
    fn gather(&mut self, block: u32, target: &mut Superblock, end: u32) {
        let mut programmed = target.len();
        while target.len() < end as usize {
            let begun = !target.len().is_multiple_of(STRIPE as usize);
            let mut copied = 0;
            let mut holes = 0;
            loop {
                let lpn = block * SUPERBLOCK + target.len() as u32;
                let found = self.take_out(lpn);
                target.push(found.then_some(lpn));
                copied += u64::from(found);
                holes += u64::from(!found);
                if target.len().is_multiple_of(STRIPE as usize) {
                    break;
                }
            }
            if copied > 0 || begun {
                self.copied += copied;
                self.padding += holes;
                programmed = target.len();
            }
        }
        target.truncate(programmed);
    }

    /// Completes the stripe that a stream has begun.
    fn complete_stripe(&mut self, index: usize) {
        let Some(mut open) = self.streams[index].open.take() else { return };
        let length = open.superblock.len() as u32;
        if length.is_multiple_of(STRIPE) {
            self.streams[index].open = Some(open);
            return;
        }
        let end = length.next_multiple_of(STRIPE);
        self.gather(open.block, &mut open.superblock, end);
        self.streams[index].continues = Some(open.block * SUPERBLOCK + end);
        self.streams[index].open = Some(open);
        self.end_if_full(index);
    }

    fn end_if_full(&mut self, index: usize) {
        let place = &mut self.streams[index];
        if let Some(open) = place.open.take_if(|open| open.superblock.len() == SUPERBLOCK as usize) {
            self.data.insert(open.block, open.superblock);
        }
    }

    fn close(&mut self, index: usize) {
        self.complete_stripe(index);
        let Some(mut open) = self.streams[index].open.take() else { return };
        if !open.in_place {
            self.gather(open.block, &mut open.superblock, SUPERBLOCK);
        }
        self.data.insert(open.block, open.superblock);
    }

    /// Sees to it that the log may grow by one superblock.
    fn make_room(&mut self) {
        let of_log = |place: &Place| place.open.as_ref().is_some_and(|open| !open.in_place);
        while self.log.len() + self.streams.iter().filter(|p| of_log(p)).count() >= self.log_max {
            if self.log.is_empty() {
                let streams = (0..self.streams.len()).filter(|&i| of_log(&self.streams[i]));
                let oldest = streams.min_by_key(|&i| self.streams[i].used).expect("they fill the log");
                self.close(oldest);
                continue;
            }
            self.reclaimed += 1;
            while let Some(lpn) = self.log[0].iter().copied().flatten().next() {
                self.merge(lpn / SUPERBLOCK);
            }
            if self.log.len() == 1 {
                self.pad_log();
            }
            self.log.remove(0);
        }
    }

    fn merge(&mut self, block: u32) {
        let open = |place: &Place| place.open.as_ref().is_some_and(|open| open.block == block);
        if let Some(index) = self.streams.iter().position(open) {
            self.close(index);
            let units = block * SUPERBLOCK..(block + 1) * SUPERBLOCK;
            if !self.log.iter().flatten().flatten().any(|lpn| units.contains(lpn)) {
                return;
            }
        }
        let mut fresh = Vec::new();
        self.gather(block, &mut fresh, SUPERBLOCK);
        self.data.insert(block, fresh);
    }

    fn pad_log(&mut self) {
        let Some(last) = self.log.last_mut() else { return };
        let end = last.len().next_multiple_of(STRIPE as usize);
        self.padding += (end - last.len()) as u64;
        last.resize(end, None);
    }

    fn flush(&mut self) {
        self.pad_log();
        (0..self.streams.len()).for_each(|index| self.complete_stripe(index));
    }

    fn trim(&mut self, start: u32, end: u32) {
        for block in start / SUPERBLOCK..end.div_ceil(SUPERBLOCK) {
            let units = block * SUPERBLOCK..(block + 1) * SUPERBLOCK;
            let mut freed = false;
            for lpn in start.max(units.start)..end.min(units.end) {
                freed |= self.take_out(lpn);
            }
            let open = self.streams.iter().filter_map(|place| place.open.as_ref());
            let everywhere = self.data.values().chain(&self.log).chain(open.map(|s| &s.superblock));
            if freed && !everywhere.flatten().flatten().any(|lpn| units.contains(lpn)) {
                let of_block = |p: &Place| p.open.as_ref().is_some_and(|open| open.block == block);
                if let Some(index) = self.streams.iter().position(of_block) {
                    self.close(index);
                }
                self.data.remove(&block);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Command {
    Write(u32, u32),
    Trim(u32, u32),
    Flush,
}

fn command() -> impl Strategy<Value = Command> {
    let clip = |(start, units): (u32, u32)| (start, (start + units).min(UNITS));
    prop_oneof![
        20 => (0..UNITS, 1u32..4).prop_map(clip).prop_map(|(s, e)| Command::Write(s, e)),
        // Hot units in few logical blocks, so that the log is merged for part of them only.
        10 => (0..2 * SUPERBLOCK, 1u32..3).prop_map(clip).prop_map(|(s, e)| Command::Write(s, e)),
        // Streams, from the first unit of a logical block or from anywhere.
        6 => (0..10u32, 1..3 * SUPERBLOCK).prop_map(move |(b, n)| clip((b * SUPERBLOCK % UNITS, n)))
            .prop_map(|(s, e)| Command::Write(s, e)),
        4 => (0..UNITS, 1..2 * SUPERBLOCK).prop_map(clip).prop_map(|(s, e)| Command::Write(s, e)),
        3 => (0..UNITS, 1..2 * SUPERBLOCK).prop_map(clip).prop_map(|(s, e)| Command::Trim(s, e)),
        2 => Just(Command::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merges_copy_what_the_rules_say(
        log_superblocks in 1u32..6, streams in 1u32..4, commands in prop::collection::vec(command(), 1..200)
    ) {
        let mut ssd = Ssd::new(&config(log_superblocks, streams), 1).expect("a valid configuration");
        let mut naive = Naive::new(log_superblocks, streams);
        let mut now = SimTime::ZERO;
        let range = |start: u32, end: u32| UnitRange::new(Lpn(start.into()), u64::from(end - start));
        for (step, command) in commands.iter().enumerate() {
            match *command {
                Command::Write(start, end) => {
                    now = ssd.write(now, range(start, end));
                    (start..end).for_each(|lpn| naive.write(lpn, end - lpn - 1));
                }
                Command::Trim(start, end) => {
                    now = ssd.trim(now, &[range(start, end)]);
                    naive.trim(start, end);
                }
                Command::Flush => {
                    now = ssd.flush(now);
                    naive.flush();
                }
            }
            let nand = ssd.stats().nand_units;
            prop_assert_eq!(nand.gc, naive.copied, "copies after step {}, {:?}", step, command);
            prop_assert_eq!(nand.padding, naive.padding, "padding after step {}, {:?}", step, command);
            prop_assert_eq!(ssd.stats().gc_victims, naive.reclaimed, "victims after step {}, {:?}", step, command);
        }
        prop_assert!(ssd.audit().is_ok());
    }
}
