//! `off`: the device is never told (Linux's `nodiscard`).

use super::{Availability, Decision, Governor, Needs, PolicyEvent};

/// Drops whatever a commit freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Off;

impl Governor for Off {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn availability(&self, _kernel: Availability) -> Availability {
        Availability::AfterCommit
    }

    fn on_event(&mut self, event: &PolicyEvent, decisions: &mut Vec<Decision>) {
        match event {
            PolicyEvent::Committed { .. } => decisions.push(Decision::DropPending),
        }
    }
}
