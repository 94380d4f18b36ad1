//! Runs the built binary as a user or a script does: exit codes, and one clear message each.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn trimwise_in(directory: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimwise"))
        .args(line.split_whitespace())
        .current_dir(directory)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs in an empty directory, which must be empty afterwards; expects exit code 2 and the given words.
#[track_caller]
fn refused(line: &str, words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let output = trimwise_in(dir.path(), line);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {message}");
    assert_eq!(text(&output.stdout), "", "{line}");
    assert_eq!(message.matches("error:").count(), 1, "{line}: {message}");
    for word in words {
        assert!(message.contains(word), "{line}: '{word}' is not in: {message}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{line} left something behind");
}

#[test]
fn the_version_is_named() {
    let output = trimwise_in(Path::new("."), "--version");
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), format!("trimwise {}\n", trimwise::VERSION));
}

#[test]
fn help_has_examples_and_no_line_is_wider_than_a_terminal() {
    for line in [
        "--help",
        "compare --help",
        "advise --help",
        "trim --help",
        "record --help",
        "devices --help",
        "verify --help",
    ] {
        let output = trimwise_in(Path::new("."), line);
        let help = text(&output.stdout);
        assert!(output.status.success() && help.contains("Examples:"), "{line}");
        assert!(help.lines().all(|l| l.chars().count() <= 100), "{help}");
    }
}

#[test]
fn json_without_a_file_is_printed_and_quiet_prints_nothing_else() {
    for line in ["policies --json", "policies -J", "policies -q -J", "-q policies --json -", "devices -J -q"]
    {
        let json = text(&trimwise_in(Path::new("."), line).stdout);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!((&json["schema"], &json["trimwise"]), (&1.into(), &trimwise::VERSION.into()), "{line}");
    }
    let output = trimwise_in(Path::new("."), "policies --quiet");
    assert!(output.status.success() && output.stdout.is_empty());
    let output = trimwise_in(Path::new("."), "compare -q -w nosuch.pmrc -n 1 -s 2 -p off -d sata-small -j 1");
    assert!(text(&output.stderr).contains("nosuch.pmrc"));
}

#[test]
fn wrong_words_are_refused() {
    refused("comparre", &["comparre", "compare"]);
    let reps = "from 1 to 1000";
    refused("compare --reps 0", &["--reps", "'0'", reps]);
    refused("compare --reps many", &["--reps", "'many'", reps]);
    refused("compare --reps -1", &["--reps", "'-1'", reps]);
    refused("trim / --dry-run --wait", &["cannot be used with", "--wait"]);
    refused("trim / --min-extent 1MiB --run nowhere", &["cannot be used with", "--run"]);
    refused("compare --jobs 0", &["--jobs", "'0'", "from 1 to 1024"]);
    refused("compare --utilization 101", &["--utilization", "'101'", "from 0 to 100"]);
    refused("compare --utilization -5", &["--utilization", "'-5'", "from 0 to 100"]);
    refused("compare --memory 1e9", &["--memory", "'1e9'", "from 64 to 1048576"]);
    refused("compare --seed=-1", &["--seed", "'-1'", "from 0 to 18446744073709551615"]);
    refused("compare --seed abc", &["--seed", "'abc'", "from 0 to 18446744073709551615"]);
    refused("verify", &["TARGET"]);
    refused("verify sata-small --fault broken", &["'broken'", "broken-promise"]);
    refused("verify sata-small --torture 0", &["--torture", "'0'", "from 1 to 10000"]);
    refused("verify sata-small --rest -1", &["--rest", "'-1'", "from 0 to 86400"]);
    refused("verify sata-small --size 0", &["--size", "above 0"]);
    refused("verify sata-small --content soft", &["soft", "compressible"]);
}

#[test]
fn a_policy_that_does_not_parse_is_refused_with_those_that_do() {
    refused("compare --policy lasy", &["lasy", "column 1", "off, commit, kernel515", "adaptive, ideal"]);
    refused("compare --policy set:90:40", &["set:90:40", "column 5", "at most 40"]);
    refused("compare --policy lazy:0:4", &["column 6", "from 1 to 1024"]);
    refused("compare --policy commit+lazy", &["column 8", "contradicts"]);
}

/// Each of these was accepted silently, or refused with an unhelpful message.
#[test]
fn regression_likely_mistakes_are_understood_or_refused_with_a_hint() {
    for line in ["compare --device sata-smal", "verify sata-smal", "devices sata-smal"] {
        refused(line, &["did you mean `sata-small`?"]);
    }
    refused("compare --workload /dev/null", &["/dev/null: has no line `run`", "add one"]);
    refused("compare --policy off --report -", &["--report -: cannot be printed; expected a directory"]);
    refused(
        "policies --json /proc/x",
        &["--json /proc/x: cannot create a file in /proc: its file system does not allow new files"],
    );
    refused(
        "compare --policy discard commit --reps 1",
        &["'commit' is given twice, as 'discard' and as 'commit'"],
    );
    refused("compare --policy nodiscard off", &["'off' is given twice, as 'nodiscard' and as 'off'"]);
    refused("compare --policy lazy lazy", &["'lazy' is given twice; expected each once"]);
    refused("compare --policy fstrim batch:1w", &["'batch:1w' is given twice"]);
}

/// An empty word, as of an unset variable, was shown as nothing at all.
#[test]
fn regression_an_empty_word_is_refused_with_its_option() {
    for (words, option) in [
        (&["compare", "--workload", ""][..], "--workload"),
        (&["compare", "--device", ""], "--device"),
        (&["compare", "--target", ""], "--target"),
        (&["verify", ""], "<TARGET>"),
        (&["devices", ""], "NAME|FILE"),
    ] {
        let output = crate::common::trimwise(words);
        crate::common::refused(2, &output, &["''", option, "expected "]);
    }
}

#[test]
fn regression_what_is_no_file_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("mail.pmrc"), "run\n").unwrap();
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let below = path("mail.pmrc/x");
    refused(&format!("compare --workload {below}"), &[&below, "a part of its path is not a directory"]);
    for line in ["compare --workload", "compare --device", "devices"] {
        refused(&format!("{line} {}", path("pipe")), &["pipe: is not a regular file"]);
    }
}

#[test]
fn a_workload_that_cannot_fit_is_refused_before_the_run() {
    for percent in [90, 100] {
        let option = format!("--utilization {percent}");
        let words = ["--workload default on sata-small", &option, "at one time", "free"];
        refused(&format!("compare --workload default {option}"), &words);
    }
}

#[test]
fn a_workload_that_does_not_parse_is_refused_with_its_column() {
    let words = ["workload 'append:64Q'", "column 8", "'64Q' is not a size", "from 4KiB to 256MiB"];
    refused("compare --workload append:64Q", &words);
    refused("compare --workload fullwrite:64KiB:1GiB:sync", &["column 22", "nofsync"]);
    refused("compare --workload append:64KiB:4GiB", &["on sata-small", "needs 3.", "append:APPEND:FILE"]);
    refused("compare --workload nosuch.pmrc", &["nosuch.pmrc", "append[:APPEND[:FILE]]", "fullwrite"]);
    refused("compare --workload append --postmark", &["--postmark", "append is not PostMark"]);
}

#[test]
fn a_real_file_system_is_not_filled_unasked() {
    let words = ["--workload fullwrite:64KiB:1MiB", "so that nothing else can write there", "--fill"];
    refused("compare --workload fullwrite:64KiB:1MiB --target dir:.", &words);
    refused("compare --workload fullwrite --fill", &["--fill", "--target dir:PATH"]);
    refused("compare --workload append:4KiB:8KiB --target dir:. --fill", &["--fill", "fills no file system"]);
}

#[test]
fn a_firmware_is_named_behind_the_device() {
    refused("compare --device vertex-60gb@1.6", &["vertex-60gb:", "\"1.6\"", "one of 1.3, 1.4, 1.41, 1.5"]);
    refused("compare --device sata-small@1", &["this profile has no firmware variants"]);
    refused("devices nosuch@1", &["error: nosuch: neither a built-in name", "vertex-60gb"]);
    let words = ["--policy commit", "vertex-60gb@1.3 does not support TRIM", "off"];
    refused("compare --device vertex-60gb@1.3 --policy off commit", &words);
    let list = text(&trimwise_in(Path::new("."), "devices").stdout);
    assert!(list.contains("vertex-60gb ") && list.contains("1.3, 1.4,"), "{list}");
    let output = trimwise_in(Path::new("."), "devices vertex-60gb@1.41 --json -");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["device"]["name"], "vertex-60gb@1.41");
}

#[test]
fn the_terms_of_policies_are_listed() {
    let output = trimwise_in(Path::new("."), "policies");
    let list = text(&output.stdout);
    assert!(
        output.status.success()
            && list.contains("lazy[:MIN:MAX]")
            && list.contains(" L judicious")
            && list.contains("*L trimwised")
    );
    let json: serde_json::Value =
        serde_json::from_slice(&trimwise_in(Path::new("."), "policies --json -").stdout).unwrap();
    assert_eq!(json["terms"].as_array().unwrap().len(), trimwise::policy::terms().len() + 2, "and the hosts");
    assert!(
        json["examples"].as_array().unwrap().iter().any(|e| e["policy"] == "ideal" && e["bound"] == true)
    );
    let help = text(&trimwise_in(Path::new("."), "compare --help").stdout);
    for (term, meaning) in trimwise::policy::terms() {
        assert!(help.contains(&format!("\n  {term}\n      {meaning}\n")), "{term}, {meaning}: {help}");
    }
}

#[test]
fn the_same_policy_twice_is_refused() {
    refused("compare --policy off --policy off", &["--policy off", "twice"]);
}

#[test]
fn a_device_or_workload_that_is_neither_name_nor_file_is_refused() {
    refused("compare --device nosuch.toml", &["nosuch.toml"]);
    refused("advise --device vertex-60gb@1.3", &["does not support TRIM", "expected one that does"]);
    refused("advise --check kernel:6.12:xfs", &["only ext4"]);
    refused("advise --seed 18446744073709551615", &["--seed"]);
    refused("compare --device /proc", &["/proc", "directory"]);
    refused("compare --device /dev/zero", &["/dev/zero", "1 MiB"]);
}

#[test]
fn targets_that_are_none_are_refused() {
    refused("compare --target disk", &["--target disk", "dir:PATH"]);
    refused("compare --target dir:", &["no directory given"]);
    refused("compare --target dir:/no/such/directory", &["/no/such/directory"]);
}

#[test]
fn here_sets_up_the_model_only() {
    refused("compare --here / --target dir:/tmp", &["--here cannot be used with --target dir:/tmp"]);
    refused("compare --full-size", &["--here <PATH>"]);
    refused("compare --here nowhere", &["--here nowhere:", "No such file or directory"]);
    refused("compare --here /proc", &["--here /proc: proc: ", "or --device to name the profile"]);
}

#[test]
fn a_real_directory_does_not_pretend_to_have_policies() {
    refused("compare --target dir:. --policy off", &["--policy", "mounted with"]);
    refused("compare --target dir:. --device sata-small", &["--device", "for the model"]);
    refused("compare --target dir:. --seed 7", &["--seed", "set seed"]);
    refused("compare --target dir:. --utilization 50", &["--utilization", "for the model"]);
}

#[test]
fn existing_files_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("r.json"), "precious").unwrap();
    std::fs::write(dir.path().join("index.html"), "precious").unwrap();
    for (line, word) in [
        ("compare --json r.json", "r.json: already exists"),
        ("compare --report .", "index.html: already exists"),
        ("compare --report r.json", "--report r.json: is a file; expected a directory"),
        ("compare --json r.json/x", "--json r.json/x: a part of this path is a file"),
        ("compare --json .", "is a directory"),
        ("compare --json no/such/r.json", "does not exist"),
    ] {
        let output = trimwise_in(dir.path(), line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(text(&output.stderr).contains(word), "{line}: {}", text(&output.stderr));
    }
    for file in ["r.json", "index.html"] {
        assert_eq!(std::fs::read_to_string(dir.path().join(file)).unwrap(), "precious");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// An option missing from the guide would not be found, and a long line would not be read.
#[test]
fn the_guide_names_every_option_of_compare_and_others() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let lines = [
        "compare --help",
        "advise --help",
        "bench --help",
        "report --help",
        "sweep --help",
        "trim --help",
        "device attach --help",
        "device serve --help",
    ];
    let help = lines.map(|line| text(&trimwise_in(Path::new("."), line).stdout)).concat();
    let listed = help
        .lines()
        .map(str::trim_start)
        .filter_map(|l| l.split_whitespace().find(|w| w.starts_with("--")).map(|w| w.trim_end_matches(',')));
    let options: Vec<&str> = listed.filter(|o| *o != "--help" && *o != "--version").collect();
    assert!(options.contains(&"--memory"), "{options:?}");
    for option in options {
        assert!(guide.contains(option), "{option} is not in the guide");
    }
    for line in guide.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}
