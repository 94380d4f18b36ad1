//! What a client of NBD says: heads of options, what is wanted of an export, and requests.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_device::nbd::protocol::{
    Command, DATA_BYTES_MAX, OPTION_BYTES_MAX, OPTION_HEAD_BYTES, OptionAnswer, OptionHead, REQUEST_BYTES, Request,
    Wanted, option_answer,
};

fuzz_target!(|bytes: &[u8]| {
    if let Some(head) = bytes.first_chunk::<OPTION_HEAD_BYTES>()
        && let Ok(head) = OptionHead::parse(head)
    {
        assert!(head.data_bytes <= OPTION_BYTES_MAX);
        let data = &bytes[OPTION_HEAD_BYTES..];
        let answer = option_answer(head.number, OptionAnswer::Info, data);
        assert_eq!(answer.len(), 20 + data.len());
    }
    if let Some(head) = bytes.first_chunk::<REQUEST_BYTES>()
        && let Ok(request) = Request::parse(head)
    {
        assert!(request.command != Command::Write || request.length_bytes <= DATA_BYTES_MAX);
    }
    if let Some(wanted) = Wanted::parse(bytes) {
        assert_eq!(4 + wanted.export.len() + 2 + 2 * wanted.information.len(), bytes.len());
    }
});
