use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, fcntl_getfl, fcntl_setfl, fstatvfs, statx,
};
use rustix::io::Errno;
use trimwise::block::{DeviceFacts, TrimFacts};
use trimwise::units::{Bytes, SECTOR_BYTES, UNIT_BYTES};

use super::queue::{Queue, Trim};
use super::{Access, Made, Options, Promise, RawDevice, RawDeviceError, Target};
use crate::block_device::{BlockDevice, devices_of, numbers_of};
use crate::consent::{ConsentError, Identity};
use crate::ioctl::ring::Ring;
use crate::mount::mount_of;
use crate::path_error::at;

struct Opened {
    file: File,
    made: Option<Made>,
    size: Bytes,
    sector_bytes: u64,
    trim: Option<TrimFacts>,
    promise: Promise,
    route: Trim,
    notes: Vec<String>,
}

impl RawDevice {
    /// Opens a target. With [`Access::Write`] a block device is opened exclusively. A missing file is created with
    /// [`Options::file_bytes`] of allocated blocks, and removed when the device is dropped.
    ///
    /// # Errors
    /// Among others, if the target changed since the consent was given.
    pub fn open(access: Access, options: &Options) -> Result<Self, RawDeviceError> {
        let (target, identity) = match access {
            Access::Read(target) => (target, None),
            Access::Write(consent) => (consent.target().clone(), Some(consent.identity().clone())),
        };
        let opened = match &target {
            Target::File(path) => open_file(path, identity.as_ref(), options)?,
            Target::Device(path) => open_device(path, identity.as_ref(), options)?,
        };
        let size_units = opened.size.units_floor();
        if size_units == 0 {
            return Err(RawDeviceError::Unfit {
                path: target.path().display().to_string(),
                what: format!("has only {}", in_bytes(opened.size)),
                expected: "at least one unit of 4096 bytes",
            });
        }
        let file = Arc::new(opened.file);
        let entries = options.queue_depth.clamp(1, 4096).next_power_of_two();
        let ring =
            Ring::new(Arc::clone(&file), entries).map_err(|source| RawDeviceError::NoRing { source })?;
        let name = target.to_string();
        let queue = Queue::new(ring, Arc::clone(&file), name.clone(), opened.route);
        Ok(Self {
            facts: DeviceFacts {
                name,
                size_units,
                sector_bytes: opened.sector_bytes,
                trim: opened.trim,
                is_model: false,
            },
            notes: opened.notes,
            promise: opened.promise,
            target,
            file,
            is_writable: identity.is_some(),
            begun: Instant::now(),
            interrupted: Arc::clone(&options.interrupted),
            queue: RefCell::new(queue),
            _made: opened.made,
        })
    }
}

fn in_bytes(size: Bytes) -> String {
    if size.0 == 1 { "1 byte".to_owned() } else { format!("{} bytes", size.0) }
}

fn changed(path: &Path) -> RawDeviceError {
    RawDeviceError::Changed { path: path.display().to_string() }
}

/// Opens for direct I/O; if the file system refuses that, through the page cache, with a note.
fn open_direct(
    path: &Path,
    options: &OpenOptions,
    flags: OFlags,
    notes: &mut Vec<String>,
) -> io::Result<File> {
    let with = |flags: OFlags| options.clone().custom_flags(flags.bits().cast_signed()).open(path);
    match with(flags | OFlags::DIRECT) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            let file = with(flags)?;
            notes.push(no_direct(path));
            Ok(file)
        }
        result => result,
    }
}

fn no_direct(path: &Path) -> String {
    let path = path.display();
    format!("{path}: its file system refuses direct I/O, so this measures the page cache")
}

fn open_file(path: &Path, identity: Option<&Identity>, options: &Options) -> Result<Opened, RawDeviceError> {
    let mut notes = Vec::new();
    let mut how = OpenOptions::new();
    how.read(true).write(identity.is_some());
    let (file, made) = match identity {
        Some(Identity::NoFile) => {
            // Open it only once: opened again by name, it could be another file.
            let file = how.create_new(true).mode(0o600).open(path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => changed(path),
                _ => at(path)(error).into(),
            })?;
            let made = Made::new(path, &file).map_err(at(path))?;
            allocate(&file, path, options.file_bytes)?;
            match fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::DIRECT)) {
                Err(Errno::INVAL) => notes.push(no_direct(path)),
                result => result.map_err(at(path))?,
            }
            (file, Some(made))
        }
        _ => (open_direct(path, &how, OFlags::empty(), &mut notes).map_err(at(path))?, None),
    };
    let found = file.metadata().map_err(at(path))?;
    if !found.is_file() {
        let what =
            if found.file_type().is_block_device() { "is a block device" } else { "is not a regular file" };
        let expected = "a file (dev:PATH is for devices)";
        return Err(RawDeviceError::Unfit {
            path: path.display().to_string(),
            what: what.to_owned(),
            expected,
        });
    }
    match identity {
        Some(&Identity::File { device, inode, is_empty })
            if (device, inode) != (found.dev(), found.ino()) || (is_empty && found.len() > 0) =>
        {
            return Err(changed(path));
        }
        Some(Identity::File { .. }) if found.len() == 0 => allocate(&file, path, options.file_bytes)?,
        _ => {}
    }
    let size = Bytes(file.metadata().map_err(at(path))?.len());
    let is_punched = identity.is_none() || can_punch(&file, size);
    if !is_punched {
        notes.push(format!("{}: the file system cannot punch holes, so there is no TRIM", path.display()));
    }
    let granularity = fstatvfs(&file).map_or(UNIT_BYTES, |space| space.f_frsize.max(1));
    let trim =
        is_punched.then_some(TrimFacts { granularity: Bytes(granularity), max: size, promises_zeros: true });
    let promise = Promise::Zeros { by: "a punched hole reads as zeros".to_owned() };
    let sector_bytes = direct_alignment(&file, path);
    Ok(Opened { file, made, size, sector_bytes, trim, promise, route: Trim::PunchHole, notes })
}

/// Gives an empty file its length, with allocated blocks.
fn allocate(file: &File, path: &Path, bytes: Bytes) -> Result<(), RawDeviceError> {
    let size = Bytes::from_units(bytes.units_floor());
    if size.0 == 0 {
        return Err(RawDeviceError::Unfit {
            path: path.display().to_string(),
            what: format!("a file of {} is too small for a test", in_bytes(bytes)),
            expected: "at least one unit of 4096 bytes",
        });
    }
    let no_room = || {
        let free = fstatvfs(file).map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize));
        RawDeviceError::NoRoom { path: path.display().to_string(), needed: size, free: Bytes(free) }
    };
    // Check first: on some file systems (tmpfs) the attempt uses up all free space.
    if fstatvfs(file).is_ok_and(|space| space.f_bavail.saturating_mul(space.f_frsize) < size.0) {
        return Err(no_room());
    }
    match fallocate(file, FallocateFlags::empty(), 0, size.0) {
        Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Err(no_room()),
        Err(Errno::OPNOTSUPP) => Ok(file.set_len(size.0).map_err(at(path))?),
        result => Ok(result.map_err(at(path))?),
    }
}

/// Returns true if holes can be punched; a hole after the end changes nothing.
fn can_punch(file: &File, size: Bytes) -> bool {
    let behind = Bytes::from_units(size.units_ceil()).0;
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, behind, UNIT_BYTES).is_ok()
}

/// Returns the alignment of direct transfers: reported by the file system since Linux 6.1; before that, the sector size
/// of the device below.
fn direct_alignment(file: &File, path: &Path) -> u64 {
    let said = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let said =
        said.filter(|found| StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN));
    let said = said.map(|found| u64::from(found.stx_dio_offset_align)).filter(|&bytes| bytes > 0);
    let below = || Some(devices_of(&mount_of(path).ok()?).ok()?.first()?.sector().0);
    said.or_else(below).unwrap_or(SECTOR_BYTES)
}

fn open_device(
    path: &Path,
    identity: Option<&Identity>,
    options: &Options,
) -> Result<Opened, RawDeviceError> {
    let mut notes = Vec::new();
    let mut how = OpenOptions::new();
    how.read(true).write(identity.is_some());
    let flags = if identity.is_some() { OFlags::EXCL } else { OFlags::empty() };
    let file = open_direct(path, &how, flags, &mut notes).map_err(|error| -> RawDeviceError {
        match error.kind() {
            io::ErrorKind::ResourceBusy => {
                let how = "the kernel reports that it is busy".to_owned();
                ConsentError::InUse { path: path.display().to_string(), how }.into()
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                ConsentError::ReadOnly { path: path.display().to_string() }.into()
            }
            _ => at(path)(error).into(),
        }
    })?;
    let found = file.metadata().map_err(at(path))?;
    if !found.file_type().is_block_device() {
        return Err(RawDeviceError::Unfit {
            path: path.display().to_string(),
            what: "is not a block device".to_owned(),
            expected: "a disk or partition (file:PATH is for files)",
        });
    }
    let numbers = numbers_of(found.rdev());
    if identity.is_some_and(|identity| *identity != Identity::Device(numbers)) {
        return Err(changed(path));
    }
    let device = BlockDevice::of_numbers(numbers)?;
    let sector_bytes = device.sector().0;
    if sector_bytes > UNIT_BYTES {
        return Err(RawDeviceError::Unfit {
            path: path.display().to_string(),
            what: format!("has sectors of {sector_bytes} bytes"),
            expected: "a device with sectors of at most 4096 bytes",
        });
    }
    let promise = Promise::of(&device, &file);
    let trim = (device.limits.max.0 > 0).then_some(TrimFacts {
        granularity: device.limits.granularity,
        max: device.limits.max,
        promises_zeros: promise.is_zeros(),
    });
    let route = if options.trim_by_thread { Trim::Thread } else { Trim::Discard };
    Ok(Opened { file, made: None, size: device.size, sector_bytes, trim, promise, route, notes })
}
