//! The daemon's knowledge of trimmed space survives a restart while the file system stays mounted, and is discarded
//! otherwise.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::TRIMWISED;
use trimwise_linux::daemon::control::Request;
use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run};

const MIB: u64 = 1 << 20;

fn disks() -> [Loop; 2] {
    let disks = [Loop::ext4(512 * MIB), Loop::xfs(512 * MIB)];
    disks.iter().for_each(|disk| disk.fill(["kept", "gone"].map(str::to_owned), 48 << 20));
    disks
}

fn started(disks: &[Loop; 2]) -> Daemon {
    let config = format!("{}[mount.\"{}\"]\n", table(&disks[0].point, ""), disks[1].point.display());
    Daemon::started(TRIMWISED, &config)
}

/// Returns the bytes that `act` and the daemon after it send to each disk, once everything is trimmed and checked.
fn sent(daemon: &mut Daemon, disks: &[Loop; 2], act: impl FnOnce(&Daemon)) -> [u64; 2] {
    let before = disks.each_ref().map(|disk| disk.discards().1);
    act(daemon);
    daemon.start();
    for disk in disks {
        daemon.wait_until(&disk.point, "looked at, and nothing waits", |status| {
            status["mapped"] == true
                && status["waiting_bytes"] == 0
                // Without tracepoints it is unverified that XFS's discards succeed.
                && (status["left_bytes"] == 0 || disk.point == disks[1].point)
                && status["reason"]["code"] == "policy"
        });
    }
    [0, 1].map(|i| disks[i].discards().1 - before[i])
}

fn history(daemon: &Daemon, disk: &Loop) -> String {
    daemon.ask(&Request::History { mount: disk.point.clone(), limit: 100 }).to_string()
}

#[test]
fn a_restart_sends_only_what_was_freed_meanwhile() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let disks = disks();
    let mut daemon = started(&disks);
    disks.iter().for_each(|disk| drop(daemon.wait_until_trimmed(&disk.point)));
    daemon.end();
    let mode = fs::metadata(daemon.state("known.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(sent(&mut daemon, &disks, |_| ()), [0, 0]);
    for disk in &disks {
        assert!(
            history(&daemon, disk).contains("are known to be trimmed already"),
            "{}",
            history(&daemon, disk)
        );
    }
    daemon.end();

    let freed = sent(&mut daemon, &disks, |_| {
        for disk in &disks {
            fs::remove_file(disk.point.join("gone")).unwrap();
            disk.sync();
        }
    });
    assert!(freed.iter().all(|sent| (40 * MIB..=96 * MIB).contains(sent)), "{freed:?}");

    // It survives a change of policy too.
    let before = disks.each_ref().map(|disk| disk.discards().1);
    daemon.configure(&format!(
        "{}[mount.\"{}\"]\n",
        table(&disks[0].point, "policy = \"lazy\""),
        disks[1].point.display()
    ));
    daemon.ask(&Request::Reload);
    daemon.wait_until(&disks[0].point, "begun anew and looked at", |status| {
        status["mapped"] == true && status["totals"]["slices"] == 0 && status["reason"]["code"] == "policy"
    });
    assert_eq!(disks.each_ref().map(|disk| disk.discards().1), before);
    daemon.end();
}

#[test]
fn invalid_knowledge_is_ignored_and_reported() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let mut disks = disks();
    let mut daemon = started(&disks);
    disks.iter().for_each(|disk| drop(daemon.wait_until_trimmed(&disk.point)));
    daemon.end();
    let file = daemon.state("known.json");
    let sound = fs::read_to_string(&file).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    // XFS sends all of it again; ext4 skips groups by its own record.
    for (text, words) in [
        (sound[..sound.len() / 2].to_owned(), "cannot be parsed"),
        ("\0".repeat(100), "cannot be parsed"),
        (sound.replace(boot.trim(), "00000000-0000-4000-8000-000000000000"), "is from another boot"),
    ] {
        let again = sent(&mut daemon, &disks, |_| fs::write(&file, &text).unwrap());
        assert!(again[1] > 300 * MIB, "{words}: {again:?}");
        daemon.wait_until_said(words);
        daemon.end();
    }
    // More was written while no daemon watched than the limit allows.
    let again = sent(&mut daemon, &disks, |_| {
        disks[1].fill(["came"].map(str::to_owned), 48 << 20);
        fs::remove_file(disks[1].point.join("came")).unwrap();
        disks[1].sync();
    });
    assert!(
        again[1] > 300 * MIB && history(&daemon, &disks[1]).contains("since that was recorded"),
        "{again:?}"
    );
    assert_eq!(again[0], 0, "the other one is believed");
    daemon.end();
    // Remounted.
    disks[1].remount();
    let again = sent(&mut daemon, &disks, |_| ());
    assert!(again[1] > 300 * MIB && history(&daemon, &disks[1]).contains("mounted again"), "{again:?}");
    assert_eq!(again[0], 0);
    daemon.end();
}
