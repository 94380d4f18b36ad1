//! What a device counts.
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
        /// Host writes.
        host: u64,
        /// Copies by garbage collection.
        gc: u64,
        /// Copies by static wear levelling.
        wear_levelling: u64,
        /// Copies out of the SLC cache to where data stay.
        folding: u64,
        /// Parts of the map that lies in the flash.
        map: u64,
        /// Slots that were filled with nothing, because a page had to be programmed before it was full.
        padding: u64,
    }
}

impl NandUnits {
    /// All causes together.
    pub const fn total(&self) -> u64 {
        self.host + self.gc + self.wear_levelling + self.folding + self.map + self.padding
    }
}

counters! {
    /// TRIM as the device saw it.
    TrimStats {
        /// Commands.
        commands: u64,
        /// Ranges in them.
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
        /// Look-ups that did not. A part that was never written needs no look-up to be read: the directory of parts,
        /// which is in memory, says that it is empty.
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
        /// Controller overheads.
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
        /// Erases.
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
        /// Write commands.
        write_commands: u64,
        /// Read commands.
        read_commands: u64,
        /// Flush commands.
        flush_commands: u64,
        /// Units that the host wrote.
        host_units_written: u64,
        /// Units that the host read.
        host_units_read: u64,
        /// Of those, units that hold no data, which need no flash read.
        host_units_read_unmapped: u64,
        /// Of those, units still in the write cache.
        host_units_read_cached: u64,
        /// Units written to flash, by cause. A compressing mapping writes less than a unit for each: there, it is what
        /// `nand_granules` makes, rounded down to whole units.
        nand_units: NandUnits,
        /// Granules written to flash by a compressing mapping, by cause, exactly. 0 for other mappings.
        nand_granules: NandUnits,
        /// TRIM.
        trim: TrimStats,
        /// Units that a file system freed and told the device at no cost (policy `ideal`).
        units_informed_free: u64,
        /// The cache for the map.
        map_cache: MapCacheStats,
        /// Units that the host wrote to the SLC cache.
        slc_units_written: u64,
        /// Of the units folded, those folded while the host was idle.
        folded_units_idle: u64,
        /// Victims of garbage collection chosen.
        gc_victims: u64,
        /// Of the units copied, those copied while the host was idle.
        gc_units_idle: u64,
        /// Times a host write had to wait until a victim was collected, because the free pool was empty.
        gc_stalls: u64,
        /// Slots holding written data, valid or not, SLC cache aside, summed over the moments at which a victim was chosen:
        /// divided by `gc_victims` it is the space that the FTL can really use.
        usable_units_sum: u64,
        /// Superblocks erased.
        superblock_erases: u64,
        /// Erase blocks erased.
        block_erases: u64,
        /// Time by resource.
        busy_ns: BusyTime,
    }
}

impl SsdStats {
    /// Units written to flash for each unit that the host wrote; 0 before the first host write. A compressing
    /// mapping can do with less than 1.
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

    /// What was counted after `earlier`, an older copy of the same device's counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        *self - *earlier
    }
}

/// What a superblock is used for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockUse {
    /// Holds nothing, and can be filled.
    Free,
    /// Being filled.
    Open,
    /// Full.
    Full,
    /// Being collected: what is valid in it is being copied elsewhere.
    Victim,
}

/// What a superblock is and holds. Its other units, `written_units - valid_units`, are invalid until it is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockState {
    /// What it is used for.
    pub use_now: SuperblockUse,
    /// Units that hold data as far as the device knows.
    pub valid_units: u32,
    /// Units written since the last erase.
    pub written_units: u32,
    /// How often it was erased.
    pub erases: u32,
}

/// How worn the flash is, in erases of superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Wear {
    /// Erases of the least erased superblock.
    pub min: u32,
    /// Mean over all superblocks.
    pub mean: f64,
    /// Erases of the most erased superblock.
    pub max: u32,
}

impl Wear {
    /// Of the erases of each superblock.
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

    /// Powers of two, so that no cause can be left out or counted twice.
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
