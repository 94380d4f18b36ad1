//! `tournament`: trimwise's policies and somebody's own over the same cells, ranked.
//!
//! The rules are a grid, as a sweep reads it. trimwise's policies are one sweep of that grid, and each own policy is a
//! sweep of its own, in a folder of its own: a changed file runs alone again. The standings are made from the finished
//! cells, so their bytes depend on nothing but the rules, the version and the files.

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

/// The file of a folder that has its rules.
pub const RULES_FILE: &str = "tournament.toml";
/// The rules of a folder without that file.
pub const RULES: &str = include_str!("rules.toml");
/// What the built-in rules are called.
const BUILT_IN: &str = "built-in rules";
/// The folder of results in the policies' folder, unless another is given.
const RESULTS: &str = "results";
/// Seconds that a policy may think about an event.
pub const PATIENCE_S: u64 = 10;

/// Whose policies, under which rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TournamentRequest {
    /// The folder of the policies and, if others than the built-in ones hold, of the rules.
    pub dir: PathBuf,
    /// The folder of the results; `None`: `results` in that folder.
    pub out: Option<PathBuf>,
    /// A checkout of trimwise's source, with which policies in Rust are compiled.
    pub source: Option<PathBuf>,
    /// Whether nothing is run.
    pub is_dry: bool,
    /// Whether results of other rules or versions are replaced.
    pub replaces: bool,
    /// Seconds that a policy may think about an event; `None`: [`PATIENCE_S`].
    pub max_silence_s: Option<u64>,
    /// Runs at a time; the result is the same for any number.
    pub jobs: Option<u16>,
}

/// The standings, as `--json` writes them; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tournament {
    /// The version of trimwise.
    pub trimwise: String,
    /// The rules' file, or `built-in rules`.
    pub rules: String,
    /// The rules, a grid as `sweep` reads it (TOML).
    pub grid: String,
    /// How the number of cells comes about.
    pub cells: String,
    /// The seeds of everything drawn at random.
    pub seeds: Vec<u64>,
    /// Somebody's own policies.
    pub own: Vec<Named>,
    /// The policy whose time and flash are 1 in each cell.
    pub reference: PolicyId,
    /// Those that are ranked, best first.
    pub standings: Vec<Row>,
    /// The bounds that no host can reach, which have no rank.
    pub bounds: Vec<Row>,
    /// Those that are out.
    pub disqualified: Vec<Disqualified>,
    /// The cells, in the order of the grid.
    pub cases: Vec<Case>,
    /// The code that decides the results.
    pub made_by: MadeBy,
    /// The command that repeats it.
    pub command: String,
}

/// A policy's place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The policy; a file's name if it is somebody's own.
    pub policy: PolicyId,
    /// The best and the worst rank that the cells leave open; `None` of a bound.
    pub rank: Option<(usize, usize)>,
    /// The geometric mean over the cells of its time as a ratio to the reference's.
    pub time: f64,
    /// The 95 % interval of that; `None` if there are too few groups of cells.
    pub interval: Option<(f64, f64)>,
    /// Its largest ratio to the shortest time in a cell; `None` of a bound.
    pub worst: Option<f64>,
    /// The number of that cell in `cases`, from 0.
    pub worst_case: Option<usize>,
    /// Cells in which no other was faster; `None` of a bound.
    pub won: Option<usize>,
    /// The geometric mean over the cells of the flash written, as a ratio to the reference's.
    pub flash: f64,
}

/// A policy without a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disqualified {
    /// The policy; a file's name if it is somebody's own.
    pub policy: PolicyId,
    /// In which run, at which event, and why.
    pub reason: String,
}

/// A device, a workload and a utilization: one cell of the standings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The device.
    pub device: String,
    /// The workload.
    pub workload: String,
    /// How full the file system is before the run.
    #[serde(rename = "utilization_percent")]
    pub utilization: Utilization,
    /// What policies are judged by.
    pub measure: Measure,
    /// The reference's time: the geometric mean over seeds and repetitions.
    pub reference_s: f64,
    /// The times of the policies as ratios to that: first the standings', then the bounds'.
    pub times: Vec<f64>,
}

/// What a policy reached in each case.
struct Costs {
    policy: PolicyId,
    /// Time and flash as ratios to the reference's.
    costs: Vec<(f64, f64)>,
}

/// Runs a tournament.
///
/// # Errors
///
/// What is wrong with the request, the rules or the folder of the results, or that it was interrupted.
/// [`Tournament::failure`] says whether policies are out.
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
    // All of them before the first run: what is refused costs no time.
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
        Err(Ended::Out(why)) => return Err(Failure::Run(why)),
        Err(Ended::By(failure)) => return Err(failure),
    };
    tournament.judge(&built_in.grid, cells, own)?;
    Ok(tournament)
}

/// The rules, and where they come from.
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

    /// The standings before anybody has played.
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

/// What the sweeps of a tournament share.
struct Played<'a> {
    request: &'a TournamentRequest,
    caller: &'a dyn Caller,
    stop: &'a Arc<AtomicBool>,
}

/// The results of a sweep by cell: figures, or why there are none.
type Cells = Vec<Result<Cell, String>>;

/// A sweep and its folder.
struct Opened {
    grid: Grid,
    folder: Folder,
    out: PathBuf,
}

impl Played<'_> {
    /// Opens the folder of a sweep.
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

    /// Runs what a folder does not have yet of its grid, and returns all of it.
    fn sweep(&self, Opened { grid, folder, out }: &Opened) -> Result<Cells, Ended> {
        let request = SweepRequest { out: out.clone(), jobs: self.request.jobs, ..SweepRequest::default() };
        let summary = sweep::sweep(grid, folder, &request, self.caller, self.stop)?;
        match summary.ended_by {
            None => Ok(sweep::results(grid, folder)?),
            Some(Failure::Interrupted) => {
                self.caller.note("finished runs are kept: the same command goes on with the others");
                Err(Failure::Interrupted.into())
            }
            Some(failure) if summary.is_out => Err(Ended::Out(failure.to_string())),
            Some(failure) => Err(failure.into()),
        }
    }

    /// Does the same for an own policy, and expects it to repeat itself.
    fn own(&self, opened: &Opened) -> Result<Cells, Ended> {
        let cells = self.sweep(opened)?;
        if cells.first().is_some_and(Result::is_ok)
            && sweep::repeats(&opened.grid, &opened.folder, self.stop)?
        {
            return Ok(cells);
        }
        let why = "a second run of the first cell had another result; expected decisions that follow from the events \
                   alone, not from a clock, a random number or a file";
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

/// Time and flash of a run.
fn cost(cell: &Cell) -> (f64, f64) {
    let flash = cell.device_stats.as_ref().map_or(0, |device| device.nand_units_written);
    (cell.measured_ns().max(1) as f64, flash.max(1) as f64)
}

impl Tournament {
    /// Ranks what ran: trimwise's policies, whose cells lie next to each other, and the own ones.
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
        // A drive under a workload is one group, however full it is: these cells go together.
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

    /// Returns that policies are out, if some are.
    pub fn failure(&self) -> Option<Failure> {
        let out: Vec<String> = self.disqualified.iter().map(|out| out.policy.to_string()).collect();
        (!out.is_empty()).then(|| Failure::run(format!("disqualified: {}", out.join(", "))))
    }
}
