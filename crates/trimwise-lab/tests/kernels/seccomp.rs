//! Linux 7.3, whose guests run by seccomp: the same results again, and the same as by ptrace.

use std::fs;

use serde_json::Value;

use crate::common::command_in as trimwise;
use crate::reproduction::folder_with_drive;

const KERNEL: &str = "7.3";

/// Processes, memory that is mapped and given back, a clock, and files that are made durable and removed.
const SCRIPT: &str = "for i in 1 2 3 4; do (dd if=/dev/zero of=$i bs=4k count=300 oflag=direct; date +%s.%N >>log) & done; \
                      wait; sync; rm 2 3; sleep 6; cp /bin/sh copy; cmp copy /bin/sh; cat log";

#[test]
fn a_guest_by_seccomp_repeats_to_the_byte_and_is_the_one_by_ptrace() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let run = |more: &[&str]| {
        let line =
            format!("kernel run {KERNEL}:ext4:discard --device drive.toml --memory 128 --json - --force");
        let output = trimwise(folder.path(), &line)
            .args(["--kernel-log", "log"])
            .args(more)
            .args(["--", "sh", "-ec", SCRIPT])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        let by_seccomp = log.contains("seccomp filters can be installed...OK");
        assert_ne!(by_seccomp, log.contains("ptrace can change system call numbers...OK"), "{log}");
        (String::from_utf8(output.stdout).unwrap(), by_seccomp)
    };
    let (first, by_seccomp) = run(&[]);
    assert!(by_seccomp, "this host forbids it");
    assert_eq!(run(&[]).0, first);
    let (by_ptrace, by_seccomp) = run(&["--boot", "seccomp=off"]);
    assert!(!by_seccomp);
    let figures = |text: &str| {
        let mut result: Value = serde_json::from_str(text).unwrap();
        result.as_object_mut().unwrap().remove("boot");
        result
    };
    assert_eq!(figures(&by_ptrace), figures(&first));
}
