//! `trimwise sweep`: every cell of a grid, once, whatever happens in between.
//!
//! Each finished cell is a file of its own, so any number of processes on any number of computers can share the work,
//! and a killed one loses only the cells that it was in. The data set is made from those files in the order of the
//! cells. So its bytes depend on nothing but the grid.

pub mod arguments;
mod columns;
mod folder;
mod grid;
pub mod report;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trimwise::compare::ledger::compare_with_off;
use trimwise::compare::result::{Cell, Measure};
use trimwise::compare::summary::{Summary as CellSummary, SummaryRow};
use trimwise::compare::verdict;
use trimwise::policy::PolicyId;
use trimwise_lab::experiment::Report;
use trimwise_lab::failure::Failure;
use trimwise_lab::pool;

use crate::figures::{counted, thousands};
use crate::output::{self, Destinations};
use crate::progress::Progress;
use crate::table;
use arguments::{Shard, SweepArguments};
use folder::{Folder, Found, Outcome};
use grid::{Grid, Place};
use trimwise_study::caller::OnInterrupt;

/// What a sweep did, as `--json` writes it; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The version of trimwise.
    trimwise: Cow<'static, str>,
    /// The grid's file.
    grid: String,
    /// The folder.
    out: String,
    /// How the number of cells comes about.
    product: String,
    /// Cells of the grid.
    cells: u64,
    /// Which share was asked for.
    shard: Option<String>,
    /// Cells of that share.
    shard_cells: u64,
    /// Those of them that were finished before.
    found_cells: u64,
    /// Those of them whose files were not whole or not theirs, and which were run again.
    broken_cells: u64,
    /// Those of them that were run now.
    run_cells: u64,
    /// Those of them that failed, now or before.
    failed_cells: u64,
    /// Cells of the grid that the folder does not have.
    missing_cells: u64,
    /// The files of the data set.
    parts: Vec<String>,
    /// The failed cells of the share.
    failures: Vec<FailedCell>,
    /// What the finished cells of the grid say about each device, workload and utilization.
    #[serde(default)]
    cases: Vec<Case>,
    /// Why cells of the share are missing.
    #[serde(skip)]
    ended_by: Option<Failure>,
}

/// A workload on a device at a utilization, under each policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Case {
    device: String,
    workload: String,
    utilization_percent: u8,
    /// What policies are judged by.
    measure: Measure,
    /// The policy to use; null if the runs cannot tell.
    policy: Option<PolicyId>,
    /// A row for each policy, as in the JSON of `compare`: medians over seeds and repetitions.
    rows: Vec<SummaryRow>,
}

/// A cell without figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FailedCell {
    cell: u64,
    device: String,
    policy: PolicyId,
    workload: String,
    utilization_percent: u8,
    seed: u64,
    rep: u32,
    error: String,
}

/// Runs the command and returns what to print. `on_signal` installs the handler for Ctrl-C and returns the flag that it
/// raises.
pub fn run(
    arguments: &SweepArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check(&arguments.output)?;
    destinations.expect_outside("--out", &arguments.out)?;
    let grid = Grid::read(&arguments.grid)?;
    let summary = if arguments.dry_run {
        Summary::of(&grid, arguments)
    } else {
        let folder = Folder::open(&arguments.out, &grid)?;
        let stop = on_signal(OnInterrupt::StopAndShow)?;
        let mut summary = sweep(&grid, &folder, arguments, &stop)?;
        if destinations.wants_report() || arguments.output.json.is_some() {
            summary.cases = cases(&grid, &folder)?;
        }
        summary
    };
    let html = || report::html(&summary);
    let text = destinations.deliver_with_report(&summary, html, || summary.text(arguments.dry_run))?;
    let failure = summary.ended_by.clone().or_else(|| summary.failure());
    match failure {
        None => Ok(text),
        Some(failure) => output::print(&text).and(Err(failure)),
    }
}

/// Runs the cells of the share that are missing, and writes the data set.
fn sweep(
    grid: &Grid,
    folder: &Folder,
    arguments: &SweepArguments,
    stop: &AtomicBool,
) -> Result<Summary, Failure> {
    let mut summary = Summary::of(grid, arguments);
    let share = arguments.shard.unwrap_or(Shard::WHOLE);
    let mut left = Vec::new();
    for cell in (0..grid.description.cells).filter(|cell| share.has(cell / grid.cells_per_group())) {
        match folder.look(cell)? {
            Found::Done(Outcome::Result(_)) => summary.found_cells += 1,
            Found::Done(Outcome::Error(error)) => {
                summary.found_cells += 1;
                summary.failures.push(FailedCell::of(grid, cell, error));
            }
            Found::Missing => left.push(cell),
            Found::Broken => {
                summary.broken_cells += 1;
                left.push(cell);
            }
        }
    }
    let largest = grid.devices().map(pool::memory_of_run).max().unwrap_or_default();
    let jobs = arguments.output.jobs.map_or_else(|| pool::default_jobs(largest), usize::from);
    let progress = Progress::of(left.len(), "cells");
    let (ran, ended_by) = pool::run_finished(jobs, left.len(), |index| {
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted);
        }
        progress.begin_ageing(index);
        let outcome = run_cell(&grid.place(left[index]), progress.report(index))?;
        folder.enter(left[index], &outcome)?;
        progress.done(index);
        Ok(match outcome {
            Outcome::Result(_) => None,
            Outcome::Error(error) => Some(FailedCell::of(grid, left[index], error)),
        })
    });
    progress.finish();
    summary.run_cells = ran.len() as u64;
    summary.failures.extend(ran.into_iter().flatten());
    summary.failures.sort_by_key(|failed| failed.cell);
    summary.failed_cells = summary.failures.len() as u64;
    summary.ended_by = ended_by;
    write_parts(grid, folder, &mut summary)?;
    Ok(summary)
}

/// Runs a cell; whatever goes wrong inside is its outcome.
fn run_cell(place: &Place, report: Report) -> Result<Outcome, Failure> {
    let pair = (place.device.1, place.policy);
    let ran = catch_unwind(AssertUnwindSafe(|| place.plan.run_seeded(pair, place.seed, place.rep, report)));
    Ok(match ran {
        Ok(Ok(mut cell)) => {
            // Series have no place in a table.
            cell.latency_quantiles_ns.clear();
            if let Some(device) = &mut cell.device_stats {
                device.timeline.clear();
                device.blocks = None;
            }
            Outcome::Result(Box::new(cell))
        }
        Ok(Err(Failure::Interrupted)) => return Err(Failure::Interrupted),
        Ok(Err(Failure::Usage(why) | Failure::Run(why))) => Outcome::Error(why),
        Err(panic) => Outcome::Error(Failure::defect(&*panic).to_string()),
    })
}

/// Writes the data set from the cells that are there. Another process may add cells meanwhile: then once more.
fn write_parts(grid: &Grid, folder: &Folder, summary: &mut Summary) -> Result<(), Failure> {
    let cells = grid.description.cells;
    loop {
        let before = folder.count(cells);
        let mut found = 0;
        let mut stray = None;
        summary.parts.clear();
        for part in 0..folder.parts(cells) {
            let rows = rows_of(grid, folder, folder.cells_of(part, cells))?;
            if rows.is_empty() {
                stray = stray.or_else(|| folder.stray_part(part));
            } else {
                found += rows.len() as u64;
                let bytes = columns::parquet(&rows).map_err(Failure::run)?;
                summary.parts.push(folder.write_part(part, &bytes)?);
            }
        }
        summary.missing_cells = cells - found;
        if folder.count(cells) == before {
            stray.map_or(Ok(()), Err)?;
            break;
        }
    }
    if summary.missing_cells == 0 {
        folder.clean(cells);
    }
    Ok(())
}

/// The rows of those of these cells that are there. They are whole groups, so savings can be entered.
fn rows_of(grid: &Grid, folder: &Folder, cells: std::ops::Range<u64>) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    for begin in cells.clone().step_by(grid.cells_per_group() as usize) {
        let (mut numbers, mut results) = (Vec::new(), Vec::new());
        for cell in begin..(begin + grid.cells_per_group()).min(cells.end) {
            match folder.look(cell)? {
                Found::Done(Outcome::Result(result)) => {
                    numbers.push(cell);
                    results.push(*result);
                }
                Found::Done(Outcome::Error(error)) => rows.push(row(grid, cell, Err(error))?),
                Found::Missing | Found::Broken => {}
            }
        }
        compare_with_off(&mut results);
        for (cell, result) in numbers.into_iter().zip(results) {
            rows.push(row(grid, cell, Ok(result))?);
        }
    }
    rows.sort_by_key(|row| row["cell"].as_u64());
    Ok(rows)
}

/// Summarises the finished cells of each device, workload and utilization: their numbers follow each other.
fn cases(grid: &Grid, folder: &Folder) -> Result<Vec<Case>, Failure> {
    let per_case = grid.cells_per_case();
    let mut cases = Vec::new();
    for begin in (0..grid.description.cells).step_by(per_case as usize) {
        let mut cells = Vec::new();
        for cell in begin..begin + per_case {
            if let Found::Done(Outcome::Result(result)) = folder.look(cell)? {
                cells.push(*result);
            }
        }
        compare_with_off(&mut cells);
        let summary = CellSummary::of(&cells);
        let Some(verdict) = verdict::of_summary(&summary) else { continue };
        let Place { device, workload, plan, .. } = grid.place(begin);
        cases.push(Case {
            device: device.0.to_owned(),
            workload: workload.to_owned(),
            utilization_percent: plan.utilization_percent,
            measure: summary.measure,
            policy: verdict.policy,
            rows: summary.rows(),
        });
    }
    Ok(cases)
}

/// A row, as [`columns`] find its figures.
fn row(grid: &Grid, cell: u64, outcome: Result<Cell, String>) -> Result<Value, Failure> {
    let Place { device, policy, workload, plan, seed, rep } = grid.place(cell);
    let mut row = json!({
        "cell": cell,
        "device": device.0,
        "policy": PolicyId::from(policy),
        "workload": workload,
        "utilization_percent": plan.utilization_percent,
        "seed": seed,
        "rep": rep,
    });
    match outcome {
        Ok(cell) => {
            row["measure"] = cell.measure().to_string().into();
            row["measured_ns"] = cell.measured_ns().into();
            row["figures"] = columns::figures(&cell);
            row["result"] = serde_json::to_value(cell).map_err(Failure::run)?;
        }
        Err(error) => row["error"] = error.into(),
    }
    Ok(row)
}

impl FailedCell {
    fn of(grid: &Grid, cell: u64, error: String) -> Self {
        let Place { device, policy, workload, plan, seed, rep } = grid.place(cell);
        Self {
            cell,
            device: device.0.to_owned(),
            policy: policy.into(),
            workload: workload.to_owned(),
            utilization_percent: plan.utilization_percent,
            seed,
            rep,
            error,
        }
    }
}

impl Summary {
    fn of(grid: &Grid, arguments: &SweepArguments) -> Self {
        let description = &grid.description;
        let share = arguments.shard.unwrap_or(Shard::WHOLE);
        let groups = description.cells / grid.cells_per_group();
        let shard_cells =
            (0..groups).filter(|&group| share.has(group)).count() as u64 * grid.cells_per_group();
        Self {
            trimwise: trimwise::VERSION.into(),
            grid: grid.file.clone(),
            out: arguments.out.display().to_string(),
            product: description.product(),
            cells: description.cells,
            shard: arguments.shard.map(|shard| shard.to_string()),
            shard_cells,
            found_cells: 0,
            broken_cells: 0,
            run_cells: 0,
            failed_cells: 0,
            missing_cells: description.cells,
            parts: Vec::new(),
            failures: Vec::new(),
            cases: Vec::new(),
            ended_by: None,
        }
    }

    fn text(&self, is_dry: bool) -> String {
        let count = |cells: u64| thousands(cells as f64);
        let mut text = format!("{}: {}\n  {}\n", self.grid, counted(self.cells, "cell"), self.product);
        if let Some(shard) = &self.shard {
            text += &format!("shard {shard}: {}\n", counted(self.shard_cells, "cell"));
        }
        if is_dry {
            return text;
        }
        text += &format!("{} run now, {} finished before", count(self.run_cells), count(self.found_cells));
        if self.broken_cells > 0 {
            text += &format!("; not whole, and done again: {}", count(self.broken_cells));
        }
        text += "\n";
        if self.missing_cells > 0 {
            text += &format!("{} cells of the grid are missing\n", count(self.missing_cells));
        }
        const SHOWN: usize = 5;
        for failed in self.failures.iter().take(SHOWN) {
            text += &format!("cell {} failed: {}\n", failed.cell, table::plain(&failed.error));
        }
        if self.failures.len() > SHOWN {
            text += &format!("and {} more; column `error` has all of them\n", self.failures.len() - SHOWN);
        }
        match &self.parts[..] {
            [] => {}
            [one] => text += &format!("{}/{one}\n", self.out),
            [first, .., last] => text += &format!("{}/{first} to {last}\n", self.out),
        }
        text
    }

    fn failure(&self) -> Option<Failure> {
        let failed = self.failed_cells;
        (failed > 0).then(|| Failure::run(format!("{failed} of {} cells failed", self.shard_cells)))
    }
}
