//! What a child process does for itself between fork and exec.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Lets the child be killed when the thread that starts it ends, however that comes about.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only what is safe in a signal handler may run; this is one system call (prctl),
    // and no memory is allocated.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// Lets the child's memory lie at the same addresses in every run.
pub fn without_randomized_addresses(command: &mut Command) {
    // SAFETY: as above; personality(2) takes and returns numbers only.
    unsafe {
        command.pre_exec(|| match libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}
