//! Code shared by the command and `trimwised`: the daemon's configuration and its control protocol.

/// The folder of the daemon's sockets, unless it was told another one.
pub const DEFAULT_RUN: &str = "/run/trimwise";

pub mod config;
pub mod control;
