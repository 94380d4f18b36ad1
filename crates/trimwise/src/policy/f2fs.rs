//! `f2fs`: f2fs's discard thread, on the host's file system.
//!
//! Constants from fs/f2fs/f2fs.h and segment.c: rounds of at most 8 discards, 50 ms apart, of extents of at least 16
//! blocks. If the device was used within the last 5 s, it tries again after 500 ms. Above 80 % utilization it is
//! urgent: extents of any size. (f2fs issues the longest first; here they go by address.)

use super::spec::term::Term;
use super::{Decision, Governor, Native, PolicyEvent, Shape, View};
use crate::units::SimDuration;

/// `DEF_MAX_DISCARD_REQUEST`.
const REQUESTS_PER_ROUND: u64 = 8;
/// `DEF_MIN_DISCARD_ISSUE_TIME`.
const AFTER_ROUND: SimDuration = SimDuration::from_millis(50);
/// `DEF_MID_DISCARD_ISSUE_TIME`.
const IF_BUSY: SimDuration = SimDuration::from_millis(500);
/// `DEF_MAX_DISCARD_ISSUE_TIME`.
const IF_NOTHING: SimDuration = SimDuration::from_secs(60);
/// `DEF_IDLE_INTERVAL`.
const IDLE: SimDuration = SimDuration::from_secs(5);
/// `DEFAULT_DISCARD_GRANULARITY`.
const GRANULARITY_UNITS: u64 = 16;
/// `DEF_DISCARD_URGENT_UTIL`.
const URGENT_PERCENT: u64 = 80;

pub(super) const TERM: Term = Term {
    native_to: Some(Native::FileSystem("f2fs")),
    ..Term::plain("f2fs", "as f2fs, which discards in the background", &["f2fs"], |_| Box::<F2fs>::default())
};

#[derive(Clone, Copy, Debug, Default)]
pub struct F2fs {
    awake: bool,
    found: bool,
}

impl F2fs {
    fn round(&mut self, view: &View, decisions: &mut Vec<Decision>) {
        self.awake = view.pending_units > 0;
        if !self.awake {
            return;
        }
        if view.requests > 0 || view.quiet < IDLE {
            decisions.push(Decision::WakeAt(view.now + IF_BUSY));
            return;
        }
        let units_min = if view.used_percent() > URGENT_PERCENT { 1 } else { GRANULARITY_UNITS };
        let shape = Shape { units_min, ..Shape::NEXT };
        let round = view.pending_extents.min(REQUESTS_PER_ROUND);
        decisions.push(Decision::WakeAt(view.now + AFTER_ROUND));
        decisions.extend((0..round).map(|_| Decision::Issue(shape)));
    }
}

impl Governor for F2fs {
    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        match event {
            PolicyEvent::Committed { .. } if !self.awake => self.round(view, decisions),
            PolicyEvent::Woken => self.round(view, decisions),
            PolicyEvent::Issued(_) => self.found = true,
            // There was no long enough extent in a whole pass: nothing to do.
            PolicyEvent::PassOver => {
                self.awake = std::mem::take(&mut self.found);
                let pause = if self.awake { AFTER_ROUND } else { IF_NOTHING };
                decisions.push(Decision::WakeAt(view.now + pause));
            }
            _ => {}
        }
    }
}
