//! `/sys/block/DEV/stat`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_linux::block_device::parse_stat;

fuzz_target!(|text: &str| {
    if let Some(stat) = parse_stat(text) {
        let fields = text.split_whitespace().count();
        assert_eq!(stat.discards.is_some(), fields >= 15);
        if let Some(counts) = stat.discards {
            assert_eq!(counts.since(counts).bytes.0, 0);
        }
    }
});
