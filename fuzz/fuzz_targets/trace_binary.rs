//! Binary traces: blktrace and, behind a first odd byte, libCacheSim's oracleGeneral.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::trace::{Event, Format, open};
use trimwise::units::SimTime;

fuzz_target!(|bytes: &[u8]| {
    let Some((format, bytes)) = bytes.split_first() else { return };
    let format = if format % 2 == 0 { Format::Blktrace } else { Format::OracleGeneral };
    let Ok(mut source) = open(bytes, Some(format)) else { return };
    let mut last = SimTime::ZERO;
    let mut records = 0;
    while let Ok(Some(record)) = source.next() {
        assert!(record.at >= last && (record.device as usize) < source.header().devices.len());
        if let Event::Request(request) = record.event {
            assert!(request.sectors.first.0.checked_add(request.sectors.sectors).is_some());
        }
        last = record.at;
        records += 1;
    }
    // A flush in front of a write makes two of one.
    assert!(records <= 2 * bytes.len() / 24);
});
