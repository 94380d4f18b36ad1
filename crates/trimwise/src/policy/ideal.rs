//! `ideal`: the bound. The device knows of every freed block at its commit, and it costs nothing.

use super::{Availability, Decision, Governor, Needs, PolicyEvent};

/// Reveals whatever a commit freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ideal;

impl Governor for Ideal {
    fn needs(&self) -> Needs {
        Needs { commits: true, oracle: true }
    }

    fn availability(&self, _kernel: Availability) -> Availability {
        Availability::AfterCommit
    }

    fn on_event(&mut self, event: &PolicyEvent, decisions: &mut Vec<Decision>) {
        match event {
            PolicyEvent::Committed { .. } => decisions.push(Decision::Reveal),
        }
    }
}
