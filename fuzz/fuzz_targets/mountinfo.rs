//! `/proc/self/mountinfo`: mount points and options come from users, so that any bytes may stand there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise_linux::mount::parse_mountinfo;

fuzz_target!(|text: &[u8]| {
    let mounts = parse_mountinfo(text);
    assert!(mounts.len() <= text.split(|&byte| byte == b'\n').count());
    for mount in &mounts {
        let discard = mount.discard();
        assert!(discard == "discard" || discard == "nodiscard" || discard.starts_with("discard="));
        assert!(mount.options.iter().all(|option| !option.is_empty() && !option.contains(',')));
    }
});
