//! The worker that looks: at the mounts and what lies below them, and at the configuration.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::discover::{Found, Known, Wanted, discover};
use trimwise_linux::daemon::config::{Config, group_number};
use trimwise_linux::host_root::HostRoot;

/// The argument by which the daemon's program is this worker.
pub const COMMAND: &str = "look";

/// What it is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Look for file systems.
    Discover {
        /// What for.
        wanted: Wanted,
        /// Whether to tell also if all is as it was.
        whole: bool,
    },
    /// Read the configuration.
    Configure {
        /// Its file.
        file: PathBuf,
        /// The folder that is the host's `/`.
        host: PathBuf,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Of [`Ask::Discover`]: what was found, or why nothing. `None` if that is as it was.
    Found(Result<Option<Found>, String>),
    /// Of [`Ask::Configure`]: a configuration that is sound, or all that is wrong with it.
    Configured(Result<Texts, String>),
}

/// A sound configuration as it is written, and what it names.
#[derive(Debug, Serialize, Deserialize)]
pub struct Texts {
    /// Its files.
    pub texts: Vec<(PathBuf, String)>,
    /// The number of its group, if it names one that the host has.
    pub group: Option<u32>,
}

/// The worker that looks.
#[derive(Debug, Default)]
pub struct Looker {
    known: Known,
    /// Of what was told last.
    told: Option<u64>,
}

impl Looker {
    /// Does what it is asked.
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
