//! Figure 3 on a real ext4: the append benchmark on Linux 5.10 in virtual time, which discards inside the commit as the
//! source's kernel did, and the model of that kernel beside it.
//!
//! The source's 4.4 waited for each discard before it sent the next; 5.10 sends those of a commit together and waits at its
//! end (a015434480dc). Lazy TRIM is in no kernel. What it comes to at best is a commit without discards, and that every
//! kernel has: `nodiscard`.

use super::{DEVICE, device, milliseconds, ms_text, run_size_on, sizes, unmeasured};
use crate::experiment::cell::CellError;
use crate::experiment::plot::{Axis, Plot, PlotKind, Point, Series};
use crate::experiment::result::{Claim, ExperimentResult, ExperimentRows, Figure, open_claims};
use crate::fs::host::HostConfig;
use crate::policy::PolicySpec;
use crate::units::{Bytes, SimDuration};

/// Its name on the command line.
pub const FIGURE_3_KERNEL: &str = "lazy-3-kernel";

/// Its question.
pub const QUESTION_3_KERNEL: &str = "How long does fsync take after the removal of a fragmented file on a real ext4 that discards in the commit?";

/// The kernel: the last series that discards inside the commit.
pub const KERNEL: &str = "5.10";

/// The guest's memory: the largest append is 64 MiB, and ext4 and its journal beside it.
pub const GUEST_MEMORY: Bytes = Bytes::mib(512);

/// One run on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCase {
    /// Bytes of an append.
    pub append: Bytes,
    /// Whether the mount discards.
    pub discard: bool,
}

impl KernelCase {
    /// The policy by its name, which both sides have.
    pub fn policy(&self) -> PolicySpec {
        if self.discard { PolicySpec::COMMIT } else { PolicySpec::OFF }
    }
}

/// All of them: with discard, then without, each over all sizes.
pub fn kernel_cases() -> Vec<KernelCase> {
    let of = |discard| sizes().map(move |append| KernelCase { append, discard });
    of(true).chain(of(false)).collect()
}

/// What both sides measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRun {
    /// What was run.
    pub case: KernelCase,
    /// The fsync on the real one.
    pub kernel: SimDuration,
    /// In the model.
    pub model: SimDuration,
}

impl KernelRun {
    /// Runs the model beside what the kernel did.
    ///
    /// # Errors
    /// [`CellError`].
    pub fn beside(case: KernelCase, kernel: SimDuration, seed: u64) -> Result<Self, CellError> {
        let host = HostConfig::in_guest(KERNEL.parse().expect("it is a version"), GUEST_MEMORY);
        let model = run_size_on(host, &device(), case.policy(), case.append, 0, seed)?;
        Ok(Self { case, kernel, model: model.fsync })
    }
}

/// The figure and its claims.
pub fn evaluate_on_kernel(runs: &[KernelRun], seed: u64) -> ExperimentResult {
    let of = |discard, side: fn(&KernelRun) -> SimDuration| -> Vec<(Bytes, f64)> {
        let runs = runs.iter().filter(|run| run.case.discard == discard);
        runs.map(|run| (run.case.append, milliseconds(side(run)))).collect()
    };
    let kernel = |run: &KernelRun| run.kernel;
    let model = |run: &KernelRun| run.model;
    let (with, without) = (of(true, kernel), of(false, kernel));
    let claims = vec![
        grows(&with),
        lower(&with, &without),
        beside("lazy-kernel-model", "with discard", runs.iter().filter(|run| run.case.discard)),
        beside("lazy-kernel-model-off", "without", runs.iter().filter(|run| !run.case.discard)),
    ];
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
            series("model, discard", &of(true, model)),
            series("real, nodiscard", &without),
            series("model, nodiscard", &of(false, model)),
        ],
    };
    let measured = match (with.first(), without.first()) {
        (Some(with), Some(without)) => format!(
            "At appends of {} fsync takes {} on the real ext4 with discard and {} without. ",
            with.0,
            ms_text(with.1),
            ms_text(without.1)
        ),
        _ => String::new(),
    };
    let finding = measured + &open_claims(&claims);
    ExperimentResult {
        experiment: FIGURE_3_KERNEL.to_owned(),
        question: QUESTION_3_KERNEL.to_owned(),
        finding,
        trimwise: crate::VERSION.to_owned(),
        seed,
        reps: 1,
        rows: ExperimentRows::Plots(vec![plot]),
        claims,
    }
}

fn grows(with: &[(Bytes, f64)]) -> Claim {
    let id = "lazy-kernel-grows";
    let text = "with discard the real ext4's fsync grows with the number of fragments, at every step of the append size";
    if with.len() < 2 {
        return unmeasured(id, text.to_owned());
    }
    let steps = with.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    Claim {
        id,
        text: text.to_owned(),
        met: steps + 1 == with.len(),
        published: Figure::Text("at every step (drawn, of traditional TRIM)".to_owned()),
        measured: Figure::Text(format!("at {steps} of {} steps", with.len() - 1)),
    }
}

fn lower(with: &[(Bytes, f64)], without: &[(Bytes, f64)]) -> Claim {
    const LIMIT: f64 = 0.015;
    let id = "lazy-kernel-64k";
    let text =
        "real fsync at appends of 64 KiB, without discards over with them: up to 99 % lower (at most 0.015)";
    let smallest = |runs: &[(Bytes, f64)]| runs.iter().find(|run| run.0 == Bytes::kib(64)).copied();
    let (Some(with), Some(without)) = (smallest(with), smallest(without)) else {
        return unmeasured(id, text.to_owned());
    };
    let ratio = without.1 / with.1;
    Claim {
        id,
        text: text.to_owned(),
        met: ratio <= LIMIT,
        published: Figure::Number(0.01),
        measured: Figure::Number(ratio),
    }
}

fn beside<'a>(id: &'static str, which: &str, runs: impl Iterator<Item = &'a KernelRun>) -> Claim {
    const LIMIT_PERCENT: f64 = 15.0;
    let text =
        format!("the model's fsync {which} is within {LIMIT_PERCENT} % of the real one at every append size");
    let error =
        |run: &KernelRun| (run.model.as_nanos() as f64 / run.kernel.as_nanos().max(1) as f64 - 1.0) * 100.0;
    let errors: Vec<f64> = runs.map(error).collect();
    let Some(worst) = errors.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())) else {
        return unmeasured(id, text);
    };
    let within = errors.iter().filter(|error| error.abs() <= LIMIT_PERCENT).count();
    Claim {
        id,
        text,
        met: within == errors.len(),
        published: Figure::Text(format!("at most {LIMIT_PERCENT} % off")),
        measured: Figure::Text(format!("at {within} of {} sizes, the worst {worst:+.1} %", errors.len())),
    }
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

    fn met(runs: &[KernelRun]) -> Vec<&'static str> {
        evaluate_on_kernel(runs, 1).claims.iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
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
