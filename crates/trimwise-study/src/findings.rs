//! The list of findings, and one of them explained.

use serde::Serialize;
use trimwise::failure::Failure;
use trimwise::spelling::Accepted;
use trimwise_linux::code::{CODES, Entry, named};

/// All findings; the order of the keys is part of the format.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// What trimwise may find.
    pub findings: &'static [Entry],
}

impl Findings {
    /// Lists them.
    pub fn all() -> Self {
        Self { trimwise: trimwise::VERSION, findings: CODES }
    }
}

/// One finding.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// What is known of it.
    #[serde(flatten)]
    pub entry: &'static Entry,
}

/// Explains a code.
///
/// # Errors
///
/// A [`Failure`] if this version does not know it.
pub fn explain(code: &str) -> Result<Explained, Failure> {
    let entry = named(code).ok_or_else(|| {
        let all = "one of those that `trimwise explain --list` lists; a newer trimwise may know more";
        let accepted = Accepted::instead_of(code, CODES.iter().map(|entry| entry.code), all);
        Failure::usage(format!("unknown code '{code}'; {accepted}"))
    })?;
    Ok(Explained { trimwise: trimwise::VERSION, entry })
}
