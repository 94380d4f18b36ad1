//! The block layer: which commands go first, and which alone.

use std::rc::Rc;

use crate::fs_common::{Trace, dispatched, drive, on_queue, trace};
use trimwise::block::{BlockQueue, Command, Load, QueueConfig, Stage, WriteThrottleConfig};
use trimwise::ssd::LinkKind;
use trimwise::units::{Lpn, SimDuration, SimTime, UnitRange};

fn at(n: u64) -> UnitRange {
    UnitRange::new(Lpn(n * 1_000), 16)
}

fn background(queue: &BlockQueue, count: u64) {
    for n in 0..count {
        queue.submit_background_write(at(n), || ());
    }
}

async fn settle(queue: &BlockQueue) {
    queue.sim().clone().sleep(SimDuration::from_secs(60)).await;
}

/// For each dispatch: when, what, and how many commands were in the device before.
fn in_device(trace: &Trace) -> Vec<(SimTime, Command, usize)> {
    let (mut inside, mut given) = (0, Vec::new());
    for (now, stage, command) in trace.borrow().iter() {
        match stage {
            Stage::Dispatched => {
                given.push((*now, command.clone(), inside));
                inside += 1;
            }
            Stage::Completed => inside -= 1,
        }
    }
    given
}

/// Four background writes may be in the device; the read that comes then is the fifth command.
#[test]
fn reads_overtake_background_writes() {
    on_queue(drive(LinkKind::Sata, 1), QueueConfig::default(), |queue| async move {
        let seen = trace(&queue);
        background(&queue, 20);
        queue.read(at(30)).await;
        settle(&queue).await;
        assert_eq!(&dispatched(&seen)[..6], "WWWWRW");
        assert_eq!(dispatched(&seen).len(), 21);
    });
}

/// One command at a time, and after four reads in a row a write goes first.
#[test]
fn background_writes_do_not_starve() {
    let mut drive = drive(LinkKind::Sata, 1);
    drive.link.queue_depth = 1;
    let config = QueueConfig { starvation_limit: 4, ..QueueConfig::default() };
    on_queue(drive, config, |queue| async move {
        let seen = trace(&queue);
        queue.submit_read(at(30), || ());
        background(&queue, 6);
        for n in 31..43 {
            queue.submit_read(at(n), || ());
        }
        settle(&queue).await;
        assert_eq!(dispatched(&seen), "RRRRWRRRRWRRRRWRWWW");
    });
}

/// A TRIM or flush that cannot be queued waits until the device is empty and keeps everything out; one that can does
/// not.
#[test]
fn a_trim_or_flush_drains_the_queue_only_if_it_is_not_queued() {
    let cases = [LinkKind::Sata, LinkKind::Nvme].map(|kind| [(kind, true), (kind, false)]);
    for (kind, is_trim) in cases.into_iter().flatten() {
        let mut drive = drive(kind, 50);
        drive.cache.flush_ns = 50_000_000;
        on_queue(drive, QueueConfig::default(), move |queue| async move {
            let seen = trace(&queue);
            background(&queue, 4);
            let other = queue.clone();
            queue
                .sim()
                .spawn(async move { if is_trim { other.trim(&[at(9)]).await } else { other.flush().await } });
            queue.sim().yield_now().await;
            for n in 30..34 {
                queue.submit_read(at(n), || ());
            }
            settle(&queue).await;
            let given = in_device(&seen);
            let alone =
                given.iter().position(|(_, c, _)| matches!(c, Command::Trim(_) | Command::Flush)).unwrap();
            let (began, _, inside) = &given[alone];
            let (next, _, inside_next) = &given[alone + 1];
            if kind == LinkKind::Sata {
                assert_eq!((*inside, *inside_next), (0, 0));
                assert!(next.since(*began) >= SimDuration::from_millis(50));
            } else {
                assert_eq!((*inside, *inside_next), (4, 5));
                assert_eq!(next, began);
            }
        });
    }
}

/// CFQ's care for latency: one background request at a time, one more for each 100 ms without foreground ones.
#[test]
fn background_writes_ramp_up_while_nobody_waits() {
    let config = QueueConfig {
        background_depth: 3,
        background_ramp: Some(SimDuration::from_millis(100)),
        ..QueueConfig::default()
    };
    let mut drive = drive(LinkKind::Sata, 1);
    drive.link.bytes_per_s = 4_000_000; // 16 ms for each request
    on_queue(drive, config, |queue| async move {
        let seen = trace(&queue);
        background(&queue, 60);
        queue.sim().clone().sleep(SimDuration::from_millis(600)).await;
        let before = in_device(&seen);
        for (now, _, inside) in &before {
            let allowed = (now.as_nanos() / 100_000_000).clamp(1, 3) as usize;
            assert!(*inside < allowed, "{inside} others at {now:?}");
        }
        assert_eq!(before.iter().map(|(_, _, inside)| *inside).max(), Some(2));
        // A read, and it begins again with one.
        queue.read(at(90)).await;
        let now = queue.sim().now();
        queue.sim().clone().sleep(SimDuration::from_millis(90)).await;
        let after: Vec<_> = in_device(&seen).into_iter().filter(|(at, ..)| *at > now).collect();
        assert!(!after.is_empty() && after.iter().all(|(_, _, inside)| *inside == 0), "{after:?}");
    });
}

/// A write that continues the one queued last is part of it, up to the largest request.
#[test]
fn background_writes_merge() {
    on_queue(drive(LinkKind::Sata, 1), QueueConfig::default(), |queue| async move {
        let seen = trace(&queue);
        background(&queue, 4); // these go at once
        let done = Rc::new(std::cell::Cell::new(0));
        for n in 0..20 {
            let done = Rc::clone(&done);
            queue.submit_background_write(UnitRange::new(Lpn(50_000 + n * 16), 16), move || {
                done.set(done.get() + 1);
            });
        }
        settle(&queue).await;
        // 320 units in requests of at most 512 KiB, which are 128 units.
        let sizes: Vec<u64> = in_device(&seen)
            .iter()
            .filter_map(|(_, command, _)| match command {
                Command::Write(range, _) if range.start.0 >= 50_000 => Some(range.units),
                _ => None,
            })
            .collect();
        assert_eq!(sizes, [128, 128, 64]);
        assert_eq!(done.get(), 20);
    });
}

#[test]
fn trims_are_no_load_and_the_quiet_begins_when_the_last_other_request_ends() {
    on_queue(drive(LinkKind::Sata, 100), QueueConfig::default(), |queue| async move {
        let sim = queue.sim().clone();
        let unit = UnitRange::new(Lpn(1), 1);
        sim.sleep(SimDuration::from_millis(50)).await;
        queue.submit([Command::Trim(vec![unit])], |_| ());
        assert_eq!(queue.load(), Load { requests: 0, quiet: SimDuration::from_millis(50), done: 0 });
        // It waits until the TRIM has ended.
        queue.submit([Command::Read(unit)], |_| ());
        assert_eq!(queue.load(), Load { requests: 1, quiet: SimDuration::ZERO, done: 0 });
        queue.read(unit).await;
        queue.submit([Command::Trim(vec![unit])], |_| ());
        sim.sleep(SimDuration::from_millis(30)).await;
        assert_eq!(queue.load(), Load { requests: 0, quiet: SimDuration::from_millis(30), done: 2 });
    });
}

/// Ten TRIMs come at once: four are in the queue, the others wait before it, so that a read is the fifth command.
#[test]
fn the_write_throttle_holds_trims_back_and_lets_all_of_them_go() {
    let read_latency_max = SimDuration::from_millis(2);
    let write_throttle = Some(WriteThrottleConfig { read_latency_max, queue_depth: 256 });
    let config = QueueConfig { write_throttle, ..QueueConfig::default() };
    on_queue(drive(LinkKind::Nvme, 1), config, |queue| async move {
        let seen = trace(&queue);
        let trims = (0..10).map(|n| Command::Trim(vec![at(n)]));
        queue.submit(trims, |_| ());
        queue.read(at(30)).await;
        settle(&queue).await;
        assert_eq!(&dispatched(&seen)[..5], "TTTTR");
        assert_eq!(dispatched(&seen).matches('T').count(), 10);
        assert!(in_device(&seen).iter().all(|(_, _, inside)| *inside <= 4));
    });
}
