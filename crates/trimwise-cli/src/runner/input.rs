//! Input files given where a built-in name is also possible.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use trimwise_linux::files::read_input;

use crate::failure::Failure;

/// Returns the name that is almost spelled like `written`, if there is one.
pub fn nearest<'a>(written: &str, names: &[&'a str]) -> Option<&'a str> {
    const EDITS_MAX: usize = 2;
    let edits = names.iter().map(|name| (strsim::osa_distance(written, name), *name));
    edits.filter(|(edits, _)| *edits <= EDITS_MAX).min().map(|(_, name)| name)
}

/// Rejects a block device given instead of a mounted file system.
pub fn expect_mount(path: &Path) -> Result<(), Failure> {
    let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let shown = path.display();
    match is_device {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "{shown}: a block device; expected a mount point of it, which `findmnt {shown}` shows"
        ))),
    }
}

/// Reads an input file.
///
/// Sensible input is far below a mebibyte; a device file or a disk image given by mistake is rejected instead of read
/// to its end.
pub fn read(argument: &str, option: &str, what: &str, names: &[&str]) -> Result<String, Failure> {
    const BYTES_MAX: u64 = 1 << 20;

    let fail = |reason: String| Failure::usage(format!("--{option} {argument}: {reason}"));
    if let Ok(found) = std::fs::metadata(argument) {
        if found.is_dir() {
            return Err(fail(format!("a directory, not {what}")));
        }
        if found.file_type().is_block_device() {
            return Err(fail(format!(
                "a block device, not {what}; `bench` and `verify` take the device itself as dev:{argument}"
            )));
        }
    }
    let bytes = match read_input(Path::new(argument), BYTES_MAX + 1) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let built_in = match names {
                [] => String::new(),
                names => format!(" ({})", names.join(", ")),
            };
            let meant =
                nearest(argument, names).map_or(String::new(), |name| format!("; did you mean {name}?"));
            return Err(fail(format!("neither a built-in name{built_in} nor a file{meant}")));
        }
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            return Err(fail(
                "there is no such file, since a part of its path is not a directory".to_owned(),
            ));
        }
        Err(e) => return Err(fail(format!("{e}; expected {what}"))),
    };
    if bytes.len() as u64 > BYTES_MAX {
        return Err(fail(format!("larger than 1 MiB: this is not {what}")));
    }
    String::from_utf8(bytes).map_err(|_| fail(format!("not UTF-8 text: this is not {what}")))
}
