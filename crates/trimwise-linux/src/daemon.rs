//! What the command and `trimwised` share: the daemon's configuration and its control protocol.

pub mod config;
pub mod control;
