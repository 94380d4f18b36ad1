//! What a program uses that embeds this one, such as the Python package: the words of the command line, results as JSON,
//! and nothing printed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser as _;
use trimwise::policy::Policy;
pub use trimwise_lab::experiment::Report as Tick;
pub use trimwise_lab::failure::Failure;
use trimwise_study::caller::Silent;
use trimwise_study::compare::on_model;

use crate::commands::{self, Command, CommandLine, compare};
use crate::output;

/// A comparison.
pub struct Compared {
    /// As `compare --json` writes it.
    pub json: String,
    /// As `compare` prints it.
    pub text: String,
}

fn parse(words: &[String]) -> Result<Command, Failure> {
    output::be_quiet();
    let words = std::iter::once("trimwise").chain(words.iter().map(String::as_str));
    CommandLine::try_parse_from(words).map(|line| line.command).map_err(|e| Failure::usage(e.render()))
}

/// Runs a command, such as `["policies", "--json", FILE]`. `stop` is the flag that Ctrl-C would raise.
///
/// # Errors
///
/// What the command would print as its error.
pub fn run(words: &[String], stop: &Arc<AtomicBool>) -> Result<String, Failure> {
    commands::run(parse(words)?, &Silent { stop: Arc::clone(stop) })
}

/// Compares policies on the model, as `["compare", ...]` with these words does; `own` are further ones, which run on this
/// thread and call `tick` all the time.
///
/// # Errors
///
/// What the command would print as its error, also if the flag `stop` was raised.
pub fn compare(
    words: &[String],
    own: &[Policy],
    stop: &AtomicBool,
    tick: &Tick,
) -> Result<Compared, Failure> {
    let Command::Compare(arguments) = parse(words)? else {
        return Err(Failure::usage("expected the words of `compare`"));
    };
    let comparison = on_model::run_own(&arguments.request()?, own, stop, tick)?;
    let json = output::document(&comparison).map_err(Failure::run)?;
    Ok(Compared { json, text: compare::table::render(&comparison) })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use trimwise::policy::{Availability, Decision, DiscardGeneration, Governor, PolicyEvent, Shape, View};

    use super::*;

    /// Issues whatever waits, one command at a time; or unwinds at the first commit that freed something.
    struct Own {
        unwinds: bool,
    }

    impl Governor for Own {
        fn availability(&self, _: DiscardGeneration) -> Availability {
            Availability::Reuse
        }

        fn on_event(&mut self, _: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
            if view.pending_units > 0 && view.in_flight == 0 {
                if self.unwinds {
                    resume_unwind(Box::new("stop"));
                }
                decisions.push(Decision::Issue(Shape::NEXT));
            }
        }
    }

    #[test]
    fn a_policy_of_the_caller_is_compared_and_may_unwind_out_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let drive = dir.path().join("small.toml");
        let text = include_str!("../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
        std::fs::write(&drive, text).unwrap();
        let line = "compare --workload append:64KiB:8MiB --utilization 50 --reps 2 --policy off --device";
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let words = [words(line), vec![drive.display().to_string()]].concat();
        let own = |unwinds| Policy::new("own", move || Box::new(Own { unwinds }));
        let compared =
            |own: &[Policy]| compare(&words, own, &AtomicBool::new(false), &(Arc::new(|_, _| ()) as _));
        let one = compared(&[own(false)]).unwrap();
        let json: serde_json::Value = serde_json::from_str(&one.json).unwrap();
        let policies: Vec<_> = json["cells"].as_array().unwrap().iter().map(|cell| &cell["policy"]).collect();
        assert_eq!(policies, ["off", "off", "own", "own"]);
        assert!(json["cells"][2]["device_stats"]["trim_commands"].as_u64().unwrap() > 0);
        assert!(one.text.contains("own") && json["schema"] == 1, "{}", one.text);

        let unwound = catch_unwind(AssertUnwindSafe(|| compared(&[own(true)]).map(|_| ())));
        assert_eq!(unwound.unwrap_err().downcast_ref::<&str>(), Some(&"stop"));
        assert_eq!(
            compared(&[own(false)]).unwrap().json,
            one.json,
            "nothing is left of the run that was cut off"
        );
        let named = |name| Policy::new(name, || Box::new(Own { unwinds: false }));
        let both = compared(&[named("off")]).unwrap();
        let json: serde_json::Value = serde_json::from_str(&both.json).unwrap();
        assert_eq!(json["cells"][2]["policy"], "own:off", "it is not the built-in one of that name");
        let refused = compared(&[named("a"), named("a")]).map(|_| ());
        assert!(
            matches!(&refused, Err(Failure::Usage(why)) if why.contains("a is the name of two")),
            "{refused:?}"
        );
    }
}
