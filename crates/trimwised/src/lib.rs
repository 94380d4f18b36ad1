//! `trimwised`: TRIM policies on the mounted file systems of a live host.
//!
//! The daemon finds mounts ([`discover`]), samples each every few seconds ([`sense`]), and hosts a
//! [`LiveHost`](trimwise::live::LiveHost) for each, which makes the decisions. A helper ([`helper`]), which is this
//! program in another role, carries them out: it opens the mount, reads a map, trims one slice or changes the mount
//! option, and closes it. So the daemon never has a file of a mount open, and anything that hangs in the kernel
//! hangs in a process that can be abandoned. The same holds for everything else that may hang: workers ([`worker`])
//! look at mounts ([`look`]), sample, write state files ([`mod@write`]) and write the log. [`service`] is the loop
//! around them: one thread that waits for the next sample, for those processes, and for clients
//! ([`control`](trimwise_linux::daemon::control), [`metrics`]).
//!
//! If tracefs is available, [`frees`] reports frees as they happen.
//!
//! The state folder keeps everything that must survive a kill -9: changed mount options ([`journal`]), the history
//! ([`history`]), knowledge of trimmed space ([`known`]), and pauses ([`paused`]). Several daemons share no file system
//! ([`claims`]).

mod candidate;
mod claims;
pub mod command;
mod discover;
pub(crate) mod frees;
pub mod helper;
mod history;
mod journal;
pub mod known; // fuzzed
mod lenders;
mod look;
mod managed;
mod metrics;
mod notify;
mod paused;
mod places;
mod process;
mod saving;
mod sense;
mod server;
pub mod service;
mod speak;
mod worker;
mod write;

pub use places::{Places, PlacesError};
