//! Thin storage below a file system: a volume that takes space only where something was written.
//!
//! The space comes in chunks. The first write into a chunk takes it; it comes back when a discard covers all of it.
//! What a file system frees is rarely a whole chunk, so that a fragmented file system holds more than it uses, the more
//! so the larger the chunks are.
//!
//! # Kinds
//!
//! All kinds are one state machine ([`ThinVolume`]). They differ in the limits that they announce, in what becomes of
//! a discard of a part of a chunk, and in whether zeros take space ([`ThinKind`]):
//!
//! - **dm-thin** (LVM, Docker, Stratis): `get_bio_block_range` in drivers/md/dm-thin.c rounds each discard bio inwards
//!   to whole blocks, and nothing remembers the rest, so that two discards of half a block free nothing. The last block
//!   of a volume that is no multiple of them is never covered. `thin_io_hints` announces the block as granularity, and
//!   1,024 blocks as the largest discard (`BIO_PRISON_MAX_RANGE`; 16 GiB before 6.5). It takes no WRITE ZEROES, so the
//!   kernel writes zeros, which take space.
//! - **qcow2**: block/io.c in QEMU (`bdrv_co_pdiscard`) cuts a request at clusters, and `qcow2_co_pdiscard` refuses a
//!   part of one, except at the end of the image. With subclusters (`extended_l2`) too a discard frees whole clusters
//!   only. The guest sees a granularity of one sector (virtio-blk) or 4 KiB (scsi-hd). Zeros that were never allocated
//!   stay so (`zero_in_l2_slice`).
//! - **An image file** (loop, raw files of QEMU): `lo_fallocate` in drivers/block/loop.c punches a hole, and the file
//!   system that holds the file frees whole blocks and zeroes the rest. `loop_get_discard_config` announces that block.
//! - **Ceph RBD**: `rbd_obj_init_discard` in drivers/block/rbd.c rounds a discard inwards to `alloc_size` (64 KiB)
//!   within each object, and an object of which nothing is left is deleted. For bytes that is dm-thin with chunks of
//!   `alloc_size`.
//! - **VMFS6** frees whole blocks of 1 MiB (VMware: "Space Reclamation for VMFS6 Virtual Machines"), and arrays their
//!   pages, which they announce. Some arrays look for pages of zeros when they are told to unmap (Hitachi: "zero data
//!   page reclaim"), so that partial discards add up.
//!
//! # Not modelled
//!
//! The time that a pool takes to provision, zero or copy a chunk, snapshots (a shared chunk does not come back), and a
//! pool that is full. Chunks lie on the drive below in the order of the volume. What comes back is discarded there, as
//! dm-thin does by default; the host of an image file would have to trim too.

use std::fmt;
use std::str::FromStr;

use crate::units::{Bytes, Lpn, SECTOR_BYTES, SimTime, UNIT_BYTES, UnitRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinKind {
    /// The rules of dm-thin.
    Pool,
    Qcow2,
    Image,
    /// A pool that remembers discards of parts of a chunk.
    Zeros,
}

impl ThinKind {
    pub const ALL: [Self; 4] = [Self::Pool, Self::Qcow2, Self::Image, Self::Zeros];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pool => "thin",
            Self::Qcow2 => "qcow2",
            Self::Image => "image",
            Self::Zeros => "zeros",
        }
    }

    fn sizes(self) -> (Bytes, Bytes) {
        match self {
            Self::Pool | Self::Zeros => (Bytes(UNIT_BYTES), Bytes::gib(1)),
            Self::Qcow2 => (Bytes(UNIT_BYTES), Bytes::mib(2)),
            Self::Image => (Bytes(UNIT_BYTES), Bytes::kib(64)),
        }
    }

    fn takes(self, chunk: Bytes) -> bool {
        let (least, most) = self.sizes();
        let is_power = matches!(self, Self::Pool | Self::Zeros) || chunk.0.is_power_of_two();
        (least..=most).contains(&chunk) && chunk.0.is_multiple_of(UNIT_BYTES) && is_power
    }
}

/// A volume of thin storage: its kind, and where its chunks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinConfig {
    pub kind: ThinKind,
    pub chunk: Bytes,
    /// Where the volume begins within a chunk, as a partition does.
    pub offset: Bytes,
}

impl ThinConfig {
    pub const fn new(kind: ThinKind, chunk: Bytes) -> Self {
        Self { kind, chunk, offset: Bytes(0) }
    }

    /// Splits DEVICE+KIND:CHUNK, the name of a device with thin storage on it. Returns `None` for other names.
    pub fn split(name: &str) -> Option<(&str, &str)> {
        let (device, volume) = name.rsplit_once('+')?;
        let kind = volume.split_once(':')?.0;
        ThinKind::ALL.iter().any(|known| known.name() == kind).then_some((device, volume))
    }

    const fn chunk_units(&self) -> u64 {
        self.chunk.0 / UNIT_BYTES
    }

    /// The granularity that the volume announces (`discard_granularity`).
    pub const fn granularity_units(&self) -> u64 {
        match self.kind {
            ThinKind::Pool | ThinKind::Zeros | ThinKind::Image => self.chunk_units(),
            ThinKind::Qcow2 => 1,
        }
    }

    /// The transfer size that it recommends (`optimal_io_size`): a pool its chunk (`pool_io_hints`), others none.
    pub(super) const fn optimal_units(&self) -> u64 {
        match self.kind {
            ThinKind::Pool => self.chunk_units(),
            ThinKind::Qcow2 | ThinKind::Image | ThinKind::Zeros => 0,
        }
    }

    /// The largest discard that it accepts (`discard_max_bytes`).
    const fn discard_units_max(&self) -> u64 {
        match self.kind {
            ThinKind::Pool | ThinKind::Zeros => self.chunk_units() * 1_024,
            // QEMU's `BDRV_REQUEST_MAX_BYTES`, 2 GiB less a sector.
            ThinKind::Qcow2 => Bytes::gib(2).units_floor() - 1,
            // 4 GiB less a sector (`UINT_MAX >> 9` sectors).
            ThinKind::Image => Bytes::gib(4).units_floor() - 1,
        }
    }

    /// Returns true if zeros that the kernel writes to space that was never written take none (`WRITE ZEROES`).
    pub(super) const fn zeros_take_nothing(&self) -> bool {
        matches!(self.kind, ThinKind::Qcow2)
    }

    /// Cuts a discard as Linux's block layer does. `bio_discard_limit` ends the first bio where the granularity does,
    /// so that further ones begin there; it computes that place as if the granularity were a power of two, and with
    /// other ones the cut may go through a chunk, which then does not come back. The largest discard cuts at multiples
    /// of itself.
    pub(super) fn bios(&self, range: UnitRange) -> Vec<UnitRange> {
        let sectors = UNIT_BYTES / SECTOR_BYTES;
        let (offset, most) = (self.offset.units_floor(), self.discard_units_max());
        let mask = self.granularity_units() * sectors - 1;
        let (mut at, end) = (range.start.0, range.end().0);
        let mut bios = Vec::new();
        while at < end {
            let sector = (at + offset) * sectors;
            let aligned = (sector.wrapping_sub(1) | mask).wrapping_add(1) / sectors - offset;
            let limit = ((at + offset) / most + 1) * most - offset;
            let to = if aligned > at { aligned } else { end }.min(limit).min(end);
            bios.push(UnitRange::between(Lpn(at), Lpn(to)));
            at = to;
        }
        bios
    }
}

impl fmt::Display for ThinConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.chunk.to_string().replace(' ', ""))
    }
}

impl FromStr for ThinConfig {
    type Err = String;

    /// Parses `[KIND:]CHUNK`. Without a kind, chunks below LVM's smallest are blocks of an image file.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, size) =
            match text.split_once(':') {
                Some((name, size)) => {
                    let known = ThinKind::ALL.into_iter().find(|kind| kind.name() == name);
                    let names = ThinKind::ALL.map(ThinKind::name).join(", ");
                    (
                        Some(known.ok_or_else(|| {
                            format!("'{name}' is no kind of thin storage: expected {names}")
                        })?),
                        size,
                    )
                }
                None => (None, text),
            };
        let chunk: Bytes = size.parse().map_err(|error: crate::units::SizeError| error.to_string())?;
        let is_block = ThinKind::Image.takes(chunk) && chunk < Bytes::kib(64);
        let kind = kind.unwrap_or(if is_block { ThinKind::Image } else { ThinKind::Pool });
        if kind.takes(chunk) {
            return Ok(Self::new(kind, chunk));
        }
        let (least, most) = kind.sizes();
        let steps = match kind {
            ThinKind::Pool | ThinKind::Zeros => "a multiple of 4 KiB",
            ThinKind::Image | ThinKind::Qcow2 => "a power of two",
        };
        Err(format!("chunks of {chunk} do not exist: expected {steps} from {least} to {most}"))
    }
}

/// Bytes that a volume holds of its pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    pub now: Bytes,
    pub max: Bytes,
    /// Over time since the last restart.
    pub mean_bytes: f64,
}

/// The state of a volume: which chunks it holds, now and over time.
#[derive(Clone, Debug)]
pub struct ThinVolume {
    config: ThinConfig,
    total_units: u64,
    /// A bit for each chunk that is held.
    held: Vec<u64>,
    /// A bit for each unit that was written and not discarded since.
    live: Vec<u64>,
    chunks: u64,
    chunks_max: u64,
    /// Chunk-nanoseconds since `since`.
    integral: u128,
    since: SimTime,
    last_change: SimTime,
}

impl ThinVolume {
    /// A volume that holds nothing yet.
    pub fn new(config: ThinConfig, total_units: u64) -> Self {
        let chunks = (total_units + config.offset.units_floor()).div_ceil(config.chunk_units());
        Self {
            config,
            total_units,
            held: vec![0; chunks.div_ceil(64) as usize],
            live: vec![0; total_units.div_ceil(64) as usize],
            chunks: 0,
            chunks_max: 0,
            integral: 0,
            since: SimTime::ZERO,
            last_change: SimTime::ZERO,
        }
    }

    pub const fn config(&self) -> &ThinConfig {
        &self.config
    }

    /// Notes a write, which takes the chunks that it touches.
    pub fn write(&mut self, now: SimTime, range: UnitRange) {
        self.advance(now);
        let range = self.inside(range);
        set(&mut self.live, range.start.0, range.end().0, true);
        for chunk in self.touched(range) {
            if !is_set(&self.held, chunk) {
                set(&mut self.held, chunk, chunk + 1, true);
                self.chunks += 1;
            }
        }
        self.chunks_max = self.chunks_max.max(self.chunks);
    }

    /// Notes a discard that reaches the volume as one. Returns what came back.
    pub fn discard(&mut self, now: SimTime, range: UnitRange) -> Vec<UnitRange> {
        self.give_back(now, range, self.config.kind == ThinKind::Zeros)
    }

    /// Lets the volume know of free space at no cost, whatever its kind remembers, for the bound.
    pub(super) fn reveal(&mut self, now: SimTime, range: UnitRange) -> Vec<UnitRange> {
        self.give_back(now, range, true)
    }

    fn give_back(&mut self, now: SimTime, range: UnitRange, remembers: bool) -> Vec<UnitRange> {
        self.advance(now);
        let range = self.inside(range);
        set(&mut self.live, range.start.0, range.end().0, false);
        let mut back: Vec<UnitRange> = Vec::new();
        for chunk in self.touched(range) {
            let Some(part) = self.returnable(chunk).filter(|_| is_set(&self.held, chunk)) else { continue };
            let is_covered = range.start <= part.start && part.end() <= range.end();
            let is_empty = || (part.start.0..part.end().0).all(|unit| !is_set(&self.live, unit));
            if is_covered || remembers && is_empty() {
                set(&mut self.held, chunk, chunk + 1, false);
                self.chunks -= 1;
                match back.last_mut() {
                    Some(last) if last.end() == part.start => last.units += part.units,
                    _ => back.push(part),
                }
            }
        }
        back
    }

    /// Begins to measure anew.
    pub fn restart(&mut self, now: SimTime) {
        (self.chunks_max, self.integral) = (self.chunks, 0);
        (self.since, self.last_change) = (now, now);
    }

    pub fn held(&mut self, now: SimTime) -> Held {
        self.advance(now);
        let span = now.since(self.since).as_nanos();
        let mean = if span == 0 { self.chunks as f64 } else { self.integral as f64 / span as f64 };
        let chunk = self.config.chunk.0;
        Held {
            now: Bytes(self.chunks * chunk),
            max: Bytes(self.chunks_max * chunk),
            mean_bytes: mean * chunk as f64,
        }
    }

    fn advance(&mut self, now: SimTime) {
        self.integral += u128::from(self.chunks) * u128::from(now.since(self.last_change).as_nanos());
        self.last_change = now;
    }

    fn inside(&self, range: UnitRange) -> UnitRange {
        let end = range.start.0.saturating_add(range.units).min(self.total_units);
        UnitRange::between(range.start, Lpn(end))
    }

    /// The chunks that a range touches.
    fn touched(&self, range: UnitRange) -> std::ops::Range<u64> {
        let (offset, chunk) = (self.config.offset.units_floor(), self.config.chunk_units());
        if range.units == 0 {
            return 0..0;
        }
        (range.start.0 + offset) / chunk..(range.end().0 + offset).div_ceil(chunk)
    }

    /// The units of the volume in a chunk that can come back: not in one that reaches beyond the volume, unless it is
    /// the last of a qcow2 image.
    fn returnable(&self, chunk: u64) -> Option<UnitRange> {
        let (offset, units) = (self.config.offset.units_floor(), self.config.chunk_units());
        let start = (chunk * units).checked_sub(offset)?;
        let end = start + units;
        let is_whole = end <= self.total_units || self.config.kind == ThinKind::Qcow2;
        is_whole.then(|| UnitRange::between(Lpn(start), Lpn(end.min(self.total_units))))
    }
}

fn is_set(bits: &[u64], at: u64) -> bool {
    bits[at as usize / 64] >> (at % 64) & 1 == 1
}

/// Sets or clears the bits from `from` up to `to`.
fn set(bits: &mut [u64], from: u64, to: u64, is: bool) {
    let mut at = from;
    while at < to {
        let end = (at / 64 + 1).min(to.div_ceil(64)) * 64;
        let end = end.min(to);
        let mask = (u64::MAX >> (64 - (end - at))) << (at % 64);
        let word = &mut bits[at as usize / 64];
        *word = if is { *word | mask } else { *word & !mask };
        at = end;
    }
}

#[cfg(test)]
mod tests;
