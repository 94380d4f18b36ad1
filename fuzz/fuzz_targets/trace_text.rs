//! Traces as text: blkparse, tracepoints, biosnoop, fio, and the published ones. The first byte chooses the format, or that it is recognised.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::trace::{Format, open};
use trimwise::units::SimTime;

const FORMATS: [Option<Format>; 13] = [
    None,
    Some(Format::Blkparse),
    Some(Format::Fio),
    Some(Format::Msr),
    Some(Format::Alibaba),
    Some(Format::Tencent),
    Some(Format::Mqsim),
    Some(Format::Tracepoints),
    Some(Format::Biosnoop),
    Some(Format::Systor),
    Some(Format::Spc),
    Some(Format::Etw),
    Some(Format::CloudPhysics),
];

fuzz_target!(|bytes: &[u8]| {
    let Some((format, text)) = bytes.split_first() else { return };
    let Ok(mut source) = open(text, FORMATS[usize::from(*format) % FORMATS.len()]) else { return };
    let mut last = SimTime::ZERO;
    loop {
        match source.next() {
            Ok(Some(record)) => {
                assert!(record.at >= last && (record.device as usize) < source.header().devices.len());
                last = record.at;
            }
            Ok(None) => break,
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("line ") || error.contains("record "), "{error}");
                assert!(source.next().is_ok_and(|next| next.is_none()), "nothing follows an error");
                break;
            }
        }
    }
});
