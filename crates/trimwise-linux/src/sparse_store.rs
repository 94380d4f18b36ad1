//! The bytes of an emulated drive: a sparse file, in memory or in a folder.
//!
//! The device model stores no data. They are stored here, in a file with holes. Ranges that were never written, or were
//! discarded, take no room: a drive of any size can be emulated, and a discard of 100 GiB is one call. In memory it is
//! an anonymous file (`memfd_create`), so that both kinds share the same code, and the kernel can copy from and to it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    FallocateFlags, FlockOperation, MemfdFlags, SeekFrom, fallocate, flock, memfd_create, seek,
};
use rustix::io::Errno;
use trimwise::units::{Bytes, UnitRange};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

#[derive(Debug)]
pub struct SparseStore {
    file: File,
    size: Bytes,
    /// A memory mapping for writes to a store in memory: a system call for each write costs more than copying 4 KiB.
    /// Reads go through the kernel, since touching a hole would fill it. A file on a disk is not mapped: a full disk
    /// would kill the process instead of failing the write.
    mapped: Option<MmapRegion>,
}

impl SparseStore {
    pub fn in_memory(size: Bytes) -> io::Result<Self> {
        let file = File::from(memfd_create("trimwise-drive", MemfdFlags::CLOEXEC)?);
        file.set_len(size.0)?;
        let ours = FileOffset::new(file.try_clone()?, 0);
        // Without a mapping (in a 32-bit address space) the store works too.
        let mapped = usize::try_from(size.0).ok().and_then(|size| MmapRegion::from_file(ours, size).ok());
        Ok(Self { file, size, mapped })
    }

    /// Copies the store into a new one in memory; holes stay holes.
    pub fn duplicate(&self) -> io::Result<Self> {
        let copy = Self::in_memory(self.size)?;
        let mut bytes = Vec::new();
        for piece in self.pieces()? {
            bytes.resize((piece.end - piece.start) as usize, 0);
            self.read(piece.start, &mut bytes)?;
            copy.write(piece.start, &bytes)?;
        }
        Ok(copy)
    }

    /// Returns the ranges that are not holes, in order, in pieces of at most 1 MiB.
    pub fn pieces(&self) -> io::Result<Vec<Range<u64>>> {
        const PIECE_BYTES: u64 = 1 << 20;
        let (mut pieces, mut end) = (Vec::new(), 0);
        loop {
            let begin = match seek(&self.file, SeekFrom::Data(end)) {
                Ok(begin) => begin,
                Err(Errno::NXIO) => return Ok(pieces), // no data behind it
                Err(error) => return Err(error.into()),
            };
            end = seek(&self.file, SeekFrom::Hole(begin))?;
            let starts = (begin..end).step_by(PIECE_BYTES as usize);
            pieces.extend(starts.map(|at| at..end.min(at + PIECE_BYTES)));
        }
    }

    /// Opens a store in a file, which is created if missing; an existing one keeps its contents, and must be of this
    /// size or empty.
    pub fn in_file(path: &Path, size: Bytes) -> io::Result<Self> {
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
        }
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let length = file.metadata()?.len();
        if length == 0 {
            file.set_len(size.0)?;
        } else if length != size.0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{} has {length} bytes; expected {} or a file that does not exist",
                    path.display(),
                    size.0
                ),
            ));
        }
        Ok(Self { file, size, mapped: None })
    }

    /// Like [`SparseStore::in_file`], with exclusive use: the file is locked while the store exists.
    pub fn in_file_alone(path: &Path, size: Bytes) -> io::Result<Self> {
        let store = Self::in_file(path, size)?;
        match flock(&store.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(store),
            Err(Errno::AGAIN) => {
                let why = "holds the data of another drive in use; expected a file for this drive alone";
                Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Releases the lock of [`SparseStore::in_file_alone`].
    pub fn release(&self) {
        // No effect on a file that was not locked.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    pub fn size(&self) -> Bytes {
        self.size
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset_bytes)
    }

    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset_bytes, bytes.len() as u64)?;
        match self.mapped.as_ref().map(|mapped| mapped.get_slice(offset_bytes as usize, bytes.len())) {
            Some(Ok(there)) => {
                there.copy_from(bytes);
                Ok(())
            }
            Some(Err(_)) | None => self.file.write_all_at(bytes, offset_bytes),
        }
    }

    /// Makes a range read as zeros and frees its space. An empty range is allowed.
    pub fn punch(&self, offset_bytes: u64, length: Bytes) -> io::Result<()> {
        self.check(offset_bytes, length.0)?;
        if length.0 == 0 {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self.file.as_fd(), mode, offset_bytes, length.0)?)
    }

    pub fn punch_units(&self, range: UnitRange) -> io::Result<()> {
        self.punch(Bytes::from_units(range.start.0).0, Bytes::from_units(range.units))
    }

    fn check(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        match offset_bytes.checked_add(length_bytes) {
            Some(end) if end <= self.size.0 => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("bytes {offset_bytes} + {length_bytes} are outside a drive of {}", self.size),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_was_written_is_read_until_it_is_punched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        for store in [
            SparseStore::in_memory(Bytes::gib(100)).unwrap(),
            SparseStore::in_file(&path, Bytes::gib(100)).unwrap(),
        ] {
            store.write(Bytes::gib(50).0, &[7; 8192]).unwrap();
            let mut bytes = [1; 8192];
            store.read(Bytes::gib(50).0, &mut bytes).unwrap();
            assert_eq!(bytes, [7; 8192]);
            assert!(store.file().metadata().unwrap().blocks() * 512 >= 8192);
            store.punch(0, Bytes::gib(100)).unwrap();
            store.read(Bytes::gib(50).0, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 8192]);
            assert_eq!(store.file().metadata().unwrap().blocks(), 0, "no room is taken");
        }
    }

    #[test]
    fn a_copy_has_the_same_bytes_in_as_much_room_and_goes_its_own_way() {
        let store = SparseStore::in_memory(Bytes::gib(100)).unwrap();
        let written = [(0, 4096), (Bytes::gib(50).0 + 12288, 3 << 20), (Bytes::gib(100).0 - 4096, 4096)];
        for (at, length) in written {
            store.write(at, &vec![at as u8 + 7; length]).unwrap();
        }
        let copy = store.duplicate().unwrap();
        store.write(0, &[1]).unwrap();
        for (at, length) in written {
            let mut bytes = vec![0; length];
            copy.read(at, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == at as u8 + 7));
        }
        let room = |store: &SparseStore| store.file().metadata().unwrap().blocks();
        assert_eq!((copy.size(), room(&copy)), (store.size(), room(&store)));
    }

    #[test]
    fn the_store_never_grows() {
        let store = SparseStore::in_memory(Bytes::mib(1)).unwrap();
        for (offset, length) in [(Bytes::mib(1).0, 1), (u64::MAX, 2)] {
            assert!(store.write(offset, &vec![0; length]).is_err());
            assert!(store.punch(offset, Bytes(length as u64)).is_err());
        }
        assert_eq!(store.file().metadata().unwrap().len(), Bytes::mib(1).0);
    }

    #[test]
    fn a_file_of_another_size_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        std::fs::write(&path, b"precious").unwrap();
        let error = SparseStore::in_file(&path, Bytes::mib(1)).unwrap_err();
        assert!(error.to_string().contains("has 8 bytes; expected 1048576"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        for other in [folder.path(), Path::new("/dev/full")] {
            let error = SparseStore::in_file(other, Bytes::mib(1)).unwrap_err();
            assert_eq!(error.to_string(), "is not a regular file", "{}", other.display());
        }
    }
}
