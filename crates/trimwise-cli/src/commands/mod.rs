//! The commands. A module holds everything of its command: arguments, how it runs, JSON, text and report.

mod advise;
pub(crate) mod compare;
pub mod daemon;
mod devices;
mod doctor;
mod fleet;
mod policies;
mod record;
mod replay;
pub mod report;
mod sweep;
mod trace;
pub mod trim;
pub mod verify;
mod workloads;

use clap::builder::Styles;
use clap::{CommandFactory as _, Parser, Subcommand};
use trimwise::failure::Failure;

use advise::arguments::AdviseArguments;
use compare::arguments::CompareArguments;
use daemon::arguments::{
    ConfigArguments, ExplainArguments, HistoryArguments, PauseArguments, StatusArguments,
};
use devices::arguments::DevicesArguments;
use doctor::arguments::DoctorArguments;
use fleet::FleetArguments;
use policies::PoliciesArguments;
use record::arguments::RecordArguments;
use replay::ReplayArguments;
use report::ReportArguments;
use sweep::arguments::SweepArguments;
use trace::arguments::TraceArguments;
use trim::arguments::TrimArguments;
use verify::arguments::VerifyArguments;
use workloads::WorkloadsArguments;

use trimwise_study::caller::Caller;

use crate::laboratory::COMMANDS;
use crate::table::described;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "trimwise",
    version,
    about = "To TRIM or not to TRIM? Answered for one SSD, file system and workload, with numbers.",
    long_about = "To TRIM or not to TRIM? Answered for one SSD, file system and workload, with numbers.\n\n\
                  trimwise runs a workload on models of an SSD and of ext4 in virtual time, once for each TRIM \
                  policy, and says which policy to use and by how much it is better. The same workload can run on a \
                  real directory, to check the models.",
    help_template = help_template(),
    after_long_help = "Examples:\n  \
        trimwise compare --workload oltp --device sata-generic --policy off commit\n  \
        trimwise reproduce postmark-vendors --report vendors/\n  \
        trimwise crashtest --policy lazy+reuse --cuts 10000\n  \
        trimwise verify dir:/home\n  \
        trimwise trim / --dry-run\n\n\
        Exit codes: 0 done, 1 a run failed, 2 wrong arguments or input, 3 not everything could be checked (doctor), \
        130 interrupted.",
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

/// Where to start, at the top of the help.
const FIRST: [(&str, &str); 3] = [
    ("trimwise doctor", "Is TRIM on here, and does it reach the drive?"),
    ("trimwise advise --here /", "Which policy should this host use?"),
    ("trimwise compare", "What would each policy cost and gain?"),
];

/// The commands grouped by user, in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    ("This host", &["doctor", "trim", "record", "generate"]),
    ("A question", &["advise", "compare", "sweep", "tournament", "report", "policies", "workloads", "trace"]),
    ("A drive", &["verify", "bench", "fit", "replay", "device", "devices"]),
    ("The daemon", &["status", "explain", "history", "pause", "resume", "config", "fleet"]),
    ("The laboratory", &["reproduce", "crashtest", "kernel", "selftest"]),
];

/// The help's template, needed because clap cannot group commands.
fn help_template() -> String {
    let styles = Styles::styled();
    let (heading, literal) = (styles.get_header(), styles.get_literal());
    // `CommandLine` cannot be used here: this is part of its own help.
    let command = Command::augment_subcommands(clap::Command::new("trimwise"));
    let about = |name: &str| {
        let of_laboratory = COMMANDS.iter().find(|(command, _)| *command == name);
        let own = command.find_subcommand(name).and_then(clap::Command::get_about);
        own.map(ToString::to_string).or_else(|| Some(of_laboratory?.1.to_owned()))
    };
    let longest = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let group = |title: &str, entries: &[(&str, String)]| {
        let entry = |(word, meaning): &(&str, String)| {
            (format!("{literal}{word:longest$}{literal:#}"), meaning.clone())
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        format!("{heading}{title}:{heading:#}\n{}\n", described(&entries, 2))
    };
    let mut groups = group("Start here", &FIRST.map(|(line, meaning)| (line, meaning.to_owned())));
    for (title, names) in GROUPS {
        let entries: Vec<_> = names.iter().map(|name| (*name, about(name).unwrap_or_default())).collect();
        groups += &group(title, &entries);
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{heading}Options:{heading:#}\n\
         {{options}}{{after-help}}"
    )
}

/// Returns the whole command line, including the names and descriptions of the laboratory's commands.
pub fn whole() -> clap::Command {
    CommandLine::command().subcommands(COMMANDS.map(|(name, about)| clap::Command::new(name).about(about)))
}

/// Returns the command line that is parsed: also with options that are refused with a hint.
pub fn parsed() -> clap::Command {
    whole().mut_subcommand("sweep", sweep::arguments::with_keys_refused)
}

/// What trimwise can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload under several TRIM policies and say which to use
    Compare(CompareArguments),
    /// Run a grid of devices, policies and workloads into one data set
    Sweep(SweepArguments),
    /// Search for the best policy and its settings, and say what to set
    Advise(AdviseArguments),
    /// Make an HTML report from saved JSON: one run, or two side by side
    Report(ReportArguments),
    /// Find out whether a drive honours TRIM and gets its speed back
    Verify(VerifyArguments),
    /// Show what is in a block trace, or convert it
    Trace(TraceArguments),
    /// Replay a block trace on a file or device, whose data are lost
    Replay(ReplayArguments),
    /// Trim a mounted file system in slices, or show what would be sent
    Trim(TrimArguments),
    /// Record a file system's requests, frees and commits as a trace
    Record(RecordArguments),
    /// Show what the daemon `trimwised` does on each file system
    Status(StatusArguments),
    /// Explain why the daemon does what it does, or what a finding means
    Explain(ExplainArguments),
    /// Show what happened on a file system under the daemon
    History(HistoryArguments),
    /// Pause the daemon's trimming, on one file system or on all
    Pause(PauseArguments),
    /// Resume the daemon's trimming
    Resume(PauseArguments),
    /// Show many hosts at a glance: stale space, drives that ignore TRIM
    Fleet(FleetArguments),
    /// Check the daemon's configuration
    Config(ConfigArguments),
    /// Check that TRIM is on and reaches the drive; else say what to do
    Doctor(DoctorArguments),
    /// List the built-in SSD profiles, or show one with all its sources
    Devices(DevicesArguments),
    /// List the terms of TRIM policies, with examples
    Policies(PoliciesArguments),
    /// List the named workloads, their parameters and the shapes of a day
    Workloads(WorkloadsArguments),
}

/// Runs the command and returns what remains to be printed.
pub fn run(command: Command, caller: &dyn Caller) -> Result<String, Failure> {
    match command {
        Command::Compare(arguments) => compare::run(&arguments, caller),
        Command::Sweep(arguments) => sweep::run(&arguments, caller),
        Command::Advise(arguments) => advise::run(&arguments, caller),
        Command::Report(arguments) => report::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments, caller),
        Command::Trace(arguments) => trace::run(&arguments.command, caller),
        Command::Replay(arguments) => replay::run(&arguments, caller),
        Command::Trim(arguments) => trim::run(&arguments, caller),
        Command::Record(arguments) => record::run(&arguments, caller),
        Command::Policies(arguments) => policies::run(&arguments),
        Command::Workloads(arguments) => workloads::run(&arguments),
        Command::Status(arguments) => daemon::status(&arguments),
        Command::Explain(arguments) => daemon::explain(&arguments),
        Command::History(arguments) => daemon::history(&arguments),
        Command::Pause(arguments) => daemon::pause(&arguments, true),
        Command::Resume(arguments) => daemon::pause(&arguments, false),
        Command::Config(arguments) => daemon::config(&arguments.command),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Fleet(arguments) => fleet::run(&arguments),
        Command::Devices(arguments) => devices::run(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwise::units::Utilization;
    use trimwise_study::defaults;

    #[test]
    fn the_help_has_each_command_once_in_a_line_of_80_columns() {
        let command = whole();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut shown: Vec<&str> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        shown.sort_unstable();
        assert_eq!(grouped, shown);
        let help = whole().render_long_help().to_string();
        let (_, listed) = help.split_once("This host:").unwrap();
        let (listed, _) = listed.split_once("Options:").unwrap();
        assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
        for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            let line = |line: &&str| line.split_whitespace().next() == Some(subcommand.get_name());
            let about = subcommand.get_about().unwrap().to_string();
            assert!(listed.lines().filter(line).all(|line| line.ends_with(&about)), "{about}: {listed}");
        }
    }

    #[test]
    fn the_help_tells_the_defaults_that_are_not_clap_s() {
        let mut command = CommandLine::command();
        command.clone().debug_assert();
        let help = command.find_subcommand_mut("compare").unwrap().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" "); // clap wraps it
        for value in [
            Utilization::default().to_string(),
            defaults::DEVICE.to_string(),
            defaults::LINUX.to_string(),
            defaults::MEMORY_MIB.to_string(),
            defaults::SEED.to_string(),
        ] {
            assert!(help.contains(&format!("[default: {value}]")), "{help}");
        }
    }
}
