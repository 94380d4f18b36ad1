//! Signals that a process inherits blocked or ignored.

use std::mem::MaybeUninit;

/// Unblocks all signals, and stops ignoring SIGCHLD: a program that starts this one may have blocked SIGTERM, which would
/// then never arrive, or ignored SIGCHLD, which would hide how child processes end.
pub fn reset() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before it is read; the calls take no other pointers and keep none.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}
