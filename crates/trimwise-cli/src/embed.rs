//! What a program that embeds this one, such as the Python package, shows as the command does.

use trimwise_study::compare::Comparison;

use crate::commands::compare;

/// Returns the table that `compare` prints.
pub fn table(comparison: &Comparison) -> String {
    compare::table::render(comparison, true)
}
