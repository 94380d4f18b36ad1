//! Why a disk takes no TRIM, whatever connects or provides it, and what helps.

use super::*;

#[test]
fn a_drive_with_a_known_fault_is_named() {
    let host = sound("");
    host.file(&format!("sys/devices/{SDA}/device/model"), "Samsung SSD 860 EVO 1TB");
    expect(
        &host.examine(),
        "disk.sata.queued-trim-faulty",
        &["note sda: Samsung SSD 860 EVO 1TB loses data with queued TRIM"],
    );
    for (model, firmware, words) in [
        (
            "Netac NVMe SSD 2TB",
            "SN26904",
            Some("was reported to hang under fstrim, and the host with it (https://github.com/util"),
        ),
        ("Netac NVMe SSD 2TB", "SN26905", None),
        ("BIWIN CE430T5D100-512G", "1.4.7.67", Some("ignore it")),
        ("V10008", "", Some("this eMMC of Kingston (MMC_QUIRK_TRIM_BROKEN")),
        ("V100080", "", None),
    ] {
        let file = |name: &str, text: &str| format!("file sys/devices/{NVME}/device/{name} {text}");
        let host = built(&format!(
            "timer\nmount 22 1 259:0 / / rw - xfs /dev/nvme0n1 rw\ndisk {NVME} 259:0 {GIB}\n{}\n{}",
            file("model", model),
            file("firmware_rev", firmware)
        ));
        let code = words.map_or("", |_| "disk.drive.trim-reported");
        expect(&host.examine(), code, words.as_slice());
    }
}

#[test]
fn a_switch_is_looked_at_whatever_connects_the_disk() {
    const ISCSI: &str = "platform/host5/session1/target5:0:0/5:0:0:1/block/sde";
    const FIBRE: &str = "pci0000:00/host3/rport-3:0-0/target3:0:0/3:0:0:0/block/sdf";
    const UFS: &str = "platform/soc/1d84000.ufshc/host0/target0:0:0/0:0:0:0/block/sdg";
    let disk = |place: &str, mode: &str, rest: &str| {
        let name = place.rsplit('/').next().unwrap();
        let at = format!("file sys/devices/{place}");
        format!(
            "timer\nmount 22 1 8:0 / / rw - ext4 /dev/{name} rw\ndisk {place} 8:0 0\n\
             {at}/device/scsi_disk/1:2:3:4/provisioning_mode {mode}\n{}",
            rest.replace("AT", &at)
        )
    };
    let claims = |bits: char| format!("AT/device/vpd_pgb2 12345{bits}\n");
    for (place, without) in [
        (SDA, "!disk.drive.no-trim"),
        (SAS, "!disk.scsi.no-unmap"),
        (VIRTIO_SCSI, "!disk.virtual.no-trim"),
        (USB, "!disk.usb.adapter-no-trim"),
        (ISCSI, "!disk.network.no-trim"),
        (FIBRE, "!disk.network.no-trim"),
        (UFS, "!disk.drive.no-trim"),
    ] {
        // libata knows no UNMAP.
        let mode = if place == SDA { "writesame_16" } else { "unmap" };
        let switch = |mode: &str| {
            let name = place.rsplit('/').next().unwrap();
            format!("# echo {mode} > /sys/block/{name}/device/scsi_disk/1:2:3:4/provisioning_mode\n")
        };
        judge(&[
            (
                &disk(place, "disabled", ""),
                "!disk.scsi.disabled",
                Some(false),
                &["is switched off", &switch(mode), "!NOTHING HELPS"],
            ),
            (
                &disk(place, "disabled", &claims('\u{21}')),
                "!disk.scsi.disabled",
                Some(false),
                &["is switched off", &switch("writesame_10"), "!NOTHING HELPS"],
            ),
            // The disk itself says that it has none.
            (&disk(place, "disabled", &claims('\u{1}')), without, Some(false), &["NOTHING HELPS", "!# echo"]),
            (
                &disk(place, "unmap", ""),
                "!disk.scsi.limit-zero",
                Some(false),
                &["is `unmap` already", "!NOTHING HELPS"],
            ),
        ]);
    }
    judge(&[
        // An adapter that says so may hide an SSD.
        (
            &disk(USB, "full", "AT/queue/rotational 1\n"),
            "disk.usb.claims-to-rotate",
            Some(false),
            &["note sdb: sdb claims to be a hard disk", "SSDs, too", "LBPU"],
        ),
        (&disk(USB, "full", ""), "!disk.usb.adapter-no-trim", Some(false), &["WRONG sdb: the USB adapter"]),
        (
            &disk(SDA, "full", "AT/queue/rotational 1\n"),
            "disk.rotational.no-trim",
            Some(false),
            &["note sda", "!adapter"],
        ),
    ]);
}

#[test]
fn what_provides_a_disk_decides_what_helps() {
    let disk = |place: &str, max: u64, rest: &str| {
        let name = place.rsplit('/').next().unwrap();
        format!("timer\nmount 22 1 8:0 / / rw - ext4 /dev/{name} rw\ndisk {place} 8:0 {max}\n{rest}")
    };
    let named = |max, vendor: &str, model: &str| {
        let at = format!("file sys/devices/{SAS}/device");
        disk(SAS, max, &format!("{at}/vendor {vendor}\n{at}/model {model}"))
    };
    for (vendor, model, word) in [
        ("VMware", "Virtual disk", "a thin disk"),
        ("Msft", "Virtual Disk", "VHDX"),
        ("VBOX", "HARDDISK", "VBoxManage"),
        ("NVMe", "Amazon Elastic Block Store", "EBS volumes have no TRIM"),
        ("Google", "PersistentDisk", "the cloud decides"),
        ("QEMU", "QEMU HARDDISK", "discard=unmap"),
    ] {
        let other = if word == "discard=unmap" { "!VHDX" } else { "!QEMU:" };
        judge(&[
            (
                &named(0, vendor, model),
                "!disk.virtual.no-trim",
                Some(false),
                &["the virtual disk", "NOTHING HELPS", word, other],
            ),
            (
                &named(GIB, vendor, model),
                "disk.virtual.host-unknown",
                Some(true),
                &["note sdc: a virtual disk", other],
            ),
        ]);
    }
    judge(&[
        (
            &disk("vbd-51712/block/xvda", GIB, ""),
            "disk.virtual.host-unknown",
            Some(true),
            &["note xvda: a virtual disk", "Xen host", "!QEMU"],
        ),
        (
            &disk("virtual/block/etherd!e1.1", 0, ""),
            "!disk.network.no-trim",
            Some(false),
            &["another host (AoE)", "!firmware"],
        ),
        (
            &disk("virtual/block/drbd0", 0, ""),
            "!disk.drbd.no-trim",
            Some(false),
            &["its disk here and its peers", "!another host", "!NOTHING"],
        ),
        (
            &disk("virtual/block/zd16", 0, ""),
            "!disk.zvol.no-trim",
            Some(false),
            &["a volume of ZFS", "!firmware"],
        ),
        (
            &disk("virtual/block/zd16", GIB, ""),
            "?unchecked.layers.hidden",
            None,
            &["UNCHECKED /: /dev/zd16: zd16 is a volume of ZFS"],
        ),
        (
            &disk("virtual/block/foo0", 0, ""),
            "!disk.unknown.no-trim",
            Some(false),
            &["trimwise does not know its driver", "!firmware"],
        ),
        (&disk("virtual/block/pmem0", 0, ""), "disk.memory.no-trim", Some(false), &["needs no TRIM"]),
    ]);
    let long = format!("{}\nfile sys/devices/{SDA}/device/model {}", disk(SDA, 0, ""), "x".repeat(1 << 20));
    assert!(said(&built(&long).examine()).len() < 1000, "a model of a MiB");
}

#[test]
fn a_forced_value_counts_for_its_port() {
    let second = "pci0000:00/ata1/host0/target0:0:1/0:0:1:0/block/sdb";
    let behind_a_multiplier = "pci0000:00/ata1/host0/target0:2:0/0:2:0:0/block/sdb";
    for (place, forced, is_this) in [
        (behind_a_multiplier, "1.02:notrim", true),
        (behind_a_multiplier, "1.00:notrim", false),
        (SDA, "notrim", true),
        (SDA, "1:notrim", true),
        (SDA, "1.00:notrim", true),
        (SDA, "5.00:notrim", false),
        (SDA, "5:notrim", false),
        (SDA, "11:notrim", false),
        (SDA, "1.01:notrim", false),
        (second, "1.01:notrim", true),
        (SDA, "5.00:noncq,notrim", false),
        (SDA, "5:noncq,1:3.0Gbps,notrim", true),
        (SDA, "notrim,1:trim", false),
        (SDA, "noncqtrim", false),
    ] {
        let name = place.rsplit('/').next().unwrap();
        let (code, word) = match is_this {
            true => ("!disk.sata.forbidden", "forbids TRIM"),
            false => ("!disk.drive.no-trim", "!forbids TRIM"),
        };
        judge(&[(
            &format!(
                "mount 22 1 8:0 / / ro - ext4 /dev/{name} rw\ndisk {place} 8:0 0\n\
                 file proc/cmdline root=/dev/{name} libata.force={forced}"
            ),
            code,
            Some(false),
            &[word],
        )]);
    }
}

#[test]
fn a_controller_hides_what_is_behind_it() {
    let behind = |driver: &str, max: u64, rest: &str| {
        let at = format!("file sys/devices/{SAS}");
        let host = SAS.split_once("/host2").unwrap().0;
        format!(
            "timer\nmount 22 1 8:0 / / rw - ext4 /dev/sdc rw\ndisk {SAS} 8:0 {max}\n\
             file sys/devices/{host}/host2/scsi_host/host2/proc_name {driver}\n\
             {at}/device/scsi_disk/2:0:0:0/provisioning_mode full\n{}",
            rest.replace("AT/", &format!("{at}/"))
        )
    };
    let rotates = "AT/queue/rotational 1\n";
    judge(&[
        (
            &behind("megaraid_sas", 0, ""),
            "!disk.raid-controller.no-trim",
            Some(false),
            &["a RAID controller (megaraid_sas)", "HBA mode (JBOD)", "NOTHING HELPS"],
        ),
        (
            &behind("megaraid_sas", 0, "AT/device/vendor ATA\n"),
            "!disk.raid-controller.no-trim",
            Some(false),
            &["!SAS HBA"],
        ),
        // A volume of SSDs may claim so, too.
        (
            &behind("megaraid_sas", 0, rotates),
            "!disk.raid-controller.claims-to-rotate",
            Some(false),
            &["WRONG sdc: sdc is a hard disk, or claims to be", "NOTHING HELPS"],
        ),
        (
            &behind("mpt3sas", 0, rotates),
            "disk.rotational.no-trim",
            Some(false),
            &["note sdc", "NOTHING HELPS"],
        ),
        (
            &behind("mpt3sas", 0, ""),
            "!disk.scsi.no-unmap",
            Some(false),
            &["or a disk without thin provisioning (mpt3sas)", "provisioning_mode is `full`"],
        ),
        (
            &behind("mpt3sas", 0, "AT/device/vendor ATA\n"),
            "!disk.sas-hba.no-trim",
            Some(false),
            &["the SAS HBA (mpt3sas)"],
        ),
        // libsas leaves SATA drives to libata.
        (
            &behind("isci", 0, "AT/device/vendor ATA\n"),
            "!disk.drive.no-trim",
            Some(false),
            &["sdc does not support TRIM", "!HBA"],
        ),
    ]);
}

#[test]
fn a_drive_whose_trim_is_faulty_is_sent_none() {
    let drive = |max: u64, options: &str| {
        format!(
            "{EXT4_ON_SDA}disk {SDA} 8:0 {max}\nfile sys/devices/{SDA}/device/model SuperSSpeed S238 120G\n\
             file proc/cmdline {options}"
        )
    };
    let queued = |options: &str| drive(GIB, options).replace("SuperSSpeed S238 120G", "Samsung SSD 870 EVO");
    judge(&[
        (
            &drive(0, "quiet"),
            "!disk.sata.trim-faulty",
            Some(false),
            &["WRONG sda", "use another drive", "NOTHING HELPS"],
        ),
        // A kernel without the list.
        (&drive(GIB, "quiet"), "disk.sata.trim-faulty", Some(true), &["note sda", "handles TRIM wrongly"]),
        (&queued("quiet"), "disk.sata.queued-trim-faulty", Some(true), &["in small slices"]),
        (&queued("libata.force=noncqtrim"), "", Some(true), &[]),
        (&queued("libata.force=2:noncqtrim"), "disk.sata.queued-trim-faulty", Some(true), &[]),
    ]);
}

#[test]
fn what_a_hypervisor_provides_is_judged_before_what_it_claims_to_be() {
    let disk = |max: u64, model: &str, rest: &str| {
        let at = format!("file sys/devices/{VIRTIO_SCSI}");
        format!(
            "timer\nmount 22 1 8:0 / / rw - ext4 /dev/sdd rw\ndisk {VIRTIO_SCSI} 8:0 {max}\n\
             {at}/device/model {model}\n{}",
            rest.replace("AT/", &format!("{at}/"))
        )
    };
    let rotates = "AT/queue/rotational 1\n";
    judge(&[
        (
            &disk(0, "QEMU HARDDISK", rotates),
            "!disk.virtual.no-trim",
            Some(false),
            &["NOTHING HELPS", "!hard disk"],
        ),
        // Nobody on the host of a cloud can be asked.
        (
            &disk(GIB, "Amazon Elastic Block Store", ""),
            "disk.virtual.host-unknown",
            Some(true),
            &["cannot be seen from here -> None"],
        ),
        (
            &disk(GIB, "PersistentDisk", ""),
            "disk.virtual.host-unknown",
            Some(true),
            &["cannot be seen from here -> None"],
        ),
        (
            &disk(GIB, "VBOX HARDDISK", ""),
            "disk.virtual.host-unknown",
            Some(true),
            &["check on the host: a dynamically allocated VDI", "!discard=ignore"],
        ),
    ]);
}
