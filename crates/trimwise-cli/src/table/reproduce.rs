//! A published experiment beside ours, in its source's layout.

use trimwise::experiment::result::{Claim, ExperimentResult, ExperimentRows, Figure, VendorRow};

use super::{aligned, bold, figures_table, finished, folded};
use crate::figures::{change, significant};

/// The whole text.
pub fn render(result: &ExperimentResult, command: &str) -> String {
    let mut text = format!("{}\n{}\n", bold(&result.experiment), folded(&result.question, 0));
    for block in blocks(&result.rows) {
        let mut table = figures_table(&block.header);
        for row in &block.rows {
            table.add_row(row.iter().enumerate().map(|(i, c)| aligned(i, c)));
        }
        text += &format!("{}\n\n{}\n", bold(&block.title), finished(table));
    }
    for line in error_summary(&result.rows) {
        text += &folded(&line, 0);
    }
    text.push('\n');
    text += &bold("Claims of the source");
    text.push('\n');
    for claim in &result.claims {
        text += &claim_text(claim);
    }
    let met = result.claims.iter().filter(|c| c.met).count();
    text += &format!("{met} of {} claims met.\n\n", result.claims.len());
    text += &bold(folded(&result.finding, 0).trim_end());
    text + &format!(
        "\n\ntrimwise {}, seed {}, {} repetitions; again:\n  {command}\n",
        result.trimwise, result.seed, result.reps
    )
}

/// One table of an experiment.
pub struct Block {
    /// What it is of.
    pub title: String,
    /// Its columns.
    pub header: [&'static str; 9],
    /// Its rows.
    pub rows: Vec<[String; 9]>,
}

/// A block for each device and each kind of buffering, metrics downwards as in the source.
pub fn blocks(rows: &ExperimentRows) -> Vec<Block> {
    let ExperimentRows::Vendors(rows) = rows;
    rows.chunk_by(|a, b| a.device == b.device && a.postmark_buffering == b.postmark_buffering)
        .filter_map(|block| {
            let first = block.first()?;
            let buffering = if first.postmark_buffering { "enabled" } else { "disabled" };
            Some(Block {
                title: format!("{} device, buffering {buffering}", first.device),
                header: [
                    "Type",
                    "NODISCARD",
                    "published",
                    "error",
                    "DISCARD",
                    "published",
                    "error",
                    "DIFF",
                    "published",
                ],
                rows: block.iter().map(row).collect(),
            })
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

/// How large the errors are on what parameters were fitted on, and on what they were not.
pub fn error_summary(rows: &ExperimentRows) -> Vec<String> {
    let ExperimentRows::Vendors(rows) = rows;
    let line = |fitted: bool| {
        let mut errors: Vec<f64> = rows
            .iter()
            .filter(|r| r.fitted == fitted)
            .flat_map(|r| [r.errors().0.abs(), r.errors().1.abs()])
            .collect();
        errors.sort_by(f64::total_cmp);
        let worst = *errors.last()?;
        let median = trimwise::experiment::statistics::median(&errors)?;
        Some(format!(
            "median {:.1} %, worst {:.1} % of {} figures",
            median * 100.0,
            worst * 100.0,
            errors.len()
        ))
    };
    let fitted = line(true).map(|l| format!("* the profile was fitted on these: error {l}."));
    let checked = line(false).map(|l| format!("Not fitted, so a check of the model: error {l}."));
    [fitted, checked].into_iter().flatten().collect()
}

/// The source's names, the longest shortened so that a row fits.
fn metric(name: &str) -> String {
    name.replace("_mixed_with_transaction/s", "_mixed/s")
        .replace("Duration_of_transactions", "Transactions_duration")
        .replace("Duration_of_deletion", "Deletion_duration")
}

/// Two decimals as in the source; none where bytes a second would be too wide with them.
fn figure(f: f64) -> String {
    if f.abs() >= 99_999.5 { format!("{f:.0}") } else { format!("{f:.2}") }
}

fn difference(without: f64, with: f64) -> String {
    if without == 0.0 { "-".to_string() } else { tight(change(with / without - 1.0)) }
}

/// Without the blank before the percent sign, as the source has it.
fn tight(percent: String) -> String {
    percent.replace(" %", "%")
}

fn claim_text(claim: &Claim) -> String {
    let sign = if claim.met { "met    " } else { "NOT MET" };
    let head = folded(&format!("{}: {}", claim.id, claim.text), 11);
    format!(
        "  {sign}  {}\n{}",
        head.trim(),
        folded(&format!("published {}, here {}", words(&claim.published), words(&claim.measured)), 11)
    )
}

/// A claim's figure in words.
pub fn words(figure: &Figure) -> String {
    match figure {
        Figure::Number(f) => significant(*f),
        Figure::Numbers(all) => all.iter().map(|f| significant(*f)).collect::<Vec<_>>().join(" and "),
        Figure::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::fabricated;

    #[test]
    fn figures_stand_beside_the_published_ones_and_claims_are_said_plainly() {
        let text = render(&fabricated::experiment(), "trimwise reproduce postmark-vendors");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        insta::assert_snapshot!(text);
    }
}
