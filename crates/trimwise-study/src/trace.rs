//! Information about a trace, and its conversion.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake, argument, key};
use trimwise::replay::ReplayError;
use trimwise::trace::{ConvertError, Converted, Format, LeftOut, TraceError, TraceInfo, convert, survey};
use trimwise::words;
use trimwise_linux::trace_file::{NewTrace, STDIN};

use crate::caller::{Caller, OnInterrupt};
use crate::trace_file::TraceFile;

#[derive(Debug, Serialize)]
pub struct Info {
    pub trimwise: &'static str,
    pub trace: String,
    #[serde(flatten)]
    pub info: TraceInfo,
    /// Set if reading was interrupted.
    #[serde(skip)]
    pub failure: Option<Failure>,
}

/// Summarises a trace, `[FORMAT:]FILE`.
///
/// # Errors
///
/// A [`Failure`] if the trace cannot be opened or not one record can be read. If reading is interrupted, the answer has
/// the failure.
pub fn info(trace: &str, caller: &dyn Caller) -> Result<Info, Failure> {
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    let file = TraceFile::parse(trace)?;
    let mut source = file.open_until(&stop)?;
    let mut info = survey(&mut *source, &mut |_| !stop.load(Ordering::Relaxed));
    let failure = stop.load(Ordering::Relaxed).then_some(Failure::Interrupted);
    if failure.is_some() {
        info.ended_early = info.ended_early.map(|_| "interrupted".to_owned());
    }
    if info.records + info.prelude_records == 0 && failure.is_none() {
        match &info.ended_early {
            Some(why) => return Err(file.of().because(why.as_str()).fail()),
            None => expect_some(&file, &info.header.made_by, info.left_out)?,
        }
    }
    Ok(Info { trimwise: trimwise::VERSION, trace: trace.to_owned(), info, failure })
}

/// Rejects a trace without records, unless it is in trimwise's own format: a recording of an idle disk is complete.
fn expect_some(file: &TraceFile, made_by: &str, left_out: LeftOut) -> Result<(), Failure> {
    match made_by.parse::<Format>() {
        Ok(_) => Err(file.failed(&ReplayError::Nothing { of: String::new(), left_out })),
        Err(_) => Ok(()),
    }
}

/// A conversion into trimwise's own format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvertRequest {
    /// `[FORMAT:]FILE`.
    pub input: String,
    /// Compressed if its name ends in `.zst`.
    pub output: PathBuf,
    #[serde(default)]
    pub replace: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewTraceInfo {
    pub records: u64,
    /// Requests of the original that were not converted.
    pub left_out: LeftOut,
    /// Where and why the original ended early, if it did.
    pub cut_off: Option<String>,
}

/// Converts a trace. On failure there is no new file.
pub fn convert_file(request: &ConvertRequest, caller: &dyn Caller) -> Result<NewTraceInfo, Failure> {
    let stop = caller.stop(OnInterrupt::StopAfterRun)?;
    let ConvertRequest { input, output, replace } = request;
    let file = TraceFile::parse(input)?;
    let shown = output.display();
    let of = Mistake::of(argument("output"), &shown);
    if output.as_os_str() == STDIN {
        return Err(of.because("a trace cannot be printed").expected("a file").fail());
    }
    if !replace && output.exists() {
        return Err(of.because(words!["already exists; pass ", key("replace"), " to replace it"]).fail());
    }
    let mut source = file.open_until(&stop)?;
    let mut new = NewTrace::create(output, *replace).map_err(|e| of.because(e.to_string()).fail())?;
    let converted = convert(&mut *source, &mut new, &mut |_| !stop.load(Ordering::Relaxed));
    let path = file.path().display();
    let Converted { records, left_out, cut_off } = converted.map_err(|error| match error {
        ConvertError::Interrupted => Failure::Interrupted,
        ConvertError::Output { .. } => Failure::run(format!("{shown}: {error}")),
        ConvertError::Source(TraceError::Io { .. }) if stop.load(Ordering::Relaxed) => Failure::Interrupted,
        ConvertError::Source(TraceError::Io { .. }) => Failure::run(format!("{path}: {error}")),
        ConvertError::Source(_) => file.of().because(error.to_string()).fail(),
    })?;
    if cut_off.is_some() && stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    if records == 0 {
        expect_some(&file, &source.header().made_by, left_out)?;
    }
    new.finish().map_err(|e| Failure::run(format!("{shown}: {e}")))?;
    Ok(NewTraceInfo { records, left_out, cut_off })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::caller::Silent;

    const GOOD: &str = "fio version 3 iolog\n0 a write 0 8192\n";

    fn look(trace: &str) -> TraceInfo {
        info(trace, &Silent::default()).unwrap().info
    }

    fn converted(input: &str, output: &str, replace: bool) -> Result<NewTraceInfo, Failure> {
        let request = ConvertRequest { input: input.to_owned(), output: output.into(), replace };
        convert_file(&request, &Silent::default())
    }

    #[test]
    fn regression_convert_keeps_what_it_cannot_replace() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (good, bad, new) = (path("good"), path("bad"), path("new"));
        fs::write(&good, GOOD).unwrap();
        fs::write(&bad, "fio version 3 iolog\n1 a fly\n").unwrap();
        assert!(
            matches!(converted(&bad, &new, false), Err(Failure::Usage(m)) if m.to_string().contains("line 2"))
        );
        assert!(!std::path::Path::new(&new).exists());
        assert!(
            matches!(converted(&good, &bad, false), Err(Failure::Usage(m)) if m.to_string().contains("exists"))
        );
        assert!(converted(&bad, &good, true).is_err());
        assert_eq!(look(&good).records, 1);
        assert_eq!(converted(&good, &good, true).unwrap().records, 1, "onto itself");
        assert_eq!(look(&good).records, 1);
        assert!(converted(&bad, "/dev/null", true).is_err());
        assert!(std::path::Path::new("/dev/null").exists());
        assert!(
            matches!(converted(&good, "-", false), Err(Failure::Usage(m)) if m.to_string().contains("printed"))
        );
    }

    /// Reading and converting fail alike, with the line's own error.
    #[test]
    fn regression_a_trace_of_which_nothing_can_be_read_is_a_usage_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let new = path("new.zst");
        for (format, bytes, expected) in [
            ("mqsim:", &b"a b c d 0\n"[..], "line 1: 'c'; expected a sector"),
            ("msr:", b"1,2,3\n", "line 1: 3 columns; expected Timestamp,Hostname"),
            (
                "msr:",
                b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n",
                "the trace has no requests",
            ),
            ("", b"0,R,0,0,1\n", "no requests that can be replayed: 1 are of no sectors"),
            ("", b"\xfd7zXZ\0\0", "byte 0: compressed with xz"),
            ("", b"fio version 3 iolog\n0 a fly\n", "line 2: action 'fly'"),
            ("", b"fio version 3 iolog\n0 a open\n", "the trace has no requests"),
            ("oraclegeneral:", b"short", "record 1, byte 0: the trace is cut off"),
        ] {
            let file = path("bad");
            fs::write(&file, bytes).unwrap();
            let trace = format!("{format}{file}");
            let looked = info(&trace, &Silent::default()).map(|_| ());
            let workload = crate::trace_file::TraceFile::parse(&trace).unwrap().expect_recording();
            for failure in [looked, converted(&trace, &new, false).map(|_| ())] {
                let Err(Failure::Usage(message)) = failure else { panic!("{trace}: {failure:?}") };
                let message = message.to_string();
                assert!(message.starts_with(&file) && message.contains(expected), "{message}");
            }
            // A replay begins with the records before the place at which a trace is cut off.
            assert!(workload.is_err() || expected.ends_with("cut off"), "{workload:?}");
            assert!(!std::path::Path::new(&new).exists());
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half-written");
        // A recording of an idle disk is complete.
        let own = path("own");
        let header = trimwise::trace::Header { made_by: "trimwise record".to_owned(), ..Default::default() };
        let writer = trimwise::trace::format::Writer::new(fs::File::create(&own).unwrap(), &header).unwrap();
        writer.finish().unwrap();
        assert_eq!(look(&own).records, 0);
    }

    #[test]
    fn a_full_disk_is_named_and_a_pipe_is_converted() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (good, copy) = (path("good"), path("copy"));
        fs::write(&good, GOOD).unwrap();
        let full = converted(&good, "/dev/full", true);
        assert!(
            matches!(&full, Err(Failure::Run(m)) if m.to_string().starts_with("/dev/full: ")),
            "{full:?}"
        );
        let status = std::process::Command::new("mkfifo").arg(path("pipe")).status();
        assert!(status.unwrap().success());
        let pipe = path("pipe");
        let writer = std::thread::spawn(move || {
            // Two devices; the second is named long after the first request was written.
            let lines =
                (0..70_000).map(|i| format!("{i} {} write 0 4096\n", if i < 69_000 { "a" } else { "b" }));
            fs::write(pipe, "fio version 3 iolog\n".to_owned() + &lines.collect::<String>())
        });
        assert_eq!(converted(&path("pipe"), &copy, false).unwrap().records, 70_000);
        writer.join().unwrap().unwrap();
        let info = look(&copy);
        assert_eq!((info.header.devices.len(), info.requests_by_device), (2, vec![69_000, 1_000]));
    }

    #[test]
    fn a_trace_that_is_cut_off_stays_so_when_it_is_converted() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (log, own, cut, copy) = (path("log"), path("own"), path("cut"), path("copy"));
        fs::write(&log, GOOD.to_owned() + "9 a trim 4096 4096\n").unwrap();
        converted(&log, &own, false).unwrap();
        let bytes = fs::read(&own).unwrap();
        // Without its end mark and the end of its last record.
        fs::write(&cut, &bytes[..bytes.len() - 2]).unwrap();
        let NewTraceInfo { records, cut_off, .. } = converted(&cut, &copy, false).unwrap();
        assert_eq!(records, 1);
        assert!(cut_off.is_some_and(|why| why.contains("record 2: the trace is cut off")));
        let info = look(&copy);
        assert_eq!(info.records, 1);
        assert!(info.ended_early.is_some_and(|why| why.contains("record 2")));
    }

    #[test]
    fn regression_an_interrupted_look_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, "fio version 3 iolog\n".to_owned() + &"0 a write 0 8192\n".repeat(70_000)).unwrap();
        let looked = |stop: bool| {
            let caller = Silent { stop: Arc::new(AtomicBool::new(stop)) };
            info(&log.display().to_string(), &caller).unwrap()
        };
        assert_eq!(looked(true).failure, Some(Failure::Interrupted));
        let whole = looked(false);
        assert_eq!((whole.failure, whole.info.ended_early), (None, None));
    }
}
