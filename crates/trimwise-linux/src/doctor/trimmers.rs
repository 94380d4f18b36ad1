//! Finds everything that trims periodically: systemd units, a running `trimwised`, cron.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use trimwise::policy::{BatchConfig, PolicyId, Trimmer};
use trimwise::units::SimDuration;

use super::calls::{Call, Listing};
use crate::daemon::control::{Client, ClientError, Request};
use crate::daemon::running::{Running, running_elsewhere};
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
    /// Statuses of daemons with other run folders. They count only where they trim.
    statuses_elsewhere: Vec<Value>,
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
    // A relative folder is the user's, not the root's. In a container, paths are the host's.
    let run = if root.is_own() { run.to_owned() } else { root.path(run) };
    let ask = |run: &Path| Client::connect(run).and_then(|mut client| client.ask(&Request::Status));
    let asked = ask(&run);
    let mut elsewhere = running_elsewhere(root, &run);
    let is_enabled = enabled("multi-user.target").iter().any(|unit| unit == "trimwised.service");
    // A killed daemon leaves a socket that nothing listens on.
    let is_there = !matches!(asked, Err(ClientError::None { .. }));
    // One whose folder this user may not see may be the one that is there.
    elsewhere.retain(|one| one.run.is_some() || !is_there);
    if is_enabled || is_there {
        names.push(TRIMWISED.to_owned());
    }
    names.extend(elsewhere.iter().map(Running::to_string));
    let of_others = elsewhere.iter().map(|one| ask(&root.path(one.run.as_ref()?)).ok());
    let of_others: Vec<Option<Value>> = of_others.collect();
    let cron = of_cron(root, is_running);
    names.extend(cron.iter().filter(|job| job.broken.is_none()).map(|job| job.name.clone()));
    jobs.extend(cron);
    Trimmers {
        names,
        jobs,
        root,
        listing: Listing::of(root, mounts),
        status: asked.ok(),
        // Like the daemon that refuses this user, one that cannot be asked is taken to trim everything.
        has_daemon: is_enabled || is_there || of_others.contains(&None),
        statuses_elsewhere: of_others.into_iter().flatten().collect(),
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
        let status = self.status_on(same);
        if self.has_daemon || status.is_some() {
            let is_spared = fstab::is_spared(&self.listing.entries_of(same));
            let why = is_spared.then(|| WhyNot::Other(format!("{} in /etc/fstab", super::NO_TRIM)));
            let why = why.or_else(|| status.and_then(|status| why_not_by_daemon(status, same)));
            add(TRIMWISED, why, self.policy_of_daemon(same), true);
        }
        // In the order of `names`; timers of single mounts come last.
        coming.sort_by_key(|one| self.names.iter().position(|name| *name == one.name).unwrap_or(usize::MAX));
        (coming, others)
    }

    fn policy_of_daemon(&self, mounts: &[&Mount]) -> Option<PolicyId> {
        let managed = managed(self.status_on(mounts)?, mounts)?;
        Some(Trimmer::Daemon(daemon_policy(managed)?.parse().ok()?).into())
    }

    /// Returns the status of the daemon elsewhere that trims the file system with these mounts, or that of the daemon
    /// here.
    fn status_on(&self, mounts: &[&Mount]) -> Option<&Value> {
        let trims = |status: &&Value| why_not_by_daemon(status, mounts).is_none();
        self.statuses_elsewhere.iter().find(trims).or(self.status.as_ref())
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
            let Some(text) = script(root, &file) else { continue };
            // A script that cannot be read is judged by its name.
            let text = if text.is_empty() && name == "fstrim" { "fstrim --all".to_owned() } else { text };
            let calls = Call::all_in(&text, is_systemd);
            if !calls.is_empty() {
                let broken = (!can_run).then_some(WhyNot::NotExecutable);
                jobs.push(Job { broken, ..job(file, interval(word), calls) });
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

/// Returns the policy of a managed file system: the configured one until the daemon has examined it.
fn daemon_policy(managed: &Value) -> Option<&str> {
    managed["status"]["policy"].as_str().or(managed["policy"].as_str())
}

/// Says why a daemon with this status does not trim the file system with these mounts; `None` if it does.
fn why_not_by_daemon(status: &Value, mounts: &[&Mount]) -> Option<WhyNot> {
    if let Some(managed) = managed(status, mounts) {
        let live = &managed["status"];
        return match () {
            () if status["dry_run"] == true => Some(WhyNot::Other("it is in dry-run mode".to_owned())),
            () if daemon_policy(managed) == Some("off") => Some(WhyNot::PolicyOff),
            () if live["paused"] == true => Some(WhyNot::Other("it is paused there".to_owned())),
            () => None,
        };
    }
    let skipped = listed(status, "skipped", mounts).and_then(|one| one["why"].as_str());
    Some(WhyNot::Other(skipped.unwrap_or("it does not manage this file system").to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{self, BufRead as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use serde_json::json;
    use trimwise_testing::fake_host::Host;

    use super::*;

    fn mount(major: u32, point: &str) -> Mount {
        Mount {
            id: 1,
            parent: 0,
            numbers: (major, 0),
            mount_point: point.into(),
            device: "/dev/sda".to_owned(),
            fs_type: "ext4".to_owned(),
            options: Vec::new(),
            discards_by_default: false,
        }
    }

    fn seconds(every: Option<SimDuration>) -> Option<u64> {
        every.map(|every| every.as_nanos() / 1_000_000_000)
    }

    #[test]
    fn a_crontab_line_has_an_interval_if_it_is_regular() {
        const HOURLY: Option<u64> = Some(3600);
        const DAILY: Option<u64> = Some(86_400);
        const WEEKLY: Option<u64> = Some(604_800);
        const MONTHLY: Option<u64> = Some(2_592_000);
        for (schedule, expected) in [
            ("@hourly", HOURLY),
            ("@daily", DAILY),
            ("@midnight", DAILY),
            ("@weekly", WEEKLY),
            ("@monthly", MONTHLY),
            ("@reboot", None),
            ("@yearly", None),
            ("5 * * * *", HOURLY),
            ("5 3 * * *", DAILY),
            ("5\t3  *   *\t*", DAILY),
            ("5 3 * * 0", WEEKLY),
            ("5 3 * * sun", WEEKLY),
            ("5 3 1 * *", MONTHLY),
            // Several times in the period, or in some of the periods only.
            ("* * * * *", None),
            ("*/5 * * * *", None),
            ("5 */2 * * *", None),
            ("5 * 1 * *", None),
            ("5 * * jan *", None),
            ("5 * * * 0", None),
            ("5 * * * sun", None),
            ("5 3,15 * * *", None),
            ("5 3 */2 * *", None),
            ("5 3 */2 * sun", None),
            ("5 3 * jan *", None),
            ("5 3 * jan sun", None),
            ("5 3 * 1 0", None),
            ("5 3 * * 1,4", None),
            ("5 3 * * mon-fri", None),
            ("5 3 * * */2", None),
            ("5 3 1 jan *", None),
            ("5 3 1 * sun", None),
            ("5 3 1 1 *", None),
            ("5 3 1 * 0", None),
        ] {
            assert_eq!(seconds(interval_of_cron(&format!("{schedule} root fstrim"))), expected, "{schedule}");
        }
        for (line, expected) in [("", None), ("5", None), ("5 3 * *", None), ("@daily", DAILY)] {
            assert_eq!(seconds(interval_of_cron(line)), expected, "{line:?}");
        }
    }

    #[test]
    fn a_timer_has_an_interval_if_its_only_setting_is_a_known_word() {
        for (timer, expected) in [
            ("OnCalendar=hourly", Some(3600)),
            ("OnCalendar=weekly", Some(604_800)),
            ("OnCalendar=daily\nOnCalendar=\nOnCalendar=monthly", Some(2_592_000)),
            ("OnCalendar=Sun 03:00", None),
            ("OnCalendar=daily\nOnCalendar=weekly", None),
            ("OnCalendar=weekly\nOnUnitActiveSec=1h", None),
            ("OnCalendar=weekly\nOnUnitInactiveSec=1h", None),
            ("OnCalendar=weekly\nOnActiveSec=1h", None),
            ("OnCalendar=weekly\nOnBootSec=1h", None),
            ("OnCalendar=weekly\nOnBootSec=1h\nOnBootSec=", Some(604_800)),
            ("OnCalendar=weekly\nRandomizedDelaySec=1h", Some(604_800)),
            ("OnUnitActiveSec=1w", None),
            ("", None),
        ] {
            assert_eq!(seconds(interval_of(timer)), expected, "{timer}");
        }
    }

    #[test]
    fn cron_jobs_have_the_interval_of_their_folder_or_line() {
        let host = Host::new("");
        let long = |bytes: usize| format!("#!/bin/sh\nfstrim /srv\n{}", "#".repeat(bytes - 22));
        host.script("etc/cron.hourly/fstrim", "#!/bin/sh\nfstrim /srv")
            .script("etc/periodic/daily/b", "#!/bin/sh\nfstrim -a")
            .script("etc/cron.monthly/c", &long(64 << 10))
            .script("etc/cron.monthly/d", &long((64 << 10) + 1))
            .script("etc/cron.weekly/binary", "fstrim -a")
            // An empty file stands for one that may not be read.
            .script("etc/cron.weekly/fstrim", "")
            .script("etc/cron.weekly/other", "")
            .file("etc/cron.daily/fstrim", "#!/bin/sh\nfstrim -a")
            .file("etc/cron.d/trim", "# fstrim -a\n5 3 * * * root fstrim /srv\n@hourly root fstrim /home\n")
            .file("etc/crontab", "5 3 * * 1-5 root fstrim -a\n");
        let jobs = of_cron(&HostRoot::new(host.0.path()), true);
        let found: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), seconds(job.every))).collect();
        let expected = [
            ("/etc/cron.hourly/fstrim", Some(3600)),
            ("/etc/cron.daily/fstrim", Some(86_400)),
            ("/etc/periodic/daily/b", Some(86_400)),
            ("/etc/cron.weekly/fstrim", Some(604_800)),
            ("/etc/cron.monthly/c", Some(2_592_000)),
            ("/etc/cron.d/trim", Some(86_400)),
            ("/etc/cron.d/trim", Some(3600)),
            ("/etc/crontab", None),
        ];
        assert_eq!(found, expected);
        assert_eq!(jobs[0].calls, [Call::Paths(vec!["/srv".into()])]);
        assert_eq!(jobs[3].calls, Call::all_in("fstrim --all", true), "judged by its name");
        let broken: Vec<_> = jobs.iter().filter_map(|job| job.broken.clone()).collect();
        assert_eq!((broken, &jobs[1].broken), (vec![WhyNot::NotExecutable], &Some(WhyNot::NotExecutable)));
    }

    #[test]
    fn a_file_system_is_trimmed_by_the_jobs_that_reach_one_of_its_mounts() {
        const HOME: &str = "it trims only /home";
        const DAEMON: &str = "it does not manage this file system";
        let mounts = [mount(8, "/srv"), mount(8, "/srv/ftp"), mount(9, "/home")];
        let job = |name: &str, paths: &[&str], broken: Option<&str>| Job {
            name: name.to_owned(),
            every: interval("daily"),
            calls: paths.iter().map(|path| Call::Paths(vec![path.into()])).collect(),
            broken: broken.map(|why| WhyNot::Other(why.to_owned())),
        };
        let status = |point: &str| json!({ "file_systems": [{ "mount_point": point, "status": { "policy": "batch:1w" } }] });
        let host = Host::new("");
        let root = HostRoot::new(host.0.path());
        // A job or what the daemon manages; then the periodic trims, and what the others say.
        for (jobs, status, coming, others) in [
            (vec![job("a", &["/srv"], None)], None, &["a batch:1d"][..], &[][..]),
            (vec![job("a", &["/srv/ftp"], None)], None, &["a batch:1d"], &[]),
            (vec![job("a", &["/home"], None)], None, &[], &[HOME]),
            (vec![job("a", &["/home", "/srv"], None)], None, &["a batch:1d"], &[]),
            (vec![job("a", &["/srv", "/home"], None)], None, &["a batch:1d"], &[]),
            (vec![job("a", &["/home", "/mnt"], None)], None, &[], &[HOME]),
            (vec![job("a", &["/srv"], Some("masked"))], None, &[], &["masked"]),
            (
                vec![Job { calls: vec![Call::of_service()], ..job("a", &[], None) }],
                None,
                &["a batch:1d, by fstab"],
                &[],
            ),
            // Of two calls, one never reads fstab.
            (
                vec![Job {
                    calls: vec![Call::of_service(), Call::Paths(vec!["/srv".into()])],
                    ..job("a", &[], None)
                }],
                None,
                &["a batch:1d"],
                &[],
            ),
            // A timer of one mount is told of there alone.
            (vec![job("a@home", &["/home"], None)], None, &[], &[]),
            (vec![job("a@srv", &["/srv"], None)], None, &["a@srv batch:1d"], &[]),
            (
                vec![job("a@srv", &["/srv"], None), job("b", &["/srv"], None), job("a", &["/srv"], None)],
                None,
                &["a batch:1d", "b batch:1d", "a@srv batch:1d"],
                &[],
            ),
            (vec![], Some(status("/srv")), &["trimwised trimwised:batch:1w, by fstab"], &[]),
            (vec![], Some(status("/srv/ftp")), &["trimwised trimwised:batch:1w, by fstab"], &[]),
            (vec![], Some(status("/home")), &[], &[DAEMON]),
        ] {
            let names = ["a", "b", TRIMWISED].map(str::to_owned).to_vec();
            let case = format!("{jobs:?}, {status:?}");
            let has_daemon = status.is_some();
            let listing = Listing::of(&root, &mounts);
            let found = Trimmers {
                names,
                jobs,
                root: &root,
                listing,
                status,
                has_daemon,
                is_daemon_missing: false,
                statuses_elsewhere: Vec::new(),
            };
            let (found, left_out) = found.of(&[&mounts[0], &mounts[1]]);
            let found = found.iter().map(|one| {
                let heeds = if one.heeds_fstab { ", by fstab" } else { "" };
                format!("{} {}{heeds}", one.name, one.policy.as_ref().unwrap())
            });
            assert_eq!(found.collect::<Vec<_>>(), coming, "{case}");
            let left_out: Vec<_> = left_out.iter().map(|one| one.why.clone()).collect();
            let others: Vec<_> = others.iter().map(|&why| WhyNot::Other(why.to_owned())).collect();
            assert_eq!(left_out, others, "{case}");
        }
    }

    #[test]
    fn enabled_timers_and_the_daemon_are_named_under_systemd() {
        const TIMERS: &str = "etc/systemd/system/timers.target.wants";
        const DAEMON: &str = "etc/systemd/system/multi-user.target.wants/trimwised.service";
        let [of_btrfs, of_fstrim, of_srv] = ["btrfs-trim.timer", "fstrim.timer", "fstrim-daily@srv.timer"]
            .map(|timer| format!("{TIMERS}/{timer}"));
        let ssh = DAEMON.replace("trimwised", "ssh");
        // The files, and whether a daemon listens; then the names and whether there is a daemon.
        for (files, listens, names, has_daemon) in [
            (
                &["run/systemd/system/x", &of_btrfs, &of_fstrim][..],
                false,
                &["fstrim.timer", "btrfs-trim.timer"][..],
                false,
            ),
            (&["run/systemd/system/x", &of_srv], false, &[], false),
            (&["run/systemd/system/x", DAEMON], false, &[TRIMWISED], true),
            (&["run/systemd/system/x", DAEMON, "run/trimwise/control.sock"], false, &[TRIMWISED], true),
            (&["run/systemd/system/x", &ssh, "run/trimwise/control.sock"], false, &[], false),
            (&["run/trimwise/x"], true, &[TRIMWISED], true),
            (&["run/trimwise/x", DAEMON], true, &[TRIMWISED], true),
            // Under another init, enabled units never run.
            (&[&of_fstrim, DAEMON], false, &[], false),
        ] {
            let host = Host::new("");
            for file in files {
                host.file(file, "");
            }
            let root = HostRoot::new(host.0.path());
            if listens {
                let listener = UnixListener::bind(root.path("run/trimwise/control.sock")).unwrap();
                std::thread::spawn(move || drop(listener.accept()));
            }
            let found = trimmers(&root, Path::new("/run/trimwise"), &[], false);
            assert_eq!(
                (found.names.join(" "), found.has_daemon),
                (names.join(" "), has_daemon),
                "{files:?}, listens: {listens}"
            );
            assert!(!found.is_daemon_missing, "it cannot be told of a host in a folder: {files:?}");
        }
    }

    /// With another run folder than the one asked for, "nothing trims it today" stood about what it had just trimmed.
    #[test]
    fn regression_a_daemon_elsewhere_is_found_by_its_lock_and_counts_where_it_trims() {
        let mounts = [mount(8, "/srv"), mount(9, "/home")];
        let host = Host::new("");
        host.file("proc/locks", "1: FLOCK  ADVISORY  WRITE 41 fe:00:1 0 EOF\n");
        host.file("proc/41/comm", "trimwised\n");
        host.file("srv/run/run.lock", "41\n");
        let root = HostRoot::new(host.0.path());
        fs::create_dir(root.path("proc/41/fd")).unwrap();
        std::os::unix::fs::symlink("/srv/run/run.lock", root.path("proc/41/fd/3")).unwrap();
        let listener = UnixListener::bind(root.path("srv/run/control.sock")).unwrap();
        std::thread::spawn(move || {
            let status =
                json!({ "file_systems": [{ "mount_point": "/srv", "status": { "policy": "lazy" } }] });
            let answer = json!({ "version": 1, "error": null, "data": status });
            let (mut stream, _) = listener.accept().unwrap();
            io::BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            writeln!(stream, "{answer}").unwrap();
        });
        let found = trimmers(&root, Path::new("/run/trimwise"), &mounts, false);
        assert_eq!(found.names, ["trimwised --run /srv/run"]);
        let (coming, others) = found.of(&[&mounts[0]]);
        let coming: Vec<_> =
            coming.iter().map(|one| (&*one.name, one.policy.clone().unwrap().to_string())).collect();
        assert_eq!((coming, others), (vec![(TRIMWISED, "trimwised:lazy".to_owned())], vec![]));
        // What it does not manage is not its business.
        assert_eq!(found.of(&[&mounts[1]]), (vec![], vec![]));
        // Without a lock it is gone.
        host.file("proc/locks", "");
        let found = trimmers(&root, Path::new("/run/trimwise"), &mounts, false);
        assert_eq!((found.names.len(), found.of(&[&mounts[0]])), (0, (vec![], vec![])));
    }

    #[test]
    fn a_timer_has_the_interval_of_its_unit_and_the_calls_of_its_service() {
        const LIB: &str = "usr/lib/systemd/system";
        let host = Host::new("");
        for (unit, text) in [
            ("fstrim.timer", "OnCalendar=weekly"),
            ("other.timer", "OnCalendar=daily\nUnit=trims.service"),
            ("trims.service", "ExecStart=/bin/sh -c \\\n  'fstrim /srv'"),
            ("script.timer", "OnCalendar=hourly"),
            ("script.service", "ExecStart=-/opt/trim"),
            ("relative.timer", "OnCalendar=hourly"),
            ("relative.service", "ExecStart=sh trim"),
            ("alone.timer", "OnCalendar=hourly"),
        ] {
            host.file(&format!("{LIB}/{unit}"), text);
        }
        host.file("opt/trim", "#!/bin/sh\nfstrim /srv").file("trim", "#!/bin/sh\nfstrim /srv");
        let root = HostRoot::new(host.0.path());
        let srv = || Call::Paths(vec!["/srv".into()]);
        let no_start = || Some(WhyNot::Other("it does not start in a container".to_owned()));
        for (timer, is_container, expected) in [
            ("fstrim.timer", false, Some((Some(604_800), Call::of_service(), None))),
            ("fstrim.timer", true, Some((Some(604_800), Call::of_service(), no_start()))),
            ("other.timer", false, Some((Some(86_400), srv(), None))),
            ("other.timer", true, Some((Some(86_400), srv(), None))),
            ("script.timer", false, Some((Some(3600), srv(), None))),
            ("fstrim-weekly@srv.timer", false, Some((Some(604_800), srv(), None))),
            ("fstrim-rarely@srv.timer", false, Some((None, srv(), None))),
            ("relative.timer", false, None),
            ("alone.timer", false, None),
            ("trims.service", false, None),
        ] {
            let found = of_timer(&root, timer, is_container);
            let expected = expected.map(|(every, call, broken)| (every, vec![call], broken));
            let found = found.map(|job| (seconds(job.every), job.calls, job.broken));
            assert_eq!(found, expected, "{timer}, in a container: {is_container}");
        }
        for timer in ["fstrim.timer", "other.timer"] {
            host.file(&format!("etc/systemd/system/timers.target.wants/{timer}"), "");
        }
        let found = trimmers(&root, Path::new("/run/trimwise"), &[], false);
        let every = ["other.timer", "fstrim.timer", "alone.timer"].map(|timer| found.every_s(timer));
        assert_eq!(every, [None; 3], "systemd does not run");
        host.file("run/systemd/system/x", "");
        let found = trimmers(&root, Path::new("/run/trimwise"), &[], false);
        let every = ["other.timer", "fstrim.timer", "alone.timer"].map(|timer| found.every_s(timer));
        assert_eq!(every, [Some(86_400), Some(604_800), None]);
    }

    #[test]
    fn cron_runs_the_files_that_its_run_parts_accepts() {
        const GUARDED: &str = "5 3 * * * root test -e /run/systemd/system || fstrim -a";
        let names = ["trim", "trim_-1", "trim.sh", "trim~", "trim.rpmnew", ".trim"];
        // The text of run-parts, and the names of these that it runs.
        for (run_parts, expected) in
            [("\x7fELF", &["trim", "trim_-1"][..]), ("#!/bin/bash", &["trim", "trim.sh", "trim_-1"])]
        {
            let host = Host::new("");
            host.file("usr/bin/run-parts", run_parts).file("etc/crontab", GUARDED);
            for name in names {
                let path = format!("etc/cron.daily/{name}");
                host.file(&path, "#!/bin/sh\nfstrim -a");
                // Its owner, which is root, may execute it.
                fs::set_permissions(host.0.path().join(path), fs::Permissions::from_mode(0o700)).unwrap();
            }
            host.file("etc/cron.daily/off", "#!/bin/sh\nfstrim -a");
            let mut expected: Vec<_> =
                expected.iter().map(|name| format!("/etc/cron.daily/{name}")).collect();
            let found = |is_systemd| {
                let jobs = of_cron(&HostRoot::new(host.0.path()), is_systemd);
                let running = jobs.into_iter().filter(|job| job.broken.is_none());
                running.map(|job| job.name).collect::<Vec<_>>()
            };
            assert_eq!(found(true), expected, "{run_parts}");
            expected.push("/etc/crontab".to_owned());
            assert_eq!(found(false), expected, "{run_parts}, without systemd");
        }
    }

    #[test]
    fn what_fstab_exempts_is_left_out_by_the_daemon() {
        let mounts = [mount(8, "/srv")];
        for (options, expected) in
            [("defaults", None), ("X-fstrim.notrim", Some("X-fstrim.notrim in /etc/fstab"))]
        {
            let host = Host::new("");
            host.file("etc/fstab", &format!("/dev/sda /srv ext4 {options} 0 2\n"));
            let root = HostRoot::new(host.0.path());
            let mut found = trimmers(&root, Path::new("/run/trimwise"), &mounts, false);
            found.has_daemon = true;
            let (coming, others) = found.of(&[&mounts[0]]);
            assert_eq!(coming.is_empty(), expected.is_some(), "{options}");
            let why = others.into_iter().next().map(|one| one.why);
            assert_eq!(why, expected.map(|why| WhyNot::Other(why.to_owned())), "{options}");
        }
    }

    #[test]
    fn btrfsmaintenance_names_its_mount_points() {
        for (file, text, expected) in [
            ("etc/sysconfig/btrfsmaintenance", "BTRFS_TRIM_MOUNTPOINTS=\"/:/srv\"", &["/", "/srv"][..]),
            ("etc/default/btrfsmaintenance", "BTRFS_TRIM_MOUNTPOINTS='/srv'", &["/srv"]),
            (
                "etc/default/btrfsmaintenance",
                "BTRFS_TRIM_MOUNTPOINTS=/\nBTRFS_TRIM_MOUNTPOINTS=/srv",
                &["/srv"],
            ),
            ("etc/default/btrfsmaintenance", "BTRFS_TRIM_MOUNTPOINTS=\"auto\"", &[]),
            ("etc/default/btrfsmaintenance", "BTRFS_SCRUB_MOUNTPOINTS=/", &[]),
            ("etc/btrfsmaintenance", "BTRFS_TRIM_MOUNTPOINTS=/", &[]),
        ] {
            let host = Host::new("");
            host.file(file, text);
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(btrfs_points(&HostRoot::new(host.0.path())), expected, "{file}: {text}");
        }
    }

    #[test]
    fn the_daemon_s_status_tells_what_it_leaves_alone() {
        let mount = mount(8, "/srv");
        let other = |why: &str| Some(WhyNot::Other(why.to_owned()));
        let managed = |policy: &str, is_paused: bool| json!([{ "mount_point": "/srv", "status": { "policy": policy, "paused": is_paused } }]);
        for (status, expected) in [
            (json!({ "dry_run": false, "file_systems": managed("judicious", false) }), None),
            (
                json!({ "dry_run": true, "file_systems": managed("off", true) }),
                other("it is in dry-run mode"),
            ),
            (json!({ "dry_run": false, "file_systems": managed("off", true) }), Some(WhyNot::PolicyOff)),
            // It has not examined it yet.
            (
                json!({ "file_systems": [{ "mount_point": "/srv", "policy": "off", "status": null }] }),
                Some(WhyNot::PolicyOff),
            ),
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
