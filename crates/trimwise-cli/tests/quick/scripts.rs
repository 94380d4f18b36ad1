//! The scripts that run the tests, with a `cargo` that builds nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::text;

/// `just full` once ignored failed parts and reported success.
#[test]
fn regression_the_unsampled_tests_go_on_after_a_failure_and_fail_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let cargo = dir.path().join("cargo");
    let run = |result: &str| {
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *device-mapper*) {result};; esac\n\
             echo 'test result: ok. 3 passed; 0 failed;'\n"
        );
        std::fs::write(&cargo, script).unwrap();
        std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test-full");
        let mut command = Command::new(script);
        let output = command.env("PATH", path).stdin(Stdio::null()).output().unwrap();
        let said = text(&output.stdout);
        let sums = said.split("== all parts\n").nth(1).unwrap_or_else(|| panic!("{said}")).to_owned();
        (output.status.code(), sums)
    };
    let (code, sums) = run("echo 'test result: FAILED. 1 passed; 2 failed;'; exit 1");
    assert_eq!(code, Some(1), "{sums}");
    assert_eq!(sums.lines().count(), 6, "{sums}");
    assert!(sums.contains("passed, 2 failed"), "{sums}");
    let (code, sums) = run("true");
    assert_eq!((code, sums.matches(", 0 failed").count()), (Some(0), 6), "{sums}");
}
