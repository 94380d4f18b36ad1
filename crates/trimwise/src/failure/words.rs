//! Messages that name fields of a request, which each interface spells in its own way.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The interface through which a request came, which decides how its fields are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The command line: `--max-wall 0`.
    Command,
    /// A grid or a tournament's rules (TOML): `utilizations_percent: 101`.
    Grid,
    /// A request as JSON: `max_wall_s: 0`.
    Json,
    /// Python: `memory_mib=0`.
    Python,
}

/// A field of a request, by its name in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    name: Cow<'static, str>,
    /// True for a positional argument on the command line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_argument: bool,
}

/// Fields whose spelling follows no rule: in JSON, on the command line, in a grid, in Python.
const SPELLINGS: [[&str; 4]; 9] = [
    ["devices", "device", "devices", "devices"],
    ["is_dry", "dry-run", "is_dry", "is_dry"],
    ["memory", "memory", "memory_mib", "memory_mib"],
    ["policies", "policy", "policies", "policies"],
    ["replace", "force", "replace", "replace"],
    ["replaces", "anew", "replaces", "replaces"],
    ["seed", "seed", "seeds", "seed"],
    ["utilization", "utilization", "utilizations_percent", "utilization_percent"],
    ["workload", "workload", "workloads", "workload"],
];

/// Suffixes that give the unit of a field. Options have none: their help names the unit.
const UNITS: [&str; 5] = ["_s", "_ms", "_min", "_mib", "_percent"];

/// Makes the key of a field that is an option on the command line.
pub const fn key(name: &'static str) -> Key {
    Key { name: Cow::Borrowed(name), is_argument: false }
}

/// Makes the key of a field that is a positional argument on the command line, such as the target of `bench`.
pub const fn argument(name: &'static str) -> Key {
    Key { name: Cow::Borrowed(name), is_argument: true }
}

impl From<&'static str> for Key {
    fn from(name: &'static str) -> Self {
        key(name)
    }
}

impl Key {
    /// Makes the key of a field at a path in a document, such as `limits.max_wall_s`.
    pub fn at_path(path: String) -> Self {
        Self { name: Cow::Owned(path), is_argument: false }
    }

    /// Returns the name in JSON.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the same field as a positional argument.
    #[must_use]
    pub fn as_argument(self) -> Self {
        Self { is_argument: true, ..self }
    }
}

/// Fields that a grid can set. The others are options of the command that reads the grid.
const OF_GRIDS: [&str; 10] =
    ["day", "days", "devices", "linux", "memory", "policies", "reps", "seed", "utilization", "workload"];

impl Door {
    /// Returns the door through which a field comes.
    fn of(self, key: &Key) -> Self {
        if self == Self::Grid && !OF_GRIDS.contains(&key.name()) { Self::Command } else { self }
    }

    /// Spells a field.
    pub fn key(self, key: &Key) -> Cow<'_, str> {
        let name = &*key.name;
        let [_, option, in_grid, keyword] =
            SPELLINGS.into_iter().find(|[json, ..]| *json == name).unwrap_or([name; 4]);
        match self.of(key) {
            Self::Command if key.is_argument => Cow::Owned(name.to_uppercase()),
            Self::Command => {
                let option = UNITS.iter().find_map(|unit| option.strip_suffix(unit)).unwrap_or(option);
                Cow::Owned(format!("--{}", option.replace('_', "-")))
            }
            Self::Grid => Cow::Owned(in_grid.to_owned()),
            Self::Json => Cow::Borrowed(name),
            Self::Python => Cow::Owned(keyword.to_owned()),
        }
    }

    /// Spells a field and its value for the start of a message.
    pub(super) fn named(self, key: &Key, value: Option<&str>) -> String {
        // An empty value, as of a shell variable that is not set, would not be seen.
        let value = value.map(|value| if value.is_empty() { "''" } else { value });
        match (self.of(key), value) {
            (Self::Command, Some(value)) if key.is_argument => value.to_owned(),
            (_, None) => self.key(key).into_owned(),
            (Self::Command, Some(value)) => format!("{} {value}", self.key(key)),
            (Self::Grid | Self::Json, Some(value)) => format!("{}: {value}", self.key(key)),
            (Self::Python, Some(value)) => format!("{}={value}", self.key(key)),
        }
    }
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// Text that is the same at every door.
    Text(String),
    Key(Key),
    /// A field and a value for it.
    Set(Key, String),
}

/// A message made of text and fields; [`words!`](crate::words) builds one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Words(Vec<Piece>);

impl Words {
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push(&mut self, more: impl Into<Self>) {
        self.0.extend(more.into().0);
    }

    /// Writes the message, with fields spelled for this door.
    pub fn write(&self, door: Door, f: &mut dyn fmt::Write) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Key(key) => f.write_str(&door.key(key)),
            Piece::Set(key, value) => {
                let equals = match door.of(key) {
                    Door::Command => " ",
                    Door::Grid => " = ",
                    Door::Json => ": ",
                    Door::Python => "=",
                };
                write!(f, "{}{equals}{value}", door.key(key))
            }
        })
    }
}

impl fmt::Display for Words {
    /// Spells fields as on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(Door::Command, f)
    }
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self(vec![Piece::Text(text)])
    }
}

impl From<&str> for Words {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Key> for Words {
    fn from(key: Key) -> Self {
        Self(vec![Piece::Key(key)])
    }
}

/// Names a field and a value for it, as in `expected --days 7`.
pub fn set(key: impl Into<Key>, value: impl fmt::Display) -> Words {
    Words(vec![Piece::Set(key.into(), value.to_string())])
}

/// Builds [`Words`](crate::failure::Words) from text, keys and other words.
#[macro_export]
macro_rules! words {
    ($($piece:expr),+ $(,)?) => {{
        let mut words = $crate::failure::Words::default();
        $(words.push($piece);)+
        words
    }};
}
