//! Boots a kernel in virtual time, advances time until it powers off, and ends it in every case.
//!
//! Time advances in the kernel's own process, where a library is its calendar (`line`). This process acts when the
//! kernel has requests for a disk; meanwhile the kernel waits. So the two take turns and never run at once. They stay on
//! one processor, where a turn is a switch between two threads; on two, each turn wakes a sleeping processor, which on a
//! virtual machine takes ten times as long.
//!
//! # What ends a run
//!
//! The kernel powers off (its init has ended), or one of these happens, each an error with the guest's last lines: it
//! panics or is killed (its process ends), it is silent for [`Limits::silence`], it sleeps forever, or it exceeds
//! [`Limits::wall`] or [`Limits::virtual_time`]. In each case the kernel's process group is killed before the result is
//! returned; if this process is killed, so is the kernel's.

mod console;
mod processor;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group};
use thiserror::Error;
use trimwise::units::{Bytes, SimTime};

use crate::channel::CONSOLE_OPTION;
use crate::disk::Disk;
use crate::line::{Completion, DISKS_MAX, Line, Word};
use crate::vhost::FrontEnd;
pub(super) use console::{complains, complaints, last_lines, out_of_memory, refusal};
use processor::Turn;
use trimwise_linux::ioctl::child::{die_with_parent, with_the_host_read_only, without_randomized_addresses};

/// Interval at which this process checks on a kernel: its limits, its output and, if it is silent, whether it lives.
const STEP: Duration = Duration::from_millis(50);

pub use trimwise_linux::file_system::SEARCH_PATH;

/// Name of the file that holds the guest's memory, which the kernel maps. It is on a file system in memory, mounted in
/// the run's folder for this kernel alone: `/dev/shm` can be small, or forbid executable mappings.
const MEMORY: &str = "memory";

pub(super) const CONSOLE: &str = "console";

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Real time without any word from the kernel, which either computes or hangs. Default: two minutes.
    pub silence: Duration,
    /// Real time of the whole run. Default: one hour.
    pub wall: Duration,
    /// Virtual time of the whole run. Default: 30 days.
    pub virtual_time: SimTime,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(120),
            wall: Duration::from_secs(3600),
            virtual_time: SimTime(30 * 86_400 * 1_000_000_000),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Machine {
    /// The kernel: a User-Mode Linux program.
    pub linux: PathBuf,
    /// The library that is preloaded into its process: its calendar.
    pub preload: PathBuf,
    pub memory: Bytes,
    /// True if the kernel can catch its processes' system calls by seccomp, which takes less of the host than ptrace.
    pub seccomp: bool,
    /// A separate folder for sockets, console, and the files that guest and host exchange. The guest's init is the
    /// program `init` in it, which finds the folder at the host path `/proc/self/cwd`: the kernel's command line is the
    /// same for any folder.
    pub folder: PathBuf,
    pub arguments: Vec<String>,
    pub limits: Limits,
    pub interrupted: Arc<AtomicBool>,
}

/// Takes the data of the guest's channel; an error stops the run.
pub(super) type Hear<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

#[derive(Debug)]
pub struct Ended {
    /// Virtual time that the guest ran.
    pub virtual_time: SimTime,
    pub requests: u64,
}

#[derive(Debug, Error)]
pub enum MachineError {
    #[error("{what}: {source}")]
    Host { what: String, source: io::Error },
    #[error(
        "cannot start a guest that keeps to its own files and always runs the same ({what}: {source}); expected Linux 5.12 \
         or later, and root with CAP_SYS_ADMIN or a user who may make user namespaces; in a container, \
         --security-opt seccomp=unconfined"
    )]
    Refused { what: String, source: io::Error },
    /// The kernel broke off: it panicked, was killed by a signal, or could not start.
    #[error("the kernel stopped unexpectedly{how}; its last lines:\n{console}")]
    BrokeOff {
        /// Exit status of the kernel's process in words, if it ended, and the cause, if it is known.
        how: String,
        console: String,
    },
    #[error("the kernel said nothing for {} s and was stopped; its last lines:\n{console}", .silence.as_secs())]
    Silent { silence: Duration, console: String },
    #[error("the guest has been asleep since {} ns, with nothing to wake it; its last lines:\n{console}", .at.0)]
    SleepsForEver { at: SimTime, console: String },
    #[error("the run was stopped after {limit}; the guest's last lines:\n{console}")]
    TookTooLong { limit: String, console: String },
    #[error("interrupted")]
    Interrupted,
}

fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> MachineError {
    let what = what.into();
    move |source| MachineError::Host { what, source }
}

impl Machine {
    /// Boots the kernel with these disks (`/dev/vda`, `/dev/vdb`, ...) and runs it until it powers off. Calls `hear`
    /// with the data of the guest's [channel](crate::channel) soon after they are written, and in any case before this
    /// returns.
    pub fn run(&self, disks: &mut [Disk], hear: Hear<'_>) -> Result<Ended, MachineError> {
        let folder =
            File::open(&self.folder).map_err(host(format!("cannot use {}", self.folder.display())))?;
        // A socket's path has at most 107 bytes, and the folder's may be longer.
        let bind = |name: &str| {
            UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
                .map_err(host(format!("cannot make the socket {name}")))
        };
        if disks.len() > DISKS_MAX {
            let refused = io::Error::from(ErrorKind::InvalidInput);
            return Err(host(format!("{} disks, expected at most {DISKS_MAX}", disks.len()))(refused));
        }
        let line = Line::new(&self.folder, self.limits.virtual_time)
            .map_err(host(format!("cannot share memory in {}", self.folder.display())))?;
        let listeners: Vec<UnixListener> =
            (0..disks.len()).map(|i| bind(&format!("disk{i}"))).collect::<Result<_, _>>()?;
        let console = self.folder.join(CONSOLE);
        let output = File::create(&console).map_err(host(format!("cannot write {}", console.display())))?;
        let told = memfd_create("trimwise-guest", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|e| host("cannot make a file in memory")(e.into()))?;
        let for_guest = told.try_clone().map_err(host("cannot share a file in memory"))?;
        let _turn = Turn::take("trimwise-guest-cpu");
        let guest = Guest::start(self, disks.len(), output, for_guest)?;
        let mut run = Run {
            machine: self,
            begin: Instant::now(),
            guest,
            line,
            listeners,
            fronts: disks.iter().map(|_| None).collect(),
            disks,
            told,
            told_bytes: 0,
            hear,
        };
        let outcome = run.finish();
        run.guest.end();
        // Whatever ended the run, pass on its last words.
        let heard = run.listen();
        let outcome = outcome.and_then(|ended| heard.map(|()| ended));
        let console = || last_lines(&console);
        match outcome {
            Ok(ended) => Ok(ended),
            Err(Stop::BrokeOff) => {
                let (mut how, console) = (run.guest.how_it_ended(), console());
                how.extend(out_of_memory(&console).map(|cause| format!(": {cause}")));
                Err(MachineError::BrokeOff { how, console })
            }
            Err(Stop::Io(source)) => {
                Err(MachineError::Host { what: "talking to the kernel".to_owned(), source })
            }
            Err(Stop::Silent) => {
                Err(MachineError::Silent { silence: self.limits.silence, console: console() })
            }
            Err(Stop::SleepsForEver(at)) => Err(MachineError::SleepsForEver { at, console: console() }),
            Err(Stop::TooLong(limit)) => Err(MachineError::TookTooLong { limit, console: console() }),
            Err(Stop::Interrupted) => Err(MachineError::Interrupted),
        }
    }

    fn command(&self, disks: usize) -> Command {
        let mut command = Command::new(&self.linux);
        command.current_dir(&self.folder);
        // The host's environment would reach only the kernel's own process, which needs none of it.
        command.env_clear().env("HOME", ".").env("TMPDIR", MEMORY).env("LD_PRELOAD", &self.preload);
        command.arg(format!("mem={}M", self.memory.0 >> 20));
        command.args([
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "norandmaps",
            "random.trust_cpu=off",
            "panic=-1",
            // With this, no setting in the guest can keep a fault from the console.
            "ignore_loglevel",
        ]);
        command.args([
            "con=null",
            "con0=null,fd:1",
            CONSOLE_OPTION,
            "time-travel=ext:time",
            "init=/proc/self/cwd/init",
        ]);
        command.args((0..disks).map(|i| format!("virtio_uml.device=disk{i}:2")));
        // The environment of init, inherited by its children.
        command.arg(format!("PATH={SEARCH_PATH}")).arg("LC_ALL=C");
        if self.seccomp {
            command.arg("seccomp=auto"); // ptrace where the host forbids it
        }
        // Not after `--`, since the kernel appends arguments of its own. It passes words that it does not know to init.
        command.args(&self.arguments);
        command
    }
}

struct Guest {
    child: Child,
    exit: rustix::fd::OwnedFd,
}

impl Guest {
    fn start(machine: &Machine, disks: usize, output: File, told: File) -> Result<Self, MachineError> {
        let failed = || format!("cannot start the kernel {}", machine.linux.display());
        let error_output = output.try_clone().map_err(host(failed()))?;
        std::fs::create_dir(machine.folder.join(MEMORY)).map_err(host(failed()))?;
        let mut command = machine.command(disks);
        command.stdin(told).stdout(output).stderr(error_output).process_group(0);
        // The guest's root is the host's, and a guest could mount it writable.
        with_the_host_read_only(&mut command, &machine.folder, MEMORY).map_err(host(failed()))?;
        die_with_parent(&mut command);
        // With the host's random addresses, one run in eight merged different requests than the rest.
        without_randomized_addresses(&mut command);
        let mut child = command.spawn().map_err(|source| {
            let what = std::fs::read_to_string(machine.folder.join(CONSOLE)).unwrap_or_default();
            if what.is_empty() { host(failed())(source) } else { MachineError::Refused { what, source } }
        })?;
        let pid = Pid::from_child(&child);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(exit) => Ok(Self { child, exit }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(host(failed())(error.into()))
            }
        }
    }

    /// Waits until the kernel's process ends by itself, up to `patience`.
    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let begin = Instant::now();
        loop {
            let status = self.child.try_wait().ok().flatten();
            if status.is_some() || begin.elapsed() >= patience {
                return status;
            }
            // Wait in short steps: a signal ends a wait early.
            let step = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            let _ = poll(&mut [PollFd::new(&self.exit, PollFlags::IN)], Some(&step));
        }
    }

    fn end(&mut self) {
        // After a power-off it needs a moment to end by itself.
        self.wait(Duration::from_secs(2));
        // The child leads the group; its number is not reused before it was waited for.
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        // The other processes die by themselves in a while, and the next run may need what they hold.
        let begin = Instant::now();
        while test_kill_process_group(group).is_ok() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn how_it_ended(&mut self) -> String {
        match self.child.try_wait() {
            // Nothing in a guest sends SIGKILL to the kernel.
            Ok(Some(status)) if status.signal() == Some(Signal::KILL.as_raw()) => {
                format!(" ({status}: somebody killed it, or this computer ran out of memory; see dmesg)")
            }
            Ok(Some(status)) => format!(" ({status})"),
            _ => String::new(),
        }
    }
}

enum Stop {
    Io(io::Error),
    BrokeOff,
    Silent,
    SleepsForEver(SimTime),
    TooLong(String),
    Interrupted,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

struct Run<'a> {
    machine: &'a Machine,
    begin: Instant,
    guest: Guest,
    line: Line,
    listeners: Vec<UnixListener>,
    fronts: Vec<Option<FrontEnd>>,
    disks: &'a mut [Disk],
    /// The file in memory at the other end of the guest's channel, and the number of bytes read so far.
    told: File,
    told_bytes: u64,
    hear: Hear<'a>,
}

impl Run<'_> {
    fn finish(&mut self) -> Result<Ended, Stop> {
        let (mut beats, mut beat, mut checked) = (0, Instant::now(), Instant::now());
        loop {
            let word = self.line.wait(STEP)?;
            if word.is_none() || checked.elapsed() >= STEP {
                self.check_limits()?;
                self.listen()?;
                checked = Instant::now();
            }
            let Some(word) = word else {
                if self.guest.wait(Duration::ZERO).is_some() {
                    break;
                }
                if self.line.beats()? != beats {
                    (beats, beat) = (self.line.beats()?, Instant::now());
                } else if beat.elapsed() >= self.machine.limits.silence {
                    return Err(Stop::Silent);
                }
                continue;
            };
            match word {
                Word::Beyond(at) if at >= Line::NEVER => return Err(Stop::SleepsForEver(self.line.now()?)),
                Word::Beyond(_) => {
                    let seconds = self.machine.limits.virtual_time.0 / 1_000_000_000;
                    return Err(Stop::TooLong(format!("{seconds} s of virtual time")));
                }
                Word::Connected(disk) => self.connect(disk)?,
                Word::Message(disk) => self.set_up(disk)?,
                Word::Kicked(disk) => self.take_requests(disk)?,
                Word::Ended => break,
            }
            self.line.go_on()?;
        }
        self.note_completions()?;
        // A kernel that breaks off ends too, but not with success.
        match self.guest.wait(Duration::from_secs(30)) {
            Some(status) if status.success() => Ok(Ended {
                virtual_time: self.line.now()?,
                requests: self.disks.iter().map(Disk::requests).sum(),
            }),
            _ => Err(Stop::BrokeOff),
        }
    }

    /// Passes on the channel's data since the last call, and frees its memory.
    fn listen(&mut self) -> Result<(), Stop> {
        let begin = self.told_bytes;
        let mut piece = [0; 16 << 10];
        loop {
            match self.told.read_at(&mut piece, self.told_bytes)? {
                0 if self.told_bytes == begin => return Ok(()),
                0 => break,
                length => {
                    self.told_bytes += length as u64;
                    (self.hear)(&piece[..length])?;
                }
            }
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.told, hole, 0, self.told_bytes).map_err(io::Error::from)?;
        Ok(())
    }

    fn check_limits(&self) -> Result<(), Stop> {
        let limits = &self.machine.limits;
        if self.machine.interrupted.load(Ordering::Relaxed) {
            return Err(Stop::Interrupted);
        }
        if self.begin.elapsed() >= limits.wall {
            return Err(Stop::TooLong(format!("{} s", limits.wall.as_secs())));
        }
        Ok(())
    }

    fn connect(&mut self, index: usize) -> Result<(), Stop> {
        let (Some(listener), Some(disk)) = (self.listeners.get(index), self.disks.get(index)) else {
            return Err(no_disk(index));
        };
        let (socket, _) = listener.accept()?;
        self.fronts[index] = Some(FrontEnd::new(socket, disk.features(), disk.config())?);
        Ok(())
    }

    fn set_up(&mut self, index: usize) -> Result<(), Stop> {
        let Some(Some(front)) = self.fronts.get_mut(index) else { return Err(no_disk(index)) };
        front.take_message()?;
        let (address, size) = front.used_ring();
        self.line.set_ring(index, address, size)?;
        Ok(())
    }

    /// Completes the requests that the library has passed on to the kernel since the list was set. The guest's memory
    /// already has their results; writing them again changes nothing.
    fn note_completions(&mut self) -> Result<(), Stop> {
        let Some(passed) = self.line.passed()? else { return Ok(()) };
        for (disk, front) in self.disks.iter_mut().zip(&mut self.fronts) {
            if let Some(front) = front {
                disk.complete(front, passed)?;
            }
        }
        Ok(())
    }

    fn take_requests(&mut self, index: usize) -> Result<(), Stop> {
        self.note_completions()?;
        let (Some(Some(front)), Some(disk)) = (self.fronts.get_mut(index), self.disks.get_mut(index)) else {
            return Err(no_disk(index));
        };
        disk.take_requests(front, self.line.now()?)?;
        let of_disk = |(disk, pending): (usize, &Disk)| {
            let completion =
                move |(at, number, head, written)| Completion { at, disk, number, head, written };
            pending.pending().map(completion).collect::<Vec<_>>()
        };
        self.line.set_list(self.disks.iter().enumerate().flat_map(of_disk))?;
        Ok(())
    }
}

fn no_disk(index: usize) -> Stop {
    io::Error::new(ErrorKind::InvalidData, format!("the kernel has no disk {index}")).into()
}
