//! `compare --target kernel:...` and `kernel run`: the real file systems of Linux 6.1 on a modelled drive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use trimwise_testing::skipped;
use trimwise_uml::job::FileSystem;

use crate::common::command_in as trimwise;
use crate::guest_daemon::kernel;

/// Enough files for each file system to write, commit and free; some seconds of virtual time.
const POSTMARK: &str =
    "set number 400\nset transactions 600\nset size 10000 100000\nset buffering false\nrun\n";

/// Whether the kernel of these tests is built, and this computer can make each file system.
fn is_there(file_system: FileSystem) -> bool {
    kernel(file_system).is_some()
}

fn folder_with_postmark() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.pmrc"), POSTMARK).unwrap();
    folder
}

/// Runs a command in a folder and returns its JSON output as text.
#[track_caller]
fn json(folder: &Path, line: &str, input: Stdio) -> String {
    let output = trimwise(folder, &format!("{line} --json -")).stdin(input).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails(folder: &Path, line: &str, code: i32, words: &[&str]) {
    let output = trimwise(folder, line).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {message}");
    assert!(words.iter().all(|word| message.contains(word)), "{line}: {message}");
}

/// Returns what guests may have left: folders in this test's own temporary folder.
fn left_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("trimwise-guest-")).collect()
}

fn two_runs_are_the_same(file_system: FileSystem) {
    if !is_there(file_system) {
        return;
    }
    let folder = folder_with_postmark();
    let name = file_system.name();
    let line =
        format!("compare --target kernel:6.1:{name} --workload small.pmrc --reps 2 --memory 128 --seed 3");
    let first = json(folder.path(), &line, Stdio::null());
    let one_by_one = json(folder.path(), &format!("{line} --jobs 1"), Stdio::null());
    assert_eq!(first, one_by_one, "{name}");
    assert_eq!(left_in(folder.path()), Vec::<PathBuf>::new());

    let result: Value = serde_json::from_str(&first).unwrap();
    let cells = result["cells"].as_array().unwrap();
    let policies: Vec<&str> = cells.iter().map(|cell| cell["policy"].as_str().unwrap()).collect();
    let expected: &[&str] = match file_system {
        FileSystem::Btrfs => &["off", "off", "commit", "commit", "async", "async"],
        _ => &["off", "off", "commit", "commit"],
    };
    assert_eq!(policies, expected);
    for cell in cells {
        assert_eq!(cell["target"], format!("kernel:6.1:{name}"));
        assert_eq!((&cell["device"], &cell["ledger"]), (&"sata-small".into(), &Value::Null));
        assert_eq!(cell["postmark"]["created"], cells[0]["postmark"]["created"]);
        assert!(cell["duration_ns"].as_u64().unwrap() > 0, "{cell}");
        let device = &cell["device_stats"];
        assert!(device["host_units_written"].as_u64().unwrap() > 0, "{device}");
        let knows_what_is_free = matches!(file_system, FileSystem::Ext4 | FileSystem::Xfs);
        assert_eq!(device["stale_units_end"].is_u64(), knows_what_is_free, "{device}");
        assert!(device["stale_units_max"].is_null());
        if cell["policy"] == "off" {
            assert_eq!(device["trim_commands"], 0);
        }
    }
    assert!(result["settings"]["kernel"]["release"].as_str().unwrap().starts_with("6.1."));
    assert_eq!(result["settings"]["kernel"]["file_system"], name);
}

test_on!(two_runs_are_the_same: ext4 xfs btrfs f2fs);

/// A guest that walked to its program folder by folder had less memory free if there were more folders, so it wrote
/// back earlier and laid files out differently.
#[test]
fn regression_where_the_program_and_its_folder_are_changes_nothing() {
    if !is_there(FileSystem::Xfs) {
        return;
    }
    // More than the guest's memory holds, so that it must write back.
    let work = "cat /proc/meminfo /proc/buddyinfo; for i in $(seq 64); do head -c 6000000 /dev/zero > $i; done; \
                cat /proc/meminfo";
    let run = |mut command: Command| {
        let output = command.args(["sh", "-c", work]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let line = "kernel run 6.1:xfs --memory 128 --json - --";
    let here = run(trimwise(folder.path(), line));
    let deep =
        folder.path().join("a/folder/in/which/names/are/longer/than/the/kernel/keeps/beside/its/entries");
    fs::create_dir_all(&deep).unwrap();
    let copy = deep.join("trimwise");
    fs::copy(env!("CARGO_BIN_EXE_trimwise-lab"), &copy).unwrap();
    let mut from_there = Command::new(copy);
    from_there.args(line.split_whitespace()).current_dir(&deep).env("TMPDIR", &deep).env("NO_COLOR", "1");
    assert_eq!(run(from_there), here);
}

#[test]
fn the_table_names_kernel_and_file_system_and_fits() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = folder_with_postmark();
    let line = "compare --target kernel:6.1:ext4:data=journal --workload small.pmrc --reps 1 --policy off \
                batch:1s --postmark --report report";
    let output = trimwise(folder.path(), line).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in
        ["ext4 of Linux 6.1.", "mounted with data=journal", "batch:1s", "stale end", "Files:", "repeat with:"]
    {
        assert!(text.contains(words), "{words} is not in: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100 || line.starts_with("  trimwise")), "{text}");
    let report = fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(report.contains("a real kernel and a modelled SSD"));
}

/// FITRIM finds what the removed files left, at each interval.
#[test]
fn a_batch_trims_at_its_interval_during_the_workload() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = folder_with_postmark();
    let line = "compare --target kernel:6.1:ext4 --workload small.pmrc --reps 1 --memory 128 --policy off batch:1ms batch:1w";
    let result: Value = serde_json::from_str(&json(folder.path(), line, Stdio::null())).unwrap();
    let commands = |i: usize| result["cells"][i]["device_stats"]["trim_commands"].as_u64().unwrap();
    assert_eq!((commands(0), commands(2)), (0, 0), "a week does not pass");
    assert!(commands(1) > 0);
}

/// Debian's PostMark and ours give the same counts in their reports and send the drive the same requests.
#[test]
fn debian_s_postmark_agrees_with_ours() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    if !Path::new("/usr/bin/postmark").exists() {
        return skipped("postmark is missing: apt-get install postmark");
    }
    let folder = folder_with_postmark();
    let input = fs::File::open(folder.path().join("small.pmrc")).unwrap();
    let theirs = "kernel run 6.1:ext4:nodiscard --memory 128 --trace t.csv";
    let mut command = trimwise(folder.path(), &format!("{theirs} --json - -- postmark"));
    let output = command.stdin(input).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Value = serde_json::from_slice(&output.stdout).unwrap();

    let line = "compare --target kernel:6.1:ext4 --workload small.pmrc --reps 1 --memory 128 --policy off";
    let ours: Value = serde_json::from_str(&json(folder.path(), line, Stdio::null())).unwrap();
    let figures = &ours["cells"][0]["postmark"];
    let report = theirs["program"]["output"].as_str().unwrap();
    for (words, key) in [
        (" created (", "created"),
        (" deleted (", "deleted"),
        (" read (", "read"),
        (" appended (", "appended"),
    ] {
        let line = report.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{report}"));
        let count: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
        assert_eq!(figures[key], count, "{line}");
    }

    // The trace has each request since the program's start, with the bytes that were counted.
    let trace = fs::read_to_string(folder.path().join("t.csv")).unwrap();
    let written: u64 = trace
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|fields| fields[2] == "write")
        .map(|fields| fields[4].parse::<u64>().unwrap())
        .sum();
    let counted = |phase: usize| theirs["phases"][phase]["requests"]["written_bytes"].as_u64().unwrap();
    assert_eq!(written, counted(0) + counted(1));
}

#[test]
fn a_program_that_fails_fails_the_command_and_its_words_are_kept() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |rest: &[&str]| -> Output {
        let mut command = trimwise(folder.path(), "kernel run 6.1:ext4 --memory 128 --");
        command.args(rest).output().unwrap()
    };
    let output = run(&["sh", "-c", "echo said; echo complained >&2; exit 7"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("complained") && errors.contains("sh: exit code 7"), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("said\n"));
    let output = run(&["nosuchprogram"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("nosuchprogram: "), "{errors}");
    let output = run(&["sh", "-c", "cat"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(left_in(folder.path()), Vec::<PathBuf>::new());
}

/// A compressing drive stores zeros in almost no space, and random bytes whole.
#[test]
fn a_compressing_drive_looks_at_what_the_guest_writes() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let stored = |source: &str| -> f64 {
        let line = "kernel run 6.1:ext4 --memory 128 --device sandforce-240gb --json - --";
        let mut command = trimwise(folder.path(), line);
        command.args(["dd", &format!("if={source}"), "of=a", "bs=1M", "count=8", "conv=fsync"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        result["phases"][0]["device_stats"]["write_amplification"].as_f64().unwrap()
    };
    assert!(stored("/dev/zero") < 0.05);
    assert!(stored("/dev/urandom") > 0.95);
}

/// With more output than a pipe holds, program and init waited for each other until the end of virtual time; output
/// that was not text was refused or changed.
#[test]
fn regression_300_kb_of_any_bytes_pass_through_a_program() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.path().join("input"), &bytes).unwrap();
    let input = fs::File::open(folder.path().join("input")).unwrap();
    let mut command = trimwise(folder.path(), "kernel run 6.1:ext4 --memory 128 -- tee /proc/self/fd/2");
    let output = command.stdin(input).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr[300_000.min(output.stderr.len())..])
    );
    assert!(output.stdout.starts_with(&bytes) && output.stderr.starts_with(&bytes));
}

/// One that ignored SIGTERM and kept the output open kept the run from ending; one with an open file, the unmount. Too
/// much output exhausted the guest's memory.
#[test]
fn regression_a_run_ends_with_its_program() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        let mut command = trimwise(folder.path(), "kernel run 6.1:ext4 --memory 64 --json - -- sh -c");
        command.arg(script).output().unwrap()
    };
    let output = run("(trap '' TERM; sleep 1000) & setsid sleep 1000 3>file >/dev/null 2>&1 & echo said");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["program"]["output"], "said\n");
    assert_eq!(result["program"]["killed_processes"], 2);
    assert!(result["phases"][0]["duration_ns"].as_u64().unwrap() < 1_000_000_000);
    let output = run("exec yes");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("output: longer than 16 MiB"), "{errors}");
}

/// A program that read the serial number moved the marks, so that the figures covered the wrong interval. On 6.1 the
/// first getrandom took 2.5 s of virtual time. The result also names the guest program, which affects it.
#[test]
fn regression_the_figures_of_a_run_are_those_of_its_program() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = trimwise(folder.path(), "kernel run 6.1:ext4 --memory 128 --json - -- sh -c");
    let work =
        "head -c 5000000 /dev/zero > a; sync; head -c 8 /dev/random > /dev/null; cat /sys/block/vda/serial";
    let output = command.arg(work).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [of_program, of_unmount] =
        [0, 1].map(|phase| result["phases"][phase]["requests"]["written_bytes"].as_u64().unwrap());
    assert!(of_program >= 5_000_000 && of_unmount < 1_000_000, "{of_program}, {of_unmount}");
    let virtual_ns = result["phases"][0]["duration_ns"].as_u64().unwrap();
    assert!(virtual_ns < 1_000_000_000, "{virtual_ns} ns of virtual time");
    assert_eq!(result["complaints"], serde_json::json!([]));
    let sum = Command::new("sha256sum").arg(env!("CARGO_BIN_EXE_trimwise-lab")).output().unwrap().stdout;
    let sum = String::from_utf8(sum).unwrap();
    assert_eq!(result["kernel"]["guest_program"], sum.split(' ').next().unwrap());
}

#[test]
fn regression_an_error_in_the_kernel_s_log_fails_the_command() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = trimwise(folder.path(), "kernel run 6.1:ext4 --memory 128 --json result.json -- sh -c");
    let output =
        command.arg("echo said; echo 'EXT4-fs error (device vda): bad' > /dev/kmsg").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && errors.contains("EXT4-fs error (device vda): bad"),
        "{errors}"
    );
    assert!(output.stdout.starts_with(b"said\n"), "what was found out is shown all the same");
    let result: Value =
        serde_json::from_slice(&fs::read(folder.path().join("result.json")).unwrap()).unwrap();
    assert_eq!(result["complaints"].as_array().unwrap().len(), 1);
}

/// As in some containers; the guest's memory must go elsewhere.
#[test]
fn regression_a_small_dev_shm_that_forbids_programs_is_not_used() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let script =
        "mount -t tmpfs -o size=1m,noexec tmpfs /dev/shm || exit 77; exec \"$0\" kernel run 6.1:ext4 -- true";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_trimwise-lab")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || errors.starts_with("unshare: ") {
        return skipped("mounts of one's own need root");
    }
    assert!(output.status.success(), "{errors}");
}

#[test]
fn limits_of_a_guest_can_be_set() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let refused = |options: &str, words: &str| {
        let mut command =
            trimwise(folder.path(), &format!("kernel run 6.1:ext4 --memory 128 {options} -- sh -c"));
        let output = command.arg("while :; do :; done").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && errors.contains(words), "{errors}");
    };
    refused("--max-silence 2", "the kernel said nothing for 2 s and was stopped");
    refused("--max-wall 2", "the run was stopped after 2 s");
    fails(folder.path(), "compare --max-wall 9", 2, &["--max-wall", "--target kernel:..."]);
    fails(folder.path(), "kernel run 6.1:ext4 --max-silence 0 -- true", 2, &["from 1 to"]);
}

/// The guest's processes and their kernel die with the command, however it dies; its folder is removed at the next run.
#[test]
fn a_killed_command_leaves_no_guest() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let line = "kernel run 6.1:ext4 --memory 128 -- sh -c";
    let mut command = trimwise(folder.path(), line).arg("while :; do :; done").spawn().unwrap();
    let pid = command.id().to_string();
    let guests = || -> Vec<PathBuf> {
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let is_ours = |process: &PathBuf| {
            fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder.path()))
                && process.file_name().is_some_and(|name| *name != *pid)
        };
        processes.filter(is_ours).collect()
    };
    let wait = |until: &dyn Fn(usize) -> bool| {
        (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            until(guests().len())
        })
    };
    assert!(wait(&|processes| processes > 1), "the guest did not come up: {:?}", guests());
    std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert!(wait(&|processes| processes == 0), "left: {:?}", guests());
    command.wait().unwrap();
    let after = trimwise(folder.path(), "kernel run 6.1:ext4 --memory 128 -- true").output().unwrap();
    assert!(after.status.success(), "{}", String::from_utf8_lossy(&after.stderr));
    assert_eq!(left_in(folder.path()), Vec::<PathBuf>::new());
}

/// A failing step is named with the reason: here a mount option that the file system does not know.
#[test]
fn a_failed_step_is_named_with_the_kernel_s_own_words() {
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let folder = folder_with_postmark();
    let line = "compare --target kernel:6.1:ext4:nosuchoption --workload small.pmrc --reps 1 --policy off";
    fails(folder.path(), line, 1, &["mount of ext4 with 'nosuchoption,nodiscard'", "nvalid argument"]);
    assert_eq!(left_in(folder.path()), Vec::<PathBuf>::new());
}

/// Compares the model of 6.1 with the kernel itself, all else equal; without the kernel, runs the model alone.
#[test]
fn the_model_is_checked_on_the_kernel_that_it_models() {
    let folder = folder_with_postmark();
    // Small, since the guest ages it too.
    let drive =
        include_str!("../../../../profiles/sata-small.toml").replace("= 8_589_934_592", "= 1_073_741_824");
    fs::write(folder.path().join("drive.toml"), drive).unwrap();
    let line = "compare --check kernel:6.1:ext4 --workload small.pmrc --device drive.toml --policy off commit lazy \
                --utilization 20 --reps 1 --memory 128 --json -";
    let empty = tempfile::tempdir().unwrap();
    let output = trimwise(folder.path(), line).env("TRIMWISE_KERNELS", empty.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("trimwise kernel build --version 6.1"), "{message}");
    let alone: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(alone["check"]["not_run"].is_string() && alone["check"]["kernel"].is_null());
    if !is_there(FileSystem::Ext4) {
        return;
    }
    let output = trimwise(folder.path(), line).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["cells"], alone["cells"], "a check does not change the model");
    let check = &result["check"];
    assert!(check["kernel"]["release"].as_str().unwrap().starts_with("6.1."));
    assert_eq!(check["left_out"][0]["policy"], "lazy");
    let cells = check["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for (of_kernel, of_model) in cells.iter().zip(result["cells"].as_array().unwrap()) {
        for key in ["device", "policy", "rep"] {
            assert_eq!(of_kernel[key], of_model[key]);
        }
        assert_eq!(of_kernel["postmark"]["bytes_written"], of_model["postmark"]["bytes_written"]);
    }
    assert_eq!(cells[0]["device_stats"]["trim_commands"], 0);
}

#[test]
fn what_cannot_run_is_refused_with_what_can() {
    let folder = folder_with_postmark();
    let refused = |rest: &str, words: &[&str]| {
        fails(folder.path(), &format!("compare --target kernel:{rest}"), 2, words);
    };
    refused("", &["VERSION:FS"]);
    refused("6.1", &["VERSION:FS"]);
    refused("6.1:ntfs", &["'ntfs'", "ext4, xfs, btrfs, f2fs"]);
    refused("6.1:ext4:discard", &["'discard'", "--policy"]);
    refused("6.1:ext4 --policy async", &["'async'", "off (mount option nodiscard)", "batch:EVERY"]);
    refused("6.1:xfs --policy lazy+reuse", &["'lazy+reuse'", "xfs"]);
    refused("6.1:ext4 --policy batch:0s", &["batch:0s"]);
    refused("6.1:ext4 --linux 6.1", &["--linux"]);
    refused("6.1:ext4 --fill", &["--fill"]);
    fails(folder.path(), "kernel run 6.1:ext4", 2, &["PROGRAM"]);
    fails(
        folder.path(),
        "kernel run 6.1:ext4 --trace t.txt -- true",
        2,
        &["FILE.csv, FILE.json, FILE.blktrace"],
    );
    fails(folder.path(), "kernel run 6.1:ext4 --trace small.json -- /tmp/x", 2, &["below /tmp"]);
    fails(folder.path(), "kernel run 6.1:ext4 --memory 32 -- true", 2, &["from 64 to"]);
    fails(
        folder.path(),
        "kernel run 6.1:ext4 --trace a.csv --json a.csv -- true",
        2,
        &["two different places"],
    );
    fails(folder.path(), "kernel run 6.1:ext4 --trace f/x.csv/ -- true", 2, &["names a directory"]);
    fails(
        folder.path(),
        "kernel run 6.1:ext4 --boot slub_debgu=1 -- true",
        2,
        &["does not know 'slub_debgu=1'"],
    );
    fails(folder.path(), "kernel run 6.1:ext4 --boot x -- true", 2, &["does not know 'x'"]);
    fails(folder.path(), "reproduce capacity --on kernel:6.1:ext4", 2, &["capacity", "postmark-vendors"]);
    fails(folder.path(), "reproduce postmark-vendors --only vendor7", 2, &["vendor7", "vendor1, vendor2"]);

    let mut command = trimwise(folder.path(), "compare --target kernel:6.1:ext4");
    let empty = tempfile::tempdir().unwrap();
    let output = command.env("TRIMWISE_KERNELS", empty.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("trimwise kernel build --version 6.1"), "{message}");
    let output = trimwise(folder.path(), "compare --target kernel:4.4:ext4")
        .env("TRIMWISE_KERNELS", empty.path())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("4.4"), "{message}");
}

#[test]
fn what_does_not_fit_is_refused_before_a_kernel_is_booted() {
    if !is_there(FileSystem::Ext4) || !is_there(FileSystem::Xfs) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let huge = "set number 100000\nset size 1000000 1000000\nrun\n";
    fs::write(folder.path().join("huge.pmrc"), huge).unwrap();
    let line = "compare --target kernel:6.1:ext4 --workload huge.pmrc";
    fails(folder.path(), line, 2, &["huge.pmrc", "larger --device"]);
}
