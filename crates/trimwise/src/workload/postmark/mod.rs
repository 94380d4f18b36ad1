//! PostMark, met operation for operation.
//!
//! PostMark (Katcher 1997, Network Appliance TR-3022) models a mail and news server: it makes a pool of small
//! files, runs transactions that read, append to, create and delete them, and deletes the rest. It is the
//! benchmark with which TRIM was judged on real SSDs, so its figures have to be comparable digit for digit.
//! What is written here was derived from the behaviour of the program (version 1.53, as Debian packages it in
//! 1.53-2), and tests run both side by side.
//!
//! - [`config`] reads the configuration files that `postmark` reads;
//! - [`rng`] is its random-number generator;
//! - [`script`] turns a configuration into the exact sequence of operations, without doing any;
//! - [`mod@footprint`] tells from it what a run needs;
//! - [`stdio`] knows which system calls C's buffered I/O makes of them;
//! - [`run()`] does them on a file system, modelled or real;
//! - [`report`] prints what PostMark would print.
//!
//! PostMark never calls `fsync` or `sync`: what is written back, and when the freed blocks are committed and
//! trimmed, is the file system's affair, and part of it falls behind the end of the run.

pub mod config;
pub mod footprint;
pub mod layout;
pub mod outcome;
pub mod report;
pub mod rng;
pub mod run;
pub mod script;
pub mod stdio;

#[cfg(test)]
mod tests;

pub use config::{ConfigError, ParsedConfig, PlannedRun, PostmarkConfig, ReportFormat};
pub use footprint::{Footprint, footprint, footprint_min};
pub use layout::LocationError;
pub use outcome::{Outcome, PhaseTimes, PostmarkFigures};
pub use run::{Leftovers, Progress, RunError, run};
pub use script::{Counts, Phase};
