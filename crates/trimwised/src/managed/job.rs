//! A running helper: started, read from, and abandoned if it does not exit.
//!
//! A process that hangs in the kernel cannot be killed, not even by SIGKILL: for instance a discard to which the device
//! does not respond. Such a helper is kept until the kernel releases it. Until then no other helper starts on its file
//! system, so that there is never more than one, and no slice on its disks.

use std::io;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::PollFd;
use trimwise::units::Span;

use super::{Managed, Means};
use crate::helper::{self, Answer, Request};
use crate::process::{Left, Process, has_ended};
use crate::speak::warn;

/// Size limit of a helper's answer, in bytes: the largest map, with a margin.
const ANSWER_MAX: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Probing,
    Looking,
    Trimming,
    Toggling { on: bool },
}

pub(crate) struct Job {
    pub(crate) doing: Doing,
    process: Process,
    begun: Instant,
    /// True once its output is complete.
    is_complete: bool,
}

impl Job {
    pub(crate) fn begin(program: &Path, doing: Doing, request: &Request) -> io::Result<Self> {
        Ok(Self {
            doing,
            process: helper::start(program, request)?,
            begun: Instant::now(),
            is_complete: false,
        })
    }

    pub(crate) fn waits(&self) -> PollFd<'_> {
        self.process.waits()
    }

    /// Reads the helper's output. Returns true once it is complete.
    pub(crate) fn hear(&mut self) -> bool {
        self.process.flush();
        self.is_complete = self.is_complete || self.process.receive(ANSWER_MAX);
        self.is_complete
    }

    pub(crate) fn answer(self, left: &mut Left) -> (Vec<Span>, Answer) {
        let (said, mut child) = self.process.into_parts();
        let answer = helper::parse_answer(&said).unwrap_or_else(|| {
            let how = in_words(&mut child);
            (Vec::new(), Answer::Again { message: format!("the helper ended without an answer ({how})") })
        });
        left.keep(child);
        answer
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Kills the helper if it has taken longer than `patience`. Returns the reason.
    pub(crate) fn give_up_behind(&mut self, patience: Duration) -> Option<String> {
        (self.begun.elapsed() >= patience).then(|| {
            self.kill();
            format!("the helper did not end in {} s", patience.as_secs())
        })
    }

    pub(crate) fn leave(self, left: &mut Left) {
        left.keep(self.process.into_parts().1);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

/// Describes how a process exited that has closed its socket, which it does on exit.
fn in_words(child: &mut Child) -> String {
    for _ in 0..200 {
        match child.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return error.to_string(),
        }
    }
    "it is still running".to_owned()
}

impl Managed {
    /// Abandons a helper that takes too long, and checks whether an abandoned one has exited.
    pub(crate) fn see_stuck(&mut self, means: &mut Means<'_>) {
        let point = self.candidate.mount.mount_point.clone();
        if self.stuck.as_mut().is_some_and(has_ended) {
            self.stuck = None;
            self.problem = None;
            means.history.add(&point, "released", "The abandoned helper has exited.".to_owned(), 0);
            if let Some(live) = self.live.as_mut().filter(|_| !self.hangs) {
                live.stick(None);
            }
        }
        if self.stuck.is_some() && self.live.is_none() {
            self.problem = Some("the abandoned helper has not exited".to_owned());
        }
        let Some(message) = self.job.as_mut().and_then(|job| job.give_up_behind(means.patience)) else {
            return;
        };
        let Some(Job { doing, process, begun, .. }) = self.job.take() else { return };
        warn(&format!("{}: {message}", point.display()));
        means.history.add(&point, "stuck", message.clone(), 0);
        let stuck = format!("The helper did not end in {} s and was abandoned", means.patience.as_secs());
        if let Some(live) = &mut self.live {
            live.stick(Some(stuck));
        }
        self.stuck = Some(process.into_parts().1);
        self.done(doing, begun.elapsed(), Vec::new(), &Answer::Again { message }, means);
    }

    /// Returns true if the disks are busy with something that excludes another slice.
    pub(crate) fn keeps_its_disks_busy(&self) -> bool {
        self.stuck.is_some() || self.job.as_ref().is_some_and(|job| job.doing == Doing::Trimming)
    }

    pub fn kill(&mut self) {
        self.held = None;
        if let Some(job) = &mut self.job {
            job.kill();
        }
    }

    /// Kills the helper, and waits for it no longer than `until`.
    pub fn stop(&mut self, left: &mut Left, until: Instant) {
        self.kill();
        if let Some(job) = self.job.take() {
            job.process.end(left, until);
        }
        if let Some(stuck) = self.stuck.take() {
            left.keep(stuck);
        }
    }

    /// Handles the helper's answer, once it has been received whole.
    pub(crate) fn hear(&mut self, means: &mut Means<'_>) {
        if let Some(job) = self.job.take_if(|job| job.is_complete) {
            let (doing, elapsed) = (job.doing, job.elapsed());
            let (spans, answer) = job.answer(means.left);
            self.done(doing, elapsed, spans, &answer, means);
        }
    }
}
