//! Names of kernels: a version, additions to it, and their checks.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use trimwise::failure::Mistake;

/// Versions that can be built by their number alone, oldest first.
pub const PACKAGED: [&str; 4] = ["5.10", "6.1", "6.12", "7.3"];

/// A text that names no kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KernelNameError {
    #[error("kernel version '{version}': expected numbers such as {}, 6.6 or 6.6.30", PACKAGED.join(", "))]
    NoVersion { version: String },
    #[error("{}", unknown_variant(variant))]
    UnknownVariant { variant: String },
    #[error("patch set '{set}': {what}")]
    SetName { set: String, what: String },
}

impl KernelNameError {
    /// Returns what is wrong with the request.
    pub fn mistake(&self) -> Mistake {
        match self {
            Self::UnknownVariant { variant } => unknown_variant(variant),
            other => Mistake::that(other.to_string()),
        }
    }
}

fn unknown_variant(variant: &str) -> Mistake {
    Mistake::of("variant", variant).because("there is no such variant").expected(variants())
}

/// A configuration fragment, merged over the configuration that all kernels have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// As in `--variant` and at the end of a kernel's name.
    pub name: &'static str,
    pub about: &'static str,
}

pub const VARIANTS: [Variant; 2] = [
    Variant { name: "kasan", about: "KASAN, UBSAN, lockdep, and the checks of ext4 and JBD2" },
    Variant { name: "dm", about: "the device mapper: linear, striped, crypt, snapshots and thin volumes" },
];

/// Maximum length of a patch set's name, in bytes; names become part of file names and of `uname -r`.
const SET_BYTES_MAX: usize = 24;

/// Maximum length of all additions, in bytes: Linux cuts `uname -r` at 64 bytes, of which the version takes up to 15.
const ADDED_BYTES_MAX: usize = 48;

/// A kernel's name: the version, its patch sets in the order in which they are applied, then its variant, joined by
/// `+`: `6.12`, `6.12+ext4-trim`, `6.12+ext4-overtrim+ext4-trim+kasan`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelName {
    version: String,
    patches: Vec<String>,
    variant: Option<Variant>,
}

impl KernelName {
    /// Combines a version, patch sets and a variant.
    pub fn new(version: &str, patches: Vec<String>, variant: Option<&str>) -> Result<Self, KernelNameError> {
        check_version(version)?;
        for (i, set) in patches.iter().enumerate() {
            check_set(set)?;
            if patches[..i].contains(set) {
                let what = "appears twice; expected each patch set once";
                return Err(KernelNameError::SetName { set: set.clone(), what: what.to_owned() });
            }
        }
        let variant = variant.map(parse_variant).transpose()?;
        let name = Self { version: version.to_owned(), patches, variant };
        let added = name.added();
        if added.len() > ADDED_BYTES_MAX {
            return Err(KernelNameError::SetName {
                set: added,
                what: format!("is longer than {ADDED_BYTES_MAX} bytes; expected shorter names of patch sets"),
            });
        }
        Ok(name)
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn patches(&self) -> &[String] {
        &self.patches
    }

    pub fn variant(&self) -> Option<Variant> {
        self.variant
    }

    /// Returns true for a distribution's kernel with the common configuration.
    pub fn is_plain(&self) -> bool {
        self.patches.is_empty() && self.variant.is_none()
    }

    pub fn is_since(&self, version: [u32; 2]) -> bool {
        self.sort_key().0.as_slice() >= version.as_slice()
    }

    /// Returns the key that sorts names: 5.10 is later than 5.4, and a plain kernel comes before those made from it.
    pub fn sort_key(&self) -> (Vec<u32>, String) {
        (self.version.split('.').map(|part| part.parse().unwrap_or(0)).collect(), self.added())
    }

    /// Returns the additions to the version: `+ext4-trim+kasan`; empty if the kernel is plain.
    pub fn added(&self) -> String {
        let variant = self.variant.iter().map(|variant| variant.name);
        self.patches.iter().map(String::as_str).chain(variant).map(|part| format!("+{part}")).collect()
    }

    /// Returns the command that builds the kernel, with these folders as patch sets.
    pub fn command(&self, folders: &[String]) -> String {
        let with: String = folders.iter().map(|folder| format!(" --with {}", quoted(folder))).collect();
        let variant = self.variant.map_or_else(String::new, |variant| format!(" --variant {}", variant.name));
        format!("trimwise kernel build --version {}{with}{variant}", self.version)
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._+-,:=@%".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

impl FromStr for KernelName {
    type Err = KernelNameError;

    fn from_str(text: &str) -> Result<Self, KernelNameError> {
        let mut parts = text.split('+');
        let version = parts.next().unwrap_or_default();
        let mut patches: Vec<String> = parts.map(str::to_owned).collect();
        let is_variant = |last: &String| VARIANTS.iter().any(|variant| variant.name == last);
        let variant = if patches.last().is_some_and(is_variant) { patches.pop() } else { None };
        Self::new(version, patches, variant.as_deref())
    }
}

impl fmt::Display for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{}", self.version, self.added()))
    }
}

pub fn variants() -> String {
    VARIANTS.map(|variant| variant.name).join(", ")
}

fn parse_variant(text: &str) -> Result<Variant, KernelNameError> {
    let found = VARIANTS.into_iter().find(|variant| variant.name == text);
    found.ok_or_else(|| KernelNameError::UnknownVariant { variant: text.to_owned() })
}

pub fn check_set(set: &str) -> Result<(), KernelNameError> {
    let refuse = |what: &str| Err(KernelNameError::SetName { set: set.to_owned(), what: what.to_owned() });
    let is_fit = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let begins_well = set.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if !begins_well || !set.bytes().all(is_fit) || set.len() > SET_BYTES_MAX {
        return refuse(&format!(
            "expected a lower-case letter, then lower-case letters, digits, - and _, together at most \
             {SET_BYTES_MAX}"
        ));
    }
    if VARIANTS.iter().any(|variant| variant.name == set) {
        return refuse("is the name of a variant, which goes last in a kernel's name; expected another name");
    }
    Ok(())
}

/// Checks a version such as `6.1` or `6.1.192`. Versions become file names, so nothing else is accepted.
pub fn check_version(version: &str) -> Result<(), KernelNameError> {
    let parts: Vec<&str> = version.split('.').collect();
    let number = |part: &&str| (1..=5).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if (2..=3).contains(&parts.len()) && parts.iter().all(number) {
        return Ok(());
    }
    Err(KernelNameError::NoVersion { version: version.to_owned() })
}
