//! The journal, after JBD2 in ordered mode.
//!
//! Metadata changes join the *running* transaction. Every five seconds, or on request, the journal thread makes it the
//! *committing* one: it writes descriptors and metadata blocks to the log, waits for the transaction's data (ordered
//! mode), flushes, writes the commit block, flushes. From then on the blocks that the transaction freed can be trimmed;
//! up to Linux 5.14 the thread does that itself before it declares the commit done. Only then can it start the next
//! commit: so slow discards back up into the running transaction.
//!
//! The running transaction may not outgrow a quarter of the journal, and a new handle needs room in the log for a whole
//! transaction. If there is none, the oldest checkpointed metadata are written to their places. If one of those buffers
//! belongs to a newer transaction, that transaction must be committed first (`jbd2_log_do_checkpoint`).
//!
//! A buffer that is being written, to the log or to its place, cannot be changed: `do_get_write_access`
//! waits for the I/O.
//!
//! Recovery relies on these rules, and `crash` checks them:
//!
//! - All changes under one [`Handle`] belong to one transaction: a commit waits until the handles of its transaction
//!   have ended (`T_LOCKED`), and no new handle starts meanwhile.
//! - Log space is reused only when the tail on the device lies behind it, and the tail moves only after a flush has
//!   made the checkpointed metadata durable in their places (`jbd2_cleanup_journal_tail`, `jbd2_update_log_tail`). The
//!   first block of the journal, its superblock, holds the tail.
//! - A freed metadata block is revoked, so that a replay does not overwrite its next owner.
//!
//! This file has the journal's state. In `handle` metadata join a transaction, `commit` is the journal thread,
//! `checkpoint` makes room in the log.

mod checkpoint;
mod commit;
mod handle;

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::hash::WordMap;
use crate::units::{Lpn, SimDuration, SimTime, UnitRange};

pub(super) use handle::Handle;

/// Time that a transaction runs before its automatic commit (ext4: `commit=5`).
pub const COMMIT_INTERVAL: SimDuration = SimDuration::from_secs(5);

/// Log blocks kept back for control blocks (`jbd2_log_space_left`).
const RESERVED_LOG_BLOCKS: u64 = 32;

/// Metadata blocks that one descriptor block names: tags of 16 bytes after a header of 12 and the first tag's UUID of 16,
/// until fewer than 36 bytes are left (`jbd2_journal_commit_transaction`, with checksums).
pub(super) const TAGS_PER_DESCRIPTOR: u64 = 253;

/// Freed metadata blocks that one revoke block names: 8 bytes each between a header of 16 and a checksum of 4
/// (`write_one_revoke_record`).
pub(super) const REVOKES_PER_BLOCK: u64 = 509;

pub(crate) type BufferId = u32;

#[derive(Clone, Debug, Default)]
struct Buffer {
    block: u64,
    in_running: bool,
    in_committing: bool,
    locked: bool,
    /// The committed transaction that waits for this buffer to reach its place; 0 if the buffer is clean.
    checkpoint: u64,
    dirty_since: SimTime,
    /// The buffer's page in the drive's page cache counts as dirty. It does until write-back looks at it, even if the
    /// buffer has changed since.
    is_page_dirty: bool,
}

#[derive(Debug)]
struct Transaction {
    tid: u64,
    started: SimTime,
    buffers: Vec<BufferId>,
    freed: Vec<UnitRange>,
    /// Metadata blocks that the transaction frees. Once it is durable they no longer need to reach their places.
    revoked: Vec<BufferId>,
    /// Data writes of this transaction that the device has not acknowledged (ordered mode).
    ordered: Rc<Cell<u64>>,
    handles: Rc<Cell<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Committing {
    tid: u64,
    blocks: u64,
    start: u64,
    /// The last flush has begun. It does not cover later writes (`T_COMMIT_JFLUSH`).
    is_flushing: bool,
}

/// Where recovery starts to read the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    pub tid: u64,
    /// Block of the log, counted from the block after the journal's superblock.
    pub offset: u64,
}

impl Tail {
    pub(crate) const FORMATTED: Self = Self { tid: 1, offset: 0 };
}

#[derive(Debug)]
struct Checkpoint {
    tid: u64,
    start: u64,
    log_blocks: u64,
    remaining: u64,
    buffers: Vec<BufferId>,
}

#[derive(Debug)]
pub struct Journal {
    superblock: Lpn,
    log: UnitRange,
    head: u64,
    free_blocks: u64,
    /// Number of log blocks whose metadata are in their places, but which the tail on the device has not passed yet.
    reclaimable_blocks: u64,
    /// Dirty pages of the drive's page cache: committed metadata.
    pub(super) dirty_pages: u64,
    pub(super) pages_in_writeback: u64,
    moving_tail: bool,
    /// A commit waits for the handles of its transaction; no new handle starts meanwhile.
    switching: bool,
    buffers: Vec<Buffer>,
    by_block: WordMap<u64, BufferId>,
    /// Blocks of the largest transaction (`j_max_transaction_buffers`).
    pub(super) transaction_max: u64,
    running: Option<Transaction>,
    committing: Option<Committing>,
    checkpoints: VecDeque<Checkpoint>,
    next_tid: u64,
    /// The newest transaction whose commit is declared done.
    pub(super) committed: u64,
    requested: u64,
}

impl Journal {
    /// Creates an empty journal in `blocks`, the first of which is its superblock. It continues where the last mount
    /// ended. A transaction can use at most 1/`transactions` of it.
    pub fn new(blocks: UnitRange, end: Tail, transactions: u64) -> Self {
        let log = UnitRange::new(blocks.start.offset(1), blocks.units - 1);
        Self {
            superblock: blocks.start,
            log,
            transaction_max: blocks.units / transactions,
            head: end.offset,
            free_blocks: log.units,
            reclaimable_blocks: 0,
            dirty_pages: 0,
            pages_in_writeback: 0,
            moving_tail: false,
            switching: false,
            buffers: Vec::new(),
            by_block: WordMap::default(),
            running: None,
            committing: None,
            checkpoints: VecDeque::new(),
            next_tid: end.tid,
            committed: end.tid - 1,
            requested: 0,
        }
    }

    pub fn buffer(&mut self, block: Lpn) -> BufferId {
        let next = self.buffers.len() as BufferId;
        let id = *self.by_block.entry(block.0).or_insert(next);
        if id == next {
            self.buffers.push(Buffer { block: block.0, ..Buffer::default() });
        }
        id
    }

    /// Locks a metadata block as if it were being written to its place, or unlocks it.
    #[cfg(test)]
    pub(crate) fn lock_for_test(&mut self, block: Lpn, locked: bool) {
        let id = self.buffer(block);
        self.buffers[id as usize].locked = locked;
    }

    pub(crate) fn is_committed(&self, tid: u64) -> bool {
        tid <= self.committed
    }

    pub(crate) fn running_tid(&self) -> Option<u64> {
        self.running.as_ref().map(|t| t.tid)
    }

    pub(crate) fn newest_open_tid(&self) -> Option<u64> {
        self.running_tid().or(self.committing.map(|c| c.tid))
    }

    /// Returns true if the commit of `tid` will still flush the device (`jbd2_trans_will_send_data_barrier`).
    pub(crate) fn will_flush(&self, tid: u64) -> bool {
        !self.is_committed(tid) && self.committing.is_none_or(|c| c.tid != tid || !c.is_flushing)
    }

    pub(crate) fn ordered_counter(&mut self, now: SimTime) -> Rc<Cell<u64>> {
        Rc::clone(&self.running(now).ordered)
    }

    pub fn free(&mut self, now: SimTime, range: UnitRange) {
        self.running(now).freed.push(range);
    }

    fn running(&mut self, now: SimTime) -> &mut Transaction {
        let next_tid = &mut self.next_tid;
        self.running.get_or_insert_with(|| {
            let tid = *next_tid;
            *next_tid += 1;
            Transaction {
                tid,
                started: now,
                buffers: Vec::new(),
                freed: Vec::new(),
                revoked: Vec::new(),
                ordered: Rc::default(),
                handles: Rc::default(),
            }
        })
    }

    /// Returns the log blocks available to a new handle (`jbd2_log_space_left`; until 76c399045610 in 3.11 an eighth less).
    fn space_left(&self) -> u64 {
        self.free_blocks.saturating_sub(RESERVED_LOG_BLOCKS)
    }

    /// Returns the log blocks that must be available before a handle can start (`add_transaction_credits`).
    fn space_needed(&self) -> u64 {
        self.transaction_max + self.committing.map_or(0, |c| c.blocks)
    }

    /// Takes a buffer off its checkpoint list, because it is clean or has moved on to a newer transaction.
    fn leave_checkpoint(&mut self, id: BufferId) {
        let tid = std::mem::take(&mut self.buffers[id as usize].checkpoint);
        if tid != 0
            && let Some(checkpoint) = self.checkpoints.iter_mut().find(|c| c.tid == tid)
        {
            checkpoint.remaining -= 1;
        }
        self.advance_tail();
    }

    fn advance_tail(&mut self) {
        while self.checkpoints.front().is_some_and(|c| c.remaining == 0) {
            if let Some(done) = self.checkpoints.pop_front() {
                self.reclaimable_blocks += done.log_blocks;
            }
        }
    }

    /// Returns the tail that would be possible if all metadata in their places were durable
    /// (`jbd2_journal_get_log_tail`), and the number of log blocks that it would free.
    pub(crate) fn possible_tail(&self) -> (Tail, u64) {
        let oldest = self.checkpoints.front().map(|c| Tail { tid: c.tid, offset: c.start });
        let committing = self.committing.map(|c| Tail { tid: c.tid, offset: c.start });
        let next = Tail { tid: self.running_tid().unwrap_or(self.next_tid), offset: self.head };
        (oldest.or(committing).unwrap_or(next), self.reclaimable_blocks)
    }

    /// Reserves `blocks` at the head of the log. They are two runs where the log wraps.
    fn log_blocks(&mut self, blocks: u64) -> Vec<UnitRange> {
        self.free_blocks = self.free_blocks.saturating_sub(blocks);
        let mut ranges = Vec::with_capacity(2);
        let mut left = blocks;
        while left > 0 {
            let run = left.min(self.log.units - self.head);
            ranges.push(UnitRange::new(self.log.start.offset(self.head), run));
            self.head = (self.head + run) % self.log.units;
            left -= run;
        }
        ranges
    }

    fn is_idle_dirty(&self, id: BufferId) -> bool {
        let b = &self.buffers[id as usize];
        b.checkpoint != 0 && !b.in_running && !b.in_committing && !b.locked
    }

    /// Marks the pages of these committed buffers dirty, except those that a newer transaction has taken over. Returns
    /// the number that became dirty.
    fn mark_dirty(&mut self, ids: &[BufferId]) -> u64 {
        let before = self.dirty_pages;
        for &id in ids {
            let buffer = &mut self.buffers[id as usize];
            if buffer.checkpoint != 0 && !buffer.in_running && !buffer.in_committing && !buffer.is_page_dirty
            {
                buffer.is_page_dirty = true;
                self.dirty_pages += 1;
            }
        }
        self.dirty_pages - before
    }

    /// Marks the pages of all buffers of a just committed transaction dirty. Returns the number that became dirty.
    pub(crate) fn mark_transaction_dirty(&mut self, tid: u64) -> u64 {
        let newest = self.checkpoints.back().filter(|checkpoint| checkpoint.tid == tid);
        let ids = newest.map(|checkpoint| checkpoint.buffers.clone()).unwrap_or_default();
        self.mark_dirty(&ids)
    }

    /// Marks the first `pages_max` dirty pages, by block, clean. Returns those that must be written, and the number
    /// examined.
    fn take_dirty_pages(&mut self, pages_max: u64) -> (Vec<BufferId>, u64) {
        let ids = 0..self.buffers.len() as BufferId;
        let mut dirty: Vec<BufferId> = ids.filter(|&id| self.buffers[id as usize].is_page_dirty).collect();
        self.sort_by_block(&mut dirty);
        dirty.truncate(pages_max as usize);
        for &id in &dirty {
            self.buffers[id as usize].is_page_dirty = false;
        }
        self.dirty_pages -= dirty.len() as u64;
        let looked_at = dirty.len() as u64;
        dirty.retain(|&id| self.is_idle_dirty(id));
        (dirty, looked_at)
    }

    /// Returns the committed metadata, by block, that can be written to their places now.
    fn writable(&self, expired_before: Option<SimTime>) -> Vec<BufferId> {
        let due = |b: &Buffer| expired_before.is_none_or(|limit| b.dirty_since <= limit);
        let ids = 0..self.buffers.len() as BufferId;
        let mut ready: Vec<BufferId> = ids.filter(|&id| self.is_idle_dirty(id)).collect();
        // Like any inode, the block device's is written as a whole once its oldest page has expired.
        if !ready.iter().any(|&id| due(&self.buffers[id as usize])) {
            return Vec::new();
        }
        self.sort_by_block(&mut ready);
        ready
    }

    fn sort_by_block(&self, ids: &mut [BufferId]) {
        ids.sort_unstable_by_key(|&id| self.buffers[id as usize].block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: u64 = 3;

    /// A journal of 1,024 blocks with four buffers of one committed transaction, each dirty since its own second.
    fn journal() -> Journal {
        let mut journal = Journal::new(UnitRange::new(Lpn(0), 1_024), Tail::FORMATTED, 4);
        let buffers: Vec<BufferId> = [900, 700, 800, 600].map(|block| journal.buffer(Lpn(block))).to_vec();
        for (second, &id) in (1..).zip(&buffers) {
            let buffer = &mut journal.buffers[id as usize];
            (buffer.checkpoint, buffer.dirty_since) = (COMMITTED, SimTime(second));
        }
        let remaining = buffers.len() as u64;
        let checkpoint = Checkpoint { tid: COMMITTED, start: 40, log_blocks: 6, remaining, buffers };
        journal.checkpoints.push_back(checkpoint);
        journal
    }

    #[test]
    fn a_handle_needs_room_for_a_transaction_besides_the_one_being_committed() {
        let mut journal = journal();
        assert_eq!((journal.transaction_max, journal.space_needed()), (256, 256));
        assert_eq!(journal.space_left(), 1_023 - 32);
        journal.committing = Some(Committing { tid: 4, blocks: 100, start: 46, is_flushing: false });
        assert_eq!(journal.space_needed(), 356);
    }

    /// The oldest transaction that is not in its place, then the one being committed, then the next.
    #[test]
    fn the_tail_stays_before_whatever_a_recovery_needs() {
        let mut journal = journal();
        journal.head = 60;
        journal.next_tid = 5;
        journal.committing = Some(Committing { tid: 4, blocks: 8, start: 46, is_flushing: false });
        assert_eq!(journal.possible_tail(), (Tail { tid: COMMITTED, offset: 40 }, 0));
        (0..4).for_each(|id| journal.leave_checkpoint(id));
        assert_eq!(journal.possible_tail(), (Tail { tid: 4, offset: 46 }, 6));
        journal.committing = None;
        assert_eq!(journal.possible_tail(), (Tail { tid: 5, offset: 60 }, 6));
    }

    /// One has joined the next transaction before it was marked, one after that.
    #[test]
    fn dirty_pages_are_written_in_order_unless_a_newer_transaction_has_them() {
        let mut journal = journal();
        journal.buffers[1].in_running = true;
        assert_eq!((journal.mark_transaction_dirty(COMMITTED), journal.dirty_pages), (3, 3));
        assert_eq!(journal.mark_transaction_dirty(COMMITTED), 0, "they are dirty already");
        journal.buffers[2].in_running = true;
        assert_eq!(journal.take_dirty_pages(2), (vec![3], 2));
        assert_eq!(journal.dirty_pages, 1);
        assert_eq!(journal.take_dirty_pages(2), (vec![0], 1));
        assert_eq!((journal.take_dirty_pages(2), journal.dirty_pages), ((vec![], 0), 0));
    }

    #[test]
    fn all_committed_metadata_are_written_once_the_oldest_is_due() {
        let journal = journal();
        assert_eq!(journal.writable(Some(SimTime(0))), [0u32; 0]);
        assert_eq!(journal.writable(Some(SimTime(1))), [3, 1, 2, 0]);
        assert_eq!(journal.writable(None), [3, 1, 2, 0]);
    }
}
