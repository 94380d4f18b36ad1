use super::*;
use crate::experiment::result::{Claim, Figure};

const GIB: u64 = 1 << 30;

fn week() -> Week {
    Week { days: 1, gap_mean: SimDuration::from_secs(1), reads_percent: 50, ..Week::default() }
}

/// A run in which each access takes 1 ms, but `slow_ns` for `minutes` from `at_hour` on.
fn run(trimming: Trimming, at_hour: u64, minutes: u64, slow_ns: u64) -> Run {
    let (from, until) = (at_hour * HOUR_NS, at_hour * HOUR_NS + minutes * MINUTE_NS);
    let took = |at: u64| if (from..until).contains(&at) { slow_ns } else { 1_000_000 };
    let discards = (0..minutes).map(|i| Discarded {
        at_ns: from + i * MINUTE_NS,
        done_ns: from + i * MINUTE_NS + 5_000_000,
        offset_bytes: 0,
        length_bytes: GIB / 64,
    });
    let mut mapped_bytes = vec![3 * GIB; 145];
    mapped_bytes[at_hour as usize * 6 + 1..].fill(5 * GIB / 4);
    Run {
        case: Case { file_system: "ext4", trimming },
        done: WeekDone {
            latencies_ns: week().accesses().map(|access| took(access.at.as_nanos())).collect(),
            free_bytes: vec![3 * GIB; 145],
            removed_bytes: GIB,
        },
        discards: discards.collect(),
        mapped_bytes,
        capacity_bytes: CAPACITY.0,
        write_amplification: 1.20,
        slices: None,
    }
}

fn claim<'a>(claims: &'a [Claim], id: &str) -> &'a Claim {
    claims.iter().find(|claim| claim.id == id).unwrap()
}

#[test]
fn minutes_of_trimming_are_told_from_untouched_hours() {
    let row = Row::of(&week(), &run(Trimming::Daemon, 3, 10, 2_000_000), None).unwrap();
    let [busy, others] = row.rates;
    let (touched, calm) = (busy.trimming.unwrap(), busy.untouched.unwrap());
    assert_eq!((row.write_trimming, others.trimming), (busy.trimming, None));
    assert!(busy.busy && !others.busy && others.untouched.unwrap().count > calm.count);
    assert!(touched.p50_ns.abs_diff(2_000_000) < 10_000 && calm.max_ns.abs_diff(1_000_000) < 10_000);
    assert!((1_000..2_000).contains(&touched.count), "{touched:?}");
    let reads = row.read_rates[0].trimming.unwrap();
    assert!((1_000..2_000).contains(&reads.count) && reads.count != touched.count, "{reads:?}");
    assert_eq!(row.discarding_ns, 10 * 5_000_000);
    assert!(calm.count > 15 * touched.count, "three of four hours, not ten minutes: {calm:?}");
    assert_eq!((row.discards.bytes, row.discard_max_ns), (10 * GIB / 64, 5_000_000));
    assert_eq!(row.untrimmed_bytes[17..20], [2 * GIB, 2 * GIB, GIB / 4]);
    let after = 3 * HOUR_NS + 10 * MINUTE_NS;
    assert_eq!((row.under_bound_after_ns, row.untrimmed_max_bytes), (Some(after), Some(GIB / 4)));
    assert_eq!(row.freed_bytes, 4 * GIB);
}

#[test]
fn what_is_reached_and_what_is_not() {
    let judged = |slow_ns, write_amplification, mapped_at_end| {
        let never = run(Trimming::Never, 3, 0, 1_000_000);
        let always = run(Trimming::Discard, 3, 10, 1_000_000);
        let mut daemon = run(Trimming::Daemon, 3, 10, slow_ns);
        daemon.write_amplification = write_amplification;
        *daemon.mapped_bytes.last_mut().unwrap() = mapped_at_end;
        evaluate(&WEEK, &week(), &[never, always, daemon], 1, 1).claims
    };
    let good = judged(1_050_000, 1.25, 5 * GIB / 4);
    assert_eq!(good.len(), 4);
    assert!(good.iter().all(|claim| claim.met), "{good:#?}");
    let bad = judged(1_200_000, 1.30, 2 * GIB);
    for (id, met) in [
        ("daemon-p99-ext4", false),
        ("daemon-wa-ext4", false),
        ("daemon-bound-ext4", false),
        ("daemon-discarded-ext4", true),
    ] {
        assert_eq!(claim(&bad, id).met, met, "{id}");
    }
}

/// A slow night is not the fault of the trims in it. If no hour of a kind is untouched, the text compares with the run
/// that never trims.
#[test]
fn hours_are_compared_with_hours_of_the_same_rate() {
    let with_night = |mut run: Run, night_ns: u64| {
        for (access, took) in week().accesses().zip(&mut run.done.latencies_ns) {
            if Week::is_busy(access.at) {
                *took = night_ns;
            }
        }
        run
    };
    let judged =
        |runs: &[Run]| claim(&evaluate(&WEEK, &week(), runs, 1, 1).claims, "daemon-p99-ext4").clone();
    let daemon = with_night(run(Trimming::Daemon, 3, 10, 3_000_000), 3_000_000);
    let same = judged(std::slice::from_ref(&daemon));
    assert!(same.met, "{same:?}");
    let Figure::Text(said) = &same.measured else { panic!("{same:?}") };
    assert!(said.starts_with("1.000 (busy hours 1.000 of "), "{said}");

    // From 1 o'clock for four hours: no busy hour remains untouched.
    let all_night = with_night(run(Trimming::Daemon, 1, 240, 3_000_000), 3_000_000);
    let alone = judged(std::slice::from_ref(&all_night));
    assert!(!alone.met && alone.measured != same.measured, "{alone:?}");
    let never = with_night(run(Trimming::Never, 3, 0, 1_000_000), 2_000_000);
    let judgement = judged(&[never, all_night]);
    let Figure::Text(said) = &judgement.measured else { panic!("{judgement:?}") };
    assert!(!judgement.met && said.starts_with("1.499 ") && said.contains("untouched: 1.499"), "{said}");
}

#[test]
fn a_file_system_that_was_not_run_claims_nothing() {
    let result = evaluate(&WEEK, &week(), &[run(Trimming::Never, 3, 0, 1_000_000)], 1, 1);
    assert!(result.claims.is_empty());
    // The foreground and the drive; nothing was trimmed, and no daemon ran.
    assert_eq!((result.tables.len(), result.rows.plots().len()), (2, 1));
}

#[test]
fn every_case_is_run_once() {
    let cases = cases();
    assert_eq!(cases.len(), 5 + 5 + 6);
    for (i, case) in cases.iter().enumerate() {
        assert!(!cases[..i].contains(case));
        assert_eq!(case.mount_option() == "nodiscard", !case.trimming.name().starts_with("discard"));
    }
}
