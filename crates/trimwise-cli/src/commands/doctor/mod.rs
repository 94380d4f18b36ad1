//! `trimwise doctor`: is TRIM on here, and does it arrive?

pub mod arguments;
pub mod table;

use serde::Serialize;
use trimwise_lab::failure::Failure;
use trimwise_linux::doctor::{self, DoctorError, Report};
use trimwise_linux::host_root::HostRoot;

use crate::commands::daemon::normal;
use crate::commands::doctor::arguments::DoctorArguments;
use crate::output::{self, Destinations};
use trimwise_study::input::expect_mount;

/// What `--json` writes.
#[derive(Serialize)]
struct DoctorReport<'a> {
    /// The version of trimwise.
    trimwise: &'static str,
    /// Number of things that are wrong.
    wrong: usize,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the command. Findings are printed even if something is wrong.
pub fn run(arguments: &DoctorArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    arguments.mount.as_deref().map_or(Ok(()), expect_mount)?;
    let root = arguments.host_root.clone().map_or_else(HostRoot::default, HostRoot::new);
    // In a container, paths are the host's.
    let only = arguments.mount.as_deref().map(|mount| match arguments.host_root {
        Some(_) => Ok(mount.to_owned()),
        None => normal(mount),
    });
    let report = doctor::examine(&root, &arguments.run.run, only.transpose()?.as_deref()).map_err(
        |error| match error {
            DoctorError::NoMount { .. } => Failure::usage(error),
            DoctorError::Mounts(_) => match &arguments.host_root {
                Some(given) => Failure::usage(format!(
                    "--host-root {}: {error}; expected the folder at which the host's / is mounted",
                    given.display()
                )),
                None => Failure::run(error),
            },
        },
    )?;
    let wrong = report.wrong();
    let document = DoctorReport { trimwise: trimwise::VERSION, wrong, report: &report };
    let text = destinations.deliver(&document, || table::render(&report))?;
    if wrong == 0 {
        return Ok(text);
    }
    let things = if wrong == 1 { "1 thing is".to_owned() } else { format!("{wrong} things are") };
    output::print(&text).and(Err(Failure::run(format!("{things} wrong"))))
}
