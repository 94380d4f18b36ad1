//! What the command and `trimwised` share: the daemon's configuration, and the protocol by which it is asked.

pub mod config;
pub mod control;
