//! `trimwise verify dir:PATH` on file systems on loop devices, which promise zeros. Needs root; otherwise the tests
//! report that they are skipped.

use std::process::{Command, Output, Stdio};

use trimwise_testing::loops::{Loop, can_run};

const MIB: u64 = 1 << 20;

fn verify(target: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
    command.args(["verify", target]).args(options).env("NO_COLOR", "1").stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn trim_arrives_below_ext4_and_nothing_is_left_behind() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(100 * MIB);
    let target = format!("dir:{}", disk.point.display());
    let output = verify(&target, &["--size", "8MiB", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress in a pipe");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["verdict"], &json["partial"]), (&"arrives".into(), &false.into()));
    assert_eq!((&json["file_system"], &json["file_bytes"]), (&"ext4".into(), &(8 * MIB).into()));
    assert_eq!(json["after_delete"]["old_data_units"], 2048);
    assert_eq!(json["after_trim"]["old_data_units"], 0);
    assert_eq!(json["disks"][0]["promises_zeros"], true);
    let output = verify(&target, &["--size", "8MiB"]);
    assert!(text(&output.stdout).contains("TRIM arrives: "), "{}", text(&output.stdout));
    let left: Vec<_> = std::fs::read_dir(&disk.point).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["lost+found"]);
    let output = verify(&target, &["--size", "80MiB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the test writes 80 MiB and must leave as much free"));
}

/// `doctor` offered the command that `verify` refuses on btrfs.
#[test]
fn regression_the_doctor_offers_verify_only_where_it_works() {
    if !can_run(&["mkfs.ext4", "mkfs.btrfs"]) {
        return;
    }
    for (disk, is_offered) in
        [(Loop::ext4(100 * MIB), true), (Loop::new(150 * MIB, &["mkfs.btrfs", "-q", "-K"]), false)]
    {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_trimwise"));
        doctor.arg("doctor").arg(&disk.point).env("NO_COLOR", "1").stdin(Stdio::null());
        let shown = text(&doctor.output().unwrap().stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        let target = format!("dir:{}", disk.point.display());
        assert_eq!(shown.contains(&format!("trimwise verify {target}")), is_offered, "{shown}");
        assert_eq!(verify(&target, &["--size", "8MiB"]).status.success(), is_offered);
    }
}
