//! Words that name fields of a request, each spelled by the door that shows them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Who asks, and so how fields of a request are spelled.
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
    /// Whether the command line takes it without an option.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_argument: bool,
}

/// Fields whose name follows from no rule: as in JSON, on the command line, in a grid, in Python.
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

/// Ends of a field's name that say its unit. The help of an option says it instead.
const UNITS: [&str; 5] = ["_s", "_ms", "_min", "_mib", "_percent"];

/// A field of a request that is an option of the command.
pub const fn key(name: &'static str) -> Key {
    Key { name: Cow::Borrowed(name), is_argument: false }
}

/// A field of a request that the command takes without an option, such as the target of `bench`.
pub const fn argument(name: &'static str) -> Key {
    Key { name: Cow::Borrowed(name), is_argument: true }
}

impl From<&'static str> for Key {
    fn from(name: &'static str) -> Self {
        key(name)
    }
}

impl Key {
    /// The field at a path in a document, such as `limits.max_wall_s`.
    pub fn at_path(path: String) -> Self {
        Self { name: Cow::Owned(path), is_argument: false }
    }

    /// Its name in JSON.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same field, which this command takes without an option.
    #[must_use]
    pub fn as_argument(self) -> Self {
        Self { is_argument: true, ..self }
    }
}

/// Fields that a grid sets. Others are given to the command that reads the grid.
const OF_GRIDS: [&str; 10] =
    ["day", "days", "devices", "linux", "memory", "policies", "reps", "seed", "utilization", "workload"];

impl Door {
    /// The door that a field comes through.
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

    /// Spells a field and its value at the head of a message.
    pub(super) fn named(self, key: &Key, value: Option<&str>) -> String {
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
    /// Words that are the same at every door.
    Text(String),
    /// A field.
    Key(Key),
    /// A field with a value that would help.
    Set(Key, String),
}

/// A message: words, and the fields that it names. [`words!`](crate::words) makes one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Words(Vec<Piece>);

impl Words {
    /// Whether nothing is said.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds more words.
    pub fn push(&mut self, more: impl Into<Self>) {
        self.0.extend(more.into().0);
    }

    /// Writes it with the words of a door.
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
    /// Writes it as the command line spells it.
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

/// A field and a value for it, as in `expected --days 7`.
pub fn set(key: impl Into<Key>, value: impl fmt::Display) -> Words {
    Words(vec![Piece::Set(key.into(), value.to_string())])
}

/// Makes [`Words`](crate::failure::Words) of text, keys and other words.
#[macro_export]
macro_rules! words {
    ($($piece:expr),+ $(,)?) => {{
        let mut words = $crate::failure::Words::default();
        $(words.push($piece);)+
        words
    }};
}
