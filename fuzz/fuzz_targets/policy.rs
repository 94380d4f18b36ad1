//! Policies: no text panics, and what is accepted is written as it was given.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::policy::PolicySpec;

fuzz_target!(|text: &str| {
    if let Ok(policy) = text.parse::<PolicySpec>() {
        assert_eq!(policy.to_string().parse(), Ok(policy));
        assert_eq!(policy.governor().needs().oracle, !policy.is_usable());
    }
});
