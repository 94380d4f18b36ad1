//! `trimwise doctor`: is TRIM on here, and does it arrive?

pub mod arguments;
pub mod table;

use trimwise::failure::Failure;
use trimwise_study::doctor::{self, DoctorRequest};

use crate::commands::doctor::arguments::DoctorArguments;
use crate::output::{self, Destinations};

/// Runs the command. Findings are printed even if it then fails because something is wrong.
pub fn run(arguments: &DoctorArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let DoctorArguments { mount, host_root, run, .. } = arguments;
    let (mount, host_root, run) = (mount.clone(), host_root.clone(), run.run.clone());
    let found = doctor::run(&DoctorRequest { mount, host_root, run })?;
    let text = destinations.deliver(&found, || table::render(&found))?;
    output::concluded(text, found.failure())
}
