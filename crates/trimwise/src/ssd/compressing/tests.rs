//! The compressing mapping against hand-computed times and counts, and against a slow and obvious model.
//!
//! One small device with round numbers: two channels with one die of one plane, a page of one unit, superblocks
//! over both dies. A unit takes 10 us on a channel and 10 us on the link; a command takes 1 us of the link, and 2
//! us (write) or 3 us (read) of the controller; tR is 50 us, tPROG 500 us. A granule has 512 bytes.

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::translation::Translation;
use super::Compressing;
use crate::content::{Content, ContentClass, DUPLICATES};
use crate::ssd::tests::{self, LATER, READ, T_READ, UNIT, US};
use crate::ssd::{CompressingConfig, MappingConfig, Ssd, SsdConfig, VictimPolicy};
use crate::units::{Lpn, SimTime, UnitRange};

const FRAGMENT: u64 = 7 * US;
/// Capacity in units; superblocks have 16 units.
const UNITS: u64 = 128;
const SUPERBLOCKS: usize = 16;

fn config(references_checked_at_collection: bool) -> SsdConfig {
    let mut config = SsdConfig { capacity_bytes: UNITS * 4096, track_tags: true, ..tests::config() };
    config.geometry.blocks_per_plane = Some(SUPERBLOCKS as u32);
    config.cache.bytes = 64 * 4096;
    config.trim = SsdConfig::default().trim;
    config.mapping = MappingConfig::Compressing(CompressingConfig {
        granule_bytes: 512,
        head_bytes: 0,
        deduplicates: true,
        read_latency_ns: 0,
        fragment_read_ns: FRAGMENT,
        recycles_from_stale_percent: None,
        references_checked_at_collection,
    });
    config
}

fn device(references_checked: bool) -> Ssd {
    Ssd::new(&config(references_checked), 1).expect("a valid configuration")
}

fn range(start: u64, units: u64) -> UnitRange {
    UnitRange::new(Lpn(start), units)
}

fn data(class: ContentClass, version: u32) -> Content {
    Content::new(class, version)
}

#[test]
fn each_class_takes_its_size_and_repeated_units_take_nothing() {
    let mut ssd = device(false);
    let mut granules = |units, class, version| {
        let before = ssd.stats().nand_granules.host;
        ssd.write_content(LATER, units, data(class, version));
        ssd.audit().unwrap();
        ssd.stats().nand_granules.host - before
    };
    assert_eq!(granules(range(0, 8), ContentClass::Compressible, 1), 8);
    assert_eq!(granules(range(8, 8), ContentClass::PseudoRandom, 2), 40);
    assert_eq!(granules(range(16, 2), ContentClass::Incompressible, 3), 16);
    assert_eq!(granules(range(18, 8), ContentClass::Zeros, 4), 0);
    let twins = u64::from(DUPLICATES);
    assert_eq!(granules(range(26, 2), ContentClass::Duplicated, 5), 16);
    assert_eq!(granules(range(26 + twins, 2), ContentClass::Duplicated, 5), 0, "they are there already");
    assert_eq!(granules(range(28, 1), ContentClass::Duplicated, 3), 0, "the same as unit 26 of version 5");
    assert_eq!(ssd.stats().nand_units.host, (8 + 40 + 16 + 16) / 8);
    assert!(ssd.stats().write_amplification() < 1.0);
}

#[test]
fn a_shared_unit_survives_the_trim_of_its_twin() {
    for checked in [false, true] {
        let mut ssd = device(checked);
        let twins = u64::from(DUPLICATES);
        ssd.write_content(LATER, range(0, 1), data(ContentClass::Duplicated, 0));
        ssd.write_content(LATER, range(twins, 1), data(ContentClass::Duplicated, 0));
        ssd.trim(LATER, &[range(0, 1)]);
        // Everything that is left is collected several times.
        for version in 0..12 {
            ssd.write_content(LATER, range(1, twins - 1), data(ContentClass::Incompressible, version));
            ssd.audit().unwrap();
        }
        assert!(ssd.stats().superblock_erases > SUPERBLOCKS as u64);
        assert!(!ssd.is_mapped(Lpn(0)));
        let kept = ssd.tag(Lpn(twins)).map(|tag| Content::of_tag(tag).stored(Lpn(twins)));
        assert_eq!(kept, Some(data(ContentClass::Duplicated, 0).stored(Lpn(twins))));
    }
}

#[test]
fn trimmed_space_counts_when_its_references_have_been_checked() {
    let reads_of_the_collector = |checked| {
        let mut ssd = device(checked);
        ssd.write_content(LATER, range(0, UNITS), data(ContentClass::Incompressible, 1));
        ssd.trim(LATER, &[range(0, UNITS)]);
        let before = *ssd.stats();
        ssd.write_content(LATER, range(0, UNITS), data(ContentClass::Incompressible, 2));
        ssd.audit().unwrap();
        let stats = ssd.stats().since(&before);
        assert_eq!(stats.nand_granules.gc, 0, "there is nothing to move");
        (stats.superblock_erases, stats.busy_ns.read_gc / T_READ)
    };
    let (erases, reads) = reads_of_the_collector(false);
    assert_eq!(reads, 0);
    let (checked_erases, checked_reads) = reads_of_the_collector(true);
    // All 16 stripes of each superblock that was erased, and of the one that is being checked some more.
    assert!(erases > 0 && checked_erases > 0 && checked_reads >= 16 * checked_erases, "{checked_reads}");
}

#[test]
fn reads_in_the_order_of_the_data_find_the_next_page_sensed() {
    let mut ssd = device(false);
    // Two pages of eight granules for each 16 units.
    ssd.write_content(SimTime::ZERO, range(0, 64), data(ContentClass::Compressible, 1));
    ssd.flush(SimTime::ZERO);
    // The first page is a fragment: nothing was read before it.
    let first = ssd.read(LATER, range(0, 1));
    assert_eq!(first.since(LATER).as_nanos(), READ + FRAGMENT + T_READ + UNIT);
    // It is still in the register.
    let again = ssd.read(first, range(1, 1));
    assert_eq!(again.since(first).as_nanos(), READ + UNIT);
    // The next page is no fragment, and the one behind it is sensed meanwhile.
    let next = ssd.read(again, range(8, 1));
    assert_eq!(next.since(again).as_nanos(), READ + T_READ + UNIT);
    let later = SimTime(next.0 + T_READ);
    assert_eq!(ssd.read(later, range(16, 1)).since(later).as_nanos(), READ + UNIT);
}

#[test]
fn fragments_are_looked_up_one_after_the_other() {
    // So slow that the link is free again before the second page is there.
    let slow = 40 * US;
    let mut config = config(false);
    if let MappingConfig::Compressing(mapping) = &mut config.mapping {
        mapping.fragment_read_ns = slow;
    }
    let mut ssd = Ssd::new(&config, 1).expect("a valid configuration");
    ssd.write_content(SimTime::ZERO, range(0, 64), data(ContentClass::Compressible, 1));
    // Units 0 and 1 now lie in pages of their own, not behind each other, on dies 0 and 1.
    let mut now = SimTime::ZERO;
    for (start, units) in [(0, 1), (64, 7), (72, 8), (80, 8), (1, 1), (88, 7)] {
        now = ssd.write_content(now, range(start, units), data(ContentClass::Compressible, 2));
    }
    ssd.flush(now);
    let first = ssd.read(LATER, range(0, 1)).since(LATER).as_nanos();
    assert_eq!(first, READ + slow + T_READ + UNIT);
    let second = ssd.read(LATER, range(1, 1)).since(LATER).as_nanos();
    assert_eq!(second, READ + 2 * slow + T_READ + UNIT, "the dies work side by side, the look-up does not");
}

#[test]
fn zeros_need_neither_flash_nor_cache() {
    let mut ssd = device(false);
    let written = ssd.write_content(LATER, range(0, UNITS), data(ContentClass::Zeros, 1));
    assert_eq!(written.since(LATER).as_nanos(), 2 * US + US + UNITS * UNIT);
    assert_eq!((ssd.stats().nand_granules.total(), ssd.mapped_units()), (0, UNITS));
    assert_eq!(ssd.read(written, range(5, 1)).since(written).as_nanos(), READ);
    ssd.audit().unwrap();
}

/// A superblock in the slow model; for each piece: owner (a unit, or a duplicate after the units), length, true if it
/// is live.
#[derive(Clone, Debug, Default)]
struct Log {
    pieces: Vec<(u64, u32, bool)>,
    closed: bool,
    /// Time of the last change to the number of live granules.
    stamp: u64,
}

impl Log {
    fn written(&self) -> u32 {
        self.pieces.iter().map(|p| p.1).sum()
    }

    fn live(&self) -> u32 {
        self.pieces.iter().filter(|p| p.2).map(|p| p.1).sum()
    }
}

/// The mapping as one would explain it: one frontier for host and copies each, greedy victims, whole victims at a
/// time because the free pool has run out. Every question is answered by looking at everything.
struct Slow {
    logs: Vec<Log>,
    free: Vec<usize>,
    frontiers: [Option<usize>; 2],
    clock: u64,
    host: u64,
    copied: u64,
    /// Owner of each unit's data.
    units: Vec<Option<u64>>,
}

/// Number of granules in a superblock.
const ALL: u32 = 16 * 8;
/// The owner of a unit of zeros.
const ZEROS: u64 = u64::MAX;

impl Slow {
    fn new() -> Self {
        Self {
            logs: vec![Log::default(); SUPERBLOCKS],
            free: (0..SUPERBLOCKS).collect(),
            frontiers: [None; 2],
            clock: 0,
            host: 0,
            copied: 0,
            units: vec![None; UNITS as usize],
        }
    }

    fn references(&self, owner: u64) -> usize {
        self.units.iter().filter(|&&held| held == Some(owner)).count()
    }

    fn drop_unit(&mut self, unit: u64) {
        let Some(owner) = self.units[unit as usize].take() else { return };
        if owner == ZEROS || self.references(owner) > 0 {
            return;
        }
        self.clock += 1;
        for log in &mut self.logs {
            if let Some(piece) = log.pieces.iter_mut().find(|p| p.0 == owner && p.2) {
                piece.2 = false;
                log.stamp = self.clock;
            }
        }
    }

    fn close(&mut self, which: usize) {
        if let Some(log) = self.frontiers[which].take() {
            self.clock += 1;
            self.logs[log].closed = true;
            self.logs[log].stamp = self.clock;
        }
    }

    fn append(&mut self, which: usize, owner: u64, granules: u32) {
        loop {
            match self.frontiers[which] {
                Some(log) if self.logs[log].written() + granules <= ALL => {
                    self.logs[log].pieces.push((owner, granules, true));
                    if self.logs[log].written() == ALL {
                        self.close(which);
                    }
                    return;
                }
                Some(_) => self.close(which),
                None if which == 1 || self.free.len() > 1 => {
                    self.frontiers[which] = Some(self.free.remove(0));
                }
                None => self.collect(),
            }
        }
    }

    fn collect(&mut self) {
        let closed = (0..SUPERBLOCKS).filter(|&i| self.logs[i].closed);
        let victim = closed.min_by_key(|&i| (self.logs[i].live(), self.logs[i].stamp)).unwrap();
        self.logs[victim].closed = false;
        for (owner, granules, live) in std::mem::take(&mut self.logs[victim].pieces) {
            if live {
                self.append(1, owner, granules);
                self.copied += u64::from(granules);
            }
        }
        self.free.push(victim);
    }

    fn write(&mut self, unit: u64, content: Content) {
        let (owner, granules) = match content.class {
            ContentClass::Zeros => (ZEROS, 0),
            ContentClass::Duplicated => (UNITS + u64::from(content.duplicate(Lpn(unit))), 8),
            class => (unit, class.entropy_bytes() / 512),
        };
        let shared = owner >= UNITS && (owner == ZEROS || self.references(owner) > 0);
        if shared {
            if self.units[unit as usize] != Some(owner) {
                self.drop_unit(unit);
                self.units[unit as usize] = Some(owner);
            }
            return;
        }
        // Room is made before the old data go.
        let keeps = |log: usize| self.logs[log].written() + granules <= ALL;
        if !self.frontiers[0].is_some_and(keeps) {
            self.close(0);
            while self.frontiers[0].is_none() {
                if self.free.len() > 1 {
                    self.frontiers[0] = Some(self.free.remove(0));
                } else {
                    self.collect();
                }
            }
        }
        self.drop_unit(unit);
        self.units[unit as usize] = Some(owner);
        self.append(0, owner, granules);
        self.host += u64::from(granules);
    }
}

/// Regression test: a host waited for ever. The gain of each victim was lost again where its chunks ended at the end of
/// a superblock, while other superblocks held much that only had to be checked.
#[test]
fn regression_what_a_victim_gains_is_more_than_a_chunk() {
    let mut config = config(true);
    let MappingConfig::Compressing(mapping) = &mut config.mapping else { unreachable!("made so above") };
    (mapping.granule_bytes, mapping.head_bytes) = (4096, 16);
    (config.gc.host_frontiers, config.gc.shared_frontier) = (1, true);
    config.gc.victim = VictimPolicy::CostBenefit;
    // The least room that is accepted.
    config.geometry.blocks_per_plane = Some(27);
    for seed in 0..60 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut below = |n: u64| rng.next_u64() % n;
        let mut ssd = Ssd::new(&config, 1).expect("a valid configuration");
        let mut now = SimTime(0);
        for step in 0..400 {
            let (start, units) = (below(UNITS), 1 + below(24));
            let units = range(start, units.min(UNITS - start));
            now = match below(6) {
                0 => ssd.trim(now, &[units]),
                1 => ssd.write_content(now, units, data(ContentClass::Compressible, step)),
                _ => ssd.write_content(now, units, data(ContentClass::Incompressible, step)),
            };
        }
        ssd.audit().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares the granules written by the host and by the collector, and the live granules, exactly.
    #[test]
    fn the_slow_model_writes_as_much(
        commands in prop::collection::vec(
            (0u8..10, 0..UNITS, 1u64..24, prop::sample::select(ContentClass::ALL.to_vec())), 1..300
        )
    ) {
        let config = config(false);
        let MappingConfig::Compressing(mapping) = &config.mapping else { unreachable!("made so above") };
        let geometry = config.geometry().expect("a valid configuration");
        let mut fast = Compressing::new(&config, mapping, geometry, 1);
        // Whole victims, and only when there is no other way, so that pace does not matter.
        fast.collector.free_min = 0;
        let mut slow = Slow::new();
        for (step, (what, start, units, class)) in commands.into_iter().enumerate() {
            let units = units.min(UNITS - start);
            if what == 0 {
                fast.unmap(LATER, &[UnitRange::new(Lpn(start), units)]);
                (start..start + units).for_each(|unit| slow.drop_unit(unit));
            } else {
                let content = data(class, step as u32);
                fast.write(LATER, LATER, UnitRange::new(Lpn(start), units), content);
                (start..start + units).for_each(|unit| slow.write(unit, content));
            }
            let granules = fast.flash().stats.nand_granules;
            prop_assert_eq!((granules.host, granules.gc), (slow.host, slow.copied), "step {}", step);
            prop_assert_eq!(fast.mapped_units(), slow.units.iter().flatten().count() as u64);
            if let Err(error) = fast.audit_accounting() {
                return Err(TestCaseError::fail(format!("step {step}: {error}")));
            }
        }
    }
}
