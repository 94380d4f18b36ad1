//! What is known to be trimmed, for the next daemon.

use super::{Service, warn};
use crate::managed::Managed;

impl Service {
    /// Writes down what is known to be trimmed, for the next daemon. In a dry run nothing is trimmed.
    pub(super) fn keep_known(&mut self) {
        if self.options.dry_run {
            return;
        }
        if let Err(error) = self.known.write(self.managed.values().filter_map(Managed::kept).collect()) {
            warn(&format!("{}: {error}", self.options.places.known().display()));
        }
    }
}
