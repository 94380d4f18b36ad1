//! The page of a tournament.

use crate::plot::Axis;
use crate::requests::tournament::{Row, Tournament};
use minijinja::Value;
use serde::Serialize;
use trimwise::failure::Failure;

use super::{HEADER, cells, legend, named, rows, verdict};
use trimwise::policy::PolicyId;
use trimwise_cli::figures::{change, time};
use trimwise_cli::report::chart::{Chart, Dot, Drawing, Start, Styles};
use trimwise_cli::report::{Figure, rendered, with_code};
use trimwise_cli::table::plot::Block;

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    verdict: Value,
    standings: Block,
    legend: Value,
    figures: Vec<Figure>,
    disqualified: Vec<[String; 2]>,
    cases: Block,
    product: &'a str,
    grid: &'a str,
    made_by: String,
    version: &'a str,
    command: &'a str,
}

pub fn html(tournament: &Tournament) -> Result<String, Failure> {
    let page = Page {
        title: &tournament.rules,
        verdict: with_code(&verdict(tournament)),
        standings: Block::new("Standings", HEADER, rows(tournament)),
        legend: with_code(&legend()),
        // After a dry run there is nothing to draw.
        figures: if tournament.standings.is_empty() {
            Vec::new()
        } else {
            vec![Figure::of(&chart(tournament))?]
        },
        disqualified: tournament
            .disqualified
            .iter()
            .map(|out| [out.policy.to_string(), out.reason.clone()])
            .collect(),
        cases: cases(tournament),
        product: &tournament.cells,
        grid: &tournament.grid,
        made_by: tournament.made_by.line(),
        version: &tournament.trimwise,
        command: &tournament.command,
    };
    rendered(include_str!("report.html"), &page)
}

fn all(tournament: &Tournament) -> impl Iterator<Item = &Row> {
    tournament.standings.iter().chain(&tournament.bounds)
}

fn chart(tournament: &Tournament) -> Chart {
    let mut styles = Styles::default();
    let dot = |row: &Row| {
        let name = row.policy.to_string();
        Dot {
            style: styles.of(&name),
            name,
            value: row.time,
            interval: row.interval,
            runs: Vec::new(),
            figure: cells(row)[2].clone(),
            alike: row.interval.is_some_and(|(low, high)| low < 1.0 && high > 1.0),
        }
    };
    let caption = "The marker is the geometric mean over the cells, the thick line its 95 % interval. Further left is better. \
                   An outline without a line: no difference from off was found.";
    let ideal = all(tournament).find(|row| row.policy == PolicyId::IDEAL);
    Chart {
        title: "Time compared with off".to_owned(),
        caption: caption.to_owned(),
        drawing: Drawing::Dots {
            x: Axis::linear("time", "time", "x that of off"),
            y: Axis::linear("policy", "", ""),
            start: ideal.map_or(Start::Zero, |row| Start::Bound(row.time)),
            rows: all(tournament).map(dot).collect(),
        },
    }
}

/// Returns a row for each cell, with the time of each policy there.
fn cases(tournament: &Tournament) -> Block {
    let reference = tournament.reference.to_string();
    let header: Vec<String> = ["cell".to_owned(), reference]
        .into_iter()
        .chain(all(tournament).map(|row| row.policy.to_string()))
        .collect();
    let rows: Vec<Vec<String>> = tournament
        .cases
        .iter()
        .map(|case| {
            let times = case.times.iter().map(|ratio| change(ratio - 1.0));
            [named(case), time(case.reference_s)].into_iter().chain(times).collect()
        })
        .collect();
    Block { title: "Cells: the time of off, and how far the others are from it".to_owned(), header, rows }
}
