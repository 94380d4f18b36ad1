//! Examines a host for trimming: whether TRIM is on, and whether it reaches the disks.
//!
//! The doctor walks from fstab and the mount's options through partitions, dm-crypt, LVM, RAID and loop devices down to
//! the disks, and names the layer at which TRIM stops, with the change that fixes it. It only looks and sends nothing;
//! `trimwise verify dir:PATH` tests whether blocks really arrive.
//!
//! Everything is read below a [`HostRoot`], so that tests can build fake hosts.

mod ending;
mod layer;
mod quirks;
pub(crate) mod trimmers;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::trimmers::Trimmers;
use crate::block_device::{SysBlock, devices_in_sysfs};
use crate::here::{self, Drive};
use crate::host_root::HostRoot;
use crate::mount::{Mount, mounts, turns_discard_on};
use crate::path_error::PathError;
use crate::today::{MountedBy, Today};
pub(crate) use layer::disk_of;
pub use layer::{Disk, Kind, Layer, Transport};
pub use trimmers::{NO_TRIM, Periodic, TRIMWISED};

/// File systems that have FITRIM.
const TRIMMABLE: [&str; 13] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "gfs2", "jfs", "nilfs2", "ntfs3", "vfat",
    "xfs",
];

/// The first kernel on which ext4's online discard was measured to send far more than was freed: 256 MiB freed, 128,866
/// MiB discarded on 6.1; similar on 6.12 and 6.18; not on 5.10. Kernels between 5.10 and 6.1 were not measured.
const DISCARDS_TOO_MUCH_SINCE: (u32, u32) = (6, 1);

/// The [`Finding::place`] of the note that a file system is mounted read-only.
pub const READ_ONLY: &str = "ro";

/// A problem or a note in the doctor's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// True if this is a problem, false if it is only a note.
    pub wrong: bool,
    /// The device, file or option concerned.
    pub place: String,
    /// Description of the finding.
    pub what: String,
    /// Remedy for the problem.
    pub mend: Option<String>,
}

impl Finding {
    fn wrong(place: impl Into<String>, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { wrong: true, place: place.into(), what: what.into(), mend: Some(mend.into()) }
    }

    fn note(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { wrong: false, place: place.into(), what: what.into(), mend: None }
    }
}

/// A device on the path down, as reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerReport {
    /// Kernel name of the device.
    pub name: String,
    /// Description of the device in words.
    pub what: String,
    /// Number of devices above this one on the path.
    pub depth: usize,
    /// The largest discard that the device accepts, in bytes; 0 if none.
    pub discard_max_bytes: u64,
    /// Discards counted on the device since boot; `None` if the kernel does not count them.
    pub discards: Option<u64>,
}

/// The doctor's report on one file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Mount point of the file system.
    #[serde(serialize_with = "crate::mount::as_text")]
    pub mount_point: PathBuf,
    /// The device that is mounted.
    pub device: String,
    /// Type of the file system.
    pub fs_type: String,
    /// What trims it today.
    #[serde(flatten)]
    pub today: Today,
    /// True if TRIM of this file system passes down to a disk that accepts it, according to the kernel; `None` if sysfs
    /// does not show its device.
    pub passes: Option<bool>,
    /// The devices, from the mounted one down.
    pub layers: Vec<LayerReport>,
    /// Problems and notes about this file system.
    pub findings: Vec<Finding>,
    /// The drives below.
    #[serde(skip)]
    pub drives: Vec<Drive>,
}

/// The doctor's report on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Release of the running kernel.
    pub kernel: String,
    /// Everything that trims periodically: `fstrim.timer`, `trimwised`, `/etc/cron.weekly/fstrim`.
    pub trimmers: Vec<String>,
    /// Reports on each file system on a block device.
    pub file_systems: Vec<Diagnosis>,
    /// Findings about the whole host.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the number of problems found.
    pub fn wrong(&self) -> usize {
        let of_file_systems = self.file_systems.iter().flat_map(|one| &one.findings);
        self.findings.iter().chain(of_file_systems).filter(|finding| finding.wrong).count()
    }
}

/// Reasons why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The list of mounts cannot be read.
    #[error(transparent)]
    Mounts(#[from] PathError),
    /// No file system on a block device is mounted there.
    #[error(
        "{path}: no file system on a block device is mounted there; expected the mount point of one, such as {one}"
    )]
    NoMount {
        /// The path that the user asked for.
        path: PathBuf,
        /// Mount point of a file system with FITRIM, as an example.
        one: String,
    },
}

/// Examines all file systems on block devices, or the one mounted at `only`. Asks a daemon whose sockets are in `run`
/// which file systems it trims.
///
/// # Errors
/// If the mounts cannot be read, or none is at `only`.
pub fn examine(root: &HostRoot, run: &Path, only: Option<&Path>) -> Result<Report, DoctorError> {
    let mounts = mounts(root)?;
    let kernel = root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let trimmers = trimmers::trimmers(root, run, &mounts);
    let mut seen: Vec<&Mount> = Vec::new();
    let mut file_systems = Vec::new();
    for mount in mounts.iter().filter(|mount| TRIMMABLE.contains(&mount.fs_type.as_str())) {
        let wanted = only.is_none_or(|only| mount.mount_point == only);
        let again = seen.iter().any(|one| one.is_same_file_system(mount));
        if !wanted || again {
            continue;
        }
        seen.push(mount);
        file_systems.push(diagnose(root, mount, &mounts, &trimmers, &kernel));
    }
    if let (Some(only), true) = (only, file_systems.is_empty()) {
        let one = mounts.iter().find(|mount| TRIMMABLE.contains(&mount.fs_type.as_str()));
        let one = one.map_or("/".to_owned(), |mount| mount.mount_point.display().to_string());
        return Err(DoctorError::NoMount { path: only.to_owned(), one });
    }
    let findings = of_host(&trimmers);
    Ok(Report { kernel, trimmers: trimmers.names, file_systems, findings })
}

fn of_host(trimmers: &Trimmers) -> Vec<Finding> {
    let mut findings = Vec::new();
    if trimmers.names.len() > 1 {
        findings.push(Finding::note(
            trimmers.names.join(", "),
            "more than one of them trims the same free space: one is enough",
        ));
    }
    if trimmers.is_daemon_missing {
        findings.push(Finding::wrong(
            "trimwised.service",
            "it is enabled, but trimwised is not running",
            "`systemctl status trimwised` says why it does not run",
        ));
    }
    findings
}

fn diagnose(
    root: &HostRoot,
    mount: &Mount,
    mounts: &[Mount],
    trimmers: &Trimmers,
    kernel: &str,
) -> Diagnosis {
    let devices = devices_in_sysfs(root, mount).unwrap_or_default();
    let layers: Vec<Layer> = devices.iter().flat_map(|device| layer::walk(root, device)).collect();
    let today = Today::of(root, trimmers, mount, mounts);
    let mut findings = Vec::new();
    ending::of_layers(root, &layers, mounts, &mut findings);
    let passes =
        (!layers.is_empty()).then(|| layers.iter().any(|layer| layer.depth == 0 && layer.discard_max > 0));
    if passes != Some(false) {
        of_options(mount, &today, kernel, &mut findings);
    }
    let others = mounts.iter().filter(|other| other.is_same_file_system(mount)).count();
    if others > 1 {
        let what = format!(
            "this file system is mounted {others} times (bind mounts); it needs one trim, not {others}"
        );
        findings.push(Finding::note(mount.device.clone(), what));
    }
    if layers.is_empty() {
        let what = "sysfs does not show this device here, as in some containers";
        findings.push(Finding::note(mount.device.clone(), what));
    }
    Diagnosis {
        mount_point: mount.mount_point.clone(),
        device: mount.device.clone(),
        fs_type: mount.fs_type.clone(),
        today,
        passes,
        layers: layers.iter().map(told).collect(),
        findings,
        drives: here::drives(root, mounts, mount),
    }
}

/// Finds options that contradict each other or what trims at intervals, and tells what is known of the others.
fn of_options(mount: &Mount, today: &Today, kernel: &str, findings: &mut Vec<Finding>) {
    let spared = today.is_spared();
    if spared {
        findings.push(Finding::note(
            "/etc/fstab",
            format!("{NO_TRIM}: neither fstrim.timer nor trimwised trims it"),
        ));
    }
    if mount.is_read_only() {
        findings.push(Finding::note(READ_ONLY, "it is mounted read-only: there is nothing to trim"));
        return;
    }
    let point = mount.mount_point.display();
    let is_wanted = today.not_here.iter().all(|why| why.ends_with(trimmers::POLICY_OFF));
    match (today.is_online(), today.at_intervals.first()) {
        (false, None) if !spared && is_wanted => findings.push(Finding::note(
            point.to_string(),
            "nothing trims it: it is mounted without discard, and nothing trims it at intervals. Whether that costs \
             anything on this drive: `trimwise advise --here PATH`"
                .replace("PATH", &point.to_string()),
        )),
        (false, None) if !spared => findings.push(Finding::wrong(
            point.to_string(),
            format!("nothing trims it: it is mounted without discard; {}", today.not_here.join("; ")),
            "list it in /etc/fstab for fstrim.timer, or let trimwised manage it (`trimwise status` says why it does \
             not)",
        )),
        (true, Some(one)) if one.name != trimmers::TRIMWISED => findings.push(Finding::note(
            today.discard.clone(),
            format!("it discards what is freed by itself; {} finds little left", one.name),
        )),
        _ => {}
    }
    if mount.fs_type == "ext4"
        && today.is_online()
        && version(kernel).is_some_and(|found| found >= DISCARDS_TOO_MUCH_SINCE)
    {
        findings.push(Finding::note(
            today.discard.clone(),
            format!(
                "ext4 of Linux {kernel} discards far more than was freed when scattered files are removed: each \
                 discard runs on through the free space that follows (measured on 6.1, 6.12 and 6.18: 256 MiB freed, \
                 128,866 MiB discarded). Whether that costs anything on this drive: `trimwise advise --here {point}`, \
                 whose model does the same"
            ),
        ));
    }
    if let MountedBy::Fstab { options, .. } = &today.mounted_by
        && options.iter().any(|option| turns_discard_on(option))
        && !today.is_online()
    {
        let why = match mount.fs_type.as_str() {
            "xfs" => {
                "it lists discard, but the file system is mounted without it: XFS takes it only when it is mounted"
            }
            _ => "it lists discard, but the file system is mounted without it",
        };
        findings.push(Finding::note("/etc/fstab", why));
    }
}

fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn told(layer: &Layer) -> LayerReport {
    let what = match &layer.kind {
        Kind::Partition => "partition".to_owned(),
        Kind::Crypt(name) => format!("dm-crypt {name}"),
        Kind::Lvm(name) => format!("LVM {name}"),
        Kind::Multipath => "multipath".to_owned(),
        Kind::Mapper(name) => format!("device mapper {name}"),
        Kind::Raid(level) => format!("Linux RAID {level}"),
        Kind::Loop(file) => format!("loop device over {file}"),
        Kind::Disk(disk) => {
            let by = disk.transport.name().unwrap_or("disk");
            format!("{by} {} {}", disk.model, disk.firmware).trim_end().to_owned()
        }
    };
    LayerReport {
        name: layer.name.clone(),
        what,
        depth: layer.depth,
        discard_max_bytes: layer.discard_max,
        discards: layer.discards,
    }
}

/// Returns the disks below these devices, by kernel name; if the layers below are unknown, the lowest known device.
pub fn disks<'a>(root: &HostRoot, devices: impl Iterator<Item = &'a SysBlock>) -> BTreeSet<String> {
    let mut disks = BTreeSet::new();
    for device in devices {
        let layers = layer::walk(root, device);
        let is_lowest =
            |index: usize| layers.get(index + 1).is_none_or(|next: &Layer| next.depth <= layers[index].depth);
        disks.extend(
            (0..layers.len()).filter(|&index| is_lowest(index)).map(|index| layers[index].name.clone()),
        );
    }
    disks
}
