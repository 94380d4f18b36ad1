//! The build of one image: lock, source, configuration, compilation, and its place in the cache.

use std::fs::{self, File, OpenOptions};
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use rustix::fs::{CWD, RenameFlags};
use tempfile::TempDir;

use super::catalogue::{self, Series};
use super::kept::{Kept, Objects, wait_for_lock};
use super::run::Runner;
use super::source::{self, Given, Tree};
use super::{
    BuiltSet, CONFIGURATION, Cache, Description, KernelError, KernelImage, KernelName, PRELOAD_SOURCE,
    PatchSet, Step, configuration, folder, recipe, tools,
};

/// Prefix of the folders in which builds work; such a folder is never taken for an image.
pub(super) const WORK_PREFIX: &str = ".building-";

/// Space for source (1.3 GiB), objects (0.6 GiB) and package, with a margin.
const ROOM_BYTES: u64 = 2560 << 20;

/// Space for objects alone, of the variant with the most debug information.
const ROOM_FOR_OBJECTS_BYTES: u64 = 1280 << 20;
/// Estimated lines that `make` prints for a kernel without a known count.
const MAKE_LINES: u64 = 1400;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Such as `6.1`, from the catalogue; or the version of `source`.
    pub version: String,
    /// Folders of patch sets, applied in this order.
    pub with: Vec<PathBuf>,
    pub variant: Option<String>,
    /// A kernel's source: a tree, which is not changed, or a tarball. Without it, the distribution's package.
    pub source: Option<PathBuf>,
    /// `None` for one on each core.
    pub jobs: Option<NonZero<u16>>,
    /// True to rebuild an image that is in the cache; it stays there until the new one replaces it.
    pub again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Built {
    Found(KernelImage),
    New {
        image: KernelImage,
        /// Bytes freed by removing the version's images of other recipes; an error if they could not be removed.
        freed_bytes: Result<u64, String>,
    },
}

struct Plan<'a> {
    order: &'a Order,
    name: KernelName,
    sets: Vec<PatchSet>,
    recipe: String,
    series: Option<&'static Series>,
}

impl Order {
    pub fn check(&self) -> Result<(), KernelError> {
        self.plan().map(drop)
    }

    pub fn name(&self) -> Result<KernelName, KernelError> {
        self.plan().map(|plan| plan.name)
    }

    fn plan(&self) -> Result<Plan<'_>, KernelError> {
        // The version is what a user is likeliest to mistype.
        KernelName::new(&self.version, Vec::new(), self.variant.as_deref())?;
        let series = catalogue::series(&self.version);
        if self.source.is_none() && series.is_none() {
            return Err(KernelError::UnknownVersion { version: self.version.clone() });
        }
        let sets: Vec<PatchSet> =
            self.with.iter().map(|folder| PatchSet::read(folder)).collect::<Result<_, _>>()?;
        let names = sets.iter().map(|set| set.as_built.name.clone()).collect();
        let name = KernelName::new(&self.version, names, self.variant.as_deref())?;
        let mut plan = Plan { order: self, name, sets, recipe: String::new(), series };
        plan.recipe = recipe(&plan.name, &plan.built_sets());
        Ok(plan)
    }
}

impl Plan<'_> {
    fn built_sets(&self) -> Vec<BuiltSet> {
        self.sets.iter().map(|set| set.as_built.clone()).collect()
    }

    fn folder(&self) -> String {
        folder(&self.name, &self.recipe)
    }

    fn is_of_source(&self, origin: &str, given: Option<&Given>) -> bool {
        match (given, self.series) {
            (Some(given), _) => origin == given.origin,
            (None, Some(series)) => origin.split(' ').next() == Some(series.package),
            (None, None) => false,
        }
    }
}

impl Cache {
    /// Builds an image unless it is in the cache. `step` receives the progress; setting `stop` ends the build.
    ///
    /// The source of a kernel with patches or of a variant is kept, with its objects. That of a plain kernel is removed
    /// with the build's folder, unless it is kept already.
    ///
    /// # Errors
    /// Nothing new is left then except the log, which the error names, and the kept source.
    pub fn build(
        &self,
        order: &Order,
        stop: &AtomicBool,
        step: &mut dyn FnMut(Step),
    ) -> Result<Built, KernelError> {
        let plan = order.plan()?;
        let given = match &order.source {
            Some(path) => {
                step(Step::Read);
                Some(Given::read(path, &order.version, stop)?)
            }
            None => None,
        };
        if let Some(image) = self.fitting(&plan, given.as_ref())? {
            return Ok(Built::Found(image));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        tools::check(&path, order.source.is_none(), !plan.sets.is_empty(), Path::new(tools::KEYRING))?;
        fs::create_dir_all(self.directory()).map_err(KernelError::io("make", self.directory()))?;
        let log_path = self.log(&plan.name, &plan.recipe);
        let log = wait_for_lock(&log_path, stop, step, || {
            OpenOptions::new().create(true).append(true).open(&log_path)
        })?;
        if let Some(image) = self.fitting(&plan, given.as_ref())? {
            // The build that we waited for has made the image; its log is inside, and ours is empty.
            fs::remove_file(&log_path).map_err(KernelError::io("remove", &log_path))?;
            return Ok(Built::Found(image));
        }
        self.sweep(&plan.folder());
        let fits = |origin: &str| plan.is_of_source(origin, given.as_ref());
        let kept = if plan.name.is_plain() && !self.keeps(&order.version, fits) {
            None
        } else {
            Some(Kept::take(self, &order.version, stop, step)?)
        };
        log.set_len(0).map_err(KernelError::io("write", &log_path))?;

        let work = tempfile::Builder::new()
            .prefix(&format!("{WORK_PREFIX}{}.", plan.folder()))
            .tempdir_in(self.directory())
            .map_err(KernelError::io("make a folder in", self.directory()))?;
        let runner = Runner { version: &plan.name.to_string(), log: &log, log_path: log_path.clone(), stop };
        let image =
            Making { cache: self, plan: &plan, given, kept: kept.as_ref(), work: &work, runner: &runner }
                .image(step)?;
        self.put(&image, &plan, &log_path)
    }

    fn fitting(&self, plan: &Plan<'_>, given: Option<&Given>) -> Result<Option<KernelImage>, KernelError> {
        if plan.order.again {
            return Ok(None);
        }
        // Look for the same source, since a kernel from another source is a different one.
        let mut found = None;
        for place in self.places(&plan.folder()) {
            found = self.read(&place)?.filter(|image| plan.is_of_source(&image.source, given));
            if found.is_some() {
                break;
            }
        }
        let Some(mut image) = found else { return Ok(None) };
        let sets = plan.built_sets();
        if image.patches != sets {
            // These are the same patches in another folder, which is the one to watch from now on.
            image.patches = sets;
            self.describe(&image)?;
        }
        Ok(Some(image))
    }

    fn describe(&self, image: &KernelImage) -> Result<(), KernelError> {
        let file = image.directory.join("image.json");
        let description = Description {
            version: image.name.to_string(),
            release: image.release.clone(),
            source: image.source.clone(),
            patches: image.patches.clone(),
            compiler: image.compiler.clone(),
            recipe: image.recipe.clone(),
        };
        // Readable by everyone, like the file it replaces.
        let readable = fs::Permissions::from_mode(0o644);
        let next = tempfile::Builder::new()
            .permissions(readable)
            .tempfile_in(self.directory())
            .map_err(KernelError::io("make a file in", self.directory()))?;
        write_description(next.path(), &description)?;
        next.persist(&file).map_err(|e| KernelError::io("write", &file)(e.error))?;
        Ok(())
    }

    fn put(&self, image: &Path, plan: &Plan<'_>, log_path: &Path) -> Result<Built, KernelError> {
        let place = self.directory().join(plan.folder());
        let failed = |e: rustix::io::Errno| KernelError::io("put an image at", &place)(e.into());
        if place.exists() {
            // The old image is removed with the work folder.
            rustix::fs::renameat_with(CWD, image, CWD, &place, RenameFlags::EXCHANGE).map_err(failed)?;
        } else {
            rustix::fs::rename(image, &place).map_err(failed)?;
        }
        // This must come last: the log is the lock as long as it is outside.
        fs::rename(log_path, place.join("build.log")).map_err(KernelError::io("move", log_path))?;
        let missing = || KernelError::io("find", &place)(std::io::ErrorKind::NotFound.into());
        let image = self.read(&place)?.ok_or_else(missing)?;
        // The image is built: if the old ones cannot be removed, the build has not failed.
        let freed_bytes = self.remove_outdated(&plan.name, &plan.recipe).map_err(|error| error.to_string());
        Ok(Built::New { image, freed_bytes })
    }

    /// Removes the remains of killed builds: those of the image whose lock we hold, and those without a lock.
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

    fn check_room(&self, needed_bytes: u64) -> Result<(), KernelError> {
        let room = rustix::fs::statvfs(self.directory())
            .map_err(|e| KernelError::io("see how much is free in", self.directory())(e.into()))?;
        let available = room.f_bavail.saturating_mul(room.f_frsize);
        if available >= needed_bytes {
            return Ok(());
        }
        Err(KernelError::NoRoom {
            needed_mib: needed_bytes >> 20,
            available_mib: available >> 20,
            directory: self.directory().to_owned(),
        })
    }
}

struct Making<'a> {
    cache: &'a Cache,
    plan: &'a Plan<'a>,
    given: Option<Given>,
    /// Place of the source and objects, if they are kept.
    kept: Option<&'a Kept>,
    work: &'a TempDir,
    runner: &'a Runner<'a>,
}

impl Making<'_> {
    fn image(&self, step: &mut dyn FnMut(Step)) -> Result<PathBuf, KernelError> {
        let image = self.work.path().join("image");
        fs::create_dir(&image).map_err(KernelError::io("make", &image))?;
        // Run the shortest step first: it shows at once whether the compiler works.
        let compiler = self.preload(&image)?;
        let tree = self.tree(step)?;
        let objects = match self.kept {
            Some(kept) => {
                kept.patch(&self.plan.sets, &tree.release, self.work.path(), self.runner)?;
                kept.begin_objects(self.plan.name.variant())?
            }
            None => Objects::in_work(self.work.path())?,
        };
        let compiled = self.compile(&tree, &objects.directory, step);
        let is_cut_short = match &compiled {
            // Another status means that `make` itself was killed.
            Err(KernelError::Failed { how, .. }) => !how.starts_with("exit"),
            Err(KernelError::Interrupted) => true,
            _ => false,
        };
        if !is_cut_short {
            objects.end()?;
        }
        compiled?;
        if let Some(given) = &self.given {
            given.check_unchanged(&self.plan.order.version, self.runner.stop)?;
        }

        // Use a unique name: `linux` and `vmlinux` are one file with two names.
        for (from, to) in [("linux", "linux"), (".config", "config")] {
            let from = objects.directory.join(from);
            fs::copy(&from, image.join(to)).map_err(KernelError::io("copy", &from))?;
        }
        let description = Description {
            version: self.plan.name.to_string(),
            release: format!("{}{}", tree.release, self.plan.name.added()),
            source: tree.origin,
            patches: self.plan.built_sets(),
            compiler,
            recipe: self.plan.recipe.clone(),
        };
        write_description(&image.join("image.json"), &description)?;
        Ok(image)
    }

    /// Returns the kept source, or gets a new one and keeps it if the plan says so.
    fn tree(&self, step: &mut dyn FnMut(Step)) -> Result<Tree, KernelError> {
        let Plan { order, series, .. } = *self.plan;
        let given = self.given.as_ref();
        let there = self.kept.and_then(|kept| kept.tree(|origin| self.plan.is_of_source(origin, given)));
        if let Some(tree) = there.filter(|_| !order.again) {
            self.cache.check_room(ROOM_FOR_OBJECTS_BYTES)?;
            return Ok(tree);
        }
        self.cache.check_room(ROOM_BYTES)?;
        let work = self.work.path();
        let tree = match (given, series) {
            (Some(given), _) => given.tree(&order.version, work, self.runner, step)?,
            (None, Some(series)) => source::package(series, work, self.runner, step)?,
            (None, None) => return Err(KernelError::UnknownVersion { version: order.version.clone() }),
        };
        self.kept.map_or(Ok(tree.clone()), |kept| kept.replace(tree, work, self.runner))
    }

    fn compile(&self, tree: &Tree, objects: &Path, step: &mut dyn FnMut(Step)) -> Result<(), KernelError> {
        step(Step::Configure);
        let variant = self.plan.name.variant().map_or("", super::fragment);
        let mut ours = format!("{CONFIGURATION}\n{variant}");
        self.plan.sets.iter().for_each(|set| ours += &set.configuration);
        let configuration = configuration(&self.plan.name, &ours);
        let fragment = self.work.path().join("um.config");
        fs::write(&fragment, &configuration).map_err(KernelError::io("write", &fragment))?;
        let mut configure = self.make(tree, objects);
        configure.env("KCONFIG_ALLCONFIG", &fragment).arg("allnoconfig");
        self.runner.run("the configuration", &mut configure, |_| {})?;
        let configured = objects.join(".config");
        let text = fs::read_to_string(&configured).map_err(KernelError::io("read", &configured))?;
        let options = not_as_written(&configuration, &text);
        if !options.is_empty() {
            let log = self.runner.log_path.clone();
            return Err(KernelError::Options { version: self.plan.name.to_string(), options, log });
        }

        let expected = self.plan.series.map_or(MAKE_LINES, |series| series.make_lines);
        let mut done = 0;
        step(Step::Compile { done, expected });
        let mut compile = self.make(tree, objects);
        compile.arg(format!("-j{}", self.jobs())).arg("linux");
        self.runner.run("the compilation", &mut compile, |line| {
            if line.starts_with("  ") {
                done += 1;
                step(Step::Compile { done, expected: expected.max(done) });
            }
        })?;
        Ok(())
    }

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
            "the first compilation (are the C library's headers installed, libc6-dev?)",
            &mut compile,
            |_| {},
        )?;
        let mut first = None;
        self.runner.run("asking gcc for its version", gcc().arg("--version"), |line| {
            first.get_or_insert_with(|| line.to_owned());
        })?;
        Ok(first.unwrap_or_default())
    }

    /// Prepares `make`, without any variable of the caller's environment that would change the result.
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
            .env("KBUILD_BUILD_HOST", "trimwise")
            // By default the version counts how often kept objects were linked.
            .env("KBUILD_BUILD_VERSION", "1");
        command.arg("-C").arg(&tree.directory).arg(format!("O={}", objects.display())).arg("ARCH=um");
        let added = self.plan.name.added();
        if !added.is_empty() {
            // `uname -r` and the kernel's log show the additions.
            command.arg(format!("LOCALVERSION={added}"));
        }
        command
    }

    fn jobs(&self) -> u16 {
        let cores =
            || std::thread::available_parallelism().map_or(1, |n| n.get().try_into().unwrap_or(u16::MAX));
        self.plan.order.jobs.map_or_else(cores, NonZero::get)
    }
}

fn write_description(file: &Path, description: &Description) -> Result<(), KernelError> {
    let text =
        serde_json::to_string_pretty(description).map_err(|e| KernelError::io("write", file)(e.into()))?;
    fs::write(file, text + "\n").map_err(KernelError::io("write", file))
}

/// Returns the lines of our configuration that are missing in the kernel's. An unknown option counts as not set.
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
