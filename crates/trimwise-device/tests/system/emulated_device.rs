//! An emulated drive as a block device and over NBD, served by this process: it works like any other device, and real
//! clients of NBD find the data that they expect.

use std::path::Path;
use std::process::Command;

use trimwise_device::attachment;
use trimwise_linux::consent;
use trimwise_linux::raw_device::{Access, Options, RawDevice, Target};
use trimwise_testing::conformance::keeps_what_it_is_told;
use trimwise_testing::loops::{can_run, sh};
use trimwise_testing::skipped;

use crate::common::Served;

#[test]
fn an_attached_drive_is_a_device_as_any_other() {
    if !can_run(&[]) {
        return;
    }
    let served = Served::attached("sata-small", 64);
    let target = Target::Device(served.node());
    let consent = consent::check(&target, served.node().to_str()).unwrap();
    let device = RawDevice::open(Access::Write(consent), &Options::default()).unwrap();
    keeps_what_it_is_told(&device);
    drop(device);
    let counts = served.end();
    assert_eq!((counts.discards, counts.discarded_bytes), (2, 39 * 4096), "as they were sent");
}

/// Regression test: the remaining path of a drive whose mount is gone is a name in `/`; an unrelated file may have that
/// name.
#[test]
fn regression_an_unrelated_loop_device_is_left_alone() {
    if !can_run(&["losetup"]) {
        return;
    }
    let name = format!("trimwise-test-{}", std::process::id());
    let theirs = Path::new("/").join(&name);
    std::fs::File::create(&theirs).unwrap().set_len(1 << 20).unwrap();
    let node = sh("losetup", &["-f", "--show", theirs.to_str().unwrap()]);
    let (node, ours) = (Path::new(node.trim()), Path::new("/run/trimwise/drive").join(&name));
    let is_over = [attachment::is_over(node, &ours), attachment::is_over(node, &theirs)];
    let detached = attachment::detach(node, &ours);
    let still_there = attachment::is_over(node, &theirs);
    sh("losetup", &["-d", node.to_str().unwrap()]);
    std::fs::remove_file(&theirs).unwrap();
    assert!(is_over == [false, true] && detached.is_ok() && still_there, "{is_over:?} {still_there}");
}

/// The requests to the kernel and those that reached the drive are the same.
#[test]
fn counts_are_those_of_the_device() {
    if !can_run(&["blkdiscard", "dd"]) {
        return;
    }
    let served = Served::attached("zero-cost", 64);
    let node = served.node().display().to_string();
    let before = served.counts();
    let of = format!("of={node}");
    sh("dd", &["if=/dev/zero", &of, "bs=64k", "count=20", "oflag=direct", "conv=fsync", "status=none"]);
    sh("blkdiscard", &["-o", "8192", "-l", "65536", &node]);
    sh("blkdiscard", &["-z", "-o", "1048576", "-l", "65536", &node]);
    let counts = served.counts() - before;
    assert_eq!(
        (counts.writes, counts.written_bytes),
        (21, 21 << 16),
        "zeros that must stay allocated among them"
    );
    assert_eq!((counts.discards, counts.discarded_bytes), (1, 1 << 16));
    assert!(counts.flushes >= 1);
    served.end();
}

#[test]
fn clients_of_nbd_find_what_they_expect() {
    for program in ["nbdinfo", "nbdcopy", "qemu-io"] {
        if !can_run(&[program]) {
            return;
        }
    }
    let served = Served::nbd("sata-small", 64);
    let info = sh("nbdinfo", &["--json", &served.uri()]);
    for line in
        ["\"export-size\": 67108864", "\"can_trim\": true", "\"can_fua\": true", "\"can_multi_conn\": true"]
    {
        assert!(info.contains(line), "{line} in {info}");
    }
    let list = sh("nbdinfo", &["--list", &served.uri()]);
    assert!(list.contains("export=\"sata-small\""), "{list}");

    let image = served.directory.path().join("image");
    let bytes: Vec<u8> =
        (0..48_u64 << 20).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    std::fs::write(&image, &bytes).unwrap();
    let back = served.directory.path().join("back");
    // Several connections with many requests at once.
    sh("nbdcopy", &["--connections=4", image.to_str().unwrap(), &served.uri()]);
    sh("nbdcopy", &["--connections=4", &served.uri(), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap()[..bytes.len()] == bytes, "what was copied came back");

    let drive = format!("nbd:unix:{}", served.socket().display());
    let commands = [
        "write -P 7 0 1M",
        "write -z 8k 8k",
        "read -P 0 8k 8k",
        "read -P 7 16k 4k",
        "discard 64k 64k",
        "read -P 0 64k 64k",
        "read -P 7 128k 4k",
        "write -f -P 9 1k 512",
        "read -P 9 1k 512",
        "flush",
        "aio_write -P 3 2M 64k",
        "aio_write -P 4 3M 64k",
        "aio_flush",
        "read -P 3 2M 64k",
        "read -P 4 3M 64k",
    ];
    let words: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
    let said = sh("qemu-io", &[&["-f", "raw"], &words[..], &[&drive]].concat());
    assert!(!said.contains("verification failed"), "{said}");
    let counts = served.end();
    assert_eq!(counts.discards, 1);
    assert!(counts.flushes >= 2, "a forced write flushes: {counts:?}");
}

/// fio writes at random places, and verifies every block by reading it.
#[test]
fn fio_finds_nothing_lost_or_mixed_over_nbd() {
    if !can_run(&["fio"]) {
        return;
    }
    let engines = Command::new("fio").arg("--enghelp").output().unwrap();
    if !String::from_utf8_lossy(&engines.stdout).contains("nbd") {
        return skipped("this fio has no engine for NBD");
    }
    let served = Served::nbd("nvme-generic", 256);
    let uri = format!("--uri={}", served.uri());
    let words = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bs=4k-64k",
        "--size=256M",
        "--io_size=256M",
        "--iodepth=32",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--randseed=7",
    ];
    sh("fio", &words);
    let counts = served.end();
    assert!(counts.written_bytes >= 128 << 20 && counts.read_bytes == counts.written_bytes, "{counts:?}");
}
