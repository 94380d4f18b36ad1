use crate::bench::{
    Broken, Device, DeviceCounts, Did, Findings, Measured, Results, Reviewed, Settled, Steady, Test,
    TestResult,
};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};
use clap::Parser;
use trimwise::workload::latency::LatencySummary;
use trimwise_study::caller::Silent;

use super::*;
use crate::commands::{Command, CommandLine};
use trimwise_cli::arguments::OutputArguments;

fn arguments(line: &str) -> BenchArguments {
    let words = ["trimwise", "bench"].into_iter().chain(line.split_whitespace());
    match CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command {
        Command::Bench(arguments) => arguments,
        _ => panic!("not bench"),
    }
}

fn run_line(line: &str) -> Result<String, Failure> {
    run(&arguments(line), &Silent::default())
}

fn json_of(line: &str) -> (Result<String, Failure>, serde_json::Value) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let arguments = arguments(line);
    let output = OutputArguments {
        json: Some(path.clone()),
        report: Some(dir.path().join("report")),
        ..OutputArguments::default()
    };
    let tests: Vec<Test> = arguments.tests.iter().map(|test| test.parse().unwrap()).collect();
    let results = bench_results(&arguments.target, &tests);
    let report = arguments.request().report(results).unwrap();
    let result = deliver(&Destinations::check(&output).unwrap(), &BenchGate::default(), &report);
    let page = std::fs::read_to_string(dir.path().join("report/index.html")).unwrap();
    if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_BENCH") {
        std::fs::write(path, &page).unwrap();
    }
    assert!(page.contains("<figure class=\"chart\">") && !page.contains("<as they go>"));
    (result, serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
}

#[test]
fn the_json_says_what_was_asked_for_and_carries_units_in_its_keys() {
    let (text, json) = json_of("drive fill hdtach settling steady --content zeros --seed 9 --region 25:50");
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
    assert_eq!(result, Err(Failure::run("drive: torture: input/output error")));
    assert_eq!(json["partial"], true);
    assert_eq!(json["tests"].as_array().unwrap().len(), 1);
    assert_eq!(json["broken"]["did"]["bytes_written"], 4096);
}

#[test]
fn the_report_begins_with_a_verdict_and_numbers_only_what_it_shows() {
    let arguments = arguments("drive fill hdtach settling steady");
    let tests: Vec<Test> = arguments.tests.iter().map(|test| test.parse().unwrap()).collect();
    let mut results = bench_results(&arguments.target, &tests);
    let first = &mut results.tests[0];
    (first.plots, first.notes) = (Vec::new(), Vec::new());
    first.measured[0].throughput_min_mb_per_s = Some(99.96);
    first.measured[0].throughput_max_mb_per_s = Some(1234.5);
    let report = arguments.request().report(results).unwrap();
    let page = report::html(&report).unwrap();
    let verdict = page.find("<div class=\"verdict\">").unwrap();
    assert!(verdict < page.find("<table>").unwrap());
    insta::assert_snapshot!(table::verdict(&report));
    assert!(page.contains("<td>100-1,235</td>"), "{page}");
    assert!(page.contains("<h2>1. hdtach</h2>") && page.contains("<h2>3. steady</h2>"), "{page}");
}

#[test]
fn points_are_of_a_map() {
    let failure = run_line("sata-small fill --point 2").unwrap_err();
    assert!(
        matches!(&failure, Failure::Usage(m) if m.to_string().contains("--point needs --map")),
        "{failure:?}"
    );
}

#[test]
fn tests_run_on_a_model_and_give_the_same_bytes_again() {
    let text = || run_line("sata-small fill:25 randwrite:8:1 trim").unwrap();
    let first = text();
    assert!(first.contains("randwrite:8:1") && first.contains("TRIM"), "{first}");
    assert_eq!(first, text());
}

/// Makes a report of invented results.
pub fn report_of(line: &str) -> BenchReport {
    let arguments = arguments(line);
    let tests: Vec<Test> = arguments.tests.iter().map(|test| test.parse().unwrap()).collect();
    arguments.request().report(bench_results(&arguments.target, &tests)).unwrap()
}

/// Invents results of device tests, each kind with its own figures. The device fails during a torture test.
pub fn bench_results(device: &str, tests: &[Test]) -> Results {
    let latency =
        LatencySummary { count: 9, p50_ns: 8_000, p99_ns: 90_000, p999_ns: 400_000, max_ns: 2_000_000 };
    let measured = |what: &str, mb_per_s: f64| Measured {
        what: what.to_owned(),
        operations: 25_000,
        bytes: 102_400_000,
        elapsed_ns: 1_000_000_000,
        throughput_mb_per_s: Some(mb_per_s),
        throughput_min_mb_per_s: Some(mb_per_s * 0.5),
        throughput_max_mb_per_s: Some(mb_per_s * 1.25),
        iops: Some(mb_per_s * 244.140_625),
        latency: Some(latency),
        write_amplification: None,
    };
    let lines = |name: &str, x: Axis, points: &[(f64, f64)]| Plot {
        title: name.to_owned(),
        kind: PlotKind::Lines,
        x,
        y: Axis::linear("throughput_mb_per_s", "throughput", "MB/s"),
        series: vec![Series {
            name: "write".to_owned(),
            points: points.iter().map(|&(x, y)| Point::new(x, y)).collect(),
        }],
    };
    let over_time =
        || lines("Throughput over time", Axis::linear("time_s", "time", "s"), &[(0.1, 40.0), (0.2, 102.4)]);
    let settled = |range_percent, written_before_bytes, settled_after_ns| Settled {
        range_percent,
        written_before_bytes,
        trim_ns: 12_000_000,
        settled_after_ns,
        first_mb_per_s: 40.0,
        final_mb_per_s: 102.4,
    };
    let result = |test: &Test| {
        let findings = match test {
            Test::Settling { .. } => Findings::Settling(vec![
                settled(12.5, 0, Some(0)),
                settled(12.5, 1 << 30, Some(400_000_000)),
                settled(100.0, 0, None),
            ]),
            Test::Steady(_) => Findings::Steady(Steady {
                reached: true,
                rounds: 6,
                round_write_amplification: Some(vec![2.0, 4.0, 5.0, 5.2, 5.2, 5.1]),
                round_iops: vec![30_000.0, 26_000.0, 25_400.0, 25_100.0, 24_900.0, 25_000.0],
                iops: 25_280.0,
                excursion_percent: 4.35,
                slope_percent: 3.48,
            }),
            Test::Reviewers(_) => Findings::Reviewers(Reviewed {
                fill_percent: 80.0,
                trimmed: "free".to_owned(),
                rest_s: 1800.0,
                dirty_over_clean: 0.295,
                after_trim_over_clean: Some(0.41),
                after_rest_over_clean: 0.98,
                after_erase_over_clean: None,
            }),
            _ => Findings::None,
        };
        let by_size = Axis::log("transfer_kib", "transfer size", "KiB");
        TestResult {
            test: test.to_string(),
            elapsed_ns: 1_100_000_000,
            did: Did { bytes_written: 102_400_000, ..Did::default() },
            measured: match test {
                Test::Settling { .. } => vec![],
                Test::Reviewers(_) => [("clean", 102.4, 1.0), ("dirty", 30.2, 3.5)]
                    .map(|(what, rate, wa)| Measured {
                        write_amplification: Some(wa),
                        ..measured(what, rate)
                    })
                    .to_vec(),
                Test::Steady(_) => {
                    vec![Measured { write_amplification: Some(5.1), ..measured("last rounds", 102.4) }]
                }
                Test::HdTach { .. } | Test::Atto => vec![measured("read", 204.8), measured("write", 102.4)],
                _ => vec![measured("write", 102.4)],
            },
            findings,
            plots: match test {
                Test::Atto => {
                    vec![lines("Throughput by size", by_size, &[(0.5, 4.0), (1.0, 8.0), (2.0, 16.0)])]
                }
                _ => vec![over_time()],
            },
            notes: match test {
                Test::HdTach { .. } => vec!["its own writes tidy up the drive <as they go>".to_owned()],
                _ => vec![],
            },
            device: Some(DeviceCounts {
                write_amplification: Some(1.25),
                host_units_written: 25_000,
                nand_units_written: 31_250,
                gc_units: 6_250,
                block_erases: 61,
                trim_commands: 0,
                trimmed_units: 0,
                unmapped_reads_percent: None,
            }),
        }
    };
    let broken = tests.iter().position(|test| matches!(test, Test::Torture(_)));
    Results {
        device: Device {
            name: device.to_owned(),
            size_bytes: 8 << 30,
            sector_bytes: 512,
            trim: true,
            is_model: true,
        },
        notes: vec![],
        tests: tests[..broken.unwrap_or(tests.len())].iter().map(result).collect(),
        broken: broken.map(|at| Broken {
            test: tests[at].to_string(),
            why: "input/output error".to_owned(),
            interrupted: false,
            did: Did { bytes_written: 4096, ..Did::default() },
        }),
    }
}
