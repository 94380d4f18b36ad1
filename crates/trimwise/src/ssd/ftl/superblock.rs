//! What is known of a superblock.

use crate::units::SimTime;

/// What a superblock is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum State {
    Free,
    /// A frontier.
    Open,
    /// Full, and a candidate for collection.
    Closed,
    /// Full, in SLC mode, and waiting to be folded.
    Slc,
    /// Being collected or folded.
    Victim,
}

/// What is known of a superblock.
#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Block {
    /// Slots that hold live data. Those that were trimmed and not yet checked for other references count too.
    pub valid: u32,
    /// Of them, those that were trimmed and not yet checked.
    pub unchecked: u32,
    /// Slots taken since the last erase.
    pub written: u32,
    pub erases: u32,
    pub state: State,
    /// Whether it is written in SLC mode.
    pub slc: bool,
    /// Host units written to the device when it was closed: its age for cost-benefit.
    pub closed_at: u64,
    /// When the last host program of it ends.
    pub programmed_at: SimTime,
}

impl Block {
    /// As it leaves the factory.
    pub(crate) const NEW: Self = Self {
        valid: 0,
        unchecked: 0,
        written: 0,
        erases: 0,
        state: State::Free,
        slc: false,
        closed_at: 0,
        programmed_at: SimTime::ZERO,
    };
}
