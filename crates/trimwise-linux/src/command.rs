//! Runs a user's program as a workload in a real directory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use trimwise::units::SimDuration;

/// Interval at which the interrupt flag is checked while the program runs.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Bytes of a program's output that are kept: its last lines are shown if it fails.
const KEPT_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
pub struct CommandEnd {
    /// Exit status; SIGKILL if the program was interrupted.
    pub status: ExitStatus,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
    /// Time from before the program's start until it and everything that it left in the background with its output had
    /// ended.
    pub duration: SimDuration,
}

/// Runs a program in a directory, without input, until it has ended and nothing in the background can write to its
/// output any more, or until `interrupted` is set.
pub fn run(directory: &Path, command: &[String], interrupted: &AtomicBool) -> io::Result<CommandEnd> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let said = watch(&mut child, interrupted);
    let duration = SimDuration(begin.elapsed().as_nanos() as u64);
    if said.is_err() {
        let _ = child.kill();
    }
    let status = child.wait();
    let [output, errors] = said?;
    Ok(CommandEnd { status: status?, output, errors, duration })
}

/// Reads the program's output until nothing can write to it any more. Returns the tails of its standard output and
/// standard error.
fn watch(child: &mut Child, interrupted: &AtomicBool) -> io::Result<[Vec<u8>; 2]> {
    // Unlike a number, this can mean no other process once the child is gone.
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    let mut handle = Some(pidfd_open(pid, PidfdFlags::empty())?);
    let mut pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
    let mut said = [Vec::new(), Vec::new()];
    let mut buffer = vec![0; KEPT_BYTES];
    loop {
        if interrupted.load(Ordering::SeqCst) {
            match &handle {
                // The program may just have ended.
                Some(handle) => drop(pidfd_send_signal(handle, Signal::KILL)),
                None => return Ok(said),
            }
        }
        let open = || pipes.iter().chain([&handle]).flatten();
        let mut fds: Vec<PollFd<'_>> = open().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        if fds.is_empty() {
            return Ok(said);
        }
        match poll(&mut fds, Some(&POLL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
        for (pipe, said) in pipes.iter_mut().zip(&mut said) {
            let Some(fd) = pipe.as_ref().filter(|_| ready.next() == Some(true)) else { continue };
            match rustix::io::read(fd.as_fd(), &mut buffer)? {
                0 => *pipe = None,
                length => {
                    said.extend_from_slice(&buffer[..length]);
                    // This is rare, since everything that is kept is moved.
                    if said.len() > 4 * KEPT_BYTES {
                        said.drain(..said.len() - KEPT_BYTES);
                    }
                }
            }
        }
        if handle.is_some() && ready.next() == Some(true) {
            handle = None;
        }
    }
}

/// Waits until everything written to a directory's file system so far is on its device.
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
        let end = sh("echo text >file; cat file >&2; seq 1000000; exit 3", false);
        assert_eq!((end.status.code(), &*end.errors), (Some(3), &b"text\n"[..]));
        assert!(end.output.ends_with(b"999999\n1000000\n") && end.output.len() < 1 << 20);
        assert!(end.duration > SimDuration::ZERO);
        let end = sh("exec sleep 100", true);
        assert_eq!(end.status.signal(), Some(9), "{end:?}");
        let end = sh("sh -c 'sleep 0.3; echo late' &", false);
        assert_eq!(&*end.output, b"late\n", "what runs in the background is waited for");
        let end = sh("sleep 100 & exec sleep 100", true);
        assert!(end.duration < SimDuration::from_secs(50), "but not once interrupted: {end:?}");
        let missing = run(Path::new("/"), &["/no/such/program".to_owned()], &AtomicBool::new(false));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
