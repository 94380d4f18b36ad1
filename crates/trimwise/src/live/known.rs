//! Knowledge of trimmed space, handed from one live host to the next: across a restart, or a change of policy.

use super::LiveHost;
use crate::units::{Bytes, SimDuration, Span};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Spans that were free and trimmed when a map was last read, and have not been freed since: ascending and
    /// disjoint.
    pub trimmed: Vec<Span>,
    /// The part of it that was sent, and may not have been taken.
    pub unverified: Vec<Span>,
    pub forget_in: SimDuration,
    /// How much of it may have been allocated and freed unseen.
    pub unseen: Bytes,
}

impl LiveHost {
    /// Returns the host's knowledge; `None` if it knows of no trimmed space.
    pub fn known(&self) -> Option<Known> {
        self.knowledge.known(self.now)
    }

    /// Takes over another host's knowledge of the same mounted file system, before the first map. Space that is not
    /// free in that map is discarded.
    pub fn remember(&mut self, known: Known) {
        self.knowledge.remember(known, self.now);
    }
}
