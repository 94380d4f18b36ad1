//! The worker that reads and writes the state folder and writes the metrics file. Their disk can be full, frozen or
//! gone.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::history::{Database, Entry};
use crate::journal::{self, Change};
use crate::known::{self, Kept};
use crate::paused;
use crate::places::{self, Places};
use crate::saving::Loaded;
use crate::server::is_socket;
use trimwise_linux::files::replace;

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
    /// Replace a file that begins with this line, but no other.
    ReplaceOurs {
        path: PathBuf,
        text: String,
        first_line: String,
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
    /// Device and inode of the folder.
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
            // On a full disk this fails; the lock then does not name its process.
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
        Ask::ReplaceOurs { path, text, first_line } => {
            expect_ours(&path, &first_line).map_err(failed)?;
            replace(&path, &text, 0o644).map_err(|error| failed(error.to_string()))?;
            Ok(Done::Written)
        }
        Ask::Note { database, entries } => {
            database.add(&entries).map_err(failed)?;
            Ok(Done::Written)
        }
        Ask::Last { database, mount, limit } => Ok(Done::Past(database.last(&mount, limit).map_err(failed)?)),
        Ask::Remove { paths } => {
            paths.iter().filter(|path| is_socket(path)).for_each(|path| drop(fs::remove_file(path)));
            Ok(Done::Written)
        }
    }
}

/// Accepts a missing or empty file, and one that begins with this line.
fn expect_ours(path: &Path, first_line: &str) -> Result<(), String> {
    let wrong = |what: &str| {
        Err(format!("{what}, and is not replaced; expected a file of trimwised's metrics, or none"))
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
        Ok(found) if !found.is_file() => return wrong("is not a regular file"),
        Ok(found) if found.len() == 0 => return Ok(()),
        Ok(_) => {}
    }
    let mut begin = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(first_line.len() as u64 + 1).read_to_end(&mut begin));
    match read {
        Err(error) => Err(error.to_string()),
        Ok(_) if begin == format!("{first_line}\n").as_bytes() => Ok(()),
        Ok(_) => wrong("holds something else"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_file_is_neither_replaced_by_metrics_nor_removed_with_the_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let write = |text: &str| {
            let (path, text) = (path.clone(), text.to_owned());
            answer(Ask::ReplaceOurs { path, text, first_line: "# ours".to_owned() }).map(drop)
        };
        for text in ["# ours\nfirst", "# ours\nsecond"] {
            assert_eq!(write(text), Ok(()));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        for foreign in ["precious", "# ours", "# ours too\n", "\n# ours\n"] {
            fs::write(&path, foreign).unwrap();
            let failure = write("# ours\nthird").unwrap_err();
            assert!(failure.why.contains("is not replaced"), "{}", failure.why);
            answer(Ask::Remove { paths: vec![path.clone()] }).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
        }
    }
}
