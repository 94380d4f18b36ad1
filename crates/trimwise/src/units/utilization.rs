//! How full a file system or a drive is.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The share of a capacity that is in use, in percent: at most 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Utilization(u8);

impl Utilization {
    pub const EMPTY: Self = Self(0);
    pub const FULL: Self = Self(100);

    /// Returns a utilization that is written down in code.
    ///
    /// # Panics
    ///
    /// Above 100 percent.
    pub const fn of(percent: u8) -> Self {
        assert!(percent <= 100, "a utilization is at most 100 percent");
        Self(percent)
    }

    /// Returns utilizations that are written down in code, as [`Self::of`].
    pub const fn all<const N: usize>(percent: [u8; N]) -> [Self; N] {
        let (mut all, mut at) = ([Self::EMPTY; N], 0);
        while at < N {
            all[at] = Self::of(percent[at]);
            at += 1;
        }
        all
    }

    pub const fn percent(self) -> u64 {
        self.0 as u64
    }

    /// Returns the utilization this many points above or below; `None` if there is none.
    pub fn moved(self, points: i8) -> Option<Self> {
        self.0.checked_add_signed(points)?.try_into().ok()
    }
}

impl Default for Utilization {
    /// A disk in use, not a new one.
    fn default() -> Self {
        Self(80)
    }
}

/// A number that is no utilization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtilizationError;

impl fmt::Display for UtilizationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a value from 0 to 100")
    }
}

impl std::error::Error for UtilizationError {}

impl From<ParseIntError> for UtilizationError {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

impl TryFrom<u8> for Utilization {
    type Error = UtilizationError;

    fn try_from(percent: u8) -> Result<Self, UtilizationError> {
        if percent <= 100 { Ok(Self(percent)) } else { Err(UtilizationError) }
    }
}

impl From<Utilization> for u8 {
    fn from(utilization: Utilization) -> Self {
        utilization.0
    }
}

impl FromStr for Utilization {
    type Err = UtilizationError;

    fn from_str(text: &str) -> Result<Self, UtilizationError> {
        text.parse::<u8>()?.try_into()
    }
}

impl fmt::Display for Utilization {
    /// Formats the number alone; text around it says `%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_0_to_100_percent_is_a_utilization_however_it_is_read() {
        for (text, expected) in [
            ("0", Ok(Utilization::EMPTY)),
            ("100", Ok(Utilization::FULL)),
            ("101", Err(UtilizationError)),
            ("-1", Err(UtilizationError)),
            ("300", Err(UtilizationError)),
            ("", Err(UtilizationError)),
        ] {
            assert_eq!(text.parse::<Utilization>(), expected, "{text}");
            assert_eq!(serde_json::from_str::<Utilization>(text).ok(), expected.ok(), "{text} in JSON");
        }
        assert_eq!(serde_json::to_string(&Utilization::default()).unwrap(), "80");
    }

    #[test]
    fn a_utilization_does_not_move_beyond_its_ends() {
        let moved = |from: u8, points: i8| Utilization::of(from).moved(points).map(Utilization::percent);
        assert_eq!(
            [moved(80, 10), moved(80, -10), moved(95, 10), moved(5, -10)],
            [Some(90), Some(70), None, None]
        );
    }
}
