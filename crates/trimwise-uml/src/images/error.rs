//! Errors about kernels, as messages for the user.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::catalogue::CATALOGUE;

/// Reasons why there is no image.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The text is not a version.
    #[error("kernel version '{version}': expected numbers such as {}, 6.6 or 6.6.30", known())]
    NoVersion {
        /// Text that the user gave.
        version: String,
    },
    /// The source of this version is unknown.
    #[error(
        "kernel {version}: there is no source package for it here; expected {}, or --source DIR|TARBALL",
        known()
    )]
    UnknownVersion {
        /// Version that the user requested.
        version: String,
    },
    /// The cache has no image of this name.
    #[error("kernel {name} is not built{} (looked in {}); to build it: {command}",
            if *otherwise { " for this trimwise, only for another" } else { "" }, directory.display())]
    NotBuilt {
        /// Name of the requested kernel.
        name: String,
        /// Folder of the cache.
        directory: PathBuf,
        /// True if there is an image that a different trimwise built.
        otherwise: bool,
        /// Command that builds the kernel.
        command: String,
    },
    /// The patches have changed since the image was built.
    #[error("kernel {name} is outdated: the patches in {} have changed since it was built; to build it again: {command}",
            folder.display())]
    Outdated {
        /// Name of the requested kernel.
        name: String,
        /// Folder of the patches.
        folder: PathBuf,
        /// Command that builds the kernel.
        command: String,
    },
    /// No variant has this name.
    #[error("--variant {variant}: there is no such variant; expected {}", super::name::variants())]
    UnknownVariant {
        /// Name that the user gave.
        variant: String,
    },
    /// A patch set's name cannot be part of a kernel's.
    #[error("patch set '{set}': {what}")]
    SetName {
        /// Name of the patch set.
        set: String,
        /// Description of the problem, and of valid names.
        what: String,
    },
    /// The folder is not a patch set.
    #[error("--with {}: {what}", folder.display())]
    Set {
        /// Folder that the user gave.
        folder: PathBuf,
        /// Description of the problem, and of valid patch sets.
        what: String,
    },
    /// A patch does not fit the source. The source is as before.
    #[error("--with {}: {patch} does not apply to Linux {release}: {}", folder.display(), said.join("; "))]
    Patch {
        /// Folder of the patch set.
        folder: PathBuf,
        /// Name of the patch.
        patch: String,
        /// Release of the source.
        release: String,
        /// The file and the hunks that failed, as patch(1) prints them.
        said: Vec<String>,
    },
    /// No source of this version is kept.
    #[error("no source of {version} is kept in {}{}", directory.display(), if there.is_empty() { String::new() } else {
            format!("; there are those of {}", there.join(", ")) })]
    NoSource {
        /// Version that the user requested.
        version: String,
        /// Folder of the cache.
        directory: PathBuf,
        /// Versions with a kept source.
        there: Vec<String>,
    },
    /// Another process builds from the kept source.
    #[error("the source of {version} is in use by a build; try again when it has ended")]
    SourceInUse {
        /// Version of the kept source.
        version: String,
    },
    /// The image is incomplete or changed.
    #[error("the image in {} is damaged: {what}; to replace it: {}", directory.display(),
            super::replacement(directory))]
    Damaged {
        /// Folder of the image.
        directory: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// No variable names the cache.
    #[error("there is no folder for kernels: expected TRIMWISE_KERNELS, XDG_CACHE_HOME or HOME to be set")]
    NoCache,
    /// The folder of the cache is not a directory.
    #[error("the folder for kernels, {}, is not a directory; TRIMWISE_KERNELS names another one", directory.display())]
    NoFolder {
        /// Path of that folder.
        directory: PathBuf,
    },
    /// Programs or files for the build are missing.
    #[error("a kernel cannot be built without {}; to install {}: {install}",
            missing.join(", "), if missing.len() == 1 { "it" } else { "them" })]
    Missing {
        /// Names of all that is missing.
        missing: Vec<String>,
        /// Command that installs all of it.
        install: String,
    },
    /// The disk is too full.
    #[error("building a kernel needs {needed_mib} MiB in {} and {available_mib} MiB are free; TRIMWISE_KERNELS names \
             another folder", directory.display())]
    NoRoom {
        /// Space that the build needs, in MiB.
        needed_mib: u64,
        /// Free space, in MiB.
        available_mib: u64,
        /// Folder of the cache.
        directory: PathBuf,
    },
    /// The given source is not of this kernel.
    #[error("--source {}: {what}", path.display())]
    Source {
        /// Path that the user gave.
        path: PathBuf,
        /// Description of the source, and of a valid one.
        what: String,
    },
    /// A program that the build runs has failed.
    #[error("kernel {version}: {doing} failed ({how}); the last lines of {}:\n{}", log.display(), indented(last_lines))]
    Failed {
        /// Name of the kernel.
        version: String,
        /// Name of the failed step.
        doing: &'static str,
        /// Exit status of the program, in words.
        how: String,
        /// Path of the log.
        log: PathBuf,
        /// Last lines of the log.
        last_lines: Vec<String>,
    },
    /// The kernel rejects options that we need.
    #[error("kernel {version} cannot be configured as needed: {} did not take effect; the log is {}",
            options.join(", "), log.display())]
    Options {
        /// Name of the kernel.
        version: String,
        /// Lines of our configuration that did not take effect.
        options: Vec<String>,
        /// Path of the log.
        log: PathBuf,
    },
    /// The user stopped the build.
    #[error("interrupted")]
    Interrupted,
    /// An operation on the host failed.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// Name of the operation.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
}

impl KernelError {
    /// Returns true if the request was wrong, false if something failed.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoVersion { .. }
                | Self::UnknownVersion { .. }
                | Self::NotBuilt { .. }
                | Self::Outdated { .. }
                | Self::UnknownVariant { .. }
                | Self::SetName { .. }
                | Self::Set { .. }
                | Self::Patch { .. }
                | Self::NoSource { .. }
                | Self::NoCache
                | Self::NoFolder { .. }
                | Self::Source { .. }
        )
    }

    /// Returns a function that converts an error of the operating system.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { doing, path, error }
    }
}

/// Lists the known versions: `5.10, 6.1, 6.12`.
fn known() -> String {
    CATALOGUE.map(|series| series.version).join(", ")
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
