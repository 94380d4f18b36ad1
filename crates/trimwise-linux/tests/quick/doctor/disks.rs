//! Why a disk takes no TRIM, whatever connects or provides it, and what helps.

use super::*;

#[test]
fn a_drive_with_a_known_fault_is_named() {
    let host = sound("");
    host.file(&format!("sys/devices/{SDA}/device/model"), "Samsung SSD 860 EVO 1TB");
    expect(&host.examine(), 0, &["note sda: Samsung SSD 860 EVO 1TB loses data with queued TRIM"]);
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
    for place in [SDA, SAS, VIRTIO_SCSI, USB, ISCSI, FIBRE, UFS] {
        // libata knows no UNMAP.
        let mode = if place == SDA { "writesame_16" } else { "unmap" };
        let switch = |mode: &str| {
            let name = place.rsplit('/').next().unwrap();
            format!("# echo {mode} > /sys/block/{name}/device/scsi_disk/1:2:3:4/provisioning_mode\n")
        };
        judge(&[
            (
                &disk(place, "disabled", ""),
                1,
                Some(false),
                &["is switched off", &switch(mode), "!NOTHING HELPS"],
            ),
            (
                &disk(place, "disabled", &claims('\u{21}')),
                1,
                Some(false),
                &["is switched off", &switch("writesame_10"), "!NOTHING HELPS"],
            ),
            // The disk itself says that it has none.
            (&disk(place, "disabled", &claims('\u{1}')), 1, Some(false), &["NOTHING HELPS", "!# echo"]),
            (&disk(place, "unmap", ""), 1, Some(false), &["is `unmap` already", "!NOTHING HELPS"]),
        ]);
    }
    judge(&[
        // An adapter that says so may hide an SSD.
        (
            &disk(USB, "full", "AT/queue/rotational 1\n"),
            0,
            Some(false),
            &["note sdb: sdb claims to be a hard disk", "SSDs, too", "LBPU"],
        ),
        (&disk(USB, "full", ""), 1, Some(false), &["WRONG sdb: the USB adapter"]),
        (&disk(SDA, "full", "AT/queue/rotational 1\n"), 0, Some(false), &["note sda", "!adapter"]),
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
        ("NVMe", "Amazon Elastic Block Store", "volumes of EBS have no TRIM"),
        ("Google", "PersistentDisk", "the cloud decides"),
        ("QEMU", "QEMU HARDDISK", "discard=unmap"),
    ] {
        let other = if word == "discard=unmap" { "!VHDX" } else { "!QEMU:" };
        judge(&[
            (&named(0, vendor, model), 1, Some(false), &["the virtual disk", "NOTHING HELPS", word, other]),
            (&named(GIB, vendor, model), 0, Some(true), &["note sdc: a virtual disk", other]),
        ]);
    }
    judge(&[
        (
            &disk("vbd-51712/block/xvda", GIB, ""),
            0,
            Some(true),
            &["note xvda: a virtual disk", "Xen host", "!QEMU"],
        ),
        (&disk("virtual/block/etherd!e1.1", 0, ""), 1, Some(false), &["another host (AoE)", "!firmware"]),
        (
            &disk("virtual/block/drbd0", 0, ""),
            1,
            Some(false),
            &["its disk here and its peers", "!another host", "!NOTHING"],
        ),
        (&disk("virtual/block/zd16", 0, ""), 1, Some(false), &["a volume of ZFS", "!firmware"]),
        (&disk("virtual/block/zd16", GIB, ""), 0, None, &["UNCHECKED /: /dev/zd16: zd16 is a volume of ZFS"]),
        (&disk("virtual/block/foo0", 0, ""), 1, Some(false), &["what drives it is not known", "!firmware"]),
        (&disk("virtual/block/pmem0", 0, ""), 0, Some(false), &["needs no TRIM"]),
    ]);
    let long = format!("{}\nfile sys/devices/{SDA}/device/model {}", disk(SDA, 0, ""), "x".repeat(1 << 20));
    assert!(said(&built(&long).examine()).len() < 1000, "a model of a MiB");
}

#[test]
fn a_forced_value_counts_for_its_port() {
    let second = "pci0000:00/ata1/host0/target0:0:1/0:0:1:0/block/sdb";
    for (place, forced, is_this) in [
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
        let word = if is_this { "forbids TRIM" } else { "!forbids TRIM" };
        judge(&[(
            &format!(
                "mount 22 1 8:0 / / ro - ext4 /dev/{name} rw\ndisk {place} 8:0 0\n\
                 file proc/cmdline root=/dev/{name} libata.force={forced}"
            ),
            1,
            Some(false),
            &[word],
        )]);
    }
}
