//! Applications of the models of `trimwise`.
//!
//! Device tests, attacks on the models, and the published experiments. Device tests, crash checker and selftest start no
//! thread, open no file and read no clock, like the library; experiments run on threads and boot kernels, and so does the
//! crash checker for real ones.

pub mod bench;
pub mod crash;
pub mod experiment;
pub mod fit;
pub mod guests;
pub mod made;
pub mod plot;
pub mod selftest;
