//! Debian's PostMark 1.53 and ours give the same reports for the same configuration files.
//!
//! The reports are compared character for character. Times are not masked: for each of postmark's reports, the test
//! searches for phase durations with which ours is the same text. So every count, total, layout and rounding rule must
//! agree, however long the runs took.

use trimwise::units::SimTime;
use trimwise::workload::postmark::{Outcome, PhaseTimes, PostmarkConfig, ReportFormat, report, run};
use trimwise_linux::block_on;
use trimwise_testing::{directory, open, program};

use crate::postmark::{Draws, EDGES, postmark, random_settings};

const RANDOM_CONFIGURATIONS: usize = 40;

/// Splits off Postmark's reports, one for each run: the text after the last phase, or the "out of files!" message.
fn reports_of(output: &str) -> Vec<String> {
    output
        .split("Creating files...")
        .skip(1)
        .map(|text| match text.find("out of files!") {
            Some(begin) => {
                let end = text.find("Deleting files...").expect("postmark deletes what is left");
                text[begin..end].to_owned()
            }
            None => {
                let (_, mut report) = text.split_once("Deleting files...Done\n").expect("postmark finishes");
                report = report.strip_prefix("Deleting subdirectories...Done\n").unwrap_or(report);
                report.strip_suffix("Creating subdirectories...Done\n").unwrap_or(report).to_owned()
            }
        })
        .collect()
}

fn ours(config: &str) -> Vec<(ReportFormat, Outcome)> {
    let work = directory(false);
    let target = open(&work);
    let runs = PostmarkConfig::parse(config, "side-by-side").unwrap().runs;
    let outcomes = runs.iter().map(|planned| {
        let config = target.plan(&planned.config).unwrap();
        let outcome = block_on(run(&target, &config, &mut |_| {})).unwrap().unwrap();
        (planned.config.report, outcome)
    });
    let outcomes = outcomes.collect();
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0, "something is left behind");
    outcomes
}

fn text(format: ReportFormat, outcome: &Outcome) -> String {
    match format {
        ReportFormat::Verbose => report::verbose(outcome),
        ReportFormat::Terse => report::terse(outcome),
    }
}

/// Returns true if some phase durations of whole seconds make our text equal to `theirs`.
fn is_same_report(theirs: &str, format: ReportFormat, outcome: &Outcome) -> bool {
    let total_max: u64 = theirs
        .split(|c: char| !c.is_ascii_digit())
        .find(|word| !word.is_empty())
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    let at = |seconds: u64| SimTime(seconds * 1_000_000_000);
    let mut candidate = outcome.clone();
    (0..=total_max).any(|created| {
        (created..=total_max).any(|transacted| {
            (transacted..=total_max).any(|end| {
                candidate.times = PhaseTimes {
                    begin: at(0),
                    created: at(created),
                    transacted: at(transacted),
                    end: at(end),
                };
                text(format, &candidate) == theirs
            })
        })
    })
}

/// Compares one configuration; returns whether postmark ran out of files.
fn compare(settings: &str) -> bool {
    let config = format!("{settings}run\nset report terse\nrun\nquit\n");
    let theirs = reports_of(&postmark(&["postmark"], &config));
    let ours = ours(&config);
    assert_eq!((theirs.len(), ours.len()), (2, 2), "{config}");
    for (theirs, (format, outcome)) in theirs.iter().zip(&ours) {
        assert!(
            is_same_report(theirs, *format, outcome),
            "{config}\npostmark:\n{theirs}\nours, apart from the seconds:\n{}",
            text(*format, outcome)
        );
    }
    ours[0].1.out_of_files
}

#[test]
fn postmark_and_ours_report_the_same() {
    if program("postmark").is_none() {
        return;
    }
    let mut draws = Draws(1997);
    let mut settings: Vec<String> = EDGES.iter().map(|&edge| edge.to_owned()).collect();
    settings.extend((0..RANDOM_CONFIGURATIONS).map(|_| random_settings(&mut draws)));
    let out_of_files = settings.iter().filter(|settings| compare(settings)).count();
    assert!((5..settings.len() - 20).contains(&out_of_files), "{out_of_files} runs are not a good mix");
}

/// The comparison can fail: a different seed, size or count each give a different report.
#[test]
fn other_runs_give_other_reports() {
    let base = "set number 40\nset transactions 100\nset size 500 9000\n";
    let outcome = |more: &str| ours(&format!("{base}{more}run\n")).remove(0).1;
    let theirs = report::verbose(&outcome(""));
    assert!(is_same_report(&theirs, ReportFormat::Verbose, &outcome("")));
    for more in ["set seed 43\n", "set size 500 9100\n", "set transactions 101\n"] {
        assert!(!is_same_report(&theirs, ReportFormat::Verbose, &outcome(more)), "{more}");
    }
}
