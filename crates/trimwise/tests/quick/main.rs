//! The models against references, closed forms and what they promise: quick, needs nothing.

mod block_mapping;
mod block_target;
mod fragmenting;
mod fs_common;
mod fs_discard;
mod fs_memory_and_log;
mod fs_queue;
mod live;
mod live_frees;
mod live_host;
mod live_lent;
mod live_windows;
mod measuring;
mod policy_host;
mod ssd_classes;
mod ssd_options;
mod ssd_profile;
mod thin;
