//! Traces in the commands: damaged ones, ones that show nothing to trim, and pipes on which nothing comes.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::runs::{catches_interrupts, interrupted, small_drive, trimwise};

const GOOD: &str = "fio version 3 iolog\n0 a write 0 4096\n9 a trim 0 4096\n20 a write 4096 4096\n";

fn output(dir: &Path, line: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = trimwise(dir, line).output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    // Tables fold their lines.
    (status.code(), stdout.split_whitespace().collect::<Vec<_>>().join(" "), stderr)
}

/// A record of blktrace: a write that is issued.
fn issued(at: u64, sector: u64) -> Vec<u8> {
    let action = 7 | 1 << 22 | 1 << 17;
    let words = [0x6561_7407, 1, at as u32, 0, sector as u32, 0, 4096, action, 0, 8 << 20, 0, 0];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Every command uses what comes before the damage and says where it is; of a trace that is damaged from the start, none
/// has a result.
#[test]
fn regression_each_command_ends_where_a_trace_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
    small_drive(dir.path());
    write("good", GOOD.as_bytes());
    assert_eq!(output(dir.path(), "trace convert good own").0, Some(0));
    let own = std::fs::read(dir.path().join("own")).unwrap();
    write("cut", &own[..own.len() - 2]);
    write("wrong", (GOOD.to_owned() + "30 a fly 0 4096\n31 a write 0 4096\n").as_bytes());
    write("late.blktrace.1", &[issued(1, 8), issued(9, 16)].concat());
    write("nothing", b"fio version 3 iolog\n0 a fly 0 4096\n0 a write 0 4096\n");
    for (trace, place, code) in [
        ("cut", "record 3: the trace is cut off", 0),
        ("wrong", "line 5: action 'fly'; expected", 0),
        ("late", "late.blktrace.0: no such file", 0),
        ("nothing", "line 2: action 'fly'; expected", 2),
    ] {
        std::fs::write(
            dir.path().join("grid.toml"),
            format!("devices = ['small.toml']\npolicies = ['off']\nutilizations_percent = [0]\nworkloads = ['trace:{trace}']"),
        )
        .unwrap();
        let mut lines = vec![
            format!("trace info {trace}"),
            format!("trace convert {trace} {trace}.copy"),
            format!(
                "compare --workload trace:{trace} --device small.toml --utilization 0 --policy off --reps 1"
            ),
            format!("replay {trace} file:{trace}.img --size 1MiB"),
        ];
        if cfg!(feature = "parquet") {
            lines.push(format!("sweep grid.toml --out {trace}.cells"));
        }
        for line in lines {
            let (found, stdout, stderr) = output(dir.path(), &line);
            assert_eq!(found, Some(code), "{line}: {stderr}");
            let said = if code == 0 { &stdout } else { &stderr };
            assert!(
                said.contains(place) && stdout.contains("Partial") == (code == 0),
                "{line}: {stdout} {stderr}"
            );
        }
    }
    // A copy is as damaged as its original.
    assert!(
        output(dir.path(), "trace info wrong.copy").1.contains("Partial: record 4: the trace is cut off")
    );
    // All processors but the first, one of them compressed since, and a copy that was kept.
    write("late.blktrace.0", &issued(5, 80));
    write("late.blktrace.0.gz", b"a copy");
    let (_, stdout, _) = output(dir.path(), "trace info late");
    assert!(stdout.contains("3 records") && stdout.contains("Complete"), "{stdout}");
}

#[test]
fn regression_what_cannot_be_compared_is_refused_before_any_run() {
    let dir = tempfile::tempdir().unwrap();
    small_drive(dir.path());
    std::fs::write(dir.path().join("t.csv"), "1,usr,0,Write,0,4096,9\n2,usr,0,Read,0,4096,9\n").unwrap();
    std::fs::write(
        dir.path().join("grid.toml"),
        "devices = ['small.toml']\npolicies = ['off', 'commit']\nutilizations_percent = [0]\nworkloads = ['trace:t.csv']",
    )
    .unwrap();
    for line in [
        "compare --workload trace:t.csv --device small.toml --utilization 0 --policy off commit",
        "compare --workload trace:t.csv --device small.toml --utilization 0",
        "advise --workload trace:t.csv --device small.toml --utilization 0",
        "sweep grid.toml --out cells",
    ] {
        let (code, stdout, stderr) = output(dir.path(), line);
        assert_eq!((code, &*stdout), (Some(2), ""), "{line}: {stderr}");
        for part in ["t.csv", "neither discards nor frees", "--policy off", "trimwise record"] {
            assert!(stderr.contains(part), "{line}: {part} is not in {stderr}");
        }
    }
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    let grid = std::fs::read_to_string(dir.path().join("grid.toml")).unwrap().replace("t.csv", "folder");
    std::fs::write(dir.path().join("grid.toml"), grid).unwrap();
    for line in ["compare --workload trace:folder", "sweep grid.toml --out cells"] {
        let (code, _, stderr) = output(dir.path(), line);
        assert!(
            code == Some(2) && stderr.contains("a folder without blktrace's files DEV.blktrace.N"),
            "{line}: {stderr}"
        );
    }
    let off = "compare --workload trace:t.csv --device small.toml --utilization 0 --policy off --reps 1";
    assert_eq!(output(dir.path(), off).0, Some(0));
}

#[test]
fn regression_a_file_may_be_named_like_a_format() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("fio:c"), GOOD).unwrap();
    for (trace, code) in [("fio:c", 0), ("fio:fio:c", 0), ("fio:d", 2)] {
        assert_eq!(output(dir.path(), &format!("trace info {trace}")).0, Some(code), "{trace}");
    }
}

#[test]
fn regression_a_pipe_that_nobody_writes_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
    let mut command = trimwise(dir.path(), "trace info pipe");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no program has opened this pipe for writing within 5 s"), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}

#[test]
fn regression_one_stop_ends_what_waits_for_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap();
    assert!(made.success());
    for line in [
        "trace info pipe",
        "trace info -",
        "trace convert pipe copy",
        "trace convert fio:- copy",
        "replay fio:- file:new.img --size 1MiB",
    ] {
        let mut command = trimwise(dir.path(), line);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Its input stays open and silent; waiting for the child would close it.
        let input = child.stdin.take();
        assert_eq!(interrupted(child, catches_interrupts), Some(130), "{line}");
        drop(input);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half-written");
}
