//! Findings of the doctor, and their remedies.

use serde::Serialize;

use crate::code::{Code, Severity};
use crate::text::is_unprintable;

/// A problem or a note in the doctor's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub code: Code,
    /// True if this is a problem, false if it is only a note.
    pub wrong: bool,
    /// The device, file or option concerned.
    pub place: String,
    pub what: String,
    /// The remedy, in words.
    pub mend: Option<String>,
    /// Shell commands for root that carry out the remedy, in order; empty if no command does.
    pub commands: Vec<String>,
    /// Shell commands that undo the remedy; empty if there is nothing to undo.
    pub undo: Vec<String>,
    /// True if nothing on this host helps without giving something up, such as a snapshot; [`mend`](Self::mend) then
    /// says what would help elsewhere, if anything.
    pub nothing_helps: bool,
}

impl Finding {
    /// Makes a finding with the severity of its code.
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

    pub(crate) fn mended_by(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }

    /// Adds the commands that carry out the remedy, and those that undo it. If a name in any of them cannot be printed,
    /// it adds none: half a remedy may leave a file system unmounted.
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

    /// Marks that nothing on this host helps.
    pub(crate) fn beyond_this_host(mut self) -> Self {
        self.nothing_helps = true;
        self
    }
}
