//! The report of `compare`: the verdict first, then for each device its table and what explains it.

use minijinja::Value;
use serde::Serialize;
use trimwise::compare::apply::Apply;
use trimwise::compare::summary::Summary;
use trimwise::units::Bytes;
use trimwise::workload::latency::Operation;
use trimwise_lab::failure::Failure;

use super::{charts, table};
use crate::commands::compare::Comparison;
use crate::figures;
use crate::report::chart::Styles;
use crate::report::{Figure, rendered, with_code};

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
    let mut styles = Styles::default();
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
            figures: charts::of(&[("", device)], summary.measure, &mut styles)
                .iter()
                .map(Figure::of)
                .collect::<Result<_, _>>()?,
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
