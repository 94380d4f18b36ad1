//! The report of `compare`: the verdict first, then for each device its table and what explains it.

use minijinja::Value;
use serde::Serialize;
use trimwise::compare::apply::Apply;
use trimwise::compare::result::{Cell, Measure, PostmarkFigures, QUANTILES, WorkloadFigures};
use trimwise::compare::statistics::median;
use trimwise::compare::summary::{DeviceSummary, PolicySummary, Summary};
use trimwise::units::{Bytes, UNIT_BYTES};
use trimwise::workload::latency::Operation;
use trimwise_lab::failure::Failure;

use super::table;
use crate::commands::compare::Comparison;
use crate::figures;
use crate::report::charts::{self, Bar, Line};
use crate::report::{Entry, Figure, rendered, with_code};

#[derive(Serialize)]
struct Page {
    title: String,
    subtitle: String,
    /// What `--here` found, and what stands in for it.
    here: Vec<String>,
    verdict: Value,
    why: Value,
    apply_heading: Value,
    apply: Vec<Step>,
    notes: Vec<String>,
    devices: Vec<Device>,
    settings: Vec<(&'static str, String)>,
    command: String,
    baseline: String,
    measure: String,
    ledger_header: [&'static str; figures::LEDGER.len()],
    days_header: [&'static str; figures::DAYS.len()],
}

#[derive(Serialize)]
struct Device {
    name: String,
    /// Its own verdict; `None` if it is the only device, since the page begins with that.
    verdict: Option<Value>,
    /// What explains that.
    why: Option<Value>,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The policy to use.
    chosen: Option<String>,
    ledger: Vec<Vec<String>>,
    days: Vec<[String; figures::DAYS.len()]>,
    figures: Vec<Figure>,
    latency: Vec<[String; 7]>,
}

/// A step that applies the policy.
#[derive(Serialize)]
pub struct Step {
    what: Value,
    commands: String,
}

impl Step {
    pub fn of(step: &Apply) -> Self {
        Self { what: with_code(&step.what), commands: step.commands.join("\n") }
    }
}

/// Renders the whole file.
pub fn html(comparison: &Comparison) -> Result<String, Failure> {
    let summary = Summary::of(&comparison.cells);
    let settings = &comparison.settings;
    let verdict = &comparison.verdict;
    let several = verdict.per_device.len() > 1;
    let mut devices = Vec::new();
    for device in &summary.devices {
        let own = verdict.per_device.iter().find(|v| v.device == device.device);
        let (header, rows) = table::columns(device, comparison, summary.measure);
        devices.push(Device {
            name: table::place(settings, device.device),
            verdict: own.filter(|_| several).map(|v| with_code(&v.text)),
            why: own.filter(|_| several).map(|v| with_code(&v.why)),
            header,
            rows,
            chosen: own.map(|v| v.policy.clone()),
            ledger: table::ledger(device),
            days: figures::days(device),
            figures: figures_of(device, summary.measure)?,
            latency: figures::latencies(device, &Operation::ALL),
        });
    }
    let names: Vec<String> = summary.devices.iter().map(|d| table::place(settings, d.device)).collect();
    let page = Page {
        title: names.join(", "),
        subtitle: format!(
            "{} on {}; trimwise {}",
            table::workload(settings, &summary),
            match &settings.kernel {
                None if settings.target == "model" => "modelled ext4 and SSD, virtual time",
                None => "a real directory",
                Some(_) => "a real kernel and a modelled SSD, virtual time",
            },
            comparison.trimwise
        ),
        here: comparison.here.as_ref().map_or_else(Vec::new, |here| here.lines().to_vec()),
        verdict: with_code(&verdict.text),
        why: with_code(&verdict.why),
        apply_heading: with_code(&table::steps_heading(
            verdict.policy.as_deref().unwrap_or_default(),
            &verdict.apply,
        )),
        apply: verdict.apply.iter().map(Step::of).collect(),
        notes: table::notes(comparison, &summary),
        devices,
        settings: shown_settings(comparison),
        command: settings.command.clone(),
        baseline: settings.baseline.clone(),
        measure: summary.measure.to_string(),
        ledger_header: figures::LEDGER,
        days_header: figures::DAYS,
    };
    rendered(include_str!("report.html"), &page)
}

fn shown_settings(comparison: &Comparison) -> Vec<(&'static str, String)> {
    let settings = &comparison.settings;
    let mut shown = vec![("workload", settings.workload.clone()), ("target", settings.target.clone())];
    if let (Some(days), Some(day)) = (settings.days, &settings.day) {
        shown.push(("days", format!("{days}, {day}")));
    }
    if let Some(percent) = settings.utilization_percent {
        shown.push(("utilization before the run", format!("{percent} %")));
    }
    if let Some(linux) = &settings.linux {
        shown.push((
            "discard of the modelled host",
            format!("Linux {} ({})", linux.version, linux.stands_for),
        ));
    }
    if let Some(memory) = settings.host_memory_bytes {
        let of =
            if settings.kernel.is_some() { "memory of the guest" } else { "memory of the modelled host" };
        shown.push((of, Bytes(memory).to_string()));
    }
    let checked = comparison.check.as_ref().and_then(|check| check.kernel.as_ref());
    if checked.is_some() {
        shown.push(("memory of the guest", "the same".to_owned()));
    }
    if let Some(kernel) = settings.kernel.as_ref().or(checked) {
        shown.push(("kernel", format!("Linux {}, built from {}", kernel.title(), kernel.source)));
        shown.push(("file system", kernel.file_system.clone()));
        if !kernel.mount_options.is_empty() {
            shown.push(("mounted with", kernel.mount_options.clone()));
        }
    }
    if let Some(mount) = &settings.mount {
        let unknown = || "unknown".to_string();
        shown.push(("file system", mount.file_system.clone().unwrap_or_else(unknown)));
        shown.push(("mounted on", mount.point.clone().unwrap_or_else(unknown)));
    }
    shown.push(("repetitions", settings.reps.to_string()));
    shown.push(("baseline", settings.baseline.clone()));
    if settings.mount.is_none() {
        shown.push(("seed", comparison.seed.to_string()));
    }
    shown.push(("version", format!("trimwise {}", comparison.trimwise)));
    shown
}

/// Whether the workload was spread over days.
fn is_spread(device: &DeviceSummary) -> bool {
    device.policies.iter().flat_map(|p| &p.runs).any(|run| run.days.is_some())
}

fn figures_of(device: &DeviceSummary, measure: Measure) -> Result<Vec<Figure>, Failure> {
    let is_trace = device.policies.iter().flat_map(|p| &p.runs).any(|run| figures::is_trace(run));
    let mut all = match measure {
        _ if is_trace || is_spread(device) => Vec::new(),
        Measure::Total | Measure::Waiting | Measure::MeanLatency | Measure::Latency(..) => {
            vec![phases(device)?]
        }
        Measure::Fsync | Measure::Write => vec![operations(device)?],
    };
    all.extend(write_amplification(device)?);
    all.extend(busy(device)?);
    all.extend(stale(device)?);
    for operation in [
        Operation::Fsync,
        Operation::Write,
        Operation::Read,
        Operation::Append,
        Operation::Create,
        Operation::Unlink,
    ] {
        all.extend(latency(device, operation)?);
    }
    Ok(all)
}

/// Assigns each policy one colour, the same in every chart.
fn policy_legend(device: &DeviceSummary) -> Vec<Entry> {
    let entry = |(i, p): (usize, &PolicySummary)| Entry {
        name: p.policy.to_string(),
        colour: charts::css(charts::policy(i)),
    };
    device.policies.iter().enumerate().map(entry).collect()
}

/// Assigns each part of a bar one colour.
fn part_legend<S: ToString>(names: &[S]) -> Vec<Entry> {
    let entry =
        |(i, name): (usize, &S)| Entry { name: name.to_string(), colour: charts::css(charts::part(i)) };
    names.iter().enumerate().map(entry).collect()
}

fn phases(device: &DeviceSummary) -> Result<Figure, Failure> {
    let bars: Vec<Bar> = device
        .policies
        .iter()
        .map(|p| {
            let of = |figure: fn(&PostmarkFigures) -> f64| p.median_of(|c| c.postmark().map_or(0.0, figure));
            let seconds = [of(|p| p.creation_alone_s), of(|p| p.transactions_s), of(|p| p.deletion_alone_s)];
            let figure = format!("{} s", figures::significant(p.time_s.median()));
            bar(p, &seconds, figure)
        })
        .collect();
    Ok(Figure::new(
        "Time per phase",
        part_legend(&["creation", "transactions", "deletion"]),
        charts::bars(&bars)?,
        "Medians over the repetitions; shorter is better.",
    ))
}

/// Operations of a workload that times them, one after another.
fn operations(device: &DeviceSummary) -> Result<Figure, Failure> {
    let first_and_second = |c: &Cell| match &c.workload {
        WorkloadFigures::Append(f) => [f.unlink_ns, f.fsync_ns],
        WorkloadFigures::FullWrite(f) => [f.fsync_ns.unwrap_or(0), f.write_ns],
        WorkloadFigures::Postmark(_)
        | WorkloadFigures::Program(_)
        | WorkloadFigures::Replay(_)
        | WorkloadFigures::Own(_) => [0, 0],
    };
    let names = match device.policies.iter().flat_map(|p| &p.runs).map(|c| c.measure()).next() {
        Some(Measure::Write) => ["fsync", "write"],
        _ => ["unlink", "fsync"],
    };
    let bars: Vec<Bar> = device
        .policies
        .iter()
        .map(|p| {
            let seconds = [0, 1].map(|i| p.median_of(|c| first_and_second(c)[i] as f64 / 1e9));
            bar(p, &seconds, figures::time(seconds.iter().sum()))
        })
        .collect();
    Ok(Figure::new(
        "Time of the operations",
        part_legend(&names),
        charts::bars(&bars)?,
        "Medians over the repetitions; shorter is better.",
    ))
}

/// A policy's bar of several parts.
fn bar(policy: &PolicySummary, parts: &[f64], figure: String) -> Bar {
    let parts = parts.iter().enumerate().map(|(i, &v)| (v, charts::part(i))).collect();
    Bar { name: policy.policy.to_string(), parts, figure }
}

fn write_amplification(device: &DeviceSummary) -> Result<Option<Figure>, Failure> {
    let bars: Option<Vec<Bar>> = device
        .policies
        .iter()
        .enumerate()
        .map(|(i, p)| {
            let wa = p.device_median_of(|d| d.write_amplification)?;
            let parts = vec![(wa, charts::policy(i))];
            Some(Bar { name: p.policy.to_string(), parts, figure: format!("{wa:.2}") })
        })
        .collect();
    let Some(bars) = bars else { return Ok(None) };
    Ok(Some(Figure::new(
        "Write amplification",
        policy_legend(device),
        charts::bars(&bars)?,
        "Units programmed into flash for each unit that the host wrote; 1 is the least without compression.",
    )))
}

/// Device time by cause; causes in alphabetical order, without those that took no time.
fn busy(device: &DeviceSummary) -> Result<Option<Figure>, Failure> {
    let figures_of = || device.policies.iter().flat_map(|p| &p.runs).filter_map(|c| c.device_stats.as_ref());
    let mut causes: Vec<&str> =
        figures_of().flat_map(|d| &d.busy_ns).filter(|(_, ns)| **ns > 0).map(|(cause, _)| &**cause).collect();
    causes.sort_unstable();
    causes.dedup();
    if causes.is_empty() {
        return Ok(None);
    }
    let bars: Vec<Bar> = device
        .policies
        .iter()
        .map(|p| {
            let of = |cause: &str| {
                p.device_median_of(|d| d.busy_ns.get(cause).copied().unwrap_or(0) as f64).unwrap_or(0.0) / 1e9
            };
            let seconds: Vec<f64> = causes.iter().map(|cause| of(cause)).collect();
            let figure = format!("{} s", figures::significant(seconds.iter().sum()));
            bar(p, &seconds, figure)
        })
        .collect();
    let names: Vec<String> = causes.iter().map(|c| c.replace('_', " ")).collect();
    Ok(Some(Figure::new(
        "Device busy time by cause",
        part_legend(&names),
        charts::bars(&bars)?,
        "Summed over the device's parts, which work in parallel: the sum can exceed the duration.",
    )))
}

fn stale(device: &DeviceSummary) -> Result<Option<Figure>, Failure> {
    let (unit_s, unit) = if is_spread(device) { (86_400.0, "d") } else { (1.0, "s") };
    let mut lines: Vec<Line> = Vec::new();
    for (i, p) in device.policies.iter().enumerate() {
        let timeline = p.runs.first().and_then(|c| c.device_stats.as_ref()).map(|d| &d.timeline);
        let gib = |units: u64| units as f64 * UNIT_BYTES as f64 / Bytes::gib(1).0 as f64;
        let at = |at_ns: u64| at_ns as f64 / unit_s / 1e9;
        let points = timeline.into_iter().flatten().map(|s| (at(s.at_ns), gib(s.stale_units))).collect();
        lines.push((charts::policy(i), points));
    }
    if lines.iter().all(|(_, points)| points.is_empty()) {
        return Ok(None);
    }
    Ok(Some(Figure::new(
        "Stale space over time",
        policy_legend(device),
        charts::over_time(&lines, unit, "GiB")?,
        "Free in the file system, but still valid to the device, which copies it around: what TRIM is for. \
                  First repetition.",
    )))
}

fn latency(device: &DeviceSummary, operation: Operation) -> Result<Option<Figure>, Failure> {
    let mut lines: Vec<Line> = Vec::new();
    for (i, p) in device.policies.iter().enumerate() {
        let runs: Vec<&Vec<u64>> =
            p.runs.iter().filter_map(|c| c.latency_quantiles_ns.get(operation.name())).collect();
        let points = (0..QUANTILES.len())
            .filter_map(|q| {
                let values: Vec<f64> = runs.iter().filter_map(|r| r.get(q)).map(|ns| *ns as f64).collect();
                Some((median(&values)?, q as f64))
            })
            .collect();
        lines.push((charts::policy(i), points));
    }
    if lines.iter().all(|(_, points)| points.is_empty()) {
        return Ok(None);
    }
    let names: Vec<String> = QUANTILES.iter().map(|q| format!("{} %", rounded_percent(*q))).collect();
    Ok(Some(Figure::new(
        format!("Latency of {}", operation.name()),
        policy_legend(device),
        charts::quantiles(&lines, &names)?,
        "Share of operations (upwards) that took no longer than (to the right, logarithmic); further left \
                  is better.",
    )))
}

pub fn rounded_percent(quantile: f64) -> f64 {
    (quantile * 10_000.0).round() / 100.0
}
