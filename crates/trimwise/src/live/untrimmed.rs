//! How much free space is untrimmed, or that nobody knows.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Untrimmed free space. It is unknown until something has read how much there is, and then no number stands for it:
/// its text is `unknown`, its JSON `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Untrimmed {
    Known(Bytes),
    Unknown,
}

impl Untrimmed {
    /// Returns the number, if there is one.
    pub fn known(self) -> Option<Bytes> {
        match self {
            Self::Known(bytes) => Some(bytes),
            Self::Unknown => None,
        }
    }
}

impl fmt::Display for Untrimmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(bytes) => bytes.fmt(f),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// A sum is unknown if a part of it is.
impl Add for Untrimmed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(one), Self::Known(other)) => Self::Known(Bytes(one.0.saturating_add(other.0))),
            _ => Self::Unknown,
        }
    }
}

impl Sum for Untrimmed {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::Known(Bytes(0)), Self::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_no_number_in_text_json_and_sums() {
        let known = Untrimmed::Known(Bytes::mib(3));
        for (untrimmed, text, json) in [
            (known, "3 MiB", "3145728"),
            (Untrimmed::Known(Bytes(0)), "0 B", "0"),
            (Untrimmed::Unknown, "unknown", "null"),
            (known + Untrimmed::Unknown, "unknown", "null"),
            ([known, known].into_iter().sum(), "6 MiB", "6291456"),
            ([known, Untrimmed::Unknown, known].into_iter().sum(), "unknown", "null"),
        ] {
            let found = (untrimmed.to_string(), serde_json::to_string(&untrimmed).unwrap());
            assert_eq!((found.0.as_str(), found.1.as_str()), (text, json));
            assert_eq!(serde_json::from_str::<Untrimmed>(json).unwrap(), untrimmed);
        }
    }
}
