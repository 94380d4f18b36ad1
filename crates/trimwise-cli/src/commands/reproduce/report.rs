//! The report of `reproduce`.

use minijinja::Value;
use serde::Serialize;
use trimwise_lab::experiment::result::ExperimentResult;
use trimwise_lab::failure::Failure;

use super::table::{blocks, error_summary, repetitions, words};
use crate::report::chart::Styles;
use crate::report::{Figure, rendered, with_code};
use crate::table::plot::Block;

#[derive(Serialize)]
struct Page<'a> {
    title: String,
    experiments: Vec<Experiment<'a>>,
    command: &'a str,
}

#[derive(Serialize)]
struct Experiment<'a> {
    name: &'a str,
    question: Value,
    source: &'a str,
    finding: Value,
    version: &'a str,
    seed: u64,
    reps: String,
    claims: Vec<ClaimLine<'a>>,
    figures: Vec<Figure>,
    blocks: Vec<Block>,
    errors: String,
}

#[derive(Serialize)]
struct ClaimLine<'a> {
    id: &'a str,
    text: &'a str,
    role: &'static str,
    because: &'a str,
    basis: &'static str,
    met: bool,
    published: String,
    measured: String,
}

/// Renders the whole file.
pub fn html(results: &[ExperimentResult], command: &str) -> Result<String, Failure> {
    let mut styles = Styles::default();
    let experiments =
        results.iter().map(|result| experiment(result, &mut styles)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&str> = experiments.iter().map(|e| e.name).collect();
    let page = Page { title: names.join(", "), experiments, command };
    rendered(include_str!("report.html"), &page)
}

fn experiment<'a>(result: &'a ExperimentResult, styles: &mut Styles) -> Result<Experiment<'a>, Failure> {
    let figures = result.rows.plots().iter().map(|plot| Figure::of_plot(plot, styles));
    Ok(Experiment {
        name: &result.experiment,
        question: with_code(&result.question),
        source: &result.source,
        finding: with_code(&result.finding),
        version: &result.trimwise,
        seed: result.seed,
        reps: repetitions(result.reps),
        claims: result
            .claims
            .iter()
            .map(|c| ClaimLine {
                id: &c.id,
                text: &c.text,
                role: c.role.words(),
                because: c.because.as_deref().unwrap_or_default(),
                basis: c.basis.words(),
                met: c.met,
                published: words(&c.published),
                measured: words(&c.measured),
            })
            .collect(),
        figures: figures.collect::<Result<_, _>>()?,
        blocks: blocks(&result.rows),
        errors: error_summary(&result.rows).join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::reproduce::tests::{experiment, plotted};

    #[test]
    fn an_unmet_claim_is_said_plainly_and_text_is_escaped() {
        let mut result = experiment();
        result.question = "<script>alert(1)</script>".to_string();
        let page = html(&[result], "trimwise reproduce --all").unwrap();
        assert!(page.contains("not met</td>") && page.contains("<td class=\"text\">check</td>"));
        assert!(page.contains("fitted: the three numbers of each drive"), "why it is no check");
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>alert"));
        assert!(page.contains("2628.50"), "the published figure");
        assert!(!page.contains("<figure"), "a table is not drawn");
        if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_REPRODUCE") {
            std::fs::write(path, &page).unwrap();
        }
    }

    #[test]
    fn figures_are_drawn_with_a_legend_and_their_numbers_below() {
        let page = html(&[plotted()], "trimwise reproduce plotted").unwrap();
        assert_eq!(page.matches("<figure class=\"chart\">").count(), 3);
        assert_eq!(page.matches("<script type=\"application/json\">{\"kind\":").count(), 3);
        assert!(page.contains("\"label\":\"execution time\",\"unit\":\"s\",\"log\":false"), "{page}");
        assert!(page.contains(">171.5 ± 1.4 %</td>"), "{page}");
        if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_PLOTS") {
            std::fs::write(path, &page).unwrap();
        }
    }
}
