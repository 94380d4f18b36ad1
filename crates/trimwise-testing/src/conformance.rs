//! A test that every device behind the block trait must pass: files, loop devices and emulated drives.

use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::{Content, ContentClass, Stored};
use trimwise::units::{Lba, Lpn, SectorRange, SimDuration, UnitRange};
use trimwise_linux::block_on;
use trimwise_linux::consent;
use trimwise_linux::raw_device::{Access, Options, RawDevice, Target};

use crate::in_time;

pub fn units(start: u64, count: u64) -> UnitRange {
    UnitRange::new(Lpn(start), count)
}

pub fn opened(target: &Target, options: &Options) -> RawDevice {
    in_time(|| RawDevice::open(Access::Write(in_time(|| consent::check(target, None))), options))
}

/// Tests writes of all classes and lengths at a queue depth, TRIM, and reads of parts.
pub fn keeps_what_it_is_told(device: &RawDevice) {
    block_on(async {
        let size_units = device.size_units();
        let mut expected = vec![None; 4096];
        let mut seen = Vec::new();
        let mut in_flight = 0;
        for (version, token) in (0..300u32).zip(0..) {
            let class = ContentClass::ALL[version as usize % 5];
            let content = Content::new(class, version);
            // The places do not overlap, because overlapping operations have no order. Some operations are long.
            let (start, count) = (u64::from(version) * 13, if version.is_multiple_of(7) { 12 } else { 1 });
            device.submit(Operation::write(units(start, count), content), token).unwrap();
            expected[start as usize..(start + count) as usize].fill(Some(content));
            in_flight += 1;
            while in_flight >= 32 {
                seen.push(device.completion().await.unwrap().token);
                in_flight -= 1;
            }
        }
        for _ in 0..in_flight {
            let completion = device.completion().await.unwrap();
            assert!(completion.latency() > SimDuration::ZERO);
            seen.push(completion.token);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
        let nothing = device.completion().await.unwrap_err();
        assert!(matches!(nothing, BlockError::Other(_)), "{nothing}");

        device.perform(Operation::Flush).await.unwrap();
        for (lpn, content) in (0..).map(Lpn).zip(&expected) {
            let stored = content.map_or(Stored::Zeros, |content| content.stored(lpn));
            assert_eq!(device.stored(lpn).await, Ok(stored), "{lpn:?}");
        }
        let trimmed = Operation::Trim(vec![units(13, 13), units(130, 26)]);
        assert!(device.perform(trimmed).await.unwrap() > SimDuration::ZERO);
        for lpn in (13..26).chain(130..156) {
            assert_eq!(device.stored(Lpn(lpn)).await, Ok(Stored::Zeros), "{lpn} was trimmed");
        }
        let kept = expected[156].unwrap();
        assert_eq!(device.stored(Lpn(156)).await, Ok(kept.stored(Lpn(156))));
        device.perform(Operation::Trim(Vec::new())).await.unwrap();

        // Long enough to need several calls, and up to the very end of the device.
        let long = units(size_units - 5000, 5000);
        device.perform(Operation::write(long, kept)).await.unwrap();
        device.perform(Operation::read(long)).await.unwrap();
        assert_eq!(device.stored(Lpn(size_units - 1)).await, Ok(kept.stored(Lpn(size_units - 1))));

        let beyond = device.submit(Operation::read(units(size_units, 1)), 0);
        assert!(matches!(beyond, Err(BlockError::OutOfRange { .. })), "{beyond:?}");
        let parts = device.perform(Operation::Read(SectorRange::new(Lba(3), 2))).await;
        match device.facts().sector_bytes {
            512 => {
                parts.unwrap();
                // A unit written sector by sector is the same unit.
                let content = Content::new(ContentClass::Incompressible, 77);
                for sector in 0..8 {
                    let part = SectorRange::new(Lba(8 * 2000 + sector), 1);
                    device.perform(Operation::Write(part, content)).await.unwrap();
                }
                assert_eq!(device.stored(Lpn(2000)).await, Ok(Stored::Content(content)));
            }
            _ => assert!(matches!(parts, Err(BlockError::Unsupported(_))), "{parts:?}"),
        }
    })
    .unwrap();
}
