//! `trimwise reproduce daemon-day`: `trimwised` inside a guest, on XFS; with `KERNELS=full` the week in every way, the
//! same bytes twice. Also checks what is refused before anything boots.

use std::process::Stdio;

use crate::reproduction::{error, image, is_full, is_met, refused, reproduce};
use serde_json::Value;

/// The daemon's claims that must hold; the experiment's README explains those that do not, and how far those of a single
/// day move with the build.
const KEPT: &[&str] = &["daemon-discarded-xfs", "daemon-bound-xfs", "daemon-p99-xfs"];
const KEPT_IN_A_DAY: &[&str] = &["daemon-discarded-xfs"];
/// 10 % of the file system, rounded up.
const BOUND: u64 = 410 << 20;

#[test]
fn a_day_under_the_daemon_keeps_what_is_promised() {
    if image("6.1").is_none() {
        return;
    }
    // A day takes minutes; `daemon_guests.rs` repeats shorter runs of the daemon.
    let (arguments, runs) = match is_full() {
        true => ("daemon-week --only xfs --json -", 2),
        false => ("daemon-day --only xfs:daemon --json -", 1),
    };
    // In parallel: a guest has one processor.
    let begin = |_| {
        let mut command = reproduce(&format!("{arguments} --jobs 1"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let runs: Vec<_> = (0..runs).map(begin).collect();
    let ended: Vec<_> = runs.into_iter().map(|run| run.wait_with_output().unwrap()).collect();
    for run in &ended {
        assert!(run.status.success(), "{}", error(run));
        assert_eq!(run.stdout, ended[0].stdout, "two runs of the same seed differ");
    }
    let result: Value = serde_json::from_slice(&ended[0].stdout).unwrap();
    for id in if is_full() { KEPT } else { KEPT_IN_A_DAY } {
        assert!(is_met(&result, id), "{id}: {:#}", result["claims"]);
    }
    let runs = result["rows"]["runs"].as_array().unwrap();
    let daemon = runs.iter().find(|run| run["trimming"] == "daemon").unwrap();
    let untrimmed = daemon["untrimmed_bytes"].as_array().unwrap();
    assert!(untrimmed[0].as_u64() > Some(2 << 30), "a drive that was full: {}", untrimmed[0]);
    assert_eq!(untrimmed.last().and_then(Value::as_u64), Some(0));
    // A burst of frees may pass the bound. Two looks, of ten minutes, later it is below again.
    let is_above: Vec<bool> = untrimmed.iter().map(|bytes| bytes.as_u64() > Some(BOUND)).collect();
    let longest = is_above[3..].split(|&above| !above).map(<[bool]>::len).max();
    assert!(longest <= Some(2), "{untrimmed:?}");
    assert!(daemon["discards"]["commands"].as_u64() > Some(100), "{:#}", daemon["discards"]);
}

#[test]
fn what_there_is_not_is_refused_with_what_there_is() {
    refused("daemon-week --only zfs", &["--only zfs", "ext4, xfs, btrfs", "fstrim-weekly"]);
    refused("daemon-day --only xfs:discard-async", &["--only xfs:discard-async"]);
    refused("daemon-week", &["trimwise kernel build --version 6.1"]);
    refused("daemon-day --target kernel:5.10:ext4", &["trimwise kernel build --version 5.10"]);
    refused("daemon-day --target kernel:6.1:xfs:noatime", &["expected none, as in kernel:6.1:xfs"]);
    refused("daemon-week --on kernel:6.1:xfs --only ext4", &["--only ext4", "FS one of xfs"]);
}
