//! Decisions of `LiveHost` on a made-up host.

use proptest::prelude::*;

use crate::live_host::{EXT4, FakeHost, GROUP, PIECE, PIECES, Step, XFS, facts, host, step};
use trimwise::live::{
    Asked, Cut, Facts, Failed, FreeSpace, Order, Reason, SPANS_MAX, Sample, Settings, Untrimmed, WHOLE,
    keep_longest,
};
use trimwise::units::{Bytes, SimDuration, SimTime, Span};

fn toggling() -> Settings {
    Settings { may_toggle: true, ..Settings::default() }
}

#[test]
fn judicious_trims_the_backlog_slice_by_slice_and_then_nothing_more() {
    for cut in [XFS, EXT4] {
        let mut host = host("judicious", cut);
        host.told.fill(false);
        host.allocate(1000, 500);
        host.pass(3);
        assert!(host.untrimmed() > 0, "the backlog is not dumped on the device at the start");
        host.pass(600);
        assert_eq!((host.untrimmed(), host.sent_twice), (0, 0), "{:?}", host.live.explain());
        let sent = host.sent;
        host.pass(600);
        assert_eq!(host.sent, sent);
        assert!(host.slices.iter().all(|(_, slice)| slice.bytes <= Bytes::gib(1)), "{:?}", host.slices);
    }
}

#[test]
fn samples_are_rare_but_around_slices() {
    for load in [0, 100] {
        let mut host = host("judicious", XFS);
        (host.is_sampled_as_asked, host.load) = (true, load);
        host.told.fill(false);
        host.pass(7200);
        // A device in use may wait below the bound.
        assert!(host.slices.len() > 50 && (load > 0 || host.untrimmed() == 0), "{:?}", host.live.explain());
        assert_eq!(host.sent_twice, 0, "{load}");
        let second = SimDuration::from_secs(1);
        for (begun, _) in &host.slices {
            let is_near = |at: &&SimTime| begun.since(**at) <= second && at.since(*begun) <= second;
            let near = host.sampled_at.iter().filter(is_near).count();
            assert!(near >= 2, "{load}: {begun:?} of {:?}", host.sampled_at);
        }
        let before = host.sampled_at.len();
        host.pass(600);
        assert_eq!(host.sampled_at.len() - before, 120, "{load}");
        // What comes and goes is seen within seconds from then on, as long as nothing else tells of it.
        host.allocate(100, 10);
        host.pass(6);
        let before = host.sampled_at.len();
        host.pass(30);
        assert_eq!(host.sampled_at.len() - before, 30, "{load}");
        host.live.watch_frees(true);
        let before = host.sampled_at.len();
        host.pass(20);
        assert_eq!(host.sampled_at.len() - before, 4, "{load}");
    }
}

#[test]
fn what_is_freed_is_trimmed_once_and_what_is_used_again_never() {
    for cut in [XFS, EXT4] {
        let mut host = host("judicious", cut);
        host.allocate(0, 2000);
        host.pass(300);
        let backlog = host.sent;
        host.free(100, 300);
        host.allocate(100, 100);
        host.pass(900);
        assert_eq!((host.untrimmed(), host.sent - backlog), (0, 200));
        assert_eq!(host.live.totals().freed_bytes, 200 * PIECE);
    }
}

#[test]
fn off_sends_nothing_and_reads_no_map() {
    let mut host = host("off", XFS);
    host.allocate(0, 2000);
    host.pass(10);
    host.free(0, 2000);
    host.pass(3000);
    assert_eq!((host.sent, host.live.totals().looks), (0, 0));
    assert!(host.live.explain().join(" ").contains("policy is off"), "{:?}", host.live.explain());
}

#[test]
fn off_turns_online_discard_off_if_it_may() {
    let online = Sample { online: true, total: facts(EXT4).total, ..Sample::default() };
    let with = Facts { toggles: true, ..facts(EXT4) };
    let mut host = FakeHost::new("off", with, toggling());
    host.sample = online;
    host.pass(10);
    assert_eq!(host.toggled, [false]);
    // By itself it leaves the option as the user wrote it.
    let mut fixed = FakeHost::new("off", with, Settings::default());
    fixed.sample = online;
    fixed.pass(10);
    assert!(fixed.toggled.is_empty());
    assert_eq!(fixed.live.reason(), &Reason::Online { fixed: true });
}

/// The kernel discards whatever the policy says: no message may deny that, or promise what is not done.
#[test]
fn regression_explain_does_not_contradict_itself_where_online_discard_is_left_alone() {
    let false_there = [
        "never told",
        "next sweep",
        "TRIM is off",
        "can be trimmed",
        " waiting, ",
        "found within a week",
        "estimated",
    ];
    for policy in ["off", "lazy", "judicious", "batch:1d", "set:40:90", "commit"] {
        for maps in [true, false] {
            let with = Facts { maps, toggles: true, online_is_good: !maps, ..facts(EXT4) };
            let mut host = FakeHost::new(policy, with, Settings::default());
            host.told.fill(false);
            host.allocate(0, 1000);
            host.sample.online = true;
            host.pass(20);
            host.free(0, 300);
            host.pass(2 * 86_400);
            let explained = host.live.explain().join(" ");
            assert_eq!((host.sent, &host.toggled), (0, &vec![]), "{explained}");
            for words in
                ["online discard", "trimwised sends nothing", "nothing; the kernel does it", "trim --now"]
            {
                assert!(explained.contains(words), "{policy}, {maps}: '{words}' is not in: {explained}");
            }
            for words in false_there {
                assert!(!explained.contains(words), "{policy}, {maps}: '{words}' is in: {explained}");
            }
            host.live.trim_now();
            assert!(host.pass_while_asked(3600), "{policy}, {maps}: {:?}", host.live.explain());
            let explained = host.live.explain().join(" ");
            for words in ["trimwised sends nothing", "All free space is trimmed"] {
                assert!(explained.contains(words), "{policy}, {maps}: '{words}' is not in: {explained}");
            }
            host.live.pause(true);
            host.pass(5);
            let explained = host.live.explain().join(" ");
            assert!(!explained.contains("never told") && !explained.contains("TRIM is off"), "{explained}");
        }
    }
}

/// A request for all of it forgets what is trimmed. Where nothing was, that leaves no doubt about what waits.
#[test]
fn what_waits_after_a_request_is_known_unless_something_trimmed_was_forgotten() {
    let mut host = host("lazy", XFS);
    host.pass(5);
    host.live.trim_now();
    assert_eq!(host.live.waiting(), Untrimmed::Known(Bytes(PIECES as u64 * PIECE)));
    assert!(host.pass_while_asked(600), "{:?}", host.live.explain());
    host.live.trim_now();
    assert_eq!(host.live.waiting(), Untrimmed::Unknown);
}

#[test]
fn a_request_for_all_of_it_is_under_way_done_or_called_off() {
    for maps in [true, false] {
        let mut host = FakeHost::new("off", Facts { maps, ..facts(XFS) }, Settings::default());
        host.told.fill(false);
        host.pass(5);
        let asked = |host: &FakeHost| host.live.status().asked;
        assert_eq!(asked(&host), Asked::Never);
        host.failure = Some(Failed::Again("an error".into()));
        host.live.trim_now();
        host.pass(5);
        assert!(matches!(host.live.reason(), Reason::Failed { .. }), "{:?}", host.live.explain());
        assert_eq!(asked(&host), Asked::UnderWay);
        host.failure = None;
        host.live.trim_now();
        assert_eq!(host.live.reason(), &Reason::Asked, "what failed before is no answer");
        assert!(host.pass_while_asked(600), "{:?}", host.live.explain());
        assert_eq!((asked(&host), host.untrimmed()), (Asked::Done, 0), "{:?}", host.live.explain());
        host.live.trim_now();
        host.live.pause(true);
        assert_eq!(asked(&host), Asked::CalledOff);
    }
}

#[test]
fn set_turns_online_discard_on_above_the_high_watermark_and_off_below_the_low_one() {
    let mut host = FakeHost::new("set:40:90", Facts { toggles: true, ..facts(EXT4) }, toggling());
    host.allocate(0, PIECES * 95 / 100);
    host.pass(30);
    assert_eq!(host.toggled, [true]);
    assert!(host.live.explain().join(" ").contains("above the high watermark"), "{:?}", host.live.explain());
    host.free(0, PIECES * 80 / 100);
    host.pass(30);
    assert_eq!(host.toggled, [true], "a remount is not cheap");
    host.pass(600);
    assert_eq!(host.toggled, [true, false]);
    assert_eq!(host.sent, 0, "the kernel told the device, and what was free before is left, as published");
    assert!(host.live.explain().join(" ").contains("below the low watermark"), "{:?}", host.live.explain());
}

/// As many pieces come as go, at uneven rates. Without reports only the difference within each second is seen, which has
/// no direction for long.
#[test]
fn set_leaves_online_discard_alone_in_a_steady_mix() {
    for (is_told, changes_max) in [(true, 1), (false, 7)] {
        let mut host = FakeHost::new("set:0:100", Facts { toggles: true, ..facts(EXT4) }, toggling());
        host.tells = is_told;
        host.live.watch_frees(is_told);
        let mut ring = 0..PIECES / 2;
        host.allocate(ring.start, ring.len());
        host.pass(30);
        for second in 0..3_600usize {
            // Both add up to the same in eleven seconds.
            for at in ring.start..ring.start + 10 + second * 5 % 11 {
                host.free(at % PIECES, 1);
            }
            for at in ring.end..ring.end + 10 + second * 7 % 11 {
                host.allocate(at % PIECES, 1);
            }
            ring = ring.start + 10 + second * 5 % 11..ring.end + 10 + second * 7 % 11;
            host.pass(1);
        }
        assert!((1..=changes_max).contains(&host.toggled.len()), "{is_told}: {:?}", host.toggled);
        assert_eq!(host.live.status().trend, "steady", "{is_told}");
    }
}

#[test]
fn set_without_a_toggle_trims_what_was_freed_while_it_was_open() {
    let mut host = host("set:40:90", XFS);
    host.allocate(0, PIECES * 98 / 100);
    host.pass(30);
    let backlog = host.sent;
    host.free(0, 200);
    host.pass(300);
    assert_eq!((backlog, host.sent), (0, 200), "{:?}", host.live.explain());
    // Far below the low watermark: dropped.
    host.free(0, PIECES);
    host.pass(30);
    assert!(host.left().0 > 0 && host.waiting().0 == 0, "{:?}", host.live.explain());
}

#[test]
fn batch_sweeps_at_its_intervals() {
    let mut host = host("batch:10m", EXT4);
    host.told.fill(false);
    host.allocate(0, 1000);
    host.pass(590);
    assert_eq!(host.sent, 0);
    host.pass(300);
    assert_eq!((host.untrimmed(), host.sent_twice), (0, 0), "{:?}", host.live.explain());
    let sent = host.sent;
    host.free(0, 100);
    host.pass(200);
    assert_eq!(host.sent, sent);
    host.pass(700);
    assert_eq!(host.sent, sent + 100);
}

#[test]
fn lazy_trims_what_is_freed_and_not_what_was_free_before() {
    let mut host = host("lazy+reuse", XFS);
    host.told.fill(false);
    host.allocate(0, 2000);
    host.pass(60);
    assert_eq!(host.sent, 0);
    host.free(0, 500);
    host.pass(300);
    assert_eq!(host.sent, 500);
}

#[test]
fn without_maps_a_trim_is_rare_and_the_estimate_is_from_utilization() {
    let mut host = FakeHost::new("judicious", Facts { maps: false, ..facts(XFS) }, Settings::default());
    host.told.fill(false);
    host.allocate(0, 1000);
    host.pass(1800);
    assert_eq!(host.sent, 0, "not at the start");
    host.pass(3600);
    assert_eq!((host.untrimmed(), host.sent_twice), (0, 0));
    let slices = host.slices.len();
    host.free(0, 300);
    host.pass(10);
    assert_eq!(host.waiting(), Bytes(300 * PIECE));
    host.pass(86_400);
    assert_eq!(host.slices.len(), slices, "{:?}", host.live.explain());
}

#[test]
fn btrfs_gets_its_own_online_discard() {
    let btrfs = Facts { maps: false, toggles: true, online_is_good: true, ..facts(XFS) };
    let mut host = FakeHost::new("judicious", btrfs, toggling());
    host.pass(10);
    assert_eq!(host.toggled, [true]);
    assert_eq!(host.live.reason(), &Reason::Online { fixed: false });
    let mut refused = FakeHost::new("judicious", btrfs, toggling());
    refused.toggles_work = false;
    refused.allocate(0, 100);
    refused.told.fill(false);
    refused.pass(2 * 3600);
    assert_eq!(refused.untrimmed(), 0, "then by FITRIM: {:?}", refused.live.explain());
}

/// Btrfs and ext4: what cannot be remounted now is trimmed in slices meanwhile, and the remount is tried again.
#[test]
fn a_remount_that_fails_keeps_nothing_else_from_going_on() {
    for maps in [false, true] {
        let facts = Facts { maps, toggles: true, online_is_good: true, ..facts(XFS) };
        let mut host = FakeHost::new("judicious", facts, toggling());
        host.toggle_failure = Some(Failed::Again("remounting: Device or resource busy".into()));
        host.told.fill(false);
        host.allocate(0, 1000);
        host.pass(2 * 3600);
        assert_eq!(host.untrimmed(), 0, "{maps}: {:?}", host.live.explain());
        assert!((4..=10).contains(&host.toggles_tried), "{maps}: ever later: {}", host.toggles_tried);
        let explained = host.live.explain().join(" ");
        assert!(explained.contains("resource busy; it will be tried again in"), "{explained}");
        host.toggle_failure = None;
        host.pass(3600);
        assert_eq!(
            (host.toggled.as_slice(), host.live.reason()),
            (&[true][..], &Reason::Online { fixed: false })
        );
        assert!(!host.live.explain().join(" ").contains("busy"), "{:?}", host.live.explain());
    }
}

/// Whoever changes the option by hand is right.
#[test]
fn an_option_that_somebody_else_changed_is_left_alone() {
    let with = Facts { toggles: true, ..facts(EXT4) };
    let mut host = FakeHost::new("off", with, toggling());
    host.sample.online = true;
    host.pass(10);
    host.sample.online = true;
    host.live.leave_option("somebody else changed it".into());
    host.pass(3600);
    assert_eq!(host.toggled, [false]);
    assert!(host.live.explain().join(" ").contains("somebody else changed it"), "{:?}", host.live.explain());
}

#[test]
fn a_remount_that_never_works_is_told_and_not_tried_again() {
    let facts = Facts { maps: false, toggles: true, online_is_good: true, ..facts(XFS) };
    let mut host = FakeHost::new("judicious", facts, toggling());
    host.toggle_failure = Some(Failed::Never("remounting: Invalid argument".into()));
    host.pass(2 * 3600);
    let explained = host.live.explain().join(" ");
    assert!(explained.contains("cannot be changed: remounting: Invalid argument."), "{explained}");
    assert_eq!(host.toggles_tried, 1);
}

#[test]
fn a_policy_whose_online_discard_is_off_does_not_claim_that_frees_are_told_at_once() {
    for (is_online, state) in [
        (false, "online discard is off: what was freed is trimmed in slices."),
        (true, "online discard is on"),
    ] {
        let mut host = FakeHost::new("commit", Facts { maps: false, ..facts(XFS) }, Settings::default());
        host.sample.online = is_online;
        host.pass(600);
        let explained = host.live.explain().join(" ");
        assert!(explained.contains(state), "{explained}");
        assert_eq!(explained.contains("told of freed space immediately"), is_online, "{explained}");
    }
}

/// An abandoned helper is still under way: until it ends nothing begins, even on request; then everything resumes.
#[test]
fn nothing_begins_while_a_helper_is_stuck() {
    let mut host = host("judicious", XFS);
    host.told.fill(false);
    host.pass(5);
    host.live.stick(Some("The helper did not end in 120 s, and was given up".into()));
    host.pass(5); // what is under way ends
    let (slices, looks) = (host.slices.len(), host.looked_from.len());
    host.live.trim_now();
    host.pass(3600);
    assert_eq!((host.slices.len(), host.looked_from.len()), (slices, looks));
    assert!(matches!(host.live.reason(), Reason::Stuck { .. }), "{:?}", host.live.explain());
    host.live.stick(None);
    host.pass(600);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
}

#[test]
fn the_bound_holds_also_on_a_busy_device_under_pressure() {
    for pressure_permille in [0, 900] {
        let mut host = host("judicious", XFS);
        host.allocate(0, 1500);
        host.pass(300);
        (host.load, host.sample.pressure_permille) = (5000, pressure_permille);
        host.free(0, 1000);
        host.pass(900);
        let bound = host.live.bound().0 / PIECE;
        assert!((1..=bound).contains(&host.untrimmed()), "{pressure_permille}: {} {bound}", host.untrimmed());
        host.pass(900);
        assert!(host.untrimmed() > 0, "below the bound there is no hurry while others use the device");
        (host.load, host.sample.pressure_permille) = (0, 0);
        host.pass(300);
        assert_eq!(host.untrimmed(), 0);
    }
}

/// It forgets what is trimmed, which is no reason to speak of the bound.
#[test]
fn regression_a_request_to_trim_all_is_not_called_over_the_bound() {
    let mut host = host("judicious", XFS);
    host.pass(600);
    assert_eq!(host.untrimmed(), 0);
    host.live.trim_now();
    let mut asked = 0;
    while host.live.is_asked() {
        host.pass(1);
        let reason = host.live.reason();
        assert!(!matches!(reason, Reason::OverBound { .. }), "{reason:?}");
        asked += u32::from(*reason == Reason::Asked);
    }
    assert!(asked > 0);
}

#[test]
fn a_pause_stops_everything_and_now_overrides_the_policy() {
    let mut host = host("off", EXT4);
    host.told.fill(false);
    host.pass(10);
    host.live.trim_now();
    host.live.pause(true);
    host.pass(100);
    assert_eq!((host.sent, host.live.reason()), (0, &Reason::Paused));
    host.live.pause(false);
    host.live.trim_now();
    host.pass(200);
    assert_eq!((host.untrimmed(), host.sent), (0, PIECES as u64));
    host.told.fill(false);
    host.pass(200);
    assert_eq!(host.sent, PIECES as u64, "it is over with what waited");
}

#[test]
fn a_map_that_cannot_be_read_is_tried_again_ever_later_also_during_a_pause() {
    for is_paused in [false, true] {
        let mut host = host("judicious", EXT4);
        host.look_failure = Some(Failed::Again("GETFSMAP: Input/output error".into()));
        host.live.pause(is_paused);
        host.pass(3600);
        assert!((4..=8).contains(&host.looked_from.len()), "{}", host.looked_from.len());
        host.look_failure = None;
        host.pass(2 * 3600);
        assert!(!host.live.reason().is_trouble(), "{:?}", host.live.reason());
    }
}

#[test]
fn what_is_freed_during_a_pause_is_told_and_sent_behind_it() {
    let mut host = host("judicious", EXT4);
    host.allocate(0, 1000);
    host.pass(300);
    let sent = host.sent;
    host.live.pause(true);
    host.free(0, 600);
    host.pass(900);
    assert_eq!((host.sent, host.waiting()), (sent, Bytes(600 * PIECE)));
    assert_eq!(host.live.reason(), &Reason::Paused);
    host.live.pause(false);
    host.pass(900);
    assert_eq!((host.sent, host.untrimmed()), (sent + 600, 0));
}

#[test]
fn other_settings_hold_at_once_and_nothing_is_forgotten() {
    let mut host = host("judicious", EXT4);
    host.allocate(0, 1000);
    host.pass(300);
    let (before, sent, bound) = (host.live.totals(), host.sent, host.live.bound());
    assert!(before.slices > 0, "{before:?}");
    let settings = Settings {
        untrimmed_max_permille: 50,
        slice_target: SimDuration::from_millis(7),
        ..Settings::default()
    };
    host.live.set(settings);
    assert_eq!((host.live.totals(), host.live.bound()), (before, Bytes(bound.0 / 2)));
    host.free(0, 600);
    host.pass(900);
    assert_eq!((host.sent, host.untrimmed()), (sent + 600, 0));
    assert!(
        host.live.explain().join(" ").contains("A slice should take at most 7 ms"),
        "{:?}",
        host.live.explain()
    );
}

#[test]
fn failures_are_tried_again_ever_later_and_a_refusal_never() {
    let mut host = host("judicious", XFS);
    host.told.fill(false);
    host.failure = Some(Failed::Again("FITRIM: Input/output error".into()));
    host.pass(3600);
    assert!((4..=8).contains(&host.slices.len()), "{}", host.slices.len());
    assert!(host.live.explain().join(" ").contains("Input/output error; it will be tried again in"));
    host.failure = None;
    host.pass(2 * 3600);
    assert_eq!(host.untrimmed(), 0);

    let mut never = host_that_refuses();
    never.pass(7200);
    assert_eq!((never.slices.len(), never.sent), (1, 0));
    assert!(matches!(never.live.reason(), Reason::Refused { .. }));
}

/// What others' discards did says nothing about the next attempt.
#[test]
fn failures_of_others_put_off_the_next_attempt_by_a_minute() {
    let mut host = host("judicious", XFS);
    host.pass(7_200);
    host.allocate(0, 200);
    host.pass(120);
    let slices = host.slices.len();
    host.live.device_failed("discards failed".into());
    let mut orders = Vec::new();
    host.live.sample(host.now, host.sample, &mut orders);
    assert_eq!(host.live.waiting(), Untrimmed::Unknown, "before the next map");
    host.take(orders);
    for _ in 0..7 {
        host.live.device_failed("discards failed".into());
        host.pass(1);
    }
    host.pass(40);
    assert!(host.live.reason().is_trouble() && host.slices.len() == slices, "{:?}", host.live.reason());
    host.pass(20);
    assert!(host.slices.len() > slices, "{:?}", host.live.reason());
}

/// After half an hour of failures the next attempt is half an hour away.
#[test]
fn what_is_freed_while_it_waits_to_try_again_is_counted() {
    let mut host = host("judicious", XFS);
    host.told.fill(false);
    host.failure = Some(Failed::Device("discards failed".into()));
    host.allocate(0, 200);
    host.pass(2_000);
    let slices = host.slices.len();
    host.free(0, 200);
    host.pass(300);
    assert_eq!(host.waiting(), Bytes(PIECES as u64 * PIECE), "{:?}", host.live.explain());
    assert!(host.live.reason().is_trouble() && host.slices.len() == slices, "{:?}", host.live.reason());
}

/// The next attempt waits for discards that hang. Meanwhile nothing is trimmed, and the status must not say otherwise.
#[test]
fn regression_the_trouble_stays_until_an_attempt_succeeds() {
    let mut host = host("judicious", XFS);
    host.told.fill(false);
    host.failure = Some(Failed::Device("discards hang".into()));
    while host.slices.len() < 2 {
        host.pass(1);
        if matches!(host.under_way, Some((Order::Look { .. }, _))) {
            host.finish();
        }
    }
    assert!(matches!(host.under_way, Some((Order::Trim(_), _))), "{:?}", host.under_way);
    assert!(host.live.reason().is_trouble(), "{:?}", host.live.reason());
    let explained = host.live.explain().join(" ");
    assert!(explained.contains("discards hang; it is being tried again now"), "{explained}");
    host.failure = None;
    host.pass(3600);
    assert!(!host.live.reason().is_trouble(), "{:?}", host.live.reason());
    assert_eq!(host.untrimmed(), 0);
}

#[test]
fn regression_what_the_device_did_not_count_is_not_booked() {
    let mut host = host("judicious", XFS);
    host.told.fill(false);
    host.drops = true;
    host.pass(3600);
    let totals = host.live.totals();
    assert_eq!((totals.trimmed_bytes, host.sent), (0, 0), "{totals:?}");
    assert_eq!(host.waiting(), Bytes(PIECES as u64 * PIECE));
    assert!(host.live.reason().is_trouble() && host.slices.len() < 12, "{:?}", host.live.explain());
    assert!(host.live.explain().join(" ").contains("the device counted 0 B of"), "{:?}", host.live.explain());
    host.drops = false;
    host.pass(2 * 3600);
    let trimmed = host.live.totals().trimmed_bytes;
    assert_eq!((host.untrimmed(), host.sent_twice, trimmed), (0, 0, PIECES as u64 * PIECE));
}

/// Of 1,000 pieces sent, the device is known to have taken none, or a quarter. Which ones is unknown, so all of them stay
/// untrimmed; they are not sent again by themselves, but with the next request.
#[test]
fn what_is_not_known_to_be_taken_stays_untrimmed() {
    for (permille, maps) in [(0, true), (250, true), (0, false)] {
        let mut host = FakeHost::new("off", Facts { maps, ..facts(XFS) }, Settings::default());
        let case = format!("{permille} in 1000, maps {maps}");
        host.allocate(0, PIECES - 1000);
        host.told.fill(false);
        host.pass(5);
        host.proven_permille = Some(permille);
        host.live.trim_now();
        assert!(host.pass_while_asked(2_000), "{case}: {:?}", host.live.explain());
        let totals = host.live.totals();
        let taken = 1000 * PIECE / 1000 * permille;
        assert_eq!((totals.trimmed_bytes, totals.unverified_bytes), (taken, 1000 * PIECE - taken), "{case}");
        assert_eq!((host.waiting(), host.left()), (Bytes(0), Bytes(1000 * PIECE)), "{case}");
        let known = host.live.known();
        assert!(
            known.as_ref().is_none_or(|known| known.unverified == known.trimmed),
            "{case}: a restart does not prove it"
        );
        assert_eq!(known.is_some(), maps, "{case}");
        let explained = host.live.explain().join(" ");
        let expected = format!("of which {} were sent, unverified", Bytes(1000 * PIECE));
        assert!(explained.contains(&expected), "{case}: {explained}");
        host.pass(600);
        assert_eq!(host.sent, 1000, "{case}: not again by itself");
        // In use again, it is untrimmed no longer.
        host.allocate(PIECES - 1000, 100);
        host.proven_permille = None;
        host.live.trim_now();
        assert!(host.pass_while_asked(2_000), "{case}: {:?}", host.live.explain());
        assert_eq!((host.sent, host.left()), (1900, Bytes(0)), "{case}");
        assert!(!host.live.explain().join(" ").contains("were sent, unverified"), "{case}");
    }
}

/// What came into use again between the map and the slice was not sent, and nothing is sent once more for it.
#[test]
fn what_is_used_again_before_its_slice_makes_nobody_doubt_the_rest() {
    let mut host = host("judicious", XFS);
    host.allocate(0, 2000);
    host.pass(300);
    let (before, twice) = (host.sent, host.sent_twice);
    host.live.pause(true);
    host.free(100, 60);
    host.pass(900);
    host.allocate(100, 30);
    host.live.pause(false);
    host.pass(900);
    assert_eq!((host.untrimmed(), host.sent - before, host.sent_twice - twice), (0, 30, 0));
}

#[test]
fn regression_behind_errors_of_the_device_nothing_is_believed_and_it_goes_slower() {
    for (in_slice, cut) in [(true, XFS), (false, XFS), (true, EXT4)] {
        let mut host = host("judicious", cut);
        host.told.fill(false);
        host.pass(600);
        assert_eq!(host.untrimmed(), 0);
        // What it was told got lost; if a slice is under way, only that slice's.
        let (before, twice) = (host.slices.len(), host.sent_twice);
        if !in_slice {
            host.told.fill(false);
        }
        if in_slice {
            host.failure = Some(Failed::Device("discards failed".into()));
            host.allocate(0, 200);
            host.pass(120);
            host.free(0, 200);
            host.pass(300);
            host.failure = None;
        } else {
            host.live.device_failed("discards failed".into());
            host.pass(2);
        }
        assert!(host.live.reason().is_trouble(), "{:?}", host.live.explain());
        assert!(host.slices.len() - before <= 4, "ever later");
        host.pass(3600);
        assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
        // Ext4 sends an extent up to its end.
        assert!(cut == EXT4 || host.sent_twice == twice, "nothing else is sent again");
    }
}

/// A bad spot makes its slice fail for days, and nothing else is sent again for it.
#[test]
fn a_bad_spot_makes_nobody_doubt_the_rest() {
    let mut host = host("judicious", XFS);
    host.pass(7_200);
    let before = host.sent_twice;
    host.allocate(0, 200);
    host.pass(120);
    host.failure = Some(Failed::Device("discards failed".into()));
    host.free(0, 200);
    host.pass(2 * 86_400);
    assert_eq!(host.waiting(), Bytes(200 * PIECE), "{:?}", host.live.explain());
    host.failure = None;
    host.pass(7_200);
    assert_eq!((host.untrimmed(), host.sent_twice - before), (0, 0));
}

#[test]
fn tracepoints_are_advised_only_where_they_are_not_in_use() {
    for reported in [false, true] {
        let mut host = host("judicious", XFS);
        host.told.fill(false);
        host.live.report_failures(reported);
        host.proven_permille = Some(0);
        host.pass(600);
        let said = host.live.explain().join(" ");
        assert!(said.contains("more not known to be trimmed."), "{said}");
        assert_eq!(said.contains("would show discards that fail"), !reported, "{said}");
    }
}

#[test]
fn errors_of_the_device_make_it_send_all_again_once_a_day_at_most() {
    let mut host = host("judicious", XFS);
    host.pass(7_200);
    let mut sent_after_an_error = |seconds: u64| {
        let before = host.sent;
        host.live.device_failed("discards failed".into());
        host.pass(seconds);
        host.sent - before
    };
    for (seconds, pieces) in [(7_200, PIECES as u64), (7_200, 0), (72_000, 0), (7_200, PIECES as u64)] {
        assert_eq!(sent_after_an_error(seconds), pieces, "within {seconds} s");
    }
}

/// A day in which files come and go: `burst` pieces at a time, each `every` seconds, in extents of `extent` pieces that are
/// drawn from everywhere. Returns what was sent for each piece that the device did not know, in thousandths.
fn churned(mut host: FakeHost, burst: usize, extent: usize, every: u64) -> (u64, FakeHost) {
    let mut drawn = 1_u64;
    let mut draw = |below: usize| {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (drawn >> 33) as usize % below
    };
    (host.tells, host.commits, host.sends_tail) = (true, true, true);
    host.live.watch_frees(true);
    host.allocate(0, PIECES * 7 / 10);
    host.pass(900);
    host.load = 40;
    (host.sent, host.sent_twice) = (0, 0);
    for _ in 0..86_400 / every {
        let used = |host: &FakeHost| host.used.iter().filter(|&&used| used).count();
        for _ in 0..burst / extent {
            let at = draw(PIECES - extent);
            if used(&host) > PIECES * 7 / 10 {
                host.free(at, extent);
            } else {
                host.allocate(at, extent);
            }
        }
        host.pass(every);
        assert!(host.waiting() <= host.live.bound(), "{:?}", host.live.explain());
    }
    (host.sent * 1000 / (host.sent - host.sent_twice).max(1), host)
}

#[test]
fn regression_under_churn_hardly_more_is_sent_than_the_device_does_not_know() {
    for (burst, extent, every) in [(2, 1, 1), (8, 4, 3), (64, 4, 60), (256, 16, 300)] {
        let (permille, host) = churned(host("judicious", EXT4), burst, extent, every);
        let of = (burst, extent, every);
        assert!(permille <= 1150, "{of:?}: {permille} permille: {:?}", host.live.explain());
    }
}

#[test]
fn regression_asked_for_it_sends_all_that_is_free_whatever_is_believed() {
    for cut in [XFS, EXT4] {
        let mut host = host("judicious", cut);
        host.allocate(0, 1000);
        host.pass(600);
        assert_eq!(host.waiting(), Bytes(0));
        host.told.fill(false);
        host.live.trim_now();
        assert!(host.pass_while_asked(600));
        assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
    }
}

/// Utilization falls at once; the map follows with the commit, and a map that was read between says nothing of it.
#[test]
fn regression_what_is_freed_is_found_though_the_map_lags_behind() {
    for (cut, commit_s) in [(EXT4, 5), (XFS, 30)] {
        let mut host = host("judicious", cut);
        host.map_lags = SimDuration::from_secs(commit_s);
        host.allocate(0, 3000);
        host.pass(1000);
        let before = host.sent;
        host.free(0, 1000);
        host.pass(150);
        assert_eq!((host.untrimmed(), host.sent - before), (0, 1000), "{:?}", host.live.explain());
    }
}

/// XFS of some kernels sends whole extents. What is freed next to large ones that were sent waits until it is worth a
/// slice.
#[test]
fn a_kernel_that_sends_whole_extents_is_noticed_and_sent_twice_as_much_at_most() {
    let mut host = host("judicious", XFS);
    host.sends_whole = true;
    host.told.fill(false);
    host.allocate(0, 2000);
    host.pass(900);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
    let backlog = host.sent;
    assert!(backlog <= 2 * 2096, "{backlog}");
    for _ in 0..20 {
        host.free(1900, 100); // next to the large one
        host.pass(900);
        assert!(host.untrimmed() <= 100 && host.waiting() == Bytes(100 * PIECE));
        host.allocate(1900, 100);
        host.pass(100);
    }
    assert_eq!(host.sent, backlog, "{:?}", host.live.explain());
    host.free(0, 1000); // by itself
    host.pass(900);
    assert_eq!((host.untrimmed(), host.sent - backlog), (0, 1000), "{:?}", host.live.explain());
    host.free(1000, 950);
    host.pass(900);
    assert!(host.waiting() <= host.live.bound(), "the bound goes before: {:?}", host.live.explain());
}

/// What comes and goes between two maps is at the same places in both: only utilization shows it.
#[test]
fn what_came_and_went_between_two_maps_is_found_when_it_is_as_much_as_what_is_sent_again() {
    let mut host = host("judicious", XFS);
    host.allocate(0, 3800);
    host.pass(300);
    let before = host.sent_twice;
    for _ in 0..3 {
        host.allocate(3800, 100);
        host.pass(1);
        host.free(3800, 100);
        host.pass(120);
    }
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
    assert!(host.sent_twice - before <= host.freed, "{} {}", host.sent_twice - before, host.freed);
}

fn host_that_refuses() -> FakeHost {
    let mut host = host("judicious", XFS);
    host.told.fill(false);
    host.failure = Some(Failed::Never("Operation not supported".into()));
    host
}

#[test]
fn the_longest_extents_are_kept_in_their_order() {
    let span = |(start, end)| Span { start, end };
    let mut spans = [(0, 5), (10, 11), (20, 29), (30, 33)].map(span).to_vec();
    assert!(keep_longest(&mut spans, 2));
    assert_eq!(spans, [(0, 5), (20, 29)].map(span));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens: one thing at a time, no slice under pressure (both asserted by the host), nothing sent twice, and
    /// in the end nothing untrimmed but what came and went between two maps.
    #[test]
    fn any_history_ends_well(
        steps in prop::collection::vec(step(), 1..40),
        policy in prop::sample::select(vec!["judicious", "lazy+reuse", "set:40:90", "batch:5m", "off"]),
        groups in any::<bool>(),
    ) {
        let mut host = host(policy, if groups { EXT4 } else { XFS });
        host.told.fill(false);
        // A request sends everything once more.
        let count = |wanted: fn(&Step) -> bool| steps.iter().filter(|&step| wanted(step)).count() as u64;
        let asked = count(|step| matches!(step, Step::Now)) * PIECES as u64;
        // A sweep does not wait until a group is worth it: ext4 is asked for the group's end too, so that it remembers it.
        let ends = if groups && policy == "batch:5m" { count(|step| matches!(step, Step::Free(..))) * GROUP } else { 0 };
        for step in steps {
            host.take_step(step);
            prop_assert!(host.live.explain().iter().all(|sentence| sentence.ends_with('.')));
        }
        // What is freed behind the last map may be sent along with what waited there.
        prop_assert!(host.sent_twice <= host.freed * 6 / 5 + asked + ends, "{} of {}", host.sent_twice, host.sent);
        host.live.pause(false);
        (host.load, host.sample.pressure_permille) = (0, 0);
        host.live.trim_now();
        host.pass(600);
        prop_assert_eq!(host.waiting(), Bytes(0));
        prop_assert_eq!(host.left(), Bytes(0));
    }

    /// Against one flag a piece: what waits is what is free and was never in a slice since it was last in use.
    #[test]
    fn free_space_is_kept_as_a_flat_map_would(
        maps in prop::collection::vec(prop::collection::vec(any::<bool>(), 64), 1..6),
        bytes_max in 1u64..40, extents_max in 1u64..10, groups in any::<bool>(),
    ) {
        let cut = if groups { Cut::Groups { first: 0, bytes: 8 } } else { Cut::Anywhere { align: 1 } };
        let mut space = FreeSpace::new(SPANS_MAX);
        let mut trimmed = [false; 64];
        let (mut sent, mut sent_twice) = (0, 0);
        for map in maps {
            learn(&mut space, &mut trimmed, &map);
            let expected = untrimmed(&trimmed, &map);
            prop_assert_eq!(space.waiting(), Bytes(expected));
            if let Some((slice, covered)) = space.next_slice(cut, Bytes(bytes_max), extents_max, false) {
                prop_assert!(slice.extents <= extents_max && slice.extents >= 1);
                let most = bytes_max.max(if groups { 8 } else { 1 });
                prop_assert!(slice.bytes.0 <= most);
                let (mut in_ranges, before) = (0, sent_twice);
                for range in &slice.ranges {
                    for at in range.start..range.end.min(64) {
                        let at = at as usize;
                        let is_twice = map[at] && trimmed[at];
                        prop_assert!(groups || !is_twice, "sent twice: {:?} {:?}", slice, trimmed);
                        sent_twice += u64::from(is_twice);
                        in_ranges += u64::from(map[at]);
                        trimmed[at] |= map[at];
                    }
                }
                prop_assert_eq!(in_ranges - (sent_twice - before), slice.bytes.0);
                sent += slice.bytes.0;
                prop_assert!(sent_twice * 5 <= sent, "{} of {}", sent_twice, sent);
                space.done(&covered, true);
            } else if groups {
                let all = space.next_slice(cut, Bytes(bytes_max), extents_max, true);
                prop_assert_eq!(all.is_some(), expected > 0);
            } else {
                prop_assert_eq!(expected, 0);
            }
        }
    }

    /// Whole extents: each slice is of such, in none less than half was waiting, and with `any` nothing is left over.
    #[test]
    fn whole_extents_are_sent_if_half_of_them_waits(
        maps in prop::collection::vec(prop::collection::vec(any::<bool>(), 64), 1..6),
        bytes_max in 1u64..40, extents_max in 1u64..10, any in any::<bool>(),
    ) {
        let mut space = FreeSpace::new(SPANS_MAX);
        let mut trimmed = [false; 64];
        for map in maps {
            let free = learn(&mut space, &mut trimmed, &map);
            while let Some((slice, covered)) =
                space.next_slice(Cut::Nowhere, Bytes(bytes_max), extents_max, any)
            {
                prop_assert!(slice.extents <= extents_max && slice.ranges.len() as u64 == slice.extents);
                prop_assert!(slice.ranges.iter().all(|range| free.contains(range)), "{:?}", slice);
                let (mut waited, mut sent) = (0, 0);
                for at in slice.ranges.iter().flat_map(|range| range.start as usize..range.end as usize) {
                    sent += 1;
                    waited += u64::from(!std::mem::replace(&mut trimmed[at], true));
                }
                prop_assert_eq!(waited, slice.bytes.0);
                prop_assert!(any || 2 * waited >= sent, "{:?}", slice);
                prop_assert!(slice.extents == 1 || sent <= bytes_max);
                space.done(&covered, true);
            }
            let left = untrimmed(&trimmed, &map);
            prop_assert_eq!(space.waiting(), Bytes(left));
            prop_assert!(!any || left == 0);
        }
    }
}

/// A map comes, for both: what is in use is no longer trimmed. Returns its extents.
fn learn(space: &mut FreeSpace, trimmed: &mut [bool], map: &[bool]) -> Vec<Span> {
    let free = spans(map);
    space.learn(WHOLE, &free, false);
    trimmed.iter_mut().zip(map).for_each(|(trimmed, free)| *trimmed &= free);
    free
}

/// Pieces that are free and not trimmed.
fn untrimmed(trimmed: &[bool], map: &[bool]) -> u64 {
    map.iter().zip(trimmed).filter(|&(free, trimmed)| *free && !trimmed).count() as u64
}

fn spans(map: &[bool]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for at in (0..map.len() as u64).filter(|&at| map[at as usize]) {
        match spans.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => spans.push(Span { start: at, end: at + 1 }),
        }
    }
    spans
}

#[test]
fn fitrim_is_called_several_times_at_once_where_the_device_gains_and_somebody_waits() {
    for at_once in [1, 4] {
        let mut host = host("judicious", XFS);
        (host.at_once, host.load) = (at_once, 10);
        (0..PIECES).step_by(2).for_each(|at| host.allocate(at, 1));
        host.pass(600);
        assert!(host.slices.iter().all(|(_, slice)| slice.lanes == 1), "nobody waits");
        let before = host.slices.len();
        host.live.trim_now();
        host.pass(600);
        assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
        let lanes: Vec<u32> = host.slices[before..].iter().map(|(_, slice)| slice.lanes).collect();
        if at_once == 1 {
            assert_eq!(lanes.iter().filter(|&&lanes| lanes > 1).count(), 4, "a trial: {lanes:?}");
        } else {
            assert_eq!(lanes.last(), Some(&4), "{lanes:?}");
        }
    }
}

/// Small slices of a slow device send a few MiB too much each, which is many times what they were asked for.
#[test]
fn a_kernel_that_sends_whole_extents_is_noticed_by_small_slices_too() {
    let settings = Settings { slice_target: SimDuration::from_millis(1), ..Settings::default() };
    let mut host = FakeHost::new("judicious", facts(XFS), settings);
    host.sends_whole = true;
    host.told.fill(false);
    (0..PIECES).step_by(11).for_each(|at| host.allocate(at, 1));
    host.pass(20_000);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
    let free = (PIECES - PIECES.div_ceil(11)) as u64;
    assert!(host.sent <= 2 * free, "{} of {free}", host.sent);
}

/// Until a map is read nobody knows what is untrimmed. Status, explanation and JSON must not say 0 then.
#[test]
fn regression_untrimmed_space_that_nobody_has_read_is_unknown() {
    let untrimmed = |host: &FakeHost| {
        let status = host.live.status();
        let json = serde_json::to_value(&status).unwrap();
        (status.waiting_bytes, status.left_bytes, json["waiting_bytes"].clone(), json["left_bytes"].clone())
    };
    let unknown = (Untrimmed::Unknown, Untrimmed::Unknown, serde_json::Value::Null, serde_json::Value::Null);
    let known = |waiting: u64, left: u64| {
        let [waiting, left] = [waiting, left].map(|pieces| pieces * PIECE);
        (Untrimmed::Known(Bytes(waiting)), Untrimmed::Known(Bytes(left)), waiting.into(), left.into())
    };
    let mut new = host("judicious", XFS);
    assert_eq!(untrimmed(&new), unknown, "before the first sample");
    new.pass(10);
    assert_ne!(untrimmed(&new), unknown);
    // No map is read before the first sweep.
    let mut swept = host("batch:10m", XFS);
    swept.told.fill(false);
    swept.pass(590);
    assert_eq!(untrimmed(&swept), unknown);
    assert!(swept.live.explain().join(" ").contains("no map has been read"), "{:?}", swept.live.explain());
    swept.pass(300);
    assert_eq!(untrimmed(&swept), known(0, 0));
    // Without maps all free space counts, unless the kernel has told the device of a part of it.
    let no_maps = Facts { maps: false, ..facts(XFS) };
    let mut without = FakeHost::new("lazy", no_maps, Settings::default());
    without.pass(10);
    assert_eq!(untrimmed(&without), known(0, PIECES as u64));
    let mut online = FakeHost::new("lazy", no_maps, Settings::default());
    online.sample.online = true;
    online.allocate(0, 300);
    online.pass(10);
    assert_eq!(untrimmed(&online), unknown);
    online.sample.online = false;
    online.pass(5);
    online.free(0, 300);
    online.pass(5);
    assert_eq!(untrimmed(&online), unknown, "300 of an unknown number");
    let explained = online.live.explain().join(" ");
    assert!(explained.contains("online discard was on when trimwised started"), "{explained}");
    online.live.trim_now();
    assert_eq!(untrimmed(&online), known(PIECES as u64, 0), "all of it is to be sent");
    online.pass(2 * 3600);
    assert_eq!(untrimmed(&online), known(0, 0), "a walk has covered all of it");
}

/// It said "Next: a trim".
#[test]
fn regression_nothing_is_next_under_off() {
    for maps in [false, true] {
        let mut host = FakeHost::new("off", Facts { maps, ..facts(XFS) }, Settings::default());
        host.pass(60);
        assert_eq!(host.live.status().next, "nothing; the policy is off.");
        host.live.trim_now();
        let next = host.live.status().next;
        assert!(next.starts_with("a slice") || next.starts_with("a trim"), "{maps}: {next}");
    }
}
