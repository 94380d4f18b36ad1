//! The text of `reproduce`: a published experiment next to ours, in its source's layout.

use crate::experiment::result::{Claim, ExperimentResult, Figure};

use trimwise_cli::figures::{change, significant};
use trimwise_cli::table::plot::{Block, is_tabled, of_plot, text as text_of};
use trimwise_cli::table::{bold, folded};

pub fn render(result: &ExperimentResult, command: &str) -> String {
    let mut text = format!("{}\n{}\n", bold(&result.experiment), folded(&result.question, 0));
    for block in blocks(result) {
        text += &text_of(&block, "");
    }
    if let drawn @ 1.. = result.rows.plots().iter().filter(|plot| !is_tabled(plot)).count() {
        let figures = if drawn == 1 { "figure is" } else { "figures are" };
        text += &folded(&format!("{drawn} more {figures} drawn with --report, and in the JSON."), 0);
        text.push('\n');
    }
    let (_, notes) = result.rows.tables();
    for line in notes {
        text += &folded(line, 0);
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    text += &format!("{}\n{}", bold("Claims"), folded(&format!("Source: {}.", result.source), 0));
    for claim in &result.claims {
        text += &claim_text(claim);
    }
    if !result.untried.is_empty() {
        text += &folded(&format!("Not tried: {}.", result.untried.join(", ")), 2);
    }
    text.push('\n');
    text += &bold(folded(&result.finding, 0).trim_end());
    text + &format!(
        "\n\ntrimwise {}, seed {}, {}; repeat with:\n  {command}\n{}",
        result.trimwise,
        result.seed,
        repetitions(result.reps),
        folded(&made_by(result), 0)
    )
}

/// Returns the line that names the code behind a result; empty for documents of earlier versions.
pub fn made_by(result: &ExperimentResult) -> String {
    if result.made_by.fingerprint.is_empty() { String::new() } else { result.made_by.line() }
}

/// Formats the number of repetitions.
pub fn repetitions(reps: u32) -> String {
    format!("{reps} repetition{}", if reps == 1 { "" } else { "s" })
}

/// Returns the tables of an experiment: those of its source, or one for each plot.
pub fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let (of_rows, _) = result.rows.tables();
    match [&result.tables, of_rows].into_iter().find(|tables| !tables.is_empty()) {
        Some(tables) => tables.to_vec(),
        None => result.rows.plots().iter().filter(|plot| is_tabled(plot)).flat_map(of_plot).collect(),
    }
}

fn claim_text(claim: &Claim) -> String {
    let sign = if claim.met { "met    " } else { "NOT MET" };
    let Claim { id, text, basis, role, because, published, .. } = claim;
    let head = folded(&format!("{id} ({}): {text}", role.words()), 11);
    let mut figures = format!("published {} ({}), here {}", words(published), basis.words(), here(claim));
    if let Some(limits) = limits(claim) {
        figures += &format!("; met if {limits}");
    }
    if claim.is_met_by_tolerance() {
        figures += "; only within the tolerance";
    }
    let why = because.iter().map(|why| folded(&format!("{}: {why}", role.words()), 11));
    format!("  {sign}  {}\n{}{}", head.trim(), folded(&figures, 11), why.collect::<String>())
}

/// Formats what was measured for a claim, with its distance from the published figure.
pub fn here(claim: &Claim) -> String {
    let off: Vec<String> = claim.deviations().iter().map(|off| change(*off)).collect();
    let off = if off.is_empty() { String::new() } else { format!(" ({})", off.join(" and ")) };
    words(&claim.measured) + &off
}

/// Formats the figures with which a claim is met; `None` if it is not about a single figure.
pub fn limits(claim: &Claim) -> Option<String> {
    match claim.limits? {
        [Some(low), Some(high)] => Some(format!("{} to {}", significant(low), significant(high))),
        [Some(low), None] => Some(format!("at least {}", significant(low))),
        [None, Some(high)] => Some(format!("at most {}", significant(high))),
        [None, None] => None,
    }
}

/// Formats a claim's figure.
pub fn words(figure: &Figure) -> String {
    match figure {
        Figure::Number(f) => significant(*f),
        Figure::Numbers(all) => all.iter().map(|f| significant(*f)).collect::<Vec<_>>().join(" and "),
        Figure::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::plot::Series;

    use super::*;
    use crate::commands::reproduce::tests::{experiment, plotted, rows};

    fn assert_fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn a_figure_is_a_table_of_places_and_series() {
        let text = render(&plotted(), "trimwise reproduce plotted");
        assert_fits(&text);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn more_series_than_fit_go_into_further_tables() {
        let result = plotted();
        let mut plot = result.rows.plots()[0].clone();
        let series = plot.series[0].clone();
        plot.series = (0..30).map(|i| Series { name: format!("policy {i}"), ..series.clone() }).collect();
        let blocks = of_plot(&plot);
        assert!(blocks.len() > 1);
        assert_eq!(blocks.iter().map(|b| b.header.len() - 1).sum::<usize>(), 30);
        assert!(blocks.iter().all(|b| b.rows.iter().all(|r| r.len() == b.header.len())));
        assert_fits(&render(
            &ExperimentResult { rows: rows(&[plot]), ..result },
            "trimwise reproduce plotted",
        ));
    }

    #[test]
    fn figures_are_next_to_the_published_ones_and_claims_are_in_plain_words() {
        let text = render(&experiment(), "trimwise reproduce postmark-vendors");
        assert_fits(&text);
        insta::assert_snapshot!(text);
    }
}
