//! Reads unit files as systemd does, without asking it: a host in a folder has no systemd to ask.

use std::path::{Path, PathBuf};

use crate::host_root::HostRoot;

/// Folders of unit files, highest priority first (systemd.unit(5)).
const FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Folders of units that generators made, such as those from fstab.
const GENERATED: [&str; 3] =
    ["/run/systemd/generator.early", "/run/systemd/generator", "/run/systemd/generator.late"];

/// Returns true if systemd runs the host: the check of sd_booted(3).
pub fn is_running(root: &HostRoot) -> bool {
    root.has("/run/systemd/system")
}

/// Returns true if a unit is masked: it is a link to /dev/null or an empty file in the folder of highest priority.
pub fn is_masked(root: &HostRoot, unit: &str) -> bool {
    let place = FOLDERS.iter().map(|folder| format!("{folder}/{unit}")).find(|place| root.has(place));
    place.is_some_and(|place| match root.link(&place) {
        Some(to) => to == Path::new("/dev/null"),
        None => root.metadata(&place).is_some_and(|found| found.is_file() && found.len() == 0),
    })
}

/// Returns the units that are enabled for a target, sorted by name, without those that are masked or missing.
pub fn wanted(root: &HostRoot, target: &str) -> Vec<String> {
    let folders = FOLDERS.iter().map(|folder| format!("{folder}/{target}.wants"));
    // systemd goes by the name: a link may dangle as long as there is such a unit.
    let is_there = |folder: &str, unit: &str| {
        root.resolved(format!("{folder}/{unit}")).is_some()
            || FOLDERS.iter().any(|folder| root.resolved(format!("{folder}/{unit}")).is_some())
    };
    let mut units: Vec<String> = folders
        .flat_map(|folder| {
            let mut units = root.names(&folder);
            units.retain(|unit| is_there(&folder, unit) && !is_masked(root, unit));
            units
        })
        .collect();
    units.sort_unstable();
    units.dedup();
    units
}

/// Returns the values of a setting in a unit's text; an empty value clears those before it.
pub fn values<'a>(text: &'a str, keys: &[&str]) -> Vec<&'a str> {
    let mut values = Vec::new();
    for line in text.lines() {
        match line.trim().split_once('=') {
            Some((key, value)) if keys.contains(&key.trim()) => match value.trim() {
                "" => values.clear(),
                value => values.push(value),
            },
            _ => {}
        }
    }
    values
}

/// Returns the text of a unit with its drop-ins, in the order in which they count; `None` if there is no such unit.
pub fn text(root: &HostRoot, unit: &str) -> Option<String> {
    let mut text = FOLDERS.iter().find_map(|folder| root.text(format!("{folder}/{unit}")))?;
    let mut drop_ins: Vec<(String, &str)> = Vec::new();
    for folder in FOLDERS {
        for name in root.names(format!("{folder}/{unit}.d")) {
            if !name.ends_with(".conf") {
                continue;
            }
            // A name in a folder of higher priority replaces the same name elsewhere.
            if !drop_ins.iter().any(|(known, _)| *known == name) {
                drop_ins.push((name, folder));
            }
        }
    }
    drop_ins.sort_unstable();
    for (name, folder) in drop_ins {
        text.push('\n');
        text += &root.text(format!("{folder}/{unit}.d/{name}")).unwrap_or_default();
    }
    Some(text)
}

/// Returns the first condition about paths in a unit's text that the host does not meet, so that systemd does not start
/// it (systemd.unit(5)). Other conditions are not judged.
pub fn unmet<'a>(root: &HostRoot, text: &'a str) -> Option<&'a str> {
    let is_met = |line: &str| {
        let (key, value) = line.split_once('=')?;
        let value = value.trim().trim_start_matches('|');
        let (is_negated, path) = value.strip_prefix('!').map_or((false, value), |path| (true, path));
        let found = root.metadata(path.trim());
        let holds = match key.trim() {
            "ConditionPathExists" => found.is_some(),
            "ConditionPathIsDirectory" => found.is_some_and(|found| found.is_dir()),
            "ConditionFileNotEmpty" => found.is_some_and(|found| found.is_file() && found.len() > 0),
            _ => return None,
        };
        Some(holds != is_negated)
    };
    let judged = text.lines().map(str::trim).filter_map(|line| Some((line, is_met(line)?)));
    // If conditions begin with a bar, one of them is enough.
    let is_one_of_many =
        |line: &str| line.split_once('=').is_some_and(|(_, value)| value.trim().starts_with('|'));
    let (any, all): (Vec<_>, Vec<_>) = judged.partition(|(line, _)| is_one_of_many(line));
    let none_of_many = any.first().filter(|_| any.iter().all(|(_, is_met)| !is_met));
    all.iter().find(|(_, is_met)| !is_met).or(none_of_many).map(|(line, _)| *line)
}

/// Finds the unit file that mounts something at this path, in the folder of highest priority; `None` if systemd has
/// none, or generated it from fstab.
pub fn mount_unit(root: &HostRoot, mount_point: &Path) -> Option<PathBuf> {
    let unit = format!("{}.mount", escaped_path(mount_point));
    let places = FOLDERS.iter().chain(&GENERATED).map(|folder| PathBuf::from(format!("{folder}/{unit}")));
    let place = places.into_iter().find(|place| root.has(place))?;
    let is_of_fstab = root.text(&place).is_some_and(|text| text.contains("SourcePath=/etc/fstab"));
    (!is_of_fstab).then_some(place)
}

/// Escapes a path as systemd-escape(1) --path does.
pub fn escaped_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return "-".to_owned();
    }
    let mut escaped = String::new();
    for (index, byte) in parts.join("/").bytes().enumerate() {
        match byte {
            b'/' => escaped.push('-'),
            b'.' if index == 0 => escaped += "\\x2e",
            b':' | b'_' | b'.' => escaped.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => escaped.push(byte.into()),
            byte => escaped += &format!("\\x{byte:02x}"),
        }
    }
    escaped
}

/// Reverses [`escaped_path`]; `None` if `escaped` is not its output.
pub fn unescaped_path(escaped: &str) -> Option<PathBuf> {
    let mut bytes = vec![b'/'];
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'-' if escaped == "-" => return Some("/".into()),
            b'-' => b'/',
            b'\\' => {
                let digits = [rest.next()?, rest.next()?, rest.next()?];
                let hex = std::str::from_utf8(&digits).ok()?.strip_prefix('x')?;
                u8::from_str_radix(hex, 16).ok()?
            }
            byte => byte,
        });
    }
    Some(String::from_utf8(bytes).ok()?.into())
}

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::Host;

    use super::*;

    #[test]
    fn a_unit_is_masked_by_a_link_to_dev_null_or_an_empty_file_of_highest_priority() {
        let masked = |files: &[(&str, &str)]| {
            let host = Host::new("");
            for (folder, text) in files {
                let path = format!("{folder}/a.service");
                match *text {
                    "/dev/null" => {
                        host.file(&format!("{folder}/other"), "");
                        std::os::unix::fs::symlink("/dev/null", host.0.path().join(path)).unwrap();
                    }
                    text => {
                        host.file(&path, text);
                    }
                }
            }
            is_masked(&HostRoot::new(host.0.path()), "a.service")
        };
        let (etc, usr) = ("etc/systemd/system", "usr/lib/systemd/system");
        for (files, expected) in [
            (&[(usr, "[Service]")][..], false),
            (&[(etc, "/dev/null"), (usr, "[Service]")], true),
            (&[(etc, ""), (usr, "[Service]")], true),
            (&[(etc, "[Service]"), (usr, "")], false),
            (&[(usr, "")], true),
            (&[], false),
        ] {
            assert_eq!(masked(files), expected, "{files:?}");
        }
    }

    #[test]
    fn paths_are_escaped_as_systemd_does_and_come_back() {
        // The right column is what `systemd-escape --path` of systemd 252 prints.
        for (path, escaped) in [
            ("/", "-"),
            ("/home", "home"),
            ("/srv/a b", "srv-a\\x20b"),
            ("/mnt/x-y", "mnt-x\\x2dy"),
            ("/.snap", "\\x2esnap"),
            ("/a_b:c.d", "a_b:c.d"),
        ] {
            assert_eq!(escaped_path(Path::new(path)), escaped);
            assert_eq!(unescaped_path(escaped), Some(path.into()));
        }
        assert_eq!(unescaped_path("a\\y20"), None);
    }
}
