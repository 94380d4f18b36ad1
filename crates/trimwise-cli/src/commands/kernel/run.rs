//! `trimwise kernel run`: a program on this computer on a real kernel, in virtual time.

use std::io::{IsTerminal, Read, Write as _};
use std::path::{Path, PathBuf};

use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_study::caller::Caller;
use trimwise_study::kernel::run::Plan;
use trimwise_study::kernel::trace::DriveTrace;
use trimwise_uml::job::Said;

use super::table;
use crate::arguments::JsonArguments;
use crate::commands::kernel::arguments::KernelRunArguments;
use crate::output::{self, Destinations};

/// Most bytes of standard input for a program: they are held in memory.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Runs the command; prints the program's output, and returns what is left to print.
pub fn run(arguments: &KernelRunArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations =
        Destinations::check_json(&JsonArguments { json: arguments.json.clone(), force: arguments.force })?;
    let to_trace = |option: &'static str, path: &Option<PathBuf>| {
        path.as_deref().map(|path| TraceFile::check(option, path, &destinations)).transpose()
    };
    let trace_to = to_trace("--trace", &arguments.trace)?;
    let disk_trace_to = to_trace("--disk-trace", &arguments.disk_trace)?;
    if let Some(log) = &arguments.kernel_log {
        destinations.check_another("--kernel-log", log)?;
    }
    let files = [
        ("--trace", arguments.trace.as_deref()),
        ("--disk-trace", arguments.disk_trace.as_deref()),
        ("--kernel-log", arguments.kernel_log.as_deref()),
    ];
    let files: Vec<_> = files.into_iter().filter_map(|(option, file)| Some((option, file?))).collect();
    for (at, one) in files.iter().enumerate() {
        files[..at].iter().try_for_each(|other| output::expect_two_files(*other, *one))?;
    }
    let request = arguments.request();
    let plan = Plan::of(&request)?;
    let mut log = Vec::new();
    let ran = plan.run(input()?, caller, &mut log);
    let logged = match &arguments.kernel_log {
        Some(path) if ran.is_ok() || !log.is_empty() => {
            let text = String::from_utf8_lossy(&log).replace('\r', "");
            destinations.write_result("--kernel-log", path, &text)
        }
        _ => Ok(()),
    };
    let ran = match ran {
        Ok(ran) => ran,
        Err(failure) => return output::both(logged, Err(failure)).map(|()| String::new()),
    };
    // One destination that fails costs no other one its result.
    let traced = [(trace_to, &ran.trace), (disk_trace_to, &ran.disk_trace)].into_iter().map(|(to, trace)| {
        to.zip(trace.as_ref()).map_or(Ok(()), |(to, trace)| to.write(&destinations, trace))
    });
    let traced = traced.fold(Ok(()), output::both);
    let report = &ran.report;
    let printed = if destinations.json_to_stdout() {
        Ok(())
    } else {
        // A closed standard error is no failure.
        let _ = std::io::stderr().write_all(&report.program.errors.0);
        output::print_always(&report.program.output.0)
    };
    let delivered = destinations.deliver(report, || table::run(report, ran.wall_s));
    let delivered = delivered.and_then(|text| output::print(&text));
    output::both(logged, output::both(traced, output::both(printed, delivered)))?;
    report.failure().map_or(Ok(String::new()), Err)
}

/// Where the trace goes, and how it is written.
struct TraceFile {
    option: &'static str,
    path: PathBuf,
    form: Form,
}

#[derive(Clone, Copy)]
enum Form {
    Csv,
    Json,
    /// blktrace's binary records.
    Blktrace,
    /// trimwise's own.
    Own,
}

impl TraceFile {
    /// Checks the file of an option.
    fn check(option: &'static str, path: &Path, destinations: &Destinations) -> Result<Self, Failure> {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let form = match () {
            () if name.ends_with(".json") => Form::Json,
            () if name.ends_with(".csv") => Form::Csv,
            () if name.ends_with(".blktrace") || name.ends_with(".blktrace.0") => Form::Blktrace,
            () if name.ends_with(".trace") || name.ends_with(".trace.zst") => Form::Own,
            () => {
                let what = format!(
                    "{option} {}: expected FILE.csv, FILE.json, FILE.blktrace (or FILE.blktrace.0) for blkparse and btt, or \
                     FILE.trace or FILE.trace.zst for `trimwise trace`",
                    path.display()
                );
                return Err(Failure::usage(what));
            }
        };
        destinations.check_another(option, path)?;
        Ok(Self { option, path: path.to_owned(), form })
    }

    fn write(&self, to: &Destinations, trace: &DriveTrace) -> Result<(), Failure> {
        let failed = |e| Failure::run(format!("{} {}: {e}", self.option, self.path.display()));
        let text = match self.form {
            Form::Own => return trace.write_own(&self.path, to.replaces()).map_err(failed),
            Form::Blktrace => return trace.write_blktrace(&self.path, to.replaces()).map_err(failed),
            Form::Json => trace.json().map_err(Failure::run)?,
            Form::Csv => trace.csv(),
        };
        to.write_result(self.option, &self.path, &text)
    }
}

/// Reads the program's input: standard input, unless that is a terminal.
fn input() -> Result<Said, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(Said::default());
    }
    let mut bytes = Vec::new();
    let read = stdin.lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::usage(format!("standard input: {e}")))?;
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        return Err(Failure::usage(format!("standard input: larger than {}", Bytes(INPUT_BYTES_MAX))));
    }
    Ok(Said(bytes))
}
