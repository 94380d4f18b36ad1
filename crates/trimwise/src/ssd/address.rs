//! Addresses inside a device, as types.
//!
//! Logical units are [`Lpn`]s, as everywhere. Numbers that only the device uses are fewer than 2^32 of a kind
//! (`Geometry::new`) and take four bytes. A [`Table`] is indexed by one kind of number, and by no other.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

use crate::units::Lpn;

pub(in crate::ssd) trait Number: Copy {
    const NONE: Self;
    fn index(self) -> usize;
    fn from_index(index: usize) -> Self;
}

impl Number for Lpn {
    const NONE: Self = Self(u64::MAX);

    #[inline]
    fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    fn from_index(index: usize) -> Self {
        Self(index as u64)
    }
}

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(transparent)]
        pub(in crate::ssd) struct $name(pub u32);

        impl $crate::ssd::address::Number for $name {
            const NONE: Self = Self(u32::MAX);

            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }

            #[inline]
            fn from_index(index: usize) -> Self {
                Self(index as u32)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}
pub(in crate::ssd) use number;

number! {
    /// A slot by its number in the whole device.
    Ppn,
    ShortLpn,
    Superblock,
    Die,
    Channel,
    StripeNumber,
}

impl ShortLpn {
    #[inline]
    pub fn lpn(self) -> Lpn {
        Lpn(self.0.into())
    }
}

impl From<Lpn> for ShortLpn {
    #[inline]
    fn from(lpn: Lpn) -> Self {
        Self(lpn.0 as u32)
    }
}

/// A slot by its superblock and its number there. A slot is the smallest piece of flash that a mapping tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) struct Slot {
    pub superblock: Superblock,
    pub offset: u32,
}

impl Slot {
    #[inline]
    pub fn new(superblock: Superblock, offset: u32) -> Self {
        Self { superblock, offset }
    }

    #[inline]
    pub fn ppn(self, superblock_slots: u32) -> Ppn {
        Ppn(self.superblock.0 * superblock_slots + self.offset)
    }
}

impl Ppn {
    #[inline]
    pub fn slot(self, superblock_slots: u32) -> Slot {
        Slot::new(Superblock(self.0 / superblock_slots), self.0 % superblock_slots)
    }

    #[inline]
    pub fn stripe(self, stripe_slots: u32) -> StripeNumber {
        StripeNumber(self.0 / stripe_slots)
    }
}

impl StripeNumber {
    /// Returns the next stripe; [`Number::NONE`] stays as it is.
    #[inline]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    #[inline]
    pub fn first(self, stripe_slots: u32) -> Ppn {
        Ppn(self.0.saturating_mul(stripe_slots))
    }
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Table<K, T> {
    entries: Vec<T>,
    key: PhantomData<K>,
}

impl<K: Number, T: Clone> Table<K, T> {
    pub fn new(count: usize, entry: T) -> Self {
        Self { entries: vec![entry; count], key: PhantomData }
    }

    pub fn numbered(&self) -> impl Iterator<Item = (K, &T)> {
        self.entries.iter().enumerate().map(|(i, entry)| (K::from_index(i), entry))
    }

    pub fn numbers(&self) -> impl Iterator<Item = K> + use<K, T> {
        (0..self.entries.len()).map(K::from_index)
    }

    #[inline]
    pub fn at(&self, number: K) -> Option<&T> {
        self.entries.get(number.index())
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<T>()) as u64
    }
}

impl<K, T> Deref for Table<K, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.entries
    }
}

impl<K, T> DerefMut for Table<K, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }
}

impl<K: Number, T> Index<K> for Table<K, T> {
    type Output = T;

    #[inline]
    fn index(&self, number: K) -> &T {
        &self.entries[number.index()]
    }
}

impl<K: Number, T> IndexMut<K> for Table<K, T> {
    #[inline]
    fn index_mut(&mut self, number: K) -> &mut T {
        &mut self.entries[number.index()]
    }
}

/// Tags of the contents of slots. Empty unless a test asks for tags.
#[derive(Clone, Debug)]
pub(in crate::ssd) struct Tags(Table<Ppn, u32>);

impl Tags {
    pub fn new(are_kept: bool, slots: u32) -> Self {
        Self(Table::new(if are_kept { slots as usize } else { 0 }, 0))
    }

    pub fn get(&self, ppn: Ppn) -> Option<u32> {
        self.0.at(ppn).copied()
    }

    #[inline]
    pub fn set(&mut self, ppn: Ppn, tag: u32) {
        if let Some(kept) = self.0.get_mut(ppn.index()) {
            *kept = tag;
        }
    }

    #[inline]
    pub fn copy(&mut self, from: Ppn, to: Ppn) {
        if let Some(tag) = self.get(from) {
            self.set(to, tag);
        }
    }
}
