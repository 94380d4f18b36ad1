//! What anybody may send to the daemon's sockets, and what a helper may answer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_linux::daemon::control::Request;
use trimwised::helper::parse_answer;

fuzz_target!(|bytes: &[u8]| {
    match Request::parse(bytes) {
        Ok(request) => assert_eq!(Request::parse(request.line().trim_end().as_bytes()), Ok(request)),
        Err(why) => assert!(!why.is_empty()),
    }
    if let Some((spans, _)) = parse_answer(bytes) {
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
});
