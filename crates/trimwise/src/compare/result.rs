//! Results as data: the JSON of `compare`, and the source of tables and reports.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::days::DaysFigures;
pub use super::figures::{AppendFigures, FullWriteFigures, Measure, Quantile, RemovalTrims, WorkloadFigures};
use super::why::Endurance;
use crate::policy::{DiscardGeneration, Ledger, PolicyId};
use crate::ssd::{LinkKind, SsdConfig};
use crate::units::SimDuration;
use crate::workload::fragmenting::Removal;
use crate::workload::full_write::FullWrite;
use crate::workload::latency::{LatencySummary, OpLatencies, Operation};
use crate::workload::limited::DeletionFigures;
pub use crate::workload::postmark::PostmarkFigures;
use crate::workload::postmark::{Outcome, ReportFormat, report};
use crate::workload::stage::{self, TaskEnd};
use crate::workload::timed::{Timed, Timing};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The device profile's name, or the path of a real directory's mount.
    pub device: String,
    /// The policy. On a real directory, the mount's option (`discard`, `nodiscard`).
    pub policy: PolicyId,
    pub target: Target,
    /// Repetition, from 0.
    pub rep: u32,
    /// Duration of the workload. If it times one operation, up to the end of that; over days, the time that its tasks
    /// spent in their operations.
    pub duration_ns: u64,
    /// Figures over days; `None` for a run without idle time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<DaysFigures>,
    /// The workload's own figures, under its kind: `postmark`, `append`, `full_write`, `program`, `replay` or `own`.
    #[serde(flatten)]
    pub workload: WorkloadFigures,
    /// The device's figures during the workload; `None` on a real directory.
    pub device_stats: Option<DeviceFigures>,
    /// The fate of freed units, and the cost and savings of TRIM; `None` on a real directory.
    pub ledger: Option<CellLedger>,
    /// What became of removed files, if the application limits its deletions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletions: Option<DeletionFigures>,
    /// Latency of each operation or kind of request that occurred, by name: of PostMark, applications, fio jobs and
    /// traces.
    pub latency: BTreeMap<Cow<'static, str>, LatencySummary>,
    #[serde(skip)]
    pub judged: Option<Measure>,
    /// Facts about the modelled drive for the verdict; `None` on a real directory.
    #[serde(skip)]
    pub drive: Option<DriveFacts>,
    /// How the modelled host carries out `discard`; `None` on a real kernel.
    #[serde(skip)]
    pub discard: Option<DiscardGeneration>,
    /// PostMark's own report, verbose or terse as the workload says.
    #[serde(skip)]
    pub postmark_report: String,
    /// Latency at the quantiles of [`QUANTILES`], by operation, for the report's distributions.
    pub latency_quantiles_ns: BTreeMap<Cow<'static, str>, Vec<u64>>,
}

/// Properties of the modelled drive that the verdict needs, besides the figures of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveFacts {
    pub capacity_bytes: u64,
    /// Program/erase cycles that a block is rated for.
    pub endurance_cycles: u32,
    pub endurance_is_assumed: bool,
    pub superblock_blocks: u32,
    pub link: LinkKind,
}

impl DriveFacts {
    pub fn of(config: &SsdConfig) -> Self {
        Self {
            capacity_bytes: config.capacity_bytes,
            endurance_cycles: config.nand.endurance_cycles,
            endurance_is_assumed: config.nand.endurance_is_assumed,
            superblock_blocks: config.geometry.superblock_planes,
            link: config.link.kind,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellId {
    pub device: String,
    pub policy: PolicyId,
    pub target: Target,
    pub rep: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    #[default]
    Model,
    /// On a real kernel and a modelled drive, in virtual time: `VERSION:FS[:MOUNT_OPTIONS]`.
    Kernel(String),
    Directory(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model => f.write_str("model"),
            Self::Kernel(target) => write!(f, "kernel:{target}"),
            Self::Directory(path) => write!(f, "dir:{path}"),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text == "model" => Ok(Self::Model),
            Some(("dir", "")) => Err("no directory given; expected dir:PATH".to_owned()),
            Some(("dir", path)) => Ok(Self::Directory(path.to_owned())),
            Some(("kernel", target)) => Ok(Self::Kernel(target.to_owned())),
            _ => Err("expected `model`, `kernel:VERSION:FS[:MOUNT_OPTIONS]` or `dir:PATH`".to_owned()),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e| serde::de::Error::custom(format!("target {text}: {e}")))
    }
}

impl Cell {
    /// Builds the cell of a run that took `duration`, with only the workload's own figures.
    pub fn new(id: CellId, duration: SimDuration, workload: WorkloadFigures) -> Self {
        let CellId { device, policy, target, rep } = id;
        Self {
            device,
            policy,
            target,
            rep,
            duration_ns: duration.as_nanos(),
            days: None,
            workload,
            device_stats: None,
            ledger: None,
            deletions: None,
            latency: BTreeMap::new(),
            judged: None,
            drive: None,
            discard: None,
            postmark_report: String::new(),
            latency_quantiles_ns: BTreeMap::new(),
        }
    }

    /// Returns where and why the trace of the run ended early, if it is damaged.
    pub fn cut_off(&self) -> Option<&str> {
        self.workload.replay()?.cut_off.as_deref()
    }

    /// Builds the cell of a PostMark run. `format` is that of PostMark's own report.
    pub fn of_postmark(id: CellId, outcome: &Outcome, format: ReportFormat) -> Self {
        let cell = Self::new(id, outcome.duration(), WorkloadFigures::Postmark(outcome.figures()));
        Self { postmark_report: report::of(outcome, format), ..cell.with_latencies(&outcome.latencies) }
    }

    pub fn of_program(id: CellId, duration: SimDuration, ends: Vec<TaskEnd>) -> Self {
        let (done, latencies) = stage::sum(ends);
        Self::new(id, duration, WorkloadFigures::Program(done)).with_latencies(&latencies)
    }

    fn with_latencies(self, latencies: &OpLatencies) -> Self {
        let recorded = || Operation::ALL.into_iter().filter_map(|o| Some((o, latencies.summary(o)?)));
        Self {
            latency: recorded().map(|(o, summary)| (o.name().into(), summary)).collect(),
            latency_quantiles_ns: recorded()
                .map(|(o, _)| (o.name().into(), latencies.quantiles(o, &QUANTILES)))
                .collect(),
            ..self
        }
    }

    /// Builds the cell of a run that timed one operation. `trims` are those of the removed file, if they are known.
    pub fn of_timed(
        id: CellId,
        duration: SimDuration,
        timed: Timed,
        timing: Timing,
        trims: Option<RemovalTrims>,
    ) -> Self {
        let file = timed.file();
        let (append_bytes, file_bytes) = (file.append.0, file.file.0);
        let workload = match timing {
            Timing::Append(Removal { unlink, fsync }) => WorkloadFigures::Append(AppendFigures {
                append_bytes,
                file_bytes,
                pieces: file.pieces(),
                unlink_ns: unlink.as_nanos(),
                fsync_ns: fsync.as_nanos(),
                trims,
            }),
            Timing::FullWrite(FullWrite { fsync, write }) => WorkloadFigures::FullWrite(FullWriteFigures {
                append_bytes,
                file_bytes,
                fsync_ns: fsync.map(SimDuration::as_nanos),
                write_ns: write.as_nanos(),
                trims,
            }),
        };
        Self::new(id, duration, workload)
    }

    /// Returns true if time was virtual. Repetitions then differ only for named causes.
    pub fn is_in_virtual_time(&self) -> bool {
        !matches!(self.target, Target::Directory(_))
    }

    /// Turns the run into one over days, in which its tasks spent `waiting` in their operations, if that is known.
    #[must_use]
    pub fn over_days(self, days: DaysFigures, waiting: Option<SimDuration>) -> Self {
        let duration_ns = waiting.map_or(self.duration_ns, SimDuration::as_nanos);
        Self { duration_ns, days: Some(days), ..self }
    }

    pub fn elapsed_ns(&self) -> u64 {
        self.days.map_or(self.duration_ns, |days| days.elapsed_ns)
    }

    pub fn measure(&self) -> Measure {
        self.judged.unwrap_or_else(|| self.workload.judged(self.days.is_some()).0)
    }

    pub fn measured_ns(&self) -> u64 {
        if let Some(Measure::Latency(quantile, operation)) = self.judged
            && let Some(latency) = self.latency.get(operation.name())
        {
            return quantile.of(latency);
        }
        self.workload.judged(self.days.is_some()).1.unwrap_or(self.duration_ns)
    }

    /// Chooses the figure by which policies are judged.
    ///
    /// # Errors A sentence that says why this run does not have that figure.
    pub fn judge_by(&mut self, measure: Measure) -> Result<(), String> {
        self.judged = None;
        let own = self.measure();
        match measure {
            Measure::Total if own == Measure::Waiting => return Ok(()),
            _ if !matches!(own, Measure::Total | Measure::Waiting) => {
                return Err(format!(
                    "this workload times one operation and can be judged only by that: {own}"
                ));
            }
            Measure::Latency(_, operation) if !self.latency.contains_key(operation.name()) => {
                let recorded = self.latency.keys().map(|name| &**name).collect::<Vec<_>>().join(", ");
                let recorded = if recorded.is_empty() { "nothing" } else { &recorded };
                return Err(format!(
                    "the workload has no latency of {}; it recorded {recorded}",
                    operation.name()
                ));
            }
            _ => {}
        }
        self.judged = Some(measure);
        Ok(())
    }

    /// Returns true if the run is known to have freed nothing, so that there was nothing to trim.
    pub fn frees_nothing(&self) -> bool {
        match &self.ledger {
            Some(ledger) => ledger.units.freed == 0,
            None => self.workload.program().is_some_and(|done| !done.frees()),
        }
    }
}

pub const QUANTILES: [f64; 12] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0];

/// The ledger of a run: the fate of freed units, what TRIM cost the device, and what it saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellLedger {
    /// The fate of units freed during the workload. Pending and in-flight units are those at its end, whenever they were
    /// freed.
    #[serde(flatten)]
    pub units: Ledger,
    pub trim_busy_ns: u64,
    /// Share of the elapsed time in which the device was busy with TRIM. A device that cannot do anything else in that
    /// time loses this share.
    pub trim_busy_percent: f64,
    /// Units that garbage collection copied in the same repetition without TRIM, minus those copied here. `None` if `off`
    /// did not run.
    pub gc_units_saved: Option<i64>,
    /// Time of the same repetition without TRIM, minus the time here, in the figure by which policies are judged. `None`
    /// if `off` did not run.
    pub time_saved_ns: Option<i64>,
}

impl CellLedger {
    /// Creates a ledger that has not been compared with another run, over an elapsed time of `passed`.
    pub fn new(units: Ledger, trim_busy_ns: u64, passed: SimDuration) -> Self {
        let passed = passed.as_nanos();
        let trim_busy_percent = if passed == 0 { 0.0 } else { trim_busy_ns as f64 / passed as f64 * 100.0 };
        Self { units, trim_busy_ns, trim_busy_percent, gc_units_saved: None, time_saved_ns: None }
    }
}

/// Figures of the device during the workload, without ageing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceFigures {
    pub host_units_written: u64,
    pub nand_units_written: u64,
    /// NAND units over host units; 1 if the host wrote nothing.
    pub write_amplification: f64,
    pub trim_commands: u64,
    pub trim_ranges: u64,
    pub trimmed_units: u64,
    pub erases: u64,
    pub erase_count_min: u32,
    pub erase_count_mean: f64,
    pub erase_count_max: u32,
    pub gc_units_copied: u64,
    pub folded_units: u64,
    pub map_units_written: u64,
    pub map_lookups_missed: u64,
    /// Stale units are free in the file system and valid in the device. `None` on a real kernel, which does not track
    /// them.
    pub stale_units_max: Option<u64>,
    pub stale_units_mean: Option<f64>,
    /// `None` where the file system does not report free space.
    pub stale_units_end: Option<u64>,
    /// Device time by cause, ns: `link`, `controller`, `write_path`, `read_host`, `read_gc`, `read_map`,
    /// `program_host`, `program_gc`, `erase`, `trim`, `flush`.
    pub busy_ns: BTreeMap<Cow<'static, str>, u64>,
    /// Samples of the stale units and the running write amplification over time.
    pub timeline: Vec<TimelineSample>,
    /// Contents of the drive's blocks before and after; `None` for a drive without a page map, and on a real kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockMap>,
    /// What thin storage holds; `None` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thin: Option<ThinFigures>,
}

/// Space that a volume of thin storage holds, next to what the file system uses: files, directories and metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThinFigures {
    pub chunk_bytes: u64,
    pub used_bytes_end: u64,
    /// Over time.
    pub held_bytes_mean: f64,
    pub held_bytes_max: u64,
    pub held_bytes_end: u64,
    /// Held beyond what is used; 0 while less is held, as where zeros take no space.
    pub excess_bytes_mean: f64,
    pub excess_bytes_max: u64,
    pub excess_bytes_end: u64,
}

/// Contents of a drive's blocks when the workload began and when it had ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockMap {
    /// Superblocks of the drive. Neighbours are together in a group.
    pub superblocks: u64,
    pub before: BlockShares,
    pub after: BlockShares,
}

/// Shares of each group of superblocks, in thousandths of its units. The remainder can be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockShares {
    /// Valid, and in use by the file system.
    pub in_use_permille: Vec<u16>,
    /// Valid in the device, and free in the file system.
    pub stale_permille: Vec<u16>,
    /// Without use, until the superblock is erased.
    pub invalid_permille: Vec<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineSample {
    pub at_ns: u64,
    pub stale_units: u64,
    pub host_units_written: u64,
    pub nand_units_written: u64,
    /// Copies by garbage collection among the NAND units; `None` if they were not recorded.
    #[serde(default)]
    pub gc_units_copied: Option<u64>,
    /// Device time that TRIM took so far; `None` if it was not recorded.
    #[serde(default)]
    pub trim_busy_ns: Option<u64>,
}

/// Reads a number. Null stands for one that is infinite or not a number.
pub fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The rule by which it was judged ([`judge::RULE`](super::judge::RULE)); 0 in results of older versions.
    #[serde(default)]
    pub rule: u32,
    /// The policy to use; `None` if the runs cannot tell, or devices differ.
    pub policy: Option<PolicyId>,
    /// Baseline's median duration over this policy's: above 1 is faster. Not a number over several devices.
    #[serde(deserialize_with = "number")]
    pub speedup: f64,
    #[serde(deserialize_with = "number")]
    pub low: f64,
    #[serde(deserialize_with = "number")]
    pub high: f64,
    /// One sentence on speed, one on life time.
    pub text: String,
    /// The explanation: what TRIMs cost and saved, where the device's time went, and what the flash endures.
    pub why: String,
    pub per_device: Vec<DeviceVerdict>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceVerdict {
    pub device: String,
    /// The policy to use; `None` if the runs cannot tell.
    pub policy: Option<PolicyId>,
    #[serde(deserialize_with = "number")]
    pub speedup: f64,
    #[serde(deserialize_with = "number")]
    pub low: f64,
    #[serde(deserialize_with = "number")]
    pub high: f64,
    /// The speed differs measurably from the baseline's.
    pub significant: bool,
    /// How many times as long the flash lasts for equal work: what the baseline writes to it over what this policy
    /// writes. `None` where the device does not report it.
    pub life_time: Option<f64>,
    /// Endurance of the drive under the policy; `None` where its rated cycles are not known.
    pub endurance: Option<Endurance>,
    /// One sentence on speed, one on life time.
    pub text: String,
    /// Explanation of the verdict: costs and savings of TRIM, use of the device's time, endurance.
    pub why: String,
}
