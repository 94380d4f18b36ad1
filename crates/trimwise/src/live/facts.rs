//! What a live host is told, and what it answers.

use super::{Cut, Slice};
use crate::units::{Bytes, SimDuration, Span};

/// What a file system and its device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its size.
    pub total: Bytes,
    /// Where slices are cut.
    pub cut: Cut,
    /// Whether it lists its free space.
    pub maps: bool,
    /// Whether its online discard can be turned on and off by remounting.
    pub toggles: bool,
    /// No more spans of each kind are kept at first, and no more come with one map
    /// ([`LiveHost::keep_at_most`](super::LiveHost::keep_at_most)).
    pub spans_max: usize,
    /// Whether its own online discard waits, merges and paces itself, as btrfs's `discard=async`.
    pub online_is_good: bool,
}

/// What the user may set; the daemon's configuration has the defaults and their reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What a slice is expected to take at most.
    pub slice_target: SimDuration,
    /// `judicious` leaves no more free space untrimmed, in thousandths of the file system.
    pub untrimmed_max_permille: u64,
    /// No slice while some task waited for I/O in this share of the last 10 s, in thousandths.
    pub pressure_max_permille: u64,
    /// Maps are no closer together.
    pub look_every: SimDuration,
    /// Whether mount options may be changed: not unless asked for, since somebody wrote them.
    pub may_toggle: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slice_target: SimDuration::from_millis(100),
            untrimmed_max_permille: 100,
            pressure_max_permille: 200,
            look_every: SimDuration::from_secs(60),
            may_toggle: false,
        }
    }
}

/// What is seen each second. Counts go up from any beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bytes in use.
    pub used: Bytes,
    /// Bytes of the file system.
    pub total: Bytes,
    /// Reads and writes that the device completed.
    pub requests_done: u64,
    /// The time of all of them together.
    pub requests_time: SimDuration,
    /// Requests in the device now, discards among them.
    pub in_flight: u64,
    /// Share of the last 10 s in which some task waited for I/O, in thousandths.
    pub pressure_permille: u64,
    /// Whether the mount has online discard.
    pub online: bool,
}

/// What the daemon is to do. At most one is under way at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the map of free space, from an address on; where there are no maps, list the ranges of addresses that FITRIM
    /// can be asked for. Answer with [`LiveHost::looked`](super::LiveHost::looked).
    Look {
        /// In bytes.
        from: u64,
    },
    /// Trim this; answer with [`LiveHost::trimmed`](super::LiveHost::trimmed).
    Trim(Slice),
    /// Turn the kernel's online discard on or off; answer with [`LiveHost::toggled`](super::LiveHost::toggled).
    Toggle {
        /// On.
        on: bool,
    },
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'a> {
    /// Where the map begins: where it was asked for, or a little behind if an extent lies across that place.
    pub from: u64,
    /// Where it ends: the end of the file system if all free space is in it.
    pub upto: u64,
    /// Free extents in it, ascending and disjoint, those too short to be sent left out; or the ranges to walk over.
    pub free: &'a [Span],
}

/// How a slice or a map failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It may work another time.
    Again(String),
    /// Discards failed, or do not end: what the device was told is not known any more.
    Device(String),
    /// It was stopped from outside, by a signal.
    Interrupted,
    /// It never will.
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
