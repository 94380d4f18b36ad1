//! Real kernels in virtual time: needs a kernel from `trimwise kernel build`, and the programs that make file systems.

/// Makes a test on each of these file systems: `body::ext4`.
macro_rules! test_on {
    ($body:ident: $($file_system:ident)+) => {
        mod $body {
            $(#[test]
            fn $file_system() {
                super::$body(stringify!($file_system).parse().unwrap());
            })+
        }
    };
}

mod batches;
mod blktrace;
#[path = "../common/mod.rs"]
mod common;
mod crashtest;
mod daemon_guests;
mod daemon_week;
mod dm_trim;
mod ext4_trim;
mod f2fs;
mod file_systems;
mod guest_daemon;
mod guest_faults;
mod guests;
mod kernel;
mod kernels_experiment;
mod model_ext4;
mod papers;
mod programs;
mod reproduction;
mod run_disks;
mod run_output;
#[cfg(feature = "kernel-7-3-tests")]
mod seccomp;
mod verdicts;
mod verdicts_fs;
