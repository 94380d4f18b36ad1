//! The built-in profiles, one profile in full, what is public about a model of a drive, and published measurements.

use std::path::Path;

use serde::Serialize;
use trimwise::drives::measured::{self, Class, Measurement, Summary};
use trimwise::drives::models::{self, Model};
use trimwise::drives::wildcard::matches;
use trimwise::failure::{self, Failure, Mistake};
use trimwise::profile::ranges::Range;
use trimwise::profile::{Profile, SettingValue};
use trimwise::ssd::{LinkKind, ReadAfterTrim, TrimConfig, TrimPlace};
use trimwise::units::{Bytes, UNIT_BYTES};

use crate::input::profile_or;
use crate::stand_in::profiles_for_model;

#[derive(Debug, Serialize)]
pub struct Devices {
    pub trimwise: &'static str,
    /// Every built-in profile.
    pub devices: Vec<Essentials>,
}

#[derive(Debug, Serialize)]
pub struct Device {
    pub trimwise: &'static str,
    pub device: Essentials,
    pub settings: Vec<Setting>,
    /// How far settings may be off.
    pub ranges: Vec<Range>,
}

#[derive(Debug, Serialize)]
pub struct Essentials {
    pub name: String,
    pub description: String,
    /// `None` for the profile without a variant.
    pub firmware: Option<String>,
    /// All variants of the profile, not only the one shown.
    pub firmware_variants: Vec<Firmware>,
    /// Deliberately faulty.
    pub faulty: bool,
    /// Capacity available to the host.
    pub capacity_bytes: u64,
    /// Flash available to the device.
    pub physical_bytes: u64,
    /// Flash beyond the capacity, in percent of the capacity.
    pub over_provisioning_percent: f64,
    /// `sata`, `nvme` or `ufs`.
    pub link: &'static str,
    pub link_bytes_per_s: u64,
    /// `page`, `block` or `compressing`.
    pub mapping: &'static str,
    /// `None`: the whole map is in memory.
    pub map_cache_bytes: Option<u64>,
    pub cache_bytes: u64,
    pub cache_volatile: bool,
    pub read_ahead_bytes: u64,
    /// `None` without an SLC cache.
    pub slc: Option<Slc>,
    /// `None` if the firmware has no TRIM.
    pub trim: Option<Trim>,
}

#[derive(Debug, Serialize)]
pub struct Firmware {
    pub version: String,
    /// `None` if the profile does not describe it.
    pub description: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Slc {
    pub static_bytes: u64,
    /// Share of the free space that may serve as SLC cache too.
    pub dynamic_percent: u32,
    /// The most that this part holds; `None` if only the free space limits it.
    pub dynamic_max_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct Trim {
    /// If false, a TRIM runs alone.
    pub queued: bool,
    /// Acknowledged at once and carried out later.
    pub background: bool,
    pub time_4kib_ns: u64,
    /// Time to trim 1 GiB of data, in as few commands as possible.
    pub time_1gib_ns: u64,
    /// Result of reading a trimmed unit: `zeros`, `old` or `undefined`.
    pub read_after: &'static str,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Dotted name that ends in the unit.
    pub setting: String,
    pub value: SettingValue,
    /// `None` if the profile names none.
    pub source: Option<String>,
    /// Whether the firmware variant sets it.
    pub by_firmware: bool,
}

/// What is public about the drives that report a model.
#[derive(Debug, Serialize)]
pub struct KnownModel {
    pub trimwise: &'static str,
    /// The model as given.
    pub model: String,
    pub facts: &'static Model,
    /// The profile that stands in for such a drive, or two if that depends on its size; empty if none can.
    pub stand_ins: Vec<InItsPlace>,
    /// Why no profile can stand in.
    pub why_none: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct InItsPlace {
    pub profile: String,
    pub why: String,
}

/// Published measurements.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub trimwise: &'static str,
    pub measurements: Vec<Published>,
    /// What was measured in each class, of the measurements above.
    pub summary: Vec<Summary>,
}

#[derive(Debug, Serialize)]
pub struct Published {
    pub class: Class,
    /// True if the source does not name the drive.
    pub unnamed: bool,
    #[serde(flatten)]
    pub measurement: Measurement,
}

impl Essentials {
    fn of(profile: &Profile) -> Self {
        let config = &profile.config;
        let geometry = &config.geometry;
        let physical_bytes = config.physical_bytes().unwrap_or(config.capacity_bytes);
        let spare = physical_bytes.saturating_sub(config.capacity_bytes);
        let superblock_bytes = u64::from(geometry.superblock_planes)
            * u64::from(geometry.pages_per_block)
            * u64::from(geometry.page_bytes);
        let slc = config.slc.as_ref().map(|slc| {
            let holds =
                |superblocks: u32| u64::from(superblocks) * superblock_bytes / u64::from(slc.bits_per_cell);
            Slc {
                static_bytes: holds(slc.static_superblocks),
                dynamic_percent: slc.dynamic_percent,
                dynamic_max_bytes: slc.dynamic_superblocks_max.map(holds),
            }
        });
        let variants = profile.firmware_variants.iter();
        Self {
            name: profile.name.clone(),
            description: profile.description.clone(),
            firmware: profile.firmware.clone(),
            firmware_variants: variants
                .map(|v| Firmware { version: v.version.clone(), description: v.description.clone() })
                .collect(),
            faulty: !profile.faults.is_sound(),
            capacity_bytes: config.capacity_bytes,
            physical_bytes,
            over_provisioning_percent: spare as f64 / config.capacity_bytes as f64 * 100.0,
            link: match config.link.kind {
                LinkKind::Sata => "sata",
                LinkKind::Nvme => "nvme",
                LinkKind::Ufs => "ufs",
            },
            link_bytes_per_s: config.link.bytes_per_s,
            mapping: config.mapping.kind(),
            map_cache_bytes: config.mapping.map_cache().map(|cache| cache.bytes),
            cache_bytes: config.cache.bytes,
            cache_volatile: config.cache.volatile,
            read_ahead_bytes: config.controller.read_ahead_bytes,
            slc,
            trim: config.trim.is_supported().then(|| Trim::of(&config.trim)),
        }
    }
}

impl Trim {
    fn of(trim: &TrimConfig) -> Self {
        Self {
            queued: trim.is_queued(),
            background: trim.place == TrimPlace::Background,
            time_4kib_ns: trim_ns(trim, 1),
            time_1gib_ns: trim_ns(trim, Bytes::gib(1).0 / UNIT_BYTES),
            read_after: match trim.read_after {
                ReadAfterTrim::Zeros => "zeros",
                ReadAfterTrim::Old => "old",
                ReadAfterTrim::Undefined => "undefined",
            },
        }
    }
}

/// Time to trim `units` consecutive units that hold data, in as few commands as possible.
fn trim_ns(trim: &TrimConfig, units: u64) -> u64 {
    let ranges = units.div_ceil(u64::from(trim.max_units_per_range.max(1)));
    let commands = ranges.div_ceil(u64::from(trim.max_ranges.max(1)));
    let per_unit = trim.cost_per_unit_ns.saturating_add(trim.cost_per_mapped_unit_ns);
    let costs = [(commands, trim.cost_per_command_ns), (ranges, trim.cost_per_range_ns), (units, per_unit)];
    costs.iter().fold(0, |sum: u64, (n, ns)| sum.saturating_add(n.saturating_mul(*ns)))
}

fn settings(profile: &Profile) -> Vec<Setting> {
    let setting = |s: &trimwise::profile::Setting| Setting {
        setting: s.name.clone(),
        value: s.value.clone(),
        source: profile.source(&s.name).map(str::to_owned),
        by_firmware: s.by_firmware,
    };
    profile.settings.iter().map(setting).collect()
}

pub fn all() -> Devices {
    let profiles = Profile::embedded_names().filter_map(Profile::embedded);
    Devices {
        trimwise: trimwise::VERSION,
        devices: profiles.map(|profile| Essentials::of(&profile)).collect(),
    }
}

/// Looks up what is public about a model; `None` for a profile, a file, or an unknown model.
pub fn known_model(argument: &str) -> Option<KnownModel> {
    let is_profile = Profile::embedded(argument).is_some() || Path::new(argument).exists();
    let facts = models::known(argument).filter(|_| !is_profile)?;
    let chosen = profiles_for_model(argument, facts);
    let why_none = chosen.as_ref().err().copied();
    let stand_ins = chosen.unwrap_or_default().into_iter();
    Some(KnownModel {
        trimwise: trimwise::VERSION,
        model: argument.to_owned(),
        facts,
        stand_ins: stand_ins.map(|one| InItsPlace { profile: one.profile, why: one.why }).collect(),
        why_none,
    })
}

/// Returns the published measurements of drives whose name has the pattern in it. `*` stands for any text; capitals do
/// not count.
///
/// # Errors
/// If there are none.
pub fn measured(pattern: Option<&str>) -> Result<Measured, Failure> {
    let mut measurements = measured::all();
    if let Some(pattern) = pattern {
        let wanted = format!("*{}*", pattern.to_lowercase());
        measurements.retain(|one| matches(&wanted, &one.drive.to_lowercase()));
        if measurements.is_empty() {
            let of =
                Mistake::of("measured", pattern).because("no drive of the register has this in its name");
            return Err(of.expected("a part of a name that `trimwise devices --measured` shows").fail());
        }
    }
    let summary = measured::summary(&measurements);
    let published = |measurement: Measurement| Published {
        class: measurement.class(),
        unnamed: measurement.is_unnamed(),
        measurement,
    };
    let measurements = measurements.into_iter().map(published).collect();
    Ok(Measured { trimwise: trimwise::VERSION, measurements, summary })
}

/// Looks up a profile by its name or file.
pub fn one(argument: &str) -> Result<Device, Failure> {
    let what = format!("a profile (TOML) or a model of {}", models::FILE);
    let profile = profile_or(argument, failure::argument("profile"), &what)?;
    let (device, settings) = (Essentials::of(&profile), settings(&profile));
    Ok(Device { trimwise: trimwise::VERSION, device, settings, ranges: profile.ranges() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_the_list_is_shown_unless_a_profile_or_a_file_has_its_name() {
        let p1 = known_model("CT1000P1SSD8").unwrap();
        assert_eq!((p1.facts.family.as_str(), p1.stand_ins[0].profile.as_str()), ("P1", "nvme-512gb-qlc"));
        let optane = known_model("INTEL MEMPEK1J032GA").unwrap();
        assert_eq!((optane.stand_ins.len(), optane.why_none.is_some()), (0, true));
        for other in ["nvme-generic", "vertex-60gb@1.41", "ST2000DM008", "/"] {
            assert!(known_model(other).is_none(), "{other}");
        }
        let refused = one("ST2000DM008").unwrap_err().to_string();
        assert!(refused.contains("a model of profiles/models.toml, or one of sata-small"), "{refused}");
    }

    #[test]
    fn measurements_are_found_by_a_part_of_the_drives_name() {
        let count = |pattern| measured(pattern).map(|found| found.measurements.len());
        assert_eq!(count(None).unwrap(), 193);
        assert_eq!(count(Some("crucial p1")).unwrap(), 7);
        assert_eq!(count(Some("970*plus")).unwrap(), 1);
        let refused = count(Some("9999")).unwrap_err().to_string();
        assert!(refused.starts_with("--measured 9999: no drive of the register"), "{refused}");
        let unnamed = measured(Some("fio issue 764")).unwrap().measurements.remove(0);
        assert_eq!((unnamed.unnamed, unnamed.class), (true, Class::NvmeUnknown));
    }

    #[test]
    fn the_time_of_a_trim_counts_commands_ranges_and_units() {
        let trim = |name: &str| Trim::of(&Profile::embedded(name).unwrap().config.trim);
        // 262,144 units in ranges of 8,191 make 33 ranges, in one command: 2 ms plus 33 times 20 us.
        let vertex = trim("vertex-60gb");
        assert_eq!((vertex.time_4kib_ns, vertex.time_1gib_ns), (2_020_000, 2_660_000));
        assert!(!vertex.queued && !vertex.background);
        // One range costs a range's time plus four nanoseconds per unit.
        let dramless = trim("nvme-500gb-dramless");
        assert_eq!((dramless.time_4kib_ns, dramless.time_1gib_ns), (162_004, 162_000 + 4 * 262_144));
        assert!(dramless.queued && !dramless.background);
    }
}
