//! The experiment `capacity`, sampled: the histories that its claims are about, but for the sequential writes on the whole
//! drive, of which one is enough.
//!
//! All of it: `CAPACITY=full cargo test --release -p trimwise --test capacity`, or `trimwise reproduce capacity`.

use std::thread;

use trimwise::experiment::capacity::{History, Measured, evaluate, histories, run};

const SEED: u64 = 1;

fn is_full() -> bool {
    std::env::var("CAPACITY").is_ok_and(|v| v == "full")
}

/// Whether a history is sampled.
fn is_sampled(history: &History) -> bool {
    match *history {
        History::TrimmedWrite { device, level } => device == "vertex-60gb" && level == 6_290,
        History::Overwritten { remainder: 0, level, trimmed: true, .. } => [50, 100].contains(&level),
        History::Overwritten { remainder, level: 100, trimmed: false, .. } => {
            [0, 28, 50].contains(&remainder)
        }
        History::WithPauses { level: 80, trimmed: false, .. } => true,
        _ => false,
    }
}

#[test]
fn claims_hold() {
    let all: Vec<History> =
        histories().into_iter().filter(|history| is_full() || is_sampled(history)).collect();
    assert!(all.len() > 10);
    let half = all.len().div_ceil(2);
    let runs = thread::scope(|scope| {
        let threads: Vec<_> = all
            .chunks(half)
            .map(|part| scope.spawn(|| part.iter().map(|h| vec![run(h, SEED).unwrap()]).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let result = evaluate(&Measured::new(all.into_iter().zip(runs)), 1, SEED);
    let sampled = ["capacity-63", "capacity-untrimmed", "capacity-mapping"];
    let judged = result.claims.iter().filter(|claim| is_full() || sampled.contains(&claim.id));
    let open: Vec<_> = judged.filter(|claim| !claim.met).collect();
    assert!(open.is_empty(), "{open:#?}");
}
