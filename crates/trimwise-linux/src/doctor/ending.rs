//! Finds the layers at which TRIM stops, and how to fix each.

use std::path::Path;

use rustix::fs::statvfs;
use trimwise::units::Bytes;

use super::Finding;
use super::disk::{Disk, Hypervisor, Transport};
use super::graph::{Graph, Kind, Node};
use super::quirks::{self, Quirk};
use super::{drive, mapping};
use crate::code::Code;
use crate::held;
use crate::host_root::HostRoot;
use crate::layers;
use crate::mount::{Mount, nearest};

/// A file system and the devices below it.
pub(crate) struct Stack<'a> {
    pub root: &'a HostRoot,
    pub mount: &'a Mount,
    /// All mounts of the host.
    pub mounts: &'a [Mount],
    pub graph: &'a Graph,
    pub host: &'a dyn Asks,
}

/// What only a running host answers, and not its files.
pub(crate) trait Asks {
    /// The table of a device-mapper mapping, by name.
    fn table(&self, mapping: &str) -> Option<String>;
    /// Likewise its status.
    fn status(&self, mapping: &str) -> Option<String>;
    /// The space in use, that in use and free to all users, and the size, of the file system mounted there, as statvfs(3)
    /// counts them.
    fn usage(&self, point: &Path) -> Option<[Bytes; 3]>;
}

impl Asks for HostRoot {
    fn table(&self, mapping: &str) -> Option<String> {
        self.is_own().then(|| layers::table(mapping).ok()).flatten()
    }

    fn status(&self, mapping: &str) -> Option<String> {
        self.is_own().then(|| held::status(mapping).ok()).flatten()
    }

    fn usage(&self, point: &Path) -> Option<[Bytes; 3]> {
        let space = self.is_own().then(|| statvfs(point).ok()).flatten()?;
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(space.f_frsize));
        let used = space.f_blocks.saturating_sub(space.f_bfree);
        Some([bytes(used), bytes(used.saturating_add(space.f_bavail)), bytes(space.f_blocks)])
    }
}

/// Adds findings on the layers that stop TRIM, and on drives whose TRIM is faulty.
pub(crate) fn of_graph(stack: &Stack<'_>, findings: &mut Vec<Finding>) {
    for stop in stack.graph.stops() {
        let node = &stack.graph.nodes[stop];
        let finding = switched_off(node).unwrap_or_else(|| match &node.kind {
            Kind::Disk(disk) => drive::ending(stack.root, node, disk),
            _ => mapping::ending(stack, stop),
        });
        let mut finding = with_layers_above(stack, stop, finding);
        // One command may fix several branches, such as all legs of a RAID volume.
        let is_known = |one: &Finding| one.commands.first() == finding.commands.first();
        if findings.iter().any(is_known) {
            finding.commands.clear();
            finding.undo.clear();
        }
        findings.push(finding);
    }
    for index in stack.graph.holding_data() {
        let node = &stack.graph.nodes[index];
        if node.takes_trim() != Some(true) {
            continue;
        }
        if mapping::is_thin(stack, node) && stack.graph.passes_below(index) == Some(false) {
            let what = "trimming it frees space in its pool, but TRIM goes no further down";
            findings.push(Finding::new(Code::ThinKeptInPool, node.name.clone(), what));
        }
        match &node.kind {
            Kind::Disk(disk) => {
                findings.extend(drive::other_mode(stack.root, node, disk));
                findings.extend(quirks::reported(&disk.model, &disk.firmware).map(|known| {
                    let what = format!("{}: {} ({})", disk.model, known.what, known.source);
                    Finding::new(Code::DriveTrimReported, node.name.clone(), what).mended_by(known.mend)
                }));
            }
            Kind::Crypt(..) => findings.push(Finding::new(
                Code::CryptPassesTrim,
                node.name.clone(),
                "it passes TRIM on: the drive shows which blocks are free, though not their contents",
            )),
            _ => {}
        }
        match &node.kind {
            Kind::Loop(file) if node.is_whole && node.below.is_empty() => {
                findings.push(below_loop(node, file, stack.mounts));
            }
            Kind::Disk(Disk { hypervisor: Some(hypervisor), .. }) => {
                findings.push(of_virtual(stack.root, node, *hypervisor))
            }
            Kind::Disk(disk) if disk.transport == Transport::Ata => {
                findings.extend(of_model(stack.root, node, disk));
            }
            _ => {}
        }
    }
}

/// Returns the kernel names of the devices at which TRIM stops, except those that need none: hard disks and memory.
pub(crate) fn stops(root: &HostRoot, graph: &Graph) -> Vec<String> {
    let nodes = graph.stops().into_iter().map(|stop| &graph.nodes[stop]);
    let wrong = nodes.filter(|node| match &node.kind {
        Kind::Disk(disk) => drive::ending(root, node, disk).wrong,
        _ => true,
    });
    wrong.map(|node| node.name.clone()).collect()
}

/// Reports a discard limit that was set to 0 although the device supports more.
fn switched_off(node: &Node) -> Option<Finding> {
    let hardware = node.device.queue("discard_max_hw_bytes").ok().filter(|&bytes| bytes > 0)?;
    // A loop device over a file that cannot have holes stops TRIM, but its limit is not 0.
    node.discard_max.filter(|&max| max == 0)?;
    let granularity = node.device.queue("discard_granularity").unwrap_or(512);
    let file = format!("/sys/block/{}/queue/discard_max_bytes", node.name);
    let what = format!(
        "TRIM was switched off in sysfs: {file} is 0, though the device takes up to {hardware} bytes \
         (discard_max_hw_bytes)"
    );
    let wrong = |mend: String| {
        let mend = format!("{mend} whatever sets it to 0 at each boot: a udev rule, tmpfiles.d, a script");
        Finding::new(Code::LimitSwitchedOff, node.name.clone(), what.clone()).mended_by(mend)
    };
    // `queue_max_discard_sectors_store` in Linux's block/blk-sysfs.c (`queue_discard_max_store` up to 6.1 at least)
    // accepts only 32-bit multiples of the granularity. Newer kernels (6.17, and stable ones such as 6.12.42) set the
    // granularity to 0 along with the limit, and then reject everything but 0.
    let Some(largest) = hardware.min(u32::MAX.into()).checked_div(granularity) else {
        return Some(match mapping::reload(&node.kind) {
            Some(commands) => wrong("reload its table, and remove".to_owned()).with_commands(commands, []),
            None => wrong(
                "this kernel refuses any other limit until the device is detected again: reboot, without"
                    .to_owned(),
            ),
        });
    };
    let bytes = (largest * granularity).max(granularity);
    Some(
        wrong(format!("write a limit into {file}, and remove"))
            .with_commands([format!("echo {bytes} > {file}")], [format!("echo 0 > {file}")]),
    )
}

/// Adds the remedies for the mappings above: each took its limits from below when its table was loaded, and some drop
/// TRIM whatever lies below.
fn with_layers_above(stack: &Stack<'_>, stop: usize, mut finding: Finding) -> Finding {
    let is_mounting = |commands: &[String]| commands.last().is_some_and(|last| last.starts_with("mount "));
    // If the remedy unmounts the file system, everything above is set up again anyway. A mere note needs no more
    // advice.
    if !finding.wrong || finding.nothing_helps || is_mounting(&finding.commands) {
        return finding;
    }
    let above = stack.graph.shut_above(stop).into_iter().map(|index| {
        let node = &stack.graph.nodes[index];
        (node, mapping::drops_by_itself(stack, node).then(|| mapping::ending(stack, index)))
    });
    let above: Vec<(&Node, Option<Finding>)> = above.collect();
    let is_in_vain = above.iter().flat_map(|(_, its)| its).any(|its| its.nothing_helps);
    let node = &stack.graph.nodes[stop];
    // Reloading a table is useless while an array below still has its old limits.
    let mut awaits_boot = matches!(node.kind, Kind::Raid(_));
    // Without commands for the stop itself, those for the layers above are useless, unless all it needs is a reboot.
    let has_commands = !is_in_vain && (!finding.commands.is_empty() || awaits_boot && node.is_whole);
    for (node, its) in above {
        let (mut commands, mut undo) = (Vec::new(), Vec::new());
        let mend = finding.mend.get_or_insert_default();
        if let Some(its) = its {
            *mend += &format!("; {} above it drops TRIM, too: {}", node.name, its.what);
            its.mend.iter().for_each(|its| *mend += &format!("; {its}"));
            (commands, undo) = (its.commands, its.undo);
            if awaits_boot {
                let steps = commands.iter().position(|step| step.starts_with("umount "));
                commands.truncate(steps.unwrap_or(commands.len()));
            }
        } else if awaits_boot {
            // The reboot reassembles this one, too.
        } else if let Some(again) = mapping::again(stack, node) {
            commands = again;
        } else if node.kind != Kind::Partition && !is_in_vain {
            *mend += &format!("; {} above it must then be reassembled", node.name);
        }
        awaits_boot |= matches!(node.kind, Kind::Raid(_)) && !is_mounting(&commands);
        if has_commands && !is_mounting(&finding.commands) {
            commands.retain(|step| !finding.commands.contains(step));
            undo.retain(|step| !finding.undo.contains(step));
            finding = finding.with_commands(commands, undo);
        }
    }
    if is_in_vain {
        finding.commands.clear();
        finding.undo.clear();
        finding.nothing_helps = true;
    }
    finding
}

/// Notes that a loop device turns TRIM into holes in its file, and where that file system must be trimmed.
fn below_loop(node: &Node, file: &str, mounts: &[Mount]) -> Finding {
    let what = match nearest(mounts, Path::new(file)).map(|index| &mounts[index]) {
        Some(below) if !super::TRIMMABLE.contains(&below.fs_type.as_str()) => {
            format!(
                "TRIM punches holes in {file}, so trimmed space no longer takes up space on {}",
                below.fs_type
            )
        }
        Some(below) => format!(
            "TRIM punches holes in {file}; they become free space of {}, {} on {}. Only trimming that file system \
             passes it on; see `trimwise doctor {0}`",
            below.mount_point.display(),
            below.fs_type,
            below.device
        ),
        None => format!("TRIM punches holes in {file}, whose file system is not mounted here"),
    };
    Finding::new(Code::LoopPunchesHoles, node.name.clone(), what)
}

fn of_model(root: &HostRoot, node: &Node, disk: &Disk) -> Option<Finding> {
    let forced_off = drive::is_forced(root, node, ["noncqtrim", "ncqtrim"]);
    let found = |code, what| Finding { wrong: false, ..Finding::new(code, node.name.clone(), what) };
    Some(match quirks::of(&disk.model, &disk.firmware)? {
        Quirk::NoQueuedTrim if forced_off => return None,
        Quirk::NoQueuedTrim => found(
            Code::SataQueuedTrimFaulty,
            format!(
                "{} loses data with queued TRIM; the kernel knows this and sends unqueued TRIMs, each of which stalls \
                 the drive's queue: trim at quiet times or in small slices",
                disk.model
            ),
        ),
        Quirk::NoTrim => found(
            Code::SataTrimFaulty,
            format!("{} handles TRIM wrongly; the kernel knows this and sends it none", disk.model),
        ),
    })
}

fn of_virtual(root: &HostRoot, node: &Node, hypervisor: Hypervisor) -> Finding {
    let kernel = root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let found = |what: String| Finding::new(Code::VirtualHostUnknown, node.name.clone(), what);
    let what = "a virtual disk: it accepts TRIM, but whether its host passes that on to its own disk cannot be seen from here";
    let (more, mend) = match hypervisor {
        Hypervisor::Qemu => (
            ". QEMU's disks accept TRIM even where the host ignores it (discard=ignore, the default)",
            "check on the host: discard=unmap must be set for this disk, and its image must shrink after a trim".to_owned(),
        ),
        Hypervisor::Ebs | Hypervisor::Google => return found(what.to_owned()),
        // https://github.com/microsoft/WSL/issues/4699 and 13075.
        Hypervisor::HyperV if kernel.to_ascii_lowercase().contains("microsoft") => (
            ". WSL's VHDX grows and does not shrink unless it is sparse",
            "on Windows: `wsl --shutdown`, then `wsl --manage DISTRO --set-sparse true`; WSL 2.5 and later wants `--allow-unsafe`, \
             too, because sparse files have lost data there. Otherwise compact the VHDX (`Optimize-VHD`, or diskpart's \
             `compact vdisk`)"
                .to_owned(),
        ),
        Hypervisor::HyperV => ("", format!("check {}", drive::on_host_of(hypervisor))),
        other => ("", format!("check {}; its image must shrink after a trim", drive::on_host_of(other))),
    };
    found(format!("{what}{more}")).mended_by(mend)
}

/// A host that answers this.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Answers<'a> {
    pub tables: &'a [(&'a str, &'a str)],
    pub statuses: &'a [(&'a str, &'a str)],
    /// Mount point, space in use, size.
    pub usages: &'a [(&'a str, u64, u64)],
}

#[cfg(test)]
impl Asks for Answers<'_> {
    fn table(&self, mapping: &str) -> Option<String> {
        Some(self.tables.iter().find(|(name, _)| *name == mapping)?.1.to_owned())
    }

    fn status(&self, mapping: &str) -> Option<String> {
        Some(self.statuses.iter().find(|(name, _)| *name == mapping)?.1.to_owned())
    }

    fn usage(&self, point: &Path) -> Option<[Bytes; 3]> {
        let (_, used, size) = self.usages.iter().find(|(known, ..)| Path::new(known) == point)?;
        Some([Bytes(*used), Bytes(*size), Bytes(*size)])
    }
}

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::{GIB, Host, SDA};

    use super::*;
    use crate::block_device::SysBlock;
    use crate::doctor::disks;

    const SDB: &str = "pci0000:00/ata2/host1/target1:0:0/1:0:0:0/block/sdb";

    /// A mirror with these limits of its two disks and its own, the second disk rotational or not.
    fn mirror([one, two, own]: [u64; 3], rotational: &str) -> (Vec<String>, Vec<String>) {
        const MD: &str = "virtual/block/md0";
        let host = Host::new("");
        host.device(SDA, "8:0", one).device(SDB, "8:16", two).device(MD, "9:0", own);
        host.slave(MD, SDA).slave(MD, SDB).file(&format!("sys/devices/{MD}/md/level"), "raid1");
        host.file(&format!("sys/devices/{SDB}/queue/rotational"), rotational);
        let root = HostRoot::new(host.0.path());
        let top = SysBlock::named(&root, "md0").unwrap();
        let graph = Graph::of(&root, &[], std::slice::from_ref(&top));
        (stops(&root, &graph), disks(&root, std::iter::once(&top)).into_iter().collect())
    }

    #[test]
    fn stops_are_the_lowest_devices_without_trim_that_should_have_it() {
        for (limits, rotational, expected) in [
            ([GIB, GIB, GIB], "0", &[][..]),
            // The disks are fine, and the array is not.
            ([GIB, GIB, 0], "0", &["md0"]),
            // The disk below the array is the cause, not the array.
            ([GIB, 0, 0], "0", &["sdb"]),
            ([0, 0, 0], "0", &["sda", "sdb"]),
            // The array takes TRIM and passes it on to one of its disks only.
            ([GIB, 0, GIB], "0", &["sdb"]),
            // A hard disk needs none.
            ([GIB, 0, GIB], "1", &[]),
        ] {
            let (stops, disks) = mirror(limits, rotational);
            assert_eq!(stops, expected, "limits of sda, sdb, md0: {limits:?}; sdb rotational: {rotational}");
            assert_eq!(disks, ["sda", "sdb"], "disks of the mirror");
        }
    }
}
