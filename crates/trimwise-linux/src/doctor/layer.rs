//! Walks from a mounted device down to the disks and describes each layer.

use std::fs;

use crate::block_device::{LAYERS_MAX, SysBlock};
use crate::host_root::HostRoot;

/// Kind of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A partition of the disk below.
    Partition,
    /// dm-crypt, with the name of its mapping.
    Crypt(String),
    /// An LVM logical volume, with its name.
    Lvm(String),
    /// Device-mapper multipath: several paths to one disk.
    Multipath,
    /// Another device-mapper device, with its name.
    Mapper(String),
    /// Linux RAID, with its level, such as `raid5`.
    Raid(String),
    /// A loop device, with its backing file.
    Loop(String),
    /// A disk, the lowest layer.
    Disk(Disk),
}

/// Connection of a disk to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// USB, usually an adapter for a SATA drive.
    Usb,
    /// SATA or PATA.
    Ata,
    /// NVMe: the kernel names it `nvme*`.
    Nvme,
    /// A disk of a virtual machine.
    Virtio,
    /// eMMC or an SD card.
    Mmc,
    /// UFS, which Linux drives as SCSI.
    Ufs,
    /// SCSI: SAS, a RAID controller, a disk of a virtual machine.
    Scsi,
    /// A connection that is not known here.
    Other,
}

impl Transport {
    /// Returns the name for users; `None` if the connection is unknown.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Usb => "USB",
            Self::Ata => "SATA",
            Self::Nvme => "NVMe",
            Self::Virtio => "virtio",
            Self::Mmc => "MMC",
            Self::Ufs => "UFS",
            Self::Scsi => "SCSI",
            Self::Other => return None,
        })
    }
}

/// A disk, the lowest layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The model that it reports.
    pub model: String,
    /// Firmware version of the disk.
    pub firmware: String,
    /// Connection of the disk to the host.
    pub transport: Transport,
    /// True if the kernel treats the disk as rotational.
    pub rotational: bool,
    /// Linux's way of discarding on a SCSI disk: `unmap`, `writesame_16`, `full` (no discards).
    pub provisioning: Option<String>,
}

/// One device on the way down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Kernel name of the device.
    pub name: String,
    /// Kind of the layer.
    pub kind: Kind,
    /// Number of devices above this one on the path.
    pub depth: usize,
    /// The largest discard that the device accepts, in bytes; 0 if none.
    pub discard_max: u64,
    /// Discards counted on the device since boot; `None` if the kernel does not count them.
    pub discards: Option<u64>,
}

/// Returns the device and all devices below it, top down.
pub fn walk(root: &HostRoot, top: &SysBlock) -> Vec<Layer> {
    let mut layers = Vec::new();
    descend(root, top, 0, &mut layers);
    layers
}

fn descend(root: &HostRoot, device: &SysBlock, depth: usize, layers: &mut Vec<Layer>) {
    let name = device.name();
    if depth >= LAYERS_MAX || layers.iter().any(|layer| layer.name == name) {
        return;
    }
    let disk = device.disk();
    let kind = if disk.is_some() { Kind::Partition } else { kind_of(root, device) };
    let discard_max = device.queue("discard_max_bytes").unwrap_or(0);
    let discards = device.stat().ok().and_then(|stat| stat.discards).map(|discards| discards.commands);
    layers.push(Layer { name, kind, depth, discard_max, discards });
    for below in disk.into_iter().chain(device.slaves()) {
        descend(root, &below, depth + 1, layers);
    }
}

fn kind_of(root: &HostRoot, device: &SysBlock) -> Kind {
    if let Some(mapping) = device.text("dm/name") {
        let uuid = device.text("dm/uuid").unwrap_or_default();
        return match uuid.split('-').next().unwrap_or_default() {
            "CRYPT" => Kind::Crypt(mapping),
            "LVM" => Kind::Lvm(mapping),
            "mpath" => Kind::Multipath,
            part if part.starts_with("part") => Kind::Partition,
            _ => Kind::Mapper(mapping),
        };
    }
    if let Some(level) = device.text("md/level") {
        return Kind::Raid(level);
    }
    if let Some(file) = device.backing_file() {
        return Kind::Loop(file.display().to_string());
    }
    Kind::Disk(disk_of(root, device))
}

/// Reads the properties of a disk from sysfs.
pub(crate) fn disk_of(root: &HostRoot, device: &SysBlock) -> Disk {
    let first = |files: [&str; 2]| files.iter().find_map(|file| device.text(file)).unwrap_or_default();
    Disk {
        model: first(["device/model", "device/name"]),
        firmware: first(["device/rev", "device/firmware_rev"]),
        transport: transport(root, device),
        rotational: device.number("queue/rotational").is_ok_and(|n| n == 1),
        provisioning: provisioning(device),
    }
}

fn transport(root: &HostRoot, device: &SysBlock) -> Transport {
    let (name, path) = (device.name(), device.path());
    let below = path.strip_prefix(root.path("/sys").canonicalize().unwrap_or_default()).unwrap_or(path);
    let has =
        |start: &str| below.components().any(|part| part.as_os_str().to_string_lossy().starts_with(start));
    if has("usb") {
        Transport::Usb
    } else if below.components().any(|part| part.as_os_str().to_string_lossy().contains("ufshc")) {
        Transport::Ufs
    } else if name.starts_with("nvme") {
        Transport::Nvme
    } else if has("ata") || device.text("device/vendor").is_some_and(|vendor| vendor == "ATA") {
        Transport::Ata
    } else if name.starts_with("vd") {
        Transport::Virtio
    } else if name.starts_with("mmc") {
        Transport::Mmc
    } else if name.starts_with("sd") {
        Transport::Scsi
    } else {
        Transport::Other
    }
}

fn provisioning(device: &SysBlock) -> Option<String> {
    let disks = fs::read_dir(device.path().join("device/scsi_disk")).into_iter().flatten().flatten();
    let mut modes = disks.map(|entry| fs::read_to_string(entry.path().join("provisioning_mode")));
    modes.find_map(|mode| Some(mode.ok()?.trim().to_owned()))
}
