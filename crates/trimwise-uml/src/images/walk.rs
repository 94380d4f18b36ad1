//! Walks over every file below a folder: for sizes, hashes, and removal.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{RECIPE_BYTES, hex};

/// Calls `each` with every file and link below `folder`, by name, so that the order is always the same. Folders are
/// entered, links are not followed.
pub(super) fn walk(
    folder: &Path,
    each: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() { walk(&path, each)? } else { each(&path, &metadata)? }
    }
    Ok(())
}

/// Hashes the names, kinds, sizes and contents of everything below `folder` except its `.git`. An error of `go_on`
/// stops it.
pub(super) fn hash(folder: &Path, mut go_on: impl FnMut() -> io::Result<()>) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    let git = folder.join(".git");
    walk(folder, &mut |path, metadata| {
        go_on()?;
        if path.starts_with(&git) {
            return Ok(());
        }
        let name = path.strip_prefix(folder).unwrap_or(path).as_os_str().as_bytes();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        if metadata.is_symlink() {
            let to = fs::read_link(path)?;
            hash.update(b"link");
            hash.update((to.as_os_str().len() as u64).to_le_bytes());
            hash.update(to.as_os_str().as_bytes());
        } else if metadata.is_file() {
            hash.update(b"file");
            hash.update(metadata.len().to_le_bytes());
            let mut file = fs::File::open(path)?;
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    n => hash.update(&buffer[..n]),
                }
            }
        }
        Ok(())
    })?;
    Ok(hex(&hash.finalize()[..RECIPE_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_changes_a_tree_changes_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let of = || hash(dir.path(), || Ok(())).unwrap();
        fs::create_dir_all(at("fs/ext4")).unwrap();
        fs::write(at("fs/ext4/super.c"), "one").unwrap();
        fs::write(at("Makefile"), "all:").unwrap();
        let first = of();
        assert_eq!(of(), first);
        fs::write(at("fs/ext4/super.c"), "two").unwrap();
        let content = of();
        fs::rename(at("fs/ext4/super.c"), at("fs/ext4/other.c")).unwrap();
        let name = of();
        std::os::unix::fs::symlink("Makefile", at("link")).unwrap();
        let link = of();
        let mut all = vec![first, content, name, link.clone()];
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4);
        fs::create_dir(at(".git")).unwrap();
        fs::write(at(".git/index"), "x").unwrap();
        assert_eq!(of(), link, "git's own files do not count");
    }
}
