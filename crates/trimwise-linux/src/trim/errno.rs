//! The meaning of an error of FITRIM or of a map of free space: one table for `trimwise trim`, `verify` and the daemon.
//!
//! File systems pass on errors of the block layer (`blk_errors` in block/blk-core.c) and their own: EUCLEAN and EBADMSG
//! are EFSCORRUPTED and EFSBADCRC of ext4 and XFS.

use rustix::io::Errno;

use crate::privilege::advice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    NotPermitted,
    /// This file system does not implement the call.
    NoCall,
    /// The device does not take discards, or no longer does.
    NoDiscard,
    /// The file system cannot be written, or was mounted without replaying its log, so its free space is not known.
    ReadOnly,
    /// The file system's metadata are damaged, so what they call free may be in use.
    Damaged,
    /// The device reported an error, or refused the command.
    DeviceFailed,
    DeviceGone,
    Interrupted,
    /// Anything else, which may pass: memory, locks...
    Other,
}

impl Meaning {
    pub fn of(errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::NotPermitted,
            Errno::NOTTY | Errno::NOSYS => Self::NoCall,
            Errno::OPNOTSUPP => Self::NoDiscard,
            Errno::ROFS => Self::ReadOnly,
            Errno::UCLEAN | Errno::BADMSG => Self::Damaged,
            Errno::IO
            | Errno::REMOTEIO
            | Errno::TIMEDOUT
            | Errno::NOLINK
            | Errno::NODATA
            | Errno::ILSEQ
            | Errno::BADE => Self::DeviceFailed,
            Errno::NODEV | Errno::NXIO => Self::DeviceGone,
            Errno::INTR => Self::Interrupted,
            _ => Self::Other,
        }
    }

    /// Returns true if another attempt on the same mount cannot succeed.
    pub fn is_for_good(self) -> bool {
        matches!(self, Self::NotPermitted | Self::NoCall | Self::NoDiscard | Self::ReadOnly | Self::Damaged)
    }

    /// Describes the error and what to do. The text follows the name of the failed call.
    pub(super) fn words(self, fs_type: &str, device: &str) -> String {
        match self {
            Self::NotPermitted => {
                format!("needs the capability CAP_SYS_ADMIN; {}", advice("run it as root"))
            }
            Self::NoCall => format!("{fs_type} does not support it here; ext4, XFS, btrfs, f2fs and vfat do"),
            Self::NoDiscard => format!("{device} does not accept discards"),
            Self::ReadOnly => {
                "the file system is read-only, or was mounted without its log (noload, norecovery), and \
                 is not trimmed"
                    .to_owned()
            }
            Self::Damaged => {
                let check = match fs_type {
                    "ext4" | "ext3" | "ext2" => format!("e2fsck -f /dev/{device}"),
                    "xfs" => format!("xfs_repair /dev/{device}"),
                    "btrfs" => format!("btrfs check /dev/{device}"),
                    "f2fs" => format!("fsck.f2fs /dev/{device}"),
                    _ => format!("fsck /dev/{device}"),
                };
                format!(
                    "the file system is damaged, so what it calls free may be in use; no more of it is trimmed. \
                     Unmount it and check it: `{check}`"
                )
            }
            Self::DeviceFailed => {
                format!("{device} failed or refused the request; the kernel's log says why")
            }
            Self::DeviceGone => format!("{device} is gone"),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Other => "failed".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_one_meaning() {
        use Meaning::*;
        for (means, is_for_good, errnos) in [
            (NotPermitted, true, &[Errno::PERM, Errno::ACCESS][..]),
            (NoCall, true, &[Errno::NOTTY, Errno::NOSYS]),
            (NoDiscard, true, &[Errno::OPNOTSUPP]),
            (ReadOnly, true, &[Errno::ROFS]),
            (Damaged, true, &[Errno::UCLEAN, Errno::BADMSG]),
            (
                DeviceFailed,
                false,
                &[
                    Errno::IO,
                    Errno::REMOTEIO,
                    Errno::TIMEDOUT,
                    Errno::NOLINK,
                    Errno::NODATA,
                    Errno::ILSEQ,
                    Errno::BADE,
                ],
            ),
            (DeviceGone, false, &[Errno::NODEV, Errno::NXIO]),
            (Interrupted, false, &[Errno::INTR]),
            (Other, false, &[Errno::NOMEM, Errno::AGAIN, Errno::INVAL, Errno::NOSPC]),
        ] {
            for &errno in errnos {
                assert_eq!((Meaning::of(errno), means.is_for_good()), (means, is_for_good), "{errno:?}");
            }
        }
    }

    #[test]
    fn words_name_the_device_and_the_check_of_its_file_system() {
        for (fs_type, check) in [
            ("ext4", "`e2fsck -f /dev/sda1`"),
            ("ext3", "`e2fsck -f /dev/sda1`"),
            ("ext2", "`e2fsck -f /dev/sda1`"),
            ("xfs", "`xfs_repair /dev/sda1`"),
            ("btrfs", "`btrfs check /dev/sda1`"),
            ("f2fs", "`fsck.f2fs /dev/sda1`"),
            ("vfat", "`fsck /dev/sda1`"),
        ] {
            let words = Meaning::Damaged.words(fs_type, "sda1");
            assert!(words.ends_with(check), "{fs_type}: {words}");
        }
        for (means, start) in [
            (Meaning::NotPermitted, "needs the capability CAP_SYS_ADMIN"),
            (Meaning::NoCall, "ntfs does not support it here"),
            (Meaning::NoDiscard, "sda1 does not accept discards"),
            (Meaning::ReadOnly, "the file system is read-only"),
            (Meaning::DeviceFailed, "sda1 failed or refused the request"),
            (Meaning::DeviceGone, "sda1 is gone"),
            (Meaning::Interrupted, "interrupted"),
            (Meaning::Other, "failed"),
        ] {
            let words = means.words("ntfs", "sda1");
            assert!(words.starts_with(start), "{means:?}: {words}");
        }
    }

    #[test]
    fn damage_is_for_good_and_says_how_to_check() {
        for errno in [Errno::UCLEAN, Errno::BADMSG] {
            let means = Meaning::of(errno);
            assert!(means.is_for_good(), "{errno:?}");
            let words = means.words("xfs", "sda1");
            assert!(words.contains("damaged") && words.contains("`xfs_repair /dev/sda1`"), "{words}");
        }
    }

    #[test]
    fn a_failing_device_may_recover_and_a_refusing_one_may_not() {
        for errno in [Errno::IO, Errno::REMOTEIO, Errno::TIMEDOUT, Errno::NODEV, Errno::NOMEM] {
            assert!(!Meaning::of(errno).is_for_good(), "{errno:?}");
        }
        for errno in [Errno::OPNOTSUPP, Errno::NOTTY, Errno::ROFS, Errno::PERM] {
            assert!(Meaning::of(errno).is_for_good(), "{errno:?}");
        }
        assert_eq!(Meaning::of(Errno::REMOTEIO), Meaning::DeviceFailed);
    }
}
