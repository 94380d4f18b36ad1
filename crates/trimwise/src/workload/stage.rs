//! The stage of a workload of several tasks: a file system with timed calls, which remembers the files.
//!
//! A [`Session`] is one run; its tasks share it. In the model they are tasks of the engine, on a real directory
//! threads, each with its own [`Files`]. So shared state is `Sync`, and a task waits for another only by looking again
//! after a while ([`Stage::wait_until`]).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rand_core::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::ageing::below;
use super::days::{Days, Paced, PacedTask, Pacer};
use super::latency::{OpLatencies, Operation};
use super::lock;
use super::program::{Part, Program};
use crate::files::{FileError, Files, Measured, OpenMode};
use crate::units::{Bytes, SimDuration, SimTime};

/// How often a task that waits for another looks again.
const LOOK_AGAIN: SimDuration = SimDuration::from_millis(1);

/// Maximum bytes that one call writes or reads; larger transfers are several calls.
const CALL_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub struct Session {
    pub program: Program,
    seed: u64,
    /// Pacers that spread the operations over days, one for each part of the program; empty without days.
    pacers: Vec<Pacer>,
    names: Mutex<(BTreeSet<String>, BTreeSet<String>)>,
    shared: Vec<OnceLock<Box<dyn Any + Send + Sync>>>,
    data: Mutex<Arc<[u8]>>,
    failed: AtomicBool,
}

#[derive(Debug, Default)]
pub struct TaskEnd {
    latencies: OpLatencies,
    done: Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Operations of the workload's own kind, such as transactions.
    pub operations: u64,
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub fsyncs: u64,
    /// Files removed, or replaced by a rename.
    pub files_removed: u64,
    /// Bytes of files that holes were punched into: the TRIMs of a fio job.
    #[serde(default)]
    pub punched_bytes: u64,
}

impl Done {
    pub fn frees(&self) -> bool {
        self.files_removed > 0 || self.punched_bytes > 0
    }
}

impl Session {
    /// Starts a run of `program`. All random choices depend only on `seed`.
    pub fn new(program: Program, seed: u64) -> Self {
        Self {
            shared: (0..program.parts()).map(|_| OnceLock::new()).collect(),
            program,
            seed,
            pacers: Vec::new(),
            names: Mutex::default(),
            data: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }

    /// Spreads the operations of each part over the days, which begin at `begin`.
    pub fn spread(self, days: &Days, begin: SimTime) -> Self {
        let pacer = |(number, (day, operations, tasks))| {
            Pacer::new(&days.of(day), operations, tasks, begin, self.seed ^ (number as u64) << 40)
        };
        Self { pacers: self.program.paces(self.seed).enumerate().map(pacer).collect(), ..self }
    }

    /// Returns how punctual the operations were, if they are spread over days.
    pub fn paced(&self) -> Option<Paced> {
        self.pacers.iter().map(Pacer::paced).reduce(|sum, paced| Paced {
            operations: sum.operations + paced.operations,
            waiting: sum.waiting + paced.waiting,
            late: sum.late + paced.late,
            late_max: sum.late_max.max(paced.late_max),
        })
    }

    pub fn tasks(&self) -> u32 {
        self.program.tasks()
    }

    pub async fn prepare<F: Files>(&self, fs: &F) -> Result<(), FileError> {
        self.program.prepare(&Stage::new(self, fs, 0)).await
    }

    /// Runs one task. If it fails, the tasks that wait for it end too.
    ///
    /// # Errors
    /// Errors of the file system; [`FileError::Interrupted`] if the failure of another task ended this one.
    pub async fn run_task<F: Files>(&self, fs: &F, task: u32) -> Result<TaskEnd, FileError> {
        let stage = Stage::new(self, fs, task);
        let result = self.program.run_task(&stage).await;
        if let Some(pace) = &stage.pace {
            pace.ended(fs);
        }
        self.failed.fetch_or(result.is_err(), Ordering::SeqCst);
        result.map(|()| TaskEnd { latencies: stage.latencies.into_inner(), done: stage.done.get() })
    }

    /// Ends the tasks that wait for others, as after a failure of one.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    pub async fn remove<F: Files>(&self, fs: &F) -> Result<(), FileError> {
        let (files, directories) = std::mem::take(&mut *lock(&self.names));
        let gone = |result| match result {
            Err(FileError::NotFound { .. }) => Ok(()),
            result => result,
        };
        for path in files {
            gone(fs.unlink(&path).await)?;
        }
        // Deeper directories come later in the order.
        for path in directories.iter().rev() {
            gone(fs.rmdir(path).await)?;
        }
        Ok(())
    }
}

impl TaskEnd {
    pub fn frees(&self) -> bool {
        self.done.frees()
    }
}

/// Adds up the tasks of a run.
pub fn sum(ends: impl IntoIterator<Item = TaskEnd>) -> (Done, OpLatencies) {
    let mut total = TaskEnd::default();
    for TaskEnd { latencies, done } in ends {
        total.latencies.add(&latencies);
        total.done.operations += done.operations;
        total.done.written_bytes += done.written_bytes;
        total.done.read_bytes += done.read_bytes;
        total.done.fsyncs += done.fsyncs;
        total.done.files_removed += done.files_removed;
        total.done.punched_bytes += done.punched_bytes;
    }
    (total.done, total.latencies)
}

/// Returns the results if all tasks succeeded.
///
/// # Errors The first error that explains the failure, rather than the error of a task that another's failure ended.
pub fn joined(ends: Vec<Result<TaskEnd, FileError>>) -> Result<Vec<TaskEnd>, FileError> {
    let is_cause = |end: &Result<TaskEnd, FileError>| matches!(end, Err(e) if *e != FileError::Interrupted);
    match ends.iter().position(is_cause) {
        Some(cause) => ends.into_iter().nth(cause).map_or(Ok(Vec::new()), |end| end.map(|end| vec![end])),
        None => ends.into_iter().collect(),
    }
}

pub struct Stage<'a, F: Files> {
    session: &'a Session,
    fs: &'a F,
    /// Number of the task, from 0.
    pub task: u32,
    pub(super) part: Part,
    pace: Option<PacedTask<'a>>,
    rng: RefCell<Xoshiro256PlusPlus>,
    latencies: RefCell<OpLatencies>,
    done: Cell<Done>,
    data: RefCell<Arc<[u8]>>,
}

impl<'a, F: Files> Stage<'a, F> {
    fn new(session: &'a Session, fs: &'a F, task: u32) -> Self {
        let part = session.program.part_of(task);
        Self {
            session,
            fs,
            task,
            part,
            pace: session.pacers.get(part.number).map(PacedTask::new),
            rng: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(session.seed ^ u64::from(task) << 48)),
            latencies: RefCell::default(),
            done: Cell::default(),
            data: RefCell::default(),
        }
    }

    /// Draws a number below `n`, which must not be 0.
    pub fn below(&self, n: u64) -> u64 {
        below(&mut self.rng.borrow_mut(), n)
    }

    pub fn happens(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns the state that the tasks share; the first task that asks for it creates it.
    pub(super) fn shared<T: Default + Send + Sync + 'static>(&self) -> &'a T {
        let any: &'a Box<dyn Any + Send + Sync> =
            self.session.shared[self.part.number].get_or_init(|| Box::<T>::default());
        any.downcast_ref().expect("a workload shares one type")
    }

    /// Waits until `condition` holds.
    ///
    /// # Errors
    /// [`FileError::Interrupted`] if another task has failed, or the user wants to stop.
    pub async fn wait_until(&self, condition: impl Fn() -> bool) -> Result<(), FileError> {
        self.wait_until_every(None, condition).await
    }

    /// Waits as [`Stage::wait_until`] does, and looks again after each `nap` (a millisecond if `None`).
    pub(super) async fn wait_until_every(
        &self,
        nap: Option<SimDuration>,
        condition: impl Fn() -> bool,
    ) -> Result<(), FileError> {
        let look_again = nap.unwrap_or(LOOK_AGAIN);
        let pacer = self.session.pacers.get(self.part.number);
        let _idle = pacer.filter(|_| !condition()).map(Pacer::idle);
        while !condition() {
            if self.session.failed.load(Ordering::SeqCst) {
                return Err(FileError::Interrupted);
            }
            let nap = pacer.map_or(look_again, |pacer| pacer.nap(self.fs.now(), look_again));
            self.fs.sleep(nap).await;
            self.fs.statfs().await?; // an interrupt shows in calls
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), FileError> {
        if self.session.failed.load(Ordering::SeqCst) { Err(FileError::Interrupted) } else { Ok(()) }
    }

    pub(super) fn seed(&self) -> u64 {
        self.session.seed
    }

    pub(super) fn begin_anew(&self) {
        self.done.set(Done::default());
        *self.latencies.borrow_mut() = OpLatencies::default();
    }

    fn count(&self, change: impl FnOnce(&mut Done)) {
        let mut done = self.done.get();
        change(&mut done);
        self.done.set(done);
    }

    /// Waits until the next operation of the workload's own kind is due, then begins and counts it.
    pub async fn operation(&self) {
        if let Some(pace) = &self.pace {
            pace.next(self.fs).await;
        }
        self.count(|done| done.operations += 1);
    }

    /// Performs a call and records how long it took. Returns the number of bytes read.
    async fn timed(&self, operation: Operation, call: Measured<'_, F::File>) -> Result<usize, FileError> {
        let (duration, read) = self.fs.timed(call).await?;
        self.latencies.borrow_mut().record(operation, duration);
        Ok(read)
    }

    pub fn now(&self) -> SimTime {
        self.fs.now()
    }

    pub async fn sleep(&self, duration: SimDuration) {
        self.fs.sleep(duration).await;
    }

    pub(super) async fn free(&self) -> Result<Bytes, FileError> {
        Ok(self.fs.statfs().await?.free)
    }

    pub(crate) async fn mkdir(&self, path: &str) -> Result<(), FileError> {
        match self.fs.mkdir(path).await {
            Err(FileError::Exists { .. }) => return Ok(()),
            result => result?,
        }
        lock(&self.session.names).1.insert(path.to_owned());
        Ok(())
    }

    pub(crate) async fn rmdir(&self, path: &str) -> Result<(), FileError> {
        self.fs.rmdir(path).await?;
        lock(&self.session.names).1.remove(path);
        Ok(())
    }

    pub async fn open(&self, path: &str, mode: OpenMode) -> Result<F::File, FileError> {
        let file = self.fs.open(path, mode).await?;
        if mode != OpenMode::Read {
            lock(&self.session.names).0.insert(path.to_owned());
        }
        Ok(file)
    }

    pub(super) async fn drop_cached(&self, file: &mut F::File) -> Result<(), FileError> {
        self.fs.drop_cached(file).await
    }

    pub async fn close(&self, file: F::File) -> Result<(), FileError> {
        self.fs.close(file).await
    }

    /// Creates a file of this length, in one or more writes. Returns it open.
    pub async fn create(&self, path: &str, bytes: u64) -> Result<F::File, FileError> {
        let mut file = self.open(path, OpenMode::Create).await?;
        self.write(&mut file, bytes).await?;
        Ok(file)
    }

    /// Returns varied data to write, for devices that compress.
    fn data(&self, len: usize) -> Arc<[u8]> {
        let mut data = self.data.borrow_mut();
        if data.len() < len {
            let mut shared = lock(&self.session.data);
            if shared.len() < len {
                let mut mixed = 0x9e37_79b9_7f4a_7c15_u64;
                let words = std::iter::repeat_with(|| {
                    mixed = mixed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                    (mixed >> 32) as u32
                });
                *shared = words.take(len.next_power_of_two() / 4 + 1).flat_map(u32::to_le_bytes).collect();
            }
            *data = Arc::clone(&shared);
        }
        Arc::clone(&data)
    }

    pub async fn write(&self, file: &mut F::File, bytes: u64) -> Result<(), FileError> {
        let mut left = bytes;
        while left > 0 {
            let len = left.min(CALL_BYTES_MAX as u64);
            self.timed(Operation::Write, Measured::Write(file, &self.data(len as usize)[..len as usize]))
                .await?;
            left -= len;
        }
        self.count(|done| done.written_bytes += bytes);
        Ok(())
    }

    pub async fn pwrite(&self, file: &mut F::File, offset: u64, bytes: u64) -> Result<(), FileError> {
        let data = self.data(bytes as usize);
        self.timed(Operation::Write, Measured::Pwrite(file, offset, &data[..bytes as usize])).await?;
        self.count(|done| done.written_bytes += bytes);
        Ok(())
    }

    pub(crate) async fn pread(&self, file: &mut F::File, offset: u64, bytes: u64) -> Result<u64, FileError> {
        // The memory of the data is for writing; reads must not change it.
        let mut buffer = vec![0; bytes as usize];
        let read = self.timed(Operation::Read, Measured::Pread(file, offset, &mut buffer)).await? as u64;
        self.count(|done| done.read_bytes += read);
        Ok(read)
    }

    pub(crate) async fn read_whole(&self, path: &str, piece_bytes: u64) -> Result<u64, FileError> {
        let mut file = self.open(path, OpenMode::Read).await?;
        let mut at = 0;
        loop {
            match self.pread(&mut file, at, piece_bytes).await? {
                0 => break,
                read => at += read,
            }
        }
        self.close(file).await?;
        Ok(at)
    }

    pub(super) async fn punch(&self, file: &mut F::File, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.fs.punch(file, offset, bytes).await?;
        self.count(|done| done.punched_bytes += bytes);
        Ok(())
    }

    pub async fn fsync(&self, file: &mut F::File) -> Result<(), FileError> {
        self.timed(Operation::Fsync, Measured::Fsync(file)).await?;
        self.count(|done| done.fsyncs += 1);
        Ok(())
    }

    /// Makes a file's data durable. It counts as an fsync.
    pub(crate) async fn fdatasync(&self, file: &mut F::File) -> Result<(), FileError> {
        self.timed(Operation::Fsync, Measured::Fdatasync(file)).await?;
        self.count(|done| done.fsyncs += 1);
        Ok(())
    }

    /// Makes all of the file system durable. It counts as an fsync.
    pub(super) async fn sync(&self) -> Result<(), FileError> {
        let begin = self.now();
        self.fs.sync().await?;
        self.latencies.borrow_mut().record(Operation::Fsync, self.now().since(begin));
        self.count(|done| done.fsyncs += 1);
        Ok(())
    }

    pub(super) async fn drop_caches(&self) -> Result<(), FileError> {
        self.fs.drop_caches().await
    }

    pub async fn unlink(&self, path: &str) -> Result<(), FileError> {
        self.timed(Operation::Unlink, Measured::Unlink(path)).await?;
        lock(&self.session.names).0.remove(path);
        self.count(|done| done.files_removed += 1);
        Ok(())
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.fs.rename(from, to).await?;
        let names = &mut lock(&self.session.names).0;
        names.remove(from);
        let is_replaced = !names.insert(to.to_owned());
        self.count(|done| done.files_removed += u64::from(is_replaced));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_application_is_spread_over_days_of_its_own() {
        let shapes = |shape: &str| {
            let program = Program::parse("maildir+desktop:tasks=2+oltp", "").unwrap();
            let days = Days::new(7, shape.parse().unwrap()).unwrap();
            let session = Session::new(program, 1).spread(&days, SimTime::ZERO);
            session.pacers.iter().map(|pacer| pacer.days().shape().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shapes("own"), ["server", "office", "server"]);
        assert_eq!(shapes("nightly"), ["nightly"; 3]);
    }
}
