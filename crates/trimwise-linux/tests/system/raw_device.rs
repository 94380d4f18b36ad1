//! A loop device behind the block trait: written data are stored, TRIM leaves zeros, completions come once each, and
//! errors name the operation that failed.

use trimwise::block::{BlockDevice, Operation};
use trimwise::content::Content;
use trimwise_linux::raw_device::{Access, Options, RawDevice, Target};
use trimwise_linux::{block_on, consent};
use trimwise_testing::conformance::{keeps_what_it_is_told, opened, units};
use trimwise_testing::loops::{Loop, can_run, sh};

fn on_a_device(trim_by_thread: bool) {
    if !can_run(&[]) {
        return;
    }
    let disk = Loop::blank(64 << 20);
    let options = Options { trim_by_thread, ..Options::default() };
    let before = disk.discards();
    let device = opened(&Target::Device(disk.node()), &options);
    let facts = device.facts();
    assert_eq!((facts.size_units, facts.trim.unwrap().promises_zeros), (64 * 256, true));
    keeps_what_it_is_told(&device);
    let sent = disk.discards();
    assert_eq!((sent.0 - before.0, sent.1 - before.1), (2, 39 * 4096), "the kernel counted what was sent");
    let erase = block_on(device.erase()).unwrap().unwrap_err().to_string();
    assert!(erase.contains("hdparm") && erase.contains("nvme format"), "{erase}");
    // No other process may write to it meanwhile.
    let busy = consent::check(&Target::Device(disk.node()), disk.node().to_str()).unwrap_err().to_string();
    assert!(busy.contains("busy") && busy.contains("does not write to it while it is in use"), "{busy}");
}

#[test]
fn a_device_keeps_what_it_is_told_and_takes_trim_through_the_ring() {
    on_a_device(false);
}

#[test]
fn trim_through_a_thread_does_the_same() {
    on_a_device(true);
}

#[test]
fn trims_complete_among_writes() {
    if !can_run(&[]) {
        return;
    }
    let disk = Loop::blank(64 << 20);
    for trim_by_thread in [false, true] {
        let target = Target::Device(disk.node());
        let consent = consent::check(&target, disk.node().to_str()).unwrap();
        let device =
            RawDevice::open(Access::Write(consent), &Options { trim_by_thread, ..Options::default() })
                .unwrap();
        block_on(async {
            for round in 0..50u64 {
                device
                    .submit(Operation::Trim(vec![units(round * 8, 4), units(round * 8 + 4096, 4)]), round)
                    .unwrap();
                let write = Operation::write(units(8192 + round, 1), Content::default());
                device.submit(write, 1000 + round).unwrap();
            }
            let mut tokens = Vec::new();
            for _ in 0..100 {
                tokens.push(device.completion().await.unwrap().token);
            }
            tokens.sort_unstable();
            assert_eq!(tokens, (0..50).chain(1000..1050).collect::<Vec<_>>());
        })
        .unwrap();
    }
}

#[test]
fn a_device_without_discards_says_so_and_can_be_written() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let mut disk = Loop::without_discards();
    disk.unmount();
    let target = Target::Device(disk.node());
    let consent = consent::check(&target, disk.node().to_str()).unwrap();
    let device = RawDevice::open(Access::Write(consent), &Options::default()).unwrap();
    assert_eq!(device.facts().trim, None);
    let refused = device.submit(Operation::Trim(vec![units(0, 1)]), 0).unwrap_err().to_string();
    assert!(refused.ends_with(": does not accept TRIM"), "{refused}");
    block_on(device.perform(Operation::write(units(1, 1), Content::default()))).unwrap().unwrap();
}

#[test]
fn a_device_that_ends_early_is_a_clear_error() {
    if !can_run(&[]) {
        return;
    }
    let disk = Loop::blank(64 << 20);
    let device = opened(&Target::Device(disk.node()), &Options::default());
    // Truncate the file below: reads after its end fail, as from a disk that vanishes.
    std::fs::File::options().write(true).open(&disk.image).unwrap().set_len(1 << 20).unwrap();
    sh("losetup", &["-c", disk.node().to_str().unwrap()]);
    let error = block_on(device.perform(Operation::read(units(8192, 16)))).unwrap().unwrap_err().to_string();
    let shown = disk.node();
    assert!(
        error.starts_with(&format!("dev:{}: read of 65536 bytes at byte 33554432: ", shown.display())),
        "{error}"
    );
    // The rest still works.
    block_on(device.perform(Operation::read(units(0, 16)))).unwrap().unwrap();
}
