//! What a call of fstrim covers: util-linux's fstrim.c, read from the command line in a unit, a script or a crontab.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::fstab;
use crate::host_root::HostRoot;
use crate::mount::{Mount, nearest};

/// The option of fstab(5) that exempts a file system from `fstrim --fstab` and `--listed-in`.
pub const NO_TRIM: &str = "X-fstrim.notrim";
const FSTAB: &str = "/etc/fstab";
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// What one call trims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The file systems in the first of these files that is not empty (`--listed-in`, `--fstab`, `--all`).
    Listed(Vec<PathBuf>),
    /// The file systems that contain these paths.
    Paths(Vec<PathBuf>),
    /// btrfs at these mount points; all btrfs if there are none (btrfsmaintenance).
    Btrfs(Vec<PathBuf>),
}

/// The mounts of a host, and what its fstab lists.
pub(crate) struct Listing<'a> {
    pub fstab: Vec<fstab::Entry>,
    mounts: &'a [Mount],
    /// What is seen at each mount point: a later mount covers earlier ones.
    seen: HashMap<&'a Path, &'a Mount>,
    /// Indices of the entries of fstab at which a file system is seen, by its numbers.
    listed: HashMap<(u32, u32), Vec<usize>>,
    /// True if fstrim finds the device of `/` on the kernel's command line, and so trims `/` even if fstab omits it
    /// (util-linux 2.34).
    knows_root: bool,
}

impl Call {
    /// What fstrim.service of util-linux does.
    pub fn of_service() -> Self {
        Self::Listed(vec![FSTAB.into(), MOUNTINFO.into()])
    }

    /// Finds the calls of fstrim in the lines of a script, a crontab or a unit's command.
    pub fn all_in(text: &str) -> Vec<Self> {
        let joined = text.replace("\\\n", " ");
        let lines = joined.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let commands = lines.flat_map(|line| line.split([';', '|', '&']));
        commands.filter_map(Self::in_command).collect()
    }

    fn in_command(command: &str) -> Option<Self> {
        let mut words = command.split_whitespace().map(|word| word.trim_matches(['\'', '"', '(', ')', '`']));
        let is_fstrim = |word: &str| {
            let program = word.trim_start_matches(['-', '@', '+', '!', ':', '$', '(']).rsplit('/').next();
            program.filter(|name| ["fstrim", "fstrim-all"].contains(name)).map(str::to_owned)
        };
        let program = words.find_map(is_fstrim)?;
        let all = || Some(Self::Listed(vec![MOUNTINFO.into()]));
        if program == "fstrim-all" {
            return all();
        }
        let mut paths = Vec::new();
        let mut words = words.take_while(|word| !word.starts_with(['>', '<', '#']));
        while let Some(word) = words.next() {
            let is_short = |letter| word.starts_with('-') && !word.starts_with("--") && word.contains(letter);
            match word {
                "--help" | "-h" | "--version" | "-V" | "--dry-run" | "-n" => return None,
                "--all" => return all(),
                "--fstab" => return Some(Self::Listed(vec![FSTAB.into()])),
                "--listed-in" | "-I" => return Some(Self::listed_in(words.next()?)),
                "--offset" | "-o" | "--length" | "-l" | "--minimum" | "-m" | "--types" | "-t" => {
                    words.next();
                }
                _ if word.starts_with("-I") => return Some(Self::listed_in(&word[2..])),
                _ if word.starts_with("--listed-in=") => {
                    return Some(Self::listed_in(&word["--listed-in=".len()..]));
                }
                _ if is_short('a') => return all(),
                _ if is_short('A') => return Some(Self::Listed(vec![FSTAB.into()])),
                _ if word.starts_with('/') => paths.push(PathBuf::from(word)),
                _ => {}
            }
        }
        // A variable of a script, such as "$mount", may be any of them.
        if paths.is_empty() { all() } else { Some(Self::Paths(paths)) }
    }

    /// Returns true if this call leaves out what fstab exempts.
    pub fn heeds_fstab(&self) -> bool {
        matches!(self, Self::Listed(files) if files.first().is_some_and(|file| file == Path::new(FSTAB)))
    }

    fn listed_in(files: &str) -> Self {
        Self::Listed(files.split(':').map(PathBuf::from).collect())
    }

    /// Returns the reason why this call leaves out the file system of these mounts; `None` if it trims it.
    pub fn why_not(&self, root: &HostRoot, listing: &Listing<'_>, same: &[&Mount]) -> Option<String> {
        match self {
            Self::Listed(files) => listing.why_not_listed(root, files, same),
            Self::Paths(paths) => {
                let is_in = |path: &PathBuf| {
                    nearest(listing.mounts, path).is_some_and(|at| is_one_of(&listing.mounts[at], same))
                };
                let shown =
                    || paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
                (!paths.iter().any(is_in)).then(|| format!("it trims only {}", shown()))
            }
            Self::Btrfs(_) if same.iter().all(|mount| mount.fs_type != "btrfs") => {
                Some("it trims btrfs only".to_owned())
            }
            Self::Btrfs(points) => {
                let is_named = points.is_empty() || points.iter().any(|point| listing.is_at(point, same));
                (!is_named).then(|| "BTRFS_TRIM_MOUNTPOINTS does not name it".to_owned())
            }
        }
    }
}

impl<'a> Listing<'a> {
    pub fn of(root: &HostRoot, mounts: &'a [Mount]) -> Self {
        // Without access to the command line, take it for an ordinary one.
        let knows_root = root.text("/proc/cmdline").is_none_or(|line| {
            let value = line.split_whitespace().rev().find_map(|word| word.strip_prefix("root="));
            value.is_some_and(is_device)
        });
        let fstab = fstab::entries(root, mounts, |_| true);
        let seen: HashMap<&Path, &Mount> =
            mounts.iter().map(|mount| (mount.mount_point.as_path(), mount)).collect();
        let mut listed: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, entry) in fstab.iter().enumerate() {
            if let Some(mount) = seen.get(entry.point.as_path()) {
                listed.entry(mount.numbers).or_default().push(index);
            }
        }
        Self { fstab, mounts, seen, listed, knows_root }
    }

    fn is_at(&self, point: &Path, same: &[&Mount]) -> bool {
        self.seen.get(point).is_some_and(|there| is_one_of(there, same))
    }

    /// Returns the entries of fstab at the mount points of a file system.
    pub fn entries_of(&self, same: &[&Mount]) -> Vec<&fstab::Entry> {
        let listed = same.first().and_then(|mount| self.listed.get(&mount.numbers));
        listed.into_iter().flatten().map(|&index| &self.fstab[index]).collect()
    }

    fn why_not_listed(&self, root: &HostRoot, files: &[PathBuf], same: &[&Mount]) -> Option<String> {
        for file in files {
            if file == Path::new(FSTAB) {
                if !self.fstab.is_empty() {
                    return self.why_not_in_fstab(same);
                }
            } else if file.ends_with("mountinfo") || file.ends_with("mounts") || file.ends_with("mtab") {
                let is_usable = |mount: &&Mount| {
                    let is_writable = !mount.options.iter().any(|option| option == "ro");
                    // Its stat(2) says so, also of /etc/hosts in a container.
                    let is_file =
                        || root.path(&mount.mount_point).metadata().is_ok_and(|found| !found.is_dir());
                    is_writable && self.is_at(&mount.mount_point, same) && !is_file()
                };
                return (!same.iter().any(is_usable))
                    .then(|| "each of its mounts is read-only, a file, or covered by another".to_owned());
            } else if let Some(text) = root.whole_text(file).filter(|text| !text.trim().is_empty()) {
                let is_listed = fstab::parse(&text).iter().any(|entry| self.is_at(&entry.point, same));
                return (!is_listed)
                    .then(|| format!("it follows {}, which does not list this file system", file.display()));
            }
        }
        Some("the files that it follows are empty".to_owned())
    }

    fn why_not_in_fstab(&self, same: &[&Mount]) -> Option<String> {
        let entries = self.entries_of(same);
        let is_root = self.knows_root && self.is_at(Path::new("/"), same);
        match () {
            () if entries.iter().any(|entry| !entry.has(NO_TRIM) && !entry.has("ro")) => None,
            () if entries.iter().any(|entry| entry.has(NO_TRIM)) && fstab::is_spared(&entries) => {
                Some(format!("{NO_TRIM} in /etc/fstab"))
            }
            () if is_root && !self.fstab.iter().any(|entry| entry.point == Path::new("/")) => None,
            () => Some("it follows /etc/fstab, which does not list this file system".to_owned()),
        }
    }
}

fn is_one_of(mount: &Mount, same: &[&Mount]) -> bool {
    same.first().is_some_and(|one| one.is_same_file_system(mount))
}

/// Returns true if libmount's `mnt_guess_system_root` finds a device by this value of `root=`.
fn is_device(value: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = value.split_once(':').is_some_and(|(major, minor)| is_number(major) && is_number(minor));
    let has_tag = value
        .split_once('=')
        .is_some_and(|(tag, _)| ["UUID", "LABEL", "PARTUUID", "PARTLABEL", "ID"].contains(&tag));
    let is_hex = value.len() >= 3 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    value.starts_with("/dev/") && value != "/dev/nfs" || has_tag || numbers || is_hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_command_lines() {
        let listed = |files: &[&str]| vec![Call::Listed(files.iter().map(PathBuf::from).collect())];
        let paths = |paths: &[&str]| vec![Call::Paths(paths.iter().map(PathBuf::from).collect())];
        for (text, expected) in [
            ("-/usr/sbin/fstrim --listed-in /etc/fstab:/proc/self/mountinfo -v", vec![Call::of_service()]),
            ("/sbin/fstrim -I/x:/y", listed(&["/x", "/y"])),
            ("fstrim -av", listed(&[MOUNTINFO])),
            ("fstrim -A --quiet-unsupported", listed(&[FSTAB])),
            (
                "/bin/sh -c 'fstrim -v / ; fstrim /home >/dev/null'",
                [paths(&["/"]), paths(&["/home"])].concat(),
            ),
            ("#fstrim -a\nexec fstrim-all", listed(&[MOUNTINFO])),
            ("nice fstrim -m 1M \\\n  /srv", paths(&["/srv"])),
            ("for m in / /home; do fstrim \"$m\"; done", listed(&[MOUNTINFO])),
            ("fstrim --dry-run -a", vec![]),
            ("echo fstrimmed", vec![]),
        ] {
            assert_eq!(Call::all_in(text), expected, "{text}");
        }
    }

    #[test]
    fn root_is_known_by_what_names_a_device() {
        for value in ["/dev/sda1", "UUID=1-2", "PARTUUID=a", "8:1", "0801"] {
            assert!(is_device(value), "{value}");
        }
        for value in ["gpt-auto", "/dev/nfs", "tmpfs", "ZFS=rpool/ROOT", ""] {
            assert!(!is_device(value), "{value}");
        }
    }
}
