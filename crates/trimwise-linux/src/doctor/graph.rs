//! The devices below a file system as a graph: several paths may lead to one disk, and each path is judged.

use std::collections::HashMap;
use std::path::Path;

use super::disk::{Disk, Transport, disk_of};
use crate::block_device::{SysBlock, of_node};
use crate::host_root::HostRoot;
use crate::mount::{Mount, nearest};

/// Depth at which the doctor stops looking: only a broken sysfs goes deeper.
const DEPTH_MAX: usize = 64;
/// File systems whose files cannot have holes: they have fallocate(2), but without FALLOC_FL_PUNCH_HOLE. A loop device
/// over one of them still accepts TRIM, and even counts it.
const WITHOUT_HOLES: [&str; 5] = ["vfat", "msdos", "exfat", "hfs", "hfsplus"];
/// File systems where it is unknown what a hole frees: those of other hosts, and those that trim by themselves.
const SERVED: [&str; 10] =
    ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "virtiofs", "zfs", "bcachefs"];
/// Maximum number of tree lines that a report shows; a graph whose branches keep meeting has very many paths.
const SHOWN_MAX: usize = 200;

/// Kind of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Partition,
    /// dm-crypt, with the name of its mapping and the format: `LUKS1`, `LUKS2`, `PLAIN`, `TCRYPT`.
    Crypt(String, String),
    /// An LVM logical volume, by name.
    Lvm(String),
    /// A pool of thin volumes, by name.
    ThinPool(String),
    /// An LVM VDO pool, by name. It reuses trimmed space itself, and passes no TRIM on.
    Vdo(String),
    /// An LVM snapshot, or a volume that has one, by name.
    Snapshot(String),
    /// dm-integrity, by name.
    Integrity(String),
    /// Device-mapper multipath, by name: several paths to one disk.
    Multipath(String),
    /// Another device-mapper device, by name.
    Mapper(String),
    /// Linux RAID, with its level, such as `raid5`.
    Raid(String),
    Bcache,
    /// A loop device, with its backing file, which may be a block device.
    Loop(String),
    /// A disk, the lowest layer.
    Disk(Disk),
}

/// A device in the graph.
#[derive(Clone, Debug)]
pub struct Node {
    pub device: SysBlock,
    /// Kernel name of the device.
    pub name: String,
    pub kind: Kind,
    /// The largest discard that the device accepts, in bytes; 0 if none, `None` if sysfs does not say.
    pub discard_max: Option<u64>,
    /// Discards counted on the device since boot; `None` if the kernel does not count them.
    pub discards: Option<u64>,
    /// Devices directly below that hold the data, as indices of [`Graph::nodes`].
    pub below: Vec<usize>,
    /// Devices directly below that hold other things: metadata, a cache, a snapshot's changes.
    pub beside: Vec<usize>,
    /// True if TRIM goes no further although the device accepts it: VDO, or a loop device over a file that cannot have
    /// holes.
    pub is_dead_end: bool,
    /// False if sysfs does not show everything below or whether it accepts TRIM: there is a cycle, or a device vanished
    /// meanwhile.
    pub is_whole: bool,
}

impl Node {
    /// Returns true if the device accepts TRIM and does something with it; `None` if sysfs does not say.
    pub fn takes_trim(&self) -> Option<bool> {
        self.discard_max.map(|max| max > 0 && !self.is_dead_end)
    }
}

/// All devices below a file system.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The devices, each once.
    pub nodes: Vec<Node>,
    /// Indices of the devices that are mounted.
    pub tops: Vec<usize>,
    /// What sysfs does not show, if anything.
    pub gap: Option<String>,
}

/// Whether TRIM gets through from a device down to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    Shut,
    Unknown,
}

impl Graph {
    /// Reads everything below these devices. `mounts` tells which file system holds the file of a loop device.
    pub fn of(root: &HostRoot, mounts: &[Mount], tops: &[SysBlock]) -> Self {
        let mut graph = Self::default();
        let mut known = HashMap::new();
        for top in tops {
            let index = graph.add(root, top, &mut Vec::new(), &mut known);
            graph.tops.extend(index);
        }
        for node in &mut graph.nodes {
            if let Kind::Loop(file) = &node.kind {
                let holder = nearest(mounts, Path::new(file)).map(|at| mounts[at].fs_type.as_str());
                node.is_dead_end = holder.is_some_and(|fs_type| WITHOUT_HOLES.contains(&fs_type));
                let is_served = |fs_type: &&str| SERVED.contains(fs_type) || fs_type.starts_with("fuse");
                let gap = match holder {
                    _ if !node.below.is_empty() => None,
                    Some("devtmpfs") => {
                        Some(format!("sysfs does not show {file}, which lies below {}", node.name))
                    }
                    None if !mounts.is_empty() => {
                        Some(format!("the file system of {file} is not mounted here"))
                    }
                    _ => holder.filter(is_served).map(|fs_type| {
                        format!(
                            "{file} lies on {fs_type}; whether holes in it free space there was not checked"
                        )
                    }),
                };
                node.is_whole &= gap.is_none();
                graph.gap = graph.gap.take().or(gap);
            }
        }
        graph
    }

    fn add(
        &mut self,
        root: &HostRoot,
        device: &SysBlock,
        above: &mut Vec<SysBlock>,
        known: &mut HashMap<SysBlock, usize>,
    ) -> Option<usize> {
        if above.contains(device) || above.len() >= DEPTH_MAX {
            self.gap = Some(format!("according to sysfs, {} lies on itself", device.name()));
            return None;
        }
        if let Some(&index) = known.get(device) {
            return Some(index);
        }
        let disk = device.disk();
        // sysfs does not link a loop device to the block device below it.
        let looped = device.backing_file().filter(|file| file.starts_with("/dev"));
        let looped = looped.and_then(|file| of_node(root, &file.to_string_lossy()).ok().flatten());
        let slaves: Vec<SysBlock> = disk.iter().cloned().chain(device.slaves()).chain(looped).collect();
        let kind = if disk.is_some() { Kind::Partition } else { kind_of(root, device, &slaves) };
        let discard_max = device.queue("discard_max_bytes").ok();
        if discard_max.is_none() {
            self.gap = Some(format!("sysfs does not say whether {} accepts TRIM", device.name()));
        }
        let is_pooled = matches!(&kind, Kind::Disk(disk) if disk.transport == Transport::Zvol);
        let is_mapped = !matches!(kind, Kind::Partition | Kind::Loop(_) | Kind::Disk(_));
        let mut is_whole = device.has_all_slaves() && !(is_mapped && slaves.is_empty());
        if !is_whole {
            self.gap = Some(format!("sysfs does not show what lies below {}", device.name()));
        }
        if is_pooled {
            is_whole = false;
            self.gap = Some(format!(
                "{} is a volume of ZFS, whose pool trims by itself (`zpool get autotrim`); not checked",
                device.name()
            ));
        }
        above.push(device.clone());
        let (mut below, mut beside) = (Vec::new(), Vec::new());
        let holds_data = data_among(device, &slaves);
        for (slave, holds_data) in slaves.iter().zip(holds_data) {
            let index = self.add(root, slave, above, known);
            is_whole &= index.is_some_and(|index| self.nodes[index].discard_max.is_some());
            if holds_data { &mut below } else { &mut beside }.extend(index);
        }
        above.pop();
        let index = self.nodes.len();
        self.nodes.push(Node {
            name: device.name(),
            is_dead_end: matches!(kind, Kind::Vdo(_)),
            kind,
            discard_max,
            discards: device.stat().ok().and_then(|stat| stat.discards).map(|discards| discards.commands),
            below,
            beside,
            is_whole,
            device: device.clone(),
        });
        known.insert(device.clone(), index);
        Some(index)
    }

    /// Returns true if TRIM passes from a mounted device down to a disk that accepts it, according to the kernel;
    /// `None` if sysfs does not tell.
    pub fn passes(&self) -> Option<bool> {
        let ways = self.ways();
        Self::of_ways(&self.tops.iter().filter_map(|&top| ways[top]).collect::<Vec<_>>())
    }

    /// Like [`passes`](Self::passes), but starts from this device.
    pub fn passes_below(&self, index: usize) -> Option<bool> {
        Self::of_ways(&[self.ways()[index]?])
    }

    fn ways(&self) -> Vec<Option<Way>> {
        let mut ways = vec![None; self.nodes.len()];
        // A device is listed after those below it.
        for (index, node) in self.nodes.iter().enumerate() {
            let below = || node.below.iter().filter_map(|&below| ways[below]);
            ways[index] = Some(match node.takes_trim() {
                None => Way::Unknown,
                Some(false) => Way::Shut,
                Some(_) if below().any(|way| way == Way::Open) => Way::Open,
                Some(_) if !node.is_whole || below().any(|way| way == Way::Unknown) => Way::Unknown,
                Some(_) if node.below.is_empty() => Way::Open,
                Some(_) => Way::Shut,
            });
        }
        ways
    }

    fn of_ways(ways: &[Way]) -> Option<bool> {
        match () {
            () if ways.contains(&Way::Open) => Some(true),
            () if ways.is_empty() || ways.contains(&Way::Unknown) => None,
            () => Some(false),
        }
    }

    /// Returns the devices at which TRIM stops: they accept none, although the devices that hold their data do, as far
    /// as sysfs says.
    pub fn stops(&self) -> Vec<usize> {
        let accepts = |index: &usize| self.nodes[*index].takes_trim() != Some(false);
        let stops = |index: &usize| {
            let node = &self.nodes[*index];
            node.takes_trim() == Some(false) && node.kind != Kind::Partition && node.below.iter().all(accepts)
        };
        self.holding_data().into_iter().filter(stops).collect()
    }

    /// Returns the devices that hold the file system's data, from the top down.
    pub fn holding_data(&self) -> Vec<usize> {
        let mut way = self.tops.clone();
        let mut next = 0;
        while let Some(&index) = way.get(next) {
            for below in &self.nodes[index].below {
                if !way.contains(below) {
                    way.push(*below);
                }
            }
            next += 1;
        }
        way
    }

    /// Returns the devices above `stop` that hold the file system's data and accept no TRIM either, from the bottom up.
    pub fn shut_above(&self, stop: usize) -> Vec<usize> {
        let holding_data = self.holding_data();
        let mut shut = vec![stop];
        // A device is listed after those below it.
        for (index, node) in self.nodes.iter().enumerate().skip(stop + 1) {
            let is_shut = node.discard_max == Some(0) && holding_data.contains(&index);
            if is_shut && node.below.iter().any(|below| shut.contains(below)) {
                shut.push(index);
            }
        }
        shut.split_off(1)
    }

    /// Returns the tree as shown to users: each device with its depth, listed below every device that uses it.
    pub fn tree(&self) -> Vec<(usize, &Node)> {
        let mut lines = Vec::new();
        let mut next: Vec<(usize, usize)> = self.tops.iter().rev().map(|&top| (0, top)).collect();
        let mut is_known = vec![false; self.nodes.len()];
        while let Some((depth, index)) = next.pop()
            && lines.len() < SHOWN_MAX
        {
            let node = &self.nodes[index];
            lines.push((depth, node));
            // The devices below are shown only the first time.
            if !std::mem::replace(&mut is_known[index], true) {
                let mut below: Vec<usize> = node.below.iter().chain(&node.beside).copied().collect();
                below.sort_by_key(|&index| std::cmp::Reverse(self.nodes[index].name.clone()));
                next.extend(below.into_iter().map(|below| (depth + 1, below)));
            }
        }
        lines
    }
}

/// Tells for each device below `device` whether it holds data, by the names that LVM, Stratis and bcache use. If the
/// names do not tell, all of them do.
fn data_among(device: &SysBlock, slaves: &[SysBlock]) -> Vec<bool> {
    const METADATA: [&str; 7] = ["tmeta", "cmeta", "cdata", "cvol", "imeta", "cow", "thinmeta"];
    let backing = device.path().join("bcache").canonicalize().ok();
    let holds = slaves.iter().map(|slave| {
        if let Some(backing) = &backing
            && device.name().starts_with("bcache")
        {
            return backing.parent() == Some(slave.path());
        }
        let name = slave.text("dm/name").unwrap_or_default();
        let last = name.rsplit(['_', '-']).find(|part| !part.bytes().all(|byte| byte.is_ascii_digit()));
        // A user may have named a volume `cow`.
        let is_layer =
            || last != Some("cow") || slave.text("dm/uuid").is_some_and(|uuid| uuid.ends_with("-cow"));
        !last.is_some_and(|last| (METADATA.contains(&last) || last == "rmeta") && is_layer())
    });
    let holds: Vec<bool> = holds.collect();
    if holds.contains(&true) { holds } else { vec![true; slaves.len()] }
}

fn kind_of(root: &HostRoot, device: &SysBlock, slaves: &[SysBlock]) -> Kind {
    if let Some(mapping) = device.text("dm/name") {
        let uuid = device.text("dm/uuid").unwrap_or_default();
        let texts = |file| slaves.iter().filter_map(|slave| slave.text(file)).collect::<Vec<String>>();
        let (names, uuids) = (texts("dm/name"), texts("dm/uuid"));
        let is_above = |end: &str| names.iter().any(|name| name.ends_with(end));
        // A user may have named a volume `real` or `cow`.
        let is_above_layer = |end: &str| is_above(end) && uuids.iter().any(|uuid| uuid.ends_with(end));
        let mut parts = uuid.split('-');
        return match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
            // dm-verity is read-only, and has no discards.
            ("CRYPT", "VERITY") => Kind::Mapper(mapping),
            ("CRYPT", "INTEGRITY") => Kind::Integrity(mapping),
            ("CRYPT", format) => Kind::Crypt(mapping, format.to_owned()),
            ("INTEGRITY", _) => Kind::Integrity(mapping),
            _ if is_above("_iorig") => Kind::Integrity(mapping),
            _ if is_above("_tdata") || is_above("-thindata") || uuid.ends_with("-tpool") => {
                Kind::ThinPool(mapping)
            }
            ("LVM", _) if uuid.ends_with("-vpool") => Kind::Vdo(mapping),
            ("LVM", _) if is_above_layer("-real") || is_above_layer("-cow") => Kind::Snapshot(mapping),
            ("LVM", _) => Kind::Lvm(mapping),
            ("mpath", _) => Kind::Multipath(mapping),
            (part, _) if part.starts_with("part") => Kind::Partition,
            _ => Kind::Mapper(mapping),
        };
    }
    if let Some(level) = device.text("md/level") {
        return Kind::Raid(level);
    }
    if let Some(file) = device.backing_file() {
        return Kind::Loop(file.display().to_string());
    }
    if device.name().starts_with("bcache") {
        return Kind::Bcache;
    }
    Kind::Disk(disk_of(root, device))
}
