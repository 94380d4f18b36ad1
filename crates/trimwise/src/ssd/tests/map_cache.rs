//! A map in the flash: 2,048 units are two parts of it, and the cache holds one.

use super::*;

fn device() -> Ssd {
    device_with(TrimMap::Dropped)
}

fn device_with(trim_map: TrimMap) -> Ssd {
    super::device(|c| {
        c.capacity_bytes = 2_048 * 4096;
        c.geometry.blocks_per_plane = Some(160);
        c.mapping = MappingConfig::Page { map_cache: Some(MapCacheConfig { bytes: 4096 }), trim_map };
        (c.trim.cost_per_command_ns, c.trim.cost_per_range_ns, c.trim.cost_per_unit_ns) = (0, 0, 0);
    })
}

/// Units 0 and 1,500 are written, so that part 0 is in the flash and part 1, changed, in the cache.
fn both_parts() -> Ssd {
    both_parts_of(device())
}

fn both_parts_of(mut ssd: Ssd) -> Ssd {
    ssd.write(SimTime::ZERO, units(0, 1));
    ssd.write(SimTime::ZERO, units(1_500, 1));
    assert_eq!(ssd.stats().map_cache, MapCacheStats { hits: 0, misses: 2, reads: 0 });
    assert_eq!(ssd.stats().nand_units.map, 1);
    ssd
}

#[test]
fn an_uncached_read_reads_the_map_first() {
    let mut ssd = both_parts();
    let uncached = READ + 2 * (T_READ + UNIT);
    assert_eq!(ssd.read(LATER, units(0, 1)), LATER + SimDuration(uncached));
    let stats = *ssd.stats();
    assert_eq!(stats.map_cache, MapCacheStats { hits: 0, misses: 3, reads: 1 });
    assert_eq!((stats.busy_ns.read_map, stats.busy_ns.read), (T_READ, T_READ));
    // Part 1 had changed: it was written to make room.
    assert_eq!(stats.nand_units.map, 2);
    let later = SimTime(2 * LATER.0);
    assert_eq!(ssd.read(later, units(0, 1)), later + SimDuration(READ + T_READ + UNIT));
    assert_eq!(ssd.stats().map_cache, MapCacheStats { hits: 1, misses: 3, reads: 1 });
    // Part 0 has not: it is replaced, not written.
    ssd.read(SimTime(3 * LATER.0), units(1_500, 1));
    assert_eq!((ssd.stats().nand_units.map, ssd.stats().map_cache.reads), (2, 2));
    ssd.audit().unwrap();
}

#[test]
fn a_write_is_programmed_when_the_map_is_there() {
    let mut ssd = both_parts();
    let written = ssd.write(LATER, units(1, 1));
    assert_eq!(written, LATER + SimDuration(WRITE), "acknowledged from the write cache");
    // From there on the part is read, and the page transferred and programmed.
    let flushed = written + SimDuration(T_READ + UNIT + UNIT + T_PROG + 7 * US);
    assert_eq!(ssd.flush(written), flushed);
}

#[test]
fn a_trim_reads_the_parts_of_which_something_is_left() {
    let mut ssd = both_parts();
    assert_eq!(ssd.trim(LATER, &[units(0, 1)]), LATER + SimDuration(T_READ + UNIT));
    let stats = *ssd.stats();
    assert_eq!((stats.map_cache.misses, stats.map_cache.reads, stats.nand_units.map), (3, 1, 2));
    // Of all units: there is nothing to read and nothing to write.
    let later = SimTime(2 * LATER.0);
    assert_eq!(ssd.trim(later, &[units(0, 2_048)]), later + SimDuration(US));
    ssd.read(SimTime(3 * LATER.0), units(1_500, 1));
    let after = ssd.stats().since(&stats);
    assert_eq!((after.map_cache, after.nand_units.map), (MapCacheStats::default(), 0));
    ssd.audit().unwrap();
}

/// Part 1 is in the cache, and has changed; part 0 is in the flash.
#[test]
fn a_trim_of_everything_changes_the_parts_if_the_firmware_looks_at_them() {
    let trimmed = |trim_map| {
        let mut ssd = both_parts_of(device_with(trim_map));
        let before = *ssd.stats();
        let end = ssd.trim(LATER, &[units(0, 2_048)]);
        ssd.audit().unwrap();
        assert_eq!(ssd.mapped_units(), 0);
        let after = ssd.stats().since(&before);
        (end.since(LATER).0, after.map_cache.reads, after.nand_units.map)
    };
    assert_eq!(trimmed(TrimMap::Dropped), (US, 0, 0));
    // Part 1 is written to make room for part 0, which is read meanwhile. Then part 0 is written to make room for part
    // 1, which is read as soon as it is programmed.
    assert_eq!(trimmed(TrimMap::Changed), (UNIT + T_PROG + T_READ + UNIT, 2, 2));
    // Part 0 is read and programmed, then part 1, which was written to make room for part 0.
    assert_eq!(trimmed(TrimMap::Written), (2 * (T_READ + UNIT + UNIT + T_PROG), 2, 3));
}

/// The second TRIM finds no data, and so changes nothing; it reads what is not in the cache.
#[test]
fn a_trim_of_what_is_trimmed_reads_the_map_and_writes_nothing() {
    for trim_map in [TrimMap::Changed, TrimMap::Written] {
        let mut ssd = both_parts_of(device_with(trim_map));
        ssd.trim(LATER, &[units(0, 2_048)]);
        ssd.trim(LATER, &[units(0, 2_048)]);
        let before = *ssd.stats();
        ssd.trim(SimTime(2 * LATER.0), &[units(0, 2_048)]);
        let after = ssd.stats().since(&before);
        assert_eq!((after.map_cache.misses, after.nand_units.map), (2, 0), "{trim_map:?}");
    }
}

#[test]
fn telling_the_device_costs_no_map_traffic() {
    for trim_map in [TrimMap::Dropped, TrimMap::Changed, TrimMap::Written] {
        let mut ssd = both_parts_of(device_with(trim_map));
        let before = *ssd.stats();
        ssd.inform_free(units(0, 1));
        ssd.audit().unwrap();
        ssd.inform_free(units(0, 2_048));
        ssd.audit().unwrap();
        let after = ssd.stats().since(&before);
        assert_eq!(after, SsdStats { units_informed_free: 2, ..SsdStats::default() });
    }
}

#[test]
fn copies_change_a_part_once_for_each_victim() {
    let mut ssd = device();
    // Each superblock holds eight units of either part.
    let mut now = SimTime::ZERO;
    for i in 0..1_024 {
        now = ssd.write(now, units(i, 1));
        now = ssd.write(now, units(1_024 + i, 1));
    }
    let before = *ssd.stats();
    // Part 1 stays in the cache; what victims hold is of part 0.
    now = ssd.write(now, units(1_024, 1_024));
    ssd.flush(now);
    ssd.audit().unwrap();
    let stats = ssd.stats().since(&before);
    let (copies, parts) = (stats.nand_units.gc, stats.nand_units.map);
    assert!(copies > 80, "{copies}");
    // A part for eight copies. A few victims were waited for; their parts were left to the next.
    assert!((8 * parts..=10 * parts).contains(&copies), "{parts} parts for {copies} copies");
}
