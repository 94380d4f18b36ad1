//! The worker that reads and writes the state folder and writes the metrics file. Their disk can be full, frozen or
//! gone.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::history::{Database, Entry};
use crate::journal::{self, Change};
use crate::known::{self, Kept};
use crate::paused;
use crate::places::{self, Places};
use crate::saving::Loaded;
use trimwise_linux::files::replace;

/// The program's argument for this role.
pub(crate) const COMMAND: &str = "write";

#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    Prepare {
        state: PathBuf,
    },
    /// Read the last daemon's state. `boot` is the id of this boot; `process` has the lock.
    Load {
        state: PathBuf,
        boot: String,
        process: u32,
    },
    Replace {
        path: PathBuf,
        text: String,
        mode: u32,
    },
    Note {
        database: Database,
        entries: Vec<Entry>,
    },
    Last {
        database: Database,
        mount: PathBuf,
        limit: u32,
    },
    Remove {
        paths: Vec<PathBuf>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    pub journal: Loaded<Vec<Change>>,
    pub paused: Loaded<BTreeSet<PathBuf>>,
    pub known: Loaded<Vec<Kept>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub why: String,
    pub may_pass: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Done {
    /// Response to [`Ask::Prepare`]: device and inode of the folder.
    Prepared(u64, u64),
    Loaded(State),
    Past(Vec<Entry>),
    Written,
}

pub fn answer(ask: Ask) -> Result<Done, Failure> {
    let failed = |why: String| Failure { why, may_pass: true };
    match ask {
        Ask::Prepare { state } => {
            let places = Places { state, ..Places::default() };
            places::prepare(&places.state_lock(), 0o700)
                .map_err(|error| Failure { may_pass: error.may_pass(), why: error.to_string() })?;
            let found = fs::metadata(&places.state).map_err(|error| failed(error.to_string()))?;
            Ok(Done::Prepared(found.dev(), found.ino()))
        }
        Ask::Load { state, boot, process } => {
            let places = Places { state, ..Places::default() };
            // Fails on a full disk; then the lock does not name its process.
            drop(places::name(&places.state_lock(), process));
            Ok(Done::Loaded(State {
                journal: journal::read(&places.journal(), &boot),
                paused: paused::read(&places.paused(), &boot),
                known: known::read(&places.known(), &boot),
            }))
        }
        Ask::Replace { path, text, mode } => {
            replace(&path, &text, mode).map_err(|error| failed(error.to_string()))?;
            Ok(Done::Written)
        }
        Ask::Note { database, entries } => {
            database.add(&entries).map_err(failed)?;
            Ok(Done::Written)
        }
        Ask::Last { database, mount, limit } => Ok(Done::Past(database.last(&mount, limit).map_err(failed)?)),
        Ask::Remove { paths } => {
            paths.iter().for_each(|path| drop(fs::remove_file(path)));
            Ok(Done::Written)
        }
    }
}
