//! The command as a user meets it: quick tests, without requirements.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/trim_command.rs"]
mod trim_command;

mod advise;
mod command_line;
mod daemon;
mod fleet;
mod laboratory;
mod pages;
mod runs;
mod scripts;
#[cfg(feature = "parquet")]
mod sweep;
mod trace;
mod trim;
