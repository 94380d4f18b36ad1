//! The runs of an advice: the search and the runs that follow it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use trimwise::advise::{Candidate, Job, LeftOut, Node, Observation, Place, REPS_MAX, Rounds, Search, Space};
use trimwise::compare::means::Means;
use trimwise::compare::result::{Cell, Measure};
use trimwise::failure::Failure;
use trimwise::fs::layout::FormatOptions;
use trimwise::numbers::counted;
use trimwise::policy::Trimmer;
use trimwise::policy::{PolicyId, PolicySpec};
use trimwise::units::{SimDuration, Utilization};
use trimwise_linux::pool;

use super::first::First;
use super::{Compare, MODEL};
use crate::caller::{self, Caller};
use crate::compare::room::Room;
use crate::compare::{CompareRequest, finish, judge, on_model, ranges};
use crate::defaults;
use crate::given::Given;
use crate::whole::{Kind, Whole};

/// Repetitions at other fullness: a hint, not a proof.
const NEARBY_REPS: u32 = 3;

/// How much fuller and emptier, in percent of the file system, and how full at most.
const NEARBY_STEP: u64 = 10;
pub const NEARBY_MAX: u64 = 95;

/// Maximum number of policies that the search adds to the comparison: the two best, and the best interval.
const ADDED_MAX: usize = 3;

pub(super) struct Hunt<'a> {
    pub request: &'a CompareRequest,
    pub plan: on_model::Plan,
    pub whole: Whole<'a>,
    compare: &'a dyn Compare,
    later: Later,
}

/// Maximum numbers of runs in the stages after the search.
struct Later {
    bound: usize,
    compared: usize,
    checked: usize,
    changed: usize,
    nearby: usize,
}

/// Finished runs, and why there are no more.
type Ran = (Vec<Cell>, Option<Failure>);

pub(super) struct Found {
    pub space: Space,
    /// Policies worth fresh runs.
    pub shortlist: Vec<Trimmer>,
    /// Fresh runs of the policies that the comparison has whatever the search finds.
    pub usual: Vec<Cell>,
    /// The best policy that needs a changed kernel.
    pub changed: Option<Trimmer>,
    pub measure: Measure,
    pub frees_nothing: bool,
    pub searched: Searched,
    pub ended_by: Option<Failure>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Searched {
    /// Includes the number of runs of an exhaustive search.
    pub runs: Runs,
    /// Candidates that a host can apply and that ran, the last survivors of the search first.
    pub candidates: Vec<Tried>,
    /// Policies that these runs cannot judge.
    pub left_out: Vec<LeftOut>,
    /// Duration of the first run, without TRIM, with idle time.
    pub run_ns: u64,
    /// Watermarks that were considered, in percent.
    pub watermarks_percent: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    pub candidates: u32,
    pub searched: u32,
    pub compared: u32,
    /// Runs at other fullness.
    pub nearby: u32,
    /// Runs of an exhaustive search: each candidate as often as the search runs the last survivors.
    pub exhaustive: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tried {
    pub policy: PolicyId,
    /// Means of applying the policy.
    pub means: Means,
    pub place: Place,
    /// Repetitions of its own; see `same_as`.
    pub reps: u32,
    /// The policy whose first run was identical to the last bit, so that this one did not run again.
    pub same_as: Option<PolicyId>,
    /// Median extra time over the best policy, in percent, over pairs of equal repetition.
    pub excess_percent: Option<f64>,
}

/// The objective of a run, in seconds.
pub(super) fn seconds(cell: &Cell) -> f64 {
    Observation::of(cell).time_s
}

impl<'a> Hunt<'a> {
    /// Announces all runs.
    pub fn of(
        request: &'a CompareRequest,
        plan: on_model::Plan,
        (caller, stop): (&'a dyn Caller, &Arc<AtomicBool>),
        compare: &'a dyn Compare,
    ) -> Result<Self, Failure> {
        let reps = request.reps as usize;
        // Intervals that a long first run can judge are added later.
        let space = space(&plan, SimDuration::ZERO);
        let mut nodes = space.nodes();
        nodes.extend(all_first(space.left_out.len()));
        let search = Search::new(nodes, Rounds::ADVICE).left_max();
        let usual = policies(&plan, &space.shortlist(&space.search()));
        let others = space.applicable.iter().map(|candidate| candidate.policy);
        let others: Vec<Trimmer> = others.filter(|policy| !usual.contains(policy)).collect();
        let checked = compare.kind(request, &plan, &usual)?;
        let intervals = if space.left_out.is_empty() { 0 } else { checked.most.min(reps) };
        let more = compare.kind(request, &plan, &others)?.most + intervals;
        let at_ends = plan.devices.iter().map(|(_, device)| ranges::runs_max(request, device)).sum::<usize>();
        let later = Later {
            bound: bound_search(&space).left_max(),
            compared: (usual.len() + ADDED_MAX) * reps + at_ends,
            checked: checked.most + more.min(ADDED_MAX * reps),
            changed: reps,
            nearby: nearby_of(&plan).len() * 3 * NEARBY_REPS as usize,
        };
        let jobs = jobs(request, &plan);
        let model = Kind::of(search + later.bound + later.compared + later.changed + later.nearby, jobs);
        let checked = Kind { most: later.checked, ..checked };
        if plan.here.is_some() {
            let runs = counted((model.most + checked.most) as u64, "run");
            caller.note(&format!("at most {runs}, {jobs} at a time"));
        }
        let whole = Whole::of(caller, stop, "runs", &[model, checked]);
        Ok(Self { request, plan, whole, compare, later })
    }

    pub fn seed(&self) -> u64 {
        self.request.seed.unwrap_or(defaults::SEED)
    }

    /// The seed of the runs that the search must not see.
    fn fresh_seed(&self) -> u64 {
        self.seed().wrapping_add(1)
    }

    /// Announces the runs that may be left.
    fn expect(&self, search: usize) {
        let Later { bound, compared, checked, changed, nearby } = self.later;
        self.whole.expect(&[search + bound + compared + changed + nearby, checked]);
    }

    /// The comparison on fresh runs: the shortlist, the host's current policy, and the bound.
    pub fn compared(&self, shortlist: &[Trimmer]) -> CompareRequest {
        let policies = policies(&self.plan, shortlist).into_iter().map(|policy| Given::of(policy.into()));
        CompareRequest { policies: policies.collect(), seed: Some(self.fresh_seed()), ..self.request.clone() }
    }

    /// Searches policies that a host can apply, and policies that need a changed kernel. Before that it runs those that
    /// people choose between, for a first answer.
    pub fn found(&mut self) -> Result<Found, Failure> {
        // The run without TRIM shows how long a run is, and whether there is anything to trim.
        let (mut first, failure) =
            self.run(&[(Trimmer::Kernel(PolicySpec::OFF), 0)], "the first run", &|_, _| ());
        let Some((_, first)) = first.pop() else {
            return Err(failure.unwrap_or(Failure::Interrupted));
        };
        let space = space(&self.plan, SimDuration::from_nanos(first.duration_ns));
        let (measure, frees_nothing) = (first.measure(), first.frees_nothing());
        let mut search = space.search();
        let of_usual = space.shortlist(&search);
        search.record(Job { candidate: 0, rep: 0 }, Observation::of(&first));
        let (mut usual, mut ended_by) = (Vec::new(), None);
        if !frees_nothing {
            self.expect(search.left_max());
            (usual, ended_by) = self.usual(&of_usual);
            self.later.compared -= policies(&self.plan, &of_usual).len() * self.request.reps as usize;
        }
        if ended_by.is_none() && !frees_nothing {
            ended_by = self.search(&mut search, &space.applicable, "the search").err();
        }
        let mut changed = bound_search(&space);
        if ended_by.is_none() && !frees_nothing {
            self.later.bound = 0;
            ended_by = self.search(&mut changed, &space.changed, "the bound").err();
        }
        let best_changed = changed.finalists().first().and_then(|&i| space.changed.get(i)).map(|c| c.policy);
        let shortlist = space.shortlist(&search);
        if ended_by.is_none() {
            let of_comparison = policies(&self.plan, &shortlist);
            let reps = self.request.reps as usize;
            self.later.compared = of_comparison.len() * reps - usual.len();
            self.later.checked = self.compare.kind(self.request, &self.plan, &of_comparison)?.most;
            self.later.changed = if best_changed.is_some() { reps } else { 0 };
            self.expect(0);
        }
        Ok(Found {
            searched: searched(&space, &search, &changed, first.elapsed_ns()),
            shortlist,
            usual,
            changed: best_changed,
            measure,
            frees_nothing,
            ended_by,
            space,
        })
    }

    /// Runs the policies that the comparison has whatever the search finds, for the first answer: a repetition of each
    /// before the next of any, and first those without which there is no answer.
    fn usual(&mut self, shortlist: &[Trimmer]) -> Ran {
        let reps = self.request.reps;
        let today = today(&self.plan).unwrap_or(Trimmer::Kernel(PolicySpec::OFF));
        let needed = [today, Trimmer::Kernel(PolicySpec::OFF)];
        let mut policies = policies(&self.plan, shortlist);
        policies.sort_by_key(|policy| needed.iter().position(|of| of == policy).unwrap_or(needed.len()));
        let needed = policies.iter().filter(|policy| needed.contains(policy)).count();
        let runs: Vec<(Trimmer, u32)> =
            (0..reps).flat_map(|rep| policies.iter().map(move |&policy| (policy, rep))).collect();
        let request = self.compared(shortlist);
        let (settings, here) = (self.plan.settings.clone(), self.plan.here.clone());
        let compare = |cells: Vec<Cell>| finish(&request, settings.clone(), here.clone(), (cells, None)).ok();
        let fresh = self.fresh_seed();
        let seed = std::mem::replace(&mut self.plan.seed, fresh);
        let first = First::of(&self.whole, (policies.len(), needed, reps), &compare);
        let (ran, failure) = self.run(&runs, "the usual policies", &|index, cell| first.add(index, cell));
        self.plan.seed = seed;
        (ran.into_iter().map(|(_, cell)| cell).collect(), failure)
    }

    fn search(&self, search: &mut Search, candidates: &[Candidate], what: &str) -> Result<(), Failure> {
        search.run(|jobs, left| {
            self.expect(left);
            let runs: Vec<(Trimmer, u32)> =
                jobs.iter().map(|job| (candidates[job.candidate].policy, job.rep)).collect();
            let (ran, failure) = self.run(&runs, what, &|_, _| ());
            (ran.into_iter().map(|(i, cell)| (jobs[i], Observation::of(&cell))).collect(), failure)
        })
    }

    /// Runs policies with the seed and repetitions of the final comparison.
    pub fn fresh(&mut self, policies: &[Trimmer]) -> Ran {
        let fresh = self.fresh_seed();
        let seed = std::mem::replace(&mut self.plan.seed, fresh);
        let ran = self.each(policies, self.request.reps);
        self.plan.seed = seed;
        ran
    }

    /// Runs policies on a file system that is fuller or emptier, where the workload fits.
    pub fn nearby(&mut self, policies: &[Trimmer]) -> Vec<(Utilization, Ran)> {
        let all = nearby_of(&self.plan);
        self.whole.expect(&[all.len() * policies.len() * NEARBY_REPS as usize, 0]);
        let used = self.plan.utilization;
        let mut ran = Vec::new();
        for utilization in all {
            self.plan.utilization = Some(utilization);
            ran.push((utilization, self.each(policies, NEARBY_REPS)));
            if ran.last().is_some_and(|(_, (_, failure))| failure.is_some()) {
                break;
            }
        }
        self.plan.utilization = used;
        ran
    }

    /// Returns how full the fuller file system would be, in percent, if the workload does not fit on that.
    pub fn unfit_nearby(&self) -> Option<u64> {
        let fuller = self.plan.utilization?.percent() + NEARBY_STEP;
        nearby_of(&self.plan).iter().all(|fit| fit.percent() != fuller).then_some(fuller)
    }

    fn each(&self, policies: &[Trimmer], reps: u32) -> Ran {
        let runs: Vec<(Trimmer, u32)> =
            policies.iter().flat_map(|&policy| (0..reps).map(move |rep| (policy, rep))).collect();
        let (ran, failure) = self.run(&runs, "the comparison", &|_, _| ());
        (ran.into_iter().map(|(_, cell)| cell).collect(), failure)
    }

    /// Runs each policy with its repetition number, as many in parallel as fit. Returns the index of each finished run
    /// with its result, which `on` gets at once.
    fn run(
        &self,
        runs: &[(Trimmer, u32)],
        what: &str,
        on: &(dyn Fn(usize, &Cell) + Sync),
    ) -> (Vec<(usize, Cell)>, Option<Failure>) {
        let Some((_, device)) = self.plan.devices.first() else { return Default::default() };
        let stop = self.whole.stop();
        let progress = self.whole.part(MODEL).progress(runs.len(), "runs");
        progress.say(what.to_owned());
        pool::run_finished(jobs(self.request, &self.plan), runs.len(), |index| {
            if stop.load(Ordering::SeqCst) {
                return Err(Failure::Interrupted);
            }
            progress.begin_ageing(index);
            let (policy, rep) = runs[index];
            let cell = self.plan.run_cell((device, policy), rep, caller::report(&progress, index), stop)?;
            let mut cells = [cell];
            judge(self.request, &mut cells)?;
            let [cell] = cells;
            progress.done(index);
            on(index, &cell);
            Ok((index, cell))
        })
    }
}

fn jobs(request: &CompareRequest, plan: &on_model::Plan) -> usize {
    let default = || plan.devices.first().map_or(1, |(_, d)| pool::default_jobs(pool::memory_of_run(d)));
    request.jobs.map_or_else(default, usize::from).max(1)
}

/// Returns the candidates, if a run takes this long without TRIM.
fn space(plan: &on_model::Plan, run: SimDuration) -> Space {
    let used = plan.utilization.unwrap_or_default();
    match &plan.days {
        Some(days) => Space::over_days(used, days.length()),
        None => Space::new(used, run),
    }
}

/// Returns candidates without neighbours.
fn all_first(count: usize) -> Vec<Node> {
    vec![Node { is_first: true, neighbours: Vec::new() }; count]
}

/// Returns the search for the best policy that needs a changed kernel.
fn bound_search(space: &Space) -> Search {
    Search::new(all_first(space.changed.len()), Rounds::BOUND)
}

/// Returns the host's current policy.
fn today(plan: &on_model::Plan) -> Option<Trimmer> {
    plan.here.as_ref()?.today(plan.days.is_some())?.known()
}

/// Returns the policies of a comparison: the shortlist, the host's current one, and the bound.
fn policies(plan: &on_model::Plan, shortlist: &[Trimmer]) -> Vec<Trimmer> {
    let today = today(plan).filter(|today| !shortlist.contains(today));
    shortlist.iter().copied().chain(today).chain([Trimmer::Kernel(PolicySpec::IDEAL)]).collect()
}

/// Returns how full a fuller and an emptier file system would be, where the workload fits.
fn nearby_of(plan: &on_model::Plan) -> Vec<Utilization> {
    const STEP: i8 = NEARBY_STEP as i8;
    let (Some((_, device)), Some(used)) = (plan.devices.first(), plan.utilization) else { return Vec::new() };
    let fits = |&utilization: &Utilization| {
        let room = Room::of(device, FormatOptions::TODAY, utilization);
        room.is_ok_and(|room| plan.workload.check(&room, device).is_ok())
    };
    let fuller = used.moved(STEP).filter(|fuller| fuller.percent() <= NEARBY_MAX);
    [used.moved(-STEP), fuller].into_iter().flatten().filter(fits).collect()
}

/// `run_ns` is the duration of the first run, without TRIM.
pub fn searched(space: &Space, search: &Search, changed: &Search, run_ns: u64) -> Searched {
    let finalists = search.finalists();
    let best = finalists.first().copied();
    let tried = |i: usize| {
        let Candidate { policy, means, place } = &space.applicable[i];
        let reps = search.seen(i).len() as u32;
        (reps > 0).then(|| Tried {
            policy: (*policy).into(),
            means: *means,
            place: *place,
            reps,
            same_as: search.same_as(i).map(|other| space.applicable[other].policy.into()),
            excess_percent: best.and_then(|best| search.excess(i, best)).map(|(excess, _)| excess * 100.0),
        })
    };
    let others = (0..space.applicable.len()).filter(|i| !finalists.contains(i));
    Searched {
        runs: Runs {
            candidates: space.len() as u32,
            searched: (search.total_runs() + changed.total_runs()) as u32,
            exhaustive: space.len() as u32 * REPS_MAX,
            ..Runs::default()
        },
        candidates: finalists.iter().copied().chain(others).filter_map(tried).collect(),
        left_out: space.left_out.clone(),
        run_ns,
        watermarks_percent: space.axis().to_vec(),
    }
}
