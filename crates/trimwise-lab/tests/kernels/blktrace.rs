//! What a guest's kernel asked of its drive, as blktrace's records: for blkparse and btt, and for `trimwise trace`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Command, Stdio};

use serde_json::Value;
use trimwise_testing::program;

use crate::common::command_in as trimwise;
use crate::reproduction::{error, image};

#[test]
fn blkparse_btt_and_trimwise_read_what_a_kernel_asked_of_its_drive() {
    if image("6.1").is_none() {
        return;
    }
    let (Some(blkparse), Some(btt)) = (program("blkparse"), program("btt")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = |trace: &str| {
        let output =
            trimwise(folder.path(), &format!("kernel run 6.1:ext4:discard --trace {trace} -- sh -c"))
                .arg("dd if=/dev/zero of=a bs=1M count=3; sync; cat a >b; rm a; sync; sleep 6")
                .output()
                .unwrap();
        assert!(output.status.success(), "{}", error(&output));
    };
    // The same run each time.
    for trace in ["a.csv", "a.blktrace.0"] {
        run(trace);
    }

    // Requests by kind, and when the last of each kind completes after the first request of all.
    let csv = fs::read_to_string(folder.path().join("a.csv")).unwrap();
    let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut begin = None;
    for line in csv.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [at, done]: [u64; 2] = [fields[0].parse().unwrap(), fields[1].parse().unwrap()];
        let begin = *begin.get_or_insert(at);
        let (count, last) = expected.entry(fields[2].to_owned()).or_default();
        (*count, *last) = (*count + 1, (*last).max(done - begin));
    }
    assert!(["write", "discard", "flush"].iter().all(|kind| expected.contains_key(*kind)), "{expected:?}");

    // blkparse looks for a.blktrace.0, or reads it from a pipe.
    let parse = |input: &str, stdin: Stdio| -> String {
        let mut command = Command::new(&blkparse);
        command.args(["-q", "-i", input, "-f", "%a %d %T %t\n"]).current_dir(folder.path()).stdin(stdin);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", error(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .filter(|line| !line.starts_with("Input file"))
            .map(|line| line.to_owned() + "\n")
            .collect()
    };
    let text = parse("a", Stdio::null());
    assert_eq!(text, parse("-", File::open(folder.path().join("a.blktrace.0")).unwrap().into()));
    let mut found: BTreeMap<&str, BTreeMap<String, (u64, u64)>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [action, rwbs, seconds, nanoseconds] = words[..] else { continue };
        let kind = match rwbs.chars().next() {
            Some('R') => "read",
            Some('W') => "write",
            Some('D') => "discard",
            Some('F') => "flush",
            _ => panic!("{line}"),
        };
        let at = seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanoseconds.parse::<u64>().unwrap();
        let (count, last) = found.entry(action).or_default().entry(kind.to_owned()).or_default();
        (*count, *last) = (*count + 1, (*last).max(at));
    }
    assert_eq!(found["C"], expected, "{text}");
    let counts =
        |kinds: &BTreeMap<String, (u64, u64)>| kinds.values().map(|(count, _)| *count).collect::<Vec<_>>();
    assert_eq!(counts(&found["Q"]), counts(&expected));
    assert_eq!(counts(&found["D"]), counts(&expected));

    let btt = Command::new(btt).args(["-i", "a.blktrace.0"]).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&btt.stdout);
    assert!(btt.status.success() && text.contains("D2C"), "{text}");

    let output = trimwise(folder.path(), "trace info a.blktrace.0 --json -").output().unwrap();
    let info: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", error(&output)));
    for (kind, (count, _)) in &expected {
        assert_eq!(info["requests"][kind]["count"], *count, "{kind}");
    }
    assert_eq!(info["unknown_latencies"], 0);
}
