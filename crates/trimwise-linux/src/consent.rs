//! Decides whether a file or a device may be overwritten: it is not in use, and it is empty or the user named it
//! explicitly.
//!
//! Writing to a block device, making a file system on it and trimming all of it destroy its contents. The rule is the
//! same for each: a target in use is always refused; one that holds data is refused unless the user repeats its path or
//! serial number. Opening a device for writing requires a [`Consent`], and only [`check`] creates one.
//!
//! A device is checked for data by sampling: its first and last MiB, and a page at each of [`SAMPLES`] places between.
//! No file system is known that reads as zeros in all of those. Anything that cannot be read counts as data.

mod signature;
mod usage;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;
use trimwise::failure::{Mistake, set};
use trimwise::units::Bytes;
use trimwise::words;

use crate::block_device::{BlockDevice, BlockDeviceError, numbers_of};
use crate::path_error::{PathError, at};
use crate::target::Target;

pub use signature::{HEAD_BYTES, signature};
pub use usage::parse_swaps;

/// Number of places sampled between the first and the last MiB.
pub const SAMPLES: u64 = 256;

/// Permission to overwrite one target, created by [`check`].
#[derive(Debug)]
pub struct Consent {
    target: Target,
    identity: Identity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    NoFile,
    /// Device and inode number of a file, and whether it was empty, so that no confirmation was needed.
    File {
        device: u64,
        inode: u64,
        is_empty: bool,
    },
    Device((u32, u32)),
}

#[derive(Debug, Error)]
pub enum ConsentError {
    #[error("{path}: {what}; expected {expected}")]
    Kind { path: String, what: String, expected: String },
    #[error("{path}: {how}: trimwise does not write to it while it is in use")]
    InUse { path: String, how: String },
    /// The target holds data, and the user did not repeat its name.
    #[error("{}", holds_data(path, what, said, serial))]
    HoldsData {
        path: String,
        what: String,
        said: String,
        /// Hint to confirm with the serial number instead, if the device has one.
        serial: String,
    },
    #[error("{path}: is read-only")]
    ReadOnly { path: String },
    #[error("{path}: has a size of 0: it contains no medium")]
    Empty { path: String },
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    #[error(transparent)]
    Io(#[from] PathError),
}

fn holds_data(path: &str, what: &str, said: &str, serial: &str) -> Mistake {
    let lost = format!("{path}: holds {what}, all of which would be lost; {said}");
    Mistake::that(words![
        lost,
        format!("if that is what you want, repeat its path{serial}: "),
        set("destroy", path)
    ])
}

impl ConsentError {
    /// Returns what is wrong with the request to write there.
    pub fn mistake(&self) -> Mistake {
        match self {
            Self::HoldsData { path, what, said, serial } => holds_data(path, what, said, serial),
            other => Mistake::that(other.to_string()),
        }
    }
}

impl Consent {
    pub fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Checks that `target` may be overwritten, given the user's confirmation `word` (`--destroy WORD`).
///
/// Reads only. A missing or empty file needs no confirmation.
pub fn check(target: &Target, word: Option<&str>) -> Result<Consent, ConsentError> {
    let identity = match target {
        Target::File(path) => check_file(path, word)?,
        Target::Device(path) => check_device(path, word)?,
    };
    Ok(Consent { target: target.clone(), identity })
}

fn check_file(path: &Path, word: Option<&str>) -> Result<Identity, ConsentError> {
    let shown = || path.display().to_string();
    let kind = |what: &str, expected: &str| ConsentError::Kind {
        path: shown(),
        what: what.to_owned(),
        expected: expected.to_owned(),
    };
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Do not create a file through a dangling link.
            if path.is_symlink() {
                return Err(kind("is a dangling symbolic link", "a file, or an unused name"));
            }
            if is_among_devices(path) {
                return Err(kind(
                    "would be a new file among the devices",
                    "one that exists, or a file elsewhere",
                ));
            }
            return Ok(Identity::NoFile);
        }
        Err(error) => return Err(at(path)(error).into()),
    };
    if found.file_type().is_block_device() {
        return Err(kind(
            "is a block device",
            &format!("a file; write dev:{} for the device", path.display()),
        ));
    }
    if !found.is_file() {
        return Err(kind("is not a regular file", "a file, or an unused name"));
    }
    let canonical = path.canonicalize().map_err(at(path))?;
    if let Some(how) = usage::of_file(&canonical) {
        return Err(ConsentError::InUse { path: shown(), how });
    }
    if found.len() > 0 && !is_repeated(word, path, &canonical, &[]) {
        let what = format!("{} of data", Bytes(found.len()));
        return Err(ConsentError::HoldsData { path: shown(), what, said: said(word), serial: String::new() });
    }
    Ok(Identity::File { device: found.dev(), inode: found.ino(), is_empty: found.len() == 0 })
}

/// Returns true if a new file of this name would lie below /dev, in the memory of devtmpfs: a mistyped device. /dev/shm
/// is for files.
fn is_among_devices(path: &Path) -> bool {
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    directory.is_some_and(|directory| directory.starts_with("/dev") && !directory.starts_with("/dev/shm"))
}

fn check_device(path: &Path, word: Option<&str>) -> Result<Identity, ConsentError> {
    let shown = || path.display().to_string();
    let found = fs::metadata(path).map_err(at(path))?;
    if !found.file_type().is_block_device() {
        let what = if found.is_file() { "is a regular file" } else { "is not a block device" };
        let expected = if found.is_file() {
            format!("a block device; write file:{} for the file", shown())
        } else {
            "a block device".to_owned()
        };
        return Err(ConsentError::Kind { path: shown(), what: what.to_owned(), expected });
    }
    let device = BlockDevice::of_numbers(numbers_of(found.rdev()))?;
    if device.size.0 == 0 {
        return Err(ConsentError::Empty { path: shown() });
    }
    if let Some(how) = usage::of_device(&device.sysfs) {
        return Err(ConsentError::InUse { path: shown(), how });
    }
    if device.is_read_only() {
        return Err(ConsentError::ReadOnly { path: shown() });
    }
    // O_EXCL on a block device: fails if the kernel itself uses it.
    let file =
        OpenOptions::new().read(true).custom_flags(libc_excl()).open(path).map_err(|source| match source
            .kind()
        {
            io::ErrorKind::ResourceBusy => {
                ConsentError::InUse { path: shown(), how: "the kernel reports that it is busy".to_owned() }
            }
            _ => at(path)(source).into(),
        })?;
    let canonical = path.canonicalize().map_err(at(path))?;
    let serials = device.serials();
    if let Some(what) = data_on(&file, device.size)
        && !is_repeated(word, path, &canonical, &serials)
    {
        let serial = match serials.as_slice() {
            [] => String::new(),
            all => format!(" or its serial number ({})", all.join(" or ")),
        };
        return Err(ConsentError::HoldsData { path: shown(), what, said: said(word), serial });
    }
    Ok(Identity::Device(device.numbers))
}

fn libc_excl() -> i32 {
    rustix::fs::OFlags::EXCL.bits().cast_signed()
}

fn said(word: Option<&str>) -> String {
    word.map_or_else(String::new, |word| format!("'{word}' is neither its path nor its serial number; "))
}

/// Returns true if the user repeated the path, as given or with links resolved, or one of the serial numbers.
fn is_repeated(word: Option<&str>, given: &Path, canonical: &PathBuf, serials: &[String]) -> bool {
    word.is_some_and(|word| {
        Path::new(word) == given
            || Path::new(word) == canonical
            || serials.iter().any(|serial| serial == word)
    })
}

/// Describes the data on a device. Returns `None` if every sample reads as zeros.
fn data_on(file: &File, size: Bytes) -> Option<String> {
    const MIB: u64 = 1 << 20;
    let mut head = vec![0; HEAD_BYTES.min(size.0 as usize)];
    if let Err(error) = file.read_exact_at(&mut head, 0) {
        return Some(format!("data that cannot be read ({error})"));
    }
    if let Some(kind) = signature(&head) {
        return Some(kind.to_owned());
    }
    const PAGE: u64 = 4096;
    let last = size.0.saturating_sub(PAGE) / PAGE * PAGE;
    let ends =
        (0..MIB.min(size.0)).chain(size.0.saturating_sub(MIB) / PAGE * PAGE..size.0).step_by(PAGE as usize);
    let between = (1..=SAMPLES).map(|i| (last / (SAMPLES + 1)).saturating_mul(i) / PAGE * PAGE);
    let mut page = [0; PAGE as usize];
    for offset in ends.chain(between) {
        let length = PAGE.min(size.0.saturating_sub(offset)) as usize;
        if let Err(error) = file.read_exact_at(&mut page[..length], offset) {
            return Some(format!("data that cannot be read ({error} at byte {offset})"));
        }
        if page[..length].iter().any(|&byte| byte != 0) {
            return Some(format!("data of an unknown kind (first seen at byte {offset})"));
        }
    }
    None
}
