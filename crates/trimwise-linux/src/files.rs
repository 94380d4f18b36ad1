//! Small files that must never be half written, too long or another's.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use trimwise::units::Bytes;

/// The path of what lies beside a file, under its name and an ending.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Why a file has no text to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is not what it should be: no regular file, too long, not UTF-8. In words that follow its name.
    Wrong(String),
    /// It could not be read now, in words that follow its name.
    Failed(String),
}

/// The text of a file; `None` if there is none.
///
/// # Errors
/// If it cannot be read or is longer, in words that follow its name.
pub fn read_at_most(path: &Path, most: u64) -> Result<Option<String>, String> {
    read(path, most, 0).map_err(|(Unread::Wrong(why) | Unread::Failed(why))| why)
}

/// The same of a file that only this program writes: a link is not followed.
///
/// # Errors
/// If it is no regular file, cannot be read or is longer.
pub fn read_own(path: &Path, most: u64) -> Result<Option<String>, Unread> {
    read(path, most, OFlags::NOFOLLOW.bits())
}

/// Nobody is waited for: a pipe that nobody writes to is opened at once, and refused.
fn read(path: &Path, most: u64, flags: u32) -> Result<Option<String>, Unread> {
    let flags = (flags | OFlags::NONBLOCK.bits()).cast_signed();
    let failed = |error: io::Error| Unread::Failed(format!("cannot be read ({error})"));
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let is_link = fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
            return Err(if is_link { Unread::Wrong("is no regular file".to_owned()) } else { failed(error) });
        }
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Unread::Wrong("is no regular file".to_owned()));
    }
    let mut text = String::new();
    match file.take(most + 1).read_to_string(&mut text) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Unread::Wrong(format!("cannot be read ({error})")))
        }
        Err(error) => Err(failed(error)),
        Ok(n) if n as u64 > most => Err(Unread::Wrong(format!("is longer than {}", Bytes(most)))),
        Ok(_) => Ok(Some(text)),
    }
}

/// Writes a file whole or not at all: under another name first.
pub fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let beside = with_ending(path, ".new");
    drop(fs::remove_file(&beside)); // of a daemon that was killed, or a link that somebody left there
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut file| {
            file.set_permissions(fs::Permissions::from_mode(mode))?; // whatever the umask is
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        drop(fs::remove_file(&beside));
    }
    written
}
