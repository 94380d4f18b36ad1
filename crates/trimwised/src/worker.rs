//! A worker: a process for tasks that the daemon's loop must never wait for, one request after another.
//!
//! Requests and responses are lines of JSON; responses come in the order of the requests. The loop never waits for a
//! worker: requests queue up to a limit, and a worker that is silent for longer than its patience is killed. Its
//! unanswered requests have then failed. Once the kernel has released it, the next request starts another one, so that
//! never more than one hangs.

use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::PollFd;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::process::{self, Left, Process, has_ended, line};

const QUEUE_MAX: usize = 64;
/// Size limit of a response in bytes: knowledge of all file systems, or a look at 10,000 mounts.
const RESPONSE_MAX: usize = 64 << 20;
/// Time after which a worker that failed to start is retried.
const REST: Duration = Duration::from_secs(1);

/// A worker and its pending requests, each with a tag `T`.
#[derive(Debug)]
pub struct Worker<T> {
    program: PathBuf,
    role: &'static str,
    patience: Duration,
    state: State,
    asked: VecDeque<T>,
    /// Time of the last response, or of a request while idle.
    heard_at: Instant,
    /// True if the last poll found no output.
    is_silent: bool,
}

#[derive(Debug)]
enum State {
    /// Not running, and not to be started before this instant.
    None(Instant),
    Running(Process),
    Stuck(Child),
}

impl<T> Worker<T> {
    /// Creates a worker that starts with its first request. `role` is the program's argument.
    pub fn new(program: PathBuf, role: &'static str, patience: Duration) -> Self {
        let now = Instant::now();
        Self {
            program,
            role,
            patience,
            state: State::None(now),
            asked: VecDeque::new(),
            heard_at: now,
            is_silent: false,
        }
    }

    /// Sends a request. `tag` is returned with the response. The error says why it cannot be sent now.
    pub fn ask(&mut self, tag: T, request: &impl Serialize) -> Result<(), String> {
        self.ask_at(Instant::now(), tag, request)
    }

    /// Like [`Self::ask`], at this instant.
    pub fn ask_at(&mut self, now: Instant, tag: T, request: &impl Serialize) -> Result<(), String> {
        if self.asked.len() >= QUEUE_MAX {
            return Err("too many requests are waiting for it".to_owned());
        }
        let line = line(request).map_err(|error| error.to_string())?;
        if let State::None(rests_until) = self.state {
            if now < rests_until {
                return Err("its worker has just exited".to_owned());
            }
            let started = Process::start(&self.program, &[self.role]).map_err(|error| {
                self.state = State::None(now + REST);
                format!("its worker cannot be started: {error}")
            })?;
            self.state = State::Running(started);
        }
        match &mut self.state {
            State::Running(process) => process.send(&line),
            _ => return Err("its worker hangs in the kernel".to_owned()),
        }
        if self.asked.is_empty() {
            self.heard_at = now;
        }
        self.asked.push_back(tag);
        self.is_silent = false;
        Ok(())
    }

    pub fn asked(&self) -> impl Iterator<Item = &T> {
        self.asked.iter()
    }

    pub fn is_stuck(&self) -> bool {
        matches!(self.state, State::Stuck(_))
    }

    pub fn waits(&self) -> Option<PollFd<'_>> {
        match &self.state {
            State::Running(process) => Some(process.waits()),
            _ => None,
        }
    }

    /// Notes if poll found output, in case this worker was polled: the next of `ready`.
    pub fn polled(&mut self, ready: &mut impl Iterator<Item = bool>) {
        self.is_silent = self.waits().is_some() && !ready.next().unwrap_or(true);
    }

    /// Allows [`Self::hear`] to read whatever has come since the last poll.
    pub fn not_polled(&mut self) {
        self.is_silent = false;
    }

    /// Returns the worker's responses, and an error for each request that it will never answer. Kills the worker if it
    /// is silent for too long.
    pub(crate) fn hear<R: DeserializeOwned>(&mut self, now: Instant) -> Vec<(T, Result<R, String>)> {
        let mut heard = Vec::new();
        let why = match &mut self.state {
            State::Running(process) => {
                process.flush();
                let has_closed = !self.is_silent && process.receive(RESPONSE_MAX);
                while let Some(line) = process.next_line() {
                    self.heard_at = now;
                    let response = serde_json::from_slice(&line).map_err(|error| error.to_string());
                    heard.extend(self.asked.pop_front().map(|tag| (tag, response)));
                }
                let hangs = !self.asked.is_empty() && now.duration_since(self.heard_at) >= self.patience;
                if has_closed {
                    "its worker exited".to_owned()
                } else if hangs {
                    format!("no answer in {} s", self.patience.as_secs())
                } else {
                    return heard;
                }
            }
            State::Stuck(child) => {
                if has_ended(child) {
                    self.state = State::None(Instant::now());
                }
                return heard;
            }
            State::None(_) => return heard,
        };
        if let State::Running(mut process) = std::mem::replace(&mut self.state, State::None(Instant::now())) {
            process.kill();
            self.state = State::Stuck(process.into_parts().1);
        }
        heard.extend(self.asked.drain(..).map(|tag| (tag, Err(why.clone()))));
        heard
    }

    /// Kills the worker, and waits for it no longer than `until`.
    pub fn end(&mut self, left: &mut Left, until: Instant) {
        match std::mem::replace(&mut self.state, State::None(Instant::now())) {
            State::Running(process) => process.end(left, until),
            State::Stuck(child) => left.keep(child),
            State::None(_) => {}
        }
    }
}

/// Runs the worker's side: responds to requests until its input is closed.
pub fn serve<Q: DeserializeOwned, R: Serialize>(mut answer: impl FnMut(Q) -> R) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        output.write_all(&process::line(&answer(serde_json::from_slice(&line)?))?)?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}
