//! A policy in a process of its own, used as a governor: each run starts a new process.
//!
//! The host trusts the process with nothing but some time: it asks and waits, and checks every answer before acting on
//! it. A mistake ends the run by unwinding, because the model's callbacks return nothing.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::panic::resume_unwind;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trimwise::failure::Failure;
use trimwise::numbers::thousands;
use trimwise::policy::wire::{Asked, Decided, Hello, PROTOCOL, Traits};
use trimwise::policy::{Availability, Decision, DiscardGeneration, Governor, PolicyEvent, View};

use trimwise_study::sweep::Ended;

/// Most events in one run. A week of the busiest workload has a tenth of that.
const EVENTS_MAX: u64 = 20_000_000;
/// Longest answer accepted.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How much of the end of its standard error is kept.
const TAIL_BYTES: usize = 4096;
/// How many of those lines are shown.
const LAST_LINES: usize = 3;
/// How often a wait checks whether the user wants to stop.
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long to wait for a process to end once it has closed its output.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How to start a policy's process, and how long it may think.
#[derive(Clone, Debug)]
pub struct Start {
    pub words: Vec<std::ffi::OsString>,
    /// The working directory.
    pub folder: std::path::PathBuf,
    /// The longest wait for an answer.
    pub patience: Duration,
    /// Raised when the user wants to stop.
    pub stop: Arc<AtomicBool>,
}

impl Start {
    /// Starts a process. If that fails, the policy is disqualified at its first event.
    pub fn governor(&self) -> Box<dyn Governor> {
        Box::new(Hosted(RefCell::new(State { process: Process::start(self), traits: None, events: 0 })))
    }
}

struct Hosted(RefCell<State>);

struct State {
    process: Result<Process, Fault>,
    /// How the policy described itself.
    traits: Option<Traits>,
    events: u64,
}

/// Why there is no answer.
#[derive(Clone)]
enum Fault {
    Stopped,
    /// A mistake of the policy.
    Wrong(String),
    /// A failure of this computer.
    Host(String),
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

fn unwind(fault: Fault, at: &str) -> ! {
    resume_unwind(Box::new(match fault {
        Fault::Stopped => Ended::By(Failure::Interrupted),
        Fault::Wrong(why) => Ended::Out(format!("{at}: {why}")),
        Fault::Host(why) => Ended::By(Failure::run(format!("a policy's process {why}"))),
    }))
}

impl State {
    /// Ends the process and then the run: unwinding out of the model may leak the governor.
    fn unwind(&mut self, fault: Fault, at: &str) -> ! {
        self.process = Err(fault.clone());
        unwind(fault, at)
    }

    fn ask<Q: Serialize, A: DeserializeOwned>(&mut self, question: &Q) -> Result<A, Fault> {
        let process = self.process.as_mut().map_err(|why| why.clone())?;
        let mut line = serde_json::to_vec(question).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let answer = process.ask(&line)?;
        serde_json::from_slice(&answer)
            .map_err(|error| Fault::Wrong(format!("answered {}: {}", shown(&answer), in_json(&error))))
    }

    fn greet(&mut self, kernel: DiscardGeneration) -> Result<Traits, Fault> {
        let traits: Traits = self.ask(&Hello::of(kernel))?;
        if traits.protocol != PROTOCOL {
            let spoken = traits.protocol;
            return Err(format!("speaks version {spoken} of the protocol; expected {PROTOCOL}").into());
        }
        self.traits = Some(traits);
        Ok(traits)
    }

    fn decide(
        &mut self,
        event: &PolicyEvent,
        view: &View,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), Fault> {
        self.events += 1;
        if self.events > EVENTS_MAX {
            let most = thousands(EVENTS_MAX as f64);
            return Err(format!("more than {most} events in one run").into());
        }
        for decided in self.ask::<_, Vec<Decided>>(&Asked::of(event, view))? {
            let checked = decided.checked(event, view.now);
            decisions.push(checked.map_err(|why| format!("decided {}: {why}", line(&decided)))?);
        }
        Ok(())
    }
}

impl Governor for Hosted {
    fn availability(&self, kernel: DiscardGeneration) -> Availability {
        let mut state = self.0.borrow_mut();
        state.greet(kernel).unwrap_or_else(|fault| state.unwind(fault, "at its start")).availability
    }

    fn merges(&self) -> bool {
        self.0.borrow().traits.is_none_or(|traits| traits.merges)
    }

    fn takes_oldest_first(&self) -> bool {
        self.0.borrow().traits.is_some_and(|traits| traits.takes_oldest_first)
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        let state = self.0.get_mut();
        state.decide(event, view, decisions).unwrap_or_else(|fault| {
            let happened = line(&Asked::of(event, view).event);
            state.unwind(fault, &format!("at {}, on {happened}", view.now.named()))
        });
    }
}

/// Formats a message as the protocol does.
fn line(of: &impl Serialize) -> String {
    serde_json::to_string(of).unwrap_or_default()
}

/// Says what is wrong with a line, without Rust's terms but in full.
fn in_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    let Some((found, expected)) = what.rsplit_once(", expected ") else { return what.to_owned() };
    let found = match found {
        "invalid type: map" => "invalid type: an object",
        "invalid type: sequence" => "invalid type: a list",
        found => found,
    };
    let expected = match expected {
        "internally tagged enum Decided" => "an object with a type",
        "struct Traits" => "an object",
        "a sequence" => "a list",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number from 0",
        "a boolean" => "true or false",
        expected => expected,
    };
    format!("{found}, expected {expected}")
}

/// Returns the start of what a process wrote.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    if text.chars().count() > 60 {
        text.chars().take(57).chain("...".chars()).collect()
    } else {
        text.to_owned()
    }
}

struct Process {
    child: Child,
    questions: ChildStdin,
    answers: ChildStdout,
    errors: ChildStderr,
    /// Bytes that were read but are not yet a complete answer.
    read: Vec<u8>,
    /// The end of its standard error.
    tail: Vec<u8>,
    errors_are_open: bool,
    patience: Duration,
    stop: Arc<AtomicBool>,
}

impl Process {
    fn start(how: &Start) -> Result<Self, Fault> {
        let [program, arguments @ ..] = &how.words[..] else {
            return Err("has no program".to_owned().into());
        };
        let mut command = Command::new(program);
        // Otherwise, sets and dictionaries of strings in Python would be ordered differently each time.
        command.args(arguments).current_dir(&how.folder).env("PYTHONHASHSEED", "0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| {
            let why = format!("cannot be started: {error}");
            // If the file is not a program, or its interpreter is missing, that is the policy's fault.
            match error.kind() {
                ErrorKind::NotFound | ErrorKind::PermissionDenied => Fault::Wrong(why),
                _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
                    Fault::Wrong(why)
                }
                _ => Fault::Host(why),
            }
        })?;
        let (Some(questions), Some(answers), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("has no standard input and output".to_owned().into());
        };
        Ok(Self {
            child,
            questions,
            answers,
            errors,
            read: Vec::new(),
            tail: Vec::new(),
            errors_are_open: true,
            patience: how.patience,
            stop: Arc::clone(&how.stop),
        })
    }

    /// Sends a line and returns the line that comes back.
    fn ask(&mut self, line: &[u8]) -> Result<Vec<u8>, Fault> {
        if !self.read.is_empty() {
            return Err("answered with more than one line".to_owned().into());
        }
        let until = Instant::now() + self.patience;
        // A pipe that is ready accepts at least a page, and no line is that long.
        self.wait(true, until)?;
        match self.questions.write_all(line) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(self.ended()),
            written => written.map_err(|error| Fault::Host(format!("cannot be written to: {error}")))?,
        }
        let mut searched = 0;
        loop {
            if let Some(end) = self.read[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(searched + end + 1);
                return Ok(std::mem::replace(&mut self.read, rest));
            }
            searched = self.read.len();
            if searched > ANSWER_BYTES_MAX {
                return Err("answered with a line of more than 1 MiB".to_owned().into());
            }
            self.wait(false, until)?;
            let mut piece = [0; 65536];
            match self.answers.read(&mut piece) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => self.read.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Host(format!("cannot be read from: {error}"))),
            }
        }
    }

    /// Waits until the process accepts a line or has written something. Meanwhile drains its standard error, so that it
    /// cannot block on that.
    fn wait(&mut self, to_write: bool, until: Instant) -> Result<(), Fault> {
        loop {
            let own = if to_write {
                PollFd::new(&self.questions, PollFlags::OUT)
            } else {
                PollFd::new(&self.answers, PollFlags::IN)
            };
            let mut fds = vec![own];
            if self.errors_are_open {
                fds.push(PollFd::new(&self.errors, PollFlags::IN));
            }
            match poll(&mut fds, Some(&STEP)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Fault::Host(format!("cannot be waited for: {error}"))),
            }
            let is_ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
            let (own, errors) = (is_ready(fds.first()), is_ready(fds.get(1)));
            if errors {
                self.read_errors();
            }
            if own {
                return Ok(());
            }
            if self.stop.load(Ordering::SeqCst) {
                return Err(Fault::Stopped);
            }
            if Instant::now() >= until {
                let seconds = self.patience.as_secs();
                return Err(
                    format!("no answer within {seconds} s; expected one, or a longer --max-silence").into()
                );
            }
        }
    }

    fn read_errors(&mut self) {
        let mut piece = [0; TAIL_BYTES];
        match self.errors.read(&mut piece) {
            Ok(0) => self.errors_are_open = false,
            Ok(count) => self.tail.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.errors_are_open = false,
        }
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
    }

    /// Says how the process ended, with its last lines.
    fn ended(&mut self) -> Fault {
        let until = Instant::now() + LAST_WORDS;
        let mut status = None;
        while (status.is_none() || self.errors_are_open) && Instant::now() < until {
            let mut fds = [PollFd::new(&self.errors, PollFlags::IN)];
            let step = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            if self.errors_are_open && poll(&mut fds, Some(&step)).is_ok_and(|ready| ready > 0) {
                self.read_errors();
            } else if !self.errors_are_open {
                std::thread::sleep(Duration::from_millis(1));
            }
            status = status.or_else(|| self.child.try_wait().ok().flatten());
        }
        let tail = String::from_utf8_lossy(&self.tail);
        let how =
            status.map_or("closed its standard output".to_owned(), |status| format!("ended ({status})"));
        let mut last: Vec<&str> = tail.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        last.drain(..last.len().saturating_sub(LAST_LINES));
        if last.is_empty() { how.into() } else { format!("{how}: {}", last.join(" / ")).into() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its number cannot be reused before it is waited for.
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
