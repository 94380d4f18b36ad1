//! The rule by which policies are judged, wherever they are: `compare`, `sweep`, `advise`, reports, tournaments.
//!
//! A policy is compared with another, a host's current one or no TRIM. A difference counts if it is *shown* (the test
//! finds it) and *material*: [`WAITED_S_PER_DAY`] and [`TIME_PERCENT`] of the time, or [`LIFE_PERCENT`] of a flash life
//! that ends within [`LIFE_YEARS`]. Then:
//!
//! - *Change* if a policy is materially better in one respect and materially worse in none.
//! - Otherwise *untrimmed* if nothing trims and space is lent, as by a thin pool: what gives most of it back, whatever it
//!   costs ([`SPACE_PERCENT`]).
//! - Otherwise *untrimmed* if nothing trims, and a policy is shown to wear the flash less, however long that lasts, and
//!   takes no more time. Then trimming costs nothing, and a drive that is never told what is free copies it for ever.
//! - Otherwise *cannot tell* if the intervals leave room for such a policy.
//! - Otherwise *keep* if a policy is, or may be, materially worse.
//! - Otherwise it *does not matter*.
//!
//! A verdict that turns within the ranges of what a drive's profile assumes is none ([`super::sensitivity`]): it depends on that.
//!
//! Only policies that a host can have are chosen ([`Means`]). A policy that trims at intervals, none
//! of which was due during the runs, did the same as `off`: it is left out.
//!
//! The flash wears by what is programmed into it, which each block is erased for sooner or later. Erases of a short run
//! depend on how many blocks were free when it began.

use serde::{Deserialize, Serialize};

use crate::compare::means::Means;
use crate::compare::result::{DeviceFigures, Measure};
use crate::compare::statistics::{CONFIDENCE, Comparison, Sample, compare};
use crate::compare::summary::{DeviceSummary, PolicySummary};
use crate::compare::why::Endurance;
use crate::policy::{PolicyId, PolicySpec};

/// Waiting that a person might notice in a day of use.
pub const WAITED_S_PER_DAY: f64 = 5.0;
/// Share of the time that a person might notice.
pub const TIME_PERCENT: f64 = 2.0;
/// Difference in the life of the flash that counts: less than the rated cycles are known by, which are round numbers.
pub const LIFE_PERCENT: f64 = 5.0;
/// Flash that lasts longer than this outlives its host.
pub const LIFE_YEARS: f64 = 15.0;

/// Share of what thin storage holds without TRIM that counts: a pool's own figures are rounded to whole percents, and who
/// runs one keeps more than this free.
pub const SPACE_PERCENT: f64 = 5.0;

/// The interval of fstrim.timer.
const WEEK_HOURS: u64 = 168;

/// Raised when the rule changes, so that a saved judgement of another rule is known for what it is.
pub const RULE: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Nothing is better than the current policy, and something is, or may be, materially worse.
    Keep,
    Change,
    /// Nothing trims today, and a policy that does no harm wears the flash less.
    Untrimmed,
    /// Nothing that a host can do differs materially.
    DoesNotMatter,
    CannotTell,
}

impl Decision {
    /// Returns true if another policy than the current one is to be used.
    pub fn is_change(self) -> bool {
        matches!(self, Self::Change | Self::Untrimmed)
    }
}

/// The gain of a policy over another, as a person feels it. Positive is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worth {
    /// Waiting saved in a day, if the work was spread over days.
    pub waiting_saved_s_per_day: Option<f64>,
    pub time_saved_percent: f64,
    /// Ends of the confidence interval; `None` after a single run of each.
    pub time_saved_percent_interval: Option<[f64; 2]>,
    /// The test finds a difference in time. `false` in results of older versions.
    #[serde(default)]
    pub time_is_shown: bool,
    /// Life of the flash for equal work, as a multiple of that under the other policy.
    pub life_times: Option<f64>,
    /// The test finds a difference in wear. `false` in results of older versions.
    #[serde(default)]
    pub life_is_shown: bool,
    /// Years that the flash lasts at this rate of work, under the other policy and this one. Known if the work was
    /// spread over days.
    pub life_years: Option<[f64; 2]>,
    /// Years rest on rated cycles that the drive's profile only assumes.
    #[serde(default)]
    pub life_is_assumed: bool,
    /// What thin storage holds beyond what is used, on average, under the other policy and this one; `None` without any.
    #[serde(default)]
    pub excess_bytes: Option<[f64; 2]>,
}

pub struct Compared<'s, 'a> {
    pub policy: &'s PolicySummary<'a>,
    pub worth: Worth,
    time: Material,
    life: Material,
}

/// Whether a material difference exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Material {
    Better,
    Worse,
    /// It could be there, but is not shown.
    PerhapsBetter,
    PerhapsWorse,
    /// The interval leaves no room for it.
    No,
}

impl Compared<'_, '_> {
    fn is_better(&self) -> bool {
        let both = [self.time, self.life];
        both.contains(&Material::Better) && !both.contains(&Material::Worse)
    }

    fn is_worse(&self) -> bool {
        [self.time, self.life].contains(&Material::Worse)
    }

    fn may_be_better(&self) -> bool {
        !self.is_worse() && [self.time, self.life].contains(&Material::PerhapsBetter)
    }

    fn may_be_worse(&self) -> bool {
        [self.time, self.life].contains(&Material::PerhapsWorse)
    }
}

/// The scale on which differences are felt.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub measure: Measure,
    /// Days over which the work was spread.
    pub days: Option<u32>,
    /// The host's work as a multiple of the runs'.
    pub work: f64,
    /// Whether a longer life alone decides: at a known rate of work, or where no command follows.
    pub by_life: bool,
    /// Whether discards give space or memory back to a lender, such as a thin pool: then something must trim.
    pub is_lent: bool,
}

impl Frame {
    /// The scale of a study, which changes no host.
    pub fn of_study(measure: Measure, days: Option<u32>) -> Self {
        Self { measure, days, work: 1.0, by_life: true, is_lent: false }
    }

    /// Seconds a day that a share of the time amounts to, if the work was spread over days.
    fn seconds_per_day(self, today_s: f64, share: f64) -> Option<f64> {
        (self.measure == Measure::Waiting).then_some(())?;
        Some(today_s * share / f64::from(self.days?) * self.work)
    }

    /// Returns whether this share of the current policy's time is too little to be noticed.
    fn is_negligible(self, today_s: f64, share: f64) -> bool {
        let is_short = self.seconds_per_day(today_s, share).is_some_and(|s| s.abs() < WAITED_S_PER_DAY);
        share.abs() * 100.0 < TIME_PERCENT || is_short
    }

    /// Compares a policy with the current one on the same device.
    pub fn compared<'s, 'a>(self, today: &PolicySummary, policy: &'s PolicySummary<'a>) -> Compared<'s, 'a> {
        // Speeds: the other policy's over the current one's.
        let test = compare(&today.time_s, &policy.time_s);
        let today_s = today.time_s.median();
        let saved = |speed: f64| 1.0 - 1.0 / speed;
        let has_interval = test.p.is_none() || test.interval.confidence > 0.0;
        let interval = has_interval.then(|| [saved(test.interval.low), saved(test.interval.high)]);
        let wear = compared_wear(today, policy);
        let life_times = wear.map(|wear| wear.ratio).filter(|times| times.is_finite() && *times > 0.0);
        let endurance = Endurance::of(today);
        let years = endurance.and_then(|today| today.years);
        let years = years.zip(life_times).map(|(years, times)| [years, years * times]);
        let life_is_shown = wear.is_some_and(|wear| wear.significant);
        Compared {
            policy,
            time: self.of_time(today_s, &test, saved(test.ratio), interval),
            life: of_life(life_times, years, self.by_life, life_is_shown),
            worth: Worth {
                waiting_saved_s_per_day: self.seconds_per_day(today_s, saved(test.ratio)),
                time_saved_percent: saved(test.ratio) * 100.0,
                time_saved_percent_interval: interval.map(|ends| ends.map(|end| end * 100.0)),
                time_is_shown: test.significant,
                life_times,
                life_is_shown,
                life_years: years.filter(|_| self.days.is_some()),
                life_is_assumed: endurance.is_some_and(|today| today.assumed),
                excess_bytes: excess(today).zip(excess(policy)).map(<[f64; 2]>::from),
            },
        }
    }

    fn of_time(self, today_s: f64, test: &Comparison, saved: f64, interval: Option<[f64; 2]>) -> Material {
        let is_negligible = |share: f64| self.is_negligible(today_s, share);
        if test.significant && !is_negligible(saved) {
            return if saved > 0.0 { Material::Better } else { Material::Worse };
        }
        match interval {
            Some(ends) if ends.into_iter().all(is_negligible) => Material::No,
            Some(ends) if ends.into_iter().all(|end| end <= 0.0 || is_negligible(end)) => {
                Material::PerhapsWorse
            }
            _ => Material::PerhapsBetter,
        }
    }
}

/// What thin storage holds beyond what is used, on average: the median of the repetitions.
fn excess(policy: &PolicySummary) -> Option<f64> {
    let mean = |d: &DeviceFigures| d.thin.as_ref().map_or(f64::NAN, |thin| thin.excess_bytes_mean);
    policy.device_sample_of(mean).map(|sample| sample.median()).filter(|bytes| !bytes.is_nan())
}

/// Judges the life of the flash. `times` is its life as a multiple of that under the current policy. `years` has the
/// longest life in years under each. Without days these are years without a pause, and the rate is unknown. Then a
/// longer life alone is no reason to change a host (`by_life`).
fn of_life(times: Option<f64>, years: Option<[f64; 2]>, by_life: bool, is_shown: bool) -> Material {
    let Some(times) = times else { return Material::No };
    let is_long = years.is_some_and(|[before, after]| before.min(after) >= LIFE_YEARS);
    if is_long || (times - 1.0).abs() * 100.0 <= LIFE_PERCENT {
        return Material::No;
    }
    match (is_shown, times > 1.0) {
        (true, true) if by_life => Material::Better,
        (true, false) if by_life => Material::Worse,
        (_, true) => Material::PerhapsBetter,
        (_, false) => Material::PerhapsWorse,
    }
}

/// Compares how much two policies wear the flash: the ratio is the life under `policy` over that under `base`. `None`
/// if the device does not tell.
pub fn compared_wear(base: &PolicySummary, policy: &PolicySummary) -> Option<Comparison> {
    let of = |p: &PolicySummary| p.device_sample_of(|d| d.nand_units_written as f64);
    Some(compare(&of(base)?, &of(policy)?))
}

/// What was found on a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The better policy, or the nearest worse one, with the difference.
    Shown(PolicyId, Worth),
    /// A policy that may be worse, where none can be better.
    NotBetter(PolicyId, Worth),
    /// The largest differences of all policies.
    Alike(Worth),
    /// A policy that might be better.
    Wide(PolicyId, Worth),
    /// What was found at the likely values of a drive's numbers is not so within their ranges ([`super::sensitivity`]).
    Depends(Box<Self>),
    TodayDidNotRun,
    /// No other policy that ran can be had.
    NothingElse,
    /// The policy with which the others are compared cannot be had.
    BaselineIsNowhere,
}

impl Found {
    /// The policy that it is about; `None` if it is about all of them.
    pub fn policy(&self) -> Option<&PolicyId> {
        match self {
            Self::Shown(policy, _) | Self::NotBetter(policy, _) | Self::Wide(policy, _) => Some(policy),
            Self::Depends(likely) => likely.policy(),
            Self::Alike(_) | Self::TodayDidNotRun | Self::NothingElse | Self::BaselineIsNowhere => None,
        }
    }

    pub fn worth(&self) -> Option<&Worth> {
        match self {
            Self::Shown(_, worth) | Self::NotBetter(_, worth) | Self::Wide(_, worth) | Self::Alike(worth) => {
                Some(worth)
            }
            Self::Depends(likely) => likely.worth(),
            Self::TodayDidNotRun | Self::NothingElse | Self::BaselineIsNowhere => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub decision: Decision,
    /// The policy with which the others were compared.
    pub today: Option<PolicyId>,
    /// The policy to use; without a change, the current one.
    pub policy: Option<PolicyId>,
    pub found: Found,
}

/// Judges the policies that ran on a device, compared with the current one. `is_had` says which of them the host can
/// have, and `is_host_s` that the current one is a host's, which has it whatever that says.
pub fn judge(
    device: &DeviceSummary,
    today: Option<&PolicyId>,
    is_host_s: bool,
    is_had: impl Fn(&PolicySummary) -> bool,
    frame: Frame,
) -> Judgement {
    let judgement =
        |decision, found| Judgement { decision, today: today.cloned(), policy: today.cloned(), found };
    let Some(base) = today.and_then(|today| device.policy(today)) else {
        return judgement(Decision::CannotTell, Found::TodayDidNotRun);
    };
    if !is_host_s && !is_had(base) {
        return judgement(Decision::CannotTell, Found::BaselineIsNowhere);
    }
    let is_candidate = |p: &&PolicySummary| p.policy != base.policy && !p.unswept && is_had(p);
    let others: Vec<Compared> =
        device.policies.iter().filter(is_candidate).map(|p| frame.compared(base, p)).collect();
    if others.is_empty() {
        return judgement(Decision::CannotTell, Found::NothingElse);
    }
    let of = |one: &Compared| (one.policy.policy.clone(), one.worth);
    if let Some((policy, worth)) = best(&others).map(of) {
        let found = Found::Shown(policy.clone(), worth);
        return Judgement { policy: Some(policy), ..judgement(Decision::Change, found) };
    }
    let untrimmed = *base.policy == PolicyId::OFF;
    let way = if frame.is_lent { least_costly(&others) } else { harmless(&others) };
    if let Some((policy, worth)) = way.filter(|_| untrimmed).map(of) {
        let found = Found::Shown(policy.clone(), worth);
        return Judgement { policy: Some(policy), ..judgement(Decision::Untrimmed, found) };
    }
    if let Some((policy, worth)) = others.iter().find(|other| other.may_be_better()).map(of) {
        return judgement(Decision::CannotTell, Found::Wide(policy, worth));
    }
    if let Some((policy, worth)) = others.iter().find(|other| other.is_worse()).map(of) {
        return judgement(Decision::Keep, Found::Shown(policy, worth));
    }
    if let Some((policy, worth)) = others.iter().find(|other| other.may_be_worse()).map(of) {
        return judgement(Decision::Keep, Found::NotBetter(policy, worth));
    }
    judgement(Decision::DoesNotMatter, Found::Alike(widest(&others)))
}

/// The policy to change to: of those that save about as much time as the one that saves most, those under which the
/// flash lasts longest, where that matters; and of these, one that needs no daemon, and the fastest.
pub fn best<'c, 's: 'c, 'a: 'c>(
    others: impl IntoIterator<Item = &'c Compared<'s, 'a>>,
) -> Option<&'c Compared<'s, 'a>> {
    let mut better: Vec<&Compared> = others.into_iter().filter(|other| other.is_better()).collect();
    let saved = |one: &Compared| one.worth.time_saved_percent;
    let fastest = better.iter().copied().max_by(|a, b| saved(a).total_cmp(&saved(b)))?;
    let is_near = |one: &&Compared| {
        let waiting = |one: &Compared| one.worth.waiting_saved_s_per_day;
        let is_short = waiting(fastest).zip(waiting(one)).is_some_and(|(a, b)| a - b < WAITED_S_PER_DAY);
        saved(fastest) - saved(one) < TIME_PERCENT || is_short
    };
    better.retain(is_near);
    let life = |one: &Compared| match (one.worth.life_years, one.worth.life_times) {
        (Some([_, years]), _) => years.min(LIFE_YEARS),
        (None, times) => times.unwrap_or(1.0),
    };
    let longest = better.iter().map(|one| life(one)).fold(0.0, f64::max);
    better.retain(|one| !exceeds(longest / life(one), LIFE_PERCENT));
    let rank = |one: &Compared| one.policy.means == Means::Stock;
    better.into_iter().max_by(|a, b| rank(a).cmp(&rank(b)).then(saved(a).total_cmp(&saved(b))))
}

/// A policy that is shown to wear the flash less, and takes no more time: the weekly fstrim that distributions have, or
/// else the gentlest, if possible one that needs no daemon.
fn harmless<'c, 's, 'a>(others: &'c [Compared<'s, 'a>]) -> Option<&'c Compared<'s, 'a>> {
    let times = |one: &Compared| one.worth.life_times.unwrap_or(1.0);
    let is_harmless = |one: &&Compared| {
        let is_gentler = one.worth.life_is_shown && times(one) > 1.0 && exceeds(times(one), LIFE_PERCENT);
        is_gentler && !matches!(one.time, Material::Worse | Material::PerhapsWorse)
    };
    others.iter().filter(is_harmless).max_by(|a, b| {
        let rank = |one: &Compared| (is_weekly(one), one.policy.means == Means::Stock);
        rank(a).cmp(&rank(b)).then(times(a).total_cmp(&times(b)))
    })
}

/// The policy that gives most of what is lent back for the least time. Of those that are not shown to take longer, and
/// about as good ([`SPACE_PERCENT`]) where it is known what they give back, the weekly fstrim.
fn least_costly<'c, 's, 'a>(others: &'c [Compared<'s, 'a>]) -> Option<&'c Compared<'s, 'a>> {
    let trims = || others.iter().filter(|one| *one.policy.policy != PolicyId::OFF);
    let is_cheap = |one: &Compared| one.time != Material::Worse;
    // Of what stays held without TRIM.
    let share = |one: &Compared| one.worth.excess_bytes.map_or(0.0, |[off, held]| held / off.max(1.0));
    let least = trims().filter(|one| is_cheap(one)).map(share).fold(f64::INFINITY, f64::min);
    trims().max_by(|a, b| {
        let gives_back = |one: &Compared| (share(one) - least) * 100.0 <= SPACE_PERCENT;
        let rank = |one: &Compared| (is_cheap(one), gives_back(one), is_weekly(one));
        rank(a).cmp(&rank(b)).then(a.worth.time_saved_percent.total_cmp(&b.worth.time_saved_percent))
    })
}

fn is_weekly(one: &Compared) -> bool {
    let batch = one.policy.policy.spec().and_then(PolicySpec::batch);
    batch.is_some_and(|batch| batch.hours() == WEEK_HOURS)
}

fn widest(others: &[Compared]) -> Worth {
    let of = |figure: fn(&Worth) -> f64| {
        others.iter().map(|c| c.worth).max_by(|a, b| figure(a).abs().total_cmp(&figure(b).abs()))
    };
    let time = of(|w| w.time_saved_percent);
    let life = |c: &Worth| c.life_times.unwrap_or(1.0);
    let shortest = others.iter().map(|c| c.worth).min_by(|a, b| life(a).total_cmp(&life(b)));
    Worth {
        waiting_saved_s_per_day: time.and_then(|w| w.waiting_saved_s_per_day),
        time_saved_percent: time.map_or(0.0, |w| w.time_saved_percent),
        time_saved_percent_interval: time.and_then(|w| w.time_saved_percent_interval),
        time_is_shown: time.is_some_and(|w| w.time_is_shown),
        life_times: shortest.and_then(|worth| worth.life_times),
        life_is_shown: shortest.is_some_and(|worth| worth.life_is_shown),
        life_years: shortest.and_then(|worth| worth.life_years),
        life_is_assumed: shortest.is_some_and(|worth| worth.life_is_assumed),
        excess_bytes: time.and_then(|w| w.excess_bytes),
    }
}

/// Returns the index of the best of many where none is the current one, as in a search; `None` if there are none. Of
/// those that are not told apart from the fastest, and then not from the gentlest of these, it has the lowest median.
pub(crate) fn best_of(times: &[Sample], wears: &[Option<Sample>]) -> Option<usize> {
    let lowest =
        |of: &[usize]| of.iter().copied().min_by(|&a, &b| times[a].median().total_cmp(&times[b].median()));
    let all: Vec<usize> = (0..times.len().min(wears.len())).collect();
    let fastest = &times[lowest(&all)?];
    let is_as_fast = |&i: &usize| !told_apart(&compare(&times[i], fastest), TIME_PERCENT);
    let as_fast: Vec<usize> = all.into_iter().filter(is_as_fast).collect();
    let wear = |i: usize| wears[i].as_ref();
    let least = as_fast.iter().filter_map(|&i| wear(i)).min_by(|a, b| a.median().total_cmp(&b.median()));
    let is_gentle = |i: &usize| match (wear(*i), least) {
        (Some(wear), Some(least)) => !told_apart(&compare(wear, least), LIFE_PERCENT),
        _ => true,
    };
    lowest(&as_fast.into_iter().filter(is_gentle).collect::<Vec<_>>())
}

/// Returns true if two are told apart by more than this percentage: by the test, or by their medians where there are too
/// few repetitions for it.
fn told_apart(c: &Comparison, percent: f64) -> bool {
    let is_untestable = c.p.is_some() && c.interval.confidence < CONFIDENCE;
    (c.significant || is_untestable) && exceeds(c.ratio, percent)
}

/// Returns true if the ratio of two figures differs from 1 by more than this percentage.
pub(crate) fn exceeds(ratio: f64, percent: f64) -> bool {
    (ratio - 1.0).abs() * 100.0 > percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_time_is_felt_if_it_is_two_percent_and_five_seconds_a_day() {
        let frame = |measure, days, work| Frame { measure, days, work, by_life: true, is_lent: false };
        for (measure, days, work, seconds) in [
            (Measure::Waiting, Some(2), 1.0, Some(2.5)),
            (Measure::Waiting, Some(2), 3.0, Some(7.5)),
            (Measure::Waiting, None, 1.0, None),
            (Measure::Total, Some(2), 1.0, None),
        ] {
            let found = frame(measure, days, work).seconds_per_day(10.0, 0.5);
            assert_eq!(found, seconds, "{measure:?}, {days:?} days, {work} times the work");
        }
        for (today_s, share, negligible) in [
            (1_000.0, 0.02, false),
            (1_000.0, 0.019, true),
            (1_000.0, -0.019, true),
            (1_000.0, -0.02, false),
            (10.0, 0.5, false),
            (10.0, 0.49, true),
            (10.0, -0.49, true),
            (10.0, -0.5, false),
        ] {
            let one = frame(Measure::Waiting, Some(1), 1.0);
            assert_eq!(one.is_negligible(today_s, share), negligible, "{share} of {today_s} s");
        }
        assert!(
            !frame(Measure::Total, Some(1), 1.0).is_negligible(0.001, 0.02),
            "seconds count only as waiting"
        );
    }

    #[test]
    fn the_life_of_the_flash_counts_from_five_percent_on_if_it_ends_within_fifteen_years() {
        use Material::{Better, No, PerhapsBetter, PerhapsWorse, Worse};
        for (times, years, by_life, is_shown, expected) in [
            (1.049, None, true, true, No),
            (1.051, None, true, true, Better),
            (0.951, None, true, true, No),
            (0.949, None, true, true, Worse),
            (1.2, None, true, false, PerhapsBetter),
            (0.8, None, true, false, PerhapsWorse),
            (0.8, None, false, true, PerhapsWorse),
            (1.2, Some([15.0, 18.0]), true, true, No),
            (1.2, Some([14.9, 17.9]), true, true, Better),
            (0.8, Some([18.75, 15.0]), true, true, No),
            (0.8, Some([18.6, 14.9]), true, true, Worse),
            (1.5, Some([6.0, 9.0]), false, true, PerhapsBetter), // at an unknown rate
        ] {
            let found = of_life(Some(times), years, by_life, is_shown);
            assert_eq!(
                found, expected,
                "{times} times, {years:?} years, by life: {by_life}, shown: {is_shown}"
            );
        }
    }

    /// A search takes what is fastest, then gentlest, and leaves alone what nobody would notice.
    #[test]
    fn the_best_of_many_is_told_apart_by_two_percent_of_time_and_five_of_wear() {
        let exact = |value: f64| Sample::new(vec![value; 3], true).unwrap();
        for (case, field, best) in [
            ("the fastest", &[(100.0, 10.0), (97.9, 10.0)][..], 1),
            ("less than 2 % slower and more than 5 % gentler", &[(101.9, 9.4), (100.0, 10.0)], 0),
            ("less than 5 % gentler", &[(101.9, 9.6), (100.0, 10.0)], 1),
            ("more than 2 % slower", &[(102.1, 5.0), (100.0, 10.0)], 1),
        ] {
            let times: Vec<Sample> = field.iter().map(|(time, _)| exact(*time)).collect();
            let wears: Vec<_> = field.iter().map(|(_, wear)| Some(exact(*wear))).collect();
            assert_eq!(best_of(&times, &wears), Some(best), "{case}");
        }
        assert_eq!(best_of(&[], &[]), None);
        // Two runs of each are too few for the test, so the medians decide.
        let two = |a: f64| Sample::new(vec![a, a + 0.1], false).unwrap();
        assert_eq!(best_of(&[two(100.0), two(101.0)], &[Some(two(10.0)), Some(two(5.0))]), Some(1));
    }
}
