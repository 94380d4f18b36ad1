//! Tests of governors alone: events in, decisions out. Their effect on a file system is tested there.

use proptest::prelude::*;
use rand_core::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::batch::{Batch, BatchConfig};
use super::*;
use crate::units::{SimDuration, SimTime};

const HOST: HostTraits = HostTraits {
    kernel: DiscardGeneration::Worker,
    trim_depth: 32,
    ranges_max: 64,
    range_units_max: 8_191,
    total_units: 100_000,
    group_units: 32_768,
};

fn view(now_ms: u64) -> View {
    View {
        now: SimTime::ZERO + SimDuration::from_millis(now_ms),
        total_units: HOST.total_units,
        quiet: SimDuration::from_secs(3600),
        ..View::default()
    }
}

/// A governor with the clock and the utilization of its host.
struct Hosted(Box<dyn Governor>);

impl Hosted {
    fn new(policy: &str) -> Self {
        let mut hosted = Self(policy.parse::<PolicySpec>().unwrap().governor());
        hosted.see(&PolicyEvent::Hosted(HOST), view(0));
        hosted
    }

    fn see(&mut self, event: &PolicyEvent, view: View) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.0.on_event(event, &view, &mut decisions);
        decisions
    }
}

/// A gate before `commit`, on a file system whose use the test moves.
struct Gate {
    set: Hosted,
    at_ms: u64,
    view: View,
}

impl Gate {
    fn new(policy: &str, used_units: u64, total_units: u64) -> Self {
        let view = View { used_units, total_units, ..view(0) };
        Self { set: Hosted::new(policy), at_ms: 0, view }
    }

    /// Commits what was allocated and freed, in units, some milliseconds after the last commit. Returns whether the gate
    /// is open.
    fn commit(&mut self, after_ms: u64, allocated_units: u64, freed_units: u64) -> bool {
        self.at_ms += after_ms;
        self.view.now = view(self.at_ms).now;
        self.view.used_units = self.view.used_units + allocated_units - freed_units;
        self.view.freed_units += freed_units;
        self.view.pending_units = freed_units;
        self.view.pending_extents = 1;
        !self.set.see(&PolicyEvent::Committed { freed_units }, self.view).contains(&Decision::DropFreed)
    }

    /// Moves use to this many thousandths of the file system within five seconds.
    fn moves_to(&mut self, permille: u64) -> bool {
        let (used, wanted) = (self.view.used_units, self.view.total_units * permille / 1000);
        self.commit(5_000, wanted.saturating_sub(used), used.saturating_sub(wanted))
    }
}

fn issues(decisions: &[Decision]) -> usize {
    decisions.iter().filter(|d| matches!(d, Decision::Issue(_))).count()
}

#[test]
fn set_is_on_above_off_below_and_follows_the_direction_between() {
    let mut set = Gate::new("set:40:90", 95_000, HOST.total_units);
    assert!(set.moves_to(950));
    assert!(!set.moves_to(300), "below the low watermark");
    assert!(!set.moves_to(320), "below the low watermark");
    assert!(!set.moves_to(500), "it rises");
    assert!(!set.moves_to(700), "it rises");
    assert!(set.moves_to(910), "above the high watermark, rising or not");
    assert!(set.moves_to(600), "it falls");
    assert!(set.moves_to(595), "it falls within the window");
    assert!(set.moves_to(594), "it stands still, and fell before");
}

/// A gate between its watermarks that has seen its file system, and is open.
fn between() -> Gate {
    let mut set = Gate::new("set:0:100", HOST.total_units / 2, HOST.total_units);
    assert!(set.commit(5_000, 0, 0));
    set
}

#[test]
fn set_closes_if_allocations_are_twice_the_frees_and_opens_if_frees_are_twice_the_allocations() {
    for (allocated, freed, closes) in
        [(2_000, 1_000, true), (1_999, 1_000, false), (1_000, 0, true), (1_000, 1_000, false)]
    {
        assert_eq!(between().commit(5_000, allocated, freed), !closes, "{allocated} against {freed}");
        let mut set = between();
        assert!(!set.commit(5_000, 10_000, 0));
        assert!(!set.commit(10_000, 0, 0), "nothing happens: it stays as it is");
        assert_eq!(set.commit(5_000, freed, allocated), closes, "{freed} against {allocated}");
    }
}

#[test]
fn set_compares_all_of_its_window_and_no_more() {
    let mut set = between();
    assert!(set.commit(5_000, 1_000, 1_000));
    assert!(set.commit(5_000, 2_000, 1_000), "with the commit before, 3,000 against 2,000");
    assert!(!set.commit(5_000, 2_000, 1_000), "that one is out of the window");
    let mut slow = Gate::new("set:0:100:1m", HOST.total_units / 2, HOST.total_units);
    for _ in 0..11 {
        assert!(slow.commit(5_000, 1_000, 1_000));
    }
    assert!(slow.commit(5_000, 8_000, 1_000), "19,000 against 12,000");
}

/// What it decided before is old; what is new is in one commit.
#[test]
fn set_is_decided_by_the_first_commit_after_a_rest() {
    let mut set = between();
    assert!(!set.commit(5_000, 5_000, 0));
    assert!(set.commit(3_600_000, 0, 5_000));
    assert!(!set.commit(3_600_000, 5_000, 0));
}

/// Use falls when blocks are freed, their transaction counts when it is durable.
#[test]
fn set_takes_frees_that_were_not_committed_yet_for_frees() {
    let mut set = between();
    assert!(!set.commit(5_000, 5_000, 0));
    set.view.used_units -= 10_000;
    assert!(set.commit(5_000, 0, 0), "5,000 less than before they were allocated");
    set.view.used_units += 10_000; // what the commit takes off again
    assert!(set.commit(5_000, 0, 10_000));
}

#[test]
fn set_is_not_moved_by_a_few_blocks_however_small_the_file_system() {
    for total_units in [4_096, 4 << 30] {
        let mut set = Gate::new("set:0:100", total_units / 2, total_units);
        let mut open = set.commit(5_000, 0, 0);
        for step in 0..1_000u64 {
            // At most 200 blocks come or go within a window.
            let (allocated, freed) = if step % 8 < 4 { (step % 50, 0) } else { (0, step % 50) };
            let now = set.commit(5_000, allocated.min(total_units / 64), freed.min(total_units / 64));
            assert!(now && open, "step {step}");
            open = now;
        }
    }
}

/// PostMark's transactions: as many files are created as deleted, of 0.1 to 3 MB each; from 9 MB/s to 1.5 GB/s.
#[test]
fn set_does_not_flap_in_a_steady_mix() {
    for (files, total_units) in [(30, 1 << 22), (30, 1 << 31), (5_000, 1 << 31)] {
        for closed in [false, true] {
            let mut set = Gate::new("set:0:100", total_units / 2, total_units);
            set.commit(5_000, 0, 0);
            if closed {
                assert!(!set.commit(5_000, 1_000, 0));
                set.commit(20_000, 0, 0);
            }
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
            let mut below = |n: u64| rng.next_u64() % n;
            let mut sizes: Vec<u64> = (0..4_250).map(|_| 25 + below(700)).collect();
            for commit in 0..300 {
                let [mut created, mut deleted] = [0; 2];
                for _ in 0..files {
                    let size = 25 + below(700);
                    created += size;
                    deleted += std::mem::replace(&mut sizes[below(4_250) as usize], size);
                }
                let open = set.commit(5_000, created, deleted);
                assert_eq!(open, !closed, "{files} files, {total_units} units, commit {commit}");
            }
        }
    }
}

proptest! {
    #[test]
    fn set_decides_the_same_on_any_size_of_file_system(
        commits in prop::collection::vec((1..20_000u64, 0..3_000u64, 0..3_000u64), 1..40),
    ) {
        let decided = [1u64 << 30, 10 << 40].map(|bytes| {
            let mut set = Gate::new("set:0:100", bytes / 4096 / 2, bytes / 4096);
            commits.iter().map(|&(after, allocated, freed)| set.commit(after, allocated, freed)).collect::<Vec<_>>()
        });
        prop_assert_eq!(&decided[0], &decided[1]);
    }
}

#[test]
fn set_catches_up_on_dropped_extents_only_with_catchup() {
    for (policy, catches_up) in [("set:40:90", false), ("set:40:90+catchup", true)] {
        let mut set = Gate::new(policy, 10_000, HOST.total_units);
        assert!(!set.commit(0, 0, 10));
        let view = View { used_units: 95_000, ..set.view };
        let decisions = set.set.see(&PolicyEvent::Committed { freed_units: 10 }, view);
        assert_eq!(decisions.contains(&Decision::CatchUp), catches_up, "{policy}");
    }
}

#[test]
fn lazy_workers_grow_and_shrink_with_the_queue() {
    let mut lazy = Hosted::new("lazy:2:6");
    let mut commands = |pending_extents, in_flight| {
        let view = View { pending_units: pending_extents, pending_extents, in_flight, ..view(0) };
        issues(&lazy.see(&PolicyEvent::Committed { freed_units: 1 }, view))
    };
    assert_eq!(commands(0, 0), 0);
    assert_eq!(commands(1, 0), 1, "one extent gives one command, whatever the number of workers");
    assert_eq!(commands(20, 0), 2);
    assert_eq!(commands(48, 0), 3);
    assert_eq!(commands(49, 0), 4, "one extent more than three workers are for");
    assert_eq!(commands(64, 0), 4);
    assert_eq!(commands(10_000, 0), 6);
    assert_eq!(commands(10_000, 5), 1);
    assert_eq!(commands(20, 5), 0, "as the queue shrinks, workers are not replaced");
}

#[test]
fn a_filled_command_takes_what_the_device_takes() {
    let mut lazy = Hosted::new("lazy:1:8+reuse+fill");
    let view = View { pending_units: 1_000, pending_extents: 100, ..view(0) };
    let decisions = lazy.see(&PolicyEvent::Committed { freed_units: 1_000 }, view);
    assert_eq!(issues(&decisions), 2, "a hundred extents fit two commands");
    assert!(decisions.contains(&Decision::Issue(Shape { ranges_max: 64, ..Shape::NEXT })));
}

#[test]
fn back_off_waits_for_a_quiet_device() {
    let mut lazy = Hosted::new("lazy+backoff");
    let busy =
        View { pending_units: 1, pending_extents: 1, requests: 3, quiet: SimDuration::ZERO, ..view(0) };
    let decisions = lazy.see(&PolicyEvent::Committed { freed_units: 1 }, busy);
    let Some(Decision::WakeAt(at)) = decisions.first() else { panic!("{decisions:?}") };
    let quiet = View { now: *at, requests: 0, quiet: SimDuration::from_millis(10), ..busy };
    assert_eq!(issues(&lazy.see(&PolicyEvent::Woken, quiet)), 1);
}

#[test]
fn a_batch_sweeps_group_by_group_and_then_rests() {
    let mut batch = Batch::new(BatchConfig { every: SimDuration::from_secs(10), units_min: 4 });
    let mut decisions = Vec::new();
    batch.on_event(&PolicyEvent::Hosted(HOST), &view(0), &mut decisions);
    assert_eq!(decisions, [Decision::WakeAt(view(10_000).now)]);
    let mut covered = 0;
    let mut event = PolicyEvent::Woken;
    loop {
        decisions.clear();
        batch.on_event(&event, &view(10_000), &mut decisions);
        match decisions.as_slice() {
            [Decision::TrimFree { range, units_min: 4 }] => {
                assert_eq!(range.start.0, covered);
                covered += range.units;
            }
            [Decision::WakeAt(at)] => {
                assert_eq!((*at, covered), (view(20_000).now, HOST.total_units));
                break;
            }
            other => panic!("{other:?}"),
        }
        event = PolicyEvent::Trimmed { units: 1 };
    }
}

#[test]
fn judicious_leaves_a_busy_device_alone_until_it_is_nearly_full_of_dead_data() {
    let mut judicious = Hosted::new("judicious");
    let busy = View { requests: 1, quiet: SimDuration::ZERO, pending_extents: 10, ..view(1_000) };
    let mut commands = |used_units, freed_units, pending_units| {
        let view = View { used_units, pending_units, ..busy };
        issues(&judicious.see(&PolicyEvent::Committed { freed_units }, view))
    };
    assert_eq!(commands(30_000, 1, 20_000), 0);
    assert_eq!(commands(30_000, 1, 56_000), 1);
    assert_eq!(commands(30_000, 56_000, 56_000), 0, "a burst has only begun");
    let idle = View { pending_units: 10, pending_extents: 20, ..view(2_000) };
    assert_eq!(issues(&judicious.see(&PolicyEvent::Woken, idle)), 8);
    assert_eq!(issues(&judicious.see(&PolicyEvent::Woken, View { in_flight: 6, ..idle })), 2);
}

#[test]
fn judicious_uses_a_busy_device_between_its_watermarks_only_while_use_falls() {
    for (before, after, commands) in [(60_000, 55_000, 1), (55_000, 60_000, 0), (60_000, 60_000, 0)] {
        let mut judicious = Hosted::new("judicious");
        let mut see = |at_ms, used_units| {
            let pending = View { pending_units: 10_000, pending_extents: 10, ..view(at_ms) };
            let busy = View { used_units, requests: 1, quiet: SimDuration::ZERO, ..pending };
            issues(&judicious.see(&PolicyEvent::Committed { freed_units: 1 }, busy))
        };
        assert_eq!((see(1_000, before), see(6_000, after)), (0, commands), "from {before} to {after}");
    }
}

#[test]
fn the_device_holds_what_is_used_pending_or_untrimmed() {
    let view = View { used_units: 30_000, pending_units: 10_000, untrimmed_units: 46_000, ..view(0) };
    assert_eq!((view.device_percent(), view.used_percent()), (86, 30));
}

#[test]
fn zfs_gathers_over_its_transaction_groups() {
    let mut zfs = Hosted::new("zfs");
    let pending = View { pending_units: 100, pending_extents: 1, ..view(1_000) };
    let mut commit = || issues(&zfs.see(&PolicyEvent::Committed { freed_units: 1 }, pending));
    assert_eq!((1..=32).map(|_| commit()).collect::<Vec<_>>(), [vec![0; 31], vec![1]].concat());
}

#[test]
fn zfs_sends_ten_commands_at_a_time() {
    let mut zfs = Hosted::new("zfs");
    let pending = |in_flight| View { pending_units: 1_000, pending_extents: 100, in_flight, ..view(1_000) };
    for _ in 1..32 {
        assert_eq!(issues(&zfs.see(&PolicyEvent::Committed { freed_units: 1 }, pending(0))), 0);
    }
    assert_eq!(issues(&zfs.see(&PolicyEvent::Committed { freed_units: 1 }, pending(0))), 10);
    let issued =
        PolicyEvent::Issued(Acknowledged { ranges: 1, units: 10, took: SimDuration::from_millis(1) });
    for (in_flight, more) in [(9, 1), (7, 3), (10, 0), (11, 0)] {
        assert_eq!(issues(&zfs.see(&issued, pending(in_flight))), more, "{in_flight} in flight");
    }
}

#[test]
fn f2fs_rests_for_a_minute_after_a_pass_without_a_long_enough_extent() {
    let mut f2fs = Hosted::new("f2fs");
    let pending = View { pending_units: 100, pending_extents: 10, ..view(1_000) };
    let mut wakes_in_ms = |event: &PolicyEvent| {
        let wakes = f2fs.see(event, pending).into_iter().find_map(|decision| match decision {
            Decision::WakeAt(at) => Some(at.since(pending.now).as_nanos() / 1_000_000),
            _ => None,
        });
        wakes.unwrap_or(0)
    };
    let issued =
        PolicyEvent::Issued(Acknowledged { ranges: 1, units: 16, took: SimDuration::from_millis(1) });
    assert_eq!(wakes_in_ms(&PolicyEvent::Committed { freed_units: 100 }), 50);
    assert_eq!(wakes_in_ms(&issued), 0);
    assert_eq!(wakes_in_ms(&PolicyEvent::PassOver), 50, "one was long enough");
    assert_eq!(wakes_in_ms(&PolicyEvent::PassOver), 60_000, "none was long enough since");
}

/// Ranges of each command in turn, on a nearly full device where a command takes `cost_ms` of its ranges.
fn ranges_in_turn(cost_ms: impl Fn(u32) -> u64, commands: usize) -> Vec<u32> {
    let mut judicious = Hosted::new("judicious");
    let full = View {
        used_units: 50_000,
        pending_units: 45_000,
        pending_extents: 1_000,
        requests: 1,
        quiet: SimDuration::ZERO,
        ..view(1_000)
    };
    let mut ranges = Vec::new();
    let mut now = full.now;
    while ranges.len() < commands {
        let next = match judicious.see(&PolicyEvent::Woken, View { now, ..full }).first() {
            Some(Decision::Issue(shape)) => shape.ranges_max,
            other => panic!("{other:?}"),
        };
        ranges.push(next);
        let took = SimDuration::from_millis(cost_ms(next));
        let done = PolicyEvent::Issued(Acknowledged { ranges: next, units: 1, took });
        let decisions = judicious.see(&done, View { now, ..full });
        // No command for four times as long as it took; checked again after 50 ms at the latest.
        let Some(Decision::WakeAt(at)) = decisions.first() else { panic!("{decisions:?}") };
        assert_eq!(*at, (now + took * 4).min(now + SimDuration::from_millis(50)));
        now += took * 4;
    }
    ranges
}

#[test]
fn judicious_fills_commands_as_long_as_they_are_fast() {
    assert_eq!(ranges_in_turn(|_| 1, 8), [1, 2, 4, 8, 16, 32, 64, 64]);
    // At a millisecond per range eight ranges are fast enough, sixteen are not.
    assert_eq!(ranges_in_turn(u64::from, 6), [1, 2, 4, 8, 8, 8]);
}

#[test]
fn judicious_fills_commands_on_a_device_that_takes_long_for_any() {
    assert_eq!(ranges_in_turn(|_| 80, 8), [1, 2, 4, 8, 16, 32, 64, 64]);
    assert_eq!(ranges_in_turn(|ranges| 20 + 2 * u64::from(ranges), 6), [1, 2, 4, 8, 8, 8]);
}

#[test]
fn judicious_turns_at_50_ms_of_quiet_and_at_85_percent() {
    let ms = SimDuration::from_millis;
    let at = |used_units, pending_units, quiet_ms| View {
        used_units,
        pending_units,
        pending_extents: 20,
        quiet: ms(quiet_ms),
        ..view(1_000)
    };
    #[rustfmt::skip]
    let rows = [
        ("idle", at(30_000, 100, 50), 8),
        ("quiet for 49 ms", at(30_000, 100, 49), 0),
        ("a request", View { requests: 1, ..at(30_000, 100, 50) }, 0),
        ("idle, seven in flight", View { in_flight: 7, ..at(30_000, 100, 50) }, 1),
        ("idle, eight in flight", View { in_flight: 8, ..at(30_000, 100, 50) }, 0),
        ("idle, three extents", View { pending_extents: 3, ..at(30_000, 100, 50) }, 3),
        ("85 % held", at(45_000, 40_000, 0), 1),
        ("85 % held, one in flight", View { in_flight: 1, ..at(45_000, 40_000, 0) }, 0),
        ("84 % held", at(44_999, 40_000, 0), 0),
        ("nothing pending", View { pending_extents: 0, ..at(45_000, 0, 50) }, 0),
    ];
    for (case, view, commands) in rows {
        let decisions = Hosted::new("judicious").see(&PolicyEvent::Woken, view);
        let issue = Decision::Issue(Shape { units_max: HOST.range_units_max, ..Shape::NEXT });
        let mut expected = vec![issue; commands];
        if commands == 0 && view.in_flight == 0 && view.pending_units > 0 {
            expected.push(Decision::WakeAt(view.now + ms(50)));
        }
        assert_eq!(decisions, expected, "{case}");
    }
}

/// A full queue on a device in use.
fn full(at_ms: u64) -> View {
    View {
        used_units: 50_000,
        pending_units: 45_000,
        pending_extents: 20,
        requests: 1,
        quiet: SimDuration::ZERO,
        ..view(at_ms)
    }
}

#[test]
fn judicious_leaves_the_first_commit_alone_for_50_ms_and_rests_after_commands() {
    let ms = SimDuration::from_millis;
    let wake = |at_ms| vec![Decision::WakeAt(view(at_ms).now)];
    let mut one = Hosted::new("judicious");
    let first = PolicyEvent::Committed { freed_units: 45_000 };
    assert_eq!(one.see(&first, full(1_000)), wake(1_050), "the first in a while");
    assert_eq!(one.see(&PolicyEvent::Committed { freed_units: 9 }, full(1_010)), wake(1_050), "another");
    assert_eq!(one.see(&PolicyEvent::Woken, full(1_049)), wake(1_050));
    assert_eq!(issues(&one.see(&PolicyEvent::Woken, full(1_050))), 1);
    // Each command took so long, at an instant; the pause is four times that, checked again after 50 ms.
    for (at_ms, took_ms, next_ms) in [(1_060, 10, 1_100), (2_000, 20, 2_050), (3_000, 1, 3_004)] {
        let done = PolicyEvent::Issued(Acknowledged { ranges: 1, units: 1, took: ms(took_ms) });
        assert_eq!(one.see(&done, full(at_ms)), wake(next_ms), "{took_ms} ms");
    }
    assert_eq!(issues(&one.see(&PolicyEvent::Woken, full(3_003))), 0);
    assert_eq!(issues(&one.see(&PolicyEvent::Woken, full(3_004))), 1);
}

/// The first commit after the queue was emptied begins a rest of 50 ms, and does not end a longer one.
#[test]
fn judicious_goes_on_resting_after_a_command_when_a_commit_finds_the_queue_empty() {
    let mut one = Hosted::new("judicious");
    let took = SimDuration::from_millis(100);
    one.see(&PolicyEvent::Issued(Acknowledged { ranges: 1, units: 1, took }), full(1_000));
    assert_eq!(issues(&one.see(&PolicyEvent::Committed { freed_units: 45_000 }, full(1_010))), 0);
    for (at_ms, commands) in [(1_060, 0), (1_399, 0), (1_400, 1)] {
        assert_eq!(issues(&one.see(&PolicyEvent::Woken, full(at_ms))), commands, "at {at_ms} ms");
    }
}

#[test]
fn policies_explain_what_they_do_now() {
    let percent = |percent: u64| View { used_units: percent * 1_000, ..view(1_000) };
    let waits = View { pending_units: 10, pending_extents: 1, ..percent(30) };
    let in_use = View { requests: 1, quiet: SimDuration::ZERO, ..waits };
    let held = |units| View { pending_units: units, ..in_use };
    let freed = PolicyEvent::Committed { freed_units: 1 };
    let nothing = "No freed space is waiting to be trimmed.";
    #[rustfmt::skip]
    let rows = [
        ("set:40:90", vec![], percent(95), "TRIM is on: use is at 95 %, above the high watermark of 90 %."),
        ("set:40:90", vec![], percent(90), "TRIM is on: use is at 90 %, above the high watermark of 90 %."),
        ("set:40:90", vec![], percent(89), "TRIM is on: use is at 89 %, between 40 % and 90 %, and not rising."),
        ("set:40:90", vec![(freed, percent(39))], percent(39),
            "TRIM is off: use is at 39 %, below the low watermark of 40 %."),
        ("set:40:90", vec![(freed, percent(39))], percent(40),
            "TRIM is off: use is at 40 %, between 40 % and 90 %, and rising."),
        ("batch:10s", vec![], view(3_000), "Nothing to do until the next sweep, in 7 s."),
        ("batch:10s", vec![(PolicyEvent::Woken, view(10_000))], view(10_000),
            "A sweep through all free space is under way."),
        ("lazy", vec![], percent(30), nothing),
        ("lazy", vec![], in_use, "Freed space is being trimmed in the background."),
        ("lazy+backoff", vec![], in_use, "The device is in use, so this policy backs off."),
        ("lazy+backoff", vec![], View { quiet: SimDuration::from_millis(9), ..waits },
            "The device is in use, so this policy backs off."),
        ("lazy+backoff", vec![], View { quiet: SimDuration::from_millis(10), ..waits },
            "Freed space is being trimmed in the background."),
        ("quiet", vec![], percent(30), nothing),
        ("quiet", vec![], waits, "The device is quiet, so freed space is being trimmed."),
        ("quiet", vec![], View { oldest: Some(view(0).now), ..in_use }, "The device is in use, so freed space waits."),
        ("quiet", vec![], View { oldest: Some(view(0).now), now: view(60_000).now, ..in_use },
            "The device is in use, and freed space has waited for long"),
        ("judicious", vec![], percent(30), nothing),
        ("judicious", vec![], waits, "The device is idle, so freed space can be trimmed."),
        ("judicious", vec![], held(40_000), "The device is in use and holds only 70 % of its space as valid"),
        ("judicious", vec![], held(55_000), "The device holds 85 % of its space as valid, so trims run even while it \
            is in use, each followed by a pause of 4 times its duration."),
    ];
    for (policy, before, now, state) in rows {
        let mut one = Hosted::new(policy);
        for (event, view) in before {
            one.see(&event, view);
        }
        let explained = one.0.explain(&now);
        assert!(explained.state.starts_with(state), "{policy}: {}", explained.state);
        assert!(!explained.change.is_empty(), "{policy}");
    }
}
