//! Unknown names, and what was probably meant.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::{Door, Words};

/// Returns the only name that `written` comes close to: in another case, one letter off, two in a long word, or cut
/// off.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let length = written.chars().count();
    let edits_max = if length < 6 { 1 } else { 2 };
    let close = |name: &'a str| {
        let is_beginning = length > 2 && name.starts_with(&written);
        let edits = if is_beginning { 1 } else { strsim::osa_distance(&written, &name.to_lowercase()) };
        // Half of a short word is another word.
        (edits <= edits_max && edits * 2 < length.max(name.chars().count())).then_some((edits, name))
    };
    let mut close: Vec<_> = names.into_iter().filter_map(close).collect();
    close.sort_unstable();
    match close[..] {
        [(_, name)] => Some(name),
        [(edits, name), (next, _), ..] if edits < next => Some(name),
        _ => None,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meant: Option<String>,
    all: Words,
}

impl Accepted {
    /// Describes what is accepted in place of a name that is none of `names`.
    pub fn instead_of<'a>(
        written: &str,
        names: impl IntoIterator<Item = &'a str>,
        all: impl Into<Words>,
    ) -> Self {
        Self { meant: nearest(written, names).map(str::to_owned), all: all.into() }
    }

    /// Describes what is accepted in place of a name, which is one of `names`.
    pub fn one_of(written: &str, names: &[&str]) -> Self {
        Self::instead_of(written, names.iter().copied(), format!("one of {}", names.join(", ")))
    }
}

impl<T: Into<Words>> From<T> for Accepted {
    fn from(all: T) -> Self {
        Self { meant: None, all: all.into() }
    }
}

impl Accepted {
    /// Writes the end of a message with the words of a door: `expected ...`, or `did you mean ...? Expected ...`.
    pub fn write(&self, door: Door, f: &mut dyn fmt::Write) -> fmt::Result {
        match &self.meant {
            Some(name) => write!(f, "did you mean `{name}`? Expected ")?,
            None => f.write_str("expected ")?,
        }
        self.all.write(door, f)
    }
}

impl fmt::Display for Accepted {
    /// Writes it as the command line spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(Door::Command, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_close_is_suggested_and_only_one_name() {
        let names = ["office", "server", "oltp", "vm", "lsm", "vendor1", "vendor2", "vertex-60gb"];
        for (written, meant) in [
            ("ofice", Some("office")),
            ("Office", Some("office")),
            ("offcie", Some("office")),
            ("sevrr", None),
            ("serverr", Some("server")),
            ("olpt", Some("oltp")),
            ("OLPT", Some("oltp")),
            ("vmm", Some("vm")),
            ("v", None),
            ("x", None),
            ("", None),
            ("ls", Some("lsm")),
            ("vendor3", None),
            ("vendor11", Some("vendor1")),
            ("vertex", Some("vertex-60gb")),
            ("ve", None),
            ("größe", None),
        ] {
            assert_eq!(nearest(written, names), meant, "{written}");
        }
    }

    #[test]
    fn a_message_asks_first_and_names_all_in_any_case() {
        let names = ["off", "commit"];
        assert_eq!(
            Accepted::one_of("comit", &names).to_string(),
            "did you mean `commit`? Expected one of off, commit"
        );
        assert_eq!(Accepted::one_of("x", &names).to_string(), "expected one of off, commit");
    }
}
