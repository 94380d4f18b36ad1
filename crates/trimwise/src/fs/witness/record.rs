//! The record of a witness: contents of blocks, commands, events and promises.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::block::{Command, Stage};
use crate::fs::Disk;
use crate::fs::alloc::GROUP_UNITS;
use crate::fs::inode::FileExtent;
use crate::fs::journal::Tail;
use crate::fs::layout::ROOT_INODE;
use crate::units::{Lpn, UnitRange};

/// Contents of a block, as an index into [`Record::contents`].
pub type ContentId = u32;
pub const NEVER: ContentId = 0;
pub const TRIMMED: ContentId = 1;
/// The block was written without the witness's knowledge: a gap in the checker itself.
pub const UNKNOWN: ContentId = 2;

#[derive(Clone, Debug)]
pub enum Content {
    Never,
    Trimmed,
    Unknown,
    Page(Page),
    Metadata {
        block: u64,
        image: Image,
    },
    /// Log: the places of the metadata blocks that follow.
    Descriptor {
        tid: u64,
        blocks: Vec<u64>,
    },
    /// Log: blocks that must not be replayed from this or an older transaction.
    Revoke {
        tid: u64,
        blocks: Vec<u64>,
    },
    /// Log: the frozen contents of a metadata block.
    Logged {
        tid: u64,
        block: u64,
        /// The block's contents when the transaction was closed.
        content: ContentId,
    },
    /// Log: the transaction is complete.
    Commit {
        tid: u64,
    },
    /// The journal's superblock, with the tail.
    Tail(Tail),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub inode: u32,
    /// Number of files that had the inode before.
    pub generation: u32,
    pub page: u64,
    /// Sequence number of the workload's write.
    pub version: u64,
}

impl Page {
    fn is_of(&self, inode: u32, generation: u32, page: u64) -> bool {
        (self.inode, self.generation, self.page) == (inode, generation, page)
    }
}

#[derive(Clone, Debug)]
pub enum Image {
    /// Metadata that do not matter to the checker.
    Plain,
    Bitmap(Vec<UnitRange>),
    /// The inodes of the block that are in use, in order.
    Inodes(Vec<InodeImage>),
    Directory {
        inode: u32,
        entries: BTreeMap<Box<str>, u32>,
    },
    /// A block of an inode's extent tree. The extents are in the inode's own image.
    Tree {
        inode: u32,
    },
}

#[derive(Clone, Debug)]
pub struct InodeImage {
    pub inode: u32,
    pub generation: u32,
    pub is_directory: bool,
    pub size_bytes: u64,
    pub extents: Vec<FileExtent>,
    /// Runs of pages (first page and count) that read as zeros, whatever the contents of their blocks.
    pub unwritten: Vec<(u64, u64)>,
    pub tree: Vec<Lpn>,
}

impl InodeImage {
    /// Returns true if a page that has a block holds the data of that block.
    pub fn is_written(&self, page: u64) -> bool {
        !self.unwritten.iter().any(|&(first, pages)| (first..first + pages).contains(&page))
    }
}

/// A promise by the file system that a file is durable.
#[derive(Clone, Debug)]
pub struct Promise {
    pub path: Box<str>,
    pub inode: u32,
    pub generation: u32,
    /// Length of the file when `fsync` was called.
    pub size_bytes: u64,
    /// Version of each page at that time; 0 for a hole.
    pub versions: Vec<u64>,
}

#[derive(Clone, Debug)]
pub struct Removal {
    pub path: Box<str>,
    pub inode: u32,
    pub generation: u32,
    pub(super) tid: u64,
}

#[derive(Clone, Debug)]
pub struct Op {
    pub kind: OpKind,
    /// Index of the event with which the command was handed to the device.
    pub dispatched: usize,
    /// Index of the event with which the device acknowledged it; `usize::MAX` if it never did.
    pub completed: usize,
}

#[derive(Clone, Debug)]
pub enum OpKind {
    Write { start: Lpn, contents: Vec<ContentId> },
    Trim(Vec<UnitRange>),
    Flush,
}

/// An event of the record. The power can be cut after each event.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A command was handed to the device (index into [`Record::ops`]).
    Dispatched(usize),
    /// The device acknowledged a command (index into [`Record::ops`]).
    Completed(usize),
    /// An `fsync` or `sync` returned (index into [`Record::promises`]).
    Promised(usize),
    /// The removal of a file became durable and was reported (index into [`Record::removals`]).
    Gone(usize),
    /// The file of this inode is being emptied or removed: earlier promises about it no longer hold.
    Destroyed(u32),
}

#[derive(Debug, Default)]
pub struct Record {
    pub contents: Vec<Content>,
    pub ops: Vec<Op>,
    pub events: Vec<Event>,
    pub promises: Vec<Promise>,
    pub removals: Vec<Removal>,
    /// Contents of the device when the witness began: metadata blocks in their places.
    pub initial: Vec<(u64, ContentId)>,
    pub(super) outstanding: Vec<usize>,
    /// Contents of writes that were submitted and not yet sent to the device, in order.
    pub(super) submitted: HashMap<u64, VecDeque<ContentId>>,
    /// The newest committed or committing image of each metadata block.
    pub(super) frozen: BTreeMap<u64, ContentId>,
    /// One flag per block: true if the bitmaps have it allocated.
    pub(super) allocated: Vec<bool>,
    pub(super) versions: BTreeMap<u32, Vec<u64>>,
    pub(super) last_version: u64,
    /// Inodes of removed files that have no new file.
    pub(super) removed: BTreeSet<u32>,
    /// Number of times that each inode's file was emptied or removed.
    pub(super) destroyed: BTreeMap<u32, u64>,
    /// Removals that were not yet reported.
    pub(super) removals_open: Vec<usize>,
}

impl Record {
    pub fn content(&self, id: ContentId) -> &Content {
        &self.contents[id as usize]
    }

    /// Returns the metadata that a block holds in its place; `None` if it holds anything else.
    pub fn image(&self, id: ContentId, at: u64) -> Option<&Image> {
        match self.content(id) {
            Content::Metadata { block, image } if *block == at => Some(image),
            _ => None,
        }
    }

    /// Returns the written pages of an extent whose blocks hold anything but a version of that page. `held` has the
    /// contents of the device by block.
    ///
    /// This function is here, and not in the checker, because it is called for every page at every cut: the tests
    /// optimise this crate.
    pub fn foreign_pages(
        &self,
        image: &InodeImage,
        extent: &FileExtent,
        held: &[ContentId],
    ) -> Vec<(u64, Lpn)> {
        let pages = (extent.page..).zip(extent.blocks.iter());
        let is_foreign = |&(page, block): &(u64, Lpn)| {
            let content = self.content(held[block.0 as usize]);
            let is_own = matches!(content, Content::Page(p) if p.is_of(image.inode, image.generation, page));
            !is_own && image.is_written(page)
        };
        pages.filter(is_foreign).collect()
    }

    /// Returns the pages of a promise that `image`, the promised file, has lost, with no block, and those of which it
    /// has an older version, with the block. `held` has the contents of the device by block.
    pub fn broken_pages(
        &self,
        promise: &Promise,
        image: &InodeImage,
        held: &[ContentId],
    ) -> Vec<(u64, Option<Lpn>)> {
        let mut extents = image.extents.iter().peekable();
        let block_if_broken = |(page, &version): (u64, &u64)| {
            if version == 0 {
                return None;
            }
            while extents.next_if(|e| e.page + e.blocks.units <= page).is_some() {}
            let extent = extents.peek().filter(|e| e.page <= page && image.is_written(page));
            let Some(block) = extent.map(|e| e.blocks.start.offset(page - e.page)) else {
                return Some((page, None));
            };
            // Another file's page is reported as foreign.
            match self.content(held[block.0 as usize]) {
                Content::Page(p)
                    if p.version < version && p.is_of(promise.inode, promise.generation, page) =>
                {
                    Some((page, Some(block)))
                }
                _ => None,
            }
        };
        (0..).zip(&promise.versions).filter_map(block_if_broken).collect()
    }

    pub fn describe(&self, id: ContentId) -> String {
        match self.content(id) {
            Content::Never => "nothing: it was never written".to_owned(),
            Content::Trimmed => "nothing: it was trimmed".to_owned(),
            Content::Unknown => "something that was not recorded".to_owned(),
            Content::Page(p) => format!(
                "page {} of inode {} (generation {}), version {}",
                p.page, p.inode, p.generation, p.version
            ),
            Content::Metadata { block, .. } => format!("metadata of block {block}"),
            Content::Descriptor { tid, blocks } => {
                format!("a descriptor of transaction {tid} for {} blocks", blocks.len())
            }
            Content::Revoke { tid, .. } => format!("revokes of transaction {tid}"),
            Content::Logged { tid, block, .. } => format!("block {block} as logged by transaction {tid}"),
            Content::Commit { tid } => format!("the commit block of transaction {tid}"),
            Content::Tail(tail) => format!("a log's tail at transaction {}", tail.tid),
        }
    }

    /// Converts an inode's generation to that on the disk: the model increments it when a name is removed, a disk when
    /// the inode gets its next file.
    pub(super) fn generation_on_disk(&self, inode: u32, generation: u32) -> u32 {
        generation - u32::from(self.removed.contains(&inode))
    }

    pub(super) fn add(&mut self, content: Content) -> ContentId {
        self.contents.push(content);
        (self.contents.len() - 1) as ContentId
    }

    pub(super) fn submit(&mut self, at: Lpn, content: ContentId) {
        self.submitted.entry(at.0).or_default().push_back(content);
    }

    pub(super) fn note(&mut self, stage: Stage, command: &Command) {
        let at = self.events.len();
        if stage == Stage::Completed {
            let is_it = |&i: &usize| self.ops[i].is(command);
            // Take the first of several equal commands: the device completes them in order.
            let Some(position) = self.outstanding.iter().position(is_it) else { return };
            let op = self.outstanding.remove(position);
            self.ops[op].completed = at;
            self.events.push(Event::Completed(op));
            return;
        }
        let kind = match command {
            // A file system writes whole blocks.
            Command::Read(_) | Command::ReadPart(_) | Command::WritePart(..) => return,
            Command::Flush => OpKind::Flush,
            Command::Trim(ranges) => OpKind::Trim(ranges.clone()),
            Command::Write(range, _) => {
                let submitted = &mut self.submitted;
                let mut next = |at: Lpn| submitted.get_mut(&at.0)?.pop_front();
                let contents = range.iter().map(|at| next(at).unwrap_or(UNKNOWN)).collect();
                OpKind::Write { start: range.start, contents }
            }
        };
        let op = self.ops.len();
        self.ops.push(Op { kind, dispatched: at, completed: usize::MAX });
        self.outstanding.push(op);
        self.events.push(Event::Dispatched(op));
    }

    fn allocated_in(&self, group: u64) -> Vec<UnitRange> {
        let from = (group * GROUP_UNITS) as usize;
        let to = (from + GROUP_UNITS as usize).min(self.allocated.len());
        let mut at = from as u64;
        let runs = self.allocated[from..to].chunk_by(|a, b| a == b).filter_map(|run| {
            let range = UnitRange::new(Lpn(at), run.len() as u64);
            at += range.units;
            run[0].then_some(range)
        });
        runs.collect()
    }

    pub(super) fn set_allocated(&mut self, range: UnitRange, allocated: bool) {
        self.allocated[range.start.0 as usize..range.end().0 as usize].fill(allocated);
    }

    pub(super) fn freeze(&self, disk: &Disk, block: Lpn) -> Image {
        let layout = &disk.layout;
        if let Some(inodes) = layout.inodes_in(block) {
            let mut images: Vec<InodeImage> = inodes.filter_map(|inode| disk.inode_image(inode)).collect();
            for image in &mut images {
                image.generation = self.generation_on_disk(image.inode, image.generation);
            }
            return Image::Inodes(images);
        }
        let groups = disk.allocator.groups() as u64;
        if let Some(group) = (0..groups).find(|&group| layout.block_bitmap(group) == block) {
            return Image::Bitmap(self.allocated_in(group));
        }
        let owner = disk.directories.iter().find(|(_, directory)| directory.blocks.contains(&block.0));
        let Some((path, _)) = owner else {
            let owner = disk.inodes.iter().position(|inode| inode.tree.contains(&block));
            return owner.map_or(Image::Plain, |inode| Image::Tree { inode: inode as u32 });
        };
        let entries = disk.names.iter().filter(|(_, entry)| entry.block == block.0);
        Image::Directory {
            inode: disk.directory_inode(path).unwrap_or(ROOT_INODE),
            entries: entries.map(|(path, entry)| (path.clone(), entry.inode)).collect(),
        }
    }
}

impl Op {
    fn is(&self, command: &Command) -> bool {
        match (&self.kind, command) {
            (OpKind::Write { start, contents }, Command::Write(range, _)) => {
                *start == range.start && contents.len() as u64 == range.units
            }
            (OpKind::Trim(ranges), Command::Trim(others)) => ranges == others,
            (OpKind::Flush, Command::Flush) => true,
            _ => false,
        }
    }

    pub fn is_trim(&self) -> bool {
        matches!(self.kind, OpKind::Trim(_))
    }

    pub fn is_flush(&self) -> bool {
        matches!(self.kind, OpKind::Flush)
    }

    /// Returns true if both commands write or trim a common unit.
    pub fn touches(&self, other: &Self) -> bool {
        let overlap = |a: &UnitRange, b: &UnitRange| a.start < b.end() && b.start < a.end();
        let others = other.ranges();
        self.ranges().iter().any(|a| others.iter().any(|b| overlap(a, b)))
    }

    /// Returns the units that the command writes or trims, as runs.
    pub fn ranges(&self) -> Vec<UnitRange> {
        match &self.kind {
            OpKind::Write { start, contents } => vec![UnitRange::new(*start, contents.len() as u64)],
            OpKind::Trim(ranges) => ranges.clone(),
            OpKind::Flush => Vec::new(),
        }
    }
}
