//! What discards are for where the drive is not the file system's own: space of pools and images, and memory.

use trimwise_linux::mount::mounts;

use super::*;
use trimwise_linux::block_device::SysBlock;
use trimwise_linux::doctor::{Gauge, Loan, Share, loan};

/// An ext4 with these mount options on a thin volume, in a pool on `disk`.
fn thin(options: &str, disk: &str) -> String {
    let block = |name: &str| format!("virtual/block/{name}");
    format!(
        "mount 22 1 254:4 / /data rw - ext4 /dev/mapper/vg-thin rw{options}\ndisk {disk} 8:0 {GIB}\n\
         file run/systemd/system/x x\nfile etc/fstab /dev/mapper/vg-thin /data ext4 defaults 0 2\n\
         on dm-0 254:0 {GIB} {disk}\ndm dm-0 vg-pool_tmeta LVM-1\non dm-1 254:1 {GIB} {disk}\ndm dm-1 vg-pool_tdata LVM-2\n\
         on dm-2 254:2 {GIB} {} {}\ndm dm-2 vg-pool-tpool LVM-3-tpool\non dm-4 254:4 {GIB} {}\ndm dm-4 vg-thin LVM-4\n\
         file sys/devices/virtual/block/dm-4/queue/discard_granularity 262144",
        block("dm-0"),
        block("dm-1"),
        block("dm-2")
    )
}

/// An ext4 with these mount options on a disk.
fn on(disk: &str, options: &str) -> String {
    let name = disk.rsplit('/').next().unwrap();
    format!("mount 22 1 8:0 / /data rw - ext4 /dev/{name} rw{options}\ndisk {disk} 8:0 {GIB}")
}

#[test]
fn where_only_space_counts_it_is_to_be_trimmed() {
    let image = "mount 22 1 7:0 / /data rw - ext4 /dev/loop0 rw\nmount 23 1 8:0 / / rw,noatime - xfs /dev/sda rw,discard\n\
                 disk virtual/block/loop0 7:0 4096\nfile sys/devices/virtual/block/loop0/loop/backing_file /srv/disk.img";
    let image = format!("{image}\ndisk {SDA} 8:0 {GIB}\nfile srv/disk.img x");
    let in_memory = format!("{image}\nmount 24 1 0:9 / /srv rw - tmpfs none rw");
    const ZRAM: &str = "virtual/block/zram0";
    let zram = on(ZRAM, "");
    const ISCSI: &str = "platform/host3/session1/target3:0:0/3:0:0:0/block/sdd";
    judge(&[
        (
            &thin("", SDA),
            "!space.trim.nothing-comes-back",
            Some(true),
            &[
                "WRONG /data: nothing gives back the space in thin pool vg-pool-tpool",
                "# fstrim --verbose /data\n  # systemctl enable --now fstrim.timer\n",
            ],
        ),
        // Nothing stops all of a host's volumes when an image grows.
        (
            &image,
            "layer.loop.punches-holes space.trim.nothing-comes-back",
            Some(true),
            &["note /data: nothing gives back the space on /, for /srv/disk.img", "!systemctl enable"],
        ),
        (
            &in_memory,
            "layer.loop.punches-holes space.trim.nothing-comes-back",
            Some(true),
            &["nothing gives back the memory that /srv/disk.img takes up"],
        ),
        (
            &zram,
            "space.trim.nothing-comes-back",
            Some(true),
            &["nothing gives back the memory that zram0 takes up", "# mount -o remount,discard /data\n"],
        ),
        (
            &on(ISCSI, ""),
            "space.trim.nothing-comes-back",
            Some(true),
            &["space on the other end of sdd (iSCSI)", "how much cannot be seen from here"],
        ),
        // A timer that leaves it out has its own remedy.
        (
            &format!(
                "{}\ntimer",
                thin("", SDA).replace("etc/fstab /dev/mapper/vg-thin /data", "etc/fstab /dev/sdz /other")
            ),
            "!mount.fstab.missing !space.trim.nothing-comes-back",
            Some(true),
            &["WRONG /data: nothing gives back the space", "!# fstrim --verbose"],
        ),
        (
            &thin("", SDA).replace(" - ext4 /dev/mapper/vg-thin rw", " - ext4 /dev/mapper/vg-thin ro"),
            "mount.options.read-only",
            Some(true),
            &[],
        ),
        // fstrim itself is refused.
        (
            &on(VIRTIO_SCSI, "").replace("ext4", "ntfs3"),
            "disk.virtual.host-unknown !fs.ntfs3.needs-discard",
            Some(false),
            &[],
        ),
        // A drive of its own is another matter: the flash alone decides.
        (&on(SDA, ""), "mount.trim.nothing", Some(true), &[]),
        // What is trimmed gives its space back.
        (&format!("{}\nscript etc/cron.weekly/fstrim", thin("", SDA)), "", Some(true), &[]),
    ]);
}

#[test]
fn each_layer_has_its_purposes() {
    let purposes = |lines: &str| -> Vec<(Aim, Option<Lender>, Option<bool>, String)> {
        let mut report = built(lines).examine();
        let all = report.file_systems.remove(0).purposes;
        all.into_iter().map(|one| (one.aim, one.lender, one.is_reached, one.whose)).collect()
    };
    let flash = |is_reached| (Aim::Flash, None, is_reached, "sda".to_owned());
    let pool =
        |is_reached| (Aim::Space, Some(Lender::Pool), is_reached, "in thin pool vg-pool-tpool".to_owned());
    let outside = |whose: &str| vec![(Aim::Space, Some(Lender::Outside), Some(true), whose.to_owned())];
    assert_eq!(purposes(&thin("", SDA)), [pool(Some(true)), flash(Some(true))]);
    // The pool gets its space back, and passes nothing on.
    let kept = thin("", SDA).replace(&format!("on dm-2 254:2 {GIB}"), "on dm-2 254:2 0");
    assert_eq!(purposes(&kept), [pool(Some(true)), flash(Some(false))]);
    let ignored = kept.replace(&format!("on dm-4 254:4 {GIB}"), "on dm-4 254:4 0");
    assert_eq!(purposes(&ignored), [pool(Some(false)), flash(Some(false))]);
    assert_eq!(purposes(&on(VIRTIO_SCSI, "")), outside("on the host outside, for sdd"));
    assert_eq!(purposes(&on("virtual/block/rbd0", "")), outside("in the Ceph pool of rbd0"));
    let rotating = |disk: &str| format!("{}\nfile sys/devices/{disk}/queue/rotational 1", on(disk, ""));
    let lun = "pci0000:00/host2/target2:0:0/2:0:0:0/block/sdc";
    assert_eq!(purposes(&rotating(lun)), outside("in the LUN sdc"));
    assert_eq!(purposes(&rotating(SDA)), [(Aim::Shingles, None, Some(true), "sda".to_owned())]);
    let without_trim = rotating(SDA).replace(&format!("8:0 {GIB}"), "8:0 0");
    assert_eq!(purposes(&without_trim), [], "a hard disk without TRIM gains nothing");
}

/// What the daemon watches.
#[test]
fn who_lends_is_found_in_sysfs_alone() {
    let found = |lines: &str, device: &str| {
        let host = built(lines);
        let root = HostRoot::new(host.0.path());
        let mounts = mounts(&root).unwrap();
        let devices = [SysBlock::named(&root, device).unwrap()];
        loan(&root, &mounts, &mounts[0], &devices)
    };
    let pool = |is_of_pool| {
        Some(Loan {
            name: "thin pool vg-pool-tpool".to_owned(),
            is_of_pool,
            gauge: Some(Gauge::ThinPool("vg-pool-tpool".to_owned())),
            share: Some(Share::ThinVolume("vg-thin".to_owned())),
        })
    };
    assert_eq!(found(&thin("", SDA), "dm-4"), pool(true));
    let ignored = thin("", SDA).replace(&format!("on dm-4 254:4 {GIB}"), "on dm-4 254:4 0");
    assert_eq!(found(&ignored, "dm-4"), pool(false), "no discard arrives");
    let image = "mount 22 1 7:0 / /data rw - ext4 /dev/loop0 rw\nmount 23 1 8:0 / / rw - xfs /dev/sda rw\n\
                 disk virtual/block/loop0 7:0 4096\nfile sys/devices/virtual/block/loop0/loop/backing_file /srv/disk.img";
    let of_image = found(image, "loop0").unwrap();
    assert_eq!((of_image.name.as_str(), of_image.is_of_pool), ("the file system on /", false));
    assert_eq!(of_image.gauge, Some(Gauge::Mount("/".into())));
    let outside = found(&on(VIRTIO_SCSI, ""), "sdd").unwrap();
    assert_eq!((outside.name.as_str(), outside.is_of_pool), ("the host outside, for sdd", false));
    assert_eq!((outside.gauge, outside.share), (None, None));
    assert_eq!(found(&on(SDA, ""), "sda"), None);
}

#[test]
fn pieces_smaller_than_a_chunk_stay_with_discard_alone() {
    const CODE: &str = "fs.ext4.discards-too-much space.granularity.too-coarse";
    let timed = format!("{}\nscript etc/cron.weekly/fstrim", thin(",discard", SDA));
    let fine = thin(",discard", SDA).replace("discard_granularity 262144", "discard_granularity 4096");
    const OLD: &str = "file proc/sys/kernel/osrelease 5.10.0";
    let words = &[
        "note dm-4: only whole, aligned pieces of 256 KiB come back",
        "# systemctl enable --now fstrim.timer\n",
    ];
    // Below a layer with smaller granules.
    let below = thin(",discard", SDA)
        .replace("dm-4/queue", "dm-2/queue")
        .replace("granularity 262144", "granularity 1048576");
    judge(&[
        (&thin(",discard", SDA), CODE, Some(true), words),
        (&below, CODE, Some(true), &["note dm-2: only whole, aligned pieces of 1 MiB come back"]),
        // There fstrim skips what it trimmed once, and the timer alone does not help.
        (
            &format!("{}\n{OLD}", thin(",discard", SDA)),
            "space.granularity.too-coarse",
            Some(true),
            &["# mount -o remount,nodiscard /data\n  # systemctl enable --now fstrim.timer\n"],
        ),
        (
            &format!("{timed}\n{OLD}"),
            "mount.discard.and-timer space.granularity.too-coarse",
            Some(true),
            &["# mount -o remount,nodiscard /data\n", "!systemctl enable"],
        ),
        // Stable kernels that have the change of 6.12.
        (
            &format!("{timed}\n{}", OLD.replace("5.10.0", "5.10.227")),
            "mount.discard.and-timer",
            Some(true),
            &[],
        ),
        (
            &format!("{timed}\n{}", OLD.replace("5.10.0", "6.1.112")),
            "mount.discard.and-timer fs.ext4.discards-too-much space.granularity.too-coarse",
            Some(true),
            &["# mount -o remount,nodiscard /data\n"],
        ),
        (
            &thin(",discard", SDA).replace("ext4", "xfs"),
            "space.granularity.too-coarse",
            Some(true),
            &["!nodiscard"],
        ),
        (&timed, "mount.discard.and-timer fs.ext4.discards-too-much", Some(true), &[]),
        (&fine, "fs.ext4.discards-too-much", Some(true), &[]),
    ]);
}

#[test]
fn btrfs_has_two_kinds_of_discard() {
    let btrfs = |options: &str| on(SDA, options).replace("ext4", "btrfs");
    let words = &["each commit waits", "# mount -o remount,discard=async /data\n"];
    judge(&[
        (&btrfs(",discard"), "fs.btrfs.discard-sync", Some(true), words),
        (&btrfs(",discard=async"), "", Some(true), &[]),
        (&btrfs(""), "mount.trim.nothing", Some(true), &[]),
    ]);
    // Of file systems that discard in the call itself, no policy is known.
    for (fs_type, sends) in [
        ("ext4", Some(Sends::InCommit)),
        ("btrfs", Some(Sends::InCommit)),
        ("xfs", Some(Sends::Background)),
        ("f2fs", Some(Sends::Background)),
        ("exfat", Some(Sends::InCall)),
        ("vfat", Some(Sends::InCall)),
    ] {
        let report = built(&on(SDA, ",discard").replace("ext4", fs_type)).examine();
        let today = &report.file_systems[0].today;
        assert_eq!(today.sends(fs_type), sends, "{fs_type}");
        assert_eq!(today.policy(fs_type).is_none(), sends == Some(Sends::InCall), "{fs_type}");
    }
}

/// trimwised leaves such a file system alone, and `trim` refuses it.
#[test]
fn a_stack_that_a_kernel_destroys_is_not_trimmed() {
    let why = |kernel: &str, level: &str| {
        let host = built(&format!(
            "mount 22 1 9:0 / /srv rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 {GIB}\non md0 9:0 {GIB} {SDA}\n\
             file sys/devices/virtual/block/md0/md/level {level}\nfile proc/sys/kernel/osrelease {kernel}"
        ));
        let root = HostRoot::new(host.0.path());
        let mounts = mounts(&root).unwrap();
        why_not_on_this_kernel(&root, &mounts, &mounts[0])
    };
    let told = why("5.4.0-57-generic", "raid10").unwrap();
    assert!(
        told.starts_with("Linux 5.4.0-57-generic discards data that are still in use on RAID 10"),
        "{told}"
    );
    for (kernel, level) in [
        ("5.4.0-58-generic", "raid10"),
        ("5.4.0-57-generic", "raid1"),
        ("5.4.0-56-generic", "raid10"), // it may have the fault, which is no reason to stop what runs
        ("6.12.43", "raid10"),
    ] {
        assert_eq!(why(kernel, level), None, "{kernel}, {level}");
    }
}
