//! A user's image of a file system, as the first content of a disk. The file is read once and never written.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;
use sha2::{Digest, Sha256};
use trimwise::failure::{Words, key};
use trimwise::units::{Bytes, SECTOR_BYTES, UNIT_BYTES};
use trimwise::words;
use trimwise_linux::sparse_store::SparseStore;

use crate::images::hex;
use crate::job::FileSystem;

const PIECE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    pub path: String,
    pub size_bytes: u64,
    /// As sha256sum(1) prints it.
    pub sha256: String,
}

/// Position of each file system's magic number, in bytes from the beginning.
const MAGICS: [(FileSystem, usize, &[u8]); 4] = [
    (FileSystem::Ext4, 0x438, &[0x53, 0xef]),
    (FileSystem::Xfs, 0, b"XFSB"),
    (FileSystem::Btrfs, 0x1_0040, b"_BHRfS_M"),
    (FileSystem::F2fs, 0x400, &[0x10, 0x20, 0xf5, 0xf2]),
];

/// Enough of an image to find every magic number.
const HEAD_BYTES: usize = 0x1_0040 + 8;

impl Image {
    /// Reads an image of this file system (of anything, if `None`) into a new store of the drive's capacity; the rest
    /// is zeros. Zeros in it take no memory.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the file, and what would be accepted.
    pub fn read(
        path: &Path,
        file_system: impl Into<Option<FileSystem>>,
        capacity: Bytes,
    ) -> Result<(Self, SparseStore), Words> {
        let file_system = file_system.into();
        let failed = |e: io::Error| Words::from(e.to_string());
        let name = file_system.map_or("a disk", FileSystem::name);
        // Check before opening: opening a pipe would block.
        let found = fs::metadata(path).map_err(failed)?;
        if !found.is_file() {
            let what = if found.is_dir() { "a directory" } else { "not a regular file" };
            return Err(format!("is {what}; expected a file that holds an image of {name}").into());
        }
        let size = Bytes(found.len());
        if size.0 == 0 {
            return Err(format!("is empty; expected an image of {name}").into());
        }
        if !size.0.is_multiple_of(SECTOR_BYTES) {
            return Err(format!(
                "has {} bytes, which is not a multiple of the drive's sector size, {SECTOR_BYTES} bytes; expected a \
                 whole image",
                size.0
            )
            .into());
        }
        if size > capacity {
            let sizes =
                format!("has {size} ({} bytes), and the drive {capacity} ({} bytes)", size.0, capacity.0);
            return Err(words![sizes, "; expected a larger ", key("device"), " or a smaller image"]);
        }
        let store = SparseStore::in_memory(capacity).map_err(failed)?;
        let mut file = File::open(path).map_err(failed)?;
        let (mut hash, mut at, mut piece) = (Sha256::new(), 0, Vec::new());
        loop {
            piece.clear();
            file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece).map_err(failed)?;
            if piece.is_empty() {
                break;
            }
            if let Some(file_system) = file_system.filter(|_| at == 0) {
                is_of(file_system, &piece)?;
            }
            hash.update(&piece);
            for (i, unit) in piece.chunks(UNIT_BYTES as usize).enumerate() {
                if unit.iter().any(|&byte| byte != 0) {
                    store.write(at + i as u64 * UNIT_BYTES, unit).map_err(failed)?;
                }
            }
            at += piece.len() as u64;
        }
        if at != size.0 {
            return Err(format!(
                "had {} bytes and then {at}; expected a file that nothing writes to",
                size.0
            )
            .into());
        }
        let sha256 = hex(&hash.finalize());
        Ok((Self { path: path.display().to_string(), size_bytes: size.0, sha256 }, store))
    }
}

/// Checks the magic number of a file system.
fn is_of(file_system: FileSystem, head: &[u8]) -> Result<(), String> {
    let head = &head[..head.len().min(HEAD_BYTES)];
    let holds = |&&(_, at, magic): &&(FileSystem, usize, &[u8])| {
        head.get(at..).is_some_and(|rest| rest.starts_with(magic))
    };
    let name = file_system.name();
    if MAGICS.iter().filter(holds).any(|&(found, ..)| found == file_system) {
        return Ok(());
    }
    if let Some((found, ..)) = MAGICS.iter().find(holds) {
        let found = found.name();
        return Err(format!(
            "holds {found} and not {name}; expected an image of {name}, or KERNEL:{found} as the target"
        ));
    }
    if head.get(510..512) == Some(&[0x55, 0xaa]) {
        return Err(format!(
            "begins with a partition table; expected the image of one partition, with {name} in it"
        ));
    }
    Err(format!("holds no {name}: its magic number is missing; expected an image that mkfs.{name} has made"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image_of(file_system: FileSystem, bytes: usize) -> Vec<u8> {
        let mut image = vec![0; bytes];
        let (_, at, magic) = MAGICS.into_iter().find(|(found, ..)| *found == file_system).unwrap();
        image[at..at + magic.len()].copy_from_slice(magic);
        image
    }

    #[test]
    fn an_image_is_read_whole_and_its_zeros_take_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        for file_system in FileSystem::ALL {
            let mut image = image_of(file_system, 5 << 20);
            image[(3 << 20) + 9] = 7;
            image[(5 << 20) - 1] = 8;
            fs::write(&path, &image).unwrap();
            let (named, store) = Image::read(&path, file_system, Bytes::mib(8)).unwrap();
            assert_eq!(Image::read(&path, None, Bytes::mib(8)).unwrap().0, named);
            assert_eq!((named.size_bytes, store.size()), (5 << 20, Bytes::mib(8)));
            assert_eq!(named.sha256, crate::images::file_hash(&path).unwrap());
            let mut bytes = vec![1; 8 << 20];
            store.read(0, &mut bytes).unwrap();
            assert!(bytes[..5 << 20] == image && bytes[5 << 20..].iter().all(|&byte| byte == 0));
            assert_eq!(
                store.pieces().unwrap().iter().map(|piece| piece.end - piece.start).sum::<u64>(),
                3 * 4096
            );
        }
    }

    #[test]
    fn what_is_no_image_of_the_file_system_is_refused_with_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let refused = |bytes: &[u8], words: &str| {
            fs::write(&path, bytes).unwrap();
            let error = Image::read(&path, FileSystem::Ext4, Bytes::mib(1)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(b"", "is empty");
        refused(&[0; 700], "not a multiple of the drive's sector size, 512 bytes");
        refused(&image_of(FileSystem::Ext4, (1 << 20) + 512), "a larger --device or a smaller image");
        refused(&[0; 512], "holds no ext4");
        refused(
            &image_of(FileSystem::Xfs, 1 << 20),
            "holds xfs and not ext4; expected an image of ext4, or KERNEL:xfs",
        );
        let mut partitioned = vec![0; 4096];
        partitioned[510..512].copy_from_slice(&[0x55, 0xaa]);
        refused(&partitioned, "a partition table");
        let of = |path: &Path| Image::read(path, FileSystem::Ext4, Bytes::mib(1)).unwrap_err().to_string();
        assert!(of(folder.path()).contains("is a directory"));
        assert!(of(Path::new("/dev/zero")).contains("is not a regular file"));
        assert!(of(&folder.path().join("none")).contains("No such file"));
    }
}
