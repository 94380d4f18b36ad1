//! `trimwise bench`: device tests, one after another, on a model or on a real device.

pub mod arguments;
pub mod report;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise_lab::bench::{self, Results, Settings, Test};

use crate::arguments::OutputArguments;
use crate::command_line::CommandText;
use crate::commands::bench::arguments::BenchArguments;
use crate::failure::Failure;
use crate::interrupt::OnInterrupt;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use crate::runner::{BenchProgress, Models, RealTarget, devices};

/// What `--json` writes; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// What was asked for.
    pub settings: BenchSettings,
    /// Whether tests are missing, because the device failed or the user stopped them.
    pub partial: bool,
    /// The results.
    #[serde(flatten)]
    pub results: Results,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct BenchSettings {
    /// The target, as given.
    pub target: String,
    /// The tests, as they are written in full.
    pub tests: Vec<String>,
    /// What was written.
    pub content: &'static str,
    /// Where random places came from.
    pub seed: u64,
    /// The part of the device that was tested, in percent of it.
    pub region_start_percent: f64,
    /// How long that part is.
    pub region_length_percent: f64,
    /// The command that repeats this.
    pub command: String,
}

/// Runs the command and returns what to print. `on_signal` installs the handler for Ctrl-C and returns the flag that it
/// raises.
pub fn run<M: Models>(
    models: &M,
    arguments: &BenchArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let real = RealTarget::parse(&arguments.target, arguments.size, arguments.destroy.as_ref())?;
    let tests: Result<Vec<Test>, _> = arguments.tests.iter().map(|t| t.parse::<Test>()).collect();
    let tests = tests.map_err(Failure::usage)?;
    let destinations = Destinations::check(&OutputArguments {
        jobs: None,
        json: arguments.json.clone(),
        report: arguments.report.clone(),
        force: arguments.force,
    })?;
    let settings = Settings {
        content: arguments.content,
        seed: arguments.seed,
        region: arguments.region.unwrap_or(bench::Part::ALL),
    };
    let progress = Progress::of(tests.len(), "tests");
    let on_progress: BenchProgress = {
        let progress = Arc::clone(&progress);
        Arc::new(move |test, thousandths| progress.update(test, thousandths, 1000))
    };
    let results = match real {
        None => {
            only_for_real_targets(arguments)?;
            let (_, device) = models.device(&arguments.target).map_err(devices::as_argument)?;
            let stop = on_signal(OnInterrupt::StopAndShow)?;
            models.bench_model(&device, &tests, &settings, &stop, on_progress)
        }
        Some(real) => {
            let stop = on_signal(OnInterrupt::StopAndShow)?;
            models.bench_real(&real, &tests, &settings, &stop, on_progress)
        }
    };
    progress.finish();
    let report = BenchReport::new(arguments, &tests, &settings, results?);
    let html = || crate::commands::bench::report::html(&report);
    let text = destinations.deliver_with_report(&report, html, || table::render(&report))?;
    match &report.results.broken {
        None => Ok(text),
        // Report what was done even if the run broke off.
        Some(broken) if broken.interrupted => output::print(&text).and(Err(Failure::Interrupted)),
        Some(broken) => {
            output::print(&text)?;
            Err(Failure::run(format!("{}: {}: {}", report.results.device.name, broken.test, broken.why)))
        }
    }
}

/// Rejects options that mean nothing for a model.
fn only_for_real_targets(arguments: &BenchArguments) -> Result<(), Failure> {
    let given = [("--size", arguments.size.is_some()), ("--destroy", arguments.destroy.is_some())];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option}: {} is a model; this option is for file:PATH and dev:PATH only",
            arguments.target
        ))),
        None => Ok(()),
    }
}

impl BenchReport {
    /// Combines what `arguments` asked for with the results.
    pub fn new(arguments: &BenchArguments, tests: &[Test], settings: &Settings, results: Results) -> Self {
        let mut command = CommandText::new("bench");
        command.argument(&arguments.target);
        tests.iter().for_each(|test| command.argument(test));
        command.option("--content", settings.content);
        command.option("--seed", settings.seed);
        if let Some(region) = arguments.region {
            command.option("--region", region);
        }
        if let Some(size) = arguments.size {
            command.option("--size", size.0);
        }
        if let Some(word) = &arguments.destroy {
            command.option("--destroy", word);
        }
        Self {
            trimwise: trimwise::VERSION,
            settings: BenchSettings {
                target: arguments.target.clone(),
                tests: tests.iter().map(Test::to_string).collect(),
                content: settings.content.name(),
                seed: settings.seed,
                region_start_percent: settings.region.start.value(),
                region_length_percent: settings.region.length.value(),
                command: command.into_text(),
            },
            partial: results.broken.is_some(),
            results,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Command, CommandLine};
    use crate::runner::Linked;
    use crate::runner::fabricated::Fabricated;

    fn arguments(line: &str) -> BenchArguments {
        let words = ["trimwise", "bench"].into_iter().chain(line.split_whitespace());
        match CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command {
            Command::Bench(arguments) => arguments,
            _ => panic!("not bench"),
        }
    }

    fn flag(_: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        Ok(Arc::default())
    }

    fn json_of(line: &str) -> (Result<String, Failure>, serde_json::Value) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let mut arguments = arguments(line);
        arguments.json = Some(path.clone());
        arguments.report = Some(dir.path().join("report"));
        let result = run(&Fabricated { noisy: false }, &arguments, flag);
        let page = std::fs::read_to_string(dir.path().join("report/index.html")).unwrap();
        if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_BENCH") {
            std::fs::write(path, &page).unwrap();
        }
        assert!(page.contains("<svg") && !page.contains("<as they go>"));
        (result, serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    #[test]
    fn the_json_says_what_was_asked_for_and_carries_units_in_its_keys() {
        let (text, json) =
            json_of("drive fill hdtach settling steady --content zeros --seed 9 --region 25:50");
        assert!(text.unwrap().contains("Report: "));
        assert_eq!(
            json["settings"]["command"],
            "trimwise bench drive fill hdtach settling steady --content zeros --seed 9 --region 25:50"
        );
        assert_eq!(json["settings"]["region_start_percent"], 25.0);
        assert_eq!((&json["partial"], &json["broken"]), (&false.into(), &serde_json::Value::Null));
        let test = &json["tests"][0];
        assert_eq!(test["measured"][0]["throughput_mb_per_s"], 102.4);
        assert_eq!(test["measured"][0]["latency"]["p999_ns"], 400_000);
        assert_eq!(test["did"]["bytes_written"], 102_400_000);
        assert_eq!(test["plots"][0]["series"][0]["points"][0]["time_s"], 0.1);
        assert_eq!(json["tests"][2]["findings"]["settling"][1]["settled_after_ns"], 400_000_000);
        assert_eq!(json["tests"][3]["findings"]["steady"]["reached"], true);
    }

    #[test]
    fn a_device_that_fails_leaves_a_report_that_says_it_is_partial() {
        let (result, json) = json_of("drive fill torture hdtach");
        assert_eq!(result, Err(Failure::Run("drive: torture: input/output error".to_string())));
        assert_eq!(json["partial"], true);
        assert_eq!(json["tests"].as_array().unwrap().len(), 1);
        assert_eq!(json["broken"]["did"]["bytes_written"], 4096);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (line, words) in [
            ("sata-small foo", "there is no test 'foo'; expected one of fill, seqwrite"),
            ("sata-small fill:0", "column 6: '0'; expected percent"),
            ("sata-smal fill", "sata-smal: neither a built-in name"),
            ("file: fill", "'file:' is not a real target; expected file:PATH"),
            ("dev:/dev/null fill --size 1GiB", "--size: dev:/dev/null has its own size"),
            ("dev:/dev/null fill", "/dev/null"),
            ("sata-small fill --size 1GiB", "--size: sata-small is a model"),
            ("sata-small fill --destroy x", "--destroy: sata-small is a model"),
            ("sata-small fill seqwrite:9GiB", "expected at most 8 GiB"),
        ] {
            let failure = run(&Linked, &arguments(line), flag).unwrap_err();
            assert!(matches!(&failure, Failure::Usage(m) if m.contains(words)), "{line}: {failure:?}");
        }
    }

    #[test]
    fn a_file_that_holds_something_is_overwritten_by_its_name_only_and_a_new_one_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (full, new) = (dir.path().join("full"), dir.path().join("new"));
        std::fs::write(&full, vec![7; 32 << 20]).unwrap();
        let failure = run(&Linked, &arguments(&format!("file:{} fill", full.display())), flag).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(m) if m.contains("--destroy")), "{failure:?}");
        assert_eq!(std::fs::read(&full).unwrap(), vec![7; 32 << 20], "nothing was written");
        let line = format!("file:{} fill:50 randwrite:4:1 seqread --size 32MiB", new.display());
        let text = run(&Linked, &arguments(&line), flag).unwrap();
        assert!(text.contains("randwrite:4:1") && text.contains("a real device or file"), "{text}");
        let line = format!("file:{0} seqwrite --destroy {0}", full.display());
        run(&Linked, &arguments(&line), flag).unwrap();
        assert_ne!(std::fs::read(&full).unwrap(), vec![7; 32 << 20]);
        assert!(!new.exists());
    }

    #[test]
    fn tests_run_on_a_model_and_give_the_same_bytes_again() {
        let text = || run(&Linked, &arguments("sata-small fill:25 randwrite:8:1 trim"), flag).unwrap();
        let first = text();
        assert!(first.contains("randwrite:8:1") && first.contains("TRIM"), "{first}");
        assert_eq!(first, text());
    }
}
