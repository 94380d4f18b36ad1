//! Mount options that the daemon changed, and how it restores them: on the mounting that it changed and no other.

use std::fs;
use std::path::Path;

use crate::TRIMWISED;
use trimwise_linux::daemon::control::Request;
use trimwise_testing::daemon::{Daemon, options, table};
use trimwise_testing::loops::{Loop, can_run, sh};

const MIB: u64 = 1 << 20;
pub const SET: &str = "toggle = true\npolicy = \"set:40:80\"";

/// An ext4 so full that `set:40:80` wants online discard, and a daemon that turned it on.
pub fn turned_on(prepared: impl FnOnce(&str) -> Daemon) -> (Loop, Daemon) {
    let disk = Loop::ext4(128 * MIB);
    disk.fill((0..5).map(|i| format!("file{i}")), 20 << 20);
    assert!(!options(&disk.point).contains(",discard"));
    let mut daemon = prepared(&table(&disk.point, SET));
    daemon.start();
    daemon.wait_until(&disk.point, "online", |status| status["reason"]["code"] == "online");
    assert!(options(&disk.point).contains(",discard"));
    (disk, daemon)
}

/// The mountinfo line of a file system, even if something is mounted over it.
fn line_of(disk: &Loop) -> String {
    let node = disk.node();
    let text = fs::read("/proc/self/mountinfo").unwrap();
    let text = String::from_utf8_lossy(&text); // other tests mount on names that are not UTF-8
    text.lines().find(|line| line.contains(&format!(" {} ", node.display()))).unwrap().to_owned()
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..900 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("never {what}");
}

#[test]
fn a_mount_on_top_is_left_alone_and_the_one_below_is_put_back_when_it_is_reached_again() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut daemon) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    daemon.kill();
    let top = Loop::ext4(64 * MIB);
    sh("mount", &["-o", "remount,discard", top.point.to_str().unwrap()]);
    sh("mount", &[top.node().to_str().unwrap(), disk.point.to_str().unwrap()]);
    daemon.configure("");
    daemon.start();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(line_of(&top).contains(",discard"), "{}", line_of(&top));
    assert!(line_of(&disk).contains(",discard"), "{}", line_of(&disk));
    sh("umount", &[disk.point.to_str().unwrap()]);
    wait_until("put back", || !line_of(&disk).contains(",discard"));
    assert!(line_of(&top).contains(",discard"));
    daemon.end();
}

/// Kills the daemon again and again while `settings` make it change online discard of `disk`, and checks that the next
/// one puts it back. `is_on` is whether it is in effect.
fn is_put_back_after_any_kill(disk: &Loop, settings: &str, is_on: impl Fn() -> bool) {
    // 200 with `just full`.
    let kills: u64 = std::env::var("KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let before = is_on();
    let mut daemon = Daemon::prepared(TRIMWISED, "");
    let (mut random, mut changed) = (0x9e37_79b9_u64, 0);
    for kill in 0..kills {
        daemon.configure(&table(&disk.point, settings));
        daemon.start();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Half of them after the change, the others at any point on the way to it.
        let within_ms = if kill % 2 == 0 {
            wait_until("changed", || is_on() != before);
            100
        } else {
            3000
        };
        std::thread::sleep(std::time::Duration::from_millis((random >> 33) % within_ms));
        changed += u64::from(is_on() != before);
        daemon.kill();
        if kill % 4 == 3 {
            daemon.configure(&table(&disk.point, "policy = \"off\"\ntoggle = false"));
            daemon.start();
            let history = daemon.ask(&Request::History { mount: disk.point.clone(), limit: 30 });
            assert_eq!(is_on(), before, "kill {kill}: {history:#}");
            daemon.end();
        }
    }
    daemon.configure(&table(&disk.point, "policy = \"off\"\ntoggle = false"));
    daemon.start();
    assert_eq!(is_on(), before, "{}", daemon.log());
    daemon.end();
    println!("changed at {changed} of {kills} kills");
    assert!(changed >= kills / 2);
}

/// Mountinfo does not show `discard` where the superblock turns it on.
#[test]
fn discard_of_the_superblock_is_put_back_after_any_kill() {
    if !can_run(&["mkfs.ext4", "tune2fs"]) {
        return;
    }
    let mut disk = Loop::ext4(128 * MIB);
    disk.unmount();
    sh("tune2fs", &["-o", "discard", disk.node().to_str().unwrap()]);
    disk.mount();
    let is_on = || {
        let options = fs::read_to_string(format!("/proc/fs/ext4/{}/options", disk.device)).unwrap();
        options.lines().any(|line| line == "discard")
    };
    assert!(is_on());
    // It is almost empty, so this policy wants it off.
    is_put_back_after_any_kill(&disk, SET, is_on);
}

#[test]
fn discard_of_btrfs_is_put_back_after_any_kill() {
    if !can_run(&["mkfs.btrfs"]) {
        return;
    }
    let disk = Loop::new(256 * MIB, &["mkfs.btrfs", "-q", "-K"]);
    sh("mount", &["-o", "remount,nodiscard", disk.point.to_str().unwrap()]);
    is_put_back_after_any_kill(&disk, "toggle = true", || options(&disk.point).contains("discard=async"));
}

#[test]
fn a_remount_keeps_its_own_options() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut daemon) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    daemon.kill();
    let point = disk.point.to_str().unwrap();
    sh("umount", &[point]);
    sh("mount", &["-o", "discard", disk.node().to_str().unwrap(), point]);
    daemon.configure("");
    daemon.start();
    daemon.end();
    assert!(options(&disk.point).contains(",discard"), "{}", options(&disk.point));
    assert!(!fs::read_to_string(daemon.state("mount-options.json")).unwrap().contains("nodiscard"));
}

#[test]
fn regression_what_is_unmounted_lazily_is_put_back_when_it_is_seen_again() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (mut disk, mut daemon) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    let held = fs::File::open(disk.point.join("file0")).unwrap();
    sh("umount", &["--lazy", disk.point.to_str().unwrap()]);
    disk.was_unmounted();
    daemon.wait_until(&disk.point, "gone", serde_json::Value::is_null);
    daemon.end();
    let journal = || fs::read_to_string(daemon.state("mount-options.json")).unwrap();
    assert!(journal().contains("nodiscard"), "{}", journal());
    // To the kernel it is the same mounting, with the option as it was left.
    disk.mount();
    assert!(options(&disk.point).contains(",discard"));
    daemon.configure("");
    daemon.start();
    wait_until("put back", || !options(&disk.point).contains(",discard"));
    drop(held);
    daemon.end();
    assert!(!fs::read_to_string(daemon.state("mount-options.json")).unwrap().contains("nodiscard"));
}

/// Samples report changes only. A file system that is let go and taken again during a single round has changed in
/// nothing, and was never sampled again.
#[test]
fn regression_a_mount_managed_anew_within_one_round_of_samples_is_sampled() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut daemon) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    let sampler = sh("pgrep", &["--parent", &daemon.process().to_string(), "--full", " sample"]);
    sh("kill", &["-s", "STOP", sampler.trim()]);
    std::thread::sleep(std::time::Duration::from_secs(2)); // a round is in progress, and waits
    daemon.configure(&table(&disk.point, "policy = \"off\""));
    daemon.ask(&Request::Reload);
    wait_until("put back", || !options(&disk.point).contains(",discard"));
    let is_taken_again = || {
        let all = daemon.ask(&Request::Status);
        let all = all["file_systems"].as_array().unwrap();
        all.iter().any(|one| one["mount_point"] == disk.point.to_str().unwrap() && one["status"].is_null())
    };
    wait_until("taken again", is_taken_again);
    sh("kill", &["-s", "CONT", sampler.trim()]);
    daemon.wait_until(&disk.point, "managed anew", |status| status["policy"] == "off");
    daemon.end();
}

#[test]
fn another_policy_begins_with_the_option_as_it_was() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut daemon) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    daemon.configure(&table(&disk.point, "policy = \"off\""));
    daemon.ask(&Request::Reload);
    wait_until("put back", || !options(&disk.point).contains(",discard"));
    daemon.wait_until(&disk.point, "managed anew", |status| status["policy"] == "off");
    assert!(!options(&disk.point).contains(",discard"));
    daemon.end();
}

#[test]
fn regression_the_users_option_is_left_alone_by_default() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(128 * MIB);
    sh("mount", &["-o", "remount,discard", disk.point.to_str().unwrap()]);
    let mut daemon = Daemon::started(TRIMWISED, &table(&disk.point, ""));
    let status = daemon.wait_until(&disk.point, "online", |status| status["reason"]["code"] == "online");
    assert_eq!(status["reason"]["fixed"], true, "{status:#}");
    daemon.end();
    assert!(options(&disk.point).contains(",discard"));
}

#[test]
fn regression_an_option_changed_by_hand_is_kept() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut daemon) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    let shown = |name: &str| daemon.ask(&Request::Status)["file_systems"][0][name].clone();
    assert_eq!((shown("option_before"), shown("option")), ("nodiscard".into(), "discard".into()));
    sh("mount", &["-o", "remount,nodiscard", disk.point.to_str().unwrap()]);
    wait_until("told", || {
        let explained = daemon.ask(&Request::Explain { mount: disk.point.clone() }).to_string();
        explained.contains("somebody else changed it")
    });
    assert!(shown("option_before").is_null());
    sh("mount", &["-o", "remount,discard", disk.point.to_str().unwrap()]);
    daemon.end();
    assert!(options(&disk.point).contains(",discard"), "it is not the daemon's to put back");
}

#[test]
fn a_journal_that_cannot_be_read_is_kept_and_told_of_and_a_dry_run_puts_nothing_back() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut daemon) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    daemon.kill();
    let journal = daemon.state("mount-options.json");
    let text = fs::read_to_string(&journal).unwrap();
    let mut dry = daemon.command(&["--dry-run"]).stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_until("answering", || {
        trimwise_linux::daemon::control::Client::connect(&daemon.run())
            .and_then(|mut client| client.ask(&Request::Status))
            .is_ok()
    });
    sh("kill", &[&dry.id().to_string()]);
    assert!(dry.wait().unwrap().success());
    assert!(options(&disk.point).contains(",discard"));
    assert_eq!(fs::read_to_string(&journal).unwrap(), text);

    fs::write(&journal, &text[..text.len() / 2]).unwrap();
    daemon.start();
    daemon.wait_until_said("stay as they are");
    let aside = Path::new(&journal).with_file_name("mount-options.json.corrupt");
    assert_eq!(fs::read_to_string(aside).unwrap(), text[..text.len() / 2]);
    daemon.end();
}

/// btrfs turns ACLs on at each reconfiguration that does not say otherwise.
#[test]
fn regression_options_besides_discard_are_as_before_a_toggle() {
    if !can_run(&["mkfs.btrfs"]) {
        return;
    }
    let disk = Loop::new(256 * MIB, &["mkfs.btrfs", "-q", "-K"]);
    let point = disk.point.to_str().unwrap();
    sh("umount", &[point]);
    sh("mount", &["-o", "nodiscard,noacl,commit=7", disk.node().to_str().unwrap(), point]);
    let before = options(&disk.point);
    assert!(before.contains(",noacl"), "{before}");
    let mut daemon = Daemon::started(TRIMWISED, &table(&disk.point, "toggle = true"));
    wait_until("turned on", || options(&disk.point).contains("discard=async"));
    assert_eq!(options(&disk.point).replace(",discard=async", ""), before);
    daemon.wait_until(&disk.point, "online", |status| status["reason"]["code"] == "online");
    daemon.configure(&table(&disk.point, "policy = \"off\""));
    daemon.ask(&Request::Reload);
    wait_until("put back", || !options(&disk.point).contains("discard"));
    daemon.wait_until(&disk.point, "managed anew", |status| status["policy"] == "off");
    assert_eq!(options(&disk.point), before);
    let history = daemon.ask(&Request::History { mount: disk.point.clone(), limit: 30 }).to_string();
    assert!(history.contains("Remounted with nodiscard, as it was."), "{history}");
    daemon.end();
}

#[test]
fn regression_what_somebody_else_changed_since_is_not_as_it_was() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut daemon) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    sh("mount", &["-o", "remount,discard,commit=7", disk.point.to_str().unwrap()]);
    daemon.configure(&table(&disk.point, "policy = \"off\""));
    daemon.ask(&Request::Reload);
    wait_until("put back", || !options(&disk.point).contains(",discard"));
    daemon.wait_until_said("Remounted with nodiscard, but not all is as it was when the daemon first changed it: commit=7 is new");
    daemon.end();
    assert!(options(&disk.point).contains(",commit=7"));
}

/// The second took what the first had set for the user's, and put that back.
#[test]
fn regression_three_daemons_leave_the_option_as_it_was() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut first) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    let off = table(&disk.point, "policy = \"off\"\ntoggle = true");
    let mut others = [Daemon::started(TRIMWISED, &off), Daemon::started(TRIMWISED, &off)];
    let why = format!("another trimwised (process {}) manages it", first.process());
    let manages =
        |daemon: &Daemon| !daemon.ask(&Request::Status)["file_systems"].as_array().unwrap().is_empty();
    for other in &others {
        let status = other.ask(&Request::Status);
        assert!(!manages(other), "{status:#}");
        let skipped = status["skipped"].as_array().unwrap();
        let own = skipped.iter().find(|one| one["mount_point"] == disk.point.to_str().unwrap()).unwrap();
        assert_eq!(own["why"], why, "{status:#}");
        assert_eq!(status["codes"], serde_json::json!(["daemon.mount.taken"]), "{status:#}");
        let point = disk.point.display();
        assert_eq!(status["taken_problem"], format!("{point}: {why}"));
        other.wait_until_said(&format!("{point} is not managed: {why}"));
    }
    assert!(options(&disk.point).contains(",discard"));

    // The first is killed, and never comes back. Another takes over, and puts back what it finds noted.
    first.kill();
    wait_until("taken over", || others.iter().any(manages));
    wait_until("put back", || !options(&disk.point).contains(",discard"));
    assert_eq!(others.iter().filter(|one| manages(one)).count(), 1);
    let [second, third] = &mut others;
    let (taker, last) = if manages(second) { (second, third) } else { (third, second) };
    taker.kill();
    wait_until("taken over once more", || manages(last));
    // The first does not change what others have settled.
    sh("mount", &["-o", "remount,discard", disk.point.to_str().unwrap()]);
    last.end();
    first.start();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(options(&disk.point).contains(",discard"), "{}", options(&disk.point));
    first.end();
}

#[test]
fn one_run_with_once_says_that_another_daemon_is_there() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = Daemon::started(TRIMWISED, &table(&disk.point, ""));
    daemon.wait_until(&disk.point, "managed", |status| !status.is_null());
    let output = Daemon::prepared(TRIMWISED, &table(&disk.point, "")).output(&["--once"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let point = disk.point.display();
    let expected =
        format!("not trimmed: {point}: another trimwised (process {}) manages it", daemon.process());
    assert!(said.contains(&expected) && output.status.code() == Some(1), "{said}");
    daemon.end();
}

#[test]
fn a_claim_that_is_removed_under_a_daemon_still_keeps_others_off() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, mut first) = turned_on(|config| Daemon::prepared(TRIMWISED, config));
    let line = line_of(&disk);
    let numbers = line.split(' ').nth(2).unwrap();
    let claim = Path::new("/run/trimwise/file-systems").join(numbers);
    fs::remove_file(&claim).unwrap();
    first.wait_until_said(&format!("{}: was removed", claim.display()));
    assert!(claim.exists());
    let mut second = Daemon::started(TRIMWISED, &table(&disk.point, "policy = \"off\"\ntoggle = true"));
    second.wait_until_said(&format!("another trimwised (process {}) manages it", first.process()));
    assert!(options(&disk.point).contains(",discard"));
    second.end();
    first.end();
    assert!(!options(&disk.point).contains(",discard"), "as it was");
}
