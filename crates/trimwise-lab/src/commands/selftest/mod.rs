//! `trimwise selftest`: checks the device models against a flat array, in parallel, for any number of operations.

pub mod arguments;
pub mod table;

use crate::requests::selftest;
use trimwise::failure::Failure;
use trimwise_study::caller::Caller;

use crate::commands::selftest::arguments::SelftestArguments;
use trimwise_cli::output::{self, Destinations};

/// Runs the command; a violation is a failure of the run (exit code 1).
pub fn run(arguments: &SelftestArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    let tests = selftest::run(&arguments.request(), caller)?;
    let text = destinations.deliver(&tests, || table::render(&tests))?;
    output::concluded(text, tests.failure())
}

#[cfg(test)]
mod tests {
    use crate::requests::selftest::SelfTests;
    use crate::selftest::{PartReport, Violation};
    use clap::Parser;
    use trimwise_study::caller::Silent;

    use super::*;
    use crate::commands::{Command, CommandLine};

    fn arguments(line: &str) -> SelftestArguments {
        let words = ["trimwise", "selftest"].into_iter().chain(line.split_whitespace());
        let Command::Selftest(arguments) = CommandLine::try_parse_from(words).unwrap().command else {
            panic!("not selftest")
        };
        arguments
    }

    #[test]
    fn operations_are_spread_over_parts_and_summed_by_device() {
        let dir = tempfile::tempdir().unwrap();
        let mut arguments = arguments("--ops 10100 --seed 3");
        arguments.json.json = Some(dir.path().join("r.json"));
        let text = run(&arguments, &Silent::default()).unwrap();
        assert!(text.contains("10,100 operations, no violation."), "{text}");
        let json = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["command"], "trimwise selftest --ops 10100 --seed 3");
        let operations: u64 =
            json["devices"].as_array().unwrap().iter().map(|d| d["operations"].as_u64().unwrap()).sum();
        assert_eq!(operations, 10_100);
    }

    #[test]
    fn a_violation_is_shown_with_the_command_that_repeats_it() {
        let violation = Violation {
            part: 7,
            device: "sata-small".to_owned(),
            operation: 12,
            command: "Flush".to_owned(),
            what: "unit 5 is mapped".to_owned(),
        };
        let report = PartReport {
            part: 7,
            device: "sata-small".to_owned(),
            operations: 13,
            host_units_written: 100,
            nand_units_written: 130,
            audits: 0,
            violation: Some(violation),
        };
        let text = table::render(&SelfTests::new(&arguments("--ops 100000").request(), vec![report]));
        assert!(text.contains("unit 5 is mapped"), "{text}");
        assert!(text.contains("trimwise selftest --part 7 --seed 1"), "{text}");
    }
}
