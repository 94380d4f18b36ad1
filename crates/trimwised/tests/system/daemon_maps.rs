//! The helper's results on real file systems on loop devices: maps in windows, and walks over btrfs, which has no maps.

use std::fs;
use std::path::Path;

use crate::TRIMWISED;
use trimwise::units::Span;
use trimwise_linux::daemon::control::Request as Asked;
use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run, sh};
use trimwised::helper::{self, Answer, Request, Task};

const MIB: u64 = 1 << 20;

fn ask(point: &Path, task: Task) -> (Vec<Span>, Answer) {
    let numbers = trimwise_linux::mount::mount_of(point).unwrap().numbers;
    let request = Request { path: point.to_owned(), numbers, task };
    let mut helper = helper::start(Path::new(TRIMWISED), &request).unwrap();
    while !helper::hear(&mut helper) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (said, mut child) = helper.into_parts();
    assert!(child.wait().unwrap().success());
    helper::parse_answer(&said).unwrap()
}

/// The first `most` free extents from an address on, where the list begins and where it ends.
fn look(point: &Path, from: u64, most: usize) -> (Vec<Span>, u64, u64) {
    match ask(point, Task::Look { min_extent: 0, from, most }) {
        (free, Answer::Looked { extents, from, upto }) if extents == free.len() as u64 => (free, from, upto),
        other => panic!("{other:?}"),
    }
}

#[test]
fn windows_are_the_whole_map_and_extents_go_on_over_groups() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    for fs_type in ["ext4", "xfs"] {
        let mut disk = if fs_type == "ext4" { Loop::ext4(768 * MIB) } else { Loop::xfs(768 * MIB) };
        disk.fragment(300);
        disk.remount();
        let (all, from, end) = look(&disk.point, 0, usize::MAX);
        assert!(all.len() > 60 && from == 0 && end > 700 * MIB, "{fs_type}: {} {end}", all.len());
        if fs_type == "ext4" {
            let group = 128 * MIB;
            let over = all.iter().filter(|span| span.start / group != (span.end - 1) / group).count();
            assert!(over > 0, "none goes on in the next group: {all:?}");
        }
        let exactly = look(&disk.point, 0, all.len());
        assert_eq!(exactly, (all.clone(), 0, end), "{fs_type}: what fits is one map");
        for most in [1, 7, 50] {
            let (mut at, mut found) = (0, Vec::new());
            while at < end {
                let (free, from, upto) = look(&disk.point, at, most);
                assert!(free.len() <= most && from >= at && upto > at, "{fs_type}: {free:?} {from} {upto}");
                let is_inside = free.iter().all(|span| span.start >= from && span.end <= upto);
                assert!(is_inside && (upto == end || free.len() == most), "{fs_type}: {free:?} {upto}");
                at = upto;
                found.extend(free);
            }
            assert_eq!(found, all, "{fs_type}: {most}");
        }
        // From the middle of a free extent: nothing is reported before it.
        let longest = all.iter().max_by_key(|span| span.bytes()).unwrap();
        let middle = longest.start + longest.bytes().0 / 2 / 4096 * 4096;
        let (free, from, upto) = look(&disk.point, middle, usize::MAX);
        let expected: Vec<Span> = all
            .iter()
            .filter(|span| span.end > from)
            .map(|span| Span { start: span.start.max(from), end: span.end })
            .collect();
        assert_eq!((free, upto), (expected, end), "{fs_type}");
        assert!(from == middle || from == longest.end, "{fs_type}: {from} {middle} {longest:?}");
    }
}

/// A btrfs with little unallocated space, whose chunks are full except for removed files.
fn btrfs() -> Option<Loop> {
    if !can_run(&["mkfs.btrfs"]) {
        return None;
    }
    let mut disk = Loop::new(1024 * MIB, &["mkfs.btrfs", "-q", "-f", "-K", "-m", "single"]);
    disk.fill((0..22).map(|i| format!("file{i}")), 32 << 20);
    disk.sync(); // unwritten data have no place on the device
    (0..22).step_by(2).for_each(|i| fs::remove_file(disk.point.join(format!("file{i}"))).unwrap());
    disk.sync();
    // Online discard is btrfs's own default on some devices.
    sh("mount", &["-o", "remount,nodiscard", disk.point.to_str().unwrap()]);
    let sent = disk.discards();
    disk.unmount();
    disk.mount();
    sh("mount", &["-o", "remount,nodiscard", disk.point.to_str().unwrap()]);
    assert_eq!(disk.discards(), sent);
    Some(disk)
}

fn trim(disk: &Loop, ranges: Vec<(u64, u64)>) -> u64 {
    let before = disk.discards().1;
    let task = Task::Trim { ranges, min_extent: 0, lanes: 3, expected: 0, wait: false, failed_before: false };
    match ask(&disk.point, task) {
        (_, Answer::Trimmed { .. }) => disk.discards().1 - before,
        other => panic!("{other:?}"),
    }
}

#[test]
fn regression_a_walk_over_the_chunks_of_a_btrfs_finds_what_fitrim_over_everything_finds() {
    let Some(mut disk) = btrfs() else { return };
    let (ranges, answer) = ask(&disk.point, Task::Walk);
    assert!(matches!(answer, Answer::Looked { from: 0, .. }), "{answer:?}");
    assert!((8..30).contains(&ranges.len()), "chunks are not joined: {ranges:?}");
    // The first call trims all unallocated space, whatever its range.
    let first = ranges[0].start;
    let with_unallocated = trim(&disk, vec![(first, first + 4096)]);
    let again = trim(&disk, vec![(first, first + 4096)]);
    assert!(with_unallocated > again && again <= 4096, "{with_unallocated} {again}: it is remembered");
    let unallocated = with_unallocated - again;
    // The first chunk for data, which is empty: btrfs may remove it meanwhile, and then it is unallocated once more.
    const EMPTY: u64 = 8 * MIB;
    let (mut sent, mut some) = (0, 0);
    for range in &ranges {
        // A slice that begins inside a chunk skips the rest of it.
        let from_within = trim(&disk, vec![(range.start + 4096, range.end)]);
        assert!(from_within <= EMPTY, "{from_within} in {range:?}");
        let of_slice = trim(&disk, vec![(range.start, range.end)]);
        assert!(of_slice <= range.bytes().0 + EMPTY, "{of_slice} in {range:?}");
        sent += of_slice;
        some += u64::from(of_slice > 0);
    }
    assert!(some >= 8 && sent > 11 * 32 * MIB * 9 / 10, "{sent} in {some}");
    disk.remount();
    let of_one_call = trim(&disk, vec![(0, u64::MAX)]);
    assert!(of_one_call.abs_diff(unallocated + sent) <= 2 * EMPTY, "{of_one_call}: {unallocated} {sent}");
}

#[test]
fn the_daemon_walks_over_a_btrfs_slice_by_slice() {
    let Some(mut disk) = btrfs() else { return };
    let before = disk.discards().1;
    let mut daemon = Daemon::started(TRIMWISED, &table(&disk.point, "toggle = false"));
    daemon.wait_until(&disk.point, "left to a later hour", |status| {
        status["waiting_bytes"].as_u64() > Some(300 * MIB) && status["reason"]["code"] != "starting"
    });
    daemon.ask(&Asked::Trim { mount: disk.point.clone() });
    let status = daemon.wait_until(&disk.point, "walked over", |status| {
        status["waiting_bytes"] == 0
            && status["round_permille"].is_null()
            && status["totals"]["slices"].as_u64() > Some(0)
    });
    daemon.end();
    let sent = disk.discards().1 - before;
    assert!(status["totals"]["slices"].as_u64() > Some(3), "{status:#}");
    disk.remount();
    let of_one_call = trim(&disk, vec![(0, u64::MAX)]);
    assert!(of_one_call > 11 * 32 * MIB, "{of_one_call}");
    // Its own transactions change a little.
    assert!(sent.abs_diff(of_one_call) <= of_one_call / 50, "{sent} of {of_one_call}: {status:#}");
}

/// Since Linux 6.2 btrfs is mounted with `discard=async`: then it is unknown which space was free before and never
/// sent.
#[test]
fn regression_asked_for_all_of_btrfs_what_was_free_before_is_sent() {
    if !can_run(&["mkfs.btrfs"]) {
        return;
    }
    let mut disk = Loop::new(512 * MIB, &["mkfs.btrfs", "-q", "-f", "-K"]);
    let config = table(&disk.point, "");
    let mut daemon = Daemon::started(TRIMWISED, &config);
    daemon.wait_until(&disk.point, "managed", |status| status["online"] == true);
    let before = disk.discards().1;
    daemon.ask(&Asked::Trim { mount: disk.point.clone() });
    daemon.wait_until(&disk.point, "trimmed", |status| {
        status["waiting_bytes"] == 0 && disk.discards().1 - before >= 300 * MIB
    });
    daemon.end();

    disk.remount(); // while mounted it knows what it has sent
    let before = disk.discards().1;
    let output = daemon.output(&["--once"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("bytes) trimmed"), "{said}");
    assert!(disk.discards().1 - before >= 300 * MIB, "{said}");
}
