//! Describes a directory's host for a model: the drive below it, its file system, kernel and memory.
//!
//! Nothing is written. Layers that sysfs shows (partitions, LVM, dm-crypt, RAID, loop devices) are followed down to the
//! drives. Like the doctor, this module reads below a [`HostRoot`], so that tests can build fake hosts.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use thiserror::Error;
use trimwise::drives::models::known;
use trimwise::units::{Bytes, SECTOR_BYTES, Utilization};

use crate::block_device::{LAYERS_MAX, SysBlock, devices_in_sysfs, numbers_of};
use crate::doctor::{Graph, Purpose, Transport, disk_of, is_container, purposes, trimmers::trimmers};
use crate::host_root::HostRoot;
use crate::mount::{Mount, MountError, mount_of, mounts, nearest};
use crate::path_error::{PathError, at};
use crate::systemd;
use crate::today::Today;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    pub root: HostRoot,
    pub mount: Mount,
    /// Empty if there are none or sysfs does not show them.
    pub drives: Vec<Drive>,
    pub size: Bytes,
    /// As df shows it.
    pub utilization: Utilization,
    pub today: Today,
    /// True if TRIM passes down to a drive that accepts it, according to the kernel; `None` if sysfs does not show its
    /// device.
    pub passes: Option<bool>,
    /// What its discards are for.
    pub purposes: Vec<Purpose>,
    pub has_systemd: bool,
    pub kernel: String,
    pub memory: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    pub name: String,
    /// Empty if the drive reports none.
    pub model: String,
    pub size: Bytes,
    pub link: Transport,
    /// True if the kernel treats the drive as rotational.
    pub rotates: bool,
    /// Zero if the drive accepts no discards.
    pub discard_max: Bytes,
    /// True if the drive may lose acknowledged writes at a power cut, as far as Linux knows.
    pub is_volatile: bool,
    /// True if the drive asks the host for memory for its map, as NVMe drives without DRAM do.
    pub borrows_memory: bool,
    /// True if the drive is on another host.
    pub is_remote: bool,
    /// True if a hypervisor or a cloud provides it.
    pub is_virtual: bool,
    /// True if a loop device is between the directory and the drive.
    pub is_below_loop: bool,
}

impl Drive {
    fn of(root: &HostRoot, device: &SysBlock, is_below_loop: bool) -> Self {
        let disk = disk_of(root, device);
        let name = device.name();
        Self {
            model: full_model(root, device).unwrap_or(disk.model),
            size: Bytes(device.number("size").unwrap_or(0).saturating_mul(SECTOR_BYTES)),
            link: disk.transport,
            rotates: disk.rotational,
            discard_max: Bytes(device.queue("discard_max_bytes").unwrap_or(0)),
            is_volatile: device.text("queue/write_cache").is_none_or(|cache| cache == "write back"),
            borrows_memory: device.has("device/hmb"),
            is_remote: matches!(disk.transport, Transport::Network(_) | Transport::Drbd),
            is_virtual: disk.hypervisor.is_some(),
            is_below_loop,
            name,
        }
    }

    /// Returns the reason why no SSD profile can stand in for the drive; `None` if one can. Whether a virtual disk rotates
    /// does not count: it often claims to, whatever is below it.
    pub fn why_no_ssd(&self) -> Option<&'static str> {
        match () {
            () if self.is_below_loop => {
                Some("a loop device, whose TRIM frees space in a file and not on the drive below it")
            }
            () if self.name.starts_with("ram") || self.name.starts_with("zram") => Some("a RAM disk"),
            () if self.link == Transport::Zvol => Some("a volume of a ZFS pool"),
            () if self.is_remote => Some("a drive on the network"),
            () if self.is_virtual || matches!(self.link, Transport::Virtio | Transport::Xen) => {
                Some("a virtual disk, which does not show what drive is below it")
            }
            () if self.rotates => Some("a hard disk, as far as the kernel knows (queue/rotational is 1)"),
            () if matches!(self.link, Transport::Scsi | Transport::Other) && known(&self.model).is_none() => {
                Some("a disk that does not show what drive it is (a LUN, a volume of a controller)")
            }
            () => None,
        }
    }
}

#[derive(Debug, Error)]
pub enum HereError {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Io(#[from] PathError),
}

impl Here {
    /// Describes `path` and the host around it. Asks a daemon whose sockets are in `run` which file systems it trims.
    pub fn of(root: &HostRoot, run: &Path, path: &Path) -> Result<Self, HereError> {
        let mounts = mounts(root)?;
        let mount = if root.is_own() {
            mount_of(path)?
        } else {
            let index = nearest(&mounts, path);
            index
                .map(|index| mounts[index].clone())
                .ok_or(MountError::Unknown { path: path.display().to_string() })?
        };
        let place = root.path(path);
        let place = if root.is_own() { path } else { &place };
        let space = statvfs(place).map_err(at(place))?;
        let devices = devices_in_sysfs(root, &mount).unwrap_or_default();
        let same: Vec<&Mount> = mounts.iter().filter(|other| other.is_same_file_system(&mount)).collect();
        let graph = Graph::of(root, &mounts, &devices);
        Ok(Self {
            passes: graph.passes(),
            // Nothing is given back of what nothing may write.
            purposes: if mount.is_read_only() { Vec::new() } else { purposes(root, &mounts, &mount, &graph) },
            has_systemd: systemd::is_running(root),
            root: root.clone(),
            drives: drives(root, &mounts, &mount),
            size: Bytes(space.f_blocks.saturating_mul(space.f_frsize)),
            utilization: used(space.f_blocks, space.f_bfree, space.f_bavail),
            today: Today::of(root, &trimmers(root, run, &mounts, is_container(root)), &mount, &same),
            kernel: root.text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            memory: root.text("/proc/meminfo").and_then(|text| total_memory(&text)),
            mount,
        })
    }

    pub fn is_in_memory(&self) -> bool {
        ["tmpfs", "ramfs", "devtmpfs"].contains(&self.mount.fs_type.as_str())
    }

    /// Returns the reason why there is no drive below the directory.
    pub fn why_no_drive(&self) -> &'static str {
        match self.mount.fs_type.as_str() {
            _ if self.is_in_memory() => "it is in memory",
            "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "virtiofs" | "fuse.sshfs" => {
                "it is on another host"
            }
            "overlay" => "it is an overlay of other directories",
            _ => "sysfs shows no drive below it",
        }
    }

    /// Returns the mount's discard option as the kernel shows it, and everything that trims periodically: `nodiscard,
    /// fstrim.timer`.
    pub fn policy(&self) -> String {
        let trimmers = self.today.at_intervals.iter().map(|one| one.name.as_str());
        std::iter::once(&*self.today.discard).chain(trimmers).collect::<Vec<_>>().join(", ")
    }
}

/// None if sysfs does not show the device.
pub(crate) fn drives(root: &HostRoot, mounts: &[Mount], mount: &Mount) -> Vec<Drive> {
    let mut drives = Vec::new();
    descend(root, mounts, mount, Above::default(), &mut drives);
    drives
}

/// Returns the drives below a block device, or the device itself if it is a drive.
pub fn drives_of_device(root: &HostRoot, path: &Path) -> Result<Vec<Drive>, PathError> {
    let found = std::fs::metadata(path).map_err(at(path))?;
    let device = SysBlock::of_numbers(root, numbers_of(found.rdev()))
        .map_err(|error| at(path)(std::io::Error::other(error.to_string())))?;
    let mut drives = Vec::new();
    lowest(root, &mounts(root).unwrap_or_default(), &device, Above::default(), &mut drives);
    Ok(drives)
}

/// What is above a device.
#[derive(Clone, Copy, Default)]
struct Above {
    layers: usize,
    has_loop: bool,
}

/// Adds the drives below a mount, through the mount that holds a loop device's file.
fn descend(root: &HostRoot, mounts: &[Mount], mount: &Mount, above: Above, drives: &mut Vec<Drive>) {
    for device in devices_in_sysfs(root, mount).unwrap_or_default() {
        lowest(root, mounts, &device, above, drives);
    }
}

fn lowest(root: &HostRoot, mounts: &[Mount], device: &SysBlock, above: Above, drives: &mut Vec<Drive>) {
    let below: Vec<SysBlock> = device.disk().into_iter().chain(device.slaves()).collect();
    if above.layers >= LAYERS_MAX {
        return;
    }
    let under = Above { layers: above.layers + 1, ..above };
    if let Some(file) = device.backing_file() {
        if let Some(index) = nearest(mounts, &file) {
            descend(root, mounts, &mounts[index], Above { has_loop: true, ..under }, drives);
        }
    } else if below.is_empty() {
        let drive = Drive::of(root, device, above.has_loop);
        if !drives.contains(&drive) {
            drives.push(drive);
        }
    }
    for device in below {
        lowest(root, mounts, &device, under, drives);
    }
}

/// Returns the full model from udev: sysfs cuts off a SATA drive's after 16 characters.
fn full_model(root: &HostRoot, device: &SysBlock) -> Option<String> {
    let (major, minor) = device.numbers().ok()?;
    let known = root.text(PathBuf::from(format!("/run/udev/data/b{major}:{minor}")))?;
    let model = known.lines().find_map(|line| line.strip_prefix("E:ID_MODEL="))?;
    Some(model.replace('_', " ").trim().to_owned()).filter(|model| !model.is_empty())
}

/// Returns the space in use as a share of the space that users other than root may use, rounded up.
fn used(blocks: u64, free: u64, available: u64) -> Utilization {
    let used = u128::from(blocks.saturating_sub(free));
    let of = used + u128::from(available);
    Utilization::of((used * 100).div_ceil(of.max(1)).min(100) as u8)
}

fn total_memory(meminfo: &str) -> Option<Bytes> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok().map(Bytes::kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_df() {
        assert_eq!(used(0, 0, 0), Utilization::of(0), "tmpfs without a limit");
        assert_eq!(used(1000, 500, 450), Utilization::of(53), "root's reserve does not count");
        assert_eq!(used(1000, 0, 0), Utilization::of(100));
        assert_eq!(total_memory("MemTotal:  2048 kB\nMemFree: 1 kB\n"), Some(Bytes::mib(2)));
        assert_eq!(total_memory(""), None);
    }
}
