//! What is published about real drives: facts by model ([`models`]), and measurements ([`measured`]).
//!
//! Both are TOML files below `profiles/` with one table for each entry, built in as text and parsed only when they are
//! asked for. An entry without a source is refused, and the error names file, line and entry.

pub mod dirty;
pub mod measured;
pub mod models;
pub mod spare;
pub mod wildcard;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::profile::ProfileError;

/// What connects a drive to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    Nvme,
    Sata,
    Sas,
    Ufs,
    Emmc,
    Usb,
}

impl Link {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvme => "NVMe",
            Self::Sata => "SATA",
            Self::Sas => "SAS",
            Self::Ufs => "UFS",
            Self::Emmc => "eMMC",
            Self::Usb => "USB",
        }
    }
}

/// Flash by bits a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flash {
    Slc,
    Mlc,
    Tlc,
    Qlc,
    /// No flash, and nothing to erase before a write.
    Optane,
}

impl Flash {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slc => "SLC",
            Self::Mlc => "MLC",
            Self::Tlc => "TLC",
            Self::Qlc => "QLC",
            Self::Optane => "Optane",
        }
    }
}

/// Where a drive keeps its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapPlace {
    /// In DRAM on the drive.
    Dram,
    /// Partly in the host's memory (HMB).
    Hmb,
    /// In the controller's own memory and the flash.
    None,
}

impl MapPlace {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Dram => "with DRAM",
            Self::Hmb => "without DRAM, with its map in the host's memory (HMB)",
            Self::None => "without DRAM",
        }
    }
}

/// An entry of a file.
pub(crate) trait Entry: DeserializeOwned {
    /// Key of the array that the entries are tables of.
    const KEY: &'static str;
    /// The key that names an entry in errors.
    const NAMED_BY: &'static str;

    /// Returns what is wrong with it: the setting, its value, and what is accepted.
    fn check(&self) -> Result<(), String>;
}

/// Reads all entries of a file; `file` is used only in messages.
pub(crate) fn entries<T: Entry>(text: &str, file: &str) -> Result<Vec<T>, ProfileError> {
    let refuse = |at: usize, message: String| {
        let line = text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        ProfileError { file: file.to_owned(), line, setting: None, message }
    };
    let of_toml = |error: &toml::de::Error| error.message().lines().collect::<Vec<_>>().join("; ");
    let document = DeTable::parse(text)
        .map_err(|error| refuse(error.span().map_or(0, |span| span.start), of_toml(&error)))?;
    let mut all = Vec::new();
    for (key, value) in document.into_inner() {
        let at = value.span().start;
        let DeValue::Array(tables) = value.into_inner() else {
            return Err(refuse(at, format!("{} is unknown; expected tables [[{}]]", key.get_ref(), T::KEY)));
        };
        if *key.get_ref() != T::KEY {
            return Err(refuse(
                key.span().start,
                format!("{} is unknown; expected [[{}]]", key.get_ref(), T::KEY),
            ));
        }
        for (number, table) in tables.into_iter().enumerate() {
            let at = table.span().start;
            let name = format!("{} {}{}", T::KEY, number + 1, named(&table, T::NAMED_BY));
            let entry = T::deserialize(ValueDeserializer::from(table))
                .map_err(|error| of_toml(&error))
                .and_then(|entry| entry.check().map(|()| entry));
            all.push(entry.map_err(|why| refuse(at, format!("{name}: {why}")))?);
        }
    }
    Ok(all)
}

/// Returns the name of an entry in parentheses, if it has one.
fn named(table: &Spanned<DeValue>, key: &str) -> String {
    let name = table.get_ref().get(key).and_then(|name| name.get_ref().as_str());
    name.map_or_else(String::new, |name| format!(" ({name})"))
}

/// Refuses a text that is missing or blank.
pub(crate) fn some_text(key: &str, text: &str) -> Result<(), String> {
    match text.trim().is_empty() {
        true => Err(format!("{key} = {text:?} is not accepted; expected a text")),
        false => Ok(()),
    }
}

/// Refuses a number that is not finite, or below zero.
fn not_negative(key: &str, number: f64) -> Result<(), String> {
    match number.is_finite() && number >= 0.0 {
        true => Ok(()),
        false => Err(format!("{key} = {number} is not accepted; expected a number of at least 0")),
    }
}
