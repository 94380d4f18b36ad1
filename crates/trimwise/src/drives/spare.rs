//! What spare flash brings: drives with published gains of over-provisioning, by collector.
//!
//! The drives are made of what is public about them, scaled down. What is not public is assumed, and said so. Nothing
//! is fitted to the gains. The table is in `docs/model.md`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::compare::cell::CellError;
use crate::ssd::{CacheConfig, GeometryConfig, LinkKind, Ssd, SsdConfig, VictimPolicy};
use crate::units::{Lpn, SimTime, UNIT_BYTES, UnitRange};

/// Intel 710, 200 GB, a 400th of it. AnandTech 4902: 320 GiB of flash, ten channels. Its controller is that of the
/// 320, where half of the spare flash, about 20 of 320 GB, is parity (AnandTech 4244): one in 16.
pub fn intel_710(victim: VictimPolicy, parity_one_in: Option<u32>) -> SsdConfig {
    const SCALE: u64 = 400;
    let mut config = SsdConfig {
        capacity_bytes: 200_000_000_000 / SCALE,
        over_provisioning_percent: None,
        ..SsdConfig::default()
    };
    config.geometry = GeometryConfig::flat(10, 8, 4096);
    let superblock_bytes = 10 * 8 * UNIT_BYTES;
    config.geometry.blocks_per_plane = Some(((320 << 30) / SCALE / superblock_bytes) as u32);
    config.geometry.parity_one_in = parity_one_in;
    config.cache = CacheConfig { bytes: 1 << 20, ..config.cache };
    config.gc.victim = victim;
    config.gc.idle = false;
    config
}

/// Two Fusion-io ioDrives of 160 GB of SLC flash, striped; a 160th of them. 1,400 MB/s of writes (DailyTech 14560).
/// Assumed: 24 channels each, SLC flash of the time by datasheet class (25 us, 200 us, 1.5 ms, pages of 4 KiB, 64 in a
/// block, an asynchronous bus of 40 MB/s), GiB of flash sold as GB. Its parity has chips of its own, and is left out.
pub fn fusion_io(victim: VictimPolicy) -> SsdConfig {
    const SCALE: u64 = 160;
    const PAGES: u32 = 2;
    let mut config = SsdConfig {
        capacity_bytes: 320_000_000_000 / SCALE,
        over_provisioning_percent: None,
        ..SsdConfig::default()
    };
    config.geometry = GeometryConfig {
        channels: 48,
        dies_per_channel: 4,
        planes_per_die: 2,
        superblock_planes: 48 * 4 * 2,
        ..GeometryConfig::flat(48, PAGES, 4096)
    };
    let superblock_bytes = u64::from(config.geometry.superblock_planes * PAGES) * UNIT_BYTES;
    config.geometry.blocks_per_plane = Some(((320 << 30) / SCALE / superblock_bytes) as u32);
    config.nand.t_read_ns = 25_000;
    config.nand.t_prog_ns = 200_000;
    config.nand.t_erase_ns = 1_500_000 * u64::from(PAGES) / 64;
    config.nand.bus_bytes_per_s = 40_000_000;
    config.link.kind = LinkKind::Nvme;
    config.link.bytes_per_s = 1_400_000_000;
    config.link.overhead_per_command_ns = 500;
    (config.controller.read_overhead_ns, config.controller.write_overhead_ns) = (500, 500);
    config.cache = CacheConfig { bytes: 8 << 20, volatile: false, flush_ns: 10_000 };
    config.gc.victim = victim;
    config.gc.idle = false;
    config
}

/// Random writes in steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steady {
    pub write_amplification: f64,
    pub bytes_per_s: f64,
}

/// Writes at random, `units` at a time and 32 at once, to the first part of a drive that holds nothing else.
///
/// # Errors
/// If the configuration contradicts itself, or the drive's counts do not add up.
pub fn steady(config: &SsdConfig, used_bytes: u64, units: u64) -> Result<Steady, CellError> {
    let mut ssd = Ssd::new(config, 1)?;
    let used = used_bytes / UNIT_BYTES / units;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut below = |n: u64| ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64;
    let start = ssd.write(SimTime::ZERO, UnitRange::new(Lpn(0), used * units));
    let mut busy: BinaryHeap<_> = [Reverse(start); 32].into();
    let mut result = Steady::default();
    for passes in [6, 3] {
        let (earlier, since) = (*ssd.stats(), busy.peek().map_or(start, |at| at.0));
        let end = earlier.host_units_written + passes * ssd.physical_units();
        let mut now = since;
        while ssd.stats().host_units_written < end {
            now = busy.pop().map_or(now, |at| at.0);
            busy.push(Reverse(ssd.write(now, UnitRange::new(Lpn(below(used) * units), units))));
        }
        let stats = ssd.stats().since(&earlier);
        let bytes = (stats.host_units_written * UNIT_BYTES) as f64;
        result = Steady {
            write_amplification: stats.write_amplification(),
            bytes_per_s: bytes / now.since(since).as_secs_f64(),
        };
    }
    let broken = |e: String| CellError::Test { device: "a drive with spare flash".to_owned(), what: e };
    ssd.audit().map_err(|e| broken(e.to_string()))?;
    Ok(result)
}
