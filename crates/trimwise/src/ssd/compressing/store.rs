//! The map from units to chunks, and the log of each superblock.
//!
//! A unit that the host writes becomes a *chunk* of some granules; its address is that of its first granule. `map`
//! gives the first granule of a unit's chunk, or says that the unit is all zeros, or which of the duplicates it is.
//! Each superblock keeps the owners of its chunks in order; the start of a chunk follows from the sizes before it. A
//! chunk is live as long as its owner's address is its own: overwriting a unit touches the map and the superblock's
//! counts, never a log.
//!
//! The controller finds identical units with a table of hashes. In the model [`Content`] identifies them: there are
//! only [`DUPLICATES`] different units that repeat, and each has a place in a table with its address and the number of
//! units that refer to it. Every other chunk has exactly one reference.

use super::super::address::{Number, Ppn, Superblock, Table, Tags};
use super::super::geometry::Geometry;
use super::gather::Gatherer;
use crate::content::{Content, ContentClass, DUPLICATES};
use crate::ssd::config::CompressingConfig;
use crate::units::{Lpn, UNIT_BYTES};

/// Map entry of a unit of zeros, which takes no space.
const ZEROS: Ppn = Ppn(u32::MAX - 1);
/// Map entry of duplicate 0; the others count down from here.
const DUPLICATE: u32 = u32::MAX - 2;
/// Maximum number of granules. Larger numbers are the marks above.
pub(in crate::ssd) const GRANULES_MAX: u32 = DUPLICATE - DUPLICATES;
/// Maximum number of logical units that an owner can name.
pub(in crate::ssd) const UNITS_MAX: u32 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum Held {
    Nothing,
    Zeros,
    Shared(u32),
    Own(Ppn),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum Kind {
    Zeros,
    Duplicate(u32),
    Data(Size),
}

pub(in crate::ssd) type Size = u8;

/// The sizes of compressible, pseudo-random and incompressible units.
const SIZES: usize = 3;
const SIZE_OF_DUPLICATE: Size = 2;

/// Owner of a piece of a log in one word: 30 bits of number, 2 of size or mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) struct Owner(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum Whose {
    Unit(Lpn, Size),
    Duplicate(u32),
    Padding(u32),
}

impl Owner {
    const MARK: u32 = SIZES as u32;

    pub fn unit(lpn: Lpn, size: Size) -> Self {
        Self((lpn.0 as u32) << 2 | u32::from(size))
    }

    pub fn duplicate(number: u32) -> Self {
        Self(number << 2 | Self::MARK)
    }

    pub fn padding(granules: u32) -> Self {
        Self((granules + DUPLICATES) << 2 | Self::MARK)
    }

    pub fn whose(self) -> Whose {
        let number = self.0 >> 2;
        match self.0 & 3 {
            Self::MARK if number < DUPLICATES => Whose::Duplicate(number),
            Self::MARK => Whose::Padding(number - DUPLICATES),
            size => Whose::Unit(Lpn(number.into()), size as Size),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Duplicate {
    /// First granule of the duplicate's chunk; [`Ppn::NONE`] while nothing refers to it.
    pub at: Ppn,
    pub references: u32,
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Store {
    pub(super) map: Table<Lpn, Ppn>,
    size_of: Table<Lpn, Size>,
    duplicates: [Duplicate; DUPLICATES as usize],
    deduplicates: bool,
    sizes: [u32; SIZES],
    pub(super) granules_per_superblock: u32,
    pub(super) logs: Table<Superblock, Vec<Owner>>,
    pub(super) mapped: u64,
    pub(super) gatherer: Gatherer,
    pub(super) recycles_from_stale_percent: Option<u32>,
    pub(super) references_checked: bool,
    /// Granules that the host has filled since the collector last did its share.
    pub(super) unpaced: u32,
    /// Units that the host has read from flash since the recycler last did its share.
    pub(super) unpaced_reads: u32,
    /// Tags by the first granule of a chunk. The tag of a duplicate is its number.
    pub(super) tags: Tags,
}

impl Store {
    pub fn new(config: &CompressingConfig, geometry: &Geometry, track_tags: bool) -> Self {
        let granules_per_unit = UNIT_BYTES as u32 / config.granule_bytes;
        let granules_per_superblock = geometry.superblock_units * granules_per_unit;
        let stored = |class: ContentClass| config.stored_granules(class.entropy_bytes());
        Self {
            map: Table::new(geometry.logical_units as usize, Ppn::NONE),
            size_of: Table::new(geometry.logical_units as usize, 0),
            duplicates: [Duplicate { at: Ppn::NONE, references: 0 }; DUPLICATES as usize],
            deduplicates: config.deduplicates,
            sizes: [ContentClass::Compressible, ContentClass::PseudoRandom, ContentClass::Incompressible]
                .map(stored),
            granules_per_superblock,
            logs: Table::new(geometry.superblocks as usize, Vec::new()),
            mapped: 0,
            gatherer: Gatherer::new(config, geometry.dies),
            recycles_from_stale_percent: config.recycles_from_stale_percent,
            references_checked: config.references_checked_at_collection,
            unpaced: 0,
            unpaced_reads: 0,
            tags: Tags::new(track_tags, granules_per_superblock * geometry.superblocks),
        }
    }

    #[inline]
    pub fn kind(&self, content: Content, lpn: Lpn) -> Kind {
        match content.class {
            ContentClass::Zeros => Kind::Zeros,
            ContentClass::Compressible => Kind::Data(0),
            ContentClass::PseudoRandom => Kind::Data(1),
            ContentClass::Duplicated if self.deduplicates => Kind::Duplicate(content.duplicate(lpn)),
            ContentClass::Incompressible | ContentClass::Duplicated => Kind::Data(SIZE_OF_DUPLICATE),
        }
    }

    #[inline]
    pub fn granules(&self, size: Size) -> u32 {
        self.sizes[size as usize]
    }

    pub(crate) fn granules_max(&self) -> u32 {
        self.granules(SIZE_OF_DUPLICATE)
    }

    #[inline]
    pub fn length(&self, owner: Owner) -> u32 {
        match owner.whose() {
            Whose::Unit(_, size) => self.granules(size),
            Whose::Duplicate(_) => self.granules(SIZE_OF_DUPLICATE),
            Whose::Padding(granules) => granules,
        }
    }

    #[inline]
    pub fn held(&self, lpn: Lpn) -> Held {
        match self.map.at(lpn).copied().unwrap_or(Ppn::NONE) {
            Ppn::NONE => Held::Nothing,
            ZEROS => Held::Zeros,
            Ppn(mark) if mark > GRANULES_MAX => Held::Shared(DUPLICATE - mark),
            at => Held::Own(at),
        }
    }

    pub fn duplicate(&self, number: u32) -> Duplicate {
        self.duplicates[number as usize]
    }

    #[inline]
    pub fn chunk(&self, lpn: Lpn) -> Option<(Ppn, u32)> {
        match self.held(lpn) {
            Held::Nothing | Held::Zeros => None,
            Held::Shared(number) => Some((self.duplicate(number).at, self.granules(SIZE_OF_DUPLICATE))),
            Held::Own(at) => Some((at, self.granules(self.size_of[lpn]))),
        }
    }

    #[inline]
    pub(crate) fn is_live(&self, owner: Owner, at: Ppn) -> bool {
        match owner.whose() {
            Whose::Unit(lpn, _) => self.map[lpn] == at,
            Whose::Duplicate(number) => self.duplicates[number as usize].at == at,
            Whose::Padding(_) => false,
        }
    }

    #[inline]
    pub(crate) fn move_to(&mut self, owner: Owner, from: Ppn, to: Ppn) {
        match owner.whose() {
            Whose::Unit(lpn, _) => self.map[lpn] = to,
            Whose::Duplicate(number) => self.duplicates[number as usize].at = to,
            Whose::Padding(_) => {}
        }
        self.tags.copy(from, to);
    }

    /// Releases a unit's data. Returns the first granule and the length of the chunk if nothing refers to it any
    /// longer.
    #[inline]
    pub fn take(&mut self, lpn: Lpn) -> Option<(Ppn, u32)> {
        let held = self.held(lpn);
        self.map[lpn] = Ppn::NONE;
        self.mapped -= u64::from(held != Held::Nothing);
        match held {
            Held::Nothing | Held::Zeros => None,
            Held::Own(at) => Some((at, self.granules(self.size_of[lpn]))),
            Held::Shared(number) => {
                let duplicate = &mut self.duplicates[number as usize];
                duplicate.references -= 1;
                if duplicate.references > 0 {
                    return None;
                }
                let at = std::mem::replace(&mut duplicate.at, Ppn::NONE);
                Some((at, self.granules(SIZE_OF_DUPLICATE)))
            }
        }
    }

    pub(crate) fn hold_zeros(&mut self, lpn: Lpn) {
        self.map[lpn] = ZEROS;
        self.mapped += 1;
    }

    pub(crate) fn hold_duplicate(&mut self, lpn: Lpn, number: u32) {
        self.map[lpn] = Ppn(DUPLICATE - number);
        self.duplicates[number as usize].references += 1;
        self.mapped += 1;
    }

    #[inline]
    pub(crate) fn hold_own(&mut self, lpn: Lpn, at: Ppn, size: Size) {
        self.map[lpn] = at;
        self.size_of[lpn] = size;
        self.mapped += 1;
    }

    pub(crate) fn place_duplicate(&mut self, number: u32, at: Ppn) {
        self.duplicates[number as usize].at = at;
    }

    /// Forgets all data. The caller must reset the counts of the superblocks.
    pub(crate) fn clear_all(&mut self) {
        self.map.fill(Ppn::NONE);
        self.duplicates.fill(Duplicate { at: Ppn::NONE, references: 0 });
        self.logs.fill(Vec::new());
        self.mapped = 0;
        (self.unpaced, self.unpaced_reads) = (0, 0);
        self.gatherer.clear();
    }

    pub(crate) fn tag_of(&self, lpn: Lpn) -> Option<u32> {
        // There are no tags unless they are kept.
        self.tags.get(Ppn(0))?;
        match self.held(lpn) {
            Held::Nothing => None,
            Held::Zeros => Some(Content::new(ContentClass::Zeros, 0).tag()),
            Held::Own(at) => self.tags.get(at),
            Held::Shared(number) => {
                // The chunk's tag, as the version with which this unit holds that duplicate.
                let found = self.tags.get(self.duplicate(number).at)?;
                let version = (found + DUPLICATES - lpn.0 as u32 % DUPLICATES) % DUPLICATES;
                Some(Content::new(ContentClass::Duplicated, version).tag())
            }
        }
    }

    pub(crate) fn table_bytes(&self) -> u64 {
        let logs: usize = self.logs.iter().map(Vec::capacity).sum();
        let logs = self.logs.memory_bytes() + (logs * size_of::<Owner>()) as u64;
        self.map.memory_bytes() + self.size_of.memory_bytes() + logs
    }
}
