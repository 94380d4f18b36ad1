use clap::Parser;
use trimwise_study::caller::Silent;

use super::*;
use crate::commands::{Command, CommandLine};

fn arguments(line: &str) -> VerifyArguments {
    let words = ["trimwise", "verify"].into_iter().chain(line.split_whitespace());
    match CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command {
        Command::Verify(arguments) => arguments,
        _ => panic!("not verify"),
    }
}

#[test]
fn the_text_and_the_json_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = arguments("sata-small --size 256MiB --seed 2");
    arguments.json.json = Some(dir.path().join("r.json"));
    let text = run(&arguments, &Silent::default()).unwrap();
    assert!(text.contains("Restores fully") && text.contains("256 MiB of 8 GiB"), "{text}");
    let json = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["judgement"]["verdict"], "restores_fully");
    let command =
        "trimwise verify sata-small --size 268435456 --content compressible --torture 150 --rest 60 --seed 2";
    assert_eq!(json["settings"]["command"], command);
}

#[test]
fn what_fails_half_way_shows_what_was_measured_and_gives_no_verdict() {
    let Verified::Drive(mut report) =
        verify::run(&arguments("sata-small --size 256MiB").request(), &Silent::default()).unwrap()
    else {
        panic!("not a drive")
    };
    let found = &mut report.found;
    found.judgement = None;
    found.evidence.speeds.trimmed = None;
    found.evidence.speeds.trimmed_again = None;
    found.broken = Some(trimwise_study::bench::Broken {
        test: "trimmed".to_owned(),
        why: "input/output error".to_owned(),
        interrupted: false,
        did: found.did,
    });
    let text = table::render(&report);
    assert!(text.contains("Partial, and no verdict: trimmed ended with: input/output error."), "{text}");
    assert!(!text.contains("Restores") && text.contains("tortured   "), "{text}");
    assert_eq!(report.failure(), Some(Failure::run("sata-small: trimmed: input/output error")));
    let code = |found: &trimwise_study::bench::verify::Verification| {
        let again = arguments("sata-small").request().report(found.clone(), Vec::new());
        again.code.map(|code| code.as_str())
    };
    assert_eq!(code(&report.found), Some("verify.trim.failed"));
    if let Some(broken) = &mut report.found.broken {
        broken.interrupted = true;
    }
    assert_eq!(report.failure(), Some(Failure::Interrupted));
    assert_eq!(code(&report.found), None);
}
