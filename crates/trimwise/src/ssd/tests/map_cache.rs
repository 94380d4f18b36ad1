//! A map in the flash: 2,048 units are two parts of it, and the cache holds one.

use super::*;

fn device() -> Ssd {
    super::device(|c| {
        c.capacity_bytes = 2_048 * 4096;
        c.geometry.blocks_per_plane = Some(160);
        c.mapping = MappingConfig::Page { map_cache: Some(MapCacheConfig { bytes: 4096 }) };
        (c.trim.cost_per_command_ns, c.trim.cost_per_range_ns, c.trim.cost_per_unit_ns) = (0, 0, 0);
    })
}

/// Units 0 and 1,500 are written, so that part 0 is in the flash and part 1, changed, in the cache.
fn both_parts() -> Ssd {
    let mut ssd = device();
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

#[test]
fn telling_the_device_costs_no_map_traffic() {
    let mut ssd = both_parts();
    let before = *ssd.stats();
    ssd.inform_free(units(0, 1));
    ssd.audit().unwrap();
    ssd.inform_free(units(0, 2_048));
    ssd.audit().unwrap();
    let after = ssd.stats().since(&before);
    assert_eq!(after, SsdStats { units_informed_free: 2, ..SsdStats::default() });
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
