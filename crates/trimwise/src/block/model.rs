//! The block trait over the modelled device.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::check;
use super::{BlockDevice, BlockError, BlockQueue, Command, Completion, DeviceFacts, Operation, TrimFacts};
use crate::content::{Content, Stored};
use crate::engine::Event;
use crate::ssd::SsdStats;
use crate::units::{Bytes, Lpn, SimDuration, SimTime};

pub struct ModelDevice {
    queue: BlockQueue,
    facts: DeviceFacts,
    completed: Rc<RefCell<VecDeque<Completion>>>,
    in_flight: Cell<usize>,
    some: Event,
    interrupted: Arc<AtomicBool>,
}

impl ModelDevice {
    pub fn new(queue: BlockQueue, name: impl Into<String>) -> Self {
        let facts = queue.with_ssd(|ssd| {
            let trim = &ssd.config().trim;
            DeviceFacts {
                name: name.into(),
                size_units: ssd.capacity_units(),
                sector_bytes: crate::units::SECTOR_BYTES,
                trim: trim.is_supported().then(|| TrimFacts {
                    granularity: Bytes::from_units(trim.granularity_units.into()),
                    max: Bytes::from_units(u64::from(trim.max_units_per_range)),
                    promises_zeros: queue.drive().promises_zeros(),
                }),
                is_model: true,
            }
        });
        let some = Event::new(queue.sim());
        let interrupted = Arc::default();
        Self { queue, facts, completed: Rc::default(), in_flight: Cell::new(0), some, interrupted }
    }

    /// Makes operations fail with [`BlockError::Interrupted`] once `interrupted` is set.
    #[must_use]
    pub fn interrupted_by(mut self, interrupted: &Arc<AtomicBool>) -> Self {
        self.interrupted = Arc::clone(interrupted);
        self
    }

    pub fn queue(&self) -> &BlockQueue {
        &self.queue
    }

    /// Returns the drive's counters, with the work that it did until now while it was idle.
    pub fn stats(&self) -> SsdStats {
        let now = self.now();
        self.queue.with_ssd_mut(|ssd| {
            ssd.catch_up(now);
            *ssd.stats()
        })
    }
}

impl BlockDevice for ModelDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn now(&self) -> SimTime {
        self.queue.sim().now()
    }

    async fn sleep(&self, span: SimDuration) {
        self.queue.sim().sleep(span).await;
    }

    fn submit(&self, operation: Operation, token: u64) -> Result<(), BlockError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(BlockError::Interrupted);
        }
        check(&operation, self.facts.size_units)?;
        let commands: Vec<Command> = match operation {
            Operation::Flush => vec![Command::Flush],
            Operation::Trim(_) if self.facts.trim.is_none() => {
                return Err(BlockError::Unsupported(format!("{} does not support TRIM", self.facts.name)));
            }
            Operation::Trim(ranges) => self.queue.trim_commands(&ranges),
            Operation::Read(sectors) if sectors.is_whole() => {
                self.queue.split(sectors.units()).map(Command::Read).collect()
            }
            Operation::Write(sectors, content) if sectors.is_whole() => {
                self.queue.split(sectors.units()).map(|range| Command::Write(range, content)).collect()
            }
            Operation::Read(sectors) => vec![Command::ReadPart(sectors)],
            Operation::Write(sectors, content) => vec![Command::WritePart(sectors, content)],
        };
        let (completed, some, submitted) = (Rc::clone(&self.completed), self.some.clone(), self.now());
        let sim = self.queue.sim().clone();
        self.in_flight.set(self.in_flight.get() + 1);
        self.queue.submit(commands, move |_| {
            completed.borrow_mut().push_back(Completion { token, submitted, completed: sim.now() });
            some.notify_all();
        });
        Ok(())
    }

    async fn completion(&self) -> Result<Completion, BlockError> {
        if self.in_flight.get() == 0 {
            return Err(BlockError::Other("no operation is in flight".to_string()));
        }
        loop {
            let next = self.completed.borrow_mut().pop_front();
            if let Some(completion) = next {
                self.in_flight.set(self.in_flight.get() - 1);
                return Ok(completion);
            }
            self.some.wait().await;
        }
    }

    async fn stored(&self, lpn: Lpn) -> Result<Stored, BlockError> {
        check(&Operation::read(crate::units::UnitRange::new(lpn, 1)), self.facts.size_units)?;
        Ok(self
            .queue
            .with_ssd(|ssd| ssd.tag(lpn))
            .map_or(Stored::Zeros, |tag| Content::of_tag(tag).stored(lpn)))
    }

    async fn erase(&self) -> Result<(), BlockError> {
        let done = self.queue.secure_erase();
        self.queue.sim().sleep_until(done).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::QueueConfig;
    use crate::content::ContentClass;
    use crate::engine::Sim;
    use crate::ssd::{Ssd, SsdConfig};
    use crate::units::{Lba, SectorRange, UnitRange};

    /// Runs a test on a small device.
    fn on_a_device<T: 'static>(test: impl AsyncFnOnce(ModelDevice) -> T + 'static) -> T {
        let sim = Sim::new();
        let config = SsdConfig { capacity_bytes: 1 << 30, track_tags: true, ..SsdConfig::default() };
        let queue = BlockQueue::new(&sim, Ssd::new(&config, 1).unwrap(), QueueConfig::default());
        sim.run(test(ModelDevice::new(queue, "test"))).unwrap()
    }

    fn units(start: u64, count: u64) -> UnitRange {
        UnitRange::new(Lpn(start), count)
    }

    #[test]
    fn completions_come_once_each_and_carry_their_latency() {
        let latencies = on_a_device(async |device| {
            for token in 0..40 {
                device.submit(Operation::write(units(token * 8, 1), Content::default()), token).unwrap();
            }
            let mut seen = Vec::new();
            for _ in 0..40 {
                let completion = device.completion().await.unwrap();
                assert!(completion.completed > completion.submitted);
                seen.push(completion.token);
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..40).collect::<Vec<_>>());
            device.completion().await
        });
        assert!(matches!(latencies, Err(BlockError::Other(_))), "nothing is left: {latencies:?}");
    }

    #[test]
    fn written_units_are_stored_until_they_are_trimmed() {
        on_a_device(async |device| {
            let content = Content::new(ContentClass::Compressible, 7);
            device.perform(Operation::write(units(10, 4), content)).await.unwrap();
            assert_eq!(device.stored(Lpn(12)).await, Ok(Stored::Content(content)));
            device.perform(Operation::Trim(vec![units(12, 1)])).await.unwrap();
            assert_eq!(device.stored(Lpn(12)).await, Ok(Stored::Zeros));
            assert_eq!(device.stored(Lpn(13)).await, Ok(Stored::Content(content)));
            device.erase().await.unwrap();
            assert_eq!(device.stored(Lpn(13)).await, Ok(Stored::Zeros));
        });
    }

    #[test]
    fn anything_but_whole_units_or_a_part_of_one_is_refused() {
        on_a_device(async |device| {
            let size_units = device.size_units();
            let read =
                |first, sectors| device.submit(Operation::Read(SectorRange::new(Lba(first), sectors)), 0);
            assert_eq!(read(4, 8), Err(BlockError::Unaligned(SectorRange::new(Lba(4), 8))));
            let range = units(size_units, 1);
            assert_eq!(read(size_units * 8, 1), Err(BlockError::OutOfRange { range, size_units }));
            assert_eq!(read(3, 2), Ok(()));
            device.completion().await.unwrap();
        });
    }

    #[test]
    fn consecutive_parts_of_a_unit_become_one_flash_write() {
        on_a_device(async |device| {
            for sector in 0..16 {
                let part = SectorRange::new(Lba(sector), 1);
                device.perform(Operation::Write(part, Content::default())).await.unwrap();
            }
            let stats = device.queue().with_ssd(|ssd| *ssd.stats());
            assert_eq!((stats.write_commands, stats.host_units_written), (16, 2));
            device.perform(Operation::Flush).await.unwrap();
            // The unit is in the flash now, so it must be read first and written again.
            device.sleep(SimDuration::from_secs(1)).await;
            let part = Operation::Write(SectorRange::new(Lba(2), 1), Content::default());
            device.perform(part).await.unwrap();
            let after = device.queue().with_ssd(|ssd| *ssd.stats());
            assert_eq!((after.host_units_written, after.busy_ns.read > stats.busy_ns.read), (3, true));
        });
    }

    #[test]
    fn each_operation_becomes_the_commands_for_its_sectors() {
        let sim = Sim::new();
        let config = SsdConfig { capacity_bytes: 1 << 30, ..SsdConfig::default() };
        let queue = BlockQueue::new(&sim, Ssd::new(&config, 1).unwrap(), QueueConfig::default());
        let seen: Rc<RefCell<Vec<Command>>> = Rc::default();
        let to = Rc::clone(&seen);
        queue.trace(Some(Box::new(move |_, stage, command| {
            if stage == crate::block::Stage::Dispatched {
                to.borrow_mut().push(command.clone());
            }
        })));
        let device = ModelDevice::new(queue, "test");
        sim.run(async move {
            let (part, whole) = (SectorRange::new(Lba(3), 2), SectorRange::new(Lba(8), 16));
            let content = Content::new(ContentClass::Compressible, 7);
            for (operation, expected) in [
                (Operation::Read(part), Command::ReadPart(part)),
                (Operation::Read(whole), Command::Read(units(1, 2))),
                (Operation::Write(part, content), Command::WritePart(part, content)),
                (Operation::Write(whole, content), Command::Write(units(1, 2), content)),
                (Operation::Trim(vec![units(1, 2)]), Command::Trim(vec![units(1, 2)])),
                (Operation::Flush, Command::Flush),
            ] {
                let began = device.now();
                let took = device.perform(operation).await.unwrap();
                assert_eq!(seen.borrow_mut().split_off(0), [expected]);
                assert_eq!(began + took, device.now());
                assert!(took > SimDuration::ZERO);
            }
            let began = device.now();
            device.sleep(SimDuration::from_millis(3)).await;
            assert_eq!(device.now().since(began), SimDuration::from_millis(3));
        })
        .unwrap();
    }

    #[test]
    fn a_drive_without_trim_refuses_it_by_name() {
        let trim = crate::ssd::TrimConfig::unsupported();
        let config = SsdConfig { capacity_bytes: 1 << 30, trim, ..SsdConfig::default() };
        let queue = BlockQueue::new(&Sim::new(), Ssd::new(&config, 1).unwrap(), QueueConfig::default());
        let refused = ModelDevice::new(queue, "sda").submit(Operation::Trim(vec![units(0, 1)]), 0);
        assert_eq!(refused, Err(BlockError::Unsupported("sda does not support TRIM".to_owned())));
    }
}
