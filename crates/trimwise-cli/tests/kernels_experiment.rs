//! `trimwise reproduce kernels` on real kernels: ext4 of 6.1, or with `KERNELS=full` every kernel that is built and every
//! file system; and what is refused before anything boots.

use std::io::Write as _;
use std::process::{Command, Output};

use serde_json::Value;
use trimwise_host::kernel::images;

fn reproduce(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
    command.arg("reproduce").args(arguments.split_whitespace());
    command
}

/// Says so past the test harness, which would keep it to itself.
fn skipped(why: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes()).unwrap();
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Claims about one kernel of ext4 that its discard is known to meet, whatever the drive.
fn is_met(result: &Value, id: &str) -> bool {
    let claims = result["claims"].as_array().unwrap();
    let claim = claims.iter().find(|claim| claim["id"] == id);
    claim.unwrap_or_else(|| panic!("no claim {id}"))["met"].as_bool().unwrap()
}

#[test]
fn real_kernels_discard_as_the_source_says_and_the_same_each_time() {
    let full = std::env::var("KERNELS").is_ok_and(|value| value == "full");
    if let Err(error) = images::find("6.1") {
        return skipped(&error.to_string());
    }
    let arguments = if full { "kernels --json -" } else { "kernels --only 6.1:ext4 --json -" };
    let [first, second] = [(); 2].map(|()| reproduce(arguments).output().unwrap());
    assert!(first.status.success() && second.status.success(), "{}{}", error(&first), error(&second));
    assert!(first.stdout == second.stdout, "two runs differ");

    let result: Value = serde_json::from_slice(&first.stdout).unwrap();
    for id in ["kernels-gaps-free-6.1", "kernels-when-6.1", "kernels-fitrim-ext4"] {
        assert!(is_met(&result, id), "{id}: {:#}", result["claims"]);
    }
    let runs = result["rows"]["deletions"].as_array().unwrap();
    let of = |options: &str| {
        let is_it = |run: &&Value| {
            run["kernel"] == "6.1" && run["file_system"] == "ext4" && run["options"] == options
        };
        &runs.iter().find(is_it).unwrap()["deletions"]
    };
    for (i, extents) in [1..=64, 1000..=1024, 1000..=1024].into_iter().enumerate() {
        let (with, without) = (&of("discard")[i], &of("nodiscard")[i]);
        assert_eq!(without["discards"]["commands"], 0);
        assert_eq!(with["covered_bytes"], with["freed_bytes"], "all that was freed is discarded");
        let pieces = with["extents"].as_u64().unwrap();
        assert!(extents.contains(&pieces), "{}: {pieces} pieces", with["layout"]);
    }
}

#[test]
fn what_there_is_not_is_refused_with_what_there_is() {
    let empty = tempfile::tempdir().unwrap();
    let refused = |arguments: &str, words: &[&str]| {
        let output = reproduce(arguments).env("TRIMWISE_KERNELS", empty.path()).output().unwrap();
        let message = error(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(words.iter().all(|word| message.contains(word)), "{arguments}: {message}");
        assert!(output.stdout.is_empty());
    };
    refused("kernels --only 4.4", &["--only 4.4", "5.10, 6.1, 6.12", "ext4, xfs, btrfs, f2fs"]);
    refused("kernels --only 6.1:zfs", &["--only 6.1:zfs", "ext4, xfs, btrfs, f2fs"]);
    refused("kernels --only 6.1", &["trimwise kernel build --version 6.1"]);
    refused("kernels", &["--version 5.10", "--version 6.1", "--version 6.12"]);
    refused("settling --only 6.1", &["--only", "settling"]);
}
