//! The target of a recording: the disks below a mount or a device, and the location of a file system's blocks on them.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::statvfs;
use trimwise::trace::{Header, TraceDevice, TraceFileSystem};
use trimwise::units::{Bytes, Lba, SECTOR_BYTES, SectorRange, Span};

use super::RecordError;
use crate::block_device::{BlockDevice, BlockDeviceError, LAYERS_MAX, SysfsError, devices_of, node_numbers};
use crate::layers::Stack;
use crate::layout::{Kind, Layout};
use crate::mount::{Mount, mount_of, parse_mountinfo};
use crate::path_error::at;
use crate::tracefs::format::{Traced, Tracepoint};

#[derive(Debug)]
pub struct Target {
    pub mount: Option<Mount>,
    /// The disks, in the order of their index in the trace.
    pub disks: Vec<BlockDevice>,
    /// Notes that a reader of the trace needs, one sentence each.
    pub notes: Vec<String>,
    pub(super) blocks: Option<Blocks>,
}

#[derive(Debug)]
pub(super) struct Blocks {
    pub kind: Kind,
    /// The device that the file system's events name.
    pub numbers: (u32, u32),
    /// True if a freed block cannot be allocated again before its transaction has committed.
    pub frees_wait: bool,
    layout: Layout,
    stack: Stack,
}

impl Target {
    /// Finds the disks below `path`: a mount point, anything else on a mounted file system, or a block device.
    pub fn of(path: &Path) -> Result<Self, RecordError> {
        let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        let (devices, mount) = if is_device {
            let numbers = node_numbers(path).map_err(at(path)).map_err(SysfsError::from);
            let device = BlockDevice::of_numbers(numbers.map_err(BlockDeviceError::from)?)?;
            let mounts = parse_mountinfo(&fs::read("/proc/self/mountinfo").unwrap_or_default());
            let mount = mounts.into_iter().find(|mount| mount.numbers == device.numbers);
            (vec![device], mount)
        } else {
            let mount = mount_of(path)?;
            (devices_of(&mount)?, Some(mount))
        };
        let mut target = Self { mount, disks: Vec::new(), notes: Vec::new(), blocks: None };
        let mut stacks = Vec::new();
        for device in &devices {
            let stack = Stack::of(device)?;
            let opaque = stack.lowest().find_map(|(layer, why)| Some((layer.name.clone(), why?.to_string())));
            for (lowest, _) in stack.lowest() {
                target.add_disks(lowest, 0);
            }
            if device.sysfs.disk().is_some() {
                target.notes.push(format!(
                    "{} is a partition: all requests of its disk are recorded, and counted from its first sector",
                    device.name
                ));
            }
            stacks.push((stack, opaque));
        }
        for disk in target.disks.iter().filter(|disk| disk.limits.ranges > 1) {
            target.notes.push(format!(
                "{} takes discards of several ranges, which the kernel reports as one range of their total length",
                disk.name
            ));
        }
        for disk in target.disks.iter().filter(|disk| !disk.sysfs.has("mq")) {
            // NVMe with several paths, and RAM disks.
            target.notes.push(format!(
                "{} has no queue of its own, so the kernel reports no requests on it",
                disk.name
            ));
        }
        target.find_blocks(&devices, stacks);
        Ok(target)
    }

    /// Adds a disk, or the disks below a layer that cannot be followed.
    fn add_disks(&mut self, device: &BlockDevice, depth: usize) {
        let mut below: Vec<BlockDevice> =
            device.sysfs.slaves().filter_map(|slave| BlockDevice::of(slave.whole()).ok()).collect();
        below.sort_by(|one, other| one.name.cmp(&other.name));
        if below.is_empty() || depth == LAYERS_MAX {
            if !self.disks.iter().any(|disk| disk.numbers == device.numbers) {
                self.disks.push(device.clone());
            }
            return;
        }
        below.iter().for_each(|slave| self.add_disks(slave, depth + 1));
    }

    fn find_blocks(&mut self, devices: &[BlockDevice], mut stacks: Vec<(Stack, Option<(String, String)>)>) {
        let Some(mount) = &self.mount else {
            self.notes.push(
                "no file system is mounted from this device itself, so no frees are recorded; expected its \
                 mount point to record them"
                    .to_owned(),
            );
            return;
        };
        let kind = Kind::of(&mount.fs_type);
        let untraced = match (kind, &stacks[..]) {
            (Kind::Btrfs, _) => {
                "btrfs reports logical addresses and references instead of extents on a device".to_owned()
            }
            (Kind::Other, _) => format!("trimwise does not know what {} reports", mount.fs_type),
            (_, [(_, Some((layer, why)))]) => {
                format!("addresses cannot be followed through {layer}: {why}")
            }
            (_, [(_, None)]) => String::new(),
            _ => "it is on several devices".to_owned(),
        };
        if !untraced.is_empty() {
            self.notes.push(format!("no frees, allocations and commits are recorded: {untraced}"));
            return;
        }
        let folder = File::open(&mount.mount_point).ok();
        let layout = folder.and_then(|folder| Layout::of(kind, folder.as_fd(), &devices[0]));
        let Some((layout, (stack, _))) = layout.zip(stacks.pop()) else {
            self.notes.push(format!(
                "no frees, allocations and commits are recorded: the layout of {} cannot be read",
                mount.mount_point.display()
            ));
            return;
        };
        if layout.cluster > layout.block {
            self.notes
                .push("a cluster has several blocks, and some are reported free before it is".to_owned());
        }
        if layout.realtime.0 > 0 {
            self.notes.push("frees on the realtime device are not recorded".to_owned());
        }
        if kind == Kind::Xfs {
            self.notes.push(
                "a commit of XFS is the end of a log write; what was freed while it was under way may belong \
                 to the next one"
                    .to_owned(),
            );
        }
        let frees_wait = kind == Kind::Ext4 && !mount.options.iter().any(|option| option == "data=writeback");
        self.blocks = Some(Blocks { kind, numbers: mount.numbers, frees_wait, layout, stack });
    }

    pub(super) fn header(&self, is_traced: bool) -> Header {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let device = |disk: &BlockDevice| TraceDevice {
            name: disk.name.clone(),
            capacity_bytes: Some(disk.size.0),
            model: disk.sysfs.text("device/model").filter(|model| !model.is_empty()),
        };
        let file_system = self.mount.as_ref().and_then(|mount| {
            let counted = statvfs(&mount.mount_point).ok()?;
            // Leave out paths, such as those of a subvolume.
            let options = mount.options.iter().filter(|option| !option.contains('/'));
            Some(TraceFileSystem {
                kind: mount.fs_type.clone(),
                size_bytes: counted.f_blocks.saturating_mul(counted.f_frsize),
                free_bytes: counted.f_bfree.saturating_mul(counted.f_frsize),
                options: options.cloned().collect::<Vec<_>>().join(","),
                is_traced,
            })
        });
        Header {
            made_by: format!("trimwise record {}", trimwise::VERSION),
            devices: self.disks.iter().map(device).collect(),
            file_system,
            kernel: release.map(|release| release.trim().to_owned()),
            has_prelude: false,
        }
    }

    pub(super) fn index(&self, numbers: (u32, u32)) -> Option<u32> {
        let index = self.disks.iter().position(|disk| disk.numbers == numbers)?;
        u32::try_from(index).ok()
    }

    /// Passes the sectors of blocks to `found`, in as few pieces as the layers below allow.
    pub(super) fn sectors(&self, traced: &Traced, mut found: impl FnMut(u32, SectorRange)) {
        let Some(blocks) = &self.blocks else { return };
        let Layout { block, group, end, .. } = blocks.layout;
        let group = if blocks.kind == Kind::Xfs { group } else { Bytes(0) };
        let mut rest = vec![traced.span(block.0, group.0, end.0)];
        while let Some(span) = rest.pop().filter(|span| span.start < span.end) {
            match blocks.stack.place(span.start, span.bytes().0) {
                Some((numbers, at)) => {
                    let sectors = SectorRange::new(Lba(at / SECTOR_BYTES), span.bytes().0 / SECTOR_BYTES);
                    self.index(numbers).into_iter().for_each(|disk| found(disk, sectors));
                }
                // Not contiguous: halve it, down to one block.
                None if span.bytes().0 > block.0 => {
                    let middle = span.start + (span.bytes().0 / 2).next_multiple_of(block.0);
                    rest.push(Span { start: middle, end: span.end });
                    rest.push(Span { start: span.start, end: middle });
                }
                None => {}
            }
        }
    }

    pub(super) fn tracepoints(&self) -> &'static [Tracepoint] {
        match self.blocks.as_ref().map(|blocks| blocks.kind) {
            Some(Kind::Ext4) => &[
                Tracepoint::Ext4,
                Tracepoint::Ext4Allocated,
                Tracepoint::JournalSwitched,
                Tracepoint::JournalCommitted,
            ],
            Some(Kind::Xfs) => &[Tracepoint::Xfs, Tracepoint::XfsAllocated, Tracepoint::XfsCommitted],
            _ => &[],
        }
    }
}
