//! Traces as workloads: finds the file, and replays it on a modelled drive.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::caller::Report;
use trimwise::compare::result::Cell;
use trimwise::failure::{Failure, Mistake, Mistakes, argument};
use trimwise::replay::{
    Addresses, DeviceChoice, Pace, ReplayError, ReplayOptions, ReplaySpec, expect_recording, read_before,
    run_cell,
};
use trimwise::trace::{self, Event, Format, Record, RequestKind, Source};
use trimwise::units::{Bytes, UnitRange};
use trimwise_linux::trace_file;

/// Marks a workload as a trace.
pub const PREFIX: &str = "trace:";
pub const SYNTAX: &str = "trace:[FORMAT:]FILE[:OPTION...]";
const OPTIONS: &str = "open, open=PERCENT, closed, depth=N, wrap, scale, device=N or device=all";

#[derive(Clone, Debug)]
pub struct TraceFile {
    path: PathBuf,
    format: Option<Format>,
    /// Units that the trace reads before writing them, by the drive's size.
    before: Arc<Mutex<BTreeMap<u64, Arc<[UnitRange]>>>>,
    pub options: ReplayOptions,
}

/// Starts a mistake about a trace.
fn of(trace: impl std::fmt::Display) -> Mistake {
    Mistake::of(argument("trace"), trace)
}

/// Turns a mistake in a trace into one of a workload.
pub fn of_workload(failure: Failure) -> Failure {
    let Failure::Usage(Mistakes(mut mistakes)) = failure else { return failure };
    for asked in mistakes.iter_mut().flat_map(|mistake| &mut mistake.asked) {
        asked.key = "workload".into();
        asked.value = asked.value.take().map(|trace| format!("{PREFIX}{trace}"));
    }
    Failure::Usage(Mistakes(mistakes))
}

impl TraceFile {
    pub fn of(&self) -> Mistake {
        of(self.path.display())
    }

    /// Parses `[FORMAT:]FILE`. A file whose name is the whole text comes first.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let (format, path) = match text.split_once(':').filter(|_| !Path::new(text).exists()) {
            Some((format, path)) if format.parse::<Format>().is_ok() => (format.parse().ok(), path),
            _ => (None, text),
        };
        if path.is_empty() {
            return Err(of(text).because("names no trace").expected("[FORMAT:]FILE").fail());
        }
        Ok(Self { path: path.into(), format, before: Arc::default(), options: ReplayOptions::default() })
    }

    /// Parses `[FORMAT:]FILE[:OPTION...]`. The file's name may contain colons if no option follows.
    pub fn parse_workload(text: &str) -> Result<Self, Failure> {
        let mut options = ReplayOptions::default();
        let mut rest = text;
        while let Some((before, option)) = rest.rsplit_once(':') {
            match set_option(&mut options, option) {
                None => break,
                Some(Ok(())) => rest = before,
                Some(Err(expected)) => {
                    return Err(of(text).because(format!("'{option}'")).expected(expected).fail());
                }
            }
        }
        let file = Self { options, ..Self::parse(rest)? };
        match file.unknown_option() {
            None => Ok(file),
            Some(option) => {
                Err(of(text).because(format!("'{option}' is not an option")).expected(OPTIONS).fail())
            }
        }
    }

    /// Returns the text after the name of an existing file, if no file has the whole name.
    fn unknown_option(&self) -> Option<&str> {
        let name = self.path.to_str().filter(|_| !self.path.exists())?;
        let mut parts = name.match_indices(':');
        let (colon, _) = parts.find(|&(colon, _)| Path::new(&name[..colon]).is_file())?;
        name[colon + 1..].split(':').next()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> std::io::Result<Vec<u8>> {
        let files = trace_file::files(&self.path)?;
        Ok(files.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?.concat())
    }

    pub fn open(&self) -> Result<Box<dyn Source>, Failure> {
        self.open_until(&Arc::default())
    }

    /// Opens the trace; a pipe is waited for until `stop` is raised.
    pub fn open_until(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Source>, Failure> {
        let fail = |what: String| match stop.load(Ordering::Relaxed) {
            true => Failure::Interrupted,
            false => self.of().because(what).fail(),
        };
        let parts = trace_file::open(&self.path, stop).map_err(|e| fail(e.to_string()))?;
        trace::open_parts(parts, self.format).map_err(|e| fail(e.to_string()))
    }

    /// Rejects a trace that cannot be read up to its recording. A pipe is not checked, since it can be read only once.
    pub fn expect_recording(&self) -> Result<(), Failure> {
        if !trace_file::is_rereadable(&self.path) {
            return Ok(());
        }
        expect_recording(&mut *self.open()?).map_err(|error| self.failed(&error))
    }

    /// Rejects a trace that shows nothing to trim. Reads up to the first discard.
    pub fn expect_to_trim(&self) -> Result<(), Failure> {
        let header = self.open()?.header().clone();
        let has_frees = header.file_system.is_some_and(|fs| fs.is_traced);
        match has_frees || self.has(RequestKind::Discard)? {
            true => Ok(()),
            false => Err(self.failed(&ReplayError::NothingToTrim)),
        }
    }

    /// Returns whether the recording has a request of this kind. Reads up to the first one.
    pub fn has(&self, kind: RequestKind) -> Result<bool, Failure> {
        let mut source = self.open()?;
        if kind == RequestKind::Discard && source.header().never_discards() {
            return Ok(false);
        }
        let mut is_recording = !source.header().has_prelude;
        loop {
            match source.next() {
                Ok(Some(Record { event: Event::Begun, .. })) => is_recording = true,
                Ok(Some(Record { event: Event::Request(request), device, .. })) => {
                    let is_chosen = match self.options.devices {
                        DeviceChoice::Number(number) => device == number,
                        DeviceChoice::Only | DeviceChoice::All => true,
                    };
                    if is_recording && is_chosen && request.kind == kind {
                        return Ok(true);
                    }
                }
                Ok(Some(_)) => {}
                // The replay reports a damaged trace.
                Ok(None) | Err(_) => return Ok(false),
            }
        }
    }

    /// Rejects a trace that cannot be read once for each run.
    pub fn expect_rereadable(&self) -> Result<(), Failure> {
        if trace_file::is_rereadable(&self.path) {
            return Ok(());
        }
        // A missing file or a folder of something else is the more likely mistake, and opening it says so.
        if self.path.as_os_str() != trace_file::STDIN && (!self.path.exists() || self.path.is_dir()) {
            return self.open().map(drop);
        }
        let why = "can be read only once, but it is read for each device, policy and repetition";
        Err(self.of().because(why).expected("a file (`trimwise trace convert` makes one)").fail())
    }

    pub fn failed(&self, error: &ReplayError) -> Failure {
        match error {
            ReplayError::Interrupted => Failure::Interrupted,
            ReplayError::Audit { .. } | ReplayError::Before { .. } | ReplayError::Block { .. } => {
                Failure::run(format!("{}: {error}", self.path.display()))
            }
            _ => self.of().because(error.to_string()).fail(),
        }
    }

    /// Returns the units that the trace reads before writing them on a drive of this size. The trace is read to its end
    /// once for each size.
    pub fn read_before(
        &self,
        size: Bytes,
        on_records: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Arc<[UnitRange]>, Failure> {
        // Other runs wait for the first one, since they need the result too.
        let mut known = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = known.get(&size.0) {
            return Ok(Arc::clone(before));
        }
        let before = read_before(&mut *self.open()?, self.options, size, on_records);
        let before: Arc<[UnitRange]> = before.map_err(|error| self.failed(&error))?.into();
        known.insert(size.0, Arc::clone(&before));
        Ok(before)
    }

    /// Replays the trace on a new drive that holds the data it reads first.
    pub fn run_cell(&self, spec: ReplaySpec, report: &Report, stop: &AtomicBool) -> Result<Cell, Failure> {
        let is_wanted = || !stop.load(Ordering::Relaxed);
        let before = self.read_before(Bytes(spec.ssd.capacity_bytes), &mut |_| is_wanted())?;
        let spec = ReplaySpec { before, ..spec };
        let mut source = self.open()?;
        // The number of records is not known before the end.
        let mut on_records = |records| {
            report(records, u64::MAX);
            is_wanted()
        };
        run_cell(&spec, &mut *source, &mut on_records).map_err(|error| self.failed(&error))
    }
}

/// Sets an option. `None`: no such option; an error: its value is wrong.
fn set_option(options: &mut ReplayOptions, option: &str) -> Option<Result<(), String>> {
    let number = |text: &str, most: u32| {
        let parsed = text.parse::<u32>().ok().filter(|n| (1..=most).contains(n));
        parsed.ok_or_else(|| format!("a whole number from 1 to {most}"))
    };
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    Some(match (name, value) {
        ("closed", None) => {
            options.pace = Pace::Closed;
            Ok(())
        }
        ("open", None) => {
            options.pace = Pace::Open { speed_percent: 100 };
            Ok(())
        }
        ("open", Some(percent)) => {
            number(percent, 1_000_000).map(|speed_percent| options.pace = Pace::Open { speed_percent })
        }
        ("depth", Some(depth)) => number(depth, 65_536).map(|depth| options.queue_depth = depth),
        ("wrap", None) => {
            options.addresses = Addresses::Wrap;
            Ok(())
        }
        ("scale", None) => {
            options.addresses = Addresses::Scale;
            Ok(())
        }
        ("device", Some("all")) => {
            options.devices = DeviceChoice::All;
            Ok(())
        }
        ("device", Some(device)) => match device.parse() {
            Ok(device) => {
                options.devices = DeviceChoice::Number(device);
                Ok(())
            }
            Err(_) => Err("the number of a device, as `trimwise trace info` shows it, or all".to_owned()),
        },
        ("closed" | "depth" | "wrap" | "scale" | "device", _) => Err(OPTIONS.to_owned()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_trace_without_discards_is_refused_before_any_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        for (text, options, is_refused) in [
            ("0,R,0,4096,1\n0,W,0,4096,2\n", "", true),
            ("fio version 3 iolog\n0 a write 0 4096\n", "", true),
            ("fio version 3 iolog\n0 a write 0 4096\n1 a trim 0 4096\n", "", false),
            ("fio version 3 iolog\n0 a write 0 4096\n1 b trim 0 4096\n", ":device=0", true),
            ("fio version 3 iolog\n0 a write 0 4096\n1 b trim 0 4096\n", ":device=1", false),
        ] {
            std::fs::write(&path, text).unwrap();
            let plan = |policies: &[&str]| {
                let policies = policies.iter().map(|policy| (*policy).into()).collect();
                let workload = format!("{PREFIX}{}{options}", path.display());
                crate::compare::on_model::Plan::of(&crate::compare::CompareRequest {
                    workload,
                    policies,
                    ..Default::default()
                })
            };
            let refused = plan(&["off", "commit"]).err().map(|failure| failure.to_string());
            assert_eq!(refused.is_some(), is_refused, "{text}: {refused:?}");
            assert!(refused.is_none_or(|why| why.contains("the trace has neither discards nor frees")));
            assert!(plan(&["off"]).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_workload_names_format_file_and_options() {
        let parsed = TraceFile::parse_workload("msr:a:b.csv.gz:open=200:device=3:wrap").unwrap();
        assert_eq!((parsed.path(), parsed.format), (Path::new("a:b.csv.gz"), Some(Format::Msr)));
        let expected = ReplayOptions {
            pace: Pace::Open { speed_percent: 200 },
            devices: DeviceChoice::Number(3),
            addresses: Addresses::Wrap,
            ..ReplayOptions::default()
        };
        assert_eq!(parsed.options, expected);
        assert_eq!(TraceFile::parse_workload("x:y").unwrap().path(), Path::new("x:y"));
        for (text, expected) in [
            ("t:depth=0", "'depth=0'; expected a whole number from 1 to 65536"),
            ("t:open=x", "'open=x'; expected a whole number"),
            ("t:device=x", "expected the number of a device"),
            ("t:wrap=1", "expected open, open=PERCENT"),
            ("msr:", "names no trace"),
        ] {
            let failure = TraceFile::parse_workload(text).unwrap_err();
            assert!(
                matches!(&failure, Failure::Usage(m) if m.to_string().contains(expected)),
                "{text}: {failure:?}"
            );
        }
    }
}
