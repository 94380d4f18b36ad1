//! Checks whether a workload fits on an aged file system, before anyone waits for the ageing.
//!
//! The peak need of a run is known exactly. The space that ageing leaves free is known to within the size of one file.
//! The space of directories is not counted. So a workload that fits is never rejected, and one that just does not fit
//! may start and fail.

use trimwise::fs::layout::{FormatOptions, Layout};
use trimwise::profile::Profile;
use trimwise::units::{Bytes, UNIT_BYTES, Utilization};
use trimwise::workload::postmark::{Footprint, PostmarkConfig, footprint, footprint_min};

use trimwise::failure::{Failure, Mistake, Words, key, set};
use trimwise::words;

/// How far ageing may stay below the requested utilization: its largest file.
const AGEING_STEP: Bytes = Bytes::mib(4);

/// Replaying up to this many operations takes only a moment and shows exactly what a workload needs.
const OPERATIONS_GONE_THROUGH: u64 = 500_000;

/// Space that an aged file system has left for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Space for files on the empty file system.
    total: Bytes,
    /// The most that ageing leaves free.
    free: Bytes,
    /// The files that ageing leaves take some of these inodes.
    inodes: u64,
    utilization: Utilization,
}

impl Room {
    /// Returns the room on a device after ageing to this utilization.
    pub fn of(device: &Profile, format: FormatOptions, utilization: Utilization) -> Result<Self, Failure> {
        let units = device.config.capacity_bytes / UNIT_BYTES;
        let layout = Layout::plan(units, format)
            .map_err(|e| Mistake::of("devices", &device.name).because(e.to_string()).fail())?;
        let total = Bytes::from_units(layout.allocator().free_units());
        let used = total.0 / 100 * utilization.percent();
        let free = Bytes((total.0 - used + AGEING_STEP.0).min(total.0));
        Ok(Self { total, free, inodes: layout.inodes(), utilization })
    }

    /// Rejects a workload that needs more. The error has its need and the available space.
    pub fn check(&self, config: &PostmarkConfig) -> Result<(), Words> {
        if u64::from(config.number) + u64::from(config.transactions) > OPERATIONS_GONE_THROUGH {
            // Check this first: the whole sequence would take its time.
            self.holds(footprint_min(config), "need at least")?;
        }
        self.holds(footprint(config), "need")
    }

    /// The most that ageing leaves free.
    pub fn free(&self) -> Bytes {
        self.free
    }

    /// Rejects files that need more than is free. The error begins with `need`, and advises `smaller`.
    pub fn fits(&self, needed: Bytes, need: &str, smaller: &str) -> Result<(), Words> {
        let Self { total, free, utilization, .. } = self;
        if needed <= *free {
            return Ok(());
        }
        Err(words![
            format!("{need}, and with "),
            set("utilization", utilization),
            format!(" at most {free} of {total} are free; expected {smaller}, a lower "),
            key("utilization"),
            ", or a larger ",
            key("devices"),
        ])
    }

    fn holds(&self, needed: Footprint, need: &str) -> Result<(), Words> {
        let need = format!("its files {need} {} at one time", needed.bytes_max);
        self.fits(needed.bytes_max, &need, "a smaller `set number` or `set size`")?;
        if needed.files_max > self.inodes {
            let (files, inodes) = (needed.files_max, self.inodes);
            let why = format!("it has {files} files at one time, and the file system has {inodes} inodes");
            return Err(words![why, "; expected a smaller `set number` or a larger ", key("devices")]);
        }
        Ok(())
    }

    /// The message for a run that finds the file system full after all.
    pub fn when_full(&self, needed: Bytes) -> Words {
        let Self { total, free, utilization, .. } = self;
        words![
            format!("the file system is full: the files need {needed} at one time, with "),
            set("utilization", utilization),
            format!(
                " at most {free} of {total} are free, and directories and blocks that await a commit take space too; "
            ),
            "give a lower ",
            key("utilization"),
            ", a smaller workload, or a larger ",
            key("devices"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &PostmarkConfig, percent: u8) -> Result<(), String> {
        let device = Profile::embedded("sata-small").unwrap();
        let room = Room::of(&device, FormatOptions::default(), Utilization::of(percent)).unwrap();
        room.check(config).map_err(|why| why.to_string())
    }

    #[test]
    fn what_fits_is_not_refused_and_what_cannot_fit_is() {
        // 60,000 blocks of 4 KiB: 240 MB and nothing more, since none is created later.
        let config = PostmarkConfig {
            number: 60_000,
            size_low: 4096,
            size_high: 4096,
            bias_create: Some(0),
            ..PostmarkConfig::default()
        };
        for percent in [0, 50, 80, 96] {
            assert_eq!(check(&config, percent), Ok(()), "{percent}");
        }
        for percent in [98, 99, 100] {
            let message = check(&config, percent).unwrap_err();
            for part in ["need 234.4 MiB at", &format!("--utilization {percent}"), "of 7."] {
                assert!(message.contains(part), "{part} is not in: {message}");
            }
        }
    }

    /// The same workload needed 1.0 GiB at 99 % and 31.2 MiB at 100 %.
    #[test]
    fn regression_what_a_workload_needs_does_not_depend_on_what_is_free() {
        let config = PostmarkConfig {
            number: 5000,
            size_low: 500,
            size_high: 100_000,
            transactions: 500,
            ..PostmarkConfig::default()
        };
        let needed = |percent| {
            let message = check(&config, percent).unwrap_err();
            message.split(" at one time").next().unwrap().to_owned()
        };
        assert_eq!(needed(99), needed(100));
    }

    #[test]
    fn more_files_than_inodes_are_refused() {
        let config =
            PostmarkConfig { number: 600_000, size_low: 1, size_high: 1, ..PostmarkConfig::default() };
        let message = check(&config, 0).unwrap_err();
        assert!(message.contains("524288 inodes"), "{message}");
    }

    #[test]
    fn what_no_device_holds_is_refused_without_going_through_it() {
        let config = PostmarkConfig {
            number: 1_000_000_000,
            size_low: 1_000_000_000,
            size_high: 1_000_000_000,
            transactions: 2_000_000_000,
            ..PostmarkConfig::default()
        };
        assert!(check(&config, 0).is_err());
    }
}
