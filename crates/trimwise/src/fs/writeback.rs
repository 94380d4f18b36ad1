//! Write-back: sends dirty pages to the device, and allocates blocks for those without one.
//!
//! The flusher runs when more than the background share of memory is dirty, and every five seconds for pages dirty for
//! thirty. Files are written in the order in which they became dirty, a bounded piece at a time. Delayed allocation
//! ends here: a run of pages gets its blocks when it is written, so a file written in one go lies in one extent.

use std::cell::Cell;
use std::rc::Rc;

use super::cache::{CHUNK_PAGES, ChunkId, PageCache, in_chunks, mask};
use super::host::{Placement, Writeback};
use super::inode::Inode;
use super::observed::Observed;
use super::{Ext4, Inner, State};
use crate::policy::Availability;
use crate::units::{Lpn, SimTime, UnitRange};

/// Pages of one file to write before the next file's turn (`MAX_WRITEBACK_PAGES`).
const PAGES_A_TURN: u64 = 1_024;

/// Maximum number of pages to allocate at once (`MAX_WRITEPAGES_EXTENT_LEN`).
const PAGES_AN_EXTENT: u64 = 2_048;

/// Metadata blocks that an allocation may change: bitmap, descriptor, inode, extent block.
pub(super) const ALLOCATION_CREDITS: u64 = 30;

/// For [`Sim::consume_budget`](crate::engine::Sim): what a task does that finds dirty pages and writes none.
const WRITES_A_FILE: &str = "writes a file's dirty pages";

/// Returns the length of the run of dirty pages not in transfer at `page`, up to `pages`.
fn dirty_run(cache: &PageCache, entry: &Inode, page: u64, pages: u64) -> u64 {
    let mut run = 0;
    for (index, first, count) in in_chunks(page, pages) {
        let ready = u64::from((cache.ready(&entry.chunks, index) >> first).trailing_ones()).min(count);
        run += ready;
        if ready < count {
            break;
        }
    }
    run
}

/// Returns the chunks that hold `pages` pages from `page` on, with the bits of those pages; chunks not in memory are
/// left out.
fn chunks_of(entry: &Inode, page: u64, pages: u64) -> Vec<(ChunkId, u32)> {
    let part = |(index, first, count)| Some((entry.chunks.get(index)?, mask(first, count)));
    in_chunks(page, pages).filter_map(part).collect()
}

/// Pages that are being written. Meanwhile no other task truncates or writes them.
#[must_use = "its pages stay in transfer until they are submitted"]
struct Claim {
    inode: u32,
    page: u64,
    blocks: UnitRange,
    waiting: Waiting,
}

#[derive(Clone)]
enum Waiting {
    Nobody,
    /// The transaction that allocated the blocks. It counts the outstanding writes (ordered mode).
    Transaction(Rc<Cell<u64>>),
    /// The conversion of the blocks. They count as unwritten until all data are written.
    Conversion(Rc<Conversion>),
}

/// New blocks that count as unwritten until their data are written (`ext4_io_end`). Room in the journal for recording
/// that is reserved when they are allocated (`rsv_blocks`).
struct Conversion {
    inode: u32,
    page: u64,
    units: u64,
    left: Cell<u64>,
}

impl Conversion {
    /// Journal blocks reserved for each (`ext4_chunk_trans_blocks` plus one: an extent tree of maximum depth, the
    /// bitmaps and a descriptor of its blocks, inode and extended attributes).
    const CREDITS: u64 = 31;
}

#[derive(Clone, Copy)]
struct Wish {
    /// The block after the file's last, if the pages continue it.
    goal: Option<Lpn>,
    /// A place at a distance from the pages' neighbour, if they follow a hole.
    place: Option<Lpn>,
}

impl Ext4 {
    pub(super) async fn flusher_thread(self) {
        if let Writeback::Paced { .. } = self.0.host.writeback {
            return self.take_turns().await;
        }
        let inner: &Inner = &self.0;
        let mut next_round = inner.sim.now() + inner.host.writeback_interval;
        while !inner.stopping.get() {
            if !inner.flusher_called.get() {
                inner.events.flusher.wait_until(next_round).await;
            }
            inner.flusher_called.set(false);
            while self.is_above_background_limit() && self.write_oldest(None).await {}
            if inner.sim.now() >= next_round {
                let now = inner.sim.now();
                next_round = now + inner.host.writeback_interval;
                let limit = SimTime(now.as_nanos().saturating_sub(inner.host.dirty_expire.as_nanos()));
                while self.write_oldest(Some(limit)).await {}
                self.write_expired_metadata(limit).await;
            }
        }
    }

    /// Stops a writer that has dirtied pages while too much memory is dirty. Wakes the flusher when it has something to
    /// do.
    pub(super) async fn balance_dirty_pages(&self, dirtied: u64) {
        if let Writeback::Paced { .. } = self.0.host.writeback {
            if self.0.state.borrow_mut().throttle.dirtied(dirtied) {
                self.pace().await;
            }
            return;
        }
        if self.is_above_background_limit() {
            self.call_flusher();
        }
        // Pages in transfer count too, even while few others are dirty.
        let inner: &Inner = &self.0;
        let (_, limit) = inner.host.dirty_limits(inner.host.memory.units_floor());
        loop {
            let unclean = {
                let cache = &inner.state.borrow().cache;
                cache.dirty_pages() + cache.writeback_pages()
            };
            if unclean <= limit {
                return;
            }
            self.call_flusher();
            inner.events.writeback_done.wait().await;
        }
    }

    pub(super) async fn submit_all(&self) {
        while self.write_oldest(None).await {}
    }

    /// Writes all dirty pages of all files and waits until the device has them.
    pub(super) async fn write_all(&self) {
        self.submit_all().await;
        while self.0.state.borrow().cache.writeback_pages() > 0 {
            self.0.events.writeback_done.wait().await;
        }
    }

    pub(super) async fn write_file(&self, inode: u32) {
        loop {
            self.0.sim.consume_budget(WRITES_A_FILE).await;
            while self.write_pages(inode, u64::MAX).await > 0 {}
            let (dirty, in_transfer) = {
                let i = &self.0.state.borrow().disk.inodes[inode as usize];
                (i.dirty_pages, i.writeback_pages)
            };
            if in_transfer > 0 {
                self.0.events.writeback_done.wait().await;
            } else if dirty == 0 {
                return;
            }
        }
    }

    pub(super) fn call_flusher(&self) {
        if !self.0.flusher_called.replace(true) {
            self.0.events.flusher.notify_all();
        }
    }

    fn is_above_background_limit(&self) -> bool {
        let (limit, _) = self.0.host.dirty_limits(self.0.host.memory.units_floor());
        self.0.state.borrow().cache.dirty_pages() > limit
    }

    /// Gives the file that has been dirty longest its turn. Returns false if none has been dirty since before `limit`.
    async fn write_oldest(&self, limit: Option<SimTime>) -> bool {
        self.0.sim.consume_budget(WRITES_A_FILE).await;
        let oldest = {
            let state = &mut *self.0.state.borrow_mut();
            let Some((&key, &inode)) = state.dirty.first_key_value() else { return false };
            if limit.is_some_and(|limit| key.0 > limit) {
                return false;
            }
            inode
        };
        let written = self.write_pages(oldest, PAGES_A_TURN).await;
        let is_in_transfer = {
            let state = &mut *self.0.state.borrow_mut();
            let entry = &state.disk.inodes[oldest as usize];
            let is_in_transfer = entry.writeback_pages > 0;
            // If more is left, the file goes after the others of its age; if nothing could be written, after all
            // others.
            if let Some(key) = entry.dirty_key {
                state.queue_dirty(oldest, if written > 0 { key.0 } else { self.0.sim.now() });
            }
            written == 0 && is_in_transfer
        };
        if is_in_transfer {
            // All dirty pages were dirtied again while being written.
            self.0.events.writeback_done.wait().await;
        }
        true
    }

    /// Starts writing up to `pages_max` dirty pages of a file. Returns the number of pages.
    pub(super) async fn write_pages(&self, inode: u32, pages_max: u64) -> u64 {
        let mut written = 0;
        while written < pages_max {
            let most = match self.0.host.placement {
                Placement::Stream => u64::MAX,
                Placement::Groups => PAGES_AN_EXTENT,
            };
            let Some((page, pages)) = self.next_dirty_run(inode, most.min(pages_max - written)) else {
                break;
            };
            let mapped = {
                let state = &mut *self.0.state.borrow_mut();
                let mapped = state.disk.inodes[inode as usize].map(page, pages);
                mapped.map(|blocks| self.claim(state, inode, page, blocks))
            };
            let claim = match mapped {
                Ok(claim) => claim,
                Err(unmapped) => match self.allocate_in_turn(inode, page, unmapped).await {
                    Some(claim) => claim,
                    None => {
                        // The file changed while this task waited: look again.
                        self.0.sim.consume_budget(WRITES_A_FILE).await;
                        continue;
                    }
                },
            };
            written += claim.blocks.units;
            // This is not the end of the whole run: a run that begins in an old block and goes on in new ones takes
            // several steps.
            let behind = claim.page + claim.blocks.units;
            self.0.state.borrow_mut().disk.inodes[inode as usize].writeback_cursor = behind;
            self.submit(claim).await;
        }
        written
    }

    /// Returns the file's next run of dirty pages not in transfer: from its cursor on, then from its beginning
    /// (`range_cyclic`).
    fn next_dirty_run(&self, inode: u32, pages_max: u64) -> Option<(u64, u64)> {
        let state = &*self.0.state.borrow();
        let entry = &state.disk.inodes[inode as usize];
        if entry.dirty_pages == 0 {
            return None;
        }
        let chunks = entry.chunks.end();
        let ready = |index: u64| state.cache.ready(&entry.chunks, index);
        let first_from = |page: u64| {
            (page / CHUNK_PAGES..chunks).find_map(|index| {
                let begin = index * CHUNK_PAGES;
                let skipped = page.saturating_sub(begin);
                let left = ready(index) >> skipped;
                (left != 0).then(|| begin + skipped + u64::from(left.trailing_zeros()))
            })
        };
        let start = first_from(entry.writeback_cursor).or_else(|| first_from(0))?;
        let mut end = start;
        let (mut index, mut bit) = (start / CHUNK_PAGES, start % CHUNK_PAGES);
        loop {
            let run = u64::from((ready(index) >> bit).trailing_ones()).min(CHUNK_PAGES - bit);
            end += run;
            if bit + run < CHUNK_PAGES || end - start >= pages_max {
                break;
            }
            index += 1;
            bit = 0;
            if index >= chunks || ready(index) & 1 == 0 {
                break;
            }
        }
        Some((start, (end - start).min(pages_max)))
    }

    /// Calls [`Self::allocate`] as soon as the journal has room for one more conversion. Together they may use half of
    /// the largest transaction (`add_transaction_credits`).
    async fn allocate_in_turn(&self, inode: u32, page: u64, pages: u64) -> Option<Claim> {
        if !self.0.host.converts_unwritten {
            return self.allocate(inode, page, pages).await;
        }
        let most = (self.0.state.borrow().journal.transaction_max / 2 / Conversion::CREDITS).max(1);
        while self.0.conversions.get() >= most {
            self.0.events.writeback_done.wait().await;
        }
        self.allocate(inode, page, pages).await
    }

    /// Allocates one extent for up to `pages` pages from `page` on and claims them; `None` if the first page no longer
    /// needs a block.
    ///
    /// The transaction learns of the blocks and of their outstanding data at the same moment: either it is not
    /// committed before the data are written (ordered mode), or it records the blocks as unwritten.
    async fn allocate(&self, inode: u32, page: u64, pages: u64) -> Option<Claim> {
        let (handle, claim, metadata) = loop {
            let handle = self.start_handle(ALLOCATION_CREDITS).await;
            {
                let state = &mut *self.0.state.borrow_mut();
                let entry = &mut state.disk.inodes[inode as usize];
                // Another task may have truncated the file or allocated its blocks since the run was found.
                let dirty = dirty_run(&state.cache, entry, page, pages);
                let pages = match entry.map(page, dirty) {
                    Err(unmapped) if dirty > 0 => unmapped,
                    _ => return None,
                };
                let wish = if page == entry.mapped_end() {
                    Wish { goal: entry.goal(), place: None }
                } else {
                    // The page before is a hole only if it does not wait for a block of its own.
                    let follows = page > 0
                        && (entry.map(page - 1, 1).is_ok()
                            || state.cache.page(&entry.chunks, page - 1).dirty != 0);
                    Wish { goal: None, place: if follows { None } else { entry.place(page) } }
                };
                let blocks = self.find_blocks(state, inode, page, wish, pages);
                if let Some(blocks) = blocks {
                    let entry = &mut state.disk.inodes[inode as usize];
                    entry.add_extent(page, blocks);
                    entry.reserved_pages -= blocks.units;
                    state.reserved_pages -= blocks.units;
                    if entry.reserved_pages == 0 && entry.writers == 0 {
                        state.disk.allocator.discard_windows(inode);
                    }
                    entry.note_data_change(handle.tid);
                    self.note_allocated(&mut state.disk.stale, blocks);
                    let mut metadata = state.disk.layout.group_metadata(blocks.start).to_vec();
                    metadata.push(state.disk.layout.inode_block(inode));
                    let mut claim = self.claim(state, inode, page, blocks);
                    claim.waiting = self.await_new_data(state, inode, page, blocks.units);
                    metadata.extend(self.grow_tree(state, inode, page));
                    break (handle, claim, metadata);
                }
            }
            drop(handle);
            // The block reserved for this page has not been freed yet.
            self.wait_for_blocks().await;
        };
        self.dirty_metadata(&handle, &metadata).await;
        Some(claim)
    }

    /// Finds blocks. Under reuse, prefers blocks waiting for their TRIM, if they would not fragment the file more than
    /// others do.
    fn find_blocks(
        &self,
        state: &mut State,
        inode: u32,
        page: u64,
        wish: Wish,
        pages: u64,
    ) -> Option<UnitRange> {
        let disk = &mut state.disk;
        let (allocator, entry) = (&mut disk.allocator, &disk.inodes[inode as usize]);
        let wished = wish.goal.or(wish.place);
        let continues = wished.is_some_and(|wished| allocator.free_at(wished.0) >= pages);
        let goal = match self.0.host.placement {
            Placement::Stream => wished.unwrap_or(allocator.stream_goal()),
            Placement::Groups => entry.near(page).unwrap_or_else(|| disk.layout.file_goal(inode)),
        };
        if self.0.policy.availability() == Availability::Reuse
            && !continues
            && let Some(waiting) = self.0.policy.fit(goal, pages)
        {
            allocator.take_exact(waiting);
            return Some(waiting);
        }
        let found = match self.0.host.placement {
            Placement::Stream => {
                let placed = wish.place.and_then(|place| allocator.allocate_at(place, pages));
                placed.or_else(|| allocator.allocate(wish.goal, pages))
            }
            Placement::Groups => {
                let (blocks, preallocated) =
                    allocator.allocate_for_file(goal, pages, entry.shape(inode, page));
                for range in preallocated {
                    self.0.policy.withdraw(range);
                }
                blocks
            }
        };
        if let Some(blocks) = found {
            self.observed(|| Observed::Allocated { inode, page, goal, wanted: pages, blocks });
        }
        found
    }

    /// Claims pages, all dirty and none in transfer, for writing to these blocks, which they own. From now on the pages
    /// are in transfer: no other task writes them or frees the blocks.
    fn claim(&self, state: &mut State, inode: u32, page: u64, blocks: UnitRange) -> Claim {
        let entry = &mut state.disk.inodes[inode as usize];
        for (id, bits) in chunks_of(entry, page, blocks.units) {
            state.cache.begin_writeback(id, bits);
        }
        entry.dirty_pages -= blocks.units;
        entry.writeback_pages += blocks.units;
        if entry.dirty_pages == 0
            && let Some(key) = entry.dirty_key.take()
        {
            state.dirty.remove(&key);
        }
        Claim { inode, page, blocks, waiting: Waiting::Nobody }
    }

    /// Makes the running transaction, or a conversion, wait for the data of newly allocated pages. Returns which of the
    /// two waits.
    fn await_new_data(&self, state: &mut State, inode: u32, page: u64, units: u64) -> Waiting {
        if self.0.host.converts_unwritten {
            state.disk.inodes[inode as usize].unwritten.push((page, units));
            self.0.conversions.set(self.0.conversions.get() + 1);
            let left = Cell::new(units);
            return Waiting::Conversion(Rc::new(Conversion { inode, page, units, left }));
        }
        let ordered = state.journal.ordered_counter(self.0.sim.now());
        ordered.set(ordered.get() + units);
        Waiting::Transaction(ordered)
    }

    /// Submits the pages of a claim as the device has room for them.
    async fn submit(&self, claim: Claim) {
        let Claim { inode, mut page, blocks, waiting } = claim;
        for piece in self.0.queue.split(blocks) {
            self.0.queue.wait_for_room().await;
            self.witnessed(|witness| {
                witness.data_submitted(inode, self.generation(inode), page, piece);
            });
            let (fs, waiting, first) = (self.clone(), waiting.clone(), page);
            page += piece.units;
            self.0.queue.submit_background_write(piece, move || match waiting {
                Waiting::Nobody => fs.end_transfer(inode, first, piece.units),
                Waiting::Transaction(ordered) => {
                    ordered.set(ordered.get() - piece.units);
                    fs.end_transfer(inode, first, piece.units);
                }
                Waiting::Conversion(conversion) => {
                    conversion.left.set(conversion.left.get() - piece.units);
                    if conversion.left.get() == 0 {
                        let sim = fs.0.sim.clone();
                        sim.spawn(async move { fs.convert(&conversion).await });
                    }
                }
            });
        }
    }

    fn end_transfer(&self, inode: u32, page: u64, units: u64) {
        {
            let state = &mut *self.0.state.borrow_mut();
            let entry = &mut state.disk.inodes[inode as usize];
            for (id, bits) in chunks_of(entry, page, units) {
                state.cache.end_writeback(id, bits);
            }
            entry.writeback_pages -= units;
            state.throttle.wrote(units);
        }
        self.0.events.writeback_done.notify_all();
    }

    /// Records that blocks hold their data now. Only then does the transfer of their pages end (`ext4_end_io_end`).
    async fn convert(&self, conversion: &Conversion) {
        let &Conversion { inode, page, units, .. } = conversion;
        let handle = self.start_reserved_handle();
        let inode_block = {
            let disk = &mut self.0.state.borrow_mut().disk;
            let entry = &mut disk.inodes[inode as usize];
            entry.unwritten.retain(|&unwritten| unwritten != (page, units));
            entry.note_data_change(handle.tid);
            disk.layout.inode_block(inode)
        };
        self.dirty_metadata(&handle, &[inode_block]).await;
        self.merge_in_tree(&handle, inode, page).await;
        drop(handle);
        self.0.conversions.set(self.0.conversions.get() - 1);
        self.end_transfer(inode, page, units);
    }
}
