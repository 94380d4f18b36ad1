//! Finds everything that trims periodically: systemd units, a running `trimwised`, cron.

use std::path::Path;

use serde_json::Value;

use crate::daemon::control::{Client, ClientError, Request};
use crate::fstab;
use crate::host_root::HostRoot;
use crate::mount::Mount;

pub(crate) const FSTRIM_TIMER: &str = "fstrim.timer";
pub const TRIMWISED: &str = "trimwised";

/// Everything that trims periodically.
pub(crate) struct Trimmers {
    pub names: Vec<String>,
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
    // Same check as sd_booted(3): under another init, enabled units never run.
    let is_running = root.has("/run/systemd/system");
    if is_running && is_wanted(FSTRIM_TIMER, "timers.target") {
        names.push(FSTRIM_TIMER.to_owned());
    }
    let asked = Client::connect(&root.path(run)).and_then(|mut client| client.ask(&Request::Status));
    let is_enabled = is_running && is_wanted("trimwised.service", "multi-user.target");
    // A killed daemon leaves a socket that nothing listens on.
    let is_there = !matches!(asked, Err(ClientError::None { .. }));
    if is_enabled || is_there {
        names.push(TRIMWISED.to_owned());
    }
    for every in ["hourly", "daily", "weekly", "monthly"] {
        let file = format!("/etc/cron.{every}/fstrim");
        if root.has(&file) {
            names.push(file);
        }
    }
    Trimmers {
        names,
        fstab: fstab::entries(root, mounts, |_| true),
        status: asked.ok(),
        is_daemon_missing: is_enabled && !is_there && root.is_own(),
    }
}

impl Trimmers {
    /// Returns the names of those that trim this file system, and the reasons why the others do not.
    pub fn of(&self, mount: &Mount, mounts: &[Mount]) -> (Vec<&str>, Vec<String>) {
        let same: Vec<&Mount> = mounts.iter().filter(|other| other.is_same_file_system(mount)).collect();
        let (mut coming, mut others) = (Vec::new(), Vec::new());
        for name in &self.names {
            let why_not = match name.as_str() {
                // `fstrim --listed-in /etc/fstab:/proc/self/mountinfo` uses the first of these files that is not empty
                // (util-linux 2.33), and takes each file system once, wherever else it is mounted.
                FSTRIM_TIMER => {
                    let is_listed =
                        |one: &&Mount| self.fstab.iter().any(|entry| entry.point == one.mount_point);
                    (!self.fstab.is_empty() && !same.iter().any(is_listed))
                        .then(|| "it follows /etc/fstab, which does not list it".to_owned())
                }
                TRIMWISED => self.status.as_ref().and_then(|status| why_not_by_daemon(status, &same)),
                _ => None,
            };
            match why_not {
                Some(why) => others.push(format!("{name}: {why}")),
                None => coming.push(name.as_str()),
            }
        }
        (coming, others)
    }
}

/// Returns the reason why a daemon with this status does not trim the file system of these mounts; `None` if it does.
fn why_not_by_daemon(status: &Value, mounts: &[&Mount]) -> Option<String> {
    let is_it = |one: &&Value| {
        let point = one["mount_point"].as_str().map(Path::new);
        mounts.iter().any(|mount| Some(mount.mount_point.as_path()) == point)
    };
    let of = |list: &str| status[list].as_array().and_then(|all| all.iter().find(is_it));
    if let Some(managed) = of("file_systems") {
        let live = &managed["status"];
        return match () {
            () if status["dry_run"] == true => Some("it only looks (dry run)".to_owned()),
            () if live["policy"] == "off" => Some("its policy there is off".to_owned()),
            () if live["paused"] == true => Some("it is paused there".to_owned()),
            () => None,
        };
    }
    let skipped = of("skipped").and_then(|one| one["why"].as_str());
    Some(skipped.unwrap_or("it does not manage it").to_owned())
}
