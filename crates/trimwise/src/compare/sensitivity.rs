//! What a verdict depends on: whether it holds at the ends of the ranges that a drive's numbers have.
//!
//! A cheap screening, as by sequential bifurcation (Bettonvil and Kleijnen, EJOR 1997): all factors at once at the end
//! that is best for trimming, and all at the end that is worst. If the verdict is the same at both, it is taken to hold in
//! between, which assumes that each factor acts in one direction. If it turns, each factor is tried alone.
//!
//! At an end, each of a few policies runs once, with the seed of the first repetition at the likely values. How much
//! longer it took, and how much more it wrote to the flash, is carried over to the other repetitions, so that the same
//! rule judges. Where a verdict turns, the point is interpolated between the runs, linearly.

use serde::{Deserialize, Serialize};

use crate::compare::judge::{Decision, Judgement};
use crate::compare::result::Cell;
use crate::compare::summary::{DeviceSummary, PolicySummary, Summary};
use crate::policy::PolicyId;
use crate::profile::ranges::{Basis, End, Factor, Range, Uncertain};

/// Policies that run at an end.
pub const POLICIES_MAX: usize = 3;

/// Steps of the search for the point at which a verdict turns: ranges may span six powers of ten.
const STEPS: u32 = 40;

/// Ends of ranges: those at which trimming is worth most, or least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    ForTrim,
    AgainstTrim,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::ForTrim, Self::AgainstTrim];

    /// The end of this factor's ranges that is on this side.
    pub const fn end(self, factor: Factor) -> End {
        // A cheap TRIM and a large cache that free space feeds are for it, as is a collector that chooses badly, which is
        // the high end.
        let end_for = match factor {
            Factor::TrimCost => End::Low,
            Factor::Slc | Factor::Collector => End::High,
        };
        match (self, end_for) {
            (Self::ForTrim, end) => end,
            (Self::AgainstTrim, End::Low) => End::High,
            (Self::AgainstTrim, End::High) => End::Low,
        }
    }
}

/// A drive's ranges, and how policies ran at their ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtEnds {
    pub device: String,
    pub ranges: Vec<Range>,
    /// `None` if no policy trimmed.
    pub trim: Option<TrimTimes>,
    pub tried: Vec<Tried>,
    /// Runs that this took.
    pub runs: usize,
}

/// How long the mean TRIM of the runs takes the drive if it does nothing else, at the ends of its ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimTimes {
    pub bytes: u64,
    pub low_ns: u64,
    pub likely_ns: u64,
    pub high_ns: u64,
}

/// Runs at one side of some factors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    pub factors: Vec<Factor>,
    pub side: Side,
    pub shifts: Vec<Shift>,
}

/// A policy's run at an end, as multiples of that at the likely values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    pub policy: PolicyId,
    pub time: f64,
    pub flash_writes: f64,
    /// It sends no TRIM, so that what one takes changes nothing.
    pub is_inferred: bool,
}

/// Whether a verdict holds within the ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// The verdict is the same at all ends that were tried.
    pub holds: bool,
    /// Runs that this took.
    pub runs: usize,
    /// What the verdict would be at the likely values.
    pub likely: Act,
    /// What it depends on; empty if it holds.
    pub on: Vec<Turn>,
    /// The factors that have ranges.
    pub factors: Vec<Factor>,
    /// The weakest basis of their ranges.
    pub basis: Basis,
    pub trim: Option<TrimTimes>,
}

/// A recommended action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    pub decision: Decision,
    pub policy: Option<PolicyId>,
}

/// A verdict that turns between the likely values and an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Several if none of them turns it alone.
    pub factors: Vec<Factor>,
    pub side: Side,
    /// Where it turns: 0 at the likely values, 1 at the end; interpolated.
    pub at: f64,
    /// What a TRIM takes there; `None` if the verdict turns on something else.
    pub trim_ns: Option<u64>,
    /// Beyond that point other commands wait for TRIMs, as they do not at the likely values.
    #[serde(default)]
    pub others_wait: bool,
    /// The recommended action at the end.
    pub beyond: Act,
}

impl Act {
    fn of(judged: &Judgement) -> Self {
        Self { decision: judged.decision, policy: judged.policy.clone() }
    }
}

/// Judges the policies on a device, or only these two of them.
pub type Judge<'j> = dyn Fn(&DeviceSummary, Option<[&PolicyId; 2]>) -> Judgement + 'j;

/// The policies that are worth running at the ends: the current one, the one that the verdict is about, the one that
/// sends the most TRIM commands, and, if that leaves room, the one that sends the fewest.
pub fn policies(
    device: &DeviceSummary,
    judged: &Judgement,
    is_had: impl Fn(&PolicySummary) -> bool,
) -> Vec<PolicyId> {
    let trims = |p: &&PolicySummary| p.device_median_of(|d| d.trim_commands as f64).unwrap_or(0.0);
    let others = || {
        device.policies.iter().filter(|p| is_had(p) && !p.unswept && Some(p.policy) != judged.today.as_ref())
    };
    let busiest = others().max_by(|a, b| trims(a).total_cmp(&trims(b))).map(|p| p.policy);
    let fastest = others().min_by(|a, b| a.time_s.median().total_cmp(&b.time_s.median())).map(|p| p.policy);
    let about = judged.found.policy().filter(|policy| others().any(|p| p.policy == *policy)).or(fastest);
    let mut chosen: Vec<PolicyId> = Vec::new();
    let trimming = others().filter(|p| trims(p) > 0.0);
    let quietest = trimming.min_by(|a, b| trims(a).total_cmp(&trims(b))).map(|p| p.policy);
    for policy in [judged.today.as_ref(), about, busiest, quietest].into_iter().flatten() {
        if !chosen.contains(policy) {
            chosen.push(policy.clone());
        }
    }
    chosen.truncate(POLICIES_MAX);
    chosen
}

/// Returns the sides to try next, by what was tried so far; empty at the end.
pub fn next(cells: &[Cell], likely: &Judgement, ends: &AtEnds, judge: &Judge) -> Vec<(Vec<Factor>, Side)> {
    let factors = ends.factors();
    let has = |factors: &[Factor], side| ends.tried.iter().any(|t| t.factors == factors && t.side == side);
    if factors.is_empty() {
        return Vec::new();
    }
    if ends.tried.is_empty() {
        return Side::BOTH.map(|side| (factors.clone(), side)).into();
    }
    let together = ends.tried.iter().filter(|t| t.factors == factors && factors.len() > 1);
    let turned = together.filter(|t| turns(cells, likely, t, 1.0, judge).is_some());
    let alone = turned.flat_map(|t| factors.iter().map(|factor| (vec![*factor], t.side)));
    alone.filter(|(factors, side)| !has(factors, *side)).collect()
}

/// Concludes from what was tried.
pub fn sensitivity(cells: &[Cell], likely: &Judgement, ends: &AtEnds, judge: &Judge) -> Option<Sensitivity> {
    let factors = ends.factors();
    let basis = ends.ranges.iter().map(|range| range.basis).max()?;
    if ends.tried.is_empty() {
        return None;
    }
    let on_side = |side: Side| {
        let turn = |tried: &&Tried| {
            let beyond = turns(cells, likely, tried, 1.0, judge)?;
            let at = turning_point(|share| turns(cells, likely, tried, share, judge).is_some());
            let is_trim = tried.factors == [Factor::TrimCost];
            let trim_ns = ends.trim.filter(|_| is_trim).map(|trim| trim.at(side, at));
            let others_wait = is_trim && side == Side::AgainstTrim && ends.others_wait();
            Some(Turn { factors: tried.factors.clone(), side, at, trim_ns, others_wait, beyond })
        };
        let tried = || ends.tried.iter().filter(|t| t.side == side);
        let alone: Vec<Turn> = tried().filter(|t| t.factors.len() == 1).filter_map(|t| turn(&t)).collect();
        let together = || tried().filter(|t| t.factors.len() > 1).filter_map(|t| turn(&t)).collect();
        if alone.is_empty() { together() } else { alone }
    };
    let on: Vec<Turn> = Side::BOTH.into_iter().flat_map(on_side).collect();
    Some(Sensitivity {
        holds: on.is_empty(),
        runs: ends.runs,
        likely: Act::of(likely),
        on,
        factors,
        basis,
        trim: ends.trim,
    })
}

impl AtEnds {
    pub fn factors(&self) -> Vec<Factor> {
        let has = |factor: &Factor| self.ranges.iter().any(|range| range.setting.factor() == *factor);
        Factor::ALL.into_iter().filter(has).collect()
    }

    /// True if other commands wait for TRIMs at the high end, and not at the likely values.
    fn others_wait(&self) -> bool {
        let is_place = |range: &&Range| range.setting == Uncertain::TrimPlace;
        self.ranges.iter().find(is_place).is_some_and(|range| range.high != range.likely)
    }
}

impl TrimTimes {
    /// At the end on this side.
    pub const fn on(self, side: Side) -> u64 {
        match side.end(Factor::TrimCost) {
            End::Low => self.low_ns,
            End::High => self.high_ns,
        }
    }

    fn at(self, side: Side, share: f64) -> u64 {
        let end = self.on(side);
        (self.likely_ns as f64 + (end as f64 - self.likely_ns as f64) * share) as u64
    }
}

/// Returns the recommended action at a share of the way to an end, if the verdict is another one there.
fn turns(cells: &[Cell], likely: &Judgement, tried: &Tried, share: f64, judge: &Judge) -> Option<Act> {
    let (judged, is_still_better) = judged_at(cells, likely, tried, share, judge)?;
    let is_same = match (likely.decision.is_change(), judged.decision) {
        (true, decision) => decision.is_change() && (judged.policy == likely.policy || is_still_better),
        // Keeping the current policy is right too where others are worse, but then it does matter.
        (false, decision) if likely.decision == Decision::DoesNotMatter => {
            decision == Decision::DoesNotMatter || decision == Decision::CannotTell
        }
        (false, decision) => !decision.is_change(),
    };
    (!is_same).then(|| Act::of(&judged))
}

/// Judges the repetitions as they would be at a share of the way to an end; and whether the policy that was chosen at the
/// likely values is still better than the current one.
fn judged_at(
    cells: &[Cell],
    likely: &Judgement,
    tried: &Tried,
    share: f64,
    judge: &Judge,
) -> Option<(Judgement, bool)> {
    let shift = |policy: &PolicyId| tried.shifts.iter().find(|shift| shift.policy == *policy);
    let moved = |times: f64| 1.0 + (times - 1.0) * share;
    let cells: Vec<Cell> = cells
        .iter()
        .filter_map(|cell| {
            let shift = shift(&cell.policy)?;
            let mut cell = cell.clone();
            if let Some(device) = &mut cell.device_stats {
                let written = device.nand_units_written as f64 * moved(shift.flash_writes);
                device.nand_units_written = written.round() as u64;
            }
            Some(cell)
        })
        .collect();
    let mut summary = Summary::of(&cells);
    let device = summary.devices.first_mut()?;
    for policy in &mut device.policies {
        let times = moved(shift(policy.policy)?.time);
        policy.time_s = policy.time_s.times(times)?;
    }
    let pair = likely.today.as_ref().zip(likely.policy.as_ref());
    let is_still_better =
        pair.is_some_and(|(today, chosen)| judge(device, Some([today, chosen])).decision.is_change());
    Some((judge(device, None), is_still_better))
}

/// Searches the share at which a verdict turns, which it has at 1.
fn turning_point(turns: impl Fn(f64) -> bool) -> f64 {
    let (mut holds, mut turned) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(holds, turned);
        if turns(middle) { turned = middle } else { holds = middle }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::judge::{Found, Frame, judge};
    use crate::compare::result::Measure;
    use crate::compare::verdict::tests::cell;
    use crate::profile::SettingValue;

    /// Six repetitions of `off` in 100 s, and of `commit` in `commit_s`.
    fn runs(commit_s: f64) -> Vec<Cell> {
        let of = |policy: &'static str, seconds: f64| {
            (0..6).map(move |rep| {
                let mut cell = cell("a", policy, rep, seconds * (1.0 + 0.001 * f64::from(rep)), 10);
                let device = cell.device_stats.as_mut().unwrap();
                (device.trim_commands, device.trim_ranges) = if policy == "off" { (0, 0) } else { (10, 10) };
                cell
            })
        };
        of("off", 100.0).chain(of("commit", commit_s)).collect()
    }

    const FRAME: Frame =
        Frame { measure: Measure::Total, days: None, work: 1.0, by_life: true, is_lent: false };

    fn by(device: &DeviceSummary, only: Option<[&PolicyId; 2]>) -> Judgement {
        let is_had =
            |p: &PolicySummary| p.means.is_attainable() && only.is_none_or(|only| only.contains(&p.policy));
        judge(device, Some(&PolicyId::OFF), false, is_had, FRAME)
    }

    fn range(setting: Uncertain) -> Range {
        let [low, likely, high] = [1, 2, 3].map(SettingValue::Whole);
        Range { setting, low, likely, high, basis: Basis::Measured, source: String::new() }
    }

    /// What `commit` takes on each side, as a multiple.
    fn tried(factors: &[Factor], side: Side, commit: f64) -> Tried {
        let shift = |policy: &str, time, is_inferred| Shift {
            policy: policy.into(),
            time,
            flash_writes: 1.0,
            is_inferred,
        };
        let shifts = vec![shift("off", 1.0, true), shift("commit", commit, false)];
        Tried { factors: factors.to_vec(), side, shifts }
    }

    fn ends(settings: &[Uncertain], tried: Vec<Tried>) -> AtEnds {
        let trim = Some(TrimTimes { bytes: 65_536, low_ns: 100, likely_ns: 1_000, high_ns: 11_000 });
        let ranges = settings.iter().map(|setting| range(*setting)).collect();
        AtEnds { device: "a".to_owned(), ranges, trim, tried, runs: 2 }
    }

    fn judged(cells: &[Cell]) -> Judgement {
        by(&Summary::of(cells).devices[0], None)
    }

    const TRIM: &[Factor] = &[Factor::TrimCost];

    #[test]
    fn a_verdict_holds_if_it_is_the_same_at_both_ends() {
        let cells = runs(80.0);
        let likely = judged(&cells);
        assert_eq!((likely.decision, likely.policy.clone()), (Decision::Change, Some("commit".into())));
        let both = vec![tried(TRIM, Side::ForTrim, 0.95), tried(TRIM, Side::AgainstTrim, 1.2)];
        let ends = ends(&[Uncertain::TrimCommand], both);
        let found = sensitivity(&cells, &likely, &ends, &by).unwrap();
        assert!(found.holds && found.on.is_empty(), "96 s of 100: {found:?}");
        assert_eq!((found.runs, found.basis), (2, Basis::Measured));
        assert_eq!(next(&cells, &likely, &ends, &by), []);
    }

    #[test]
    fn a_verdict_turns_where_its_gain_falls_below_what_counts() {
        let cells = runs(80.0);
        let likely = judged(&cells);
        // 80 s grow to 120 s: 98 s, where 2 % are left, is at 18 of these 40.
        let both = vec![tried(TRIM, Side::ForTrim, 1.0), tried(TRIM, Side::AgainstTrim, 1.5)];
        let found = sensitivity(&cells, &likely, &ends(&[Uncertain::TrimCommand], both), &by).unwrap();
        let [turn] = &found.on[..] else { panic!("{found:?}") };
        assert!(!found.holds);
        assert_eq!((turn.side, turn.beyond.decision), (Side::AgainstTrim, Decision::Keep));
        assert!((turn.at - 0.45).abs() < 0.01, "{turn:?}");
        let expected = 1_000.0 + 10_000.0 * turn.at;
        assert_eq!(turn.trim_ns, Some(expected as u64));
        assert_eq!(found.likely, Act { decision: Decision::Change, policy: Some("commit".into()) });
    }

    #[test]
    fn what_does_not_matter_depends_on_an_end_where_it_does_and_keeping_on_one_where_a_change_helps() {
        for (commit_s, for_trim, against, expected) in [
            // `off` wears the flash as much as `commit`.
            (100.0, 1.0, 1.0, None),
            (100.0, 1.0, 1.5, Some((Side::AgainstTrim, Decision::Keep))),
            (100.0, 0.5, 1.0, Some((Side::ForTrim, Decision::Change))),
            (120.0, 1.0, 2.0, None),
            (120.0, 0.5, 2.0, Some((Side::ForTrim, Decision::Change))),
            // Less worse than before, but keeping is right all the same.
            (120.0, 0.84, 2.0, None),
        ] {
            let cells = runs(commit_s);
            let likely = judged(&cells);
            let both = vec![tried(TRIM, Side::ForTrim, for_trim), tried(TRIM, Side::AgainstTrim, against)];
            let found = sensitivity(&cells, &likely, &ends(&[Uncertain::TrimCommand], both), &by).unwrap();
            let on = found.on.first().map(|turn| (turn.side, turn.beyond.decision));
            assert_eq!(on, expected, "{commit_s} s: {for_trim} to {against}");
        }
    }

    #[test]
    fn factors_are_tried_together_and_alone_only_where_the_verdict_turns() {
        let cells = runs(80.0);
        let likely = judged(&cells);
        let of = |tried| ends(&[Uncertain::TrimCommand, Uncertain::Victim], tried);
        let both = [Factor::TrimCost, Factor::Collector];
        let after = |tried: &[Tried]| next(&cells, &likely, &of(tried.to_vec()), &by);
        let all = |side| (both.to_vec(), side);
        assert_eq!(after(&[]), [all(Side::ForTrim), all(Side::AgainstTrim)]);
        let [good, bad] = [tried(&both, Side::ForTrim, 1.0), tried(&both, Side::AgainstTrim, 1.5)];
        let alone = |factor| (vec![factor], Side::AgainstTrim);
        let together = [good, bad];
        assert_eq!(after(&together), both.map(alone));
        let one = |factor, times| tried(&[factor], Side::AgainstTrim, times);
        let tried = |trim, victim| {
            let alone = [one(Factor::TrimCost, trim), one(Factor::Collector, victim)];
            together.iter().cloned().chain(alone).collect::<Vec<_>>()
        };
        assert_eq!(after(&tried(1.5, 1.0)), []);
        let on = |trim, victim| {
            let found = sensitivity(&cells, &likely, &of(tried(trim, victim)), &by).unwrap();
            found.on.into_iter().map(|turn| (turn.factors, turn.trim_ns.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(on(1.5, 1.0), [(vec![Factor::TrimCost], true)]);
        assert_eq!(on(1.0, 1.5), [(vec![Factor::Collector], false)]);
        assert_eq!(on(1.1, 1.1), [(both.to_vec(), false)], "neither turns it alone");
    }

    #[test]
    fn the_current_policy_the_one_of_the_verdict_and_the_one_that_trims_most_are_run() {
        let mut cells = runs(80.0);
        let mut more = cell("a", "batch:1w", 0, 90.0, 10);
        more.device_stats.as_mut().unwrap().trim_commands = 1_000;
        cells.push(more);
        let bound = cell("a", "ideal", 0, 10.0, 10);
        cells.push(bound);
        let summary = Summary::of(&cells);
        let device = &summary.devices[0];
        let is_had = |p: &PolicySummary| p.means.is_attainable();
        let judged = by(device, None);
        assert_eq!(policies(device, &judged, is_had), ["off", "commit", "batch:1w"].map(PolicyId::from));
        let alike = Judgement { found: Found::TodayDidNotRun, ..judged };
        assert_eq!(
            policies(device, &alike, is_had),
            ["off", "commit", "batch:1w"].map(PolicyId::from),
            "the fastest"
        );
    }

    #[test]
    fn each_side_has_the_end_of_a_factor_that_is_for_or_against_trimming() {
        for (factor, end_for) in
            [(Factor::TrimCost, End::Low), (Factor::Slc, End::High), (Factor::Collector, End::High)]
        {
            assert_eq!(Side::ForTrim.end(factor), end_for, "{factor:?}");
            assert_ne!(Side::AgainstTrim.end(factor), end_for, "{factor:?}");
        }
    }
}
