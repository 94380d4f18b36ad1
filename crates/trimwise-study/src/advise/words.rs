//! What an advice says.

use trimwise::advise::{Cost, Difference, NEGLIGIBLE_PERCENT};
use trimwise::compare::result::Measure;
use trimwise::numbers::change;

use super::hunt::{Searched, Tried};

/// The advice if nothing makes a difference.
pub fn no_difference(searched: &Searched, measure: Measure, reps: u32) -> String {
    let what = match measure {
        Measure::Total => "duration".to_owned(),
        measure => measure.to_string(),
    };
    format!(
        "It does not matter: of {} candidates, the best ones and the usual ones do not differ from `off` by more than \
         {} % in {what} or {} % in wear, by the intervals of {reps} fresh runs of each. Keep what you have.",
        searched.runs.candidates, NEGLIGIBLE_PERCENT[0], NEGLIGIBLE_PERCENT[1]
    )
}

/// The advice if the runs can show neither a difference nor that there is none. `costs` are those compared with the
/// baseline.
pub fn not_told(costs: &[Cost], reps: u32) -> String {
    let widest = |of: &dyn Fn(&Cost) -> Option<Difference>| {
        let known =
            costs.iter().filter_map(of).filter(|d| d.low_percent.is_finite() && d.high_percent.is_finite());
        let (low, high) = known
            .fold((0.0_f64, 0.0_f64), |(low, high), d| (low.min(d.low_percent), high.max(d.high_percent)));
        format!("{} to {}", change(low / 100.0), change(high / 100.0))
    };
    let differ = match reps {
        1 => "one run of each has no interval".to_owned(),
        _ => format!(
            "by their intervals the others may differ from `off` by {} in time and {} in wear",
            widest(&|cost| Some(cost.time)),
            widest(&|cost| cost.wear)
        ),
    };
    format!(
        "No advice: {} of each cannot tell the best policies from the usual ones: {differ}. More (`--reps`) or longer runs \
         tell more; until then keep what you have.",
        if reps == 1 { "one fresh run".to_owned() } else { format!("{reps} fresh runs") },
    )
}

/// What there is when the search was stopped.
pub fn when_stopped(searched: &Searched) -> String {
    let best = searched.candidates.iter().filter(|tried| tried.same_as.is_none() && tried.reps > 0);
    let best = best.min_by(|a, b| {
        let key = |t: &Tried| t.excess_percent.unwrap_or(f64::INFINITY);
        key(a).total_cmp(&key(b))
    });
    let so_far = match best.filter(|tried| tried.excess_percent.is_some()) {
        Some(best) => format!(" The best so far is `{}`, which proves nothing.", best.policy),
        None => String::new(),
    };
    format!(
        "No advice: stopped after {} of about {} runs, before the final comparison.{so_far}",
        searched.runs.searched,
        searched.runs.exhaustive / 6
    )
}
