//! The numbers that make one SSD different from another.
//!
//! Every number has its unit in its name. [`SsdConfig::default`] is a small SATA drive that a laptop
//! simulates quickly; profiles (see [`crate::profile`]) fill the same structure from a file. All checks
//! live in [`SsdConfig::validate`], and nowhere else: a device is built from a configuration that passed.

mod mapping;
mod shrunk;
mod slc;

use serde::{Deserialize, Serialize};

use super::geometry::Geometry;
pub use mapping::*;
pub use slc::SlcConfig;

use crate::units::{Bytes, UNIT_BYTES};

/// A number (or a combination of numbers) that no device can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} is not accepted; expected {expected}")]
pub struct ConfigError {
    /// Dotted name of the setting, as in a profile: `nand.t_prog_ns`.
    pub field: &'static str,
    /// The value that was refused.
    pub value: String,
    /// Description of accepted values.
    pub expected: String,
}

/// Everything that describes one device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SsdConfig {
    /// Bytes that the host sees; rounded down to whole units.
    pub capacity_bytes: u64,
    /// Physical space beyond the logical, in percent of the logical. Either this or
    /// `geometry.blocks_per_plane`; both only if they agree to the superblock.
    pub over_provisioning_percent: Option<u32>,
    /// Layout of the flash.
    pub geometry: GeometryConfig,
    /// Times of the flash chips.
    pub nand: NandConfig,
    /// The mapping of logical units to the flash.
    #[serde(default)]
    pub mapping: MappingConfig,
    /// A write buffer of flash in SLC mode.
    pub slc: Option<SlcConfig>,
    /// Host interface of the drive.
    pub link: LinkConfig,
    /// Costs that the controller adds to commands.
    pub controller: ControllerConfig,
    /// Write cache of the drive.
    pub cache: CacheConfig,
    /// Garbage collection of the drive.
    pub gc: GcConfig,
    /// Static wear levelling of the drive.
    pub wear_levelling: WearLevellingConfig,
    /// The shape and the cost of TRIM.
    pub trim: TrimConfig,
    /// True to keep a tag for every unit, so that a test can check the results of reads. Costs 4 bytes a physical unit
    /// and more a logical one; for tests.
    #[serde(skip)]
    pub track_tags: bool,
}

/// Layout of the flash, and of superblocks, which are erased together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GeometryConfig {
    /// Channels: buses that transfer at the same time.
    pub channels: u32,
    /// Dies on a channel: each reads, programs or erases independently.
    pub dies_per_channel: u32,
    /// Planes in a die: work on the same operation at the same time.
    pub planes_per_die: u32,
    /// Erase blocks in a plane that the FTL may use. `None`: as many as the over-provisioning asks for.
    pub blocks_per_plane: Option<u32>,
    /// Pages in an erase block.
    pub pages_per_block: u32,
    /// Size of a page in bytes, a multiple of 4 KiB.
    pub page_bytes: u32,
    /// Planes ganged into one superblock, which the FTL allocates and erases as a whole. Either whole dies (a multiple
    /// of `planes_per_die`), or an equal part of one die.
    pub superblock_planes: u32,
}

impl GeometryConfig {
    /// A small drive: one die of one plane on each channel, all of them ganged into one superblock.
    pub const fn flat(channels: u32, pages_per_block: u32, page_bytes: u32) -> Self {
        Self {
            channels,
            dies_per_channel: 1,
            planes_per_die: 1,
            blocks_per_plane: None,
            pages_per_block,
            page_bytes,
            superblock_planes: channels,
        }
    }
}

/// Times of the flash chips.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NandConfig {
    /// Array to page register (tR), nanoseconds.
    pub t_read_ns: u64,
    /// Page register to array (tPROG), nanoseconds.
    pub t_prog_ns: u64,
    /// Erasing a block (tBERS), nanoseconds.
    pub t_erase_ns: u64,
    /// Transfer rate of one channel, bytes a second.
    pub bus_bytes_per_s: u64,
    /// Program/erase cycles that a block is rated for; used by reports on life time only.
    pub endurance_cycles: u32,
    /// True if the endurance is an assumption, as the profile's source of it says; for reports only.
    #[serde(skip)]
    pub endurance_is_assumed: bool,
}

/// Kind of a host interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// Half duplex: data go one way at a time.
    Sata,
    /// Full duplex, with NVMe commands.
    Nvme,
    /// Full duplex, with UFS commands.
    Ufs,
}

/// Parameters of the host interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LinkConfig {
    /// Kind of the interface.
    pub kind: LinkKind,
    /// Payload rate in one direction, bytes a second.
    pub bytes_per_s: u64,
    /// Time of the link that each command takes besides its data, nanoseconds.
    pub overhead_per_command_ns: u64,
    /// Commands that the host may have outstanding; the caller keeps to it.
    pub queue_depth: u32,
}

/// Costs that the controller adds to each command. It serves one command at a time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ControllerConfig {
    /// Time for a read command, nanoseconds.
    pub read_overhead_ns: u64,
    /// Time for a write command, nanoseconds.
    pub write_overhead_ns: u64,
    /// Rate at which the controller moves host data towards the flash, bytes a second; `None`: no limit.
    pub write_bytes_per_s: Option<u64>,
    /// Bytes that the controller reads ahead of a sequential stream into its memory. 0: none.
    #[serde(default)]
    pub read_ahead_bytes: u64,
}

/// Parameters of the write cache.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CacheConfig {
    /// Bytes of host data that may wait for the flash. 0: a write is acknowledged when it is programmed, and each
    /// write command pads its last page.
    pub bytes: u64,
    /// True if the content is lost with the power, so that a flush must drain the cache.
    pub volatile: bool,
    /// Time that a flush takes besides draining, nanoseconds.
    pub flush_ns: u64,
}

/// Rule for choosing the next victim superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VictimPolicy {
    /// The superblock with the fewest valid units.
    Greedy,
    /// The best ratio of benefit to cost, weighted by age (Rosenblum and Ousterhout 1992).
    CostBenefit,
    /// The best of this many drawn at random (Van Houdt 2013; Li, Lee and Lui 2013).
    DChoices(u32),
    /// The superblock that was filled first.
    Fifo,
}

/// Parameters of garbage collection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GcConfig {
    /// Rule for choosing victims.
    pub victim: VictimPolicy,
    /// True if copies go to the host's superblock instead of one of their own.
    pub shared_frontier: bool,
    /// Superblocks that are open for host writes at the same time, filled in turn. With a block mapping: streams that
    /// are open at the same time in each lane.
    pub host_frontiers: u32,
    /// Foreground collection begins when fewer superblocks than this are free. Default 3: one that only
    /// the collector may take, one for the host, one so that neither waits. More costs usable space.
    pub free_superblocks_min: u32,
    /// True to collect while the host is idle.
    pub idle: bool,
    /// The host counts as idle this long after its last command completed, nanoseconds.
    pub idle_threshold_ns: u64,
    /// Collection while idle stops when this many superblocks are free.
    pub idle_free_superblocks: u32,
}

/// Static wear levelling: the cold blocks with the fewest erases are moved now and then.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WearLevellingConfig {
    /// Moves begin when the most and the least erased superblock differ by more than this. `None`: off.
    pub threshold_erases: Option<u32>,
    /// At most one move for this many erases, so that levelling cannot crowd out the host.
    pub interval_erases: u32,
}

/// The command that carries TRIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrimKind {
    /// No command: the firmware does not support TRIM.
    Unsupported,
    /// ATA DATA SET MANAGEMENT: not queued, so that all commands before it complete first.
    AtaNonQueued,
    /// ATA SEND FPDMA QUEUED.
    AtaQueued,
    /// NVMe Dataset Management, deallocate.
    Nvme,
    /// UFS (SCSI) UNMAP command.
    Ufs,
}

/// The time at which the cost of a TRIM falls due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrimPlace {
    /// The command is acknowledged when the work is done.
    BeforeAck,
    /// The command is acknowledged at once; the work then slows host I/O down.
    Background,
}

/// Result of a read of a trimmed unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadAfterTrim {
    /// Zeros in every case.
    Zeros,
    /// The data from before the TRIM.
    Old,
    /// Zeros or the old data, without promise.
    Undefined,
}

/// The shape and the cost of TRIM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default = "TrimConfig::unsupported")]
pub struct TrimConfig {
    /// The command that carries TRIM.
    pub kind: TrimKind,
    /// Ranges in a command.
    pub max_ranges: u32,
    /// Units in a range.
    pub max_units_per_range: u32,
    /// Only whole, aligned granules of this many units inside a range are unmapped.
    pub granularity_units: u32,
    /// Time for each command, nanoseconds.
    pub cost_per_command_ns: u64,
    /// Time for each range, nanoseconds.
    pub cost_per_range_ns: u64,
    /// Time for each unit asked for, mapped or not, nanoseconds.
    pub cost_per_unit_ns: u64,
    /// Additional time for each unit that held data, nanoseconds.
    pub cost_per_mapped_unit_ns: u64,
    /// Time from the end of those costs to the acknowledgement, in which the device serves other commands, nanoseconds.
    /// The costs above occupy the device, this does not: queued TRIMs overlap in it, so that many at a time are faster
    /// than one by one. 0: they never overlap. A TRIM that cannot be queued overlaps with nothing.
    pub latency_per_command_ns: u64,
    /// The time at which the cost falls due.
    pub place: TrimPlace,
    /// While background work is left, host reads and writes take this much longer, percent.
    pub slowdown_percent: u32,
    /// Result of a read of a trimmed unit.
    pub read_after: ReadAfterTrim,
}

impl TrimConfig {
    /// Returns the configuration of a firmware without TRIM. Its numbers have no effect and are valid.
    pub const fn unsupported() -> Self {
        Self {
            kind: TrimKind::Unsupported,
            max_ranges: 1,
            max_units_per_range: u32::MAX,
            granularity_units: 1,
            cost_per_command_ns: 0,
            cost_per_range_ns: 0,
            cost_per_unit_ns: 0,
            cost_per_mapped_unit_ns: 0,
            latency_per_command_ns: 0,
            place: TrimPlace::BeforeAck,
            slowdown_percent: 0,
            read_after: ReadAfterTrim::Old,
        }
    }
}

impl Default for SsdConfig {
    /// Returns a drive of 8 GiB behind SATA, with the ratios of a small TLC drive: 7 % over-provisioning, four
    /// channels.
    fn default() -> Self {
        Self {
            capacity_bytes: Bytes::gib(8).0,
            over_provisioning_percent: Some(7),
            geometry: GeometryConfig {
                channels: 4,
                dies_per_channel: 1,
                planes_per_die: 2,
                blocks_per_plane: None,
                pages_per_block: 128,
                page_bytes: 8192,
                superblock_planes: 8,
            },
            nand: NandConfig {
                t_read_ns: 60_000,
                t_prog_ns: 700_000,
                t_erase_ns: 3_500_000,
                bus_bytes_per_s: 400_000_000,
                endurance_cycles: 3_000,
                endurance_is_assumed: true,
            },
            mapping: MappingConfig::default(),
            slc: None,
            link: LinkConfig {
                kind: LinkKind::Sata,
                bytes_per_s: 550_000_000,
                overhead_per_command_ns: 2_000,
                queue_depth: 32,
            },
            controller: ControllerConfig {
                read_overhead_ns: 8_000,
                write_overhead_ns: 8_000,
                write_bytes_per_s: None,
                read_ahead_bytes: 0,
            },
            cache: CacheConfig { bytes: Bytes::mib(4).0, volatile: true, flush_ns: 200_000 },
            gc: GcConfig {
                victim: VictimPolicy::Greedy,
                shared_frontier: false,
                host_frontiers: 1,
                free_superblocks_min: 3,
                idle: true,
                idle_threshold_ns: 100_000_000,
                idle_free_superblocks: 6,
            },
            wear_levelling: WearLevellingConfig { threshold_erases: None, interval_erases: 64 },
            trim: TrimConfig {
                kind: TrimKind::AtaNonQueued,
                max_ranges: 64,
                max_units_per_range: 8_191,
                granularity_units: 1,
                cost_per_command_ns: 300_000,
                cost_per_range_ns: 5_000,
                cost_per_unit_ns: 20,
                cost_per_mapped_unit_ns: 0,
                latency_per_command_ns: 0,
                place: TrimPlace::BeforeAck,
                slowdown_percent: 0,
                read_after: ReadAfterTrim::Zeros,
            },
            track_tags: false,
        }
    }
}

/// Maximum accepted time, one hour: sums of many such times stay far from overflow.
const NS_MAX: u64 = 3_600_000_000_000;
const RATE_MAX: u64 = 1_000_000_000_000;

impl SsdConfig {
    /// Returns the number of units that the host sees.
    pub const fn capacity_units(&self) -> u64 {
        self.capacity_bytes / UNIT_BYTES
    }

    /// Returns true if the drive's behaviour depends on the data that it stores.
    pub const fn looks_at_content(&self) -> bool {
        match self.mapping {
            MappingConfig::Page { .. } | MappingConfig::Block(_) => false,
            MappingConfig::Compressing(_) => true,
        }
    }

    /// Returns the bytes of the flash that the FTL may use, over-provisioning included.
    ///
    /// # Errors
    /// If [`SsdConfig::validate`] finds an invalid setting.
    pub fn physical_bytes(&self) -> Result<u64, ConfigError> {
        Ok(u64::from(self.geometry()?.physical_units()) * UNIT_BYTES)
    }

    /// Checks every number and every combination.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.geometry().map(|_| ())
    }

    /// Checks all settings and computes the layout.
    pub(super) fn geometry(&self) -> Result<Geometry, ConfigError> {
        let g = &self.geometry;
        count("geometry.channels", g.channels, 1, 1024)?;
        count("geometry.dies_per_channel", g.dies_per_channel, 1, 1024)?;
        count("geometry.planes_per_die", g.planes_per_die, 1, 64)?;
        count("geometry.pages_per_block", g.pages_per_block, 1, 65_536)?;
        let is_whole = u64::from(g.page_bytes).is_multiple_of(UNIT_BYTES);
        let fits = is_whole && (1..=1 << 20).contains(&g.page_bytes);
        require(fits, "geometry.page_bytes", g.page_bytes, "a multiple of 4096 from 4096 to 1048576")?;
        if let Some(blocks) = g.blocks_per_plane {
            count("geometry.blocks_per_plane", blocks, 1, 1 << 24)?;
        }
        self.validate_times()?;
        self.validate_gc()?;
        self.validate_trim()?;
        let geometry = Geometry::new(self)?;
        self.validate_cache(&geometry)?;
        self.validate_mapping(&geometry)?;
        self.validate_slc(&geometry)?;
        Ok(geometry)
    }

    fn validate_times(&self) -> Result<(), ConfigError> {
        let n = &self.nand;
        span("nand.t_read_ns", n.t_read_ns, 1)?;
        span("nand.t_prog_ns", n.t_prog_ns, 1)?;
        span("nand.t_erase_ns", n.t_erase_ns, 1)?;
        rate("nand.bus_bytes_per_s", n.bus_bytes_per_s)?;
        count("nand.endurance_cycles", n.endurance_cycles, 1, 100_000_000)?;
        rate("link.bytes_per_s", self.link.bytes_per_s)?;
        span("link.overhead_per_command_ns", self.link.overhead_per_command_ns, 0)?;
        count("link.queue_depth", self.link.queue_depth, 1, 65_536)?;
        span("controller.read_overhead_ns", self.controller.read_overhead_ns, 0)?;
        span("controller.write_overhead_ns", self.controller.write_overhead_ns, 0)?;
        if let Some(bytes_per_s) = self.controller.write_bytes_per_s {
            rate("controller.write_bytes_per_s", bytes_per_s)?;
        }
        let ahead = self.controller.read_ahead_bytes;
        let expected = "at most 1073741824 (1 GiB)";
        require(ahead <= Bytes::gib(1).0, "controller.read_ahead_bytes", ahead, expected)?;
        span("cache.flush_ns", self.cache.flush_ns, 0)
    }

    fn validate_gc(&self) -> Result<(), ConfigError> {
        count("gc.host_frontiers", self.gc.host_frontiers, 1, 1024)?;
        count("gc.free_superblocks_min", self.gc.free_superblocks_min, 2, 1 << 24)?;
        span("gc.idle_threshold_ns", self.gc.idle_threshold_ns, 0)?;
        if self.gc.idle {
            let (free, least) = (self.gc.idle_free_superblocks, self.gc.free_superblocks_min);
            count("gc.idle_free_superblocks", free, least, 1 << 24)?;
        }
        if let VictimPolicy::DChoices(d) = self.gc.victim {
            count("gc.d_choices", d, 1, 1024)?;
        }
        count("wear_levelling.interval_erases", self.wear_levelling.interval_erases, 1, u32::MAX)?;
        if let Some(threshold) = self.wear_levelling.threshold_erases {
            count("wear_levelling.threshold_erases", threshold, 1, u32::MAX)?;
        }
        Ok(())
    }

    fn validate_trim(&self) -> Result<(), ConfigError> {
        let t = &self.trim;
        count("trim.max_ranges", t.max_ranges, 1, 65_536)?;
        count("trim.max_units_per_range", t.max_units_per_range, 1, u32::MAX)?;
        count("trim.granularity_units", t.granularity_units, 1, 1 << 24)?;
        let expected = format!("at most trim.max_units_per_range ({})", t.max_units_per_range);
        let fits = t.granularity_units <= t.max_units_per_range;
        require(fits, "trim.granularity_units", t.granularity_units, expected)?;
        span("trim.cost_per_command_ns", t.cost_per_command_ns, 0)?;
        span("trim.cost_per_range_ns", t.cost_per_range_ns, 0)?;
        for (field, ns) in [
            ("trim.cost_per_unit_ns", t.cost_per_unit_ns),
            ("trim.cost_per_mapped_unit_ns", t.cost_per_mapped_unit_ns),
        ] {
            require(ns <= 1_000_000_000, field, ns, "at most 1000000000")?;
        }
        span("trim.latency_per_command_ns", t.latency_per_command_ns, 0)?;
        count("trim.slowdown_percent", t.slowdown_percent, 0, 100_000)
    }

    fn validate_cache(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let least = 2 * u64::from(geometry.stripe_units) * u64::from(self.gc.host_frontiers) * UNIT_BYTES;
        let fits = self.cache.bytes == 0 || (least..=Bytes::gib(1024).0).contains(&self.cache.bytes);
        let expected = format!(
            "0 (no cache), or from {least} (two pages of all planes for each host frontier) to 1 TiB"
        );
        require(fits, "cache.bytes", self.cache.bytes, expected)
    }
}

pub(super) fn count(field: &'static str, value: u32, min: u32, max: u32) -> Result<(), ConfigError> {
    require((min..=max).contains(&value), field, value, format!("a whole number from {min} to {max}"))
}

fn span(field: &'static str, ns: u64, min: u64) -> Result<(), ConfigError> {
    let expected = format!("a whole number from {min} to {NS_MAX} (one hour)");
    require((min..=NS_MAX).contains(&ns), field, ns, expected)
}

fn rate(field: &'static str, bytes_per_s: u64) -> Result<(), ConfigError> {
    let expected = format!("a whole number from 100000 to {RATE_MAX}");
    require((100_000..=RATE_MAX).contains(&bytes_per_s), field, bytes_per_s, expected)
}

pub(super) fn refuse(field: &'static str, value: impl ToString, expected: impl Into<String>) -> ConfigError {
    ConfigError { field, value: value.to_string(), expected: expected.into() }
}

/// Returns an error that names the field unless the value `fits`.
pub(super) fn require(
    fits: bool,
    field: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> Result<(), ConfigError> {
    if fits { Ok(()) } else { Err(refuse(field, value, expected)) }
}
