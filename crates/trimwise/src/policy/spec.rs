//! Policies as text: `off`, `set:40:90`, `set:40:90+lazy+reuse`.
//!
//! A policy is a list of terms joined with `+`. One of them selects how and when TRIMs are issued (`commit` by
//! default); `set` is a gate before it; the others modify it. The order is free; [`PolicySpec`]'s `Display` writes one
//! canonical order. `grammar` parses them.

pub(super) mod grammar;
pub(super) mod term;

use std::fmt;

use super::batch::BatchConfig;
use super::lazy::LazyConfig;
use super::limit::{self, Limit};
use super::set::{Set, SetConfig};
use super::{Governor, Native, TERMS, batch, commit, ideal, judicious, lazy, off, quiet};
use crate::units::SimDuration;
use term::{Issuer, Term};

pub(crate) use term::LiveUse;

use grammar::Duration;
pub use grammar::PolicyError;

/// A parsed policy. It builds a fresh governor for each run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PolicySpec {
    gate: Option<SetConfig>,
    issuer: Issuer,
    /// The limit of the application on its deletions.
    limit: Option<Limit>,
}

/// Returns all terms with their arguments and meaning, for help texts.
pub fn terms() -> Vec<(&'static str, &'static str)> {
    terms_of(|_| true)
}

/// Returns the terms of policies that `is_accepted`, and those that go with any policy.
fn terms_of(is_accepted: impl Fn(&Term) -> bool) -> Vec<(&'static str, &'static str)> {
    let of_policy =
        |term: &&Term| [(term.form, term.meaning)].into_iter().chain(term.options.iter().copied());
    let mut all: Vec<_> =
        TERMS.iter().copied().filter(|term| is_accepted(term)).flat_map(|term| of_policy(&term)).collect();
    all.extend([
        ("set:LOW:HIGH[:WINDOW]", "on above HIGH %, off below LOW %, between them on unless use rises"),
        ("catchup", "with set: turning on also trims what was freed while it was off"),
    ]);
    all.extend(limit::FORMS);
    all.push(("TERM+TERM", "terms combined, as in set:40:90+lazy+reuse"));
    all
}

impl PolicySpec {
    pub const OFF: Self = Self::plain(&off::TERM);
    /// TRIM at every commit, as Linux's `discard` option does.
    pub const COMMIT: Self = Self::plain(&commit::COMMIT);
    pub const SERIAL: Self = Self::plain(&commit::SERIAL);
    pub const TOGETHER: Self = Self::plain(&commit::TOGETHER);
    pub const JUDICIOUS: Self = Self::plain(&judicious::TERM);
    /// The default policy of the device-mapper target `kernel/dm-trim`.
    pub const QUIET: Self =
        Self { gate: None, issuer: Issuer::new(&quiet::TERM, quiet::DEFAULTS), limit: None };
    /// The device learns of freed space at once, at no cost.
    pub const IDEAL: Self = Self::plain(&ideal::TERM);

    const fn plain(term: &'static Term) -> Self {
        Self { gate: None, issuer: Issuer::new(term, [0; 2]), limit: None }
    }

    /// Returns one policy of every kind, for tests that must hold under all of them.
    pub fn examples() -> Vec<Self> {
        let gated = ["set:40:90", "set:40:90+catchup", "set:40:90+lazy+reuse"];
        let texts = TERMS.iter().flat_map(|term| term.examples).chain(&gated);
        texts.filter_map(|text| text.parse().ok()).collect()
    }

    /// Returns true if a real host could follow the policy. `ideal` is only a bound, and never recommended.
    pub fn is_usable(self) -> bool {
        !self.governor().needs().oracle
    }

    /// Returns true if the policy benefits from commands of several ranges, which stock Linux sends only on NVMe.
    pub fn fills_commands(self) -> bool {
        self.governor().needs().fills_commands
    }

    /// Returns the system that does this by itself, if that is not the ext4 of a recent Linux.
    pub fn native_to(self) -> Option<Native> {
        self.issuer.term.native_to
    }

    pub fn needs_trim(self) -> bool {
        self.governor().needs().trim
    }

    pub(crate) fn live(self) -> LiveUse {
        // trimwised deletes nothing.
        if self.limit.is_some() { LiveUse::Unsuited } else { self.issuer.term.live }
    }

    /// Returns the limit of the application on its deletions.
    pub fn limit(self) -> Option<Limit> {
        self.limit
    }

    pub fn without_limit(self) -> Self {
        Self { limit: None, ..self }
    }

    /// Returns true if a stock host can follow the policy.
    pub fn suits_live_host(self) -> bool {
        self.live() != LiveUse::Unsuited
    }

    /// Returns true if a live host follows the policy by turning the kernel's own `discard` on and off.
    pub fn toggles_discard(self) -> bool {
        self.live() == LiveUse::Kernel
    }

    /// Returns the settings of its sweeps, if the policy does nothing but sweep all free space at intervals.
    pub fn batch(self) -> Option<BatchConfig> {
        let is_batch = self.gate.is_none() && self.issuer.term.form == batch::TERM.form;
        is_batch.then(|| BatchConfig::of(self.issuer.arguments))
    }

    /// Returns how long `quiet` waits for quiet, and how long at most for anything; `None` for another policy.
    pub fn quiet_and_hold(self) -> Option<[SimDuration; 2]> {
        let is_quiet = self.gate.is_none() && self.issuer.term.form == quiet::TERM.form;
        is_quiet.then(|| self.issuer.arguments.map(SimDuration::from_nanos))
    }

    /// Returns the settings of `lazy`, with or without a gate before it; `None` for another policy.
    pub fn lazy(self) -> Option<LazyConfig> {
        (self.issuer.term.form == lazy::TERM.form).then(|| LazyConfig::of(self.issuer))
    }

    pub fn gate(self) -> Option<SetConfig> {
        self.gate
    }

    pub fn without_gate(self) -> Self {
        self.behind(None)
    }

    /// Returns the same policy behind this gate, or none.
    pub fn behind(self, gate: Option<SetConfig>) -> Self {
        Self { gate, ..self }
    }

    pub fn governor(self) -> Box<dyn Governor> {
        let issuer = (self.issuer.term.make)(self.issuer);
        match self.gate {
            Some(config) => Box::new(Set::new(config, issuer)),
            None => issuer,
        }
    }
}

impl From<BatchConfig> for PolicySpec {
    fn from(config: BatchConfig) -> Self {
        let issuer = Issuer::new(&batch::TERM, config.arguments());
        Self { gate: None, issuer, limit: None }
    }
}

impl fmt::Debug for PolicySpec {
    /// Writes no addresses of functions, which differ from run to run: finished cells are found again by this text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicySpec({self})")
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms: Vec<String> = Vec::new();
        if let Some(set) = self.gate {
            let default = SetConfig::new(set.low_percent, set.high_percent);
            let mut term = format!("set:{}:{}", set.low_percent, set.high_percent);
            if set.window != default.window {
                term += &format!(":{}", Duration(set.window));
            }
            terms.push(term);
            terms.extend(set.catch_up.then(|| "catchup".to_owned()));
        }
        // A gate alone is one before `commit`.
        if self.gate.is_none() || self.issuer != Self::COMMIT.issuer {
            terms.push(self.issuer.to_string());
        }
        terms.extend(self.limit.map(|limit| limit.to_string()));
        f.pad(&terms.join("+"))
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
            "serial",
            "set:40:90+together",
            "set:0:100",
            "set:40:90",
            "set:40:90:1m",
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
            "quiet",
            "quiet:50ms",
            "quiet:100ms:5s",
            "judicious",
            "adaptive",
            "ideal",
        ] {
            let policy: PolicySpec = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
            assert_eq!(format!("{policy:?}"), format!("PolicySpec({text})"));
        }
        let disordered: PolicySpec = "reuse+lazy:1:8+set:40:90:10s".parse().unwrap();
        assert_eq!(disordered.to_string(), "set:40:90+lazy+reuse");
        assert_eq!("batch:7d".parse::<PolicySpec>().unwrap().to_string(), "batch:1w");
    }

    #[test]
    fn every_policy_has_an_example_and_every_example_is_one() {
        for term in TERMS {
            assert!(!term.examples.is_empty(), "{}", term.form);
            for text in term.examples {
                let spec: PolicySpec = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
                assert_eq!(spec.issuer.term.form, term.form, "{text}");
                assert!(PolicySpec::examples().contains(&spec), "{text}");
            }
        }
    }

    #[test]
    fn every_policy_is_in_the_guide_and_on_the_page_of_the_model() {
        let pages = [
            ("docs/guide.md", include_str!("../../../../docs/guide.md")),
            ("docs/model.md", include_str!("../../../../docs/model.md")),
        ];
        for (page, text) in pages {
            for name in TERMS.iter().map(|term| term.name()) {
                let is_there = [':', '`', '['].iter().any(|end| text.contains(&format!("`{name}{end}")));
                assert!(is_there, "{page} does not mention the policy `{name}`");
            }
        }
    }

    #[test]
    fn the_bound_is_not_for_real_hosts() {
        assert!(PolicySpec::COMMIT.is_usable());
        assert!(!PolicySpec::IDEAL.is_usable());
    }
}
