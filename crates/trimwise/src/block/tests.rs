//! What a host counts of its queue, and in which order requests reach the drive.

use super::*;
use crate::ssd::{LinkKind, SsdConfig, TrimKind};

fn range(start: u64, units: u64) -> UnitRange {
    UnitRange::new(Lpn(start), units)
}

fn ms(ms: u64) -> SimDuration {
    SimDuration::from_millis(ms)
}

fn on_queue<F: Future<Output = ()> + 'static>(
    link: LinkKind,
    config: QueueConfig,
    test: impl FnOnce(BlockQueue, Sim) -> F,
) {
    let mut drive = SsdConfig { capacity_bytes: Bytes::mib(512).0, ..SsdConfig::default() };
    drive.link.kind = link;
    drive.trim.kind = if link == LinkKind::Nvme { TrimKind::Nvme } else { TrimKind::AtaNonQueued };
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(&drive, 1).unwrap(), config);
    sim.run(test(queue, sim.clone())).unwrap();
}

/// Instants at which requests end, in turn.
type Ends = Rc<RefCell<Vec<SimTime>>>;

fn note(ends: &Ends, sim: &Sim) -> impl FnOnce() + 'static {
    let (ends, sim) = (Rc::clone(ends), sim.clone());
    move || ends.borrow_mut().push(sim.now())
}

#[test]
fn times_are_counted_while_there_are_requests_and_while_somebody_waits() {
    on_queue(LinkKind::Nvme, QueueConfig::default(), |queue, sim| async move {
        queue.write(range(0, 128)).await;
        sim.sleep(ms(5)).await;
        assert_eq!(queue.load(), Load { requests: 0, quiet: ms(5), done: 1 });
        let before = queue.counts();
        let begin = sim.now();
        let ends = Ends::default();
        // A read, and after a while another one that overlaps it or not.
        queue.submit_read(range(0, 64), note(&ends, &sim));
        assert_eq!(queue.load(), Load { requests: 1, quiet: SimDuration::ZERO, done: 1 });
        assert_eq!(queue.counts().in_device, 1);
        sim.sleep(SimDuration::from_micros(1)).await;
        let half_way = queue.counts();
        let micro = SimDuration::from_micros(1);
        assert_eq!(
            (half_way.waited - before.waited, half_way.served.busy - before.served.busy),
            (micro, micro)
        );
        queue.submit_read(range(64, 64), note(&ends, &sim));
        assert_eq!(queue.load().requests, 2);
        sim.sleep(ms(20)).await;
        let [first, second] = ends.borrow()[..] else { panic!("{ends:?}") };
        let (counts, served) = (queue.counts(), queue.counts().served.since(&before.served));
        let all = second.since(begin);
        assert_eq!((counts.waited - before.waited, served.busy), (all, all), "both at once count once");
        assert_eq!(served.time, first.since(begin) + second.since(begin + micro), "each by itself");
        assert_eq!((served.requests, served.bytes, counts.in_device), (2, Bytes::kib(512), 0));
        assert_eq!(queue.load(), Load { requests: 0, quiet: sim.now().since(second), done: 3 });

        // Nobody waits for write-back, a TRIM is no load, and both are in the device.
        let before = queue.counts();
        let begin = sim.now();
        ends.borrow_mut().clear();
        queue.submit_background_write(range(200, 32), note(&ends, &sim));
        sim.sleep(ms(20)).await;
        let served = queue.counts().served.since(&before.served);
        assert_eq!(queue.counts().waited, before.waited);
        assert_eq!((served.requests, served.busy), (1, ends.borrow()[0].since(begin)));
        let (before, load) = (queue.counts(), queue.load());
        let on_end = note(&ends, &sim);
        queue.submit([Command::Trim(vec![range(0, 8)])], |_| on_end());
        assert_eq!((queue.counts().in_device, queue.load()), (1, load));
        sim.sleep(ms(20)).await;
        assert_eq!((ends.borrow().len(), queue.counts()), (2, before));
        assert_eq!(queue.load(), Load { quiet: load.quiet + ms(20), ..load });
    });
}

/// As requests were submitted, before they merged.
#[test]
fn requests_that_are_done_are_counted_as_a_file_system_submits_them() {
    on_queue(LinkKind::Nvme, QueueConfig::default(), |queue, _| async move {
        let mut done = 0;
        let mut counts = |case: &str, more: u64| {
            done += more;
            assert_eq!(queue.load().done, done, "{case}");
        };
        queue.write(range(0, 300)).await;
        counts("300 units in pieces of 128", 3);
        queue.write_by_block(range(0, 300)).await;
        counts("a journal's blocks", 300);
        queue.flush().await;
        counts("a flush", 1);
        queue.flush_behind().await;
        counts("a flush that is part of a write", 0);
        queue.flush_ahead().await;
        counts("a flush ahead, without a target", 1);
        queue.trim(&[range(0, 8)]).await;
        counts("a TRIM", 0);
        queue.read(range(0, 1)).await;
        counts("a read", 1);
    });
}

/// What reaches the drive, as first unit and units of each write.
fn dispatched(queue: &BlockQueue) -> Rc<RefCell<Vec<(u64, u64)>>> {
    let seen: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
    let to = Rc::clone(&seen);
    queue.trace(Some(Box::new(move |_, stage, command| {
        if let (Stage::Dispatched, Command::Write(range, _) | Command::Read(range)) = (stage, command) {
            to.borrow_mut().push((range.start.0, range.units));
        }
    })));
    seen
}

#[test]
fn a_write_in_the_background_grows_while_it_waits_up_to_the_largest_request() {
    for (merges_waiting, next, expected) in [
        (true, range(110, 10), vec![(100, 20)]),
        (true, range(110, 118), vec![(100, 128)]),
        (true, range(110, 119), vec![(100, 10), (110, 119)]),
        (true, range(111, 10), vec![(100, 10), (111, 10)]),
        (true, range(90, 10), vec![(100, 10), (90, 10)]),
        (false, range(110, 10), vec![(100, 10), (110, 10)]),
    ] {
        let config = QueueConfig { merges_waiting, background_depth: 1, ..QueueConfig::default() };
        on_queue(LinkKind::Nvme, config, move |queue, sim| async move {
            let seen = dispatched(&queue);
            let ends = Ends::default();
            for one in [range(0, 1), range(100, 10), next] {
                queue.submit_background_write(one, note(&ends, &sim));
            }
            sim.sleep(ms(100)).await;
            assert_eq!(seen.borrow()[1..], expected, "{next:?}, merges: {merges_waiting}");
            assert_eq!((ends.borrow().len(), queue.load().done), (3, 3), "each is told");
        });
    }
}

#[test]
fn a_few_background_requests_are_in_the_drive_and_foreground_goes_first() {
    for (depth, starvation_limit, expected) in [
        (1, 16, vec![100, 0, 1, 2, 200, 300]),
        (2, 16, vec![100, 200, 0, 1, 2, 300]),
        (3, 16, vec![100, 200, 300, 0, 1, 2]),
    ] {
        let config = QueueConfig { background_depth: depth, starvation_limit, ..QueueConfig::default() };
        on_queue(LinkKind::Nvme, config, move |queue, sim| async move {
            let seen = dispatched(&queue);
            for start in [100, 200, 300] {
                queue.submit_background_write(range(start, 1), || ());
            }
            for start in 0..3 {
                queue.submit_read(range(start, 1), || ());
            }
            sim.sleep(ms(100)).await;
            let starts: Vec<u64> = seen.borrow().iter().map(|(start, _)| *start).collect();
            assert_eq!(starts, expected, "{depth} in the background");
        });
    }
}

#[test]
fn background_depth_ramps_up_with_the_time_since_foreground() {
    let ramp = QueueConfig { background_depth: 4, background_ramp: Some(ms(100)), ..QueueConfig::default() };
    let flat = QueueConfig { background_ramp: None, ..ramp };
    for (config, quiet_ms, depth) in
        [(ramp, 0, 1), (ramp, 199, 1), (ramp, 200, 2), (ramp, 399, 3), (ramp, 1_000, 4), (flat, 0, 4)]
    {
        on_queue(LinkKind::Sata, config, move |queue, _| async move {
            assert_eq!(queue.background_depth(ms(quiet_ms)), depth, "after {quiet_ms} ms");
        });
    }
}
