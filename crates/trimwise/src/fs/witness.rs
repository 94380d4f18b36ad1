//! The crash checker's recorder of the contents of each write.
//!
//! The model stores no data, so a crash could not be examined afterwards. A witness therefore records the contents of
//! each write's blocks: for a file's page, its file and its version; for a metadata block, an image frozen when its
//! transaction was closed; for a log block, the contents that jbd2 would find there. It also records the file system's
//! promises: an `fsync` that has returned, a removal that is durable. Without a witness this costs only a test for
//! `None`. Everything goes into a [`Record`], which `crash` reads.
//!
//! One mount and one queue share a witness.

mod record;

use std::cell::RefCell;
use std::rc::Rc;

pub use super::inode::FileExtent;
pub use super::journal::Tail;
use super::journal::{REVOKES_PER_BLOCK, TAGS_PER_DESCRIPTOR};
use super::layout::{Layout, ROOT_INODE};
use super::{Disk, Ext4, Volume};
use crate::block::{BlockQueue, Command, Stage};
use crate::units::{Lpn, UnitRange};

pub use record::{
    Content, ContentId, Event, Image, InodeImage, NEVER, Op, OpKind, Page, Promise, Record, Removal, TRIMMED,
    UNKNOWN,
};

#[derive(Debug)]
pub struct Witness(RefCell<Record>);

pub(super) struct Frozen {
    /// Revokes, descriptors and metadata, in the order in which they are written.
    pub log: Vec<ContentId>,
    pub commit: ContentId,
}

impl Witness {
    /// Starts with a freshly formatted volume, and watches its queue from now on.
    pub fn new(volume: &Volume) -> Rc<Self> {
        let mut record = Record {
            contents: vec![Content::Never, Content::Trimmed, Content::Unknown],
            ..Record::default()
        };
        let disk = &volume.disk;
        record.allocated = vec![true; disk.layout.total_units() as usize];
        disk.allocator.free_from(0, u64::MAX).for_each(|extent| record.set_allocated(extent, false));
        let small = disk.layout.initial_blocks().into_iter().flat_map(UnitRange::iter);
        for block in small.chain([disk.layout.inode_block(ROOT_INODE)]) {
            let image = record.freeze(disk, block);
            let content = record.add(Content::Metadata { block: block.0, image });
            record.initial.push((block.0, content));
        }
        let tail = record.add(Content::Tail(Tail::FORMATTED));
        record.initial.push((disk.layout.journal.start.0, tail));
        let witness = Rc::new(Self(RefCell::new(record)));
        let sink = Rc::clone(&witness);
        volume.queue.trace(Some(Box::new(move |_, stage, command| {
            sink.0.borrow_mut().note(stage, command);
        })));
        witness
    }

    pub fn end(&self, queue: &BlockQueue) -> Record {
        queue.trace(None);
        self.0.take()
    }

    /// Records that the device was told at no cost that these blocks are free.
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

    pub(super) fn page_written(&self, inode: u32, first_page: u64, pages: u64) {
        let record = &mut *self.0.borrow_mut();
        record.last_version += 1;
        let versions = record.versions.entry(inode).or_default();
        let (from, to) = (first_page as usize, (first_page + pages) as usize);
        versions.resize(versions.len().max(to), 0);
        versions[from..to].fill(record.last_version);
    }

    pub(super) fn created(&self, inode: u32) {
        self.0.borrow_mut().removed.remove(&inode);
    }

    pub(super) fn truncated(&self, inode: u32) {
        self.destroyed(inode);
        self.0.borrow_mut().versions.remove(&inode);
    }

    /// Records that a name was removed under a handle of transaction `tid`.
    pub(super) fn unlinked(&self, path: &str, inode: u32, generation: u32, tid: u64) {
        self.destroyed(inode);
        let record = &mut *self.0.borrow_mut();
        record.removed.insert(inode);
        record.removals_open.push(record.removals.len());
        record.removals.push(Removal { path: path.into(), inode, generation, tid });
    }

    pub(super) fn renamed(&self, inode: u32) {
        self.destroyed(inode);
    }

    fn destroyed(&self, inode: u32) {
        let record = &mut *self.0.borrow_mut();
        *record.destroyed.entry(inode).or_default() += 1;
        record.events.push(Event::Destroyed(inode));
    }

    /// Records that a file's pages from `page` on are being written to these blocks.
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

    /// Freezes the metadata of a transaction that was closed, and composes its log blocks.
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

    /// Records that the committed contents of a metadata block are being written to its place.
    pub(super) fn checkpointed(&self, block: Lpn) {
        let record = &mut *self.0.borrow_mut();
        let content = record.frozen.get(&block.0).copied().unwrap_or(UNKNOWN);
        record.submit(block, content);
    }
}

/// Promises to make when a call returns, each with the number of times that its file had been destroyed.
pub(super) struct PromiseBegun(Vec<(Promise, u64)>);

impl Ext4 {
    /// Notes the state that a call is about to make durable: of one file (path and inode), or of all.
    pub(super) fn begin_promise(&self, file: Option<(&str, u32)>) -> Option<PromiseBegun> {
        let witness = self.0.witness.as_ref()?;
        let state = &*self.0.state.borrow();
        let mut files: Vec<(&str, u32)> = match file {
            // The file's name may have changed since it was opened.
            Some((path, inode)) => {
                let has_it = |entry: &super::Entry| entry.inode == inode && !entry.is_directory;
                let found = state.disk.names.get_key_value(path).filter(|(_, entry)| has_it(entry));
                let found = found.or_else(|| state.disk.names.iter().find(|(_, entry)| has_it(entry)));
                found.map(|(path, _)| (&**path, inode)).into_iter().collect()
            }
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
                size_bytes: state.disk.inodes[inode as usize].size_bytes,
                versions: record.versions.get(&inode).cloned().unwrap_or_default(),
            };
            (promise, record.destroyed.get(&inode).copied().unwrap_or(0))
        };
        Some(PromiseBegun(files.into_iter().map(promise).collect()))
    }

    /// Records the promises when the call returns.
    pub(super) fn keep_promise(&self, begun: Option<PromiseBegun>) {
        let (Some(witness), Some(PromiseBegun(promises))) = (&self.0.witness, begun) else { return };
        let committed = self.0.state.borrow().journal.committed;
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
    pub(super) fn directory_inode(&self, path: &str) -> Option<u32> {
        if path.is_empty() { Some(ROOT_INODE) } else { self.names.get(path).map(|entry| entry.inode) }
    }

    fn inode_image(&self, inode: u32) -> Option<InodeImage> {
        let slot = self.inodes.get(inode).filter(|slot| slot.in_use)?;
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
            unwritten: slot.unwritten.clone(),
            tree: slot.tree.clone(),
        })
    }
}

impl Volume {
    pub fn layout(&self) -> &Layout {
        &self.disk.layout
    }
}
