//! What trimwise does on a running Linux host.
//!
//! - [`directory`]: a real directory as the file system of a workload;
//! - [`mount`]: which mount holds a path, and with which options;
//! - [`block_on`]: runs a workload whose every call blocks.

pub mod directory;
mod directory_check;
pub mod mount;
mod ready;

pub use directory::RealDirectory;
pub use directory_check::DirectoryError;
pub use mount::{Mount, MountError, mount_of};
pub use ready::{NotReady, block_on};
