//! The loop driver: LOOP_CTL_GET_FREE, LOOP_CONFIGURE and LOOP_CLR_FD, with the numbers and structures of Linux's
//! include/uapi/linux/loop.h.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, Updater, ioctl};

use super::Number;

/// `struct loop_info64`. Only the flags and the file's identity are used here.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    remote_device: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption_type: u32,
    encryption_key_bytes: u32,
    flags: u32,
    file_name: [u8; 64],
    encryption_name: [u8; 64],
    encryption_key: [u8; 32],
    init: [u64; 2],
}

impl LoopInfo {
    fn empty() -> Self {
        Self {
            device: 0,
            inode: 0,
            remote_device: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encryption_type: 0,
            encryption_key_bytes: 0,
            flags: 0,
            file_name: [0; 64],
            encryption_name: [0; 64],
            encryption_key: [0; 32],
            init: [0; 2],
        }
    }
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_bytes: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// Returns the number of a free loop device, from `/dev/loop-control`. Another process can be given the same number.
pub fn free_number(control: BorrowedFd<'_>) -> Result<u32, Errno> {
    const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns the number.
    unsafe { ioctl(control, Number::<LOOP_CTL_GET_FREE>) }
}

/// Attaches a file to a loop device, with direct I/O. Fails with EBUSY if the device is taken.
pub fn configure(device: BorrowedFd<'_>, file: BorrowedFd<'_>, block_bytes: u32) -> Result<(), Errno> {
    const LOOP_CONFIGURE: Opcode = 0x4C0A;
    const LO_FLAGS_DIRECT_IO: u32 = 16;
    let info = LoopInfo { flags: LO_FLAGS_DIRECT_IO, ..LoopInfo::empty() };
    let mut config =
        LoopConfig { file: file.as_raw_fd().cast_unsigned(), block_bytes, info, reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, which `LoopConfig` is, and keeps no pointer to it; the
    // file it names by number is open during the call, and the kernel takes a reference of its own.
    unsafe { ioctl(device, Updater::<LOOP_CONFIGURE, _>::new(&mut config)) }
}

/// Returns device and inode number of a loop device's file, as in stat(2).
pub fn file(device: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    const LOOP_GET_STATUS64: Opcode = 0x4C05;
    let mut info = LoopInfo::empty();
    // SAFETY: LOOP_GET_STATUS64 fills one `struct loop_info64`, which `LoopInfo` is.
    unsafe { ioctl(device, Updater::<LOOP_GET_STATUS64, _>::new(&mut info)) }?;
    Ok((info.device, info.inode))
}

/// Detaches the file from a loop device: at once, or when the last other user closes it.
pub fn clear(device: BorrowedFd<'_>) -> Result<(), Errno> {
    const LOOP_CLR_FD: Opcode = 0x4C01;
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernel_s_sizes() {
        assert_eq!(size_of::<LoopInfo>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
    }
}
