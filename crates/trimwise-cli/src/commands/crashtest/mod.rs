//! `trimwise crashtest`: power cuts under policies, in parallel, and what they break.

pub mod arguments;
mod on_kernel;
mod soak;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise::policy::PolicySpec;
use trimwise::units::Bytes;
use trimwise_lab::crash::{CUTS_PER_RUN, CrashReport, CrashTest};
use trimwise_lab::failure::Failure;
use trimwise_lab::pool;

use crate::arguments::GUEST_LIMITS;
use crate::commands::crashtest::arguments::CrashtestArguments;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;
use trimwise_study::defaults;
use trimwise_study::input::{self, named};

/// Memory of this computer that one run takes: a device of 40 MiB and some thousand events.
const MEMORY_OF_RUN: Bytes = Bytes::mib(32);

/// What `--json` writes; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct CrashTests {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The seed.
    pub seed: u64,
    /// The only run that was made, if one was chosen.
    pub run: Option<u64>,
    /// Cuts of one run.
    pub cuts_per_run: u64,
    /// The command that repeats this.
    pub command: String,
    /// Each policy.
    pub policies: Vec<PolicyReport>,
}

/// What was found under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// The policy.
    pub policy: String,
    /// The command that repeats the run of the first violation.
    pub again: Option<String>,
    /// All runs together.
    #[serde(flatten)]
    pub report: CrashReport,
}

/// Runs the command and returns what to print; a violation is a failed run (exit code 1).
pub fn run(
    arguments: &CrashtestArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    if let Some(target) = &arguments.target {
        return on_kernel::run(arguments, target, on_signal);
    }
    if arguments.limits.are_given() {
        return Err(Failure::usage(format!("{GUEST_LIMITS}; expected them with --target")));
    }
    let destinations = Destinations::check_json(&arguments.json)?;
    let plan = Plan::of(arguments)?;
    on_signal(OnInterrupt::Exit)?;
    let (seed, cuts) = (arguments.seed, plan.cuts);
    let runs = plan.runs();
    let jobs = arguments.jobs.map_or_else(|| pool::default_jobs(MEMORY_OF_RUN), usize::from);
    let progress = Progress::new(runs.len());
    let reports = pool::run_ordered(jobs, runs.len(), |index| {
        let (policy, run) = runs[index];
        let report = CrashTest { policy: policy.into(), seed, cuts }.one_run(run);
        progress.done(index);
        report.map_err(|e| Failure::run(format!("policy {policy}, seed {seed}, run {run}: {e}")))
    });
    progress.finish();
    plan.deliver(arguments, &destinations, reports?)
}

/// What to run.
struct Plan {
    /// The policies as given.
    given: Vec<String>,
    policies: Vec<(String, PolicySpec)>,
    cuts: u64,
    /// The numbers of each policy's runs.
    numbers: Vec<u64>,
}

impl Plan {
    fn of(arguments: &CrashtestArguments) -> Result<Self, Failure> {
        let mut given = arguments.policies.clone();
        if given.is_empty() {
            given.extend(PolicySpec::examples().iter().map(ToString::to_string));
        }
        let policies = named(&given, "--policy", input::policy)?;
        let (cuts, numbers) = match arguments.run {
            Some(run) => ((run + 1) * CUTS_PER_RUN, vec![run]),
            None => {
                let cuts = arguments.cuts.unwrap_or(defaults::CUTS);
                (cuts, (0..cuts.div_ceil(CUTS_PER_RUN)).collect())
            }
        };
        Ok(Self { given, policies, cuts, numbers })
    }

    fn runs(&self) -> Vec<(PolicySpec, u64)> {
        let of = |(_, policy): &(String, PolicySpec)| {
            let policy = *policy;
            self.numbers.iter().map(move |run| (policy, *run))
        };
        self.policies.iter().flat_map(of).collect()
    }

    /// Delivers the reports of all runs.
    fn deliver(
        &self,
        arguments: &CrashtestArguments,
        destinations: &Destinations,
        reports: Vec<CrashReport>,
    ) -> Result<String, Failure> {
        let mut reports = reports.into_iter();
        let mut command = CommandText::new("crashtest");
        self.given.iter().for_each(|p| command.option("--policy", p));
        match arguments.run {
            Some(run) => command.option("--run", run),
            None => command.option("--cuts", self.cuts),
        }
        command.option("--seed", arguments.seed);
        let policies = self.policies.iter().map(|(name, _)| {
            let mut report = CrashReport::default();
            reports.by_ref().take(self.numbers.len()).for_each(|other| report.add(other));
            let again = report.details.first().map(|violation| {
                let mut command = CommandText::new("crashtest");
                command.option("--policy", name);
                command.option("--seed", arguments.seed);
                command.option("--run", violation.run);
                command.into_text()
            });
            PolicyReport { policy: name.clone(), again, report }
        });
        let tests = CrashTests {
            trimwise: trimwise::VERSION,
            seed: arguments.seed,
            run: arguments.run,
            cuts_per_run: CUTS_PER_RUN,
            policies: policies.collect(),
            command: command.into_text(),
        };
        let text = destinations.deliver(&tests, || table::render(&tests))?;
        let violated: Vec<&str> =
            tests.policies.iter().filter(|p| p.report.violations > 0).map(|p| p.policy.as_str()).collect();
        if violated.is_empty() {
            return Ok(text);
        }
        output::print(&text)?;
        Err(Failure::run(format!("a power cut breaks the file system under {}", violated.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use trimwise_lab::crash::{Broken, Survival, Violation};

    use super::*;
    use crate::commands::{Command, CommandLine};

    /// The policy `commit` loses a page in every second run.
    fn invented(policy: PolicySpec, cuts: u64, run: u64) -> CrashReport {
        let cuts = (cuts - run * CUTS_PER_RUN).min(CUTS_PER_RUN);
        let mut report =
            CrashReport { runs: 1, cuts, files_checked: 3 * cuts, trims: 7, ..CrashReport::default() };
        if policy == PolicySpec::COMMIT && run % 2 == 1 {
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

    fn json_of(line: &str) -> (Result<String, Failure>, serde_json::Value) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let words = ["trimwise", "crashtest"].into_iter().chain(line.split_whitespace());
        let Command::Crashtest(mut arguments) = CommandLine::try_parse_from(words).unwrap().command else {
            panic!("not crashtest")
        };
        arguments.json.json = Some(path.clone());
        let plan = Plan::of(&arguments).unwrap();
        let reports = plan.runs().into_iter().map(|(policy, run)| invented(policy, plan.cuts, run));
        let destinations = Destinations::check_json(&arguments.json).unwrap();
        let result = plan.deliver(&arguments, &destinations, reports.collect());
        (result, serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    #[test]
    fn a_violation_fails_the_run_and_says_how_to_repeat_it() {
        let (result, json) = json_of("--policy off commit --cuts 350 --seed 9");
        assert_eq!(
            result,
            Err(Failure::Run("a power cut breaks the file system under commit".to_string())),
            "off is in order"
        );
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
        let (result, json) = json_of("--policy commit --run 2");
        assert!(result.unwrap().contains("no violation"));
        assert_eq!((&json["run"], &json["policies"][0]["cuts"]), (&2.into(), &100.into()));
        let (result, json) = json_of("--policy commit --run 3");
        assert!(result.is_err());
        assert_eq!(json["policies"][0]["details"][0]["run"], 3);
    }
}
