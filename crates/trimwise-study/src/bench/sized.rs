//! Shrinks a drive so that a short bench is quick.

use trimwise::ssd::{ConfigError, SsdConfig};
use trimwise::units::Bytes;

/// Least capacity of a model that a probe measures in place of a drive. The probe's region is an eighth of it or less,
/// so that nothing is collected.
const CAPACITY: Bytes = Bytes::gib(16);
const SPARE: u64 = 16;

/// Returns the drive with fewer superblocks. Dies, rates, caches and the size of superblocks stay, and there is enough
/// space that a short bench never collects. It takes a hundredth of the memory of a drive of a terabyte.
///
/// # Errors
///
/// If there is no such drive.
pub fn sized(config: &SsdConfig) -> Result<SsdConfig, ConfigError> {
    let mut small = config.clone();
    let g = &config.geometry;
    let superblock = u64::from(g.superblock_planes) * u64::from(g.pages_per_block) * u64::from(g.page_bytes);
    let planes = u64::from(g.channels) * u64::from(g.dies_per_channel) * u64::from(g.planes_per_die);
    let lanes = (planes / u64::from(g.superblock_planes.max(1))).max(1);
    let capacity = CAPACITY.0.max(4 * superblock).min(config.capacity_bytes);
    let slc = config.slc.as_ref().map_or(0, |slc| u64::from(slc.static_superblocks));
    let log = match &config.mapping {
        trimwise::ssd::MappingConfig::Block(block) => u64::from(block.log_superblocks),
        _ => 0,
    };
    let wanted = capacity.div_ceil(superblock) * 108 / 100 + SPARE + slc + log;
    let blocks = wanted.div_ceil(lanes) as u32;
    if g.blocks_per_plane.is_some_and(|old| old <= blocks) {
        return Ok(small);
    }
    small.capacity_bytes = capacity;
    small.over_provisioning_percent = None;
    small.geometry.blocks_per_plane = Some(blocks);
    small.validate()?;
    Ok(small)
}
