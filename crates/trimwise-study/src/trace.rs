//! What is in a trace, and its conversion.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use trimwise::trace::{Converted, Header, TraceError, TraceInfo, convert, survey};
use trimwise_lab::failure::Failure;
use trimwise_linux::trace_file::{NewTrace, STDIN, is_rereadable};

use crate::caller::{Caller, OnInterrupt};
use crate::trace_file::TraceFile;

/// What is in a trace; the order of the keys is part of the format.
#[derive(Debug, Serialize)]
pub struct Info {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The trace, as given.
    pub trace: String,
    /// What is in it.
    #[serde(flatten)]
    pub info: TraceInfo,
    /// That the look at it was interrupted, if it was.
    #[serde(skip)]
    pub failure: Option<Failure>,
}

/// Looks at a trace, `[FORMAT:]FILE`.
///
/// # Errors
///
/// A [`Failure`] if it cannot be opened. A look that was interrupted is in the answer.
pub fn info(trace: &str, caller: &dyn Caller) -> Result<Info, Failure> {
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    let file = TraceFile::parse(trace)?;
    let mut source = file.open()?;
    let info = survey(&mut *source, &mut |_| !stop.load(Ordering::Relaxed));
    let failure = stop.load(Ordering::Relaxed).then_some(Failure::Interrupted);
    Ok(Info { trimwise: trimwise::VERSION, trace: trace.to_owned(), info, failure })
}

/// A conversion into trimwise's own format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvertRequest {
    /// The trace to read, `[FORMAT:]FILE`.
    pub input: String,
    /// The file to write; compressed if its name ends in `.zst`.
    pub output: PathBuf,
    /// Whether that file is replaced.
    #[serde(default)]
    pub replace: bool,
}

/// A trace that was converted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewTraceInfo {
    /// Its records.
    pub records: u64,
    /// Where the original is cut off, if it is.
    pub cut_off: Option<String>,
}

/// Converts a trace. Devices are in the header, in front of the records, so a format that names them as it goes is read
/// twice.
///
/// # Errors
///
/// A [`Failure`] if the trace cannot be read or the new one cannot be written; then there is no new one.
pub fn convert_file(request: &ConvertRequest, caller: &dyn Caller) -> Result<NewTraceInfo, Failure> {
    let stop = caller.stop(OnInterrupt::StopAfterRun)?;
    let ConvertRequest { input, output, replace } = request;
    let file = TraceFile::parse(input)?;
    let shown = output.display();
    if output.as_os_str() == STDIN {
        return Err(Failure::usage("-: a trace cannot be printed; expected a file"));
    }
    if !replace && output.exists() {
        return Err(Failure::usage(format!("{shown}: already exists; pass --force to replace it")));
    }
    let header = match is_rereadable(file.path()) {
        true => survey(&mut *file.open()?, &mut |_| !stop.load(Ordering::Relaxed)).header,
        false => Header::default(),
    };
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let mut source = file.open()?;
    let header = if header.devices.is_empty() { source.header().clone() } else { header };
    if header.devices.is_empty() {
        return Err(Failure::usage(format!(
            "{input}: names its devices as it goes, so it must be read twice; expected a file, not a pipe, that has \
             requests"
        )));
    }
    let new = NewTrace::create(output, *replace).map_err(|e| Failure::usage(format!("{shown}: {e}")))?;
    let converted = convert(&mut *source, &header, new, &mut |_| !stop.load(Ordering::Relaxed));
    let Converted { records, out, cut_off } = converted.map_err(|error| match error {
        _ if stop.load(Ordering::Relaxed) => Failure::Interrupted,
        TraceError::Io { .. } => Failure::run(format!("{input}: {error}")),
        _ => Failure::usage(format!("{input}: {error}")),
    })?;
    out.finish().map_err(|e| Failure::run(format!("{shown}: {e}")))?;
    Ok(NewTraceInfo { records, cut_off })
}
