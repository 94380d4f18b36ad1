//! The file systems that are compared, and the programs that make them.

use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use trimwise::units::Bytes;

/// Search path of a guest for programs: folders of the host, whose files it sees.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A file system that a guest can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// The ext4 file system.
    Ext4,
    /// The XFS file system.
    Xfs,
    /// The Btrfs file system.
    Btrfs,
    /// The F2FS file system.
    F2fs,
}

impl FileSystem {
    /// Every file system that a guest can make.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::F2fs];

    /// Returns the name for mount(8).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
        }
    }

    /// Returns the program that makes this file system, and its Debian package.
    pub const fn mkfs(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
            Self::F2fs => ("mkfs.f2fs", "f2fs-tools"),
        }
    }

    /// Checks that a guest will find the program that makes this file system.
    ///
    /// # Errors
    /// The missing program, and its package.
    pub fn check_mkfs(self) -> Result<(), String> {
        self.check_mkfs_in(SEARCH_PATH)
    }

    fn check_mkfs_in(self, folders: &str) -> Result<(), String> {
        check_program(self.mkfs(), folders, &format!("but a guest needs it to make {}", self.name()))
    }

    /// Returns the smallest device that the current mkfs accepts.
    pub const fn least(self) -> Bytes {
        match self {
            Self::Ext4 => Bytes::mib(16),
            Self::Xfs => Bytes::mib(300),
            Self::Btrfs => Bytes::mib(128),
            Self::F2fs => Bytes::mib(128),
        }
    }
}

/// Checks that a program is in one of these folders, which are separated by colons; `why` follows in the error.
///
/// # Errors
/// The missing program, and its Debian package.
pub fn check_program((program, package): (&str, &str), folders: &str, why: &str) -> Result<(), String> {
    if folders.split(':').any(|folder| Path::new(folder).join(program).is_file()) {
        return Ok(());
    }
    Err(format!("{program} is not in {folders}, {why}; to install it: apt-get install {package}"))
}

impl FromStr for FileSystem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|fs| fs.name() == text);
        found.ok_or_else(|| {
            format!("'{text}' is not a file system that a guest can make; expected one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let error = FileSystem::F2fs.check_mkfs_in(&path).unwrap_err();
        assert!(error.contains("mkfs.f2fs") && error.ends_with("apt-get install f2fs-tools"), "{error}");
        std::fs::write(folder.path().join("mkfs.f2fs"), "").unwrap();
        assert_eq!(FileSystem::F2fs.check_mkfs_in(&path), Ok(()));
    }
}
