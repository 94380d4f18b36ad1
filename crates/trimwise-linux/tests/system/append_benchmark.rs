//! The append benchmark and the write on a full file system, on a real ext4.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use trimwise::units::Bytes;
use trimwise::workload::fragmenting::{self, FILE, Fragmenting};
use trimwise::workload::full_write;
use trimwise::workload::timed::{Timed, Timing};
use trimwise_linux::{DirectoryError, RealDirectory, block_on};
use trimwise_testing::loops::{Loop, can_run, sh};

const MIB: u64 = 1 << 20;
const SMALL: Fragmenting = Fragmenting { file: Bytes::mib(16), append: Bytes::kib(64), hole: Bytes::kib(4) };

fn names(path: &Path) -> BTreeSet<String> {
    std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// The extents of a file on a mounted disk: first page, first block, blocks.
fn extents(disk: &Loop) -> Vec<(u64, u64, u64)> {
    let text = sh("filefrag", &["-v", disk.point.join(FILE).to_str().unwrap()]);
    // "   1:       17..      32:      34833..     34848:     16:      34832: ..."
    let number = |field: &str| field.split("..").next().and_then(|n| n.trim().parse().ok());
    let extent = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        number(fields.first()?).filter(|_: &u64| fields.len() > 3)?;
        Some((number(fields[1])?, number(fields[2])?, number(fields[3])?))
    };
    text.lines().filter_map(extent).collect()
}

/// The claims about the model's allocator: a hole in the file leaves a gap on the disk, so that each piece is a
/// fragment that merges with no other; but a hole of whole windows of 8 MiB leaves none.
#[test]
fn on_ext4_each_piece_is_a_fragment_of_its_own() {
    if !can_run(&["mkfs.ext4", "filefrag"]) {
        return;
    }
    let disk = Loop::ext4(512 * MIB);
    let target = RealDirectory::open(&disk.point, Arc::default()).unwrap();
    for hole in [Bytes::kib(4), Bytes::kib(64)] {
        let config = Fragmenting { hole, ..SMALL };
        let mut seen = Vec::new();
        let removal = block_on(fragmenting::run(&target, &config, || seen = extents(&disk)));
        assert!(removal.unwrap().is_ok());
        assert_eq!(seen.len() as u64, config.pieces(), "{seen:?}");
        let adjacent = seen.windows(2).filter(|pair| pair[0].1 + pair[0].2 == pair[1].1).count();
        assert_eq!(adjacent, 0, "{seen:?}");
        // The gap is as long as the hole, inside a window of 8 MiB at least.
        let kept = seen.windows(2).filter(|pair| {
            let (left, right) = (pair[0], pair[1]);
            left.0 / 2_048 != right.0 / 2_048 || right.1 - left.1 == right.0 - left.0
        });
        assert_eq!(kept.count() + 1, seen.len(), "{seen:?}");
    }
    let windows = Fragmenting { file: Bytes::mib(64), append: Bytes::mib(8), hole: Bytes::mib(8) };
    let mut seen = Vec::new();
    let removal = block_on(fragmenting::run(&target, &windows, || seen = extents(&disk)));
    assert!(removal.unwrap().is_ok());
    let gaps = seen.windows(2).filter(|pair| pair[0].1 + pair[0].2 != pair[1].1).count();
    assert!(gaps <= 1, "{seen:?}");
}

#[test]
fn on_a_real_ext4_a_timed_full_write_fills_it_and_leaves_it_as_it_was() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(128 * MIB);
    let target = RealDirectory::open(&disk.point, Arc::default()).unwrap();
    let before = names(&disk.point);
    for (text, with_fsync) in [("fullwrite:64KiB:16MiB", true), ("fullwrite:64KiB:16MiB:nofsync", false)] {
        let timed: Timed = text.parse().unwrap();
        let outcome = block_on(async {
            let mut prepared = timed.prepare(&target, 3).await?;
            let timing = prepared.measure(&target).await;
            prepared.remove(&target).await?;
            timing
        });
        let Ok(Ok(Timing::FullWrite(full))) = outcome else { panic!("{text}: {outcome:?}") };
        assert_eq!(full.fsync.is_some(), with_fsync);
        assert_eq!(names(&disk.point), before);
    }
    let too_large = target.check_timed("append:64KiB:256MiB".parse().unwrap()).unwrap_err();
    assert!(matches!(too_large, DirectoryError::TooFull { .. }), "{too_large}");
}

#[test]
fn on_a_full_ext4_the_write_gets_a_block_of_the_removed_file() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(128 * MIB);
    let target = RealDirectory::open(&disk.point, Arc::default()).unwrap();
    let before = names(&disk.point);
    let outcome = block_on(async {
        let mut full = full_write::fill(&target, &SMALL, 2).await?;
        assert_eq!(full.files(), [0, 1]);
        let with = full.remove_and_write(&target, 7, true).await?;
        assert!(with.fsync.is_some() && full.files().len() == 1);
        full.remove(&target).await?;
        let mut full = full_write::fill(&target, &SMALL, 2).await?;
        let without = full.remove_and_write(&target, 7, false).await?;
        assert!(without.fsync.is_none());
        full.remove(&target).await
    });
    assert_eq!(outcome.unwrap(), Ok(()));
    assert_eq!(names(&disk.point), before);
}
