//! `kernel run` on a user's own image and with a second disk; with the feature `kernel-dm-tests`, encryption over it.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::command_in as trimwise;
use crate::reproduction::folder_with_drive;

const KERNEL: &str = "6.12+ext4-trim";

fn run(folder: &Path, kernel: &str, options: &str, script: &str) -> Output {
    let line = format!("kernel run {kernel} --device drive.toml --memory 128 {options} -- sh -ec");
    trimwise(folder, &line).arg(script).output().unwrap()
}

/// Runs a script and returns the result, as text too.
#[track_caller]
fn json(folder: &Path, kernel: &str, options: &str, script: &str) -> (Value, String) {
    let output = run(folder, kernel, &format!("--json - {options}"), script);
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    (serde_json::from_str(&text).unwrap(), text)
}

/// Sums a count of requests over both phases of `of`: the result itself, or its second disk.
fn sum(of: &Value, count: &str) -> u64 {
    of["phases"].as_array().unwrap().iter().map(|phase| phase["requests"][count].as_u64().unwrap()).sum()
}

#[test]
fn an_image_of_the_user_is_the_disk_and_stays_as_it_is() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let path = folder.path().join("own.img");
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let content = folder.path().join("content");
    fs::create_dir(&content).unwrap();
    fs::write(content.join("file"), vec![7; 8 << 20]).unwrap();
    let made = Command::new("mkfs.ext4").arg("-qd").args([&content, &path]).status().unwrap();
    assert!(made.success());
    let before = fs::read(&path).unwrap();

    let script =
        "stat -f -c %b .; sha256sum file; cmp -n 100 file /dev/zero || rm file; sync; cp /bin/sh new";
    let options = "--image own.img --trace t.trace --force";
    let (result, text) = json(folder.path(), "6.12+ext4-trim:ext4:discard", options, script);
    let sha256 = trimwise_uml::images::file_hash(&path).unwrap();
    assert_eq!(
        result["image"],
        serde_json::json!({"path": "own.img", "size_bytes": 64 << 20, "sha256": sha256})
    );
    let said = result["program"]["output"].as_str().unwrap();
    let hash_of_file = trimwise_uml::images::file_hash(&content.join("file")).unwrap();
    assert!(said.contains(&hash_of_file), "the guest reads other bytes: {said}");
    assert!(sum(&result, "discarded_bytes") >= 8 << 20, "the drive is told of the removal: {result:#}");
    // Only what the image had brought can be trimmed. Units that lie in the file in part stay.
    assert!(result["phases"][0]["device_stats"]["trimmed_units"].as_u64() >= Some(2000), "{result:#}");
    assert!(fs::read(&path).unwrap() == before, "the image has changed");
    assert_eq!(
        json(folder.path(), "6.12+ext4-trim:ext4:discard", options, script).1,
        text,
        "a run repeats to the byte"
    );

    let info = trimwise(folder.path(), "trace info t.trace").output().unwrap();
    let info = String::from_utf8(info.stdout).unwrap();
    assert!(info.contains("Prelude: "), "a replay needs what the image wrote: {info}");
    let table =
        String::from_utf8(run(folder.path(), "6.12+ext4-trim:ext4", "--image own.img", "true").stdout)
            .unwrap();
    assert!(table.contains(&format!("Image: own.img, 64 MiB, SHA-256 {}...", &sha256[..16])), "{table}");

    // The magic number is there, and the rest is not.
    let mut damaged = vec![0; 1 << 20];
    damaged[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    fs::write(folder.path().join("damaged.img"), damaged).unwrap();
    let failed = run(folder.path(), "6.12+ext4-trim:ext4", "--image damaged.img", "true");
    let error = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && error.contains("mount of ext4"), "{error}");
}

#[test]
fn a_second_disk_is_a_drive_of_its_own_in_the_same_time() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    // It is mounted inside the new file system, so it must be unmounted first; the script leaves that undone, as users
    // do.
    let script = "test $TRIMWISE_DISK = /dev/vdb; mkfs.ext4 -qE nodiscard /dev/vdb; mkdir b; \
                  mount -o discard /dev/vdb b; head -c 8388608 /dev/zero >b/a; sync; rm b/a";
    let options = "--disk nvme-generic --disk-trace second.csv --trace first.csv --force";
    let (result, text) = json(folder.path(), "6.12+ext4-trim:ext4", options, script);
    let disk = &result["disk"];
    assert_eq!((&disk["node"], &disk["device"]), (&"/dev/vdb".into(), &"nvme-generic".into()));
    assert!(sum(disk, "written_bytes") >= 8 << 20 && sum(&result, "written_bytes") < 1 << 20, "{result:#}");
    // The commit of the unmount says what the removal freed.
    assert!(disk["phases"][1]["requests"]["discarded_bytes"].as_u64() >= Some(8 << 20), "{result:#}");
    assert_eq!(sum(&result, "discards"), 0);
    for (trace, drive) in [("first.csv", &result), ("second.csv", disk)] {
        let text = fs::read_to_string(folder.path().join(trace)).unwrap();
        let of = |kind: &str| -> u64 {
            let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
            lines.filter(|line| line[2] == kind).map(|line| line[4].parse::<u64>().unwrap()).sum()
        };
        let counted = |key: &str| -> u64 {
            [0, 1].map(|phase| drive["phases"][phase]["requests"][key].as_u64().unwrap()).iter().sum()
        };
        assert_eq!(of("discard"), counted("discarded_bytes"), "{trace}");
        assert_eq!(of("write") + of("write_zeroes"), counted("written_bytes"), "{trace}");
    }
    let refused = run(folder.path(), "6.12+ext4-trim:ext4", "--disk-trace a.csv", "true");
    assert_eq!(refused.status.code(), Some(2), "there is no second drive to trace");
    for phase in 0..2 {
        assert_eq!(disk["phases"][phase]["duration_ns"], result["phases"][phase]["duration_ns"]);
    }
    assert_eq!(
        json(folder.path(), "6.12+ext4-trim:ext4", options, script).1,
        text,
        "a run repeats to the byte"
    );
    let table = String::from_utf8(run(folder.path(), "6.12+ext4-trim:ext4", options, "true").stdout).unwrap();
    assert!(
        table.contains("/dev/vdb: nvme-generic") && table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
    let without =
        json(folder.path(), "6.12+ext4-trim:ext4", "", "test -z \"$TRIMWISE_DISK\"; test ! -e /dev/vdb").0;
    assert!(without.get("disk").is_none() && without.get("image").is_none());
}

/// dm-crypt passes discards on only if it is told to. The key is no secret: it encrypts zeros.
#[test]
#[cfg(feature = "kernel-dm-tests")]
fn discards_pass_dm_crypt_if_it_allows_them() {
    use trimwise_uml::job::check_program;
    use trimwise_uml::machine::SEARCH_PATH;
    let Some(folder) = folder_with_drive("6.12+dm") else { return };
    if let Err(why) = check_program(("dmsetup", "dmsetup"), SEARCH_PATH, "but the guest needs it") {
        return trimwise_testing::skipped(&why);
    }
    let discarded = |options: &str| {
        let script = format!(
            "key=$(printf %0128d 0); size=$(blockdev --getsz /dev/vdb); \
             dmsetup create c --table \"0 $size crypt aes-xts-plain64 $key 0 /dev/vdb 0 {options}\"; \
             mkfs.ext4 -qE nodiscard /dev/mapper/c; mkdir b; mount -o discard /dev/mapper/c b; \
             head -c 8388608 /dev/zero >b/a; sync; rm b/a; umount b; dmsetup remove c; \
             tail -c +1048577 /dev/vdb | head -c 67108864 | tr -d '\\000' | head -c 1 | wc -c"
        );
        let (result, _) = json(folder.path(), "6.12+dm:ext4", "--disk sata-small", &script);
        // What lies on the drive is not the zeros that were written.
        assert_eq!(result["program"]["output"], "1\n");
        assert!(sum(&result["disk"], "written_bytes") >= 8 << 20, "{result:#}");
        sum(&result["disk"], "discarded_bytes")
    };
    assert_eq!(discarded(""), 0);
    assert!(discarded("1 allow_discards") >= 8 << 20);
}
