//! `commit` and `kernel515`: every commit tells the device what it freed (Linux's `discard`).
//!
//! The kernel's way of doing so changed three times. `commit` does what the host's kernel does; `kernel515` does what
//! Linux 5.15 to 6.0 does, on any host: one background worker, one extent at a time, blocks allocatable at once
//! (`ext4_discard_work`; a block that was allocated again meanwhile is not sent).

use super::spec::term::Term;
use super::{Availability, Decision, DiscardGeneration, Governor, Needs, PolicyEvent, Shape, View};

pub(super) const COMMIT: Term = Term {
    follows_commits: true,
    suits_live_host: true,
    ..Term::plain(
        "commit",
        "at every commit, as the host's Linux does with the mount option discard",
        &["commit"],
        |_| Box::<Commit>::default(),
    )
};

pub(super) const KERNEL515: Term = Term {
    follows_commits: true,
    ..Term::plain(
        "kernel515",
        "as in Linux 5.15 to 6.0: one background worker after the commit",
        &["kernel515"],
        |_| Box::new(Commit::of(DiscardGeneration::Worker)),
    )
};

/// Issues whatever a commit freed, as the host's kernel does or as `pinned` says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Commit {
    pinned: Option<DiscardGeneration>,
    kernel: Option<DiscardGeneration>,
}

impl Commit {
    /// A governor that does what one generation of kernels does, on any host.
    pub fn of(kernel: DiscardGeneration) -> Self {
        Self { pinned: Some(kernel), kernel: None }
    }
}

fn of_worker(kernel: DiscardGeneration) -> Shape {
    Shape { runs_on: kernel == DiscardGeneration::WorkerRunningOn, ..Shape::NEXT }
}

impl Governor for Commit {
    fn needs(&self) -> Needs {
        Needs { commits: true, ..Needs::default() }
    }

    fn availability(&self, kernel: DiscardGeneration) -> Availability {
        self.pinned.unwrap_or(kernel).availability()
    }

    /// The kernel merges within a transaction only (`ext4_try_merge_freed_extent`), and the worker of Linux 5.15
    /// walks its list extent by extent.
    fn merges(&self) -> bool {
        false
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        if let PolicyEvent::Hosted(host) = event {
            self.kernel = Some(self.pinned.unwrap_or(host.kernel));
        }
        match (self.kernel, event) {
            (Some(DiscardGeneration::CommitSerial), PolicyEvent::Committed { .. }) => {
                decisions.push(Decision::IssueInCommit { together: false });
            }
            (Some(DiscardGeneration::CommitBatched), PolicyEvent::Committed { .. }) => {
                decisions.push(Decision::IssueInCommit { together: true });
            }
            (
                Some(kernel @ (DiscardGeneration::Worker | DiscardGeneration::WorkerRunningOn)),
                PolicyEvent::Committed { .. } | PolicyEvent::Issued(_),
            ) if view.in_flight == 0 && view.pending_units > 0 => {
                decisions.push(Decision::Issue(of_worker(kernel)));
            }
            (
                Some(kernel @ (DiscardGeneration::Worker | DiscardGeneration::WorkerRunningOn)),
                PolicyEvent::PassOver,
            ) if view.pending_units > 0 => {
                decisions.push(Decision::Issue(of_worker(kernel)));
            }
            _ => {}
        }
    }
}
