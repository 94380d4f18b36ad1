use serde_json::{Value, json};

use super::*;
use crate::caller::Silent;

fn asked(request: Value) -> VerifyRequest {
    serde_json::from_value(request).unwrap()
}

/// The failure and the JSON of a verification.
fn found(request: Value) -> (Option<Failure>, Value) {
    let verified = run(&asked(request), &Silent::default()).unwrap();
    (verified.failure(), serde_json::to_value(&verified).unwrap())
}

const MIB_256: u64 = 256 << 20;

#[test]
fn a_sound_drive_is_no_failure_and_its_json_has_units_in_its_keys() {
    let (failure, json) = found(json!({"target": "sata-small", "size": MIB_256, "seed": 2}));
    assert_eq!(failure, None);
    assert_eq!((&json["partial"], &json["broken"]), (&false.into(), &Value::Null));
    assert_eq!(json["device"]["size_bytes"], MIB_256);
    assert_eq!(json["judgement"]["verdict"], "restores_fully");
    assert_eq!(json["code"], Value::Null);
    assert_eq!((&json["content"], &json["seed"]), (&"compressible".into(), &2.into()));
    assert!(json["evidence"]["speeds"]["trimmed_again"]["read_mb_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_fault_of_the_firmware_or_a_planted_one_is_a_failed_run_that_names_it() {
    let (failure, json) = found(json!({"target": "sata-small", "size": MIB_256, "fault": "ignores-trim"}));
    assert_eq!(failure, Some(Failure::run("sata-small: TRIM is ignored")));
    assert_eq!(json["judgement"]["faults"], json!(["ignores_trim"]));
    assert_eq!(json["code"], "verify.trim.ignored");
    assert_eq!(json["settings"]["fault"], "ignores-trim");
    let (failure, json) = found(json!({"target": "sandforce-240gb@5.0.2", "size": MIB_256}));
    assert_eq!(failure, Some(Failure::run("sandforce-240gb@5.0.2: TRIM reaches only a part of its range")));
    assert_eq!(json["judgement"]["verdict"], "restores_in_part");
}

#[test]
fn a_drive_without_trim_is_no_failure() {
    let (failure, json) = found(json!({"target": "vertex-60gb@1.3", "size": MIB_256}));
    assert_eq!((failure, &json["judgement"]["verdict"]), (None, &"unsupported".into()));
    assert_eq!(json["evidence"]["speeds"]["clean"], Value::Null);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    let gib = 1_u64 << 30;
    for (request, words) in [
        (json!({"target": "nosuch"}), "nosuch: neither a built-in name"),
        (json!({"target": "sata-small", "size": 9 * gib}), "--size 9 GiB: expected at most 8 GiB"),
        (json!({"target": "sata-small", "size": 255 << 20}), "expected at least 256 MiB"),
        (json!({"target": "sata-small", "region": "0:1"}), "expected at least 256 MiB"),
        (json!({"target": "sata-small", "destroy": "x"}), "--destroy: sata-small is a model"),
        (json!({"target": "sata-small", "fault": "late"}), "expected 0 where TRIM is not queued"),
        (
            json!({"target": "vertex-60gb@1.3", "fault": "partial"}),
            "expected 100 where the device does not support TRIM",
        ),
        (
            json!({"target": "vertex-60gb", "fault": "broken-promise"}),
            "expected false where trim.read_after promises no",
        ),
        (json!({"target": "file:"}), "'file:' is not a real target"),
        (json!({"target": "file:x", "fault": "late"}), "--fault: file:x is not a model"),
        (json!({"target": "dev:/dev/null", "size": gib}), "--size: dev:/dev/null has its own size"),
        (json!({"target": "dev:/dev/null"}), "/dev/null"),
        (json!({"target": "dir:"}), "expected dir:PATH"),
        (json!({"target": "dir:/proc"}), "/proc: proc is not on a block device"),
        (json!({"target": "dir:/no/such/place"}), "/no/such/place"),
        (json!({"target": "dir:/", "destroy": "x"}), "--destroy: dir:/ is a mounted file system"),
        (json!({"target": "dir:/", "content": "zeros"}), "expected no --content"),
        (json!({"target": "dir:/", "region": "0:50"}), "expected no --region"),
    ] {
        let failure = run(&asked(request.clone()), &Silent::default()).unwrap_err();
        assert!(
            matches!(&failure, Failure::Usage(m) if m.to_string().contains(words)),
            "{request}: {failure:?}"
        );
    }
}

#[test]
fn a_file_that_holds_something_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let request = asked(json!({"target": format!("file:{}", path.display())}));
    let failure = run(&request, &Silent::default()).unwrap_err();
    assert!(matches!(&failure, Failure::Usage(m) if m.to_string().contains("--destroy")), "{failure:?}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
}

/// After a stop the results so far remain, for a model too.
#[test]
fn regression_an_interrupt_of_a_model_leaves_a_partial_result() {
    let request = asked(json!({"target": "sata-small", "size": MIB_256}));
    let verified = run(&request, &Silent { stop: Arc::new(AtomicBool::new(true)) }).unwrap();
    assert_eq!(verified.failure(), Some(Failure::Interrupted));
    let json = serde_json::to_value(&verified).unwrap();
    assert_eq!((&json["partial"], &json["judgement"]), (&true.into(), &Value::Null));
}
