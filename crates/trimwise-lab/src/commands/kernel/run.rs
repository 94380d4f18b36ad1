//! `trimwise kernel run`: runs a program of this computer on a real kernel, in virtual time.

use std::io::{IsTerminal, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::requests::kernel::run::{Plan, Watch};
use crate::requests::kernel::trace::DriveTrace;
use trimwise::failure::{Door, Failure, Mistake};
use trimwise::units::Bytes;
use trimwise_study::caller::Caller;
use trimwise_uml::channel::{Says, Stream};
use trimwise_uml::job::Said;

use super::table;
use crate::commands::kernel::arguments::KernelRunArguments;
use trimwise_cli::arguments::JsonArguments;
use trimwise_cli::interrupt;
use trimwise_cli::output::{self, Destinations};

/// Most bytes of standard input that a program can get, since they are held in memory.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// How long an interrupted command waits for its reader to take the rest of the output.
const READER_PATIENCE: Duration = Duration::from_secs(2);

/// Runs the command. The program's output is printed as it comes; what remains to be printed is returned.
pub fn run(arguments: &KernelRunArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations =
        Destinations::check_json(&JsonArguments { json: arguments.json.clone(), force: arguments.force })?;
    let to_trace = |option: &'static str, path: &Option<PathBuf>| {
        path.as_deref().map(|path| TraceFile::check(option, path, &destinations)).transpose()
    };
    let trace_to = to_trace("trace", &arguments.trace)?;
    let disk_trace_to = to_trace("disk_trace", &arguments.disk_trace)?;
    if let Some(log) = &arguments.kernel_log {
        destinations.check_another("kernel_log", log)?;
    }
    let files = [
        ("trace", arguments.trace.as_deref()),
        ("disk_trace", arguments.disk_trace.as_deref()),
        ("kernel_log", arguments.kernel_log.as_deref()),
    ];
    let files: Vec<_> = files.into_iter().filter_map(|(name, file)| Some((name.into(), file?))).collect();
    for (at, one) in files.iter().enumerate() {
        files[..at].iter().try_for_each(|other| output::expect_two_files(other.clone(), one.clone()))?;
    }
    let request = arguments.request();
    let plan = Plan::of(&request)?;
    let input = input()?;
    let printer = Printer::start()?;
    let mut print = |stream, piece: &[u8]| printer.print(stream, piece);
    let mut log = Vec::new();
    // Standard output is reserved for the JSON, which includes the program's output.
    let says: Option<&mut Says<'_>> = if destinations.result_to_stdout() { None } else { Some(&mut print) };
    let ran = plan.run(input, caller, Watch { says, log: &mut log });
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
    // If one destination fails, the others still get their results.
    let traced = [(trace_to, &ran.trace), (disk_trace_to, &ran.disk_trace)].into_iter().map(|(to, trace)| {
        to.zip(trace.as_ref()).map_or(Ok(()), |(to, trace)| to.write(&destinations, trace))
    });
    let traced = traced.fold(Ok(()), output::both);
    let report = &ran.report;
    // Write the files first: the reader of the output may be gone.
    let delivered = destinations.deliver(report, || match report.phases.is_empty() {
        true => String::new(),
        false => table::run(report, ran.wall_s),
    });
    let printed = printer.finish(ran.failure == Some(Failure::Interrupted));
    // If the output could not be printed, the table cannot be either.
    let delivered = delivered.and_then(|text| if printed.is_ok() { output::print(&text) } else { Ok(()) });
    output::both(logged, output::both(traced, output::both(printed, delivered)))?;
    ran.failure.map_or(Ok(String::new()), Err)
}

/// Prints a program's output as it comes, on a separate thread, so that a slow or stopped reader delays neither the
/// guest nor the check of its limits.
struct Printer {
    pieces: mpsc::Sender<(Stream, Vec<u8>)>,
    printed: mpsc::Receiver<Result<(), Failure>>,
}

impl Printer {
    fn start() -> Result<Self, Failure> {
        let (pieces, coming) = mpsc::channel::<(Stream, Vec<u8>)>();
        let (done, printed) = mpsc::channel();
        let print_all = move || {
            let mut printed = Ok(());
            for (stream, piece) in coming {
                match stream {
                    Stream::Output if printed.is_ok() => printed = output::print_always(piece),
                    Stream::Output => {}
                    // A closed standard error is not a failure.
                    Stream::Errors => drop(std::io::stderr().write_all(&piece)),
                }
            }
            let _ = done.send(printed);
        };
        let thread = std::thread::Builder::new().name("printer".to_owned()).spawn(print_all);
        thread.map_err(|e| Failure::run(format!("cannot start a thread: {e}")))?;
        Ok(Self { pieces, printed })
    }

    fn print(&self, stream: Stream, piece: &[u8]) {
        // The thread outlives this printer's sender.
        let _ = self.pieces.send((stream, piece.to_owned()));
    }

    /// Waits until everything is printed, and returns the first failure. A second interrupt ends the wait.
    fn finish(self, is_interrupted: bool) -> Result<(), Failure> {
        drop(self.pieces);
        interrupt::begin_delivery();
        match is_interrupted {
            true => self.printed.recv_timeout(READER_PATIENCE).unwrap_or(Ok(())),
            false => self.printed.recv().unwrap_or(Ok(())),
        }
    }
}

/// The file of a trace, and its format.
struct TraceFile {
    key: &'static str,
    path: PathBuf,
    form: Form,
}

#[derive(Clone, Copy)]
enum Form {
    Csv,
    Json,
    Blktrace,
    /// trimwise's own format.
    Own,
}

impl TraceFile {
    /// Checks an option's file, whose ending chooses the format.
    fn check(key: &'static str, path: &Path, destinations: &Destinations) -> Result<Self, Failure> {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let form = match () {
            () if name.ends_with(".json") => Form::Json,
            () if name.ends_with(".csv") => Form::Csv,
            () if name.ends_with(".blktrace") || name.ends_with(".blktrace.0") => Form::Blktrace,
            () if name.ends_with(".trace") || name.ends_with(".trace.zst") => Form::Own,
            () => {
                let expected = "FILE.csv, FILE.json, FILE.blktrace (or FILE.blktrace.0) for blkparse and btt, or \
                                FILE.trace or FILE.trace.zst for `trimwise trace`";
                return Err(Mistake::of(key, path.display()).expected(expected).fail());
            }
        };
        destinations.check_another(key, path)?;
        Ok(Self { key, path: path.to_owned(), form })
    }

    fn write(&self, to: &Destinations, trace: &DriveTrace) -> Result<(), Failure> {
        let failed =
            |e| Failure::run(format!("{} {}: {e}", Door::Command.key(&self.key.into()), self.path.display()));
        let text = match self.form {
            Form::Own => return trace.write_own(&self.path, to.replaces()).map_err(failed),
            Form::Blktrace => return trace.write_blktrace(&self.path, to.replaces()).map_err(failed),
            Form::Json => trace.json().map_err(Failure::run)?,
            Form::Csv => trace.csv(),
        };
        to.write_result(&Door::Command.key(&self.key.into()), &self.path, &text)
    }
}

/// Reads the program's standard input, unless it is a terminal.
fn input() -> Result<Said, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(Said::default());
    }
    let mut bytes = Vec::new();
    let read = stdin.lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
    let refused = |why: String| Mistake::that(format!("standard input: {why}")).fail();
    read.map_err(|e| refused(e.to_string()))?;
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        return Err(refused(format!("larger than {}", Bytes(INPUT_BYTES_MAX))));
    }
    Ok(Said(bytes))
}
