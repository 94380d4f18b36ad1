//! Figures 3 and 4: the fsync after the removal of a fragmented file, and the time until its TRIMs are issued, over the
//! append size.

use trimwise::compare::cell::CellError;
use trimwise::fs::host::HostConfig;
use trimwise::policy::PolicySpec;
use trimwise::ssd::SsdConfig;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::{self, FILE, Fragmenting, Note};

use super::{DEVICE, Issue, POLICIES, REPS, Setup, device, host, label, milliseconds, on_kernel};
use crate::experiment::claims::Figures;
use crate::experiment::result::{ExperimentResult, Rows};
use crate::experiment::{Experiment, Host, Request, policies, real_ext4};
use crate::failure::Failure;
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// Figure 3.
pub static FIGURE_3: Experiment = Experiment {
    name: "lazy-3",
    question: "How long does fsync take after the removal of a fragmented file?",
    reps: REPS,
    claims: include_str!("../../../../../experiments/lazy-3/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, on_kernel::check),
    run: |request| match &request.target {
        None => Ok(evaluate_figure_3(&run(request)?, request.seed)),
        Some(target) => on_kernel::run(request, target, &FIGURE_3, &on_kernel::FSYNC),
    },
};

/// Figure 4.
pub static FIGURE_4: Experiment = Experiment {
    name: "lazy-4",
    question: "How long does it take to issue all TRIMs of a removed file?",
    reps: REPS,
    claims: include_str!("../../../../../experiments/lazy-4/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, on_kernel::check),
    run: |request| match &request.target {
        None => Ok(evaluate_figure_4(&run(request)?, request.seed)),
        Some(target) => on_kernel::run(request, target, &FIGURE_4, &on_kernel::ISSUE),
    },
};

/// Both figures come from the same runs: every policy at every append size.
fn run(request: &Request) -> Result<Vec<SizeRuns>, Failure> {
    let device = device();
    let cells: Vec<(PolicySpec, Bytes)> =
        policies(&POLICIES).into_iter().flat_map(|policy| sizes().map(move |size| (policy, size))).collect();
    let runs = request.repeat(&[DEVICE], &cells, |&(policy, append), rep| {
        run_size(&device, policy, append, rep, request.seed)
    })?;
    Ok(runs.chunks(sizes().count()).map(<[_]>::to_vec).collect())
}

/// Returns the append sizes of the source's x axis: 64 KiB, 128 KiB, ... 64 MiB.
pub fn sizes() -> impl Iterator<Item = Bytes> {
    (0..=10).map(|i| Bytes::kib(64 << i))
}

/// The measurements of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRun {
    /// Appends that the file is made of.
    pub pieces: u64,
    /// Extents of the file on the disk.
    pub extents: u64,
    /// The removal.
    pub unlink: SimDuration,
    /// The fsync after it.
    pub fsync: SimDuration,
    /// The TRIMs of the removed file.
    pub issue: Issue,
}

/// Runs the append benchmark once.
///
/// # Errors
///
/// [`CellError`].
pub fn run_size(
    ssd: &SsdConfig,
    policy: PolicySpec,
    append: Bytes,
    rep: u32,
    seed: u64,
) -> Result<SizeRun, CellError> {
    run_size_on(host(), ssd, policy, append, rep, seed)
}

/// Does the same on another host.
///
/// # Errors
///
/// [`CellError`].
pub(super) fn run_size_on(
    host: HostConfig,
    ssd: &SsdConfig,
    policy: PolicySpec,
    append: Bytes,
    rep: u32,
    seed: u64,
) -> Result<SizeRun, CellError> {
    let config = Fragmenting::of_append(append);
    Setup { host, ssd: ssd.clone(), policy, rep, seed }.run(move |fs, watch| async move {
        let mut note = Note::create(&fs).await?;
        fragmenting::write(&fs, FILE, &config).await?;
        let extents = fs.extents(FILE).map_or(0, |extents| extents.len() as u64);
        watch.start();
        let removal = fragmenting::remove(&fs, FILE, &mut note).await?;
        fs.drain_discards().await;
        let issue = watch.stop();
        let fragmenting::Removal { unlink, fsync } = removal;
        Ok(SizeRun { pieces: config.pieces(), extents, unlink, fsync, issue })
    })
}

/// All runs of a policy: for each size its repetitions.
pub type SizeRuns = Vec<Vec<SizeRun>>;

/// The measured figure of all policies over all sizes.
struct Table<'a> {
    runs: &'a [SizeRuns],
    figure: fn(&SizeRun) -> f64,
}

impl Table<'_> {
    /// Returns the median of a policy at each size; empty if the policy was not run.
    fn of(&self, policy: &str) -> Vec<f64> {
        let index = POLICIES.iter().position(|p| *p == policy);
        let runs = index.and_then(|i| self.runs.get(i)).map_or(&[][..], Vec::as_slice);
        runs.iter().filter_map(|runs| self.point(0.0, runs)).map(|point| point.y).collect()
    }

    /// Returns the figures of both of the source's policies over the sizes.
    fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for policy in ["commit", "lazy"] {
            figures.set(policy, self.of(policy));
            figures.set(format!("{policy}.64k"), self.of(policy).first().copied());
        }
        figures
    }

    fn point(&self, x: f64, runs: &[SizeRun]) -> Option<Point> {
        Point::of_runs(x, &runs.iter().map(self.figure).collect::<Vec<_>>())
    }

    /// Returns the series over the append size; leaves out zeros, which a logarithmic axis cannot show.
    fn series(&self) -> Vec<Series> {
        let series = POLICIES.iter().zip(self.runs).map(|(policy, runs)| Series {
            name: label(policy),
            points: sizes()
                .zip(runs)
                .filter_map(|(size, runs)| self.point((size.0 >> 10) as f64, runs))
                .filter(|point| point.y > 0.0)
                .collect(),
        });
        series.filter(|series| !series.points.is_empty()).collect()
    }
}

fn reps(runs: &[SizeRuns]) -> u32 {
    runs.first().and_then(|sizes| sizes.first()).map_or(0, |reps| reps.len() as u32)
}

fn append_axis() -> Axis {
    Axis::log("append_kib", "append size", "KiB")
}

/// Draws how many TRIMs the removed file takes under each policy; the source does not show this.
fn commands_plot(runs: &[SizeRuns]) -> Plot {
    let table = Table { runs, figure: |run| run.issue.commands as f64 };
    Plot {
        title: "TRIM commands for the removed file".to_owned(),
        kind: PlotKind::Lines,
        x: append_axis(),
        y: Axis::log("trim_commands", "TRIM commands", ""),
        series: table.series(),
    }
}

/// Makes figure 3 and its claims from the runs, for each policy of [`POLICIES`] in the order of [`sizes`].
pub fn evaluate_figure_3(runs: &[SizeRuns], seed: u64) -> ExperimentResult {
    let table = Table { runs, figure: |run| milliseconds(run.fsync) };
    let plot = Plot {
        title: "fsync after the removal of a 1 GiB file".to_owned(),
        kind: PlotKind::Lines,
        x: append_axis(),
        y: Axis::log("fsync_ms", "fsync latency", "ms"),
        series: table.series(),
    };
    let distance = plot.distance_to_ideal();
    let plots: Vec<Plot> = [Some(plot), distance, Some(commands_plot(runs))].into_iter().flatten().collect();
    FIGURE_3.judge(&table.figures(), Rows::of(&plots), reps(runs), seed)
}

/// Makes figure 4 and its claim from the same runs.
pub fn evaluate_figure_4(runs: &[SizeRuns], seed: u64) -> ExperimentResult {
    let table = Table { runs, figure: |run| milliseconds(run.issue.time) };
    let traditional = table.of("commit");
    let plot = Plot {
        title: "Time until all TRIMs of the file are acknowledged".to_owned(),
        kind: PlotKind::Lines,
        x: append_axis(),
        y: Axis::log("issue_ms", "time to issue all TRIMs", "ms"),
        series: table.series(),
    };
    let share = Plot {
        title: "The same, over traditional's".to_owned(),
        kind: PlotKind::Lines,
        x: append_axis(),
        y: Axis::linear("over_traditional", "time over traditional's", ""),
        series: POLICIES
            .iter()
            .filter(|policy| **policy != "commit" && table.of(policy).iter().any(|time| *time > 0.0))
            .map(|policy| Series {
                name: label(policy),
                points: sizes()
                    .zip(table.of(policy).iter().zip(&traditional))
                    .map(|(size, (time, traditional))| Point::new((size.0 >> 10) as f64, time / traditional))
                    .collect(),
            })
            .collect(),
    };
    let plots = vec![plot, share, commands_plot(runs)];
    FIGURE_4.judge(&table.figures(), Rows::of(&plots), reps(runs), seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invents runs on a device that takes `each` for a TRIM one by one and `share` of it in parallel.
    fn fabricated(each_us: u64, share_percent: u64) -> Vec<SizeRuns> {
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
            let unlink = SimDuration::ZERO;
            vec![SizeRun { pieces, extents: pieces, unlink, fsync, issue: Issue { commands, time } }]
        };
        let pieces = || sizes().map(|size| Fragmenting::of_append(size).pieces());
        POLICIES.iter().map(|policy| pieces().map(|pieces| run(policy, pieces)).collect()).collect()
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
        assert!(met(&evaluate_figure_3(&[], 1)).is_empty() && met(&evaluate_figure_4(&[], 1)).is_empty());
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
