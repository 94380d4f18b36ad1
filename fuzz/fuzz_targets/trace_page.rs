//! The kernel's trace buffers: formats as text, and behind the first byte 0 a page of records.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_linux::tracefs::format::{PageFormat, Tracepoint};

const PAGE: &str = "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
const EXT4: &str = "ID: 7\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:__u64 block;\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned long count;\toffset:32;\tsize:8;\tsigned:0;\n";

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let page = parts.next().unwrap_or_default();
    let formats = [PageFormat::parse(&text), PageFormat::parse(PAGE)];
    let events = [Tracepoint::Xfs.parse(&text), Tracepoint::Ext4.parse(&text), Tracepoint::Ext4.parse(EXT4)];
    for format in formats.into_iter().flatten() {
        let lost = format.records(page, |_, record| {
            assert!(record.len() <= page.len());
            for freed in events.iter().flatten().filter_map(|event| event.read(record)) {
                let span = freed.span(4096, 1 << 30, 1 << 40);
                assert!(span.start <= span.end && span.end <= 1 << 40);
            }
        });
        assert!(lost == 0 || !page.is_empty());
    }
});
