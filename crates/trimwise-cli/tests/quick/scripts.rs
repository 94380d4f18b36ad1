//! The scripts that run the tests, with a `cargo` that builds nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{has_python, text};

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

/// Facts of docs/model.md about kernels are looked up in a source: a wrong constant, a function under another name and a
/// text that should be missing are named, and what no source is there for is counted.
#[test]
fn facts_about_kernels_are_checked_against_a_source() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, content: &str| {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write("tree/Makefile", "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 7\n");
    write(
        "tree/fs/a.c",
        "#define DEPTH 16 /* at first */\nstatic int limit(int n);\nstatic int\nlimit(int n)\n{\n\t/* n / 4 */\n\treturn n\n\t\t/ 3;\n}\n",
    );
    let run = |rows: &str| {
        write(
            "facts.md",
            &format!("## Facts about kernels\n\n| claim | file |\n{rows}\n## Sources\n| `x` |\n"),
        );
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/check-kernel-facts");
        let mut command = Command::new(script);
        let command = command.arg("--facts").arg(dir.path().join("facts.md")).arg(dir.path().join("tree"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    };
    let depth = "| the depth | fs/a.c | `DEPTH` | 6.12 7.3 | `16` |";
    let third = "| a third | fs/a.c | `limit` | 6.12, not 6.1 | `return ... / 3` |";
    let (code, said) = run(&format!("{depth}\n{third}"));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("2 facts, 2 checks on 6.12.7: 0 wrong; not checked here: 2, of 6.1, 7.3"),
        "{said}"
    );
    for (row, expected) in [
        (
            depth.replace("`16`", "`17`"),
            "facts.md:4: the depth: fs/a.c of Linux 6.12.7: expected `17`, found `#define DEPTH 16`",
        ),
        (depth.replace("`16`", "`1`"), "expected `1`, found `#define DEPTH 16`"),
        (third.replace("/ 3", "/ 4"), "expected `return ... / 4`, found limit without it"),
        (third.replace("limit", "limits"), "found no limits"),
        (third.replace("a.c", "b.c"), "found no such file"),
        (
            third.replace("6.12, not 6.1", "6.1, not 6.12"),
            "expected limit without `return ... / 3`, which it has",
        ),
        (depth.replace("6.12 7.3", "7.3"), "0 checks on 6.12.7: 0 wrong; not checked here: 1, of 7.3"),
        (
            depth.replace("`16` |", ""),
            "facts.md:4: expected | claim | file | `name` | versions, not versions | `text` |",
        ),
    ] {
        let (code, said) = run(&row);
        assert_eq!(code, Some(1), "{row}\n{said}");
        assert!(said.contains(expected), "'{expected}' for {row}\n{said}");
    }
}
