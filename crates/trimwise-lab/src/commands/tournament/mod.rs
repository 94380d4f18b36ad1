//! `trimwise tournament`: prints the standings as text, JSON or HTML.

pub mod arguments;
pub mod report;

use crate::requests::tournament::{self, Case, Row, Tournament};
use trimwise::compare::judge::TIME_PERCENT;
use trimwise::failure::Failure;
use trimwise_study::caller::Caller;

use arguments::TournamentArguments;
use trimwise_cli::figures::{NONE, change, significant};
use trimwise_cli::output::{self, Destinations};
use trimwise_cli::table::{folded, laid_out, plain};

pub fn run(arguments: &TournamentArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check(&arguments.output)?;
    if let Some(out) = &arguments.out {
        destinations.expect_outside("out", out)?;
    }
    let tournament = tournament::run(&arguments.request(), caller)?;
    let html = || report::html(&tournament);
    let text = || if arguments.dry_run { dry(&tournament) } else { text(&tournament) };
    let text = destinations.deliver_with_report(&tournament, html, text)?;
    output::concluded(text, tournament.failure())
}

/// Says who would take part, and prints the rules ready to be copied.
fn dry(tournament: &Tournament) -> String {
    let own = own(tournament).unwrap_or("no own policy".to_owned());
    let Tournament { rules, cells, grid, .. } = tournament;
    let grid: String = grid.lines().map(|line| plain(line) + "\n").collect();
    format!("{own}\n{}\n  {}\n\n{grid}", plain(rules), plain(cells))
}

/// Lists the user's own policies; `None` if there are none.
fn own(tournament: &Tournament) -> Option<String> {
    let own: Vec<String> = tournament.own.iter().map(|own| plain(&own.name)).collect();
    (!own.is_empty()).then(|| own.join(", "))
}

const HEADER: [&str; 7] = ["policy", "rank", "vs off", "95 %", "worst", "won", "flash"];

/// Returns a row of the table, the same for text and page.
fn cells(row: &Row) -> [String; 7] {
    let none = || NONE.to_owned();
    let percent = |ratio: f64| change(ratio - 1.0);
    [
        plain(&row.policy.to_string()),
        match row.rank {
            None => "bound".to_owned(),
            Some((best, worst)) if best == worst => best.to_string(),
            Some((best, worst)) => format!("{best}-{worst}"),
        },
        percent(row.time),
        row.interval.map_or_else(none, |(low, high)| {
            format!("{} to {}", percent(low).trim_end_matches(" %"), percent(high))
        }),
        row.worst.map_or_else(none, percent),
        row.won.map_or_else(none, |won| won.to_string()),
        significant(row.flash),
    ]
}

fn rows(tournament: &Tournament) -> Vec<[String; 7]> {
    tournament.standings.iter().chain(&tournament.bounds).map(cells).collect()
}

/// Formats a case's name.
fn named(case: &Case) -> String {
    format!("{}, {}, {} % full", case.device, case.workload, case.utilization)
}

/// Sums up the table in a sentence or two.
fn verdict(tournament: &Tournament) -> String {
    if tournament.cases.is_empty() {
        return format!(
            "Nothing was run. Policies in the folder: {}.",
            own(tournament).unwrap_or("none".to_owned())
        );
    }
    let first: Vec<&Row> =
        tournament.standings.iter().filter(|row| row.rank.is_some_and(|(best, _)| best == 1)).collect();
    let names: Vec<String> =
        first.iter().map(|row| format!("`{}`", plain(&row.policy.to_string()))).collect();
    let mut text = match &names[..] {
        [] => return "No policy has a place.".to_owned(),
        [one] => {
            format!("{one} is first: over all cells it takes {} of the time of `off`.", part(first[0].time))
        }
        [some @ .., last] => {
            format!(
                "{} and {last} share the first place: these cells do not tell them apart.",
                some.join(", ")
            )
        }
    };
    let worst = first[0].worst_case.and_then(|case| tournament.cases.get(case)).zip(first[0].worst);
    let is_shown = |ratio: f64| change(ratio - 1.0) != change(0.0);
    if let Some((case, ratio)) = worst.filter(|(_, ratio)| is_shown(*ratio)) {
        text += &format!(
            " `{}` is furthest behind on {}: {} compared with the best there.",
            plain(&first[0].policy.to_string()),
            named(case),
            change(ratio - 1.0)
        );
    }
    text
}

fn part(ratio: f64) -> String {
    format!("{} %", significant(ratio * 100.0))
}

/// Explains the columns.
fn legend() -> String {
    format!(
        "vs off: time compared with `off`, as the geometric mean over the cells, and its 95 % interval (paired bootstrap \
         over drives and workloads). rank: such as 2-4 if the cells do not tell policies apart (each pair by itself, at \
         95 %, by more than {TIME_PERCENT} %). worst: distance to the best of the field in the cell where that is \
         largest. won: cells in which none was faster. flash: flash written compared with `off`."
    )
}

fn text(tournament: &Tournament) -> String {
    let Tournament { trimwise, rules, cells, disqualified, made_by, command, .. } = tournament;
    let (rules, cells) = (plain(rules), plain(cells));
    let mut text = format!("{rules}\n  {cells}\n\n{}\n", laid_out(&HEADER, &rows(tournament)));
    for out in disqualified {
        text += &folded(&plain(&format!("Disqualified: {}: {}", out.policy, out.reason)), 0);
    }
    text += &folded(&verdict(tournament), 0);
    text += &folded(&legend(), 0);
    text += &folded(&made_by.line(), 0);
    text += &format!("trimwise {trimwise}; to repeat it:\n  {command}\n");
    text
}
