//! What is written: how well it compresses, and what a read must give back.
//!
//! The models store no data, only a [`Content`] for each unit; a real device is given the bytes that
//! [`Content::fill`] makes of it, and [`recognise`] reads them back. A unit made here names its own place and
//! version in its first bytes, so that a read tells whether a device kept what it was told to keep, except for
//! zeros and duplicates, whose point is that many units are the same.

use std::fmt;
use std::str::FromStr;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;

use crate::units::{Lpn, UNIT_BYTES};

/// Bytes that a unit begins with: signature, place, version, class, check.
const HEAD_BYTES: usize = 32;
const SIGNATURE: u64 = u64::from_le_bytes(*b"trimwise");
/// How many different units there are among duplicates.
pub const DUPLICATES: u32 = 64;

/// How well data compress, and whether they repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentClass {
    /// Nothing but zeros.
    Zeros,
    /// One eighth of it random, the rest zeros: what HD Tach and ATTO write is of this kind.
    Compressible,
    /// Five eighths random, as much of what people store.
    PseudoRandom,
    /// Random throughout: compressed or encrypted data.
    #[default]
    Incompressible,
    /// Random throughout, and one of only [`DUPLICATES`] different units.
    Duplicated,
}

/// A class that is not known.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{given}' is no class of data; expected one of {}", ContentClass::ALL.map(ContentClass::name).join(", "))]
pub struct ContentClassError {
    given: String,
}

impl ContentClass {
    /// All classes, from the easiest to store to the hardest, and the one that repeats.
    pub const ALL: [Self; 5] =
        [Self::Zeros, Self::Compressible, Self::PseudoRandom, Self::Incompressible, Self::Duplicated];

    /// Its name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Compressible => "compressible",
            Self::PseudoRandom => "pseudo-random",
            Self::Incompressible => "incompressible",
            Self::Duplicated => "duplicated",
        }
    }

    /// Bytes of a unit that a good compressor cannot do without, its own heads aside.
    pub const fn entropy_bytes(self) -> u32 {
        let eighths = match self {
            Self::Zeros => 0,
            Self::Compressible => 1,
            Self::PseudoRandom => 5,
            Self::Incompressible | Self::Duplicated => 8,
        };
        eighths * (UNIT_BYTES as u32 / 8)
    }
}

impl fmt::Display for ContentClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ContentClass {
    type Err = ContentClassError;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|class| class.name() == given);
        found.ok_or_else(|| ContentClassError { given: given.to_owned() })
    }
}

/// What one write puts into each of its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// What kind of data.
    pub class: ContentClass,
    /// Which data of that kind: another version, other bytes. At most [`Content::VERSION_MAX`].
    pub version: u32,
}

/// What a unit was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Zeros: written so, or never written, or trimmed.
    Zeros,
    /// What was written to this place.
    Content(Content),
    /// One of the units that are duplicates of each other, by its number.
    Duplicate(u32),
    /// What was written to another place.
    Misplaced {
        /// Which one.
        lpn: Lpn,
    },
    /// Something that was not made here, or that is damaged.
    Unknown,
}

impl Content {
    /// The highest version, so that version and class fit into 32 bits.
    pub const VERSION_MAX: u32 = (1 << 29) - 1;

    /// `version` of a class, modulo the highest.
    pub const fn new(class: ContentClass, version: u32) -> Self {
        Self { class, version: version & Self::VERSION_MAX }
    }

    /// Both in one number, which a model keeps for a unit.
    pub const fn tag(self) -> u32 {
        (self.version << 3) | self.class as u32
    }

    /// What [`Content::tag`] came from.
    pub const fn of_tag(tag: u32) -> Self {
        let class = match tag & 7 {
            0 => ContentClass::Zeros,
            1 => ContentClass::Compressible,
            2 => ContentClass::PseudoRandom,
            4 => ContentClass::Duplicated,
            _ => ContentClass::Incompressible,
        };
        Self { class, version: tag >> 3 }
    }

    /// Which of the duplicates unit `lpn` is; only of [`ContentClass::Duplicated`].
    pub const fn duplicate(self, lpn: Lpn) -> u32 {
        ((lpn.0 + self.version as u64) % DUPLICATES as u64) as u32
    }

    /// What a read of unit `lpn` must find after this was written to it.
    pub const fn stored(self, lpn: Lpn) -> Stored {
        match self.class {
            ContentClass::Zeros => Stored::Zeros,
            ContentClass::Duplicated => Stored::Duplicate(self.duplicate(lpn)),
            _ => Stored::Content(self),
        }
    }

    /// Makes the bytes of unit `lpn`. `unit` is one unit long; of a longer or shorter one as much as there is.
    pub fn fill(self, lpn: Lpn, unit: &mut [u8]) {
        unit.fill(0);
        if self.class == ContentClass::Zeros {
            return;
        }
        // Duplicates name no place: they have the head of the first place that they can be at.
        let (place, version) = match self.class {
            ContentClass::Duplicated => (u64::from(self.duplicate(lpn)), 0),
            _ => (lpn.0, self.version),
        };
        let mut head = [0; HEAD_BYTES];
        let tag = Self::new(self.class, version).tag();
        head[0..8].copy_from_slice(&SIGNATURE.to_le_bytes());
        head[8..16].copy_from_slice(&place.to_le_bytes());
        head[16..20].copy_from_slice(&tag.to_le_bytes());
        let mut random = Xoshiro256PlusPlus::seed_from_u64(place << 32 ^ u64::from(tag));
        head[24..32].copy_from_slice(&random.next_u64().to_le_bytes());
        let random_bytes = self.class.entropy_bytes() as usize;
        let end = unit.len().min(random_bytes.max(HEAD_BYTES));
        random.fill_bytes(&mut unit[..end]);
        let head_end = unit.len().min(HEAD_BYTES);
        unit[..head_end].copy_from_slice(&head[..head_end]);
    }
}

/// What the bytes of unit `lpn` are. All of them are looked at.
pub fn recognise(lpn: Lpn, unit: &[u8]) -> Stored {
    if unit.iter().all(|&byte| byte == 0) {
        return Stored::Zeros;
    }
    let number = |at: usize| unit.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let (Some(SIGNATURE), Some(place), Some(tag)) = (number(0), number(8), number(16)) else {
        return Stored::Unknown;
    };
    let content = Content::of_tag(tag as u32);
    let mut expected = vec![0; unit.len()];
    content.fill(Lpn(place), &mut expected);
    if expected != unit {
        return Stored::Unknown;
    }
    match content.class {
        ContentClass::Duplicated => Stored::Duplicate(content.duplicate(Lpn(place))),
        _ if place == lpn.0 => Stored::Content(content),
        _ => Stored::Misplaced { lpn: Lpn(place) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_is_recognised_at_its_own_place_only() {
        let mut unit = vec![0; UNIT_BYTES as usize];
        for class in ContentClass::ALL {
            for (lpn, version) in [(Lpn(0), 0), (Lpn(7), 3), (Lpn(1 << 30), Content::VERSION_MAX)] {
                let content = Content::new(class, version);
                assert_eq!(Content::of_tag(content.tag()), content);
                content.fill(lpn, &mut unit);
                assert_eq!(recognise(lpn, &unit), content.stored(lpn), "{class} {version} at {lpn:?}");
                if let Stored::Content(_) = content.stored(lpn) {
                    assert_eq!(recognise(Lpn(lpn.0 + 1), &unit), Stored::Misplaced { lpn });
                    unit[4095] ^= 1;
                    assert_eq!(recognise(lpn, &unit), Stored::Unknown, "a damaged {class}");
                }
            }
        }
        assert_eq!(recognise(Lpn(0), &[1; 4096]), Stored::Unknown);
        assert_eq!(recognise(Lpn(0), &[1; 3]), Stored::Unknown);
    }

    #[test]
    fn duplicates_repeat_and_others_do_not() {
        let bytes = |class, lpn, version| {
            let mut unit = vec![0; UNIT_BYTES as usize];
            Content::new(class, version).fill(Lpn(lpn), &mut unit);
            unit
        };
        let same = |class, a: (u64, u32), b: (u64, u32)| bytes(class, a.0, a.1) == bytes(class, b.0, b.1);
        let period = u64::from(DUPLICATES);
        assert!(same(ContentClass::Duplicated, (5, 0), (5 + period, 0)));
        assert!(same(ContentClass::Duplicated, (5, 1), (6, 0)));
        assert!(!same(ContentClass::Duplicated, (5, 0), (6, 0)));
        assert!(!same(ContentClass::Incompressible, (5, 0), (5 + period, 0)));
        assert!(!same(ContentClass::Incompressible, (5, 0), (5, 1)));
    }

    #[test]
    fn a_unit_has_as_many_random_bytes_as_its_class_says() {
        for class in ContentClass::ALL {
            let mut unit = vec![0; UNIT_BYTES as usize];
            Content::new(class, 1).fill(Lpn(9), &mut unit);
            let last = unit.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
            let entropy = class.entropy_bytes() as usize;
            assert!(last <= entropy && last + 8 >= entropy, "{class}: {last} of {entropy}");
        }
    }

    #[test]
    fn a_class_is_written_as_it_is_shown() {
        for class in ContentClass::ALL {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        let error = "random".parse::<ContentClass>().unwrap_err().to_string();
        assert_eq!(
            error,
            "'random' is no class of data; expected one of zeros, compressible, pseudo-random, incompressible, \
             duplicated"
        );
    }
}
