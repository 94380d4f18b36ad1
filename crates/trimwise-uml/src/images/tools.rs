//! Checks for the programs that a build needs, and names the command that installs the missing ones.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::KernelError;

/// A program, its package on Debian and relatives, and its package elsewhere.
type Tool = (&'static str, &'static str, &'static str);

const TO_BUILD: [Tool; 7] = [
    ("gcc", "gcc libc6-dev", "gcc"), // Debian's gcc only recommends the C library's headers
    ("make", "make", "make"),
    ("flex", "flex", "flex"),
    ("bison", "bison", "bison"),
    ("bc", "bc", "bc"),
    ("tar", "tar", "tar"),
    ("xz", "xz-utils", "xz"),
];

const TO_PATCH: [Tool; 1] = [("patch", "patch", "patch")];
const TO_DOWNLOAD: [Tool; 2] = [("apt-get", "apt", "apt"), ("dpkg-deb", "dpkg", "dpkg")];
pub(super) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Package managers in search order, with their install commands.
const MANAGERS: [(&str, &str); 4] = [
    ("apt-get", "apt-get install"),
    ("dnf", "dnf install"),
    ("pacman", "pacman -S"),
    ("zypper", "zypper install"),
];

/// Checks that all programs are in the folders of `path` (as in `$PATH`). The error names every missing one.
pub(super) fn check(path: &OsStr, download: bool, patch: bool, keyring: &Path) -> Result<(), KernelError> {
    let debian = MANAGERS.iter().find(|(program, _)| is_there(path, program));
    let (manager, install) = debian.copied().unwrap_or(MANAGERS[0]);
    let mut missing = Vec::new();
    let mut packages = Vec::new();
    let mut lack = |what: String, package: &'static str| {
        missing.push(what);
        packages.push(package);
    };
    let needed = TO_BUILD
        .iter()
        .chain(TO_PATCH.iter().filter(|_| patch))
        .chain(TO_DOWNLOAD.iter().filter(|_| download));
    for (program, package, elsewhere) in needed.filter(|(program, ..)| !is_there(path, program)) {
        lack((*program).to_owned(), if manager == "apt-get" { package } else { elsewhere });
    }
    if download && !keyring.exists() {
        lack(keyring.display().to_string(), "debian-archive-keyring");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let mut install = format!("{install} {}", packages.join(" "));
    if download && manager != "apt-get" {
        install += ". If Debian's packages cannot be reached, build from a source: `trimwise kernel build --source DIR|TARBALL`";
    }
    Err(KernelError::Missing { missing, install })
}

fn is_there(path: &OsStr, program: &str) -> bool {
    std::env::split_paths(path).any(|folder| {
        let file = folder.join(program);
        file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    })
}
