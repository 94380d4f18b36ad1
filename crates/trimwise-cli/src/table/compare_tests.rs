use trimwise::experiment::ledger::compare_with_off;
use trimwise::experiment::result::Cell;
use trimwise::experiment::verdict::verdict;
use trimwise::fs::host::DiscardGeneration;

use super::*;
use crate::compare::{Linux, Settings};
use crate::runner::fabricated;

/// A comparison of hand-made cells.
pub fn comparison(mut cells: Vec<Cell>) -> Comparison {
    compare_with_off(&mut cells);
    let in_model = cells[0].target == "model";
    Comparison {
        trimwise: "0.0.0-test",
        seed: 7,
        settings: Settings {
            workload: "mail.pmrc".into(),
            target: cells[0].target.clone(),
            utilization_percent: in_model.then_some(80),
            linux: in_model
                .then(|| Linux { version: "6.1".into(), stands_for: DiscardGeneration::Worker.kernels() }),
            host_memory_bytes: in_model.then_some(8 << 30),
            mount: (!in_model).then(fabricated::mounted),
            reps: 6,
            baseline: Summary::of(&cells).baseline,
            command: "trimwise compare --workload mail.pmrc --seed 7".into(),
        },
        summary: Summary::of(&cells).rows(),
        verdict: verdict(&cells).unwrap(),
        cells,
    }
}

fn narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn exact_repetitions() {
    let text = render(&comparison(fabricated::cells(&["vendor1"], 3, false)));
    narrow(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn several_devices_with_noise() {
    let text = render(&comparison(fabricated::cells(&["vendor1", "vendor2"], 6, true)));
    narrow(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn too_few_runs_of_a_real_directory() {
    let mut cells: Vec<Cell> =
        (0..3).map(|r| fabricated::cell("/mnt/x", "discard", r, 10.0 + f64::from(r))).collect();
    for c in &mut cells {
        c.target = "dir:/mnt/x".into();
        c.device_stats = None;
        c.ledger = None;
    }
    let text = render(&comparison(cells));
    narrow(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn large_figures_stay_within_the_width() {
    let mut cells = fabricated::cells(&["a-device-with-quite-a-long-name"], 6, true);
    for c in &mut cells {
        if c.policy == "commit" {
            c.policy = "set:40:90+lazy+reuse+batch:16w".into();
        }
        c.duration_ns *= 1000;
        let d = c.device_stats.as_mut().unwrap();
        d.erases *= 1_000_000;
        d.trim_commands *= 1_000_000;
    }
    narrow(&render(&comparison(cells)));
}
