//! The experiments `set-1a` and `set-1b`, sampled: the same code on a sixteenth of the drive with a sixteenth of the
//! files, and fewer points.
//!
//! All of it: `SET=full cargo test --release -p trimwise-lab --test experiments set::`, or `trimwise reproduce set-1a`.

use trimwise::policy::PolicySpec;
use trimwise::units::Utilization;
use trimwise_lab::experiment::Grid;
use trimwise_lab::experiment::result::{Claim, ExperimentResult};
use trimwise_lab::experiment::set::{self, Setting, one_a, one_b};

const SEED: u64 = 1;

fn is_full() -> bool {
    std::env::var("SET").is_ok_and(|v| v == "full")
}

/// The published setting, or one that is a sixteenth of it in everything that has a size.
fn setting() -> Setting {
    if is_full() {
        return Setting::published();
    }
    Setting { turnovers: (1, Utilization::of(80)), ..Setting::published().sixteenth() }
}

fn policies(written: &[&str]) -> Vec<PolicySpec> {
    written.iter().map(|p| p.parse().unwrap()).collect()
}

fn names(policies: &[PolicySpec]) -> Vec<String> {
    policies.iter().map(PolicySpec::to_string).collect()
}

#[track_caller]
fn assert_met(result: &ExperimentResult) {
    let open: Vec<&Claim> = result.claims.iter().filter(|c| !c.met).collect();
    assert!(result.claims.len() >= 2 && open.is_empty(), "{open:#?}");
}

#[test]
fn the_published_curve_has_its_shape() {
    let setting = setting();
    let aged = set::age(&setting, SEED).unwrap();
    let policies = policies(&one_a::POLICIES[..2]);
    let utilizations = if is_full() {
        one_a::UTILIZATIONS.to_vec()
    } else {
        Utilization::all([20, 30, 40, 50, 80, 90, 100]).to_vec()
    };
    let done = std::cell::Cell::new(0);
    let runs: Vec<_> = utilizations
        .iter()
        .map(|&u| one_a::run(&setting, &aged, &policies, u, 0, SEED, &|| done.set(done.get() + 1)).unwrap())
        .collect();
    assert_eq!(done.get(), utilizations.len() * policies.len());
    for (of, &asked) in runs.iter().zip(&utilizations) {
        let (off, commit) = (&of[0], &of[1]);
        // Both begin on the same drive; metadata that was never written and the size of a file are the difference.
        assert_eq!(off.device_utilization_percent, commit.device_utilization_percent);
        assert!(
            (off.device_utilization_percent - asked.percent() as f64).abs() < 3.0,
            "{off:?} at {asked} %"
        );
        assert_eq!((off.trim_commands, off.trim_s), (0, 0.0));
        assert!(commit.trim_commands > 0 && commit.stale_percent < off.stale_percent);
        assert!(commit.write_amplification <= off.write_amplification + 0.01, "{commit:?} {off:?}");
    }
    let grid = Grid::new(names(&policies), one_a::places(&utilizations), |policy, at| {
        vec![runs[at][policy].clone()]
    });
    assert_met(&one_a::evaluate(&grid, SEED));
}

#[test]
fn set_beats_on_beats_off() {
    let setting = setting();
    let aged = set::age(&setting, SEED).unwrap();
    let policies = policies(&one_b::PUBLISHED);
    let runs: Vec<_> =
        policies.iter().map(|&p| vec![one_b::run(&setting, &aged, p, 0, SEED).unwrap()]).collect();
    let (off, commit) = (&runs[0][0], &runs[7][0]);
    for (stage, asked) in one_b::UTILIZATIONS.into_iter().enumerate() {
        let valid = |stages: &[one_b::Stage]| stages[stage].run.device_utilization_percent;
        assert!(valid(off) > 97.0, "what was valid once stays valid: {}", valid(off));
        assert!((valid(commit) - asked.percent() as f64).abs() < 3.0, "{} at {asked} %", valid(commit));
    }
    let total = |policy: usize| runs[policy][0].iter().map(|stage| stage.run.total_s).sum::<f64>();
    let (high, low) = (total(2), total(6));
    assert!(high < low, "SeT(40,100) {high} s, SeT(40,60) {low} s");
    let mut result = one_b::evaluate(&one_b::Measured { policies: names(&policies), runs }, 1, SEED);
    if !is_full() {
        // On so small a drive SeT(40,80) is 1 % faster than SeT(40,90); only the ends of the trend are far enough apart.
        result.claims.retain(|claim| claim.id != "set-1b-high-watermark");
    }
    assert_met(&result);
}

/// The policy that we ship is at least as good as the published ones over the sequence, in time and in its slowest
/// operations; medians of three repetitions, since a 99th percentile at this size hangs on a few operations.
#[test]
fn judicious_is_as_good_as_the_published_policies() {
    let setting = setting();
    let aged = set::age(&setting, SEED).unwrap();
    let figures = |policy: PolicySpec| {
        let runs = [0, 1, 2].map(|rep| one_b::run(&setting, &aged, policy, rep, SEED).unwrap());
        let over = |figure: fn(&one_b::Stage) -> f64| {
            let mut sums = runs.each_ref().map(|stages| stages.iter().map(figure).sum::<f64>());
            sums.sort_by(f64::total_cmp);
            sums[1]
        };
        (over(|stage| stage.run.total_s), over(|stage| stage.run.p99_ms))
    };
    let ours = figures(PolicySpec::JUDICIOUS);
    for policy in policies(&["set:0:100", "set:40:60", "commit", "lazy+reuse"]) {
        let theirs = figures(policy);
        assert!(ours.0 <= theirs.0 && ours.1 <= theirs.1, "{policy} {theirs:?}, judicious {ours:?}");
    }
}

#[test]
fn the_aged_state_serves_any_number_of_runs() {
    let setting = setting();
    let aged = set::age(&setting, SEED).unwrap();
    let run = |rep| one_b::run(&setting, &aged, PolicySpec::COMMIT, rep, SEED).unwrap();
    let first = run(0);
    assert_eq!(first, run(0), "a run leaves no trace in the state that it began with");
    assert_ne!(first, run(1), "another repetition deletes other files at another phase of the commit timer");
}
