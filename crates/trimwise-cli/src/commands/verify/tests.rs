use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use trimwise_study::caller::Silent;

use super::*;
use crate::commands::{Command, CommandLine};

fn arguments(line: &str) -> VerifyArguments {
    let words = ["trimwise", "verify"].into_iter().chain(line.split_whitespace());
    match CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command {
        Command::Verify(arguments) => arguments,
        _ => panic!("not verify"),
    }
}

fn json_of(line: &str) -> (Result<String, Failure>, serde_json::Value) {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = arguments(line);
    arguments.json.json = Some(dir.path().join("r.json"));
    let result = run(&arguments, &Silent::default());
    (result, serde_json::from_str(&std::fs::read_to_string(dir.path().join("r.json")).unwrap()).unwrap())
}

#[test]
fn a_sound_drive_is_no_failure_and_its_json_has_units_in_its_keys() {
    let (text, json) = json_of("sata-small --size 256MiB --seed 2");
    let text = text.unwrap();
    assert!(text.contains("Restores fully") && text.contains("256 MiB of 8 GiB"), "{text}");
    assert_eq!((&json["partial"], &json["broken"]), (&false.into(), &serde_json::Value::Null));
    assert_eq!(json["device"]["size_bytes"], 256 << 20);
    assert_eq!(json["judgement"]["verdict"], "restores_fully");
    assert_eq!((&json["content"], &json["seed"]), (&"compressible".into(), &2.into()));
    assert!(json["evidence"]["speeds"]["trimmed_again"]["read_mb_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(
        json["settings"]["command"],
        "trimwise verify sata-small --size 268435456 --content compressible --torture 150 --rest 60 --seed 2"
    );
}

#[test]
fn a_fault_of_the_firmware_or_a_planted_one_is_a_failed_run_that_names_it() {
    let (result, json) = json_of("sata-small --size 256MiB --fault ignores-trim");
    assert_eq!(result, Err(Failure::run("sata-small: TRIM is ignored")));
    assert_eq!(json["judgement"]["faults"], serde_json::json!(["ignores_trim"]));
    assert_eq!(json["settings"]["fault"], "ignores-trim");
    let (result, json) = json_of("sandforce-240gb@5.0.2 --size 256MiB");
    assert_eq!(result, Err(Failure::run("sandforce-240gb@5.0.2: TRIM reaches only a part of its range")));
    assert_eq!(json["judgement"]["verdict"], "restores_in_part");
}

#[test]
fn a_drive_without_trim_is_no_failure() {
    let (text, json) = json_of("vertex-60gb@1.3 --size 256MiB");
    assert!(text.unwrap().contains("Not supported"));
    assert_eq!(json["evidence"]["speeds"]["clean"], serde_json::Value::Null);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    for (line, words) in [
        ("nosuch", "nosuch: neither a built-in name"),
        ("sata-small --size 9GiB", "--size 9 GiB: expected at most 8 GiB"),
        ("sata-small --size 255MiB", "expected at least 256 MiB"),
        ("sata-small --region 0:1", "expected at least 256 MiB"),
        ("sata-small --destroy x", "--destroy: sata-small is a model"),
        ("sata-small --fault late", "expected 0 where TRIM is not queued"),
        ("vertex-60gb@1.3 --fault partial", "expected 100 where the device takes no TRIM"),
        ("vertex-60gb --fault broken-promise", "expected false where trim.read_after promises no"),
        ("file:", "'file:' is not a real target"),
        ("file:x --fault late", "--fault: file:x is not a model"),
        ("dev:/dev/null --size 1GiB", "--size: dev:/dev/null has its own size"),
        ("dev:/dev/null", "/dev/null"),
        ("dir:", "expected dir:PATH"),
        ("dir:/proc", "/proc: proc is not on a block device"),
        ("dir:/no/such/place", "/no/such/place"),
        ("dir:/ --destroy x", "--destroy: dir:/ is a mounted file system"),
        ("dir:/ --content zeros", "expected no --content"),
        ("dir:/ --region 0:50", "expected no --region"),
    ] {
        let failure = run(&arguments(line), &Silent::default()).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(m) if m.contains(words)), "{line}: {failure:?}");
    }
}

#[test]
fn a_file_that_holds_something_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let failure = run(&arguments(&format!("file:{}", path.display())), &Silent::default()).unwrap_err();
    assert!(matches!(&failure, Failure::Usage(m) if m.contains("--destroy")), "{failure:?}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
}

/// On Ctrl-C the results so far remain, and JSON is written, for a model too.
#[test]
fn regression_an_interrupt_of_a_model_leaves_a_partial_result() {
    let dir = tempfile::tempdir().unwrap();
    let mut asked = arguments("sata-small --size 256MiB");
    asked.json.json = Some(dir.path().join("r.json"));
    let failure = run(&asked, &Silent { stop: Arc::new(AtomicBool::new(true)) }).unwrap_err();
    assert_eq!(failure, Failure::Interrupted);
    let json = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["partial"], &json["judgement"]), (&true.into(), &serde_json::Value::Null));
}

#[test]
fn what_fails_half_way_shows_what_was_measured_and_gives_no_verdict() {
    let Verified::Drive(mut report) =
        verify::run(&arguments("sata-small --size 256MiB").request(), &Silent::default()).unwrap()
    else {
        panic!("not a drive")
    };
    let found = &mut report.found;
    found.judgement = None;
    found.evidence.speeds.trimmed = None;
    found.evidence.speeds.trimmed_again = None;
    found.broken = Some(trimwise_lab::bench::Broken {
        test: "trimmed".to_owned(),
        why: "input/output error".to_owned(),
        interrupted: false,
        did: found.did,
    });
    let text = table::render(&report);
    assert!(text.contains("Partial, and no verdict: trimmed ended with: input/output error."), "{text}");
    assert!(!text.contains("Restores") && text.contains("tortured   "), "{text}");
    assert_eq!(report.failure(), Some(Failure::run("sata-small: trimmed: input/output error")));
    if let Some(broken) = &mut report.found.broken {
        broken.interrupted = true;
    }
    assert_eq!(report.failure(), Some(Failure::Interrupted));
}
