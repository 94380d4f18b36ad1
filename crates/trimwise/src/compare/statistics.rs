//! Statistics of repeated runs.
//!
//! A handful of runs of unknown distribution allows few statements. These are made here, none of which assumes a
//! distribution:
//!
//! - the *median*, and an interval for it from order statistics: the k-th smallest and k-th largest run
//!   enclose the median with a probability that is a sum of binomials. Few runs reach only so much
//!   (2 runs: 50 %, 5 runs: 93.75 %), so the interval says what it reached.
//! - whether two sets of runs *differ*: the Mann-Whitney U test, exact also with ties, by counting over all
//!   ways to deal the pooled ranks. It is the test that benchstat uses too.
//! - *by how much*: the ratio of the medians, which is benchstat's figure. benchstat gives it no interval;
//!   here it has the one that inverts the U test (Moses; the interval of the Hodges-Lehmann estimate, taken
//!   on ratios): with `b` runs of one and `p` of the other, sort all `b x p` ratios and drop as many at
//!   either end as the test allows. Given runs enough for the test and no ties, it leaves out 1 just where
//!   the test finds a difference, so that table and verdict do not contradict each other.
//!
//! A model in virtual time is deterministic. Where all repetitions are bit for bit the same there is nothing
//! to estimate: the runs are then one, and a [`Sample`] says that it is *exact*.

/// Confidence of intervals, and one minus the level of the test.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Pooled runs up to which the U test counts exactly; above, the normal approximation is indistinguishable.
const EXACT_RUNS_MAX: usize = 120;

/// Runs up to which binomials are summed: 2^-1000 is still a normal number.
const COUNTED_RUNS_MAX: usize = 1000;

/// The two-sided 95 % point of the normal distribution.
const Z_95: f64 = 1.959_964;

/// Runs that [`median_interval`] needs for [`CONFIDENCE`]: 1 - 2 / 2^6 = 96.9 %.
pub(crate) const RUNS_FOR_INTERVAL: usize = 6;

/// Runs on either side that the U test needs to find any difference at [`CONFIDENCE`]: 2 / (8 over 4) = 2.9 %.
pub const RUNS_FOR_TEST: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    values: Vec<f64>,
    exact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    /// The confidence reached: less than [`CONFIDENCE`] where there are too few runs; 1 if exact.
    pub confidence: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Median of the baseline over median of the other: above 1 the other is smaller (faster, if these are times).
    pub ratio: f64,
    pub interval: Interval,
    /// Two-sided p value of the U test; `None` where both sides are exact and nothing is left to chance.
    pub p: Option<f64>,
    /// The samples differ: p below 5 %, or simply unequal where both are exact.
    pub significant: bool,
}

impl Sample {
    /// Creates a sample. `exact` means that the runs behind it were bit for bit identical. `None` if there are no
    /// values, or one is not finite.
    pub fn new(values: Vec<f64>, exact: bool) -> Option<Self> {
        (!values.is_empty() && values.iter().all(|v| v.is_finite())).then_some(Self { values, exact })
    }

    /// The measurements in the order in which they were made.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns the sample with all values multiplied; `None` if they are not finite then.
    pub fn times(&self, factor: f64) -> Option<Self> {
        Self::new(self.values.iter().map(|value| value * factor).collect(), self.exact)
    }

    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Number of runs that carry information: 1 if exact.
    pub fn n(&self) -> usize {
        if self.exact { 1 } else { self.values.len() }
    }

    pub fn median(&self) -> f64 {
        median(&self.values).unwrap_or(f64::NAN) // never empty by construction
    }

    /// The interval of the median; a point if exact.
    pub fn interval(&self) -> Interval {
        if self.exact {
            let m = self.median();
            return Interval { low: m, high: m, confidence: 1.0 };
        }
        median_interval(&self.values).unwrap_or(Interval { low: f64::NAN, high: f64::NAN, confidence: 0.0 })
    }
}

/// The median; the mean of the middle two if their number is even. `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some(sorted[n / 2 - 1] / 2.0 + sorted[n / 2] / 2.0),
    }
}

/// The narrowest pair of order statistics that encloses the median with at least [`CONFIDENCE`], or else the outermost
/// pair with the confidence that it reaches. `None` if there are no values.
pub(crate) fn median_interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let n = sorted.len();
    if n == 0 {
        return None;
    }
    let (k, confidence) = if n > COUNTED_RUNS_MAX {
        let k = (n as f64 / 2.0 - Z_95 * (n as f64).sqrt() / 2.0).floor() as usize;
        (k.max(1), CONFIDENCE)
    } else {
        // With k runs cut off at either end (the k-th kept), the median is missed when fewer than k runs lie
        // on one of its sides: twice the sum of C(n, i) / 2^n over i < k.
        let mut term = (0..n).fold(1.0f64, |t, _| t / 2.0);
        let mut missed = 2.0 * term;
        let mut best = (1, (1.0 - missed).max(0.0));
        for k in 2..=n.div_ceil(2) {
            term *= (n - (k - 2)) as f64 / (k - 1) as f64;
            missed += 2.0 * term;
            if 1.0 - missed < CONFIDENCE {
                break;
            }
            best = (k, 1.0 - missed);
        }
        best
    };
    Some(Interval { low: sorted[k - 1], high: sorted[n - k], confidence })
}

/// The two-sided p value of the Mann-Whitney U test that `a` and `b` come from one distribution.
///
/// Exact (also with ties: the midranks are dealt in all ways) up to 120 runs together, by the normal
/// approximation with corrections for ties and continuity above. 1 if either is empty.
pub(crate) fn mann_whitney_p(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let (ranks, ties) = doubled_ranks(a, b);
    let rank_sum: usize = ranks[..a.len()].iter().sum();
    let total = a.len() + b.len();
    if total > EXACT_RUNS_MAX {
        return normal_p(a.len(), b.len(), rank_sum, &ties);
    }
    let ways = rank_sum_ways(&ranks, a.len());
    let all: f64 = ways.iter().sum();
    let below: f64 = ways[..=rank_sum].iter().sum();
    let above: f64 = ways[rank_sum..].iter().sum();
    (2.0 * below.min(above) / all).min(1.0)
}

/// Compares a baseline with another sample: the ratio of their medians, its interval, and whether they differ.
pub fn compare(baseline: &Sample, other: &Sample) -> Comparison {
    let ratio = ratio(baseline.median(), other.median());
    if baseline.exact && other.exact {
        return Comparison {
            ratio,
            interval: Interval { low: ratio, high: ratio, confidence: 1.0 },
            p: None,
            significant: baseline.median() != other.median(),
        };
    }
    let p = mann_whitney_p(&baseline.values, &other.values);
    let mut interval = ratio_interval(&baseline.values, &other.values);
    // With many runs of a skewed quantity the ratio of medians can lie outside the interval of the typical
    // ratio. Widen the interval to include it.
    interval.low = interval.low.min(ratio);
    interval.high = interval.high.max(ratio);
    Comparison { ratio, interval, p: Some(p), significant: p < 1.0 - CONFIDENCE }
}

/// A note for the user if there are too few runs; `None` if they suffice or are identical.
pub fn too_few_runs(sample: &Sample) -> Option<String> {
    let n = sample.values.len();
    if sample.exact || n >= RUNS_FOR_INTERVAL {
        return None;
    }
    let reached = sample.interval().confidence * 100.0;
    let interval = match n {
        1 => "a single run has no confidence interval".to_string(),
        _ => format!("the confidence interval of {n} runs reaches only {reached:.1} %, not 95 %"),
    };
    Some(if n < RUNS_FOR_TEST {
        format!(
            "{interval}, and no difference can be shown with so few; at least {RUNS_FOR_TEST} are \
             needed, preferably {RUNS_FOR_INTERVAL}"
        )
    } else {
        format!("{interval}; at least {RUNS_FOR_INTERVAL} are needed for that")
    })
}

/// The interval of the ratio `a / b` that inverts the U test.
fn ratio_interval(a: &[f64], b: &[f64]) -> Interval {
    let mut ratios: Vec<f64> = a.iter().flat_map(|&x| b.iter().map(move |&y| ratio(x, y))).collect();
    ratios.sort_by(f64::total_cmp);
    let pairs = ratios.len();
    let (dropped, confidence) = if a.len() + b.len() > EXACT_RUNS_MAX {
        let (n, m) = (a.len() as f64, b.len() as f64);
        let half_width = Z_95 * (n * m * (n + m + 1.0) / 12.0).sqrt();
        ((n * m / 2.0 - half_width).floor().max(0.0) as usize, CONFIDENCE)
    } else {
        // Distribution of U without ties: the rank sums of 1..=N, as doubled ranks.
        let untied: Vec<usize> = (1..=a.len() + b.len()).map(|r| 2 * r).collect();
        let ways = rank_sum_ways(&untied, a.len());
        let smallest = a.len() * (a.len() + 1); // doubled rank sum at U = 0
        let all: f64 = ways.iter().sum();
        let mut tail = 0.0;
        let mut best = (0, (1.0 - 2.0 * ways[smallest] / all).max(0.0));
        for u in 0..pairs.div_ceil(2) {
            tail += ways[smallest + 2 * u] / all;
            // With `u` ratios dropped at either end, the true ratio is missed when U <= u, or as far above.
            if 2.0 * tail >= 1.0 - CONFIDENCE {
                break;
            }
            best = (u, 1.0 - 2.0 * tail);
        }
        best
    };
    let dropped = dropped.min((pairs - 1) / 2);
    Interval { low: ratios[dropped], high: ratios[pairs - 1 - dropped], confidence }
}

/// Number of ways in which `chosen` of the doubled ranks have each sum; indexed by the sum.
fn rank_sum_ways(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let sum_max: usize = ranks.iter().sum();
    let width = sum_max + 1;
    let mut ways = vec![0.0; (chosen + 1) * width];
    ways[0] = 1.0;
    for (seen, &rank) in ranks.iter().enumerate() {
        for k in (1..=chosen.min(seen + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(k * width);
            let fewer = &fewer[(k - 1) * width..];
            for sum in rank..width {
                more[sum] += fewer[sum - rank];
            }
        }
    }
    ways.split_off(chosen * width)
}

/// Twice the midrank of each of `a` then `b` in the pooled order (so that it is whole), and the sizes of ties.
fn doubled_ranks(a: &[f64], b: &[f64]) -> (Vec<usize>, Vec<usize>) {
    let pooled: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..pooled.len()).collect();
    order.sort_by(|&i, &j| pooled[i].total_cmp(&pooled[j]));
    let mut ranks = vec![0; pooled.len()];
    let mut ties = Vec::new();
    let mut first = 0;
    while first < order.len() {
        let mut end = first + 1;
        while end < order.len() && pooled[order[end]] == pooled[order[first]] {
            end += 1;
        }
        for &i in &order[first..end] {
            ranks[i] = first + 1 + end; // ranks first+1 ..= end, their mean doubled
        }
        ties.push(end - first);
        first = end;
    }
    (ranks, ties)
}

fn normal_p(n: usize, m: usize, doubled_rank_sum: usize, ties: &[usize]) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let total = n + m;
    let u = doubled_rank_sum as f64 / 2.0 - n * (n + 1.0) / 2.0;
    let tied: f64 = ties.iter().map(|&t| t as f64).map(|t| t * t * t - t).sum();
    let variance = n * m / 12.0 * (total + 1.0 - tied / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0; // all the same
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2)
}

fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    poly / exp(x * x)
}

/// `e^x` for `x >= 0`, to 12 digits, from multiplications and additions in a fixed order: library functions differ in the
/// last bit between machines, and a verdict must not.
fn exp(x: f64) -> f64 {
    const TERMS: u32 = 18;
    const SQUARINGS: u32 = 10;
    let x = x.min(709.0); // beyond, the result is infinite and its inverse 0 either way
    let part = x / f64::from(1u32 << SQUARINGS);
    let sum = (1..=TERMS).rev().fold(1.0, |sum, n| 1.0 + sum * part / f64::from(n));
    (0..SQUARINGS).fold(sum, |power, _| power * power)
}

/// `a / b`, where 0 / 0 is 1: two runs that took no time are equally fast.
fn ratio(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { a / b }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values.to_vec(), false).unwrap()
    }

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not {b}");
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
    }

    #[test]
    fn few_runs_reach_only_so_much_confidence() {
        for (n, reached) in [(1, 0.0), (2, 0.5), (5, 0.9375), (6, 0.96875), (10, 0.978_515_625)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let i = median_interval(&values).unwrap();
            close(i.confidence, reached, 1e-12);
        }
    }

    #[test]
    fn the_interval_of_ten_runs_is_from_the_second_to_the_ninth() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let i = median_interval(&values).unwrap();
        assert_eq!((i.low, i.high), (2.0, 9.0));
        // Tables of the sign test: n = 25 takes the 8th and 18th with 95.67 %.
        let values: Vec<f64> = (1..=25).map(f64::from).collect();
        let i = median_interval(&values).unwrap();
        assert_eq!((i.low, i.high), (8.0, 18.0));
        close(i.confidence, 0.956_714, 1e-6);
    }

    #[test]
    fn counting_and_approximation_of_the_interval_meet() {
        let values: Vec<f64> = (1..=1001).map(f64::from).collect();
        let counted = median_interval(&values[..1000]).unwrap();
        let approximated = median_interval(&values).unwrap();
        close(counted.low, approximated.low, 2.0);
        close(counted.confidence, 0.95, 0.006);
    }

    #[test]
    fn u_test_without_ties_matches_the_tables() {
        close(mann_whitney_p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1, 1e-12); // 2 / (6 over 3)
        close(mann_whitney_p(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]), 2.0 / 70.0, 1e-12);
        // U = 5 with 5 and 5 runs: P(U <= 5) = 19 / 252.
        let p = mann_whitney_p(&[1.0, 2.0, 3.0, 6.0, 8.0], &[4.0, 5.0, 7.0, 9.0, 10.0]);
        close(p, 2.0 * 19.0 / 252.0, 1e-12);
        close(mann_whitney_p(&[1.0, 4.0], &[2.0, 3.0]), 1.0, 1e-12);
    }

    #[test]
    fn u_test_with_ties_counts_the_midranks() {
        // Doubled midranks 2 6 6 | 6 10 12: of 20 ways to deal three, 3 have a sum of at most 14.
        close(mann_whitney_p(&[1.0, 2.0, 2.0], &[2.0, 3.0, 4.0]), 0.3, 1e-12);
        assert_eq!(mann_whitney_p(&[7.0; 5], &[7.0; 5]), 1.0);
        assert_eq!(mann_whitney_p(&[], &[1.0]), 1.0);
    }

    #[test]
    fn u_test_does_not_care_which_side_is_which() {
        let (a, b) = ([1.0, 2.0, 2.5, 9.0], [2.0, 3.0, 4.0, 11.0, 12.0]);
        close(mann_whitney_p(&a, &b), mann_whitney_p(&b, &a), 1e-12);
    }

    #[test]
    fn our_exponential_is_exact_enough_and_the_same_everywhere() {
        for x in [0.0, 1e-9, 0.5, 1.0, 3.841, 20.0, 300.0, 709.0] {
            let theirs = f64::exp(x);
            close(exp(x) / theirs, 1.0, 1e-12);
        }
        assert!(exp(1e9).is_finite());
        // What IEEE arithmetic gives for this order of operations, on any machine.
        assert_eq!(exp(1.920_5).to_bits(), 0x401b_4c27_98e1_5c3d);
        close(erfc(0.0), 1.0, 1.5e-7);
        close(erfc(1.959_964 / std::f64::consts::SQRT_2), 0.05, 1.5e-7);
    }

    #[test]
    fn exact_and_approximate_u_test_meet() {
        let a: Vec<f64> = (0..60).map(|i| f64::from(i * 7 % 60)).collect();
        let b: Vec<f64> = (0..60).map(|i| f64::from(i * 11 % 60) + 8.5).collect();
        let exact = mann_whitney_p(&a, &b);
        let (ranks, ties) = doubled_ranks(&a, &b);
        let approximate = normal_p(60, 60, ranks[..60].iter().sum(), &ties);
        assert!((0.001..0.05).contains(&exact), "{exact}");
        close(exact, approximate, 0.001);
    }

    /// R's `wilcox.test(1:4, y, exact = FALSE)`, as in SciPy's tests of `mannwhitneyu` (`test_tie_correct`).
    #[test]
    fn approximate_u_test_matches_r_with_and_without_ties() {
        let x = [1.0, 2.0, 3.0, 4.0];
        for (shifts, p) in [
            ([-0.01; 5], 1.0),
            ([0.0, -0.01, 0.0, -0.01, 0.0], 0.901_704_803_731_7),
            ([0.0, 0.0, -0.01, 0.0, 0.0], 0.804_080_657_472),
            ([0.0; 5], 0.708_624_058_443_9),
            ([0.0, 0.0, 0.01, 0.0, 0.0], 0.619_796_388_494_1),
            ([0.0, 0.01, 0.0, 0.01, 0.0], 0.536_878_456_307_9),
            ([0.01; 5], 0.391_267_279_282_6),
        ] {
            let y: Vec<f64> = (1..=5).map(f64::from).zip(shifts).map(|(y, shift)| y + shift).collect();
            let (ranks, ties) = doubled_ranks(&x, &y);
            close(normal_p(4, 5, ranks[..4].iter().sum(), &ties), p, 2e-7);
        }
    }

    #[test]
    fn the_interval_of_a_ratio_leaves_out_one_where_the_test_finds_a_difference() {
        let slow = sample(&[10.0, 10.2, 10.4, 10.6]);
        let fast = sample(&[5.0, 5.1, 5.2, 5.3]);
        let c = compare(&slow, &fast);
        assert!(c.significant);
        close(c.ratio, 10.3 / 5.15, 1e-12);
        // 4 and 4: nothing may be dropped, 1 - 2/70.
        close(c.interval.low, 10.0 / 5.3, 1e-12);
        close(c.interval.high, 10.6 / 5.0, 1e-12);
        close(c.interval.confidence, 1.0 - 2.0 / 70.0, 1e-12);

        let mixed = compare(&slow, &sample(&[10.1, 10.3, 10.5, 10.7]));
        assert!(!mixed.significant);
        assert!(mixed.interval.low < 1.0 && mixed.interval.high > 1.0);
    }

    #[test]
    fn with_five_and_five_runs_two_ratios_are_dropped_at_either_end() {
        // P(U <= 2) = 4 / 252, P(U <= 3) = 7 / 252: 2 x 4 / 252 is below 5 %, 2 x 7 / 252 is not.
        let c = compare(&sample(&[10.0, 20.0, 30.0, 40.0, 50.0]), &sample(&[1.0, 1.1, 1.2, 1.3, 1.4]));
        close(c.interval.confidence, 1.0 - 8.0 / 252.0, 1e-12);
        close(c.interval.low, 10.0 / 1.2, 1e-12);
        close(c.interval.high, 50.0 / 1.2, 1e-12);
    }

    #[test]
    fn a_difference_counts_only_below_five_percent() {
        // 2 / (6 over 3) and 2 x 2 / (8 over 4).
        let three = compare(&sample(&[4.0, 5.0, 6.0]), &sample(&[1.0, 2.0, 3.0]));
        let four = compare(&sample(&[4.0, 6.0, 7.0, 8.0]), &sample(&[1.0, 2.0, 3.0, 5.0]));
        for (comparison, p) in [(three, 0.1), (four, 4.0 / 70.0)] {
            close(comparison.p.unwrap(), p, 1e-12);
            assert!(!comparison.significant, "{comparison:?}");
        }
    }

    /// 3,721 ratios, all of them different: those of the first of `a` come first, and so on.
    #[test]
    fn with_many_runs_the_normal_approximation_says_how_many_ratios_are_dropped() {
        let a: Vec<f64> = (1..=61).map(f64::from).collect();
        let b: Vec<f64> = (0..61).map(|i| 1.0 - f64::from(i) * 1e-6).collect();
        let c = compare(&sample(&a), &sample(&b));
        // 1,860.5 - 1.96 times the square root of 61 x 61 x 123 / 12 are 1,477: 24 x 61 + 13.
        assert_eq!((c.interval.low, c.interval.high), (25.0 / b[13], 37.0 / b[47]));
    }

    /// Eleven of 21 runs are short on one side, ten on the other, so that the medians are far apart and the runs are
    /// not.
    #[test]
    fn the_interval_holds_the_ratio_of_the_medians_whatever_the_runs() {
        let runs = |short: usize| sample(&[vec![1.0; short], vec![100.0; 21 - short]].concat());
        let (low, high) = (compare(&runs(11), &runs(10)), compare(&runs(10), &runs(11)));
        assert_eq!((low.ratio, low.interval.low, low.interval.high), (0.01, 0.01, 1.0));
        assert_eq!((high.ratio, high.interval.low, high.interval.high), (100.0, 1.0, 100.0));
    }

    #[test]
    fn what_is_exact_needs_no_test() {
        let a = Sample::new(vec![2.0; 3], true).unwrap();
        let b = Sample::new(vec![1.0; 3], true).unwrap();
        assert_eq!(a.n(), 1);
        let c = compare(&a, &b);
        assert_eq!((c.ratio, c.p, c.significant), (2.0, None, true));
        assert_eq!(c.interval, Interval { low: 2.0, high: 2.0, confidence: 1.0 });
        assert!(!compare(&a, &a).significant);
    }

    #[test]
    fn one_inexact_run_proves_nothing_and_says_so() {
        let c = compare(&sample(&[10.0]), &sample(&[1.0]));
        assert!(!c.significant);
        assert!(too_few_runs(&sample(&[10.0])).unwrap().contains("no difference can be shown"));
        assert!(too_few_runs(&sample(&[1.0; 5])).unwrap().contains("93.8 %"));
        assert_eq!(too_few_runs(&sample(&[1.0; 6])), None);
        assert_eq!(too_few_runs(&Sample::new(vec![1.0], true).unwrap()), None);
    }

    #[test]
    fn a_sample_of_nothing_or_of_no_number_is_refused() {
        assert_eq!(Sample::new(vec![], false), None);
        assert_eq!(Sample::new(vec![f64::NAN], false), None);
    }
}
