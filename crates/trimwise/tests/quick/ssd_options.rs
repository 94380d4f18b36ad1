//! The SLC cache and the map cache against naive models that count what each writes in addition to the host.
//!
//! A page is a unit and a superblock lies on one die, so that every unit is a stripe. There is room enough for nothing to
//! be collected: what is written is the host's, the map's, and what is folded.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use trimwise::ssd::{MapCacheConfig, MappingConfig, SlcConfig, Ssd, SsdConfig, TrimMap};
use trimwise::units::{Lpn, SimDuration, SimTime, UNIT_BYTES, UnitRange};

/// Units of a part of the map.
const PART: u64 = 1_024;

#[derive(Clone, Debug)]
enum Command {
    Write(u64, u64),
    Read(u64, u64),
    Trim(u64, u64),
    Idle,
}

fn command(units: u64, longest: u64) -> impl Strategy<Value = Command> {
    let range = move |longest: u64| {
        (0..units, 1..=longest).prop_map(move |(start, count)| (start, count.min(units - start)))
    };
    prop_oneof![
        12 => range(longest).prop_map(|(s, n)| Command::Write(s, n)),
        4 => range(longest).prop_map(|(s, n)| Command::Read(s, n)),
        2 => range(longest).prop_map(|(s, n)| Command::Trim(s, n)),
        1 => range(units).prop_map(|(s, n)| Command::Trim(s, n)),
        1 => Just(Command::Idle),
    ]
}

fn config(units: u64, superblocks: u32) -> SsdConfig {
    let mut config = SsdConfig { over_provisioning_percent: None, ..SsdConfig::default() };
    config.capacity_bytes = units * UNIT_BYTES;
    let g = &mut config.geometry;
    (g.channels, g.dies_per_channel, g.planes_per_die, g.superblock_planes) = (1, 1, 1, 1);
    (g.blocks_per_plane, g.pages_per_block, g.page_bytes) = (Some(superblocks), SUPERBLOCK as u32, 4096);
    config.gc.idle = false;
    config.gc.idle_threshold_ns = 1_000_000_000;
    config.trim.max_units_per_range = units as u32;
    config
}

const SUPERBLOCK: u64 = 24;

/// Hands a command to the device. Returns when it completes.
fn send(ssd: &mut Ssd, now: SimTime, command: &Command) -> SimTime {
    let range = |start, units| UnitRange::new(Lpn(start), units);
    match *command {
        Command::Write(start, units) => ssd.write(now, range(start, units)),
        Command::Read(start, units) => ssd.read(now, range(start, units)),
        Command::Trim(start, units) => ssd.trim(now, &[range(start, units)]),
        Command::Idle => {
            let later = now + SimDuration::from_millis(3_600_000);
            ssd.catch_up(later);
            later
        }
    }
}

/// Looks units up in a list of parts in the order of their last use.
struct LeastRecentlyUsed {
    capacity: usize,
    trim_map: TrimMap,
    /// Part, and whether it has changed; the last is the one used last.
    cached: Vec<(u64, bool)>,
    in_flash: Vec<bool>,
    mapped: Vec<bool>,
    hits: u64,
    misses: u64,
    reads: u64,
    writes: u64,
}

impl LeastRecentlyUsed {
    fn new(units: u64, capacity: usize, trim_map: TrimMap) -> Self {
        Self {
            capacity,
            trim_map,
            cached: Vec::new(),
            in_flash: vec![false; units.div_ceil(PART) as usize],
            mapped: vec![false; units as usize],
            hits: 0,
            misses: 0,
            reads: 0,
            writes: 0,
        }
    }

    fn look_up(&mut self, unit: u64, changes: bool) {
        let part = unit / PART;
        if let Some(at) = self.cached.iter().position(|&(cached, _)| cached == part) {
            let (_, dirty) = self.cached.remove(at);
            self.cached.push((part, dirty || changes));
            self.hits += 1;
            return;
        }
        if !changes && !self.in_flash[part as usize] {
            return;
        }
        self.misses += 1;
        if self.cached.len() == self.capacity {
            let (oldest, dirty) = self.cached.remove(0);
            if dirty {
                self.in_flash[oldest as usize] = true;
                self.writes += 1;
            }
        }
        self.reads += u64::from(self.in_flash[part as usize]);
        self.cached.push((part, changes));
    }

    fn play(&mut self, command: &Command) {
        match *command {
            Command::Write(start, units) => {
                for unit in start..start + units {
                    self.look_up(unit, true);
                    self.mapped[unit as usize] = true;
                }
            }
            Command::Read(start, units) => (start..start + units).for_each(|unit| self.look_up(unit, false)),
            Command::Trim(start, units) => {
                let device = self.mapped.len() as u64;
                for part in start / PART..(start + units).div_ceil(PART) {
                    let (begin, end) = (part * PART, ((part + 1) * PART).min(device));
                    let (from, to) = (start.max(begin), (start + units).min(end));
                    if (from, to) == (begin, end) && self.trim_map == TrimMap::Dropped {
                        self.cached.retain(|&(cached, _)| cached != part);
                        self.in_flash[part as usize] = false;
                    } else {
                        let changes = self.mapped[from as usize..to as usize].contains(&true);
                        self.look_up(from, changes);
                        if changes && self.trim_map == TrimMap::Written {
                            self.writes += 1;
                            self.in_flash[part as usize] = true;
                            self.cached.last_mut().expect("the part is in the cache").1 = false;
                        }
                    }
                    self.mapped[from as usize..to as usize].fill(false);
                }
            }
            Command::Idle => {}
        }
    }
}

/// What is in SLC superblocks, in the order in which they were opened, and what has been folded.
struct Folding {
    config: SlcConfig,
    logical: u64,
    /// Superblocks ever opened in SLC mode: what was written to each, and whether it is of the static part.
    superblocks: Vec<(Vec<u64>, bool)>,
    /// Mapped units, and the SLC superblock that holds each, if it is one.
    place: HashMap<u64, Option<usize>>,
    open: Option<usize>,
    full: VecDeque<usize>,
    /// Superblock, slots looked at, units to copy, and what the host has paid of the next copy.
    victim: Option<(usize, usize, u64, u64)>,
    written: u64,
    folded: u64,
}

impl Folding {
    fn holds(&self) -> u64 {
        SUPERBLOCK / u64::from(self.config.bits_per_cell)
    }

    fn valid(&self, superblock: usize) -> u64 {
        // A unit that was written twice to one superblock counts once.
        let units: std::collections::BTreeSet<u64> = self.superblocks[superblock].0.iter().copied().collect();
        units.iter().filter(|unit| self.place.get(unit) == Some(&Some(superblock))).count() as u64
    }

    fn free_units(&self) -> u64 {
        self.logical - self.place.len() as u64
    }

    fn share(&self) -> u64 {
        let share = self.free_units() / SUPERBLOCK * u64::from(self.config.dynamic_percent) / 100;
        share.min(self.config.dynamic_superblocks_max.map_or(share, u64::from))
    }

    fn in_use(&self, of_static: bool) -> u64 {
        let used = |&&i: &&usize| self.superblocks[i].1 == of_static;
        let victim = self.victim.map(|(superblock, ..)| superblock);
        self.full.iter().chain(&self.open).chain(&victim).filter(used).count() as u64
    }

    fn start(&mut self, only_dynamic: bool) -> bool {
        if self.victim.is_some() {
            return true;
        }
        let wanted: Vec<usize> =
            self.full.iter().copied().filter(|&i| !(only_dynamic && self.superblocks[i].1)).collect();
        let dead = wanted.iter().copied().find(|&i| self.valid(i) == 0);
        let Some(superblock) = dead.or(wanted.first().copied()) else { return false };
        self.full.retain(|&i| i != superblock);
        self.victim = Some((superblock, 0, self.valid(superblock), 0));
        true
    }

    fn fold(&mut self, budget: u64) {
        let Some((superblock, mut slot, copies, credit)) = self.victim.take() else { return };
        let units = self.superblocks[superblock].0.clone();
        let mut copied = 0;
        // Only the last of several versions in a superblock counts.
        let counts = |place: &HashMap<u64, Option<usize>>, slot: usize| {
            place.get(&units[slot]) == Some(&Some(superblock)) && !units[slot + 1..].contains(&units[slot])
        };
        while slot < units.len() && (copied < budget || !counts(&self.place, slot)) {
            if counts(&self.place, slot) {
                self.place.insert(units[slot], None);
                self.folded += 1;
                copied += 1;
            }
            slot += 1;
        }
        if slot < units.len() {
            self.victim = Some((superblock, slot, copies, credit));
        } else {
            self.written -= units.len() as u64;
        }
    }

    fn write(&mut self, unit: u64) {
        while self.in_use(false) * SUPERBLOCK > self.free_units() {
            if self.start(true) {
                self.fold(u64::MAX);
            } else if let Some(open) = self.open.take() {
                self.full.push_back(open);
            }
        }
        self.open();
        while !self.config.direct && self.open.is_none() {
            assert!(self.start(false), "something to fold");
            self.fold(u64::MAX);
            self.open();
        }
        self.place.insert(unit, self.open);
        if let Some(open) = self.open {
            self.superblocks[open].0.push(unit);
            self.written += 1;
            if self.superblocks[open].0.len() as u64 == self.holds() {
                self.full.push_back(open);
                self.open = None;
            }
        }
        self.pace();
    }

    fn open(&mut self) {
        let of_static = self.in_use(true) < u64::from(self.config.static_superblocks);
        if self.open.is_none() && (of_static || self.in_use(false) < self.share()) {
            self.superblocks.push((Vec::new(), of_static));
            self.open = Some(self.superblocks.len() - 1);
        }
    }

    fn pace(&mut self) {
        let superblocks = u64::from(self.config.static_superblocks) + self.share();
        let threshold = u64::from(self.config.fold_threshold_percent);
        if self.written * 100 <= superblocks * self.holds() * threshold {
            return;
        }
        if !self.start(self.in_use(false) > self.share()) && !self.start(false) {
            return;
        }
        let holds = self.holds();
        let Some((_, _, copies, credit)) = &mut self.victim else { return };
        *credit += *copies;
        let due = *credit / holds;
        *credit %= holds;
        if due > 0 || *copies == 0 {
            self.fold(due);
        }
    }

    fn play(&mut self, command: &Command) {
        match *command {
            Command::Write(start, units) => (start..start + units).for_each(|unit| self.write(unit)),
            Command::Read(..) => {}
            Command::Trim(start, units) => {
                self.place.retain(|unit, _| !(start..start + units).contains(unit))
            }
            Command::Idle => {
                while self.config.fold_when_idle && self.start(false) {
                    self.fold(u64::MAX);
                }
            }
        }
    }
}

fn audited(ssd: &Ssd, step: usize, command: &Command) -> Result<(), TestCaseError> {
    ssd.audit().map_err(|error| TestCaseError::fail(format!("step {step}, {command:?}: {error}")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_map_is_read_and_written_as_by_a_list_in_the_order_of_use(
        capacity in 1usize..7,
        trim_map in prop_oneof![Just(TrimMap::Dropped), Just(TrimMap::Changed), Just(TrimMap::Written)],
        commands in prop::collection::vec(command(7 * PART + 300, 40), 1..120),
    ) {
        let units = 7 * PART + 300;
        let mut config = config(units, (3 * units / SUPERBLOCK) as u32);
        let map_cache = Some(MapCacheConfig { bytes: capacity as u64 * UNIT_BYTES });
        config.mapping = MappingConfig::Page { map_cache, trim_map };
        let mut ssd = Ssd::new(&config, 1).expect("a valid configuration");
        let mut naive = LeastRecentlyUsed::new(units, capacity, trim_map);
        let mut now = SimTime::ZERO;
        for (step, command) in commands.iter().enumerate() {
            now = send(&mut ssd, now, command);
            naive.play(command);
            let stats = ssd.stats();
            let counted = (stats.map_cache.hits, stats.map_cache.misses, stats.map_cache.reads, stats.nand_units.map);
            let expected = (naive.hits, naive.misses, naive.reads, naive.writes);
            prop_assert_eq!(counted, expected, "step {}, {:?}", step, command);
            audited(&ssd, step, command)?;
        }
        prop_assert_eq!(ssd.stats().nand_units.gc, 0);
        let busy = ssd.stats().busy_ns.read_map;
        prop_assert_eq!(busy, naive.reads * config.nand.t_read_ns);
    }

    #[test]
    fn as_much_is_folded_as_by_a_list_of_superblocks(
        static_superblocks in 0u32..5,
        dynamic_percent in prop_oneof![Just(0u32), Just(100), 1u32..100],
        bits_per_cell in 2u32..5,
        fold_when_idle in any::<bool>(),
        fold_threshold_percent in prop_oneof![Just(100u32), 0u32..100],
        dynamic_superblocks_max in prop::option::of(1u32..4),
        direct in any::<bool>(),
        commands in prop::collection::vec(command(500, 30), 1..200),
    ) {
        let dynamic_percent = if static_superblocks == 0 { dynamic_percent.max(10) } else { dynamic_percent };
        let slc = SlcConfig {
            static_superblocks, dynamic_percent, bits_per_cell, fold_when_idle, fold_threshold_percent,
            t_prog_ns: 100_000, t_read_ns: 20_000, dynamic_superblocks_max,
            direct: direct || static_superblocks == 0, gives_way: true,
        };
        // Every host unit and every folded one has a place of its own.
        let mut config = config(500, 800);
        config.slc = Some(slc.clone());
        let mut ssd = Ssd::new(&config, 1).expect("a valid configuration");
        let mut naive = Folding {
            config: slc, logical: 500, superblocks: Vec::new(), place: HashMap::new(), open: None,
            full: VecDeque::new(), victim: None, written: 0, folded: 0,
        };
        let mut now = SimTime::ZERO;
        for (step, command) in commands.iter().enumerate() {
            now = send(&mut ssd, now, command);
            naive.play(command);
            prop_assert_eq!(ssd.stats().nand_units.folding, naive.folded, "step {}, {:?}", step, command);
            prop_assert_eq!(ssd.mapped_units(), naive.place.len() as u64);
            audited(&ssd, step, command)?;
        }
        prop_assert_eq!(ssd.stats().nand_units.gc, 0);
    }
}
