//! Facts about the whole host: whether it is a container that may not trim, and how fstrim's last run ended.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Finding;
use super::trimmers::FSTRIM_TIMER;
use crate::code::Code;
use crate::host_root::HostRoot;
use crate::systemd;

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
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
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

#[cfg(test)]
mod tests {
    use super::*;

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
