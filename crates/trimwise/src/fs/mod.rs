//! A journaling file system after ext4, in virtual time.
//!
//! The model covers everything that decides the cost and worth of TRIM: where blocks lie (block groups, stream
//! allocation, delayed allocation), when data and metadata reach the device (page cache, dirty limits, write-back, JBD2
//! transactions), when a freed block can be trimmed and reused (after its commit, as the policy decides), and which
//! task waits for which.
//!
//! # What waits for what
//!
//! A task never waits for a commit that it did not request. A discard inside the commit delays the foreground only
//! because
//!
//! - the device is busy (reads, throttled writers, removal of a file under write-back),
//! - the log is full: the running transaction has reached a quarter of the journal, or a checkpoint needs a buffer that
//!   belongs to an uncommitted transaction, or
//! - the blocks it needs become allocatable only after the commit or the TRIM.
//!
//! # Files
//!
//! [`layout`] places the metadata, [`alloc`] allocates blocks, [`cache`] tracks the pages in memory, `inode` holds a
//! file's size and extents, `journal` commits and checkpoints, `writeback` empties the cache, `discard` hosts the
//! policy, `fitrim` trims free space, `operations` and `read` implement a workload's calls, `names` creates and removes
//! files and directories, [`stale`] counts stale space, `audit` checks the invariants. `witness` records the contents
//! of each write for the crash checker; `sabotage` lets its tests break a host.

pub mod alloc;
mod audit;
pub mod cache;
mod cold;
mod dirhash;
pub mod discard;
mod extent_tree;
mod fitrim;
mod hash;
pub mod host;
mod inode;
mod inode_table;
mod journal;
pub mod layout;
mod mballoc;
mod names;
pub mod observed;
mod operations;
mod page_lists;
mod punch;
mod read;
#[cfg(feature = "sabotage")]
pub mod sabotage;
#[cfg(not(feature = "sabotage"))]
mod sabotage;
pub mod stale;
#[cfg(test)]
mod tests;
mod throttle;
mod turns;
pub mod witness;
mod writeback;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::block::thin::ThinVolume;
use crate::block::{BlockQueue, QueueConfig};
use crate::engine::{Event, Sim};
use crate::policy::{Governor, HostedPolicy, Ledger, Policy};
use crate::ssd::{Drive, Ssd};
use crate::units::{Bytes, Lpn, SimTime, UnitRange};

use alloc::Allocator;
use cache::PageCache;
use hash::WordMap;
use host::HostConfig;
use inode_table::InodeTable;
use journal::{Journal, Tail};
use layout::{FormatError, FormatOptions, Layout, Mke2fs};
use observed::Observer;
use page_lists::PageLists;
use stale::StaleTracker;
use throttle::Throttle;
use turns::Turns;
use witness::Witness;

pub use journal::COMMIT_INTERVAL;
pub use operations::OpenFile;

#[derive(Clone, Copy, Debug)]
struct Entry {
    inode: u32,
    block: u64,
    is_directory: bool,
}

#[derive(Clone, Debug, Default)]
struct Directory {
    blocks: Vec<u64>,
    entries: u64,
    bytes: u64,
    newest: Option<u32>,
}

/// State on the disk, apart from timing: it survives an unmount.
#[derive(Clone)]
struct Disk {
    layout: Layout,
    allocator: Allocator,
    inodes: InodeTable,
    /// Path to entry; for lookups only, never iterated.
    names: WordMap<Box<str>, Entry>,
    directories: BTreeMap<Box<str>, Directory>,
    stale: StaleTracker,
    /// Blocks that files can never have: metadata and journal.
    fixed_units: u64,
    /// The device is known to have been told of all free blocks: formatted with discard, or unmounted with nothing left
    /// to tell (f2fs keeps such a mark, `CP_TRIMMED_FLAG`). If not, a mount treats all free blocks as untrimmed.
    is_trimmed: bool,
    /// Place in the log at which the next mount continues.
    log: Tail,
}

struct State {
    disk: Disk,
    cache: PageCache,
    journal: Journal,
    dirty: BTreeMap<(SimTime, u64), u32>,
    dirty_sequence: u64,
    /// The order of files in write-back, and the pacing of writers: Linux since 3.2.
    turns: Turns,
    throttle: Throttle,
    reserved_pages: u64,
    /// Blocks that have no owner and are not allocatable now: freed by an uncommitted transaction, waiting for their
    /// TRIM, or in a TRIM.
    withheld_units: u64,
    /// Withheld blocks that are in a TRIM without a token: of FITRIM, or after an extent whose TRIM extends over them.
    /// In the latter case, the part that is pending stays pending.
    held: Vec<UnitRange>,
    /// Metadata blocks in memory since the caches were dropped; `None` before that, when all are.
    in_memory: Option<BTreeSet<Lpn>>,
    /// Minimum extent length of the last FITRIM (`s_last_trim_minblks`).
    trimmed_min_units: u64,
}

struct Events {
    commit_request: Event,
    commit_done: Event,
    transaction_switched: Event,
    handles_ended: Event,
    metadata_io_done: Event,
    writeback_done: Event,
    read_done: Event,
    flusher: Event,
    policy_timer: Event,
    blocks_released: Event,
    thread_ended: Event,
}

struct Inner {
    sim: Sim,
    queue: BlockQueue,
    host: HostConfig,
    policy: HostedPolicy,
    state: RefCell<State>,
    events: Events,
    /// Set while tasks wait for blocks that the policy withholds: the time since which it has released none, and the
    /// time until which a task is known to have waited.
    unreleased: Cell<Option<(SimTime, SimTime)>>,
    /// Number of allocations with new blocks that do not yet hold their data.
    conversions: Cell<u64>,
    flusher_called: Cell<bool>,
    stopping: Cell<bool>,
    threads: Cell<u32>,
    /// Records the contents of each write, for the crash checker.
    witness: Option<Rc<Witness>>,
    /// Is told of allocations and frees.
    observer: RefCell<Option<Observer>>,
    /// The deliberate fault of this host, for the crash checker to find.
    #[cfg(feature = "sabotage")]
    sabotage: Cell<Option<sabotage::Sabotage>>,
}

/// A file system that is not mounted.
///
/// ```
/// use trimwise::block::{BlockQueue, QueueConfig};
/// use trimwise::engine::Sim;
/// use trimwise::fs::{Volume, host::HostConfig, layout::FormatOptions};
/// use trimwise::policy::{LinuxVersion, PolicySpec};
/// use trimwise::ssd::{Ssd, SsdConfig};
/// use trimwise::units::Bytes;
/// use trimwise::files::{Files, OpenMode};
///
/// let sim = Sim::new();
/// let queue = BlockQueue::new(&sim, Ssd::new(&SsdConfig::default(), 1)?, QueueConfig::default());
/// let ledger = sim.run(async move {
///     let volume = Volume::format(&queue, FormatOptions::TODAY).await?;
///     let host = HostConfig::of(LinuxVersion::TODAY, Bytes::gib(1));
///     let fs = volume.mount(host, PolicySpec::COMMIT.governor()).await;
///     let mut file = fs.open("log", OpenMode::Create).await?;
///     fs.write(&mut file, &[0; 8192]).await?;
///     fs.fsync(&mut file).await?;
///     fs.close(file).await?;
///     fs.unlink("log").await?;
///     fs.sync().await?;
///     fs.drain_discards().await;
///     Ok::<_, Box<dyn std::error::Error>>(fs.ledger())
/// })??;
/// assert_eq!(ledger.issued, 2, "both blocks of the file");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Volume {
    queue: BlockQueue,
    disk: Disk,
}

/// A snapshot of an unmounted file system and its device, independent of any simulation. A state that took long to
/// prepare is made once; any number of runs, on any thread, can start from it.
#[derive(Clone)]
pub struct VolumeImage {
    drive: Drive,
    thin: Option<ThinVolume>,
    disk: Disk,
    at: SimTime,
}

impl VolumeImage {
    /// Restores the volume in another simulation, behind a queue of its own, and moves that simulation's clock to the
    /// snapshot's time.
    pub async fn restore(&self, sim: &Sim, config: QueueConfig) -> Volume {
        sim.sleep_until(self.at).await;
        let queue = BlockQueue::new(sim, self.drive.clone(), config);
        queue.put_thin_volume(self.thin.clone());
        Volume { queue, disk: self.disk.clone() }
    }

    pub fn ssd(&self) -> &Ssd {
        self.drive.ssd()
    }
}

/// A mounted file system. Cheap to clone: all clones are the same mount. [`Volume`] has an example.
#[derive(Clone)]
pub struct Ext4(Rc<Inner>);

impl Volume {
    pub async fn format(queue: &BlockQueue, options: FormatOptions) -> Result<Self, FormatError> {
        let total_units = queue.with_ssd(|ssd| ssd.capacity_units());
        let layout = Layout::plan(total_units, options)?;
        let mut allocator = layout.allocator();
        allocator.mballoc_mut().set_stripe(queue.optimal_units());
        if options.discard {
            queue.trim(&[UnitRange::new(Lpn(0), total_units)]).await;
        }
        let was_empty = queue.with_ssd(|ssd| ssd.mapped_units() == 0);
        for range in layout.initial_blocks() {
            queue.write(range).await;
        }
        if options.tool == Mke2fs::Today {
            for range in layout.inode_tables() {
                queue.write_zeros(range).await;
            }
        }
        queue.write_zeros(layout.journal).await; // mke2fs zeroes the journal
        // A drive does not notice the copies of the superblock, a pool takes a chunk for each.
        queue.with_thin(|volume, now| layout.written_heads().for_each(|range| volume.write(now, range)));
        queue.flush().await;
        let fixed_units = layout.total_units() - allocator.free_units();
        let mut stale = StaleTracker::new(total_units);
        let now = queue.sim().now();
        // On an empty device nothing is stale; looking at each unit of a large one takes a while.
        if !was_empty {
            let free = allocator.free_from(0, u64::MAX);
            queue.with_ssd(|ssd| free.for_each(|e| stale.freed(now, e, |unit| ssd.is_mapped(Lpn(unit)))));
        }
        let inodes = InodeTable::new(allocator.groups() as u64);
        let disk = Disk {
            layout,
            allocator,
            inodes,
            names: WordMap::default(),
            directories: BTreeMap::from([("".into(), Directory::default())]),
            stale,
            fixed_units,
            is_trimmed: options.discard,
            log: Tail::FORMATTED,
        };
        Ok(Self { queue: queue.clone(), disk })
    }

    pub fn image(&self) -> VolumeImage {
        VolumeImage {
            drive: self.queue.drive().clone(),
            thin: self.queue.with_thin(|volume, _| volume.clone()),
            disk: self.disk.clone(),
            at: self.queue.sim().now(),
        }
    }

    pub fn queue(&self) -> &BlockQueue {
        &self.queue
    }

    /// Mounts the volume with a policy. Starts the journal thread, write-back and the policy's task.
    ///
    /// The superblock update starts the first transaction, and with it the commit timer.
    pub async fn mount(self, host: HostConfig, governor: Box<dyn Governor>) -> Ext4 {
        self.mount_as(host, governor, None).await
    }

    /// Mounts the volume with a policy, over a target if the policy has one, until it is unmounted. Lets `witness` (of
    /// this volume, freshly formatted) record writes and promises.
    pub async fn mount_under(self, host: HostConfig, policy: &Policy, witness: Option<Rc<Witness>>) -> Ext4 {
        if let Some(target) = policy.target() {
            self.queue.put_target(target, host.discard);
        }
        self.mount_as(host, policy.governor(), witness).await
    }

    async fn mount_as(
        mut self,
        host: HostConfig,
        governor: Box<dyn Governor>,
        witness: Option<Rc<Witness>>,
    ) -> Ext4 {
        let sim = self.queue.sim().clone();
        let event = || Event::new(&sim);
        self.disk.allocator.mballoc_mut().set_never_shortens(!host.shortens_windows);
        let journal = Journal::new(self.disk.layout.journal, self.disk.log, host.transactions_in_journal);
        let policy = HostedPolicy::new(governor, host.discard);
        if !self.disk.is_trimmed {
            let free = self.disk.allocator.free_from(0, u64::MAX);
            free.for_each(|range| policy.suspect(range));
        }
        let inner = Inner {
            policy,
            state: RefCell::new(State {
                disk: self.disk,
                cache: PageCache::new(
                    host.memory.units_floor(),
                    host.lists_free_pages.then(|| PageLists::new(host.memory.units_floor())),
                ),
                journal,
                dirty: BTreeMap::new(),
                dirty_sequence: 0,
                turns: Turns::default(),
                throttle: Throttle::new(host.hz(), host.dirty_limits(host.memory.units_floor())),
                reserved_pages: 0,
                withheld_units: 0,
                held: Vec::new(),
                in_memory: None,
                trimmed_min_units: 0,
            }),
            events: Events {
                commit_request: event(),
                commit_done: event(),
                transaction_switched: event(),
                handles_ended: event(),
                metadata_io_done: event(),
                writeback_done: event(),
                read_done: event(),
                flusher: event(),
                policy_timer: event(),
                blocks_released: event(),
                thread_ended: event(),
            },
            unreleased: Cell::new(None),
            conversions: Cell::new(0),
            flusher_called: Cell::new(false),
            stopping: Cell::new(false),
            threads: Cell::new(0),
            witness,
            observer: RefCell::default(),
            #[cfg(feature = "sabotage")]
            sabotage: Cell::new(None),
            queue: self.queue,
            host,
            sim: sim.clone(),
        };
        let fs = Ext4(Rc::new(inner));
        let below = Rc::downgrade(&fs.0);
        fs.0.queue.on_told_below(Box::new(move |range| {
            if let Some(inner) = below.upgrade() {
                Ext4(inner).told_below(range);
            }
        }));
        fs.start_thread(fs.clone().journal_thread());
        fs.start_thread(fs.clone().flusher_thread());
        fs.start_thread(fs.clone().policy_timer());
        let superblock = fs.0.state.borrow().disk.layout.superblock();
        fs.introduce_host();
        let handle = fs.start_handle(1).await;
        fs.dirty_metadata(&handle, &[superblock]).await;
        drop(handle);
        fs
    }
}

impl Ext4 {
    fn start_thread(&self, thread: impl Future<Output = ()> + 'static) {
        let fs = self.clone();
        self.0.threads.set(self.0.threads.get() + 1);
        self.0.sim.spawn(async move {
            thread.await;
            fs.0.threads.set(fs.0.threads.get() - 1);
            fs.0.events.thread_ended.notify_all();
        });
    }

    /// Makes everything durable and stops the file system's tasks. No other task may still be using it.
    ///
    /// Drops the policy's pending extents, as Linux does.
    pub async fn unmount(self) -> Volume {
        self.sync_all().await;
        let inner = &self.0;
        inner.stopping.set(true);
        inner.policy.stop();
        inner.events.commit_request.notify_all();
        inner.events.flusher.notify_all();
        inner.events.policy_timer.notify_all();
        while inner.threads.get() > 0 {
            inner.events.thread_ended.wait().await;
        }
        // Unused read-ahead still refers to its file.
        while inner.state.borrow().disk.inodes.iter().any(|i| i.reads > 0) {
            inner.events.read_done.wait().await;
        }
        inner.policy.drop_all(&self);
        self.checkpoint_all().await;
        let untold_below = inner.queue.remove_target().await;
        let mut state = inner.state.borrow_mut();
        let placeholder = Disk {
            layout: state.disk.layout.clone(),
            allocator: Allocator::default(),
            inodes: InodeTable::default(),
            names: WordMap::default(),
            directories: BTreeMap::new(),
            stale: StaleTracker::new(0),
            fixed_units: 0,
            is_trimmed: false,
            log: Tail::FORMATTED,
        };
        let is_trimmed = inner.policy.untrimmed_units() + untold_below == 0;
        let mut disk = std::mem::replace(&mut state.disk, placeholder);
        disk.allocator.discard_preallocations();
        disk.allocator.forget_trimmed();
        disk.is_trimmed = is_trimmed;
        disk.log = state.journal.possible_tail().0;
        for inode in disk.inodes.iter_mut() {
            inode.chunks = Default::default();
            (inode.transaction, inode.data_transaction, inode.name_transaction) = (0, 0, 0);
        }
        Volume { queue: inner.queue.clone(), disk }
    }

    pub fn queue(&self) -> &BlockQueue {
        &self.0.queue
    }

    /// Returns the number of units that are now free in the file system and valid in the device.
    pub fn stale_units(&self) -> u64 {
        self.0.state.borrow().disk.stale.units()
    }

    /// Returns the stale units in each superblock of the device ([`Ssd::superblocks`](crate::ssd::Ssd::superblocks)).
    /// Looks at every stale unit.
    pub fn stale_units_by_superblock(&self) -> Vec<u32> {
        self.queue().with_ssd(|ssd| {
            let mut units = vec![0; ssd.superblocks().len()];
            let state = self.0.state.borrow();
            for superblock in state.disk.stale.each().filter_map(|unit| ssd.superblock_of(Lpn(unit))) {
                units[superblock as usize] += 1;
            }
            units
        })
    }

    /// Resets the maximum and mean of stale units, for a workload that begins now.
    pub fn restart_stale(&self) {
        let now = self.0.sim.now();
        self.0.state.borrow_mut().disk.stale.restart(now);
    }

    /// Returns maximum and time-weighted mean of the stale units since the last reset.
    pub fn stale_max_and_mean(&self) -> (u64, f64) {
        let now = self.0.sim.now();
        self.0.state.borrow_mut().disk.stale.max_and_mean(now)
    }

    pub(crate) fn take_recent_stale_max(&self) -> u64 {
        let now = self.0.sim.now();
        self.0.state.borrow_mut().disk.stale.take_recent_max(now)
    }

    /// Returns the accounting of all freed blocks. Discards that wait in a target below do not count as issued.
    pub fn ledger(&self) -> Ledger {
        let own = self.0.policy.ledger();
        self.0.queue.ledger_below().map_or(own, |below| own.handed_on(&below))
    }

    /// Returns the blocks of a file or directory, in page order (`FIEMAP`); `None` if the path does not exist. Pages
    /// written but not yet allocated are missing.
    pub fn extents(&self, path: &str) -> Option<Vec<UnitRange>> {
        let disk = &self.0.state.borrow().disk;
        if let Some(directory) = disk.directories.get(path) {
            return Some(directory.blocks.iter().map(|&b| UnitRange::new(Lpn(b), 1)).collect());
        }
        let inode = disk.names.get(path)?.inode;
        Some(disk.inodes[inode as usize].extents.iter().map(|e| e.blocks).collect())
    }

    /// Returns the length of a file; `None` if there is none of that name.
    pub fn length(&self, path: &str) -> Option<Bytes> {
        let disk = &self.0.state.borrow().disk;
        let entry = disk.names.get(path).filter(|entry| !entry.is_directory)?;
        Some(Bytes(disk.inodes[entry.inode as usize].size_bytes))
    }

    pub(crate) fn free_extents(&self) -> Vec<(u64, u64)> {
        let allocator = &self.0.state.borrow().disk.allocator;
        allocator.free_from(0, u64::MAX).map(|extent| (extent.start.0, extent.units)).collect()
    }

    pub fn commits(&self) -> u64 {
        self.0.state.borrow().journal.committed
    }

    pub fn journal_blocks(&self) -> UnitRange {
        self.0.state.borrow().disk.layout.journal
    }

    /// Returns the blocks of metadata, including the current blocks of directories.
    pub fn metadata_blocks(&self) -> Vec<UnitRange> {
        let disk = &self.0.state.borrow().disk;
        let directories = disk.directories.values().flat_map(|directory| &directory.blocks);
        let directories = directories.map(|&block| UnitRange::new(Lpn(block), 1));
        disk.layout.metadata().into_iter().chain(directories).collect()
    }

    fn witnessed(&self, note: impl FnOnce(&Witness)) {
        if let Some(witness) = &self.0.witness {
            note(witness);
        }
    }

    /// Notes that blocks were allocated: from now on they are not stale, and must not be trimmed.
    fn note_allocated(&self, stale: &mut StaleTracker, blocks: UnitRange) {
        self.0.policy.withdraw(blocks);
        stale.allocated(self.0.sim.now(), blocks);
        self.witnessed(|witness| witness.allocated(blocks));
    }

    /// Returns the blocks in use by files, directories and metadata, and the total.
    pub(crate) fn utilization(&self) -> (u64, u64) {
        let state = self.0.state.borrow();
        let total = state.disk.layout.total_units();
        (total - state.disk.allocator.free_units() - state.withheld_units, total)
    }

    /// Returns the blocks in use, without those that only a larger file system would need.
    pub(crate) fn written_units(&self) -> u64 {
        self.utilization().0 - self.0.state.borrow().disk.layout.unwritten_units()
    }

    fn allocatable_units(&self, state: &State) -> u64 {
        let kept = self.0.host.kept_units_max.min(state.disk.layout.total_units() / 50);
        state.disk.allocator.free_units().saturating_sub(kept)
    }

    /// Returns the number of blocks that can be promised to a newly dirty page, including those that become free only
    /// after a commit or a TRIM (`s_freeclusters_counter` without `s_dirtyclusters_counter`).
    fn promisable_units(&self, state: &State) -> u64 {
        (self.allocatable_units(state) + state.withheld_units).saturating_sub(state.reserved_pages)
    }

    pub(crate) fn bytes_free(&self) -> Bytes {
        Bytes::from_units(self.promisable_units(&self.0.state.borrow()))
    }
}
