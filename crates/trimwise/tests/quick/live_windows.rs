//! `LiveHost` where there are more free extents than one map has, and where there are no maps: rounds and walks.

use proptest::prelude::*;

use crate::live_host::{EXT4, FakeHost, PIECE, PIECES, Step, XFS, facts, step};
use trimwise::live::{Cut, Facts, Failed, FreeSpace, Order, Reason, SPANS_MAX, Settings, WHOLE, spans_each};
use trimwise::units::{Bytes, Span};

/// Few spans are kept, so that a made-up host has more.
fn host_of_windows(policy: &str, cut: Cut, spans_max: usize) -> FakeHost {
    FakeHost::new(policy, Facts { spans_max, ..facts(cut) }, Settings::default())
}

/// A file system of which every `each`th piece is free.
fn scatter(host: &mut FakeHost, each: usize) -> u64 {
    host.told.fill(false);
    host.allocate(0, PIECES);
    (0..PIECES).step_by(each).for_each(|at| host.used[at] = false);
    PIECES.div_ceil(each) as u64
}

#[test]
fn everything_is_trimmed_once_in_a_round_and_the_next_begins_when_as_much_is_freed_as_is_forgotten() {
    for cut in [XFS, EXT4] {
        let mut host = host_of_windows("judicious", cut, 100);
        let free = scatter(&mut host, 4);
        host.pass(3 * 3600);
        assert_eq!((host.untrimmed(), host.sent, host.sent_twice), (0, free, 0), "{:?}", host.live.explain());
        let looks = host.looked_from.clone();
        assert!(looks.len() >= 11 && looks[0] == 0 && looks.is_sorted(), "{looks:?}");
        let explained = host.live.explain().join(" ");
        assert!(explained.contains("more free extents than the 100"), "{explained}");
        assert_eq!(host.live.status().round_permille, Some(1000));
        let known = host.live.known().unwrap().trimmed;
        assert!(known.len() <= 100, "{}", known.len());

        // What is forgotten would look fresh.
        host.free(1, 100);
        host.pass(6 * 3600);
        assert_eq!((host.looked_from.len(), host.sent), (looks.len(), free), "{:?}", host.live.explain());
        let before = host.sent;
        host.free(400, 3600);
        host.pass(86_400);
        assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
        assert!(host.sent - before <= 2 * host.freed, "{} of {}", host.sent - before, host.freed);
    }
}

#[test]
fn what_fits_into_one_map_is_no_round() {
    let mut host = host_of_windows("judicious", XFS, PIECES);
    scatter(&mut host, 4);
    host.pass(3600);
    assert_eq!((host.untrimmed(), host.live.status().round_permille), (0, None));
    assert!(!host.live.explain().join(" ").contains("more free extents"));
}

#[test]
fn whoever_asks_for_all_of_it_gets_all_windows_and_a_week_forgets_all() {
    let mut host = host_of_windows("off", EXT4, 50);
    let free = scatter(&mut host, 4);
    host.pass(10);
    host.live.trim_now();
    host.pass(300);
    assert_eq!((host.untrimmed(), host.sent, host.sent_twice), (0, free, 0), "{:?}", host.live.explain());
    assert!(!host.live.is_asked());

    let mut host = host_of_windows("judicious", XFS, 50);
    let free = scatter(&mut host, 4);
    host.pass(10 * 3600);
    host.pass(8 * 86_400);
    assert_eq!((host.sent, host.sent_twice), (2 * free, free), "as fstrim does each week");
}

#[test]
fn batches_sweep_all_windows() {
    let mut host = host_of_windows("batch:10m", XFS, 50);
    let free = scatter(&mut host, 4);
    host.pass(590);
    assert_eq!(host.sent, 0);
    host.pass(300);
    assert_eq!((host.untrimmed(), host.sent_twice), (0, 0), "{:?}", host.live.explain());
    assert!(host.sent == free && host.looked_from.len() >= 20, "{:?}", host.looked_from);
}

/// What waits half an hour after `trim_now` is no rest of it: nearly all that was sent is forgotten at once here, so each
/// sweep sends it again, one slice a second.
#[test]
fn regression_whoever_asks_during_a_sweep_gets_all_of_it_and_the_next_sweep_comes_at_its_time() {
    let mut host = host_of_windows("batch:5m", XFS, 1);
    let free = scatter(&mut host, 2);
    host.pass(118 + 184);
    assert!(host.sent > 0 && host.waiting() > Bytes(0), "in a sweep: {:?}", host.live.explain());
    host.live.trim_now();
    assert!(host.pass_while_asked(60), "{:?}", host.live.explain());
    let figures = |host: &FakeHost| (host.untrimmed(), host.waiting(), host.left(), host.sent);
    // What was known to be trimmed is sent once more, since somebody asked.
    let known = 1;
    assert_eq!(figures(&host), (0, Bytes(0), Bytes(0), free + known), "{:?}", host.live.explain());
    host.pass(280);
    assert_eq!(figures(&host), (0, Bytes(0), Bytes(0), free + known), "nothing before the next sweep");
    host.pass(1800 - 280 - 60);
    assert!(host.waiting() > Bytes(0) && host.sent > free, "{:?}", host.live.explain());
    assert_eq!((host.untrimmed(), host.sent_twice), (0, host.sent - free), "once more, not for want of it");
}

#[test]
fn what_was_free_before_is_left_by_lazy_in_all_windows() {
    let mut host = host_of_windows("lazy+reuse", XFS, 300);
    scatter(&mut host, 8);
    host.pass(2 * 3600);
    assert_eq!(host.sent, 0, "{:?}", host.live.explain());
    let free = host.left();
    assert!(free.0 > 0 && free <= Bytes(300 * PIECE));
}

#[test]
fn the_windows_of_a_kernel_that_sends_whole_extents_are_all_gone_through() {
    let mut host = host_of_windows("judicious", XFS, 64);
    host.sends_whole = true;
    host.told.fill(false);
    host.allocate(0, PIECES);
    (0..PIECES).filter(|at| at % 8 < 4).for_each(|at| host.used[at] = false);
    host.pass(6 * 3600);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
}

/// A file system with 100,000 free extents, and a device that a flat map stands for.
#[test]
fn more_extents_than_are_kept_are_all_trimmed_and_memory_stays_bounded() {
    const EXTENTS: u64 = 100_000;
    let run = || {
        // Lengths of 1 to 7 in places of 10.
        let all: Vec<Span> =
            (0..EXTENTS).map(|i| Span { start: i * 10, end: i * 10 + 1 + i * 2_654_435_761 % 7 }).collect();
        let mut space = FreeSpace::new(SPANS_MAX);
        let (mut sent, mut from, mut log) = (vec![0_u8; EXTENTS as usize * 10], 0, 0_u64);
        space.begin_round();
        while from < EXTENTS * 10 {
            let first = all.partition_point(|span| span.end <= from);
            let window = &all[first..all.len().min(first + SPANS_MAX)];
            let is_last = first + SPANS_MAX >= all.len();
            let upto = if is_last { WHOLE.end } else { window.last().unwrap().end };
            space.learn(Span { start: from, end: upto }, window, false);
            assert!(space.waiting_extents() <= SPANS_MAX as u64);
            while let Some((slice, covered)) =
                space.next_slice(Cut::Anywhere { align: 1 }, Bytes(8192), 1024, false)
            {
                for at in covered.iter().flat_map(|span| span.start..span.end) {
                    sent[at as usize] += 1;
                }
                log = log.wrapping_mul(31).wrapping_add(slice.bytes.0 ^ slice.ranges[0].start);
                space.done(&covered, true);
                assert!(space.trimmed_spans().len() <= SPANS_MAX);
            }
            // What was just sent is known, however short: a second look finds nothing.
            space.learn(Span { start: from, end: upto }, window, false);
            assert_eq!(space.waiting(), Bytes(0));
            from = upto;
        }
        let free: u64 = all.iter().map(|span| span.bytes().0).sum();
        assert_eq!(sent.iter().map(|&times| u64::from(times)).sum::<u64>(), free, "everything");
        assert!(sent.iter().all(|&times| times <= 1), "nothing twice");
        assert_eq!(space.forgotten().0 + space.trimmed().0, free);
        log
    };
    assert_eq!(run(), run());
}

/// What a walk goes over: two ranges, of which the second begins at no multiple of anything.
fn walker(policy: &str) -> FakeHost {
    let mut host = FakeHost::new(policy, Facts { maps: false, ..facts(XFS) }, Settings::default());
    let end = PIECES as u64 * PIECE;
    host.ranges = Some(vec![Span { start: 0, end: 1000 * PIECE }, Span { start: 1100 * PIECE + 4096, end }]);
    host.told.fill(false);
    host.allocate(1000, 101);
    host.load = 100;
    host
}

#[test]
fn without_a_map_all_addresses_are_walked_over_in_slices() {
    let mut host = walker("judicious");
    host.pass(3590);
    assert!(host.slices.is_empty() && host.looked_from.is_empty());
    host.pass(60);
    let permille = host.live.status().round_permille.unwrap();
    let (waiting, all) = (host.waiting().0 / PIECE, PIECES as u64 - 101);
    let walked = all - all * permille / 1000;
    assert!((1..999).contains(&permille) && waiting.abs_diff(walked) <= 8, "{permille} {waiting} {walked}");
    assert!(
        host.live.explain().join(" ").contains("addresses are trimmed slice by slice"),
        "{:?}",
        host.live.explain()
    );
    host.pass(3600);
    assert!(host.waiting() <= host.live.bound() && host.waiting().0 > 0, "then it need not hurry");
    host.load = 0;
    host.pass(600);
    assert_eq!((host.untrimmed(), host.sent_twice, host.waiting()), (0, 0, Bytes(0)));
    assert!(host.slices.len() > 10 && host.live.status().round_permille.is_none());
    let ranges: Vec<Span> = host.slices.iter().flat_map(|(_, slice)| slice.ranges.clone()).collect();
    assert!(ranges.iter().all(|range| range.bytes() <= Bytes::gib(1)), "{ranges:?}");
    let outside = |range: &Span| range.start < 1100 * PIECE && range.end > 1000 * PIECE;
    assert!(!ranges.iter().any(outside) && ranges.is_sorted_by_key(|range| range.start), "{ranges:?}");
    let cuts = ranges.iter().filter(|range| range.end % PIECE != 0).count();
    assert_eq!(cuts, 0, "slices end at multiples of 1 MiB");
    let slices = host.slices.len();
    host.pass(6 * 86_400);
    assert_eq!(host.slices.len(), slices, "it is over for a week");
    host.allocate(2000, 50);
    host.pass(1);
    host.free(2000, 50);
    host.pass(2 * 86_400);
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
}

/// Btrfs passes over a chunk if a range begins in it.
#[test]
fn regression_a_walk_over_chunks_cuts_none_of_them() {
    let chunk = |i: u64| Span { start: i * 100 * PIECE, end: (i * 100 + 100).min(PIECES as u64) * PIECE };
    let chunks: Vec<Span> = (0..(PIECES as u64).div_ceil(100)).map(chunk).collect();
    let mut host =
        FakeHost::new("judicious", Facts { maps: false, ..facts(Cut::Nowhere) }, Settings::default());
    host.ranges = Some(chunks.clone());
    host.told.fill(false);
    host.pass(2 * 3600);
    assert_eq!((host.untrimmed(), host.sent_twice, host.waiting()), (0, 0, Bytes(0)));
    let ranges: Vec<Span> = host.slices.iter().flat_map(|(_, slice)| slice.ranges.clone()).collect();
    let is_whole = |range: &Span| {
        chunks.iter().any(|chunk| chunk.start == range.start)
            && chunks.iter().any(|chunk| chunk.end == range.end)
    };
    assert!(ranges.iter().all(is_whole) && ranges.len() > 5, "{ranges:?}");
}

#[test]
fn a_walk_goes_on_behind_a_failure_with_smaller_slices_and_what_was_freed_behind_it_waits() {
    let mut host = walker("judicious");
    host.pass(3620);
    let done = host.slices.last().unwrap().1.ranges[0].end;
    host.failure = Some(Failed::Again("the helper did not end in 120 s".into()));
    while !matches!(host.live.reason(), Reason::Failed { .. }) {
        host.pass(1);
    }
    let failed = host.slices.last().unwrap().1.ranges[0];
    assert!(failed.start >= done, "{failed:?} {done}");
    host.failure = None;
    host.allocate(0, 64);
    host.pass(1);
    host.free(0, 64); // behind it
    let before = host.slices.len();
    host.pass(120);
    let again = host.slices[before].1.ranges[0];
    assert_eq!(again.start, failed.start, "from where it was");
    assert!(again.bytes().0 <= failed.bytes().0 / 2 + PIECE, "{again:?} behind {failed:?}");
    host.load = 0;
    host.pass(3600);
    assert_eq!((host.untrimmed(), host.waiting()), (64, Bytes(64 * PIECE)), "for the next walk");
}

#[test]
fn a_walk_passes_over_what_fails_in_the_smallest_slice() {
    let mut host = walker("judicious");
    host.failure = Some(Failed::Interrupted);
    host.pass(3700);
    let least = &host.slices.last().unwrap().1.ranges[0];
    assert!(least.bytes() <= Bytes(PIECE) && least.start > 0, "{least:?}");
}

#[test]
fn a_failed_slice_of_a_map_is_followed_by_one_half_as_large() {
    let mut host = host_of_windows("judicious", XFS, SPANS_MAX);
    host.told.fill(false);
    host.failure = Some(Failed::Again("no".into()));
    host.pass(600);
    let sizes: Vec<u64> = host.slices.iter().map(|(_, slice)| slice.bytes.0 / PIECE).collect();
    assert_eq!(sizes[..3], [64, 32, 16]);
}

#[test]
fn whoever_asks_during_a_walk_gets_another_one_and_then_an_end() {
    let mut host = walker("off");
    host.pass(10);
    host.live.trim_now();
    host.pass(2);
    let behind = host.slices[0].1.ranges[0];
    host.told[..(behind.end / PIECE) as usize].fill(false);
    host.live.trim_now();
    for at in 0..100 {
        host.allocate(100 + at % 7, 1);
        host.pass(1);
        host.free(100 + at % 7, 1); // all the time
    }
    host.pass(300);
    assert!(!host.live.is_asked() && host.untrimmed() <= 7, "{} {:?}", host.untrimmed(), host.live.explain());
    assert_eq!(host.looked_from, [0, 0]);
}

/// A map that was asked for before the pressure rose may come before the next sample tells of it, and a slice follows.
#[test]
fn regression_pressure_is_heard_of_with_the_next_sample() {
    let mut host = host_of_windows("judicious", XFS, 20);
    scatter(&mut host, 20);
    while host.slices.is_empty() || !matches!(host.under_way, Some((Order::Look { .. }, _))) {
        host.pass(1);
    }
    let before = host.slices.len();
    host.sample.pressure_permille = 900;
    host.pass(1);
    assert_eq!(host.slices.len(), before + 1, "{:?}", host.live.explain());
    host.pass(600);
    assert_eq!(host.slices.len(), before + 1, "{:?}", host.live.explain());
}

/// There is less room, or more, from now on.
fn share(host: &mut FakeHost, spans_max: usize) {
    host.live.keep_at_most(spans_max);
    host.window = spans_max;
}

#[test]
fn file_systems_share_what_is_kept_down_to_what_a_window_needs() {
    for (file_systems, each) in [
        (0, SPANS_MAX),
        (1, SPANS_MAX),
        (16, SPANS_MAX),
        (17, 8192),
        (64, 4096),
        (65, 2048),
        (512, 512),
        (100_000, 512),
    ] {
        assert_eq!(spans_each(file_systems), each, "{file_systems}");
    }
    for file_systems in 1..2000 {
        assert!(spans_each(file_systems) >= spans_each(file_systems + 1));
        assert!(file_systems > 512 || file_systems * spans_each(file_systems) <= 16 * SPANS_MAX);
    }
}

#[test]
fn whoever_gets_less_room_trims_the_same_in_more_windows() {
    for cut in [XFS, EXT4] {
        let mut ample = host_of_windows("judicious", cut, SPANS_MAX);
        let mut poor = host_of_windows("judicious", cut, SPANS_MAX);
        let free = scatter(&mut ample, 4);
        scatter(&mut poor, 4);
        poor.pass(30);
        share(&mut poor, 64);
        ample.pass(3 * 3600);
        poor.pass(3 * 3600);
        assert_eq!((ample.untrimmed(), ample.sent), (0, free));
        assert_eq!((poor.untrimmed(), &poor.told), (0, &ample.told), "{:?}", poor.live.explain());
        assert!(poor.looked_from.len() > 10 * ample.looked_from.len(), "{:?}", poor.looked_from);
        assert!(poor.sent_twice <= free, "what was sent before is forgotten once: {}", poor.sent_twice);
        assert!(poor.live.known().unwrap().trimmed.len() <= 64);
    }
}

#[test]
fn what_is_forgotten_for_want_of_room_is_not_sent_again_before_as_much_is_freed() {
    for cut in [XFS, EXT4] {
        let mut host = host_of_windows("judicious", cut, SPANS_MAX);
        let free = scatter(&mut host, 4);
        host.pass(3 * 3600);
        share(&mut host, 64);
        let looks = host.looked_from.len();
        host.free(1, 200);
        host.pass(6 * 3600);
        assert_eq!((host.sent, host.looked_from.len()), (free, looks), "{:?}", host.live.explain());
        host.free(400, 3600);
        host.pass(86_400);
        assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
        assert!(host.sent - free <= 2 * host.freed, "{} of {}", host.sent, host.freed);
        // And with room again, one map is of everything.
        share(&mut host, SPANS_MAX);
        host.live.trim_now();
        assert!(host.pass_while_asked(3600));
        assert_eq!(
            (host.untrimmed(), host.live.status().round_permille),
            (0, None),
            "{:?}",
            host.live.explain()
        );
    }
}

/// Long waiting extents behind the window, known from an earlier and larger one, displaced its short ones; and with
/// those behind it still waiting, the window was not read again.
#[test]
fn regression_what_waits_in_a_window_is_not_forgotten_for_what_waits_behind_it() {
    let mut host = host_of_windows("judicious", EXT4, 40);
    scatter(&mut host, 20);
    let steps = [Step::Free(2882, 76), Step::Free(1367, 461), Step::Pause(true), Step::Pass(134)];
    for (step, spans_max) in steps.into_iter().zip([72, 348, 162, 123]) {
        host.take_step(step);
        share(&mut host, spans_max);
    }
    host.live.pause(false);
    host.live.trim_now();
    assert!(host.pass_while_asked(6 * 3600), "{:?}", host.live.explain());
    assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// With little room, much, or a share that changes while it works, all comes to the same.
    #[test]
    fn the_room_decides_in_how_many_windows_and_not_what_is_trimmed(
        steps in prop::collection::vec((step(), 40..400_usize), 1..8), groups in any::<bool>(), each in 4..60_usize,
    ) {
        let cut = if groups { EXT4 } else { XFS };
        let mut hosts = [SPANS_MAX, 40].map(|spans_max| host_of_windows("judicious", cut, spans_max));
        for (number, host) in hosts.iter_mut().enumerate() {
            scatter(host, each);
            for (step, spans_max) in &steps {
                host.take_step(step.clone());
                if number == 1 {
                    share(host, *spans_max);
                }
            }
            host.live.pause(false);
            (host.load, host.sample.pressure_permille) = (0, 0);
            host.live.trim_now();
            prop_assert!(host.pass_while_asked(6 * 3600), "{:?}", host.live.explain());
            prop_assert_eq!(host.untrimmed(), 0, "{:?}", host.live.explain());
        }
        let [ample, poor] = hosts;
        prop_assert_eq!((ample.used, ample.told), (poor.used, poor.told));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// As `any_history_ends_well`, with few spans kept.
    #[test]
    fn any_history_with_windows_ends_well(
        steps in prop::collection::vec(step(), 1..40),
        policy in prop::sample::select(vec!["judicious", "lazy+reuse", "set:40:90", "batch:5m", "off"]),
        (groups, spans_max, each) in (any::<bool>(), 1..40_usize, 2..200_usize),
    ) {
        let mut host = host_of_windows(policy, if groups { EXT4 } else { XFS }, spans_max);
        scatter(&mut host, each);
        for step in steps {
            host.take_step(step);
            prop_assert!(host.live.explain().iter().all(|sentence| sentence.ends_with('.')));
        }
        host.live.pause(false);
        (host.load, host.sample.pressure_permille) = (0, 0);
        host.live.trim_now();
        prop_assert!(host.pass_while_asked(1800));
        // At this instant, and at no later one: the policy goes on. `batch` sweeps again, and frees that utilization
        // showed only behind the last map may begin a round. Both find what was forgotten.
        prop_assert_eq!(host.waiting(), Bytes(0));
        prop_assert_eq!(host.left(), Bytes(0));
        let sent = host.sent;
        host.pass(1800);
        prop_assert!(!host.live.is_asked());
        let again = host.sent - sent;
        prop_assert!(policy.starts_with("batch") || again <= host.freed, "{} {}", again, host.freed);
    }

    /// However often something is freed: no more is sent than was free at first and twice what was freed.
    #[test]
    fn rounds_send_twice_what_is_freed_at_most(
        frees in prop::collection::vec((0..PIECES, 1..400_usize, 100..6_000_u64), 1..16), spans_max in 1..60_usize,
    ) {
        let mut host = host_of_windows("judicious", XFS, spans_max);
        let free = scatter(&mut host, 3);
        for (from, pieces, seconds) in frees {
            // What comes and goes unseen between two maps is not what this is about.
            host.allocate(from, pieces);
            host.pass(seconds / 2);
            host.free(from, pieces);
            host.pass(seconds / 2);
            prop_assert!(host.sent <= 2 * free + 2 * host.freed, "{} {} {}", host.sent, free, host.freed);
        }
    }
}

#[test]
fn a_walk_over_nothing_is_over() {
    let mut host = walker("judicious");
    host.ranges = Some(Vec::new());
    host.live.trim_now();
    host.pass(10);
    assert!(!host.live.is_asked() && host.slices.is_empty(), "{:?}", host.live.explain());
}
