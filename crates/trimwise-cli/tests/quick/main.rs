//! The command as a user meets it: quick tests, without requirements.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/device_place.rs"]
mod device_place;
#[path = "../common/trim_command.rs"]
mod trim_command;

mod advise;
mod command_line;
mod daemon;
mod device;
mod file_system;
mod fleet;
mod generate;
mod kernel;
mod runs;
mod scripts;
mod sweep;
mod terminal;
mod tournament;
mod trace;
mod trim;
