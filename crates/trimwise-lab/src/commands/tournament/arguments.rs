//! Arguments of `tournament`.

use std::path::PathBuf;

use crate::requests::tournament::TournamentRequest;
use clap::Args;
use trimwise_study::check::GUEST_S;

use trimwise_cli::arguments::{OutputArguments, whole_in};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise tournament mine\n      \
    mine/*.py, mine/*.rs and programs in it against the policies of the rules; if there are none, those alone\n  \
    trimwise tournament mine --dry-run\n      \
    who takes part, and the rules; nothing is run or written\n  \
    trimwise tournament mine --source ~/trimwise --report page\n      \
    compiles mine/*.rs with the library of that checkout, and makes a page\n\n\
    Rules, scores and what a policy's program must say: docs/tournament.md")]
pub struct TournamentArguments {
    /// Folder of the policies, which may be empty: .py and .rs files and programs. A tournament.toml in it has the rules, a grid as `sweep`
    /// reads it; without that file the built-in rules hold. What takes part runs with your rights
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Folder of the results, a sweep for each own policy and one for those of the rules. What is finished there is not
    /// run again [default: DIR/results]
    #[arg(long, short = 'o', value_name = "RESULTS")]
    pub out: Option<PathBuf>,

    /// Remove results of other rules, or of a build with another model, from RESULTS, and run all again
    #[arg(long)]
    pub anew: bool,

    /// A checkout of trimwise's source; policies in Rust are compiled with its library
    #[arg(long, value_name = "CHECKOUT")]
    pub source: Option<PathBuf>,

    /// Only show who takes part and the rules
    #[arg(long)]
    pub dry_run: bool,

    /// Disqualify a policy that thinks about an event for this many seconds [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = whole_in(&GUEST_S), allow_negative_numbers = true)]
    pub max_silence: Option<u64>,

    #[command(flatten)]
    pub output: OutputArguments,
}

impl TournamentArguments {
    pub fn request(&self) -> TournamentRequest {
        TournamentRequest {
            dir: self.dir.clone(),
            out: self.out.clone(),
            source: self.source.clone(),
            is_dry: self.dry_run,
            replaces: self.anew,
            max_silence_s: self.max_silence,
            jobs: self.output.jobs,
        }
    }
}
