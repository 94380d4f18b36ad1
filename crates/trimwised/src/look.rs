//! The worker that examines mounts and the devices below them, and reads the configuration.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::discover::{Found, Known, Wanted, discover};
use trimwise_linux::daemon::config::{Config, group_number};
use trimwise_linux::host_root::HostRoot;

pub(crate) const COMMAND: &str = "look";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Look for file systems. `whole`: report even if nothing has changed.
    Discover { wanted: Wanted, whole: bool },
    /// Read the configuration. `host` is the folder that is the host's `/`.
    Configure { file: PathBuf, host: PathBuf },
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Found(Result<Option<Found>, String>),
    Configured(Result<Texts, String>),
}

/// The texts of a valid configuration.
#[derive(Debug, Serialize, Deserialize)]
pub struct Texts {
    pub texts: Vec<(PathBuf, String)>,
    /// Id of the group that the texts name, if it exists on the host.
    pub group: Option<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Looker {
    known: Known,
    told: Option<u64>,
}

impl Looker {
    pub fn answer(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::Discover { wanted, whole } => {
                let found = discover(&wanted, &mut self.known);
                let found = found.map_err(|error| format!("the list of mounts cannot be read: {error}"));
                let mut hasher = DefaultHasher::new();
                serde_json::to_vec(&found).unwrap_or_default().hash(&mut hasher);
                let before = self.told.replace(hasher.finish());
                Answer::Found(found.map(|found| (whole || before != self.told).then_some(found)))
            }
            Ask::Configure { file, host } => {
                let read = Config::texts(&file).and_then(|texts| {
                    let config = Config::parse(&texts)?;
                    let number = |name: &String| group_number(&HostRoot::new(&host), name);
                    Ok(Texts { texts, group: config.group.as_ref().and_then(number) })
                });
                Answer::Configured(read.map_err(|errors| errors.to_string()))
            }
        }
    }
}
