//! `off`: the device is never told (Linux's `nodiscard`).

use super::spec::term::Term;
use super::{Availability, Decision, DiscardGeneration, Explanation, Governor, Needs, PolicyEvent, View};

pub(super) const TERM: Term = Term {
    refuses_gate: Some("never trims"),
    suits_live_host: true,
    ..Term::plain("off", "never", &["off"], |_| Box::new(Off))
};

/// Drops whatever a commit freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Off;

impl Governor for Off {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn availability(&self, _kernel: DiscardGeneration) -> Availability {
        Availability::AfterCommit
    }

    fn on_event(&mut self, event: &PolicyEvent, _view: &View, decisions: &mut Vec<Decision>) {
        if let PolicyEvent::Committed { .. } = event {
            decisions.push(Decision::DropFreed);
        }
    }

    fn explain(&self, _view: &View) -> Explanation {
        Explanation {
            state: "The policy is off: the device is never told of free space.".to_owned(),
            change: "Another policy.".to_owned(),
        }
    }
}
