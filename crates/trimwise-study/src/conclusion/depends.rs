//! The words on what a conclusion depends on: the ranges of what a drive's profile assumes.

use trimwise::compare::sensitivity::{Act, Sensitivity, Side, TrimTimes, Turn};
use trimwise::numbers;
use trimwise::policy::PolicyId;
use trimwise::profile::ranges::{Basis, Factor};
use trimwise::units::Bytes;

use super::Decision;
use crate::command_text::quoted;
use crate::compare::here::Here;

/// Says in one line which policy is right in which part of the ranges. `name` names a policy, `base` the current one.
pub(super) fn turns(sensitivity: &Sensitivity, base: &str, name: &dyn Fn(&PolicyId) -> String) -> String {
    let act = |act: &Act| match (act.decision, &act.policy) {
        (Decision::Change | Decision::Untrimmed, Some(policy)) => format!("{} is better", name(policy)),
        (Decision::DoesNotMatter, _) => "it does not matter".to_owned(),
        (Decision::Keep, _) => format!("others are worse than {base}"),
        _ => "the result is unclear".to_owned(),
    };
    let likely = act(&sensitivity.likely);
    let turn = |turn: &Turn| {
        let beyond = act(&turn.beyond);
        match (turn.trim_ns, turn.side) {
            (Some(ns), side) => {
                let trim = sensitivity.trim.map_or(0, |trim| trim.on(side));
                let to = if side == Side::ForTrim { "down to" } else { "up to" };
                let waiting = if turn.others_wait { ", with others waiting," } else { "" };
                format!("{to} about {}; at {}{waiting} {beyond}", time(ns), time(trim))
            }
            (None, side) => {
                let of: Vec<&str> = turn.factors.iter().map(|factor| factor.words()).collect();
                let favours = if side == Side::ForTrim { "most" } else { "least" };
                format!("where {} favours trimming {favours}, {beyond}", of.join(" and "))
            }
        }
    };
    let found: Vec<String> = sensitivity.on.iter().map(turn).collect();
    let of_trim = sensitivity.on.iter().all(|turn| turn.trim_ns.is_some());
    match sensitivity.trim.filter(|_| of_trim) {
        Some(trim) => format!(
            "If a TRIM of {} takes {}, {likely}, {}.",
            Bytes(trim.bytes),
            time(trim.likely_ns),
            found.join(", and "),
        ),
        None => format!("At the likely values {likely}; {}.", found.join(", and ")),
    }
}

/// Where the advice of a conclusion was tried too: a sentence that begins with a space. `None` if nothing else was.
pub(super) fn within(sensitivity: &Sensitivity) -> Option<String> {
    let parts = tried(sensitivity);
    let (last, rest) = parts.split_last()?;
    let list = if rest.is_empty() { last.clone() } else { format!("{} and {last}", rest.join(", ")) };
    Some(format!(" The advice is the same with {list}."))
}

/// What was tried, as items of a list.
pub(super) fn tried(sensitivity: &Sensitivity) -> Vec<String> {
    let part = |factor: &Factor| match factor {
        Factor::TrimCost => sensitivity.trim.map(|trim| format!("TRIMs of {}", range(trim))),
        Factor::Slc => Some("small and large SLC caches".to_owned()),
        Factor::Collector => Some("good and poor collectors".to_owned()),
    };
    sensitivity.factors.iter().filter_map(part).collect()
}

/// The step that settles it.
pub(super) fn measure(sensitivity: Option<&Sensitivity>, here: Option<&Here>) -> String {
    let turns = sensitivity.into_iter().flat_map(|sensitivity| &sensitivity.on);
    let is_measurable = turns.clone().all(|turn| turn.factors == [Factor::TrimCost]);
    if !is_measurable {
        return "`fit` measures what a TRIM takes, not the rest: try it there (--target dir:PATH)."
            .to_owned();
    }
    let place = here.map_or("DIR".to_owned(), |here| quoted(here.mount()));
    format!("Measure it: `trimwise fit {place} --out my.toml` (30 s), then `--device my.toml`.")
}

/// What was tried, and what that rests on, in full sentences.
pub fn explained(sensitivity: &Sensitivity) -> String {
    let of: Vec<&str> = sensitivity.factors.iter().map(|factor| factor.words()).collect();
    let basis = match sensitivity.basis {
        Basis::Measured => "measured on such drives",
        Basis::Fitted => "fitted to what was measured on such drives",
        Basis::Own => "the profile's own",
        Basis::Assumed => "in part assumed",
    };
    let trim = sensitivity.trim.filter(|_| sensitivity.factors.contains(&Factor::TrimCost));
    let trim = trim.map_or_else(String::new, |trim| {
        format!(
            ": a TRIM of {} takes {}, and {} in the profile",
            Bytes(trim.bytes),
            range(trim),
            time(trim.likely_ns)
        )
    });
    let holds = match sensitivity.holds {
        true => "The verdict holds at both ends, and is taken to hold between them.",
        false => "The verdict turns within them, at a point that is interpolated.",
    };
    format!(
        "Tried at the ends of the range of {}{trim}. The ranges are {basis}. {holds} {}, one for each policy and end.",
        of.join(" and of "),
        numbers::counted(sensitivity.runs as u64, "more run")
    )
}

fn time(ns: u64) -> String {
    numbers::rough_time(ns as f64 / 1e9)
}

fn range(trim: TrimTimes) -> String {
    format!("{} to {}", time(trim.low_ns), time(trim.high_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sensitivity(on: Vec<Turn>) -> Sensitivity {
        let trim = TrimTimes { bytes: 65_536, low_ns: 20_000, likely_ns: 300_000, high_ns: 10_000_000 };
        Sensitivity {
            holds: on.is_empty(),
            runs: 4,
            likely: Act { decision: Decision::Change, policy: Some("commit".into()) },
            on,
            factors: vec![Factor::TrimCost, Factor::Collector],
            basis: Basis::Assumed,
            trim: Some(trim),
        }
    }

    fn turn(factor: Factor, side: Side, trim_ns: Option<u64>, others_wait: bool) -> Turn {
        let beyond = Act { decision: Decision::Keep, policy: Some("off".into()) };
        Turn { factors: vec![factor], side, at: 0.1, trim_ns, others_wait, beyond }
    }

    #[test]
    fn the_point_at_which_a_verdict_turns_is_said_with_what_is_right_on_either_side() {
        let trim = |side, others_wait| turn(Factor::TrimCost, side, Some(1_200_000), others_wait);
        for (on, said) in [
            (
                trim(Side::AgainstTrim, false),
                "If a TRIM of 64 KiB takes 300 µs, `commit` is better, up to about 1.2 ms; at 10 ms others are worse \
                 than `off`.",
            ),
            (
                trim(Side::AgainstTrim, true),
                "If a TRIM of 64 KiB takes 300 µs, `commit` is better, up to about 1.2 ms; at 10 ms, with others \
                 waiting, others are worse than `off`.",
            ),
            (
                trim(Side::ForTrim, true),
                "If a TRIM of 64 KiB takes 300 µs, `commit` is better, down to about 1.2 ms; at 20 µs others are \
                 worse than `off`.",
            ),
            (
                turn(Factor::Collector, Side::ForTrim, None, false),
                "At the likely values `commit` is better; where how it collects garbage favours trimming most, others \
                 are worse than `off`.",
            ),
        ] {
            let others_wait = on.others_wait && on.side == Side::AgainstTrim;
            let found = turns(&sensitivity(vec![Turn { others_wait, ..on }]), "`off`", &|policy| {
                format!("`{policy}`")
            });
            assert_eq!(found, said);
        }
    }

    #[test]
    fn what_is_to_be_measured_is_only_what_fit_measures() {
        let of = |factor, trim_ns| {
            measure(Some(&sensitivity(vec![turn(factor, Side::AgainstTrim, trim_ns, false)])), None)
        };
        assert!(of(Factor::TrimCost, Some(1)).starts_with("Measure it: `trimwise fit DIR --out my.toml`"));
        assert!(of(Factor::Collector, None).starts_with("`fit` measures what a TRIM takes, not the rest"));
    }

    #[test]
    fn advice_that_holds_says_with_what() {
        let mut found = sensitivity(Vec::new());
        let said = " The advice is the same with TRIMs of 20 µs to 10 ms and good and poor collectors.";
        assert_eq!(within(&found).as_deref(), Some(said));
        let text = explained(&found);
        for part in [
            "a TRIM of 64 KiB takes 20 µs to 10 ms, and 300 µs in the profile",
            "in part assumed",
            "4 more runs",
        ] {
            assert!(text.contains(part), "{text}");
        }
        // Nothing trimmed.
        found.trim = None;
        found.factors = vec![Factor::TrimCost];
        assert_eq!(within(&found), None);
    }
}
