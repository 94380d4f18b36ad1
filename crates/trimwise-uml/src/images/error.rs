//! What can be wrong with a kernel, as messages for the user.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::catalogue::CATALOGUE;

/// Why there is no image.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The text names no version.
    #[error("kernel version '{version}': expected numbers such as {}, 6.6 or 6.6.30", known())]
    NoVersion {
        /// What was given.
        version: String,
    },
    /// Nothing says where the source of this version is.
    #[error(
        "kernel {version}: there is no source package for it here; expected {}, or --source DIR|TARBALL",
        known()
    )]
    UnknownVersion {
        /// What was asked for.
        version: String,
    },
    /// There is no such image in the cache.
    #[error("kernel {version} is not built{} (looked in {}); to build it: trimwise kernel build --version {version}{}",
            if *otherwise { " for this trimwise, only for another" } else { "" }, directory.display(),
            if *source_needed { " --source DIR|TARBALL" } else { "" })]
    NotBuilt {
        /// What was asked for.
        version: String,
        /// The cache.
        directory: PathBuf,
        /// Whether there is an image that was built in another way.
        otherwise: bool,
        /// Whether the source must be given.
        source_needed: bool,
    },
    /// The image is not as a build leaves it.
    #[error("the image in {} is damaged: {what}; to build it again: trimwise kernel build --force", directory.display())]
    Damaged {
        /// The image's folder.
        directory: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// No variable says where the cache is.
    #[error("there is no folder for kernels: expected TRIMWISE_KERNELS, XDG_CACHE_HOME or HOME to be set")]
    NoCache,
    /// Programs or files that a build needs are not there.
    #[error("a kernel cannot be built without {}; to install {}: {install}",
            missing.join(", "), if missing.len() == 1 { "it" } else { "them" })]
    Missing {
        /// All of them.
        missing: Vec<String>,
        /// The command that installs them.
        install: String,
    },
    /// The disk is too full.
    #[error("building a kernel needs {needed_mib} MiB in {} and {available_mib} MiB are free; TRIMWISE_KERNELS names \
             another folder", directory.display())]
    NoRoom {
        /// What a build needs, in MiB.
        needed_mib: u64,
        /// What there is, in MiB.
        available_mib: u64,
        /// The cache.
        directory: PathBuf,
    },
    /// The source that was given is not that of this kernel.
    #[error("--source {}: {what}", path.display())]
    Source {
        /// What was given.
        path: PathBuf,
        /// What it is, and what was expected.
        what: String,
    },
    /// A program that the build runs has failed.
    #[error("kernel {version}: {doing} failed ({how}); the last lines of {}:\n{}", log.display(), indented(last_lines))]
    Failed {
        /// The kernel.
        version: String,
        /// What was being done.
        doing: &'static str,
        /// How the program ended.
        how: String,
        /// The log.
        log: PathBuf,
        /// Its end.
        last_lines: Vec<String>,
    },
    /// The kernel does not take options that we need.
    #[error("kernel {version} cannot be configured as it must be: {} did not become so; the log is {}",
            options.join(", "), log.display())]
    Options {
        /// The kernel.
        version: String,
        /// The lines of our configuration that are not in the kernel's.
        options: Vec<String>,
        /// The log.
        log: PathBuf,
    },
    /// The user has stopped the build.
    #[error("interrupted")]
    Interrupted,
    /// The host refused something.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's answer.
        error: std::io::Error,
    },
}

impl KernelError {
    /// Whether the user asked for something that there is not; otherwise, something has failed.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoVersion { .. }
                | Self::UnknownVersion { .. }
                | Self::NotBuilt { .. }
                | Self::NoCache
                | Self::Source { .. }
        )
    }

    /// Makes an error of a system call.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { doing, path, error }
    }
}

/// `5.10, 6.1, 6.12`.
fn known() -> String {
    CATALOGUE.map(|series| series.version).join(", ")
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
