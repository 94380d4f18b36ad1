//! `off`: the device is never told (Linux's `nodiscard`).

use super::spec::term::{LiveUse, Term};
use super::{Decision, Explanation, Governor, Needs, PolicyEvent, View};

pub(super) const TERM: Term = Term {
    refuses_gate: Some("never trims"),
    live: LiveUse::Slices,
    ..Term::plain("off", "never", &["off"], |_| Box::new(Off))
};

#[derive(Clone, Copy, Debug, Default)]
pub struct Off;

impl Governor for Off {
    fn needs(&self) -> Needs {
        Needs { commits: false, trim: false, ..Needs::default() }
    }

    fn on_event(&mut self, event: &PolicyEvent, _view: &View, decisions: &mut Vec<Decision>) {
        if let PolicyEvent::Committed { .. } = event {
            decisions.push(Decision::DropFreed);
        }
    }

    fn explain(&self, _view: &View) -> Explanation {
        Explanation::new("The policy is off: the device is never told of free space.", "Another policy.")
    }
}
