//! Tests of `bench` and parts of a device: no text panics, and what is accepted is written as it was given.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_study::bench::{Part, Test};
use trimwise::units::{Lpn, UnitRange};

fuzz_target!(|text: &str| {
    if let Ok(test) = text.parse::<Test>() {
        assert_eq!(test.to_string().parse(), Ok(test));
    }
    if let Ok(part) = text.parse::<Part>() {
        assert_eq!(part.to_string().parse(), Ok(part));
        let whole = UnitRange::new(Lpn(3), 1_000_003);
        let range = part.of(whole);
        assert!(range.start >= whole.start && range.end() <= whole.end());
    }
});
