//! Tasks waiting for each other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Poll;

use super::{Sim, TaskId};
use crate::units::SimTime;

/// A condition that tasks wait for, as with a condition variable: a wake-up only means "check again".
///
/// Waiters are woken in the order in which they began to wait. A notification without waiters is lost, so the condition
/// itself belongs in state that is checked before waiting.
#[derive(Clone)]
pub struct Event {
    sim: Sim,
    waiters: Rc<RefCell<VecDeque<Waiter>>>,
}

struct Waiter {
    task: TaskId,
    notified: Rc<Cell<bool>>,
}

impl Event {
    pub fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), waiters: Rc::default() }
    }

    pub async fn wait(&self) {
        let notified = self.enlist();
        std::future::poll_fn(|_| if notified.get() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Waits for the next notification, but not beyond `deadline`. Returns true if there was one.
    pub async fn wait_until(&self, deadline: SimTime) -> bool {
        if self.sim.now() >= deadline {
            self.sim.sleep_until(deadline).await; // returns at once, and counts
            return false;
        }
        let notified = self.enlist();
        self.sim.set_timer(deadline);
        std::future::poll_fn(|_| {
            if notified.get() || self.sim.now() >= deadline { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        if !notified.get() {
            self.waiters.borrow_mut().retain(|w| !Rc::ptr_eq(&w.notified, &notified));
        }
        notified.get()
    }

    pub(crate) fn notify_all(&self) {
        self.waiters.borrow_mut().drain(..).for_each(|waiter| self.wake(&waiter));
    }

    /// Wakes the latest waiter first, as Linux does where tasks wait for a bit: they enter the queue at its head
    /// (`prepare_to_wait`, kernel/sched/wait.c).
    pub(crate) fn notify_all_last_first(&self) {
        self.waiters.borrow_mut().drain(..).rev().for_each(|waiter| self.wake(&waiter));
    }

    fn wake(&self, waiter: &Waiter) {
        waiter.notified.set(true);
        self.sim.wake(waiter.task);
    }

    fn enlist(&self) -> Rc<Cell<bool>> {
        let notified = Rc::new(Cell::new(false));
        self.waiters
            .borrow_mut()
            .push_back(Waiter { task: self.sim.running(), notified: Rc::clone(&notified) });
        notified
    }
}
