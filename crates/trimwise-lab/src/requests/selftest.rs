//! The device models against a flat array, in parallel, for any number of operations.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::selftest::{OPS_PER_PART, PartReport, Violation, run_part};
use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistakes};
use trimwise::units::Bytes;
use trimwise_linux::pool;

use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::check::{JOBS, within};
use trimwise_study::command_text::CommandText;
use trimwise_study::defaults;

/// Memory of this computer that one part takes: a device of 16 MiB, for a few profiles 1 GiB, with a tag for each unit.
const MEMORY_OF_PART: Bytes = Bytes::mib(64);

/// Commands in all.
pub const OPS: RangeInclusive<u64> = 1..=1_000_000_000_000;
/// The number of a part.
pub const PART: RangeInclusive<u64> = 0..=99_999_999;

/// Commands to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelftestRequest {
    /// Their number, in parts of 10,000, each with a device of its own.
    pub ops: u64,
    /// Seed of everything that is drawn.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// The only part to run, counted from 0, with all of its commands.
    pub part: Option<u64>,
    /// Parts at a time, which change nothing in the result; `None`: one for each core.
    pub jobs: Option<u16>,
}

/// What was found; the order of the keys is part of the format.
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

/// Runs the commands.
///
/// # Errors
///
/// A [`Failure`] if a part cannot be run. Violations are in the [answer](SelfTests::failure).
pub fn run(request: &SelftestRequest, caller: &dyn Caller) -> Result<SelfTests, Failure> {
    Mistakes::of([
        within("ops", request.ops, &OPS),
        within("part", request.part, &PART),
        within("jobs", request.jobs, &JOBS),
    ])?;
    caller.stop(OnInterrupt::Exit)?;
    let parts: Vec<(u64, u64)> = match request.part {
        Some(part) => vec![(part, OPS_PER_PART)],
        None => (0..request.ops.div_ceil(OPS_PER_PART))
            .map(|part| (part, OPS_PER_PART.min(request.ops - part * OPS_PER_PART)))
            .collect(),
    };
    let jobs = request.jobs.map_or_else(|| pool::default_jobs(MEMORY_OF_PART), usize::from);
    let progress = caller.progress(parts.len(), "runs");
    let reports = pool::run_ordered(jobs, parts.len(), |index| {
        let (part, operations) = parts[index];
        let report = run_part(request.seed, part, operations);
        progress.done(index);
        Ok(report)
    });
    progress.finish();
    Ok(SelfTests::new(request, reports?))
}

impl SelfTests {
    /// Puts the reports of all parts together.
    pub fn new(request: &SelftestRequest, reports: Vec<PartReport>) -> Self {
        let mut command = CommandText::new("selftest");
        match request.part {
            Some(part) => command.option("--part", part),
            None => command.option("--ops", request.ops),
        }
        command.option("--seed", request.seed);
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
            seed: request.seed,
            part: request.part,
            operations_per_part: OPS_PER_PART,
            command: command.into_text(),
            devices: devices.into_values().collect(),
            violations: reports.into_iter().filter_map(|report| report.violation).collect(),
        }
    }

    /// The first violation as a failure.
    pub fn failure(&self) -> Option<Failure> {
        let Violation { device, operation, .. } = self.violations.first()?;
        Some(Failure::run(format!("{device}: the model is wrong after operation {operation}")))
    }
}
