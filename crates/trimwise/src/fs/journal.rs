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

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::{Ext4, Inner};
use crate::units::{Lpn, SimDuration, SimTime, UnitRange};

/// How long a transaction runs before it is committed by itself (ext4: `commit=5`).
pub const COMMIT_INTERVAL: SimDuration = SimDuration::from_secs(5);

/// Log blocks kept back for control blocks (jbd2: `MIN_LOG_RESERVED_BLOCKS`).
const RESERVED_LOG_BLOCKS: u64 = 32;

/// Metadata blocks that one descriptor block names (16-byte tags in 4 KiB).
const TAGS_PER_DESCRIPTOR: u64 = 254;

/// Index of a metadata buffer.
pub type BufferId = u32;

#[derive(Clone, Debug, Default)]
struct Buffer {
    block: u64,
    in_running: bool,
    in_committing: bool,
    /// Being written to the log or to its place.
    locked: bool,
    /// The running transaction frees the block while an older one is writing it to the log: it need not
    /// reach its place any more.
    forgotten: bool,
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
    /// Data writes of this transaction that the device has not acknowledged (ordered mode).
    ordered: Rc<Cell<u64>>,
}

#[derive(Debug)]
struct Checkpoint {
    tid: u64,
    log_blocks: u64,
    /// Buffers that have not reached their place.
    remaining: u64,
    buffers: Vec<BufferId>,
}

/// The journal's state.
#[derive(Debug)]
pub struct Journal {
    log: UnitRange,
    head: u64,
    free_blocks: u64,
    buffers: Vec<Buffer>,
    by_block: HashMap<u64, BufferId>,
    running: Option<Transaction>,
    committing: Option<(u64, u64)>,
    checkpoints: VecDeque<Checkpoint>,
    next_tid: u64,
    committed: u64,
    requested: u64,
}

impl Journal {
    /// An empty journal in `log`.
    pub fn new(log: UnitRange) -> Self {
        Self {
            log,
            head: 0,
            free_blocks: log.units,
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
        self.running_tid().or(self.committing.map(|(tid, _)| tid))
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
            Transaction { tid, started: now, buffers: Vec::new(), freed: Vec::new(), ordered: Rc::default() }
        })
    }

    /// Largest transaction: a quarter of the journal (`j_max_transaction_buffers`).
    fn transaction_max(&self) -> u64 {
        self.log.units / 4
    }

    /// Room that a new handle may count on (`__jbd2_log_space_left`).
    fn space_left(&self) -> u64 {
        let left = self.free_blocks.saturating_sub(RESERVED_LOG_BLOCKS);
        left - left / 8
    }

    /// Room that must be left before a handle may start (`jbd_space_needed`).
    fn space_needed(&self) -> u64 {
        self.transaction_max() + self.committing.map_or(0, |(_, blocks)| blocks)
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
                self.free_blocks += done.log_blocks;
            }
        }
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
    /// transaction or the log is too full for it.
    pub(super) async fn start_handle(&self, credits: u64) {
        loop {
            enum Obstacle {
                TransactionFull(u64),
                LogFull,
            }
            let obstacle = {
                let journal = &self.0.state.borrow().journal;
                match &journal.running {
                    Some(t) if t.buffers.len() as u64 + credits > journal.transaction_max() => {
                        Obstacle::TransactionFull(t.tid)
                    }
                    _ if journal.space_left() < journal.space_needed() => Obstacle::LogFull,
                    _ => return,
                }
            };
            match obstacle {
                Obstacle::TransactionFull(tid) => {
                    self.request_commit(tid);
                    self.0.events.transaction_switched.wait().await;
                }
                Obstacle::LogFull => self.checkpoint_oldest().await,
            }
        }
    }

    /// Joins metadata blocks to the running transaction, waiting for those that are being written.
    pub(super) async fn dirty_metadata(&self, blocks: &[Lpn]) {
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
    pub(super) async fn forget_metadata(&self, block: Lpn) {
        loop {
            {
                let journal = &mut self.0.state.borrow_mut().journal;
                let Some(&id) = journal.by_block.get(&block.0) else { return };
                let buffer = &mut journal.buffers[id as usize];
                if !buffer.locked || buffer.in_committing {
                    buffer.forgotten = buffer.in_committing;
                    if std::mem::take(&mut buffer.in_running)
                        && let Some(running) = &mut journal.running
                    {
                        running.buffers.retain(|&other| other != id);
                    }
                    journal.leave_checkpoint(id);
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
        let transaction = {
            let journal = &mut inner.state.borrow_mut().journal;
            let Some(transaction) = journal.running.take() else { return };
            journal.committing = Some((transaction.tid, transaction.buffers.len() as u64));
            for &id in &transaction.buffers {
                let buffer = &mut journal.buffers[id as usize];
                buffer.in_running = false;
                buffer.in_committing = true;
                buffer.locked = true;
            }
            transaction
        };
        inner.events.transaction_switched.notify_all();

        // Descriptors and metadata go to the log; they stay locked until both they and the data are there.
        let metadata = transaction.buffers.len() as u64;
        let log_blocks = metadata + metadata.div_ceil(TAGS_PER_DESCRIPTOR);
        let ranges = inner.state.borrow_mut().journal.log_blocks(log_blocks);
        for range in ranges {
            inner.queue.write(range).await;
        }
        while transaction.ordered.get() > 0 {
            inner.events.writeback_done.wait().await;
        }
        {
            let journal = &mut inner.state.borrow_mut().journal;
            for &id in &transaction.buffers {
                journal.buffers[id as usize].locked = false;
            }
        }
        inner.events.metadata_io_done.notify_all();

        // The commit block between two flushes makes it durable.
        inner.queue.flush().await;
        let commit_block = inner.state.borrow_mut().journal.log_blocks(1);
        for range in commit_block {
            inner.queue.write(range).await;
        }
        inner.queue.flush().await;

        {
            let now = inner.sim.now();
            let journal = &mut inner.state.borrow_mut().journal;
            let mut remaining = 0;
            for &id in &transaction.buffers {
                journal.leave_checkpoint(id);
                let buffer = &mut journal.buffers[id as usize];
                buffer.in_committing = false;
                if !std::mem::take(&mut buffer.forgotten) {
                    buffer.checkpoint = transaction.tid;
                    buffer.dirty_since = now;
                    remaining += 1;
                }
            }
            journal.checkpoints.push_back(Checkpoint {
                tid: transaction.tid,
                log_blocks: log_blocks + 1,
                remaining,
                buffers: transaction.buffers,
            });
            journal.advance_tail();
        }
        self.transaction_is_durable(transaction.freed).await;
        {
            let journal = &mut inner.state.borrow_mut().journal;
            journal.committing = None;
            journal.committed = transaction.tid;
        }
        inner.events.commit_done.notify_all();
    }

    /// Makes room in the log: writes the oldest transaction's metadata to their places.
    async fn checkpoint_oldest(&self) {
        let inner: &Inner = &self.0;
        enum Step {
            WaitForCommit(u64),
            Write(Vec<BufferId>),
            WaitForIo,
        }
        let step = {
            let journal = &mut inner.state.borrow_mut().journal;
            match journal.checkpoints.front() {
                None => match (journal.committing, journal.running_tid()) {
                    (Some((tid, _)), _) | (None, Some(tid)) => Step::WaitForCommit(tid),
                    (None, None) => unreachable!("an empty log has room for a transaction"),
                },
                Some(oldest) => {
                    let on_list = |&&id: &&BufferId| journal.buffers[id as usize].checkpoint == oldest.tid;
                    let busy = oldest.buffers.iter().filter(on_list).find_map(|&id| {
                        let buffer = &journal.buffers[id as usize];
                        // The older one first: its end takes the buffer off this list.
                        if buffer.in_committing {
                            journal.committing.map(|(tid, _)| tid)
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
        self.0.queue.flush().await;
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
