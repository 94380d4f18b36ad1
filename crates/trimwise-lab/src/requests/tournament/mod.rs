//! `tournament`: ranks trimwise's policies and the user's own over the same cells.
//!
//! The rules are a grid, as for a sweep. trimwise's policies are one sweep of that grid; each of the user's policies is
//! a sweep of its own, in a folder of its own, so that only a changed file runs again. The standings are computed from
//! the finished cells and depend on nothing but the rules, the version and the files.

mod entrants;
mod process;

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::made::MadeBy;
use serde::{Deserialize, Serialize};
use trimwise::compare::result::{Cell, Measure};
use trimwise::compare::standings::{self, Standing};
use trimwise::failure::{Failure, Mistake, Mistakes, argument, key};
use trimwise::policy::PolicyId;
use trimwise::units::Utilization;
use trimwise::words;

use entrants::Entrant;
use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::check::{GUEST_S, JOBS, within};
use trimwise_study::command_text::CommandText;
use trimwise_study::input;
use trimwise_study::place::check_directory;
use trimwise_study::sweep::{self, Ended, Folder, Grid, Named, Own, SweepRequest};

/// The file in the policies' folder that has the rules.
pub const RULES_FILE: &str = "tournament.toml";
/// The rules if there is no such file.
pub const RULES: &str = include_str!("rules.toml");
/// The name of those rules.
const BUILT_IN: &str = "built-in rules";
/// The default folder of results, inside the policies' folder.
const RESULTS: &str = "results";
/// Default number of seconds that a policy may think about an event.
pub const PATIENCE_S: u64 = 10;

/// A request for a tournament.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TournamentRequest {
    /// The folder of the policies and, unless the built-in rules apply, of the rules.
    pub dir: PathBuf,
    /// The folder of the results; `None` means `results` in the policies' folder.
    pub out: Option<PathBuf>,
    /// A checkout of trimwise's source, with whose library policies in Rust are compiled.
    pub source: Option<PathBuf>,
    /// Whether to run nothing.
    pub is_dry: bool,
    /// Whether to replace results of other rules or versions.
    pub replaces: bool,
    /// Seconds that a policy may think about an event; `None` means [`PATIENCE_S`].
    pub max_silence_s: Option<u64>,
    /// Runs at a time, without effect on the result.
    pub jobs: Option<u16>,
}

/// The standings, as `--json` writes them; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tournament {
    pub trimwise: String,
    /// The rules' file, or `built-in rules`.
    pub rules: String,
    /// The rules: a grid in TOML, as `sweep` reads it.
    pub grid: String,
    /// The factors whose product is the number of cells.
    pub cells: String,
    /// Seeds of all random numbers.
    pub seeds: Vec<u64>,
    /// The user's own policies.
    pub own: Vec<Named>,
    /// The policy whose time and flash are 1 in each cell.
    pub reference: PolicyId,
    /// The ranked policies, best first.
    pub standings: Vec<Row>,
    /// Bounds that no host can reach, which have no rank.
    pub bounds: Vec<Row>,
    pub disqualified: Vec<Disqualified>,
    /// The cells, in the order of the grid.
    pub cases: Vec<Case>,
    /// The code that decides the results.
    pub made_by: MadeBy,
    pub command: String,
}

/// A policy's place in the standings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The policy, or the file's name if it is the user's own.
    pub policy: PolicyId,
    /// The best and worst rank that are possible given the cells; `None` for a bound.
    pub rank: Option<(usize, usize)>,
    /// The geometric mean, over the cells, of its time relative to the reference's.
    pub time: f64,
    /// The 95 % interval of that mean; `None` if there are too few groups of cells.
    pub interval: Option<(f64, f64)>,
    /// Its largest ratio to the shortest time in a cell; `None` for a bound.
    pub worst: Option<f64>,
    /// The index of that cell in `cases`.
    pub worst_case: Option<usize>,
    /// Number of cells in which no other policy was faster; `None` for a bound.
    pub won: Option<usize>,
    /// The geometric mean, over the cells, of the flash written relative to the reference's.
    pub flash: f64,
}

/// A disqualified policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disqualified {
    /// The policy, or the file's name if it is the user's own.
    pub policy: PolicyId,
    /// The run, the event, and what was wrong.
    pub reason: String,
}

/// A device, a workload and a utilization: one cell of the standings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    pub device: String,
    pub workload: String,
    /// How full the file system is before the run.
    #[serde(rename = "utilization_percent")]
    pub utilization: Utilization,
    /// The measure that policies are judged by.
    pub measure: Measure,
    /// The reference's time: the geometric mean over seeds and repetitions.
    pub reference_s: f64,
    /// The policies' times relative to that: first the standings', then the bounds'.
    pub times: Vec<f64>,
}

/// What a policy achieved in each case.
struct Costs {
    policy: PolicyId,
    /// Time and flash relative to the reference's.
    costs: Vec<(f64, f64)>,
}

/// Runs a tournament. [`Tournament::failure`] says whether policies were disqualified.
pub fn run(request: &TournamentRequest, caller: &dyn Caller) -> Result<Tournament, Failure> {
    Mistakes::of([
        within("jobs", request.jobs, &JOBS),
        within("max_silence_s", request.max_silence_s, &GUEST_S),
        check_directory(argument("dir"), &request.dir),
    ])?;
    let rules = Rules::of(&request.dir)?;
    let grid = rules.grid()?;
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    let patience = Duration::from_secs(request.max_silence_s.unwrap_or(PATIENCE_S));
    let entrants = entrants::find(request, patience, &stop, caller)?;
    let mut tournament = rules.empty(&grid, request);
    tournament.own = entrants.iter().map(Entrant::named).collect();
    if request.is_dry {
        return Ok(tournament);
    }
    let out = request.out.clone().unwrap_or_else(|| request.dir.join(RESULTS));
    check_directory("out", &out)?;
    let played = Played { request, caller, stop: &stop };
    // Open all sweeps before the first run, so that a refusal costs no time.
    let built_in = played.open(grid, out.join("built-in"))?;
    let mut places = Vec::new();
    for entrant in &entrants {
        let place = |policy| {
            let own = Own { policy, sha256: entrant.sha256.clone() };
            played.open(rules.grid()?.of_own(own), out.join("own").join(&entrant.name))
        };
        let place = match entrant.policy() {
            Ok(policy) => Ok(place(policy)?),
            Err(why) => Err(why),
        };
        places.push((entrant.id(), place));
    }
    let mut own = Vec::new();
    for (policy, place) in places {
        match place {
            Ok(place) => match played.own(&place) {
                Ok(cells) => own.push((policy, cells)),
                Err(Ended::Out(reason)) => tournament.disqualified.push(Disqualified { policy, reason }),
                Err(Ended::By(failure)) => return Err(failure),
            },
            Err(reason) => tournament.disqualified.push(Disqualified { policy, reason }),
        }
    }
    let cells = match played.sweep(&built_in) {
        Ok(cells) => cells,
        Err(Ended::Out(why)) => return Err(Failure::run(why)),
        Err(Ended::By(failure)) => return Err(failure),
    };
    tournament.judge(&built_in.grid, cells, own)?;
    Ok(tournament)
}

/// The rules, with the file that they come from.
struct Rules {
    file: String,
    text: String,
}

impl Rules {
    fn of(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(RULES_FILE);
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(Self { file: BUILT_IN.to_owned(), text: RULES.to_owned() });
        }
        let file = path.display().to_string();
        let text = input::read(&file, argument("rules"), "a tournament's rules (TOML)", &[])?;
        Ok(Self { file, text })
    }

    fn grid(&self) -> Result<Grid, Failure> {
        let grid = Grid::parse(&self.text, &self.file, &SweepRequest::default(), None)?;
        if grid.description.policies.contains(&PolicyId::OFF) {
            return Ok(grid);
        }
        let line = self.text.lines().position(|line| line.trim_start().starts_with("policies"));
        let of = Mistake::on("policies").because("has no \"off\"");
        let of = of.expected("it: the others are compared with it");
        Err(of.at(&self.file, Some(1 + line.unwrap_or_default())).fail())
    }

    /// Returns the standings before any run.
    fn empty(&self, grid: &Grid, request: &TournamentRequest) -> Tournament {
        let mut command = CommandText::new("tournament");
        command.argument(request.dir.display());
        for (option, path) in [("--out", &request.out), ("--source", &request.source)] {
            if let Some(path) = path {
                command.option(option, path.display());
            }
        }
        if request.is_dry {
            command.argument("--dry-run");
        }
        if let Some(seconds) = request.max_silence_s {
            command.option("--max-silence", seconds);
        }
        let seeds = grid.description.seeds.clone();
        Tournament {
            trimwise: trimwise::VERSION.to_owned(),
            rules: self.file.clone(),
            grid: self.text.clone(),
            cells: grid.description.product(),
            made_by: MadeBy::model(seeds.first().copied().unwrap_or_default()),
            seeds,
            own: Vec::new(),
            reference: PolicyId::OFF,
            standings: Vec::new(),
            bounds: Vec::new(),
            disqualified: Vec::new(),
            cases: Vec::new(),
            command: command.into_text(),
        }
    }
}

/// Whatever all sweeps of a tournament share.
struct Played<'a> {
    request: &'a TournamentRequest,
    caller: &'a dyn Caller,
    stop: &'a Arc<AtomicBool>,
}

/// The results of a sweep, cell by cell: figures, or why there are none.
type Cells = Vec<Result<Cell, String>>;

/// A sweep with its open folder.
struct Opened {
    grid: Grid,
    folder: Folder,
    out: PathBuf,
}

impl Played<'_> {
    fn open(&self, grid: Grid, out: PathBuf) -> Result<Opened, Failure> {
        let folder = Folder::open(&out, &grid, self.request.replaces).map_err(|failure| match failure {
            Failure::Usage(mut mistakes) if Folder::is_of_sweep(&out) => {
                let remedy = words![", or ", key("anew"), " to remove them and run all again"];
                mistakes.0.iter_mut().for_each(|mistake| mistake.why.push(remedy.clone()));
                Failure::Usage(mistakes)
            }
            other => other,
        })?;
        Ok(Opened { grid, folder, out })
    }

    /// Runs the cells that the folder does not have yet, and returns all of them.
    fn sweep(&self, Opened { grid, folder, out }: &Opened) -> Result<Cells, Ended> {
        let request = SweepRequest { out: out.clone(), jobs: self.request.jobs, ..SweepRequest::default() };
        let summary = sweep::sweep(grid, folder, &request, self.caller, self.stop)?;
        match summary.ended_by {
            None => Ok(sweep::results(grid, folder)?),
            Some(Failure::Interrupted) => {
                self.caller.note("finished runs are kept; run the same command again to continue");
                Err(Failure::Interrupted.into())
            }
            Some(failure) if summary.is_out => Err(Ended::Out(failure.to_string())),
            Some(failure) => Err(failure.into()),
        }
    }

    /// Runs the sweep of one of the user's policies, and requires a repeated cell to have the same result.
    fn own(&self, opened: &Opened) -> Result<Cells, Ended> {
        let cells = self.sweep(opened)?;
        if cells.first().is_some_and(Result::is_ok)
            && sweep::repeats(&opened.grid, &opened.folder, self.stop)?
        {
            return Ok(cells);
        }
        let why = "a second run of the first cell gave a different result; expected decisions that follow from the \
                   events alone, not from a clock, a random number or a file";
        Err(Ended::Out(why.to_owned()))
    }
}

impl Row {
    fn of(result: &Costs, standing: &Standing, is_ranked: bool) -> Self {
        let (worst_case, worst) = standing.worst;
        Self {
            policy: result.policy.clone(),
            rank: is_ranked.then_some(standing.rank),
            time: standing.score,
            interval: standing.interval.map(|interval| (interval.low, interval.high)),
            worst: is_ranked.then_some(worst),
            worst_case: is_ranked.then_some(worst_case),
            won: is_ranked.then_some(standing.won),
            flash: standings::geometric_mean(result.costs.iter().map(|(_, flash)| *flash)),
        }
    }
}

/// Returns the time and flash of a run.
fn cost(cell: &Cell) -> (f64, f64) {
    let flash = cell.device_stats.as_ref().map_or(0, |device| device.nand_units_written);
    (cell.measured_ns().max(1) as f64, flash.max(1) as f64)
}

impl Tournament {
    /// Ranks trimwise's policies, whose cells are interleaved, and the user's own.
    fn judge(&mut self, grid: &Grid, built_in: Cells, own: Vec<(PolicyId, Cells)>) -> Result<(), Failure> {
        let policies = &grid.description.policies;
        let mut field: Vec<(PolicyId, Cells)> =
            policies.iter().map(|policy| (policy.clone(), Vec::new())).collect();
        for (number, cell) in built_in.into_iter().enumerate() {
            field[number % policies.len()].1.push(cell);
        }
        field.splice(0..0, own);
        let runs_per_case = (grid.cells_per_case() / grid.cells_per_group()) as usize;
        let mut found = Vec::new();
        for (policy, cells) in field {
            match cells.into_iter().collect::<Result<Vec<Cell>, String>>() {
                Ok(cells) => found.push((policy, cells)),
                Err(reason) => self.disqualified.push(Disqualified { policy, reason }),
            }
        }
        let reference = found.iter().find(|(policy, _)| *policy == self.reference);
        let Some((_, reference)) = reference else {
            let why = self.disqualified.iter().find(|out| out.policy == self.reference);
            let why = why.map_or("it did not run", |out| &out.reason);
            return Err(Failure::run(format!("{}: {why}", self.reference)));
        };
        let mean = |ratios: &mut dyn Iterator<Item = f64>| standings::geometric_mean(ratios);
        let costs = |cells: &[Cell]| -> Vec<(f64, f64)> {
            let cases = cells.chunks(runs_per_case).zip(reference.chunks(runs_per_case));
            let ratios = |(runs, references): (&[Cell], &[Cell])| {
                let pairs =
                    || runs.iter().zip(references).map(|(run, reference)| (cost(run), cost(reference)));
                let time = mean(&mut pairs().map(|(run, reference)| run.0 / reference.0));
                (time, mean(&mut pairs().map(|(run, reference)| run.1 / reference.1)))
            };
            cases.map(ratios).collect()
        };
        let results: Vec<Costs> = found
            .iter()
            .map(|(policy, cells)| Costs { policy: policy.clone(), costs: costs(cells) })
            .collect();
        let is_bound = |result: &&Costs| result.policy.spec().is_some_and(|spec| !spec.is_usable());
        let times = |result: &Costs| result.costs.iter().map(|(time, _)| *time).collect::<Vec<f64>>();
        let (bounds, ranked): (Vec<&Costs>, Vec<&Costs>) = results.iter().partition(is_bound);
        // Cells with the same drive and workload form a group, whatever the utilization, because they vary together.
        let mut groups = HashMap::new();
        let mut group_of = |case: usize| {
            let place = grid.place(case as u64 * grid.cells_per_case());
            let next = groups.len();
            *groups.entry((place.device.0.to_owned(), place.workload.to_owned())).or_insert(next)
        };
        let groups: Vec<usize> = (0..reference.len() / runs_per_case).map(&mut group_of).collect();
        let field: Vec<Vec<f64>> = ranked.iter().map(|result| times(result)).collect();
        let standings = standings::ranked(&field, &groups);
        let mut rows: Vec<(Row, &Costs)> = ranked
            .iter()
            .zip(&standings)
            .map(|(result, standing)| (Row::of(result, standing, true), *result))
            .collect();
        rows.sort_by(|(a, _), (b, _)| {
            a.time.total_cmp(&b.time).then_with(|| a.policy.to_string().cmp(&b.policy.to_string()))
        });
        rows.extend(bounds.into_iter().map(|result| {
            let standing = &standings::ranked(&[times(result)], &groups)[0];
            (Row::of(result, standing, false), result)
        }));
        self.cases = (0..reference.len() / runs_per_case)
            .map(|case| {
                let place = grid.place(case as u64 * grid.cells_per_case());
                let runs = &reference[case * runs_per_case..(case + 1) * runs_per_case];
                Case {
                    device: place.device.0.to_owned(),
                    workload: place.workload.to_owned(),
                    utilization: place.utilization,
                    measure: runs[0].measure(),
                    reference_s: mean(&mut runs.iter().map(|run| cost(run).0 / 1e9)),
                    times: rows.iter().map(|(_, result)| result.costs[case].0).collect(),
                }
            })
            .collect();
        for (row, _) in rows {
            if row.rank.is_some() { &mut self.standings } else { &mut self.bounds }.push(row);
        }
        Ok(())
    }

    /// Returns a failure if any policy was disqualified.
    pub fn failure(&self) -> Option<Failure> {
        let out: Vec<String> = self.disqualified.iter().map(|out| out.policy.to_string()).collect();
        (!out.is_empty()).then(|| Failure::run(format!("disqualified: {}", out.join(", "))))
    }
}
