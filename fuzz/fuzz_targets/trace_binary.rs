//! Binary traces. The first byte chooses: blktrace, libCacheSim's oracleGeneral, vscsi, or blktrace of two processors,
//! each with a half of the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::trace::{Event, Format, Part, open_parts};
use trimwise::units::SimTime;

fuzz_target!(|bytes: &[u8]| {
    let Some((format, bytes)) = bytes.split_first() else { return };
    fn part(bytes: &[u8]) -> Part<'_> {
        (String::new(), Box::new(bytes))
    }
    let (format, parts) = match format % 4 {
        0 => (Format::Blktrace, vec![part(bytes)]),
        1 => (Format::OracleGeneral, vec![part(bytes)]),
        2 => (Format::Vscsi, vec![part(bytes)]),
        _ => {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            (Format::Blktrace, vec![part(first), part(second)])
        }
    };
    let Ok(mut source) = open_parts(parts, Some(format)) else { return };
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
