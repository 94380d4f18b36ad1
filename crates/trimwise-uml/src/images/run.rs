//! Runs one program at a time. Its output goes to the log, and it can be stopped with everything that it started.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::KernelError;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Number of the log's last lines in an error.
const LAST_LINES: usize = 15;

pub(super) struct Runner<'a> {
    pub(super) version: &'a str,
    pub(super) log: &'a File,
    pub(super) log_path: PathBuf,
    pub(super) stop: &'a AtomicBool,
}

impl Runner<'_> {
    /// Runs a program until it ends; `each` receives every line that it prints. Returns its last lines.
    pub(super) fn run(
        &self,
        doing: &'static str,
        command: &mut Command,
        mut each: impl FnMut(&str),
    ) -> Result<Vec<String>, KernelError> {
        let failed = |how: String, last_lines: Vec<String>| KernelError::Failed {
            version: self.version.to_owned(),
            doing,
            how,
            log: self.log_path.clone(),
            last_lines,
        };
        self.check_stop()?;
        self.note(&format!("+ {command:?}"))?;
        let program = PathBuf::from(command.get_program());
        let start = |error| KernelError::io("start", &program)(error);
        let (reader, writer) = std::io::pipe().map_err(start)?;
        let also = writer.try_clone().map_err(start)?;
        // A separate process group: Ctrl-C reaches only us, and we end all of its processes.
        let child = command.process_group(0).stdin(Stdio::null()).stdout(writer).stderr(also).spawn();
        // The command holds our ends of the pipe; drop it, since we wait for the pipe's end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut group = Group { leader: child.map_err(start)?, is_over: false };

        let (sender, lines) = channel();
        // This ends when the pipe is closed everywhere, or when the receiver is gone.
        std::thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut last_lines = VecDeque::with_capacity(LAST_LINES + 1);
        let mut status = None;
        loop {
            self.check_stop()?;
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => {
                    self.note(&line)?;
                    each(&line);
                    last_lines.push_back(line);
                    if last_lines.len() > LAST_LINES {
                        last_lines.pop_front();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if status.is_some() => break,
                Err(RecvTimeoutError::Timeout) => {
                    status = group.leader.try_wait().map_err(start)?;
                    if status.is_some() {
                        group.end(); // leftover processes hold the pipe
                    }
                }
            }
        }
        let status = match status {
            Some(status) => status,
            None => group.leader.wait().map_err(start)?,
        };
        group.is_over = true;
        if status.success() {
            Ok(last_lines.into())
        } else {
            Err(failed(status.to_string(), last_lines.into()))
        }
    }

    pub(super) fn note(&self, line: &str) -> Result<(), KernelError> {
        let mut log = self.log;
        log.write_all(format!("{line}\n").as_bytes()).map_err(KernelError::io("write", &self.log_path))
    }

    fn check_stop(&self) -> Result<(), KernelError> {
        if self.stop.load(Ordering::SeqCst) { Err(KernelError::Interrupted) } else { Ok(()) }
    }
}

/// A program and everything that it started. None of them outlives this value.
struct Group {
    leader: Child,
    /// True if all processes have ended, so that their number can belong to another group.
    is_over: bool,
}

impl Group {
    fn end(&self) {
        if let Some(group) = i32::try_from(self.leader.id()).ok().and_then(Pid::from_raw) {
            // If all has gone well, no process is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            self.end();
            let _ = self.leader.wait();
        }
    }
}
