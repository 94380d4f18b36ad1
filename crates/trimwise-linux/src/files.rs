//! Small files that must never be half written, too long or another's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use trimwise::units::Bytes;

/// The path of what lies beside a file, under its name and an ending.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The text of a file; `None` if there is none.
///
/// # Errors
/// If it cannot be read or is longer, in words that follow its name.
pub fn read_at_most(path: &Path, most: u64) -> Result<Option<String>, String> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot be read ({error})")),
        Ok(n) if n as u64 > most => Err(format!("is longer than {}", Bytes(most))),
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
