//! The command on real devices and file systems: needs root, loop devices, FUSE and packages.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/device_place.rs"]
mod device_place;
#[path = "../common/trim_command.rs"]
mod trim_command;

mod daemon;
mod device;
mod here;
mod record;
mod trim;
mod verify;
mod words;
