//! A loop device over a mounted drive, which makes it a block device of this host.
//!
//! The loop driver opens the drive's file with direct I/O, so that a request to the device is one request to the drive.
//! When the device is detached from the file, by us or by `losetup -d`, the file is closed; that is how the server
//! notices.
//!
//! The server must never be the last to have the device open: the last close writes the dirty page cache, and a server
//! that was killed cannot serve its own write. So the device is held open here only for one call at a time.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use trimwise::units::{SECTOR_BYTES, UNIT_BYTES};

use trimwise_linux::block_device::SysBlock;
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::ioctl::{self, loop_device};
use trimwise_linux::mount::parse_mountinfo;

/// Attaches a loop device to `file` and returns its node. It offers discards if `takes_trim`.
///
/// Needs root and `/dev/loop-control`.
pub fn attach(file: &Path, takes_trim: bool) -> io::Result<PathBuf> {
    let of = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"))
    };
    let control =
        File::options().read(true).write(true).open("/dev/loop-control").map_err(of("/dev/loop-control"))?;
    let drive = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(file)
        .map_err(of(&file.display().to_string()))?;
    // Concurrent callers get the same number; only one of them succeeds.
    for _ in 0..64 {
        let number = loop_device::free_number(control.as_fd()).map_err(io::Error::from)?;
        let node = PathBuf::from(format!("/dev/loop{number}"));
        let device = match File::options().read(true).write(true).open(&node) {
            Ok(device) => device,
            Err(error) => return Err(of(&node.display().to_string())(error)),
        };
        match loop_device::configure(device.as_fd(), drive.as_fd(), SECTOR_BYTES as u32) {
            Ok(()) => {
                if !takes_trim {
                    // The driver offers discards until the first is refused.
                    let _ = ioctl::discard(device.as_fd(), 0, UNIT_BYTES);
                }
                return Ok(node);
            }
            Err(Errno::BUSY) => {}
            Err(error) => return Err(of(&node.display().to_string())(error.into())),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "other programs took every free loop device; try again"))
}

pub fn is_over(device: &Path, file: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let shown = SysBlock::named(&HostRoot::default(), name).ok().and_then(|device| device.backing_file());
    shown.is_some_and(|shown| {
        // If a file lies below a mount that was moved away, only the remainder of its path is shown. An unrelated file
        // may exist at that path.
        let is_what_is_left = file.file_name().is_some_and(|name| shown == Path::new("/").join(name));
        shown == file || (is_what_is_left && !lies_over(device, &shown))
    })
}

/// Returns true if a loop device lies over the file at this path, or if that cannot be determined.
fn lies_over(device: &Path, path: &Path) -> bool {
    let Ok(found) = std::fs::metadata(path) else { return false };
    let below = File::open(device).and_then(|opened| Ok(loop_device::file(opened.as_fd())?));
    below.map_or(true, |below| below == (found.dev(), found.ino()))
}

/// Detaches a loop device from its file: at once, or when the last user closes it.
pub fn detach(device: &Path, file: &Path) -> io::Result<()> {
    if !is_over(device, file) {
        return Ok(());
    }
    let opened = File::open(device)?;
    match loop_device::clear(opened.as_fd()) {
        Ok(()) | Err(Errno::NXIO) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub fn user(device: &Path) -> Option<String> {
    let name = device.display().to_string();
    let mounts = parse_mountinfo(&std::fs::read("/proc/self/mountinfo").unwrap_or_default());
    if let Some(mount) = mounts.iter().find(|mount| mount.device == name) {
        return Some(format!("mounted at {}", mount.mount_point.display()));
    }
    let exclusive = File::options().read(true).custom_flags(OFlags::EXCL.bits().cast_signed()).open(device);
    let busy = |error: io::Error| error.kind() == io::ErrorKind::ResourceBusy;
    exclusive.is_err_and(busy).then(|| "in use by another program or a device on it".to_owned())
}
