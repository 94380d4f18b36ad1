//! The search, as a state machine: it returns the next jobs, and is told their results.
//!
//! Candidates form a graph: settings that differ by a step are neighbours. Where many settings do the same, as
//! watermarks that the workload never crosses do, there is a plateau of identical runs. It counts as one candidate, and
//! only its border is explored.

use std::collections::BTreeMap;

use crate::compare::judge::{TIME_PERCENT, best_of};
use crate::compare::result::Cell;
use crate::compare::statistics::{Sample, median};

/// Repetitions of the finalists, as many as in an exhaustive search.
pub const REPS_MAX: u32 = 8;

const LEADERS: usize = 3;
const EXPLORATIONS_MAX: u32 = 4;
/// Candidates slower than the fastest by more than this share are not kept for being gentle.
const NEAR: f64 = TIME_PERCENT / 100.0;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The search begins with this candidate.
    pub is_first: bool,
    /// Candidates to try if this one is among the best.
    pub neighbours: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    pub candidate: usize,
    /// The repetition, from 0.
    pub rep: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The time by which policies are judged.
    pub time_s: f64,
    /// Units programmed into the flash, if the device tells.
    pub wear_units: Option<f64>,
    /// Figures that two runs share only if they are the same run.
    pub identity: [u64; 4],
}

impl Observation {
    pub fn of(cell: &Cell) -> Self {
        let device = cell.device_stats.as_ref();
        let of = |figure: fn(&crate::compare::result::DeviceFigures) -> u64| device.map_or(0, figure);
        Self {
            time_s: cell.measured_ns() as f64 / 1e9,
            wear_units: device.map(|d| d.nand_units_written as f64),
            identity: [
                cell.duration_ns,
                of(|d| d.nand_units_written),
                of(|d| d.trim_ranges),
                of(|d| d.trimmed_units),
            ],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Repetitions of the finalists: a power of two.
    pub reps_max: u32,
    pub finalists: usize,
}

impl Rounds {
    /// Rounds that `advise` uses.
    pub const ADVICE: Self = Self { reps_max: REPS_MAX, finalists: 3 };
    /// Rounds for a bound, which need not be exact.
    pub const BOUND: Self = Self { reps_max: 2, finalists: 1 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Explore(u32),
    /// The field has this many repetitions each.
    Halve(u32),
    Over,
}

#[derive(Clone, Debug)]
pub struct Search {
    nodes: Vec<Node>,
    rounds: Rounds,
    seen: Vec<BTreeMap<u32, Observation>>,
    /// Candidates still in the race, the best first.
    field: Vec<usize>,
    phase: Phase,
}

impl Search {
    pub fn new(nodes: Vec<Node>, rounds: Rounds) -> Self {
        let seen = vec![BTreeMap::new(); nodes.len()];
        Self { nodes, rounds, seen, field: Vec::new(), phase: Phase::Begin }
    }

    /// Runs the search to its end. `run` runs jobs in any order, and returns their results in the order of the jobs. It
    /// is also told how many jobs are left at most, these included.
    ///
    /// # Errors
    ///
    /// The first error of `run`. Observations recorded before it stay.
    pub fn run<E>(
        &mut self,
        mut run: impl FnMut(&[Job], usize) -> (Vec<(Job, Observation)>, Option<E>),
    ) -> Result<(), E> {
        loop {
            let left = self.left_max();
            let jobs = self.next_jobs();
            if jobs.is_empty() {
                return Ok(());
            }
            let (observed, error) = run(&jobs, left);
            observed.into_iter().for_each(|(job, observation)| self.record(job, observation));
            if let Some(error) = error {
                return Err(error);
            }
        }
    }

    /// Records a run. An unrequested run counts too, and need not be repeated.
    pub fn record(&mut self, job: Job, observation: Observation) {
        if let Some(seen) = self.seen.get_mut(job.candidate) {
            seen.insert(job.rep, observation);
        }
    }

    /// Returns the jobs of the next round once those of the last are recorded; none when the search is over.
    pub fn next_jobs(&mut self) -> Vec<Job> {
        while self.phase != Phase::Over {
            let jobs = match self.phase {
                Phase::Begin => {
                    self.phase = Phase::Explore(0);
                    self.missing((0..self.nodes.len()).filter(|&i| self.nodes[i].is_first), 1)
                }
                Phase::Explore(times) => {
                    let leaders = self.kept(self.distinct(), LEADERS);
                    let jobs = self.missing(self.bordering(&leaders).into_iter(), 1);
                    let jobs = spread(jobs, self.explorable());
                    self.phase = Phase::Explore(times + 1);
                    if jobs.is_empty() || times == EXPLORATIONS_MAX {
                        self.field = self.distinct();
                        self.phase = Phase::Halve(1);
                        continue;
                    }
                    jobs
                }
                Phase::Halve(reps) => self.halve(reps),
                Phase::Over => Vec::new(),
            };
            if !jobs.is_empty() {
                return jobs;
            }
        }
        Vec::new()
    }

    /// Returns how many jobs are left at most, once those of the last round are recorded. It falls by at least the
    /// number of jobs in each round.
    pub fn left_max(&self) -> usize {
        let (first, may_explore) = match self.phase {
            Phase::Over => return 0,
            Phase::Halve(reps) => return self.halvings(self.field.len(), reps),
            Phase::Begin => {
                let is_new = |&i: &usize| self.nodes[i].is_first && !self.seen[i].contains_key(&0);
                ((0..self.nodes.len()).filter(is_new).count(), true)
            }
            Phase::Explore(times) => (0, times < EXPLORATIONS_MAX),
        };
        let explored = if may_explore { self.explorable().saturating_sub(first) } else { 0 };
        first + explored + self.halvings(self.distinct().len() + first + explored, 1)
    }

    /// Returns the runs of a field of at most this size that has `reps` repetitions, to the end of the search.
    fn halvings(&self, mut field: usize, mut reps: u32) -> usize {
        let mut runs = 0;
        while reps < self.rounds.reps_max && field > 1 {
            field = self.survivors(field, reps);
            runs += field * reps as usize;
            reps *= 2;
        }
        runs
    }

    /// Returns how many of a field stay in the race. After one run they are a third: most candidates are far off.
    fn survivors(&self, field: usize, reps: u32) -> usize {
        field.div_ceil(if reps == 1 { 3 } else { 2 }).max(self.rounds.finalists).min(field)
    }

    /// Returns how many more candidates may be explored: half of all candidates run at all.
    fn explorable(&self) -> usize {
        let ran = self.seen.iter().filter(|seen| !seen.is_empty()).count();
        (self.nodes.len() / 2).saturating_sub(ran)
    }

    /// Returns the neighbours of these candidates and of their equals. Candidates surrounded by equals are left out:
    /// they would be the same too.
    fn bordering(&self, leaders: &[usize]) -> Vec<usize> {
        let like = |i: usize| (self.runs(i) > 0).then(|| self.same_as(i).unwrap_or(i));
        let members = (0..self.nodes.len()).filter(|&i| like(i).is_some_and(|like| leaders.contains(&like)));
        let near = members.flat_map(|i| self.nodes[i].neighbours.iter().map(move |&near| (i, near)));
        let is_border = |&(member, near): &(usize, usize)| {
            let around = &self.nodes[near].neighbours;
            let further = around.iter().flat_map(|&i| &self.nodes[i].neighbours);
            around.iter().chain(further).any(|&i| like(i).is_some() && like(i) != like(member))
        };
        near.filter(is_border).map(|(_, near)| near).collect()
    }

    /// Keeps the better part of the field, and doubles its repetitions.
    fn halve(&mut self, reps: u32) -> Vec<Job> {
        let field = std::mem::take(&mut self.field);
        if reps >= self.rounds.reps_max || field.len() <= 1 {
            let all = field.len();
            self.field = self.kept(field, all);
            self.phase = Phase::Over;
            return Vec::new();
        }
        let keep = self.survivors(field.len(), reps);
        self.field = self.kept(field, keep);
        self.phase = Phase::Halve(reps * 2);
        self.missing(self.field.iter().copied(), reps * 2)
    }

    /// Returns the best `keep` of these, by the repetitions that all of them have. The faster half of the places goes
    /// to the fastest; the others go to the gentlest of those that are about as fast, since the verdict weighs wear
    /// too.
    fn kept(&self, mut of: Vec<usize>, keep: usize) -> Vec<usize> {
        let reps = of.iter().map(|&i| self.runs(i)).min().unwrap_or(0);
        let time = |i: usize| self.median_of(i, reps, |o| Some(o.time_s)).unwrap_or(f64::INFINITY);
        let wear = |i: usize| self.median_of(i, reps, |o| o.wear_units).unwrap_or(f64::INFINITY);
        of.sort_by(|&a, &b| time(a).total_cmp(&time(b)).then(a.cmp(&b)));
        let near = of.first().map_or(0.0, |&best| time(best) * (1.0 + NEAR));
        let mut others = of.split_off(keep.div_ceil(2).min(of.len()));
        let key = |i: usize| if time(i) <= near { (0, wear(i)) } else { (1, time(i)) };
        others.sort_by(|&a, &b| {
            let ((far_a, a_key), (far_b, b_key)) = (key(a), key(b));
            far_a.cmp(&far_b).then(a_key.total_cmp(&b_key)).then(a.cmp(&b))
        });
        of.extend(others);
        of.truncate(keep);
        of
    }

    /// Returns the jobs still to be run so that each of these has repetitions 0 to `reps - 1`.
    fn missing(&self, of: impl Iterator<Item = usize>, reps: u32) -> Vec<Job> {
        let jobs = of.flat_map(|candidate| (0..reps).map(move |rep| Job { candidate, rep }));
        let mut jobs: Vec<Job> =
            jobs.filter(|job| !self.seen[job.candidate].contains_key(&job.rep)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    fn median_of(&self, of: usize, reps: u32, figure: impl Fn(&Observation) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.seen[of].range(..reps).map(|(_, o)| figure(o)).collect();
        median(&values?)
    }

    fn runs(&self, of: usize) -> u32 {
        (0..).find(|rep| !self.seen[of].contains_key(rep)).unwrap_or(0)
    }

    /// Returns the candidates that have run. Of those with the same first run, only the first counts.
    fn distinct(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&i| self.runs(i) > 0 && self.same_as(i).is_none()).collect()
    }

    /// Returns the earlier candidate whose first run was the same to the last bit, if there is one.
    pub fn same_as(&self, candidate: usize) -> Option<usize> {
        let first = self.seen.get(candidate)?.get(&0)?;
        (0..candidate).find(|&earlier| self.seen[earlier].get(&0) == Some(first))
    }

    pub fn seen(&self, candidate: usize) -> &BTreeMap<u32, Observation> {
        static NONE: BTreeMap<u32, Observation> = BTreeMap::new();
        self.seen.get(candidate).unwrap_or(&NONE)
    }

    pub fn total_runs(&self) -> usize {
        self.seen.iter().map(BTreeMap::len).sum()
    }

    /// Returns the finalists once the search is over: the winner by the rule of the verdict first, then the others by
    /// time.
    pub fn finalists(&self) -> Vec<usize> {
        let mut field = self.field.clone();
        let times: Vec<Sample> =
            self.paired(&field, |o| Some(o.time_s)).into_iter().map_while(|sample| sample).collect();
        if let Some(winner) = best_of(&times, &self.paired(&field, |o| o.wear_units)) {
            let winner = field.remove(winner);
            field.insert(0, winner);
        }
        field
    }

    /// Returns a figure of each candidate, in each repetition relative to the median of all of them there. So what
    /// repetitions have in common does not hide how candidates differ.
    fn paired(&self, of: &[usize], figure: impl Fn(&Observation) -> Option<f64>) -> Vec<Option<Sample>> {
        let at = |i: usize, rep: u32| self.seen[i].get(&rep).and_then(&figure);
        let reps = of.iter().map(|&i| self.runs(i)).min().unwrap_or(0);
        let middle = |rep| median(&of.iter().filter_map(|&i| at(i, rep)).collect::<Vec<_>>());
        let middles: Vec<Option<f64>> = (0..reps).map(middle).collect();
        let sample = |&i: &usize| {
            let relative = |(rep, middle): (usize, &Option<f64>)| Some(at(i, rep as u32)? / (*middle)?);
            let values: Option<Vec<f64>> = middles.iter().enumerate().map(relative).collect();
            Sample::new(values?, false)
        };
        of.iter().map(sample).collect()
    }

    /// Returns how much longer a candidate takes than another: the median of the ratios, less one, over the repetitions
    /// that both have; and the number of those.
    pub fn excess(&self, candidate: usize, over: usize) -> Option<(f64, usize)> {
        let of = self.seen(self.same_as(candidate).unwrap_or(candidate));
        let other = self.seen(over);
        let ratios: Vec<f64> =
            of.iter().filter_map(|(rep, o)| Some(o.time_s / other.get(rep)?.time_s)).collect();
        Some((median(&ratios)? - 1.0, ratios.len()))
    }
}

/// Keeps at most this many of the jobs, spread evenly.
fn spread(jobs: Vec<Job>, most: usize) -> Vec<Job> {
    let all = jobs.len();
    if all <= most {
        return jobs;
    }
    (0..most).map(|i| jobs[i * all / most]).collect()
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
