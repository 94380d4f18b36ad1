//! Allocations, frees and commits in the order in which they happen, for comparison with the tracepoints of a kernel.

use super::Ext4;
use crate::units::{Lpn, UnitRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Blocks for a file's pages from `page` on.
    Allocated {
        inode: u32,
        page: u64,
        goal: Lpn,
        wanted: u64,
        blocks: UnitRange,
    },
    Freed(UnitRange),
    /// A transaction takes no more handles: what follows belongs to later ones.
    Closed,
}

pub(super) type Observer = Box<dyn FnMut(Observed)>;

impl Ext4 {
    /// Lets `observer` see everything that is allocated and freed from now on.
    pub fn observe(&self, observer: impl FnMut(Observed) + 'static) {
        *self.0.observer.borrow_mut() = Some(Box::new(observer));
    }

    pub(super) fn observed(&self, observed: impl FnOnce() -> Observed) {
        if let Some(observer) = &mut *self.0.observer.borrow_mut() {
            observer(observed());
        }
    }
}
