//! Records the block requests of a mount or a device as a trace.

mod output;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake, Mistakes, set};
use trimwise::trace::Header;
use trimwise::units::Bytes;
use trimwise::words;
use trimwise_linux::record::{Counts, Ended, Plan, RecordError, Recorder, Target};

use crate::caller::{Caller, OnInterrupt};
use crate::check::within;
use crate::command_text::CommandText;
use trimwise::numbers::grouped;

use output::{Stopped, TraceFile};

/// Range for the size at which a recording ends.
pub const MAX_SIZE: RangeInclusive<Bytes> = Bytes::kib(64)..=Bytes(1 << 60);
/// Range for the kernel memory of one processor's events.
pub const BUFFER: RangeInclusive<Bytes> = Bytes::kib(16)..=Bytes::gib(1);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRequest {
    /// A mount point or a block device.
    pub target: PathBuf,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// The trace. It has another name until the recording ends.
    pub out: PathBuf,
    #[serde(default)]
    pub replace: bool,
    /// The recording ends when the compressed trace has this size.
    #[serde(default = "max_size")]
    pub max_size: Bytes,
    /// Kernel memory for the events of one processor; `None`: a suitable size.
    pub buffer: Option<Bytes>,
}

fn max_size() -> Bytes {
    Bytes::gib(4)
}

#[derive(Debug, Serialize)]
pub struct RecordReport {
    pub trimwise: &'static str,
    pub settings: RecordSettings,
    /// `done`, `stopped`, `max-size` or `disk-full`.
    pub ended: &'static str,
    /// Duration of the recording.
    pub seconds: f64,
    pub trace_bytes: u64,
    pub counts: Counts,
    pub header: Header,
    /// Caveats for readers of the trace, one sentence each.
    pub notes: Vec<String>,
    /// Why the recording ended early, if that was not asked for.
    #[serde(skip)]
    pub failure: Option<Failure>,
}

#[derive(Debug, Serialize)]
pub struct RecordSettings {
    /// As given.
    pub target: String,
    pub out: String,
    /// `None`: until Ctrl-C.
    pub seconds: Option<f64>,
    pub max_size_bytes: Bytes,
    /// For each processor; `None` for the default.
    pub buffer_bytes: Option<Bytes>,
    pub command: String,
}

/// Records a trace.
///
/// # Errors
///
/// A [`Failure`] if nothing can be recorded there or the trace cannot be written at all. A recording that ends early is
/// in the [answer](RecordReport::failure).
pub fn run(request: &RecordRequest, caller: &dyn Caller) -> Result<RecordReport, Failure> {
    Mistakes::of([
        within("max_size", request.max_size, &MAX_SIZE),
        within("buffer", request.buffer, &BUFFER),
    ])?;
    let mut target = Target::of(&request.target).map_err(failed)?;
    if is_below(&target, &request.out) {
        target
            .notes
            .push("the trace is written to the recorded disk, so it includes its own writes".to_owned());
    }
    let plan = Plan { duration: request.duration, buffer: request.buffer };
    let mut recorder = Recorder::open(target, plan).map_err(failed)?;
    let header = recorder.header().clone();
    let notes = recorder.target().notes.clone();
    let file = TraceFile::create(&request.out, request.replace, request.max_size, header.clone())?;
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    let progress = caller.progress(1, "recordings");
    let start = Instant::now();
    let recorded = recorder.run(
        &stop,
        |records| file.deliver(records),
        |counts| {
            let elapsed = start.elapsed();
            if let Some(duration) = request.duration {
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
    let what_is_there = match written.bytes {
        0 => "nothing was written",
        _ => "the trace ends there, and can be read",
    };
    Ok(RecordReport {
        trimwise: trimwise::VERSION,
        settings: settings(request),
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
        failure: match (written.stopped, ended) {
            (Some(Stopped::Disk(error)), _) => {
                let why = format!(": {error}; {what_is_there}");
                Some(Failure::Run(words![set("out", request.out.display()), why]))
            }
            (None, Ended::Stopped) if request.duration.is_some() => Some(Failure::Interrupted),
            _ => None,
        },
    })
}

/// A path without a block device is a usage error.
fn failed(error: RecordError) -> Failure {
    match error {
        RecordError::Mount(_) | RecordError::Device(_) | RecordError::NoDevice { .. } => {
            Mistake::that(error.to_string()).fail()
        }
        _ => Failure::run(error),
    }
}

/// Returns whether a file is on one of the recorded disks.
fn is_below(target: &Target, file: &Path) -> bool {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let numbers = |target: &Target| target.disks.iter().map(|disk| disk.numbers).collect::<Vec<_>>();
    let recorded = numbers(target);
    Target::of(folder).is_ok_and(|below| numbers(&below).iter().any(|disk| recorded.contains(disk)))
}

fn settings(request: &RecordRequest) -> RecordSettings {
    let mut command = CommandText::new("record");
    command.argument(request.target.display());
    if let Some(duration) = request.duration {
        command.option("--for", humantime::format_duration(duration).to_string().replace(' ', ""));
    }
    command.option("--out", request.out.display());
    command.option("--max-size", request.max_size.0);
    if let Some(buffer) = request.buffer {
        command.option("--buffer", buffer.0);
    }
    RecordSettings {
        target: request.target.display().to_string(),
        out: request.out.display().to_string(),
        seconds: request.duration.map(|duration| duration.as_secs_f64()),
        max_size_bytes: request.max_size,
        buffer_bytes: request.buffer,
        command: command.into_text(),
    }
}
