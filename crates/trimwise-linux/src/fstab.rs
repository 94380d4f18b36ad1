//! Reads mounts from fstab(5).

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::doctor::NO_TRIM;
use crate::host_root::HostRoot;
use crate::mount::{Mount, nearest, unescaped};

/// A line of fstab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the line, from 1.
    pub line: usize,
    /// Mount point, with escapes decoded.
    pub point: PathBuf,
    /// Source, with escapes decoded: a device, a tag such as `UUID=`, or for a bind mount a path.
    pub source: PathBuf,
    /// Mount options of the entry.
    pub options: Vec<String>,
}

impl Entry {
    /// Returns true if the entry mounts a part of a file system that is mounted elsewhere.
    pub fn is_bind(&self) -> bool {
        ["bind", "rbind"].iter().any(|option| self.has(option))
    }

    /// Returns true if the entry lists this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }
}

/// Returns the entries of the host's fstab that are `wanted`. A mount point that is a symbolic link is resolved, as the
/// kernel does.
pub fn entries(root: &HostRoot, mounts: &[Mount], wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
    let mut found = parse(&root.whole_text("/etc/fstab").unwrap_or_default());
    found.retain(wanted);
    for entry in &mut found {
        // Avoid touching paths needlessly, or where a server or a FUSE process may not respond.
        let is_local = nearest(mounts, &entry.point)
            .map(|index| &mounts[index])
            .is_none_or(|mount| !mount.is_served() && mount.has_device());
        if is_local
            && !mounts.iter().any(|mount| mount.mount_point == entry.point)
            && let Some(to) = root.resolved(&entry.point)
        {
            entry.point = to;
        }
    }
    found
}

/// Returns the file systems that fstab exempts from trimming, by device number, as `fstrim -A` reads it: every entry
/// stands for itself, and a bind mount, whose source is no device, exempts nothing. So a file system is exempt if
/// some entry of it says so and no other does not.
pub fn spared(root: &HostRoot, mounts: &[Mount]) -> HashSet<(u32, u32)> {
    let (mut spared, mut trimmed) = (HashSet::new(), HashSet::new());
    for entry in entries(root, mounts, |entry| !entry.is_bind()) {
        let numbers =
            mounts.iter().filter(|mount| mount.mount_point == entry.point).map(|mount| mount.numbers);
        if entry.has(NO_TRIM) {
            spared.extend(numbers)
        } else {
            trimmed.extend(numbers)
        };
    }
    &spared - &trimmed
}

fn parse(text: &str) -> Vec<Entry> {
    let lines = text.lines().map(str::trim).zip(1..).filter(|(text, _)| !text.starts_with('#'));
    lines
        .filter_map(|(text, line)| {
            let mut fields = text.split_ascii_whitespace();
            let [source, point] =
                [fields.next()?, fields.next()?].map(|text| OsString::from_vec(unescaped(text.as_bytes())));
            let options = fields.nth(1).unwrap_or("defaults");
            Some(Entry {
                line,
                point: point.into(),
                source: source.into(),
                options: options.split(',').map(str::to_owned).collect(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_bind_mount_exempts_nothing_and_an_entry_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        let mounts = crate::mount::parse_mountinfo(
            b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 8:2 / /nix rw - ext4 /dev/sda2 rw\n\
            22 20 8:2 /persist/srv /srv rw - ext4 /dev/sda2 rw\n23 20 8:3 / /data rw - xfs /dev/sda3 rw\n\
            24 20 0:40 /@ /a rw - btrfs /dev/sdb rw\n25 20 0:40 /@b /b rw - btrfs /dev/sdb rw\n",
        );
        let spared_by = |text: &str| {
            fs::write(folder.path().join("etc/fstab"), text).unwrap();
            let mut spared: Vec<_> = spared(&HostRoot::new(folder.path()), &mounts).into_iter().collect();
            spared.sort();
            spared
        };
        let bind = "/nix/persist/srv /srv none bind,X-fstrim.notrim 0 0\n";
        assert_eq!(spared_by(&format!("/dev/sda2 /nix ext4 defaults 0 2\n{bind}")), []);
        assert_eq!(spared_by(bind), []);
        let data = "/dev/sda3 /data xfs X-fstrim.notrim 0 0\n";
        assert_eq!(spared_by(&format!("{data}{bind}")), [(8, 3)]);
        // Two subvolumes of one btrfs.
        let [a, b] = ["/dev/sdb /a btrfs subvol=@,X-fstrim.notrim\n", "/dev/sdb /b btrfs subvol=@b\n"];
        assert_eq!(spared_by(a), [(0, 40)]);
        assert_eq!(spared_by(&format!("{a}{b}")), []);
    }

    #[test]
    fn links_are_resolved_inside_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("var/home")).unwrap();
        fs::create_dir_all(at("etc/static")).unwrap();
        symlink("/var/home", at("home")).unwrap();
        symlink("/etc/static/fstab", at("etc/fstab")).unwrap();
        let text =
            "# all\nUUID=1 /home xfs defaults,X-fstrim.notrim 0 0\n/dev/sdb /with\\040blank ext4\nnone\n";
        fs::write(at("etc/static/fstab"), text).unwrap();
        let found = entries(&HostRoot::new(folder.path()), &[], |_| true);
        let points: Vec<_> = found.iter().map(|one| one.point.to_str().unwrap()).collect();
        assert_eq!(points, ["/var/home", "/with blank"]);
        assert!(found[0].has("X-fstrim.notrim") && !found[1].has("X-fstrim.notrim"));
    }
}
