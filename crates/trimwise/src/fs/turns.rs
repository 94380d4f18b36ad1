//! The choice of the next file to write: the flusher of Linux since 3.2 (`fs/fs-writeback.c`).
//!
//! Dirty files are taken in *batches*: all files dirty when the batch begins (or, every five seconds, those dirty for
//! thirty), oldest first. Each has a turn of at most half a second's writes (`writeback_chunk_size`); a file with more
//! left comes first in the next batch. The flusher checks whether enough is clean only after a tenth of a second of
//! writing, or at the end of the batch.
//!
//! The drive's own page cache, in which committed metadata wait to be written to their places, is one more inode among
//! the files. It belongs to another file system (`bdev`), and a batch goes through one file system after the other. So
//! its turn comes before all files of the batch if it has been dirty longest, otherwise after all of them.

use std::collections::VecDeque;

use super::host::Writeback;
use super::throttle::{Memory, Verdict};
use super::{Ext4, Inner, State};
use crate::units::SimTime;

/// Time at which something became dirty, and a sequence number.
type Key = (SimTime, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dirty {
    File(u32, Key),
    Drive,
}

#[derive(Debug, Default)]
pub struct Turns {
    batch: VecDeque<Dirty>,
    /// Files that have had a turn and have more left (`b_more_io`).
    more: VecDeque<Dirty>,
    /// Files that became dirty up to this key are in one of the lists, if they are still dirty.
    batched: Option<Key>,
    drive: Option<Key>,
    drive_is_batched: bool,
}

/// A batch is written for at least a second divided by this.
const BATCH_DIVISOR: u64 = 10;

impl Turns {
    /// Starts a batch: files with more left, then whatever became dirty up to `before`.
    fn begin_batch(&mut self, dirty: &std::collections::BTreeMap<Key, u32>, before: SimTime) {
        self.batch.append(&mut self.more);
        let from = self.batched.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let upto = std::ops::Bound::Included((before, u64::MAX));
        let is_any = self.batched.is_none_or(|batched| batched < (before, u64::MAX));
        let first = self.batch.len();
        if is_any {
            for (&key, &inode) in dirty.range((from, upto)) {
                self.batch.push_back(Dirty::File(inode, key));
                self.batched = Some(key);
            }
        }
        if let Some(key) = self.drive.filter(|key| !self.drive_is_batched && key.0 <= before) {
            let is_oldest = match self.batch.get(first) {
                Some(Dirty::File(_, oldest)) => key < *oldest,
                _ => true,
            };
            self.drive_is_batched = true;
            if is_oldest {
                self.batch.insert(first, Dirty::Drive);
            } else {
                self.batch.push_back(Dirty::Drive);
            }
        }
    }
}

impl State {
    fn next_dirty_key(&mut self, age: SimTime) -> Key {
        self.dirty_sequence += 1;
        (age, self.dirty_sequence - 1)
    }

    /// Puts a file after all other dirty files of this age.
    pub(super) fn queue_dirty(&mut self, inode: u32, age: SimTime) {
        let key = self.next_dirty_key(age);
        if let Some(old) = self.disk.inodes[inode as usize].dirty_key.replace(key) {
            self.dirty.remove(&old);
        }
        self.dirty.insert(key, inode);
    }

    fn dirty_pages(&self) -> u64 {
        self.cache.dirty_pages() + self.journal.dirty_pages
    }

    pub(super) fn inodes_in_use(&self) -> u64 {
        self.disk.inodes.in_use()
    }

    fn memory(&self) -> Memory {
        Memory {
            dirty: self.dirty_pages(),
            writeback: self.cache.writeback_pages() + self.journal.pages_in_writeback,
        }
    }
}

impl Ext4 {
    fn tick(&self) -> u64 {
        self.0.sim.now().as_nanos() / (1_000_000_000 / self.0.host.hz())
    }

    /// Checks a writer that has dirtied its share, and pauses it (`balance_dirty_pages`).
    pub(super) async fn pace(&self) {
        let inner: &Inner = &self.0;
        let tick_ns = 1_000_000_000 / inner.host.hz();
        loop {
            let verdict = {
                let state = &mut *inner.state.borrow_mut();
                let memory = state.memory();
                let pages = inner.host.memory_for_pages(state.inodes_in_use(), state.cache.present_pages());
                let pages = pages.saturating_sub(state.cache.listed_pages(inner.sim.now()));
                state.throttle.set_limits(inner.host.dirty_limits(pages));
                let verdict = state.throttle.look(self.tick(), memory);
                if state.throttle.is_above_background(memory.dirty) || verdict != Verdict::Go {
                    self.call_flusher();
                }
                verdict
            };
            if verdict != Verdict::Go {
                inner.queue.writer_paused();
            }
            // A timer set within a tick fires at the end of its last whole tick.
            let end = |ticks: u64| SimTime((self.tick() + ticks + 1) * tick_ns);
            match verdict {
                Verdict::Go => return,
                Verdict::Pause(ticks) => return inner.sim.sleep_until(end(ticks)).await,
                Verdict::PauseAndLook(ticks) => inner.sim.sleep_until(end(ticks)).await,
            }
        }
    }

    /// Marks committed metadata, unless a newer transaction has taken them over, as dirty in the drive's page cache.
    pub(super) fn metadata_became_dirty(&self, tid: u64) {
        if self.0.host.writeback == Writeback::AtTheLimit {
            return;
        }
        let now = self.0.sim.now();
        let state = &mut *self.0.state.borrow_mut();
        let dirtied = state.journal.mark_transaction_dirty(tid);
        state.throttle.dirtied_by_commit(dirtied);
        if state.turns.drive.is_none() && state.journal.dirty_pages > 0 {
            state.turns.drive = Some(state.next_dirty_key(now));
        }
    }

    /// Runs the flusher (`wb_workfn`): on request, writes until enough is clean; every five seconds, writes the pages
    /// that are too old.
    pub(super) async fn take_turns(&self) {
        let inner: &Inner = &self.0;
        let mut next_round = inner.sim.now() + inner.host.writeback_interval;
        while !inner.stopping.get() {
            if !inner.flusher_called.get() {
                inner.events.flusher.wait_until(next_round).await;
            }
            let now = inner.sim.now();
            if now >= next_round {
                next_round = now + inner.host.writeback_interval;
                self.write_batches(Some(inner.host.dirty_expire.as_nanos())).await;
            }
            self.write_batches(None).await;
            inner.flusher_called.set(false);
        }
    }

    /// Writes the pages older than `age_ns` or, without an age, writes while too many pages are dirty (`wb_writeback`).
    async fn write_batches(&self, age_ns: Option<u64>) {
        let inner: &Inner = &self.0;
        loop {
            inner.sim.consume_budget("writes batches of dirty files").await;
            {
                let state = &mut *inner.state.borrow_mut();
                if age_ns.is_none() && !state.throttle.is_above_background(state.dirty_pages()) {
                    return;
                }
                if state.turns.batch.is_empty() {
                    let now = inner.sim.now().as_nanos();
                    let before = SimTime(now.saturating_sub(age_ns.unwrap_or(0)));
                    state.turns.begin_batch(&state.dirty, before);
                }
            }
            if self.write_batch().await {
                continue;
            }
            let is_all = inner.state.borrow().turns.more.is_empty();
            if is_all {
                return;
            }
            // Metadata writes wake nothing here; files with more left are in the next batch.
            if inner.state.borrow().cache.writeback_pages() > 0 {
                inner.events.writeback_done.wait().await;
            }
        }
    }

    /// Takes the turns of one batch, for a tenth of a second or to its end. Returns true if anything was written.
    async fn write_batch(&self) -> bool {
        let begin = self.tick();
        let mut has_written = false;
        loop {
            let next = self.0.state.borrow_mut().turns.batch.pop_front();
            let Some(next) = next else { return has_written };
            has_written |= match next {
                Dirty::File(inode, key) => self.write_turn_of_file(inode, key).await,
                Dirty::Drive => self.write_turn_of_drive().await,
            };
            if has_written && self.tick() > begin + self.0.host.hz() / BATCH_DIVISOR {
                return true;
            }
        }
    }

    fn begin_turn(&self) -> u64 {
        let tick = self.tick();
        let state = &mut *self.0.state.borrow_mut();
        let is_idle = state.memory().writeback == 0;
        state.throttle.write_back_begins(tick, is_idle);
        state.throttle.chunk_pages()
    }

    fn end_turn(&self) {
        let tick = self.tick();
        self.0.state.borrow_mut().throttle.write_back_submitted(tick);
    }

    async fn write_turn_of_file(&self, inode: u32, key: Key) -> bool {
        let is_due = self.0.state.borrow().disk.inodes[inode as usize].dirty_key == Some(key);
        if !is_due {
            return false;
        }
        let pages = self.begin_turn();
        let written = self.write_pages(inode, pages).await;
        self.end_turn();
        let now = self.0.sim.now();
        let state = &mut *self.0.state.borrow_mut();
        if state.disk.inodes[inode as usize].dirty_key == Some(key) {
            if written >= pages {
                state.turns.more.push_back(Dirty::File(inode, key));
            } else {
                // The remaining pages were dirtied again while being written.
                state.queue_dirty(inode, now);
            }
        }
        written > 0
    }

    async fn write_turn_of_drive(&self) -> bool {
        let pages = self.begin_turn();
        let looked_at = self.write_dirty_metadata(pages).await;
        self.end_turn();
        let now = self.0.sim.now();
        let state = &mut *self.0.state.borrow_mut();
        if state.journal.dirty_pages > 0 && looked_at >= pages {
            state.turns.more.push_back(Dirty::Drive);
        } else {
            state.turns.drive_is_batched = false;
            let key = state.next_dirty_key(now);
            state.turns.drive = (state.journal.dirty_pages > 0).then_some(key);
        }
        looked_at > 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn key(second: u64) -> Key {
        (SimTime(second * 1_000_000_000), second)
    }

    fn file(second: u64) -> Dirty {
        Dirty::File(second as u32, key(second))
    }

    /// Files with more left come first, then those that became dirty since the last batch. The drive has its turn
    /// before or after all of the latter.
    #[test]
    fn a_batch_has_its_files_in_order_and_the_drive_at_either_end() {
        for (drive, first, second) in [
            (3, vec![file(1), file(2)], vec![Dirty::Drive, file(4), file(5)]),
            (6, vec![file(1), file(2)], vec![file(4), file(5), Dirty::Drive]),
            (0, vec![file(1), Dirty::Drive, file(2)], vec![file(4), file(5)]),
        ] {
            let dirty: BTreeMap<Key, u32> = [2, 4, 5].map(|at| (key(at), at as u32)).into();
            let mut turns = Turns { drive: Some(key(drive)), ..Turns::default() };
            turns.more.push_back(file(1));
            turns.begin_batch(&dirty, key(2).0);
            assert_eq!(turns.batch.drain(..).collect::<Vec<_>>(), first);
            turns.begin_batch(&dirty, key(9).0);
            assert_eq!(turns.batch.drain(..).collect::<Vec<_>>(), second);
            turns.begin_batch(&dirty, key(9).0);
            assert!(turns.batch.is_empty(), "all of them are in a batch already");
        }
    }
}
