//! Signals that a process inherits blocked or ignored.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

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

/// A signal, as [`tell`] writes it to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub signal: i32,
    /// The process that sent it; `None` if the kernel did, and 0 if it is in a PID namespace that this one cannot see.
    pub sender: Option<i32>,
}

impl Told {
    pub const BYTES: usize = 8;

    pub fn read(bytes: [u8; Self::BYTES]) -> Self {
        let [signal, sender] = [&bytes[..4], &bytes[4..]].map(|half| {
            let mut number = [0; 4];
            number.copy_from_slice(half);
            i32::from_ne_bytes(number)
        });
        Self { signal, sender: (sender >= 0).then_some(sender) }
    }
}

/// From now on, writes each arrival of a signal to a socket, as [`Told`].
pub fn tell(signal: i32, socket: UnixStream) -> io::Result<()> {
    let action = move |info: &libc::siginfo_t| {
        // SAFETY: positive codes are the kernel's; all others have the sender (sigaction(2)).
        let sender = if info.si_code > 0 { -1 } else { unsafe { info.si_pid() } };
        let told = [signal.to_ne_bytes(), sender.to_ne_bytes()];
        // SAFETY: send(2) is async-signal-safe; the buffer lives for the call, and the socket as long as this action.
        unsafe {
            libc::send(
                socket.as_raw_fd(),
                told.as_ptr().cast(),
                Told::BYTES,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            );
        }
    };
    // SAFETY: the action makes one system call, allocates nothing and takes no lock.
    unsafe { signal_hook_registry::register_sigaction(signal, action) }.map(drop)
}
