//! What a governor sees and what it may answer.

use super::{Availability, DiscardGeneration};
use crate::units::{SimDuration, SimTime, UnitRange};

/// What a governor is told, each with a [`View`] of that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyEvent {
    /// The host is there; comes first, once.
    Hosted(HostTraits),
    /// A transaction became durable, and with it the freeing of these blocks (perhaps none): they are in the
    /// pending set.
    Committed {
        /// Units that this transaction freed.
        freed_units: u64,
    },
    /// A TRIM command that [`Decision::Issue`] asked for was acknowledged.
    Issued(Acknowledged),
    /// A [`Decision::Issue`] found nothing that fits between where the last one ended and the end of the
    /// device; the next begins at the start again.
    PassOver,
    /// A [`Decision::TrimFree`] has ended.
    Trimmed {
        /// Units that were submitted.
        units: u64,
    },
    /// The instant of the last [`Decision::WakeAt`] has come.
    Woken,
}

/// A TRIM command as it was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Ranges in it; an extent longer than a range can say takes several.
    pub ranges: u32,
    /// Units in them.
    pub units: u64,
    /// How long the device had it; what it waited for before is not in this.
    pub took: SimDuration,
}

/// What a governor may know of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTraits {
    /// How the host's own discard option works.
    pub kernel: DiscardGeneration,
    /// TRIM commands that the device takes at the same time; 1 if TRIM is not queued.
    pub trim_depth: u32,
    /// Ranges that one command can hold.
    pub ranges_max: u32,
    /// Units that one range can say.
    pub range_units_max: u64,
    /// Units of the device or file system.
    pub total_units: u64,
    /// Units of a block group: the natural slice of a batch TRIM.
    pub group_units: u64,
}

/// The host at the moment of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The present.
    pub now: SimTime,
    /// Units of the file system in use.
    pub used_units: u64,
    /// Units that the file system has in all.
    pub total_units: u64,
    /// Units in the pending set.
    pub pending_units: u64,
    /// Extents in the pending set.
    pub pending_extents: u64,
    /// Units that were freed and dropped, and that nobody has allocated since: the device holds them for
    /// valid.
    pub untrimmed_units: u64,
    /// TRIM commands on their way.
    pub in_flight: u32,
    /// Requests other than TRIMs that are in the device or wait for it.
    pub requests: u32,
    /// How long there has been none; zero while there are some.
    pub quiet: SimDuration,
}

impl View {
    /// Units that the device must hold for valid, as far as the host can know, in percent of all: what
    /// files use, and what was freed and is not trimmed.
    pub fn device_percent(&self) -> u64 {
        let held = self.used_units + self.pending_units + self.untrimmed_units;
        held.min(self.total_units) * 100 / self.total_units.max(1)
    }

    /// Units in use, in percent of all.
    pub fn used_percent(&self) -> u64 {
        self.used_units.min(self.total_units) * 100 / self.total_units.max(1)
    }
}

/// What a governor answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// What the commit just freed is not trimmed. It stays known as untrimmed.
    DropFreed,
    /// What is known as untrimmed becomes pending again.
    CatchUp,
    /// Issue all that is pending before the commit is declared done, as Linux up to 5.14 does with
    /// `discard`; answers only [`PolicyEvent::Committed`]. `together`: submitted together and waited for at
    /// the end, else one after the other.
    IssueInCommit {
        /// Submitted together.
        together: bool,
    },
    /// Issue one TRIM command in the background.
    Issue(Shape),
    /// Trim the free extents of at least `units_min` in `range`, as FITRIM does.
    TrimFree {
        /// Where.
        range: UnitRange,
        /// Shorter extents are left.
        units_min: u64,
    },
    /// Let the device know what is pending, at no cost. No real host can; it is the bound of all policies.
    Reveal,
    /// Call again at this instant; replaces an instant asked for before.
    WakeAt(SimTime),
}

/// What goes into one TRIM command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Extents in it. Linux sends one on SATA, SCSI and UFS; more need a host that can.
    pub ranges_max: u32,
    /// Shorter pending extents are passed over.
    pub units_min: u64,
    /// Units in all, at most; an extent is cut there.
    pub units_max: u64,
    /// Whether the last extent runs on through the free space behind it, to the end of its block group.
    pub runs_on: bool,
}

impl Shape {
    /// The next extent, whatever its size, alone.
    pub const NEXT: Self = Self { ranges_max: 1, units_min: 1, units_max: u64::MAX, runs_on: false };
}

/// What a policy needs of a host. The modelled file system has all of it, so nothing is refused there;
/// reports only say which policies need an oracle ([`PolicySpec::is_usable`](super::PolicySpec::is_usable)) or
/// filled commands ([`PolicySpec::fills_commands`](super::PolicySpec::fills_commands)). Real hosts may have less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// It must be told of each commit and of what it freed.
    pub commits: bool,
    /// It must be able to put several ranges into one command on any link.
    pub fills_commands: bool,
    /// It must be able to tell the device for free: only a modelled device can.
    pub oracle: bool,
}

/// What a governor is at, in words for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Why it does what it does now: a sentence.
    pub state: String,
    /// What would change that: a sentence.
    pub change: String,
}

/// The deciding part of a policy: a pure state machine.
pub trait Governor {
    /// What it needs of a host.
    fn needs(&self) -> Needs;
    /// The availability rule that goes with it, on a host with this kernel.
    fn availability(&self, kernel: DiscardGeneration) -> Availability;
    /// Whether pending extents of different commits merge where they touch.
    fn merges(&self) -> bool {
        true
    }
    /// Sees `event` and appends what it decides.
    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>);
    /// What it is at.
    fn explain(&self, _view: &View) -> Explanation {
        Explanation {
            state: "What is freed is told to the device at once.".to_owned(),
            change: "Nothing but another policy.".to_owned(),
        }
    }
}
