//! `advise` on a small drive: a whole search.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn trimwise(directory: &Path, options: &str) -> Command {
    let line = "advise --device small.toml --workload small.pmrc --memory 64";
    let reps = if options.contains("--reps") { "" } else { " --reps 4" };
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
    command
        .args(line.split(' ').chain(reps.split_whitespace()).chain(options.split_whitespace()))
        .current_dir(directory)
        .stdin(Stdio::null());
    command
}

fn in_place(transactions: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = include_str!("../../../../profiles/sata-small.toml")
        .replace("8_589_934_592", "268_435_456")
        .replace("pages_per_block = 128", "pages_per_block = 32");
    std::fs::write(dir.path().join("small.toml"), text).unwrap();
    let text = format!("set number 300\nset transactions {transactions}\nset size 1000 100000\nrun\n");
    std::fs::write(dir.path().join("small.pmrc"), text).unwrap();
    dir
}

#[track_caller]
fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_same_advice_for_any_number_of_jobs() {
    let dir = in_place(3000);
    let one = succeeded(trimwise(dir.path(), "--reps 8 --jobs 1 --json -").output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_eq!(json["partial"], false);
    assert_eq!(json["conclusion"]["decision"], "change");
    assert_eq!(json["conclusion"]["steps"]["commands"].as_array().unwrap().len(), 0, "there is no host");
    let runs = &json["search"]["runs"];
    let of = |key: &str| runs[key].as_u64().unwrap();
    assert!((of("searched") + of("compared") + of("nearby")) * 4 < of("exhaustive"), "{runs}");
    assert_eq!(json["comparison"]["seed"], 2, "runs that the search has not seen");
    assert_eq!(json["means"], "stock", "what trimwised could do by remounting is no better");
    let two: serde_json::Value = serde_json::from_str(&succeeded(
        trimwise(dir.path(), "--reps 8 --jobs 3 --json -").output().unwrap(),
    ))
    .unwrap();
    assert_eq!(two, json);
}

#[test]
fn over_a_day_the_daemon_itself_and_the_timer_are_judged_by_waiting() {
    let dir = in_place(3000);
    let line = "--days 1 --day office --reps 6 --json day.json --details";
    let text = succeeded(trimwise(dir.path(), line).output().unwrap());
    assert!(text.starts_with("Advice for small.pmrc over a day (office) on "), "{text}");
    assert!(!text.contains("sees every commit"), "{text}");
    let json = std::fs::read_to_string(dir.path().join("day.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["partial"], &json["settings"]["judge"]), (&false.into(), &"waiting".into()));
    assert_eq!(json["search"]["run_ns"], 86_400_000_000_000_u64);
    let names = |rows: &serde_json::Value| -> Vec<String> {
        rows.as_array().unwrap().iter().map(|row| row["policy"].as_str().unwrap().to_owned()).collect()
    };
    let tried = names(&json["search"]["candidates"]);
    for policy in ["batch:1h", "batch:1d", "trimwised", "trimwised:set:0:100+lazy:1:1+reuse+merge"] {
        assert!(tried.iter().any(|tried| tried == policy), "{policy}: {tried:?}");
    }
    let cells = json["comparison"]["cells"].as_array().unwrap();
    assert!(cells.iter().all(|cell| cell["days"]["elapsed_ns"].is_u64() && cell["rep"].as_u64() < Some(6)));
    let slices = |policy: &str| -> u64 {
        let of = cells.iter().filter(|cell| cell["policy"] == policy);
        of.map(|cell| cell["days"]["slices"].as_u64().unwrap()).sum()
    };
    assert!(slices("trimwised") > 0 && slices("batch:1d") == 0, "the daemon ran");
}

#[test]
fn what_cannot_be_spread_over_days_is_refused() {
    let dir = in_place(1);
    for (options, expected) in [
        ("--day office", "--days"),
        ("--days 1000000", "0"),
        ("--days 0 --day office", "--days"),
        ("--apply", "--here"),
        ("--days 7 --day weird", "server, office, nightly, flat"),
        ("--days 7 --check kernel:6.12:ext4", "--check cannot be used with --days"),
    ] {
        let output = trimwise(dir.path(), options).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{options}: {error}");
    }
}

#[test]
fn a_workload_that_frees_nothing_gets_no_advice() {
    let dir = in_place(1);
    let text = succeeded(trimwise(dir.path(), "--utilization 10").output().unwrap());
    assert!(text.starts_with("Cannot tell yet.\nThe workload freed no committed space"), "{text}");
}

/// From /proc: ticks of a hundredth of a second.
fn processor_time(pid: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    Duration::from_millis(fields.split_whitespace().nth(11).unwrap().parse::<u64>().unwrap() * 10)
}

#[test]
fn an_interrupt_shows_what_there_is() {
    let dir = in_place(20_000);
    let child = trimwise(dir.path(), "--jobs 1 --json part.json")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let since = Instant::now();
    // Runs take a fraction of this much processor time, and the search takes many.
    while processor_time(&pid) < Duration::from_secs(2) {
        assert!(since.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(since.elapsed() < Duration::from_secs(120));
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Cannot tell yet.\nThe search was stopped after "), "{text}");
    let json = std::fs::read_to_string(dir.path().join("part.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["partial"] == true && json["conclusion"]["policy"].is_null());
}
