//! Buffers and what is written from them.

use std::collections::BTreeMap;

use trimwise::content::Content;
use trimwise::units::{SECTOR_BYTES, SectorRange, UNIT_BYTES, UnitRange};

use crate::ioctl::ring::Page;

/// One page of zeros.
pub fn blank() -> Page {
    Page([0; UNIT_BYTES as usize])
}

/// Buffers that nobody uses, by their length in pages: what is used again needs no zeroing and no page faults.
#[derive(Default)]
pub struct Spare(BTreeMap<usize, Vec<Vec<Page>>>);

impl Spare {
    /// A buffer of so many pages, with anything in it.
    pub fn take(&mut self, pages: usize) -> Vec<Page> {
        let found = self.0.get_mut(&pages).and_then(Vec::pop);
        found.unwrap_or_else(|| vec![blank(); pages])
    }

    /// Gives a buffer back.
    pub fn put(&mut self, buffer: Vec<Page>) {
        if !buffer.is_empty() {
            self.0.entry(buffer.len()).or_default().push(buffer);
        }
    }
}

/// Fills a buffer with the bytes of `sectors`, which are whole units or a part of one.
pub fn fill(buffer: &mut [Page], content: Content, sectors: SectorRange) {
    let UnitRange { start, .. } = sectors.units();
    for (page, lpn) in buffer.iter_mut().zip(sectors.units().iter()) {
        content.fill(lpn, &mut page.0);
    }
    // A part of a unit begins somewhere inside it.
    let skipped = ((sectors.first.0 - start.first_lba().0) * SECTOR_BYTES) as usize;
    if let Some(page) = buffer.first_mut().filter(|_| skipped > 0) {
        page.0.copy_within(skipped.., 0);
    }
}
