//! Where results go.
//!
//! Nothing is overwritten without `--force`, and a bad destination is rejected before the run: nobody should wait
//! minutes to read that a file exists. Each file is written in full under a temporary name in the same directory and
//! then renamed, so a full disk leaves no half-written file. If that fails, the result is saved in the temporary
//! directory: no finished run is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;
use serde::Serialize;
use trimwise::failure::{Failure, Key, Mistake, set};
use trimwise::words;
use trimwise_linux::files::{give_name, open_output, unfinished_beside};
use trimwise_study::Versioned;
use trimwise_study::place::{check_directory, check_file, is_stdout, resolved, split_at_missing};

use crate::arguments::{JsonArguments, OutputArguments, TableArguments};
use crate::interrupt;
use crate::table::{export, fitted};

/// The form of a result for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Csv,
    Markdown,
}

impl Form {
    const fn key(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Markdown => "markdown",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Destinations {
    /// The result in another form than the text. The command line takes one at most.
    result: Option<(Form, PathBuf)>,
    report: Option<PathBuf>,
    force: bool,
}

impl Destinations {
    /// Checks that results can be written to their destinations.
    pub fn check(arguments: &OutputArguments) -> Result<Self, Failure> {
        let force = arguments.force;
        let TableArguments { csv, markdown } = &arguments.tables;
        let forms = [(Form::Json, &arguments.json), (Form::Csv, csv), (Form::Markdown, markdown)];
        let result = forms.into_iter().find_map(|(form, path)| Some((form, path.clone()?)));
        let file = result.as_ref().filter(|(_, path)| !is_stdout(path));
        if let (Some((form, path)), Some(report)) = (file, &arguments.report) {
            let (file, directory) = (resolved(path), resolved(report));
            if directory.starts_with(&file) || file == directory.join("index.html") {
                return Err(one_replaces((form.key().into(), path), ("report".into(), report)));
            }
        }
        if let Some((form, path)) = file {
            check_file(form.key(), path, force)?;
        }
        if let Some(directory) = &arguments.report {
            check_directory("report", directory)?;
            if directory.exists() {
                check_file("report", &directory.join("index.html"), force)?;
            }
        }
        Ok(Self { result, report: arguments.report.clone(), force })
    }

    /// Like [`Self::check`], for a command that writes JSON but no report.
    pub fn check_json(arguments: &JsonArguments) -> Result<Self, Failure> {
        Self::check_forms(arguments, &TableArguments::default())
    }

    /// Like [`Self::check`], for a command with tables but no report.
    pub fn check_forms(arguments: &JsonArguments, tables: &TableArguments) -> Result<Self, Failure> {
        let JsonArguments { json, force } = arguments.clone();
        let tables = tables.clone();
        Self::check(&OutputArguments { json, tables, force, ..OutputArguments::default() })
    }

    /// Returns true if standard output carries only the result for another program.
    pub fn result_to_stdout(&self) -> bool {
        self.result.as_ref().is_some_and(|(_, path)| is_stdout(path))
    }

    pub const fn wants_result(&self) -> bool {
        self.result.is_some()
    }

    pub fn wants_report(&self) -> bool {
        self.report.is_some()
    }

    /// Writes a result to its destinations and returns the text to print. If something cannot be written, prints the
    /// text and returns the failure.
    pub fn deliver<T: Serialize>(&self, json: &T, text: impl FnOnce() -> String) -> Result<String, Failure> {
        self.deliver_with_report(json, || Ok(String::new()), text)
    }

    /// Like [`Self::deliver`], with a report, which is made only if it is requested.
    pub fn deliver_with_report<T: Serialize>(
        &self,
        json: &T,
        html: impl FnOnce() -> Result<String, Failure>,
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        self.deliver_text(|| Versioned::of(json).text(), html, text)
    }

    /// Like [`Self::deliver_with_report`], for a list; each of its documents has the schema's number.
    pub fn deliver_list<T: Serialize>(
        &self,
        list: &[T],
        html: impl FnOnce() -> Result<String, Failure>,
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        let list: Vec<_> = list.iter().map(Versioned::of).collect();
        self.deliver_text(|| serde_json::to_string_pretty(&list), html, text)
    }

    fn deliver_text(
        &self,
        json: impl FnOnce() -> serde_json::Result<String>,
        html: impl FnOnce() -> Result<String, Failure>,
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        interrupt::begin_delivery();
        let form = self.result.as_ref().map(|(form, _)| *form);
        let is_shown = !self.result_to_stdout();
        // Tables are made with the text.
        let (mut text, tables) = match form {
            Some(Form::Csv | Form::Markdown) => export::tables_of(text),
            _ if is_shown => (text(), Vec::new()),
            _ => (String::new(), Vec::new()),
        };
        if !is_shown {
            text.clear();
        }
        let result = match form {
            Some(Form::Csv) => Ok(export::csv(&tables)),
            Some(Form::Markdown) => Ok(export::markdown(&tables)),
            Some(Form::Json) => json().map(|json| json + "\n"),
            None => Ok(String::new()),
        };
        let result = result.map_err(|e| Failure::run(format!("--json: {e}")));
        let written = result.and_then(|result| self.write_form(&result));
        let report = match self.wants_report() {
            true => html().and_then(|html| self.write_report(&html)),
            false => Ok(None),
        };
        if let Ok(Some(path)) = report.as_ref()
            && is_shown
        {
            text += &format!("Report: {}\n", path.display());
        }
        match both(written, report.map(drop)) {
            Ok(()) => Ok(text),
            failed => both(failed, print(&text)).map(|()| String::new()),
        }
    }

    fn write_form(&self, result: &str) -> Result<(), Failure> {
        let Some((form, path)) = &self.result else { return Ok(()) };
        let written = match is_stdout(path) {
            true => print_always(result),
            false => self.write_file(&format!("--{}", form.key()), path, result),
        };
        written.map_err(|failure| rescued(failure, form.key(), result))
    }

    fn write_report(&self, html: &str) -> Result<Option<PathBuf>, Failure> {
        let Some(directory) = &self.report else { return Ok(None) };
        let (there, missing) = split_at_missing(directory);
        let path = directory.join("index.html");
        let written = fs::create_dir_all(directory)
            .map_err(|e| Failure::run(format!("--report {}: {e}", directory.display())))
            .and_then(|()| self.write_file("--report", &path, html));
        if let Err(failure) = written {
            // Remove the directories created for it, unless something else is in them.
            let made: Vec<PathBuf> = missing.ancestors().map(|tail| there.join(tail)).collect();
            for directory in made.iter().take(made.len().saturating_sub(1)) {
                drop(fs::remove_dir(directory));
            }
            return Err(rescued(failure, "html", html));
        }
        Ok(Some(path))
    }

    /// Rejects another option's file if it exists or cannot be written, is standard output, or is also the file of the
    /// result.
    pub fn check_another(&self, key: &'static str, path: &Path) -> Result<(), Failure> {
        self.expect_apart(key, path)?;
        check_file(key, path, self.force)
    }

    /// Returns whether existing files may be replaced.
    pub fn replaces(&self) -> bool {
        self.force
    }

    /// Rejects another option's file if it is standard output, or also the file of the result.
    pub fn expect_apart(&self, key: impl Into<Key>, path: &Path) -> Result<(), Failure> {
        let key = key.into();
        if is_stdout(path) {
            return Err(Mistake::of(key, "-").because("cannot be printed").expected("a file").fail());
        }
        let Some((form, result)) = &self.result else { return Ok(()) };
        expect_two_files((form.key().into(), result), (key, path))
    }

    /// Rejects results inside another option's directory, which is read as a whole.
    pub fn expect_outside(&self, key: impl Into<Key>, directory: &Path) -> Result<(), Failure> {
        let result = self.result.as_ref().filter(|(_, path)| !is_stdout(path));
        let result = result.map(|(form, path)| (form.key(), path));
        let mut all = result.into_iter().chain(self.report.iter().map(|path| ("report", path)));
        match all.find(|(_, path)| resolved(path).starts_with(resolved(directory))) {
            None => Ok(()),
            Some((name, path)) => {
                let folder = set(key, directory.display());
                let of = Mistake::of(name, path.display());
                let why = words!["is in ", folder, ", which is read as a whole"];
                Err(of.that_is(why).expected("a place outside of it").fail())
            }
        }
    }

    /// Writes another option's result to a file that [`Self::check_another`] accepted.
    pub fn write_result(&self, option: &str, path: &Path, text: &str) -> Result<(), Failure> {
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        self.write_file(option, path, text).map_err(|failure| rescued(failure, &ending, text))
    }

    fn write_file(&self, option: &str, path: &Path, text: &str) -> Result<(), Failure> {
        let fail = |e: std::io::Error| Failure::run(format!("{option} {}: {e}", path.display()));
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            // For a pipe or /dev/null there is nothing to replace.
            return open_output(path).and_then(|mut f| f.write_all(text.as_bytes())).map_err(fail);
        }
        let temporary = unfinished_beside(path);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(fail)?;
        interrupt::set_unfinished(Some(&temporary));
        let written = file.write_all(text.as_bytes());
        let result = written.and_then(|()| give_name(&temporary, path, self.force));
        drop(fs::remove_file(&temporary)); // already gone if it was renamed
        interrupt::set_unfinished(None);
        result.map_err(fail)
    }
}

/// Rejects two options that name the same file.
pub fn expect_two_files((key, file): (Key, &Path), (other_key, other): (Key, &Path)) -> Result<(), Failure> {
    // Only regular files are replaced, so both options may name /dev/null.
    let is_file = fs::metadata(file).map_or(true, |found| found.is_file());
    if !is_file || resolved(file) != resolved(other) {
        return Ok(());
    }
    Err(one_replaces((key, file), (other_key, other)))
}

fn one_replaces((key, file): (Key, &Path), (other_key, other): (Key, &Path)) -> Failure {
    let both = Mistake::of(key, file.display()).and(Mistake::of(other_key, other.display()));
    both.because("one would replace the other").expected("two different places").fail()
}

/// Combines two results into one failure if both failed; each message says where its result was saved.
pub fn both(one: Result<(), Failure>, other: Result<(), Failure>) -> Result<(), Failure> {
    match (one, other) {
        (Err(one), Err(other)) => Err(one.and("; ", other)),
        (one, other) => one.and(other),
    }
}

/// How many names [`rescued_in`] tries.
const NAMES_MAX: u32 = 1000;

/// Saves a result that could not be written to its destination in the temporary directory, and adds its place to the
/// failure.
fn rescued(failure: Failure, ending: &str, text: &str) -> Failure {
    rescued_in(&std::env::temp_dir(), failure, ending, text)
}

fn rescued_in(directory: &Path, failure: Failure, ending: &str, text: &str) -> Failure {
    let name = format!("trimwise-{}", std::process::id());
    let open = |n: u32| {
        let name = if n == 1 { format!("{name}.{ending}") } else { format!("{name}-{n}.{ending}") };
        let path = directory.join(name);
        (OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path), path)
    };
    // Process ids repeat in containers, so an earlier result may already have this name.
    let is_free = |opened: &std::io::Result<File>| {
        !opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
    };
    let Some((opened, path)) = (1..=NAMES_MAX).map(open).find(|(opened, _)| is_free(opened)) else {
        return Failure::run(format!("{failure}; {} is full of earlier results", directory.display()));
    };
    let saved = opened.and_then(|mut file| {
        // A truncated file is useless.
        file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(&path)))
    });
    match saved {
        Ok(()) => Failure::run(format!("{failure}; the result was saved in {}", path.display())),
        Err(error) => Failure::run(format!("{failure}; {}: {error}", path.display())),
    }
}

pub use trimwise_study::SCHEMA;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Suppresses all text and progress (`--quiet`).
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints text to standard output, fitted to the terminal, unless `--quiet` is given.
pub fn print(text: &str) -> Result<(), Failure> {
    if is_quiet() { Ok(()) } else { print_always(fitted(text, &Term::stdout())) }
}

/// Returns the text if there is no failure; otherwise prints it, so that what was done is shown, and returns the
/// failure.
pub fn concluded(text: String, failure: Option<Failure>) -> Result<String, Failure> {
    match failure {
        None => Ok(text),
        Some(failure) => print(&text).and(Err(failure)),
    }
}

/// Prints to standard output. A reader that closes the pipe early (`| head`) is not an error.
pub fn print_always(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::run(format!("standard output: {e}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(json: &Path, force: bool) -> OutputArguments {
        OutputArguments { json: Some(json.to_path_buf()), force, ..OutputArguments::default() }
    }

    fn write(destinations: &Destinations, n: u32) -> Result<(), Failure> {
        destinations.write_form(&format!("{n}\n"))
    }

    #[test]
    fn a_file_that_came_into_being_during_the_run_is_not_replaced_either() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let destinations = Destinations::check(&to(&path, false)).unwrap();
        fs::write(&path, "precious").unwrap();
        let failure = write(&destinations, 1).unwrap_err();
        assert!(matches!(&failure, Failure::Run(m) if m.to_string().contains("r.json")), "{failure:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left next to it");
    }

    #[test]
    fn regression_json_does_not_replace_the_file_of_another_option() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let destinations = Destinations::check(&to(&path, true)).unwrap();
        let failure = destinations.expect_apart("out", &dir.path().join(".").join("t")).unwrap_err();
        assert!(failure.to_string().contains("one would replace the other"), "{failure}");
        assert!(destinations.expect_apart("out", &dir.path().join("u")).is_ok());
        assert!(destinations.expect_apart("out", Path::new("-")).is_err());
    }

    #[test]
    fn regression_results_do_not_go_among_those_of_a_sweep() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(dir.path().join(name));
        let outside = |json, report| {
            let arguments = OutputArguments { json, report, ..OutputArguments::default() };
            Destinations::check(&arguments).unwrap().expect_outside("out", &dir.path().join("r"))
        };
        fs::create_dir(dir.path().join("r")).unwrap();
        for (json, report) in [(at("r/./x.json"), None), (None, at("r")), (None, at("r/new"))] {
            let failure = outside(json, report).unwrap_err().to_string();
            assert!(failure.contains("/r, which is read as a whole; expected a place outside"), "{failure}");
        }
        outside(at("r.json"), at("report")).unwrap();
        outside(Some("-".into()), None).unwrap();
    }

    #[test]
    fn regression_a_result_in_the_temporary_directory_does_not_cost_an_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let saved = |text: &str| {
            let Failure::Run(said) =
                rescued_in(dir.path(), Failure::run("the disk is full".to_owned()), "json", text)
            else {
                panic!("another kind of failure")
            };
            let said = said.to_string();
            let (_, path) = said.split_once("the result was saved in ").unwrap();
            PathBuf::from(path)
        };
        let paths = ["one", "two", "three"].map(|text| (text, saved(text)));
        for (text, path) in paths {
            assert_eq!(fs::read_to_string(path).unwrap(), text);
        }
    }

    #[test]
    fn regression_two_results_that_cannot_be_written_are_both_saved_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let report = Some(dir.path().join("c").join("d".repeat(300)));
        let destinations =
            Destinations { result: Some((Form::Json, "/dev/full".into())), report, force: false };
        let failure = destinations.deliver_text(|| Ok("{}".to_owned()), || Ok("<p>".to_owned()), String::new);
        let said = failure.unwrap_err().to_string();
        let saved = said.split("the result was saved in ").skip(1);
        let paths: Vec<&str> = saved.filter_map(|path| path.split(';').next()).collect();
        let texts: Vec<_> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        paths.iter().for_each(|path| fs::remove_file(path).unwrap());
        assert_eq!(texts, ["{}\n", "<p>"], "{said}");
    }

    #[test]
    fn force_replaces_and_without_it_the_file_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        write(&Destinations::check(&to(&path, false)).unwrap(), 1).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        assert!(matches!(Destinations::check(&to(&path, false)), Err(Failure::Usage(_))));
        write(&Destinations::check(&to(&path, true)).unwrap(), 2).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_written_to_and_a_full_device_is_a_failure() {
        let null = Destinations::check(&to(Path::new("/dev/null"), false)).unwrap();
        assert_eq!(write(&null, 1), Ok(()));
        let full = Destinations::check(&to(Path::new("/dev/full"), false)).unwrap();
        assert!(matches!(write(&full, 1), Err(Failure::Run(_))));
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
        assert!(refused.to_string().contains("index.html: already exists"), "{refused}");
        Destinations::check(&arguments(true)).unwrap();
    }

    #[test]
    fn two_results_do_not_go_to_one_place() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(dir.path().join(name));
        let both = |json, report| {
            Destinations::check(&OutputArguments { json, report, force: true, ..OutputArguments::default() })
        };
        for (json, report) in [("a", "a"), ("a", "a/b"), ("index.html", ".")] {
            let failure = both(at(json), at(report)).unwrap_err().to_string();
            assert!(failure.contains("--json") && failure.contains("--report"), "{failure}");
        }
        both(at("a.json"), at("a")).unwrap();
        both(at("a.json"), at("")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the check leaves nothing behind");
    }

    #[test]
    fn a_place_where_nothing_can_be_made_is_refused_at_the_start() {
        // Not even root can make a file in /proc.
        let json = to(Path::new("/proc/r.json"), true);
        let report = OutputArguments { report: Some("/proc/a/b".into()), ..OutputArguments::default() };
        for (arguments, option) in [(json, "--json /proc/r.json"), (report, "--report /proc/a/b")] {
            let failure = Destinations::check(&arguments).unwrap_err();
            assert!(
                matches!(&failure, Failure::Usage(m) if m.to_string().starts_with(option)),
                "{failure:?}"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let below = OutputArguments { report: Some(dir.path().join("file/a")), ..OutputArguments::default() };
        assert!(matches!(Destinations::check(&below), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_report_that_cannot_be_written_leaves_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let arguments =
            OutputArguments { report: Some(dir.path().join("a/b")), ..OutputArguments::default() };
        let destinations = Destinations::check(&arguments).unwrap();
        // Something else has the name meanwhile.
        let taken = dir.path().join("a/b/index.html/taken");
        fs::create_dir_all(&taken).unwrap();
        assert!(matches!(destinations.write_report("<p>"), Err(Failure::Run(_))));
        assert!(taken.exists(), "what is there stays");
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        // With a name that is too long, the directory can be created but not the file in it.
        let long = Destinations { report: Some(dir.path().join("c").join("d".repeat(300))), ..destinations };
        assert!(matches!(long.write_report("<p>"), Err(Failure::Run(_))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
