//! A file that returns the errors that a test wants, and a loop device over it: a drive that fails on demand.
//!
//! The file is served by FUSE in the test's own process, so that it can also go away under the device, like a drive
//! that is pulled out.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use trimwise::units::Bytes;
use trimwise_device::fuse::{DRIVE, FILE, attributes_of_one_file};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    Session, WriteFlags,
};

const ROOT: INodeNo = INodeNo::ROOT;
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Fault of the drive.
#[derive(Debug, Default)]
pub struct Faults {
    /// The error of each discard; 0 for none.
    pub discard: AtomicI32,
    /// Discards are not answered.
    pub holds: AtomicBool,
    /// Reads and writes fail with EIO.
    pub io: AtomicBool,
}

/// A mounted file and its faults. Dropping it removes the file, even if it is in use.
pub struct Faulty {
    pub faults: Arc<Faults>,
    point: PathBuf,
    session: Option<BackgroundSession>,
}

impl Faulty {
    /// Serves `store` at `point/drive`.
    pub fn new(store: File, point: &Path) -> Self {
        let faults = Arc::new(Faults::default());
        let mut config = Config::default();
        config.n_threads = Some(2);
        let bytes = store.metadata().unwrap().len();
        let served = Served { store, bytes, faults: Arc::clone(&faults) };
        let session = Session::new(served, point, &config).unwrap().spawn().unwrap();
        Self { faults, point: point.to_owned(), session: Some(session) }
    }

    pub fn file(&self) -> PathBuf {
        self.point.join(FILE)
    }

    /// Pulls the drive out: pending and later requests fail.
    pub fn pull_out(&self) {
        self.faults.holds.store(false, Ordering::Relaxed);
        // A forced unmount first cuts the connection, and then fails if the file is open.
        let _ = rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::FORCE);
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.pull_out();
        let _ = rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::DETACH);
        drop(self.session.take().map(BackgroundSession::umount_and_join));
    }
}

struct Served {
    store: File,
    bytes: u64,
    faults: Arc<Faults>,
}

impl Served {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        attributes_of_one_file(inode, Bytes(self.bytes))
    }

    fn done(&self, result: io::Result<()>) -> Result<(), Errno> {
        if self.faults.io.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        result.map_err(Errno::from)
    }
}

impl Filesystem for Served {
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
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
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
        let mut buffer = vec![0; u64::from(size).min(self.bytes.saturating_sub(offset)) as usize];
        match self.done(self.store.read_exact_at(&mut buffer, offset)) {
            Ok(()) => reply.data(&buffer),
            Err(errno) => reply.error(errno),
        }
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
        match self.done(self.store.write_all_at(data, offset)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.done(Ok(())) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
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
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        while self.faults.holds.load(Ordering::Relaxed) && mode.contains(FallocateFlags::PUNCH_HOLE) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let failing = self.faults.discard.load(Ordering::Relaxed);
        let result = match failing {
            1.. if mode.contains(FallocateFlags::PUNCH_HOLE) => Err(Errno::from_i32(failing)),
            _ => self.done(fallocate(&self.store, mode, offset, length).map_err(io::Error::from)),
        };
        match result {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}
