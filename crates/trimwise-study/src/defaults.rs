//! Defaults of `trimwise compare`, each with its reason.

use std::ops::RangeInclusive;

/// A week of a mail server: small enough to end within seconds, large enough to make the device collect garbage, and
/// with the idle time in which a weekly fstrim and trimwised do their work.
pub const WORKLOAD: &str = "maildir:deliveries=10k";

/// Workload where work cannot be spread over days: PostMark.
pub const WORKLOAD_AT_ONCE: &str = "default";

/// Workload of a host that nobody described.
pub const WORKLOAD_HERE: &str = "desktop";

/// Days of work that nobody described: a weekly fstrim comes once.
pub const DAYS: u32 = 7;

/// A SATA drive scaled down to a size that is aged within seconds.
pub const DEVICE: &str = "sata-small";

/// Policies for runs without a pause: Linux's nodiscard and discard, the proposals of the two papers (SeT, and lazy TRIM
/// with reuse), and the bound that no policy can beat.
///
/// fstrim and trimwised are left out, since they work over hours. `--policy batch:10s` shows what a sweep costs.
pub const POLICIES: [&str; 5] = ["off", "commit", "set:40:90", "lazy+reuse", "ideal"];

/// Policies for runs over days: what people choose between, and for comparison what a patched kernel would do, and the
/// bound.
pub const POLICIES_OVER_DAYS: [&str; 6] = ["off", "commit", "batch:1w", "trimwised", "lazy+reuse", "ideal"];

/// The same for less than a week, in which a weekly fstrim shows nothing.
pub const POLICIES_OF_A_DAY: [&str; 6] = ["off", "commit", "batch:1d", "trimwised", "lazy+reuse", "ideal"];

/// Six repetitions are the fewest that give a 95 % interval of the median (1 - 2 / 2^6 = 96.9 %).
pub const REPS: u32 = 6;

/// Repetitions of the comparison at the end of an advice: as many as the search runs of its last candidates.
pub const ADVICE_REPS: u32 = trimwise::advise::REPS_MAX;

/// Approximate limit for an advice on a kernel.
pub const BUDGET_MIN: u32 = 15;
pub const BUDGETS_MIN: RangeInclusive<u32> = 1..=10_080;

/// Any seed will do, as long as it is always the same.
pub const SEED: u64 = 1;

/// The modelled Linux: the long-term release of today's distributions.
pub const LINUX: &str = "6.12";

/// Memory of the modelled host or a guest. It is as much smaller than a laptop's as the default device is smaller than
/// its drive, so that the workload does not fit in memory. It is small enough to run several guests in parallel.
pub const MEMORY_MIB: u64 = 1024;

/// The smallest memory in which a guest runs a workload on each of the four file systems.
pub const MEMORY_MIB_MIN: u64 = 64;
pub const MEMORY_MIB_MAX: u64 = 1_048_576;
pub const MEMORIES_MIB: RangeInclusive<u64> = MEMORY_MIB_MIN..=MEMORY_MIB_MAX;

/// Power cuts of a crash test for each policy: all of them take a second or two.
pub const CUTS: u64 = 1000;

pub const fn seed() -> u64 {
    SEED
}
