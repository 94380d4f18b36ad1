//! Reads what a disk is, and what connects it to the host.

use std::fs;
use std::path::Path;

use crate::block_device::SysBlock;
use crate::host_root::HostRoot;

/// Connection of a disk to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Usually an adapter for a SATA drive.
    Usb,
    /// SATA or PATA, on a port that libata drives.
    Ata,
    /// A SATA drive behind a SAS HBA, which translates its commands; libata is not involved.
    AtaBehindSas,
    Nvme,
    Virtio,
    Xen,
    /// A disk on another host, and the protocol: `iSCSI`, `NBD`.
    Network(&'static str),
    /// A disk of this host, mirrored to other hosts.
    Drbd,
    /// A volume of a ZFS pool.
    Zvol,
    /// eMMC or an SD card.
    Mmc,
    /// UFS, which Linux drives as SCSI.
    Ufs,
    /// SCSI: SAS, a RAID controller, a disk of a virtual machine.
    Scsi,
    Other,
}

impl Transport {
    /// Returns the name for users; `None` if the connection is unknown.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Usb => "USB",
            Self::Ata => "SATA",
            Self::AtaBehindSas => "SATA behind a SAS HBA",
            Self::Nvme => "NVMe",
            Self::Virtio => "virtio",
            Self::Xen => "Xen",
            Self::Network(protocol) => protocol,
            Self::Drbd => "DRBD",
            Self::Zvol => "ZFS volume",
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
    pub model: String,
    pub firmware: String,
    pub transport: Transport,
    /// True if the kernel treats the disk as rotational.
    pub rotational: bool,
    /// The hypervisor that provides the disk; `None` on real hardware.
    pub hypervisor: Option<Hypervisor>,
    /// How Linux discards on a SCSI disk.
    pub scsi: Option<Scsi>,
    /// Driver of the SCSI host that the disk is on: `mpt3sas`, `megaraid_sas`.
    pub driver: Option<String>,
}

/// A hypervisor or cloud that provides disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hypervisor {
    /// QEMU, or any other with virtio.
    Qemu,
    VirtualBox,
    VMware,
    /// Hyper-V and Azure.
    HyperV,
    Xen,
    /// Amazon EC2.
    Ebs,
    /// Google Compute Engine.
    Google,
}

/// How Linux discards on a SCSI disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scsi {
    /// Path of the `provisioning_mode` file on the host.
    pub file: String,
    /// Its content: `unmap`, `writesame_16`, `full` (the disk claims no thin provisioning), `disabled`.
    pub mode: String,
    /// The mode that matches what the disk claims in its VPD page B2; empty if it claims nothing, `None` if the kernel
    /// does not show the page.
    pub claims: Option<&'static str>,
}

/// Prefixes of the models and vendors that hypervisors and clouds report for their disks.
const VIRTUAL: [(&str, Hypervisor); 10] = [
    ("QEMU", Hypervisor::Qemu),
    ("Red Hat", Hypervisor::Qemu),
    ("VBOX", Hypervisor::VirtualBox),
    ("VMware", Hypervisor::VMware),
    ("Virtual disk", Hypervisor::VMware),
    ("Msft", Hypervisor::HyperV),
    ("Virtual HD", Hypervisor::HyperV),
    ("Amazon Elastic Block Store", Hypervisor::Ebs),
    ("nvme_card-pd", Hypervisor::Google),
    ("PersistentDisk", Hypervisor::Google),
];
/// Maximum number of characters of a model that are shown; SCSI has 16, NVMe 40.
const MODEL_MAX: usize = 64;

/// Reads the properties of a disk from sysfs.
pub(crate) fn disk_of(root: &HostRoot, device: &SysBlock) -> Disk {
    let first = |files: [&str; 2]| files.iter().find_map(|file| device.text(file)).unwrap_or_default();
    let transport = transport(root, device);
    let model: String = first(["device/model", "device/name"]).chars().take(MODEL_MAX).collect();
    let vendor = device.text("device/vendor").unwrap_or_default();
    let named = VIRTUAL.iter().find(|(name, _)| model.starts_with(name) || vendor.starts_with(name));
    Disk {
        firmware: first(["device/rev", "device/firmware_rev"]),
        rotational: device.number("queue/rotational").is_ok_and(|n| n == 1),
        hypervisor: match (transport, named) {
            // An emulated USB disk has the limits of a USB adapter, whoever emulates it.
            (Transport::Usb, _) => None,
            (Transport::Xen, _) => Some(Hypervisor::Xen),
            (_, Some((_, named))) => Some(*named),
            (Transport::Virtio, None) => Some(Hypervisor::Qemu),
            (_, None) => None,
        },
        scsi: scsi(device),
        driver: driver(device),
        transport,
        model,
    }
}

fn transport(root: &HostRoot, device: &SysBlock) -> Transport {
    let (name, path) = (device.name(), device.path());
    let below = path.strip_prefix(root.path("/sys").canonicalize().unwrap_or_default()).unwrap_or(path);
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    let has = |start: &str| parts.iter().any(|part| part.starts_with(start));
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = |start: &str| parts.iter().any(|part| part.strip_prefix(start).is_some_and(is_number));
    let fabric = device.text("device/transport").filter(|transport| transport != "pcie");
    match () {
        () if name.starts_with("nbd") => Transport::Network("NBD"),
        () if name.starts_with("rbd") => Transport::Network("RBD"),
        () if name.starts_with("rnbd") => Transport::Network("RNBD"),
        () if name.starts_with("etherd!") => Transport::Network("AoE"),
        () if name.starts_with("drbd") => Transport::Drbd,
        () if name.strip_prefix("zd").is_some_and(is_number) => Transport::Zvol,
        () if name.starts_with("nvme") && fabric.is_some() => Transport::Network("NVMe over fabrics"),
        () if name.starts_with("nvme") => Transport::Nvme,
        () if name.starts_with("xvd") || has("vbd-") => Transport::Xen,
        () if has("usb") => Transport::Usb,
        () if parts.iter().any(|part| part.contains("ufshc")) => Transport::Ufs,
        () if numbered("session") => Transport::Network("iSCSI"),
        () if has("rport-") => Transport::Network("Fibre Channel"),
        () if numbered("ata") => Transport::Ata,
        () if name.starts_with("vd") || numbered("virtio") => Transport::Virtio,
        () if name.starts_with("mmc") => Transport::Mmc,
        () if device.text("device/vendor").is_some_and(|vendor| vendor == "ATA") => Transport::AtaBehindSas,
        () if name.starts_with("sd") => Transport::Scsi,
        () => Transport::Other,
    }
}

fn scsi(device: &SysBlock) -> Option<Scsi> {
    let place = "device/scsi_disk";
    let folders = [device.path().join(place), device.path().join("../../scsi_disk")];
    let mut disks = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    disks.find_map(|entry| {
        let mode = fs::read_to_string(entry.path().join("provisioning_mode")).ok()?;
        // Bits LBPU, LBPWS and LBPWS10 of byte 5.
        let claims = device.bytes("device/vpd_pgb2").and_then(|page| {
            let bits = *page.get(5)?;
            let modes = [(0x80, "unmap"), (0x40, "writesame_16"), (0x20, "writesame_10")];
            Some(modes.into_iter().find(|(bit, _)| bits & bit != 0).map_or("", |(_, mode)| mode))
        });
        Some(Scsi {
            file: format!(
                "/sys/block/{}/{place}/{}/provisioning_mode",
                device.name(),
                entry.file_name().to_string_lossy()
            ),
            mode: mode.trim().to_owned(),
            claims,
        })
    })
}

fn driver(device: &SysBlock) -> Option<String> {
    let host = device.path().ancestors().find(|at| {
        let name = at.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("host").is_some_and(|n| n.parse::<u32>().is_ok())
    })?;
    let folder = Path::new("scsi_host").join(host.file_name()?).join("proc_name");
    let name = fs::read_to_string(host.join(folder)).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::{GIB, Host, SDA};

    use super::*;

    /// A disk at a place in sysfs, with these files (`file=text`).
    fn disk(place: &str, files: &[&str]) -> Disk {
        let host = Host::new("");
        host.device(place, "8:0", GIB);
        for (file, text) in files.iter().filter_map(|one| one.split_once('=')) {
            host.file(&format!("sys/devices/{place}/{file}"), text);
        }
        let root = HostRoot::new(host.0.path());
        let name = place.rsplit('/').next().unwrap_or_default();
        disk_of(&root, &SysBlock::named(&root, name).unwrap())
    }

    #[test]
    fn a_connection_is_known_by_name_path_and_attributes() {
        const ON_SCSI: &str = "pci0000:00/host2/target2:0:0/2:0:0:0/block";
        let in_scsi = |name: &str| format!("{ON_SCSI}/{name}");
        for (place, files, expected) in [
            ("virtual/block/nbd0", &[][..], Transport::Network("NBD")),
            ("virtual/block/rbd0", &[], Transport::Network("RBD")),
            ("virtual/block/rnbd0", &[], Transport::Network("RNBD")),
            ("virtual/block/drbd1", &[], Transport::Drbd),
            ("virtual/block/zd16", &[], Transport::Zvol),
            // A number must follow.
            ("virtual/block/zdx", &[], Transport::Other),
            ("virtual/block/zd", &[], Transport::Other),
            ("pci0000:00/nvme/nvme0/nvme0n1", &[], Transport::Nvme),
            ("pci0000:00/nvme/nvme0/nvme0n1", &["device/transport=pcie"], Transport::Nvme),
            (
                "virtual/nvme-fabrics/nvme0/nvme0n1",
                &["device/transport=tcp"],
                Transport::Network("NVMe over fabrics"),
            ),
            // Only NVMe's `transport` attribute counts.
            (&in_scsi("sdb"), &["device/transport=tcp"], Transport::Scsi),
            ("virtual/block/xvda", &[], Transport::Xen),
            ("vbd-768/block/sda", &[], Transport::Xen),
            ("pci0000:00/usb2/2-1/host6/target6:0:0/6:0:0:0/block/sdb", &[], Transport::Usb),
            ("platform/1d84000.ufshc/host0/target0:0:0/0:0:0:0/block/sda", &[], Transport::Ufs),
            ("platform/host3/session1/target3:0:0/3:0:0:0/block/sdd", &[], Transport::Network("iSCSI")),
            (
                "pci0000:00/host3/rport-3:0-0/target3:0:0/3:0:0:0/block/sdf",
                &[],
                Transport::Network("Fibre Channel"),
            ),
            (SDA, &[], Transport::Ata),
            ("pci0000:00/virtio1/block/vda", &[], Transport::Virtio),
            ("platform/block/vda", &[], Transport::Virtio),
            ("pci0000:00/virtio0/host0/target0:0:3/0:0:3:0/block/sdd", &[], Transport::Virtio),
            ("platform/mmc0/block/mmcblk0", &[], Transport::Mmc),
            (&in_scsi("sdc"), &["device/vendor=ATA"], Transport::AtaBehindSas),
            (&in_scsi("sdc"), &["device/vendor=SEAGATE"], Transport::Scsi),
            ("virtual/block/foo0", &[], Transport::Other),
        ] {
            assert_eq!(disk(place, files).transport, expected, "{place} {files:?}");
        }
    }

    #[test]
    fn the_driver_is_that_of_the_nearest_host() {
        const SAS: &str = "pci0000:00/host2/target2:0:0/2:0:0:0/block/sdc";
        let driver =
            |text: &str| disk(SAS, &[&format!("../../../../scsi_host/host2/proc_name={text}")]).driver;
        assert_eq!(driver("megaraid_sas\n"), Some("megaraid_sas".to_owned()));
        assert_eq!(driver("\n"), None, "an empty name");
        assert_eq!(disk("pci0000:00/hostile/block/sdc", &[]).driver, None, "`hostile` is no host");
    }

    #[test]
    fn a_disk_tells_its_mode_and_what_it_claims() {
        const FILE: &str = "device/scsi_disk/0:0:0:0/provisioning_mode=full\n";
        for (page, claims) in [
            (None, None),
            (Some("1234"), None),
            (Some("12345"), None),
            (Some("12345\u{0}"), Some("")),
            (Some("12345\u{1f}"), Some("")),
            (Some("12345\u{20}"), Some("writesame_10")),
            (Some("12345\u{40}"), Some("writesame_16")),
            (Some("12345\u{60}"), Some("writesame_16")),
        ] {
            let page_file = format!("device/vpd_pgb2={}", page.unwrap_or_default());
            let files = [FILE, &page_file];
            let found = disk(SDA, &files[..if page.is_some() { 2 } else { 1 }]).scsi;
            let file = "/sys/block/sda/device/scsi_disk/0:0:0:0/provisioning_mode".to_owned();
            assert_eq!(found, Some(Scsi { file, mode: "full".to_owned(), claims }), "{page:?}");
        }
        assert_eq!(disk(SDA, &[]).scsi, None);
    }
}
