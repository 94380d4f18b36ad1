//! Decisions of `LiveHost` where the space is lent: what is free goes back, even if the host is never quiet.

use proptest::prelude::*;

use crate::live_host::{EXT4, FakeHost, PIECE, Step, XFS, facts, step};
use trimwise::live::{Facts, Failed, Lender, Lent, Level, Reason, Settings};
use trimwise::units::{Bytes, SimDuration, SimTime};

const HOUR: u64 = 3_600;

fn lent() -> Settings {
    Settings { lent: Some(Lent::default()), ..Settings::default() }
}

/// A host that is never quiet, and whose device knows of all free space but `untrimmed` pieces.
fn busy(policy: &str, facts: Facts, settings: Settings, untrimmed: usize) -> FakeHost {
    let mut host = FakeHost::new(policy, facts, settings);
    host.allocate(0, 2000);
    host.pass(300);
    (host.load, host.sample.pressure_permille) = (5000, 900);
    host.pass(30);
    host.free(500, untrimmed);
    host
}

fn pool(used_percent: u64, is_low: bool) -> Option<Lender> {
    let level = Level {
        used_bytes: Bytes(used_percent << 30),
        size_bytes: Bytes::gib(100),
        metadata_percent: Some(12),
        is_low,
        is_stopped: false,
    };
    Some(Lender { name: "thin pool vg-pool".into(), level: Some(level), ..Lender::default() })
}

#[test]
fn what_is_held_beyond_use_stays_below_its_bound_on_a_busy_host() {
    let untrimmed = |settings| {
        let mut host = busy("judicious", facts(XFS), settings, 1000);
        host.pass(900);
        (host.live.bound().0 / PIECE, host.untrimmed())
    };
    let (bound, held) = untrimmed(lent());
    assert!(bound == 81 && held > 0 && held <= bound, "{held} of {bound}");
    let (of_drive, held) = untrimmed(Settings::default());
    assert!(of_drive == 409 && held > bound, "{held}");
    // The smaller bound counts.
    let strict = Settings { untrimmed_max_permille: 10, ..lent() };
    assert_eq!(untrimmed(strict).0, 40);
}

/// Little is freed at a time, so it stays below the bound, and each map finds some more.
#[test]
fn what_was_freed_is_given_back_by_its_deadline_though_the_host_is_never_quiet() {
    let deadline = SimDuration::from_secs(4 * HOUR);
    let oldest = |policy: &str, facts: Facts, settings| {
        let mut host = busy(policy, facts, settings, 10);
        let mut oldest = SimDuration::ZERO;
        for round in 0..20 * HOUR / 600 {
            host.free(600 + round as usize * 2, 2);
            host.pass(600);
            let untold = (0..2000).filter(|&at| !host.used[at] && !host.told[at]);
            let ages = untold.map(|at| host.now.since(host.freed_at[at].unwrap()));
            oldest = ages.fold(oldest, SimDuration::max);
            let overdue = matches!(host.live.reason(), Reason::Overdue { .. });
            assert!(!overdue || host.live.explain().join(" ").contains("(`held-for-max-s`)"));
        }
        assert!(host.sent > 0, "{:?}", host.live.explain());
        oldest
    };
    let settings = Settings { lent: Some(Lent { held_for_max: deadline, ..Lent::default() }), ..lent() };
    for (policy, facts) in [
        ("judicious", facts(XFS)),
        ("judicious", facts(EXT4)),
        ("lazy", facts(EXT4)),
        // A walk over all addresses.
        ("judicious", Facts { maps: false, ..facts(XFS) }),
    ] {
        let held_for = oldest(policy, facts, settings);
        assert!(held_for <= deadline, "{policy}, {facts:?}: {} s", held_for.as_secs_f64());
        // It does not hurry either.
        assert!(held_for * 2 > deadline, "{policy}, {facts:?}: {} s", held_for.as_secs_f64());
    }
    let of_drive = oldest("judicious", facts(XFS), Settings::default());
    assert!(of_drive > deadline * 4, "{} s", of_drive.as_secs_f64());
}

fn unbounded(held_for_max: SimDuration) -> Settings {
    let lent = Lent { held_max_permille: 1000, held_for_max };
    Settings { untrimmed_max_permille: 1000, lent: Some(lent), ..Settings::default() }
}

/// Slices of 20 ms, for which there is half of the time: rests are as long as that allows until the end.
#[test]
fn a_sweep_of_many_slices_ends_before_its_deadline() {
    for (maps, used, deadline_s) in [(true, 2000, 600), (false, 2000, 600), (false, 3600, 100)] {
        let deadline = SimDuration::from_secs(deadline_s);
        let settings = Settings { slice_target: SimDuration::from_millis(20), ..unbounded(deadline) };
        let mut host = FakeHost::new("judicious", Facts { maps, ..facts(XFS) }, settings);
        host.allocate(0, used);
        host.told.fill(false);
        (host.load, host.sample.pressure_permille) = (5000, 900);
        host.pass(deadline_s / 2 - 1);
        assert_eq!(host.sent, 0, "{maps}, {used}");
        host.pass(deadline_s / 2 + 1);
        assert_eq!(host.untrimmed(), 0, "{maps}, {used}: {:?}", host.live.explain());
        let [first, last] = [host.slices.first(), host.slices.last()].map(|slice| slice.unwrap().0);
        let took = last.since(first);
        assert!(took * 4 > deadline, "{maps}, {used}: {} s", took.as_secs_f64());
    }
}

/// Otherwise a host that frees without end would be disturbed without end.
#[test]
fn a_sweep_for_a_deadline_ends_though_ever_more_is_freed() {
    // A slice takes a piece, and there is hardly one a second.
    let settings =
        Settings { slice_target: SimDuration::from_millis(1), ..unbounded(SimDuration::from_secs(4 * HOUR)) };
    let mut host = busy("judicious", facts(XFS), settings, 10);
    let mut disturbed = 0;
    for minute in 0..20 * 60 {
        let (slices, at) = (host.slices.len(), minute % 20 * 80);
        host.free(at, 80);
        host.allocate((at + 800) % 1600, 80);
        host.pass(60);
        disturbed += u32::from(host.slices.len() > slices);
    }
    assert!(disturbed > 30 && disturbed < 4 * 60, "{disturbed} of {} minutes", 20 * 60);
}

/// All that is freed is trimmed in quiet times, though there is always something that no map has shown yet.
#[test]
fn a_quiet_host_never_comes_near_a_deadline() {
    let mut host = FakeHost::new("judicious", facts(XFS), unbounded(SimDuration::from_secs(4 * HOUR)));
    host.allocate(0, 2000);
    for at in (0..6 * HOUR as usize).step_by(2) {
        host.free(at * 2 % 2000, 1);
        host.pass(1);
        host.allocate((at * 2 + 1000) % 2000, 1);
        host.pass(1);
    }
    assert!(host.slices.len() > 20, "{}", host.slices.len());
    assert!(!host.reasons.iter().any(|reason| matches!(reason, Reason::Overdue { .. })));
}

#[test]
fn low_water_gives_back_all_at_once_and_once_only() {
    for facts in [facts(XFS), facts(EXT4), Facts { maps: false, ..facts(XFS) }] {
        let mut host = busy("judicious", facts, lent(), 20);
        host.pass(1200);
        host.live.see_lender(pool(79, false));
        host.pass(1200);
        let before = host.slices.len();
        assert_eq!(host.untrimmed(), 20, "below low water there is no hurry: {:?}", host.live.explain());
        host.live.see_lender(pool(80, true));
        host.pass(2);
        assert_eq!(
            host.live.reason(),
            &Reason::LowWater {
                lender: "thin pool vg-pool".into(),
                used_percent: 80,
                metadata_percent: Some(12)
            }
        );
        let why = host.live.reason().to_string();
        assert!(why.contains("thin pool vg-pool is 80 % full, 12 % of its metadata"), "{why}");
        // All 2,116 pieces, at 1 ms each and without a rest.
        host.pass(10);
        assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
        let (slices, sent) = (host.slices.len(), host.sent);
        assert!(slices > before);
        host.pass(12 * HOUR);
        assert_eq!((host.slices.len(), host.sent), (slices, sent), "{:?}", host.live.explain());
        // What is freed then goes back with the next map, without what went back before; walks are rarer.
        host.free(600, 5);
        host.pass(if facts.maps { 70 } else { HOUR });
        assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
        if facts.maps {
            assert_eq!(host.sent, sent + 5);
        }
        let sent = host.sent;
        // The pool goes back and forth over its mark.
        for minute in 0..600 {
            host.live.see_lender(pool(79 + minute % 2, minute % 2 == 1));
            host.pass(60);
        }
        assert_eq!(host.sent, sent, "{:?}", host.live.explain());
    }
}

/// What the map shows later than utilization is found by a second look.
#[test]
fn low_water_gives_back_what_the_map_does_not_show_yet() {
    let mut host = busy("judicious", facts(XFS), lent(), 0);
    host.map_lags = SimDuration::from_secs(20);
    host.live.see_lender(pool(90, true));
    host.pass(300);
    host.free(600, 5);
    host.pass(130);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
}

#[test]
fn low_water_trims_despite_online_discard_and_sweeps_but_not_under_off_nor_during_a_pause() {
    let online = |host: &mut FakeHost| host.sample.online = true;
    let nothing = |_: &mut FakeHost| {};
    let paused = |host: &mut FakeHost| host.live.pause(true);
    type Then = fn(&mut FakeHost);
    for (policy, then, is_trimmed) in [
        ("judicious", online as Then, true),
        ("batch:1w", nothing as Then, true),
        ("off", nothing, false),
        ("judicious", paused, false),
    ] {
        let mut host = busy(policy, facts(EXT4), lent(), 20);
        host.pass(600);
        then(&mut host);
        host.pass(5);
        let before = host.sent;
        host.live.see_lender(pool(95, true));
        host.pass(60);
        assert_eq!(host.sent > before, is_trimmed, "{policy}: {:?}", host.live.explain());
        assert_eq!(host.untrimmed() == 0, is_trimmed, "{policy}: {:?}", host.live.explain());
    }
}

#[test]
fn off_stays_off_where_space_is_lent() {
    for maps in [true, false] {
        let mut host = busy("off", Facts { maps, ..facts(XFS) }, lent(), 0);
        host.live.trim_now();
        assert!(host.pass_while_asked(600), "{maps}: {:?}", host.live.explain());
        let sent = host.sent;
        host.free(0, 1500);
        host.pass(36 * HOUR);
        let explained = host.live.explain().join(" ");
        assert_eq!(host.sent, sent, "{maps}: {explained}");
        assert!(
            explained.contains("Its space is lent.") && !explained.contains("the bound is"),
            "{explained}"
        );
    }
}

/// A pool that takes no writes may refuse discards, too.
#[test]
fn low_water_does_not_try_again_without_end() {
    for drops in [false, true] {
        let mut host = busy("judicious", facts(XFS), lent(), 20);
        host.drops = drops;
        host.failure = (!drops).then(|| Failed::Device("FITRIM: Input/output error".into()));
        let before = host.slices.len();
        host.live.see_lender(pool(100, true));
        host.pass(HOUR);
        assert!(host.slices.len() - before < 16, "{drops}: {}", host.slices.len() - before);
        assert!(host.live.reason().is_trouble(), "{:?}", host.live.explain());
        (host.drops, host.failure) = (false, None);
        host.pass(2 * HOUR);
        assert_eq!(host.untrimmed(), 0, "{drops}: {:?}", host.live.explain());
    }
}

#[test]
fn status_and_explain_say_who_lends_and_what_is_held_or_that_it_is_unknown() {
    let mut host = busy("judicious", facts(XFS), lent(), 20);
    let said = |host: &mut FakeHost, lender| {
        host.live.see_lender(lender);
        host.pass(1);
        let status = serde_json::to_value(host.live.status()).unwrap();
        let keys = ["purpose", "lender", "held_beyond_use_bytes"].map(|key| status[key].to_string());
        (keys, host.live.explain().join(" "))
    };
    let (keys, explained) = said(&mut host, None);
    assert_eq!(keys, ["\"space\"", "null", "null"]);
    assert!(
        explained.contains("Its space is lent: at most 81.9 MiB of free space stay untrimmed"),
        "{explained}"
    );
    assert!(explained.contains("none longer than 24 h."), "{explained}");
    let unknown = Lender {
        name: "VDO vg-vdo".into(),
        why_unknown: Some("dmsetup: Permission denied".into()),
        ..Lender::default()
    };
    let (keys, explained) = said(&mut host, Some(unknown));
    assert!(keys[1].contains("\"level\":null") && keys[2] == "null", "{keys:?}");
    assert!(
        explained.contains("by VDO vg-vdo (how full is unknown: dmsetup: Permission denied):"),
        "{explained}"
    );
    let used = host.live.status().used_bytes.0;
    let mut stopped = pool(100, true).unwrap();
    stopped.held_bytes = Some(Bytes(used + (20 << 20)));
    stopped.level.as_mut().unwrap().is_stopped = true;
    let (keys, explained) = said(&mut host, Some(stopped));
    assert_eq!(keys[2], (20 << 20).to_string());
    assert!(explained.contains("100 % full, 12 % of its metadata; it takes no more writes"), "{explained}");
    assert!(explained.contains("20 MiB more than is used."), "{explained}");

    let mut plain = busy("judicious", facts(XFS), Settings::default(), 20);
    let (keys, explained) = said(&mut plain, None);
    assert_eq!(keys, ["\"flash\"", "null", "null"]);
    assert!(!explained.contains("lent"), "{explained}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is known of a lender changes nothing where trims are for the drive.
    #[test]
    fn nothing_changes_without_the_purpose(steps in prop::collection::vec(step(), 1..30)) {
        let ran = |lender: Option<Lender>| {
            let mut host = FakeHost::new("judicious", facts(EXT4), Settings::default());
            steps.iter().cloned().for_each(|one| {
                host.live.see_lender(lender.clone());
                host.take_step(one);
            });
            (host.slices, host.looked_from, host.live.explain())
        };
        prop_assert_eq!(ran(None), ran(pool(100, true)));
    }

    /// Whatever happens, all that is free has gone back a day later.
    #[test]
    fn whatever_happens_all_goes_back(steps in prop::collection::vec(step(), 1..30), is_low in any::<bool>()) {
        let mut host = FakeHost::new("judicious", facts(XFS), lent());
        // What comes and goes within a second is not seen otherwise.
        host.tells = true;
        host.live.watch_frees(true);
        host.told.fill(false);
        for one in steps {
            host.take_step(one);
        }
        host.take_step(Step::Pause(false));
        (host.load, host.sample.pressure_permille) = (5000, 900);
        host.live.see_lender(pool(90, is_low));
        host.pass(if is_low { 120 } else { 24 * HOUR });
        prop_assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
        prop_assert!(host.now > SimTime::ZERO);
    }
}
