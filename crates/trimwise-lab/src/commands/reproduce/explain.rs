//! The text of `reproduce --explain`.

use crate::experiment::verdicts::explain::Explained;

pub(super) fn text(explained: &Explained) -> String {
    format!("{} {}\n{:?}\n", explained.cell, explained.release, explained.difference)
}
