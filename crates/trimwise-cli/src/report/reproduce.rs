//! The report of `reproduce`.

use minijinja::Value;
use serde::Serialize;
use trimwise::experiment::result::ExperimentResult;

use super::{STYLE, rendered, safe, with_code};
use crate::failure::Failure;
use crate::table::reproduce::{blocks, error_summary, words};

#[derive(Serialize)]
struct Page<'a> {
    style: Value,
    title: String,
    experiments: Vec<Experiment<'a>>,
    command: &'a str,
}

#[derive(Serialize)]
struct Experiment<'a> {
    name: &'a str,
    question: Value,
    finding: Value,
    version: &'a str,
    seed: u64,
    reps: u32,
    claims: Vec<ClaimLine<'a>>,
    blocks: Vec<Block>,
    errors: String,
}

#[derive(Serialize)]
struct ClaimLine<'a> {
    id: &'a str,
    text: &'a str,
    met: bool,
    published: String,
    measured: String,
}

#[derive(Serialize)]
struct Block {
    title: String,
    header: [&'static str; 9],
    rows: Vec<[String; 9]>,
}

/// The whole file.
pub fn html(results: &[ExperimentResult], command: &str) -> Result<String, Failure> {
    let experiments: Vec<Experiment> = results.iter().map(experiment).collect();
    let names: Vec<&str> = experiments.iter().map(|e| e.name).collect();
    let page = Page { style: safe(STYLE), title: names.join(", "), experiments, command };
    rendered("reproduce.html", include_str!("reproduce.html"), &page)
}

fn experiment(result: &ExperimentResult) -> Experiment<'_> {
    Experiment {
        name: &result.experiment,
        question: with_code(&result.question),
        finding: with_code(&result.finding),
        version: &result.trimwise,
        seed: result.seed,
        reps: result.reps,
        claims: result
            .claims
            .iter()
            .map(|c| ClaimLine {
                id: c.id,
                text: &c.text,
                met: c.met,
                published: words(&c.published),
                measured: words(&c.measured),
            })
            .collect(),
        blocks: blocks(&result.rows)
            .into_iter()
            .map(|b| Block { title: b.title, header: b.header, rows: b.rows })
            .collect(),
        errors: error_summary(&result.rows).join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::fabricated;

    #[test]
    fn an_unmet_claim_is_said_plainly_and_text_is_escaped() {
        let mut result = fabricated::experiment();
        result.question = "<script>alert(1)</script>".to_string();
        let page = html(&[result], "trimwise reproduce --all").unwrap();
        assert!(page.contains("not met</td>"));
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
        assert!(page.contains("2628.50"), "the published figure");
        if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_REPRODUCE") {
            std::fs::write(path, &page).unwrap();
        }
    }
}
