//! Table II: a synchronous write that needs a block, on a full file system from which a file was just removed.

use trimwise::compare::cell::{CellError, SETTLING};
use trimwise::compare::statistics;
use trimwise::fs::host::HostConfig;
use trimwise::policy::PolicySpec;
use trimwise::ssd::SsdConfig;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::Fragmenting;
use trimwise::workload::full_write;

use super::{DEVICE, Issue, POLICIES, REPS, Setup, device, host, label, milliseconds, table2_on_kernel};
use crate::experiment::claims::Figures;
use crate::experiment::result::{ExperimentResult, Rows};
use crate::experiment::{Experiment, Host, Request, policies, real_ext4};
use crate::failure::Failure;
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// The experiment.
pub static TABLE_2: Experiment = Experiment {
    name: "lazy-table2",
    question: "How long does a write wait that needs a block on a full file system?",
    reps: REPS,
    claims: include_str!("../../../../../experiments/lazy-table2/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, table2_on_kernel::check),
    run: |request| match &request.target {
        None => run(request),
        Some(target) => table2_on_kernel::run(request, target),
    },
};

/// The published figures, as printed. They do not say whether an fsync preceded the write.
const PUBLISHED: &str = include_str!("../../../../../experiments/lazy-table2/published.csv");

/// Returns the published latency of a policy, in milliseconds.
pub(super) fn published_ms(policy: &str) -> Option<f64> {
    let mut rows = PUBLISHED.lines().filter_map(|line| line.split_once(','));
    rows.find(|(name, _)| *name == policy)?.1.parse().ok()
}

/// The files, of which one is removed; assumed to be those of the append benchmark at its smallest append.
pub(super) const FILE: Fragmenting = Fragmenting::of_append(Bytes::kib(64));

/// With and without an fsync between removal and write.
pub const FSYNC: [bool; 2] = [true, false];

/// The measurements of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRun {
    /// Extents of the file that was removed.
    pub extents: u64,
    /// The fsync between removal and write, if there was one.
    pub fsync: Option<SimDuration>,
    /// The write and its fsync.
    pub write: SimDuration,
    /// The TRIMs of the removed file.
    pub issue: Issue,
}

/// Fills the file system, removes a file and writes, once on a new device.
///
/// # Errors
///
/// [`CellError`].
pub fn run_write(
    ssd: &SsdConfig,
    policy: PolicySpec,
    fsync: bool,
    rep: u32,
    seed: u64,
) -> Result<WriteRun, CellError> {
    run_write_on(host(), ssd, policy, fsync, rep, seed)
}

/// Does the same on another host.
///
/// # Errors
///
/// [`CellError`].
pub(super) fn run_write_on(
    host: HostConfig,
    ssd: &SsdConfig,
    policy: PolicySpec,
    fsync: bool,
    rep: u32,
    seed: u64,
) -> Result<WriteRun, CellError> {
    Setup { host, ssd: ssd.clone(), policy, rep, seed }.run(move |fs, watch| async move {
        let draw = seed ^ u64::from(rep) << 32;
        let mut full = full_write::fill(&fs, &FILE, full_write::FILES_MAX).await?;
        fs.drain_discards().await;
        // The write-back throttle returns to its first depth, as in a guest that begins on a copy of the full drive.
        fs.queue().sim().clone().sleep(SETTLING).await;
        let victim = full.victim(draw).and_then(|path| fs.extents(&path));
        let extents = victim.map_or(0, |extents| extents.len() as u64);
        watch.start();
        let written = full.remove_and_write(&fs, draw, fsync).await?;
        fs.drain_discards().await;
        let issue = watch.stop();
        let full_write::FullWrite { fsync, write } = written;
        Ok(WriteRun { extents, fsync, write, issue })
    })
}

/// All runs of a policy: with the fsync, and without.
pub type WriteRuns = [Vec<WriteRun>; 2];

fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let device = device();
    let cells: Vec<(PolicySpec, bool)> =
        policies(&POLICIES).into_iter().flat_map(|policy| FSYNC.map(|fsync| (policy, fsync))).collect();
    let mut runs = request
        .repeat(&[DEVICE], &cells, |&(policy, fsync), rep| {
            run_write(&device, policy, fsync, rep, request.seed)
        })?
        .into_iter();
    let by_policy: Vec<WriteRuns> =
        POLICIES.iter().map(|_| std::array::from_fn(|_| runs.next().unwrap_or_default())).collect();
    Ok(evaluate_table_2(&by_policy, request.seed))
}

/// Returns the median over the repetitions of a policy.
fn median(
    runs: &[WriteRuns],
    policy: &str,
    fsync: bool,
    figure: impl Fn(&WriteRun) -> SimDuration,
) -> Option<f64> {
    let index = POLICIES.iter().position(|p| *p == policy)?;
    let runs = &runs.get(index)?[usize::from(!fsync)];
    statistics::median(&runs.iter().map(|run| milliseconds(figure(run))).collect::<Vec<_>>())
}

fn bars(title: &str, y: Axis, series: Vec<Series>) -> Plot {
    let x = Axis::linear("policy", "policy", "");
    Plot { title: title.to_owned(), kind: PlotKind::Bars, x, y, series }
}

/// Makes a bar for each policy that has a value.
fn series(name: &str, of: impl Fn(&str) -> Option<f64>) -> Series {
    let points = POLICIES.iter().filter_map(|policy| Some(Point::new(label(policy), of(policy)?)));
    Series { name: name.to_owned(), points: points.collect() }
}

/// Makes the table and its claims from the runs, for each policy of [`POLICIES`].
pub fn evaluate_table_2(runs: &[WriteRuns], seed: u64) -> ExperimentResult {
    let write = |policy: &str, fsync| median(runs, policy, fsync, |run| run.write);
    let issue = |policy: &str, fsync| median(runs, policy, fsync, |run| run.issue.time);
    let mut figures = Figures::default();
    for policy in ["commit", "lazy", "lazy+reuse"] {
        figures.set(policy, write(policy, true));
        figures.set(format!("{policy}.unsynced"), write(policy, false));
        figures.set(format!("{policy}.drain"), issue(policy, true));
    }
    let write_axis = Axis::linear("write_ms", "write latency", "ms");
    let queue_axis = Axis::linear("queue_ms", "time until all TRIMs are acknowledged", "ms");
    let plots = vec![
        bars(
            "Synchronous write that needs a block, on a full file system",
            write_axis,
            vec![
                series("after an fsync", |policy| write(policy, true)),
                series("without an fsync", |policy| write(policy, false)),
                series("published", published_ms),
            ],
        ),
        bars(
            "TRIMs of the removed file, from the commit to the last acknowledgement",
            queue_axis,
            vec![
                series("after an fsync", |policy| issue(policy, true)),
                series("without an fsync", |policy| issue(policy, false)),
            ],
        ),
    ];
    let reps = runs.first().map_or(0, |runs| runs[0].len() as u32);
    TABLE_2.judge(&figures, Rows::of(&plots), reps, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fabricated(lazy_us: u64, reuse_us: u64, drain_us: u64) -> Vec<WriteRuns> {
        let run = |write_us: u64| {
            let issue = Issue { commands: 1, time: SimDuration::from_micros(drain_us) };
            let write = SimDuration::from_micros(write_us);
            let one = WriteRun { extents: 1, fsync: None, write, issue };
            [vec![one; 2], vec![one; 2]]
        };
        [2_000, lazy_us, reuse_us, 2_000, 2_000].map(run).into()
    }

    fn met(lazy_us: u64, reuse_us: u64, drain_us: u64) -> Vec<String> {
        let result = evaluate_table_2(&fabricated(lazy_us, reuse_us, drain_us), 1);
        result.claims.iter().filter(|claim| claim.met).map(|claim| claim.id.clone()).collect()
    }

    #[test]
    fn claims_hold_of_the_published_figures_and_fail_of_others() {
        assert_eq!(met(840_000, 2_000, 840_000), ["lazy-table2-lazy", "lazy-table2-reuse"]);
        assert_eq!(met(840_000, 4_100, 840_000), ["lazy-table2-lazy"]);
        // It waits, but not for the queue; or too briefly.
        assert_eq!(met(840_000, 2_000, 1_000_000), ["lazy-table2-reuse"]);
        assert_eq!(met(150_000, 2_000, 150_000), ["lazy-table2-reuse"]);
        assert!(evaluate_table_2(&[], 1).claims.iter().all(|claim| !claim.met));
    }

    #[test]
    fn a_policy_without_a_published_figure_has_no_bar_for_it() {
        let rows = evaluate_table_2(&fabricated(1, 1, 1), 1).rows;
        assert_eq!(rows.plots()[0].series.iter().map(|s| s.points.len()).collect::<Vec<_>>(), [5, 5, 3]);
    }
}
