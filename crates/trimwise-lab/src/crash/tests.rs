//! The checker finds nothing if nothing is wrong, and finds every faulty host.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use trimwise::block::TargetFault;
use trimwise::fs::Ext4;
use trimwise::fs::sabotage::Sabotage;
use trimwise::policy::{Policy, PolicySpec, Trimmer};

use super::workload::Machine;
use super::{Broken, CUTS_PER_RUN, CrashError, CrashReport, CrashTest, seed_of};

/// Makes a run of `test` on a host with this fault.
fn sabotaged_run(test: &CrashTest, run: u64, how: Sabotage) -> Result<CrashReport, CrashError> {
    test.run_with(run, Rc::new(move |fs| fs.sabotage(Some(how))))
}

/// Whether to run everything that the quick tier samples (`just full`).
fn is_full() -> bool {
    std::env::var_os("CRASH").is_some_and(|value| value == "full")
}

fn details(report: &CrashReport) -> String {
    report.details.iter().map(ToString::to_string).collect()
}

/// A discard of the file system is complete before the drive has it, and its blocks are written again meanwhile.
#[test]
fn no_target_below_loses_anything() {
    for policy in
        ["dm-trim", "dm-trim:quiet:1ms:1s", "dm-trim:lazy:4:4+reuse", "dm-trim:serial", "dm-trim:batch:10s"]
    {
        let policy: Trimmer = policy.parse().unwrap();
        let cuts = if is_full() { 2_000 } else { 500 };
        let report = CrashTest { policy: policy.in_force(), seed: 1, cuts }.run().unwrap();
        assert_eq!(report.violations, 0, "{policy}:\n{}", details(&report));
        assert!(report.files_checked > 5 * report.cuts && report.trims > 50, "{policy}: {report:?}");
    }
}

/// Tight runs of each pair of policies: 3,000 cuts.
const TIGHT_RUNS: usize = 30;

/// Every policy of the file system, alone and over a target with every policy; first those that have a name.
fn pairs() -> Vec<Policy> {
    let alone = PolicySpec::examples();
    let below = || alone.iter().copied().filter(|spec| spec.is_usable());
    let over = |of_fs| below().map(move |target| Policy::over(of_fs, target));
    let others = alone.iter().copied().filter(|&of_fs| of_fs != PolicySpec::COMMIT);
    let named = alone.iter().copied().map(Policy::from).chain(over(PolicySpec::COMMIT));
    named.chain(others.flat_map(over)).collect()
}

/// Freed blocks are soon written again, and writers wait for them. In full, each pair of policies has 3,000 cuts; in the
/// quick tier it has 100, in one of the same runs.
#[test]
fn no_pair_of_policies_loses_anything_where_space_is_tight() {
    let runs = if is_full() { TIGHT_RUNS } else { 1 };
    let pairs = pairs();
    let tight: Vec<u64> =
        (0..).filter(|&run| Machine::of_seed(seed_of(1, run)).tight).take(TIGHT_RUNS).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(pair) = pairs.get(at) else { return };
            let test = CrashTest { policy: pair.clone(), seed: 1, cuts: u64::MAX };
            for &run in tight.iter().cycle().skip(at).take(runs) {
                let report = test.one_run(run).unwrap_or_else(|error| panic!("{pair}, run {run}: {error}"));
                assert_eq!(report.violations, 0, "{pair}:\n{}", details(&report));
                assert_eq!(report.cuts, CUTS_PER_RUN, "{pair}");
            }
            println!("{pair}: {runs} runs");
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
    });
}

/// Samples each kind of policy, and checks that it was really tested: TRIMs besides those of the workload's own FITRIM,
/// files that had to be whole, commands that could get lost.
#[test]
fn no_policy_loses_anything() {
    let mut trims_of_workload = 0;
    for policy in PolicySpec::examples() {
        let cuts = if is_full() { 2_000 } else { 500 };
        let report = CrashTest { policy: policy.into(), seed: 1, cuts }.run().unwrap();
        assert_eq!(report.violations, 0, "{policy}:\n{}", details(&report));
        assert_eq!((report.runs, report.cuts), (cuts / CUTS_PER_RUN, cuts));
        assert!(report.files_checked > 5 * report.cuts, "{policy}: {report:?}");
        assert!(report.not_durable > 5 * report.cuts, "{policy}: {report:?}");
        if policy == PolicySpec::OFF {
            trims_of_workload = report.trims;
        } else {
            assert!(report.trims > trims_of_workload, "{policy}: {report:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..Default::default()
    })]
    /// Any workload, any policy, any cut.
    #[test]
    fn no_cut_loses_anything(policy in 0..PolicySpec::examples().len(), seed in any::<u64>()) {
        let test = CrashTest { policy: PolicySpec::examples()[policy].into(), seed, cuts: CUTS_PER_RUN };
        let report = test.one_run(0).unwrap();
        prop_assert_eq!(report.violations, 0, "{}:\n{}", test.policy, details(&report));
    }
}

/// A writer without a free block waited, without an end or an event, for what was pending in the target, which withholds
/// no blocks.
#[test]
fn regression_a_writer_does_not_wait_for_what_is_pending_in_a_target() {
    for (seed, run) in [(1, 26), (2, 4), (3, 1)] {
        let test = CrashTest { policy: Trimmer::DM_TRIM.in_force(), seed, cuts: 3_000 };
        let report = test.one_run(run).unwrap_or_else(|error| panic!("seed {seed}, run {run}: {error}"));
        assert_eq!(report.violations, 0, "{}", details(&report));
    }
}

/// A direct write into a file that was being truncated went to blocks that were about to be freed, and did not lengthen it.
#[test]
fn regression_a_direct_write_into_a_file_that_is_truncated_lengthens_it() {
    let test = CrashTest { policy: PolicySpec::OFF.into(), seed: 3, cuts: CUTS_PER_RUN };
    for run in [21, 107] {
        let report = test.one_run(run).unwrap();
        assert_eq!(report.violations, 0, "{}", details(&report));
    }
}

/// Returns the report up to the first run in which a faulty host is caught, within `cuts` cuts.
fn found_within(how: Sabotage, cuts: u64, seed: u64) -> CrashReport {
    let test = CrashTest { policy: PolicySpec::OFF.into(), seed, cuts };
    caught(&test, &|run| sabotaged_run(&test, run, how))
}

fn caught(test: &CrashTest, run: &dyn Fn(u64) -> Result<CrashReport, CrashError>) -> CrashReport {
    let mut report = CrashReport::default();
    for number in 0..test.runs() {
        report.add(run(number).unwrap());
        if report.violations > 0 {
            return report;
        }
    }
    panic!("not found within {} cuts, seed {}", test.cuts, test.seed);
}

#[test]
fn targets_that_trim_what_is_written_are_found() {
    for (fault, policy) in [
        (TargetFault::KeepsWhatIsWritten, "dm-trim:quiet:1ms:1s"),
        (TargetFault::OvertakesDiscards, "dm-trim:lazy:4:4+reuse"),
    ] {
        let policy: Trimmer = policy.parse().unwrap();
        let test = CrashTest { policy: policy.in_force(), seed: 1, cuts: 20_000 };
        let after_mount = Rc::new(move |fs: &Ext4| fs.queue().break_target(Some(fault)));
        let report = caught(&test, &|run| test.run_with(run, after_mount.clone()));
        println!("{fault:?}: at cut {:?}", report.first_violation);
        let broken = report.details.iter().flat_map(|violation| &violation.broken);
        assert!(broken.clone().any(|b| matches!(b, Broken::Trimmed { .. })), "{}", details(&report));
    }
}

/// Checks that a fault is found with three seeds. One that takes thousands of cuts to show gives the seed that is enough
/// unless everything runs.
fn is_found(how: Sabotage, rare: Option<u64>, as_what: fn(&Broken) -> bool) {
    let cuts = if rare.is_some() { 50_000 } else { 5_000 };
    for seed in [1, 2, 3].into_iter().filter(|&seed| is_full() || rare.is_none_or(|only| only == seed)) {
        let report = found_within(how, cuts, seed);
        println!("{how:?}, seed {seed}: at cut {:?}", report.first_violation);
        let all = report.details.iter().flat_map(|violation| &violation.broken);
        assert!(all.clone().any(as_what), "{how:?}:\n{}", details(&report));
    }
}

#[test]
fn a_trim_before_the_commit_is_durable_is_found() {
    is_found(Sabotage::TrimBeforeCommit, None, |b| matches!(b, Broken::Trimmed { .. }));
}

#[test]
fn reuse_that_leaves_the_extent_in_the_queue_is_found() {
    is_found(Sabotage::ReuseWithoutWithdrawal, None, |b| matches!(b, Broken::Trimmed { .. }));
}

#[test]
fn a_trim_after_a_later_write_was_acknowledged_is_found() {
    is_found(Sabotage::TrimAfterLaterWrite, None, |b| matches!(b, Broken::Trimmed { .. }));
}

/// The reason for withholding blocks: a write that is in the device together with a TRIM may lose.
#[test]
fn a_block_that_is_handed_out_while_it_is_in_a_trim_is_found() {
    for how in [Sabotage::ReuseDuringTrim, Sabotage::ReuseDuringFitrim] {
        is_found(how, None, |b| matches!(b, Broken::Trimmed { .. }));
    }
}

#[test]
fn a_host_that_livelocks_is_reported() {
    let test = CrashTest { policy: PolicySpec::OFF.into(), seed: 1, cuts: 1_000 };
    let error = sabotaged_run(&test, 0, Sabotage::Livelock).unwrap_err();
    let Some(at) = error.to_string().find("came to a standstill") else { panic!("{error}") };
    assert!(error.to_string()[at..].contains("no time passes"), "{error}");
}

/// The steps of the journal: if any is left out, the checker finds something.
#[test]
fn a_journal_that_leaves_a_step_out_is_found() {
    // The data that the commit block vouches for may be missing, as well as the log blocks.
    is_found(Sabotage::NoFlushBeforeCommitBlock, None, |b| {
        matches!(b, Broken::LogBlockMissing { .. } | Broken::NotItsOwn { .. })
    });
    is_found(Sabotage::TailBeforeFlush, None, |_| true);
    is_found(Sabotage::CommitBeforeData, Some(3), |b| {
        matches!(b, Broken::NotItsOwn { .. } | Broken::Trimmed { .. })
    });
    is_found(Sabotage::NoRevoke, Some(2), |_| true);
    is_found(Sabotage::NoFlushInFsync, Some(2), |b| matches!(b, Broken::SyncedPageOld { .. }));
}

#[test]
fn the_same_seed_finds_the_same() {
    let run = || found_within(Sabotage::TrimAfterLaterWrite, 1_000, 1);
    let (a, b) = (run(), run());
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
    let only = CrashTest { policy: PolicySpec::OFF.into(), seed: 1, cuts: 1_000 };
    let again = sabotaged_run(&only, a.details[0].run, Sabotage::TrimAfterLaterWrite).unwrap();
    assert_eq!(again.details[0].to_string(), a.details[0].to_string());
}
