use serde::Serialize;
use trimwise::policy::{PolicySpec, terms};

use crate::defaults;

#[derive(Debug, Serialize)]
pub struct Policies {
    pub trimwise: &'static str,
    pub terms: Vec<Term>,
    /// Complete policies, one of every kind.
    pub examples: Vec<Example>,
}

#[derive(Debug, Serialize)]
pub struct Term {
    /// Capitals stand for a value, brackets enclose optional parts.
    pub term: &'static str,
    pub meaning: &'static str,
}

#[derive(Debug, Serialize)]
pub struct Example {
    pub policy: String,
    /// A bound that no real host can use.
    pub bound: bool,
    pub default: bool,
    /// Whether `trimwised` can follow it on a stock host.
    pub live: bool,
}

impl Policies {
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
