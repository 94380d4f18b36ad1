//! Faults of a firmware, as data.
//!
//! A sound device has [`Faults::default`]. The device itself has no notion of faults: [`super::Drive`] wraps it.

use serde::Deserialize;

use super::config::{ConfigError, ReadAfterTrim, TrimConfig, count, require};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Faults {
    pub ignores_trim: bool,
    /// Percentage of each aligned group of [`Faults::GROUP_UNITS`] units that TRIM reaches, from its first unit on.
    /// 100: all of it.
    pub trims_percent: u32,
    /// TRIM frees a range this many units further on. Units beyond the device are not freed.
    pub trim_shift_units: u32,
    /// Number of later write commands after which a TRIM is carried out; it then also frees data written there in the
    /// meantime. 0: in its turn. For TRIM that is queued among other commands.
    pub queued_trim_late_writes: u32,
    /// Promise zeros after TRIM ([`ReadAfterTrim::Zeros`]) but return the old data.
    pub breaks_zeros_promise: bool,
    /// Acknowledge a flush at once but leave the data in the cache, where a power cut can lose them.
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
    /// Size of the aligned groups of `trims_percent`: 1 MiB.
    pub const GROUP_UNITS: u64 = 256;

    pub fn is_sound(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every number, and that a device with this kind of TRIM can have the fault.
    pub fn validate(&self, trim: &TrimConfig) -> Result<(), ConfigError> {
        count("faults.trims_percent", self.trims_percent, 0, 100)?;
        count("faults.queued_trim_late_writes", self.queued_trim_late_writes, 0, 1 << 20)?;
        let none = "where the device does not support TRIM";
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
