//! `zfs`: OpenZFS's `autotrim`, on the host's file system.
//!
//! Constants from module/zfs/vdev_trim.c: frees are gathered over 32 transaction groups (`zfs_trim_txg_batch`; a group
//! closes with a commit, or after the 5 s of `zfs_txg_timeout`). Then those still free are trimmed: extents of 32
//! KiB to 128 MiB (`zfs_trim_extent_bytes_min`, `_max`), ten at a time (`zfs_trim_queue_limit`). An allocation takes
//! its blocks out of the waiting extents.

use super::spec::term::Term;
use super::{Decision, Governor, Native, PolicyEvent, Shape, View};
use crate::units::SimDuration;

/// `zfs_trim_txg_batch`.
const TRANSACTION_GROUPS: u32 = 32;
/// `zfs_txg_timeout`.
const TRANSACTION_GROUP: SimDuration = SimDuration::from_secs(5);
/// `zfs_trim_queue_limit`.
const QUEUE_LIMIT: u32 = 10;
/// 32 KiB to 128 MiB.
const SHAPE: Shape = Shape { units_min: 8, units_max: 32_768, ..Shape::NEXT };
pub(super) const TERM: Term = Term {
    native_to: Some(Native::FileSystem("ZFS")),
    ..Term::plain("zfs", "as ZFS with autotrim", &["zfs"], |_| Box::<Zfs>::default())
};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Zfs {
    gathered: u32,
    in_pass: bool,
}

impl Zfs {
    fn issue(view: &View, decisions: &mut Vec<Decision>) {
        let free = QUEUE_LIMIT.saturating_sub(view.in_flight);
        let useful = view.pending_extents.min(u64::from(free));
        decisions.extend((0..useful).map(|_| Decision::Issue(SHAPE)));
    }
}

impl Governor for Zfs {
    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        match event {
            PolicyEvent::Hosted(_) => decisions.push(Decision::WakeAt(view.now + TRANSACTION_GROUP)),
            PolicyEvent::Committed { .. } | PolicyEvent::Woken => {
                self.gathered += 1;
                decisions.push(Decision::WakeAt(view.now + TRANSACTION_GROUP));
                if self.gathered >= TRANSACTION_GROUPS && !self.in_pass && view.pending_units > 0 {
                    self.gathered = 0;
                    self.in_pass = true;
                    Self::issue(view, decisions);
                }
            }
            PolicyEvent::Issued(_) if self.in_pass => {
                Self::issue(view, decisions);
                self.in_pass = view.pending_units > 0;
            }
            PolicyEvent::PassOver => self.in_pass = false,
            PolicyEvent::Issued(_) | PolicyEvent::Trimmed { .. } => {}
        }
    }
}
