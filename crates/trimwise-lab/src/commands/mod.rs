//! The laboratory's commands. A module holds everything of its command: arguments, how it runs, JSON, text and report.

mod answer;
mod bench;
mod crashtest;
mod device;
mod fit;
mod generate;
mod kernel;
mod report;
mod reproduce;
mod selftest;
mod tournament;

use clap::{CommandFactory as _, Parser, Subcommand};
use trimwise::failure::{Failure, Mistake};
use trimwise_cli::commands::daemon::arguments::{HistoryArguments, StatusArguments};
use trimwise_cli::commands::report::ReportArguments;
use trimwise_cli::commands::trim::arguments::TrimArguments;
use trimwise_cli::commands::{self, CommandLine as Light};
use trimwise_cli::laboratory::Identity;
use trimwise_cli::output;
use trimwise_study::caller::Caller;

use crate::experiment;
use bench::arguments::BenchArguments;
use crashtest::arguments::CrashtestArguments;
use device::arguments::DeviceArguments;
use fit::arguments::FitArguments;
use generate::GenerateArguments;
use kernel::arguments::KernelArguments;
use reproduce::arguments::ReproduceArguments;
use selftest::arguments::SelftestArguments;
use tournament::arguments::TournamentArguments;

/// The command line. Users run these commands through `trimwise`, which hands them over.
#[derive(Debug, Parser)]
#[command(
    name = "trimwise-lab",
    bin_name = "trimwise",
    version,
    about = "The laboratory of trimwise: real kernels, emulated drives, device tests, published experiments.",
    propagate_version = true,
    max_term_width = 100
)]
pub struct CommandLine {
    /// Print no text and no progress; errors are still printed and requested files still written
    #[arg(long, short = 'q', global = true)]
    pub quiet: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the laboratory can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Rank policies, and your own, over many weeks and drives
    Tournament(TournamentArguments),
    /// Repeat a published experiment and show its figures next to ours
    Reproduce(ReproduceArguments),
    /// Cut the power at many points and check that no policy loses data
    Crashtest(CrashtestArguments),
    /// Test a drive: fill, random writes, HD Tach, ATTO, TRIM and others
    Bench(BenchArguments),
    /// Measure a drive for half a minute and write a profile of it
    Fit(FitArguments),
    /// Attach modelled drives to this host as block devices, or serve NBD
    Device(DeviceArguments),
    /// The init process of a guest in virtual time
    #[command(hide = true)]
    GuestInit {
        /// Options that the kernel does not know; it passes them to init
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        unknown: Vec<String>,
    },
    /// Build Linux kernels, and run programs on them in virtual time
    Kernel(KernelArguments),
    /// Check the device models against a flat array under random commands
    Selftest(SelftestArguments),
    /// What `trimwise report` hands over
    #[command(hide = true)]
    Report(ReportArguments),
    /// Make man pages and shell completions
    Generate(GenerateArguments),
    // A guest has no other program of ours that could talk to its daemon.
    /// Show what the daemon of a guest does
    #[command(hide = true)]
    Status(StatusArguments),
    /// Show what happened under the daemon of a guest
    #[command(hide = true)]
    History(HistoryArguments),
    /// Have the daemon of a guest trim
    #[command(hide = true)]
    Trim(TrimArguments),
    /// Print version and build, which must be those of `trimwise`
    #[command(hide = true)]
    Identity,
    /// Answer a request of `trimwise` on standard input
    #[command(hide = true)]
    Answer,
}

/// Runs the command and returns what remains to be printed.
pub fn run(command: Command, caller: &dyn Caller) -> Result<String, Failure> {
    match command {
        Command::Tournament(arguments) => tournament::run(&arguments, caller),
        Command::Reproduce(arguments) => reproduce::run(&arguments, caller),
        Command::Crashtest(arguments) => crashtest::run(&arguments, caller),
        Command::Bench(arguments) => bench::run(&arguments, caller),
        Command::Fit(arguments) => fit::run(&arguments, caller),
        Command::Device(arguments) => device::run(&arguments),
        Command::GuestInit { .. } => trimwise_uml::guest::run_as_init()
            .map(|()| String::new())
            .map_err(|e| Mistake::that(e.to_string()).fail()),
        Command::Kernel(arguments) => kernel::run(&arguments.command, caller),
        Command::Selftest(arguments) => selftest::run(&arguments, caller),
        Command::Report(arguments) => report::run(&arguments),
        Command::Generate(arguments) => {
            let experiments: Vec<&str> = experiment::ALL.iter().map(|experiment| experiment.name).collect();
            generate::run(&arguments, &whole(), &experiments)
        }
        Command::Status(arguments) => commands::run(commands::Command::Status(arguments), caller),
        Command::History(arguments) => commands::run(commands::Command::History(arguments), caller),
        Command::Trim(arguments) => commands::run(commands::Command::Trim(arguments), caller),
        Command::Identity => {
            let identity = serde_json::to_string(&Identity::own()).map_err(Failure::run)?;
            output::print_always(identity).map(|()| String::new())
        }
        Command::Answer => answer::run().map(|()| String::new()),
    }
}

/// Returns the command line of both programs.
fn whole() -> clap::Command {
    let own = CommandLine::command();
    let shown = own.get_subcommands().filter(|command| !command.is_hide_set());
    Light::command().subcommands(shown.cloned())
}

#[cfg(test)]
mod tests {
    use trimwise_cli::laboratory::COMMANDS;

    use super::*;

    #[test]
    fn trimwise_lists_the_commands_as_they_are() {
        CommandLine::command().debug_assert();
        whole().debug_assert();
        let own = CommandLine::command();
        let shown = own.get_subcommands().filter(|command| !command.is_hide_set());
        let about =
            |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
        let mut shown: Vec<(String, String)> =
            shown.map(|command| (command.get_name().to_owned(), about(command))).collect();
        let mut listed = COMMANDS.map(|(name, about)| (name.to_owned(), about.to_owned()));
        shown.sort();
        listed.sort();
        assert_eq!(shown, listed);
    }
}
