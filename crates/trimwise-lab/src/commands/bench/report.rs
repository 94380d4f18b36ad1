//! The report of `bench`.

use serde::Serialize;
use trimwise::failure::{Failure, Mistake};

use crate::commands::bench::BenchReport;
use crate::commands::bench::table::{HEADER, blocks, heading, notes, partial, rows, said, verdict};
use trimwise_cli::figures::{NONE, nanoseconds, significant};
use trimwise_cli::report::chart::{Chart, Styles};
use trimwise_cli::report::pair::{NAMES, Page, Run, Section, change};
use trimwise_cli::report::{Figure, plots, rendered, with_code};
use trimwise_cli::table::plot::Block;

#[derive(Serialize)]
struct Whole<'a> {
    title: &'a str,
    heading: String,
    said: String,
    verdict: String,
    partial: Option<String>,
    notes: &'a [String],
    header: [&'static str; HEADER.len()],
    rows: Vec<Vec<String>>,
    tests: Vec<Test<'a>>,
    version: &'a str,
    command: &'a str,
}

#[derive(Serialize)]
struct Test<'a> {
    name: &'a str,
    notes: Vec<String>,
    figures: Vec<Figure>,
    blocks: Vec<Block>,
}

impl Test<'_> {
    fn has_more(&self) -> bool {
        !(self.notes.is_empty() && self.figures.is_empty() && self.blocks.is_empty())
    }
}

pub fn html(report: &BenchReport) -> Result<String, Failure> {
    let mut styles = Styles::default();
    let tests = report.results.tests.iter().map(|test| {
        Ok(Test {
            name: &test.test,
            notes: notes(test),
            figures: test
                .plots
                .iter()
                .map(|plot| Figure::of_plot(plot, &mut styles))
                .collect::<Result<_, Failure>>()?,
            blocks: blocks(test),
        })
    });
    let page = Whole {
        title: &report.results.device.name,
        heading: heading(report),
        said: said(report),
        verdict: verdict(report),
        partial: partial(report),
        notes: &report.results.notes,
        header: HEADER,
        rows: report.results.tests.iter().flat_map(rows).collect(),
        // A test whose findings are all in the table above gets no section of its own.
        tests: tests
            .filter(|test: &Result<Test, Failure>| test.as_ref().map_or(true, Test::has_more))
            .collect::<Result<_, _>>()?,
        version: &report.trimwise,
        command: &report.settings.command,
    };
    rendered(include_str!("report.html"), &page)
}

/// Renders two runs side by side. Fails if they have no test in common.
pub fn pair(reports: [(&str, &BenchReport); 2]) -> Result<String, Failure> {
    let [(file_a, a), (file_b, b)] = reports;
    let mut styles = Styles::default();
    let mut sections = Vec::new();
    let (mut faster, mut slower, mut same) = (0, 0, 0);
    for (number, test) in a.results.tests.iter().enumerate() {
        // A test may run several times: its nth run is compared with the other's nth run.
        let nth = a.results.tests[..number].iter().filter(|earlier| earlier.test == test.test).count();
        let mut others = b.results.tests.iter().filter(|other| other.test == test.test);
        let Some(other) = others.nth(nth) else { continue };
        let mut rows = Vec::new();
        for m in &test.measured {
            let Some(n) = other.measured.iter().find(|n| n.what == m.what) else { continue };
            let rate = [m, n].map(|m| m.throughput_mb_per_s);
            match rate {
                [Some(a), Some(b)] if b > a * (1.0 + NEAR) => faster += 1,
                [Some(a), Some(b)] if b < a * (1.0 - NEAR) => slower += 1,
                [Some(_), Some(_)] => same += 1,
                _ => {}
            }
            let p99 = [m, n].map(|m| m.latency.as_ref().map(|latency| latency.p99_ns as f64));
            let shown =
                |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or(NONE.to_owned(), show);
            rows.push([
                m.what.clone(),
                shown(rate[0], &significant),
                shown(rate[1], &significant),
                change(rate[0], rate[1]),
                shown(p99[0], &nanoseconds),
                shown(p99[1], &nanoseconds),
                change(p99[0], p99[1]),
            ]);
        }
        let header = ["", "MB/s, A", "MB/s, B", "B vs A", "p99, A", "p99, B", "B vs A"];
        let blocks = if rows.is_empty() { Vec::new() } else { vec![Block::new("B against A", header, rows)] };
        let pairs = test.plots.iter().filter_map(|plot| {
            let other =
                other.plots.iter().find(|other| other.title == plot.title && other.kind == plot.kind)?;
            Some(plots::of_runs(&[(NAMES[0], plot), (NAMES[1], other)], &mut styles))
        });
        let charts: Vec<Chart> = pairs.collect();
        sections.push(Section::of(format!("{}. {}", sections.len() + 1, test.test), blocks, &charts)?);
    }
    if sections.is_empty() {
        let why = format!("{file_a} and {file_b}: have no test in common");
        return Err(Mistake::that(why).expected("two runs of bench with at least one test in both").fail());
    }
    let verdict = format!(
        "Of {} rates in both, B has {faster} higher and {slower} lower by more than {:.0} %; {same} are within it.",
        faster + slower + same,
        NEAR * 100.0
    );
    let run = |file: &str, report: &BenchReport| Run {
        file: file.to_owned(),
        what: format!("{}, trimwise {}", heading(report), report.trimwise),
        verdict: with_code(&partial(report).unwrap_or_default()),
        command: report.settings.command.clone(),
    };
    let settings = [a, b].map(|report| {
        vec![
            ("target", report.settings.target.clone()),
            ("tests", report.settings.tests.join(" ")),
            ("data", report.settings.content.to_string()),
            ("seed", report.settings.seed.to_string()),
            ("version", report.trimwise.to_string()),
        ]
    });
    Page::html(&verdict, [run(file_a, a), run(file_b, b)], settings, sections, Vec::new())
}

/// Rates that differ by less than this are called equal.
const NEAR: f64 = 0.05;
