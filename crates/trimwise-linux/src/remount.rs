//! Changes one mount option and no other.
//!
//! The older MS_REMOUNT resets all options that are not given (nosuid, ro...), so this uses `fspick` and `fsconfig`, which
//! leave the options of the mount and most of the file system's alone. Some the kernel resets all the same: those are
//! repeated, and afterwards all that mountinfo shows is compared with what it showed before.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fspick};

use crate::layout::Kind;
use crate::mount::{Mount, mount_of_open, turns_discard_on};

/// Options of a mount, as mountinfo shows them. They can differ between two mounts of one file system, so a remount
/// of the file system neither takes nor changes them.
const OF_MOUNT: [&str; 8] =
    ["nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "nosymfollow", "idmapped"];

/// Sets `discard`, `nodiscard` or `discard=async` on the file system with this open mount point. A path could lead
/// elsewhere by now. See [`change`].
pub fn set(mount_point: impl AsFd, kind: Kind, option: &str) -> io::Result<Vec<String>> {
    if !matches!(kind, Kind::Ext4 | Kind::Btrfs) {
        return Err(io::Error::other("this file system cannot change it by remounting"));
    }
    change(mount_point, option)
}

/// Sets a discard option on the file system with this open mount point. Returns the changes of other options that the
/// kernel made with it and that were undone, in words.
///
/// # Errors
/// Errors of the system calls; or that other options have changed and cannot be put back, which the error names. Then the
/// discard option is put back as well.
pub fn change(mount_point: impl AsFd, option: &str) -> io::Result<Vec<String>> {
    let read = || mount_of_open(&mount_point).map_err(io::Error::other);
    let mount = read()?;
    let (before, repeated) = (others(&mount), repeated(&mount));
    reconfigure(&mount_point, &repeated, option)?;
    let after = others(&read()?);
    let changed = differences(&before, &after);
    if changed.is_empty() {
        return Ok(changed);
    }
    let undone = reconfigure(&mount_point, &[&repeated[..], &undoing(&before, &after)].concat(), option);
    let left = differences(&before, &others(&read()?));
    if left.is_empty() {
        return Ok(changed);
    }
    let why = undone.err().map_or(String::new(), |error| format!(" ({error})"));
    let left = left.join(", ");
    drop(reconfigure(&mount_point, &repeated, mount.discard()));
    let now = read()?;
    let now = now.discard();
    Err(io::Error::other(format!(
        "it also changed other options, which cannot be put back{why}: {left}; {now} is in effect"
    )))
}

fn reconfigure(mount_point: &impl AsFd, repeated: &[String], option: &str) -> io::Result<()> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let context = fspick(mount_point.as_fd(), c"", flags)?;
    for one in repeated.iter().map(String::as_str).chain([option]) {
        match one.split_once('=') {
            Some((key, value)) => fsconfig_set_string(&context, key, value)?,
            None => fsconfig_set_flag(&context, one)?,
        }
    }
    Ok(fsconfig_reconfigure(&context)?)
}

/// Returns the options of the file system that `fsconfig` resets if they are not given.
fn repeated(mount: &Mount) -> Vec<String> {
    let is_reset: fn(&str) -> bool = match mount.fs_type.as_str() {
        // From 6.8 on, btrfs_init_fs_context turns ACLs on. Before, btrfs_parse_options turned the space cache on. A cache
        // that was to be off, but stays on while read-only, goes off.
        "btrfs" => |option| ["noacl", "nospace_cache", "space_cache"].contains(&option),
        // xfs_fs_reconfigure compares with a new mount.
        "xfs" => |option| option == "inode32",
        // f2fs_remount begins with default_options. No remount takes dirsync (MS_RMT_MASK), nor resets it.
        "f2fs" => |option| option != "dirsync",
        // ext4_apply_options applies what is given, and nothing else.
        _ => |_| false,
    };
    let shown = others(mount);
    let mut repeated: Vec<String> = shown.iter().filter(|option| is_reset(option)).cloned().collect();
    if mount.fs_type == "f2fs" {
        // Those that it turns on by default and does not show when they are off.
        let hidden =
            ["flush_merge", "lazytime"].into_iter().filter(|one| !shown.iter().any(|other| other == one));
        repeated.extend(hidden.map(|one| format!("no{one}")));
        // It refuses another unit; newer kernels show it only with `discard`.
        repeated.extend(mount.options.iter().filter(|one| one.starts_with("discard_unit=")).cloned());
    }
    // Without `ro`, every file system would become writable.
    repeated.extend(mount.is_read_only().then(|| "ro".to_owned()));
    repeated
}

/// Returns the options of a file system except for those about discards, `ro` and `rw`: an error may make it read-only
/// at any time. Those of security modules are left out as well; a remount leaves them alone.
pub fn others(mount: &Mount) -> Vec<String> {
    let is_of_discards = |option: &str| {
        option == "nodiscard" || turns_discard_on(option) || option.starts_with("discard_unit=")
    };
    let mut is_quoted = false; // `context="a:b:c,d"` holds a comma
    let mut others = mount.options.clone();
    others.retain(|option| {
        let was_quoted = is_quoted;
        is_quoted ^= option.matches('"').count() % 2 == 1;
        let is_of_security = was_quoted || is_quoted || option.contains('"') || option == "seclabel";
        let is_other = is_of_security || is_of_discards(option) || OF_MOUNT.contains(&option.as_str());
        !is_other && option != "ro" && option != "rw"
    });
    others
}

/// Names the differences between two lists of options: `noacl is gone`, `acl is new`.
pub fn differences(before: &[String], after: &[String]) -> Vec<String> {
    let gone = before.iter().filter(|one| !after.contains(one)).map(|one| format!("{one} is gone"));
    let new = after.iter().filter(|one| !before.contains(one)).map(|one| format!("{one} is new"));
    gone.chain(new).collect()
}

/// Returns the options that lead from `after` back to `before`.
fn undoing(before: &[String], after: &[String]) -> Vec<String> {
    let key = |option: &str| option.split('=').next().unwrap_or_default().trim_start_matches("no").to_owned();
    let gone: Vec<String> = before.iter().filter(|one| !after.contains(one)).cloned().collect();
    let new = after.iter().filter(|one| !before.contains(one));
    let opposite = |one: &String| one.strip_prefix("no").map_or_else(|| format!("no{one}"), str::to_owned);
    // Where the old value is given, it replaces the new one.
    let alone = new.filter(|one| !gone.iter().any(|other| key(other) == key(one)) && !one.contains('='));
    let off: Vec<String> = alone.map(opposite).collect();
    [gone, off].concat()
}

/// Returns true if an error of [`set`] is permanent (option, kernel or permission) rather than temporary (EBUSY, EINTR,
/// EAGAIN, ENOMEM...).
pub fn is_for_good(error: &io::Error) -> bool {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) => matches!(errno, Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS),
        None => true, // from this module, not the kernel
    }
}

/// Returns the option that turns online discard on.
pub fn on(kind: Kind) -> &'static str {
    if kind == Kind::Btrfs { "discard=async" } else { "discard" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(fs_type: &str, of_mount: &str, options: &str) -> Mount {
        let line = format!("22 1 8:1 / / {of_mount} - {fs_type} /dev/sda1 {options}\n");
        crate::mount::parse_mountinfo(line.as_bytes()).remove(0)
    }

    fn words(options: &[&str]) -> Vec<String> {
        options.iter().map(|&one| one.to_owned()).collect()
    }

    #[test]
    fn what_a_kernel_would_reset_is_repeated() {
        for (fs_type, options, expected) in [
            ("btrfs", "rw,noacl,nospace_cache,subvolid=5,subvol=/", &["noacl", "nospace_cache"][..]),
            ("btrfs", "ro,ssd,discard=async,space_cache=v2", &["ro"]),
            ("btrfs", "ro,space_cache", &["space_cache", "ro"]),
            ("xfs", "rw,attr2,inode32,noquota", &["inode32"]),
            ("xfs", "rw,attr2,inode64,noquota", &[]),
            ("ext4", "ro,noacl,discard,errors=remount-ro", &["ro"]),
            (
                "f2fs",
                "rw,dirsync,lazytime,context=\"a:b:c0,c1\",seclabel,nodiscard,noacl,discard_unit=block,active_logs=4",
                &["lazytime", "noacl", "active_logs=4", "noflush_merge", "discard_unit=block"],
            ),
            ("f2fs", "rw,flush_merge,acl", &["flush_merge", "acl", "nolazytime"]),
        ] {
            let mount = mount(fs_type, "rw,nosuid,noatime", options);
            assert_eq!(repeated(&mount), words(expected), "{fs_type} {options}");
        }
        // Of a file system that is writable, a mount may be read-only.
        assert_eq!(repeated(&mount("btrfs", "ro", "rw")), words(&[]));
    }

    #[test]
    fn what_differs_is_named_and_undone() {
        let before = words(&["noacl", "active_logs=4", "ssd"]);
        let after = words(&["acl", "active_logs=6", "ssd", "lazytime"]);
        assert_eq!(
            differences(&before, &after),
            [
                "noacl is gone",
                "active_logs=4 is gone",
                "acl is new",
                "active_logs=6 is new",
                "lazytime is new"
            ]
        );
        assert_eq!(undoing(&before, &after), ["noacl", "active_logs=4", "nolazytime"]);
        assert_eq!(undoing(&[], &words(&["nobarrier", "commit=5"])), ["barrier"]);
        assert!(differences(&before, &before).is_empty());
    }

    #[test]
    fn temporary_errors_are_not_for_good() {
        for errno in [Errno::BUSY, Errno::INTR, Errno::AGAIN, Errno::NOMEM, Errno::IO] {
            assert!(!is_for_good(&errno.into()), "{errno:?}");
        }
        for errno in [Errno::INVAL, Errno::PERM, Errno::OPNOTSUPP] {
            assert!(is_for_good(&errno.into()), "{errno:?}");
        }
        let file = std::fs::File::open("/").unwrap();
        assert!(is_for_good(&set(file, Kind::Xfs, "discard").unwrap_err()));
    }
}
