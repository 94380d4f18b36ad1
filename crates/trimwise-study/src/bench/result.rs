use serde::{Deserialize, Serialize};
use trimwise::block::DeviceFacts;
use trimwise::ssd::SsdStats;
use trimwise::units::SimDuration;
use trimwise::workload::latency::LatencySummary;

use super::load::{Done, Tally, per_second};
use crate::plot::Plot;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Did {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub bytes_trimmed: u64,
    pub whole_device_erases: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub what: String,
    pub operations: u64,
    pub bytes: u64,
    /// From the first submission to the last completion.
    pub elapsed_ns: u64,
    /// Megabytes (1,000,000 bytes) per second; `None` if nothing is transferred.
    pub throughput_mb_per_s: Option<f64>,
    /// Throughput of the slowest zone or interval, if there are several.
    pub throughput_min_mb_per_s: Option<f64>,
    /// Throughput of the fastest zone or interval, if there are several.
    pub throughput_max_mb_per_s: Option<f64>,
    pub iops: Option<f64>,
    pub latency: Option<LatencySummary>,
    /// Write amplification of a model meanwhile, where it is not that of the whole test.
    #[serde(default)]
    pub write_amplification: Option<f64>,
}

impl Measured {
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

    /// An operation that transfers nothing.
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
            write_amplification: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    pub range_percent: f64,
    /// Bytes written between the previous TRIM and this one.
    pub written_before_bytes: u64,
    pub trim_ns: u64,
    /// The first time from which throughput stays within a tenth of its final level; `None` if it never does.
    pub settled_after_ns: Option<u64>,
    pub first_mb_per_s: f64,
    /// Mean of the last quarter.
    pub final_mb_per_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrimTime {
    pub range_bytes: u64,
    pub loaded: bool,
    pub latency: LatencySummary,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    pub reached: bool,
    pub rounds: u32,
    /// Transfers per second, by round.
    pub round_iops: Vec<f64>,
    /// Write amplification of a model, by round; `None` for a real device.
    #[serde(default)]
    pub round_write_amplification: Option<Vec<f64>>,
    pub iops: f64,
    /// Maximum less minimum over the window, in percent of its mean.
    pub excursion_percent: f64,
    /// Rise or fall of the fitted line over the window, in percent of its mean.
    pub slope_percent: f64,
}

/// Sequential writes over those to the clean drive. The ratios have the names of the register of measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reviewed {
    pub fill_percent: f64,
    /// What was trimmed between the dirty write and the one after it: all, free or none.
    pub trimmed: String,
    pub rest_s: f64,
    pub dirty_over_clean: f64,
    /// `None` if nothing was trimmed.
    pub after_trim_over_clean: Option<f64>,
    pub after_rest_over_clean: f64,
    /// `None` for a real device.
    pub after_erase_over_clean: Option<f64>,
}

/// The name of a ratio, and how it is read.
pub type Ratio = (&'static str, fn(&Reviewed) -> Option<f64>);

pub const RATIOS: [Ratio; 4] = [
    ("dirty_over_clean", |r| Some(r.dirty_over_clean)),
    ("after_trim_over_clean", |r| r.after_trim_over_clean),
    ("after_rest_over_clean", |r| Some(r.after_rest_over_clean)),
    ("after_erase_over_clean", |r| r.after_erase_over_clean),
];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Findings {
    #[default]
    None,
    TrimLatency(Vec<TrimTime>),
    Settling(Vec<Settled>),
    Steady(Steady),
    Reviewers(Reviewed),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceCounts {
    /// Units written to flash for each unit that the host wrote; `None` if it wrote none.
    pub write_amplification: Option<f64>,
    pub host_units_written: u64,
    pub nand_units_written: u64,
    pub gc_units: u64,
    pub block_erases: u64,
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// As written on the command line.
    pub test: String,
    /// Includes all preparation.
    pub elapsed_ns: u64,
    /// Includes all preparation.
    pub did: Did,
    /// Excludes preparation.
    pub measured: Vec<Measured>,
    pub findings: Findings,
    /// Figures over time, zones and sizes.
    pub plots: Vec<Plot>,
    pub notes: Vec<String>,
    /// `None` for a real device.
    pub device: Option<DeviceCounts>,
}

impl TestResult {
    /// Returns a model's write amplification during what was measured, or during the whole test if that is not known.
    pub fn write_amplification(&self) -> Option<f64> {
        let of_test = || self.device.as_ref()?.write_amplification;
        match &self.measured[..] {
            [one] => one.write_amplification.or_else(of_test),
            _ => of_test(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub size_bytes: u64,
    pub sector_bytes: u64,
    /// Whether the device claims to support TRIM.
    pub trim: bool,
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Broken {
    pub test: String,
    pub why: String,
    pub interrupted: bool,
    /// Work that the interrupted test had done by then.
    pub did: Did,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub device: Device,
    /// Notes from the opening of the device.
    pub notes: Vec<String>,
    pub tests: Vec<TestResult>,
    /// Set if not all tests finished. The results are then partial.
    pub broken: Option<Broken>,
}
