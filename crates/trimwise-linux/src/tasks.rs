//! Workloads of several tasks on a real directory: each task is a thread that has opened the directory for itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, ScopedJoinHandle};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trimwise::files::{FileError, Files as _};
use trimwise::units::SimDuration;
use trimwise::workload::program::{DIRECTORY, Program};
use trimwise::workload::stage::{Session, TaskEnd, joined};

use crate::directory::How;
use crate::directory_check::DirectoryError;
use crate::{RealDirectory, block_on};

/// This many tasks stay far below the usual limit of 1,024 open files.
const TASKS_FEW: u32 = 100;

impl RealDirectory {
    /// Checks that the workload's directory is new and its files would fit. Creates nothing.
    pub fn check_program(&self, program: &Program) -> Result<(), DirectoryError> {
        self.check_free(DIRECTORY, program.needed()).map(drop)
    }

    /// Runs the workload and removes its files, even if it fails. Returns the ends of its tasks, and the time that they
    /// took together.
    pub fn run_program(
        &self,
        program: &Program,
        seed: u64,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<(Vec<TaskEnd>, SimDuration), FileError> {
        let session = Session::new(program.clone(), seed);
        let prepared = ready(block_on(session.prepare(self)));
        let begin = self.now();
        let ends = prepared.and_then(|()| self.run_session(&session, interrupted));
        let duration = self.now().since(begin);
        let removed = ready(block_on(session.remove(self)));
        let ends = ends?;
        removed.map(|()| (ends, duration))
    }

    /// Runs the tasks of a session whose files exist, and keeps all files. Returns the ends of its tasks.
    pub fn run_session(
        &self,
        session: &Session,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Vec<TaskEnd>, FileError> {
        if session.tasks() > TASKS_FEW {
            allow_open_files();
        }
        thread::scope(|scope| {
            let (path, how) =
                (self.path(), How { interrupted: Arc::clone(interrupted), ..self.how().clone() });
            let task = |task| {
                let how = how.clone();
                thread::Builder::new().spawn_scoped(scope, move || {
                    let other = |e: DirectoryError| FileError::Other {
                        path: path.display().to_string(),
                        reason: e.to_string(),
                    };
                    let root = Self::open_as(path, how).map_err(other)?;
                    ready(block_on(session.run_task(&root, task)))
                })
            };
            let threads: Vec<_> = (0..session.tasks()).map(task).collect();
            if threads.iter().any(Result::is_err) {
                session.fail(); // the others would wait for a task that does not exist
            }
            let join = |thread: io::Result<ScopedJoinHandle<_>>| match thread {
                Ok(thread) => thread.join().unwrap_or(Err(died())),
                Err(e) => Err(not_started(&e)),
            };
            joined(threads.into_iter().map(join).collect())
        })
    }
}

/// Raises the limit of open files to its maximum, since each task opens some.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, opening a file will report it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn not_started(error: &io::Error) -> FileError {
    let reason = format!("a thread for a task cannot be started ({error}); expected fewer tasks");
    FileError::Other { path: DIRECTORY.to_owned(), reason }
}

fn died() -> FileError {
    FileError::Other { path: DIRECTORY.to_owned(), reason: "a task has died".to_owned() }
}

fn ready<T>(result: Result<Result<T, FileError>, crate::NotReady>) -> Result<T, FileError> {
    result.unwrap_or_else(|e| Err(FileError::Other { path: DIRECTORY.to_owned(), reason: e.to_string() }))
}
