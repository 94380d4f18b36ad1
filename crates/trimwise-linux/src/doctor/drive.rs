//! Why a disk accepts no TRIM, and what helps: that depends on what connects it.

use super::Finding;
use super::disk::{Disk, Scsi, Transport};
use super::graph::Node;
use super::quirks::{self, Quirk};
use crate::host_root::HostRoot;

/// Drivers of RAID controllers, which hide the drives behind volumes of their own.
const RAID_DRIVERS: [&str; 6] = ["megaraid_sas", "hpsa", "aacraid", "smartpqi", "3w-9xxx", "arcmsr"];
/// Drivers of SAS HBAs that leave SATA drives to libata (the kernel's libsas).
const LIBSAS_DRIVERS: [&str; 5] = ["mvsas", "isci", "pm80xx", "aic94xx", "hisi_sas"];

pub(super) fn ending(root: &HostRoot, node: &Node, disk: &Disk) -> Finding {
    let name = &node.name;
    let model = if disk.model.is_empty() { name } else { &disk.model };
    let wrong = |what: String, mend: &str| Finding::wrong(name.clone(), what, mend);
    let driver = disk.driver.as_deref().unwrap_or_default();
    let is_raid = RAID_DRIVERS.contains(&driver);
    let is_ata = disk.transport == Transport::Ata
        || disk.transport == Transport::AtaBehindSas
            && LIBSAS_DRIVERS.iter().any(|one| driver.starts_with(one));
    match disk.transport {
        // What a disk claims counts more than its name: hypervisors' disks, too, may carry out what they do not announce.
        // But libata makes up the page with the claim, the same for all.
        _ if !is_ata && disk.claims_unmap() => {
            of_scsi(node, disk, || (format!("{model} does not accept UNMAP"), "another disk"))
        }
        Transport::Network(protocol) => wrong(
            format!("{name} lies on another host ({protocol}), which offers no TRIM for it"),
            "on the host that serves it: let it announce UNMAP or TRIM (thin provisioning), then connect anew",
        )
        .beyond_this_host(),
        _ if disk.is_virtual => wrong(
            format!("the virtual disk {name} does not accept TRIM"),
            match disk.transport {
                Transport::Xen => {
                    "on the Xen host: storage that supports discard (such as a thin file-based repository), and \
                     discard allowed for this disk"
                }
                _ => "on the host: discard=unmap for this disk (QEMU: -drive ...,discard=unmap)",
            },
        )
        .beyond_this_host(),
        _ if disk.rotational && disk.transport != Transport::Usb => {
            let what = format!("{model} is a hard disk, or claims to be: it has no TRIM");
            // A controller's volume of SSDs claims to be one, too.
            Finding { wrong: is_raid, ..Finding::note(name.clone(), what) }.beyond_this_host()
        }
        _ if ["pmem", "ram", "zram"].iter().any(|memory| name.starts_with(memory)) => {
            Finding::note(name.clone(), format!("{name} lies in memory, which needs no TRIM")).beyond_this_host()
        }
        _ if is_ata => of_ata(root, node, disk, model),
        Transport::Usb => of_scsi(node, disk, || {
            (
                format!("the USB adapter of {model} does not offer TRIM, or the kernel does not trust it"),
                "another adapter (UASP, with UNMAP)",
            )
        }),
        Transport::AtaBehindSas if !is_raid => of_scsi(node, disk, || {
            (
                format!(
                    "the SAS HBA{} passes no TRIM on to {model}: it translates for SATA drives, and does so only for \
                     those that promise what a read after TRIM returns (DRAT and RZAT)",
                    of_driver(disk)
                ),
                "a SATA port of the mainboard instead of the HBA, newer firmware of the HBA, or a drive with DRAT and \
                 RZAT. The drive itself may well have TRIM",
            )
        }),
        Transport::Scsi | Transport::AtaBehindSas => of_scsi(node, disk, || {
            let (why, mend) = match is_raid {
                true => ("a RAID controller", "HBA mode (JBOD) of the controller passes TRIM on"),
                false => (
                    "a RAID controller, or a disk without thin provisioning",
                    "a RAID controller in HBA mode passes TRIM on; a disk without thin provisioning has none",
                ),
            };
            (format!("{model} does not accept UNMAP: {why}{}", of_driver(disk)), mend)
        }),
        Transport::Ata | Transport::Nvme | Transport::Mmc | Transport::Ufs | Transport::Virtio | Transport::Xen | Transport::Other => {
            wrong(format!("{model} offers no TRIM"), "another drive; for some, newer firmware").beyond_this_host()
        }
    }
}

fn of_driver(disk: &Disk) -> String {
    disk.driver.as_ref().map_or_else(String::new, |driver| format!(" ({driver})"))
}

fn of_ata(root: &HostRoot, node: &Node, disk: &Disk, model: &str) -> Finding {
    let cmdline = root.text("/proc/cmdline").unwrap_or_default();
    if cmdline.split_whitespace().any(|word| word.starts_with("libata.force=") && word.contains("notrim")) {
        return Finding::wrong(
            node.name.clone(),
            format!("the kernel's command line forbids TRIM to {model} (libata.force=...notrim)"),
            "take `notrim` off the kernel's command line, if the drive handles TRIM well, and boot",
        );
    }
    if quirks::of(&disk.model, &disk.firmware) == Some(Quirk::NoTrim) {
        return Finding::wrong(
            node.name.clone(),
            format!("{model}: the kernel sends no TRIM because this drive handles it wrongly"),
            "use another drive",
        )
        .beyond_this_host();
    }
    Finding::wrong(
        node.name.clone(),
        format!("{model} offers no TRIM"),
        "another drive; for some, newer firmware",
    )
    .beyond_this_host()
}

/// Judges a disk that Linux drives as SCSI by its provisioning mode. `otherwise` names what stops TRIM if the disk
/// offers none, and what would help outside this host.
fn of_scsi(node: &Node, disk: &Disk, otherwise: impl FnOnce() -> (String, &'static str)) -> Finding {
    let name = &node.name;
    let Some(Scsi { file, mode, claims }) = &disk.scsi else {
        let (what, mend) = otherwise();
        return unknown_unmap(node, disk, what, mend);
    };
    let is_usb = disk.transport == Transport::Usb;
    match (mode.as_str(), *claims) {
        ("unmap" | "writesame_16" | "writesame_10" | "writesame_zero", _) => Finding::wrong(
            name.clone(),
            format!(
                "{file} is `{mode}` already, but discard_max_bytes and its hardware limit are 0, so the kernel sends \
                 no TRIM"
            ),
            "set the mode once more: the kernel then works out the limit again. If it stays 0, only other firmware of \
             the adapter or another adapter helps",
        )
        .with_commands([format!("echo {mode} > {file}")], []),
        (_, Some(claimed)) if !claimed.is_empty() => Finding::wrong(
            name.clone(),
            format!("{name} claims to offer TRIM (`{claimed}`), but the kernel does not use it ({file} is `{mode}`)"),
            format!(
                "write `{claimed}` there, and add a udev rule that does so at each boot, also in the initramfs if \
                 anything is mounted or assembled there"
            ),
        )
        .with_commands([format!("echo {claimed} > {file}")], [format!("echo {mode} > {file}")]),
        ("disabled", None) => Finding::wrong(
            name.clone(),
            format!(
                "TRIM is switched off for {name} ({file} is `disabled`): by hand, or by the kernel because the disk \
                 rejected a discard"
            ),
            "switch it on; if the disk rejects it again, so does the kernel",
        )
        .with_commands([format!("echo unmap > {file}")], [format!("echo disabled > {file}")]),
        (_, Some(_)) => {
            let (what, mend) = otherwise();
            Finding::wrong(name.clone(), format!("{what} (it claims none)"), mend).beyond_this_host()
        }
        (_, None) if is_usb => {
            let (what, mend) = otherwise();
            unknown_unmap(node, disk, what, mend)
        }
        (_, None) => {
            let (what, mend) = otherwise();
            Finding::wrong(name.clone(), format!("{what}; provisioning_mode is `{mode}`"), mend).beyond_this_host()
        }
    }
}

/// A disk of which the kernel does not show whether it claims UNMAP: sg_vpd asks it.
fn unknown_unmap(node: &Node, disk: &Disk, what: String, mend: &str) -> Finding {
    let name = &node.name;
    let file = disk.scsi.as_ref().map_or_else(
        || format!("/sys/block/{name}/device/scsi_disk/*/provisioning_mode"),
        |scsi| scsi.file.clone(),
    );
    let finding = Finding::wrong(
        name.clone(),
        what,
        format!(
            "if `sg_vpd --page=lbpv /dev/{name}` shows LBPU as 1, write `unmap` into {file}, with a udev rule for each \
             boot; otherwise {mend}"
        ),
    );
    match &disk.scsi {
        Some(scsi) => finding.with_commands(
            [format!("sg_vpd --page=lbpv /dev/{name} | grep -q 'LBPU[^0-9]*1' && echo unmap > {file}")],
            [format!("echo {} > {file}", scsi.mode)],
        ),
        None => finding,
    }
}
