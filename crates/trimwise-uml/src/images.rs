//! User-Mode Linux kernels: built from the distribution's source package, kept in a cache, found by name.
//!
//! An *image* is a folder of the cache, named after the kernel and a hash of its ingredients: our configuration
//! (`um.config`, and the fragment of a variant), the patches, the source of the preloaded library, and the arguments of
//! `make`. An image that a different trimwise built differently is therefore never used by mistake. An image with
//! patches remembers the folders that they were read from; if one of these has changed since, the image is outdated
//! too. There is one image of a name: a build removes the others. An image contains
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
//! A kernel with patches or of a variant is built from a source that stays, with its objects, in a hidden folder of the
//! cache ([`KeptSource`]), so that the next build compiles only the changed files. A plain kernel uses it, if it is there.
//!
//! `catalogue` lists the known ones, `tools` checks for the programs that a build
//! needs, `source` gets the source, `patches` reads patch sets, `kept` has the sources that stay and applies patches to
//! them, `build` is the sequence of a build, `run` runs one program at a time and can stop it.

mod build;
mod catalogue;
mod error;
mod kept;
mod patches;
mod run;
mod source;
#[cfg(test)]
mod tests;
mod tools;
mod walk;

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::job::FileSystem;

pub use build::{Built, Order};
pub use catalogue::{CATALOGUE, Series};
pub use error::KernelError;
pub use kept::KeptSource;
pub use patches::BuiltSet;
use patches::PatchSet;
pub use trimwise_linux::kernel_name::{KernelName, VARIANTS, Variant};
use trimwise_linux::kernel_name::{KernelNameError, variants};

/// Our kernel configuration, on top of `allnoconfig`.
const CONFIGURATION: &str = include_str!("um.config");

/// Lines of our configuration that differ in later kernels: the first such version, and both lines. They
/// are kept apart because the names of images are made from the configuration, and those of older kernels must not
/// change.
const SINCE: [([u32; 2], &str, &str); 4] = [
    ([6, 1], "# CONFIG_LRU_GEN is not set", "CONFIG_LRU_GEN=y"),
    ([6, 12], "# CONFIG_LRU_GEN_ENABLED is not set", "CONFIG_LRU_GEN_ENABLED=y"),
    ([6, 17], "CONFIG_CRYPTO_MANAGER_DISABLE_TESTS=y", "# CONFIG_CRYPTO_SELFTESTS is not set"),
    ([7, 0], "CONFIG_PROC_SYSCTL=y", "CONFIG_SYSCTL=y"),
];

/// The first version with a User-Mode Linux that can catch its processes' system calls by seccomp instead of ptrace.
const SECCOMP_SINCE: [u32; 2] = [6, 16];

/// Source of the library to preload: it replaces the kernel's inputs from the host, and is the kernel's side of the
/// line.
const PRELOAD_SOURCE: &str = concat!(
    include_str!("preload/batch.c"),
    "\n",
    include_str!("preload/mends.c"),
    "\n",
    include_str!("preload/line.c"),
    "\n",
    include_str!("preload/calls.c")
);

/// Targets and variables in order, as `build` passes them to `make`; part of the hash.
const RECIPE: &str = "make ARCH=um allnoconfig linux; KBUILD_BUILD_TIMESTAMP, USER, HOST fixed; 1";

const RECIPE_BYTES: usize = 6;
const CACHE_VARIABLE: &str = "TRIMWISE_KERNELS";
/// Folder in which the package `trimwise-kernels` puts its images.
const INSTALLED: &str = "/usr/lib/trimwise/kernels";

/// A step of a build, for progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waiting for another process that builds the same image.
    Wait,
    Read,
    /// Downloading the distribution's source package.
    Download,
    Unpack,
    Configure,
    /// Compiling; progress in lines printed by `make`.
    Compile {
        done: u64,
        expected: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelImage {
    /// Such as `6.1` or `6.12+ext4-trim`.
    pub name: KernelName,
    /// As `uname -r` prints it: `6.1.192`, `6.12.117+ext4-trim`.
    pub release: String,
    /// The source: a package and its version, or the given path and a hash of its contents.
    pub source: String,
    /// In the order in which they were applied.
    pub patches: Vec<BuiltSet>,
    /// First line of the compiler's version output.
    pub compiler: String,
    /// Hash of patches, configuration and recipe, as in the folder's name.
    pub recipe: String,
    pub directory: PathBuf,
    pub linux: PathBuf,
    /// Path of the library to preload into the kernel (`LD_PRELOAD`), so that runs repeat.
    pub preload: PathBuf,
    pub size_bytes: u64,
    pub built: SystemTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Description {
    version: String,
    release: String,
    source: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patches: Vec<BuiltSet>,
    compiler: String,
    recipe: String,
}

/// The user's folder of images, and the package's, in which nothing is built or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    directory: PathBuf,
    installed: Option<PathBuf>,
}

/// Finds the image of this name (`6.1`, `6.12+ext4-trim`) among the package's, or in the user's cache.
///
/// # Errors
/// [`KernelError::NotBuilt`] and [`KernelError::Outdated`] name the command that builds it.
pub fn find(name: &str) -> Result<KernelImage, KernelError> {
    Cache::of_user()?.find(name)
}

/// Names the plain kernel, the package's or in the user's cache, whose series is closest to a version (`6.18.44-amd64`);
/// `None` if there is none.
pub fn closest(wanted: &str) -> Result<Option<KernelName>, KernelError> {
    let images = Cache::of_user()?.list()?.into_iter();
    let usable = images.filter(|image| image.name.is_plain() && image.is_current());
    Ok(closest_of(usable.map(|image| image.name), wanted))
}

pub fn closest_of(names: impl Iterator<Item = KernelName>, wanted: &str) -> Option<KernelName> {
    let wanted = release_number(wanted);
    let key = |name: &KernelName| {
        (release_number(name.version()).abs_diff(wanted), std::cmp::Reverse(name.sort_key()))
    };
    names.min_by_key(key)
}

/// Counts releases of Linux: there were 20 of 5.x and 20 of 6.x. Returns 0 if `version` is not a version.
fn release_number(version: &str) -> u32 {
    const OF_MAJOR: u32 = 20;
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let [major, minor] = [(); 2].map(|()| parts.next().unwrap_or(0));
    major.saturating_mul(OF_MAJOR).saturating_add(minor)
}

impl Cache {
    /// Returns `$TRIMWISE_KERNELS`; else, with the package's images, `$XDG_CACHE_HOME/trimwise/kernels` or
    /// `~/.cache/trimwise/kernels`.
    pub fn of_user() -> Result<Self, KernelError> {
        let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let given = of(CACHE_VARIABLE);
        let installed = given.is_none().then(|| INSTALLED.into());
        let directory = given
            .or_else(|| of("XDG_CACHE_HOME").map(|cache| cache.join("trimwise/kernels")))
            .or_else(|| of("HOME").map(|home| home.join(".cache/trimwise/kernels")))
            .ok_or(KernelError::NoCache)?;
        // A kernel is started from a different working directory, so the path must be absolute.
        let directory = std::path::absolute(&directory)
            .map_err(KernelError::io("find the folder of kernels", &directory))?;
        match fs::metadata(&directory) {
            Ok(found) if !found.is_dir() => Err(KernelError::NoFolder { directory }),
            Err(e) if e.kind() == ErrorKind::NotADirectory => Err(KernelError::NoFolder { directory }),
            _ => Ok(Self { installed, ..Self::at(directory) }),
        }
    }

    /// Opens the cache in this folder, which the first build creates.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory, installed: None }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Finds the image of this name that this trimwise would build.
    ///
    /// # Errors
    /// Among others, if there is only an image that a different trimwise built differently, or a patch set has changed
    /// since.
    pub fn find(&self, name: &str) -> Result<KernelImage, KernelError> {
        let name: KernelName = name.parse()?;
        let candidates = match name.is_plain() {
            true => self.places(&folder(&name, &recipe(&name, &[]))),
            false => self.names(&name)?.into_iter().map(|name| self.directory.join(name)).collect(),
        };
        let mut found = None;
        for candidate in candidates {
            found = self.read(&candidate)?.filter(|image| image.name == name && image.is_current());
            if found.is_some() {
                break;
            }
        }
        let Some(image) = found else { return Err(self.not_built(&name)?) };
        match image.changed_set() {
            None => Ok(image),
            Some(set) => Err(KernelError::Outdated {
                name: name.to_string(),
                folder: set.folder.clone(),
                command: self.command(&name, &image.folders())?,
            }),
        }
    }

    /// Returns the possible places of a plain image with this folder name, in search order.
    fn places(&self, folder: &str) -> Vec<PathBuf> {
        self.installed.iter().chain([&self.directory]).map(|directory| directory.join(folder)).collect()
    }

    fn not_built(&self, name: &KernelName) -> Result<KernelError, KernelError> {
        let other = self.list().unwrap_or_default().into_iter().find(|image| image.name == *name);
        let folders = other.as_ref().map_or_else(|| usual_folders(name), KernelImage::folders);
        let mut command = self.command(name, &folders)?;
        if folders.iter().any(|folder| folder.starts_with("DIR/")) {
            let _ = write!(command, " (DIR/NAME is a patch set's folder; variants: {})", variants());
        }
        Ok(KernelError::NotBuilt {
            name: name.to_string(),
            directory: self.directory.clone(),
            otherwise: other.is_some(),
            command,
        })
    }

    /// Returns the command that builds this kernel, with these folders as patch sets.
    fn command(&self, name: &KernelName, folders: &[String]) -> Result<String, KernelError> {
        let mut command = name.command(folders);
        let is_kept = !name.is_plain() && self.kept()?.iter().any(|kept| kept.version == name.version());
        if catalogue::series(name.version()).is_none() && !is_kept {
            command += " --source DIR|TARBALL";
        }
        Ok(command)
    }

    /// Returns all images by name, including those that a different trimwise built.
    pub fn list(&self) -> Result<Vec<KernelImage>, KernelError> {
        let mut images = Vec::new();
        for directory in self.installed.iter().chain([&self.directory]) {
            for name in entries_of(directory)? {
                let path = directory.join(&name);
                if name.starts_with(|c: char| c.is_ascii_digit()) && path.is_dir() {
                    images.extend(self.read(&path)?);
                }
            }
        }
        images.sort_by_key(|image| (image.name.sort_key(), image.recipe.clone()));
        Ok(images)
    }

    /// Removes all images of this name, and logs of failed builds. Returns the number of images.
    pub fn remove(&self, name: &str) -> Result<usize, KernelError> {
        let name: KernelName = name.parse()?;
        let mut removed = 0;
        for entry in self.names(&name)? {
            let directory = self.directory.join(entry);
            // A damaged image goes too: its folder's name says whose it is.
            if !matches!(self.read(&directory), Ok(None)) {
                self.remove_image(&directory)?;
                removed += 1;
            }
        }
        let mut is_log_removed = false;
        for log in self.entries(&name, ".log")? {
            is_log_removed |= fs::remove_file(self.directory.join(log)).is_ok();
        }
        if removed == 0 && !is_log_removed {
            let is_listed = self.list().unwrap_or_default().into_iter().any(|image| image.name == name);
            return Err(match is_listed {
                true => KernelError::Installed { name: name.to_string() },
                false => self.not_built(&name)?,
            });
        }
        Ok(removed)
    }

    /// Removes the images of this name with another recipe. Returns the bytes that this frees.
    ///
    /// Only folders that are named like an image of this kernel and hold its description count. A guest that runs from
    /// one continues: its program keeps its blocks until it ends.
    fn remove_outdated(&self, name: &KernelName, recipe: &str) -> Result<u64, KernelError> {
        let mut freed = 0;
        for entry in self.names(name)? {
            // A damaged image must not keep the others from being removed; `kernel remove` removes it.
            let Ok(Some(image)) = self.read(&self.directory.join(&entry)) else { continue };
            if image.name != *name || entry != folder(name, &image.recipe) || image.recipe == recipe {
                continue;
            }
            let bytes = image.allocated_bytes()?;
            self.remove_image(&image.directory)?;
            freed += bytes;
        }
        Ok(freed)
    }

    fn names(&self, name: &KernelName) -> Result<Vec<String>, KernelError> {
        let mut names = self.entries(name, "")?;
        // A link leads outside the cache.
        names.retain(|name| fs::symlink_metadata(self.directory.join(name)).is_ok_and(|meta| meta.is_dir()));
        Ok(names)
    }

    /// Returns the names of entries that consist of this kernel's name, a recipe's hash, and `end`.
    fn entries(&self, name: &KernelName, end: &str) -> Result<Vec<String>, KernelError> {
        let begin = format!("{name}-");
        let mut names = entries_of(&self.directory)?;
        names.retain(|entry| {
            entry.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(end)).is_some_and(is_recipe)
        });
        Ok(names)
    }

    fn remove_image(&self, directory: &Path) -> Result<(), KernelError> {
        // Hide the image in one step, so that no incomplete one is ever found.
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let hidden = self.directory.join(format!("{}{name}.removed", build::WORK_PREFIX));
        fs::rename(directory, &hidden)
            .and_then(|()| fs::remove_dir_all(&hidden))
            .map_err(KernelError::io("remove", directory))
    }

    /// Returns the log of a build that is running or has failed; a finished image contains its own.
    fn log(&self, name: &KernelName, recipe: &str) -> PathBuf {
        self.directory.join(format!("{}.log", folder(name, recipe)))
    }

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
        if !kernel.is_file() || kernel.mode() & 0o111 == 0 {
            return Err(damaged(format!("{}: expected a program that can be run", linux.display())));
        }
        there(&preload)?;
        let built = kernel.modified().map_err(KernelError::io("read", &linux))?;
        let name = d.version.parse().map_err(|e: KernelNameError| damaged(format!("image.json: {e}")))?;
        Ok(Some(KernelImage {
            name,
            release: d.release,
            source: d.source,
            patches: d.patches,
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
    pub fn is_current(&self) -> bool {
        self.recipe == recipe(&self.name, &self.patches)
    }

    /// Checks that the kernel is a complete program for this computer, and has a file system. The error says how to
    /// replace it.
    pub fn check(&self, file_system: Option<FileSystem>) -> Result<(), KernelError> {
        let damaged = |what: String| KernelError::Damaged { directory: self.directory.clone(), what };
        for path in [&self.linux, &self.preload] {
            let mut header = [0; ELF_HEADER_BYTES];
            let mut read_size = || {
                let mut file = fs::File::open(path)?;
                file.read_exact(&mut header)?;
                file.metadata().map(|found| found.len())
            };
            let cannot_run = match read_size() {
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => Some("is cut off".to_owned()),
                Err(e) => return Err(KernelError::io("read", path)(e)),
                Ok(size_bytes) => why_not_run(&header, size_bytes),
            };
            if let Some(why) = cannot_run {
                return Err(damaged(format!("{}: {why}", path.display())));
            }
        }
        let Some(file_system) = file_system else { return Ok(()) };
        let option = format!("CONFIG_{}_FS=y", file_system.name().to_uppercase());
        let config = self.directory.join("config");
        match fs::read_to_string(&config) {
            Ok(text) if !text.lines().any(|line| line == option) => Err(damaged(format!(
                "{}: has no {option}, so this kernel cannot mount {}",
                config.display(),
                file_system.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns true if the kernel can catch its processes' system calls by seccomp instead of ptrace.
    pub fn has_seccomp(&self) -> bool {
        self.name.is_since(SECCOMP_SINCE)
    }

    /// Returns the first patch set whose folder exists and has changed. A missing folder does not count: the image
    /// remembers its patches.
    pub fn changed_set(&self) -> Option<&BuiltSet> {
        let differs = |set: &&BuiltSet| {
            set.folder.exists()
                && !PatchSet::read(&set.folder).is_ok_and(|found| found.as_built.hash == set.hash)
        };
        self.patches.iter().find(differs)
    }

    fn folders(&self) -> Vec<String> {
        self.patches.iter().map(|set| set.folder.display().to_string()).collect()
    }

    fn allocated_bytes(&self) -> Result<u64, KernelError> {
        let failed = || KernelError::io("read", &self.directory);
        let mut bytes = 0;
        for entry in fs::read_dir(&self.directory).map_err(failed())? {
            bytes += entry.and_then(|entry| entry.metadata()).map_err(failed())?.blocks() * 512;
        }
        Ok(bytes)
    }
}

fn entries_of(directory: &Path) -> Result<Vec<String>, KernelError> {
    let failed = KernelError::io("read", directory);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(failed)?,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.into_iter().map(name).collect();
    names.sort();
    Ok(names)
}

/// Returns our configuration, or that of a variant, for this kernel.
fn configuration(name: &KernelName, ours: &str) -> String {
    let spelt = |line| {
        let here = SINCE.iter().find(|(since, ours, _)| *ours == line && name.is_since(*since));
        here.map_or(line, |(_, _, there)| *there)
    };
    ours.lines().map(|line| format!("{}\n", spelt(line))).collect()
}

/// Hashes all ingredients of an image, except the kernel's source and the compiler.
fn recipe(name: &KernelName, patches: &[BuiltSet]) -> String {
    let options = |configuration: &str| {
        // Comments do not change the kernel.
        let is_option = |line: &&str| line.starts_with("CONFIG_") || line.ends_with(" is not set");
        configuration.lines().filter(is_option).collect::<Vec<&str>>().join("\n")
    };
    let configured = |ours: &str| options(&configuration(name, ours));
    let mut parts = vec![RECIPE.to_owned(), configured(CONFIGURATION), PRELOAD_SOURCE.to_owned()];
    let of_variant = |variant: Variant| format!("{}\n{}", variant.name, configured(fragment(variant)));
    parts.extend(name.variant().map(of_variant));
    parts.extend(patches.iter().map(|set| format!("{} {}", set.name, set.hash)));
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..RECIPE_BYTES])
}

/// Returns the SHA-256 of a file.
pub fn file_hash(path: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut fs::File::open(path)?, &mut hash)?;
    Ok(hex(&hash.finalize()))
}

/// Size of the header of a 64-bit ELF file.
const ELF_HEADER_BYTES: usize = 64;

/// Returns the reason why a program with this header and size cannot run here; `None` if it can.
fn why_not_run(header: &[u8; ELF_HEADER_BYTES], size_bytes: u64) -> Option<String> {
    // Numbers of ELF's `e_machine`.
    const OWN: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if header[..4] != *b"\x7fELF" {
        return Some("is no ELF program".to_owned());
    }
    // Class and byte order, then the machine.
    if header[4..6] != [2, 1] || half(18) != OWN {
        let arch = std::env::consts::ARCH;
        return Some(format!(
            "is for another machine (ELF number {}); expected {arch}, number {OWN}",
            half(18)
        ));
    }
    let mut sections = [0; 8];
    sections.copy_from_slice(&header[40..48]);
    let end = u64::from_le_bytes(sections).saturating_add(u64::from(half(58)) * u64::from(half(60)));
    (end > size_bytes).then(|| format!("is cut off: it has {size_bytes} of {end} bytes"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

fn is_recipe(text: &str) -> bool {
    text.len() == 2 * RECIPE_BYTES && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn folder(name: &KernelName, recipe: &str) -> String {
    format!("{name}-{recipe}")
}

fn usual_folders(name: &KernelName) -> Vec<String> {
    let guess = |set: &String| {
        let usual = format!("kernel/{set}");
        if Path::new(&usual).join("series").is_file() { usual } else { format!("DIR/{set}") }
    };
    name.patches().iter().map(guess).collect()
}

/// Returns the commands that replace an image. The folder's name identifies the kernel.
fn replacement(directory: &Path) -> String {
    let folder = directory.file_name().unwrap_or_default().to_string_lossy();
    let name = folder.rsplit_once('-').map_or(folder.as_ref(), |(name, _)| name);
    let build = name.parse().map(|name: KernelName| format!(" && {}", name.command(&usual_folders(&name))));
    format!("trimwise kernel remove {name}{}", build.unwrap_or_default())
}

/// The configuration fragment of a variant, merged over the configuration that all kernels have.
fn fragment(variant: Variant) -> &'static str {
    match variant.name {
        "kasan" => include_str!("kasan.config"),
        _ => include_str!("dm.config"),
    }
}
