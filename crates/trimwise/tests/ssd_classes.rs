//! The profiles against what drives of their class are sold as.
//!
//! Wide ranges on purpose: this catches a wrong unit, a lost factor or a resource that nobody waits for,
//! and is not a fit.

use std::collections::VecDeque;

use trimwise::profile::Profile;
use trimwise::ssd::Ssd;
use trimwise::units::{Bytes, Lpn, SimTime, UnitRange};

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

#[test]
fn profiles_are_as_fast_as_their_class() {
    let classes = [
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
    ];
    for class in classes {
        let name = class.profile;
        let profile = Profile::embedded(name).expect("an embedded profile");
        let mut ssd = Ssd::new(&profile.config, 1).expect("a valid profile");
        let (write, end) = rate(&mut ssd, SimTime::ZERO, 32, &sequential(), true);
        within(&format!("{name}, sequential write, MB/s"), write / 1_000_000, class.sequential_write);
        let end = ssd.flush(end);
        let (read, end) = rate(&mut ssd, end, 32, &sequential(), false);
        within(&format!("{name}, sequential read, MB/s"), read / 1_000_000, class.sequential_read);
        let (read, end) = rate(&mut ssd, end, 32, &scattered(), false);
        within(&format!("{name}, random read, 32 outstanding, 1/s"), read / 4096, class.random_read);
        let (read, _) = rate(&mut ssd, end, 1, &scattered(), false);
        within(&format!("{name}, random read, one at a time, 1/s"), read / 4096, class.random_read_alone);
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
