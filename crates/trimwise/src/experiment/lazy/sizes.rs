//! Figures 3 and 4: the fsync after the removal of a fragmented file, and the time until its TRIMs are issued, over the
//! append size.

use super::{Issue, POLICIES, Setup, host, label, milliseconds, ms_text, unmeasured};
use crate::experiment::cell::CellError;
use crate::experiment::plot::{Axis, Plot, PlotKind, Point, Series};
use crate::experiment::result::{Claim, ExperimentResult, ExperimentRows, Figure, open_claims};
use crate::fs::host::HostConfig;
use crate::policy::PolicySpec;
use crate::ssd::SsdConfig;
use crate::units::{Bytes, SimDuration};
use crate::workload::fragmenting::{self, FILE, Fragmenting, Note};

/// Name of figure 3's experiment on the command line.
pub const FIGURE_3: &str = "lazy-3";
/// Name of figure 4's.
pub const FIGURE_4: &str = "lazy-4";

/// The append sizes of the source's x axis: 64 KiB, 128 KiB, ... 64 MiB.
pub fn sizes() -> impl Iterator<Item = Bytes> {
    (0..=10).map(|i| Bytes::kib(64 << i))
}

/// What one run measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRun {
    /// Appends that the file is made of.
    pub pieces: u64,
    /// Extents of the file on the disk.
    pub extents: u64,
    /// The removal.
    pub unlink: SimDuration,
    /// The fsync behind it.
    pub fsync: SimDuration,
    /// The TRIMs of the removed file.
    pub issue: Issue,
}

/// SizeRuns the append benchmark once.
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

/// The same on another host.
///
/// # Errors
///
/// [`CellError`].
pub fn run_size_on(
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

/// All runs of a policy: for each size those of its repetitions.
pub type SizeRuns = Vec<Vec<SizeRun>>;

/// The measured figure of all policies over all sizes.
struct Table<'a> {
    runs: &'a [SizeRuns],
    figure: fn(&SizeRun) -> f64,
}

impl Table<'_> {
    /// The median of a policy at each size; empty if the policy was not run.
    fn of(&self, policy: &str) -> Vec<f64> {
        let index = POLICIES.iter().position(|p| *p == policy);
        let runs = index.and_then(|i| self.runs.get(i)).map_or(&[][..], Vec::as_slice);
        runs.iter().filter_map(|runs| self.point(0.0, runs)).map(|point| point.y).collect()
    }

    fn point(&self, x: f64, runs: &[SizeRun]) -> Option<Point> {
        Point::of_runs(x, &runs.iter().map(self.figure).collect::<Vec<_>>())
    }

    /// Series over the append size; without what is zero, which no logarithmic axis has.
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

fn append_axis() -> Axis {
    Axis::log("append_kib", "append size", "KiB")
}

/// How many TRIMs the removed file takes under each policy, beside what was asked.
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

fn result(
    experiment: &str,
    question: &str,
    finding: String,
    runs: &[SizeRuns],
    seed: u64,
    plots: Vec<Plot>,
    claims: Vec<Claim>,
) -> ExperimentResult {
    ExperimentResult {
        experiment: experiment.to_owned(),
        question: question.to_owned(),
        finding,
        trimwise: crate::VERSION.to_owned(),
        seed,
        reps: runs.first().and_then(|sizes| sizes.first()).map_or(0, |reps| reps.len() as u32),
        rows: ExperimentRows::Plots(plots),
        claims,
    }
}

/// The question of figure 3.
pub const QUESTION_3: &str = "How long does fsync take after the removal of a fragmented file?";

/// Figure 3 and its claims from the runs, for each policy of [`POLICIES`] in the order of [`sizes`].
pub fn evaluate_figure_3(runs: &[SizeRuns], seed: u64) -> ExperimentResult {
    let table = Table { runs, figure: |run| milliseconds(run.fsync) };
    let (traditional, lazy) = (table.of("commit"), table.of("lazy"));
    let claims =
        vec![at_64_kib(&traditional, &lazy), at_all_sizes(&traditional, &lazy), spread(&traditional, &lazy)];
    let plot = Plot {
        title: "fsync after the removal of a 1 GiB file".to_owned(),
        kind: PlotKind::Lines,
        x: append_axis(),
        y: Axis::log("fsync_ms", "fsync latency", "ms"),
        series: table.series(),
    };
    let finding = match (traditional.first(), lazy.first()) {
        (Some(traditional), Some(lazy)) => format!(
            "At appends of 64 KiB fsync takes {} with the TRIMs inside the commit and {} under lazy. {}",
            ms_text(*traditional),
            ms_text(*lazy),
            open_claims(&claims)
        ),
        _ => open_claims(&claims),
    };
    let distance = plot.distance_to_ideal();
    let plots = [Some(plot), distance, Some(commands_plot(runs))].into_iter().flatten().collect();
    result(FIGURE_3, QUESTION_3, finding, runs, seed, plots, claims)
}

fn at_64_kib(traditional: &[f64], lazy: &[f64]) -> Claim {
    const LIMIT: f64 = 0.015;
    let id = "lazy-fsync-64k";
    let text =
        "fsync at appends of 64 KiB, lazy over traditional: up to 99 % lower (at most 0.015)".to_owned();
    let (Some(traditional), Some(lazy)) = (traditional.first(), lazy.first()) else {
        return unmeasured(id, text);
    };
    let ratio = lazy / traditional;
    Claim { id, text, met: ratio <= LIMIT, published: Figure::Number(0.01), measured: Figure::Number(ratio) }
}

fn at_all_sizes(traditional: &[f64], lazy: &[f64]) -> Claim {
    let faster = traditional.iter().zip(lazy).filter(|(traditional, lazy)| lazy < traditional).count();
    let all = sizes().count();
    Claim {
        id: "lazy-fsync-all-sizes",
        text: "lazy's fsync is faster than traditional's at every append size".to_owned(),
        met: faster == all,
        published: Figure::Text("at every size (drawn)".to_owned()),
        measured: Figure::Text(format!("at {faster} of {all} sizes")),
    }
}

fn spread(traditional: &[f64], lazy: &[f64]) -> Claim {
    let id = "lazy-fsync-spread";
    let text = "traditional's fsync grows with the number of fragments; the ratio of lazy's largest to smallest over \
                the sizes is below traditional's"
        .to_owned();
    let ratio = |of: &[f64]| {
        let most = of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = of.iter().copied().fold(f64::INFINITY, f64::min);
        most / least
    };
    if traditional.is_empty() || lazy.is_empty() {
        return unmeasured(id, text);
    }
    let grows = traditional.windows(2).all(|pair| pair[0] > pair[1]);
    let (ours, theirs) = (ratio(lazy), ratio(traditional));
    Claim {
        id,
        text,
        met: grows && ours < theirs,
        published: Figure::Text("lazy's gap is smaller (drawn)".to_owned()),
        measured: Figure::Text(format!(
            "largest over smallest: lazy {ours:.1}, traditional {theirs:.1}, which {} with the fragments",
            if grows { "grows" } else { "does not always grow" }
        )),
    }
}

/// The question of figure 4.
pub const QUESTION_4: &str = "How long does it take to issue all TRIMs of a removed file?";

/// Figure 4 and its claim from the same runs.
pub fn evaluate_figure_4(runs: &[SizeRuns], seed: u64) -> ExperimentResult {
    let table = Table { runs, figure: |run| milliseconds(run.issue.time) };
    let (traditional, lazy) = (table.of("commit"), table.of("lazy"));
    let ratios: Vec<f64> = traditional.iter().zip(&lazy).map(|(t, l)| l / t).collect();
    let claims = vec![issue_time(&ratios)];
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
    let finding = match (traditional.first(), lazy.first()) {
        (Some(traditional), Some(lazy)) => format!(
            "At appends of 64 KiB all TRIMs are issued in {} one by one and in {} by parallel workers. {}",
            ms_text(*traditional),
            ms_text(*lazy),
            open_claims(&claims)
        ),
        _ => open_claims(&claims),
    };
    result(FIGURE_4, QUESTION_4, finding, runs, seed, vec![plot, share, commands_plot(runs)], claims)
}

fn issue_time(ratios: &[f64]) -> Claim {
    const BEST: (f64, f64) = (0.34, 0.46);
    let id = "lazy-issue-time";
    let text = "time to issue all TRIMs, lazy with parallel workers over traditional: 0.34 to 0.46 in the best case, \
                never more than 1"
        .to_owned();
    if ratios.is_empty() {
        return unmeasured(id, text);
    }
    let best = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let worst = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Claim {
        id,
        text,
        met: (BEST.0..=BEST.1).contains(&best) && worst <= 1.0,
        published: Figure::Number(0.40),
        measured: Figure::Text(format!("{best:.2} in the best case, {worst:.2} in the worst")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SizeRuns as a device would make them that takes `each` for a TRIM one by one and `share` of it in parallel.
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

    fn met(result: &ExperimentResult) -> Vec<&'static str> {
        result.claims.iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
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
        let ExperimentRows::Plots(plots) = evaluate_figure_4(&fabricated(130, 40), 1).rows else { panic!() };
        let names: Vec<&str> = plots[0].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["commit (traditional)", "lazy", "lazy+reuse", "judicious"]);
        assert!(plots.iter().flat_map(|p| &p.series).all(|s| s.points.len() == 11));
    }
}
