use crate::units::SimTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum State {
    Free,
    Open,
    Closed,
    /// Full, in SLC mode, and waiting to be folded.
    Slc,
    Victim,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Block {
    /// Slots that hold live data. Trimmed slots that may have other references count too.
    pub valid: u32,
    /// Trimmed slots that may have other references.
    pub unchecked: u32,
    pub written: u32,
    pub erases: u32,
    pub state: State,
    pub slc: bool,
    /// Host units written to the device when the superblock was closed; gives its age for cost-benefit.
    pub closed_at: u64,
    pub programmed_at: SimTime,
}

impl Block {
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
