//! The first answer of an advice that takes long: the conclusion on the usual policies, marked as such, before the search
//! refines it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use trimwise::compare::means::Means;
use trimwise::compare::result::Cell;
use trimwise::numbers;

use crate::caller::Caller as _;
use crate::compare::Comparison;
use crate::conclusion::Decision;
use crate::whole::{Whole, about};

/// Time of the command by which the first answer is given, if the runs it needs have finished by then.
const LATEST: Duration = Duration::from_secs(170);
/// Minimum time left for which an answer in between is worth giving.
const WORTH_REFINING: Duration = Duration::from_secs(30);

/// Collects runs that come repetition by repetition, and tells the first answer in time. It waits for more repetitions
/// as long as they are in time too.
pub struct First<'a> {
    whole: &'a Whole<'a>,
    policies: usize,
    /// Number of policies, the first ones, without which there is no answer: the host's current one and the baseline.
    needed: usize,
    compare: &'a (dyn Fn(Vec<Cell>) -> Option<Comparison> + Sync),
    so_far: Mutex<SoFar>,
}

struct SoFar {
    /// By repetition, then by policy.
    cells: Vec<Option<Cell>>,
    /// Number of runs behind the last answer.
    told: usize,
}

impl<'a> First<'a> {
    /// `compare` compares some of the runs.
    pub fn of(
        whole: &'a Whole<'a>,
        (policies, needed, reps): (usize, usize, u32),
        compare: &'a (dyn Fn(Vec<Cell>) -> Option<Comparison> + Sync),
    ) -> Self {
        let so_far = SoFar { cells: vec![None; policies * reps as usize], told: 0 };
        Self { whole, policies: policies.max(1), needed, compare, so_far: Mutex::new(so_far) }
    }

    /// Adds a run, and tells the answer if it is due.
    pub fn add(&self, index: usize, cell: &Cell) {
        let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = so_far.cells.get_mut(index) else { return };
        *place = Some(cell.clone());
        let reps =
            so_far.cells.chunks(self.policies).take_while(|rep| rep.iter().all(Option::is_some)).count();
        let whole_reps = reps * self.policies;
        let is_last = whole_reps == so_far.cells.len();
        // Runs without which there is no better answer.
        let finished = so_far.cells.iter().flatten().count();
        let more = if reps == 0 { 1 } else { (whole_reps + self.policies).saturating_sub(finished).max(1) };
        if (so_far.told > 0 && !is_last) || !self.is_due(more, is_last) {
            return;
        }
        let until = if reps == 0 { self.policies } else { whole_reps };
        let of_needed = so_far.cells.iter().take(self.needed).flatten().count();
        let mut cells: Vec<Cell> = so_far.cells.iter().take(until).flatten().cloned().collect();
        if of_needed < self.needed || cells.len() <= self.needed || cells.len() <= so_far.told {
            return;
        }
        let label = if so_far.told == 0 { "First answer" } else { "Better answer" };
        so_far.told = cells.len();
        drop(so_far);
        let order: Vec<_> = cells.iter().take(self.policies).map(|cell| cell.policy.clone()).collect();
        cells.sort_by_key(|cell| (order.iter().position(|policy| *policy == cell.policy), cell.rep));
        if let Some(text) = (self.compare)(cells).and_then(|comparison| in_words(&comparison)) {
            let (done, all) = self.whole.counts();
            let left = self
                .whole
                .left_to_tell()
                .map_or(String::new(), |left| format!(", about {} left", about(left)));
            let text =
                format!("{label}, after {done} of at most {all} runs: {text} It is being refined{left}.");
            self.whole.part(0).note(&text);
        }
    }

    /// Returns whether the next answer, after some more runs, would be late, and the final one is not near.
    fn is_due(&self, more: usize, is_last: bool) -> bool {
        let (done, _) = self.whole.counts();
        let next = self.whole.elapsed().mul_f64((done + more) as f64 / done.max(1) as f64);
        let is_near = self.whole.left().is_some_and(|left| left < WORTH_REFINING);
        (is_last || next > LATEST) && !is_near
    }
}

/// Puts the conclusion into a sentence or two; with the medians if there is none yet.
fn in_words(comparison: &Comparison) -> Option<String> {
    let conclusion = comparison.conclusion.as_ref()?;
    let mut text = conclusion.head.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(" ");
    if conclusion.decision == Decision::CannotTell {
        let rows = comparison.summary.iter().filter(|row| row.means.is_some_and(Means::is_attainable));
        let medians: Vec<String> =
            rows.map(|row| format!("`{}` {}", row.policy, numbers::time(row.median_s))).collect();
        text += &format!(" The {} so far: {}.", comparison.settings.judge, medians.join(", "));
    }
    Some(text)
}
