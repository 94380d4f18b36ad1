//! The charts of `compare`, for one run or for two runs side by side.

use trimwise::compare::result::{BlockShares, Cell, Measure, PostmarkFigures, QUANTILES, TimelineSample};
use trimwise::compare::statistics::{Sample, compare, median};
use trimwise::compare::summary::{DeviceSummary, PolicySummary};
use trimwise::policy::PolicyId;
use trimwise::units::{Bytes, UNIT_BYTES};
use trimwise::workload::latency::Operation;
use trimwise_study::plot::Axis;

use crate::figures;
use crate::report::chart::{
    Area, Band, Bar, BlocksPanel, Chart, Dot, Drawing, Panel, Part, Point, Series, Start, Style, Styles, gap,
    label,
};

/// The same device in one or two runs, each with the run's name.
pub type Runs<'a> = &'a [(&'a str, &'a DeviceSummary<'a>)];

/// Makes the charts of a device, without those that have nothing to show.
pub fn of(runs: Runs, measure: Measure, styles: &mut Styles) -> Vec<Chart> {
    let mut charts = Charts { runs, styles };
    let is_trace = charts.cells().any(|cell| cell.workload.replay().is_some());
    let mut all = vec![charts.judged(measure)];
    match measure {
        _ if is_trace || charts.is_spread() => {}
        Measure::Total | Measure::Waiting | Measure::MeanLatency | Measure::Latency(..) => {
            all.push(charts.phases());
        }
        Measure::Fsync | Measure::Write => all.push(charts.operations()),
    }
    all.extend([charts.latency(), charts.writes(), charts.stale(), charts.blocks()]);
    all.extend([charts.busy(), charts.write_amplification()]);
    all.retain(|chart| !chart.is_empty() && !is_too_short(chart));
    all
}

/// Returns true for a chart over time with too few samples to show a course.
fn is_too_short(chart: &Chart) -> bool {
    const SAMPLES: usize = 3;
    let Drawing::Lines { x, panels, .. } = &chart.drawing else { return false };
    let mut lines = panels.iter().flat_map(|panel| &panel.series);
    ["at_s", "at_d"].contains(&&*x.key) && lines.all(|line| line.points.len() < SAMPLES)
}

struct Charts<'a> {
    runs: Runs<'a>,
    styles: &'a mut Styles,
}

/// The axis of policies. It needs no title.
const POLICIES: Axis = Axis::linear("policy", "", "");

/// Causes of device time, keys and names, in the order in which a bar stacks them.
const CAUSES: [(&str, &str); 11] = [
    ("link", "host link"),
    ("controller", "controller"),
    ("write_path", "write path"),
    ("read_host", "reads for the host"),
    ("program_host", "programs for the host"),
    ("read_gc", "reads for GC"),
    ("program_gc", "programs for GC"),
    ("erase", "erases"),
    ("read_map", "reads of the map"),
    ("flush", "flushes"),
    ("trim", "TRIM"),
];

impl<'a> Charts<'a> {
    fn cells(&self) -> impl Iterator<Item = &'a Cell> + use<'a> {
        self.runs.iter().flat_map(|(_, device)| &device.policies).flat_map(|p| p.runs.iter().copied())
    }

    /// Returns each policy with its name, style and summary. With two runs, a policy's runs are adjacent.
    fn policies(&mut self) -> Vec<(String, Style, &'a PolicySummary<'a>)> {
        let mut names: Vec<&PolicyId> = Vec::new();
        for (_, device) in self.runs {
            for p in &device.policies {
                if !names.contains(&p.policy) {
                    names.push(p.policy);
                }
            }
        }
        let mut all = Vec::new();
        for name in names {
            for (run, (_, device)) in self.runs.iter().enumerate() {
                let Some(p) = device.policy(name) else { continue };
                let name = name.to_string();
                all.push((label(&name, self.runs, run), self.styles.in_run(&name, self.runs, run), p));
            }
        }
        all
    }

    fn is_spread(&self) -> bool {
        self.cells().any(|run| run.days.is_some())
    }

    fn time_axis(&self) -> (Axis, f64) {
        if self.is_spread() {
            (Axis::linear("at_d", "time since the workload began", "d"), 86_400e9)
        } else {
            (Axis::linear("at_s", "time since the workload began", "s"), 1e9)
        }
    }

    /// Charts the measure that policies are judged by.
    fn judged(&mut self, measure: Measure) -> Chart {
        let words = match measure {
            Measure::Total => "duration of the workload",
            Measure::Waiting => "time spent in operations",
            Measure::Fsync => "time of the fsync",
            Measure::Write => "time of the write",
            Measure::MeanLatency => "mean latency",
            Measure::Latency(..) => "latency",
        };
        let title = match measure {
            Measure::Latency(..) => format!("Latency {measure}"),
            _ => capitalised(words),
        };
        let x = Axis::linear("seconds", words, "s");
        self.dots(title, x, figures::time, |p| Some(p.time_s.clone()))
    }

    /// Charts a figure of which less is better, from the bound up.
    fn dots(
        &mut self,
        title: String,
        x: Axis,
        text: fn(f64) -> String,
        of: impl Fn(&PolicySummary) -> Option<Sample>,
    ) -> Chart {
        let (runs, mut rows) = (self.runs, Vec::new());
        let bound_of = |device: &DeviceSummary| Some(of(device.policy(&PolicyId::IDEAL)?)?.median());
        let bounds: Option<Vec<f64>> = runs.iter().map(|(_, device)| bound_of(device)).collect();
        let bound = bounds.and_then(|bounds| bounds.into_iter().reduce(f64::min));
        for (name, style, p) in self.policies() {
            let Some(sample) = of(p) else { continue };
            let interval = sample.interval();
            let is_exact = sample.is_exact();
            let is_own = |policies: &[PolicySummary]| policies.iter().any(|other| std::ptr::eq(other, p));
            let own = runs.iter().find(|(_, device)| is_own(&device.policies));
            let off = own
                .and_then(|(_, device)| device.policy(&PolicyId::OFF))
                .filter(|off| off.policy != p.policy);
            let alike = off.and_then(&of).is_some_and(|off| {
                let found = compare(&off, &sample);
                !found.significant || (found.interval.low..=found.interval.high).contains(&1.0)
            });
            let figure = text(sample.median());
            rows.push(Dot {
                name,
                style,
                value: sample.median(),
                interval: (interval.confidence > 0.0 && !is_exact).then_some((interval.low, interval.high)),
                runs: if is_exact { Vec::new() } else { sample.values().to_vec() },
                figure: if alike { format!("~ {figure}") } else { figure },
                alike,
            });
        }
        let mut caption = "The marker is the median of the repetitions".to_owned();
        if rows.iter().any(|row: &Dot| row.interval.is_some()) {
            caption += ", the thick line its confidence interval; thin strokes are the repetitions";
        }
        caption += ". Further left is better.";
        if rows.iter().any(|row| row.alike) {
            caption +=
                &format!(" ~, an outline without a line: no difference from {} was found.", PolicyId::OFF);
        }
        let start = bound.map_or(Start::Zero, Start::Bound);
        Chart { title, caption, drawing: Drawing::Dots { x, y: POLICIES, start, rows } }
    }

    fn bars(&mut self, title: &str, x: Axis, caption: &str, row: impl Fn(&PolicySummary) -> Row) -> Chart {
        let mut rows = Vec::new();
        for (name, _, p) in self.policies() {
            let (parts, figure) = row(p);
            let part = |(name, value): (String, f64)| {
                let fill = self.styles.fill(&name);
                let named = CAUSES.iter().find(|(cause, _)| *cause == name);
                Part { name: named.map_or(name, |(_, words)| (*words).to_owned()), fill, value }
            };
            rows.push(Bar { name, style: None, parts: parts.into_iter().map(part).collect(), figure });
        }
        rows.retain(|bar| bar.parts.iter().any(|part| part.value > 0.0));
        let drawing = Drawing::Bars { x, y: POLICIES, rows };
        Chart { title: title.to_owned(), caption: caption.to_owned(), drawing }
    }

    fn phases(&mut self) -> Chart {
        self.bars(
            "Time of each phase",
            Axis::linear("seconds", "duration", "s"),
            "Medians over the repetitions; shorter is better.",
            |p| {
                let of = |name: &str, figure: fn(&PostmarkFigures) -> f64| {
                    (name.to_owned(), p.median_of(|c| c.workload.postmark().map_or(0.0, figure)))
                };
                let parts = vec![
                    of("creation", |p| p.creation_alone_s),
                    of("transactions", |p| p.transactions_s),
                    of("deletion", |p| p.deletion_alone_s),
                ];
                (parts, figures::time(p.time_s.median()))
            },
        )
    }

    /// Charts the operations of a workload that times them one by one.
    fn operations(&mut self) -> Chart {
        self.bars(
            "Time of the operations",
            Axis::linear("seconds", "duration", "s"),
            "Medians over the repetitions; shorter is better.",
            |p| {
                let of = |cell: &Cell| cell.workload.timed_ns().unwrap_or_default();
                let Some(names) = p.runs.first().map(|run| of(run).map(|(name, _)| name)) else {
                    return (Vec::new(), String::new());
                };
                let parts = [0, 1].map(|i| (names[i].to_owned(), p.median_of(|c| of(c)[i].1 as f64 / 1e9)));
                let sum = parts.iter().map(|(_, seconds)| seconds).sum();
                (parts.to_vec(), figures::time(sum))
            },
        )
    }

    fn write_amplification(&mut self) -> Chart {
        let x = Axis::linear("write_amplification", "write amplification", "NAND units per host unit");
        let of = |p: &PolicySummary| p.device_sample_of(|d| d.write_amplification);
        let chart = self.dots("Write amplification".to_owned(), x, |wa| format!("{wa:.2}"), of);
        let caption = format!(
            "Units programmed into flash for each unit that the host wrote; 1 is the least without compression. {}",
            chart.caption
        );
        Chart { caption, ..chart }
    }

    /// Charts device time by cause: first what the host asked for, then garbage collection, the rest, and TRIM.
    fn busy(&mut self) -> Chart {
        let figures_of = self.cells().filter_map(|c| c.device_stats.as_ref());
        let mut causes: Vec<String> = figures_of
            .flat_map(|d| &d.busy_ns)
            .filter(|(_, ns)| **ns > 0)
            .map(|(cause, _)| cause.to_string())
            .collect();
        causes.sort_by_key(|cause| {
            let known = CAUSES.iter().position(|(known, _)| known == cause);
            (known.unwrap_or(CAUSES.len()), cause.clone())
        });
        causes.dedup();
        self.bars(
            "Device time by cause",
            Axis::linear("busy_s", "device time", "s"),
            "Medians, summed over the device's parts, which work in parallel: the sum can exceed the duration.",
            |p| {
                let of = |cause: &String| {
                    let ns = p.device_median_of(|d| d.busy_ns.get(&**cause).copied().unwrap_or(0) as f64);
                    (cause.clone(), ns.unwrap_or(0.0) / 1e9)
                };
                let parts: Vec<(String, f64)> = causes.iter().map(of).collect();
                let sum = parts.iter().map(|(_, seconds)| seconds).sum();
                (parts, figures::time(sum))
            },
        )
    }

    /// Charts what was written over time, in a panel for each policy.
    fn writes(&mut self) -> Chart {
        let (x, unit_ns) = self.time_axis();
        let panel = |(name, style, p): (String, Style, &PolicySummary)| {
            let samples = whole_intervals(&p.runs.first()?.device_stats.as_ref()?.timeline);
            let mut points: Vec<Point> = Vec::new();
            let mut copies = Vec::new();
            let mut spans = Vec::new();
            for (a, b) in samples.iter().zip(samples.iter().skip(1)).filter(|(a, b)| b.at_ns > a.at_ns) {
                let passed_s = (b.at_ns - a.at_ns) as f64 / 1e9;
                let rate = |units: u64| units as f64 * UNIT_BYTES as f64 / 1e6 / passed_s;
                let middle = (a.at_ns + b.at_ns) as f64 / 2.0 / unit_ns;
                points.push((middle, rate(b.host_units_written.saturating_sub(a.host_units_written)), None));
                let since = |b: Option<u64>, a: Option<u64>| Some(b?.saturating_sub(a?));
                copies.extend(since(b.gc_units_copied, a.gc_units_copied).map(|units| (middle, rate(units))));
                let trim_s = since(b.trim_busy_ns, a.trim_busy_ns).unwrap_or(0) as f64 / 1e9;
                if trim_s > 0.0 {
                    let said = format!("{} of device time", figures::time(trim_s));
                    let (from, to) = (a.at_ns as f64 / unit_ns, b.at_ns as f64 / unit_ns);
                    spans.push((from, to, (trim_s / passed_s).min(1.0), said));
                }
            }
            (!points.is_empty()).then(|| Panel {
                title: name,
                series: vec![Series { name: "written by the host".to_owned(), style, points }],
                areas: vec![Area {
                    name: "copied by garbage collection".to_owned(),
                    fill: "program-gc".to_owned(),
                    points: copies,
                }],
                bands: vec![Band { name: "TRIM".to_owned(), fill: "trim".to_owned(), spans }],
            })
        };
        let panels = self.policies().into_iter().filter_map(panel).collect();
        Chart {
            title: "Writes, garbage collection and TRIM over time".to_owned(),
            caption:
                "Shading shows when the drive worked on TRIMs: the stronger, the larger the share of the time. \
                      First repetition."
                    .to_owned(),
            drawing: Drawing::Lines { x, y: Axis::linear("mb_per_s", "written", "MB/s"), panels },
        }
    }

    /// Charts what the drive's blocks held before and after the workload.
    fn blocks(&mut self) -> Chart {
        let mut panels = Vec::new();
        let mut most = 1;
        for (name, _, p) in self.policies() {
            let map = p.runs.first().and_then(|run| run.device_stats.as_ref()?.blocks.as_ref());
            let Some(map) = map else { continue };
            for (when, shares) in [("before", &map.before), ("after", &map.after)] {
                let BlockShares { in_use_permille, stale_permille, invalid_permille } = shares;
                let parts = in_use_permille.iter().zip(stale_permille).zip(invalid_permille);
                let block = |((&in_use, &stale), &invalid): ((&u16, &u16), &u16)| {
                    let free = 1000u16.saturating_sub(in_use.saturating_add(stale).saturating_add(invalid));
                    vec![in_use, stale, invalid, free]
                };
                let blocks: Vec<Vec<u16>> = parts.map(block).collect();
                most = most.max(map.superblocks.div_ceil(blocks.len().max(1) as u64));
                panels.push(BlocksPanel { title: format!("{name}, {when}"), blocks });
            }
        }
        let part = |name: &str| Part { name: name.to_owned(), fill: self.styles.fill(name), value: 0.0 };
        let parts = ["in use", "stale", "invalid", "free"].map(part).to_vec();
        let unit = if most == 1 { "superblocks" } else { "groups of superblocks" };
        let of = if most == 1 { String::new() } else { format!(" (up to {most} neighbours)") };
        Chart {
            title: "The drive's blocks before and after the workload".to_owned(),
            caption: format!(
                "Each bar is a {}{of}. In use: the file system needs it. Stale: free in the file system, still valid in \
                 the drive. Invalid: to be erased. First repetition.",
                if most == 1 { "superblock" } else { "group of superblocks" }
            ),
            drawing: Drawing::Blocks {
                x: Axis::linear("superblocks", "place in the drive", unit),
                y: Axis::linear("share_percent", "share", "%"),
                parts,
                panels,
            },
        }
    }

    fn stale(&mut self) -> Chart {
        let (x, unit_ns) = self.time_axis();
        let gib = |units: u64| units as f64 * UNIT_BYTES as f64 / Bytes::gib(1).0 as f64;
        let line = |(name, style, p): (String, Style, &PolicySummary)| {
            let timeline = p.runs.first().and_then(|c| c.device_stats.as_ref()).map(|d| &d.timeline);
            let points: Vec<Point> = timeline
                .into_iter()
                .flatten()
                .map(|s| (s.at_ns as f64 / unit_ns, gib(s.stale_units), None))
                .collect();
            Series { name, style, points }
        };
        let series = self.policies().into_iter().map(line).collect();
        Chart::lines(
            "Stale space over time",
            x,
            Axis::linear("stale_gib", "stale space", "GiB"),
            series,
            "Free in the file system, but still valid to the device, which copies it around: what TRIM is for. First \
             repetition.",
        )
    }

    /// Charts the share of operations that took longer than a latency, in a panel for each kind. The slowest operation
    /// is plotted at a share of one operation.
    fn latency(&mut self) -> Chart {
        const OPERATIONS: [Operation; 6] = [
            Operation::Fsync,
            Operation::Write,
            Operation::Read,
            Operation::Append,
            Operation::Create,
            Operation::Unlink,
        ];
        let mut panels: Vec<Panel> = Vec::new();
        for operation in OPERATIONS {
            let lines = self.policies().into_iter().map(|(name, style, p)| {
                let points = exceedance(p, operation);
                Series { name, style, points }
            });
            let series: Vec<Series> = lines.filter(|line| !line.points.is_empty()).collect();
            if !series.is_empty() {
                panels.push(Panel {
                    title: operation.name().to_owned(),
                    series,
                    areas: Vec::new(),
                    bands: Vec::new(),
                });
            }
        }
        let x = Axis::log("latency_ns", "latency", "ns");
        let y = Axis::log("slower_percent", "share of operations that took longer", "%");
        Chart {
            title: "Latency".to_owned(),
            caption: "Medians of the repetitions at twelve quantiles; the last point is the slowest operation. Straight lines \
                      join those that are at most ten times apart. Further left and lower is better."
                .to_owned(),
            drawing: Drawing::Lines { x, y, panels },
        }
    }
}

/// Drops the last sample but one if the interval after it is too short for a comparable rate.
fn whole_intervals(samples: &[TimelineSample]) -> Vec<&TimelineSample> {
    let mut kept: Vec<&TimelineSample> = samples.iter().collect();
    if let [.., a, b, c] = kept[..]
        && 2 * c.at_ns.saturating_sub(b.at_ns) < b.at_ns.saturating_sub(a.at_ns)
    {
        kept.remove(kept.len() - 2);
    }
    kept
}

/// Returns latencies, each with the percentage of operations that took longer.
fn exceedance(p: &PolicySummary, operation: Operation) -> Vec<Point> {
    let name = operation.name();
    let recorded = |c: &&Cell| Some((c.latency.get(name)?.count, c.latency_quantiles_ns.get(name)?.clone()));
    let runs: Vec<(u64, Vec<u64>)> = p.runs.iter().filter_map(recorded).collect();
    let count = runs.iter().map(|(count, _)| *count).min().unwrap_or(0).max(1) as f64;
    let mut points = Vec::new();
    for (q, quantile) in QUANTILES.iter().enumerate() {
        let slower = if *quantile < 1.0 { 1.0 - quantile } else { 1.0 / count };
        // With few operations, the far quantiles are all the slowest operation.
        if *quantile < 1.0 && slower * count < 1.0 {
            continue;
        }
        let values: Vec<f64> = runs.iter().filter_map(|(_, all)| all.get(q)).map(|ns| *ns as f64).collect();
        points.extend(median(&values).map(|ns| (ns.max(1.0), slower * 100.0, None)));
    }
    broken(points)
}

/// Quantiles further apart than this factor are not joined, since nothing is known of what lies between them.
const APART: f64 = 10.0;

fn broken(points: Vec<Point>) -> Vec<Point> {
    let mut all: Vec<Point> = Vec::new();
    for point in points {
        let last = all.last().map(|last| last.0);
        all.extend(last.filter(|last| point.0 / last > APART).map(|last| gap((last * point.0).sqrt())));
        all.push(point);
    }
    all
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

/// The parts of a bar, and the figure at its end.
type Row = (Vec<(String, f64)>, String);

#[cfg(test)]
mod tests {
    use trimwise::compare::summary::Summary;

    use super::super::tests::cells::cell;
    use super::*;

    /// The chart that policies are judged by, of runs of so many seconds.
    fn judged(runs: &[(&str, [f64; 4])]) -> Chart {
        let of = |(policy, seconds): &(&str, [f64; 4])| {
            let of_rep = |(rep, s): (usize, &f64)| cell("sata-small", policy, rep as u32, *s);
            seconds.iter().enumerate().map(of_rep).collect::<Vec<_>>()
        };
        let cells: Vec<Cell> = runs.iter().flat_map(of).collect();
        let summary = Summary::of(&cells);
        let device = &summary.devices[0];
        of_measure(&[("", device)])
    }

    fn of_measure(runs: Runs) -> Chart {
        super::of(runs, Measure::Total, &mut Styles::default()).remove(0)
    }

    #[test]
    fn regression_lines_start_at_the_bound_and_no_saving_is_drawn_that_none_has_shown() {
        let off = ("off", [100.0, 100.2, 99.9, 100.1]);
        let noisy = ("commit", [99.0, 100.3, 98.5, 100.15]);
        let faster = ("lazy", [98.0, 98.2, 97.9, 98.1]);
        let chart = judged(&[off, noisy, faster, ("ideal", [97.0, 97.1, 97.2, 97.1])]);
        let Drawing::Dots { start, rows, .. } = &chart.drawing else { panic!("{chart:?}") };
        assert_eq!(*start, Start::Bound(97.1));
        let alike: Vec<(&str, bool, &str)> = rows.iter().map(|r| (&*r.name, r.alike, &*r.figure)).collect();
        let expected = [
            ("off", false, "100.0 s"),
            ("commit", true, "~ 99.58 s"),
            ("lazy", false, "98.05 s"),
            ("ideal", false, "97.10 s"),
        ];
        assert_eq!(alike, expected);
        let said = "Lines start at the bound, not at zero: 97.10 s under ideal, which no policy can beat.";
        assert!(chart.whole_caption().ends_with(said), "{}", chart.whole_caption());
        assert!(chart.caption.contains("an outline without a line: no difference from off was found"));
        let data = serde_json::to_value(&chart).unwrap();
        assert_eq!((&data["start"]["bound"], &data["rows"][1]["alike"]), (&97.1.into(), &true.into()));

        let chart = judged(&[off, faster]);
        let Drawing::Dots { start, .. } = &chart.drawing else { panic!("{chart:?}") };
        assert_eq!(*start, Start::Zero);
        assert!(chart.whole_caption().ends_with("Lines start at zero."), "{}", chart.whole_caption());
    }

    #[test]
    fn quantiles_that_are_far_apart_are_not_joined() {
        let points = vec![(1.0, 100.0, None), (9.0, 50.0, None), (900.0, 1.0, None)];
        let x: Vec<(f64, bool)> = broken(points).iter().map(|point| (point.0, point.1.is_nan())).collect();
        assert_eq!(x, [(1.0, false), (9.0, false), (90.0, true), (900.0, false)]);
    }

    #[test]
    fn regression_a_short_rest_at_the_end_is_no_interval_of_its_own() {
        let kept = |times: &[u64]| {
            let at = |&at_ns: &u64| TimelineSample {
                at_ns,
                stale_units: 0,
                host_units_written: 0,
                nand_units_written: 0,
                gc_units_copied: None,
                trim_busy_ns: None,
            };
            let samples: Vec<TimelineSample> = times.iter().map(at).collect();
            whole_intervals(&samples).iter().map(|sample| sample.at_ns).collect::<Vec<u64>>()
        };
        assert_eq!(kept(&[0, 10, 20, 24]), [0, 10, 24]);
        assert_eq!(kept(&[0, 10, 20, 25]), [0, 10, 20, 25]);
        assert_eq!(kept(&[0, 4]), [0, 4]);
    }
}
