//! The search on invented responses.

use std::collections::BTreeSet;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

/// A square grid of settings, with each second one in the coarse choice.
fn grid(side: usize) -> Vec<Node> {
    let at = |x: usize, y: usize| y * side + x;
    let node = |x: usize, y: usize| {
        let mut neighbours = Vec::new();
        if x > 0 {
            neighbours.push(at(x - 1, y));
        }
        if y > 0 {
            neighbours.push(at(x, y - 1));
        }
        if x + 1 < side {
            neighbours.push(at(x + 1, y));
        }
        if y + 1 < side {
            neighbours.push(at(x, y + 1));
        }
        Node { is_first: x.is_multiple_of(2) && y.is_multiple_of(2), neighbours }
    };
    (0..side * side).map(|i| node(i % side, i / side)).collect()
}

fn line(n: usize) -> Vec<Node> {
    vec![Node { is_first: true, neighbours: Vec::new() }; n]
}

fn observation(time_s: f64, wear: f64) -> Observation {
    Observation { time_s, wear_units: Some(wear), identity: [time_s.to_bits(), wear.to_bits(), 0, 0] }
}

/// Runs a search to its end. Each job must be new, and the announced maximum must hold in each round and only shrink.
fn searched(nodes: Vec<Node>, response: impl Fn(Job) -> Observation) -> Search {
    let mut search = Search::new(nodes, Rounds::ADVICE);
    let mut ran = BTreeSet::new();
    let mut left_max = search.left_max();
    search
        .run(|jobs, left| {
            assert!(left <= left_max && jobs.len() <= left, "{} jobs, {left} of {left_max} left", jobs.len());
            left_max = left - jobs.len();
            assert!(jobs.iter().all(|job| ran.insert(*job)), "a job ran twice");
            (jobs.iter().map(|&job| (job, response(job))).collect(), None::<()>)
        })
        .unwrap();
    assert_eq!(search.total_runs(), ran.len());
    assert!(search.next_jobs().is_empty(), "it stays over");
    assert_eq!(search.left_max(), 0);
    search
}

/// Noise of a repetition that all candidates share, and some of each one's own; both in shares.
fn noise(seed: u64, job: Job, shared: f64, own: f64) -> f64 {
    let draw = |seed: u64| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..4).map(|_| rng.next_u64() as f64 / u64::MAX as f64 - 0.5).sum::<f64>()
    };
    let of_rep = seed * 1_000_003 + u64::from(job.rep);
    1.0 + shared * draw(of_rep) + own * draw(of_rep * 7919 + job.candidate as u64)
}

#[test]
fn a_valley_is_found_without_trying_everything() {
    let side = 11;
    for seed in 0..20 {
        let response = |i: usize| {
            let (x, y) = ((i % side) as f64, (i / side) as f64);
            100.0 + (x - 7.0).powi(2) + (y - 3.0).powi(2)
        };
        let search = searched(grid(side), |job| {
            observation(response(job.candidate) * noise(seed, job, 0.05, 0.002), 1.0)
        });
        let winner = search.finalists()[0];
        assert!(response(winner) <= 101.0, "seed {seed}: {winner}");
        let exhaustive = side * side * REPS_MAX as usize;
        assert!(search.total_runs() * 5 < exhaustive, "{} of {exhaustive}", search.total_runs());
    }
}

#[test]
fn shared_noise_ten_times_the_difference_does_not_mislead() {
    let mut right = 0;
    for seed in 0..100 {
        let search = searched(line(20), |job| {
            let time = if job.candidate == 13 { 98.0 } else { 100.0 };
            observation(time * noise(seed, job, 0.2, 0.005), 1.0)
        });
        right += usize::from(search.finalists()[0] == 13);
    }
    assert!(right >= 95, "{right} of 100");
}

#[test]
fn a_plateau_counts_as_one() {
    // All the same but one, which is worse: nothing is left to halve.
    let search = searched(line(30), |job| observation(if job.candidate == 4 { 2.0 } else { 1.0 }, 1.0));
    assert_eq!(search.finalists(), [0, 4]);
    assert_eq!(search.same_as(29), Some(0));
    assert_eq!((search.same_as(0), search.same_as(4)), (None, None));
    assert_eq!(search.total_runs(), 30 + 2 * 7);
    assert_eq!(search.excess(29, 0), Some((0.0, 8)), "by the runs of the one it is the same as");
    assert_eq!(search.excess(4, 0), Some((1.0, 8)));
}

#[test]
fn only_the_border_of_a_plateau_is_explored() {
    let side = 11;
    // The best lies between a plateau and worse ones, in no coarse place.
    let search = searched(grid(side), |job| match job.candidate % side {
        0..=4 => observation(100.0, 1.0),
        5 => observation(90.0 + (job.candidate / side) as f64 * 0.01, 1.0),
        x => observation(110.0 + x as f64 + (job.candidate / side) as f64 * 0.1, 1.0),
    });
    assert_eq!(search.finalists()[0] % side, 5);
    let ran = |i: &usize| !search.seen(*i).is_empty();
    let inside = (0..side * side).filter(|i| i % side < 3).filter(ran).count();
    assert_eq!(inside, 2 * 6, "only the coarse ones");
    assert!((0..side * side).filter(ran).count() <= side * side / 2, "no more than half run at all");
}

#[test]
fn of_equally_fast_ones_the_gentlest_wins_however_late_it_comes() {
    let search = searched(line(24), |job| {
        let wear = if job.candidate == 20 { 50.0 } else { 100.0 };
        // The gentlest is slower by less than anyone would notice.
        let time = if job.candidate == 20 { 100.3 } else { 100.0 + job.candidate as f64 * 1e-6 };
        observation(time * noise(1, job, 0.02, 0.0), wear)
    });
    assert_eq!(search.finalists()[0], 20);
    let search = searched(line(24), |job| {
        let (time, wear) = if job.candidate == 20 { (110.0, 50.0) } else { (100.0, 100.0) };
        observation((time + job.candidate as f64 * 1e-6) * noise(1, job, 0.02, 0.0), wear)
    });
    assert_eq!(search.finalists()[0], 0, "a tenth slower is not equally fast");
}

#[test]
fn candidates_are_compared_within_each_repetition() {
    // Repetitions differ ten times as much as candidates. Only in pairs is the gentlest seen to be 3 % slower.
    let search = searched(line(4), |job| {
        let (time, wear) = [(100.0, 100.0), (103.0, 50.0), (104.0, 100.0), (150.0, 100.0)][job.candidate];
        observation(time * [1.0, 1.3, 0.8, 1.5, 0.7, 1.2, 0.9, 1.4][job.rep as usize], wear)
    });
    assert_eq!(search.finalists(), [0, 1, 2]);
    // One that ran once is compared with that run, not with the median of eight.
    let (excess, reps) = search.excess(3, 0).unwrap();
    assert!((excess - 0.5).abs() < 1e-9 && reps == 1, "{excess} in {reps}");
}

#[test]
fn the_field_shrinks_while_repetitions_double() {
    let search = searched(line(36), |job| observation(100.0 + job.candidate as f64, 1.0));
    let runs: Vec<usize> = (0..36).map(|i| search.seen(i).len()).collect();
    let with = |reps: usize| runs.iter().filter(|n| **n == reps).count();
    // 36 once; 12 of them twice; 6 four times; 3 eight times.
    assert_eq!([with(1), with(2), with(4), with(8)], [24, 6, 3, 3]);
    assert_eq!(search.total_runs(), 36 + 12 + 6 * 2 + 3 * 4);
    assert_eq!(search.finalists(), [0, 1, 2]);
}

#[test]
fn one_candidate_or_none_needs_no_search() {
    let search = searched(line(1), |_| observation(1.0, 1.0));
    assert_eq!((search.finalists(), search.total_runs()), (vec![0], 1));
    let search = searched(Vec::new(), |_| observation(1.0, 1.0));
    assert_eq!(search.finalists(), [0; 0]);
}

#[test]
fn the_order_of_results_changes_nothing() {
    let response = |job: Job| observation(noise(3, job, 0.1, 0.1), noise(4, job, 0.1, 0.1));
    let forwards = searched(grid(7), response);
    let mut backwards = Search::new(grid(7), Rounds::ADVICE);
    let ran =
        backwards.run(|jobs, _| (jobs.iter().rev().map(|&job| (job, response(job))).collect(), None::<()>));
    assert_eq!(ran, Ok(()));
    assert_eq!(forwards.finalists(), backwards.finalists());
    assert_eq!(forwards.seen, backwards.seen);
}

#[test]
fn a_failure_keeps_what_is_recorded() {
    let mut search = Search::new(line(9), Rounds::ADVICE);
    let ran = search.run(|jobs, _| (vec![(jobs[0], observation(1.0, 1.0))], Some("stopped")));
    assert_eq!(ran, Err("stopped"));
    assert_eq!((search.total_runs(), search.finalists()), (1, vec![]));
    // What is known already does not run again.
    let mut search = Search::new(line(3), Rounds::ADVICE);
    search.record(Job { candidate: 0, rep: 0 }, observation(1.0, 1.0));
    assert_eq!(search.next_jobs().len(), 2);
}
