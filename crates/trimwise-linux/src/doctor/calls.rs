//! Works out which file systems a call of fstrim covers, as util-linux's fstrim.c does, from the command line in a
//! unit, a script or a crontab.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::fstab;
use crate::host_root::HostRoot;
use crate::mount::{Mount, nearest};
use crate::today::WhyNot;

/// The option of fstab(5) that exempts a file system from `fstrim --fstab` and `--listed-in`.
pub const NO_TRIM: &str = "X-fstrim.notrim";
const FSTAB: &str = "/etc/fstab";
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One call of fstrim, by what it trims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The file systems listed in the first of these files that is not empty (`--listed-in`, `--fstab`, `--all`),
    /// restricted to these types (`--types`, with the syntax of mount -t).
    Listed(Vec<PathBuf>, Option<String>),
    /// The file systems that contain these paths.
    Paths(Vec<PathBuf>),
    /// btrfs at these mount points, or every btrfs if there are none (btrfsmaintenance).
    Btrfs(Vec<PathBuf>),
}

/// The mounts of a host, and what its fstab lists.
pub(crate) struct Listing<'a> {
    pub fstab: Vec<fstab::Entry>,
    mounts: &'a [Mount],
    /// The visible mount at each mount point: a later mount covers earlier ones.
    seen: HashMap<&'a Path, &'a Mount>,
    /// Indices of the fstab entries at whose mount points a file system is visible, by its device numbers.
    listed: HashMap<(u32, u32), Vec<usize>>,
    /// True if fstrim finds the device of `/` on the kernel's command line, and so trims `/` even if fstab omits it
    /// (util-linux 2.34).
    knows_root: bool,
}

impl Call {
    /// The call in util-linux's fstrim.service.
    pub fn of_service() -> Self {
        Self::Listed(vec![FSTAB.into(), MOUNTINFO.into()], None)
    }

    /// Finds the calls of fstrim in the lines of a script, a crontab or a unit's command. A script that supports
    /// several init systems checks for systemd first; calls that are not reached under this init system are left out.
    pub fn all_in(text: &str, is_systemd: bool) -> Vec<Self> {
        let joined = text.replace("\\\n", " ");
        let lines = joined.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let steps: Vec<&str> = lines.flat_map(|line| line.split(';')).map(str::trim).collect();
        let calls = |steps: &[&str]| -> Vec<Self> {
            steps.iter().flat_map(|step| step.split(['|', '&'])).filter_map(Self::in_command).collect()
        };
        let Some(guard) = steps.iter().position(|step| step.contains("/run/systemd/system")) else {
            return calls(&steps);
        };
        let (before, after) = steps.split_at(guard);
        // The guard decides on the rest of its step, on everything up to `fi`, or on the commands in braces.
        let last = match after[0] {
            step if step.starts_with("if ") => "fi",
            step if step.contains('{') => "}",
            _ => after[0],
        };
        let end = after.iter().position(|step| *step == last).unwrap_or(0);
        let (block, after) = after.split_at(end + 1);
        let holds = (is_systemd != block[0].contains('!')) != block[0].contains("||");
        let otherwise =
            block.iter().position(|step| step.split(' ').next() == Some("else")).unwrap_or(block.len());
        let run = if holds { &block[..otherwise] } else { &block[otherwise..] };
        let ends = run.iter().flat_map(|step| step.split(['|', '&', ' '])).any(|word| word == "exit");
        let after = if ends { Vec::new() } else { calls(after) };
        [calls(before), calls(run), after].concat()
    }

    fn in_command(command: &str) -> Option<Self> {
        let mut words = command.split_whitespace().map(|word| word.trim_matches(['\'', '"', '(', ')', '`']));
        let is_fstrim = |word: &str| {
            let program = word.trim_start_matches(['-', '@', '+', '!', ':', '$', '(']).rsplit('/').next();
            program.filter(|name| ["fstrim", "fstrim-all"].contains(name)).map(str::to_owned)
        };
        let program = words.find_map(is_fstrim)?;
        let mut listed = (program == "fstrim-all").then(|| vec![MOUNTINFO.into()]);
        let mut types = None;
        let mut paths = Vec::new();
        let mut words = words.take_while(|word| !word.starts_with(['>', '<', '#']));
        while let Some(word) = words.next() {
            let is_short = |letter| word.starts_with('-') && !word.starts_with("--") && word.contains(letter);
            match word {
                "--help" | "-h" | "--version" | "-V" | "--dry-run" | "-n" => return None,
                "--all" => listed = Some(vec![MOUNTINFO.into()]),
                "--fstab" => listed = Some(vec![FSTAB.into()]),
                "--listed-in" | "-I" => listed = Some(files(words.next()?)),
                "--types" | "-t" => types = words.next().map(str::to_owned),
                "--offset" | "-o" | "--length" | "-l" | "--minimum" | "-m" => {
                    words.next();
                }
                _ if word.starts_with("-I") => listed = Some(files(&word[2..])),
                _ if word.starts_with("-t") => types = Some(word[2..].to_owned()),
                _ if word.starts_with("--") => match word.split_once('=') {
                    Some(("--listed-in", value)) => listed = Some(files(value)),
                    Some(("--types", value)) => types = Some(value.to_owned()),
                    _ => {}
                },
                _ if is_short('a') => listed = Some(vec![MOUNTINFO.into()]),
                _ if is_short('A') => listed = Some(vec![FSTAB.into()]),
                _ if word.starts_with('/') => paths.push(PathBuf::from(word)),
                _ => {}
            }
        }
        Some(match listed {
            // A script's variable, such as "$mount", may stand for any mount.
            None if paths.is_empty() => Self::Listed(vec![MOUNTINFO.into()], None),
            None => Self::Paths(paths),
            Some(files) => Self::Listed(files, types),
        })
    }

    /// Returns true if this call skips what fstab exempts.
    pub fn heeds_fstab(&self) -> bool {
        matches!(self, Self::Listed(files, _) if files.first().is_some_and(|file| file == Path::new(FSTAB)))
    }

    /// Says why this call leaves out the file system with these mounts; `None` if it trims it.
    pub fn why_not(&self, root: &HostRoot, listing: &Listing<'_>, same: &[&Mount]) -> Option<WhyNot> {
        match self {
            Self::Listed(_, Some(types)) if !same.iter().any(|mount| has_type(types, &mount.fs_type)) => {
                Some(WhyNot::Other(format!("it trims only the types `{types}`")))
            }
            Self::Listed(files, _) => listing.why_not_listed(root, files, same),
            Self::Paths(paths) => {
                let is_in = |path: &PathBuf| {
                    nearest(listing.mounts, path).is_some_and(|at| is_one_of(&listing.mounts[at], same))
                };
                let shown =
                    || paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
                (!paths.iter().any(is_in)).then(|| WhyNot::Other(format!("it trims only {}", shown())))
            }
            Self::Btrfs(_) if same.iter().all(|mount| mount.fs_type != "btrfs") => {
                Some(WhyNot::Other("it trims btrfs only".to_owned()))
            }
            Self::Btrfs(points) => {
                let is_named = points.is_empty() || points.iter().any(|point| listing.is_at(point, same));
                (!is_named).then(|| WhyNot::Other("BTRFS_TRIM_MOUNTPOINTS does not name it".to_owned()))
            }
        }
    }
}

impl<'a> Listing<'a> {
    pub fn of(root: &HostRoot, mounts: &'a [Mount]) -> Self {
        // If the command line cannot be read, assume an ordinary one.
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

    /// Returns the fstab entries at the mount points of a file system.
    pub fn entries_of(&self, same: &[&Mount]) -> Vec<&fstab::Entry> {
        let listed = same.first().and_then(|mount| self.listed.get(&mount.numbers));
        listed.into_iter().flatten().map(|&index| &self.fstab[index]).collect()
    }

    fn why_not_listed(&self, root: &HostRoot, files: &[PathBuf], same: &[&Mount]) -> Option<WhyNot> {
        for file in files {
            if file == Path::new(FSTAB) {
                if !self.fstab.is_empty() {
                    return self.why_not_in_fstab(same);
                }
            } else if file.ends_with("mountinfo") || file.ends_with("mounts") || file.ends_with("mtab") {
                let is_usable = |mount: &&Mount| {
                    let is_writable = !mount.options.iter().any(|option| option == "ro");
                    // A file may be a mount point, such as /etc/hosts in a container.
                    let is_file =
                        || root.path(&mount.mount_point).metadata().is_ok_and(|found| !found.is_dir());
                    is_writable && self.is_at(&mount.mount_point, same) && !is_file()
                };
                let why = "each of its mounts is read-only, a file, or covered by another";
                return (!same.iter().any(is_usable)).then(|| WhyNot::Other(why.to_owned()));
            } else if let Some(text) = root.whole_text(file).filter(|text| !text.trim().is_empty()) {
                let is_listed = fstab::parse(&text).iter().any(|entry| self.is_at(&entry.point, same));
                let why = || format!("it follows {}, which does not list this file system", file.display());
                return (!is_listed).then(|| WhyNot::Other(why()));
            }
        }
        Some(WhyNot::Other("the files that it follows are empty".to_owned()))
    }

    fn why_not_in_fstab(&self, same: &[&Mount]) -> Option<WhyNot> {
        let entries = self.entries_of(same);
        let is_root = self.knows_root && self.is_at(Path::new("/"), same);
        match () {
            () if entries.iter().any(|entry| !entry.has(NO_TRIM) && !entry.has("ro")) => None,
            () if entries.iter().any(|entry| entry.has(NO_TRIM)) && fstab::is_spared(&entries) => {
                Some(WhyNot::Other(format!("{NO_TRIM} in /etc/fstab")))
            }
            () if !entries.is_empty() => Some(WhyNot::ReadOnlyInFstab),
            () if is_root && !self.fstab.iter().any(|entry| entry.point == Path::new("/")) => None,
            () => Some(WhyNot::NotInFstab),
        }
    }
}

fn files(list: &str) -> Vec<PathBuf> {
    list.split(':').map(PathBuf::from).collect()
}

/// Returns true if this list of types, with the syntax of mount -t, includes a type (libmount's `mnt_match_fstype`).
fn has_type(types: &str, fs_type: &str) -> bool {
    let (is_negated, types) = types.strip_prefix("no").map_or((false, types), |types| (true, types));
    let mut found = types.split(',').filter_map(|one| match one.strip_prefix("no") {
        Some(one) if one == fs_type => Some(false),
        _ => (one == fs_type).then_some(!is_negated),
    });
    found.next().unwrap_or(is_negated)
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
        let of_types = |files: &[&str], types: Option<&str>| {
            vec![Call::Listed(files.iter().map(PathBuf::from).collect(), types.map(str::to_owned))]
        };
        let listed = |files: &[&str]| of_types(files, None);
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
            ("fstrim -a -t xfs,btrfs", of_types(&[MOUNTINFO], Some("xfs,btrfs"))),
            ("fstrim --types=noext4 --fstab", of_types(&[FSTAB], Some("noext4"))),
            ("fstrim -txfs -a", of_types(&[MOUNTINFO], Some("xfs"))),
            ("fstrim --listed-in=/x:/y", listed(&["/x", "/y"])),
            ("fstrim -I /x", listed(&["/x"])),
            // The words after these options are their values, not mount points.
            ("fstrim --minimum /a --offset /b --length /c /srv", paths(&["/srv"])),
            ("fstrim -o /a -l /b /srv /home", paths(&["/srv", "/home"])),
            // In long options `a` and `A` mean nothing.
            ("fstrim --quiet-Any /srv", paths(&["/srv"])),
            ("fstrim -n /srv", vec![]),
            ("fstrim -V", vec![]),
        ] {
            assert_eq!(Call::all_in(text, true), expected, "{text}");
        }
        for (types, fs_type, expected) in [
            ("xfs", "ext4", false),
            ("xfs,ext4", "ext4", true),
            ("noxfs,btrfs", "xfs", false),
            ("noxfs,btrfs", "btrfs", false),
            ("noxfs", "ext4", true),
            ("ext4,noxfs", "xfs", false),
            // The first `no` negates the list, another one its own type.
            ("noxfs,noext4,btrfs", "ext4", false),
            ("noxfs,noext4,btrfs", "vfat", true),
            ("ext4,noxfs,xfs", "xfs", false),
            ("ext4,noxfs", "btrfs", false),
        ] {
            assert_eq!(has_type(types, fs_type), expected, "{types} {fs_type}");
        }
    }

    #[test]
    fn a_call_heeds_fstab_if_it_reads_it_first() {
        for (command, expected) in [
            ("fstrim --fstab", true),
            ("fstrim --listed-in /etc/fstab:/proc/self/mountinfo", true),
            ("fstrim --listed-in /proc/self/mountinfo:/etc/fstab", false),
            ("fstrim --all", false),
            ("fstrim /", false),
        ] {
            let calls = Call::all_in(command, true);
            assert_eq!(calls.iter().map(Call::heeds_fstab).collect::<Vec<_>>(), [expected], "{command}");
        }
    }

    #[test]
    fn a_script_may_ask_for_systemd_first() {
        // Whether fstrim runs under systemd, and under another init.
        for (script, expected) in [
            ("[ -d /run/systemd/system ] && exit 0\nfstrim -a", [false, true]),
            ("test -d /run/systemd/system || exit 0\nfstrim -a", [true, false]),
            ("[ ! -e /run/systemd/system ] || exit\nfstrim -a", [false, true]),
            ("if [ -d /run/systemd/system ]; then\n  exit 0\nfi\nfstrim -a", [false, true]),
            ("if [ -d /run/systemd/system ]; then exit 0; fi\nfstrim -a", [false, true]),
            ("if [ ! -d /run/systemd/system ]; then\n  fstrim -a\nfi", [false, true]),
            ("if [ -d /run/systemd/system ]; then\n  echo timer\nfi\nfstrim -a", [true, true]),
            ("if [ -d /run/systemd/system ]; then\n  :\nelse\n  fstrim -a\nfi", [false, true]),
            ("if [ -d /run/systemd/system ]; then exit; else echo; fi; fstrim -a", [false, true]),
            ("[ -d /run/systemd/system ] && { echo timer; exit 0; }\nfstrim -a", [false, true]),
            ("0 3 * * 0 root test -e /run/systemd/system || fstrim -a", [false, true]),
            ("fstrim -a\n[ -d /run/systemd/system ] && exit 0", [true, true]),
            ("[ -d /run/systemd/system ] && {\n  echo timer\n  exit 0\n}\nfstrim -a", [false, true]),
            ("[ -d /run/systemd/system ] && fstrim -a", [true, false]),
        ] {
            let runs = [true, false].map(|is_systemd| !Call::all_in(script, is_systemd).is_empty());
            assert_eq!(runs, expected, "{script}");
        }
    }

    #[test]
    fn root_is_known_by_what_names_a_device() {
        for value in ["/dev/sda1", "UUID=1-2", "PARTUUID=a", "LABEL=", "8:1", "0801", "abc"] {
            assert!(is_device(value), "{value}");
        }
        for value in ["gpt-auto", "/dev/nfs", "tmpfs", "ZFS=rpool/ROOT", "", "8:", ":1", "8:a", "ab", "abcg"]
        {
            assert!(!is_device(value), "{value}");
        }
    }
}
