//! The list of findings, and one of them explained.

use serde::Serialize;
use trimwise::failure::{Failure, Mistake};
use trimwise::spelling::Accepted;
use trimwise_linux::code::{CODES, Entry, named};

#[derive(Debug, Serialize)]
pub struct Findings {
    pub trimwise: &'static str,
    pub findings: &'static [Entry],
}

impl Findings {
    pub fn all() -> Self {
        Self { trimwise: trimwise::VERSION, findings: CODES }
    }
}

#[derive(Debug, Serialize)]
pub struct Explained {
    pub trimwise: &'static str,
    #[serde(flatten)]
    pub entry: &'static Entry,
}

pub fn explain(code: &str) -> Result<Explained, Failure> {
    let entry = named(code).ok_or_else(|| {
        let all = "one of those that `trimwise explain --list` lists; a newer trimwise may know more";
        let accepted = Accepted::instead_of(code, CODES.iter().map(|entry| entry.code), all);
        Mistake::that(format!("unknown code '{code}'")).expected(accepted).fail()
    })?;
    Ok(Explained { trimwise: trimwise::VERSION, entry })
}
