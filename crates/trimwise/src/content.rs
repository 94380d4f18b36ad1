//! The contents of writes: their compressibility, and the expected results of reads.
//!
//! The models store no data, only a [`Content`] for each unit. A real device gets the bytes that [`Content::fill`]
//! makes from it, and [`recognise`] reads them back. The first bytes of a unit name its place and version, so a read
//! shows whether the device kept the data. Zeros and duplicates are the exception: there many units are the same.

use std::fmt;
use std::str::FromStr;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use thiserror::Error;

use crate::units::{Lpn, UNIT_BYTES};

/// Bytes at the start of a unit: signature, place, version and class, check, seed of the other bytes.
const HEAD_BYTES: usize = 32;
const SIGNATURE: u64 = u64::from_le_bytes(*b"trimwise");
pub const DUPLICATES: u32 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentClass {
    Zeros,
    /// One eighth random, the rest zeros, as in the data of HD Tach and ATTO.
    Compressible,
    /// Five eighths random, like many of people's files.
    PseudoRandom,
    /// Random throughout: compressed or encrypted data.
    #[default]
    Incompressible,
    /// Random throughout, and one of only [`DUPLICATES`] different units.
    Duplicated,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{given}' is not a class of data; expected one of {}", ContentClass::ALL.map(ContentClass::name).join(", "))]
pub struct ContentClassError {
    given: String,
}

impl ContentClass {
    pub const ALL: [Self; 5] =
        [Self::Zeros, Self::Compressible, Self::PseudoRandom, Self::Incompressible, Self::Duplicated];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Compressible => "compressible",
            Self::PseudoRandom => "pseudo-random",
            Self::Incompressible => "incompressible",
            Self::Duplicated => "duplicated",
        }
    }

    /// Returns the bytes of a unit that a good compressor must keep, without its own headers.
    pub(crate) const fn entropy_bytes(self) -> u32 {
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub class: ContentClass,
    /// Version of the data. Another version has other bytes. At most [`Content::VERSION_MAX`].
    pub version: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Zeros: written, never written, or trimmed.
    Zeros,
    Content(Content),
    Duplicate(u32),
    /// Data written to another place.
    Misplaced {
        lpn: Lpn,
    },
    /// Data not made here, or damaged.
    Unknown,
}

impl Content {
    /// The highest version, so that version and class fit in 32 bits.
    pub(crate) const VERSION_MAX: u32 = (1 << 29) - 1;

    pub const fn new(class: ContentClass, version: u32) -> Self {
        Self { class, version: version & Self::VERSION_MAX }
    }

    /// Class and version in one number, which the model keeps for a unit.
    pub const fn tag(self) -> u32 {
        (self.version << 3) | self.class as u32
    }

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

    /// Returns the number of the duplicate at unit `lpn`; only for [`ContentClass::Duplicated`].
    pub const fn duplicate(self, lpn: Lpn) -> u32 {
        ((lpn.0 + self.version as u64) % DUPLICATES as u64) as u32
    }

    /// Returns the expected result of a read of unit `lpn` after this was written to it.
    pub const fn stored(self, lpn: Lpn) -> Stored {
        match self.class {
            ContentClass::Zeros => Stored::Zeros,
            ContentClass::Duplicated => Stored::Duplicate(self.duplicate(lpn)),
            _ => Stored::Content(self),
        }
    }

    /// Makes the bytes of unit `lpn`. `unit` is usually one unit long; otherwise as many bytes as it has.
    pub fn fill(self, lpn: Lpn, unit: &mut [u8]) {
        let seed = self.seed(lpn);
        self.class.fill_body(seed, unit);
        self.stamp(lpn, seed, unit);
    }

    fn seed(self, lpn: Lpn) -> u64 {
        let (place, tag) = self.named(lpn);
        mixed(mixed(place) ^ u64::from(tag))
    }

    /// Returns place and tag in the head of unit `lpn`. Duplicates name no place of their own: they carry the head of
    /// the first place where they can be.
    const fn named(self, lpn: Lpn) -> (u64, u32) {
        match self.class {
            ContentClass::Duplicated => (self.duplicate(lpn) as u64, Self::new(self.class, 0).tag()),
            _ => (lpn.0, self.tag()),
        }
    }

    /// Turns bytes that [`ContentClass::fill_body`] made from `seed` into those of unit `lpn`, by changing only its
    /// first bytes. So most bytes can be made before their place is known. This does not work for duplicates, whose
    /// bytes are the same only if [`Content::fill`] makes all of them.
    pub fn stamp(self, lpn: Lpn, seed: u64, unit: &mut [u8]) {
        if self.class == ContentClass::Zeros {
            return;
        }
        let (place, tag) = self.named(lpn);
        let head = head(place, tag, seed);
        let end = unit.len().min(HEAD_BYTES);
        unit[..end].copy_from_slice(&head[..end]);
    }
}

fn head(place: u64, tag: u32, seed: u64) -> [u8; HEAD_BYTES] {
    let check = mixed(mixed(mixed(place) ^ u64::from(tag)) ^ seed) as u32;
    let mut head = [0; HEAD_BYTES];
    head[0..8].copy_from_slice(&SIGNATURE.to_le_bytes());
    head[8..16].copy_from_slice(&place.to_le_bytes());
    head[16..20].copy_from_slice(&tag.to_le_bytes());
    head[20..24].copy_from_slice(&check.to_le_bytes());
    head[24..32].copy_from_slice(&seed.to_le_bytes());
    head
}

impl ContentClass {
    /// Makes the bytes of a unit of this class, different for each seed; [`Content::stamp`] then adds place and
    /// version.
    ///
    /// The generator is Marsaglia's xorshift64 in eight lanes, which compilers turn into vector instructions: the
    /// writer of a fast drive needs gigabytes per second.
    pub fn fill_body(self, seed: u64, unit: &mut [u8]) {
        const LANES: usize = 8;
        let random_bytes = unit.len().min((self.entropy_bytes() as usize).max(HEAD_BYTES));
        let random_bytes = if self == Self::Zeros { 0 } else { random_bytes };
        let (random, rest) = unit.split_at_mut(random_bytes);
        rest.fill(0);
        let mut seeds = SplitMix64::seed_from_u64(seed);
        let mut lanes = [0; LANES].map(|_: u64| seeds.next_u64() | 1); // never zero, which xorshift cannot leave
        let mut next = || {
            let mut bytes = [0; 8 * LANES];
            for (lane, eight) in lanes.iter_mut().zip(bytes.as_chunks_mut().0) {
                *lane ^= *lane << 13;
                *lane ^= *lane >> 7;
                *lane ^= *lane << 17;
                *eight = lane.to_le_bytes();
            }
            bytes
        };
        let (chunks, rest) = random.as_chunks_mut();
        for chunk in chunks {
            *chunk = next();
        }
        rest.copy_from_slice(&next()[..rest.len()]);
    }
}

pub(crate) fn mixed(n: u64) -> u64 {
    SplitMix64::seed_from_u64(n).next_u64()
}

/// Recognises the data of unit `lpn`. Examines all bytes.
pub fn recognise(lpn: Lpn, unit: &[u8]) -> Stored {
    if unit.iter().all(|&byte| byte == 0) {
        return Stored::Zeros;
    }
    let number = |at: usize| unit.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let (Some(SIGNATURE), Some(place), Some(tag), Some(seed)) =
        (number(0), number(8), number(16), number(24))
    else {
        return Stored::Unknown;
    };
    let tag = tag as u32;
    let content = Content::of_tag(tag);
    let mut expected = vec![0; unit.len()];
    content.class.fill_body(seed, &mut expected);
    expected[..HEAD_BYTES].copy_from_slice(&head(place, tag, seed));
    let is_a_duplicate = content.class == ContentClass::Duplicated;
    let is_none = is_a_duplicate && (place >= DUPLICATES.into() || seed != content.seed(Lpn(place)));
    if expected != unit || is_none || content.class == ContentClass::Zeros {
        return Stored::Unknown;
    }
    match content.class {
        ContentClass::Duplicated => Stored::Duplicate(content.duplicate(Lpn(place))),
        _ if place == lpn.0 => Stored::Content(content),
        _ => Stored::Misplaced { lpn: Lpn(place) },
    }
}

/// Returns the class of a whole write of unknown bytes: that of most of its units, and on a tie the harder one to
/// store.
pub fn classify_write(bytes: &[u8]) -> ContentClass {
    let mut units = [0_usize; ContentClass::ALL.len()];
    for unit in bytes.chunks(UNIT_BYTES as usize) {
        let class = classify(unit);
        units[ContentClass::ALL.iter().position(|&c| c == class).unwrap_or_default()] += 1;
    }
    let most = (0..units.len()).max_by_key(|&class| units[class]).unwrap_or_default();
    ContentClass::ALL[most]
}

/// Returns the class of unknown bytes: a whole unit, or a part of one.
///
/// Data made here are recognised by their head. For the rest, counts the bytes that an LZ4-like compressor, which looks
/// for repeats and uses no frequencies, cannot omit, and picks the class with the nearest share. So text is
/// pseudo-random, and base64 incompressible. Repetition of other units is not detected.
pub(crate) fn classify(unit: &[u8]) -> ContentClass {
    match recognise(Lpn(0), unit) {
        Stored::Zeros => return ContentClass::Zeros,
        Stored::Content(content) => return content.class,
        Stored::Duplicate(_) => return ContentClass::Duplicated,
        Stored::Misplaced { .. } => return Content::of_tag(u32_at(unit, 16)).class,
        Stored::Unknown => {}
    }
    // In sixteenths: compressible is nearest below 6 (the middle of 2 and 10), incompressible from 13 (the middle of 10
    // and 16) on.
    match 16 * incompressible_bytes(unit) / unit.len() {
        0..6 => ContentClass::Compressible,
        6..13 => ContentClass::PseudoRandom,
        _ => ContentClass::Incompressible,
    }
}

/// Returns the bytes left of a unit when each repeat of at least four bytes becomes a reference.
fn incompressible_bytes(unit: &[u8]) -> usize {
    const REFERENCE_BYTES: usize = 3;
    const SLOT_BITS: u32 = 10;
    // Where four bytes with this hash were last seen; beyond the end if nowhere.
    let mut seen = [usize::MAX; 1 << SLOT_BITS];
    let (mut at, mut left) = (0, 0);
    while at + 4 <= unit.len() {
        let four = u32_at(unit, at);
        let slot = &mut seen[(four.wrapping_mul(0x9E37_79B1) >> (32 - SLOT_BITS)) as usize];
        let before = std::mem::replace(slot, at);
        if before < at && u32_at(unit, before) == four {
            let repeated = unit[at..].iter().zip(&unit[before..]).take_while(|(a, b)| a == b).count();
            at += repeated;
            left += REFERENCE_BYTES;
        } else {
            at += 1;
            left += 1;
        }
    }
    left + (unit.len() - at)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classify_finds_the_class_with_and_without_a_head() {
        let mut unit = vec![0; UNIT_BYTES as usize];
        for class in ContentClass::ALL {
            for lpn in [Lpn(0), Lpn(77), Lpn(1 << 33)] {
                Content::new(class, 5).fill(lpn, &mut unit);
                assert_eq!(classify(&unit), class, "{class} at {lpn:?}");
            }
        }
        for (class, expected) in [
            (ContentClass::Compressible, ContentClass::Compressible),
            (ContentClass::PseudoRandom, ContentClass::PseudoRandom),
            (ContentClass::Incompressible, ContentClass::Incompressible),
            (ContentClass::Duplicated, ContentClass::Incompressible),
        ] {
            for seed in 0..100 {
                class.fill_body(seed, &mut unit);
                assert_eq!(classify(&unit), expected, "{class} of seed {seed}");
            }
        }
    }

    #[test]
    fn text_lies_between_repeated_and_random_data() {
        let source = include_bytes!("content.rs");
        assert_eq!(classify(&source[..UNIT_BYTES as usize]), ContentClass::PseudoRandom);
        assert_eq!(
            classify(&b"the same words ".repeat(280)[..UNIT_BYTES as usize]),
            ContentClass::Compressible
        );
        assert_eq!(classify(&[0xFF; UNIT_BYTES as usize]), ContentClass::Compressible);
        // Every byte is as frequent as any other, and nothing is random.
        let counted: Vec<u8> = (0..UNIT_BYTES).map(|i| i as u8).collect();
        assert_eq!(classify(&counted), ContentClass::Compressible);
    }

    #[test]
    fn parts_of_a_unit_have_a_class_too() {
        assert_eq!(classify(&[]), ContentClass::Zeros);
        assert_eq!(classify(&[0; 512]), ContentClass::Zeros);
        assert_eq!(classify(&[9]), ContentClass::Incompressible);
        assert_eq!(classify(&[9; 512]), ContentClass::Compressible);
    }

    #[test]
    fn a_filled_unit_is_recognised_at_its_own_place_only() {
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
    fn bytes_made_before_their_place_is_known_are_recognised_there() {
        let mut unit = vec![0; UNIT_BYTES as usize];
        for class in [ContentClass::Compressible, ContentClass::PseudoRandom, ContentClass::Incompressible] {
            let content = Content::new(class, 12);
            class.fill_body(4711, &mut unit);
            assert_eq!(recognise(Lpn(5), &unit), Stored::Unknown, "not stamped yet");
            for lpn in [Lpn(5), Lpn(6)] {
                content.stamp(lpn, 4711, &mut unit);
                assert_eq!(recognise(lpn, &unit), Stored::Content(content));
            }
            for at in 0..UNIT_BYTES as usize {
                unit[at] ^= 0x80;
                assert_eq!(recognise(Lpn(6), &unit), Stored::Unknown, "damaged {class} at {at}");
                unit[at] ^= 0x80;
            }
        }
    }

    #[test]
    fn random_bytes_have_no_redundancy() {
        let mut counts = [0u32; 256];
        let mut words = std::collections::BTreeSet::new();
        const UNITS: u64 = 256;
        for lpn in 0..UNITS {
            let mut unit = vec![0; UNIT_BYTES as usize];
            Content::new(ContentClass::Incompressible, 1).fill(Lpn(lpn), &mut unit);
            for &byte in &unit[HEAD_BYTES..] {
                counts[byte as usize] += 1;
            }
            words.extend(unit[HEAD_BYTES..].chunks_exact(8).map(|word| word.to_vec()));
        }
        let bytes = UNITS * (UNIT_BYTES - HEAD_BYTES as u64);
        assert_eq!(words.len() as u64, bytes / 8, "no eight bytes come twice");
        let expected = bytes as f64 / 256.0;
        let chi_square: f64 = counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        // 255 degrees of freedom: mean 255, standard deviation 22.6.
        assert!((150.0..400.0).contains(&chi_square), "{chi_square}");
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
    fn a_class_prints_as_it_is_parsed() {
        for class in ContentClass::ALL {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        let error = "random".parse::<ContentClass>().unwrap_err().to_string();
        assert_eq!(
            error,
            "'random' is not a class of data; expected one of zeros, compressible, pseudo-random, incompressible, \
             duplicated"
        );
    }
}
