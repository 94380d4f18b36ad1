//! The daemon on real file systems: needs root, loop devices, tracefs, FUSE and packages.

mod daemon;
mod daemon_accessories;
mod daemon_control;
mod daemon_faults;
mod daemon_frees;
mod daemon_hangs;
mod daemon_known;
mod daemon_lent;
mod daemon_maps;
mod daemon_options;
mod faulty;
mod hanging;

/// The daemon under test.
const TRIMWISED: &str = env!("CARGO_BIN_EXE_trimwised");
