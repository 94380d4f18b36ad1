//! Faulty firmware, as data: what a device does wrong.
//!
//! A sound device is [`Faults::default`]. The device itself knows nothing of this: whoever wants a faulty one wraps it.

use serde::Deserialize;

use super::config::{ConfigError, ReadAfterTrim, TrimConfig, count, refuse};

/// What a firmware does wrong with TRIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// TRIM is acknowledged and nothing is done.
    pub ignores_trim: bool,
    /// TRIM reaches only the first units, this share of them, in each aligned group of [`Faults::GROUP_UNITS`] units,
    /// percent. 100: all of them.
    pub trims_percent: u32,
    /// TRIM frees a range that lies so many units further on; what would leave the device is not freed.
    pub trim_shift_units: u32,
    /// A TRIM is carried out only after so many later write commands, and then frees what was written there meanwhile.
    /// 0: in its turn. For TRIM that is queued among other commands.
    pub queued_trim_late_writes: u32,
    /// The device promises zeros after TRIM ([`ReadAfterTrim::Zeros`]) and returns what was there before.
    pub breaks_zeros_promise: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            ignores_trim: false,
            trims_percent: 100,
            trim_shift_units: 0,
            queued_trim_late_writes: 0,
            breaks_zeros_promise: false,
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
        if !trim.is_supported() {
            if self.ignores_trim {
                return Err(refuse("faults.ignores_trim", true, format!("false {none}")));
            }
            if self.trims_percent != 100 {
                return Err(refuse("faults.trims_percent", self.trims_percent, format!("100 {none}")));
            }
            if self.trim_shift_units != 0 {
                return Err(refuse("faults.trim_shift_units", self.trim_shift_units, format!("0 {none}")));
            }
        }
        if self.queued_trim_late_writes != 0 && !(trim.is_supported() && trim.is_queued()) {
            let expected = "0 where TRIM is not queued among other commands";
            return Err(refuse("faults.queued_trim_late_writes", self.queued_trim_late_writes, expected));
        }
        if self.breaks_zeros_promise && !(trim.is_supported() && trim.read_after == ReadAfterTrim::Zeros) {
            let expected = "false where trim.read_after promises no \"zeros\"";
            return Err(refuse("faults.breaks_zeros_promise", true, expected));
        }
        Ok(())
    }
}
