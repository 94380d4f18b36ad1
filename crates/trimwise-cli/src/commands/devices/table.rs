//! The text of `devices`.

use trimwise::profile::SettingValue;
use trimwise::units::Bytes;
use trimwise_study::devices::{Essentials, Setting, Slc, Trim};

use crate::figures::{NONE, grouped, time};
use crate::table::{bold, folded, laid_out, laid_out_with};

const HEADER: [&str; 9] = ["device", "capacity", "link", "mapping", "OP", "cache", "SLC", "TRIM", "1 GiB"];

const NOTES: [&str; 4] = [
    "OP: flash beyond the capacity. Cache: for writes; *: survives a power cut. Mapping: +cache if only parts of \
     the map are in memory.",
    "SLC: capacity of the fixed part, and the share of the free space that may be used as well.",
    "TRIM: alone or queued with other commands; the device's time for 1 GiB that holds data; bg: in the background.",
    "To see one in full, with the source of each number: trimwise devices NAME, or NAME@VERSION for a firmware.",
];

/// Renders all profiles: a row of figures and a description for each.
pub fn list(devices: &[Essentials]) -> String {
    let rows: Vec<Vec<String>> = devices.iter().map(row).collect();
    let descriptions: Vec<String> = devices.iter().map(what).collect();
    let mut text = laid_out_with(&HEADER, &rows, &descriptions);
    text.push('\n');
    text.extend(NOTES.iter().map(|note| folded(note, 0)));
    text
}

/// Renders one profile: all its settings with their sources.
pub fn full(device: &Essentials, settings: &[Setting]) -> String {
    let mut text = folded(&format!("{}: {}", device.name, device.description), 0);
    for firmware in &device.firmware_variants {
        let this = if device.firmware.as_ref() == Some(&firmware.version) { " (this one)" } else { "" };
        let what = firmware.description.as_deref().unwrap_or("not described");
        text += &folded(&format!("firmware {}{this}: {what}", firmware.version), 4);
    }
    if device.faulty {
        text += &folded("Its firmware is deliberately faulty: see faults below.", 4);
    }
    text.push('\n');
    text += &laid_out(&HEADER, &[row(device)]);
    text += "\n";
    text += &bold("Settings and their sources");
    text += "\n\n";
    // Neighbouring settings with the same source are listed under it together.
    for group in settings.chunk_by(|a, b| a.source == b.source && a.by_firmware == b.by_firmware) {
        let values: Vec<String> = group.iter().map(|setting| one(setting, device)).collect();
        text += &folded(&values.join(", "), 0);
        text += &folded(group[0].source.as_deref().unwrap_or("no source given"), 4);
    }
    text
}

fn one(setting: &Setting, device: &Essentials) -> String {
    let value = match &setting.value {
        SettingValue::Whole(number) => grouped(*number),
        SettingValue::Percent(percent) => percent.to_string(),
        SettingValue::Flag(flag) => flag.to_string(),
        SettingValue::Word(word) => word.clone(),
    };
    let firmware = match &device.firmware {
        Some(version) if setting.by_firmware => format!(" (firmware {version})"),
        _ => String::new(),
    };
    format!("{} = {value}{firmware}", setting.setting)
}

/// Describes the device and lists its firmwares.
fn what(device: &Essentials) -> String {
    let versions: Vec<&str> = device.firmware_variants.iter().map(|v| v.version.as_str()).collect();
    let firmwares = match versions.join(", ") {
        none if none.is_empty() => none,
        versions => format!("; firmware {versions}"),
    };
    format!("{}{firmwares}", device.description)
}

fn row(device: &Essentials) -> Vec<String> {
    let cached = if device.map_cache_bytes.is_some() { "+cache" } else { "" };
    let cache = match device.cache_bytes {
        0 => NONE.to_owned(),
        bytes => format!("{}{}", Bytes(bytes), if device.cache_volatile { "" } else { "*" }),
    };
    let trim = device.trim.as_ref();
    vec![
        device.name.clone(),
        decimal(device.capacity_bytes),
        device.link.to_uppercase().replace("NVME", "NVMe"),
        format!("{}{cached}", device.mapping),
        format!("{:.0} %", device.over_provisioning_percent),
        cache,
        device.slc.as_ref().map_or_else(|| NONE.to_owned(), slc),
        trim.map_or("none", |t| if t.queued { "queued" } else { "alone" }).to_owned(),
        trim.map_or_else(|| NONE.to_owned(), trim_time),
    ]
}

fn slc(slc: &Slc) -> String {
    match (slc.static_bytes, slc.dynamic_percent) {
        (0, percent) => format!("{percent} %"),
        (bytes, 0) => decimal(bytes),
        (bytes, percent) => format!("{}+{percent} %", decimal(bytes)),
    }
}

fn trim_time(trim: &Trim) -> String {
    let background = if trim.background { " bg" } else { "" };
    format!("{}{background}", time(trim.time_1gib_ns as f64 / 1e9))
}

/// Formats a capacity as on a drive's label: in powers of 1,000.
fn decimal(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 999.5e9 => format!("{:.2} TB", b / 1e12),
        b if b >= 99.95e9 => format!("{:.0} GB", b / 1e9),
        b => format!("{:.1} GB", b / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_said_as_drives_are_sold() {
        assert_eq!(decimal(1_000_204_886_016), "1.00 TB");
        assert_eq!(decimal(999_999_999_999), "1.00 TB");
        assert_eq!(decimal(240_057_409_536), "240 GB");
        assert_eq!(decimal(64_023_257_088), "64.0 GB");
    }
}
