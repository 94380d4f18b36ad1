//! `commit`, `kernel515`, `serial` and `together`: every commit tells the device what it freed (Linux's `discard`).
//!
//! The kernel's way of doing so changed three times. `commit` does what the host's kernel does; the others do what one
//! generation does, on any host. `kernel515` is Linux 5.15 to 6.0: one background worker, one extent at a time, blocks
//! allocatable at once (`ext4_discard_work`; a block that was allocated again meanwhile is not sent). `serial` and
//! `together` discard inside the commit, as Linux did before.

use super::spec::term::{LiveUse, Term};
use super::{Availability, Decision, DiscardGeneration, Governor, Native, PolicyEvent, Shape, View};

pub(super) const COMMIT: Term = Term {
    live: LiveUse::Kernel,
    ..Term::plain(
        "commit",
        "at every commit, as the host's Linux does with the mount option discard",
        &["commit"],
        |_| Box::<Commit>::default(),
    )
};

pub(super) const KERNEL515: Term = Term {
    native_to: Some(Native::Linux(DiscardGeneration::Worker)),
    ..Term::plain(
        "kernel515",
        "as in Linux 5.15 to 6.0: one background worker after the commit",
        &["kernel515"],
        |_| Box::new(Commit::of(DiscardGeneration::Worker)),
    )
};

pub(super) const SERIAL: Term = Term {
    native_to: Some(Native::Linux(DiscardGeneration::CommitSerial)),
    ..Term::plain(
        "serial",
        "as in Linux up to 4.12: inside the commit, one at a time and waited for",
        &["serial"],
        |_| Box::new(Commit::of(DiscardGeneration::CommitSerial)),
    )
};

pub(super) const TOGETHER: Term = Term {
    native_to: Some(Native::Linux(DiscardGeneration::CommitBatched)),
    ..Term::plain(
        "together",
        "as in Linux 4.13 to 5.14: submitted together inside the commit",
        &["together"],
        |_| Box::new(Commit::of(DiscardGeneration::CommitBatched)),
    )
};

#[derive(Clone, Copy, Debug, Default)]
pub struct Commit {
    pinned: Option<DiscardGeneration>,
    kernel: Option<DiscardGeneration>,
}

impl Commit {
    /// Does what one generation of kernels does, on any host.
    pub fn of(kernel: DiscardGeneration) -> Self {
        Self { pinned: Some(kernel), kernel: None }
    }
}

impl Governor for Commit {
    fn availability(&self, kernel: DiscardGeneration) -> Availability {
        self.pinned.unwrap_or(kernel).availability()
    }

    /// The kernel merges within a transaction only (`ext4_try_merge_freed_extent`), and the worker of Linux 5.15
    /// walks its list extent by extent.
    fn merges(&self) -> bool {
        false
    }

    /// The list is that of `ext4_mb_free_metadata`: the last to be freed, or joined with what was freed, comes last.
    fn takes_in_order(&self) -> bool {
        true
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        if let PolicyEvent::Hosted(host) = event {
            self.kernel = Some(self.pinned.unwrap_or(host.kernel));
        }
        let Some(kernel) = self.kernel else { return };
        let runs_on = match kernel {
            DiscardGeneration::CommitSerial | DiscardGeneration::CommitBatched => {
                if let PolicyEvent::Committed { .. } = event {
                    let together = kernel == DiscardGeneration::CommitBatched;
                    decisions.push(Decision::IssueInCommit { together });
                }
                return;
            }
            DiscardGeneration::Worker => false,
            DiscardGeneration::WorkerRunningOn => true,
        };
        let is_free = match event {
            PolicyEvent::Committed { .. } | PolicyEvent::Issued(_) => view.in_flight == 0,
            event => *event == PolicyEvent::PassOver,
        };
        if is_free && view.pending_units > 0 {
            decisions.push(Decision::Issue(Shape { runs_on, ..Shape::NEXT }));
        }
    }
}
