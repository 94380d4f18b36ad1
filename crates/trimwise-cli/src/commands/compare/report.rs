//! The report of `compare`: the verdict, then for each device its table and what explains it.

use minijinja::Value;
use serde::Serialize;
use trimwise::compare::figure::View;
use trimwise::compare::result::Target;
use trimwise::compare::statistics::compare;
use trimwise::compare::summary::{DeviceSummary, Summary};
use trimwise::failure::{Failure, Mistake};
use trimwise::policy::PolicyId;
use trimwise::units::Bytes;
use trimwise::workload::latency::Operation;

use super::{charts, table};
use crate::figures;
use crate::report::chart::Styles;
use crate::report::pair::{NAMES, Page as PairPage, Run, Section, change};
use crate::report::{Figure, rendered, with_code};
use crate::table::plot::Block;
use trimwise_study::compare::{Comparison, check};
use trimwise_study::conclusion::steps::Steps;
use trimwise_study::conclusion::{Conclusion, Decision};

#[derive(Serialize)]
struct Page {
    title: String,
    subtitle: String,
    /// What `--here` found, and the profile that stands in for the drive.
    here: Vec<String>,
    head: Vec<Value>,
    mark: String,
    text: Value,
    why: Value,
    steps: Steps,
    notes: Vec<String>,
    devices: Vec<Device>,
    settings: Vec<(&'static str, String)>,
    command: String,
    baseline: String,
    measure: String,
    ledger_header: Vec<&'static str>,
    days_header: Vec<&'static str>,
    thin_header: Vec<&'static str>,
    deletions_header: Vec<&'static str>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    /// The device's own verdict; `None` if it is the only device, because the page begins with that verdict.
    verdict: Option<Value>,
    why: Option<Value>,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The policy that the verdict recommends.
    chosen: Option<String>,
    ledger: Vec<Vec<String>>,
    days: Vec<Vec<String>>,
    thin: Vec<Vec<String>>,
    deletions: Vec<Vec<String>>,
    figures: Vec<Figure>,
    latency: Vec<[String; 7]>,
}

/// Views of figures that the page's table shows.
const PAGE: [View; 3] = [View::Table, View::TableElse, View::Page];

pub fn html(comparison: &Comparison) -> Result<String, Failure> {
    let summary = Summary::of(&comparison.cells);
    let settings = &comparison.settings;
    let verdict = &comparison.verdict;
    let several = verdict.per_device.len() > 1;
    let mut devices = Vec::new();
    let mut styles = Styles::default();
    for device in &summary.devices {
        let own = verdict.per_device.iter().find(|v| v.device == device.device);
        let (header, rows) = table::columns(device, comparison, summary.measure, &PAGE);
        devices.push(Device {
            name: table::place(settings, device.device),
            verdict: own.filter(|_| several).map(|v| with_code(&v.text)),
            why: own.filter(|_| several).map(|v| with_code(&v.why)),
            header,
            rows,
            chosen: match &comparison.conclusion {
                Some(conclusion) if !several => firm(conclusion).map(ToString::to_string),
                _ => own.and_then(|v| v.policy.as_ref()).map(ToString::to_string),
            },
            ledger: figures::rows(View::Ledger, device).1,
            days: figures::rows(View::Days, device).1,
            thin: figures::rows(View::Thin, device).1,
            deletions: figures::rows(View::Deletions, device).1,
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
                None if settings.target == Target::Model => "modelled ext4 and SSD, virtual time",
                None => "a real directory",
                Some(_) => "a real kernel and a modelled SSD, virtual time",
            },
            comparison.trimwise
        ),
        here: comparison
            .here
            .as_ref()
            .map_or_else(Vec::new, |here| here.lines().map(str::to_owned).collect()),
        head: match &comparison.conclusion {
            Some(conclusion) => conclusion.head.iter().map(|line| with_code(line)).collect(),
            _ => vec![with_code(&verdict.text)],
        },
        text: with_code(&verdict.text),
        mark: format!("{}{}", if comparison.partial { PARTIAL } else { "" }, mark(comparison)),
        why: with_code(&verdict.why),
        steps: comparison.conclusion.as_ref().map(|conclusion| conclusion.steps.clone()).unwrap_or_default(),
        notes: table::notes(comparison, &summary),
        devices,
        settings: shown_settings(comparison),
        command: settings.command.clone(),
        baseline: settings.baseline.to_string(),
        measure: summary.measure.to_string(),
        ledger_header: figures::headings(View::Ledger),
        days_header: figures::headings(View::Days),
        thin_header: figures::headings(View::Thin),
        deletions_header: figures::headings(View::Deletions),
    };
    rendered(include_str!("report.html"), &page)
}

fn shown_settings(comparison: &Comparison) -> Vec<(&'static str, String)> {
    let settings = &comparison.settings;
    let mut shown = vec![("workload", settings.workload.clone()), ("target", settings.target.to_string())];
    if let (Some(days), Some(day)) = (settings.days, &settings.day) {
        shown.push(("days", format!("{days}, {day}")));
    }
    if let Some(percent) = settings.utilization {
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
    shown.push(("baseline", settings.baseline.to_string()));
    if settings.mount.is_none() {
        shown.push(("seed", comparison.seed.to_string()));
    }
    shown.push(("version", format!("trimwise {}", comparison.trimwise)));
    shown
}

/// Prefix for results with missing runs.
pub const PARTIAL: &str = "Partial: some runs are missing; the figures cover the finished ones. ";
/// Label of figures that were not checked on a kernel.
pub const UNCHECKED: &str = "Figures of the model, not checked on a real kernel.";

pub fn mark(comparison: &Comparison) -> String {
    let settings = &comparison.settings;
    let checked = comparison.check.as_ref().filter(|check| check.kernel.is_some());
    match (&settings.kernel, checked) {
        (Some(kernel), _) => {
            format!("Figures of a real kernel, Linux {}, on a modelled drive.", kernel.title())
        }
        _ if settings.target != Target::Model => "Measured on a real directory.".to_owned(),
        (None, Some(check)) if !check.contradictions.is_empty() => {
            "Checked on a real kernel, which contradicts the model.".to_owned()
        }
        (None, Some(check)) if !check.compared.is_empty() => {
            "Checked on a real kernel, which does not contradict the model.".to_owned()
        }
        _ => UNCHECKED.to_owned(),
    }
}

/// Renders two comparisons side by side. Fails if they have nothing in common. File names are for messages and titles.
pub fn pair(runs: [(&str, &Comparison); 2]) -> Result<String, Failure> {
    let [(file_a, a), (file_b, b)] = runs;
    let refused = |why: &str, expected: &str| {
        Mistake::that(format!("{file_a} and {file_b}: {why}")).expected(expected).fail()
    };
    let summaries = [Summary::of(&a.cells), Summary::of(&b.cells)];
    let measures = [&summaries[0], &summaries[1]].map(|summary| summary.measure);
    if measures[0] != measures[1] {
        let why = format!("the first is judged by {}, the second by {}", measures[0], measures[1]);
        return Err(refused(&why, "two runs judged by the same measure"));
    }
    let pairs = in_both(&summaries);
    if pairs.is_empty() {
        return Err(refused(
            "have no device and policy in common",
            "runs of the same device, or of one device each, under at least one policy that is in both",
        ));
    }
    let mut styles = Styles::default();
    let mut sections = Vec::new();
    let (mut changes, mut alike) = (Vec::new(), Vec::new());
    for [in_a, in_b] in &pairs {
        let title = if in_a.device == in_b.device {
            in_a.device.to_owned()
        } else {
            format!("A: {}; B: {}", in_a.device, in_b.device)
        };
        let mut rows = Vec::new();
        for p in &in_a.policies {
            let Some(other) = in_b.policy(p.policy) else { continue };
            let found = compare(&p.time_s, &other.time_s);
            let said =
                if found.significant { figures::change(1.0 / found.ratio - 1.0) } else { "~".to_owned() };
            if [a, b].iter().any(|run| run.verdict.policy.as_ref() == Some(p.policy))
                || *p.policy == summaries[0].baseline
            {
                let on = if pairs.len() > 1 { format!(" on {title}") } else { String::new() };
                if found.significant {
                    let longer = check::longer(1.0 / found.ratio - 1.0);
                    changes.push(format!("under `{}`{on} {longer}", p.policy));
                } else {
                    alike.push(format!("`{}`{on}", p.policy));
                }
            }
            let mut row = vec![
                p.policy.to_string(),
                figures::duration(&p.time_s),
                figures::duration(&other.time_s),
                said,
            ];
            row.extend(View::Pair.figures().flat_map(|(figure, _)| [figure.text(p), figure.text(other)]));
            row.extend(View::PairChange.figures().map(|(figure, _)| change(figure.of(p), figure.of(other))));
            rows.push(row);
        }
        let measure = measures[0].to_string();
        let mut header =
            vec!["policy".to_owned(), format!("{measure}, A"), format!("{measure}, B"), "B vs A".to_owned()];
        let of_both = |(_, heading): (_, &str)| [format!("{heading}, A"), format!("{heading}, B")];
        header.extend(View::Pair.figures().flat_map(of_both));
        header.extend(View::PairChange.figures().map(|(_, heading)| format!("{heading}, B vs A")));
        let blocks = vec![Block { title: "B against A".to_owned(), header, rows }];
        let both = [(NAMES[0], *in_a), (NAMES[1], *in_b)];
        sections.push(Section::of(title, blocks, &charts::of(&both, measures[0], &mut styles))?);
    }
    let advice = match [a, b].map(advice) {
        [a, b] if a == b => format!("Both: {a}"),
        [a, b] => format!("A: {a}; B: {b}"),
    };
    if !alike.is_empty() {
        changes.push(format!("no measurable difference under {}", alike.join(" or ")));
    }
    let verdict = match &changes[..] {
        [] => format!("{advice}."),
        changes => format!("{advice}; B against A: {}.", changes.join("; ")),
    };
    let run = |file: &str, comparison: &Comparison, summary: &Summary| Run {
        file: file.to_owned(),
        what: format!("{}, trimwise {}", table::workload(&comparison.settings, summary), comparison.trimwise),
        verdict: with_code(&format!(
            "{} {}",
            comparison
                .conclusion
                .as_ref()
                .map_or(comparison.verdict.text.clone(), |said| said.head.join(" ")),
            mark(comparison)
        )),
        command: comparison.settings.command.clone(),
    };
    let runs = [run(file_a, a, &summaries[0]), run(file_b, b, &summaries[1])];
    let mut notes = vec![format!(
        "~: the Mann-Whitney U test finds no difference at 5 %. {}: medians over the repetitions.",
        measures[0]
    )];
    if a.partial || b.partial {
        notes.push("Partial: runs are missing in one of the two.".to_owned());
    }
    let settings = [a, b].map(|run| {
        let mut settings = shown_settings(run);
        let devices: Vec<&str> = Summary::of(&run.cells).devices.iter().map(|d| d.device).collect();
        settings.insert(0, ("devices", devices.join(", ")));
        settings
    });
    PairPage::html(&verdict, runs, settings, sections, notes)
}

/// Returns the policy that a conclusion recommends without reservation.
fn firm(conclusion: &Conclusion) -> Option<&PolicyId> {
    conclusion
        .policy
        .as_ref()
        .filter(|_| conclusion.decision == Decision::Keep || conclusion.decision.is_change())
}

/// Sums up a comparison's conclusion in a few words.
fn advice(comparison: &Comparison) -> String {
    let decision = comparison.conclusion.as_ref().map(|conclusion| (conclusion.decision, firm(conclusion)));
    match (decision, &comparison.verdict.policy) {
        (Some((Decision::CannotTell, _)), _) => "cannot tell yet".to_owned(),
        (Some((Decision::DoesNotMatter, _)), _) => "it does not matter".to_owned(),
        (Some((Decision::Keep, Some(policy))), _) => format!("keep `{policy}`"),
        (Some((_, Some(policy))), _) | (_, Some(policy)) => format!("use `{policy}`"),
        _ => "no verdict".to_owned(),
    }
}

/// Pairs the devices that share a policy: by name, or the only device of one run with that of the other.
fn in_both<'a>(summaries: &'a [Summary<'a>; 2]) -> Vec<[&'a DeviceSummary<'a>; 2]> {
    let [a, b] = [&summaries[0].devices, &summaries[1].devices];
    let same = a.iter().filter_map(|a| Some([a, b.iter().find(|b| b.device == a.device)?]));
    let mut pairs: Vec<[&DeviceSummary; 2]> = same.collect();
    if let ([a], [b], []) = (&a[..], &b[..], &pairs[..]) {
        pairs.push([a, b]);
    }
    pairs.retain(|[a, b]| a.policies.iter().any(|p| b.policy(p.policy).is_some()));
    pairs
}
