use trimwise::compare::days::DaysFigures;
use trimwise::compare::ledger::compare_with_off;
use trimwise::compare::result::{AppendFigures, Cell, RemovalTrims, Target, Verdict, WorkloadFigures};
use trimwise::compare::summary::Summary;
use trimwise::fs::host::DiscardGeneration;
use trimwise::units::Utilization;
use trimwise::workload::stage::Done;

use super::cells::{cell, cells, mounted};
use crate::commands::compare::report::html;
use crate::commands::compare::table;
use trimwise_study::compare::{Comparison, Linux, Settings};

/// Makes a comparison of hand-made cells.
pub fn comparison(mut cells: Vec<Cell>) -> Comparison {
    compare_with_off(&mut cells);
    let in_model = cells[0].target == Target::Model;
    let mut comparison = Comparison {
        at_ends: Vec::new(),
        trimwise: "0.0.0-test".into(),
        seed: 7,
        settings: Settings {
            workload: "mail.pmrc".into(),
            target: cells[0].target.clone(),
            file_system: in_model.then(|| "ext4".into()),
            utilization: in_model.then(Utilization::default),
            linux: in_model.then(|| Linux {
                version: "6.1".into(),
                stands_for: DiscardGeneration::WorkerRunningOn.kernels().into(),
            }),
            host_memory_bytes: in_model.then_some(8 << 30),
            kernel: None,
            mount: (!in_model).then(mounted),
            reps: 6,
            days: None,
            day: None,
            judge: Summary::of(&cells).measure.to_string(),
            baseline: Summary::of(&cells).baseline,
            command: "trimwise compare --workload mail.pmrc --seed 7".into(),
        },
        summary: Summary::of(&cells).rows(),
        verdict: Verdict::default(),
        check: None,
        here: None,
        partial: false,
        ended_by: None,
        cells,
        conclusion: None,
    };
    comparison.conclude();
    comparison
}

/// Renders a comparison with its details.
fn render(comparison: &Comparison) -> String {
    table::render(comparison, true)
}

fn narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn exact_repetitions() {
    let text = render(&comparison(cells(&["vendor1"], 3, false)));
    narrow(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn several_devices_with_noise() {
    let text = render(&comparison(cells(&["vendor1", "vendor2"], 6, true)));
    narrow(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn too_few_runs_of_a_real_directory() {
    let mut cells: Vec<Cell> = (0..3).map(|r| cell("/mnt/x", "discard", r, 10.0 + f64::from(r))).collect();
    for c in &mut cells {
        c.target = Target::Directory("/mnt/x".into());
        c.device_stats = None;
        c.ledger = None;
    }
    let text = render(&comparison(cells));
    narrow(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn many_policies_have_their_distance_to_the_bound_and_their_ledger() {
    let policies =
        [("off", 182.4), ("commit", 212.1), ("set:40:90", 150.0), ("lazy+reuse", 125.5), ("ideal", 120.0)];
    let mut cells = Vec::new();
    for (policy, seconds) in policies {
        let near = |rep: u32| seconds * (1.0 + 0.01 * f64::from(rep));
        cells.extend((0..6).map(|rep| cell("vendor1", policy, rep, near(rep))));
    }
    let text = render(&comparison(cells));
    narrow(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn without_off_and_ideal_dashes_stand_where_they_would_be_compared_with() {
    let text = render(&comparison(
        ["commit", "lazy+reuse"].map(|policy| cell("vendor1", policy, 0, 100.0)).to_vec(),
    ));
    narrow(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_workload_that_times_one_operation_has_a_table_of_that() {
    let mut cells = cells(&["vendor1"], 6, true);
    for c in &mut cells {
        let fsync_ns =
            if c.policy == "commit".into() { 812_000_000 } else { 2_000_000 + u64::from(c.rep) * 1_000 };
        let commands = c.device_stats.as_ref().map_or(0, |d| d.trim_commands);
        c.workload = WorkloadFigures::Append(AppendFigures {
            append_bytes: 65_536,
            file_bytes: 1 << 30,
            pieces: 15_421,
            unlink_ns: 4_000_000,
            fsync_ns,
            trims: Some(RemovalTrims { commands, acknowledged_ns: commands * 4_000 }),
        });
    }
    let mut comparison = comparison(cells);
    comparison.settings.workload = "append:64KiB:1GiB".into();
    let text = render(&comparison);
    narrow(&text);
    insta::assert_snapshot!(text);
    let page = html(&comparison).unwrap();
    assert!(page.contains("Time of the operations") && !page.contains("Time per phase"));
}

#[test]
fn large_figures_stay_within_the_width() {
    let mut cells = cells(&["a-device-with-quite-a-long-name"], 6, true);
    for c in &mut cells {
        if c.policy == "commit".into() {
            c.policy = "set:40:90+lazy+reuse+batch:16w".into();
        }
        c.duration_ns *= 1000;
        let d = c.device_stats.as_mut().unwrap();
        d.erases *= 1_000_000;
        d.trim_commands *= 1_000_000;
        d.gc_units_copied *= 1_000;
        let ledger = c.ledger.as_mut().unwrap();
        for units in [&mut ledger.units.freed, &mut ledger.units.issued, &mut ledger.units.pending] {
            *units *= 1_000;
        }
    }
    narrow(&render(&comparison(cells)));
}

#[test]
fn over_days() {
    let days = |policy: &str, late| DaysFigures {
        elapsed_ns: 604_800_000_000_000,
        operations: 176_065,
        late_operations: late,
        late_max_ns: late * 1_200_000_000,
        sweeps: u64::from(policy == "batch:1w"),
        fitrim_max_ns: 1_852_543_854,
        slices: if policy == "trimwised" { 2_135 } else { 0 },
        maps: 987,
        fitrim_units: 916_357,
    };
    let policies = ["off", "commit", "batch:1d", "batch:1w", "judicious", "trimwised", "ideal"];
    let mut cells: Vec<Cell> =
        policies.iter().flat_map(|policy| (0..6).map(|rep| cell("vendor1", policy, rep, 70.0))).collect();
    for cell in &mut cells {
        cell.days = Some(days(&cell.policy.to_string(), u64::from(cell.policy == "batch:1w".into())));
        let is_idle = ["batch:1d", "off", "ideal"].contains(&&*cell.policy.to_string());
        if let (Some(device), false) = (&mut cell.device_stats, is_idle) {
            device.trim_commands = 40_624;
        }
    }
    let mut comparison = comparison(cells);
    (comparison.settings.days, comparison.settings.day) = (Some(7), Some("server".to_owned()));
    let text = render(&comparison);
    narrow(&text);
    let unswept = "No verdict on `batch:1d`: no sweep was due during the run.";
    assert!(comparison.verdict.text.ends_with(unswept), "{}", comparison.verdict.text);
    insta::assert_snapshot!(text);
    let page = html(&comparison).unwrap();
    assert!(page.contains("<h3>Days</h3>") && page.contains("7, server") && page.contains("\"unit\":\"d\""));
}

/// The column TRIMs used to show 0 for a job that did nothing but trim.
#[test]
fn regression_what_a_job_punched_itself_is_told_in_the_notes() {
    let with = |punched_bytes: u64| {
        let done = Done { operations: 400, punched_bytes, ..Done::default() };
        let mut cells = cells(&["vendor1"], 2, false);
        cells.iter_mut().for_each(|cell| cell.workload = WorkloadFigures::Program(done));
        render(&comparison(cells)).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let note = "The workload's own TRIMs punched holes of 400 MiB into its files.";
    assert!(with(400 << 20).contains(note), "{}", with(400 << 20));
    assert!(!with(0).contains("punched"));
}
