//! Workloads of `compare`: PostMark configurations, built in or in files, benchmarks that time one operation,
//! applications, traces and programs.

use trimwise::compare::cell;
use trimwise::compare::result::Measure;
use trimwise::failure::{Failure, Mistake, key, set};
use trimwise::files::FileError;
use trimwise::profile::Profile;
use trimwise::trace::RequestKind;
use trimwise::units::Bytes;
use trimwise::words;
use trimwise::workload::apps;
use trimwise::workload::days;
use trimwise::workload::latency::Operation;
use trimwise::workload::postmark::{
    LocationError, Phase, PlannedRun, PostmarkConfig, Progress, RunError, footprint,
};
use trimwise::workload::program::Program;
use trimwise::workload::timed::Timed;

use super::CompareRequest;
use super::room::Room;
use crate::caller::{Caller, Report};
use crate::input;
use crate::jobs;
use crate::programs::{self, Programs};
use crate::trace_file::{self, TraceFile};

/// Small files that come and go, as in a mail spool: about 800 MB at a time and 9 GB written. That is more than the
/// built-in default device holds, so it has to collect garbage.
const DEFAULT: &str = "\
set number 8000
set transactions 80000
set size 1000 200000
set read 4096
set write 4096
set buffering false
run
";

/// Forms of `--workload` other than a name or a PostMark configuration, for messages.
const FORMS: [&str; 5] = [
    "job:FILE.fio",
    "append[:APPEND[:FILE]]",
    "fullwrite[:APPEND[:FILE]][:nofsync]",
    trace_file::SYNTAX,
    programs::SYNTAX,
];

/// An operation takes about a microsecond, a report a little less.
const OPERATIONS_PER_REPORT: u64 = 256;

#[derive(Clone, Debug)]
pub struct Workload {
    /// The file or name, as given.
    pub argument: String,
    pub kind: Kind,
    /// The part that runs, at most 1.
    pub scale: f64,
    /// Notes for the caller on parts that were left out.
    notes: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// With the text of its configuration.
    Postmark(PlannedRun, String),
    Timed(Timed),
    /// A named application, or a fio job with the text of its file.
    Program(Program, String),
    /// A block trace. It has no files, so it runs in the model only.
    Trace(TraceFile),
    /// A program of this computer. It needs a real file system.
    Command(Programs),
}

impl Kind {
    /// Returns the block trace, which has no files.
    pub fn trace(&self) -> Option<&TraceFile> {
        match self {
            Self::Trace(file) => Some(file),
            Self::Postmark(..) | Self::Timed(_) | Self::Program(..) | Self::Command(_) => None,
        }
    }

    /// Returns the benchmark that times one operation, and can be judged only by that.
    pub fn timed(&self) -> Option<Timed> {
        match self {
            Self::Timed(timed) => Some(*timed),
            Self::Postmark(..) | Self::Program(..) | Self::Trace(_) | Self::Command(_) => None,
        }
    }

    /// Returns true if PostMark's own report can be printed.
    fn has_postmark_report(&self) -> bool {
        match self {
            Self::Postmark(..) => true,
            Self::Timed(_) | Self::Program(..) | Self::Trace(_) | Self::Command(_) => false,
        }
    }

    /// Returns true if the workload may be another one next time, though it is written the same.
    pub fn may_change(&self) -> bool {
        match self {
            Self::Command(_) => true,
            Self::Postmark(..) | Self::Timed(_) | Self::Program(..) | Self::Trace(_) => false,
        }
    }
}

impl Workload {
    /// Finds the workload of a request. It must be PostMark if its report is requested.
    pub fn of(request: &CompareRequest) -> Result<Self, Failure> {
        let workload = Self::named(request.workload())?;
        if request.postmark && !workload.kind.has_postmark_report() {
            let why =
                words![set("workload", request.workload()), " is not PostMark and has no report of its own"];
            return Err(Mistake::on("postmark").because(why).fail());
        }
        request.judge.map_or(Ok(()), |measure| workload.expect_judged_by(measure))?;
        Ok(workload)
    }

    /// Rejects an objective on an operation that the workload never makes.
    pub fn expect_judged_by(&self, measure: Measure) -> Result<(), Failure> {
        let of = Mistake::of("judge", measure);
        if self.kind.timed().is_some() {
            let why = words![
                set("workload", &self.argument),
                " times one operation and can be judged only by that"
            ];
            return Err(of.because(why).expected(words!["no ", key("judge")]).fail());
        }
        self.expect_calls(of, measure)
    }

    /// Rejects a latency of an operation that the workload never makes; `of` names what asks for it.
    pub fn expect_calls(&self, of: Mistake, measure: Measure) -> Result<(), Failure> {
        let refused =
            |why: String| Err(of.clone().because(words![set("workload", &self.argument), " ", why]).fail());
        let Measure::Latency(_, operation) = measure else { return Ok(()) };
        let makes = |operation: Operation| match &self.kind {
            Kind::Postmark(..) => Ok(!matches!(operation, Operation::Fsync | Operation::Write)),
            Kind::Program(program, _) => Ok(program.makes(operation)),
            Kind::Trace(file) => match operation {
                Operation::Read => file.has(RequestKind::Read),
                Operation::Write => file.has(RequestKind::Write),
                // Block requests belong to no call: a flush may come from an fsync or from the journal.
                _ => Ok(false),
            },
            Kind::Timed(_) | Kind::Command(_) => Ok(true),
        };
        if makes(operation)? {
            return Ok(());
        }
        let mut others = Vec::new();
        for other in Operation::ALL {
            if other != operation && makes(other)? {
                others.push(other.name());
            }
        }
        let (has, what) = if self.kind.trace().is_some() { ("has", "requests") } else { ("makes", "calls") };
        let expected = match &others[..] {
            [] => "another figure".to_owned(),
            others => format!("one of {}", others.join(", ")),
        };
        refused(format!("{has} no {} {what}; expected {expected}", operation.name()))
    }

    pub fn named(argument: &str) -> Result<Self, Failure> {
        let of = |kind| Self { argument: argument.to_owned(), kind, scale: 1.0, notes: Vec::new() };
        if let Some(text) = argument.strip_prefix(trace_file::PREFIX) {
            let checked = || {
                let file = TraceFile::parse_workload(text)?;
                file.expect_rereadable()?;
                file.expect_recording().map(|()| file)
            };
            return checked().map(|file| of(Kind::Trace(file))).map_err(trace_file::of_workload);
        }
        if let Some(text) = argument.strip_prefix(programs::PREFIX) {
            return Ok(of(Kind::Command(Programs::parse(text)?)));
        }
        if Timed::is_meant(argument) {
            let timed =
                argument.parse().map_err(|e| Mistake::on("workload").because(format!("{e}")).fail())?;
            return Ok(of(Kind::Timed(timed)));
        }
        if Program::is_meant(argument) {
            let program = jobs::program(argument)?;
            let (text, notes) = match &program {
                Program::Fio(name, jobs) => {
                    (jobs.text.clone(), jobs.notes.iter().map(|note| format!("{name}: {note}")).collect())
                }
                Program::Applications(_) => (String::new(), Vec::new()),
            };
            return Ok(Self { notes, ..of(Kind::Program(program, text)) });
        }
        let text = match argument {
            "default" => DEFAULT.to_owned(),
            file => {
                let names = apps::ALL.iter().map(|spec| spec.name);
                let names: Vec<&str> = ["default"].into_iter().chain(names).chain(FORMS).collect();
                input::read(file, "workload", "a PostMark configuration", &names)?
            }
        };
        let mut runs = PostmarkConfig::parse(&text, argument).map_err(|e| e.mistake().fail())?.runs;
        match (runs.pop(), runs.len()) {
            (Some(run), 0) if run.line.is_none() => {
                let why = "has no line `run`, so nothing would be done; add one";
                Err(Mistake::of("workload", argument).because(why).fail())
            }
            (Some(run), 0) => {
                run.config.for_model().map_err(|e| bad_location(argument, &run, &e))?;
                Ok(of(Kind::Postmark(run, text)))
            }
            (_, more) => {
                let keep = "keep one per file, so that it is clear what is compared";
                let why = format!("has {} lines `run`; {keep}", more + 1);
                Err(Mistake::of("workload", argument).because(why).fail())
            }
        }
    }

    pub fn tell_notes(&self, caller: &dyn Caller) {
        self.notes.iter().for_each(|note| caller.note(note));
    }

    /// The usual shape of the workload's days.
    pub fn day(&self) -> &'static str {
        match &self.kind {
            Kind::Program(program, _) => program.day(),
            Kind::Postmark(..) | Kind::Timed(_) | Kind::Trace(_) | Kind::Command(_) => days::USUAL,
        }
    }

    /// The error for a trace where there is a file system.
    pub fn has_no_files(&self) -> Failure {
        let replay = ", or `trimwise replay` on a file or device";
        let expected = words![set("target", "model"), " or ", set("fs", "ext4"), replay];
        Mistake::of("workload", &self.argument).because("a trace has no files").expected(expected).fail()
    }

    /// Rejects a workload with a pace of its own, which `--days` cannot spread.
    pub fn expect_no_own_pace(&self) -> Result<(), Failure> {
        let why = match &self.kind {
            Kind::Postmark(..) => return Ok(()),
            Kind::Program(program, _) => match program.own_pace() {
                Some(option) => format!("its option `{option}` sets its own pace"),
                None => return Ok(()),
            },
            Kind::Timed(_) => "it times a single operation".to_owned(),
            Kind::Trace(_) => "a trace has its own times".to_owned(),
            Kind::Command(_) => "a program keeps its own times".to_owned(),
        };
        let expected =
            "PostMark, an application, or a fio job without runtime, rate, thinktime and ramp_time";
        let why = words!["cannot be used with ", set("workload", &self.argument), ": ", why];
        Err(Mistake::on("days").that_is(why).expected(expected).fail())
    }

    /// Rejects a workload whose deletions no application can limit.
    pub fn expect_deletions(&self, limited: impl std::fmt::Display) -> Result<(), Failure> {
        let why = match &self.kind {
            Kind::Postmark(..) | Kind::Program(..) => return Ok(()),
            Kind::Timed(_) => "it times the removal itself",
            Kind::Trace(_) => "a trace has no files",
            Kind::Command(_) => "a program deletes by itself",
        };
        let why = words!["cannot be limited with ", set("workload", &self.argument), ": ", why];
        Err(Mistake::of("policies", limited)
            .that_is(why)
            .expected("PostMark, an application or a fio job")
            .fail())
    }

    /// The error for a program where there is only a model of Linux.
    pub fn needs_linux(&self) -> Failure {
        let expected = words![
            set("target", "kernel:VERSION:FS"),
            ", a real kernel on the modelled drive, or ",
            set("target", "dir:PATH"),
        ];
        let why = words!["a program runs on Linux, which ", set("target", "model"), " only models"];
        Mistake::of("workload", &self.argument).because(why).expected(expected).fail()
    }

    /// Rejects a workload that cannot fit on the device, before anything runs.
    pub fn check(&self, room: &Room, device: &Profile) -> Result<(), Failure> {
        let checked = match &self.kind {
            Kind::Postmark(run, _) => room.check(&run.config),
            Kind::Timed(timed) => {
                let name = if timed.fills() { "fullwrite" } else { "append" };
                let smaller = format!("a smaller file ({name}:APPEND:FILE)");
                room.fits(timed.needed(), &format!("its file needs {}", timed.needed()), &smaller)
            }
            Kind::Program(program, _) => {
                let needed = program.needed();
                let fits =
                    |smaller: &str| room.fits(needed, &format!("its files need up to {needed}"), smaller);
                match program {
                    Program::Applications(_) => fits("smaller parameters (trimwise workloads)"),
                    Program::Fio(name, jobs) if needed > room.free() => {
                        fits(&jobs.smaller(name, room.free()))
                    }
                    Program::Fio(_, jobs) => {
                        jobs.fitted(room.free()).map(drop).map_err(|errors| errors.to_string().into())
                    }
                }
            }
            // A trace's addresses are known only after it is read; a program's writes are known only to itself.
            Kind::Trace(_) | Kind::Command(_) => return Ok(()),
        };
        checked.map_err(|e| {
            let why = words![format!("on {}: ", device.name), e];
            Mistake::of("workload", &self.argument).that_is(why).fail()
        })
    }

    /// Returns the most space that the workload's files take at one time.
    pub fn needed(&self) -> Bytes {
        match &self.kind {
            Kind::Postmark(run, _) => footprint(&run.config).bytes_max,
            Kind::Timed(timed) => timed.needed(),
            Kind::Program(program, _) => program.needed(),
            Kind::Trace(_) | Kind::Command(_) => Bytes(0),
        }
    }

    pub fn to_model(&self) -> Result<cell::Workload, Failure> {
        match &self.kind {
            Kind::Postmark(run, _) => Ok(run.config.clone().into()),
            Kind::Timed(timed) => Ok((*timed).into()),
            Kind::Program(program, _) => Ok(program.clone().into()),
            Kind::Trace(_) => Err(self.has_no_files()),
            Kind::Command(_) => Err(self.needs_linux()),
        }
    }
}

/// The error for a location that the target of PostMark does not have, with the file and the line that set it.
pub fn bad_location(file: &str, run: &PlannedRun, error: &LocationError) -> Failure {
    let line = run.line_of_location(&error.path);
    Mistake::that(error.to_string()).at(file, line).fail()
}

pub fn is_full(error: &RunError) -> bool {
    matches!(error, RunError::File { source: FileError::NoSpace { .. }, .. })
}

/// The three phases get equal shares: which one takes longest is not known in advance.
pub fn report_phase(report: &Report, progress: Progress) {
    if !progress.done.is_multiple_of(OPERATIONS_PER_REPORT) {
        return;
    }
    let phase = match progress.phase {
        Phase::Create => 0,
        Phase::Transactions => 1,
        Phase::Delete => 2,
    };
    let of = progress.of.max(1);
    report(phase * of + progress.done.min(of), 3 * of);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_workload_never_does_is_refused_before_the_first_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        // Writes and no reads, in the format of MSR Cambridge.
        let writes = file(
            "w.csv",
            "128166372003061629,hm,0,Write,0,4096,100\n128166372003071629,hm,0,Write,4096,4096,100\n",
        );
        let trace = format!("trace:{writes}");
        let fio = |options: &str| {
            let name = format!("{}.fio", options.len());
            format!("job:{}", file(&name, &format!("[j]\nsize=1m\n{options}\n")))
        };
        for (workload, judge, refused) in [
            ("default", "p99:append", None),
            (
                "default",
                "p99:fsync",
                Some("makes no fsync calls; expected one of create, read, append, unlink"),
            ),
            ("lsm", "p99:fsync", None),
            ("lsm", "max:read", None),
            ("vm", "p99:read", Some("makes no read calls")),
            ("oltp", "p99:create", Some("makes no create calls")),
            ("append", "p99:fsync", Some("times one operation")),
            ("append", "total", Some("times one operation")),
            ("oltp", "total", None),
            (&fio("rw=randwrite\nfsync=8"), "p99:fsync", None),
            (&fio("rw=randwrite"), "p99:fsync", Some("expected one of write")),
            (&fio("rw=read"), "p99:write", Some("makes no write calls")),
            (&trace, "p99:write", None),
            (&trace, "p99:fsync", Some("has no fsync requests; expected one of write")),
            (&trace, "p99:read", Some("has no read requests")),
        ] {
            let judged = Workload::named(workload).unwrap().expect_judged_by(judge.parse().unwrap());
            match (refused, judged) {
                (None, Ok(())) => {}
                (Some(words), Err(Failure::Usage(why))) => {
                    let why = why.to_string();
                    assert!(why.contains(words) && why.starts_with(&format!("--judge {judge}: ")), "{why}");
                }
                (_, judged) => panic!("{workload}, {judge}: {judged:?}"),
            }
        }
        let request = CompareRequest {
            workload: "default".to_owned(),
            judge: Some("p99:fsync".parse().unwrap()),
            ..CompareRequest::default()
        };
        assert!(Workload::of(&request).is_err(), "a request is refused as a whole");
    }
}
