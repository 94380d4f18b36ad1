//! The host around the file system: memory, write-back, processor costs, and which Linux it runs.

use crate::block::{QueueConfig, WriteThrottleConfig};
use crate::units::{Bytes, SimDuration, SimTime};

pub use crate::policy::{DiscardGeneration, LinuxVersion, LinuxVersionError};

/// Memory that a kernel needs for its code, its tables and the reserve that it keeps free. Measured: 29 to 32 MiB in
/// addition to [`page_structures`], with 256 MiB to 2 GiB of memory (`nr_dirty_threshold` of 6.12 after the mount).
const KERNEL: Bytes = Bytes::mib(30);

/// Returns the bytes of page descriptors for `memory`: 64 for each page of 4 KiB (`struct page`).
fn page_structures(memory: Bytes) -> u64 {
    memory.0 / 64
}

/// Processor time of the file system's code paths.
///
/// Only the caller's own time is charged; kernel threads are free, since they run on another core. Set all to zero to
/// compare with a guest in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuCosts {
    pub syscall: SimDuration,
    /// Adding one page to the page cache: allocation, delayed-allocation accounting, journal checks.
    pub page_write: SimDuration,
    pub page_read: SimDuration,
    /// Copying 4 KiB between user and kernel, or through a stdio buffer.
    pub copy_page: SimDuration,
    /// Path lookup, opening an existing file, and closing it.
    pub open: SimDuration,
    /// Creating a file, in addition to `open`: inode allocation, directory entry.
    pub create: SimDuration,
    pub unlink: SimDuration,
    pub page_truncate: SimDuration,
}

impl CpuCosts {
    pub const ZERO: Self = Self {
        syscall: SimDuration::ZERO,
        page_write: SimDuration::ZERO,
        page_read: SimDuration::ZERO,
        copy_page: SimDuration::ZERO,
        open: SimDuration::ZERO,
        create: SimDuration::ZERO,
        unlink: SimDuration::ZERO,
        page_truncate: SimDuration::ZERO,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writeback {
    /// Linux up to 3.1: a writer above the limit stops until enough pages are clean, and dirty files take turns of 4
    /// MiB (`MAX_WRITEBACK_PAGES`). Metadata are written when the oldest have been dirty for `dirty_expire`.
    AtTheLimit,
    /// Since 3.2 (143dfe8611a6): writers are paced to keep dirty memory halfway to the limit. Files are written in
    /// batches of at least a tenth of a second, and the drive's metadata take their turn among them.
    Paced {
        /// Ticks a second (`CONFIG_HZ`, 1 to 1000), in which pauses are counted.
        hz: u64,
    },
}

/// Memory that a kernel uses in addition to the pages that it caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slabs {
    /// Bytes per existing file: its inode and name are cached.
    pub inode_bytes: u64,
    pub page_bytes: u64,
    /// Bytes of other files, programs and their libraries in the page cache. They leave no room for this file system's
    /// pages, but count as memory for the dirty limits.
    pub programs_bytes: u64,
}

impl Slabs {
    /// No overhead: pages may fill all memory.
    pub const NONE: Self = Self { inode_bytes: 0, page_bytes: 0, programs_bytes: 0 };

    /// Linux 6 with only the workload running. Sizes from /proc/slabinfo of 6.1 after 4,000 files of three pages, slab
    /// overhead included: ext4_inode_cache 1,024, dentry 195, two of ext4_extent_status 80, radix_tree_node 585;
    /// buffer_head 105. From /proc/meminfo of 6.12 after the mount: 9 MiB cached.
    pub(crate) const LINUX_6: Self = Self { inode_bytes: 1_884, page_bytes: 105, programs_bytes: 9 << 20 };
}

/// Rule for the place of blocks that write-back allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One moving goal for all files: the host of the experiments of 2010 to 2017, whose fits depend on it.
    Stream,
    /// The rules of mballoc.
    Groups,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Memory for the page cache; the dirty limits are shares of it.
    pub memory: Bytes,
    /// Memory that other users take from `memory`.
    pub slabs: Slabs,
    /// Share of memory that can be dirty before write-back starts (`dirty_background_ratio`, default 10).
    pub dirty_background_percent: u64,
    /// Share of memory that can be dirty before writers are throttled (`dirty_ratio`, default 20).
    pub dirty_percent: u64,
    /// Age at which a dirty file is written (`dirty_expire_centisecs`, default 30 s).
    pub dirty_expire: SimDuration,
    /// Interval at which write-back looks for expired files (`dirty_writeback_centisecs`, default 5 s).
    pub writeback_interval: SimDuration,
    pub writeback: Writeback,
    pub placement: Placement,
    /// Maximum number of blocks withheld from files, so that write-back never fails for lack of metadata. The kernel
    /// withholds a fiftieth of all blocks, up to this many (`ext4_set_resv_clusters`).
    pub kept_units_max: u64,
    /// New blocks count as unwritten until their data are written (`dioread_nolock`). Each allocation then reserves
    /// room in the journal until that is recorded.
    pub converts_unwritten: bool,
    /// Resolution of file times (`current_time`: one tick). Two writes within a tick change the inode once.
    pub file_time_step: SimDuration,
    /// Each processor keeps long lists of pages that it freed (`page_lists.rs`).
    pub lists_free_pages: bool,
    /// The allocator searches for a shorter window before it searches all groups.
    pub shortens_windows: bool,
    /// Number of transactions of maximum size that fit into a journal.
    pub transactions_in_journal: u64,
    /// Largest read-ahead (`read_ahead_kb`, default 128 KiB).
    pub read_ahead: Bytes,
    pub cpu: CpuCosts,
    pub queue: QueueConfig,
    pub discard: DiscardGeneration,
}

impl HostConfig {
    /// Returns the pages that fit in memory, with the kernel's own memory for this many files and pages.
    pub(super) fn memory_for_pages(&self, inodes: u64, pages: u64) -> u64 {
        let Slabs { inode_bytes, page_bytes, .. } = self.slabs;
        Bytes(self.memory.0.saturating_sub(inodes * inode_bytes + pages * page_bytes)).units_floor()
    }

    /// Returns the numbers of dirty pages above which write-back starts, and above which writers stop, with this much
    /// memory.
    pub(super) fn dirty_limits(&self, memory_pages: u64) -> (u64, u64) {
        (memory_pages * self.dirty_background_percent / 100, memory_pages * self.dirty_percent / 100)
    }

    /// Returns the file time for `now`, rounded down to a tick.
    pub(super) fn file_time(&self, now: SimTime) -> SimTime {
        let step = self.file_time_step.as_nanos().max(1);
        SimTime(now.as_nanos() / step * step)
    }

    pub(super) fn hz(&self) -> u64 {
        match self.writeback {
            Writeback::AtTheLimit => 1000,
            Writeback::Paced { hz } => hz.clamp(1, 1000),
        }
    }

    /// Returns a machine with this much memory that runs this Linux.
    pub fn of(linux: LinuxVersion, machine: Bytes) -> Self {
        let before = Self::of_the_2010s();
        let kernel = KERNEL.0 + page_structures(machine);
        Self {
            memory: Bytes(machine.0.saturating_sub(kernel)),
            slabs: Slabs::LINUX_6,
            placement: Placement::Groups,
            converts_unwritten: linux.converts_unwritten(),
            file_time_step: SimDuration::from_millis(4), // of 250 ticks a second
            lists_free_pages: linux.lists_free_pages(),
            shortens_windows: linux.shortens_windows(),
            transactions_in_journal: linux.transactions_in_journal(),
            kept_units_max: if linux.keeps_blocks() { 4_096 } else { 0 },
            // Debian's CONFIG_HZ.
            writeback: if linux.paces_writers() {
                Writeback::Paced { hz: 250 }
            } else {
                Writeback::AtTheLimit
            },
            queue: QueueConfig {
                // Read latency target of 2 ms for non-rotating drives; default queue depth (`nr_requests`) of 256.
                write_throttle: linux.throttles_writeback().then_some(WriteThrottleConfig {
                    read_latency_max: SimDuration::from_millis(2),
                    queue_depth: 256,
                }),
                ..before.queue
            },
            discard: linux.discard(),
            ..before
        }
    }

    /// Returns the host of [`HostConfig::of`] as a guest in virtual time (`trimwise kernel`): its processor takes no
    /// time, and User-Mode Linux has 100 ticks per second (arch/um/Kconfig).
    pub fn in_guest(linux: LinuxVersion, machine: Bytes) -> Self {
        let of_linux = Self::of(linux, machine);
        let writeback = match of_linux.writeback {
            Writeback::AtTheLimit => Writeback::AtTheLimit,
            Writeback::Paced { .. } => Writeback::Paced { hz: 100 },
        };
        // virtio has no scheduler.
        let queue = QueueConfig { merges_waiting: false, ..of_linux.queue };
        let file_time_step = SimDuration::from_millis(10);
        Self { writeback, queue, file_time_step, cpu: CpuCosts::ZERO, ..of_linux }
    }

    /// Returns the host of the experiments of 2010 to 2017: 8 GiB, with the page cache and the allocator that their
    /// fits depend on.
    pub fn of_the_2010s() -> Self {
        Self {
            memory: Bytes::gib(8),
            slabs: Slabs::NONE,
            dirty_background_percent: 10,
            dirty_percent: 20,
            dirty_expire: SimDuration::from_secs(30),
            writeback_interval: SimDuration::from_secs(5),
            placement: Placement::Stream,
            kept_units_max: 0,
            converts_unwritten: false,
            file_time_step: SimDuration::ZERO,
            lists_free_pages: false,
            shortens_windows: false,
            transactions_in_journal: 4,
            writeback: Writeback::AtTheLimit,
            read_ahead: Bytes::kib(128),
            cpu: CpuCosts {
                syscall: SimDuration::from_nanos(250),
                page_write: SimDuration::from_nanos(600),
                page_read: SimDuration::from_nanos(150),
                copy_page: SimDuration::from_nanos(350),
                open: SimDuration::from_nanos(3_000),
                create: SimDuration::from_nanos(12_000),
                unlink: SimDuration::from_nanos(15_000),
                page_truncate: SimDuration::from_nanos(100),
            },
            queue: QueueConfig { max_request: Bytes::kib(1280), ..QueueConfig::default() },
            discard: DiscardGeneration::WorkerRunningOn,
        }
    }
}
