//! Runs programs in the guest.
//!
//! A program's run is over when the program has ended. Processes that it has left running are then killed: an open file
//! would keep the file system from being unmounted, and an open pipe would keep the output from ending.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use trimwise::units::Bytes;

use super::{Failed, has_disk};
use crate::channel::{FRAME_BYTES_MAX, OUTPUT_BYTES_MAX, Stream, Teller};
use crate::job::{MOUNT_POINT, ProgramEnd, SECOND_DISK, SECOND_NODE};
use trimwise_linux::ioctl::run_before_others;

/// Ending of an error about a program that was not found: the rules of lookup in a guest.
const PATHS: &str = "paths are the guest's: a name without '/' is looked up in PATH, other relative paths begin in the \
                     new file system, and this computer's files have their absolute paths";

/// Runs a program in the root of the mounted file system, and kills the processes that it has left running unless
/// `may_stay`. Its output goes to the host as it comes, and is not in the result.
pub(crate) fn run_in_mount(
    command: &[String],
    input: &[u8],
    may_stay: bool,
    teller: &Teller,
) -> Result<ProgramEnd, Failed> {
    let command = in_directory(Path::new(MOUNT_POINT), command)?;
    let not_started = |e| format!("{e}; {PATHS}").into();
    let (status, killed_processes) =
        run(command, input, may_stay, &not_started, &mut |stream, bytes| teller.pass_on(stream, bytes))?;
    Ok(ProgramEnd { code: status.code(), signal: status.signal(), killed_processes, ..ProgramEnd::default() })
}

/// Runs a program and returns its output. If it fails, the error contains its error output too.
pub(crate) fn run_tool(command: &[String]) -> Result<String, Failed> {
    let program = command.first().map_or("", String::as_str);
    let not_started = |e| format!("{program}: {e}").into();
    let command = in_directory(Path::new("/"), command)?;
    let [mut output, mut errors] = [Vec::new(), Vec::new()];
    let (status, _) = run(command, &[], true, &not_started, &mut |stream, bytes| {
        if stream == Stream::Output { &mut output } else { &mut errors }.extend(bytes);
        Ok(())
    })?;
    let text = String::from_utf8_lossy(&output).into_owned();
    if status.success() {
        return Ok(text);
    }
    Err(format!("{program}: {status}: {text}{}", String::from_utf8_lossy(&errors)).into())
}

fn in_directory(directory: &Path, command: &[String]) -> Result<Command, Failed> {
    let (program, arguments) = command.split_first().ok_or("no program to run")?;
    // Without udev, dmsetup would wait for the nodes that it can make itself.
    let second = [(SECOND_DISK, SECOND_NODE), ("DM_DISABLE_UDEV", "1")];
    let second = second.into_iter().filter(|_| has_disk(1));
    let mut command = Command::new(program);
    command.args(arguments).envs(second).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Receives each piece of a program's output.
type Says<'a> = &'a mut (dyn FnMut(Stream, &[u8]) -> io::Result<()> + Send);

/// Runs a program to its end, and passes its output on. Returns its status, and the number of processes that it had
/// left running.
fn run(
    mut command: Command,
    input: &[u8],
    may_stay: bool,
    not_started: &dyn Fn(io::Error) -> Failed,
    says: Says<'_>,
) -> Result<(ExitStatus, u32), Failed> {
    let (tell_started, started) = mpsc::channel();
    std::thread::scope(|scope| {
        let listening = scope.spawn(move || {
            // With this priority, this thread reads each write before the program goes on, and the two streams keep
            // their order.
            run_before_others()?;
            let child = command.spawn().map(|mut child| {
                let output = child.stdout.take().map(|pipe| (Stream::Output, OwnedFd::from(pipe)));
                let errors = child.stderr.take().map(|pipe| (Stream::Errors, OwnedFd::from(pipe)));
                (child, output.into_iter().chain(errors).collect())
            });
            let (child, pipes) =
                child.map_or_else(|e| (Err(e), Vec::new()), |(child, pipes)| (Ok(child), pipes));
            let _ = tell_started.send(child); // it is waited for
            listen(pipes, says)
        });
        let ended = started.recv().map(|child| {
            let mut child = child.map_err(not_started)?;
            // The program may write more than a pipe holds before it has read its whole input.
            if let Some(mut stdin) = child.stdin.take().filter(|_| !input.is_empty()) {
                // Ignore errors: a program that closes its input early does not need it.
                scope.spawn(move || stdin.write_all(input));
            }
            let status = child.wait()?;
            Ok((status, if may_stay { 0 } else { kill_all()? }))
        });
        listening.join().unwrap_or_else(|_| Err("the thread that reads output has died".into()))?;
        ended?
    })
}

/// Passes on the data of both pipes until their ends. If the output is too long, closes the pipe, which ends most
/// programs.
fn listen(mut pipes: Vec<(Stream, OwnedFd)>, says: Says<'_>) -> Result<(), Failed> {
    let (mut left, mut too_long) = ([OUTPUT_BYTES_MAX; 2], None);
    let mut piece = vec![0; FRAME_BYTES_MAX];
    while !pipes.is_empty() {
        let mut waiting: Vec<_> = pipes.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)).collect();
        retry_on_intr(|| poll(&mut waiting, None))?;
        let Some(at) = waiting.iter().position(|pipe| !pipe.revents().is_empty()) else { continue };
        let (stream, pipe) = &pipes[at];
        let left = &mut left[*stream as usize];
        let length = retry_on_intr(|| rustix::io::read(pipe, &mut piece))?;
        let within = length.min(*left);
        if within > 0 {
            says(*stream, &piece[..within])?;
        }
        *left -= within;
        if within < length {
            too_long = Some(*stream);
        }
        if within < length || length == 0 {
            pipes.remove(at);
        }
    }
    match too_long {
        None => Ok(()),
        Some(stream) => {
            let (name, most) = (stream.name(), Bytes(OUTPUT_BYTES_MAX as u64));
            Err(format!("{name}: longer than {most}; write it to a file, or to /dev/null").into())
        }
    }
}

pub(crate) fn kill_all() -> io::Result<u32> {
    // For kill(2), the group of process 1 means every process except process 1 itself.
    match kill_process_group(Pid::INIT, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut killed = 0;
    loop {
        // Orphans that had ended before are here too.
        match wait(WaitOptions::empty()) {
            Ok(Some((_, status))) if status.terminating_signal() == Some(Signal::KILL.as_raw()) => {
                killed += 1
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(killed),
            Err(errno) => return Err(errno.into()),
        }
    }
}
