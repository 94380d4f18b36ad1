//! `trimwise device` as a whole binary: file systems on an attached drive, killed servers, full disks, and nothing left
//! behind.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use trimwise_testing::loops;
use trimwise_testing::skipped;

use crate::device_place::{Place, run, sh, waits};

/// Whether drives can be attached and the programs are there; if not, the test is skipped.
fn can_run(programs: &[&str]) -> bool {
    let has_fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !has_fuse {
        skipped("there is no FUSE");
    }
    has_fuse && loops::can_run(programs)
}

#[test]
fn a_drive_is_attached_listed_and_detached() {
    if !can_run(&["blkdiscard"]) {
        return;
    }
    let place = Place::new();
    let node = place.attach(&["--profile", "sata-small", "--size", "64MiB", "--name", "mine"]);
    let list = place.list();
    assert_eq!(list.len(), 1);
    assert_eq!((&list[0]["name"], &list[0]["state"]), (&Value::from("mine"), &Value::from("serving")));
    assert_eq!(list[0]["front"]["loop"]["device"], node.as_str());
    assert_eq!(sh("blockdev", &["--getsize64", &node]).trim(), (64 << 20).to_string());
    let text = place.ok(&["list"]);
    assert!(text.contains(&node) && text.contains("is named mine"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    sh("blkdiscard", &[&node]);
    let report: Value = serde_json::from_str(&place.ok(&["detach", &node, "--json", "-"])).unwrap();
    let counts = &report["devices"][0]["status"]["counts"];
    assert_eq!((&counts["discards"], &counts["discarded_bytes"]), (&Value::from(1), &Value::from(64 << 20)));
    assert_eq!(place.ok(&["list"]), "no emulated device\n");
    place.is_clean();
    let said = place.refused(2, &["detach", &node]);
    assert!(said.contains("no emulated device here has this name or node; there are none"), "{said}");
}

/// Puts a file system on the drive: files come and go with `-o discard` and fstrim, nothing is lost, and its checker
/// finds nothing afterwards.
fn carries(mkfs: &[&str], check: &[&str]) {
    if !can_run(&[mkfs[0], check[0], "fstrim", "sha256sum"]) {
        return;
    }
    let place = Place::new();
    let node = place.attach(&["--profile", "nvme-generic", "--size", "512MiB", "--time-scale", "0.1"]);
    sh(mkfs[0], &[&mkfs[1..], &[&node]].concat());
    let mounted = place.path("mounted");
    fs::create_dir(&mounted).unwrap();
    let mounted = mounted.to_str().unwrap();
    for round in 0..3 {
        let option = if round == 2 { "nodiscard" } else { "discard" };
        sh("mount", &["-o", option, &node, mounted]);
        let script = r#"
            set -e
            cd "$0"
            [ ! -e sums ] || sha256sum --quiet -c sums
            for i in $(seq 120); do
                head -c $((i * 2777)) /dev/urandom > "file$i"
            done
            sync
            for i in $(seq 1 2 120); do rm "file$i"; done
            sync
            fstrim .
            head -c 40000000 /dev/urandom > large
            sha256sum large file* > sums.new
            mv sums.new sums
            sync
            fstrim .
        "#;
        sh("bash", &["-c", script, mounted]);
        sh("umount", &[mounted]);
        sh(check[0], &[&check[1..], &[&node]].concat());
    }
    sh("mount", &[&node, mounted]);
    sh("bash", &["-c", r#"cd "$0" && sha256sum --quiet -c sums"#, mounted]);
    let said = place.refused(1, &["detach", &node]);
    assert!(said.contains(&format!("{node} is mounted at {mounted}; stop using it first")), "{said}");
    sh("umount", &[mounted]);
    let counts = place.list()[0]["status"]["counts"].clone();
    assert!(counts["discarded_bytes"].as_u64().unwrap() > 256 << 20, "{counts}");
    place.ok(&["detach", &node]);
    place.is_clean();
}

#[test]
fn an_ext4_lives_on_it() {
    carries(&["mkfs.ext4", "-q"], &["e2fsck", "-fn"]);
}

#[test]
fn an_xfs_lives_on_it() {
    carries(&["mkfs.xfs", "-q"], &["xfs_repair", "-n"]);
}

#[test]
fn a_btrfs_lives_on_it() {
    carries(&["mkfs.btrfs", "-q"], &["btrfs", "check"]);
}

/// Random writes mixed with trims; each block is compared with what was written last, trimmed ones with zeros.
#[test]
fn fio_finds_nothing_lost_or_mixed() {
    if !can_run(&["fio"]) {
        return;
    }
    let place = Place::new();
    for profile in ["zero-cost", "sata-small"] {
        let node = place.attach(&["--profile", profile, "--size", "128MiB", "--time-scale", "0.1"]);
        let file = format!("--filename={node}");
        let common = [
            &file,
            "--direct=1",
            "--ioengine=libaio",
            "--randseed=7",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ];
        let trims = ["--name=trims", "--rw=randtrimwrite", "--bs=4k", "--iodepth=32", "--size=128M"];
        sh("fio", &[&trims[..], &common].concat());
        let mixed = [
            "--name=mixed",
            "--rw=randwrite",
            "--bsrange=512-64k",
            "--bs_unaligned=0",
            "--iodepth=16",
            "--size=128M",
        ];
        sh("fio", &[&mixed[..], &common].concat());
        let counts = place.list()[0]["status"]["counts"].clone();
        assert!(counts["discards"].as_u64().unwrap() > 1000, "{counts}");
        place.ok(&["detach", &node]);
    }
    place.is_clean();
}

/// Users of the device get errors in bounded time, and the next command removes everything.
#[test]
fn a_server_that_is_killed_leaves_nothing_that_stays() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    let node = place.attach(&["--profile", "sata-small", "--size", "64MiB"]);
    sh("mkfs.ext4", &["-q", &node]);
    let mounted = place.path("mounted");
    fs::create_dir(&mounted).unwrap();
    let point = mounted.to_str().unwrap();
    sh("mount", &[&node, point]);
    fs::write(mounted.join("file"), vec![1; 1 << 20]).unwrap();
    sh("kill", &["-9", &place.pid().to_string()]);
    let begin = Instant::now();
    let failed =
        run("dd", &["if=/dev/zero", &format!("of={point}/other"), "bs=64k", "count=4", "conv=fsync"]);
    assert!(!failed.status.success(), "an error, not a wait");
    assert!(begin.elapsed() < Duration::from_secs(100), "{:?}", begin.elapsed());

    let list = place.list();
    assert_eq!((&list[0]["state"], &list[0]["status"]), (&Value::from("dead"), &Value::Null));
    assert!(place.ok(&["list"]).contains("its server was killed, and it is mounted at"));
    let said = place.refused(1, &["detach", &node]);
    assert!(said.contains("is mounted at"), "{said}");
    sh("umount", &[point]);
    assert_eq!(place.list(), [] as [Value; 0]);
    place.is_clean();

    // If it is not in use, the next device takes the name.
    place.attach(&["--profile", "sata-small", "--size", "64MiB"]);
    let pid = place.pid();
    sh("kill", &["-9", &pid.to_string()]);
    let is_over =
        || fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
    waits("the server ends", is_over);
    let node = place.attach(&["--profile", "sata-small", "--size", "64MiB"]);
    assert_eq!(place.list()[0]["name"], "sata-small");
    place.ok(&["detach", &node]);
    place.is_clean();
}

#[test]
fn a_signal_ends_a_drive_when_its_last_user_goes_and_two_at_once() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    let mounted = place.path("mounted");
    fs::create_dir(&mounted).unwrap();
    let point = mounted.to_str().unwrap();
    for signals in [1, 2] {
        let node = place.attach(&["--profile", "sata-small", "--size", "64MiB"]);
        sh("mkfs.ext4", &["-q", &node]);
        sh("mount", &[&node, point]);
        let pid = place.pid().to_string();
        let lives = || Path::new("/proc").join(&pid).exists();
        sh("kill", &["-TERM", &pid]);
        std::thread::sleep(Duration::from_millis(300));
        fs::write(mounted.join("file"), vec![1; 1 << 20]).unwrap();
        sh("sync", &["-f", point]);
        assert!(lives(), "it is served as long as it is mounted");
        if signals == 2 {
            sh("kill", &["-TERM", &pid]);
            waits("the server ends", || !lives());
        }
        sh("umount", &[point]);
        waits("the server ends", || !lives());
        place.is_clean();
    }
}

#[test]
fn in_the_foreground_it_stays_until_it_is_interrupted() {
    if !can_run(&[]) {
        return;
    }
    let place = Place::new();
    let server = place
        .command(&["attach", "--profile", "sata-small", "--size", "64MiB", "--foreground"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    waits("it is attached", || {
        place.list().iter().any(|device| device["front"]["loop"]["device"].is_string())
    });
    sh("kill", &["-INT", &server.id().to_string()]);
    let output = server.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("/dev/loop") && said.contains("detached"), "{said}");
    place.is_clean();
}

/// The loop device is removed by other means, or the connection to the kernel is cut.
#[test]
fn a_device_that_is_taken_away_ends_its_server() {
    if !can_run(&["losetup"]) {
        return;
    }
    let place = Place::new();
    let node = place.attach(&["--profile", "sata-small", "--size", "64MiB"]);
    sh("losetup", &["-d", &node]);
    waits("the server ends", || place.list().is_empty());
    place.is_clean();

    let node = place.attach(&["--profile", "sata-small", "--size", "64MiB"]);
    let mounted = place.path("devices/sata-small/mounted");
    // Cuts the connection, and then fails since the file is open.
    assert!(!run("umount", &["-f", mounted.to_str().unwrap()]).status.success());
    let failed = run("dd", &[&format!("if={node}"), "of=/dev/null", "count=1", "iflag=direct"]);
    // Nothing is read: an error, or, if the device is already gone, an immediate end.
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() || said.contains("0+0 records in"), "{said}");
    waits("the server ends", || place.list().is_empty());
    place.is_clean();

    // Unmounted lazily while in use: the device works on, and is detached like any other.
    let node = place.attach(&["--profile", "sata-small", "--size", "64MiB"]);
    sh("umount", &["-l", mounted.to_str().unwrap()]);
    sh("dd", &["if=/dev/zero", &format!("of={node}"), "bs=1M", "count=4", "oflag=direct", "status=none"]);
    place.ok(&["detach", "sata-small"]);
    place.is_clean();
}

#[test]
fn a_full_disk_below_the_data_is_an_error_of_the_write() {
    if !can_run(&[]) {
        return;
    }
    let place = Place::new();
    let small = place.path("mounted");
    fs::create_dir(&small).unwrap();
    sh("mount", &["-t", "tmpfs", "-o", "size=8m", "tmpfs", small.to_str().unwrap()]);
    let backing = small.join("data");
    let node =
        place.attach(&["--profile", "sata-small", "--size", "64MiB", "--backing", backing.to_str().unwrap()]);
    let of = format!("of={node}");
    sh("dd", &["if=/dev/urandom", &of, "bs=1M", "count=4", "oflag=direct", "status=none"]);
    let full = run("dd", &["if=/dev/urandom", &of, "bs=1M", "count=60", "oflag=direct", "status=none"]);
    let said = String::from_utf8_lossy(&full.stderr);
    assert!(!full.status.success() && said.contains("No space left"), "{said}");
    // Space that is freed can be written again.
    sh("blkdiscard", &[&node]);
    sh("dd", &["if=/dev/urandom", &of, "bs=1M", "count=4", "oflag=direct", "status=none"]);
    place.ok(&["detach", &node]);
    assert!(backing.exists(), "the data stay");
    // They are there the next time, and no other drive may use them meanwhile.
    let node =
        place.attach(&["--profile", "sata-small", "--size", "64MiB", "--backing", backing.to_str().unwrap()]);
    let words =
        ["attach", "--profile", "sata-small", "--size", "64MiB", "--backing", backing.to_str().unwrap()];
    let said = place.refused(2, &words);
    assert!(said.contains("holds the data of another drive in use"), "{said}");
    sh("cmp", &["-n", "4194304", &node, backing.to_str().unwrap()]);
    place.ok(&["detach", &node]);
    let said = place.refused(
        2,
        &["attach", "--profile", "sata-small", "--size", "32MiB", "--backing", backing.to_str().unwrap()],
    );
    assert!(said.contains("expected 33554432 or a file that does not exist"), "{said}");
    sh("umount", &[small.to_str().unwrap()]);
    place.is_clean();
}

#[test]
fn a_drive_without_trim_takes_none() {
    if !can_run(&["blkdiscard"]) {
        return;
    }
    let place = Place::new();
    let node = place.attach(&["--profile", "vertex-60gb@1.41", "--size", "1GiB"]);
    assert!(!run("blkdiscard", &[&node]).status.success());
    // Zeros are written instead.
    sh("blkdiscard", &["-z", "-l", "1048576", &node]);
    let report: Value = serde_json::from_str(&place.ok(&["detach", &node, "--json", "-"])).unwrap();
    let counts = &report["devices"][0]["status"]["counts"];
    assert_eq!(counts["discards"], 0);
    assert!(counts["written_bytes"].as_u64().unwrap() >= 1 << 20, "{counts}");
    place.is_clean();
}
