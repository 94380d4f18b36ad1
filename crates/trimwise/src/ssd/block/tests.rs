//! The block mapping against hand-computed times and counts.
//!
//! One die on one channel, pages of two units, superblocks of four pages, four logical blocks, and a log of one
//! superblock. A unit takes 10 us on the channel and 10 us on the link; a write takes 2 us of the controller and 1 us
//! of the link.

use super::super::tests::{LATER, T_PROG, T_READ, UNIT, US, config};
use super::super::*;

const FLUSH: u64 = 7 * US;

fn device(change: impl FnOnce(&mut SsdConfig)) -> Ssd {
    let mut config = config();
    config.capacity_bytes = 32 * 4096;
    config.geometry = GeometryConfig { blocks_per_plane: Some(10), ..GeometryConfig::flat(1, 4, 8192) };
    config.mapping = MappingConfig::Block(BlockMappingConfig { log_superblocks: 1 });
    config.controller.read_overhead_ns = SsdConfig::default().controller.read_overhead_ns;
    config.trim = SsdConfig::default().trim;
    change(&mut config);
    Ssd::new(&config, 1).expect("a valid configuration")
}

fn units(start: u64, count: u64) -> UnitRange {
    UnitRange::new(Lpn(start), count)
}

/// Fills logical block 0 in order, and the log with eight versions of its second unit.
fn with_a_full_log(change: impl FnOnce(&mut SsdConfig)) -> Ssd {
    let mut ssd = device(change);
    let mut now = ssd.write(SimTime::ZERO, units(0, 8));
    for _ in 0..8 {
        now = ssd.write(now, units(1, 1));
    }
    ssd
}

#[test]
fn a_stream_over_a_written_block_takes_its_place_without_a_copy() {
    let mut ssd = device(|_| ());
    ssd.write(SimTime::ZERO, units(0, 8));
    assert_eq!(ssd.free_superblocks(), 9);
    ssd.write(LATER, units(0, 8));
    let flushed = ssd.flush(LATER);
    // The first page of four is loaded when the command's data are there; the others wait for the die.
    let in_cache = (2 + 1 + 80) * US;
    assert_eq!(flushed.since(LATER).0, in_cache + 2 * UNIT + 4 * T_PROG + FLUSH);
    assert_eq!(ssd.stats().nand_units, NandUnits { host: 16, ..NandUnits::default() });
    assert_eq!((ssd.free_superblocks(), ssd.stats().superblock_erases), (9, 0), "erased when it is needed");
    ssd.audit().unwrap();
}

#[test]
fn a_full_log_is_merged_while_the_write_waits() {
    let mut ssd = with_a_full_log(|_| ());
    assert_eq!(ssd.stats().nand_units.gc, 0);
    let written = ssd.write(LATER, units(1, 1));
    assert_eq!(
        ssd.stats().nand_units.gc,
        8,
        "the block's seven other units, and what the log had of the second"
    );
    assert_eq!((ssd.stats().gc_victims, ssd.stats().gc_stalls), (1, 1));
    let flushed = ssd.flush(written);
    // First page: 50 us for the data block's unit and 50 us for the log's, whose transfer ends at 110 us; loaded at
    // 130 us, programmed at 630 us. The reads for the next pages overtake its program once 500 us are over, and put
    // what is queued back by 50 us each: 680 + 500, 1230 + 500, 1780 + 500. Last the unit that was written, with
    // nothing in parallel.
    let merged = 2 * T_READ + UNIT + 2 * UNIT + T_PROG + 3 * (T_READ + T_PROG);
    assert_eq!(merged, 2_280 * US);
    assert_eq!(flushed.since(LATER).0, merged + T_PROG + FLUSH);
    assert_eq!(ssd.stats().nand_units, NandUnits { host: 17, gc: 8, padding: 1, ..NandUnits::default() });
    ssd.audit().unwrap();
}

#[test]
fn what_is_trimmed_is_not_copied() {
    let mut ssd = with_a_full_log(|_| ());
    let now = ssd.trim(LATER, &[units(4, 4)]);
    ssd.write(now, units(1, 1));
    assert_eq!(ssd.stats().nand_units.gc, 4);
    ssd.audit().unwrap();
    // All of it: the block's superblock is given back, and the log has nothing that counts.
    let mut ssd = with_a_full_log(|_| ());
    assert_eq!(ssd.free_superblocks(), 8);
    let now = ssd.trim(LATER, &[units(0, 8)]);
    assert_eq!(ssd.free_superblocks(), 9);
    ssd.write(now, units(1, 1));
    assert_eq!((ssd.stats().nand_units.gc, ssd.stats().superblock_erases), (0, 0));
    ssd.audit().unwrap();
}

#[test]
fn single_units_at_the_start_of_blocks_open_no_stream() {
    let mut ssd = device(|_| ());
    let mut now = ssd.write(SimTime::ZERO, units(0, 32));
    for block in [2, 0, 3, 1] {
        now = ssd.write(now, units(8 * block, 1));
    }
    // All four are in the log, which has not been merged.
    assert_eq!(ssd.stats().nand_units.gc, 0);
    assert_eq!(ssd.free_superblocks(), 10 - 4 - 1);
    ssd.audit().unwrap();
}

#[test]
fn the_log_is_merged_ahead_while_the_host_is_idle() {
    let mut ssd = with_a_full_log(|c| {
        c.gc.idle = true;
        c.gc.idle_threshold_ns = 100 * US;
    });
    ssd.catch_up(LATER);
    let stats = *ssd.stats();
    assert_eq!((stats.nand_units.gc, stats.gc_units_idle, stats.gc_stalls), (8, 8, 0));
    assert_eq!(stats.superblock_erases, 2, "the former data block and the log");
    let written = ssd.write(LATER, units(1, 1));
    // Nothing is left to wait for.
    assert_eq!(ssd.flush(written).since(written).0, 2 * UNIT + T_PROG + FLUSH);
    ssd.audit().unwrap();
}

#[test]
fn lanes_share_a_sequential_write() {
    // Two dies, each with superblocks of its own: two pages take as long as one.
    let two = |c: &mut SsdConfig| {
        c.geometry.channels = 2;
        c.geometry.blocks_per_plane = Some(5);
    };
    let time = |ssd: &mut Ssd| {
        ssd.write(LATER, units(0, 4));
        ssd.flush(LATER).since(LATER).0
    };
    let in_cache = (2 + 1 + 40) * US;
    assert_eq!(time(&mut device(|_| ())), in_cache + 2 * UNIT + 2 * T_PROG + FLUSH);
    assert_eq!(time(&mut device(two)), in_cache + 2 * UNIT + T_PROG + FLUSH);
}
