//! `ideal`: the bound of all policies. The device learns of every freed block at its commit, at no cost.

use super::spec::term::Term;
use super::{Decision, Governor, Needs, PolicyEvent, View};

pub(super) const TERM: Term = Term {
    refuses_gate: Some("costs nothing, so there is nothing to decide"),
    ..Term::plain(
        "ideal",
        "the device learns immediately, at no cost, what a commit frees: a bound, never recommended",
        &["ideal"],
        |_| Box::new(Ideal),
    )
};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ideal;

impl Governor for Ideal {
    fn needs(&self) -> Needs {
        Needs { trim: false, oracle: true, ..Needs::default() }
    }

    fn on_event(&mut self, event: &PolicyEvent, _view: &View, decisions: &mut Vec<Decision>) {
        if let PolicyEvent::Committed { .. } = event {
            decisions.push(Decision::Reveal);
        }
    }
}
