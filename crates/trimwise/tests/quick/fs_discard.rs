//! What the policies do to a file system, with numbers that can be worked out by hand.

use crate::fs_common::{drive, format, fsync, host, on_fs, on_queue, sleep_ms, trace, write};
use trimwise::block::{BlockQueue, Command, Stage};
use trimwise::compare::cell::{CellSpec, run_cell};
use trimwise::engine::{Sim, Stalled, Standstill};
use trimwise::files::Files;
use trimwise::fs::host::DiscardGeneration;
use trimwise::fs::layout::FormatOptions;
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::{Availability, Decision, Governor, Policy, PolicyEvent, PolicySpec, Shape, View};
use trimwise::profile::Profile;
use trimwise::ssd::{LinkKind, Ssd};
use trimwise::units::{Bytes, Lpn, SimDuration, UnitRange};
use trimwise::workload::postmark::PostmarkConfig;

const GROUP: u64 = 32_768;
const SECOND: SimDuration = SimDuration::from_secs(1);
const TENTH: SimDuration = SimDuration::from_millis(100);

fn trims(fs: &Ext4) -> (u64, u64, u64) {
    fs.queue().with_ssd(|ssd| {
        let t = &ssd.stats().trim;
        (t.commands, t.ranges, t.units_requested)
    })
}

/// With a TRIM of one second: an unlink takes no time; the next fsync of another file takes the commit, and up
/// to Linux 5.14 the discards that belong to it.
#[test]
fn nobody_waits_for_a_commit_that_he_did_not_ask_for() {
    for generation in
        [DiscardGeneration::CommitSerial, DiscardGeneration::CommitBatched, DiscardGeneration::Worker]
    {
        on_fs(drive(LinkKind::Sata, 1_000), host(generation), PolicySpec::COMMIT, move |fs| async move {
            write(&fs, "a", 256).await;
            write(&fs, "b", 1).await;
            fs.sync().await.unwrap();
            let start = fs.now();
            fs.unlink("a").await.unwrap();
            write(&fs, "b", 1).await;
            assert_eq!(fs.now(), start);
            fsync(&fs, "b").await;
            let took = fs.now().since(start);
            if generation == DiscardGeneration::Worker {
                assert!(took < TENTH, "{took:?}");
                // The TRIM is under way now, and it is not a queued command.
                write(&fs, "b", 1).await;
                let start = fs.now();
                fsync(&fs, "b").await;
                let took = fs.now().since(start);
                assert!(took > SECOND - TENTH && took < SECOND + TENTH, "{took:?}");
            } else {
                assert!(took > SECOND && took < SECOND + TENTH, "{took:?}");
            }
        });
    }
}

/// Six separate files: NVMe takes the runs of one commit together, four ranges a command; SATA one a command;
/// and one at a time there is nothing to merge.
#[test]
fn discards_become_commands_as_linux_makes_them() {
    for (kind, generation, commands) in [
        (LinkKind::Nvme, DiscardGeneration::CommitBatched, 2),
        (LinkKind::Sata, DiscardGeneration::CommitBatched, 6),
        (LinkKind::Nvme, DiscardGeneration::CommitSerial, 6),
        (LinkKind::Nvme, DiscardGeneration::Worker, 6),
    ] {
        on_fs(drive(kind, 1), host(generation), PolicySpec::COMMIT, move |fs| async move {
            for i in 0..6 {
                write(&fs, &format!("gone{i}"), 10).await;
                write(&fs, &format!("stays{i}"), 1).await;
            }
            fs.sync().await.unwrap();
            let before = trims(&fs);
            for i in 0..6 {
                fs.unlink(&format!("gone{i}")).await.unwrap();
            }
            fs.sync().await.unwrap();
            sleep_ms(&fs, 1_000).await;
            let after = trims(&fs);
            assert_eq!((after.0 - before.0, after.1 - before.1, after.2 - before.2), (commands, 6, 60));
            fs.audit().unwrap();
        });
    }
}

#[test]
fn off_leaves_all_stale_and_ideal_nothing() {
    for (policy, stale, told) in
        [(PolicySpec::OFF, 1_000, 0), (PolicySpec::IDEAL, 0, 0), (PolicySpec::COMMIT, 0, 1)]
    {
        on_fs(drive(LinkKind::Sata, 1), host(DiscardGeneration::Worker), policy, move |fs| async move {
            write(&fs, "a", 1_000).await;
            fs.sync().await.unwrap();
            assert_eq!(fs.stale_units(), 0);
            let before = trims(&fs).0;
            fs.unlink("a").await.unwrap();
            assert_eq!(fs.stale_units(), 0, "free only with the commit");
            fs.sync().await.unwrap();
            sleep_ms(&fs, 1_000).await;
            assert_eq!(fs.stale_units(), stale);
            assert_eq!(trims(&fs).0 - before, told);
            // A file in their place ends it.
            if policy == PolicySpec::OFF {
                let filler = fs.statfs().await.unwrap().free.units_floor();
                write(&fs, "b", filler).await;
                fs.sync().await.unwrap();
                assert_eq!(fs.stale_units(), 0);
            }
        });
    }
}

/// On a drive on which every unit was written before, all that the new file system has free is stale.
#[test]
fn mkfs_without_discard_starts_with_all_free_space_stale() {
    let host = host(DiscardGeneration::Worker);
    on_queue(drive(LinkKind::Sata, 1), host.queue, move |queue| async move {
        let total = queue.with_ssd(|ssd| ssd.capacity_units());
        queue.write(UnitRange::new(Lpn(0), total)).await;
        for discard in [false, true] {
            let volume = Volume::format(&queue, FormatOptions { discard, ..format() }).await.unwrap();
            let fs = volume.mount(host, PolicySpec::OFF.governor()).await;
            let free = fs.statfs().await.unwrap().total.units_floor();
            // 4 groups: superblock, descriptors, 2 x 16 bitmaps, 4 x 512 blocks of inodes, and the journal.
            assert_eq!(free, 4 * GROUP - 2 - 32 - 4 * 512 - crate::fs_common::JOURNAL_UNITS);
            assert_eq!(fs.stale_units(), if discard { 0 } else { free });
            fs.unmount().await;
        }
    });
}

/// FITRIM leaves out groups that it has trimmed and in which nothing was freed since, unless the last call
/// asked for longer extents only; an unmount forgets.
#[test]
fn fitrim_skips_what_it_has_trimmed() {
    let host = host(DiscardGeneration::Worker);
    on_fs(drive(LinkKind::Sata, 1), host, PolicySpec::OFF, move |fs| async move {
        let all = UnitRange::new(Lpn(0), u64::MAX / 2);
        let group = |n: u64| UnitRange::new(Lpn(n * GROUP), GROUP);
        write(&fs, "a", 100).await;
        write(&fs, "b", 1).await;
        fs.sync().await.unwrap();
        let free = fs.statfs().await.unwrap().free.units_floor();
        let first = fs.trim_free(group(0), 1).await;
        assert_eq!(fs.trim_free(all, 1).await, free - first);
        assert_eq!(fs.trim_free(all, 1).await, 0);
        assert_eq!(trims(&fs).2, 4 * GROUP + free);

        fs.unlink("a").await.unwrap();
        assert_eq!(fs.trim_free(all, 1).await, 0, "freed, but the transaction is not durable");
        fs.sync().await.unwrap();
        assert_eq!(fs.stale_units(), 100);
        assert_eq!(fs.trim_free(all, 101).await, first, "the 100 blocks before file b are too few");
        assert_eq!(fs.stale_units(), 100);
        assert_eq!(fs.trim_free(all, 1).await, free + 100, "fewer than last time: all over again");
        assert_eq!(fs.stale_units(), 0);

        // A part of a group is trimmed from its beginning on, and the group is not done with that.
        let last = fs.trim_free(UnitRange::new(Lpn(4 * GROUP - 70), 10), 0).await;
        assert_eq!(last, 0, "trimmed already");
        let fs = fs.unmount().await.mount(host, PolicySpec::OFF.governor()).await;
        let part = UnitRange::new(Lpn(4 * GROUP - 70), 10);
        assert_eq!(fs.trim_free(part, 1).await, 70, "the last extent is not cut");
        assert_eq!(fs.trim_free(part, 1).await, 70);
        // Its first 1,024 blocks are the journal's.
        let rest = UnitRange::new(Lpn(2 * GROUP + 2_000), GROUP - 2_000);
        assert_eq!(fs.trim_free(rest, 1).await, GROUP - 2_000);
        assert_eq!(fs.trim_free(group(2), 1).await, GROUP - 1_024, "its beginning was left out");
        assert_eq!(fs.trim_free(group(2), 1).await, 0, "it was trimmed as a whole");
        assert_eq!(fs.trim_free(UnitRange::new(Lpn(0), 0), 1).await, 0);
        fs.audit().unwrap();
    });
}

/// On a full file system the blocks of a removed file are promised to a writer at once; write-back asks for the commit that
/// gives them.
#[test]
fn a_full_file_system_makes_write_back_wait_for_the_commit() {
    let mut drive = drive(LinkKind::Sata, 500);
    drive.cache.flush_ns = 100_000_000;
    for (policy, generation, least_ms) in [
        (PolicySpec::OFF, DiscardGeneration::Worker, 200),
        (PolicySpec::COMMIT, DiscardGeneration::CommitSerial, 700),
        (PolicySpec::COMMIT, DiscardGeneration::Worker, 700),
    ] {
        on_fs(drive.clone(), host(generation), policy, move |fs| async move {
            write(&fs, "a", 1_000).await;
            let rest = fs.statfs().await.unwrap().free.units_floor();
            for pages in [rest / 2, rest - rest / 2] {
                write(&fs, "b", pages).await;
                fs.sync().await.unwrap();
            }
            sleep_ms(&fs, 60_000).await;
            assert_eq!(fs.statfs().await.unwrap().free.0, 0);
            let old = fs.extents("a").unwrap();
            let start = fs.now();
            fs.unlink("a").await.unwrap();
            assert_eq!(fs.now(), start);
            write(&fs, "c", 1_000).await;
            assert_eq!(fs.now(), start);
            fs.sync().await.unwrap();
            let took = fs.now().since(start);
            // Two flushes of 100 ms make the commit; then the blocks are in a TRIM of 500 ms, which up to Linux
            // 5.14 belongs to the commit, and which the worker begins before write-back is awake. Two more flushes make
            // the commit of the new file.
            let least = SimDuration::from_millis(least_ms + 200);
            assert!(took >= least && took < least + TENTH, "{took:?}");
            assert_eq!(fs.extents("c").unwrap(), old);
            sleep_ms(&fs, 10_000).await;
            let mapped = fs.queue().with_ssd(|ssd| old[0].iter().filter(|&l| ssd.is_mapped(l)).count());
            assert_eq!(mapped as u64, old[0].units);
        });
    }
}

/// A pending extent that is allocated again is not trimmed.
#[test]
fn blocks_in_use_again_are_reused_not_trimmed() {
    on_fs(
        drive(LinkKind::Sata, 1_000),
        host(DiscardGeneration::Worker),
        PolicySpec::COMMIT,
        |fs| async move {
            for i in 0..4 {
                write(&fs, &format!("gone{i}"), 10).await;
                write(&fs, &format!("stays{i}"), 1).await;
            }
            let rest = fs.statfs().await.unwrap().free.units_floor();
            write(&fs, "rest", rest).await;
            fs.sync().await.unwrap();
            for i in 0..4 {
                fs.unlink(&format!("gone{i}")).await.unwrap();
            }
            fs.sync().await.unwrap();
            let seen = trace(fs.queue());
            write(&fs, "new", 25).await; // 30 blocks wait, the 10 of the first are in a TRIM
            fs.sync().await.unwrap();
            sleep_ms(&fs, 10_000).await;
            let ledger = fs.ledger();
            assert_eq!((ledger.freed, ledger.issued, ledger.reused, ledger.pending), (40, 15, 25, 0));
            let units: u64 = seen
                .borrow()
                .iter()
                .filter_map(|(_, stage, command)| match command {
                    Command::Trim(ranges) if *stage == Stage::Dispatched => {
                        Some(ranges.iter().map(|r| r.units).sum::<u64>())
                    }
                    _ => None,
                })
                .sum();
            assert_eq!(units, 5);
        },
    );
}

/// Withholds what is freed, sets a timer at each of these distances in turn, and issues everything when woken for the
/// last time, if it issues anything.
struct Withholds {
    timers: Vec<SimDuration>,
    issues: bool,
}

impl Governor for Withholds {
    fn availability(&self, _: DiscardGeneration) -> Availability {
        Availability::AfterIssue
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        let is_first = matches!(event, PolicyEvent::Hosted(_));
        if !is_first && !matches!(event, PolicyEvent::Woken) {
            return;
        }
        if let Some(timer) = self.timers.pop() {
            decisions.push(Decision::WakeAt(view.now + timer));
        } else if self.issues && !is_first {
            decisions.push(Decision::Issue(Shape { ranges_max: 64, ..Shape::NEXT }));
        }
    }
}

/// Fills a file system, removes a file of 1,000 blocks and writes another in its place.
fn write_into_what_is_withheld(policy: Withholds) -> Result<SimDuration, Stalled> {
    let (sim, host) = (Sim::new(), host(DiscardGeneration::Worker));
    let queue = BlockQueue::new(&sim, Ssd::new(&drive(LinkKind::Sata, 1), 1).unwrap(), host.queue);
    sim.run(async move {
        let fs = Volume::format(&queue, format()).await.unwrap().mount(host, Box::new(policy)).await;
        write(&fs, "a", 1_000).await;
        let rest = fs.statfs().await.unwrap().free.units_floor();
        write(&fs, "b", rest).await;
        fs.sync().await.unwrap();
        fs.unlink("a").await.unwrap();
        let start = fs.now();
        write(&fs, "c", 1_000).await;
        fs.sync().await.unwrap();
        fs.audit().unwrap();
        fs.now().since(start)
    })
}

/// The commit timer let time pass for ever.
#[test]
fn regression_a_run_ends_whose_policy_withholds_blocks_and_never_issues_them() {
    const HOUR: SimDuration = SimDuration::from_secs(3_600);
    let never = write_into_what_is_withheld(Withholds { timers: vec![], issues: false }).unwrap_err();
    let Standstill::Withheld { units, since, is_timed: false } = never.why else { panic!("{never}") };
    assert_eq!(units, 1_000);
    let waited = never.at.since(since);
    assert!(waited >= HOUR && waited < HOUR + SECOND * 10, "{never}");

    // Timers that lead to nothing.
    let timers = vec![HOUR * 24; 60];
    let ticking =
        write_into_what_is_withheld(Withholds { timers: timers.clone(), issues: false }).unwrap_err();
    let Standstill::Withheld { since, is_timed: true, .. } = ticking.why else { panic!("{ticking}") };
    assert!(ticking.at.since(since) >= HOUR * 24 * 31, "{ticking}");

    // However late it issues them, the run goes on if its timer says so.
    let weekly = Withholds { timers: vec![HOUR * 24; 7], issues: true };
    let took = write_into_what_is_withheld(weekly).unwrap();
    assert!(took > HOUR * (24 * 7 - 1) && took < HOUR * (24 * 7 + 1), "{took:?}");
}

#[test]
fn regression_the_error_of_a_run_that_its_policy_stops_names_the_policy_and_the_instant() {
    let policy = Policy::new("miser", || Box::new(Withholds { timers: vec![], issues: false }));
    let mut profile = Profile::embedded("sata-small").unwrap();
    profile.config = drive(LinkKind::Sata, 1);
    let workload =
        PostmarkConfig { number: 100, transactions: 2_000, size_high: 500_000, ..Default::default() };
    let mut spec = CellSpec::new(profile, policy, workload);
    spec.host.memory = Bytes::mib(32);
    let error = run_cell(&spec, Box::new(|_| ())).unwrap_err().to_string();
    let start = "sata-small, policy miser: the simulation stalled at ";
    assert!(error.starts_with(start), "{error}");
    assert!(error.contains("a task waits for free blocks, but the policy withholds "), "{error}");
    assert!(error.ends_with("no TRIM is under way, and it has set no timer"), "{error}");
}
