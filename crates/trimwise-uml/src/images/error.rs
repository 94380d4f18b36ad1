//! Errors about kernels, as messages for the user.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::catalogue::CATALOGUE;

/// Why there is no image.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The text is not a version.
    #[error("kernel version '{version}': expected numbers such as {}, 6.6 or 6.6.30", known())]
    NoVersion {
        /// The given text.
        version: String,
    },
    /// The source of this version is unknown.
    #[error(
        "kernel {version}: there is no source package for it here; expected {}, or --source DIR|TARBALL",
        known()
    )]
    UnknownVersion {
        /// The requested version.
        version: String,
    },
    /// There is no such image in the cache.
    #[error("kernel {name} is not built{} (looked in {}); to build it: {command}",
            if *otherwise { " for this trimwise, only for another" } else { "" }, directory.display())]
    NotBuilt {
        /// The requested kernel.
        name: String,
        /// The cache.
        directory: PathBuf,
        /// Whether there is an image built by a different trimwise.
        otherwise: bool,
        /// The command that builds it.
        command: String,
    },
    /// The patches have changed since the image was built.
    #[error("kernel {name} is outdated: the patches in {} have changed since it was built; to build it again: {command}",
            folder.display())]
    Outdated {
        /// The requested kernel.
        name: String,
        /// The folder of the patches.
        folder: PathBuf,
        /// The command that builds it.
        command: String,
    },
    /// There is no such variant.
    #[error("--variant {variant}: there is no such variant; expected {}", super::name::variants())]
    UnknownVariant {
        /// The given name.
        variant: String,
    },
    /// A patch set's name cannot be part of a kernel's.
    #[error("patch set '{set}': {what}")]
    SetName {
        /// The name.
        set: String,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// The folder is not a patch set.
    #[error("--with {}: {what}", folder.display())]
    Set {
        /// The given folder.
        folder: PathBuf,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// A patch does not fit the source. The source is as before.
    #[error("--with {}: {patch} does not apply to Linux {release}: {}", folder.display(), said.join("; "))]
    Patch {
        /// The patch set's folder.
        folder: PathBuf,
        /// The patch.
        patch: String,
        /// The source's release.
        release: String,
        /// The file and the hunks, as patch(1) says.
        said: Vec<String>,
    },
    /// There is no kept source of this version.
    #[error("no source of {version} is kept in {}{}", directory.display(), if there.is_empty() { String::new() } else {
            format!("; there are those of {}", there.join(", ")) })]
    NoSource {
        /// The requested version.
        version: String,
        /// The cache.
        directory: PathBuf,
        /// The versions whose source is kept.
        there: Vec<String>,
    },
    /// Another process builds from the kept source.
    #[error("the source of {version} is in use by a build; try again when it has ended")]
    SourceInUse {
        /// The version.
        version: String,
    },
    /// The image is incomplete or changed.
    #[error("the image in {} is damaged: {what}; to replace it: {}", directory.display(),
            super::replacement(directory))]
    Damaged {
        /// The image's folder.
        directory: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// No variable names the cache.
    #[error("there is no folder for kernels: expected TRIMWISE_KERNELS, XDG_CACHE_HOME or HOME to be set")]
    NoCache,
    /// What should be the cache is something else.
    #[error("the folder for kernels, {}, is not a directory; TRIMWISE_KERNELS names another one", directory.display())]
    NoFolder {
        /// The path.
        directory: PathBuf,
    },
    /// Programs or files for the build are missing.
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
    /// The given source is not of this kernel.
    #[error("--source {}: {what}", path.display())]
    Source {
        /// The given path.
        path: PathBuf,
        /// What it is, and what was expected.
        what: String,
    },
    /// A program that the build runs has failed.
    #[error("kernel {version}: {doing} failed ({how}); the last lines of {}:\n{}", log.display(), indented(last_lines))]
    Failed {
        /// The kernel.
        version: String,
        /// The failed step.
        doing: &'static str,
        /// How the program ended.
        how: String,
        /// The log.
        log: PathBuf,
        /// Its last lines.
        last_lines: Vec<String>,
    },
    /// The kernel rejects options that we need.
    #[error("kernel {version} cannot be configured as needed: {} did not take effect; the log is {}",
            options.join(", "), log.display())]
    Options {
        /// The kernel.
        version: String,
        /// The lines of our configuration that are not in the kernel's.
        options: Vec<String>,
        /// The log.
        log: PathBuf,
    },
    /// The user stopped the build.
    #[error("interrupted")]
    Interrupted,
    /// An operation on the host failed.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
}

impl KernelError {
    /// Whether the request was wrong; otherwise, something failed.
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

    /// Returns a function that turns a system error into this one.
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
