//! Devices to try: small ones of every mapping, with the least room that is accepted and a little more.
//!
//! `front` draws what all have in common; a mapping adds its own.

use proptest::prelude::*;
use trimwise::ssd::{
    BlockMappingConfig, MappingConfig, ReadAfterTrim, SsdConfig, TrimKind, TrimPlace, VictimPolicy,
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
    g.superblock_planes * g.pages_per_block * (g.page_bytes / UNIT_BYTES as u32)
}

/// Makes room for `data` superblocks and as many more as the layout asks for, and `more` a lane.
fn room(config: &mut SsdConfig, data: u32, more: u32) {
    let spare = (config.gc.host_frontiers + 3).max(config.gc.free_superblocks_min + 2);
    let g = &mut config.geometry;
    let lanes = g.channels * g.dies_per_channel * g.planes_per_die / g.superblock_planes;
    g.blocks_per_plane = Some((data + spare).div_ceil(lanes) + more);
}

prop_compose! {
    /// The page mapping.
    pub fn page()(
        mut config in front(),
        victim in prop_oneof![
            Just(VictimPolicy::Greedy),
            Just(VictimPolicy::CostBenefit),
            (1u32..5).prop_map(VictimPolicy::DChoices),
            Just(VictimPolicy::Fifo),
        ],
        spare in 0u32..3,
        shared_frontier in any::<bool>(),
        threshold in prop::option::of(1u32..4),
    ) -> SsdConfig {
        config.gc.victim = victim;
        config.gc.shared_frontier = shared_frontier;
        config.wear_levelling.threshold_erases = threshold;
        config.wear_levelling.interval_erases = 3;
        let data = (UNITS as u32).div_ceil(superblock_units(&config));
        room(&mut config, data, spare);
        config
    }
}

prop_compose! {
    /// The block mapping: a log of one superblock up to all that the layout leaves.
    pub fn block()(mut config in front(), log in 1u32..7, spare in 0u32..3) -> SsdConfig {
        let data = (UNITS as u32).div_ceil(superblock_units(&config));
        room(&mut config, data, spare);
        // One superblock is kept for merging, of the four at least beside the data.
        let most = config.gc.host_frontiers + 2;
        config.mapping = MappingConfig::Block(BlockMappingConfig { log_superblocks: log.min(most) });
        config
    }
}
