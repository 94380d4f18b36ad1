//! Files that were given where a built-in name could stand.

use std::io::Read;

use crate::failure::Failure;

/// Reads an input file.
///
/// The largest that makes any sense is far below a mebibyte; a device file or a disk image given by mistake
/// is refused instead of read to its end.
pub fn read(argument: &str, option: &str, what: &str, names: &[&str]) -> Result<String, Failure> {
    const BYTES_MAX: u64 = 1 << 20;

    let fail = |reason: String| Failure::usage(format!("--{option} {argument}: {reason}"));
    let file = match std::fs::File::open(argument) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let built_in = match names {
                [] => String::new(),
                names => format!(" ({})", names.join(", ")),
            };
            return Err(fail(format!("neither a built-in name{built_in} nor a file")));
        }
        Err(e) => return Err(fail(e.to_string())),
    };
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(fail(format!("a directory, not {what}")));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| fail(e.to_string()))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(fail(format!("larger than 1 MiB: this is not {what}")));
    }
    String::from_utf8(bytes).map_err(|_| fail(format!("not UTF-8 text: this is not {what}")))
}
