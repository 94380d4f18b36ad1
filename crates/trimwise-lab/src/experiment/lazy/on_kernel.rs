//! Figure 3 on a real ext4: the append benchmark on Linux 5.10 in virtual time, which discards inside the commit as the
//! source's kernel did, next to the model of that kernel.
//!
//! The source's 4.4 waited for each discard before it sent the next; 5.10 sends those of a commit together and waits at
//! its end (a015434480dc). No kernel has lazy TRIM. At best it equals a commit without discards, which every kernel
//! has: `nodiscard`.

use trimwise::compare::result::WorkloadFigures;
use trimwise::fs::host::HostConfig;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::Fragmenting;
use trimwise::workload::timed::Timed;
use trimwise_uml::cell::{KernelCell, KernelPolicy, KernelTarget, KernelWorkload};
use trimwise_uml::images::KernelImage;

use super::sizes::run_size_on;
use super::{DEVICE, REPS, device, milliseconds, sizes};
use crate::experiment::claims::Figures;
use crate::experiment::result::{ExperimentResult, ExperimentRows};
use crate::experiment::{Experiment, Host, Request};
use crate::failure::Failure;
use crate::guests;
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// The experiment.
pub static FIGURE_3_KERNEL: Experiment = Experiment {
    name: "lazy-3-kernel",
    question: "How long does fsync take after the removal of a fragmented file on a real ext4 that discards in the commit?",
    reps: REPS,
    claims: include_str!("../../../../../experiments/lazy-3-kernel/claims.toml"),
    host: Host::Kernels(|only, _| choice(only).map(drop)),
    run,
};

/// The kernel: the last series that discards inside the commit.
const KERNEL: &str = "5.10";

/// The guest's memory: room for the largest append, 64 MiB, besides ext4 and its journal.
const GUEST_MEMORY: Bytes = Bytes::mib(512);

/// Memory of this computer that one run takes: guest, the drive's model, and the file's bytes.
const MEMORY_OF_RUN: Bytes = Bytes::mib(2_500);

/// One run on the kernel and in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KernelCase {
    /// Bytes of an append.
    append: Bytes,
    /// Whether the mount discards.
    discard: bool,
}

impl KernelCase {
    /// Returns the policy, which both have under the same name.
    fn policy(&self) -> PolicySpec {
        if self.discard { PolicySpec::COMMIT } else { PolicySpec::OFF }
    }
}

/// Returns all cases: with discard, then without, each over all sizes.
fn kernel_cases() -> Vec<KernelCase> {
    let of = |discard| sizes().map(move |append| KernelCase { append, discard });
    of(true).chain(of(false)).collect()
}

/// The measurements of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KernelRun {
    /// The case.
    case: KernelCase,
    /// The fsync on the kernel.
    kernel: SimDuration,
    /// The fsync in the model.
    model: SimDuration,
}

fn target() -> KernelTarget {
    format!("{KERNEL}:ext4").parse().expect("it is written here")
}

/// Returns the kernel and the cases that `--only` names by their append size in KiB; all if it names none.
fn choice(only: &[String]) -> Result<(KernelImage, Vec<KernelCase>), Failure> {
    let name = |case: &KernelCase| (case.append.0 >> 10).to_string();
    let mut cases = kernel_cases();
    if let Some(part) = only.iter().find(|part| !cases.iter().any(|case| name(case) == **part)) {
        let names: Vec<String> = cases[..cases.len() / 2].iter().map(name).collect();
        return Err(Failure::usage(format!(
            "--only {part}: expected an append size in KiB, one of {}",
            names.join(", ")
        )));
    }
    cases.retain(|case| only.is_empty() || only.contains(&name(case)));
    Ok((guests::image(&target())?, cases))
}

/// Runs each append size, with and without discard, in one boot and in the model.
fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let (image, cases) = choice(&request.only)?;
    let runs = request.boot(MEMORY_OF_RUN, &cases, |case| run_case(request, &image, case))?;
    Ok(evaluate_on_kernel(&runs, request.seed))
}

fn run_case(request: &Request, image: &KernelImage, case: KernelCase) -> Result<KernelRun, Failure> {
    let seed = request.seed;
    let timed = Timed::Append(Fragmenting::of_append(case.append));
    let cell = KernelCell {
        device: &Profile::embedded(DEVICE).expect("the device is built in"),
        target: &target(),
        policy: if case.discard { KernelPolicy::Commit } else { KernelPolicy::Off },
        workload: &KernelWorkload::Timed(timed.to_string()),
        utilization_percent: None,
        rep: 0,
        seed,
    };
    let cell = cell.run(&guests::guest(image, GUEST_MEMORY, &request.bounds)?).map_err(guests::failure)?;
    let WorkloadFigures::Append(figures) = cell.workload else {
        return Err(Failure::run("the guest ran a different workload"));
    };
    let host = HostConfig::in_guest(KERNEL.parse().expect("it is a version"), GUEST_MEMORY);
    let model = run_size_on(host, &device(), case.policy(), case.append, 0, seed).map_err(Failure::run)?;
    Ok(KernelRun { case, kernel: SimDuration(figures.fsync_ns), model: model.fsync })
}

/// Makes the figure and its claims.
fn evaluate_on_kernel(runs: &[KernelRun], seed: u64) -> ExperimentResult {
    let of = |discard, side: fn(&KernelRun) -> SimDuration| -> Vec<(Bytes, f64)> {
        let runs = runs.iter().filter(|run| run.case.discard == discard);
        runs.map(|run| (run.case.append, milliseconds(side(run)))).collect()
    };
    let kernel = |run: &KernelRun| run.kernel;
    let model = |run: &KernelRun| run.model;
    let (with, without) = (of(true, kernel), of(false, kernel));
    let (model_with, model_without) = (of(true, model), of(false, model));
    let mut figures = Figures::default();
    let sides = [
        ("discard", &with),
        ("nodiscard", &without),
        ("model.discard", &model_with),
        ("model.nodiscard", &model_without),
    ];
    for (name, points) in sides {
        figures.set(name, points.iter().map(|point| point.1));
        let smallest = points.iter().find(|point| point.0 == Bytes::kib(64));
        figures.set(format!("{name}.64k"), smallest.map(|point| point.1));
    }
    let series = |name: &str, points: &[(Bytes, f64)]| Series {
        name: name.to_owned(),
        points: points.iter().map(|&(size, ms)| Point::new((size.0 >> 10) as f64, ms)).collect(),
    };
    let plot = Plot {
        title: format!("fsync after the removal of a 1 GiB file, ext4 of Linux {KERNEL} on {DEVICE}"),
        kind: PlotKind::Lines,
        x: Axis::log("append_kib", "append size", "KiB"),
        y: Axis::log("fsync_ms", "fsync latency", "ms"),
        series: vec![
            series("real, discard", &with),
            series("model, discard", &model_with),
            series("real, nodiscard", &without),
            series("model, nodiscard", &model_without),
        ],
    };
    FIGURE_3_KERNEL.judge(&figures, ExperimentRows::Plots(vec![plot]), 1, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(each_us: u64, model_percent: u64) -> Vec<KernelRun> {
        let run = |case: KernelCase| {
            let pieces = if case.discard { (1 << 30) / case.append.0 } else { 0 };
            let us = 2_000 + each_us * pieces;
            let kernel = SimDuration::from_micros(us);
            KernelRun { case, kernel, model: SimDuration::from_micros(us * model_percent / 100) }
        };
        kernel_cases().into_iter().map(run).collect()
    }

    fn met(runs: &[KernelRun]) -> Vec<String> {
        evaluate_on_kernel(runs, 1)
            .claims
            .into_iter()
            .filter(|claim| claim.met)
            .map(|claim| claim.id)
            .collect()
    }

    #[test]
    fn claims_hold_where_discards_rule_and_the_model_is_near_and_fail_otherwise() {
        let all = ["lazy-kernel-grows", "lazy-kernel-64k", "lazy-kernel-model", "lazy-kernel-model-off"];
        assert_eq!(met(&runs(50, 110)), all);
        assert_eq!(met(&runs(50, 80)), all[..2]);
        assert_eq!(met(&runs(0, 100)), all[2..]);
        assert!(met(&[]).is_empty());
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let refused = choice(&["48".to_owned()]);
        assert!(matches!(refused, Err(Failure::Usage(m)) if m.contains("64, 128") && m.contains("65536")));
    }
}
