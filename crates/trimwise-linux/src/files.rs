//! Small files that must never be half written, too long, or replaced by a link.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use trimwise::units::Bytes;

/// Returns the path of a file with `ending` appended to its name.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Ends the name of a file that is being written.
pub const UNFINISHED: &str = ".new";

/// Returns a hidden, unique name in the same directory, for a file until it is complete.
pub fn unfinished_beside(path: &Path) -> PathBuf {
    // Process ids repeat in containers, and where several computers share a directory.
    let number = RandomState::new().build_hasher().finish();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A name close to the maximum length leaves no room for more.
    let name = &name[..name.floor_char_boundary(200)];
    path.with_file_name(format!(".{name}.{number:016x}{UNFINISHED}"))
}

/// Gives a finished file its name. Without `replace`, fails if a file has appeared there meanwhile.
pub fn give_name(finished: &Path, name: &Path, replace: bool) -> io::Result<()> {
    if replace {
        return fs::rename(finished, name);
    }
    // Unlike a rename, a link never replaces a file.
    match fs::hard_link(finished, name) {
        // Not every file system supports hard links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !name.exists() => {
            fs::rename(finished, name)
        }
        Err(error) => Err(error),
        Ok(()) => fs::remove_file(finished),
    }
}

/// The text follows the file's name in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The file is not a regular file, too long, or not UTF-8.
    Wrong(String),
    Failed(String),
}

/// Reads a text file of at most `most` bytes; `None` if it does not exist. The text of an error follows the file's name
/// in a message.
pub(crate) fn read_at_most(path: &Path, most: u64) -> Result<Option<String>, String> {
    read(path, most, 0).map_err(|(Unread::Wrong(why) | Unread::Failed(why))| why)
}

/// Reads a text file of at most `most` bytes that only this program writes, without following links. Returns `None` if
/// it does not exist.
pub fn read_own(path: &Path, most: u64) -> Result<Option<String>, Unread> {
    read(path, most, OFlags::NOFOLLOW.bits())
}

/// Reads a text file without ever blocking: a pipe without a writer is opened at once, and refused.
fn read(path: &Path, most: u64, flags: u32) -> Result<Option<String>, Unread> {
    let flags = (flags | OFlags::NONBLOCK.bits()).cast_signed();
    let failed = |error: io::Error| Unread::Failed(format!("cannot be read ({error})"));
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let is_link = fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
            return Err(if is_link {
                Unread::Wrong("is not a regular file".to_owned())
            } else {
                failed(error)
            });
        }
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Unread::Wrong("is not a regular file".to_owned()));
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

/// Reads at most `most` bytes of any file that a user names. Refuses a pipe that no program writes to, where opening it
/// would wait.
///
/// # Errors
/// Errors of the operating system, or [`io::ErrorKind::InvalidInput`] for a pipe without a writer.
pub fn read_input(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file =
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.file_type().is_fifo() {
        let mut begin = [0; 4096];
        match file.read(&mut begin) {
            Ok(0) => {
                let why = "is not a regular file, but a pipe that no program writes to";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            Ok(n) => bytes.extend_from_slice(&begin[..n]),
            // A writer that has written nothing yet.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    file.take(most.saturating_sub(bytes.len() as u64)).read_to_end(&mut bytes)?;
    bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    Ok(bytes)
}

/// Time to wait for the other side of a named pipe, which may be about to start.
pub(crate) const OTHER_SIDE_WAIT: Duration = Duration::from_secs(5);

/// Opens a pipe or a device for writing. Waits a while for a pipe's reader, which may be about to start, but not
/// forever.
///
/// # Errors
/// Errors of the operating system, or that no program reads the pipe.
pub fn open_output(path: &Path) -> io::Result<File> {
    let until = Instant::now() + OTHER_SIDE_WAIT;
    let file = loop {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new().write(true).custom_flags(flags).open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                if Instant::now() >= until {
                    let why = format!(
                        "no program has opened this pipe for reading within {} s",
                        OTHER_SIDE_WAIT.as_secs()
                    );
                    return Err(io::Error::other(why));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => break opened?,
        }
    };
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

pub fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let temporary = with_ending(path, ".new");
    drop(fs::remove_file(&temporary)); // left by a killed daemon, or a planted link
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| {
            file.set_permissions(fs::Permissions::from_mode(mode))?; // regardless of the umask
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
    written
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn regression_a_pipe_without_a_reader_is_refused_and_one_with_a_late_reader_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let error = open_output(&path).unwrap_err();
        assert!(error.to_string().starts_with("no program has opened this pipe"), "{error}");
        let writing = {
            let path = path.clone();
            std::thread::spawn(move || open_output(&path).unwrap().write_all(&[7; 1 << 20]).unwrap())
        };
        assert_eq!(fs::read(&path).unwrap(), vec![7; 1 << 20]);
        writing.join().unwrap();
    }

    #[test]
    fn regression_a_pipe_without_a_writer_is_refused_and_one_with_a_writer_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let error = read_input(&path, 100).unwrap_err();
        assert!(error.to_string().starts_with("is not a regular file"), "{error}");
        // Open for both, this never waits; without any bytes the first read finds the pipe empty.
        for words in ["", "some words"] {
            let mut writer = File::options().read(true).write(true).open(&path).unwrap();
            writer.write_all(words.as_bytes()).unwrap();
            let reading = {
                let path = path.clone();
                std::thread::spawn(move || read_input(&path, 14).unwrap())
            };
            while !words.is_empty() && rustix::io::ioctl_fionread(&writer).unwrap() > 0 {
                std::thread::yield_now();
            }
            writer.write_all(b", and more of them").unwrap();
            let read = reading.join().unwrap();
            assert_eq!(read, format!("{words}, and more of them").as_bytes()[..14]);
        }
        fs::write(path.with_extension("txt"), "words").unwrap();
        assert_eq!(read_input(&path.with_extension("txt"), 3).unwrap(), b"wor");
    }
}
