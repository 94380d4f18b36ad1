//! One mount option, and no other: `fspick` and `fsconfig`. The older MS_REMOUNT resets what it is not told (nosuid,
//! ro...).

use std::io;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fspick};

use crate::layout::Kind;

/// Sets `discard`, `nodiscard` or `discard=async` on the file system that is mounted at `path`.
pub fn set(path: &Path, kind: Kind, option: &str) -> io::Result<()> {
    if !matches!(kind, Kind::Ext4 | Kind::Btrfs) {
        return Err(io::Error::other("this file system cannot change it by remounting"));
    }
    let flags =
        FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_NO_AUTOMOUNT | FsPickFlags::FSPICK_SYMLINK_NOFOLLOW;
    let context = fspick(CWD, path, flags)?;
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
