//! Runs over a file system of sizes only, which checks the rules for every file workload: paths must exist when they
//! are used, and nothing is left at the end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use super::config::Location;
use super::*;
use crate::files::{FileError, FileSystemSpace, Files, OpenMode};
use crate::units::{Bytes, SimDuration, SimTime};
use crate::workload::latency::Operation;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the counting file system never waits"),
    }
}

/// Files by path with their sizes; directories have none. Every call takes 1 us.
#[derive(Default)]
struct Counting {
    now_us: Cell<u64>,
    entries: RefCell<BTreeMap<String, Option<u64>>>,
    bytes_written: Cell<u64>,
    bytes_read: Cell<u64>,
    writes: Cell<u64>,
    reads: Cell<u64>,
    empty_calls: Cell<u64>,
    copied: Cell<u64>,
    /// Number of calls before one fails; removals still work then, unless `stuck`.
    calls_left: Cell<Option<u64>>,
    stuck: bool,
    /// Number of calls that it wants at once; 0: one.
    at_once: usize,
}

struct Open {
    path: String,
    position: u64,
}

fn add(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get() + n);
}

impl Counting {
    fn call(&self) -> Result<(), FileError> {
        add(&self.now_us, 1);
        match self.calls_left.get() {
            Some(0) => Err(FileError::Interrupted),
            Some(n) => {
                self.calls_left.set(Some(n - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn check_parent(&self, path: &str) -> Result<(), FileError> {
        match path.rsplit_once('/') {
            Some((parent, _)) if self.entries.borrow().get(parent) != Some(&None) => {
                Err(FileError::NotFound { path: path.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn remove(&self, path: &str, is_right: fn(&Option<u64>) -> bool) -> Result<(), FileError> {
        add(&self.now_us, 1);
        if self.stuck && self.calls_left.get() == Some(0) {
            return Err(FileError::Other { path: path.to_owned(), reason: "stuck".to_owned() });
        }
        let mut entries = self.entries.borrow_mut();
        if !entries.get(path).is_some_and(is_right) {
            return Err(FileError::NotFound { path: path.to_owned() });
        }
        entries.remove(path);
        Ok(())
    }
}

impl Files for Counting {
    type File = Open;

    fn now(&self) -> SimTime {
        SimTime(self.now_us.get() * 1000)
    }
    async fn statfs(&self) -> Result<FileSystemSpace, FileError> {
        Ok(FileSystemSpace { total: Bytes::gib(1), free: Bytes::gib(1) })
    }
    async fn mkdir(&self, path: &str) -> Result<(), FileError> {
        self.call()?;
        self.check_parent(path)?;
        match self.entries.borrow_mut().insert(path.to_owned(), None) {
            None => Ok(()),
            Some(_) => Err(FileError::Exists { path: path.to_owned() }),
        }
    }
    async fn rmdir(&self, path: &str) -> Result<(), FileError> {
        let inside = format!("{path}/");
        assert!(!self.entries.borrow().keys().any(|p| p.starts_with(&inside)), "{path} is not empty");
        self.remove(path, Option::is_none)
    }
    async fn open(&self, path: &str, mode: OpenMode) -> Result<Open, FileError> {
        self.call()?;
        self.check_parent(path)?;
        let mut entries = self.entries.borrow_mut();
        let size = match (mode, entries.get(path)) {
            (OpenMode::Create | OpenMode::CreateKeep, None) => {
                entries.insert(path.to_owned(), Some(0));
                0
            }
            (OpenMode::Append | OpenMode::Read, Some(&Some(size))) => size,
            _ => return Err(FileError::NotFound { path: path.to_owned() }),
        };
        Ok(Open { path: path.to_owned(), position: if mode == OpenMode::Append { size } else { 0 } })
    }
    async fn write(&self, file: &mut Open, data: &[u8]) -> Result<(), FileError> {
        self.call()?;
        add(&self.writes, 1);
        add(&self.empty_calls, u64::from(data.is_empty()));
        add(&self.bytes_written, data.len() as u64);
        file.position += data.len() as u64;
        self.entries.borrow_mut().insert(file.path.clone(), Some(file.position));
        Ok(())
    }
    async fn read(&self, file: &mut Open, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.call()?;
        let size = self.entries.borrow().get(&file.path).copied().flatten().unwrap_or(0);
        let got = (buffer.len() as u64).min(size - file.position);
        add(&self.reads, 1);
        add(&self.empty_calls, u64::from(buffer.is_empty()));
        add(&self.bytes_read, got);
        file.position += got;
        Ok(got as usize)
    }
    async fn seek(&self, file: &mut Open, offset: u64) -> Result<(), FileError> {
        file.position = offset;
        Ok(())
    }
    async fn punch(&self, _: &mut Open, _: u64, _: u64) -> Result<(), FileError> {
        unreachable!("PostMark punches no holes")
    }
    async fn fsync(&self, _: &mut Open) -> Result<(), FileError> {
        panic!("PostMark makes nothing durable")
    }
    async fn pwrite(&self, _: &mut Open, _: u64, _: &[u8]) -> Result<(), FileError> {
        panic!("PostMark writes at its position")
    }
    async fn pread(&self, _: &mut Open, _: u64, _: &mut [u8]) -> Result<usize, FileError> {
        panic!("PostMark reads at its position")
    }
    async fn fdatasync(&self, _: &mut Open) -> Result<(), FileError> {
        panic!("PostMark makes nothing durable")
    }
    async fn drop_cached(&self, _: &mut Open) -> Result<(), FileError> {
        panic!("PostMark drops nothing")
    }
    async fn rename(&self, _: &str, _: &str) -> Result<(), FileError> {
        panic!("PostMark renames nothing")
    }
    async fn sleep(&self, _: SimDuration) {
        panic!("PostMark does not sleep")
    }
    async fn close(&self, _: Open) -> Result<(), FileError> {
        self.call()
    }
    async fn unlink(&self, path: &str) -> Result<(), FileError> {
        self.remove(path, Option::is_some)
    }
    async fn sync(&self) -> Result<(), FileError> {
        panic!("PostMark makes nothing durable")
    }
    fn calls_at_once(&self) -> usize {
        self.at_once.max(1)
    }
    async fn charge_user_copy(&self, bytes: u64) {
        assert!(bytes > 0, "an empty charge is a wasted call");
        add(&self.copied, bytes);
    }
}

fn small() -> PostmarkConfig {
    PostmarkConfig { number: 30, transactions: 60, subdirectories: 3, ..PostmarkConfig::default() }
}

#[test]
fn counts_match_what_was_done() {
    for buffering in [true, false] {
        let config = PostmarkConfig { buffering, read_block: 700, write_block: 600, ..small() };
        let fs = Counting::default();
        let outcome = block_on(run(&fs, &config, &mut |_| {})).unwrap();
        let counts = outcome.counts;
        assert_eq!((fs.bytes_written.get(), fs.bytes_read.get()), (counts.bytes_written, counts.bytes_read));
        assert!(fs.entries.borrow().is_empty(), "something is left: {:?}", fs.entries.borrow());
        let latency = |operation| outcome.latencies.summary(operation).map_or(0, |s| s.count);
        assert_eq!(latency(Operation::Create), counts.created);
        assert_eq!(latency(Operation::Read), counts.read);
        assert_eq!(latency(Operation::Append), counts.appended);
        assert_eq!(latency(Operation::Unlink), counts.deleted);
        let copied = if buffering { counts.bytes_written + counts.bytes_read } else { 0 };
        assert_eq!(fs.copied.get(), copied);
    }
}

#[test]
fn several_calls_at_once_give_the_same_as_one() {
    let run_on = |at_once| {
        let fs = Counting { at_once, ..Counting::default() };
        let outcome = block_on(run(&fs, &small(), &mut |_| {})).unwrap();
        let calls = [&fs.writes, &fs.reads, &fs.copied, &fs.now_us].map(Cell::get);
        (outcome.counts, outcome.times, outcome.latencies.summary(Operation::Read), calls)
    };
    let one_by_one = run_on(1);
    for at_once in [7, 40, usize::MAX] {
        assert_eq!(run_on(at_once), one_by_one, "{at_once}");
    }
}

#[test]
fn unbuffered_io_makes_a_call_for_each_block_and_one_for_the_remainder() {
    // Ten files of exactly two blocks: two full writes and an empty one each.
    let config = PostmarkConfig {
        number: 10,
        transactions: 20,
        size_low: 1024,
        size_high: 1024,
        buffering: false,
        bias_read: Some(10),
        bias_create: None,
        ..PostmarkConfig::default()
    };
    let fs = Counting::default();
    block_on(run(&fs, &config, &mut |_| {})).unwrap();
    assert_eq!((fs.writes.get(), fs.reads.get(), fs.empty_calls.get()), (30, 60, 30));
}

#[test]
fn a_block_larger_than_the_file_is_one_call() {
    let config = PostmarkConfig { read_block: u32::MAX, write_block: u32::MAX, buffering: false, ..small() };
    let fs = Counting::default();
    let counts = block_on(run(&fs, &config, &mut |_| {})).unwrap().counts;
    assert_eq!(fs.writes.get(), counts.created + counts.appended);
    assert_eq!(fs.reads.get(), counts.read);
}

#[test]
fn phases_follow_each_other_and_progress_arrives() {
    let fs = Counting::default();
    let mut seen: Vec<Progress> = Vec::new();
    let outcome = block_on(run(&fs, &small(), &mut |p| seen.push(p))).unwrap();
    let times = outcome.times;
    assert!(times.begin < times.created && times.created < times.transacted && times.transacted < times.end);
    // Creating and removing the three subdirectories is not timed, 1 us each.
    assert_eq!(times.begin, SimTime(3000));
    assert_eq!(fs.now().since(times.end), SimDuration::from_micros(3));
    for phase in [Phase::Create, Phase::Transactions, Phase::Delete] {
        let last = seen.iter().rfind(|p| p.phase == phase).unwrap();
        assert!(last.done <= last.of && last.of > 0, "{last:?}");
    }
    assert_eq!(seen.last().map(|p| p.done), Some(outcome.counts.deleted - outcome.counts.deleted_mixed));
    assert!(seen.is_sorted_by_key(|p| (p.phase as u8, p.done)));
}

#[test]
fn whenever_a_call_fails_everything_created_is_removed() {
    let config = PostmarkConfig {
        number: 3,
        transactions: 10,
        locations: ["a/b", "c"].map(|path| Location { path: path.to_owned(), weight: 1 }).to_vec(),
        ..small()
    };
    let fs = Counting::default();
    fs.calls_left.set(Some(u64::MAX));
    block_on(run(&fs, &config, &mut |_| {})).unwrap();
    let calls = u64::MAX - fs.calls_left.get().unwrap();
    assert!(calls > 50, "only {calls} calls can fail");
    for (failing, at_once) in (0..calls).flat_map(|failing| [(failing, 1), (failing, 40)]) {
        let fs = Counting { at_once, ..Counting::default() };
        // An unrelated file and directory.
        fs.entries.borrow_mut().extend([("c".to_owned(), None), ("c/notes".to_owned(), Some(5))]);
        fs.calls_left.set(Some(failing));
        if let Err(error) = block_on(run(&fs, &config, &mut |_| {})) {
            assert!(error.is_interrupt(), "{error}");
            assert!(error.to_string().contains("everything that the run created was removed"), "{error}");
        }
        let left: Vec<_> = fs.entries.borrow().keys().cloned().collect();
        assert_eq!(left, ["c", "c/notes"], "after {failing} calls, {at_once} at once");
    }
}

#[test]
fn leftovers_are_reported() {
    let fs = Counting { stuck: true, ..Counting::default() };
    fs.calls_left.set(Some(10));
    let config = PostmarkConfig { subdirectories: 0, size_low: 100, size_high: 100, ..small() };
    let error = block_on(run(&fs, &config, &mut |_| {})).unwrap_err();
    // A file takes three calls: three are complete, the fourth is open.
    let first = FileError::Other { path: "1".to_owned(), reason: "stuck".to_owned() };
    let leftovers = Some(Leftovers { count: 4, first });
    assert_eq!(error, RunError::File { phase: Phase::Create, source: FileError::Interrupted, leftovers });
    assert_eq!(
        error.to_string(),
        "interrupted (while creating files; 4 of the run's files and directories could not be removed: 1: stuck)"
    );
}

/// The calls of the large published set, 2.8 million, match its report.
#[test]
fn the_large_published_set_runs() {
    let config = PostmarkConfig {
        number: 50_000,
        transactions: 50_000,
        size_low: 1000,
        size_high: 200_000,
        ..PostmarkConfig::default()
    };
    let fs = Counting::default();
    let outcome = block_on(run(&fs, &config, &mut |_| {})).unwrap();
    assert_eq!((fs.bytes_written.get(), fs.bytes_read.get()), (8_615_456_523, 2_753_016_550));
    assert_eq!(outcome.counts.bytes_written_f32, 8_615_364_608.0);
    let figures = outcome.figures();
    assert_eq!((figures.created, figures.creation_alone, figures.created_mixed), (74_761, 50_000, 24_761));
    assert_eq!((figures.deleted, figures.deletion_alone, figures.deleted_mixed), (74_761, 49_522, 25_239));
    assert_eq!((figures.read, figures.appended), (24_974, 25_025));
    // Every file and append ends with a partial buffer, and most start with full ones.
    let calls = fs.writes.get() + fs.reads.get();
    assert!((2_800_000..2_900_000).contains(&calls), "{calls}");
}
