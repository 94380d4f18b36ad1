//! Data that a trace reads before writing them: they lay on the recording host's drive from the start.
//!
//! A drive answers a read of what was never written without touching its flash, and a file system one of an unwritten
//! extent without touching the drive. So these units are written before a replay, or the result says that they were
//! not.

use super::aim::Aim;
use super::{ReplayError, ReplayOptions};
use crate::trace::{Event, RequestKind, Source};
use crate::units::{Bytes, Lpn, UnitRange};

const RECORDS_PER_CALL: u64 = 65_536;

#[derive(Debug)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Creates bits of which none is set. The operating system provides memory where the first is set.
    pub fn new(size: Bytes) -> Self {
        Self(vec![0; size.units_ceil().div_ceil(64) as usize])
    }

    /// Sets bits. Passes those that were not set to `on_new`: a word's number and the bits in it.
    #[inline]
    pub fn set(&mut self, range: UnitRange, mut on_new: impl FnMut(usize, u64)) {
        if range.units == 0 {
            return;
        }
        let (start, last) = (range.start.0, range.end().0 - 1);
        for index in start / 64..=last / 64 {
            let from = if index == start / 64 { u64::MAX << (start % 64) } else { u64::MAX };
            let to = if index == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
            let word = &mut self.0[index as usize];
            if from & to & !*word != 0 {
                on_new(index as usize, from & to & !*word);
                *word |= from & to;
            }
        }
    }

    pub fn has(&self, unit: Lpn) -> bool {
        self.0[unit.0 as usize / 64] >> (unit.0 % 64) & 1 != 0
    }

    fn ranges(&self) -> Vec<UnitRange> {
        let mut ranges: Vec<UnitRange> = Vec::new();
        for (index, word) in self.0.iter().enumerate().filter(|(_, word)| **word != 0) {
            let mut rest = *word;
            while rest != 0 {
                let at = rest.trailing_zeros();
                let units = (rest >> at).trailing_ones();
                let start = Lpn(index as u64 * 64 + u64::from(at));
                match ranges.last_mut().filter(|last| last.end() == start) {
                    Some(last) => last.units += u64::from(units),
                    None => ranges.push(UnitRange::new(start, units.into())),
                }
                rest &= u64::MAX.checked_shl(at + units).unwrap_or(0);
            }
        }
        ranges
    }
}

/// Returns the units of a drive of this size that a trace reads before it writes or discards them, in order. A trace
/// with a prelude brings its drive's contents, so there are none. A damaged trace counts up to the damage. `on_records`
/// is called now and then with the number of records so far, and ends this by returning `false`.
pub fn read_before(
    source: &mut dyn Source,
    options: ReplayOptions,
    size: Bytes,
    on_records: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<UnitRange>, ReplayError> {
    if source.header().has_prelude {
        return Ok(Vec::new());
    }
    let mut aim = Aim::new(options, size);
    let (mut touched, mut before) = (Bits::new(size), Bits::new(size));
    loop {
        let record = match source.next() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(before.ranges()),
            Err(_) if aim.records > 0 => return Ok(before.ranges()),
            Err(error) => return Err(error.into()),
        };
        aim.records += 1;
        if aim.records.is_multiple_of(RECORDS_PER_CALL) && !on_records(aim.records) {
            return Err(ReplayError::Interrupted);
        }
        if !aim.is_chosen(&record, source.header())? {
            continue;
        }
        let Event::Request(request) = record.event else { continue };
        let (sectors, _) = aim.place(request.sectors, record.device, source.header())?;
        match request.kind {
            RequestKind::Read => touched.set(sectors.units(), |index, new| before.0[index] |= new),
            RequestKind::Write | RequestKind::Discard => touched.set(sectors.units(), |_, _| ()),
            RequestKind::Flush => {}
        }
    }
}
