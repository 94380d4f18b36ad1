//! Many hosts at a glance.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::common::{refused, said, text, trimwise};

const GIB: u64 = 1 << 30;

/// A file system as `trimwise status --json` has it, half full.
fn file_system(mount: &str, policy: &str, waiting_gib: u64, counted_gib: u64) -> Value {
    json!({
        "mount_point": mount, "fs_type": "ext4", "devices": ["sda"], "problem": null,
        "status": {
            "policy": policy, "used_bytes": 50 * GIB, "total_bytes": 100 * GIB,
            "waiting_bytes": waiting_gib * GIB, "left_bytes": GIB, "online": false, "trouble": false, "why": "It is idle.",
            "totals": { "trimmed_bytes": 7 * GIB, "counted_bytes": counted_gib * GIB },
        },
    })
}

fn status(file_systems: &[Value]) -> Value {
    json!({
        "schema": 1, "trimwise": "0.1.0", "uptime_ns": 1, "dry_run": false, "config_problem": null,
        "state_problem": null, "history_problem": null, "mounts_problem": null, "limits_problem": null,
        "metrics_problem": null, "file_systems": file_systems,
    })
}

fn write(folder: &Path, name: &str, document: &Value) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, document.to_string()).unwrap();
}

/// What was printed, on one line.
fn unfolded(output: &Output) -> String {
    text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn stale_space_drives_that_ignore_trim_and_policies_that_differ_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path();
    write(fleet, "web1.json", &status(&[file_system("/", "judicious", 3, 7)]));
    write(fleet, "web2.example.com.status.json", &status(&[file_system("/", "judicious", 0, 7)]));
    let mut troubled = file_system("/srv", "set:40:90", 40, 0);
    troubled["status"]["trouble"] = true.into();
    troubled["status"]["why"] = "The last slice failed: Input/output error.".into();
    let mut online = file_system("/var", "judicious", 30, 7);
    online["status"]["online"] = true.into();
    write(fleet, "db1/status.json", &status(&[troubled, online]));
    // What the commands themselves write.
    let verify = ["verify", "sata-small", "--fault", "ignores-trim", "--json"];
    trimwise(&[&verify[..], &[fleet.join("db1/verify-sdb.json").to_str().unwrap()]].concat());
    trimwise(&["doctor", "--json", fleet.join("db1/doctor.json").to_str().unwrap()]);
    fs::write(fleet.join(".half.json"), "{").unwrap();

    let place = fleet.to_str().unwrap();
    let output = trimwise(&["fleet", place]);
    said(&output, &[]);
    let shown = unfolded(&output);
    for words in [
        "3 hosts with 4 managed file systems",
        "Stale space: 46 GiB on 3 hosts. On 1 file system, mounted with `discard`, it is unknown.",
        "db1 /srv: slices trimmed 7 GiB, but the device counted no discard meanwhile (status: daemon.trim.uncounted).",
        "db1 sata-small: TRIM is ignored",
        "db1 /srv: The last slice failed: Input/output error (status: daemon.trim.trouble).",
        "judicious: 3 of 4 file systems.",
        "set:40:90: 1: db1 /srv.",
    ] {
        assert!(shown.contains(words), "'{words}' is not in {shown}");
    }
    let shown = text(&output.stdout);
    let rows: Vec<&str> = shown.lines().filter(|line| line.contains("ext4  ")).collect();
    let first = ["db1 /srv", "web1 /", "web2.example.com /", "db1 /var"];
    assert_eq!(rows.len(), 4, "{shown}");
    assert!(rows.iter().zip(first).all(|(row, host)| row.starts_with(host)), "not by stale space: {shown}");

    let json: Value = serde_json::from_slice(&trimwise(&["fleet", place, "--json", "-"]).stdout).unwrap();
    assert_eq!(json["file_systems"][0]["stale_bytes"], 41 * GIB);
    assert_eq!(json["file_systems"][1]["stale_bytes"], Value::Null);
    assert_eq!(json["not_honoured"].as_array().unwrap().len(), 2, "{json}");
}

/// Host, place, text and code of each finding.
fn coded(fleet: &Value) -> Vec<String> {
    let lists = ["not_honoured", "trouble"].map(|list| fleet[list].as_array().unwrap());
    let told = |one: &Value| {
        ["host", "place", "what", "code"].map(|key| one[key].as_str().unwrap_or("none").to_owned()).join(" ")
    };
    lists.into_iter().flatten().map(told).collect()
}

#[test]
fn each_finding_of_a_fleet_has_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path();
    let mut whole = status(&[]);
    for problem in ["config", "state", "history", "mounts", "limits", "metrics", "taken", "option"] {
        whole[format!("{problem}_problem")] = format!("{problem} fails.").into();
    }
    write(fleet, "all.json", &whole);
    let mut broken = file_system("/", "judicious", 3, 7);
    broken["problem"] = "It hangs.".into();
    broken["option_problem"] = "Its option stays.".into();
    let mut dry_run = status(&[broken, file_system("/dry", "judicious", 3, 0)]);
    dry_run["dry_run"] = true.into();
    write(fleet, "dry.json", &dry_run);
    for verdict in
        ["ignored", "harmful", "unsupported", "in_part", "restores_in_part", "not_sent", "stops", "arrives"]
    {
        let verified = json!({
            "schema": 1, "trimwise": "0.1.0", "settings": { "target": verdict },
            "judgement": { "verdict": verdict, "reasons": ["Why."] },
        });
        write(fleet, &format!("drives/verify-{verdict}.json"), &verified);
    }
    let doctor = json!({
        "schema": 1, "trimwise": "0.1.0", "kernel": "6.12",
        "file_systems": [
            { "mount_point": "/disk", "passes": false, "findings": [{ "wrong": false, "what": "A hard disk." }] },
            { "mount_point": "/old", "passes": false, "findings": [{ "wrong": true, "what": "Without a code." }] },
            {
                "mount_point": "/luks", "passes": false,
                "findings": [{ "code": "layer.luks.discards-off", "wrong": true, "what": "It drops TRIM." }],
            },
        ],
        "findings": [{ "code": "mount.timer.masked", "wrong": true, "what": "Masked." }],
    });
    write(fleet, "laptop.doctor.json", &doctor);
    let output = trimwise(&["fleet", fleet.to_str().unwrap(), "--json", "-"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        coded(&json),
        [
            "drives harmful TRIM does harm: Why verify.trim.harmful",
            "drives ignored TRIM is ignored: Why verify.trim.ignored",
            "drives in_part TRIM reaches only a part: Why verify.trim.in-part",
            "drives not_sent the kernel did not send the TRIM: Why verify.trim.not-sent",
            "drives restores_in_part TRIM restores only a part of the speed: Why verify.trim.restores-in-part",
            "drives stops a layer below passes no TRIM on: Why verify.trim.stops",
            "drives unsupported the device does not accept TRIM: Why verify.trim.unsupported",
            "laptop /disk TRIM does not reach the drive fleet.trim.stops",
            "laptop /luks It drops TRIM layer.luks.discards-off",
            "laptop /old Without a code none",
            "all  history fails daemon.history.broken",
            "all  limits fails daemon.limits.too-low",
            "all  metrics fails daemon.metrics.broken",
            "all  mounts fails daemon.mounts.unreadable",
            "all  option fails daemon.option.unchanged",
            "all  state fails daemon.state.broken",
            "all  taken fails daemon.mount.taken",
            "all  the configuration is broken: config fails daemon.config.broken",
            "dry / It hangs daemon.mount.problem",
            "dry / Its option stays daemon.option.unchanged",
            "laptop  Masked mount.timer.masked",
        ]
    );
}

/// A newer host may know more.
#[test]
fn a_code_of_a_newer_version_is_kept_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path();
    for host in ["web1", "web2"] {
        let finding = json!({ "code": "layer.quantum.no-trim", "wrong": true, "what": "It is both." });
        let doctor = json!({
            "schema": 1, "trimwise": "9.0.0", "kernel": "9.9", "findings": [],
            "file_systems": [{ "mount_point": "/", "passes": false, "findings": [finding.clone(), finding] }],
        });
        write(fleet, &format!("{host}.doctor.json"), &doctor);
    }
    let mut troubled = file_system("/srv", "judicious", 3, 0);
    troubled["codes"] = json!(["daemon.trim.uncounted", "daemon.trim.entangled"]);
    let mut newer = status(&[troubled]);
    newer["codes"] = json!(["daemon.config.\u{1b}[31m"]);
    write(fleet, "web1.json", &newer);
    let verified = json!({
        "schema": 1, "trimwise": "9.0.0", "settings": { "target": "/dev/sdq" }, "code": "verify.trim.teleported",
        "judgement": { "verdict": "teleported", "reasons": ["It is elsewhere."] },
    });
    write(fleet, "web2.verify.json", &verified);
    let place = fleet.to_str().unwrap();
    let json: Value = serde_json::from_slice(&trimwise(&["fleet", place, "--json", "-"]).stdout).unwrap();
    let counted = |code: &str| {
        let one = &json["codes"][code];
        (one["findings"].as_u64(), one["hosts"].as_u64(), one["meaning"].is_null())
    };
    assert_eq!(counted("layer.quantum.no-trim"), (Some(4), Some(2), true));
    assert_eq!(counted("daemon.trim.entangled"), (Some(1), Some(1), true));
    assert_eq!(counted("daemon.trim.uncounted"), (Some(1), Some(1), false));
    assert_eq!(counted("verify.trim.teleported"), (Some(1), Some(1), true));
    assert_eq!(json["codes"].as_object().unwrap().len(), 5, "{}", json["codes"]);
    let output = trimwise(&["fleet", place]);
    said(&output, &[]);
    let shown = unfolded(&output);
    for words in [
        "web1 /: It is both (doctor: layer.quantum.no-trim).",
        "web1 /srv: a finding that this version does not know (status: daemon.trim.entangled).",
        "web2 /dev/sdq: a finding that this version does not know: It is elsewhere (verify: verify.trim.teleported).",
        "layer.quantum.no-trim 4 2 Unknown to trimwise",
        "daemon.config.\u{fffd}[31m 1 1",
    ] {
        assert!(shown.contains(words), "'{words}' is not in {shown}");
    }
}

#[test]
fn one_broken_file_does_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path();
    write(fleet, "web1.json", &status(&[file_system("/", "judicious", 3, 7)]));
    write(fleet, "web1.status.json", &status(&[]));
    write(fleet, "old.json", &json!({ "schema": 7, "trimwise": "9.0.0" }));
    write(fleet, "other.json", &json!({ "schema": 1, "trimwise": "0.1.0", "kernels": [] }));
    let mut wrong = file_system("/", "judicious", 3, 7);
    wrong["status"]["used_bytes"] = "much".into();
    write(fleet, "wrong.json", &status(&[wrong]));
    fs::write(fleet.join("empty.json"), "").unwrap();
    fs::write(fleet.join("half.json"), "{\"schema\": 1, \"trim").unwrap();
    let place = fleet.to_str().unwrap();
    let output = trimwise(&["fleet", place]);
    refused(1, &output, &["6 files cannot be used"]);
    let shown = unfolded(&output);
    for words in [
        "1 host with 1 managed file system",
        "web1.status.json: web1's status is also in",
        "has schema 7, of trimwise 9.0.0; this trimwise reads schema 1",
        "is JSON of another command; expected JSON of status, doctor or verify",
        "is not in trimwise's format: invalid type: string \"much\", expected u64",
        "is empty; did the command on the host fail?",
        "is not JSON: EOF while parsing a string at line 1",
    ] {
        assert!(shown.contains(words), "'{words}' is not in {shown}");
    }

    let output = trimwise(&["fleet", fleet.join("half.json").to_str().unwrap()]);
    refused(1, &output, &["1 file cannot be used"]);
    assert!(unfolded(&output).starts_with("0 hosts with 0 managed file systems. "), "no version is known");

    let mut status = status(&[file_system("/", "\u{1b}[31mred", 3, 7)]);
    status["trimwise"] = "\u{1b}[31m0".into();
    write(fleet, "hostile.json", &status);
    let output = trimwise(&["fleet", fleet.join("hostile.json").to_str().unwrap()]);
    said(&output, &["(trimwise \u{fffd}[31m0 on 1)", "All follow \u{fffd}[31mred."]);

    let nowhere = fleet.join("nowhere");
    refused(2, &trimwise(&["fleet", nowhere.to_str().unwrap()]), &["nowhere", "expected a file that"]);
    fs::create_dir(&nowhere).unwrap();
    refused(2, &trimwise(&["fleet", nowhere.to_str().unwrap()]), &["no file there is named *.json"]);
}

/// A folder that cannot be read, here for the length of its path, hid all hosts.
#[test]
fn regression_a_folder_that_cannot_be_read_does_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path().join("fleet");
    write(&fleet, "web1.json", &status(&[file_system("/", "judicious", 3, 7)]));
    let long = |name: &str| (0..15).fold(dir.path().join(name), |path, _| path.join("x".repeat(200)));
    fs::create_dir_all(long("fleet")).unwrap();
    fs::create_dir_all(long("below")).unwrap();
    fs::rename(dir.path().join("below"), long("fleet").join("below")).unwrap();
    let output = trimwise(&["fleet", fleet.to_str().unwrap()]);
    refused(1, &output, &["1 file cannot be used"]);
    let shown = unfolded(&output);
    assert!(shown.starts_with("1 host with 1 managed file system"), "{shown}");
    assert!(shown.contains("xxx: File name too long"), "{shown}");
}

/// It said "0 B", "0 %" and "Stale space: 0 B on 0 hosts" of what nobody had read. Earlier daemons wrote 0 for that.
#[test]
fn regression_stale_space_that_nobody_has_read_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let of = |mount: &str, untrimmed: Value, mapped: bool, slices: u64| {
        let mut one = file_system(mount, "batch:1d", 0, 7);
        let status = &mut one["status"];
        (status["waiting_bytes"], status["left_bytes"]) = (untrimmed.clone(), untrimmed);
        (status["mapped"], status["totals"]["slices"]) = (mapped.into(), slices.into());
        one
    };
    let mut online = of("/online", Value::Null, false, 0);
    online["status"]["online"] = true.into();
    let unread = [of("/new", Value::Null, false, 0), of("/old", 0.into(), false, 0), online];
    write(dir.path(), "web1.json", &status(&unread));
    let place = dir.path().to_str().unwrap();
    let shown = unfolded(&trimwise(&["fleet", place]));
    for words in [
        "Stale space: unknown. On 1 file system, mounted with `discard`, it is unknown. On 2 file systems, trimwised has \
         not read it yet.",
        "web1 /new ext4 batch:1d 100 GiB 50 % unknown - 7 GiB",
        "web1 /old ext4 batch:1d 100 GiB 50 % unknown - 7 GiB",
        "web1 /online ext4 batch:1d 100 GiB 50 % online - 7 GiB",
    ] {
        assert!(shown.contains(words), "'{words}' is not in {shown}");
    }
    // A map, or a walk without one, has shown that all is trimmed.
    let read =
        [of("/map", 0.into(), true, 0), of("/walk", 0.into(), false, 3), of("/more", GIB.into(), false, 0)];
    write(dir.path(), "web2.json", &status(&read));
    let shown = unfolded(&trimwise(&["fleet", place]));
    assert!(shown.contains("Stale space: 2 GiB on 1 host. On 1 file system, mounted"), "{shown}");
    let json: Value = serde_json::from_slice(&trimwise(&["fleet", place, "--json", "-"]).stdout).unwrap();
    let stale = |one: &Value| (one["mount_point"].as_str().unwrap().to_owned(), one["stale_bytes"].clone());
    let stale: Vec<_> = json["file_systems"].as_array().unwrap().iter().map(stale).collect();
    let expected = [
        ("/new", Value::Null),
        ("/old", Value::Null),
        ("/online", Value::Null),
        ("/map", 0.into()),
        ("/more", (2 * GIB).into()),
        ("/walk", 0.into()),
    ];
    assert_eq!(stale, expected.map(|(mount, bytes)| (mount.to_owned(), bytes)));
}
