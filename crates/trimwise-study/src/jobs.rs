//! fio job files on this computer: their includes, variables, and folders of them.

use std::path::{Path, PathBuf};

use serde::Serialize;
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::spelling::Accepted;
use trimwise::workload::apps::ALL;
use trimwise::workload::fio::Surroundings;
use trimwise::workload::program::Program;
use trimwise_linux::files::read_input;

use crate::input;

/// Names the expected input in messages.
const WHAT: &str = "a fio job file (a folder of them is an entry of a sweep's `workloads`)";
const INCLUDED_BYTES_MAX: u64 = 1 << 20;

/// Resolves includes in the folder of a job file, and variables in the environment.
struct Folder(PathBuf);

impl Surroundings for Folder {
    fn included(&self, name: &str) -> Result<String, String> {
        let here = Path::new(name);
        let path = if here.exists() { here.to_owned() } else { self.0.join(name) };
        let bytes = read_input(&path, INCLUDED_BYTES_MAX + 1).map_err(|e| e.to_string())?;
        if bytes.len() as u64 > INCLUDED_BYTES_MAX {
            return Err("larger than 1 MiB".to_owned());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// Reads the program of an argument: an application, or a job file with overrides.
///
/// # Errors
///
/// Names every mistake in a job file.
pub fn program(argument: &str) -> Result<Program, Failure> {
    let file = Program::job_file(argument);
    let text = file.map_or(Ok(String::new()), |file| input::read(file, "workload", WHAT, &[]))?;
    let folder = Path::new(file.unwrap_or_default()).parent().unwrap_or(Path::new(""));
    let program = Program::read(argument, &text, &Folder(folder.to_owned()));
    program.map_err(|e| Mistake::on("workload").because(e.words()).fail())
}

/// Expands an argument that names a folder to its job files, sorted by name, each with the overrides. Any other
/// argument is returned unchanged.
///
/// # Errors
///
/// If the folder cannot be read or has no job files. Names every mistake in any of them.
pub fn in_folder(argument: &str) -> Result<Vec<String>, Failure> {
    let Some(folder) = Program::job_file(argument).filter(|file| Path::new(file).is_dir()) else {
        return Ok(vec![argument.to_owned()]);
    };
    let of = Mistake::of("workload", argument);
    let fail = |why: std::io::Error| of.clone().because(why.to_string()).fail();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|extension| extension == "fio" || extension == "job") {
            files.push(path.display().to_string());
        }
    }
    if files.is_empty() {
        let why = "no file in the folder ends with .fio or .job";
        return Err(of.because(why).expected("a folder of job files").fail());
    }
    files.sort_unstable();
    let rest = argument.strip_prefix("job:").and_then(|rest| rest.strip_prefix(folder)).unwrap_or_default();
    let arguments: Vec<String> = files.into_iter().map(|file| format!("job:{file}{rest}")).collect();
    Mistakes::of(arguments.iter().map(|argument| program(argument).map(drop)))?;
    Ok(arguments)
}

/// A job file as trimwise understands it.
#[derive(Debug, Serialize)]
pub struct Understood {
    pub trimwise: &'static str,
    pub workload: String,
    /// One line for each job: its operations, files and end.
    pub jobs: Vec<String>,
    /// Space that the files take; `None` if some fill the free space.
    pub needed_bytes: Option<u64>,
    pub tasks: u32,
    pub notes: Vec<String>,
}

impl Understood {
    /// Reads a job file.
    ///
    /// # Errors
    ///
    /// Names every mistake in it.
    pub fn of(argument: &str) -> Result<Self, Failure> {
        let of = Mistake::of(trimwise::failure::argument("workload"), argument);
        let fail = || {
            let names = ALL.iter().map(|spec| spec.name).collect::<Vec<_>>();
            let all = format!("job:FILE.fio, or one of {}", names.join(", "));
            let accepted = Accepted::instead_of(argument, names, all);
            of.clone().because("neither a named workload nor a fio job").expected(accepted).fail()
        };
        if Program::job_file(argument).is_none() {
            return Err(fail());
        }
        let Program::Fio(_, jobs) = program(argument)? else { return Err(fail()) };
        Ok(Self {
            trimwise: trimwise::VERSION,
            workload: argument.to_owned(),
            jobs: jobs.description().to_string().lines().map(str::to_owned).collect(),
            needed_bytes: Some(jobs.needed().0).filter(|_| !jobs.fills_space()),
            tasks: jobs.tasks(),
            notes: jobs.notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_its_job_files_and_includes_are_found_next_to_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, text) in
            [("b.fio", "[b]\ninclude common.inc\n"), ("a.job", "[a]\nsize=1m\n"), ("common.inc", "size=2m\n")]
        {
            std::fs::write(path(name), text).unwrap();
        }
        let all = in_folder(&format!("job:{}:bs=8k", path(""))).unwrap();
        let base = path("");
        let expected = ["a.job", "b.fio"].map(|name| format!("job:{base}{name}:bs=8k"));
        assert_eq!(all, expected);
        assert_eq!(in_folder("lsm:reads=1").unwrap(), ["lsm:reads=1"]);
        let understood = Understood::of(&all[1]).unwrap();
        assert_eq!((understood.needed_bytes, understood.tasks), (Some(2 << 20), 1));
        let filling = Understood::of(&format!("{}:size=50%", all[1])).unwrap();
        assert_eq!(filling.needed_bytes, None, "half of a file system of unknown size");
        std::fs::remove_file(path("common.inc")).unwrap();
        std::fs::write(path("c.fio"), "[c]\nszie=1m\n").unwrap();
        let errors = in_folder(&format!("job:{}", path(""))).unwrap_err().to_string();
        let parts = ["b.fio: line 2: include common.inc:", "c.fio: line 2: fio has no option 'szie'"];
        assert!(parts.iter().all(|part| errors.contains(part)), "{errors}");
        let error = Understood::of(&all[1]).unwrap_err().to_string();
        assert!(error.contains("line 2: include common.inc:"), "{error}");
        let error = Understood::of("backup").unwrap_err().to_string();
        assert!(error.contains("expected job:FILE.fio, or one of lsm, "), "{error}");
    }
}
