//! Real devices, file systems on them, and existing tools: needs root, loop devices and packages.

mod append_benchmark;
mod consent;
mod fio;
mod mounted_verify;
mod postmark;
mod postmark_side_by_side;
mod postmark_system_calls;
mod raw_device;
mod remount;
mod trim_loop_devices;
