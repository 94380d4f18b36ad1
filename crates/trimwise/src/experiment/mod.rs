//! What is compared with what, and the results as data.

pub mod cell;
pub mod result;
