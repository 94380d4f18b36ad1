//! Units of quantities, as types.
//!
//! A raw `u64` in a signature is a question to the reader: bytes, sectors, units, nanoseconds? Here each quantity is a
//! plain newtype, and conversions are named methods.
//!
//! The whole model shares one granularity, the *unit*: 4 KiB, which is both the mapping unit of the device and the
//! block of the file system. [`Lpn`] numbers units as the host sees them.

mod parse;
mod percent;
mod utilization;

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use serde::{Deserialize, Serialize};

pub use parse::SizeError;
pub use percent::Percent;
pub use utilization::{Utilization, UtilizationError};

/// Bytes in a mapping unit, which is also a file-system block: 4 KiB.
pub const UNIT_BYTES: u64 = 4096;
/// Bytes in a logical sector, the granularity of [`Lba`].
pub const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// Returns the number of units that hold this many bytes. The last may be used in part.
    pub const fn units_ceil(self) -> u64 {
        self.0.div_ceil(UNIT_BYTES)
    }
    pub const fn units_floor(self) -> u64 {
        self.0 / UNIT_BYTES
    }
    pub const fn from_units(units: u64) -> Self {
        Self(units * UNIT_BYTES)
    }
}

impl fmt::Display for Bytes {
    /// Formats in binary units with one decimal (`1.5 GiB`), exact multiples without.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (name, shift) in STEPS {
            let step = 1u64 << shift;
            if self.0 >= step {
                return if self.0.is_multiple_of(step) {
                    write!(f, "{} {name}", self.0 >> shift)
                } else {
                    write!(f, "{:.1} {name}", self.0 as f64 / step as f64)
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// Bytes of a file system from `start` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: u64,
    /// Exclusive.
    pub end: u64,
}

impl Span {
    pub const fn bytes(self) -> Bytes {
        Bytes(self.end.saturating_sub(self.start))
    }
}

/// Logical block address: a 512-byte sector as numbered by ATA and NVMe commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// Logical page number: a 4 KiB unit of the device's address space, and a block of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Lpn(pub u64);

impl Lpn {
    pub const fn first_lba(self) -> Lba {
        Lba(self.0 * (UNIT_BYTES / SECTOR_BYTES))
    }
    /// Returns the unit that is `units` further on.
    pub const fn offset(self, units: u64) -> Self {
        Self(self.0 + units)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitRange {
    pub start: Lpn,
    pub units: u64,
}

impl UnitRange {
    pub const fn new(start: Lpn, units: u64) -> Self {
        Self { start, units }
    }
    /// Creates the run from `start` up to `end`. It is empty if the end lies before the start.
    pub const fn between(start: Lpn, end: Lpn) -> Self {
        Self { start, units: end.0.saturating_sub(start.0) }
    }
    pub const fn end(self) -> Lpn {
        Lpn(self.start.0 + self.units)
    }
    /// Cuts the run into pieces of at most `units_max`.
    pub fn pieces(self, units_max: u64) -> impl Iterator<Item = Self> {
        let piece = move |at| Self::new(self.start.offset(at), units_max.min(self.units - at));
        (0..self.units).step_by(units_max as usize).map(piece)
    }
    pub fn iter(self) -> impl Iterator<Item = Lpn> {
        (self.start.0..self.start.0 + self.units).map(Lpn)
    }
}

/// A run of sectors, as in a command. A device keeps whole units ([`UnitRange`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorRange {
    pub first: Lba,
    pub sectors: u64,
}

impl SectorRange {
    pub const fn new(first: Lba, sectors: u64) -> Self {
        Self { first, sectors }
    }
    pub const fn bytes(self) -> Bytes {
        Bytes(self.sectors * SECTOR_BYTES)
    }
    /// Returns the units that the run touches. The first and the last may be touched in part.
    pub const fn units(self) -> UnitRange {
        let sectors = UNIT_BYTES / SECTOR_BYTES;
        let start = self.first.0 / sectors;
        UnitRange::new(Lpn(start), (self.first.0 + self.sectors).div_ceil(sectors) - start)
    }
    pub const fn is_whole(self) -> bool {
        let sectors = UNIT_BYTES / SECTOR_BYTES;
        self.first.0.is_multiple_of(sectors) && self.sectors.is_multiple_of(sectors)
    }
}

impl From<UnitRange> for SectorRange {
    fn from(range: UnitRange) -> Self {
        Self::new(range.start.first_lba(), range.units * (UNIT_BYTES / SECTOR_BYTES))
    }
}

/// An instant of virtual (or monotonic real) time, in nanoseconds since the run started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct SimTime(pub u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct SimDuration(pub u64);

impl SimTime {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns the instant as messages name it, exactly.
    pub fn named(self) -> String {
        const SECOND: u64 = 1_000_000_000;
        format!("{}.{:09} s of virtual time", self.0 / SECOND, self.0 % SECOND)
    }
    /// Returns the time since `earlier`; zero if that lies in the future.
    pub const fn since(self, earlier: Self) -> SimDuration {
        SimDuration(self.0.saturating_sub(earlier.0))
    }
}

impl SimDuration {
    pub const ZERO: Self = Self(0);
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    pub const fn from_micros(n: u64) -> Self {
        Self(n * 1_000)
    }
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns the span in seconds, for reports only: never feed it back into a simulated path.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<SimDuration> for SimTime {
    type Output = Self;
    fn add(self, rhs: SimDuration) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign<SimDuration> for SimTime {
    fn add_assign(&mut self, rhs: SimDuration) {
        *self = *self + rhs;
    }
}

impl Add for SimDuration {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for SimDuration {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for SimDuration {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl SubAssign for SimDuration {
    fn sub_assign(&mut self, rhs: Self) {
        *self = *self - rhs;
    }
}

impl Mul<u64> for SimDuration {
    type Output = Self;
    fn mul(self, rhs: u64) -> Self {
        Self(self.0.saturating_mul(rhs))
    }
}

impl Div<u64> for SimDuration {
    type Output = Self;
    fn div(self, rhs: u64) -> Self {
        Self(self.0 / rhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_binary_units() {
        assert_eq!(Bytes(511).to_string(), "511 B");
        assert_eq!(Bytes::mib(128).to_string(), "128 MiB");
        assert_eq!(Bytes(Bytes::gib(1).0 + Bytes::mib(512).0).to_string(), "1.5 GiB");
    }

    #[test]
    fn a_partial_unit_counts_up_or_down_as_named() {
        assert_eq!(Bytes(4097).units_ceil(), 2);
        assert_eq!(Bytes(4097).units_floor(), 1);
        assert_eq!(Lpn(3).first_lba(), Lba(24));
    }
}
