//! Policies as text: `off`, `set:40:90`, `set:40:90+lazy+reuse`.
//!
//! A policy is a list of terms joined with `+`. One of them selects how and when TRIMs are issued (`commit` by
//! default); `set` is a gate before it; the others modify it. The order is free; [`PolicySpec`]'s `Display` writes one
//! canonical order. `grammar` parses them.

mod grammar;

use std::fmt;

use super::batch::{Batch, BatchConfig};
use super::btrfs::Btrfs;
use super::commit::Commit;
use super::f2fs::F2fs;
use super::ideal::Ideal;
use super::judicious::Judicious;
use super::lazy::{Lazy, LazyConfig};
use super::off::Off;
use super::set::{Set, SetConfig};
use super::zfs::Zfs;
use super::{DiscardGeneration, Governor};
use crate::units::{SimDuration, UNIT_BYTES};

pub use grammar::PolicyError;

/// A parsed policy; builds a fresh governor for each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    gate: Option<SetConfig>,
    issuer: Issuer,
}

/// How and when TRIMs are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Issuer {
    Off,
    Commit,
    Kernel515,
    Lazy(LazyConfig),
    Batch(BatchConfig),
    Btrfs,
    Zfs,
    F2fs,
    Judicious,
    Ideal,
}

/// All terms with their arguments and meaning, for help texts.
pub const TERMS: [(&str, &str); 15] = [
    ("off", "never"),
    ("commit", "at every commit, as the host's Linux does with the mount option discard"),
    ("kernel515", "as in Linux 5.15 to 6.0: one background worker after the commit"),
    ("set:LOW:HIGH[:WINDOW[:CHANGE]]", "on above HIGH %, off below LOW %, between them on unless use rises"),
    ("catchup", "with set: turning on also trims what was freed while it was off"),
    ("lazy[:MIN:MAX]", "from a queue, by MIN to MAX background workers"),
    ("reuse", "with lazy: allocations take blocks out of the queue"),
    ("merge", "with lazy: neighbouring extents of different commits become one"),
    ("fill", "with lazy: as many extents in a command as the device takes"),
    ("backoff", "with lazy: only while nothing else is in the device"),
    ("batch:EVERY[:SMALLEST]", "all free space at intervals (10m, 1w), as fstrim does"),
    ("btrfs, zfs, f2fs", "as in these file systems: discard=async, autotrim, background discard"),
    ("judicious", "trimwised's default: set, lazy, reuse, merge, fill and back-off, paced by their cost"),
    ("ideal", "the device learns what a commit frees at once, at no cost: a bound, never recommended"),
    ("TERM+TERM", "terms combined, as in set:40:90+lazy+reuse"),
];

impl PolicySpec {
    /// Never TRIM.
    pub const OFF: Self = Self::plain(Issuer::Off);
    /// TRIM at every commit, as Linux's `discard` option does.
    pub const COMMIT: Self = Self::plain(Issuer::Commit);
    /// The daemon's default.
    pub const JUDICIOUS: Self = Self::plain(Issuer::Judicious);
    /// The device learns of freed space at once, at no cost.
    pub const IDEAL: Self = Self::plain(Issuer::Ideal);

    const fn plain(issuer: Issuer) -> Self {
        Self { gate: None, issuer }
    }

    /// One policy of every kind, for tests that must hold under all of them.
    pub fn examples() -> Vec<Self> {
        const TEXTS: [&str; 15] = [
            "off",
            "commit",
            "kernel515",
            "set:40:90",
            "set:40:90+catchup",
            "lazy",
            "lazy+reuse",
            "lazy:2:4+reuse+merge+fill+backoff",
            "set:40:90+lazy+reuse",
            "batch:10s",
            "btrfs",
            "zfs",
            "f2fs",
            "judicious",
            "ideal",
        ];
        TEXTS.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// Whether a real host could use it; `ideal` is only a bound and never recommended.
    pub fn is_usable(self) -> bool {
        !self.governor().needs().oracle
    }

    /// Whether it benefits from commands of several ranges, which stock Linux sends only on NVMe.
    pub fn fills_commands(self) -> bool {
        self.governor().needs().fills_commands
    }

    /// Whether it trims with each commit, which on a real host the kernel does itself (`discard`).
    pub fn follows_commits(self) -> bool {
        matches!(self.issuer, Issuer::Commit | Issuer::Kernel515)
    }

    /// Whether a stock host can follow it. Other policies need to see each commit, or imitate what some kernel does
    /// anyway.
    pub fn suits_live_host(self) -> bool {
        use Issuer::{Batch, Commit, Judicious, Lazy, Off};
        matches!(self.issuer, Off | Commit | Lazy(_) | Batch(_) | Judicious)
    }

    /// Whether it is the daemon's default, which promises to bound the untrimmed space.
    pub fn is_judicious(self) -> bool {
        self.issuer == Issuer::Judicious
    }

    /// The settings of its sweeps, if it does nothing but sweep all free space at intervals.
    pub fn batch(self) -> Option<BatchConfig> {
        match (self.gate, self.issuer) {
            (None, Issuer::Batch(config)) => Some(config),
            _ => None,
        }
    }

    /// A governor in its initial state.
    pub fn governor(self) -> Box<dyn Governor> {
        let issuer: Box<dyn Governor> = match self.issuer {
            Issuer::Off => Box::new(Off),
            Issuer::Commit => Box::<Commit>::default(),
            Issuer::Kernel515 => Box::new(Commit::of(DiscardGeneration::Worker)),
            Issuer::Lazy(config) => Box::new(Lazy::new(config)),
            Issuer::Batch(config) => Box::new(Batch::new(config)),
            Issuer::Btrfs => Box::<Btrfs>::default(),
            Issuer::Zfs => Box::<Zfs>::default(),
            Issuer::F2fs => Box::<F2fs>::default(),
            Issuer::Judicious => Box::<Judicious>::default(),
            Issuer::Ideal => Box::new(Ideal),
        };
        match self.gate {
            Some(config) => Box::new(Set::new(config, issuer)),
            None => issuer,
        }
    }
}

impl From<BatchConfig> for PolicySpec {
    fn from(config: BatchConfig) -> Self {
        Self::plain(Issuer::Batch(config))
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms: Vec<String> = Vec::new();
        if let Some(set) = self.gate {
            let default = SetConfig::new(set.low_percent, set.high_percent);
            let mut term = format!("set:{}:{}", set.low_percent, set.high_percent);
            if (set.window, set.hysteresis_permille) != (default.window, default.hysteresis_permille) {
                term += &format!(":{}", Duration(set.window));
            }
            if set.hysteresis_permille != default.hysteresis_permille {
                term += &format!(":{}.{}", set.hysteresis_permille / 10, set.hysteresis_permille % 10);
            }
            terms.push(term);
            terms.extend(set.catch_up.then(|| "catchup".to_owned()));
        }
        match self.issuer {
            Issuer::Commit if self.gate.is_some() => {}
            Issuer::Lazy(lazy) => {
                let default = LazyConfig::default();
                let workers = (lazy.workers_min, lazy.workers_max);
                terms.push(if workers == (default.workers_min, default.workers_max) {
                    "lazy".to_owned()
                } else {
                    format!("lazy:{}:{}", lazy.workers_min, lazy.workers_max)
                });
                let LazyConfig { reuse, merge, fill, back_off, .. } = lazy;
                for (set, name) in [(reuse, "reuse"), (merge, "merge"), (fill, "fill"), (back_off, "backoff")]
                {
                    terms.extend(set.then(|| name.to_owned()));
                }
            }
            Issuer::Batch(batch) if batch.units_min <= 1 => {
                terms.push(format!("batch:{}", Duration(batch.every)));
            }
            Issuer::Batch(batch) => terms.push(format!(
                "batch:{}:{}KiB",
                Duration(batch.every),
                batch.units_min * UNIT_BYTES / 1024
            )),
            Issuer::Off => terms.push("off".to_owned()),
            Issuer::Commit => terms.push("commit".to_owned()),
            Issuer::Kernel515 => terms.push("kernel515".to_owned()),
            Issuer::Btrfs => terms.push("btrfs".to_owned()),
            Issuer::Zfs => terms.push("zfs".to_owned()),
            Issuer::F2fs => terms.push("f2fs".to_owned()),
            Issuer::Judicious => terms.push("judicious".to_owned()),
            Issuer::Ideal => terms.push("ideal".to_owned()),
        }
        f.pad(&terms.join("+"))
    }
}

/// A length of time in the notation of policies.
struct Duration(SimDuration);

/// Units of time, from the longest.
const TIME_UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        let (name, unit) =
            TIME_UNITS.into_iter().find(|(_, unit)| ns.is_multiple_of(*unit)).unwrap_or(("ms", 1_000_000));
        write!(f, "{}{name}", ns / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_prints_as_it_was_parsed() {
        for text in [
            "off",
            "commit",
            "kernel515",
            "set:0:100",
            "set:40:90",
            "set:40:90:1m",
            "set:40:90:10s:0.5",
            "set:40:90+catchup",
            "lazy",
            "lazy:2:16",
            "lazy+reuse",
            "set:40:90+catchup+lazy+reuse+merge+fill+backoff",
            "set:40:90+btrfs",
            "batch:1w",
            "batch:90s:64KiB",
            "btrfs",
            "zfs",
            "f2fs",
            "judicious",
            "ideal",
        ] {
            let policy: PolicySpec = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
        }
        let disordered: PolicySpec = "reuse+lazy:1:8+set:40:90:10s:1.0".parse().unwrap();
        assert_eq!(disordered.to_string(), "set:40:90+lazy+reuse");
        assert_eq!("batch:7d".parse::<PolicySpec>().unwrap().to_string(), "batch:1w");
    }

    #[test]
    fn every_example_is_there() {
        assert_eq!(PolicySpec::examples().len(), 15);
    }

    #[test]
    fn the_bound_is_not_for_real_hosts() {
        assert!(PolicySpec::COMMIT.is_usable());
        assert!(!PolicySpec::IDEAL.is_usable());
    }
}
