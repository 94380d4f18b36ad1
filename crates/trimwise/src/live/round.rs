//! Reading a file system's maps: when to read the next one, and of which addresses.
//!
//! Most file systems have no more free extents than are kept, and each map shows everything. If there are more, maps
//! come in windows of addresses, and a *round* goes through all of them: when nothing is waiting in one, the next is
//! read. Trimmed space is then known only in part ([`FreeSpace`](super::FreeSpace)), and what is forgotten looks
//! freshly freed in the next round. So that round does not start before as much was freed as this one has forgotten, or
//! a week has passed: at most twice the freed space is sent.

use super::space::WHOLE;
use super::{Busy, Knowledge, LOOK_CHANGED, LOOK_STALE, LiveHost, Order, Reason};
use crate::units::Span;

/// State of the round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// The window of the last map.
    window: Span,
    /// Whether that window reaches the end of the file system.
    pub(super) is_over: bool,
    /// Whether the first round is not over yet: what it finds was free before the daemon started.
    pub(super) is_first: bool,
    /// Whether the kernel told the device of everything freed since the last round.
    pub(super) told: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self { window: WHOLE, is_over: true, is_first: true, told: false }
    }
}

impl Round {
    /// Whether one map shows everything.
    pub(super) fn is_whole(&self) -> bool {
        self.window == WHOLE
    }

    /// Notes that a map of this window was read.
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

/// What the next map should show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Everything, or as much of it as fits: starts a round.
    Everything,
    /// The part from this address on.
    From(u64),
}

impl LiveHost {
    pub(super) fn decide_look(&mut self, orders: &mut Vec<Order>) -> bool {
        if !self.facts.maps || !self.look_is_useful() {
            return false;
        }
        // A request to trim everything does not wait between two windows.
        let at_once = (self.is_asked() || self.sweep) && !self.round.is_over;
        if self.online && self.looked_at.is_some() && !self.look_wanted && !at_once {
            return false;
        }
        if self.unsure.is_some() && !self.look_wanted {
            return self.look_again(orders);
        }
        let look = if self.look_wanted { Some(Look::Everything) } else { self.due_look() };
        match look {
            Some(look) if self.look_wanted || at_once || self.now >= self.look_not_before => {
                self.look(look, orders)
            }
            _ => false,
        }
    }

    /// The map that is due now, if any.
    fn due_look(&self) -> Option<Look> {
        let Knowledge::Map(space) = &self.knowledge else { return None };
        let stale = self.looked_at.is_none_or(|at| self.now.since(at) >= LOOK_STALE);
        let worth = LOOK_CHANGED.0.max(self.sample.total.0 / 1024);
        let is_changed = self.changed_since_look.saturating_add(self.unexplained) >= worth;
        let (freed, forgotten) = (self.freed_since_look, space.forgotten().0);
        if self.round.is_whole() {
            let more = space.is_cut_short() && space.waiting().0 == 0;
            // Space forgotten because there is less room than before would look freshly freed.
            let enough = freed >= forgotten;
            let any = freed.saturating_add(self.unexplained) > 0;
            return (more || self.now >= self.forget_at || (enough && (is_changed || (any && stale))))
                .then_some(Look::Everything);
        }
        match space.first_waiting() {
            // The map was cut short: read the same window again.
            None if space.is_cut_short() => Some(Look::From(self.round.window.start)),
            None if !self.round.is_over => Some(Look::From(self.round.window.end)),
            // Space that has been waiting for long may be in use again. Do not go further, or the round would never end
            // where something is freed all the time.
            Some(first) if !self.round.is_over => (stale && is_changed).then_some(Look::From(first)),
            _ => {
                let due = self.now >= self.forget_at
                    || (freed >= forgotten && (is_changed || (freed > 0 && stale)));
                due.then_some(Look::Everything)
            }
        }
    }

    /// Reads the next window, since what is waiting in this one cannot be sent.
    pub(super) fn look_further(&mut self, orders: &mut Vec<Order>) -> bool {
        !self.round.is_over
            && self.now >= self.look_not_before
            && self.look(Look::From(self.round.window.end), orders)
    }

    /// Asks for the ranges to walk over, where there are no maps.
    pub(super) fn look_for_ranges(&mut self, orders: &mut Vec<Order>) {
        self.look(Look::Everything, orders);
    }

    /// Reads the map again: all of it, or the current window.
    pub(super) fn look_again(&mut self, orders: &mut Vec<Order>) -> bool {
        let over = self.round.is_whole() || self.round.is_over;
        self.look(if over { Look::Everything } else { Look::From(self.round.window.start) }, orders)
    }

    fn look(&mut self, look: Look, orders: &mut Vec<Order>) -> bool {
        let (begins, from) = match look {
            Look::Everything => (true, 0),
            Look::From(at) => (false, at),
        };
        self.busy = Some(Busy::Looking { begins });
        self.reason = Reason::Looking;
        self.look_begun = self.now;
        self.frees.look_begins();
        orders.push(Order::Look { from });
        true
    }
}
