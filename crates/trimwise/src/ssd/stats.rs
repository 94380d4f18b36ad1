//! Counts of a device.
//!
//! All counts are cumulative since the device was made; take a copy and subtract it with
//! [`SsdStats::since`] to look at a part of a run.

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl std::ops::Sub for $name {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field - earlier.$field,)* }
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// Units written to flash pages, by cause. A unit counts when it takes its slot in a page.
    NandUnits {
        host: u64,
        gc: u64,
        wear_levelling: u64,
        /// Copies out of the SLC cache to normal flash.
        folding: u64,
        /// Parts of the map that lies in the flash.
        map: u64,
        /// Slots padded because a page had to be programmed before it was full.
        padding: u64,
        /// Parity of other stripes. It takes no slot.
        parity: u64,
    }
}

impl NandUnits {
    pub const fn total(&self) -> u64 {
        self.in_slots() + self.parity
    }

    pub(super) const fn in_slots(&self) -> u64 {
        self.host + self.gc + self.wear_levelling + self.folding + self.map + self.padding
    }
}

counters! {
    TrimStats {
        commands: u64,
        ranges: u64,
        units_requested: u64,
        /// Units that held data before and do not now.
        units_invalidated: u64,
    }
}

counters! {
    MapCacheStats {
        /// Look-ups that found the part of the map in the cache. The host's commands make one for each unit.
        hits: u64,
        /// Look-ups that did not find it. A part that was never written needs no look-up: the directory of parts, which
        /// is in memory, says that it is empty.
        misses: u64,
        /// Parts read from the flash, for look-ups and to note where copied units went.
        reads: u64,
    }
}

counters! {
    BusyTime {
        link: u64,
        controller: u64,
        /// Moving host data from the write cache towards the flash (`controller.write_bytes_per_s`).
        write_path: u64,
        read: u64,
        /// Flash reads for copies: garbage collection, wear levelling, folding.
        read_gc: u64,
        read_map: u64,
        /// Programs that hold at least one host unit.
        program_host: u64,
        /// Programs without a host unit: copies, parts of the map, and parity.
        program_gc: u64,
        erase: u64,
        /// TRIM, wherever its cost falls.
        trim: u64,
        /// The fixed part of flushes.
        flush: u64,
    }
}

counters! {
    SsdStats {
        write_commands: u64,
        read_commands: u64,
        flush_commands: u64,
        host_units_written: u64,
        host_units_read: u64,
        /// Units read that hold no data, and need no flash read.
        host_units_read_unmapped: u64,
        /// Units read that were still in the write cache.
        host_units_read_cached: u64,
        /// Units written to flash, by cause. A compressing mapping writes less than a unit for each: there it is
        /// `nand_granules` in whole units, rounded down.
        nand_units: NandUnits,
        /// Granules written to flash by a compressing mapping, by cause. 0 for other mappings.
        nand_granules: NandUnits,
        trim: TrimStats,
        /// Units that a file system reported as free at no cost (policy `ideal`).
        units_informed_free: u64,
        map_cache: MapCacheStats,
        slc_units_written: u64,
        folded_units_idle: u64,
        gc_victims: u64,
        gc_units_idle: u64,
        /// Times a host write waited for a victim to be collected, because the free pool was empty.
        gc_stalls: u64,
        /// Slots with written data, valid or not, without the SLC cache, summed over the moments at which a victim was
        /// chosen. Divided by `gc_victims` it is the space that the FTL can really use.
        usable_units_sum: u64,
        superblock_erases: u64,
        block_erases: u64,
        busy_ns: BusyTime,
    }
}

impl SsdStats {
    /// Returns the units written to flash for each unit that the host wrote; 0 before the first host write. A
    /// compressing mapping can have less than 1.
    pub fn write_amplification(&self) -> f64 {
        if self.host_units_written == 0 {
            return 0.0;
        }
        self.nand_units.total() as f64 / self.host_units_written as f64
    }

    /// Returns the units that the FTL can really use: slots with written data (valid or stale) when a victim is chosen,
    /// on average. Free pool, unwritten slots of open blocks, reserves and the SLC cache do not count. 0 without a
    /// victim.
    pub fn usable_units(&self) -> f64 {
        if self.gc_victims == 0 {
            return 0.0;
        }
        self.usable_units_sum as f64 / self.gc_victims as f64
    }

    /// Returns the counts since `earlier`, an older copy of this device's counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        *self - *earlier
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockUse {
    Free,
    Open,
    Full,
    /// Its valid units are being copied elsewhere.
    Victim,
}

/// Use and contents of a superblock. The `written_units - valid_units` other units are invalid until it is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockState {
    pub use_now: SuperblockUse,
    /// Units that hold data as far as the device knows.
    pub valid_units: u32,
    pub written_units: u32,
    pub erases: u32,
}

/// Wear of the flash, in erases of superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Wear {
    pub min: u32,
    pub mean: f64,
    pub max: u32,
}

impl Wear {
    pub(super) fn of(erases: impl Iterator<Item = u32> + Clone) -> Self {
        let total: u64 = erases.clone().map(u64::from).sum();
        let count = erases.clone().count().max(1);
        Self {
            min: erases.clone().min().unwrap_or(0),
            mean: total as f64 / count as f64,
            max: erases.max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts are powers of two, so that no cause can be left out or counted twice.
    #[test]
    fn write_amplification_counts_every_cause() {
        let nand_units =
            NandUnits { host: 1, gc: 2, wear_levelling: 4, folding: 8, map: 16, padding: 32, parity: 64 };
        // What was copied or folded while the host was idle is among the copies.
        let idle = SsdStats { gc_units_idle: 2, folded_units_idle: 8, ..SsdStats::default() };
        let stats = SsdStats { host_units_written: 4, nand_units, ..idle };
        assert_eq!(stats.write_amplification(), 127.0 / 4.0);
        assert_eq!(SsdStats { host_units_written: 0, ..stats }.write_amplification(), 0.0);
    }
}
