//! `trimwise selftest`: the device models against a flat array, in parallel, for any number of operations.

pub mod arguments;
pub mod table;

use std::collections::BTreeMap;

use serde::Serialize;
use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_lab::pool;
use trimwise_lab::selftest::{OPS_PER_PART, PartReport, Violation, run_part};

use crate::commands::selftest::arguments::SelftestArguments;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use trimwise_study::command_text::CommandText;

/// Memory of this computer that one part takes: a device of 16 MiB, for a few profiles 1 GiB, with a tag for each unit.
const MEMORY_OF_PART: Bytes = Bytes::mib(64);

/// What `--json` writes; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTests {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The seed.
    pub seed: u64,
    /// The only part that ran, if one was chosen.
    pub part: Option<u64>,
    /// Operations of one part.
    pub operations_per_part: u64,
    /// The command that repeats this.
    pub command: String,
    /// Each device.
    pub devices: Vec<DeviceReport>,
    /// The violations found, each with its part.
    pub violations: Vec<Violation>,
}

/// What was done with one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Its name, with its firmware.
    pub device: String,
    /// Parts on it.
    pub parts: u64,
    /// Commands carried out.
    pub operations: u64,
    /// Units that the host wrote.
    pub host_units_written: u64,
    /// Units programmed into the flash, for any cause.
    pub nand_units_written: u64,
    /// Audits of all units and the accounting.
    pub audits: u64,
    /// Parts that ended with a violation.
    pub violations: u64,
}

/// Runs the command and returns what to print; a violation is a failed run (exit code 1).
pub fn run(
    arguments: &SelftestArguments,
    on_signal: impl FnOnce() -> Result<(), Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    on_signal()?;
    let parts: Vec<(u64, u64)> = match arguments.part {
        Some(part) => vec![(part, OPS_PER_PART)],
        None => (0..arguments.ops.div_ceil(OPS_PER_PART))
            .map(|part| (part, OPS_PER_PART.min(arguments.ops - part * OPS_PER_PART)))
            .collect(),
    };
    let jobs = arguments.jobs.map_or_else(|| pool::default_jobs(MEMORY_OF_PART), usize::from);
    let progress = Progress::new(parts.len());
    let reports = pool::run_ordered(jobs, parts.len(), |index| {
        let (part, operations) = parts[index];
        let report = run_part(arguments.seed, part, operations);
        progress.done(index);
        Ok(report)
    });
    progress.finish();
    let tests = SelfTests::new(arguments, reports?);
    let text = destinations.deliver(&tests, || table::render(&tests))?;
    match tests.violations.first() {
        None => Ok(text),
        Some(first) => {
            output::print(&text)?;
            let Violation { device, operation, .. } = first;
            Err(Failure::run(format!("{device}: the model is wrong after operation {operation}")))
        }
    }
}

impl SelfTests {
    fn new(arguments: &SelftestArguments, reports: Vec<PartReport>) -> Self {
        let mut command = CommandText::new("selftest");
        match arguments.part {
            Some(part) => command.option("--part", part),
            None => command.option("--ops", arguments.ops),
        }
        command.option("--seed", arguments.seed);
        let mut devices: BTreeMap<String, DeviceReport> = BTreeMap::new();
        for report in &reports {
            let device = devices.entry(report.device.clone()).or_default();
            device.device.clone_from(&report.device);
            device.parts += 1;
            device.operations += report.operations;
            device.host_units_written += report.host_units_written;
            device.nand_units_written += report.nand_units_written;
            device.audits += report.audits;
            device.violations += u64::from(report.violation.is_some());
        }
        Self {
            trimwise: trimwise::VERSION,
            seed: arguments.seed,
            part: arguments.part,
            operations_per_part: OPS_PER_PART,
            command: command.into_text(),
            devices: devices.into_values().collect(),
            violations: reports.into_iter().filter_map(|report| report.violation).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Command, CommandLine};

    fn arguments(line: &str) -> SelftestArguments {
        let words = ["trimwise", "selftest"].into_iter().chain(line.split_whitespace());
        let Command::Selftest(arguments) = CommandLine::try_parse_from(words).unwrap().command else {
            panic!("not selftest")
        };
        arguments
    }

    #[test]
    fn operations_are_spread_over_parts_and_summed_by_device() {
        let dir = tempfile::tempdir().unwrap();
        let mut arguments = arguments("--ops 10100 --seed 3");
        arguments.json.json = Some(dir.path().join("r.json"));
        let text = run(&arguments, || Ok(())).unwrap();
        assert!(text.contains("10,100 operations, nothing wrong."), "{text}");
        let json = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["command"], "trimwise selftest --ops 10100 --seed 3");
        let operations: u64 =
            json["devices"].as_array().unwrap().iter().map(|d| d["operations"].as_u64().unwrap()).sum();
        assert_eq!(operations, 10_100);
    }

    #[test]
    fn a_violation_is_shown_with_the_command_that_repeats_it() {
        let violation = Violation {
            part: 7,
            device: "sata-small".to_owned(),
            operation: 12,
            command: "Flush".to_owned(),
            what: "unit 5 is mapped".to_owned(),
        };
        let report = PartReport {
            part: 7,
            device: "sata-small".to_owned(),
            operations: 13,
            host_units_written: 100,
            nand_units_written: 130,
            audits: 0,
            violation: Some(violation),
        };
        let text = table::render(&SelfTests::new(&arguments("--ops 100000"), vec![report]));
        assert!(text.contains("unit 5 is mapped"), "{text}");
        assert!(text.contains("trimwise selftest --part 7 --seed 1"), "{text}");
    }
}
