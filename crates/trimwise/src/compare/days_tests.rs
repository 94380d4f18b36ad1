//! Runs over days on a small drive.

use super::*;
use crate::compare::cell::{CellSpec, Workload, run_cell};
use crate::compare::result::{Cell, WorkloadFigures};
use crate::fs::host::HostConfig;
use crate::fs::layout::FormatOptions;
use crate::policy::LinuxVersion;
use crate::ssd::{Faults, SsdConfig};
use crate::units::{Bytes, UNIT_BYTES, Utilization};
use crate::workload::postmark::{self, PostmarkConfig};
use crate::workload::program::Program;

fn program(text: &str) -> Workload {
    Program::parse(text, "").unwrap().into()
}

fn postmark() -> PostmarkConfig {
    PostmarkConfig { number: 200, transactions: 1_500, size_high: 200_000, ..PostmarkConfig::default() }
}

fn spec(policy: &str, workload: impl Into<Workload>, days: Option<u32>) -> CellSpec {
    let mut ssd = SsdConfig {
        capacity_bytes: Bytes::mib(512).0,
        over_provisioning_percent: Some(20.into()),
        ..SsdConfig::default()
    };
    ssd.geometry.pages_per_block = 32;
    let trimmer: Trimmer = policy.parse().unwrap();
    CellSpec {
        device: "small".to_owned(),
        ssd,
        faults: Faults::default(),
        thin: None,
        policy: trimmer.policy(),
        workload: workload.into(),
        days: days.map(|n| DaysSpec {
            days: Days::new(n, "server".parse().unwrap()).unwrap(),
            trimmer,
            has_backlog: false,
        }),
        host: HostConfig::of(LinuxVersion::TODAY, Bytes::mib(128)),
        format: FormatOptions { journal: Some(Bytes::mib(8)), ..FormatOptions::TODAY },
        utilization: Some(Utilization::of(50)),
        long_in_use: false,
        rep: 0,
        seed: 1,
    }
}

fn run(policy: &str, workload: impl Into<Workload>, days: Option<u32>) -> Cell {
    run_cell(&spec(policy, workload, days), Box::new(|_| ())).unwrap()
}

#[test]
fn a_workload_does_the_same_over_days_and_waits_only_in_its_operations() {
    let (spread, at_once) = (run("commit", postmark(), Some(2)), run("commit", postmark(), None));
    let counts = |cell: &Cell| {
        let figures = cell.workload.postmark().unwrap();
        (figures.created, figures.read, figures.appended, figures.deleted, figures.bytes_written)
    };
    assert_eq!(counts(&spread), counts(&at_once));
    let days = spread.days.unwrap();
    assert_eq!(
        (days.elapsed_ns, days.operations),
        (2 * 86_400_000_000_000, postmark::operations(&postmark()))
    );
    assert!(spread.duration_ns < days.elapsed_ns / 1000, "{} ns", spread.duration_ns);
    for text in [
        "lsm:operations=4k,keys=4k,memtable=256KiB,table=256KiB,base=1MiB",
        "maildir:messages=50,deliveries=400",
    ] {
        let done = |days| match run("commit", program(text), days).workload {
            WorkloadFigures::Program(done) => done,
            other => panic!("{other:?}"),
        };
        let (spread, at_once) = (done(Some(1)), done(None));
        assert_eq!(spread.operations, at_once.operations, "{text}");
        assert_eq!((spread.files_removed > 0, at_once.files_removed > 0), (true, true), "{text}");
    }
}

#[test]
fn sweeps_come_at_midnight_and_a_weekly_one_in_a_week() {
    for (policy, days, sweeps) in
        [("batch:1d", 2, 2), ("batch:1w", 1, 1), ("batch:1w", 7, 1), ("batch:12h", 1, 2)]
    {
        let cell = run(policy, postmark(), Some(days));
        let figures = cell.days.unwrap();
        assert_eq!(figures.sweeps, sweeps, "{policy} in {days} days");
        assert!(
            figures.fitrim_units > 0 && figures.fitrim_max_ns > 0,
            "{policy} in {days} days: {figures:?}"
        );
        let device = cell.device_stats.unwrap();
        assert!(
            device.trim_commands > 0 && device.stale_units_max > Some(1_000),
            "{:?}",
            device.stale_units_max
        );
        // All of the ageing's free space was swept before.
        assert!(device.timeline[0].stale_units < 1_000, "{:?}", device.timeline[0]);
    }
    let off = run("off", postmark(), Some(1));
    assert_eq!(off.days.unwrap().fitrim_units, 0);
    assert!(off.device_stats.unwrap().timeline[0].stale_units > 10_000);
}

#[test]
fn the_daemon_trims_in_slices_and_keeps_stale_space_below_its_bound() {
    let daemon = run("trimwised", postmark(), Some(2));
    let days = daemon.days.unwrap();
    assert!(days.slices > 10 && days.maps > 10 && days.sweeps == 0, "{days:?}");
    let device = daemon.device_stats.unwrap();
    let bound_units = Bytes::mib(512).0 / 10 / UNIT_BYTES;
    assert!(device.stale_units_max < Some(bound_units), "{:?} of {bound_units}", device.stale_units_max);
    let off = run("off", postmark(), Some(2)).device_stats.unwrap();
    assert!(
        off.stale_units_mean > Some(bound_units as f64)
            && off.write_amplification > device.write_amplification
    );
}

#[test]
fn a_daemon_works_off_a_backlog() {
    let mut spec = spec("trimwised", postmark(), Some(2));
    spec.days.as_mut().unwrap().has_backlog = true;
    let device = run_cell(&spec, Box::new(|_| ())).unwrap().device_stats.unwrap();
    let stale = |sample: usize| device.timeline[sample].stale_units;
    assert!(stale(0) > 10_000 && stale(device.timeline.len() / 2) < stale(0) / 4, "{:?}", device.timeline);
}

#[test]
fn runs_over_days_repeat_exactly() {
    let debug = |policy| format!("{:?}", run(policy, program("desktop:steps=400,cache=16MiB"), Some(1)));
    for policy in ["trimwised", "judicious"] {
        assert_eq!(debug(policy), debug(policy));
    }
}

#[test]
fn who_trims_is_written_as_it_is_parsed() {
    for text in ["off", "batch:1w", "trimwised", "trimwised:lazy+reuse", "trimwised:batch:1d"] {
        assert_eq!(text.parse::<Trimmer>().unwrap().to_string(), text);
    }
    assert_eq!("trimwised:judicious".parse::<Trimmer>().unwrap().to_string(), "trimwised");
    let refused = |text: &str| text.parse::<Trimmer>().unwrap_err();
    assert!(refused("trimwised:commit").contains("remounting"));
    assert!(refused("trimwised:ideal").contains("no stock host"));
    assert!(refused("trimwised:nothing").contains("nothing"));
}

#[test]
fn what_times_one_operation_is_not_spread() {
    let timed: crate::workload::timed::Timed = "append:64KiB:1MiB".parse().unwrap();
    let error = run_cell(&spec("off", timed, Some(1)), Box::new(|_| ())).unwrap_err();
    assert!(error.to_string().contains("a workload that times one operation"), "{error}");
}

#[test]
fn a_shape_that_is_given_holds_for_all_and_own_for_each() {
    let text = "desktop:steps=300,cache=8MiB,update=1MiB+maildir:messages=50,deliveries=200,users=3";
    let mut spec = spec("off", program(text), Some(2));
    spec.days.as_mut().unwrap().days = Days::new(2, "own".parse().unwrap()).unwrap();
    assert_eq!(run_cell(&spec, Box::new(|_| ())).unwrap().days.unwrap().operations, 500);
    let week = Days::new(7, "own".parse().unwrap()).unwrap();
    let due = |days: &Days| (0..9).map(|k| days.due(k, 9, 1)).collect::<Vec<_>>();
    for shape in ["office", "server"] {
        let named = Days::new(7, shape.parse().unwrap()).unwrap();
        assert_eq!(due(&week.of(shape)), due(&named));
        assert_eq!(due(&named.of("flat")), due(&named));
    }
}
