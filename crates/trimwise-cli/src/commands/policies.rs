//! `trimwise policies`: the terms that make up policies.

use clap::Args;
use serde::Serialize;
use trimwise::policy::{PolicySpec, terms};
use trimwise_lab::failure::Failure;

use crate::arguments::JsonArguments;
use crate::output::Destinations;
use crate::table::folded;
use trimwise_study::defaults;

/// Arguments of `policies`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise policies\n  \
    trimwise policies --json - | jq '.terms[].term'\n\n\
    What each of them does: docs/guide.md")]
pub struct PoliciesArguments {
    #[command(flatten)]
    pub json: JsonArguments,
}

/// Everything listed, as `--json` writes it.
#[derive(Debug, Serialize)]
struct Policies {
    /// The version of trimwise.
    trimwise: &'static str,
    terms: Vec<Term>,
    /// Complete policies, one of every kind.
    examples: Vec<Example>,
}

/// A term of policies.
#[derive(Debug, Serialize)]
struct Term {
    /// Its syntax; capitals stand for a value, brackets enclose what may be left out.
    term: &'static str,
    meaning: &'static str,
}

#[derive(Debug, Serialize)]
struct Example {
    policy: String,
    /// Whether it is only a bound, which no real host can use.
    bound: bool,
    /// Whether `compare` runs it by default.
    default: bool,
    /// Whether `trimwised` can follow it on a stock host.
    live: bool,
}

impl Policies {
    fn all() -> Self {
        let example = |policy: PolicySpec| {
            let text = policy.to_string();
            let default = defaults::POLICIES.contains(&text.as_str());
            Example { policy: text, bound: !policy.is_usable(), default, live: policy.suits_live_host() }
        };
        Self {
            trimwise: trimwise::VERSION,
            terms: terms().into_iter().map(|(term, meaning)| Term { term, meaning }).collect(),
            examples: PolicySpec::examples().into_iter().map(example).collect(),
        }
    }

    fn text(&self) -> String {
        let terms = "Terms, joined with `+` to a policy (capitals: a value; brackets: may be left out)";
        let mut text = folded(terms, 0) + "\n";
        for Term { term, meaning } in &self.terms {
            text += &format!("{term}\n{}", folded(meaning, 4));
        }
        let examples = "Examples (* run by `trimwise compare` if no policy is given; L also for trimwised, on live hosts)";
        text += &format!("\n{}\n", folded(examples, 0));
        for Example { policy, default, live, .. } in &self.examples {
            let mark = |marked: bool, mark: char| if marked { mark } else { ' ' };
            text += &format!("{}{} {policy}\n", mark(*default, '*'), mark(*live, 'L'));
        }
        text
    }
}

/// Runs the command and returns what to print.
pub fn run(arguments: &PoliciesArguments) -> Result<String, Failure> {
    let PoliciesArguments { json } = arguments;
    let destinations = Destinations::check_json(json)?;
    let policies = Policies::all();
    destinations.deliver(&policies, || policies.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_and_every_default_is_listed() {
        let policies = Policies::all();
        let text = policies.text();
        for (term, meaning) in terms() {
            assert!(text.contains(&format!("\n{term}\n    {meaning}\n")), "{term}");
        }
        for policy in defaults::POLICIES {
            let is_marked = |line: &str| line.starts_with('*') && line.ends_with(&format!(" {policy}"));
            assert!(text.lines().any(is_marked), "{policy} is run but is no example: {text}");
        }
        assert!(text.contains("\n*L judicious\n") && text.contains("\n   btrfs\n"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        assert!(policies.examples.iter().all(|e| e.bound == (e.policy == "ideal")));
    }
}
