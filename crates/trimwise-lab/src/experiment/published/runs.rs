//! What the model says: short runs of each drive, and what its profile takes for a TRIM.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::compare::cell::CellError;
use trimwise::drives::dirty::Writes;
use trimwise::drives::measured::{Measurement, What};
use trimwise::drives::spare::{fusion_io, intel_710, steady};
use trimwise::profile::Profile;
use trimwise::ssd::{CacheConfig, GeometryConfig, MappingConfig, Ssd, SsdConfig, TrimMap, VictimPolicy};
use trimwise::units::{Bytes, Lpn, SimDuration, SimTime, UNIT_BYTES, UnitRange};

use super::place::slug;

#[derive(Clone, Debug)]
pub enum Run {
    /// A drive filled to this percentage, dirty and rested.
    Writes(Box<Profile>, u8),
    Intel710(VictimPolicy, Option<u32>),
    IoDrive(VictimPolicy),
    /// A tenth of the requests are TRIMs, or none.
    Trims,
    /// 4 GB are trimmed on a full drive without DRAM, whose map this happens to.
    HeldUp(Option<TrimMap>),
    /// What profiles take for a TRIM.
    Costs,
}

/// Returns all runs: those of `profiles`, filled as the register says, and the others.
pub fn all(register: &[Measurement], profiles: Vec<Profile>) -> Vec<Run> {
    let writes = profiles.into_iter().map(|profile| {
        let is_it = |m: &&Measurement| m.drive == profile.name && m.what == What::DirtyOverClean;
        let full = register.iter().find(is_it).and_then(|entry| entry.full_percent);
        Run::Writes(Box::new(profile), full.unwrap_or(100))
    });
    let others = [
        Run::IoDrive(VictimPolicy::Greedy),
        Run::IoDrive(VictimPolicy::Random),
        Run::Intel710(VictimPolicy::Greedy, None),
        Run::Intel710(VictimPolicy::Random, Some(16)),
        Run::Trims,
        Run::HeldUp(None),
        Run::HeldUp(Some(TrimMap::Written)),
        Run::Costs,
    ];
    writes.chain(others).collect()
}

impl Run {
    /// Returns figures by name.
    ///
    /// # Errors
    /// If the drive cannot be made, or its counts do not add up.
    pub fn figures(&self, seed: u64) -> Result<Vec<(String, f64)>, CellError> {
        let drawn = |name: &str, victim: VictimPolicy| match victim {
            VictimPolicy::Random => format!("{name}-random"),
            _ => name.to_owned(),
        };
        Ok(match self {
            Self::Writes(profile, full) => {
                let writes = Writes::measured(&profile.config, *full, SimDuration(0), seed)?;
                let drive = slug(&profile.name);
                vec![
                    (format!("dirty-{drive}"), writes.dirty_over_clean()),
                    (format!("rested-{drive}"), writes.rested_over_clean()),
                ]
            }
            Self::Intel710(victim, parity) => {
                let config = intel_710(*victim, *parity);
                let used = |percent| steady(&config, config.capacity_bytes * percent / 100, 1);
                let (whole, part) = (used(100)?.write_amplification, used(80)?.write_amplification);
                vec![
                    (drawn("wa-intel-710", *victim), whole),
                    (drawn("spare-intel-710", *victim), whole / part),
                ]
            }
            Self::IoDrive(victim) => {
                let config = fusion_io(*victim);
                let speed = |gib: u64| steady(&config, (gib << 30) / 160, 4).map(|found| found.bytes_per_s);
                let [least, middle, most] = [speed(100)?, speed(150)?, speed(200)?];
                vec![
                    (drawn("spare-iodrive-100", *victim), least / most),
                    (drawn("spare-iodrive-150", *victim), middle / most),
                ]
            }
            Self::Trims => {
                vec![("wa-trims".to_owned(), amplification(10, seed)? / amplification(0, seed)?)]
            }
            Self::HeldUp(trim_map) => {
                let name = if trim_map.is_some() { "stall-rc100-written" } else { "stall-rc100" };
                vec![(name.to_owned(), held_up(*trim_map)?)]
            }
            Self::Costs => costs(),
        })
    }
}

/// Write amplification of random writes, `trims` percent of the requests being TRIMs of a unit in use, with 12.4 %
/// over-provisioning (assumed).
fn amplification(trims: u64, seed: u64) -> Result<f64, CellError> {
    const PAGES: u32 = 64;
    const BLOCKS: u32 = 1024;
    let mut config = SsdConfig {
        capacity_bytes: u64::from(PAGES * BLOCKS) * 1000 / 1124 * UNIT_BYTES,
        over_provisioning_percent: None,
        ..SsdConfig::default()
    };
    config.geometry =
        GeometryConfig { blocks_per_plane: Some(BLOCKS), ..GeometryConfig::flat(1, PAGES, 4096) };
    config.cache = CacheConfig { bytes: 1 << 20, ..config.cache };
    (config.gc.victim, config.gc.idle) = (VictimPolicy::Greedy, false);
    let mut ssd = Ssd::new(&config, seed)?;
    let logical = ssd.capacity_units();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |n: u64| ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64;
    let mut is_used = vec![true; logical as usize];
    let mut now = ssd.write(SimTime::ZERO, UnitRange::new(Lpn(0), logical));
    let mut earlier = *ssd.stats();
    for passes in [6, 4] {
        earlier = *ssd.stats();
        let end = earlier.host_units_written + passes * ssd.physical_units();
        while ssd.stats().host_units_written < end {
            let is_trim = below(100) < trims;
            let mut unit = below(logical);
            while is_trim && !is_used[unit as usize] {
                unit = below(logical);
            }
            is_used[unit as usize] = !is_trim;
            let range = UnitRange::new(Lpn(unit), 1);
            now = if is_trim { ssd.trim(now, &[range]) } else { ssd.write(now, range) };
        }
    }
    Ok(ssd.stats().since(&earlier).write_amplification())
}

/// Seconds by which a read takes longer than alone that comes right after a TRIM of 4 GB, on a drive without DRAM that is
/// full: the slowest of several.
fn held_up(trim_map: Option<TrimMap>) -> Result<f64, CellError> {
    /// Long after everything before is over.
    const NOW: SimTime = SimTime(3_600_000_000_000);
    let profile = Profile::embedded("nvme-500gb-dramless").expect("the drive is built in");
    let mut config = profile.config.shrunk(Bytes::gib(8).0)?;
    if let (MappingConfig::Page { trim_map: set, .. }, Some(wanted)) = (&mut config.mapping, trim_map) {
        *set = wanted;
    }
    let mut ssd = Ssd::new(&config, 1)?;
    let units = ssd.capacity_units();
    ssd.write(SimTime::ZERO, UnitRange::new(Lpn(0), units));
    // Reads of units whose part of the map is in the cache.
    let slowest = |ssd: &Ssd| {
        let read = |i: u64| ssd.clone().read(NOW, UnitRange::new(Lpn(units - i * 997), 1)).since(NOW);
        (1..9).map(read).max().unwrap_or(SimDuration(0)).as_secs_f64()
    };
    let alone = slowest(&ssd);
    ssd.trim(NOW, &[UnitRange::new(Lpn(units / 4), 4_000_000_000 / UNIT_BYTES)]);
    Ok((slowest(&ssd) - alone).max(0.0))
}

/// Seconds of a single TRIM of one range, by the profile of the drive, or else of its class.
fn costs() -> Vec<(String, f64)> {
    const GIB: u64 = (1 << 30) / UNIT_BYTES;
    [
        ("trim-agility-3", "sata-60gb-2011", 1),
        ("trim-fio-764", "nvme-960gb-enterprise", 1),
        ("trim-fio-396", "nvme-1tb-slc", 128),
        ("trim-open-cas-182", "nvme-1tb-slc", 1),
        ("trim-aws-i3", "nvme-1tb-slc", 128),
        ("whole-p4510", "nvme-960gb-enterprise", GIB),
        ("whole-p4510-full", "nvme-960gb-enterprise", GIB),
    ]
    .map(|(name, profile, units)| {
        let profile = Profile::embedded(profile).expect("the drive is built in");
        (name.to_owned(), profile.config.trim_alone(units).as_secs_f64())
    })
    .to_vec()
}
