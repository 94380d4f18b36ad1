//! What each write carries: the crash checker's recorder.
//!
//! The model stores no data, so that a crash cannot be looked at afterwards. A witness notes beside it what
//! the blocks of each write hold: of a file's page whose it is and how old, of a metadata block an image as it
//! was frozen when its transaction was closed, of a log block what jbd2 would find there; and what the file
//! system has promised whom: an `fsync` that has returned, a removal that is durable. Without a witness none
//! of this costs anything but a test for `None`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use super::alloc::GROUP_UNITS;
use super::inode::FileExtent;
pub use super::journal::Tail;
use super::journal::{REVOKES_PER_BLOCK, TAGS_PER_DESCRIPTOR};
use super::layout::{Layout, ROOT_INODE};
use super::{Disk, Ext4, Volume};
use crate::block::{BlockQueue, Command, Stage};
use crate::units::{Lpn, UnitRange};

/// What a block holds: an index into [`Record::contents`].
pub type ContentId = u32;
/// Nothing was ever written.
pub const NEVER: ContentId = 0;
/// The device was told that nobody needs it.
pub const TRIMMED: ContentId = 1;
/// Written past the witness: a hole in the checker itself.
pub const UNKNOWN: ContentId = 2;

/// What a block can hold.
#[derive(Clone, Debug)]
pub enum Content {
    /// Nothing.
    Never,
    /// Nothing any more.
    Trimmed,
    /// The witness does not know.
    Unknown,
    /// A page of a file.
    Page(Page),
    /// A metadata block in its place.
    Metadata { block: u64, image: Image },
    /// Log: where metadata blocks go that follow it.
    Descriptor { tid: u64, blocks: Vec<u64> },
    /// Log: blocks that must not be replayed from this or an older transaction.
    Revoke { tid: u64, blocks: Vec<u64> },
    /// Log: the frozen contents of a metadata block.
    Logged { tid: u64, block: u64, content: ContentId },
    /// Log: the transaction is complete.
    Commit { tid: u64 },
    /// The journal's superblock.
    Tail(Tail),
}

/// One page of a file, at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The file's inode and how many files had it before.
    pub inode: u32,
    pub generation: u32,
    /// Which page.
    pub page: u64,
    /// When it was written by the workload, as a sequence number.
    pub version: u64,
}

/// What a metadata block says.
#[derive(Clone, Debug)]
pub enum Image {
    /// Nothing that the checker needs.
    Plain,
    /// The allocated blocks of a group, as runs in order.
    Bitmap(Vec<UnitRange>),
    /// Those inodes of the block that are in use, in order.
    Inodes(Vec<InodeImage>),
    /// A block of a directory: names and inodes.
    Directory { inode: u32, entries: BTreeMap<Box<str>, u32> },
}

/// An inode on the disk.
#[derive(Clone, Debug)]
pub struct InodeImage {
    pub inode: u32,
    pub generation: u32,
    pub is_directory: bool,
    pub size_bytes: u64,
    pub extents: Vec<FileExtent>,
}

/// What the file system has told somebody.
#[derive(Clone, Debug)]
pub struct Promise {
    pub path: Box<str>,
    pub inode: u32,
    pub generation: u32,
    /// Version of each page when `fsync` was called; 0 for a hole.
    pub versions: Vec<u64>,
}

/// A file that was removed.
#[derive(Clone, Debug)]
pub struct Removal {
    pub path: Box<str>,
    pub inode: u32,
    pub generation: u32,
    tid: u64,
}

/// A command that the device was given.
#[derive(Clone, Debug)]
pub struct Op {
    pub kind: OpKind,
    /// Index of the event.
    pub dispatched: usize,
    /// Index of the event; `usize::MAX` if it never was.
    pub completed: usize,
}

#[derive(Clone, Debug)]
pub enum OpKind {
    Write { start: Lpn, contents: Vec<ContentId> },
    Trim(Vec<UnitRange>),
    Flush,
}

/// What happened, in order. The power can be cut behind each of them.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A command was handed to the device, or acknowledged by it.
    Dispatched(usize),
    Completed(usize),
    /// An `fsync` or `sync` returned (index into [`Record::promises`]).
    Promised(usize),
    /// The removal of a file became durable, and somebody was told (index into [`Record::removals`]).
    Gone(usize),
    /// This inode's file is being emptied or removed: what was promised of it holds no longer.
    Destroyed(u32),
}

/// All that a witness has seen.
#[derive(Debug, Default)]
pub struct Record {
    pub contents: Vec<Content>,
    pub ops: Vec<Op>,
    pub events: Vec<Event>,
    pub promises: Vec<Promise>,
    pub removals: Vec<Removal>,
    /// What the device held when the witness began: metadata blocks in their places.
    pub initial: Vec<(u64, ContentId)>,
    outstanding: Vec<usize>,
    /// Contents of writes that were submitted and not yet dispatched, in order.
    submitted: HashMap<u64, VecDeque<ContentId>>,
    /// The newest committed or committing image of each metadata block.
    frozen: BTreeMap<u64, ContentId>,
    /// One flag a block: whether the bitmaps have it allocated.
    allocated: Vec<bool>,
    versions: BTreeMap<u32, Vec<u64>>,
    last_version: u64,
    /// Inodes whose file was removed and that no other file has yet.
    removed: BTreeSet<u32>,
    /// How often each inode's file was emptied or removed.
    destroyed: BTreeMap<u32, u64>,
    /// Removals that nobody was told of yet.
    removals_open: Vec<usize>,
}

/// The recorder; one mount and one queue share it.
#[derive(Debug)]
pub struct Witness(RefCell<Record>);

/// The contents of a transaction's log blocks.
pub struct Frozen {
    /// Revokes, descriptors and metadata, in the order in which they are written.
    pub log: Vec<ContentId>,
    pub commit: ContentId,
}

impl Record {
    /// What an id stands for.
    pub fn content(&self, id: ContentId) -> &Content {
        &self.contents[id as usize]
    }

    /// The metadata that a block holds in its place; `None` if it holds anything else.
    pub fn image(&self, id: ContentId, at: u64) -> Option<&Image> {
        match self.content(id) {
            Content::Metadata { block, image } if *block == at => Some(image),
            _ => None,
        }
    }

    /// A block's contents in words.
    pub fn describe(&self, id: ContentId) -> String {
        match self.content(id) {
            Content::Never => "nothing: it was never written".to_owned(),
            Content::Trimmed => "nothing: it was trimmed".to_owned(),
            Content::Unknown => "what nobody has noted".to_owned(),
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

    /// An inode's generation on the disk: the model counts on when a name is taken away, a disk when the inode
    /// gets its next file.
    fn generation_on_disk(&self, inode: u32, generation: u32) -> u32 {
        generation - u32::from(self.removed.contains(&inode))
    }

    fn add(&mut self, content: Content) -> ContentId {
        self.contents.push(content);
        (self.contents.len() - 1) as ContentId
    }

    fn submit(&mut self, at: Lpn, content: ContentId) {
        self.submitted.entry(at.0).or_default().push_back(content);
    }

    fn note(&mut self, stage: Stage, command: &Command) {
        let at = self.events.len();
        if stage == Stage::Completed {
            let is_it = |&i: &usize| self.ops[i].is(command);
            // Of equal ones the first: the device completes them in order.
            let Some(position) = self.outstanding.iter().position(is_it) else { return };
            let op = self.outstanding.remove(position);
            self.ops[op].completed = at;
            self.events.push(Event::Completed(op));
            return;
        }
        let kind = match command {
            Command::Read(_) => return,
            Command::Flush => OpKind::Flush,
            Command::Trim(ranges) => OpKind::Trim(ranges.clone()),
            Command::Write(range) => {
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

    /// The allocated blocks of a group, as runs in order.
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

    fn set_allocated(&mut self, range: UnitRange, allocated: bool) {
        self.allocated[range.start.0 as usize..range.end().0 as usize].fill(allocated);
    }

    fn freeze(&self, disk: &Disk, block: Lpn) -> Image {
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
        let Some((path, _)) = owner else { return Image::Plain };
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
            (OpKind::Write { start, contents }, Command::Write(range)) => {
                *start == range.start && contents.len() as u64 == range.units
            }
            (OpKind::Trim(ranges), Command::Trim(others)) => ranges == others,
            (OpKind::Flush, Command::Flush) => true,
            _ => false,
        }
    }

    /// Whether it is a TRIM.
    pub fn is_trim(&self) -> bool {
        matches!(self.kind, OpKind::Trim(_))
    }

    /// Whether it is a flush.
    pub fn is_flush(&self) -> bool {
        matches!(self.kind, OpKind::Flush)
    }

    /// The units that it writes or trims, as runs.
    pub fn ranges(&self) -> Vec<UnitRange> {
        match &self.kind {
            OpKind::Write { start, contents } => vec![UnitRange::new(*start, contents.len() as u64)],
            OpKind::Trim(ranges) => ranges.clone(),
            OpKind::Flush => Vec::new(),
        }
    }
}

impl Witness {
    /// Begins with a volume that has just been formatted, and looks at its queue from now on.
    pub fn new(volume: &Volume) -> Rc<Self> {
        let mut record = Record {
            contents: vec![Content::Never, Content::Trimmed, Content::Unknown],
            ..Record::default()
        };
        let disk = &volume.disk;
        let groups = disk.allocator.groups() as u64;
        record.allocated = vec![true; disk.layout.total_units() as usize];
        for extent in (0..groups).flat_map(|group| disk.allocator.free_in_group(group)) {
            record.set_allocated(extent, false);
        }
        let small = disk.layout.initial_blocks().into_iter().flat_map(UnitRange::iter);
        for block in small.chain([disk.layout.inode_block(ROOT_INODE)]) {
            let image = record.freeze(disk, block);
            let content = record.add(Content::Metadata { block: block.0, image });
            record.initial.push((block.0, content));
        }
        let tail = record.add(Content::Tail(Tail { tid: 1, offset: 0 }));
        record.initial.push((disk.layout.journal.start.0, tail));
        let witness = Rc::new(Self(RefCell::new(record)));
        let sink = Rc::clone(&witness);
        volume.queue.trace(Some(Box::new(move |_, stage, command| {
            sink.0.borrow_mut().note(stage, command);
        })));
        witness
    }

    /// Stops looking at the queue and answers what was seen.
    pub fn end(&self, queue: &BlockQueue) -> Record {
        queue.trace(None);
        self.0.take()
    }

    /// The device knows at once and for free that these blocks are free.
    pub(super) fn revealed(&self, range: UnitRange) {
        let record = &mut *self.0.borrow_mut();
        let command = Command::Trim(vec![range]);
        record.note(Stage::Dispatched, &command);
        record.note(Stage::Completed, &command);
    }

    pub(super) fn allocated(&self, range: UnitRange) {
        self.0.borrow_mut().set_allocated(range, true);
    }

    pub(super) fn freed(&self, range: UnitRange) {
        self.0.borrow_mut().set_allocated(range, false);
    }

    /// The workload has written pages of a file.
    pub(super) fn page_written(&self, inode: u32, first_page: u64, pages: u64) {
        let record = &mut *self.0.borrow_mut();
        record.last_version += 1;
        let versions = record.versions.entry(inode).or_default();
        let (from, to) = (first_page as usize, (first_page + pages) as usize);
        versions.resize(versions.len().max(to), 0);
        versions[from..to].fill(record.last_version);
    }

    /// An inode has a new file.
    pub(super) fn created(&self, inode: u32) {
        self.0.borrow_mut().removed.remove(&inode);
    }

    /// A file's pages are gone.
    pub(super) fn truncated(&self, inode: u32) {
        self.destroyed(inode);
        self.0.borrow_mut().versions.remove(&inode);
    }

    /// A name was taken away under a handle of transaction `tid`.
    pub(super) fn unlinked(&self, path: &str, inode: u32, generation: u32, tid: u64) {
        self.destroyed(inode);
        let record = &mut *self.0.borrow_mut();
        record.removed.insert(inode);
        record.removals_open.push(record.removals.len());
        record.removals.push(Removal { path: path.into(), inode, generation, tid });
    }

    fn destroyed(&self, inode: u32) {
        let record = &mut *self.0.borrow_mut();
        *record.destroyed.entry(inode).or_default() += 1;
        record.events.push(Event::Destroyed(inode));
    }

    /// A file's pages from `page` on are on their way to these blocks.
    pub(super) fn data_submitted(&self, inode: u32, generation: u32, page: u64, blocks: UnitRange) {
        let record = &mut *self.0.borrow_mut();
        let generation = record.generation_on_disk(inode, generation);
        for (page, block) in (page..).zip(blocks.iter()) {
            let version = record.versions.get(&inode).and_then(|v| v.get(page as usize));
            let version = version.copied().unwrap_or(0);
            let content = record.add(Content::Page(Page { inode, generation, page, version }));
            record.submit(block, content);
        }
    }

    /// A transaction has been closed: freezes its metadata and composes its log blocks.
    pub(super) fn transaction_frozen(
        &self,
        tid: u64,
        blocks: &[u64],
        revoked: &[u64],
        disk: &Disk,
    ) -> Frozen {
        let record = &mut *self.0.borrow_mut();
        let mut log = Vec::new();
        for blocks in revoked.chunks(REVOKES_PER_BLOCK as usize) {
            log.push(record.add(Content::Revoke { tid, blocks: blocks.to_vec() }));
        }
        for blocks in blocks.chunks(TAGS_PER_DESCRIPTOR as usize) {
            log.push(record.add(Content::Descriptor { tid, blocks: blocks.to_vec() }));
            for &block in blocks {
                let image = record.freeze(disk, Lpn(block));
                let content = record.add(Content::Metadata { block, image });
                record.frozen.insert(block, content);
                log.push(record.add(Content::Logged { tid, block, content }));
            }
        }
        let commit = record.add(Content::Commit { tid });
        Frozen { log, commit }
    }

    /// Log blocks are on their way; `contents` may be longer.
    pub(super) fn log_written(&self, range: UnitRange, contents: &[ContentId]) {
        let record = &mut *self.0.borrow_mut();
        for (at, &content) in range.iter().zip(contents) {
            record.submit(at, content);
        }
    }

    pub(super) fn tail_written(&self, superblock: Lpn, tail: Tail) {
        let record = &mut *self.0.borrow_mut();
        let content = record.add(Content::Tail(tail));
        record.submit(superblock, content);
    }

    /// The committed contents of a metadata block are on their way to its place.
    pub(super) fn checkpointed(&self, block: Lpn) {
        let record = &mut *self.0.borrow_mut();
        let content = record.frozen.get(&block.0).copied().unwrap_or(UNKNOWN);
        record.submit(block, content);
    }
}

/// What is promised when a call returns: each with how often its file had been destroyed.
pub(super) struct PromiseBegun(Vec<(Promise, u64)>);

impl Ext4 {
    /// Somebody asks for one file (path and inode), or all, to be made durable as they are now.
    pub(super) fn begin_promise(&self, file: Option<(&str, u32)>) -> Option<PromiseBegun> {
        let witness = self.0.witness.as_ref()?;
        let state = &*self.0.state.borrow();
        let mut files: Vec<(&str, u32)> = match file {
            Some(file) => vec![file],
            None => state
                .disk
                .names
                .iter()
                .filter(|(_, entry)| !entry.is_directory)
                .map(|(path, entry)| (&**path, entry.inode))
                .collect(),
        };
        files.sort_unstable(); // the map has no order
        let record = witness.0.borrow();
        let promise = |(path, inode): (&str, u32)| {
            let promise = Promise {
                path: path.into(),
                inode,
                generation: state.disk.inodes[inode as usize].generation,
                versions: record.versions.get(&inode).cloned().unwrap_or_default(),
            };
            (promise, record.destroyed.get(&inode).copied().unwrap_or(0))
        };
        Some(PromiseBegun(files.into_iter().map(promise).collect()))
    }

    /// The call returns now.
    pub(super) fn keep_promise(&self, begun: Option<PromiseBegun>) {
        let (Some(witness), Some(PromiseBegun(promises))) = (&self.0.witness, begun) else { return };
        let committed = self.0.state.borrow().journal.committed_tid();
        let record = &mut *witness.0.borrow_mut();
        for (promise, destroyed) in promises {
            if record.destroyed.get(&promise.inode).copied().unwrap_or(0) == destroyed {
                record.events.push(Event::Promised(record.promises.len()));
                record.promises.push(promise);
            }
        }
        let (gone, open) =
            record.removals_open.iter().partition(|&&removal| record.removals[removal].tid <= committed);
        record.removals_open = open;
        let gone: Vec<usize> = gone;
        record.events.extend(gone.into_iter().map(Event::Gone));
    }
}

impl Disk {
    /// The inode of a directory.
    pub(super) fn directory_inode(&self, path: &str) -> Option<u32> {
        if path.is_empty() { Some(ROOT_INODE) } else { self.names.get(path).map(|entry| entry.inode) }
    }

    fn inode_image(&self, inode: u32) -> Option<InodeImage> {
        let slot = self.inodes.get(inode as usize).filter(|slot| slot.in_use)?;
        let is_it = |path: &&str| self.directory_inode(path) == Some(inode);
        let directory = self.directories.keys().map(|path| &**path).find(is_it);
        let mut extents = slot.extents.clone();
        if let Some(path) = directory {
            let blocks = self.directories[path].blocks.iter();
            extents.extend(
                (0..).zip(blocks).map(|(page, &b)| FileExtent { page, blocks: UnitRange::new(Lpn(b), 1) }),
            );
        }
        Some(InodeImage {
            inode,
            generation: slot.generation,
            is_directory: directory.is_some(),
            size_bytes: slot.size_bytes,
            extents,
        })
    }
}

impl Volume {
    /// Where things lie.
    pub(crate) fn layout(&self) -> &Layout {
        &self.disk.layout
    }
}
