//! Where TRIM stops in a stack of devices, why, and what helps.

use super::*;

#[test]
fn the_layer_at_which_trim_stops_is_named() {
    let crypt = Host::new("22 1 253:0 / / rw - xfs /dev/mapper/root rw\n");
    crypt.script("etc/cron.weekly/fstrim", "");
    crypt.device(SDA, "8:0", GIB).device("virtual/block/dm-0", "253:0", 0).slave("virtual/block/dm-0", SDA);
    crypt.file("sys/devices/virtual/block/dm-0/dm/name", "root\n");
    crypt.file("sys/devices/virtual/block/dm-0/dm/uuid", "CRYPT-LUKS2-1234-root\n");
    expect(
        &crypt.examine(),
        "!layer.luks.discards-off",
        &["WRONG dm-0: dm-crypt (root) drops TRIM", "--allow-discards --persistent root"],
    );
    assert_eq!(crypt.examine().file_systems[0].passes, Some(false));

    // A logical volume above it is not the cause.
    crypt.device("virtual/block/dm-1", "253:1", 0).slave("virtual/block/dm-1", "virtual/block/dm-0");
    crypt.file("sys/devices/virtual/block/dm-1/dm/name", "vg-home");
    crypt.file("sys/devices/virtual/block/dm-1/dm/uuid", "LVM-abc");
    crypt.file("proc/1/mountinfo", "22 1 253:1 / /home rw - xfs /dev/mapper/vg-home rw\n");
    let report = crypt.examine();
    expect(&report, "!layer.luks.discards-off", &["WRONG dm-0"]);
    let depths: Vec<_> = report.file_systems[0].layers.iter().map(|l| (l.what.as_str(), l.depth)).collect();
    assert_eq!(depths, [("LVM vg-home", 0), ("dm-crypt root", 1), ("SATA", 2)]);

    let usb = Host::new("22 1 8:16 / /media rw - ext4 /dev/sdb rw\n");
    usb.device(USB, "8:16", 0).file(&format!("sys/devices/{USB}/device/model"), "ASMT105x");
    expect(
        &usb.examine(),
        "!disk.usb.adapter-no-trim",
        &["the USB adapter of ASMT105x", "/sys/block/sdb/device/scsi_disk/*/provisioning_mode"],
    );

    let raid = Host::new("22 1 9:0 / / rw - xfs /dev/md0 rw\n");
    raid.device(SDA, "8:0", GIB).device("virtual/block/md0", "9:0", 0).slave("virtual/block/md0", SDA);
    raid.file("sys/devices/virtual/block/md0/md/level", "raid5\n");
    expect(
        &raid.examine(),
        "!layer.raid.parity-not-allowed",
        &["Linux RAID (raid5)", "devices_handle_discard_safely"],
    );

    let disk = Host::new("22 1 8:0 / / rw - xfs /dev/sda rw\n");
    disk.device(SDA, "8:0", 0).file(&format!("sys/devices/{SDA}/queue/rotational"), "1");
    // It needs none.
    expect(&disk.examine(), "disk.rotational.no-trim", &["note sda: sda is a hard disk"]);
}

#[test]
fn a_loop_device_refers_to_the_file_system_of_its_file() {
    let loops = "22 1 7:0 / /data rw - ext4 /dev/loop0 rw,discard\n";
    let host =
        Host::new(&format!("{loops}23 1 8:0 / / rw - xfs /dev/sda rw\n24 1 0:5 / /img rw - tmpfs none rw\n"));
    host.device("virtual/block/loop0", "7:0", 4 * GIB).device(SDA, "8:0", 4 * GIB);
    host.file("sys/devices/virtual/block/loop0/loop/backing_file", "/srv/disk.img\n");
    let said_of = |host: &Host| said(&host.examine());
    let on_xfs = said_of(&host);
    assert_eq!(
        codes(&host.examine()),
        "layer.loop.punches-holes fs.ext4.discards-too-much mount.trim.nothing"
    );
    let words =
        "note loop0: TRIM punches holes in /srv/disk.img; they become free space of /, xfs on /dev/sda";
    assert!(on_xfs.contains(words) && on_xfs.contains("see `trimwise doctor /`"), "{on_xfs}");
    host.file("sys/devices/virtual/block/loop0/loop/backing_file", "/img/disk.img\n");
    let in_memory = said_of(&host);
    assert!(
        in_memory.contains("holes in /img/disk.img, so trimmed space no longer takes up space on tmpfs"),
        "{in_memory}"
    );
}

#[test]
fn a_remedy_fits_its_layer() {
    let md = |level: &str, rest: &str| {
        format!(
            "timer\nmount 22 1 9:0 / /data rw,noatime - xfs /dev/md0 rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
             on md0 9:0 0 {SDA} {SDB}\nfile sys/devices/virtual/block/md0/md/level {level}\n{rest}"
        )
    };
    let disk = |place: &str, rest: &str| {
        let name = place.rsplit('/').next().unwrap();
        let attributes: String = rest
            .split(';')
            .filter(|one| !one.is_empty())
            .map(|one| format!("file sys/devices/{place}/{}\n", one.trim()))
            .collect();
        format!("timer\nmount 22 1 8:0 / / rw - ext4 /dev/{name} rw\ndisk {place} 8:0 0\n{attributes}")
    };
    let dm = |numbers: &str, name: &str, uuid: &str, below: &str| {
        format!(
            "timer\nmount 22 1 {numbers} / /data rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
             {below}\non dm-9 {numbers} 0 {SDA}\ndm dm-9 {name} {uuid}"
        )
    };
    judge(&[
        (
            &md("raid1", ""),
            "!layer.raid.older-than-disks",
            Some(false),
            &["assembled before they did", "# mdadm --assemble /dev/md0 /dev/sda /dev/sdb", "!raid456"],
        ),
        (
            &md("raid0", "file sys/module/raid0/parameters/devices_discard_performance N"),
            "!layer.raid.switched-off",
            Some(false),
            &["# echo Y > /sys/module/raid0/parameters/devices_discard_performance", "!raid456"],
        ),
        (
            &md("raid5", "file sys/module/raid456/parameters/devices_handle_discard_safely N"),
            "!layer.raid.parity-not-allowed",
            Some(false),
            &[
                "# echo Y > /sys/module/raid456/parameters/devices_handle_discard_safely",
                "# mdadm --stop /dev/md0",
            ],
        ),
        (
            &md("raid6", "file sys/module/raid456/parameters/devices_handle_discard_safely Y"),
            "!layer.raid.older-than-disks",
            Some(false),
            &["assembled before they did", "!echo Y"],
        ),
        (
            &md(
                "raid5",
                "file sys/module/raid456/parameters/devices_handle_discard_safely Y\n\
                 file sys/devices/virtual/block/md0/md/raid_disks 3\n\
                 file sys/devices/virtual/block/md0/md/chunk_size 1073741824",
            ),
            "!layer.raid.stripe-too-large",
            Some(false),
            &["whole stripes of 2147483648 bytes", "NOTHING HELPS"],
        ),
        (
            &dm("254:9", "vg-home--x", "LVM-1", ""),
            "!layer.mapping.older-than-below",
            Some(false),
            &["still has its limits from then", "# dmsetup resume vg-home--x"],
        ),
        (
            &dm("254:9", "mpatha", "mpath-360", ""),
            "!layer.mapping.older-than-below",
            Some(false),
            &["# multipath -r mpatha"],
        ),
        (
            &dm("254:9", "veracrypt1", "", ""),
            "!layer.crypt.discards-off",
            Some(false),
            &["WRONG dm-9: the dm-crypt mapping veracrypt1"],
        ),
        (
            &dm("254:9", "c", "CRYPT-LUKS1-1-c", ""),
            "!layer.luks.discards-off",
            Some(false),
            &["# cryptsetup refresh --allow-discards c\n"],
        ),
        (
            &dm("254:9", "c", "CRYPT-LUKS2-1-c", ""),
            "!layer.luks.discards-off",
            Some(false),
            &["# cryptsetup refresh --allow-discards --persistent c\n", "asks for the passphrase"],
        ),
        // cryptsetup would have to be told cipher and key again.
        (
            &dm("254:9", "c", "CRYPT-PLAIN-c", ""),
            "!layer.crypt.discards-off",
            Some(false),
            &[
                "# dmsetup table --showkeys c | awk ",
                "| dmsetup reload c\n  # dmsetup resume c\n",
                "!cryptsetup",
            ],
        ),
        // TRIM would destroy a volume that is hidden in what is free of another.
        (
            &dm("254:9", "c", "CRYPT-TCRYPT-c", ""),
            "!layer.crypt.discards-off",
            Some(false),
            &["unless it hides a second volume", "!# "],
        ),
        // Switched off by hand; the kernel takes only multiples of the granularity.
        (
            &disk(SDA, "queue/discard_max_hw_bytes 4294966784;queue/discard_granularity 4096"),
            "!layer.limit.switched-off",
            Some(false),
            &["switched off in sysfs", "# echo 4294963200 > /sys/block/sda/queue/discard_max_bytes"],
        ),
        // It takes no number of more than 32 bits; NVMe's limit is larger.
        (
            &disk(NVME, "queue/discard_max_hw_bytes 2199023255040;queue/discard_granularity 512"),
            "!layer.limit.switched-off",
            Some(false),
            &["# echo 4294966784 > /sys/block/nvme0n1/queue/discard_max_bytes"],
        ),
        // Linux 6.12.42 sets the granularity to 0 then, and so refuses every other limit.
        (
            &disk(NVME, "queue/discard_max_hw_bytes 2199023255040;queue/discard_granularity 0"),
            "!layer.limit.switched-off",
            Some(false),
            &["switched off in sysfs", "reboot, without whatever sets it to 0", "!# "],
        ),
        (
            &disk(USB, "device/scsi_disk/6:0:0:0/provisioning_mode unmap"),
            "!disk.scsi.limit-zero",
            Some(false),
            &["is `unmap` already", "!udev rule"],
        ),
        (
            &disk(USB, "device/scsi_disk/6:0:0:0/provisioning_mode full"),
            "!disk.usb.adapter-no-trim",
            Some(false),
            &[
                "the USB adapter",
                "grep -q 'LBPU[^0-9]*1' && echo unmap > /sys/block/sdb/device/scsi_disk/6:0:0:0/",
            ],
        ),
        (
            &disk(SAS, "device/scsi_disk/2:0:0:0/provisioning_mode disabled;device/vpd_pgb2 12345\u{40}"),
            "!disk.scsi.disabled",
            Some(false),
            &["# echo writesame_16 > /sys/block/sdc/device/scsi_disk/2:0:0:0/provisioning_mode"],
        ),
        (
            &disk(
                SAS,
                "device/vendor ATA;device/model Samsung SSD 860 EVO;device/scsi_disk/2:0:0:0/provisioning_mode full",
            ),
            "!disk.sas-hba.no-trim",
            Some(false),
            &["the SAS HBA passes no TRIM on to Samsung SSD 860 EVO", "SATA port", "!queued"],
        ),
        // A hypervisor's disk that claims UNMAP carries it out, whatever its mode is.
        (
            &disk(
                VIRTIO_SCSI,
                "device/vendor QEMU;queue/rotational 1;device/scsi_disk/0:0:3:0/provisioning_mode full;\
                 device/vpd_pgb2 12345\u{7f}",
            ),
            "!disk.scsi.claim-unused",
            Some(false),
            &[
                "# echo writesame_16 > /sys/block/sdd/device/scsi_disk/0:0:3:0/provisioning_mode",
                "!virtual",
                "!hard",
            ],
        ),
        (
            &disk(VIRTIO_SCSI, "device/vendor QEMU;device/scsi_disk/0:0:3:0/provisioning_mode full"),
            "!disk.virtual.no-trim",
            Some(false),
            &["the virtual disk sdd", "NOTHING HELPS"],
        ),
        // QEMU's usb-storage: its adapter shows no page B2.
        (
            &disk(USB, "device/vendor QEMU;device/scsi_disk/6:0:0:0/provisioning_mode full"),
            "!disk.usb.adapter-no-trim",
            Some(false),
            &["the USB adapter", "LBPU", "!virtual"],
        ),
        // libata claims WRITE SAME for every disk.
        (
            &disk(SDA, "device/scsi_disk/0:0:0:0/provisioning_mode full;device/vpd_pgb2 12345\u{40}"),
            "!disk.drive.no-trim",
            Some(false),
            &["does not support TRIM", "NOTHING HELPS", "!# "],
        ),
        (
            &disk("vbd-768/block/xvda", ""),
            "!disk.virtual.no-trim",
            Some(false),
            &["the virtual disk xvda", "NOTHING HELPS", "!firmware"],
        ),
        (
            &disk("virtual/block/nbd0", ""),
            "!disk.network.no-trim",
            Some(false),
            &["another host (NBD)", "NOTHING HELPS", "!firmware"],
        ),
        (
            &disk("platform/host3/session1/target3:0:0/3:0:0:0/block/sdd", ""),
            "!disk.network.no-trim",
            Some(false),
            &["another host (iSCSI)", "!firmware"],
        ),
        (
            &format!("{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile sys/devices/{SDA}/device/model QEMU HARDDISK"),
            "disk.virtual.host-unknown",
            Some(true),
            &["note sda: a virtual disk", "discard=unmap"],
        ),
        (
            &format!(
                "{EXT4_ON_SDA}disk {SDA} 8:0 0\nfile proc/cmdline root=/dev/sda libata.force=1.00:notrim"
            ),
            "!disk.sata.forbidden",
            Some(false),
            &["forbids TRIM"],
        ),
    ]);
}

#[test]
fn a_stack_is_a_graph() {
    let block = |name: &str| format!("virtual/block/{name}");
    // A thin volume and its pool, whose metadata lies on the same disk; with the limits of disk, data, pool and volume.
    let pool = |[disk, data, pool, volume]: [u64; 4]| {
        let on = |name: &str, minor: u32, max: u64, below: &str, dm: &str| {
            format!("on {name} 254:{minor} {max} {below}\ndm {name} {dm}\n")
        };
        let parts = format!("{} {}", block("dm-0"), block("dm-1"));
        [
            "mount 22 1 254:4 / /data rw - xfs /dev/mapper/vg-thin rw\nscript etc/cron.weekly/fstrim\n"
                .to_owned(),
            format!("disk {SDA} 8:0 {disk}\n"),
            on("dm-0", 0, data, SDA, "vg-pool_tmeta LVM-1"),
            on("dm-1", 1, data, SDA, "vg-pool_tdata LVM-2"),
            on("dm-2", 2, pool, &parts, "vg-pool-tpool LVM-3-tpool"),
            on("dm-4", 4, volume, &block("dm-2"), "vg-thin LVM-4"),
        ]
        .concat()
    };
    let thin = pool([0, 0, GIB, GIB]);
    // The metadata on a disk without TRIM: nothing of the file system lies there.
    let beside = pool([GIB, GIB, GIB, GIB]).replace(&format!("254:0 {GIB} {SDA}"), &format!("254:0 0 {SDB}"))
        + &format!("disk {SDB} 8:16 0");
    // Each leg of the RAID has integrity, whose metadata lies on the same disk.
    let mut integrity = format!(
        "mount 22 1 254:9 / /data rw - xfs /dev/mapper/vg-r rw\nscript etc/cron.weekly/fstrim\n\
         disk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n"
    );
    for (leg, disk) in [(0, SDA), (1, SDB)] {
        let [orig, meta, image] = [1, 2, 3].map(|n| n + 3 * leg);
        integrity += &format!(
            "on dm-{orig} 254:{orig} {GIB} {disk}\ndm dm-{orig} vg-r_rimage_{leg}_iorig LVM-1\n\
             on dm-{meta} 254:{meta} {GIB} {disk}\ndm dm-{meta} vg-r_rimage_{leg}_imeta LVM-1\n\
             on dm-{image} 254:{image} 0 {} {}\ndm dm-{image} vg-r_rimage_{leg} LVM-1\n",
            block(&format!("dm-{orig}")),
            block(&format!("dm-{meta}"))
        );
    }
    integrity += &format!("on dm-9 254:9 0 {} {}\ndm dm-9 vg-r LVM-1", block("dm-3"), block("dm-6"));
    // dm-crypt under nine linear volumes: each takes its limits from below.
    let mut deep = format!(
        "mount 22 1 254:9 / /data rw - xfs /dev/mapper/v9 rw\nscript etc/cron.weekly/fstrim\ndisk {SDA} 8:0 {GIB}\n\
         on dm-0 254:0 0 {SDA}\ndm dm-0 c CRYPT-LUKS2-1-c\n"
    );
    for n in 1..10 {
        deep += &format!("on dm-{n} 254:{n} 0 {}\ndm dm-{n} v{n} LVM-1\n", block(&format!("dm-{}", n - 1)));
    }
    let cycle = format!(
        "mount 22 1 254:1 / /data rw - xfs /dev/mapper/a rw\non dm-0 254:0 {GIB} {}\ndm dm-0 a LVM-1\n\
         on dm-1 254:1 {GIB} {}\ndm dm-1 b LVM-2",
        block("dm-1"),
        block("dm-0")
    );
    let vanished = format!(
        "mount 22 1 254:0 / /data rw - xfs /dev/mapper/a rw\non dm-0 254:0 {GIB} {SDA}\ndm dm-0 a LVM-1"
    );
    // One disk takes TRIM, the other does not: the volume cannot.
    let mixed = format!(
        "mount 22 1 254:0 / /data rw - xfs /dev/mapper/a rw\nscript etc/cron.weekly/fstrim\n\
         disk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 0\non dm-0 254:0 0 {SDA} {SDB}\ndm dm-0 a LVM-1"
    );
    judge(&[
        (
            &thin,
            "!disk.drive.no-trim layer.thin.kept-in-pool",
            Some(false),
            &["WRONG sda", "note dm-4: trimming it frees space in its pool", "!WRONG dm"],
        ),
        (&beside, "", Some(true), &["!WRONG"]),
        // A disk that can be switched on, below everything: each table above has its limits from then.
        (
            &format!(
                "{}\nfile sys/devices/{VIRTIO_SCSI}/device/scsi_disk/0:0:3:0/provisioning_mode full\n\
                 file sys/devices/{VIRTIO_SCSI}/device/vpd_pgb2 12345\u{60}",
                pool([0, 0, 0, GIB]).replace(SDA, VIRTIO_SCSI)
            ),
            "!disk.scsi.claim-unused layer.thin.kept-in-pool",
            Some(false),
            &[
                "WRONG sdd",
                "# echo writesame_16 > /sys/block/sdd/device/scsi_disk/0:0:3:0/provisioning_mode\n  # dmsetup table \
                 vg-pool_tdata ",
                "# dmsetup resume vg-pool_tdata\n  # dmsetup table vg-pool-tpool ",
            ],
        ),
        (
            &pool([GIB, GIB, 0, GIB]),
            "!layer.thin.no-passdown layer.thin.kept-in-pool",
            Some(false),
            &["WRONG dm-2: the thin pool", "# lvchange --discards passdown vg/pool\n"],
        ),
        (
            &pool([GIB, GIB, 0, 0]),
            "!layer.thin.ignores",
            Some(false),
            &[
                "WRONG dm-2: the thin pool vg-pool-tpool ignores TRIM",
                "# umount --all-targets /dev/mapper/vg-thin\n  # lvchange --activate n vg/thin vg/pool\n",
                "# mount -t xfs -o rw /dev/mapper/vg-thin /data\n",
                "!dmsetup",
            ],
        ),
        (
            &integrity,
            "!layer.integrity.no-trim !layer.integrity.no-trim",
            Some(false),
            &[
                "WRONG dm-3: dm-integrity",
                "WRONG dm-6",
                "# lvconvert --yes --raidintegrity n vg/r\n  # dmsetup table vg-r | dmsetup reload vg-r",
                "checksums",
            ],
        ),
        (
            &deep,
            "!layer.luks.discards-off",
            Some(false),
            &["WRONG dm-0: dm-crypt", "--persistent c\n  # dmsetup table v1", "# dmsetup resume v9\n"],
        ),
        (&cycle, "mount.trim.nothing ?unchecked.layers.hidden", None, &["UNCHECKED /data", "lies on itself"]),
        // What sysfs does not tell is neither sound nor a cause.
        (
            &format!(
                "mount 22 1 9:0 / /srv rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 0\n\
                 file sys/devices/{SDA}/queue/discard_max_bytes x\non md0 9:0 0 {SDA}\n\
                 file sys/devices/virtual/block/md0/md/level raid1"
            ),
            "!layer.mapping.cause-unknown",
            Some(false),
            &["WRONG md0: md0 accepts no TRIM; the cause is unknown", "!# "],
        ),
        (
            &vanished,
            "mount.trim.nothing ?unchecked.layers.hidden",
            None,
            &["UNCHECKED /data", "does not show what lies below dm-0"],
        ),
        (
            "mount 22 1 7:0 / /data rw - ext4 /dev/loop0 rw\nmount 23 1 8:0 / /below rw - vfat /dev/sda rw\n\
             on loop0 7:0 4096\nfile sys/devices/virtual/block/loop0/loop/backing_file /below/image\n\
             script etc/cron.weekly/fstrim",
            "!layer.loop.no-holes ?unchecked.layers.hidden",
            Some(false),
            &["WRONG loop0: ", "cannot punch holes", "ext4, XFS"],
        ),
        (&mixed, "!disk.drive.no-trim", Some(false), &["WRONG sdb", "!WRONG dm-0"]),
    ]);
    // One command mends both legs.
    let legs = &built(&integrity).examine().file_systems[0].findings;
    assert!(
        !legs[0].commands.is_empty() && legs[1].commands.is_empty() && legs[1].undo.is_empty(),
        "{legs:?}"
    );
    let lines = |host: &str| built(host).examine().file_systems[0].layers.len();
    assert_eq!((lines(&thin), lines(&deep)), (6, 11), "a disk under two branches is listed twice");
}

#[test]
fn no_remedy_does_harm() {
    let raid = |mounts: &str, rest: &str| {
        format!(
            "mount 22 1 9:0 / {mounts} rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
             on md0 9:0 0 {SDA} {SDB}\nfile sys/devices/virtual/block/md0/md/level raid1\n{rest}"
        )
    };
    let md = "file sys/devices/virtual/block/md0";
    let partition = |rest: &str| raid("/srv", &format!("part virtual/block/md0/md0p2 259:2\n{rest}"));
    let anew = ["WRONG md0", "# umount --all-targets", "# mdadm --assemble /dev/md0 /dev/sda /dev/sdb"];
    let only_words = ["WRONG md0", "!# umount", "!# mdadm"];
    let lvm = format!(
        "mount 22 1 252:0 / /srv rw - xfs /dev/mapper/vg-x rw\ndisk {SDA} 8:0 {GIB}\non dm-1 252:1 {GIB} {SDA}\n\
         dm dm-1 vg-x_rimage_0 LVM-b\non dm-0 252:0 0 virtual/block/dm-1\ndm dm-0 vg-x LVM-a"
    );
    let thin = format!(
        "mount 22 1 252:0 / /srv rw - xfs /dev/mapper/v rw\ndisk {SDA} 8:0 {GIB}\non dm-1 252:1 {GIB} {SDA}\n\
         dm dm-1 pool-thindata x\non dm-2 252:2 0 virtual/block/dm-1\ndm dm-2 pool x\n\
         on dm-0 252:0 0 virtual/block/dm-2\ndm dm-0 v x"
    );
    judge(&[
        (&raid("/srv", ""), "!layer.raid.older-than-disks", Some(false), &anew),
        (&raid("/srv", &format!("{md}/md/raid_disks 2")), "!layer.raid.older-than-disks", Some(false), &anew),
        // A member that is missing, that sysfs no longer shows, or that a container holds.
        (
            &raid("/srv", &format!("{md}/md/raid_disks 3")),
            "!layer.raid.older-than-disks",
            Some(false),
            &only_words,
        ),
        (
            &raid("/srv", &format!("{md}/md/degraded 1")),
            "!layer.raid.older-than-disks",
            Some(false),
            &only_words,
        ),
        (
            &raid("/srv", "link sys/devices/virtual/block/md0/slaves/sdz ../../gone"),
            "!layer.mapping.cause-unknown",
            Some(false),
            &only_words,
        ),
        (
            &raid("/srv", &format!("{md}/md/metadata_version external:/md127/0")),
            "!layer.raid.older-than-disks",
            Some(false),
            &only_words,
        ),
        // More than one mount would have to go.
        (
            &raid("/srv", "mount 23 1 8:99 / /srv/sub rw - ext2 /dev/x rw"),
            "!layer.raid.older-than-disks mount.trim.nothing ?unchecked.layers.hidden",
            Some(false),
            &only_words,
        ),
        (
            &raid("/srv", "mount 23 1 9:0 /a /home rw - xfs /dev/md0 rw"),
            "!layer.raid.older-than-disks mount.bind.several",
            Some(false),
            &only_words,
        ),
        (&partition(""), "!layer.raid.older-than-disks", Some(false), &anew),
        (
            &partition("mount 23 1 259:2 / /home rw - xfs /dev/md0p2 rw"),
            "!layer.raid.older-than-disks !layer.raid.older-than-disks",
            Some(false),
            &only_words,
        ),
        (
            &partition(&format!(
                "link sys/devices/virtual/block/md0/md0p2/holders/dm-3 ../../../../../{SDB}"
            )),
            "!layer.raid.older-than-disks",
            Some(false),
            &only_words,
        ),
        (
            &partition("file proc/swaps Filename Type\\n/dev/md0p2 partition 8 0 -2"),
            "!layer.raid.older-than-disks",
            Some(false),
            &only_words,
        ),
        // A name with a newline.
        (
            &raid("/n\\012w", ""),
            "!layer.raid.older-than-disks",
            Some(false),
            &[&anew[..], &["$'/n\\nw'"]].concat(),
        ),
        // Its level is not known without dmsetup: no parameter that destroys data.
        (&lvm, "!layer.raid.level-unknown", Some(false), &["WRONG dm-0: the RAID volume vg-x", "!echo Y"]),
        (&thin, "!layer.thin.ignores", Some(false), &["ignores TRIM", "!# umount"]),
        // No parameter helps where the disks take less than a stripe.
        (
            &raid("/srv", &format!("{md}/md/chunk_size 524288\n{md}/md/raid_disks 3"))
                .replace("raid1", "raid5")
                .replace(&format!("8:16 {GIB}"), "8:16 65536"),
            "!layer.raid.stripe-too-large",
            Some(false),
            &["whole stripes of 1048576 bytes", "!echo Y"],
        ),
    ]);
}

#[test]
fn vdo_passes_nothing_on() {
    judge(&[(
        &format!(
            "timer\nmount 22 1 254:3 / /srv rw - xfs /dev/mapper/vg-lv rw\ndisk {SDA} 8:0 {GIB}\n\
             on dm-1 254:1 {GIB} {SDA}\ndm dm-1 vg-pool_vdata LVM-1-vdata\n\
             on dm-2 254:2 4096 virtual/block/dm-1\ndm dm-2 vg-pool-vpool LVM-2-vpool\n\
             on dm-3 254:3 4096 virtual/block/dm-2\ndm dm-3 vg-lv LVM-3"
        ),
        "layer.vdo.keeps-trim layer.vdo.trim-load",
        Some(false),
        &[
            "note dm-2: VDO (vg-pool-vpool) reuses trimmed space",
            "note dm-2: it takes discards of at most 4 KiB, and the devices below 1 GiB: to trim each TiB takes 268,435,456",
            "`lvchange --vdosettings vdo_max_discard=N`",
            "!# ",
        ],
    )]);
}

#[test]
fn a_loop_device_is_followed_as_far_as_it_can_be() {
    let over = |file: &str, holder: &str, max: u64| {
        format!(
            "mount 22 1 7:0 / /data rw - ext4 /dev/loop0 rw\nmount 23 1 0:77 / /net rw - {holder} x rw\n\
             disk virtual/block/loop0 7:0 {max}\nfile sys/devices/virtual/block/loop0/loop/backing_file {file}\n\
             file sys/devices/virtual/block/loop0/queue/discard_max_hw_bytes 4294966784\ndisk {SDA} 8:0 0"
        )
    };
    let shared: &[&str] = &["UNCHECKED /data: /dev/loop0: /net/x.img lies on"];
    judge(&[
        (
            &over("/net/x.img", "vfat", 4_294_966_784),
            "!layer.loop.no-holes mount.trim.nothing ?unchecked.layers.hidden",
            Some(false),
            &["cannot punch holes", "!switched off"],
        ),
        (
            &over("/net/x.img", "exfat", 4_294_966_784),
            "!layer.loop.no-holes mount.trim.nothing ?unchecked.layers.hidden",
            Some(false),
            &["cannot punch holes", "!switched off"],
        ),
        (
            &over("/net/x.img", "xfs", 0),
            "!layer.limit.switched-off mount.trim.nothing ?unchecked.layers.hidden",
            Some(false),
            &["switched off"],
        ),
        (
            &over("/net/x.img", "xfs", 0)
                .replace("discard_max_hw_bytes 4294966784", "discard_max_hw_bytes 0"),
            "!layer.loop.read-only mount.trim.nothing ?unchecked.layers.hidden",
            Some(false),
            &["though xfs can punch holes", "!put the file on"],
        ),
        (
            &over("/gone/x.img", "xfs", GIB),
            "mount.trim.nothing mount.trim.nothing ?unchecked.layers.hidden ?unchecked.layers.hidden",
            None,
            &["the file system of /gone/x.img is not mounted here"],
        ),
        (
            &over("/net/x.img", "zfs", GIB),
            "mount.trim.nothing ?unchecked.layers.hidden ?unchecked.zfs.by-itself",
            None,
            shared,
        ),
        (&over("/net/x.img", "nfs4", GIB), "mount.trim.nothing ?unchecked.layers.hidden", None, shared),
        (&over("/net/x.img", "cifs", GIB), "mount.trim.nothing ?unchecked.layers.hidden", None, shared),
        (&over("/net/x.img", "fuse.sshfs", GIB), "mount.trim.nothing ?unchecked.layers.hidden", None, shared),
        (
            &over("/dev/sda", "xfs", GIB),
            "!disk.drive.no-trim mount.trim.nothing ?unchecked.layers.hidden",
            Some(false),
            &["WRONG sda", "!punches holes"],
        ),
        (
            &over("/net/gone", "devtmpfs", GIB),
            "mount.trim.nothing ?unchecked.layers.hidden",
            None,
            &["UNCHECKED /data: /dev/loop0: sysfs does not show /net/gone"],
        ),
    ]);
}

#[test]
fn a_layer_above_is_judged_by_its_own_kind() {
    let under = |kind: &str, rest: &str| {
        format!(
            "mount 22 1 252:0 / / rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 0\n\
             file sys/devices/{SDA}/queue/discard_max_hw_bytes {GIB}\non dm-0 252:0 0 {SDA}\ndm dm-0 x {kind}\n{rest}"
        )
    };
    let crypt = ["which blocks are free", "# cryptsetup refresh --allow-discards --persistent x"];
    let raid = format!(
        "mount 22 1 9:0 / / rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 0\n\
         file sys/devices/{SDA}/queue/discard_max_hw_bytes {GIB}\non md0 9:0 0 {SDA}\n\
         file sys/devices/virtual/block/md0/md/level raid5"
    );
    judge(&[
        (&under("CRYPT-LUKS2-1-x", ""), "!layer.limit.switched-off", Some(false), &crypt),
        (
            &under("CRYPT-TCRYPT-1-x", ""),
            "!layer.limit.switched-off",
            Some(false),
            &["hides a second volume", "!cryptsetup refresh"],
        ),
        (
            &under("CRYPT-INTEGRITY-x", ""),
            "!layer.limit.switched-off",
            Some(false),
            &["WRONG sda", "dm-integrity (x) drops TRIM"],
        ),
        (
            &under(
                "LVM-1",
                "on dm-1 252:1 0\ndm dm-1 x-cow LVM-2-cow\nlink sys/devices/virtual/block/dm-0/slaves/dm-1 ../../dm-1",
            ),
            "!layer.limit.switched-off",
            Some(false),
            &["x is a snapshot, or has one", "!dmsetup"],
        ),
        (&under("LVM-1", ""), "!layer.limit.switched-off", Some(false), &["# dmsetup resume x"]),
        (
            &raid,
            "!layer.limit.switched-off",
            Some(false),
            &["# echo Y > /sys/module/raid456/parameters/devices_handle_discard_safely"],
        ),
    ]);
}

#[test]
fn the_cause_is_the_likeliest() {
    let dm = |name: &str, uuid: &str, rest: &str| {
        format!(
            "timer\nmount 22 1 254:9 / /data rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 {GIB}\n\
             on dm-1 254:1 {GIB} {SDA}\ndm dm-1 {rest}\non dm-9 254:9 0 virtual/block/dm-1\ndm dm-9 {name} {uuid}"
        )
    };
    let crypt = |format: &str, file: &str| {
        format!(
            "mount 22 1 254:9 / /data rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 {GIB}\non dm-9 254:9 0 {SDA}\n\
             dm dm-9 x CRYPT-{format}-12-x\nfile {file}"
        )
    };
    let asked =
        ["though", "rebuild the initramfs", "# cryptsetup refresh --allow-discards x\n", "!add `discard`"];
    // Unless the flag is known to be in the header, the command sets it.
    let asked_of_luks2 = [
        "though",
        "rebuild the initramfs",
        "# cryptsetup refresh --allow-discards --persistent x\n",
        "!add `discard`",
    ];
    let not_asked = ["as it does by default", "!initramfs"];
    let over_raid = |level: &str, rest: &str| {
        format!(
            "mount 22 1 9:0 / /srv rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
             on md0 9:0 0 {SDA} {SDB}\nfile sys/devices/virtual/block/md0/md/level {level}\n{rest}"
        )
    };
    let parity = "file sys/module/raid456/parameters/devices_handle_discard_safely Y";
    judge(&[
        // A volume that its owner called `real` is no layer of a snapshot.
        (
            &dm("vg2-data", "LVM-c", "vg-real LVM-b"),
            "!layer.mapping.older-than-below",
            Some(false),
            &["still has its limits from then", "!snapshot"],
        ),
        (
            &dm("vg-data", "LVM-c", "vg-data-real LVM-c-real"),
            "!layer.snapshot.no-trim",
            Some(false),
            &["vg-data is a snapshot, or has one"],
        ),
        (
            &crypt("LUKS1", "etc/crypttab x UUID=1 none luks,discard"),
            "!layer.crypt.opened-before-option",
            Some(false),
            &asked,
        ),
        (
            &crypt("LUKS2", "proc/cmdline rd.luks.options=1-2=timeout=9,discard"),
            "!layer.crypt.opened-before-option",
            Some(false),
            &asked_of_luks2,
        ),
        (
            &crypt("LUKS2", "proc/cmdline cryptdevice=UUID=1:x:allow-discards"),
            "!layer.crypt.opened-before-option",
            Some(false),
            &asked_of_luks2,
        ),
        (
            &crypt("LUKS2", "etc/crypttab y UUID=1 none luks,discard"),
            "!layer.luks.discards-off",
            Some(false),
            &not_asked,
        ),
        (
            &crypt("LUKS2", "etc/crypttab #x UUID=1 none discard"),
            "!layer.luks.discards-off",
            Some(false),
            &not_asked,
        ),
        (
            &over_raid("raid5", parity),
            "!layer.raid.older-than-disks",
            Some(false),
            &["or before raid456.devices_handle_discard_safely was set", "is set at each boot"],
        ),
        (
            &over_raid("raid0", "file sys/module/raid0/parameters/devices_discard_performance Y"),
            "!layer.raid.older-than-disks",
            Some(false),
            &["or before raid0.devices_discard_performance was set"],
        ),
        (
            &over_raid("raid1", parity),
            "!layer.raid.older-than-disks",
            Some(false),
            &["!parameter", "!was set"],
        ),
        // What a disk takes that takes none today is not known.
        (
            &format!(
                "mount 22 1 9:0 / /srv rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 {GIB}\non dm-0 254:0 0 {SDA}\n\
                 dm dm-0 c CRYPT-LUKS2-1-c\non md0 9:0 0 virtual/block/dm-0\n\
                 file sys/devices/virtual/block/md0/md/level raid5\n\
                 file sys/devices/virtual/block/md0/md/raid_disks 3\n\
                 file sys/devices/virtual/block/md0/md/chunk_size 524288"
            ),
            "!layer.luks.discards-off",
            Some(false),
            &["WRONG dm-0", "!whole stripes", "# echo Y > /sys/module/raid456"],
        ),
        // One called `cow` beside another holds data, too.
        (
            &format!(
                "mount 22 1 254:9 / / rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 {GIB}\non dm-0 254:0 0 {SDA}\n\
                 dm dm-0 vg-cow LVM-a\non dm-1 254:1 {GIB} {SDA}\ndm dm-1 vg-b LVM-b\n\
                 on dm-9 254:9 0 virtual/block/dm-0 virtual/block/dm-1\ndm dm-9 x LVM-c"
            ),
            "!layer.mapping.older-than-below",
            Some(false),
            &["WRONG dm-0: the logical volume vg-cow"],
        ),
        // The disk and the snapshot: switching the disk on is in vain.
        (
            &format!(
                "mount 22 1 254:9 / / rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 0\n\
                 file sys/devices/{SDA}/queue/discard_max_hw_bytes {GIB}\non dm-1 254:1 0 {SDA}\n\
                 dm dm-1 x-real LVM-x-real\non dm-9 254:9 0 virtual/block/dm-1\ndm dm-9 x LVM-x"
            ),
            "!layer.limit.switched-off",
            Some(false),
            &["WRONG sda", "NOTHING HELPS", "to remove the snapshot", "!# "],
        ),
    ]);
}

#[test]
fn steps_are_in_an_order_that_helps() {
    let raid = |level: &str| format!("file sys/devices/virtual/block/md0/md/level {level}");
    let lvm = "on dm-9 254:9 0 virtual/block/md0\ndm dm-9 vg-root LVM-1";
    let mount = |numbers: &str, at: &str| {
        format!("mount 22 1 {numbers} / {at} rw - xfs /dev/x rw\ndisk {SDA} 8:0 {GIB}\n")
    };
    let off = mount("9:0", "/srv").replace(&GIB.to_string(), "0");
    let thin = format!(
        "{}on dm-1 254:1 {GIB} {SDA}\ndm dm-1 vg-p_tdata LVM-1\non dm-2 254:2 {GIB} virtual/block/dm-1\n\
         dm dm-2 vg-p-tpool LVM-2-tpool\non dm-3 254:3 {GIB} virtual/block/dm-2\ndm dm-3 vg-t LVM-3\n\
         on dm-9 254:9 0 virtual/block/dm-3\ndm dm-9 x CRYPT-LUKS2-1-x",
        mount("254:9", "/srv")
    );
    judge(&[
        // A table above an array takes its limits in vain before the array is reassembled.
        (
            &format!("{}on md0 9:0 0 {SDA}\n{}\n{lvm}", mount("254:9", "/"), raid("raid5")),
            "!layer.raid.parity-not-allowed",
            Some(false),
            &["# echo Y > /sys/module/raid456", "boot", "!dmsetup", "!above it"],
        ),
        (
            &format!(
                "{}on dm-0 254:0 0 {SDA}\ndm dm-0 c CRYPT-LUKS2-1-c\non md0 9:0 0 virtual/block/dm-0\n{}\n{lvm}",
                mount("254:9", "/"),
                raid("raid1")
            ),
            "!layer.luks.discards-off",
            Some(false),
            &["# cryptsetup refresh", "md0 above it must then be reassembled", "!dmsetup"],
        ),
        (
            &format!(
                "{off}file sys/devices/{SDA}/queue/discard_max_hw_bytes {GIB}\non md0 9:0 0 {SDA}\n{}",
                raid("raid1")
            ),
            "!layer.limit.switched-off",
            Some(false),
            &[
                "/sys/block/sda/queue/discard_max_bytes\n  # umount --all-targets /dev/md0\n  # mdadm --stop /dev/md0",
            ],
        ),
        // Two arrays, one parameter.
        (
            &format!(
                "{}on md1 9:1 0 {SDA}\nfile sys/devices/virtual/block/md1/md/level raid0\n\
                 on md0 9:0 0 virtual/block/md1\n{}\nfile sys/module/raid0/parameters/devices_discard_performance N",
                mount("9:0", "/srv"),
                raid("raid0")
            ),
            "!layer.raid.switched-off",
            Some(false),
            &["WRONG md1", "-discard.conf\n", "!-discard.conf\n  # ", "!umount"],
        ),
        // dm-crypt above an array that can only be reassembled at boot.
        (
            &format!(
                "{}on md0 9:0 0 {SDA}\n{}\non dm-9 254:9 0 virtual/block/md0\ndm dm-9 x CRYPT-LUKS2-1-x",
                mount("254:9", "/"),
                raid("raid1")
            ),
            "!layer.raid.older-than-disks",
            Some(false),
            &["WRONG md0", "boot", "dm-9 above it drops TRIM, too", "# cryptsetup refresh"],
        ),
        // It is a hard disk, as far as is known: no array is stopped for it.
        (
            &format!(
                "mount 22 1 9:0 / /srv rw - xfs /dev/md0 rw\ndisk {USB} 8:16 0\n\
                 file sys/devices/{USB}/queue/rotational 1\non md0 9:0 0 {USB}\n{}",
                raid("raid1")
            ),
            "disk.usb.claims-to-rotate",
            Some(false),
            &["note sdb", "!umount", "!mdadm"],
        ),
        (&thin, "!layer.luks.discards-off", Some(false), &["WRONG dm-9: dm-crypt", "!goes no further down"]),
    ]);
}

#[test]
fn a_cache_or_a_loop_device_over_a_disk_may_drop_trim() {
    let on_disk = |device: &str, numbers: &str, rest: &str| {
        format!(
            "mount 22 1 {numbers} / /srv rw - xfs /dev/{device} rw\ndisk {SDA} 8:0 {GIB}\n\
             on {device} {numbers} 0 {SDA}\n{rest}"
        )
    };
    let backing =
        "file sys/devices/virtual/block/loop0/loop/backing_file /dev/sda\nlink dev/sda ../sys/devices/x";
    judge(&[
        (
            &on_disk("bcache0", "252:0", ""),
            "!layer.bcache.no-trim",
            Some(false),
            &["WRONG bcache0: bcache drops TRIM", "newer kernels", "NOTHING HELPS"],
        ),
        (
            &on_disk("loop0", "7:0", backing),
            "!layer.loop.no-write-zeroes",
            Some(false),
            &["passes TRIM on as Write Zeroes", "mount /dev/sda without the loop device"],
        ),
    ]);
}

#[test]
fn a_limit_that_was_switched_off_is_set_in_a_way_that_the_kernel_takes() {
    let sda = |attributes: &str| {
        let attributes: String =
            attributes.split(';').map(|one| format!("file sys/devices/{SDA}/queue/{one}\n")).collect();
        format!("{EXT4_ON_SDA}disk {SDA} 8:0 0\n{attributes}")
    };
    let mapping = |granularity: u32| {
        format!(
            "mount 22 1 254:9 / /data rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 {GIB}\non dm-9 254:9 0 {SDA}\n\
             dm dm-9 vg-x LVM-1\nfile sys/devices/virtual/block/dm-9/queue/discard_max_hw_bytes {GIB}\n\
             file sys/devices/virtual/block/dm-9/queue/discard_granularity {granularity}"
        )
    };
    judge(&[
        (
            &sda("discard_max_hw_bytes 65536;discard_granularity 4096"),
            "!layer.limit.switched-off",
            Some(false),
            &["takes up to 65536 bytes", "# echo 65536 > /sys/block/sda/queue/discard_max_bytes"],
        ),
        // Less than one granule is none.
        (
            &sda("discard_max_hw_bytes 4096;discard_granularity 65536"),
            "!layer.limit.switched-off",
            Some(false),
            &["# echo 65536 > "],
        ),
        // Without a granularity, the kernel's is a sector.
        (&sda("discard_max_hw_bytes 1536"), "!layer.limit.switched-off", Some(false), &["# echo 1536 > "]),
        (&sda("discard_max_hw_bytes 0"), "!disk.drive.no-trim", Some(false), &["!# "]),
        (
            &mapping(512),
            "!layer.limit.switched-off",
            Some(false),
            &["# echo 1073741824 > /sys/block/dm-9/queue/discard_max_bytes", "!dmsetup"],
        ),
        (
            &mapping(0),
            "!layer.limit.switched-off",
            Some(false),
            &["reload its table, and remove", "# dmsetup resume vg-x", "!echo"],
        ),
    ]);
}

#[test]
fn a_stripe_is_that_of_the_data_disks() {
    let raid = |level: &str, disks: u32, max: u64| {
        format!(
            "mount 22 1 9:0 / / rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {max}\n\
             on md0 9:0 0 {SDA} {SDB}\nfile sys/devices/virtual/block/md0/md/level {level}\n\
             file sys/devices/virtual/block/md0/md/raid_disks {disks}\n\
             file sys/devices/virtual/block/md0/md/chunk_size 524288"
        )
    };
    let (too_large, allowed) = ("!layer.raid.stripe-too-large", "!layer.raid.parity-not-allowed");
    judge(&[
        (
            &raid("raid5", 4, 1 << 20),
            too_large,
            Some(false),
            &["whole stripes of 2097152 bytes", "at most 1048576"],
        ),
        (&raid("raid6", 4, 1 << 20), allowed, Some(false), &["!stripes"]),
        (&raid("raid6", 5, 1 << 20), too_large, Some(false), &["whole stripes of 2097152 bytes"]),
        (&raid("raid5", 3, (1 << 20) - 512), too_large, Some(false), &["whole stripes of 1048576 bytes"]),
        (&raid("raid5", 3, 1 << 20), allowed, Some(false), &["!stripes"]),
        (&raid("raid10", 4, 512), "!layer.raid.older-than-disks", Some(false), &["!stripes"]),
    ]);
}

#[test]
fn discard_may_be_asked_for_in_several_places() {
    let crypt = |format: &str, rest: &str| {
        format!(
            "mount 22 1 254:9 / /data rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 {GIB}\non dm-9 254:9 0 {SDA}\n\
             dm dm-9 x CRYPT-{format}-12-x\n{rest}"
        )
    };
    let (asked, luks) = ("!layer.crypt.opened-before-option", "!layer.luks.discards-off");
    for (rest, code, word) in [
        ("file etc/crypttab x UUID=1 none luks,discard", asked, "though /etc/crypttab asks"),
        ("file etc/crypttab x UUID=1 none allow-discards", asked, "though /etc/crypttab asks"),
        ("file etc/crypttab x UUID=1 none nodiscard", luks, "as it does by default"),
        ("file etc/crypttab x UUID=1 discard", luks, "as it does by default"),
        ("file proc/cmdline quiet rd.luks.allow-discards", asked, "though the kernel's command line asks"),
        ("file proc/cmdline luks.options=1-2=discard", asked, "though the kernel's command line asks"),
        ("file proc/cmdline luks.options=timeout=9", luks, "as it does by default"),
        // Of other volumes.
        ("file proc/cmdline luks.options=1-3=discard", luks, "as it does by default"),
        ("file proc/cmdline cryptdevice=UUID=1:y:allow-discards", luks, "as it does by default"),
        ("file proc/cmdline rd.luks.allow-discards=3", luks, "as it does by default"),
        ("file proc/cmdline cryptopts=target=y,discard", luks, "as it does by default"),
        (
            "file proc/cmdline cryptopts=target=x,source=a,discard",
            asked,
            "though the kernel's command line asks",
        ),
        ("file proc/cmdline root=discard rootflags=discard", luks, "as it does by default"),
    ] {
        judge(&[(&crypt("LUKS2", rest), code, Some(false), &[word])]);
    }
    judge(&[
        // A format that trimwise cannot refresh.
        (
            &crypt("BITLK", ""),
            "!layer.crypt.discards-off",
            Some(false),
            &["by opening it with --allow-discards", "!# "],
        ),
        (
            &crypt("LUKS1", ""),
            luks,
            Some(false),
            &["add `discard` to its line in /etc/crypttab", "!--persistent"],
        ),
    ]);
}

#[test]
fn a_pool_that_others_use_is_not_deactivated() {
    let pool = |rest: &str| {
        format!(
            "mount 22 1 254:4 / /data rw - xfs /dev/mapper/vg-thin rw\ndisk {SDA} 8:0 {GIB}\n\
             on dm-1 254:1 {GIB} {SDA}\ndm dm-1 vg-pool_tdata LVM-2\n\
             on dm-2 254:2 0 virtual/block/dm-1\ndm dm-2 vg-pool-tpool LVM-3-tpool\n\
             on dm-4 254:4 0 virtual/block/dm-2\ndm dm-4 vg-thin LVM-4\n\
             link sys/devices/virtual/block/dm-2/holders/dm-4 ../../dm-4\n{rest}"
        )
    };
    let own =
        "on dm-3 254:3 0\ndm dm-3 vg-pool LVM-5\nlink sys/devices/virtual/block/dm-2/holders/dm-3 ../../dm-3";
    let other = "on dm-5 254:5 0\ndm dm-5 vg-other LVM-6\nlink sys/devices/virtual/block/dm-2/holders/dm-5 ../../dm-5";
    let steps = "# lvchange --activate n vg/thin vg/pool\n  # lvchange --discards passdown vg/pool\n  # lvchange --activate y vg/thin";
    judge(&[
        (&pool(""), "!layer.thin.ignores", Some(false), &[steps]),
        // The pool's own device, which takes its name for itself.
        (&pool(own), "!layer.thin.ignores", Some(false), &[steps]),
        (&pool(other), "!layer.thin.ignores", Some(false), &["!# "]),
        (&pool(&format!("{own}\n{other}")), "!layer.thin.ignores", Some(false), &["!# "]),
    ]);
}

/// An archive of cpio (`newc`) with one file.
fn cpio(name: &str, text: &str) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, text) in [("bin/sh", "#!"), (name, text), ("TRAILER!!!", "")] {
        let numbers = [1, 0o100_644, 0, 0, 1, 0, text.len(), 0, 0, 0, 0, name.len() + 1, 0];
        archive.extend(b"070701");
        numbers.iter().for_each(|number| archive.extend(format!("{number:08X}").bytes()));
        for part in [format!("{name}\0"), text.to_owned()] {
            archive.extend(part.bytes());
            archive.resize(archive.len().next_multiple_of(4), 0);
        }
    }
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive
}

/// A LUKS2 header with these flags.
fn header(flags: &str) -> Vec<u8> {
    let mut header = b"LUKS\xba\xbe\x00\x02".to_vec();
    header.extend(16_384_u64.to_be_bytes());
    header.resize(4096, 0);
    header.extend(format!("{{\"config\":{{{flags}}}}}").bytes());
    header.resize(16_384, 0);
    header
}

#[test]
fn an_option_counts_where_something_reads_it() {
    const UUID: &str = "0123456789abcdef0123456789abcdef";
    const DASHED: &str = "01234567-89ab-cdef-0123-456789abcdef";
    let crypt = |at: &str, name: &str, format: &str, rest: &str| {
        format!(
            "timer\nmount 22 1 254:9 / {at} rw - xfs /dev/mapper/{name} rw\ndisk {SDA} 8:0 {GIB}\n\
             on dm-9 254:9 0 {SDA}\ndm dm-9 {name} CRYPT-{format}-{UUID}-{name}\n{rest}"
        )
    };
    let (asked, unheard, off) =
        ("!layer.crypt.opened-before-option", "!layer.crypt.option-not-heard", "!layer.luks.discards-off");
    let lasting = "# cryptsetup refresh --allow-discards --persistent ";
    let cmdline = |line: &str| format!("file proc/cmdline {line}");
    let gpt_auto = "systemd-gpt-auto-generator (which found this volume) does not read luks.options=";
    for (at, name, format, rest, code, words) in [
        // systemd's gpt-auto: no root=, no line and no option for it.
        (
            "/",
            "root",
            "LUKS2",
            cmdline("quiet rd.luks.options=discard"),
            unheard,
            &[gpt_auto, lasting, "!initramfs"][..],
        ),
        (
            "/",
            "root",
            "LUKS1",
            cmdline("rd.luks.options=discard"),
            unheard,
            &[
                gpt_auto,
                &format!("rd.luks.name={DASHED}=root and rd.luks.options={DASHED}=discard"),
                "!--persistent",
            ],
        ),
        (
            "/",
            "cr",
            "LUKS2",
            cmdline("luks.options=discard")
                + "\nfile run/systemd/generator.late/systemd-cryptsetup@cr.service ExecStart=x /dev/gpt-auto-root-luks",
            unheard,
            &[gpt_auto],
        ),
        (
            "/home",
            "home",
            "LUKS2",
            cmdline("root=/dev/sda1 luks.options=discard"),
            unheard,
            &[gpt_auto, lasting],
        ),
        (
            "/data",
            "home",
            "LUKS2",
            cmdline("luks.options=discard"),
            unheard,
            &["!gpt-auto", "counts only for volumes that"],
        ),
        // The volume is named, so systemd-cryptsetup-generator reads the option.
        (
            "/",
            "root",
            "LUKS2",
            cmdline(&format!("rd.luks.options={DASHED}=discard")),
            asked,
            &["though", lasting],
        ),
        (
            "/",
            "root",
            "LUKS2",
            cmdline(&format!("rd.luks.name={DASHED}=root luks.options=discard")),
            asked,
            &[lasting],
        ),
        (
            "/",
            "cr",
            "LUKS2",
            cmdline("root=/dev/mapper/cr rd.luks.options=discard"),
            unheard,
            &["counts only for volumes that luks.uuid= or luks.name= names", lasting],
        ),
        (
            "/",
            "cr",
            "LUKS2",
            cmdline(&format!("rd.luks.uuid={DASHED} luks.options=discard"))
                + "\nfile etc/crypttab cr UUID=1 none luks",
            unheard,
            &["does not count for volumes that /etc/crypttab lists"],
        ),
        // systemd in the initramfs of dracut.
        (
            "/",
            "luks-1111",
            "LUKS1",
            cmdline("root=/dev/mapper/luks-1111 rd.luks.uuid=luks-1111 rd.luks.allow-discards rhgb"),
            unheard,
            &[
                "systemd in the initramfs does not read rd.luks.allow-discards",
                &format!("rd.luks.options={DASHED}=discard on the kernel's command line"),
                "!--persistent",
                "# cryptsetup refresh --allow-discards luks-1111",
            ],
        ),
        // mkinitcpio, by its hooks; other files are no matter.
        (
            "/",
            "cr",
            "LUKS1",
            cmdline("cryptdevice=/dev/sda2:cr:allow-discards")
                + "\nfile etc/mkinitcpio.conf HOOKS=(base sd-encrypt)",
            unheard,
            &["systemd does not read cryptdevice="],
        ),
        (
            "/",
            "cr",
            "LUKS1",
            cmdline("cryptdevice=/dev/sda2:cr:allow-discards")
                + "\nfile etc/mkinitcpio.conf HOOKS=(base encrypt)",
            asked,
            &["though the kernel's command line asks"],
        ),
        (
            "/",
            "cr",
            "LUKS1",
            "file etc/crypttab cr UUID=1 none discard\nfile etc/mkinitcpio.conf HOOKS=(base encrypt)"
                .to_owned(),
            unheard,
            &["the hook `encrypt` of mkinitcpio does not apply it", ":cr:allow-discards on the kernel's"],
        ),
        (
            "/",
            "cr",
            "LUKS1",
            cmdline("cryptdevice=/dev/sda2:cr:allow-discards")
                + "\nfile etc/mkinitcpio.conf HOOKS=\"base ykfde\"",
            unheard,
            &[
                "ykfde (which opens it by itself) does not read cryptdevice=",
                "YKFDE_LUKS_OPTIONS=--allow-discards",
            ],
        ),
        (
            "/",
            "cr",
            "LUKS1",
            cmdline(&format!("rd.luks.options={DASHED}=discard")) + "\nfile etc/initramfs-tools/x",
            unheard,
            &["initramfs-tools does not read luks.options=", "update-initramfs -u"],
        ),
        // udisks, by its own state and by where it mounts.
        (
            "/run/media/u/OS",
            "bitlk-12d663c1",
            "BITLK",
            "file etc/crypttab bitlk-12d663c1 PARTUUID=9 none discard".to_owned(),
            unheard,
            &[
                "udisks (which opened it) does not apply it",
                "cryptsetup open --type bitlk --allow-discards",
                "!initramfs",
            ],
        ),
        (
            "/data",
            "luks-x",
            "LUKS2",
            format!(
                "file etc/crypttab luks-x UUID={DASHED} none discard\nfile run/udisks2/unlocked-crypto-dev CRYPT-LUKS2-{UUID}-luks-x"
            ),
            unheard,
            &["udisks (which opened it)", lasting],
        ),
        (
            "/data",
            "x",
            "LUKS2",
            "file run/udisks2/unlocked-crypto-dev CRYPT-LUKS2-0-y".to_owned(),
            off,
            &[lasting],
        ),
        // Not opened in the initramfs.
        (
            "/data",
            "x",
            "LUKS1",
            cmdline(&format!("rd.luks.options={DASHED}=discard")),
            unheard,
            &[
                "rd.luks.options= counts only for volumes that the initramfs opens",
                "by `discard` in its line in /etc/crypttab",
            ],
        ),
        ("/data", "x", "LUKS1", cmdline("rd.luks.options=1-2=discard"), off, &[]),
        ("/data", "x", "LUKS1", cmdline("rd.luks.options=discard"), off, &[]),
        (
            "/data",
            "x",
            "LUKS1",
            format!(
                "file etc/crypttab x UUID={DASHED} none discard\nfile etc/mkinitcpio.conf HOOKS=(encrypt)"
            ),
            asked,
            &["!looked at", "!/boot"],
        ),
        // crypttab may name the volume by its UUID alone.
        (
            "/data",
            "x",
            "LUKS1",
            format!("file etc/crypttab y UUID={DASHED} none discard"),
            asked,
            &["though /etc/crypttab"],
        ),
    ] {
        judge(&[(&crypt(at, name, format, &rest), code, Some(false), words)]);
    }
    let open = crypt("/", "c", "LUKS2", "").replace("254:9 0", &format!("254:9 {GIB}"));
    let shows =
        ["note dm-9: it passes TRIM on: the drive shows which blocks are free, though not their contents"];
    judge(&[(&open, "layer.crypt.passes-trim", Some(true), &shows)]);
}

#[test]
fn the_header_and_the_initramfs_are_looked_at() {
    let host = |rest: &str| {
        built(&format!(
            "timer\nmount 22 1 254:9 / / rw - xfs /dev/mapper/c rw\ndisk {SDA} 8:0 {GIB}\non dm-9 254:9 0 {SDA}\n\
             dm dm-9 c CRYPT-LUKS2-12-c\nfile proc/cmdline root=/dev/mapper/c\n{rest}"
        ))
    };
    let write = |host: &Host, path: &str, bytes: &[u8]| {
        host.file(path, "");
        fs::write(host.0.path().join(path), bytes).unwrap();
    };
    for (flags, code, commands) in [
        (
            "\"flags\":[\"allow-discards\"]",
            "!layer.crypt.opened-before-option",
            "# cryptsetup refresh --allow-discards c\n",
        ),
        ("\"flags\":[]", "!layer.luks.discards-off", "--allow-discards --persistent c\n"),
        ("", "!layer.luks.discards-off", "--allow-discards --persistent c\n"),
    ] {
        let host = host("");
        write(&host, "dev/sda", &header(flags));
        expect(&host.examine(), code, &[commands]);
    }
    // A header that is cut off, or no header.
    for bytes in [&header("")[..4096], b"LUKS\xba\xbe\x00\x02", &[0; 8192]] {
        let host = host("");
        write(&host, "dev/sda", bytes);
        expect(&host.examine(), "!layer.luks.discards-off", &["--persistent c"]);
    }

    let with = cpio("cryptroot/crypttab", "c UUID=12 none luks,discard\n");
    let without = cpio("etc/crypttab", "c UUID=12 none luks\n");
    let early = cpio("kernel/x86/microcode/x.bin", "code");
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let initrd = "/boot/initrd.img-6.12.43";
    let has = format!("{initrd} has it too");
    let older = format!("{initrd} has an older copy, without it");
    for (bytes, word) in [
        (with.clone(), has.clone()),
        (without.clone(), older.clone()),
        ([early.clone(), gzip(&without)].concat(), older.clone()),
        ([early.clone(), zstd(&with)].concat(), has),
        (early.clone(), format!("{initrd} does not list it")),
        (
            [early, b"\xfd7zXZ".to_vec()].concat(),
            "not looked at: /boot/initrd.img-6.12.43: its compression".to_owned(),
        ),
        (with[..200].to_vec(), "was not looked at".to_owned()),
    ] {
        let host = host("file etc/crypttab c UUID=12 none luks,discard");
        write(&host, &initrd[1..], &bytes);
        expect(&host.examine(), "!layer.crypt.opened-before-option", &[&word, "rebuild the initramfs"]);
    }
    let host = host("file etc/crypttab c UUID=12 none luks,discard");
    expect(&host.examine(), "!layer.crypt.opened-before-option", &["not looked at: none was found in /boot"]);
}

#[test]
fn a_kernel_that_harms_or_barely_trims_is_named() {
    let raid = |level: &str, kernel: &str, rest: &str| {
        format!(
            "timer\nmount 22 1 9:0 / /srv rw - xfs /dev/md0 rw\nfile etc/fstab /dev/md0 /srv xfs defaults 0 0\n\
             disk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\non md0 9:0 {GIB} {SDA} {SDB}\n\
             file sys/devices/virtual/block/md0/md/level {level}\nfile proc/sys/kernel/osrelease {kernel}\n{rest}"
        )
    };
    let (loses, crashes) = ("kernel.discard.loses-data", "kernel.discard.crashes");
    let original = format!(
        "file sys/devices/virtual/block/md0/md/layout 1\nfile sys/devices/{SDA}/size 100\nfile sys/devices/{SDB}/size 200"
    );
    let equal = original.replace("200", "100");
    let signed = "file proc/version_signature Ubuntu 5.15.0-1080.87-aws 5.15.181";
    let debian = |version: &str| {
        format!("file proc/version Linux version 6.1.0-34-amd64 #1 SMP Debian {version}-1 (2025)")
    };
    for (level, kernel, rest, code, is_known) in [
        ("raid10", "5.4.0-57-generic", "", loses, true),
        ("raid10", "5.4.0-58-generic", "", "", false),
        ("raid10", "5.4.0-56-generic", "", loses, false),
        ("raid10", "5.4.0-1057-aws", "", "", false),
        ("raid10", "5.10.0-rc7", "", loses, true),
        ("raid10", "5.10.0", "", "", false),
        ("raid1", "5.4.0-57-generic", "", "", false),
        ("raid10", "5.15.0-144-generic", "", crashes, true),
        ("raid10", "5.15.0-143-generic", "", "", false),
        ("raid10", "5.15.0-150-generic", "", crashes, false),
        ("raid10", "5.15.0-1080-aws", signed, crashes, false),
        ("raid10", "6.1.135", "", crashes, true),
        ("raid10", "6.1.138", "", "", false),
        ("raid10", "6.1.134", "", "", false),
        ("raid10", "6.1.0-34-amd64", &debian("6.1.135"), crashes, true),
        ("raid10", "6.1.0-37-amd64", &debian("6.1.140"), "", false),
        // Which patches it has is not said.
        ("raid10", "6.1.0-34-amd64", "", crashes, false),
        ("raid0", "4.0.4", "", loses, true),
        ("raid0", "4.0.5", "", "", false),
        ("raid0", "3.18.14", "", loses, false),
        ("raid0", "5.10.100", &original, loses, true),
        ("raid0", "5.10.100", &equal, "", false),
        ("raid0", "5.10.200", &original, "", false),
        ("raid0", "5.10.187", &original, loses, true),
        ("raid0", "5.10.188", &original, "", false),
        ("raid0", "6.1.40", &original, "", false),
        ("raid0", "6.4.4", &original, loses, true),
        ("raid0", "5.15.120", &original, loses, false),
        ("raid0", "4.18.0-553.el8.x86_64", &original, "", false),
    ] {
        let report = built(&raid(level, kernel, rest)).examine();
        let expected = format!("{}{code}", if is_known { "!" } else { "" });
        assert_eq!(codes(&report), expected, "{level} on {kernel}\n{}", said(&report));
        let words: &[&str] = match (code, is_known) {
            ("", _) => &[],
            (_, true) => &["do not trim it", "WRONG md0: Linux", "# systemctl disable --now fstrim.timer"],
            (_, false) => &["may be one that", "note md0", "mended in Linux"],
        };
        for word in words {
            assert!(said(&report).contains(word), "'{word}' for {level} on {kernel}\n{}", said(&report));
        }
    }
    let mapped = |kernel: &str| {
        format!(
            "mount 22 1 254:0 / /srv rw - xfs /dev/mapper/vg-a rw,discard\ndisk {SDA} 8:0 {GIB}\n\
             on dm-0 254:0 {GIB} {SDA}\ndm dm-0 vg-a LVM-a\nfile proc/sys/kernel/osrelease {kernel}"
        )
    };
    let undo = built(&mapped("5.1.4-arch1-1")).examine();
    assert_eq!(undo.file_systems[0].findings[0].commands, ["mount -o remount,nodiscard /srv"]);
    assert_eq!(undo.file_systems[0].findings[0].undo, ["mount -o remount,discard /srv"]);
    judge(&[
        (
            &mapped("5.1.4-arch1-1"),
            "!kernel.discard.loses-data",
            Some(true),
            &["beyond what the device mapper"],
        ),
        (&mapped("5.1.5"), "", Some(true), &[]),
        // Nothing is sent to a device that takes nothing.
        (
            &raid(
                "raid10",
                "5.4.0-57-generic",
                "file sys/devices/virtual/block/md0/queue/discard_max_bytes 0",
            ),
            "!layer.raid.older-than-disks",
            Some(false),
            &[],
        ),
        (
            &raid(
                "raid10",
                "5.4.0-48-generic",
                "file sys/devices/virtual/block/md0/queue/discard_max_bytes 524288\nfile sys/devices/virtual/block/md0/size 4294967296",
            ),
            "layer.limit.tiny",
            Some(true),
            &[
                "note md0: it takes discards of at most 512 KiB, and the devices below 1 GiB: to trim it all takes 4,194,304 commands instead of 2,048",
                "from Linux 5.13 on",
            ],
        ),
        (
            &raid(
                "raid1",
                "6.12.1",
                &format!("file sys/devices/virtual/block/md0/queue/discard_max_bytes {}", 16 << 20),
            ),
            "layer.limit.tiny",
            Some(true),
            &[
                "each TiB takes 65,536 commands instead of 1,024",
                "raise /sys/block/md0/queue/discard_max_bytes",
            ],
        ),
        (
            &raid(
                "raid1",
                "6.12.1",
                &format!("file sys/devices/virtual/block/md0/queue/discard_max_bytes {}", 17 << 20),
            ),
            "",
            Some(true),
            &[],
        ),
    ]);
}
