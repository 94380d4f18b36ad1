//! State kept in files: progress of saving it, and its contents at the start.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use trimwise_linux::files::{Unread, read_own};

const AGAIN: Duration = Duration::from_secs(10);

/// Progress of saving some state in memory. Its versions are numbered.
#[derive(Debug, Default)]
pub struct Saving {
    has_begun: bool,
    wanted: u64,
    asked: Option<u64>,
    saved: u64,
    /// The version that could not be written, and the reason. The text follows the file's name in a message.
    failed: Option<(u64, String)>,
    retry_at: Option<Instant>,
}

impl Saving {
    /// Allows the file to be overwritten, once the last daemon's contents were read.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub fn changed(&mut self) -> u64 {
        self.wanted += 1;
        self.retry_at = None; // do not wait for the next retry
        self.wanted
    }

    pub fn due(&self, now: Instant) -> Option<u64> {
        let is_due = self.has_begun
            && self.saved < self.wanted
            && self.asked.is_none()
            && self.retry_at.is_none_or(|at| at <= now);
        is_due.then_some(self.wanted)
    }

    pub fn asked(&mut self, version: u64) {
        self.asked = Some(version);
    }

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

    pub(crate) fn is_saved(&self) -> bool {
        self.saved == self.wanted
    }

    /// Returns the result of writing a version; `None` if it is not known yet.
    pub fn outcome(&self, version: u64) -> Option<Result<(), &str>> {
        if self.saved >= version {
            return Some(Ok(()));
        }
        self.failed.as_ref().filter(|(failed, _)| *failed >= version).map(|(_, why)| Err(why.as_str()))
    }

    pub fn problem(&self) -> Option<&str> {
        self.failed.as_ref().map(|(_, why)| why.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded<T> {
    /// `None` if the file could not be read now.
    pub value: Option<T>,
    pub problem: Option<String>,
}

impl<T: Default> Loaded<T> {
    /// Reads a file of at most `most` bytes. If it is missing or invalid, the contents are the default; `invalid` turns
    /// the reason why it is invalid into a message.
    pub(crate) fn read(
        path: &Path,
        most: u64,
        parse: impl FnOnce(&str) -> Result<T, String>,
        invalid: impl FnOnce(String) -> String,
    ) -> Self {
        let parse = |text: String| parse(&text).map_err(Unread::Wrong);
        match read_own(path, most).and_then(|text| text.map_or_else(|| Ok(T::default()), parse)) {
            Ok(value) => Self { value: Some(value), problem: None },
            Err(Unread::Wrong(why)) => Self { value: Some(T::default()), problem: Some(invalid(why)) },
            Err(Unread::Failed(why)) => {
                Self { value: None, problem: Some(format!("{} {why}; it will be retried", path.display())) }
            }
        }
    }
}
