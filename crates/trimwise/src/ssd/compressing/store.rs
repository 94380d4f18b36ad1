//! What is stored where: the map, and the log of each superblock.
//!
//! A unit that the host writes becomes a *chunk* of some granules; its address is that of its first granule.
//! `map` says where the chunk of a unit begins, or that the unit is all zeros, or which of the duplicates it is.
//! Each superblock keeps the owners of its chunks in the order in which they lie there; where one begins follows from
//! the sizes before it. A chunk counts as long as its owner's address is its own: overwriting a unit touches the
//! map and the superblock's counts, never a log.
//!
//! Which units are the same the controller learns from a table of hashes. In the model [`Content`] says it: there
//! are only [`DUPLICATES`] different units that repeat, and each has a place in a table with its address and the
//! number of units that refer to it. Every other chunk has exactly one.

use super::super::ftl::Slot;
use super::super::geometry::Geometry;
use super::gather::Gatherer;
use crate::content::{Content, ContentClass, DUPLICATES};
use crate::ssd::config::CompressingConfig;
use crate::units::{Lpn, UNIT_BYTES};

/// The map of a unit that holds no data.
pub(super) const UNMAPPED: u32 = u32::MAX;
/// The map of a unit of zeros, which takes no space.
const ZEROS: u32 = u32::MAX - 1;
/// The map of duplicate 0; the others count down from here.
const DUPLICATE: u32 = u32::MAX - 2;
/// Granules that there can be: below the marks above.
pub(in crate::ssd) const GRANULES_MAX: u32 = DUPLICATE - DUPLICATES;
/// Logical units that an owner can name.
pub(in crate::ssd) const UNITS_MAX: u32 = 1 << 30;

/// What the map says of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum Held {
    Nothing,
    Zeros,
    /// A duplicate, by its number.
    Shared(u32),
    /// A chunk of its own, at this granule.
    Own(u32),
}

/// What a unit becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum Kind {
    Zeros,
    Duplicate(u32),
    /// Data of one of the sizes.
    Data(Size),
}

/// Which of the sizes that there are: an index into [`Store::sizes`].
pub(in crate::ssd) type Size = u8;

/// Sizes: compressible, pseudo-random, incompressible.
const SIZES: usize = 3;
const SIZE_OF_DUPLICATE: Size = 2;

/// Whose a piece of a log is, in one word: thirty bits of number, two of size or mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) struct Owner(u32);

/// The same, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum Whose {
    Unit(u32, Size),
    Duplicate(u32),
    /// So many granules of nothing.
    Padding(u32),
}

impl Owner {
    const MARK: u32 = SIZES as u32;

    pub fn unit(lpn: u32, size: Size) -> Self {
        Self(lpn << 2 | u32::from(size))
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
            size => Whose::Unit(number, size as Size),
        }
    }
}

/// A unit that repeats.
#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Duplicate {
    /// Where its chunk begins; [`UNMAPPED`] while nobody refers to it.
    pub at: u32,
    pub references: u32,
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Store {
    map: Vec<u32>,
    /// The size of each unit that has a chunk of its own.
    size_of: Vec<Size>,
    duplicates: [Duplicate; DUPLICATES as usize],
    deduplicates: bool,
    /// Granules of a chunk of each size.
    sizes: [u32; SIZES],
    granules_per_superblock: u32,
    /// The owners of what a superblock holds, in order.
    pub(super) logs: Vec<Vec<Owner>>,
    /// Logical units that hold data.
    pub(super) mapped: u64,
    pub(super) gatherer: Gatherer,
    pub(super) recycles_from_stale_percent: Option<u32>,
    pub(super) references_checked: bool,
    /// Granules that the host has filled since the collector did its share.
    pub(super) unpaced: u32,
    /// Units that the host has read from flash since the recycler did its share.
    pub(super) unpaced_reads: u32,
    /// Tags by the first granule of a chunk, only for tests.
    tags: Vec<u32>,
}

impl Store {
    pub fn new(config: &CompressingConfig, geometry: &Geometry, track_tags: bool) -> Self {
        let granules_per_unit = UNIT_BYTES as u32 / config.granule_bytes;
        let granules_per_superblock = geometry.superblock_units * granules_per_unit;
        let granules = granules_per_superblock as usize * geometry.superblocks as usize;
        let stored = |class: ContentClass| config.stored_granules(class.entropy_bytes());
        Self {
            map: vec![UNMAPPED; geometry.logical_units as usize],
            size_of: vec![0; geometry.logical_units as usize],
            duplicates: [Duplicate { at: UNMAPPED, references: 0 }; DUPLICATES as usize],
            deduplicates: config.deduplicates,
            sizes: [ContentClass::Compressible, ContentClass::PseudoRandom, ContentClass::Incompressible]
                .map(stored),
            granules_per_superblock,
            logs: vec![Vec::new(); geometry.superblocks as usize],
            mapped: 0,
            gatherer: Gatherer::new(config, geometry.dies),
            recycles_from_stale_percent: config.recycles_from_stale_percent,
            references_checked: config.references_checked_at_collection,
            unpaced: 0,
            unpaced_reads: 0,
            tags: vec![0; if track_tags { granules } else { 0 }],
        }
    }

    /// What a unit of this content becomes.
    #[inline]
    pub fn kind(&self, content: Content, lpn: u32) -> Kind {
        match content.class {
            ContentClass::Zeros => Kind::Zeros,
            ContentClass::Compressible => Kind::Data(0),
            ContentClass::PseudoRandom => Kind::Data(1),
            ContentClass::Duplicated if self.deduplicates => {
                Kind::Duplicate(content.duplicate(Lpn(lpn.into())))
            }
            ContentClass::Incompressible | ContentClass::Duplicated => Kind::Data(SIZE_OF_DUPLICATE),
        }
    }

    #[inline]
    pub fn granules(&self, size: Size) -> u32 {
        self.sizes[size as usize]
    }

    /// Granules of the largest chunk: of a unit that does not compress.
    pub(crate) fn granules_max(&self) -> u32 {
        self.granules(SIZE_OF_DUPLICATE)
    }

    /// Granules that a piece of a log takes.
    #[inline]
    pub fn length(&self, owner: Owner) -> u32 {
        match owner.whose() {
            Whose::Unit(_, size) => self.granules(size),
            Whose::Duplicate(_) => self.granules(SIZE_OF_DUPLICATE),
            Whose::Padding(granules) => granules,
        }
    }

    #[inline]
    pub fn held(&self, lpn: u32) -> Held {
        match self.map.get(lpn as usize).copied() {
            None | Some(UNMAPPED) => Held::Nothing,
            Some(ZEROS) => Held::Zeros,
            Some(mark) if mark > GRANULES_MAX => Held::Shared(DUPLICATE - mark),
            Some(at) => Held::Own(at),
        }
    }

    pub fn duplicate(&self, number: u32) -> Duplicate {
        self.duplicates[number as usize]
    }

    /// Returns first granule and length of the chunk that a unit is read from.
    #[inline]
    pub fn chunk(&self, lpn: u32) -> Option<(u32, u32)> {
        match self.held(lpn) {
            Held::Nothing | Held::Zeros => None,
            Held::Shared(number) => Some((self.duplicate(number).at, self.granules(SIZE_OF_DUPLICATE))),
            Held::Own(at) => Some((at, self.granules(self.size_of[lpn as usize]))),
        }
    }

    /// Whether the chunk that begins at a granule still counts.
    #[inline]
    pub(crate) fn is_live(&self, owner: Owner, at: u32) -> bool {
        match owner.whose() {
            Whose::Unit(lpn, _) => self.map[lpn as usize] == at,
            Whose::Duplicate(number) => self.duplicates[number as usize].at == at,
            Whose::Padding(_) => false,
        }
    }

    /// The chunk now lies elsewhere.
    #[inline]
    pub(crate) fn move_to(&mut self, owner: Owner, from: u32, to: u32) {
        match owner.whose() {
            Whose::Unit(lpn, _) => self.map[lpn as usize] = to,
            Whose::Duplicate(number) => self.duplicates[number as usize].at = to,
            Whose::Padding(_) => {}
        }
        if !self.tags.is_empty() {
            self.tags[to as usize] = self.tags[from as usize];
        }
    }

    /// The superblock of a granule.
    #[inline]
    pub fn superblock(&self, granule: u32) -> u32 {
        granule / self.granules_per_superblock
    }

    /// The number of a granule in the whole device.
    #[inline]
    pub fn granule(&self, slot: Slot) -> u32 {
        slot.superblock * self.granules_per_superblock + slot.offset
    }

    /// Takes from a unit what it holds. Returns the chunk that nothing refers to now: first granule and length.
    #[inline]
    pub fn take(&mut self, lpn: u32) -> Option<(u32, u32)> {
        let held = self.held(lpn);
        self.map[lpn as usize] = UNMAPPED;
        self.mapped -= u64::from(held != Held::Nothing);
        match held {
            Held::Nothing | Held::Zeros => None,
            Held::Own(at) => Some((at, self.granules(self.size_of[lpn as usize]))),
            Held::Shared(number) => {
                let duplicate = &mut self.duplicates[number as usize];
                duplicate.references -= 1;
                if duplicate.references > 0 {
                    return None;
                }
                let at = std::mem::replace(&mut duplicate.at, UNMAPPED);
                Some((at, self.granules(SIZE_OF_DUPLICATE)))
            }
        }
    }

    /// Gives a unit that was released zeros.
    pub(crate) fn hold_zeros(&mut self, lpn: u32) {
        self.map[lpn as usize] = ZEROS;
        self.mapped += 1;
    }

    /// Gives a unit that was released a reference to a duplicate.
    pub(crate) fn hold_duplicate(&mut self, lpn: u32, number: u32) {
        self.map[lpn as usize] = DUPLICATE - number;
        self.duplicates[number as usize].references += 1;
        self.mapped += 1;
    }

    /// Gives a unit that was released a chunk of its own.
    #[inline]
    pub(crate) fn hold_own(&mut self, lpn: u32, at: u32, size: Size) {
        self.map[lpn as usize] = at;
        self.size_of[lpn as usize] = size;
        self.mapped += 1;
    }

    pub(crate) fn place_duplicate(&mut self, number: u32, at: u32) {
        self.duplicates[number as usize].at = at;
    }

    /// Forgets all data; the counts of the superblocks are the caller's.
    pub(crate) fn clear_all(&mut self) {
        self.map.fill(UNMAPPED);
        self.duplicates.fill(Duplicate { at: UNMAPPED, references: 0 });
        self.logs.fill(Vec::new());
        self.mapped = 0;
        (self.unpaced, self.unpaced_reads) = (0, 0);
        self.gatherer.clear();
    }

    /// Notes what was written into the chunk at `at`; of a duplicate, which one it is.
    #[inline]
    pub(crate) fn set_tag(&mut self, at: u32, kind: Kind, content: Content) {
        if let Some(slot) = self.tags.get_mut(at as usize) {
            *slot = match kind {
                Kind::Duplicate(number) => number,
                _ => content.tag(),
            };
        }
    }

    /// The tag of what a read of a unit finds.
    pub(crate) fn tag_of(&self, lpn: u32) -> Option<u32> {
        if self.tags.is_empty() {
            return None;
        }
        match self.held(lpn) {
            Held::Nothing => None,
            Held::Zeros => Some(Content::new(ContentClass::Zeros, 0).tag()),
            Held::Own(at) => Some(self.tags[at as usize]),
            Held::Shared(number) => {
                // What the chunk holds, as a version that makes this unit that duplicate.
                let found = self.tags[self.duplicate(number).at as usize];
                let version = (found + DUPLICATES - lpn % DUPLICATES) % DUPLICATES;
                Some(Content::new(ContentClass::Duplicated, version).tag())
            }
        }
    }

    pub fn units(&self) -> u32 {
        self.map.len() as u32
    }

    /// Bytes of the tables and logs, tags aside.
    pub(crate) fn table_bytes(&self) -> u64 {
        let logs: usize = self.logs.iter().map(Vec::capacity).sum();
        (self.map.capacity() * 4
            + self.size_of.capacity()
            + logs * size_of::<Owner>()
            + self.logs.capacity() * size_of::<Vec<Owner>>()) as u64
    }
}
