//! What `LiveHost` does with frees that it is told of as they happen, on a made-up host.

use proptest::prelude::*;

use crate::live_host::{EXT4, FakeHost, PIECE, XFS, host, step};
use trimwise::live::{Cut, Order, Trimmed};
use trimwise::units::{Bytes, SimDuration, SimTime, Span};

fn host_that_tells(policy: &str, cut: Cut) -> FakeHost {
    let mut host = host(policy, cut);
    host.tells = true;
    host.live.watch_frees(true);
    host
}

#[test]
fn what_came_and_went_between_two_maps_is_trimmed_once_if_frees_are_told() {
    for tells in [false, true] {
        for cut in [XFS, EXT4] {
            let mut host = if tells { host_that_tells("judicious", cut) } else { host("judicious", cut) };
            host.allocate(0, 1000);
            host.pass(300);
            let (sent, looks) = (host.sent, host.live.totals().looks);
            let reused = host.live.totals().reused_bytes;
            for _ in 0..5 {
                host.allocate(2000, 100);
                host.free(2000, 100);
                host.pass(300);
            }
            let told = host.live.totals().told_freed_bytes;
            if tells {
                // On ext4 the last of it may wait until it is worth the trimmed part behind it.
                let waits = host.waiting().0 / PIECE;
                assert_eq!((host.untrimmed(), told), (waits, 500 * PIECE), "{:?}", host.live.explain());
                assert!(waits == 0 || (cut == EXT4 && waits <= 100), "{waits}");
                assert!(host.live.totals().looks > looks);
                // ext4 sends what lies in the same group too, if it is asked for whole.
                // What was put off and came into use again need not be sent.
                let reused = (host.live.totals().reused_bytes - reused) / PIECE;
                assert!(reused == 0 || cut == EXT4, "{reused}");
                let sent = host.sent - sent + waits + reused;
                assert!((500..=700).contains(&sent), "{sent}");
            } else {
                assert_eq!((host.untrimmed(), host.sent, told), (100, sent, 0), "the control");
            }
        }
    }
}

#[test]
fn what_is_freed_again_while_it_is_trimmed_is_trimmed_once_more() {
    let mut host = host_that_tells("judicious", XFS);
    host.allocate(0, 4000);
    host.pass(300);
    host.free(100, 64);
    while !matches!(host.under_way, Some((Order::Trim(_), _))) {
        let mut orders = Vec::new();
        host.now += SimDuration::from_millis(100);
        host.live.sample(host.now, host.sample, &mut orders);
        host.take(orders);
        if matches!(host.under_way, Some((Order::Look { .. }, _))) {
            host.finish();
        }
        assert!(host.now < SimTime::ZERO + SimDuration::from_secs(3000), "{:?}", host.live.explain());
        host.sample.used = Bytes(host.sample.used.0 ^ (100 * PIECE)); // so that a map is due
    }
    // The slice is on its way, and has been where it was to go; then this comes and goes.
    let Some((Order::Trim(slice), at)) = host.under_way.take() else { unreachable!() };
    let sent = host.fitrim(&slice) / PIECE;
    host.allocate(110, 10);
    host.free(110, 10);
    let mut orders = Vec::new();
    host.live.trimmed(at, SimDuration::from_millis(10), Ok(Trimmed::all(slice.bytes)), &mut orders);
    host.take(orders);
    assert!((1..=64).contains(&sent) && host.untrimmed() >= 10, "{sent} {}", host.untrimmed());
    host.pass(900);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
}

/// With frees told, utilization is no reason to forget anything; behind lost ones it is.
#[test]
fn lost_frees_fall_back_on_maps_and_utilization() {
    for lost in [0, 7] {
        let mut host = host_that_tells("judicious", XFS);
        host.allocate(0, 3800);
        host.pass(300);
        let before = host.sent_twice;
        for _ in 0..3 {
            host.tells = lost == 0;
            host.allocate(3800, 100);
            host.pass(1);
            host.free(3800, 100);
            if lost > 0 {
                host.live.frees_lost(lost);
            }
            host.pass(120);
        }
        assert_eq!(host.untrimmed(), 0, "{lost}: {:?}", host.live.explain());
        assert_eq!(host.live.totals().frees_lost, 3 * lost);
        let said = host.live.explain().join(" ");
        let words = if lost > 0 { "except for 21 that were lost" } else { "Each free is seen as it happens" };
        assert!(said.contains(words), "{said}");
        if lost == 0 {
            assert_eq!(host.sent_twice, before, "nothing is forgotten");
        }
    }
}

/// What may have come and gone unseen is sent once more in a week; where each free was told, there is no such thing.
#[test]
fn a_week_of_told_frees_is_no_reason_to_send_all_again() {
    const WEEK: u64 = 7 * 86_400;
    for tells in [false, true] {
        let mut host = if tells { host_that_tells("judicious", XFS) } else { host("judicious", XFS) };
        host.allocate(0, 1000);
        host.pass(300);
        host.pass(WEEK); // before the first map no free was reported
        let sent = host.sent;
        host.pass(WEEK);
        assert_eq!(host.sent > sent, !tells, "{tells}: {} {sent}", host.sent);
    }
}

/// ext4 tells of a free before its blocks are free: a map in between is followed by another one, and no slice that passes
/// over them counts.
#[test]
fn a_free_that_no_map_shows_yet_is_looked_for_once_more() {
    let mut host = host_that_tells("judicious", EXT4);
    host.commits = true;
    host.allocate(0, 1000);
    host.pass(300);
    host.free(0, 100);
    let freeing = std::mem::take(&mut host.committing);
    host.pass(120); // a map, in which they are in use
    let looks = host.live.totals().looks;
    host.committing = freeing;
    host.pass(900);
    assert!(host.live.totals().looks > looks);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
    let looks = host.live.totals().looks;
    host.pass(3600);
    assert_eq!(host.live.totals().looks, looks, "and not for ever");
}

/// What comes free inside a slice's range after its map is sent with the slice. That is no sign of a kernel that sends whole
/// extents beyond the range, of which all would then count as trimmed.
#[test]
fn regression_frees_that_commit_before_their_slice_are_no_overshoot() {
    use crate::live_host::Step::{Allocate, Free, Pass, Pause};
    let mut host = host_that_tells("judicious", XFS);
    host.commits = true;
    host.told.fill(false);
    for step in [
        Pause(true),
        Allocate(2323, 253),
        Pass(76),
        Allocate(0, 65),
        Allocate(1922, 275),
        Allocate(2261, 1),
        Free(1931, 456),
    ] {
        host.take_step(step);
    }
    host.live.pause(false);
    host.pass(3000);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With each free told, nothing is left untrimmed, whatever came and went between two maps; but for what waits on ext4
    /// until it is worth the trimmed part behind it, and that is known.
    #[test]
    fn told_of_each_free_it_trims_all_of_it(
        steps in prop::collection::vec(step(), 1..40), groups in any::<bool>(), commits in any::<bool>(),
    ) {
        let mut host = host_that_tells("judicious", if groups { EXT4 } else { XFS });
        host.commits = commits;
        host.told.fill(false);
        for step in steps {
            host.take_step(step);
        }
        host.live.pause(false);
        (host.load, host.sample.pressure_permille) = (0, 0);
        host.pass(3000);
        // What was used and freed while a slice was under way may have been sent by it. Nobody knows, so it waits.
        prop_assert!(host.untrimmed() * PIECE <= host.waiting().0, "{:?}", host.live.explain());
        prop_assert!(host.waiting().0 == 0 || groups && host.waiting() <= host.live.bound());
        host.live.trim_now();
        prop_assert!(host.pass_while_asked(3000));
        prop_assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
    }
}

/// Where each free is told nothing is forgotten, except what the device may not have taken.
#[test]
fn what_is_unverified_is_sent_again_in_a_week_even_if_each_free_is_told() {
    let mut host = host_that_tells("judicious", XFS);
    host.allocate(0, 3800);
    host.pass(7 * 86_400 + 3_600); // before the first map no free was reported
    host.allocate(3800, 50);
    host.pass(120);
    host.proven_permille = Some(0);
    host.free(3800, 50);
    host.pass(1_200);
    assert_eq!(host.left(), Bytes(50 * PIECE), "{:?}", host.live.explain());
    host.proven_permille = None;
    let before = host.sent;
    host.pass(6 * 86_400);
    assert_eq!((host.sent - before, host.left()), (0, Bytes(50 * PIECE)), "not before");
    // A restart keeps what of it is unverified.
    let known = host.live.known().unwrap();
    let bytes = |spans: &[Span]| spans.iter().map(|span| span.bytes().0).sum::<u64>();
    assert_eq!(bytes(&known.unverified), 50 * PIECE);
    assert!(bytes(&known.trimmed) > 50 * PIECE);
    host.pass(86_400 + 7_200);
    assert_eq!((host.sent - before, host.left()), (50, Bytes(0)), "{:?}", host.live.explain());
}
