//! Finds out what trims a file system today: the mount option in effect, periodic trims, and where the options are set.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use trimwise::policy::{BatchConfig, PolicyId, PolicySpec};
use trimwise::units::SimDuration;

use crate::doctor::NO_TRIM;
use crate::doctor::Periodic;
use crate::doctor::trimmers::{TRIMWISED, Trimmers};
use crate::host_root::HostRoot;
use crate::mount::Mount;
use crate::systemd;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Today {
    /// `discard`, `discard=async` or `nodiscard`, as in effect.
    pub discard: String,
    pub at_intervals: Vec<Periodic>,
    /// Trimmers that are active on the host but leave this file system out, with the reason.
    pub not_here: Vec<NotHere>,
    pub mounted_by: MountedBy,
    /// Other mount points of the same file system: bind mounts, subvolumes.
    pub also_at: Vec<PathBuf>,
}

/// A timer, a job of cron or the daemon that leaves a file system out. Its JSON is the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotHere {
    /// Its name, as in [`Periodic::name`].
    pub name: String,
    /// Why it leaves the file system out.
    pub why: WhyNot,
}

/// Why something leaves a file system out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// The policy of trimwised there is off.
    PolicyOff,
    /// Its service, by name, is masked.
    Masked(String),
    /// Its service, by name, runs no fstrim.
    RunsNothing(String),
    /// Its script may not be executed, so run-parts leaves it out.
    NotExecutable,
    /// It follows /etc/fstab, which does not list the file system.
    NotInFstab,
    /// It follows /etc/fstab, whose line for the file system has `ro`.
    ReadOnlyInFstab,
    /// Another reason, in words.
    Other(String),
}

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.why {
            WhyNot::PolicyOff => f.write_str("its policy there is off"),
            WhyNot::Masked(service) => write!(f, "{service} is masked"),
            WhyNot::RunsNothing(service) => write!(f, "{service} runs no fstrim"),
            WhyNot::NotExecutable => f.write_str("it is not executable, so cron's run-parts leaves it out"),
            WhyNot::NotInFstab => f.write_str("it follows /etc/fstab, which does not list this file system"),
            WhyNot::ReadOnlyInFstab => {
                f.write_str("the file system's line in /etc/fstab says `ro`, and it skips such file systems")
            }
            WhyNot::Other(why) => f.write_str(why),
        }
    }
}

impl Serialize for NotHere {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a mount's options are set for each boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum MountedBy {
    Fstab {
        /// From 1.
        line: usize,
        options: Vec<String>,
    },
    Unit {
        file: PathBuf,
    },
    /// Set nowhere or unclear: mounted by hand, an initramfs, a container's host, a bind mount, several lines of fstab.
    Unknown,
}

/// Returns the policy of a file system's own discard in its usual mode.
pub fn own_discard(fs_type: &str) -> PolicyId {
    match fs_type {
        "btrfs" => "btrfs".into(),
        "f2fs" => "f2fs".into(),
        _ => PolicySpec::COMMIT.into(),
    }
}

/// When a file system sends the discards of its mount option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sends {
    /// In the call that removes a file, which waits: Linux's fs/fat/fatent.c (`fat_free_clusters`), fs/exfat/fatent.c,
    /// fs/ntfs3/fsntfs.c (`mark_as_free_ex`).
    InCall,
    /// In each commit, which waits: ext4 up to Linux 5.14 (`ext4_process_freed_data`; since then a worker follows the
    /// commit), btrfs without `async` (`btrfs_finish_extent_commit`), jfs, nilfs2, gfs2.
    InCommit,
    /// In the background: XFS after each checkpoint of its log (`xfs_discard_extents`), btrfs with `discard=async`
    /// (fs/btrfs/discard.c), f2fs when it is idle (`issue_discard_thread`).
    Background,
}

impl Sends {
    /// `None` for file systems whose own discard trimwise does not know.
    fn of(fs_type: &str, discard: &str) -> Option<Self> {
        Some(match (fs_type, discard) {
            (_, "discard=async") | ("xfs" | "f2fs", _) => Self::Background,
            ("ext4" | "btrfs" | "jfs" | "nilfs2" | "gfs2", _) => Self::InCommit,
            ("vfat" | "exfat" | "ntfs3", _) => Self::InCall,
            _ => return None,
        })
    }
}

fn interval(policy: &PolicyId) -> Option<SimDuration> {
    Some(policy.spec()?.batch()?.every)
}

impl Today {
    /// Finds out what trims the file system of `mount`, which is mounted at all of `same`.
    pub(crate) fn of(root: &HostRoot, trimmers: &Trimmers<'_>, mount: &Mount, same: &[&Mount]) -> Self {
        let (at_intervals, not_here) = trimmers.of(same);
        let unit = systemd::mount_unit(root, &mount.mount_point).filter(|_| systemd::is_running(root));
        // A unit of the administrator takes precedence over one generated from fstab (systemd.unit(5)).
        let is_own = unit
            .as_ref()
            .is_some_and(|file| file.starts_with("/etc") || file.starts_with("/run/systemd/system"));
        let entries: Vec<_> =
            trimmers.fstab().iter().filter(|entry| entry.point == mount.mount_point).collect();
        let mounted_by = match (&entries[..], unit) {
            (_, Some(file)) if is_own => MountedBy::Unit { file },
            ([entry], _) if !entry.is_bind() => {
                MountedBy::Fstab { line: entry.line, options: entry.options.clone() }
            }
            ([], Some(file)) => MountedBy::Unit { file },
            _ => MountedBy::Unknown,
        };
        let also_at = same.iter().map(|other| other.mount_point.clone());
        let also_at = also_at.filter(|point| *point != mount.mount_point).collect();
        Self { discard: mount.discard().to_owned(), at_intervals, not_here, mounted_by, also_at }
    }

    /// Returns true if the file system discards what it frees on its own.
    pub fn is_online(&self) -> bool {
        self.discard != "nodiscard"
    }

    /// When the mount option sends its discards; `None` if it is off, or trimwise does not know.
    pub fn sends(&self, fs_type: &str) -> Option<Sends> {
        Sends::of(fs_type, &self.discard).filter(|_| self.is_online())
    }

    /// Returns true if anything trims the file system.
    pub fn is_trimmed(&self) -> bool {
        self.is_online() || !self.at_intervals.is_empty()
    }

    /// Returns true if fstab exempts the file system from periodic trims.
    pub fn is_spared(&self) -> bool {
        matches!(&self.mounted_by, MountedBy::Fstab { options, .. } if options.iter().any(|one| one == NO_TRIM))
    }

    /// Returns true if trimwised is active on the host, whether it trims this file system or not.
    pub fn is_daemon_there(&self) -> bool {
        self.at_intervals.iter().any(|one| one.name == TRIMWISED)
            || self.not_here.iter().any(|one| one.name == TRIMWISED)
    }

    /// Returns the policy by which the file system is trimmed; of several, the one that does the most. `None` if
    /// trimwise knows no such policy.
    pub fn policy(&self, fs_type: &str) -> Option<PolicyId> {
        if let Some(daemon) = self.at_intervals.iter().find(|one| one.name == TRIMWISED) {
            return daemon.policy.clone();
        }
        match (self.discard.as_str(), &self.at_intervals[..]) {
            ("nodiscard", []) => Some(PolicyId::OFF),
            ("nodiscard", several) => {
                several.iter().filter_map(|one| one.policy.clone()).min_by_key(interval)
            }
            ("discard=async", _) => Some(own_discard("btrfs")),
            // btrfs without `async` discards as ext4 does.
            _ if fs_type == "btrfs" => Some(PolicySpec::COMMIT.into()),
            _ if self.sends(fs_type) == Some(Sends::InCall) => None,
            _ => Some(own_discard(fs_type)),
        }
    }

    /// Says in an unfinished sentence what trims it: "its mount option `discard` trims what is freed".
    pub fn sentence(&self) -> String {
        let periodic = |one: &Periodic| {
            let sweeps = one.policy.as_ref().and_then(|policy| policy.spec()?.batch());
            let when = match sweeps.map(BatchConfig::hours) {
                Some(1) => "every hour ",
                Some(24) => "once a day ",
                Some(168) => "once a week ",
                Some(720) => "once a month ",
                _ => "",
            };
            format!("{} {when}", one.name).trim_end().to_owned()
        };
        let mut periodic: Vec<String> = self.at_intervals.iter().map(periodic).collect();
        if periodic.len() > 2 {
            let more = periodic.split_off(1).len();
            periodic.push(format!("{more} more"));
        }
        let verb = if periodic.len() > 1 { "trim" } else { "trims" };
        match (self.is_online(), periodic.join(" and ")) {
            (false, none) if none.is_empty() => "nothing trims it today".to_owned(),
            (false, others) => format!("{others} {verb} it"),
            (true, none) if none.is_empty() => {
                format!("its mount option `{}` trims what is freed", self.discard)
            }
            (true, others) => {
                format!("its mount option `{}` trims what is freed, and {others}", self.discard)
            }
        }
    }
}
