//! A file and a loop device behind the block trait: what is written is stored, TRIM leaves zeros, completions come once
//! each, and errors name what failed. The tests on loop devices need root, and say so when they skip.

#[path = "common/conformance.rs"]
mod conformance;
#[path = "common/loops.rs"]
mod loops;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conformance::keeps_what_it_is_told;
use loops::{Loop, can_run};
use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::{Content, ContentClass, Stored};
use trimwise::units::{Bytes, Lpn, SimDuration, UnitRange};
use trimwise_host::raw_device::{Access, Options, RawDevice, RawDeviceError, Target};
use trimwise_host::{block_on, consent};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn opened(target: Target, options: &Options) -> RawDevice {
    RawDevice::open(Access::Write(consent::check(&target, None).unwrap()), options).unwrap()
}

fn file(path: &Path, mib: u64) -> RawDevice {
    opened(Target::File(path.to_owned()), &Options { file_bytes: Bytes::mib(mib), ..Options::default() })
}

fn units(start: u64, count: u64) -> UnitRange {
    UnitRange::new(Lpn(start), count)
}

#[test]
fn a_file_keeps_what_it_is_told_and_is_removed_at_the_end() {
    let directory = directory();
    let path = directory.path().join("raw");
    let device = file(&path, 64);
    assert_eq!((device.facts().size_units, device.facts().is_model), (64 * 256, false));
    assert!(device.facts().trim.unwrap().promises_zeros);
    keeps_what_it_is_told(&device);
    let erase = block_on(device.erase()).unwrap().unwrap_err();
    assert!(matches!(&erase, BlockError::Unsupported(why) if why.contains("a file has no erase")), "{erase}");
    assert!(path.exists());
    drop(device);
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_to_stay_stays_and_needs_a_word_the_next_time() {
    let directory = directory();
    let path = directory.path().join("raw");
    let options = Options { file_bytes: Bytes::mib(1), keep_file: true, ..Options::default() };
    let content = Content::new(ContentClass::Incompressible, 1);
    let device = opened(Target::File(path.clone()), &options);
    block_on(device.perform(Operation::write(units(0, 1), content))).unwrap().unwrap();
    drop(device);
    let target = Target::File(path.clone());
    let refused = consent::check(&target, None).unwrap_err().to_string();
    let shown = path.display();
    assert_eq!(
        refused,
        format!(
            "{shown}: holds 1 MiB of data, all of which would be lost; if that is meant, repeat its path: \
            --destroy {shown}"
        )
    );
    // Reading needs none.
    let device = RawDevice::open(Access::Read(target.clone()), &options).unwrap();
    assert_eq!(block_on(device.stored(Lpn(0))).unwrap(), Ok(Stored::Content(content)));
    for operation in [Operation::write(units(0, 1), content), Operation::Trim(vec![units(0, 1)])] {
        let refused = device.submit(operation, 0).unwrap_err();
        assert!(
            matches!(&refused, BlockError::Unsupported(why) if why.ends_with("for reading only")),
            "{refused}"
        );
    }
    drop(device);
    let word = path.to_str();
    drop(RawDevice::open(Access::Write(consent::check(&target, word).unwrap()), &options).unwrap());
    assert!(path.exists(), "it was there before");
}

#[test]
fn a_file_that_changed_since_the_consent_is_not_touched() {
    let directory = directory();
    let path = directory.path().join("raw");
    let consent = consent::check(&Target::File(path.clone()), None).unwrap();
    std::fs::write(&path, "somebody's").unwrap();
    let error = RawDevice::open(Access::Write(consent), &Options::default()).unwrap_err();
    assert!(matches!(error, RawDeviceError::Changed { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
}

#[test]
fn a_file_for_which_there_is_no_room_is_refused_and_leaves_nothing() {
    let directory = directory();
    let path = directory.path().join("raw");
    let consent = consent::check(&Target::File(path.clone()), None).unwrap();
    let options = Options { file_bytes: Bytes::gib(1 << 20), ..Options::default() };
    let error = RawDevice::open(Access::Write(consent), &options).unwrap_err().to_string();
    assert!(error.contains("no room for a file of 1024 TiB: "), "{error}");
    assert!(!path.exists());
}

#[test]
fn where_direct_io_is_refused_a_note_says_so() {
    let memory = Path::new("/proc/self/status");
    let target = Target::File(memory.to_owned());
    // Nothing of procfs is of any size; what matters is that this ends with words.
    let error = RawDevice::open(Access::Read(target), &Options::default()).unwrap_err().to_string();
    assert_eq!(error, "/proc/self/status: has only 0 bytes; expected at least one unit of 4096 bytes");
}

#[test]
fn an_interrupted_device_does_nothing_more() {
    let directory = directory();
    let interrupted = Arc::new(AtomicBool::new(false));
    let path = directory.path().join("raw");
    let options =
        Options { file_bytes: Bytes::mib(4), interrupted: Arc::clone(&interrupted), ..Options::default() };
    let device = opened(Target::File(path.clone()), &options);
    device.submit(Operation::write(units(0, 100), Content::default()), 0).unwrap();
    interrupted.store(true, Ordering::Relaxed);
    assert_eq!(block_on(device.completion()).unwrap().unwrap_err(), BlockError::Interrupted);
    assert_eq!(device.submit(Operation::Flush, 1), Err(BlockError::Interrupted));
    assert_eq!(block_on(device.stored(Lpn(0))).unwrap(), Err(BlockError::Interrupted));
    block_on(device.sleep(SimDuration::from_secs(1000))).unwrap();
    // What was on its way is waited for; then the file goes.
    drop(device);
    assert!(!path.exists());
}

#[test]
fn more_memory_than_buffers_may_take_is_refused() {
    let directory = directory();
    let path = directory.path().join("raw");
    std::fs::File::create(&path).unwrap().set_len(4 << 30).unwrap();
    let target = Target::File(path.clone());
    let consent = consent::check(&target, path.to_str()).unwrap();
    let device = RawDevice::open(Access::Write(consent), &Options::default()).unwrap();
    let error = device.submit(Operation::read(units(0, 1 << 20)), 0).unwrap_err().to_string();
    assert!(error.contains("4 GiB would be on their way at once; expected at most 2 GiB"), "{error}");
}

fn on_a_device(trim_by_thread: bool) {
    if !can_run(&[]) {
        return;
    }
    let disk = Loop::blank(64 << 20);
    let options = Options { trim_by_thread, ..Options::default() };
    let before = disk.discards();
    let device = opened(Target::Device(disk.node()), &options);
    let facts = device.facts();
    assert_eq!((facts.size_units, facts.trim.unwrap().promises_zeros), (64 * 256, true));
    keeps_what_it_is_told(&device);
    let sent = disk.discards();
    assert_eq!((sent.0 - before.0, sent.1 - before.1), (2, 39 * 4096), "the kernel counted what was sent");
    let erase = block_on(device.erase()).unwrap().unwrap_err().to_string();
    assert!(erase.contains("hdparm") && erase.contains("nvme format"), "{erase}");
    // Nobody else may write it meanwhile.
    let busy = consent::check(&Target::Device(disk.node()), disk.node().to_str()).unwrap_err().to_string();
    assert!(busy.contains("busy") && busy.contains("never written to while it is in use"), "{busy}");
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
fn trims_complete_beside_writes() {
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
fn a_device_that_takes_no_discards_says_so_and_can_be_written() {
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
    assert!(refused.ends_with(": takes no TRIM"), "{refused}");
    block_on(device.perform(Operation::write(units(1, 1), Content::default()))).unwrap().unwrap();
}

#[test]
fn a_device_that_ends_early_is_a_clear_error() {
    if !can_run(&[]) {
        return;
    }
    let disk = Loop::blank(64 << 20);
    let device = opened(Target::Device(disk.node()), &Options::default());
    // The file below is cut: reads behind its end fail, as from a disk that vanishes half way.
    std::fs::File::options().write(true).open(&disk.image).unwrap().set_len(1 << 20).unwrap();
    loops::sh("losetup", &["-c", disk.node().to_str().unwrap()]);
    let error = block_on(device.perform(Operation::read(units(8192, 16)))).unwrap().unwrap_err().to_string();
    let shown = disk.node();
    assert!(
        error.starts_with(&format!("dev:{}: read of 65536 bytes at byte 33554432: ", shown.display())),
        "{error}"
    );
    // The rest works on.
    block_on(device.perform(Operation::read(units(0, 16)))).unwrap().unwrap();
}
