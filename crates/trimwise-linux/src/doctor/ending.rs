//! Finds the layer at which TRIM stops, and how to fix it.

use std::path::Path;

use super::Finding;
use super::layer::{Disk, Kind, Layer, Transport};
use super::quirks::{self, Quirk};
use crate::host_root::HostRoot;
use crate::mount::{Mount, nearest};

/// Adds findings on the layer that stops TRIM, and on drives whose TRIM is faulty.
pub(crate) fn of_layers(root: &HostRoot, layers: &[Layer], mounts: &[Mount], findings: &mut Vec<Finding>) {
    for (index, layer) in layers.iter().enumerate() {
        let below = || layers[index + 1..].iter().take_while(|below| below.depth > layer.depth);
        let ends_here = layer.discard_max == 0
            && layer.kind != Kind::Partition
            && below().filter(|below| below.depth == layer.depth + 1).all(|below| below.discard_max > 0);
        if ends_here {
            let (what, mend) = ending(layer);
            findings.push(Finding::wrong(layer.name.clone(), what, mend));
        }
        if let Kind::Loop(file) = &layer.kind
            && layer.discard_max > 0
        {
            findings.push(below_loop(layer, file, mounts));
        }
        if let Kind::Disk(disk) = &layer.kind
            && disk.transport == Transport::Ata
        {
            of_model(root, layer, disk, findings);
        }
    }
}

/// A loop device turns TRIM into holes in its file; trimming the file system below passes them on.
fn below_loop(layer: &Layer, file: &str, mounts: &[Mount]) -> Finding {
    let what = match nearest(mounts, Path::new(file)).map(|index| &mounts[index]) {
        Some(below) if !super::TRIMMABLE.contains(&below.fs_type.as_str()) => {
            format!(
                "TRIM makes holes in {file}, so trimmed space no longer takes up room on {}",
                below.fs_type
            )
        }
        Some(below) => format!(
            "TRIM makes holes in {file}, which become free space of {}, {} on {}: trimming that passes it on, see \
             `trimwise doctor {0}`",
            below.mount_point.display(),
            below.fs_type,
            below.device
        ),
        None => format!("TRIM makes holes in {file}, whose file system is not mounted here"),
    };
    Finding::note(layer.name.clone(), what)
}

fn of_model(root: &HostRoot, layer: &Layer, disk: &Disk, findings: &mut Vec<Finding>) {
    let forced_off = root.text("/proc/cmdline").is_some_and(|line| line.contains("noncqtrim"));
    match quirks::of(&disk.model, &disk.firmware) {
        Some(Quirk::NoQueuedTrim) if !forced_off => findings.push(Finding::note(
            layer.name.clone(),
            format!(
                "{} loses data with queued TRIM; the kernel knows this and sends unqueued TRIMs, each of which stalls \
                 the \
                 drive's queue: trim in quiet hours or in small slices",
                disk.model
            ),
        )),
        Some(Quirk::NoTrim) => findings.push(Finding::note(
            layer.name.clone(),
            format!("{} handles TRIM wrongly; the kernel knows this and sends none", disk.model),
        )),
        _ => {}
    }
}

/// Returns the reason why TRIM stops in a layer although the layers below accept it, and the remedy.
fn ending(layer: &Layer) -> (String, String) {
    match &layer.kind {
        Kind::Crypt(name) => (
            format!("dm-crypt ({name}) drops TRIM, as it does by default: TRIM shows which blocks are free, not their contents"),
            format!(
                "if that may be seen: on LUKS2 `cryptsetup refresh --allow-discards --persistent {name}`, for now and \
                 each boot; on LUKS1 `discard` in /etc/crypttab, or for / rd.luks.options=discard on the kernel's \
                 command line, and a reboot. Otherwise leave it"
            ),
        ),
        Kind::Lvm(name) => (
            format!("the logical volume {name} does not accept TRIM though the devices below do"),
            "a linear or striped volume passes it on; for a thin pool set `lvchange --discards passdown`; a snapshot \
             or \
             RAID volume does not pass it on"
                .to_owned(),
        ),
        Kind::Multipath => (
            "multipath drops TRIM".to_owned(),
            "all paths must accept it: compare queue/discard_max_bytes of its slaves".to_owned(),
        ),
        Kind::Mapper(name) => (
            format!("the device-mapper device {name} drops TRIM"),
            "use a target that passes it on (linear, striped, crypt with allow_discards, thin)".to_owned(),
        ),
        Kind::Raid(level) => (
            format!("Linux RAID ({level}) does not accept TRIM though its disks do"),
            "for raid4/5/6, if all disks return zeros for trimmed blocks: raid456.devices_handle_discard_safely=Y on \
             the \
             kernel's command line"
                .to_owned(),
        ),
        Kind::Loop(file) => (
            format!("the loop device over {file} does not accept TRIM: its file system cannot punch holes, or it is \
                     read-only"),
            "put the file on ext4, XFS, btrfs or tmpfs".to_owned(),
        ),
        Kind::Partition => ("the partition does not accept TRIM".to_owned(), String::new()),
        Kind::Disk(disk) => ending_at_disk(layer, disk),
    }
}

fn ending_at_disk(layer: &Layer, disk: &Disk) -> (String, String) {
    let model = if disk.model.is_empty() { layer.name.clone() } else { disk.model.clone() };
    if disk.rotational && disk.transport != Transport::Usb {
        return (
            format!("{model} is a hard disk, or claims to be: it has no TRIM"),
            "nothing to fix on a hard disk; for a virtual disk set discard=unmap (and rotation_rate=1) on the \
             host".to_owned(),
        );
    }
    if disk.transport == Transport::Ata && quirks::of(&disk.model, &disk.firmware) == Some(Quirk::NoTrim) {
        return (
            format!("{model}: the kernel sends no TRIM because this drive handles it wrongly"),
            "use another drive".to_owned(),
        );
    }
    match disk.transport {
        Transport::Usb => (
            format!("the USB adapter of {model} does not offer TRIM, or the kernel does not trust it"),
            format!(
                "if `sg_vpd -p lbpv /dev/{name}` shows LBPU=1, add a udev rule that writes `unmap` into \
                 /sys/block/{name}/device/scsi_disk/*/provisioning_mode; otherwise use another adapter (UASP, with \
                 UNMAP)",
                name = layer.name
            ),
        ),
        Transport::Virtio => (
            format!("the virtual disk {} does not accept TRIM", layer.name),
            "on the host: discard=unmap for this disk (QEMU: -drive ...,discard=unmap)".to_owned(),
        ),
        Transport::Scsi => (
            format!(
                "{model} does not accept UNMAP (provisioning_mode {}): a RAID controller, or a disk without thin \
                 provisioning",
                disk.provisioning.as_deref().unwrap_or("unknown")
            ),
            "the controller's HBA mode passes TRIM on; for a virtual machine's disk set discard=unmap on the \
             host".to_owned(),
        ),
        Transport::Ata | Transport::Nvme | Transport::Mmc | Transport::Ufs | Transport::Other => {
            (format!("{model} offers no TRIM"), "update its firmware, or use another drive".to_owned())
        }
    }
}
