//! What is kept in files: how far it is written, and what was read of it at the start.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use trimwise_linux::files::Unread;

/// What could not be written is tried again behind this time.
const AGAIN: Duration = Duration::from_secs(10);

/// How far something is written that is kept in memory. Its versions are counted.
#[derive(Debug, Default)]
pub struct Saving {
    has_begun: bool,
    wanted: u64,
    /// The version that is being written.
    asked: Option<u64>,
    saved: u64,
    /// The version that could not be written, and why, in words that follow the file's name.
    failed: Option<(u64, String)>,
    retry_at: Option<Instant>,
}

impl Saving {
    /// What the last daemon left was read: from now on it may be overwritten.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Whether that is so.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// It is another one now; returns its version.
    pub fn changed(&mut self) -> u64 {
        self.wanted += 1;
        self.retry_at = None; // whoever waits for it need not wait for the next attempt
        self.wanted
    }

    /// The version to write now, if any.
    pub fn due(&self, now: Instant) -> Option<u64> {
        let is_due = self.has_begun
            && self.saved < self.wanted
            && self.asked.is_none()
            && self.retry_at.is_none_or(|at| at <= now);
        is_due.then_some(self.wanted)
    }

    /// It is being written in this version.
    pub fn asked(&mut self, version: u64) {
        self.asked = Some(version);
    }

    /// It was written in this version, or could not be.
    pub fn done(&mut self, version: u64, result: Result<(), String>) {
        self.asked = None;
        match result {
            Ok(()) => {
                self.saved = version;
                self.failed = None;
            }
            Err(why) => {
                self.failed = Some((version, why));
                self.retry_at = Some(Instant::now() + AGAIN);
            }
        }
    }

    /// Whether there is nothing left to write.
    pub fn is_saved(&self) -> bool {
        self.saved == self.wanted
    }

    /// What became of a version: written or not, if that is known yet.
    pub fn outcome(&self, version: u64) -> Option<Result<(), &str>> {
        if self.saved >= version {
            return Some(Ok(()));
        }
        self.failed.as_ref().filter(|(failed, _)| *failed >= version).map(|(_, why)| Err(why.as_str()))
    }

    /// Why the last attempt failed.
    pub fn problem(&self) -> Option<&str> {
        self.failed.as_ref().map(|(_, why)| why.as_str())
    }
}

/// What was read of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded<T> {
    /// What is in it; `None` if it could not be read now.
    pub value: Option<T>,
    /// What is wrong with it, as a sentence without a full stop.
    pub problem: Option<String>,
    /// What is wrong is the file: it will not be read another time.
    is_wrong: bool,
}

impl<T> Loaded<T> {
    /// What was read; `take` makes of it what is wanted.
    pub fn from<R>(path: &Path, read: Result<R, Unread>, take: impl FnOnce(R) -> T) -> Self {
        match read {
            Ok(read) => Self { value: Some(take(read)), problem: None, is_wrong: false },
            Err(Unread::Wrong(why)) => Self { value: None, problem: Some(why), is_wrong: true },
            Err(Unread::Failed(why)) => {
                let problem = format!("{} {why}; it is tried again", path.display());
                Self { value: None, problem: Some(problem), is_wrong: false }
            }
        }
    }
}

impl<T: Default> Loaded<T> {
    /// What is no such file holds nothing; `say` makes the sentence about it, of why.
    pub fn or_nothing(self, say: impl FnOnce(String) -> String) -> Self {
        if !self.is_wrong {
            return self;
        }
        Self { value: Some(T::default()), problem: self.problem.map(say), is_wrong: true }
    }
}
