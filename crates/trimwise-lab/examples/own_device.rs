//! A device of your own under the device tests: here one whose operations follow a formula, in its own virtual time.
//!
//! `cargo run --release -p trimwise-lab --example own_device`

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;

use trimwise::block::{BlockDevice, BlockError, Completion, DeviceFacts, Operation};
use trimwise::engine::Sim;
use trimwise::units::{Bytes, SimDuration, SimTime};
use trimwise_lab::bench::{Hooks, Settings, Test, run};

/// A disk that does one operation after another, at 100 MB/s and 20 us each.
struct Disk {
    facts: DeviceFacts,
    now: Cell<SimTime>,
    free_at: Cell<SimTime>,
    done: RefCell<VecDeque<Completion>>,
}

impl BlockDevice for Disk {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }
    fn now(&self) -> SimTime {
        self.now.get()
    }
    async fn sleep(&self, span: SimDuration) {
        self.now.set(self.now() + span);
    }
    fn submit(&self, operation: Operation, token: u64) -> Result<(), BlockError> {
        let bytes = match operation {
            Operation::Read(sectors) | Operation::Write(sectors, _) => sectors.bytes().0,
            Operation::Trim(_) | Operation::Flush => 0,
        };
        let completed = self.now().max(self.free_at.get()) + SimDuration::from_nanos(20_000 + bytes * 10);
        self.free_at.set(completed);
        self.done.borrow_mut().push_back(Completion { token, submitted: self.now(), completed });
        Ok(())
    }
    async fn completion(&self) -> Result<Completion, BlockError> {
        let next = self.done.borrow_mut().pop_front();
        let completion = next.ok_or(BlockError::Other("nothing is in flight".to_owned()))?;
        self.now.set(self.now().max(completion.completed));
        Ok(completion)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (name, size_units) = ("disk".to_owned(), Bytes::gib(1).units_floor());
    let facts = DeviceFacts { name, size_units, sector_bytes: 512, trim: None, is_model: true };
    let disk = Disk { facts, now: Cell::default(), free_at: Cell::default(), done: RefCell::default() };
    let tests: [Test; 2] = ["fill:10".parse()?, "randread:4:1".parse()?];
    let tested = async move { run(&disk, &tests, &Settings::default(), Hooks::default()).await };
    for test in Sim::new().run(tested)??.tests {
        println!("{}: {} ms, {:?}", test.test, test.elapsed_ns / 1_000_000, test.measured);
    }
    Ok(())
}
