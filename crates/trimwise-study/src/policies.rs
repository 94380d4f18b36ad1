//! The terms that make up policies.

use serde::Serialize;
use trimwise::policy::{PolicySpec, terms};

use crate::defaults;

/// The terms of policies, and examples; the order of the keys is part of the format.
#[derive(Debug, Serialize)]
pub struct Policies {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The terms.
    pub terms: Vec<Term>,
    /// Complete policies, one of every kind.
    pub examples: Vec<Example>,
}

/// A term of policies.
#[derive(Debug, Serialize)]
pub struct Term {
    /// Its syntax; capitals stand for a value, brackets enclose what may be left out.
    pub term: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// A complete policy.
#[derive(Debug, Serialize)]
pub struct Example {
    /// As it is written.
    pub policy: String,
    /// Whether it is only a bound, which no real host can use.
    pub bound: bool,
    /// Whether `compare` runs it by default.
    pub default: bool,
    /// Whether `trimwised` can follow it on a stock host.
    pub live: bool,
}

impl Policies {
    /// Lists them.
    pub fn all() -> Self {
        let example = |policy: PolicySpec| {
            let text = policy.to_string();
            let default = defaults::POLICIES.contains(&text.as_str());
            Example { policy: text, bound: !policy.is_usable(), default, live: policy.suits_live_host() }
        };
        let hosts = [
            ("trimwised[:POLICY]", "the daemon with a policy, by FITRIM; over --days"),
            ("dm-trim[:POLICY]", "discard, over a target with a policy, as kernel/dm-trim (default: quiet)"),
        ];
        Self {
            trimwise: trimwise::VERSION,
            terms: terms().into_iter().chain(hosts).map(|(term, meaning)| Term { term, meaning }).collect(),
            examples: PolicySpec::examples().into_iter().map(example).collect(),
        }
    }
}
