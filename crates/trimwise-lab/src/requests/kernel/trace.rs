//! Traces of the requests to a guest's drive: as a table, as blktrace's records, or in trimwise's own format.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use trimwise::trace::format::Writer;
use trimwise::trace::{Event, Header, Record, Request, RequestKind, blktrace};
use trimwise::units::{Lba, SECTOR_BYTES, SectorRange, SimDuration, SimTime};
use trimwise_linux::trace_file::NewTrace;
use trimwise_uml::disk::{Mark, TraceEntry, Traced};

/// The requests to a drive, from the boot of its guest to the last unmount.
#[derive(Debug)]
pub struct DriveTrace {
    pub(super) header: Header,
    pub(super) entries: Vec<TraceEntry>,
    /// The mark at the program's start.
    pub(super) begin: Mark,
}

impl DriveTrace {
    /// Returns the requests since the program's start, with times relative to that start.
    fn counted(&self) -> impl Iterator<Item = TraceEntry> + '_ {
        let begin = self.begin.at.0;
        let since = move |entry: &TraceEntry| TraceEntry {
            at_ns: entry.at_ns - begin,
            done_ns: entry.done_ns - begin,
            ..*entry
        };
        self.entries[self.begin.traced..].iter().map(since)
    }

    /// Formats the requests since the program's start as a list in JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        let trace: Vec<TraceEntry> = self.counted().collect();
        Ok(serde_json::to_string(&trace)? + "\n")
    }

    /// Formats the requests since the program's start as CSV with a header.
    pub fn csv(&self) -> String {
        let mut text = "at_ns,done_ns,kind,offset_bytes,length_bytes\n".to_owned();
        for TraceEntry { at_ns, done_ns, kind, offset_bytes, length_bytes, .. } in self.counted() {
            let _ = writeln!(text, "{at_ns},{done_ns},{},{offset_bytes},{length_bytes}", kind.name());
        }
        text
    }

    /// Writes the requests since the program's start as blktrace's records. Fails if the file exists, unless `replace`
    /// is set.
    pub fn write_blktrace(&self, path: &Path, replace: bool) -> io::Result<()> {
        let mut writer = blktrace::Writer::new(NewTrace::create(path, replace)?);
        self.counted().try_for_each(|entry| writer.write(&record(&entry)))?;
        writer.finish()?.finish()
    }

    /// Writes trimwise's own format, including the requests before the program's start, because they brought the drive
    /// into its state. Fails if the file exists, unless `replace` is set.
    pub fn write_own(&self, path: &Path, replace: bool) -> io::Result<()> {
        let mut writer = Writer::new(NewTrace::create(path, replace)?, &self.header)?;
        let (before, after) = self.entries.split_at(self.begin.traced);
        before.iter().try_for_each(|entry| writer.write(&record(entry)))?;
        writer.write(&Record { at: self.begin.at, device: 0, event: Event::Begun })?;
        after.iter().try_for_each(|entry| writer.write(&record(entry)))?;
        writer.finish()?.finish()
    }
}

/// Converts a request. Traces have no writes of zeros, so these become what the drive made of them.
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
        // The disk does not learn which requests are synchronous.
        sync: matches!(kind, RequestKind::Read | RequestKind::Flush),
        fua: false,
        meta: false,
        latency: Some(SimDuration(done_ns - at_ns)),
    };
    Record { at: SimTime(at_ns), device: 0, event: Event::Request(request) }
}
