//! A file behind the block trait: written data are stored, TRIM leaves zeros, completions come once each, and errors
//! name the operation that failed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::{Content, ContentClass, Stored};
use trimwise::units::{Bytes, Lpn, SimDuration};
use trimwise_linux::raw_device::{Access, Options, RawDevice, RawDeviceError, Target};
use trimwise_linux::{block_on, consent};
use trimwise_testing::conformance::{keeps_what_it_is_told, opened, units};
use trimwise_testing::scratch;

fn file(path: &Path, mib: u64) -> RawDevice {
    opened(&Target::File(path.to_owned()), &Options { file_bytes: Bytes::mib(mib), ..Options::default() })
}

#[test]
fn a_file_keeps_what_it_is_told_and_is_removed_at_the_end() {
    let directory = scratch();
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
fn a_file_of_the_user_stays_and_needs_confirmation_once_it_holds_data() {
    let directory = scratch();
    let path = directory.path().join("raw");
    let options = Options { file_bytes: Bytes::mib(1), ..Options::default() };
    std::fs::File::create(&path).unwrap();
    let content = Content::new(ContentClass::Incompressible, 1);
    let device = opened(&Target::File(path.clone()), &options);
    block_on(device.perform(Operation::write(units(0, 1), content))).unwrap().unwrap();
    drop(device);
    let target = Target::File(path.clone());
    let refused = consent::check(&target, None).unwrap_err().to_string();
    let shown = path.display();
    assert_eq!(
        refused,
        format!(
            "{shown}: holds 1 MiB of data, all of which would be lost; if that is what you want, repeat its path: \
             --destroy {shown}"
        )
    );
    // Reading needs no confirmation.
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
    let directory = scratch();
    let path = directory.path().join("raw");
    let consent = consent::check(&Target::File(path.clone()), None).unwrap();
    std::fs::write(&path, "somebody's").unwrap();
    let error = RawDevice::open(Access::Write(consent), &Options::default()).unwrap_err();
    assert!(matches!(error, RawDeviceError::Changed { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
}

/// Regression test: the file was opened a second time by name, which another user could have replaced by a link
/// meanwhile.
#[test]
fn regression_a_link_in_the_place_of_a_new_file_overwrites_nothing() {
    let directory = scratch();
    let (path, victim) = (directory.path().join("raw"), directory.path().join("victim"));
    let precious = [7; 8192];
    std::fs::write(&victim, precious).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                if std::fs::remove_file(&path).is_ok() {
                    drop(std::os::unix::fs::symlink(&victim, &path));
                }
            }
        });
        for _ in 0..300 {
            let Ok(consent) = consent::check(&Target::File(path.clone()), None) else { continue };
            let options = Options { file_bytes: Bytes::kib(8), ..Options::default() };
            let Ok(device) = RawDevice::open(Access::Write(consent), &options) else { continue };
            drop(block_on(device.perform(Operation::write(units(0, 2), Content::default()))));
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(std::fs::read(&victim).unwrap(), precious);
}

#[test]
fn an_empty_file_filled_since_the_consent_is_not_touched() {
    let directory = scratch();
    let path = directory.path().join("raw");
    std::fs::write(&path, "").unwrap();
    let consent = consent::check(&Target::File(path.clone()), None).unwrap();
    std::fs::write(&path, vec![7; 4096]).unwrap();
    let error = RawDevice::open(Access::Write(consent), &Options::default()).unwrap_err();
    assert!(matches!(error, RawDeviceError::Changed { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 4096]);
}

#[test]
fn another_file_of_the_same_name_is_not_removed() {
    let directory = scratch();
    let path = directory.path().join("raw");
    let device = file(&path, 1);
    std::fs::rename(&path, directory.path().join("moved")).unwrap();
    std::fs::write(&path, "somebody's").unwrap();
    drop(device);
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
}

#[test]
fn a_file_that_does_not_fit_is_refused_and_leaves_nothing() {
    let directory = scratch();
    let path = directory.path().join("raw");
    let consent = consent::check(&Target::File(path.clone()), None).unwrap();
    let options = Options { file_bytes: Bytes::gib(1 << 20), ..Options::default() };
    let error = RawDevice::open(Access::Write(consent), &options).unwrap_err().to_string();
    assert!(error.contains("no room for a file of 1024 TiB: "), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_file_of_no_size_is_refused() {
    let memory = Path::new("/proc/self/status");
    let target = Target::File(memory.to_owned());
    // Files of procfs have no size; what matters is a clear error.
    let error = RawDevice::open(Access::Read(target), &Options::default()).unwrap_err().to_string();
    assert_eq!(error, "/proc/self/status: has only 0 bytes; expected at least one unit of 4096 bytes");
}

#[test]
fn regression_a_new_file_that_is_too_small_is_refused_with_the_size_that_was_asked_for() {
    let directory = scratch();
    let path = directory.path().join("raw");
    for (bytes, words) in [(100, "100 bytes"), (1, "1 byte")] {
        let consent = consent::check(&Target::File(path.clone()), None).unwrap();
        let options = Options { file_bytes: Bytes(bytes), ..Options::default() };
        let error = RawDevice::open(Access::Write(consent), &options).unwrap_err().to_string();
        assert!(
            error.contains(&format!("raw: a file of {words} is too small for a test; expected")),
            "{error}"
        );
        assert!(!path.exists());
    }
}

#[test]
fn an_interrupted_device_stops() {
    let directory = scratch();
    let interrupted = Arc::new(AtomicBool::new(false));
    let path = directory.path().join("raw");
    let options =
        Options { file_bytes: Bytes::mib(4), interrupted: Arc::clone(&interrupted), ..Options::default() };
    let device = opened(&Target::File(path.clone()), &options);
    device.submit(Operation::write(units(0, 100), Content::default()), 0).unwrap();
    interrupted.store(true, Ordering::Relaxed);
    assert_eq!(block_on(device.completion()).unwrap().unwrap_err(), BlockError::Interrupted);
    assert_eq!(device.submit(Operation::Flush, 1), Err(BlockError::Interrupted));
    assert_eq!(block_on(device.stored(Lpn(0))).unwrap(), Err(BlockError::Interrupted));
    block_on(device.sleep(SimDuration::from_secs(1000))).unwrap();
    // Operations in flight are waited for, then the file is removed.
    drop(device);
    assert!(!path.exists());
}

#[test]
fn more_memory_than_buffers_may_take_is_refused() {
    let directory = scratch();
    let path = directory.path().join("raw");
    std::fs::File::create(&path).unwrap().set_len(4 << 30).unwrap();
    let target = Target::File(path.clone());
    let consent = consent::check(&target, path.to_str()).unwrap();
    let device = RawDevice::open(Access::Write(consent), &Options::default()).unwrap();
    let error = device.submit(Operation::read(units(0, 1 << 20)), 0).unwrap_err().to_string();
    assert!(error.contains("4 GiB would be in flight at once; expected at most 2 GiB"), "{error}");
}
