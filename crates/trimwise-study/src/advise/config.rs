//! `advise --apply`: the advice as a configuration of trimwised.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trimwise::compare::apply::{Apply, CONFIG_FOLDER};
use trimwise::policy::PolicySpec;
use trimwise_lab::failure::Failure;
use trimwise_linux::daemon::config::{Config, DEFAULT_FILE as MAIN_FILE};

use crate::place::check_file;

/// Where `--apply` writes if no file is given.
pub const DEFAULT_FILE: &str = "/etc/trimwise.toml.d/advice.toml";

/// The option that names the file.
pub const OPTION: &str = "--apply";

/// A configuration that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The file.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// What to know about it.
    pub notes: Vec<String>,
}

/// Rejects a file that cannot be written, before anything runs.
pub fn check(file: &Path, force: bool) -> Result<(), Failure> {
    if file.extension().is_none_or(|end| end != "toml") {
        return Err(Failure::usage(format!(
            "{OPTION} {}: trimwised would not read it; expected a name that ends in .toml",
            file.display()
        )));
    }
    match file.parent() {
        // It is made when there is something to write.
        Some(folder) if is_drop_in_folder(folder) && !folder.exists() => Ok(()),
        _ => check_file(OPTION, file, force),
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

/// Writes it by `write`. Nothing is written that trimwised would not accept.
pub fn write(
    file: &Path,
    (policy, mount): (PolicySpec, Option<&str>),
    command: &str,
    write: impl FnOnce(&str) -> Result<(), Failure>,
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
    write(&text)?;
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

#[cfg(test)]
mod tests {
    use trimwise::compare::apply::apply;

    use super::*;

    /// Writes as the command does, with or without `--force`.
    fn writer(file: &Path, force: bool) -> impl FnOnce(&str) -> Result<(), Failure> {
        let file = file.to_owned();
        move |text| {
            check_file(OPTION, &file, force)?;
            fs::write(&file, text).map_err(Failure::run)
        }
    }

    #[test]
    fn what_is_written_is_what_trimwised_reads() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("trimwise.toml");
        fs::write(&main, "slice-ms = 50\n").unwrap();
        let file = folder.path().join("trimwise.toml.d/advice.toml");
        check(&file, false).unwrap();
        for (policy, mount, toggles) in [
            ("set:40:90", Some("/home"), true),
            ("judicious", Some("/a \"b\"\\c\n\u{fc}"), false),
            ("set:70:80+lazy:1:1+reuse+merge", None, false),
        ] {
            let spec: PolicySpec = policy.parse().unwrap();
            let written = write(&file, (spec, mount), "trimwise advise\n", writer(&file, true)).unwrap();
            let config = Config::load(&main).unwrap();
            let treatment =
                mount.map_or(Some(config.default), |mount| config.treatment(Path::new(mount))).unwrap();
            assert_eq!(
                (treatment.policy, treatment.settings.may_toggle),
                (spec, toggles),
                "{}",
                written.text
            );
            assert_eq!(written.notes.last().unwrap(), "trimwised accepts its configuration with this file.");
            assert_eq!(written.notes.len(), if mount.is_none() { 2 } else { 1 });
        }
        // Nothing is replaced unless asked for.
        let refused = check(&file, false).unwrap_err().to_string();
        assert!(refused.contains("already exists; pass --force"), "{refused}");
        let spec = PolicySpec::JUDICIOUS;
        assert!(write(&file, (spec, None), "", writer(&file, false)).is_err());
        assert!(fs::read_to_string(&file).unwrap().contains("set:70:80"), "what was there stays");
    }

    #[test]
    fn what_stands_in_the_way_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("trimwise.toml");
        let file = folder.path().join("trimwise.toml.d/advice.toml");
        let write =
            || write(&file, (PolicySpec::JUDICIOUS, Some("/home")), "x", writer(&file, true)).unwrap().notes;
        assert!(write()[0].contains("is not there"), "no main file");
        fs::write(&main, "").unwrap();
        fs::write(folder.path().join("trimwise.toml.d/z.toml"), "[mount.\"/home\"]\npolicy = \"off\"\n")
            .unwrap();
        assert!(write()[0].contains("Another file sets the policy to `off` and wins"), "{:?}", write());
        fs::write(&main, "colour = 1\n").unwrap();
        assert!(write()[0].contains("refuses its configuration as a whole"), "{:?}", write());
    }

    #[test]
    fn names_that_trimwised_would_not_read_are_refused() {
        for (file, expected) in [
            ("advice.conf", "ends in .toml"),
            ("/no/such/folder/advice.toml", "does not exist"),
            ("-", "ends in .toml"),
        ] {
            let refused = check(Path::new(file), true).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn the_steps_that_are_left_name_the_mount_and_write_nothing_again() {
        let all = apply(&"set:40:90".into(), None);
        let written = Written { file: "x".into(), text: String::new(), notes: Vec::new() };
        let commands =
            |steps: Vec<Apply>| steps.into_iter().flat_map(|step| step.commands).collect::<Vec<_>>();
        let left = commands(steps(&all, Some("/home"), Some(&written)));
        assert_eq!(left[0], "trimwise config check");
        assert!(commands(steps(&all, Some("/home"), None))[1].contains("[mount.\"/home\"]"));
        assert!(commands(steps(&all, Some("/a b"), None))[1].contains("MOUNT"), "to be quoted by the user");
    }
}
