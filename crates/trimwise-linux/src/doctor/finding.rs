//! What the doctor reports, and what mends it.

use serde::Serialize;

use crate::code::{Code, Severity};
use crate::text::is_unprintable;

/// A problem or a note in the doctor's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its code, which stays the same over versions.
    pub code: Code,
    /// True if this is a problem, false if it is only a note.
    pub wrong: bool,
    /// The device, file or option concerned.
    pub place: String,
    /// Description of the finding.
    pub what: String,
    /// Remedy for the problem.
    pub mend: Option<String>,
    /// Lines for root's shell that carry out the remedy, in this order; empty if no commands do.
    pub commands: Vec<String>,
    /// Lines that take it back; empty where that makes no sense.
    pub undo: Vec<String>,
    /// True if nothing on this host helps, or nothing that keeps what it has, such as a snapshot; [`mend`](Self::mend) then
    /// says what would help, if anything.
    pub nothing_helps: bool,
}

impl Finding {
    /// A finding with the severity of its code.
    pub(crate) fn new(code: Code, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            code,
            wrong: code.entry().severity == Severity::Problem,
            place: place.into(),
            what: what.into(),
            mend: None,
            commands: Vec::new(),
            undo: Vec::new(),
            nothing_helps: false,
        }
    }

    /// Adds a remedy.
    pub(crate) fn mended_by(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }

    /// Adds the lines that carry out the remedy, and those that take it back. There are none if a name in them cannot be
    /// printed: half a remedy may leave a file system unmounted.
    pub(crate) fn with_commands(
        mut self,
        commands: impl IntoIterator<Item = String>,
        undo: impl IntoIterator<Item = String>,
    ) -> Self {
        self.commands.extend(commands);
        self.undo.extend(undo);
        let is_lost = |c: char| is_unprintable(c) || c == char::REPLACEMENT_CHARACTER;
        if self.commands.iter().chain(&self.undo).any(|line| line.contains(is_lost)) {
            self.commands.clear();
            self.undo.clear();
        }
        self
    }

    /// Says that nothing on this host helps.
    pub(crate) fn beyond_this_host(mut self) -> Self {
        self.nothing_helps = true;
        self
    }
}
