//! The report of `bench`.

use serde::Serialize;
use trimwise_lab::failure::Failure;

use crate::commands::bench::BenchReport;
use crate::commands::bench::table::{HEADER, blocks, heading, notes, partial, rows, said};
use crate::report::chart::Styles;
use crate::report::{Figure, rendered};
use crate::table::plot::Block;

#[derive(Serialize)]
struct Page<'a> {
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

/// Renders the whole file.
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
    let page = Page {
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
    rendered(include_str!("report.html"), &page)
}
