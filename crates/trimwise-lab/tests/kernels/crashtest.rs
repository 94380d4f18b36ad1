//! `trimwise crashtest --target kernel:...`: a sound drive loses nothing, planted faults are found, and a finding can be
//! repeated.

use std::process::{Command, Output};

use serde_json::Value;

use crate::reproduction::{error, image};

fn crashtest(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise-lab"));
    command.arg("crashtest").args(arguments.split_whitespace());
    command.output().unwrap()
}

fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", error(output)))
}

#[test]
fn a_real_ext4_on_a_sound_drive_keeps_what_it_promised() {
    if image("6.1").is_none() {
        return;
    }
    let output = crashtest("--target kernel:6.1:ext4:discard --cuts 30 --json -");
    let report = result(&output);
    assert!(output.status.success(), "{report:#}");
    assert_eq!((&report["cuts"], &report["violations"]), (&30.into(), &0.into()));
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("files_checked") > 300 && count("not_durable") > 30 && count("trims") > 3, "{report:#}");
}

#[test]
fn planted_faults_are_found_and_their_cuts_repeated() {
    if image("6.1").is_none() {
        return;
    }
    for faulty in [
        "--target kernel:6.1:ext4 --fault ignores-flush",
        "--target kernel:6.1:ext4:discard --fault wrong-range",
        "--target kernel:6.1:ext4:nobarrier",
    ] {
        let output = crashtest(&format!("{faulty} --cuts 24 --json -"));
        let report = result(&output);
        assert_eq!(output.status.code(), Some(1), "{faulty}: {report:#}");
        let (first, again) = (&report["details"][0], report["again"][0].as_str().unwrap());
        let again = again.strip_prefix("trimwise crashtest ").unwrap();
        let repeated = result(&crashtest(&format!("{again} --json -")));
        assert_eq!(repeated["cuts"], 1);
        // What goes wrong while the power is on is reported with whichever cut comes first.
        let at = |violation: &Value| (violation["cut"].clone(), violation["events"].clone());
        assert_eq!(at(&repeated["details"][0]), at(first), "{faulty}");
        assert_eq!(repeated["details"][0]["broken"][0], first["broken"][0], "{faulty}");
    }
}

#[test]
fn what_cannot_be_tested_is_refused() {
    for (arguments, expected) in [
        ("--target 6.12:ext4", "expected kernel:VERSION:FS"),
        ("--target kernel:6.12:zfs", "ext4, xfs, btrfs, f2fs"),
        ("--target kernel:6.12:ext4 --policy lazy", "--policy"),
        ("--cut 3", "--target"),
        ("--max-wall 3", "--target"),
        ("--target kernel:6.12:ext4 --cut 3 --cuts 4", "--cuts"),
    ] {
        let output = crashtest(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", error(&output));
        assert!(error(&output).contains(expected), "{arguments}: {}", error(&output));
    }
}
