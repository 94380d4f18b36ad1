//! Finds everything that trims periodically: systemd units, a running `trimwised`, cron.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use trimwise::policy::{BatchConfig, PolicyId, Trimmer};
use trimwise::units::SimDuration;

use crate::daemon::control::{Client, ClientError, Request};
use crate::fstab;
use crate::host_root::HostRoot;
use crate::mount::Mount;
use crate::systemd;

pub(crate) const FSTRIM_TIMER: &str = "fstrim.timer";
/// The name of the daemon among what trims at intervals.
pub const TRIMWISED: &str = "trimwised";

/// Why trimwised leaves alone what it was told to.
pub(super) const POLICY_OFF: &str = "its policy there is off";

/// Words for intervals, as systemd.time(7) and the folders of cron have them, in seconds.
const INTERVALS: [(&str, u64); 4] =
    [("hourly", 3600), ("daily", 86_400), ("weekly", 7 * 86_400), ("monthly", 30 * 86_400)];

/// Something that trims a file system at intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Periodic {
    /// Its name: `fstrim.timer`, `trimwised`, `/etc/cron.weekly/fstrim`.
    pub name: String,
    /// What it does there, as a policy; `None` if unknown, such as a timer with an unusual calendar.
    pub policy: Option<PolicyId>,
}

/// Everything that trims periodically.
pub(crate) struct Trimmers {
    pub names: Vec<String>,
    /// How often fstrim.timer elapses, if its calendar is one of systemd's words.
    timer_every: Option<SimDuration>,
    /// Timers of single mounts, as `trimwise advise --apply` makes them: the mount point, and the unit.
    single: Vec<(PathBuf, String)>,
    /// Entries of fstab, which fstrim.timer follows.
    pub fstab: Vec<fstab::Entry>,
    /// Status reported by the daemon; `None` if none is running or it refuses this user.
    status: Option<Value>,
    /// True if the daemon's unit is enabled but the daemon is not running.
    pub is_daemon_missing: bool,
}

/// Finds everything that trims periodically. `run` is the host's folder of the daemon's sockets.
pub fn trimmers(root: &HostRoot, run: &Path, mounts: &[Mount]) -> Trimmers {
    let is_wanted = |unit: &str, target: &str| {
        let folders = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
        let is_masked =
            root.path(folders[0]).join(unit).read_link().is_ok_and(|to| to == Path::new("/dev/null"));
        !is_masked && folders.iter().any(|folder| root.has(format!("{folder}/{target}.wants/{unit}")))
    };
    let mut names = Vec::new();
    // Under another init, enabled units never run.
    let is_running = systemd::is_running(root);
    let mut timer_every = None;
    if is_running && is_wanted(FSTRIM_TIMER, "timers.target") {
        names.push(FSTRIM_TIMER.to_owned());
        timer_every = interval_of_timer(root);
    }
    let asked = Client::connect(&root.path(run)).and_then(|mut client| client.ask(&Request::Status));
    let is_enabled = is_running && is_wanted("trimwised.service", "multi-user.target");
    // A killed daemon leaves a socket that nothing listens on.
    let is_there = !matches!(asked, Err(ClientError::None { .. }));
    if is_enabled || is_there {
        names.push(TRIMWISED.to_owned());
    }
    for (every, _) in INTERVALS {
        let file = format!("/etc/cron.{every}/fstrim");
        if root.has(&file) {
            names.push(file);
        }
    }
    let single = if is_running { single_timers(root) } else { Vec::new() };
    Trimmers {
        names,
        timer_every,
        single,
        fstab: fstab::entries(root, mounts, |_| true),
        status: asked.ok(),
        is_daemon_missing: is_enabled && !is_there && root.is_own(),
    }
}

impl Trimmers {
    /// Returns those that trim this file system, and the reasons why the others do not.
    pub fn of(&self, mount: &Mount, mounts: &[Mount]) -> (Vec<Periodic>, Vec<String>) {
        let same: Vec<&Mount> = mounts.iter().filter(|other| other.is_same_file_system(mount)).collect();
        let is_at = |point: &Path| same.iter().any(|one| one.mount_point == point);
        let (mut coming, mut others) = (Vec::new(), Vec::new());
        for name in &self.names {
            let entries = || self.fstab.iter().filter(|entry| is_at(&entry.point));
            let is_spared =
                || entries().any(|entry| entry.has(NO_TRIM)).then(|| format!("{NO_TRIM} in /etc/fstab"));
            let why_not = match name.as_str() {
                // `fstrim --listed-in /etc/fstab:/proc/self/mountinfo` uses the first of these files that is not empty
                // (util-linux 2.33), and takes each file system once, wherever else it is mounted.
                FSTRIM_TIMER if !self.fstab.is_empty() && entries().next().is_none() => {
                    Some("it follows /etc/fstab, which does not list it".to_owned())
                }
                TRIMWISED => is_spared()
                    .or_else(|| self.status.as_ref().and_then(|status| why_not_by_daemon(status, &same))),
                _ => is_spared(),
            };
            match why_not {
                Some(why) => others.push(format!("{name}: {why}")),
                None => coming.push(Periodic { policy: self.policy_of(name, &same), name: name.clone() }),
            }
        }
        let single = self.single.iter().filter(|(point, _)| is_at(point));
        coming.extend(single.map(|(_, unit)| Periodic {
            name: unit.clone(),
            policy: unit.split(['-', '@']).find_map(interval).map(sweep),
        }));
        (coming, others)
    }

    fn policy_of(&self, name: &str, mounts: &[&Mount]) -> Option<PolicyId> {
        match name {
            TRIMWISED => {
                let live = &managed(self.status.as_ref()?, mounts)?["status"];
                Some(Trimmer::Daemon(live["policy"].as_str()?.parse().ok()?).into())
            }
            FSTRIM_TIMER => self.timer_every.map(sweep),
            cron => cron.split(['.', '/']).find_map(interval).map(sweep),
        }
    }
}

/// The option of fstab(5) that exempts a file system from `fstrim --all` and `--listed-in`.
pub const NO_TRIM: &str = "X-fstrim.notrim";

fn interval(word: &str) -> Option<SimDuration> {
    INTERVALS
        .into_iter()
        .find(|(known, _)| *known == word)
        .map(|(_, seconds)| SimDuration::from_secs(seconds))
}

fn sweep(every: SimDuration) -> PolicyId {
    Trimmer::Kernel(BatchConfig { every, units_min: 1 }.into()).into()
}

/// Reads the calendar of fstrim.timer; `None` if it is none of systemd's words.
fn interval_of_timer(root: &HostRoot) -> Option<SimDuration> {
    let mut calendar = Vec::new();
    for line in systemd::text(root, FSTRIM_TIMER)?.lines() {
        match line.trim().split_once('=') {
            Some(("OnCalendar", "")) => calendar.clear(),
            Some(("OnCalendar", when)) => calendar.push(when.trim().to_owned()),
            Some(("OnUnitActiveSec" | "OnUnitInactiveSec" | "OnActiveSec" | "OnBootSec", when))
                if !when.is_empty() =>
            {
                calendar.push(when.to_owned());
            }
            _ => {}
        }
    }
    match &calendar[..] {
        [one] => interval(one),
        _ => None,
    }
}

/// Finds enabled timers of single mounts: `fstrim-weekly@home.timer`.
fn single_timers(root: &HostRoot) -> Vec<(PathBuf, String)> {
    let wanted = std::fs::read_dir(root.path("/etc/systemd/system/timers.target.wants"));
    let names =
        wanted.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<(PathBuf, String)> = names
        .filter_map(|unit| {
            let (_, mount) = unit.strip_prefix("fstrim-")?.strip_suffix(".timer")?.split_once('@')?;
            Some((systemd::unescaped_path(mount)?, unit.clone()))
        })
        .collect();
    found.sort_unstable();
    found
}

/// Returns what a daemon's status says of the file system of these mounts, if it manages it.
fn managed<'a>(status: &'a Value, mounts: &[&Mount]) -> Option<&'a Value> {
    listed(status, "file_systems", mounts)
}

fn listed<'a>(status: &'a Value, list: &str, mounts: &[&Mount]) -> Option<&'a Value> {
    let is_it = |one: &&Value| {
        let point = one["mount_point"].as_str().map(Path::new);
        mounts.iter().any(|mount| Some(mount.mount_point.as_path()) == point)
    };
    status[list].as_array()?.iter().find(is_it)
}

/// Returns the reason why a daemon with this status does not trim the file system of these mounts; `None` if it does.
fn why_not_by_daemon(status: &Value, mounts: &[&Mount]) -> Option<String> {
    if let Some(managed) = managed(status, mounts) {
        let live = &managed["status"];
        return match () {
            () if status["dry_run"] == true => Some("it only looks (dry run)".to_owned()),
            () if live["policy"] == "off" => Some(POLICY_OFF.to_owned()),
            () if live["paused"] == true => Some("it is paused there".to_owned()),
            () => None,
        };
    }
    let skipped = listed(status, "skipped", mounts).and_then(|one| one["why"].as_str());
    Some(skipped.unwrap_or("it does not manage it").to_owned())
}
