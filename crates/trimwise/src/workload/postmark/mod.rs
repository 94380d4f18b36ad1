//! PostMark, reproduced operation for operation.
//!
//! PostMark (Katcher 1997, Network Appliance TR-3022) models a mail and news server: it creates a pool of small files,
//! runs transactions that read, append to, create and delete them, and deletes the rest. TRIM on real SSDs was judged
//! with this benchmark, so its figures must be comparable digit for digit. This implementation was derived from the
//! behaviour of the program (version 1.53, as packaged by Debian in 1.53-2), and tests run both side by side.
//!
//! - [`config`] reads the configuration files that `postmark` reads;
//! - [`rng`] is its random-number generator;
//! - [`script`] turns a configuration into the exact sequence of operations, without doing any;
//! - [`mod@footprint`] computes the needs of a run from it;
//! - [`stdio`] knows the system calls that C's buffered I/O makes for them;
//! - [`run()`] executes them on a file system, modelled or real;
//! - [`report`] prints PostMark's reports.
//!
//! PostMark never calls `fsync` or `sync`. The file system decides when data are written back, and when freed blocks
//! are committed and trimmed; part of that happens after the end of the run.

pub mod config;
pub mod footprint;
pub mod layout;
pub mod outcome;
pub mod report;
pub mod rng;
pub mod run;
mod scaled;
pub mod script;
pub mod stdio;

#[cfg(test)]
mod tests;

pub use config::{ConfigError, ParsedConfig, PlannedRun, PostmarkConfig, ReportFormat};
pub use footprint::{Footprint, footprint, footprint_min, operations};
pub use layout::LocationError;
pub use outcome::{Outcome, PhaseTimes, PostmarkFigures};
pub use run::{Leftovers, Progress, RunError, run, run_paced};
pub use script::{Counts, Phase};
