use trimwise::ssd::{Faults, ReadAfterTrim, TrimConfig};
use trimwise::units::UNIT_BYTES;

use super::*;

const UNIT: u64 = UNIT_BYTES;

pub fn drive(change: impl FnOnce(&mut SsdConfig), faults: Faults) -> EmulatedDrive {
    let mut config = SsdConfig::default().shrunk(Bytes::mib(64).0).unwrap();
    change(&mut config);
    let store = SparseStore::in_memory(Bytes(config.capacity_bytes)).unwrap();
    EmulatedDrive::new(&config, faults, 1, store, TimeScale::default()).unwrap()
}

fn byte_at(drive: &EmulatedDrive, unit: u64) -> u8 {
    let mut bytes = vec![0xEE; UNIT as usize];
    drive.read(unit * UNIT, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "unit {unit} is of one piece");
    bytes[0]
}

/// Fills the first `units` units with 7.
fn written(drive: &EmulatedDrive, units: u64) {
    drive.write(0, &vec![7; (units * UNIT) as usize]).unwrap();
}

#[test]
fn what_is_written_is_read_until_it_is_discarded() {
    let drive = drive(|_| (), Faults::default());
    written(&drive, 16);
    drive.write(4 * UNIT + 512, &[9; 512]).unwrap();
    let mut sector = [0; 512];
    drive.read(4 * UNIT + 512, &mut sector).unwrap();
    assert_eq!(sector, [9; 512]);
    // The partial units at both ends stay.
    drive.discard(8 * UNIT - 512, Bytes(2 * UNIT + 1024), false).unwrap();
    let found: Vec<u8> = (6..12).map(|unit| byte_at(&drive, unit)).collect();
    assert_eq!(found, [7, 7, 0, 0, 7, 7]);
    let counts = drive.counts();
    assert_eq!((counts.writes, counts.written_bytes), (2, 16 * UNIT + 512));
    assert_eq!((counts.discards, counts.discarded_bytes, counts.reads), (1, 2 * UNIT + 1024, 7));
    drive.flush().unwrap();
    assert_eq!(drive.counts().flushes, 1);
}

#[test]
fn a_discard_that_must_read_as_zeros_does_so_on_every_drive() {
    for read_after in [ReadAfterTrim::Zeros, ReadAfterTrim::Old, ReadAfterTrim::Undefined] {
        let drive = drive(|config| config.trim.read_after = read_after, Faults::default());
        written(&drive, 16);
        drive.discard(2 * UNIT, Bytes(2 * UNIT), false).unwrap();
        let kept = if read_after == ReadAfterTrim::Old { 7 } else { 0 };
        assert_eq!([byte_at(&drive, 2), byte_at(&drive, 3), byte_at(&drive, 4)], [kept, kept, 7]);
        drive.discard(8 * UNIT, Bytes(2 * UNIT), true).unwrap();
        drive.write_zeroes(12 * UNIT, Bytes(UNIT), true).unwrap();
        drive.write_zeroes(14 * UNIT, Bytes(UNIT), false).unwrap();
        let found: Vec<u8> = (7..16).map(|unit| byte_at(&drive, unit)).collect();
        assert_eq!(found, [7, 0, 0, 7, 7, 0, 7, 0, 7], "{read_after:?}");
    }
}

#[test]
fn faulty_firmware_destroys_what_the_model_says() {
    let shifted = drive(|_| (), Faults { trim_shift_units: 3, ..Faults::default() });
    written(&shifted, 16);
    shifted.discard(2 * UNIT, Bytes(2 * UNIT), false).unwrap();
    let found: Vec<u8> = (0..8).map(|unit| byte_at(&shifted, unit)).collect();
    assert_eq!(found, [7, 7, 7, 7, 7, 0, 0, 7]);

    let ignoring = drive(|_| (), Faults { ignores_trim: true, ..Faults::default() });
    written(&ignoring, 4);
    ignoring.discard(0, Bytes(4 * UNIT), false).unwrap();
    assert_eq!(byte_at(&ignoring, 0), 7);

    let late = drive(
        |config| config.trim.kind = trimwise::ssd::TrimKind::AtaQueued,
        Faults { queued_trim_late_writes: 2, ..Faults::default() },
    );
    written(&late, 16);
    late.discard(0, Bytes(UNIT), false).unwrap();
    late.write(0, &[9; UNIT as usize]).unwrap();
    assert_eq!(byte_at(&late, 0), 9, "not carried out yet");
    late.write(8 * UNIT, &[9; UNIT as usize]).unwrap();
    assert_eq!(byte_at(&late, 0), 0, "what was written since is lost");
}

#[test]
fn what_a_drive_cannot_do_is_refused_with_linux_s_number() {
    let drive = drive(|config| config.trim = TrimConfig::unsupported(), Faults::default());
    let number = |result: Result<Instant, RequestError>| result.unwrap_err().errno();
    let (invalid, unsupported) = (22, 95);
    assert_eq!(number(drive.write(1, &[0; 512])), invalid);
    assert_eq!(number(drive.write(0, &[0; 100])), invalid);
    assert_eq!(number(drive.read(Bytes::mib(64).0, &mut [0; 512])), invalid);
    assert_eq!(number(drive.read(u64::MAX - 511, &mut [0; 512])), invalid);
    assert_eq!(number(drive.write_zeroes(Bytes::mib(64).0, Bytes(512), true)), invalid);
    assert_eq!(number(drive.discard(0, Bytes(UNIT), true)), unsupported);
    assert_eq!(drive.counts(), PortCounts::default(), "nothing was done");
    // Without TRIM, zeros are written.
    written(&drive, 1);
    drive.write_zeroes(0, Bytes(UNIT), true).unwrap();
    assert_eq!((byte_at(&drive, 0), drive.counts().discards), (0, 0));
}

#[test]
fn answers_come_when_the_model_says() {
    let drive = drive(
        |config| {
            config.controller.read_overhead_ns = 50_000_000;
            config.cache.flush_ns = 20_000_000;
        },
        Faults::default(),
    );
    let begin = Instant::now();
    let due = drive.read(0, &mut [0; 4096]).unwrap();
    assert!(due >= begin + std::time::Duration::from_millis(50), "{:?}", due - begin);
    let due = drive.read(0, &mut [0; 4096]).unwrap();
    assert!(due >= begin + std::time::Duration::from_millis(100), "one after the other: {:?}", due - begin);
}

#[test]
fn many_threads_lose_nothing() {
    let drive = drive(|_| (), Faults::default());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let drive = &drive;
            scope.spawn(move || {
                for round in 1..50_u64 {
                    for unit in (thread..4096).step_by(4).step_by(16) {
                        if (unit / 64 + round).is_multiple_of(5) {
                            drive.discard(unit * UNIT, Bytes(UNIT), round % 2 == 0).unwrap();
                            assert_eq!(byte_at(drive, unit), 0);
                        } else {
                            drive.write(unit * UNIT, &[round as u8; UNIT as usize]).unwrap();
                            assert_eq!(byte_at(drive, unit), round as u8);
                        }
                    }
                }
            });
        }
    });
    let port = drive.port();
    port.drive().ssd().audit().unwrap();
}

#[test]
fn a_compressing_drive_is_told_what_it_is_given() {
    let whole = trimwise::profile::Profile::embedded("sandforce-240gb").unwrap().config;
    let config = whole.shrunk(Bytes::gib(1).0).unwrap();
    let amplification = |class: ContentClass| {
        let store = SparseStore::in_memory(Bytes(config.capacity_bytes)).unwrap();
        let drive = EmulatedDrive::new(&config, Faults::default(), 1, store, TimeScale::default()).unwrap();
        let mut bytes = vec![0; 1 << 20];
        for mib in 0..64_u64 {
            for (seed, unit) in (mib << 8..).zip(bytes.chunks_mut(UNIT as usize)) {
                class.fill_body(seed, unit);
            }
            drive.write(mib << 20, &bytes).unwrap();
        }
        drive.flush().unwrap();
        drive.port().drive().ssd().stats().write_amplification()
    };
    let random = amplification(ContentClass::Incompressible);
    let repeated = amplification(ContentClass::Compressible);
    assert!(repeated * 3.0 < random, "{repeated} {random}");
}
