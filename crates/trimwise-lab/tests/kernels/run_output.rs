//! What `kernel run` prints and keeps: output as it comes, whatever ends the run, and why it ended.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use trimwise_uml::job::FileSystem;

use crate::common::{command_in as trimwise, refused, said, text};
use crate::guest_daemon::kernel;

/// Returns a folder for runs on 6.1; `None` if that is not built.
fn folder() -> Option<TempDir> {
    kernel(FileSystem::Ext4).map(|_| tempfile::tempdir().unwrap())
}

fn shell(folder: &Path, target: &str, options: &str, script: &str) -> Command {
    let mut command = trimwise(folder, &format!("kernel run {target} --memory 128 {options} -- sh -c"));
    command.arg(script);
    command
}

fn run(folder: &Path, target: &str, options: &str, script: &str) -> Output {
    shell(folder, target, options, script).output().unwrap()
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// The program never ends, so its first line can only come while it runs. The first time, 25 minutes of a test suite were
/// lost to Ctrl-C.
#[test]
fn output_comes_while_the_program_runs_and_outlives_an_interrupt() {
    let Some(folder) = folder() else { return };
    let script = "echo first; echo second >&2; while :; do :; done";
    let mut command = shell(folder.path(), "6.1:ext4", "--json result.json", script);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    let mut second = [0; 7];
    child.stderr.as_mut().unwrap().read_exact(&mut second).unwrap();
    assert_eq!(&second, b"second\n");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    let result = json(&folder.path().join("result.json"));
    assert_eq!(result["failure"], "interrupted");
    assert_eq!(result["program"]["output"], "first\n");
    assert_eq!(result["program"]["errors"], "second\n");
}

/// Each write to either stream comes out in its turn, although two pipes carry them.
#[test]
fn both_streams_keep_their_order() {
    let Some(folder) = folder() else { return };
    let script = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done";
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = shell(folder.path(), "6.1:ext4", "--quiet", script);
    let mut child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
    drop(command);
    let mut both = String::new();
    reader.read_to_string(&mut both).unwrap();
    assert!(child.wait().unwrap().success());
    let expected: String = (1..10).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(both, expected);
}

/// More than a pipe holds, which nobody reads until the run is over.
#[test]
fn a_guest_does_not_notice_how_fast_its_output_is_read() {
    let Some(folder) = folder() else { return };
    let script = "for i in 1 2 3 4 5; do seq 9999; cp /bin/sh $i; sync; cat /proc/uptime; done";
    let options = |name: &str| format!("--json {name}.json --trace {name}.csv");
    assert!(run(folder.path(), "6.1:ext4", &options("read"), script).status.success());
    let mut command = shell(folder.path(), "6.1:ext4", &options("unread"), script);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let file = |name: &str| folder.path().join(name);
    while !file("unread.json").exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(child.try_wait().unwrap().is_none(), "its output has not been read yet");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"1\n2\n"));
    for ending in ["json", "csv"] {
        let [read, unread] =
            ["read", "unread"].map(|name| fs::read(file(&format!("{name}.{ending}"))).unwrap());
        assert!(read == unread, "the {ending} differs");
    }
}

#[test]
fn whatever_ends_a_run_its_output_is_kept_and_the_cause_is_named() {
    let Some(folder) = folder() else { return };
    let ends = |options: &str, how: &str, words: &[&str]| {
        let script = format!("echo said; echo complained >&2; {how}");
        let options = format!("--json result.json --force {options}");
        let output = run(folder.path(), "6.1:ext4", &options, &script);
        refused(1, &output, words);
        assert!(text(&output.stdout).starts_with("said\n"), "{how}: {}", text(&output.stdout));
        assert!(text(&output.stderr).starts_with("complained\n"), "{how}: {}", text(&output.stderr));
        let result = json(&folder.path().join("result.json"));
        assert!(result["program"]["output"].as_str().unwrap().starts_with("said\n"), "{how}");
        assert!(result["program"]["errors"].as_str().unwrap().starts_with("complained\n"), "{how}");
        let failure = result["failure"].as_str().unwrap();
        assert!(words.iter().all(|words| failure.contains(words)), "{how}: {failure}");
    };
    let hangs = "while :; do :; done";
    ends("--max-silence 2", hangs, &["the kernel said nothing for 2 s"]);
    ends("--max-wall 2", hangs, &["the run was stopped after 2 s"]);
    ends("", "sleep infinity", &["2592000 s of virtual time"]);
    ends("", "exec yes", &["standard output: longer than 16 MiB"]);
    let panics =
        "mount -o remount,errors=panic /dev/vda .; echo 1 >/sys/fs/ext4/vda/trigger_fs_error; sleep 1";
    ends("", panics, &["Kernel panic - not syncing: EXT4-fs"]);
    ends("", "tail /dev/zero; true", &["ran out of memory", "killed 'tail'", "--memory"]);
    let without_memory = "echo 1 >/proc/sys/vm/panic_on_oom; tail /dev/zero";
    ends("", without_memory, &["the kernel stopped unexpectedly", "ran out of memory", "--memory"]);
    ends("", "kill -9 $$", &["sh: ended by signal 9 (SIGKILL)"]);
    ends("", "sh -c 'kill -9 $$'", &["exit code 137, by which a shell reports signal 9 (SIGKILL)"]);
    ends("", "echo o >/dev/tty15", &["/dev/tty15"]);
    assert!(fs::read_dir(folder.path()).unwrap().count() == 1, "only the JSON is left");
}

/// Once a failed run without a report: programs mount over the folders through which guest and host work together, and
/// leave mounts behind that hide the file system or keep it in use.
#[test]
fn regression_mounts_over_the_guest_s_own_folders_do_no_harm() {
    let Some(folder) = folder() else { return };
    for script in [
        "mount -t tmpfs t /tmp/run; mount -t tmpfs t /tmp; cp /bin/sh x; sync; echo said",
        "mount -t tmpfs t /tmp/fs; mount -t tmpfs t /tmp/run; cp /bin/sh x; sync; echo said",
        "umount -l /tmp/run; cp /bin/sh x; sync; echo said",
    ] {
        let output =
            run(folder.path(), "6.1:ext4", "--json result.json --force", &format!("set -e; {script}"));
        said(&output, &["said\n", "unmount"]);
        let result = json(&folder.path().join("result.json"));
        let of_unmount = &result["phases"][1]["requests"];
        assert!(of_unmount["flushes"].as_u64() > Some(0), "{script}: {of_unmount}");
        assert!(result["failure"].is_null() && result["is_unmounted_by_program"].is_null(), "{result}");
    }
}

#[test]
fn a_run_that_wrote_nothing_says_so() {
    let Some(folder) = folder() else { return };
    let nothing = "Nothing was written to the drive before the unmount, which wrote ";
    said(&run(folder.path(), "6.1:ext4", "", "echo 'set size x' | cat >/dev/null"), &[nothing]);
    let wrote = run(folder.path(), "6.1:ext4", "", "cp /bin/sh x; sync");
    assert!(wrote.status.success() && !text(&wrote.stdout).contains(nothing), "{}", text(&wrote.stdout));
    let trimmed = run(folder.path(), "6.1:ext4", "", "fstrim .");
    assert!(
        trimmed.status.success() && !text(&trimmed.stdout).contains(nothing),
        "{}",
        text(&trimmed.stdout)
    );
    said(&run(folder.path(), "6.1:none", "", "true"), &["Nothing was written to the drive."]);
}

/// As test suites do that make file systems themselves, with what they expect in `/dev`.
#[test]
fn a_program_may_have_the_drive_to_itself() {
    let Some(folder) = folder() else { return };
    let uses = "mkfs.xfs -qf /dev/vda; mkdir -p /tmp/a; mount /dev/vda /tmp/a; cp /bin/sh /tmp/a";
    let begins = "set -e; cd /; test -b /dev/vda";
    let devices = "echo out >/dev/stdout; echo fd | cat /dev/fd/0; python3 -c 'import os, multiprocessing; \
                   multiprocessing.Lock(); os.close(os.openpty()[0])'";
    let left = run(
        folder.path(),
        "6.1:ext4",
        "--json left.json",
        &format!("{begins}; umount /tmp/fs; {uses}; umount /tmp/a"),
    );
    said(&left, &["ext4 of Linux 6.1.", "The program unmounted /tmp/fs"]);
    assert_eq!(json(&folder.path().join("left.json"))["is_unmounted_by_program"], true);
    let options = "--json none.json --trace none.csv";
    let none = run(
        folder.path(),
        "6.1:none",
        options,
        &format!("{begins}; {devices}; ! umount /tmp/fs 2>&1; {uses}"),
    );
    said(&none, &["out\nfd\n", "not mounted", "Linux 6.1.", "without a file system"]);
    let result = json(&folder.path().join("none.json"));
    assert_eq!(result["kernel"]["file_system"], "none");
    let requests = |phase: usize, of: &str| result["phases"][phase]["requests"][of].as_u64().unwrap();
    assert!(requests(0, "written_bytes") > 0 && requests(1, "written_bytes") > 100_000, "{result}");

    // What is on a drive, the program may bring as well.
    fs::File::create(folder.path().join("disk")).unwrap().write_all(&[b"boot".repeat(128)].concat()).unwrap();
    let of_image = run(folder.path(), "6.1:none", "--image disk", "head -c 8 /dev/vda; echo");
    said(&of_image, &["bootboot\n", "Image: disk"]);
    refused(2, &run(folder.path(), "6.1:none:discard", "", "true"), &["no mount options", "6.1:none"]);
    refused(2, &run(folder.path(), "6.1:none", "--aged 50", "true"), &["--aged needs a file system"]);
}

/// A full folder of temporary files cost the run its report, and could kill the command.
#[test]
fn regression_a_full_folder_of_temporary_files_costs_no_output() {
    let Some(folder) = folder() else { return };
    let script = "mount -t tmpfs -o size=800k tmpfs small || exit 77; \
                  TMPDIR=$PWD/small \"$0\" kernel run 6.1:ext4 --memory 128 -- sh -c 'dd if=/dev/zero of=/tmp/run/fill; echo said'; \
                  dd if=/dev/zero of=small/fill; TMPDIR=$PWD/small \"$0\" kernel run 6.1:ext4 -- true";
    fs::create_dir(folder.path().join("small")).unwrap();
    let program = env!("CARGO_BIN_EXE_trimwise-lab");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, program]).current_dir(folder.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    if output.status.code() == Some(77) || errors.starts_with("unshare: ") {
        return trimwise_testing::skipped("mounts of one's own need root");
    }
    assert!(errors.contains("'/tmp/run/fill': No space left on device"), "{errors}");
    assert!(out.starts_with("said\n") && out.contains("ext4 of Linux 6.1"), "{out}{errors}");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("error: cannot") && errors.contains("No space left on device"), "{errors}");
}
