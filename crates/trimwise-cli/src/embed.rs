//! What a program uses that embeds this one, such as the Python package: the words of the command line, results as JSON,
//! and nothing printed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser as _;
use trimwise::policy::Policy;
pub use trimwise_lab::experiment::Report as Tick;
pub use trimwise_lab::failure::Failure;

use crate::commands::{self, Command, CommandLine, compare};
use crate::output;

/// A comparison.
pub struct Compared {
    /// As `compare --json` writes it.
    pub json: String,
    /// As `compare` prints it.
    pub text: String,
}

fn parse(words: &[String]) -> Result<Command, Failure> {
    output::be_quiet();
    let words = std::iter::once("trimwise").chain(words.iter().map(String::as_str));
    CommandLine::try_parse_from(words).map(|line| line.command).map_err(|e| Failure::usage(e.render()))
}

/// Runs a command, such as `["policies", "--json", FILE]`. `stop` is the flag that Ctrl-C would raise.
///
/// # Errors
///
/// What the command would print as its error.
pub fn run(words: &[String], stop: &Arc<AtomicBool>) -> Result<String, Failure> {
    commands::run(parse(words)?, |_| Ok(Arc::clone(stop)))
}

/// Compares policies on the model, as `["compare", ...]` with these words does; `own` are further ones, which run on this
/// thread and call `tick` all the time.
///
/// # Errors
///
/// What the command would print as its error, also if the flag `stop` was raised.
pub fn compare(
    words: &[String],
    own: &[Policy],
    stop: &AtomicBool,
    tick: &Tick,
) -> Result<Compared, Failure> {
    let Command::Compare(arguments) = parse(words)? else {
        return Err(Failure::usage("expected the words of `compare`"));
    };
    let comparison = compare::on_model::run_own(&arguments, own, stop, tick)?;
    let json = output::document(&comparison)?;
    Ok(Compared { json, text: compare::table::render(&comparison) })
}
