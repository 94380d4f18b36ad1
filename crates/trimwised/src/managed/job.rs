//! A helper at work: begun, heard, and given up when it does not end.
//!
//! What hangs in the kernel cannot be ended, not even by SIGKILL: a discard that the device does not answer. Such a helper is
//! kept until the kernel lets it go. Until then no other one is begun on its file system, so that there is never more than
//! one, and no slice on its disks.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use trimwise::units::Span;

use super::{Managed, Means};
use crate::helper::{self, Answer, Request};
use crate::service::warn;

/// The most that a helper may answer: a map of the most extents, with room.
const ANSWER_MAX: usize = 4 << 20;

/// Helpers that did not end when their file systems went, until the kernel lets them go.
#[derive(Default)]
pub(crate) struct Left(Vec<Child>);

impl Left {
    fn keep(&mut self, child: Child) {
        self.0.push(child);
    }

    /// Those that have ended are no more.
    pub(crate) fn reap(&mut self) {
        self.0.retain_mut(|child| !has_ended(child));
    }
}

/// What a helper is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Probing,
    Looking,
    Trimming,
    Toggling { on: bool },
}

/// A helper that has not answered yet.
pub(crate) struct Job {
    pub(crate) doing: Doing,
    child: Child,
    out: ChildStdout,
    read: Vec<u8>,
    begun: Instant,
}

impl Job {
    pub(crate) fn begin(program: &Path, doing: Doing, request: &Request) -> io::Result<Self> {
        let mut child = helper::start(program, request)?;
        let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        rustix::io::ioctl_fionbio(&out, true)?;
        Ok(Self { doing, child, out, read: Vec::new(), begun: Instant::now() })
    }

    /// What to wait for.
    pub(crate) fn waits(&self) -> BorrowedFd<'_> {
        self.out.as_fd()
    }

    /// Reads what it has written; answers whether that was all.
    pub(crate) fn hear(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.out.read(&mut buffer) {
                Ok(0) => return true,
                Ok(n) if self.read.len() + n <= ANSWER_MAX => self.read.extend(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(_) | Err(_) => {
                    self.kill();
                    return true;
                }
            }
        }
    }

    /// Its answer, when all of it was heard.
    pub(crate) fn answer(mut self) -> (Vec<Span>, Answer) {
        let status = self.child.wait();
        helper::parse_answer(&self.read).unwrap_or_else(|| {
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            (Vec::new(), Answer::Again { message: format!("the helper ended without an answer ({how})") })
        })
    }

    /// Since its begin.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Given up if it takes longer than this: killed, and to be left. And why, in words.
    pub(crate) fn give_up_behind(&mut self, patience: Duration) -> Option<String> {
        (self.begun.elapsed() >= patience).then(|| {
            self.kill();
            format!("the helper did not end in {} s", patience.as_secs())
        })
    }

    /// Whoever began it waits for it no more.
    pub(crate) fn leave(self, left: &mut Left) {
        left.keep(self.child);
    }

    /// A discard that is on its way still ends.
    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
    }

    /// Waits until then at most for one that was killed.
    fn end(mut self, left: &mut Left, until: Instant) {
        while !has_ended(&mut self.child) {
            if Instant::now() >= until {
                return self.leave(left);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn has_ended(child: &mut Child) -> bool {
    // An error says that it is no child any more.
    !matches!(child.try_wait(), Ok(None))
}

impl Managed {
    /// Gives up a helper that takes too long, and sees whether one that was given up has ended.
    pub(super) fn see_stuck(&mut self, means: &mut Means<'_>) {
        let point = self.candidate.mount.mount_point.clone();
        if self.stuck.as_mut().is_some_and(has_ended) {
            self.stuck = None;
            self.problem = None;
            means.history.add(&point, "released", "The helper that was given up has ended.".to_owned(), 0);
            if let Some(live) = &mut self.live {
                live.stick(None);
            }
        }
        if self.stuck.is_some() && self.live.is_none() {
            self.problem = Some("the helper that was given up has not ended".to_owned());
        }
        let Some(message) = self.job.as_mut().and_then(|job| job.give_up_behind(means.patience)) else {
            return;
        };
        let Some(Job { doing, child, begun, .. }) = self.job.take() else { return };
        warn(&format!("{}: {message}", point.display()));
        means.history.add(&point, "stuck", message.clone(), 0);
        let stuck = format!("The helper did not end in {} s, and was given up", means.patience.as_secs());
        if let Some(live) = &mut self.live {
            live.stick(Some(stuck));
        }
        self.stuck = Some(child);
        self.done(doing, begun.elapsed(), Vec::new(), &Answer::Again { message }, means);
    }

    /// Whether something is under way on its disks that another slice must not meet.
    pub fn keeps_its_disks_busy(&self) -> bool {
        self.stuck.is_some() || self.job.as_ref().is_some_and(|job| job.doing == Doing::Trimming)
    }

    /// Tells the helper to end: a discard that is on its way still ends.
    pub fn kill(&mut self) {
        self.held = None;
        if let Some(job) = &mut self.job {
            job.kill();
        }
    }

    /// Ends the helper, and waits for it until then at most.
    pub fn stop(&mut self, left: &mut Left, until: Instant) {
        self.kill();
        if let Some(job) = self.job.take() {
            job.end(left, until);
        }
        if let Some(stuck) = self.stuck.take() {
            left.keep(stuck);
        }
    }

    /// Reads what the helper has written; if it has ended, its answer is taken.
    pub fn hear(&mut self, means: &mut Means<'_>) {
        if let Some(job) = self.job.take_if(Job::hear) {
            let (doing, elapsed) = (job.doing, job.elapsed());
            let (spans, answer) = job.answer();
            self.done(doing, elapsed, spans, &answer, means);
        }
    }
}
