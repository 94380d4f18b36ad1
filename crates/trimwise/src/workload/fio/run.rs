//! Carries out the operations of jobs.

use std::sync::Mutex;

use super::{Io, Job, JobFile, Sequence};
use crate::files::{FileError, Files, OpenMode};
use crate::units::SimDuration;
use crate::workload::program::DIRECTORY;
use crate::workload::stage::{Stage, lock};

/// Bytes written at a time when a file is laid out.
const PIECE: u64 = 1 << 20;

#[derive(Debug, Default)]
struct Shared(Mutex<Vec<Running>>);

#[derive(Debug)]
struct Running {
    sequence: Sequence,
    is_open: bool,
    tasks_left: u32,
    /// Times from which the next read and the next write can begin, since the job's start.
    due: [SimDuration; 2],
    transferred: [u64; 2],
}

fn path(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

pub async fn prepare<F: Files>(jobs: &JobFile, stage: &Stage<'_, F>) -> Result<(), FileError> {
    for (name, bytes) in jobs.files() {
        for (end, _) in name.match_indices('/') {
            stage.mkdir(&path(&name[..end])).await?;
        }
        let is_read = jobs.jobs.iter().any(|job| job.reads && job.files.iter().any(|f| f.name == name));
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
    Ok(())
}

pub async fn run<F: Files>(jobs: &JobFile, stage: &Stage<'_, F>) -> Result<(), FileError> {
    let shared: &Shared = stage.shared();
    {
        let running = &mut *lock(&shared.0);
        if running.is_empty() {
            *running = jobs.jobs.iter().map(|job| Running::new(job, stage.seed())).collect();
        }
    }
    let (mut index, mut slot) = (0, stage.task);
    while slot >= jobs.jobs[index].depth {
        slot -= jobs.jobs[index].depth;
        index += 1;
    }
    let job = &jobs.jobs[index];
    let is_over = |running: &[Running]| {
        running.iter().zip(&jobs.jobs).all(|(r, j)| j.group >= job.group || r.tasks_left == 0)
    };
    stage.wait_until(|| is_over(&lock(&shared.0))).await?;
    let mut task = Task { stage, job, index, shared, files: Vec::new() };
    task.open(slot == 0).await?;
    task.work().await?;
    task.end().await
}

impl Running {
    fn new(job: &Job, seed: u64) -> Self {
        Self {
            sequence: Sequence::new(job, seed),
            is_open: false,
            tasks_left: job.depth,
            due: [SimDuration::ZERO; 2],
            transferred: [0; 2],
        }
    }

    fn next(&mut self, job: &Job) -> Option<(Io, SimDuration)> {
        let io = self.sequence.next()?;
        let Io::Transfer { writes, bytes, .. } = io else { return Some((io, SimDuration::ZERO)) };
        let direction = usize::from(writes);
        let due = self.due[direction];
        self.transferred[direction] += bytes;
        if let Some(rate) = job.rate[direction] {
            let ns = u128::from(self.transferred[direction]) * 1_000_000_000 / u128::from(rate);
            self.due[direction] = SimDuration(ns as u64);
        }
        Some((io, due))
    }
}

struct Task<'a, F: Files> {
    stage: &'a Stage<'a, F>,
    job: &'a Job,
    index: usize,
    shared: &'a Shared,
    files: Vec<F::File>,
}

impl<F: Files> Task<'_, F> {
    fn running<T>(&self, look: impl FnOnce(&mut Running) -> T) -> T {
        look(&mut lock(&self.shared.0)[self.index])
    }

    /// Opens the files. The first task also drops their cached pages, before the others begin.
    async fn open(&mut self, is_first: bool) -> Result<(), FileError> {
        if !is_first {
            self.stage.wait_until(|| self.running(|r| r.is_open)).await?;
        }
        let mode = match (self.job.direct, self.job.writes) {
            (true, _) => OpenMode::Direct,
            (false, true) => OpenMode::CreateKeep,
            (false, false) => OpenMode::Read,
        };
        for file in &self.job.files {
            let mut open = self.stage.open(&path(&file.name), mode).await?;
            if is_first && self.job.invalidates && !self.job.direct {
                self.stage.drop_cached(&mut open).await?;
            }
            self.files.push(open);
        }
        self.running(|r| r.is_open = true);
        Ok(())
    }

    async fn work(&mut self) -> Result<(), FileError> {
        let (stage, job) = (self.stage, self.job);
        let begin = stage.now();
        let end = job.runtime.map(|runtime| job.ramp + runtime);
        let mut is_ramping = job.ramp > SimDuration::ZERO;
        loop {
            let elapsed = stage.now().since(begin);
            if end.is_some_and(|end| elapsed >= end) {
                return Ok(());
            }
            if is_ramping && elapsed >= job.ramp {
                stage.begin_anew();
                is_ramping = false;
            }
            stage.check()?;
            let Some((io, due)) = self.running(|r| r.next(job)) else { return Ok(()) };
            if due > elapsed {
                let due = end.map_or(due, |end| due.min(end));
                stage.sleep(SimDuration(due.0 - elapsed.0)).await;
                if end.is_some_and(|end| stage.now().since(begin) >= end) {
                    return Ok(());
                }
            }
            match io {
                Io::Fsync(file) => stage.fsync(&mut self.files[file]).await?,
                Io::Fdatasync(file) => stage.fdatasync(&mut self.files[file]).await?,
                Io::Transfer { file, writes, offset, bytes } => {
                    stage.operation().await;
                    if writes {
                        stage.pwrite(&mut self.files[file], offset, bytes).await?;
                    } else {
                        stage.pread(&mut self.files[file], offset, bytes).await?;
                    }
                    if job.think > SimDuration::ZERO {
                        stage.sleep(job.think).await;
                    }
                }
            }
        }
    }

    async fn end(self) -> Result<(), FileError> {
        let is_last = self.running(|r| r.tasks_left == 1);
        for mut file in self.files {
            if is_last && self.job.end_fsync && self.job.writes {
                self.stage.fsync(&mut file).await?;
            }
            self.stage.close(file).await?;
        }
        if is_last && self.job.unlinks {
            for file in &self.job.files {
                match self.stage.unlink(&path(&file.name)).await {
                    Err(FileError::NotFound { .. }) => {} // shared with another job
                    result => result?,
                }
            }
        }
        lock(&self.shared.0)[self.index].tasks_left -= 1;
        Ok(())
    }
}
