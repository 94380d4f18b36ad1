//! Wrong words to the commands of the laboratory: exit codes, and one clear message each.

use std::process::Command;

use crate::common::{self, command_in, text, trimwise};

/// Runs in an empty directory, which must be empty afterwards; expects exit code 2 and the given words.
#[track_caller]
fn refused(line: &str, words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let output = command_in(dir.path(), line).output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(text(&output.stdout), "", "{line}");
    assert_eq!(message.matches("error:").count(), 1, "{line}: {message}");
    common::refused(2, &output, words);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{line} left something behind");
}

#[test]
fn help_has_examples_and_no_line_is_wider_than_a_terminal() {
    for line in [
        "reproduce --help",
        "crashtest --help",
        "kernel --help",
        "kernel build --help",
        "kernel list --help",
        "kernel remove --help",
    ] {
        let output = trimwise(&line.split(' ').collect::<Vec<_>>());
        let help = text(&output.stdout);
        assert!(output.status.success() && help.contains("Examples:"), "{line}");
        assert!(help.contains(&format!("Usage: trimwise {}", line.trim_end_matches(" --help"))), "{help}");
        assert!(help.lines().all(|l| l.chars().count() <= 100), "{help}");
    }
}

#[test]
fn wrong_words_are_refused() {
    let reps = "from 1 to 1000";
    refused("reproduce --all --reps -1", &["--reps", "'-1'", reps]);
    refused("reproduce --list --json x.json", &["--list"]);
    refused("crashtest --cuts 0", &["--cuts", "'0'", "from 1 to 10000000"]);
    refused("crashtest --cuts 5 --run 3", &["--cuts", "--run"]);
    for on_kernel in
        ["--device sata-small", "--fault ignores-trim", "--cut 3", "--soak 1min", "--remount discard"]
    {
        let option = on_kernel.split(' ').next().unwrap_or_default();
        refused(&format!("crashtest --policy lazy {on_kernel}"), &["cannot be used with", option]);
    }
    refused("crashtest --policy lasy", &["lasy", "did you mean `lazy`?"]);
    refused("reproduce", &["EXPERIMENT"]);
    refused("reproduce x --all", &["cannot be used with"]);
    refused("bench sata-smal fill", &["sata-smal: neither a built-in name", "did you mean `sata-small`?"]);
}

/// An empty word, as of an unset variable, was shown as nothing at all.
#[test]
fn regression_an_empty_word_is_refused_with_its_option() {
    for (words, option) in [
        (&["bench", "", "fill"][..], "<TARGET>"),
        (&["device", "detach", ""], "NAME|/dev/loopN"),
        (&["device", "attach", "--profile", ""], "--profile"),
        (&["reproduce", "model-ext4", "--only", ""], "--only"),
    ] {
        common::refused(2, &trimwise(words), &["invalid value ''", option, "expected a non-empty value"]);
    }
}

#[test]
fn regression_what_is_no_file_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refused(&format!("bench {} fill", pipe.display()), &["pipe: is not a regular file"]);
}

#[test]
fn an_experiment_that_does_not_exist_is_refused() {
    refused(
        "reproduce postmark",
        &["'postmark'; did you mean `postmark-vendors`? Expected one of postmark-vendors, "],
    );
    refused("reproduce nosuch", &["unknown experiment 'nosuch'; expected one of postmark-vendors, "]);
}
