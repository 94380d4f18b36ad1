//! The program as a user meets it, the device model against a flat array, and what tables say of their making: quick tests,
//! without requirements.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/device_place.rs"]
mod device_place;

mod asked;
mod command_line;
mod device;
mod file_system;
mod generate;
mod kernel;
mod ssd_reference;
mod tables;
mod terminal;
mod tournament;
