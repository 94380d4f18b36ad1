//! One mount option, and no other: `fspick` and `fsconfig`. The older MS_REMOUNT resets what it is not told (nosuid,
//! ro...).

use std::io;
use std::os::fd::AsFd;

use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fspick};

use crate::layout::Kind;
use crate::mount::mount_of_open;

/// Sets `discard`, `nodiscard` or `discard=async` on the file system whose mount point is open here: a path could lead
/// elsewhere by now.
pub fn set(mount_point: impl AsFd, kind: Kind, option: &str) -> io::Result<()> {
    if !matches!(kind, Kind::Ext4 | Kind::Btrfs) {
        return Err(io::Error::other("this file system cannot change it by remounting"));
    }
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let is_read_only = mount_of_open(&mount_point).map_err(io::Error::other)?.is_read_only();
    let context = fspick(mount_point.as_fd(), c"", flags)?;
    // ext4 and btrfs take a call that does not say `ro` for one that wants them to be written again.
    if is_read_only {
        fsconfig_set_flag(&context, "ro")?;
    }
    match option.split_once('=') {
        Some((key, value)) => fsconfig_set_string(&context, key, value)?,
        None => fsconfig_set_flag(&context, option)?,
    }
    Ok(fsconfig_reconfigure(&context)?)
}

/// The option that turns online discard on.
pub fn on(kind: Kind) -> &'static str {
    if kind == Kind::Btrfs { "discard=async" } else { "discard" }
}
