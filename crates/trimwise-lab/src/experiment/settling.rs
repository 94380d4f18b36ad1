//! Time for which a drive is slow after a TRIM that it carries out in the background.
//!
//! Source: the note on vendor 6 in "Performance of TRIM command on ext4 filesystem". After a whole-device TRIM without
//! writes before it, throughput starts below normal and settles over time; a larger range takes longer; the writes
//! between two TRIMs matter too, but the note does not say in which direction.

use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::compare::cell::CellError;
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::Drive;

use super::claims::Figures;
use super::grid::{Grid, Shown};
use super::result::ExperimentResult;
use super::{Experiment, Host};
use crate::bench::{self, Findings, Hooks, Percent, Settings, Settled, Test};
use crate::plot::{Axis, Plot, PlotKind};

/// The experiment; the source does not mention repetitions, and nothing is drawn at random.
pub static EXPERIMENT: Experiment = Experiment {
    name: "settling",
    question: "How long is a drive slow after a TRIM that it processes in the background?",
    reps: 1,
    claims: include_str!("../../../../experiments/settling/claims.toml"),
    host: Host::Model,
    run: |request| {
        let runs = request.repeat(&[DEVICE], &RANGES, |range, rep| run(*range, rep, request.seed))?;
        Ok(evaluate(&runs, request.reps, request.seed))
    },
};

/// The drive of the note.
const DEVICE: &str = "vendor6";

/// Ranges in hundredths of a percent of the device.
const RANGES: [u32; 4] = [1250, 2500, 5000, 10_000];
const SECONDS: u32 = 90;

#[derive(Clone, Debug, PartialEq)]
struct RangeRun {
    percent: f64,
    /// Without writes before the TRIM, and after a write of the whole device.
    settled: Vec<Settled>,
    plots: Vec<Plot>,
}

fn run(range: u32, rep: u32, seed: u64) -> Result<RangeRun, CellError> {
    let profile = Profile::embedded(DEVICE).expect("the drive is built in");
    let percent = Percent::hundredths(range);
    let drive = Drive::new(&profile.config, profile.faults, seed)?;
    let sim = Sim::new();
    let device = ModelDevice::new(BlockQueue::new(&sim, drive, QueueConfig::default()), DEVICE);
    let test = Test::Settling { range: Some(percent), seconds: Some(SECONDS) };
    let settings = Settings { seed: seed ^ u64::from(rep) << 32, ..Settings::default() };
    let ran = sim.run(async move { bench::run(&device, &[test], &settings, Hooks::default()).await });
    let failed = |what: String| CellError::Test { device: DEVICE.to_owned(), what };
    let mut results = ran.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
    let result = results.tests.pop().ok_or_else(|| {
        failed(results.broken.map_or_else(|| "no test was run".to_owned(), |broken| broken.why))
    })?;
    let settled = match result.findings {
        Findings::Settling(settled) => settled,
        _ => Vec::new(),
    };
    Ok(RangeRun { percent: percent.value(), settled, plots: result.plots })
}

/// Names of the two cases: writes before the TRIM.
const BEFORE: [&str; 2] = ["nothing written before", "the whole drive written before"];

/// Time until throughput settles; NaN if it does not.
static SETTLED: Shown<Settled> = Shown {
    title: "Time until throughput has settled after a TRIM",
    y: Axis::linear("settled_after_s", "settled after", "s"),
    of: |settled| settled.settled_after_ns.map_or(f64::NAN, |ns| ns as f64 / 1e9),
};

/// Makes figures and claims from the first repetition of each range, since all repetitions are the same.
fn evaluate(runs: &[Vec<RangeRun>], reps: u32, seed: u64) -> ExperimentResult {
    let runs: Vec<&RangeRun> = runs.iter().filter_map(|reps| reps.first()).collect();
    let grid = Grid::new(BEFORE, runs.iter().map(|run| run.percent), |before, range| {
        let is_it = |settled: &&Settled| usize::from(settled.written_before_bytes > 0) == before;
        runs[range].settled.iter().find(is_it).cloned().into_iter().collect()
    });
    let mut figures = Figures::default();
    for (name, before) in ["without", "with"].into_iter().zip(BEFORE) {
        figures.set(name, grid.line(before, SETTLED.of));
        let whole = |of: fn(&Settled) -> f64| grid.median(before, grid.places().last()?, of);
        figures.set(format!("whole.{name}"), whole(SETTLED.of));
        if name == "without" {
            figures.set("first", whole(|settled| settled.first_mb_per_s));
            figures.set("final", whole(|settled| settled.final_mb_per_s));
        }
    }
    let range = Axis::linear("range_percent", "range", "% of the drive");
    let mut plots = vec![grid.plot(PlotKind::Lines, &range, &SETTLED)];
    plots.extend(runs.iter().flat_map(|run| run.plots.clone()));
    EXPERIMENT.judge(&figures, &plots, reps, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fabricated(times: [(f64, f64); 2], first_mb_per_s: f64) -> Vec<Vec<RangeRun>> {
        let settled = |range_percent, written_before_bytes, seconds: f64| Settled {
            range_percent,
            written_before_bytes,
            trim_ns: 0,
            settled_after_ns: Some((seconds * 1e9) as u64),
            first_mb_per_s,
            final_mb_per_s: 100.0,
        };
        let run = |(percent, (without, with)): (f64, (f64, f64))| {
            let settled = vec![settled(percent, 0, without), settled(percent, 4096, with)];
            vec![RangeRun { percent, settled, plots: Vec::new() }]
        };
        [50.0, 100.0].into_iter().zip(times).map(run).collect()
    }

    fn met(times: [(f64, f64); 2], first_mb_per_s: f64) -> Vec<String> {
        let result = evaluate(&fabricated(times, first_mb_per_s), 1, 1);
        result.claims.into_iter().filter(|c| c.met).map(|c| c.id).collect()
    }

    #[test]
    fn claims_hold_of_what_the_note_says_and_fail_of_other_drives() {
        let all = ["postmark-settling", "postmark-settling-range", "postmark-settling-writes"];
        assert_eq!(met([(5.0, 8.0), (10.0, 16.0)], 50.0), all);
        assert_eq!(met([(5.0, 8.0), (10.0, 16.0)], 95.0), all[1..], "it is not slow at first");
        assert_eq!(met([(5.0, 8.0), (5.0, 16.0)], 50.0), [all[0], all[2]], "the range does not matter");
        assert_eq!(met([(5.0, 8.0), (10.0, 9.0)], 50.0), all[..2], "once longer, once shorter");
        assert!(evaluate(&[], 1, 1).claims.iter().all(|claim| !claim.met));
    }
}
