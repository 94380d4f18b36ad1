//! The words on what a conclusion sensitivity on: the ranges of what a drive's profile assumes.

use trimwise::compare::sensitivity::{Act, Sensitivity, Side, TrimTimes, Turn};
use trimwise::numbers;
use trimwise::policy::PolicyId;
use trimwise::profile::ranges::{Basis, Factor};
use trimwise::units::Bytes;

use super::Decision;
use crate::command_text::quoted;
use crate::compare::here::Here;

/// Says in one line what is to be done in which part of the ranges. `name` names a policy, `base` the current one.
pub(super) fn turns(sensitivity: &Sensitivity, base: &str, name: &dyn Fn(&PolicyId) -> String) -> String {
    let act = |act: &Act| match (act.decision, &act.policy) {
        (Decision::Change | Decision::Untrimmed, Some(policy)) => format!("{} is better", name(policy)),
        (Decision::DoesNotMatter, _) => "it does not matter".to_owned(),
        (Decision::Keep, _) => format!("others are worse than {base}"),
        _ => "it is open".to_owned(),
    };
    let likely = act(&sensitivity.likely);
    let turn = |turn: &Turn| {
        let beyond = act(&turn.beyond);
        match (turn.trim_ns, turn.side) {
            (Some(ns), Side::AgainstTrim) => format!("from about {} on {beyond}", time(ns)),
            (Some(ns), Side::ForTrim) => format!("below about {} {beyond}", time(ns)),
            (None, side) => {
                let of: Vec<&str> = turn.factors.iter().map(|factor| factor.words()).collect();
                let end = if side == Side::ForTrim { "for" } else { "against" };
                format!("where {} is most {end} trimming, {beyond}", of.join(" and "))
            }
        }
    };
    let found: Vec<String> = sensitivity.on.iter().map(turn).collect();
    let of_trim = sensitivity.on.iter().all(|turn| turn.trim_ns.is_some());
    match sensitivity.trim.filter(|_| of_trim) {
        Some(trim) => format!(
            "If a TRIM of {} takes {}, {likely}; {}. On such drives it takes {}.",
            Bytes(trim.bytes),
            time(trim.likely_ns),
            found.join(", and "),
            range(trim)
        ),
        None => format!("At the likely values {likely}; {}.", found.join(", and ")),
    }
}

/// What the evidence of a conclusion that holds covers: the end of a sentence, which begins with a comma. `None` if what
/// a TRIM takes changes nothing, since nothing trimmed.
pub(super) fn within(sensitivity: &Sensitivity) -> Option<String> {
    let of = |factor: &&Factor| **factor != Factor::TrimCost;
    let others: Vec<&str> = sensitivity.factors.iter().filter(of).map(|factor| factor.words()).collect();
    let trim = sensitivity.trim.filter(|_| sensitivity.factors.contains(&Factor::TrimCost));
    match (trim, &others[..]) {
        (None, []) => None,
        (Some(trim), []) => Some(format!(", with TRIMs of {}", range(trim))),
        (Some(trim), others) => {
            Some(format!(", with TRIMs of {}, and at both ends of {}", range(trim), others.join(" and ")))
        }
        (None, others) => Some(format!(", at both ends of {}", others.join(" and "))),
    }
}

/// The step that settles it.
pub(super) fn measure(here: Option<&Here>) -> String {
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
    let trim = sensitivity.trim.map_or_else(String::new, |trim| {
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
        "Tried at the ends of the range of {}{trim}. The ranges are {basis}. {holds} {}, one of each policy.",
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
