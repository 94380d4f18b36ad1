//! The test's file, which is always removed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use rustix::fs::syncfs;
use trimwise::content::{Content, ContentClass};
use trimwise::units::{Lpn, UNIT_BYTES};

use super::VerifyError;
use crate::path_error::at;

const NAME: &str = "trimwise-verify.tmp";

pub(crate) struct Scratch {
    path: PathBuf,
    file: File,
    content: Content,
    is_removed: bool,
}

impl Scratch {
    pub fn write(directory: &Path, units: u64, interrupted: &AtomicBool) -> Result<Self, VerifyError> {
        const BATCH: u64 = 256;
        let path = directory.join(NAME);
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => VerifyError::Occupied { path: path.display().to_string() },
            _ => at(&path)(source).into(),
        })?;
        // A different version each time, so that leftovers of an earlier run are not mistaken for this one's data.
        let since =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let content = Content::new(ContentClass::Incompressible, since as u32);
        let mut scratch = Self { path, file, content, is_removed: false };
        let mut buffer = vec![0; (BATCH * UNIT_BYTES) as usize];
        for start in (0..units).step_by(BATCH as usize) {
            if interrupted.load(Ordering::Relaxed) {
                return Err(VerifyError::Interrupted);
            }
            let count = BATCH.min(units - start) as usize * UNIT_BYTES as usize;
            for (unit, lpn) in buffer[..count].chunks_exact_mut(UNIT_BYTES as usize).zip(start..) {
                content.fill(Lpn(lpn), unit);
            }
            scratch.file.write_all(&buffer[..count]).map_err(at(&scratch.path))?;
        }
        scratch.file.sync_all().map_err(at(&scratch.path))?;
        Ok(scratch)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn content(&self) -> Content {
        self.content
    }

    /// Removes the file, and waits until its blocks are free on the disk too. Empties it first, since XFS frees the
    /// blocks of a removed file at some later time.
    pub fn remove(&mut self) -> Result<(), VerifyError> {
        self.file.set_len(0).and_then(|()| self.file.sync_all()).map_err(at(&self.path))?;
        fs::remove_file(&self.path).map_err(at(&self.path))?;
        self.is_removed = true;
        Ok(syncfs(&self.file).map_err(at(&self.path))?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_removed {
            // Already returning an error; a second one cannot be reported.
            drop(fs::remove_file(&self.path));
        }
    }
}
