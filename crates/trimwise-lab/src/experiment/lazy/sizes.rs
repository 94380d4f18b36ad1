//! Figures 3 and 4: the fsync after the removal of a fragmented file, and the time until its TRIMs are issued, over the
//! append size.

use trimwise::compare::cell::{CellError, CellSpec, run_cell};
use trimwise::compare::result::{AppendFigures, WorkloadFigures};
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::ssd::SsdConfig;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::Fragmenting;
use trimwise::workload::timed::Timed;

use super::{
    DEVICE, FIGURE_3, FIGURE_4, Issue, POLICIES, Run, TRADITIONAL, device, host, labelled, milliseconds,
};
use crate::experiment::grid::{Grid, Shown};
use crate::experiment::result::ExperimentResult;
use crate::experiment::{Request, policies};
use crate::plot::{Axis, Place, Plot, PlotKind, Point, Series};
use trimwise::failure::Failure;

/// Runs every policy at every append size. Both figures come from these runs.
pub(super) fn run(request: &Request) -> Result<Grid<Run>, Failure> {
    let device = device();
    let cells: Vec<(PolicySpec, Bytes)> =
        policies(&POLICIES).into_iter().flat_map(|policy| sizes().map(move |size| (policy, size))).collect();
    let runs = request.repeat(&[DEVICE], &cells, |&(policy, append), rep| {
        run_size(host(), &device, policy, append, rep, request.seed)
    })?;
    let count = sizes().count();
    Ok(Grid::new(POLICIES, sizes_kib(), |policy, size| runs[policy * count + size].clone()))
}

/// Returns the append sizes of the source's x axis: 64 KiB, 128 KiB, ... 64 MiB.
pub fn sizes() -> impl Iterator<Item = Bytes> {
    (0..=10).map(|i| Bytes::kib(64 << i))
}

/// Returns the append sizes in KiB: the places of the x axis.
pub fn sizes_kib() -> impl Iterator<Item = f64> {
    sizes().map(|size| (size.0 >> 10) as f64)
}

/// Runs the append benchmark once.
pub fn run_size(
    host: HostConfig,
    ssd: &SsdConfig,
    policy: PolicySpec,
    append: Bytes,
    rep: u32,
    seed: u64,
) -> Result<Run, CellError> {
    let mut device = Profile::embedded(DEVICE).expect("the device is built in");
    device.config = ssd.clone();
    let format = FormatOptions::default();
    let workload = Timed::Append(Fragmenting::of_append(append));
    let new = CellSpec::new(device, policy, workload);
    let cell = run_cell(&CellSpec { host, format, utilization: None, rep, seed, ..new }, Box::new(|_| ()))?;
    let WorkloadFigures::Append(AppendFigures { fsync_ns, trims: Some(trims), .. }) = cell.workload else {
        unreachable!("the model tells of an append's TRIMs")
    };
    let issue = Issue { commands: trims.commands, time: SimDuration(trims.acknowledged_ns) };
    Ok(Run { took: SimDuration(fsync_ns), issue })
}

pub(super) const APPEND: Axis = Axis::log("append_kib", "append size", "KiB");

pub(super) static FSYNC: Shown<Run> = Shown {
    title: "fsync after the removal of a 1 GiB file",
    y: Axis::log("fsync_ms", "fsync latency", "ms"),
    of: |run| milliseconds(run.took),
};

pub(super) static ISSUE: Shown<Run> = Shown {
    title: "Time until all TRIMs of the file are acknowledged",
    y: Axis::log("issue_ms", "time to issue all TRIMs", "ms"),
    of: |run| milliseconds(run.issue.time),
};

/// Number of TRIMs of the removed file; the source does not show this.
pub(super) static COMMANDS: Shown<Run> = Shown {
    title: "TRIM commands for the removed file",
    y: Axis::log("trim_commands", "TRIM commands", ""),
    of: |run| run.issue.commands as f64,
};

fn plot(runs: &Grid<Run>, shown: &Shown<Run>) -> Plot {
    labelled(runs.plot(PlotKind::Lines, &APPEND, shown).without_empty())
}

/// Makes figure 3 and its claims from the runs of some policies at all [`sizes`].
pub fn evaluate_figure_3(runs: &Grid<Run>, seed: u64) -> ExperimentResult {
    let mut fsync = plot(runs, &FSYNC);
    let distance = fsync.distance_to_ideal();
    fsync.series.extend(published(&fsync));
    let plots: Vec<Plot> =
        [Some(fsync), distance, Some(plot(runs, &COMMANDS))].into_iter().flatten().collect();
    FIGURE_3.judge(&runs.named(FSYNC.of), &plots, runs.reps(), seed)
}

/// Returns the only number that the source gives for figure 3, whose drawing has none: at 64 KiB lazy takes up to 99 %
/// less than traditional. Here it is relative to our traditional.
fn published(fsync: &Plot) -> Option<Series> {
    const SHARE: f64 = 0.01;
    let place = Place::At(64.0);
    let traditional = fsync.at(TRADITIONAL, &place)?.y;
    let points = vec![Point::new(place, SHARE * traditional)];
    Some(Series { name: "lazy, published (1 % of commit)".to_owned(), points })
}

/// Makes figure 4 and its claim from the runs.
pub fn evaluate_figure_4(runs: &Grid<Run>, seed: u64) -> ExperimentResult {
    let issue = plot(runs, &ISSUE);
    let y = Axis::linear("over_traditional", "time relative to traditional's", "");
    let share = issue.against(TRADITIONAL, "The same, relative to traditional's", y, |time, of| time / of);
    let plots: Vec<Plot> = [Some(issue), share, Some(plot(runs, &COMMANDS))].into_iter().flatten().collect();
    FIGURE_4.judge(&runs.named(ISSUE.of), &plots, runs.reps(), seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invents runs on a device that takes `each` for a TRIM one by one and `share` of it in parallel.
    fn fabricated(each_us: u64, share_percent: u64) -> Grid<Run> {
        let run = |policy: &str, pieces: u64| {
            let serial = SimDuration::from_micros(each_us * pieces);
            let commit = SimDuration::from_micros(2_000);
            let parallel = SimDuration::from_micros(each_us * pieces * share_percent / 100);
            let (fsync, time) = match policy {
                "commit" => (commit + serial, serial),
                "ideal" => (commit, SimDuration::ZERO),
                _ => (commit, parallel),
            };
            let commands = if policy == "ideal" { 0 } else { pieces };
            vec![Run { took: fsync, issue: Issue { commands, time } }]
        };
        let pieces: Vec<u64> = sizes().map(|size| Fragmenting::of_append(size).pieces()).collect();
        Grid::new(POLICIES, sizes_kib(), |policy, size| run(POLICIES[policy], pieces[size]))
    }

    fn met(result: &ExperimentResult) -> Vec<&str> {
        result.claims.iter().filter(|claim| claim.met).map(|claim| claim.id.as_str()).collect()
    }

    #[test]
    fn claims_hold_of_a_device_as_the_source_has_it() {
        let runs = fabricated(130, 40);
        assert_eq!(
            met(&evaluate_figure_3(&runs, 1)),
            ["lazy-fsync-64k", "lazy-fsync-all-sizes", "lazy-fsync-spread"]
        );
        assert_eq!(met(&evaluate_figure_4(&runs, 1)), ["lazy-issue-time"]);
    }

    #[test]
    fn claims_fail_where_trims_cost_nothing_or_do_not_overlap() {
        assert!(met(&evaluate_figure_3(&fabricated(0, 40), 1)).is_empty());
        assert!(met(&evaluate_figure_4(&fabricated(130, 100), 1)).is_empty());
        assert!(met(&evaluate_figure_4(&fabricated(130, 10), 1)).is_empty());
        let none = Grid::new([""; 0], sizes_kib(), |_, _| Vec::new());
        assert!(met(&evaluate_figure_3(&none, 1)).is_empty() && met(&evaluate_figure_4(&none, 1)).is_empty());
    }

    #[test]
    fn what_issues_nothing_has_no_place_on_a_logarithmic_axis() {
        let rows = evaluate_figure_4(&fabricated(130, 40), 1).rows;
        let plots = rows.plots();
        let names: Vec<&str> = plots[0].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["commit (traditional)", "lazy", "lazy+reuse", "judicious"]);
        assert!(plots.iter().flat_map(|p| &p.series).all(|s| s.points.len() == 11));
    }
}
