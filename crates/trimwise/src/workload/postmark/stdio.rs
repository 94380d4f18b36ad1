//! The system calls of buffered C I/O.
//!
//! With `set buffering true`, PostMark's default, the program calls `fwrite` and `fread` with its block size (512
//! bytes), and the C library turns these into system calls. On a fast device these calls are most of the cost of a run,
//! so their number and sizes are reproduced: this is glibc's scheme, as observed with strace on glibc 2.36 (the C
//! library is free to change it).
//!
//! Only lengths are tracked. The data of a PostMark file are one contiguous range of the source buffer, so the contents
//! of the stdio buffer are always a range of it too, and nothing has to be copied here. The cost of copying is charged
//! through [`charge_user_copy`](crate::files::Files::charge_user_copy).

/// Size of a stdio buffer: the `st_blksize` of the file, which is 4,096 on ext4, XFS, btrfs and tmpfs.
pub(crate) const BUFFER_BYTES: u32 = 4096;

/// The system calls that one `fwrite` makes, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// First, a write of this many bytes from the buffer, perhaps including the first bytes of this call; 0 means none.
    pub flush: u32,
    /// Then, a write of this many bytes directly from the caller's memory; 0 means none.
    pub direct: u32,
    /// Bytes that this call copied into the buffer, before or after the writes.
    pub copied: u32,
}

/// The writing side of a stream: `fopen` with `w` or `a`, then `fwrite`, then `fclose`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteStream {
    held: u32,
    /// The buffer exists. The first write creates it, and until then there is no room in it.
    has_buffer: bool,
}

impl WriteStream {
    /// Writes `bytes` bytes as `fwrite` does.
    ///
    /// Copies the bytes that fit. If some are left, the buffer is flushed, whole multiples of the buffer size are
    /// written past it, and the rest is copied. A buffer that has just become full is not flushed yet.
    pub(crate) fn fwrite(&mut self, bytes: u32) -> Written {
        let room = if self.has_buffer { BUFFER_BYTES - self.held } else { 0 };
        let fits = bytes.min(room);
        self.held += fits;
        let left = bytes - fits;
        if left == 0 {
            return Written { copied: fits, ..Written::default() };
        }
        self.has_buffer = true;
        let tail = left % BUFFER_BYTES;
        let written = Written { flush: self.held, direct: left - tail, copied: fits + tail };
        self.held = tail;
        written
    }

    /// Closes as `fclose` does. Returns the number of bytes that it writes; 0 means none.
    pub(crate) fn fclose(self) -> u32 {
        self.held
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStep {
    Done,
    Fill,
    /// Read this many bytes, a multiple of the buffer size, into the caller's memory.
    Direct(u32),
}

/// The reading side of a stream: `fopen` with `r`, then `fread`, then `fclose`.
///
/// Each `fread` is a loop: call [`ReadStream::step`], make the call it names, report its result with
/// [`ReadStream::filled`] or [`ReadStream::read_directly`], until `Done` or a result of 0 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadStream {
    held: u32,
    /// Bytes that the current `fread` still wants.
    wanted: u32,
    /// Bytes copied out of the buffer and not yet taken by [`ReadStream::take_copied`].
    copied: u64,
}

impl ReadStream {
    pub(crate) fn fread(&mut self, bytes: u32) {
        self.wanted = bytes;
    }

    /// Returns the next step, after taking the bytes in the buffer.
    pub fn step(&mut self) -> ReadStep {
        let taken = self.wanted.min(self.held);
        self.held -= taken;
        self.wanted -= taken;
        self.copied += u64::from(taken);
        match self.wanted {
            0 => ReadStep::Done,
            wanted if wanted < BUFFER_BYTES => ReadStep::Fill,
            wanted => ReadStep::Direct(wanted - wanted % BUFFER_BYTES),
        }
    }

    pub fn filled(&mut self, bytes: u32) {
        self.held = bytes.min(BUFFER_BYTES);
    }

    pub(crate) fn read_directly(&mut self, bytes: u32) {
        self.wanted = self.wanted.saturating_sub(bytes);
    }

    pub(crate) fn take_copied(&mut self) -> u64 {
        std::mem::take(&mut self.copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the `write` calls for a file of `size` bytes written in blocks of `block`, and the bytes copied.
    fn writes(size: u32, block: u32) -> (Vec<u32>, u32) {
        let (mut stream, mut calls, mut copied) = (WriteStream::default(), Vec::new(), 0);
        let mut left = size;
        while left > 0 {
            let written = stream.fwrite(left.min(block));
            calls.extend([written.flush, written.direct]);
            copied += written.copied;
            left -= left.min(block);
        }
        calls.push(stream.fclose());
        calls.retain(|&bytes| bytes > 0);
        (calls, copied)
    }

    /// The sizes asked of `read` for a file of `size` bytes read in blocks of `block`, and the bytes copied.
    fn reads(size: u32, block: u32) -> (Vec<u32>, u64) {
        let (mut stream, mut calls, mut in_file, mut left) = (ReadStream::default(), Vec::new(), size, size);
        while left > 0 {
            stream.fread(left.min(block));
            loop {
                let asked = match stream.step() {
                    ReadStep::Done => break,
                    ReadStep::Fill => BUFFER_BYTES,
                    ReadStep::Direct(bytes) => bytes,
                };
                let got = asked.min(in_file);
                in_file -= got;
                calls.push(asked);
                if asked == BUFFER_BYTES && stream.wanted < BUFFER_BYTES {
                    stream.filled(got);
                } else {
                    stream.read_directly(got);
                }
            }
            left -= left.min(block);
        }
        (calls, stream.take_copied())
    }

    /// Each line was seen with `strace -e trace=write` on Debian's PostMark 1.53-2.
    #[test]
    fn writes_are_those_that_strace_shows() {
        assert_eq!(writes(10942, 5000).0, [4096, 4096, 2750]);
        assert_eq!(writes(12289, 5000).0, [4096, 4096, 4096, 1]);
        assert_eq!(writes(9002, 3000).0, [4096, 4096, 810]);
        assert_eq!(writes(12826, 4096).0, [4096, 4096, 4096, 538]);
        assert_eq!(writes(1, 3000).0, [1]);
    }

    #[test]
    fn small_blocks_go_through_the_buffer_and_large_ones_past_it() {
        assert_eq!(writes(10_000, 512), (vec![4096, 4096, 1808], 10_000));
        // The first block is written directly; the second just fits into the buffer that the first one created.
        assert_eq!(writes(8192, 4096), (vec![4096, 4096], 4096));
        assert_eq!(writes(100_000, 50_000), (vec![49_152, 4096, 45_056, 1696], 848 + 3248 + 1696));
    }

    /// Each line was seen with `strace -e trace=read` on Debian's PostMark 1.53-2.
    #[test]
    fn reads_are_those_that_strace_shows() {
        assert_eq!(reads(12826, 9000).0, [8192, 4096, 4096]);
        assert_eq!(reads(12826, 3000).0, [4096, 4096, 4096, 4096]);
        assert_eq!(reads(9001, 5000).0, [4096, 4096, 4096]);
    }

    #[test]
    fn only_buffered_bytes_are_copied_on_reading() {
        assert_eq!(reads(12826, 9000).1, 12826 - 8192);
        assert_eq!(reads(5000, 512).1, 5000);
    }
}
