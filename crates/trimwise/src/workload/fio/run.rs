//! Carries out the operations of jobs.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, OnceLock};

use super::random::Tausworthe;
use super::sequence::paces;
use super::{Durable, Ends, Io, Job, JobFile, Rate, Sequence, TRIM};
use crate::files::{FileError, Files, OpenMode};
use crate::units::{SimDuration, SimTime};
use crate::workload::DIRECTORY;
use crate::workload::lock;
use crate::workload::stage::Stage;

const PIECE: u64 = 1 << 20;
const OPEN_MAX: usize = 256;
/// Latest time at which a rate may let an operation begin.
const DUE_MAX_NS: u64 = 1_000_000_000_000_000_000;
/// How often tasks look again if many of them wait for long.
const LOOK_AGAIN: SimDuration = SimDuration::from_millis(10);
/// How often a job that is ahead of others in its flow looks again, unless the job sets its own interval.
const FLOW_AGAIN: SimDuration = SimDuration::from_micros(100);

#[derive(Debug, Default)]
struct Shared {
    /// The jobs on this file system.
    jobs: OnceLock<Vec<Job>>,
    running: Mutex<Vec<Running>>,
}

#[derive(Debug)]
struct Running {
    /// Made when the job begins: a map of a large file takes memory.
    sequence: Option<Sequence>,
    began: Option<SimTime>,
    tasks_left: u32,
    /// The end of another job ends this one.
    is_stopped: bool,
    /// Times from which the next operation in each direction can begin, since the job's start, and after a pause.
    due: [SimDuration; 3],
    resumes: SimDuration,
    transferred: [u64; 3],
    operations: u64,
    paces: [Tausworthe; 3],
    /// Files whose cached pages were dropped.
    invalidated: BTreeSet<usize>,
    /// Operations that tasks have begun and not ended.
    in_flight: u32,
    /// How often the files were removed between loops.
    removals: u64,
    /// A task syncs or removes all files, while the others wait.
    is_alone: bool,
}

fn path(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

pub async fn prepare<F: Files>(jobs: &JobFile, stage: &Stage<'_, F>) -> Result<(), FileError> {
    let free = stage.free().await?;
    let refused = |errors| FileError::Other { path: DIRECTORY.to_owned(), reason: format!("{errors}") };
    let jobs = jobs.fitted(free).map_err(refused)?;
    for (name, bytes) in jobs.files() {
        for (end, _) in name.match_indices('/') {
            stage.mkdir(&path(&name[..end])).await?;
        }
        let users = || jobs.jobs.iter().filter(|job| job.files.iter().any(|file| file.name == name));
        if users().all(|job| job.creates_on_open) {
            continue;
        }
        let is_read = users().any(|job| job.reads() || job.trims());
        let mut file = stage.create(&path(name), 0).await?;
        let mut left = if is_read { bytes } else { 0 };
        while left > 0 {
            let piece = left.min(PIECE);
            stage.write(&mut file, piece).await?;
            left -= piece;
        }
        if is_read {
            stage.fsync(&mut file).await?;
        }
        stage.close(file).await?;
    }
    let shared: &Shared = stage.shared();
    let _ = shared.jobs.set(jobs.jobs); // set once, before the tasks
    Ok(())
}

pub async fn run<F: Files>(jobs: &JobFile, stage: &Stage<'_, F>) -> Result<(), FileError> {
    let shared: &Shared = stage.shared();
    let jobs = shared.jobs.get_or_init(|| jobs.jobs.clone());
    {
        let running = &mut *lock(&shared.running);
        if running.is_empty() {
            *running = jobs.iter().map(|job| Running::new(job, stage.seed())).collect();
        }
    }
    let genesis = stage.now();
    let groups = jobs.iter().map(|job| job.group).max().unwrap_or(0);
    for group in 0..=groups {
        // The task's place among those of the group's jobs, if there are so many.
        let mut slot = stage.task;
        for (index, job) in jobs.iter().enumerate().filter(|(_, job)| job.group == group) {
            if slot < job.depth {
                run_task_of(jobs, index, slot == 0, genesis, shared, stage).await?;
                break;
            }
            slot -= job.depth;
        }
    }
    Ok(())
}

/// Runs one of the tasks of a job, once the jobs before it have ended.
async fn run_task_of<F: Files>(
    jobs: &[Job],
    index: usize,
    is_first: bool,
    genesis: SimTime,
    shared: &Shared,
    stage: &Stage<'_, F>,
) -> Result<(), FileError> {
    let job = &jobs[index];
    let is_awaited = |other: &Job| {
        other.group < job.group || job.waits_for.as_ref() == Some(&other.name) && other.name != job.name
    };
    let may_begin = |running: &[Running]| {
        running.iter().zip(jobs).all(|(r, other)| r.tasks_left == 0 || !is_awaited(other))
    };
    let nap = if is_first { None } else { Some(LOOK_AGAIN) };
    stage.wait_until_every(nap, || may_begin(&lock(&shared.running))).await?;
    let elapsed = stage.now().since(genesis);
    if job.starts_after > elapsed {
        stage.sleep(job.starts_after - elapsed).await;
    }
    let files = job.files.iter().map(|_| None).collect();
    let mut task = Task { stage, job, index, shared, files, order: VecDeque::new(), removals: 0 };
    task.work().await?;
    task.end(jobs).await
}

impl Running {
    fn new(job: &Job, seed: u64) -> Self {
        Self {
            sequence: None,
            began: None,
            tasks_left: job.depth,
            is_stopped: false,
            due: [SimDuration::ZERO; 3],
            resumes: SimDuration::ZERO,
            transferred: [0; 3],
            operations: 0,
            paces: paces(job, seed),
            invalidated: BTreeSet::new(),
            in_flight: 0,
            removals: 0,
            is_alone: false,
        }
    }

    fn next(&mut self, job: &Job, seed: u64) -> Option<(Io, SimDuration)> {
        if self.is_stopped {
            return None;
        }
        let io = self.sequence.get_or_insert_with(|| Sequence::new(job, seed)).next()?;
        self.in_flight += 1;
        let (direction, bytes) = match io {
            Io::Transfer { writes, bytes, .. } => (usize::from(writes), bytes),
            Io::Trim { bytes, .. } => (TRIM, bytes),
            Io::Fsync(_) | Io::Fdatasync(_) | Io::FsyncAll | Io::Unlink => {
                self.is_alone |= matches!(io, Io::FsyncAll | Io::Unlink);
                return Some((io, SimDuration::ZERO));
            }
        };
        let due = self.due[direction].max(self.resumes);
        self.transferred[direction] += bytes;
        if let Some(rate) = job.rate[direction] {
            self.due[direction] = self.next_due(job, direction, rate);
        }
        Some((io, due))
    }

    /// Returns when the next operation in this direction can begin (`usec_for_io`).
    fn next_due(&mut self, job: &Job, direction: usize, rate: Rate) -> SimDuration {
        let least = job.sizes.ranges[direction].0;
        let (bytes, operations) = match rate {
            Rate::Bytes(bytes) => (bytes, (bytes / least).max(1)),
            Rate::Operations(operations) => (operations.saturating_mul(least), operations),
        };
        let interval_us = 1_000_000 / operations;
        let is_split = matches!(rate, Rate::Operations(_)) && !job.sizes.splits[direction].is_empty();
        if job.is_poisson {
            let uniform = (self.paces[direction].draw() as f64 + 1.0) / 4_294_967_296.0;
            let us = interval_us as f64 * -libm::log(uniform);
            return self.due[direction] + SimDuration::from_micros(us as u64);
        }
        if is_split {
            return self.due[direction] + SimDuration::from_micros(interval_us);
        }
        let ns = u128::from(self.transferred[direction]) * 1_000_000_000 / u128::from(bytes.max(1));
        SimDuration(ns.min(DUE_MAX_NS.into()) as u64)
    }
}

/// Returns true if a job has had its share of the operations of its flow.
fn is_ahead(running: &[Running], jobs: &[Job], index: usize) -> bool {
    let Some(flow) = jobs[index].flow else { return false };
    let others = running.iter().zip(jobs).filter(|(r, _)| r.tasks_left > 0);
    let others = others
        .filter_map(|(r, job)| Some((r.operations, job.flow.filter(|other| other.id == flow.id)?.weight)));
    let (operations, weights) =
        others.fold((1, 0), |(all, weights), (own, weight)| (all + own, weights + weight));
    running[index].operations.saturating_mul(weights) > operations.saturating_mul(flow.weight)
}

struct Task<'a, F: Files> {
    stage: &'a Stage<'a, F>,
    job: &'a Job,
    index: usize,
    shared: &'a Shared,
    files: Vec<Option<F::File>>,
    /// Open files, from the one that was opened first.
    order: VecDeque<usize>,
    /// Removals of the job's files that this task has seen.
    removals: u64,
}

impl<F: Files> Task<'_, F> {
    fn running<T>(&self, look: impl FnOnce(&mut Running) -> T) -> T {
        look(&mut lock(&self.shared.running)[self.index])
    }

    /// Opens a file if necessary. Its cached pages are dropped when the job opens it first.
    async fn file(&mut self, index: usize) -> Result<&mut F::File, FileError> {
        if self.files[index].is_none() {
            if self.order.len() >= OPEN_MAX.min(self.job.open_files.max(1))
                && let Some(oldest) = self.order.pop_front()
                && let Some(file) = self.files[oldest].take()
            {
                self.stage.close(file).await?;
            }
            let mode =
                match (self.job.direct, self.job.writes() || self.job.trims() || self.job.creates_on_open) {
                    (true, _) => OpenMode::Direct,
                    (false, true) => OpenMode::CreateKeep,
                    (false, false) => OpenMode::Read,
                };
            let mut open = self.stage.open(&path(&self.job.files[index].name), mode).await?;
            let is_first = self.running(|r| r.invalidated.insert(index));
            if is_first && self.job.invalidates && !self.job.direct {
                self.stage.drop_cached(&mut open).await?;
            }
            self.files[index] = Some(open);
            self.order.push_back(index);
        }
        let name = &self.job.files[index].name;
        self.files[index].as_mut().ok_or_else(|| FileError::NotFound { path: name.clone() })
    }

    async fn work(&mut self) -> Result<(), FileError> {
        let (stage, job) = (self.stage, self.job);
        let begin = self.running(|r| *r.began.get_or_insert_with(|| stage.now()));
        // Read the clock only if it matters: in a guest that is a system call, and takes time there.
        let elapsed = || stage.now().since(begin);
        let end = job.runtime.map(|runtime| job.ramp + runtime);
        let mut is_ramping = job.ramp > SimDuration::ZERO;
        loop {
            if end.is_some() || is_ramping {
                let elapsed = elapsed();
                if end.is_some_and(|end| elapsed >= end) {
                    return Ok(());
                }
                if is_ramping && elapsed >= job.ramp {
                    stage.begin_anew();
                    is_ramping = false;
                }
            }
            stage.check()?;
            if job.unlinks_in_loops || job.end_fsync {
                self.let_go().await?;
            }
            if let Some(flow) = job.flow
                && self.is_ahead()
            {
                stage.sleep(if flow.sleep > SimDuration::ZERO { flow.sleep } else { FLOW_AGAIN }).await;
                continue;
            }
            let Some((io, due)) = self.running(|r| r.next(job, stage.seed())) else { return Ok(()) };
            if due > SimDuration::ZERO {
                let elapsed = elapsed();
                if due > elapsed {
                    let due = end.map_or(due, |end| due.min(end));
                    stage.sleep(SimDuration(due.0.saturating_sub(elapsed.0))).await;
                    if end.is_some_and(|end| stage.now().since(begin) >= end) {
                        self.running(|r| r.in_flight -= 1);
                        return Ok(());
                    }
                }
            }
            self.carry_out(io).await?;
            self.running(|r| {
                r.in_flight -= 1;
                if matches!(io, Io::Transfer { .. } | Io::Trim { .. }) {
                    r.operations += 1;
                    if job.think > SimDuration::ZERO && r.operations.is_multiple_of(job.think_every) {
                        r.resumes = elapsed() + job.think;
                    }
                }
            });
        }
    }

    async fn close_all(&mut self) -> Result<(), FileError> {
        self.order.clear();
        for file in self.files.iter_mut().filter_map(Option::take) {
            self.stage.close(file).await?;
        }
        Ok(())
    }

    /// Waits while another task syncs or removes the job's files, and closes those that are gone.
    async fn let_go(&mut self) -> Result<(), FileError> {
        self.stage.wait_until(|| self.running(|r| !r.is_alone)).await?;
        let removals = self.running(|r| r.removals);
        if std::mem::replace(&mut self.removals, removals) == removals {
            Ok(())
        } else {
            self.close_all().await
        }
    }

    /// Removes the job's files when no other operation is in flight, while the other tasks wait.
    async fn remove_files(&mut self) -> Result<(), FileError> {
        self.stage.wait_until(|| self.running(|r| r.in_flight == 1)).await?;
        self.close_all().await?;
        self.unlink_files().await?;
        self.removals = self.running(|r| {
            (r.is_alone, r.removals) = (false, r.removals + 1);
            r.removals
        });
        Ok(())
    }

    /// Syncs the job's files when no other operation is in flight, while the other tasks wait.
    async fn sync_files(&mut self) -> Result<(), FileError> {
        self.stage.wait_until(|| self.running(|r| r.in_flight == 1)).await?;
        self.fsync_all().await?;
        self.running(|r| r.is_alone = false);
        Ok(())
    }

    async fn fsync_all(&mut self) -> Result<(), FileError> {
        for file in 0..self.files.len() {
            self.stage.fsync(self.file(file).await?).await?;
        }
        Ok(())
    }

    async fn unlink_files(&self) -> Result<(), FileError> {
        for file in &self.job.files {
            match self.stage.unlink(&path(&file.name)).await {
                Err(FileError::NotFound { .. }) => {} // shared with another job
                result => result?,
            }
        }
        Ok(())
    }

    fn is_ahead(&self) -> bool {
        let jobs = self.shared.jobs.get().map_or(&[][..], |jobs| jobs);
        is_ahead(&lock(&self.shared.running), jobs, self.index)
    }

    async fn carry_out(&mut self, io: Io) -> Result<(), FileError> {
        let (stage, durable) = (self.stage, self.job.durable);
        match io {
            Io::Fsync(file) => stage.fsync(self.file(file).await?).await,
            Io::Fdatasync(file) => stage.fdatasync(self.file(file).await?).await,
            Io::FsyncAll => self.sync_files().await,
            Io::Unlink => self.remove_files().await,
            Io::Trim { file, offset, bytes } => {
                stage.operation().await;
                stage.punch(self.file(file).await?, offset, bytes).await
            }
            Io::Transfer { file, writes, offset, bytes } => {
                stage.operation().await;
                let file = self.file(file).await?;
                match (writes, durable) {
                    (false, _) => stage.pread(file, offset, bytes).await.map(drop),
                    (true, Durable::No) => stage.pwrite(file, offset, bytes).await,
                    (true, Durable::Data) => {
                        stage.pwrite(file, offset, bytes).await?;
                        stage.fdatasync(file).await
                    }
                    (true, Durable::Whole) => {
                        stage.pwrite(file, offset, bytes).await?;
                        stage.fsync(file).await
                    }
                }
            }
        }
    }

    async fn end(mut self, jobs: &[Job]) -> Result<(), FileError> {
        // A sequence that was cut short, by time or by another job, has not come to its sync.
        let owes_sync = |r: &Running| r.sequence.as_ref().is_some_and(Sequence::owes_sync);
        let (is_last, owes_sync) = self.running(|r| (r.tasks_left == 1, owes_sync(r)));
        if is_last && self.job.end_fsync && owes_sync {
            self.fsync_all().await?;
        }
        self.close_all().await?;
        if is_last && self.job.unlinks {
            self.unlink_files().await?;
        }
        let running = &mut *lock(&self.shared.running);
        running[self.index].tasks_left -= 1;
        if running[self.index].tasks_left == 0 {
            running[self.index].sequence = None;
            let ended = |other: &Job| match self.job.ends {
                None => false,
                Some(Ends::All) => true,
                Some(Ends::Group) => other.group == self.job.group,
            };
            running
                .iter_mut()
                .zip(jobs)
                .filter(|(_, other)| ended(other))
                .for_each(|(r, _)| r.is_stopped = true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::stage::Done;

    fn jobs(text: &str) -> Vec<Job> {
        JobFile::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).jobs
    }

    #[test]
    fn a_rate_says_when_each_operation_can_begin() {
        for (options, expected) in [
            // Milliseconds from the start; R, W and T are the directions, S a sync.
            ("rw=write\nbs=4k\nsize=16k\nrate=4k", "W0 W1000 W2000 W3000"),
            ("rw=write\nbs=4k\nsize=12k\nrate=8k", "W0 W500 W1000"),
            ("rw=write\nbs=4k\nsize=12k\nrate_iops=10", "W0 W100 W200"),
            ("rw=write\nbs=4k\nsize=12k", "W0 W0 W0"),
            // No sync waits, nor does it count.
            ("rw=write\nbs=4k\nsize=12k\nfsync=1\nrate_iops=10", "W0 S0 W100 S0 W200"),
            // Each direction has a rate of its own.
            ("rw=trimwrite\nbs=4k\nsize=8k\nrate_iops=,10,20", "T0 W0 T50 W100"),
            ("rw=trimwrite\nbs=4k\nsize=8k\nrate_iops=,,20", "T0 W0 T50 W0"),
            // A number of operations counts the smallest blocks, but with `bssplit` any.
            // These draw 4, 4, 8, 8, 4, 8, 16, 4, 4 and 4 KiB, and ten blocks of three sizes (`sequence/tests.rs`).
            (
                "rw=randwrite\nbsrange=4k-16k\nsize=64k\nrate_iops=10\nrandseed=0x89",
                "W0 W100 W200 W400 W600 W700 W900 W1300 W1400 W1500",
            ),
            (
                "rw=randwrite\nbssplit=4k/50:8k/30:16k/20\nsize=64k\nrate_iops=10\nrandseed=0x89",
                "W0 W100 W200 W300 W400 W500 W600 W700 W800 W900",
            ),
        ] {
            let job = &jobs(&format!("[a]\n{options}"))[0];
            let mut running = Running::new(job, 1);
            let mut found = Vec::new();
            while let Some((io, due)) = running.next(job, 1) {
                let kind = match io {
                    Io::Transfer { writes: false, .. } => 'R',
                    Io::Transfer { .. } => 'W',
                    Io::Trim { .. } => 'T',
                    _ => 'S',
                };
                found.push(format!("{kind}{}", due.as_nanos() / 1_000_000));
            }
            assert_eq!(found.join(" "), expected, "{options}");
            assert_eq!(running.in_flight as usize, found.len(), "operations taken: {options}");
        }
    }

    /// Runs the jobs on a small file system. Returns how long they took, in milliseconds, and what they did.
    fn ran(text: &str) -> (u64, Done) {
        use crate::block::BlockQueue;
        use crate::engine::Sim;
        use crate::fs::Volume;
        use crate::fs::host::{HostConfig, LinuxVersion};
        use crate::fs::layout::FormatOptions;
        use crate::policy::PolicySpec;
        use crate::ssd::{Ssd, SsdConfig};
        use crate::units::Bytes;
        use crate::workload::program::Program;
        use crate::workload::stage::{Session, sum};

        let program = Program::parse("job:a.fio", text).unwrap();
        let drive = SsdConfig { capacity_bytes: Bytes::mib(512).0, ..SsdConfig::default() };
        let host = HostConfig::of(LinuxVersion::TODAY, Bytes::mib(256));
        let sim = Sim::new();
        let queue = BlockQueue::new(&sim, Ssd::new(&drive, 1).unwrap(), host.queue);
        sim.run(async move {
            let volume = Volume::format(&queue, FormatOptions::TODAY).await.unwrap();
            let fs = volume.mount(host, PolicySpec::COMMIT.governor()).await;
            let session = Session::new(program, 5);
            session.prepare(&fs).await.unwrap();
            let begin = Files::now(&fs);
            let end = session.run_task(&fs, 0).await.unwrap();
            (Files::now(&fs).since(begin).as_nanos() / 1_000_000, sum([end]).0)
        })
        .unwrap()
    }

    #[test]
    fn a_job_ends_at_its_runtime_and_does_not_wait_for_what_is_due_later() {
        // An operation each four seconds, for one.
        let (took_ms, _) = ran("[a]\nrw=write\nbs=4k\nsize=64k\nrate=1k\nruntime=1\n");
        assert!((1_000..1_100).contains(&took_ms), "{took_ms} ms");
    }

    #[test]
    fn the_end_of_a_job_ends_those_of_its_group_or_all() {
        let jobs = |exit: &str| {
            format!("[a]\nrw=write\nbs=4k\nsize=8k\n{exit}\n[b]\nstonewall\nrw=write\nbs=4k\nsize=64k\n")
        };
        for (exit, kib) in [
            ("", 72),
            ("exitall", 72),
            ("exitall\nexit_what=group", 72),
            ("exitall\nexit_what=all", 8),
            ("exit_what=all", 72),
        ] {
            assert_eq!(ran(&jobs(exit)).1.written_bytes / 1024, kib, "{exit}");
        }
    }

    #[test]
    fn a_pause_delays_the_next_operation_and_a_stop_ends_all() {
        let job = &jobs("[a]\nrw=write\nbs=4k\nsize=12k\nrate_iops=10")[0];
        let mut running = Running::new(job, 1);
        running.next(job, 1);
        running.resumes = SimDuration::from_millis(150);
        assert_eq!(running.next(job, 1).map(|(_, due)| due), Some(SimDuration::from_millis(150)));
        // The rate's own time is later again.
        assert_eq!(running.next(job, 1).map(|(_, due)| due), Some(SimDuration::from_millis(200)));
        let mut stopped = Running::new(job, 1);
        stopped.is_stopped = true;
        assert_eq!(stopped.next(job, 1), None);
    }

    #[test]
    fn flows_keep_the_ratio_of_their_weights() {
        let jobs =
            jobs("[a]\nflow=1\nsize=1m\n[b]\nflow=3\nsize=1m\n[c]\nflow=1\nflow_id=7\nsize=1m\n[d]\nsize=1m");
        let ahead = |operations: [u64; 4], has_ended: bool| {
            let mut running: Vec<Running> = jobs.iter().map(|job| Running::new(job, 1)).collect();
            for (running, operations) in running.iter_mut().zip(operations) {
                running.operations = operations;
            }
            running[1].tasks_left -= u32::from(has_ended);
            [0, 1, 2, 3].map(|index| is_ahead(&running, &jobs, index))
        };
        for (operations, has_ended, expected) in [
            // Of 1 + 2 + 5 operations, a quarter is 2.
            ([2, 5, 0, 0], false, [false; 4]),
            ([3, 5, 0, 0], false, [true, false, false, false]),
            // Of 1 + 1 + 6, three quarters are 6.
            ([1, 6, 0, 0], false, [false; 4]),
            ([1, 7, 0, 0], false, [false, true, false, false]),
            // Neither a job that is over, nor one of another flow, nor one of none counts.
            ([100, 0, 0, 0], true, [false; 4]),
            ([0, 0, 100, 100], false, [false; 4]),
        ] {
            let case = format!("operations {operations:?}, b has ended: {has_ended}");
            assert_eq!(ahead(operations, has_ended), expected, "{case}");
        }
    }
}
