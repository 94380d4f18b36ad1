//! The profiles against what drives of their class are sold as.
//!
//! Wide ranges on purpose: this catches a wrong unit, a lost factor or a resource that nobody waits for,
//! and is not a fit.

use std::collections::VecDeque;

use trimwise::profile::Profile;
use trimwise::ssd::{MappingConfig, Ssd, SsdConfig};
use trimwise::units::{Bytes, Lpn, SimDuration, SimTime, UnitRange};

/// Keeps `depth` commands outstanding and returns bytes a second of virtual time.
fn rate(ssd: &mut Ssd, from: SimTime, depth: usize, ranges: &[UnitRange], write: bool) -> (u64, SimTime) {
    let mut outstanding: VecDeque<SimTime> = VecDeque::new();
    let (mut now, mut end, mut units) = (from, from, 0);
    for &range in ranges {
        if outstanding.len() == depth {
            now = now.max(outstanding.pop_front().expect("commands are outstanding"));
        }
        let done = if write { ssd.write(now, range) } else { ssd.read(now, range) };
        outstanding.push_back(done);
        end = end.max(done);
        units += range.units;
    }
    (Bytes::from_units(units).0 * 1_000_000_000 / end.since(from).0, end)
}

/// Sequential commands of 128 KiB over 1 GiB.
fn sequential() -> Vec<UnitRange> {
    (0..8192).map(|i| UnitRange::new(Lpn(i * 32), 32)).collect()
}

/// Single units all over that first GiB.
fn scattered() -> Vec<UnitRange> {
    (0..20_000u64).map(|i| UnitRange::new(Lpn(i * 104_729 % (8192 * 32)), 1)).collect()
}

struct Class {
    profile: &'static str,
    /// MB/s, least and most.
    sequential_write: (u64, u64),
    sequential_read: (u64, u64),
    /// Commands a second.
    random_read: (u64, u64),
    random_read_alone: (u64, u64),
}

fn within(what: &str, value: u64, (least, most): (u64, u64)) {
    println!("{what}: {value} ({least} to {most})");
    assert!((least..=most).contains(&value), "{what}: {value} is outside {least} to {most}");
}

/// A slice of the device: as fast as the whole, since all channels and dies are there, with fewer blocks in each.
fn slice(profile: &Profile) -> SsdConfig {
    let mut config = profile.config.clone();
    let parts = u32::try_from(config.capacity_bytes >> 34).expect("a drive of today").max(1);
    let fewer = |n: u32| n.div_ceil(parts);
    config.capacity_bytes /= u64::from(parts);
    // The frontiers and the free pool are as many as before, so the slice needs more superblocks in addition to its data.
    config.geometry.blocks_per_plane = config.geometry.blocks_per_plane.map(|blocks| fewer(blocks) + 8);
    if let MappingConfig::Block(block) = &mut config.mapping {
        block.log_superblocks = fewer(block.log_superblocks);
    }
    // The SLC cache stays as large as it was: what drives are sold with is how fast they are as long as it lasts.
    if let Some(slc) = &config.slc {
        let g = &mut config.geometry;
        let lanes = g.channels * g.dies_per_channel * g.planes_per_die / g.superblock_planes;
        let kept = slc.static_superblocks.div_ceil(lanes);
        g.blocks_per_plane = g.blocks_per_plane.map(|blocks| blocks + kept);
    }
    config
}

const CLASSES: &[Class] = &[
    Class {
        profile: "sata-generic",
        sequential_write: (200, 550),
        sequential_read: (450, 550),
        random_read: (60_000, 125_000),
        random_read_alone: (6_000, 13_000),
    },
    Class {
        profile: "nvme-generic",
        sequential_write: (1_000, 3_500),
        sequential_read: (2_500, 3_500),
        random_read: (200_000, 700_000),
        random_read_alone: (10_000, 20_000),
    },
    // The flash of the Vertex, which is sold with reads at 250 MB/s and writes at 194 on a trimmed drive;
    // the cache takes 32 MiB more than the flash.
    Class {
        profile: "page-60gb-2009",
        sequential_write: (185, 205),
        sequential_read: (200, 275),
        random_read: (15_000, 35_000),
        random_read_alone: (3_000, 8_000),
    },
    // Sold with 555 and 525 MB/s of what compresses well, and 90,000 commands a second.
    Class {
        profile: "sandforce-240gb",
        sequential_write: (250, 555),
        sequential_read: (400, 556),
        random_read: (50_000, 95_000),
        random_read_alone: (4_000, 10_000),
    },
    // Plextor M5 Pro: 94,000 reads a second.
    Class {
        profile: "sata-240gb-2012",
        sequential_write: (300, 555),
        sequential_read: (450, 556),
        random_read: (60_000, 95_000),
        random_read_alone: (4_000, 12_000),
    },
    // Sold with 560 and 530 MB/s, 98,000 reads a second, 13,000 one at a time.
    Class {
        profile: "sata-500gb-slc",
        sequential_write: (450, 560),
        sequential_read: (500, 560),
        random_read: (60_000, 101_000),
        random_read_alone: (9_000, 18_000),
    },
    // Sold with 560 and, as long as the SLC cache lasts, 530 MB/s, and 98,000 reads a second.
    Class {
        profile: "sata-1tb-qlc",
        sequential_write: (450, 560),
        sequential_read: (500, 560),
        random_read: (40_000, 101_000),
        random_read_alone: (6_000, 12_000),
    },
    // Sold with 550 and 520 MB/s, and 98,000 reads a second.
    Class {
        profile: "sata-960gb-enterprise",
        sequential_write: (450, 560),
        sequential_read: (500, 560),
        random_read: (60_000, 101_000),
        random_read_alone: (8_000, 17_000),
    },
    // Sold with 3,400 and, as long as the SLC cache lasts, 2,500 MB/s, and 500,000 reads a second.
    Class {
        profile: "nvme-1tb-slc",
        sequential_write: (2_000, 2_700),
        sequential_read: (2_500, 3_500),
        random_read: (150_000, 500_000),
        random_read_alone: (9_000, 20_000),
    },
    // Sold with 3,500 and, as long as the SLC cache lasts, 2,300 MB/s, and 360,000 reads a second.
    Class {
        profile: "nvme-500gb-dramless",
        sequential_write: (900, 2_500),
        sequential_read: (2_500, 3_500),
        random_read: (120_000, 370_000),
        random_read_alone: (8_000, 20_000),
    },
    // Sold with 400,000 reads a second, one at a time in 85 us.
    Class {
        profile: "nvme-960gb-enterprise",
        sequential_write: (800, 1_300),
        sequential_read: (2_500, 3_300),
        random_read: (150_000, 400_000),
        random_read_alone: (9_000, 17_000),
    },
    // Sold with 3,000 and, as long as the SLC cache lasts, 1,600 MB/s; without it slower than a hard disk.
    Class {
        profile: "nvme-512gb-qlc",
        sequential_write: (120, 1_700),
        sequential_read: (1_800, 3_500),
        random_read: (25_000, 315_000),
        random_read_alone: (7_000, 22_000),
    },
    // Announced with 4,200 and 2,800 MB/s.
    Class {
        profile: "ufs4-256gb",
        sequential_write: (550, 2_900),
        sequential_read: (3_000, 4_600),
        random_read: (60_000, 210_000),
        random_read_alone: (9_000, 22_000),
    },
];

#[test]
fn profiles_are_as_fast_as_their_class() {
    for class in CLASSES {
        let name = class.profile;
        let profile = Profile::embedded(name).expect("an embedded profile");
        let mut ssd = Ssd::new(&slice(&profile), 1).expect("a valid profile");
        let (write, end) = rate(&mut ssd, SimTime::ZERO, 32, &sequential(), true);
        within(&format!("{name}, sequential write, MB/s"), write / 1_000_000, class.sequential_write);
        // Reads are those of data at rest: an SLC cache has been folded by then.
        let end = ssd.flush(end) + SimDuration::from_millis(3_600_000);
        let (read, end) = rate(&mut ssd, end, 32, &sequential(), false);
        within(&format!("{name}, sequential read, MB/s"), read / 1_000_000, class.sequential_read);
        let (read, end) = rate(&mut ssd, end, 32, &scattered(), false);
        within(&format!("{name}, random read, 32 outstanding, 1/s"), read / 4096, class.random_read);
        let (read, _) = rate(&mut ssd, end, 1, &scattered(), false);
        within(&format!("{name}, random read, one at a time, 1/s"), read / 4096, class.random_read_alone);
    }
}

/// Whoever adds a drive says what it is sold as. The fitted drives have no class but their fitted numbers, two are no
/// drives at all, and the Vertex's logical superblocks are too narrow for a page mapping's one frontier.
#[test]
fn every_drive_has_a_class() {
    let without = ["sata-small", "sata-60gb-2011", "ufs21-64gb", "vertex-60gb", "bench-64gib", "zero-cost"];
    for name in Profile::embedded_names() {
        let expected = !without.contains(&name) && !name.starts_with("vendor");
        assert_eq!(CLASSES.iter().any(|class| class.profile == name), expected, "{name}");
    }
}

/// The six drives of the vendors' table have no class but their fitted numbers: the write path bounds what is
/// written, and read commands pass the controller one at a time.
#[test]
fn the_fitted_numbers_of_the_vendors_drives_bound_them() {
    for vendor in 1..=6 {
        let name = format!("vendor{vendor}");
        let profile = Profile::embedded(&name).expect("an embedded profile");
        let controller = &profile.config.controller;
        let write_bytes_per_s = controller.write_bytes_per_s.expect("a fitted write path");
        let read_commands_per_s = 1_000_000_000 / controller.read_overhead_ns;
        let mut ssd = Ssd::new(&profile.config, 1).expect("a valid profile");
        let (write, end) = rate(&mut ssd, SimTime::ZERO, 32, &sequential(), true);
        let a_little_less = |most: u64| (most * 97 / 100, most * 101 / 100);
        within(&format!("{name}, sequential write, B/s"), write, a_little_less(write_bytes_per_s));
        let end = ssd.flush(end);
        let (read, _) = rate(&mut ssd, end, 32, &scattered(), false);
        within(&format!("{name}, random read, 1/s"), read / 4096, a_little_less(read_commands_per_s));
    }
}
