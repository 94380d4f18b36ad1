//! Handles: all changes under one handle belong to one transaction.

use std::cell::Cell;
use std::rc::Rc;

use super::Journal;
use crate::engine::Event;
use crate::fs::Ext4;
use crate::units::Lpn;

/// The right to change metadata as part of one transaction, which is not committed before the handle is dropped (jbd2:
/// `handle_t`).
///
/// The holder may wait for buffers, but never for a commit, for another handle or for write-back.
#[must_use = "what is changed after the handle has ended may belong to another transaction"]
pub(in crate::fs) struct Handle {
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

impl Ext4 {
    /// Starts a handle that can change up to `credits` metadata blocks: waits while the running transaction is about to
    /// be committed, or it or the log is too full.
    pub(in crate::fs) async fn start_handle(&self, credits: u64) -> Handle {
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
                    Some(t) if t.buffers.len() as u64 + credits > journal.transaction_max => {
                        Obstacle::TransactionFull(t.tid)
                    }
                    _ if journal.space_left() < journal.space_needed() => Obstacle::LogFull,
                    _ => return self.join_running(journal),
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

    /// Starts a handle for which room was reserved: it waits for nothing, not even for a transaction about to be
    /// committed (`jbd2_journal_start_reserved`).
    pub(in crate::fs) fn start_reserved_handle(&self) -> Handle {
        self.join_running(&mut self.0.state.borrow_mut().journal)
    }

    fn join_running(&self, journal: &mut Journal) -> Handle {
        let transaction = journal.running(self.0.sim.now());
        let handles = Rc::clone(&transaction.handles);
        handles.set(handles.get() + 1);
        Handle { tid: transaction.tid, handles, ended: self.0.events.handles_ended.clone() }
    }

    /// Adds metadata blocks to the handle's transaction, waiting for those that are being written.
    pub(in crate::fs) async fn dirty_metadata(&self, _handle: &Handle, blocks: &[Lpn]) {
        for &block in blocks {
            loop {
                {
                    let now = self.0.sim.now();
                    let state = &mut *self.0.state.borrow_mut();
                    if let Some(blocks) = &mut state.in_memory {
                        blocks.insert(block);
                    }
                    let journal = &mut state.journal;
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

    /// Frees a metadata block in the running transaction: its contents no longer need to reach their place
    /// (`jbd2_journal_forget`). A later write there would hit the block's next owner.
    pub(in crate::fs) async fn forget_metadata(&self, _handle: &Handle, block: Lpn) {
        loop {
            {
                let now = self.0.sim.now();
                let journal = &mut self.0.state.borrow_mut().journal;
                let Some(&id) = journal.by_block.get(&block.0) else { return };
                let buffer = &mut journal.buffers[id as usize];
                if !buffer.locked || buffer.in_committing {
                    // It counts as changed until then, so that it is not checkpointed. What older transactions logged
                    // of it must stay in the log as long.
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
}
