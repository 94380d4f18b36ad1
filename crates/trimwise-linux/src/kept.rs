//! Finished cells in files, so that an interrupted run can continue.
//!
//! A file is written completely under another name, synced and then renamed. Its first line names the run and the cell
//! and has a hash of the rest, so an incomplete or misplaced file is never taken for a result.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::files::{give_name, unfinished_beside};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use trimwise::failure::{Failure, Mistake};

/// Far more than any cell's file needs.
pub const CELL_BYTES_MAX: u64 = 64 << 20;

pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the text of a finished cell's file; `cell` names the run and the cell.
pub fn text(cell: &str, body: &str) -> String {
    format!("{}\n{body}", head(cell, body))
}

/// Returns the body given to [`text`]; `None` if the file is damaged or another cell's.
pub fn body(cell: &str, bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    let (first, body) = text.split_once('\n')?;
    (first == head(cell, body)).then(|| body.to_owned())
}

fn head(cell: &str, body: &str) -> String {
    format!("trimwise {cell}, sha256 {}", hash(body.as_bytes()))
}

/// Writes a file under another name, syncs it and gives it its own.
pub fn write_whole(path: &Path, bytes: &[u8], replace: bool) -> io::Result<()> {
    let temporary = unfinished_beside(path);
    let written = OpenOptions::new().write(true).create_new(true).open(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        give_name(&temporary, path, replace)
    });
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
    written
}

#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// Creates the folder if it is missing.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(|e| {
            Mistake::of("out", folder.display()).because(e.to_string()).expected("a folder").fail()
        })?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn path(&self, cell: &str) -> PathBuf {
        self.folder.join(hash(cell.as_bytes()))
    }

    /// Returns a finished cell. `cell` must name everything that its result depends on.
    pub fn look<T: DeserializeOwned>(&self, cell: &str) -> Result<Option<T>, Failure> {
        let path = self.path(cell);
        let failed = |error: io::Error| Failure::run(format!("{}: {error}", path.display()));
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
            // A link could lead to an endless file.
            Ok(there) if !there.is_file() || there.len() > CELL_BYTES_MAX => return Ok(None),
            Ok(_) => {}
        }
        let body = body(cell, fs::read(&path).map_err(failed)?);
        Ok(body.and_then(|body| serde_json::from_str(&body).ok()))
    }

    pub fn enter(&self, cell: &str, result: &impl Serialize) -> Result<(), Failure> {
        let path = self.path(cell);
        let body = serde_json::to_string(result).map_err(Failure::run)?;
        write_whole(&path, text(cell, &body).as_bytes(), true)
            .map_err(|e| Failure::run(format!("{}: {e}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_found_again_unless_it_is_damaged_or_another_s() {
        let folder = std::env::temp_dir().join(format!("trimwise-kept-{}", std::process::id()));
        let kept = Kept::open(&folder).unwrap();
        assert_eq!(kept.look::<Vec<u64>>("a").unwrap(), None);
        kept.enter("a", &vec![1, 2]).unwrap();
        assert_eq!(kept.look("a").unwrap(), Some(vec![1, 2]));
        assert_eq!(kept.look::<Vec<u64>>("b").unwrap(), None);
        fs::copy(kept.path("a"), kept.path("b")).unwrap();
        assert_eq!(kept.look::<Vec<u64>>("b").unwrap(), None, "the file names its cell");
        let mut bytes = fs::read(kept.path("a")).unwrap();
        *bytes.last_mut().unwrap() = b' ';
        fs::write(kept.path("a"), bytes).unwrap();
        assert_eq!(kept.look::<Vec<u64>>("a").unwrap(), None, "it is not whole");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing half written stays");
        fs::remove_dir_all(&folder).unwrap();
    }
}
