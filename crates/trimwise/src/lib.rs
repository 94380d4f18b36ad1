//! trimwise: to TRIM or not to TRIM, for one SSD, file system and workload, with numbers.
//!
//! This crate is the pure part: models of a solid state drive and of a journaling file system in virtual time, TRIM
//! policies as state machines, and workloads over narrow traits. It opens no file, starts no thread and reads no clock,
//! so the same inputs and seed give the same bytes on any machine.

pub mod advise;
pub mod block;
pub mod compare;
pub mod content;
pub mod drives;
pub mod engine;
pub mod failure;
pub mod files;
pub mod fs;
pub mod live;
pub mod numbers;
pub mod policy;
pub mod profile;
pub mod replay;
pub mod spelling;
pub mod ssd;
pub mod trace;
pub mod units;
pub mod workload;

/// The version that every report prints with its seed.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
