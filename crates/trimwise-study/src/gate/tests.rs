use std::path::Path;

use trimwise::compare::figure::FIGURES;

use super::*;
use crate::caller::Silent;
use crate::compare::{CompareRequest, on_model};
use crate::given::Given;

fn condition(text: &str) -> Condition {
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn measured(place: &str, subject: &str, figure: &'static str, unit: Unit, values: &[f64]) -> Measured {
    let sample = Sample::new(values.to_vec(), false).unwrap();
    let (place, subject) = (place.to_owned(), subject.to_owned());
    Measured { place, subject, figure: figure.into(), unit, sample, is_tracked: true }
}

fn time(subject: &str, values: &[f64]) -> Measured {
    measured("sata-small", subject, "time", Unit::Seconds, values)
}

fn of_compare() -> Terms {
    Terms::of_compare(["off", "commit", "set:40:90+lazy", "batch:1w"].map(str::to_owned).into())
}

fn gate(conditions: &[&str]) -> Gate {
    Gate { conditions: conditions.iter().map(|text| condition(text)).collect(), then: None }
}

const OFF: [f64; 4] = [100.0, 101.0, 99.0, 100.0];
const SLOWER: [f64; 4] = [110.0, 111.0, 109.0, 110.0];

/// Judges one condition on `off` at 100 s and `commit` at 110 s, each with these runs.
fn held(text: &str, off: &[f64], commit: &[f64]) -> Held {
    let judged = gate(&[text]).judge(&[time("off", off), time("commit", commit)], &of_compare());
    assert!(judged.refused.is_empty(), "{text}: {:?}", judged.refused);
    judged.conditions[0].result
}

#[test]
fn names_with_signs_are_read_whole() {
    let read = condition("p99:fsync of set:40:90+lazy+reuse>batch:1w by 2.5%");
    assert_eq!(read.figure.as_deref(), Some("p99:fsync"));
    assert_eq!((&*read.subject, read.is_above), ("set:40:90+lazy+reuse", true));
    assert_eq!(read.limit, Limit::By { other: "batch:1w".to_owned(), percent: 2.5 });
    let read = condition("read_mb_per_s of trimmed again < 300");
    assert_eq!((&*read.subject, read.is_above), ("trimmed again", false));
    assert_eq!(condition("commit > off").limit, Limit::By { other: "off".to_owned(), percent: 0.0 });
    assert_eq!(condition("commit > 10ms").limit, Limit::Value { number: 10.0, unit: "ms".to_owned() });
}

#[test]
fn what_is_no_condition_is_refused_with_what_would_be() {
    for (text, why) in [
        ("", "there is no > or <"),
        ("commit", "there is no > or <"),
        ("> 3 s", "there is no name before it"),
        ("time of > 3 s", "there is no name before it"),
        ("commit >", "there is no value or name after it"),
        ("commit >= off", "there is no value or name after it"),
        ("commit > off > ideal", "there is no value or name after it"),
        ("commit > off by much", "'much' is no percentage"),
        ("commit > off by 5", "'5' is no percentage"),
        ("commit > off by -5 %", "'-5 %' is no percentage"),
        ("commit > off by NaN %", "'NaN %' is no percentage"),
        ("commit > 1.2.3 s", "'1.2.3 s' is no value"),
        ("commit > 1-2 s", "'1-2 s' is no value"),
    ] {
        let refused = text.parse::<Condition>().unwrap_err();
        assert!(refused.starts_with(why) && refused.contains("commit > off by 5 %"), "{text}: {refused}");
    }
    let long = format!("commit > {} s", "9".repeat(400));
    assert!(long.parse::<Condition>().is_err(), "an infinite number");
}

#[test]
fn a_condition_is_refused_before_the_run_with_what_could_be_judged() {
    for (text, why) in [
        (
            "ideal > off",
            "`ideal` is not among the policies of this run; expected one of off, commit, set:40:90+lazy, batch:1w",
        ),
        ("commit > ideal by 5 %", "`ideal` is not among the policies"),
        ("nan > off", "`nan` is not among the policies"),
        ("erasures of commit > 3", "there is no figure `erasures`; "),
        ("p99 of commit > 10 ms", "there is no figure `p99`; "),
        ("commit > 10", "10 has no unit; expected a time, such as 10 ms or 90 s"),
        ("commit > 10 MiB", "'MiB' is no unit of time; expected a time"),
        ("erases of commit > 10 s", "'s' is no unit of erases; expected a number without a unit"),
        ("stale_units_max of commit > 10 s", "expected a size, such as 100 MiB"),
        ("commit > baseline by 5 %", "there is no saved result to compare with; expected --baseline with it"),
    ] {
        let refused = gate(&[text]).check(&of_compare()).unwrap_err();
        assert!(matches!(&refused, Failure::Usage(_)), "{refused:?}");
        let said = refused.to_string();
        assert!(said.starts_with(&format!("--fail-if '{text}': ")) || said.contains(text), "{said}");
        assert!(said.contains(why), "{text}: {said}");
    }
    for text in ["discard > nodiscard", "fstrim > off", "stale_units_max of commit > 1.5GiB", "commit < -1 s"]
    {
        assert_eq!(gate(&[text]).check(&of_compare()), Ok(()), "{text}");
    }
    assert!(gate(&["trimmed < clean by 5 %"]).check(&Terms::of_verify()).is_err_and(|failure| {
        failure.to_string().contains(
            "names no figure; expected FIGURE of trimmed, with one of read_mb_per_s, write_mb_per_s",
        )
    }));
}

#[test]
fn a_difference_holds_beyond_its_percentage_and_beyond_noise() {
    assert_eq!(held("commit > off by 5 %", &OFF, &SLOWER), Held::Holds);
    assert_eq!(held("commit > off by 10.5 %", &OFF, &SLOWER), Held::DoesNotHold, "110 is 10 % more");
    assert_eq!(held("off > commit", &OFF, &SLOWER), Held::DoesNotHold);
    assert_eq!(held("off < commit by 5 %", &OFF, &SLOWER), Held::Holds, "100 is 9.1 % less than 110");
    assert_eq!(held("off < commit by 9.5 %", &OFF, &SLOWER), Held::DoesNotHold);
    let noisy = [90.0, 130.0, 95.0, 125.0];
    assert_eq!(held("commit > off by 5 %", &OFF, &noisy), Held::WithinNoise);
    assert_eq!(held("commit > off by 5 %", &OFF[..3], &SLOWER[..3]), Held::TooFewRuns);
    assert_eq!(
        held("commit > off by 20 %", &OFF[..3], &SLOWER[..3]),
        Held::DoesNotHold,
        "whatever the noise"
    );
}

#[test]
fn runs_without_noise_need_no_repetition() {
    let exact = |subject, value| Measured {
        sample: Sample::new(vec![value; 2], true).unwrap(),
        ..time(subject, &[value])
    };
    let judged = gate(&["commit > off"]).judge(&[exact("off", 100.0), exact("commit", 100.1)], &of_compare());
    assert_eq!(judged.conditions[0].result, Held::Holds);
}

#[test]
fn a_value_is_passed_by_the_whole_interval() {
    assert_eq!(held("commit > 105 s", &OFF, &SLOWER), Held::Holds);
    assert_eq!(held("commit > 109.5 s", &OFF, &SLOWER), Held::WithinNoise, "the interval begins at 109 s");
    assert_eq!(held("commit > 2 min", &OFF, &SLOWER), Held::DoesNotHold);
    assert_eq!(held("commit < 115000 ms", &OFF, &SLOWER), Held::Holds);
    assert_eq!(held("commit > 105 s", &OFF, &[106.0]), Held::Holds, "one run has no interval");
}

#[test]
fn each_drive_is_judged_and_aliases_are_known() {
    let all = [
        time("off", &OFF),
        time("commit", &SLOWER),
        measured("nvme", "off", "time", Unit::Seconds, &SLOWER),
        measured("nvme", "commit", "time", Unit::Seconds, &OFF),
    ];
    let judged = gate(&["discard > off by 5 %"]).judge(&all, &of_compare());
    let results: Vec<(&str, Held)> =
        judged.conditions.iter().map(|outcome| (&*outcome.place, outcome.result)).collect();
    assert_eq!(results, [("sata-small", Held::Holds), ("nvme", Held::DoesNotHold)]);
    let outcome = &judged.conditions[0];
    assert_eq!((outcome.value, outcome.other), (110.0, 100.0));
    assert!((outcome.excess_percent.unwrap() - 10.0).abs() < 1e-9);
}

#[test]
fn what_the_runs_do_not_have_is_refused_after_them() {
    let refused = |text: &str| {
        let terms = Terms { subjects: Vec::new(), ..of_compare() };
        let judged = gate(&[text, "off > 3 s"]).judge(&[time("off", &OFF)], &terms);
        assert_eq!(judged.conditions[0].result, Held::Holds, "the others are judged");
        judged.refused[0].to_string()
    };
    assert!(refused("ideal > 3 s").contains("`ideal` has no results; expected one of off"));
    assert!(refused("erases of off > 3").contains("have no erases that can be judged; expected one of time"));
    assert!(refused("off > ideal").contains("`ideal` has no time to compare with; expected one of off"));
}

fn since(then: &[Measured], now: &[Measured]) -> Since {
    let then = Then { file: "a.json".to_owned(), measured: then.to_vec(), ..Then::default() };
    let gate = Gate { conditions: Vec::new(), then: Some(then) };
    gate.judge(now, &of_compare()).since.unwrap()
}

#[test]
fn only_changes_beyond_noise_are_told() {
    let wa = |values: &[f64]| measured("sata-small", "commit", "write_amplification", Unit::Number, values);
    let since = since(
        &[time("commit", &OFF), wa(&[2.0, 2.1, 1.9, 2.0]), time("gone", &OFF)],
        &[time("commit", &SLOWER), wa(&[2.05, 2.1, 1.9, 2.0]), time("new", &OFF)],
    );
    assert_eq!((since.compared, since.untold, since.changes.len()), (2, 0, 1));
    let change = &since.changes[0];
    assert_eq!(
        (&*change.subject, &*change.figure, change.then, change.now),
        ("commit", "time", 100.0, 110.0)
    );
    assert!((change.change_percent - 10.0).abs() < 1e-9 && change.p.unwrap() < 0.05);
    assert_eq!(since.notes, ["it does not have `new on sata-small`", "only it has `gone on sata-small`"]);
}

#[test]
fn with_too_few_runs_a_change_is_left_open() {
    let since = since(&[time("commit", &OFF[..3])], &[time("commit", &SLOWER)]);
    assert_eq!((since.compared, since.untold, since.changes.len()), (1, 1, 0));
}

#[test]
fn the_saved_result_can_be_a_limit() {
    let then = Then { measured: vec![time("commit", &OFF)], ..Then::default() };
    let conditions = vec![condition("commit > baseline by 5 %"), condition("commit > baseline by 15 %")];
    let judged = Gate { conditions, then: Some(then) }.judge(&[time("commit", &SLOWER)], &of_compare());
    let results: Vec<Held> = judged.conditions.iter().map(|outcome| outcome.result).collect();
    assert_eq!(results, [Held::Holds, Held::DoesNotHold]);
}

#[test]
fn what_is_no_saved_result_is_refused_with_what_would_be() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read::<serde_json::Value>(&path, "compare", &["cells", "verdict"]).unwrap_err().to_string()
    };
    let expected = "expected what `compare` wrote with --json";
    for (text, why) in [
        ("", "is empty"),
        ("\u{feff} \n", "is empty"),
        ("{", "is not JSON: "),
        ("[1]", "was not written by trimwise"),
        (
            r#"{"schema": 1, "trimwise": "0.1.0", "tests": [], "device": {}}"#,
            "was written by another command",
        ),
    ] {
        let said = refused(text);
        assert!(said.contains(&format!("a.json: {why}")) && said.ends_with(expected), "{text}: {said}");
    }
    let newer = refused(r#"{"schema": 2, "trimwise": "9.0.0", "cells": [], "verdict": {}}"#);
    assert!(newer.contains("has schema 2") && newer.ends_with("expected schema 1"), "{newer}");
    std::fs::write(&path, r#"{"schema": 1, "trimwise": "0.1.0", "cells": 3, "verdict": {}}"#).unwrap();
    let failure = saved::compare_baseline(&path).unwrap_err().to_string();
    assert!(
        failure.contains("a.json: invalid type: integer `3`") && failure.ends_with(expected),
        "{failure}"
    );
    let failure =
        read::<serde_json::Value>(&dir.path().join("none"), "compare", &[]).unwrap_err().to_string();
    assert!(failure.contains("none: No such file") && failure.ends_with(expected), "{failure}");
}

#[test]
fn a_saved_result_of_other_settings_is_refused_with_both() {
    let path = std::path::Path::new("a.json");
    assert_eq!(expect_alike(path, &[("drive", &"x", &"x"), ("rest", &1, &1)]), Ok(()));
    let refused =
        expect_alike(path, &[("drive", &"x", &"x"), ("workload", &"oltp", &"default")]).unwrap_err();
    let expected = "--baseline a.json: its workload is oltp, and here it is default; expected a result of the same workload";
    assert_eq!(refused.to_string(), expected);
    let now = [time("off", &OFF), time("commit", &SLOWER)];
    let conditions = ["commit > baseline", "commit > off"].map(condition);
    let judged = judged(&conditions, Err(refused), &now, &of_compare());
    assert_eq!((judged.conditions.len(), judged.refused.len(), judged.since), (1, 1, None));
    assert_eq!(judged.conditions[0].result, Held::Holds);
}

fn request(policies: &[&str]) -> CompareRequest {
    CompareRequest {
        workload: "append:64KiB:4MiB".to_owned(),
        policies: policies.iter().map(|policy| Given::from(*policy)).collect(),
        reps: 1,
        ..CompareRequest::default()
    }
}

fn refused(conditions: &[&str], baseline: Option<&Path>, request: &CompareRequest) -> Vec<String> {
    let conditions: Vec<Condition> = conditions.iter().map(|text| condition(text)).collect();
    match CompareGate::open(&conditions, baseline, request) {
        Err(Failure::Usage(mistakes)) => mistakes.0.iter().map(Mistake::to_string).collect(),
        other => panic!("{conditions:?}: {other:?}"),
    }
}

#[test]
fn regression_what_no_run_can_have_is_refused_before_the_runs_and_all_at_once() {
    let request = CompareRequest { workload: "default".to_owned(), ..request(&["off", "commit"]) };
    let several = FIGURES.iter().find(|figure| !figure.is_of_each_run()).unwrap().key;
    let of_several = format!("{several} of commit > 3");
    let conditions = ["ideal > off", &of_several, "p99:fsync of commit > 1 ms", "commit > off"];
    let said = refused(&conditions, Some(Path::new("/nonexistent.json")), &request);
    assert_eq!(said.len(), 4, "{said:#?}");
    assert!(said[0].contains("/nonexistent.json: No such file"), "{said:#?}");
    assert!(said[1].contains("`ideal` is not among the policies of this run"), "{said:#?}");
    assert!(said[2].contains(&format!("`{several}` is a figure of several runs")), "{said:#?}");
    assert!(said[3].contains("p99:fsync of commit") && said[3].contains("makes no fsync calls"), "{said:#?}");
    // Nor does what is wrong with the request itself wait for another round.
    let wrong = CompareRequest { linux: Some("1.0".to_owned()), ..request };
    let said = refused(&["ideal > off"], None, &wrong);
    assert!(said[0].contains("'1.0' is not a known Linux version") && said.len() == 2, "{said:#?}");
}

#[test]
fn regression_a_saved_result_of_other_settings_is_refused_before_the_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    let own = request(&["off"]);
    let ran = on_model::run(&own, on_model::Plan::of(&own).unwrap(), &Silent::default()).unwrap();
    std::fs::write(&path, crate::Versioned::of(&ran).text().unwrap()).unwrap();
    let here = Some(&*path);
    assert!(CompareGate::open(&[], here, &own).is_ok());
    let drive = "it is of sata-small, and this run of vendor2";
    let other =
        CompareRequest { devices: vec!["vendor2".into()], utilization: Some("50".into()), ..own.clone() };
    let said = refused(&[], here, &other);
    assert!(said.len() == 2 && said[0].contains("its utilization is 80 %, and here it is 50 %"), "{said:#?}");
    assert!(said[1].contains(drive), "{said:#?}");
    let kernel = CompareRequest { target: "kernel:6.12:ext4".into(), ..other };
    let said = refused(&[], here, &kernel);
    assert!(said[0].contains("its target is the model, and here it is a kernel"), "{said:#?}");
    assert!(said.iter().any(|line| line.contains(drive)), "{said:#?}");
    // Judged by a latency then, and now by the time of the workload.
    let mut judged = ran;
    judged.settings.judge = "p99:fsync".to_owned();
    assert_eq!(of_compare::measure(&own, &judged.settings), "total");
    let by = CompareRequest { judge: Some("p99:read".parse().unwrap()), ..own };
    assert_eq!(of_compare::measure(&by, &judged.settings), "p99:read");
}
