//! `ideal`: the bound. The device learns of every freed block at its commit, at no cost.

use super::{Availability, Decision, DiscardGeneration, Governor, Needs, PolicyEvent, View};

/// Reveals whatever a commit freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ideal;

impl Governor for Ideal {
    fn needs(&self) -> Needs {
        Needs { commits: true, oracle: true, ..Needs::default() }
    }

    fn availability(&self, _kernel: DiscardGeneration) -> Availability {
        Availability::AfterCommit
    }

    fn on_event(&mut self, event: &PolicyEvent, _view: &View, decisions: &mut Vec<Decision>) {
        if let PolicyEvent::Committed { .. } = event {
            decisions.push(Decision::Reveal);
        }
    }
}
