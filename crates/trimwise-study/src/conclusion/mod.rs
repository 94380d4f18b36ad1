//! The conclusion on TRIM for one file system: what a person should do. Every command shows the same one.
//!
//! A conclusion has the host's current policy, or no TRIM if there is no host, and what [`judge`] decides about it. Only
//! policies that a host can have are chosen: mount options and fstrim of a stock kernel, trimwised, and the caller's own.
//! What patched kernels and the bound would add has a line of its own. Runs that are missing or freed nothing decide
//! nothing.

pub mod class;
pub mod depends;
pub mod steps;
mod words;

use std::path::Path;

use serde::{Deserialize, Serialize};
use trimwise::compare::judge::{self, Compared, Found, Frame, Judgement};
pub use trimwise::compare::judge::{Decision, Worth};
use trimwise::compare::means::Means;
use trimwise::compare::result::{Cell, Target, WorkloadFigures};
use trimwise::compare::sensitivity::{self, AtEnds, Sensitivity, Side};
use trimwise::compare::summary::{DeviceSummary, PolicySummary, Summary};
use trimwise::policy::PolicyId;
use trimwise::profile::ranges::Factor;
use trimwise::trace::Knows;
use trimwise_linux::doctor::{self, Aim, Diagnosis};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::today::own_discard;

use crate::command_text::quoted;
use crate::compare::Comparison;
use crate::compare::here::Here;
use steps::Steps;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    pub decision: Decision,
    /// What decides; `None` where that is not known, or nothing was decided.
    #[serde(default)]
    pub purpose: Option<Aim>,
    /// The mount point; `None` without a host.
    pub mount: Option<String>,
    /// The host's current policy; `None` if unknown, or without a host.
    pub today: Option<PolicyId>,
    /// The recommended policy; without a change, the current one.
    pub policy: Option<PolicyId>,
    /// The gain of [`policy`](Self::policy) over the current one; without a change, the cost of the nearest
    /// alternative.
    pub worth: Option<Worth>,
    /// Whether it holds within the ranges of what the drive's profile assumes; `None` if that was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Sensitivity>,
    /// The conclusion in at most five lines of 80 columns.
    pub head: Vec<String>,
    /// Empty unless the decision is a change on a host.
    pub steps: Steps,
}

impl Conclusion {
    /// A conclusion that nothing can be concluded, and what would help.
    pub fn cannot_tell(here: Option<&Here>, why: String, help: &str) -> Self {
        let today = here.and_then(|here| here.today(true));
        let first = match here {
            Some(here) => words::cannot_tell(here),
            None => "Cannot tell yet.".to_owned(),
        };
        Self {
            decision: Decision::CannotTell,
            purpose: None,
            mount: here.map(|here| here.mount().to_owned()),
            policy: today.clone(),
            today,
            worth: None,
            sensitivity: None,
            head: vec![first, why, help.to_owned()],
            steps: Steps::default(),
        }
    }

    /// The conclusion in results of versions that wrote none.
    pub(crate) fn of_older_version() -> Self {
        let why = "These results are of an older version, which drew no conclusion.".to_owned();
        Self::cannot_tell(None, why, "Run it again (the command stands with the results).")
    }

    /// The conclusion of runs in which there was nothing to trim.
    pub fn freed_nothing(here: Option<&Here>) -> Self {
        Self::cannot_tell(here, words::FREED_NOTHING.to_owned(), words::FREE_SOMETHING)
    }
}

/// Concludes from the doctor's findings on one file system, without any run. Runs on a drive of its class do not prove
/// that a change helps here, so the conclusion is never a change and has no commands.
pub fn of_diagnosis(one: &Diagnosis) -> Conclusion {
    let today = one.today.policy(&one.fs_type);
    let class = class::conclusion(one);
    let lost = one.lost();
    let head = words::of_diagnosis(one, class.as_ref(), lost);
    Conclusion {
        decision: match class.as_ref().map(|class| class.decision) {
            _ if lost.is_some() => Decision::Untrimmed,
            Some(Decision::Change) | None => Decision::CannotTell,
            Some(decision) => decision,
        },
        mount: Some(one.mount_point.display().to_string()),
        purpose: words::deciding(one, lost),
        policy: today.clone(),
        today,
        worth: class.as_ref().and_then(|class| class.worth),
        sensitivity: class.and_then(|class| class.sensitivity),
        head,
        steps: Steps::default(),
    }
}

/// Concludes on the file system at a mount point of this host, without any run; `None` if the doctor knows none there.
pub fn of_mount(run: &Path, mount: &Path) -> Option<Conclusion> {
    of_mount_in(&HostRoot::default(), run, mount)
}

fn of_mount_in(root: &HostRoot, run: &Path, mount: &Path) -> Option<Conclusion> {
    diagnosis_in(root, run, mount).as_ref().map(of_diagnosis)
}

/// The doctor's findings on a mount of this host, if it can be asked. `run` holds the daemon's sockets.
pub(crate) fn diagnosis(run: &Path, mount: &Path) -> Option<Diagnosis> {
    diagnosis_in(&HostRoot::default(), run, mount)
}

fn diagnosis_in(root: &HostRoot, run: &Path, mount: &Path) -> Option<Diagnosis> {
    // The last mount covers the others.
    doctor::examine(root, run, Some(mount)).ok()?.file_systems.pop()
}

/// Judges the policies on each device of a comparison, in order, within the ranges that were tried.
/// With each, what it sensitivity on, if the ends of the drive's ranges were tried.
pub(crate) fn judged(comparison: &Comparison, summary: &Summary) -> Vec<(Judgement, Option<Sensitivity>)> {
    let one = |device| within_ranges(comparison, summary, device);
    summary.devices.iter().map(one).collect()
}

fn within_ranges(
    comparison: &Comparison,
    summary: &Summary,
    device: &DeviceSummary,
) -> (Judgement, Option<Sensitivity>) {
    let today = today(comparison, summary);
    let likely = judged_on(comparison, device, today.as_ref(), frame(comparison, summary));
    let ends = comparison.at_ends.iter().find(|ends| ends.device == device.device);
    let sensitivity = ends.and_then(|ends| {
        at_ends(comparison, summary, ends, |cells, judge| {
            sensitivity::sensitivity(cells, &likely, ends, judge)
        })
    });
    let Some(found) = sensitivity.as_ref().filter(|sensitivity| !sensitivity.holds) else {
        return (likely, sensitivity);
    };
    // If other policies are only worse at an end, the current one is right either way.
    let is_kept = found.on.iter().all(|turn| turn.beyond.decision == Decision::Keep);
    let decision = match is_kept && !likely.decision.is_change() {
        true => Decision::Keep,
        false => Decision::CannotTell,
    };
    let judged =
        Judgement { decision, policy: today.clone(), today, found: Found::Depends(Box::new(likely.found)) };
    (judged, sensitivity)
}

/// Has the runs of a device judged as at the ends of its ranges, by the same rule.
fn at_ends<T>(
    comparison: &Comparison,
    summary: &Summary,
    ends: &AtEnds,
    then: impl FnOnce(&[Cell], &sensitivity::Judge) -> T,
) -> T {
    let cells: Vec<Cell> =
        comparison.cells.iter().filter(|cell| cell.device == ends.device).cloned().collect();
    let today = today(comparison, summary);
    let frame = frame(comparison, summary);
    let judge = |device: &DeviceSummary, only: Option<[&PolicyId; 2]>| {
        let is_had = |p: &PolicySummary| {
            comparison.means(p).is_attainable() && only.is_none_or(|only| only.contains(&p.policy))
        };
        judge::judge(device, today.as_ref(), comparison.here.is_some(), is_had, frame)
    };
    then(&cells, &judge)
}

/// The policies to run at the ends of the ranges of a device; `None` if the runs decide nothing.
pub(crate) fn policies_at_ends(comparison: &Comparison, device: &str) -> Option<Vec<PolicyId>> {
    let summary = Summary::of(&comparison.cells);
    let passes = comparison.here.as_ref().is_none_or(|here| here.passes() != Some(false));
    let trace = comparison.cells.first().and_then(|cell| cell.workload.replay());
    let is_blind = trace.is_some_and(|figures| figures.knows == Knows::Nothing);
    if comparison.partial || is_blind || summary.frees_nothing() || !passes {
        return None;
    }
    let device = summary.devices.iter().find(|one| one.device == device)?;
    let judged = within_ranges(comparison, &summary, device).0;
    let is_had = |p: &PolicySummary| comparison.means(p).is_attainable();
    (judged.decision != Decision::CannotTell).then(|| sensitivity::policies(device, &judged, is_had))
}

/// The sides to try next for a device.
pub(crate) fn next_at_ends(comparison: &Comparison, ends: &AtEnds) -> Vec<(Vec<Factor>, Side)> {
    let summary = Summary::of(&comparison.cells);
    let Some(device) = summary.devices.iter().find(|one| one.device == ends.device) else {
        return Vec::new();
    };
    let likely = within_ranges(comparison, &summary, device).0;
    at_ends(comparison, &summary, ends, |cells, judge| sensitivity::next(cells, &likely, ends, judge))
}

fn today(comparison: &Comparison, summary: &Summary) -> Option<PolicyId> {
    match &comparison.here {
        Some(here) => here.today(comparison.settings.days.is_some()),
        None => Some(summary.baseline.clone()),
    }
}

fn frame(comparison: &Comparison, summary: &Summary) -> Frame {
    let here = comparison.here.as_ref();
    Frame {
        measure: summary.measure,
        days: comparison.settings.days,
        work: here.map_or(1.0, Here::work),
        by_life: here.is_none() || comparison.settings.days.is_some(),
        is_lent: here.is_some_and(|here| here.loan().is_some()) || is_thin(comparison),
    }
}

/// True if the runs were on thin storage.
fn is_thin(comparison: &Comparison) -> bool {
    let figures = |cell: &Cell| cell.device_stats.as_ref().is_some_and(|device| device.thin.is_some());
    comparison.cells.iter().any(figures)
}

fn judged_on(
    comparison: &Comparison,
    device: &DeviceSummary,
    today: Option<&PolicyId>,
    frame: Frame,
) -> Judgement {
    let is_had = |p: &PolicySummary| comparison.means(p).is_attainable();
    judge::judge(device, today, comparison.here.is_some(), is_had, frame)
}

pub fn of(comparison: &Comparison) -> Conclusion {
    let summary = Summary::of(&comparison.cells);
    let here = comparison.here.as_ref();
    let today = today(comparison, &summary);
    let frame = frame(comparison, &summary);
    if comparison.partial {
        return unsure(comparison, today, &Unsure::Partial);
    }
    let trace = comparison.cells.first().and_then(|cell| cell.workload.replay());
    if trace.is_some_and(|figures| figures.knows == Knows::Nothing) {
        return Conclusion::cannot_tell(here, Knows::Nothing.serves().to_owned(), words::RECORD_FREES);
    }
    if summary.frees_nothing() {
        // PostMark removes all its files at its end.
        let is_postmark = |cell: &Cell| matches!(cell.workload, WorkloadFigures::Postmark(_));
        return match comparison.cells.iter().all(is_postmark) {
            true => {
                Conclusion::cannot_tell(here, words::REMOVED_TOO_SOON.to_owned(), words::MORE_TRANSACTIONS)
            }
            false => Conclusion::freed_nothing(here),
        };
    }
    if let (Some(here), [device]) = (here.filter(|here| here.passes() == Some(false)), &summary.devices[..]) {
        // The current policy counts as off, since no TRIM reaches the drive.
        let judged = (judged_on(comparison, device, Some(&PolicyId::OFF), frame), None);
        let passed = on_device(comparison, device, &judged, frame);
        let first = format!(
            "Keep {}: TRIM does not reach its drive, however it is sent. `trimwise doctor {}` says why.",
            here.mount(),
            quoted(here.mount())
        );
        let head = [first].into_iter().chain(words::if_it_passed(&passed)).collect();
        return Conclusion {
            decision: Decision::CannotTell,
            head,
            today: today.clone(),
            policy: today,
            ..passed
        };
    }
    let checked =
        comparison.check.as_ref().and_then(|check| Some((check.kernel.as_ref()?, &check.contradictions[..])));
    if let Some((kernel, [first, ..])) = checked {
        let why = format!("Linux {} contradicts the model: {}.", kernel.release, first.text);
        return Conclusion::cannot_tell(
            here,
            why,
            "Trust the kernel: `--target kernel:VERSION:FS` runs everything on it.",
        );
    }
    let judged = judged(comparison, &summary);
    let mut each = summary
        .devices
        .iter()
        .zip(&judged)
        .map(|(device, judged)| on_device(comparison, device, judged, frame));
    let Some(first) = each.next() else { return unsure(comparison, today, &Unsure::NoRuns) };
    let judged: Vec<Judgement> = judged.into_iter().map(|(judged, _)| judged).collect();
    let [one, others @ ..] = &judged[..] else { return first };
    if others.is_empty() {
        return first;
    }
    let agrees = |other: &Judgement| {
        let is_same =
            other.decision == one.decision || other.decision.is_change() && one.decision.is_change();
        is_same && other.policy == one.policy
    };
    if others.iter().all(agrees) {
        // The figures of one drive are not those of the others.
        let head = words::on_all(first.head, judged.len());
        return Conclusion { head, worth: None, sensitivity: None, ..first };
    }
    let found: Vec<String> = summary
        .devices
        .iter()
        .zip(&judged)
        .map(|(device, one)| match (&one.policy, one.decision) {
            (Some(policy), decision) if decision.is_change() => format!("`{policy}` on {}", device.device),
            (_, Decision::CannotTell) => format!("open on {}", device.device),
            _ => format!("keep on {}", device.device),
        })
        .collect();
    unsure(comparison, today, &Unsure::DrivesDiffer(found))
}

/// Why nothing can be concluded from all of the runs, whatever each device shows.
enum Unsure {
    Partial,
    NoRuns,
    /// The best policy on each drive.
    DrivesDiffer(Vec<String>),
}

/// Keeps the current policy, since nothing can be concluded.
fn unsure(comparison: &Comparison, today: Option<PolicyId>, why: &Unsure) -> Conclusion {
    let here = comparison.here.as_ref();
    Conclusion {
        decision: Decision::CannotTell,
        purpose: None,
        mount: here.map(|here| here.mount().to_owned()),
        policy: today.clone(),
        today,
        worth: None,
        sensitivity: None,
        head: words::unsure(comparison, why),
        steps: Steps::default(),
    }
}

/// Concludes on one drive, with what other kernels and the bound would bring.
fn on_device(
    comparison: &Comparison,
    device: &DeviceSummary,
    (judged, sensitivity): &(Judgement, Option<Sensitivity>),
    frame: Frame,
) -> Conclusion {
    let here = comparison.here.as_ref();
    let Judgement { decision, today, policy, found } = judged.clone();
    let steps = match (here, &policy) {
        (Some(here), Some(policy)) if decision.is_change() => here.steps_to(policy),
        _ => Steps::default(),
    };
    let mut head = words::head(comparison, judged, sensitivity.as_ref(), &steps);
    let chosen = policy.as_ref().filter(|_| decision != Decision::CannotTell);
    if let Some(chosen) = chosen.and_then(|policy| device.policy(policy)) {
        let beyond = device.policies.iter().filter(|p| !comparison.means(p).is_attainable() && !p.unswept);
        let (bounds, patched): (Vec<Compared>, Vec<_>) = beyond
            .map(|p| frame.compared(chosen, p))
            .partition(|one| matches!(one.policy.means, Means::Bound | Means::Elsewhere | Means::OtherLinux));
        if let Some(Compared { policy, worth, .. }) = judge::best(&patched).or_else(|| judge::best(&bounds)) {
            words::add_beyond(&mut head, (policy.policy, policy.means), frame.measure, worth);
        }
    }
    let is_lent = decision == Decision::Untrimmed && frame.is_lent;
    let aim = here.and_then(Here::loan).map(|(aim, _)| aim).or(is_thin(comparison).then_some(Aim::Space));
    Conclusion {
        decision,
        purpose: aim.filter(|_| is_lent),
        mount: here.map(|here| here.mount().to_owned()),
        today,
        policy,
        worth: found.worth().copied(),
        sensitivity: sensitivity.clone(),
        head,
        steps,
    }
}

impl Conclusion {
    /// Adds the actions of the steps, if they are for this host.
    pub(crate) fn complete_steps(&mut self, here: &Here) {
        let of_host = self.policy.as_ref().map(|policy| here.steps_to(policy));
        if let Some(steps) = of_host.filter(|steps| steps.commands == self.steps.commands) {
            self.steps = steps;
        }
    }
}

/// btrfs's `discard=async`, as runs on a kernel name it.
pub fn async_discard() -> PolicyId {
    PolicyId::Named("async".into())
}

impl Comparison {
    /// What the host needs in order to have a policy: its file system has no discard but its own.
    pub fn means(&self, policy: &PolicySummary) -> Means {
        let is_own_discard = |fs_type: &str| *policy.policy == own_discard(fs_type);
        match &self.here {
            // A policy that ran on a kernel exists there.
            Some(here)
                if self.settings.target == Target::Model
                    && ["ext4", "btrfs", "f2fs"].into_iter().any(is_own_discard) =>
            {
                if is_own_discard(here.file_system()) { Means::Stock } else { Means::Elsewhere }
            }
            _ => policy.means,
        }
    }
}

#[cfg(test)]
mod tests;
