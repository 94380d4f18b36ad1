//! `set-1b`: one file system through 60 %, 40 %, 70 % and 60 %, with PostMark at each, under each policy.

use trimwise::compare::cell::{CellError, audited};
use trimwise::compare::statistics::median;
use trimwise::engine::Sim;
use trimwise::policy::PolicySpec;
use trimwise::units::Utilization;

use super::{Aged, DEVICE, ONE_B, Run, Setting, postmark_on};
use crate::experiment::claims::Figures;
use crate::experiment::grid::{Grid, Shown};
use crate::experiment::result::ExperimentResult;
use crate::experiment::{Request, policies};
use crate::plot::{Axis, PlotKind};
use trimwise::failure::Failure;

/// Utilizations of the file system, one after another.
pub const UTILIZATIONS: [Utilization; 4] = Utilization::all([60, 40, 70, 60]);

/// The eight bars of the source, from left to right: `commit` is its "trim on".
pub const PUBLISHED: [&str; 8] =
    ["off", "set:0:100", "set:40:100", "set:40:90", "set:40:80", "set:40:70", "set:40:60", "commit"];

pub const FURTHER: [&str; 3] = ["lazy+reuse", "judicious", "ideal"];

/// A stage: set the utilization, then run PostMark.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// Time for deleting or creating files to reach the utilization.
    pub adjusting_s: f64,
    pub run: Run,
}

/// Takes the full file system through all utilizations under a policy.
pub fn run(
    setting: &Setting,
    aged: &Aged,
    policy: PolicySpec,
    rep: u32,
    seed: u64,
) -> Result<Vec<Stage>, CellError> {
    let sim = Sim::new();
    let (Aged { volume, mut files }, workload, host) = (aged.clone(), setting.workload.clone(), setting.host);
    files.reseed(seed ^ (u64::from(rep) << 32));
    sim.clone().run(async move {
        let fs = volume.restore(&sim, host.queue).await.mount(host, policy.governor()).await;
        let mut stages = Vec::new();
        for percent in UTILIZATIONS {
            let begin = sim.now();
            files.adjust_to(&fs, percent).await?;
            let adjusting_s = sim.now().since(begin).as_secs_f64();
            stages.push(Stage { adjusting_s, run: postmark_on(&fs, &workload, policy, rep).await? });
        }
        audited(fs, DEVICE, &policy).await?;
        Ok(stages)
    })?
}

pub(super) fn run_all(request: &Request) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let policies = policies(&[&PUBLISHED[..], &FURTHER].concat());
    let setting = Setting::published();
    let aged = super::age(&setting, seed).map_err(Failure::run)?;
    let runs = request.spread(&[DEVICE], policies.len() * reps as usize, 1, |i, step| {
        let (policy, rep) = (policies[i / reps as usize], (i % reps as usize) as u32);
        run(&setting, &aged, policy, rep, seed).inspect(|_| step())
    })?;
    let measured = Measured {
        policies: policies.iter().map(PolicySpec::to_string).collect(),
        runs: runs.chunks(reps as usize).map(<[_]>::to_vec).collect(),
    };
    Ok(evaluate(&measured, reps, seed))
}

#[derive(Clone, Debug)]
pub struct Measured {
    /// Includes those of [`PUBLISHED`].
    pub policies: Vec<String>,
    /// By policy, then repetition, then stage.
    pub runs: Vec<Vec<Vec<Stage>>>,
}

impl Measured {
    pub(super) fn stages(&self) -> Grid<Stage> {
        let names = UTILIZATIONS.iter().enumerate().map(|(i, percent)| format!("{}: {percent} %", i + 1));
        Grid::new(names, self.policies.clone(), |stage, policy| {
            self.runs[policy].iter().map(|rep| rep[stage].clone()).collect()
        })
    }

    /// Returns a series for each of these parts, summed over the stages.
    pub(super) fn sums(&self, parts: &[Part]) -> Grid<f64> {
        Grid::new(parts.iter().map(|(name, _)| *name), self.policies.clone(), |part, policy| {
            self.runs[policy].iter().map(|rep| rep.iter().map(parts[part].1).sum()).collect()
        })
    }

    /// Returns the median over the repetitions of a sum over the stages; `None` if that policy was not run.
    fn total(&self, policy: &str, figure: impl Fn(&Stage) -> f64) -> Option<f64> {
        let policy = self.policies.iter().position(|p| p == policy)?;
        median(&self.runs[policy].iter().map(|rep| rep.iter().map(&figure).sum()).collect::<Vec<f64>>())
    }

    /// Returns the time of all runs of PostMark, which the claims are about.
    pub(super) fn postmark_s(&self, policy: &str) -> Option<f64> {
        self.total(policy, |s| s.run.total_s)
    }

    /// Returns the policies that a host could use, fastest first.
    fn ranked(&self, time: impl Fn(&Stage) -> f64) -> Vec<(&str, f64)> {
        let usable = self.policies.iter().filter(|p| *p != "ideal");
        let mut ranked: Vec<(&str, f64)> =
            usable.filter_map(|p| Some((p.as_str(), self.total(p, &time)?))).collect();
        ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranked
    }

    fn finding(&self) -> String {
        let (postmark, all) =
            (self.ranked(|s| s.run.total_s), self.ranked(|s| s.run.total_s + s.adjusting_s));
        let (Some(first), Some(last), Some(of_all)) = (postmark.first(), postmark.last(), all.first()) else {
            return String::new();
        };
        let mut text = format!(
            "`{}` is the fastest over the four runs of PostMark ({:.1} s), `{}` the slowest ({:.1} s); with the \
             deleting and creating between them, `{}` is the fastest ({:.1} s).",
            first.0, first.1, last.0, last.1, of_all.0, of_all.1
        );
        if let Some(ideal) = self.postmark_s("ideal") {
            text += &format!(" PostMark under the bound `ideal` takes {ideal:.1} s.");
        }
        text + " "
    }

    /// Returns the figures of the claims: the time of PostMark, with and without the time for adjusting the
    /// utilization.
    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for policy in &self.policies {
            figures.set(policy, self.postmark_s(policy));
            figures.set(format!("{policy}.all"), self.total(policy, |s| s.run.total_s + s.adjusting_s));
        }
        figures
    }
}

/// Name of a figure that is summed over the stages, and the figure.
pub(super) type Part = (&'static str, fn(&Stage) -> f64);

/// Time of PostMark alone, and with the preparation before each run.
pub(super) const TIMES: [Part; 2] =
    [("PostMark", |s| s.run.total_s), ("with adjusting", |s| s.run.total_s + s.adjusting_s)];

pub(super) const POLICY: Axis = Axis::linear("policy", "policy", "");
const TIME: Axis = Axis::linear("execution_time_s", "execution time", "s");
pub(super) static WHOLE: Shown<f64> = Shown { title: "The whole sequence", y: TIME, of: |sum| *sum };

/// Figures of the stages that are known for a kernel too.
pub(super) static POSTMARK: Shown<Stage> =
    Shown { title: "PostMark at each utilization", y: TIME, of: |s| s.run.total_s };
pub(super) static TRIM: Shown<Stage> = Shown {
    title: "TRIM during PostMark",
    y: Axis::linear("trim_time_s", "time of the drive", "s"),
    of: |s| s.run.trim_s,
};
pub(super) static WRITES: Shown<Stage> = Shown {
    title: "What the drive writes during PostMark",
    y: Axis::linear("write_amplification", "write amplification", ""),
    of: |s| s.run.write_amplification,
};

static ADJUSTING: Shown<Stage> = Shown {
    title: "Deleting and creating files to reach the utilization",
    y: Axis::linear("adjusting_time_s", "time", "s"),
    of: |s| s.adjusting_s,
};
static VALID: Shown<Stage> = Shown {
    title: "The drive when PostMark begins",
    y: Axis::linear("valid_percent", "space that is valid in the drive", "%"),
    of: |s| s.run.device_utilization_percent,
};
static LATENCY: Shown<Stage> = Shown {
    title: "Latency during PostMark",
    y: Axis::linear("p99_ms", "99th percentile of the slowest kind of operation", "ms"),
    of: |s| s.run.p99_ms,
};

pub fn evaluate(measured: &Measured, reps: u32, seed: u64) -> ExperimentResult {
    let stages = measured.stages();
    let by_policy = |kind, shown| stages.plot(kind, &POLICY, shown);
    let sums = |kind, parts: &[Part]| measured.sums(parts).plot(kind, &POLICY, &WHOLE);
    let parts: [Part; 2] = [("adjusting", |s| s.adjusting_s), TIMES[0]];
    let copied: [Part; 1] = [("PostMark", |s| s.run.copied_gib)];
    let (times, copies) = (sums(PlotKind::Bars, &TIMES), sums(PlotKind::Bars, &copied));
    let percent = Axis::linear("vs_ideal_percent", "longer than under ideal", "%");
    let distance = |of, ideal| (of / ideal - 1.0) * 100.0;
    let (time_saved, copies_saved) =
        (Axis::linear("time_saved_s", "time", "s"), Axis::linear("copies_saved_gib", "copies", "GiB"));
    let (off, less) = ("off".to_owned().into(), |of, off| off - of);
    let plots = [
        by_policy(PlotKind::StackedBars, &POSTMARK),
        sums(PlotKind::StackedBars, &parts),
        times.against_place(&"ideal".to_owned().into(), "Distance to the bound", percent, distance),
        times.against_place(&off, "Time saved compared with off", time_saved, less),
        copies.against_place(&off, "Copies saved compared with off during PostMark", copies_saved, less),
        by_policy(PlotKind::StackedBars, &ADJUSTING),
        by_policy(PlotKind::StackedBars, &TRIM),
        by_policy(PlotKind::Bars, &WRITES),
        by_policy(PlotKind::Bars, &VALID),
        by_policy(PlotKind::Bars, &LATENCY),
    ];
    let mut result = ONE_B.judge(&measured.figures(), &plots, reps, seed);
    result.finding.insert_str(0, &measured.finding());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invents totals of the published policies, in their order, spread evenly over the stages.
    fn measured(totals: [f64; 8]) -> Measured {
        let stages = |total: f64| {
            let run = Run { total_s: total / 4.0, ..Run::default() };
            vec![Stage { adjusting_s: 1.0, run }; UTILIZATIONS.len()]
        };
        Measured {
            policies: PUBLISHED.map(str::to_owned).to_vec(),
            runs: totals.map(|t| vec![stages(t), stages(t + 4.0), stages(t - 4.0)]).to_vec(),
        }
    }

    fn met(totals: [f64; 8]) -> Vec<String> {
        evaluate(&measured(totals), 3, 1).claims.into_iter().filter(|c| c.met).map(|c| c.id).collect()
    }

    #[test]
    fn claims_follow_the_totals() {
        let all = ["set-1b-on-beats-off", "set-1b-set-beats-on", "set-1b-high-watermark"];
        assert_eq!(met([900.0, 500.0, 500.0, 510.0, 510.0, 550.0, 600.0, 700.0]), all);
        assert_eq!(met([900.0, 500.0, 500.0, 510.0, 505.0, 550.0, 600.0, 700.0]), all[..2], "it falls");
        assert_eq!(met([900.0, 500.0, 500.0, 500.0, 500.0, 500.0, 500.0, 700.0]), all[..2], "all the same");
        assert_eq!(met([900.0, 720.0, 500.0, 510.0, 510.0, 550.0, 600.0, 700.0]), [all[0], all[2]]);
        assert_eq!(met([600.0, 500.0, 500.0, 510.0, 510.0, 550.0, 590.0, 700.0]), all[1..]);
        assert!(met([f64::NAN; 8]).is_empty());
    }

    #[test]
    fn a_point_is_the_median_of_its_repetitions_with_their_range() {
        let result = evaluate(&measured([900.0, 500.0, 500.0, 510.0, 510.0, 550.0, 600.0, 700.0]), 3, 1);
        let plots = result.rows.plots();
        let off = &plots[0].series[0].points[0];
        assert_eq!((off.y, off.range), (225.0, Some((224.0, 226.0))));
        let whole: f64 = plots[1].series.iter().map(|s| s.points[0].y).sum();
        assert_eq!(whole, 904.0);
        assert!(result.finding.starts_with("`set:0:100` is the fastest"), "{}", result.finding);
    }
}
