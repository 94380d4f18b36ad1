//! A helper at work: started, read from, and abandoned if it does not answer. One that has answered serves the next job
//! too, since starting a process costs more than most tasks.
//!
//! A process that hangs in the kernel cannot be killed, not even by SIGKILL: for instance a discard to which the device
//! does not respond. Such a helper is kept until the kernel releases it. Until then no other helper starts on its file
//! system, so that there is never more than one, and no slice on its disks.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::PollFd;
use trimwise::units::Span;

use super::{Managed, Means};
use crate::helper::{self, Answer, Request};
use crate::process::{Left, Process, has_ended, line};
use crate::speak::warn;

/// Time for which a helper is kept without a task: maps are read once a minute.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// The helper that waits for the next task, if any, and since when.
#[derive(Default)]
pub(crate) struct Idle(Option<(Process, Instant)>);

impl Idle {
    fn keep(&mut self, helper: Process, left: &mut Left) {
        if let Some((other, _)) = self.0.replace((helper, Instant::now())) {
            left.keep(other.into_parts().1); // its input has ended
        }
    }

    /// Lets the helper go if it was not needed for long.
    pub(crate) fn age(&mut self, now: Instant, left: &mut Left) {
        if let Some((helper, _)) = self.0.take_if(|(_, since)| now.duration_since(*since) >= IDLE_MAX) {
            left.keep(helper.into_parts().1);
        }
    }

    pub(crate) fn end(&mut self, left: &mut Left, until: Instant) {
        self.0.take().into_iter().for_each(|(helper, _)| helper.end(left, until));
    }
}

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
    /// Program and task for another helper, in case the idle one had already ended.
    again: Option<(PathBuf, Request)>,
    begun: Instant,
    is_complete: bool,
}

impl Job {
    pub(crate) fn begin(program: &Path, doing: Doing, request: Request, idle: &mut Idle) -> io::Result<Self> {
        let (process, again) = match idle.0.take() {
            Some((mut process, _)) => {
                process.send(&line(&request)?);
                (process, Some((program.to_owned(), request)))
            }
            None => (helper::start(program, &request)?, None),
        };
        Ok(Self { doing, process, again, begun: Instant::now(), is_complete: false })
    }

    pub(crate) fn waits(&self) -> PollFd<'_> {
        self.process.waits()
    }

    pub(crate) fn hear(&mut self, left: &mut Left) -> bool {
        self.is_complete = self.is_complete || helper::hear(&mut self.process);
        if self.is_complete
            && self.process.received().is_empty()
            && let Some((program, request)) = self.again.take()
            && let Ok(other) = helper::start(&program, &request)
        {
            left.keep(std::mem::replace(&mut self.process, other).into_parts().1);
            self.is_complete = false;
        }
        self.is_complete
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn answer(mut self, left: &mut Left, idle: &mut Idle) -> (Vec<Span>, Answer) {
        if let Some(answer) = helper::parse_answer(self.process.received()) {
            self.process.take_received();
            idle.keep(self.process, left);
            return answer;
        }
        let (_, mut child) = self.process.into_parts();
        let how = in_words(&mut child);
        left.keep(child);
        (Vec::new(), unanswered(self.doing, format!("the helper ended without an answer ({how})")))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

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

/// Returns the answer for a helper that gave none. The discards of a trim may be in flight and fail later, and then only
/// tracepoints would report it.
fn unanswered(doing: Doing, message: String) -> Answer {
    match doing {
        Doing::Trimming => Answer::Device { message, in_flight: true },
        _ => Answer::Again { message },
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
        self.done(doing, begun.elapsed(), Vec::new(), &unanswered(doing, message), means);
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
            let (spans, answer) = job.answer(means.left, means.idle);
            self.done(doing, elapsed, spans, &answer, means);
        }
    }
}
