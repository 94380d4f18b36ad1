//! The experiments of the Lazy TRIM paper, sampled: the policies that their claims are about.
//!
//! All of them: `cargo run --release -- reproduce lazy-3`, `lazy-4`, `lazy-table2`.

use trimwise_lab::experiment::Grid;
use trimwise_lab::experiment::lazy::{
    FSYNC, FSYNC_NAMES, POLICIES, device, evaluate_figure_3, evaluate_figure_4, evaluate_table_2, host,
    run_size, run_write, sizes, sizes_kib,
};
use trimwise_lab::experiment::result::ExperimentResult;

const SEED: u64 = 1;

#[track_caller]
fn assert_all_met(result: &ExperimentResult, claims: usize) {
    assert!(
        result.claims.len() == claims && result.claims.iter().all(|claim| claim.met),
        "{:#?}",
        result.claims
    );
}

#[test]
fn fsync_and_the_issue_of_trims_over_the_append_size() {
    let policies = ["commit", "lazy"];
    assert_eq!(POLICIES[..2], policies);
    let runs = policies.map(|policy| {
        let policy = policy.parse().unwrap();
        sizes().map(|size| run_size(host(), &device(), policy, size, 0, SEED).unwrap()).collect::<Vec<_>>()
    });
    let grid = Grid::new(policies, sizes_kib(), |policy, size| vec![runs[policy][size]]);
    assert_all_met(&evaluate_figure_3(&grid, SEED), 3);
    assert_all_met(&evaluate_figure_4(&grid, SEED), 1);
    // Each fragment takes one command, and the smallest append makes one of each piece.
    for run in runs.each_ref().map(|sizes| sizes[0]) {
        assert_eq!(run.issue.commands, 15_421);
    }
    assert!(runs[0].windows(2).all(|pair| pair[0].issue.commands > pair[1].issue.commands));
}

#[test]
fn the_write_on_a_full_file_system() {
    let policies = ["commit", "lazy", "lazy+reuse"];
    assert_eq!(POLICIES[..3], policies);
    let runs =
        policies.map(|policy| run_write(host(), &device(), policy.parse().unwrap(), true, 0, SEED).unwrap());
    let after_an_fsync =
        |fsync: usize, policy: usize| if FSYNC[fsync] { vec![runs[policy]] } else { Vec::new() };
    let grid = Grid::new(FSYNC_NAMES, policies.map(str::to_owned), after_an_fsync);
    assert_all_met(&evaluate_table_2(&grid, SEED), 2);
    // Traditional's write was not fitted: published are 2 ms.
    let traditional_ms = runs[0].took.as_nanos() as f64 / 1e6;
    assert!((1.8..=2.2).contains(&traditional_ms), "{traditional_ms}");
}
