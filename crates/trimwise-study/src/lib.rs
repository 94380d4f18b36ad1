//! Requests and their answers as plain data, between the models and the people.
//!
//! A request is a plain struct. It becomes a plan, which names everything that runs, or a [`Failure`] that names each
//! wrong value. A plan runs, and its answer is plain data again. The order of an answer's fields is the order of its
//! keys in JSON and part of the format. There is no command line and no terminal here: the command `trimwise`, the
//! Python package and the grids of a sweep are three doors to this crate.
//!
//! [`Failure`]: trimwise::failure::Failure

pub mod advise;
pub mod as_text;
pub mod bench;
pub mod caller;
pub mod check;
pub mod command_text;
pub mod compare;
pub mod conclusion;
pub mod daemon;
pub mod defaults;
pub mod devices;
pub mod doctor;
pub mod figures;
pub mod findings;
pub mod fleet;
pub mod gate;
pub mod given;
pub mod guest_limits;
pub mod import;
pub mod input;
pub mod jobs;
pub mod laboratory;
pub mod place;
pub mod plot;
pub mod policies;
pub mod programs;
pub mod real_target;
pub mod record;
pub mod replay;
pub mod stand_in;
pub mod sweep;
pub mod trace;
pub mod trace_file;
pub mod trim;
pub mod verify;
pub mod whole;
pub mod workloads;

use serde::Serialize;

/// Identifies the code of the model by its hash.
pub const MODEL: &str = env!("TRIMWISE_MODEL");

/// The schema number of JSON documents. It grows when a key is removed or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// An answer as a JSON document that starts with its schema number.
#[derive(Debug, Serialize)]
pub struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    answer: &'a T,
}

impl<'a, T: Serialize> Versioned<'a, T> {
    pub const fn of(answer: &'a T) -> Self {
        Self { schema: SCHEMA, answer }
    }

    /// Returns the JSON that every `--json` writes.
    ///
    /// # Errors
    ///
    /// If a key of the answer is not a string.
    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
