//! Reports what the doctor cannot check, and how to find out: file systems that trim by themselves or are served by a
//! process, and swap.

use std::path::Path;

use super::Finding;
use super::graph::{Graph, Kind};
use crate::block_device::{SysBlock, devices_in_sysfs};
use crate::code::Code;
use crate::fstab;
use crate::host_root::HostRoot;
use crate::mount::{Mount, discard_in, nearest, text_of};
use crate::text::quoted;

/// File systems that never have anything to trim: they are read-only, or lie on raw flash.
const NOTHING_TO_TRIM: [&str; 7] = ["squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs", "jffs2"];

/// Reports a file system without FITRIM as unchecked; `None` if there is nothing to trim below it.
pub(super) fn of_file_system(root: &HostRoot, mount: &Mount) -> Option<Finding> {
    let fs_type = mount.fs_type.as_str();
    // A source need not be a device: /dev/root for 9p and virtiofs, /dev/fuse.
    let is_named = || mount.is_served() && mount.device.starts_with("/dev/") && mount.device != "/dev/fuse";
    let is_somewhere = mount.numbers.0 != 0 || fs_type == "bcachefs" || is_named();
    if !is_somewhere || NOTHING_TO_TRIM.contains(&fs_type) {
        return None;
    }
    let place = mount.mount_point.display().to_string();
    let on = format!("{fs_type} on {}", mount.device);
    Some(match fs_type {
        "bcachefs" => bcachefs(root, mount, place, &on),
        _ if mount.is_served() => Finding::new(
            Code::Served,
            place.clone(),
            format!("{on}: a process serves it (FUSE), and only that process knows whether it passes TRIM on; not checked"),
        )
        .mended_by(format!("try `fstrim --verbose {}`; ntfs-3g has supported it since 2015", quoted(&place))),
        _ => Finding::new(Code::UnknownFileSystem, place, format!("{on}: trimwise does not know whether {fs_type} has FITRIM; not checked")),
    })
}

/// Returns the pool of a ZFS file system; `None` for other types.
pub(super) fn pool_of(mount: &Mount) -> Option<&str> {
    (mount.fs_type == "zfs").then(|| mount.device.split('/').next()).flatten()
}

/// Reports a ZFS pool with these file systems as unchecked. There is one finding for each pool, since TRIM is set for
/// the pool and it may have very many file systems.
pub(super) fn of_pool(pool: &str, mounts: &[&Mount]) -> Finding {
    const SHOWN_MAX: usize = 3;
    let points = mounts.iter().take(SHOWN_MAX).map(|mount| mount.mount_point.display().to_string());
    let more = if mounts.len() > SHOWN_MAX { ", ..." } else { "" };
    let pool = quoted(pool);
    let place = if mounts.is_empty() {
        "nothing of it is mounted here".to_owned()
    } else {
        points.collect::<Vec<_>>().join(", ") + more
    };
    Finding::new(
        Code::Zfs,
        place,
        format!(
            "zfs, pool {pool}: ZFS has no FITRIM and trims by itself, by `autotrim` or `zpool trim`; neither was checked"
        ),
    )
    .mended_by("`zpool get autotrim` shows whether it trims, `zpool status -t` when it last did")
    .with_commands([format!("zpool get autotrim {pool}"), format!("zpool status -t {pool}")], [])
}

fn bcachefs(root: &HostRoot, mount: &Mount, place: String, on: &str) -> Finding {
    let devices = devices_in_sysfs(root, mount).unwrap_or_default();
    let told: Vec<String> = devices
        .iter()
        .map(|device| {
            let graph = Graph::of(root, &[], std::slice::from_ref(device));
            let accepts = match graph.passes() {
                Some(true) => "accepts TRIM",
                Some(false) => "accepts no TRIM",
                None => "may or may not accept TRIM",
            };
            let option = discard_of_bcachefs(root, device).map_or("", |is_on| {
                if is_on { ", and bcachefs discards on it" } else { ", and bcachefs does not discard on it" }
            });
            format!("{} {accepts}{option}", device.name())
        })
        .collect();
    let told = if told.is_empty() { "sysfs does not show its devices".to_owned() } else { told.join("; ") };
    Finding::new(
        Code::Bcachefs,
        place,
        format!("{on}: bcachefs has no FITRIM and discards freed space by itself; {told}. Whether it does was not checked"),
    )
    .mended_by("bcachefs shows for each device whether it discards on it")
    .with_commands(["grep -H . /sys/fs/bcachefs/*/dev-*/discard".to_owned()], [])
}

/// Reads from sysfs whether bcachefs discards on a device.
fn discard_of_bcachefs(root: &HostRoot, device: &SysBlock) -> Option<bool> {
    let folders = std::fs::read_dir(root.path("/sys/fs/bcachefs")).ok()?.flatten();
    let mut members =
        folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let of_it = members.find(|member| {
        member.path().join("block").canonicalize().is_ok_and(|block| block == device.path())
    })?;
    let value = std::fs::read_to_string(of_it.path().join("discard")).ok()?;
    Some(value.trim() == "1")
}

/// Reports for each swap area whether fstab asks for discards. `/proc/swaps` does not show it.
pub(super) fn of_swap(root: &HostRoot, mounts: &[Mount]) -> Vec<Finding> {
    let swaps = root.whole_text("/proc/swaps").unwrap_or_default();
    let lines: Vec<_> = fstab::parse(&root.whole_text("/etc/fstab").unwrap_or_default())
        .into_iter()
        .filter(|entry| entry.fs_type == "swap")
        .collect();
    let is_in_memory = |name: &str| name.rsplit('/').next().is_some_and(|name| name.starts_with("zram"));
    let names = || swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let on_disk = names().filter(|name| !is_in_memory(name)).count();
    let mut findings = Vec::new();
    for line in swaps.lines().skip(1) {
        let mut fields = line.split_whitespace();
        let (Some(name), kind) = (fields.next(), fields.next()) else { continue };
        let name = text_of(name.as_bytes());
        let device = match kind {
            Some("file") => nearest(mounts, Path::new(&name)).and_then(|at| device_of(root, &mounts[at])),
            _ => crate::block_device::of_node(root, &name).ok().flatten(),
        };
        let graph = Graph::of(root, mounts, device.as_slice());
        if is_in_memory(&name) {
            // `swap_slot_free_notify`, in Linux's mm/swapfile.c and drivers/block/zram/zram_drv.c.
            findings.push(Finding::new(
                Code::SwapInMemory,
                format!("swap on {name}"),
                "it lies in memory. Linux tells zram of each page that swap no longer needs, with discard or without, so its \
                 memory comes back; zram counts in debug_stat (`miss_free`) what it missed because it was busy",
            ));
            continue;
        }
        let is_file = kind == Some("file");
        let by = |entry: &&fstab::Entry| {
            entry.source == name || !is_file && is_same_device(root, &entry.source, device.as_ref())
        };
        // If there is one line and one area, they belong together, however the line names the device.
        let only = || lines.first().filter(|_| !is_file && lines.len() == 1 && on_disk == 1);
        let entry = lines.iter().find(by).or_else(only);
        let option = entry.and_then(|entry| discard_in(&entry.options));
        let place = format!("swap on {name}");
        let stop = graph.stops().first().map(|&stop| &graph.nodes[stop]);
        let finding = match (option, entry) {
            (Some(option), Some(entry)) if let (Some(false), Some(stop)) = (graph.passes(), stop) => {
                let what = format!(
                    "line {} of /etc/fstab says `{option}`, but {} accepts no TRIM, so swapon discards nothing",
                    entry.line, stop.name
                );
                let finding = Finding::new(Code::SwapNoTrim, place, what);
                match stop.kind {
                    Kind::Crypt(..) => finding.mended_by("add `discard` to its line in /etc/crypttab, too"),
                    _ => finding,
                }
            }
            _ if graph.passes() == Some(false) => continue,
            (Some(option), Some(entry)) => Finding::new(
                Code::SwapOn,
                place,
                format!(
                    "line {} of /etc/fstab says `{option}`, so swapon should discard it; /proc/swaps does not show whether it did",
                    entry.line
                ),
            ),
            _ => {
                let from = entry.map_or("no line of /etc/fstab says `discard`".to_owned(), |entry| {
                    format!("line {} of /etc/fstab has no `discard`", entry.line)
                });
                Finding::new(Code::SwapOff, place, format!("{from}, so swapon does not discard it: what lies below keeps everything that was ever swapped out, drive, pool or host"))
                    .mended_by(
                        "`discard=once` discards the whole area at each swapon and costs nothing afterwards; it is worth \
                         it if swap is large and rarely used. Add it to its line in /etc/fstab, too",
                    )
                    .with_commands(
                        ["swapoff", "swapon --discard=once"].map(|command| format!("{command} {}", quoted(&name))),
                        ["swapoff", "swapon"].map(|command| format!("{command} {}", quoted(&name))),
                    )
            }
        };
        findings.push(finding);
    }
    findings
}

fn device_of(root: &HostRoot, mount: &Mount) -> Option<SysBlock> {
    devices_in_sysfs(root, mount).ok()?.into_iter().next()
}

fn is_same_device(root: &HostRoot, source: &str, device: Option<&SysBlock>) -> bool {
    let tags =
        [("UUID=", "uuid"), ("LABEL=", "label"), ("PARTUUID=", "partuuid"), ("PARTLABEL=", "partlabel")];
    let node = tags.iter().find_map(|(tag, folder)| {
        Some(format!("/dev/disk/by-{folder}/{}", source.strip_prefix(tag)?.trim_matches('"')))
    });
    let found = crate::block_device::of_node(root, node.as_deref().unwrap_or(source)).ok().flatten();
    found.is_some() && found.as_ref() == device
}
