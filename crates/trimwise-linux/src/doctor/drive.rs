//! Explains why a disk accepts no TRIM, and what helps, which depends on how the disk is connected.

use super::Finding;
use super::disk::{Disk, Hypervisor, Scsi, Transport};
use super::graph::Node;
use super::quirks::{self, Quirk};
use crate::code::Code;
use crate::host_root::HostRoot;
use crate::text::quoted;

/// Drivers of RAID controllers, which hide drives behind volumes of their own.
const RAID_DRIVERS: [&str; 6] = ["megaraid_sas", "hpsa", "aacraid", "smartpqi", "3w-9xxx", "arcmsr"];
/// Drivers of SAS HBAs that leave SATA drives to libata (the kernel's libsas).
const LIBSAS_DRIVERS: [&str; 5] = ["mvsas", "isci", "pm80xx", "aic94xx", "hisi_sas"];

pub(super) fn ending(root: &HostRoot, node: &Node, disk: &Disk) -> Finding {
    let name = &node.name;
    let model = if disk.model.is_empty() { name } else { &disk.model };
    let found = |code, what: String, mend: &str| Finding::new(code, name.clone(), what).mended_by(mend);
    let driver = disk.driver.as_deref().unwrap_or_default();
    let is_raid = RAID_DRIVERS.contains(&driver);
    let is_ata = disk.transport == Transport::Ata
        || disk.transport == Transport::AtaBehindSas
            && LIBSAS_DRIVERS.iter().any(|one| driver.starts_with(one));
    match disk.transport {
        // The kernel's mode and the disk's own claims count more than its name and connection: hypervisors' disks, too,
        // may carry out TRIM that the kernel does not use.
        _ if has_unused_trim(disk, is_ata) => of_scsi(node, disk, || {
            (Code::ScsiNoUnmap, format!("{model} does not accept UNMAP"), "another disk")
        }),
        Transport::Drbd => found(
            Code::DrbdNoTrim,
            format!(
                "{name} accepts no TRIM: DRBD takes the least of what its disk here and its peers accept"
            ),
            "find out which one accepts none (`lsblk --discard` shows the disk here), fix that, and reconnect",
        ),
        Transport::Zvol => found(
            Code::ZvolNoTrim,
            format!("{name}, a volume of ZFS, accepts no TRIM"),
            "if /sys/module/zfs/parameters/zvol_max_discard_blocks is 0, raise it and import the pool again",
        ),
        Transport::Network(protocol) => found(
            Code::NetworkNoTrim,
            format!("{name} is on another host ({protocol}), which offers no TRIM for it"),
            "on the host that serves it: make it announce UNMAP or TRIM (thin provisioning), then reconnect",
        )
        .beyond_this_host(),
        _ if let Some(hypervisor) = disk.hypervisor => {
            let what = format!("the virtual disk {name} does not accept TRIM");
            found(Code::VirtualNoTrim, what, on_host_of(hypervisor)).beyond_this_host()
        }
        _ if disk.rotational && disk.transport != Transport::Usb => {
            let what = format!("{model} is a hard disk, or claims to be: it has no TRIM");
            // A RAID controller's volume claims to be a hard disk even if it is made of SSDs.
            let code = if is_raid { Code::RaidControllerRotates } else { Code::RotationalNoTrim };
            Finding::new(code, name.clone(), what).beyond_this_host()
        }
        _ if ["pmem", "ram", "zram"].iter().any(|memory| name.starts_with(memory)) => {
            let what = format!("{name} is in memory, which needs no TRIM");
            Finding::new(Code::MemoryNoTrim, name.clone(), what).beyond_this_host()
        }
        _ if is_ata => of_ata(root, node, disk, model),
        Transport::Usb => {
            let found = of_scsi(node, disk, || {
                (
                    Code::UsbAdapterNoTrim,
                    format!(
                        "the USB adapter of {model} does not offer TRIM, or the kernel does not trust it"
                    ),
                    "another adapter (UASP, with UNMAP)",
                )
            });
            let Finding { what, mend, .. } = &found;
            match disk.rotational {
                true => Finding {
                    code: Code::UsbClaimsToRotate,
                    wrong: false,
                    what: format!(
                        "{model} claims to be a hard disk, which needs no TRIM. USB adapters claim that of SSDs, too; if it \
                         is one, {what}"
                    ),
                    mend: mend.as_ref().map(|mend| format!("for an SSD: {mend}")),
                    ..found
                },
                false => found,
            }
        }
        Transport::AtaBehindSas if !is_raid => of_scsi(node, disk, || {
            (
                Code::SasHbaNoTrim,
                format!(
                    "the SAS HBA{} passes no TRIM on to {model}: it translates TRIM only for SATA drives that promise what \
                     a read after TRIM returns (DRAT and RZAT)",
                    of_driver(disk)
                ),
                "a SATA port on the mainboard instead of the HBA, newer firmware for the HBA, or a drive with DRAT and \
                 RZAT. The drive itself may well support TRIM",
            )
        }),
        Transport::Scsi | Transport::AtaBehindSas => of_scsi(node, disk, || {
            let (code, why, mend) = match is_raid {
                true => (
                    Code::RaidControllerNoTrim,
                    "a RAID controller",
                    "HBA mode (JBOD) of the controller passes TRIM on",
                ),
                false => (
                    Code::ScsiNoUnmap,
                    "a RAID controller, or a disk without thin provisioning",
                    "a RAID controller in HBA mode passes TRIM on; a disk without thin provisioning has none",
                ),
            };
            (code, format!("{model} does not accept UNMAP: {why}{}", of_driver(disk)), mend)
        }),
        Transport::Other => {
            let what = format!("{model} accepts no TRIM; trimwise does not know its driver");
            found(Code::UnknownNoTrim, what, "").beyond_this_host()
        }
        Transport::Ata
        | Transport::Nvme
        | Transport::Mmc
        | Transport::Ufs
        | Transport::Virtio
        | Transport::Xen => no_trim(node, model),
    }
}

/// Says what makes a hypervisor's disk accept TRIM.
pub(super) fn on_host_of(hypervisor: Hypervisor) -> &'static str {
    match hypervisor {
        // Linux's commit 1f23816b8eb8.
        Hypervisor::Qemu => {
            "on the host: discard=unmap for this disk (QEMU: -drive ...,discard=unmap); a virtio-blk disk needs QEMU 4.0 there \
             and Linux 5.0 here, too, and a virtio-scsi disk does not"
        }
        Hypervisor::VirtualBox => {
            "on the host: a dynamically allocated VDI, attached with `VBoxManage storageattach ... --discard on`"
        }
        Hypervisor::VMware => {
            "on the host: a thin disk on VMFS 6 or vSAN, and virtual hardware version 11 or later"
        }
        Hypervisor::HyperV => {
            "on the host: a dynamically expanding VHDX, on a SCSI controller, whose file keeps its size until `Optimize-VHD`"
        }
        Hypervisor::Xen => {
            "on the Xen host: storage that supports discard (such as a thin file-based repository), and discard allowed \
             for this disk"
        }
        Hypervisor::Ebs => "an instance store disk: EBS volumes have no TRIM, and are charged by their size",
        Hypervisor::Google => "a disk of another type: the cloud decides which types accept TRIM",
    }
}

/// Returns true if a SCSI disk may well carry out TRIM that the kernel does not send: by its mode, because TRIM was
/// switched off, or because the disk claims to. The claim does not count on libata, which makes it up for every disk.
fn has_unused_trim(disk: &Disk, is_ata: bool) -> bool {
    disk.scsi.as_ref().is_some_and(|scsi| {
        let claims = |is_claimed: bool| scsi.claims.is_some_and(|claims| claims.is_empty() != is_claimed);
        match scsi.mode.as_str() {
            "full" => !is_ata && claims(true),
            "disabled" => !claims(false),
            _ => true,
        }
    })
}

fn of_driver(disk: &Disk) -> String {
    disk.driver.as_ref().map_or_else(String::new, |driver| format!(" ({driver})"))
}

fn of_ata(root: &HostRoot, node: &Node, disk: &Disk, model: &str) -> Finding {
    if is_forced(root, node, ["notrim", "trim"]) {
        let what = format!("the kernel's command line forbids TRIM to {model} (libata.force=...notrim)");
        return Finding::new(Code::SataForbidden, node.name.clone(), what).mended_by(
            "if the drive handles TRIM well, remove `notrim` from the kernel's command line and reboot",
        );
    }
    if quirks::of(&disk.model, &disk.firmware) == Some(Quirk::NoTrim) {
        let what = format!("{model}: the kernel sends no TRIM because this drive handles it wrongly");
        return Finding::new(Code::SataTrimFaulty, node.name.clone(), what)
            .mended_by("use another drive")
            .beyond_this_host();
    }
    no_trim(node, model)
}

fn no_trim(node: &Node, model: &str) -> Finding {
    Finding::new(Code::DriveNoTrim, node.name.clone(), format!("{model} does not support TRIM"))
        .mended_by("another drive; for some, newer firmware")
        .beyond_this_host()
}

/// Returns true if the kernel's command line forces the first of two opposite values on an ATA drive (`libata.force=`,
/// in Linux's kernel-parameters.txt).
pub(super) fn is_forced(root: &HostRoot, node: &Node, [value, opposite]: [&str; 2]) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    let parts = || node.device.path().iter().filter_map(|part| part.to_str());
    let port = parts().find_map(|part| number(part.strip_prefix("ata")?));
    // HOST:CHANNEL:TARGET:LUN. The channel counts behind a port multiplier, the target on a cable with two drives.
    let device =
        parts().find_map(|part| match part.split(':').map(number).collect::<Option<Vec<_>>>()?[..] {
            [_, channel, target, _] => Some(channel + target),
            _ => None,
        });
    let line = root.text("/proc/cmdline").unwrap_or_default();
    let forced = line.split_whitespace().rev().find_map(|word| word.strip_prefix("libata.force="));
    let (mut is_this, mut is_forced) = (true, false);
    for one in forced.unwrap_or_default().split(',') {
        // A value without an address belongs to the address before it.
        let (address, forced) = one.split_once(':').map_or((None, one), |(at, forced)| (Some(at), forced));
        if let Some(address) = address {
            let (at_port, at_device) = address.split_once('.').unwrap_or((address, ""));
            is_this = number(at_port) == port && (number(at_device).is_none() || number(at_device) == device);
        }
        if is_this && [value, opposite].contains(&forced) {
            is_forced = forced == value;
        }
    }
    is_forced
}

/// Judges a disk that Linux drives as SCSI by its provisioning mode. `otherwise` says what stops TRIM if the disk does
/// not offer it, and what would help outside this host.
fn of_scsi(node: &Node, disk: &Disk, otherwise: impl FnOnce() -> (Code, String, &'static str)) -> Finding {
    let name = &node.name;
    let is_ata = disk.transport == Transport::Ata;
    let Some(Scsi { file, mode, claims }) = &disk.scsi else {
        return unknown_unmap(node, disk, otherwise());
    };
    let is_usb = disk.transport == Transport::Usb;
    match (mode.as_str(), *claims) {
        ("unmap" | "writesame_16" | "writesame_10" | "writesame_zero", _) => Finding::new(
            Code::ScsiLimitZero,
            name.clone(),
            format!(
                "{file} is `{mode}` already, but discard_max_bytes and its hardware limit are 0, so the kernel sends \
                 no TRIM"
            ),
        )
        .mended_by(
            "write the same mode again: the kernel then recomputes the limit. If it stays 0, only other firmware for the \
             disk or its adapter, or another adapter, helps",
        )
        .with_commands([format!("echo {mode} > {}", quoted(file))], []),
        (mode, Some(claimed)) if !claimed.is_empty() && mode != "disabled" => Finding::new(
            Code::ScsiClaimUnused,
            name.clone(),
            format!("{name} claims to offer TRIM (`{claimed}`), but the kernel does not use it ({file} is `{mode}`)"),
        )
        .mended_by(format!(
            "write `{claimed}` there, and add a udev rule that does so at each boot; add it to the initramfs, too, if \
             anything is mounted or assembled there"
        ))
        .with_commands([format!("echo {claimed} > {}", quoted(file))], [format!("echo {mode} > {}", quoted(file))]),
        ("disabled", claims) if claims != Some("") => Finding::new(
            Code::ScsiDisabled,
            name.clone(),
            format!(
                "TRIM is switched off for {name} ({file} is `disabled`): by hand, or by the kernel because the disk \
                 rejected a discard"
            ),
        )
        .mended_by(
            "switch it on; if the disk rejects it again, the kernel switches it off again, and nothing helps. If a udev \
             rule or a script switches it off at each boot, remove that",
        )
        .with_commands(
            // libata turns WRITE SAME into TRIM, but does not support UNMAP.
            [format!(
                "echo {} > {}",
                claims.unwrap_or(if is_ata { "writesame_16" } else { "unmap" }),
                quoted(file)
            )],
            [format!("echo disabled > {}", quoted(file))],
        ),
        (_, Some(_)) => {
            let (code, what, mend) = otherwise();
            let what = format!("{what} (the disk itself claims no TRIM)");
            Finding::new(code, name.clone(), what).mended_by(mend).beyond_this_host()
        }
        (_, None) if is_usb => unknown_unmap(node, disk, otherwise()),
        (_, None) => {
            let (code, what, mend) = otherwise();
            let what = format!("{what}; provisioning_mode is `{mode}`");
            Finding::new(code, name.clone(), what).mended_by(mend).beyond_this_host()
        }
    }
}

/// The first kernel that takes UNMAP where a disk claims both (Linux's commit bcd069bb5dcd): before it, `sd` took WRITE SAME,
/// which some targets refuse (<https://longhorn.io/kb/troubleshooting-fstrim-error>).
const PREFERS_UNMAP_SINCE: (u32, u32) = (4, 12);

/// Reports a SCSI disk that claims UNMAP first but is sent WRITE SAME. libata makes up its disks' claims.
pub(super) fn other_mode(root: &HostRoot, node: &Node, disk: &Disk) -> Option<Finding> {
    let Scsi { file, mode, claims } = disk.scsi.as_ref()?;
    if !mode.starts_with("writesame") || *claims != Some("unmap") || disk.transport == Transport::Ata {
        return None;
    }
    let kernel = root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_old = super::version(&kernel).is_some_and(|found| found < PREFERS_UNMAP_SINCE);
    let why = match is_old {
        true => {
            "Linux before 4.12 takes WRITE SAME where a disk claims both, and some disks then refuse it: fstrim ends in an I/O error"
        }
        false => "somebody set it, or the disk gives no limit for UNMAP",
    };
    let name = &node.name;
    let finding = Finding::new(
        Code::ScsiOtherMode,
        name.clone(),
        format!("{name} claims UNMAP first, but is sent `{mode}`: {why}"),
    )
    .mended_by(format!("write `unmap` into {file}, and add a udev rule that does so at each boot"));
    // Newer kernels take WRITE SAME only for a reason, which a command would undo.
    Some(match is_old {
        true => Finding { wrong: true, ..finding }.with_commands(
            [format!("echo unmap > {}", quoted(file))],
            [format!("echo {mode} > {}", quoted(file))],
        ),
        false => Finding { wrong: false, ..finding },
    })
}

/// Reports a disk for which the kernel does not show whether it claims UNMAP; sg_vpd asks the disk itself.
fn unknown_unmap(node: &Node, disk: &Disk, (code, what, mend): (Code, String, &str)) -> Finding {
    let name = &node.name;
    let file = disk.scsi.as_ref().map_or_else(
        || format!("/sys/block/{name}/device/scsi_disk/*/provisioning_mode"),
        |scsi| scsi.file.clone(),
    );
    let finding = Finding::new(code, name.clone(), what).mended_by(format!(
        "if `sg_vpd --page=lbpv /dev/{name}` shows LBPU as 1, write `unmap` into {file}, and add a udev rule that does so \
         at each boot; otherwise {mend}"
    ));
    match &disk.scsi {
        Some(scsi) => finding.with_commands(
            [format!(
                "sg_vpd --page=lbpv /dev/{name} | grep -q 'LBPU[^0-9]*1' && echo unmap > {}",
                quoted(&file)
            )],
            [format!("echo {} > {}", quoted(&scsi.mode), quoted(&file))],
        ),
        None => finding,
    }
}
