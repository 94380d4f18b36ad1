//! `trimwise record`: records the block requests of a mount or a device as a trace.

pub mod arguments;
pub mod output;
pub mod table;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::Serialize;
use trimwise::trace::Header;
use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_linux::record::{Counts, Ended, Plan, RecordError, Recorder, Target};

use crate::commands::record::arguments::RecordArguments;
use crate::commands::record::output::{Stopped, TraceFile};
use crate::figures::grouped;
use crate::output::{self as results, Destinations};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;

/// What `--json` writes.
#[derive(Debug, Serialize)]
pub struct RecordReport {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// What was asked for.
    pub settings: RecordSettings,
    /// `done`, `stopped`, `max-size` or `disk-full`.
    pub ended: &'static str,
    /// How long was recorded.
    pub seconds: f64,
    /// The size of the trace.
    pub trace_bytes: u64,
    /// What is in the trace.
    pub counts: Counts,
    /// Its header.
    pub header: Header,
    /// What must be known to read it, one sentence each.
    pub notes: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
pub struct RecordSettings {
    /// The mount or device, as given.
    pub target: String,
    /// The file of the trace.
    pub out: String,
    /// How long to record; `null` until Ctrl-C.
    pub seconds: Option<f64>,
    /// The largest trace.
    pub max_size_bytes: Bytes,
    /// Kernel memory for each processor; `null` for the default.
    pub buffer_bytes: Option<Bytes>,
    /// The command that repeats this.
    pub command: String,
}

/// Runs the command and returns what to print. `on_signal` installs the handler for Ctrl-C and returns the flag that it
/// raises.
pub fn run(
    arguments: &RecordArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let force = arguments.json.force;
    destinations.check_another("--out", &arguments.out)?;
    let mut target = Target::of(&arguments.target).map_err(failed)?;
    if is_below(&target, &arguments.out) {
        target
            .notes
            .push("the trace is on the disk that is recorded, so writing it is part of it".to_owned());
    }
    let plan = Plan { duration: arguments.duration, buffer: arguments.buffer };
    let mut recorder = Recorder::open(target, plan).map_err(failed)?;
    let header = recorder.header().clone();
    let notes = recorder.target().notes.clone();
    let file = TraceFile::create(&arguments.out, force, arguments.max_size, header.clone())?;
    let stop = on_signal(OnInterrupt::StopAndShow)?;
    let progress = Progress::of(1, "recordings");
    let start = Instant::now();
    let recorded = recorder.run(
        &stop,
        |records| file.deliver(records),
        |counts| {
            let elapsed = start.elapsed();
            if let Some(duration) = arguments.duration {
                progress.update(0, elapsed.as_millis() as u64, duration.as_millis() as u64);
            }
            progress.say(format!(
                "{} requests, {:.0}/s, {} lost, {}",
                grouped(counts.requests()),
                counts.requests() as f64 / elapsed.as_secs_f64().max(0.001),
                grouped(counts.lost),
                file.bytes()
            ));
        },
    );
    let seconds = start.elapsed().as_secs_f64();
    progress.finish();
    drop(recorder); // tracing ends before the rest is written
    let written = file.finish()?;
    let (counts, ended) = recorded.map_err(failed)?;
    let report = RecordReport {
        trimwise: trimwise::VERSION,
        settings: settings(arguments),
        ended: match (&written.stopped, ended) {
            (Some(Stopped::Size), _) => "max-size",
            (Some(Stopped::Disk(_)), _) => "disk-full",
            (None, Ended::Stopped) => "stopped",
            (None, Ended::Done | Ended::Refused) => "done",
        },
        seconds,
        trace_bytes: written.bytes,
        counts: Counts { unmatched: counts.unmatched, ..written.counts },
        header,
        notes,
    };
    let text = destinations.deliver(&report, || table::render(&report))?;
    let what_is_there = match written.bytes {
        0 => "nothing was written",
        _ => "the trace ends there, and can be read",
    };
    match (written.stopped, ended) {
        (Some(Stopped::Disk(error)), _) => results::print(&text)
            .and(Err(Failure::run(format!("--out {}: {error}; {what_is_there}", arguments.out.display())))),
        (None, Ended::Stopped) if arguments.duration.is_some() => {
            results::print(&text).and(Err(Failure::Interrupted))
        }
        _ => Ok(text),
    }
}

/// A path without a block device is a usage error.
fn failed(error: RecordError) -> Failure {
    match error {
        RecordError::Mount(_) | RecordError::Device(_) | RecordError::NoDevice { .. } => {
            Failure::usage(error)
        }
        _ => Failure::run(error),
    }
}

/// Whether a file is on one of the recorded disks.
fn is_below(target: &Target, file: &Path) -> bool {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let numbers = |target: &Target| target.disks.iter().map(|disk| disk.numbers).collect::<Vec<_>>();
    let recorded = numbers(target);
    Target::of(folder).is_ok_and(|below| numbers(&below).iter().any(|disk| recorded.contains(disk)))
}

fn settings(arguments: &RecordArguments) -> RecordSettings {
    let mut command = CommandText::new("record");
    command.argument(arguments.target.display());
    if let Some(duration) = arguments.duration {
        command.option("--for", humantime::format_duration(duration).to_string().replace(' ', ""));
    }
    command.option("--out", arguments.out.display());
    command.option("--max-size", arguments.max_size.0);
    if let Some(buffer) = arguments.buffer {
        command.option("--buffer", buffer.0);
    }
    RecordSettings {
        target: arguments.target.display().to_string(),
        out: arguments.out.display().to_string(),
        seconds: arguments.duration.map(|duration| duration.as_secs_f64()),
        max_size_bytes: arguments.max_size,
        buffer_bytes: arguments.buffer,
        command: command.into_text(),
    }
}
