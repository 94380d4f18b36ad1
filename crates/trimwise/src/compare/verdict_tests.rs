use std::collections::BTreeMap;

use super::*;
use crate::compare::judge::{Frame, judge};
use crate::compare::ledger::CellLedger;
use crate::compare::means::{Host, Means};
use crate::compare::result::{AppendFigures, Cell, DriveFacts, PostmarkFigures, Target, WorkloadFigures};
use crate::policy::{DiscardGeneration, LinuxVersion, PolicyId};
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
        deletions: None,
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
            thin: None,
        }),
        latency: BTreeMap::new(),
        latency_quantiles_ns: BTreeMap::new(),
        judged: None,
        drive: None,
        discard: None,
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

/// The verdict of a study: compared with the baseline, of what hosts can have.
fn verdict(cells: &[Cell]) -> Option<Verdict> {
    let summary = Summary::of(cells);
    let frame = Frame::of_study(summary.measure, None);
    let judged = |device| judge(device, Some(&summary.baseline), false, |p| p.means.is_attainable(), frame);
    super::verdict(&summary, &summary.devices.iter().map(judged).collect::<Vec<_>>())
}

#[test]
fn no_cells_no_verdict() {
    assert_eq!(verdict(&[]), None);
}

#[test]
fn the_best_that_a_host_can_have_is_used_and_what_it_cannot_have_is_only_shown() {
    let cells = [
        noisy("d", "off", 20.0, 200),
        noisy("d", "commit", 10.0, 100),
        noisy("d", "lazy+reuse", 8.0, 80),
        noisy("d", "ideal", 5.0, 50),
    ]
    .concat();
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("commit".into()));
    assert!((v.speedup - 2.0).abs() < 1e-9 && v.low < 2.0 && v.high > 2.0, "{v:?}");
    // 21,000 units with `off` and 11,000 with `commit`.
    assert!((v.per_device[0].life_time.unwrap() - 21.0 / 11.0).abs() < 1e-9, "{v:?}");
    assert_eq!(
        v.text,
        "Use `commit`: it is 2.00 times as fast as `off` (95 % interval 1.94 to 2.06, p = 0.002). `ideal` (a bound) \
         would be 2.00 times as fast as `commit`. Lifetime: 43.0 MiB written to the flash with `commit`, 82.0 \
         MiB with `off`: the flash lasts 1.91 times as long with `commit`."
    );
}

#[test]
fn a_slower_policy_leaves_the_baseline_and_says_what_it_would_cost() {
    let cells = [exact("d", "off", 10.0, 1000), exact("d", "commit", 120.0, 1250)].concat();
    let v = verdict(&cells).unwrap();
    assert_eq!((v.policy.clone(), v.speedup, v.low, v.high), (Some("off".into()), 1.0, 1.0, 1.0));
    assert_eq!(
        v.text,
        "Keep `off`: with `commit` the run takes 12.0 times as long (exact: +1100.0 % in time). Lifetime: 492.2 MiB \
         written to the flash with `commit`, 394.5 MiB with `off`: the flash lasts only 0.80 times as long with \
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
        "Keep `off`: with `commit` the run takes 2.00 times as long (95 % interval 1.94 to 2.06, p = 0.002).";
    assert!(v.text.starts_with(words), "{}", v.text);
}

/// Of what differs in neither time nor wear nothing is used; of what differs in wear alone, the gentler.
#[test]
fn without_a_difference_in_speed_wear_decides_and_without_any_nothing_does() {
    let shifted: Vec<Cell> =
        (0..6).map(|r| cell("d", "commit", r, 10.05 + 0.1 * f64::from(r), 500)).collect();
    let v = verdict(&[noisy("d", "off", 10.0, 1000), shifted].concat()).unwrap();
    assert_eq!(v.policy, Some("commit".into()));
    let words = "not for its speed: compared with `off` it shows no significant difference (~)";
    assert!(v.text.contains(words), "{}", v.text);
    assert!(!v.per_device[0].significant);

    let v = verdict(&[exact("d", "commit", 9.999, 1000), exact("d", "off", 10.0, 1001)].concat()).unwrap();
    assert_eq!(v.policy, Some("off".into()), "one tenth of a per mille is no reason to change anything");
    assert!(
        v.text.starts_with(
            "It does not matter: compared with `off`, `commit` makes no difference that matters"
        )
    );
}

#[test]
fn too_few_repetitions_give_no_verdict() {
    let runs = |policy, seconds: f64| (0..2).map(move |r| cell("d", policy, r, seconds + f64::from(r), 100));
    for (commit, words) in [
        (10.0, "shows no difference that so few repetitions could prove (~) (66 % interval 0.53 to 0.60)"),
        (10.01, "shows no difference that so few repetitions could prove (~)"),
    ] {
        let cells: Vec<Cell> = runs("off", 20.0).chain(runs("commit", commit)).collect();
        let v = verdict(&cells).unwrap();
        assert_eq!((v.policy.clone(), v.per_device[0].significant), (None, false), "{}", v.text);
        assert!(v.text.starts_with("No verdict: compared with `off`, `commit` shows"), "{}", v.text);
        assert!(v.text.contains(&words[..40]), "{}", v.text);
    }
    let v = verdict(&[cell("d", "off", 0, 2.0, 1), cell("d", "commit", 0, 1.0, 1)]).unwrap();
    assert_eq!(v.policy, None);
    assert!(v.text.contains("(one run of each)"), "{}", v.text);
}

/// Rows that a host can have, on this link.
#[test]
fn regression_stock_linux_fills_no_command_on_sata_so_no_such_row_is_used() {
    for (link, filled) in
        [(LinkKind::Sata, Means::Bound), (LinkKind::Ufs, Means::Bound), (LinkKind::Nvme, Means::Ext4Trim)]
    {
        for (policy, means) in [
            ("off", Means::Stock),
            ("commit", Means::Stock),
            ("batch:1w", Means::Stock),
            ("commit+rocksdb:64MiB/s", Means::Stock),
            ("set:40:90+pebble", Means::Bound),
            ("batch:1w:64KiB", Means::Bound),
            ("trimwised", Means::Trimwised),
            ("trimwised:lazy+reuse", Means::Trimwised),
            ("set:40:90", Means::Trimwised),
            ("lazy+reuse", Means::Ext4Trim),
            ("set:40:90+lazy+reuse", Means::Ext4Trim),
            ("lazy+fill", filled),
            ("dm-trim", Means::DmTrim),
            ("btrfs", Means::Elsewhere),
            ("kernel515", Means::OtherLinux),
            ("judicious", Means::Bound),
            ("adaptive", Means::Bound),
            ("quiet", Means::Bound),
            ("ideal", Means::Bound),
            ("own:mine", Means::Own),
        ] {
            let host = Host { link: Some(link), discard: None };
            assert_eq!(Means::of(&policy.into(), &Target::Model, host), means, "{policy} on {link:?}");
        }
        let cells = [
            exact("d", "off", 20.0, 200),
            exact("d", "commit", 18.0, 190),
            exact("d", "judicious", 10.0, 90),
        ];
        let mut cells = cells.concat();
        let drive = DriveFacts { link, ..drive() };
        cells.iter_mut().for_each(|cell| cell.drive = Some(drive));
        assert_eq!(verdict(&cells).unwrap().policy, Some("commit".into()));
    }
    // What ran on a real kernel can be had there, but for patches.
    let kernel = Target::Kernel("6.12:btrfs".into());
    assert_eq!(Means::of(&PolicyId::Named("async".into()), &kernel, Host::UNKNOWN), Means::Stock);
    assert_eq!(Means::of(&"lazy".into(), &kernel, Host::UNKNOWN), Means::Ext4Trim);
    assert_eq!(Means::of(&"lazy".into(), &Target::Directory("/mnt".into()), Host::UNKNOWN), Means::Stock);
}

/// `discard` of one generation is stock where the host has that generation, and elsewhere it is not.
#[test]
fn regression_discard_of_the_hosts_own_linux_is_stock() {
    for (linux, own) in [
        ("4.4", "serial"),
        ("4.12", "serial"),
        ("4.13", "together"),
        ("5.14", "together"),
        ("5.15", "kernel515"),
        ("6.0", "kernel515"),
        ("6.12", ""),
    ] {
        let discard: DiscardGeneration = linux.parse::<LinuxVersion>().unwrap().discard();
        let host = Host { link: Some(LinkKind::Sata), discard: Some(discard) };
        let means = |policy: &str| Means::of(&policy.into(), &Target::Model, host);
        for policy in ["serial", "together", "kernel515"] {
            let gated = format!("set:40:90+{policy}");
            let expected = match policy == own {
                true => [Means::Stock, Means::Trimwised],
                false => [Means::OtherLinux; 2],
            };
            assert_eq!([means(policy), means(&gated)], expected, "{policy} on Linux {linux}");
        }
        for (policy, expected) in
            [("commit", Means::Stock), ("set:40:90", Means::Trimwised), ("f2fs", Means::Elsewhere)]
        {
            assert_eq!(means(policy), expected, "{policy} on Linux {linux}");
        }
        // The same from the runs of such a host.
        let mut cells = [exact("d", "off", 9.0, 100), exact("d", "serial", 8.0, 90)].concat();
        cells.iter_mut().for_each(|cell| cell.discard = Some(discard));
        let serial = Summary::of(&cells).devices[0].policies[1].means;
        assert_eq!(serial == Means::Stock, own == "serial", "{linux}: {serial:?}");
    }
}

/// The weekly timer is one command, whatever lasts longest; a host that is trimmed already is not told to change.
#[test]
fn regression_trimming_at_all_is_worth_it_even_if_the_flash_outlives_its_host() {
    let long_lived = |policy, nand: u64| -> Vec<Cell> {
        let mut cells = exact("d", policy, 10.0, nand);
        for cell in &mut cells {
            cell.drive = Some(DriveFacts { endurance_cycles: 90_000_000, ..drive() });
        }
        cells
    };
    let judged = |cells: &[Cell]| {
        let summary = Summary::of(cells);
        let frame = Frame::of_study(summary.measure, None);
        let device = &summary.devices[0];
        judge(device, Some(&summary.baseline), false, |p| p.means.is_attainable(), frame)
    };
    let others = [long_lived("commit", 40), long_lived("trimwised", 50), long_lived("batch:1w", 60)].concat();
    let mut all = [long_lived("off", 100), others].concat();
    all.iter_mut().for_each(|cell| cell.device_stats.as_mut().unwrap().trim_commands = 1);
    let found = judged(&all);
    assert_eq!((found.decision, found.policy), (Decision::Untrimmed, Some("batch:1w".into())));
    // The same work on a host that `commit` trims.
    assert_eq!(judged(&all[3..]).decision, Decision::DoesNotMatter);
    // 4.9 % is no reason, nor is one that takes more time.
    let near = [long_lived("off", 100), long_lived("commit", 95)].concat();
    assert_eq!(judged(&near).decision, Decision::DoesNotMatter);
    let mut slow = [long_lived("off", 100), long_lived("commit", 40)].concat();
    slow.iter_mut()
        .filter(|cell| cell.policy == "commit".into())
        .for_each(|cell| cell.duration_ns = 10_300_000_000);
    assert_eq!(judged(&slow).decision, Decision::Keep);
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
    let v = verdict(&[timed("off", 800), timed("commit", 8)].concat()).unwrap();
    assert_eq!((v.policy.clone(), v.speedup), (Some("commit".into()), 100.0));
    assert!(v.text.starts_with("Use `commit`: its fsync is 100 times as fast as with `off`"), "{}", v.text);
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
        assert_eq!(summary.devices[0].policies[1].means, Means::Own);
        let v = verdict(&cells).unwrap();
        assert_eq!(v.policy, Some(PolicyId::Named(name.into())), "{}", v.text);
        assert!(v.text.starts_with(&format!("Use `own:{name}`")), "{}", v.text);
    }
}

#[test]
fn a_real_directory_is_never_exact_and_knows_no_life_time() {
    let on = |policy: &str, seconds| {
        let mut c = cell("/mnt", policy, 0, seconds, 0);
        c.target = Target::Directory("/mnt".into());
        c.device_stats = None;
        c
    };
    let cells = [on("discard", 10.0)];
    assert!(!Summary::of(&cells).devices[0].policies[0].time_s.is_exact());
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, None);
    assert_eq!(v.text, "`discard` took 10.00 s, and no other policy ran here that a host can have.");
    let text = verdict(&[on("discard", 10.0), on("nodiscard", 9.0)]).unwrap().text;
    assert!(text.contains("Lifetime: unknown; a real directory"), "{text}");
}

#[test]
fn what_no_host_has_is_no_baseline() {
    let v = verdict(&exact("d", "ideal", 10.0, 0)).unwrap();
    assert_eq!((v.policy, &*v.text), (None, "`ideal` cannot be had (a bound)."));
}

#[test]
fn over_devices_a_policy_is_used_only_if_it_is_on_each() {
    let on = |device, commit| [exact(device, "off", 10.0, 100), exact(device, "commit", commit, 50)].concat();
    let both = verdict(&[on("a", 5.0), on("b", 2.0)].concat()).unwrap();
    assert_eq!(
        (both.policy.clone(), &*both.text),
        (Some("commit".into()), "The same on all 2 devices: `commit`.")
    );
    assert!(both.speedup.is_nan(), "one number for two devices would be none of either");
    let differ = verdict(&[on("a", 5.0), on("b", 20.0)].concat()).unwrap();
    assert_eq!((differ.policy.clone(), differ.per_device[0].policy.clone()), (None, Some("commit".into())));
    assert_eq!(differ.per_device[1].policy, Some("off".into()));
}

#[test]
fn repetitions_that_differ_only_inside_the_device_are_not_exact() {
    let mut cells = exact("d", "off", 10.0, 100);
    cells[2].device_stats.as_mut().unwrap().erases += 1;
    assert!(!Summary::of(&cells).devices[0].policies[0].time_s.is_exact());
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
    let mut cells = [exact("a", "off", 10.0, 5), exact("a", "commit", 5.0, 5)].concat();
    with_ledger(&mut cells, 0);
    let v = verdict(&cells).unwrap();
    assert_eq!((v.policy.clone(), v.per_device.len()), (None, 0));
    assert!(v.text.starts_with("No verdict: the workload freed nothing that was committed"), "{}", v.text);
    with_ledger(&mut cells, 1);
    assert_eq!(verdict(&cells).unwrap().policy, Some("commit".into()));
}

#[test]
fn a_policy_none_of_whose_sweeps_fell_into_the_run_is_not_judged() {
    let runs = |policy, seconds| noisy("a", policy, seconds, 5);
    let trims = |cells: &mut [Cell], n| {
        cells.iter_mut().for_each(|cell| cell.device_stats.as_mut().unwrap().trim_commands = n);
    };
    let mut cells = [runs("off", 10.0), runs("batch:1w", 5.0), runs("commit", 9.0)].concat();
    trims(&mut cells, 1);
    assert_eq!(verdict(&cells).unwrap().policy, Some("batch:1w".into()));
    trims(&mut cells[6..12], 0);
    let v = verdict(&cells).unwrap();
    assert_eq!(v.policy, Some("commit".into()));
    assert!(v.text.contains("No verdict on `batch:1w`: no sweep was due during the run."), "{}", v.text);
    // One that fell into one of its runs is enough.
    trims(&mut cells[6..7], 1);
    assert_eq!(verdict(&cells).unwrap().policy, Some("batch:1w".into()));
    // Alone with the baseline it is no alternative either.
    trims(&mut cells[6..7], 0);
    let v = verdict(&cells[..12]).unwrap();
    assert_eq!(v.policy, None);
    assert!(v.text.contains("no other policy ran here that a host can have"), "{}", v.text);
}

#[test]
fn policies_can_be_judged_by_a_latency() {
    let mut cells = [exact("a", "off", 10.0, 5), exact("a", "commit", 20.0, 5)].concat();
    let latency =
        |p99_ns| LatencySummary { count: 9, p50_ns: 1, p99_ns, p999_ns: 7_000_000, max_ns: 8_000_000 };
    for (number, cell) in cells.iter_mut().enumerate() {
        cell.latency = [("fsync".into(), latency(if number < 3 { 4_000_000 } else { 1_000_000 }))].into();
    }
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

/// A drive of 1 TB for 1,000 cycles.
fn drive() -> DriveFacts {
    DriveFacts {
        capacity_bytes: 1_000_000_000_000,
        endurance_cycles: 1_000,
        endurance_is_assumed: true,
        superblock_blocks: 8,
        link: LinkKind::Sata,
    }
}

/// Erases of a short run depend on the blocks that were free when it began, so what is written counts.
#[test]
fn regression_the_flash_has_one_life_which_is_that_of_what_is_written_to_it() {
    let mut cells = [exact("d", "off", 10.0, 100), exact("d", "commit", 5.0, 50)].concat();
    for (number, cell) in cells.iter_mut().enumerate() {
        let nand = if number < 3 { 13_000 } else { 10_000 };
        let stats = cell.device_stats.as_mut().unwrap();
        (stats.host_units_written, stats.nand_units_written) = (10_000, nand);
        stats.write_amplification = nand as f64 / 10_000.0;
        cell.drive = Some(drive());
    }
    let v = verdict(&cells).unwrap();
    assert_eq!(v.per_device[0].life_time, Some(1.3), "not 2, as of the erases");
    assert!(v.text.ends_with("the flash lasts 1.30 times as long with `commit`."), "{}", v.text);
    assert!(
        v.why.contains("Endurance: 1000 TB written with `commit`, 769 TB written with `off`"),
        "{}",
        v.why
    );
}

#[test]
fn the_verdict_says_why_and_how() {
    let mut cells = [exact("d", "off", 10.0, 100), exact("d", "commit", 5.0, 50)].concat();
    cells.iter_mut().for_each(|cell| cell.drive = Some(drive()));
    let v = verdict(&cells).unwrap();
    assert_eq!(
        v.why,
        "No use of device time differs from that with `off` by more than 2 % of the run. Endurance: 667 TB written \
         with `commit`, 667 TB written with `off` (1,000 P/E cycles, assumed); this workload, run without a pause, takes \
         25.8 years and 51.6 years to write that."
    );
    assert_eq!(v.per_device[0].why, v.why);
}
