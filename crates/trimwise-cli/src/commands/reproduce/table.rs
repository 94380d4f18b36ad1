//! A published experiment next to ours, in its source's layout.

use trimwise_lab::experiment::result::{Claim, ExperimentResult, ExperimentRows, Figure, VendorRow};

mod compared;
mod kernels;
mod verdicts;
mod weeks;

use crate::figures::{change, significant};
use crate::table::plot::{Block, is_tabled, of_plot, text as text_of};
use crate::table::{bold, folded};

/// Renders the whole text.
pub fn render(result: &ExperimentResult, command: &str) -> String {
    let mut text = format!("{}\n{}\n", bold(&result.experiment), folded(&result.question, 0));
    for block in blocks(&result.rows) {
        text += &text_of(&block, "");
    }
    if let drawn @ 1.. = result.rows.plots().iter().filter(|plot| !is_tabled(plot)).count() {
        let figures = if drawn == 1 { "figure is" } else { "figures are" };
        text += &folded(&format!("{drawn} more {figures} drawn with --report, and in the JSON."), 0);
        text.push('\n');
    }
    let errors = error_summary(&result.rows);
    for line in &errors {
        text += &folded(line, 0);
    }
    if !errors.is_empty() {
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
        "\n\ntrimwise {}, seed {}, {}; repeat with:\n  {command}\n",
        result.trimwise,
        result.seed,
        repetitions(result.reps)
    )
}

/// The number of repetitions, in words.
pub fn repetitions(reps: u32) -> String {
    format!("{reps} repetition{}", if reps == 1 { "" } else { "s" })
}

/// Returns the tables of an experiment: those of its source, or one for each figure.
pub fn blocks(rows: &ExperimentRows) -> Vec<Block> {
    match rows {
        ExperimentRows::Vendors(rows) => vendors(rows),
        ExperimentRows::Kernels(rows) => kernels::blocks(&rows.measured),
        ExperimentRows::Compared(pairs) => compared::blocks(pairs),
        ExperimentRows::Verdicts(rows) => verdicts::blocks(rows),
        ExperimentRows::Weeks(rows) => weeks::blocks(rows),
        ExperimentRows::Plots(plots) | ExperimentRows::Figures { plots } => {
            plots.iter().filter(|plot| is_tabled(plot)).flat_map(of_plot).collect()
        }
    }
}

/// Returns the tables that a document carries, since nothing else can make them of its rows.
pub fn carried(rows: &ExperimentRows) -> Vec<Block> {
    match rows {
        ExperimentRows::Vendors(_) | ExperimentRows::Plots(_) | ExperimentRows::Figures { .. } => Vec::new(),
        _ => blocks(rows),
    }
}

/// Returns a block for each device and each kind of buffering, metrics downwards as in the source.
fn vendors(rows: &[VendorRow]) -> Vec<Block> {
    const HEADER: [&str; 9] =
        ["Type", "NODISCARD", "published", "error", "DISCARD", "published", "error", "DIFF", "published"];
    rows.chunk_by(|a, b| a.device == b.device && a.postmark_buffering == b.postmark_buffering)
        .filter_map(|block| {
            let first = block.first()?;
            let buffering = if first.postmark_buffering { "enabled" } else { "disabled" };
            let title = format!("{} device, buffering {buffering}", first.device);
            Some(Block::new(title, HEADER, block.iter().map(row).collect()))
        })
        .collect()
}

fn row(row: &VendorRow) -> [String; 9] {
    let (without, with) = row.errors();
    [
        format!("{}{}", metric(&row.metric), if row.fitted { " *" } else { "" }),
        figure(row.nodiscard),
        figure(row.published_nodiscard),
        tight(change(without)),
        figure(row.discard),
        figure(row.published_discard),
        tight(change(with)),
        difference(row.nodiscard, row.discard),
        difference(row.published_nodiscard, row.published_discard),
    ]
}

/// Summarises the errors of figures that parameters were fitted to, and of those that they were not.
pub fn error_summary(rows: &ExperimentRows) -> Vec<String> {
    let ExperimentRows::Vendors(rows) = rows else { return Vec::new() };
    let line = |fitted: bool| {
        let mut errors: Vec<f64> = rows
            .iter()
            .filter(|r| r.fitted == fitted)
            .flat_map(|r| [r.errors().0.abs(), r.errors().1.abs()])
            .collect();
        errors.sort_by(f64::total_cmp);
        let worst = *errors.last()?;
        let median = trimwise::compare::statistics::median(&errors)?;
        Some(format!(
            "median {:.1} %, worst {:.1} % of {} figures",
            median * 100.0,
            worst * 100.0,
            errors.len()
        ))
    };
    let fitted = line(true).map(|l| format!("* the profile was fitted to these: error {l}."));
    let checked = line(false).map(|l| format!("Not fitted, so a check of the model: error {l}."));
    [fitted, checked].into_iter().flatten().collect()
}

/// The source's metric names; the longest are shortened so that a row fits.
fn metric(name: &str) -> String {
    name.replace("_mixed_with_transaction/s", "_mixed/s")
        .replace("Duration_of_transactions", "Transactions_duration")
        .replace("Duration_of_deletion", "Deletion_duration")
}

/// Formats two decimals as in the source; none if bytes per second would be too wide with them.
fn figure(f: f64) -> String {
    if f.abs() >= 99_999.5 { format!("{f:.0}") } else { format!("{f:.2}") }
}

fn difference(without: f64, with: f64) -> String {
    if without == 0.0 { "-".to_string() } else { tight(change(with / without - 1.0)) }
}

/// Removes the blank before the percent sign, as in the source.
fn tight(percent: String) -> String {
    percent.replace(" %", "%")
}

fn claim_text(claim: &Claim) -> String {
    let sign = if claim.met { "met    " } else { "NOT MET" };
    let Claim { id, text, basis, role, because, published, measured, .. } = claim;
    let head = folded(&format!("{id} ({}): {text}", role.words()), 11);
    let figures = format!("published {} ({}), here {}", words(published), basis.words(), words(measured));
    let why = because.iter().map(|why| folded(&format!("{}: {why}", role.words()), 11));
    format!("  {sign}  {}\n{}{}", head.trim(), folded(&figures, 11), why.collect::<String>())
}

/// Formats a claim's figure in words.
pub fn words(figure: &Figure) -> String {
    match figure {
        Figure::Number(f) => significant(*f),
        Figure::Numbers(all) => all.iter().map(|f| significant(*f)).collect::<Vec<_>>().join(" and "),
        Figure::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use trimwise_lab::plot::Series;

    use super::*;
    use crate::commands::reproduce::tests::{experiment, plotted};

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
        let ExperimentRows::Plots(plots) = &result.rows else { panic!("not plots") };
        let mut plot = plots[0].clone();
        let series = plot.series[0].clone();
        plot.series = (0..30).map(|i| Series { name: format!("policy {i}"), ..series.clone() }).collect();
        let blocks = of_plot(&plot);
        assert!(blocks.len() > 1);
        assert_eq!(blocks.iter().map(|b| b.header.len() - 1).sum::<usize>(), 30);
        assert!(blocks.iter().all(|b| b.rows.iter().all(|r| r.len() == b.header.len())));
        assert_fits(&render(
            &ExperimentResult { rows: ExperimentRows::Plots(vec![plot]), ..result },
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
