use serde::{Deserialize, Serialize};

use super::extents::CHUNK_UNITS;
use super::{Availability, DiscardGeneration, LinuxVersion};
use crate::ssd::{Ssd, TrimKind};
use crate::units::{Bytes, SimDuration, SimTime, UnitRange};

/// An event for a governor. It comes with a [`View`] of that moment. As JSON it is a line of [`wire`](super::wire).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PolicyEvent {
    /// Describes the host. Always the first event.
    Hosted(HostTraits),
    /// A transaction became durable. The blocks that it freed (perhaps none) are now in the pending set.
    Committed { freed_units: u64 },
    /// A TRIM command that [`Decision::Issue`] asked for was acknowledged.
    Issued(Acknowledged),
    /// A [`Decision::Issue`] found no suitable extent between the end of the last one and the end of the device. The
    /// next search starts at the beginning.
    PassOver,
    /// A [`Decision::TrimFree`] has ended.
    Trimmed { units: u64 },
    /// The time of the last [`Decision::WakeAt`] has come.
    Woken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Ranges in the command. An extent longer than the maximum range takes several.
    pub ranges: u32,
    pub units: u64,
    /// How long the device took, without the time in the queue.
    #[serde(rename = "took_ns")]
    pub took: SimDuration,
}

/// The facts that a governor may know about its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTraits {
    /// How the host's own discard option works.
    #[serde(skip, default = "today")]
    pub kernel: DiscardGeneration,
    /// Maximum number of TRIM commands in the device at once; 1 if TRIM is not queued.
    pub trim_depth: u32,
    pub ranges_max: u32,
    /// Maximum length of one range, in units.
    pub range_units_max: u64,
    pub total_units: u64,
    /// Size of a block group, in units: the natural slice of a batch TRIM.
    pub group_units: u64,
}

fn today() -> DiscardGeneration {
    LinuxVersion::TODAY.discard()
}

impl HostTraits {
    /// The traits of a host between the file system and this drive. There Linux merges discards into one command per
    /// extent for all but NVMe.
    pub(crate) fn below_file_system(ssd: &Ssd, kernel: DiscardGeneration, trim_depth: u32) -> Self {
        let traits = Self::of(ssd, kernel, trim_depth);
        let is_nvme = ssd.config().trim.kind == TrimKind::Nvme;
        Self { ranges_max: if is_nvme { traits.ranges_max } else { 1 }, ..traits }
    }

    /// The traits of a host in front of this drive, with this many TRIMs in the drive at once.
    pub(crate) fn of(ssd: &Ssd, kernel: DiscardGeneration, trim_depth: u32) -> Self {
        let trim = &ssd.config().trim;
        Self {
            kernel,
            trim_depth,
            ranges_max: trim.max_ranges,
            range_units_max: trim.max_units_per_range.into(),
            total_units: ssd.capacity_units(),
            group_units: CHUNK_UNITS,
        }
    }
}

/// The host at the moment of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    #[serde(rename = "now_ns")]
    pub now: SimTime,
    pub used_units: u64,
    pub total_units: u64,
    /// Units freed so far, as far as the host sees it. A transaction counts once it is durable.
    pub freed_units: u64,
    pub pending_units: u64,
    pub pending_extents: u64,
    /// Units freed and dropped, and not allocated since: the device holds them as valid.
    pub untrimmed_units: u64,
    pub in_flight: u32,
    /// Requests other than TRIMs in the device or waiting for it.
    pub requests: u32,
    /// How long there have been no such requests; zero while there are some.
    #[serde(rename = "quiet_ns")]
    pub quiet: SimDuration,
    /// Requests other than TRIMs that have completed.
    pub requests_done: u64,
    /// When the oldest pending extent came, if the governor takes the oldest first.
    #[serde(default, rename = "oldest_ns")]
    pub oldest: Option<SimTime>,
    #[serde(flatten)]
    pub served: Served,
}

/// The reads and writes that a device has completed, as `/sys/block/DEVICE/stat` counts them. Counters may start at any
/// value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    #[serde(rename = "served_requests")]
    pub requests: u64,
    #[serde(rename = "served_bytes")]
    pub bytes: Bytes,
    /// Total time of these requests, from being queued to completion.
    #[serde(rename = "served_time_ns")]
    pub time: SimDuration,
    /// Time during which there were requests, waiting or in the device.
    #[serde(rename = "served_busy_ns")]
    pub busy: SimDuration,
}

impl Served {
    /// Returns the reads and writes since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            bytes: Bytes(self.bytes.0.saturating_sub(before.bytes.0)),
            time: self.time - before.time,
            busy: self.busy - before.busy,
        }
    }
}

impl View {
    /// Percentage of all units that the device must hold as valid, as far as the host can know: space used by files,
    /// and freed space that is not trimmed.
    pub(crate) fn device_percent(&self) -> u64 {
        let held = self.used_units + self.pending_units + self.untrimmed_units;
        held.min(self.total_units) * 100 / self.total_units.max(1)
    }

    pub(crate) fn pending_mean(&self) -> u64 {
        self.pending_units / self.pending_extents.max(1)
    }

    pub(crate) fn used_percent(&self) -> u64 {
        self.used_units.min(self.total_units) * 100 / self.total_units.max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do not trim the blocks just freed by the commit. They stay known as untrimmed.
    DropFreed,
    /// Make all untrimmed extents pending again.
    CatchUp,
    /// Issue all pending extents before the commit is declared done, as Linux up to 5.14 does with `discard`. Valid
    /// only in reply to [`PolicyEvent::Committed`].
    IssueInCommit {
        /// Submit the extents together and wait at the end. Otherwise send one after the other.
        together: bool,
    },
    /// Issue one TRIM command in the background.
    Issue(Shape),
    /// Trim the free extents of at least `units_min` in `range`, as FITRIM does.
    TrimFree {
        range: UnitRange,
        /// Skip shorter extents.
        units_min: u64,
    },
    /// Tell the device about all pending extents at no cost. No real host can; this is the bound of all policies.
    Reveal,
    /// Call again at this time. Replaces any earlier request.
    WakeAt(SimTime),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Maximum number of extents. Linux sends one on SATA, SCSI and UFS; more need a host that can fill commands.
    pub ranges_max: u32,
    pub units_min: u64,
    /// Maximum total number of units. An extent is cut there.
    pub units_max: u64,
    /// The last extent runs on through the free space after it, to the end of its block group.
    pub runs_on: bool,
}

impl Shape {
    /// The next extent alone, whatever its size.
    pub const NEXT: Self = Self { ranges_max: 1, units_min: 1, units_max: u64::MAX, runs_on: false };
}

/// A policy's requirements of its host. The modelled file system meets all of them, so nothing is refused there;
/// reports only say which policies need an oracle ([`PolicySpec::is_usable`](super::PolicySpec::is_usable)) or filled
/// commands ([`PolicySpec::fills_commands`](super::PolicySpec::fills_commands)). Real hosts may provide less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The host must report each commit and what it freed.
    pub commits: bool,
    pub trim: bool,
    /// The host must be able to put several ranges into one command on any link.
    pub fills_commands: bool,
    /// The host must be able to tell the device at no cost, which only the model allows.
    pub oracle: bool,
}

impl Default for Needs {
    /// Commands in reply to commits.
    fn default() -> Self {
        Self { commits: true, trim: true, fills_commands: false, oracle: false }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// A sentence: what it does now and why.
    pub state: String,
    /// A sentence: what would change that.
    pub change: String,
}

impl Explanation {
    pub fn new(state: impl Into<String>, change: impl Into<String>) -> Self {
        Self { state: state.into(), change: change.into() }
    }

    /// Explains that the queue is empty.
    pub(super) fn nothing_waits() -> Self {
        Self::new("No freed space is waiting to be trimmed.", "Deleting files.")
    }
}

/// The deciding part of a policy: a pure state machine.
///
/// ```
/// use trimwise::policy::{Decision, PolicyEvent, PolicySpec, View};
///
/// let mut governor = "set:40:90".parse::<PolicySpec>()?.governor();
/// let view = View { used_units: 10, total_units: 100, ..View::default() };
/// let mut decisions = Vec::new();
/// governor.on_event(&PolicyEvent::Committed { freed_units: 5 }, &view, &mut decisions);
/// assert_eq!(decisions, [Decision::DropFreed], "TRIM is off below 40 %");
/// # Ok::<(), trimwise::policy::PolicyError>(())
/// ```
pub trait Governor {
    fn needs(&self) -> Needs {
        Needs::default()
    }
    /// The availability rule on a host with this kernel.
    fn availability(&self, _kernel: DiscardGeneration) -> Availability {
        Availability::AfterCommit
    }
    /// Pending extents of different commits merge where they touch.
    fn merges(&self) -> bool {
        true
    }
    /// Commands take the extent that has waited longest, not the next by address. Pending extents then merge.
    fn takes_oldest_first(&self) -> bool {
        false
    }
    /// Commands take extents in the order in which transactions freed them, if pending extents do not merge.
    fn takes_in_order(&self) -> bool {
        false
    }
    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>);
    fn explain(&self, _view: &View) -> Explanation {
        Explanation::new("The device is told of freed space immediately.", "Only another policy.")
    }
}
