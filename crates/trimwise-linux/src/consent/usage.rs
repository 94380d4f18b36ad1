//! Finds current users of a block device or a file.
//!
//! The kernel shows this in several places: mounts in `/proc/self/mountinfo` (and, for a btrfs on several devices, in
//! `/sys/fs/btrfs`), stacked devices (device mapper, MD, bcache) in `holders` of sysfs, swap in `/proc/swaps`, loop
//! devices in `loop/backing_file`. An exclusive open detects any other use.

use std::fs;
use std::path::{Path, PathBuf};

use crate::block_device::{SysBlock, node_numbers};
use crate::host_root::HostRoot;
use crate::mount::{Mount, parse_mountinfo};

/// Returns the first use found of a disk or partition, worded to follow its path; `None` if there is none.
pub fn of_device(device: &SysBlock) -> Option<String> {
    // A disk is in use if one of its partitions is, and a partition if its whole disk is.
    let mut looked_at = vec![device.clone()];
    looked_at.extend(device.partitions());
    looked_at.extend(device.disk());
    looked_at.iter().find_map(|one| {
        let whose = if one == device { String::new() } else { format!("/dev/{} ", one.name()) };
        use_of(one).map(|how| format!("{whose}{how}"))
    })
}

fn use_of(device: &SysBlock) -> Option<String> {
    let numbers = device.numbers().ok();
    let is_it = |node: &Path| numbers.is_some() && node_numbers(node).ok() == numbers;
    // A mount also matches by the source name that it shows.
    let mounts = parse_mountinfo(&fs::read("/proc/self/mountinfo").unwrap_or_default());
    let is_here = |mount: &&Mount| {
        Some(mount.numbers) == numbers
            || (mount.device.starts_with("/dev/") && is_it(Path::new(&mount.device)))
    };
    if let Some(mount) = mounts.iter().find(is_here) {
        return Some(format!("is mounted on {}", mount.mount_point.display()));
    }
    if let Some(directory) = device.btrfs(&HostRoot::default()) {
        let uuid = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Some(format!("belongs to the mounted btrfs {uuid}"));
    }
    if let Some(holder) = device.holders().next() {
        return Some(format!("is part of /dev/{}", holder.name()));
    }
    if swaps().iter().any(|path| is_it(path)) {
        return Some("is swap space".to_string());
    }
    backed_loop(&device.node()).map(|name| format!("is the backing store of /dev/{name}"))
}

/// Returns the use of a regular file, worded to follow its path: swap space, or the backing file of a loop device.
pub(crate) fn of_file(path: &Path) -> Option<String> {
    let same = |other: &PathBuf| other.canonicalize().is_ok_and(|other| other == path);
    if swaps().iter().any(same) {
        return Some("is swap space".to_string());
    }
    backed_loop(path).map(|name| format!("is the backing store of /dev/{name}"))
}

fn backed_loop(path: &Path) -> Option<String> {
    let backed = SysBlock::all().find(|device| device.backing_file().is_some_and(|file| file == path))?;
    Some(backed.name())
}

fn swaps() -> Vec<PathBuf> {
    parse_swaps(&fs::read_to_string("/proc/swaps").unwrap_or_default())
}

/// Parses `/proc/swaps` and returns the files and devices that it lists.
pub fn parse_swaps(text: &str) -> Vec<PathBuf> {
    let lines = text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    lines.filter(|path| path.starts_with('/')).map(|path| path.replace("\\040", " ").into()).collect()
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
