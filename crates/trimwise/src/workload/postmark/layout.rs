//! Paths of a run's files.
//!
//! PostMark creates its files in its current directory unless `set location` names others, and there in subdirectories
//! `s0`, `s1`... if there are at least two. Here every path is relative to the root of the target: that of the modelled
//! file system, or the directory under test. A location is written as for PostMark, often absolute, and must be
//! converted first.

use std::fmt::Write as _;

use thiserror::Error;

use super::config::PostmarkConfig;
use super::script::FileRef;

/// A location that the target does not have.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("set location: '{path}' is not accepted; expected {expected}")]
pub struct LocationError {
    pub path: String,
    pub expected: String,
}

impl PostmarkConfig {
    /// Returns the settings with locations for the modelled file system: `/mnt/x` becomes the directory `mnt/x` below
    /// its root.
    ///
    /// # Errors
    /// A location with `..` in it.
    pub fn for_model(&self) -> Result<Self, LocationError> {
        self.with_locations(|path| Some(path.trim_start_matches('/')), "a path without '..'")
    }

    /// Returns the settings with locations for a real directory whose absolute path is `root`: relative locations lie
    /// in it, absolute ones must.
    ///
    /// # Errors
    /// A location with `..` in it, or one outside of `root`.
    pub fn for_directory(&self, root: &str) -> Result<Self, LocationError> {
        let root = root.trim_end_matches('/');
        self.with_locations(
            |path| match path.strip_prefix(root) {
                _ if !path.starts_with('/') => Some(path),
                Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(rest.trim_start_matches('/')),
                _ => None,
            },
            &format!("a path inside the directory under test, {root}, and without '..'"),
        )
    }

    fn with_locations(
        &self,
        relative: impl for<'p> Fn(&'p str) -> Option<&'p str>,
        expected: &str,
    ) -> Result<Self, LocationError> {
        let mut config = self.clone();
        for location in &mut config.locations {
            let path = relative(&location.path).and_then(normalized);
            location.path = path.ok_or_else(|| LocationError {
                path: location.path.clone(),
                expected: expected.to_owned(),
            })?;
        }
        Ok(config)
    }
}

/// Returns the path without `.` and empty components; `None` if it is absolute or has a `..`.
fn normalized(path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    let mut normal = String::with_capacity(path.len());
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => return None,
            name => {
                if !normal.is_empty() {
                    normal.push('/');
                }
                normal.push_str(name);
            }
        }
    }
    Some(normal)
}

#[derive(Clone, Debug)]
pub struct Layout {
    /// Prefix of a file's or subdirectory's name in each location: empty, or ends with `/`.
    prefixes: Vec<String>,
    subdirectories: u32,
}

impl Layout {
    /// Creates the layout of `config`, whose locations must be relative.
    ///
    /// # Errors
    /// A location that is absolute or has `..` in it: see [`PostmarkConfig::for_model`] and
    /// [`PostmarkConfig::for_directory`].
    pub fn new(config: &PostmarkConfig) -> Result<Self, LocationError> {
        let mut prefixes = Vec::with_capacity(config.locations.len().max(1));
        for location in &config.locations {
            let mut prefix = normalized(&location.path).ok_or_else(|| LocationError {
                path: location.path.clone(),
                expected: "a path relative to the root of the target, without '..'".to_owned(),
            })?;
            if !prefix.is_empty() {
                prefix.push('/');
            }
            prefixes.push(prefix);
        }
        if prefixes.is_empty() {
            prefixes.push(String::new());
        }
        let subdirectories = if config.subdirectories > 1 { config.subdirectories } else { 0 };
        Ok(Self { prefixes, subdirectories })
    }

    /// Returns the locations, each once and each after its parents, which belong to it: `a`, `a/b`.
    ///
    /// PostMark requires them to exist; a run creates missing ones before its first timer starts.
    pub fn location_directories(&self) -> Vec<&str> {
        let mut directories: Vec<&str> = Vec::new();
        for prefix in &self.prefixes {
            for (end, _) in prefix.match_indices('/') {
                if !directories.contains(&&prefix[..end]) {
                    directories.push(&prefix[..end]);
                }
            }
        }
        directories
    }

    /// Iterates over the locations without their subdirectories. The root of the target is the empty path.
    pub fn locations(&self) -> impl Iterator<Item = &str> {
        self.prefixes.iter().map(|prefix| prefix.trim_end_matches('/'))
    }

    /// Returns the number of `sK` in each location; 0 if files lie in the location itself.
    pub fn subdirectories(&self) -> u32 {
        self.subdirectories
    }

    /// Iterates over the subdirectories that the run creates, in PostMark's order.
    pub(crate) fn subdirectory_paths(&self) -> impl Iterator<Item = String> {
        let first_of = |i: usize| !self.prefixes[..i].contains(&self.prefixes[i]);
        (0..self.prefixes.len())
            .filter(move |&i| first_of(i))
            .flat_map(move |i| (0..self.subdirectories).map(move |k| format!("{}s{k}", self.prefixes[i])))
    }

    pub(crate) fn path_into(&self, file: FileRef, path: &mut String) {
        path.clear();
        path.push_str(self.prefixes.get(file.location as usize).map_or("", String::as_str));
        // Writing to a String cannot fail.
        let _ = if self.subdirectories > 0 {
            write!(path, "s{}/{}", file.subdirectory, file.number)
        } else {
            write!(path, "{}", file.number)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::postmark::config::Location;

    fn config(paths: &[&str], subdirectories: u32) -> PostmarkConfig {
        let locations = paths.iter().map(|&path| Location { path: path.to_owned(), weight: 1 }).collect();
        PostmarkConfig { locations, subdirectories, ..PostmarkConfig::default() }
    }

    fn path(config: &PostmarkConfig, location: u32, subdirectory: u32) -> String {
        let mut path = "old".to_owned();
        Layout::new(config).unwrap().path_into(FileRef { number: 7, location, subdirectory }, &mut path);
        path
    }

    #[test]
    fn paths_are_postmarks() {
        assert_eq!(path(&config(&[], 0), 0, 0), "7");
        assert_eq!(path(&config(&[], 1), 0, 0), "7");
        assert_eq!(path(&config(&[], 2), 0, 1), "s1/7");
        assert_eq!(path(&config(&["a", "./b//c/"], 0), 1, 0), "b/c/7");
        assert_eq!(path(&config(&["a", "b"], 3), 1, 2), "b/s2/7");
    }

    #[test]
    fn directories_come_once_and_after_their_parents() {
        let config = config(&["a/b", "c", "a", "c"], 2);
        let layout = Layout::new(&config).unwrap();
        assert_eq!(layout.location_directories(), ["a", "a/b", "c"]);
        let subdirectories: Vec<_> = layout.subdirectory_paths().collect();
        assert_eq!(subdirectories, ["a/b/s0", "a/b/s1", "c/s0", "c/s1", "a/s0", "a/s1"]);
    }

    #[test]
    fn no_location_leaves_the_target() {
        let of = |result: Result<PostmarkConfig, _>| result.map(|c| c.locations[0].path.clone());
        assert_eq!(of(config(&["/mnt/x"], 0).for_model()), Ok("mnt/x".to_owned()));
        assert_eq!(of(config(&["/mnt/x"], 0).for_directory("/mnt/x/")), Ok(String::new()));
        assert_eq!(of(config(&["/mnt/x/y"], 0).for_directory("/mnt/x")), Ok("y".to_owned()));
        assert_eq!(of(config(&["/y"], 0).for_directory("/")), Ok("y".to_owned()));
        assert_eq!(
            of(config(&["/mnt/xy"], 0).for_directory("/mnt/x")).unwrap_err().to_string(),
            "set location: '/mnt/xy' is not accepted; expected a path inside the directory under test, /mnt/x, \
             and without '..'"
        );
        assert!(config(&["a/../.."], 0).for_directory("/mnt/x").is_err());
        assert!(config(&["/mnt/x/../y"], 0).for_directory("/mnt/x").is_err());
        assert!(config(&[".."], 0).for_model().is_err());
        assert!(Layout::new(&config(&["/a"], 0)).is_err());
    }
}
