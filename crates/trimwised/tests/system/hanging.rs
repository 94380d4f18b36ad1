//! A folder whose server stops answering on request, so that every access through it hangs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuser::{
    BackgroundSession, Config, Errno, FileHandle, FileType, Filesystem, Generation, INodeNo, ReplyAttr,
    ReplyEntry, Request, Session,
};

use trimwise::units::Bytes;
use trimwise_device::fuse::attributes;

const FOLDER: &str = "folder";
const INSIDE: INodeNo = INodeNo(2);

/// The folder, and whether it hangs.
pub struct Hanging {
    hangs: Arc<AtomicBool>,
    point: PathBuf,
    session: Option<BackgroundSession>,
}

impl Hanging {
    pub fn new(point: &Path) -> Self {
        let hangs = Arc::new(AtomicBool::new(false));
        let mut config = Config::default();
        config.n_threads = Some(2);
        let session = Session::new(Served(Arc::clone(&hangs)), point, &config).unwrap().spawn().unwrap();
        Self { hangs, point: point.to_owned(), session: Some(session) }
    }

    pub fn folder(&self) -> PathBuf {
        self.point.join(FOLDER)
    }

    pub fn hangs(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::Relaxed);
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.hangs(false);
        let _ = rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::DETACH);
        drop(self.session.take().map(BackgroundSession::umount_and_join));
    }
}

struct Served(Arc<AtomicBool>);

impl Served {
    fn wait(&self) {
        while self.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Filesystem for Served {
    // Nothing is remembered: each path through here is asked for anew.
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait();
        if parent == INodeNo::ROOT && name == FOLDER {
            let folder = attributes(INSIDE, FileType::Directory, 0o755, Bytes(0));
            reply.entry(&Duration::ZERO, &folder, Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.wait();
        reply.attr(&Duration::ZERO, &attributes(inode, FileType::Directory, 0o755, Bytes(0)));
    }
}
