//! Identifies the code that made a table, part by part, and the kernels.
//!
//! A table in a page has this in a line below it, as written by [`MadeBy::line`]. When the code changes, [`stale`]
//! names the changed parts. So a reader sees that a table was made by other code, and an author sees which tables to
//! make again.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::guests::RealKernel;
use trimwise_linux::kept;
use trimwise_uml::images::KernelImage;

/// Prefix of the line that identifies what made the table above it.
pub const BEGINNING: &str = "Made by ";

/// Prefix of the line below a table that is older than such lines.
pub const UNKNOWN: &str = "Made by code that was not noted";

/// Parts that do not affect the model.
const OF_KERNELS: [&str; 2] = ["guest", "daemon"];

/// The code and kernels that made a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeBy {
    /// Hash of all of it and of the seed: tables with the same fingerprint are the same.
    pub fingerprint: String,
    /// Hashes of the code by the names of its parts; comments and tests do not count.
    pub code: BTreeMap<String, String>,
    /// Release and hash of the ingredients of each kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
}

pub fn code() -> BTreeMap<String, String> {
    parse(env!("TRIMWISE_PARTS"))
}

fn parse(parts: &str) -> BTreeMap<String, String> {
    let words = parts.split(", ").filter_map(|part| part.split_once(' '));
    words.map(|(name, hash)| (name.to_owned(), hash.to_owned())).collect()
}

/// Returns a kernel's release and the hash of its ingredients.
pub fn kernel(image: &KernelImage) -> String {
    named(&image.release, &image.recipe)
}

fn named(release: &str, recipe: &str) -> String {
    format!("Linux {release} ({})", recipe.get(..8).unwrap_or(recipe))
}

impl MadeBy {
    /// Identifies this program's results in the model.
    pub fn model(seed: u64) -> Self {
        let mut code = code();
        code.retain(|part, _| !OF_KERNELS.contains(&part.as_str()));
        Self::of(code, Vec::new(), seed)
    }

    /// Identifies this program's results on kernels named by [`kernel`].
    pub fn kernels(kernels: Vec<String>, seed: u64) -> Self {
        Self::of(code(), kernels, seed)
    }

    /// Identifies this program's results on this kernel, or in the model.
    pub fn on(found: Option<&RealKernel>, seed: u64) -> Self {
        match found {
            Some(kernel) => Self::kernels(vec![named(&kernel.release, &kernel.recipe)], seed),
            None => Self::model(seed),
        }
    }

    fn of(code: BTreeMap<String, String>, kernels: Vec<String>, seed: u64) -> Self {
        let all = format!("{code:?}{kernels:?}{seed}");
        let fingerprint = kept::hash(all.as_bytes())[..12].to_owned();
        Self { fingerprint, code, kernels }
    }

    pub fn line(&self) -> String {
        format!("{BEGINNING}{self}.")
    }
}

impl fmt::Display for MadeBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code: Vec<String> = self.code.iter().map(|(part, hash)| format!("{part} {hash}")).collect();
        write!(f, "{}: {}", self.fingerprint, [code, self.kernels.clone()].concat().join(", "))
    }
}

/// Returns the parts of the code that have changed since a line of [`MadeBy::line`] was written; `None` if the line
/// does not name any code.
pub fn stale(line: &str, now: &BTreeMap<String, String>) -> Option<Vec<String>> {
    let (_, parts) = line.trim_end_matches('.').strip_prefix(BEGINNING)?.split_once(": ")?;
    let made = parse(parts);
    let known = now.iter().filter(|(part, _)| made.contains_key(*part));
    let changed = known.clone().filter(|(part, hash)| made.get(*part) != Some(*hash));
    known.clone().next().map(|_| changed.map(|(part, _)| part.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_all_there_and_the_model_s_tables_depend_on_no_guest() {
        let names: Vec<String> = code().into_keys().collect();
        assert_eq!(names, ["daemon", "experiment", "guest", "model", "profiles"]);
        let empty = "f29ce4"; // of no file at all
        assert!(code().values().all(|hash| hash.len() == 6 && hash != empty), "{:?}", code());
        let model = MadeBy::model(1);
        assert_eq!(model.code.keys().collect::<Vec<_>>(), ["experiment", "model", "profiles"]);
        assert_ne!(model.fingerprint, MadeBy::model(2).fingerprint);
    }

    #[test]
    fn a_line_says_which_parts_have_changed_since() {
        let made = MadeBy::kernels(vec!["Linux 6.12.117 (91a4343b)".to_owned()], 1);
        let line = made.line();
        assert!(line.ends_with("Linux 6.12.117 (91a4343b)."), "{line}");
        assert_eq!(stale(&line, &code()), Some(vec![]));
        let mut now = code();
        now.insert("guest".to_owned(), "0".to_owned());
        assert_eq!(stale(&line, &now), Some(vec!["guest".to_owned()]));
        assert_eq!(stale(&MadeBy::model(1).line(), &now), Some(vec![]), "it does not depend on it");
        assert_eq!(stale(UNKNOWN, &now), None);
        assert_eq!(stale("Made by hand: with care.", &now), None);
    }
}
