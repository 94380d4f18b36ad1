//! The experiments of the Lazy TRIM paper, sampled: the policies that their claims are about.
//!
//! All of them: `cargo run --release -- reproduce lazy-3`, `lazy-4`, `lazy-table2`.

use trimwise_lab::experiment::lazy::{
    POLICIES, SizeRuns, WriteRuns, device, evaluate_figure_3, evaluate_figure_4, evaluate_table_2, run_size,
    run_write, sizes,
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
    let of_policy = |policy: &&str| -> SizeRuns {
        let policy = policy.parse().unwrap();
        sizes().map(|size| vec![run_size(&device(), policy, size, 0, SEED).unwrap()]).collect()
    };
    let runs: Vec<SizeRuns> = POLICIES[..2].iter().map(of_policy).collect();
    assert_eq!(POLICIES[..2], ["commit", "lazy"]);
    assert_all_met(&evaluate_figure_3(&runs, SEED), 3);
    assert_all_met(&evaluate_figure_4(&runs, SEED), 1);
    // Each fragment takes one command, and the smallest append makes one of each piece.
    for run in runs.iter().map(|sizes| sizes[0][0]) {
        assert_eq!((run.pieces, run.extents, run.issue.commands), (15_421, 15_421, 15_421));
    }
    assert!(runs[0].windows(2).all(|pair| pair[0][0].issue.commands > pair[1][0].issue.commands));
}

#[test]
fn the_write_on_a_full_file_system() {
    let after_an_fsync = |policy: &&str| -> WriteRuns {
        [vec![run_write(&device(), policy.parse().unwrap(), true, 0, SEED).unwrap()], Vec::new()]
    };
    let runs: Vec<WriteRuns> = POLICIES[..3].iter().map(after_an_fsync).collect();
    assert_eq!(POLICIES[..3], ["commit", "lazy", "lazy+reuse"]);
    assert_all_met(&evaluate_table_2(&runs, SEED), 2);
    // Traditional's write was not fitted: published are 2 ms.
    let traditional_ms = runs[0][0][0].write.as_nanos() as f64 / 1e6;
    assert!((1.8..=2.2).contains(&traditional_ms), "{traditional_ms}");
}
