//! `--fail-if` and `--baseline`: their arguments, and what is said about them.

use std::path::PathBuf;

use clap::Args;
use trimwise::failure::{Failure, Mistakes};
use trimwise::numbers::change;
use trimwise_study::gate::{Change, Condition, Held, Judged, Outcome, Since};

use crate::table::{folded, titled};

#[derive(Clone, Debug, Default, Args)]
pub struct GateArguments {
    /// Exit with code 1 if this holds beyond noise (3: too few runs to tell): '[FIGURE of] NAME > VALUE' or '[FIGURE of]
    /// NAME > OTHER by N %', or with <; OTHER may be `baseline`, which is NAME in the saved result. May be given several
    /// times
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<Condition>,

    /// Also say what changed, beyond noise, since a result that this command saved with --json
    #[arg(long, value_name = "FILE.json")]
    pub baseline: Option<PathBuf>,
}

/// Says which conditions do not hold ([`failure`] says which do), and what changed since the saved result.
pub fn text(judged: &Judged) -> String {
    let is_in_failure = |held| matches!(held, Held::Holds | Held::TooFewRuns);
    let others = judged.conditions.iter().filter(|outcome| !is_in_failure(outcome.result));
    let mut text: String = others.map(|outcome| folded(&sentence(outcome), 0)).collect();
    if let Some(of) = &judged.since {
        text += &since(of, &text);
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// Returns why the command fails; `None` if no condition holds and all could be judged.
pub fn failure(judged: &Judged) -> Option<Failure> {
    let sentences = |result| {
        let of = judged.conditions.iter().filter(move |outcome| outcome.result == result);
        of.map(sentence).collect::<Vec<_>>().join("\n")
    };
    let (holding, untold) = (sentences(Held::Holds), sentences(Held::TooFewRuns));
    match (holding.is_empty(), judged.refused.is_empty(), untold.is_empty()) {
        (false, ..) => Some(Failure::run(holding)),
        (true, false, _) => Some(Failure::Usage(Mistakes(judged.refused.clone()))),
        (true, true, false) => Some(Failure::Unchecked(untold)),
        (true, true, true) => None,
    }
}

fn sentence(outcome: &Outcome) -> String {
    let Outcome { condition, place, result, figure, unit, value, other, excess_percent, p } = outcome;
    let on = if place.is_empty() { String::new() } else { format!(" ({place})") };
    let held = match result {
        Held::Holds => "holds",
        Held::DoesNotHold => "does not hold",
        Held::WithinNoise => "does not hold beyond noise",
        Held::TooFewRuns => "cannot be told with so few runs",
    };
    let excess = excess_percent.map(|percent| format!(", {}", change(percent / 100.0))).unwrap_or_default();
    let p = p.map(|p| format!(", p = {p:.3}")).unwrap_or_default();
    format!(
        "`{condition}`{on} {held}: {figure} {} against {}{excess}{p}.",
        unit.text(*value),
        unit.text(*other)
    )
}

fn since(since: &Since, after: &str) -> String {
    let mut text = match &since.changes[..] {
        [] if since.compared == since.untold => String::new(),
        [] => {
            let figures = trimwise::numbers::counted((since.compared - since.untold) as u64, "figure");
            folded(&format!("Since {}: no change beyond noise in {figures}.", since.file), 0)
        }
        changes => {
            let rows: Vec<[String; 6]> = changes.iter().map(row).collect();
            let title = format!("Changed since {}, beyond noise", since.file);
            let table = titled(&title, &["", "figure", "then", "now", "change", "p"], &rows);
            if after.is_empty() { table } else { format!("\n{table}") }
        }
    };
    if since.untold > 0 {
        let untold = trimwise::numbers::counted(since.untold as u64, "figure");
        text += &folded(&format!("Too few runs to tell whether {untold} changed."), 0);
    }
    text.extend(since.notes.iter().map(|note| folded(&format!("The saved result: {note}."), 0)));
    text
}

fn row(changed: &Change) -> [String; 6] {
    let Change { place, subject, figure, unit, then, now, change_percent, p } = changed;
    let name = if place.is_empty() { subject.clone() } else { format!("{subject}, {place}") };
    let p = p.map_or_else(|| "exact".to_owned(), |p| format!("{p:.3}"));
    [name, figure.to_string(), unit.text(*then), unit.text(*now), change(change_percent / 100.0), p]
}

#[cfg(test)]
mod tests {
    use trimwise::failure::Mistake;
    use trimwise_study::gate::Unit;

    use super::*;

    fn outcome(result: Held) -> Outcome {
        Outcome {
            condition: "commit > off by 5 %".to_owned(),
            place: "sata-small".to_owned(),
            result,
            figure: "time".into(),
            unit: Unit::Seconds,
            value: 164.2,
            other: 146.3,
            excess_percent: Some(12.25),
            p: Some(0.0286),
        }
    }

    fn judged(results: &[Held]) -> Judged {
        Judged { conditions: results.iter().map(|held| outcome(*held)).collect(), ..Judged::default() }
    }

    #[test]
    fn a_condition_that_holds_fails_the_command_with_its_numbers() {
        let said =
            "`commit > off by 5 %` (sata-small) holds: time 164.2 s against 146.3 s, +12.2 %, p = 0.029.";
        let all = [Held::DoesNotHold, Held::TooFewRuns, Held::Holds];
        assert_eq!(failure(&judged(&all)), Some(Failure::run(said)));
        let text = text(&judged(&all));
        assert!(text.starts_with("\n`commit > off by 5 %` (sata-small) does not hold: time "), "{text}");
        assert_eq!(text.matches("commit > off").count(), 1, "the failure says what holds: {text}");
    }

    #[test]
    fn what_cannot_be_told_is_another_exit_code_than_what_holds() {
        assert_eq!(failure(&judged(&[Held::DoesNotHold, Held::WithinNoise])), None);
        let untold = failure(&judged(&[Held::DoesNotHold, Held::TooFewRuns]));
        assert!(
            matches!(&untold, Some(Failure::Unchecked(why)) if why.contains("cannot be told with so few runs"))
        );
        let refused = vec![Mistake::that("no such policy")];
        let refused = Judged { refused, ..judged(&[Held::TooFewRuns]) };
        assert!(matches!(failure(&refused), Some(Failure::Usage(_))));
        assert_eq!(text(&Judged::default()), "");
    }

    #[test]
    fn what_changed_is_a_table_and_that_nothing_did_is_said() {
        let since = Since {
            file: "a.json".to_owned(),
            trimwise: "0.1.0".to_owned(),
            notes: vec!["it is of Linux 5.10, and this run of Linux 6.12".to_owned()],
            compared: 4,
            untold: 1,
            changes: Vec::new(),
        };
        let said = |since: Since| text(&Judged { since: Some(since), ..Judged::default() });
        let expected = "\nSince a.json: no change beyond noise in 3 figures.\n\
                        Too few runs to tell whether 1 figure changed.\n\
                        The saved result: it is of Linux 5.10, and this run of Linux 6.12.\n";
        assert_eq!(said(since.clone()), expected);
        let change = Change {
            place: String::new(),
            subject: "clean".to_owned(),
            figure: "read_mb_per_s".into(),
            unit: Unit::Number,
            then: 507.4,
            now: 400.0,
            change_percent: -21.2,
            p: None,
        };
        let text = said(Since { changes: vec![change], notes: Vec::new(), untold: 0, ..since });
        let row = "clean  read_mb_per_s  507.4  400.0  \u{2212}21.2 %  exact";
        assert!(text.contains("Changed since a.json, beyond noise\n") && text.contains(row), "{text}");
    }
}
