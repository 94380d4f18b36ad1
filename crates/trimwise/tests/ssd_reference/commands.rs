//! Commands at random, and the flat array that says what a read must return after each.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use trimwise::content::{Content, ContentClass};
use trimwise::ssd::{MappingConfig, ReadAfterTrim, Ssd, SsdConfig};
use trimwise::units::{Lpn, SimDuration, SimTime, UnitRange};

use super::configs::UNITS;

#[derive(Clone, Debug)]
pub enum Command {
    Write(u64, u64, ContentClass),
    Read(u64, u64),
    Trim(Vec<(u64, u64)>),
    InformFree(u64, u64),
    Flush,
    Idle,
    SecureErase,
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        6 => (0..UNITS, 1u64..12),
        1 => (0..UNITS, 1u64..UNITS),
        // A few hot units, so that blocks differ in how many valid units they hold.
        3 => (0..16u64, 1u64..3),
    ]
    .prop_map(|(start, units)| (start, units.min(UNITS - start)))
}

fn class() -> impl Strategy<Value = ContentClass> {
    prop::sample::select(ContentClass::ALL.to_vec())
}

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        30 => (range(), class()).prop_map(|((s, n), class)| Command::Write(s, n, class)),
        // What a mapping by blocks takes in one piece, and completes later.
        3 => (0..UNITS, 1u64..80, class()).prop_map(|(s, n, class)| Command::Write(s, n.min(UNITS - s), class)),
        4 => range().prop_map(|(s, n)| Command::Read(s, n)),
        5 => prop::collection::vec(range(), 1..4).prop_map(Command::Trim),
        1 => Just(Command::Trim(vec![(0, UNITS)])),
        2 => range().prop_map(|(s, n)| Command::InformFree(s, n)),
        2 => Just(Command::Flush),
        2 => Just(Command::Idle),
        1 => Just(Command::SecureErase),
    ]
}

/// What a unit holds, and what a read of it may return.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// Written, or never touched, or erased.
    Exactly(Option<u32>),
    /// Freed: zeros or what was there.
    Freed(Option<u32>),
}

/// What tells data apart that differ: a mapping that stores zeros nowhere and duplicates once does not know which write
/// they came from.
fn as_read(tag: Option<u32>, lpn: Lpn) -> Option<u32> {
    let content = Content::of_tag(tag?);
    match content.class {
        ContentClass::Zeros => Some(Content::new(ContentClass::Zeros, 0).tag()),
        ContentClass::Duplicated => {
            Some(Content::new(ContentClass::Duplicated, content.duplicate(lpn)).tag())
        }
        _ => tag,
    }
}

pub fn run(config: &SsdConfig, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut ssd = Ssd::new(config, 7).expect("a valid configuration");
    let mut model = vec![Held::Exactly(None); UNITS as usize];
    let mut mapped = vec![false; UNITS as usize];
    let compresses = matches!(config.mapping, MappingConfig::Compressing(_));
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
        let started = now;
        match command {
            &Command::Write(start, units, class) => {
                let content = Content::new(class, step as u32 + 1);
                let tag = content.tag();
                now = ssd.write_content(now, UnitRange::new(Lpn(start), units), content);
                for i in start as usize..(start + units) as usize {
                    let tag = if compresses { as_read(Some(tag), Lpn(i as u64)) } else { Some(tag) };
                    model[i] = Held::Exactly(tag);
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
            let tag = if compresses { as_read(ssd.tag(lpn), lpn) } else { ssd.tag(lpn) };
            let right = match (model[i], config.trim.read_after) {
                (Held::Exactly(expected), _) | (Held::Freed(expected), ReadAfterTrim::Old) => tag == expected,
                (Held::Freed(_), ReadAfterTrim::Zeros) => tag.is_none(),
                (Held::Freed(old), ReadAfterTrim::Undefined) => tag.is_none() || tag == old,
            };
            prop_assert!(right, "step {}, {:?}, unit {}: {:?}, not {:?}", step, command, i, tag, model[i]);
        }
    }
    let written: u64 = commands.iter().map(|c| if let Command::Write(_, n, _) = c { *n } else { 0 }).sum();
    prop_assert_eq!(ssd.stats().host_units_written, written);
    Ok(())
}

/// Instants and counts of a run; same inputs, same outcome.
pub fn repeat(config: &SsdConfig, commands: &[Command]) -> Result<(), TestCaseError> {
    let play = || {
        let mut ssd = Ssd::new(config, 7).expect("a valid configuration");
        let mut now = SimTime::ZERO;
        let mut instants = Vec::new();
        for command in commands {
            match command {
                &Command::Write(start, units, class) => {
                    let content = Content::new(class, 1);
                    now = ssd.write_content(now, UnitRange::new(Lpn(start), units), content);
                }
                &Command::Read(start, units) => now = ssd.read(now, UnitRange::new(Lpn(start), units)),
                &Command::InformFree(start, units) => ssd.inform_free(UnitRange::new(Lpn(start), units)),
                _ => {}
            }
            instants.push(now);
        }
        (instants, *ssd.stats())
    };
    prop_assert_eq!(play(), play());
    Ok(())
}
