//! The report of `sweep`: for each device and workload, the policies at each utilization.

use minijinja::Value;
use serde::Serialize;
use trimwise::compare::figure::{View, WRITE_AMPLIFICATION};
use trimwise::compare::judge::Decision;
use trimwise::compare::summary::SummaryRow;
use trimwise::failure::{Failure, Mistake};
use trimwise::policy::PolicyId;
use trimwise_study::plot::Axis;

use crate::commands::compare::table::up_to;
use crate::figures::{self, NONE};
use crate::report::chart::{Chart, Dot, Drawing, Point, Series, Start, Style, Styles, gap, label};
use crate::report::pair::{NAMES, Page as PairPage, Run, Section, change};
use crate::report::{Figure, rendered, with_code};
use crate::table::plot::Block;
use trimwise_study::sweep::{Case, Summary};

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    verdict: Value,
    notes: Vec<String>,
    sections: Vec<Group>,
    product: &'a str,
    version: &'a str,
    command: String,
}

/// All cases of one device and workload.
#[derive(Serialize)]
struct Group {
    title: String,
    figures: Vec<Figure>,
    header: Vec<String>,
    rows: Vec<Row>,
    /// The verdict of each case, in words.
    verdicts: Vec<Value>,
}

/// One policy in one case.
#[derive(Serialize)]
struct Row {
    cells: Vec<String>,
    is_chosen: bool,
    /// Whether this is the first row of its case.
    is_first: bool,
}

pub fn html(summary: &Summary) -> Result<String, Failure> {
    if summary.cases.is_empty() {
        let why = format!("{}: this sweep has no finished cells to show", summary.grid);
        return Err(Mistake::that(why).expected("a sweep that has some").fail());
    }
    let mut styles = Styles::default();
    let sections = groups(&summary.cases).into_iter().map(|cases| {
        let own = ["policy", "full", "verdict", "median", "interval", "vs baseline"];
        let header = own.into_iter().chain(View::Sweep.figures().map(|(_, heading)| heading));
        let charts = charts(&[("", &cases)], &mut styles);
        Ok(Group {
            title: title(cases[0]),
            figures: charts.iter().map(Figure::of).collect::<Result<_, Failure>>()?,
            header: header.map(str::to_owned).collect(),
            rows: cases.iter().flat_map(|case| rows(case)).collect(),
            verdicts: cases.iter().map(|case| with_code(&case_verdict(case))).collect(),
        })
    });
    let page = Page {
        title: &summary.grid,
        verdict: with_code(&verdict(&summary.cases)),
        notes: notes(summary),
        sections: sections.collect::<Result<_, Failure>>()?,
        product: &summary.product,
        version: &summary.trimwise,
        command: command(summary),
    };
    rendered(include_str!("report.html"), &page)
}

/// Renders two sweeps side by side. Fails if they have no case in common.
pub fn pair(summaries: [(&str, &Summary); 2]) -> Result<String, Failure> {
    let [(file_a, a), (file_b, b)] = summaries;
    let same = |case: &Case, other: &Case| {
        (&case.device, &case.workload, case.utilization)
            == (&other.device, &other.workload, other.utilization)
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
                let at = format!("{} at {} % full", title(one), one.utilization);
                changed.push(format!("{at}: `{}`, then `{}`", name(&one.policy), name(&other.policy)));
            }
            for row in &one.rows {
                let Some(now) = other.rows.iter().find(|now| now.policy == row.policy) else { continue };
                let mut cells = vec![
                    row.policy.to_string(),
                    format!("{} %", one.utilization),
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
        let why = format!("{file_a} and {file_b}: have no device, workload and utilization in common");
        return Err(Mistake::that(why).expected("two sweeps with at least one case in both").fail());
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

/// Groups adjacent cases that differ only in utilization.
fn groups(cases: &[Case]) -> Vec<Vec<&Case>> {
    let chunks = cases.chunk_by(|a, b| a.device == b.device && a.workload == b.workload);
    chunks.map(|chunk| chunk.iter().collect()).collect()
}

/// What the runs of a case show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing<'a> {
    /// Use this policy rather than the baseline.
    Use(&'a PolicyId),
    /// Keep this one, the baseline.
    Keep(&'a PolicyId),
    /// No policy that a host can use differs materially from this one, the baseline.
    Alike(&'a PolicyId),
    CannotTell,
    /// An older version judged by another rule. Its policy is not restated under this one.
    OfOlderVersion(Option<&'a PolicyId>),
}

impl<'a> Standing<'a> {
    fn of(case: &'a Case) -> Self {
        match (case.decision, &case.policy) {
            (None, policy) => Self::OfOlderVersion(policy.as_ref()),
            (Some(Decision::Change | Decision::Untrimmed), Some(policy)) => Self::Use(policy),
            (Some(Decision::Keep), Some(policy)) => Self::Keep(policy),
            (Some(Decision::DoesNotMatter), Some(policy)) => Self::Alike(policy),
            (Some(_), _) => Self::CannotTell,
        }
    }

    /// What the verdict column shows for a policy.
    fn mark(self, policy: &PolicyId) -> &'static str {
        match self {
            Self::Use(chosen) if chosen == policy => "use",
            Self::Keep(chosen) if chosen == policy => "keep",
            Self::Alike(chosen) if chosen == policy => "does not matter",
            Self::OfOlderVersion(Some(chosen)) if chosen == policy => "use (older rule)",
            _ => "",
        }
    }
}

/// Returns the verdict over all cases: each policy, and the cases in which to use it.
pub fn verdict(cases: &[Case]) -> String {
    let mut standings: Vec<(Standing, Vec<&Case>)> = Vec::new();
    for case in cases {
        let standing = Standing::of(case);
        match standings.iter_mut().find(|(known, _)| *known == standing) {
            Some((_, cases)) => cases.push(case),
            None => standings.push((standing, vec![case])),
        }
    }
    // Firm verdicts first, and among them those for the most cases.
    standings.sort_by_key(|(standing, cases)| match standing {
        Standing::Use(_) | Standing::Keep(_) => (0, std::cmp::Reverse(cases.len())),
        Standing::Alike(_) => (1, std::cmp::Reverse(0)),
        Standing::CannotTell => (2, std::cmp::Reverse(0)),
        Standing::OfOlderVersion(_) => (3, std::cmp::Reverse(0)),
    });
    let said = |(standing, of): &(Standing, Vec<&Case>)| {
        let at = match of.len() {
            all if all == cases.len() && all > 1 => format!("in all {all}"),
            some => format!("in {some} ({})", places(of, cases)),
        };
        match standing {
            Standing::Use(policy) => format!("use `{policy}` {at}"),
            Standing::Keep(policy) => format!("keep `{policy}` {at}"),
            Standing::Alike(baseline) => format!("no policy differs materially from `{baseline}` {at}"),
            Standing::CannotTell => format!("these runs cannot tell {at}"),
            Standing::OfOlderVersion(policy) => {
                let policy = policy.map_or_else(|| "none".to_owned(), |policy| format!("`{policy}`"));
                format!("an older version judged {at} by its own rule: {policy}")
            }
        }
    };
    let all: Vec<String> = standings.iter().map(said).collect();
    let count = figures::counted(cases.len() as u64, "case");
    format!("Of {count} (device, workload, utilization): {}.", all.join("; "))
}

/// Names cases by what distinguishes them from the others.
fn places(of: &[&Case], all: &[Case]) -> String {
    const SHOWN: usize = 4;
    let several = |differs: fn(&Case, &Case) -> bool| all.iter().any(|case| differs(case, &all[0]));
    let by_device = several(|a, b| a.device != b.device);
    let by_workload = several(|a, b| a.workload != b.workload);
    let groups: Vec<&[&Case]> =
        of.chunk_by(|a, b| a.device == b.device && a.workload == b.workload).collect();
    let name = |group: &&[&Case]| {
        let own = [(by_device, &group[0].device), (by_workload, &group[0].workload)];
        let own: Vec<&str> =
            own.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, name)| &**name).collect();
        let full: Vec<String> = group.iter().map(|case| case.utilization.to_string()).collect();
        let at = if own.is_empty() { "" } else { " " };
        format!("{}{at}at {} % full", own.join(" "), listed(&full))
    };
    let mut names: Vec<String> = groups.iter().take(SHOWN).map(name).collect();
    if groups.len() > SHOWN {
        names.push(format!("{} more", groups.len() - SHOWN));
    }
    names.join(", ")
}

/// Formats a list as `50, 70 and 90`.
fn listed(words: &[String]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// Formats the verdict of one case.
fn case_verdict(case: &Case) -> String {
    let said = match Standing::of(case) {
        Standing::OfOlderVersion(_) => format!("by the rule of an older version: {}", case.verdict),
        _ => case.verdict.clone(),
    };
    format!("At {} % full: {}", case.utilization, said.trim_end())
}

/// Lists the workloads that were run only in part because their traces are damaged.
pub fn damaged(cases: &[Case]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for case in cases {
        let note = case.cut_off.as_deref().map(|why| format!("{}: {}", case.workload, up_to(why)));
        notes.extend(note.filter(|note| !notes.contains(note)));
    }
    notes
}

fn notes(summary: &Summary) -> Vec<String> {
    let mut notes = vec!["Figures of the model, not checked on a real kernel.".to_owned()];
    notes.extend(damaged(&summary.cases));
    if summary.missing_cells > 0 {
        notes.push(format!("Partial: {} cells of the grid are missing.", summary.missing_cells));
    }
    if summary.failed_cells > 0 {
        notes.push(format!("{} cells failed and are not shown.", summary.failed_cells));
    }
    notes
}

fn rows(case: &Case) -> impl Iterator<Item = Row> {
    let standing = Standing::of(case);
    case.rows.iter().enumerate().map(move |(i, row)| Row {
        is_chosen: !standing.mark(&row.policy).is_empty() && !matches!(standing, Standing::Alike(_)),
        is_first: i == 0,
        cells: table_row(case, row, standing),
    })
}

fn table_row(case: &Case, row: &SummaryRow, standing: Standing) -> Vec<String> {
    let mut cells = vec![
        row.policy.to_string(),
        format!("{} %", case.utilization),
        standing.mark(&row.policy).to_owned(),
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

/// Returns the interval of a median; `None` if there was only one run.
fn interval(row: &SummaryRow) -> Option<(f64, f64)> {
    (row.reps > 1 && row.low_s.is_finite() && row.high_s.is_finite()).then_some((row.low_s, row.high_s))
}

/// Cases of one device and workload, in one or two runs with their names.
type Runs<'a> = &'a [(&'a str, &'a [&'a Case])];

fn charts(runs: Runs, styles: &mut Styles) -> Vec<Chart> {
    let measure = runs.first().and_then(|(_, cases)| Some(cases.first()?.measure));
    let measured = measure.map_or(String::new(), |measure| measure.to_string());
    let y = Axis { label: measured.into(), ..Axis::linear("median_s", "", "s") };
    let wa = Axis::linear("write_amplification", "write amplification", "NAND units per host unit");
    let is_single = runs.iter().all(|(_, cases)| cases.len() == 1);
    let time = |row: &SummaryRow| Some((row.median_s, interval(row)));
    let amplification = |row: &SummaryRow| Some((row.figures.get(&WRITE_AMPLIFICATION)?, None));
    let caption = "Medians over seeds and repetitions; thin lines are their confidence intervals: 95 %, or what so few runs can \
         give. Lower is better.";
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

/// Returns the policies of these runs with their names and styles. With two runs, a policy's runs are adjacent.
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

/// A figure and the interval around it.
type Estimate = Option<(f64, Option<(f64, f64)>)>;

fn lines(
    title: &str,
    y: Axis,
    caption: &str,
    runs: Runs,
    styles: &mut Styles,
    figure: &dyn Fn(&SummaryRow) -> Estimate,
) -> Chart {
    let line = |(name, style, policy, cases): (String, Style, &PolicyId, &[&Case])| {
        let mut points: Vec<Point> = Vec::new();
        for case in cases {
            let row = case.rows.iter().find(|row| row.policy == *policy);
            let x = case.utilization.percent() as f64;
            points
                .push(row.and_then(figure).map_or_else(|| gap(x), |(value, interval)| (x, value, interval)));
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
            alike: row.vs_baseline_significant == Some(false),
        }));
    }
    let ideal = runs.iter().flat_map(|(_, cases)| cases.iter()).flat_map(|case| &case.rows);
    let ideal = ideal.filter(|row| row.policy == PolicyId::IDEAL).map(|row| row.median_s).reduce(f64::min);
    let caption = "The marker is the median, the thick line its confidence interval: 95 %, or what so few runs can give. Further \
         left is better. An outline without a line: no difference from the baseline was found.";
    Chart {
        title: title.to_owned(),
        caption: caption.to_owned(),
        drawing: Drawing::Dots {
            x,
            y: Axis::linear("policy", "", ""),
            start: ideal.map_or(Start::Zero, Start::Bound),
            rows,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trimwise::compare::result::Measure;
    use trimwise::units::Utilization;

    use super::*;

    /// Invents a case of `off`, `commit` and the bound; `commit` differs from `off` by `commit_percent`.
    fn case(percent: u8, decision: Option<Decision>, policy: Option<&str>, commit_percent: f64) -> Case {
        let is_shown = commit_percent != 0.0;
        let row = |policy: &str, percent: Option<f64>| {
            let row = json!({
                "device": "sata-small", "policy": policy, "means": if policy == "ideal" { "bound" } else { "stock" },
                "reps": 4, "exact": false, "measure": "total", "median_s": 10.0, "low_s": 9.0, "high_s": 11.0,
                "vs_baseline_percent": percent, "vs_baseline_significant": percent.map(|_| is_shown || policy == "ideal"),
                "vs_ideal_percent": null, "vs_ideal_significant": null, "ledger": null,
            });
            serde_json::from_value::<SummaryRow>(row).unwrap()
        };
        Case {
            device: "sata-small".to_owned(),
            workload: "default".to_owned(),
            utilization: Utilization::of(percent),
            measure: Measure::Total,
            decision,
            policy: policy.map(Into::into),
            verdict: format!("Words about {percent}."),
            cut_off: None,
            rows: vec![row("off", None), row("commit", Some(commit_percent)), row("ideal", Some(-50.0))],
        }
    }

    #[test]
    fn the_verdict_names_the_cases_of_each_policy_and_those_where_nothing_is_told_apart() {
        use Decision::{CannotTell, Change, DoesNotMatter, Keep, Untrimmed};
        let cases = [
            case(30, Some(Keep), Some("off"), 20.0),
            case(50, Some(DoesNotMatter), Some("off"), 0.2),
            case(70, Some(CannotTell), None, 0.0),
            case(80, Some(Change), Some("commit"), -9.0),
            case(90, Some(Untrimmed), Some("commit"), 0.0),
            case(95, None, Some("commit"), -1.0),
        ];
        assert_eq!(
            verdict(&cases),
            "Of 6 cases (device, workload, utilization): use `commit` in 2 (at 80 and 90 % full); keep `off` in 1 (at 30 % \
             full); no policy differs materially from `off` in 1 (at 50 % full); these runs cannot tell in 1 (at 70 % \
             full); an older version judged in 1 (at 95 % full) by its own rule: `commit`."
        );
        assert!(verdict(&cases[3..5]).contains("use `commit` in all 2"));
        let mut two = cases.clone();
        two[5].device = "vendor2".to_owned();
        assert!(verdict(&two).contains("in 2 (sata-small at 80 and 90 % full)"), "{}", verdict(&two));
    }

    #[test]
    fn the_table_marks_one_policy_a_case_and_none_where_nothing_is_told_apart() {
        let marked = |case: &Case| -> Vec<(String, bool)> {
            let marked = rows(case).filter(|row| !row.cells[2].is_empty());
            marked.map(|row| (format!("{} {}", row.cells[0], row.cells[2]), row.is_chosen)).collect()
        };
        for (decision, policy, mark) in [
            (Some(Decision::Change), Some("commit"), Some(("commit use", true))),
            (Some(Decision::Keep), Some("off"), Some(("off keep", true))),
            (Some(Decision::DoesNotMatter), Some("off"), Some(("off does not matter", false))),
            (Some(Decision::CannotTell), None, None),
            (None, Some("commit"), Some(("commit use (older rule)", true))),
        ] {
            let expected: Vec<_> =
                mark.map(|(text, is_chosen)| (text.to_owned(), is_chosen)).into_iter().collect();
            assert_eq!(marked(&case(80, decision, policy, -9.0)), expected, "{decision:?}");
        }
    }

    #[test]
    fn a_policy_without_figures_in_a_case_has_a_gap_in_its_line() {
        let mut cases = [30, 50, 70].map(|full| case(full, Some(Decision::Change), Some("commit"), -9.0));
        cases[1].rows.retain(|row| row.policy != "commit".into());
        let cases: Vec<&Case> = cases.iter().collect();
        let charts = charts(&[("", &cases)], &mut Styles::default());
        let Drawing::Lines { panels, .. } = &charts[0].drawing else { panic!("not lines") };
        let is_gap: Vec<bool> = panels[0].series[1].points.iter().map(|point| point.1.is_nan()).collect();
        assert_eq!((&*panels[0].series[1].name, is_gap), ("commit", vec![false, true, false]));
    }
}
