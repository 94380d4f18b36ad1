//! The device's write amplification against closed forms.
//!
//! Uniform random single-unit writes in steady state, with and without TRIM. The forms are those of Desnoyers
//! (2012) and Xiang and Kurkoski (2011) for first-in first-out victims, their mean-field extension to greedy
//! victims with a finite number of pages in a block, and that of Frankie, Hughes and Kreutz-Delgado (2012)
//! for TRIM: with a share q of TRIMs, the share s = (1 - 2q) / (1 - q) of the logical units is in use,
//! and alpha / s takes the place of alpha. The best of d drawn at random has the mean field of Van Houdt
//! (2013); with d = 1 that is alpha / (alpha - 1).
//!
//! alpha = T / U compares the U logical units with the T units that the FTL can really use. T is what the
//! device measured ([`SsdStats::usable_units`]): slots that hold written data when a victim is chosen. Free
//! pool and unwritten slots of open blocks are not in it; neither is anything fitted.
//!
//! A sample of the grid runs in the tier `experiments`. The full grid (96 points, some minutes):
//!
//!     WRITE_AMPLIFICATION=full cargo test --release -p trimwise --test experiments the_grid -- --nocapture

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::ssd::{CacheConfig, Ssd, SsdConfig, VictimPolicy};
use trimwise::units::{Lpn, SimTime, UNIT_BYTES, UnitRange};

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

/// The digamma function for x > 0: upward recurrence to 10, then the asymptotic series (Abramowitz and
/// Stegun 6.3.5 and 6.3.18); its next term is below 1e-12 there.
fn digamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    let series = r * (1.0 / 12.0 - r * (1.0 / 120.0 - r * (1.0 / 252.0 - r * (1.0 / 240.0 - r / 132.0))));
    sum + x.ln() - 0.5 / x - series
}

/// The harmonic number continued to real arguments.
fn harmonic(x: f64) -> f64 {
    digamma(x + 1.0) + EULER
}

/// The A > 1 at which a falling function of A is alpha.
fn solve(alpha: f64, alpha_of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (1.0 + 1e-12, 1e4);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if alpha_of(middle) > alpha { low = middle } else { high = middle }
    }
    low
}

fn fifo(alpha: f64) -> f64 {
    solve(alpha, |a| -a * (1.0 - 1.0 / a).ln())
}

fn greedy(alpha: f64, pages: u32) -> f64 {
    let np = f64::from(pages);
    solve(alpha, |a| a * (harmonic(np) - harmonic(np * (1.0 - 1.0 / a))))
}

/// The share of blocks with at least j valid pages, for j from 1 on, if `c` pages are invalidated for each
/// page written, counted for each valid page: j c (S(j) - S(j + 1)) = 1 - S(j)^d, since as many blocks fall
/// below j as are taken from below j and filled.
fn shares(c: f64, pages: u32, d: i32) -> Vec<f64> {
    let mut shares = vec![0.0; pages as usize + 1];
    for j in (0..pages as usize).rev() {
        let above = shares[j + 1];
        let (mut low, mut high) = (above, 1.0);
        for _ in 0..60 {
            let middle: f64 = 0.5 * (low + high);
            let falls = (j + 1) as f64 * c * (middle - above);
            if falls > 1.0 - middle.powi(d) { high = middle } else { low = middle }
        }
        shares[j] = low;
    }
    shares
}

fn d_choices(alpha: f64, pages: u32, d: u32) -> f64 {
    let (np, d) = (f64::from(pages), d as i32);
    let (mut low, mut high) = (0.0, alpha);
    for _ in 0..60 {
        let c = 0.5 * (low + high);
        let valid: f64 = shares(c, pages, d).iter().sum();
        if valid > np / alpha { low = c } else { high = c }
    }
    let copied: f64 = shares(low, pages, d).iter().map(|share| share.powi(d)).sum();
    np / (np - copied)
}

/// What is run at one point.
#[derive(Clone, Copy, Debug)]
struct Point {
    victim: VictimPolicy,
    /// Pages, which are units here, in an erase block.
    pages: u32,
    blocks: u32,
    /// Logical over physical, percent, before the free pool is subtracted.
    utilization: u32,
    /// Share of TRIMs among the requests, percent.
    trims: u32,
    shared_frontier: bool,
    parity_one_in: Option<u32>,
}

impl Point {
    /// Pages of a block that hold data.
    fn data_pages(self) -> u32 {
        self.pages - self.parity_one_in.map_or(0, |n| self.pages.div_ceil(n))
    }
}

struct Outcome {
    measured: f64,
    expected: f64,
    /// Share of the logical units in use, on average; and the closed form's.
    in_use: (f64, f64),
}

impl Outcome {
    fn error(&self) -> f64 {
        self.measured / self.expected - 1.0
    }
}

/// Physical sizes written before and during the measurement.
const WARM_UP: u64 = 6;
const MEASURED: u64 = 4;

fn config(point: Point) -> SsdConfig {
    let mut config = SsdConfig::default();
    let physical = u64::from(point.data_pages()) * u64::from(point.blocks);
    config.capacity_bytes = physical * u64::from(point.utilization) / 100 * UNIT_BYTES;
    config.over_provisioning_percent = None;
    let g = &mut config.geometry;
    (g.channels, g.dies_per_channel, g.planes_per_die, g.superblock_planes) = (1, 1, 1, 1);
    (g.blocks_per_plane, g.pages_per_block, g.page_bytes) = (Some(point.blocks), point.pages, 4096);
    config.cache = CacheConfig { bytes: 1 << 20, ..config.cache };
    g.parity_one_in = point.parity_one_in;
    config.gc.victim = point.victim;
    config.gc.shared_frontier = point.shared_frontier;
    config.gc.idle = false;
    config
}

fn run(point: Point, seed: u64) -> Outcome {
    let mut ssd = Ssd::new(&config(point), seed).expect("a valid configuration");
    let logical = ssd.capacity_units();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |n: u64| ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64;
    // The units in use in any order, and where each one stands; `None` when not in use.
    let mut used: Vec<u32> = (0..logical as u32).collect();
    let mut place: Vec<Option<u32>> = (0..logical as u32).map(Some).collect();
    let mut now = ssd.write(SimTime::ZERO, UnitRange::new(Lpn(0), logical));

    let mut earlier = *ssd.stats();
    let (mut in_use_sum, mut requests) = (0u64, 0u64);
    for (measured, passes) in [(false, WARM_UP), (true, MEASURED)] {
        earlier = if measured { *ssd.stats() } else { earlier };
        let end = ssd.stats().host_units_written + passes * ssd.physical_units();
        while ssd.stats().host_units_written < end {
            if below(100) < u64::from(point.trims) {
                if !used.is_empty() {
                    let at = below(used.len() as u64) as usize;
                    let unit = used.swap_remove(at);
                    place[unit as usize] = None;
                    if let Some(&moved) = used.get(at) {
                        place[moved as usize] = Some(at as u32);
                    }
                    now = ssd.trim(now, &[UnitRange::new(Lpn(u64::from(unit)), 1)]);
                }
            } else {
                let unit = below(logical);
                if place[unit as usize].is_none() {
                    place[unit as usize] = Some(used.len() as u32);
                    used.push(unit as u32);
                }
                now = ssd.write(now, UnitRange::new(Lpn(unit), 1));
            }
            if measured {
                in_use_sum += used.len() as u64;
                requests += 1;
            }
        }
    }
    ssd.audit().expect("the audit passes");
    assert_eq!(ssd.mapped_units(), used.len() as u64);

    let stats = ssd.stats().since(&earlier);
    let q = f64::from(point.trims) / 100.0;
    let share = (1.0 - 2.0 * q) / (1.0 - q);
    let alpha = stats.usable_units() / logical as f64 / share;
    let expected = match point.victim {
        VictimPolicy::Random => alpha / (alpha - 1.0),
        VictimPolicy::Fifo => fifo(alpha),
        VictimPolicy::DChoices(d) => d_choices(alpha, point.pages, d),
        _ => greedy(alpha, point.data_pages()),
    };
    // Each page of data brings its share of a page of parity.
    let expected = expected * f64::from(point.pages) / f64::from(point.data_pages());
    let in_use = in_use_sum as f64 / requests as f64 / logical as f64;
    Outcome { measured: stats.write_amplification(), expected, in_use: (in_use, share) }
}

/// 1 % without TRIM, 1.5 % with.
fn tolerance(point: Point) -> f64 {
    if point.trims == 0 { 0.01 } else { 0.015 }
}

fn check(point: Point) -> f64 {
    let outcome = run(point, 2012);
    println!(
        "{:?} Np {:>3} u 0.{:02} q 0.{:02}: A = {:.4}, closed form {:.4}, {:+.2} %; in use {:.4}, closed form {:.4}",
        point.victim,
        point.pages,
        point.utilization,
        point.trims,
        outcome.measured,
        outcome.expected,
        100.0 * outcome.error(),
        outcome.in_use.0,
        outcome.in_use.1,
    );
    assert!(outcome.error().abs() <= tolerance(point), "{point:?}: {:+.4}", outcome.error());
    assert!((outcome.in_use.0 / outcome.in_use.1 - 1.0).abs() < 0.01, "{point:?}: {:?}", outcome.in_use);
    outcome.error().abs()
}

const GREEDY: Point = Point {
    victim: VictimPolicy::Greedy,
    pages: 64,
    blocks: 4096,
    utilization: 80,
    trims: 0,
    shared_frontier: false,
    parity_one_in: None,
};
const FIFO: Point = Point { victim: VictimPolicy::Fifo, ..GREEDY };

#[test]
fn the_closed_forms_have_their_published_values() {
    assert!((fifo(1.3) - 2.36).abs() < 0.005);
    assert!((fifo(1.0 / 0.9) - 5.1787).abs() < 1e-4);
    assert!((greedy(1.0 / 0.9, 256) - 5.0827).abs() < 1e-4);
    assert!((greedy(1.0 / 0.5, 64) - 1.2386).abs() < 1e-4);
    assert!((greedy(1.0 / 0.9 / 0.75, 256) - 1.7433).abs() < 1e-4);
    assert!((d_choices(1.25, 64, 1) - 5.0).abs() < 1e-3, "random victims have 80 % of valid pages");
    assert!((d_choices(1.25, 64, 4096) / greedy(1.25, 64) - 1.0).abs() < 1e-3, "the best of all is greedy");
    assert!((harmonic(4.0) - (1.0 + 0.5 + 1.0 / 3.0 + 0.25)).abs() < 1e-12);
}

#[test]
fn greedy_without_trim() {
    check(GREEDY);
    check(Point { utilization: 93, ..GREEDY });
}

#[test]
fn fifo_without_trim() {
    check(FIFO);
    check(Point { utilization: 93, ..FIFO });
}

#[test]
fn greedy_with_trim() {
    check(Point { trims: 5, utilization: 90, ..GREEDY });
    check(Point { trims: 20, utilization: 93, ..GREEDY });
}

#[test]
fn fifo_with_trim() {
    check(Point { trims: 10, utilization: 90, ..FIFO });
}

#[test]
fn a_frontier_shared_with_copies_changes_nothing() {
    check(Point { shared_frontier: true, utilization: 90, ..GREEDY });
}

#[test]
fn the_best_of_a_few_drawn_at_random() {
    for d in [2, 10] {
        check(Point { victim: VictimPolicy::DChoices(d), ..GREEDY });
    }
}

#[test]
fn victims_drawn_at_random() {
    check(Point { victim: VictimPolicy::Random, ..GREEDY });
    check(Point { victim: VictimPolicy::Random, utilization: 50, ..GREEDY });
}

#[test]
fn parity_takes_its_share_of_the_spare_space_and_of_the_writes() {
    check(Point { parity_one_in: Some(8), ..GREEDY });
    check(Point { parity_one_in: Some(16), utilization: 93, ..FIFO });
}

#[test]
fn a_larger_block_costs_more() {
    check(Point { pages: 256, blocks: 2048, utilization: 70, ..GREEDY });
}

/// All 96 points if the environment says so (see the head of this file), every 19th otherwise.
#[test]
fn the_grid() {
    let everything = std::env::var("WRITE_AMPLIFICATION").is_ok_and(|v| v == "full");
    let mut points = Vec::new();
    for victim in [VictimPolicy::Greedy, VictimPolicy::Fifo] {
        for pages in [64, 256] {
            for utilization in [50, 60, 70, 80, 90, 93] {
                for trims in [0, 5, 10, 20] {
                    points.push(Point { victim, pages, utilization, trims, ..GREEDY });
                }
            }
        }
    }
    let mut worst = [0.0f64; 2];
    for point in points.into_iter().step_by(if everything { 1 } else { 19 }) {
        let with_trim = usize::from(point.trims > 0);
        worst[with_trim] = worst[with_trim].max(check(point));
    }
    println!("worst: {:.2} % without TRIM, {:.2} % with", 100.0 * worst[0], 100.0 * worst[1]);
}
