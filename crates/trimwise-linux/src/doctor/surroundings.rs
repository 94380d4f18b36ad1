//! Facts around the file systems: whether the host is a container that may not trim, how fstrim's last run ended, whether
//! ext4 has recorded errors, and whether LVM discards removed volumes.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Finding;
use super::disk::{Disk, Transport};
use super::graph::{Graph, Kind};
use super::trimmers::FSTRIM_TIMER;
use crate::block_device::SysBlock;
use crate::code::Code;
use crate::host_root::HostRoot;
use crate::mount::Mount;
use crate::systemd;
use crate::text::quoted;

/// Bit of CAP_SYS_ADMIN in the masks of /proc/PID/status.
const SYS_ADMIN: u32 = 21;
const STAMP: &str = "/var/lib/systemd/timers/stamp-fstrim.timer";

/// Returns true if the host is a container, by the marks that container managers leave.
pub(crate) fn is_container(root: &HostRoot) -> bool {
    let marks = ["/run/systemd/container", "/run/.containerenv", "/.dockerenv"];
    marks.iter().any(|mark| root.has(mark)) || has_own_users(root)
}

/// Returns true if root here is not root of the machine (a user namespace).
fn has_own_users(root: &HostRoot) -> bool {
    let map = root.text(process(root, "uid_map")).unwrap_or_default();
    let fields: Vec<&str> = map.split_whitespace().collect();
    !fields.is_empty() && fields != ["0", "0", "4294967295"]
}

fn process(root: &HostRoot, file: &str) -> String {
    format!("/proc/{}/{file}", if root.is_own() { "self" } else { "1" })
}

/// Reports that nothing here may trim; `None` if something may. FITRIM needs CAP_SYS_ADMIN on the machine, which no
/// process in most containers can have.
pub(super) fn why_forbidden(root: &HostRoot) -> Option<Finding> {
    let status = root.text(process(root, "status")).unwrap_or_default();
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bounding = bounding.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let why = match () {
        () if has_own_users(root) => "its root is not root outside (a user namespace)",
        () if bounding.is_some_and(|mask| mask >> SYS_ADMIN & 1 == 0) => {
            "no process here can have CAP_SYS_ADMIN"
        }
        () => return None,
    };
    Some(
        Finding::new(
            Code::Container,
            "container",
            format!("nothing here may trim: {why}; what its host does was not checked"),
        )
        .mended_by("trim on the host of this container, and run `trimwise doctor` there")
        .beyond_this_host(),
    )
}

/// The last run of fstrim.timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastRun {
    /// When the timer last elapsed.
    pub at_unix_s: u64,
    pub ago_s: u64,
    /// How fstrim.service ended since boot, in systemd's words: `success`, `exit-code`; `None` if it has not run, or
    /// systemd cannot be asked.
    pub result: Option<String>,
}

/// Reads when fstrim.timer last elapsed from the stamp file that systemd keeps for a persistent timer.
pub(super) fn last_run(root: &HostRoot) -> Option<LastRun> {
    let at = root.path(STAMP).metadata().and_then(|found| found.modified()).ok()?;
    let ago = SystemTime::now().duration_since(at).unwrap_or(Duration::ZERO);
    Some(LastRun {
        at_unix_s: at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        ago_s: ago.as_secs(),
        result: (root.is_own() && systemd::is_running(root)).then(result).flatten(),
    })
}

/// Asks systemd how fstrim.service ended. Unlike the journal, systemd replies at once, but knows only this boot.
fn result() -> Option<String> {
    let asked = Command::new("systemctl")
        .args(["show", "fstrim.service", "--property=Result,ExecMainExitTimestampMonotonic"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    result_in(&String::from_utf8_lossy(&asked.stdout))
}

/// Reads the result from systemd's properties of the service; `None` if it has not run since boot.
fn result_in(said: &str) -> Option<String> {
    let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key));
    value("ExecMainExitTimestampMonotonic=").filter(|at| !["", "0"].contains(at))?;
    Some(value("Result=")?.to_owned())
}

pub(super) fn of_last_run(last: &LastRun, every_s: Option<u64>) -> Finding {
    let days = last.ago_s / 86_400;
    let ago = match (last.ago_s / 3600, days) {
        (0, _) => "less than an hour ago".to_owned(),
        (1, _) => "an hour ago".to_owned(),
        (hours, 0 | 1) => format!("{hours} hours ago"),
        (_, days) => format!("{days} days ago"),
    };
    match &last.result {
        Some(result) if result != "success" => Finding::new(
            Code::FstrimFailed,
            "fstrim.service",
            format!("its last run, {ago}, failed ({result})"),
        )
        .mended_by("`journalctl --unit fstrim.service` says why"),
        // The timer randomises its runs and catches up on a missed one, so one interval is too strict.
        _ if every_s.is_some_and(|every| last.ago_s > 2 * every) => Finding::new(
            Code::FstrimLate,
            FSTRIM_TIMER,
            format!("it last elapsed {ago}, which is more than twice its interval: was the host off?"),
        ),
        Some(_) => Finding::new(
            Code::FstrimRan,
            FSTRIM_TIMER,
            format!("it last elapsed {ago}, and fstrim succeeded"),
        ),
        None => Finding::new(
            Code::FstrimRan,
            FSTRIM_TIMER,
            format!("it last elapsed {ago}; `journalctl --unit fstrim.service` says how fstrim ended"),
        ),
    }
}

/// Notes errors that ext4 has recorded in its superblock: its map of free space may be wrong, and a trim follows that map
/// (ext4(5), `errors_count`).
pub(super) fn of_errors(root: &HostRoot, mount: &Mount, graph: &Graph) -> Option<Finding> {
    let name = &graph.nodes[*graph.tops.first().filter(|_| mount.fs_type.starts_with("ext"))?].name;
    let errors: u64 = root.text(format!("/sys/fs/ext4/{name}/errors_count"))?.parse().ok()?;
    (errors > 0).then(|| {
        Finding::new(
            Code::Ext4Errors,
            name.clone(),
            format!(
                "ext4 has recorded {errors} error{} in its superblock since it was last checked: what it calls free may hold files",
                if errors == 1 { "" } else { "s" }
            ),
        )
        .mended_by(format!(
            "look into the kernel's log, unmount it and check it with `fsck -f {}`, and trim it only afterwards",
            quoted(&mount.device)
        ))
    })
}

/// Notes that LVM does not discard removed volumes (lvm.conf(5), `issue_discards`; off by default), if it lies on a disk whose
/// space somebody else could use. `fstrim` reaches mounted file systems alone.
pub(super) fn of_removed_volumes(root: &HostRoot, mounts: &[Mount]) -> Option<Finding> {
    const CONF: &str = "/etc/lvm/lvm.conf";
    let conf = root.whole_text(CONF).unwrap_or_default();
    let setting = |line: &str| {
        let (key, value) = line.split('#').next()?.split_once('=')?;
        (key.trim() == "issue_discards").then(|| value.trim().to_owned())
    };
    let line = conf.lines().find(|line| setting(line).is_some());
    if line.and_then(setting).is_some_and(|value| value == "1") {
        return None;
    }
    let gives_back =
        |disk: &Disk| disk.hypervisor.is_some() || matches!(disk.transport, Transport::Network(_));
    let volumes = root.names("/sys/class/block").into_iter().filter(|name| name.starts_with("dm-"));
    let volumes = volumes.filter_map(|name| SysBlock::named(root, name).ok());
    let volumes =
        volumes.filter(|volume| volume.text("dm/uuid").is_some_and(|uuid| uuid.starts_with("LVM-")));
    let disk = volumes.take(LVM_LOOKED_AT).find_map(|volume| {
        let graph = Graph::of(root, mounts, &[volume]);
        // A thin volume gives its space back to the pool when it is removed.
        let is_thin = graph.nodes.iter().any(|node| matches!(node.kind, Kind::ThinPool(_)));
        let disks =
            graph.nodes.into_iter().filter(|node| matches!(&node.kind, Kind::Disk(disk) if gives_back(disk)));
        disks.filter(|disk| !is_thin && disk.takes_trim() == Some(true)).map(|disk| disk.name).next()
    })?;
    let (what, commands, undo) = match line {
        Some(_) => {
            let set = |from: &str, to: &str| {
                vec![format!("sed -i '/^[^#]*issue_discards/s/= *{from}/= {to}/' {CONF}")]
            };
            (format!("{CONF} says issue_discards = 0"), set("0", "1"), set("1", "0"))
        }
        None => (
            format!("issue_discards is off, as it is by default, and {CONF} does not set it"),
            vec![],
            vec![],
        ),
    };
    Some(
        Finding::new(
            Code::LvmIssueDiscards,
            "LVM",
            format!("{what}: removed and shrunk logical volumes are never discarded, so {disk} keeps their space, which no trim reaches"),
        )
        .mended_by(
            "set issue_discards = 1 in the section `devices` of lvm.conf, or remove volumes with `lvremove --config \
             devices/issue_discards=1`; a removed volume can then no longer be restored (vgcfgrestore). For what was removed \
             before, make a volume of all free space, `blkdiscard` it, and remove it",
        )
        .with_commands(commands, undo),
    )
}

/// Maximum number of logical volumes that are looked at.
const LVM_LOOKED_AT: usize = 64;

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::Host;

    use super::*;

    #[test]
    fn a_container_has_a_mark_or_its_own_users() {
        for (file, text, expected) in [
            ("proc/1/uid_map", "         0          0 4294967295\n", false),
            ("proc/1/uid_map", "0 100000 4294967295", true),
            ("proc/1/uid_map", "0 0 65536", true),
            ("proc/1/uid_map", "", false),
            ("run/systemd/container", "", true),
            ("run/.containerenv", "", true),
            (".dockerenv", "", true),
            ("run/dockerenv", "", false),
        ] {
            let host = Host::new("");
            host.file(file, text);
            assert_eq!(is_container(&HostRoot::new(host.0.path())), expected, "{file}: {text:?}");
        }
    }

    #[test]
    fn nothing_may_trim_without_the_capability_or_as_another_s_root() {
        const USERS: &str = "its root is not root outside";
        const CAPABILITY: &str = "no process here can have CAP_SYS_ADMIN";
        const OWN: &str = "0 0 4294967295";
        for (status, users, expected) in [
            ("CapBnd:\t000001ffffffffff", OWN, None),
            // Bit 21 alone, and all but bit 21.
            ("CapBnd:\t0000000000200000", OWN, None),
            ("CapBnd:\t000001ffffdfffff", OWN, Some(CAPABILITY)),
            ("CapEff:\t0000000000000000\nCapBnd:\t0000000000200000", OWN, None),
            ("CapBnd:\tmany", OWN, None),
            ("", OWN, None),
            ("CapBnd:\t0000000000200000", "0 1 2", Some(USERS)),
            ("CapBnd:\t0000000000000000", "0 1 2", Some(USERS)),
        ] {
            let host = Host::new("");
            host.file("proc/1/status", &format!("Name:\tinit\n{status}\n")).file("proc/1/uid_map", users);
            let found = why_forbidden(&HostRoot::new(host.0.path()));
            let case = format!("{status:?}, users {users}: {found:?}");
            assert_eq!(found.is_some(), expected.is_some(), "{case}");
            if let Some((found, expected)) = found.zip(expected) {
                assert_eq!(
                    (found.code.as_str(), found.wrong),
                    ("host.container.may-not-trim", false),
                    "{case}"
                );
                assert!(found.what.starts_with(&format!("nothing here may trim: {expected}")), "{case}");
            }
        }
    }

    #[test]
    fn the_stamp_says_when_the_timer_last_elapsed() {
        let host = Host::new("");
        let root = HostRoot::new(host.0.path());
        assert_eq!(last_run(&root), None, "no stamp");
        host.file(&STAMP[1..], "");
        let stamp = std::fs::File::options().write(true).open(root.path(STAMP)).unwrap();
        let now = SystemTime::now();
        // Seconds before now and the range in which the age must be; the host's clock may have been set back.
        for (ago, ages) in [(90_000_i64, 90_000..=90_600), (-90_000, 0..=0)] {
            let since = Duration::from_secs(ago.unsigned_abs());
            let at = if ago > 0 { now - since } else { now + since };
            stamp.set_modified(at).unwrap();
            let found = last_run(&root).unwrap();
            assert_eq!(found.at_unix_s, at.duration_since(UNIX_EPOCH).unwrap().as_secs(), "{ago} s ago");
            assert!(ages.contains(&found.ago_s), "{ago} s ago: {found:?}");
            assert_eq!(found.result, None, "this machine's systemd knows nothing of that host");
        }
    }

    #[test]
    fn the_service_has_a_result_once_it_ran() {
        for (said, expected) in [
            ("Result=success\nExecMainExitTimestampMonotonic=4711\n", Some("success")),
            ("ExecMainExitTimestampMonotonic=4711\nResult=exit-code\n", Some("exit-code")),
            ("Result=success\nExecMainExitTimestampMonotonic=0\n", None),
            ("Result=success\nExecMainExitTimestampMonotonic=\n", None),
            ("Result=success\n", None),
            ("ExecMainExitTimestampMonotonic=4711\n", None),
        ] {
            assert_eq!(result_in(said).as_deref(), expected, "{said:?}");
        }
    }

    #[test]
    fn a_run_is_late_after_twice_its_interval_and_its_age_has_a_unit() {
        const HOUR: u64 = 3600;
        const DAY: u64 = 24 * HOUR;
        for (ago_s, every_s, code, words) in [
            (0, None, "host.fstrim.ran", "it last elapsed less than an hour ago,"),
            (HOUR - 1, None, "host.fstrim.ran", "it last elapsed less than an hour ago,"),
            (HOUR, None, "host.fstrim.ran", "it last elapsed an hour ago,"),
            (2 * HOUR - 1, None, "host.fstrim.ran", "it last elapsed an hour ago,"),
            (2 * HOUR, None, "host.fstrim.ran", "it last elapsed 2 hours ago,"),
            (DAY, None, "host.fstrim.ran", "it last elapsed 24 hours ago,"),
            (2 * DAY - 1, None, "host.fstrim.ran", "it last elapsed 47 hours ago,"),
            (2 * DAY, None, "host.fstrim.ran", "it last elapsed 2 days ago,"),
            (2 * DAY, Some(DAY), "host.fstrim.ran", "it last elapsed 2 days ago,"),
            (2 * DAY + 1, Some(DAY), "host.fstrim.late", "it last elapsed 2 days ago,"),
        ] {
            let last = LastRun { at_unix_s: 0, ago_s, result: Some("success".to_owned()) };
            let found = of_last_run(&last, every_s);
            let case = format!("{ago_s} s ago, every {every_s:?} s: {}", found.what);
            assert_eq!((found.code.as_str(), found.place.as_str()), (code, FSTRIM_TIMER), "{case}");
            assert!(found.what.starts_with(words), "{case}");
        }
    }

    #[test]
    fn how_fstrim_ended_counts_more_than_when() {
        let week = Some(7 * 86_400);
        for (days, result, every_s, code, words) in [
            (
                30,
                Some("exit-code"),
                week,
                "host.fstrim.failed",
                "its last run, 30 days ago, failed (exit-code)",
            ),
            (14, Some("success"), week, "host.fstrim.ran", "14 days ago, and fstrim succeeded"),
            (15, Some("success"), week, "host.fstrim.late", "15 days ago, which is more than twice"),
            (15, None, week, "host.fstrim.late", "15 days ago, which is more than twice"),
            (
                15,
                None,
                None,
                "host.fstrim.ran",
                "15 days ago; `journalctl --unit fstrim.service` says how fstrim ended",
            ),
        ] {
            let last = LastRun { at_unix_s: 0, ago_s: days * 86_400, result: result.map(str::to_owned) };
            let found = of_last_run(&last, every_s);
            assert_eq!((found.code.as_str(), found.wrong), (code, code == "host.fstrim.failed"), "{last:?}");
            assert!(found.what.contains(words), "{}", found.what);
        }
    }
}
