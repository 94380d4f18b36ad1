//! What is using a block device or a file now.
//!
//! The kernel shows this in several places: mounts in `/proc/self/mountinfo` (and, for a btrfs on several devices, in
//! `/sys/fs/btrfs`), stacked devices (device mapper, MD, bcache) in `holders` of sysfs, swap in `/proc/swaps`, loop
//! devices in `loop/backing_file`. An exclusive open detects any other use.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::block_device::{BlockDevice, btrfs_directory};
use crate::mount::parse_mountinfo;
use rustix::fs::{major, minor};

/// The first use found of a disk or partition, worded to follow its path; `None` if there is none.
pub fn of_device(device: &BlockDevice) -> Option<String> {
    // A disk is in use if one of its partitions is, and a partition if its whole disk is.
    let mut looked_at = vec![device.clone()];
    looked_at.extend(device.partitions());
    looked_at.extend(device.disk());
    looked_at.iter().find_map(|one| {
        let whose = if one.name == device.name { String::new() } else { format!("/dev/{} ", one.name) };
        use_of(one).map(|how| format!("{whose}{how}"))
    })
}

fn use_of(device: &BlockDevice) -> Option<String> {
    if let Some(point) = mount_point(device) {
        return Some(format!("is mounted on {point}"));
    }
    if let Some(directory) = btrfs_directory(device) {
        let uuid = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Some(format!("belongs to the mounted btrfs {uuid}"));
    }
    let holder = fs::read_dir(device.sysfs.join("holders")).into_iter().flatten().flatten().next();
    if let Some(holder) = holder {
        return Some(format!("is part of /dev/{}", holder.file_name().to_string_lossy()));
    }
    let is_swap = swaps().into_iter().any(|path| block_numbers(&path) == Some(device.numbers));
    if is_swap {
        return Some("is swap space".to_string());
    }
    backed_loop(&device.node()).map(|name| format!("is the backing store of /dev/{name}"))
}

/// Where a device is mounted; also matches by the source name that the mount shows.
fn mount_point(device: &BlockDevice) -> Option<String> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let is_here = |numbers, source: &str| {
        numbers == device.numbers
            || (source.starts_with("/dev/") && block_numbers(Path::new(source)) == Some(device.numbers))
    };
    let mounts = parse_mountinfo(&text);
    let found = mounts.iter().find(|mount| is_here(mount.numbers, &mount.device))?;
    Some(found.mount_point.display().to_string())
}

/// The same for a regular file: swap space, or the backing file of a loop device.
pub(crate) fn of_file(path: &Path) -> Option<String> {
    let same = |other: &PathBuf| other.canonicalize().is_ok_and(|other| other == path);
    if swaps().iter().any(same) {
        return Some("is swap space".to_string());
    }
    backed_loop(path).map(|name| format!("is the backing store of /dev/{name}"))
}

/// The loop device backed by a file or device.
fn backed_loop(path: &Path) -> Option<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut backed = devices.filter(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == path)
    });
    backed.next().map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn swaps() -> Vec<PathBuf> {
    parse_swaps(&fs::read_to_string("/proc/swaps").unwrap_or_default())
}

/// The files and devices that `/proc/swaps` lists.
pub fn parse_swaps(text: &str) -> Vec<PathBuf> {
    let lines = text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    lines.filter(|path| path.starts_with('/')).map(|path| path.replace("\\040", " ").into()).collect()
}

/// Major and minor number of a block device node.
pub(crate) fn block_numbers(path: &Path) -> Option<(u32, u32)> {
    let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    Some((major(found.rdev()), minor(found.rdev())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_listed_after_a_header_line() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/sda2                               partition\t8388604\t\t0\t\t-2\n\
            /swap\\040file                            file\t\t8388604\t\t0\t\t-3\n\ngarbage x\n";
        assert_eq!(parse_swaps(text), [Path::new("/dev/sda2"), Path::new("/swap file")]);
        assert!(parse_swaps("").is_empty());
    }
}
