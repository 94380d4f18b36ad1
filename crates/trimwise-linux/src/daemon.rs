//! Code shared by the command and `trimwised`: the daemon's configuration and its control protocol.

pub mod config;
pub mod control;
