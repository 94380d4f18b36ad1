//! The device against a flat array, under random commands.
//!
//! After every command the books are audited, and every unit must read back what the array says. The geometry is
//! small enough for garbage collection to run after a few dozen writes.

use proptest::prelude::*;
use trimwise::content::{Content, ContentClass};
use trimwise::ssd::{ReadAfterTrim, Ssd, SsdConfig, TrimKind, TrimPlace, VictimPolicy};
use trimwise::units::{Lpn, SimDuration, SimTime, UNIT_BYTES, UnitRange};

#[derive(Clone, Debug)]
enum Command {
    Write(u64, u64),
    Read(u64, u64),
    Trim(Vec<(u64, u64)>),
    InformFree(u64, u64),
    Flush,
    Idle,
    SecureErase,
}

/// Units that the host sees; not a whole number of superblocks.
const UNITS: u64 = 301;

fn range() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        6 => (0..UNITS, 1u64..12),
        1 => (0..UNITS, 1u64..UNITS),
        // A few hot units, so that blocks differ in how many valid units they hold.
        3 => (0..16u64, 1u64..3),
    ]
    .prop_map(|(start, units)| (start, units.min(UNITS - start)))
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        30 => range().prop_map(|(s, n)| Command::Write(s, n)),
        4 => range().prop_map(|(s, n)| Command::Read(s, n)),
        5 => prop::collection::vec(range(), 1..4).prop_map(Command::Trim),
        1 => Just(Command::Trim(vec![(0, UNITS)])),
        2 => range().prop_map(|(s, n)| Command::InformFree(s, n)),
        2 => Just(Command::Flush),
        2 => Just(Command::Idle),
        1 => Just(Command::SecureErase),
    ]
}

prop_compose! {
    fn config()(
        victim in prop_oneof![
            Just(VictimPolicy::Greedy),
            Just(VictimPolicy::CostBenefit),
            (1u32..5).prop_map(VictimPolicy::DChoices),
            Just(VictimPolicy::Fifo),
        ],
        // Channels, dies a channel, planes a die, pages a block, units a page, planes in a superblock.
        shape in prop_oneof![
            Just([2, 1, 2, 4, 2, 4]),
            Just([2, 2, 1, 4, 1, 4]),
            Just([1, 1, 1, 16, 1, 1]),
            Just([2, 1, 2, 8, 1, 2]),
            Just([1, 1, 4, 8, 1, 2]),
            Just([3, 1, 1, 70, 1, 1]),
        ],
        spare in 0u32..3,
        host_frontiers in 1u32..4,
        shared_frontier in any::<bool>(),
        free_min in 2u32..5,
        cache in any::<bool>(),
        idle in any::<bool>(),
        threshold in prop::option::of(1u32..4),
        granularity in prop_oneof![3 => Just(1u32), 1 => 2u32..9],
        queued in any::<bool>(),
        background in any::<bool>(),
        read_after in prop_oneof![
            Just(ReadAfterTrim::Zeros), Just(ReadAfterTrim::Old), Just(ReadAfterTrim::Undefined)
        ],
    ) -> SsdConfig {
        let mut config = SsdConfig { track_tags: true, over_provisioning_percent: None, ..SsdConfig::default() };
        config.capacity_bytes = UNITS * UNIT_BYTES + 1000;
        let g = &mut config.geometry;
        [g.channels, g.dies_per_channel, g.planes_per_die, g.pages_per_block, _, g.superblock_planes] = shape;
        g.page_bytes = shape[4] * UNIT_BYTES as u32;
        let superblock_units = shape[5] * shape[3] * shape[4];
        let lanes = shape[0] * shape[1] * shape[2] / shape[5];
        // The least that is accepted, and up to two superblocks a lane more.
        let superblocks = (UNITS as u32).div_ceil(superblock_units) + (host_frontiers + 3).max(free_min + 2);
        g.blocks_per_plane = Some(superblocks.div_ceil(lanes) + spare);
        config.gc.victim = victim;
        config.gc.host_frontiers = host_frontiers;
        config.gc.shared_frontier = shared_frontier;
        config.gc.free_superblocks_min = free_min;
        config.gc.idle = idle;
        config.wear_levelling.threshold_erases = threshold;
        config.wear_levelling.interval_erases = 3;
        config.cache.bytes = if cache { 64 * UNIT_BYTES } else { 0 };
        config.trim.kind = if queued { TrimKind::AtaQueued } else { TrimKind::AtaNonQueued };
        config.trim.place = if background { TrimPlace::Background } else { TrimPlace::BeforeAck };
        config.trim.slowdown_percent = 50;
        config.trim.granularity_units = granularity;
        config.trim.read_after = read_after;
        config
    }
}

/// What a unit holds, and what a read of it may return.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// Written, or never touched, or erased.
    Exactly(Option<u32>),
    /// Freed: zeros or what was there.
    Freed(Option<u32>),
}

fn run(config: &SsdConfig, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut ssd = Ssd::new(config, 7).expect("a valid configuration");
    let mut model = vec![Held::Exactly(None); UNITS as usize];
    let mut mapped = vec![false; UNITS as usize];
    let mut now = SimTime::ZERO;
    let free = |model: &mut [Held], mapped: &mut [bool], start: u64, end: u64| {
        for i in start as usize..end as usize {
            if mapped[i] {
                let (Held::Exactly(old) | Held::Freed(old)) = model[i];
                model[i] = Held::Freed(old);
                mapped[i] = false;
            }
        }
    };
    for (step, command) in commands.iter().enumerate() {
        let content = Content::new(ContentClass::Incompressible, step as u32 + 1);
        let tag = content.tag();
        let started = now;
        match command {
            &Command::Write(start, units) => {
                now = ssd.write_content(now, UnitRange::new(Lpn(start), units), content);
                for i in start as usize..(start + units) as usize {
                    model[i] = Held::Exactly(Some(tag));
                    mapped[i] = true;
                }
            }
            &Command::Read(start, units) => {
                now = ssd.read(now, UnitRange::new(Lpn(start), units));
            }
            Command::Trim(ranges) => {
                let ranges: Vec<_> = ranges.iter().map(|&(s, n)| UnitRange::new(Lpn(s), n)).collect();
                now = ssd.trim(now, &ranges);
                let granularity = u64::from(config.trim.granularity_units);
                for range in ranges {
                    let start = range.start.0.next_multiple_of(granularity);
                    let end = range.end().0 / granularity * granularity;
                    free(&mut model, &mut mapped, start, end.max(start));
                }
            }
            &Command::InformFree(start, units) => {
                ssd.inform_free(UnitRange::new(Lpn(start), units));
                free(&mut model, &mut mapped, start, start + units);
            }
            Command::Flush => now = ssd.flush(now),
            Command::Idle => now += SimDuration::from_millis(200),
            Command::SecureErase => {
                now = ssd.secure_erase(now);
                model.fill(Held::Exactly(None));
                mapped.fill(false);
            }
        }
        prop_assert!(now >= started);
        if let Err(error) = ssd.audit() {
            return Err(TestCaseError::fail(format!("step {step}, {command:?}: {error}")));
        }
        for i in 0..UNITS as usize {
            let lpn = Lpn(i as u64);
            prop_assert_eq!(ssd.is_mapped(lpn), mapped[i], "step {}, {:?}, unit {}", step, command, i);
            let tag = ssd.tag(lpn);
            let right = match (model[i], config.trim.read_after) {
                (Held::Exactly(expected), _) | (Held::Freed(expected), ReadAfterTrim::Old) => tag == expected,
                (Held::Freed(_), ReadAfterTrim::Zeros) => tag.is_none(),
                (Held::Freed(old), ReadAfterTrim::Undefined) => tag.is_none() || tag == old,
            };
            prop_assert!(right, "step {}, {:?}, unit {}: {:?}, not {:?}", step, command, i, tag, model[i]);
        }
    }
    let written: u64 = commands.iter().map(|c| if let Command::Write(_, n) = c { *n } else { 0 }).sum();
    prop_assert_eq!(ssd.stats().host_units_written, written);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_device_agrees_with_a_flat_array(
        config in config(), commands in prop::collection::vec(command(), 1..250)
    ) {
        run(&config, &commands)?;
    }

    /// Same inputs, same instants and counts.
    #[test]
    fn a_run_repeats_exactly(config in config(), commands in prop::collection::vec(command(), 1..60)) {
        let play = || {
            let mut ssd = Ssd::new(&config, 7).expect("a valid configuration");
            let mut now = SimTime::ZERO;
            let mut instants = Vec::new();
            for command in &commands {
                if let &Command::Write(start, units) = command {
                    now = ssd.write(now, UnitRange::new(Lpn(start), units));
                } else if let &Command::Read(start, units) = command {
                    now = ssd.read(now, UnitRange::new(Lpn(start), units));
                }
                instants.push(now);
            }
            (instants, *ssd.stats())
        };
        prop_assert_eq!(play(), play());
    }
}
