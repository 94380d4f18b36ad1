//! Input and output of a live host.

use super::{Cut, Slice};
use crate::policy::Served;
use crate::units::{Bytes, SimDuration, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub total: Bytes,
    pub cut: Cut,
    pub maps: bool,
    pub toggles: bool,
    /// Initial limit on the spans kept of each kind, and on the free extents of one map
    /// ([`LiveHost::keep_at_most`](super::LiveHost::keep_at_most)).
    pub spans_max: usize,
    /// Its own online discard delays, merges and paces discards, as btrfs's `discard=async` does.
    pub online_is_good: bool,
}

/// User settings. The daemon's configuration explains the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Target for the longest duration of a slice.
    pub slice_target: SimDuration,
    /// Limit on untrimmed free space under `judicious`, in thousandths of the file system.
    pub untrimmed_max_permille: u64,
    /// No slice starts if some task waited for I/O for this share of the last 10 s, in thousandths.
    pub pressure_max_permille: u64,
    /// Shortest time between two maps.
    pub look_every: SimDuration,
    /// Mount options may be changed. Off by default, since someone chose them.
    pub may_toggle: bool,
    /// What holds for space that is lent; `None` if trims are for the drive alone.
    pub lent: Option<Lent>,
}

/// Bounds on space that is held beyond what is used, and belongs to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Limit on untrimmed free space, in thousandths of the file system.
    pub held_max_permille: u64,
    /// Time after which what was freed has been trimmed.
    pub held_for_max: SimDuration,
}

impl Default for Lent {
    fn default() -> Self {
        Self { held_max_permille: 20, held_for_max: SimDuration::from_secs(86_400) }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slice_target: SimDuration::from_millis(100),
            untrimmed_max_permille: 100,
            pressure_max_permille: 200,
            look_every: SimDuration::from_secs(60),
            may_toggle: false,
            lent: None,
        }
    }
}

/// A sample of the host. Counters may start at any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub used: Bytes,
    pub total: Bytes,
    /// Reads and writes that the device completed.
    pub served: Served,
    pub in_flight: u64,
    /// Share of the last 10 s in which some task waited for I/O, in thousandths.
    pub pressure_permille: u64,
    pub online: bool,
}

impl Sample {
    pub(super) fn free(&self) -> Bytes {
        Bytes(self.total.0.saturating_sub(self.used.0))
    }
}

/// An order for the daemon. At most one is in progress at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the map of free space from an address on; where there are no maps, list the address ranges that FITRIM
    /// accepts. Report with [`LiveHost::looked`](super::LiveHost::looked).
    Look { from: u64 },
    /// Trim this slice. Report with [`LiveHost::trimmed`](super::LiveHost::trimmed).
    Trim(Slice),
    /// Turn the kernel's online discard on or off. Report with [`LiveHost::toggled`](super::LiveHost::toggled).
    Toggle { on: bool },
}

/// The result of [`Order::Look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'a> {
    /// Where the map begins: at the requested address, or a little after it if an extent crosses it.
    pub from: u64,
    /// Where it ends: the end of the file system if the map is complete.
    pub upto: u64,
    /// Free extents in the window, ascending and disjoint, without those too short to be sent; or the ranges to walk
    /// over.
    pub free: &'a [Span],
}

/// The device's response to a slice that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// Discards that the device counted during the slice, from any source; `None` if it does not count.
    pub counted: Option<Bytes>,
    /// Bytes that the device verifiably took.
    pub taken: Bytes,
    /// True if nothing of the slice can have failed unnoticed: what the device did not take was not free any more, or had
    /// been taken before.
    pub is_proven: bool,
}

impl Trimmed {
    /// A device that took all that it counted.
    pub fn all(counted: Bytes) -> Self {
        Self { counted: Some(counted), taken: counted, is_proven: true }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It may work later.
    Again(String),
    /// Discards failed, or do not end. It is no longer known of which space the device was told.
    Device(String),
    /// It was stopped from outside, by a signal.
    Interrupted,
    Never(String),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Again(message) | Self::Device(message) | Self::Never(message) => f.write_str(message),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}
