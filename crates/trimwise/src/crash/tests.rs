//! The checker finds nothing where nothing is wrong, and every wrong host.

use super::{CrashReport, CrashTest, CUTS_PER_RUN};
use crate::fs::sabotage::Sabotage;
use crate::policy::PolicySpec;

/// Runs until something is found, at most `cuts` cuts.
fn sabotaged(policy: PolicySpec, how: Sabotage, cuts: u64, seed: u64) -> CrashReport {
    let test = CrashTest { policy, seed, cuts };
    let mut report = CrashReport::default();
    for run in 0..cuts.div_ceil(CUTS_PER_RUN) {
        report.add(test.sabotaged_run(run, Some(how)).unwrap());
        if report.violations > 0 {
            break;
        }
    }
    report
}

#[test]
fn measure() {
    for how in [
        Sabotage::TrimBeforeCommit,
        Sabotage::ReuseWithoutWithdrawal,
        Sabotage::TrimAfterLaterWrite,
        Sabotage::NoFlushBeforeCommitBlock,
        Sabotage::CommitBeforeData,
        Sabotage::TailBeforeFlush,
        Sabotage::NoRevoke,
        Sabotage::CommitBetweenHandles,
        Sabotage::NoFlushInFsync,
    ] {
        let firsts: Vec<Option<u64>> = (1..=4).map(|seed| sabotaged(PolicySpec::OFF, how, 5_000, seed).first_violation).collect();
        let report = sabotaged(PolicySpec::OFF, how, 10_000, 1);
        let text: String = report.details.iter().take(1).map(ToString::to_string).collect();
        println!("{how:?}: {firsts:?}\n{text}");
    }
}

#[test]
fn no_policy_loses_anything() {
    for policy in PolicySpec::examples() {
        let report = CrashTest { policy, seed: 1, cuts: 10_000 }.run().unwrap();
        let text: String = report.details.iter().map(ToString::to_string).collect();
        println!("{policy}: {} events {} not durable {} files {} trims {} units {}", report.violations, report.events, report.not_durable, report.files_checked, report.trims, report.trimmed_units);
        assert_eq!(report.violations, 0, "{policy}:\n{text}");
    }
}
