//! Tests of governors alone: events in, decisions out. Their effect on a file system is tested there.

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

    /// Sends a commit that freed one extent of ten units, at a utilization in thousandths. Returns whether it is
    /// trimmed.
    fn trims_at(&mut self, now_ms: u64, used_permille: u64) -> bool {
        let view =
            View { used_units: used_permille * 100, pending_units: 10, pending_extents: 1, ..view(now_ms) };
        let decisions = self.see(&PolicyEvent::Committed { freed_units: 10 }, view);
        !decisions.contains(&Decision::DropFreed)
    }
}

fn issues(decisions: &[Decision]) -> usize {
    decisions.iter().filter(|d| matches!(d, Decision::Issue(_))).count()
}

#[test]
fn set_is_on_above_off_below_and_follows_the_direction_between() {
    let mut set = Hosted::new("set:40:90");
    let mut at = 0;
    let mut run = |permille: u64| {
        at += 5_000;
        set.trims_at(at, permille)
    };
    assert!(run(950));
    assert!(!run(300), "below the low watermark");
    assert!(!run(320), "below the low watermark");
    assert!(!run(500), "it rises");
    assert!(!run(700), "it rises");
    assert!(run(910), "above the high watermark, rising or not");
    assert!(run(600), "it falls");
    assert!(run(595), "it falls within the window");
    assert!(run(594), "it stands still, and fell before");
}

#[test]
fn set_does_not_flap_while_utilization_swings_by_less_than_its_hysteresis() {
    for middle in [400, 650, 900] {
        let mut set = Hosted::new("set:40:90");
        let mut last = None;
        let mut changes = 0;
        for step in 0..1_000u64 {
            // Swings of 0.8 %, around the watermarks too, with a period that the window does not divide.
            let swing = if step % 7 < 4 { 4 } else { 0 };
            let on = set.trims_at(step * 1_300, middle - 2 + swing + step % 3);
            changes += u32::from(last.is_some_and(|last| last != on));
            last = Some(on);
        }
        // Crossing a watermark once is right.
        assert!(changes <= 1, "{changes} changes around {middle}");
    }
}

#[test]
fn set_follows_a_movement_of_its_hysteresis_within_its_window() {
    let mut set = Hosted::new("set:10:90:10s:1.0");
    assert!(set.trims_at(0, 500));
    assert!(set.trims_at(5_000, 509), "nine thousandths are no rise yet");
    assert!(!set.trims_at(8_000, 510));
    assert!(!set.trims_at(16_000, 505), "slower than the window");
    assert!(set.trims_at(20_000, 495));
}

/// The rise is too slow to show within half the window.
#[test]
fn set_looks_back_over_all_of_its_window() {
    for policy in ["set:10:90", "set:10:90:10s:1.0"] {
        let mut set = Hosted::new(policy);
        for (at_ms, permille) in [(0, 500), (3_000, 503), (6_000, 506)] {
            assert!(set.trims_at(at_ms, permille), "{policy}: no rise yet");
        }
        assert!(!set.trims_at(9_000, 510), "{policy}: a rise by one percent within nine seconds");
    }
}

#[test]
fn set_catches_up_on_dropped_extents_only_with_catchup() {
    for (policy, catches_up) in [("set:40:90", false), ("set:40:90+catchup", true)] {
        let mut set = Hosted::new(policy);
        assert!(!set.trims_at(0, 100));
        let view = View { used_units: 95_000, pending_units: 10, pending_extents: 1, ..view(5_000) };
        let decisions = set.see(&PolicyEvent::Committed { freed_units: 10 }, view);
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
