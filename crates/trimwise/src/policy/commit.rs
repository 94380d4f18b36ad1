//! `commit`: every commit tells the device what it freed (Linux's `discard`).
//!
//! How the kernel goes about it changed twice, so that the governor only says "as the kernel does" and
//! the host knows its generation.

use super::{Availability, Decision, Governor, Needs, PolicyEvent};

/// Issues whatever a commit freed, as the host's kernel does it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Commit;

impl Governor for Commit {
    fn needs(&self) -> Needs {
        Needs { commits: true, oracle: false }
    }

    fn availability(&self, kernel: Availability) -> Availability {
        kernel
    }

    fn on_event(&mut self, event: &PolicyEvent, decisions: &mut Vec<Decision>) {
        match event {
            PolicyEvent::Committed { .. } => decisions.push(Decision::IssueAsKernel),
        }
    }
}
