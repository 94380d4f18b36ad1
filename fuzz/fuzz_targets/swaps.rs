//! `/proc/swaps`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_linux::consent::parse_swaps;

fuzz_target!(|text: &str| {
    assert!(parse_swaps(text).iter().all(|path| path.is_absolute()));
});
