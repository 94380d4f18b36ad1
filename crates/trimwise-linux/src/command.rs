//! A program of the user's as a workload of a real directory.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use trimwise::units::SimDuration;

/// How soon an interrupt reaches the program.
const POLL: Duration = Duration::from_millis(50);

/// How a program ended.
#[derive(Clone, Debug)]
pub struct CommandEnd {
    /// Its status; a program that was interrupted ended by SIGKILL.
    pub status: ExitStatus,
    /// Its standard error.
    pub errors: Vec<u8>,
    /// From before its start until it was gone.
    pub duration: SimDuration,
}

/// Runs a program in a directory, without input and output, until it ends or `interrupted` is set.
///
/// # Errors
/// If it cannot be started or watched.
pub fn run(directory: &Path, command: &[String], interrupted: &AtomicBool) -> io::Result<CommandEnd> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // Unlike a number, this can mean no other process once the child is gone.
    let handle = Pid::from_raw(child.id().cast_signed())
        .ok_or(io::ErrorKind::NotFound.into())
        .and_then(|pid| Ok::<_, io::Error>(pidfd_open(pid, PidfdFlags::empty())?));
    let handle = match handle {
        Ok(handle) => handle,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
    };
    let has_ended = AtomicBool::new(false);
    let (mut stderr, mut errors) = (child.stderr.take(), Vec::new());
    let (status, duration) = thread::scope(|scope| {
        let errors = &mut errors;
        scope.spawn(move || stderr.as_mut().map(|stderr| stderr.read_to_end(errors)));
        let watcher = scope.spawn(|| {
            while !has_ended.load(Ordering::SeqCst) {
                if interrupted.load(Ordering::SeqCst) {
                    // It may just have ended.
                    let _ = pidfd_send_signal(&handle, Signal::KILL);
                }
                thread::park_timeout(POLL);
            }
        });
        let status = child.wait();
        let duration = SimDuration(begin.elapsed().as_nanos() as u64);
        has_ended.store(true, Ordering::SeqCst);
        watcher.thread().unpark();
        (status, duration)
    });
    Ok(CommandEnd { status: status?, errors, duration })
}

/// Waits until a directory's file system holds on its device all that was written so far.
///
/// # Errors
/// The operating system's.
pub fn sync(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(directory)?)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn sh(script: &str, interrupted: bool) -> CommandEnd {
        let dir = tempfile::tempdir().unwrap();
        let command = ["sh", "-c", script].map(str::to_owned);
        run(dir.path(), &command, &AtomicBool::new(interrupted)).unwrap()
    }

    #[test]
    fn a_program_runs_in_the_directory_until_it_ends_or_is_interrupted() {
        let end = sh("echo text >file; cat file >&2; seq 100000; exit 3", false);
        assert_eq!((end.status.code(), &*end.errors), (Some(3), &b"text\n"[..]));
        assert!(end.duration > SimDuration::ZERO);
        let end = sh("exec sleep 100", true);
        assert_eq!(end.status.signal(), Some(9), "{end:?}");
        let missing = run(Path::new("/"), &["/no/such/program".to_owned()], &AtomicBool::new(false));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
