//! Requests and their answers as plain data, between the models and the people.
//!
//! A request is a plain struct. It becomes a plan, which names everything that runs, or a [`Failure`] that names each
//! wrong value. A plan runs, and its answer is plain data again. There is no command line and no terminal here: the
//! command `trimwise`, the Python package and the grids of a sweep are three doors to this crate.
//!
//! [`Failure`]: trimwise_lab::failure::Failure

pub mod caller;
pub mod command_text;
pub mod defaults;
pub mod input;
pub mod programs;
pub mod real_target;
pub mod trace_file;
