//! Checks the device models against a flat array, in parallel, for any number of operations.

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

/// Memory that one part takes on this computer: a device of 16 MiB (1 GiB for a few profiles), with a tag for each
/// unit.
const MEMORY_OF_PART: Bytes = Bytes::mib(64);

/// Accepted numbers of commands.
pub const OPS: RangeInclusive<u64> = 1..=1_000_000_000_000;
/// Accepted numbers of a part.
pub const PART: RangeInclusive<u64> = 0..=99_999_999;

/// A request for a self-test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelftestRequest {
    /// Number of commands, in parts of 10,000, each with its own device.
    pub ops: u64,
    /// Seed of all random numbers.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// The only part to run, counted from 0, with all of its commands.
    pub part: Option<u64>,
    /// Parts at a time, without effect on the result; `None` means one for each core.
    pub jobs: Option<u16>,
}

/// The result; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTests {
    pub trimwise: &'static str,
    pub seed: u64,
    /// The only part that ran, if the request chose one.
    pub part: Option<u64>,
    /// Number of operations in a part.
    pub operations_per_part: u64,
    pub command: String,
    pub devices: Vec<DeviceReport>,
    /// The violations found, with their parts.
    pub violations: Vec<Violation>,
}

/// The totals of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// The profile's name, with its firmware.
    pub device: String,
    /// Number of parts that used this device.
    pub parts: u64,
    /// Commands executed.
    pub operations: u64,
    /// Units that the host wrote.
    pub host_units_written: u64,
    /// Units programmed into the flash, for whatever reason.
    pub nand_units_written: u64,
    /// Number of audits of all units and the accounting.
    pub audits: u64,
    /// Number of parts that ended with a violation.
    pub violations: u64,
}

/// Runs the commands. Violations are in the [answer](SelfTests::failure).
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
    /// Combines the reports of all parts.
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

    /// Returns the first violation as a failure.
    pub fn failure(&self) -> Option<Failure> {
        let Violation { device, operation, .. } = self.violations.first()?;
        Some(Failure::run(format!("{device}: the model is wrong after operation {operation}")))
    }
}
