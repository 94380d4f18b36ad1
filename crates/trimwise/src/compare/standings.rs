//! The standings of a tournament: policies over the same cells, and which of them the cells tell apart.
//!
//! A cell gives each policy a cost: its time as a ratio to the reference policy's in the same runs. The score is the
//! geometric mean over the cells, so a policy that takes half as long in one and twice as long in another has 1. An
//! interval comes from the *paired bootstrap*: groups of cells are drawn again with replacement, the same ones for every
//! policy, and the middle 95 % of the scores are kept. Cells that share more than chance, such as a drive and a workload,
//! are one group. Two policies are told apart if the interval of the ratio of their scores leaves out 1 and the ratio is
//! not one that `compare` takes for 1. Each pair is judged alone: of many alike, one in twenty may be told apart by
//! chance. The draws come from a fixed seed, and logarithms from a library whose last bit is the same everywhere.

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::judge::{TIME_PERCENT, exceeds};
use super::statistics::{CONFIDENCE, Interval, RUNS_FOR_INTERVAL};

pub const GROUPS_MIN: usize = RUNS_FOR_INTERVAL;
/// Number of draws of groups. The ends of an interval then have two digits.
const DRAWS: usize = 10_000;
const SEED: u64 = 1;

#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Best and worst possible rank, from 1: other policies may or may not be told apart from it.
    pub rank: (usize, usize),
    pub score: f64,
    /// The interval of the score; `None` with fewer than [`GROUPS_MIN`] groups.
    pub interval: Option<Interval>,
    /// The cell in which it was furthest behind the best policy, and its cost there relative to that policy's.
    pub worst: (usize, f64),
    pub won: usize,
}

/// Ranks policies by their costs, each of which has one for each cell, above 0. `groups` has the group of each cell,
/// from 0.
///
/// ```
/// use trimwise::compare::standings::ranked;
///
/// let field = [vec![1.0; 8], vec![0.5; 8], vec![0.4, 0.6, 0.4, 0.6, 0.4, 0.6, 0.4, 0.6]];
/// let ranks: Vec<_> = ranked(&field, &[0, 1, 2, 3, 4, 5, 6, 7]).into_iter().map(|standing| standing.rank).collect();
/// assert_eq!(ranks, [(3, 3), (1, 2), (1, 2)]);
/// ```
pub fn ranked(field: &[Vec<f64>], groups: &[usize]) -> Vec<Standing> {
    let cells = field.iter().map(Vec::len).chain([groups.len()]).min().unwrap_or(0);
    let logs: Vec<Vec<f64>> =
        field.iter().map(|costs| costs.iter().map(|&cost| libm::log(cost)).collect()).collect();
    let means = |log: &Vec<f64>| mean(log[..cells].iter().copied());
    let scores: Vec<f64> = logs.iter().map(means).collect();
    let drawn = drawn(&logs, &groups[..cells]);
    let best = |cell: usize| field.iter().map(|costs| costs[cell]).fold(f64::INFINITY, f64::min);
    let standing = |(one, costs): (usize, &Vec<f64>)| {
        let interval = drawn.get(one).map(|draws| interval(draws.clone()));
        let differs = |other: usize| -> Option<std::cmp::Ordering> {
            let (own, theirs) = (drawn.get(one)?, drawn.get(other)?);
            let between =
                interval_of_logs(own.iter().zip(theirs).map(|(own, theirs)| own - theirs).collect());
            if !exceeds(libm::exp((scores[one] - scores[other]).abs()), TIME_PERCENT) {
                return None;
            }
            match between {
                (_, high) if high < 0.0 => Some(std::cmp::Ordering::Less),
                (low, _) if low > 0.0 => Some(std::cmp::Ordering::Greater),
                _ => None,
            }
        };
        let others = || (0..field.len()).filter(|&other| other != one).map(&differs);
        let ahead = others().filter(|found| *found == Some(std::cmp::Ordering::Greater)).count();
        let behind = others().filter(|found| *found == Some(std::cmp::Ordering::Less)).count();
        let regrets = (0..cells).map(|cell| (cell, costs[cell] / best(cell)));
        Standing {
            rank: (1 + ahead, field.len() - behind),
            score: libm::exp(scores[one]),
            interval,
            worst: regrets.fold((0, 1.0), |worst, next| if next.1 > worst.1 { next } else { worst }),
            won: (0..cells).filter(|&cell| costs[cell] == best(cell)).count(),
        }
    };
    field.iter().enumerate().map(standing).collect()
}

/// The geometric mean; 1 for no values.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    libm::exp(mean(values.map(libm::log)))
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// The mean logarithm of each policy in each draw of groups; empty with too few groups.
fn drawn(logs: &[Vec<f64>], groups: &[usize]) -> Vec<Vec<f64>> {
    let mut members = vec![Vec::new(); groups.iter().max().map_or(0, |last| last + 1)];
    groups.iter().enumerate().for_each(|(cell, &group)| members[group].push(cell));
    members.retain(|cells| !cells.is_empty());
    let count = members.len();
    if count < GROUPS_MIN {
        return Vec::new();
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut drawn = vec![Vec::with_capacity(DRAWS); logs.len()];
    for _ in 0..DRAWS {
        let draw: Vec<usize> = (0..count)
            .flat_map(|_| &members[((u128::from(random.next_u64()) * count as u128) >> 64) as usize])
            .copied()
            .collect();
        for (means, log) in drawn.iter_mut().zip(logs) {
            means.push(mean(draw.iter().map(|&cell| log[cell])));
        }
    }
    drawn
}

/// The middle [`CONFIDENCE`] of the draws.
fn interval_of_logs(mut draws: Vec<f64>) -> (f64, f64) {
    draws.sort_by(f64::total_cmp);
    let cut = (draws.len() as f64 * (1.0 - CONFIDENCE) / 2.0) as usize;
    (draws[cut], draws[draws.len() - 1 - cut])
}

fn interval(draws: Vec<f64>) -> Interval {
    let (low, high) = interval_of_logs(draws);
    Interval { low: libm::exp(low), high: libm::exp(high), confidence: CONFIDENCE }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standings if each cell is a group.
    fn ranked(field: &[Vec<f64>]) -> Vec<Standing> {
        let cells = field.iter().map(Vec::len).max().unwrap_or(0);
        super::ranked(field, &(0..cells).collect::<Vec<_>>())
    }

    /// Costs that scatter evenly around `level`, by as much as `spread`, in another order for each `step`.
    fn costs(level: f64, spread: f64, step: usize) -> Vec<f64> {
        (0..31).map(|cell| level * libm::exp(spread * (((cell * step) % 31) as f64 / 15.0 - 1.0))).collect()
    }

    fn ranks(field: &[Standing]) -> Vec<(usize, usize)> {
        field.iter().map(|standing| standing.rank).collect()
    }

    #[test]
    fn the_score_is_the_geometric_mean_and_lies_in_its_interval() {
        let standing = &ranked(&[costs(0.8, 0.3, 1)])[0];
        assert!((standing.score - 0.8).abs() < 1e-12, "{standing:?}");
        let interval = standing.interval.unwrap();
        // Even scatter of ± 0.3 has a deviation of 0.18, and the mean of 31 a thirty-first's root of that: ± 6.3 %.
        assert!((interval.low / 0.8 - 0.938).abs() < 0.01 && (interval.high / 0.8 - 1.065).abs() < 0.01);
        assert_eq!((standing.rank, standing.won), ((1, 1), 31));
    }

    #[test]
    fn pairs_are_told_apart_where_each_alone_scatters_too_much() {
        // Two that move together, one 3 % behind the other in each cell, and one with as much scatter of its own.
        let (a, alone) = (costs(1.0, 0.3, 1), costs(1.0, 0.3, 7));
        let b: Vec<f64> = a.iter().map(|cost| cost * 1.03).collect();
        let field = ranked(&[a.clone(), b, alone]);
        assert_eq!(ranks(&field), [(1, 2), (2, 3), (1, 3)]);
        assert!((field[1].worst.1 >= 1.03) && field[1].won == 0, "{:?}", field[1]);
        assert_eq!(ranks(&ranked(&[a.clone(), a])), [(1, 2), (1, 2)]);
    }

    #[test]
    fn cells_of_a_group_count_as_one_and_what_does_not_matter_tells_nothing_apart() {
        // Each cell twice says no more than each once.
        let once = costs(0.9, 0.3, 1);
        let twice: Vec<f64> = once.iter().flat_map(|&cost| [cost, cost]).collect();
        let groups: Vec<usize> = (0..twice.len()).map(|cell| cell / 2).collect();
        let (alone, paired) = (ranked(&[once]), super::ranked(std::slice::from_ref(&twice), &groups));
        let width = |field: &[Standing]| field[0].interval.map(|found| found.high / found.low).unwrap();
        assert!((width(&alone) / width(&paired) - 1.0).abs() < 1e-9);
        assert!(width(&ranked(&[twice])) < width(&paired));
        let few = vec![0; GROUPS_MIN * 2];
        assert_eq!(super::ranked(&[vec![1.0; few.len()]], &few)[0].interval, None);
        // 1.9 % in each cell is sure, and of no use; 2.1 % is of some.
        let with = |ratio: f64| ranks(&ranked(&[vec![1.0; 8], vec![ratio; 8]]));
        assert_eq!([with(1.019), with(1.021)], [vec![(1, 2), (1, 2)], vec![(1, 1), (2, 2)]]);
    }

    #[test]
    fn few_cells_tell_nothing_apart_and_none_is_no_mistake() {
        let field = ranked(&[vec![1.0; GROUPS_MIN - 1], vec![0.1; GROUPS_MIN - 1]]);
        assert!(field.iter().all(|standing| standing.rank == (1, 2) && standing.interval.is_none()));
        assert_eq!(field[0].worst, (0, 10.0));
        assert_eq!(ranked(&[vec![], vec![]])[0].score, 1.0);
        assert_eq!(ranked(&[]), []);
        assert!((geometric_mean([0.5, 2.0].into_iter()) - 1.0).abs() < 1e-15);
    }
}
