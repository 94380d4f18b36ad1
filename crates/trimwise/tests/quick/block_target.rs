//! Policies below a file system, as `kernel/dm-trim` hosts them.

use std::cell::Cell;
use std::rc::Rc;

use crate::fs_common::{Trace, drive, format, fsync, host, on_queue, sleep_ms, trace, write};
use proptest::prelude::*;
use trimwise::block::{BlockQueue, Command, QueueConfig, Stage};
use trimwise::files::Files;
use trimwise::fs::host::DiscardGeneration;
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::{Policy, PolicySpec, Trimmer};
use trimwise::ssd::{LinkKind, SsdConfig};
use trimwise::units::{Lpn, SimDuration, UnitRange};

const KERNEL: DiscardGeneration = DiscardGeneration::Worker;

fn range(start: u64, units: u64) -> UnitRange {
    UnitRange::new(Lpn(start), units)
}

fn ms(ms: u64) -> SimDuration {
    SimDuration::from_millis(ms)
}

/// A drive whose TRIM takes so long, next to other commands.
fn queued(trim_ms: u64) -> SsdConfig {
    let mut drive = drive(LinkKind::Nvme, 0);
    drive.trim.latency_per_command_ns = trim_ms * 1_000_000;
    drive
}

fn policy(text: &str) -> Policy {
    text.parse::<Trimmer>().unwrap().in_force()
}

fn on_target<F: Future<Output = ()> + 'static>(
    drive: SsdConfig,
    governor: &'static str,
    test: impl FnOnce(BlockQueue, Trace) -> F + 'static,
) {
    on_queue(drive, QueueConfig::default(), move |queue| async move {
        let spec: PolicySpec = governor.parse().unwrap();
        queue.write(range(0, 1_000)).await;
        queue.put_target(spec.governor(), KERNEL);
        let seen = trace(&queue);
        test(queue, seen).await;
    });
}

fn trims(seen: &Trace) -> Vec<UnitRange> {
    let seen = seen.borrow();
    let of = |(_, stage, command): &(_, Stage, Command)| match command {
        Command::Trim(ranges) if *stage == Stage::Dispatched => ranges.clone(),
        _ => Vec::new(),
    };
    seen.iter().flat_map(of).collect()
}

#[test]
fn a_discard_completes_at_once_and_reaches_the_drive_when_that_is_quiet() {
    on_target(queued(1), "quiet", |queue, seen| async move {
        let sim = queue.sim().clone();
        let begin = sim.now();
        queue.trim(&[range(0, 10), range(20, 5)]).await;
        queue.trim(&[range(10, 10)]).await;
        assert_eq!(sim.now(), begin);
        queue.flush().await;
        assert_eq!(trims(&seen), [], "a flush needs no discard");
        sim.sleep(ms(150)).await;
        queue.read(range(500, 1)).await;
        sim.sleep(ms(99)).await;
        assert_eq!(trims(&seen), [], "not quiet for long enough");
        sim.sleep(ms(110)).await;
        assert_eq!(trims(&seen), [range(0, 25)], "joined");
        assert!(queue.with_ssd(|ssd| !ssd.is_mapped(Lpn(24)) && ssd.is_mapped(Lpn(25))));
    });
}

#[test]
fn what_is_written_is_not_trimmed_and_the_oldest_goes_first() {
    on_target(queued(1), "quiet", |queue, seen| async move {
        let sim = queue.sim().clone();
        queue.trim(&[range(100, 100)]).await;
        sim.sleep(ms(10)).await;
        queue.trim(&[range(0, 10)]).await;
        queue.write(range(140, 10)).await;
        let written = Rc::new(Cell::new(false));
        let told = Rc::clone(&written);
        queue.submit_background_write(range(4, 1), move || told.set(true));
        sim.sleep(ms(1_000)).await;
        assert!(written.get());
        let mut first_two = trims(&seen)[..2].to_vec();
        first_two.sort_unstable();
        assert_eq!(first_two, [range(100, 40), range(150, 50)]);
        assert_eq!(trims(&seen)[2..], [range(0, 4), range(5, 5)]);
        assert!((140..150).chain([4]).all(|unit| queue.with_ssd(|ssd| ssd.is_mapped(Lpn(unit)))));
    });
}

/// On a drive that works on a TRIM next to other commands, for a second.
#[test]
fn a_write_over_a_discard_in_flight_waits_for_that_one_alone() {
    on_target(queued(1_000), "lazy:1:1+reuse", |queue, _| async move {
        let sim = queue.sim().clone();
        let begin = sim.now();
        queue.trim(&[range(0, 10), range(20, 10)]).await;
        sim.sleep(ms(1)).await;
        queue.write(range(500, 1)).await;
        queue.read(range(0, 1)).await;
        queue.flush().await;
        assert!(sim.now().since(begin) < ms(100));
        queue.write(range(9, 1)).await;
        let took = sim.now().since(begin);
        assert!(took >= ms(1_000) && took < ms(1_100), "{took:?}");
        assert!(queue.with_ssd(|ssd| ssd.is_mapped(Lpn(9)) && !ssd.is_mapped(Lpn(8))));
    });
}

/// A file system's commit waits for the discards that the target sends within it, and for no others.
#[test]
fn below_ext4_no_commit_waits_and_unmounting_trims_the_rest() {
    for (text, waits) in [("dm-trim", false), ("dm-trim:serial", true), ("commit", true)] {
        // Up to Linux 5.14 the file system's discards are part of its commit.
        let host = host(DiscardGeneration::CommitSerial);
        on_queue(drive(LinkKind::Sata, 200), host.queue, move |queue| async move {
            let volume = Volume::format(&queue, format()).await.unwrap();
            let fs = volume.mount_under(host, &policy(text), None).await;
            write(&fs, "gone", 100).await;
            write(&fs, "kept", 1).await;
            fs.sync().await.unwrap();
            fs.unlink("gone").await.unwrap();
            write(&fs, "kept", 1).await;
            let begin = fs.now();
            fsync(&fs, "kept").await;
            assert_eq!(fs.now().since(begin) > ms(200), waits, "{text}");
            assert_eq!(fs.stale_units(), if waits { 0 } else { 100 }, "{text}");
            assert_eq!(fs.ledger().pending, if waits { 0 } else { 100 }, "{text}");
            fs.audit().unwrap();
            let volume = fs.unmount().await;
            let fs = volume.mount(host, PolicySpec::OFF.governor()).await;
            assert_eq!(fs.ledger().freed, 0, "{text}: the mount knows of nothing untrimmed");
        });
    }
}

#[test]
fn everything_is_trimmed_in_the_end_and_the_account_balances() {
    for text in [
        "dm-trim",
        "dm-trim:judicious",
        "dm-trim:kernel515",
        "dm-trim:quiet:5ms:1s",
        "dm-trim:lazy:2:4+reuse",
    ] {
        let host = host(DiscardGeneration::WorkerRunningOn);
        on_queue(drive(LinkKind::Nvme, 1), host.queue, move |queue| async move {
            let volume = Volume::format(&queue, format()).await.unwrap();
            let fs: Ext4 = volume.mount_under(host, &policy(text), None).await;
            for round in 0..3 {
                for file in 0..40 {
                    write(&fs, &format!("f{file}"), 5 + round).await;
                }
                fs.sync().await.unwrap();
                for file in (0..40).step_by(3) {
                    fs.unlink(&format!("f{file}")).await.unwrap();
                }
                fs.sync().await.unwrap();
                sleep_ms(&fs, 70).await;
            }
            fs.drain_discards().await;
            let ledger = fs.ledger();
            assert_eq!((ledger.pending, ledger.in_tokens, ledger.dropped), (0, 0, 0), "{text}: {ledger:?}");
            assert!(ledger.issued > 0, "{text}: {ledger:?}");
            assert_eq!(fs.stale_units(), 0, "{text}");
            fs.audit().unwrap();
            fs.unmount().await;
            queue.with_ssd(|ssd| ssd.audit()).unwrap();
        });
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(UnitRange),
    WriteInBackground(UnitRange),
    Discard(UnitRange),
    Pause(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let extent = || (0u64..60, 1u64..9).prop_map(|(start, units)| range(start, units));
    let step = prop_oneof![
        2 => extent().prop_map(Step::Write),
        2 => extent().prop_map(Step::WriteInBackground),
        4 => extent().prop_map(Step::Discard),
        2 => (0u64..40).prop_map(Step::Pause),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// The rule: a TRIM is issued only for what nobody wrote since it was asked for, and no write reaches the drive beside
    /// one of the same units. In the end all that was discarded last is trimmed, and all that was written last is there.
    #[test]
    fn nothing_is_trimmed_that_was_written_since(
        steps in steps(),
        policy in prop::sample::select(vec!["quiet:5ms:1s", "lazy:3:3+reuse", "judicious", "serial", "together", "batch:10s"]),
    ) {
        on_target(queued(7), policy, move |queue, seen| async move {
            let sim = queue.sim().clone();
            let mut discarded = [false; 80];
            let units = |range: UnitRange| range.start.0 as usize..range.end().0 as usize;
            let mut checked = 0;
            let mut in_flight: Vec<UnitRange> = Vec::new();
            for step in steps.iter().chain(&[Step::Pause(400_000)]) {
                for (_, stage, command) in &seen.borrow()[checked..] {
                        checked += 1;
                        match (command, stage) {
                            (Command::Trim(ranges), Stage::Dispatched) => {
                                for &range in ranges {
                                    assert!(discarded[units(range)].iter().all(|is| *is), "{range:?}: {steps:?}");
                                    in_flight.push(range);
                                }
                            }
                            (Command::Trim(ranges), Stage::Completed) => {
                                in_flight.retain(|range| !ranges.contains(range));
                            }
                            (Command::Write(range, _), Stage::Dispatched) => {
                                let overlaps = |o: &UnitRange| o.start < range.end() && range.start < o.end();
                                assert!(!in_flight.iter().any(overlaps), "{range:?}: {steps:?}");
                                discarded[units(*range)].fill(false);
                            }
                            _ => {}
                        }
                    }
                match step {
                    Step::Write(range) => {
                        queue.write(*range).await;
                    }
                    Step::WriteInBackground(range) => {
                        let done = Rc::new(Cell::new(false));
                        let told = Rc::clone(&done);
                        queue.submit_background_write(*range, move || told.set(true));
                        while !done.get() {
                            sim.sleep(ms(1)).await;
                        }
                    }
                    Step::Discard(range) => {
                        discarded[units(*range)].fill(true);
                        queue.trim(&[*range]).await;
                    }
                    Step::Pause(pause) => sim.sleep(ms(*pause)).await,
                }
            }
            for (unit, is_discarded) in discarded.iter().enumerate() {
                let is_mapped = queue.with_ssd(|ssd| ssd.is_mapped(Lpn(unit as u64)));
                assert_eq!(is_mapped, !is_discarded, "unit {unit}: {steps:?}");
            }
        });
    }
}
