//! Table II: a synchronous write that needs a block, on a full file system from which a file was just removed.

use trimwise::block::BlockQueue;
use trimwise::compare::cell::{CellError, SETTLING, audited, commit_phase};
use trimwise::compare::watch::Watch;
use trimwise::engine::Sim;
use trimwise::fs::Volume;
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::ssd::{Ssd, SsdConfig};
use trimwise::units::Bytes;
use trimwise::workload::fragmenting::Fragmenting;
use trimwise::workload::full_write;

use super::{DEVICE, POLICIES, Run, TABLE_2, device, host, labelled, milliseconds};
use crate::experiment::claims::Figures;
use crate::experiment::grid::{Grid, Shown};
use crate::experiment::result::ExperimentResult;
use crate::experiment::{Request, policies};
use crate::plot::{Axis, Place, PlotKind, Point, Series};
use trimwise::failure::Failure;

/// The published figures, as printed. The source does not say if an fsync preceded the write.
const PUBLISHED: &str = include_str!("../../../../../experiments/lazy-table2/published.csv");

pub(super) fn published_ms(policy: &str) -> Option<f64> {
    let mut rows = PUBLISHED.lines().filter_map(|line| line.split_once(','));
    rows.find(|(name, _)| *name == policy)?.1.parse().ok()
}

/// Layout of the files, of which one is removed; assumed to be that of the append benchmark at its smallest append.
pub(super) const FILE: Fragmenting = Fragmenting::of_append(Bytes::kib(64));

/// True for an fsync between removal and write.
pub const FSYNC: [bool; 2] = [true, false];

/// Names of [`FSYNC`] as series.
pub const FSYNC_NAMES: [&str; 2] = ["after an fsync", "without an fsync"];

/// Fills the file system, removes a file and writes, once on a new device.
pub fn run_write(
    host: HostConfig,
    ssd: &SsdConfig,
    policy: PolicySpec,
    fsync: bool,
    rep: u32,
    seed: u64,
) -> Result<Run, CellError> {
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(ssd, seed)?, host.queue);
    sim.run(async move {
        let volume = Volume::format(&queue, FormatOptions::default()).await?;
        let fs = volume.mount(host, policy.governor()).await;
        let sim = queue.sim();
        sim.sleep(commit_phase(rep)).await;
        let mut full = full_write::fill(&fs, &FILE, full_write::FILES_MAX).await?;
        fs.drain_discards().await;
        // Rest until the write-back throttle is back at its first depth, as in a guest that begins on a copy of the
        // full drive.
        sim.sleep(SETTLING).await;
        let watch = Watch::new(&queue);
        watch.start();
        let took = full.remove_and_write(&fs, seed ^ u64::from(rep) << 32, fsync).await?.write;
        fs.drain_discards().await;
        let issue = watch.stop();
        audited(fs, DEVICE, &policy).await?;
        Ok(Run { took, issue })
    })?
}

pub(super) fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let device = device();
    let policies = policies(&POLICIES);
    let cells: Vec<(PolicySpec, bool)> =
        FSYNC.into_iter().flat_map(|fsync| policies.iter().map(move |policy| (*policy, fsync))).collect();
    let runs = request.repeat(&[DEVICE], &cells, |&(policy, fsync), rep| {
        run_write(host(), &device, policy, fsync, rep, request.seed)
    })?;
    let of_cell = |fsync: usize, policy: usize| runs[fsync * policies.len() + policy].clone();
    Ok(evaluate_table_2(&Grid::new(FSYNC_NAMES, POLICIES.map(str::to_owned), of_cell), request.seed))
}

pub(super) const POLICY: Axis = Axis::linear("policy", "policy", "");

pub(super) static WRITE: Shown<Run> = Shown {
    title: "Synchronous write that needs a block, on a full file system",
    y: Axis::linear("write_ms", "write latency", "ms"),
    of: |run| milliseconds(run.took),
};

/// Length of the queue that a write may wait for.
pub(super) static QUEUE: Shown<Run> = Shown {
    title: "TRIMs of the removed file, from the commit to the last acknowledgement",
    y: Axis::linear("queue_ms", "time until all TRIMs are acknowledged", "ms"),
    of: |run| milliseconds(run.issue.time),
};

pub(super) fn figures(runs: &Grid<Run>) -> Figures {
    let mut figures = Figures::default();
    let [after, without] = FSYNC_NAMES;
    for place in runs.places() {
        let Place::In(policy) = place else { continue };
        figures.set(policy, runs.median(after, place, WRITE.of));
        figures.set(format!("{policy}.unsynced"), runs.median(without, place, WRITE.of));
        figures.set(format!("{policy}.drain"), runs.median(after, place, QUEUE.of));
    }
    figures
}

pub(super) fn published(runs: &Grid<Run>) -> Series {
    let point = |place: &Place| match place {
        Place::In(policy) => Some(Point::new(policy.clone(), published_ms(policy)?)),
        Place::At(_) => None,
    };
    Series { name: "published".to_owned(), points: runs.places().iter().filter_map(point).collect() }
}

pub fn evaluate_table_2(runs: &Grid<Run>, seed: u64) -> ExperimentResult {
    let mut plots = [&WRITE, &QUEUE].map(|shown| runs.plot(PlotKind::Bars, &POLICY, shown));
    plots[0].series.push(published(runs));
    TABLE_2.judge(&figures(runs), &plots.map(labelled), runs.reps(), seed)
}

#[cfg(test)]
mod tests {
    use trimwise::units::SimDuration;

    use super::*;
    use crate::experiment::lazy::Issue;

    fn fabricated(lazy_us: u64, reuse_us: u64, drain_us: u64) -> Grid<Run> {
        let writes_us = [2_000, lazy_us, reuse_us, 2_000, 2_000];
        Grid::new(FSYNC_NAMES, POLICIES.map(str::to_owned), |_, policy| {
            let issue = Issue { commands: 1, time: SimDuration::from_micros(drain_us) };
            let took = SimDuration::from_micros(writes_us[policy]);
            vec![Run { took, issue }; 2]
        })
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
        let none = Grid::new(FSYNC_NAMES, POLICIES.map(str::to_owned), |_, _| Vec::new());
        assert!(evaluate_table_2(&none, 1).claims.iter().all(|claim| !claim.met));
    }

    #[test]
    fn a_policy_without_a_published_figure_has_no_bar_for_it() {
        let rows = evaluate_table_2(&fabricated(1, 1, 1), 1).rows;
        assert_eq!(rows.plots()[0].series.iter().map(|s| s.points.len()).collect::<Vec<_>>(), [5, 5, 3]);
    }
}
