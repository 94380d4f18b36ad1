use serde::Deserialize;

use super::{ConfigError, SsdConfig, count, refuse, require, span};
use crate::ssd::compressing::{GRANULES_MAX, UNITS_MAX};
use crate::ssd::geometry::Geometry;
use crate::units::{Bytes, UNIT_BYTES};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename = "table by kind", rename_all = "snake_case")]
pub enum MappingConfig {
    /// Any unit can be in any page: every free superblock serves the collector.
    Page {
        /// Cache for a map that is too large for the controller's memory. `None`: the whole map is in memory.
        #[serde(rename = "map_cache_bytes")]
        map_cache: Option<MapCacheConfig>,
        /// What a TRIM does to a map that lies in the flash.
        #[serde(default)]
        trim_map: TrimMap,
    },
    /// Each logical superblock has one physical superblock, and new data go to a log first (Indilinx class). Free space
    /// in the file system does not help; free log superblocks do.
    Block(BlockMappingConfig),
    /// Units are compressed before they are stored, and identical units can share their space (SandForce class).
    Compressing(CompressingConfig),
}

impl Default for MappingConfig {
    fn default() -> Self {
        Self::Page { map_cache: None, trim_map: TrimMap::Dropped }
    }
}

impl MappingConfig {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Page { .. } => "page",
            Self::Block(_) => "block",
            Self::Compressing(_) => "compressing",
        }
    }

    pub const fn map_cache(&self) -> Option<&MapCacheConfig> {
        match self {
            Self::Page { map_cache, .. } => map_cache.as_ref(),
            Self::Block(_) | Self::Compressing(_) => None,
        }
    }
}

/// What a TRIM does to the parts of a map that lies in the flash. A part of which something is left is always read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrimMap {
    /// A part of which nothing is left is forgotten without looking at it: a bitmap notes that it is empty (patents US
    /// 11,748,023 and 11,544,184, for long ranges).
    #[default]
    Dropped,
    /// Each part is read, since only its old entries tell which flash has become stale, changed, and written when it
    /// leaves the cache. One after the other.
    Changed,
    /// Each part is also written before the next is read (US 10,481,837 describes such amendments, to avoid them).
    Written,
}

/// A cache for parts of the page map, which lies in the flash (Gupta, Kim and Urgaonkar, DFTL, 2009).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct MapCacheConfig {
    /// Memory for parts of the map, in bytes: the controller's own, or the host's (HMB). A part is one unit of 4 KiB
    /// with the places of 1,024 logical units.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BlockMappingConfig {
    /// Superblocks that hold new data until they are merged into place.
    pub log_superblocks: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CompressingConfig {
    /// Stored sizes are multiples of this many bytes; it divides a unit.
    pub granule_bytes: u32,
    /// Bytes that each stored unit takes besides its data.
    pub head_bytes: u32,
    /// A unit that is already stored becomes a reference to it.
    pub deduplicates: bool,
    /// Nanoseconds from the page registers through checking, decryption and decompression to the host. Reads overlap in
    /// it, so it adds latency but costs no throughput.
    pub read_latency_ns: u64,
    /// Additional nanoseconds for each unit that does not directly follow the one before it.
    pub fragment_read_ns: u64,
    /// Percentage of stale space from which a superblock is collected even while there is free flash. `None`: only when
    /// flash is short.
    pub recycles_from_stale_percent: Option<u32>,
    /// A trimmed unit's space counts as free only after the collector has read it and looked for other references to
    /// it, instead of at once.
    pub references_checked_at_collection: bool,
}

impl CompressingConfig {
    pub(in crate::ssd) fn stored_granules(&self, compressed_bytes: u32) -> u32 {
        (compressed_bytes + self.head_bytes).div_ceil(self.granule_bytes.max(1))
    }

    pub fn stored_bytes_max(&self) -> u64 {
        u64::from(self.stored_granules(UNIT_BYTES as u32)) * u64::from(self.granule_bytes)
    }

    fn validate(&self, config: &SsdConfig, geometry: &Geometry) -> Result<(), ConfigError> {
        let granule = u64::from(self.granule_bytes);
        let divides = granule != 0 && UNIT_BYTES.is_multiple_of(granule);
        require(divides, "mapping.granule_bytes", granule, "a divisor of 4096")?;
        count("mapping.head_bytes", self.head_bytes, 0, UNIT_BYTES as u32)?;
        span("mapping.read_latency_ns", self.read_latency_ns, 0)?;
        span("mapping.fragment_read_ns", self.fragment_read_ns, 0)?;
        let physical_bytes = u64::from(geometry.physical_units()) * UNIT_BYTES;
        let granules_max = u64::from(GRANULES_MAX);
        if physical_bytes / granule > granules_max {
            let least = (1..).map(|shift| granule << shift).find(|g| physical_bytes / g <= granules_max);
            return Err(refuse(
                "mapping.granule_bytes",
                granule,
                format!(
                    "at least {}, so that the {physical_bytes} physical bytes are no more than {granules_max} granules",
                    least.unwrap_or(UNIT_BYTES)
                ),
            ));
        }
        let expected = format!("at most {} with a compressing mapping", u64::from(UNITS_MAX) * UNIT_BYTES);
        require(geometry.logical_units <= UNITS_MAX, "capacity_bytes", config.capacity_bytes, expected)?;
        if let Some(percent) = self.recycles_from_stale_percent {
            count("mapping.recycles_from_stale_percent", percent, 1, 100)?;
        }
        // Incompressible data must fit too, with the same spare superblocks as in a page mapping. No unit crosses the
        // end of a superblock: the space left there is lost, and lost again when the rest has moved.
        let superblock_bytes = u64::from(geometry.superblock_units) * UNIT_BYTES;
        let usable_bytes = superblock_bytes.saturating_sub(2 * self.stored_bytes_max());
        let stored = u64::from(geometry.logical_units) * self.stored_bytes_max();
        let spare = Geometry::spare_superblocks(config);
        let fits =
            usable_bytes > 0 && stored.div_ceil(usable_bytes) + spare <= u64::from(geometry.superblocks);
        let expected = format!(
            "so little that units of {} stored bytes leave {spare} superblocks of {superblock_bytes} bytes free; the \
             physical space is {physical_bytes} bytes",
            self.stored_bytes_max()
        );
        require(fits, "mapping.head_bytes", self.head_bytes, expected)
    }
}

impl SsdConfig {
    pub(super) fn validate_mapping(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        match &self.mapping {
            MappingConfig::Page { map_cache: None, trim_map } => {
                let (dropped, given) =
                    (*trim_map == TrimMap::Dropped, format!("{trim_map:?}").to_lowercase());
                require(dropped, "mapping.trim_map", given, "\"dropped\" without mapping.map_cache_bytes")
            }
            MappingConfig::Page { map_cache: Some(cache), .. } => {
                let most = Bytes::gib(1024).0;
                let expected = format!("from {UNIT_BYTES} (one unit of the map) to 1 TiB");
                let fits = (UNIT_BYTES..=most).contains(&cache.bytes);
                require(fits, "mapping.map_cache_bytes", cache.bytes, expected)
            }
            MappingConfig::Block(block) => {
                // One superblock beyond log and data, as the target of merges.
                let data = u64::from(geometry.logical_units).div_ceil(u64::from(geometry.superblock_units));
                let most = u64::from(geometry.superblocks).saturating_sub(data + 1);
                let fits = (1..=most).contains(&block.log_superblocks.into());
                let expected = format!(
                    "a whole number from 1 to {most}: of {} superblocks {data} hold data, and one is for merging",
                    geometry.superblocks
                );
                require(fits, "mapping.log_superblocks", block.log_superblocks, expected)?;
                let threshold = self.wear_levelling.threshold_erases;
                let expected = "none: wear levelling is not modelled with a block mapping";
                let field = "wear_levelling.threshold_erases";
                require(threshold.is_none(), field, threshold.unwrap_or(0), expected)
            }
            MappingConfig::Compressing(compressing) => compressing.validate(self, geometry),
        }
    }
}
