//! Runs programs in the guest.
//!
//! A program's run is over when the program has ended. Processes that it has left running are then killed: an open file
//! would keep the file system from being unmounted, and an open pipe would keep the output from ending.

use std::io::{self, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::ScopedJoinHandle;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use trimwise::units::Bytes;

use super::{Failed, has_disk};
use crate::job::{MOUNT_POINT, ProgramEnd, SECOND_DISK, SECOND_NODE, Said};

/// Maximum bytes of a program's output, and of its error output: they are in the guest's memory, and then in the
/// result.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Ends an error about a program that was not found: the rules of lookup in a guest.
const PATHS: &str = "paths are the guest's: a name without '/' is looked up in PATH, other relative paths begin in the \
                     new file system, and this computer's files have their absolute paths";

/// Runs a program in the root of the mounted file system, and kills the processes that it has left running unless
/// `may_stay`.
pub(crate) fn run_in_mount(command: &[String], input: &[u8], may_stay: bool) -> Result<ProgramEnd, Failed> {
    let child = start(Path::new(MOUNT_POINT), command).map_err(|e| format!("{e}; {PATHS}"))?;
    let (Output { status, stdout, stderr }, killed) = finish(child, input, may_stay)?;
    Ok(ProgramEnd {
        code: status.code(),
        signal: status.signal(),
        output: Said(stdout),
        errors: Said(stderr),
        killed_processes: killed,
    })
}

/// Runs a program and returns its output. If it fails, the error contains its error output too.
pub(crate) fn run_tool(command: &[String]) -> Result<String, Failed> {
    let program = command.first().map_or("", String::as_str);
    let child = start(Path::new("/"), command).map_err(|e| format!("{program}: {e}"))?;
    let (output, _) = finish(child, &[], true)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{program}: {}: {}{}", output.status, text, String::from_utf8_lossy(&output.stderr)).into())
}

fn start(directory: &Path, command: &[String]) -> Result<Child, Failed> {
    let (program, arguments) = command.split_first().ok_or("no program to run")?;
    // Without udev, dmsetup would wait for the nodes that it can make itself.
    let second = [(SECOND_DISK, SECOND_NODE), ("DM_DISABLE_UDEV", "1")];
    let second = second.into_iter().filter(|_| has_disk(1));
    let mut command = Command::new(program);
    command.args(arguments).envs(second).current_dir(directory);
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

/// Waits until a program has ended. Returns its output, and the number of processes that it had left running.
fn finish(mut child: Child, input: &[u8], may_stay: bool) -> Result<(Output, u32), Failed> {
    let stdin = child.stdin.take().filter(|_| !input.is_empty());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        // It may write more than a pipe holds before it has read its whole input.
        if let Some(mut stdin) = stdin {
            // A program that closes its input early does not need it.
            scope.spawn(move || stdin.write_all(input));
        }
        let stdout = scope.spawn(|| collect(stdout, "standard output"));
        let stderr = scope.spawn(|| collect(stderr, "standard error"));
        let status = child.wait()?;
        let killed = if may_stay { 0 } else { kill_all()? };
        let joined = |thread: ScopedJoinHandle<'_, Result<Vec<u8>, Failed>>| {
            thread.join().unwrap_or_else(|_| Err("a thread that reads output has died".into()))
        };
        Ok((Output { status, stdout: joined(stdout)?, stderr: joined(stderr)? }, killed))
    })
}

/// Reads all output. If it is too long, the pipe is closed, which ends most programs.
fn collect(pipe: Option<impl Read>, name: &str) -> Result<Vec<u8>, Failed> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > OUTPUT_BYTES_MAX {
        let most = Bytes(OUTPUT_BYTES_MAX);
        return Err(format!("{name}: longer than {most}; write it to a file, or to /dev/null").into());
    }
    Ok(bytes)
}

pub(crate) fn kill_all() -> io::Result<u32> {
    // As kill(2) has it, the group of process 1 means every process except process 1 itself.
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
