//! Going through a file system's maps: when the next one is read, and of what.
//!
//! Most file systems have no more free extents than are kept, and each map is one of everything. Where there are more, maps
//! come in windows of addresses, and a *round* goes through all of them: when nothing waits any more in one, the next is
//! looked at. What was trimmed is then known in parts only ([`FreeSpace`](super::FreeSpace)), and what is forgotten looks in
//! the next round as if it was just freed. So that round does not begin before as much was freed as was forgotten in this
//! one, or a week is over: at most twice of what is freed is sent.

use super::space::WHOLE;
use super::{Busy, Knowledge, LOOK_CHANGED, LOOK_STALE, LiveHost, Order, Reason};
use crate::units::Span;

/// Where the round is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// What the last map was of.
    window: Span,
    /// Whether that is where the file system ends.
    pub(super) is_over: bool,
    /// Whether no round is over yet: what is found was free before the daemon began.
    pub(super) is_first: bool,
    /// Whether the kernel told the device of all that was freed since the last round.
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

    /// A map of this window has come.
    pub(super) fn looked(&mut self, window: Span) {
        self.window = window;
        self.is_over = window.end == WHOLE.end;
    }

    /// How far it is, in thousandths of the file system's addresses, if it takes more than one map.
    pub(super) fn permille(&self, total: u64) -> Option<u64> {
        let at = u128::from(self.window.end.min(total)) * 1000 / u128::from(total.max(1));
        (!self.is_whole()).then_some(at as u64)
    }
}

/// What a map is to be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Everything, or as much of it as fits: a round begins.
    Everything,
    /// What lies from here on.
    From(u64),
}

impl LiveHost {
    pub(super) fn decide_look(&mut self, orders: &mut Vec<Order>) -> bool {
        if !self.facts.maps || !self.look_is_useful() {
            return false;
        }
        // Whoever asked for all of it need not wait between two windows.
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

    /// The map that would be read now, if nothing is against it.
    fn due_look(&self) -> Option<Look> {
        let Knowledge::Map(space) = &self.knowledge else { return None };
        let stale = self.looked_at.is_none_or(|at| self.now.since(at) >= LOOK_STALE);
        let worth = LOOK_CHANGED.0.max(self.sample.total.0 / 1024);
        let is_changed = self.changed_since_look.saturating_add(self.unexplained) >= worth;
        let is_drained = space.waiting().0 == 0;
        let (freed, forgotten) = (self.freed_since_look, space.forgotten().0);
        if self.round.is_whole() {
            let more = space.is_cut_short() && is_drained;
            // What was forgotten since there is less room than before would look as if it was just freed.
            let enough = freed >= forgotten;
            let any = freed.saturating_add(self.unexplained) > 0;
            return (more || self.now >= self.forget_at || (enough && (is_changed || (any && stale))))
                .then_some(Look::Everything);
        }
        match space.first_waiting() {
            // It was cut short: the rest of the same window.
            _ if is_drained && space.is_cut_short() => Some(Look::From(self.round.window.start)),
            None if !self.round.is_over => Some(Look::From(self.round.window.end)),
            // What waits for long may be in use again. Not what lies behind it, or the round would never end where
            // something is freed all the time.
            Some(first) if !self.round.is_over => (stale && is_changed).then_some(Look::From(first)),
            _ => {
                let due = self.now >= self.forget_at
                    || (freed >= forgotten && (is_changed || (freed > 0 && stale)));
                due.then_some(Look::Everything)
            }
        }
    }

    /// What waits in this window cannot be sent; the next one may have something.
    pub(super) fn look_further(&mut self, orders: &mut Vec<Order>) -> bool {
        !self.round.is_over
            && self.now >= self.look_not_before
            && self.look(Look::From(self.round.window.end), orders)
    }

    /// The ranges to walk over, where there are no maps.
    pub(super) fn look_for_ranges(&mut self, orders: &mut Vec<Order>) {
        self.look(Look::Everything, orders);
    }

    /// What is known is brought up to date: all of it, or the window that is worked at.
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
