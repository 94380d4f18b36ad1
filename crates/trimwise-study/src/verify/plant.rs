//! Faults of firmware, planted in a modelled drive to see their effect.

use serde::{Deserialize, Serialize};
use trimwise::ssd::Faults;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plant {
    /// TRIM is acknowledged and ignored.
    IgnoresTrim,
    /// TRIM frees the first half of each MiB.
    Partial,
    /// TRIM frees the range 96 KiB further on.
    WrongRange,
    /// A queued TRIM is carried out 100 writes too late.
    Late,
    /// Zeros are promised after TRIM, but reads return old data.
    BrokenPromise,
    /// Flushes are acknowledged and ignored; only a power cut shows it.
    IgnoresFlush,
}

impl Plant {
    pub const ALL: [Self; 6] = [
        Self::IgnoresTrim,
        Self::Partial,
        Self::WrongRange,
        Self::Late,
        Self::BrokenPromise,
        Self::IgnoresFlush,
    ];

    pub fn on(self, faults: Faults) -> Faults {
        match self {
            Self::IgnoresTrim => Faults { ignores_trim: true, ..faults },
            Self::Partial => Faults { trims_percent: 50, ..faults },
            Self::WrongRange => Faults { trim_shift_units: 24, ..faults },
            Self::Late => Faults { queued_trim_late_writes: 100, ..faults },
            Self::BrokenPromise => Faults { breaks_zeros_promise: true, ..faults },
            Self::IgnoresFlush => Faults { ignores_flush: true, ..faults },
        }
    }

    /// The name in requests and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IgnoresTrim => "ignores-trim",
            Self::Partial => "partial",
            Self::WrongRange => "wrong-range",
            Self::Late => "late",
            Self::BrokenPromise => "broken-promise",
            Self::IgnoresFlush => "ignores-flush",
        }
    }

    /// The drive's behaviour with this fault.
    pub const fn about(self) -> &'static str {
        match self {
            Self::IgnoresTrim => "TRIM is acknowledged and ignored",
            Self::Partial => "TRIM frees the first half of each MiB",
            Self::WrongRange => "TRIM frees the range 96 KiB further on",
            Self::Late => "A queued TRIM is carried out 100 writes too late",
            Self::BrokenPromise => "Zeros are promised after TRIM, but reads return old data",
            Self::IgnoresFlush => "Flushes are acknowledged and ignored; only a power cut shows it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_one_name_and_are_none_of_a_sound_drive() {
        for plant in Plant::ALL {
            assert_eq!(serde_json::to_value(plant).unwrap(), plant.name());
            assert!(!plant.on(Faults::default()).is_sound());
        }
    }
}
