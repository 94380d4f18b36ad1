//! The worker that reads how full those are that lend space to file systems. It runs `dmsetup`, which may hang.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trimwise::live::{Lender, Level};
use trimwise_linux::doctor::{Gauge, Loan};
use trimwise_linux::host_root::HostRoot;

use crate::sense::Key;

pub(crate) const COMMAND: &str = "lenders";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// The folder that is the host's `/`.
    pub host: PathBuf,
    pub loans: Vec<(Key, Loan)>,
}

pub(crate) type Answer = Vec<(Key, Lender)>;

pub(crate) fn answer(ask: Ask) -> Answer {
    let root = HostRoot::new(ask.host);
    // Volumes share pools.
    let mut levels: BTreeMap<Gauge, Result<Level, String>> = BTreeMap::new();
    let mut lender = |loan: Loan| {
        let level = match loan.gauge {
            Some(gauge) => levels.entry(gauge).or_insert_with_key(|gauge| gauge.read(&root)).clone(),
            None => Err("this host cannot see it".to_owned()),
        };
        Lender {
            name: loan.name,
            held_bytes: loan.share.and_then(|share| share.read(&root)),
            why_unknown: level.as_ref().err().cloned(),
            level: level.ok(),
        }
    };
    ask.loans.into_iter().map(|(key, loan)| (key, lender(loan))).collect()
}
