//! The daemon's loop: one thread that waits for the next sample, helpers, signals, mount changes and clients.

mod answer;
mod configured;
mod lending;
mod looking;
mod restoring;
mod state;
mod waiting;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use thiserror::Error;
use trimwise::live::{LiveHost, Reason, spans_each};
use trimwise::units::{SimDuration, SimTime};

use self::lending::Lending;
use self::looking::Looking;
use self::restoring::Restoring;
use self::state::State;
use self::watching::Watching;
use crate::claims::Claims;
use crate::discover::Skipped;
use crate::frees::Watcher;
use crate::history::History;
use crate::journal::{Change, Journal, boot_id};
use crate::known::Store;
use crate::managed::{Idle, Managed, Means};
use crate::metrics::listen::Endpoint;
use crate::notify::Notify;
use crate::paused::Paused;
use crate::places::{Places, PlacesError};
use crate::process::Left;
use crate::sense::raise_descriptors;
use crate::server::Server;
use crate::speak::{log, warn};
use trimwise_linux::daemon::config::{Config, ConfigErrors, group_number};
use trimwise_linux::ioctl::signals;
use trimwise_linux::mount::mountinfo;

/// Maximum number of concurrent helpers: a thousand would exceed a service's limit on tasks.
const HELPERS_MAX: usize = 16;
/// Interval at which the history and the metrics file are written.
const WRITE_EVERY: Duration = Duration::from_secs(60);
const METRICS_EVERY: Duration = Duration::from_secs(15);
/// Interval at which knowledge of trimmed space is written. If the daemon is killed, space trimmed since then is
/// trimmed once more.
const KEEP_EVERY: Duration = Duration::from_secs(300);

/// Time to wait for a killed helper before abandoning it.
const END_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Options {
    pub places: Places,
    /// Look and decide, but change nothing.
    pub dry_run: bool,
    /// Trim everything untrimmed on every managed file system, and exit.
    pub once: bool,
    pub program: PathBuf,
    /// Time limit for a helper: [`PATIENCE`], except in tests.
    pub patience: Duration,
}

/// Default time limit for a helper: longer than any slice takes on a working device.
pub const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Error)]
pub enum ServiceError {
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Places(#[from] PlacesError),
    #[error("{0}")]
    State(String),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(
        "CAP_SYS_ADMIN is missing, which the kernel requires for trimming (FITRIM): start it as root, or with \
         --dry-run"
    )]
    NotPermitted,
    #[error("not trimmed: {0}")]
    NotTrimmed(String),
}

fn cannot(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServiceError {
    let what = what.into();
    move |source| ServiceError::Io { what, source }
}

struct Service {
    options: Options,
    config: Config,
    /// Reason why the configuration on disk is not the one in use.
    config_problem: Option<String>,
    started: Instant,
    managed: BTreeMap<(u32, u32), Managed>,
    left: Left,
    idle: Idle,
    skipped: Vec<Skipped>,
    paused: Paused,
    journal: Journal,
    claims: Claims,
    state: State,
    restoring: Vec<Restoring>,
    /// File systems whose options are restored once a helper is free.
    restoring_later: BTreeSet<(u32, u32)>,
    unrestorable: Vec<Change>,
    history: History,
    known: Store,
    server: Option<Server>,
    metrics: Vec<Endpoint>,
    watching: Watching,
    looking: Looking,
    lending: Lending,
    reloading: Vec<u64>,
    is_ending: bool,
    notify: Notify,
    mountinfo: File,
    hang_up: UnixStream,
    end: UnixStream,
    /// When the loop last woke: one reading of the clock serves a turn.
    woke_at: Instant,
    next_write: Instant,
    next_metrics: Instant,
    next_keep: Instant,
    next_watchdog: Instant,
    _lock: File,
}

/// Runs a daemon until it is told to stop.
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

/// Names the signal that ends the daemon, and who sent it.
fn why_ended(told: signals::Told) -> String {
    let signal = if told.signal == SIGINT { "SIGINT" } else { "SIGTERM" };
    let sender = match told.sender {
        None => "the kernel, as for Ctrl-C".to_owned(),
        Some(0) => "a process in another PID namespace".to_owned(),
        Some(id) => {
            let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            let name = if name.is_empty() { String::new() } else { format!(" ({})", name.trim_end()) };
            format!("process {id}{name}")
        }
    };
    format!("told to end: {signal} from {sender}")
}

impl Service {
    fn begin(options: Options, config: Config) -> Result<Self, ServiceError> {
        let places = &options.places;
        // New files are private unless a mode says otherwise.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        raise_descriptors();
        let lock = places.lock_run()?;
        let handler = |register: &dyn Fn(UnixStream) -> io::Result<()>| {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            register(write).map(|()| read)
        };
        let ends = |write: UnixStream| {
            [SIGTERM, SIGINT].into_iter().try_for_each(|number| signals::tell(number, write.try_clone()?))
        };
        let path = mountinfo(&places.host);
        let mountinfo = File::open(&path).map_err(cannot(path.display().to_string()))?;
        let now = Instant::now();
        let hang_up = handler(&|write| pipe::register(SIGHUP, write).map(drop))
            .map_err(cannot("the handler of SIGHUP"))?;
        let end = handler(&ends).map_err(cannot("the handlers of SIGTERM and SIGINT"))?;
        let group = config.group.as_ref().and_then(|name| group_number(&places.host, name));
        let open = |address| Endpoint::open(address, &options.program, false);
        let metrics: Vec<_> = configured::addresses(&config, group).into_iter().map(open).collect();
        metrics.iter().filter_map(Endpoint::problem).for_each(warn);
        let mut service = Self {
            // This is the last step that may fail: an existing socket means that the daemon is listening.
            server: Some(configured::open_server(places, &config, group)?),
            metrics,
            watching: Watching::default(),
            looking: Looking::new(&options),
            lending: Lending::new(&options),
            reloading: Vec::new(),
            is_ending: false,
            journal: Journal::default(),
            claims: Claims::new(&options.places, boot_id(), options.dry_run),
            state: State::new(&options),
            restoring: Vec::new(),
            restoring_later: BTreeSet::new(),
            unrestorable: Vec::new(),
            history: History::default(),
            known: Store::default(),
            hang_up,
            end,
            mountinfo,
            config,
            config_problem: None,
            started: now,
            managed: BTreeMap::new(),
            left: Left::default(),
            idle: Idle::default(),
            skipped: Vec::new(),
            paused: Paused::default(),
            notify: Notify::from_environment(),
            woke_at: now,
            next_write: now + WRITE_EVERY,
            next_metrics: now + METRICS_EVERY, // when there is something to report
            next_keep: now + KEEP_EVERY,
            next_watchdog: now,
            options,
            _lock: lock,
        };
        service.open_state_and_wait()?;
        service.watch();
        service.restore_and_wait(); // what a killed daemon left, before managing the rest
        service.notify.tell("READY=1\nSTATUS=Managing file systems");
        log(&format!("trimwised {}; file systems managed: {}", trimwise::VERSION, service.managed.len()));
        Ok(service)
    }

    fn time_of(&self, instant: Instant) -> SimTime {
        let since = instant.saturating_duration_since(self.started).as_nanos();
        SimTime::ZERO + SimDuration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn now(&self) -> SimTime {
        self.time_of(self.woke_at)
    }

    fn helpers_at_work(&self) -> usize {
        self.managed.values().filter(|one| one.has_helper()).count() + self.restoring.len()
    }

    /// Calls `act` with every managed file system and the daemon's resources.
    fn each(&mut self, mut act: impl FnMut(&mut Managed, &mut Means<'_>)) {
        let now = self.now();
        let at_work = self.helpers_at_work();
        let mut means = Means {
            program: &self.options.program,
            dry_run: self.options.dry_run,
            patience: self.options.patience,
            now,
            room: HELPERS_MAX.saturating_sub(at_work),
            reports_failures: self.watching.watcher.as_ref().is_some_and(Watcher::reports_failures),
            spans_max: spans_each(self.managed.len()),
            journal: &mut self.journal,
            claims: &mut self.claims,
            history: &mut self.history,
            known: &mut self.known,
            left: &mut self.left,
            idle: &mut self.idle,
        };
        self.managed.values_mut().for_each(|one| act(one, &mut means));
    }

    fn until_told(&mut self) -> Result<(), ServiceError> {
        loop {
            let events = self.wait().map_err(cannot("poll"))?;
            if let Some(told) = events.end {
                log(&why_ended(told));
                return Ok(());
            }
            if events.hang_up {
                self.reload(None);
            }
            let now = Instant::now();
            self.woke_at = now;
            let is_sample_due = self.is_sample_due(now);
            // Receive answers whole before reading the tracepoints: by then, each of their failed discards is there.
            self.managed.values_mut().for_each(|one| one.receive(&mut self.left));
            if events.frees || is_sample_due || self.managed.values().any(Managed::is_answered) {
                self.hear_frees();
            }
            self.left.reap();
            self.each(Managed::hear);
            self.hear_restored();
            if events.claims {
                self.defend_claims();
            }
            if events.mounts {
                self.looking.mounts_changed();
            }
            self.look(now);
            self.hear_lenders(now);
            if is_sample_due {
                self.each(Managed::see_stuck);
                if self.claims.try_again() {
                    self.looking.discover_now();
                }
                self.idle.age(now, &mut self.left);
                self.sample(now);
                self.ask_lenders(now);
                self.choose_watched();
                if self.options.once
                    && let Some(ended) = self.once()
                {
                    return ended;
                }
            }
            self.each(|one, means| {
                one.tick(means);
                one.probe(means);
            });
            self.start_held();
            self.serve(now, events.clients);
            self.write(now);
        }
    }

    /// Starts the decisions that wait, but never two slices on the same disk.
    fn start_held(&mut self) {
        let mut busy: BTreeSet<String> = self
            .managed
            .values()
            .filter(|one| one.keeps_its_disks_busy())
            .flat_map(|one| one.candidate.layers.clone())
            .collect();
        self.each(|one, means| {
            one.start_held(&busy, means);
            if one.keeps_its_disks_busy() {
                busy.extend(one.candidate.layers.iter().cloned());
            }
        });
    }

    fn serve(&mut self, now: Instant, are_clients_ready: bool) {
        if let Some(mut server) = self.server.take() {
            if are_clients_ready || !server.is_idle() {
                server.serve(|request, id| self.answer(request, id));
            }
            self.server = Some(server);
        }
        let mut metrics = std::mem::take(&mut self.metrics);
        for endpoint in &mut metrics {
            endpoint.try_again(now);
            endpoint.serve(|| self.metrics_text());
        }
        self.metrics = metrics;
    }

    fn write(&mut self, now: Instant) {
        self.tell_watchdog(now);
        if now >= self.next_write {
            self.next_write = now + WRITE_EVERY;
            for one in self.managed.values_mut() {
                one.tell_trimmed(&mut self.history);
            }
            self.write_history();
        }
        let mut has_failed = false;
        for one in self.managed.values_mut() {
            has_failed |= one.take_unkept_failure();
        }
        if has_failed || now >= self.next_keep {
            self.next_keep = now + KEEP_EVERY;
            self.keep_known();
        }
        if let Some(path) = self.config.metrics_file.clone()
            && now >= self.next_metrics
        {
            self.next_metrics = now + METRICS_EVERY;
            self.write_metrics(path);
        }
        self.keep_state(now);
    }

    fn tell_watchdog(&mut self, now: Instant) {
        if let Some(every) = self.notify.watchdog_every()
            && now >= self.next_watchdog
        {
            self.next_watchdog = now + every;
            self.notify.tell("WATCHDOG=1");
        }
    }

    fn let_go(&mut self, mut one: Managed, is_mounted: bool) {
        one.stop(&mut self.left, Instant::now()); // does not wait for it
        one.tell_trimmed(&mut self.history);
        if is_mounted && let Some(kept) = one.kept() {
            self.known.keep(kept);
        }
    }

    /// Returns the result of a run with `once`, when nothing is left to do.
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
        let refused = self.claims.refused();
        failed.extend(refused.map(|(point, why)| format!("{}: {why}", point.display())));
        for one in self.managed.values() {
            let totals = one.live.as_ref().map(LiveHost::totals).unwrap_or_default();
            let done = if self.options.dry_run { "would be trimmed" } else { "trimmed" };
            let sent = totals.sent().words(&format!("({} bytes) {done}", totals.trimmed_bytes));
            let point = one.candidate.mount.mount_point.display();
            drop(writeln!(io::stdout(), "{point}: {sent}"));
        }
        Some(if failed.is_empty() { Ok(()) } else { Err(ServiceError::NotTrimmed(failed.join("; "))) })
    }

    fn stop(&mut self) {
        self.notify.tell("STOPPING=1");
        self.is_ending = true;
        self.managed.values_mut().for_each(Managed::kill);
        // One deadline for all of them, so as not to exceed a service manager's timeout.
        let until = Instant::now() + END_MAX;
        self.managed.values_mut().for_each(|one| one.stop(&mut self.left, until));
        for one in self.managed.values_mut() {
            one.tell_trimmed(&mut self.history);
        }
        self.hear_frees();
        self.keep_known();
        self.managed.clear(); // nothing is managed from here on
        self.restore_and_wait();
        self.idle.end(&mut self.left, until);
        self.looking.end(&mut self.left);
        self.lending.worker.end(&mut self.left, until);
        self.save_and_wait();
        let mut sockets = vec![self.options.places.control(), self.options.places.status()];
        let of_metrics = self.metrics.iter().filter(|one| one.problem().is_none());
        sockets.extend(of_metrics.filter_map(|one| one.address().path()).map(Path::to_owned));
        self.metrics.drain(..).for_each(|one| one.end(&mut self.left));
        self.state.end(&mut self.left, &self.options.program, sockets);
    }
}
