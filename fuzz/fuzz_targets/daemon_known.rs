//! The file in which the daemon keeps what is known to be trimmed: it may have been cut off, or be another's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwised::known::parse;

fuzz_target!(|text: &str| {
    match parse(text, "boot") {
        Ok(all) => {
            for kept in all {
                let (now, total) = (kept.then, kept.then.total);
                let Ok(known) = kept.believed(now) else { continue };
                assert!(known.trimmed.windows(2).all(|pair| pair[0].end <= pair[1].start));
                assert!(known.trimmed.iter().all(|span| span.start < span.end && span.end <= total));
            }
        }
        Err(why) => assert!(!why.is_empty()),
    }
});
