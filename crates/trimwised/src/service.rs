//! The daemon's loop: one thread that waits for the next second, for helpers, for signals, for new mounts, and for whoever
//! talks to it.

mod answer;
mod configured;
mod keeping;
mod restoring;
mod waiting;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use thiserror::Error;
use trimwise::live::{LiveHost, Reason, spans_each};
use trimwise::units::{SimDuration, SimTime};

use self::restoring::Restoring;
use self::watching::Watching;
use crate::discover::{self, Skipped};
use crate::history::History;
use crate::journal::{Change, Journal};
use crate::known::Store;
use crate::managed::{Left, Managed, Means};
use crate::metrics::Listener;
use crate::notify::Notify;
use crate::paused::Paused;
use crate::places::{Locked, Places, PlacesError};
use crate::sense;
use crate::server::Server;
use trimwise_linux::daemon::config::{Config, ConfigErrors};
use trimwise_linux::files::replace;
use trimwise_linux::mount::Mount;
use trimwise_linux::text::is_unprintable;

/// Helpers at work at a time: with a thousand file systems they would be too many for a service's limit of tasks.
const HELPERS_MAX: usize = 16;
/// The list of mounts is compared so often, also if the kernel says nothing: it does not tell of changed options.
const COMPARE_EVERY: Duration = Duration::from_secs(5);
/// And everything is looked at anew so often, since devices change too.
const DISCOVER_EVERY: Duration = Duration::from_secs(60);
/// The history is written so often, and the metrics file.
const WRITE_EVERY: Duration = Duration::from_secs(60);
const METRICS_EVERY: Duration = Duration::from_secs(15);
/// What is known to be trimmed is written so often: what a killed daemon learned since is trimmed once more.
const KEEP_EVERY: Duration = Duration::from_secs(300);

/// A helper that was killed is waited for so long; then it is left.
const END_MAX: Duration = Duration::from_secs(1);

/// How a daemon runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its files and folders.
    pub places: Places,
    /// Look and decide, but change nothing.
    pub dry_run: bool,
    /// Trim all that is untrimmed on every managed file system, and end.
    pub once: bool,
    /// This program, which is also the helper.
    pub program: PathBuf,
    /// A helper that takes longer is given up: [`PATIENCE`], but in tests.
    pub patience: Duration,
}

/// Longer than any slice takes on a device that answers.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Why a daemon ends.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// Its configuration is wrong.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// Its places cannot be had.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// Something that it needs does not work.
    #[error("{what}: {source}")]
    Io {
        /// What.
        what: String,
        /// The operating system's words.
        source: io::Error,
    },
    /// It may not trim.
    #[error(
        "CAP_SYS_ADMIN is missing, without which the kernel trims nothing (FITRIM): expected to be started as root, or \
         with --dry-run"
    )]
    NotPermitted,
    /// With `once`: not everything could be trimmed.
    #[error("not trimmed: {0}")]
    NotTrimmed(String),
}

fn cannot(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServiceError {
    let what = what.into();
    move |source| ServiceError::Io { what, source }
}

/// A running daemon.
struct Service {
    options: Options,
    config: Config,
    /// Why the configuration on the disk is not the one in use.
    config_problem: Option<String>,
    started: Instant,
    managed: BTreeMap<(u32, u32), Managed>,
    left: Left,
    skipped: Vec<Skipped>,
    paused: Paused,
    journal: Journal,
    restoring: Vec<Restoring>,
    /// File systems whose options wait for a free helper.
    restoring_later: BTreeSet<(u32, u32)>,
    /// Changes that could not be put back.
    unrestorable: Vec<Change>,
    history: History,
    known: Store,
    server: Option<Server>,
    metrics: Option<Listener>,
    /// Why the metrics file is not written.
    metrics_problem: Option<String>,
    watching: Watching,
    notify: Notify,
    mountinfo: File,
    hang_up: UnixStream,
    end: UnixStream,
    next_second: Instant,
    next_discover: Instant,
    next_compare: Instant,
    /// The list of mounts as it was last.
    mounts: Vec<u8>,
    next_write: Instant,
    next_metrics: Instant,
    next_keep: Instant,
    next_watchdog: Instant,
    _lock: Locked,
}

/// Runs a daemon until it is told to end.
///
/// # Errors
/// If it cannot begin; with `once` also if something was not trimmed.
pub fn run(options: Options) -> Result<(), ServiceError> {
    let config = Config::load(&options.places.config)?;
    let may_trim = capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::SYS_ADMIN));
    if !may_trim && !options.dry_run {
        return Err(ServiceError::NotPermitted);
    }
    let mut service = Service::begin(options, config)?;
    let done = service.until_told();
    service.stop();
    done
}

impl Service {
    fn begin(options: Options, config: Config) -> Result<Self, ServiceError> {
        let places = &options.places;
        // What is made here is nobody else's, but where a mode says so.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let lock = places.lock()?;
        let signal = |numbers: &[i32]| {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            numbers.iter().try_for_each(|&number| pipe::register(number, write.try_clone()?).map(drop))?;
            Ok(read)
        };
        let (known, unknown) = Store::open(places.known());
        let (journal, unread) = Journal::open(&places.journal());
        let (paused, unpaused) = Paused::open(places.paused());
        unknown.iter().chain(&unread).chain(&unpaused).for_each(|problem| warn(problem));
        let path = discover::mountinfo(places);
        let mountinfo = File::open(&path).map_err(cannot(path.display().to_string()))?;
        let now = Instant::now();
        let metrics = configured::open_metrics(&config)?;
        let hang_up = signal(&[SIGHUP]).map_err(cannot("the handler of SIGHUP"))?;
        let end = signal(&[SIGTERM, SIGINT]).map_err(cannot("the handlers of SIGTERM and SIGINT"))?;
        let mut service = Self {
            // The last that may fail: a socket that is there says that somebody listens.
            server: Some(configured::open_server(places, &config)?),
            metrics,
            metrics_problem: None,
            watching: Watching::default(),
            journal,
            restoring: Vec::new(),
            restoring_later: BTreeSet::new(),
            unrestorable: Vec::new(),
            history: History::new(places.history(), config.history_max),
            known,
            hang_up,
            end,
            mountinfo,
            config,
            config_problem: None,
            started: now,
            managed: BTreeMap::new(),
            left: Left::default(),
            skipped: Vec::new(),
            paused,
            notify: Notify::from_environment(),
            next_second: now,
            next_discover: now,
            next_compare: now,
            mounts: Vec::new(),
            next_write: now + WRITE_EVERY,
            next_metrics: now + METRICS_EVERY, // when there is something to tell
            next_keep: now + KEEP_EVERY,
            next_watchdog: now,
            options,
            _lock: lock,
        };
        service.restore_and_wait(); // what a killed daemon left
        service.watch();
        service.discover();
        service.notify.tell("READY=1\nSTATUS=Managing file systems");
        log(&format!("trimwised {}; file systems managed: {}", trimwise::VERSION, service.managed.len()));
        Ok(service)
    }

    fn now(&self) -> SimTime {
        SimTime::ZERO
            + SimDuration::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn helpers_at_work(&self) -> usize {
        self.managed.values().filter(|one| one.has_helper()).count() + self.restoring.len()
    }

    /// Calls `act` with every managed file system and what it needs.
    fn each(&mut self, mut act: impl FnMut(&mut Managed, &mut Means<'_>)) {
        let now = self.now();
        let at_work = self.helpers_at_work();
        let mut means = Means {
            program: &self.options.program,
            dry_run: self.options.dry_run,
            patience: self.options.patience,
            now,
            room: HELPERS_MAX.saturating_sub(at_work),
            spans_max: spans_each(self.managed.len()),
            journal: &mut self.journal,
            history: &mut self.history,
            known: &mut self.known,
        };
        self.managed.values_mut().for_each(|one| act(one, &mut means));
    }

    fn until_told(&mut self) -> Result<(), ServiceError> {
        loop {
            let events = self.wait().map_err(cannot("poll"))?;
            if events.end {
                log("told to end");
                return Ok(());
            }
            if events.hang_up {
                drop(self.reload());
            }
            self.hear_frees();
            self.each(Managed::hear);
            self.hear_restored();
            let now = Instant::now();
            if events.mounts || now >= self.next_discover || self.mounts_changed(now) {
                self.discover();
                self.watch();
            }
            if now >= self.next_second {
                // A machine that slept does not make up for it.
                self.next_second = (self.next_second + Duration::from_secs(1)).max(now);
                let pressure = sense::pressure(&self.options.places.host.path("/proc"));
                self.each(|one, means| one.second(pressure, means));
                self.left.reap();
                self.choose_watched();
                if self.options.once
                    && let Some(ended) = self.once()
                {
                    return ended;
                }
            }
            self.each(Managed::tick);
            self.start_held();
            self.serve();
            self.write(now);
        }
    }

    /// Starts what was decided, a slice only where no other one is under way on the same disk.
    fn start_held(&mut self) {
        let mut busy: BTreeSet<String> = self
            .managed
            .values()
            .filter(|one| one.keeps_its_disks_busy())
            .flat_map(|one| one.disks.clone())
            .collect();
        self.each(|one, means| {
            one.start_held(&busy, means);
            if one.keeps_its_disks_busy() {
                busy.extend(one.disks.iter().cloned());
            }
        });
    }

    fn serve(&mut self) {
        // Answering may replace them, when it reads the configuration again.
        if let Some(mut server) = self.server.take() {
            server.serve(|request| self.answer(request));
            self.server.get_or_insert(server);
        }
        if let Some(mut metrics) = self.metrics.take() {
            metrics.serve(|| self.metrics_text());
            self.metrics = Some(metrics);
        }
    }

    /// Writes what is due. A disk may take its time for each, so that the watchdog hears of it in between.
    fn write(&mut self, now: Instant) {
        self.tell_watchdog();
        if now >= self.next_write {
            self.next_write = now + WRITE_EVERY;
            for one in self.managed.values_mut() {
                one.tell_trimmed(&mut self.history);
            }
            self.history.flush();
            self.tell_watchdog();
        }
        if now >= self.next_keep {
            self.next_keep = now + KEEP_EVERY;
            self.keep_known();
            self.tell_watchdog();
        }
        if let Some(path) = self.config.metrics_file.clone()
            && now >= self.next_metrics
        {
            self.next_metrics = now + METRICS_EVERY;
            let problem = replace(&path, &self.metrics_text(), 0o644)
                .err()
                .map(|error| format!("metrics-file = \"{}\": {error}", path.display()));
            if problem != self.metrics_problem {
                problem.iter().for_each(|problem| warn(problem));
                self.metrics_problem = problem;
            }
            self.tell_watchdog();
        }
    }

    fn tell_watchdog(&mut self) {
        let now = Instant::now();
        if let Some(every) = self.notify.watchdog_every()
            && now >= self.next_watchdog
        {
            self.next_watchdog = now + every;
            self.notify.tell("WATCHDOG=1");
        }
    }

    fn mounts_changed(&mut self, now: Instant) -> bool {
        if now < self.next_compare {
            return false;
        }
        self.next_compare = now + COMPARE_EVERY;
        let text = std::fs::read(discover::mountinfo(&self.options.places)).unwrap_or_default();
        let changed = text != self.mounts;
        self.mounts = text;
        changed
    }

    /// Lists the mounts: new ones are managed, those that are gone are not any more.
    fn discover(&mut self) {
        self.next_discover = Instant::now() + DISCOVER_EVERY;
        let found = match discover::discover(&self.options.places, &self.config) {
            Ok(found) => found,
            Err(error) => return warn(&format!("mountinfo: {error}")),
        };
        let mut before = std::mem::take(&mut self.managed);
        let mut new = Vec::new();
        for candidate in found.candidates {
            let Some(treatment) = self.config.treatment(&candidate.mount.mount_point) else { continue };
            let numbers = candidate.mount.numbers;
            let is_other = |one: &Managed| {
                // Another treatment finds the mount option as it was.
                !is_mounted(&one.candidate.mount, &found.mounts)
                    || one.treatment.is_another(&treatment) && self.journal.was(&candidate.mount).is_some()
            };
            let known = match before.remove(&numbers) {
                Some(other) if is_other(&other) => {
                    self.let_go(other, &found.mounts);
                    None
                }
                known => known,
            };
            match known {
                Some(mut one) => {
                    one.seen_as(candidate, &mut self.journal, &mut self.history);
                    one.treat(treatment);
                    self.managed.insert(numbers, one);
                }
                None => {
                    // Who wants all of it trimmed now and once does not want to wait for a `resume`.
                    let paused = !self.options.once && self.paused.contains(&candidate.mount.mount_point);
                    new.push((numbers, Managed::new(candidate, treatment, paused)));
                }
            }
        }
        for gone in before.into_values() {
            let point = gone.candidate.mount.mount_point.clone();
            let skipped =
                found.skipped.iter().find(|one| one.mount_point == point && !one.fs_type.is_empty());
            let why = if is_mounted(&gone.candidate.mount, &found.mounts) {
                skipped.map_or("its mount is passed over", |one| one.why.as_str())
            } else {
                "it was unmounted"
            };
            self.let_go(gone, &found.mounts);
            self.history.add(&point, "gone", format!("It is not managed any more: {why}."), 0);
        }
        self.restore_unmanaged(&found.mounts);
        new.retain(|(numbers, _)| !self.is_restoring(*numbers));
        self.managed.extend(new);
        self.skipped = found.skipped;
    }

    fn let_go(&mut self, mut one: Managed, mounts: &[Mount]) {
        one.stop(&mut self.left, Instant::now() + END_MAX);
        one.tell_trimmed(&mut self.history);
        if is_mounted(&one.candidate.mount, mounts)
            && let Some(kept) = one.kept()
        {
            self.known.keep(kept);
        }
    }

    /// With `once`: how it ended, when nothing is to be done any more.
    fn once(&mut self) -> Option<Result<(), ServiceError>> {
        let mut failed = Vec::new();
        for one in self.managed.values_mut() {
            let point = one.candidate.mount.mount_point.display();
            match &mut one.live {
                None if one.problem.is_none() => return None,
                None => failed.push(format!("{point}: {}", one.problem.as_deref().unwrap_or_default())),
                Some(live) => match live.reason() {
                    Reason::Failed { message, .. }
                    | Reason::Stuck { message }
                    | Reason::Refused { message } => {
                        failed.push(format!("{point}: {message}"));
                    }
                    _ if !live.was_asked() => {
                        live.trim_now();
                        return None;
                    }
                    _ if live.is_asked() || live.is_busy() => return None,
                    _ => {}
                },
            }
        }
        for one in self.managed.values() {
            let trimmed = one.live.as_ref().map(LiveHost::totals).unwrap_or_default().trimmed_bytes;
            let bytes = trimwise::units::Bytes(trimmed);
            let point = one.candidate.mount.mount_point.display();
            let done = if self.options.dry_run { "would be trimmed" } else { "trimmed" };
            drop(writeln!(io::stdout(), "{point}: {bytes} ({trimmed} bytes) {done}"));
        }
        Some(if failed.is_empty() { Ok(()) } else { Err(ServiceError::NotTrimmed(failed.join("; "))) })
    }

    fn stop(&mut self) {
        self.notify.tell("STOPPING=1");
        self.managed.values_mut().for_each(Managed::kill);
        // For all of them together, or a service manager would lose patience.
        let until = Instant::now() + END_MAX;
        self.managed.values_mut().for_each(|one| one.stop(&mut self.left, until));
        for one in self.managed.values_mut() {
            one.tell_trimmed(&mut self.history);
        }
        self.hear_frees();
        self.keep_known();
        self.managed.clear(); // nothing is managed any more
        self.restore_and_wait();
        self.history.flush();
        drop(std::fs::remove_file(self.options.places.control()));
        drop(std::fs::remove_file(self.options.places.status()));
    }
}

/// Whether a file system is still mounted as it was. Unmounted and mounted again, it may be another one: nothing is known of it.
fn is_mounted(mount: &Mount, mounts: &[Mount]) -> bool {
    mounts.iter().any(|one| one.id == mount.id && one.device == mount.device)
}

/// Says something in the journal, or on a terminal. Where nobody listens any more, the daemon goes on.
pub fn log(text: &str) {
    say(6, text);
}

/// Something is not as it should be: `journalctl -p warning` shows it.
pub fn warn(text: &str) {
    say(4, text);
}

/// With a priority of syslog(3).
pub fn say(priority: u8, text: &str) {
    let is_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    for line in text.lines() {
        let priority = if is_journal { format!("<{priority}>") } else { String::new() };
        drop(writeln!(io::stderr(), "{priority}{}", line.replace(is_unprintable, "\u{fffd}")));
    }
}
