//! Emulated drives over NBD: quick tests, without requirements.

#[path = "../common/mod.rs"]
mod common;

mod nbd;
