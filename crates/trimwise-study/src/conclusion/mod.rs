//! The conclusion on TRIM for one file system: what a person should do. Every command shows the same one.
//!
//! A conclusion has the host's current policy, and one of four decisions: *keep* it, *change* it, *it does not matter*,
//! or *cannot tell*. The rule:
//!
//! - Only policies that a host can have are chosen: mount options and fstrim of a stock kernel, trimwised, and the
//!   caller's own. Bounds and changed kernels are not.
//! - A policy is compared with the host's current one, or with no TRIM if there is no host.
//! - A difference counts if it is *shown* (the test finds it) and *material*: [`WAITED_S_PER_DAY`] and [`TIME_PERCENT`]
//!   of the time, or [`LIFE_PERCENT`] of a flash life that ends within [`LIFE_YEARS`].
//! - *Change* if a policy is materially better in one respect and materially worse in none. Otherwise, *cannot tell* if
//!   the intervals leave room for such a policy. Otherwise, *keep* if a policy is or may be materially worse. Otherwise
//!   it does not matter.
//! - Runs that are missing or freed nothing decide nothing.
//! - A target below the file system ([`Means::Target`]) that ran and is materially better than the chosen policy has a
//!   line of its own, since a host must first get its module.

pub mod class;
pub mod steps;
mod words;

use std::path::Path;

use serde::{Deserialize, Serialize};
use trimwise::advise::Means;
use trimwise::compare::result::{Measure, Target};
use trimwise::compare::statistics::{Comparison as Test, compare};
use trimwise::compare::summary::{DeviceSummary, PolicySummary, Summary};
use trimwise::compare::why::Endurance;
use trimwise::policy::PolicyId;
use trimwise::trace::Knows;
use trimwise_linux::doctor::{self, Diagnosis};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::today::own_discard;

use crate::command_text::quoted;
use crate::compare::Comparison;
use crate::compare::here::Here;
use steps::Steps;

/// Waiting that a person might notice in a day of use.
pub const WAITED_S_PER_DAY: f64 = 5.0;
/// Share of the time that a person might notice.
pub const TIME_PERCENT: f64 = 2.0;
/// Difference in the life of the flash that counts.
pub const LIFE_PERCENT: f64 = 5.0;
/// Flash that lasts longer than this outlives its host.
pub const LIFE_YEARS: f64 = 15.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Nothing is better than the current policy, and something is, or may be, materially worse.
    Keep,
    Change,
    /// Nothing that a host can do differs materially.
    DoesNotMatter,
    CannotTell,
}

/// The gain of a policy over the host's current one, as a person feels it. Positive is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worth {
    /// Waiting saved in a day, if the work was spread over days.
    pub waiting_saved_s_per_day: Option<f64>,
    pub time_saved_percent: f64,
    /// Ends of the confidence interval; `None` after a single run of each.
    pub time_saved_percent_interval: Option<[f64; 2]>,
    /// Life of the flash for equal work, as a multiple of that under the current policy.
    pub life_times: Option<f64>,
    /// Years that the flash lasts at this rate of work, under the current policy and the other one. Known if the work
    /// was spread over days.
    pub life_years: Option<[f64; 2]>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    pub decision: Decision,
    /// The mount point; `None` without a host.
    pub mount: Option<String>,
    /// The host's current policy; `None` if unknown, or without a host.
    pub today: Option<PolicyId>,
    /// The recommended policy; without a change, the current one.
    pub policy: Option<PolicyId>,
    /// The gain of [`policy`](Self::policy) over the current one; without a change, the cost of the nearest
    /// alternative.
    pub worth: Option<Worth>,
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
            mount: here.map(|here| here.mount().to_owned()),
            policy: today.clone(),
            today,
            worth: None,
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
    let head = words::of_diagnosis(one, class.as_ref());
    Conclusion {
        decision: match class.as_ref().map(|class| class.decision) {
            Some(Decision::Change) | None => Decision::CannotTell,
            Some(kept) => kept,
        },
        mount: Some(one.mount_point.display().to_string()),
        policy: today.clone(),
        today,
        worth: class.and_then(|class| class.worth),
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

struct Compared<'s, 'a> {
    policy: &'s PolicySummary<'a>,
    worth: Worth,
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
#[derive(Clone, Copy)]
struct Frame {
    measure: Measure,
    days: Option<u32>,
    /// The host's work as a multiple of the runs'.
    work: f64,
    /// Whether a longer life alone decides: at a known rate of work, or where no command follows.
    by_life: bool,
}

impl Frame {
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

    fn compared<'s, 'a>(
        self,
        today: &PolicySummary,
        policy: &'s PolicySummary<'a>,
        device: &DeviceSummary,
    ) -> Compared<'s, 'a> {
        // Speeds: the other policy's over the current one's.
        let test = compare(&today.time_s, &policy.time_s);
        let today_s = today.time_s.median();
        let saved = |speed: f64| 1.0 - 1.0 / speed;
        let has_interval = test.p.is_none() || test.interval.confidence > 0.0;
        let interval = has_interval.then(|| [saved(test.interval.low), saved(test.interval.high)]);
        let life_times = match [today, policy].map(Endurance::of) {
            [Some(before), Some(after)] => Some(after.tbw / before.tbw),
            _ => None,
        };
        let years = Endurance::of(today).and_then(|today| today.years);
        let years = years.zip(life_times).map(|(years, times)| [years, years * times]);
        let life = of_life(life_times, years, self.by_life, device.compare_wear(today, policy));
        let life_years = years.filter(|_| self.days.is_some());
        Compared {
            policy,
            time: self.of_time(today_s, &test, saved(test.ratio), interval),
            life,
            worth: Worth {
                waiting_saved_s_per_day: self.seconds_per_day(today_s, saved(test.ratio)),
                time_saved_percent: saved(test.ratio) * 100.0,
                time_saved_percent_interval: interval.map(|ends| ends.map(|end| end * 100.0)),
                life_times,
                life_years,
            },
        }
    }

    fn of_time(self, today_s: f64, test: &Test, saved: f64, interval: Option<[f64; 2]>) -> Material {
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

/// Judges the life of the flash. `times` is its life as a multiple of that under the current policy. `years` has the
/// longest life in years under each. Without days these are years without a pause, and the rate is unknown. Then a
/// longer life alone is no reason to change a host (`by_life`).
fn of_life(times: Option<f64>, years: Option<[f64; 2]>, by_life: bool, wear: Option<Test>) -> Material {
    let Some(times) = times else { return Material::No };
    let is_long = years.is_some_and(|[before, after]| before.min(after) >= LIFE_YEARS);
    if is_long || (times - 1.0).abs() * 100.0 <= LIFE_PERCENT {
        return Material::No;
    }
    let is_shown = wear.is_none_or(|test| test.significant);
    match (is_shown, times > 1.0) {
        (true, true) if by_life => Material::Better,
        (true, false) if by_life => Material::Worse,
        (_, true) => Material::PerhapsBetter,
        (_, false) => Material::PerhapsWorse,
    }
}

pub fn of(comparison: &Comparison) -> Conclusion {
    let summary = Summary::of(&comparison.cells);
    let here = comparison.here.as_ref();
    let today = match here {
        Some(here) => here.today(comparison.settings.days.is_some()),
        None => Some(summary.baseline.clone()),
    };
    let frame = Frame {
        measure: summary.measure,
        days: comparison.settings.days,
        work: here.map_or(1.0, Here::work),
        by_life: here.is_none() || comparison.settings.days.is_some(),
    };
    let unsure = |why| unsure(comparison, today.as_ref(), why);
    if comparison.partial {
        return unsure(words::Unsure::Partial);
    }
    let trace = comparison.cells.first().and_then(|cell| cell.workload.replay());
    if trace.is_some_and(|figures| figures.knows == Knows::Nothing) {
        return Conclusion::cannot_tell(here, Knows::Nothing.serves().to_owned(), words::RECORD_FREES);
    }
    if summary.frees_nothing() {
        return Conclusion::freed_nothing(here);
    }
    if let (Some(here), [device]) = (here.filter(|here| here.passes() == Some(false)), &summary.devices[..]) {
        // The current policy counts as off, since no TRIM reaches the drive.
        let passed = on_device(comparison, device, Some(&PolicyId::OFF), frame);
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
    let mut each = summary.devices.iter().map(|device| on_device(comparison, device, today.as_ref(), frame));
    let Some(first) = each.next() else { return unsure(words::Unsure::NothingElse) };
    let others: Vec<Conclusion> = each.collect();
    let decided = |one: &Conclusion| (one.decision, one.policy.clone());
    if others.iter().all(|other| decided(other) == decided(&first)) {
        return first;
    }
    let devices = summary.devices.iter().map(|device| device.device);
    let found: Vec<String> = devices
        .zip(std::iter::once(&first).chain(&others))
        .map(|(device, one)| match (&one.policy, one.decision) {
            (Some(policy), Decision::Change) => format!("`{policy}` on {device}"),
            _ => format!("keep on {device}"),
        })
        .collect();
    unsure(words::Unsure::DrivesDiffer(found))
}

/// Keeps the current policy, since nothing can be concluded.
fn unsure(comparison: &Comparison, today: Option<&PolicyId>, why: words::Unsure) -> Conclusion {
    of_parts(comparison, Decision::CannotTell, today.cloned(), today.cloned(), &Found::Unsure(why))
}

/// Concludes on one drive, with what a target below the file system would bring.
fn on_device(
    comparison: &Comparison,
    device: &DeviceSummary,
    today: Option<&PolicyId>,
    frame: Frame,
) -> Conclusion {
    let mut decided = decided_on(comparison, device, today, frame);
    if let Some(chosen) = decided.policy.as_ref().and_then(|policy| device.policy(policy)) {
        let targets = device.policies.iter().filter(|p| means(p.policy) == Some(Means::Target));
        let targets: Vec<Compared> = targets.map(|p| frame.compared(chosen, p, device)).collect();
        if let Some(Compared { policy, worth, .. }) = best(&targets) {
            words::add_target(&mut decided.head, policy.policy, frame.measure, worth);
        }
    }
    decided
}

fn decided_on(
    comparison: &Comparison,
    device: &DeviceSummary,
    today: Option<&PolicyId>,
    frame: Frame,
) -> Conclusion {
    let unsure = |why| unsure(comparison, today, why);
    let Some(base) = today.and_then(|today| device.policy(today)) else {
        return unsure(words::Unsure::TodayDidNotRun);
    };
    let is_available = |p: &PolicySummary| !p.bound && is_there(p.policy, comparison);
    if comparison.here.is_none() && !is_available(base) {
        return unsure(words::Unsure::BaselineIsNowhere);
    }
    let is_candidate = |p: &&PolicySummary| p.policy != base.policy && !p.unswept && is_available(p);
    let others: Vec<Compared> =
        device.policies.iter().filter(is_candidate).map(|p| frame.compared(base, p, device)).collect();
    if others.is_empty() {
        return unsure(words::Unsure::NothingElse);
    }
    let kept = Some(base.policy.clone());
    let shown = |one: &Compared| Found::Shown(one.policy.policy.clone(), one.worth);
    if let Some(best) = best(&others) {
        let policy = Some(best.policy.policy.clone());
        return of_parts(comparison, Decision::Change, today.cloned(), policy, &shown(best));
    }
    if let Some(possible) = others.iter().find(|other| other.may_be_better()) {
        return unsure(words::Unsure::Wide(possible.policy.policy.clone(), possible.worth));
    }
    let worse = others.iter().find(|other| other.is_worse());
    match (worse, others.iter().find(|other| other.may_be_worse())) {
        (Some(worse), _) => of_parts(comparison, Decision::Keep, today.cloned(), kept, &shown(worse)),
        (None, Some(possible)) => {
            let found = Found::NotBetter(possible.policy.policy.clone(), possible.worth);
            of_parts(comparison, Decision::Keep, today.cloned(), kept, &found)
        }
        (None, None) => {
            let found = Found::Alike(widest(&others));
            of_parts(comparison, Decision::DoesNotMatter, today.cloned(), kept, &found)
        }
    }
}

/// The policy to change to: the one that saves most time, or most wear if none saves time. Of those that save about the
/// same, one that needs no daemon.
fn best<'c, 's, 'a>(others: &'c [Compared<'s, 'a>]) -> Option<&'c Compared<'s, 'a>> {
    let better: Vec<&Compared> = others.iter().filter(|other| other.is_better()).collect();
    let by_time = better.iter().any(|one| one.time == Material::Better);
    let saved = |one: &Compared| match by_time {
        true => one.worth.time_saved_percent,
        false => one.worth.life_times.map_or(0.0, |times| (times - 1.0) * 100.0),
    };
    let most =
        |of: &mut dyn Iterator<Item = &'c Compared<'s, 'a>>| of.max_by(|a, b| saved(a).total_cmp(&saved(b)));
    let best = most(&mut better.iter().copied())?;
    let indifference = if by_time { TIME_PERCENT } else { LIFE_PERCENT };
    let needs_no_daemon = |one: &&Compared| {
        means(one.policy.policy) == Some(Means::Kernel) && saved(one) > saved(best) - indifference
    };
    most(&mut better.iter().copied().filter(needs_no_daemon)).or(Some(best))
}

enum Found {
    /// The better policy, or the nearest worse one, with the difference.
    Shown(PolicyId, Worth),
    /// A policy that may be worse, where none can be better.
    NotBetter(PolicyId, Worth),
    /// The largest differences of all policies.
    Alike(Worth),
    Unsure(words::Unsure),
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
        life_times: shortest.and_then(|worth| worth.life_times),
        life_years: shortest.and_then(|worth| worth.life_years),
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

/// Means of applying a policy; `None` for the caller's own.
fn means(policy: &PolicyId) -> Option<Means> {
    if *policy == async_discard() {
        return Some(Means::Kernel);
    }
    policy.known().map(Means::of)
}

/// Returns whether a host can have a policy: this file system's own discard, fstrim, trimwised, or one of the caller's.
fn is_there(policy: &PolicyId, comparison: &Comparison) -> bool {
    let is_own_discard = |fs_type: &str| *policy == own_discard(fs_type);
    match &comparison.here {
        // A policy that ran on a kernel exists there.
        Some(here)
            if comparison.settings.target == Target::Model
                && ["ext4", "btrfs", "f2fs"].into_iter().any(is_own_discard) =>
        {
            is_own_discard(here.file_system())
        }
        _ => !matches!(means(policy), Some(Means::Changed | Means::Target)),
    }
}

fn of_parts(
    comparison: &Comparison,
    decision: Decision,
    today: Option<PolicyId>,
    policy: Option<PolicyId>,
    found: &Found,
) -> Conclusion {
    let here = comparison.here.as_ref();
    let steps = match (decision, here, &policy) {
        (Decision::Change, Some(here), Some(policy)) => here.steps_to(policy),
        _ => Steps::default(),
    };
    let worth = match found {
        Found::Shown(_, worth)
        | Found::NotBetter(_, worth)
        | Found::Alike(worth)
        | Found::Unsure(words::Unsure::Wide(_, worth)) => Some(*worth),
        Found::Unsure(_) => None,
    };
    Conclusion {
        decision,
        mount: here.map(|here| here.mount().to_owned()),
        head: words::head(comparison, decision, today.as_ref(), policy.as_ref(), found, &steps),
        today,
        policy,
        worth,
        steps,
    }
}

#[cfg(test)]
mod tests;
