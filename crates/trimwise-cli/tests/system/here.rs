//! `trimwise compare --here` on a file system on a loop device. Needs root; otherwise it reports that it is skipped.

use std::process::{Command, Stdio};

use trimwise_testing::loops::{Loop, can_run};

#[test]
fn a_loop_device_is_followed_to_the_drive_of_its_file() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(100 << 20);
    let run = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
        command.args(["compare", "--here"]).arg(&disk.point).args(options);
        let small =
            ["--device", "sata-small", "--policy", "off", "--reps", "1", "--workload", "append:4KiB:8MiB"];
        command.args(small).env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
    };
    let output = run(&["--json", "-"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("note: 1 run, "), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let here = &json["here"];
    assert_eq!((&here["file_system"], &here["matched_by"]), (&"ext4".into(), &"given".into()));
    assert_eq!(here["mount"].as_str(), disk.point.to_str());
    assert_eq!(here["device"], format!("/dev/{}", disk.device));
    assert!(here["drive"].as_str().is_none_or(|drive| !drive.starts_with("loop")), "{here}");
    assert_eq!(json["settings"]["utilization_percent"], here["utilization_percent"]);
    let bare = Command::new(env!("CARGO_BIN_EXE_trimwise"))
        .args(["compare", "--here"])
        .arg(&disk.point)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&bare.stderr);
    assert_eq!(bare.status.code(), Some(2), "{said}");
    assert!(
        said.contains(
            "it is on a loop device, whose TRIM frees space in a file and not on the drive below it"
        ),
        "{said}"
    );
    assert!(said.contains("expected a directory on an SSD, or --device to name the profile"), "{said}");
    let text = run(&["--details"]).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(text.starts_with("Here: ") && text.contains("\nIn its place: sata-small"), "{text}");
}
