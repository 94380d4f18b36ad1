//! Invented cells for tests: plausible, deterministic and quick.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use trimwise::compare::ledger::{CellLedger, compare_with_off};
use trimwise::compare::result::{DeviceFigures, PostmarkFigures, QUANTILES, TimelineSample, WorkloadFigures};
use trimwise::policy::Ledger;
use trimwise::units::SimDuration;
use trimwise::workload::latency::{LatencySummary, Operation};
use trimwise_lab::bench::{
    Broken as BrokenTest, Device, DeviceCounts, Did, Findings, Measured, Settled, Steady, TestResult,
};
use trimwise_lab::crash::{Broken, CUTS_PER_RUN, CrashReport, Survival, Violation};
use trimwise_lab::experiment::result::{Basis, Claim, ExperimentRows, Figure, Role, VendorRow};
use trimwise_lab::plot::{Axis, Plot, PlotKind, Point, Series};

use super::*;

/// Invents results of device tests: each kind with its extra figures. A torture breaks the device.
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
                round_iops: vec![30_000.0, 26_000.0, 25_400.0, 25_100.0, 24_900.0, 25_000.0],
                iops: 25_280.0,
                excursion_percent: 4.35,
                slope_percent: 3.48,
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
                Test::HdTach { .. } => vec!["its own writes put the drive in order <as they go>".to_owned()],
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
        broken: broken.map(|at| BrokenTest {
            test: tests[at].to_string(),
            why: "input/output error".to_owned(),
            interrupted: false,
            did: Did { bytes_written: 4096, ..Did::default() },
        }),
    }
}

/// Models that fabricate their cells.
#[derive(Clone, Copy, Debug)]
pub struct Fabricated {
    /// Whether repetitions differ.
    pub noisy: bool,
}

/// A cell as the model would make one.
pub fn cell(device: &str, policy: &str, rep: u32, seconds: f64) -> Cell {
    let ns = |s: f64| (s * 1e9) as u64;
    let (stale, wa, trims, erases) = match policy {
        "off" => (900_000, 2.4, 0, 14_200),
        "commit" => (1_200, 1.35, 181_234, 8_100),
        _ => (0, 1.31, 0, 7_950),
    };
    let trim_ns = if policy == "commit" { ns(seconds * 0.3) } else { 0 };
    let mut latency = BTreeMap::new();
    let mut latency_quantiles_ns = BTreeMap::new();
    for (i, operation) in Operation::ALL.into_iter().enumerate().take(4) {
        let base = 20_000.0 * (i + 1) as f64 * seconds;
        let quantiles: Vec<u64> =
            QUANTILES.iter().enumerate().map(|(q, _)| (base * 2f64.powi(q as i32)) as u64).collect();
        let summary = LatencySummary {
            count: 50_000,
            p50_ns: quantiles[3],
            p99_ns: quantiles[7],
            p999_ns: quantiles[9],
            max_ns: quantiles[11],
        };
        latency.insert(operation.name().into(), summary);
        latency_quantiles_ns.insert(operation.name().into(), quantiles);
    }
    let timeline = (0..=50u64)
        .map(|i| TimelineSample {
            at_ns: ns(seconds) * i / 50,
            stale_units: stale * i / 50,
            host_units_written: 42_000 * i,
            nand_units_written: (42_000.0 * wa) as u64 * i,
        })
        .collect();
    let busy = [
        ("link", 0.2),
        ("host_writes", 0.45),
        ("host_reads", 0.08),
        ("gc", 0.2 * (wa - 1.0)),
        ("erase", 0.05),
        ("flush", 0.02),
    ];
    let mut busy_ns: BTreeMap<std::borrow::Cow<'static, str>, u64> =
        busy.into_iter().map(|(cause, share)| (cause.into(), ns(seconds * share))).collect();
    busy_ns.insert("trim".into(), trim_ns);
    Cell {
        device: device.into(),
        policy: policy.into(),
        target: "model".into(),
        judged: None,
        postmark_report: String::new(),
        rep,
        duration_ns: ns(seconds),
        workload: WorkloadFigures::Postmark(PostmarkFigures {
            total_s: seconds,
            transactions_s: seconds * 0.62,
            creation_alone_s: seconds * 0.3,
            deletion_alone_s: seconds * 0.08,
            created: 74_761,
            creation_alone: 50_000,
            created_mixed: 24_761,
            read: 24_974,
            appended: 25_025,
            deleted: 74_761,
            deletion_alone: 49_522,
            deleted_mixed: 25_239,
            bytes_read: 2_753_016_550,
            bytes_written: 8_615_456_523,
            out_of_files: false,
            transactions_per_s: 50_000.0 / (seconds * 0.62),
            creation_alone_per_s: 50_000.0 / (seconds * 0.3),
            deletion_alone_per_s: 49_522.0 / (seconds * 0.08),
        }),
        ledger: Some(ledger(policy, trim_ns, ns(seconds))),
        device_stats: Some(DeviceFigures {
            host_units_written: 2_103_000,
            nand_units_written: (2_103_000.0 * wa) as u64,
            write_amplification: wa,
            trim_commands: trims,
            trim_ranges: trims,
            trimmed_units: trims * 11,
            erases,
            erase_count_min: 0,
            erase_count_mean: 1.0,
            erase_count_max: 2,
            gc_units_copied: (2_103_000.0 * (wa - 1.0)) as u64,
            folded_units: 0,
            map_units_written: 0,
            map_lookups_missed: 0,
            stale_units_max: Some(stale),
            stale_units_mean: Some(stale as f64 / 2.0),
            stale_units_end: Some(stale / 2),
            busy_ns,
            timeline,
        }),
        latency,
        latency_quantiles_ns,
    }
}

/// Where freed units would go under a policy.
fn ledger(policy: &str, trim_ns: u64, passed_ns: u64) -> CellLedger {
    let freed = 2_000_000;
    let units = match policy {
        "off" => Ledger { freed, dropped: freed, ..Ledger::default() },
        "commit" => {
            Ledger { freed, issued: freed - 1_234, pending: 1_000, in_tokens: 234, ..Ledger::default() }
        }
        "lazy+reuse" => Ledger { freed, issued: freed / 4, reused: freed / 4 * 3, ..Ledger::default() },
        _ => Ledger { freed, issued: freed, ..Ledger::default() },
    };
    CellLedger::new(units, trim_ns, SimDuration::from_nanos(passed_ns))
}

/// Where a real directory would lie.
pub fn mounted() -> Mounted {
    Mounted { point: Some("/mnt".into()), file_system: Some("ext4".into()), policy: "discard".into() }
}

/// A comparison of `off`, `commit` and `ideal` on each device.
pub fn cells(devices: &[&str], reps: u32, noisy: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (d, device) in devices.iter().enumerate() {
        for (policy, seconds) in [("off", 182.4), ("commit", 212.1 - 60.0 * d as f64), ("ideal", 120.0)] {
            cells.extend((0..reps).map(|rep| cell(device, policy, rep, seconds * spread(rep, noisy))));
        }
    }
    compare_with_off(&mut cells);
    cells
}

fn spread(rep: u32, noisy: bool) -> f64 {
    if noisy { 1.0 + 0.004 * f64::from(rep * 7 % 5) } else { 1.0 }
}

/// Two rows and two claims of an experiment.
pub fn experiment() -> ExperimentResult {
    let row = |metric: &str, buffering, n, d, pn, pd, fitted| VendorRow {
        device: "vendor2".into(),
        postmark_buffering: buffering,
        metric: metric.into(),
        nodiscard: n,
        discard: d,
        published_nodiscard: pn,
        published_discard: pd,
        fitted,
    };
    ExperimentResult {
        experiment: "postmark-vendors".into(),
        question: "What does -o discard cost PostMark on six vendors' SSDs?".into(),
        source: "L. Czerner, 2010".into(),
        finding: "It depends on the device: from nothing to thirteen times the time. Checks met 0 of 1; fitted 1 of 1. \
                  Not met: postmark-deletion; the experiment's README says why."
            .into(),
        trimwise: "0.0.0-test".into(),
        seed: 1,
        reps: 10,
        rows: ExperimentRows::Vendors(vec![
            row("Total_duration", true, 221.0, 2600.0, 220.2, 2628.5, false),
            row("Duration_of_transactions", true, 158.0, 2450.0, 157.9, 2479.9, false),
            row("Transactions/s", true, 316.0, 20.5, 316.68, 20.16, true),
            row("Creation_mixed_with_transaction/s", true, 156.0, 10.1, 156.83, 9.99, false),
            row("Write_B/s", true, 39_000_000.0, 3_300_000.4, 39_126_271.2, 3_278_791.4, false),
            row("Total_duration", false, 219.0, 2500.0, 218.4, 2651.6, false),
        ]),
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
            },
        ],
    }
}

/// An experiment with a figure of each kind.
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
        rows: ExperimentRows::Plots(vec![
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

impl Models for Fabricated {
    type Device = String;
    type Policy = String;
    type Workload = ();

    fn device(&self, argument: &str) -> Result<(String, String), Failure> {
        let name = argument.trim_end_matches(".toml").to_string(); // as if the file had the name inside
        Ok((name.clone(), name))
    }

    fn policy(&self, argument: &str) -> Result<(String, String), Failure> {
        Ok((argument.to_string(), argument.to_string()))
    }

    fn workload(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn is_postmark(&self, (): &()) -> bool {
        true
    }

    fn check_policy(&self, device: &String, policy: &String) -> Result<(), Failure> {
        let takes = device != "no-trim" || policy == "off";
        if takes { Ok(()) } else { Err(Failure::usage(format!("{device} takes no TRIM"))) }
    }

    fn check_room(&self, device: &String, (): &(), _: u8) -> Result<(), Failure> {
        if device == "too-small" { Err(Failure::usage("too small")) } else { Ok(()) }
    }

    fn memory_of_run(&self, _: &String) -> Bytes {
        Bytes::mib(1)
    }

    fn run_model(&self, run: &ModelRun<Self>, report: Report) -> Result<Cell, Failure> {
        report(1, 2);
        if run.policy == "fails" {
            return Err(Failure::run("the file system is full"));
        }
        let seconds = 100.0 * if run.policy == "off" { 2.0 } else { 1.0 };
        let mut cell = cell(run.device, run.policy, run.rep, seconds * spread(run.rep, self.noisy));
        if let WorkloadFigures::Postmark(figures) = &mut cell.workload {
            figures.created = run.seed;
        }
        Ok(cell)
    }

    /// All but 4.4 are built.
    fn kernel(&self, target: &KernelTarget) -> Result<KernelImage, Failure> {
        if target.version == "4.4" {
            return Err(Failure::usage("to build it: trimwise kernel build --version 4.4"));
        }
        Ok(KernelImage {
            version: target.version.clone(),
            release: format!("{}.7", target.version),
            source: String::new(),
            compiler: String::new(),
            recipe: "f00d".to_owned(),
            directory: PathBuf::new(),
            linux: PathBuf::new(),
            preload: PathBuf::new(),
            size_bytes: 0,
            built: SystemTime::UNIX_EPOCH,
        })
    }

    fn check_kernel_run(&self, _: &KernelRun<Self>) -> Result<(), Failure> {
        Ok(())
    }

    /// All policies take the same time; on the device `contrary` all but `off` take longer.
    fn run_kernel(&self, run: &KernelRun<Self>) -> Result<Cell, Failure> {
        let is_slower = run.device == "contrary" && run.policy != KernelPolicy::Off;
        let seconds = if is_slower { 12.0 } else { 10.0 };
        let mut cell = cell(run.device, &run.policy.to_string(), run.rep, seconds);
        cell.target = format!("kernel:{}", run.target);
        cell.ledger = None;
        if let Some(device) = &mut cell.device_stats {
            (device.stale_units_max, device.stale_units_mean) = (None, None);
            device.timeline.clear();
        }
        Ok(cell)
    }

    fn kernel_memory(&self, _: &KernelRun<Self>) -> Bytes {
        Bytes::mib(1)
    }

    fn directory(&self, _: &Path, (): &(), _: bool) -> Result<Mounted, Failure> {
        Ok(mounted())
    }

    fn run_directory(
        &self,
        directory: &Path,
        policy: &str,
        (): &(),
        rep: u32,
        stop: &Arc<AtomicBool>,
        _: Report,
    ) -> Result<Cell, Failure> {
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted);
        }
        let mut cell = cell(&directory.display().to_string(), policy, rep, 10.0 + f64::from(rep));
        cell.target = format!("dir:{}", directory.display());
        cell.device_stats = None;
        cell.ledger = None;
        Ok(cell)
    }

    fn crash_policies(&self) -> Vec<String> {
        vec!["off".to_string(), "commit".to_string()]
    }

    /// The policy `commit` loses a page in every second run.
    fn crash_run(&self, policy: &String, _seed: u64, cuts: u64, run: u64) -> Result<CrashReport, Failure> {
        let cuts = (cuts - run * CUTS_PER_RUN).min(CUTS_PER_RUN);
        let mut report =
            CrashReport { runs: 1, cuts, files_checked: 3 * cuts, trims: 7, ..CrashReport::default() };
        if policy == "commit" && run % 2 == 1 {
            report.violations = 1;
            report.first_violation = Some(12);
            report.details.push(Violation {
                run,
                cut: 11,
                events: 345,
                not_durable: 2,
                survived: Survival::OnlyTrims.to_string(),
                machine: "a small machine".to_string(),
                broken: vec![Broken::Trimmed { path: "d1/f4".to_string(), page: 3, block: 4711 }],
                broken_count: 2,
                history: vec!["written: page 3".to_string(), "trimmed".to_string()],
            });
        }
        Ok(report)
    }

    fn bench_model(
        &self,
        device: &String,
        tests: &[Test],
        _settings: &Settings,
        _stop: &Arc<AtomicBool>,
        on_progress: BenchProgress,
    ) -> Result<Results, Failure> {
        on_progress(0, 500);
        Ok(bench_results(device, tests))
    }

    fn bench_real(
        &self,
        target: &RealTarget,
        tests: &[Test],
        _settings: &Settings,
        _stop: &Arc<AtomicBool>,
        _on_progress: BenchProgress,
    ) -> Result<Results, Failure> {
        let mut results = bench_results(&target.to_string(), tests);
        results.device.is_model = false;
        results.notes.push("what is measured is the page cache".to_owned());
        Ok(results)
    }

    fn experiments(&self) -> Vec<Listed> {
        vec![Listed { name: "postmark-vendors".into(), summary: experiment().question, boots: false }]
    }

    fn check_reproduction(&self, _: &Reproduction) -> Result<(), Failure> {
        Ok(())
    }

    fn reproduce(&self, _: &Reproduction, _: Report) -> Result<ExperimentResult, Failure> {
        Ok(experiment())
    }
}
