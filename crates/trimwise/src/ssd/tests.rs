//! The device against hand-computed times and counts.

use super::*;

#[test]
fn a_small_device_survives_overwriting() {
    let mut config = SsdConfig { track_tags: true, ..SsdConfig::default() };
    config.capacity_bytes = 64 << 20;
    config.over_provisioning_percent = None;
    config.geometry.pages_per_block = 8;
    config.geometry.blocks_per_plane = Some(160);
    let mut ssd = Ssd::new(&config, 1).unwrap();
    let units = ssd.capacity_units();
    let mut now = SimTime::ZERO;
    let mut x = 1u64;
    for i in 0..200_000u32 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        now = ssd.write_tagged(now, UnitRange::new(Lpn((x >> 33) % units), 1), i);
    }
    ssd.audit().unwrap();
    assert!(ssd.stats().nand_units.gc > 0);
}
