//! The table of `compare`: a block for each device, then the verdict, then the command that repeats it.

use trimwise::compare::days::DaysFigures;
use trimwise::compare::figure::{FIGURES, Figure, Kind as FigureKind, View};
use trimwise::compare::means::Means;
use trimwise::compare::result::{Cell, Measure, Target};
use trimwise::compare::statistics::too_few_runs;
use trimwise::compare::summary::{DeviceSummary, PolicySummary, Summary};
use trimwise::policy::PolicyId;
use trimwise::trace::Knows;
use trimwise::units::Bytes;
use trimwise::workload::latency::Operation;

use crate::conclusion;
use crate::figures;
use crate::table::export::{self, Kind};
use crate::table::{bold, folded, titled, titled_in_two};
use trimwise_study::compare::here::Here;
use trimwise_study::compare::{Comparison, Settings};

/// Views of figures that the terminal's table shows.
pub const TABLE: [View; 2] = [View::Table, View::TableElse];

/// Renders figures and conclusion; `details` adds what explains them.
pub fn render(comparison: &Comparison, details: bool) -> String {
    let summary = Summary::of(&comparison.cells);
    let settings = &comparison.settings;
    let mut text = String::new();
    let is_as_ext4 = comparison.here.as_ref().is_some_and(|here| here.is_as_ext4(&settings.target));
    let as_ext4 = if is_as_ext4 { ", as ext4" } else { "" };
    for device in &summary.devices {
        let how_full = settings.utilization.map_or(String::new(), |u| format!(", {u} % full"));
        let what = workload(settings, &summary);
        let title = format!("{}: {what}{how_full}{as_ext4}", place(settings, device.device));
        let (header, rows) = columns(device, comparison, summary.measure, &TABLE);
        let parted_at = first_beyond(device, comparison, &rows);
        text += &(titled_in_two(&title, &header, &rows, parted_at) + "\n");
        export::replace(|| for_programs(device, comparison, summary.measure, &TABLE));
        text.extend(beyond(device, comparison));
        for (title, view) in [
            ("Thin storage: what is used, and what is held", View::Thin),
            ("Limited deletions: what waits to be deleted", View::Deletions),
        ] {
            let (header, rows) = figures::rows(view, device);
            if !rows.is_empty() {
                text += &(titled(title, &header, &rows) + "\n");
            }
        }
        let latencies = latencies(device);
        let is_judged = matches!(summary.measure, Measure::Latency(..));
        if !latencies.is_empty() && (details || is_judged) {
            text += &(titled("Latency", &LATENCY, &latencies) + "\n");
            export::declare(|heading| match heading {
                "call" | "policy" => Kind::Text,
                "count" => Kind::Number(""),
                _ => Kind::Number("s"),
            });
        }
        for (title, view) in [("Days", View::Days), ("Ledger", View::Ledger)].into_iter().filter(|_| details)
        {
            let (header, rows) = figures::rows(view, device);
            if !rows.is_empty() {
                text += &(titled(title, &header, &rows) + "\n");
                let of = |heading: &str| view.figures().find(|(_, own)| *own == heading);
                export::declare(|heading| of(heading).map_or(Kind::Text, |(figure, _)| kind_of(figure)));
            }
        }
    }
    let incomplete = incomplete(&summary);
    for note in notes(comparison, &summary).iter().skip(incomplete.len()).filter(|_| details) {
        text += &(folded(note, 0) + "\n");
    }
    text.extend(incomplete.iter().map(|note| bold(folded(note, 0).trim_end()) + "\n"));
    if comparison.partial {
        text +=
            &format!("{}\n", bold("Partial: some runs are missing; the figures cover the finished ones."));
    }
    let several = comparison.verdict.per_device.len() > 1;
    match &comparison.conclusion {
        Some(conclusion) => text += &conclusion::text(conclusion),
        _ => text += &format!("{}\n", bold(folded(&comparison.verdict.text, 0).trim_end())),
    }
    if details || several {
        text += &format!("\n{}", folded(&comparison.verdict.text, 0));
        text += &explained(&comparison.verdict.why, 0);
    }
    if several {
        for device in &comparison.verdict.per_device {
            text += &format!("\n{}\n{}{}", device.device, folded(&device.text, 2), explained(&device.why, 2));
        }
    }
    text.push('\n');
    if details {
        text += &modelled_host(settings);
    } else {
        text += "--details explains it: ledger, latencies, causes, notes.\n";
    }
    let checked = comparison.check.as_ref().and_then(|check| check.kernel.as_ref());
    if let (Some(kernel), Some(memory)) = (settings.kernel.as_ref().or(checked), settings.host_memory_bytes) {
        let aged = settings.utilization.map_or("new".to_owned(), |p| format!("aged to {p} % in use"));
        let options = match kernel.mount_options.as_str() {
            "" => String::new(),
            options => format!(" mounted with {options}"),
        };
        text += &folded(
            &format!(
                "Real kernel: Linux {}, {}{options}, {aged}; {} of memory. Computing takes no virtual time.",
                kernel.title(),
                kernel.file_system,
                Bytes(memory)
            ),
            0,
        );
    }
    let seed = match settings.mount {
        None => format!(", seed {}", comparison.seed),
        Some(_) => String::new(), // nothing is drawn at random there
    };
    text + &format!("trimwise {}{seed}; repeat with:\n  {}\n", comparison.trimwise, settings.command)
}

/// Renders the verdict's reasons; empty if there are none.
fn explained(why: &str, indent: usize) -> String {
    if why.is_empty() { String::new() } else { folded(&format!("Why: {why}"), indent) }
}

/// Describes the modelled host; empty if there is none.
pub fn modelled_host(settings: &Settings) -> String {
    let (Some(percent), Some(linux), Some(memory)) =
        (settings.utilization, &settings.linux, settings.host_memory_bytes)
    else {
        return String::new();
    };
    let said = format!(
        "Modelled host: discard of Linux {} ({}), {} of memory; aged to {percent} % in use.",
        linux.version,
        linux.stands_for,
        Bytes(memory)
    );
    folded(&said, 0)
}

/// Describes what `--here` found, what stands in for it, and what the figures therefore apply to.
pub fn here(here: &Here) -> String {
    here.lines().map(|line| folded(line, 0)).collect::<String>() + "\n"
}

/// Names a device in titles: its profile, or the directory with its file system and mount point.
pub fn place(settings: &Settings, device: &str) -> String {
    if let Some(kernel) = &settings.kernel {
        return format!("{device}, {} of Linux {}", kernel.file_system, kernel.title());
    }
    let Target::Directory(directory) = &settings.target else { return device.to_string() };
    match settings.mount.as_ref().map(|m| (&m.file_system, &m.point)) {
        Some((Some(file_system), Some(point))) if point == directory => {
            format!("{directory} ({file_system})")
        }
        Some((Some(file_system), Some(point))) => format!("{directory} ({file_system} on {point})"),
        _ => directory.to_string(),
    }
}

pub fn workload(settings: &Settings, summary: &Summary) -> String {
    let mut runs = summary.devices.iter().flat_map(|d| &d.policies).flat_map(|p| &p.runs);
    let mark = if runs.any(|run| run.workload.postmark().is_some()) { "PostMark " } else { "" };
    format!("{mark}{}{}", settings.workload, over(settings))
}

/// Says over how many days the workload is spread; empty if it is not.
pub fn over(settings: &Settings) -> String {
    match (settings.days, &settings.day) {
        (Some(1), Some(day)) => format!(" over a day ({day})"),
        (Some(days), Some(day)) => format!(" over {days} days ({day})"),
        _ => String::new(),
    }
}

/// The policies of a device in the order of the table: those that the host can have come first.
fn ordered<'d, 'a>(device: &'d DeviceSummary<'a>, comparison: &Comparison) -> Vec<&'d PolicySummary<'a>> {
    let mut policies: Vec<&PolicySummary> = device.policies.iter().collect();
    policies.sort_by_key(|p| !comparison.means(p).is_attainable());
    policies
}

/// The first row of a policy that the host cannot have; `None` if it can have all or none.
pub fn first_beyond(device: &DeviceSummary, comparison: &Comparison, rows: &[Vec<String>]) -> Option<usize> {
    let first = ordered(device, comparison).into_iter().find(|p| !comparison.means(p).is_attainable())?;
    let name = first.policy.to_string();
    rows.iter().position(|row| row[0] == name).filter(|row| *row > 0)
}

/// Says what the policies below the line need; `None` if there are none.
fn beyond(device: &DeviceSummary, comparison: &Comparison) -> Option<String> {
    let needs = |p: &PolicySummary| {
        let means = comparison.means(p);
        let needs = match means {
            Means::Stock | Means::Trimwised | Means::Own => return None,
            Means::Ext4Trim | Means::DmTrim => format!("needs {}", means.words()),
            Means::Elsewhere => "is what another file system does".to_owned(),
            Means::OtherLinux => "is what another version of Linux does".to_owned(),
            Means::Bound => "is only a bound".to_owned(),
        };
        Some(format!("`{}` {needs}", p.policy))
    };
    let beyond: Vec<String> = ordered(device, comparison).into_iter().filter_map(needs).collect();
    (!beyond.is_empty()).then(|| folded(&format!("Not on a stock host: {}.", beyond.join(", ")), 0) + "\n")
}

/// A column of the table.
struct Column {
    heading: String,
    kind: Kind,
    text: Box<dyn Fn(&PolicySummary) -> String>,
    shown: Shown,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Always,
    /// If any row has a figure for it.
    IfKnown,
    /// If any row has a figure for it, and no row has one for the preceding column.
    Else,
    Never,
}

/// Returns the header and rows with these views' figures. Leaves out columns without any figure, such as the erases of
/// a real device, but always shows the distance to the bound for the model. A row of the real kernel's figures follows
/// each of the model's.
pub fn columns(
    device: &DeviceSummary,
    comparison: &Comparison,
    measure: Measure,
    views: &[View],
) -> (Vec<String>, Vec<Vec<String>>) {
    let today = comparison.here.as_ref().and_then(|here| here.today(comparison.settings.days.is_some()));
    let (columns, all) = every_column(device, comparison, measure, views);
    let rows: Vec<Vec<String>> = all
        .into_iter()
        .map(|Row { policy, kernel, mut cells }| {
            if let Some(kernel) = kernel {
                cells[0] = format!("  {kernel}");
            } else if today.as_ref() == Some(policy) {
                cells[0] += " (today)";
            }
            cells
        })
        .collect();
    let mut is_kept: Vec<bool> = Vec::new();
    let mut has_one = false;
    for (i, column) in columns.iter().enumerate() {
        let is_known = rows.iter().any(|row| row[i] != figures::NONE);
        let is_in_place = column.shown != Shown::Else || !has_one;
        let is_known = is_known && column.shown != Shown::Never;
        is_kept.push(column.shown == Shown::Always || is_known && is_in_place);
        has_one = is_known || column.shown == Shown::Else && has_one;
    }
    let kept =
        |row: Vec<String>| row.into_iter().zip(&is_kept).filter(|(_, s)| **s).map(|(c, _)| c).collect();
    let header = columns.iter().map(|column| column.heading.clone()).collect();
    (kept(header), rows.into_iter().map(kept).collect())
}

/// Returns all columns with their kinds, and the rows. What the text says within the policy's cell has columns of its
/// own: where the row's figures are from, and whether the policy is today's.
pub fn for_programs(
    device: &DeviceSummary,
    comparison: &Comparison,
    measure: Measure,
    views: &[View],
) -> (Vec<(String, Kind)>, Vec<Vec<String>>) {
    let today = comparison.here.as_ref().and_then(|here| here.today(comparison.settings.days.is_some()));
    let target = comparison.settings.target.to_string();
    let (columns, rows) = every_column(device, comparison, measure, views);
    let mut header: Vec<(String, Kind)> =
        columns.into_iter().map(|column| (column.heading, column.kind)).collect();
    header.splice(1..1, ["on", "today"].map(|heading| (heading.to_owned(), Kind::Text)));
    let row = |Row { policy, kernel, mut cells }: Row| {
        let is_today = if today.as_ref() == Some(policy) { "today" } else { "" };
        cells.splice(1..1, [kernel.unwrap_or_else(|| target.clone()), is_today.to_owned()]);
        cells
    };
    (header, rows.into_iter().map(row).collect())
}

/// Returns what a figure's cells are.
fn kind_of(figure: &Figure) -> Kind {
    match figure.kind {
        FigureKind::Units | FigureKind::UnitsSaved => Kind::Number("bytes"),
        FigureKind::Nanoseconds | FigureKind::SecondsIfAny | FigureKind::SecondsSaved => Kind::Number("s"),
        FigureKind::Percent => Kind::Number("%"),
        FigureKind::Count | FigureKind::Ratio | FigureKind::Rate => Kind::Number(""),
    }
}

struct Row<'d> {
    policy: &'d PolicyId,
    /// The release of the real kernel whose figures they are; `None`: those of the target.
    kernel: Option<String>,
    cells: Vec<String>,
}

/// Returns all columns and rows. A row of the real kernel's figures follows each of the model's.
fn every_column<'d>(
    device: &'d DeviceSummary,
    comparison: &Comparison,
    measure: Measure,
    views: &[View],
) -> (Vec<Column>, Vec<Row<'d>>) {
    let in_model = device.policies.iter().flat_map(|p| &p.runs).all(|run| run.target == Target::Model);
    let baseline = &comparison.settings.baseline;
    let column = |heading: String, kind, shown, text: fn(&PolicySummary) -> String| Column {
        heading,
        kind,
        text: Box::new(text),
        shown,
    };
    let mut columns = vec![
        column("policy".to_owned(), Kind::Text, Shown::Always, |p| p.policy.to_string()),
        column("n".to_owned(), Kind::Runs, Shown::Always, |p| figures::runs(&p.time_s)),
        column(measure.to_string(), Kind::Measured, Shown::Always, |p| figures::duration(&p.time_s)),
    ];
    let vs_baseline = if device.policies.len() > 1 { Shown::IfKnown } else { Shown::Never };
    let difference = |p: &PolicySummary| figures::difference(p.versus_baseline.as_ref());
    columns.push(column(format!("vs {baseline}"), Kind::Change, vs_baseline, difference));
    let distance = if in_model { Shown::Always } else { Shown::IfKnown };
    columns.push(column("vs ideal".to_owned(), Kind::Change, distance, figures::distance));
    for figure in FIGURES {
        let view = views.iter().find_map(|view| Some((*view, figure.heading(*view)?)));
        columns.extend(view.map(|(view, heading)| Column {
            heading: heading.to_owned(),
            kind: kind_of(figure),
            text: Box::new(move |p| figure.text(p)),
            shown: if view == View::TableElse { Shown::Else } else { Shown::IfKnown },
        }));
    }
    let mut rows = Vec::new();
    let cells = |p: &PolicySummary| columns.iter().map(|column| (column.text)(p)).collect::<Vec<_>>();
    let check = comparison.check.as_ref();
    let checked = check.map(|check| check.summarised(baseline));
    let checked = checked.iter().flat_map(|c| &c.devices).find(|d| d.device == device.device);
    for p in ordered(device, comparison) {
        rows.push(Row { policy: p.policy, kernel: None, cells: cells(p) });
        let kernel = check.and_then(|check| check.kernel.as_ref());
        if let (Some(kernel), Some(on_kernel)) = (kernel, checked.and_then(|d| d.policy(p.policy))) {
            let kernel = Some(kernel.release.to_string());
            rows.push(Row { policy: p.policy, kernel, cells: cells(on_kernel) });
        }
    }
    (columns, rows)
}

const LATENCY: [&str; 7] = ["call", "policy", "count", "p50", "p99", "p99.9", "max"];

/// Returns the latencies of an application's or a fio job's calls. PostMark's operations are several calls each, so its
/// latencies are returned only if the run is judged by one.
fn latencies(device: &DeviceSummary) -> Vec<Vec<String>> {
    let runs = || device.policies.iter().flat_map(|p| &p.runs);
    let operations: &[Operation] = if runs().any(|run| run.workload.program().is_some()) {
        &[Operation::Fsync, Operation::Write, Operation::Read]
    } else if runs().any(|run| matches!(run.measure(), Measure::Latency(..))) {
        &Operation::ALL
    } else {
        &[]
    };
    figures::latencies(device, operations).into_iter().map(Vec::from).collect()
}

/// Says that a trace was read only up to a damaged record.
pub fn up_to(damage: &str) -> String {
    format!("Partial: the figures cover the trace up to {damage}.")
}

/// Says that events are missing from a trace.
pub fn lost(events: u64) -> String {
    format!("Partial: {} events were lost when the trace was recorded.", figures::grouped(events))
}

/// Lists what is missing from the runs, and so from all figures.
pub fn incomplete(summary: &Summary) -> Vec<String> {
    let runs = || summary.devices.iter().flat_map(|d| &d.policies).flat_map(|p| &p.runs);
    let mut notes = Vec::new();
    notes.extend(runs().find_map(|run| run.cut_off()).map(up_to));
    let events = runs().filter_map(|run| Some(run.workload.replay()?.lost_events)).find(|events| *events > 0);
    notes.extend(events.map(lost));
    if runs().any(|run| run.workload.postmark().is_some_and(|p| p.out_of_files)) {
        notes.push(
            "Partial: the workload ran out of files. It deleted all of them before its transactions were done (PostMark \
             prints no report then), and the figures cover what was done."
                .to_owned(),
        );
    }
    notes
}

/// Lists, without duplicates, what to know before trusting the intervals; missing data come first.
pub fn notes(comparison: &Comparison, summary: &Summary) -> Vec<String> {
    let mut notes = incomplete(summary);
    let policies = || summary.devices.iter().flat_map(|d| &d.policies);
    let in_virtual_time = policies().flat_map(|p| &p.runs).all(|run| run.is_in_virtual_time());
    if in_virtual_time && policies().any(|p| p.runs.len() > 1 && !p.time_s.is_exact()) {
        let more = if comparison.settings.days.is_some() { ", and in when operations are due" } else { "" };
        notes.push(format!(
            "Repetitions differ in the seed of the ageing step and in the phase of the commit timer{more}; no noise is \
             added."
        ));
    }
    let mut punched = policies()
        .flat_map(|p| &p.runs)
        .filter_map(|run| Some(run.workload.program()?.punched_bytes).filter(|bytes| *bytes > 0));
    if let Some(bytes) = punched.next() {
        notes.push(format!(
            "The workload's own TRIMs punched holes of {} into its files. The table counts the TRIMs that policies sent \
             for the space that became free.",
            Bytes(bytes)
        ));
    }
    notes.extend(meaning(summary.measure));
    notes.extend(late(&policies().flat_map(|p| &p.runs).filter_map(|run| run.days).collect::<Vec<_>>()));
    notes.extend(traces(&policies().flat_map(|p| &p.runs).copied().collect::<Vec<_>>()));
    for p in policies() {
        let note = if p.time_s.is_exact() && p.runs.len() > 1 {
            Some("exact: all repetitions were identical to the last bit, so one is enough.".to_string())
        } else {
            too_few_runs(&p.time_s).map(|n| format!("Few runs: {n}."))
        };
        notes.extend(note.filter(|n| !notes.contains(n)));
    }
    notes.extend(comparison.check.iter().flat_map(|check| {
        check.notes(comparison.verdict.policy.as_ref(), comparison.verdict.per_device.len())
    }));
    notes
}

/// Says that the workload fell behind its schedule, if it did.
fn late(days: &[DaysFigures]) -> Option<String> {
    let latest = days.iter().max_by_key(|days| days.late_max_ns).filter(|days| days.late_operations > 0)?;
    Some(format!(
        "Some operations began late because the one before had not ended: at most {} of {} in a run, by up to {}.",
        figures::grouped(days.iter().map(|days| days.late_operations).max().unwrap_or_default()),
        figures::grouped(latest.operations),
        figures::nanoseconds(latest.late_max_ns as f64)
    ))
}

/// Explains what can and cannot be concluded from a trace.
fn traces(runs: &[&Cell]) -> Vec<String> {
    let Some(trace) = runs.first().and_then(|run| run.workload.replay()) else { return Vec::new() };
    // If a trace says nothing about TRIM, the conclusion already says so.
    let mut notes: Vec<String> =
        (trace.knows != Knows::Nothing).then(|| trace.knows.serves().to_owned()).into_iter().collect();
    if trace.knows == Knows::Discards {
        notes.push(format!("The trace has {} discards.", figures::grouped(trace.recorded_discards)));
    }
    if trace.written_before_bytes > 0 {
        notes.push(format!(
            "{} that the trace reads before writing was already on the drive, on top of its utilization.",
            Bytes(trace.written_before_bytes)
        ));
    }
    if let Some(ns) = trace.recorded_latency_mean_ns {
        notes.push(format!("Mean latency on the recording host: {}.", figures::nanoseconds(ns as f64)));
    }
    for run in runs {
        let (Some(trace), Some(drive)) = (run.workload.replay(), &run.drive) else { continue };
        let note = size_note(trace.recorded_drive_bytes, &run.device, drive.capacity_bytes);
        notes.extend(note.filter(|note| !notes.contains(note)));
    }
    if trace.cut_requests > 0 {
        notes.push(format!(
            "{} requests were cut off at the end of the drive.",
            figures::grouped(trace.cut_requests)
        ));
    }
    notes
}

/// Says that a trace was recorded on a drive of a different size, if it was.
fn size_note(recorded_bytes: Option<u64>, name: &str, bytes: u64) -> Option<String> {
    const NEAR_PERCENT: u64 = 5;
    let recorded =
        recorded_bytes.filter(|recorded| recorded.abs_diff(bytes) > recorded / 100 * NEAR_PERCENT)?;
    let (share, garbage) = if bytes > recorded { ("smaller", "less") } else { ("larger", "more") };
    Some(format!(
        "The trace was recorded on a drive of {}, and {name} has {}: the same requests are a {share} share of it, so it \
         collects {garbage} garbage.",
        Bytes(recorded),
        Bytes(bytes)
    ))
}

/// Explains what the measure covers if it is not the whole run.
fn meaning(measure: Measure) -> Option<String> {
    const TRIMS: &str =
        "TRIMs done: from the end of the commit until the last TRIM of the file was acknowledged.";
    match measure {
        Measure::Total => None,
        Measure::Waiting => Some(
            "waiting: the time that the workload spent in its operations, without the idle time between them."
                .to_owned(),
        ),
        Measure::MeanLatency => Some(
            "latency: the mean of all reads, writes and flushes; their times are those of the trace."
                .to_owned(),
        ),
        Measure::Latency(..) => Some(format!("{measure}: policies are judged by this latency (--judge).")),
        Measure::Fsync => Some(format!("fsync: the one that makes the removal of the file durable. {TRIMS}")),
        Measure::Write => Some(format!(
            "write: one block on the full file system, synchronously, after a file was removed. {TRIMS}"
        )),
    }
}
