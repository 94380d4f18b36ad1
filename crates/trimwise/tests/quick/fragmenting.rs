//! The append benchmark and the write on a full file system, in the model: which task waits for which TRIMs.

use crate::fs_common::{drive, host, on_fs, trace};
use trimwise::block::{Command, Stage};
use trimwise::files::{FileError, Files};
use trimwise::fs::Ext4;
use trimwise::fs::host::{CpuCosts, DiscardGeneration, HostConfig};
use trimwise::policy::PolicySpec;
use trimwise::ssd::LinkKind;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::{self, DIRECTORY, FILE, Fragmenting, Note};
use trimwise::workload::full_write;

/// 31 pieces of 64 KiB with 4 KiB between them.
const SMALL: Fragmenting = Fragmenting { file: Bytes::mib(2), append: Bytes::kib(64), hole: Bytes::kib(4) };
const PIECES: u64 = 31;
const TRIM_MS: u64 = 10;
const SERIAL: SimDuration = SimDuration::from_millis(TRIM_MS * PIECES);
const TENTH: SimDuration = SimDuration::from_millis(TRIM_MS * PIECES / 10);

fn commit_serial() -> HostConfig {
    host(DiscardGeneration::CommitSerial)
}

/// Blocks of the device that the commands of a trace trimmed, and the commands.
fn trims(trace: &crate::fs_common::Trace) -> (u64, u64) {
    let seen = trace.borrow();
    let ranges = seen.iter().filter_map(|(_, stage, command)| match command {
        Command::Trim(ranges) if *stage == Stage::Completed => Some(ranges),
        _ => None,
    });
    ranges.fold((0, 0), |(commands, units), ranges| {
        (commands + 1, units + ranges.iter().map(|range| range.units).sum::<u64>())
    })
}

async fn assert_empty(fs: &Ext4) {
    // The names are free again.
    fs.mkdir(DIRECTORY).await.unwrap();
    fs.rmdir(DIRECTORY).await.unwrap();
}

#[test]
fn each_piece_takes_a_trim_and_fsync_waits_for_all_of_them() {
    assert_eq!(SMALL.pieces(), PIECES);
    on_fs(drive(LinkKind::Sata, TRIM_MS), commit_serial(), PolicySpec::COMMIT, |fs| async move {
        let mut note = Note::create(&fs).await.unwrap();
        fragmenting::write(&fs, FILE, &SMALL).await.unwrap();
        let extents = fs.extents(FILE).unwrap();
        assert_eq!(extents.len() as u64, PIECES);
        for pair in extents.windows(2) {
            assert_eq!(pair[1].start.0, pair[0].end().0 + 1, "a hole of a block leaves a gap of a block");
        }
        let seen = trace(fs.queue());
        let removal = fragmenting::remove(&fs, FILE, &mut note).await.unwrap();
        assert_eq!(trims(&seen), (PIECES, PIECES * 16));
        assert_eq!(removal.unlink, SimDuration::ZERO);
        assert!(removal.fsync > SERIAL && removal.fsync < SERIAL + TENTH, "{removal:?}");
        note.remove(&fs).await.unwrap();
        assert_empty(&fs).await;
    });
}

#[test]
fn without_holes_the_file_is_one_fragment() {
    on_fs(drive(LinkKind::Sata, TRIM_MS), commit_serial(), PolicySpec::COMMIT, |fs| async move {
        let config = Fragmenting { hole: Bytes(0), ..SMALL };
        let mut note = Note::create(&fs).await.unwrap();
        fragmenting::write(&fs, FILE, &config).await.unwrap();
        let seen = trace(fs.queue());
        let removal = fragmenting::remove(&fs, FILE, &mut note).await.unwrap();
        assert_eq!(trims(&seen), (1, 512));
        assert!(removal.fsync < TENTH, "{removal:?}");
    });
}

/// Windows that hold nothing are not reserved: three windows of 8 MiB lie one behind the other (as on Linux 6.18).
#[test]
fn holes_of_whole_windows_leave_no_gap() {
    on_fs(drive(LinkKind::Sata, TRIM_MS), commit_serial(), PolicySpec::OFF, |fs| async move {
        let window = Bytes::mib(8);
        let config = Fragmenting { file: Bytes::mib(40), append: window, hole: window };
        let _note = Note::create(&fs).await.unwrap();
        fragmenting::write(&fs, FILE, &config).await.unwrap();
        let extents = fs.extents(FILE).unwrap();
        assert_eq!(extents.len(), 3);
        assert!(extents.windows(2).all(|pair| pair[0].end() == pair[1].start), "{extents:?}");
    });
}

#[test]
fn the_whole_benchmark_leaves_nothing_also_if_there_is_no_room() {
    on_fs(drive(LinkKind::Sata, 0), commit_serial(), PolicySpec::OFF, |fs| async move {
        let mut written = false;
        fragmenting::run(&fs, &SMALL, || written = true).await.unwrap();
        assert!(written);
        assert_empty(&fs).await;
        let too_large = Fragmenting { file: Bytes::gib(1), ..SMALL };
        let error = fragmenting::run(&fs, &too_large, || unreachable!()).await.unwrap_err();
        assert!(matches!(error, FileError::NoSpace { .. }), "{error}");
        assert_empty(&fs).await;
    });
}

/// After an fsync the blocks are there; without it the write waits for the commit, and so for its TRIMs.
#[test]
fn on_a_full_file_system_the_write_waits_for_the_commit_that_it_needs() {
    for fsync in [true, false] {
        on_fs(drive(LinkKind::Sata, TRIM_MS), commit_serial(), PolicySpec::COMMIT, move |fs| async move {
            let mut full = full_write::fill(&fs, &SMALL, 3).await.unwrap();
            assert_eq!(full.files(), [0, 1, 2]);
            assert_eq!(fs.statfs().await.unwrap().free, Bytes(0));
            let victim = fs.extents(&full.victim(1).unwrap()).unwrap();
            assert_eq!(victim.len() as u64, PIECES);
            let seen = trace(fs.queue());
            let written = full.remove_and_write(&fs, 1, fsync).await.unwrap();
            assert_eq!(trims(&seen), (PIECES, PIECES * 16));
            let waits = if fsync { written.fsync.unwrap() } else { written.write };
            assert!(waits > SERIAL && waits < SERIAL + TENTH, "{written:?}");
            assert!(!fsync || written.write < TENTH, "{written:?}");
            assert_eq!(full.files().len(), 2);
            full.remove(&fs).await.unwrap();
            assert_empty(&fs).await;
        });
    }
}

/// Under lazy the blocks come back with their TRIMs, and a write that finds none waits for the whole queue; with reuse
/// it takes its block out of the queue.
#[test]
fn lazy_makes_the_write_wait_for_the_queue_and_reuse_does_not() {
    for (policy, waits) in [("lazy", true), ("lazy+reuse", false)] {
        let policy = policy.parse().unwrap();
        let mut overlapping = drive(LinkKind::Nvme, 1);
        overlapping.trim.latency_per_command_ns = 9_000_000;
        on_fs(overlapping, commit_serial(), policy, move |fs| async move {
            let mut full = full_write::fill(&fs, &SMALL, 3).await.unwrap();
            fs.drain_discards().await;
            let seen = trace(fs.queue());
            let written = full.remove_and_write(&fs, 1, true).await.unwrap();
            assert!(written.fsync.unwrap() < TENTH);
            let issued = trims(&seen).0;
            if waits {
                assert_eq!(issued, PIECES);
                assert!(written.write > SERIAL / 3, "{written:?}");
            } else {
                // Some of its commands are behind a TRIM.
                assert!(issued < PIECES / 4 && written.write < TENTH, "{issued}, {written:?}");
            }
        });
    }
}

/// With the processor costs of a host the removal takes as long as its pages, and nothing of the TRIMs.
#[test]
fn the_removal_itself_waits_for_no_trim() {
    let cpu = CpuCosts { page_truncate: SimDuration::from_nanos(100), ..commit_serial().cpu };
    let host = HostConfig { cpu, ..commit_serial() };
    on_fs(drive(LinkKind::Sata, TRIM_MS), host, PolicySpec::COMMIT, |fs| async move {
        let removal = fragmenting::run(&fs, &SMALL, || ()).await.unwrap();
        // 31 pieces of 16 pages and 30 holes of one.
        assert_eq!(removal.unlink, SimDuration::from_nanos(100 * (31 * 16 + 30)));
    });
}
