//! The runs of an advice: the search and the runs that follow it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trimwise::advise::{Candidate, Job, LeftOut, Observation, Place, REPS_MAX, Rounds, Search, Space};
use trimwise::compare::means::Means;
use trimwise::compare::result::{Cell, Measure};
use trimwise::failure::Failure;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::Trimmer;
use trimwise::policy::{PolicyId, PolicySpec};
use trimwise::units::{SimDuration, Utilization};
use trimwise_linux::pool;

use crate::caller::{self, Caller};
use crate::compare::room::Room;
use crate::compare::{CompareRequest, judge, on_model};
use crate::defaults;

/// Repetitions at other fullness: a hint, not a proof.
const NEARBY_REPS: u32 = 3;

/// Rough number of runs of an advice on the built-in workloads, for the note on its duration.
const RUNS_EXPECTED: u32 = 160;

pub(super) struct Hunt<'a> {
    pub request: &'a CompareRequest,
    pub plan: on_model::Plan,
    pub caller: &'a dyn Caller,
    pub stop: &'a Arc<AtomicBool>,
}

pub(super) struct Found {
    pub space: Space,
    /// Policies worth fresh runs.
    pub shortlist: Vec<Trimmer>,
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

impl Hunt<'_> {
    pub fn seed(&self) -> u64 {
        self.request.seed.unwrap_or(defaults::SEED)
    }

    /// The seed of the runs that the search must not see.
    pub fn fresh_seed(&self) -> u64 {
        self.seed().wrapping_add(1)
    }

    /// Searches policies that a host can apply, and policies that need a changed kernel.
    pub fn found(&mut self) -> Result<Found, Failure> {
        // The run without TRIM shows how long a run is, and whether there is anything to trim.
        let begun = Instant::now();
        let (mut first, failure) = self.run(&[(Trimmer::Kernel(PolicySpec::OFF), 0)], "the first run");
        let Some((_, first)) = first.pop() else {
            return Err(failure.unwrap_or(Failure::Interrupted));
        };
        self.tell_time(begun.elapsed());
        let used = self.plan.utilization.unwrap_or_default();
        let space = match &self.plan.days {
            Some(days) => Space::over_days(used, days.length()),
            None => Space::new(used, SimDuration::from_nanos(first.duration_ns)),
        };
        let (measure, frees_nothing) = (first.measure(), first.frees_nothing());
        let mut search = space.search();
        search.record(Job { candidate: 0, rep: 0 }, Observation::of(&first));
        let mut ended_by = None;
        if !frees_nothing {
            ended_by = self.search(&mut search, &space.applicable, "the search").err();
        }
        let nodes =
            vec![trimwise::advise::Node { is_first: true, neighbours: Vec::new() }; space.changed.len()];
        let mut changed = Search::new(nodes, Rounds::BOUND);
        if ended_by.is_none() && !frees_nothing {
            ended_by = self.search(&mut changed, &space.changed, "the bound").err();
        }
        let best_changed = changed.finalists().first().and_then(|&i| space.changed.get(i)).map(|c| c.policy);
        Ok(Found {
            searched: searched(&space, &search, &changed, first.elapsed_ns()),
            shortlist: space.shortlist(&search),
            changed: best_changed,
            measure,
            frees_nothing,
            ended_by,
            space,
        })
    }

    /// Announces how long an advice about this host may take, from the time of its first run.
    fn tell_time(&self, first: Duration) {
        if self.plan.here.is_some() {
            let all = first * RUNS_EXPECTED / self.jobs() as u32;
            self.caller.note(&format!(
                "the first run took {:.0} s; advise takes about {RUNS_EXPECTED}, {} at a time: some {:.0} min",
                first.as_secs_f64().max(1.0),
                self.jobs(),
                (all.as_secs_f64() / 60.0).max(1.0)
            ));
        }
    }

    fn jobs(&self) -> usize {
        let default =
            || self.plan.devices.first().map_or(1, |(_, d)| pool::default_jobs(pool::memory_of_run(d)));
        self.request.jobs.map_or_else(default, usize::from).max(1)
    }

    fn search(&self, search: &mut Search, candidates: &[Candidate], what: &str) -> Result<(), Failure> {
        search.run(|jobs| {
            let runs: Vec<(Trimmer, u32)> =
                jobs.iter().map(|job| (candidates[job.candidate].policy, job.rep)).collect();
            let (ran, failure) = self.run(&runs, what);
            (ran.into_iter().map(|(i, cell)| (jobs[i], Observation::of(&cell))).collect(), failure)
        })
    }

    /// Runs policies with the seed and repetitions of the final comparison.
    pub fn fresh(&mut self, policies: &[Trimmer]) -> (Vec<Cell>, Option<Failure>) {
        let fresh = self.fresh_seed();
        let seed = std::mem::replace(&mut self.plan.seed, fresh);
        let ran = self.each(policies, self.request.reps);
        self.plan.seed = seed;
        ran
    }

    /// Runs policies on a file system of this fullness; `None` if the workload does not fit.
    pub fn nearby(
        &mut self,
        utilization: Utilization,
        policies: &[Trimmer],
    ) -> Option<(Vec<Cell>, Option<Failure>)> {
        let device = &self.plan.devices[0].1;
        let room = Room::of(device, FormatOptions::TODAY, utilization).ok()?;
        self.plan.workload.check(&room, device).ok()?;
        let used = self.plan.utilization.replace(utilization);
        let ran = self.each(policies, NEARBY_REPS);
        self.plan.utilization = used;
        Some(ran)
    }

    fn each(&self, policies: &[Trimmer], reps: u32) -> (Vec<Cell>, Option<Failure>) {
        let runs: Vec<(Trimmer, u32)> =
            policies.iter().flat_map(|&policy| (0..reps).map(move |rep| (policy, rep))).collect();
        let (ran, failure) = self.run(&runs, "the comparison");
        (ran.into_iter().map(|(_, cell)| cell).collect(), failure)
    }

    /// Runs each policy with its repetition number, as many in parallel as fit. Returns the index of each finished run
    /// with its result.
    fn run(&self, runs: &[(Trimmer, u32)], what: &str) -> (Vec<(usize, Cell)>, Option<Failure>) {
        let Some((_, device)) = self.plan.devices.first() else { return Default::default() };
        let progress = self.caller.progress(runs.len(), "runs");
        progress.say(what.to_owned());
        let ran = pool::run_finished(self.jobs(), runs.len(), |index| {
            if self.stop.load(Ordering::SeqCst) {
                return Err(Failure::Interrupted);
            }
            progress.begin_ageing(index);
            let (policy, rep) = runs[index];
            let cell =
                self.plan.run_cell((device, policy), rep, caller::report(&progress, index), self.stop)?;
            let mut cells = [cell];
            judge(self.request, &mut cells)?;
            let [cell] = cells;
            progress.done(index);
            Ok((index, cell))
        });
        progress.finish();
        ran
    }
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
