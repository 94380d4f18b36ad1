//! Trims real file systems on loop devices: the device's counts match the estimate, whatever the slices, and those of
//! fstrim(8). Needs root; without it, or without a program, the tests report that they skip.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trimwise::units::Bytes;
use trimwise_linux::free_space::{Estimate, Extents};
use trimwise_linux::trim::{self, Ended, Outcome, Plan, Target, TrimError, TrimmedGroups};
use trimwise_testing::loops::{Loop, can_run, sh};

const MIB: u64 = 1 << 20;

fn plan(target: &Target, groups: u64, min_extent: Bytes) -> Plan {
    let span = target.span(Bytes(0), None).unwrap();
    Plan { slices: target.slices(span, groups), min_extent, pause: Duration::ZERO }
}

fn estimate(target: &Target, min_extent: Bytes) -> Extents {
    match target.estimate(target.span(Bytes(0), None).unwrap(), min_extent).unwrap() {
        Estimate::Extents(extents) => extents,
        Estimate::Bound(bytes) => panic!("only a bound: {bytes}"),
    }
}

/// Trims everything and returns the outcome, after checking that it matches the device's counts.
fn trimmed(disk: &Loop, groups: u64, min_extent: Bytes) -> Outcome {
    let target = Target::of(&disk.point).unwrap();
    let before = disk.discards();
    let outcome =
        trim::run(&target, &plan(&target, groups, min_extent), &AtomicBool::new(false), |_| ()).unwrap();
    assert!(matches!(outcome.ended, Ended::Done), "{outcome:?}");
    let after = disk.discards();
    let counted = outcome.counted.unwrap();
    assert_eq!((counted.commands, counted.bytes.0), (after.0 - before.0, after.1 - before.1));
    outcome
}

/// Checks that a trim sends as much as estimated, to the byte and the command.
#[track_caller]
fn sends_the_estimate(disk: &Loop, groups: u64, min_extent: Bytes) -> Extents {
    let expected = estimate(&Target::of(&disk.point).unwrap(), min_extent);
    let counted = trimmed(disk, groups, min_extent).counted.unwrap();
    assert_eq!((counted.bytes, counted.commands), (expected.bytes, expected.commands_max), "{expected:?}");
    expected
}

#[test]
fn ext4_sends_the_estimate_and_the_image_shrinks_by_it() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(600 * MIB);
    disk.fragment(200);
    disk.remount();
    let allocated = disk.allocated();
    let sent = sends_the_estimate(&disk, 1, Bytes(0));
    assert!(sent.count > 100 && sent.too_short == 0, "{sent:?}");
    let after = disk.allocated();
    // The large file and half of the small ones are gone; a few blocks of the image's own metadata may be added.
    let removed = 64 * MIB + 100 * (60 << 10);
    assert!(allocated - after >= removed - MIB, "{allocated} bytes before, {after} after");
    assert!(after <= 600 * MIB - sent.bytes.0 + MIB, "{after} bytes are left, {} were sent", sent.bytes.0);
}

#[test]
fn ext4_sends_nothing_the_second_time_and_says_that_it_may() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(300 * MIB);
    disk.remount();
    sends_the_estimate(&disk, 1, Bytes(0));
    let target = Target::of(&disk.point).unwrap();
    assert_eq!(target.trimmed_groups(Bytes(4096)), TrimmedGroups::Skipped);
    let again = trimmed(&disk, 1, Bytes(0));
    assert_eq!((again.counted.unwrap().commands, again.answered), (0, Bytes(0)));
}

/// ext4 skipped all slices after the first, since the first was "the last time" for them.
#[test]
fn regression_shorter_extents_than_the_last_time_are_found_in_every_slice() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(600 * MIB);
    disk.fragment(200);
    disk.remount();
    let long = sends_the_estimate(&disk, 1, Bytes::mib(1));
    assert!(long.too_short > 50, "{long:?}");
    let target = Target::of(&disk.point).unwrap();
    assert_eq!(target.trimmed_groups(Bytes(4096)), TrimmedGroups::AgainSince { last: 256 });
    let all = sends_the_estimate(&disk, 1, Bytes(0));
    assert_eq!(all.bytes.0, long.bytes.0 + long.too_short_bytes.0);
}

#[test]
fn ext4_of_other_shapes_sends_the_estimate() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let shapes: [&[&str]; 3] = [
        &["-b", "1024"],
        &["-O", "bigalloc", "-C", "65536"],
        &["-b", "4096", "-g", "16384", "-O", "^flex_bg,^has_journal"],
    ];
    for shape in shapes {
        let mkfs = ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0"];
        let mut disk = Loop::new(200 * MIB, &[&mkfs, shape].concat());
        disk.fragment(60);
        disk.remount();
        sends_the_estimate(&disk, 2, Bytes(0));
        disk.remount();
        sends_the_estimate(&disk, 1, Bytes(200_000));
    }
}

#[test]
fn the_number_of_commands_follows_the_device_s_limit() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(300 * MIB);
    disk.limit_discards(3 * MIB);
    disk.remount();
    let sent = sends_the_estimate(&disk, 8, Bytes(0));
    assert!(sent.commands_max > 50, "{sent:?}");
}

#[test]
fn a_partition_counts_for_itself() {
    if !can_run(&["mkfs.ext4", "addpart"]) {
        return;
    }
    let mkfs = ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0"];
    // The second is not aligned to the granularity, nor is any extent in it.
    for start in [2048, 2049] {
        let mut disk = Loop::partition(200 * MIB, start, &mkfs);
        disk.fragment(40);
        disk.remount();
        let target = Target::of(&disk.point).unwrap();
        let begins = Bytes(u64::from(start) * 512);
        assert_eq!((target.devices[0].start, &target.devices[0].name), (begins, &disk.device));
        sends_the_estimate(&disk, 1, Bytes(0));
        disk.limit_discards(MIB);
        disk.remount();
        let cut = sends_the_estimate(&disk, 1, Bytes(0));
        assert!(cut.commands_max > cut.count, "{cut:?}");
    }
}

/// If many extents have the same length, one call over everything loses some of them (Linux 6.18).
#[test]
fn regression_xfs_sends_the_estimate_whatever_the_slices() {
    if !can_run(&["mkfs.xfs"]) {
        return;
    }
    let mut disk = Loop::xfs(600 * MIB);
    disk.fragment(500);
    disk.remount();
    for groups in [1, 2, u64::MAX] {
        let sent = sends_the_estimate(&disk, groups, Bytes(0));
        assert!(sent.count > 200, "{sent:?}");
    }
    let long = sends_the_estimate(&disk, 1, Bytes(100_000));
    assert!(long.too_short > 200, "{long:?}");
}

#[test]
fn a_part_of_a_file_system_sends_its_estimate() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    for mut disk in [Loop::ext4(600 * MIB), Loop::xfs(600 * MIB)] {
        disk.fragment(40);
        disk.remount();
        let target = Target::of(&disk.point).unwrap();
        let span = target.span(Bytes(100 * MIB + 1), Some(Bytes(200_000_000))).unwrap();
        let Estimate::Extents(expected) = target.estimate(span, Bytes(0)).unwrap() else { panic!("a bound") };
        let plan = Plan { slices: target.slices(span, 1), min_extent: Bytes(0), pause: Duration::ZERO };
        let counted = trim::run(&target, &plan, &AtomicBool::new(false), |_| ()).unwrap().counted.unwrap();
        // Before Linux 6.8 ext4 did not send the whole extent across the end.
        assert!(
            counted.bytes <= expected.bytes && counted.bytes.0 >= 150_000_000,
            "{counted:?} {expected:?}"
        );
        assert!(plan.slices.len() > 1);
    }
}

#[test]
fn fstrim_sends_the_same() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs", "fstrim", "cp"]) {
        return;
    }
    // XFS: few enough extents for fstrim to find them all.
    for (mut disk, files) in [(Loop::ext4(600 * MIB), 200), (Loop::xfs(600 * MIB), 40)] {
        disk.fragment(files);
        disk.unmount();
        for min_extent in ["0", "131072"] {
            let (mut theirs, mut ours) = (disk.copy(), disk.copy());
            theirs.mount();
            let before = theirs.discards();
            let said = sh("fstrim", &["-v", "-m", min_extent, theirs.point.to_str().unwrap()]);
            assert!(said.contains("trimmed"), "{said}");
            theirs.unmount(); // which waits for the discards that XFS left in flight
            let after = theirs.discards();
            ours.mount();
            let counted = trimmed(&ours, 1, Bytes(min_extent.parse().unwrap())).counted.unwrap();
            assert_eq!((counted.commands, counted.bytes.0), (after.0 - before.0, after.1 - before.1));
            assert!(counted.commands > 0);
        }
    }
}

#[test]
fn btrfs_has_a_bound_and_one_slice() {
    if !can_run(&["mkfs.btrfs"]) {
        return;
    }
    let mut disk = Loop::new(600 * MIB, &["mkfs.btrfs", "-q", "-f", "-K"]);
    disk.fragment(40);
    disk.remount();
    let target = Target::of(&disk.point).unwrap();
    assert_eq!(target.devices[0].name, disk.device);
    let span = target.span(Bytes(0), None).unwrap();
    assert_eq!(target.slices(span, 1), [span]);
    let Estimate::Bound(bound) = target.estimate(span, Bytes(0)).unwrap() else { panic!("an estimate") };
    let outcome = trimmed(&disk, 1, Bytes(0));
    let counted = outcome.counted.unwrap();
    assert_eq!(counted.bytes, outcome.answered);
    assert!(counted.bytes <= bound && bound < Bytes(600 * MIB), "{counted:?} of {bound}");
    assert!(counted.bytes.0 > 400 * MIB, "{counted:?}");
}

#[test]
fn a_btrfs_on_two_devices_counts_both() {
    if !can_run(&["mkfs.btrfs", "btrfs"]) {
        return;
    }
    let disk = Loop::new(300 * MIB, &["mkfs.btrfs", "-q", "-f", "-K"]);
    let other = Loop::ext4(300 * MIB); // for its device
    let node = format!("/dev/{}", other.device);
    let mut other = other;
    other.unmount();
    sh("btrfs", &["device", "add", "-f", "-K", &node, disk.point.to_str().unwrap()]);
    let target = Target::of(&disk.point).unwrap();
    assert_eq!(target.devices.len(), 2);
    let plan = plan(&target, 1, Bytes(0));
    let (one, two) = (disk.discards(), other.discards());
    let outcome = trim::run(&target, &plan, &AtomicBool::new(false), |_| ()).unwrap();
    let sent = disk.discards().1 - one.1 + other.discards().1 - two.1;
    assert_eq!(outcome.counted.unwrap().bytes, Bytes(sent));
    assert!(other.discards().1 > two.1, "the second device got none");
    let mut disk = disk;
    disk.unmount(); // before the device below it is removed
}

#[test]
fn it_stops_between_slices_and_says_what_was_done() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(600 * MIB);
    disk.remount();
    let target = Target::of(&disk.point).unwrap();
    let plan = plan(&target, 1, Bytes(0));
    let stop = AtomicBool::new(false);
    let outcome = trim::run(&target, &plan, &stop, |done| stop.store(done == 2, Ordering::SeqCst)).unwrap();
    assert!(matches!(outcome.ended, Ended::Stopped));
    assert_eq!((outcome.slices_done, plan.slices.len()), (2, 5));
    let counted = outcome.counted.unwrap();
    assert!(counted.bytes == outcome.answered && counted.bytes.0 > 100 * MIB, "{outcome:?}");
    assert!(counted.bytes.0 < 256 * MIB, "{outcome:?}");
}

/// The file system can be unmounted between slices, since nothing of it is held open; then the trim ends.
#[test]
fn nothing_is_held_open_between_slices() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(600 * MIB);
    let target = Target::of(&disk.point).unwrap();
    let plan = plan(&target, 1, Bytes(0));
    let outcome = trim::run(&target, &plan, &AtomicBool::new(false), |done| {
        assert_eq!(done, 1);
        disk.unmount();
    })
    .unwrap();
    assert!(matches!(&outcome.ended, Ended::Failed(TrimError::Gone { .. })), "{outcome:?}");
    assert_eq!(outcome.slices_done, 1);
    let message = trim::run(&target, &plan, &AtomicBool::new(false), |_| ()).unwrap().ended;
    assert!(matches!(message, Ended::Failed(TrimError::Gone { .. })));
}

#[test]
fn what_cannot_be_trimmed_is_refused_by_name() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(300 * MIB);
    let target = Target::of(&disk.point).unwrap();
    let point = disk.point.display().to_string();
    let message = target.span(Bytes::gib(1), None).unwrap_err().to_string();
    assert!(message.contains("ends at 300 MiB (314572800 bytes)"), "{message}");
    let message = target.least_extent(Bytes::mib(129)).unwrap_err().to_string();
    assert!(message.contains("a group of 8 MiB"), "{message}");
    let below = disk.point.join("lost+found");
    let message = Target::of(&below).unwrap_err().to_string();
    assert!(
        message.contains("not a mount point") && message.contains(&format!("mounted on {point}:")),
        "{message}"
    );
    let disk = Loop::without_discards();
    let message = Target::of(&disk.point).unwrap_err().to_string();
    assert!(message.contains(&disk.device) && message.contains("discard_max_bytes"), "{message}");
}

/// After an error, ext4 calls free what its last durable transaction still refers to.
#[test]
fn regression_a_failed_ext4_is_not_trimmed_and_loses_no_file() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(300 * MIB);
    let (point, device) = (disk.point.display(), &disk.device);

    sh("sh", &["-c", &format!("mount -o remount,errors=remount-ro {point}")]);
    let target = Target::of(&disk.point).unwrap();
    let file = disk.point.join("file");
    let content: Vec<u8> = (0..40 * MIB).map(|at| (at / 509) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    sh("sh", &["-c", "sync"]);
    std::fs::remove_file(&file).unwrap();
    sh("sh", &["-c", &format!("echo 1 > /sys/fs/ext4/{device}/trigger_fs_error")]);
    let outcome = trim::run(&target, &plan(&target, 1, Bytes(0)), &AtomicBool::new(false), |_| ());
    sh("sh", &["-c", &format!("umount {point} && mount /dev/{device} {point}")]);
    assert!(std::fs::read(&file).is_ok_and(|read| read == content), "the file was trimmed: {outcome:?}");
    assert!(!matches!(outcome, Ok(Outcome { ended: Ended::Done, .. })), "{outcome:?}");
}
