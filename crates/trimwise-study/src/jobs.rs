//! What a workload does; and fio job files on this computer: their includes, variables, and folders of them.

use std::path::{Path, PathBuf};

use serde::Serialize;
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::numbers::grouped;
use trimwise::units::Bytes;
use trimwise::workload::apps::parameters::Parameter;
use trimwise::workload::apps::{ALL, Application};
use trimwise::workload::fio::Surroundings;
use trimwise::workload::postmark::PostmarkConfig;
use trimwise::workload::program::Program;
use trimwise::workload::timed::Timed;
use trimwise_linux::files::read_input;

use crate::compare::workload::{Kind, Workload};
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

/// A workload as trimwise understands it.
#[derive(Debug, Serialize)]
pub struct Understood {
    pub trimwise: &'static str,
    pub workload: String,
    /// Of a job file, one line for each job: its operations, files and end. Otherwise what the workload does, and its
    /// parameters.
    pub jobs: Vec<String>,
    /// Space that the files take; `None` if some fill the free space, or if nobody knows.
    pub needed_bytes: Option<u64>,
    pub tasks: u32,
    pub notes: Vec<String>,
}

impl Understood {
    /// Reads any workload that `compare` takes.
    ///
    /// # Errors
    ///
    /// Names every mistake in a job file, and what would be accepted in place of an unknown name.
    pub fn of(argument: &str) -> Result<Self, Failure> {
        let workload = Workload::named(argument).map_err(of_argument)?;
        let needed = workload.needed();
        let (jobs, tasks) = match &workload.kind {
            Kind::Program(Program::Fio(_, jobs), _) => {
                (jobs.description().to_string().lines().map(str::to_owned).collect(), jobs.tasks())
            }
            Kind::Program(Program::Applications(all), _) => {
                (all.iter().flat_map(described).collect(), all.iter().map(Application::tasks).sum())
            }
            Kind::Postmark(run, _) => (vec![of_postmark(&run.config)], 1),
            Kind::Timed(timed) => (vec![of_timed(*timed)], 1),
            Kind::Trace(_) => (
                vec![
                    "the requests of a trace, which has no files (`trimwise trace info` has more)".to_owned(),
                ],
                1,
            ),
            Kind::Command(_) => (vec!["programs of your own, on a real kernel or directory".to_owned()], 1),
        };
        let fills_space = match &workload.kind {
            Kind::Program(Program::Fio(_, jobs), _) => jobs.fills_space(),
            Kind::Timed(timed) => timed.fills(),
            // Nobody knows the files of other programs.
            Kind::Command(_) => true,
            Kind::Program(..) | Kind::Postmark(..) | Kind::Trace(_) => false,
        };
        let notes = match workload.kind {
            Kind::Program(Program::Fio(_, jobs), _) => jobs.notes,
            _ => Vec::new(),
        };
        Ok(Self {
            trimwise: trimwise::VERSION,
            workload: argument.to_owned(),
            jobs,
            needed_bytes: (!fills_space).then_some(needed.0),
            tasks,
            notes,
        })
    }
}

/// Names the field as the argument that it is here.
fn of_argument(failure: Failure) -> Failure {
    let Failure::Usage(Mistakes(mut mistakes)) = failure else { return failure };
    let argument = trimwise::failure::argument("workload");
    for asked in mistakes.iter_mut().flat_map(|mistake| &mut mistake.asked) {
        if asked.key.name() == argument.name() {
            asked.key = argument.clone();
        }
    }
    Failure::Usage(Mistakes(mistakes))
}

fn described(application: &Application) -> Vec<String> {
    let spec = ALL.iter().find(|spec| spec.name == application.name());
    let Some(spec) = spec else { return vec![application.to_string()] };
    let parameter = |parameter: &Parameter| {
        let default = parameter.shown(parameter.default);
        let value = match application.given(parameter) {
            Some(given) => format!("{} (default {default})", parameter.shown(given)),
            None => default,
        };
        format!("  {}={value}: {}", parameter.name, parameter.about)
    };
    std::iter::once(format!("{}: {}", spec.name, spec.about)).chain(spec.all().map(parameter)).collect()
}

fn of_postmark(config: &PostmarkConfig) -> String {
    let PostmarkConfig { number, transactions, size_low, size_high, read_block, write_block, .. } = config;
    format!(
        "PostMark: creates {} files of {} to {}, does {} transactions on them (each reads a file or appends to it, and \
         creates one or deletes one) and deletes the rest; reads of {} and writes of {}",
        grouped(u64::from(*number)),
        Bytes(u64::from(*size_low)),
        Bytes(u64::from(*size_high)),
        grouped(u64::from(*transactions)),
        Bytes(u64::from(*read_block)),
        Bytes(u64::from(*write_block)),
    )
}

fn of_timed(timed: Timed) -> String {
    let file = timed.file();
    let made = format!("makes a fragmented file of {} in appends of {}", file.file, file.append);
    match timed {
        Timed::Append(_) => format!("{made}, removes it, and times the fsync after that"),
        Timed::FullWrite { fsync, .. } => {
            let durably = if fsync { ", with an fsync" } else { "" };
            format!(
                "fills the file system and {made}, removes that{durably}, and times a write that needs its space"
            )
        }
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
        assert!(error.contains("or one of default, lsm, ") && error.contains("job:FILE.fio"), "{error}");
    }
}
