//! Watches at the block queue how the TRIMs of a removal are issued.

use std::cell::RefCell;
use std::rc::Rc;

use crate::block::{BlockQueue, Command, Stage};
use crate::units::{SimDuration, SimTime};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Issue {
    pub commands: u64,
    /// Time from the end of the commit until the last was acknowledged; zero if there were none.
    pub time: SimDuration,
}

pub struct Watch {
    queue: BlockQueue,
    seen: Rc<RefCell<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// When the last flush completed, or the watch began. At the first TRIM, this is the end of its commit.
    flushed: SimTime,
    durable: Option<SimTime>,
    acknowledged: SimTime,
    commands: u64,
}

impl Watch {
    /// Creates a watch of this queue, which begins with [`Watch::start`].
    pub fn new(queue: &BlockQueue) -> Self {
        Self { queue: queue.clone(), seen: Rc::default() }
    }

    pub fn start(&self) {
        *self.seen.borrow_mut() = Seen { flushed: self.queue.sim().now(), ..Seen::default() };
        let seen = Rc::clone(&self.seen);
        self.queue.trace(Some(Box::new(move |at, stage, command| {
            let seen = &mut *seen.borrow_mut();
            match (stage, command) {
                (Stage::Completed, Command::Flush) => seen.flushed = at,
                (Stage::Dispatched, Command::Trim(_)) => {
                    seen.durable.get_or_insert(seen.flushed);
                    seen.commands += 1;
                }
                (Stage::Completed, Command::Trim(_)) => seen.acknowledged = at,
                _ => {}
            }
        })));
    }

    pub fn stop(&self) -> Issue {
        self.queue.trace(None);
        let seen = self.seen.borrow();
        let time = seen.durable.map_or(SimDuration::ZERO, |durable| seen.acknowledged.since(durable));
        Issue { commands: seen.commands, time }
    }
}
