//! User-Mode Linux kernels: built from the distribution's source package, kept in a cache, found by version.
//!
//! An *image* is a folder of the cache, named after its version and a hash of what it is made from: our configuration
//! (`um.config`), the source of the preloaded library, and how `make` is called. An image that a different trimwise
//! built differently is therefore never used by mistake. It contains
//!
//! - `linux`, the kernel, an ordinary program;
//! - `preload.so`, to be preloaded into it: from 6.1 on, a kernel seeds itself from the host's getrandom(2), and two
//!   runs would differ; also, no kernel could run processes on a processor with more registers than it knows;
//! - `config`, the whole configuration; `build.log`, the output of the build; `image.json`, the image's description.
//!
//! A build works in a hidden folder of the cache and moves the finished image into place in one step, so a visible
//! image is always complete. Until then its log is next to the images and serves as its lock: a second build of the
//! same image waits, and then finds it done. The kernel releases the lock of a process that dies; the next build
//! removes its folder.
//!
//! `catalogue` lists the known kernels, `tools` what a build needs, `source` where the source comes from, `build` is
//! the sequence of a build, `run` runs one program at a time that can be stopped.

mod build;
mod catalogue;
mod error;
mod run;
mod source;
#[cfg(test)]
mod tests;
mod tools;

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use build::{Built, Order, Step};
pub use catalogue::{CATALOGUE, Series};
pub use error::KernelError;

/// Our part of the kernel's configuration, over `allnoconfig`.
const CONFIGURATION: &str = include_str!("um.config");

/// The library to preload: mends of what the kernel takes from the host, and its side of the line.
const PRELOAD_SOURCE: &str = concat!(
    include_str!("preload/mends.c"),
    "\n",
    include_str!("preload/line.c"),
    "\n",
    include_str!("preload/calls.c")
);

/// Targets, variables and their order, as `build` passes them to `make`; part of the hash.
const RECIPE: &str = "make ARCH=um allnoconfig linux; KBUILD_BUILD_TIMESTAMP, USER, HOST fixed; 1";

/// Length of the hash in an image's name, in bytes.
const RECIPE_BYTES: usize = 6;

/// The variable that names the folder of images.
const CACHE_VARIABLE: &str = "TRIMWISE_KERNELS";

/// A kernel that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelImage {
    /// The version that names it: `6.1`.
    pub version: String,
    /// What `uname -r` says in it: `6.1.192`.
    pub release: String,
    /// The source: a package and its version, or the given path.
    pub source: String,
    /// The compiler's own first line.
    pub compiler: String,
    /// Hash of configuration and recipe, as in the folder's name.
    pub recipe: String,
    /// The folder of the image.
    pub directory: PathBuf,
    /// The kernel.
    pub linux: PathBuf,
    /// The library to preload into it (`LD_PRELOAD`), so that runs repeat.
    pub preload: PathBuf,
    /// The kernel program's size.
    pub size_bytes: u64,
    /// When it was built, by the host's clock.
    pub built: SystemTime,
}

/// `image.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Description {
    version: String,
    release: String,
    source: String,
    compiler: String,
    recipe: String,
}

/// The folder of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    directory: PathBuf,
}

/// Finds the image of this version (`6.1`) in the user's cache.
///
/// # Errors
///
/// [`KernelError::NotBuilt`] names the command that builds it.
pub fn find(version: &str) -> Result<KernelImage, KernelError> {
    Cache::of_user()?.find(version)
}

impl Cache {
    /// Returns `$TRIMWISE_KERNELS`, else `$XDG_CACHE_HOME/trimwise/kernels`, else `~/.cache/trimwise/kernels`.
    pub fn of_user() -> Result<Self, KernelError> {
        let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let directory = of(CACHE_VARIABLE)
            .or_else(|| of("XDG_CACHE_HOME").map(|cache| cache.join("trimwise/kernels")))
            .or_else(|| of("HOME").map(|home| home.join(".cache/trimwise/kernels")))
            .ok_or(KernelError::NoCache)?;
        // A kernel is started from a different working directory, so the path must be absolute.
        let directory = std::path::absolute(&directory)
            .map_err(KernelError::io("find the folder of kernels", &directory))?;
        match fs::metadata(&directory) {
            Ok(found) if !found.is_dir() => Err(KernelError::NoFolder { directory }),
            Err(e) if e.kind() == ErrorKind::NotADirectory => Err(KernelError::NoFolder { directory }),
            _ => Ok(Self::at(directory)),
        }
    }

    /// Returns the cache in this folder, which is created by the first build.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns its folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Finds the image of this version that this trimwise would build.
    ///
    /// # Errors
    ///
    /// If there is none, or only one that a different trimwise built differently; if it cannot be read.
    pub fn find(&self, version: &str) -> Result<KernelImage, KernelError> {
        check(version)?;
        match self.read(&self.directory.join(folder(version)))? {
            Some(image) => Ok(image),
            None => Err(KernelError::NotBuilt {
                version: version.to_owned(),
                directory: self.directory.clone(),
                otherwise: self.list()?.iter().any(|image| image.version == version),
                source_needed: catalogue::series(version).is_none(),
            }),
        }
    }

    /// Returns all images by version, including those that a different trimwise built.
    pub fn list(&self) -> Result<Vec<KernelImage>, KernelError> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(KernelError::io("read", &self.directory)(e)),
        };
        let mut images = Vec::new();
        for entry in entries {
            let path = entry.map_err(KernelError::io("read", &self.directory))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(|c: char| c.is_ascii_digit()) && path.is_dir() {
                images.extend(self.read(&path)?);
            }
        }
        images.sort_by_key(|image| (numbers(&image.version), image.recipe.clone()));
        Ok(images)
    }

    /// Removes all images of this version, and logs of failed builds; returns the number of images.
    ///
    /// # Errors
    ///
    /// If there is none, or if one cannot be removed.
    pub fn remove(&self, version: &str) -> Result<usize, KernelError> {
        check(version)?;
        let images: Vec<_> = self.list()?.into_iter().filter(|image| image.version == version).collect();
        images.iter().try_for_each(|image| self.remove_image(image))?;
        let log_removed = fs::remove_file(self.log(version)).is_ok();
        if images.is_empty() && !log_removed {
            return Err(KernelError::NotBuilt {
                version: version.to_owned(),
                directory: self.directory.clone(),
                otherwise: false,
                source_needed: catalogue::series(version).is_none(),
            });
        }
        Ok(images.len())
    }

    /// Removes the images of this version made by another recipe; returns how many bytes that frees.
    ///
    /// Only folders that are named like an image of this version and hold its description count. A guest that runs from
    /// one continues: its program keeps its blocks until it ends.
    fn remove_outdated(&self, version: &str) -> Result<u64, KernelError> {
        let mut freed = 0;
        for name in self.names(version)? {
            // A damaged image does not keep the others from being removed; `kernel remove` reports it.
            let Ok(Some(image)) = self.read(&self.directory.join(&name)) else { continue };
            let is_ours = image.version == version
                && is_recipe(&image.recipe)
                && name == format!("{version}-{}", image.recipe);
            if !is_ours || image.is_current() {
                continue;
            }
            let bytes = image.allocated_bytes()?;
            self.remove_image(&image)?;
            freed += bytes;
        }
        Ok(freed)
    }

    /// Returns the names of folders that may be images of this version.
    fn names(&self, version: &str) -> Result<Vec<String>, KernelError> {
        let entries = fs::read_dir(&self.directory).map_err(KernelError::io("read", &self.directory))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(KernelError::io("read", &self.directory))?;
            // A link leads outside the cache.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_folder && name.strip_prefix(version).is_some_and(|rest| rest.starts_with('-')) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove_image(&self, image: &KernelImage) -> Result<(), KernelError> {
        // Hide it in one step, so that no incomplete image is ever found.
        let name = image.directory.file_name().unwrap_or_default().to_string_lossy();
        let hidden = self.directory.join(format!("{}{name}.removed", build::WORK_PREFIX));
        fs::rename(&image.directory, &hidden)
            .and_then(|()| fs::remove_dir_all(&hidden))
            .map_err(KernelError::io("remove", &image.directory))
    }

    /// Returns the log of a build that is running or has failed; a finished image contains its own.
    fn log(&self, version: &str) -> PathBuf {
        self.directory.join(format!("{}.log", folder(version)))
    }

    /// Reads an image; `None` if there is none.
    fn read(&self, directory: &Path) -> Result<Option<KernelImage>, KernelError> {
        let file = directory.join("image.json");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(KernelError::io("read", &file)(e)),
        };
        let damaged = |what: String| KernelError::Damaged { directory: directory.to_owned(), what };
        let d: Description = serde_json::from_str(&text).map_err(|e| damaged(format!("image.json: {e}")))?;
        let (linux, preload) = (directory.join("linux"), directory.join("preload.so"));
        let there = |path: &Path| fs::metadata(path).map_err(|e| damaged(format!("{}: {e}", path.display())));
        let kernel = there(&linux)?;
        there(&preload)?;
        let built = kernel.modified().map_err(KernelError::io("read", &linux))?;
        Ok(Some(KernelImage {
            version: d.version,
            release: d.release,
            source: d.source,
            compiler: d.compiler,
            recipe: d.recipe,
            directory: directory.to_owned(),
            linux,
            preload,
            size_bytes: kernel.len(),
            built,
        }))
    }
}

impl KernelImage {
    /// Whether this trimwise would build it the same way.
    pub fn is_current(&self) -> bool {
        self.recipe == recipe()
    }

    /// Returns the disk space of the files in its folder.
    fn allocated_bytes(&self) -> Result<u64, KernelError> {
        let failed = || KernelError::io("read", &self.directory);
        let mut bytes = 0;
        for entry in fs::read_dir(&self.directory).map_err(failed())? {
            bytes += entry.and_then(|entry| entry.metadata()).map_err(failed())?.blocks() * 512;
        }
        Ok(bytes)
    }
}

/// Hashes everything that an image is made from, except the kernel's source and the compiler.
fn recipe() -> String {
    let mut hash = Sha256::new();
    // Comments do not change the kernel.
    let is_option = |line: &&str| line.starts_with("CONFIG_") || line.ends_with(" is not set");
    let options: Vec<&str> = CONFIGURATION.lines().filter(is_option).collect();
    for part in [RECIPE, &options.join("\n"), PRELOAD_SOURCE] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..RECIPE_BYTES])
}

/// The SHA-256 of a file.
pub fn file_hash(path: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut fs::File::open(path)?, &mut hash)?;
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// Whether this can be a value of [`recipe`].
fn is_recipe(text: &str) -> bool {
    text.len() == 2 * RECIPE_BYTES && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of an image's folder.
fn folder(version: &str) -> String {
    format!("{version}-{}", recipe())
}

/// Checks a version such as `6.1` or `6.1.192`. Versions become file names, so nothing else is accepted.
pub(crate) fn check(version: &str) -> Result<(), KernelError> {
    let parts: Vec<&str> = version.split('.').collect();
    let number = |part: &&str| (1..=5).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if (2..=3).contains(&parts.len()) && parts.iter().all(number) {
        return Ok(());
    }
    Err(KernelError::NoVersion { version: version.to_owned() })
}

/// Parses for sorting: 5.10 is later than 5.4.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}
