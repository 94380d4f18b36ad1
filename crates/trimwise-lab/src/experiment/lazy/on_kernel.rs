//! Figure 3 on a real ext4: the append benchmark on Linux 5.10 in virtual time, which discards inside the commit as the
//! source's kernel did, next to the model of that kernel.
//!
//! The source's 4.4 waited for each discard before it sent the next; 5.10 sends those of a commit together and waits at
//! its end (a015434480dc). No kernel has lazy TRIM. At best it equals a commit without discards, which every kernel
//! has: `nodiscard`.

use trimwise::compare::cell::CellError;
use trimwise::fs::host::HostConfig;
use trimwise::policy::PolicySpec;
use trimwise::units::{Bytes, SimDuration};

use super::{DEVICE, device, milliseconds, run_size_on, sizes};
use crate::experiment::claims::{Figures, Published};
use crate::experiment::result::{ExperimentResult, ExperimentRows};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// Name on the command line.
pub const FIGURE_3_KERNEL: &str = "lazy-3-kernel";

/// The question that it answers.
pub const QUESTION_3_KERNEL: &str = "How long does fsync take after the removal of a fragmented file on a real ext4 that discards in the commit?";

/// The kernel: the last series that discards inside the commit.
pub const KERNEL: &str = "5.10";

/// The guest's memory: room for the largest append, 64 MiB, besides ext4 and its journal.
pub const GUEST_MEMORY: Bytes = Bytes::mib(512);

/// One run on the kernel and in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCase {
    /// Bytes of an append.
    pub append: Bytes,
    /// Whether the mount discards.
    pub discard: bool,
}

impl KernelCase {
    /// Returns the policy, which both have under the same name.
    pub fn policy(&self) -> PolicySpec {
        if self.discard { PolicySpec::COMMIT } else { PolicySpec::OFF }
    }
}

/// Returns all cases: with discard, then without, each over all sizes.
pub fn kernel_cases() -> Vec<KernelCase> {
    let of = |discard| sizes().map(move |append| KernelCase { append, discard });
    of(true).chain(of(false)).collect()
}

/// The measurements of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRun {
    /// The case.
    pub case: KernelCase,
    /// The fsync on the kernel.
    pub kernel: SimDuration,
    /// The fsync in the model.
    pub model: SimDuration,
}

impl KernelRun {
    /// Runs the model for comparison with the kernel.
    ///
    /// # Errors
    /// [`CellError`].
    pub fn beside(case: KernelCase, kernel: SimDuration, seed: u64) -> Result<Self, CellError> {
        let host = HostConfig::in_guest(KERNEL.parse().expect("it is a version"), GUEST_MEMORY);
        let model = run_size_on(host, &device(), case.policy(), case.append, 0, seed)?;
        Ok(Self { case, kernel, model: model.fsync })
    }
}

/// Makes the figure and its claims.
pub fn evaluate_on_kernel(runs: &[KernelRun], seed: u64) -> ExperimentResult {
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
    let claims = include_str!("../../../../../experiments/lazy-3-kernel/claims.toml");
    let published = Published { name: FIGURE_3_KERNEL, question: QUESTION_3_KERNEL, claims };
    published.judge(&figures, ExperimentRows::Plots(vec![plot]), 1, seed)
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
}
