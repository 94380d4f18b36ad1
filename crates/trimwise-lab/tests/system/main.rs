//! The commands of the laboratory on real devices: needs root, loop devices, FUSE and packages.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/device_place.rs"]
mod device_place;

mod device;
mod words;
