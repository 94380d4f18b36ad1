use std::path::{Path, PathBuf};

use thiserror::Error;
use trimwise::failure::{Mistake, set};
use trimwise::words;

use trimwise_linux::kernel_name::{KernelNameError, PACKAGED};

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    #[error(transparent)]
    Name(#[from] KernelNameError),
    #[error("{}", unknown_version(version))]
    UnknownVersion { version: String },
    #[error("kernel {name} is not built{} (looked in {}); to build it: {command}",
            if *otherwise { " for this trimwise, only for another" } else { "" }, directory.display())]
    NotBuilt {
        name: String,
        directory: PathBuf,
        /// True if there is an image, but a different trimwise built it.
        otherwise: bool,
        command: String,
    },
    #[error(
        "kernel {name} belongs to the package trimwise-kernels; to remove it: apt-get remove trimwise-kernels"
    )]
    Installed { name: String },
    #[error("kernel {name} is outdated: the patches in {} have changed since it was built; to build it again: {command}",
            folder.display())]
    Outdated { name: String, folder: PathBuf, command: String },
    #[error("{}", of_path("with", folder, what))]
    Set { folder: PathBuf, what: String },
    /// A patch does not fit the source, which is unchanged.
    #[error("{}", of_patch(folder, patch, release, said))]
    Patch {
        folder: PathBuf,
        patch: String,
        release: String,
        /// The file and hunks that failed, as patch(1) prints them.
        said: Vec<String>,
    },
    #[error("no source of {version} is kept in {}{}", directory.display(), if there.is_empty() { String::new() } else {
            format!("; kept are those of {}", there.join(", ")) })]
    NoSource { version: String, directory: PathBuf, there: Vec<String> },
    #[error("the source of {version} is in use by a build; try again when it has ended")]
    SourceInUse { version: String },
    #[error("{}; to replace it: {}", damage(directory, what), super::replacement(directory))]
    Damaged { directory: PathBuf, what: String },
    #[error("there is no folder for kernels: expected TRIMWISE_KERNELS, XDG_CACHE_HOME or HOME to be set")]
    NoCache,
    #[error("the folder for kernels, {}, is not a directory; set TRIMWISE_KERNELS to another one", directory.display())]
    NoFolder { directory: PathBuf },
    #[error("a kernel cannot be built without {}; to install {}: {install}",
            missing.join(", "), if missing.len() == 1 { "it" } else { "them" })]
    Missing { missing: Vec<String>, install: String },
    #[error("building a kernel needs {needed_mib} MiB in {}, but only {available_mib} MiB are free; set \
             TRIMWISE_KERNELS to another folder", directory.display())]
    NoRoom { needed_mib: u64, available_mib: u64, directory: PathBuf },
    #[error("{}", of_path("source", path, what))]
    Source { path: PathBuf, what: String },
    #[error("kernel {version}: {doing} failed ({how}); the last lines of {}:\n{}", log.display(), indented(last_lines))]
    Failed { version: String, doing: &'static str, how: String, log: PathBuf, last_lines: Vec<String> },
    #[error("kernel {version} cannot be configured as needed: {} did not take effect; the log is {}",
            options.join(", "), log.display())]
    Options { version: String, options: Vec<String>, log: PathBuf },
    #[error("interrupted")]
    Interrupted,
    #[error("cannot {doing} {}: {error}", path.display())]
    Io { doing: &'static str, path: PathBuf, error: std::io::Error },
}

impl KernelError {
    /// Returns what is wrong with the request.
    pub fn mistake(&self) -> Mistake {
        match self {
            Self::UnknownVersion { version } => unknown_version(version),
            Self::Name(why) => why.mistake(),
            Self::Set { folder, what } => of_path("with", folder, what),
            Self::Patch { folder, patch, release, said } => of_patch(folder, patch, release, said),
            Self::Source { path, what } => of_path("source", path, what),
            other => Mistake::that(other.to_string()),
        }
    }

    /// Returns true if the request was wrong, false if something failed.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Name(_)
                | Self::UnknownVersion { .. }
                | Self::NotBuilt { .. }
                | Self::Installed { .. }
                | Self::Outdated { .. }
                | Self::Set { .. }
                | Self::Patch { .. }
                | Self::NoSource { .. }
                | Self::NoCache
                | Self::NoFolder { .. }
                | Self::Source { .. }
        )
    }

    /// Returns the problem, and the command that solves it if there is one for this image alone.
    pub fn reason_and_remedy(&self) -> (String, Option<String>) {
        match self {
            Self::Damaged { directory, what } => {
                (damage(directory, what), Some(super::replacement(directory)))
            }
            other => (other.to_string(), None),
        }
    }

    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { doing, path, error }
    }
}

fn unknown_version(version: &str) -> Mistake {
    let expected = words![PACKAGED.join(", "), ", or ", set("source", "DIR|TARBALL")];
    Mistake::that(format!("kernel {version}: there is no source package for it here")).expected(expected)
}

fn of_path(key: &'static str, path: &Path, what: &str) -> Mistake {
    Mistake::of(key, path.display()).because(what)
}

fn of_patch(folder: &Path, patch: &str, release: &str, said: &[String]) -> Mistake {
    of_path("with", folder, &format!("{patch} does not apply to Linux {release}: {}", said.join("; ")))
}

fn damage(directory: &Path, what: &str) -> String {
    format!("the image in {} is damaged: {what}", directory.display())
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
