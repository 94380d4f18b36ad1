//! Imports drives of other simulators as profiles: MQSim's `ssdconfig.xml`, SimpleSSD's configuration, FEMU's options.
//!
//! Each number of the profile names the parameter it comes from, or is marked as assumed. Parameters without a
//! counterpart are listed. The result is the text of a profile, for a person to read and to change.

mod draft;
mod femu;
mod foreign;
mod mqsim;
mod mqsim_flows;
mod other;
mod simplessd;

use std::fmt::Write as _;

use serde::Serialize;
use trimwise::failure::{Failure, Mistake};
use trimwise::profile::Profile;

use self::draft::Draft;
use self::foreign::Foreign;
pub use self::mqsim_flows::job_of;
use crate::input;

/// Converts a workload of MQSim, `workload.xml`, to a fio job. The error lists every mistake with its line.
pub fn import_job(file: &str) -> Result<String, Failure> {
    job_of(&input::read(file, "import", "MQSim's workload.xml", &[])?, file)
}

#[derive(Debug, Serialize)]
pub struct Imported {
    pub trimwise: &'static str,
    /// `MQSim`, `SimpleSSD` or `FEMU`.
    pub simulator: &'static str,
    pub profile: String,
    /// Parameters of the file without a counterpart in a profile.
    pub unused: Vec<Unused>,
}

/// A parameter without a counterpart.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Unused {
    pub parameter: String,
    pub value: String,
    /// Why it has no counterpart.
    pub because: &'static str,
}

/// Makes a profile of another simulator's file.
///
/// # Errors
///
/// Lists every mistake with its line. Also if no known simulator has such a file.
pub fn import(file: &str) -> Result<Imported, Failure> {
    profile_of(&input::read(file, "import", "a drive of MQSim, SimpleSSD or FEMU", &[])?, file)
}

/// Makes a profile of a file's text. The name is for messages.
///
/// # Errors
///
/// See [`import`].
pub fn profile_of(text: &str, file: &str) -> Result<Imported, Failure> {
    let named = std::path::Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
    if let Some((what, expected)) = other::named(text) {
        return Err(Mistake::of("import", file).because(what).expected(expected).fail());
    }
    let text = &*foreign::with_matching_tags(text);
    let (simulator, found) = if let Some(xml) = mqsim::document(text, file)? {
        ("MQSim", mqsim::draft(Foreign::new(file, mqsim::parameters(&xml))))
    } else if let Some(parameters) = femu::parameters(text) {
        ("FEMU", femu::draft(Foreign::new(file, parameters)))
    } else if let Some(parameters) = simplessd::parameters(text) {
        ("SimpleSSD", simplessd::draft(Foreign::new(file, parameters)))
    } else {
        let expected = other::ACCEPTED;
        return Err(Mistake::of("import", file).because("of no known simulator").expected(expected).fail());
    };
    let (draft, unused) = found?;
    finish(simulator, &named, file, &draft, unused)
}

fn finish(
    simulator: &'static str,
    named: &str,
    file: &str,
    draft: &Draft,
    unused: Vec<Unused>,
) -> Result<Imported, Failure> {
    let name: String = named.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let description = format!("{simulator}'s drive of {named}");
    let mut profile = format!("# Made by `trimwise devices --import` of trimwise {}.\n\n", trimwise::VERSION);
    profile += &draft.text(&name, &description);
    if !unused.is_empty() {
        profile += "\n# Without a counterpart here:\n";
    }
    for Unused { parameter, value, because } in &unused {
        let _ = writeln!(profile, "# {parameter} = {}: {because}", value.escape_default());
    }
    // A number that no device here can have is reported with the parameter that it comes from.
    Profile::parse(&profile, file).map_err(|error| {
        let source = error
            .setting
            .as_deref()
            .and_then(|setting| draft.source(setting).map(|source| format!(" ({setting} is {source})")));
        let why = format!("the drive has no profile: {}{}", error.message, source.unwrap_or_default());
        Mistake::of("import", file).because(why).fail()
    })?;
    Ok(Imported { trimwise: trimwise::VERSION, simulator, profile, unused })
}

#[cfg(test)]
mod tests;
