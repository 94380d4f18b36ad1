use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Expected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A percentage with at most two decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u64);

impl Percent {
    pub const ZERO: Self = Self::whole(0);
    pub const ALL: Self = Self::whole(100);

    pub const fn whole(percent: u32) -> Self {
        Self(percent as u64 * 100)
    }

    pub const fn hundredths(hundredths: u32) -> Self {
        Self(hundredths as u64)
    }

    /// Returns the nearest percentage; `None` if the value has more than two decimals or is no percentage.
    pub(crate) fn of_decimal(percent: f64) -> Option<Self> {
        let hundredths = (percent * 100.0).round();
        let is_exact = (percent * 100.0 - hundredths).abs() < 1e-6;
        (is_exact && (0.0..=f64::from(u32::MAX)).contains(&hundredths)).then_some(Self(hundredths as u64))
    }

    pub fn value(self) -> f64 {
        self.0 as f64 / 100.0
    }

    /// Rounds down.
    pub fn of(self, units: u64) -> u64 {
        (u128::from(units) * u128::from(self.0) / 10_000) as u64
    }

    /// Returns this percentage more than `units`, rounded up.
    pub fn on_top_of(self, units: u64) -> u128 {
        (u128::from(units) * (10_000 + u128::from(self.0))).div_ceil(10_000)
    }

    /// Returns what is missing to 100 %.
    pub const fn rest(self) -> Self {
        Self(Self::ALL.0.saturating_sub(self.0))
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl From<u32> for Percent {
    fn from(whole: u32) -> Self {
        Self::whole(whole)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}"),
        }
    }
}

impl FromStr for Percent {
    type Err = ();

    /// Parses up to two decimals, without sign or percent sign.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
        };
        if !digits(whole, 3) || !digits(part, 2) {
            return Err(());
        }
        let part: u32 = format!("{part:0<2}").parse().map_err(drop)?;
        Ok(Self::hundredths(whole.parse::<u32>().map_err(drop)? * 100 + part))
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.value())
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Percent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("percent, a number of at least 0 with at most two decimals")
            }

            fn visit_u64<E: Error>(self, percent: u64) -> Result<Percent, E> {
                u32::try_from(percent).map(Percent::whole).map_err(|_| E::custom(&self as &dyn Expected))
            }

            fn visit_f64<E: Error>(self, percent: f64) -> Result<Percent, E> {
                Percent::of_decimal(percent).ok_or_else(|| E::custom(&self as &dyn Expected))
            }
        }
        from.deserialize_f64(Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_and_two_decimals_are_read_and_nothing_else() {
        let read = |json: &str| serde_json::from_str::<Percent>(json).ok().map(|p| p.to_string());
        for (json, shown) in [
            ("7", Some("7")),
            ("7.37", Some("7.37")),
            ("12.4", Some("12.4")),
            ("0.29", Some("0.29")),
            ("4294967295", Some("4294967295")),
            ("4294967296", None),
            ("7.375", None),
            ("-1", None),
            ("-0.01", None),
            ("1e300", None),
            ("\"7\"", None),
        ] {
            assert_eq!(read(json).as_deref(), shown, "{json}");
        }
        assert!([f64::NAN, f64::INFINITY].iter().all(|&x| Percent::of_decimal(x).is_none()));
    }

    #[test]
    fn a_share_rounds_down_and_what_is_added_rounds_up() {
        let percent = Percent::hundredths(737);
        assert_eq!((percent.of(1_000), percent.on_top_of(1_000)), (73, 1_074));
        assert_eq!(Percent::whole(7).on_top_of(100), 107);
        assert_eq!(
            Percent::whole(u32::MAX).on_top_of(u64::MAX),
            (u128::from(u64::MAX) * (100 + u128::from(u32::MAX))).div_ceil(100)
        );
        assert_eq!(
            (percent.rest().to_string(), Percent::whole(130).rest()),
            ("92.63".to_owned(), Percent::ZERO)
        );
    }
}
