//! Prepares a child process between fork and exec.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Signal, chdir, getgid, getuid, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Kills the child when the thread that starts it ends, for whatever reason.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe code may run; this is one system call (prctl), and no memory
    // is allocated.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// Disables address-space randomisation in the child. Where that is forbidden, as in most containers, the child does not
/// start, and says so on its standard error.
pub fn without_randomized_addresses(command: &mut Command) {
    // SAFETY: as above; personality(2) takes and returns numbers only.
    unsafe {
        command.pre_exec(|| match libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) {
            -1 => {
                let error = io::Error::last_os_error();
                say_what_failed("the same addresses each time");
                Err(error)
            }
            _ => Ok(()),
        });
    }
}

/// Confines the child's writes to `folder`, which must be its working directory, and mounts a tmpfs of its own on
/// `memory`, a directory there.
///
/// The child gets a private mount namespace in which all mounts but these two are read-only. That requires root or a
/// user namespace in which the user keeps their identity. If neither is possible, the child does not start, and prints
/// on its standard error what failed.
pub fn with_the_host_read_only(command: &mut Command, folder: &Path, memory: &str) -> io::Result<()> {
    let text = |text: String| CString::new(text).map_err(io::Error::other);
    let folder = CString::new(folder.canonicalize()?.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let memory = text(memory.to_owned())?;
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let maps = [
        (c"/proc/self/uid_map", format!("{uid} {uid} 1")),
        (c"/proc/self/setgroups", "deny".to_owned()),
        (c"/proc/self/gid_map", format!("{gid} {gid} 1")),
    ];
    let isolate = move || {
        let mounts = UnshareFlags::NEWNS;
        // SAFETY: the child has one thread, and shares nothing with its parent that these undo.
        match unsafe { unshare_unsafe(mounts) } {
            Err(Errno::PERM) => {
                // SAFETY: as above.
                unsafe { unshare_unsafe(mounts | UnshareFlags::NEWUSER) }
                    .map_err(|e| ("a user namespace", e))?;
                for (path, map) in &maps {
                    let write = || {
                        let file = rustix::fs::open(*path, OFlags::WRONLY, Mode::empty())?;
                        rustix::io::write(file, map.as_bytes())
                    };
                    write().map_err(|e| ("the users of a user namespace", e))?;
                }
            }
            unshared => unshared.map_err(|e| ("a mount namespace", e))?,
        }
        // Otherwise later mounts elsewhere would appear here, and be writable.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change(c"/", private).map_err(|e| ("private mounts", e))?;
        let own = || {
            mount_bind(c".", c".")?;
            chdir(folder.as_c_str())?; // enter the new mount
            mount(c"tmpfs", &memory, c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"size=0,mode=700")
        };
        own().map_err(|e| ("mounts of its own", e))?;
        set_read_only(c"/", true).map_err(|e| ("read-only mounts", e))?;
        set_read_only(c".", false).and_then(|()| set_read_only(&memory, false)).map_err(|e| ("its folder", e))
    };
    // SAFETY: as above; these are system calls with strings allocated beforehand.
    unsafe {
        command.pre_exec(move || {
            isolate().map_err(|(what, errno)| {
                say_what_failed(what);
                errno.into()
            })
        });
    }
    Ok(())
}

/// Prints on standard error which step failed before the child's program began.
fn say_what_failed(what: &str) {
    let _ = rustix::io::write(rustix::stdio::stderr(), what.as_bytes());
}

/// Makes a mount and all mounts below it read-only, or this mount alone writable again.
fn set_read_only(path: &std::ffi::CStr, is_read_only: bool) -> rustix::io::Result<()> {
    /// `struct mount_attr`: attributes to set, attributes to clear, propagation, user namespace.
    #[repr(C)]
    struct Attributes([u64; 4]);
    let read_only = libc::MS_RDONLY; // MOUNT_ATTR_RDONLY has the same value
    let (attributes, flags) = if is_read_only {
        (Attributes([read_only, 0, 0, 0]), libc::AT_RECURSIVE)
    } else {
        (Attributes([0, read_only, 0, 0]), 0)
    };
    let size = size_of::<Attributes>();
    use std::os::fd::AsRawFd as _;
    // SAFETY: path and attributes live for the call, which reads `size` bytes of the latter.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            CWD.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
