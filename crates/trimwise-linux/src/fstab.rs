//! Reads mounts from fstab(5).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::doctor::NO_TRIM;
use crate::host_root::HostRoot;
use crate::mount::{Mount, nearest, text_of, unescaped};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 1.
    pub line: usize,
    /// The source, with escapes decoded: `/dev/sda1`, `UUID=...`, a folder.
    pub source: String,
    pub point: PathBuf,
    /// `swap` for swap areas.
    pub fs_type: String,
    pub options: Vec<String>,
}

impl Entry {
    /// Returns true if the entry mounts a part of a file system that is mounted elsewhere.
    pub fn is_bind(&self) -> bool {
        ["bind", "rbind"].iter().any(|option| self.has(option))
    }

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

/// Returns true if these entries of one file system exempt it from periodic trims: an entry says so, and no other entry
/// lists it without. The option of a bind mount concerns that mount only.
pub fn is_spared(entries: &[&Entry]) -> bool {
    let says_so = |entry: &&&Entry| entry.has(NO_TRIM) && !entry.is_bind();
    entries.iter().any(|entry| says_so(&entry)) && entries.iter().all(|entry| entry.has(NO_TRIM))
}

pub(crate) fn parse(text: &str) -> Vec<Entry> {
    let lines = text.lines().map(str::trim).zip(1..).filter(|(text, _)| !text.starts_with('#'));
    lines
        .filter_map(|(text, line)| {
            let mut fields = text.split_ascii_whitespace();
            let source = text_of(fields.next()?.as_bytes());
            let point = OsString::from_vec(unescaped(fields.next()?.as_bytes()));
            let fs_type = fields.next().unwrap_or("auto").to_owned();
            let options = fields.next().unwrap_or("defaults");
            Some(Entry {
                line,
                source,
                point: point.into(),
                fs_type,
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

    #[test]
    fn the_option_of_a_bind_mount_spares_that_mount_only() {
        let entries = parse(
            "/dev/a /nix ext4 defaults\n/nix/p /srv none bind,X-fstrim.notrim\n/dev/a /x ext4 X-fstrim.notrim\n",
        );
        let is_spared = |lines: &[usize]| is_spared(&lines.iter().map(|&n| &entries[n]).collect::<Vec<_>>());
        assert!(is_spared(&[2]) && is_spared(&[1, 2]));
        assert!(!is_spared(&[0, 1]) && !is_spared(&[1]) && !is_spared(&[0, 2]) && !is_spared(&[]));
    }
}
