//! Where a comparison runs, and the kernel that checks it.

use std::fmt;
use std::path::PathBuf;

use trimwise::compare::result::Target;
use trimwise::failure::Mistake;
use trimwise_linux::file_system::FileSystem;
use trimwise_linux::kernel_target::KernelTarget;

use crate::given::Parse;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunOn {
    #[default]
    Model,
    /// On a real kernel and a modelled drive, in virtual time.
    Kernel(KernelTarget),
    Directory(PathBuf),
}

impl From<&RunOn> for Target {
    /// Returns the target as results name it.
    fn from(on: &RunOn) -> Self {
        match on {
            RunOn::Model => Self::Model,
            RunOn::Kernel(target) => target.into(),
            RunOn::Directory(path) => Self::Directory(path.display().to_string()),
        }
    }
}

impl fmt::Display for RunOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Target::from(self).fmt(f)
    }
}

impl Parse for RunOn {
    fn parse(text: &str) -> Result<Self, Mistake> {
        let refused = |why: String| Mistake::default().because(why);
        Ok(match text.parse().map_err(refused)? {
            Target::Model => Self::Model,
            Target::Kernel(target) => Self::Kernel(target.parse().map_err(refused)?),
            Target::Directory(path) => Self::Directory(path.into()),
        })
    }
}

/// A kernel that checks the model, with ext4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checking(pub KernelTarget);

impl Parse for KernelTarget {
    fn parse(text: &str) -> Result<Self, Mistake> {
        match RunOn::parse(text) {
            Ok(RunOn::Kernel(target)) => Ok(target),
            Err(why) if text.starts_with("kernel:") => Err(why),
            _ => Err(Mistake::default()
                .expected("kernel:VERSION:FS[:MOUNT_OPTIONS] such as kernel:6.12:ext4:discard")),
        }
    }
}

impl Parse for Checking {
    fn parse(text: &str) -> Result<Self, Mistake> {
        match KernelTarget::parse(text) {
            Ok(target) if target.file_system == FileSystem::Ext4 => Ok(Self(target)),
            _ => Err(Mistake::default().expected(
                "kernel:VERSION:ext4[:MOUNT_OPTIONS] such as kernel:6.12:ext4; only ext4 is modelled",
            )),
        }
    }
}
