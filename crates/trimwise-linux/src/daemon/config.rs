//! The configuration: `/etc/trimwise.toml`, and drop-ins next to it in `trimwise.toml.d`, in order of their names.
//!
//! All errors are reported at once, each with its file, line and key, and with the values that are accepted.

mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use trimwise::live::{Lent, MIN_EXTENT, Settings};
use trimwise::policy::PolicySpec;
use trimwise::units::{Bytes, SimDuration};

use crate::files::{read_at_most, with_ending};
use crate::host_root::HostRoot;

pub const DEFAULT_FILE: &str = "/etc/trimwise.toml";
const FILE_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    All,
    /// File systems with a table of their own.
    Listed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFor {
    /// Root and the group only.
    Group,
    All,
}

/// What trims of a file system are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Space where a pool of this host lends it and gets it back, otherwise flash.
    Auto,
    Flash,
    Space,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    pub policy: PolicySpec,
    pub purpose: Purpose,
    /// What holds where the purpose is space.
    pub lent: Lent,
    /// Settings of the policy's host, as far as they do not depend on the file system.
    pub settings: Settings,
    pub min_extent: Bytes,
}

impl Treatment {
    /// Returns the settings for a file system. `is_of_pool` says that a pool of this host lends its space, and gets it
    /// back by discards.
    pub fn settings(&self, is_of_pool: bool) -> Settings {
        let is_for_space = match self.purpose {
            Purpose::Auto => is_of_pool,
            Purpose::Flash => false,
            Purpose::Space => true,
        };
        Settings { lent: is_for_space.then_some(self.lent), ..self.settings }
    }

    /// Returns true if a file system that was managed with `other` must start over with these settings.
    pub fn is_another(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.policy, one.min_extent, one.settings.may_toggle);
        of(self) != of(other)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub manage: Manage,
    /// Settings for file systems without a table of their own.
    pub default: Treatment,
    pub mounts: BTreeMap<PathBuf, Treatment>,
    pub group: Option<String>,
    pub status: StatusFor,
    pub history_max: Bytes,
    /// True to watch frees as they happen, where tracefs is available.
    pub tracepoints: bool,
    /// Loopback address on which metrics are served over HTTP.
    pub metrics_listen: Option<SocketAddr>,
    /// The unix socket on which metrics are served over HTTP, to root and the group.
    pub metrics_socket: Option<PathBuf>,
    /// File to which metrics are written for node_exporter's textfile collector.
    pub metrics_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let treatment = Treatment {
            policy: PolicySpec::JUDICIOUS,
            purpose: Purpose::Auto,
            lent: Lent::default(),
            settings: Settings::default(),
            min_extent: MIN_EXTENT,
        };
        Self {
            manage: Manage::All,
            default: treatment,
            mounts: BTreeMap::new(),
            group: None,
            status: StatusFor::Group,
            history_max: Bytes::mib(16),
            tracepoints: true,
            metrics_listen: None,
            metrics_socket: None,
            metrics_file: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub file: PathBuf,
    /// Line number, from 1; 0 if the file cannot be read.
    pub line: usize,
    pub key: String,
    /// Says what is wrong and which values are accepted.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

impl Config {
    /// Reads a configuration and its drop-ins. The default file may be missing.
    ///
    /// A missing file is an error unless it is the default one.
    pub fn load(file: &Path) -> Result<Self, ConfigErrors> {
        Self::parse(&Self::texts(file)?)
    }

    /// Returns the texts of a configuration and its drop-ins, in reading order.
    ///
    /// # Errors
    /// If a file cannot be read; the errors in the others are included.
    pub fn texts(file: &Path) -> Result<Vec<(PathBuf, String)>, ConfigErrors> {
        let mut texts = Vec::new();
        let mut errors = Vec::new();
        let mut refuse = |file: PathBuf, message: String| {
            errors.push(ConfigError { file, line: 0, key: String::new(), message });
        };
        let files = files(file).unwrap_or_else(|error| {
            refuse(with_ending(file, ".d"), error.to_string());
            vec![file.to_owned()]
        });
        for one in files {
            match text_of(&one) {
                Ok(Some(text)) => texts.push((one, text)),
                Ok(None) if one == file && file == Path::new(DEFAULT_FILE) => {}
                Ok(None) => refuse(one, "No such file or directory".to_owned()),
                Err(message) => refuse(one, message),
            }
        }
        if errors.is_empty() {
            return Ok(texts);
        }
        errors.extend(Self::parse(&texts).err().into_iter().flat_map(|ConfigErrors(more)| more));
        Err(ConfigErrors(errors))
    }

    /// Parses the texts of the files; later ones override earlier ones.
    pub fn parse(texts: &[(PathBuf, String)]) -> Result<Self, ConfigErrors> {
        read::parse(texts)
    }

    /// Returns the settings for a file system; `None` if it is not managed.
    pub fn treatment(&self, mount_point: &Path) -> Option<Treatment> {
        let own = self.mounts.get(mount_point).copied();
        own.or_else(|| (self.manage == Manage::All).then_some(self.default))
    }
}

fn files(file: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(with_ending(file, ".d")) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut drop_ins: Vec<_> =
        entries.into_iter().filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    drop_ins.sort();
    drop_ins.insert(0, file.to_owned());
    Ok(drop_ins)
}

/// Reads a file; `None` if it does not exist. Anything but a regular file is refused: a pipe could block the daemon
/// forever.
fn text_of(file: &Path) -> Result<Option<String>, String> {
    match fs::metadata(file) {
        // The usual way to mask a drop-in.
        Ok(_) if file.canonicalize().is_ok_and(|to| to == Path::new("/dev/null")) => Ok(Some(String::new())),
        Ok(found) if !found.is_file() => {
            Err("is not a regular file; expected a configuration file, or none".to_owned())
        }
        _ => read_at_most(file, FILE_MAX),
    }
}

/// Looks up the number of a group in the host's /etc/group.
pub fn group_number(host: &HostRoot, name: &str) -> Option<u32> {
    let text = host.text("/etc/group")?;
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?)
}

fn seconds(n: u64) -> SimDuration {
    SimDuration::from_secs(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigErrors> {
        Config::parse(&[(PathBuf::from("/etc/trimwise.toml"), text.to_owned())])
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(parse("").unwrap(), Config::default());
        let missing = Config::load(Path::new("/no/such/trimwise.toml")).unwrap_err().to_string();
        assert!(
            missing.starts_with("/no/such/trimwise.toml") && missing.contains("No such file"),
            "{missing}"
        );
    }

    #[test]
    fn the_shipped_file_states_the_defaults() {
        let text = include_str!("../../../../packaging/trimwise.toml");
        assert_eq!(parse(text).unwrap(), Config::default());
        for key in read::KEYS {
            assert!(text.contains(&format!("{key} = ")), "{key} is not in packaging/trimwise.toml");
        }
    }

    #[test]
    fn a_mount_inherits_what_it_does_not_set() {
        let text = "policy = \"off\"\nslice-ms = 50\n[mount.\"/home\"]\npolicy = \"set:40:90\"\nmin-extent = \
                    \"1MiB\"\n";
        let config = parse(text).unwrap();
        let home = config.treatment(Path::new("/home")).unwrap();
        assert_eq!(home.policy.to_string(), "set:40:90");
        assert_eq!(
            (home.min_extent, home.settings.slice_target),
            (Bytes::mib(1), SimDuration::from_millis(50))
        );
        let other = config.treatment(Path::new("/srv")).unwrap();
        assert_eq!((other.policy, other.min_extent), (PolicySpec::OFF, Bytes::kib(64)));
        let listed = parse("manage = \"listed\"\n[mount.\"/home\"]\n").unwrap();
        assert!(
            listed.treatment(Path::new("/srv")).is_none() && listed.treatment(Path::new("/home")).is_some()
        );
    }

    #[test]
    fn the_purpose_decides_whether_bounds_on_lent_space_hold() {
        let text = "held-max = 5\nheld-for-max-s = 7200\n[mount.\"/a\"]\npurpose = \"space\"\n[mount.\"/b\"]\n\
                    purpose = \"flash\"\n[mount.\"/c\"]\nheld-max = 1\n";
        let config = parse(text).unwrap();
        let lent = |point: &str| {
            let treatment = config.treatment(Path::new(point)).unwrap();
            [false, true].map(|is_of_pool| treatment.settings(is_of_pool).lent)
        };
        let of = |held_max_permille| Lent { held_max_permille, held_for_max: SimDuration::from_secs(7200) };
        assert_eq!(lent("/other"), [None, Some(of(50))]);
        assert_eq!(lent("/a"), [Some(of(50)), Some(of(50))]);
        assert_eq!(lent("/b"), [None, None]);
        assert_eq!(lent("/c"), [None, Some(of(10))]);
        assert!(!config.default.is_another(&config.mounts[Path::new("/a")]), "it does not start over");
    }

    #[test]
    fn settings_for_space_without_that_purpose_are_refused() {
        let only =
            "has no effect with purpose \"flash\"; expected purpose \"space\" or \"auto\", or none of it";
        for (text, expected) in [
            (
                "purpose = \"both\"\nheld-max = 0\nheld-for-max-s = 5\n",
                vec![
                    (
                        1,
                        "purpose: 'both' is not accepted; expected \"auto\" or \"flash\" or \"space\""
                            .to_owned(),
                    ),
                    (2, "held-max: 0 is not accepted; expected a whole number from 1 to 100".to_owned()),
                    (
                        3,
                        "held-for-max-s: 5 is not accepted; expected a whole number from 600 to 31536000"
                            .to_owned(),
                    ),
                ],
            ),
            (
                "purpose = \"flash\"\nheld-max = 5\n[mount.\"/a\"]\nheld-for-max-s = 7200\n",
                vec![(2, format!("held-max: {only}")), (4, format!("mount.\"/a\".held-for-max-s: {only}"))],
            ),
            ("held-max = 5\n[mount.\"/a\"]\npurpose = \"flash\"\n", vec![]),
            // A mount inherits the bound.
            ("purpose = \"flash\"\nheld-max = 5\n[mount.\"/a\"]\npurpose = \"space\"\n", vec![]),
            (
                "policy = \"off\"\npurpose = \"space\"\n",
                vec![(
                    2,
                    "purpose: \"space\" has no effect with policy 'off'; expected another policy, or purpose \
                     \"auto\""
                        .to_owned(),
                )],
            ),
            ("purpose = \"space\"\n[mount.\"/a\"]\npolicy = \"off\"\n", vec![]),
        ] {
            let said = parse(text).err().map_or(String::new(), |errors| errors.to_string());
            let expected = expected.iter().map(|(line, words)| format!("/etc/trimwise.toml:{line}: {words}"));
            assert_eq!(said.lines().collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn drop_ins_override_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trimwise.toml");
        fs::create_dir(folder.path().join("trimwise.toml.d")).unwrap();
        fs::write(&file, "slice-ms = 10\npolicy = \"off\"\n").unwrap();
        fs::write(folder.path().join("trimwise.toml.d/20.toml"), "slice-ms = 20\n").unwrap();
        fs::write(folder.path().join("trimwise.toml.d/10.toml"), "slice-ms = 15\n").unwrap();
        fs::write(folder.path().join("trimwise.toml.d/30.toml~"), "nonsense").unwrap();
        let config = Config::load(&file).unwrap();
        assert_eq!(config.default.settings.slice_target, SimDuration::from_millis(20));
        assert_eq!(config.default.policy, PolicySpec::OFF);
        std::os::unix::fs::symlink("/dev/null", folder.path().join("trimwise.toml.d/35.toml")).unwrap();
        assert_eq!(Config::load(&file).unwrap(), config);
        // Unreadable files are errors, and a pipe does not block.
        let drop_in = |name: &str| folder.path().join("trimwise.toml.d").join(name);
        std::os::unix::fs::symlink("/no/such/file", drop_in("40.toml")).unwrap();
        let pipe = std::ffi::CString::new(drop_in("50.toml").to_str().unwrap()).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let said = Config::load(&file).unwrap_err().to_string();
        assert!(
            said.contains("40.toml: No such file") && said.contains("50.toml: is not a regular file"),
            "{said}"
        );
        fs::remove_dir_all(folder.path().join("trimwise.toml.d")).unwrap();
        fs::write(folder.path().join("trimwise.toml.d"), "").unwrap();
        let said = Config::load(&file).unwrap_err().to_string();
        assert!(said.contains("trimwise.toml.d: Not a directory"), "{said}");
    }

    #[test]
    fn all_errors_are_reported_at_once_with_file_line_and_key() {
        let text = "policy = \"never\"\nslice-ms = 0\ncolour = 3\nstatus = \"some\"\n\
            metrics-listen = \"0.0.0.0:80\"\nmin-extent = 12\n[mount.\"home\"]\n[mount.\"/srv\"]\npolicy = \"ideal\"\n\
            manage = \"all\"\n[mount.\"srv/\"]\npressure-max = 0\n";
        let said = parse(text).unwrap_err().to_string();
        let lines: Vec<&str> = said.lines().collect();
        let expected = [
            (1, "policy: policy 'never'"),
            (2, "slice-ms: 0 is not accepted; expected a whole number from 1 to 10000"),
            (3, "colour: unknown key; expected one of"),
            (4, "status: 'some' is not accepted; expected \"group\" or \"all\""),
            (5, "metrics-listen: '0.0.0.0:80' is not accepted; expected a loopback address"),
            (6, "min-extent: 12 is not accepted; expected a size as text"),
            (7, "mount.\"home\": expected an absolute path"),
            (
                9,
                "mount.\"/srv\".policy: policy 'ideal', column 1: 'ideal' cannot run on a live host; expected one of off",
            ),
            (10, "mount.\"/srv\".manage: unknown key of a mount; expected one of policy"),
            (11, "mount.\"srv/\": expected an absolute path"),
            (12, "mount.\"srv/\".pressure-max: 0 is not accepted"),
        ];
        assert_eq!(lines.len(), expected.len(), "{said}");
        for ((line, words), found) in expected.iter().zip(lines) {
            let start = format!("/etc/trimwise.toml:{line}: {words}");
            assert!(found.starts_with(&start), "{start} is not where it should be in:\n{said}");
        }
        for (text, meant) in [
            ("slice-sm = 5\n", "slice-sm: unknown key; did you mean `slice-ms`? Expected one of policy, "),
            ("[mounts.\"/home\"]\n", "mounts: unknown key; did you mean `mount`?"),
            ("[mount.\"/\"]\npolcy = \"off\"\n", "polcy: unknown key of a mount; did you mean `policy`?"),
            (
                "policy = \"comit\"\n",
                "unknown term 'comit'; did you mean `commit`? Expected one of off, commit, lazy, ",
            ),
        ] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.contains(meant), "{said}");
        }
        let odd = parse("[mount.\"a\\nb\\u2028c\\u202e\"]\n").unwrap_err().to_string();
        assert!(odd.lines().count() == 1 && !odd.contains(['\u{2028}', '\u{202e}']), "{odd}");
        for huge in ["2GiB", "16EiB", "99999999999999999999TiB"] {
            let said = parse(&format!("min-extent = \"{huge}\"\n")).unwrap_err().to_string();
            assert!(said.contains("expected a size as text from 0 B to 1 GiB"), "{said}");
        }
        let syntax = parse("policy = \n").unwrap_err().to_string();
        assert!(syntax.starts_with("/etc/trimwise.toml:1: ") && syntax.lines().count() == 1, "{syntax}");
    }
}
