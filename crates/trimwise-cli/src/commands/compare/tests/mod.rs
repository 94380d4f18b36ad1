pub mod cells;
mod report;
pub mod table;
mod traces;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use serde_json::{Value, json};

use trimwise::compare::result::{Cell, Target};
use trimwise::policy::PolicyId;
use trimwise_linux::real_kernel::RealKernel;
use trimwise_study::caller::{OnInterrupt, Progress, Silent};
use trimwise_study::compare::{Linux, check, finish, on_model};

use super::*;
use crate::commands::{Command, CommandLine};
use cells::{cell, spread};
use table::comparison;

fn arguments(line: &str) -> CompareArguments {
    let words = ["trimwise", "compare"].into_iter().chain(line.split_whitespace());
    match CommandLine::try_parse_from(words).unwrap().command {
        Command::Compare(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

/// A caller that is interrupted at once, in this way.
struct Stopping(OnInterrupt);

impl Caller for Stopping {
    fn progress(&self, runs: usize, what: &str) -> Arc<dyn Progress> {
        Silent::default().progress(runs, what)
    }

    fn stop(&self, how: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        assert_eq!(how, self.0);
        Ok(Arc::new(AtomicBool::new(true)))
    }

    fn note(&self, _: &str) {}
}

/// A caller that fails the test if any run starts.
struct Unreached;

impl Caller for Unreached {
    fn progress(&self, _: usize, _: &str) -> Arc<dyn Progress> {
        panic!("it began")
    }

    fn stop(&self, _: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        panic!("it began")
    }

    fn note(&self, _: &str) {}
}

/// A cell of the model: 200 s under `off`, 100 s under any other policy.
fn modelled(device: &str, policy: &str, rep: u32, noisy: bool) -> Cell {
    cell(device, policy, rep, if policy == "off" { 200.0 } else { 100.0 } * spread(rep, noisy))
}

/// A cell of a kernel: all policies take the same time, but on the device `contrary` all others take longer than `off`.
fn on_kernel(target: &str, device: &str, policy: &str, rep: u32) -> Cell {
    let is_slower = device == "contrary" && policy != "off";
    let mut cell = cell(device, policy, rep, if is_slower { 12.0 } else { 10.0 });
    cell.target = target.parse().unwrap();
    cell.ledger = None;
    if let Some(device) = &mut cell.device_stats {
        (device.stale_units_max, device.stale_units_mean) = (None, None);
        device.timeline.clear();
    }
    cell
}

fn all(devices: &[&str], policies: &[&str], reps: u32, of: impl Fn(&str, &str, u32) -> Cell) -> Vec<Cell> {
    let (of, mut cells) = (&of, Vec::new());
    for device in devices {
        cells.extend(policies.iter().flat_map(|policy| (0..reps).map(move |rep| of(device, policy, rep))));
    }
    cells
}

/// Plans a comparison in the model and fills it with invented cells.
fn made(line: &str) -> Comparison {
    let arguments = arguments(line);
    let plan = on_model::Plan::of(&arguments.request()).unwrap();
    let devices: Vec<&str> = plan.devices.iter().map(|(name, _)| name.as_str()).collect();
    let policies: Vec<String> = plan.policies.iter().map(ToString::to_string).collect();
    let policies: Vec<&str> = policies.iter().map(String::as_str).collect();
    let cells =
        all(&devices, &policies, arguments.reps, |device, policy, rep| modelled(device, policy, rep, false));
    finish(&arguments.request(), plan.settings, None, (cells, None)).unwrap()
}

fn json_of(comparison: &Comparison) -> Value {
    serde_json::to_value(comparison).unwrap()
}

/// Each device once on each thin storage, with a table of what is held, in the JSON in bytes.
#[test]
fn thin_storage_has_a_table_of_what_is_held() {
    use trimwise::compare::result::ThinFigures;

    let mut comparison =
        made("--device sata-small nvme-generic:8GiB --thin 64KiB,qcow2:2MiB --policy off --reps 1");
    let names: Vec<&str> = comparison.cells.iter().map(|cell| cell.device.as_str()).collect();
    assert_eq!(
        names,
        [
            "sata-small+thin:64KiB",
            "sata-small+qcow2:2MiB",
            "nvme-generic:8GiB+thin:64KiB",
            "nvme-generic:8GiB+qcow2:2MiB"
        ]
    );
    assert!(comparison.settings.command.contains("--device sata-small+qcow2:2MiB"));
    assert!(
        !super::table::render(&comparison, false).contains("Thin storage"),
        "the invented runs have none"
    );
    let mib = |mib: u64| mib << 20;
    comparison.cells.iter_mut().flat_map(|cell| &mut cell.device_stats).for_each(|device| {
        device.thin = Some(ThinFigures {
            chunk_bytes: 65_536,
            used_bytes_end: mib(10),
            held_bytes_mean: mib(11) as f64,
            held_bytes_max: mib(12),
            held_bytes_end: mib(13),
            excess_bytes_mean: mib(14) as f64,
            excess_bytes_max: mib(15),
            excess_bytes_end: mib(16),
        });
    });
    let text = super::table::render(&comparison, false);
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("Thin storage")).collect();
    assert_eq!(rows[2], "policy    used    held  beyond: mean     max  at the end");
    assert_eq!(rows[4], "off     10 MiB  13 MiB        14 MiB  15 MiB      16 MiB");
    assert!(super::report::html(&comparison).unwrap().contains("<td>14 MiB</td>"));
    let thin = &json_of(&comparison)["cells"][0]["device_stats"]["thin"];
    assert_eq!((&thin["chunk_bytes"], &thin["excess_bytes_end"]), (&65_536.into(), &mib(16).into()));
}

/// What waits to be deleted has a table, of the policies with a limit only.
#[test]
fn limited_deletions_have_a_table_of_what_waits() {
    use trimwise::workload::limited::DeletionFigures;

    let mut comparison = made("--policy off commit+rocksdb:64MiB/s --reps 1");
    assert!(
        !super::table::render(&comparison, false).contains("Limited deletions"),
        "the invented runs have none"
    );
    let mib = |mib: u64| mib << 20;
    comparison.cells[1].deletions = Some(DeletionFigures {
        delayed_bytes: mib(10),
        at_once_bytes: mib(11),
        waiting_bytes_max: mib(12),
        waiting_bytes_end: mib(13),
        longest_ns: 14_000_000,
    });
    let text = super::table::render(&comparison, false);
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("Limited deletions")).collect();
    assert_eq!(rows[2], "policy                  delayed  at once  waiting: max  at the end  longest");
    assert_eq!(rows[4], "commit+rocksdb:64MiB/s   10 MiB   11 MiB        12 MiB      13 MiB    14 ms");
    assert_eq!(rows[5], "", "there is no row for off");
    assert!(super::report::html(&comparison).unwrap().contains("<td>14 ms</td>"));
    let cells = &json_of(&comparison)["cells"];
    assert_eq!(cells[1]["deletions"]["waiting_bytes_end"], mib(13));
    assert!(cells[0].get("deletions").is_none());
}

#[test]
fn the_json_has_the_keys_that_others_read_in_their_order() {
    let json = json_of(&made("--policy off commit ideal --reps 2"));
    assert!(json["cells"][0]["device_stats"].get("thin").is_none(), "only with thin storage");
    let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&json), "trimwise seed settings partial cells summary verdict conclusion check");
    assert!(json["check"].is_null());
    assert_eq!(keys(&json["verdict"]), "rule policy speedup low high text why per_device");
    let cell = &json["cells"][0];
    assert_eq!(
        keys(cell),
        "device policy target rep duration_ns postmark device_stats ledger latency latency_quantiles_ns"
    );
    for key in "total_s transactions_s created creation_alone created_mixed read appended deleted \
                deletion_alone deleted_mixed bytes_read bytes_written"
        .split_whitespace()
    {
        assert!(cell["postmark"][key].is_number(), "{key}");
    }
    for key in "host_units_written nand_units_written write_amplification trim_commands trim_ranges \
                trimmed_units erases stale_units_max stale_units_mean"
        .split_whitespace()
    {
        assert!(cell["device_stats"][key].is_number(), "{key}");
    }
    assert_eq!(
        keys(&cell["ledger"]),
        "freed_units issued_units reused_units dropped_units pending_units in_flight_units trim_busy_ns \
         trim_busy_percent gc_units_saved time_saved_ns"
    );
    let row = &json["summary"][1];
    assert_eq!(
        keys(row),
        "device policy means reps exact measure median_s low_s high_s vs_baseline_percent \
         vs_baseline_significant vs_ideal_percent vs_ideal_significant transactions_per_s write_amplification \
         erases trim_commands stale_units_max stale_units_end gc_busy_ns ledger"
    );
    assert_eq!(
        keys(&row["ledger"]),
        "freed_units issued_units reused_units dropped_units pending_units in_flight_units trim_busy_ns \
         trim_busy_percent gc_units_saved time_saved_s"
    );
    assert_eq!((&row["policy"], &row["measure"]), (&"commit".into(), &"total".into()));
    assert_eq!((&row["vs_baseline_percent"], &row["vs_ideal_percent"]), (&(-50.0).into(), &0.0.into()));
    assert_eq!(row["ledger"]["time_saved_s"], 100.0);
    assert!(json["summary"][2]["vs_ideal_percent"].is_null(), "the bound itself");
    // `off` copied 1.4 times what the host wrote, `commit` 0.35 times.
    let saved = json["cells"][2]["ledger"]["gc_units_saved"].as_i64().unwrap();
    assert!((saved - (2_103_000 * 105 / 100)).abs() <= 2, "{saved}");
    assert_eq!(json["cells"][2]["ledger"]["time_saved_ns"], 100_000_000_000u64);
    assert_eq!(keys(&cell["latency"]["unlink"]), "count p50_ns p99_ns p999_ns max_ns");
    assert_eq!(json["cells"].as_array().unwrap().len(), 3 * 2);
    assert_eq!(
        (&json["verdict"]["policy"], &json["conclusion"]["decision"]),
        (&"commit".into(), &"change".into())
    );
    assert_eq!(json["verdict"]["speedup"], 2.0);
}

#[test]
fn without_off_and_ideal_there_is_nothing_to_compare_with() {
    let json = json_of(&made("--policy commit lazy+reuse --reps 2"));
    for cell in json["cells"].as_array().unwrap() {
        assert!(cell["ledger"]["gc_units_saved"].is_null() && cell["ledger"]["time_saved_ns"].is_null());
        assert!(cell["ledger"]["freed_units"].is_number());
    }
    for row in json["summary"].as_array().unwrap() {
        assert!(row["vs_ideal_percent"].is_null() && row["ledger"]["time_saved_s"].is_null());
    }
}

#[test]
fn the_settings_name_the_host_and_never_the_jobs() {
    let json = json_of(&made("--linux 4.19.7 --memory 512 --utilization 70 --jobs 3"));
    let settings = &json["settings"];
    assert_eq!(settings["host_memory_bytes"], 512u64 << 20);
    assert_eq!(settings["linux"]["version"], "4.19.7");
    assert_eq!(settings["linux"]["stands_for"], "Linux 4.13 to 5.14");
    assert_eq!(settings["utilization_percent"], 70);
    assert!(!settings.to_string().contains("jobs"), "{settings}");
}

#[test]
fn several_devices_and_policies_may_follow_one_flag_or_each_its_own() {
    let json_of = |line: &str| json_of(&made(line)).to_string();
    let together = json_of("--device vendor1 vendor2 --policy off commit --reps 2");
    assert_eq!(together, json_of("--device vendor1 --device vendor2 --policy off --policy commit --reps 2"));
    assert!(together.contains("--device vendor1 --device vendor2 --policy off --policy commit"));
}

#[test]
fn the_command_makes_it_again_without_defaults_that_may_change() {
    let json = json_of(&made("--device vendor2 --jobs 3 --utilization 50"));
    assert_eq!(
        json["settings"]["command"],
        "trimwise compare --workload maildir:deliveries=10k --device vendor2 --policy off --policy commit --policy batch:1w \
         --policy trimwised --policy lazy+reuse --policy ideal --utilization 50 --days 7 --day server --reps 6 --seed 1"
    );
}

#[test]
fn a_real_directory_refuses_what_only_a_model_can_do() {
    for option in ["--policy off", "--device vendor1", "--utilization 50", "--seed 1", "--jobs 2"] {
        let line = format!("--target dir:/mnt/x {option}");
        let failure = run(&arguments(&line), &Silent::default()).unwrap_err();
        let name = option.split(' ').next().unwrap();
        assert!(matches!(&failure, Failure::Usage(m) if m.to_string().starts_with(name)), "{failure:?}");
    }
}

/// Makes a check of these policies from these cells of the kernel.
fn check_of(target: &str, policies: &[&str], cells: Vec<Cell>) -> check::Check {
    let is_there = |policy: &&&str| ["off", "commit"].contains(*policy) || policy.starts_with("batch");
    let left_out = policies.iter().filter(|policy| !is_there(policy));
    let (version, options) = target.split_once(":ext4").unwrap();
    let kernel = RealKernel {
        name: version.to_owned(),
        release: format!("{version}.7"),
        source: String::new(),
        patches: Vec::new(),
        recipe: "f00d".to_owned(),
        file_system: "ext4".to_owned(),
        mount_options: options.trim_start_matches(':').to_owned(),
        guest_program: "none".to_owned(),
    };
    check::Check {
        target: Target::Kernel(target.to_owned()),
        kernel: Some(kernel),
        cells,
        summary: Vec::new(),
        left_out: left_out
            .map(|policy| check::LeftOut { policy: (*policy).into(), reason: "not there".to_owned() })
            .collect(),
        compared: Vec::new(),
        contradictions: Vec::new(),
        not_run: None,
    }
}

#[test]
fn regression_a_check_that_ended_after_one_policy_claims_no_agreement() {
    let cell = |policy, rep| cell("vendor1", policy, rep, 9.0);
    let on_kernel = |policies: &[&'static str]| {
        let model = ["off", "commit"].iter().flat_map(|policy| [cell(policy, 0), cell(policy, 1)]).collect();
        let mut comparison = comparison(model);
        comparison.add_check(check_of(
            "6.1:ext4",
            &["off", "commit"],
            policies.iter().map(|policy| cell(policy, 0)).collect(),
        ));
        super::table::render(&comparison, true).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for partial in [&[][..], &["off"]] {
        let text = on_kernel(partial);
        assert!(text.contains("Nothing could be compared yet"), "{text}");
        assert!(!text.contains("do not contradict"), "{text}");
    }
    let text = on_kernel(&["off", "commit"]);
    assert!(text.contains("do not contradict each other by more than 3 %."), "{text}");
}

#[test]
fn a_recommended_policy_that_the_kernel_finds_slow_is_a_contradiction_however_little_the_model_sees() {
    // In the model `batch:30s` and `commit` take the same time, on the kernel 4 % more and 2 % less than `off`.
    let cells = |seconds: [f64; 3], target: &str| -> Vec<Cell> {
        ["off", "batch:30s", "commit"]
            .into_iter()
            .zip(seconds)
            .flat_map(|(policy, seconds)| (0..2).map(move |rep| (policy, rep, seconds)))
            .map(|(policy, rep, seconds)| Cell {
                target: target.parse().unwrap(),
                ..cell("vendor1", policy, rep, seconds)
            })
            .collect()
    };
    let mut comparison = comparison(cells([10.0, 9.0, 9.0], "model"));
    let recommended = comparison.verdict.policy.clone().unwrap();
    let others = if recommended == PolicyId::COMMIT { [10.0, 9.8, 10.4] } else { [10.0, 10.4, 9.8] };
    let check = check_of("6.1:ext4", &["off"], cells(others, "kernel:6.1:ext4"));
    comparison.add_check(check);
    let found = &comparison.check.as_ref().unwrap().contradictions;
    let policies: Vec<_> = found.iter().map(|c| (c.policy.clone(), c.against.clone())).collect();
    let fastest = if recommended == PolicyId::COMMIT { "batch:30s".into() } else { PolicyId::COMMIT };
    assert_eq!(policies, [(recommended.clone(), PolicyId::OFF), (recommended, fastest)]);
    assert!(found[1].text.starts_with("the recommended "), "{found:?}");
}

#[test]
fn days_refuse_what_is_not_spread_over_them() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("paced.fio");
    std::fs::write(&job, "[one]\nrw=randwrite\nsize=4m\nrate=1m\n").unwrap();
    let fio = format!("--days 7 --workload job:{}", job.display());
    for (line, words) in [
        (fio.as_str(), "its option `rate` sets its own pace"),
        ("--days 7 --workload append", "it times a single operation"),
        ("--days 7 --workload desktop:pause=5", "its option `pause`"),
        ("--days 7 --target dir:/mnt/x", "--days cannot be used with --target"),
        ("--days 7 --check kernel:6.1:ext4", "--check cannot be used with --days"),
        ("--workload lsm --policy off trimwised", "expected --days N"),
        ("--policy off dm-trim:ideal", "ideal is only a bound"),
        (
            "--policy off commit+rocksdb:64MiB/s --workload append",
            "--policy commit+rocksdb:64MiB/s cannot be limited with --workload append: it times the removal itself; \
             expected PostMark, an application or a fio job",
        ),
        ("--policy commit+rocksdb:0MiB/s", "rate '0MiB/s'; expected a whole number above 0"),
        ("--policy commit+ceph", "rocksdb, pebble, steps"),
        ("--days 7 --policy trimwised:lazy+pebble", "no stock host can follow lazy+pebble"),
        ("--policy dm-trim dm-trim:quiet", "given twice"),
        ("--policy dm-trim:quiet:5", "quiet time '5'"),
        ("--days 7 --policy trimwised:commit", "remounting"),
        ("--days 7 --policy trimwised trimwised:judicious", "given twice"),
        ("--days 7 --policy trimwised --device vertex-60gb@1.3", "does not support TRIM"),
    ] {
        let failure = run(&arguments(line), &Unreached).unwrap_err();
        assert!(
            matches!(&failure, Failure::Usage(m) if m.to_string().contains(words)),
            "{line}: {failure:?}"
        );
    }
    let plan = on_model::Plan::of(&arguments("--days 7 --day office").request()).unwrap();
    let names: Vec<String> = plan.policies.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["off", "commit", "batch:1w", "trimwised", "lazy+reuse", "ideal"]);
    assert!(plan.settings.command.contains("--policy trimwised"), "{}", plan.settings.command);
    assert!(plan.settings.command.contains("--days 7 --day office"), "{}", plan.settings.command);
}

/// When one run failed, the results of all others were lost.
#[test]
fn regression_what_is_finished_is_shown_and_saved_when_a_run_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = arguments("--policy off commit lazy --reps 2 --jobs 1");
    arguments.output.json = Some(dir.path().join("r.json"));
    arguments.output.report = Some(dir.path().join("report"));
    let destinations = Destinations::check(&arguments.output).unwrap();
    let full = Failure::run("the file system is full");
    let finished = |policies: &[&str]| {
        let cells =
            all(&["sata-small"], policies, 2, |device, policy, rep| modelled(device, policy, rep, false));
        let settings = on_model::Plan::of(&arguments.request()).unwrap().settings;
        finish(&arguments.request(), settings, None, (cells, Some(full.clone())))
    };
    let ended =
        deliver(&arguments, &destinations, &CompareGate::default(), finished(&["off", "commit"]).unwrap());
    assert_eq!(ended, Err(full.clone()));
    let json = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["schema"], &json["partial"]), (&1.into(), &true.into()));
    assert_eq!(json["conclusion"]["decision"], "cannot_tell");
    assert_eq!(json["cells"].as_array().unwrap().len(), 2 * 2);
    assert!(dir.path().join("report/index.html").exists());
    assert!(finished(&[]).is_err(), "there is nothing to show");
}

/// Runs small cells in the model.
#[test]
fn cells_come_by_device_then_policy_then_repetition_for_any_number_of_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let workload = "set number 50\nset transactions 200\nset size 1000 20000\nrun\n";
    std::fs::write(path("small.pmrc"), workload).unwrap();
    let profile =
        include_str!("../../../../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
    for name in ["a", "b"] {
        std::fs::write(path(name), profile.replace("\"sata-small\"", &format!("\"{name}\""))).unwrap();
    }
    let line = |options: &str| {
        let (workload, a, b) = (path("small.pmrc"), path("a"), path("b"));
        format!("--workload {workload} --device {b} {a} --utilization 10 --reps 2 {options}")
    };
    let cells = |options: &str| {
        let request = arguments(&line(options)).request();
        let comparison = compare::run(&request, &Silent::default(), &Beside).unwrap();
        assert_eq!(comparison.ended_by, None);
        json_of(&comparison)["cells"].clone()
    };
    let one = cells("--policy off commit --jobs 1");
    let cell = |c: &Value| format!("{}{}{}", c["device"], c["policy"], c["rep"]).replace('"', "");
    let order: Vec<String> = one.as_array().unwrap().iter().map(cell).collect();
    assert_eq!(order, ["boff0", "boff1", "bcommit0", "bcommit1", "aoff0", "aoff1", "acommit0", "acommit1"]);
    assert_eq!(one, cells("--policy off commit --jobs 7"));
    assert_ne!(one, cells("--policy off commit --jobs 7 --seed 2"));

    let request = arguments(&line("")).request();
    let stopped = compare::run(&request, &Stopping(OnInterrupt::StopAndShow), &Beside);
    assert!(matches!(stopped, Err(Failure::Interrupted)), "{stopped:?}");
}

#[test]
fn one_thing_given_twice_is_refused_also_under_another_name() {
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/vendor1.toml");
    for line in ["--policy off --policy off".to_owned(), format!("--device vendor1 --device {profile}")] {
        let failure = run(&arguments(&line), &Silent::default()).unwrap_err();
        assert!(
            matches!(&failure, Failure::Usage(m) if m.to_string().contains("given twice")),
            "{failure:?}"
        );
    }
}

#[test]
fn a_real_directory_gives_one_column_called_by_its_mount() {
    let dir = tempfile::tempdir().unwrap();
    let target = format!("dir:{}", dir.path().display());
    let arguments = arguments(&format!("--workload append:64KiB:1MiB --target {target} --reps 2"));
    let json = json_of(&compare::run(&arguments.request(), &Silent::default(), &Beside).unwrap());
    let mount = &json["settings"]["mount"];
    assert_eq!(
        (&json["cells"][1]["policy"], &json["cells"][1]["target"]),
        (&mount["policy"], &json!(target))
    );
    assert!(json["cells"][1]["device_stats"].is_null());
    for key in ["utilization_percent", "linux", "host_memory_bytes"] {
        assert!(json["settings"][key].is_null(), "{key}");
    }
    assert!(mount["file_system"].is_string());
    let command = format!("trimwise compare --workload append:64KiB:1MiB --target {target} --reps 2");
    assert_eq!(json["settings"]["command"], command);
}

#[test]
fn a_real_directory_is_told_to_clean_up_and_then_no_result_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let line = format!("--workload append:64KiB:1MiB --target dir:{}", target.display());
    let mut with_json = arguments(&line);
    with_json.output.json = Some(dir.path().join("r.json"));
    let failure = run(&with_json, &Stopping(OnInterrupt::Stop));
    assert_eq!(failure, Err(Failure::Interrupted));
    assert_eq!(std::fs::read_dir(target).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_check_runs_what_the_kernel_has_and_names_the_rest() {
    let line = "--check kernel:6.1:ext4:noatime --policy off commit lazy batch:30s --reps 2";
    let mut comparison = made(line);
    let policies = ["off", "commit", "batch:30s"];
    let cells = all(&["sata-small"], &policies, 2, |device, policy, rep| {
        on_kernel("kernel:6.1:ext4:noatime", device, policy, rep)
    });
    comparison.add_check(check_of("6.1:ext4:noatime", &["off", "commit", "lazy", "batch:30s"], cells));
    let json = json_of(&comparison);
    let check = &json["check"];
    let keys: Vec<&str> = check.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys.join(" "), "target kernel cells summary left_out compared contradictions not_run");
    assert_eq!(check["target"], "kernel:6.1:ext4:noatime");
    assert_eq!(check["kernel"]["release"], "6.1.7");
    assert_eq!(check["summary"][1]["vs_baseline_percent"], 0.0);
    assert_eq!(check["left_out"].as_array().unwrap().len(), 1);
    assert_eq!(check["left_out"][0]["policy"], "lazy");
    assert_eq!(check["compared"].as_array().unwrap().len(), 1);
    assert_eq!(check["contradictions"], json!([]));
    assert!(check["not_run"].is_null());

    assert_eq!(
        json["cells"].as_array().unwrap().len(),
        4 * 2,
        "the model's cells are the same without the check"
    );
    let settings = &json["settings"];
    assert_eq!(settings["host_memory_bytes"], 1u64 << 30, "as much as the guest has");
    assert_eq!(settings["linux"]["version"], "6.1", "the kernel that it is checked on");
    assert!(settings["kernel"].is_null());
    assert!(
        settings["command"]
            .as_str()
            .unwrap()
            .contains("--utilization 80 --memory 1024 --check kernel:6.1:ext4:noatime --reps 2 --seed 1"),
        "{settings}"
    );
}

/// Makes a comparison of these policies on these devices, checked on Linux 6.12.
fn checked(devices: &[&str], policies: &[&str], reps: u32, noisy: bool) -> Comparison {
    let with = |of: &dyn Fn(&str, &str, u32) -> Cell, policies: &[&str]| all(devices, policies, reps, of);
    let mut comparison =
        comparison(with(&|device, policy, rep| modelled(device, policy, rep, noisy), policies));
    comparison.settings.linux =
        Some(Linux { version: "6.12".to_owned(), stands_for: "Linux 6.1 and later".into() });
    let cells =
        with(&|device, policy, rep| on_kernel("kernel:6.12:ext4", device, policy, rep), &policies[..2]);
    comparison.add_check(check_of("6.12:ext4", policies, cells));
    comparison
}

#[test]
fn a_contradiction_comes_before_the_recommendation() {
    let run = |devices: &[&str]| json_of(&checked(devices, &["off", "commit"], 2, false));
    let one = run(&["contrary"]);
    let found = one["check"]["contradictions"].as_array().unwrap();
    assert_eq!(found.len(), 1, "the sign and the recommendation are one contradiction: {found:?}");
    assert_eq!((&found[0]["policy"], &found[0]["against"]), (&"commit".into(), &"off".into()));
    assert_eq!(found[0]["model_percent"], -50.0);
    assert!((found[0]["kernel_percent"].as_f64().unwrap() - 20.0).abs() < 1e-9);
    let begin = "Linux 6.12.7 contradicts the model: `commit` takes 50.0 % less than `off` in the model, 20.0 % longer on \
                 the kernel. The model's verdict: Use `commit`";
    for text in [&one["verdict"]["text"], &one["verdict"]["per_device"][0]["text"]] {
        assert!(text.as_str().unwrap().starts_with(begin), "{text}");
    }
    assert_eq!(one["verdict"]["policy"], "commit");

    let two = run(&["vendor1", "contrary"])["verdict"].clone();
    let text = |verdict: &Value| verdict["text"].as_str().unwrap().to_owned();
    assert!(text(&two).starts_with("Linux 6.12.7 contradicts the model on contrary (see below)."), "{two}");
    assert!(text(&two["per_device"][0]).starts_with("Use `commit`"), "{two}");
    assert!(text(&two["per_device"][1]).starts_with("Linux 6.12.7 contradicts the model: "), "{two}");
}

#[test]
fn without_the_kernel_the_comparison_goes_on_and_says_so() {
    let mut comparison = made("--check kernel:4.4:ext4 --policy off commit --reps 2");
    let check = check::Check {
        kernel: None,
        not_run: Some("to build it: trimwise kernel build --version 4.4".to_owned()),
        ..check_of("4.4:ext4", &["off", "commit"], Vec::new())
    };
    comparison.add_check(check);
    let json = json_of(&comparison);
    let check = &json["check"];
    assert_eq!(check["not_run"], "to build it: trimwise kernel build --version 4.4");
    assert!(check["kernel"].is_null() && check["cells"].as_array().unwrap().is_empty());
    assert!(json["verdict"]["text"].as_str().unwrap().starts_with("Use `commit`"));
    let text = super::table::render(&comparison, true);
    assert!(text.contains("Not checked on a real kernel: to build it: trimwise kernel build"), "{text}");
}

#[test]
fn a_check_stands_below_each_of_the_model_s_figures() {
    let mut comparison = checked(&["contrary"], &["off", "commit", "judicious"], 6, true);
    comparison.seed = 1;
    comparison.settings.workload = "default".to_owned();
    comparison.settings.host_memory_bytes = Some(1 << 30);
    comparison.settings.command =
        "trimwise compare --workload default --device contrary --policy off --policy commit --policy judicious \
         --utilization 80 --memory 1024 --check kernel:6.12:ext4 --reps 6 --seed 1"
            .to_owned();
    let text = super::table::render(&comparison, true).replace("0.0.0-test", "VERSION");
    let fits = |line: &str| line.chars().count() <= 100 || line.starts_with("  trimwise compare");
    assert!(text.lines().all(fits), "{text}");
    insta::assert_snapshot!(text);

    let page = super::report::html(&comparison).unwrap();
    for part in ["Linux 6.12.7 contradicts the model", "6.12.7</td>", "memory of the guest"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn what_a_device_cannot_do_is_refused_before_any_run() {
    let refused = |line: &str| run(&arguments(line), &Unreached).unwrap_err().to_string();
    let failure = refused("--device vendor1 vertex-60gb@1.3 --policy off commit");
    assert!(failure.starts_with("--policy commit: vertex-60gb@1.3 does not support TRIM"), "{failure}");
    assert!(on_model::Plan::of(&arguments("--device vertex-60gb@1.3 --policy off ideal").request()).is_ok());
    assert_eq!(
        refused("--thin 64KiB --check kernel:6.12:ext4 --workload default"),
        "--device sata-small+thin:64KiB: thin storage is modelled below the model's file system, not below a real \
         kernel (--check kernel:6.12:ext4); expected the drive alone"
    );
    let failure = refused("--utilization 99");
    assert!(
        failure.starts_with("--workload maildir:deliveries=10k on sata-small: its files need "),
        "{failure}"
    );
}
