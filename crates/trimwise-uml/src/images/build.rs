//! The build of one image: lock, source, configuration, compilation, and its place in the cache.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags};
use tempfile::TempDir;

use super::run::Runner;
use super::source::{self, Tree};
use super::{
    CONFIGURATION, Cache, Description, KernelError, KernelImage, PRELOAD_SOURCE, catalogue, check, folder,
    recipe, tools,
};

/// Prefix of the folders in which builds work; such a folder is never taken for an image.
pub(super) const WORK_PREFIX: &str = ".building-";

/// The most that source (1.3 GiB), objects (0.6 GiB) and package need, with a margin.
const ROOM_BYTES: u64 = 2560 << 20;

/// How often a waiting build checks again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Estimated lines that `make` prints for a kernel without a known count.
const MAKE_LINES: u64 = 1400;

/// What to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// `6.1`, from the catalogue; or the version of `source`.
    pub version: String,
    /// A kernel's source: a tree, which is not changed, or a tarball. Without it, the distribution's package.
    pub source: Option<PathBuf>,
    /// Compilers at a time; `None`: one for each core.
    pub jobs: Option<NonZero<u16>>,
    /// Whether to rebuild an image that is in the cache; it stays there until the new one replaces it.
    pub again: bool,
}

/// The current step of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waiting for another process that builds the same image.
    Wait,
    /// Downloading the package.
    Download,
    /// Unpacking the source.
    Unpack,
    /// Configuring the kernel.
    Configure,
    /// Compiling; progress in lines printed by `make`.
    Compile {
        /// Lines so far.
        done: u64,
        /// Estimated total, from another package of this series.
        expected: u64,
    },
}

/// How an image was obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Built {
    /// It was in the cache.
    Found(KernelImage),
    /// It was built.
    New {
        /// The new image.
        image: KernelImage,
        /// What removing the version's images of other recipes has freed; an error if they could not be removed.
        freed_bytes: Result<u64, String>,
    },
}

impl Order {
    /// Checks that there is something to build: a version, and a source for it.
    pub fn check(&self) -> Result<(), KernelError> {
        check(&self.version)?;
        if self.source.is_none() && catalogue::series(&self.version).is_none() {
            return Err(KernelError::UnknownVersion { version: self.version.clone() });
        }
        Ok(())
    }
}

impl Cache {
    /// Builds an image unless it is in the cache. `step` receives the progress; setting `stop` ends the build.
    ///
    /// # Errors
    ///
    /// Whatever is missing or fails; then nothing is left but the log, which the error names.
    pub fn build(
        &self,
        order: &Order,
        stop: &AtomicBool,
        step: &mut dyn FnMut(Step),
    ) -> Result<Built, KernelError> {
        order.check()?;
        let version = order.version.as_str();
        let series = catalogue::series(version);
        if let Some(image) = self.fitting(order)? {
            return Ok(Built::Found(image));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        tools::check(&path, order.source.is_none(), Path::new(tools::KEYRING))?;
        fs::create_dir_all(self.directory()).map_err(KernelError::io("make", self.directory()))?;
        let log_path = self.log(version);
        let log = lock(&log_path, stop, step)?;
        if let Some(image) = self.fitting(order)? {
            // The build that we waited for has made it; its log is inside, and ours is empty.
            fs::remove_file(&log_path).map_err(KernelError::io("remove", &log_path))?;
            return Ok(Built::Found(image));
        }
        self.sweep(&folder(version));
        self.check_room()?;
        log.set_len(0).map_err(KernelError::io("write", &log_path))?;

        let work = tempfile::Builder::new()
            .prefix(&format!("{WORK_PREFIX}{}.", folder(version)))
            .tempdir_in(self.directory())
            .map_err(KernelError::io("make a folder in", self.directory()))?;
        let runner = Runner { version, log: &log, log_path: log_path.clone(), stop };
        let image = Making { order, work: &work, runner: &runner }.image(series, step)?;
        self.put(&image, order, &log_path)
    }

    /// Returns the image in the cache, if it fits the order.
    fn fitting(&self, order: &Order) -> Result<Option<KernelImage>, KernelError> {
        if order.again {
            return Ok(None);
        }
        let image = match self.find(&order.version) {
            Ok(image) => image,
            Err(KernelError::NotBuilt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // A kernel from another source is a different one.
        let same = match (&order.source, catalogue::series(&order.version)) {
            (Some(path), _) => {
                path.canonicalize().is_ok_and(|path| image.source == path.display().to_string())
            }
            (None, Some(series)) => image.source.split(' ').next() == Some(series.package),
            (None, None) => true,
        };
        Ok(same.then_some(image))
    }

    /// Moves a finished image into place in one step, and then its log into it.
    fn put(&self, image: &Path, order: &Order, log_path: &Path) -> Result<Built, KernelError> {
        let place = self.directory().join(folder(&order.version));
        let failed = |e: rustix::io::Errno| KernelError::io("put an image at", &place)(e.into());
        if place.exists() {
            // The old image is removed with the work folder.
            rustix::fs::renameat_with(CWD, image, CWD, &place, RenameFlags::EXCHANGE).map_err(failed)?;
        } else {
            rustix::fs::rename(image, &place).map_err(failed)?;
        }
        // Only now: the log is the lock as long as it is outside.
        fs::rename(log_path, place.join("build.log")).map_err(KernelError::io("move", log_path))?;
        let image = self.find(&order.version)?;
        // The image is built: if the old ones cannot be removed, the build has not failed.
        let freed_bytes = self.remove_outdated(&order.version).map_err(|error| error.to_string());
        Ok(Built::New { image, freed_bytes })
    }

    /// Removes the remains of killed builds: those of the image that we hold the lock of, and those without a lock.
    fn sweep(&self, ours: &str) {
        let entries = fs::read_dir(self.directory()).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some((image, _)) = name.strip_prefix(WORK_PREFIX).and_then(|rest| rest.rsplit_once('.'))
            else {
                continue;
            };
            let log = File::open(self.directory().join(format!("{image}.log")));
            let alive = image != ours && log.is_ok_and(|log| log.try_lock().is_err());
            if !alive {
                drop(fs::remove_dir_all(&path)); // what cannot be removed is no reason not to build
            }
        }
    }

    fn check_room(&self) -> Result<(), KernelError> {
        let room = rustix::fs::statvfs(self.directory())
            .map_err(|e| KernelError::io("see how much is free in", self.directory())(e.into()))?;
        let available = room.f_bavail.saturating_mul(room.f_frsize);
        if available >= ROOM_BYTES {
            return Ok(());
        }
        Err(KernelError::NoRoom {
            needed_mib: ROOM_BYTES >> 20,
            available_mib: available >> 20,
            directory: self.directory().to_owned(),
        })
    }
}

/// Locks the log. The previous holder may have moved it away; then there is a new one to lock.
fn lock(path: &Path, stop: &AtomicBool, step: &mut dyn FnMut(Step)) -> Result<File, KernelError> {
    loop {
        let open = OpenOptions::new().create(true).append(true).open(path);
        let log = open.map_err(KernelError::io("open", path))?;
        loop {
            match log.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => step(Step::Wait),
                Err(TryLockError::Error(e)) => return Err(KernelError::io("lock", path)(e)),
            }
            if stop.load(Ordering::SeqCst) {
                return Err(KernelError::Interrupted);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let locked = log.metadata().map_err(KernelError::io("look at", path))?;
        if fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())) {
            return Ok(log);
        }
    }
}

/// One build in its folder.
struct Making<'a> {
    order: &'a Order,
    work: &'a TempDir,
    runner: &'a Runner<'a>,
}

impl Making<'_> {
    /// Makes the image and returns its folder.
    fn image(
        &self,
        series: Option<&'static catalogue::Series>,
        step: &mut dyn FnMut(Step),
    ) -> Result<PathBuf, KernelError> {
        let version = self.order.version.as_str();
        let work = self.work.path();
        let image = work.join("image");
        fs::create_dir(&image).map_err(KernelError::io("make", &image))?;
        // The shortest step first: it shows at once whether the compiler works at all.
        let compiler = self.preload(&image)?;
        let tree = match (&self.order.source, series) {
            (Some(path), _) => source::given(path, version, work, self.runner, step)?,
            (None, Some(series)) => source::package(series, work, self.runner, step)?,
            (None, None) => return Err(KernelError::UnknownVersion { version: version.to_owned() }),
        };

        step(Step::Configure);
        let objects = work.join("objects");
        fs::create_dir(&objects).map_err(KernelError::io("make", &objects))?;
        let fragment = work.join("um.config");
        fs::write(&fragment, CONFIGURATION).map_err(KernelError::io("write", &fragment))?;
        let mut configure = self.make(&tree, &objects);
        configure.env("KCONFIG_ALLCONFIG", &fragment).arg("allnoconfig");
        self.runner.run("the configuration", &mut configure, |_| {})?;
        let configured = objects.join(".config");
        let text = fs::read_to_string(&configured).map_err(KernelError::io("read", &configured))?;
        let options = not_as_written(CONFIGURATION, &text);
        if !options.is_empty() {
            let log = self.runner.log_path.clone();
            return Err(KernelError::Options { version: version.to_owned(), options, log });
        }

        let expected = series.map_or(MAKE_LINES, |series| series.make_lines);
        let mut done = 0;
        step(Step::Compile { done, expected });
        let mut compile = self.make(&tree, &objects);
        compile.arg(format!("-j{}", self.jobs())).arg("linux");
        self.runner.run("the compilation", &mut compile, |line| {
            if line.starts_with("  ") {
                done += 1;
                step(Step::Compile { done, expected: expected.max(done) });
            }
        })?;

        // A unique name for what holds the source: `linux` and `vmlinux` are one file with two names.
        for (from, to) in [("linux", "linux"), (".config", "config")] {
            let from = objects.join(from);
            fs::copy(&from, image.join(to)).map_err(KernelError::io("copy", &from))?;
        }
        let description = Description {
            version: version.to_owned(),
            release: tree.release,
            source: tree.origin,
            compiler,
            recipe: recipe(),
        };
        let file = image.join("image.json");
        let text = serde_json::to_string_pretty(&description)
            .map_err(|e| KernelError::io("write", &file)(e.into()))?;
        fs::write(&file, text + "\n").map_err(KernelError::io("write", &file))?;
        Ok(image)
    }

    /// Compiles the library to preload; returns the compiler used.
    fn preload(&self, image: &Path) -> Result<String, KernelError> {
        let code = self.work.path().join("preload.c");
        fs::write(&code, PRELOAD_SOURCE).map_err(KernelError::io("write", &code))?;
        let gcc = || {
            let mut command = Command::new("gcc");
            command.env("LC_ALL", "C");
            command
        };
        let mut compile = gcc();
        compile.args(["-shared", "-fPIC", "-O2", "-Wall", "-o"]).arg(image.join("preload.so")).arg(&code);
        self.runner.run(
            "the first compilation (is there a C library to develop with, libc6-dev?)",
            &mut compile,
            |_| {},
        )?;
        let mut first = None;
        self.runner.run("asking gcc for its version", gcc().arg("--version"), |line| {
            first.get_or_insert_with(|| line.to_owned());
        })?;
        Ok(first.unwrap_or_default())
    }

    /// Prepares `make` without anything from the caller's environment that would change the result.
    fn make(&self, tree: &Tree, objects: &Path) -> Command {
        let mut command = Command::new("make");
        command.env_clear();
        for name in ["PATH", "HOME", "TMPDIR"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        // The kernel prints these when it boots; logs of different machines should be the same.
        command
            .env("LC_ALL", "C")
            .env("KBUILD_BUILD_TIMESTAMP", "Thu Jan  1 00:00:00 UTC 1970")
            .env("KBUILD_BUILD_USER", "trimwise")
            .env("KBUILD_BUILD_HOST", "trimwise");
        command.arg("-C").arg(&tree.directory).arg(format!("O={}", objects.display())).arg("ARCH=um");
        command
    }

    fn jobs(&self) -> u16 {
        let cores =
            || std::thread::available_parallelism().map_or(1, |n| n.get().try_into().unwrap_or(u16::MAX));
        self.order.jobs.map_or_else(cores, NonZero::get)
    }
}

/// Returns the lines of our configuration that the kernel's lacks. An unknown option counts as not set.
fn not_as_written(ours: &str, kernels: &str) -> Vec<String> {
    let is_set =
        |name: &str| kernels.lines().any(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
    let wrong = |line: &&str| match line.strip_prefix("# ").and_then(|rest| rest.strip_suffix(" is not set"))
    {
        Some(name) => is_set(name),
        None => line.starts_with("CONFIG_") && !kernels.lines().any(|l| l == *line),
    };
    ours.lines().filter(wrong).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_did_not_become_as_written_are_named() {
        let ours = "# a comment\nCONFIG_A=y\nCONFIG_AB=y\n# CONFIG_C is not set\n# CONFIG_D is not set\n";
        assert_eq!(
            not_as_written(ours, "CONFIG_AB=y\n# CONFIG_C is not set\n"),
            ["CONFIG_A=y"],
            "an unknown option counts as not set"
        );
        let kernels = "# CONFIG_A is not set\nCONFIG_AB=y\nCONFIG_C=m\nCONFIG_DE=y\n";
        assert_eq!(not_as_written(ours, kernels), ["CONFIG_A=y", "# CONFIG_C is not set"]);
    }
}
