//! Where results go.
//!
//! Nothing is overwritten unasked, and whatever would be refused is refused before the run, not after it:
//! nobody should wait for minutes to read that a file exists. Each file is written whole under another name
//! in the same directory and then put in its place, so that a full disk leaves no half of one.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::arguments::OutputArguments;
use crate::failure::Failure;

/// The places that the user asked results to be put in.
#[derive(Clone, Debug)]
pub struct Destinations {
    json: Option<PathBuf>,
    report: Option<PathBuf>,
    force: bool,
}

impl Destinations {
    /// Checks that results can go where they were asked to.
    pub fn check(arguments: &OutputArguments) -> Result<Self, Failure> {
        let force = arguments.force;
        if let Some(json) = arguments.json.as_deref().filter(|p| !is_stdout(p)) {
            check_file("--json", json, force)?;
        }
        if let Some(directory) = &arguments.report {
            let shown = directory.display();
            match fs::metadata(directory) {
                Ok(m) if !m.is_dir() => {
                    return Err(Failure::usage(format!("--report {shown}: exists and is not a directory")));
                }
                Ok(_) => check_file("--report", &directory.join("index.html"), force)?,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(Failure::usage(format!("--report {shown}: {e}"))),
            }
        }
        Ok(Self { json: arguments.json.clone(), report: arguments.report.clone(), force })
    }

    /// Whether standard output is for JSON alone.
    pub fn json_to_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(is_stdout)
    }

    /// Whether a report is wanted.
    pub fn wants_report(&self) -> bool {
        self.report.is_some()
    }

    /// Writes JSON to where it was asked, if it was.
    pub fn write_json(&self, json: &impl serde::Serialize) -> Result<(), Failure> {
        let Some(path) = &self.json else { return Ok(()) };
        let mut text =
            serde_json::to_string_pretty(json).map_err(|e| Failure::run(format!("--json: {e}")))?;
        text.push('\n');
        if is_stdout(path) { print(&text) } else { self.write_file("--json", path, &text) }
    }

    /// Writes the report and answers where.
    pub fn write_report(&self, html: &str) -> Result<Option<PathBuf>, Failure> {
        let Some(directory) = &self.report else { return Ok(None) };
        fs::create_dir_all(directory)
            .map_err(|e| Failure::run(format!("--report {}: {e}", directory.display())))?;
        let path = directory.join("index.html");
        self.write_file("--report", &path, html)?;
        Ok(Some(path))
    }

    fn write_file(&self, option: &str, path: &Path, text: &str) -> Result<(), Failure> {
        let fail = |e: std::io::Error| Failure::run(format!("{option} {}: {e}", path.display()));
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            // A pipe or /dev/null: there is nothing to replace.
            return OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|mut f| f.write_all(text.as_bytes()))
                .map_err(fail);
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.new", std::process::id()));
        let beside = path.with_file_name(name);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&beside).map_err(fail)?;
        let result = file.write_all(text.as_bytes()).and_then(|()| {
            if self.force {
                fs::rename(&beside, path)
            } else {
                // Unlike a rename, a link does not replace a file that came into being during the run.
                match fs::hard_link(&beside, path) {
                    Err(e) if e.kind() != ErrorKind::AlreadyExists && !path.exists() => {
                        fs::rename(&beside, path)
                    }
                    other => other,
                }
            }
        });
        drop(fs::remove_file(&beside)); // gone already if it was renamed
        result.map_err(fail)
    }
}

/// Prints to standard output. A reader who has seen enough (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::run(format!("standard output: {e}"))),
        _ => Ok(()),
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn check_file(option: &str, path: &Path, force: bool) -> Result<(), Failure> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(m) if m.is_dir() => return Err(Failure::usage(format!("{option} {shown}: is a directory"))),
        Ok(m) if m.is_file() && !force => {
            return Err(Failure::usage(format!("{option} {shown}: exists already; --force replaces it")));
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !parent.is_dir() {
                let parent = parent.display();
                return Err(Failure::usage(format!("{option} {shown}: there is no directory {parent}")));
            }
        }
        Err(e) => return Err(Failure::usage(format!("{option} {shown}: {e}"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(json: &Path, force: bool) -> OutputArguments {
        OutputArguments { json: Some(json.to_path_buf()), force, ..OutputArguments::default() }
    }

    #[test]
    fn a_file_that_came_into_being_during_the_run_is_not_replaced_either() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let destinations = Destinations::check(&to(&path, false)).unwrap();
        fs::write(&path, "precious").unwrap();
        let failure = destinations.write_json(&1).unwrap_err();
        assert!(matches!(&failure, Failure::Run(m) if m.contains("r.json")), "{failure:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn force_replaces_and_without_it_the_file_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        Destinations::check(&to(&path, false)).unwrap().write_json(&1).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        assert!(matches!(Destinations::check(&to(&path, false)), Err(Failure::Usage(_))));
        Destinations::check(&to(&path, true)).unwrap().write_json(&2).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_written_to_and_a_full_device_is_a_failure() {
        let null = Destinations::check(&to(Path::new("/dev/null"), false)).unwrap();
        assert_eq!(null.write_json(&1), Ok(()));
        let full = Destinations::check(&to(Path::new("/dev/full"), false)).unwrap();
        assert!(matches!(full.write_json(&1), Err(Failure::Run(_))));
    }

    #[test]
    fn reports_get_their_directory_and_keep_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let arguments = |force| OutputArguments {
            report: Some(dir.path().join("a/b")),
            force,
            ..OutputArguments::default()
        };
        let made = Destinations::check(&arguments(false)).unwrap().write_report("<p>").unwrap().unwrap();
        assert_eq!(fs::read_to_string(&made).unwrap(), "<p>");
        let refused = Destinations::check(&arguments(false)).unwrap_err();
        assert!(refused.to_string().contains("index.html: exists already"), "{refused}");
        Destinations::check(&arguments(true)).unwrap();
    }
}
