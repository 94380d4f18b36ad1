//! Boots a kernel in virtual time, advances time until it powers off, and ends it in every case.
//!
//! The order of events: while the kernel runs, it may send messages, which are served one by one. When it waits, the
//! earlier of two things happens: the disk's next completion, or the time at which the kernel wants to run again. If
//! both come at the same time, the completion is first. Nothing else advances time.
//!
//! Kernel and calendar take turns and never run at once. They stay on one processor, where a turn is a switch between
//! two threads; on two, each turn wakes a sleeping processor, which on a virtual machine takes ten times as long.
//!
//! # What ends a run
//!
//! The kernel powers off (its init has ended), or one of these happens, each an error with the guest's last lines: it
//! panics or is killed (the connection breaks), it is silent for [`Limits::silence`], it sleeps for ever, or it exceeds
//! [`Limits::wall`] or [`Limits::virtual_time`]. In each case the kernel's process group is killed before the result is
//! returned; if this process is killed, so is the kernel's.

mod console;
mod processor;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group};
use thiserror::Error;
use trimwise::units::{Bytes, SimDuration, SimTime};

use crate::calendar::Calendar;
use crate::disk::Disk;
use crate::vhost::{Event, FrontEnd};
pub(super) use console::{complains, complaints, last_lines};
use processor::Turn;
use trimwise_linux::ioctl::child::{die_with_parent, with_the_host_read_only, without_randomized_addresses};

/// How far a kernel may run without a message, in its own time; a guest that only sleeps would never send another one.
const FREE_SPAN_MAX: SimDuration = SimDuration::from_secs(60);

/// Turns of a run between checks of its limits; a turn takes some 50 us.
const TURNS_BETWEEN_CHECKS: u64 = 4096;

/// Where a guest looks for programs: folders of the host, whose files it sees.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The file that holds the guest's memory, which the kernel maps. It is on a file system in memory, mounted in the
/// run's folder for this kernel alone: `/dev/shm` may be small, or forbid executable mappings.
const MEMORY: &str = "memory";

/// The kernel's output, in the run's folder.
pub(super) const CONSOLE: &str = "console";

/// How long a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Without any message from the kernel: it computes, or hangs. Default: two minutes.
    pub silence: Duration,
    /// In all, real time. Default: one hour.
    pub wall: Duration,
    /// In all, virtual time. Default: 30 days.
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

/// What to boot.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The kernel: a User-Mode Linux program.
    pub linux: PathBuf,
    /// A library that is preloaded into its process and makes the host's randomness constant.
    pub preload: Option<PathBuf>,
    /// The guest's memory.
    pub memory: Bytes,
    /// A folder of its own: sockets, console, and the files that guest and host exchange. The guest's init is the
    /// program `init` in it, which finds the folder at the host path `/proc/self/cwd`: the kernel's command line is the
    /// same for any folder.
    pub folder: PathBuf,
    /// Arguments of init.
    pub arguments: Vec<String>,
    /// How long it may take.
    pub limits: Limits,
    /// Set when the user wants to stop.
    pub interrupted: Arc<AtomicBool>,
}

/// A run that ended with the guest powering off.
#[derive(Debug)]
pub struct Ended {
    /// How long the guest ran, in its own time.
    pub virtual_time: SimTime,
    /// Messages between kernel, calendar and disks.
    pub messages: u64,
    /// Block requests.
    pub requests: u64,
    /// Whether the calendar was in shared memory.
    pub shared_calendar: bool,
}

/// Why a run has no result.
#[derive(Debug, Error)]
pub enum MachineError {
    /// An operation on the host failed.
    #[error("{what}: {source}")]
    Host {
        /// What was attempted.
        what: String,
        /// The host's error.
        source: io::Error,
    },
    /// The guest could write to this computer's files.
    #[error(
        "cannot keep a guest from writing to this computer's files ({what}: {source}); expected Linux 5.12 or later, and \
         root with CAP_SYS_ADMIN or a user who may make user namespaces"
    )]
    Unprotected {
        /// The protection that could not be set up.
        what: String,
        /// The host's error.
        source: io::Error,
    },
    /// The kernel broke off: a panic, a signal, or it could not start.
    #[error("the kernel broke off{how}; its last lines:\n{console}")]
    BrokeOff {
        /// How its process ended, if it did.
        how: String,
        /// Its last lines.
        console: String,
    },
    /// The kernel was silent for too long.
    #[error("the kernel said nothing for {} s and was ended; its last lines:\n{console}", .silence.as_secs())]
    Silent {
        /// How long.
        silence: Duration,
        /// Its last lines.
        console: String,
    },
    /// Nothing in the guest will ever happen again.
    #[error("the guest has been asleep for ever since {} ns; its last lines:\n{console}", .at.0)]
    SleepsForEver {
        /// Since when.
        at: SimTime,
        /// Its last lines.
        console: String,
    },
    /// The run exceeded a limit.
    #[error("the run was ended after {limit}; the guest's last lines:\n{console}")]
    TookTooLong {
        /// Which limit.
        limit: String,
        /// Its last lines.
        console: String,
    },
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
}

fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> MachineError {
    let what = what.into();
    move |source| MachineError::Host { what, source }
}

impl Machine {
    /// Boots the kernel with these disks (`/dev/vda`, `/dev/vdb`, ...) and runs it until it powers off.
    pub fn run(&self, disks: &mut [Disk]) -> Result<Ended, MachineError> {
        let folder =
            File::open(&self.folder).map_err(host(format!("cannot use {}", self.folder.display())))?;
        // A socket's path has at most 107 bytes, and the folder's may be longer.
        let bind = |name: &str| {
            UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
                .map_err(host(format!("cannot make the socket {name}")))
        };
        let calendar = bind("time")?;
        let listeners: Vec<UnixListener> =
            (0..disks.len()).map(|i| bind(&format!("disk{i}"))).collect::<Result<_, _>>()?;
        let console = self.folder.join(CONSOLE);
        let output = File::create(&console).map_err(host(format!("cannot write {}", console.display())))?;
        let _turn = Turn::take("trimwise-guest-cpu");
        let guest = Guest::start(self, disks.len(), output)?;
        let mut run = Run {
            machine: self,
            begin: Instant::now(),
            guest,
            listeners,
            calendar_listener: calendar,
            calendar: None,
            fronts: disks.iter().map(|_| None).collect(),
            disks,
        };
        let outcome = run.finish();
        run.guest.end();
        let console = || last_lines(&console);
        match outcome {
            Ok(ended) => Ok(ended),
            Err(Stop::Io(error)) if is_a_broken_connection(&error) => {
                Err(MachineError::BrokeOff { how: run.guest.how_it_ended(), console: console() })
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
        command.env_clear().env("HOME", ".").env("TMPDIR", MEMORY);
        if let Some(preload) = &self.preload {
            command.env("LD_PRELOAD", preload);
        }
        command.arg(format!("mem={}M", self.memory.0 >> 20));
        command.args([
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "norandmaps",
            "random.trust_cpu=off",
            "panic=-1",
            // No setting in the guest can keep a fault from the console.
            "ignore_loglevel",
        ]);
        command.args(["con=null", "con0=null,fd:1", "time-travel=ext:time", "init=/proc/self/cwd/init"]);
        command.args((0..disks).map(|i| format!("virtio_uml.device=disk{i}:2")));
        // The environment of init, inherited by its children.
        command.arg(format!("PATH={SEARCH_PATH}")).arg("LC_ALL=C");
        // Not after `--`, since the kernel appends arguments of its own. Words that it does not know go to init.
        command.args(&self.arguments);
        command
    }
}

/// The kernel's process, and those that it starts.
struct Guest {
    child: Child,
    exit: rustix::fd::OwnedFd,
}

impl Guest {
    fn start(machine: &Machine, disks: usize, output: File) -> Result<Self, MachineError> {
        let failed = || format!("cannot start the kernel {}", machine.linux.display());
        let error_output = output.try_clone().map_err(host(failed()))?;
        std::fs::create_dir(machine.folder.join(MEMORY)).map_err(host(failed()))?;
        let mut command = machine.command(disks);
        command.stdin(Stdio::null()).stdout(output).stderr(error_output).process_group(0);
        // The guest's root is the host's, and a guest could mount it writable.
        with_the_host_read_only(&mut command, &machine.folder, MEMORY).map_err(host(failed()))?;
        die_with_parent(&mut command);
        // With the host's random addresses, one run in eight merged different requests than the rest.
        without_randomized_addresses(&mut command);
        let mut child = command.spawn().map_err(|source| {
            let what = std::fs::read_to_string(machine.folder.join(CONSOLE)).unwrap_or_default();
            if what.is_empty() { host(failed())(source) } else { MachineError::Unprotected { what, source } }
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
            // In short steps: a signal ends a wait early.
            let step = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            let _ = poll(&mut [PollFd::new(&self.exit, PollFlags::IN)], Some(&step));
        }
    }

    /// Ends the kernel, whatever its state, and everything that it started.
    fn end(&mut self) {
        // After a power-off it needs a moment to end by itself.
        self.wait(Duration::from_secs(2));
        // The child leads the group; its number is not reused before it was waited for.
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        // The others die by themselves in a while, and the next run may need what they hold.
        let begin = Instant::now();
        while test_kill_process_group(group).is_ok() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn how_it_ended(&mut self) -> String {
        match self.child.try_wait() {
            Ok(Some(status)) => format!(" ({status})"),
            _ => String::new(),
        }
    }
}

/// Why a run ends early.
enum Stop {
    Io(io::Error),
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

fn is_a_broken_connection(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// A run in progress.
struct Run<'a> {
    machine: &'a Machine,
    begin: Instant,
    guest: Guest,
    calendar_listener: UnixListener,
    listeners: Vec<UnixListener>,
    calendar: Option<Calendar>,
    fronts: Vec<Option<FrontEnd>>,
    disks: &'a mut [Disk],
}

impl Run<'_> {
    fn finish(&mut self) -> Result<Ended, Stop> {
        self.calendar = Some(Calendar::new(self.accept_calendar()?)?);
        match self.carry_on() {
            // A kernel that powers off closes its connections; so does one that breaks off.
            Err(Stop::Io(error)) if is_a_broken_connection(&error) && self.has_powered_off() => {}
            Err(stop) => return Err(stop),
            Ok(never) => match never {},
        }
        let calendar = self.calendar.as_ref().ok_or(Stop::Silent)?;
        let fronts = self.fronts.iter().flatten().map(FrontEnd::messages).sum::<u64>();
        Ok(Ended {
            virtual_time: calendar.now()?,
            messages: calendar.messages() + fronts,
            requests: self.disks.iter().map(Disk::requests).sum(),
            shared_calendar: calendar.shares_memory(),
        })
    }

    /// Whether the kernel's process ends by itself, with success.
    fn has_powered_off(&mut self) -> bool {
        self.guest.wait(Duration::from_secs(30)).is_some_and(|status| status.success())
    }

    fn accept_calendar(&mut self) -> Result<UnixStream, Stop> {
        let waiting = [&self.calendar_listener.as_fd(), &self.guest.exit.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        let ready = self.poll(waiting)?;
        if !ready[0] {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        Ok(self.calendar_listener.accept()?.0)
    }

    /// Carries out one event after another; ends with the kernel's connection.
    fn carry_on(&mut self) -> Result<std::convert::Infallible, Stop> {
        for turn in 0_u64.. {
            if turn % TURNS_BETWEEN_CHECKS == 0 {
                self.check_limits()?;
            }
            while !self.calendar()?.is_waiting() {
                self.serve(None)?;
            }
            let request = self.calendar()?.request()?;
            let completion = self.next_completion();
            let at = completion.min(request);
            if at >= Calendar::NEVER {
                return Err(Stop::SleepsForEver(self.calendar()?.now()?));
            }
            if at > self.machine.limits.virtual_time {
                let seconds = self.machine.limits.virtual_time.0 / 1_000_000_000;
                return Err(Stop::TooLong(format!("{seconds} s of virtual time")));
            }
            self.calendar()?.advance(at)?;
            if completion <= request {
                self.complete()?;
            } else {
                let next = self.next_completion().min(at + FREE_SPAN_MAX);
                self.calendar()?.run(next)?;
            }
        }
        unreachable!("a counter of 64 bits does not end")
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

    fn calendar(&mut self) -> Result<&mut Calendar, Stop> {
        self.calendar.as_mut().ok_or(Stop::Silent)
    }

    fn next_completion(&self) -> SimTime {
        self.disks.iter().filter_map(Disk::next_completion).min().unwrap_or(Calendar::NEVER)
    }

    /// Gives the waiting kernel what completes now, disk by disk.
    fn complete(&mut self) -> Result<(), Stop> {
        let now = self.calendar()?.now()?;
        for index in 0..self.disks.len() {
            let Some(front) = &mut self.fronts[index] else { continue };
            if self.disks[index].complete(front, now)? {
                front.call()?;
                while !self.serve(Some(index))? {}
            }
        }
        Ok(())
    }

    /// Waits for one message and serves it. Returns whether it answered an interrupt of the disk `called`.
    fn serve(&mut self, called: Option<usize>) -> Result<bool, Stop> {
        // Descriptors to wait for: the calendar, each disk's connection or listener, the kernel's end, then the called
        // disk's channel for interrupts.
        let calendar = self.calendar.as_ref().ok_or(Stop::Silent)?;
        let mut waiting = Vec::with_capacity(self.disks.len() + 3);
        waiting.push(calendar.as_fd());
        for (front, listener) in self.fronts.iter().zip(&self.listeners) {
            waiting.push(front.as_ref().map_or(listener.as_fd(), AsFd::as_fd));
        }
        waiting.push(self.guest.exit.as_fd());
        waiting.extend(called.and_then(|index| self.fronts[index].as_ref()).and_then(FrontEnd::backend));
        let ready = self.poll(waiting.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)))?;
        if ready[0] {
            self.calendar()?.take_message()?;
            return Ok(false);
        }
        for index in 0..self.disks.len() {
            if ready[1 + index] {
                self.serve_disk(index)?;
                return Ok(false);
            }
        }
        let ended = 1 + self.disks.len();
        if let (Some(index), Some(true)) = (called, ready.get(ended + 1))
            && let Some(front) = &mut self.fronts[index]
        {
            front.take_call_answer()?;
            return Ok(true);
        }
        if ready[ended] {
            // A process started by the kernel may outlive it and hold its connections open.
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        Ok(false)
    }

    fn serve_disk(&mut self, index: usize) -> Result<(), Stop> {
        let disk = &mut self.disks[index];
        let Some(front) = &mut self.fronts[index] else {
            let (socket, _) = self.listeners[index].accept()?;
            self.fronts[index] = Some(FrontEnd::new(socket, disk.features(), disk.config())?);
            return Ok(());
        };
        if front.take_message()? == Event::Kick {
            let calendar = self.calendar.as_mut().ok_or(Stop::Silent)?;
            disk.take_requests(front, calendar.now()?)?;
            let next = self.next_completion();
            self.calendar()?.limit(next)?;
            if let Some(front) = &mut self.fronts[index] {
                front.acknowledge()?;
            }
        }
        Ok(())
    }

    /// Waits until one of these is readable, and returns which.
    fn poll<'f>(&self, waiting: impl IntoIterator<Item = PollFd<'f>>) -> Result<Vec<bool>, Stop> {
        let mut waiting: Vec<PollFd<'_>> = waiting.into_iter().collect();
        let begin = Instant::now();
        loop {
            // In short steps, so that a stop request is noticed.
            let step = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            match poll(&mut waiting, Some(&step)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(waiting.iter().map(|fd| !fd.revents().is_empty()).collect()),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            self.check_limits()?;
            if begin.elapsed() >= self.machine.limits.silence {
                return Err(Stop::Silent);
            }
        }
    }
}
