//! Benchmarks of the models: `benches/device.rs` the device alone, `benches/policy.rs` the pending set with a million
//! extents, `benches/stack.rs` a whole run, from mkfs to unmount; and `benches/guest.rs` a real kernel in virtual time.
//! `just bench` runs them.
