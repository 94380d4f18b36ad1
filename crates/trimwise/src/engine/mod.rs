//! Virtual time: a single-threaded executor for async tasks.
//!
//! Workload threads, the journal thread, write-back and TRIM workers are ordinary async functions. They wait for an
//! instant ([`Sim::sleep`]), for processor time to pass ([`Sim::charge`]) or for each other ([`Event`]); nothing else
//! lets time pass. The executor runs the ready tasks, in the order in which they became ready, and then jumps to the
//! next instant that a task waits for.
//!
//! # What must hold
//!
//! - Timers are kept in a heap keyed by `(time, sequence)`: tasks that wake at the same instant run in
//!   the order in which they went to sleep, so that a run replays exactly.
//! - A task waits only for events and times of this module. The executor knows the running task, so the waker that it
//!   gives to futures does nothing, and a future of another runtime would never be woken. If nothing is ready and no
//!   timer is set, [`Sim::run`] returns [`Stalled`] instead of waiting for ever; likewise if tasks continue for ever
//!   without letting time pass ([`Budget`]).
//! - Each round of a loop in a task waits, or calls [`Sim::consume_budget`]. An executor cannot stop a task that polls
//!   only futures which are ready, or none at all: nothing of it reaches the executor.
//!
//! # Why our own
//!
//! Discrete-event libraries for Rust (nexosim 1.0 is the best maintained) are built of components with message ports
//! and run on several threads. A workload that is one async function over a file trait would have to be cut into
//! message handlers, and each of its 2.8 million system calls would become a queued event. Here a call that does not
//! have to wait costs no event at all (see [`Sim::charge`]), in some 300 lines.

mod event;

pub use event::Event;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use thiserror::Error;

use crate::units::{SimDuration, SimTime};

/// The main task has not ended, and will not.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the simulation stalled at {}, after {events} events: {why}", .at.named())]
pub struct Stalled {
    /// Virtual time of the standstill.
    pub at: SimTime,
    pub events: u64,
    pub why: Standstill,
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Standstill {
    /// Nothing is ready, and no task waits for an instant.
    #[error("every task waits for another")]
    Waiting,
    /// [`Budget::at_an_instant`] is used up.
    #[error("tasks keep each other busy and no time passes")]
    Timeless,
    /// [`Budget::at_an_instant`] is used up by a task that never had to wait ([`Sim::consume_budget`]).
    #[error("a task goes on without waiting for anything: it {doing}, again and again, and no time passes")]
    Spinning { doing: &'static str },
    /// [`Budget::in_all`] is used up.
    #[error("that is more than the whole run may take")]
    Endless,
    /// The flag of [`Sim::stop_at`] is raised.
    #[error("it was stopped")]
    Stopped,
    /// A task has found that an event can no longer happen, and called [`Sim::give_up`].
    #[error(
        "a task waits for free blocks, but the policy withholds {units} until their TRIM and has released none since \
         {}: no TRIM is under way, and {}",
        .since.named(),
        if *.is_timed { "waking at its own times did not make it issue one" } else { "it has set no timer" }
    )]
    Withheld {
        /// Units of 4 KiB that wait for their TRIM.
        units: u64,
        /// Time since which the policy has released no units while a task waits.
        since: SimTime,
        is_timed: bool,
    },
}

/// Limits on the number of events. An event is a task that runs, looks at the clock to wait for an instant, or consumes
/// budget.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Maximum number of events without time passing. The default, ten million, takes a second or so; a host whose
    /// processor costs nothing makes some hundred thousand.
    pub at_an_instant: u64,
    /// Events in the whole run; unlimited by default.
    pub in_all: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { at_an_instant: 10_000_000, in_all: u64::MAX }
    }
}

/// A task, identified by its slot and the number of times that the slot was used, so that a stale wake-up finds no
/// task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TaskId {
    slot: u32,
    generation: u32,
}

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    generation: u32,
    future: Option<LocalFuture>,
}

#[derive(Default)]
struct Core {
    now: Cell<SimTime>,
    sequence: Cell<u64>,
    budget: Cell<Budget>,
    events: Cell<u64>,
    events_before_now: Cell<u64>,
    current: Cell<Option<TaskId>>,
    given_up: Cell<Option<Standstill>>,
    stop: RefCell<Arc<AtomicBool>>,
    ready: RefCell<VecDeque<TaskId>>,
    timers: RefCell<BinaryHeap<Reverse<(SimTime, u64, TaskId)>>>,
    slots: RefCell<Vec<Slot>>,
    vacant: RefCell<Vec<u32>>,
}

/// A handle to the simulation: the clock, and the means to start tasks and to wait.
///
/// ```
/// use trimwise::engine::Sim;
/// use trimwise::units::SimDuration;
///
/// let sim = Sim::new();
/// let clock = sim.clone();
/// let end = sim.run(async move {
///     clock.sleep(SimDuration::from_secs(180)).await; // takes no real time
///     clock.now()
/// })?;
/// assert_eq!(end.as_nanos(), 180_000_000_000);
/// # Ok::<(), trimwise::engine::Stalled>(())
/// ```
#[derive(Clone, Default)]
pub struct Sim(Rc<Core>);

impl Sim {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn now(&self) -> SimTime {
        self.0.now.get()
    }

    /// Limits this simulation. Beyond the limits, [`Sim::run`] returns [`Stalled`].
    pub fn set_budget(&self, budget: Budget) {
        self.0.budget.set(budget);
    }

    /// Ends the run soon after this flag is raised: [`Sim::run`] and [`Sim::advance_to`] return [`Stalled`].
    pub fn stop_at(&self, flag: Arc<AtomicBool>) {
        *self.0.stop.borrow_mut() = flag;
    }

    fn count_event(&self) {
        self.0.events.set(self.0.events.get() + 1);
    }

    fn over_budget(&self) -> Option<Standstill> {
        if let Some(why) = self.0.given_up.get() {
            return Some(why);
        }
        let (budget, events) = (self.0.budget.get(), self.0.events.get());
        if events - self.0.events_before_now.get() > budget.at_an_instant {
            Some(Standstill::Timeless)
        } else {
            (events > budget.in_all).then_some(Standstill::Endless)
        }
    }

    /// Ends the run: [`Sim::run`] and [`Sim::advance_to`] return [`Stalled`] for this reason. For a task that waits for
    /// something that only code from outside could cause. The call never returns.
    pub(crate) async fn give_up<T>(&self, why: Standstill) -> T {
        self.0.given_up.set(Some(why));
        std::future::pending().await
    }

    /// Counts an event, and ends the run if the [`Budget`] is used up. For each round of a loop that may find that it has
    /// nothing to wait for, and so would be invisible to the executor. `doing` completes "it ..." in the error.
    pub(crate) async fn consume_budget(&self, doing: &'static str) {
        self.count_event();
        match self.over_budget() {
            None => {}
            Some(Standstill::Timeless) => self.give_up(Standstill::Spinning { doing }).await,
            Some(_) => std::future::pending().await,
        }
    }

    fn pass_to(&self, at: SimTime) {
        if at > self.0.now.replace(at) {
            self.0.events_before_now.set(self.0.events.get());
        }
    }

    /// Starts a task. It first runs after everything that is ready already.
    ///
    /// If it has not ended when [`Sim::run`] returns, it is dropped.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let slot = self.0.vacant.borrow_mut().pop();
        let mut slots = self.0.slots.borrow_mut();
        let slot = slot.unwrap_or_else(|| {
            slots.push(Slot { generation: 0, future: None });
            u32::try_from(slots.len() - 1).expect("fewer than 2^32 tasks at once")
        });
        let entry = &mut slots[slot as usize];
        entry.future = Some(Box::pin(future));
        self.0.ready.borrow_mut().push_back(TaskId { slot, generation: entry.generation });
    }

    /// Runs until `main` ends and returns its result. Then drops every other task where it stands.
    ///
    /// Tasks hold handles to the simulation, which holds the tasks. If they stayed, nothing that they refer to, such as
    /// a modelled device with its maps, would ever be freed.
    ///
    /// # Errors [`Stalled`] if every task waits for another, a task gives up, the run is stopped, or the [`Budget`] is
    /// used up.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Result<T, Stalled> {
        let result = Rc::new(RefCell::new(None));
        let output = Rc::clone(&result);
        self.spawn(async move {
            let value = main.await;
            *output.borrow_mut() = Some(value);
        });
        let outcome = self.run_until(&|| result.borrow().is_some());
        self.drop_tasks();
        outcome.map(|()| result.borrow_mut().take().expect("`run_until` ends well when there is a result"))
    }

    /// Runs every task that is due until `until`, and keeps the tasks, so that the caller can look at the simulation on
    /// the way. Stopping in between does not change a run. [`Sim::stop`] ends it.
    ///
    /// # Errors
    /// [`Stalled`] if a task gives up, the run is stopped, or the [`Budget`] is used up.
    pub fn advance_to(&self, until: SimTime) -> Result<(), Stalled> {
        if until <= self.now() {
            return Ok(());
        }
        // A task that only charges time would not stop for a clock, but it does for a timer.
        let (sim, rings) = (self.clone(), Rc::new(Cell::new(false)));
        let rung = Rc::clone(&rings);
        self.spawn(async move {
            sim.sleep_until(until).await;
            rung.set(true);
        });
        self.run_until(&|| rings.get())
    }

    /// Drops every task where it stands. Must be called after [`Sim::advance_to`], or the tasks' data are never freed.
    pub fn stop(&self) {
        self.drop_tasks();
    }

    /// The loop of [`Sim::run`], compiled once rather than for every type of result.
    fn run_until(&self, is_over: &dyn Fn() -> bool) -> Result<(), Stalled> {
        let stalled = |why| Err(Stalled { at: self.now(), events: self.0.events.get(), why });
        loop {
            while let Some(id) = self.next_ready() {
                self.poll(id);
                if is_over() || self.over_budget().is_some() {
                    break;
                }
            }
            if is_over() {
                return Ok(());
            }
            if let Some(why) = self.over_budget() {
                return stalled(why);
            }
            if self.0.stop.borrow().load(Ordering::Relaxed) {
                return stalled(Standstill::Stopped);
            }
            let Some(Reverse((at, _, id))) = self.0.timers.borrow_mut().pop() else {
                return stalled(Standstill::Waiting);
            };
            self.pass_to(at);
            self.0.ready.borrow_mut().push_back(id);
        }
    }

    /// Drops every task. Slots keep their generations, so that a wake-up meant for one of them finds no task.
    fn drop_tasks(&self) {
        self.0.ready.borrow_mut().clear();
        self.0.timers.borrow_mut().clear();
        let futures: Vec<LocalFuture> = {
            let (slots, vacant) = (&mut *self.0.slots.borrow_mut(), &mut *self.0.vacant.borrow_mut());
            let live = slots.iter_mut().enumerate().filter(|(_, slot)| slot.future.is_some());
            live.filter_map(|(i, slot)| {
                slot.generation += 1;
                vacant.push(i as u32);
                slot.future.take()
            })
            .collect()
        };
        drop(futures); // outside the borrows: dropping may run code that spawns or wakes
    }

    pub fn sleep(&self, duration: SimDuration) -> Sleep<'_> {
        self.sleep_until(self.now() + duration)
    }

    /// Waits until `deadline`, which may be past.
    pub fn sleep_until(&self, deadline: SimTime) -> Sleep<'_> {
        Sleep { sim: self, deadline, armed: false }
    }

    /// Lets `duration` of the calling task's own processor time pass.
    ///
    /// Works like [`Sim::sleep`], but if no other task has anything to do before the end, the clock simply
    /// advances and the task keeps running. Millions of system calls cost no event this way.
    #[inline]
    pub(crate) fn charge(&self, duration: SimDuration) -> Sleep<'_> {
        let end = self.now() + duration;
        if self.0.ready.borrow().is_empty() {
            let undisturbed = self.0.timers.borrow().peek().is_none_or(|Reverse((at, ..))| *at > end);
            if undisturbed {
                self.pass_to(end);
            }
        }
        self.sleep_until(end)
    }

    /// Yields once: everything that is ready now runs before the caller continues.
    pub async fn yield_now(&self) {
        let mut stepped_aside = false;
        std::future::poll_fn(|_| {
            if stepped_aside {
                return Poll::Ready(());
            }
            stepped_aside = true;
            self.wake(self.running());
            Poll::Pending
        })
        .await;
    }

    fn next_ready(&self) -> Option<TaskId> {
        self.0.ready.borrow_mut().pop_front()
    }

    fn poll(&self, id: TaskId) {
        let future = {
            let mut slots = self.0.slots.borrow_mut();
            let slot = &mut slots[id.slot as usize];
            if slot.generation != id.generation {
                return; // woken after its end
            }
            slot.future.take()
        };
        // A task woken twice is running or gone the second time.
        let Some(mut future) = future else { return };
        self.count_event();
        self.0.current.set(Some(id));
        let poll = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.0.current.set(None);
        let finished = {
            let mut slots = self.0.slots.borrow_mut();
            let slot = &mut slots[id.slot as usize];
            match poll {
                Poll::Pending => {
                    slot.future = Some(future);
                    None
                }
                Poll::Ready(()) => {
                    slot.generation += 1;
                    Some(future)
                }
            }
        };
        if finished.is_some() {
            self.0.vacant.borrow_mut().push(id.slot);
            drop(finished); // outside the borrow: dropping may run code that spawns or wakes
        }
    }

    fn running(&self) -> TaskId {
        self.0.current.get().expect("futures of this engine are polled only by its tasks")
    }

    fn wake(&self, id: TaskId) {
        self.0.ready.borrow_mut().push_back(id);
    }

    fn set_timer(&self, at: SimTime) {
        let sequence = self.0.sequence.get();
        self.0.sequence.set(sequence + 1);
        self.0.timers.borrow_mut().push(Reverse((at, sequence, self.running())));
    }
}

#[must_use = "time passes only when it is awaited"]
pub struct Sleep<'a> {
    sim: &'a Sim,
    deadline: SimTime,
    armed: bool,
}

impl Future for Sleep<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.sim.now() >= self.deadline {
            // Count it, or a task that never yields would hide from the executor that it runs for ever.
            self.sim.count_event();
            return if self.sim.over_budget().is_some() { Poll::Pending } else { Poll::Ready(()) };
        }
        if !self.armed {
            self.armed = true;
            self.sim.set_timer(self.deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Rc<RefCell<Vec<(u64, &'static str)>>> {
        Rc::default()
    }

    #[test]
    fn tasks_that_wake_at_the_same_instant_run_first_in_first_out() {
        let sim = Sim::new();
        let log = log();
        for name in ["a", "b", "c"] {
            let (sim2, log) = (sim.clone(), Rc::clone(&log));
            sim.spawn(async move {
                sim2.sleep(SimDuration::from_nanos(10)).await;
                log.borrow_mut().push((sim2.now().as_nanos(), name));
            });
        }
        let sim2 = sim.clone();
        sim.run(async move { sim2.sleep(SimDuration::from_nanos(10)).await }).unwrap();
        assert_eq!(*log.borrow(), [(10, "a"), (10, "b"), (10, "c")]);
    }

    #[test]
    fn charged_time_never_overtakes_another_task() {
        let sim = Sim::new();
        let log = log();
        let (sim2, log2) = (sim.clone(), Rc::clone(&log));
        sim.spawn(async move {
            sim2.sleep(SimDuration::from_nanos(25)).await;
            log2.borrow_mut().push((sim2.now().as_nanos(), "timer"));
        });
        let (sim2, log2) = (sim.clone(), Rc::clone(&log));
        sim.run(async move {
            sim2.yield_now().await;
            for _ in 0..3 {
                sim2.charge(SimDuration::from_nanos(10)).await;
                log2.borrow_mut().push((sim2.now().as_nanos(), "charge"));
            }
        })
        .unwrap();
        assert_eq!(*log.borrow(), [(10, "charge"), (20, "charge"), (25, "timer"), (30, "charge")]);
    }

    #[test]
    fn where_a_run_is_cut_changes_nothing() {
        let course = |steps: &[u64]| {
            let (sim, log) = (Sim::new(), log());
            for (name, ns) in [("charges", 7), ("sleeps", 5)] {
                let (sim2, log) = (sim.clone(), Rc::clone(&log));
                sim.spawn(async move {
                    loop {
                        let duration = SimDuration::from_nanos(ns);
                        if name == "sleeps" {
                            sim2.sleep(duration).await
                        } else {
                            sim2.charge(duration).await
                        }
                        log.borrow_mut().push((sim2.now().as_nanos(), name));
                    }
                });
            }
            for &at in steps {
                sim.advance_to(SimTime(at)).unwrap();
                assert_eq!(sim.now(), SimTime(at));
            }
            sim.stop();
            log.borrow().iter().copied().filter(|(at, _)| *at < 1_000).collect::<Vec<_>>()
        };
        let whole = course(&[1_001]);
        assert!(whole.len() > 300, "{}", whole.len());
        assert_eq!(course(&[3, 4, 70, 71, 500, 1_001]), whole);
        assert_eq!(course(&(1..=1_001).collect::<Vec<_>>()), whole);
    }

    #[test]
    fn a_simulation_in_which_every_task_waits_is_an_error() {
        let sim = Sim::new();
        let event = Event::new(&sim);
        let stalled = sim.run(async move { event.wait().await }).unwrap_err();
        assert_eq!((stalled.at, stalled.why), (SimTime::ZERO, Standstill::Waiting));
    }

    /// The task yields, waits for a past instant, or waits for an event until one.
    #[test]
    fn a_simulation_in_which_no_time_passes_is_an_error() {
        for kind in 0..3 {
            let sim = Sim::new();
            sim.set_budget(Budget { at_an_instant: 1_000, ..Budget::default() });
            let (sim2, event) = (sim.clone(), Event::new(&sim));
            let endless = async move {
                sim2.sleep(SimDuration::from_nanos(7)).await;
                loop {
                    match kind {
                        0 => sim2.yield_now().await,
                        1 => sim2.charge(SimDuration::ZERO).await,
                        _ => drop(event.wait_until(SimTime(3)).await),
                    }
                }
            };
            let stalled = sim.run::<()>(endless).unwrap_err();
            assert_eq!((stalled.at, stalled.why), (SimTime(7), Standstill::Timeless), "{stalled}");
        }
    }

    /// No future of the task is ever pending, so the executor would never see it again.
    #[test]
    fn a_task_that_never_has_to_wait_is_an_error() {
        async fn ready(sim: &Sim) {
            sim.consume_budget("finds that there is nothing to wait for").await;
        }
        let sim = Sim::new();
        sim.set_budget(Budget { at_an_instant: 1_000, ..Budget::default() });
        let sim2 = sim.clone();
        let endless = async move {
            sim2.sleep(SimDuration::from_nanos(7)).await;
            loop {
                ready(&sim2).await;
            }
        };
        let stalled = sim.run::<()>(endless).unwrap_err();
        let doing = "finds that there is nothing to wait for";
        assert_eq!((stalled.at, stalled.why), (SimTime(7), Standstill::Spinning { doing }));
        let text = stalled.to_string();
        assert!(
            text.ends_with("it finds that there is nothing to wait for, again and again, and no time passes"),
            "{text}"
        );
    }

    #[test]
    fn passing_time_renews_the_budget_of_an_instant_but_not_of_the_run() {
        let sim = Sim::new();
        let (sim2, budget) = (sim.clone(), Budget { at_an_instant: 100, in_all: 10_000 });
        sim.set_budget(budget);
        let endless = async move {
            loop {
                sim2.charge(SimDuration::from_nanos(1)).await;
            }
        };
        let stalled = sim.run::<()>(endless).unwrap_err();
        assert_eq!((stalled.why, stalled.events), (Standstill::Endless, budget.in_all + 1));
        let text = format!("{stalled}");
        assert!(text.contains(&format!("at {}, after 10001 events", stalled.at.named())), "{text}");
    }

    #[test]
    fn regression_tasks_that_never_end_are_dropped_with_everything_they_hold() {
        let sim = Sim::new();
        let device = Rc::new(());
        let (sim2, held) = (sim.clone(), Rc::clone(&device));
        sim.spawn(async move {
            loop {
                sim2.sleep(SimDuration::from_nanos(1)).await;
                let _ = &held;
            }
        });
        let sim2 = sim.clone();
        sim.run(async move { sim2.sleep(SimDuration::from_nanos(5)).await }).unwrap();
        assert_eq!(Rc::strong_count(&device), 1);
    }

    #[test]
    fn an_event_wakes_its_waiters_in_order_or_in_reverse() {
        let notifies: [fn(&Event); 2] = [Event::notify_all, Event::notify_all_last_first];
        for (notify, order) in notifies.into_iter().zip([["first", "second"], ["second", "first"]]) {
            let sim = Sim::new();
            let log = log();
            let event = Event::new(&sim);
            for name in ["first", "second"] {
                let (sim2, event, log) = (sim.clone(), event.clone(), Rc::clone(&log));
                sim.spawn(async move {
                    event.wait().await;
                    log.borrow_mut().push((sim2.now().as_nanos(), name));
                });
            }
            let (sim2, event2) = (sim.clone(), event.clone());
            sim.run(async move {
                sim2.sleep(SimDuration::from_nanos(5)).await;
                notify(&event2);
                sim2.yield_now().await;
            })
            .unwrap();
            assert_eq!(*log.borrow(), order.map(|name| (5, name)));
        }
    }

    #[test]
    fn a_wait_ends_at_its_timeout() {
        let sim = Sim::new();
        let event = Event::new(&sim);
        let sim2 = sim.clone();
        let notified = sim
            .run(async move {
                let notified = event.wait_until(SimTime(7)).await;
                (notified, sim2.now())
            })
            .unwrap();
        assert_eq!(notified, (false, SimTime(7)));
    }
}
