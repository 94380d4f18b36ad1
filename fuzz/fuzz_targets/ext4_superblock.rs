//! ext4 superblocks, as a disk may hold them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_linux::layout::parse_ext4_superblock;

fuzz_target!(|bytes: &[u8]| {
    if let Some(layout) = parse_ext4_superblock(bytes) {
        assert!(layout.groups() > 0 && layout.cluster >= layout.block && layout.cluster <= layout.group);
        for at in [0, layout.group.0, layout.end.0, u64::MAX] {
            assert!(layout.group_end(at) >= at);
        }
    }
});
