//! What the command shows, for programs that embed this one, such as the Python package.

use trimwise_study::compare::Comparison;

use crate::commands::compare;

pub fn table(comparison: &Comparison) -> String {
    compare::table::render(comparison, true)
}
