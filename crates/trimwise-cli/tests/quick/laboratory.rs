//! The program `trimwise-lab` as this one finds and asks it: missing, of another build, or saying anything.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use trimwise_cli::laboratory::{COMMANDS, Identity};

use crate::common::{refused, text};

/// A comparison that needs a kernel.
const ON_KERNEL: &str = "compare --target kernel:6.12:ext4 --workload append";

/// A folder with `trimwise`, and perhaps with something in place of `trimwise-lab`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let copied =
            Command::new("cp").args([env!("CARGO_BIN_EXE_trimwise").as_ref(), folder.path()]).status();
        assert!(copied.unwrap().success());
        Self(folder)
    }

    /// With a program of this build that answers a request by these lines of a shell.
    fn answering(lines: &str) -> Self {
        let identity = serde_json::to_string(&Identity::own()).unwrap();
        Self::identified(&identity, lines)
    }

    fn identified(identity: &str, lines: &str) -> Self {
        let place = Self::new();
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in\nidentity) echo '{identity}';;\nanswer) read -r asked; {lines};;\n\
             *) printf '<%s>' \"$@\"; exit 7;;\nesac\n"
        );
        place.write("trimwise-lab", &script);
        place
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // By another process: a program that another test starts meanwhile would keep the file open for writing for a
        // moment, and what is open for writing cannot be run.
        let mut install = Command::new("install");
        let mut install =
            install.args(["-m755", "/dev/stdin"]).arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(install.wait().unwrap().success(), "{}", path.display());
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(self.path().join("trimwise"));
        command.args(line.split_whitespace()).stdin(Stdio::null());
        command.env("PATH", "/usr/bin:/bin").env("NO_COLOR", "1").output().unwrap()
    }
}

#[test]
fn a_missing_program_is_named_with_where_it_was_looked_for_and_how_to_get_it() {
    let place = Place::new();
    let beside = place.path().join("trimwise-lab").display().to_string();
    let expected = [&*beside, "nor in the folders of PATH", "cargo install --path crates/trimwise-lab"];
    for (command, _) in COMMANDS {
        for line in [command.to_owned(), format!("help {command}"), format!("-q {command} --help")] {
            let named = format!("`trimwise {command}` needs the program trimwise-lab");
            refused(2, &place.run(&line), &[&[&*named][..], &expected].concat());
        }
    }
    for line in [ON_KERNEL, "compare --check kernel:6.12:ext4", "compare --fs xfs", "advise --fs btrfs"] {
        let named = "a real kernel needs the program trimwise-lab";
        refused(2, &place.run(line), &[&[named][..], &expected].concat());
    }
    let help = text(&place.run("--help").stdout);
    for (command, about) in COMMANDS {
        assert!(help.contains(&format!("{command} ")) && help.contains(about), "{command}: {help}");
    }
    refused(2, &place.run("kernell"), &["'kernell'", "kernel"]);
}

#[test]
fn what_needs_no_kernel_runs_without_the_program() {
    let place = Place::new();
    let line = "compare --workload append:4KiB:1MiB --utilization 1 --reps 1 --policy off commit";
    let output = place.run(line);
    assert!(output.status.success() && text(&output.stdout).contains("commit"), "{output:?}");
}

#[test]
fn its_commands_get_the_same_words_and_end_as_they_end() {
    let place = Place::answering("exit 1");
    for (line, expected) in [
        ("kernel list --quiet", "<kernel><list><--quiet>"),
        ("-q kernel run 6.12 -- a -b --help", "<-q><kernel><run><6.12><--><a><-b><--help>"),
        ("help reproduce", "<help><reproduce>"),
        ("crashtest --version", "<crashtest><--version>"),
    ] {
        let output = place.run(line);
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(7), expected), "{line}");
    }
    let in_path = Place::new();
    in_path.write("bin/trimwise-lab", &fs::read_to_string(place.path().join("trimwise-lab")).unwrap());
    let mut command = Command::new(in_path.path().join("trimwise"));
    let path = format!("/usr/bin:{}", in_path.path().join("bin").display());
    let output = command.args(["fit", "x"]).env("PATH", path).output().unwrap();
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(7), "<fit><x>"));
}

#[test]
fn a_program_of_another_build_is_refused_and_both_are_named() {
    let own = Identity::own();
    let other_version = r#"{"version":"9.9.9","build":"build 000000"}"#.to_owned();
    let other_build = format!(r#"{{"version":"{}","build":"build 000000"}}"#, own.version);
    for (identity, shown) in [
        (other_version, "version 9.9.9 (build 000000)".to_owned()),
        (other_build, format!("version {} (build 000000)", own.version)),
        ("trimwise-lab 0.1.0".to_owned(), "a program that does not say its version".to_owned()),
    ] {
        let place = Place::identified(&identity, "exit 1");
        let [light, lab] =
            ["trimwise", "trimwise-lab"].map(|name| place.path().join(name).display().to_string());
        for line in ["kernel list", ON_KERNEL, "generate completions bash"] {
            let expected = [&*format!("{lab} is {shown}"), &format!("{light} is {own}"), "of the same build"];
            refused(2, &place.run(line), &expected);
        }
    }
}

#[test]
fn a_failure_arrives_whole_and_so_do_notes() {
    for (answer, code, expected) in [
        (
            r#"{"answer":{"Err":{"usage":[{"asked":[{"key":{"name":"memory"},"value":"1"}],"why":[{"text":"a reason"}]}]}}}"#,
            2,
            "error: --memory 1: a reason",
        ),
        (r#"{"answer":{"Err":{"run":[{"text":"a guest died"}]}}}"#, 1, "error: a guest died"),
        (r#"{"answer":{"Err":"interrupted"}}"#, 130, "error: interrupted"),
        // A failure that looks like an answer is no answer.
        (
            r#"{"answer":{"Err":{"run":[{"text":"{\"answer\":{\"Err\":\"interrupted\"}}\nin its second line"}]}}}"#,
            1,
            "error: {\"answer\":{\"Err\":\"interrupted\"}}\nin its second line",
        ),
    ] {
        let lines = format!("cat <<'END'\n{{\"note\":\"it takes long\"}}\n{answer}\nEND\n");
        let output = Place::answering(&lines).run(ON_KERNEL);
        refused(code, &output, &["note: it takes long", expected]);
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_program_that_dies_or_talks_nonsense_fails_the_run() {
    for (lines, expected) in [
        ("exit 3", "trimwise-lab: ended before it answered (exit status: 3)"),
        ("exit 0", "trimwise-lab: ended before it answered (exit status: 0)"),
        ("echo '{\"note\":\"x\"}'; kill -9 $$", "ended before it answered (signal: 9 (SIGKILL))"),
        (
            "echo 'Segmentation fault'; exec sleep 60",
            "sent a message that trimwise does not understand: Segmentation fault",
        ),
        ("echo '{\"note\":3}'", "does not understand: {\"note\":3}"),
        ("printf '\\377\\n'", "does not understand: bytes that are not text"),
        // No display 1 has begun.
        ("echo '{\"finish\":{\"display\":1}}'", "does not understand: {\"finish\""),
        ("head -c 100000 /dev/zero | tr '\\0' x; echo", "xxx..."),
    ] {
        refused(1, &Place::answering(lines).run(ON_KERNEL), &[expected]);
    }
    let summary = r#"{"trimwise":"0","grid":"g","out":"o","product":"1","cells":1,"shard":null,"shard_cells":1,
        "found_cells":0,"broken_cells":0,"run_cells":0,"failed_cells":0,"missing_cells":1,"parts":[],"failures":[]}"#;
    let sweep = format!("{{\"sweep\":{{\"summary\":{summary},\"ended_by\":null,\"is_out\":false}}}}");
    let lines = format!("echo '{{\"answer\":{{\"Ok\":{}}}}}'", sweep.replace('\n', ""));
    refused(1, &Place::answering(&lines).run(ON_KERNEL), &["sent the answer to another kind of request"]);
}

#[test]
fn a_stop_is_passed_on_and_what_has_finished_is_shown() {
    let place = Place::answering(
        "echo '{\"stoppable\":\"stop_and_show\"}'; read -r stop; echo \"{\\\"note\\\":\\\"$(echo $stop | tr -d \\\")\\\"}\"; \
         echo '{\"answer\":{\"Err\":\"interrupted\"}}'",
    );
    let mut command = Command::new(place.path().join("trimwise"));
    command.args(ON_KERNEL.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.env("NO_COLOR", "1").spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // Until the handler is there, a signal would end it.
    let catches = || {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let mask =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap_or(0) & 2 != 0
    };
    while !catches() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    refused(130, &output, &["stopping with what has finished", "note: stop", "error: interrupted"]);
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_sweep_without_parquet_says_how_to_get_it_before_any_run() {
    let place = Place::new();
    place.write(
        "grid.toml",
        "devices = ['sata-small']\npolicies = ['off']\nworkloads = ['append:64KiB:4MiB']\n",
    );
    let [grid, out] = ["grid.toml", "out"].map(|name| place.path().join(name).display().to_string());
    let line = format!("sweep {grid} --out {out}");
    refused(2, &place.run(&line), &["built without", "--features parquet"]);
    assert!(!place.path().join("out").exists());
    crate::common::said(&place.run(&format!("{line} --dry-run")), &["1 cell"]);
    let with_it = Place::answering(r#"echo '{"answer":{"Err":{"run":[{"text":"it was asked"}]}}}'"#);
    refused(1, &with_it.run(&line), &["it was asked"]);
}
