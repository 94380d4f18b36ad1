//! Writes a trace to its file, on a thread of its own.
//!
//! The file is a sequence of zstd frames. Each holds about a mebibyte of whole records, so however a recording ends,
//! the file can be read up to the last frame. If the disk is full, the incomplete last frame is cut off, which makes
//! room for a frame with the end mark. The file has another name until it is complete.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trimwise::failure::{Failure, Mistake, key, set};
use trimwise::trace::format::{END, Writer};
use trimwise::trace::{Header, Record};
use trimwise::units::Bytes;
use trimwise::words;
use trimwise_linux::files::{give_name, with_ending};
use trimwise_linux::record::Counts;

/// Bytes of records in a frame before compression. Larger frames compress no better. A frame that does not fit into the
/// largest trace is lost as a whole, so a frame is at most an eighth of that.
const FRAME_BYTES: usize = 1 << 20;
/// Longest time between frames, and so the most that a killed recording loses.
const FRAME_EVERY: Duration = Duration::from_secs(10);
/// zstd's fastest ordinary level.
const LEVEL: i32 = 1;
/// Deliveries that may wait for the disk. There are 20 a second. Later ones wait in the kernel's buffers.
const DELIVERIES_MAX: usize = 64;

#[derive(Debug)]
pub enum Stopped {
    Size,
    Disk(io::Error),
}

#[derive(Debug)]
pub struct Written {
    pub counts: Counts,
    pub bytes: u64,
    /// Why the trace ends early.
    pub stopped: Option<Stopped>,
}

#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    /// Name until the end; `None` for a pipe or `/dev/null`, which keep their name.
    partial: Option<PathBuf>,
    force: bool,
    records: SyncSender<Vec<Record>>,
    bytes: Arc<AtomicU64>,
    thread: JoinHandle<Written>,
}

impl TraceFile {
    /// Creates the file for a trace of at most `max_size`. The path has been checked.
    ///
    /// # Errors
    ///
    /// If it cannot be created, or a killed recording left one.
    pub fn create(path: &Path, force: bool, max_size: Bytes, header: Header) -> Result<Self, Failure> {
        let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file());
        let partial = (!is_special).then(|| with_ending(path, ".partial"));
        let mut options = OpenOptions::new();
        options.write(true);
        match (&partial, force) {
            (None, _) => &mut options,
            (Some(_), true) => options.create(true).truncate(true),
            (Some(_), false) => options.create_new(true),
        };
        let name = partial.as_deref().unwrap_or(path);
        let shown = name.display();
        let file = options.open(name).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                let why =
                    "exists: another recording is writing it, or was killed; it can be read as it is; pass";
                let why = words![format!("{shown} {why} "), key("force"), " to replace it"];
                Mistake::of("out", path.display()).because(why).fail()
            }
            _ => Failure::Run(words![set("out", path.display()), format!(": {shown}: {error}")]),
        })?;
        let (records, delivered) = sync_channel(DELIVERIES_MAX);
        let bytes = Arc::new(AtomicU64::new(0));
        let frames = Frames::new(file, max_size.0, Arc::clone(&bytes));
        let thread = std::thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || write_all(&delivered, frames, &header))
            .map_err(|error| Failure::run(format!("cannot start a thread: {error}")))?;
        Ok(Self { path: path.to_owned(), partial, force, records, bytes, thread })
    }

    /// Passes records on. Returns whether more can be written.
    pub fn deliver(&self, records: Vec<Record>) -> bool {
        if records.is_empty() { !self.thread.is_finished() } else { self.records.send(records).is_ok() }
    }

    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes.load(Ordering::Relaxed))
    }

    /// Writes the rest, and gives the file its final name.
    ///
    /// # Errors
    ///
    /// If it cannot be renamed; the message has its present path.
    pub fn finish(self) -> Result<Written, Failure> {
        drop(self.records);
        let written =
            self.thread.join().map_err(|_| Failure::run("the thread that writes the trace failed"))?;
        if let Some(partial) = &self.partial {
            if written.bytes == 0 {
                // There is not even a header, so the file replaces nothing.
                drop(fs::remove_file(partial));
                return Ok(written);
            }
            give_name(partial, &self.path, self.force).map_err(|error| {
                let why = format!(": {error}; the trace is in {}", partial.display());
                Failure::Run(words![set("out", self.path.display()), why])
            })?;
        }
        Ok(written)
    }
}

#[derive(Debug)]
struct Frames {
    file: File,
    plain: Vec<u8>,
    /// Size of `plain` at which the next frame is due.
    frame_bytes: usize,
    since: Instant,
    /// Size of the complete frames.
    written: u64,
    shown: Arc<AtomicU64>,
    max_size: u64,
    /// A frame with the end mark, for which there is always room.
    end: Vec<u8>,
    stopped: Option<Stopped>,
}

impl Frames {
    fn new(file: File, max_size: u64, shown: Arc<AtomicU64>) -> Self {
        let end = zstd::bulk::compress(&[END], LEVEL).unwrap_or_default();
        let (plain, since) = (Vec::with_capacity(FRAME_BYTES * 2), Instant::now());
        let frame_bytes = usize::try_from(max_size / 8).unwrap_or(usize::MAX).min(FRAME_BYTES);
        Self { file, plain, frame_bytes, since, written: 0, shown, max_size, end, stopped: None }
    }

    fn is_due(&self) -> bool {
        self.plain.len() >= self.frame_bytes
            || (!self.plain.is_empty() && self.since.elapsed() >= FRAME_EVERY)
    }

    /// Writes a frame. If that is impossible, ends the trace before it.
    fn emit(&mut self) -> Result<(), ()> {
        let frame = zstd::bulk::compress(&self.plain, LEVEL);
        self.plain.clear();
        self.since = Instant::now();
        let stopped = match frame {
            Ok(frame) if self.written + (frame.len() + self.end.len()) as u64 > self.max_size => {
                Stopped::Size
            }
            Ok(frame) => match self.file.write_all(&frame) {
                Ok(()) => {
                    self.add(frame.len());
                    return Ok(());
                }
                Err(error) => Stopped::Disk(error),
            },
            Err(error) => Stopped::Disk(error),
        };
        self.stopped = Some(stopped);
        // A pipe cannot be truncated.
        let cut =
            self.file.set_len(self.written).and_then(|()| self.file.seek(SeekFrom::Start(self.written)));
        // Without a header there is no trace to end.
        if self.written > 0 && cut.is_ok() && self.file.write_all(&self.end).is_ok() {
            self.add(self.end.len());
        }
        Err(())
    }

    fn add(&mut self, bytes: usize) {
        self.written += bytes as u64;
        self.shown.store(self.written, Ordering::Relaxed);
    }
}

struct Next(Rc<RefCell<Frames>>);

impl Write for Next {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().plain.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes deliveries until the sender is gone or nothing can be written.
fn write_all(delivered: &Receiver<Vec<Record>>, frames: Frames, header: &Header) -> Written {
    let frames = Rc::new(RefCell::new(frames));
    // `counts` covers complete frames, `all` every record.
    let (mut counts, mut all) = (Counts::default(), Counts::default());
    let emit = || frames.borrow_mut().emit();
    let mut write = || -> Result<(), ()> {
        let mut writer = Writer::new(Next(Rc::clone(&frames)), header).map_err(drop)?;
        emit()?; // the header, whatever comes
        loop {
            let records = match delivered.recv_timeout(FRAME_EVERY) {
                Ok(records) => records,
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            for record in records {
                writer.write(&record).map_err(drop)?;
                all.add(&record.event);
                if frames.borrow().is_due() {
                    emit()?;
                    counts = all;
                }
            }
            if frames.borrow().is_due() {
                emit()?;
                counts = all;
            }
        }
        writer.finish().map_err(drop)?;
        emit()?;
        counts = all;
        Ok(())
    };
    // The frames hold the reason of a failure.
    let _: Result<(), ()> = write();
    let mut frames = frames.borrow_mut();
    Written { counts, bytes: frames.written, stopped: frames.stopped.take() }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use trimwise::trace::format::Reader;
    use trimwise::trace::{Event, Request, RequestKind, Source as _, TraceDevice};
    use trimwise::units::{Lba, SectorRange, SimDuration, SimTime};

    use super::*;

    fn header() -> Header {
        Header { devices: vec![TraceDevice::default()], ..Header::default() }
    }

    fn records(count: u64) -> Vec<Record> {
        let scattered = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
        let record = |i: u64| Record {
            at: SimTime::ZERO + SimDuration::from_micros(i),
            device: 0,
            event: Event::Request(Request {
                kind: RequestKind::Write,
                sectors: SectorRange::new(Lba(scattered(i)), 8),
                sync: false,
                fua: false,
                meta: false,
                latency: Some(SimDuration::from_nanos(scattered(i + 1))),
            }),
        };
        (0..count).map(record).collect()
    }

    /// Reads the records of a file, which must have an end mark.
    fn read(path: &Path) -> Vec<Record> {
        let plain = zstd::stream::read::Decoder::new(File::open(path).unwrap()).unwrap();
        let mut reader = Reader::new(BufReader::new(plain)).unwrap();
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    fn write(path: &Path, max_size: u64, batches: Vec<Vec<Record>>) -> Written {
        let file = TraceFile::create(path, false, Bytes(max_size), header()).unwrap();
        batches.into_iter().all(|batch| file.deliver(batch));
        file.finish().unwrap()
    }

    #[test]
    fn what_is_delivered_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let all = records(300_000);
        let written = write(&path, 1 << 30, all.chunks(1000).map(<[Record]>::to_vec).collect());
        assert_eq!(
            (written.counts.writes.requests, written.bytes),
            (300_000, fs::metadata(&path).unwrap().len())
        );
        assert!(written.stopped.is_none() && read(&path) == all);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn a_trace_ends_at_its_largest_size_and_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let all = records(500_000);
        let written = write(&path, 1_000_000, all.chunks(1000).map(<[Record]>::to_vec).collect());
        assert!(matches!(written.stopped, Some(Stopped::Size)) && written.bytes <= 1_000_000, "{written:?}");
        let found = read(&path);
        assert_eq!(found.len() as u64, written.counts.writes.requests);
        assert!(!found.is_empty() && found.len() < all.len() && found == all[..found.len()]);
    }

    #[test]
    fn regression_the_smallest_trace_holds_most_of_what_fits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let written = write(&path, 64 << 10, vec![records(100_000)]);
        assert!(matches!(written.stopped, Some(Stopped::Size)) && written.bytes > 48 << 10, "{written:?}");
        assert_eq!(read(&path).len() as u64, written.counts.writes.requests);
    }

    #[test]
    fn regression_a_trace_without_a_header_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        fs::write(&path, "precious").unwrap();
        // No room for the header, as on a full disk.
        let written = TraceFile::create(&path, true, Bytes(20), header()).unwrap().finish().unwrap();
        assert_eq!((written.bytes, written.counts), (0, Counts::default()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_disk_that_is_full_is_told() {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (sender, delivered) = sync_channel(1);
        sender.send(records(1)).unwrap();
        let written = write_all(&delivered, Frames::new(file, 1 << 30, Arc::default()), &header());
        assert!(
            matches!(&written.stopped, Some(Stopped::Disk(error)) if error.kind() == ErrorKind::StorageFull)
        );
        assert_eq!((written.counts, written.bytes), (Counts::default(), 0));
    }

    #[test]
    fn nothing_is_replaced_without_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let file = TraceFile::create(&path, false, Bytes::mib(1), header()).unwrap();
        fs::write(&path, "precious").unwrap();
        let failure = file.finish().unwrap_err().to_string();
        assert!(failure.contains("t.partial"), "{failure}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let failure = TraceFile::create(&path, false, Bytes::mib(1), header()).unwrap_err().to_string();
        assert!(failure.contains("or was killed"), "{failure}");
        TraceFile::create(&path, true, Bytes::mib(1), header()).unwrap().finish().unwrap();
        assert_eq!(read(&path), []);
    }
}
