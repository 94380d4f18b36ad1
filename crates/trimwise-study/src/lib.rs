//! Requests and their answers as plain data, between the models and the people.
//!
//! A request is a plain struct. It becomes a plan, which names everything that runs, or a [`Failure`] that names each
//! wrong value. A plan runs, and its answer is plain data again. There is no command line and no terminal here: the
//! command `trimwise`, the Python package and the grids of a sweep are three doors to this crate.
//!
//! [`Failure`]: trimwise_lab::failure::Failure

pub mod advise;
pub mod as_text;
pub mod bench;
pub mod caller;
pub mod check;
pub mod command_text;
pub mod compare;
pub mod crashtest;
pub mod daemon;
pub mod defaults;
pub mod device;
pub mod devices;
pub mod doctor;
pub mod fit;
pub mod fleet;
pub mod guest_limits;
pub mod input;
pub mod kernel;
pub mod place;
pub mod policies;
pub mod programs;
pub mod real_target;
pub mod record;
pub mod replay;
pub mod selftest;
pub mod stand_in;
pub mod sweep;
pub mod trace;
pub mod trace_file;
pub mod trim;
pub mod verify;
pub mod workloads;

/// The schema number of JSON documents: it grows when a key is removed or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;
