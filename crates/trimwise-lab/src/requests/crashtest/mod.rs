//! Power cuts under policies, in parallel, and what they break.

pub mod on_kernel;
pub mod soak;

use std::ops::RangeInclusive;

use crate::crash::{CUTS_PER_RUN, CrashReport, CrashTest};
use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::policy::{PolicyId, PolicySpec, Trimmer};
use trimwise::units::Bytes;
use trimwise_linux::pool;

use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::check::{JOBS, at_most_one, within};
use trimwise_study::command_text::CommandText;
use trimwise_study::defaults;
use trimwise_study::given::Given;
use trimwise_study::input::{self, named};

/// Memory that one run takes on this computer: a device of 40 MiB and some thousand events.
const MEMORY_OF_RUN: Bytes = Bytes::mib(32);

/// Accepted numbers of power cuts.
pub const CUTS: RangeInclusive<u64> = 1..=10_000_000;
/// Accepted numbers of a run.
pub const RUN: RangeInclusive<u64> = 0..=99_999;
/// Accepted numbers of a cut.
pub const CUT: RangeInclusive<u64> = 0..=9_999_999;

/// A request for power cuts in the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashtestRequest {
    /// The policies; empty means one of every kind.
    #[serde(default)]
    pub policies: Vec<Given<PolicyId>>,
    /// Cuts for each policy; `None` means the default.
    pub cuts: Option<u64>,
    /// The only run to make, counted from 0, with all of its cuts. Cannot be combined with `cuts`.
    pub run: Option<u64>,
    /// Seed of all random numbers.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// Runs at a time, without effect on the result; `None` means one for each core.
    pub jobs: Option<u16>,
}

/// The result; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct CrashTests {
    pub trimwise: &'static str,
    pub seed: u64,
    /// The only run that was made, if the request chose one.
    pub run: Option<u64>,
    /// Number of cuts in a run.
    pub cuts_per_run: u64,
    pub command: String,
    pub policies: Vec<PolicyReport>,
}

/// The result for one policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    pub policy: String,
    /// The command that repeats the run of the first violation.
    pub again: Option<String>,
    /// All runs combined.
    #[serde(flatten)]
    pub report: CrashReport,
}

impl CrashTests {
    /// Returns a failure that names each policy under which a cut broke something.
    pub fn failure(&self) -> Option<Failure> {
        let violated: Vec<&str> =
            self.policies.iter().filter(|p| p.report.violations > 0).map(|p| p.policy.as_str()).collect();
        let what =
            || Failure::run(format!("a power cut breaks the file system under {}", violated.join(", ")));
        (!violated.is_empty()).then(what)
    }
}

/// Cuts the power. Violations are in the [answer](CrashTests::failure).
pub fn run(request: &CrashtestRequest, caller: &dyn Caller) -> Result<CrashTests, Failure> {
    let plan = Plan::of(request)?;
    caller.stop(OnInterrupt::Exit)?;
    let (seed, cuts) = (request.seed, plan.cuts);
    let runs = plan.runs();
    let jobs = request.jobs.map_or_else(|| pool::default_jobs(MEMORY_OF_RUN), usize::from);
    let progress = caller.progress(runs.len(), "runs");
    let reports = pool::run_ordered(jobs, runs.len(), |index| {
        let (policy, run) = runs[index];
        let report = CrashTest { policy: policy.in_force(), seed, cuts }.one_run(run);
        progress.done(index);
        report.map_err(|e| Failure::run(format!("policy {policy}, seed {seed}, run {run}: {e}")))
    });
    progress.finish();
    Ok(plan.tests(request, reports?))
}

/// A request, checked and ready to run.
struct Plan {
    given: Vec<Given<PolicyId>>,
    policies: Vec<(String, Trimmer)>,
    cuts: u64,
    /// The numbers of the runs of each policy.
    numbers: Vec<u64>,
}

impl Plan {
    fn of(request: &CrashtestRequest) -> Result<Self, Failure> {
        Mistakes::of([
            within("cuts", request.cuts, &CUTS),
            within("run", request.run, &RUN),
            within("jobs", request.jobs, &JOBS),
            at_most_one(&[("cuts", request.cuts.is_some()), ("run", request.run.is_some())]),
        ])?;
        let mut given = request.policies.clone();
        if given.is_empty() {
            let all = PolicySpec::examples().into_iter().map(Trimmer::Kernel).chain([Trimmer::DM_TRIM]);
            given.extend(all.map(|policy| Given::of(policy.into())));
        }
        let policies = named(&given, "policies", input::trimmer)?;
        if let Some((name, _)) = policies.iter().find(|(_, policy)| policy.is_hosted()) {
            let why = "the daemon trims free space by range, as every run here does";
            let expected = "a policy of the file system, or dm-trim[:POLICY]";
            return Err(Mistake::of("policies", name).because(why).expected(expected).fail());
        }
        if let Some((name, policy)) = policies.iter().find(|(_, policy)| policy.spec().limit().is_some()) {
            let expected = format!("{}", policy.spec().without_limit());
            let why = "no application limits its deletions here";
            return Err(Mistake::of("policies", name).because(why).expected(expected).fail());
        }
        let (cuts, numbers) = match request.run {
            Some(run) => ((run + 1) * CUTS_PER_RUN, vec![run]),
            None => {
                let cuts = request.cuts.unwrap_or(defaults::CUTS);
                (cuts, (0..cuts.div_ceil(CUTS_PER_RUN)).collect())
            }
        };
        Ok(Self { given, policies, cuts, numbers })
    }

    fn runs(&self) -> Vec<(Trimmer, u64)> {
        let of = |(_, policy): &(String, Trimmer)| {
            let policy = *policy;
            self.numbers.iter().map(move |run| (policy, *run))
        };
        self.policies.iter().flat_map(of).collect()
    }

    /// Combines the reports of all runs.
    fn tests(&self, request: &CrashtestRequest, reports: Vec<CrashReport>) -> CrashTests {
        let mut reports = reports.into_iter();
        let mut command = CommandText::new("crashtest");
        self.given.iter().for_each(|p| command.option("--policy", p));
        match request.run {
            Some(run) => command.option("--run", run),
            None => command.option("--cuts", self.cuts),
        }
        command.option("--seed", request.seed);
        let policies = self.policies.iter().map(|(name, _)| {
            let mut report = CrashReport::default();
            reports.by_ref().take(self.numbers.len()).for_each(|other| report.add(other));
            let again = report.details.first().map(|violation| {
                let mut command = CommandText::new("crashtest");
                command.option("--policy", name);
                command.option("--seed", request.seed);
                command.option("--run", violation.run);
                command.into_text()
            });
            PolicyReport { policy: name.clone(), again, report }
        });
        CrashTests {
            trimwise: trimwise::VERSION,
            seed: request.seed,
            run: request.run,
            cuts_per_run: CUTS_PER_RUN,
            policies: policies.collect(),
            command: command.into_text(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::crash::{Broken, Survival, Violation};

    use super::*;

    /// Invents a report: under `commit`, every second run loses a page.
    fn invented(policy: Trimmer, cuts: u64, run: u64) -> CrashReport {
        let cuts = (cuts - run * CUTS_PER_RUN).min(CUTS_PER_RUN);
        let mut report =
            CrashReport { runs: 1, cuts, files_checked: 3 * cuts, trims: 7, ..CrashReport::default() };
        if policy == Trimmer::Kernel(PolicySpec::COMMIT) && run % 2 == 1 {
            report.violations = 1;
            report.first_violation = Some(12);
            report.details.push(Violation {
                run,
                cut: 11,
                events: 345,
                not_durable: 2,
                survived: Survival::OnlyTrims.to_string(),
                machine: "a small machine".to_string(),
                broken: vec![Broken::Trimmed { path: "d1/f4".to_string(), page: 3, block: 4711 }],
                broken_count: 2,
                history: vec!["written: page 3".to_string(), "trimmed".to_string()],
            });
        }
        report
    }

    fn of(policies: &[&str], cuts: Option<u64>, run: Option<u64>, seed: u64) -> CrashTests {
        let policies = policies.iter().map(|policy| (*policy).into()).collect();
        let request = CrashtestRequest { policies, cuts, run, seed, jobs: None };
        let plan = Plan::of(&request).unwrap();
        let reports = plan.runs().into_iter().map(|(policy, run)| invented(policy, plan.cuts, run));
        plan.tests(&request, reports.collect())
    }

    #[test]
    fn a_violation_fails_the_run_and_says_how_to_repeat_it() {
        let tests = of(&["off", "commit"], Some(350), None, 9);
        let failure = tests.failure().unwrap().to_string();
        assert_eq!(failure, "a power cut breaks the file system under commit", "off is in order");
        let json = serde_json::to_value(tests).unwrap();
        let commit = &json["policies"][1];
        assert_eq!(
            (&commit["cuts"], &commit["runs"], &commit["violations"]),
            (&350.into(), &4.into(), &2.into())
        );
        assert_eq!(commit["first_violation"], 112, "counted over all runs");
        assert_eq!(commit["again"], "trimwise crashtest --policy commit --seed 9 --run 1");
        assert_eq!(commit["details"][0]["broken"][0]["what"], "trimmed");
        assert_eq!(commit["details"][0]["broken"][0]["block"], 4711);
        assert_eq!(json["policies"][0]["again"], serde_json::Value::Null);
        assert_eq!(json["command"], "trimwise crashtest --policy off --policy commit --cuts 350 --seed 9");
    }

    #[test]
    fn one_run_is_made_alone() {
        let tests = of(&["commit"], None, Some(2), 1);
        assert_eq!((tests.failure(), tests.run, tests.policies[0].report.cuts), (None, Some(2), 100));
        let tests = of(&["commit"], None, Some(3), 1);
        assert!(tests.failure().is_some());
        assert_eq!(tests.policies[0].report.details[0].run, 3);
    }
}
