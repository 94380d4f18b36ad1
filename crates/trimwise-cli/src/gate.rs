//! `--fail-if` and `--baseline`: their arguments, and what is said about them.

use std::path::PathBuf;

use clap::Args;
use trimwise::failure::{Failure, Mistakes};
use trimwise::numbers::change;
use trimwise_study::gate::{Change, Condition, Held, Judged, Outcome, Since};

use crate::table::{folded, titled};

#[derive(Clone, Debug, Default, Args)]
pub struct GateArguments {
    /// Exit with code 1 if this holds beyond noise (3: too few runs to tell): '[FIGURE of] NAME > VALUE' or '[FIGURE of] NAME > OTHER by N %', or
    /// with <; OTHER may be `baseline`, which is NAME in the file of --baseline. May be given several times
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
    text.extend(judged.since.iter().map(since));
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

fn since(since: &Since) -> String {
    let mut text = match &since.changes[..] {
        [] => {
            let figures = trimwise::numbers::counted(since.compared as u64, "figure");
            folded(&format!("Since {}: no change beyond noise in {figures}.", since.file), 0)
        }
        changes => {
            let rows: Vec<[String; 6]> = changes.iter().map(row).collect();
            let title = format!("Changed since {}, beyond noise", since.file);
            titled(&title, &["", "figure", "then", "now", "change", "p"], &rows)
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
