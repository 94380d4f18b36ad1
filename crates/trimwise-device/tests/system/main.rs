//! Emulated drives and their clients: needs root, FUSE, loop devices and packages.

#[path = "../common/mod.rs"]
mod common;

mod emulated_device;
