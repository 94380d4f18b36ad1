//! What is known to be trimmed, handed from one live host to the next: over a restart, or another policy.

use super::{FORGET_EVERY, Knowledge, LiveHost};
use crate::units::{Bytes, SimDuration, Span};

/// What a live host knows of space that the device was told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Free and trimmed when a map was last read, and not freed since: ascending and disjoint.
    pub trimmed: Vec<Span>,
    /// After so long all of it is to be forgotten.
    pub forget_in: SimDuration,
    /// Of it, so much may have been allocated and freed unseen.
    pub unseen: Bytes,
}

impl LiveHost {
    /// What it knows; `None` if that is nothing.
    pub fn known(&self) -> Option<Known> {
        let Knowledge::Map(space) = &self.knowledge else { return None };
        (space.trimmed().0 > 0).then(|| Known {
            trimmed: space.trimmed_spans(),
            forget_in: self.forget_at.since(self.now),
            // What no map has explained yet may have come and gone as well.
            unseen: Bytes(self.missed.saturating_add(self.unexplained).saturating_add(self.freed_since_look)),
        })
    }

    /// Begins with what another one knew of the same mounted file system, before its first map. What is not free in that map
    /// any more is not believed.
    pub fn remember(&mut self, known: Known) {
        let Knowledge::Map(space) = &mut self.knowledge else { return };
        space.remember(known.trimmed);
        self.forget_at = self.now + known.forget_in.min(FORGET_EVERY);
        self.missed = known.unseen.0;
    }
}
