//! Every run ends: random policies, drives, hosts and fill, mostly with hardly a free block.
//!
//! `PROPTEST_CASES` sets the number of runs of each test.

use std::fmt;
use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use trimwise::engine::{Budget, Stalled, Standstill};
use trimwise::fs::host::{DiscardGeneration, HostConfig, LinuxVersion};
use trimwise::policy::{
    Availability, Decision, Governor, Policy, PolicyEvent, PolicySpec, Shape, View, terms,
};
use trimwise::ssd::{ReadAfterTrim, TrimKind, TrimPlace};
use trimwise::units::{Bytes, Lpn, SimDuration, UnitRange};

use super::CrashError;
use super::workload::{self, Machine, Setting};

/// Values for a placeholder of a term's form.
fn value(placeholder: &str) -> BoxedStrategy<String> {
    let texts = |texts: &'static [&'static str]| select(texts).prop_map(str::to_owned).boxed();
    match placeholder {
        "MIN" | "MAX" => (1..=16u32).prop_map(|workers| workers.to_string()).boxed(),
        "LOW" | "HIGH" => (0..=100u32).prop_map(|percent| percent.to_string()).boxed(),
        "EVERY" | "QUIET" | "HOLD" | "WINDOW" => texts(&["1ms", "20ms", "500ms", "3s", "30s", "1m", "2h"]),
        "SMALLEST" => texts(&["4KiB", "64KiB", "1MiB"]),
        other => panic!("no values for {other}"),
    }
}

/// Writes a term as `trimwise policies` shows it, such as `quiet[:QUIET[:HOLD]]`, with values.
fn term() -> impl Strategy<Value = String> {
    // Limits are followed by applications, which this workload is not.
    let is_of_host =
        |form: &&str| !["TERM", "rocksdb", "pebble", "steps"].iter().any(|limit| form.starts_with(limit));
    let forms: Vec<&str> = terms().into_iter().map(|(form, _)| form).filter(is_of_host).collect();
    let whole = (select(forms), 0..3usize).prop_map(|(form, options)| {
        let parts = form.split('[').take(1 + options).map(|part| part.trim_end_matches(']'));
        parts.collect::<String>()
    });
    whole.prop_flat_map(|form| {
        let words = form.split(':').map(|word| match word.chars().all(char::is_uppercase) {
            true => value(word),
            false => Just(word.to_owned()).boxed(),
        });
        words.collect::<Vec<_>>().prop_map(|words| words.join(":"))
    })
}

fn spec() -> impl Strategy<Value = PolicySpec> {
    let parsed = |terms: Vec<String>| terms.join("+").parse().ok();
    vec(term(), 1..=3).prop_filter_map("no policy", parsed)
}

/// Any policy of the file system, alone or over a target with any policy.
fn policy() -> impl Strategy<Value = Policy> {
    let target = spec().prop_filter("a bound only", |spec| spec.is_usable());
    (spec(), prop::option::of(target)).prop_map(|(of_fs, target)| match target {
        Some(target) => Policy::over(of_fs, target),
        None => of_fs.into(),
    })
}

fn machine() -> impl Strategy<Value = (u64, Machine)> {
    let tight = |(seed, wants_tight): &(u64, bool)| !wants_tight || Machine::of_seed(*seed).tight;
    (any::<u64>(), prop::bool::weighted(0.8))
        .prop_filter("roomy", tight)
        .prop_map(|(seed, _)| (seed, Machine::of_seed(seed)))
}

#[derive(Clone)]
struct Place {
    seed: u64,
    setting: Setting,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, setting: Setting { machine, drive, host, .. } } = self;
        write!(f, "seed {seed}: {machine}; {:?}; {host:?}", drive.trim)
    }
}

/// A machine of the crash test, on any Linux and with a drive whose TRIM may be anything.
fn place() -> impl Strategy<Value = Place> {
    let linux = prop::option::of(select(vec!["2.6", "3.10", "4.9", "5.10", "6.1", "6.12"]));
    let generation = prop::option::of(select(vec![
        DiscardGeneration::CommitSerial,
        DiscardGeneration::CommitBatched,
        DiscardGeneration::Worker,
        DiscardGeneration::WorkerRunningOn,
    ]));
    let places = select(vec![TrimPlace::BeforeAck, TrimPlace::OwnCore, TrimPlace::Background]);
    let trim = (prop::bool::weighted(0.05), places, select(vec![1, 4, 256]), select(vec![8, 100, 65_535]));
    let slow = (select(vec![1, 8]), select(vec![0, 1_000_000, 3_000_000_000u64]));
    (machine(), linux, generation, trim, slow).prop_map(
        |(
            (seed, machine),
            linux,
            generation,
            (is_unsupported, place, ranges, units),
            (grain, latency_ns),
        )| {
            let mut setting = Setting::of(machine);
            let trim = &mut setting.drive.trim;
            if is_unsupported {
                trim.kind = TrimKind::Unsupported;
            }
            (trim.place, trim.read_after) = (place, ReadAfterTrim::Zeros);
            (trim.max_ranges, trim.max_units_per_range) = (ranges, units);
            (trim.granularity_units, trim.latency_per_command_ns) = (grain, latency_ns);
            if let Some(linux) = linux {
                let version: LinuxVersion = linux.parse().expect("a known version");
                setting.host = HostConfig::of(version, Bytes::mib(64));
            }
            setting.host.discard = generation.unwrap_or(setting.host.discard);
            setting.events_max = EVENTS_MAX;
            Place { seed, setting }
        },
    )
}

/// Ten times the events of the longest run.
const EVENTS_MAX: Budget = Budget { at_an_instant: 100_000, in_all: 2_000_000 };

fn ending(policy: &Policy, place: &Place) -> Result<(), CrashError> {
    workload::run_on(policy, place.seed, &place.setting, Rc::new(|_| ())).map(drop)
}

fn config() -> ProptestConfig {
    let plain = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { plain.cases } else { 64 };
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..plain }
}

/// Decides at random, whatever it is told: withholds blocks for ever, issues nothing, asks for instants that have passed.
#[derive(Clone, Debug)]
struct Wild {
    availability: Availability,
    script: Vec<Vec<Deed>>,
    at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Decide(Decision),
    WakeIn(SimDuration),
}

impl Governor for Wild {
    fn availability(&self, _: DiscardGeneration) -> Availability {
        self.availability
    }

    fn on_event(&mut self, _: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        let deeds = &self.script[self.at % self.script.len()];
        self.at += 1;
        decisions.extend(deeds.iter().map(|deed| match *deed {
            Deed::Decide(decision) => decision,
            Deed::WakeIn(time) => Decision::WakeAt(view.now + time),
        }));
    }
}

impl Wild {
    fn policy(&self) -> Policy {
        let wild = self.clone();
        Policy::new(&format!("{wild:?}"), move || Box::new(wild.clone()))
    }

    /// Whether it may withhold blocks and go on setting timers, which a run bears for 31 days of virtual time.
    fn may_dawdle(&self) -> bool {
        let mut deeds = self.script.iter().flatten();
        self.availability == Availability::AfterIssue && deeds.any(|deed| matches!(deed, Deed::WakeIn(_)))
    }
}

fn wild() -> impl Strategy<Value = Wild> {
    let all = UnitRange::new(Lpn(0), u64::MAX);
    let decisions = [
        Decision::DropFreed,
        Decision::CatchUp,
        Decision::IssueInCommit { together: false },
        Decision::IssueInCommit { together: true },
        Decision::Issue(Shape::NEXT),
        Decision::Issue(Shape { ranges_max: 64, units_min: 9, units_max: 700, runs_on: true }),
        Decision::TrimFree { range: all, units_min: 1 },
        Decision::Reveal,
    ];
    let times = [0, 7, 3_600, 86_400].map(|seconds| Deed::WakeIn(SimDuration::from_secs(seconds)));
    let deeds: Vec<Deed> = decisions.map(Deed::Decide).into_iter().chain(times).collect();
    let availability = select(vec![Availability::AfterCommit, Availability::AfterIssue, Availability::Reuse]);
    (availability, vec(vec(select(deeds), 0..3), 1..8)).prop_map(|(availability, script)| Wild {
        availability,
        script,
        at: 0,
    })
}

proptest! {
    #![proptest_config(config())]

    /// All tasks finish, and the file system is unmounted.
    #[test]
    fn every_run_ends_under_any_policy(policy in policy(), place in place()) {
        let end = ending(&policy, &place);
        prop_assert!(end.is_ok(), "{policy}: {}", end.unwrap_err());
    }

    /// Under a policy that is wrong, the run may end with a reason.
    #[test]
    fn every_run_ends_whatever_its_policy_decides(wild in wild(), place in place()) {
        match ending(&wild.policy(), &place) {
            Ok(()) => {}
            Err(CrashError::Stalled(Stalled { why: Standstill::Endless, .. })) => prop_assert!(wild.may_dawdle()),
            Err(error) => prop_assert!(matches!(error, CrashError::Stalled(_)), "{error}"),
        }
    }
}

#[test]
fn a_policy_that_asks_for_an_instant_that_has_passed_ends_the_run_with_words_about_it() {
    let deeds = vec![Deed::WakeIn(SimDuration::ZERO)];
    let restless = Wild { availability: Availability::AfterCommit, script: vec![deeds], at: 0 };
    let setting = Setting { events_max: EVENTS_MAX, ..Setting::of(Machine::of_seed(1)) };
    let CrashError::Stalled(Stalled { why, .. }) =
        ending(&restless.policy(), &Place { seed: 1, setting }).unwrap_err()
    else {
        panic!("the run ended for another reason");
    };
    assert_eq!(why, Standstill::Spinning { doing: "wakes the policy at an instant that has passed" });
}
