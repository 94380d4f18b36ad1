//! A kernel with a file system, as `--target kernel:...` names it.

use std::fmt;
use std::str::FromStr;

use trimwise::compare::result::Target;

use crate::file_system::FileSystem;
use crate::kernel_name::{KernelName, KernelNameError};

/// The patches that add policies to ext4, as a target names them: `6.12+ext4-trim:ext4`.
pub const EXT4_TRIM: &str = "ext4-trim";

/// The set that adds a device-mapper target, as a target names it: `6.12+dm-trim:xfs`.
pub const DM_TRIM: &str = "dm-trim";

/// The mount option that puts the target of [`DM_TRIM`] below the file system, with its options: `x-trim`,
/// `x-trim=policy=eager+workers=2`.
pub const TRIM_TARGET: &str = "x-trim";

/// A kernel, a file system and its mount options: `6.1:ext4`, `5.10:btrfs:compress=zstd,noatime`,
/// `6.12+ext4-trim+kasan:ext4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTarget {
    /// As `trimwise kernel list` names it.
    pub kernel: KernelName,
    pub file_system: FileSystem,
    /// As in mount(8), separated by commas. The options for discard come with the policy.
    pub options: String,
}

impl KernelTarget {
    /// Returns true if the file system is an ext4 with the patches of [`EXT4_TRIM`].
    pub fn has_ext4_trim(&self) -> bool {
        self.file_system == FileSystem::Ext4 && self.kernel.patches().iter().any(|set| set == EXT4_TRIM)
    }

    /// Returns true if the kernel has the target [`DM_TRIM`], unless the mount options already put it below the file
    /// system.
    pub fn has_dm_trim(&self) -> bool {
        self.kernel.patches().iter().any(|set| set == DM_TRIM) && !self.puts_target()
    }

    /// Returns true if the mount options put the target below the file system.
    pub fn puts_target(&self) -> bool {
        self.options.split(',').any(|option| option.split('=').next() == Some(TRIM_TARGET))
    }
}

impl From<&KernelTarget> for Target {
    fn from(target: &KernelTarget) -> Self {
        Self::Kernel(target.to_string())
    }
}

impl FromStr for KernelTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let (version, file_system) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if version.is_empty() || file_system.is_empty() {
            let names = FileSystem::ALL.map(FileSystem::name).join(", ");
            return Err(format!(
                "'{text}' is not a kernel with a file system; expected VERSION:FS[:MOUNT_OPTIONS] such as 6.1:ext4, \
                 where FS is one of {names}"
            ));
        }
        Ok(Self {
            kernel: version.parse().map_err(|e: KernelNameError| e.to_string())?,
            file_system: file_system.parse()?,
            options: parts.next().unwrap_or_default().to_owned(),
        })
    }
}

impl fmt::Display for KernelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kernel, self.file_system.name())?;
        if self.options.is_empty() { Ok(()) } else { write!(f, ":{}", self.options) }
    }
}
