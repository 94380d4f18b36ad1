//! The report of `bench`.

use minijinja::Value;
use serde::Serialize;
use trimwise_lab::failure::Failure;

use crate::commands::bench::BenchReport;
use crate::commands::bench::table::{HEADER, blocks, heading, notes, partial, rows, said};
use crate::report::plots::{Figure, figure};
use crate::report::{STYLE, rendered, safe};

#[derive(Serialize)]
struct Page<'a> {
    style: Value,
    title: &'a str,
    heading: String,
    said: String,
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

#[derive(Serialize)]
struct Block {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Renders the whole file.
pub fn html(report: &BenchReport) -> Result<String, Failure> {
    let tests = report.results.tests.iter().map(|test| {
        let table = |b: crate::table::plot::Block| Block { title: b.title, header: b.header, rows: b.rows };
        Ok(Test {
            name: &test.test,
            notes: notes(test),
            figures: test.plots.iter().map(figure).collect::<Result<_, Failure>>()?,
            blocks: blocks(test).into_iter().map(table).collect(),
        })
    });
    let page = Page {
        style: safe(STYLE),
        title: &report.results.device.name,
        heading: heading(report),
        said: said(report),
        partial: partial(report),
        notes: &report.results.notes,
        header: HEADER,
        rows: report.results.tests.iter().flat_map(rows).collect(),
        tests: tests.collect::<Result<_, Failure>>()?,
        version: report.trimwise,
        command: &report.settings.command,
    };
    rendered("bench.html", include_str!("report.html"), &page)
}
