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

use crate::units::{Bytes, Percent, UNIT_BYTES};

/// A setting, or a combination of settings, that no device can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} is not accepted; expected {expected}")]
pub struct ConfigError {
    /// Dotted name of the setting, as in a profile: `nand.t_prog_ns`.
    pub field: &'static str,
    pub value: String,
    pub expected: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SsdConfig {
    /// Capacity for the host; rounded down to whole units.
    pub capacity_bytes: u64,
    /// Physical space beyond the logical, in percent of the logical. Set this or `geometry.blocks_per_plane`, or both
    /// if they agree to the superblock.
    pub over_provisioning_percent: Option<Percent>,
    pub geometry: GeometryConfig,
    pub nand: NandConfig,
    #[serde(default)]
    pub mapping: MappingConfig,
    pub slc: Option<SlcConfig>,
    pub link: LinkConfig,
    pub controller: ControllerConfig,
    pub cache: CacheConfig,
    pub gc: GcConfig,
    pub wear_levelling: WearLevellingConfig,
    pub trim: TrimConfig,
    /// Keep a tag for every unit, so that tests can check what a read returns. Costs 4 bytes for each physical unit,
    /// and more for each logical one.
    #[serde(skip)]
    pub track_tags: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GeometryConfig {
    /// Buses that transfer at the same time.
    pub channels: u32,
    /// Each die reads, programs or erases independently.
    pub dies_per_channel: u32,
    /// The planes of a die carry out the same operation together.
    pub planes_per_die: u32,
    /// Erase blocks in a plane that the FTL may use. `None`: as many as the over-provisioning needs.
    pub blocks_per_plane: Option<u32>,
    pub pages_per_block: u32,
    /// Size of a page in bytes, a multiple of 4 KiB.
    pub page_bytes: u32,
    /// Planes ganged into one superblock, which the FTL allocates and erases as a whole. Either whole dies (a multiple
    /// of `planes_per_die`), or an equal part of one die.
    pub superblock_planes: u32,
    /// One stripe in this many of a superblock holds the parity of the others (RAIN, RAISE, XOR). It takes room and
    /// programs, and no data: physical space and over-provisioning count what is left. `None`: no parity.
    pub parity_one_in: Option<u32>,
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
            parity_one_in: None,
        }
    }
}

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
    /// Program/erase cycles that a block is rated for. Only reports on lifetime use it.
    pub endurance_cycles: u32,
    /// The profile's source calls the endurance an assumption. Only reports use it.
    #[serde(skip)]
    pub endurance_is_assumed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// Half duplex: data go one way at a time.
    Sata,
    Nvme,
    Ufs,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LinkConfig {
    pub kind: LinkKind,
    /// Payload rate in one direction, bytes a second.
    pub bytes_per_s: u64,
    /// Time on the link that each command takes besides its data, nanoseconds.
    pub overhead_per_command_ns: u64,
    /// Commands that may be outstanding. The host must not exceed it.
    pub queue_depth: u32,
}

/// Costs that the controller adds to each command. The controller serves one command at a time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ControllerConfig {
    pub read_overhead_ns: u64,
    pub write_overhead_ns: u64,
    /// Rate at which host data move towards the flash, bytes a second; `None`: no limit.
    pub write_bytes_per_s: Option<u64>,
    /// Bytes read ahead of a sequential stream into the controller's memory. 0: none.
    #[serde(default)]
    pub read_ahead_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CacheConfig {
    /// Bytes of host data that may wait for the flash. 0: a write is acknowledged when it is programmed, and each
    /// write command pads its last page.
    pub bytes: u64,
    /// The content is lost with the power, so a flush must drain the cache.
    pub volatile: bool,
    /// Time that a flush takes besides draining, nanoseconds.
    pub flush_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VictimPolicy {
    Greedy,
    /// The best ratio of benefit to cost, weighted by age (Rosenblum and Ousterhout 1992).
    CostBenefit,
    /// The best of this many drawn at random (Van Houdt 2013; Li, Lee and Lui 2013).
    DChoices(u32),
    Fifo,
    /// Any, drawn at random, however much of it is valid (Van Houdt 2013).
    Random,
}

impl VictimPolicy {
    /// Returns true if a victim's valid units play no part in its choice, so that it may yield nothing.
    pub(super) const fn is_blind(self) -> bool {
        matches!(self, Self::Fifo | Self::Random)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GcConfig {
    pub victim: VictimPolicy,
    /// Copies go to the host's superblock instead of one of their own.
    pub shared_frontier: bool,
    /// Superblocks open for host writes at the same time, filled in turn. With a block mapping: streams open at the
    /// same time in each lane.
    pub host_frontiers: u32,
    /// Foreground collection begins when fewer superblocks than this are free. Default 3: one that only the collector
    /// may take, one for the host, and one so that neither waits. A higher minimum costs usable space.
    pub free_superblocks_min: u32,
    pub idle: bool,
    /// Nanoseconds after the completion of its last command from which the host counts as idle.
    pub idle_threshold_ns: u64,
    /// Idle collection stops when this many superblocks are free.
    pub idle_free_superblocks: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WearLevellingConfig {
    /// Moves begin when the erases of the most and the least erased superblock differ by more than this. `None`: off.
    pub threshold_erases: Option<u32>,
    /// Minimum number of erases between two moves, so that levelling cannot crowd out the host.
    pub interval_erases: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrimKind {
    Unsupported,
    /// ATA DATA SET MANAGEMENT. It is not queued: all earlier commands complete first.
    AtaNonQueued,
    /// ATA SEND FPDMA QUEUED.
    AtaQueued,
    Nvme,
    Ufs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrimPlace {
    /// The command is acknowledged after the work, which occupies the controller: other commands wait.
    BeforeAck,
    /// The command is acknowledged after the work, for which the firmware has a core of its own: only TRIMs wait for each
    /// other.
    OwnCore,
    /// The command is acknowledged at once; the work then slows host I/O down.
    Background,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadAfterTrim {
    Zeros,
    /// The data from before the TRIM.
    Old,
    /// Zeros or the old data.
    Undefined,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default = "TrimConfig::unsupported")]
pub struct TrimConfig {
    pub kind: TrimKind,
    pub max_ranges: u32,
    pub max_units_per_range: u32,
    /// Only whole, aligned granules of this many units are unmapped.
    pub granularity_units: u32,
    pub cost_per_command_ns: u64,
    pub cost_per_range_ns: u64,
    /// Nanoseconds for each unit asked for, mapped or not.
    pub cost_per_unit_ns: u64,
    /// Additional nanoseconds for each unit that held data.
    pub cost_per_mapped_unit_ns: u64,
    /// Nanoseconds from the end of those costs to the acknowledgement, during which the device serves other commands.
    /// The costs above occupy the device, this latency does not: it overlaps between queued TRIMs, so many at a time
    /// are faster than one by one. A TRIM that cannot be queued overlaps with nothing.
    pub latency_per_command_ns: u64,
    /// Time of writing the map's journal, which a TRIM waits for before its acknowledgement, nanoseconds. Journals are
    /// written one after another; all TRIMs that wait when a write begins share it. FlashTier logs each eviction before it
    /// answers, and commits in groups (Saxena, Swift and Zhang, EuroSys 2012). That a write disturbs nobody else is
    /// assumed. 0: a TRIM may be forgotten at power loss.
    pub journal_ns: u64,
    pub place: TrimPlace,
    /// While background work is left, host reads and writes take this much longer, percent.
    pub slowdown_percent: u32,
    pub read_after: ReadAfterTrim,
}

impl TrimConfig {
    /// A firmware without TRIM. Its numbers have no effect and are valid.
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
            journal_ns: 0,
            place: TrimPlace::BeforeAck,
            slowdown_percent: 0,
            read_after: ReadAfterTrim::Old,
        }
    }
}

impl Default for SsdConfig {
    /// A drive of 8 GiB behind SATA with the ratios of a small TLC drive: 7 % over-provisioning, four channels.
    fn default() -> Self {
        Self {
            capacity_bytes: Bytes::gib(8).0,
            over_provisioning_percent: Some(Percent::whole(7)),
            geometry: GeometryConfig {
                channels: 4,
                dies_per_channel: 1,
                planes_per_die: 2,
                blocks_per_plane: None,
                pages_per_block: 128,
                page_bytes: 8192,
                superblock_planes: 8,
                parity_one_in: None,
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
                journal_ns: 0,
                place: TrimPlace::BeforeAck,
                slowdown_percent: 0,
                read_after: ReadAfterTrim::Zeros,
            },
            track_tags: false,
        }
    }
}

/// Longest accepted time, one hour. Sums of many such times stay far from overflow.
const NS_MAX: u64 = 3_600_000_000_000;
const RATE_MAX: u64 = 1_000_000_000_000;

impl SsdConfig {
    pub const fn capacity_units(&self) -> u64 {
        self.capacity_bytes / UNIT_BYTES
    }

    /// Returns true if the drive behaves differently for different data.
    pub const fn looks_at_content(&self) -> bool {
        match self.mapping {
            MappingConfig::Page { .. } | MappingConfig::Block(_) => false,
            MappingConfig::Compressing(_) => true,
        }
    }

    /// Returns the bytes of flash that the FTL may use, over-provisioning included.
    ///
    /// # Errors The errors of [`SsdConfig::validate`].
    pub fn physical_bytes(&self) -> Result<u64, ConfigError> {
        Ok(u64::from(self.geometry()?.physical_units()) * UNIT_BYTES)
    }

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
        let has_parity = self.geometry.parity_one_in.is_some();
        let kind = self.mapping.kind();
        let expected = "\"page\" or \"compressing\" with geometry.parity_one_in";
        require(!has_parity || kind != "block", "mapping.kind", kind, expected)?;
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

pub(super) fn require(
    fits: bool,
    field: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> Result<(), ConfigError> {
    if fits { Ok(()) } else { Err(refuse(field, value, expected)) }
}
