//! Writes the fitted profile as a file.

use std::fmt::Write as _;

use trimwise::profile::{Profile, SettingValue};
use trimwise::ssd::SsdConfig;

use super::{Fit, Measured, Prediction};

/// Writes the base's settings, with the fitted ones in their place, each with its source.
pub(super) fn toml(
    name: &str,
    measured: &Measured,
    base: &Profile,
    config: &SsdConfig,
    fits: &[Fit],
    predictions: &[Prediction],
    warnings: &[String],
) -> String {
    let mut settings: Vec<(String, SettingValue, String)> = Vec::new();
    for setting in &base.settings {
        let own = base.source(&setting.name).map_or(String::new(), |source| format!(": {source}"));
        // A base may itself be fitted. Its notes must not make these settings look fitted.
        let source = format!("taken from {}{own}", base.name);
        settings.push((setting.name.clone(), setting.value.clone(), source));
    }
    for fit in fits {
        set(&mut settings, fit.setting, fit.value.clone(), said(fit));
    }
    // Settings that follow from the fitted ones.
    let whole = |value: u64| SettingValue::Whole(value);
    let g = &config.geometry;
    for (setting, value) in [
        ("capacity_bytes", Some(config.capacity_bytes)),
        ("geometry.channels", Some(g.channels.into())),
        ("geometry.dies_per_channel", Some(g.dies_per_channel.into())),
        ("geometry.planes_per_die", Some(g.planes_per_die.into())),
        ("geometry.superblock_planes", Some(g.superblock_planes.into())),
        ("geometry.pages_per_block", Some(g.pages_per_block.into())),
        ("geometry.page_bytes", Some(g.page_bytes.into())),
        ("nand.t_prog_ns", Some(config.nand.t_prog_ns)),
        ("geometry.blocks_per_plane", g.blocks_per_plane.map(u64::from)),
        ("slc.static_superblocks", config.slc.as_ref().map(|slc| slc.static_superblocks.into())),
        (
            "slc.dynamic_superblocks_max",
            config.slc.as_ref().and_then(|slc| slc.dynamic_superblocks_max).map(u64::from),
        ),
        ("cache.bytes", Some(config.cache.bytes)),
        ("trim.cost_per_command_ns", Some(config.trim.cost_per_command_ns)),
        ("trim.cost_per_range_ns", Some(config.trim.cost_per_range_ns)),
        ("trim.cost_per_unit_ns", Some(config.trim.cost_per_unit_ns)),
        ("trim.cost_per_mapped_unit_ns", Some(config.trim.cost_per_mapped_unit_ns)),
        ("trim.latency_per_command_ns", Some(config.trim.latency_per_command_ns)),
        ("trim.slowdown_percent", Some(config.trim.slowdown_percent.into())),
    ] {
        let Some(value) = value.map(whole) else { continue };
        let old = settings.iter().find(|(name, ..)| name == setting);
        if old.is_some_and(|(_, old, _)| *old != value) {
            let source = match setting {
                "capacity_bytes" => "fitted: the size that the drive reports".to_owned(),
                _ => format!("follows from fitted settings and {}", base.name),
            };
            set(&mut settings, setting, value, source);
        }
    }
    if config.controller.write_bytes_per_s.is_none() {
        settings.retain(|(name, ..)| name != "controller.write_bytes_per_s");
    }
    if !config.trim.is_supported() {
        settings.retain(|(name, ..)| !name.starts_with("trim.") || name == "trim.kind");
    }
    if config.over_provisioning_percent.is_some() && g.blocks_per_plane.is_some() {
        settings.retain(|(name, ..)| name != "over_provisioning_percent");
    }
    let mut text = format!("# Fitted to {} by trimwise {}.\n", measured.device, trimwise::VERSION);
    for p in predictions {
        let _ = writeln!(
            text,
            "# Held back, {}: measured {:.0}/s, predicted {:.0}/s ({:+.1} %).",
            p.test, p.measured_per_s, p.predicted_per_s, p.error_percent
        );
    }
    for warning in warnings {
        let _ = writeln!(text, "# Warning: {warning}.");
    }
    let description = format!("Fitted to {}; the rest comes from {}", measured.device, base.name);
    let _ = writeln!(text, "\nname = {}\ndescription = {}", quoted(name), quoted(&description));
    if let Some(model) = &measured.drive_model {
        let _ = writeln!(text, "models = [{}]", quoted(model));
    }
    let mut table = "";
    for (name, value, _) in &settings {
        let (of, key) = name.rsplit_once('.').unwrap_or(("", name));
        if of != table {
            let _ = writeln!(text, "\n[{of}]");
            table = of;
        }
        let _ = match value {
            SettingValue::Whole(value) => writeln!(text, "{key} = {value}"),
            SettingValue::Percent(value) => writeln!(text, "{key} = {value}"),
            SettingValue::Flag(value) => writeln!(text, "{key} = {value}"),
            SettingValue::Word(value) => writeln!(text, "{key} = {}", quoted(value)),
        };
    }
    text += "\n[sources]\n";
    for (name, _, source) in &settings {
        let _ = writeln!(text, "{} = {}", quoted(name), quoted(source));
    }
    text
}

/// Returns the drive with another capacity and the same share of spare space; `None` if there is no such drive.
pub(super) fn of_size(config: &SsdConfig, bytes: u64) -> Option<SsdConfig> {
    let mut new = config.clone();
    let scaled = |blocks: u32| {
        let blocks =
            (u128::from(blocks) * u128::from(bytes)).div_ceil(u128::from(config.capacity_bytes.max(1)));
        u32::try_from(blocks).ok()
    };
    new.capacity_bytes = bytes / trimwise::units::UNIT_BYTES * trimwise::units::UNIT_BYTES;
    if let Some(blocks) = config.geometry.blocks_per_plane {
        new.geometry.blocks_per_plane = Some(scaled(blocks)?);
        new.over_provisioning_percent = None;
    }
    if let Some(slc) = &mut new.slc {
        slc.static_superblocks = scaled(slc.static_superblocks)?;
        if let Some(most) = &mut slc.dynamic_superblocks_max {
            *most = scaled(*most)?;
        }
    }
    new.validate().ok().map(|()| new)
}

/// Replaces a value, or adds it at the end of its table.
fn set(settings: &mut Vec<(String, SettingValue, String)>, name: &str, value: SettingValue, source: String) {
    if let Some(old) = settings.iter_mut().find(|(old, ..)| old == name) {
        (old.1, old.2) = (value, source);
        return;
    }
    let table = name.rsplit_once('.').map_or("", |(table, _)| table);
    let in_table = |known: &str| known.rsplit_once('.').map_or("", |(table, _)| table) == table;
    let at = settings.iter().rposition(|(known, ..)| in_table(known)).map_or(settings.len(), |at| at + 1);
    settings.insert(at, (name.to_owned(), value, source));
}

fn said(fit: &Fit) -> String {
    let Fit { value, interval, samples, how, .. } = fit;
    let value = match value {
        SettingValue::Whole(value) => value.to_string(),
        SettingValue::Percent(value) => value.to_string(),
        SettingValue::Flag(value) => value.to_string(),
        SettingValue::Word(value) => value.clone(),
    };
    let plural = if *samples == 1 { "" } else { "s" };
    match interval {
        Some((low, high)) => format!("fitted: {how}{value} [{low}, {high}] 95 %, {samples} sample{plural}"),
        None => format!("fitted: {how}{value}, {samples} sample{plural}"),
    }
}

/// Quotes a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
