//! The SLC cache. A superblock of 16 units holds 8 in SLC mode here.

use super::*;

const SLC_READ: u64 = 20 * US;
const SLC_PROG: u64 = 100 * US;

fn slc(static_superblocks: u32) -> SlcConfig {
    SlcConfig {
        static_superblocks,
        dynamic_percent: 0,
        dynamic_superblocks_max: None,
        bits_per_cell: 2,
        t_prog_ns: SLC_PROG,
        t_read_ns: SLC_READ,
        fold_when_idle: false,
        fold_threshold_percent: 100,
        direct: true,
        gives_way: false,
    }
}

/// A device without a write cache, so that a write is acknowledged when it is programmed.
fn device(static_superblocks: u32, change: impl FnOnce(&mut SlcConfig)) -> Ssd {
    let mut slc = slc(static_superblocks);
    change(&mut slc);
    super::device(|c| {
        c.cache.bytes = 0;
        c.gc.idle = true;
        c.slc = Some(slc);
    })
}

#[test]
fn a_burst_is_quick_until_the_cache_is_full() {
    let mut ssd = device(2, |_| ());
    // Eight pages for each die, one after the other; they are transferred while the die is busy.
    let arrived = (2 + 1 + 160) * US;
    assert_eq!(ssd.write(SimTime::ZERO, units(0, 16)), SimTime(arrived + UNIT + 8 * SLC_PROG));
    assert_eq!(ssd.stats().slc_units_written, 16);
    // The cliff: the next goes straight to where data stay.
    assert_eq!(ssd.write(LATER, units(16, 1)), LATER + SimDuration(WRITE + UNIT + T_PROG));
    let later = SimTime(2 * LATER.0);
    let arrived = (2 + 1 + 160) * US;
    assert_eq!(ssd.write(later, units(17, 16)), later + SimDuration(arrived + UNIT + 8 * T_PROG));
    let stats = *ssd.stats();
    assert_eq!((stats.slc_units_written, stats.nand_units.host, stats.nand_units.folding), (16, 33, 0));
    assert_eq!(stats.busy_ns.program_host, 16 * SLC_PROG + 17 * T_PROG);
    ssd.audit().unwrap();
}

#[test]
fn a_read_is_quicker_before_folding() {
    let mut ssd = device(2, |slc| slc.fold_when_idle = true);
    ssd.write(SimTime::ZERO, units(0, 8));
    // Less than the idle threshold later.
    let now = SimTime(50_000 * US);
    assert_eq!(ssd.read(now, units(0, 1)), now + SimDuration(READ + SLC_READ + UNIT));
    assert_eq!(ssd.read(LATER, units(0, 1)), LATER + SimDuration(READ + T_READ + UNIT));
    assert_eq!((ssd.stats().nand_units.folding, ssd.stats().folded_units_idle), (8, 8));
}

#[test]
fn idle_time_makes_the_next_burst_quick_again_and_what_was_trimmed_is_not_folded() {
    let mut ssd = device(2, |slc| slc.fold_when_idle = true);
    ssd.write(SimTime::ZERO, units(0, 16));
    // Half of the first superblock, and the second but for a unit that is overwritten, where the cache is full.
    let now = SimTime(50_000 * US);
    let now = ssd.trim(now, &[units(0, 4)]);
    let now = ssd.write(now, units(15, 1));
    ssd.flush(now);
    ssd.flush(LATER);
    let stats = *ssd.stats();
    assert_eq!(stats.nand_units.folding, 4 + 7);
    // Eleven reads in SLC mode, eleven programs in the other, and an erase of both dies for each superblock.
    assert_eq!(stats.busy_ns.read_gc, 11 * SLC_READ);
    assert_eq!(stats.busy_ns.program_gc, 11 * T_PROG);
    assert_eq!(stats.busy_ns.erase, 2 * 2 * T_ERASE);
    let later = SimTime(2 * LATER.0);
    assert_eq!(ssd.write(later, units(20, 1)), later + SimDuration(WRITE + UNIT + SLC_PROG));
    ssd.audit().unwrap();
}

#[test]
fn above_the_threshold_folding_keeps_pace_with_the_host() {
    let mut ssd = device(2, |slc| slc.fold_threshold_percent = 50);
    let mut now = SimTime::ZERO;
    for i in 0..64 {
        now = ssd.write(now, units(i, 1));
        // Half of the cache fills, then each unit pays for the folding of one.
        assert_eq!(ssd.stats().nand_units.folding, (i + 1).saturating_sub(8), "after unit {i}");
    }
    assert_eq!(ssd.stats().slc_units_written, 64);
    assert_eq!(ssd.stats().superblock_erases, 7);
    ssd.audit().unwrap();
}

#[test]
fn firmware_that_writes_only_through_the_cache_folds_while_the_host_waits() {
    let mut ssd = device(2, |slc| slc.direct = false);
    let now = ssd.write(SimTime::ZERO, units(0, 16));
    assert_eq!(ssd.stats().nand_units.folding, 0);
    // Each die reads four units, programs them, and erases its part of the superblock before the host's unit goes there.
    let done = ssd.write(now, units(16, 1));
    let stats = *ssd.stats();
    assert_eq!((stats.slc_units_written, stats.nand_units.host, stats.nand_units.folding), (17, 17, 8));
    let least = 4 * (SLC_READ + T_PROG) + T_ERASE + SLC_PROG;
    let waited = done.since(now).0;
    assert!((least..least + 4 * (SLC_READ + UNIT)).contains(&waited), "{waited} ns, at least {least}");
    // In the long run each unit is programmed with one bit a cell, read, and programmed again; a superblock is erased
    // for 8 units. Nothing is collected, since nothing is overwritten.
    let (from, before) = (done, stats);
    let now = ssd.write(from, units(17, 160));
    let stats = *ssd.stats();
    assert_eq!(stats.nand_units.folding - before.nand_units.folding, 160);
    assert_eq!(stats.nand_units.gc, 0);
    let die_time = 80 * (SLC_PROG + SLC_READ + T_PROG) + 20 * T_ERASE;
    let ratio = now.since(from).0 as f64 / die_time as f64;
    assert!((1.0..1.05).contains(&ratio), "{ratio} of the time that the dies need");
    ssd.audit().unwrap();
}

#[test]
fn firmware_that_writes_only_through_the_cache_has_a_fixed_part_of_it() {
    let mut config = super::config();
    config.slc = Some(SlcConfig { direct: false, dynamic_percent: 50, ..slc(0) });
    assert_eq!(
        config.validate().unwrap_err().to_string(),
        "slc.direct: false is not accepted; expected true where slc.static_superblocks is 0"
    );
    config.slc = Some(SlcConfig { dynamic_superblocks_max: Some(0), ..slc(1) });
    assert_eq!(config.validate().unwrap_err().field, "slc.dynamic_superblocks_max");
}

#[test]
fn the_dynamic_part_may_be_small_and_stay_so_until_little_is_free() {
    let mut ssd = device(0, |slc| (slc.dynamic_percent, slc.dynamic_superblocks_max) = (100, Some(3)));
    let mut now = SimTime::ZERO;
    let mut fill = |from: u64, to: u64| {
        now = (from..to).fold(now, |now, i| ssd.write(now, units(i, 1)));
        ssd.audit().unwrap();
        (ssd.stats().slc_units_written, ssd.stats().nand_units.folding)
    };
    // 16 superblocks are free, of which 3 are borrowed, and kept as long as 3 are free.
    assert_eq!(fill(0, 64), (24, 0));
    assert_eq!(fill(64, 256 - 3 * 16), (24, 0));
    assert_eq!(fill(256 - 3 * 16, 256), (24, 24));
}

#[test]
fn a_dynamic_part_that_gives_way_is_folded_before_anything_is_collected() {
    // Three quarters of the drive are full, and overwritten at random.
    let run = |gives_way: bool| {
        let mut ssd = device(0, |slc| (slc.dynamic_percent, slc.gives_way) = (50, gives_way));
        let now = (0..192).fold(SimTime::ZERO, |now, i| ssd.write(now, units(i, 1)));
        churn(&mut ssd, now, 192, 400);
        ssd.audit().unwrap();
        ssd
    };
    let [stays, gave] = [false, true].map(run);
    assert_eq!([&stays, &gave].map(|ssd| ssd.stats().slc_units_written), [48; 2]);
    assert_eq!([&stays, &gave].map(|ssd| ssd.stats().nand_units.gc), [116, 100]);
    assert!(gave.stats().nand_units.folding > stays.stats().nand_units.folding);
}

/// They wear far faster than the others, which are alike.
#[test]
fn superblocks_that_are_always_in_slc_mode_are_not_levelled() {
    let threshold = 40;
    let mut ssd = super::device(|c| {
        c.slc = Some(SlcConfig { fold_threshold_percent: 50, ..slc(2) });
        c.wear_levelling = WearLevellingConfig { threshold_erases: Some(threshold), interval_erases: 1 };
    });
    churn(&mut ssd, SimTime::ZERO, 256, 2_000);
    assert!(ssd.wear().max > 2 * threshold, "{:?}", ssd.wear());
    assert_eq!(ssd.stats().nand_units.wear_levelling, 0, "units that wear levelling moved");
}

#[test]
fn the_dynamic_part_shrinks_as_the_drive_fills() {
    let mut ssd = device(0, |slc| slc.dynamic_percent = 50);
    let fill = |ssd: &mut Ssd, now: SimTime, from: u64, to: u64| {
        (from..to).fold(now, |now, i| {
            let done = ssd.write(now, units(i, 1));
            ssd.audit().unwrap();
            done
        })
    };
    // With 48 units in 6 superblocks, 13 superblocks are free, of which 6 may be borrowed.
    let now = fill(&mut ssd, SimTime::ZERO, 0, 64);
    assert_eq!((ssd.stats().slc_units_written, ssd.stats().nand_units.folding), (48, 0));
    // What is borrowed when less is free is folded while the host writes; in the end there is nothing to borrow.
    let now = fill(&mut ssd, now, 64, 128);
    assert!((1..48).contains(&ssd.stats().nand_units.folding));
    let now = fill(&mut ssd, now, 128, 256);
    let stats = *ssd.stats();
    assert_eq!((stats.slc_units_written, stats.nand_units.folding), (48, 48));
    // A full drive without TRIM has no cache, however much of it the file system has freed.
    let now = fill(&mut ssd, now, 0, 256);
    assert_eq!(ssd.stats().slc_units_written, 48);
    // TRIM gives it back, as soon as idle time has erased superblocks for it.
    ssd.trim(now, &[units(0, 256)]);
    ssd.flush(LATER);
    fill(&mut ssd, LATER, 0, 64);
    assert_eq!(ssd.stats().slc_units_written, 2 * 48);
    ssd.audit().unwrap();
}
