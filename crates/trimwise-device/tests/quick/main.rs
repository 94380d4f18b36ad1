//! Emulated drives over NBD: quick, needs nothing.

#[path = "../common/mod.rs"]
mod common;

mod nbd;
