//! `advise` on a file system that runs itself: the same search, but among the policies that a stock kernel has, and
//! trimwised.
//!
//! A run takes seconds to minutes, so the search has few rounds. The comparison on fresh runs adds one repetition of
//! all its policies at a time until the budget is used up. Candidates that would take too long are listed as not tried.

use std::time::Duration;

use crate::guests;
use trimwise::advise::{self, Job, LeftOut, Node, Observation, Place, REPS_MAX, Rounds, Search, Space};
use trimwise::compare::means::{Host, Means};
use trimwise::compare::result::{Cell, Target};
use trimwise::compare::summary::Summary;
use trimwise::failure::Failure;
use trimwise::policy::{PolicyId, PolicySpec};
use trimwise::units::{SimDuration, Utilization};
use trimwise_uml::cell::{KernelPolicy, KernelTarget};

use crate::requests::compare::on_kernel::{Asked, Runs, plan};
use trimwise_study::advise::first::First;
use trimwise_study::advise::hunt::{self, Searched, Tried};
use trimwise_study::advise::{Advice, command, expect_trim};
use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::compare::here::StandIn;
use trimwise_study::compare::workload::Workload;
use trimwise_study::compare::{CompareRequest, Settings, finish, judge};
use trimwise_study::conclusion::Conclusion;
use trimwise_study::defaults;
use trimwise_study::whole::{Kind, Whole};

/// Rounds of the search.
const ROUNDS: Rounds = Rounds { reps_max: 2, finalists: 3 };
/// Minimum repetitions of the comparison, whatever the budget: fewer cannot show any difference.
const REPS_MIN: u32 = 4;
/// The daemon with its default policy.
const DAEMON: &str = "trimwised";
/// Intervals of fstrim that are skipped over days, because tried ones lie on both sides of them.
const BETWEEN: [&str; 2] = ["batch:1h", "batch:12h"];

/// The policies to try, and those left out.
struct Candidates {
    policies: Vec<KernelPolicy>,
    left_out: Vec<LeftOut>,
}

impl Candidates {
    fn of(target: &KernelTarget, runs: &Runs, used: Utilization, budget: Duration) -> Self {
        let mut policies = KernelPolicy::all_of(target);
        let space = match runs.days {
            Some(days) => Space::over_days(used, days.length()),
            None => Space::new(used, SimDuration::from_nanos(0)),
        };
        let mut left_out = space.left_out.clone();
        let leave =
            |policy: &str, reason: String| LeftOut { policy: policy.to_owned(), reason: reason.into() };
        let batches = space.applicable.iter().filter(|c| matches!(c.place, Place::Batch { .. }));
        for candidate in batches {
            let text = candidate.policy.to_string();
            if BETWEEN.contains(&&*text) {
                left_out.push(leave(&text, "between intervals that are tried".to_owned()));
            } else {
                policies.extend(KernelPolicy::of(candidate.policy, target));
            }
        }
        let daemon = KernelPolicy::Daemon(PolicySpec::JUDICIOUS);
        if runs.days.is_none() {
            left_out.push(leave(DAEMON, "it needs --days".to_owned()));
        } else {
            // One or two runs in the search, and those of the comparison.
            let all = runs.expected(daemon) * (1 + REPS_MIN);
            if all > budget * runs.jobs() as u32 / 2 {
                let minutes = runs.expected(daemon).as_secs() / 60;
                let why =
                    format!("a run of it in a guest takes some {minutes} min; a larger --budget tries it");
                left_out.push(leave(DAEMON, why));
            } else if guests::trimwised().is_err() {
                left_out.push(leave(DAEMON, "trimwised is not next to trimwise-lab".to_owned()));
            } else {
                policies.push(daemon);
            }
        }
        Self { policies, left_out }
    }

    fn place(policy: KernelPolicy) -> Place {
        match policy {
            KernelPolicy::Batch(config) => Place::Batch { every_ns: config.every.as_nanos() },
            _ => Place::Plain,
        }
    }

    fn means(policy: KernelPolicy) -> Means {
        Means::of(&policy.id(), &Target::Kernel(String::new()), Host::UNKNOWN)
    }

    /// Returns the policies worth fresh runs: those set by a mount option, the two best of the search, the best
    /// interval, and what the host does today. `off` comes first, as the baseline.
    fn shortlist(
        &self,
        search: &Search,
        target: &KernelTarget,
        today: Option<&PolicyId>,
    ) -> Vec<KernelPolicy> {
        let finalists = search.finalists();
        let mut list = KernelPolicy::all_of(target);
        list.extend(finalists.iter().take(2).map(|&i| self.policies[i]));
        let batch = |i: &&usize| matches!(self.policies[**i], KernelPolicy::Batch(_));
        list.extend(finalists.iter().find(batch).map(|&i| self.policies[i]));
        list.extend(today.and_then(|today| KernelPolicy::of_id(today, target)));
        let mut once: Vec<KernelPolicy> = Vec::new();
        for policy in list {
            if !once.contains(&policy) {
                once.push(policy);
            }
        }
        once
    }

    /// Returns the maximum length of the shortlist.
    fn shortlist_max(&self, target: &KernelTarget, today: Option<&PolicyId>) -> usize {
        let by_mount = KernelPolicy::all_of(target);
        let today = today.and_then(|today| KernelPolicy::of_id(today, target));
        let more =
            self.policies.iter().filter(|policy| !by_mount.contains(policy) && today != Some(**policy));
        let today = today.filter(|today| !by_mount.contains(today));
        by_mount.len() + more.count().min(3) + usize::from(today.is_some())
    }

    /// Returns the policies in the order in which the first answer needs them: what the host does today, none, and what
    /// people choose between.
    fn usual_first(&self, target: &KernelTarget, today: Option<&PolicyId>) -> Vec<KernelPolicy> {
        let today = today.and_then(|today| KernelPolicy::of_id(today, target));
        let place = |policy: &KernelPolicy| match policy {
            policy if Some(*policy) == today => 0,
            KernelPolicy::Off => 1,
            policy if policy.id() == "batch:1w".into() => 2,
            KernelPolicy::Batch(_) => 4,
            KernelPolicy::Daemon(_) => 5,
            _ => 3,
        };
        let mut policies = self.policies.clone();
        policies.sort_by_key(place);
        policies
    }

    fn searched(&self, search: &Search, run_ns: u64) -> Searched {
        let finalists = search.finalists();
        let best = finalists.first().copied();
        let tried = |i: usize| {
            let reps = search.seen(i).len() as u32;
            (reps > 0).then(|| Tried {
                policy: self.policies[i].id(),
                means: Self::means(self.policies[i]),
                place: Self::place(self.policies[i]),
                reps,
                same_as: search.same_as(i).map(|other| self.policies[other].id()),
                excess_percent: best
                    .and_then(|best| search.excess(i, best))
                    .map(|(excess, _)| excess * 100.0),
            })
        };
        let others = (0..self.policies.len()).filter(|i| !finalists.contains(i));
        let count = self.policies.len() as u32;
        Searched {
            runs: hunt::Runs {
                candidates: count,
                searched: search.total_runs() as u32,
                exhaustive: count * REPS_MAX,
                ..hunt::Runs::default()
            },
            candidates: finalists.iter().copied().chain(others).filter_map(tried).collect(),
            left_out: self.left_out.clone(),
            run_ns,
            watermarks_percent: Vec::new(),
        }
    }
}

/// Searches and compares on a kernel.
pub fn run(
    request: &CompareRequest,
    target: &KernelTarget,
    of: (Workload, Option<StandIn>),
    (caller, asked): (&dyn Caller, &CompareRequest),
) -> Result<Advice, Failure> {
    let plan = plan(request, target, of)?;
    let device = &plan.devices[0].1;
    expect_trim(device)?;
    let image = guests::image(target)?;
    let of_kernel = (target, &image);
    let budget = Duration::from_secs(60 * u64::from(request.budget_min.unwrap_or(defaults::BUDGET_MIN)));
    let used = request.utilization()?.unwrap_or(Utilization::EMPTY);
    let off = [KernelPolicy::Off];
    let candidates =
        Candidates::of(target, &Runs::of(&plan, request, of_kernel, (&off, plan.seed)), used, budget);
    let first = Runs::of(&plan, request, of_kernel, (&candidates.policies, plan.seed));
    first.check()?;
    plan.workload.tell_notes(caller);
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    let unfinished = first.unfinished()?;
    let at_a_time = first.jobs().max(1);
    let mut search = search(&candidates);
    // Repetitions that run whatever the budget, and more for which there may be time.
    let reps_min = REPS_MIN.min(request.reps) as usize;
    let reps_more = request.reps as usize - reps_min;
    let here = plan.here.as_ref();
    let today = here.and_then(|here| here.today(plan.days.is_some()));
    let compared_max = candidates.shortlist_max(target, today.as_ref());
    let of_search = first.kind();
    let kinds = [
        Kind { most: search.left_max() + compared_max * reps_min, ..of_search },
        Kind { most: compared_max * reps_more, until: Some(budget), ..of_search },
    ];
    let whole = Whole::of(caller, &stop, "runs", &kinds);
    let device = &plan.devices[0].1;
    let run_all = |runs: &Runs, kind: usize, asked: &[Asked], on: &(dyn Fn(usize, &Cell) + Sync)| {
        let (mut ran, failure) = runs.each(asked, (&whole, kind), &unfinished, on);
        let judged = ran.iter_mut().try_for_each(|(_, cell)| judge(request, std::slice::from_mut(cell)));
        (ran, judged.err().or(failure))
    };

    let compare =
        |cells: Vec<Cell>| finish(request, plan.settings.clone(), plan.here.clone(), (cells, None)).ok();
    let usual = candidates.usual_first(target, today.as_ref());
    let needed = usual.iter().take(2).filter(|policy| {
        **policy == KernelPolicy::Off || today.as_ref().is_some_and(|today| policy.id() == *today)
    });
    // A run of the daemon takes far longer than the others, and is not waited for.
    let quick = usual.iter().filter(|policy| !policy.is_daemon()).count();
    let of_first = First::of(&whole, (quick, needed.count(), 1), &compare);
    let mut off_cell = None::<Cell>;
    let ended_by = search
        .run(|jobs, left| {
            whole.expect(&[left + compared_max * reps_min, compared_max * reps_more]);
            // The first round has all candidates.
            let mut jobs = jobs.to_vec();
            let place = |job: &Job| usual.iter().position(|of| *of == candidates.policies[job.candidate]);
            jobs.sort_by_key(place);
            let asked: Vec<Asked> =
                jobs.iter().map(|job| (device, candidates.policies[job.candidate], job.rep)).collect();
            let (ran, failure) = run_all(&first, 0, &asked, &|index, cell| {
                if jobs[index].rep == 0 {
                    of_first.add(index, cell);
                }
            });
            for (i, cell) in &ran {
                if jobs[*i] == (Job { candidate: 0, rep: 0 }) {
                    off_cell = Some(cell.clone());
                }
            }
            (ran.into_iter().map(|(i, cell)| (jobs[i], Observation::of(&cell))).collect(), failure)
        })
        .err();
    if let (Some(failure), 0) = (&ended_by, search.total_runs()) {
        unfinished.end(caller, false);
        return Err(failure.clone());
    }
    let searched = candidates.searched(&search, off_cell.as_ref().map_or(0, Cell::elapsed_ns));
    let settings = Settings {
        baseline: PolicyId::OFF,
        judge: off_cell.as_ref().map_or_else(String::new, |cell| cell.measure().to_string()),
        kernel: Some(first.kernel()?),
        ..plan.settings.clone()
    };
    let settings = Settings { command: command(asked, &settings), ..settings };
    let advice = |conclusion| Advice::new(settings.clone(), plan.seed, searched.clone(), conclusion);
    if let Some(failure) = ended_by {
        unfinished.end(caller, false);
        let why = format!(
            "The search was stopped after {} of at most {} runs, so nothing is proven.",
            searched.runs.searched,
            whole.counts().1
        );
        let advice = advice(Conclusion::cannot_tell(here, why, "Run the same command again to continue."));
        return Ok(Advice { partial: true, ended_by: Some(failure), ..advice });
    }
    if off_cell.as_ref().is_some_and(Cell::frees_nothing) {
        unfinished.end(caller, true);
        return Ok(advice(Conclusion::freed_nothing(here)));
    }

    let fresh_seed = plan.seed.wrapping_add(1);
    let shortlist = candidates.shortlist(&search, target, today.as_ref());
    let second = Runs::of(&plan, request, of_kernel, (&shortlist, fresh_seed));
    let (mut cells, mut failure, mut reps) = (Vec::new(), None, 0);
    while reps < request.reps && failure.is_none() {
        // Add as many repetitions at a time as keep all cores busy.
        let more = (at_a_time.div_ceil(shortlist.len()) as u32).min(request.reps - reps);
        let spent = whole.elapsed();
        let of_next =
            spent / (searched.runs.searched + cells.len() as u32).max(1) * (shortlist.len() as u32 * more);
        if reps >= REPS_MIN && spent + of_next > budget {
            break;
        }
        let asked: Vec<Asked> = (reps..reps + more)
            .flat_map(|rep| shortlist.iter().map(move |&policy| (device, policy, rep)))
            .collect();
        // These, and those of later turns that run whatever the budget.
        let certain = asked.len() + reps_min.saturating_sub((reps + more) as usize) * shortlist.len();
        let all = (request.reps - reps) as usize * shortlist.len();
        whole.expect(&[certain, all - certain]);
        let (ran, ended) = run_all(&second, 0, &asked, &|_, _| ());
        cells.extend(ran.into_iter().map(|(_, cell)| cell));
        (failure, reps) = (ended, reps + more);
    }
    whole.expect(&[0, 0]);
    unfinished.end(caller, failure.is_none());
    if cells.is_empty() {
        let why = "The comparison had no run, so nothing is proven.".to_owned();
        let advice = advice(Conclusion::cannot_tell(here, why, "Run the same command again to continue."));
        return Ok(Advice { partial: true, ended_by: failure, ..advice });
    }
    // In the same order as `compare`.
    let order = |cell: &Cell| shortlist.iter().position(|policy| policy.id() == cell.policy);
    cells.sort_by_key(|cell| (order(cell), cell.rep));
    if failure.is_none() && reps < request.reps {
        caller.note(&format!(
            "{reps} of {} repetitions fit into {} min; --budget sets the number of minutes",
            request.reps,
            budget.as_secs() / 60
        ));
    }
    let compared = CompareRequest { seed: Some(fresh_seed), reps, ..request.clone() };
    let of_comparison = Settings { reps, ..settings.clone() };
    let mut comparison = finish(&compared, of_comparison, plan.here.clone(), (cells, failure))?;
    let conclusion = comparison.conclusion.clone();
    let mut advice = advice(conclusion.unwrap_or_else(|| Conclusion::freed_nothing(here)));
    advice.settings.reps = reps;
    (advice.partial, advice.ended_by) = (comparison.partial, comparison.ended_by.take());
    advice.search.runs.compared = comparison.cells.len() as u32;
    let chosen = advice.conclusion.policy.as_ref();
    advice.means =
        shortlist.iter().find(|policy| Some(&policy.id()) == chosen).map(|&policy| Candidates::means(policy));
    if let (Some(device), Some(policy)) = (Summary::of(&comparison.cells).devices.first(), chosen) {
        advice.costs = advise::costs(device, policy);
    }
    advice.comparison = Some(comparison);
    Ok(advice)
}

/// Returns a search whose first round has all candidates.
fn search(candidates: &Candidates) -> Search {
    let node = Node { is_first: true, neighbours: Vec::new() };
    Search::new(vec![node; candidates.policies.len()], ROUNDS)
}
