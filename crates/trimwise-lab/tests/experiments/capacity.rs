//! The experiment `capacity`, sampled: claims that nothing was fitted to. Random writes on the trimmed drive at both levels
//! of the source, and random overwrites of a drive that is half full and full, with both mappings.
//!
//! All of it: `CAPACITY=full cargo test --release -p trimwise-lab --test experiments capacity::`, or `trimwise reproduce capacity`.

use std::thread;

use trimwise_lab::experiment::capacity::{History, Measured, evaluate, histories, run};
use trimwise_lab::experiment::result::Role;

const SEED: u64 = 1;

fn is_full() -> bool {
    std::env::var("CAPACITY").is_ok_and(|v| v == "full")
}

/// Whether a history is sampled.
fn is_sampled(history: &History) -> bool {
    match *history {
        History::TrimmedRandom { device, .. } => device == "vertex-60gb",
        History::Overwritten { remainder: 0, level, trimmed: true, .. } => [50, 100].contains(&level),
        _ => false,
    }
}

#[test]
fn claims_hold() {
    let all: Vec<History> =
        histories().into_iter().filter(|history| is_full() || is_sampled(history)).collect();
    let half = all.len().div_ceil(2);
    let runs = thread::scope(|scope| {
        let threads: Vec<_> = all
            .chunks(half)
            .map(|part| scope.spawn(|| part.iter().map(|h| vec![run(h, SEED).unwrap()]).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let result = evaluate(&Measured::new(all.into_iter().zip(runs)), 1, SEED);
    let checks: Vec<&str> = result
        .claims
        .iter()
        .filter(|claim| claim.role == Role::Check)
        .map(|claim| claim.id.as_str())
        .collect();
    if !is_full() {
        assert_eq!(checks, ["capacity-random", "capacity-mapping"]);
    }
    let open: Vec<_> = result.claims.iter().filter(|claim| !claim.met).collect();
    assert!(open.is_empty(), "{open:#?}");
}
