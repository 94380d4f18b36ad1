//! The report of `reproduce`.

use crate::experiment::ALL;
use crate::experiment::result::{Claim, ExperimentResult};
use minijinja::Value;
use serde::Serialize;
use trimwise::failure::{Failure, Mistake};

use super::table::{blocks, here, limits, made_by, repetitions, words};
use trimwise_cli::report::chart::{Chart, Styles};
use trimwise_cli::report::pair::{NAMES, Page, Run, Section};
use trimwise_cli::report::{Figure, plots, rendered, with_code};
use trimwise_cli::table::plot::Block;

#[derive(Serialize)]
struct Whole<'a> {
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
    made_by: String,
    claims: Vec<ClaimLine<'a>>,
    any_tolerated: bool,
    untried: &'a [String],
    figures: Vec<Figure>,
    host: String,
    blocks: Vec<Block>,
    /// Explains why tables are missing; empty if they are not.
    missing: &'static str,
    errors: String,
}

#[derive(Serialize)]
struct ClaimLine<'a> {
    id: &'a str,
    text: &'a str,
    role: &'static str,
    because: &'a str,
    basis: &'static str,
    met: &'static str,
    class: &'static str,
    published: String,
    measured: String,
    limits: String,
}

const MISSING: &str = "An earlier version of trimwise wrote this document: it has the rows of this experiment, but not \
                       their tables.";

pub fn html(results: &[ExperimentResult], command: &str) -> Result<String, Failure> {
    let mut styles = Styles::default();
    let experiments =
        results.iter().map(|result| experiment(result, &mut styles)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&str> = experiments.iter().map(|e| e.name).collect();
    let page = Whole { title: names.join(", "), experiments, command };
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
        made_by: made_by(result),
        claims: result
            .claims
            .iter()
            .map(|c| ClaimLine {
                id: &c.id,
                text: &c.text,
                role: c.role.words(),
                because: c.because.as_deref().unwrap_or_default(),
                basis: c.basis.words(),
                met: met(c),
                class: match c.met {
                    true if c.is_met_by_tolerance() => "tolerated",
                    true => "met",
                    false => "not-met",
                },
                published: words(&c.published),
                measured: here(c),
                limits: limits(c).unwrap_or_default(),
            })
            .collect(),
        any_tolerated: result.claims.iter().any(Claim::is_met_by_tolerance),
        untried: &result.untried,
        figures: figures.collect::<Result<_, _>>()?,
        host: host(result),
        blocks: blocks(result),
        missing: if result.rows.are_shown() || !result.tables.is_empty() { "" } else { MISSING },
        errors: result.rows.tables().1.join(" "),
    })
}

/// Says whether a claim is met.
fn met(claim: &Claim) -> &'static str {
    match claim.met {
        true if claim.is_met_by_tolerance() => "met, by tolerance",
        true => "met",
        false => "not met",
    }
}

/// Renders two documents side by side. Fails if they have no experiment in common.
pub fn pair(documents: [(&str, &[ExperimentResult]); 2]) -> Result<String, Failure> {
    let [(file_a, a), (file_b, b)] = documents;
    let mut styles = Styles::default();
    let (mut sections, mut changed) = (Vec::new(), Vec::new());
    let mut count_met = [0, 0];
    let mut claims_of_both = 0;
    for one in a {
        let Some(other) = b.iter().find(|b| b.experiment == one.experiment) else { continue };
        let mut rows = Vec::new();
        for claim in &one.claims {
            let Some(now) = other.claims.iter().find(|now| now.id == claim.id) else { continue };
            claims_of_both += 1;
            count_met[0] += usize::from(claim.met);
            count_met[1] += usize::from(now.met);
            if claim.met != now.met {
                changed.push(format!("`{}` ({}, then {})", claim.id, met(claim), met(now)));
            }
            rows.push([
                claim.id.clone(),
                words(&claim.published),
                format!("{}: {}", here(claim), met(claim)),
                format!("{}: {}", here(now), met(now)),
            ]);
        }
        let pairs = one.rows.plots().iter().filter_map(|plot| {
            let other = other.rows.plots().iter().find(|other| {
                (&other.title, other.kind, &other.x.key, &other.y.key)
                    == (&plot.title, plot.kind, &plot.x.key, &plot.y.key)
            })?;
            Some(plots::of_runs(&[(NAMES[0], plot), (NAMES[1], other)], &mut styles))
        });
        let charts: Vec<Chart> = pairs.collect();
        let blocks = vec![Block::new("Claims", ["claim", "published", "A", "B"], rows)];
        sections.push(Section::of(one.experiment.clone(), blocks, &charts)?);
    }
    if sections.is_empty() {
        let names = |all: &[ExperimentResult]| {
            all.iter().map(|result| result.experiment.clone()).collect::<Vec<_>>().join(", ")
        };
        let why =
            format!("{file_a} and {file_b}: have no experiment in common, but {} and {}", names(a), names(b));
        return Err(Mistake::that(why).expected("the same experiment in both").fail());
    }
    let changes = match &changed[..] {
        [] => "none changed".to_owned(),
        changed => format!("changed: {}", changed.join(", ")),
    };
    let verdict = format!(
        "Of {claims_of_both} claims in both, A meets {} and B {}; {changes}.",
        count_met[0], count_met[1]
    );
    let run = |file: &str, results: &[ExperimentResult]| {
        let names: Vec<&str> = results.iter().map(|result| &*result.experiment).collect();
        let findings: Vec<&str> = match results {
            [one] => vec![&one.finding],
            _ => Vec::new(),
        };
        let version = results.first().map_or("", |result| &result.trimwise);
        Run {
            file: file.to_owned(),
            what: format!("{}, trimwise {version}", names.join(", ")),
            verdict: with_code(&findings.join(" ")),
            command: super::repeat(results),
        }
    };
    let settings = [a, b].map(|results| {
        let first = results.first();
        let of = |figure: &dyn Fn(&ExperimentResult) -> String| first.map_or(String::new(), figure);
        vec![
            ("version", of(&|result| result.trimwise.clone())),
            ("repetitions", of(&|result| result.reps.to_string())),
            ("seed", of(&|result| result.seed.to_string())),
            ("host", of(&host)),
        ]
    });
    Page::html(&verdict, [run(file_a, a), run(file_b, b)], settings, sections, Vec::new())
}

/// Says what an experiment ran on.
fn host(result: &ExperimentResult) -> String {
    let boots = || ALL.iter().any(|known| known.name == result.experiment && known.boots());
    match &result.kernel {
        Some(kernel) => format!("Linux {}, in virtual time, on a modelled drive", kernel.title()),
        None if boots() => "real kernels, in virtual time, on a modelled drive".to_owned(),
        None => "the model, not on a real kernel or drive".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::result::Figure;

    use super::*;
    use crate::commands::reproduce::tests::{experiment, plotted};

    #[test]
    fn an_unmet_claim_is_said_plainly_and_text_is_escaped() {
        let mut result = experiment();
        result.question = "<script>alert(1)</script>".to_string();
        let page = html(&[result], "trimwise reproduce --all").unwrap();
        assert!(page.contains("not met</td>") && page.contains("data-label=\"role\">check</td>"));
        assert!(page.contains("fitted: the three numbers of each drive"), "why it is no check");
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>alert"));
        assert!(page.contains("2628.50"), "the published figure");
        assert!(!page.contains("<figure"), "a table is not drawn");
        if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_REPRODUCE") {
            std::fs::write(path, &page).unwrap();
        }
    }

    #[test]
    fn a_claim_met_only_by_its_tolerance_says_so_with_both_figures_and_the_limit() {
        let mut result = experiment();
        assert!(!html(&[result.clone()], "").unwrap().contains("by tolerance"));
        let claim = &mut result.claims[1];
        claim.met = true;
        claim.published = Figure::Number(0.01);
        claim.measured = Figure::Number(0.001);
        claim.limits = Some([None, Some(0.015)]);
        let page = html(&[result], "").unwrap();
        for said in
            ["tolerated\">met, by tolerance<", ">0.010<", ">0.001 (\u{2212}90.0\u{a0}%)<", ">at most 0.015<"]
        {
            assert!(page.contains(said), "{said}: {page}");
        }
    }

    #[test]
    fn claims_that_were_not_tried_are_folded_away() {
        let mut result = experiment();
        assert!(!html(&[result.clone()], "").unwrap().contains("not tried"));
        result.untried = vec!["kernels-a".to_owned(), "kernels-b".to_owned()];
        let page = html(&[result], "").unwrap();
        let folded =
            "<details><summary>Claims that were not tried: 2</summary><p>kernels-a, kernels-b</p></details>";
        assert!(page.contains(folded), "{page}");
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
