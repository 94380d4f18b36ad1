//! Rounds through a file system's maps: when to read the next map, and of which addresses.
//!
//! Most file systems have no more free extents than are kept, and each map shows everything. If there are more, maps
//! come in windows of addresses, and a *round* goes through all of them: when nothing is waiting in one, the next is
//! read. Trimmed space is then known only in part ([`FreeSpace`](super::FreeSpace)), and forgotten space looks freshly
//! freed in the next round. So that round does not start before as much was freed as this one has forgotten, or a week
//! has passed: at most twice the freed space is sent.

use super::knowledge::{Look, Moment};
use super::maps::Maps;
use super::space::WHOLE;
use super::{Busy, LiveHost, Order, Reason};
use crate::units::{Bytes, SimDuration, Span};

/// Change in used space worth a map, or a thousandth of the file system if that is more. Allocations count too: space
/// that is allocated and then freed is no longer trimmed.
const LOOK_CHANGED: Bytes = Bytes::mib(64);
/// Age after which a smaller change is worth a map.
const LOOK_STALE: SimDuration = SimDuration::from_secs(600);

#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    window: Span,
    pub(super) is_over: bool,
    /// The first round is not over yet. Space that it finds was free before the daemon started.
    pub(super) is_first: bool,
    /// The kernel told the device of everything freed since the last round.
    pub(super) told: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self { window: WHOLE, is_over: true, is_first: true, told: false }
    }
}

impl Round {
    pub(super) fn is_whole(&self) -> bool {
        self.window == WHOLE
    }

    /// Returns the map that shows the last one again: all of it, or the current window.
    pub(super) fn again(&self) -> Look {
        if self.is_whole() || self.is_over { Look::Everything } else { Look::From(self.window.start) }
    }

    pub(super) fn further(&self) -> Look {
        Look::From(self.window.end)
    }

    pub(super) fn looked(&mut self, window: Span) {
        self.window = window;
        self.is_over = window.end == WHOLE.end;
    }

    /// Progress in thousandths of the file system's addresses, if the round takes more than one map.
    pub(super) fn permille(&self, total: u64) -> Option<u64> {
        let at = u128::from(self.window.end.min(total)) * 1000 / u128::from(total.max(1));
        (!self.is_whole()).then_some(at as u64)
    }
}

impl Maps {
    /// Returns the map that is due now, if any: a new round, or the next window of this one.
    pub(super) fn next_look(&self, moment: &Moment) -> Option<Look> {
        let Moment { now, sample, .. } = *moment;
        let stale = self.looks.at.is_none_or(|at| now.since(at) >= LOOK_STALE);
        let worth = LOOK_CHANGED.0.max(sample.total.0 / 1024);
        let unexplained = self.unseen.unexplained;
        let is_changed = self.looks.changed.saturating_add(unexplained) >= worth;
        let (freed, forgotten) = (self.looks.freed, self.space.forgotten().0);
        let forgets = now >= self.unseen.forget_at;
        if self.round.is_whole() {
            let more = self.space.is_cut_short() && self.space.waiting().0 == 0;
            // Space forgotten because there is less room than before would look freshly freed.
            let enough = freed >= forgotten;
            let any = freed.saturating_add(unexplained) > 0;
            return (more || forgets || (enough && (is_changed || (any && stale))))
                .then_some(Look::Everything);
        }
        match self.space.first_waiting() {
            // The map was cut short: read the same window again.
            None if self.space.is_cut_short() => Some(Look::From(self.round.window.start)),
            None if !self.round.is_over => Some(self.round.further()),
            // Space that has been waiting for long may be in use again. Do not go further, or the round would never end
            // where something is freed all the time.
            Some(first) if !self.round.is_over => (stale && is_changed).then_some(Look::From(first)),
            _ => {
                let due = forgets || (freed >= forgotten && (is_changed || (freed > 0 && stale)));
                due.then_some(Look::Everything)
            }
        }
    }
}

impl LiveHost {
    pub(super) fn decide_look(&mut self, orders: &mut Vec<Order>) -> bool {
        let due = self.knowledge.look_due(&self.moment()).filter(|_| self.look_is_useful());
        due.map(|look| self.look(look, orders)).is_some()
    }

    pub(super) fn look(&mut self, look: Look, orders: &mut Vec<Order>) {
        let (begins, from) = match look {
            Look::Everything => (true, 0),
            Look::From(at) => (false, at),
        };
        self.busy = Some(Busy::Looking { begins, begun: self.now });
        self.reason = Reason::Looking;
        self.frees.look_begins();
        orders.push(Order::Look { from });
    }
}
