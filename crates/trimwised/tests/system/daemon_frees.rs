//! Frees that the daemon sees through the kernel's tracepoints, on real file systems, compared with a daemon without
//! them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::TRIMWISED;
use serde_json::Value;
use trimwise_linux::daemon::control::Request;
use trimwise_linux::tracefs::TRACING;
use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run, can_trace};

const MIB: u64 = 1 << 20;

fn config(point: &Path, tracepoints: bool) -> String {
    table(point, "").replace("tracepoints = false", &format!("tracepoints = {tracepoints}"))
}

/// The trace instance of a running daemon.
fn instance(daemon: &Daemon) -> PathBuf {
    let state = fs::metadata(daemon.state("")).unwrap();
    Path::new(TRACING).join("instances").join(format!("trimwised-{:x}-{:x}", state.dev(), state.ino()))
}

fn waits(status: &Value) -> u64 {
    status["waiting_bytes"].as_u64().unwrap()
}

/// Returns true if nothing is left to do. On ext4, up to the bound may wait until trimming is worth repeating the
/// trimmed part behind it.
fn is_settled(status: &Value, may_put_off: bool) -> bool {
    let code = &status["reason"]["code"];
    let is_put_off = code == "parts-only" && waits(status) <= status["total_bytes"].as_u64().unwrap() / 10;
    (waits(status) == 0 && code == "policy") || (may_put_off && is_put_off)
}

#[test]
fn what_comes_and_goes_between_two_maps_is_trimmed_if_frees_are_seen_and_only_then() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs"]) || !can_trace() {
        return;
    }
    for (fs_type, seen) in [("ext4", true), ("ext4", false), ("xfs", true), ("xfs", false)] {
        let disk = if fs_type == "ext4" { Loop::ext4(512 * MIB) } else { Loop::xfs(512 * MIB) };
        disk.fill(["kept".to_owned()], 32 << 20);
        let mut daemon = Daemon::started(TRIMWISED, &config(&disk.point, seen));
        daemon.wait_until(&disk.point, "seen", |status| status["frees_seen"] == seen);
        let before = daemon.wait_until(&disk.point, "settled", |status| {
            status["mapped"] == true
                && status["totals"]["slices"].as_u64() > Some(0)
                && is_settled(status, fs_type == "ext4")
        });
        let sent = disk.discards().1;
        // While it is stopped it takes no sample and reads no map, so it sees neither the creation nor the removal of
        // the file.
        daemon.signal("STOP");
        disk.fill(["gone".to_owned()], 96 << 20);
        fs::remove_file(disk.point.join("gone")).unwrap();
        disk.sync();
        daemon.signal("CONT");
        if seen {
            daemon.wait_until(&disk.point, "told", |status| {
                status["totals"]["told_freed_bytes"].as_u64() >= Some(96 * MIB)
            });
        } else {
            // Reason enough to read a map.
            disk.fill(["more".to_owned()], 80 << 20);
            disk.sync();
        }
        let status = daemon.wait_until(&disk.point, "looked at", |status| {
            let trimmed = !seen || disk.discards().1 - sent + waits(status) >= 96 * MIB;
            let looked = status["totals"]["looks"].as_u64() > before["totals"]["looks"].as_u64();
            trimmed && looked && is_settled(status, fs_type == "ext4")
        });
        let sent = disk.discards().1 - sent + waits(&status);
        let all = if seen { 96 * MIB..=300 * MIB } else { 0..=waits(&before) };
        assert!(all.contains(&sent), "{fs_type}, seen: {seen}: {sent} bytes sent: {status:#}");
        daemon.end();
        assert!(!instance(&daemon).exists());
    }
}

#[test]
fn lost_frees_are_reported_and_a_map_replaces_them() {
    if !can_run(&["mkfs.ext4"]) || !can_trace() {
        return;
    }
    let disk = Loop::ext4(512 * MIB);
    let (folder, files) = (disk.point.join("many"), 24_000);
    let mut daemon = Daemon::started(TRIMWISED, &config(&disk.point, true));
    daemon.wait_until(&disk.point, "seen", |status| status["frees_seen"] == true);
    fs::create_dir(&folder).unwrap();
    (0..files).for_each(|i| fs::write(folder.join(i.to_string()), b"some bytes").unwrap());
    disk.sync();
    daemon.wait_until(&disk.point, "trimmed", |status| {
        status["mapped"] == true && status["totals"]["slices"].as_u64() > Some(0) && is_settled(status, true)
    });
    // Longer than the buffers last.
    daemon.signal("STOP");
    fs::remove_dir_all(&folder).unwrap();
    disk.sync();
    daemon.signal("CONT");
    let status =
        daemon.wait_until(&disk.point, "lost", |status| status["totals"]["frees_lost"].as_u64() > Some(0));
    daemon.wait_until(&disk.point, "looked at", |now| {
        now["totals"]["looks"].as_u64() > status["totals"]["looks"].as_u64() && is_settled(now, true)
    });
    let explained = daemon.ask(&Request::Explain { mount: disk.point.clone() }).to_string();
    assert!(explained.contains("that were lost"), "{explained}");
    daemon.end();
}

#[test]
fn a_trace_instance_is_removed_on_exit_or_taken_over_after_a_kill() {
    if !can_run(&["mkfs.xfs"]) || !can_trace() {
        return;
    }
    let disk = Loop::xfs(320 * MIB);
    let mut daemon = Daemon::started(TRIMWISED, &config(&disk.point, true));
    let seen = |daemon: &Daemon| {
        daemon.wait_until(&disk.point, "seen", |status| status["frees_seen"] == true);
        let problem = daemon.ask(&Request::Status)["tracepoints_problem"].clone();
        assert!(problem.is_null(), "{problem}");
    };
    seen(&daemon);
    let instance = instance(&daemon);
    let filter = fs::read_to_string(instance.join("events/xfs/xfs_free_extent/filter")).unwrap();
    assert!(filter.starts_with("dev == "), "{filter}");
    let enabled =
        |event: &str| fs::read_to_string(instance.join("events").join(event).join("enable")).unwrap();
    assert_eq!((enabled("xfs/xfs_free_extent").trim(), enabled("ext4/ext4_free_blocks").trim()), ("1", "0"));
    daemon.kill();
    assert!(instance.is_dir());
    daemon.start();
    seen(&daemon);
    // If somebody turns it off, the daemon notices and recreates it.
    fs::write(instance.join("tracing_on"), "0").unwrap();
    daemon.ask(&Request::Reload);
    seen(&daemon);
    assert_eq!(fs::read_to_string(instance.join("tracing_on")).unwrap().trim(), "1");
    daemon.configure(&config(&disk.point, false));
    daemon.ask(&Request::Reload);
    daemon.wait_until(&disk.point, "not seen any more", |status| status["frees_seen"] == false);
    assert!(!instance.exists());
    daemon.end();
}

#[test]
fn without_tracefs_it_reports_why_and_still_works() {
    if !can_run(&["mkfs.ext4", "unshare"]) || !can_trace() {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = Daemon::prepared(TRIMWISED, &config(&disk.point, true));
    daemon.start_in(&["unshare", "-m", "sh", "-c", "umount -l /sys/kernel/tracing && exec \"$@\"", "sh"]);
    daemon.wait_until_trimmed(&disk.point);
    assert_eq!(daemon.status(&disk.point)["frees_seen"], false);
    let problem = daemon.ask(&Request::Status)["tracepoints_problem"].to_string();
    assert!(problem.contains("tracefs is not mounted there"), "{problem}");
    daemon.end();
}
