//! The text of `advise`: the advice, what other choices cost, the response surface, and the steps that are left.

use trimwise::advise::{Difference, Gated, Place};
use trimwise::compare::means::Means;
use trimwise::compare::summary::Summary;
use trimwise::policy::PolicyId;

use trimwise_study::advise::hunt::{NEARBY_MAX, Searched, Tried};
use trimwise_study::advise::{Advice, Changed, Nearby};
use trimwise_study::compare::Comparison;
use trimwise_study::compare::check::longer;

use crate::commands::compare::table;
use crate::conclusion;
use crate::figures;
use crate::table::{bold, export, folded, titled};

/// Marks a cell where nothing ran.
const NOT_RUN: &str = "\u{b7}";

/// In runs shorter than this, the number of commits is a matter of chance.
const SHORT_NS: u64 = 30_000_000_000;

/// Renders the conclusion; `details` adds what explains it.
pub fn render(advice: &Advice, details: bool) -> String {
    let comparison = advice.comparison.as_ref().filter(|_| details);
    let mut text = comparison.and_then(|c| c.here.as_ref()).map_or_else(String::new, table::here);
    if details {
        text += &format!("{}\n\n", bold(&title(advice)));
    }
    if let Some(comparison) = advice.comparison.as_ref().filter(|_| !details) {
        let incomplete = table::incomplete(&Summary::of(&comparison.cells));
        text.extend(incomplete.iter().map(|note| bold(folded(note, 0).trim_end()) + "\n"));
    }
    text += &conclusion::text(&advice.conclusion);
    text += &finished(advice);
    if details {
        text += &explained(advice);
    } else {
        text += "\n--details: what was tried, and what other choices cost.\n";
    }
    text + &footer(advice, details)
}

/// Renders the runs of the usual policies that finished before the search was stopped.
fn finished(advice: &Advice) -> String {
    let Some(comparison) = advice.comparison.as_ref().filter(|_| !advice.is_decided() && advice.partial)
    else {
        return String::new();
    };
    let summary = Summary::of(&comparison.cells);
    let Some(device) = summary.devices.first() else { return String::new() };
    let (header, rows) = table::columns(device, comparison, summary.measure, &table::TABLE);
    let of = comparison.settings.reps;
    let title = format!("Incomplete: what finished of {of} runs each");
    let text = format!("\n{}", titled(&title, &header, &rows));
    export::replace(|| table::for_programs(device, comparison, summary.measure, &table::TABLE));
    text
}

fn explained(advice: &Advice) -> String {
    let comparison = advice.comparison.as_ref();
    let mut text = String::new();
    if let Some(comparison) = comparison {
        // Without the search, the usual policies are not compared either.
        let is_compared = advice.search.runs.compared > 0;
        text +=
            &if is_compared { format!("\n{}", folded(&comparison.verdict.text, 0)) } else { String::new() };
        if is_compared && !comparison.verdict.why.is_empty() {
            text += &folded(&format!("Why: {}", comparison.verdict.why), 0);
        }
    }
    for note in notes(advice) {
        text += &format!("\n{}", folded(&note, 0));
    }
    if let Some(comparison) = comparison
        && !advice.costs.is_empty()
    {
        text += &format!("\n{}", costs(advice, comparison));
    }
    text += &checked(comparison);
    for gated in Gated::ALL {
        text += &surface(&advice.search, gated);
    }
    text += &others(&advice.search);
    text + &format!("\n{}\n", folded(&counts(&advice.search), 0))
}

pub fn title(advice: &Advice) -> String {
    let settings = &advice.settings;
    let device = advice.comparison.as_ref().and_then(|c| c.cells.first()).map(|cell| cell.device.as_str());
    let on = device.map_or(String::new(), |device| format!(" on {device}"));
    let full = settings.utilization.map_or(String::new(), |u| format!(", {u} % full"));
    format!("Advice for {}{}{on}{full}", settings.workload, table::over(settings))
}

/// Remarks to read with the figures.
pub fn notes(advice: &Advice) -> Vec<String> {
    let mut notes = Vec::new();
    let policy = advice.conclusion.policy.as_ref().filter(|_| advice.is_decided());
    if let (Some(policy), Some(means)) = (policy, advice.means) {
        let is_modelled = advice.settings.days.is_some();
        notes.push(match means {
            Means::Stock => format!("`{policy}` needs no daemon: a stock kernel does it."),
            Means::Trimwised if advice.settings.kernel.is_some() => {
                format!("`{policy}`: this is trimwised itself, which ran in the guest.")
            }
            Means::Trimwised if is_modelled => format!(
                "`{policy}`: these are trimwised's own decisions, on the modelled file system. What its helper processes \
                 and maps cost is assumed."
            ),
            Means::Trimwised => format!(
                "`{policy}` needs trimwised, which follows it by remounting, at most once in ten minutes; the model does \
                 so at once. `--days 7` runs trimwised itself."
            ),
            _ => format!("`{policy}`: {}.", means.words()),
        });
    }
    if advice.search.run_ns < SHORT_NS && advice.conclusion.policy.is_some() {
        notes.push(format!(
            "A run takes only {} of virtual time, and commits come every 5 s: a longer workload shows more.",
            figures::time(advice.search.run_ns as f64 / 1e9)
        ));
    }
    if let Some(Changed { policy, time, .. }) = advice.changed_kernel.as_ref().filter(|_| advice.is_decided())
    {
        notes.push(match time.is_told_apart {
            true if time.percent < 0.0 => format!(
                "A kernel that followed `{policy}` would take {} (interval {}); no stock kernel does.",
                longer(time.percent / 100.0),
                interval(time)
            ),
            _ if advice.settings.days.is_some() => {
                format!("A kernel that followed `{policy}` itself would gain nothing over this.")
            }
            _ => format!(
                "A kernel with a TRIM queue of several workers (`{policy}`) would gain nothing over this."
            ),
        });
    }
    notes.extend(nearby(&advice.nearby, advice.conclusion.policy.as_ref()));
    notes.extend(advice.nearby_unfit_percent.map(unfit));
    if let Some(comparison) = &advice.comparison {
        let summary = Summary::of(&comparison.cells);
        notes.extend(table::notes(comparison, &summary));
    }
    notes
}

/// Describes how the choice fares on a fuller or emptier file system.
fn nearby(nearby: &[Nearby], policy: Option<&PolicyId>) -> Option<String> {
    let policy = policy?;
    if nearby.is_empty() {
        return None;
    }
    let at = |near: &Nearby| {
        let others: Vec<String> = near
            .others
            .iter()
            .map(|(other, percent)| format!("`{other}` takes {}", longer(percent / 100.0)))
            .collect();
        format!("at {} %, {}", near.utilization, others.join(" and "))
    };
    let all: Vec<String> = nearby.iter().map(at).collect();
    Some(format!("With `{policy}` at other fullness (three runs each): {}.", all.join("; ")))
}

/// Says why the choice was not tried on a fuller file system.
fn unfit(percent: u64) -> String {
    let why = match percent > NEARBY_MAX {
        true => format!("a file system is filled to {NEARBY_MAX} % at most"),
        false => "the workload does not fit on the drive then".to_owned(),
    };
    format!("Not tried at {percent} %: {why}.")
}

fn changed(d: &Difference) -> String {
    figures::change(d.percent / 100.0)
}

fn interval(d: &Difference) -> String {
    if !(d.low_percent.is_finite() && d.high_percent.is_finite()) {
        return "one run".to_owned();
    }
    format!("{} to {}", figures::change(d.low_percent / 100.0), figures::change(d.high_percent / 100.0))
}

fn costs(advice: &Advice, comparison: &Comparison) -> String {
    let (header, rows) = cost_rows(advice, comparison);
    let table = titled("The cost of another choice", &header, &rows);
    format!("{table}\n{}", folded(&cost_caption(advice), 0))
}

/// Returns the header and rows of the cost table.
pub fn cost_rows(advice: &Advice, comparison: &Comparison) -> ([String; 6], Vec<Vec<String>>) {
    let header =
        ["policy", &comparison.settings.judge, "longer", "interval", "wear", "interval"].map(str::to_owned);
    let difference = |d: Option<&Difference>| match d {
        None => [figures::NONE.to_owned(), figures::NONE.to_owned()],
        Some(d) if d.is_told_apart => [changed(d), interval(d)],
        Some(d) => ["~".to_owned(), interval(d)],
    };
    let best = comparison.summary.iter().find(|row| Some(&row.policy) == advice.conclusion.policy.as_ref());
    let mut rows: Vec<Vec<String>> = Vec::new();
    if let Some(best) = best {
        let mut row = vec![best.policy.to_string(), figures::time(best.median_s)];
        row.extend(std::iter::repeat_n(String::new(), 4));
        rows.push(row);
    }
    for cost in &advice.costs {
        let mut row = vec![cost.policy.to_string(), figures::time(cost.median_s)];
        row.extend(difference(Some(&cost.time)));
        row.extend(difference(cost.wear.as_ref()));
        rows.push(row);
    }
    (header, rows)
}

/// Explains how to read the cost table.
pub fn cost_caption(advice: &Advice) -> String {
    let confidence = advice.costs.first().map_or(0.0, |cost| cost.time.confidence_percent.floor());
    // The footer has the seed of the search.
    let seed = advice.comparison.as_ref().map_or(advice.seed, |comparison| comparison.seed);
    let seed = format!("with seed {seed}, which the search did not use");
    if confidence == 0.0 {
        return format!(
            "Compared with the first row: how much longer, and how much more the flash wears. ~: one run of each cannot \
             tell policies apart. One run each, {seed}."
        );
    }
    format!(
        "Compared with the first row: how much longer, and how much more the flash wears, each with its {confidence} % \
         interval. ~: cannot be told apart by a test at 5 %, or too little to matter, also where the interval is on one \
         side of zero. {} runs each, {seed}.",
        advice.settings.reps
    )
}

/// Renders the compared policies, in the model and on the real kernel; empty without a check.
fn checked(comparison: Option<&Comparison>) -> String {
    let Some((comparison, kernel)) = comparison.and_then(|c| Some((c, c.check.as_ref()?.kernel.as_ref()?)))
    else {
        return String::new();
    };
    let summary = Summary::of(&comparison.cells);
    let Some(device) = summary.devices.first() else { return String::new() };
    let (header, rows) = table::columns(device, comparison, summary.measure, &table::TABLE);
    let title = format!("Checked on the {} of Linux {}", kernel.file_system, kernel.title());
    let text = format!("\n{}", titled(&title, &header, &rows));
    export::replace(|| table::for_programs(device, comparison, summary.measure, &table::TABLE));
    text
}

/// Renders the response surface, LOW x HIGH: how much longer each run took than the best.
fn surface(searched: &Searched, gated: Gated) -> String {
    let (header, rows) = watermarks(searched, gated);
    if rows.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(low, row)| std::iter::once(low).chain(row.into_iter().map(|cell| cell.text)).collect())
        .collect();
    format!("\n{}", titled(&surface_title(searched, gated), &header, &rows))
}

pub fn surface_title(searched: &Searched, gated: Gated) -> String {
    let is_here = |tried: &&Tried| matches!(tried.place, Place::Watermarks { .. });
    let tried = searched.candidates.iter().find(is_here);
    let daemon = if tried.is_some_and(|tried| tried.policy.is_daemon()) { "trimwised:" } else { "" };
    format!("{daemon}set:LOW:HIGH{}, percent longer than the best", gated.terms())
}

/// A cell of a response surface.
pub struct SurfaceCell {
    pub text: String,
    /// How much longer it took than the best; `None` if it did not run.
    pub excess_percent: Option<f64>,
}

/// Returns a surface's header, and its rows with their low watermarks. Leaves out watermarks at which nothing ran.
pub fn watermarks(searched: &Searched, gated: Gated) -> (Vec<String>, Vec<(String, Vec<SurfaceCell>)>) {
    let at = |low: u64, high: u64| {
        searched
            .candidates
            .iter()
            .find(|tried| tried.place == Place::Watermarks { gated, low_percent: low, high_percent: high })
    };
    let axis = &searched.watermarks_percent;
    let lows: Vec<u64> = axis.iter().copied().filter(|&l| axis.iter().any(|&h| at(l, h).is_some())).collect();
    let highs: Vec<u64> =
        axis.iter().copied().filter(|&h| axis.iter().any(|&l| at(l, h).is_some())).collect();
    let header =
        std::iter::once("LOW \\ HIGH".to_owned()).chain(highs.iter().map(|high| format!("{high} %")));
    let cell = |low: u64, high: u64| match at(low, high) {
        None if low > high => SurfaceCell { text: String::new(), excess_percent: None },
        None => SurfaceCell { text: NOT_RUN.to_owned(), excess_percent: None },
        Some(tried) => SurfaceCell { text: excess(tried), excess_percent: tried.excess_percent },
    };
    let row = |&low: &u64| (format!("{low} %"), highs.iter().map(|&high| cell(low, high)).collect());
    (header.collect(), lows.iter().map(row).collect())
}

/// Formats the excess, such as `+1.2`, with the number of runs if there are several.
fn excess(tried: &Tried) -> String {
    let percent = tried.excess_percent.map_or(figures::NONE.to_owned(), |percent| {
        figures::change(percent / 100.0).trim_end_matches(" %").to_owned()
    });
    match (tried.reps, &tried.same_as) {
        (_, Some(_)) => format!("{percent}="),
        (1, None) => percent,
        (reps, None) => format!("{percent} x{reps}"),
    }
}

/// Headings of the table of candidates that have no watermarks.
pub const OTHERS: [&str; 5] = ["policy", "applied by", "runs", "longer than the best", "same run as"];

fn others(searched: &Searched) -> String {
    let rows = other_rows(searched);
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", titled("Other candidates", &OTHERS, &rows))
}

/// Returns a row for each candidate that has no watermarks.
pub fn other_rows(searched: &Searched) -> Vec<Vec<String>> {
    let is_other = |tried: &&Tried| !matches!(tried.place, Place::Watermarks { .. });
    let row = |tried: &Tried| {
        vec![
            tried.policy.to_string(),
            tried.means.words().to_owned(),
            tried.reps.to_string(),
            tried.excess_percent.map_or(figures::NONE.to_owned(), |p| figures::change(p / 100.0)),
            tried.same_as.as_ref().map_or(String::new(), ToString::to_string),
        ]
    };
    searched.candidates.iter().filter(is_other).map(row).collect()
}

/// Says how much was tried, and what was left out and why.
pub fn counts(searched: &Searched) -> String {
    let runs = &searched.runs;
    let mut text = format!(
        "{} candidates, {} runs to search them, {} to compare the best, {} at other fullness; running each 8 times would \
         take {}. xN: runs behind a figure, if more than one; =: its first run was identical to another candidate's; \
         {NOT_RUN}: not run.",
        runs.candidates,
        figures::grouped(runs.searched.into()),
        figures::grouped(runs.compared.into()),
        figures::grouped(runs.nearby.into()),
        figures::grouped(runs.exhaustive.into()),
    );
    if !searched.left_out.is_empty() {
        let mut reasons: Vec<&str> = searched.left_out.iter().map(|left| &*left.reason).collect();
        reasons.dedup();
        for reason in reasons {
            let names: Vec<String> = searched
                .left_out
                .iter()
                .filter(|left| left.reason == reason)
                .map(|left| format!("`{}`", left.policy))
                .collect();
            text += &format!(" Not tried: {} ({reason}).", names.join(", "));
        }
    }
    text
}

fn footer(advice: &Advice, details: bool) -> String {
    let settings = &advice.settings;
    let host = if details { table::modelled_host(settings) } else { String::new() };
    host + &format!(
        "trimwise {}, seed {}; repeat with:\n  {}\n",
        advice.trimwise, advice.seed, settings.command
    )
}
