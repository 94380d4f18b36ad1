//! The report of `sweep`: for each device and workload, the policies over the utilizations.

use minijinja::Value;
use serde::Serialize;
use trimwise::compare::figure::{View, WRITE_AMPLIFICATION};
use trimwise::compare::summary::SummaryRow;
use trimwise::policy::PolicyId;
use trimwise_lab::failure::Failure;
use trimwise_lab::plot::Axis;

use crate::figures::{self, NONE};
use crate::report::chart::{Chart, Dot, Drawing, Point, Series, Style, Styles, label};
use crate::report::pair::{NAMES, Page as PairPage, Run, Section, change};
use crate::report::{rendered, with_code};
use crate::table::plot::Block;
use trimwise_study::sweep::{Case, Summary};

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    verdict: Value,
    notes: Vec<String>,
    sections: Vec<Section>,
    product: &'a str,
    version: &'a str,
    command: String,
}

/// Renders the whole file.
pub fn html(summary: &Summary) -> Result<String, Failure> {
    if summary.cases.is_empty() {
        return Err(Failure::usage(format!(
            "{}: this sweep has no finished cells to show; expected one that ran some",
            summary.grid
        )));
    }
    let mut styles = Styles::default();
    let sections = groups(&summary.cases).into_iter().map(|cases| {
        let rows = cases.iter().flat_map(|case| case.rows.iter().map(|row| table_row(case, row)));
        let own = ["policy", "full", "median", "interval", "vs baseline"];
        let header = own.into_iter().chain(View::Sweep.figures().map(|(_, heading)| heading));
        let header = header.map(str::to_owned).collect();
        let blocks = vec![Block {
            title: "Medians over seeds and repetitions".to_owned(),
            header,
            rows: rows.collect(),
        }];
        Section::of(title(cases[0]), blocks, &charts(&[("", &cases)], &mut styles))
    });
    let page = Page {
        title: &summary.grid,
        verdict: with_code(&verdict(&summary.cases)),
        notes: notes(summary),
        sections: sections.collect::<Result<_, _>>()?,
        product: &summary.product,
        version: &summary.trimwise,
        command: command(summary),
    };
    rendered(include_str!("report.html"), &page)
}

/// Renders two sweeps side by side.
///
/// # Errors
///
/// If no case is in both.
pub fn pair(summaries: [(&str, &Summary); 2]) -> Result<String, Failure> {
    let [(file_a, a), (file_b, b)] = summaries;
    let same = |case: &Case, other: &Case| {
        (&case.device, &case.workload, case.utilization_percent)
            == (&other.device, &other.workload, other.utilization_percent)
            && case.measure == other.measure
    };
    let find = |case: &Case| b.cases.iter().find(|other| same(case, other));
    let (mut sections, mut changed, mut count) = (Vec::new(), Vec::new(), 0);
    let mut styles = Styles::default();
    for cases in groups(&a.cases) {
        let both: Vec<[&Case; 2]> = cases.iter().filter_map(|case| Some([*case, find(case)?])).collect();
        let Some([first, _]) = both.first() else { continue };
        let mut rows = Vec::new();
        for [one, other] in &both {
            count += 1;
            if one.policy != other.policy {
                let name = |policy: &Option<PolicyId>| {
                    policy.as_ref().map_or("none".to_owned(), ToString::to_string)
                };
                let at = format!("{} at {} % full", title(one), one.utilization_percent);
                changed.push(format!("{at}: `{}`, then `{}`", name(&one.policy), name(&other.policy)));
            }
            for row in &one.rows {
                let Some(now) = other.rows.iter().find(|now| now.policy == row.policy) else { continue };
                let mut cells = vec![
                    row.policy.to_string(),
                    format!("{} %", one.utilization_percent),
                    figures::time(row.median_s),
                    figures::time(now.median_s),
                    change(Some(row.median_s), Some(now.median_s)),
                ];
                let of = |figure| change(row.figures.get(figure), now.figures.get(figure));
                cells.extend(View::SweepChange.figures().map(|(figure, _)| of(figure)));
                rows.push(cells);
            }
        }
        let own = ["policy", "full", "median, A", "median, B", "B vs A"].map(str::to_owned);
        let changes = View::SweepChange.figures().map(|(_, heading)| format!("{heading}, B vs A"));
        let header = own.into_iter().chain(changes).collect();
        let blocks = vec![Block { title: "B against A".to_owned(), header, rows }];
        let runs = [0, 1].map(|run| both.iter().map(|pair| pair[run]).collect::<Vec<_>>());
        let shown = [(NAMES[0], &*runs[0]), (NAMES[1], &*runs[1])];
        sections.push(Section::of(title(first), blocks, &charts(&shown, &mut styles))?);
    }
    if sections.is_empty() {
        return Err(Failure::usage(format!(
            "{file_a} and {file_b}: have no device, workload and utilization in common; expected two sweeps with at \
             least one case in both"
        )));
    }
    const SHOWN: usize = 3;
    let more =
        if changed.len() > SHOWN { format!("; and {} more", changed.len() - SHOWN) } else { String::new() };
    let verdict = match changed.len() {
        0 => format!("The policy to use is the same in all {count} cases that are in both."),
        some => format!(
            "The policy to use differs in {some} of {count} cases that are in both: {}{more}.",
            changed[..some.min(SHOWN)].join("; ")
        ),
    };
    let run = |file: &str, summary: &Summary| Run {
        file: file.to_owned(),
        what: format!("{}, {}, trimwise {}", summary.grid, summary.product, summary.trimwise),
        verdict: with_code(&self::verdict(&summary.cases)),
        command: command(summary),
    };
    let settings = [a, b].map(|summary| {
        vec![
            ("grid", summary.grid.clone()),
            ("cells", summary.product.clone()),
            ("version", summary.trimwise.to_string()),
        ]
    });
    let mut notes: Vec<String> = [a, b].into_iter().flat_map(notes).collect();
    notes.dedup();
    PairPage::html(&verdict, [run(file_a, a), run(file_b, b)], settings, sections, notes)
}

fn command(summary: &Summary) -> String {
    let mut text = trimwise_study::command_text::CommandText::new("sweep");
    text.argument(&summary.grid);
    text.option("--out", &summary.out);
    text.into_text()
}

fn title(case: &Case) -> String {
    format!("{}: {}", case.device, case.workload)
}

/// Cases that differ in nothing but the utilization, which follow each other.
fn groups(cases: &[Case]) -> Vec<Vec<&Case>> {
    let chunks = cases.chunk_by(|a, b| a.device == b.device && a.workload == b.workload);
    chunks.map(|chunk| chunk.iter().collect()).collect()
}

fn verdict(cases: &[Case]) -> String {
    let mut policies: Vec<(&PolicyId, usize)> = Vec::new();
    for policy in cases.iter().filter_map(|case| case.policy.as_ref()) {
        match policies.iter_mut().find(|(known, _)| *known == policy) {
            Some((_, count)) => *count += 1,
            None => policies.push((policy, 1)),
        }
    }
    policies.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words: Vec<String> =
        policies.iter().map(|(policy, count)| format!("`{policy}` in {count}")).collect();
    let without = cases.iter().filter(|case| case.policy.is_none()).count();
    let none = if without > 0 { format!("; {without} have no verdict") } else { String::new() };
    let cases = figures::counted(cases.len() as u64, "case");
    match &words[..] {
        [] => format!("None of {cases} (device, workload, utilization) has a verdict."),
        words => format!(
            "Of {cases} (device, workload, utilization), the policy to use is {}{none}.",
            words.join(", ")
        ),
    }
}

fn notes(summary: &Summary) -> Vec<String> {
    let mut notes = vec!["Figures of the model, not checked on a real kernel.".to_owned()];
    if summary.missing_cells > 0 {
        notes.push(format!("Partial: {} cells of the grid are missing.", summary.missing_cells));
    }
    if summary.failed_cells > 0 {
        notes.push(format!("{} cells failed and are not shown.", summary.failed_cells));
    }
    notes
}

fn table_row(case: &Case, row: &SummaryRow) -> Vec<String> {
    let mut cells = vec![
        row.policy.to_string(),
        format!("{} %", case.utilization_percent),
        figures::time(row.median_s),
        interval(row).map_or(NONE.to_owned(), |(low, high)| {
            format!("{} to {}", figures::time(low), figures::time(high))
        }),
        match (row.vs_baseline_percent, row.vs_baseline_significant) {
            (Some(percent), Some(true)) => figures::change(percent / 100.0),
            (Some(_), _) => "~".to_owned(),
            (None, _) => String::new(),
        },
    ];
    cells.extend(View::Sweep.figures().map(|(figure, _)| figure.text_of(row.figures.get(figure))));
    cells
}

/// The interval of a median, if several runs gave one.
fn interval(row: &SummaryRow) -> Option<(f64, f64)> {
    (row.reps > 1 && row.low_s.is_finite() && row.high_s.is_finite()).then_some((row.low_s, row.high_s))
}

/// Cases of a device and a workload in one or two runs, with the name of the run.
type Runs<'a> = &'a [(&'a str, &'a [&'a Case])];

fn charts(runs: Runs, styles: &mut Styles) -> Vec<Chart> {
    let measure = runs.first().and_then(|(_, cases)| Some(cases.first()?.measure));
    let measured = measure.map_or(String::new(), |measure| measure.to_string());
    let y = Axis { label: measured.into(), ..Axis::linear("median_s", "", "s") };
    let wa = Axis::linear("write_amplification", "write amplification", "NAND units per host unit");
    let is_single = runs.iter().all(|(_, cases)| cases.len() == 1);
    let time = |row: &SummaryRow| Some((row.median_s, interval(row)));
    let amplification = |row: &SummaryRow| Some((row.figures.get(&WRITE_AMPLIFICATION)?, None));
    let caption =
        "Medians over seeds and repetitions; thin lines are 95 % confidence intervals. Lower is better.";
    let charts = if is_single {
        vec![dots("Time", y, runs, styles)]
    } else {
        vec![
            lines("Time over utilization", y, caption, runs, styles, &time),
            lines(
                "Write amplification over utilization",
                wa,
                "Medians; 1 is the least.",
                runs,
                styles,
                &amplification,
            ),
        ]
    };
    charts.into_iter().filter(|chart| !chart.is_empty()).collect()
}

/// The policies of these runs with their names and styles, run after run of each.
fn policies<'a>(runs: Runs<'a>, styles: &mut Styles) -> Vec<(String, Style, &'a PolicyId, &'a [&'a Case])> {
    let mut known: Vec<&PolicyId> = Vec::new();
    for row in runs.iter().flat_map(|(_, cases)| *cases).flat_map(|case| &case.rows) {
        if !known.contains(&&row.policy) {
            known.push(&row.policy);
        }
    }
    let mut all = Vec::new();
    for policy in known {
        let name = policy.to_string();
        for (run, (_, cases)) in runs.iter().enumerate() {
            all.push((label(&name, runs, run), styles.in_run(&name, runs, run), policy, *cases));
        }
    }
    all
}

/// A figure and its interval.
type Figure = Option<(f64, Option<(f64, f64)>)>;

fn lines(
    title: &str,
    y: Axis,
    caption: &str,
    runs: Runs,
    styles: &mut Styles,
    figure: &dyn Fn(&SummaryRow) -> Figure,
) -> Chart {
    let line = |(name, style, policy, cases): (String, Style, &PolicyId, &[&Case])| {
        let mut points: Vec<Point> = Vec::new();
        for case in cases {
            let row = case.rows.iter().find(|row| row.policy == *policy);
            points.extend(
                row.and_then(figure)
                    .map(|(value, interval)| (f64::from(case.utilization_percent), value, interval)),
            );
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, style, points }
    };
    let series = policies(runs, styles).into_iter().map(line).collect();
    Chart::lines(
        title,
        Axis::linear("utilization_percent", "utilization before the run", "%"),
        y,
        series,
        caption,
    )
}

fn dots(title: &str, x: Axis, runs: Runs, styles: &mut Styles) -> Chart {
    let mut rows = Vec::new();
    for (name, style, policy, cases) in policies(runs, styles) {
        let found = cases.iter().flat_map(|case| &case.rows).find(|row| row.policy == *policy);
        rows.extend(found.map(|row| Dot {
            name,
            style,
            value: row.median_s,
            interval: interval(row),
            runs: Vec::new(),
            figure: figures::time(row.median_s),
        }));
    }
    let caption =
        "The marker is the median, the thick line its 95 % confidence interval. Further left is better.";
    Chart {
        title: title.to_owned(),
        caption: caption.to_owned(),
        drawing: Drawing::Dots { x, y: Axis::linear("policy", "", ""), rows },
    }
}
