//! Gets a kernel's source: from Debian's package, a tree, or a tarball.
//!
//! apt downloads the package and checks Debian's signature. Its configuration is in the build's folder, with its own
//! sources, lists, cache and status: those of this machine are neither read nor changed, and nothing is installed. Only
//! the proxies come from this machine's configuration.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::catalogue::Series;
use super::run::Runner;
use super::tools::KEYRING;
use super::{KernelError, RECIPE_BYTES, Step, file_hash, walk};

/// Hosts of the packages; a suite moves from the first to the second when its support ends.
const MIRRORS: [&str; 2] = ["http://deb.debian.org", "http://archive.debian.org"];

/// A kernel's source, ready to be built in a separate folder.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) directory: PathBuf,
    /// Origin of the source in the image's description.
    pub(super) origin: String,
    pub(super) release: String,
}

/// Downloads and unpacks a package into the folder `work`.
pub(super) fn package(
    series: &Series,
    work: &Path,
    runner: &Runner<'_>,
    step: &mut dyn FnMut(Step),
) -> Result<Tree, KernelError> {
    step(Step::Download);
    let apt = work.join("apt");
    for folder in ["lists/partial", "archives/partial", "download"] {
        let folder = apt.join(folder);
        fs::create_dir_all(&folder).map_err(KernelError::io("make", &folder))?;
    }
    write(&apt.join("status"), "")?;
    write(&apt.join("apt.conf"), &configuration(&apt, &proxies()))?;
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", apt.join("apt.conf")).env("LC_ALL", "C").current_dir(apt.join("download"));
        command
    };
    let update = |mirror| {
        write(&apt.join("sources.list"), &sources(series, mirror))?;
        runner.run("reading Debian's list of packages", apt_get().arg("update"), |_| {})
    };
    match update(MIRRORS[0]) {
        Err(KernelError::Failed { .. }) => update(MIRRORS[1]).map(drop)?,
        other => other.map(drop)?,
    }
    runner.run("the download", apt_get().args(["-q", "download", series.package]), |_| {})?;
    let package = only_file(&apt.join("download"), ".deb")?;
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();

    step(Step::Unpack);
    let unpacked = work.join("package");
    let mut unpack = Command::new("dpkg-deb");
    runner.run("unpacking the package", unpack.arg("-x").arg(&package).arg(&unpacked), |_| {})?;
    remove(&apt)?; // makes space for the source
    let tarball = unpacked.join("usr/src").join(format!("{}.tar.xz", series.package));
    let directory = unpack_tarball(&tarball, work, runner)?;
    remove(&unpacked)?;
    let release = release(&directory).map_err(|what| KernelError::Source { path: tarball, what })?;
    Ok(Tree { directory, origin: origin(&name), release })
}

/// Parses `linux-source-6.1_6.1.192-2_all.deb` as the package linux-source-6.1 of version 6.1.192-2.
fn origin(file_name: &str) -> String {
    let mut parts = file_name.trim_end_matches(".deb").splitn(3, '_');
    let (package, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // apt escapes characters that file names should not have.
    format!("{package} {}", version.replace("%3a", ":").replace("%7e", "~"))
}

#[derive(Clone, Debug)]
pub(super) struct Given {
    given: PathBuf,
    path: PathBuf,
    /// Origin of the source in the image's description: the path, and a hash of the contents.
    pub(super) origin: String,
}

impl Given {
    pub(super) fn read(path: &Path, version: &str, stop: &AtomicBool) -> Result<Self, KernelError> {
        let given = path.to_owned();
        let refuse = |what: String| KernelError::Source { path: path.to_owned(), what };
        let path = path.canonicalize().map_err(|e| refuse(e.to_string()))?;
        let hash = if path.is_dir() {
            for left in [".config", "include/config", "arch/um/include/generated"] {
                if path.join(left).exists() {
                    return Err(refuse(format!(
                        "something was built in it ({left} exists); expected a clean tree, as in a tarball or after \
                         `make mrproper ARCH=um`"
                    )));
                }
            }
            release_of(&path, version).map_err(refuse)?;
            let go_on = || {
                if stop.load(Ordering::SeqCst) {
                    Err(io::Error::from(ErrorKind::Interrupted))
                } else {
                    Ok(())
                }
            };
            match walk::hash(&path, go_on) {
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(KernelError::Interrupted),
                other => other,
            }
        } else if path.is_file() {
            file_hash(&path).map(|hash| hash[..2 * RECIPE_BYTES].to_owned())
        } else {
            return Err(refuse("is not a regular file; expected a tarball or a tree".to_owned()));
        };
        let hash = hash.map_err(|e| refuse(format!("cannot be read: {e}")))?;
        let kind = if path.is_dir() { "tree" } else { "file" };
        let origin = format!("{} ({kind} {hash})", path.display());
        Ok(Self { given, path, origin })
    }

    /// Checks after a build that the source still has the contents that the image's description names.
    pub(super) fn check_unchanged(&self, version: &str, stop: &AtomicBool) -> Result<(), KernelError> {
        let what = match Self::read(&self.given, version, stop) {
            Ok(now) if now.origin == self.origin => return Ok(()),
            Ok(_) | Err(KernelError::Source { .. }) => "changed during the build; build it again",
            Err(other) => return Err(other),
        };
        Err(KernelError::Source { path: self.given.clone(), what: what.to_owned() })
    }

    /// Returns the source's tree, unpacked if it is a tarball, and checks that it is of this version.
    pub(super) fn tree(
        &self,
        version: &str,
        work: &Path,
        runner: &Runner<'_>,
        step: &mut dyn FnMut(Step),
    ) -> Result<Tree, KernelError> {
        let refuse = |what: String| KernelError::Source { path: self.given.clone(), what };
        let directory = if self.path.is_dir() {
            self.path.clone()
        } else {
            step(Step::Unpack);
            unpack_tarball(&self.path, work, runner).map_err(|error| match error {
                KernelError::Failed { last_lines, .. } if !is_archive(&self.path) => {
                    let why = last_lines.first().map_or(String::new(), |line| format!(" ({line})"));
                    refuse(format!("tar cannot unpack it{why}; expected a tarball or a tree"))
                }
                other => other,
            })?
        };
        let release = release_of(&directory, version).map_err(refuse)?;
        Ok(Tree { directory, origin: self.origin.clone(), release })
    }
}

/// Reads the release of a tree, and checks that it is of this version.
fn release_of(directory: &Path, version: &str) -> Result<String, String> {
    let release = release(directory)?;
    let of_version =
        release.strip_prefix(version).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    if of_version { Ok(release) } else { Err(format!("this is the source of {release}, not of {version}")) }
}

/// Reads the version of a kernel's source from a tree's Makefile, before anything else is done with it.
fn release(directory: &Path) -> Result<String, String> {
    let makefile = directory.join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(|e| {
        format!("expected a kernel's source, with a Makefile in it: {}: {e}", makefile.display())
    })?;
    let value = |name: &str| {
        text.lines()
            .take(20)
            .find_map(|line| line.split_once('=').filter(|(key, _)| key.trim() == name))
            .map(|(_, value)| value.trim().to_owned())
    };
    match (value("VERSION"), value("PATCHLEVEL"), value("SUBLEVEL")) {
        (Some(version), Some(patchlevel), Some(sublevel)) => {
            let extra = value("EXTRAVERSION").unwrap_or_default();
            Ok(format!("{version}.{patchlevel}.{sublevel}{extra}"))
        }
        _ => Err("expected a kernel's source; its Makefile does not define VERSION, PATCHLEVEL and SUBLEVEL"
            .to_owned()),
    }
}

fn unpack_tarball(tarball: &Path, work: &Path, runner: &Runner<'_>) -> Result<PathBuf, KernelError> {
    let directory = work.join("source");
    fs::create_dir(&directory).map_err(KernelError::io("make", &directory))?;
    let mut tar = Command::new("tar");
    tar.args(["--strip-components=1", "--no-same-owner", "-C"]).arg(&directory).arg("-xf").arg(tarball);
    runner.run("unpacking the source", &mut tar, |_| {})?;
    Ok(directory)
}

fn is_archive(path: &Path) -> bool {
    let mut tar = Command::new("tar");
    tar.arg("-tf").arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    tar.status().is_ok_and(|status| status.success())
}

/// apt's configuration: it replaces every folder that apt would use on this machine.
fn configuration(apt: &Path, proxies: &str) -> String {
    let at = apt.display();
    format!(
        "Dir::Etc \"{at}\"; Dir::Etc::main \"/dev/null\"; Dir::Etc::parts \"/dev/null\";\n\
         Dir::Etc::sourcelist \"{at}/sources.list\"; Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::trusted \"/dev/null\"; Dir::Etc::trustedparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\"; Dir::Etc::preferencesparts \"/dev/null\";\n\
         Dir::State \"{at}\"; Dir::State::lists \"{at}/lists\"; Dir::State::status \"{at}/status\";\n\
         Dir::Cache \"{at}\"; Dir::Cache::archives \"{at}/archives\"; Dir::Log \"{at}\";\n\
         APT::Sandbox::User \"\"; Acquire::Languages \"none\"; Acquire::Retries \"3\";\n{proxies}"
    )
}

fn proxies() -> String {
    let output = Command::new("apt-config").args(["dump", "Acquire"]).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    let is_proxy = |line: &&str| line.to_ascii_lowercase().contains("proxy");
    text.lines().filter(is_proxy).map(|line| format!("{line}\n")).collect()
}

/// Returns apt's list of sources for one kernel. The list of a suite without support has expired; its signature still
/// counts.
fn sources(series: &Series, mirror: &str) -> String {
    let line =
        |suite: &&str| format!("deb [signed-by={KEYRING} check-valid-until=no] {mirror}/{suite} main\n");
    series.suites.iter().map(line).collect()
}

fn only_file(directory: &Path, end: &str) -> Result<PathBuf, KernelError> {
    let entries = fs::read_dir(directory).map_err(KernelError::io("read", directory))?;
    let found = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(end));
    found.ok_or_else(|| KernelError::io("find a package in", directory)(std::io::ErrorKind::NotFound.into()))
}

fn write(path: &Path, text: &str) -> Result<(), KernelError> {
    fs::write(path, text).map_err(KernelError::io("write", path))
}

fn remove(directory: &Path) -> Result<(), KernelError> {
    fs::remove_dir_all(directory).map_err(KernelError::io("remove", directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::catalogue::series;

    #[test]
    fn a_package_s_file_name_says_its_version() {
        assert_eq!(origin("linux-source-6.1_6.1.192-2_all.deb"), "linux-source-6.1 6.1.192-2");
        assert_eq!(
            origin("linux-source-6.12_6.12.117-1%7edeb12u1_all.deb"),
            "linux-source-6.12 6.12.117-1~deb12u1"
        );
    }

    #[test]
    fn a_source_says_its_version_and_what_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(release(dir.path()).unwrap_err().contains("expected a kernel's source"));
        let makefile = dir.path().join("Makefile");
        let text =
            "# SPDX\nVERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 192\nEXTRAVERSION =\nNAME = Curry Ramen\n";
        fs::write(&makefile, text).unwrap();
        assert_eq!(release(dir.path()).unwrap(), "6.1.192");
        fs::write(&makefile, text.replace("EXTRAVERSION =", "EXTRAVERSION = -rc1")).unwrap();
        assert_eq!(release(dir.path()).unwrap(), "6.1.192-rc1");
        fs::write(&makefile, "all:\n").unwrap();
        assert!(release(dir.path()).unwrap_err().contains("does not define VERSION"));
    }

    #[test]
    fn apt_is_kept_from_every_folder_of_the_machine() {
        let text = configuration(Path::new("/w/apt"), "");
        for setting in text.split(';').filter(|s| s.contains("Dir::")) {
            assert!(setting.contains("\"/w/apt") || setting.contains("\"/dev/null\""), "{setting}");
        }
        let sources = sources(series("6.1").unwrap(), MIRRORS[0]);
        assert_eq!(sources.lines().count(), 2);
        assert!(sources.lines().all(|line| line.contains("signed-by=/usr/share/keyrings/debian-archive")));
    }
}
