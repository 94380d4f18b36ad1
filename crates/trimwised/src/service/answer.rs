//! What the daemon answers to whoever asks.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trimwise::live::{LiveHost, Status};
use trimwise::units::Bytes;

use super::{Service, warn};
use crate::discover::Skipped;
use crate::history::Entry;
use crate::managed::Managed;
use crate::metrics::{self, Seen};
use trimwise_linux::daemon::control::{Request, Response};
use trimwise_linux::mount::as_text;

/// One file system in the answer to `status`.
#[derive(Debug, Serialize)]
struct FileSystem<'a> {
    mount_point: &'a Path,
    fs_type: &'a str,
    devices: Vec<&'a str>,
    /// `null` until it was looked at for the first time.
    status: Option<Status>,
    /// Why it could not be looked at.
    problem: Option<&'a str>,
    /// How the mount option was before the daemon changed it; `null` if it is as somebody wrote it.
    option_before: Option<&'a str>,
    /// How it is now.
    option: &'a str,
}

/// The answer to `status`.
#[derive(Debug, Serialize)]
struct Whole<'a> {
    trimwise: &'static str,
    process: u32,
    uptime_ns: u64,
    dry_run: bool,
    #[serde(serialize_with = "as_text")]
    config: &'a Path,
    config_problem: Option<&'a str>,
    history_problem: Option<&'a str>,
    metrics_problem: Option<&'a str>,
    /// Why frees are not seen as they happen; null if they are, or the configuration does not want it.
    tracepoints_problem: Option<&'a str>,
    file_systems: Vec<FileSystem<'a>>,
    skipped: &'a [Skipped],
}

/// The answer to `history`.
#[derive(Debug, Serialize)]
struct Past<'a> {
    mount_point: &'a Path,
    /// The oldest first.
    entries: Vec<Entry>,
}

/// The answer to `pause` and `resume`.
#[derive(Debug, Serialize)]
struct Switched {
    mount_points: Vec<PathBuf>,
    /// Why the next daemon will not know of it; null if it will.
    not_saved: Option<String>,
}

/// The answer to `trim`, which is done later.
#[derive(Debug, Serialize)]
struct Asked<'a> {
    mount_point: &'a Path,
    /// What waits, as far as is known before the next look.
    waiting_bytes: Bytes,
    /// Then nothing is sent.
    dry_run: bool,
}

/// The answer to `reload`.
#[derive(Debug, Serialize)]
struct Reloaded<'a> {
    #[serde(serialize_with = "as_text")]
    config: &'a Path,
}

/// The answer to `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// Its mount point.
    pub mount_point: PathBuf,
    /// Sentences, in their order.
    pub sentences: Vec<String>,
}

impl Service {
    pub(super) fn answer(&mut self, request: &Request) -> Response {
        match request {
            Request::Status => Response::done(self.whole()),
            Request::Explain { mount } => self.explain(mount),
            Request::History { mount, limit } => self.past(mount, *limit),
            Request::Pause { mount, .. } => self.pause(mount.as_deref(), true),
            Request::Resume { mount } => self.pause(mount.as_deref(), false),
            Request::Trim { mount } => self.trim_now(mount),
            Request::Reload => match self.reload() {
                Ok(()) => Response::done(Reloaded { config: &self.options.places.config }),
                Err(why) => Response::refused(why),
            },
        }
    }

    /// What is not managed any more has a history too.
    fn past(&mut self, mount: &Path, limit: u32) -> Response {
        match self.history.last(mount, limit) {
            Ok(entries) if entries.is_empty() => match self.of(mount) {
                Ok(_) => Response::done(Past { mount_point: mount, entries }),
                Err(why) => Response::wrong(why),
            },
            Ok(entries) => Response::done(Past { mount_point: mount, entries }),
            Err(error) => Response::refused(error),
        }
    }

    fn trim_now(&mut self, mount: &Path) -> Response {
        let dry_run = self.options.dry_run;
        match self.of(mount) {
            Ok(one) => match &mut one.live {
                Some(live) if live.is_paused() => Response::refused("it is paused; `trimwise resume` first"),
                Some(live) => {
                    live.trim_now();
                    Response::done(Asked { mount_point: mount, waiting_bytes: live.waiting(), dry_run })
                }
                None => {
                    Response::refused(one.problem.clone().unwrap_or_else(|| "it was only just found".into()))
                }
            },
            Err(why) => Response::wrong(why),
        }
    }

    fn whole(&self) -> Whole<'_> {
        let file_systems = self.managed.values().map(|one| FileSystem {
            mount_point: &one.candidate.mount.mount_point,
            fs_type: &one.candidate.mount.fs_type,
            devices: one.candidate.devices.iter().map(|device| device.name.as_str()).collect(),
            status: one.seen().map(LiveHost::status),
            problem: one.problem.as_deref(),
            option_before: self
                .journal
                .was(&one.candidate.mount)
                .filter(|was| *was != one.candidate.mount.discard()),
            option: one.candidate.mount.discard(),
        });
        Whole {
            trimwise: trimwise::VERSION,
            process: std::process::id(),
            uptime_ns: self.now().as_nanos(),
            dry_run: self.options.dry_run,
            config: &self.options.places.config,
            config_problem: self.config_problem.as_deref(),
            history_problem: self.history.problem(),
            metrics_problem: self.metrics_problem.as_deref().filter(|_| self.config.metrics_file.is_some()),
            tracepoints_problem: self.watching.problem.as_deref(),
            file_systems: file_systems.collect(),
            skipped: &self.skipped,
        }
    }

    fn of(&mut self, mount: &Path) -> Result<&mut Managed, String> {
        let skipped = self.skipped.iter().find(|one| one.mount_point == mount).map(|one| one.why.clone());
        let managed = self.managed.values_mut().find(|one| one.candidate.mount.mount_point == mount);
        managed.ok_or_else(|| match skipped {
            Some(why) => format!("{} is not managed: {why}", mount.display()),
            None => format!("{}: no file system that can be trimmed is mounted there", mount.display()),
        })
    }

    fn explain(&mut self, mount: &Path) -> Response {
        let dry_run = self.options.dry_run;
        match self.of(mount) {
            Ok(one) => {
                let mut sentences = match (one.seen(), &one.problem) {
                    (Some(live), _) => live.explain(),
                    (None, Some(problem)) => vec![format!("It cannot be looked at: {problem}.")],
                    (None, None) => vec!["It was only just found.".to_owned()],
                };
                if dry_run {
                    sentences.push("Dry run: whatever is said to be done is not.".to_owned());
                }
                Response::done(Explained { mount_point: mount.to_owned(), sentences })
            }
            Err(why) => Response::wrong(why),
        }
    }

    fn pause(&mut self, mount: Option<&Path>, paused: bool) -> Response {
        let points: Vec<PathBuf> = match mount {
            Some(mount) => vec![mount.to_owned()],
            None => self.managed.values().map(|one| one.candidate.mount.mount_point.clone()).collect(),
        };
        let mut done = Vec::new();
        for point in points {
            let was_paused = self.paused.contains(&point);
            match self.of(&point) {
                Ok(one) => one.pause(paused),
                // It is not mounted now, and would be paused when it is.
                Err(_) if !paused && was_paused => {}
                Err(why) => return Response::wrong(why),
            }
            done.push(point);
        }
        let (kind, text) =
            if paused { ("paused", "Paused by a user.") } else { ("resumed", "Resumed by a user.") };
        for point in &done {
            if self.paused.set(point, paused) {
                self.history.add(point, kind, text.to_owned(), 0);
            }
        }
        if mount.is_none() && !paused {
            self.paused.clear();
        }
        let saved = if self.options.dry_run { Ok(()) } else { self.paused.write() };
        let file = self.options.places.paused();
        let not_saved =
            saved.err().map(|error| format!("{}: {error}; the next daemon will not know", file.display()));
        not_saved.iter().for_each(|problem| warn(problem));
        Response::done(Switched { mount_points: done, not_saved })
    }

    pub(super) fn metrics_text(&self) -> String {
        let whole = metrics::Whole {
            is_config_broken: self.config_problem.is_some(),
            is_history_broken: self.history.problem().is_some(),
        };
        let seen = self.managed.values().map(|one| Seen {
            mount: &one.candidate.mount.mount_point,
            status: one.seen().map(LiveHost::status),
            has_problem: one.problem.is_some(),
        });
        metrics::render(whole, seen)
    }
}
