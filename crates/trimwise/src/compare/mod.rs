//! One cell of a comparison, its figures, their statistics over repetitions, and the verdict.

pub mod cell;
mod daemon;
pub mod days;
pub mod figure;
mod figures;
pub mod gauge;
mod held;
pub mod judge;
pub mod ledger;
pub mod means;
pub mod result;
pub mod sensitivity;
pub mod standings;
pub mod statistics;
pub mod summary;
pub mod verdict;
pub mod watch;
pub mod why;
