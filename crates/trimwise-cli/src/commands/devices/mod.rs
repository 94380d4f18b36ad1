//! `trimwise devices`: the built-in profiles, and one profile in full.

pub mod arguments;
pub mod table;

use serde::Serialize;
use trimwise::profile::{Profile, SettingValue};
use trimwise::ssd::{LinkKind, ReadAfterTrim, TrimConfig, TrimPlace};
use trimwise::units::{Bytes, UNIT_BYTES};
use trimwise_lab::failure::Failure;

use crate::commands::devices::arguments::DevicesArguments;
use crate::output::Destinations;
use trimwise_study::input::{as_argument, profile};

/// All profiles, as `--json` writes them.
#[derive(Debug, Serialize)]
struct Devices {
    /// The version of trimwise.
    trimwise: &'static str,
    devices: Vec<Essentials>,
}

/// One profile in full, as `--json` writes it.
#[derive(Debug, Serialize)]
struct Device<'a> {
    /// The version of trimwise.
    trimwise: &'static str,
    device: &'a Essentials,
    settings: &'a [Setting],
}

/// The most important facts about a device.
#[derive(Debug, Serialize)]
pub struct Essentials {
    pub name: String,
    pub description: String,
    /// The firmware variant shown; `None` for the profile as it is.
    pub firmware: Option<String>,
    pub firmware_variants: Vec<Firmware>,
    /// Whether its firmware is deliberately faulty.
    pub faulty: bool,
    pub capacity_bytes: u64,
    /// The flash that the device may use.
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
    /// Whether a power cut loses the cache.
    pub cache_volatile: bool,
    pub read_ahead_bytes: u64,
    pub slc: Option<Slc>,
    /// `None` if the firmware has no TRIM.
    pub trim: Option<Trim>,
}

/// A firmware variant of a profile.
#[derive(Debug, Serialize)]
pub struct Firmware {
    pub version: String,
    pub description: Option<String>,
}

/// An SLC cache.
#[derive(Debug, Serialize)]
pub struct Slc {
    /// Capacity of its fixed part.
    pub static_bytes: u64,
    /// Share of the free space that may be used as well.
    pub dynamic_percent: u32,
}

/// How a device handles TRIM.
#[derive(Debug, Serialize)]
pub struct Trim {
    /// Whether it can be queued; otherwise it runs alone.
    pub queued: bool,
    /// Whether it is acknowledged at once and carried out later.
    pub background: bool,
    /// The device's time to trim this much data, in as few commands as possible.
    pub time_4kib_ns: u64,
    pub time_1gib_ns: u64,
    /// What a read of a trimmed unit returns: `zeros`, `old` or `undefined`.
    pub read_after: &'static str,
}

/// A number or a word of a profile.
#[derive(Debug, PartialEq, Serialize)]
pub struct Setting {
    pub setting: String,
    pub value: SettingValue,
    /// `None` if the profile names none.
    pub source: Option<String>,
    /// Whether the firmware variant sets it.
    pub by_firmware: bool,
}

impl Essentials {
    fn of(profile: &Profile) -> Self {
        let config = &profile.config;
        let geometry = &config.geometry;
        // A profile is checked when it is read.
        let physical_bytes = config.physical_bytes().unwrap_or(config.capacity_bytes);
        let spare = physical_bytes.saturating_sub(config.capacity_bytes);
        let superblock_bytes = u64::from(geometry.superblock_planes)
            * u64::from(geometry.pages_per_block)
            * u64::from(geometry.page_bytes);
        let slc = config.slc.as_ref().map(|slc| Slc {
            static_bytes: u64::from(slc.static_superblocks) * superblock_bytes / u64::from(slc.bits_per_cell),
            dynamic_percent: slc.dynamic_percent,
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

/// Returns the device's time to trim `units` consecutive units that hold data, in as few commands as possible.
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

/// Runs the command and returns what to print.
pub fn run(arguments: &DevicesArguments) -> Result<String, Failure> {
    let DevicesArguments { device, json } = arguments;
    let destinations = Destinations::check_json(json)?;
    match device {
        None => {
            let devices: Vec<Essentials> = Profile::embedded_names()
                .filter_map(Profile::embedded)
                .map(|profile| Essentials::of(&profile))
                .collect();
            let document = Devices { trimwise: trimwise::VERSION, devices };
            destinations.deliver(&document, || table::list(&document.devices))
        }
        Some(argument) => {
            let profile = profile(argument, "device").map_err(as_argument)?;
            let (device, settings) = (Essentials::of(&profile), settings(&profile));
            let document = Device { trimwise: trimwise::VERSION, device: &device, settings: &settings };
            destinations.deliver(&document, || table::full(&device, &settings))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::JsonArguments;

    fn text(device: Option<&str>) -> String {
        run(&DevicesArguments { device: device.map(str::to_owned), json: JsonArguments::default() }).unwrap()
    }

    #[test]
    fn the_list_fits_and_names_every_profile_and_every_firmware() {
        let list = text(None);
        assert!(list.lines().all(|line| line.chars().count() <= 100), "{list}");
        for name in Profile::embedded_names() {
            let profile = Profile::embedded(name).unwrap();
            let at = list.lines().position(|line| line.split_whitespace().next() == Some(name));
            let at = at.unwrap_or_else(|| panic!("{name} is not in\n{list}"));
            let below: String = list.lines().skip(at + 1).take(3).collect::<Vec<_>>().join(" ");
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(&below).contains(&words(&profile.description)), "{name}: {below}");
            for firmware in &profile.firmware_variants {
                assert!(below.contains(&firmware.version), "{name}: {below}");
            }
        }
    }

    #[test]
    fn every_profile_is_shown_in_full_with_its_sources() {
        for name in Profile::embedded_names() {
            let profile = Profile::embedded(name).unwrap();
            let variants = profile.firmware_variants.iter().map(|v| profile.name_with(&v.version));
            for name in std::iter::once(name.to_owned()).chain(variants) {
                let full = text(Some(&name));
                // Only a word that is longer than a line may be.
                assert!(full.lines().all(|line| line.chars().count() <= 100), "{full}");
                assert!(full.starts_with(&format!("{name}: ")), "{full}");
                let profile = Profile::embedded(&name).unwrap();
                let all: String = full.split_whitespace().collect::<Vec<_>>().join(" ");
                for setting in &profile.settings {
                    assert!(all.contains(&format!("{} = ", setting.name)), "{name}: {}", setting.name);
                    let source = profile.source(&setting.name).unwrap();
                    assert!(
                        all.contains(&source.split_whitespace().collect::<Vec<_>>().join(" ")),
                        "{source}"
                    );
                }
            }
        }
        let variant = text(Some("vertex-60gb@1.41"));
        assert!(variant.contains("trim.kind = unsupported (firmware 1.41)"), "{variant}");
    }

    #[test]
    fn the_time_of_a_trim_counts_commands_ranges_and_units() {
        let trim = |name: &str| Trim::of(&Profile::embedded(name).unwrap().config.trim);
        // 262,144 units in ranges of 8,191 make 33 ranges, in one command: 2 ms plus 33 times 20 us.
        let vertex = trim("vertex-60gb");
        assert_eq!((vertex.time_4kib_ns, vertex.time_1gib_ns), (2_020_000, 2_660_000));
        assert!(!vertex.queued && !vertex.background);
        // One range costs a range's time plus a nanosecond per unit.
        let dramless = trim("nvme-500gb-dramless");
        assert_eq!((dramless.time_4kib_ns, dramless.time_1gib_ns), (32_001, 32_000 + 262_144));
        assert!(dramless.queued && dramless.background);
    }

    #[test]
    fn the_json_has_units_in_its_keys_and_the_source_of_each_number() {
        let dir = tempfile::tempdir().unwrap();
        let json = |device: Option<&str>, name: &str| -> serde_json::Value {
            let path = dir.path().join(name);
            let device = device.map(str::to_owned);
            run(&DevicesArguments { device, json: JsonArguments { json: Some(path.clone()), force: false } })
                .unwrap();
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
        };
        let list = json(None, "list");
        assert_eq!(list["devices"].as_array().unwrap().len(), Profile::embedded_names().count());
        let one = json(Some("vertex-60gb@1.3"), "one");
        assert_eq!(one["device"]["capacity_bytes"], 64_023_257_088_u64);
        assert_eq!(one["device"]["firmware"], "1.3");
        assert_eq!(one["device"]["firmware_variants"][0]["version"], "1.3");
        assert!(one["device"]["trim"].is_null() && one["device"]["slc"].is_null());
        let setting = |name: &str| {
            let settings = one["settings"].as_array().unwrap();
            settings.iter().find(|s| s["setting"] == name).unwrap().clone()
        };
        let prog = setting("nand.t_prog_ns");
        assert_eq!((&prog["value"], &prog["by_firmware"]), (&800_000.into(), &false.into()));
        assert!(prog["source"].as_str().unwrap().contains("K9GAG08U0M"));
        let idle = setting("gc.idle");
        assert_eq!((&idle["value"], &idle["by_firmware"]), (&false.into(), &true.into()));
    }
}
