//! `sweep`: runs every cell of a grid once, however often it is interrupted.
//!
//! Each finished cell is a file of its own. So any number of processes on any number of computers can share the work,
//! and a killed one loses only the cells that it was running. The data set is made from those files in the order of the
//! cells. So its bytes depend on nothing but the grid.

pub mod columns;
mod folder;
mod grid;
pub mod on_kernel;
#[cfg(feature = "parquet")]
mod parquet_file;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trimwise::compare::judge::{Decision, Frame, judge};
use trimwise::compare::ledger::compare_with_off;
use trimwise::compare::result::{Cell, Measure};
use trimwise::compare::summary::{PolicySummary, Summary as CellSummary, SummaryRow};
use trimwise::compare::verdict;
use trimwise::failure::{Failure, Mistakes, set};
use trimwise::numbers::counted;
use trimwise::policy::{PolicyId, PolicySpec, Trimmer};
use trimwise::units::Utilization;
use trimwise_linux::file_system::FileSystem;
use trimwise_linux::pool;

use crate::as_text;
use crate::caller::{self, Caller, OnInterrupt, Progress, Silent};
use crate::check::{JOBS, within};
use crate::compare::Comparison;
use crate::guest_limits::GuestLimits;
use crate::laboratory::Laboratory;
use crate::whole::{Kind, Whole};
pub use columns::Row;
use folder::Found;
pub use folder::{Folder, Outcome};
pub use grid::{Grid, Named, Own};
use grid::{On, Place};
use on_kernel::Kernels;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepRequest {
    /// In TOML.
    pub grid: PathBuf,
    /// The folder of the results, new or of an equal grid.
    pub out: PathBuf,
    pub is_dry: bool,
    /// `None`: all cells.
    #[serde(with = "as_text::option")]
    pub shard: Option<Shard>,
    /// Whether the summary has the verdicts of the finished cells.
    pub wants_cases: bool,
    /// The model's ext4, which is the default, or another one on the closest kernel that is built.
    pub fs: Option<FileSystem>,
    pub limits: GuestLimits,
    /// Runs in parallel. The number does not change the result.
    pub jobs: Option<u16>,
}

/// A share of the cells: the groups `number - 1`, `number - 1 + of`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub number: u32,
    /// Number of shards.
    pub of: u32,
}

impl Shard {
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Returns whether the share has this group of cells.
    pub fn has(self, group: u64) -> bool {
        group % u64::from(self.of) == u64::from(self.number - 1)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shard = text
            .split_once('/')
            .and_then(|(number, of)| Some(Self { number: number.parse().ok()?, of: of.parse().ok()? }));
        let is_one = |shard: &Self| (1..=shard.of).contains(&shard.number);
        shard.filter(is_one).ok_or_else(|| "expected K/N with K from 1 to N, such as 3/64".to_owned())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub trimwise: Cow<'static, str>,
    pub grid: String,
    pub out: String,
    /// The number of cells as a product.
    pub product: String,
    pub cells: u64,
    pub shard: Option<String>,
    pub shard_cells: u64,
    /// Cells of the share that were finished before.
    pub found_cells: u64,
    /// Cells of the share that were run again, because their files were damaged or belonged to other cells.
    pub broken_cells: u64,
    /// Cells of the share that were run now.
    pub run_cells: u64,
    /// Cells of the share that failed, now or before.
    pub failed_cells: u64,
    /// Cells of the grid that the folder lacks.
    pub missing_cells: u64,
    pub parts: Vec<String>,
    pub failures: Vec<FailedCell>,
    /// Results of the finished cells for each device, workload and utilization.
    #[serde(default)]
    pub cases: Vec<Case>,
    /// Why cells of the share are missing.
    #[serde(skip)]
    pub ended_by: Option<Failure>,
    /// Whether the caller's own policy ended the sweep, and not the host.
    #[serde(skip)]
    pub is_out: bool,
}

/// Why a run under the caller's own policy has no result. It also unwinds through the model.
#[derive(Debug)]
pub enum Ended {
    /// The policy is at fault; the text says how.
    Out(String),
    /// Any other reason: the host failed, the model has a defect, or the user asked to stop.
    By(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::By(failure)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    pub device: String,
    pub workload: String,
    /// Fullness of the file system before the run.
    #[serde(rename = "utilization_percent")]
    pub utilization: Utilization,
    /// The objective of policies.
    pub measure: Measure,
    /// What was judged; `None` in results of older versions, which had another rule.
    #[serde(default)]
    pub decision: Option<Decision>,
    /// The policy to use; `None` if the runs cannot tell.
    pub policy: Option<PolicyId>,
    /// The verdict in words; empty in results of older versions.
    #[serde(default)]
    pub verdict: String,
    /// Where and why the trace ended early, if the workload is a damaged one.
    #[serde(default)]
    pub cut_off: Option<String>,
    /// A row for each policy, as in the JSON of `compare`: medians over seeds and repetitions.
    pub rows: Vec<SummaryRow>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedCell {
    pub cell: u64,
    pub device: String,
    pub policy: PolicyId,
    pub workload: String,
    /// Fullness of the file system before the run.
    #[serde(rename = "utilization_percent")]
    pub utilization: Utilization,
    pub seed: u64,
    /// From 0.
    pub rep: u32,
    pub error: String,
}

/// Runs a sweep. File systems other than ext4 run in the laboratory.
///
/// # Errors
///
/// If the request is wrong, or its folder cannot be used. [`Summary::failure`] reports failed cells.
pub fn run(
    request: &SweepRequest,
    caller: &dyn Caller,
    laboratory: &dyn Laboratory,
) -> Result<Summary, Failure> {
    // The laboratory is always built with Parquet.
    let writes = cfg!(feature = "parquet") || request.is_dry || laboratory.missing().is_some();
    match request.fs {
        None | Some(FileSystem::Ext4) if writes => run_on(request, caller, None),
        _ => laboratory.sweep(request, caller),
    }
}

/// Runs a sweep in the model, or on the kernel that `kernels` chooses.
///
/// # Errors
///
/// See [`run`].
pub fn run_on(
    request: &SweepRequest,
    caller: &dyn Caller,
    kernels: Option<&dyn Kernels>,
) -> Result<Summary, Failure> {
    let no_guest = request.fs.is_none_or(|fs| fs == FileSystem::Ext4);
    let limits = match request.limits.are_given() && no_guest {
        true => Err(GuestLimits::only_for_guests(set("fs", "xfs, btrfs or f2fs"))),
        false => request.limits.check(),
    };
    Mistakes::of([within("jobs", request.jobs, &JOBS), limits])?;
    let grid = Grid::read(request, kernels)?;
    if request.is_dry {
        return Ok(Summary::of(&grid, request));
    }
    // A data set that cannot be written is reported before the first run.
    file_of(&[])?;
    let folder = Folder::open(&request.out, &grid, false)?;
    grid.workloads().for_each(|workload| workload.tell_notes(caller));
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    let mut summary = sweep(&grid, &folder, request, caller, &stop)?;
    if request.wants_cases {
        summary.cases = cases(&grid, &folder)?;
    }
    Ok(summary)
}

/// Runs the missing cells of the share, and writes the data set. A cell that fails is recorded as such. Under the
/// caller's own policy it ends the sweep instead, without a data set.
pub fn sweep(
    grid: &Grid,
    folder: &Folder,
    request: &SweepRequest,
    caller: &dyn Caller,
    stop: &Arc<AtomicBool>,
) -> Result<Summary, Failure> {
    let mut summary = Summary::of(grid, request);
    let share = request.shard.unwrap_or(Shard::WHOLE);
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
    let jobs = request.jobs.map_or_else(|| grid.default_jobs(), usize::from);
    let again = AtomicUsize::new(0);
    let what =
        grid.description.own.first().map_or("cells".to_owned(), |own| format!("cells of {}", own.name));
    let whole = Whole::of(caller, stop, &what, &[kind(grid, &left, jobs)]);
    if let Some(On::Kernel(plans, _)) = left.first().map(|cell| grid.place(*cell).on) {
        whole.announce(&plans.title());
    }
    let progress = whole.part(0).progress(left.len(), &what);
    let (ran, ended_by) = pool::run_finished(jobs, left.len(), |index| {
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted.into());
        }
        progress.begin_ageing(index);
        let ran = run_cell(&grid.place(left[index]), (&progress, index), stop)?;
        let failed = match ran {
            Ran::Done(outcome) => {
                folder.enter(left[index], &outcome)?;
                match outcome {
                    Outcome::Result(_) => None,
                    Outcome::Error(error) => Some(error),
                }
            }
            Ran::BrokenOff(error) => {
                again.fetch_add(1, Ordering::Relaxed);
                Some(error)
            }
        };
        progress.done(index);
        Ok(failed.map(|error| FailedCell::of(grid, left[index], error)))
    });
    drop(whole);
    let again = again.into_inner() as u64;
    if again > 0 {
        caller.note(&format!(
            "{} did not end by itself: the same command runs it again",
            counted(again, "guest")
        ));
    }
    summary.run_cells = ran.len() as u64;
    summary.failures.extend(ran.into_iter().flatten());
    summary.failures.sort_by_key(|failed| failed.cell);
    summary.failed_cells = summary.failures.len() as u64;
    summary.is_out = matches!(ended_by, Some(Ended::Out(_)));
    summary.ended_by = ended_by.map(|ended| match ended {
        Ended::Out(why) => Failure::run(why),
        Ended::By(failure) => failure,
    });
    // Which cells had begun before one failed depends on the number of parallel cells.
    if summary.ended_by.is_none() || !grid.is_own() {
        write_parts(grid, folder, &mut summary)?;
    }
    Ok(summary)
}

/// The cells to run, with the mean of their expected times if they run on a kernel.
fn kind(grid: &Grid, left: &[u64], jobs: usize) -> Kind {
    let expected = |cell: &u64| match grid.place(*cell).on {
        On::Kernel(plans, of) => Some(plans.expected(of)),
        On::Model(..) | On::Own(..) => None,
    };
    let expected: Option<Duration> = left.iter().map(expected).sum();
    let count = u32::try_from(left.len()).unwrap_or(u32::MAX);
    Kind { expected: expected.and_then(|all| all.checked_div(count)), ..Kind::of(left.len(), jobs) }
}

#[derive(Debug)]
pub enum Ran {
    /// An outcome that is equal in every run.
    Done(Outcome),
    /// Why the guest did not end by itself. Another run may succeed.
    BrokenOff(String),
}

/// Runs a cell. Any failure inside is its outcome.
fn run_cell(
    place: &Place,
    (progress, index): (&Arc<dyn Progress>, usize),
    stop: &Arc<AtomicBool>,
) -> Result<Ran, Ended> {
    let (plan, policy, trimmer) = match &place.on {
        On::Model(plan, trimmer) => (plan, None, *trimmer),
        On::Own(plan, policy) => (plan, Some((*policy).clone()), Trimmer::Kernel(PolicySpec::OFF)),
        On::Kernel(plans, of) => {
            progress.update(index, 0, 1);
            return Ok(plans.run(*of, stop)?);
        }
    };
    let run = || {
        let report = caller::report(progress, index);
        let (device, seed, rep) = (place.device.1, place.seed, place.rep);
        match policy {
            Some(own) => plan.run_policy((device, own), trimmer, (seed, rep), report, stop),
            None => plan.run_seeded((device, trimmer), seed, rep, report, stop),
        }
    };
    let Place { device, workload, utilization: full, seed, .. } = place;
    let out = |why: &dyn fmt::Display| {
        Ended::Out(format!("{}, {workload}, {full} % full, seed {seed}: {why}", device.0))
    };
    let is_own = matches!(place.on, On::Own(..));
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(cell)) => Ok(Ran::Done(result(cell))),
        Ok(Err(Failure::Interrupted)) => Err(Failure::Interrupted.into()),
        // A failure of the model itself repeats: the policy has led it there.
        Ok(Err(failure)) if is_own => Err(out(&failure)),
        Ok(Err(failure)) => Ok(Ran::Done(Outcome::Error(failure.to_string()))),
        Err(panic) => match panic.downcast::<Ended>() {
            Ok(ended) => Err(match *ended {
                Ended::Out(why) => out(&why),
                ended @ Ended::By(_) => ended,
            }),
            Err(panic) if is_own => Err(Failure::defect(&*panic).into()),
            Err(panic) => Ok(Ran::Done(Outcome::Error(Failure::defect(&*panic).to_string()))),
        },
    }
}

/// Returns whether the first cell of a finished sweep has an equal result when run again. The second result is stored
/// after the last cell.
///
/// # Errors
///
/// Why the cell has no result.
pub fn repeats(grid: &Grid, folder: &Folder, stop: &Arc<AtomicBool>) -> Result<bool, Ended> {
    let second = grid.description.cells;
    if !matches!(folder.look(second)?, Found::Done(_)) {
        let silent = Silent::default().progress(1, "cells");
        match run_cell(&grid.place(0), (&silent, 0), stop)? {
            Ran::Done(outcome) => folder.enter(second, &outcome)?,
            Ran::BrokenOff(why) => return Err(Failure::run(why).into()),
        }
    }
    let text = |cell| match folder.look(cell)? {
        Found::Done(outcome) => serde_json::to_string(&outcome).map_err(Failure::run),
        Found::Missing | Found::Broken => Err(Failure::run(format!("cell {cell} is missing"))),
    };
    Ok(text(0)? == text(second)?)
}

pub fn results(grid: &Grid, folder: &Folder) -> Result<Vec<Result<Cell, String>>, Failure> {
    let of = |cell| match folder.look(cell)? {
        Found::Done(Outcome::Result(cell)) => Ok(Ok(*cell)),
        Found::Done(Outcome::Error(why)) => Ok(Err(why)),
        Found::Missing | Found::Broken => Ok(Err(format!("cell {cell} is missing"))),
    };
    (0..grid.description.cells).map(of).collect()
}

/// A result as the folder keeps it.
pub fn result(mut cell: Cell) -> Outcome {
    // Series have no place in a table.
    cell.latency_quantiles_ns.clear();
    if let Some(device) = &mut cell.device_stats {
        device.timeline.clear();
        device.blocks = None;
    }
    Outcome::Result(Box::new(cell))
}

/// Writes the data set from the existing cells. If another process adds cells meanwhile, it is written again.
fn write_parts(grid: &Grid, folder: &Folder, summary: &mut Summary) -> Result<(), Failure> {
    let cells = grid.description.cells;
    let scan = || {
        let mut found = 0;
        let mut stray = None;
        summary.parts.clear();
        for part in 0..folder.parts(cells) {
            let rows = rows_of(grid, folder, folder.cells_of(part, cells))?;
            if rows.is_empty() {
                stray = stray.or_else(|| folder.stray_part(part));
            } else {
                found += rows.len() as u64;
                let bytes = file_of(&rows)?;
                summary.parts.push(folder.write_part(part, &bytes)?);
            }
        }
        summary.missing_cells = cells - found;
        Ok(stray)
    };
    until_unchanged(|| folder.count(cells), scan)?.map_or(Ok(()), Err)?;
    if summary.missing_cells == 0 {
        folder.clean(cells);
    }
    Ok(())
}

#[cfg(feature = "parquet")]
fn file_of(rows: &[Value]) -> Result<Vec<u8>, Failure> {
    parquet_file::written(rows).map_err(Failure::run)
}

/// Without Parquet, no data set can be written.
#[cfg(not(feature = "parquet"))]
fn file_of(_: &[Value]) -> Result<Vec<u8>, Failure> {
    use trimwise::failure::{Mistake, key};
    use trimwise::words;

    let has_it = "the program trimwise-lab next to it, which has it (`cargo install --path crates/trimwise-lab`, or a \
                  package), or `cargo install --path crates/trimwise-cli --features parquet`. ";
    Err(Mistake::on("out")
        .because("the data set is Parquet, which this trimwise was built without")
        .expected(words![has_it, key("is_dry"), " counts the cells without it"])
        .fail())
}

/// Scans until the count before and after a scan is equal; returns the result of that scan.
fn until_unchanged<T>(
    count: impl Fn() -> u64,
    mut scan: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    loop {
        let before = count();
        let found = scan()?;
        if count() == before {
            return Ok(found);
        }
    }
}

/// The rows of the existing cells in a range of whole groups, so that savings can be entered.
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

/// Summarises the finished cells of each case; see [`Grid::cells_per_case`].
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
        let [device] = &summary.devices[..] else { continue };
        let frame = Frame::of_study(summary.measure, grid.description.days);
        let is_had = |p: &PolicySummary| p.means.is_attainable();
        let judged = judge(device, Some(&summary.baseline), false, is_had, frame);
        let Some(verdict) = verdict::verdict(&summary, std::slice::from_ref(&judged)) else { continue };
        let Place { device, workload, utilization, .. } = grid.place(begin);
        cases.push(Case {
            device: device.0.to_owned(),
            workload: workload.to_owned(),
            utilization,
            measure: summary.measure,
            decision: Some(if summary.frees_nothing() { Decision::CannotTell } else { judged.decision }),
            policy: verdict.policy,
            verdict: verdict.text,
            cut_off: cells.iter().find_map(Cell::cut_off).map(str::to_owned),
            rows: summary.rows(),
        });
    }
    Ok(cases)
}

fn row(grid: &Grid, cell: u64, outcome: Result<Cell, String>) -> Result<Value, Failure> {
    let Place { device, policy, workload, utilization, seed, rep, on } = grid.place(cell);
    let place = json!({
        "cell": cell,
        "target": on.target(),
        "device": device.0,
        "policy": policy,
        "workload": workload,
        "utilization_percent": utilization,
        "seed": seed,
        "rep": rep,
    });
    columns::row(place, outcome)
}

/// Returns the runs of a comparison as rows with the columns of a sweep.
pub fn rows(comparison: &Comparison) -> Result<Vec<Row>, Failure> {
    let Comparison { cells, settings, seed, .. } = comparison;
    let row = |(number, cell): (usize, &Cell)| {
        let place = json!({
            "cell": number,
            "target": cell.target,
            "device": cell.device,
            "policy": cell.policy,
            "workload": settings.workload,
            "utilization_percent": settings.utilization,
            "seed": seed,
            "rep": cell.rep,
        });
        columns::row(place, Ok(cell.clone())).map(Row)
    };
    cells.iter().enumerate().map(row).collect()
}

impl FailedCell {
    fn of(grid: &Grid, cell: u64, error: String) -> Self {
        let Place { device, policy, workload, utilization, seed, rep, .. } = grid.place(cell);
        Self {
            cell,
            device: device.0.to_owned(),
            policy: policy.clone(),
            workload: workload.to_owned(),
            utilization,
            seed,
            rep,
            error,
        }
    }
}

impl Summary {
    fn of(grid: &Grid, request: &SweepRequest) -> Self {
        let description = &grid.description;
        let share = request.shard.unwrap_or(Shard::WHOLE);
        let groups = description.cells / grid.cells_per_group();
        let shard_cells =
            (0..groups).filter(|&group| share.has(group)).count() as u64 * grid.cells_per_group();
        Self {
            trimwise: trimwise::VERSION.into(),
            grid: grid.file.clone(),
            out: request.out.display().to_string(),
            product: description.product(),
            cells: description.cells,
            shard: request.shard.map(|shard| shard.to_string()),
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
            is_out: false,
        }
    }

    /// Returns why the sweep is incomplete: it was stopped, or cells failed.
    pub fn failure(&self) -> Option<Failure> {
        let failed = self.failed_cells;
        let of_cells = || Failure::run(format!("{failed} of {} cells failed", self.shard_cells));
        self.ended_by.clone().or_else(|| (failed > 0).then(of_cells))
    }
}
