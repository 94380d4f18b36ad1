//! Code shared by the command and `trimwised`: the daemon's configuration and its control protocol.

/// Folder of the daemon's sockets by default.
pub const DEFAULT_RUN: &str = "/run/trimwise";

pub mod config;
pub mod control;
pub mod running;
