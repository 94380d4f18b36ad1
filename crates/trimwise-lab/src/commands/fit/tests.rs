use std::fs;

use crate::fit::{Measured, Prediction, Samples};
use crate::requests::fit::{FitReport, FittedSetting};
use clap::Parser as _;
use trimwise::profile::SettingValue;
use trimwise_study::caller::Silent;
use trimwise_study::input;

use super::*;
use crate::commands::{Command, CommandLine};

fn arguments(line: &str) -> FitArguments {
    let words = ["trimwise", "fit"].into_iter().chain(line.split_whitespace());
    match CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command {
        Command::Fit(arguments) => arguments,
        _ => panic!("not fit"),
    }
}

#[test]
fn the_table_shows_values_intervals_and_what_was_held_back() {
    let fit = |setting, base, value, interval: Option<(u64, u64)>| FittedSetting {
        setting,
        base,
        value,
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        samples: 280,
    };
    let whole = SettingValue::Whole;
    let word = |word: &str| SettingValue::Word(word.to_owned());
    let mut report = FitReport {
        trimwise: "0.0.0",
        target: "/home".to_owned(),
        base: "sata-generic".to_owned(),
        base_chosen_by: "class",
        read_only: false,
        measured: Measured {
            device: "file:/home/trimwise-fit.1".to_owned(),
            size_bytes: 1 << 30,
            is_model: false,
            trim: true,
            region_bytes: 1 << 30,
            drive_bytes: Some(256 << 30),
            drive_model: None,
            samples: Samples::default(),
            held: Vec::new(),
        },
        fitted: vec![
            fit(
                "link.bytes_per_s",
                Some(whole(550_000_000)),
                whole(1_070_782_172),
                Some((991_877_456, 1_157_905_064)),
            ),
            fit("controller.write_bytes_per_s", None, whole(92_032_535), Some((91_848_469, 92_216_601))),
            fit("cache.volatile", Some(SettingValue::Flag(true)), SettingValue::Flag(false), None),
            fit("trim.place", Some(word("background")), word("before_ack"), None),
        ],
        held_back: vec![Prediction {
            test: "a write and a TRIM of 64 KiB in turn, QD 1",
            measured_per_s: 1_440.0,
            predicted_per_s: 1_502.0,
            error_percent: 4.3,
            base_error_percent: -2.0,
        }],
        predicts_worse_than_base: false,
        recommended: Some("my.toml".to_owned()),
        read_beside_trims: Some(1.9),
        warnings: Vec::new(),
        notes: vec!["measured through a file system".to_owned()],
        profile_toml: String::new(),
        command: "trimwise fit /home --seconds 30 --seed 1".to_owned(),
        out: Some("my.toml".into()),
        directory: Some("/home".into()),
    };
    let text = table::render(&report);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    insta::assert_snapshot!(text);
    report.base_chosen_by = "guess";
    let guessed = table::render(&report);
    assert!(guessed.contains("sata-generic (a guess, since nothing shows what"), "{guessed}");
    report.predicts_worse_than_base = true;
    report.recommended = Some("sata-generic".to_owned());
    let text = table::render(&report);
    assert!(text.contains("Keep sata-generic") && text.contains("--device sata-generic"), "{text}");
    assert!(!text.contains("--device my.toml"), "{text}");
}

#[test]
fn a_fitted_model_is_a_profile_that_the_other_commands_take() {
    let dir = tempfile::tempdir().unwrap();
    let (out, json) = (dir.path().join("my.toml"), dir.path().join("my.json"));
    let line = format!("model:vendor1 --from vendor4 --out {} --json {}", out.display(), json.display());
    let text = run(&arguments(&line), &Silent::default()).unwrap();
    let again = run(&arguments(&line), &Silent::default()).unwrap_err();
    assert!(again.to_string().contains("already exists"), "{again}");
    assert!(text.contains("held back") && text.contains("Profile: "), "{text}");
    let profile = input::profile(&out.display().to_string(), "device").unwrap();
    assert_eq!(profile.name, "my");
    assert!(profile.source("trim.cost_per_command_ns").unwrap().starts_with("fitted: "));
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(json["base"], "vendor4");
    assert_eq!(json["profile_toml"], fs::read_to_string(out).unwrap());
    assert!(json["measurements"]["reads"][0]["latencies_ns"][0].as_f64().unwrap() > 0.0);
}
