//! Applications of the models of `trimwise`.
//!
//! Device tests, attacks on the models, and the published experiments. Like the library, this crate opens no file and
//! reads no clock.

pub mod bench;
pub mod crash;
pub mod experiment;
pub mod plot;
pub mod selftest;
