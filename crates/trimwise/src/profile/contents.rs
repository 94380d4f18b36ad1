//! Contents of a profile, in the form that serde reads.

use std::collections::BTreeMap;

use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

use super::reader::Found;
use crate::ssd::{Faults, SsdConfig};

/// A whole file, or a file with one firmware variant applied.
#[derive(Deserialize)]
pub(crate) struct Contents {
    #[serde(deserialize_with = "printable")]
    pub name: String,
    pub description: String,
    #[serde(rename = "")]
    pub config: SsdConfig,
    #[serde(default)]
    pub faults: Faults,
    pub sources: BTreeMap<String, String>,
    #[serde(default)]
    pub models: Vec<String>,
    #[serde(default, rename = "firmware")]
    _firmware: BTreeMap<String, IgnoredAny>,
}

impl Contents {
    /// Returns the first missing setting among those that only a device without TRIM may omit.
    pub fn missing(&self, root: &Found) -> Option<String> {
        const ALWAYS: usize = 1;
        const SETTINGS: [&str; 10] = [
            "kind",
            "max_ranges",
            "max_units_per_range",
            "granularity_units",
            "cost_per_command_ns",
            "cost_per_range_ns",
            "cost_per_unit_ns",
            "place",
            "slowdown_percent",
            "read_after",
        ];
        let needed = if self.config.trim.is_supported() { SETTINGS.len() } else { ALWAYS };
        let trim = root.get("trim");
        let missing = SETTINGS[..needed].iter().find(|key| trim.get(key).value().is_none());
        missing.map(|key| format!("trim.{key}"))
    }
}

/// Reads a text for tables and file names: it must not move the cursor of a terminal.
fn printable<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    match text.chars().any(char::is_control) {
        true => Err(D::Error::custom("text without control characters")),
        false => Ok(text),
    }
}
