//! The journal, after JBD2 in ordered mode.
//!
//! Metadata changes join the *running* transaction. Every five seconds, or when somebody asks, the journal
//! thread makes it the *committing* one: it writes descriptors and metadata blocks to the log, waits
//! for the transaction's data (ordered mode), flushes, writes the commit block, flushes. From then on what
//! the transaction freed may be trimmed; up to Linux 5.14 the thread does that itself before it declares
//! the commit done. Only then can it begin the next commit: this is how slow discards back up into the
//! running transaction.
//!
//! The running transaction may not outgrow a quarter of the journal, and a new handle needs room in the log
//! for a whole transaction. If there is none, the oldest checkpointed metadata are written to their places;
//! if one of those buffers belongs to a newer transaction, that one must be committed first
//! (`jbd2_log_do_checkpoint`).
//!
//! A buffer that is being written, to the log or to its place, cannot be changed: `do_get_write_access`
//! waits for the I/O.
//!
//! What a recovery relies on, and what `crash` checks:
//!
//! - What changes under one [`Handle`] belongs to one transaction: a commit waits until the handles of its
//!   transaction have ended (`T_LOCKED`), and nobody gets a new one meanwhile.
//! - Log space is used again only when the log's tail on the device lies behind it, and the tail moves only
//!   after a flush has made the checkpointed metadata durable in their places (`jbd2_cleanup_journal_tail`,
//!   `jbd2_update_log_tail`). The first block of the journal, its superblock, holds the tail.
//! - A metadata block that is freed is revoked, so that a replay does not write over whoever has it next.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::sabotage::Sabotage;
use super::{Ext4, Inner};
use crate::engine::Event;
use crate::units::{Lpn, SimDuration, SimTime, UnitRange};

/// How long a transaction runs before it is committed by itself (ext4: `commit=5`).
pub const COMMIT_INTERVAL: SimDuration = SimDuration::from_secs(5);

/// Log blocks kept back for control blocks (jbd2: `MIN_LOG_RESERVED_BLOCKS`).
const RESERVED_LOG_BLOCKS: u64 = 32;

/// Metadata blocks that one descriptor block names (16-byte tags in 4 KiB).
pub(super) const TAGS_PER_DESCRIPTOR: u64 = 254;

/// Freed metadata blocks that one revoke block names (8 bytes each behind a header of 16).
pub(super) const REVOKES_PER_BLOCK: u64 = 510;

/// Index of a metadata buffer.
pub type BufferId = u32;

#[derive(Clone, Debug, Default)]
struct Buffer {
    block: u64,
    in_running: bool,
    in_committing: bool,
    /// Being written to the log or to its place.
    locked: bool,
    /// The committed transaction that waits for it to reach its place; 0 if it is clean.
    checkpoint: u64,
    dirty_since: SimTime,
}

#[derive(Debug)]
struct Transaction {
    tid: u64,
    started: SimTime,
    buffers: Vec<BufferId>,
    freed: Vec<UnitRange>,
    /// Metadata blocks that it frees: once it is durable they need not reach their places any more.
    revoked: Vec<BufferId>,
    /// Data writes of this transaction that the device has not acknowledged (ordered mode).
    ordered: Rc<Cell<u64>>,
    /// Handles that have not ended.
    handles: Rc<Cell<u32>>,
}

/// The right to change metadata as part of one transaction, which is not committed before the handle is
/// dropped (jbd2: `handle_t`).
///
/// Its holder may wait for buffers, never for a commit, for another handle or for write-back.
#[must_use = "what is changed after the handle has ended may belong to another transaction"]
pub(super) struct Handle {
    /// The transaction.
    pub tid: u64,
    handles: Rc<Cell<u32>>,
    ended: Event,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.handles.set(self.handles.get() - 1);
        if self.handles.get() == 0 {
            self.ended.notify_all();
        }
    }
}

/// The transaction that is being committed.
#[derive(Clone, Copy, Debug)]
struct Committing {
    tid: u64,
    /// Metadata blocks.
    blocks: u64,
    /// Where it begins in the log.
    start: u64,
    /// Its last flush has begun: what is written from now on is not covered by it (`T_COMMIT_JFLUSH`).
    is_flushing: bool,
}

/// From where a recovery reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The transaction expected there.
    pub tid: u64,
    /// Block of the log, counted from behind the journal's superblock.
    pub offset: u64,
}

#[derive(Debug)]
struct Checkpoint {
    tid: u64,
    /// Where it begins in the log.
    start: u64,
    log_blocks: u64,
    /// Buffers that have not reached their place.
    remaining: u64,
    buffers: Vec<BufferId>,
}

/// The journal's state.
#[derive(Debug)]
pub struct Journal {
    /// The journal's superblock.
    superblock: Lpn,
    log: UnitRange,
    head: u64,
    free_blocks: u64,
    /// Log blocks whose metadata are in their places, but before which the tail on the device still lies.
    reclaimable_blocks: u64,
    /// Somebody is writing the tail.
    moving_tail: bool,
    /// A commit waits for the handles of its transaction: nobody gets a new one.
    switching: bool,
    buffers: Vec<Buffer>,
    by_block: HashMap<u64, BufferId>,
    running: Option<Transaction>,
    committing: Option<Committing>,
    checkpoints: VecDeque<Checkpoint>,
    next_tid: u64,
    committed: u64,
    requested: u64,
}

impl Journal {
    /// An empty journal in `blocks`, the first of which is its superblock.
    pub fn new(blocks: UnitRange) -> Self {
        let log = UnitRange::new(blocks.start.offset(1), blocks.units - 1);
        Self {
            superblock: blocks.start,
            log,
            head: 0,
            free_blocks: log.units,
            reclaimable_blocks: 0,
            moving_tail: false,
            switching: false,
            buffers: Vec::new(),
            by_block: HashMap::new(),
            running: None,
            committing: None,
            checkpoints: VecDeque::new(),
            next_tid: 1,
            committed: 0,
            requested: 0,
        }
    }

    /// The buffer of a metadata block.
    pub fn buffer(&mut self, block: Lpn) -> BufferId {
        let next = self.buffers.len() as BufferId;
        let id = *self.by_block.entry(block.0).or_insert(next);
        if id == next {
            self.buffers.push(Buffer { block: block.0, ..Buffer::default() });
        }
        id
    }

    /// As if a metadata block were being written to its place, or no more.
    #[cfg(test)]
    pub fn lock_for_test(&mut self, block: Lpn, locked: bool) {
        let id = self.buffer(block);
        self.buffers[id as usize].locked = locked;
    }

    /// Whether a transaction is durable.
    pub fn is_committed(&self, tid: u64) -> bool {
        tid <= self.committed
    }

    /// The running transaction's number, if there is one.
    pub fn running_tid(&self) -> Option<u64> {
        self.running.as_ref().map(|t| t.tid)
    }

    /// The newest transaction that is not durable yet.
    pub fn newest_open_tid(&self) -> Option<u64> {
        self.running_tid().or(self.committing.map(|c| c.tid))
    }

    /// The newest transaction that is durable and declared so.
    pub fn committed_tid(&self) -> u64 {
        self.committed
    }

    /// Whether a commit of `tid` is still to flush the device (`jbd2_trans_will_send_data_barrier`).
    pub fn will_flush(&self, tid: u64) -> bool {
        !self.is_committed(tid) && self.committing.is_none_or(|c| c.tid != tid || !c.is_flushing)
    }

    /// The counter of outstanding ordered data of the running transaction.
    pub fn ordered_counter(&mut self, now: SimTime) -> Rc<Cell<u64>> {
        Rc::clone(&self.running(now).ordered)
    }

    /// Notes blocks that the running transaction frees.
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

    /// Largest transaction: a quarter of the journal (`j_max_transaction_buffers`).
    fn transaction_max(&self) -> u64 {
        (self.log.units + 1) / 4
    }

    /// Room that a new handle may count on (`__jbd2_log_space_left`).
    fn space_left(&self) -> u64 {
        let left = self.free_blocks.saturating_sub(RESERVED_LOG_BLOCKS);
        left - left / 8
    }

    /// Room that must be left before a handle may start (`jbd_space_needed`).
    fn space_needed(&self) -> u64 {
        self.transaction_max() + self.committing.map_or(0, |c| c.blocks)
    }

    /// Takes a buffer off its checkpoint list; it is clean or has moved on to a newer transaction.
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

    /// Where the tail could be, if what is in its place now were durable (`jbd2_journal_get_log_tail`), and how
    /// many blocks of the log that would free.
    fn possible_tail(&self) -> (Tail, u64) {
        let oldest = self.checkpoints.front().map(|c| Tail { tid: c.tid, offset: c.start });
        let committing = self.committing.map(|c| Tail { tid: c.tid, offset: c.start });
        let next = Tail { tid: self.running_tid().unwrap_or(self.next_tid), offset: self.head };
        (oldest.or(committing).unwrap_or(next), self.reclaimable_blocks)
    }

    /// Reserves `blocks` at the head of the log; two runs where it wraps.
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

    /// Committed metadata that are not in their place and may go there now, by block.
    fn writable(&self, expired_before: Option<SimTime>) -> Vec<BufferId> {
        let due = |b: &Buffer| expired_before.is_none_or(|limit| b.dirty_since <= limit);
        let ids = 0..self.buffers.len() as BufferId;
        let mut ready: Vec<BufferId> = ids.filter(|&id| self.is_idle_dirty(id)).collect();
        // Like any inode, the block device's is written as a whole once its oldest page has expired.
        if !ready.iter().any(|&id| due(&self.buffers[id as usize])) {
            return Vec::new();
        }
        ready.sort_unstable_by_key(|&id| self.buffers[id as usize].block);
        ready
    }
}

impl Ext4 {
    /// Starts a handle that may change up to `credits` metadata blocks: waits while the running
    /// transaction is about to be committed, or it or the log is too full.
    pub(super) async fn start_handle(&self, credits: u64) -> Handle {
        loop {
            enum Obstacle {
                Switching,
                TransactionFull(u64),
                LogFull,
            }
            let obstacle = {
                let journal = &mut self.0.state.borrow_mut().journal;
                match &journal.running {
                    _ if journal.switching => Obstacle::Switching,
                    Some(t) if t.buffers.len() as u64 + credits > journal.transaction_max() => {
                        Obstacle::TransactionFull(t.tid)
                    }
                    _ if journal.space_left() < journal.space_needed() => Obstacle::LogFull,
                    _ => {
                        let transaction = journal.running(self.0.sim.now());
                        let handles = Rc::clone(&transaction.handles);
                        handles.set(handles.get() + 1);
                        let ended = self.0.events.handles_ended.clone();
                        return Handle { tid: transaction.tid, handles, ended };
                    }
                }
            };
            match obstacle {
                Obstacle::Switching => self.0.events.transaction_switched.wait().await,
                Obstacle::TransactionFull(tid) => {
                    self.request_commit(tid);
                    self.0.events.transaction_switched.wait().await;
                }
                Obstacle::LogFull => self.checkpoint_oldest().await,
            }
        }
    }

    /// Joins metadata blocks to the handle's transaction, waiting for those that are being written.
    pub(super) async fn dirty_metadata(&self, _handle: &Handle, blocks: &[Lpn]) {
        for &block in blocks {
            loop {
                {
                    let now = self.0.sim.now();
                    let journal = &mut self.0.state.borrow_mut().journal;
                    let id = journal.buffer(block);
                    let buffer = &mut journal.buffers[id as usize];
                    if !buffer.locked {
                        if !buffer.in_running {
                            buffer.in_running = true;
                            journal.running(now).buffers.push(id);
                        }
                        break;
                    }
                }
                self.0.events.metadata_io_done.wait().await;
            }
        }
    }

    /// The running transaction frees a metadata block: its contents need not reach their place any more
    /// (`jbd2_journal_forget`). A later write there would hit whoever gets the block next.
    pub(super) async fn forget_metadata(&self, _handle: &Handle, block: Lpn) {
        loop {
            {
                let now = self.0.sim.now();
                let journal = &mut self.0.state.borrow_mut().journal;
                let Some(&id) = journal.by_block.get(&block.0) else { return };
                let buffer = &mut journal.buffers[id as usize];
                if !buffer.locked || buffer.in_committing {
                    // It counts as changed until then, so that nobody checkpoints it; what older transactions
                    // logged of it must stay in the log as long.
                    let was_joined = std::mem::replace(&mut buffer.in_running, true);
                    let running = journal.running(now);
                    if was_joined {
                        running.buffers.retain(|&other| other != id);
                    }
                    running.revoked.push(id);
                    return;
                }
            }
            self.0.events.metadata_io_done.wait().await;
        }
    }

    /// Asks the journal thread to commit up to `tid`.
    pub(super) fn request_commit(&self, tid: u64) {
        let journal = &mut self.0.state.borrow_mut().journal;
        if journal.requested < tid {
            journal.requested = tid;
            self.0.events.commit_request.notify_all();
        }
    }

    /// Asks for a commit of `tid` and waits until it is declared done.
    pub(super) async fn commit_and_wait(&self, tid: u64) {
        self.request_commit(tid);
        while !self.0.state.borrow().journal.is_committed(tid) {
            self.0.events.commit_done.wait().await;
        }
    }

    /// The journal thread (kjournald2).
    pub(super) async fn journal_thread(self) {
        let inner: &Inner = &self.0;
        loop {
            let deadline = {
                let journal = &inner.state.borrow().journal;
                journal.running.as_ref().map(|t| {
                    if journal.requested >= t.tid { SimTime::ZERO } else { t.started + COMMIT_INTERVAL }
                })
            };
            match deadline {
                Some(deadline) if inner.sim.now() >= deadline => self.commit().await,
                Some(_) if inner.stopping.get() => return,
                Some(deadline) => {
                    inner.events.commit_request.wait_until(deadline).await;
                }
                None if inner.stopping.get() => return,
                // Nothing runs: look again when something may have begun to.
                None => {
                    inner.events.commit_request.wait_until(inner.sim.now() + COMMIT_INTERVAL).await;
                }
            }
        }
    }

    async fn commit(&self) {
        let inner: &Inner = &self.0;
        self.wait_for_handles().await;
        let revokes = !self.is_sabotaged(Sabotage::NoRevoke);
        let (transaction, witnessed) = {
            let state = &mut *inner.state.borrow_mut();
            let journal = &mut state.journal;
            journal.switching = false;
            let Some(transaction) = journal.running.take() else { return };
            journal.committing = Some(Committing {
                tid: transaction.tid,
                blocks: transaction.buffers.len() as u64,
                start: journal.head,
                is_flushing: false,
            });
            for &id in &transaction.buffers {
                let buffer = &mut journal.buffers[id as usize];
                buffer.in_running = false;
                buffer.in_committing = true;
                buffer.locked = true;
            }
            for &id in &transaction.revoked {
                let buffer = &mut journal.buffers[id as usize];
                buffer.in_running = false;
                buffer.in_committing = true;
            }
            let witnessed = inner.witness.as_ref().map(|witness| {
                let block_of = |&id: &BufferId| journal.buffers[id as usize].block;
                let frozen: Vec<u64> = transaction.buffers.iter().map(block_of).collect();
                let revoked = transaction.revoked.iter().filter(|_| revokes);
                let revoked: Vec<u64> = revoked.map(block_of).collect();
                witness.transaction_frozen(transaction.tid, &frozen, &revoked, &state.disk)
            });
            (transaction, witnessed)
        };
        inner.events.transaction_switched.notify_all();

        // Descriptors and metadata go to the log; they stay locked until both they and the data are there.
        let metadata = transaction.buffers.len() as u64;
        let revokes = if revokes { transaction.revoked.len() as u64 } else { 0 }.div_ceil(REVOKES_PER_BLOCK);
        let log_blocks = revokes + metadata + metadata.div_ceil(TAGS_PER_DESCRIPTOR);
        let ranges = inner.state.borrow_mut().journal.log_blocks(log_blocks);
        let mut written = 0;
        for range in ranges {
            if let (Some(witness), Some(contents)) = (&inner.witness, &witnessed) {
                witness.log_written(range, &contents.log[written..]);
                written += range.units as usize;
            }
            inner.queue.write(range).await;
        }
        while transaction.ordered.get() > 0 && !self.is_sabotaged(Sabotage::CommitBeforeData) {
            inner.events.writeback_done.wait().await;
        }
        {
            let journal = &mut inner.state.borrow_mut().journal;
            for &id in &transaction.buffers {
                journal.buffers[id as usize].locked = false;
            }
        }
        inner.events.metadata_io_done.notify_all();

        // What is in its place before the first flush is durable after it. The tail moves only if that frees a
        // good deal: each time costs a write and a flush.
        let tail = {
            let journal = &mut inner.state.borrow_mut().journal;
            let tail = journal.possible_tail();
            let is_worth_it = !journal.moving_tail && tail.1 >= journal.transaction_max();
            journal.moving_tail |= is_worth_it;
            is_worth_it.then_some(tail)
        };
        self.before_commit_is_durable(&transaction.freed).await;
        // The commit block between two flushes makes it durable.
        if !self.is_sabotaged(Sabotage::NoFlushBeforeCommitBlock) {
            inner.queue.flush().await;
        }
        let commit_block = {
            let journal = &mut inner.state.borrow_mut().journal;
            if let Some(committing) = &mut journal.committing {
                committing.is_flushing = true;
            }
            journal.log_blocks(1)
        };
        for range in commit_block {
            if let (Some(witness), Some(contents)) = (&inner.witness, &witnessed) {
                witness.log_written(range, &[contents.commit]);
            }
            inner.queue.write(range).await;
        }
        inner.queue.flush().await;
        if let Some(tail) = tail {
            self.move_tail(tail).await;
        }

        {
            let now = inner.sim.now();
            let journal = &mut inner.state.borrow_mut().journal;
            let mut remaining = 0;
            for &id in &transaction.buffers {
                journal.leave_checkpoint(id);
                let buffer = &mut journal.buffers[id as usize];
                buffer.in_committing = false;
                buffer.checkpoint = transaction.tid;
                buffer.dirty_since = now;
                remaining += 1;
            }
            for &id in &transaction.revoked {
                journal.leave_checkpoint(id);
                journal.buffers[id as usize].in_committing = false;
            }
            journal.checkpoints.push_back(Checkpoint {
                tid: transaction.tid,
                start: journal.committing.map_or(0, |c| c.start),
                log_blocks: log_blocks + 1,
                remaining,
                buffers: transaction.buffers,
            });
            journal.advance_tail();
        }
        self.after_commit_is_durable(&transaction.freed);
        self.transaction_is_durable(transaction.freed).await;
        {
            let journal = &mut inner.state.borrow_mut().journal;
            journal.committing = None;
            journal.committed = transaction.tid;
        }
        inner.events.commit_done.notify_all();
    }

    /// Closes the running transaction to new handles and waits until those that it has have ended.
    async fn wait_for_handles(&self) {
        loop {
            {
                let journal = &mut self.0.state.borrow_mut().journal;
                let Some(running) = &journal.running else { return };
                if running.handles.get() == 0 {
                    return;
                }
                journal.switching = true;
            }
            self.0.events.handles_ended.wait().await;
        }
    }

    /// Writes the tail to the journal's superblock (with FUA: a write and a flush), and uses the log before it
    /// again. All that is to be found in its place must be durable, and `moving_tail` set.
    async fn move_tail(&self, (tail, freed_blocks): (Tail, u64)) {
        let inner: &Inner = &self.0;
        let superblock = {
            let journal = &inner.state.borrow().journal;
            UnitRange::new(journal.superblock, 1)
        };
        if let Some(witness) = &inner.witness {
            witness.tail_written(superblock.start, tail);
        }
        inner.queue.write(superblock).await;
        inner.queue.flush().await;
        {
            let journal = &mut inner.state.borrow_mut().journal;
            journal.moving_tail = false;
            journal.reclaimable_blocks -= freed_blocks;
            journal.free_blocks += freed_blocks;
        }
        inner.events.metadata_io_done.notify_all();
    }

    /// Makes durable what has been checkpointed and moves the tail behind it (`jbd2_cleanup_journal_tail`).
    async fn clean_tail(&self) {
        let tail = {
            let journal = &mut self.0.state.borrow_mut().journal;
            journal.moving_tail = true;
            journal.possible_tail()
        };
        if !self.is_sabotaged(Sabotage::TailBeforeFlush) {
            self.0.queue.flush().await;
        }
        self.move_tail(tail).await;
    }

    /// Makes room in the log: writes the oldest transaction's metadata to their places.
    async fn checkpoint_oldest(&self) {
        let inner: &Inner = &self.0;
        enum Step {
            CleanTail,
            WaitForCommit(u64),
            Write(Vec<BufferId>),
            WaitForIo,
        }
        let step = {
            let journal = &mut inner.state.borrow_mut().journal;
            match journal.checkpoints.front() {
                _ if journal.moving_tail => Step::WaitForIo,
                _ if journal.reclaimable_blocks > 0 => Step::CleanTail,
                None => match (journal.committing.map(|c| c.tid), journal.running_tid()) {
                    (Some(tid), _) | (None, Some(tid)) => Step::WaitForCommit(tid),
                    (None, None) => unreachable!("an empty log has room for a transaction"),
                },
                Some(oldest) => {
                    let on_list = |&&id: &&BufferId| journal.buffers[id as usize].checkpoint == oldest.tid;
                    let busy = oldest.buffers.iter().filter(on_list).find_map(|&id| {
                        let buffer = &journal.buffers[id as usize];
                        // The older one first: its end takes the buffer off this list.
                        if buffer.in_committing {
                            journal.committing.map(|c| c.tid)
                        } else if buffer.in_running {
                            journal.running_tid()
                        } else {
                            None
                        }
                    });
                    let idle: Vec<BufferId> = oldest
                        .buffers
                        .iter()
                        .copied()
                        .filter(|&id| {
                            journal.buffers[id as usize].checkpoint == oldest.tid && journal.is_idle_dirty(id)
                        })
                        .collect();
                    match busy {
                        Some(tid) => Step::WaitForCommit(tid),
                        None if idle.is_empty() => Step::WaitForIo,
                        None => Step::Write(idle),
                    }
                }
            }
        };
        match step {
            Step::CleanTail => self.clean_tail().await,
            Step::WaitForCommit(tid) => self.commit_and_wait(tid).await,
            Step::WaitForIo => inner.events.metadata_io_done.wait().await,
            Step::Write(mut ids) => {
                {
                    let journal = &inner.state.borrow().journal;
                    ids.sort_unstable_by_key(|&id| journal.buffers[id as usize].block);
                }
                self.write_metadata(ids).await;
                self.wait_for_metadata_io().await;
            }
        }
    }

    /// Writes every committed metadata block to its place: the end of an unmount.
    pub(super) async fn checkpoint_all(&self) {
        let ids = self.0.state.borrow().journal.writable(None);
        self.write_metadata(ids).await;
        self.wait_for_metadata_io().await;
        // The last of them moves the tail behind everything: an empty journal.
        self.clean_tail().await;
    }

    /// Starts writing metadata that have been dirty since before `limit`, if there are any.
    pub(super) async fn write_expired_metadata(&self, limit: SimTime) {
        let ids = self.0.state.borrow().journal.writable(Some(limit));
        self.write_metadata(ids).await;
    }

    async fn wait_for_metadata_io(&self) {
        while self.0.state.borrow().journal.buffers.iter().any(|b| b.locked && !b.in_committing) {
            self.0.events.metadata_io_done.wait().await;
        }
    }

    /// Queues background writes of these buffers (sorted by block), neighbours together.
    async fn write_metadata(&self, ids: Vec<BufferId>) {
        let request_max = self.0.host.queue.max_request.units_floor().max(1);
        let mut ids = ids.into_iter().peekable();
        while let Some(first) = ids.next() {
            self.0.queue.wait_for_room().await;
            let mut run = Vec::new();
            let start = {
                let journal = &mut self.0.state.borrow_mut().journal;
                // It may have joined a transaction while this task waited for room.
                if !journal.is_idle_dirty(first) {
                    continue;
                }
                let start = journal.buffers[first as usize].block;
                let mut next = Some(first);
                while let Some(id) = next {
                    journal.buffers[id as usize].locked = true;
                    if let Some(witness) = &self.0.witness {
                        witness.checkpointed(Lpn(journal.buffers[id as usize].block));
                    }
                    run.push(id);
                    next = ids.next_if(|&id| {
                        (run.len() as u64) < request_max
                            && journal.buffers[id as usize].block == start + run.len() as u64
                            && journal.is_idle_dirty(id)
                    });
                }
                start
            };
            let fs = self.clone();
            let range = UnitRange::new(Lpn(start), run.len() as u64);
            self.0.queue.submit_background_write(range, move || {
                {
                    let journal = &mut fs.0.state.borrow_mut().journal;
                    for &id in &run {
                        journal.buffers[id as usize].locked = false;
                        journal.leave_checkpoint(id);
                    }
                }
                fs.0.events.metadata_io_done.notify_all();
            });
        }
    }
}
