//! Knowledge of trimmed space, handed from one live host to the next: across a restart, or a change of policy.

use super::{FORGET_EVERY, Knowledge, LiveHost};
use crate::units::{Bytes, SimDuration, Span};

/// A live host's knowledge of trimmed space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Free and trimmed when a map was last read, and not freed since: ascending and disjoint.
    pub trimmed: Vec<Span>,
    /// Time after which all of it must be forgotten.
    pub forget_in: SimDuration,
    /// How much of it may have been allocated and freed unseen.
    pub unseen: Bytes,
}

impl LiveHost {
    /// What it knows; `None` if it knows of no trimmed space.
    pub fn known(&self) -> Option<Known> {
        let Knowledge::Map(space) = &self.knowledge else { return None };
        (space.trimmed().0 > 0).then(|| Known {
            trimmed: space.trimmed_spans(),
            forget_in: self.forget_at.since(self.now),
            // Frees that no map has explained yet may have gone unseen too.
            unseen: Bytes(self.missed.saturating_add(self.unexplained).saturating_add(self.freed_since_look)),
        })
    }

    /// Takes over another host's knowledge of the same mounted file system, before the first map. Space that is not
    /// free in that map is discarded.
    pub fn remember(&mut self, known: Known) {
        let Knowledge::Map(space) = &mut self.knowledge else { return };
        space.remember(known.trimmed);
        self.forget_at = self.now + known.forget_in.min(FORGET_EVERY);
        self.missed = known.unseen.0;
    }
}
