//! `trimwised`: TRIM policies on the mounted file systems of a live host.
//!
//! The daemon finds mounts ([`discover`]), looks at each once a second ([`sense`]), and hosts a
//! [`LiveHost`](trimwise::live::LiveHost) for each, which decides. What it decides is done by a helper ([`helper`]), which
//! is this program once more: it opens the mount, reads a map, trims one slice or changes the mount option, closes it and
//! ends. So the daemon never has a file of a mount open, and whatever hangs in the kernel hangs in a process that can be
//! given up. The same holds for all else that may hang: workers ([`worker`]) look at what is mounted ([`look`]), sample,
//! write what is kept ([`mod@write`]) and say what is logged. [`service`] is the loop around all that: one thread that
//! waits for the next second, for those processes, and for whoever talks to it
//! ([`control`](trimwise_linux::daemon::control), [`metrics`]).
//!
//! Where tracefs is, [`frees`] tells what is freed as it happens.
//!
//! What must be known after a kill -9 stands in the state folder: which mount options were changed
//! ([`journal`]), the history ([`history`]), what is known to be trimmed ([`known`]), and what is paused ([`paused`]).

pub mod command;
pub mod discover;
pub mod frees;
pub mod helper;
pub mod history;
pub mod journal;
pub mod known;
pub mod look;
mod managed;
pub mod metrics;
mod notify;
pub mod paused;
mod places;
pub mod process;
mod remount;
mod saving;
pub mod sense;
mod server;
pub mod service;
mod speak;
pub mod worker;
pub mod write;

pub use places::{Places, PlacesError};
