//! Small complete runs of the built binary: what it prints, what it leaves behind, and how it stops.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) fn trimwise(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
    command.args(line.split_whitespace()).current_dir(directory).stdin(Stdio::null());
    command
}

fn small_workload(directory: &Path) {
    let text = "set number 50\nset transactions 200\nset size 1000 20000\nrun\n";
    std::fs::write(directory.join("small.pmrc"), text).unwrap();
}

/// The default drive with a sixteenth of its capacity, so that it is aged quickly.
pub(crate) fn small_drive(directory: &Path) {
    let text = include_str!("../../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
    std::fs::write(directory.join("small.toml"), text).unwrap();
}

#[track_caller]
fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_json_for_any_number_of_jobs() {
    let dir = tempfile::tempdir().unwrap();
    small_workload(dir.path());
    small_drive(dir.path());
    let json = |options: &str| {
        let compare = "compare --workload small.pmrc --device small.toml --utilization 10";
        let line = format!("{compare} --reps 2 --json - {options}");
        succeeded(trimwise(dir.path(), &line).output().unwrap())
    };
    let one = json("--jobs 1");
    let parsed: serde_json::Value = serde_json::from_str(&one).expect("nothing but JSON is printed");
    assert_eq!(parsed["cells"].as_array().unwrap().len(), 2 * 5);
    assert_eq!(parsed["cells"][0]["device_stats"]["trim_commands"], 0, "`off` sends none");
    // The chart agrees with the table, even for stale space that came and went within a second.
    for cell in parsed["cells"].as_array().unwrap() {
        let device = &cell["device_stats"];
        let samples = device["timeline"].as_array().unwrap().iter();
        let largest = samples.map(|sample| sample["stale_units"].as_u64().unwrap()).max();
        assert!(largest >= device["stale_units_max"].as_u64(), "{cell}");
    }
    assert_eq!(one, json("--jobs 3"));
}

#[test]
fn a_run_in_a_real_directory_leaves_it_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    small_workload(dir.path());
    let target = dir.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let line = format!("compare --workload small.pmrc --target dir:{} --reps 2 --report .", target.display());
    let table = succeeded(trimwise(dir.path(), &line).output().unwrap());
    assert!(table.contains("discard"), "the column is called by the mount: {table}");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
    assert!(std::fs::read_to_string(dir.path().join("index.html")).unwrap().contains("a real directory"));
}

#[test]
fn a_program_runs_in_a_real_directory_and_not_in_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let compare = |target: &str, workload: &str| {
        let mut command = trimwise(dir.path(), &format!("compare --target {target} --reps 1"));
        command.args(["--workload", workload]).output().unwrap()
    };
    let target = format!("dir:{}", dir.path().display());
    let table =
        succeeded(compare(&target, "cmd:sh -c 'echo a >made' ;; sh -c 'test -s made && rm made && mkdir b'"));
    assert!(table.contains("total") && !table.contains("trans./s"), "{table}");
    for (target, workload, code, words) in [
        (&*target, "cmd:sh -c 'echo said >&2; exit 7'", 1, &["exit code 7", "said"][..]),
        (&target, "cmd:sh -c 'seq 100000; exit 7'", 1, &["exit code 7", "\n  99999\n  100000\n"]),
        (&target, "cmd:./missing", 2, &["--workload cmd:./missing: ", "missing: no such program"]),
        (&target, "cmd:a ;;", 2, &["names no program", "SETUP"]),
        ("model", "cmd:true", 2, &["--target kernel:VERSION:FS", "dir:PATH"]),
    ] {
        let output = compare(target, workload);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing is left, also of a program that failed"
    );
}

#[test]
fn the_append_benchmark_and_the_full_write_run_in_the_model() {
    let dir = tempfile::tempdir().unwrap();
    small_drive(dir.path());
    let json = |line: &str| -> serde_json::Value {
        let compare = "compare --device small.toml --utilization 90 --reps 1 --policy off lazy ideal";
        let line = format!("{compare} --json - {line}");
        let text = succeeded(trimwise(dir.path(), &line).output().unwrap());
        serde_json::from_str(&text).unwrap()
    };
    let append = json("--workload append:64KiB:16MiB");
    for cell in append["cells"].as_array().unwrap() {
        let figures = &cell["append"];
        assert!(cell["postmark"].is_null() && figures["fsync_ns"].as_u64().unwrap() > 0);
        assert_eq!((&figures["append_bytes"], &figures["pieces"]), (&65_536.into(), &241.into()));
        let freed = cell["ledger"]["freed_units"].as_u64().unwrap();
        assert!(freed >= 241 * 16, "the whole file was freed: {freed}");
    }
    let lazy = &append["cells"][1];
    assert!(lazy["append"]["trims"]["commands"].as_u64().unwrap() >= 241, "{lazy}");
    assert!(lazy["ledger"]["trim_busy_ns"].as_u64().unwrap() > 0);
    assert_eq!(append["cells"][0]["append"]["trims"]["commands"], 0, "`off` sends none");
    assert_eq!(append["summary"][0]["measure"], "fsync");

    let full = json("--workload fullwrite:64KiB:16MiB");
    assert!(full["cells"][0]["full_write"]["fsync_ns"].as_u64().unwrap() > 0);
    assert!(full["cells"][0]["full_write"]["write_ns"].as_u64().unwrap() > 0);
    let without = json("--workload fullwrite:64KiB:16MiB:nofsync");
    assert!(without["cells"][0]["full_write"]["fsync_ns"].is_null());
    assert_eq!(without["summary"][0]["measure"], "write");
}

#[test]
fn the_append_benchmark_runs_in_a_real_directory_and_leaves_it_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let line = "compare --workload append:64KiB:1MiB --target dir:. --reps 2 --json -";
    let json: serde_json::Value =
        serde_json::from_str(&succeeded(trimwise(dir.path(), line).output().unwrap())).unwrap();
    let cell = &json["cells"][1];
    assert_eq!(cell["append"]["pieces"], 16);
    assert!(cell["append"]["fsync_ns"].is_u64() && cell["append"]["trims"].is_null(), "{cell}");
    assert!(cell["ledger"].is_null() && cell["duration_ns"].as_u64().unwrap() > 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    std::fs::create_dir(dir.path().join("fragmenting")).unwrap();
    let output = trimwise(dir.path(), line).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("fragmenting: already exists"));
}

/// A run of an hour was lost when its result could not be written.
#[test]
fn regression_a_full_disk_loses_no_result() {
    let dir = tempfile::tempdir().unwrap();
    small_workload(dir.path());
    small_drive(dir.path());
    let line = "compare --workload small.pmrc --device small.toml --reps 1 --policy off --json";
    let output =
        trimwise(dir.path(), &format!("{line} /dev/full")).env("TMPDIR", dir.path()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("trimwise compare --workload small.pmrc"));
    check_saved(&message);

    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let command = trimwise(dir.path(), &format!("{line} -")).env("TMPDIR", dir.path()).stdout(full).output();
    check_saved(&String::from_utf8(command.unwrap().stderr).unwrap());
}

/// Checks that the result of one cell is where the message says.
fn check_saved(message: &str) {
    let (_, saved) = message.trim().split_once("saved in ").unwrap();
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    assert_eq!((&json["schema"], json["cells"].as_array().unwrap().len()), (&1.into(), 1));
}

#[test]
fn what_postmark_would_overwrite_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    small_workload(dir.path());
    std::fs::write(dir.path().join("1"), "precious").unwrap();
    let output = trimwise(dir.path(), "compare --workload small.pmrc --target dir:.").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(dir.path().join("1")).unwrap(), "precious");
}

#[test]
fn a_wrong_line_of_a_workload_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("w.pmrc"), "set number 5\nset colour red\n").unwrap();
    let output = trimwise(dir.path(), "compare --workload w.pmrc").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("w.pmrc:2:"), "{message}");
    std::fs::write(dir.path().join("w.pmrc"), "run\nrun\n").unwrap();
    let output = trimwise(dir.path(), "compare --workload w.pmrc").output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("has 2 lines `run`"));
}

#[test]
fn a_wrong_location_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("w.pmrc"), "set number 5\nset location a/../..\nrun\n").unwrap();
    let output = trimwise(dir.path(), "compare --workload w.pmrc").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("w.pmrc:2: set location: 'a/../..'"), "{message}");
    std::fs::write(dir.path().join("w.pmrc"), "set number 5\nset location /elsewhere\nrun\n").unwrap();
    let output = trimwise(dir.path(), "compare --workload w.pmrc --target dir:.").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("w.pmrc:2: set location: '/elsewhere'"), "{message}");
}

#[test]
fn a_million_files_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("w.pmrc"), "set number 1000000\nrun\n").unwrap();
    let output = trimwise(dir.path(), "compare --workload w.pmrc").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("3.8 GiB at one time") && message.contains("are free"), "{message}");
}

/// The files just fit, but the directory that names them does not.
#[test]
fn a_run_that_finds_the_file_system_full_says_what_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let text = "set number 15600\nset size 4096\nset bias create 0\nset transactions 20\nrun\n";
    std::fs::write(dir.path().join("w.pmrc"), text).unwrap();
    small_drive(dir.path());
    let line =
        "compare --workload w.pmrc --device small.toml --utilization 88 --reps 1 --policy off --report r";
    let output = trimwise(dir.path(), line).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in ["w.pmrc", "sata-small", "is full", "60.9 MiB", "--utilization 88"] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no report, no directory for it");
}

/// Whether the child's handler of SIGINT is installed.
pub(crate) fn catches_interrupts(child: &Child) -> bool {
    const SIGINT: u32 = 2;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() >> (SIGINT - 1) & 1 == 1)
}

/// Waits until `ready`, then interrupts as Ctrl-C does, and returns the exit code.
pub(crate) fn interrupted(mut child: Child, ready: impl Fn(&Child) -> bool) -> Option<i32> {
    let begin = Instant::now();
    while !ready(&child) {
        assert!(begin.elapsed() < Duration::from_secs(300), "never ready");
        assert!(child.try_wait().unwrap().is_none(), "ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap().code()
}

#[test]
fn an_interrupt_removes_what_the_run_made_in_a_real_directory() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let line = format!("compare --target dir:{} --reps 1000 --json r.json", target.display());
    let child = trimwise(dir.path(), &line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let some_files = |_: &Child| std::fs::read_dir(&target).unwrap().count() > 10;
    assert_eq!(interrupted(child, some_files), Some(130));
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn an_interrupt_ends_the_model_promptly() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("w.fio"), "[a]\nsize=1m\ntime_based\nruntime=9999d\n").unwrap();
    let child = trimwise(dir.path(), "compare --workload job:w.fio --reps 1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(interrupted(child, catches_interrupts), Some(130)); // a cell would take months
}

/// The first interrupt once did nothing while results were written into a pipe that nobody read.
#[test]
fn regression_an_interrupt_ends_a_delivery_that_is_stuck() {
    let dir = tempfile::tempdir().unwrap();
    small_workload(dir.path());
    small_drive(dir.path());
    // More than a pipe holds.
    let line =
        "compare --workload small.pmrc --device small.toml --utilization 10 --reps 30 --policy off --json";
    let mut child = trimwise(dir.path(), line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    assert_eq!(interrupted(child, |_| true), Some(130));
}

/// The small workload frees nothing, so `off` and `commit` take the same time, and only stale space differs.
#[test]
fn conditions_and_a_saved_result_decide_about_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    small_workload(dir.path());
    small_drive(dir.path());
    let compare = |at: u32, options: &str, conditions: &[&str]| {
        let line = "compare --workload small.pmrc --device small.toml --policy off commit";
        let mut command = trimwise(dir.path(), &format!("{line} --utilization {at} {options}"));
        command.args(conditions.iter().flat_map(|condition| ["--fail-if", condition]));
        let Output { status, stdout, stderr } = command.output().unwrap();
        let [out, err] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        (status.code(), out, err)
    };
    let (code, out, err) =
        compare(10, "--reps 4 --json a.json", &["stale_units_max of off > 1 MiB", "off > 1 h"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(
        out.contains("vs off") && out.contains("\n`off > 1 h` (sata-small) does not hold: time "),
        "{out}"
    );
    assert!(err.contains("`stale_units_max of off > 1 MiB` (sata-small) holds: stale_units_max "), "{err}");
    let (code, out, err) =
        compare(10, "--reps 4 --baseline a.json", &["discard > baseline", "commit > off by 5 %"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("Since a.json: no change beyond noise in 4 figures."), "{out}");
    let (code, out, err) = compare(10, "--reps 4 --csv", &[]);
    assert_eq!(code, Some(0), "{err}");
    let mut lines = out.lines();
    let header = "table,policy,on,today,n,exact,\"total, s\",\"total, ± %\",\"vs off, %\",\"vs off, ~\",\"vs ideal, %\",\"vs \
                  ideal, ~\",trans./s,";
    assert!(lines.next().unwrap().starts_with(header), "{out}");
    let first = "\"sata-small: PostMark small.pmrc, 10 % full\",off,model,,4,,0.00";
    assert!(lines.next().unwrap().starts_with(first) && lines.count() == 1, "{out}");
    for (at, options, condition, code, words) in [
        (10, "--reps 1", "stale_units_max of commit < off", 3, "cannot be told with so few runs"),
        (
            10,
            "--reps 1",
            "ideal > off",
            2,
            "`ideal` is not among the policies of this run; expected one of off, commit",
        ),
        (20, "--reps 1 --baseline a.json", "off > 1 s", 2, "its utilization is 10 %, and here it is 20 %"),
    ] {
        let (found, _, err) = compare(at, options, &[condition]);
        assert_eq!(found, Some(code), "{condition}: {err}");
        assert!(err.contains(words), "{condition}: {err}");
    }
}
