//! Results of tests, as data.

use serde::{Deserialize, Serialize};
use trimwise::block::DeviceFacts;
use trimwise::ssd::SsdStats;
use trimwise::units::SimDuration;
use trimwise::workload::latency::LatencySummary;

use super::load::{Done, Tally, per_second};
use crate::plot::Plot;

/// What tests did to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Did {
    /// Bytes read, in completed transfers.
    pub bytes_read: u64,
    /// Bytes written, in completed transfers.
    pub bytes_written: u64,
    /// Bytes in completed TRIMs.
    pub bytes_trimmed: u64,
    /// Number of erases of the whole device.
    pub whole_device_erases: u64,
}

/// Transfers of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the kind.
    pub what: String,
    /// Number of transfers.
    pub operations: u64,
    /// Bytes of all transfers.
    pub bytes: u64,
    /// From the first submission to the last completion.
    pub elapsed_ns: u64,
    /// Megabytes (1,000,000 bytes) per second; `None` if nothing is transferred.
    pub throughput_mb_per_s: Option<f64>,
    /// The slowest part (zone, interval), if there are several.
    pub throughput_min_mb_per_s: Option<f64>,
    /// The fastest part, if there are several.
    pub throughput_max_mb_per_s: Option<f64>,
    /// Transfers per second.
    pub iops: Option<f64>,
    /// Latency of the transfers.
    pub latency: Option<LatencySummary>,
}

impl Measured {
    /// Summarises transfers of one direction in `elapsed`.
    pub(super) fn of(what: impl Into<String>, tally: &Tally, elapsed: SimDuration) -> Self {
        Self {
            throughput_mb_per_s: Some(per_second(tally.bytes.0 as f64 / 1e6, elapsed)),
            iops: Some(per_second(tally.operations as f64, elapsed)),
            latency: tally.latency(),
            operations: tally.operations,
            ..Self::operation(what, tally.bytes.0, elapsed)
        }
    }

    pub(super) fn of_stream(done: &Done) -> Vec<Self> {
        [("read", &done.reads), ("write", &done.writes)]
            .into_iter()
            .filter(|(_, tally)| tally.operations > 0)
            .map(|(what, tally)| Self::of(what, tally, done.elapsed))
            .collect()
    }

    pub(super) fn spread(mut self, rates: impl Iterator<Item = f64> + Clone) -> Self {
        let least = rates.clone().fold(f64::INFINITY, f64::min);
        let most = rates.fold(f64::NEG_INFINITY, f64::max);
        if least <= most {
            (self.throughput_min_mb_per_s, self.throughput_max_mb_per_s) = (Some(least), Some(most));
        }
        self
    }

    /// Describes one operation that transfers nothing.
    pub(super) fn operation(what: impl Into<String>, bytes: u64, elapsed: SimDuration) -> Self {
        let ns = elapsed.as_nanos();
        Self {
            what: what.into(),
            operations: 1,
            bytes,
            elapsed_ns: ns,
            throughput_mb_per_s: None,
            throughput_min_mb_per_s: None,
            throughput_max_mb_per_s: None,
            iops: None,
            latency: Some(LatencySummary { count: 1, p50_ns: ns, p99_ns: ns, p999_ns: ns, max_ns: ns }),
        }
    }
}

/// How long throughput took to settle after a TRIM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// The share of the region that was trimmed.
    pub range_percent: f64,
    /// Bytes written between the previous TRIM and this one.
    pub written_before_bytes: u64,
    /// Duration of the TRIM.
    pub trim_ns: u64,
    /// The first time from which throughput stays within a tenth of its final level; `None` if it never does.
    pub settled_after_ns: Option<u64>,
    /// Throughput of the first second.
    pub first_mb_per_s: f64,
    /// The final level: the mean of the last quarter.
    pub final_mb_per_s: f64,
}

/// Latency of TRIMs of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrimTime {
    /// The size of the range.
    pub range_bytes: u64,
    /// True if the device was under load.
    pub loaded: bool,
    /// Latency of the TRIMs.
    pub latency: LatencySummary,
}

/// Result of the search for steady state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// True if steady state was reached.
    pub reached: bool,
    /// Number of rounds.
    pub rounds: u32,
    /// Transfers per second of each round.
    pub round_iops: Vec<f64>,
    /// Mean of the transfers per second over the last window.
    pub iops: f64,
    /// Maximum less minimum over the window, in percent of its mean.
    pub excursion_percent: f64,
    /// Rise or fall of the fitted line over the window, in percent of its mean.
    pub slope_percent: f64,
}

/// A test's results other than transfers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Findings {
    /// No further results.
    #[default]
    None,
    /// TRIM latency.
    TrimLatency(Vec<TrimTime>),
    /// Settling after TRIM.
    Settling(Vec<Settled>),
    /// Steady state.
    Steady(Steady),
}

/// What a modelled device counted during a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceCounts {
    /// Units written to flash for each unit that the host wrote; `None` if it wrote none.
    pub write_amplification: Option<f64>,
    /// Units that the host wrote.
    pub host_units_written: u64,
    /// Units written to flash.
    pub nand_units_written: u64,
    /// Units copied by garbage collection.
    pub gc_units: u64,
    /// Erase blocks erased.
    pub block_erases: u64,
    /// TRIM commands.
    pub trim_commands: u64,
    /// Units that held data and were unmapped by TRIMs.
    pub trimmed_units: u64,
    /// Share of the units read that held no data, so that no flash was read for them; `None` without reads.
    pub unmapped_reads_percent: Option<f64>,
}

impl DeviceCounts {
    pub(super) fn of(stats: &SsdStats) -> Self {
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        Self {
            write_amplification: (stats.host_units_written > 0).then(|| stats.write_amplification()),
            host_units_written: stats.host_units_written,
            nand_units_written: stats.nand_units.total(),
            gc_units: stats.nand_units.gc,
            block_erases: stats.block_erases,
            trim_commands: stats.trim.commands,
            trimmed_units: stats.trim.units_invalidated,
            unmapped_reads_percent: share(stats.host_units_read_unmapped, stats.host_units_read)
                .map(|share| share * 100.0),
        }
    }
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// The test, as written on the command line.
    pub test: String,
    /// Its duration, including all preparation.
    pub elapsed_ns: u64,
    /// What it did to the device, including all preparation.
    pub did: Did,
    /// Its transfers, without preparation.
    pub measured: Vec<Measured>,
    /// Its other results.
    pub findings: Findings,
    /// Figures over time, zones and sizes.
    pub plots: Vec<Plot>,
    /// What a reader needs to know about the figures.
    pub notes: Vec<String>,
    /// The model's counters; `None` for a real device.
    pub device: Option<DeviceCounts>,
}

/// The device, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name or path.
    pub name: String,
    /// Size of the device.
    pub size_bytes: u64,
    /// The smallest transfer.
    pub sector_bytes: u64,
    /// True if the device claims to support TRIM.
    pub trim: bool,
    /// True if time is virtual.
    pub is_model: bool,
}

impl From<&DeviceFacts> for Device {
    fn from(facts: &DeviceFacts) -> Self {
        Self {
            name: facts.name.clone(),
            size_bytes: facts.size_units.saturating_mul(trimwise::units::UNIT_BYTES),
            sector_bytes: facts.sector_bytes,
            trim: facts.trim.is_some(),
            is_model: facts.is_model,
        }
    }
}

/// Where tests ended early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Broken {
    /// The last test.
    pub test: String,
    /// Reason for the early end.
    pub why: String,
    /// True if the user stopped the test.
    pub interrupted: bool,
    /// What that test had done to the device by then.
    pub did: Did,
}

/// Results of tests, as far as they ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The device under test.
    pub device: Device,
    /// What a reader needs to know about the device: remarks made when it was opened.
    pub notes: Vec<String>,
    /// The tests that ended, in order.
    pub tests: Vec<TestResult>,
    /// Where they ended, if not all finished. The results are partial then.
    pub broken: Option<Broken>,
}
