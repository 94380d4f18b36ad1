//! Runs at the ends of the ranges that the numbers of a drive have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trimwise::compare::result::Cell;
use trimwise::compare::sensitivity::{AtEnds, POLICIES_MAX, Shift, Side, Tried, TrimTimes};
use trimwise::failure::Failure;
use trimwise::policy::{PolicyId, Trimmer};
use trimwise::profile::Profile;
use trimwise::profile::ranges::{End, Factor, Range};
use trimwise::units::UNIT_BYTES;
use trimwise_linux::pool;

use super::on_model::Plan;
use super::{CompareRequest, Comparison, Grid};
use crate::caller::{self, Caller};
use crate::conclusion;

/// Returns how many runs the ranges of a drive need at most.
pub fn runs_max(profile: &Profile) -> usize {
    let ends = AtEnds { device: String::new(), ranges: profile.ranges(), trim: None, tried: Vec::new() };
    match ends.factors().len() {
        0 => 0,
        1 => 2 * POLICIES_MAX,
        factors => 2 * POLICIES_MAX * (1 + factors),
    }
}

/// Runs policies at the ends of the ranges of each drive, and adds what that shows to the comparison, which is then
/// concluded again. Nothing is tried where the runs tell nothing.
pub(super) fn try_ends(
    request: &CompareRequest,
    plan: &Plan,
    comparison: &mut Comparison,
    (caller, stop): (&dyn Caller, &Arc<AtomicBool>),
) {
    for (_, profile) in &plan.devices {
        if let Some(ends) = of_device(request, plan, comparison, profile, (caller, stop)) {
            comparison.at_ends.push(ends);
        }
    }
    if !comparison.at_ends.is_empty() {
        comparison.conclude();
    }
}

fn of_device(
    request: &CompareRequest,
    plan: &Plan,
    comparison: &Comparison,
    profile: &Profile,
    (caller, stop): (&dyn Caller, &Arc<AtomicBool>),
) -> Option<AtEnds> {
    let name = &profile.name;
    let ranges = profile.ranges();
    let policies = conclusion::policies_at_ends(comparison, name).filter(|_| !ranges.is_empty())?;
    let cells: Vec<&Cell> = comparison
        .cells
        .iter()
        .filter(|cell| cell.device == *name && policies.contains(&cell.policy))
        .collect();
    let trim = trim_times(profile, &ranges, &cells);
    let mut ends = AtEnds { device: name.to_owned(), ranges, trim, tried: Vec::new() };
    loop {
        let next = conclusion::next_at_ends(comparison, &ends);
        if next.is_empty() {
            return Some(ends);
        }
        let Some(tried) = tried(request, plan, (profile, &ends.ranges), &cells, &next, (caller, stop)) else {
            let why = "a run at the ends of the drive's ranges failed or was stopped, so not all of them were tried";
            caller.note(&format!("{name}: {why}"));
            return Some(ends);
        };
        ends.tried.extend(tried);
    }
}

/// Returns the drive on one side of these factors. `None` if no drive can be like that.
pub(crate) fn at_side(
    profile: &Profile,
    ranges: &[Range],
    factors: &[Factor],
    side: Side,
) -> Option<Profile> {
    let of = ranges.iter().filter(|range| factors.contains(&range.setting.factor()));
    profile.at(of.map(|range| (range, side.end(range.setting.factor()))))
}

/// How long the mean TRIM takes the drive, at the ends of its ranges.
pub(crate) fn trim_times(profile: &Profile, ranges: &[Range], cells: &[&Cell]) -> Option<TrimTimes> {
    let figures = cells.iter().filter_map(|cell| cell.device_stats.as_ref());
    let (ranges_sent, units) =
        figures.fold((0, 0), |(n, units), device| (n + device.trim_ranges, units + device.trimmed_units));
    let units = (units / ranges_sent.max(1)).max(1);
    let of = |end: Option<End>| {
        let costs = ranges.iter().filter(|range| range.setting.factor() == Factor::TrimCost);
        let at = profile.at(costs.filter_map(|range| Some((range, end?))))?;
        Some(at.config.trim_alone(units).as_nanos())
    };
    (ranges_sent > 0).then_some(())?;
    Some(TrimTimes {
        bytes: units * UNIT_BYTES,
        low_ns: of(Some(End::Low))?,
        likely_ns: of(None)?,
        high_ns: of(Some(End::High))?,
    })
}

/// Runs each policy once on each of these sides. `None` if a run failed or was stopped, or no drive can be like that.
fn tried(
    request: &CompareRequest,
    plan: &Plan,
    (profile, ranges): (&Profile, &[Range]),
    cells: &[&Cell],
    sides: &[(Vec<Factor>, Side)],
    (caller, stop): (&dyn Caller, &Arc<AtomicBool>),
) -> Option<Vec<Tried>> {
    let first: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.rep == 0).collect();
    let at = |(factors, side): &(Vec<Factor>, Side)| at_side(profile, ranges, factors, *side);
    let profiles: Vec<Profile> = sides.iter().map(at).collect::<Option<_>>()?;
    let is_untouched = |factors: &[Factor], cell: &Cell| {
        *factors == [Factor::TrimCost]
            && cell.device_stats.as_ref().is_some_and(|device| device.trim_commands == 0)
    };
    let runs: Vec<(usize, &Cell, Trimmer)> = (0..sides.len())
        .flat_map(|side| first.iter().map(move |cell| (side, *cell)))
        .filter(|(side, cell)| !is_untouched(&sides[*side].0, cell))
        .filter_map(|(side, cell)| {
            Some((side, cell, *plan.policies.iter().find(|policy| PolicyId::from(**policy) == cell.policy)?))
        })
        .collect();
    let grid = Grid { devices: &plan.devices, policies: &plan.policies, reps: request.reps };
    let progress = caller.progress(runs.len(), "runs at the ends of ranges");
    let (ran, failure) =
        pool::run_finished(grid.jobs(request.jobs, pool::memory_of_run), runs.len(), |number| {
            if stop.load(Ordering::SeqCst) {
                return Err(Failure::Interrupted);
            }
            progress.begin_ageing(number);
            let (side, _, policy) = runs[number];
            let ran = plan.run_cell((&profiles[side], policy), 0, caller::report(&progress, number), stop)?;
            progress.done(number);
            Ok(ran)
        });
    progress.finish();
    if failure.is_some() {
        return None;
    }
    let mut ran = ran;
    super::judge(request, &mut ran).ok()?;
    let of_side = |(side, (factors, favours)): (usize, &(Vec<Factor>, Side))| {
        let there = |cell: &Cell| {
            let at = runs.iter().position(|(s, likely, _)| *s == side && likely.policy == cell.policy)?;
            ran.get(at)
        };
        let shifts = first.iter().map(|cell| shift(cell, there(cell))).collect();
        Tried { factors: factors.clone(), side: *favours, shifts }
    };
    Some(sides.iter().enumerate().map(of_side).collect())
}

/// Compares a run with the one at the likely values. `None`: it would be the same.
pub(crate) fn shift(likely: &Cell, there: Option<&Cell>) -> Shift {
    let writes = |cell: &Cell| cell.device_stats.as_ref().map_or(0, |device| device.nand_units_written);
    let times = |there: u64, likely: u64| if likely == 0 { 1.0 } else { there as f64 / likely as f64 };
    let of = there.unwrap_or(likely);
    Shift {
        policy: likely.policy.clone(),
        time: times(of.measured_ns(), likely.measured_ns()),
        flash_writes: times(writes(of), writes(likely)),
        is_inferred: there.is_none(),
    }
}
