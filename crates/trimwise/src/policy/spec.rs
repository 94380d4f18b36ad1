//! Policies as they are written: `off`, `commit`, `ideal`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{Commit, Governor, Ideal, Off};

/// A policy by its name; builds a fresh governor for each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicySpec {
    /// Never TRIM.
    Off,
    /// TRIM at every commit, as Linux's `discard` option does.
    Commit,
    /// The device knows at once and for free.
    Ideal,
}

impl PolicySpec {
    /// Never TRIM.
    pub const OFF: Self = Self::Off;
    /// TRIM at every commit.
    pub const COMMIT: Self = Self::Commit;
    /// The bound.
    pub const IDEAL: Self = Self::Ideal;

    /// Every policy, in the order in which tables show them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Commit, Self::Ideal];

    /// As written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Commit => "commit",
            Self::Ideal => "ideal",
        }
    }

    /// Whether a real host could use it; `ideal` is only a bound and never recommended.
    pub fn is_usable(self) -> bool {
        !self.governor().needs().oracle
    }

    /// A governor in its initial state.
    pub fn governor(self) -> Box<dyn Governor> {
        match self {
            Self::Off => Box::new(Off),
            Self::Commit => Box::new(Commit),
            Self::Ideal => Box::new(Ideal),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A policy that does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("policy '{given}' is not accepted; expected one of off, commit, ideal")]
pub struct PolicyError {
    /// What was written.
    pub given: String,
}

impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| PolicyError { given: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_parses_as_it_is_written() {
        for policy in PolicySpec::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "lasy".parse::<PolicySpec>().unwrap_err();
        assert_eq!(error.to_string(), "policy 'lasy' is not accepted; expected one of off, commit, ideal");
    }

    #[test]
    fn the_bound_is_not_for_real_hosts() {
        assert!(PolicySpec::Commit.is_usable());
        assert!(!PolicySpec::Ideal.is_usable());
    }
}
