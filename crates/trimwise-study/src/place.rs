//! Places for results. They are refused before a run if nothing could be written there afterwards.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use trimwise::failure::{Failure, Key, Mistake, Words, key};
use trimwise::words;
use trimwise_linux::files::unfinished_beside;

/// `-` stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Rejects a path that is no directory and cannot become one.
pub fn check_directory(key: impl Into<Key>, directory: &Path) -> Result<(), Failure> {
    let refuse = |what: &str| Err(Mistake::of(key, directory.display()).because(what).fail());
    if is_stdout(directory) {
        return refuse("cannot be printed; expected a directory");
    }
    match fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(found) if found.is_file() => refuse("is a file; expected a directory"),
        Ok(_) => refuse("is neither a file nor a directory; expected a directory"),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let (there, _) = split_at_missing(directory);
            // Another process may have made the directory since.
            if there.is_symlink() && !there.exists() {
                let whose = if there == directory { String::new() } else { format!("{} ", there.display()) };
                return refuse(&format!("{whose}is a dangling symbolic link; expected a directory"));
            }
            try_to_write_in(&there)
                .or_else(|e| refuse(&format!("cannot create anything in {}: {}", there.display(), words(&e))))
        }
        Err(e) => refuse(&words(&e)),
    }
}

/// Rejects a file that exists or cannot be written.
pub fn check_file(asked: impl Into<Key>, path: &Path, force: bool) -> Result<(), Failure> {
    let of = Mistake::of(asked, path.display());
    let refuse = |why: Words| Err(of.clone().because(why).fail());
    let replaced = |what: &str| words![what, "; pass ", key("force"), " to replace it"];
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(of.because("expected a file; this names a directory").fail());
    }
    match fs::metadata(path) {
        Ok(m) if m.is_dir() => return refuse("is a directory".into()),
        Ok(m) if m.is_file() && !force => return refuse(replaced("already exists")),
        Ok(m) if !m.is_file() => {
            // A pipe is opened only when there is something to write: its reader may start later.
            return Ok(());
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if !force && path.is_symlink() {
                return refuse(replaced("is a dangling link"));
            }
        }
        Err(e) => return refuse(words(&e).into()),
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return refuse(format!("the directory {} does not exist", parent.display()).into());
    }
    try_to_write_in(parent)
        .or_else(|e| refuse(format!("cannot create a file in {}: {}", parent.display(), words(&e)).into()))
}

/// Creates a file in a directory and removes it again. No other test is reliable.
fn try_to_write_in(directory: &Path) -> std::io::Result<()> {
    let probe = unfinished_beside(&directory.join("trimwise"));
    OpenOptions::new().write(true).create_new(true).open(&probe)?;
    fs::remove_file(&probe)
}

/// Explains why nothing can be created at a path.
fn words(error: &std::io::Error) -> String {
    match error.kind() {
        // procfs and sysfs return this for a new file.
        ErrorKind::NotFound => "its file system does not allow new files".to_owned(),
        ErrorKind::NotADirectory => "a part of this path is a file; expected a directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Splits a path into the part that exists and the rest.
pub fn split_at_missing(path: &Path) -> (PathBuf, PathBuf) {
    for there in path.ancestors() {
        let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        if fs::symlink_metadata(there).is_ok() {
            let missing = path.strip_prefix(there).unwrap_or(path);
            return (there.to_path_buf(), missing.to_path_buf());
        }
    }
    (PathBuf::from("."), path.to_path_buf())
}

/// Resolves symbolic links as far as the path exists.
pub fn resolved(path: &Path) -> PathBuf {
    let (there, missing) = split_at_missing(path);
    let there = fs::canonicalize(&there).unwrap_or(there);
    if missing.as_os_str().is_empty() { there } else { there.join(missing) }
}
