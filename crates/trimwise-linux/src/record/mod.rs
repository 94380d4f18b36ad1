//! Records a workload: the requests that reach the disks below a mount, and the frees, allocations and commits of its
//! file system.
//!
//! The kernel's tracepoints report all of this. A [`Recorder`] enables them in a trace instance of its own, for its own
//! devices, and reads the buffers of all processors every [`EVERY`]. Records are merged by time (`merge`), requests are
//! matched with their completions (`requests`), and blocks become sectors of a disk (`target`). The results are the
//! library's [`Record`]s, in time order. Memory is bounded by the kernel's buffers and by the number of requests that
//! wait for a completion. Records that the kernel overwrote because they were not read in time are counted, and their
//! place is marked.
//!
//! **Frees and commits of ext4.** While a transaction commits, frees already belong to the next one. The journal says
//! when it switches, so such frees are delivered after that commit: in the trace, a commit makes durable exactly what
//! was freed before it. XFS does not say when it switches.

mod merge;
mod requests;
mod target;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use thiserror::Error;
use trimwise::trace::{Event, Header, Record, RequestKind};
use trimwise::units::{Bytes, SimDuration, SimTime};

use self::merge::Merge;
use self::requests::{Requests, parse};
pub use self::target::Target;
use crate::block_device::BlockDeviceError;
use crate::mount::MountError;
use crate::privilege::advice;
use crate::tracefs::format::{EventFormat, Traced, Tracepoint, filter};
use crate::tracefs::{Instance, InstanceError, TRACING, remove_left_behind};

const EVERY: Duration = Duration::from_millis(50);
/// Kernel memory for records, for all processors together, and the limits for one. A request takes 140 bytes, so 16 MiB
/// hold those of two seconds at 50,000 a second, all on one processor.
const BUFFERS_KIB: usize = 128 << 10;
const BUFFER_KIB_MIN: usize = 1 << 10;
const BUFFER_KIB_MAX: usize = 16 << 10;
/// Prefix of the name of a trace instance; the process's number follows.
const NAME: &str = "trimwise-record-";

#[derive(Debug, Error)]
pub enum RecordError {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Device(BlockDeviceError),
    #[error(
        "{mount_point}: {fs_type} is not on a block device, so it has no requests; expected ext4, XFS, btrfs..."
    )]
    NoDevice { mount_point: String, fs_type: String },
    #[error("{place}: tracefs is not mounted there; {remedy}")]
    NoTracefs { place: String, remedy: &'static str },
    #[error("{0}: {advice}", advice = advice("only root may record; run it with sudo"))]
    Permission(InstanceError),
    #[error(
        "{0}: tracefs is read-only here, as in a container; run it on the host, or mount tracefs writable for it"
    )]
    ReadOnly(InstanceError),
    #[error(
        "this kernel has no tracepoint {0} with the fields that are needed; it needs CONFIG_BLK_DEV_IO_TRACE"
    )]
    NoTracepoint(&'static str),
    #[error("tracing: {0}")]
    Other(InstanceError),
}

impl From<BlockDeviceError> for RecordError {
    fn from(error: BlockDeviceError) -> Self {
        match error {
            BlockDeviceError::None { mount_point, fs_type } => Self::NoDevice { mount_point, fs_type },
            error => Self::Device(error),
        }
    }
}

impl From<InstanceError> for RecordError {
    fn from(error: InstanceError) -> Self {
        match error {
            InstanceError::NotMounted(place) => {
                let header = Path::new(&place).join("events/header_page");
                match fs::metadata(&header) {
                    Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                        let path = place;
                        Self::Permission(InstanceError::Io { path, source })
                    }
                    _ => Self::NoTracefs { place, remedy: remedy() },
                }
            }
            InstanceError::Io { ref source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Self::Permission(error),
                io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(error),
                _ => Self::Other(error),
            },
            InstanceError::Header => Self::Other(error),
        }
    }
}

fn remedy() -> &'static str {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.split_whitespace().last() == Some("tracefs")) {
        "mount it: mount -t tracefs nodev /sys/kernel/tracing"
    } else {
        "this kernel has none (it is built without CONFIG_FTRACE), so it cannot record"
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    pub requests: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub reads: Count,
    /// Includes requests to write zeroes.
    pub writes: Count,
    pub discards: Count,
    pub flushes: u64,
    pub freed: Count,
    pub allocated: Count,
    pub commits: u64,
    /// Events that the kernel overwrote before they were read.
    pub lost: u64,
    /// Requests whose completion was not seen.
    pub without_latency: u64,
    /// Completions of requests that were issued before the recording, or whose issue was lost.
    pub unmatched: u64,
}

impl Counts {
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests + self.discards.requests + self.flushes
    }

    pub fn add(&mut self, event: &Event) {
        let (count, bytes) = match event {
            Event::Request(request) => {
                self.without_latency += u64::from(request.latency.is_none());
                let count = match request.kind {
                    RequestKind::Read => &mut self.reads,
                    RequestKind::Write => &mut self.writes,
                    RequestKind::Discard => &mut self.discards,
                    RequestKind::Flush => return self.flushes += 1,
                };
                (count, request.sectors.bytes())
            }
            Event::Freed(sectors) => (&mut self.freed, sectors.bytes()),
            Event::Allocated(sectors) => (&mut self.allocated, sectors.bytes()),
            Event::Committed => return self.commits += 1,
            Event::Lost(events) => return self.lost += events,
            Event::Begun => return,
        };
        count.requests += 1;
        count.bytes += bytes.0;
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Maximum duration; `None` to record until stopped.
    pub duration: Option<Duration>,
    /// Kernel memory for each processor's records; `None` for the default.
    pub buffer: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    Done,
    Stopped,
    /// The receiver no longer wants records.
    Refused,
}

#[derive(Debug)]
enum Heard {
    Traced(Tracepoint, Traced),
    Lost(u64),
}

/// Records the requests and events of a target. The trace instance is removed on drop.
#[derive(Debug)]
pub struct Recorder {
    target: Target,
    plan: Plan,
    header: Header,
    events: Vec<(Tracepoint, EventFormat)>,
    pipes: Vec<File>,
    instance: Instance,
    /// Pages of one processor's buffer: the most read from it in one round.
    pages: usize,
    merge: Merge<Heard>,
    requests: Requests,
    commits: Commits,
    counts: Counts,
    /// Records lost according to the pages.
    lost_in_pages: u64,
}

/// Frees that wait for the commit of the transaction before theirs.
#[derive(Debug, Default)]
struct Commits {
    holds: bool,
    is_committing: bool,
    held: Vec<(u32, Event)>,
}

/// Returns the time of the monotonic clock, which the instance uses too.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

impl Recorder {
    /// Creates a trace instance and enables the tracepoints of the target.
    pub fn open(target: Target, plan: Plan) -> Result<Self, RecordError> {
        Self::open_in(Path::new(TRACING), target, plan)
    }

    fn open_in(tracing: &Path, mut target: Target, plan: Plan) -> Result<Self, RecordError> {
        remove_left_behind(tracing, NAME);
        let instance = Instance::create(tracing, &format!("{NAME}{}", std::process::id()))?;
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", "mono")?;
        let kib = match plan.buffer {
            Some(size) => {
                let kib = usize::try_from(size.0.div_ceil(1024)).unwrap_or(usize::MAX);
                instance.set_buffers(kib, kib, kib)?
            }
            None => instance.set_buffers(BUFFERS_KIB, BUFFER_KIB_MIN, BUFFER_KIB_MAX)?,
        };
        let disks = filter(target.disks.iter().map(|disk| disk.numbers));
        let mut events = Vec::new();
        for point in [Tracepoint::Issue, Tracepoint::Complete, Tracepoint::Requeue] {
            let format = instance.find(point).ok_or(RecordError::NoTracepoint(point.path()))?;
            instance.write(Instance::event(point, "filter"), &disks)?;
            events.push((point, format));
        }
        let wanted = target.tracepoints();
        let file_system = target.blocks.as_ref().map(|blocks| filter([blocks.numbers].into_iter()));
        for &point in wanted {
            match (instance.find(point), &file_system) {
                (Some(format), Some(file_system)) => {
                    instance.write(Instance::event(point, "filter"), file_system)?;
                    events.push((point, format));
                }
                _ => target.notes.push(format!("this kernel has no tracepoint {}", point.path())),
            }
        }
        for (point, _) in &events {
            instance.write(Instance::event(*point, "enable"), "1")?;
        }
        let has = |point| events.iter().any(|(found, _)| *found == point);
        let commits = Commits {
            holds: target.blocks.as_ref().is_some_and(|blocks| blocks.frees_wait)
                && has(Tracepoint::JournalSwitched)
                && has(Tracepoint::JournalCommitted),
            ..Commits::default()
        };
        let is_traced = !wanted.is_empty() && wanted.iter().all(|&point| has(point));
        Ok(Self {
            header: target.header(is_traced),
            target,
            plan,
            events,
            pipes: instance.pipes()?,
            pages: (kib << 10).div_ceil(instance.page().size).max(1),
            instance,
            merge: Merge::new(),
            requests: Requests::default(),
            commits,
            counts: Counts::default(),
            lost_in_pages: 0,
        })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Records until the maximum duration is over, `stop` is set, or `deliver` returns `false`. Records are delivered
    /// in time order. After each delivery, `told` receives the counts.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        mut deliver: impl FnMut(Vec<Record>) -> bool,
        mut told: impl FnMut(&Counts),
    ) -> Result<(Counts, Ended), RecordError> {
        let start = now();
        let end = self
            .plan
            .duration
            .map(|duration| start.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)));
        self.instance.write("tracing_on", "1")?;
        let ended = loop {
            let is_behind = self.round(start);
            let time = now();
            let left = end.map_or(EVERY, |end| Duration::from_nanos(end.saturating_sub(time)));
            if !deliver(self.ready(since(start, time))) {
                break Ended::Refused;
            }
            told(&self.counts);
            if left.is_zero() {
                break Ended::Done;
            }
            if stop.load(Ordering::Relaxed) {
                break Ended::Stopped;
            }
            if !is_behind {
                std::thread::sleep(EVERY.min(left));
            }
        };
        self.instance.write("tracing_on", "0")?;
        if ended != Ended::Refused {
            deliver(self.rest(start));
            told(&self.counts);
        }
        Ok((self.counts, ended))
    }

    /// Reads all buffers, and delivers the records whose order is certain. Returns true if there is more to read at
    /// once.
    fn round(&mut self, start: u64) -> bool {
        self.merge.begin_round(now());
        let mut is_behind = false;
        let page = self.instance.page();
        let mut buffer = vec![0; page.size];
        for pipe in &mut self.pipes {
            let mut read = 0;
            let mut last = 0;
            // There is no more data, or the processor was removed.
            while read < self.pages
                && let Ok(n @ 1..) = pipe.read(&mut buffer)
            {
                let bytes = &buffer[..n];
                let first = page.time(bytes);
                let lost = page.records(bytes, |at, record| {
                    let mut parsed = self.events.iter().map(|(point, format)| (*point, format.read(record)));
                    if let Some((point, traced)) = parsed.find_map(|(point, traced)| Some((point, traced?))) {
                        self.merge.add(at, Heard::Traced(point, traced));
                    }
                    last = at;
                });
                if lost > 0 {
                    self.merge.add(first, Heard::Lost(lost));
                }
                read += 1;
            }
            if read == self.pages {
                self.merge.has_more(last);
                is_behind = true;
            }
        }
        self.sort_in(start);
        is_behind
    }

    /// Delivers the records up to the horizon.
    fn sort_in(&mut self, start: u64) {
        for (at, heard) in self.merge.end_round() {
            let at = since(start, at);
            match heard {
                Heard::Traced(point, traced) => match point {
                    Tracepoint::Issue | Tracepoint::Complete | Tracepoint::Requeue => {
                        of_request(&mut self.requests, &self.target, at, point, &traced);
                    }
                    _ => of_file_system(
                        &mut self.requests,
                        &mut self.commits,
                        &self.target,
                        at,
                        point,
                        &traced,
                    ),
                },
                Heard::Lost(records) => {
                    self.lost_in_pages += records;
                    self.requests.lost(at, records);
                }
            }
        }
    }

    fn ready(&mut self, now: SimTime) -> Vec<Record> {
        let ready: Vec<Record> = std::iter::from_fn(|| self.requests.next(now)).collect();
        ready.iter().for_each(|record| self.counts.add(&record.event));
        self.counts.unmatched = self.requests.unmatched;
        ready
    }

    fn rest(&mut self, start: u64) -> Vec<Record> {
        while self.round(start) {}
        // No record is outstanding, so all are in order.
        self.merge.begin_round(u64::MAX);
        self.sort_in(start);
        let at = since(start, now());
        self.commits.release(&mut self.requests, at);
        // The pages may say only that records are missing, not how many.
        let missing = self.instance.lost().saturating_sub(self.lost_in_pages);
        if missing > 0 {
            self.requests.lost(at, missing);
        }
        self.requests.give_up_all();
        self.ready(at)
    }
}

fn since(start: u64, at: u64) -> SimTime {
    SimTime::ZERO + SimDuration::from_nanos(at.saturating_sub(start))
}

fn of_request(requests: &mut Requests, target: &Target, at: SimTime, point: Tracepoint, traced: &Traced) {
    let sectors = trimwise::units::SectorRange::new(trimwise::units::Lba(traced.first), traced.count);
    let Some((device, request)) = target.index(traced.device).zip(parse(&traced.letters, sectors)) else {
        return;
    };
    match point {
        Tracepoint::Issue => requests.issued(at, device, request),
        Tracepoint::Complete => requests.completed(at, device, request.kind, request.sectors),
        _ => requests.requeued(device, request.kind, request.sectors.first),
    }
}

fn of_file_system(
    requests: &mut Requests,
    commits: &mut Commits,
    target: &Target,
    at: SimTime,
    point: Tracepoint,
    traced: &Traced,
) {
    match point {
        Tracepoint::Ext4 | Tracepoint::Xfs => target.sectors(traced, |device, sectors| {
            let event = Event::Freed(sectors);
            if commits.holds && commits.is_committing {
                commits.held.push((device, event));
            } else {
                requests.other(Record { at, device, event });
            }
        }),
        // Ignores NULLAGBLOCK: XFS found no place.
        Tracepoint::XfsAllocated if traced.first == u64::from(u32::MAX) => {}
        Tracepoint::Ext4Allocated | Tracepoint::XfsAllocated => target.sectors(traced, |device, sectors| {
            requests.other(Record { at, device, event: Event::Allocated(sectors) });
        }),
        Tracepoint::JournalSwitched => {
            // The end of the previous commit may have been lost.
            commits.release(requests, at);
            commits.is_committing = true;
        }
        _ => {
            requests.other(Record { at, device: 0, event: Event::Committed });
            commits.release(requests, at);
        }
    }
}

impl Commits {
    fn release(&mut self, requests: &mut Requests, at: SimTime) {
        self.is_committing = false;
        for (device, event) in self.held.drain(..) {
            requests.other(Record { at, device, event });
        }
    }
}

#[cfg(test)]
mod tests {
    use trimwise::trace::Request;
    use trimwise::units::{Lba, SectorRange};

    use super::*;

    #[test]
    fn what_tracefs_refuses_is_explained() {
        let said = |kind: io::ErrorKind| {
            let (path, source) = ("instances/x".to_owned(), kind.into());
            RecordError::from(InstanceError::Io { path, source }).to_string()
        };
        assert!(said(io::ErrorKind::ReadOnlyFilesystem).contains("tracefs is read-only here"));
        assert!(said(io::ErrorKind::PermissionDenied).starts_with("instances/x: permission denied: "));
        assert!(said(io::ErrorKind::StorageFull).starts_with("tracing: instances/x"));
        let missing = RecordError::from(InstanceError::NotMounted("/nowhere".to_owned())).to_string();
        assert!(missing.starts_with("/nowhere: tracefs is not mounted there; "), "{missing}");
    }

    #[test]
    fn frees_during_a_commit_follow_it() {
        let at = SimTime::ZERO;
        let mut requests = Requests::default();
        let freed = |first| (0, Event::Freed(SectorRange::new(Lba(first), 8)));
        let mut commits = Commits { holds: true, is_committing: true, held: vec![freed(0), freed(8)] };
        requests.other(Record { at, device: 0, event: Event::Committed });
        commits.release(&mut requests, at);
        let events: Vec<Event> = std::iter::from_fn(|| requests.next(at)).map(|one| one.event).collect();
        assert_eq!(events, [Event::Committed, freed(0).1, freed(8).1]);
        assert!(!commits.is_committing && commits.held.is_empty());
    }

    #[test]
    fn counts_are_by_kind() {
        let mut counts = Counts::default();
        let sectors = SectorRange::new(Lba(0), 8);
        let (kind, latency) = (RequestKind::Write, None);
        let request = Request { kind, sectors, sync: false, fua: false, meta: false, latency };
        for event in [Event::Request(request), Event::Freed(sectors), Event::Committed, Event::Lost(3)] {
            counts.add(&event);
        }
        let one = Count { requests: 1, bytes: 4096 };
        let expected =
            Counts { writes: one, freed: one, commits: 1, lost: 3, without_latency: 1, ..Counts::default() };
        assert_eq!((counts, counts.requests()), (expected, 1));
    }
}
