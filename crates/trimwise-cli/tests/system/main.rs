//! The command on real devices and file systems: needs root, loop devices, FUSE and packages.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/trim_command.rs"]
mod trim_command;

mod daemon;
mod here;
mod record;
mod trim;
mod verify;
