//! Finds everything that trims periodically: systemd units, a running `trimwised`, cron.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use trimwise::policy::{BatchConfig, PolicyId, Trimmer};
use trimwise::units::SimDuration;

use super::calls::{Call, Listing};
use crate::daemon::control::{Client, ClientError, Request};
use crate::fstab;
use crate::host_root::HostRoot;
use crate::mount::Mount;
use crate::systemd;
use crate::today::{NotHere, WhyNot};

pub(crate) const FSTRIM_TIMER: &str = "fstrim.timer";
pub(super) const FSTRIM_SERVICE: &str = "fstrim.service";
/// Name of the daemon in lists of what trims periodically.
pub const TRIMWISED: &str = "trimwised";
/// The timer of btrfsmaintenance, and the files that may configure it.
const BTRFS_TIMER: &str = "btrfs-trim.timer";
const BTRFS_CONFIG: [&str; 2] = ["/etc/sysconfig/btrfsmaintenance", "/etc/default/btrfsmaintenance"];

/// Root's crontabs: the system's own, then those of busybox (Alpine), Debian's cron, cronie and openSUSE.
const CRONTABS: [&str; 5] = [
    "/etc/crontab",
    "/etc/crontabs/root",
    "/var/spool/cron/crontabs/root",
    "/var/spool/cron/root",
    "/var/spool/cron/tabs/root",
];
/// File name suffixes that cronie's run-parts skips.
const LEFTOVERS: [&str; 5] = [".cfsaved", ".rpmsave", ".rpmorig", ".rpmnew", ".swp"];

/// Words for intervals in systemd.time(7) and in the names of cron's folders, in seconds.
const INTERVALS: [(&str, u64); 4] =
    [("hourly", 3600), ("daily", 86_400), ("weekly", 7 * 86_400), ("monthly", 30 * 86_400)];

/// Something that trims a file system at intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Periodic {
    /// Such as `fstrim.timer`, `trimwised`, `/etc/cron.weekly/fstrim`.
    pub name: String,
    /// The policy that it amounts to; `None` if unknown, as for a timer with an unusual calendar.
    pub policy: Option<PolicyId>,
    /// True if it skips what fstab exempts ([`NO_TRIM`](super::NO_TRIM)). `fstrim --all` does not, since it never reads
    /// fstab.
    #[serde(skip)]
    pub heeds_fstab: bool,
}

/// A timer or a cron job that trims.
#[derive(Debug)]
struct Job {
    name: String,
    /// Its interval; `None` if its calendar is not one of [`INTERVALS`].
    every: Option<SimDuration>,
    calls: Vec<Call>,
    /// Why it never trims, although it is enabled.
    broken: Option<WhyNot>,
}

/// Everything that trims periodically.
pub(crate) struct Trimmers<'a> {
    pub names: Vec<String>,
    jobs: Vec<Job>,
    root: &'a HostRoot,
    listing: Listing<'a>,
    /// Status reported by the daemon; `None` if none is running or it refuses this user.
    status: Option<Value>,
    /// True if the daemon is running or enabled.
    has_daemon: bool,
    /// True if the daemon's unit is enabled but the daemon is not running.
    pub is_daemon_missing: bool,
}

/// Finds everything that trims periodically. `run` is the folder with the daemon's sockets.
pub fn trimmers<'a>(root: &'a HostRoot, run: &Path, mounts: &'a [Mount], is_container: bool) -> Trimmers<'a> {
    // Under another init, enabled units never run.
    let is_running = systemd::is_running(root);
    let enabled = |target: &str| if is_running { systemd::wanted(root, target) } else { Vec::new() };
    let timers = enabled("timers.target");
    let mut jobs: Vec<Job> = timers.iter().filter_map(|timer| of_timer(root, timer, is_container)).collect();
    jobs.sort_by_key(|job| job.name != FSTRIM_TIMER);
    // Timers of single mounts are reported with their mounts.
    let is_general = |job: &&Job| !job.name.contains('@');
    let mut names: Vec<String> = jobs.iter().filter(is_general).map(|job| job.name.clone()).collect();
    let asked = Client::connect(&root.path(run)).and_then(|mut client| client.ask(&Request::Status));
    let is_enabled = enabled("multi-user.target").iter().any(|unit| unit == "trimwised.service");
    // A killed daemon leaves a socket that nothing listens on.
    let is_there = !matches!(asked, Err(ClientError::None { .. }));
    if is_enabled || is_there {
        names.push(TRIMWISED.to_owned());
    }
    let cron = of_cron(root, is_running);
    names.extend(cron.iter().map(|job| job.name.clone()));
    jobs.extend(cron);
    Trimmers {
        names,
        jobs,
        root,
        listing: Listing::of(root, mounts),
        status: asked.ok(),
        has_daemon: is_enabled || is_there,
        is_daemon_missing: is_enabled && !is_there && root.is_own(),
    }
}

impl Trimmers<'_> {
    pub fn fstab(&self) -> &[fstab::Entry] {
        &self.listing.fstab
    }

    /// Returns the interval of a timer in seconds, if its calendar is one of [`INTERVALS`].
    pub fn every_s(&self, name: &str) -> Option<u64> {
        let job = self.jobs.iter().find(|job| job.name == name)?;
        Some(job.every?.as_nanos() / 1_000_000_000)
    }

    /// Returns what trims the file system with these mounts, and why the others do not.
    pub fn of(&self, same: &[&Mount]) -> (Vec<Periodic>, Vec<NotHere>) {
        let (mut coming, mut others) = (Vec::new(), Vec::new());
        let mut add = |name: &str, why_not: Option<WhyNot>, policy: Option<PolicyId>, heeds_fstab: bool| {
            match why_not {
                Some(why) => others.push(NotHere { name: name.to_owned(), why }),
                None => coming.push(Periodic { policy, name: name.to_owned(), heeds_fstab }),
            }
        };
        for job in &self.jobs {
            let mut why_not = job.calls.iter().map(|call| call.why_not(self.root, &self.listing, same));
            let why = job.broken.clone().or_else(|| {
                let first = why_not.next()??;
                why_not.all(|why| why.is_some()).then_some(first)
            });
            // A timer of one mount says nothing about the others.
            if why.is_none() || !job.name.contains('@') {
                let heeds_fstab = job.calls.iter().all(Call::heeds_fstab);
                add(&job.name, why, job.every.map(sweep), heeds_fstab);
            }
        }
        if self.has_daemon {
            let is_spared = fstab::is_spared(&self.listing.entries_of(same));
            let why = is_spared.then(|| WhyNot::Other(format!("{} in /etc/fstab", super::NO_TRIM)));
            let why = why.or_else(|| self.status.as_ref().and_then(|status| why_not_by_daemon(status, same)));
            add(TRIMWISED, why, self.policy_of_daemon(same), true);
        }
        // In the order of `names`; timers of single mounts come last.
        coming.sort_by_key(|one| self.names.iter().position(|name| *name == one.name).unwrap_or(usize::MAX));
        (coming, others)
    }

    fn policy_of_daemon(&self, mounts: &[&Mount]) -> Option<PolicyId> {
        let live = &managed(self.status.as_ref()?, mounts)?["status"];
        Some(Trimmer::Daemon(live["policy"].as_str()?.parse().ok()?).into())
    }
}

fn interval(word: &str) -> Option<SimDuration> {
    INTERVALS
        .into_iter()
        .find(|(known, _)| *known == word)
        .map(|(_, seconds)| SimDuration::from_secs(seconds))
}

fn sweep(every: SimDuration) -> PolicyId {
    Trimmer::Kernel(BatchConfig { every, units_min: 1 }.into()).into()
}

/// Returns what an enabled timer trims; `None` if it trims nothing.
fn of_timer(root: &HostRoot, timer: &str, is_container: bool) -> Option<Job> {
    let stem = timer.strip_suffix(".timer")?;
    // A timer of a single mount, made by `trimwise advise --apply`: `fstrim-weekly@home.timer`.
    if let Some((unit, mount)) = stem.strip_prefix("fstrim-").and_then(|rest| rest.split_once('@')) {
        let calls = vec![Call::Paths(vec![systemd::unescaped_path(mount)?])];
        return Some(Job { name: timer.to_owned(), every: interval(unit), calls, broken: None });
    }
    let text = systemd::text(root, timer).unwrap_or_default();
    let service =
        systemd::values(&text, &["Unit"]).last().map_or(format!("{stem}.service"), |unit| (*unit).to_owned());
    let of_service = systemd::text(root, &service);
    let calls = match (timer, &of_service) {
        (BTRFS_TIMER, _) => vec![Call::Btrfs(btrfs_points(root))],
        (FSTRIM_TIMER, None) => vec![Call::of_service()],
        (_, None) => Vec::new(),
        (_, Some(text)) => {
            let text = text.replace("\\\n", " ");
            let commands = systemd::values(&text, &["ExecStart"]);
            commands.iter().flat_map(|command| calls_of(root, command)).collect()
        }
    };
    let unmet = systemd::unmet(root, &text).map(|condition| (timer, condition));
    let unmet = unmet.or_else(|| Some((&*service, systemd::unmet(root, of_service.as_deref()?)?)));
    let broken = match () {
        () if calls.is_empty() && timer != FSTRIM_TIMER => return None,
        () if systemd::is_masked(root, &service) => Some(WhyNot::Masked(service)),
        () if calls.is_empty() => Some(WhyNot::RunsNothing(service)),
        () if is_container && timer == FSTRIM_TIMER => {
            Some(WhyNot::Other("it does not start in a container".to_owned()))
        }
        () => unmet.map(|(unit, condition)| {
            WhyNot::Other(format!("{unit} does not start: `{condition}` is not met"))
        }),
    };
    Some(Job { name: timer.to_owned(), every: interval_of(&text), calls, broken })
}

/// Finds the calls of fstrim in a unit's command, or in the script that it runs.
fn calls_of(root: &HostRoot, command: &str) -> Vec<Call> {
    let calls = Call::all_in(command, true);
    if !calls.is_empty() {
        return calls;
    }
    let words = command.split_whitespace().map(|word| word.trim_start_matches(['-', '@', '+', '!', ':']));
    let scripts = words.filter(|word| word.starts_with('/')).filter_map(|file| script(root, file));
    scripts.flat_map(|text| Call::all_in(&text, true)).collect()
}

/// Reads a script; `None` if the file is not a script. An unreadable file counts as an empty script.
fn script(root: &HostRoot, file: &str) -> Option<String> {
    const BYTES_MAX: u64 = 64 << 10;
    let found = root.metadata(file)?;
    let is_short = found.is_file() && found.len() <= BYTES_MAX;
    let text = root.whole_text(file).unwrap_or_default();
    (is_short && (text.starts_with("#!") || text.is_empty())).then_some(text)
}

/// Reads the mount points that btrfsmaintenance trims; empty means all.
fn btrfs_points(root: &HostRoot) -> Vec<PathBuf> {
    let text = BTRFS_CONFIG.iter().find_map(|file| root.text(file)).unwrap_or_default();
    let value = systemd::values(&text, &["BTRFS_TRIM_MOUNTPOINTS"]).last().copied().unwrap_or("auto");
    let points = value.trim_matches(['"', '\'']).split(':').filter(|point| *point != "auto");
    points.map(PathBuf::from).collect()
}

/// Reads the interval of a timer; `None` if its calendar is not one of [`INTERVALS`].
fn interval_of(timer: &str) -> Option<SimDuration> {
    // An empty OnCalendar= clears all settings before it; an empty time span clears only those of its own kind.
    let calendar = systemd::values(timer, &["OnCalendar"]);
    let spans = systemd::values(timer, &["OnUnitActiveSec", "OnUnitInactiveSec", "OnActiveSec", "OnBootSec"]);
    match (&calendar[..], &spans[..]) {
        ([one], []) => interval(one),
        _ => None,
    }
}

/// Finds cron jobs that trim: files that run-parts runs (also Alpine's `/etc/periodic`), and lines of crontabs.
fn of_cron(root: &HostRoot, is_systemd: bool) -> Vec<Job> {
    let mut jobs = Vec::new();
    let job = |name: String, every, calls| Job { name, every, calls, broken: None };
    let places = INTERVALS.into_iter().flat_map(|(word, _)| {
        [format!("/etc/cron.{word}"), format!("/etc/periodic/{word}")].map(|folder| (folder, word))
    });
    // cronie's run-parts is a script, and accepts names with a dot.
    let takes_dots = root.whole_text("/usr/bin/run-parts").is_some_and(|text| text.starts_with("#!"));
    let takes = |name: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c) || takes_dots && c == '.';
        !name.starts_with('.')
            && name.chars().all(is_plain)
            && !LEFTOVERS.iter().any(|end| name.ends_with(end))
    };
    for (folder, word) in places {
        for name in root.names(&folder).into_iter().filter(|name| takes(name)) {
            let file = format!("{folder}/{name}");
            let can_run = root.metadata(&file).is_some_and(|found| found.mode() & 0o111 != 0);
            let Some(text) = script(root, &file).filter(|_| can_run) else { continue };
            // A script that cannot be read is judged by its name.
            let text = if text.is_empty() && name == "fstrim" { "fstrim --all".to_owned() } else { text };
            let calls = Call::all_in(&text, is_systemd);
            if !calls.is_empty() {
                jobs.push(job(file, interval(word), calls));
            }
        }
    }
    let tables = root
        .names("/etc/cron.d")
        .into_iter()
        .filter(|name| takes(name))
        .map(|name| format!("/etc/cron.d/{name}"));
    let mut known = Vec::new();
    for file in tables.chain(CRONTABS.map(str::to_owned)) {
        // One of these folders may be a link to another.
        let place = root.resolved(&file);
        if place.is_none() || known.contains(&place) {
            continue;
        }
        known.push(place);
        for line in root.whole_text(&file).unwrap_or_default().lines() {
            let calls = Call::all_in(line, is_systemd);
            if !calls.is_empty() {
                jobs.push(job(file.clone(), interval_of_cron(line), calls));
            }
        }
    }
    jobs
}

/// Reads the schedule at the start of a crontab line: `@weekly`, or minute, hour, day, month and day of the week.
fn interval_of_cron(line: &str) -> Option<SimDuration> {
    let fields: Vec<&str> = line.split_whitespace().take(5).collect();
    if let Some(word) = fields.first()?.strip_prefix('@') {
        return interval(if word == "midnight" { "daily" } else { word });
    }
    let is_number = |field: &&str| field.parse::<u32>().is_ok();
    let kinds: Vec<bool> = fields.iter().map(is_number).collect();
    let is_any = |index: usize| fields.get(index) == Some(&"*");
    match kinds[..] {
        [true, false, false, false, false] if (1..5).all(is_any) => interval("hourly"),
        [true, true, false, false, false] if (2..5).all(is_any) => interval("daily"),
        // Days of the week may be words: `sun`.
        [true, true, false, false, _] if is_any(2) && is_any(3) && !fields[4].contains([',', '-', '/']) => {
            interval("weekly")
        }
        [true, true, true, false, false] if is_any(3) && is_any(4) => interval("monthly"),
        _ => None,
    }
}

/// Returns the entry of the file system with these mounts in a daemon's status, if the daemon manages it.
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

/// Says why a daemon with this status does not trim the file system with these mounts; `None` if it does.
fn why_not_by_daemon(status: &Value, mounts: &[&Mount]) -> Option<WhyNot> {
    if let Some(managed) = managed(status, mounts) {
        let live = &managed["status"];
        return match () {
            () if status["dry_run"] == true => Some(WhyNot::Other("it is in dry-run mode".to_owned())),
            () if live["policy"] == "off" => Some(WhyNot::PolicyOff),
            () if live["paused"] == true => Some(WhyNot::Other("it is paused there".to_owned())),
            () => None,
        };
    }
    let skipped = listed(status, "skipped", mounts).and_then(|one| one["why"].as_str());
    Some(WhyNot::Other(skipped.unwrap_or("it does not manage this file system").to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_daemon_s_status_tells_what_it_leaves_alone() {
        let mount = Mount {
            id: 1,
            parent: 0,
            numbers: (8, 0),
            mount_point: "/srv".into(),
            device: "/dev/sda".to_owned(),
            fs_type: "ext4".to_owned(),
            options: Vec::new(),
            discards_by_default: false,
        };
        let other = |why: &str| Some(WhyNot::Other(why.to_owned()));
        let managed = |policy: &str, is_paused: bool| json!([{ "mount_point": "/srv", "status": { "policy": policy, "paused": is_paused } }]);
        for (status, expected) in [
            (json!({ "dry_run": false, "file_systems": managed("judicious", false) }), None),
            (
                json!({ "dry_run": true, "file_systems": managed("off", true) }),
                other("it is in dry-run mode"),
            ),
            (json!({ "dry_run": false, "file_systems": managed("off", true) }), Some(WhyNot::PolicyOff)),
            (
                json!({ "dry_run": false, "file_systems": managed("judicious", true) }),
                other("it is paused there"),
            ),
            (
                json!({ "skipped": [{ "mount_point": "/srv", "why": "It is too small." }] }),
                other("It is too small."),
            ),
            (
                json!({ "skipped": [{ "mount_point": "/home", "why": "It is too small." }] }),
                other("it does not manage this file system"),
            ),
        ] {
            assert_eq!(why_not_by_daemon(&status, &[&mount]), expected, "{status}");
        }
    }
}
