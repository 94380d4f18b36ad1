//! The state folder: a worker reads the last daemon's state from it, and writes this one's. A full, frozen or missing
//! disk costs no more than that state, and is retried.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::PollFd;

use super::{END_MAX, Options, Service, ServiceError};
use crate::history::Database;
use crate::journal::boot_id;
use crate::managed::Managed;
use crate::metrics;
use crate::places::hold;
use crate::process::{Left, Process};
use crate::saving::Saving;
use crate::speak::{warn, warn_of};
use crate::worker::Worker;
use crate::write::{self, Ask, Done, Failure};

/// Time after which a failed read is retried.
const AGAIN: Duration = Duration::from_secs(10);
/// Time limit for a write of a few MiB.
const WRITE_MAX: Duration = Duration::from_secs(30);
/// Time after which a waiting client is told that a write is not yet done.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Time to wait for reads at start, and for writes on exit.
const WAIT_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Prepare,
    Load,
    /// Write a version of one of the files that keep state.
    Write(Part, u64),
    Note,
    Last(u64),
    Metrics,
    Remove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Journal,
    Paused,
    Known,
}

const PARTS: [Part; 3] = [Part::Journal, Part::Paused, Part::Known];

enum Asker {
    Pause { version: u64, points: Vec<PathBuf> },
    Past { mount: PathBuf, limit: u32 },
}

struct Later {
    request: u64,
    until: Instant,
    asker: Asker,
}

pub struct State {
    worker: Worker<Asked>,
    /// Writes the metrics file. A separate worker, since that file may be on another disk.
    metrics_worker: Worker<Asked>,
    pub(super) boot: String,
    /// Device and inode of the folder, once its lock is held.
    pub(super) folder: Option<(u64, u64)>,
    lock: Option<File>,
    problem: Option<String>,
    retry_at: Instant,
    laters: Vec<Later>,
    pub(super) metrics_problem: Option<String>,
}

impl State {
    pub(super) fn new(options: &Options) -> Self {
        let worker = || Worker::new(options.program.clone(), write::COMMAND, options.patience.min(WRITE_MAX));
        Self {
            worker: worker(),
            metrics_worker: worker(),
            boot: boot_id(),
            folder: None,
            lock: None,
            problem: None,
            retry_at: Instant::now(),
            laters: Vec::new(),
            metrics_problem: None,
        }
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.worker.waits().into_iter().chain(self.metrics_worker.waits())
    }

    pub(super) fn polled(&mut self, ready: &mut impl Iterator<Item = bool>) {
        self.worker.polled(ready);
        self.metrics_worker.polled(ready);
    }

    /// Returns the time until a waiting client must be told that its request is not yet done.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        self.laters.iter().map(|one| one.until.saturating_duration_since(now)).min()
    }

    pub(super) fn problem(&self) -> Option<String> {
        let stuck = || "the disk of the state folder does not respond".to_owned();
        self.worker.is_stuck().then(stuck).or_else(|| self.problem.clone())
    }

    fn is_asked(&self, what: impl Fn(&Asked) -> bool) -> bool {
        self.worker.asked().any(what)
    }

    /// Stops the workers and removes the sockets, in a process since their folder may hang too.
    pub(super) fn end(&mut self, left: &mut Left, program: &std::path::Path, sockets: Vec<PathBuf>) {
        let until = Instant::now() + END_MAX;
        self.worker.end(left, until);
        self.metrics_worker.end(left, until);
        let ask = Ask::Remove { paths: sockets };
        let Ok(mut remover) = Process::ask(program, write::COMMAND, &ask) else { return };
        while !remover.receive(usize::MAX) && remover.next_line().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        remover.end(left, until);
    }
}

impl Service {
    pub(super) fn state_problem(&self) -> Option<String> {
        let unsaved = |part: &Part| {
            let why = self.saving(*part).problem()?;
            Some(format!("{}: {why}", self.file(*part).display()))
        };
        self.state.problem().or_else(|| PARTS.iter().find_map(unsaved))
    }

    fn file(&self, part: Part) -> PathBuf {
        let places = &self.options.places;
        match part {
            Part::Journal => places.journal(),
            Part::Paused => places.paused(),
            Part::Known => places.known(),
        }
    }

    fn saving(&self, part: Part) -> &Saving {
        match part {
            Part::Journal => &self.journal.saving,
            Part::Paused => &self.paused.saving,
            Part::Known => &self.known.saving,
        }
    }

    /// Waits for the last daemon's state, for a limited time. Fails if another daemon uses the folder, or it is
    /// unsuitable.
    pub(super) fn open_state_and_wait(&mut self) -> Result<(), ServiceError> {
        let until = Instant::now() + WAIT_MAX.min(self.options.patience);
        while !self.is_loaded() && Instant::now() < until {
            let now = Instant::now();
            self.open_state(now);
            self.hear_written(now)?;
            if self.state.problem.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if !self.is_loaded() {
            self.state.problem = Some("the disk of the state folder does not respond".to_owned());
            warn(&format!("{}: its disk does not respond yet", self.options.places.state.display()));
        }
        Ok(())
    }

    fn is_loaded(&self) -> bool {
        PARTS.iter().all(|&part| self.saving(part).has_begun())
    }

    fn open_state(&mut self, now: Instant) {
        let is_opening = self.state.is_asked(|one| matches!(one, Asked::Prepare | Asked::Load));
        if self.is_loaded() || is_opening || now < self.state.retry_at {
            return;
        }
        let (state, boot) = (self.options.places.state.clone(), self.state.boot.clone());
        let (tag, ask) = match self.state.lock {
            None => (Asked::Prepare, Ask::Prepare { state }),
            Some(_) => (Asked::Load, Ask::Load { state, boot, process: std::process::id() }),
        };
        if self.state.worker.ask(tag, &ask).is_err() {
            self.state.retry_at = now + AGAIN;
        }
    }

    fn not_opened(&mut self, why: String) {
        warn_of(&mut self.state.problem, Some(why));
        self.state.retry_at = Instant::now() + AGAIN;
    }

    /// Handles the worker's answers, writes the files that are due, and responds to waiting clients.
    pub(super) fn keep_state(&mut self, now: Instant) {
        if let Err(error) = self.hear_written(now) {
            self.not_opened(error.to_string());
        }
        self.open_state(now);
        self.write_due(now);
        self.answer_laters(now);
    }

    fn write_due(&mut self, now: Instant) {
        if self.options.dry_run {
            return;
        }
        for part in PARTS {
            let Some(version) = self.saving(part).due(now) else { continue };
            let (text, saving) = match part {
                Part::Journal => (self.journal.text(&self.state.boot), &mut self.journal.saving),
                Part::Paused => (self.paused.text(&self.state.boot), &mut self.paused.saving),
                Part::Known => (self.known.text().to_owned(), &mut self.known.saving),
            };
            saving.asked(version);
            let ask = Ask::Replace { path: self.file(part), text, mode: 0o600 };
            if let Err(why) = self.state.worker.ask(Asked::Write(part, version), &ask) {
                self.written(part, version, Err(why));
            }
        }
    }

    fn written(&mut self, part: Part, version: u64, result: Result<(), String>) {
        // Do not repeat the same warning.
        if let Some(why) =
            result.as_ref().err().filter(|why| self.saving(part).problem() != Some(why.as_str()))
        {
            warn(&format!("{}: {why}", self.file(part).display()));
        }
        match part {
            Part::Journal => self.journal.saved(version, result),
            Part::Paused => self.paused.saving.done(version, result),
            Part::Known => self.known.saved(version, result),
        }
    }

    fn hear_written(&mut self, now: Instant) -> Result<(), ServiceError> {
        let workers = [&mut self.state.worker, &mut self.state.metrics_worker];
        let hear = |worker: &mut Worker<Asked>| worker.hear::<Result<Done, Failure>>(now);
        let heard: Vec<_> = workers.into_iter().flat_map(hear).collect();
        for (what, answer) in heard {
            let done = answer.unwrap_or_else(|why| Err(Failure { why, may_pass: true }));
            match (&what, done) {
                (Asked::Prepare, Ok(Done::Prepared(device, inode))) => {
                    self.state.lock = Some(hold(&self.options.places.state_lock())?);
                    self.state.folder = Some((device, inode));
                }
                (Asked::Prepare, Err(failure)) if !failure.may_pass => {
                    return Err(ServiceError::State(failure.why));
                }
                (Asked::Load, Ok(Done::Loaded(state))) => self.load(state),
                (Asked::Prepare | Asked::Load, Err(Failure { why, .. })) => self.not_opened(why),
                (Asked::Note, done) => self.noted(done.map(drop).map_err(|failure| failure.why)),
                (Asked::Last(request), Ok(Done::Past(entries))) => self.tell_past(*request, Ok(entries)),
                (Asked::Last(request), Err(failure)) => self.tell_past(*request, Err(failure.why)),
                (Asked::Metrics, done) => self.metrics_written(done.err().map(|failure| failure.why)),
                (Asked::Write(part, version), done) => {
                    self.written(*part, *version, done.map(drop).map_err(|failure| failure.why));
                }
                (Asked::Remove, _) | (Asked::Prepare | Asked::Load | Asked::Last(_), Ok(_)) => {}
            }
        }
        Ok(())
    }

    fn load(&mut self, state: write::State) {
        let write::State { journal, paused, known } = state;
        let problems = [&journal.problem, &paused.problem, &known.problem];
        problems.into_iter().flatten().for_each(|problem| warn(problem));
        self.state.problem = None;
        if let Some(changes) = journal.value.filter(|_| !self.journal.saving.has_begun()) {
            self.journal.load(changes);
            self.looking.discover_now(); // options to restore
        }
        if let Some(points) = paused.value.filter(|_| !self.paused.saving.has_begun()) {
            self.paused.load(points);
            for one in self.managed.values_mut().filter(|_| !self.options.once) {
                if self.paused.contains(&one.candidate.mount.mount_point) {
                    one.pause(true);
                }
            }
        }
        if let Some(kept) = known.value.filter(|_| !self.known.saving.has_begun()) {
            self.known.load(kept);
        }
        if !self.is_loaded() {
            let why =
                [journal.problem, paused.problem, known.problem].into_iter().flatten().collect::<Vec<_>>();
            self.state.problem = Some(why.join("; "));
            self.state.retry_at = Instant::now() + AGAIN;
        }
    }

    fn database(&self) -> Database {
        Database { path: self.options.places.history(), max: self.config.history_max }
    }

    pub(super) fn write_history(&mut self) {
        if self.state.lock.is_none() {
            return;
        }
        let Some(entries) = self.history.next_batch() else { return };
        if let Err(why) =
            self.state.worker.ask(Asked::Note, &Ask::Note { database: self.database(), entries })
        {
            let path = self.options.places.history();
            self.noted(Err(format!("{}: {why}", path.display())));
        }
    }

    fn noted(&mut self, result: Result<(), String>) {
        self.history.written(result).into_iter().for_each(warn);
    }

    /// Reads the history for a request, or returns why that is impossible.
    pub(super) fn ask_past(&mut self, mount: PathBuf, limit: u32, request: u64) -> Result<(), String> {
        if let Some(problem) =
            self.state.problem().filter(|_| self.state.lock.is_none() || self.state.worker.is_stuck())
        {
            return Err(problem);
        }
        self.write_history();
        let ask = Ask::Last { database: self.database(), mount: mount.clone(), limit };
        self.state.worker.ask(Asked::Last(request), &ask)?;
        self.answer_by(request, Asker::Past { mount, limit });
        Ok(())
    }

    /// Responds to a `pause` once it is saved. `version` is the version of the file that contains it.
    pub(super) fn ask_paused(&mut self, version: u64, points: Vec<PathBuf>, request: u64) {
        self.answer_by(request, Asker::Pause { version, points });
    }

    fn answer_by(&mut self, request: u64, asker: Asker) {
        let until = Instant::now() + ANSWER_MAX;
        self.state.laters.push(Later { request, until, asker });
    }

    fn tell_past(&mut self, request: u64, read: Result<Vec<crate::history::Entry>, String>) {
        let Some(at) = self.state.laters.iter().position(|one| one.request == request) else { return };
        if let Asker::Past { mount, limit } = self.state.laters.swap_remove(at).asker {
            let response = self.past(&mount, limit, read);
            self.answer_later(Some(request), &response);
        }
    }

    fn answer_laters(&mut self, now: Instant) {
        let file = self.options.places.paused();
        for later in std::mem::take(&mut self.state.laters) {
            let is_late = now >= later.until;
            let silent =
                || format!("the disk of the state folder took longer than {} s", ANSWER_MAX.as_secs());
            match later.asker {
                Asker::Past { .. } if !is_late => self.state.laters.push(later),
                Asker::Past { mount, limit } => {
                    let response = self.past(&mount, limit, Err(silent()));
                    self.answer_later(Some(later.request), &response);
                }
                Asker::Pause { version, points } => {
                    let outcome = if !self.paused.saving.has_begun() {
                        let why =
                            self.state.problem().unwrap_or_else(|| "it has not been read yet".to_owned());
                        Some(Err(why))
                    } else {
                        let outcome = self.paused.saving.outcome(version);
                        let outcome = outcome.map(|result| result.map_err(str::to_owned));
                        outcome.or_else(|| is_late.then(|| Err(silent())))
                    };
                    let Some(outcome) = outcome else {
                        let asker = Asker::Pause { version, points };
                        self.state.laters.push(Later { asker, ..later });
                        continue;
                    };
                    let not_saved = outcome
                        .err()
                        .map(|why| format!("{}: {why}; the next daemon will not know", file.display()));
                    self.answer_later(Some(later.request), &self.switched(points, not_saved));
                }
            }
        }
    }

    pub(super) fn write_metrics(&mut self, path: PathBuf) {
        if self.state.metrics_worker.asked().next().is_some() {
            return;
        }
        let first_line = metrics::first_line();
        let ask = Ask::ReplaceOurs { path, text: self.metrics_text(), first_line };
        if let Err(why) = self.state.metrics_worker.ask(Asked::Metrics, &ask) {
            self.metrics_written(Some(why));
        }
    }

    pub(super) fn remove(&mut self, paths: Vec<PathBuf>) {
        if !paths.is_empty() {
            // A file that remains is replaced when it is used again.
            drop(self.state.metrics_worker.ask(Asked::Remove, &Ask::Remove { paths }));
        }
    }

    fn metrics_written(&mut self, why: Option<String>) {
        let Some(path) = &self.config.metrics_file else { return };
        let problem = why.map(|why| format!("metrics-file = \"{}\": {why}", path.display()));
        warn_of(&mut self.state.metrics_problem, problem);
    }

    /// Saves the current knowledge of trimmed space for the next daemon. A dry run trims nothing.
    pub(super) fn keep_known(&mut self) {
        if !self.options.dry_run {
            let kept = self.managed.values().filter_map(Managed::kept).collect();
            self.known.write(kept, &self.state.boot);
        }
    }

    /// Waits on exit until all is written, for a limited time.
    pub(super) fn save_and_wait(&mut self) {
        let until = Instant::now() + WAIT_MAX;
        self.write_history();
        self.state.worker.not_polled();
        self.keep_state(Instant::now());
        while self.state.is_asked(|_| true) && !self.state.worker.is_stuck() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            self.keep_state(Instant::now());
            self.write_history(); // what was added since
        }
    }
}
