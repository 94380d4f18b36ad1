//! Faulty firmware, as data: what a device does wrong.
//!
//! A sound device is [`Faults::default`]. The device itself knows nothing of this: [`super::Drive`] wraps it.

use serde::Deserialize;

use super::config::{ConfigError, ReadAfterTrim, TrimConfig, count, require};

/// What a firmware does wrong with TRIM, or with flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// TRIM is acknowledged and nothing is done.
    pub ignores_trim: bool,
    /// TRIM reaches only the first units, this share of them, in each aligned group of [`Faults::GROUP_UNITS`] units,
    /// percent. 100: all of them.
    pub trims_percent: u32,
    /// TRIM frees a range that lies this many units further on; what would leave the device is not freed.
    pub trim_shift_units: u32,
    /// A TRIM is carried out only after this many later write commands, and then frees what was written there meanwhile.
    /// 0: in its turn. For TRIM that is queued among other commands.
    pub queued_trim_late_writes: u32,
    /// The device promises zeros after TRIM ([`ReadAfterTrim::Zeros`]) and returns what was there before.
    pub breaks_zeros_promise: bool,
    /// A flush is acknowledged at once, and what is in the cache stays there: a power cut may lose it.
    pub ignores_flush: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            ignores_trim: false,
            trims_percent: 100,
            trim_shift_units: 0,
            queued_trim_late_writes: 0,
            breaks_zeros_promise: false,
            ignores_flush: false,
        }
    }
}

impl Faults {
    /// Units in the aligned groups that `trims_percent` counts in: 1 MiB.
    pub const GROUP_UNITS: u64 = 256;

    /// Whether there is nothing wrong.
    pub fn is_sound(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every number, and that a device with this TRIM can have the fault.
    ///
    /// # Errors
    ///
    /// The first setting that cannot be, by its dotted name.
    pub fn validate(&self, trim: &TrimConfig) -> Result<(), ConfigError> {
        count("faults.trims_percent", self.trims_percent, 0, 100)?;
        count("faults.queued_trim_late_writes", self.queued_trim_late_writes, 0, 1 << 20)?;
        let none = "where the device takes no TRIM";
        let takes = trim.is_supported();
        require(takes || !self.ignores_trim, "faults.ignores_trim", true, format!("false {none}"))?;
        let (percent, shift) = (self.trims_percent, self.trim_shift_units);
        require(takes || percent == 100, "faults.trims_percent", percent, format!("100 {none}"))?;
        require(takes || shift == 0, "faults.trim_shift_units", shift, format!("0 {none}"))?;
        let late = self.queued_trim_late_writes;
        let expected = "0 where TRIM is not queued among other commands";
        require(late == 0 || takes && trim.is_queued(), "faults.queued_trim_late_writes", late, expected)?;
        let promises = takes && trim.read_after == ReadAfterTrim::Zeros;
        let expected = "false where trim.read_after promises no \"zeros\"";
        require(promises || !self.breaks_zeros_promise, "faults.breaks_zeros_promise", true, expected)
    }
}
