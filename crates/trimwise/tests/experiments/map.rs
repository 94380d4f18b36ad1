//! What a TRIM does to a map that lies in the flash, on the drive without DRAM, shrunk to 8 GiB and full of data.
//!
//! The costs of the command itself are left out. The table is in `docs/model.md`.

use trimwise::profile::Profile;
use trimwise::ssd::{MappingConfig, Ssd, TrimMap, TrimPlace};
use trimwise::units::{Bytes, Lpn, SimDuration, SimTime, UNIT_BYTES, UnitRange};

/// Long after everything before is over.
const NOW: SimTime = SimTime(3_600_000_000_000);

fn full(trim_map: TrimMap) -> Ssd {
    let profile = Profile::embedded("nvme-500gb-dramless").expect("a built-in profile");
    let mut config = profile.config.shrunk(Bytes::gib(8).0).expect("a smaller drive");
    let MappingConfig::Page { trim_map: set, .. } = &mut config.mapping else { panic!("another mapping") };
    *set = trim_map;
    config.trim.place = TrimPlace::BeforeAck;
    let costs = &mut config.trim;
    (costs.cost_per_command_ns, costs.cost_per_range_ns, costs.cost_per_unit_ns) = (0, 0, 0);
    let mut ssd = Ssd::new(&config, 1).expect("a valid configuration");
    let units = ssd.capacity_units();
    ssd.write(SimTime::ZERO, UnitRange::new(Lpn(0), units));
    ssd
}

/// Returns the time of the slowest of some reads, each alone, of units whose part is in the cache.
fn slowest_read(ssd: &Ssd) -> SimDuration {
    let lpns = (1..9).map(|i| Lpn(ssd.capacity_units() - i * 997));
    let read = |lpn| ssd.clone().read(NOW, UnitRange::new(lpn, 1)).since(NOW);
    lpns.map(read).max().unwrap_or(SimDuration::ZERO)
}

/// TRIMs in the middle of a full drive. Returns microseconds until it is acknowledged and of the slowest read right
/// after it was sent, parts of the map read, and parts written.
fn trimmed(full: &Ssd, bytes: u64) -> (u64, u64, u64, u64) {
    let mut ssd = full.clone();
    let before = *ssd.stats();
    let end = ssd.trim(NOW, &[UnitRange::new(Lpn(ssd.capacity_units() / 2), bytes / UNIT_BYTES)]);
    let (read, us) = (slowest_read(&ssd), |span: SimDuration| (span.0 + 500) / 1_000);
    let stats = ssd.stats().since(&before);
    (us(end.since(NOW)), us(read), stats.map_cache.reads, stats.nand_units.map)
}

#[test]
fn a_trim_on_a_drive_without_dram() {
    for (trim_map, documented) in [
        (TrimMap::Dropped, [(60, 118, 1, 1), (60, 118, 1, 1), (1, 65, 0, 0), (1, 65, 0, 0)]),
        (
            TrimMap::Changed,
            [(60, 118, 1, 1), (60, 118, 1, 1), (957, 1_015, 16, 16), (15_320, 14_846, 256, 256)],
        ),
        (
            TrimMap::Written,
            [(617, 561, 1, 2), (617, 561, 1, 2), (9_877, 9_377, 16, 32), (158_032, 152_542, 256, 512)],
        ),
    ] {
        let full = full(trim_map);
        let measured = [4096, 1 << 20, 64 << 20, 1 << 30].map(|bytes| trimmed(&full, bytes));
        println!("{trim_map:?}: {measured:?}");
        assert_eq!(measured, documented, "{trim_map:?}");
    }
}
