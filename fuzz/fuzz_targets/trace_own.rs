//! trimwise's own trace format.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::trace::format::{Reader, Writer};
use trimwise::trace::{Record, Source};

fn read(bytes: &[u8]) -> Option<(Vec<Record>, bool, trimwise::trace::Header)> {
    let mut reader = Reader::new(bytes).ok()?;
    let mut records: Vec<Record> = Vec::new();
    let is_whole = loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    Some((records, is_whole, reader.header().clone()))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((records, is_whole, header)) = read(bytes) else { return };
    assert!(records.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(records.iter().all(|record| (record.device as usize) < header.devices.len()));
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for record in &records {
        writer.write(record).unwrap();
    }
    let again = read(&writer.finish().unwrap()).expect("what was written");
    assert!(again.1 && again.0 == records, "what was read is written as it was; whole: {is_whole}");
});
