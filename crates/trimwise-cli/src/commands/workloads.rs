//! `trimwise workloads`: the named workloads, with the source of each parameter's default.

use clap::Args;
use serde::Serialize;
use trimwise::workload::apps::parameters::{Kind, Parameter, Spec};
use trimwise::workload::apps::{ALL, Application};
use trimwise::workload::days::{NAMED, NamedDay};
use trimwise_lab::failure::Failure;

use crate::arguments::JsonArguments;
use crate::output::Destinations;
use crate::table::{bold, folded};

/// Arguments of `workloads`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise workloads\n  \
    trimwise compare --workload lsm:operations=1M,reads=95\n  \
    trimwise workloads --json - | jq '.workloads[].name'\n\n\
    What each of them does: docs/guide.md")]
pub struct WorkloadsArguments {
    #[command(flatten)]
    pub json: JsonArguments,
}

/// Everything listed, as `--json` writes it.
#[derive(Debug, Serialize)]
struct Workloads {
    /// The version of trimwise.
    trimwise: &'static str,
    workloads: Vec<Workload>,
    /// Shapes of a day, for `compare --days`.
    days: Vec<Day>,
}

/// A shape of a day.
#[derive(Debug, Serialize)]
struct Day {
    name: &'static str,
    about: &'static str,
    source: &'static str,
    /// Weights of the hours from midnight.
    weekday: [u32; 24],
    weekend: [u32; 24],
}

/// A named workload.
#[derive(Debug, Serialize)]
struct Workload {
    name: &'static str,
    about: &'static str,
    /// Space that it takes with the defaults.
    needed_bytes: u64,
    /// Tasks that run at the same time.
    tasks: u32,
    parameters: Vec<Parameter>,
}

impl Workloads {
    fn all() -> Result<Self, Failure> {
        let workload = |spec: &&'static Spec| {
            let application: Application = spec.name.parse().map_err(Failure::run)?;
            Ok(Workload {
                name: spec.name,
                about: spec.about,
                needed_bytes: application.needed().0,
                tasks: application.tasks(),
                parameters: spec.all().copied().collect(),
            })
        };
        Ok(Self {
            trimwise: trimwise::VERSION,
            workloads: ALL.iter().map(workload).collect::<Result<_, Failure>>()?,
            days: NAMED
                .iter()
                .map(|&NamedDay { name, about, source, weekday, weekend }| Day {
                    name,
                    about,
                    source,
                    weekday,
                    weekend,
                })
                .collect(),
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for workload in &self.workloads {
            text += &folded(&format!("{}: {}", bold(workload.name), workload.about), 0);
            for parameter in &workload.parameters {
                let mark = if parameter.scales { "*" } else { "" };
                let default = parameter.shown(parameter.default);
                let unit = if parameter.kind == Kind::Percent { " %" } else { "" };
                let what = format!("{}{mark}={default}{unit}: {}", parameter.name, parameter.about);
                let source = match parameter.source {
                    "-" => String::new(),
                    source => format!(" [{source}]"),
                };
                text += &folded(&(what + &source), 4);
            }
            text.push('\n');
        }
        let notes = "Written NAME[:KEY=VALUE,...], as in --workload lsm:operations=1M,value=4KiB. Besides these: \
                     PostMark (default, or FILE.pmrc), fio jobs (job:FILE.fio), append and fullwrite; see \
                     docs/guide.md.";
        text += &folded(notes, 0);
        text += &folded("\nDays, as in --days 7 --day office; the work of each hour is a share of all:", 0);
        for Day { name, about, source, .. } in &self.days {
            let source = if *source == "-" { String::new() } else { format!(" [{source}]") };
            text += &folded(&format!("{}: {about}{source}", bold(name)), 4);
        }
        text
    }
}

/// Runs the command and returns what to print.
pub fn run(arguments: &WorkloadsArguments) -> Result<String, Failure> {
    let WorkloadsArguments { json } = arguments;
    let destinations = Destinations::check_json(json)?;
    let workloads = Workloads::all()?;
    destinations.deliver(&workloads, || workloads.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_and_has_every_workload() {
        let text = Workloads::all().unwrap().text();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(text);
    }
}
