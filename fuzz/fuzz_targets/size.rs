//! Sizes on the command line (`--min-extent`, `--slice`...).

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::units::Bytes;

fuzz_target!(|text: &str| {
    match text.parse::<Bytes>() {
        Ok(bytes) => assert_eq!(bytes.0.to_string().parse(), Ok(bytes)),
        Err(error) => assert!(error.to_string().contains(text)),
    }
});
