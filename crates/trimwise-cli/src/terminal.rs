//! The terminal as the one who asks: a progress bar, notes on standard error, and Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use console::Term;
use trimwise::failure::Failure;
use trimwise_study::caller::{Caller, OnInterrupt, Progress};

use crate::table::{fitted, plain};
use crate::{interrupt, output, progress};

/// Whoever runs the command.
#[derive(Clone, Copy, Debug)]
pub struct Terminal;

impl Caller for Terminal {
    fn progress(&self, runs: usize, what: &str) -> Arc<dyn Progress> {
        progress::Progress::of(runs, what)
    }

    fn stop(&self, how: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        interrupt::install(how)
    }

    /// Notes are text, so `--quiet` leaves them out.
    fn note(&self, text: &str) {
        if !output::is_quiet() {
            eprint!("{}", fitted(&format!("note: {}\n", plain(text)), &Term::stderr()));
        }
    }
}
