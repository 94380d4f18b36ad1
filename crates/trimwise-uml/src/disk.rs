//! A disk of the guest: virtio-blk requests on the modelled drive.
//!
//! A request is carried out on arrival, and completes at the time that the drive gives: the drive's front returns that
//! time at once ([`Port`]), and the request waits for it in a heap. Bytes are copied on arrival too. No request can
//! tell the difference, since Linux never has two requests in flight of which one writes what the other accesses.
//!
//! Requests: virtio 1.2, 5.2 "Block Device".

mod image;
mod recording;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Read, Write};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use trimwise::block::{Port, PortCounts, PortRequest};
use trimwise::content::{Content, ContentClass, classify_write};
use trimwise::ssd::SsdStats;
use trimwise::units::{
    Bytes, Lba, Lpn, SECTOR_BYTES, SectorRange, SimDuration, SimTime, UNIT_BYTES, UnitRange,
};
use virtio_queue::{DescriptorChain, QueueT, Reader, Writer};
use vm_memory::GuestMemoryMmap;

use crate::vhost::FrontEnd;
pub use image::Image;
pub use recording::{Changed, Recording, UnitBytes};
use trimwise_linux::sparse_store::SparseStore;

mod feature {
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
}

mod kind {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub(crate) const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub(crate) const WRITE_ZEROES: u32 = 13;
}

const STATUS_OK: u8 = 0;
const STATUS_IO_ERROR: u8 = 1;
const STATUS_UNSUPPORTED: u8 = 2;

/// Data segments of a request; Linux merges up to this many.
const SEGMENTS_MAX: u32 = 126;
const WRITE_ZEROES_SECTORS_MAX: u32 = (1 << 22) - 8;
const SERIAL_BYTES: usize = 20;
const FLAG_UNMAP: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traced {
    Read,
    Write,
    /// One entry for each range of a discard.
    Discard,
    /// A write of zeros, which the drive may carry out as a discard if that gives zeros.
    WriteZeroes,
    Flush,
}

impl Traced {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::WriteZeroes => "write_zeroes",
            Self::Flush => "flush",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    pub at_ns: u64,
    pub done_ns: u64,
    pub kind: Traced,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    /// True if the drive trimmed: always for a discard, and for a write of zeros if trimmed space reads as zeros.
    #[serde(skip)]
    pub is_trim: bool,
}

/// The requests to a disk and the work of its flash, up to a moment that the guest marked.
///
/// The guest sets a mark by reading the disk's serial number (`/sys/block/vda/serial`), which costs no time. That
/// number counts how often it was read, so the guest's init can tell its own marks from those of other programs that
/// read it.
#[derive(Clone, Debug)]
pub struct Mark {
    pub at: SimTime,
    pub counts: PortCounts,
    pub stats: SsdStats,
    pub mapped_units: u64,
    pub traced: usize,
}

/// A fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    DiscardsFail,
    DiscardsRefused,
    /// Every request fails: the disk was unplugged.
    Gone,
}

impl Fault {
    /// Time that a failed request takes. With zero, a kernel that retries would never get past the current time.
    const TAKES: SimDuration = SimDuration::from_millis(1);

    /// Returns the error status of a request of this kind; `None` if it succeeds as usual.
    fn answer(self, code: u32) -> Option<u8> {
        match (self, code) {
            (Self::DiscardsFail, kind::DISCARD) => Some(STATUS_IO_ERROR),
            (Self::DiscardsRefused, kind::DISCARD) => Some(STATUS_UNSUPPORTED),
            // Marks are not requests of the disk under test.
            (Self::Gone, code) => (code != kind::GET_ID).then_some(STATUS_IO_ERROR),
            _ => None,
        }
    }
}

/// Called at each mark with its number, before the guest goes on. It may look at the bytes of the disk and exchange
/// them. The units are those that were written or trimmed since the previous mark.
pub type AtMark = Box<dyn FnMut(usize, &SparseStore, Changed) -> io::Result<()>>;
pub(crate) type Pending = (SimTime, u64, u16, u32);

/// A disk of the guest.
pub struct Disk {
    port: Port,
    store: SparseStore,
    name: String,
    /// Memory for the data of a request: allocating it for each would cost as much as copying the data.
    buffer: Vec<u8>,
    pending: BinaryHeap<Reverse<Pending>>,
    requests: u64,
    /// True if the drive depends on the data written.
    looks_at_content: bool,
    trace: Option<Vec<TraceEntry>>,
    marks: Vec<Mark>,
    /// Planned faults, each for a range in the number of marks.
    faults: Vec<(Range<usize>, Fault)>,
    /// The reason for the first request that failed on this host.
    failure: Option<String>,
    recording: Option<Recording>,
    /// The recorded commands of requests that are not complete, by the number of the request.
    recorded: BTreeMap<u64, Vec<usize>>,
    at_mark: Option<(AtMark, Changed)>,
}

impl Disk {
    pub fn new(port: Port, store: SparseStore, name: &str, is_traced: bool) -> Self {
        Self {
            looks_at_content: port.drive().ssd().config().looks_at_content(),
            port,
            store,
            name: name.to_owned(),
            buffer: Vec::new(),
            pending: BinaryHeap::new(),
            requests: 0,
            trace: is_traced.then(Vec::new),
            marks: Vec::new(),
            faults: Vec::new(),
            failure: None,
            recording: None,
            recorded: BTreeMap::new(),
            at_mark: None,
        }
    }

    /// Writes the store's contents to the drive, in order and without its holes, then flushes, as if a host had copied
    /// an image to it. All of that is submitted at the beginning of time, so the guest's first request waits until it
    /// is done.
    pub fn write_what_is_there(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        for piece in self.store.pieces()? {
            bytes.resize((piece.end - piece.start) as usize, 0);
            self.store.read(piece.start, &mut bytes)?;
            let range = SectorRange::new(Lba(piece.start / SECTOR_BYTES), bytes.len() as u64 / SECTOR_BYTES);
            self.write(SimTime::ZERO, range, &bytes)?;
        }
        if bytes.is_empty() {
            return Ok(()); // a new drive stays untouched
        }
        self.flush(SimTime::ZERO).map(drop)
    }

    /// Records all commands from now on, with their bytes.
    #[must_use]
    pub fn recorded(self) -> Self {
        Self { recording: Some(Recording::new(self.port.limits().volatile_cache)), ..self }
    }

    /// Calls `at_mark` at each mark.
    #[must_use]
    pub fn with_exchange(self, at_mark: AtMark) -> Self {
        Self { at_mark: Some((at_mark, Changed::new())), ..self }
    }

    /// Returns the recording, if there is one.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.recording.take()
    }

    /// Adds faults, each active while the number of marks is in its range: `2..4` covers the second and third step of a
    /// job, since the first mark precedes the first step.
    #[must_use]
    pub fn with_faults(self, faults: Vec<(Range<usize>, Fault)>) -> Self {
        Self { faults, ..self }
    }

    pub fn features(&self) -> u64 {
        let limits = self.port.limits();
        let mut features = feature::SEG_MAX | feature::BLK_SIZE | feature::TOPOLOGY | feature::WRITE_ZEROES;
        if limits.volatile_cache {
            features |= feature::FLUSH;
        }
        if limits.discard_max_sectors > 0 {
            features |= feature::DISCARD;
        }
        features
    }

    pub fn config(&self) -> Vec<u8> {
        let limits = self.port.limits();
        let mut config = Vec::with_capacity(60);
        config.extend((self.port.size().0 / SECTOR_BYTES).to_le_bytes());
        config.extend(0_u32.to_le_bytes()); // size_max
        config.extend(SEGMENTS_MAX.to_le_bytes());
        config.extend([0; 4]); // geometry
        config.extend(512_u32.to_le_bytes()); // blk_size
        config.extend([3, 0]); // physical_block_exp: 4 KiB; alignment_offset
        config.extend(8_u16.to_le_bytes()); // min_io_size, in blocks
        config.extend(0_u32.to_le_bytes()); // opt_io_size
        config.extend([u8::from(limits.volatile_cache), 0]); // writeback, unused
        config.extend(1_u16.to_le_bytes()); // num_queues
        config.extend(limits.discard_max_sectors.to_le_bytes());
        config.extend(limits.discard_max_ranges.to_le_bytes());
        config.extend(limits.discard_granularity_sectors.to_le_bytes());
        config.extend(WRITE_ZEROES_SECTORS_MAX.to_le_bytes());
        config.extend(1_u32.to_le_bytes()); // max_write_zeroes_seg
        config.extend([1, 0, 0, 0]); // write_zeroes_may_unmap, unused
        config
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = Pending> {
        self.pending.iter().map(|Reverse(pending)| *pending)
    }

    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns why the first failed request failed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Keeps only these marks, by number.
    ///
    /// # Errors
    /// If the numbers are wrong, or if there were other marks, which would have misplaced the disk's faults.
    pub(super) fn keep_marks(&mut self, numbers: &[usize]) -> Result<(), String> {
        let marks = std::mem::take(&mut self.marks);
        let all = marks.len();
        let rises = numbers.is_sorted_by(|a, b| a < b);
        self.marks = numbers.iter().filter_map(|&number| marks.get(number).cloned()).collect();
        if !rises || self.marks.len() != numbers.len() {
            return Err(format!("it says that it marked its disk at {numbers:?}, of {all} marks"));
        }
        if all != numbers.len() && self.has_faults() {
            return Err(format!(
                "a program asked for the serial number of a disk that fails at a certain mark: {all} marks, of which the \
                 guest made {}",
                numbers.len()
            ));
        }
        Ok(())
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Returns the drive, its bytes, its trace and its marks after a run.
    pub fn into_parts(self) -> (Port, SparseStore, Vec<TraceEntry>, Vec<Mark>) {
        (self.port, self.store, self.trace.unwrap_or_default(), self.marks)
    }

    pub(crate) fn take_requests(&mut self, front: &mut FrontEnd, now: SimTime) -> io::Result<()> {
        let (memory, queue) = front.queue()?;
        while let Some(chain) = queue.pop_descriptor_chain(memory) {
            self.requests += 1;
            let head = chain.head_index();
            let (done, written) = self.take(chain, memory, now)?;
            self.pending.push(Reverse((done, self.requests, head, written)));
        }
        Ok(())
    }

    /// Completes all requests that are due by `now`.
    pub fn complete(&mut self, front: &mut FrontEnd, now: SimTime) -> io::Result<()> {
        while let Some(&Reverse((at, number, head, written))) = self.pending.peek()
            && at <= now
        {
            self.pending.pop();
            if let (Some(recording), Some(commands)) = (&mut self.recording, self.recorded.remove(&number)) {
                commands.into_iter().for_each(|command| recording.acknowledged(command));
            }
            let (memory, queue) = front.queue()?;
            queue.add_used(memory, head, written).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Carries out a request; returns when it completes and how many bytes were written to the guest.
    fn take(
        &mut self,
        chain: DescriptorChain<&GuestMemoryMmap>,
        memory: &GuestMemoryMmap,
        now: SimTime,
    ) -> io::Result<(SimTime, u32)> {
        let mut from_guest = chain.clone().reader(memory).map_err(io::Error::other)?;
        let mut to_guest = chain.writer(memory).map_err(io::Error::other)?;
        let data_bytes = to_guest.available_bytes().saturating_sub(1);
        let mut status = to_guest.split_at(data_bytes).map_err(io::Error::other)?;
        let mut head = [0; 16];
        from_guest.read_exact(&mut head)?;
        let [k0, k1, k2, k3, _, _, _, _, sector @ ..] = head;
        let (code, sector) = (u32::from_le_bytes([k0, k1, k2, k3]), u64::from_le_bytes(sector));
        let marks = self.marks.len();
        let faults = self.faults.iter().filter(|(during, _)| during.contains(&marks));
        let fault = faults.filter_map(|(_, fault)| fault.answer(code)).next();
        let (done, answer) = match fault {
            Some(answer) => (now + Fault::TAKES, answer),
            None => match self.carry_out(code, sector, &mut from_guest, &mut to_guest, data_bytes, now) {
                Ok(done) => (done, STATUS_OK),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => (now, STATUS_UNSUPPORTED),
                Err(error) => {
                    self.failure.get_or_insert_with(|| error.to_string());
                    (now, STATUS_IO_ERROR)
                }
            },
        };
        status.write_all(&[answer])?;
        Ok((done, data_bytes as u32 + 1))
    }

    fn carry_out(
        &mut self,
        code: u32,
        sector: u64,
        from_guest: &mut Reader<'_>,
        to_guest: &mut Writer<'_>,
        data_bytes: usize,
        now: SimTime,
    ) -> io::Result<SimTime> {
        let run = |bytes: usize| SectorRange::new(Lba(sector), bytes as u64 / SECTOR_BYTES);
        match code {
            kind::READ => {
                let range = run(data_bytes);
                let done = self.submit(now, &PortRequest::Read(range))?;
                let bytes = part(&mut self.buffer, data_bytes);
                self.store.read(sector * SECTOR_BYTES, bytes)?;
                to_guest.write_all(bytes)?;
                self.trace(now, done, Traced::Read, range);
                Ok(done)
            }
            kind::WRITE => {
                let mut buffer = std::mem::take(&mut self.buffer);
                let bytes = part(&mut buffer, from_guest.available_bytes());
                from_guest.read_exact(bytes)?;
                let range = run(bytes.len());
                // Store the bytes first, since a late TRIM is carried out after the write that it follows, and may
                // destroy it.
                self.keep(sector * SECTOR_BYTES, bytes)?;
                self.record_write(range)?;
                let done = self.write(now, range, bytes);
                self.buffer = buffer;
                done
            }
            kind::FLUSH => self.flush(now),
            kind::GET_ID => {
                let mut serial = format!("{}-{}", self.name, self.marks.len()).into_bytes();
                serial.resize(data_bytes.min(SERIAL_BYTES), 0);
                to_guest.write_all(&serial)?;
                let traced = self.trace.as_ref().map_or(0, Vec::len);
                // Collection while the drive was idle does not belong to the next step.
                self.port.catch_up(now);
                let (counts, ssd) = (self.port.counts(), self.port.drive().ssd());
                let (stats, mapped_units) = (*ssd.stats(), ssd.mapped_units());
                if let Some(recording) = &mut self.recording {
                    recording.marked();
                }
                if let Some((at_mark, changed)) = &mut self.at_mark {
                    at_mark(self.marks.len(), &self.store, std::mem::take(changed))?;
                }
                self.marks.push(Mark { at: now, counts, stats, mapped_units, traced });
                Ok(now)
            }
            kind::DISCARD => {
                let ranges: Vec<SectorRange> =
                    segments(from_guest)?.into_iter().map(|(range, _)| range).collect();
                let done = self.submit(now, &PortRequest::Discard(ranges.clone()))?;
                ranges.iter().for_each(|&range| self.trace(now, done, Traced::Discard, range));
                Ok(done)
            }
            kind::WRITE_ZEROES => {
                let mut done = now;
                for (sectors, flags) in segments(from_guest)? {
                    let may_unmap = flags & FLAG_UNMAP != 0;
                    let discards = self.port.counts().discards;
                    done = done.max(self.submit(now, &PortRequest::WriteZeroes { sectors, may_unmap })?);
                    let is_trim = self.port.counts().discards > discards;
                    self.store.punch(sectors.first.0 * SECTOR_BYTES, sectors.bytes())?;
                    self.record_write(sectors)?;
                    self.trace(now, done, Traced::WriteZeroes, sectors);
                    if let Some(entry) = self.trace.as_mut().and_then(|trace| trace.last_mut()) {
                        entry.is_trim = is_trim;
                    }
                }
                Ok(done)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn write(&mut self, now: SimTime, range: SectorRange, bytes: &[u8]) -> io::Result<SimTime> {
        let class = if self.looks_at_content { classify_write(bytes) } else { ContentClass::default() };
        let done = self.submit(now, &PortRequest::Write(range, Content::new(class, 0)))?;
        self.trace(now, done, Traced::Write, range);
        Ok(done)
    }

    fn flush(&mut self, now: SimTime) -> io::Result<SimTime> {
        let done = self.submit(now, &PortRequest::Flush)?;
        if !self.port.drive().faults().ignores_flush {
            self.record(Recording::flushed);
        }
        self.trace(now, done, Traced::Flush, SectorRange::new(Lba(0), 0));
        Ok(done)
    }

    /// Stores the data of a write. Long runs of zeros take no memory, so a drive can be filled with them.
    fn keep(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        const LONG: usize = 64 << 10;
        // Comparing the bytes with themselves, shifted by one, is a single call of memcmp. Ageing a drive spends most
        // of its time here.
        if bytes.len() >= LONG && bytes[0] == 0 && bytes[1..] == bytes[..bytes.len() - 1] {
            return self.store.punch(offset, Bytes(bytes.len() as u64));
        }
        self.store.write(offset, bytes)
    }

    /// Submits a request to the drive, and drops the bytes that it destroys.
    fn submit(&mut self, now: SimTime, request: &PortRequest) -> io::Result<SimTime> {
        let done = self.port.submit(now, request).map_err(io::Error::other)?;
        let destroyed = self.port.take_destroyed();
        for &units in &destroyed {
            self.store.punch_units(units)?;
            self.note_changed(units);
        }
        if !destroyed.is_empty() {
            self.record(|recording| recording.trimmed(destroyed));
        }
        Ok(done)
    }

    fn record(&mut self, add: impl FnOnce(&mut Recording) -> usize) {
        if let Some(recording) = &mut self.recording {
            let command = add(recording);
            self.recorded.entry(self.requests).or_default().push(command);
        }
    }

    fn record_write(&mut self, sectors: SectorRange) -> io::Result<()> {
        let first = sectors.first.0 * SECTOR_BYTES / UNIT_BYTES;
        let end = (sectors.first.0 * SECTOR_BYTES + sectors.bytes().0).div_ceil(UNIT_BYTES);
        let units = UnitRange::new(Lpn(first), end - first);
        self.note_changed(units);
        if self.recording.is_some() {
            let mut bytes = vec![0; Bytes::from_units(units.units).0 as usize];
            self.store.read(Bytes::from_units(first).0, &mut bytes)?;
            self.record(|recording| recording.written(units.start, &bytes));
        }
        Ok(())
    }

    fn note_changed(&mut self, units: UnitRange) {
        if let Some((_, changed)) = &mut self.at_mark {
            changed.extend(units.iter().map(|unit| unit.0));
        }
    }

    fn trace(&mut self, now: SimTime, done: SimTime, kind: Traced, range: SectorRange) {
        if let Some(trace) = &mut self.trace {
            trace.push(TraceEntry {
                at_ns: now.0,
                done_ns: done.0,
                kind,
                offset_bytes: range.first.0 * SECTOR_BYTES,
                length_bytes: range.bytes().0,
                is_trim: kind == Traced::Discard,
            });
        }
    }
}

/// Returns the first bytes of a buffer, which grows as needed.
fn part(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

/// Reads the ranges of a discard or a write of zeros (`struct virtio_blk_discard_write_zeroes`), with their flags.
fn segments(from_guest: &mut Reader<'_>) -> io::Result<Vec<(SectorRange, u32)>> {
    let mut bytes = vec![0; from_guest.available_bytes()];
    from_guest.read_exact(&mut bytes)?;
    let (segments, rest) = bytes.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a discard with half a range"));
    }
    Ok(segments
        .iter()
        .map(|&[a, b, c, d, e, f, g, h, i, j, k, l, flags @ ..]| {
            let first = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let sectors = u32::from_le_bytes([i, j, k, l]);
            (SectorRange::new(Lba(first), sectors.into()), u32::from_le_bytes(flags))
        })
        .collect())
}
