use crate::experiment::Host;
use crate::experiment::result::{Basis, Claim, Figure, Role, Rows};
use crate::guests;
use crate::made::MadeBy;
use crate::plot::{Axis, Plot, PlotKind, Point, Series};
use clap::Parser;
use serde::Serialize;
use trimwise_study::caller::Silent;

use super::*;
use crate::commands::{Command, CommandLine};

/// An experiment in the model, and one that boots a kernel. Neither runs anything.
static INVENTED: [&Experiment; 2] = [
    &Experiment { name: "postmark-vendors", host: Host::ModelOrKernel("6.1:ext4", |_, _| Ok(())), ..PLAIN },
    &Experiment { name: "booting", host: Host::AnyKernel(|_, _| Ok(())), ..PLAIN },
];

const PLAIN: Experiment = Experiment {
    name: "",
    question: "",
    reps: 10,
    claims: "",
    host: Host::Model,
    run: |request| {
        assert!(request.bounds.limits.wall.as_secs() >= 9);
        Ok(experiment())
    },
};

fn arguments(line: &str) -> ReproduceArguments {
    let words = ["trimwise", "reproduce"].into_iter().chain(line.split_whitespace());
    let Command::Reproduce(arguments) = CommandLine::try_parse_from(words).unwrap().command else {
        panic!("not reproduce")
    };
    arguments
}

fn json_of(line: &str) -> serde_json::Value {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut arguments = arguments(line);
    arguments.output.json = Some(path.clone());
    run_of(&INVENTED, &arguments, &Silent::default()).unwrap();
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn one_experiment_is_an_object_and_all_are_a_list() {
    let one = json_of("postmark-vendors");
    assert_eq!(one["experiment"], "postmark-vendors");
    let row = one["rows"][0].as_object().unwrap();
    for key in "device postmark_buffering metric nodiscard discard published_nodiscard published_discard"
        .split_whitespace()
    {
        assert!(row.contains_key(key), "{key}");
    }
    assert_eq!(one["claims"][1]["met"], false);
    let worth = ["basis", "role"].map(|key| one["claims"][1][key].clone());
    assert_eq!(worth, ["measured", "check"]);
    assert_eq!(one["claims"][1]["published"], serde_json::json!([10.7, 97.6]));
    let all = json_of("--all");
    assert_eq!((&all[0], all.as_array().unwrap().len()), (&one, 2));
}

#[test]
fn what_ran_in_guests_names_their_program_and_only_guests_have_limits() {
    assert_eq!(json_of("postmark-vendors")["guest_program"], serde_json::Value::Null);
    let program = guests::program_hash().unwrap();
    for limits in ["", " --max-silence 7 --max-wall 9"] {
        let made = json_of(&format!("booting{limits}"));
        assert_eq!(made["guest_program"], program.as_str());
    }
    let line = "postmark-vendors --max-wall 9";
    let failure = run(&arguments(line), &Silent::default()).unwrap_err();
    assert!(
        matches!(&failure, Failure::Usage(m) if m.to_string().contains("apply only to guests; expected an experiment that boots"))
    );
}

#[test]
fn an_unknown_experiment_names_the_known_ones() {
    let failure = run(&arguments("postmark"), &Silent::default()).unwrap_err();
    assert!(
        matches!(&failure, Failure::Usage(m) if m.to_string().contains("Expected one of postmark-vendors"))
    );
}

#[test]
fn regression_every_experiment_is_in_the_lists_of_them() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let table = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let command = <CommandLine as clap::CommandFactory>::command();
    let reproduce = command.find_subcommand("reproduce").unwrap();
    let only = reproduce.get_arguments().find(|argument| argument.get_id() == "only").unwrap();
    let help = only.get_help().unwrap().to_string();
    for experiment in ALL {
        let name = experiment.name;
        assert!(table.contains(&format!("| [{name}](")), "{name} is not in experiments/README.md");
        let has_parts = !matches!(experiment.host, Host::Model);
        assert_eq!(help.contains(&format!("`{name}`")), has_parts, "{name} in the help of --only");
    }
}

/// Returns rows as a document stores them.
pub fn rows(data: &[impl Serialize]) -> Rows {
    serde_json::from_value(serde_json::json!(data)).unwrap()
}

/// Invents an experiment with two rows and two claims.
pub fn experiment() -> ExperimentResult {
    let row = |metric: &str, buffering: bool, n: f64, d: f64, pn: f64, pd: f64, fitted: bool| {
        serde_json::json!({
            "device": "vendor2",
            "postmark_buffering": buffering,
            "metric": metric,
            "nodiscard": n,
            "discard": d,
            "published_nodiscard": pn,
            "published_discard": pd,
            "fitted": fitted,
        })
    };
    ExperimentResult {
        experiment: "postmark-vendors".into(),
        question: "What does -o discard cost PostMark on six vendors' SSDs?".into(),
        source: "L. Czerner, 2010".into(),
        finding: "It depends on the device: from nothing to thirteen times the time. Checks met 0 of 1; fitted 1 of 1. \
                  Not met: postmark-deletion; the experiment's README says why."
            .into(),
        kernel: None,
        trimwise: "0.0.0-test".into(),
        made_by: MadeBy {
            fingerprint: "82165b767afd".into(),
            code: [("model", "92199a"), ("profiles", "3f8980")]
                .map(|(part, hash)| (part.to_owned(), hash.to_owned()))
                .into(),
            kernels: Vec::new(),
        },
        seed: 1,
        reps: 10,
        rows: rows(&[
            row("Total_duration", true, 221.0, 2600.0, 220.2, 2628.5, false),
            row("Duration_of_transactions", true, 158.0, 2450.0, 157.9, 2479.9, false),
            row("Transactions/s", true, 316.0, 20.5, 316.68, 20.16, true),
            row("Creation_mixed_with_transaction/s", true, 156.0, 10.1, 156.83, 9.99, false),
            row("Write_B/s", true, 39_000_000.0, 3_300_000.4, 39_126_271.2, 3_278_791.4, false),
            row("Total_duration", false, 219.0, 2500.0, 218.4, 2651.6, false),
        ]),
        tables: Vec::new(),
        command: String::new(),
        untried: Vec::new(),
        claims: vec![
            Claim {
                id: "postmark-vendors".into(),
                basis: Basis::Measured,
                role: Role::Fitted,
                because: Some("the three numbers of each drive were fitted on these".into()),
                text: "Transactions/s and Creation_alone/s of all 24 columns, within 10 %".into(),
                met: true,
                published: Figure::Text("24 of 24".into()),
                measured: Figure::Text("24 of 24".into()),
                limits: None,
            },
            Claim {
                id: "postmark-deletion".into(),
                basis: Basis::Measured,
                role: Role::Check,
                because: None,
                text: "the deletion phase, within 25 % or 3 s".into(),
                met: false,
                published: Figure::Numbers(vec![10.7, 97.6]),
                measured: Figure::Numbers(vec![10.1, 60.25]),
                limits: None,
            },
        ],
    }
}

/// Invents an experiment with a plot of each kind.
pub fn plotted() -> ExperimentResult {
    let series = |name: &str, points: Vec<Point>| Series { name: name.into(), points };
    let line = |name: &str, slope: f64| {
        let at = |percent: f64| Point::new(percent, 100.0 + slope * percent);
        series(name, [10.0, 50.0, 90.0, 100.0].map(at).to_vec())
    };
    let mut on = line("commit", 0.5);
    on.points.extend(Point::of_runs(95.0, &[171.5, 170.0, 173.9]));
    let bar = |policy: &str, seconds: f64| Point::new(policy.to_string(), seconds);
    let time = Axis::linear("execution_time_s", "execution time", "s");
    let policy = Axis::linear("policy", "policy", "");
    ExperimentResult {
        experiment: "plotted".into(),
        question: "When is TRIM worth its time?".into(),
        source: "a test".into(),
        finding: "When the device is full.".into(),
        rows: rows(&[
            Plot {
                title: "PostMark".into(),
                kind: PlotKind::Lines,
                x: Axis::linear("device_utilization_percent", "device utilization", "%"),
                y: time.clone(),
                series: vec![line("off", 1.0), on],
            },
            Plot {
                title: "The whole sequence".into(),
                kind: PlotKind::StackedBars,
                x: policy.clone(),
                y: time,
                series: vec![
                    series("60 %", vec![bar("off", 300.0), bar("set:40:90", 250.25)]),
                    series("40 %", vec![bar("off", 200.0), bar("set:40:90", 180.0)]),
                ],
            },
            Plot {
                title: "fsync after unlink".into(),
                kind: PlotKind::Lines,
                x: Axis::log("append_kib", "append size", "KiB"),
                y: Axis::log("fsync_ms", "fsync latency", "ms"),
                series: vec![series("lazy", vec![Point::new(64.0, 12.0), Point::new(65_536.0, 0.04)])],
            },
        ]),
        ..experiment()
    }
}
