//! `set-1a`: execution time of PostMark against the drive's utilization, TRIM off and on.

use trimwise::compare::cell::{CellError, audited};
use trimwise::compare::statistics::median;
use trimwise::engine::Sim;
use trimwise::fs::Volume;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::units::{Lpn, UnitRange};

use super::{Aged, DEVICE, Run, Setting, one_a_on_kernel, plot, postmark_on};
use crate::experiment::claims::Figures;
use crate::experiment::result::{ExperimentResult, Rows};
use crate::experiment::{Experiment, Host, Request, policies, real_ext4};
use crate::failure::Failure;
use crate::plot::{Axis, PlotKind};

/// The experiment; the source does not give its repetitions.
pub static EXPERIMENT: Experiment = Experiment {
    name: "set-1a",
    question: "How full must a drive be before TRIM at every commit is worth its time to PostMark?",
    reps: 1,
    claims: include_str!("../../../../../experiments/set-1a/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, one_a_on_kernel::check),
    run: |request| match &request.target {
        None => run_all(request),
        Some(target) => one_a_on_kernel::run(request, target),
    },
};

/// Utilizations of the drive, in percent.
pub const UTILIZATIONS: [u64; 11] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100];

/// Policies as they are written: the two of the source, and two more.
pub const POLICIES: [&str; 4] = ["off", "commit", "judicious", "ideal"];

/// Runs PostMark once under each policy on a drive with this utilization: files are deleted from the full file system,
/// what they leave is trimmed, and a new file system is made without TRIM.
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
    let without_trim = FormatOptions { discard: false, ..setting.format };
    let sim = Sim::new();
    let prepared = {
        let (Aged { volume, mut files }, sim) = (aged.clone(), sim.clone());
        files.reseed(seed ^ (u64::from(rep) << 32) ^ utilization_percent);
        sim.clone().run(async move {
            let off = PolicySpec::OFF;
            let fs = volume.restore(&sim, host.queue).await.mount(host, off.governor()).await;
            files.delete_to(&fs, utilization_percent).await?;
            fs.trim_free(UnitRange::new(Lpn(0), fs.queue().with_ssd(|ssd| ssd.capacity_units())), 1).await;
            let queue = audited(fs, DEVICE, &off).await?.queue().clone();
            Ok::<_, CellError>(Volume::format(&queue, without_trim).await?.image())
        })??
    };
    let mut runs = Vec::new();
    for &policy in policies {
        let (sim, prepared, workload) = (Sim::new(), prepared.clone(), setting.workload.clone());
        runs.push(sim.clone().run(async move {
            let fs = prepared.restore(&sim, host.queue).await.mount(host, policy.governor()).await;
            let run = postmark_on(&fs, &workload, policy, rep).await?;
            audited(fs, DEVICE, &policy).await?;
            Ok::<_, CellError>(run)
        })??);
        after_each();
    }
    Ok(runs)
}

fn run_all(request: &Request) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let policies = policies(&POLICIES);
    let setting = Setting::published();
    let aged = super::age(&setting, seed).map_err(Failure::run)?;
    let cells = UTILIZATIONS.len() * reps as usize;
    let runs = request.spread(&[DEVICE], cells, policies.len() as u32, |i, step| {
        let (utilization, rep) = (UTILIZATIONS[i / reps as usize], (i % reps as usize) as u32);
        run(&setting, &aged, &policies, utilization, rep, seed, step)
    })?;
    let measured = Measured {
        utilizations: UTILIZATIONS.to_vec(),
        policies: POLICIES.map(str::to_owned).to_vec(),
        runs: runs.chunks(reps as usize).map(<[_]>::to_vec).collect(),
    };
    Ok(evaluate(&measured, reps, seed))
}

/// All runs of the experiment.
#[derive(Clone, Debug)]
pub struct Measured {
    /// In percent, ascending.
    pub utilizations: Vec<u64>,
    /// As written, including `off` and `commit`.
    pub policies: Vec<String>,
    /// By utilization, then repetition, then policy.
    pub runs: Vec<Vec<Vec<Run>>>,
}

/// Width of the steps for comparing execution times, in percent of the drive.
const STEP_PERCENT: u64 = 10;
/// Utilization counts as low up to this.
const LOW_PERCENT: u64 = 50;
impl Measured {
    fn of(&self, policy: usize, utilization: usize, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs[utilization].iter().map(|rep| figure(&rep[policy])).collect()
    }

    /// Returns the median execution time; `None` if that was not run.
    fn time_s(&self, policy: &str, utilization_percent: u64) -> Option<f64> {
        let policy = self.policies.iter().position(|p| p == policy)?;
        let utilization = self.utilizations.iter().position(|&u| u == utilization_percent)?;
        median(&self.of(policy, utilization, |r| r.total_s))
    }

    /// Returns the figures that the claims are about: times under `commit` and `off`, and how much longer PostMark
    /// takes under `commit` with each step of utilization.
    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        let both = |u: u64| Some((self.time_s("commit", u)?, self.time_s("off", u)?));
        let longer = |u: u64| both(u).map(|(on, off)| on - off);
        for &end in &self.utilizations {
            figures.set(format!("commit.{end}"), self.time_s("commit", end));
            figures.push("slower-at", longer(end).filter(|longer| *longer > 0.0).map(|_| end as f64));
            figures.push("faster-at", longer(end).filter(|longer| *longer <= 0.0).map(|_| end as f64));
            let begin = end.checked_sub(STEP_PERCENT).and_then(|begin| self.time_s("commit", begin));
            let step = || Some(self.time_s("commit", end)? - begin?);
            figures.push(if end == 100 { "step.top" } else { "step.rest" }, step());
            figures.push("step.low", step().filter(|_| end <= LOW_PERCENT));
        }
        let low = self.utilizations.windows(2).filter(|pair| pair[1] <= LOW_PERCENT);
        figures.set("both-longer", low.filter_map(|pair| Some(longer(pair[0])?.min(longer(pair[1])?))));
        figures
    }
}

/// Makes figures and claims.
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
            "The drive at the beginning",
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
    EXPERIMENT.judge(&measured.figures(), Rows::of(&plots), reps, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of `off` and `commit` at 10, 20, 50, 90 and 100 %, linear in between.
    fn met(off: [f64; 5], on: [f64; 5]) -> Vec<String> {
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
