//! Contents of a profile, in the form that serde reads.

use std::collections::BTreeMap;

use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

use super::ranges::OwnRange;
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
    pub ranges: BTreeMap<String, OwnRange>,
    #[serde(default)]
    pub models: Vec<String>,
    #[serde(default, rename = "firmware")]
    _firmware: BTreeMap<String, IgnoredAny>,
}

/// Reads a text for tables and file names: it must not move the cursor of a terminal.
fn printable<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    match text.chars().any(char::is_control) {
        true => Err(D::Error::custom("text without control characters")),
        false => Ok(text),
    }
}
