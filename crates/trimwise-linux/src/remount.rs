//! Changes one mount option and no other, with `fspick` and `fsconfig`. The older MS_REMOUNT resets all options that
//! are not given (nosuid, ro...).

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fspick};

use crate::layout::Kind;
use crate::mount::mount_of_open;

/// Sets `discard`, `nodiscard` or `discard=async` on the file system with this open mount point. A path could lead
/// elsewhere by now.
pub fn set(mount_point: impl AsFd, kind: Kind, option: &str) -> io::Result<()> {
    if !matches!(kind, Kind::Ext4 | Kind::Btrfs) {
        return Err(io::Error::other("this file system cannot change it by remounting"));
    }
    change(mount_point, option)
}

/// Sets an option on the file system with this open mount point.
pub fn change(mount_point: impl AsFd, option: &str) -> io::Result<()> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let is_read_only = mount_of_open(&mount_point).map_err(io::Error::other)?.is_read_only();
    let context = fspick(mount_point.as_fd(), c"", flags)?;
    // Without `ro`, ext4 and btrfs would become writable.
    if is_read_only {
        fsconfig_set_flag(&context, "ro")?;
    }
    match option.split_once('=') {
        Some((key, value)) => fsconfig_set_string(&context, key, value)?,
        None => fsconfig_set_flag(&context, option)?,
    }
    Ok(fsconfig_reconfigure(&context)?)
}

/// Returns true if an error of [`set`] is permanent (option, kernel or permission) rather than temporary (EBUSY, EINTR,
/// EAGAIN, ENOMEM...).
pub fn is_for_good(error: &io::Error) -> bool {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) => matches!(errno, Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS),
        None => true, // from this module, not the kernel
    }
}

/// Returns the option that turns online discard on.
pub fn on(kind: Kind) -> &'static str {
    if kind == Kind::Btrfs { "discard=async" } else { "discard" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_errors_are_not_for_good() {
        for errno in [Errno::BUSY, Errno::INTR, Errno::AGAIN, Errno::NOMEM, Errno::IO] {
            assert!(!is_for_good(&errno.into()), "{errno:?}");
        }
        for errno in [Errno::INVAL, Errno::PERM, Errno::OPNOTSUPP] {
            assert!(is_for_good(&errno.into()), "{errno:?}");
        }
        let file = std::fs::File::open("/").unwrap();
        assert!(is_for_good(&set(file, Kind::Xfs, "discard").unwrap_err()));
    }
}
