//! Runs at the ends of the ranges that the numbers of a drive have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trimwise::compare::result::{Cell, Measure};
use trimwise::compare::sensitivity::{AtEnds, POLICIES_MAX, Shift, Side, Tried, TrimTimes};
use trimwise::compare::statistics::median;
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
pub fn runs_max(request: &CompareRequest, profile: &Profile) -> usize {
    let ranges = profile.ranges();
    let has = |factor: &&Factor| ranges.iter().any(|range| range.setting.factor() == **factor);
    let reps = reps(request) as usize;
    match Factor::ALL.iter().filter(has).count() {
        0 => 0,
        1 => 2 * POLICIES_MAX * reps,
        factors => 2 * POLICIES_MAX * reps * (1 + factors),
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
        match of_device(request, plan, comparison, profile, (caller, stop)) {
            Ok(ends) => comparison.at_ends.extend(ends),
            Err(failure) => {
                // Without them there is no verdict.
                (comparison.partial, comparison.ended_by) = (true, Some(failure));
                comparison.at_ends.clear();
                comparison.conclude();
                return;
            }
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
) -> Result<Option<AtEnds>, Failure> {
    let name = &profile.name;
    let ranges = profile.ranges();
    let policies = conclusion::policies_at_ends(comparison, name).filter(|_| !ranges.is_empty());
    let Some(policies) = policies else { return Ok(None) };
    let cells: Vec<&Cell> = comparison
        .cells
        .iter()
        .filter(|cell| cell.device == *name && policies.contains(&cell.policy))
        .collect();
    let trim = trim_times(profile, &ranges, &cells);
    let mut ends = AtEnds { device: name.to_owned(), ranges, trim, tried: Vec::new(), runs: 0 };
    loop {
        let next = conclusion::next_at_ends(comparison, &ends);
        if next.is_empty() {
            return Ok(Some(ends));
        }
        let (tried, runs) = tried(request, plan, (profile, &ends.ranges), &cells, &next, (caller, stop))?;
        ends.tried.extend(tried);
        ends.runs += runs;
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

/// Repetitions at an end where a tail is judged, which differs much from run to run.
const REPS_OF_A_TAIL: u32 = 3;

fn reps(request: &CompareRequest) -> u32 {
    if matches!(request.judge, Some(Measure::Latency(..))) { REPS_OF_A_TAIL } else { 1 }
}

/// Runs each policy once on each of these sides, or a few times if a tail is judged.
///
/// # Errors
///
/// If a run failed or was stopped.
fn tried(
    request: &CompareRequest,
    plan: &Plan,
    (profile, ranges): (&Profile, &[Range]),
    cells: &[&Cell],
    sides: &[(Vec<Factor>, Side)],
    (caller, stop): (&dyn Caller, &Arc<AtomicBool>),
) -> Result<(Vec<Tried>, usize), Failure> {
    let reps = reps(request);
    let of_likely: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.rep < reps).collect();
    let at = |(factors, side): &(Vec<Factor>, Side)| at_side(profile, ranges, factors, *side);
    let profiles: Option<Vec<Profile>> = sides.iter().map(at).collect();
    let profiles = profiles.ok_or_else(|| {
        Failure::run(format!("{}: no drive can be at the ends of all of its ranges at once", profile.name))
    })?;
    let is_untouched = |factors: &[Factor], cell: &Cell| {
        *factors == [Factor::TrimCost]
            && cell.device_stats.as_ref().is_some_and(|device| device.trim_commands == 0)
    };
    let runs: Vec<(usize, &Cell, Trimmer)> = (0..sides.len())
        .flat_map(|side| of_likely.iter().map(move |cell| (side, *cell)))
        .filter(|(side, cell)| !is_untouched(&sides[*side].0, cell))
        .filter_map(|(side, cell)| {
            let policy = plan.policies.iter().find(|policy| PolicyId::from(**policy) == cell.policy)?;
            Some((side, cell, *policy))
        })
        .collect();
    let grid = Grid { devices: &plan.devices, policies: &plan.policies, reps: request.reps };
    let progress = caller.progress(runs.len(), "runs at the ends of ranges");
    let jobs = grid.jobs(request.jobs, pool::memory_of_run);
    let ran = pool::run_ordered(jobs, runs.len(), |number| {
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted);
        }
        progress.begin_ageing(number);
        let (side, likely, policy) = runs[number];
        let report = caller::report(&progress, number);
        let ran = plan.run_cell((&profiles[side], policy), likely.rep, report, stop)?;
        progress.done(number);
        Ok(ran)
    });
    progress.finish();
    let mut ran = ran?;
    super::judge(request, &mut ran)?;
    let of_side = |(side, (factors, favours)): (usize, &(Vec<Factor>, Side))| {
        let there = |likely: &Cell| {
            let is_it = |(s, cell, _): &(usize, &Cell, Trimmer)| {
                *s == side && (&cell.policy, cell.rep) == (&likely.policy, likely.rep)
            };
            ran.get(runs.iter().position(is_it)?)
        };
        let first = of_likely.iter().filter(|cell| cell.rep == 0);
        let of_policy = |first: &&&Cell| {
            let repetitions = of_likely.iter().filter(|cell| cell.policy == first.policy);
            let shifts: Vec<Shift> = repetitions.map(|cell| shift(cell, there(cell))).collect();
            let middle = |of: fn(&Shift) -> f64| median(&shifts.iter().map(of).collect::<Vec<_>>());
            Some(Shift {
                time: middle(|shift| shift.time)?,
                flash_writes: middle(|shift| shift.flash_writes)?,
                ..shifts.first()?.clone()
            })
        };
        Tried {
            factors: factors.clone(),
            side: *favours,
            shifts: first.filter_map(|cell| of_policy(&cell)).collect(),
        }
    };
    Ok((sides.iter().enumerate().map(of_side).collect(), runs.len()))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use trimwise::compare::judge::Decision;

    use super::*;
    use crate::caller::Silent;
    use crate::compare::on_model::compared;

    /// A drive of 512 MiB whose TRIM takes 1 us, or up to `high` ns.
    fn request(folder: &std::path::Path, high: u64) -> CompareRequest {
        let drive = folder.join("small.toml");
        let range = format!(
            "[ranges.\"trim.cost_per_command_ns\"]\nlow = 1_000\nhigh = {high}\nsource = \"a test\"\n[sources]"
        );
        let text = include_str!("../../../../profiles/sata-small.toml")
            .replace("8_589_934_592", "536_870_912")
            .replace("cost_per_command_ns = 300_000", "cost_per_command_ns = 1_000")
            .replace("cost_per_range_ns = 5000", "cost_per_range_ns = 0")
            .replace("[sources]", &range)
            .replace(
                "trim = \"assumed: 0.3 ms a command, as on well-behaved SATA drives\"",
                "trim = \"published\"",
            )
            .replace(
                "gc = \"assumed: greedy, three free superblocks, idle collection after 100 ms\"",
                "gc = \"published\"",
            );
        std::fs::write(&drive, text).unwrap();
        CompareRequest {
            workload: "append:64KiB:8MiB".to_owned(),
            devices: vec![drive.display().to_string()],
            policies: vec!["off".into(), "commit".into()],
            utilization: Some("50".into()),
            // Its commits wait for their TRIMs.
            linux: Some("4.4".to_owned()),
            reps: 6,
            ..CompareRequest::default()
        }
    }

    #[test]
    fn each_policy_runs_once_at_either_end_unless_it_sends_no_trim() {
        let folder = tempfile::tempdir().unwrap();
        let request = request(folder.path(), 1_000_000_000);
        let plan = Plan::of(&request).unwrap();
        let found = compared(&request, &plan, &[], (&Silent::default(), &Arc::default())).unwrap();
        let [ends] = &found.at_ends[..] else { panic!("{:?}", found.at_ends) };
        let of = |tried: &Tried, policy: &str| {
            tried.shifts.iter().find(|shift| shift.policy == policy.into()).cloned().unwrap()
        };
        let [cheap, dear] = &ends.tried[..] else { panic!("{ends:?}") };
        assert_eq!([cheap.side, dear.side], Side::BOTH);
        assert!(
            [cheap, dear].iter().all(|tried| of(tried, "off").is_inferred && of(tried, "off").time == 1.0)
        );
        assert_eq!(of(cheap, "commit").time, 1.0, "the low end is the profile's value");
        // A TRIM of a second in each commit.
        assert!(of(dear, "commit").time > 2.0, "{dear:?}");
        let trim = ends.trim.unwrap();
        assert_eq!(trim.high_ns - trim.likely_ns, 1_000_000_000 - 1_000);
        let conclusion = found.conclusion.unwrap();
        let sensitivity = conclusion.sensitivity.unwrap();
        assert_eq!((conclusion.decision, sensitivity.holds, sensitivity.runs), (Decision::Keep, true, 2));
        assert!(
            conclusion.head[2].contains("The advice is the same with TRIMs of "),
            "{:?}",
            conclusion.head
        );
    }

    #[test]
    fn a_comparison_that_is_stopped_at_the_ends_has_no_verdict() {
        let folder = tempfile::tempdir().unwrap();
        let request = request(folder.path(), 1_000_000_000);
        let plan = Plan::of(&request).unwrap();
        let mut comparison = compared(&request, &plan, &[], (&Silent::default(), &Arc::default())).unwrap();
        comparison.at_ends.clear();
        let stopped = Arc::new(AtomicBool::new(true));
        try_ends(&request, &plan, &mut comparison, (&Silent::default(), &stopped));
        assert!(comparison.partial && comparison.ended_by == Some(Failure::Interrupted));
        assert_eq!(comparison.conclusion.unwrap().decision, Decision::CannotTell);
    }
}
