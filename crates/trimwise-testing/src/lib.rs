//! Shared by the tests of several crates: skipping a test, loop devices, a daemon for a single test, and a test for
//! every device.

pub mod command_line;
pub mod conformance;
pub mod daemon;
pub mod fake_host;
pub mod loops;
pub mod terminal;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise_linux::RealDirectory;

/// Records that the running test cannot run here. The caller must then return.
///
/// libtest counts a test that returns as passed. So a skip is recorded in the file that `TRIMWISE_SKIPS` names, which
/// `scripts/test-tier` subtracts; without that variable a skip would go unnoticed, so it is a failure.
///
/// # Panics
/// If `TRIMWISE_SKIPS` is not set.
#[track_caller]
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    let Some(file) = std::env::var_os("TRIMWISE_SKIPS") else {
        panic!("cannot run here: {why}. `just TIER` counts such tests as skipped");
    };
    let line = format!("{test}: {why}\n");
    OpenOptions::new().append(true).create(true).open(file).unwrap().write_all(line.as_bytes()).unwrap();
}

/// Creates a folder in the build's `tmp`, where tests may make large files and punch holes.
pub fn scratch() -> tempfile::TempDir {
    // Tests are in target/PROFILE/deps.
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(3).unwrap().join("tmp");
    std::fs::create_dir_all(&folder).unwrap();
    tempfile::Builder::new().prefix("test-").tempdir_in(folder).unwrap()
}

/// Finds a program. If it is not installed, skips the test and returns `None`.
pub fn program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let found =
        std::env::split_paths(&paths).chain(sbin).map(|path| path.join(name)).find(|path| path.is_file());
    if found.is_none() {
        skipped(&format!("`{name}` is not installed"));
    }
    found
}

/// Finds `trimwised`, built next to the tests. Without it, skips the test and returns `None`.
pub fn trimwised() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("trimwised");
    let found = program.is_file().then_some(program);
    if found.is_none() {
        skipped("trimwised is not built: scripts/build-programs, or `just system`");
    }
    found
}

/// Opens a directory as the file system of a workload.
pub fn open(directory: &tempfile::TempDir) -> RealDirectory {
    RealDirectory::open(directory.path(), Arc::new(AtomicBool::new(false))).unwrap()
}

/// Creates an empty directory, in memory if possible, with the locations that PostMark expects.
pub fn directory(with_locations: bool) -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::Builder::new().prefix("trimwise-test-").tempdir_in(parent).unwrap();
    if with_locations {
        for location in ["a", "b/c", "d"] {
            std::fs::create_dir_all(directory.path().join(location)).unwrap();
        }
    }
    directory
}

/// Retries until an attempt succeeds.
///
/// A device may be busy for a moment longer: a child that another test's thread starts holds all files of this process
/// until it execs.
///
/// # Panics
/// With the last error, after five minutes.
#[track_caller]
pub fn in_time<T, E: std::fmt::Display>(attempt: impl Fn() -> Result<T, E>) -> T {
    for _ in 0..6_000 {
        if let Ok(done) = attempt() {
            return done;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    attempt().unwrap_or_else(|error| panic!("{error}"))
}
