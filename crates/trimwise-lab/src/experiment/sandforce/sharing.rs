//! Flash used for compressible and for repeating data, and the fate of a unit whose twin is trimmed.

use trimwise::content::{Content, ContentClass, DUPLICATES, Stored};
use trimwise::ssd::{Ssd, SsdConfig};
use trimwise::units::{Bytes, Lpn, SimTime, UNIT_BYTES, UnitRange};

use super::{CellError, Setting};

/// Number of times that the rest of the drive is written, so that garbage collection reaches everything.
const PASSES: u64 = 4;
/// Capacity of the drive: as small as possible.
const CAPACITY: Bytes = Bytes(1_000_000_000);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sharing {
    /// NAND units per unit of compressible data.
    pub compressible_share: f64,
    /// Bytes written to flash for units whose data the drive already had.
    pub copies_bytes: u64,
    /// Number of trimmed units, and of those that still read as something.
    pub trimmed: (u64, u64),
    /// Number of units that shared their data with the trimmed ones, and of those that still read the same after all
    /// flash had been erased and rewritten.
    pub kept: (u64, u64),
}

/// Writes units twice, trims the first ones, and writes the rest of the drive until all flash has been recycled.
pub fn run_sharing(setting: &Setting, seed: u64) -> Result<Sharing, CellError> {
    let config = SsdConfig { track_tags: true, ..super::shrunk(&setting.ssd, CAPACITY)? };
    let mut ssd = Ssd::new(&config, seed)?;
    let twins = u64::from(DUPLICATES);
    let range = |start, units| UnitRange::new(Lpn(start), units);
    let duplicated = Content::new(ContentClass::Duplicated, 0);
    let rest = range(2 * twins, ssd.capacity_units() - 2 * twins);

    let now = ssd.write_content(SimTime::ZERO, rest, Content::new(ContentClass::Compressible, 1));
    let now = ssd.flush(now);
    let compressible_share = ssd.stats().write_amplification();
    let now = ssd.write_content(now, range(0, twins), duplicated);
    let mut now = ssd.flush(now);
    let before = ssd.stats().nand_units.total();
    now = ssd.write_content(now, range(twins, twins), duplicated);
    now = ssd.flush(now);
    let copies_bytes = (ssd.stats().nand_units.total() - before) * UNIT_BYTES;

    now = ssd.trim(now, &[range(0, twins)]);
    for pass in 0..PASSES {
        let content = Content::new(ContentClass::Incompressible, pass as u32);
        now = ssd.write_content(now, rest, content);
    }
    let stored = |lpn: u64| ssd.tag(Lpn(lpn)).map(|tag| Content::of_tag(tag).stored(Lpn(lpn)));
    let same = |lpn: &u64| stored(*lpn) == Some(Stored::Duplicate(duplicated.duplicate(Lpn(*lpn))));
    Ok(Sharing {
        compressible_share,
        copies_bytes,
        trimmed: (twins, (0..twins).filter(|&lpn| stored(lpn).is_some()).count() as u64),
        kept: (twins, (twins..2 * twins).filter(same).count() as u64),
    })
}
