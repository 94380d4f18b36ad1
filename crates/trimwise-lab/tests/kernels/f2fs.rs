//! What f2fs of Linux 6.12 does not keep, as docs/model.md explains: each fault in the requests of one program, and in
//! what a power cut breaks. A test that fails because f2fs keeps it now is good news: then docs/model.md changes too.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use trimwise_testing::skipped;
use trimwise_uml::disk::{TraceEntry, Traced};
use trimwise_uml::job::FileSystem;

use crate::reproduction::{error, image};

/// The series in which the faults were traced, as the other tests of this tier have it; the patches are not for f2fs.
const KERNEL: &str = "6.12+ext4-trim";

fn is_here() -> bool {
    if let Err(why) = FileSystem::F2fs.check_mkfs() {
        skipped(&why);
        return false;
    }
    image(KERNEL).is_some()
}

fn trimwise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimwise-lab")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The requests of a shell script, in stretches between its pauses of a second.
fn stretches(target: &str, script: &str) -> Vec<Vec<TraceEntry>> {
    const PAUSE_NS: u64 = 500_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let output =
        trimwise(&["kernel", "run", target, "--trace", path.to_str().unwrap(), "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", error(&output));
    let trace: Vec<TraceEntry> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    trace.chunk_by(|a, b| b.at_ns - a.at_ns < PAUSE_NS).map(<[_]>::to_vec).collect()
}

/// The first fault: the first fsync after a checkpoint does not wait for its node block.
#[test]
fn the_first_fsync_after_a_checkpoint_flushes_before_its_node_block_is_written() {
    if !is_here() {
        return;
    }
    let script = "seq 9 >a; sync; dd if=/dev/zero of=a bs=4k count=2 conv=notrunc,fsync; sleep 1";
    let all = stretches(&format!("{KERNEL}:f2fs"), script);
    let of_fsync = &all[0];
    let last = |kind| of_fsync.iter().rfind(|entry| entry.kind == kind).unwrap();
    let (node, flush) = (last(Traced::Write), last(Traced::Flush));
    assert!(
        node.at_ns < flush.at_ns && flush.at_ns < node.done_ns,
        "f2fs of {KERNEL} waits for the node block now: {of_fsync:#?}"
    );
}

/// The second fault: atomic mode in fsync relies on a node block that was not written.
#[test]
fn fdatasync_in_strict_mode_of_what_was_overwritten_in_place_sends_no_flush() {
    if !is_here() {
        return;
    }
    let script = "dd if=/dev/zero of=a bs=4k count=10; sync; sleep 1; \
                  dd if=/dev/zero of=a bs=4k count=1 conv=notrunc,fdatasync; sleep 1";
    let all = stretches(&format!("{KERNEL}:f2fs:fsync_mode=strict"), script);
    let [_, of_fdatasync, _] = &all[..] else { panic!("expected two pauses: {all:#?}") };
    let kinds: Vec<Traced> = of_fdatasync.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Traced::Write], "f2fs of {KERNEL} flushes here now");
}

/// What both faults break: a file loses contents that its fsync had promised, or is not there at all. Which cut shows it
/// depends on the build of this program, which is part of the guest's memory: of a hundred, some twenty do.
#[test]
fn a_power_cut_after_a_synced_file_breaks_f2fs_in_strict_mode() {
    if !is_here() {
        return;
    }
    let target = format!("kernel:{KERNEL}:f2fs:fsync_mode=strict");
    let output = trimwise(&["crashtest", "--target", &target, "--seed", "1", "--cuts", "100", "--json", "-"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", error(&output)));
    assert_eq!(output.status.code(), Some(1), "f2fs of {KERNEL} keeps what it promised now: {report:#}");
    let what = report["details"][0]["broken"][0]["what"].as_str().unwrap_or_default();
    assert!(["wrong-length", "wrong-bytes", "synced-file-missing"].contains(&what), "{report:#}");
}
