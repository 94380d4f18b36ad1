//! A worker: a process that does what the daemon's loop must never wait for, one request after another.
//!
//! A request is a line of JSON, and so is the response to it; they come in the order of the requests. The loop never waits
//! for a worker: requests queue up to a bound, and a worker that is silent for longer than the patience is killed. What it
//! has not answered by then has failed. Once the kernel has let it go, the next request starts another one, so that there
//! is never more than one that hangs.

use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::process::{Left, Process, has_ended};

/// Requests that wait at a time.
const QUEUE_MAX: usize = 64;
/// Bytes of a response: what is known of all file systems, or what was found of 10,000 mounts.
const RESPONSE_MAX: usize = 64 << 20;
/// A worker that cannot be started, or ends by itself, is tried again behind this time.
const REST: Duration = Duration::from_secs(1);

/// A worker, and what it was asked: `T` says what for.
#[derive(Debug)]
pub struct Worker<T> {
    program: PathBuf,
    role: &'static str,
    patience: Duration,
    state: State,
    asked: VecDeque<T>,
    /// When it was asked, being idle, or said something last.
    heard_at: Instant,
}

#[derive(Debug)]
enum State {
    /// None runs, and none is started before this instant.
    None(Instant),
    Running(Process),
    /// Killed, and not ended yet.
    Stuck(Child),
}

impl<T> Worker<T> {
    /// A worker that is started with its first request. `role` is the program's argument.
    pub fn new(program: PathBuf, role: &'static str, patience: Duration) -> Self {
        let now = Instant::now();
        Self { program, role, patience, state: State::None(now), asked: VecDeque::new(), heard_at: now }
    }

    /// Asks it to do something. `tag` comes back with the response.
    ///
    /// # Errors
    /// If it cannot be asked now, in words.
    pub fn ask(&mut self, tag: T, request: &impl Serialize) -> Result<(), String> {
        if self.asked.len() >= QUEUE_MAX {
            return Err("too much waits for it already".to_owned());
        }
        let line = serde_json::to_string(request).map_err(|error| error.to_string())? + "\n";
        let now = Instant::now();
        if let State::None(rests_until) = self.state {
            if now < rests_until {
                return Err("its worker has just ended".to_owned());
            }
            let started = Process::start(&self.program, &[self.role]).map_err(|error| {
                self.state = State::None(now + REST);
                format!("its worker cannot be started: {error}")
            })?;
            self.state = State::Running(started);
        }
        match &mut self.state {
            State::Running(process) => process.send(line.as_bytes()),
            _ => return Err("its worker hangs in the kernel".to_owned()),
        }
        if self.asked.is_empty() {
            self.heard_at = now;
        }
        self.asked.push_back(tag);
        Ok(())
    }

    /// What it was asked and has not answered.
    pub fn asked(&self) -> impl Iterator<Item = &T> {
        self.asked.iter()
    }

    /// Whether it was given up and has not ended.
    pub fn is_stuck(&self) -> bool {
        matches!(self.state, State::Stuck(_))
    }

    /// What to wait for, and whether for room to write.
    pub fn waits(&self) -> Option<(BorrowedFd<'_>, bool)> {
        match &self.state {
            State::Running(process) => Some((process.waits(), process.is_sending())),
            _ => None,
        }
    }

    /// What it has answered, and what it never will: then with why, in words. Gives it up if it is silent for too long.
    pub fn hear<R: DeserializeOwned>(&mut self) -> Vec<(T, Result<R, String>)> {
        let mut heard = Vec::new();
        let why = match &mut self.state {
            State::Running(process) => {
                process.flush();
                let has_closed = process.receive(RESPONSE_MAX);
                while let Some(line) = process.next_line() {
                    self.heard_at = Instant::now();
                    let response = serde_json::from_slice(&line).map_err(|error| error.to_string());
                    heard.extend(self.asked.pop_front().map(|tag| (tag, response)));
                }
                let is_silent = !self.asked.is_empty() && self.heard_at.elapsed() >= self.patience;
                if has_closed {
                    "its worker ended".to_owned()
                } else if is_silent {
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

    /// Kills it, and waits until then at most for its end.
    pub fn end(&mut self, left: &mut Left, until: Instant) {
        match std::mem::replace(&mut self.state, State::None(Instant::now())) {
            State::Running(process) => process.end(left, until),
            State::Stuck(child) => left.keep(child),
            State::None(_) => {}
        }
    }
}

/// The worker's side: answers each request until nobody asks any more.
///
/// # Errors
/// If a request is not understood, or nobody takes the response.
pub fn serve<Q: DeserializeOwned, R: Serialize>(mut answer: impl FnMut(Q) -> R) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        let response = answer(serde_json::from_slice(&line).map_err(io::Error::other)?);
        let mut text = serde_json::to_vec(&response).map_err(io::Error::other)?;
        text.push(b'\n');
        output.write_all(&text)?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}
