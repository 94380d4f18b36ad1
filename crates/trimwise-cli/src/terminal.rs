//! The terminal as a caller: a progress bar, notes on standard error, and Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use console::Term;
use trimwise::failure::Failure;
use trimwise_study::caller::{Caller, OnInterrupt, Progress};

use crate::table::{fitted, plain};
use crate::{interrupt, output, progress};

/// The user at the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Terminal;

impl Caller for Terminal {
    fn progress(&self, runs: usize, what: &str) -> Arc<dyn Progress> {
        progress::Progress::of(runs, what)
    }

    fn stop(&self, how: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        interrupt::install(how)
    }

    /// Prints a note unless `--quiet` is given.
    fn note(&self, text: &str) {
        if !output::is_quiet() {
            let text = fitted(&format!("note: {}\n", plain(text)), &Term::stderr());
            progress::above(|| eprint!("{text}"));
        }
    }
}
