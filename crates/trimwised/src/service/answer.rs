use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trimwise::live::{LiveHost, Status, Totals, Untrimmed};

use super::Service;
use crate::discover::Skipped;
use crate::history::Entry;
use crate::managed::Managed;
use crate::metrics::listen::Endpoint;
use crate::metrics::{self, Seen};
use crate::speak::{self, warn};
use trimwise_linux::code::Code;
use trimwise_linux::daemon::control::{Request, Response};
use trimwise_linux::mount::as_text;

#[derive(Debug, Serialize)]
struct FileSystem<'a> {
    mount_point: &'a Path,
    fs_type: &'a str,
    devices: Vec<&'a str>,
    /// The policy that is configured, which holds before the file system was first examined, too.
    policy: String,
    /// `null` until the file system was first examined.
    status: Option<Status>,
    problem: Option<&'a str>,
    /// The mount option before the daemon changed it; `null` if the daemon did not change it.
    option_before: Option<&'a str>,
    option: &'a str,
    /// Why the mount option could not be changed; `null` if it could, or need not be.
    option_problem: Option<&'a str>,
    /// Codes of what is wrong with it.
    codes: Vec<Code>,
}

#[derive(Debug, Serialize)]
struct Whole<'a> {
    trimwise: &'static str,
    process: u32,
    uptime_ns: u64,
    dry_run: bool,
    #[serde(serialize_with = "as_text")]
    config: &'a Path,
    config_problem: Option<&'a str>,
    state_problem: Option<String>,
    history_problem: Option<String>,
    mounts_problem: Option<&'a str>,
    /// Names the process limit that is too small for the mounted devices.
    limits_problem: Option<String>,
    metrics_problem: Option<String>,
    /// Names the file systems that another daemon manages.
    taken_problem: Option<String>,
    /// Names the file systems that this daemon no longer manages and whose mount option could not be put back.
    option_problem: Option<String>,
    /// Reason why frees are not seen as they happen; null if they are, or if tracepoints are off.
    tracepoints_problem: Option<&'a str>,
    log_lines_dropped: u64,
    /// Codes of what is wrong with the daemon itself.
    codes: Vec<Code>,
    file_systems: Vec<FileSystem<'a>>,
    skipped: &'a [Skipped],
}

impl Whole<'_> {
    fn problems(&self) -> Vec<Code> {
        only([
            (self.config_problem.is_some(), Code::DaemonConfig),
            (self.state_problem.is_some(), Code::DaemonState),
            (self.history_problem.is_some(), Code::DaemonHistory),
            (self.mounts_problem.is_some(), Code::DaemonMounts),
            (self.limits_problem.is_some(), Code::DaemonLimits),
            (self.metrics_problem.is_some(), Code::DaemonMetrics),
            (self.taken_problem.is_some(), Code::DaemonMountTaken),
            (self.option_problem.is_some(), Code::DaemonOption),
        ])
    }
}

/// Returns the codes of what is wrong with a file system. `live`: whether trimming it is in trouble, and what was
/// trimmed.
fn problems_of(
    problem: Option<&str>,
    option_problem: Option<&str>,
    live: Option<(bool, Totals)>,
    is_dry: bool,
) -> Vec<Code> {
    let (is_trouble, totals) = live.unwrap_or_default();
    let is_uncounted = totals.trimmed_bytes > 0 && totals.counted_bytes == 0;
    only([
        (problem.is_some(), Code::DaemonMount),
        (option_problem.is_some(), Code::DaemonOption),
        (is_trouble, Code::DaemonTrouble),
        (is_uncounted && !is_dry, Code::DaemonUncounted),
    ])
}

fn only<const N: usize>(all: [(bool, Code); N]) -> Vec<Code> {
    all.into_iter().filter_map(|(is_found, code)| is_found.then_some(code)).collect()
}

#[derive(Debug, Serialize)]
struct Past<'a> {
    mount_point: &'a Path,
    entries: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Switched {
    mount_points: Vec<PathBuf>,
    /// Those of them where a slice is still in progress, which a pause does not stop.
    still_trimming: Vec<PathBuf>,
    /// Reason why the next daemon will not know the pause; null if it will.
    not_saved: Option<String>,
}

#[derive(Debug, Serialize)]
struct Asked<'a> {
    mount_point: &'a Path,
    /// Bytes that wait to be trimmed, as known before the next look; `null` if unknown.
    waiting_bytes: Untrimmed,
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct Reloaded<'a> {
    #[serde(serialize_with = "as_text")]
    config: &'a Path,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Explained {
    pub mount_point: PathBuf,
    /// Explanation, one sentence each, in order.
    pub sentences: Vec<String>,
}

const PAUSING: &str =
    "Paused by `trimwise pause`: the slice in progress cannot be stopped, and no other one begins.";

impl Service {
    pub(super) fn switched(&self, mount_points: Vec<PathBuf>, not_saved: Option<String>) -> Response {
        not_saved.iter().for_each(|problem| warn(problem));
        let pausing = self.managed.values().filter(|one| one.is_pausing());
        let pausing: BTreeSet<&PathBuf> = pausing.map(|one| &one.candidate.mount.mount_point).collect();
        let still_trimming = mount_points.iter().filter(|point| pausing.contains(point)).cloned().collect();
        Response::done(Switched { mount_points, still_trimming, not_saved })
    }

    /// Responds to a request. Returns `None` if the response will be sent later, by its number.
    pub(super) fn answer(&mut self, request: &Request, number: u64) -> Option<Response> {
        Some(match request {
            Request::Status => Response::done(self.whole()),
            Request::Explain { mount } => self.explain(mount),
            Request::History { mount, limit } => {
                let why = self.ask_past(mount.clone(), *limit, number).err()?;
                self.past(mount, *limit, Err(why))
            }
            Request::Pause { mount, .. } => return self.pause(mount.as_deref(), true, number),
            Request::Resume { mount } => return self.pause(mount.as_deref(), false, number),
            Request::Trim { mount } => self.trim_now(mount),
            Request::Reload => {
                self.reload(Some(number));
                return None;
            }
        })
    }

    /// Answers `reload`, once the configuration is in effect.
    pub(super) fn reloaded(&self) -> Response {
        Response::done(Reloaded { config: &self.options.places.config })
    }

    /// Answers `history`, also for a file system that is no longer managed.
    pub(super) fn past(&mut self, mount: &Path, limit: u32, read: Result<Vec<Entry>, String>) -> Response {
        match self.history.last(mount, limit, read) {
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
            policy: one.treatment.policy.to_string(),
            status: one.seen().map(LiveHost::status),
            problem: one.problem.as_deref(),
            option_before: self
                .journal
                .was(&one.candidate)
                .filter(|was| *was != one.candidate.mount.discard()),
            option: one.candidate.mount.discard(),
            option_problem: one.toggle_problem.as_deref(),
            codes: self.codes_of(one),
        });
        let mut whole = Whole {
            trimwise: trimwise::VERSION,
            process: std::process::id(),
            uptime_ns: self.now().as_nanos(),
            dry_run: self.options.dry_run,
            config: &self.options.places.config,
            config_problem: self.config_problem.as_deref(),
            state_problem: self.state_problem(),
            history_problem: self.history.problem(),
            limits_problem: self.limits_problem(),
            mounts_problem: self.looking.problem.as_deref(),
            metrics_problem: self.metrics_problem(),
            taken_problem: self.taken_problem(),
            option_problem: self.option_problem(),
            tracepoints_problem: self.watching.problem.as_deref(),
            log_lines_dropped: speak::dropped(),
            codes: Vec::new(),
            file_systems: file_systems.collect(),
            skipped: &self.skipped,
        };
        whole.codes = whole.problems();
        whole
    }

    fn codes_of(&self, one: &Managed) -> Vec<Code> {
        let live = one.seen().map(LiveHost::status).map(|status| (status.trouble, status.totals));
        problems_of(one.problem.as_deref(), one.toggle_problem.as_deref(), live, self.options.dry_run)
    }

    fn option_problem(&self) -> Option<String> {
        let points: Vec<_> =
            self.unrestorable.iter().map(|one| one.mount_point.display().to_string()).collect();
        let why =
            "the mount option could not be put back; `history` says why, and the next daemon tries again";
        (!points.is_empty()).then(|| format!("{}: {why}", points.join(", ")))
    }

    fn taken_problem(&self) -> Option<String> {
        let mut points = self.claims.refused().map(|(point, why)| format!("{}: {why}", point.display()));
        let first = points.next()?;
        Some(match points.count() {
            0 => first,
            others => format!("{first}; and {others} more"),
        })
    }

    fn metrics_problem(&self) -> Option<String> {
        let file = self.state.metrics_problem.as_deref().filter(|_| self.config.metrics_file.is_some());
        let problems: Vec<&str> =
            file.into_iter().chain(self.metrics.iter().filter_map(Endpoint::problem)).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
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
                    (None, Some(problem)) => vec![format!("It cannot be examined: {problem}.")],
                    (None, None) => vec!["It was found only a moment ago.".to_owned()],
                };
                if one.is_pausing() {
                    sentences.push(PAUSING.to_owned());
                }
                if dry_run {
                    sentences.push("Dry run: nothing described here is carried out.".to_owned());
                }
                Response::done(Explained { mount_point: mount.to_owned(), sentences })
            }
            Err(why) => Response::wrong(why),
        }
    }

    fn pause(&mut self, mount: Option<&Path>, paused: bool, request: u64) -> Option<Response> {
        let points: Vec<PathBuf> = match mount {
            Some(mount) => vec![mount.to_owned()],
            None => self.managed.values().map(|one| one.candidate.mount.mount_point.clone()).collect(),
        };
        let mut done = Vec::new();
        for point in points {
            let was_paused = self.paused.contains(&point);
            match self.of(&point) {
                Ok(one) => one.pause(paused),
                // It is not mounted now, but would be paused when mounted.
                Err(_) if !paused && was_paused => {}
                Err(why) => return Some(Response::wrong(why)),
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
        if self.options.dry_run {
            return Some(self.switched(done, None));
        }
        let version = self.paused.saving.changed();
        self.ask_paused(version, done, request);
        None
    }

    pub(super) fn metrics_text(&self) -> String {
        let whole = metrics::Whole {
            is_config_broken: self.config_problem.is_some(),
            is_history_broken: self.history.problem().is_some(),
            uptime_s: self.started.elapsed().as_secs(),
            is_state_broken: self.state_problem().is_some(),
            log_lines_dropped: speak::dropped(),
            codes: self.whole().codes,
        };
        let seen = self.managed.values().map(|one| Seen {
            mount: &one.candidate.mount.mount_point,
            status: one.seen().map(LiveHost::status),
            has_problem: one.problem.is_some(),
            device: &one.candidate.mount.device,
            fs_type: &one.candidate.mount.fs_type,
            trimmed_at_s: one.trimmed_at_s,
            looked_at_s: one.looked_at_s,
            codes: self.codes_of(one),
        });
        metrics::render(&whole, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Whole<'static> {
        Whole {
            trimwise: trimwise::VERSION,
            process: 1,
            uptime_ns: 0,
            dry_run: false,
            config: Path::new("/etc/trimwise/trimwised.toml"),
            config_problem: None,
            state_problem: None,
            history_problem: None,
            mounts_problem: None,
            limits_problem: None,
            metrics_problem: None,
            taken_problem: None,
            option_problem: None,
            tracepoints_problem: None,
            log_lines_dropped: 0,
            codes: Vec::new(),
            file_systems: Vec::new(),
            skipped: &[],
        }
    }

    #[test]
    fn each_problem_of_the_daemon_has_its_code() {
        let why = || Some("why".to_owned());
        for (whole, codes) in [
            (sound(), &[][..]),
            (Whole { tracepoints_problem: Some("why"), ..sound() }, &[]),
            (Whole { config_problem: Some("why"), ..sound() }, &["daemon.config.broken"]),
            (Whole { state_problem: why(), ..sound() }, &["daemon.state.broken"]),
            (Whole { history_problem: why(), ..sound() }, &["daemon.history.broken"]),
            (Whole { mounts_problem: Some("why"), ..sound() }, &["daemon.mounts.unreadable"]),
            (Whole { limits_problem: why(), ..sound() }, &["daemon.limits.too-low"]),
            (Whole { metrics_problem: why(), ..sound() }, &["daemon.metrics.broken"]),
            (Whole { taken_problem: why(), ..sound() }, &["daemon.mount.taken"]),
            (Whole { option_problem: why(), ..sound() }, &["daemon.option.unchanged"]),
            (
                Whole { metrics_problem: why(), config_problem: Some("why"), ..sound() },
                &["daemon.config.broken", "daemon.metrics.broken"],
            ),
        ] {
            let found: Vec<&str> = whole.problems().into_iter().map(Code::as_str).collect();
            assert_eq!(found, codes, "{whole:?}");
        }
    }

    #[test]
    fn each_problem_of_a_file_system_has_its_code() {
        let live = |is_trouble, trimmed_bytes, counted_bytes| {
            Some((is_trouble, Totals { trimmed_bytes, counted_bytes, ..Totals::default() }))
        };
        for (problem, option_problem, live, is_dry, codes) in [
            (None, None, None, false, &[][..]),
            (None, None, live(false, 0, 0), false, &[]),
            (None, None, live(false, 4096, 1), false, &[]),
            (None, None, live(false, 4096, 0), true, &[]),
            (None, None, live(false, 4096, 0), false, &["daemon.trim.uncounted"]),
            (None, None, live(true, 0, 0), true, &["daemon.trim.trouble"]),
            (None, Some("busy"), live(false, 0, 0), false, &["daemon.option.unchanged"]),
            (Some("gone"), None, None, false, &["daemon.mount.problem"]),
            (
                Some("gone"),
                None,
                live(true, 4096, 0),
                false,
                &["daemon.mount.problem", "daemon.trim.trouble", "daemon.trim.uncounted"],
            ),
        ] {
            let found = problems_of(problem, option_problem, live, is_dry);
            let found: Vec<&str> = found.into_iter().map(Code::as_str).collect();
            assert_eq!(found, codes, "{problem:?} {live:?} {is_dry}");
        }
    }
}
