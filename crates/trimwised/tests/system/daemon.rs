//! The daemon on real file systems, each on its own loop device: its trims, and its behaviour when it is killed, or
//! when a file system is unmounted, resized, filled or broken.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use crate::TRIMWISED;
use trimwise_linux::daemon::control::{Client, Request};
use trimwise_linux::host_root::HostRoot;
use trimwise_testing::daemon::{Daemon, options, table};
use trimwise_testing::loops::{Loop, can_run, sh};

const MIB: u64 = 1 << 20;

fn started(config: &str) -> Daemon {
    Daemon::started(TRIMWISED, config)
}

/// The contents of all files of a mount, which must never change.
fn bytes_of(point: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(point).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file());
    files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// Unmounts it and runs its checker, which must find no error.
fn check(disk: &mut Loop, fs_type: &str) {
    disk.unmount();
    let node = disk.node();
    let node = node.to_str().unwrap();
    match fs_type {
        "ext4" => sh("e2fsck", &["-fn", node]),
        "xfs" => sh("xfs_repair", &["-n", node]),
        _ => sh("btrfs", &["check", node]),
    };
}

#[test]
fn what_is_freed_is_trimmed_once_on_ext4_and_xfs() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs", "e2fsck", "xfs_repair"]) {
        return;
    }
    for fs_type in ["ext4", "xfs"] {
        let mut disk = if fs_type == "ext4" { Loop::ext4(768 * MIB) } else { Loop::xfs(768 * MIB) };
        let before_all = disk.discards().1; // from earlier users of the loop device
        disk.fill((0..12).map(|i| format!("file{i}")), 24 << 20);
        let mut daemon = started(&table(&disk.point, ""));
        daemon.wait_until_trimmed(&disk.point);
        let backlog = disk.discards().1 - before_all;
        let free = 768 * MIB - 288 * MIB;
        assert!((free / 2..=free).contains(&backlog), "{fs_type}: {backlog}");

        for i in (0..8).step_by(2) {
            fs::remove_file(disk.point.join(format!("file{i}"))).unwrap();
        }
        disk.sync();
        let freed = 96 * MIB;
        let status = daemon.wait_until(&disk.point, "seen to be freed", |status| {
            status["totals"]["freed_bytes"].as_u64() > Some(freed / 2) && status["waiting_bytes"] == 0
        });
        let sent = disk.discards().1 - before_all - backlog;
        assert!((freed * 9 / 10..=freed * 2).contains(&sent), "{fs_type}: {sent} of {freed}: {status:#}");
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(disk.discards().1 - before_all - backlog, sent, "{fs_type}: nothing is trimmed twice");

        let before = bytes_of(&disk.point);
        daemon.end();
        disk.remount();
        assert!(bytes_of(&disk.point) == before, "{fs_type}: a file has other bytes");
        check(&mut disk, fs_type);
    }
}

#[test]
fn online_discard_is_turned_on_and_put_back_at_the_end_and_after_a_kill() {
    if !can_run(&["mkfs.ext4", "mkfs.btrfs", "e2fsck", "btrfs"]) {
        return;
    }
    let ext4 = Loop::ext4(256 * MIB);
    let btrfs = Loop::new(256 * MIB, &["mkfs.btrfs", "-q", "-K"]);
    sh("mount", &["-o", "remount,nodiscard,noatime", btrfs.point.to_str().unwrap()]);
    sh("mount", &["-o", "remount,nosuid,noexec", ext4.point.to_str().unwrap()]);
    ext4.fill((0..9).map(|i| format!("file{i}")), 24 << 20); // above the watermark of 80 %
    for (mut disk, fs_type, policy, on) in [
        (ext4, "ext4", "toggle = true\npolicy = \"set:40:80\"", ",discard"),
        (btrfs, "btrfs", "toggle = true", "discard=async"),
    ] {
        let before = options(&disk.point);
        assert!(!before.contains(on), "{before}");
        let mut daemon = started(&table(&disk.point, policy));
        let is_on = |status: &serde_json::Value| status["reason"]["code"] == "online";
        daemon.wait_until(&disk.point, "online", is_on);
        let during = options(&disk.point);
        assert!(during.contains(on), "{during}");
        daemon.end();
        assert_eq!(options(&disk.point), before, "at its end");
        daemon.start();
        daemon.wait_until(&disk.point, "online", is_on);
        daemon.kill();
        assert!(options(&disk.point).contains(on), "{}", options(&disk.point));
        daemon.configure(&table(&disk.point, "toggle = false"));
        daemon.start();
        assert_eq!(options(&disk.point), before, "the next daemon puts it back");
        daemon.end();
        check(&mut disk, fs_type);
    }
}

#[test]
fn killed_at_any_point_it_leaves_a_sound_file_system() {
    if !can_run(&["mkfs.ext4", "e2fsck"]) {
        return;
    }
    // 200 with `just full`.
    let kills: u64 = std::env::var("KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let mut disk = Loop::ext4(512 * MIB);
    disk.fill((0..10).map(|i| format!("kept{i}")), 4 << 20);
    let (data, before) = (bytes_of(&disk.point), options(&disk.point));
    let policies =
        ["policy = \"judicious\"", "toggle = true\npolicy = \"set:1:2\"", "toggle = true\npolicy = \"lazy\""];
    let mut daemon = Daemon::prepared(TRIMWISED, "");
    let mut random = 0x9e37_79b9_u64;
    for kill in 0..kills {
        daemon.configure(&table(&disk.point, policies[(kill % 3) as usize]));
        daemon.start();
        disk.fill(["gone".to_owned()], 80 << 20);
        fs::remove_file(disk.point.join("gone")).unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if kill % 2 == 0 {
            let mount = disk.point.clone();
            let _ =
                Client::connect(&daemon.run()).and_then(|mut client| client.ask(&Request::Trim { mount }));
        }
        std::thread::sleep(Duration::from_millis((random >> 33) % 1500));
        daemon.kill();
    }
    daemon.configure(&table(&disk.point, "policy = \"off\"\ntoggle = false"));
    daemon.start();
    assert_eq!(options(&disk.point), before);
    let mount = disk.point.clone();
    let history = daemon.ask(&Request::History { mount, limit: 1000 });
    assert!(history["entries"].is_array(), "{history}");
    daemon.end();
    disk.remount();
    assert!(bytes_of(&disk.point) == data, "a file has other bytes");
    check(&mut disk, "ext4");
}

#[test]
fn a_file_system_may_go_be_read_only_be_filled_and_grow() {
    if !can_run(&["mkfs.xfs", "xfs_repair", "xfs_growfs"]) {
        return;
    }
    let mut disk = Loop::xfs(320 * MIB);
    let point = disk.point.clone();
    let point_text = point.to_str().unwrap().to_owned();
    let mut daemon = started(&table(&point, ""));
    daemon.wait_until_trimmed(&point);
    let sent = disk.discards();

    sh("mount", &["-o", "remount,ro", &point_text]);
    daemon.wait_until(&point, "passed over while it is read-only", serde_json::Value::is_null);
    let skipped = daemon.ask(&Request::Status)["skipped"].to_string();
    assert!(skipped.contains("read-only"), "{skipped}");
    sh("mount", &["-o", "remount,rw", &point_text]);
    daemon.wait_until(&point, "managed again", |status| {
        status["mapped"] == true && status["waiting_bytes"] == 0
    });
    assert_eq!(disk.discards(), sent, "nothing is sent again");

    // Fill it to the last block, and empty it again.
    let looks = daemon.status(&point)["totals"]["looks"].as_u64();
    let fill = std::process::Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", &format!("of={point_text}/full")])
        .stderr(std::process::Stdio::null())
        .status();
    assert!(!fill.unwrap().success(), "it is full");
    disk.sync();
    daemon.wait_until(&point, "full and looked at", |status| {
        status["used_bytes"].as_u64() > status["total_bytes"].as_u64().map(|total| total * 9 / 10)
            && status["totals"]["looks"].as_u64() > looks
    });
    fs::remove_file(point.join("full")).unwrap();
    disk.sync();
    daemon.wait_until(&point, "trimmed again", |status| {
        status["totals"]["freed_bytes"].as_u64() > Some(100 * MIB) && status["waiting_bytes"] == 0
    });

    fs::File::options().write(true).open(&disk.image).unwrap().set_len(600 * MIB).unwrap();
    sh("losetup", &["-c", disk.node().to_str().unwrap()]);
    sh("xfs_growfs", &["-d", &point_text]);
    daemon.wait_until(&point, "larger", |status| status["total_bytes"].as_u64() > Some(400 * MIB));
    daemon.wait_until_trimmed(&point);

    // Nothing of it is open between two slices, so an unmount soon succeeds.
    let gone = (0..100).any(|_| {
        let done =
            std::process::Command::new("umount").arg(&point).stderr(std::process::Stdio::null()).status();
        done.unwrap().success() || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(gone);
    disk.was_unmounted();
    daemon.wait_until(&point, "gone", serde_json::Value::is_null);
    disk.mount();
    daemon.wait_until_trimmed(&point);
    let history = daemon.ask(&Request::History { mount: point, limit: 1000 }).to_string();
    assert!(
        history.contains("\"found\"") && history.contains("\"gone\"") && history.contains("\"trimmed\""),
        "{history}"
    );
    daemon.end();
    check(&mut disk, "xfs");
}

#[test]
fn two_daemons_a_broken_configuration_and_a_corrupt_history() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = Daemon::prepared(TRIMWISED, &table(&disk.point, "policy = \"lazy\""));
    fs::create_dir(daemon.state("")).unwrap();
    fs::write(daemon.state("history.db"), vec![7; 10_000]).unwrap();
    daemon.start();
    daemon.wait_until(&disk.point, "managed", |status| status["policy"] == "lazy");

    let second = daemon.output(&[]);
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(
        said.contains("another trimwised uses it") && said.contains(&daemon.process().to_string()),
        "{said}"
    );

    let history = daemon.ask(&Request::History { mount: disk.point.clone(), limit: 9 });
    assert!(history.to_string().contains("found"), "{history}");
    assert_eq!(fs::read(daemon.state("history.db.aside")).unwrap(), vec![7; 10_000]);

    daemon.configure("policy = \"never\"\nslice-ms = 0\n");
    daemon.signal("HUP");
    let problem = |daemon: &Daemon| daemon.ask(&Request::Status)["config_problem"].clone();
    for _ in 0..500 {
        if !problem(&daemon).is_null() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = problem(&daemon);
    assert!(
        told.as_str().unwrap().contains("trimwise.toml:2: policy") && told.to_string().contains("slice-ms"),
        "{told}"
    );
    assert_eq!(daemon.status(&disk.point)["policy"], "lazy", "the old one is kept");

    daemon.configure(&table(&disk.point, "policy = \"off\""));
    daemon.ask(&Request::Reload);
    daemon.wait_until(&disk.point, "managed anew", |status| status["policy"] == "off");
    assert!(problem(&daemon).is_null());
    let output = Daemon::prepared(TRIMWISED, "colour = 1\n").output(&[]);
    assert_eq!(output.status.code(), Some(2));
    daemon.end();
}

#[test]
fn once_trims_everything_and_ends_and_a_dry_run_changes_nothing() {
    if !can_run(&["mkfs.xfs", "mkfs.ext4"]) {
        return;
    }
    let (xfs, ext4) = (Loop::xfs(400 * MIB), Loop::ext4(200 * MIB));
    let config = format!("{}[mount.\"{}\"]\n", table(&xfs.point, "policy = \"off\""), ext4.point.display());
    let daemon = Daemon::prepared(TRIMWISED, &config);
    let before = (xfs.discards().1, ext4.discards().1);
    let dry = daemon.output(&["--once", "--dry-run"]);
    assert!(dry.status.success(), "{dry:?}");
    assert_eq!((xfs.discards().1, ext4.discards().1), before);
    let done = daemon.output(&["--once"]);
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && said.contains(" bytes) trimmed"), "{said} {:?}", done.stderr);
    assert!(xfs.discards().1 - before.0 > 200 * MIB && ext4.discards().1 - before.1 > 100 * MIB, "{said}");
}

/// The kernel gives the new mount the numbers and the id of the old one.
#[test]
fn regression_another_file_system_that_came_to_the_same_place_between_two_looks_is_trimmed_too() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(256 * MIB);
    disk.fill(["gone".to_owned()], 80 << 20);
    fs::remove_file(disk.point.join("gone")).unwrap();
    disk.unmount();
    let other = disk.copy();
    disk.mount();
    let mut daemon = started(&table(&disk.point, ""));
    daemon.wait_until_trimmed(&disk.point);
    let full = other.allocated();
    daemon.signal("STOP");
    disk.unmount();
    let node = disk.node();
    let node = node.to_str().unwrap();
    sh("losetup", &["-d", node]);
    sh("losetup", &[node, other.image.to_str().unwrap()]);
    disk.mount();
    daemon.signal("CONT");
    daemon.wait_until(&disk.point, "trimmed", |_| full - other.allocated() >= 70 * MIB);
    daemon.end();
}

#[test]
fn a_mount_point_that_json_cannot_name_is_skipped() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut odd) = (Loop::ext4(64 * MIB), Loop::ext4(64 * MIB));
    odd.unmount();
    let point = odd.point.with_file_name(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&point).unwrap();
    let points = [point];
    let _unmounted = Unmounted(&points);
    let mounted = std::process::Command::new("mount").arg(odd.node()).arg(&points[0]).status();
    assert!(mounted.unwrap().success());
    let mut daemon = started(&table(&disk.point, ""));
    daemon.wait_until_trimmed(&disk.point);
    let status = daemon.ask(&Request::Status);
    let skipped = status["skipped"].as_array().unwrap();
    let told = skipped.iter().find(|one| one["mount_point"].as_str().unwrap().contains("caf\u{fffd}"));
    assert!(told.is_some_and(|one| one["why"].as_str().unwrap().contains("UTF-8")), "{status:#}");
    let report = trimwise_linux::doctor::examine(&HostRoot::default(), &daemon.run(), None).unwrap();
    assert!(serde_json::to_string(&report).unwrap().contains("caf\u{fffd}"));
    daemon.end();
}

#[test]
fn a_flood_of_mounts_is_one_file_system_and_a_link_in_a_path_leads_nowhere() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    fs::create_dir(disk.point.join("folder")).unwrap();
    let before = disk.discards().1;
    let here = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // 1,000 with `just full`.
    let n: usize = std::env::var("MOUNTS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let points: Vec<_> = (0..n).map(|i| here.path().join(format!("m{i}"))).collect();
    let _unmounted = Unmounted(&points);
    for (i, point) in points.iter().enumerate() {
        fs::create_dir(point).unwrap();
        let at = point.to_str().unwrap();
        match i % 3 {
            0 => sh("mount", &["-t", "tmpfs", "-o", "size=4k", "tmpfs", at]),
            1 => sh("mount", &["--bind", disk.point.to_str().unwrap(), at]),
            _ => sh("mount", &["--bind", disk.point.join("folder").to_str().unwrap(), at]),
        };
    }
    let mut daemon = started(&table(&disk.point, ""));
    daemon.wait_until_trimmed(&disk.point);
    let all = daemon.ask(&Request::Status);
    assert_eq!(all["file_systems"].as_array().unwrap().len(), 1);
    let binds = all["skipped"].to_string().matches("the same file system as").count();
    assert_eq!(binds, n - n.div_ceil(3));
    assert!(disk.discards().1 - before <= 64 * MIB, "once, not once for each mount");

    // Replace its folder by a link: the mount moves with the folder, and nothing else is touched.
    daemon.end();
    let other = Loop::ext4(64 * MIB);
    let before = other.discards().1;
    let folder = disk.point.parent().unwrap().to_owned();
    let moved = folder.with_extension("moved");
    fs::rename(&folder, &moved).unwrap();
    std::os::unix::fs::symlink(other.point.parent().unwrap(), &folder).unwrap();
    daemon.configure(&table(&moved.join("mounted"), ""));
    daemon.start();
    // It uses what the daemon before it knew: it is the same mount.
    daemon.wait_until(&moved.join("mounted"), "looked at", |status| {
        status["mapped"] == true && status["waiting_bytes"] == 0
    });
    let asked = Client::connect(&daemon.run()).unwrap().ask(&Request::Trim { mount: disk.point.clone() });
    assert!(asked.unwrap_err().to_string().contains("no file system"));
    assert_eq!(other.discards().1, before);
    daemon.end();
    fs::remove_file(&folder).unwrap();
    fs::rename(&moved, &folder).unwrap();
}

/// With fewer descriptors than devices, the daemon works too, and reports it.
#[test]
fn regression_many_file_systems_are_all_sampled_whatever_the_limit_of_open_files() {
    if !can_run(&["mkfs.ext4", "prlimit"]) {
        return;
    }
    // 2,000 with `just full`.
    let n: usize = std::env::var("FILE_SYSTEMS").ok().and_then(|text| text.parse().ok()).unwrap_or(70);
    let disks: Vec<Loop> = (0..n)
        .map(|_| Loop::new(4 * MIB, &["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "nodiscard"]))
        .collect();
    let tables = disks.iter().skip(1).map(|disk| format!("[mount.\"{}\"]\n", disk.point.display()));
    let config = table(&disks[0].point, "") + &tables.collect::<String>();
    let mut daemon = Daemon::prepared(TRIMWISED, &config);
    let limits = |daemon: &Daemon| daemon.ask(&Request::Status)["limits_problem"].clone();
    let all_are_seen = |daemon: &Daemon| {
        for disk in &disks {
            daemon.wait_until(&disk.point, "sampled", |status| status["total_bytes"].as_u64() > Some(MIB));
        }
    };
    daemon.start();
    all_are_seen(&daemon);
    assert!(limits(&daemon).is_null(), "{}", limits(&daemon));
    // Changes are noticed among many too.
    sh("mount", &["-o", "remount,ro", disks[3].point.to_str().unwrap()]);
    daemon.wait_until(&disks[3].point, "passed over", serde_json::Value::is_null);
    sh("mount", &["-o", "remount,rw", disks[3].point.to_str().unwrap()]);
    daemon.wait_until(&disks[3].point, "managed again", |status| !status.is_null());
    daemon.end();
    daemon.start_in(&["prlimit", "--nofile=100:100"]);
    all_are_seen(&daemon);
    assert!(limits(&daemon).to_string().contains("RLIMIT_NOFILE"), "{}", limits(&daemon));
    daemon.end();
}

struct Unmounted<'a>(&'a [std::path::PathBuf]);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        for point in self.0 {
            let _ =
                std::process::Command::new("umount").arg(point).stderr(std::process::Stdio::null()).status();
        }
    }
}

/// Helpers that answer as FITRIM may: with a temporary error, a permanent one, or not at all.
#[test]
fn errors_of_fitrim_are_reported_and_do_not_block_the_daemon() {
    use trimwised::Places;
    use trimwised::service::{Options, PATIENCE, run};

    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let before = disk.discards();
    for (answer, words) in [
        (
            r#"echo '{"is":"again","message":"FITRIM: Input/output error (os error 5)"}'"#,
            "Input/output error",
        ),
        (r#"echo '{"is":"again","message":"FITRIM: Interrupted system call"}'"#, "Interrupted system call"),
        (r#"echo '{"is":"never","message":"FITRIM: Operation not supported"}'"#, "Operation not supported"),
        ("exit 3", "the helper ended without an answer (exit status: 3)"),
        ("kill -9 $$", "the helper ended without an answer (signal: 9"),
        ("echo nonsense", "the helper ended without an answer"),
        ("head -c 9000000 /dev/zero", "the helper ended without an answer"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (program, config) = (folder.path().join("helper"), folder.path().join("trimwise.toml"));
        let probed = r#"{"is":"probed","identity":[0,0],"block":4096,"group":134217728,"first_group":0,"total":67108864,"maps":true}"#;
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = helper ] || exec '{TRIMWISED}' \"$@\"\nread -r line\ncase \"$line\" in\n*probe*) \
             echo '{probed}';;\n\
             *look*) printf '0 1048576\\n2097152 \
             4194304\\n{{\"is\":\"looked\",\"extents\":2,\"from\":0,\"upto\":67108864}}\\n';;\n*) {answer};;\nesac\n"
        );
        // Write it in another process: a file open for writing here could be inherited, and busy, in a child of another
        // test.
        sh(
            "sh",
            &["-c", "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", &script, program.to_str().unwrap()],
        );
        fs::write(&config, format!("manage = \"listed\"\n{}", table(&disk.point, ""))).unwrap();
        let (state, run_folder) = (folder.path().join("state"), folder.path().join("run"));
        let places = Places { config, state, run: run_folder, ..Places::default() };
        let error = run(Options { places, dry_run: false, once: true, program, patience: PATIENCE })
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "'{words}' is not in: {error}");
    }
    assert_eq!(disk.discards(), before);
}
