use serde::Serialize;
use trimwise::policy::{PolicySpec, Trimmer, terms};

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
        let defaults = || defaults::POLICIES.into_iter().chain(defaults::POLICIES_OVER_DAYS);
        let specs = PolicySpec::examples().into_iter().map(|spec| spec.to_string());
        let mut policies: Vec<String> = specs.collect();
        let missing: Vec<&str> = defaults().filter(|text| !policies.iter().any(|one| one == text)).collect();
        policies.extend(missing.into_iter().map(str::to_owned));
        let example = |policy: String| {
            let spec = policy.parse().map(Trimmer::spec).ok()?;
            let default = defaults().any(|text| text == policy);
            Some(Example { policy, bound: !spec.is_usable(), default, live: spec.suits_live_host() })
        };
        let hosts = [
            ("trimwised[:POLICY]", "the daemon with a policy, by FITRIM; over --days"),
            ("dm-trim[:POLICY]", "discard, over a target with a policy, as kernel/dm-trim (default: quiet)"),
        ];
        Self {
            trimwise: trimwise::VERSION,
            terms: terms().into_iter().chain(hosts).map(|(term, meaning)| Term { term, meaning }).collect(),
            examples: policies.into_iter().filter_map(example).collect(),
        }
    }
}
