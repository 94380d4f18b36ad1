//! The append benchmark and the write on a full file system, on real directories.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trimwise::files::FileError;
use trimwise::units::Bytes;
use trimwise::workload::fragmenting::{self, FILE, Fragmenting};
use trimwise::workload::timed::Timed;
use trimwise_linux::{DirectoryError, RealDirectory, block_on};
use trimwise_testing::{directory, open};

const SMALL: Fragmenting = Fragmenting { file: Bytes::mib(16), append: Bytes::kib(64), hole: Bytes::kib(4) };

fn names(path: &Path) -> BTreeSet<String> {
    std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn the_file_is_written_as_configured_and_then_removed() {
    let work = directory(false);
    let target = open(&work);
    let path = work.path().join(FILE);
    let mut seen = false;
    let removal = block_on(fragmenting::run(&target, &SMALL, || {
        let file = std::fs::metadata(&path).unwrap();
        let written = SMALL.pieces() * SMALL.append.0;
        assert_eq!(file.len(), written + (SMALL.pieces() - 1) * SMALL.hole.0);
        assert!(file.len() >= SMALL.file.0 && file.len() < SMALL.file.0 + SMALL.append.0);
        seen = true;
    }));
    assert!(seen && removal.unwrap().is_ok());
    assert!(names(work.path()).is_empty());
}

#[test]
fn a_directory_of_that_name_is_left_alone() {
    let work = directory(false);
    std::fs::create_dir(work.path().join(fragmenting::DIRECTORY)).unwrap();
    let path = work.path().join(FILE);
    std::fs::write(&path, "mine").unwrap();
    let target = open(&work);
    let error = block_on(fragmenting::run(&target, &SMALL, || ())).unwrap().unwrap_err();
    assert_eq!(error, FileError::Exists { path: fragmenting::DIRECTORY.to_owned() });
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let work = directory(false);
    let flag = Arc::new(AtomicBool::new(false));
    let target = RealDirectory::open(work.path(), Arc::clone(&flag)).unwrap();
    let interrupt = || flag.store(true, Ordering::Relaxed);
    let error = block_on(fragmenting::run(&target, &SMALL, interrupt)).unwrap().unwrap_err();
    assert_eq!(error, FileError::Interrupted);
    assert!(names(work.path()).is_empty());
}

/// Interrupted between writing and measuring, and during the measurement.
#[test]
fn a_timed_workload_that_is_interrupted_leaves_nothing() {
    for path in ["append:64KiB:1MiB", "append:4KiB:8KiB"] {
        let timed: Timed = path.parse().unwrap();
        let work = directory(false);
        let flag = Arc::new(AtomicBool::new(false));
        let target = RealDirectory::open(work.path(), Arc::clone(&flag)).unwrap();
        let mut prepared = block_on(timed.prepare(&target, 1)).unwrap().unwrap();
        assert_eq!(names(&work.path().join(fragmenting::DIRECTORY)).len(), 2);
        flag.store(true, Ordering::Relaxed);
        assert_eq!(block_on(prepared.measure(&target)).unwrap(), Err(FileError::Interrupted));
        assert_eq!(block_on(prepared.remove(&target)).unwrap(), Ok(()));
        assert!(names(work.path()).is_empty());
        assert_eq!(block_on(timed.prepare(&target, 1)).unwrap().err(), Some(FileError::Interrupted));
        assert!(names(work.path()).is_empty());
    }
}

#[test]
fn a_directory_that_a_timed_workload_cannot_use_is_refused() {
    let work = directory(false);
    let target = open(&work);
    let space = target.check_timed("append:64KiB:1MiB".parse().unwrap()).unwrap();
    assert!(space.free.0 > 0 && space.free <= space.total);
    std::fs::create_dir(work.path().join(fragmenting::DIRECTORY)).unwrap();
    let occupied = target.check_timed("append:64KiB:1MiB".parse().unwrap()).unwrap_err();
    assert!(matches!(occupied, DirectoryError::Occupied { .. }), "{occupied}");
}
