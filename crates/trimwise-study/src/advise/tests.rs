//! A whole advice as its caller sees it: one count of runs that only shrinks, and a first answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::caller::{Elapsed, Progress};

/// Time that each run takes by the fake clock.
const RUN: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Display(usize),
    Total(usize),
    Stage(String),
    Done(usize),
    Note(String),
}

/// Keeps what a caller is told.
#[derive(Clone, Default)]
struct Watcher {
    events: Arc<Mutex<Vec<Event>>>,
    done: Arc<AtomicUsize>,
    /// Stops the command once so many runs are done.
    stops_after: Option<usize>,
    stop: Arc<AtomicBool>,
}

impl Watcher {
    fn push(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    fn all<T>(&self, of: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        self.events.lock().unwrap().iter().filter_map(of).collect()
    }

    /// Returns the announced totals: one display's, which never grow, and at the end are the runs that were done.
    fn totals(&self) -> Vec<usize> {
        let displays = self.all(|event| if let Event::Display(runs) = event { Some(*runs) } else { None });
        assert_eq!(displays.len(), 1, "one display of all runs");
        let mut totals = displays;
        totals.extend(self.all(|event| if let Event::Total(runs) = event { Some(*runs) } else { None }));
        totals.dedup();
        assert!(totals.is_sorted_by(|before, after| before >= after), "{totals:?}");
        let mut done = self.all(|event| if let Event::Done(run) = event { Some(*run) } else { None });
        done.sort_unstable();
        assert_eq!(done, (0..done.len()).collect::<Vec<_>>(), "each run of the display once");
        assert_eq!(totals.last(), Some(&done.len()));
        totals
    }

    fn notes(&self) -> Vec<String> {
        self.all(|event| if let Event::Note(text) = event { Some(text.clone()) } else { None })
    }

    /// Returns the number of runs that were done before something was told.
    fn done_before(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        let events = self.events.lock().unwrap();
        let place = events.iter().position(is_it).expect("it was told");
        events[..place].iter().filter(|event| matches!(event, Event::Done(_))).count()
    }
}

impl Caller for Watcher {
    fn progress(&self, runs: usize, _: &str) -> Arc<dyn Progress> {
        self.push(Event::Display(runs));
        Arc::new(self.clone())
    }

    fn stop(&self, _: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        Ok(Arc::clone(&self.stop))
    }

    fn note(&self, text: &str) {
        self.push(Event::Note(text.to_owned()));
    }

    fn elapsed(&self) -> Elapsed {
        let done = Arc::clone(&self.done);
        Arc::new(move || RUN * done.load(Ordering::SeqCst) as u32)
    }
}

impl Progress for Watcher {
    fn begin_ageing(&self, _: usize) {}
    fn update(&self, _: usize, _: u64, _: u64) {}

    fn done(&self, run: usize) {
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        self.stop.fetch_or(self.stops_after.is_some_and(|most| done >= most), Ordering::SeqCst);
        self.push(Event::Done(run));
    }

    fn say(&self, what: String) {
        self.push(Event::Stage(what));
    }

    fn expect(&self, runs: usize, _: Option<Duration>) {
        self.push(Event::Total(runs));
    }

    fn finish(&self) {}
}

/// A check that runs nothing, of a kernel that has `off` and `commit`.
struct Pretended;

impl Compare for Pretended {
    fn kind(&self, request: &CompareRequest, _: &on_model::Plan, of: &[Trimmer]) -> Result<Kind, Failure> {
        let has = [PolicySpec::OFF, PolicySpec::COMMIT].map(Trimmer::Kernel);
        let runs = of.iter().filter(|policy| has.contains(policy)).count() * request.reps as usize;
        Ok(Kind::of(runs, 1).expecting(Duration::from_secs(60)))
    }

    fn compare(
        &self,
        request: &CompareRequest,
        plan: &on_model::Plan,
        known: &[Cell],
        whole: &Whole,
    ) -> Result<Comparison, Failure> {
        let compared = Unchecked.compare(request, plan, known, whole);
        let runs = self.kind(request, plan, &plan.policies)?.most;
        let progress = whole.part(KERNEL).progress(runs, "runs");
        (0..runs).for_each(|run| progress.done(run));
        compared
    }
}

fn small(transactions: u32) -> (tempfile::TempDir, CompareRequest) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let drive = include_str!("../../../../profiles/sata-small.toml")
        .replace("8_589_934_592", "268_435_456")
        .replace("pages_per_block = 128", "pages_per_block = 32");
    let mail = format!("set number 300\nset transactions {transactions}\nset size 1000 100000\nrun\n");
    let request = CompareRequest {
        workload: file("small.pmrc", &mail),
        devices: vec![file("small.toml", &drive)],
        memory: Some(64),
        reps: 3,
        jobs: Some(2),
        ..CompareRequest::default()
    };
    (folder, request)
}

/// Runs an advice and returns its announced totals, which end with the runs that it reports.
fn totals(watcher: &Watcher, request: &CompareRequest, compare: &dyn Compare, checked: usize) -> Vec<usize> {
    let advice = in_model(request, None, watcher, compare).unwrap();
    let (totals, runs) = (watcher.totals(), advice.search.runs);
    // The best of a changed kernel is among those compared.
    let ran = (runs.searched + runs.compared + runs.nearby) as usize + checked;
    assert_eq!(*totals.last().unwrap(), ran, "{runs:?}");
    assert!(totals[0] < ran * 2, "{} announced, {ran} done", totals[0]);
    totals
}

#[test]
fn the_announced_runs_of_days_only_shrink_to_those_that_were_done() {
    let (_folder, request) = small(3000);
    totals(&Watcher::default(), &CompareRequest { days: Some(1), ..request }, &Unchecked, 0);
}

#[test]
fn a_first_answer_comes_within_three_minutes_marked_and_before_the_search_and_the_check() {
    let (_folder, request) = small(3000);
    let (watcher, request) = (Watcher::default(), CompareRequest { jobs: Some(1), reps: 4, ..request });
    let totals = totals(&watcher, &request, &Pretended, 2 * 4);
    let notes = watcher.notes();
    let [first, better] = &notes[..] else { panic!("{notes:?}") };
    // The first run, and three repetitions of three policies; a fourth would end after 195 s.
    let all =
        first.strip_prefix("First answer, after 10 of at most ").and_then(|rest| rest.split_once(" runs: "));
    assert!(all.is_some_and(|(all, _)| totals.contains(&all.parse().unwrap())), "{first}: {totals:?}");
    assert!(first.contains("`commit` 2.04") && first.contains(" It is being refined, about "), "{first}");
    assert!(better.starts_with("Better answer, after 13 of at most "), "{better}");
    let before = |what: &str| watcher.done_before(|event| *event == Event::Note(what.to_owned()));
    assert!(RUN * before(first) as u32 <= Duration::from_secs(180), "{} runs", before(first));
    let search = watcher.done_before(|event| *event == Event::Stage("the search".to_owned()));
    assert_eq!((before(better), search), (13, 13));
}

#[test]
fn regression_what_finished_before_an_interrupt_is_kept_as_incomplete() {
    let (_folder, request) = small(3000);
    let watcher = Watcher { stops_after: Some(1 + 5), ..Watcher::default() };
    let request = CompareRequest { jobs: Some(1), ..request };
    let advice = in_model(&request, None, &watcher, &Unchecked).unwrap();
    assert_eq!((advice.partial, advice.ended_by.clone()), (true, Some(Failure::Interrupted)));
    assert_eq!(advice.conclusion.decision, Decision::CannotTell);
    let comparison = advice.comparison.unwrap();
    let policies: Vec<(String, u32)> =
        comparison.cells.iter().map(|cell| (cell.policy.to_string(), cell.rep)).collect();
    assert_eq!((policies.len(), comparison.partial), (5, true), "{policies:?}");
    for policy in ["off", "commit"] {
        assert!(policies.contains(&(policy.to_owned(), 0)), "{policies:?}");
    }
}

/// A fuller file system on which the workload has no room, and one beyond what is modelled.
#[test]
fn regression_a_fullness_that_does_not_fit_is_said() {
    for (used, unfit) in [("50", None), ("85", Some(95)), ("90", Some(100))] {
        let (_folder, request) = small(3000);
        let request = CompareRequest {
            utilization: Some(used.into()),
            policies: vec![Given::of(PolicyId::OFF)],
            ..request
        };
        let plan = on_model::Plan::of(&request);
        let Ok(plan) = plan else { panic!("{used}: {:?}", plan.err()) };
        let watcher = Watcher::default();
        let hunt = Hunt::of(&request, plan, (&watcher, &Arc::default()), &Unchecked).unwrap();
        assert_eq!(hunt.unfit_nearby(), unfit, "{used}");
    }
}

#[test]
fn where_nothing_is_freed_one_run_is_all() {
    let (_folder, request) = small(1);
    let watcher = Watcher::default();
    let request = CompareRequest { utilization: Some("10".into()), ..request };
    in_model(&request, None, &watcher, &Unchecked).unwrap();
    assert_eq!(watcher.totals().last(), Some(&1));
    assert_eq!(watcher.notes(), [""; 0]);
}
