//! `advise`: searches the policies that a host can apply, compares the best with the usual ones on fresh runs, and says
//! what to set.

pub mod first;
pub mod hunt;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use trimwise::advise::{self, Cost, Difference, Space};
use trimwise::compare::means::Means;
use trimwise::compare::result::Cell;
use trimwise::compare::statistics::{Sample, compare};
use trimwise::compare::summary::Summary;
use trimwise::failure::{Failure, Mistake, Mistakes, key, set};
use trimwise::policy::{PolicyId, PolicySpec, Trimmer};
use trimwise::profile::Profile;
use trimwise::units::Utilization;
use trimwise::words;

use crate::caller::{Caller, OnInterrupt};
use crate::command_text::CommandText;
use crate::compare::here::StandIn;
use crate::compare::workload::Workload;
use crate::compare::{CompareRequest, Comparison, Settings, file_system, finish, on_model};
use crate::conclusion::{Conclusion, Decision};
use crate::defaults;
use crate::given::Given;
use crate::laboratory::Laboratory;
use crate::whole::{Kind, Whole};
use hunt::{Hunt, Searched};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Advice {
    pub trimwise: Cow<'static, str>,
    /// The seed of the search. The comparison uses the next one.
    pub seed: u64,
    pub settings: Settings,
    /// Whether the user stopped it or a run failed. Then the figures are those of the finished runs.
    pub partial: bool,
    /// Results of older versions have none.
    #[serde(default = "Conclusion::of_older_version")]
    pub conclusion: Conclusion,
    /// Means of applying the policy of the conclusion.
    pub means: Option<Means>,
    /// The cost of other choices, compared with the policy to use.
    pub costs: Vec<Cost>,
    /// The best policy that needs a changed kernel.
    pub changed_kernel: Option<Changed>,
    /// The choice at other fullness.
    pub nearby: Vec<Nearby>,
    /// The next fuller state, in percent, if it was not tried because the workload does not fit then.
    #[serde(default)]
    pub nearby_unfit_percent: Option<u64>,
    pub search: Searched,
    /// The comparison on fresh runs; `None` if it was not reached.
    pub comparison: Option<Comparison>,
    /// Why runs are missing.
    #[serde(skip)]
    pub ended_by: Option<Failure>,
}

/// A policy that no stock host can follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    pub policy: PolicyId,
    /// Median in seconds.
    pub median_s: f64,
    /// Extra time over the policy to use; negative if it is faster.
    pub time: Difference,
}

/// The policy to use where the file system is fuller or emptier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nearby {
    #[serde(rename = "utilization_percent")]
    pub utilization: Utilization,
    /// Median extra time of each other policy over the policy to use, in percent, over pairs of equal repetition.
    pub others: Vec<(PolicyId, f64)>,
}

/// Advises on the workload, drive and host of a request. Anything that needs a kernel runs in the laboratory.
///
/// # Errors
///
/// If the request is wrong, or not even the first run has a result. [`Advice::ended_by`] says why later runs are
/// missing.
pub fn run(
    request: &CompareRequest,
    caller: &dyn Caller,
    laboratory: &dyn Laboratory,
) -> Result<Advice, Failure> {
    let elsewhere = words!["it searches in the model, or with ", key("fs"), " on a kernel"];
    let refused = [
        ("policies", !request.policies.is_empty(), "it chooses the policies itself".into()),
        ("target", request.is_elsewhere(), elsewhere),
        ("devices", request.devices.len() > 1, "it examines one drive".into()),
    ];
    let refused = refused.into_iter().filter(|(_, is_given, _)| *is_given).map(|(field, _, why)| {
        Err(Mistake::on(field).that_is(words!["cannot be used with advise: ", why]).fail())
    });
    Mistakes::of(refused.chain([request.check()]))?;
    let workload = Workload::of(request)?;
    let mut found = StandIn::of(request, &workload)?;
    if !file_system::needs_laboratory(request, found.as_mut(), (caller, laboratory)) {
        return in_model(request, found.as_ref(), caller, &Unchecked);
    }
    if request.check.is_some() {
        // No kernel is needed for requests that the model rejects.
        on_model::Plan::of(&CompareRequest { policies: vec![Given::of(PolicyId::OFF)], ..request.clone() })?;
    }
    let mut advice = laboratory.advise(request, caller)?;
    if let Some(comparison) = &mut advice.comparison
        && let (Some(found), Some(here)) = (found, &mut comparison.here)
    {
        here.found_again(found);
        advice.conclusion.complete_steps(here);
        comparison.complete_steps();
    }
    Ok(advice)
}

/// The kind of the model's runs in an advice.
pub const MODEL: usize = 0;
/// The kind of the runs that check it on a kernel.
pub const KERNEL: usize = 1;

/// The comparison at the end of [`in_model`], and its check on a kernel.
pub trait Compare: Sync {
    /// Returns the kernel's runs for these policies.
    ///
    /// # Errors
    ///
    /// If the check cannot run.
    fn kind(&self, request: &CompareRequest, plan: &on_model::Plan, of: &[Trimmer]) -> Result<Kind, Failure>;

    /// Runs the comparison, except for the known cells, and the check.
    ///
    /// # Errors
    ///
    /// If there is no result.
    fn compare(
        &self,
        request: &CompareRequest,
        plan: &on_model::Plan,
        known: &[Cell],
        whole: &Whole,
    ) -> Result<Comparison, Failure>;
}

/// A comparison without a check.
pub struct Unchecked;

impl Compare for Unchecked {
    fn kind(&self, request: &CompareRequest, _: &on_model::Plan, _: &[Trimmer]) -> Result<Kind, Failure> {
        on_model::refuse_limits(request)?;
        Ok(Kind::of(0, 1))
    }

    fn compare(
        &self,
        request: &CompareRequest,
        plan: &on_model::Plan,
        known: &[Cell],
        whole: &Whole,
    ) -> Result<Comparison, Failure> {
        on_model::compared(request, plan, known, (&whole.part(MODEL), whole.stop()))
    }
}

/// Advises by the model. The comparison at the end may be checked on a kernel.
pub fn in_model(
    request: &CompareRequest,
    found: Option<&StandIn>,
    caller: &dyn Caller,
    compare: &dyn Compare,
) -> Result<Advice, Failure> {
    if request.budget_min.is_some() {
        let expected = words!["it with ", set("fs", "xfs, btrfs or f2fs")];
        return Err(Mistake::on("budget_min")
            .because("the model does not need it")
            .expected(expected)
            .fail());
    }
    let request = file_system::on_model(request, found);
    let mut request = CompareRequest { policies: vec![Given::of(PolicyId::OFF)], ..request };
    let plan = on_model::Plan::of(&request)?;
    if let Some(file) = plan.workload.kind.trace() {
        file.expect_to_trim()?;
    }
    if let [(_, device)] = &plan.devices[..] {
        expect_trim(device)?;
    }
    // The findings of `--here` may change during the runs.
    request.utilization = plan.utilization.map(Given::of);
    plan.workload.tell_notes(caller);
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    advised(&request, plan, (caller, &stop), compare)
}

/// Rejects a drive without TRIM, about which there is nothing to ask.
pub fn expect_trim(device: &Profile) -> Result<(), Failure> {
    if device.config.trim.is_supported() {
        return Ok(());
    }
    let why = "it does not support TRIM, so there is nothing to choose";
    Err(Mistake::of("devices", &device.name).because(why).expected("one that does").fail())
}

fn advised(
    request: &CompareRequest,
    plan: on_model::Plan,
    (caller, stop): (&dyn Caller, &Arc<AtomicBool>),
    compare: &dyn Compare,
) -> Result<Advice, Failure> {
    let mut hunt = Hunt::of(request, plan, (caller, stop), compare)?;
    let found = hunt.found()?;
    let settings = Settings {
        command: command(request, &hunt.plan.settings),
        reps: request.reps,
        judge: found.measure.to_string(),
        baseline: PolicyId::OFF,
        ..hunt.plan.settings.clone()
    };
    let seed = hunt.seed();
    let advice = |conclusion| Advice::new(settings.clone(), seed, found.searched.clone(), conclusion);
    let here = hunt.plan.here.as_ref();
    if let Some(failure) = &found.ended_by {
        let (done, of) = hunt.whole.counts();
        let why = format!("The search was stopped after {done} of at most {of} runs, so nothing is proven.");
        let advice = advice(Conclusion::cannot_tell(here, why, "Let it finish, or ask for fewer --days."));
        // What finished of the usual policies is shown all the same.
        let (compared, settings) = (hunt.compared(&found.shortlist), hunt.plan.settings.clone());
        let ran = (found.usual.clone(), Some(failure.clone()));
        let comparison = finish(&compared, settings, hunt.plan.here.clone(), ran).ok();
        let comparison = comparison.filter(|comparison| !comparison.cells.is_empty());
        return Ok(Advice { partial: true, comparison, ended_by: Some(failure.clone()), ..advice });
    }
    if found.frees_nothing {
        hunt.whole.expect(&[0, 0]);
        return Ok(advice(Conclusion::freed_nothing(here)));
    }
    let compared = hunt.compared(&found.shortlist);
    let plan = on_model::Plan::of(&compared)?;
    let mut comparison = compare.compare(&compared, &plan, &found.usual, &hunt.whole)?;
    let conclusion = comparison.conclusion.clone();
    let mut advice = advice(conclusion.unwrap_or_else(|| Conclusion::freed_nothing(here)));
    (advice.partial, advice.ended_by) = (comparison.partial, comparison.ended_by.take());
    let at_ends: usize = comparison.at_ends.iter().map(|ends| ends.runs).sum();
    advice.search.runs.compared = (comparison.cells.len() + at_ends) as u32;
    advice.add_costs(&comparison, &found.space);
    if !comparison.partial
        && let (Some(policy), Some(bound)) = (advice.spec(), found.changed)
    {
        advice.add_changed(&mut hunt, &comparison, policy, bound);
        if advice.is_decided() && advice.ended_by.is_none() {
            advice.add_nearby(&mut hunt, policy);
        }
    }
    hunt.whole.expect(&[0, 0]);
    advice.comparison = Some(comparison);
    Ok(advice)
}

pub fn command(request: &CompareRequest, settings: &Settings) -> String {
    let mut text = CommandText::new("advise");
    text.option("--workload", request.workload());
    request.devices.iter().for_each(|device| text.option("--device", device));
    request.here.iter().for_each(|path| text.option("--here", path.display()));
    if request.full_size {
        text.argument("--full-size");
    }
    request.fs.iter().for_each(|fs| text.option("--fs", fs.name()));
    settings.utilization.iter().for_each(|percent| text.option("--utilization", percent));
    request.linux.iter().for_each(|linux| text.option("--linux", linux));
    request.memory.iter().for_each(|memory| text.option("--memory", memory));
    settings.days.iter().for_each(|days| text.option("--days", days));
    settings.day.iter().for_each(|day| text.option("--day", day));
    request.judge.iter().for_each(|judge| text.option("--judge", judge));
    request.check.iter().for_each(|target| text.option("--check", target));
    request.budget_min.iter().for_each(|minutes| text.option("--budget", minutes));
    text.option("--reps", request.reps);
    text.option("--seed", request.seed.unwrap_or(defaults::SEED));
    text.into_text()
}

impl Advice {
    /// Restores the parts of an answer read from JSON that follow from the rest.
    ///
    /// # Errors
    ///
    /// See [`Comparison::restored`].
    pub fn restored(mut self) -> Result<Self, String> {
        self.comparison = self.comparison.map(Comparison::restored).transpose()?;
        Ok(self)
    }

    /// An advice with nothing but its conclusion.
    pub fn new(settings: Settings, seed: u64, search: Searched, conclusion: Conclusion) -> Self {
        Self {
            trimwise: trimwise::VERSION.into(),
            seed,
            settings,
            partial: false,
            conclusion,
            means: None,
            costs: Vec::new(),
            changed_kernel: None,
            nearby: Vec::new(),
            nearby_unfit_percent: None,
            search,
            comparison: None,
            ended_by: None,
        }
    }

    /// Returns the policy of the conclusion, if trimwise knows it.
    pub fn spec(&self) -> Option<Trimmer> {
        self.conclusion.policy.as_ref()?.known()
    }

    /// Returns whether the runs show that the choice of a policy matters.
    pub fn is_decided(&self) -> bool {
        self.conclusion.decision == Decision::Keep || self.conclusion.decision.is_change()
    }

    pub fn add_costs(&mut self, comparison: &Comparison, space: &Space) {
        let summary = Summary::of(&comparison.cells);
        let spec = self.spec();
        self.means = space.applicable.iter().find(|c| Some(c.policy) == spec).map(|c| c.means);
        if let (Some(device), Some(policy)) = (summary.devices.first(), &self.conclusion.policy) {
            self.costs = advise::costs(device, policy);
        }
    }

    /// Runs the policy that needs a changed kernel with the comparison's repetitions and seed.
    fn add_changed(&mut self, hunt: &mut Hunt, comparison: &Comparison, policy: Trimmer, changed: Trimmer) {
        let (cells, failure) = hunt.fresh(&[changed]);
        self.search.runs.compared += cells.len() as u32;
        self.note(failure);
        let summary = Summary::of(&comparison.cells);
        let best = summary.devices.first().and_then(|d| d.policy(&policy.into()));
        let seconds = cells.iter().map(hunt::seconds).collect();
        let (Some(best), Some(sample)) = (best, Sample::new(seconds, false)) else { return };
        self.changed_kernel = Some(Changed {
            policy: changed.into(),
            median_s: sample.median(),
            time: Difference::of_times(&compare(&sample, &best.time_s)),
        });
    }

    /// Runs the policy to use and the simple ones at other fullness.
    fn add_nearby(&mut self, hunt: &mut Hunt, policy: Trimmer) {
        let mut policies = vec![policy];
        let plain = [PolicySpec::OFF, PolicySpec::COMMIT].map(Trimmer::Kernel);
        policies.extend(plain.into_iter().filter(|p| *p != policy));
        self.nearby_unfit_percent = hunt.unfit_nearby();
        for (utilization, (cells, failure)) in hunt.nearby(&policies) {
            self.search.runs.nearby += cells.len() as u32;
            let is_stopped = failure.is_some();
            self.note(failure);
            if is_stopped {
                return;
            }
            let of = |policy: &Trimmer| {
                let is_its = |c: &&Cell| c.policy.known() == Some(*policy);
                cells.iter().filter(is_its).map(hunt::seconds).collect::<Vec<f64>>()
            };
            let best = of(&policy);
            let others = policies[1..].iter().filter_map(|other| {
                let ratios: Vec<f64> = of(other).iter().zip(&best).map(|(o, b)| o / b).collect();
                let excess = trimwise::compare::statistics::median(&ratios)? - 1.0;
                Some(((*other).into(), excess * 100.0))
            });
            let others = others.collect();
            self.nearby.push(Nearby { utilization, others });
        }
    }

    fn note(&mut self, failure: Option<Failure>) {
        self.partial |= failure.is_some();
        self.ended_by = self.ended_by.take().or(failure);
    }
}

#[cfg(test)]
mod tests;
