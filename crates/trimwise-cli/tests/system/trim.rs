//! `trimwise trim` on file systems on loop devices, as a user or a script runs it.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use trimwise_testing::loops::{Loop, can_run, sh};

use crate::common::text;
use crate::trim_command::{command, refused, trim};

const MIB: u64 = 1 << 20;

fn json(output: &Output) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress in a pipe");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_dry_run_sends_nothing_and_the_trim_sends_what_it_said() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(600 * MIB);
    disk.fragment(100);
    disk.remount();
    let point = disk.point.to_str().unwrap();
    let before = disk.discards();
    let dry = json(&trim(&[point, "--dry-run", "--min-extent", "128KiB", "--json", "-"]));
    assert_eq!(disk.discards(), before);
    assert_eq!((&dry["trim"], &dry["settings"]["dry_run"]), (&serde_json::Value::Null, &true.into()));
    assert_eq!(dry["settings"]["min_extent_bytes"], 131_072);
    assert_eq!(dry["file_system"]["group_bytes"], 128 << 20);

    let done = json(&trim(&[point, "--min-extent", "128 KiB", "--slice", "130MiB", "--json", "-"]));
    assert_eq!(done["settings"]["groups_per_slice"], 2, "rounded up to whole groups");
    assert_eq!(done["estimate"], dry["estimate"]);
    let counted = &done["trim"]["device_counted"];
    assert_eq!(counted["bytes"], dry["estimate"]["bytes"]);
    assert_eq!(counted["commands"], dry["estimate"]["commands_max"]);
    assert_eq!(counted["bytes"], disk.discards().1 - before.1);
    assert_eq!((&done["trim"]["slices"], &done["trim"]["ended"]), (&3.into(), &"done".into()));

    let again = trim(&[point, "--min-extent", "128KiB"]);
    let said = text(&again.stdout);
    assert_eq!((again.status.code(), text(&again.stderr).as_str()), (Some(0), ""));
    for words in
        ["5 block groups of 128 MiB", "free, would be sent", "FITRIM returned", "the device counted", "0 B"]
    {
        assert!(said.contains(words), "'{words}' is not in: {said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
    assert!(said.contains(&format!("trimwise trim {point} --min-extent 131072\n")), "{said}");
}

#[test]
fn a_mount_that_takes_no_trim_is_refused() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(300 * MIB);
    let point = disk.point.to_str().unwrap();
    refused(2, &trim(&[point, "--offset", "1GiB"]), &["ends at 300 MiB"]);
    refused(2, &trim(&[point, "--min-extent", "1GiB"]), &["group of 8 MiB"]);
    let disk = Loop::without_discards();
    let point = disk.point.to_str().unwrap();
    refused(2, &trim(&[point]), &["does not accept discards", &disk.device, "discard_max_bytes"]);
}

#[test]
fn btrfs_is_trimmed_in_one_piece() {
    if !can_run(&["mkfs.btrfs"]) {
        return;
    }
    let disk = Loop::new(300 * MIB, &["mkfs.btrfs", "-q", "-f", "-K"]);
    let point = disk.point.to_str().unwrap();
    refused(2, &trim(&[point, "--groups", "1"]), &["--groups", "btrfs", "one piece"]);
    let done = json(&trim(&[point, "--json", "-"]));
    assert_eq!((&done["estimate"]["basis"], &done["trim"]["slices"]), (&"upper-bound".into(), &1.into()));
    assert!(done["trim"]["device_counted"]["bytes"].as_u64() <= done["estimate"]["bytes_max"].as_u64());
}

#[test]
fn only_root_may_trim_and_anybody_may_ask() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    // A copy that the user nobody can run: the build may lie in a directory closed to others.
    let directory = tempfile::Builder::new().prefix("trimwise-").tempdir_in("/tmp").unwrap();
    sh("chmod", &["755", directory.path().to_str().unwrap()]);
    let program = directory.path().join("trimwise");
    std::fs::copy(env!("CARGO_BIN_EXE_trimwise"), &program).unwrap();
    let mut disk = Loop::ext4(300 * MIB);
    disk.unmount();
    // Mounted where the user nobody can see it, for the same reason.
    let point = directory.path().join("mounted");
    std::fs::create_dir(&point).unwrap();
    disk.point = point;
    disk.mount();
    let point = disk.point.to_str().unwrap().to_string();
    let nobody = |arguments: &[&str]| {
        Command::new(&program)
            .arg("trim")
            .arg(&point)
            .args(arguments)
            .uid(65_534)
            .gid(65_534)
            .output()
            .unwrap()
    };
    refused(1, &nobody(&[]), &[&point, "CAP_SYS_ADMIN", "root"]);
    let dry = json(&nobody(&["--dry-run", "--json", "-"]));
    let told = dry["notes"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().contains("superblock"));
    assert!(told, "{dry}");
    let as_root = json(&trim(&[&point, "--dry-run", "--json", "-"]));
    assert_eq!(dry["estimate"], as_root["estimate"]);
}

fn signal(child: &Child, name: &str) {
    sh("kill", &["-s", name, &child.id().to_string()]);
}

#[test]
fn ctrl_c_stops_between_slices_and_says_what_was_done() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(600 * MIB);
    disk.remount();
    let point = disk.point.to_str().unwrap();
    let before = disk.discards();
    let mut child = command(&[point, "--groups", "1", "--pause", "86400000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It rests for a day after the first slice.
    while disk.discards() == before {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it sent anything");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let (said, message) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("1 of 5 slices") && said.contains("(interrupted)"), "{said}");
    assert!(message.contains("stopping after this slice") && message.contains("interrupted"), "{message}");
    assert!(said.contains("the device counted"), "{said}");
}
