//! `trimwise policies`: the terms that make up policies.

use clap::Args;
use trimwise::failure::Failure;
use trimwise_study::policies::{Example, Policies, Term};

use crate::arguments::{JsonArguments, TableArguments};
use crate::output::Destinations;
use crate::table::{export, folded};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise policies\n  \
    trimwise policies --json - | jq '.terms[].term'\n\n\
    What each of them does: docs/guide.md")]
pub struct PoliciesArguments {
    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

fn text(list: &Policies) -> String {
    let terms = "Terms; join them with `+` (capitals: a value; brackets: optional)";
    let mut text = folded(terms, 0) + "\n";
    let rows = list.terms.iter().map(|Term { term, meaning }| [term.to_string(), meaning.to_string()]);
    export::keep("Terms", &["term", "meaning"], rows, &[]);
    for Term { term, meaning } in &list.terms {
        text += &format!("{term}\n{}", folded(meaning, 4));
    }
    let examples =
        "Examples (* run by `trimwise compare` if no policy is given; L also for trimwised, on live hosts)";
    text += &format!("\n{}\n", folded(examples, 0));
    let yes = |yes: bool| if yes { "yes" } else { "" }.to_owned();
    let rows = list.examples.iter().map(|e| [e.policy.to_string(), yes(e.default), yes(e.live)]);
    export::keep("Examples", &["policy", "default", "for trimwised"], rows, &[]);
    for Example { policy, default, live, .. } in &list.examples {
        let mark = |marked: bool, mark: char| if marked { mark } else { ' ' };
        text += &format!("{}{} {policy}\n", mark(*default, '*'), mark(*live, 'L'));
    }
    text
}

pub fn run(arguments: &PoliciesArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    let policies = Policies::all();
    destinations.deliver(&policies, || text(&policies))
}

#[cfg(test)]
mod tests {
    use trimwise::policy::terms;
    use trimwise_study::defaults;

    use super::*;

    #[test]
    fn every_term_and_every_default_is_listed() {
        let policies = Policies::all();
        let text = text(&policies);
        for (term, meaning) in terms() {
            assert!(text.contains(&format!("\n{term}\n    {meaning}\n")), "{term}");
        }
        for policy in defaults::POLICIES.into_iter().chain(defaults::POLICIES_OVER_DAYS) {
            let is_marked = |line: &str| line.starts_with('*') && line.ends_with(&format!(" {policy}"));
            assert!(text.lines().any(is_marked), "{policy} is run but is no example: {text}");
        }
        assert!(text.contains("\n L judicious\n") && text.contains("\n   btrfs\n"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        assert!(policies.examples.iter().all(|e| e.bound == (e.policy == "ideal")));
    }
}
