//! What `dmsetup table` prints.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_linux::layers::{parse_table, through};

fuzz_target!(|text: &str| {
    if let Ok(pieces) = parse_table(text) {
        assert_eq!(pieces.len(), text.lines().count());
        for piece in &pieces {
            let found = through(&pieces, piece.start * 512, 512);
            assert!(found.is_some() || piece.sectors == 0);
        }
        let _ = through(&pieces, u64::MAX, 4096);
    }
});
