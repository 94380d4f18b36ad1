//! Walks from a mounted device down to the disks: what each layer is, and what it passes on.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host_root::HostRoot;

/// Maximum depth of stacked devices; beyond it, assume a cycle.
const DEPTH_MAX: usize = 16;

/// What a layer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of the disk below.
    Partition,
    /// dm-crypt, with the name of its mapping.
    Crypt(String),
    /// An LVM logical volume, with its name.
    Lvm(String),
    /// Several paths to one disk.
    Multipath,
    /// Another device-mapper device, with its name.
    Mapper(String),
    /// Linux RAID, with its level, such as `raid5`.
    Raid(String),
    /// A loop device, with its backing file.
    Loop(String),
    /// A disk.
    Disk(Disk),
}

/// How a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// USB, usually an adapter for a SATA drive.
    Usb,
    /// SATA.
    Ata,
    /// NVMe.
    Nvme,
    /// A disk of a virtual machine.
    Virtio,
    /// eMMC or an SD card.
    Mmc,
    /// SCSI: SAS, a RAID controller, a disk of a virtual machine.
    Scsi,
    /// Anything else.
    Other,
}

/// A disk at the bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The model that it reports.
    pub model: String,
    /// Its firmware version.
    pub firmware: String,
    /// How it is attached.
    pub transport: Transport,
    /// Whether it is rotational.
    pub rotational: bool,
    /// How Linux discards on a SCSI disk: `unmap`, `writesame_16`, `full` (not at all).
    pub provisioning: Option<String>,
}

/// One device on the way down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The kernel's name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Number of devices above it on this path.
    pub depth: usize,
    /// The largest discard that it accepts, in bytes; 0 if none.
    pub discard_max: u64,
    /// Discards counted on it since boot; `None` if the kernel does not count them.
    pub discards: Option<u64>,
}

/// The device and all devices below it, top down.
pub fn walk(root: &HostRoot, numbers: (u32, u32)) -> Vec<Layer> {
    let mut layers = Vec::new();
    let link = root.path(format!("/sys/dev/block/{}:{}", numbers.0, numbers.1));
    if let Ok(directory) = link.canonicalize() {
        descend(root, &directory, 0, &mut layers);
    }
    layers
}

fn descend(root: &HostRoot, directory: &Path, depth: usize, layers: &mut Vec<Layer>) {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if depth >= DEPTH_MAX || layers.iter().any(|layer| layer.name == name) {
        return;
    }
    let is_partition = directory.join("partition").exists();
    let disk = directory.parent().filter(|_| is_partition).unwrap_or(directory);
    let discard_max =
        text(&disk.join("queue/discard_max_bytes")).and_then(|text| text.parse().ok()).unwrap_or(0);
    let stat = text(&directory.join("stat")).and_then(|text| crate::block_device::parse_stat(&text));
    let discards = stat.and_then(|stat| stat.discards).map(|discards| discards.commands);
    let kind = if is_partition { Kind::Partition } else { kind_of(root, directory, &name) };
    layers.push(Layer { name, kind, depth, discard_max, discards });
    if is_partition {
        descend(root, disk, depth + 1, layers);
    }
    let mut slaves: Vec<PathBuf> = fs::read_dir(directory.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    slaves.sort();
    for slave in slaves.iter().filter_map(|slave| slave.canonicalize().ok()) {
        descend(root, &slave, depth + 1, layers);
    }
}

fn kind_of(root: &HostRoot, directory: &Path, name: &str) -> Kind {
    if let Some(mapping) = text(&directory.join("dm/name")) {
        let uuid = text(&directory.join("dm/uuid")).unwrap_or_default();
        return match uuid.split('-').next().unwrap_or_default() {
            "CRYPT" => Kind::Crypt(mapping),
            "LVM" => Kind::Lvm(mapping),
            "mpath" => Kind::Multipath,
            part if part.starts_with("part") => Kind::Partition,
            _ => Kind::Mapper(mapping),
        };
    }
    if let Some(level) = text(&directory.join("md/level")) {
        return Kind::Raid(level);
    }
    if let Some(file) = text(&directory.join("loop/backing_file")) {
        return Kind::Loop(file);
    }
    let device = directory.join("device");
    let first = |files: [&str; 2]| files.iter().find_map(|file| text(&device.join(file))).unwrap_or_default();
    Kind::Disk(Disk {
        model: first(["model", "name"]),
        firmware: first(["rev", "firmware_rev"]),
        transport: transport(root, directory, name),
        rotational: text(&directory.join("queue/rotational")).is_some_and(|text| text == "1"),
        provisioning: provisioning(&device),
    })
}

fn transport(root: &HostRoot, directory: &Path, name: &str) -> Transport {
    let below =
        directory.strip_prefix(root.path("/sys").canonicalize().unwrap_or_default()).unwrap_or(directory);
    let has =
        |start: &str| below.components().any(|part| part.as_os_str().to_string_lossy().starts_with(start));
    if has("usb") {
        Transport::Usb
    } else if name.starts_with("nvme") {
        Transport::Nvme
    } else if has("ata") || text(&directory.join("device/vendor")).is_some_and(|vendor| vendor == "ATA") {
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

fn provisioning(device: &Path) -> Option<String> {
    let disks = fs::read_dir(device.join("scsi_disk")).into_iter().flatten().flatten();
    disks.filter_map(|entry| text(&entry.path().join("provisioning_mode"))).next()
}

fn text(path: &Path) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}
