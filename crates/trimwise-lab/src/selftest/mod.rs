//! The device model against a flat array, for any length of time: random devices, random commands.
//!
//! A *part* is one device (a built-in profile and firmware, scaled down) and [`OPS_PER_PART`] commands. Both are drawn
//! only from the seed and the part's number, so any part can be repeated by itself. After each command the units that
//! it touched must hold the array's contents. From time to time all units are checked and the accounting is audited.
//! Times must never decrease.

mod flat_array;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use trimwise::content::{Content, ContentClass};
use trimwise::profile::Profile;
use trimwise::ssd::{Ssd, SsdConfig};
use trimwise::units::{Bytes, Lba, Lpn, SectorRange, SimDuration, SimTime, UnitRange};

use crate::bench::below;

pub use flat_array::FlatArray;

pub const OPS_PER_PART: u64 = 10_000;
/// Commands between two audits of everything.
const AUDIT_EVERY: u64 = 256;
/// Size of the smallest device to try: large enough for most profiles, small enough to be overwritten many times.
const CAPACITY: Bytes = Bytes::mib(16);
/// Limit for profiles that cannot be scaled down that far, and are doubled in size until they can.
const CAPACITY_MOST: Bytes = Bytes::gib(1);

/// A violation, and where it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub part: u64,
    pub device: String,
    /// From 0.
    pub operation: u64,
    pub command: String,
    pub what: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartReport {
    pub part: u64,
    /// Name of the profile, with its firmware.
    pub device: String,
    pub operations: u64,
    pub host_units_written: u64,
    /// Units programmed into the flash, for any reason.
    pub nand_units_written: u64,
    /// Audits of all units and the accounting.
    pub audits: u64,
    /// The first violation, which ends the part.
    pub violation: Option<Violation>,
}

#[derive(Clone, Debug)]
enum Command {
    Write(UnitRange, Content),
    WritePart(SectorRange, Content),
    Read(UnitRange),
    ReadPart(SectorRange),
    Trim(Vec<UnitRange>),
    InformFree(UnitRange),
    Flush,
    Idle(SimDuration),
    SecureErase,
}

/// Carries out part `part` of a self-test with `operations` commands.
pub fn run_part(seed: u64, part: u64, operations: u64) -> PartReport {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let (device, config) = draw_device(&mut rng);
    let mut report = PartReport {
        part,
        device,
        operations: 0,
        host_units_written: 0,
        nand_units_written: 0,
        audits: 0,
        violation: None,
    };
    let mut ssd = match Ssd::new(&config, rng.next_u64()) {
        Ok(ssd) => ssd,
        Err(error) => {
            report.fail("none: creating the device".to_owned(), error.to_string());
            return report;
        }
    };
    let mut array = FlatArray::new(ssd.capacity_units(), &config.trim);
    let mut now = SimTime::ZERO;
    for operation in 0..operations {
        let command = draw_command(&mut rng, &config, ssd.capacity_units(), operation as u32);
        let done = carry_out(&mut ssd, &mut array, now, &command);
        let mut checked = match done {
            Ok(done) if done < now => Err(format!("it completed at {}, but began at {}", done.0, now.0)),
            Ok(done) => {
                now = done;
                touched(&command).iter().try_for_each(|&range| array.check(&ssd, range))
            }
            Err(what) => Err(what),
        };
        report.operations += 1;
        if checked.is_ok() && (operation + 1).is_multiple_of(AUDIT_EVERY) {
            report.audits += 1;
            let all = UnitRange::new(Lpn(0), ssd.capacity_units());
            checked = array.check(&ssd, all).and_then(|()| ssd.audit().map_err(|e| e.to_string()));
        }
        if let Err(what) = checked {
            report.fail(format!("{command:?}"), what);
            break;
        }
    }
    report.host_units_written = ssd.stats().host_units_written;
    report.nand_units_written = ssd.stats().nand_units.total();
    report
}

impl PartReport {
    fn fail(&mut self, command: String, what: String) {
        let (part, device) = (self.part, self.device.clone());
        self.violation =
            Some(Violation { part, device, operation: self.operations.saturating_sub(1), command, what });
    }
}

fn draw_device(rng: &mut Xoshiro256PlusPlus) -> (String, SsdConfig) {
    // One profile is a yardstick rather than a drive: nothing in it could go wrong.
    let names: Vec<&str> = Profile::embedded_names().filter(|name| *name != "zero-cost").collect();
    let mut name = names[below(rng, names.len() as u64) as usize].to_owned();
    let mut config = SsdConfig::default();
    if let Some(profile) = Profile::embedded(&name) {
        let variants = profile.firmware_variants;
        let variant = below(rng, variants.len() as u64 + 1) as usize;
        config = profile.config;
        if let Some(variant) = variants.get(variant) {
            let with_firmware = format!("{name}@{}", variant.version);
            if let Some(profile) = Profile::embedded(&with_firmware) {
                (name, config) = (with_firmware, profile.config);
            }
        }
    }
    let mut capacity = CAPACITY;
    let small = loop {
        match config.shrunk(capacity.0) {
            Ok(small) => break small,
            Err(_) if capacity < CAPACITY_MOST => capacity = Bytes(capacity.0 * 2),
            Err(_) => break config,
        }
    };
    (name, SsdConfig { track_tags: true, ..small })
}

fn draw_command(rng: &mut Xoshiro256PlusPlus, config: &SsdConfig, units: u64, operation: u32) -> Command {
    let class = ContentClass::ALL[below(rng, ContentClass::ALL.len() as u64) as usize];
    let content = Content::new(class, operation + 1);
    let part = |rng: &mut Xoshiro256PlusPlus| {
        let (unit, first) = (below(rng, units), below(rng, 8));
        SectorRange::new(Lba(unit * 8 + first), 1 + below(rng, 8 - first))
    };
    match below(rng, 1000) {
        0..550 => Command::Write(draw_range(rng, units), content),
        550..600 => Command::WritePart(part(rng), content),
        600..700 => Command::Read(draw_range(rng, units)),
        700..730 => Command::ReadPart(part(rng)),
        730..880 if config.trim.is_supported() => {
            let most = u64::from(config.trim.max_units_per_range);
            let ranges = 1 + below(rng, u64::from(config.trim.max_ranges.min(4)));
            let range = |rng: &mut _| {
                let range = draw_range(rng, units);
                UnitRange::new(range.start, range.units.min(most))
            };
            Command::Trim((0..ranges).map(|_| range(rng)).collect())
        }
        880..900 => Command::InformFree(draw_range(rng, units)),
        900..950 => Command::Flush,
        950..998 => Command::Idle(SimDuration::from_millis(below(rng, 2000))),
        998..999 => Command::SecureErase,
        _ => Command::Write(UnitRange::new(Lpn(0), units), content),
    }
}

/// Draws a range: usually a few units, sometimes many, or the same few again and again.
fn draw_range(rng: &mut Xoshiro256PlusPlus, units: u64) -> UnitRange {
    let (start, length) = match below(rng, 10) {
        0..5 => (below(rng, units), 1 + below(rng, 16)),
        5..8 => (below(rng, 64.min(units)), 1 + below(rng, 4)),
        8..9 => (below(rng, units), 1 + below(rng, 512)),
        _ => (below(rng, units), 1 + below(rng, units / 4 + 1)),
    };
    UnitRange::new(Lpn(start), length.min(units - start))
}

fn carry_out(
    ssd: &mut Ssd,
    array: &mut FlatArray,
    now: SimTime,
    command: &Command,
) -> Result<SimTime, String> {
    Ok(match command {
        Command::Write(range, content) => {
            let done = ssd.write_content(now, *range, *content);
            array.write(*range, *content);
            done
        }
        Command::WritePart(part, content) => {
            let cached = ssd.stats().host_units_written;
            let done = ssd.write_part(now, *part, *content);
            // Data that join a unit in the cache are not a new version of it: the model keeps one content per unit.
            if ssd.stats().host_units_written > cached {
                array.write(part.units(), *content);
            }
            done
        }
        Command::Read(range) => ssd.read(now, *range),
        Command::ReadPart(part) => ssd.read_part(now, *part),
        Command::Trim(ranges) => {
            ssd.check_trim(ranges).map_err(|e| e.to_string())?;
            let done = ssd.trim(now, ranges);
            ranges.iter().for_each(|&range| array.trim(range));
            done
        }
        Command::InformFree(range) => {
            ssd.inform_free(*range);
            array.free(*range);
            now
        }
        Command::Flush => ssd.flush(now),
        Command::Idle(span) => now + *span,
        Command::SecureErase => {
            let done = ssd.secure_erase(now);
            array.erase();
            done
        }
    })
}

fn touched(command: &Command) -> Vec<UnitRange> {
    match command {
        Command::Write(range, _) | Command::Read(range) | Command::InformFree(range) => vec![*range],
        Command::WritePart(part, _) | Command::ReadPart(part) => vec![part.units()],
        Command::Trim(ranges) => ranges.clone(),
        Command::Flush | Command::Idle(_) | Command::SecureErase => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_repeat_and_differ() {
        let part = |number| run_part(1, number, 500);
        assert_eq!(part(0), part(0));
        let devices: std::collections::BTreeSet<String> = (0..20).map(|n| part(n).device).collect();
        assert!(devices.len() > 5, "{devices:?}");
    }

    /// CI runs this; `trimwise selftest --ops 10000000` takes a night.
    #[test]
    fn a_hundred_thousand_operations_find_nothing() {
        for part in 0..10 {
            let report = run_part(1, part, OPS_PER_PART);
            assert_eq!(report.violation, None, "{report:#?}");
            assert_eq!(report.operations, OPS_PER_PART);
        }
    }

    /// The collector of the compressing mapping moved full superblocks in circles, while others only had to be
    /// examined.
    #[test]
    fn regression_a_waiting_host_gets_room_from_what_is_to_be_checked() {
        let is_compressing = |part: &u64| run_part(1, *part, 0).device.starts_with("sandforce");
        for part in (0..).filter(is_compressing).take(2) {
            let report = run_part(1, part, OPS_PER_PART);
            assert_eq!((report.violation, report.operations), (None, OPS_PER_PART));
        }
    }
}
