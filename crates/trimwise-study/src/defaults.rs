//! What `trimwise compare` runs by default; each value with its reason.

use std::ops::RangeInclusive;

/// The workload: small enough to end within seconds, large enough to make the device collect garbage.
pub const WORKLOAD: &str = "default";

/// The workload of a host that nobody described.
pub const WORKLOAD_HERE: &str = "desktop";

/// The workload of a request that names none, on a host of its own or not.
pub const fn workload(is_here: bool) -> &'static str {
    if is_here { WORKLOAD_HERE } else { WORKLOAD }
}

/// Days of a host: the shortest time in which weekly trims can be judged.
pub const DAYS_HERE: u32 = 7;

/// The device: a SATA drive scaled down to a size that is aged within seconds.
pub const DEVICE: &str = "sata-small";

/// What Linux's nodiscard and discard do, what the two papers propose (SeT, and lazy TRIM with reuse), the default to
/// ship, and the bound that no policy can beat.
///
/// Batch is left out: fstrim runs once a day or a week, so in a run of seconds it would equal `off`; every ten seconds
/// is not realistic. `--policy batch:10s` shows what one costs.
pub const POLICIES: [&str; 6] = ["off", "commit", "set:40:90", "lazy+reuse", "judicious", "ideal"];

/// The same over days: what a stock host can do, the daemon, and the bound.
pub const POLICIES_OVER_DAYS: [&str; 7] =
    ["off", "commit", "batch:1d", "batch:1w", "judicious", "trimwised", "ideal"];

/// Repetitions: six are the fewest that give a 95 % interval of the median (1 - 2 / 2^6 = 96.9 %).
pub const REPS: u32 = 6;

/// Repetitions of the comparison that ends an advice: as many as its search gives the last ones left.
pub const ADVICE_REPS: u32 = trimwise::advise::REPS_MAX;

/// Minutes that an advice on a kernel may take, more or less.
pub const BUDGET_MIN: u32 = 15;
/// The least and the most.
pub const BUDGETS_MIN: RangeInclusive<u32> = 1..=10_080;

/// The seed: any will do, as long as it is always the same.
pub const SEED: u64 = 1;

/// How full the device is before the run, in percent: a disk in use, not a new one.
pub const UTILIZATION_PERCENT: u8 = 80;

/// The modelled host's Linux: the long-term release of today's distributions.
pub const LINUX: &str = "6.12";

/// The machine's memory, modelled or a guest's: as much smaller than a laptop's as the default device is smaller than
/// its drive, so that the workload does not fit in memory; and small enough to run several guests at a time.
pub const MEMORY_MIB: u64 = 1024;

/// The smallest memory, in MiB, in which a guest runs a workload on each of the four file systems.
pub const MEMORY_MIB_MIN: u64 = 64;
/// The largest, a TiB.
pub const MEMORY_MIB_MAX: u64 = 1_048_576;
/// From the smallest to the largest.
pub const MEMORIES_MIB: RangeInclusive<u64> = MEMORY_MIB_MIN..=MEMORY_MIB_MAX;

/// Power cuts of a crash test for each policy: all of them take a second or two.
pub const CUTS: u64 = 1000;

/// [`SEED`], for requests that are read.
pub const fn seed() -> u64 {
    SEED
}
