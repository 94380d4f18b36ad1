//! Buffers, and the bytes written from them.
//!
//! A writer with one operation at a time submits the next one when the last has completed, so the device is idle while
//! the bytes are made. Therefore the bytes of the next operation are made ahead while one is in flight, without knowing
//! where they will go ([`Content::stamp`]). A write of the same class and length then only has to fill in the heads of
//! its units. Every write still has bytes of its own.

use std::collections::BTreeMap;
use std::time::SystemTime;

use trimwise::content::{Content, ContentClass};
use trimwise::units::{SECTOR_BYTES, SectorRange, UNIT_BYTES, UnitRange};

use crate::ioctl::ring::Page;

/// Number of buffers made ahead, beyond those that writes have returned.
const AHEAD: usize = 2;

pub fn blank() -> Page {
    Page([0; UNIT_BYTES as usize])
}

/// Unused buffers. Reusing them saves zeroing and page faults.
pub struct Buffers {
    spare: BTreeMap<usize, Vec<Vec<Page>>>,
    /// Buffers filled for the class and length in `last`.
    ready: Vec<Ahead>,
    /// The buffer being filled, and the number of pages done.
    unfinished: Option<(Ahead, usize)>,
    /// Class and length of the last write; the next is probably the same.
    last: Option<(ContentClass, usize)>,
    seed: u64,
}

/// Bytes for a place that is not known yet: page `i` was made from `seed + i`.
struct Ahead {
    seed: u64,
    pages: Vec<Page>,
}

impl Default for Buffers {
    fn default() -> Self {
        // Differs from the last run, whose bytes a deduplicating drive may still hold.
        let seed =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let (spare, ready) = (BTreeMap::new(), Vec::new());
        Self { spare, ready, unfinished: None, last: None, seed: seed as u64 }
    }
}

impl Buffers {
    pub fn take(&mut self, pages: usize) -> Vec<Page> {
        let found = self.spare.get_mut(&pages).and_then(Vec::pop);
        found.unwrap_or_else(|| vec![blank(); pages])
    }

    pub fn put(&mut self, buffer: Vec<Page>) {
        if !buffer.is_empty() {
            self.spare.entry(buffer.len()).or_default().push(buffer);
        }
    }

    /// Returns a buffer filled for `sectors`, which are whole units or part of one.
    pub fn filled(&mut self, content: Content, sectors: SectorRange) -> Vec<Page> {
        if sectors.is_whole() {
            return self.filled_units(content, sectors.units());
        }
        // Parts of a unit written one after another must add up to that unit, so these bytes are not made ahead.
        let unit = sectors.units().start;
        let mut pages = self.take(1);
        if let Some(page) = pages.first_mut() {
            content.fill(unit, &mut page.0);
            let skipped = ((sectors.first.0 - unit.first_lba().0) * SECTOR_BYTES) as usize;
            page.0.copy_within(skipped.., 0);
        }
        pages
    }

    fn filled_units(&mut self, content: Content, units: UnitRange) -> Vec<Page> {
        let kind = (content.class, units.units as usize);
        if self.last != Some(kind) {
            // These were made for writes of another kind.
            for Ahead { pages, .. } in std::mem::take(&mut self.ready) {
                self.put(pages);
            }
            if let Some((Ahead { pages, .. }, _)) = self.unfinished.take() {
                self.put(pages);
            }
            self.last = Some(kind);
        }
        match self.ready.pop() {
            Some(Ahead { seed, mut pages }) => {
                for ((page, lpn), seed) in pages.iter_mut().zip(units.iter()).zip(seed..) {
                    content.stamp(lpn, seed, &mut page.0);
                }
                pages
            }
            None => {
                let mut pages = self.take(kind.1);
                for (page, lpn) in pages.iter_mut().zip(units.iter()) {
                    content.fill(lpn, &mut page.0);
                }
                pages
            }
        }
    }

    /// Makes bytes for the next writes until there are enough or `stop` returns true.
    pub(crate) fn make_ahead(&mut self, mut stop: impl FnMut() -> bool) {
        let Some((class, length)) = self.last else { return };
        if matches!(class, ContentClass::Zeros | ContentClass::Duplicated) {
            return; // quick to make, and identical only when made the usual way
        }
        while !stop() {
            let Some((ahead, done)) = &mut self.unfinished else {
                let spare = self.spare.get_mut(&length).and_then(Vec::pop);
                let pages = match spare {
                    Some(pages) => pages,
                    None if self.ready.len() < AHEAD => vec![blank(); length],
                    None => return,
                };
                self.unfinished = Some((Ahead { seed: self.seed, pages }, 0));
                self.seed = self.seed.wrapping_add(length as u64);
                continue;
            };
            match ahead.pages.get_mut(*done) {
                Some(page) => {
                    class.fill_body(ahead.seed.wrapping_add(*done as u64), &mut page.0);
                    *done += 1;
                }
                None => self.ready.extend(self.unfinished.take().map(|(ahead, _)| ahead)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwise::content::recognise;
    use trimwise::units::{Lba, Lpn};

    fn recognised(pages: &[Page], range: UnitRange, content: Content) {
        for (page, lpn) in pages.iter().zip(range.iter()) {
            assert_eq!(recognise(lpn, &page.0), content.stored(lpn), "{content:?} at {lpn:?}");
        }
    }

    #[test]
    fn bytes_made_ahead_are_recognised_wherever_they_go_and_never_repeat() {
        let mut buffers = Buffers::default();
        let mut bodies = std::collections::BTreeSet::new();
        for version in 0..40 {
            for class in ContentClass::ALL {
                let content = Content::new(class, version);
                for range in [UnitRange::new(Lpn(u64::from(version)), 3), UnitRange::new(Lpn(1 << 40), 3)] {
                    let pages = buffers.filled(content, range.into());
                    recognised(&pages, range, content);
                    if matches!(class, ContentClass::PseudoRandom | ContentClass::Incompressible) {
                        assert!(pages.iter().all(|page| bodies.insert(page.0[32..64].to_vec())));
                    }
                    buffers.put(pages);
                    // Stop anywhere, also between two pages of a buffer.
                    let mut steps = version;
                    buffers.make_ahead(|| {
                        steps = steps.saturating_sub(1);
                        steps == 0
                    });
                }
            }
        }
    }

    #[test]
    fn a_part_of_a_unit_is_that_part() {
        let content = Content::new(ContentClass::Incompressible, 5);
        let mut whole = blank();
        content.fill(Lpn(2), &mut whole.0);
        let mut buffers = Buffers::default();
        drop(buffers.filled(content, UnitRange::new(Lpn(0), 1).into()));
        buffers.make_ahead(|| false);
        let part = buffers.filled(content, SectorRange::new(Lba(19), 2));
        assert_eq!(part[0].0[..1024], whole.0[3 * 512..5 * 512]);
    }
}
