//! Tests of TRIM below real file systems on loop devices, which promise zeros. Needs root; otherwise the tests report
//! that they skip.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use trimwise::units::Bytes;
use trimwise_linux::mounted_verify::{Counts, Report, Verdict, VerifyError, ignored_up_to, run};
use trimwise_testing::loops::{Loop, can_run, sh};

const MIB: u64 = 1 << 20;
const BYTES: Bytes = Bytes::mib(8);
const UNITS: u64 = 8 * 256;

fn verified(path: &Path) -> Result<Report, VerifyError> {
    let found = run(path, BYTES, &AtomicBool::new(false));
    assert!(!path.join("trimwise-verify.tmp").exists());
    found
}

#[track_caller]
fn arrives(disk: &Loop) -> Report {
    let report = verified(&disk.point).unwrap();
    assert_eq!(report.verdict(), Verdict::Arrives, "{report:?}");
    let counts = report.after_trim();
    assert_eq!(counts.old_data + counts.zeros + counts.other, UNITS);
    assert!(counts.zeros > UNITS * 9 / 10, "{counts:?}");
    assert!(report.counted().unwrap().bytes >= Bytes::from_units(counts.zeros), "{report:?}");
    report
}

#[test]
fn it_reaches_the_disk_below_ext4_and_nothing_else_is_touched() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(100 * MIB);
    disk.fill(["kept".to_string()], 1 << 20);
    let kept = std::fs::read(disk.point.join("kept")).unwrap();
    let report = arrives(&disk);
    assert_eq!(
        report.after_delete(),
        Counts { old_data: UNITS, ..Counts::default() },
        "nothing before FITRIM"
    );
    assert_eq!((report.fs_type.as_str(), report.disks.len(), report.trims), ("ext4", 1, 1));
    assert!(std::fs::read(disk.point.join("kept")).unwrap() == kept);
    // As many sizes of pieces as fit into the file, and a loop device frees all of them.
    let sizes: Vec<_> = report.pieces.iter().map(|one| (one.bytes.0 >> 10, one.judged == one.gone)).collect();
    assert_eq!(sizes, [(16, true), (64, true), (256, true)], "{:?}", report.pieces);
    assert!(report.pieces.iter().all(|one| one.judged > 0), "{:?}", report.pieces);
    assert_eq!(ignored_up_to(&report.pieces), None);
    // Also below any directory, and repeatedly.
    std::fs::create_dir(disk.point.join("below")).unwrap();
    assert_eq!(verified(&disk.point.join("below")).unwrap().verdict(), Verdict::Arrives);
}

#[test]
fn it_reaches_the_disk_below_xfs() {
    if !can_run(&["mkfs.xfs"]) {
        return;
    }
    arrives(&Loop::xfs(400 * MIB));
}

#[test]
fn it_works_with_small_blocks_and_without_a_journal() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    arrives(&Loop::new(100 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "1024"]));
    arrives(&Loop::new(100 * MIB, &["mkfs.ext4", "-q", "-F", "-O", "^has_journal"]));
}

#[test]
fn blocks_of_a_partition_are_read_from_the_whole_disk() {
    if !can_run(&["mkfs.ext4", "addpart", "delpart"]) {
        return;
    }
    // A start need not be aligned to the granularity of 4 KiB.
    for start_sectors in [2048, 1000, 1003] {
        let disk = Loop::partition(100 * MIB, start_sectors, &["mkfs.ext4", "-q", "-F", "-b", "4096"]);
        let report = verified(&disk.point).unwrap();
        assert_eq!(report.disks[0].name, disk.disk_node().file_name().unwrap().to_str().unwrap());
        let offsets = report.blocks.iter().map(|block| (block.offset / 512) % 8);
        assert!(offsets.into_iter().all(|offset| offset == u64::from(start_sectors) % 8));
        assert_eq!(
            report.verdict(),
            Verdict::Arrives,
            "from sector {start_sectors}: {:?}",
            report.after_trim()
        );
    }
}

#[test]
fn the_mounts_own_discards_are_seen_before_fitrim() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(100 * MIB);
    sh("mount", &["-o", "remount,discard", disk.point.to_str().unwrap()]);
    assert_eq!(verified(&disk.point).unwrap().verdict(), Verdict::Arrives);
}

#[test]
fn unsuitable_file_systems_are_refused_with_a_reason_and_nothing_is_left() {
    if !can_run(&["mkfs.btrfs", "mkfs.ext4"]) {
        return;
    }
    let btrfs = Loop::new(256 * MIB, &["mkfs.btrfs", "-q"]);
    let said = verified(&btrfs.point).unwrap_err().to_string();
    assert!(said.contains(": btrfs reports only logical addresses of a file's blocks (FIEMAP)"), "{said}");
    assert_eq!(std::fs::read_dir(&btrfs.point).unwrap().count(), 0);

    let none = Loop::without_discards();
    let said = verified(&none.point).unwrap_err().to_string();
    assert!(said.contains("does not accept discards"), "{said}");

    let small = Loop::ext4(16 * MIB);
    let said = verified(&small.point).unwrap_err().to_string();
    assert!(said.contains("the test writes 8 MiB and must leave as much free, but only "), "{said}");

    let memory = verified(Path::new("/dev/shm")).unwrap_err().to_string();
    assert!(memory.contains("tmpfs is not on a block device, so there is nothing to trim"), "{memory}");
    assert!(verified(Path::new("/no/such/place")).unwrap_err().to_string().starts_with("/no/such/place: "));
}

#[test]
fn data_that_go_through_the_journal_are_not_judged() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(200 * MIB);
    disk.unmount();
    sh("mount", &["-o", "data=journal", disk.node().to_str().unwrap(), disk.point.to_str().unwrap()]);
    // Whether they have reached their places already is up to the journal.
    match verified(&disk.point) {
        Ok(report) => assert_eq!(report.verdict(), Verdict::Arrives),
        Err(error) => assert!(matches!(error, VerifyError::NotThere { .. }), "{error}"),
    }
    sh("umount", &[disk.point.to_str().unwrap()]);
}

#[test]
fn an_interrupted_test_removes_its_file() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(100 * MIB);
    let said = run(&disk.point, BYTES, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(said, VerifyError::Interrupted), "{said}");
    assert!(!disk.point.join("trimwise-verify.tmp").exists());
    std::fs::write(disk.point.join("trimwise-verify.tmp"), "mine").unwrap();
    let said = run(&disk.point, BYTES, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(said, VerifyError::Occupied { .. }), "{said}");
    assert_eq!(std::fs::read(disk.point.join("trimwise-verify.tmp")).unwrap(), b"mine");
}

/// A linear mapping that begins inside its disk, made with dmsetup. Behind a feature, since not every kernel has a
/// device mapper, CI's among them.
#[cfg(feature = "device-mapper-tests")]
#[test]
fn linear_mappings_are_followed_to_the_disk() {
    if !can_run(&["mkfs.ext4", "dmsetup"]) {
        return;
    }
    let disk = Loop::blank(100 * MIB);
    let name = format!("trimwise-test-{}", std::process::id());
    let table = format!("0 {} linear {} 4096", (90 * MIB) / 512, disk.node().display());
    sh("dmsetup", &["create", &name, "--table", &table]);
    let node = format!("/dev/mapper/{name}");
    sh("mkfs.ext4", &["-q", "-F", &node]);
    sh("mount", &[&node, disk.point.to_str().unwrap()]);
    let report = verified(&disk.point);
    sh("umount", &[disk.point.to_str().unwrap()]);
    sh("dmsetup", &["remove", "--retry", &name]);
    let report = report.unwrap();
    assert_eq!(report.verdict(), Verdict::Arrives);
    assert_eq!(report.disks[0].name, disk.node().file_name().unwrap().to_str().unwrap());
}
