//! Conclusions and texts of invented runs.

use clap::Parser as _;
use trimwise::advise::{Job, Observation, Search, Space};
use trimwise::compare::days::DaysFigures;
use trimwise::compare::means::Means;
use trimwise::compare::result::Cell;
use trimwise::policy::{PolicyId, PolicySpec, Trimmer};
use trimwise::units::{SimDuration, Utilization};
use trimwise_study::advise::{Advice, hunt};
use trimwise_study::compare::Settings;
use trimwise_study::conclusion::{Conclusion, Decision};

use super::*;
use crate::commands::compare::tests::cells::{cell, spread};
use crate::commands::compare::tests::table::comparison;
use crate::commands::{Command, CommandLine};

/// Maps a policy's name to the seconds that its run takes.
type Seconds = fn(&str) -> f64;

fn made(rep: u32, policy: &str, seconds: Seconds) -> Cell {
    let cell = cell("sata-small", policy, rep, seconds(policy) * spread(rep, true));
    // A policy that is as fast as `off` also wears the flash as `off` does.
    if seconds(policy) == seconds("off") { like_off(cell) } else { cell }
}

/// Runs the search and the comparison with these times.
pub fn advice(seconds: Seconds) -> Advice {
    advice_among(&Space::new(Utilization::default(), SimDuration::from_secs(100)), None, seconds)
}

/// Like [`advice`], over a week.
fn advice_over_days(seconds: Seconds) -> Advice {
    const DAYS: u32 = 7;
    let space = Space::over_days(Utilization::default(), SimDuration::from_secs(86_400) * u64::from(DAYS));
    advice_among(&space, Some(DAYS), seconds)
}

/// Spreads a cell over a week, in which sweeps and slices trimmed something.
fn over_days(mut cell: Cell) -> Cell {
    let trims = u64::from(cell.policy != "off".into()) * 1000;
    cell.device_stats.iter_mut().for_each(|device| device.trim_commands = trims);
    let elapsed_ns = 7 * 86_400_000_000_000;
    Cell { days: Some(DaysFigures { elapsed_ns, slices: trims, ..DaysFigures::default() }), ..cell }
}

fn advice_among(space: &Space, days: Option<u32>, seconds: Seconds) -> Advice {
    let mut search = space.search();
    let observed = |job: &Job| {
        let policy = space.applicable[job.candidate].policy.to_string();
        let observation = Observation::of(&made(job.rep, &policy, seconds));
        // Two invented runs are identical only if their policy is.
        let identity = [job.candidate as u64, 0, 0, 0];
        (*job, Observation { identity, ..observation })
    };
    let ran = search.run(|jobs, _| (jobs.iter().map(observed).collect(), None::<()>));
    assert_eq!(ran, Ok(()));
    let shortlist = space.shortlist(&search);
    let policies = shortlist.iter().chain(&[Trimmer::Kernel(PolicySpec::IDEAL)]).map(ToString::to_string);
    let cells =
        policies.flat_map(|policy| (0..8).map(move |rep| made(rep, &policy, seconds))).collect::<Vec<_>>();
    let mut comparison = comparison(
        cells.into_iter().map(|cell| if days.is_some() { over_days(cell) } else { cell }).collect(),
    );
    let searched = hunt::searched(
        space,
        &search,
        &Search::new(Vec::new(), trimwise::advise::Rounds::BOUND),
        100_000_000_000,
    );
    let settings =
        Settings { command: "trimwise advise".to_owned(), reps: 8, days, ..comparison.settings.clone() };
    let settings = Settings { day: days.map(|_| "office".to_owned()), ..settings };
    comparison.settings = settings.clone();
    comparison.conclude();
    let conclusion = comparison.conclusion.clone().unwrap();
    let mut advice =
        Advice { trimwise: "0.0.0-test".into(), ..Advice::new(settings, 7, searched, conclusion) };
    advice.search.runs.compared = comparison.cells.len() as u32;
    advice.add_costs(&comparison, space);
    advice.comparison = Some(comparison);
    advice
}

/// Times under which a gate at 75 and 85 % is best.
pub fn gated(policy: &str) -> f64 {
    let watermarks = policy.strip_prefix("set:").and_then(|rest| {
        let (low, high) = rest.split_once('+').map_or(rest, |(marks, _)| marks).split_once(':')?;
        Some((low.parse::<f64>().ok()?, high.parse::<f64>().ok()?))
    });
    match (policy, watermarks) {
        ("ideal", _) => 79.0,
        ("off", _) => 120.0,
        (_, None) => 100.0,
        (_, Some((low, high))) => {
            let behind = if policy.contains('+') { 4.0 } else { 0.0 };
            80.0 + behind + ((low - 75.0).abs() + (high - 85.0).abs()) * 0.3
        }
    }
}

#[test]
fn a_policy_of_the_daemon_is_advised_with_its_gain_and_the_cost_of_others() {
    let advice = advice(gated);
    assert_eq!(decided(&advice), (Decision::Change, Some("set:75:85".into()), Some(Means::Trimwised)));
    let worth = advice.conclusion.worth.unwrap();
    let [low, high] = worth.time_saved_percent_interval.unwrap();
    assert!((worth.time_saved_percent - 33.3).abs() < 3.0 && low > 25.0 && high < 42.0, "{worth:?}");
    let cost = advice.costs.iter().find(|cost| cost.policy == "commit".into()).unwrap();
    assert!((cost.time.percent - 25.0).abs() < 3.0 && cost.time.is_told_apart, "{cost:?}");
    assert!(
        advice.costs.iter().all(|cost| cost.policy != "ideal".into() && cost.policy != "set:75:85".into())
    );
    assert!(advice.search.runs.searched < advice.search.runs.exhaustive / 5);
    let text = text::render(&advice, true);
    assert!(text.lines().all(|line| line.chars().count() <= 100 || line.starts_with("    ")), "{text}");
    insta::assert_snapshot!(text);
    let page = report::html(&advice).unwrap();
    assert!(page.contains("rgba(200,80,0,0.00)") && page.contains("The cost of another choice"), "{page}");
}

#[test]
fn over_days_the_timer_is_advised_with_what_trimwised_itself_would_cost() {
    let advice = advice_over_days(|policy| match policy {
        "ideal" => 900.0,
        "batch:1w" => 1000.0,
        "batch:1d" => 1060.0,
        "trimwised" => 1040.0,
        "off" => 1500.0,
        _ => 1200.0,
    });
    assert_eq!(decided(&advice), (Decision::Change, Some("batch:1w".into()), Some(Means::Stock)));
    let text = text::render(&advice, true);
    assert!(!text.contains("every commit") && !text.contains("too short"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn over_days_trimwised_is_advised_as_it_decides() {
    let advice = advice_over_days(|policy| if policy.starts_with("trimwised:set:") { 800.0 } else { 1000.0 });
    assert_eq!(advice.means, Some(Means::Trimwised));
    let text = text::render(&advice, true);
    assert!(text.contains("these are trimwised's own decisions") && !text.contains("every commit"), "{text}");
    assert!(text.contains("\ntrimwised:set:LOW:HIGH+lazy:1:1+reuse+merge, percent longer"), "{text}");
    assert!(report::html(&advice).unwrap().contains("trimwised:set:LOW:HIGH"));
}

#[test]
fn what_makes_no_difference_is_said_and_nothing_is_to_be_applied() {
    let advice = advice(|_| 100.0);
    assert_eq!(decided(&advice), (Decision::DoesNotMatter, Some(PolicyId::OFF), Some(Means::Stock)));
    assert!(advice.conclusion.steps.is_empty());
    let text = text::render(&advice, false);
    assert!(
        text.starts_with("It does not matter: nothing available on a host differs materially from `off`."),
        "{text}"
    );
}

fn decided(advice: &Advice) -> (Decision, Option<PolicyId>, Option<Means>) {
    let Conclusion { decision, policy, .. } = &advice.conclusion;
    (*decision, policy.clone(), advice.means)
}

/// If runs cannot tell two policies apart, a lower median is no reason to install a daemon.
#[test]
fn of_policies_alike_the_one_that_needs_no_daemon_is_advised() {
    let advice = advice_over_days(|policy| match policy {
        "trimwised" => 799.0,
        "batch:1w" => 800.0,
        _ => 1000.0,
    });
    assert_eq!(decided(&advice), (Decision::Change, Some("batch:1w".into()), Some(Means::Stock)));
    let comparison = advice.comparison.as_ref().unwrap();
    assert_eq!(comparison.verdict.policy, advice.conclusion.policy, "the verdict explains this choice");
}

/// Intervals that leave room for a large difference do not prove that there is none.
#[test]
fn runs_that_cannot_tell_give_no_advice() {
    let of = |policy: &str, shift: u32, reps: u32, spread: f64| -> Vec<Cell> {
        let seconds = move |rep: u32| 100.0 * (1.0 + spread * f64::from((rep + shift) * 7 % 5));
        (0..reps).map(|rep| cell("sata-small", policy, rep, seconds(rep))).map(like_off).collect()
    };
    let concluded = |reps, spread| {
        let mut comparison = comparison([of("off", 0, reps, spread), of("commit", 1, reps, spread)].concat());
        comparison.conclude();
        comparison.conclusion.unwrap()
    };
    let wide = concluded(8, 0.08);
    assert_eq!((wide.decision, &wide.policy), (Decision::CannotTell, &Some(PolicyId::OFF)));
    assert!(wide.head[1].starts_with("`commit`: between ") && wide.steps.is_empty(), "{:?}", wide.head);
    let single = concluded(1, 0.0);
    assert_eq!(single.decision, Decision::CannotTell);
    assert_eq!(single.head[1], "`commit`: one run of each gives no confidence interval.");
    assert_eq!(concluded(8, 0.001).decision, Decision::DoesNotMatter);
}

/// Gives the cell the wear of `off`.
fn like_off(of: Cell) -> Cell {
    Cell { device_stats: cell("sata-small", "off", of.rep, 100.0).device_stats, ..of }
}

#[test]
fn a_mount_option_needs_no_daemon() {
    let advice = advice(|policy| if policy == "commit" { 50.0 } else { 100.0 });
    assert_eq!(decided(&advice), (Decision::Change, Some("commit".into()), Some(Means::Stock)));
    assert!(text::render(&advice, false).starts_with("Use `commit` rather than `off`."));
}

#[test]
fn the_json_has_the_keys_that_others_read_in_their_order() {
    let json = serde_json::to_value(advice(gated)).unwrap();
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        keys(&json),
        "trimwise seed settings partial conclusion means costs changed_kernel nearby nearby_unfit_percent search comparison"
    );
    assert_eq!(keys(&json["search"]), "runs candidates left_out run_ns watermarks_percent");
    assert_eq!(keys(&json["search"]["runs"]), "candidates searched compared nearby exhaustive");
    let best = &json["search"]["candidates"][0];
    assert_eq!(keys(best), "policy means place reps same_as excess_percent");
    assert_eq!((&best["policy"], &best["reps"]), (&"set:75:85".into(), &8.into()));
    assert_eq!(best["place"]["kind"], "watermarks");
    assert_eq!(keys(&json["costs"][0]), "policy median_s time wear");
}

#[test]
fn the_command_repeats_what_was_asked_for() {
    let line = "trimwise advise -w lsm --device sata-small --memory 512 --judge p99:fsync --seed 5 --days 3";
    let Command::Advise(arguments) = CommandLine::try_parse_from(line.split(' ')).unwrap().command else {
        panic!()
    };
    let settings = comparison(vec![made(0, "off", gated)]).settings;
    let settings = Settings { days: Some(3), day: Some("flat".to_owned()), ..settings };
    assert_eq!(
        trimwise_study::advise::command(&arguments.request(), &settings),
        "trimwise advise --workload lsm --device sata-small --utilization 80 --memory 512 --days 3 --day flat \
         --judge p99:fsync --reps 8 --seed 5"
    );
}

#[test]
fn regression_the_table_names_its_own_seed_and_a_fullness_that_was_not_tried() {
    let mut one = advice(gated);
    let words = |advice: &Advice| text::render(advice, true).split_whitespace().collect::<Vec<_>>().join(" ");
    one.comparison.as_mut().unwrap().seed = 8;
    one.nearby_unfit_percent = Some(90);
    let said = words(&one);
    assert!(said.contains("8 runs each, with seed 8, which the search did not use."), "{said}");
    assert!(said.contains("also where the interval is on one side of zero"), "{said}");
    assert!(said.contains("Not tried at 90 %: the workload does not fit on the drive then."), "{said}");
    assert!(said.contains("seed 7; repeat with:"), "{said}");
    one.costs.iter_mut().for_each(|cost| cost.time.confidence_percent = 0.0);
    one.nearby_unfit_percent = Some(100);
    let said = words(&one);
    assert!(said.contains("One run each, with seed 8, which the search did not use."), "{said}");
    assert!(said.contains("Not tried at 100 %: a file system is filled to 95 % at most."), "{said}");
}

#[test]
fn regression_what_finished_before_an_interrupt_is_shown_as_incomplete() {
    let mut stopped = advice(gated);
    stopped.partial = true;
    stopped.search.runs.compared = 0;
    stopped.conclusion = Conclusion::cannot_tell(None, "stopped".to_owned(), "Let it finish.");
    for details in [false, true] {
        let shown = text::render(&stopped, details);
        let table = shown.split_once("Incomplete: what finished of 8 runs each").map(|(_, table)| table);
        assert!(table.is_some_and(|table| table.contains("\ncommit ")), "{shown}");
        assert!(!shown.contains("Use `"), "no verdict: {shown}");
    }
    stopped.partial = false;
    assert!(!text::render(&stopped, false).contains("Incomplete"));
}
