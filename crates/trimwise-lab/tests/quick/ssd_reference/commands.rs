//! Commands at random, and what a read must return after each, by the flat array of `selftest`.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use trimwise::content::{Content, ContentClass};
use trimwise::ssd::{Ssd, SsdConfig};
use trimwise::units::{Lpn, SimDuration, SimTime, UnitRange};
use trimwise_lab::selftest::FlatArray;

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

pub fn run(config: &SsdConfig, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut ssd = Ssd::new(config, 7).expect("a valid configuration");
    let mut array = FlatArray::new(UNITS, &config.trim);
    let mut now = SimTime::ZERO;
    for (step, command) in commands.iter().enumerate() {
        let started = now;
        match command {
            &Command::Write(start, units, class) => {
                let range = UnitRange::new(Lpn(start), units);
                let content = Content::new(class, step as u32 + 1);
                now = ssd.write_content(now, range, content);
                array.write(range, content);
            }
            &Command::Read(start, units) => {
                now = ssd.read(now, UnitRange::new(Lpn(start), units));
            }
            Command::Trim(ranges) => {
                let ranges: Vec<_> = ranges.iter().map(|&(s, n)| UnitRange::new(Lpn(s), n)).collect();
                now = ssd.trim(now, &ranges);
                ranges.iter().for_each(|&range| array.trim(range));
            }
            &Command::InformFree(start, units) => {
                let range = UnitRange::new(Lpn(start), units);
                ssd.inform_free(range);
                array.free(range);
            }
            Command::Flush => now = ssd.flush(now),
            Command::Idle => now += SimDuration::from_millis(200),
            Command::SecureErase => {
                now = ssd.secure_erase(now);
                array.erase();
            }
        }
        prop_assert!(now >= started);
        let all = UnitRange::new(Lpn(0), UNITS);
        let checked = ssd.audit().map_err(|e| e.to_string()).and_then(|()| array.check(&ssd, all));
        if let Err(error) = checked {
            return Err(TestCaseError::fail(format!("step {step}, {command:?}: {error}")));
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
            match *command {
                Command::Write(start, units, class) => {
                    let content = Content::new(class, 1);
                    now = ssd.write_content(now, UnitRange::new(Lpn(start), units), content);
                }
                Command::Read(start, units) => now = ssd.read(now, UnitRange::new(Lpn(start), units)),
                Command::InformFree(start, units) => ssd.inform_free(UnitRange::new(Lpn(start), units)),
                _ => {}
            }
            instants.push(now);
        }
        (instants, *ssd.stats())
    };
    prop_assert_eq!(play(), play());
    Ok(())
}
