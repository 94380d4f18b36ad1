//! The rule by which the verdict chooses a policy on one device.
//!
//! `ideal` is never recommended: it tells the device what no real host can tell it in time. Among the others:
//!
//! 1. The fastest is the one with the lowest median.
//! 2. Policies that cannot be told apart from it count as equally fast: the test finds no difference, or one below half
//!    a per cent, which no user would notice.
//! 3. Of these, only those remain that cannot be told apart from the one that wears the flash least: by the same test,
//!    since erases vary between repetitions as durations do, or by less than one per cent. Where erases differ by less
//!    than three superblocks, units programmed count instead.
//! 4. If the baseline is among them, it wins: a mount option should not be changed without a benefit. A caller may name
//!    others that win in the same way; the first of them that remains wins.
//! 5. Otherwise the lowest median wins, as the best estimate available. The verdict names those that it could not tell
//!    apart.
//!
//! A policy that trims at intervals, none of which was due during the runs, did the same as `off`: it is left out.
//!
//! With too few repetitions the test cannot find any difference. Then the medians alone decide, with the same two
//! limits, and the verdict says that nothing is proven.

use crate::compare::result::DriveFacts;
use crate::compare::statistics::{CONFIDENCE, Comparison, Sample, compare};
use crate::compare::summary::{DeviceSummary, PolicySummary};
use crate::policy::PolicyId;

/// Difference in duration below which policies count as equally fast: half a per cent.
pub(crate) const SPEED_INDIFFERENCE: f64 = 0.005;
/// Difference in wear below which policies count as equally gentle: one per cent.
pub(crate) const WEAR_INDIFFERENCE: f64 = 0.01;

pub struct Choice<'s, 'a> {
    pub chosen: &'s PolicySummary<'a>,
    /// The recommended policy has the lowest median of those that are not told apart from it.
    is_fastest: bool,
    /// Policies not told apart from it, neither in speed nor in wear.
    alike: Vec<&'s PolicyId>,
    /// Policies as fast as the fastest that wear the flash more.
    rougher: Vec<&'s PolicyId>,
}

impl<'s, 'a> Choice<'s, 'a> {
    pub fn of(chosen: &'s PolicySummary<'a>) -> Self {
        Self { chosen, is_fastest: false, alike: Vec::new(), rougher: Vec::new() }
    }

    /// A sentence about the other policies; empty if there is nothing to say.
    pub fn others(&self, baseline: &PolicyId) -> String {
        let mut sentences = Vec::new();
        if !self.alike.is_empty() && self.chosen.policy != baseline {
            let (alike, chosen) = (listed(&self.alike), self.chosen.policy);
            let why = match (self.is_fastest, self.alike.len()) {
                (false, _) => "needs the least change",
                (true, 1) => "has the lower median",
                (true, _) => "has the lowest median",
            };
            sentences.push(format!("{alike} cannot be told apart from `{chosen}`, which {why}."));
        }
        if !self.rougher.is_empty() {
            let (is, wears) = if self.rougher.len() == 1 { ("is", "wears") } else { ("are", "wear") };
            sentences.push(format!(
                "{} {is} as fast, as far as these runs can tell, but {wears} the flash more.",
                listed(&self.rougher)
            ));
        }
        sentences.join(" ")
    }
}

fn listed(policies: &[&PolicyId]) -> String {
    let quoted: Vec<String> = policies.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Chooses on one device by the rule above. A bound is chosen only if nothing else ran.
pub fn choose<'s, 'a>(device: &'s DeviceSummary<'a>, preferred: &[&PolicyId]) -> Option<Choice<'s, 'a>> {
    let usable = device.policies.iter().filter(|p| !p.bound && !p.unswept);
    let fastest = fastest(usable).or(device.policies.first())?;
    let as_fast: Vec<&PolicySummary> = device
        .policies
        .iter()
        .filter(|p| !p.bound && !p.unswept || p.policy == fastest.policy)
        .filter(|p| p.policy == fastest.policy || is_as_fast(&p.time_s, &fastest.time_s))
        .collect();
    let wear = Wear::of(device, &as_fast);
    let wears: Vec<Option<Sample>> = as_fast.iter().map(|p| wear.sample(p)).collect();
    let mut is_gentle = gentle(&wears).into_iter();
    let (gentle, rougher): (Vec<&PolicySummary>, Vec<_>) =
        as_fast.into_iter().partition(|_| is_gentle.next().unwrap_or(true));
    let kept = preferred.iter().find_map(|name| gentle.iter().copied().find(|p| p.policy == *name));
    let fastest = self::fastest(gentle.iter().copied());
    let chosen = kept.or(fastest)?;
    let is_fastest = fastest.is_some_and(|p| p.policy == chosen.policy);
    let others = gentle.into_iter().filter(|p| p.policy != chosen.policy);
    Some(Choice {
        chosen,
        is_fastest,
        alike: others.map(|p| p.policy).collect(),
        rougher: rougher.into_iter().map(|p| p.policy).collect(),
    })
}

fn is_as_fast(time: &Sample, fastest: &Sample) -> bool {
    !told_apart(&compare(time, fastest), SPEED_INDIFFERENCE)
}

/// For each, returns true if it cannot be told apart from the one that wears the flash least.
fn gentle(wears: &[Option<Sample>]) -> Vec<bool> {
    let least = wears.iter().flatten().min_by(|a, b| a.median().total_cmp(&b.median()));
    let is_gentle = |wear: &Option<Sample>| match (wear, least) {
        (Some(wear), Some(least)) => !told_apart(&compare(wear, least), WEAR_INDIFFERENCE),
        _ => true,
    };
    wears.iter().map(is_gentle).collect()
}

/// Returns the index of the best by the same rule without a baseline; `None` if there are none.
pub(crate) fn best(times: &[Sample], wears: &[Option<Sample>]) -> Option<usize> {
    let lowest =
        |of: &[usize]| of.iter().copied().min_by(|&a, &b| times[a].median().total_cmp(&times[b].median()));
    let all: Vec<usize> = (0..times.len().min(wears.len())).collect();
    let fastest = lowest(&all)?;
    let as_fast: Vec<usize> = all.into_iter().filter(|&i| is_as_fast(&times[i], &times[fastest])).collect();
    let is_gentle = gentle(&as_fast.iter().map(|&i| wears[i].clone()).collect::<Vec<_>>());
    let gentle: Vec<usize> =
        as_fast.into_iter().zip(is_gentle).filter(|(_, is)| *is).map(|(i, _)| i).collect();
    lowest(&gentle)
}

pub fn fastest<'s, 'a: 's>(
    policies: impl Iterator<Item = &'s PolicySummary<'a>>,
) -> Option<&'s PolicySummary<'a>> {
    policies.min_by(|a, b| a.time_s.median().total_cmp(&b.time_s.median()))
}

/// Returns true if two policies differ in speed by a proven and noticeable amount.
pub fn proven(c: &Comparison) -> bool {
    c.significant && exceeds(c, SPEED_INDIFFERENCE)
}

/// Returns true if two policies are told apart: by the test, or by their medians where there are too few repetitions
/// for it.
pub(crate) fn told_apart(c: &Comparison, indifference: f64) -> bool {
    (c.significant || untestable(c)) && exceeds(c, indifference)
}

pub(crate) fn exceeds(c: &Comparison, indifference: f64) -> bool {
    (c.ratio - 1.0).abs() > indifference
}

fn untestable(c: &Comparison) -> bool {
    c.p.is_some() && c.interval.confidence < CONFIDENCE
}

/// Differences in erases of fewer superblocks than this are chance: the run ended just before or after an erase.
const SUPERBLOCKS_MIN: f64 = 3.0;

impl DeviceSummary<'_> {
    /// Compares how much two policies wear the flash; `None` if the device does not tell.
    pub fn compare_wear(&self, base: &PolicySummary, other: &PolicySummary) -> Option<Comparison> {
        let wear = Wear::of(self, &[base, other]);
        Some(compare(&wear.sample(other)?, &wear.sample(base)?))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wear {
    Erases,
    /// Units programmed, since nothing was erased.
    UnitsUnerased,
    /// Units programmed, since erases differ by less than [`SUPERBLOCKS_MIN`].
    UnitsForFewErases,
}

impl Wear {
    /// Chooses the measure for a comparison of these policies on a device.
    pub fn of(device: &DeviceSummary, compared: &[&PolicySummary]) -> Self {
        let erases = |p: &PolicySummary| p.device_median_of(|d| d.erases as f64);
        if !device.policies.iter().any(|p| erases(p).is_some_and(|erases| erases > 0.0)) {
            return Self::UnitsUnerased;
        }
        let erases: Vec<f64> = compared.iter().filter_map(|p| erases(p)).collect();
        let most = erases.iter().copied().fold(0.0, f64::max);
        let least = erases.iter().copied().fold(f64::INFINITY, f64::min);
        let drive = compared.iter().find_map(|p| p.runs.first()?.drive);
        let is_chance =
            |drive: DriveFacts| most - least < SUPERBLOCKS_MIN * f64::from(drive.superblock_blocks);
        if drive.is_some_and(is_chance) { Self::UnitsForFewErases } else { Self::Erases }
    }

    /// Returns the wear in each repetition of a policy; `None` on a real directory.
    pub fn sample(self, policy: &PolicySummary) -> Option<Sample> {
        policy.device_sample_of(|d| match self {
            Self::Erases => d.erases as f64,
            Self::UnitsUnerased | Self::UnitsForFewErases => d.nand_units_written as f64,
        })
    }

    pub fn median(self, policy: &PolicySummary) -> Option<f64> {
        self.sample(policy).map(|sample| sample.median())
    }

    /// Names the unit of measurement in words.
    pub fn what(self) -> &'static str {
        match self {
            Self::Erases => "blocks erased",
            Self::UnitsUnerased => "units programmed (nothing was erased yet)",
            Self::UnitsForFewErases => "units programmed (erases differ by less than three superblocks)",
        }
    }
}
