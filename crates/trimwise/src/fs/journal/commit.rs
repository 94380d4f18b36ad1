use super::{BufferId, COMMIT_INTERVAL, Checkpoint, Committing, REVOKES_PER_BLOCK, TAGS_PER_DESCRIPTOR};
use crate::fs::observed::Observed;
use crate::fs::sabotage::Sabotage;
use crate::fs::{Ext4, Inner};
use crate::units::SimTime;

impl Ext4 {
    pub(in crate::fs) fn request_commit(&self, tid: u64) {
        let journal = &mut self.0.state.borrow_mut().journal;
        if journal.requested < tid {
            journal.requested = tid;
            self.0.events.commit_request.notify_all();
        }
    }

    /// Asks for a commit of `tid` and waits until it is declared done.
    pub(in crate::fs) async fn commit_and_wait(&self, tid: u64) {
        self.request_commit(tid);
        while !self.0.state.borrow().journal.is_committed(tid) {
            self.0.events.commit_done.wait().await;
        }
    }

    /// The journal thread (kjournald2).
    pub(in crate::fs) async fn journal_thread(self) {
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
                // No transaction runs: look again later.
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
            self.observed(|| Observed::Closed);
            journal.committing = Some(Committing {
                tid: transaction.tid,
                blocks: transaction.buffers.len() as u64,
                start: journal.head,
                is_flushing: false,
            });
            for &id in transaction.buffers.iter().chain(&transaction.revoked) {
                let buffer = &mut journal.buffers[id as usize];
                (buffer.in_running, buffer.in_committing) = (false, true);
            }
            transaction.buffers.iter().for_each(|&id| journal.buffers[id as usize].locked = true);
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

        // Descriptors and metadata go to the log. They stay locked until both they and the data are written.
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
            inner.queue.write_by_block(range).await;
        }
        while transaction.ordered.get() > 0 && !self.is_sabotaged(Sabotage::CommitBeforeData) {
            inner.events.writeback_done.wait().await;
        }
        {
            let buffers = &mut inner.state.borrow_mut().journal.buffers;
            transaction.buffers.iter().for_each(|&id| buffers[id as usize].locked = false);
        }
        // Conversions, which came last, end the transfer of their pages before a writer looks how much is in transfer.
        inner.events.metadata_io_done.notify_all_last_first();

        // Metadata in their places before the first flush are durable after it. Each move of the tail costs a write and
        // a flush, so move it only if that frees enough of the log.
        let tail = {
            let journal = &mut inner.state.borrow_mut().journal;
            let tail = journal.possible_tail();
            let is_worth_it = !journal.moving_tail && tail.1 >= journal.transaction_max;
            journal.moving_tail |= is_worth_it;
            is_worth_it.then_some(tail)
        };
        self.before_commit_is_durable(&transaction.freed).await;
        // A commit block between two flushes makes the transaction durable.
        if !self.is_sabotaged(Sabotage::NoFlushBeforeCommitBlock) {
            inner.queue.flush_ahead().await;
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
        inner.queue.flush_behind().await;
        if let Some(tail) = tail {
            self.move_tail(tail).await;
        }

        {
            let now = inner.sim.now();
            let journal = &mut inner.state.borrow_mut().journal;
            for &id in &transaction.buffers {
                journal.leave_checkpoint(id);
                let buffer = &mut journal.buffers[id as usize];
                buffer.in_committing = false;
                buffer.checkpoint = transaction.tid;
                buffer.dirty_since = now;
            }
            for &id in &transaction.revoked {
                journal.leave_checkpoint(id);
                journal.buffers[id as usize].in_committing = false;
            }
            journal.checkpoints.push_back(Checkpoint {
                tid: transaction.tid,
                start: journal.committing.map_or(0, |c| c.start),
                log_blocks: log_blocks + 1,
                remaining: transaction.buffers.len() as u64,
                buffers: transaction.buffers,
            });
            journal.advance_tail();
        }
        self.metadata_became_dirty(transaction.tid);
        self.after_commit_is_durable(&transaction.freed);
        self.transaction_is_durable(transaction.freed).await;
        {
            let journal = &mut inner.state.borrow_mut().journal;
            journal.committing = None;
            journal.committed = transaction.tid;
        }
        inner.events.commit_done.notify_all();
    }

    /// Closes the running transaction to new handles and waits for its open handles to end.
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
}
