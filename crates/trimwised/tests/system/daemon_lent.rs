//! Space that is lent: the daemon gives it back at low water, and knows when nobody knows how full the lender is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::TRIMWISED;
use trimwise_linux::daemon::control::Request;
use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run, sh};

const MIB: u64 = 1 << 20;
/// A pool of 1,600 chunks of 64 KiB.
const TABLE: &str = "0 204800 thin-pool 253:1 253:2 128 0 1 skip_block_zeroing";

fn status_of(used: u64) -> String {
    format!("0 204800 thin-pool 1 130/1024 {used}/1600 - rw discard_passdown queue_if_no_space - 1024\n")
}

/// Makes a daemon take a loop device for a thin pool: in its mounts, sysfs calls it one, and `dmsetup` is a script.
struct FakePool {
    folder: tempfile::TempDir,
    start: String,
}

impl FakePool {
    fn new(device: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for name in ["bin", "real", "fake/dm"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("fake/dm/name"), "vg-pool\n").unwrap();
        fs::write(at("fake/dm/uuid"), "LVM-abc-tpool\n").unwrap();
        let start = format!(
            "set -e; mount --bind /sys/devices/virtual/block/{device} {real}; \
             for one in {real}/*; do ln -sfn $one {fake}/; done; \
             mount --bind {fake} /sys/devices/virtual/block/{device}; PATH={bin}:$PATH exec \"$@\"",
            real = at("real"),
            fake = at("fake"),
            bin = at("bin")
        );
        Self { folder, start }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn answers(&self, status: &str) {
        fs::write(self.path("status"), status).unwrap();
        let of_status = format!("cat {}", self.path("status").display());
        self.script(&format!("case $1 in table) echo '{TABLE}';; status) {of_status};; esac"));
    }

    fn script(&self, lines: &str) {
        let program = self.path("bin/dmsetup");
        fs::write(&program, format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&self, daemon: &mut Daemon) {
        daemon.start_in(&["unshare", "--mount", "sh", "-c", &self.start, "sh"]);
    }
}

fn history(daemon: &Daemon, point: &Path) -> String {
    daemon.ask(&Request::History { mount: point.to_owned(), limit: 100 }).to_string()
}

#[test]
fn a_pool_at_low_water_gets_all_back_once_and_a_failed_one_is_unknown() {
    if !can_run(&["mkfs.ext4", "unshare"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let pool = FakePool::new(&disk.device);
    pool.answers(&status_of(1264));
    // It would not trim for a week.
    let mut daemon = Daemon::prepared(TRIMWISED, &table(&disk.point, "policy = \"batch:1w\""));
    pool.start(&mut daemon);
    let level = |percent: u64| {
        move |status: &serde_json::Value| {
            let level = &status["lender"]["level"];
            level["used_bytes"]
                .as_u64()
                .is_some_and(|used| used * 100 / level["size_bytes"].as_u64().unwrap() == percent)
        }
    };
    let status = daemon.wait_until(&disk.point, "79 % full", level(79));
    assert_eq!(
        (&status["purpose"], &status["lender"]["name"]),
        (&"space".into(), &"thin pool vg-pool".into())
    );
    assert_eq!(status["lender"]["level"]["metadata_percent"], 12);
    assert!(status["lender"]["held_bytes"].is_null() && status["held_beyond_use_bytes"].is_null());
    assert_eq!(status["totals"]["slices"], 0, "{status:#}");

    // What is written fills the pool, and so it is read again.
    pool.answers(&status_of(1360));
    fs::write(disk.point.join("file"), vec![1; 4 << 20]).unwrap();
    sh("sync", &[]);
    let trimmed = daemon.wait_until(&disk.point, "given back", |status| {
        status["totals"]["trimmed_bytes"].as_u64() > Some(30 * MIB) && status["waiting_bytes"] == 0
    });
    assert!(level(85)(&trimmed), "{trimmed:#}");
    let told = history(&daemon, &disk.point);
    assert!(told.contains("low-water") && told.contains("thin pool vg-pool is 85 % full"), "{told}");
    let explained = daemon.ask(&Request::Explain { mount: disk.point.clone() }).to_string();
    assert!(
        explained.contains("Its space is lent by thin pool vg-pool (85 % full, 12 % of its metadata)"),
        "{explained}"
    );
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(daemon.status(&disk.point)["totals"]["slices"], trimmed["totals"]["slices"], "once");

    pool.answers("0 204800 thin-pool Fail\n");
    fs::write(disk.point.join("more"), vec![1; 4 << 20]).unwrap();
    sh("sync", &[]);
    let unknown = daemon.wait_until(&disk.point, "unknown", |status| status["lender"]["level"].is_null());
    assert_eq!(unknown["lender"]["why_unknown"], "its status is '0 204800 thin-pool Fail'");
    daemon.end();

    // One that hangs is given up, and ends with the worker that waits for it.
    pool.script(&format!("echo $$ >{}; exec sleep 1000", pool.path("pid").display()));
    daemon.arguments = vec!["--helper-patience-s", "2"];
    pool.start(&mut daemon);
    let unknown =
        daemon.wait_until(&disk.point, "given up", |status| status["lender"]["why_unknown"].is_string());
    assert_eq!(unknown["lender"]["why_unknown"], "no answer in 2 s");
    let pid = fs::read_to_string(pool.path("pid")).unwrap();
    let proc = Path::new("/proc").join(pid.trim()).join("cmdline");
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&proc).is_ok_and(|text| text.contains("sleep")) {
        assert!(Instant::now() < deadline, "dmsetup still hangs");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(daemon.log().contains("how full lenders of space are is unknown"), "{}", daemon.log());
    daemon.end();
}

/// An image's file system lends, too, if the purpose is asked for.
#[test]
fn an_image_gives_space_back_when_its_file_system_runs_full_only_if_that_is_the_purpose() {
    if !can_run(&["mkfs.ext4", "fallocate"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = Daemon::started(TRIMWISED, &table(&disk.point, "policy = \"batch:1w\""));
    let status = daemon.wait_until(&disk.point, "managed", |status| !status.is_null());
    assert_eq!((&status["purpose"], status["lender"].is_null()), (&"flash".into(), true));
    daemon.configure(&table(&disk.point, "policy = \"batch:1w\"\npurpose = \"space\""));
    daemon.ask(&Request::Reload);
    let status = daemon.wait_until(&disk.point, "read", |status| status["lender"]["level"].is_object());
    let lender = &status["lender"];
    assert_eq!(status["purpose"], "space");
    assert!(lender["name"].as_str().unwrap().starts_with("the file system on /"), "{lender:#}");
    let held = lender["held_bytes"].as_u64().unwrap();
    assert!((1..=64 * MIB).contains(&held), "{held}");
    let used = status["used_bytes"].as_u64().unwrap();
    assert_eq!(status["held_beyond_use_bytes"], held.saturating_sub(used));
    daemon.end();
}
