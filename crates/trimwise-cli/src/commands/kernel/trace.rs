//! The requests of `kernel run` as a trace: a table, blktrace's records, or trimwise's own format.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use trimwise::profile::Profile;
use trimwise::trace::format::Writer;
use trimwise::trace::{Event, Header, Record, Request, RequestKind, TraceDevice, blktrace};
use trimwise::units::{Lba, SECTOR_BYTES, SectorRange, SimDuration, SimTime};
use trimwise_lab::failure::Failure;
use trimwise_linux::trace_file::NewTrace;
use trimwise_uml::disk::{Mark, TraceEntry, Traced};

use super::RunReport;
use crate::output::Destinations;

/// Where the trace goes, and how it is written.
pub struct TraceFile {
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
    pub fn check(option: &'static str, path: &Path, destinations: &Destinations) -> Result<Self, Failure> {
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

    /// Writes the requests since the mark, with times since then. trimwise's own format also gets those before, which
    /// made the drive what it was.
    pub fn write(
        &self,
        to: &Destinations,
        report: &RunReport,
        drive: (&str, &Profile),
        (trace, begin): (&[TraceEntry], &Mark),
    ) -> Result<(), Failure> {
        let since = |entry: &TraceEntry| TraceEntry {
            at_ns: entry.at_ns - begin.at.0,
            done_ns: entry.done_ns - begin.at.0,
            ..*entry
        };
        let counted = || trace[begin.traced..].iter().map(since);
        let failed = |e| Failure::run(format!("{} {}: {e}", self.option, self.path.display()));
        let text = match self.form {
            Form::Own => return self.write_own(to, report, drive, (trace, begin)).map_err(failed),
            Form::Blktrace => return self.write_blktrace(to, counted()).map_err(failed),
            Form::Json => {
                let trace: Vec<TraceEntry> = counted().collect();
                serde_json::to_string(&trace).map_err(Failure::run)? + "\n"
            }
            Form::Csv => {
                let mut text = "at_ns,done_ns,kind,offset_bytes,length_bytes\n".to_owned();
                for TraceEntry { at_ns, done_ns, kind, offset_bytes, length_bytes, .. } in counted() {
                    let _ = writeln!(text, "{at_ns},{done_ns},{},{offset_bytes},{length_bytes}", kind.name());
                }
                text
            }
        };
        to.write_result(self.option, &self.path, &text)
    }

    fn write_blktrace(
        &self,
        to: &Destinations,
        mut entries: impl Iterator<Item = TraceEntry>,
    ) -> io::Result<()> {
        let mut writer = blktrace::Writer::new(NewTrace::create(&self.path, to.replaces())?);
        entries.try_for_each(|entry| writer.write(&record(&entry)))?;
        writer.finish()?.finish()
    }

    fn write_own(
        &self,
        to: &Destinations,
        report: &RunReport,
        (name, device): (&str, &Profile),
        (trace, begin): (&[TraceEntry], &Mark),
    ) -> io::Result<()> {
        let disk = TraceDevice {
            name: name.to_owned(),
            capacity_bytes: Some(device.config.capacity_bytes),
            model: Some(device.name.clone()),
        };
        let header = Header {
            made_by: format!("trimwise kernel run {}, {}", trimwise::VERSION, report.kernel.file_system),
            devices: vec![disk],
            file_system: None,
            kernel: Some(report.kernel.release.clone()),
            has_prelude: true,
        };
        let mut writer = Writer::new(NewTrace::create(&self.path, to.replaces())?, &header)?;
        let (before, after) = trace.split_at(begin.traced);
        before.iter().try_for_each(|entry| writer.write(&record(entry)))?;
        writer.write(&Record { at: begin.at, device: 0, event: Event::Begun })?;
        after.iter().try_for_each(|entry| writer.write(&record(entry)))?;
        writer.finish()?.finish()
    }
}

/// A request as traces have it. They have no writes of zeros: these are what the drive made of them.
fn record(entry: &TraceEntry) -> Record {
    let TraceEntry { at_ns, done_ns, kind, offset_bytes, length_bytes, is_trim } = *entry;
    let kind = match kind {
        Traced::Read => RequestKind::Read,
        Traced::WriteZeroes if is_trim => RequestKind::Discard,
        Traced::Write | Traced::WriteZeroes => RequestKind::Write,
        Traced::Discard => RequestKind::Discard,
        Traced::Flush => RequestKind::Flush,
    };
    let request = Request {
        kind,
        sectors: SectorRange::new(Lba(offset_bytes / SECTOR_BYTES), length_bytes / SECTOR_BYTES),
        // The disk is not told.
        sync: matches!(kind, RequestKind::Read | RequestKind::Flush),
        fua: false,
        meta: false,
        latency: Some(SimDuration(done_ns - at_ns)),
    };
    Record { at: SimTime(at_ns), device: 0, event: Event::Request(request) }
}
