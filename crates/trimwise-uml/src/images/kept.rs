//! Sources that stay in the cache with their objects, so that a changed patch costs only the files that it changes.
//!
//! One hidden folder for each version has
//!
//! - `source`, the tree that `make` sees: patched with the sets of the last build;
//! - `pristine`, the original of each file that patches have ever changed; and `added`, an empty file for each one that
//!   a patch added. Both are complete before a file of `source` changes, so that the next build knows the original of
//!   every file, even after an interrupted one;
//! - `objects-VARIANT`, the output of `make`, for each configuration; and `objects-VARIANT.unfinished` while it runs;
//! - `kept.json`, the description of the source; without it, the rest is not used.
//!
//! Patches are applied to copies of the files that they name, in the folder of the build. Only when all of them apply
//! are the files of `source` written whose contents differ, and `make` finds them by their times.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::patches::{Patch, PatchSet};
use super::run::Runner;
use super::source::Tree;
use super::{Cache, KernelError, Step, Variant, entries_of, walk};
use trimwise_linux::kernel_name::check_version;

/// Prefix of these folders; such a folder is never taken for an image.
const PREFIX: &str = ".kept-";
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Opens and locks a file. The previous holder may have moved or removed it; then there is a new one to lock.
pub(super) fn wait_for_lock(
    path: &Path,
    stop: &AtomicBool,
    step: &mut dyn FnMut(Step),
    open: impl Fn() -> std::io::Result<File>,
) -> Result<File, KernelError> {
    loop {
        let file = open().map_err(KernelError::io("open", path))?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => step(Step::Wait),
                Err(TryLockError::Error(e)) => return Err(KernelError::io("lock", path)(e)),
            }
            if stop.load(Ordering::SeqCst) {
                return Err(KernelError::Interrupted);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let locked = file.metadata().map_err(KernelError::io("look at", path))?;
        if fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())) {
            return Ok(file);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSource {
    /// Such as `6.12`.
    pub version: String,
    /// `None` if the source is incomplete.
    pub source: Option<String>,
    pub directory: PathBuf,
    /// Disk space of source and objects, in bytes.
    pub size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Description {
    release: String,
    source: String,
}

impl Cache {
    pub fn kept(&self) -> Result<Vec<KeptSource>, KernelError> {
        let mut kept = Vec::new();
        for name in entries_of(&self.directory)? {
            let directory = self.directory().join(&name);
            let Some(version) = name.strip_prefix(PREFIX).filter(|_| directory.is_dir()) else { continue };
            if check_version(version).is_err() {
                continue;
            }
            let mut size_bytes = 0;
            // A build may remove files meanwhile. Then the size covers the files that were found.
            let _ = walk::walk(&directory, &mut |_, metadata| {
                size_bytes += metadata.blocks() * 512;
                Ok(())
            });
            let source = describe(&directory).map(|d| d.source);
            kept.push(KeptSource { version: version.to_owned(), source, directory, size_bytes });
        }
        kept.sort_by(|a, b| a.version.cmp(&b.version));
        Ok(kept)
    }

    /// Returns true if the source of this version is kept, and `fits` accepts its origin.
    pub(super) fn keeps(&self, version: &str, fits: impl Fn(&str) -> bool) -> bool {
        let kept = describe(&self.directory().join(format!("{PREFIX}{version}")));
        kept.is_some_and(|kept| fits(&kept.source))
    }

    /// Removes the source kept for this version. Returns the bytes that this frees.
    pub fn remove_kept(&self, version: &str) -> Result<u64, KernelError> {
        check_version(version)?;
        let kept = self.kept()?;
        let Some(source) = kept.iter().find(|kept| kept.version == version) else {
            return Err(KernelError::NoSource {
                version: version.to_owned(),
                directory: self.directory().to_owned(),
                there: kept.into_iter().map(|kept| kept.version).collect(),
            });
        };
        let lock = source.directory.join("lock");
        let file = File::create(&lock).map_err(KernelError::io("open", &lock))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(KernelError::SourceInUse { version: version.to_owned() });
            }
            Err(TryLockError::Error(e)) => return Err(KernelError::io("lock", &lock)(e)),
        }
        remove_if_there(&source.directory.join("kept.json"))?;
        fs::remove_dir_all(&source.directory).map_err(KernelError::io("remove", &source.directory))?;
        Ok(source.size_bytes)
    }
}

pub(super) struct Kept {
    directory: PathBuf,
    _lock: File,
}

impl Kept {
    /// Locks the kept source of this version, which can be empty. Waits for another build.
    pub(super) fn take(
        cache: &Cache,
        version: &str,
        stop: &AtomicBool,
        step: &mut dyn FnMut(Step),
    ) -> Result<Self, KernelError> {
        let directory = cache.directory().join(format!("{PREFIX}{version}"));
        let path = directory.join("lock");
        let lock = wait_for_lock(&path, stop, step, || {
            fs::create_dir_all(&directory)?;
            OpenOptions::new().create(true).append(true).open(&path)
        })?;
        Ok(Self { directory, _lock: lock })
    }

    /// Returns the tree, if it is complete and `fits` accepts its origin.
    pub(super) fn tree(&self, fits: impl Fn(&str) -> bool) -> Option<Tree> {
        let Description { release, source } = describe(&self.directory)?;
        fits(&source).then(|| Tree { directory: self.source(), origin: source, release })
    }

    /// Replaces the kept tree. A tree in the folder of the build is moved, any other copied.
    pub(super) fn replace(&self, tree: Tree, work: &Path, runner: &Runner<'_>) -> Result<Tree, KernelError> {
        self.clear()?;
        let source = self.source();
        if tree.directory.starts_with(work) {
            fs::rename(&tree.directory, &source).map_err(KernelError::io("keep", &tree.directory))?;
        } else {
            let mut copy = Command::new("cp");
            copy.args(["-a", "--reflink=auto", "--no-preserve=ownership", "--"])
                .arg(&tree.directory)
                .arg(&source);
            runner.run("copying the source", &mut copy, |_| {})?;
        }
        let description = Description { release: tree.release.clone(), source: tree.origin.clone() };
        let file = self.directory.join("kept.json");
        let text = serde_json::to_string_pretty(&description)
            .map_err(|e| KernelError::io("write", &file)(e.into()))?;
        self.write(&file, text.as_bytes(), None)?;
        Ok(Tree { directory: source, ..tree })
    }

    fn clear(&self) -> Result<(), KernelError> {
        // First remove the file that marks the rest as complete.
        remove_if_there(&self.directory.join("kept.json"))?;
        let entries = fs::read_dir(&self.directory).map_err(KernelError::io("read", &self.directory))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.ends_with("lock") {
                continue;
            }
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(KernelError::io("remove", &path))?;
        }
        Ok(())
    }

    fn source(&self) -> PathBuf {
        self.directory.join("source")
    }

    /// Patches `source` with exactly these sets. If a patch does not apply, `source` stays as it was.
    pub(super) fn patch(
        &self,
        sets: &[PatchSet],
        release: &str,
        work: &Path,
        runner: &Runner<'_>,
    ) -> Result<(), KernelError> {
        let scratch = work.join("patched");
        fs::create_dir(&scratch).map_err(KernelError::io("make", &scratch))?;
        let named: BTreeSet<&Path> = sets
            .iter()
            .flat_map(|set| &set.patches)
            .flat_map(|patch| patch.files.iter().map(PathBuf::as_path))
            .collect();
        for set in sets {
            for patch in &set.patches {
                for file in &patch.files {
                    self.check_place(file).map_err(|said| refused(set, patch, release, vec![said]))?;
                }
            }
        }
        for file in &named {
            if let Some(from) = self.pristine(file) {
                let to = scratch.join(file);
                make_parent(&to)?;
                fs::copy(&from, &to).map_err(KernelError::io("copy", &from))?;
            }
        }
        for set in sets {
            set.patches.iter().try_for_each(|patch| apply(set, patch, release, &scratch, work, runner))?;
        }

        let mut wanted = BTreeMap::new();
        for file in self.changed()? {
            let content = self.pristine(&file).map(|from| read(&from)).transpose()?;
            wanted.insert(file, content);
        }
        for file in named {
            wanted.insert(file.to_owned(), read_if_there(&scratch.join(file))?);
        }
        wanted.keys().try_for_each(|file| self.remember(file))?;
        for (file, content) in &wanted {
            let path = self.source().join(file);
            match content {
                Some(content) if read_if_there(&path)?.as_ref() != Some(content) => {
                    make_parent(&path)?;
                    self.write(&path, content, self.pristine(file).as_deref())?;
                }
                Some(_) => {}
                None => remove_if_there(&path)?,
            }
        }
        Ok(())
    }

    /// Rejects a path in the tree with anything but a regular file in folders.
    fn check_place(&self, file: &Path) -> Result<(), String> {
        let mut path = self.source();
        for part in file.components() {
            let is_folder = fs::symlink_metadata(&path).map_or(true, |metadata| metadata.is_dir());
            if !is_folder {
                return Err(format!("{}: a part of the path is not a folder of the tree", file.display()));
            }
            path.push(part);
        }
        match fs::symlink_metadata(&path) {
            Ok(metadata) if !metadata.is_file() => {
                Err(format!("{}: expected a regular file of the tree", file.display()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the path of this file's original; `None` if a patch added the file.
    fn pristine(&self, file: &Path) -> Option<PathBuf> {
        let kept = self.directory.join("pristine").join(file);
        if kept.is_file() {
            return Some(kept);
        }
        let was_added = self.directory.join("added").join(file).is_file();
        Some(self.source().join(file)).filter(|source| !was_added && source.is_file())
    }

    fn remember(&self, file: &Path) -> Result<(), KernelError> {
        let [kept, added] = ["pristine", "added"].map(|folder| self.directory.join(folder).join(file));
        if kept.is_file() || added.is_file() {
            return Ok(());
        }
        let source = self.source().join(file);
        match read_if_there(&source)? {
            Some(content) => {
                make_parent(&kept)?;
                self.write(&kept, &content, Some(&source))
            }
            None => {
                make_parent(&added)?;
                self.write(&added, &[], None)
            }
        }
    }

    fn changed(&self) -> Result<Vec<PathBuf>, KernelError> {
        let mut files = Vec::new();
        for folder in ["pristine", "added"].map(|name| self.directory.join(name)) {
            if !folder.exists() {
                continue;
            }
            let walked = walk::walk(&folder, &mut |path, _| {
                files.extend(path.strip_prefix(&folder).map(Path::to_owned));
                Ok(())
            });
            walked.map_err(KernelError::io("read", &folder))?;
        }
        Ok(files)
    }

    /// Writes a file in one step, with the permissions of another; its time is now, so that `make` sees it.
    fn write(&self, path: &Path, content: &[u8], like: Option<&Path>) -> Result<(), KernelError> {
        let next = self.directory.join("next");
        let permissions = like.map(fs::metadata).transpose().map(|found| found.map(|m| m.permissions()));
        permissions
            .and_then(|permissions| {
                fs::write(&next, content)?;
                permissions.map_or(Ok(()), |permissions| fs::set_permissions(&next, permissions))?;
                fs::rename(&next, path)
            })
            .map_err(KernelError::io("write", path))
    }

    /// Returns the folder of objects for a configuration, and marks it as unfinished.
    ///
    /// Files of an interrupted `make` can be cut short and look finished, so all of them are removed.
    pub(super) fn begin_objects(&self, variant: Option<Variant>) -> Result<Objects, KernelError> {
        let name = format!("objects-{}", variant.map_or("plain", |variant| variant.name));
        let directory = self.directory.join(&name);
        let mark = self.directory.join(format!("{name}.unfinished"));
        fs::create_dir_all(&directory).map_err(KernelError::io("make", &directory))?;
        if let Ok(began) = fs::metadata(&mark).and_then(|mark| mark.modified()) {
            let swept = walk::walk(&directory, &mut |path, metadata| {
                if metadata.modified()? >= began { fs::remove_file(path) } else { Ok(()) }
            });
            swept.map_err(KernelError::io("clean", &directory))?;
        } else {
            File::create(&mark).map_err(KernelError::io("write", &mark))?;
        }
        Ok(Objects { directory, mark: Some(mark) })
    }
}

/// A folder of objects while `make` works in it.
pub(super) struct Objects {
    pub(super) directory: PathBuf,
    /// Path of the mark for an unfinished folder; `None` if the folder is removed with the build's.
    mark: Option<PathBuf>,
}

impl Objects {
    pub(super) fn in_work(work: &Path) -> Result<Self, KernelError> {
        let directory = work.join("objects");
        fs::create_dir(&directory).map_err(KernelError::io("make", &directory))?;
        Ok(Self { directory, mark: None })
    }

    /// Notes that `make` has ended by itself, so that it has removed every unfinished file.
    pub(super) fn end(&self) -> Result<(), KernelError> {
        self.mark.as_deref().map_or(Ok(()), remove_if_there)
    }
}

fn apply(
    set: &PatchSet,
    patch: &Patch,
    release: &str,
    scratch: &Path,
    work: &Path,
    runner: &Runner<'_>,
) -> Result<(), KernelError> {
    let file = work.join("next.patch");
    fs::write(&file, &patch.diff).map_err(KernelError::io("write", &file))?;
    let mut command = Command::new("patch");
    // Lines may have moved, but all of a hunk's context must be there.
    command.args(["-p1", "--unified", "--force", "--fuzz=0", "--no-backup-if-mismatch", "--reject-file=-"]);
    command.env("LC_ALL", "C").arg("-d").arg(scratch).arg("-i").arg(&file);
    let (mut said, mut of_file) = (Vec::new(), String::new());
    let run = runner.run("applying a patch", &mut command, |line| {
        if let Some(name) = line.strip_prefix("patching file ") {
            name.clone_into(&mut of_file);
        } else if line.starts_with("Hunk #") && line.contains("FAILED") {
            said.push(format!("{of_file}: {}", line.trim_end_matches('.')));
        } else if line.contains("FAILED") && !line.contains("hunk") {
            said.push(line.to_owned());
        }
    });
    match run {
        Err(KernelError::Failed { last_lines, .. }) => {
            let missing = patch.files.iter().find(|file| !scratch.join(file).exists());
            let said = match missing {
                _ if !said.is_empty() => said,
                Some(file) if last_lines.iter().any(|line| line.contains("can't find file")) => {
                    vec![format!("{}: is not there", file.display())]
                }
                _ => last_lines,
            };
            Err(refused(set, patch, release, said))
        }
        other => other.map(drop),
    }
}

fn refused(set: &PatchSet, patch: &Patch, release: &str, said: Vec<String>) -> KernelError {
    KernelError::Patch {
        folder: set.as_built.folder.clone(),
        patch: patch.name.clone(),
        release: release.to_owned(),
        said,
    }
}

fn describe(directory: &Path) -> Option<Description> {
    serde_json::from_str(&fs::read_to_string(directory.join("kept.json")).ok()?).ok()
}

fn make_parent(path: &Path) -> Result<(), KernelError> {
    path.parent().map_or(Ok(()), |parent| fs::create_dir_all(parent).map_err(KernelError::io("make", parent)))
}

fn read(path: &Path) -> Result<Vec<u8>, KernelError> {
    fs::read(path).map_err(KernelError::io("read", path))
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, KernelError> {
    if_there(fs::read(path)).map_err(KernelError::io("read", path))
}

fn remove_if_there(path: &Path) -> Result<(), KernelError> {
    if_there(fs::remove_file(path)).map(drop).map_err(KernelError::io("remove", path))
}

fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
