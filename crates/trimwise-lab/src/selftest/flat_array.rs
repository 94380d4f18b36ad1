//! A naive model of a device: an array of the contents of each unit.

use trimwise::content::{Content, Stored};
use trimwise::ssd::{ReadAfterTrim, Ssd, TrimConfig};
use trimwise::units::{Lpn, UnitRange};

/// Contents of a unit, which decide what a read may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Written, never touched, or erased.
    Exactly(Option<u32>),
    /// Freed: reads return zeros or the old data.
    Freed(Option<u32>),
}

/// Contents of all units, and which of them are mapped.
#[derive(Clone, Debug)]
pub struct FlatArray {
    held: Vec<Held>,
    mapped: Vec<bool>,
    granularity_units: u64,
    read_after: ReadAfterTrim,
}

impl FlatArray {
    pub fn new(units: u64, trim: &TrimConfig) -> Self {
        Self {
            held: vec![Held::Exactly(None); units as usize],
            mapped: vec![false; units as usize],
            granularity_units: trim.granularity_units.into(),
            read_after: trim.read_after,
        }
    }

    pub fn write(&mut self, range: UnitRange, content: Content) {
        for lpn in range.iter() {
            self.held[lpn.0 as usize] = Held::Exactly(Some(content.tag()));
            self.mapped[lpn.0 as usize] = true;
        }
    }

    /// Trims a range; only whole granules count.
    pub fn trim(&mut self, range: UnitRange) {
        let start = range.start.0.next_multiple_of(self.granularity_units);
        let end = range.end().0 / self.granularity_units * self.granularity_units;
        self.free(UnitRange::new(Lpn(start), end.saturating_sub(start)));
    }

    pub fn free(&mut self, range: UnitRange) {
        for lpn in range.iter() {
            let i = lpn.0 as usize;
            if std::mem::replace(&mut self.mapped[i], false) {
                let (Held::Exactly(old) | Held::Freed(old)) = self.held[i];
                self.held[i] = Held::Freed(old);
            }
        }
    }

    pub fn erase(&mut self) {
        self.held.fill(Held::Exactly(None));
        self.mapped.fill(false);
    }

    /// Checks that a device holds the array's contents in a range. It must keep tags
    /// ([`trimwise::ssd::SsdConfig::track_tags`]). The error describes the first difference.
    pub fn check(&self, ssd: &Ssd, range: UnitRange) -> Result<(), String> {
        for lpn in range.iter() {
            let (held, mapped) = (self.held[lpn.0 as usize], self.mapped[lpn.0 as usize]);
            if ssd.is_mapped(lpn) != mapped {
                let not = if mapped { "not " } else { "" };
                return Err(format!("unit {} is {not}mapped", lpn.0));
            }
            // Compare what a read returns: zeros and duplicates are equal, whichever version wrote them.
            let read = |tag: Option<u32>| tag.map_or(Stored::Zeros, |tag| Content::of_tag(tag).stored(lpn));
            let stored = read(ssd.tag(lpn));
            let right = match (held, self.read_after) {
                (Held::Exactly(expected), _) | (Held::Freed(expected), ReadAfterTrim::Old) => {
                    stored == read(expected)
                }
                (Held::Freed(_), ReadAfterTrim::Zeros) => stored == Stored::Zeros,
                (Held::Freed(old), ReadAfterTrim::Undefined) => {
                    stored == Stored::Zeros || stored == read(old)
                }
            };
            if !right {
                return Err(format!("unit {} holds {stored:?}; expected {held:?}", lpn.0));
            }
        }
        Ok(())
    }
}
