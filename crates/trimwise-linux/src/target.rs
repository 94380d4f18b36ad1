use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// A file on a mounted file system, or a whole block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `file:PATH`: a regular file, created if missing.
    File(PathBuf),
    /// `dev:PATH`: a disk or a partition.
    Device(PathBuf),
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{given}' is not a real target; expected file:PATH (a file) or dev:PATH (a block device)")]
pub struct TargetError {
    given: String,
}

impl Target {
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Device(path) => path,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Device(path) => write!(f, "dev:{}", path.display()),
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(given: &str) -> Result<Self, TargetError> {
        let after = |prefix| given.strip_prefix(prefix).filter(|path: &&str| !path.is_empty());
        match (after("file:"), after("dev:")) {
            (Some(path), _) => Ok(Self::File(path.into())),
            (_, Some(path)) => Ok(Self::Device(path.into())),
            _ => Err(TargetError { given: given.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_written_as_it_is_shown() {
        for text in ["file:/tmp/a b", "dev:/dev/nvme0n1", "file:x"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "file:", "dev:", "/dev/sda", "dir:/tmp"] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("'{text}' is not a real target; expected file:PATH")),
                "{error}"
            );
        }
    }
}
