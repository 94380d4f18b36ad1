//! A journaling file system after ext4, in virtual time.
//!
//! What is modelled is what decides the cost and worth of TRIM: where blocks lie (block groups, stream
//! allocation, delayed allocation), when data and metadata reach the device (page cache, dirty limits,
//! write-back, JBD2's transactions), when a freed block may be trimmed and used again (after its commit,
//! as the policy says), and who waits for whom.
//!
//! # Who waits for whom
//!
//! Nobody waits for a commit that he did not ask for. A discard inside the commit delays the foreground
//! only because
//!
//! - the device is occupied (reads, held writers, removal of a file under write-back),
//! - the log is full: the running transaction has reached a quarter of the journal, or a checkpoint needs a
//!   buffer that belongs to a transaction that is still to commit, or
//! - blocks are missing that become allocatable only with the commit or the TRIM.
//!
//! # Files
//!
//! [`layout`] says where metadata lie, [`alloc`] hands out blocks, [`cache`] knows which pages are in
//! memory, `journal` commits and checkpoints, `writeback` empties the cache, `discard` hosts the policy,
//! `operations` is what a workload calls, [`stale`] keeps the account that all this is about.

pub mod alloc;
pub mod cache;
mod discard;
pub mod host;
mod inode;
mod journal;
pub mod layout;
mod operations;
mod read;
pub mod stale;
mod writeback;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use crate::block::BlockQueue;
use crate::engine::{Event, Sim};
use crate::policy::{Availability, Governor, Ledger, PendingSet};
use crate::units::{Bytes, SimTime, UnitRange};

use alloc::Allocator;
use cache::PageCache;
use host::HostConfig;
use inode::Inode;
use journal::Journal;
use layout::{FormatError, FormatOptions, Layout};
use stale::StaleTracker;

pub use journal::COMMIT_INTERVAL;
pub use operations::OpenFile;

/// A name in the file system.
#[derive(Clone, Copy, Debug)]
struct Entry {
    inode: u32,
    /// The directory block that holds it.
    block: u64,
    is_directory: bool,
}

/// A directory's blocks and how full they are.
#[derive(Clone, Debug, Default)]
struct Directory {
    blocks: Vec<u64>,
    entries: u64,
    bytes: u64,
}

/// What is on the disk, apart from timing: it survives an unmount.
struct Disk {
    layout: Layout,
    allocator: Allocator,
    inodes: Vec<Inode>,
    free_inodes: BTreeSet<u32>,
    /// Path to entry; looked up, never iterated.
    names: HashMap<Box<str>, Entry>,
    directories: BTreeMap<Box<str>, Directory>,
    stale: StaleTracker,
}

/// Everything that changes while the file system is mounted.
struct State {
    disk: Disk,
    cache: PageCache,
    journal: Journal,
    pending: PendingSet,
    /// Dirty files by age.
    dirty: BTreeMap<(SimTime, u64), u32>,
    dirty_sequence: u64,
    /// Dirty pages without a block, over all files.
    reserved_pages: u64,
    /// Blocks freed but not yet allocatable: in a transaction, or waiting for their TRIM.
    withheld_units: u64,
}

/// What tasks of the file system wait for.
struct Events {
    commit_request: Event,
    commit_done: Event,
    transaction_switched: Event,
    metadata_io_done: Event,
    writeback_done: Event,
    read_done: Event,
    flusher: Event,
    discard_worker: Event,
    discards_done: Event,
}

struct Inner {
    sim: Sim,
    queue: BlockQueue,
    host: HostConfig,
    governor: RefCell<Box<dyn Governor>>,
    availability: Availability,
    state: RefCell<State>,
    events: Events,
    /// Set when write-back was asked to run and has not looked yet.
    flusher_called: Cell<bool>,
    /// Set at unmount: background tasks end.
    stopping: Cell<bool>,
}

/// A file system that is not mounted.
pub struct Volume {
    queue: BlockQueue,
    disk: Disk,
}

/// A mounted file system; cheap to clone, all clones are the same mount.
#[derive(Clone)]
pub struct Ext4(Rc<Inner>);

impl Volume {
    /// Formats the device behind `queue`.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the device is too small.
    pub async fn format(queue: &BlockQueue, options: FormatOptions) -> Result<Self, FormatError> {
        let total_units = queue.with_ssd(|ssd| ssd.capacity_units());
        let layout = Layout::plan(total_units, options)?;
        let allocator = layout.allocator();
        if options.discard {
            queue.trim(&[UnitRange::new(crate::units::Lpn(0), total_units)]).await;
        }
        for range in layout.initial_blocks() {
            queue.write(range).await;
        }
        queue.write(layout.journal).await; // mke2fs zeroes the journal
        queue.flush().await;
        let mut stale = StaleTracker::new(total_units);
        let now = queue.sim().now();
        queue.with_ssd(|ssd| {
            for group in 0..allocator.groups() as u64 {
                for extent in allocator.free_in_group(group) {
                    stale.freed(now, extent, |unit| ssd.is_mapped(crate::units::Lpn(unit)));
                }
            }
        });
        let mut directories = BTreeMap::new();
        directories.insert("".into(), Directory::default());
        let mut inodes = Vec::new();
        inodes.resize(layout::FIRST_INODE as usize, Inode { in_use: true, ..Inode::default() });
        let disk = Disk {
            layout,
            allocator,
            inodes,
            free_inodes: BTreeSet::new(),
            names: HashMap::new(),
            directories,
            stale,
        };
        Ok(Self { queue: queue.clone(), disk })
    }

    /// Mounts it with a policy: starts the journal thread, write-back and whatever the policy needs.
    ///
    /// Noting the mount in the superblock starts the first transaction, and with it the commit timer.
    pub async fn mount(self, host: HostConfig, governor: Box<dyn Governor>) -> Ext4 {
        let sim = self.queue.sim().clone();
        let event = || Event::new(&sim);
        let journal = Journal::new(self.disk.layout.journal);
        let inner = Inner {
            availability: governor.availability(host.discard.availability()),
            governor: RefCell::new(governor),
            state: RefCell::new(State {
                disk: self.disk,
                cache: PageCache::new(host.memory.units_floor()),
                journal,
                pending: PendingSet::default(),
                dirty: BTreeMap::new(),
                dirty_sequence: 0,
                reserved_pages: 0,
                withheld_units: 0,
            }),
            events: Events {
                commit_request: event(),
                commit_done: event(),
                transaction_switched: event(),
                metadata_io_done: event(),
                writeback_done: event(),
                read_done: event(),
                flusher: event(),
                discard_worker: event(),
                discards_done: event(),
            },
            flusher_called: Cell::new(false),
            stopping: Cell::new(false),
            queue: self.queue,
            host,
            sim: sim.clone(),
        };
        let fs = Ext4(Rc::new(inner));
        sim.spawn(fs.clone().journal_thread());
        sim.spawn(fs.clone().flusher_thread());
        sim.spawn(fs.clone().discard_thread());
        let superblock = fs.0.state.borrow().disk.layout.superblock();
        fs.dirty_metadata(&[superblock]).await;
        fs
    }
}

impl Ext4 {
    /// Makes everything durable and stops the file system's tasks.
    ///
    /// What the policy still has pending is dropped, as Linux drops it.
    pub async fn unmount(self) -> Volume {
        self.sync_all().await;
        let inner = &self.0;
        inner.stopping.set(true);
        inner.events.commit_request.notify_all();
        inner.events.flusher.notify_all();
        inner.events.discard_worker.notify_all();
        while inner.state.borrow().pending.ledger().in_tokens > 0 {
            inner.events.discards_done.wait().await;
        }
        self.drop_pending();
        self.checkpoint_all().await;
        let mut state = inner.state.borrow_mut();
        let placeholder = Disk {
            layout: state.disk.layout.clone(),
            allocator: Allocator::default(),
            inodes: Vec::new(),
            free_inodes: BTreeSet::new(),
            names: HashMap::new(),
            directories: BTreeMap::new(),
            stale: StaleTracker::new(0),
        };
        let mut disk = std::mem::replace(&mut state.disk, placeholder);
        disk.allocator.forget_trimmed();
        for inode in &mut disk.inodes {
            inode.chunks = Default::default();
            inode.transaction = 0;
        }
        Volume { queue: inner.queue.clone(), disk }
    }

    /// The queue and device below.
    pub fn queue(&self) -> &BlockQueue {
        &self.0.queue
    }

    /// Units free in the file system and valid in the device, now.
    pub fn stale_units(&self) -> u64 {
        self.0.state.borrow().disk.stale.units()
    }

    /// Starts the account of stale units anew, for a workload that begins now.
    pub fn restart_stale(&self) {
        let now = self.0.sim.now();
        self.0.state.borrow_mut().disk.stale.restart(now);
    }

    /// Largest number and time-weighted mean of the stale units since the last restart.
    pub fn stale_max_and_mean(&self) -> (u64, f64) {
        let now = self.0.sim.now();
        self.0.state.borrow_mut().disk.stale.max_and_mean(now)
    }

    /// Where all freed blocks went.
    pub fn ledger(&self) -> Ledger {
        self.0.state.borrow().pending.ledger()
    }

    /// Blocks in use by files, directories and metadata, and blocks in all.
    fn utilization(&self) -> (u64, u64) {
        let state = self.0.state.borrow();
        let total = state.disk.layout.total_units();
        (total - state.disk.allocator.free_units() - state.withheld_units, total)
    }

    /// Checks what must hold between operations: free, used and withheld blocks partition the device; every
    /// extent of a file is allocated once; the ledger balances.
    ///
    /// # Errors
    ///
    /// What does not hold, in words.
    pub fn audit(&self) -> Result<(), String> {
        let state = self.0.state.borrow();
        let disk = &state.disk;
        let fixed = disk.layout.total_units() - disk.layout.allocator().free_units();
        let in_files: u64 = disk.inodes.iter().flat_map(|i| &i.extents).map(|e| e.blocks.units).sum();
        let in_directories: u64 = disk.directories.values().map(|d| d.blocks.len() as u64).sum();
        let free = disk.allocator.free_units();
        let accounted = fixed + in_files + in_directories + free + state.withheld_units;
        if accounted != disk.layout.total_units() {
            return Err(format!(
                "{} blocks, but {fixed} fixed + {in_files} in files + {in_directories} in directories + \
                 {free} free + {} withheld",
                disk.layout.total_units(),
                state.withheld_units
            ));
        }
        let mut owners: Vec<UnitRange> =
            disk.inodes.iter().flat_map(|i| &i.extents).map(|e| e.blocks).collect();
        owners.sort_unstable();
        if let Some(pair) = owners.windows(2).find(|pair| pair[0].end() > pair[1].start) {
            return Err(format!("two files own {:?} and {:?}", pair[0], pair[1]));
        }
        if let Some(owned) = owners.iter().find(|r| disk.allocator.free_at(r.start.0) > 0) {
            return Err(format!("{owned:?} belongs to a file and is free"));
        }
        if !state.pending.ledger().balances() {
            return Err(format!("the ledger does not balance: {:?}", state.pending.ledger()));
        }
        let reserved: u64 = disk.inodes.iter().map(|i| i.reserved_pages).sum();
        if reserved != state.reserved_pages {
            return Err(format!("{reserved} pages reserved by files, {} in all", state.reserved_pages));
        }
        Ok(())
    }

    fn bytes_free(&self) -> Bytes {
        let state = self.0.state.borrow();
        let free = state.disk.allocator.free_units() + state.withheld_units;
        Bytes::from_units(free.saturating_sub(state.reserved_pages))
    }
}
