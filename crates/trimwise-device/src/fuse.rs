//! The drive as one file of a FUSE file system; only this file uses the crate `fuser`.
//!
//! The file is as long as the drive. Its users talk to the drive directly (direct I/O, no page cache, no write-back):
//! requests arrive as they were made. FALLOC_FL_PUNCH_HOLE is a discard, FALLOC_FL_ZERO_RANGE a write of zeros, fsync a
//! flush.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use trimwise::units::{Bytes, SECTOR_BYTES, UNIT_BYTES};

use crate::{Completions, EmulatedDrive, RequestError};

/// The file's name in the mounted directory.
pub const FILE: &str = "drive";
/// Largest write that arrives in one piece.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Time for which the kernel may cache attributes, which never change.
const FOR_EVER: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseEvent {
    /// The last open handle of the file was closed.
    Released,
    /// The file is no longer reachable: it was unmounted, or the connection was cut.
    Ended,
}

/// A mounted drive. Dropping it unmounts.
#[derive(Debug)]
pub struct Mounted {
    session: Option<BackgroundSession>,
    point: PathBuf,
}

impl Mounted {
    /// Serves `drive` as a file below `point`, with this many threads. `events` receives the [`FuseEvent`]s of the
    /// mount.
    ///
    /// Mounting needs root and `/dev/fuse`.
    pub fn new(
        drive: Arc<EmulatedDrive>,
        point: &Path,
        threads: usize,
        events: &Sender<FuseEvent>,
    ) -> io::Result<Self> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("trimwise".to_owned()),
            MountOption::Subtype("trimwise".to_owned()),
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoExec,
        ];
        config.n_threads = Some(threads);
        config.clone_fd = true;
        let file_system = OneFile { drive, completions: Completions::new()?, events: events.clone() };
        let session = Session::new(file_system, point, &config)?.spawn()?;
        Ok(Self { session: Some(session), point: point.to_owned() })
    }

    pub fn file(&self) -> PathBuf {
        self.point.join(FILE)
    }

    /// Cuts the connection: pending requests fail with an error.
    pub(crate) fn abort(&self) {
        // A forced unmount cuts the connection first, and then fails if the file is open.
        let _ = rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::FORCE);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        // The mount is busy if a program works in it: detach it now, so that open files get errors.
        let unmounted = rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::empty());
        if unmounted.is_err() {
            self.abort();
            let _ = rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::DETACH);
        }
        drop(session.umount_and_join());
    }
}

const ROOT: INodeNo = INodeNo::ROOT;
/// Inode number of the drive's file.
pub const DRIVE: INodeNo = INodeNo(2);

thread_local! {
    /// Buffer of a thread for data that is read and sent at once.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct OneFile {
    drive: Arc<EmulatedDrive>,
    completions: Completions,
    events: Sender<FuseEvent>,
}

/// Returns the attributes of a file or directory of root, which never change.
pub fn attributes(inode: INodeNo, kind: FileType, perm: u16, size: Bytes) -> FileAttr {
    let time = UNIX_EPOCH;
    FileAttr {
        ino: inode,
        size: size.0,
        blocks: size.0 / SECTOR_BYTES,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: UNIT_BYTES as u32,
        flags: 0,
    }
}

/// Returns the attributes of the directory or the file in it; `None` for any other inode.
pub fn attributes_of_one_file(inode: INodeNo, size: Bytes) -> Option<FileAttr> {
    match inode {
        ROOT => Some(attributes(inode, FileType::Directory, 0o500, Bytes(0))),
        DRIVE => Some(attributes(inode, FileType::RegularFile, 0o600, size)),
        _ => None,
    }
}

impl OneFile {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        attributes_of_one_file(inode, self.drive.size())
    }

    fn empty(&self, result: Result<std::time::Instant, RequestError>, reply: ReplyEmpty) {
        match result {
            Ok(due) => self.completions.at(due, move || reply.ok()),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

fn errno(error: &RequestError) -> Errno {
    Errno::from_i32(error.errno())
}

impl Drop for OneFile {
    fn drop(&mut self) {
        // There is no receiver if the device is being removed.
        let _ = self.events.send(FuseEvent::Ended);
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Features that a kernel lacks are optional.
        for wanted in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_background(1024);
        let _ = config.set_congestion_threshold(1024);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DRIVE) {
            Some(attributes) if parent == ROOT && name == FILE => {
                reply.entry(&FOR_EVER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Only close(2) calls this; it is not a flush of the drive.
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
        let _ = self.events.send(FuseEvent::Released);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // As in any file, there is nothing to read beyond the end.
        let length = u64::from(size).min(self.drive.size().0.saturating_sub(offset)) as usize;
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            match self.drive.read(offset, &mut buffer[..length]) {
                Ok(due) if Completions::is_due(due) => reply.data(&buffer[..length]),
                Ok(due) => {
                    let data = buffer[..length].to_vec();
                    self.completions.at(due, move || reply.data(&data));
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = data.len() as u32;
        match self.drive.write(offset, data) {
            Ok(due) => self.completions.at(due, move || reply.written(written)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(self.drive.flush(), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const PUNCH_HOLE: i32 = 0x02;
        const ZERO_RANGE: i32 = 0x10;
        // As in any file, a hole may reach beyond the end.
        let length = Bytes(length.min(self.drive.size().0.saturating_sub(offset)));
        match () {
            () if mode & PUNCH_HOLE != 0 => self.empty(self.drive.discard(offset, length, true), reply),
            () if mode & ZERO_RANGE != 0 => self.empty(self.drive.write_zeroes(offset, length, false), reply),
            () => reply.error(Errno::EOPNOTSUPP),
        }
    }
}
