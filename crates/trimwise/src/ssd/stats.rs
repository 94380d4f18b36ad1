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
        /// Units of host writes.
        host: u64,
        /// Copies by garbage collection.
        gc: u64,
        /// Copies by static wear levelling.
        wear_levelling: u64,
        /// Copies out of the SLC cache to normal flash.
        folding: u64,
        /// Parts of the map that lies in the flash.
        map: u64,
        /// Slots that were padded, because a page had to be programmed before it was full.
        padding: u64,
    }
}

impl NandUnits {
    /// Returns the sum of all causes.
    pub const fn total(&self) -> u64 {
        self.host + self.gc + self.wear_levelling + self.folding + self.map + self.padding
    }
}

counters! {
    /// TRIM commands as the device saw them.
    TrimStats {
        /// Number of TRIM commands.
        commands: u64,
        /// Number of ranges in the commands.
        ranges: u64,
        /// Units in the ranges, mapped or not.
        units_requested: u64,
        /// Units that held data and hold none now.
        units_invalidated: u64,
    }
}

counters! {
    /// The cache for parts of a map that lies in the flash.
    MapCacheStats {
        /// Look-ups of the host's commands, one for each unit, that found the part of the map in the cache.
        hits: u64,
        /// Look-ups that did not find it. A part that was never written needs no look-up to be read: the directory of
        /// parts, which is in memory, says that it is empty.
        misses: u64,
        /// Parts read from the flash: for look-ups, and to be changed because units had been copied.
        reads: u64,
    }
}

counters! {
    /// Time for which each resource was reserved, nanoseconds, summed over dies and channels.
    BusyTime {
        /// Host link, both directions.
        link: u64,
        /// Controller overheads of commands.
        controller: u64,
        /// Moving host data from the write cache towards the flash (`controller.write_bytes_per_s`).
        write_path: u64,
        /// Flash reads for the host.
        read: u64,
        /// Flash reads for copies: garbage collection, wear levelling, folding.
        read_gc: u64,
        /// Flash reads of the map.
        read_map: u64,
        /// Programs that hold at least one host unit.
        program_host: u64,
        /// Programs without a host unit: copies, and parts of the map.
        program_gc: u64,
        /// Erases of flash blocks.
        erase: u64,
        /// TRIM, wherever its cost falls.
        trim: u64,
        /// The fixed part of flushes.
        flush: u64,
    }
}

counters! {
    /// Everything a device counts.
    SsdStats {
        /// Number of write commands.
        write_commands: u64,
        /// Number of read commands.
        read_commands: u64,
        /// Number of flush commands.
        flush_commands: u64,
        /// Units that the host wrote.
        host_units_written: u64,
        /// Units that the host read.
        host_units_read: u64,
        /// Units read that hold no data, which need no flash read.
        host_units_read_unmapped: u64,
        /// Units read that were still in the write cache.
        host_units_read_cached: u64,
        /// Units written to flash, by cause. A compressing mapping writes less than a unit for each: there, it is the
        /// size of `nand_granules`, rounded down to whole units.
        nand_units: NandUnits,
        /// Granules written to flash by a compressing mapping, by cause, exactly. 0 for other mappings.
        nand_granules: NandUnits,
        /// TRIM commands as the device saw them.
        trim: TrimStats,
        /// Units that a file system freed and told the device at no cost (policy `ideal`).
        units_informed_free: u64,
        /// The cache for the map.
        map_cache: MapCacheStats,
        /// Units that the host wrote to the SLC cache.
        slc_units_written: u64,
        /// Units folded while the host was idle.
        folded_units_idle: u64,
        /// Victims of garbage collection chosen.
        gc_victims: u64,
        /// Units copied by garbage collection while the host was idle.
        gc_units_idle: u64,
        /// Times a host write had to wait until a victim was collected, because the free pool was empty.
        gc_stalls: u64,
        /// Slots holding written data, valid or not, SLC cache aside, summed over the moments at which a victim was chosen:
        /// divided by `gc_victims` it is the space that the FTL can really use.
        usable_units_sum: u64,
        /// Number of superblocks erased.
        superblock_erases: u64,
        /// Number of erase blocks erased.
        block_erases: u64,
        /// Reserved time, by resource.
        busy_ns: BusyTime,
    }
}

impl SsdStats {
    /// Returns the units written to flash for each unit that the host wrote; 0 before the first host write. A
    /// compressing mapping can do with less than 1.
    pub fn write_amplification(&self) -> f64 {
        if self.host_units_written == 0 {
            return 0.0;
        }
        self.nand_units.total() as f64 / self.host_units_written as f64
    }

    /// Units that the FTL can really use: slots with written data (valid or stale) when a victim is chosen,
    /// on average. Free pool, unwritten slots of open blocks, reserves and an SLC cache are not in it. 0 without a
    /// victim.
    pub fn usable_units(&self) -> f64 {
        if self.gc_victims == 0 {
            return 0.0;
        }
        self.usable_units_sum as f64 / self.gc_victims as f64
    }

    /// Returns the counts after `earlier`, an older copy of the same device's counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        *self - *earlier
    }
}

/// Current use of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockUse {
    /// Holds nothing, and can be filled.
    Free,
    /// Being filled by the host or with copies.
    Open,
    /// Full: every unit is written.
    Full,
    /// Being collected: its valid units are being copied elsewhere.
    Victim,
}

/// Use and contents of a superblock. Its other units, `written_units - valid_units`, are invalid until it is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockState {
    /// Current use of the superblock.
    pub use_now: SuperblockUse,
    /// Units that hold data as far as the device knows.
    pub valid_units: u32,
    /// Units written since the last erase.
    pub written_units: u32,
    /// Number of erases so far.
    pub erases: u32,
}

/// Wear of the flash, in erases of superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Wear {
    /// Erases of the least erased superblock.
    pub min: u32,
    /// Mean erases over all superblocks.
    pub mean: f64,
    /// Erases of the most erased superblock.
    pub max: u32,
}

impl Wear {
    /// Computes the wear from the erases of each superblock.
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
        let nand_units = NandUnits { host: 1, gc: 2, wear_levelling: 4, folding: 8, map: 16, padding: 32 };
        // What was copied or folded while the host was idle is among the copies.
        let idle = SsdStats { gc_units_idle: 2, folded_units_idle: 8, ..SsdStats::default() };
        let stats = SsdStats { host_units_written: 4, nand_units, ..idle };
        assert_eq!(stats.write_amplification(), 63.0 / 4.0);
        assert_eq!(SsdStats { host_units_written: 0, ..stats }.write_amplification(), 0.0);
    }
}
