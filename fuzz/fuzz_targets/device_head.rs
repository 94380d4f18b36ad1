//! The first bytes of a device, and a unit of what was written to it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::content::{Stored, recognise};
use trimwise::units::Lpn;
use trimwise_linux::consent::signature;

fuzz_target!(|head: &[u8]| {
    let known = signature(head).is_some();
    if head.iter().all(|&byte| byte == 0) {
        assert!(!known);
    }
    if let Stored::Content(content) = recognise(Lpn(7), head) {
        assert_eq!(content.stored(Lpn(7)), Stored::Content(content));
    }
});
