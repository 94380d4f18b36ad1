//! Checkpoints: write committed metadata to their places and move the tail of the log behind them.

use super::{BufferId, Tail};
use crate::fs::sabotage::Sabotage;
use crate::fs::{Ext4, Inner};
use crate::units::{Lpn, SimTime, UnitRange};

impl Ext4 {
    /// Writes the tail to the journal's superblock (with FUA: a write and a flush) and frees the log before it.
    /// Everything checkpointed before that tail must be durable, and `moving_tail` set.
    pub(super) async fn move_tail(&self, (tail, freed_blocks): (Tail, u64)) {
        let inner: &Inner = &self.0;
        let superblock = {
            let journal = &inner.state.borrow().journal;
            UnitRange::new(journal.superblock, 1)
        };
        self.witnessed(|witness| witness.tail_written(superblock.start, tail));
        inner.queue.write(superblock).await;
        inner.queue.flush_behind().await;
        {
            let journal = &mut inner.state.borrow_mut().journal;
            journal.moving_tail = false;
            journal.reclaimable_blocks -= freed_blocks;
            journal.free_blocks += freed_blocks;
        }
        inner.events.metadata_io_done.notify_all();
    }

    /// Flushes checkpointed metadata and moves the tail past them (`jbd2_cleanup_journal_tail`).
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
    pub(super) async fn checkpoint_oldest(&self) {
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
                    let is_on_list = |id: &BufferId| journal.buffers[*id as usize].checkpoint == oldest.tid;
                    let on_list: Vec<BufferId> = oldest.buffers.iter().copied().filter(is_on_list).collect();
                    let busy = on_list.iter().find_map(|&id| {
                        let buffer = &journal.buffers[id as usize];
                        // Wait for the older transaction first: its end takes the buffer off this list.
                        if buffer.in_committing {
                            journal.committing.map(|c| c.tid)
                        } else if buffer.in_running {
                            journal.running_tid()
                        } else {
                            None
                        }
                    });
                    let idle: Vec<BufferId> =
                        on_list.into_iter().filter(|&id| journal.is_idle_dirty(id)).collect();
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
                inner.state.borrow().journal.sort_by_block(&mut ids);
                self.write_metadata(ids).await;
                self.wait_for_metadata_io().await;
            }
        }
    }

    /// Writes every committed metadata block to its place: the end of an unmount.
    pub(in crate::fs) async fn checkpoint_all(&self) {
        let ids = self.0.state.borrow().journal.writable(None);
        self.write_metadata(ids).await;
        self.wait_for_metadata_io().await;
        // Move the tail past everything: the next mount finds an empty journal and fills it from its beginning
        // (`journal_reset`).
        self.0.state.borrow_mut().journal.head = 0;
        self.clean_tail().await;
    }

    pub(in crate::fs) async fn write_expired_metadata(&self, limit: SimTime) {
        let ids = self.0.state.borrow().journal.writable(Some(limit));
        self.write_metadata(ids).await;
    }

    /// Starts writing the first dirty pages of the drive's page cache. Returns the number examined.
    pub(in crate::fs) async fn write_dirty_metadata(&self, pages_max: u64) -> u64 {
        let (ids, looked_at) = self.0.state.borrow_mut().journal.take_dirty_pages(pages_max);
        self.write_metadata(ids).await;
        looked_at
    }

    pub(in crate::fs) async fn wait_for_metadata_io(&self) {
        while self.0.state.borrow().journal.buffers.iter().any(|b| b.locked && !b.in_committing) {
            self.0.events.metadata_io_done.wait().await;
        }
    }

    /// Queues background writes of these buffers, which are sorted by block. Neighbours share a request.
    async fn write_metadata(&self, ids: Vec<BufferId>) {
        let request_max = self.0.host.queue.max_request.units_floor().max(1);
        let mut ids = ids.into_iter().peekable();
        while let Some(first) = ids.next() {
            self.0.queue.wait_for_room().await;
            let mut run = Vec::new();
            let start = {
                let journal = &mut self.0.state.borrow_mut().journal;
                // The buffer may have joined a transaction while this task waited for room.
                if !journal.is_idle_dirty(first) {
                    continue;
                }
                let start = journal.buffers[first as usize].block;
                let mut next = Some(first);
                while let Some(id) = next {
                    journal.buffers[id as usize].locked = true;
                    self.witnessed(|witness| witness.checkpointed(Lpn(journal.buffers[id as usize].block)));
                    run.push(id);
                    next = ids.next_if(|&id| {
                        (run.len() as u64) < request_max
                            && journal.buffers[id as usize].block == start + run.len() as u64
                            && journal.is_idle_dirty(id)
                    });
                }
                journal.pages_in_writeback += run.len() as u64;
                start
            };
            let fs = self.clone();
            let range = UnitRange::new(Lpn(start), run.len() as u64);
            self.0.queue.submit_background_write(range, move || {
                {
                    let state = &mut *fs.0.state.borrow_mut();
                    state.throttle.wrote(range.units);
                    let journal = &mut state.journal;
                    journal.pages_in_writeback -= range.units;
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
