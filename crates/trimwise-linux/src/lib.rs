//! Linux mechanisms without policy: the parts of trimwise that depend on a running host.
//!
//! - [`directory`]: a real directory as the file system of a workload; [`command`]: a program that runs in one;
//! - [`mount`]: the mount that contains a path, and its options;
//! - [`trim`]: a manual trim of a mounted file system (FITRIM), in slices, stoppable between two of them;
//! - [`free_space`]: an estimate of such a trim, from the file system's own map of its free space (GETFSMAP);
//! - [`layout`]: the groups of a file system;
//! - [`block_device`]: the device below a mount, its discard limits, and the discards that the kernel counted on it;
//! - [`raw_device`]: a real file or block device behind the library's block trait;
//! - [`doctor`]: reports whether TRIM is on and reaches the disks; [`host_root`]: the location of the host's files, for
//!   the doctor and the daemon;
//! - [`code`]: the codes of all findings, with what each means;
//! - [`here`]: the drive, file system, kernel and memory of a directory, for a model of them;
//! - [`consent`]: decides whether a file or device may be overwritten;
//! - [`mounted_verify`]: tests whether TRIM reaches the disk below a mounted file system; for this, [`fiemap`] maps a
//!   file's bytes to its device, and [`layers`] maps that device's bytes to the disks below;
//! - [`daemon`]: the configuration of `trimwised`, and its control protocol;
//! - [`ioctl`]: system calls that no library wraps; [`files`]: small files that must never be half written;
//! - [`tracefs`]: the kernel's tracepoints, for the daemon and for [`record`], which records block requests;
//! - [`trace_file`]: block traces in files and pipes, plain or compressed;
//! - [`sparse_store`]: the bytes of an emulated drive;
//! - [`path_error`]: an error of the operating system, with its path;
//! - [`privilege`]: advice for users to whom the kernel refuses something;
//! - [`text`]: characters that must not reach a terminal;
//! - [`pool`]: runs on several threads; [`kept`]: finished cells in files, from which a long run goes on;
//! - [`block_on`]: runs a workload whose calls all block.

pub mod block_device;
pub mod code;
pub mod command;
pub mod consent;
pub mod daemon;
pub mod directory;
mod directory_check;
pub mod doctor;
pub mod fiemap;
pub mod file_system;
pub mod files;
pub mod free_space;
pub mod fstab;
pub mod held;
pub mod here;
pub mod host_root;
pub mod ioctl;
pub mod kept;
pub mod kernel_name;
pub mod kernel_target;
pub mod layers;
pub mod layout;
pub mod mount;
pub mod mounted_verify;
pub mod path_error;
pub mod pool;
pub mod privilege;
pub mod program_end;
pub mod raw_device;
mod ready;
pub mod real_kernel;
pub mod record;
pub mod remount;
mod slots;
pub mod sparse_store;
pub mod systemd;
mod target;
mod tasks;
pub mod text;
pub mod today;
pub mod trace_file;
pub mod tracefs;
pub mod trim;

pub use directory::RealDirectory;
pub use directory_check::DirectoryError;
pub use mount::{Mount, MountError, mount_of};
pub use ready::{NotReady, block_on};
