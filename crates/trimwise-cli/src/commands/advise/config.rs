//! `advise --apply`: the advice as a configuration of trimwised.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use trimwise::compare::apply::{Apply, CONFIG_FOLDER};
use trimwise::policy::PolicySpec;
use trimwise_lab::failure::Failure;
use trimwise_linux::daemon::config::{Config, DEFAULT_FILE as MAIN_FILE};

use crate::output::Destinations;

/// Where `--apply` writes if no file is given.
pub const DEFAULT_FILE: &str = "/etc/trimwise.toml.d/advice.toml";

const OPTION: &str = "--apply";

/// A configuration that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The file.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// What to know about it.
    pub notes: Vec<String>,
}

/// Rejects a file that cannot be written, before anything runs.
pub fn check(file: &Path, force: bool, destinations: &Destinations) -> Result<(), Failure> {
    destinations.expect_apart(OPTION, file)?;
    if file.extension().is_none_or(|end| end != "toml") {
        return Err(Failure::usage(format!(
            "{OPTION} {}: trimwised would not read it; expected a name that ends in .toml",
            file.display()
        )));
    }
    match file.parent() {
        // It is made when there is something to write.
        Some(folder) if is_drop_in_folder(folder) && !folder.exists() => Ok(()),
        _ => Destinations::check_file(OPTION, file, force),
    }
}

fn is_drop_in_folder(folder: &Path) -> bool {
    folder.to_str().is_some_and(|folder| folder.ends_with(".toml.d"))
}

/// The text: a table for the mount, or the default of all file systems if none is known.
pub fn text(policy: PolicySpec, mount: Option<&str>, command: &str) -> String {
    let mut text = format!("# Written by `{command}`.\n");
    if let Some(mount) = mount {
        // JSON's strings are strings of TOML too.
        text += &format!("[mount.{}]\n", serde_json::Value::from(mount));
    }
    text += &format!("policy = \"{policy}\"\n");
    if policy.toggles_discard() {
        text += "# It is followed by switching the mount option discard.\ntoggle = true\n";
    }
    text
}

/// Writes it. Nothing is written that trimwised would not accept.
pub fn write(
    file: &Path,
    (policy, mount): (PolicySpec, Option<&str>),
    command: &str,
    destinations: &Destinations,
) -> Result<Written, Failure> {
    let text = text(policy, mount, &command.replace(char::is_control, " "));
    let failed = |e: &dyn std::fmt::Display| Failure::run(format!("{OPTION} {}: {e}", file.display()));
    let parsed = Config::parse(&[(file.to_owned(), text.clone())]).map_err(|e| failed(&e))?;
    if policy_of(&parsed, mount) != Some(policy) {
        return Err(failed(&"trimwised would read another policy from it"));
    }
    let folder = file.parent().filter(|folder| is_drop_in_folder(folder));
    if let Some(folder) = folder {
        fs::create_dir_all(folder).map_err(|e| failed(&e))?;
    }
    destinations.write_result(OPTION, file, &text)?;
    Ok(Written { file: file.to_owned(), text, notes: notes(file, folder, policy, mount) })
}

fn policy_of(config: &Config, mount: Option<&str>) -> Option<PolicySpec> {
    match mount {
        Some(mount) => config.treatment(Path::new(mount)).map(|treatment| treatment.policy),
        None => Some(config.default.policy),
    }
}

/// Reads the whole configuration as trimwised will, and says what stands in the way.
fn notes(file: &Path, folder: Option<&Path>, policy: PolicySpec, mount: Option<&str>) -> Vec<String> {
    let mut notes = Vec::new();
    if mount.is_none() {
        notes.push(
            "It holds for all file systems that trimwised manages; --here would make it a table for one of them."
                .to_owned(),
        );
    }
    let main = folder.and_then(|folder| folder.to_str()?.strip_suffix(".d")).map(PathBuf::from);
    let Some(main) = main.filter(|main| main.exists() || main == Path::new(MAIN_FILE)) else {
        notes.push(format!(
            "trimwised reads {}/*.toml by default: {} is not there.",
            CONFIG_FOLDER,
            file.display()
        ));
        return notes;
    };
    match Config::load(&main) {
        Err(errors) => notes.push(format!("trimwised refuses its configuration as a whole: {errors}")),
        Ok(config) if policy_of(&config, mount) != Some(policy) => notes.push(format!(
            "Another file sets the policy to `{}` and wins; see `trimwise config check {}`.",
            policy_of(&config, mount).map_or_else(|| "none".to_owned(), |p| p.to_string()),
            main.display()
        )),
        Ok(_) => notes.push("trimwised accepts its configuration with this file.".to_owned()),
    }
    notes
}

/// The steps that are left: for this mount if it is known, and without those that write what is `written` already.
pub fn steps(steps: &[Apply], mount: Option<&str>, written: Option<&Written>) -> Vec<Apply> {
    let is_plain = |mount: &&str| mount.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let mount = mount.filter(is_plain).unwrap_or("MOUNT");
    let is_left = |command: &&String| written.is_none() || !command.contains(CONFIG_FOLDER);
    let left = |step: &Apply| Apply {
        what: step.what.replace("MOUNT", mount),
        commands: step.commands.iter().filter(is_left).map(|c| c.replace("MOUNT", mount)).collect(),
    };
    steps.iter().map(left).collect()
}
