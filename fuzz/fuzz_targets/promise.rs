//! What drives answer of themselves: IDENTIFY DEVICE, page B2h, Identify Namespace.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_linux::raw_device::{dlfeat_promises_zeros, identify_promises_zeros, lbprz_promises_zeros};

fuzz_target!(|answer: &[u8]| {
    assert_eq!(identify_promises_zeros(answer).is_some(), answer.len() >= 512);
    assert_eq!(dlfeat_promises_zeros(answer).is_some(), answer.len() >= 4096);
    assert!(lbprz_promises_zeros(answer).is_none() || answer[1] == 0xb2);
});
