//! Targets that may and may not be overwritten, on loop devices that the tests make. Needs root; otherwise the tests
//! report that they skip.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use trimwise_linux::consent::{ConsentError, check};
use trimwise_linux::raw_device::Target;
use trimwise_testing::in_time;
use trimwise_testing::loops::{Loop, can_run, sh};

fn device(path: &Path) -> Target {
    Target::Device(path.to_owned())
}

#[track_caller]
fn refused(target: &Target, word: Option<&str>) -> String {
    check(target, word).unwrap_err().to_string()
}

#[test]
fn a_mounted_device_is_refused_in_any_case() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::ext4(32 << 20);
    let node = disk.node();
    let shown = node.display();
    for word in [None, node.to_str()] {
        let point = disk.point.display();
        let expected =
            format!("{shown}: is mounted on {point}: trimwise does not write to it while it is in use");
        assert_eq!(refused(&device(&node), word), expected);
    }
    disk.unmount();
    // Something else of the host may look at it at any time.
    let unless_busy = |word| {
        in_time(|| match refused(&device(&node), word) {
            busy if busy.contains("is busy") => Err(busy),
            said => Ok(said),
        })
    };
    let expected = format!(
        "{shown}: holds an ext2, ext3 or ext4 file system, all of which would be lost; if that is what you want, \
         repeat \
         its path: --destroy {shown}"
    );
    assert_eq!(unless_busy(None), expected);
    let other = unless_busy(Some("/dev/sdx"));
    assert!(other.contains("lost; '/dev/sdx' is neither its path nor its serial number; if that"), "{other}");
    in_time(|| check(&device(&node), node.to_str()));
}

#[test]
fn a_disk_whose_partition_is_mounted_is_refused_and_so_is_the_partition() {
    if !can_run(&["mkfs.ext4", "addpart", "delpart"]) {
        return;
    }
    let mut disk = Loop::partition(32 << 20, 2048, &["mkfs.ext4", "-q", "-F"]);
    let (whole, part) = (disk.disk_node(), disk.node());
    let point = disk.point.display().to_string();
    assert_eq!(
        refused(&device(&whole), whole.to_str()),
        format!(
            "{}: {} is mounted on {point}: trimwise does not write to it while it is in use",
            whole.display(),
            part.display()
        )
    );
    assert!(refused(&device(&part), part.to_str()).contains(&format!(": is mounted on {point}: ")));
    disk.unmount();
    // The file system does not start at the beginning of the disk, but the data are found.
    let held = refused(&device(&whole), None);
    assert!(held.contains("holds data of an unknown kind (first seen at byte "), "{held}");
    in_time(|| check(&device(&whole), whole.to_str()));
    in_time(|| check(&device(&part), part.to_str()));
}

#[test]
fn swap_space_is_refused_as_a_device_and_as_a_file() {
    if !can_run(&["mkswap", "swapon", "swapoff"]) {
        return;
    }
    let disk = Loop::blank(16 << 20);
    let node = disk.node();
    sh("mkswap", &[node.to_str().unwrap()]);
    assert!(refused(&device(&node), None).contains("holds swap space"));
    sh("swapon", &[node.to_str().unwrap()]);
    let said = check(&device(&node), node.to_str());
    sh("swapoff", &[node.to_str().unwrap()]);
    let said = said.unwrap_err().to_string();
    assert!(said.contains(": is swap space: trimwise does not write to it"), "{said}");
}

#[test]
fn only_an_empty_device_needs_no_confirmation() {
    if !can_run(&[]) {
        return;
    }
    let disk = Loop::blank(64 << 20);
    in_time(|| check(&device(&disk.node()), None));
    let file = std::fs::File::options().write(true).open(disk.node()).unwrap();
    file.write_all_at(&[1], (64 << 20) - 700).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let held = refused(&device(&disk.node()), None);
    assert!(held.contains("holds data of an unknown kind (first seen at byte 67104768)"), "{held}");
}

#[test]
fn the_file_below_a_loop_device_is_in_use() {
    if !can_run(&[]) {
        return;
    }
    let disk = Loop::blank(16 << 20);
    let image = Target::File(disk.image.clone());
    let said = refused(&image, disk.image.to_str());
    assert!(
        said.contains(&format!(": is the backing store of {}: trimwise does not", disk.node().display())),
        "{said}"
    );
}

#[test]
fn a_read_only_device_is_refused() {
    if !can_run(&["blockdev"]) {
        return;
    }
    let disk = Loop::blank(16 << 20);
    let node = disk.node();
    sh("blockdev", &["--setro", node.to_str().unwrap()]);
    let said = check(&device(&node), None);
    sh("blockdev", &["--setrw", node.to_str().unwrap()]);
    assert!(matches!(said, Err(ConsentError::ReadOnly { .. })), "{said:?}");
}

#[test]
fn a_btrfs_of_two_devices_is_in_use_on_both() {
    if !can_run(&["mkfs.btrfs"]) {
        return;
    }
    let second = Loop::blank(256 << 20);
    let mut first = Loop::blank(256 << 20);
    let (a, b) = (first.node(), second.node());
    sh("mkfs.btrfs", &["-q", "-f", a.to_str().unwrap(), b.to_str().unwrap()]);
    first.mount();
    assert!(refused(&device(&a), a.to_str()).contains("does not write to it while it is in use"));
    let said = refused(&device(&b), b.to_str());
    assert!(said.contains("belongs to the mounted btrfs "), "{said}");
    first.unmount();
    assert!(refused(&device(&b), None).contains("holds a btrfs file system"));
}

#[test]
fn errors_name_what_is_not_a_file_or_device() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = Target::File(path.clone());
    in_time(|| check(&file, None));
    std::os::unix::fs::symlink("/nowhere/at/all", &path).unwrap();
    assert!(refused(&file, None).contains("is a dangling symbolic link; expected a file"));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    in_time(|| check(&file, None));
    let shown = path.display();
    let expected =
        format!("{shown}: is a regular file; expected a block device; write file:{shown} for the file");
    assert_eq!(refused(&device(&path), None), expected);
    assert!(refused(&Target::File(directory.path().to_owned()), None).contains("is not a regular file"));
    assert!(
        refused(&device(Path::new("/dev/null")), None)
            .contains("is not a block device; expected a block device")
    );
    assert!(refused(&device(Path::new("/dev/nosuch")), None).starts_with("/dev/nosuch: No such file"));
    // The same file under another name.
    std::fs::write(&path, "x").unwrap();
    let word = directory.path().join("./file");
    assert!(check(&Target::File(word), path.canonicalize().unwrap().to_str()).is_ok());
}
