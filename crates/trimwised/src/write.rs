//! The worker that reads and writes the state folder and writes the metrics file. Their disk may be full, frozen or
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

/// A request to it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Create the state folder and its lock file.
    Prepare { state: PathBuf },
    /// Read what the last daemon left. `boot` is the id of this boot; `process` has the lock.
    Load { state: PathBuf, boot: String, process: u32 },
    /// Write a file atomically.
    Replace { path: PathBuf, text: String, mode: u32 },
    /// Add entries to the history.
    Note { database: Database, entries: Vec<Entry> },
    /// Read the last `limit` entries of the history.
    Last { database: Database, mount: PathBuf, limit: u32 },
    /// Remove files.
    Remove { paths: Vec<PathBuf> },
}

/// What the last daemon left.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// The journal of mount options.
    pub journal: Loaded<Vec<Change>>,
    /// The paused mount points.
    pub paused: Loaded<BTreeSet<PathBuf>>,
    /// What is known to be trimmed.
    pub known: Loaded<Vec<Kept>>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A description.
    pub why: String,
    /// Whether the problem may go away by itself.
    pub may_pass: bool,
}

/// Its answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Done {
    /// To [`Ask::Prepare`]: device and inode of the folder.
    Prepared(u64, u64),
    /// To [`Ask::Load`].
    Loaded(State),
    /// To [`Ask::Last`].
    Past(Vec<Entry>),
    /// To all others.
    Written,
}

/// Handles a request.
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
