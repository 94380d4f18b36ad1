//! The daemon when something hangs or has the wrong type: a path to a file system, the disk or the files of its state
//! folder, the reader of its log. It responds, trims as much as it can, and exits.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, OFlags, fcntl_setfl, mknodat};
use serde_json::Value;

use crate::TRIMWISED;
use crate::daemon_options::{SET, turned_on};
use crate::hanging::Hanging;
use trimwise_linux::daemon::control::{Client, Request};
use trimwise_testing::daemon::{Daemon, options, table};
use trimwise_testing::loops::{Loop, can_run, sh};
use trimwise_testing::skipped;

const MIB: u64 = 1 << 20;

/// Waits until `holds`, and panics after a timeout. `let_go` first releases everything that hangs, so that cleaning up
/// works.
#[track_caller]
pub fn wait_until(what: &str, let_go: impl FnOnce(), holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        if Instant::now() >= deadline {
            let_go();
            panic!("never {what}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns true if a process has exited, reaped or not.
fn has_ended(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"))
}

/// Freezes the file system of a state folder until this is dropped.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn new(disk: &'a Loop) -> Self {
        sh("fsfreeze", &["-f", disk.point.to_str().unwrap()]);
        Self(&disk.point)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("fsfreeze").arg("-u").arg(self.0).status();
    }
}

/// A daemon whose state folder is on this disk.
pub fn with_state_on(disk: &Loop, config: &str) -> Daemon {
    let mut daemon = Daemon::prepared(TRIMWISED, config);
    let state = disk.point.join("state").to_str().unwrap().to_owned();
    daemon.arguments = vec!["--state", Box::leak(state.into_boxed_str())];
    daemon
}

pub fn problem(daemon: &Daemon, name: &str) -> String {
    daemon.ask(&Request::Status)[name].as_str().unwrap_or_default().to_owned()
}

#[test]
fn regression_a_path_that_hangs_stops_nothing_else() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return skipped("there is no /dev/fuse, so no folder that hangs can be served");
    }
    let (mut below, other) = (Loop::ext4(64 * MIB), Loop::ext4(256 * MIB));
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let hanging = Hanging::new(place.path());
    let point = hanging.folder();
    below.unmount();
    sh("mount", &[below.node().to_str().unwrap(), point.to_str().unwrap()]);
    let _unmounted = Unmounted(&hanging, point.clone());

    other.fill(["gone".to_owned()], 80 << 20); // worth a map at once when it is freed
    let config = format!("{}[mount.\"{}\"]\n", table(&point, ""), other.point.display());
    let mut daemon = Daemon::started(TRIMWISED, &config);
    daemon.wait_until_trimmed(&point);
    daemon.wait_until_trimmed(&other.point);

    hanging.hangs(true);
    let let_go = || hanging.hangs(false);
    wait_until("told that it hangs", let_go, || {
        daemon.status(&point)["why"].as_str().is_some_and(|why| why.contains("path hangs"))
    });
    let before = daemon.status(&other.point);
    other.fill(["new".to_owned()], 4 << 20);
    wait_until("sampled next to one that hangs", let_go, || {
        daemon.status(&other.point)["used_bytes"].as_u64() > before["used_bytes"].as_u64()
    });
    fs::remove_file(other.point.join("gone")).unwrap();
    other.sync();
    wait_until("trimmed next to one that hangs", let_go, || {
        let status = daemon.status(&other.point);
        status["totals"]["trimmed_bytes"].as_u64() > before["totals"]["trimmed_bytes"].as_u64()
    });
    hanging.hangs(false);
    daemon.wait_until(&point, "sampled again", |status| {
        !status["why"].as_str().is_some_and(|why| why.contains("path hangs"))
    });
    hanging.hangs(true);
    wait_until("told again", let_go, || daemon.status(&point)["reason"]["code"] == "stuck");
    daemon.signal("TERM");
    let process = daemon.process();
    wait_until("ended", let_go, || has_ended(process));
    hanging.hangs(false);
    daemon.kill();
}

struct Unmounted<'a>(&'a Hanging, PathBuf);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        self.0.hangs(false);
        let _ = std::process::Command::new("umount").arg(&self.1).status();
    }
}

#[test]
fn regression_a_frozen_state_folder_blocks_nothing_and_is_written_after_the_thaw() {
    if !can_run(&["mkfs.ext4", "fsfreeze"]) {
        return;
    }
    let (disk, kept) = (Loop::ext4(64 * MIB), Loop::ext4(64 * MIB));
    let mut daemon = with_state_on(&kept, &table(&disk.point, ""));
    daemon.start();
    daemon.wait_until(&disk.point, "managed", |status| !status.is_null());
    let paused = || fs::read_to_string(kept.point.join("state/paused.json")).unwrap_or_default();
    let point = disk.point.to_str().unwrap();

    let frozen = Frozen::new(&kept);
    let mount = disk.point.clone();
    let said =
        daemon.ask(&Request::Pause { mount: Some(mount.clone()), all: false })["not_saved"].to_string();
    assert!(said.contains("paused.json") && said.contains("the next daemon will not know"), "{said}");
    daemon.wait_until(&disk.point, "paused all the same", |status| status["paused"] == true);
    // Either the entries in memory, or the error.
    let asked = Client::connect(&daemon.run()).unwrap().ask(&Request::History { mount, limit: 10 });
    let told = asked.map_or_else(|error| error.to_string(), |past| past.to_string());
    assert!(told.contains("paused") || told.contains("state folder"), "{told}");
    assert!(!paused().contains(point));
    drop(frozen);
    wait_until("saved", || (), || paused().contains(point));

    let frozen = Frozen::new(&kept);
    daemon.ask(&Request::Resume { mount: None });
    daemon.signal("TERM");
    let process = daemon.process();
    wait_until("ended", || drop(Frozen(&kept.point)), || has_ended(process));
    drop(frozen);
    daemon.kill();
}

#[test]
fn regression_options_are_put_back_when_a_frozen_journal_can_be_read_again() {
    if !can_run(&["mkfs.ext4", "fsfreeze"]) {
        return;
    }
    let kept = Loop::ext4(64 * MIB);
    let (disk, mut daemon) = turned_on(|config| with_state_on(&kept, config));
    daemon.kill();
    daemon.configure("");
    let frozen = Frozen::new(&kept);
    daemon.start();
    assert_ne!(problem(&daemon, "state_problem"), "");
    assert!(options(&disk.point).contains(",discard"), "{}", options(&disk.point));
    drop(frozen);
    wait_until("put back", || (), || !options(&disk.point).contains(",discard"));
    daemon.end();
}

#[test]
fn regression_no_option_is_changed_before_the_journal_is_on_the_disk() {
    if !can_run(&["mkfs.ext4", "fsfreeze"]) {
        return;
    }
    let (disk, kept) = (Loop::ext4(128 * MIB), Loop::ext4(64 * MIB));
    disk.fill((0..5).map(|i| format!("file{i}")), 20 << 20);
    let mut daemon = with_state_on(&kept, &table(&disk.point, "policy = \"off\""));
    daemon.start();
    daemon.wait_until(&disk.point, "managed", |status| status["policy"] == "off");
    let frozen = Frozen::new(&kept);
    daemon.configure(&table(&disk.point, SET));
    daemon.ask(&Request::Reload);
    daemon.wait_until(&disk.point, "managed anew", |status| status["policy"] == "set:40:80");
    std::thread::sleep(Duration::from_secs(3));
    assert!(!options(&disk.point).contains(",discard"), "{}", options(&disk.point));
    drop(frozen);
    wait_until("turned on", || (), || options(&disk.point).contains(",discard"));
    assert!(fs::read_to_string(kept.point.join("state/mount-options.json")).unwrap().contains("nodiscard"));
    daemon.end();
}

#[test]
fn regression_invalid_state_files_do_not_stop_it() {
    if !can_run(&[]) {
        return;
    }
    let pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap();
    let huge = |path: &Path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    let garbage = |path: &Path| fs::write(path, [0xff, 0x00, b'{', b'\n'].repeat(1000)).unwrap();
    for make in [&pipe as &dyn Fn(&Path), &huge, &garbage] {
        for name in ["lock", "mount-options.json", "paused.json", "known.json", "history.db"] {
            let mut daemon = Daemon::prepared(TRIMWISED, "");
            fs::create_dir(daemon.state("")).unwrap();
            make(&daemon.state(name));
            daemon.start();
            let said = daemon.ask(&Request::Pause { mount: None, all: true });
            assert!(said["not_saved"].is_null(), "{name}: {said}");
            daemon.end();
        }
    }
}

#[test]
fn regression_a_pipe_in_place_of_the_history_journal_blocks_nothing() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = Daemon::started(TRIMWISED, &table(&disk.point, ""));
    daemon.wait_until(&disk.point, "managed", |status| !status.is_null());
    daemon.end();
    for name in ["history.db-journal", "history.db-wal"] {
        mknodat(CWD, daemon.state(name), FileType::Fifo, 0o600.into(), 0).unwrap();
    }
    daemon.start();
    daemon.wait_until(&disk.point, "managed", |status| !status.is_null());
    let past = daemon.ask(&Request::History { mount: disk.point.clone(), limit: 99 }).to_string();
    assert!(past.matches("\"found\"").count() == 2, "{past}");
    assert!(daemon.ask(&Request::Pause { mount: None, all: true })["not_saved"].is_null());
    daemon.end();
}

#[test]
fn regression_a_frozen_folder_of_the_metrics_socket_blocks_nothing() {
    if !can_run(&["mkfs.ext4", "fsfreeze"]) {
        return;
    }
    let kept = Loop::ext4(64 * MIB);
    let at = |name: &str| kept.point.join(name);
    let config = |name: &str| format!("metrics-socket = \"{}\"\n", at(name).display());
    let mut daemon = Daemon::started(TRIMWISED, &config("one.sock"));
    assert!(at("one.sock").exists());

    let frozen = Frozen::new(&kept);
    daemon.configure(&config("two.sock"));
    let refused = Client::connect(&daemon.run()).unwrap().ask(&Request::Reload).unwrap_err().to_string();
    assert!(refused.contains("two.sock") && refused.contains("does not respond"), "{refused}");
    assert!(problem(&daemon, "config_problem").contains("two.sock"));
    daemon.configure("");
    daemon.ask(&Request::Reload);
    assert_eq!(problem(&daemon, "metrics_problem"), "");
    daemon.signal("TERM");
    let process = daemon.process();
    wait_until("ended", || drop(Frozen(&kept.point)), || has_ended(process));
    daemon.kill();

    daemon.configure(&config("three.sock"));
    daemon.start();
    assert!(problem(&daemon, "metrics_problem").contains("three.sock"));
    drop(frozen);
    wait_until("created", || (), || at("three.sock").exists());
    wait_until("served", || (), || problem(&daemon, "metrics_problem").is_empty());
    daemon.end();
    assert!(!at("three.sock").exists());
}

#[test]
fn regression_an_unread_log_blocks_nothing() {
    if !can_run(&[]) {
        return;
    }
    let daemon = Daemon::prepared(TRIMWISED, "");
    let (theirs, mut ours) = std::io::pipe().unwrap();
    fcntl_setfl(&ours, OFlags::NONBLOCK).unwrap();
    while ours.write(&[b'\n'; 4096]).is_ok() {} // full
    fcntl_setfl(&ours, OFlags::empty()).unwrap();
    let mut child = daemon.command(&[]).stderr(ours).spawn().unwrap();
    let connected = || Client::connect(&daemon.run()).and_then(|mut client| client.ask(&Request::Status));
    wait_until("answering", || drop(std::process::Command::new("true").status()), || connected().is_ok());
    daemon.configure("policy = \"never\"\n");
    let dropped = |status: &Value| status["log_lines_dropped"].as_u64();
    let mut client = Client::connect(&daemon.run()).unwrap();
    // Each is a warning of some lines.
    for _ in 0..3_000 {
        client.ask(&Request::Reload).unwrap_err();
    }
    assert!(dropped(&connected().unwrap()) > Some(0));
    sh("kill", &[&child.id().to_string()]);
    let process = child.id();
    wait_until("ended", || (), || has_ended(process));
    assert!(child.wait().unwrap().success());
    drop(theirs);
}
