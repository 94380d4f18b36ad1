//! The worker that writes, and reads what is kept: the state folder and the metrics file. Their disk may be full, frozen
//! or gone.

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

/// The argument by which the daemon's program is this worker.
pub const COMMAND: &str = "write";

/// What it is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Make the state folder and the file of its lock.
    Prepare {
        /// The folder.
        state: PathBuf,
    },
    /// Read what the last daemon left.
    Load {
        /// The folder.
        state: PathBuf,
        /// Which boot this is.
        boot: String,
        /// Which process has the lock.
        process: u32,
    },
    /// Write a file, whole or not at all.
    Replace {
        /// The file.
        path: PathBuf,
        /// Its text.
        text: String,
        /// Its mode.
        mode: u32,
    },
    /// Write into the history.
    Note {
        /// Where.
        database: Database,
        /// What.
        entries: Vec<Entry>,
    },
    /// Read the history.
    Last {
        /// Where.
        database: Database,
        /// Of which mount.
        mount: PathBuf,
        /// The most entries.
        limit: u32,
    },
    /// Remove files.
    Remove {
        /// Which.
        paths: Vec<PathBuf>,
    },
}

/// What the last daemon left.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// The journal of mount options.
    pub journal: Loaded<Vec<Change>>,
    /// What was paused.
    pub paused: Loaded<BTreeSet<PathBuf>>,
    /// What is known to be trimmed.
    pub known: Loaded<Vec<Kept>>,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In words.
    pub why: String,
    /// Whether it may be otherwise another time, without anybody doing something.
    pub may_pass: bool,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Done {
    /// Of [`Ask::Prepare`]: device and inode of the folder.
    Prepared(u64, u64),
    /// Of [`Ask::Load`].
    Loaded(State),
    /// Of [`Ask::Last`].
    Past(Vec<Entry>),
    /// Of all others.
    Written,
}

/// Does what it is asked.
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
            // On a full disk nobody is told which process it is.
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
