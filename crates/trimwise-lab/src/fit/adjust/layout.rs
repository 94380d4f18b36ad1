use trimwise::ssd::SsdConfig;
use trimwise::units::UNIT_BYTES;

/// Returns the drive with other channels and dies per channel, and superblocks of as many bytes.
pub(super) fn with_dies(config: &SsdConfig, (channels, per_channel): (u32, u32)) -> Option<SsdConfig> {
    let old = &config.geometry;
    let mut new = config.clone();
    (new.geometry.channels, new.geometry.dies_per_channel) = (channels, per_channel);
    let before = old.channels * old.dies_per_channel;
    // Keep the number of superblocks in parallel, so a superblock spreads over more or fewer dies.
    let lanes = (before * old.planes_per_die / old.superblock_planes.max(1)).clamp(1, channels * per_channel);
    new.geometry.superblock_planes = channels * per_channel * old.planes_per_die / lanes;
    with_superblocks_of(config, new)
}

/// Returns the drive with other units per stripe, and superblocks of as many bytes.
pub(super) fn with_stripe(config: &SsdConfig, units: u64) -> Option<SsdConfig> {
    let old = &config.geometry;
    let bytes = units * UNIT_BYTES;
    let mut new = config.clone();
    let g = &mut new.geometry;
    let whole = |part: u64| (part > 0 && bytes.is_multiple_of(part)).then_some(bytes / part);
    (g.planes_per_die, g.page_bytes) = match (whole(old.page_bytes.into()), whole(old.planes_per_die.into()))
    {
        (Some(planes), _) if planes <= 16 => (planes as u32, old.page_bytes),
        (_, Some(page)) if page.is_multiple_of(UNIT_BYTES) => (old.planes_per_die, page as u32),
        _ => (1, bytes as u32),
    };
    g.superblock_planes = (old.superblock_planes / old.planes_per_die.max(1)).max(1) * g.planes_per_die;
    with_superblocks_of(config, new)
}

/// Gives the blocks of `new` such a length that its superblocks have as many bytes as those of `old`.
fn with_superblocks_of(old: &SsdConfig, mut new: SsdConfig) -> Option<SsdConfig> {
    let row = |config: &SsdConfig| {
        u64::from(config.geometry.superblock_planes) * u64::from(config.geometry.page_bytes)
    };
    let bytes = row(old) * u64::from(old.geometry.pages_per_block);
    new.geometry.pages_per_block = u32::try_from(bytes.div_ceil(row(&new).max(1)).max(4)).ok()?;
    let g = &new.geometry;
    let stripe = u64::from(g.superblock_planes.min(g.planes_per_die)) * u64::from(g.page_bytes);
    if new.cache.bytes > 0 {
        new.cache.bytes = new.cache.bytes.max(2 * stripe * u64::from(new.gc.host_frontiers));
    }
    new.validate().ok().map(|()| new)
}
