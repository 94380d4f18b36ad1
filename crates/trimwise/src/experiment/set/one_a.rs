//! `set-1a`: execution time of PostMark against the drive's utilization, TRIM off and on.

use super::{Aged, DEVICE, Run, Setting, plot, postmark_on};
use crate::engine::Sim;
use crate::experiment::cell::{CellError, audited};
use crate::experiment::plot::{Axis, PlotKind};
use crate::experiment::result::{Claim, ExperimentResult, ExperimentRows, Figure, open_claims};
use crate::experiment::statistics::median;
use crate::fs::Volume;
use crate::fs::layout::FormatOptions;
use crate::policy::PolicySpec;
use crate::units::{Lpn, UnitRange};

/// Its name on the command line.
pub const NAME: &str = "set-1a";

/// The question it answers.
pub const QUESTION: &str =
    "How full must a drive be before TRIM at every commit is worth its time to PostMark?";

/// Utilizations of the drive, in percent.
pub const UTILIZATIONS: [u64; 11] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100];

/// Policies as they are written: the two of the source, and others beside them.
pub const POLICIES: [&str; 4] = ["off", "commit", "judicious", "ideal"];

/// Runs PostMark once under each policy on a drive that is so full: from the full file system files are
/// deleted, what they leave is trimmed, and a new file system is made without TRIM.
///
/// # Errors
///
/// [`CellError`].
pub fn run(
    setting: &Setting,
    aged: &Aged,
    policies: &[PolicySpec],
    utilization_percent: u64,
    rep: u32,
    seed: u64,
    after_each: &dyn Fn(),
) -> Result<Vec<Run>, CellError> {
    let host = setting.host;
    let sim = Sim::new();
    let prepared = {
        let (Aged { volume, mut files }, sim) = (aged.clone(), sim.clone());
        files.reseed(seed ^ (u64::from(rep) << 32) ^ utilization_percent);
        sim.clone().run(async move {
            let off = PolicySpec::OFF;
            let fs = volume.restore(&sim, host.queue).await.mount(host, off.governor()).await;
            files.delete_to(&fs, utilization_percent).await?;
            fs.trim_free(UnitRange::new(Lpn(0), fs.queue().with_ssd(|ssd| ssd.capacity_units())), 1).await;
            let queue = audited(fs, DEVICE, off).await?.queue().clone();
            let without_trim = FormatOptions { discard: false, ..FormatOptions::default() };
            Ok::<_, CellError>(Volume::format(&queue, without_trim).await?.image())
        })??
    };
    let mut runs = Vec::new();
    for &policy in policies {
        let (sim, prepared, workload) = (Sim::new(), prepared.clone(), setting.workload.clone());
        runs.push(sim.clone().run(async move {
            let fs = prepared.restore(&sim, host.queue).await.mount(host, policy.governor()).await;
            let run = postmark_on(&fs, &workload, policy, rep).await?;
            audited(fs, DEVICE, policy).await?;
            Ok::<_, CellError>(run)
        })??);
        after_each();
    }
    Ok(runs)
}

/// All runs of the experiment.
#[derive(Clone, Debug)]
pub struct Measured {
    /// In percent, ascending.
    pub utilizations: Vec<u64>,
    /// As written; `off` and `commit` are among them.
    pub policies: Vec<String>,
    /// By utilization, then repetition, then policy.
    pub runs: Vec<Vec<Vec<Run>>>,
}

/// The width of the steps between which execution times are compared, in percent of the drive.
const STEP_PERCENT: u64 = 10;
/// Up to here utilization is low.
const LOW_PERCENT: u64 = 50;
/// A step that changes the execution time by no more than this share is hardly anything.
const HARDLY: f64 = 0.05;
/// What is large is at least so many times what a step at low utilization is.
const LARGE: f64 = 5.0;

impl Measured {
    fn of(&self, policy: usize, utilization: usize, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs[utilization].iter().map(|rep| figure(&rep[policy])).collect()
    }

    /// The median execution time; `None` if that was not run.
    fn time_s(&self, policy: &str, utilization_percent: u64) -> Option<f64> {
        let policy = self.policies.iter().position(|p| p == policy)?;
        let utilization = self.utilizations.iter().position(|&u| u == utilization_percent)?;
        median(&self.of(policy, utilization, |r| r.total_s))
    }

    /// By how much a step longer each step from below makes PostMark under `commit`: (end of the step, seconds).
    fn steps(&self) -> Vec<(u64, f64)> {
        let step = |&end: &u64| {
            let begin = end.checked_sub(STEP_PERCENT)?;
            Some((end, self.time_s("commit", end)? - self.time_s("commit", begin)?))
        };
        self.utilizations.iter().filter(|&&u| u % STEP_PERCENT == 0).filter_map(step).collect()
    }

    fn low(&self) -> Claim {
        let slower: Vec<u64> = self
            .utilizations
            .iter()
            .copied()
            .filter(|&u| match (self.time_s("commit", u), self.time_s("off", u)) {
                (Some(on), Some(off)) => on > off,
                _ => false,
            })
            .collect();
        let is_range =
            |pair: &[u64]| pair[1] <= LOW_PERCENT && slower.contains(&pair[0]) && slower.contains(&pair[1]);
        let listed: Vec<String> = slower.iter().map(u64::to_string).collect();
        Claim {
            id: "set-1a-low",
            text: format!(
                "there is a range of lower utilization (two neighbouring ones up to {LOW_PERCENT} %) in which the \
                 run with trim on takes longer than with trim off"
            ),
            met: self.utilizations.windows(2).any(is_range),
            published: Figure::Text("drawn".to_owned()),
            measured: Figure::Text(match listed.len() {
                0 => "on takes longer nowhere".to_owned(),
                _ => format!("on takes longer at {} %", listed.join(", ")),
            }),
        }
    }

    fn slope(&self) -> Claim {
        let steps = self.steps();
        let top = steps.iter().find(|s| s.0 == 100).map(|s| s.1);
        let next = steps.iter().filter(|s| s.0 != 100).map(|s| s.1).fold(f64::NEG_INFINITY, f64::max);
        Claim {
            id: "set-1a-slope",
            text:
                "with trim on, execution time against device utilization is steepest between 90 % and 100 %"
                    .to_owned(),
            met: top.is_some_and(|top| top > next),
            published: Figure::Text("drawn".to_owned()),
            measured: Figure::Text(format!(
                "{:+.1} s from 90 % to 100 %, {next:+.1} s at most in any other step of {STEP_PERCENT} %",
                top.unwrap_or(f64::NAN)
            )),
        }
    }

    fn gain(&self) -> Claim {
        let steps = self.steps();
        let top = steps.iter().find(|s| s.0 == 100).map_or(f64::NAN, |s| s.1);
        let low = steps.iter().filter(|s| s.0 <= LOW_PERCENT).map(|s| s.1.abs()).fold(0.0, f64::max);
        let share = low / self.time_s("commit", LOW_PERCENT).unwrap_or(f64::NAN);
        Claim {
            id: "set-1a-gain",
            text: format!(
                "what trim could gain (the difference between high and low utilization, {STEP_PERCENT} % apart) is \
                 large at high utilization (at least {LARGE} times as much as at low, and more than {:.0} % of the \
                 time) and hardly anything at low (up to {LOW_PERCENT} % at most {:.0} % of the time)",
                100.0 * HARDLY,
                100.0 * HARDLY
            ),
            met: share <= HARDLY
                && top >= LARGE * low
                && top > HARDLY * self.time_s("commit", 90).unwrap_or(f64::NAN),
            published: Figure::Text("drawn".to_owned()),
            measured: Figure::Text(format!(
                "{top:.1} s from 100 % to 90 %; at most {low:.1} s, {:.1} % of the time, in a step up to \
                 {LOW_PERCENT} %",
                100.0 * share
            )),
        }
    }

    fn finding(&self, claims: &[Claim]) -> String {
        let faster: Vec<u64> = self
            .utilizations
            .iter()
            .copied()
            .filter(|&u| self.time_s("commit", u) < self.time_s("off", u))
            .collect();
        let pays = match faster.first() {
            None => "TRIM at every commit costs more than it gains at every utilization.".to_owned(),
            Some(first) => {
                format!(
                    "TRIM at every commit pays from {first} % of the drive in use on, and costs more than it \
                     gains below."
                )
            }
        };
        format!("{pays} {}", open_claims(claims))
    }
}

/// Figures and claims.
pub fn evaluate(measured: &Measured, reps: u32, seed: u64) -> ExperimentResult {
    let utilization = || Axis::linear("device_utilization_percent", "device utilization", "%");
    let xs: Vec<f64> = measured.utilizations.iter().map(|&u| u as f64).collect();
    let figure = |title: &str, y: Axis, of: fn(&Run) -> f64| {
        plot(title, PlotKind::Lines, (utilization(), y), &measured.policies, &xs, |p, u| {
            measured.of(p, u, of)
        })
    };
    let time = figure("PostMark", Axis::linear("execution_time_s", "execution time", "s"), |r| r.total_s);
    let copies =
        figure("What the drive copies", Axis::linear("copied_gib", "copies", "GiB"), |r| r.copied_gib);
    let less = |of: f64, off: f64| off - of;
    let saved = [
        time.distance_to_ideal(),
        time.against("off", "Time saved against off", Axis::linear("time_saved_s", "time", "s"), less),
        copies.against(
            "off",
            "Copies saved against off",
            Axis::linear("copies_saved_gib", "copies", "GiB"),
            less,
        ),
    ];
    let mut plots = vec![time];
    plots.extend(saved.into_iter().flatten());
    plots.extend([
        figure(
            "What the drive writes",
            Axis::linear("write_amplification", "write amplification", ""),
            |r| r.write_amplification,
        ),
        figure("TRIM", Axis::linear("trim_time_s", "time of the drive spent on TRIM", "s"), |r| r.trim_s),
        figure(
            "The drive at the begin",
            Axis::linear("valid_percent", "space that is valid in the drive", "%"),
            |r| r.device_utilization_percent,
        ),
        figure(
            "Stale space",
            Axis::linear("stale_percent", "free in the file system and valid in the drive, mean", "%"),
            |r| r.stale_percent,
        ),
        figure(
            "Latency",
            Axis::linear("p99_ms", "99th percentile of the slowest kind of operation", "ms"),
            |r| r.p99_ms,
        ),
    ]);
    let claims = vec![measured.low(), measured.slope(), measured.gain()];
    ExperimentResult {
        experiment: NAME.to_owned(),
        question: QUESTION.to_owned(),
        finding: measured.finding(&claims),
        trimwise: crate::VERSION.to_owned(),
        seed,
        reps,
        rows: ExperimentRows::Plots(plots),
        claims,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of `off` and `commit` at 10, 20, 50, 90 and 100 %, and what lies on straight lines between them.
    fn met(off: [f64; 5], on: [f64; 5]) -> Vec<&'static str> {
        let given = [10.0, 20.0, 50.0, 90.0, 100.0];
        let at = |times: &[f64; 5], u: f64| {
            let i = given[1..4].iter().filter(|&&g| g <= u).count().min(3);
            times[i] + (times[i + 1] - times[i]) * (u - given[i]) / (given[i + 1] - given[i])
        };
        let run = |total_s| Run { total_s, ..Run::default() };
        let measured = Measured {
            utilizations: UTILIZATIONS.to_vec(),
            policies: vec!["off".to_owned(), "commit".to_owned()],
            runs: UTILIZATIONS.map(|u| vec![[&off, &on].map(|t| run(at(t, u as f64))).to_vec()]).to_vec(),
        };
        evaluate(&measured, 1, 1).claims.into_iter().filter(|c| c.met).map(|c| c.id).collect()
    }

    #[test]
    fn claims_follow_the_curves() {
        let off = [300.0, 305.0, 350.0, 600.0, 900.0];
        let on = [350.0, 352.0, 370.0, 450.0, 600.0];
        let all = ["set-1a-low", "set-1a-slope", "set-1a-gain"];
        assert_eq!(met(off, on), all);
        assert_eq!(met(off, [250.0, 252.0, 270.0, 350.0, 500.0]), all[1..], "TRIM costs nothing");
        assert_eq!(met(off, [350.0, 352.0, 370.0, 560.0, 600.0]), [all[0], all[2]], "steeper below 90 %");
        assert_eq!(
            met(off, [350.0, 380.0, 460.0, 500.0, 900.0]),
            all[..2],
            "it gains at low utilization too"
        );
        assert_eq!(met(off, [350.0; 5]), all[..1], "flat");
    }
}
