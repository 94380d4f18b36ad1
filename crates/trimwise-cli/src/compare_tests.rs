use clap::Parser;

use super::*;
use crate::arguments::{Command, CommandLine};
use crate::runner::fabricated::Fabricated;

fn arguments(line: &str) -> CompareArguments {
    let words = ["trimwise", "compare"].into_iter().chain(line.split_whitespace());
    match CommandLine::try_parse_from(words).unwrap().command {
        Command::Compare(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

fn no_signal(_: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
    Ok(Arc::new(AtomicBool::new(false)))
}

fn json_of(line: &str, noisy: bool) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut arguments = arguments(line);
    arguments.output.json = Some(path.clone());
    run(&Fabricated { noisy }, &arguments, no_signal).unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_json_is_the_same_bytes_for_any_number_of_jobs() {
    let one = json_of("--device vendor1 --device vendor2 --jobs 1", true);
    assert_eq!(one, json_of("--device vendor1 --device vendor2 --jobs 7", true));
    assert_ne!(one, json_of("--device vendor1 --device vendor2 --jobs 7 --seed 2", true));
}

#[test]
fn the_json_has_the_keys_that_others_read_in_their_order() {
    let json: serde_json::Value =
        serde_json::from_str(&json_of("--policy off commit ideal --reps 2", false)).unwrap();
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&json), "trimwise seed settings cells summary verdict");
    assert_eq!(keys(&json["verdict"]), "policy speedup low high text per_device");
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
        "device policy bound fills_commands reps exact measure median_s low_s high_s vs_baseline_percent \
         vs_baseline_significant vs_ideal_percent vs_ideal_significant ledger"
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
    assert_eq!(json["verdict"]["policy"], "commit");
    assert_eq!(json["verdict"]["speedup"], 2.0);
}

#[test]
fn without_off_and_ideal_there_is_nothing_to_compare_with() {
    let json: serde_json::Value =
        serde_json::from_str(&json_of("--policy commit lazy+reuse --reps 2", false)).unwrap();
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
    let json: serde_json::Value =
        serde_json::from_str(&json_of("--linux 4.19.7 --memory 512 --utilization 70 --jobs 3", false))
            .unwrap();
    let settings = &json["settings"];
    assert_eq!(settings["host_memory_bytes"], 512u64 << 20);
    assert_eq!(settings["linux"]["version"], "4.19.7");
    assert_eq!(settings["linux"]["stands_for"], "Linux 4.13 to 5.14");
    assert_eq!(settings["utilization_percent"], 70);
    assert!(!settings.to_string().contains("jobs"), "{settings}");
}

#[test]
fn a_device_without_room_is_refused_before_any_run() {
    let failure =
        run(&Fabricated { noisy: false }, &arguments("--device a too-small"), |_| panic!("it began"));
    assert_eq!(failure, Err(Failure::usage("too small")));
}

#[test]
fn cells_come_by_device_then_policy_then_repetition() {
    let json: serde_json::Value =
        serde_json::from_str(&json_of("--device b --device a --policy off --policy x --reps 2", false))
            .unwrap();
    let order: Vec<String> = json["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{}{}{}", c["device"].as_str().unwrap(), c["policy"].as_str().unwrap(), c["rep"]))
        .collect();
    assert_eq!(order, ["boff0", "boff1", "bx0", "bx1", "aoff0", "aoff1", "ax0", "ax1"]);
}

#[test]
fn a_policy_that_trims_is_refused_on_a_device_that_does_not() {
    let run = |line: &str| run(&Fabricated { noisy: false }, &arguments(line), no_signal);
    run("--device no-trim --policy off").unwrap();
    let failure = run("--device vendor1 no-trim --policy off commit").unwrap_err();
    assert_eq!(failure, Failure::usage("no-trim takes no TRIM"));
}

#[test]
fn several_devices_and_policies_may_follow_one_flag_or_each_its_own() {
    let together = json_of("--device vendor1 vendor2 --policy off commit --reps 2", false);
    assert_eq!(
        together,
        json_of("--device vendor1 --device vendor2 --policy off --policy commit --reps 2", false)
    );
    assert!(together.contains("--device vendor1 --device vendor2 --policy off --policy commit"));
}

#[test]
fn the_command_makes_it_again_without_defaults_that_may_change() {
    let json: serde_json::Value =
        serde_json::from_str(&json_of("--device vendor2 --jobs 3 --utilization 50", false)).unwrap();
    assert_eq!(
        json["settings"]["command"],
        "trimwise compare --workload default --device vendor2 --policy off --policy commit --policy set:40:90 \
         --policy lazy+reuse --policy judicious --policy ideal --utilization 50 --reps 6 --seed 1"
    );
}

#[test]
fn one_thing_given_twice_is_refused_also_under_another_name() {
    for line in ["--policy off --policy off", "--device a --device a.toml"] {
        let failure = run(&Fabricated { noisy: false }, &arguments(line), no_signal).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(m) if m.contains("given twice")), "{failure:?}");
    }
}

#[test]
fn a_real_directory_gives_one_column_called_by_its_mount() {
    let json: serde_json::Value =
        serde_json::from_str(&json_of("--target dir:/mnt/x --reps 2", false)).unwrap();
    assert_eq!(json["cells"][1]["policy"], "discard");
    assert_eq!(json["cells"][1]["target"], "dir:/mnt/x");
    assert!(json["cells"][1]["device_stats"].is_null());
    for key in ["utilization_percent", "linux", "host_memory_bytes"] {
        assert!(json["settings"][key].is_null(), "{key}");
    }
    assert_eq!(json["settings"]["mount"]["file_system"], "ext4");
    assert_eq!(
        json["settings"]["command"],
        "trimwise compare --workload default --target dir:/mnt/x --reps 2"
    );
}

#[test]
fn a_real_directory_refuses_what_only_a_model_can_do() {
    for option in ["--policy off", "--device vendor1", "--utilization 50", "--seed 1", "--jobs 2"] {
        let line = format!("--target dir:/mnt/x {option}");
        let failure = run(&Fabricated { noisy: false }, &arguments(&line), no_signal).unwrap_err();
        let name = option.split(' ').next().unwrap();
        assert!(matches!(&failure, Failure::Usage(m) if m.starts_with(name)), "{failure:?}");
    }
}

#[test]
fn only_a_real_directory_is_told_to_clean_up_and_then_no_result_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut with_json = arguments("--target dir:/mnt/x");
    with_json.output.json = Some(dir.path().join("r.json"));
    let failure = run(&Fabricated { noisy: false }, &with_json, |on| {
        assert_eq!(on, OnInterrupt::Stop);
        Ok(Arc::new(AtomicBool::new(true)))
    });
    assert_eq!(failure, Err(Failure::Interrupted));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let mut installed = None;
    with_json.target = "model".into();
    run(&Fabricated { noisy: false }, &with_json, |on| {
        installed = Some(on);
        no_signal(on)
    })
    .unwrap();
    assert_eq!(installed, Some(OnInterrupt::Exit));
}

#[test]
fn a_kernel_gives_the_policies_of_its_file_system() {
    let json: serde_json::Value =
        serde_json::from_str(&json_of("--target kernel:6.1:btrfs:noatime --reps 2", false)).unwrap();
    let policies: Vec<&str> =
        json["cells"].as_array().unwrap().iter().map(|cell| cell["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["off", "off", "commit", "commit", "async", "async"]);
    let settings = &json["settings"];
    assert_eq!(settings["kernel"]["release"], "6.1.7");
    assert_eq!(settings["kernel"]["mount_options"], "noatime");
    assert!(settings["linux"].is_null() && settings["mount"].is_null());
    assert_eq!(settings["host_memory_bytes"], 1u64 << 30);
    assert_eq!(
        settings["command"],
        "trimwise compare --workload default --target kernel:6.1:btrfs:noatime --device sata-small --policy off \
         --policy commit --policy async --memory 1024 --reps 2 --seed 1"
    );
    let device = &json["cells"][0]["device_stats"];
    assert!(device["stale_units_max"].is_null() && device["stale_units_end"].is_u64());
    assert_eq!(json["summary"][0]["exact"], true, "virtual time adds no noise");
}

#[test]
fn a_kernel_refuses_what_only_others_have() {
    for (line, words) in [
        ("--target kernel:6.1:ext4 --linux 5.10", "--linux"),
        ("--target kernel:6.1:ext4 --fill", "--fill"),
        ("--target kernel:6.1:ext4 --policy judicious", "expected off"),
        ("--target kernel:6.1:ext4:nodiscard", "--policy"),
        ("--target kernel:6.1:ext2", "ext4, xfs, btrfs, f2fs"),
    ] {
        let failure =
            run(&Fabricated { noisy: false }, &arguments(line), |_| panic!("it began")).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(m) if m.contains(words)), "{failure:?}");
    }
}
