use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::search::Node;
use crate::compare::means::{Host, Means};
use crate::policy::{BatchConfig, PolicySpec};
use crate::policy::{DAEMON, Trimmer};
use crate::units::{SimDuration, Utilization};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gated {
    /// The kernel's own `discard`, which trimwised switches.
    Commit,
    /// A queue that trimwised works off: one worker; blocks reused in the meantime are not trimmed.
    Lazy,
}

impl Gated {
    pub const ALL: [Self; 2] = [Self::Commit, Self::Lazy];

    /// Returns the terms that follow the gate's.
    pub fn terms(self) -> String {
        match self {
            Self::Commit => String::new(),
            Self::Lazy => format!("+{}", queue(1)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Place {
    Plain,
    Batch {
        every_ns: u64,
    },
    Watermarks {
        gated: Gated,
        low_percent: u64,
        high_percent: u64,
    },
    Workers {
        /// TRIM commands at a time.
        workers: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub policy: Trimmer,
    pub means: Means,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub policy: String,
    pub reason: Cow<'static, str>,
}

#[derive(Clone, Debug)]
pub struct Space {
    /// Candidates that a stock host can apply; `off` first, then `commit`.
    pub applicable: Vec<Candidate>,
    /// Candidates that no host can have as it is.
    pub changed: Vec<Candidate>,
    /// Policies that these runs cannot judge.
    pub left_out: Vec<LeftOut>,
    /// The usual choices besides `off` and `commit`. The final comparison includes them.
    pub(super) usual: Vec<Trimmer>,
    axis: Vec<u64>,
    /// Watermarks at which the search begins.
    coarse: Vec<u64>,
}

/// Intervals of sweeps, in seconds, from the shortest that a host would have. Over days, `fstrim.timer` has times of
/// the day.
const INTERVALS_S: [u64; 5] = [3600, 21_600, 43_200, 86_400, WEEK_S];
const WEEK_S: u64 = 604_800;
/// Minimum number of sweeps in a run that judges an interval.
const SWEEPS_MIN: u64 = 2;
/// Nobody sweeps more often than this in a run.
const SWEEPS_MAX: u64 = 400;
/// TRIM commands at a time that a changed kernel's queue might issue. trimwised issues one.
const WORKERS: [u64; 5] = [1, 2, 4, 8, 16];

/// TRIM commands at a time over days: as few as trimwised issues, if a kernel did it, and many.
const WORKERS_OVER_DAYS: [u64; 2] = [1, 8];

fn queue(workers: u64) -> String {
    format!("lazy:{workers}:{workers}+reuse+merge")
}

fn candidate(text: &str, place: Place) -> Option<Candidate> {
    let policy: Trimmer = text.parse().ok()?;
    Some(Candidate { policy, means: Means::of_trimmer(policy, Host::UNKNOWN), place })
}

impl Space {
    /// Returns the candidates for a workload that begins at this utilization and takes this long without TRIM.
    ///
    /// Watermarks far from the utilization act like 0 or 100. So their axis has steps of 20 points, and of 5 points
    /// around the utilization.
    pub fn new(utilization: Utilization, run: SimDuration) -> Self {
        let mut space = Self::with_axis(utilization, &[]);
        space.add(["off", "commit", "judicious"], Place::Plain);
        space.add_intervals(&INTERVALS_S, SWEEPS_MIN, run);
        space.add_watermarks("", Gated::Commit);
        space.add_queues(&WORKERS);
        space
    }

    /// Returns the candidates for days of this length: `fstrim` at its times, and trimwised itself with the policies
    /// that it carries out without remounting. A kernel that followed the same policies is the bound.
    pub fn over_days(utilization: Utilization, length: SimDuration) -> Self {
        let weekly = PolicySpec::from(BatchConfig { every: SimDuration::from_secs(WEEK_S), units_min: 1 });
        let mut usual = vec![Trimmer::Daemon(PolicySpec::JUDICIOUS)];
        if length >= SimDuration::from_secs(WEEK_S) {
            usual.insert(0, Trimmer::Kernel(weekly));
        }
        let mut space = Self::with_axis(utilization, &usual);
        space.add(["off", "commit", DAEMON], Place::Plain);
        space.add_intervals(&INTERVALS_S, 1, length);
        let daemon = format!("{DAEMON}:");
        space.add([&*(daemon.clone() + &queue(1))], Place::Workers { workers: 1 });
        space.add_watermarks(&daemon, Gated::Lazy);
        space.add(["judicious"], Place::Plain);
        space.add_queues(&WORKERS_OVER_DAYS);
        space
    }

    fn with_axis(utilization: Utilization, usual: &[Trimmer]) -> Self {
        let used = i64::from(u8::from(utilization));
        let points = |points: &mut dyn Iterator<Item = i64>| {
            let mut axis: Vec<u64> = points.filter_map(|p| u64::try_from(p.clamp(0, 100)).ok()).collect();
            axis.sort_unstable();
            axis.dedup();
            axis
        };
        let near = [-10, -5, 0, 5, 10].map(|step| used + step);
        let axis = points(&mut (0..=100).step_by(20).chain(near));
        let coarse = points(&mut [0, used - 10, used, used + 10, 100].into_iter());
        let (applicable, changed, left_out) = (Vec::new(), Vec::new(), Vec::new());
        Self { applicable, changed, left_out, usual: usual.to_vec(), axis, coarse }
    }

    /// Adds candidates, each to those that a host can have or to the others.
    fn add<const N: usize>(&mut self, texts: [&str; N], place: Place) {
        for candidate in texts.into_iter().filter_map(|text| candidate(text, place)) {
            match candidate.means.is_attainable() {
                true => self.applicable.push(candidate),
                false => self.changed.push(candidate),
            }
        }
    }

    fn add_queues(&mut self, workers: &[u64]) {
        for &workers in workers {
            self.add([&*queue(workers)], Place::Workers { workers });
        }
    }

    fn add_intervals(&mut self, intervals_s: &[u64], sweeps_min: u64, run: SimDuration) {
        for &seconds in intervals_s {
            let every = SimDuration::from_secs(seconds);
            let text = format!("batch:{seconds}s");
            let place = Place::Batch { every_ns: every.as_nanos() };
            let Some(candidate) = candidate(&text, place) else { continue };
            let sweeps = run.as_nanos() / every.as_nanos();
            let reason = if sweeps < sweeps_min {
                "the run is too short to judge this interval; use --days, or more of them"
            } else if sweeps > SWEEPS_MAX {
                "more than 400 sweeps in the run; longer intervals are tried instead"
            } else {
                self.applicable.push(candidate);
                continue;
            };
            self.left_out.push(LeftOut { policy: candidate.policy.to_string(), reason: reason.into() });
        }
    }

    fn add_watermarks(&mut self, before: &str, gated: Gated) {
        for (i, &low_percent) in self.axis.iter().enumerate() {
            for &high_percent in &self.axis[i..] {
                let text = format!("{before}set:{low_percent}:{high_percent}{}", gated.terms());
                let place = Place::Watermarks { gated, low_percent, high_percent };
                self.applicable.extend(candidate(&text, place));
            }
        }
    }

    pub fn len(&self) -> usize {
        self.applicable.len() + self.changed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn axis(&self) -> &[u64] {
        &self.axis
    }

    /// Returns the applicable candidates as the search sees them.
    pub fn nodes(&self) -> Vec<Node> {
        let node = |of: &Candidate| {
            let Place::Watermarks { low_percent, high_percent, .. } = of.place else {
                return Node { is_first: true, neighbours: Vec::new() };
            };
            let is_near = |other: &Candidate| self.are_near(of.place, other.place);
            Node {
                is_first: [low_percent, high_percent].iter().all(|p| self.coarse.contains(p)),
                neighbours: (0..self.applicable.len()).filter(|&i| is_near(&self.applicable[i])).collect(),
            }
        };
        self.applicable.iter().map(node).collect()
    }

    /// Returns true if one watermark differs by a step of the axis, or only the policy after the gate.
    fn are_near(&self, one: Place, other: Place) -> bool {
        let at = |place| match place {
            Place::Watermarks { gated, low_percent, high_percent } => {
                let index = |p: u64| self.axis.iter().position(|point| *point == p);
                Some((gated, index(low_percent)?, index(high_percent)?))
            }
            _ => None,
        };
        let (Some((g1, l1, h1)), Some((g2, l2, h2))) = (at(one), at(other)) else { return false };
        usize::from(g1 != g2) + l1.abs_diff(l2) + h1.abs_diff(h2) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_tried_can_be_applied_or_is_marked() {
        let space = Space::new(Utilization::of(80), SimDuration::from_secs(240));
        assert_eq!(space.axis(), [0, 20, 40, 60, 70, 75, 80, 85, 90, 100]);
        assert_eq!(space.applicable[0].policy, Trimmer::Kernel(PolicySpec::OFF));
        assert_eq!(space.applicable[1].policy, Trimmer::Kernel(PolicySpec::COMMIT));
        assert!(space.applicable.iter().all(|c| c.policy.spec().suits_live_host()));
        let changed: Vec<(String, Means)> =
            space.changed.iter().map(|c| (c.policy.to_string(), c.means)).collect();
        let queue = |workers: u64| (queue(workers), Means::Ext4Trim);
        assert_eq!(
            changed,
            [("judicious".to_owned(), Means::Bound), queue(1), queue(2), queue(4), queue(8), queue(16)]
        );
        // off, commit and 55 pairs of watermarks.
        assert_eq!(space.applicable.len(), 2 + 55);
        let mut names: Vec<String> = space.applicable.iter().map(|c| c.policy.to_string()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), space.applicable.len(), "each once");
    }

    #[test]
    fn intervals_that_the_run_cannot_judge_are_left_out_by_name() {
        let named = |run| -> (Vec<String>, Vec<String>) {
            let space = Space::new(Utilization::of(50), run);
            let is_batch = |c: &&Candidate| matches!(c.place, Place::Batch { .. });
            let tried = space.applicable.iter().filter(is_batch).map(|c| c.policy.to_string());
            (tried.collect(), space.left_out.into_iter().map(|l| l.policy).collect())
        };
        let all = ["batch:1h", "batch:6h", "batch:12h", "batch:1d", "batch:1w"];
        assert_eq!(named(SimDuration::from_secs(12 * 3600)), (texts(&all[..2]), texts(&all[2..])));
        assert_eq!(named(SimDuration::from_secs(14 * 86_400)), (texts(&all), Vec::new()));
        // Nobody sweeps every few seconds.
        assert_eq!(named(SimDuration::from_secs(61)), (Vec::new(), texts(&all)));
    }

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn over_days_the_daemon_itself_and_weekly_sweeps_are_tried() {
        for days in [1, 7] {
            let space = Space::over_days(Utilization::of(80), SimDuration::from_secs(days * 86_400));
            let names: Vec<String> = space.applicable.iter().map(|c| c.policy.to_string()).collect();
            let mut expected =
                vec!["off", "commit", "trimwised", "batch:1h", "batch:6h", "batch:12h", "batch:1d"];
            expected.extend((days == 7).then_some("batch:1w"));
            expected.push("trimwised:lazy:1:1+reuse+merge");
            assert_eq!(names[..expected.len()], expected);
            assert!(names.contains(&"trimwised:set:75:85+lazy:1:1+reuse+merge".to_owned()));
            let is_daemons = |c: &&Candidate| c.policy.is_hosted();
            assert!(space.applicable.iter().filter(is_daemons).all(|c| c.means == Means::Trimwised));
            assert_eq!(space.applicable.iter().filter(is_daemons).count(), 2 + 55);
            let changed: Vec<String> = space.changed.iter().map(|c| c.policy.to_string()).collect();
            assert_eq!(changed, ["judicious", "lazy:1:1+reuse+merge", "lazy:8:8+reuse+merge"]);
            assert_eq!(space.left_out.len(), usize::from(days == 1), "the week");
        }
        let left_out = Space::over_days(Utilization::of(80), SimDuration::from_secs(90 * 86_400)).left_out;
        assert_eq!((left_out.len(), left_out[0].policy.as_str()), (1, "batch:1h"));
    }

    #[test]
    fn watermarks_have_their_neighbours_on_the_axis_and_behind_the_gate() {
        let space = Space::new(Utilization::of(80), SimDuration::from_secs(1));
        let at = |text: &str| {
            let policy: Trimmer = text.parse().unwrap();
            space.applicable.iter().position(|c| c.policy == policy).unwrap()
        };
        let nodes = space.nodes();
        let mut near: Vec<String> = nodes[at("set:75:85")]
            .neighbours
            .iter()
            .map(|&i| space.applicable[i].policy.to_string())
            .collect();
        near.sort();
        let expected = ["set:70:85", "set:75:80", "set:75:90", "set:80:85"];
        assert_eq!(near, expected);
        assert!(nodes[at("set:70:90")].is_first && !nodes[at("set:75:85")].is_first);
        assert!(nodes[at("off")].is_first && nodes[at("off")].neighbours.is_empty());
        // At the edges nothing lies outside.
        for percent in [0, 3, 97, 100] {
            let space = Space::new(Utilization::of(percent), SimDuration::ZERO);
            assert!(space.nodes().iter().flat_map(|n| &n.neighbours).all(|&i| i < space.applicable.len()));
            assert_eq!(space.axis().last(), Some(&100));
        }
    }
}
