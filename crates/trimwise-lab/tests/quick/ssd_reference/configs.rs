//! Devices to try: small ones of every mapping, with the least room that is accepted and a little more.
//!
//! `front` draws what all have in common; a mapping adds its own.

use proptest::prelude::*;
use trimwise::ssd::{
    BlockMappingConfig, CompressingConfig, MapCacheConfig, MappingConfig, ReadAfterTrim, SlcConfig,
    SsdConfig, TrimKind, TrimMap, TrimPlace, VictimPolicy,
};
use trimwise::units::UNIT_BYTES;

/// Units that the host sees; not a whole number of superblocks.
pub const UNITS: u64 = 301;

prop_compose! {
    /// Layout, cache, TRIM and collection. `geometry.blocks_per_plane` is the mapping's: see [`room`].
    fn front()(
        // Channels, dies a channel, planes a die, pages a block, units a page, planes in a superblock.
        shape in prop_oneof![
            Just([2, 1, 2, 4, 2, 4]),
            Just([2, 2, 1, 4, 1, 4]),
            Just([1, 1, 1, 16, 1, 1]),
            Just([2, 1, 2, 8, 1, 2]),
            Just([1, 1, 4, 8, 1, 2]),
            Just([3, 1, 1, 70, 1, 1]),
        ],
        host_frontiers in 1u32..4,
        free_min in 2u32..5,
        cache in any::<bool>(),
        idle in any::<bool>(),
        granularity in prop_oneof![3 => Just(1u32), 1 => 2u32..9],
        queued in any::<bool>(),
        background in any::<bool>(),
        read_after in prop_oneof![
            Just(ReadAfterTrim::Zeros), Just(ReadAfterTrim::Old), Just(ReadAfterTrim::Undefined)
        ],
    ) -> SsdConfig {
        let mut config = SsdConfig { track_tags: true, over_provisioning_percent: None, ..SsdConfig::default() };
        config.capacity_bytes = UNITS * UNIT_BYTES + 1000;
        let g = &mut config.geometry;
        [g.channels, g.dies_per_channel, g.planes_per_die, g.pages_per_block, _, g.superblock_planes] = shape;
        g.page_bytes = shape[4] * UNIT_BYTES as u32;
        config.gc.host_frontiers = host_frontiers;
        config.gc.free_superblocks_min = free_min;
        config.gc.idle = idle;
        config.cache.bytes = if cache { 64 * UNIT_BYTES } else { 0 };
        config.trim.kind = if queued { TrimKind::AtaQueued } else { TrimKind::AtaNonQueued };
        config.trim.place = if background { TrimPlace::Background } else { TrimPlace::BeforeAck };
        config.trim.slowdown_percent = 50;
        config.trim.granularity_units = granularity;
        config.trim.read_after = read_after;
        config
    }
}

/// Units of a superblock.
fn superblock_units(config: &SsdConfig) -> u32 {
    let g = &config.geometry;
    let dies = (g.superblock_planes / g.planes_per_die).max(1);
    let stripes = dies * g.pages_per_block;
    let data = stripes - g.parity_one_in.map_or(0, |n| stripes.div_ceil(n));
    data * (g.superblock_planes / dies) * (g.page_bytes / UNIT_BYTES as u32)
}

/// Makes room for `data` superblocks and as many more as the layout asks for, and `more` a lane.
fn room(config: &mut SsdConfig, data: u32, more: u32) {
    let spare = (config.gc.host_frontiers + 3).max(config.gc.free_superblocks_min + 2);
    let g = &mut config.geometry;
    let lanes = g.channels * g.dies_per_channel * g.planes_per_die / g.superblock_planes;
    g.blocks_per_plane = Some((data + spare).div_ceil(lanes) + more);
}

prop_compose! {
    /// What the mappings over the log-structured core have in common.
    fn log_structured()(
        mut config in front(),
        victim in prop_oneof![
            Just(VictimPolicy::Greedy),
            Just(VictimPolicy::CostBenefit),
            (1u32..5).prop_map(VictimPolicy::DChoices),
            Just(VictimPolicy::Fifo),
            Just(VictimPolicy::Random),
        ],
        parity_one_in in prop::option::weighted(0.2, 2u32..9),
        shared_frontier in any::<bool>(),
        threshold in prop::option::of(1u32..4),
    ) -> SsdConfig {
        config.gc.victim = victim;
        config.geometry.parity_one_in = parity_one_in;
        config.gc.shared_frontier = shared_frontier;
        config.wear_levelling.threshold_erases = threshold;
        config.wear_levelling.interval_erases = 3;
        config
    }
}

prop_compose! {
    /// The page mapping.
    pub fn page()(mut config in log_structured(), spare in 0u32..3) -> SsdConfig {
        let data = (UNITS as u32).div_ceil(superblock_units(&config));
        room(&mut config, data, spare);
        config
    }
}

prop_compose! {
    /// The page mapping with an SLC cache, most of it static, or all of it dynamic.
    pub fn slc()(
        mut config in page(),
        static_superblocks in 0u32..4,
        dynamic_percent in prop_oneof![Just(0u32), Just(100), 1u32..100],
        bits_per_cell in 2u32..5,
        fold_when_idle in any::<bool>(),
        fold_threshold_percent in prop_oneof![Just(0u32), Just(100), 1u32..100],
        dynamic_superblocks_max in prop::option::of(1u32..4),
        direct in any::<bool>(),
        gives_way in any::<bool>(),
        more in 0u32..8,
    ) -> SsdConfig {
        let dynamic_percent = if static_superblocks == 0 { dynamic_percent.max(1) } else { dynamic_percent };
        config.slc = Some(SlcConfig {
            static_superblocks,
            dynamic_percent,
            dynamic_superblocks_max,
            bits_per_cell,
            t_prog_ns: 200_000,
            t_read_ns: 25_000,
            fold_when_idle,
            fold_threshold_percent,
            direct: direct || static_superblocks == 0,
            gives_way,
        });
        let data = (UNITS as u32).div_ceil(superblock_units(&config));
        // One superblock more than without; see `Geometry::spare_superblocks`.
        room(&mut config, data + 1 + static_superblocks, 0);
        // Free superblocks beyond that, for the dynamic part to borrow.
        config.geometry.blocks_per_plane = config.geometry.blocks_per_plane.map(|blocks| blocks + more);
        config
    }
}

fn trim_map() -> impl Strategy<Value = TrimMap> {
    prop_oneof![Just(TrimMap::Dropped), Just(TrimMap::Changed), Just(TrimMap::Written)]
}

/// Adds a map in the flash, of which a cache holds `cached` parts.
fn with_map_cache(config: &mut SsdConfig, cached: u64, trim_map: TrimMap) {
    let map_cache = Some(MapCacheConfig { bytes: cached * UNIT_BYTES });
    config.mapping = MappingConfig::Page { map_cache, trim_map };
    let units = superblock_units(config);
    let parts = (UNITS as u32).div_ceil(1024);
    let fixed = config.slc.as_ref().map_or(0, |slc| slc.static_superblocks + 1);
    // One superblock more than without, for its frontier.
    room(config, (UNITS as u32 + parts).div_ceil(units) + 1 + fixed, 0);
}

prop_compose! {
    /// The page mapping with a map in the flash.
    pub fn map_cache()(mut config in page(), trim_map in trim_map(), more in 0u32..2) -> SsdConfig {
        with_map_cache(&mut config, 1, trim_map);
        config.geometry.blocks_per_plane = config.geometry.blocks_per_plane.map(|blocks| blocks + more);
        config
    }
}

prop_compose! {
    /// Both.
    pub fn slc_and_map_cache()(mut config in slc(), trim_map in trim_map(), more in 0u32..2) -> SsdConfig {
        with_map_cache(&mut config, 1, trim_map);
        config.geometry.blocks_per_plane = config.geometry.blocks_per_plane.map(|blocks| blocks + more);
        config
    }
}

prop_compose! {
    /// The block mapping: a log of one superblock up to all that the layout leaves.
    pub fn block()(mut config in front(), log in 1u32..7, spare in 0u32..3) -> SsdConfig {
        let data = (UNITS as u32).div_ceil(superblock_units(&config));
        room(&mut config, data, spare);
        // Of the four or more superblocks next to the data, one is kept for merging.
        let most = config.gc.host_frontiers + 2;
        config.mapping = MappingConfig::Block(BlockMappingConfig { log_superblocks: log.min(most) });
        config
    }
}

prop_compose! {
    /// The compressing mapping.
    pub fn compressing()(
        mut config in log_structured(),
        granule_bytes in prop_oneof![Just(512), Just(128), Just(4096)],
        head_bytes in prop_oneof![Just(0), Just(16), Just(700)],
        deduplicates in any::<bool>(),
        fragment_read_ns in 0u64..10_000,
        recycles_from_stale_percent in prop::option::of(1u32..101),
        references_checked_at_collection in any::<bool>(),
        spare in 0u32..3,
    ) -> SsdConfig {
        let mapping = CompressingConfig {
            granule_bytes,
            head_bytes,
            deduplicates,
            read_latency_ns: 2_000,
            fragment_read_ns,
            recycles_from_stale_percent,
            references_checked_at_collection,
        };
        let unit = mapping.stored_bytes_max();
        // Of each superblock as much is of no use as two units may leave at its end.
        let usable = u64::from(superblock_units(&config)) * UNIT_BYTES - 2 * unit;
        room(&mut config, (UNITS * unit).div_ceil(usable) as u32, spare);
        config.mapping = MappingConfig::Compressing(mapping);
        config
    }
}
