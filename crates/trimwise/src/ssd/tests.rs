//! The device against hand-computed times and counts.
//!
//! One small device with round numbers: two channels with one die of one plane, a page of one unit, superblocks
//! over both dies. A unit takes 10 us on a channel and 10 us on the link; a command takes 1 us of the link, and
//! 2 us (write) or 3 us (read) of the controller.

mod map_cache;
mod slc;

use super::*;
use crate::units::SimDuration;

pub(super) const US: u64 = 1_000;
pub(super) const T_READ: u64 = 50 * US;
pub(super) const T_PROG: u64 = 500 * US;
const T_ERASE: u64 = 2_000 * US;
pub(super) const UNIT: u64 = 10 * US;
/// Controller, command and data of a write, and of a read, of one unit.
const WRITE: u64 = (2 + 1 + 10) * US;
pub(super) const READ: u64 = (3 + 1 + 10) * US;
/// Late enough for everything before to be over.
pub(super) const LATER: SimTime = SimTime(1_000_000 * US);

pub(super) fn config() -> SsdConfig {
    let mut config =
        SsdConfig { capacity_bytes: 256 * 4096, over_provisioning_percent: None, ..Default::default() };
    config.geometry = GeometryConfig { blocks_per_plane: Some(24), ..GeometryConfig::flat(2, 8, 4096) };
    let rate = 409_600_000;
    config.nand = NandConfig {
        t_read_ns: T_READ,
        t_prog_ns: T_PROG,
        t_erase_ns: T_ERASE,
        bus_bytes_per_s: rate,
        endurance_cycles: 3_000,
        endurance_is_assumed: true,
    };
    config.link.bytes_per_s = rate;
    config.link.overhead_per_command_ns = US;
    config.controller = ControllerConfig {
        read_overhead_ns: 3 * US,
        write_overhead_ns: 2 * US,
        write_bytes_per_s: None,
        read_ahead_bytes: 0,
    };
    config.cache = CacheConfig { bytes: 8 * 4096, volatile: true, flush_ns: 7 * US };
    config.gc.idle = false;
    config.trim.cost_per_command_ns = 100 * US;
    config.trim.cost_per_range_ns = 10 * US;
    config.trim.cost_per_unit_ns = US;
    config
}

fn device(change: impl FnOnce(&mut SsdConfig)) -> Ssd {
    let mut config = config();
    change(&mut config);
    Ssd::new(&config, 1).expect("a valid configuration")
}

fn units(start: u64, count: u64) -> UnitRange {
    UnitRange::new(Lpn(start), count)
}

/// Overwrites single units at random places. The multiplier is Knuth's (MMIX).
fn churn(ssd: &mut Ssd, mut now: SimTime, below: u64, writes: u64) -> SimTime {
    // Another series for each call, and the same ones for each run.
    let mut x = ssd.stats().host_units_written + 1;
    for _ in 0..writes {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        now = ssd.write(now, units((x >> 33) % below, 1));
    }
    now
}

#[test]
fn a_write_is_acknowledged_from_the_cache() {
    let mut ssd = device(|_| ());
    assert_eq!(ssd.write(SimTime::ZERO, units(0, 1)), SimTime(WRITE));
    // The next one waits for the link only: its controller time passes meanwhile.
    assert_eq!(ssd.write(SimTime::ZERO, units(1, 1)), SimTime(WRITE + 11 * US));
}

#[test]
fn without_a_cache_a_write_waits_for_its_program() {
    let mut ssd = device(|c| c.cache.bytes = 0);
    assert_eq!(ssd.write(SimTime::ZERO, units(0, 1)), SimTime(WRITE + UNIT + T_PROG));
    // Two units go to two dies on two channels, at once.
    assert_eq!(ssd.write(LATER, units(1, 2)), LATER + SimDuration(WRITE + UNIT + UNIT + T_PROG));
    assert_eq!(ssd.stats().nand_units.padding, 0, "a page is one unit here");
}

#[test]
fn without_a_cache_a_write_pads_its_page() {
    let mut ssd = device(|c| {
        c.cache.bytes = 0;
        c.geometry.page_bytes = 4 * 4096;
    });
    let acknowledged = ssd.write(SimTime::ZERO, units(0, 1));
    assert_eq!(acknowledged, SimTime(WRITE + 4 * UNIT + T_PROG), "the whole page is transferred");
    assert_eq!(ssd.stats().nand_units, NandUnits { host: 1, padding: 3, ..NandUnits::default() });
    ssd.audit().unwrap();
}

#[test]
fn a_full_cache_waits_for_the_oldest_program() {
    let mut ssd = device(|c| c.cache.bytes = 4 * 4096);
    ssd.write(SimTime::ZERO, units(0, 4));
    // Four units wait for the flash. The first was there with the rest of its command, after 43 us.
    let first_programmed = (2 + 1 + 40) * US + UNIT + T_PROG;
    assert_eq!(ssd.write(SimTime::ZERO, units(4, 1)), SimTime(first_programmed));
    // The second, on the other die, ended at the same time; the third is one tPROG later.
    assert_eq!(ssd.write(SimTime(first_programmed), units(5, 1)), SimTime(first_programmed + WRITE));
    let third = ssd.write(SimTime(first_programmed + WRITE), units(6, 1));
    assert_eq!(third, SimTime(first_programmed + T_PROG));
}

#[test]
fn a_read_takes_array_channel_and_link() {
    let mut ssd = device(|_| ());
    ssd.write(SimTime::ZERO, units(0, 4));
    assert_eq!(ssd.read(LATER, units(0, 1)), LATER + SimDuration(READ + T_READ + UNIT));
    assert_eq!(ssd.stats().busy_ns.read, T_READ);
}

#[test]
fn two_dies_read_at_the_same_time_and_one_die_does_not() {
    let two_dies = READ + T_READ + UNIT + UNIT;
    let mut ssd = device(|_| ());
    ssd.write(SimTime::ZERO, units(0, 4));
    assert_eq!(ssd.read(LATER, units(0, 2)), LATER + SimDuration(two_dies));
    // Units 0 and 2 are on the same die: the second read of the array begins when the first ends.
    let mut ssd = device(|_| ());
    ssd.write(SimTime::ZERO, units(0, 4));
    ssd.read(LATER, units(0, 1));
    assert_eq!(ssd.read(LATER, units(2, 1)), LATER + SimDuration(READ + 2 * T_READ + UNIT));
}

#[test]
fn the_last_unit_of_a_read_cannot_leave_before_it_is_there() {
    let mut ssd = device(|_| ());
    ssd.write(SimTime::ZERO, units(0, 4));
    // Units 0 and 2 come from the same die, the second 50 us after the first; the link is fast enough.
    let third_ready = 3 * US + 2 * T_READ + UNIT;
    assert_eq!(ssd.read(LATER, units(0, 3)), LATER + SimDuration(third_ready + UNIT));
}

#[test]
fn units_of_a_page_are_read_together() {
    let mut ssd = device(|c| c.geometry.page_bytes = 4 * 4096);
    ssd.write(SimTime::ZERO, units(0, 4));
    ssd.read(LATER, units(0, 4));
    assert_eq!(ssd.stats().busy_ns.read, T_READ);
}

#[test]
fn a_read_without_data_needs_no_flash() {
    let mut ssd = device(|_| ());
    assert_eq!(ssd.read(SimTime::ZERO, units(9, 1)), SimTime(READ));
    assert_eq!(ssd.stats().host_units_read_unmapped, 1);
    ssd.write(SimTime::ZERO, units(9, 1));
    ssd.trim(LATER, &[units(9, 1)]);
    let now = SimTime(2 * LATER.0);
    assert_eq!(ssd.read(now, units(9, 1)), now + SimDuration(READ));
    assert_eq!(ssd.stats().busy_ns.read, 0);
}

#[test]
fn a_read_of_an_outstanding_write_comes_from_the_cache() {
    let mut ssd = device(|_| ());
    let written = ssd.write(SimTime::ZERO, units(0, 1));
    assert_eq!(ssd.read(written, units(0, 1)), written + SimDuration(READ));
    assert_eq!(ssd.stats().host_units_read_cached, 1);
    ssd.read(LATER, units(0, 1));
    assert_eq!(ssd.stats().host_units_read_cached, 1, "programmed by now");
    // And of a page that is not full, however late.
    let mut ssd = device(|c| c.geometry.page_bytes = 8192);
    ssd.write(SimTime::ZERO, units(0, 1));
    ssd.read(LATER, units(0, 1));
    assert_eq!(ssd.stats().host_units_read_cached, 1);
}

#[test]
fn a_read_overtakes_queued_programs() {
    let mut ssd = device(|_| ());
    ssd.write(SimTime::ZERO, units(0, 2));
    // Four programs for each die.
    ssd.write(LATER, units(10, 8));
    let now = LATER + SimDuration::from_micros(200);
    let latency = ssd.read(now, units(0, 1)).since(now).0;
    assert!(latency > READ + T_READ + UNIT, "it waits for what is in progress");
    assert!(latency <= READ + T_READ + UNIT + T_PROG, "and for no more than that: {latency}");
}

#[test]
fn sata_moves_data_one_way_at_a_time_and_nvme_both() {
    let read_during_a_write = |kind| {
        let mut ssd = device(|c| {
            c.link.kind = kind;
            c.cache.bytes = 64 * 4096;
        });
        ssd.write(SimTime::ZERO, units(0, 64));
        // Unmapped, so that only controller and link matter.
        ssd.read(SimTime::ZERO, units(200, 1)).0
    };
    // The write has the link from 2 us on, for 1 us and 64 times 10 us.
    assert_eq!(read_during_a_write(LinkKind::Sata), (2 + 1 + 640) * US + 11 * US);
    assert_eq!(read_during_a_write(LinkKind::Nvme), 2 * US + READ);
}

#[test]
fn the_write_path_can_be_slower_than_link_and_flash() {
    // 4.096 MB/s: a unit takes 1 ms, twice as long as the flash.
    let mut ssd = device(|c| c.controller.write_bytes_per_s = Some(4_096_000));
    ssd.write(SimTime::ZERO, units(0, 8));
    let flushed = ssd.flush(SimTime::ZERO);
    let in_cache = (2 + 1 + 80) * US;
    assert_eq!(flushed.0, in_cache + 8_000 * US + UNIT + T_PROG + 7 * US);
}

#[test]
fn a_flush_pads_the_open_page_and_drains() {
    let mut ssd = device(|c| c.geometry.page_bytes = 2 * 4096);
    let written = ssd.write(SimTime::ZERO, units(0, 3));
    let flushed = ssd.flush(written);
    // The third unit's page is transferred and programmed on the second die, once the flush has begun.
    assert_eq!(flushed, written + SimDuration(2 * UNIT + T_PROG + 7 * US));
    assert_eq!(ssd.stats().nand_units, NandUnits { host: 3, padding: 1, ..NandUnits::default() });
    // Nothing is left to drain.
    assert_eq!(ssd.flush(LATER), LATER + SimDuration(US + 7 * US));
    assert_eq!(ssd.stats().nand_units.padding, 1);
    ssd.audit().unwrap();
}

#[test]
fn a_protected_cache_has_nothing_to_flush() {
    let mut ssd = device(|c| c.cache.volatile = false);
    let written = ssd.write(SimTime::ZERO, units(0, 3));
    assert_eq!(ssd.flush(written), written + SimDuration(US + 7 * US));
}

#[test]
fn a_trim_costs_command_ranges_and_units() {
    let mut ssd = device(|_| ());
    let end = ssd.trim(SimTime::ZERO, &[units(0, 5), units(100, 2)]);
    assert_eq!(end, SimTime((1 + 100 + 2 * 10 + 7) * US));
    assert_eq!(
        ssd.stats().trim,
        TrimStats { commands: 1, ranges: 2, units_requested: 7, units_invalidated: 0 }
    );
}

#[test]
fn a_non_queued_trim_has_the_device_to_itself() {
    let cost = (100 + 10 + 1) * US;
    let mut ssd = device(|_| ());
    assert!(!ssd.config().trim.is_queued());
    ssd.write(SimTime::ZERO, units(0, 4));
    let read = ssd.read(LATER, units(0, 1));
    let trim = ssd.trim(LATER, &[units(1, 1)]);
    assert_eq!(trim, read + SimDuration(US + cost), "it waits for the read");
    assert_eq!(ssd.read(LATER, units(9, 1)), trim + SimDuration(READ), "and the next read for it");
    let trim = ssd.trim(SimTime(2 * LATER.0), &[units(1, 1)]);
    assert_eq!(ssd.flush(SimTime(2 * LATER.0)), trim + SimDuration(US + 7 * US), "and a flush too");
}

#[test]
fn a_queued_trim_does_not_wait_for_a_read_in_progress() {
    let cost = (100 + 10 + 1) * US;
    let mut ssd = device(|c| {
        c.trim.kind = TrimKind::Nvme;
        c.link.kind = LinkKind::Nvme;
    });
    assert!(ssd.config().trim.is_queued());
    ssd.write(SimTime::ZERO, units(0, 4));
    let read = ssd.read(LATER, units(0, 1));
    let trim = ssd.trim(LATER, &[units(1, 1)]);
    // Only the controller, which was decoding the read for 3 us.
    assert_eq!(trim, LATER + SimDuration(3 * US + cost));
    assert!(read < trim + SimDuration(T_READ));
    // A command that comes while the controller works on the TRIM waits for it.
    assert_eq!(ssd.read(LATER, units(9, 1)), trim + SimDuration(READ));
}

#[test]
fn queued_trims_overlap_in_their_latency_and_not_in_their_cost() {
    const LATENCY: u64 = 200 * US;
    let cost = (100 + 10 + 1) * US;
    let with = |kind, place| {
        device(|c| {
            c.trim.kind = kind;
            c.trim.place = place;
            c.trim.latency_per_command_ns = LATENCY;
        })
    };
    let mut ssd = with(TrimKind::Ufs, TrimPlace::BeforeAck);
    let first = ssd.trim(LATER, &[units(1, 1)]);
    assert_eq!(first, LATER + SimDuration(US + cost + LATENCY));
    // The second is served while the first is on its way back.
    assert_eq!(ssd.trim(LATER, &[units(9, 1)]), first + SimDuration(cost));
    // So is a read: it waits for the two costs, and for no latency.
    assert_eq!(ssd.read(LATER, units(20, 1)), LATER + SimDuration(US + 2 * cost + READ));
    assert_eq!(ssd.stats().busy_ns.trim, 2 * cost);

    // One by one nothing overlaps.
    let mut ssd = with(TrimKind::Ufs, TrimPlace::BeforeAck);
    let first = ssd.trim(LATER, &[units(1, 1)]);
    assert_eq!(ssd.trim(first, &[units(9, 1)]), first + SimDuration(US + cost + LATENCY));

    // What has the device to itself keeps it until it is acknowledged.
    let mut ssd = with(TrimKind::AtaNonQueued, TrimPlace::BeforeAck);
    let trim = ssd.trim(LATER, &[units(1, 1)]);
    assert_eq!(trim, LATER + SimDuration(US + cost + LATENCY));
    assert_eq!(ssd.read(LATER, units(9, 1)), trim + SimDuration(READ));

    let mut ssd = with(TrimKind::Nvme, TrimPlace::Background);
    assert_eq!(ssd.trim(LATER, &[units(1, 1)]), LATER + SimDuration(US + LATENCY));
}

#[test]
fn a_trim_on_a_core_of_its_own_delays_other_trims_only() {
    let cost = (100 + 10 + 1) * US;
    let mut ssd = device(|c| {
        c.trim.kind = TrimKind::Nvme;
        c.trim.place = TrimPlace::OwnCore;
    });
    let first = ssd.trim(LATER, &[units(1, 1)]);
    assert_eq!(first, LATER + SimDuration(US + cost));
    assert_eq!(ssd.trim(LATER, &[units(9, 1)]), first + SimDuration(cost));
    assert_eq!(ssd.read(LATER, units(20, 1)), LATER + SimDuration(READ));
}

#[test]
fn trims_that_wait_for_the_map_s_journal_share_a_write_of_it() {
    const WRITE: u64 = 400 * US;
    let cost = (100 + 10 + 1) * US;
    let mut ssd = device(|c| {
        c.trim.kind = TrimKind::Nvme;
        c.trim.place = TrimPlace::OwnCore;
        c.trim.journal_ns = WRITE;
    });
    let first = ssd.trim(LATER, &[units(1, 1)]);
    assert_eq!(first, LATER + SimDuration(US + cost + WRITE));
    let rest: Vec<SimTime> = (2..5).map(|i| ssd.trim(LATER, &[units(i, 1)])).collect();
    assert_eq!(rest, [first + SimDuration(WRITE); 3], "all three were ready before the first write ended");
    // One by one, each waits for a write of its own.
    let alone = ssd.trim(rest[0], &[units(9, 1)]);
    assert_eq!(alone, rest[0] + SimDuration(US + cost + WRITE));
}

#[test]
fn a_background_trim_is_acknowledged_at_once_and_slows_the_host_down() {
    let mut ssd = device(|c| {
        c.trim.place = TrimPlace::Background;
        c.trim.slowdown_percent = 50;
    });
    ssd.write(SimTime::ZERO, units(0, 4));
    let acknowledged = ssd.trim(LATER, &[units(1, 1)]);
    assert_eq!(acknowledged, LATER + SimDuration(US));
    let read = ssd.read(acknowledged, units(9, 1));
    assert_eq!(read, acknowledged + SimDuration(READ + READ / 2));
    // 111 us after the acknowledgement the work is done.
    let later = acknowledged + SimDuration(111 * US);
    assert_eq!(ssd.read(later, units(9, 1)), later + SimDuration(READ));
    assert!(!ssd.is_mapped(Lpn(1)));
}

#[test]
fn only_whole_granules_are_unmapped() {
    let mut ssd = device(|c| c.trim.granularity_units = 4);
    ssd.write(SimTime::ZERO, units(0, 16));
    ssd.trim(LATER, &[units(1, 10)]);
    let mapped: Vec<u64> = (0..16).filter(|&i| ssd.is_mapped(Lpn(i))).collect();
    assert_eq!(mapped, [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15]);
    ssd.trim(SimTime(2 * LATER.0), &[units(1, 2)]);
    assert_eq!(ssd.stats().trim.units_invalidated, 4);
}

#[test]
fn trimming_the_whole_device_at_once_or_in_pieces_is_the_same() {
    // Large enough for the pieces to take the bulk path too.
    let large = |c: &mut SsdConfig| {
        c.capacity_bytes = 400_000 * 4096;
        c.geometry.blocks_per_plane = Some(1_000);
        c.geometry.pages_per_block = 256;
        c.trim.max_units_per_range = 400_000;
    };
    let count = |pieces: u64| {
        let mut ssd = device(large);
        let total = ssd.capacity_units();
        ssd.write(SimTime::ZERO, units(0, total / 2));
        let now = churn(&mut ssd, LATER, total, 1_000);
        let mapped = ssd.mapped_units();
        let piece = total / pieces;
        let mut now = now;
        for i in 0..pieces {
            now = ssd.trim(now, &[units(i * piece, piece)]);
            ssd.audit().unwrap();
        }
        assert_eq!(ssd.mapped_units(), 0);
        assert_eq!(ssd.stats().trim.units_invalidated, mapped);
        ssd.stats().trim.units_invalidated
    };
    assert_eq!(count(1), count(4));
    assert_eq!(count(1), count(100));
}

#[test]
fn informing_the_device_costs_nothing_and_is_no_trim() {
    let mut ssd = device(|_| ());
    ssd.write(SimTime::ZERO, units(0, 16));
    let earlier = *ssd.stats();
    ssd.inform_free(units(0, 4));
    let stats = ssd.stats().since(&earlier);
    assert_eq!(stats, SsdStats { units_informed_free: 4, ..SsdStats::default() });
    assert!(!ssd.is_mapped(Lpn(3)) && ssd.is_mapped(Lpn(4)));
}

#[test]
fn an_erase_empties_the_device_and_takes_its_erases() {
    let mut ssd = device(|_| ());
    // Three superblocks of 16 units are in use.
    ssd.write(SimTime::ZERO, units(0, 40));
    let done = ssd.secure_erase(LATER);
    assert_eq!(done, LATER + SimDuration(US + 3 * T_ERASE));
    assert_eq!(ssd.mapped_units(), 0);
    assert_eq!((ssd.stats().superblock_erases, ssd.stats().block_erases), (3, 6));
    assert_eq!(ssd.read(LATER, units(0, 1)), done + SimDuration(READ), "nothing runs in parallel");
    ssd.audit().unwrap();
}

#[test]
fn idle_collection_reaches_its_target_and_only_when_idle() {
    let run = |idle: bool, gap_ms: u64| {
        let mut ssd = device(|c| {
            c.gc.idle = idle;
            c.gc.idle_threshold_ns = 100_000_000;
            c.gc.idle_free_superblocks = 6;
        });
        let now = ssd.write(SimTime::ZERO, units(0, 256));
        let now = churn(&mut ssd, now, 256, 1_000);
        assert!(ssd.free_superblocks() < 4);
        ssd.flush(now + SimDuration::from_millis(gap_ms));
        ssd.audit().unwrap();
        (ssd.free_superblocks(), ssd.stats().gc_units_idle)
    };
    assert_eq!(run(true, 10_000).0, 6);
    assert!(run(true, 10_000).1 > 0);
    assert_eq!(run(true, 99).1, 0, "not idle for long enough");
    assert_eq!(run(false, 10_000).1, 0, "switched off");
    // A short idle time is used only as far as it goes.
    assert!(run(true, 110).1 < run(true, 10_000).1);
}

#[test]
fn idle_collection_leaves_full_blocks_alone() {
    for victim in [
        VictimPolicy::Greedy,
        VictimPolicy::Fifo,
        VictimPolicy::CostBenefit,
        VictimPolicy::DChoices(2),
        VictimPolicy::Random,
    ] {
        let mut ssd = device(|c| {
            c.gc.victim = victim;
            c.gc.idle = true;
            c.gc.idle_free_superblocks = 24;
        });
        ssd.write(SimTime::ZERO, units(0, 256));
        ssd.flush(LATER);
        assert_eq!(ssd.stats().superblock_erases, 0, "{victim:?}");
    }
}

/// Until the first erase, the FTL uses the space that was written: full superblocks, and the written slots of an open
/// one.
#[test]
fn usable_units_leave_out_what_open_superblocks_have_not_taken() {
    let mut ssd = device(|_| ());
    let mut now = ssd.write(SimTime::ZERO, units(0, 256));
    while ssd.stats().gc_victims == 0 {
        now = churn(&mut ssd, now, 256, 1);
    }
    let stats = ssd.stats();
    let open = stats.host_units_written % ssd.superblock_units();
    assert!(stats.superblock_erases == 0 && open > 0, "{stats:?}");
    assert_eq!(stats.usable_units(), stats.host_units_written as f64);
}

/// An open superblock is not a candidate for collection, so only the audit would see a stale unit in it.
#[test]
fn units_of_an_open_superblock_become_stale_too() {
    let mut ssd = device(|_| ());
    ssd.write(SimTime::ZERO, units(0, 4));
    ssd.write(LATER, units(0, 1));
    ssd.audit().unwrap();
    ssd.trim(LATER, &[units(1, 2)]);
    ssd.audit().unwrap();
    assert_eq!(ssd.mapped_units(), 2);
}

#[test]
fn the_pace_of_collection_leaves_no_host_write_waiting() {
    let mut ssd = device(|c| {
        c.geometry.blocks_per_plane = Some(200);
        c.capacity_bytes = 2_600 * 4096;
        c.cache.bytes = 0;
    });
    let now = ssd.write(SimTime::ZERO, units(0, 2_600));
    churn(&mut ssd, now, 2_600, 30_000);
    let stats = *ssd.stats();
    assert!(stats.nand_units.gc > 0);
    assert!(stats.gc_stalls * 100 < stats.gc_victims, "{} of {}", stats.gc_stalls, stats.gc_victims);
}

#[test]
fn collection_is_spread_over_the_host_writes() {
    let mut ssd = device(|c| {
        c.geometry.blocks_per_plane = Some(200);
        c.capacity_bytes = 2_600 * 4096;
    });
    let mut now = ssd.write(SimTime::ZERO, units(0, 2_600));
    now = churn(&mut ssd, now, 2_600, 30_000);
    let (mut before, mut most) = (*ssd.stats(), 0);
    let mut x = 5u64;
    for _ in 0..5_000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        now = ssd.write(now, units((x >> 33) % 2_600, 1));
        most = most.max(ssd.stats().since(&before).nand_units.gc);
        before = *ssd.stats();
    }
    // Four fifths of the physical units are in use; a victim then holds 11 valid units of 16 at most, so
    // that 5 writes pay for 11 copies.
    assert!((1..=3).contains(&most), "{most} copies behind one write");
}

#[test]
fn collection_takes_the_time_of_its_reads_programs_and_erases() {
    // One die, so that its work is a sum; the cache keeps it busy throughout.
    let mut ssd = device(|c| {
        c.geometry.channels = 1;
        c.geometry.superblock_planes = 1;
        c.geometry.blocks_per_plane = Some(48);
        c.link.bytes_per_s = 500_000_000_000;
        c.controller.write_overhead_ns = 0;
    });
    let now = ssd.write(SimTime::ZERO, units(0, 256));
    let start = ssd.flush(now);
    let earlier = *ssd.stats();
    let now = churn(&mut ssd, start, 256, 5_000);
    let elapsed = ssd.flush(now).since(start).0;
    let stats = ssd.stats().since(&earlier);
    let busy = stats.busy_ns;
    // A page is a unit: each copy is read by itself.
    assert_eq!(busy.read_gc, stats.nand_units.gc * T_READ);
    assert_eq!(busy.program_gc, stats.nand_units.gc * T_PROG);
    assert_eq!(busy.program_host, stats.nand_units.host * T_PROG);
    assert_eq!(busy.erase, stats.superblock_erases * T_ERASE);
    let die = busy.read_gc + busy.program_gc + busy.program_host + busy.erase;
    assert!(stats.nand_units.gc > 500 && stats.superblock_erases > 500);
    // Programs in the cache whose end was told already do not move when a read overtakes them.
    assert!(die <= elapsed + 2 * 8 * T_READ, "{die} of work in {elapsed}");
    assert!(die * 100 >= elapsed * 90, "{die} of work in {elapsed}");
}

#[test]
fn a_single_unit_to_copy_is_one_read_and_one_erase() {
    // A superblock is 2 dies of 8 pages of 4 units.
    let mut ssd = device(|c| {
        c.geometry.page_bytes = 4 * 4096;
        c.gc.idle = true;
        c.gc.idle_free_superblocks = 24;
    });
    ssd.write(SimTime::ZERO, units(0, 64));
    ssd.write(SimTime::ZERO, units(1, 63));
    ssd.flush(LATER);
    let stats = *ssd.stats();
    assert_eq!((stats.nand_units.gc, stats.gc_units_idle, stats.superblock_erases), (1, 1, 1));
    assert_eq!(stats.busy_ns.read_gc, T_READ);
    // One unit does not fill a page: it waits for others.
    assert_eq!(stats.busy_ns.program_gc, 0);
    ssd.audit().unwrap();
}

/// The program waits for the read, even if they are on different dies.
#[test]
fn a_copy_from_another_die_takes_as_long_as_one_on_the_same() {
    let end = |kept: u64| {
        let mut ssd = device(|c| {
            c.gc.idle = true;
            c.gc.idle_free_superblocks = 24;
        });
        // The first superblock has a unit left. Its copy is the first of the next one, on the die of unit 0.
        ssd.write(SimTime::ZERO, units(0, 16));
        for unit in (0..16).filter(|&unit| unit != kept) {
            ssd.write(SimTime::ZERO, units(unit, 1));
        }
        ssd.catch_up(LATER);
        assert_eq!((ssd.stats().nand_units.gc, ssd.stats().superblock_erases), (1, 1));
        ssd.mapping.flash().nand.idle_at()
    };
    assert_eq!(end(0), end(1));
}

/// Four superblocks are full at about the same time, and there is room for one.
#[test]
fn writes_that_wait_for_a_victim_are_counted() {
    let mut ssd = device(|c| {
        c.gc.free_superblocks_min = 2;
        c.gc.host_frontiers = 4;
    });
    let now = ssd.write(SimTime::ZERO, units(0, 256));
    churn(&mut ssd, now, 256, 1_000);
    let stats = ssd.stats();
    assert!(stats.gc_stalls > 0 && stats.gc_stalls <= stats.gc_victims, "{stats:?}");
}

/// With first-in first-out, collection must also take victims without anything to gain; with a flush after each write,
/// the padding must be paid for like written units.
#[test]
fn paced_collection_leaves_no_write_waiting() {
    for (victim, flushes) in [(VictimPolicy::Fifo, false), (VictimPolicy::Greedy, true)] {
        let mut ssd = device(|c| {
            c.gc.victim = victim;
            c.geometry.page_bytes = 4 * 4096;
            c.geometry.blocks_per_plane = Some(16);
        });
        let mut now = ssd.write(SimTime::ZERO, units(0, 256));
        for _ in 0..2_000 {
            now = churn(&mut ssd, now, 64, 1);
            if flushes {
                now = ssd.flush(now);
            }
        }
        let stats = ssd.stats();
        assert!(stats.gc_victims > 10, "{} victims", stats.gc_victims);
        assert_eq!(stats.gc_stalls, 0, "{victim:?}, {} victims", stats.gc_victims);
    }
}

#[test]
fn a_trim_costs_what_it_unmaps_and_what_it_names() {
    let mut ssd = device(|c| c.trim.cost_per_mapped_unit_ns = 1_000 * US);
    ssd.write(SimTime::ZERO, units(0, 8));
    ssd.trim(LATER, &[units(0, 20), units(30, 1)]);
    assert_eq!(ssd.stats().busy_ns.trim, (100 + 2 * 10 + 21 + 8 * 1_000) * US);
}

#[test]
fn wear_levelling_begins_beyond_its_threshold() {
    let threshold = 5;
    let mut ssd = device(|c| {
        c.wear_levelling = WearLevellingConfig { threshold_erases: Some(threshold), interval_erases: 1 };
    });
    let mut now = ssd.write(SimTime::ZERO, units(0, 256));
    let mut widest = 0;
    while ssd.stats().nand_units.wear_levelling == 0 {
        now = churn(&mut ssd, now, 64, 1);
        let wear = ssd.wear();
        widest = widest.max(wear.max - wear.min);
    }
    assert_eq!(widest, threshold + 1);
}

#[test]
fn wear_levelling_keeps_to_its_interval() {
    let interval_erases = 100;
    let mut ssd = device(|c| {
        c.wear_levelling = WearLevellingConfig { threshold_erases: Some(1), interval_erases };
    });
    let now = ssd.write(SimTime::ZERO, units(0, 256));
    churn(&mut ssd, now, 64, 20_000);
    let moves_most = ssd.stats().superblock_erases / u64::from(interval_erases);
    let moved = ssd.stats().nand_units.wear_levelling;
    assert!(moved > 0 && moved <= moves_most * ssd.superblock_units(), "{moved} units in {moves_most} moves");
}

#[test]
fn cost_benefit_beats_greedy_when_a_part_is_hot() {
    let amplification = |victim| {
        let mut ssd = device(|c| {
            c.gc.victim = victim;
            c.geometry.blocks_per_plane = Some(160);
            c.capacity_bytes = 2_200 * 4096;
        });
        let mut now = ssd.write(SimTime::ZERO, units(0, 2_200));
        // Nine writes in ten go to a tenth of the units.
        for _ in 0..150 {
            now = churn(&mut ssd, now, 220, 900);
            now = churn(&mut ssd, now, 2_200, 100);
        }
        ssd.stats().write_amplification()
    };
    let (greedy, cost_benefit) =
        (amplification(VictimPolicy::Greedy), amplification(VictimPolicy::CostBenefit));
    assert!(cost_benefit < greedy * 0.95, "{cost_benefit} with cost-benefit, {greedy} with greedy");
}

#[test]
fn wear_levelling_moves_cold_blocks_and_is_counted_apart() {
    let run = |threshold: Option<u32>| {
        let mut ssd = device(|c| {
            c.wear_levelling = WearLevellingConfig { threshold_erases: threshold, interval_erases: 4 };
        });
        let now = ssd.write(SimTime::ZERO, units(0, 256));
        // A quarter is hot, the rest is never touched again.
        churn(&mut ssd, now, 64, 20_000);
        ssd.audit().unwrap();
        let wear = ssd.wear();
        (wear.max - wear.min, ssd.stats().nand_units.wear_levelling)
    };
    let (spread, moved) = run(None);
    assert_eq!(moved, 0);
    let (levelled, moved) = run(Some(10));
    assert!(moved > 0);
    assert!(levelled * 3 < spread, "{levelled} with, {spread} without");
    assert!(levelled <= 30);
}

/// Seven units of data and one of parity in a group; two dies, which take turns.
#[test]
fn parity_is_programmed_after_its_group() {
    let run = |parity_one_in, count| {
        let mut ssd = device(|c| c.geometry.parity_one_in = parity_one_in);
        ssd.write(SimTime::ZERO, units(0, count));
        let (nand, busy) = (ssd.stats().nand_units, ssd.stats().busy_ns);
        (nand.parity, nand.total(), busy.program_host / T_PROG, busy.program_gc / T_PROG)
    };
    assert_eq!(run(Some(8), 6), (0, 6, 6, 0));
    assert_eq!(run(Some(8), 7), (1, 8, 7, 1));
    assert_eq!(run(Some(8), 14), (2, 16, 14, 2));
    assert_eq!(run(None, 14), (0, 14, 14, 0));
    assert_eq!(device(|c| c.geometry.parity_one_in = Some(8)).superblock_units(), 14);
}

#[test]
fn victims_differ_as_their_names_say() {
    let amplification = |victim| {
        let mut ssd = device(|c| {
            c.gc.victim = victim;
            c.geometry.blocks_per_plane = Some(160);
            c.capacity_bytes = 2_200 * 4096;
        });
        let now = ssd.write(SimTime::ZERO, units(0, 2_200));
        churn(&mut ssd, now, 2_200, 40_000);
        ssd.audit().unwrap();
        ssd.stats().write_amplification()
    };
    let greedy = amplification(VictimPolicy::Greedy);
    let ten = amplification(VictimPolicy::DChoices(10));
    let one = amplification(VictimPolicy::DChoices(1));
    let random = amplification(VictimPolicy::Random);
    assert!(greedy < ten && ten < one && one < random, "{greedy} {ten} {one} {random}");
    assert!(greedy < amplification(VictimPolicy::Fifo));
}

#[test]
fn a_map_takes_at_most_twelve_bytes_for_a_unit() {
    let ssd = Ssd::new(&SsdConfig::default(), 1).unwrap();
    let bytes = ssd.memory_bytes();
    assert!(bytes <= 12 * ssd.capacity_units(), "{bytes}");
    assert!(bytes > 8 * ssd.capacity_units(), "the two tables alone are 8: {bytes}");
}

#[test]
fn what_a_block_layer_must_refuse() {
    let ssd = device(|c| {
        c.trim.max_ranges = 2;
        c.trim.max_units_per_range = 100;
    });
    assert_eq!(ssd.check(units(0, 256)), Ok(()));
    assert!(matches!(ssd.check(units(0, 257)), Err(AddressError::Outside { .. })));
    assert!(matches!(ssd.check(units(u64::MAX, 2)), Err(AddressError::Outside { .. })));
    assert!(matches!(ssd.check_trim(&[units(0, 101)]), Err(AddressError::RangeTooLong { .. })));
    assert!(matches!(ssd.check_trim(&[units(0, 1); 3]), Err(AddressError::TooManyRanges { .. })));
    assert_eq!(ssd.check_trim(&[units(0, 1); 2]), Ok(()));
}

#[test]
fn expecting_commands_changes_nothing() {
    let run = |expects: bool| {
        let mut ssd = device(|_| ());
        let (units, mut at) = (ssd.capacity_units(), SimTime::ZERO);
        let mut state = 7u64;
        for _ in 0..2_000 {
            let next = [(); 40].map(|()| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Some lie outside of the device.
                Lpn((state >> 33) % (units + 9))
            });
            if expects {
                ssd.expect(next);
            }
            for lpn in next.into_iter().filter(|lpn| lpn.0 < units) {
                at = ssd.write(at, UnitRange::new(lpn, 1));
            }
        }
        ssd.audit().unwrap();
        (at, *ssd.stats())
    };
    assert_eq!(run(true), run(false));
}
