use std::fmt;

use rustix::io::Errno;
use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::mount::MountError;
use crate::path_error::PathError;

use super::{Accounts, Meaning};

#[derive(Debug, Error)]
pub enum TrimError {
    Mount(#[from] MountError),
    Device(#[from] BlockDeviceError),
    NotAMountPoint {
        path: String,
        fs_type: String,
        mount_point: String,
    },
    NoDiscard {
        path: String,
        device: String,
        file: String,
    },
    BeyondTheEnd {
        path: String,
        end: Bytes,
    },
    LeastExtent {
        path: String,
        group: Bytes,
    },
    Open(#[from] PathError),
    Gone {
        path: String,
    },
    ReadOnly {
        path: String,
        what: String,
    },
    /// This kernel would destroy data, or crash.
    Kernel {
        path: String,
        why: String,
    },
    /// Discards failed without an error from FITRIM, or another program trimmed it at the same time.
    Failed {
        path: String,
        accounts: Accounts,
        /// Why ext4 goes on to believe that what failed was trimmed, if it does.
        still_believes: Option<String>,
    },
    Hanging {
        path: String,
        in_flight: u64,
    },
    /// Another error of an ioctl: see [`Meaning`].
    Call {
        path: String,
        call: &'static str,
        means: Meaning,
        /// `None` if the call itself reported success.
        errno: Option<Errno>,
        fs_type: String,
        device: String,
    },
}

impl fmt::Display for TrimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::NotAMountPoint { path, .. }
            | Self::NoDiscard { path, .. }
            | Self::BeyondTheEnd { path, .. }
            | Self::LeastExtent { path, .. }
            | Self::Gone { path }
            | Self::ReadOnly { path, .. }
            | Self::Kernel { path, .. }
            | Self::Failed { path, .. }
            | Self::Hanging { path, .. }
            | Self::Call { path, .. } => write!(f, "{path}: {}", self.what()),
        }
    }
}

impl TrimError {
    /// Says what is wrong, without the path of the mount.
    pub fn what(&self) -> String {
        match self {
            Self::Mount(error) => error.to_string(),
            Self::Device(error) => error.to_string(),
            Self::Open(PathError { source, .. }) => source.to_string(),
            Self::NotAMountPoint { fs_type, mount_point, .. } => {
                format!("not a mount point; it is on the {fs_type} mounted on {mount_point}: give that path")
            }
            Self::NoDiscard { device, file, .. } => format!(
                "its device {device} does not accept discards: {file} is 0. The cause may be a USB adapter, a RAID \
                 controller or dm-crypt (without allow-discards)"
            ),
            Self::BeyondTheEnd { end, .. } => format!(
                "the file system ends at {end} ({} bytes); expected a range that begins before that",
                end.0
            ),
            Self::LeastExtent { group, .. } => format!(
                "no extent is longer than a group of {group}; expected a minimum extent of at most that"
            ),
            Self::Gone { .. } => {
                "the file system was unmounted, or another one was mounted over it".to_owned()
            }
            Self::ReadOnly { what, .. } => format!("{what} is read-only, so nothing is trimmed there"),
            Self::Kernel { why, .. } => format!("nothing is trimmed there: {why}"),
            Self::Failed { accounts, still_believes: None, .. } => accounts.failed_words(),
            Self::Failed { accounts, still_believes: Some(why), .. } => format!(
                "{}. Until it is mounted again, ext4 skips what failed, since it cannot be told otherwise: {why}",
                accounts.failed_words()
            ),
            Self::Hanging { in_flight, .. } => hanging_words(*in_flight),
            Self::Call { call, means, errno, fs_type, device, .. } => {
                format!("{call}: {}{}", means.words(fs_type, device), errno_words(*errno))
            }
        }
    }

    /// Returns the meaning of the ioctl's error, if an ioctl failed.
    pub fn means(&self) -> Option<Meaning> {
        match self {
            Self::Call { means, .. } => Some(*means),
            _ => None,
        }
    }
}

/// Says that the device never became idle, and counted no discard.
pub fn hanging_words(in_flight: u64) -> String {
    format!(
        "discards hang, or others never stop writing: {in_flight} writes and discards are still in flight"
    )
}

fn errno_words(errno: Option<Errno>) -> String {
    errno.map_or_else(String::new, |errno| format!(" ({errno})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_names_its_path_once_and_says_what_to_do() {
        let path = || "/srv".to_owned();
        let call = |means, errno| TrimError::Call {
            path: path(),
            call: "FITRIM",
            means,
            errno,
            fs_type: "xfs".to_owned(),
            device: "sda1".to_owned(),
        };
        let accounts = |failed| Accounts {
            sent: None,
            failed_before: false,
            answered: Bytes(7),
            counted: Some(Bytes(9)),
            failed,
            online: false,
            stops: false,
        };
        for (error, expected) in [
            (
                TrimError::NotAMountPoint {
                    path: path(),
                    fs_type: "ext4".to_owned(),
                    mount_point: "/data".to_owned(),
                },
                "not a mount point; it is on the ext4 mounted on /data: give that path",
            ),
            (
                TrimError::NoDiscard {
                    path: path(),
                    device: "sda1".to_owned(),
                    file: "/sys/dev/block/8:1".to_owned(),
                },
                "its device sda1 does not accept discards: /sys/dev/block/8:1 is 0. The cause may be a USB adapter, a \
                 RAID controller or dm-crypt (without allow-discards)",
            ),
            (
                TrimError::BeyondTheEnd { path: path(), end: Bytes(1 << 30) },
                "the file system ends at 1 GiB (1073741824 bytes); expected a range that begins before that",
            ),
            (
                TrimError::LeastExtent { path: path(), group: Bytes(128 << 20) },
                "no extent is longer than a group of 128 MiB; expected a minimum extent of at most that",
            ),
            (
                TrimError::Gone { path: path() },
                "the file system was unmounted, or another one was mounted over it",
            ),
            (
                TrimError::ReadOnly { path: path(), what: "its device sda1".to_owned() },
                "its device sda1 is read-only, so nothing is trimmed there",
            ),
            (
                TrimError::Kernel { path: path(), why: "Linux 1 harms it".to_owned() },
                "nothing is trimmed there: Linux 1 harms it",
            ),
            (
                TrimError::Failed { path: path(), accounts: accounts(Some(2)), still_believes: None },
                "discards failed or were refused; the kernel's log says why",
            ),
            (
                TrimError::Failed {
                    path: path(),
                    accounts: accounts(Some(2)),
                    still_believes: Some("/sys/x: Read-only file system".to_owned()),
                },
                "discards failed or were refused; the kernel's log says why. Until it is mounted again, ext4 skips what \
                 failed, since it cannot be told otherwise: /sys/x: Read-only file system",
            ),
            (
                TrimError::Hanging { path: path(), in_flight: 5 },
                "discards hang, or others never stop writing: 5 writes and discards are still in flight",
            ),
            (call(Meaning::NoDiscard, None), "FITRIM: sda1 does not accept discards"),
            (
                call(Meaning::NoCall, Some(Errno::NOTTY)),
                "FITRIM: xfs does not support it here; ext4, XFS, btrfs, f2fs and vfat do (Inappropriate ioctl for \
                 device (os error 25))",
            ),
        ] {
            assert_eq!(error.what(), expected, "{error:?}");
            assert_eq!(error.to_string(), format!("/srv: {expected}"), "{error:?}");
            let means = match &error {
                TrimError::Call { errno: None, .. } => Some(Meaning::NoDiscard),
                TrimError::Call { .. } => Some(Meaning::NoCall),
                _ => None,
            };
            assert_eq!(error.means(), means, "{error:?}");
        }
    }

    #[test]
    fn errors_of_others_keep_their_words() {
        let source = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let open: TrimError = crate::path_error::at(std::path::Path::new("/srv"))(source()).into();
        assert_eq!(open.what(), "entity not found");
        assert_eq!(open.to_string(), "/srv: entity not found");
        let mount = || MountError::Unknown { path: "/srv".to_owned() };
        let none = || BlockDeviceError::None { mount_point: "/srv".to_owned(), fs_type: "tmpfs".to_owned() };
        for (error, expected) in
            [(TrimError::from(mount()), mount().to_string()), (TrimError::from(none()), none().to_string())]
        {
            assert_eq!((error.to_string(), error.what()), (expected.clone(), expected), "{error:?}");
            assert_eq!(error.means(), None, "{error:?}");
        }
    }
}
