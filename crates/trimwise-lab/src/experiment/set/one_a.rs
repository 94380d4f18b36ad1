//! `set-1a`: execution time of PostMark against the drive's utilization, TRIM off and on.

use trimwise::compare::cell::{CellError, audited};
use trimwise::engine::Sim;
use trimwise::fs::Volume;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::units::{Lpn, UnitRange, Utilization};

use super::{Aged, DEVICE, ONE_A, Run, Setting, postmark_on};
use crate::experiment::claims::Figures;
use crate::experiment::grid::{Grid, Shown};
use crate::experiment::result::ExperimentResult;
use crate::experiment::{Request, policies};
use crate::plot::{Axis, Place, PlotKind};
use trimwise::failure::Failure;

/// Utilizations of the drive.
pub const UTILIZATIONS: [Utilization; 11] = Utilization::all([10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100]);

/// The source's two policies, and two more.
pub const POLICIES: [&str; 4] = ["off", "commit", "judicious", "ideal"];

/// Runs PostMark once under each policy on a drive with this utilization: files are deleted from the full file system,
/// the freed space is trimmed, and a new file system is made without TRIM.
pub fn run(
    setting: &Setting,
    aged: &Aged,
    policies: &[PolicySpec],
    utilization: Utilization,
    rep: u32,
    seed: u64,
    after_each: &dyn Fn(),
) -> Result<Vec<Run>, CellError> {
    let host = setting.host;
    let without_trim = FormatOptions { discard: false, ..setting.format };
    let sim = Sim::new();
    let prepared = {
        let (Aged { volume, mut files }, sim) = (aged.clone(), sim.clone());
        files.reseed(seed ^ (u64::from(rep) << 32) ^ utilization.percent());
        sim.clone().run(async move {
            let off = PolicySpec::OFF;
            let fs = volume.restore(&sim, host.queue).await.mount(host, off.governor()).await;
            files.delete_to(&fs, utilization).await?;
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

pub(super) fn run_all(request: &Request) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let policies = policies(&POLICIES);
    let setting = Setting::published();
    let aged = super::age(&setting, seed).map_err(Failure::run)?;
    let cells = UTILIZATIONS.len() * reps as usize;
    let runs = request.spread(&[DEVICE], cells, policies.len() as u32, |i, step| {
        let (utilization, rep) = (UTILIZATIONS[i / reps as usize], (i % reps as usize) as u32);
        run(&setting, &aged, &policies, utilization, rep, seed, step)
    })?;
    let of_cell = |policy: usize, utilization: usize| {
        let reps = runs.chunks(reps as usize).nth(utilization).unwrap_or_default();
        reps.iter().map(|rep| rep[policy].clone()).collect()
    };
    Ok(evaluate(&Grid::new(POLICIES, places(&UTILIZATIONS), of_cell), seed))
}

/// Returns utilizations in percent as places.
pub fn places(utilizations: &[Utilization]) -> impl Iterator<Item = f64> {
    utilizations.iter().map(|utilization| utilization.percent() as f64)
}

/// Width of the steps for comparing execution times, in percent of the drive.
const STEP_PERCENT: f64 = 10.0;
const LOW_PERCENT: f64 = 50.0;
pub(super) const UTILIZATION: Axis = Axis::linear("device_utilization_percent", "device utilization", "%");

pub(super) static TIME: Shown<Run> = Shown {
    title: "PostMark",
    y: Axis::linear("execution_time_s", "execution time", "s"),
    of: |run| run.total_s,
};

static COPIES: Shown<Run> = Shown {
    title: "What the drive copies",
    y: Axis::linear("copied_gib", "copies", "GiB"),
    of: |run| run.copied_gib,
};

/// Further figures. For a kernel only those of the drive are known, which come first.
pub(super) static FURTHER: [Shown<Run>; 5] = [
    Shown {
        title: "What the drive writes",
        y: Axis::linear("write_amplification", "write amplification", ""),
        of: |run| run.write_amplification,
    },
    Shown {
        title: "TRIM",
        y: Axis::linear("trim_time_s", "drive time spent on TRIM", "s"),
        of: |run| run.trim_s,
    },
    Shown {
        title: "The drive at the beginning",
        y: Axis::linear("valid_percent", "space that is valid in the drive", "%"),
        of: |run| run.device_utilization_percent,
    },
    Shown {
        title: "Stale space",
        y: Axis::linear("stale_percent", "free in the file system and valid in the drive, mean", "%"),
        of: |run| run.stale_percent,
    },
    Shown {
        title: "Latency",
        y: Axis::linear("p99_ms", "99th percentile of the slowest kind of operation", "ms"),
        of: |run| run.p99_ms,
    },
];

/// Returns the figures of the claims: times under `commit` and `off`, and how much longer PostMark takes under `commit`
/// with each step of utilization.
pub(super) fn figures(measured: &Grid<Run>) -> Figures {
    let mut figures = measured.named(TIME.of);
    let time_s = |policy: &str, percent: f64| measured.median(policy, &percent.into(), TIME.of);
    let longer = |percent: f64| Some(time_s("commit", percent)? - time_s("off", percent)?);
    let percent = |place: &Place| if let Place::At(percent) = place { Some(*percent) } else { None };
    let utilizations: Vec<f64> = measured.places().iter().filter_map(percent).collect();
    for &end in &utilizations {
        figures.push("slower-at", longer(end).filter(|longer| *longer > 0.0).map(|_| end));
        figures.push("faster-at", longer(end).filter(|longer| *longer <= 0.0).map(|_| end));
        let step = || Some(time_s("commit", end)? - time_s("commit", end - STEP_PERCENT)?);
        figures.push(if end == 100.0 { "step.top" } else { "step.rest" }, step());
        figures.push("step.low", step().filter(|_| end <= LOW_PERCENT));
    }
    let low = utilizations.windows(2).filter(|pair| pair[1] <= LOW_PERCENT);
    figures.set("both-longer", low.filter_map(|pair| Some(longer(pair[0])?.min(longer(pair[1])?))));
    figures
}

/// Makes figures and claims from a series for each policy, among them `off` and `commit`.
pub fn evaluate(measured: &Grid<Run>, seed: u64) -> ExperimentResult {
    let plot = |shown| measured.plot(PlotKind::Lines, &UTILIZATION, shown);
    let (time, copies) = (plot(&TIME), plot(&COPIES));
    let less = |of: f64, off: f64| off - of;
    let (time_saved, copies_saved) =
        (Axis::linear("time_saved_s", "time", "s"), Axis::linear("copies_saved_gib", "copies", "GiB"));
    let compared = [
        time.distance_to_ideal(),
        time.against("off", "Time saved compared with off", time_saved, less),
        copies.against("off", "Copies saved compared with off", copies_saved, less),
    ];
    let plots = std::iter::once(time).chain(compared.into_iter().flatten()).chain(FURTHER.iter().map(plot));
    ONE_A.judge(&figures(measured), &plots.collect::<Vec<_>>(), measured.reps(), seed)
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
        let measured = Grid::new(["off", "commit"], places(&UTILIZATIONS), |policy, utilization| {
            vec![run(at([&off, &on][policy], UTILIZATIONS[utilization].percent() as f64))]
        });
        evaluate(&measured, 1).claims.into_iter().filter(|c| c.met).map(|c| c.id).collect()
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
