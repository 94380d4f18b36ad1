//! Checks of a request's values. Failures name them as the command line does.

use std::fmt::Display;
use std::ops::RangeInclusive;

use trimwise::failure::Failure;

/// Seconds that a guest may take.
pub const GUEST_S: RangeInclusive<u64> = 1..=31_536_000;
/// Repetitions.
pub const REPS: RangeInclusive<u32> = 1..=1000;
/// Runs at a time.
pub const JOBS: RangeInclusive<u16> = 1..=1024;

/// Rejects a value outside of its range; `None` has its default.
pub fn within<T: PartialOrd + Display>(
    option: &str,
    value: impl Into<Option<T>>,
    range: &RangeInclusive<T>,
) -> Result<(), Failure> {
    match value.into() {
        Some(value) if !range.contains(&value) => Err(Failure::usage(format!(
            "{option} {value}: expected a value from {} to {}",
            range.start(),
            range.end()
        ))),
        _ => Ok(()),
    }
}

/// Rejects more than one of several options that exclude each other.
pub fn at_most_one(options: &[(&str, bool)]) -> Result<(), Failure> {
    let mut given = options.iter().filter(|(_, given)| *given).map(|(option, _)| option);
    match (given.next(), given.next()) {
        (Some(one), Some(other)) => {
            Err(Failure::usage(format!("{one} and {other}: expected only one of them")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::caller::Silent;
    use crate::{record, trim};

    #[test]
    fn the_ends_of_a_range_are_in_it() {
        for (value, is_accepted) in [(0_u16, false), (1, true), (1024, true), (1025, false)] {
            assert_eq!(within("--jobs", value, &JOBS).is_ok(), is_accepted, "{value}");
        }
        assert_eq!(within("--jobs", None, &JOBS), Ok(()));
        let failure = within("--jobs", 0_u16, &JOBS).unwrap_err().to_string();
        assert_eq!(failure, "--jobs 0: expected a value from 1 to 1024");
        assert_eq!(at_most_one(&[("--cut", true), ("--run", false)]), Ok(()));
        assert!(at_most_one(&[("--cut", true), ("--cuts", false), ("--run", true)]).is_err());
    }

    /// The failure of a request that is read from JSON.
    fn refused<R: serde::de::DeserializeOwned, A>(
        request: serde_json::Value,
        run: impl FnOnce(&R) -> Result<A, Failure>,
    ) -> String {
        let request: R = serde_json::from_value(request).unwrap();
        run(&request).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn requests_that_are_read_have_defaults_and_are_refused_beyond_their_ranges() {
        let caller = &Silent::default();
        let trim = json!({"mount": "/", "groups": 1, "slice": 4096});
        assert!(refused(trim, |r| trim::run(r, caller)).contains("--groups and --slice"));
        let record = json!({"target": "/", "out": "/no/such/trace", "max_size": 1});
        assert!(refused(record, |r| record::run(r, caller)).starts_with("--max-size 1 B: expected"));
    }
}
