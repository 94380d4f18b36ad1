//! `trimwise generate`: man pages and shell completions, made from the command line's own definition.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use trimwise::failure::{Failure, Mistake, argument};
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::workload::apps;
use trimwise_cli::output;

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise generate man ~/.local/share/man/man1\n      \
    then `man trimwise-compare`\n  \
    trimwise generate completions bash >~/.local/share/bash-completion/completions/trimwise\n  \
    trimwise generate completions zsh >~/.zfunc/_trimwise\n  \
    trimwise generate completions fish >~/.config/fish/completions/trimwise.fish")]
pub struct GenerateArguments {
    #[command(subcommand)]
    pub what: What,
}

#[derive(Debug, Subcommand)]
pub enum What {
    /// Write a man page for every command to DIR, which is made if missing; pages of trimwise in it are replaced
    Man {
        /// The folder
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Print a shell's completions: of commands, options, and the names of devices, policies, workloads and experiments
    Completions {
        /// The shell
        #[arg(value_parser = ["bash", "zsh", "fish"])]
        shell: String,
    },
}

/// Makes pages or completions of the commands of both programs; `experiments` are the names that can be completed.
pub fn run(
    arguments: &GenerateArguments,
    whole: &clap::Command,
    experiments: &[&str],
) -> Result<String, Failure> {
    match &arguments.what {
        What::Man { directory } => {
            trimwise_study::place::check_directory(argument("directory"), directory)?;
            let pages = man_pages(whole, directory)?;
            Ok(format!("{pages} man pages in {}\n", directory.display()))
        }
        What::Completions { shell } => {
            let shell = shell.parse::<Shell>().map_err(|e| Mistake::that(e).fail())?;
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut for_completion(whole, experiments), "trimwise", &mut script);
            // A script must not be wrapped, so it is printed as it is.
            output::print_always(script).map(|()| String::new())
        }
    }
}

/// Writes the pages of the whole command and of each of its commands; returns how many.
fn man_pages(whole: &clap::Command, directory: &Path) -> Result<usize, Failure> {
    fn write(command: &clap::Command, directory: &Path) -> Result<usize, Failure> {
        let page = Man::new(command.clone());
        let path = directory.join(page.get_filename());
        man_page(&page, command).and_then(|text| fs::write(&path, text)).map_err(failed(&path))?;
        let visible = command.get_subcommands().filter(|c| !c.is_hide_set());
        visible.map(|c| write(c, directory)).sum::<Result<usize, Failure>>().map(|below| below + 1)
    }
    fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
        move |e| Failure::run(format!("generate man: {}: {e}", path.display()))
    }
    fs::create_dir_all(directory).map_err(failed(directory))?;
    let mut command = whole.clone().disable_help_subcommand(true);
    command.build();
    write(&command, directory)
}

/// Renders as [`Man::render`] does, but the text below the options in paragraphs and, where it is indented as examples
/// are, lines of its own.
fn man_page(page: &Man, command: &clap::Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(below) = command.get_after_long_help() {
        let mut section = Roff::new();
        section.control("SH", ["NOTES"]).control("ad", ["l"]).control("nh", []);
        for line in below.to_string().lines() {
            match line.len() - line.trim_start().len() {
                0 if line.is_empty() => section.control("sp", []),
                0 => section.text([roman(line)]),
                indent => {
                    // What does not fit goes further in, unless it explains the line above.
                    let hang = if indent < 6 { 8 } else { 0 };
                    section.control("RS", [format!("{}n", indent + hang).as_str()]);
                    section.control("ti", [format!("-{hang}n").as_str()]);
                    section.text([roman(line.trim_start())]).control("RE", [])
                }
            };
        }
        section.to_writer(&mut text)?;
    }
    Ok(text)
}

/// Returns the command for completions: without what is hidden, and with the names that can be completed.
fn for_completion(whole: &clap::Command, experiments: &[&str]) -> clap::Command {
    let shown = whole.get_subcommands().filter(|c| !c.is_hide_set());
    let command = clap::Command::new("trimwise").version(trimwise::VERSION).propagate_version(true);
    command
        .args(whole.get_arguments())
        .subcommands(shown.cloned().map(|command| with_names(command, experiments)))
}

/// Adds the built-in names to arguments that take one. Only for completions: the command would no longer accept files.
fn with_names(command: clap::Command, experiments: &[&str]) -> clap::Command {
    let command = command.mut_args(|argument| {
        let value =
            argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let names: Vec<String> = match (argument.get_id().as_str(), value) {
            (_, "NAME|FILE") => Profile::embedded_names().map(String::from).collect(),
            ("policies", _) => PolicySpec::examples().iter().map(ToString::to_string).collect(),
            ("workload", _) => apps::ALL.iter().map(|w| w.name.to_string()).collect(),
            ("name", "EXPERIMENT") => experiments.iter().map(ToString::to_string).collect(),
            _ => return argument,
        };
        argument.value_parser(PossibleValuesParser::new(names))
    });
    command.mut_subcommands(|command| with_names(command, experiments))
}
