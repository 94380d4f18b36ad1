use std::fmt::Display;
use std::ops::RangeInclusive;

use trimwise::failure::{Failure, Key, Mistake};

pub const GUEST_S: RangeInclusive<u64> = 1..=31_536_000;
pub const REPS: RangeInclusive<u32> = 1..=1000;
pub const JOBS: RangeInclusive<u16> = 1..=1024;

/// Rejects a value outside its range. `None` stands for the default and is accepted.
pub fn within<T: PartialOrd + Display>(
    key: impl Into<Key>,
    value: impl Into<Option<T>>,
    range: &RangeInclusive<T>,
) -> Result<(), Failure> {
    match value.into() {
        Some(value) if !range.contains(&value) => {
            let expected = format!("a value from {} to {}", range.start(), range.end());
            Err(Mistake::of(key, value).expected(expected).fail())
        }
        _ => Ok(()),
    }
}

/// Rejects more than one of several mutually exclusive fields.
pub fn at_most_one(fields: &[(&'static str, bool)]) -> Result<(), Failure> {
    let mut given = fields.iter().filter(|(_, given)| *given).map(|(key, _)| Mistake::on(*key));
    match (given.next(), given.next()) {
        (Some(one), Some(other)) => Err(one.and(other).expected("only one of them").fail()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trimwise::failure::Door;

    use super::*;
    use crate::caller::Silent;
    use crate::compare::CompareRequest;
    use crate::defaults::MEMORIES_MIB;
    use crate::{record, trim};

    #[test]
    fn the_ends_of_a_range_are_in_it() {
        for (value, is_accepted) in [(0_u16, false), (1, true), (1024, true), (1025, false)] {
            assert_eq!(within("jobs", value, &JOBS).is_ok(), is_accepted, "{value}");
        }
        assert_eq!(within("jobs", None, &JOBS), Ok(()));
        let failure = within("jobs", 0_u16, &JOBS).unwrap_err().to_string();
        assert_eq!(failure, "--jobs 0: expected a value from 1 to 1024");
        assert_eq!(at_most_one(&[("cut", true), ("run", false)]), Ok(()));
        assert!(at_most_one(&[("cut", true), ("cuts", false), ("run", true)]).is_err());
    }

    fn refused<R: serde::de::DeserializeOwned, A>(
        request: serde_json::Value,
        run: impl FnOnce(&R) -> Result<A, Failure>,
    ) -> String {
        let request: R = serde_json::from_value(request).unwrap();
        run(&request).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn all_that_is_wrong_with_a_request_is_told_at_once_in_the_words_of_each_door() {
        let request = json!({"workload": "lsm", "reps": 0, "utilization": 101, "memory": 1, "day": "office"});
        let request: CompareRequest = serde_json::from_value(request).unwrap();
        let failure = request.check().unwrap_err();
        let memory = format!("expected a value from {} to {}", MEMORIES_MIB.start(), MEMORIES_MIB.end());
        for (door, said) in [
            (Door::Command, ["--reps 0", "--utilization 101", "--memory 1", "--day office", "--days"]),
            (Door::Json, ["reps: 0", "utilization: 101", "memory: 1", "day: office", "days"]),
            (Door::Python, ["reps=0", "utilization_percent=101", "memory_mib=1", "day=office", "days"]),
        ] {
            let [reps, utilization, mib, day, days] = said;
            let lines = [
                format!("{reps}: expected a value from 1 to 1000"),
                format!("{utilization}: expected a value from 0 to 100"),
                format!("{mib}: {memory}"),
                format!("{day}: expected {days} with it"),
            ];
            assert_eq!(failure.at(door), lines.join("\n"), "{door:?}");
        }
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
