use std::collections::BTreeMap;

use super::*;
use crate::compare::ledger::CellLedger;
use crate::compare::result::{AppendFigures, PostmarkFigures, Target, WorkloadFigures};
use crate::ssd::LinkKind;
use crate::workload::latency::LatencySummary;

/// A result of PostMark.
pub(in crate::compare) fn cell(device: &str, policy: &str, rep: u32, seconds: f64, erases: u64) -> Cell {
    Cell {
        device: device.into(),
        policy: policy.into(),
        target: Target::Model,
        rep,
        duration_ns: (seconds * 1e9) as u64,
        days: None,
        workload: WorkloadFigures::Postmark(PostmarkFigures {
            total_s: seconds,
            transactions_s: seconds / 2.0,
            creation_alone_s: seconds / 4.0,
            deletion_alone_s: seconds / 4.0,
            created: 0,
            creation_alone: 0,
            created_mixed: 0,
            read: 0,
            appended: 0,
            deleted: 0,
            deletion_alone: 0,
            deleted_mixed: 0,
            bytes_read: 0,
            bytes_written: 0,
            out_of_files: false,
            transactions_per_s: 0.0,
            creation_alone_per_s: 0.0,
            deletion_alone_per_s: 0.0,
        }),
        ledger: None,
        device_stats: Some(crate::compare::result::DeviceFigures {
            host_units_written: 1000,
            nand_units_written: 1000 + 100 * erases,
            write_amplification: 1.5,
            trim_commands: 0,
            trim_ranges: 0,
            trimmed_units: 0,
            erases,
            erase_count_min: 0,
            erase_count_mean: 1.0,
            erase_count_max: 2,
            gc_units_copied: 0,
            folded_units: 0,
            map_units_written: 0,
            map_lookups_missed: 0,
            stale_units_max: Some(0),
            stale_units_mean: Some(0.0),
            stale_units_end: Some(0),
            busy_ns: BTreeMap::new(),
            timeline: Vec::new(),
            blocks: None,
        }),
        latency: BTreeMap::new(),
        latency_quantiles_ns: BTreeMap::new(),
        judged: None,
        drive: None,
        postmark_report: String::new(),
    }
}

/// Six repetitions that differ by up to 5 %.
fn noisy(device: &str, policy: &str, seconds: f64, erases: u64) -> Vec<Cell> {
    (0..6).map(|r| cell(device, policy, r, seconds * (1.0 + 0.01 * f64::from(r)), erases)).collect()
}

/// Three repetitions that are the same.
fn exact(device: &str, policy: &str, seconds: f64, erases: u64) -> Vec<Cell> {
    (0..3).map(|r| cell(device, policy, r, seconds, erases)).collect()
}

#[test]
fn no_cells_no_verdict() {
    assert_eq!(verdict(&[]), None);
}

#[test]
fn the_fastest_usable_policy_wins_and_the_bound_is_only_shown() {
    let cells = [noisy("d", "off", 20.0, 200), noisy("d", "commit", 10.0, 100), noisy("d", "ideal", 5.0, 50)]
        .concat();
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("commit".into()));
    assert!((v.speedup - 2.0).abs() < 1e-9 && v.low < 2.0 && v.high > 2.0, "{v:?}");
    assert_eq!(v.per_device[0].life_time, Some(2.0));
    assert_eq!(
        v.text,
        "Use `commit`: it is 2.00 times as fast as `off` (95 % interval 1.94 to 2.06, p = 0.002); the bound \
         `ideal` would be 2.00 times as fast as `commit`. Lifetime: 100 blocks erased with `commit`, 200 with \
         `off`: 50 % fewer, so the flash lasts 2.00 times as long with `commit`."
    );
}

#[test]
fn a_slower_policy_leaves_the_baseline_and_says_what_it_would_cost() {
    let cells = [exact("d", "off", 10.0, 1000), exact("d", "commit", 120.0, 1250)].concat();
    let v = verdict(&cells).unwrap();
    assert_eq!((v.policy.clone(), v.speedup, v.low, v.high), (Some("off".into()), 1.0, 1.0, 1.0));
    assert_eq!(
        v.text,
        "Keep `off`: with `commit` the run takes 12.0 times as long (exact: +1100.0 % in time). Lifetime: 1,250 \
         blocks erased with `commit`, 1,000 with `off`: 25 % more, so the flash lasts only 0.80 times as long with \
         `commit`."
    );
}

/// The reverse of twice as fast: the same interval, and the bound is not what could be used instead.
#[test]
fn a_proven_cost_is_stated_with_the_interval_of_the_durations() {
    let cells =
        [noisy("d", "off", 10.0, 100), noisy("d", "commit", 20.0, 100), noisy("d", "ideal", 9.0, 100)]
            .concat();
    let v = verdict(&cells).unwrap();
    let words =
        "Keep `off`: with `commit` the run takes 2.00 times as long (95 % interval 1.94 to 2.06, p = 0.002);";
    assert!(v.text.starts_with(words), "{}", v.text);
}

#[test]
fn without_a_difference_in_speed_the_gentler_policy_wins_and_without_any_the_baseline() {
    let shifted: Vec<Cell> =
        (0..6).map(|r| cell("d", "commit", r, 10.05 + 0.1 * f64::from(r), 500)).collect();
    let v = verdict(&[noisy("d", "off", 10.0, 1000), shifted].concat()).unwrap();
    assert_eq!(v.policy, Some("commit".into()));
    let words = "not for its speed: compared with `off` it shows no significant difference (~)";
    assert!(v.text.contains(words), "{}", v.text);
    assert!(!v.per_device[0].significant);

    let v = verdict(&[exact("d", "commit", 9.999, 1000), exact("d", "off", 10.0, 1001)].concat()).unwrap();
    assert_eq!(v.policy, Some("off".into()), "one tenth of a per mille is no reason to change anything");
    assert!(v.text.contains("makes no difference that matters"), "{}", v.text);
}

#[test]
fn with_too_few_repetitions_medians_decide_and_the_verdict_says_that_nothing_is_proven() {
    let runs = |policy, seconds: f64| (0..2).map(move |r| cell("d", policy, r, seconds + f64::from(r), 100));
    let cells: Vec<Cell> = runs("off", 20.0).chain(runs("commit", 10.0)).chain(runs("ideal", 9.0)).collect();
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("commit".into()));
    assert!(!v.per_device[0].significant);
    let words = "Use `commit`: it is 1.95 times as fast as `off`, which so few repetitions cannot prove (~; 66 % interval";
    assert!(v.text.starts_with(words), "{}", v.text);
    assert!(v.text.contains("`ideal` is not significantly faster"), "{}", v.text);
    // The other way round nothing speaks for a change.
    let cells: Vec<Cell> = runs("off", 10.0).chain(runs("commit", 20.0)).collect();
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("off".into()));
    let words = "Keep `off`: with `commit` the run takes 1.95 times as long, which so few repetitions cannot prove (~; 66 %";
    assert!(v.text.starts_with(words), "{}", v.text);
    let cells: Vec<Cell> = runs("off", 10.0).chain(runs("commit", 10.01)).collect();
    let v = verdict(&cells).unwrap();
    assert!(v.text.contains("no difference that so few repetitions could prove (~)"), "{}", v.text);
    let v = verdict(&[cell("d", "off", 0, 2.0, 1), cell("d", "commit", 0, 1.0, 1)]).unwrap();
    assert!(
        v.text.contains(
            "2.00 times as fast as `off`, which so few repetitions cannot prove (~; one run of each)"
        )
    );
}

/// Three repetitions around a median.
fn three(policy: &str, seconds: f64, erases: u64) -> Vec<Cell> {
    (0..3).map(|r| cell("d", policy, r, seconds * (0.98 + 0.02 * f64::from(r)), erases)).collect()
}

#[test]
fn regression_of_policies_that_differ_in_nothing_the_lowest_median_is_used_not_the_first() {
    let cells = [three("off", 20.0, 500), three("lazy", 15.0, 344), three("judicious", 14.94, 344)].concat();
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("judicious".into()));
    let words = "`lazy` cannot be told apart from `judicious`, which has the lower median.";
    assert!(v.text.contains(words), "{}", v.text);

    // With repetitions enough for the test, the same.
    let cells = [
        noisy("d", "off", 20.0, 500),
        noisy("d", "zfs", 15.2, 344),
        noisy("d", "lazy", 15.1, 344),
        noisy("d", "judicious", 15.0, 344),
    ]
    .concat();
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("judicious".into()));
    let words = "`zfs` and `lazy` cannot be told apart from `judicious`, which has the lowest median.";
    assert!(v.text.contains(words), "{}", v.text);
}

#[test]
fn wear_decides_only_where_it_is_told_apart_and_before_the_median() {
    // Erases that vary more between repetitions than between policies.
    let wearing = |policy, seconds: f64, erases: u64| -> Vec<Cell> {
        let run =
            |r: u32| cell("d", policy, r, seconds * (1.0 + 0.01 * f64::from(r)), erases + u64::from(r) * 20);
        (0..6).map(run).collect()
    };
    let off = || noisy("d", "off", 20.0, 900);
    let v = verdict(&[off(), wearing("lazy", 15.1, 340), wearing("judicious", 15.0, 350)].concat()).unwrap();
    assert_eq!(v.policy, Some("judicious".into()), "{}", v.text);
    // Twice the erases are no accident.
    let v = verdict(&[off(), wearing("lazy", 15.1, 340), wearing("judicious", 15.0, 680)].concat()).unwrap();
    assert_eq!(v.policy, Some("lazy".into()));
    let words = "`judicious` is as fast, as far as these runs can tell, but wears the flash more.";
    assert!(v.text.contains(words), "{}", v.text);
}

#[test]
fn a_workload_that_times_one_operation_is_judged_by_that() {
    let timed = |policy: &str, fsync_ms: u64| -> Vec<Cell> {
        let figures = AppendFigures {
            append_bytes: 65_536,
            file_bytes: 1 << 30,
            pieces: 15_421,
            unlink_ns: 1_000,
            fsync_ns: fsync_ms * 1_000_000,
            trims: None,
        };
        let run = |c| Cell { workload: WorkloadFigures::Append(figures.clone()), ..c };
        exact("d", policy, 4.0, 10).into_iter().map(run).collect()
    };
    let v = verdict(&[timed("commit", 800), timed("lazy", 8)].concat()).unwrap();
    assert_eq!((v.policy.clone(), v.speedup), (Some("lazy".into()), 100.0));
    assert!(v.text.starts_with("Use `lazy`: its fsync is 100 times as fast as with `commit`"), "{}", v.text);
}

#[test]
fn where_nothing_was_erased_the_units_programmed_count() {
    let mut commit = exact("d", "commit", 5.0, 0);
    for c in &mut commit {
        c.device_stats.as_mut().unwrap().nand_units_written = 500;
    }
    let v = verdict(&[exact("d", "off", 10.0, 0), commit].concat()).unwrap();
    assert_eq!(v.per_device[0].life_time, Some(2.0));
    assert!(v.text.contains("500 units programmed (nothing was erased yet) with `commit`"), "{}", v.text);
}

#[test]
fn a_run_that_wrote_nothing_says_nothing_about_life_time() {
    let mut cells = [exact("d", "off", 10.0, 0), exact("d", "commit", 10.0, 0)].concat();
    for c in &mut cells {
        c.device_stats.as_mut().unwrap().nand_units_written = 0;
    }
    let v = verdict(&cells).unwrap();
    assert!(v.text.ends_with("none of its writes has reached the flash."), "{}", v.text);
}

#[test]
fn regression_an_own_policy_is_not_taken_for_a_built_in_one_of_its_name() {
    let own = |name: &str, seconds: f64| {
        let mut cells = exact("d", "x", seconds, 100);
        cells.iter_mut().for_each(|cell| cell.policy = PolicyId::Named(name.into()));
        cells
    };
    for name in ["ideal", "commit", "off", "trimwised"] {
        let cells = [exact("d", "off", 10.0, 100), own(name, 5.0)].concat();
        let summary = Summary::of(&cells);
        assert_eq!(summary.baseline, PolicyId::OFF);
        assert!(!summary.devices[0].policies[1].bound);
        let v = verdict(&cells).unwrap();
        assert_eq!(v.policy, Some(PolicyId::Named(name.into())), "{}", v.text);
        assert!(v.text.starts_with(&format!("Use `own:{name}`")), "{}", v.text);
    }
}

#[test]
fn a_real_directory_is_never_exact_and_knows_no_life_time() {
    let mut c = cell("/mnt", "discard", 0, 10.0, 0);
    c.target = Target::Directory("/mnt".into());
    c.device_stats = None;
    let cells = [c];
    assert!(!Summary::of(&cells).devices[0].policies[0].time_s.is_exact());
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("discard".into()));
    assert!(v.text.contains("no other usable policy") && v.text.contains("real directory"), "{}", v.text);
}

#[test]
fn the_bound_alone_is_called_a_bound() {
    let v = verdict(&exact("d", "ideal", 10.0, 0)).unwrap();
    assert!(v.text.contains("only a bound"), "{}", v.text);
}

#[test]
fn over_devices_ratios_multiply_so_that_opposite_ones_cancel() {
    let cells = [
        exact("a", "off", 10.0, 100),
        exact("a", "commit", 5.0, 100),
        exact("b", "off", 10.0, 100),
        exact("b", "commit", 20.0, 100),
    ]
    .concat();
    let v = verdict(&cells).unwrap();
    assert_eq!((v.policy.clone(), v.speedup), (Some("off".into()), 1.0));
    assert_eq!(v.per_device[0].policy, "commit".into());
    assert_eq!(v.per_device[1].policy, "off".into());
    assert!(v.text.starts_with("Over all 2 devices: keep `off`"), "{}", v.text);
    assert!(v.text.contains("the choice on 1 of them"), "{}", v.text);
}

#[test]
fn over_devices_the_best_geometric_mean_wins() {
    let cells = [
        exact("a", "off", 8.0, 100),
        exact("a", "commit", 1.0, 50),
        exact("b", "off", 8.0, 100),
        exact("b", "commit", 4.0, 50),
    ]
    .concat();
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("commit".into()));
    assert!((v.speedup - 4.0).abs() < 1e-12, "{}", v.speedup);
    assert!(v.text.contains("4.00 times as fast") && v.text.contains("2.00 times as long"), "{}", v.text);
}

#[test]
fn over_devices_the_first_policy_wins_if_a_later_one_is_slower() {
    let on = |device| {
        [("off", 8.0), ("commit", 1.0), ("lazy", 2.0)]
            .map(|(policy, s)| exact(device, policy, s, 100))
            .concat()
    };
    let v = verdict(&[on("a"), on("b")].concat()).unwrap();
    assert_eq!(v.policy, Some("commit".into()), "{}", v.text);
}

/// One percent faster on average, which is more than anyone would overlook; but it may be none.
#[test]
fn over_devices_a_gain_that_may_be_none_changes_nothing() {
    let on = |device| [noisy(device, "off", 10.1, 100), noisy(device, "commit", 10.0, 100)].concat();
    let v = verdict(&[on("a"), on("b")].concat()).unwrap();
    assert_eq!(v.policy, Some("off".into()), "{}", v.text);
}

#[test]
fn repetitions_that_differ_only_inside_the_device_are_not_exact() {
    let mut cells = exact("d", "off", 10.0, 100);
    cells[2].device_stats.as_mut().unwrap().erases += 1;
    assert!(!Summary::of(&cells).devices[0].policies[0].time_s.is_exact());
}

#[test]
fn the_geometric_mean_stays_between_the_extremes() {
    assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-12);
    assert_eq!(geometric_mean(&[3.0]), 3.0);
    assert!(geometric_mean(&[0.0, 1.0]).is_nan());
}

#[test]
fn regression_one_repetition_is_not_exact() {
    // What another repetition would have been, nobody knows: ageing draws another seed then.
    let cells = [cell("d", "off", 0, 20.0, 10), cell("d", "commit", 0, 16.0, 8)];
    let summary = Summary::of(&cells);
    assert!(summary.devices[0].policies.iter().all(|p| !p.time_s.is_exact()));
    let text = verdict(&cells).unwrap().text;
    assert!(!text.contains("exact"), "{text}");
}

#[test]
fn repetitions_are_exact_only_if_they_agree_in_every_figure() {
    let latency = LatencySummary { count: 9, p50_ns: 1, p99_ns: 2, p999_ns: 3, max_ns: 4 };
    let changes: [&dyn Fn(&mut Cell); 5] = [
        &|cell| cell.duration_ns += 1,
        &|cell| cell.device_stats.as_mut().unwrap().trimmed_units += 1,
        &|cell| cell.ledger = Some(CellLedger { trim_busy_ns: 1, ..CellLedger::default() }),
        &|cell| cell.latency = [("fsync".into(), latency)].into(),
        &|cell| cell.latency_quantiles_ns = [("fsync".into(), vec![1, 2])].into(),
    ];
    let is_exact = |cells: &[Cell]| Summary::of(cells).devices[0].policies[0].time_s.is_exact();
    assert!(is_exact(&exact("d", "off", 20.0, 10)));
    for (number, change) in changes.iter().enumerate() {
        let mut cells = exact("d", "off", 20.0, 10);
        change(&mut cells[1]);
        assert!(!is_exact(&cells), "change {number}");
    }
}

/// A share of the ledger counts from the time until the last TRIM was done, which can be after the run.
#[test]
fn the_time_until_the_last_trim_is_that_of_the_ledger() {
    let mut cells = [cell("a", "commit", 0, 10.0, 5)];
    let trimmed_s =
        |cells: &[Cell]| Causes::of(&Summary::of(cells).devices[0].policies[0]).unwrap().trimmed_s;
    cells[0].device_stats.as_mut().unwrap().busy_ns = [("trim".into(), 5_000_000_000)].into();
    assert_eq!(trimmed_s(&cells), 10.0);
    cells[0].ledger = Some(CellLedger { trim_busy_percent: 40.0, ..CellLedger::default() });
    assert_eq!(trimmed_s(&cells), 12.5);
}

fn with_ledger(cells: &mut [Cell], freed: u64) {
    for cell in cells {
        let units = crate::policy::Ledger { freed, ..Default::default() };
        cell.ledger = Some(CellLedger { units, ..CellLedger::default() });
    }
}

#[test]
fn runs_that_freed_nothing_give_no_verdict() {
    let mut cells = [cell("a", "off", 0, 10.0, 5), cell("a", "commit", 0, 5.0, 5)];
    with_ledger(&mut cells, 0);
    let v = verdict(&cells).unwrap();
    assert_eq!((v.policy.clone(), v.per_device.len()), (None, 0));
    assert!(v.text.starts_with("No verdict: the workload freed nothing that was committed"), "{}", v.text);
    with_ledger(&mut cells, 1);
    assert_eq!(verdict(&cells).unwrap().policy, Some("commit".into()));
}

#[test]
fn a_policy_none_of_whose_sweeps_fell_into_the_run_is_not_judged() {
    let mut cells =
        [cell("a", "off", 0, 10.0, 5), cell("a", "batch:1w", 0, 5.0, 5), cell("a", "lazy", 0, 9.0, 5)];
    let trims = |cell: &mut Cell, n| cell.device_stats.as_mut().unwrap().trim_commands = n;
    cells.iter_mut().for_each(|cell| trims(cell, 1));
    assert_eq!(verdict(&cells).unwrap().policy, Some("batch:1w".into()));
    trims(&mut cells[1], 0);
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("lazy".into()));
    assert!(v.text.contains("No verdict on `batch:1w`: no sweep was due during the run."), "{}", v.text);
    // One that fell into one of its runs is enough.
    let mut swept = cells.to_vec();
    swept.push(cell("a", "batch:1w", 1, 5.0, 5));
    trims(&mut swept[3], 1);
    assert_eq!(verdict(&swept).unwrap().policy, Some("batch:1w".into()));
    // Alone with the baseline it is no alternative either.
    let v = verdict(&cells[..2]).unwrap();
    assert_eq!(v.policy, Some("off".into()));
    assert!(v.text.contains("no other usable policy"), "{}", v.text);
}

#[test]
fn policies_can_be_judged_by_a_latency() {
    let mut cells = [cell("a", "off", 0, 10.0, 5), cell("a", "commit", 0, 20.0, 5)];
    let latency =
        |p99_ns| LatencySummary { count: 9, p50_ns: 1, p99_ns, p999_ns: 7_000_000, max_ns: 8_000_000 };
    cells[0].latency = [("fsync".into(), latency(4_000_000))].into();
    cells[1].latency = [("fsync".into(), latency(1_000_000))].into();
    for cell in &mut cells {
        cell.judge_by("p99:fsync".parse().unwrap()).unwrap();
    }
    let v = verdict(&cells).unwrap();
    assert_eq!((v.policy.clone(), v.speedup), (Some("commit".into()), 4.0));
    assert!(v.text.contains("its p99 of fsync is 4.00 times as fast as with `off`"), "{}", v.text);
    let error = cells[0].judge_by("max:read".parse().unwrap()).unwrap_err();
    assert_eq!(error, "the workload has no latency of read; it recorded fsync");
    for text in ["p98:fsync", "p99", "fsync", "p99:fsync:", ""] {
        assert!(text.parse::<Measure>().unwrap_err().contains("p50|p99|p99.9|max:create|read"), "{text}");
    }
    for text in ["total", "p50:write", "p99.9:read", "max:unlink"] {
        assert_eq!(text.parse::<Measure>().unwrap().to_string(), text);
    }
}

/// Gives every cell a drive of 1 TB for 1,000 cycles whose superblocks have 8 blocks.
fn on_a_drive(mut cells: Vec<Cell>) -> Vec<Cell> {
    let drive = crate::compare::result::DriveFacts {
        capacity_bytes: 1_000_000_000_000,
        endurance_cycles: 1_000,
        endurance_is_assumed: true,
        superblock_blocks: 8,
        link: LinkKind::Sata,
    };
    cells.iter_mut().for_each(|cell| cell.drive = Some(drive));
    cells
}

#[test]
fn few_erases_give_way_to_units_programmed() {
    let wear = |erases| {
        let cells = [exact("d", "off", 10.0, 100), exact("d", "commit", 5.0, erases)].concat();
        verdict(&on_a_drive(cells)).unwrap().text
    };
    let units = "Lifetime: 8,700 units programmed (erases differ by less than three superblocks) with `commit`, 11,000";
    assert!(wear(77).contains(units), "{}", wear(77));
    assert!(wear(76).contains("Lifetime: 76 blocks erased with `commit`, 100"), "{}", wear(76));
}

#[test]
fn the_verdict_says_why_and_how() {
    let cells = [exact("d", "off", 10.0, 100), exact("d", "commit", 5.0, 50)].concat();
    let v = verdict(&on_a_drive(cells)).unwrap();
    assert_eq!(
        v.why,
        "No use of device time differs from that with `off` by more than 2 % of the run. Endurance: 667 TB written \
         with `commit`, 667 TB written with `off` (1,000 P/E cycles, assumed); this workload, run without a pause, takes \
         25.8 years and 51.6 years to write that."
    );
    assert_eq!(v.per_device[0].why, v.why);
}
