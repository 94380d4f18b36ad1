//! `btrfs`: btrfs's `discard=async`, on the host's file system.
//!
//! Constants from Linux's fs/btrfs/discard.c and discard.h: nothing for 120 s after the first free, "to give some
//! chance for block reuse"; then a pass over extents of at least 1 MiB and one over those of at least 32 KiB, at most
//! 64 MiB per discard and 1000 discards per second (10 in Linux 6.1). Shorter extents wait until their neighbours
//! are freed. btrfs keeps a delay for each block group; here one delay serves the whole file system.

use super::spec::term::Term;
use super::{Decision, Governor, Native, PolicyEvent, Shape, View};
use crate::units::SimDuration;

/// `BTRFS_DISCARD_DELAY`.
const DELAY: SimDuration = SimDuration::from_secs(120);
/// One second divided by `BTRFS_DISCARD_MAX_IOPS`.
const SPACING: SimDuration = SimDuration::from_millis(1);
/// `BTRFS_ASYNC_DISCARD_DEFAULT_MAX_SIZE`, 64 MiB.
const UNITS_MAX: u64 = 16_384;
/// `BTRFS_ASYNC_DISCARD_MAX_FILTER` and `_MIN_FILTER`: 1 MiB, 32 KiB.
const FILTERS: [u64; 2] = [256, 8];

pub(super) const TERM: Term = Term {
    native_to: Some(Native::FileSystem("btrfs")),
    ..Term::plain("btrfs", "as btrfs with discard=async", &["btrfs"], |_| Box::<Btrfs>::default())
};

#[derive(Clone, Copy, Debug, Default)]
pub struct Btrfs {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Waiting,
    Pass(usize),
}

impl Btrfs {
    fn issue(pass: usize, decisions: &mut Vec<Decision>) {
        let shape = Shape { units_min: FILTERS[pass], units_max: UNITS_MAX, ..Shape::NEXT };
        decisions.push(Decision::Issue(shape));
    }

    /// Starts the delay if there is something for a pass to find.
    fn rest(&mut self, freed: bool, view: &View, decisions: &mut Vec<Decision>) {
        self.state = if freed { State::Waiting } else { State::Idle };
        if freed {
            decisions.push(Decision::WakeAt(view.now + DELAY));
        }
    }
}

impl Governor for Btrfs {
    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        match (self.state, event) {
            (State::Idle, PolicyEvent::Committed { freed_units }) => {
                self.rest(*freed_units > 0, view, decisions);
            }
            (State::Waiting, PolicyEvent::Woken) => {
                self.state = State::Pass(0);
                Self::issue(0, decisions);
            }
            (State::Pass(_), PolicyEvent::Issued(_)) => {
                decisions.push(Decision::WakeAt(view.now + SPACING));
            }
            (State::Pass(pass), PolicyEvent::Woken) => Self::issue(pass, decisions),
            (State::Pass(pass), PolicyEvent::PassOver) if pass + 1 < FILTERS.len() => {
                self.state = State::Pass(pass + 1);
                Self::issue(pass + 1, decisions);
            }
            (State::Pass(_), PolicyEvent::PassOver) => self.rest(view.pending_units > 0, view, decisions),
            _ => {}
        }
    }
}
