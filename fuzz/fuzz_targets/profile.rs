//! SSD profiles: no text panics, refusals are one line, and a device that is accepted can be made and used.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::profile::Profile;
use trimwise::ssd::Ssd;
use trimwise::units::{Lpn, SimTime, UnitRange};

/// Larger devices are only parsed: their maps would be all that the fuzzer's time goes into.
const UNITS_MAX: u64 = 1 << 16;

fuzz_target!(|text: &str| {
    let profile = match Profile::parse(text, "fuzz.toml") {
        Ok(profile) => profile,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n'), "not one line: {message:?}");
            assert!((1..=text.split('\n').count()).contains(&error.line), "no such line: {message}");
            return;
        }
    };
    for firmware in &profile.firmware_variants {
        Profile::parse_firmware(text, "fuzz.toml", &firmware.version)
            .expect("the file was checked with its variants");
    }
    let g = &profile.config.geometry;
    let small = profile.config.capacity_units() <= UNITS_MAX
        && u64::from(g.superblock_planes) * u64::from(g.pages_per_block) * u64::from(g.page_bytes / 4096)
            <= UNITS_MAX
        && u64::from(g.blocks_per_plane.unwrap_or(0)) <= 1024
        && profile.config.over_provisioning_percent.is_none_or(|percent| percent <= 1000.into())
        && u64::from(g.channels) * u64::from(g.dies_per_channel) <= 1024;
    if !small {
        return;
    }
    let mut ssd = Ssd::new(&profile.config, 1).expect("a profile that was accepted makes a device");
    let units = ssd.capacity_units();
    let mut now = SimTime::ZERO;
    for start in [0, units / 2] {
        now = ssd.write(now, UnitRange::new(Lpn(start), (units - start).min(64)));
        now = ssd.read(now, UnitRange::new(Lpn(start), (units - start).min(8)));
    }
    let trim = u64::from(ssd.config().trim.max_units_per_range).min(units);
    now = ssd.trim(now, &[UnitRange::new(Lpn(0), trim)]);
    ssd.flush(now);
    ssd.audit().expect("the audit passes");
});
