//! Which file systems there are to trim: from mountinfo, each once, and why the others are passed over.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::Places;
use trimwise_linux::block_device::{BlockDevice, devices_of};
use trimwise_linux::daemon::config::Config;
use trimwise_linux::fstab;
use trimwise_linux::mount::{Mount, parse_mountinfo};

/// A file system that may be managed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The mount that it is reached by.
    pub mount: Mount,
    /// Where this process reaches it: the mount point, below the host's root.
    pub path: PathBuf,
    /// Its devices.
    pub devices: Vec<BlockDevice>,
}

/// A mount that is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Where.
    #[serde(serialize_with = "trimwise_linux::mount::as_text")]
    pub mount_point: PathBuf,
    /// Which file system; empty if none is there.
    pub fs_type: String,
    /// Why.
    pub why: String,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// File systems to manage, by device number.
    pub candidates: Vec<Candidate>,
    /// Mounts on block devices that are passed over, and mount points of the configuration where nothing is mounted. Those
    /// without a device (proc, tmpfs, network) are not even told.
    pub skipped: Vec<Skipped>,
    /// Every mount, for what outlives a candidate.
    pub mounts: Vec<Mount>,
}

/// File systems on a block device that have no FITRIM.
const NEVER: [&str; 6] = ["squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs"];

/// The file in which the host lists its mounts.
pub fn mountinfo(places: &Places) -> PathBuf {
    places.host.path(if places.host.is_own() { "/proc/self/mountinfo" } else { "/proc/1/mountinfo" })
}

/// Looks at all mounts.
///
/// # Errors
/// If they cannot be read.
pub fn discover(places: &Places, config: &Config) -> std::io::Result<Found> {
    let mounts = parse_mountinfo(&std::fs::read(mountinfo(places))?);
    let spared = fstab::entries(&places.host, &mounts, |entry| entry.has("X-fstrim.notrim"));
    let mut found = Found::default();
    for of_one in by_file_system(&mounts).values() {
        choose(places, config, of_one, &mounts, &spared, &mut found);
    }
    let absent =
        config.mounts.keys().filter(|point| !mounts.iter().any(|mount| mount.mount_point == **point));
    found.skipped.extend(absent.map(|point| Skipped {
        mount_point: point.clone(),
        fs_type: String::new(),
        why: "the configuration names it, and nothing is mounted there".to_owned(),
    }));
    found.mounts = mounts;
    Ok(found)
}

/// Mounts of one file system together, in the order of the list.
fn by_file_system(mounts: &[Mount]) -> BTreeMap<(u32, u32), Vec<&Mount>> {
    let mut file_systems: BTreeMap<_, Vec<&Mount>> = BTreeMap::new();
    for mount in mounts.iter().filter(|mount| mount.has_device()) {
        file_systems.entry(mount.numbers).or_default().push(mount);
    }
    file_systems
}

fn choose(
    places: &Places,
    config: &Config,
    of_one: &[&Mount],
    mounts: &[Mount],
    spared: &[fstab::Entry],
    found: &mut Found,
) {
    let mut skip = |mount: &Mount, why: String| {
        let Mount { mount_point, fs_type, .. } = mount.clone();
        found.skipped.push(Skipped { mount_point, fs_type, why });
    };
    // The one with a table of its own, if any; else the first that can be used.
    let why_not = |mount: &&&Mount| why_unusable(mount, config, mounts);
    let usable = |mount: &&&Mount| why_not(mount).is_none();
    let listed = of_one.iter().filter(usable).find(|mount| config.mounts.contains_key(&mount.mount_point));
    let Some(&&mount) = listed.or_else(|| of_one.iter().find(usable)).as_ref() else {
        return skip(
            of_one[0],
            of_one.iter().find_map(|mount| why_not(&mount)).unwrap_or_default().to_owned(),
        );
    };
    if NEVER.contains(&mount.fs_type.as_str()) {
        return skip(mount, format!("{} is never written, so it has nothing to trim", mount.fs_type));
    }
    if mount.is_served() {
        return skip(mount, "a process serves it (FUSE), for which the daemon must not wait".to_owned());
    }
    if config.treatment(&mount.mount_point).is_none() {
        return skip(mount, "the configuration manages listed file systems only (`manage`)".to_owned());
    }
    if of_one.iter().any(|mount| spared.iter().any(|entry| entry.point == mount.mount_point)) {
        return skip(mount, "X-fstrim.notrim in fstab".to_owned());
    }
    let devices = match devices_of(mount) {
        Ok(devices) => devices,
        Err(error) => return skip(mount, error.to_string()),
    };
    if devices.iter().all(|device| device.limits.max.0 == 0) {
        let why = format!(
            "its device takes no discards; `trimwise doctor {}` says why",
            mount.mount_point.display()
        );
        return skip(mount, why);
    }
    for other in of_one.iter().filter(|other| other.id != mount.id) {
        skip(other, format!("the same file system as {}", mount.mount_point.display()));
    }
    let path = places.host.path(&mount.mount_point);
    found.candidates.push(Candidate { mount: mount.clone(), path, devices });
}

/// Why a file system cannot be managed by this mount of it; `None` if it can.
fn why_unusable(mount: &Mount, config: &Config, mounts: &[Mount]) -> Option<&'static str> {
    if mount.is_read_only() {
        Some("mounted read-only")
    } else if is_covered(mount, mounts) {
        Some("another mount covers it")
    } else if mount.mount_point.to_str().is_none() {
        Some("its mount point is no UTF-8, so that nobody can ask for it by name")
    } else if is_on_demand(mount, mounts) && !config.mounts.contains_key(&mount.mount_point) {
        Some(
            "it is mounted on demand (automount), and a look each second would keep it mounted; with a table of its own \
             in the configuration it is managed",
        )
    } else {
        None
    }
}

/// Whether its path leads to another mount. That is not told by the order of the list: what an initramfs mounts comes
/// before the root that it is moved to.
pub fn is_covered(mount: &Mount, mounts: &[Mount]) -> bool {
    let Some(index) = mounts.iter().position(|one| one.id == mount.id) else { return true };
    let mut way = vec![mount.id];
    let mut next = mount.parent;
    // What the root is mounted on is not in the list.
    while let Some(above) = mounts.iter().find(|one| one.id == next && !way.contains(&next)) {
        way.push(above.id);
        next = above.parent;
    }
    mounts.iter().enumerate().any(|(at, other)| {
        let is_beside = other.parent == mount.parent && other.mount_point == mount.mount_point;
        let hangs_on_the_way =
            way.contains(&other.parent) || other.parent == next && other.id != other.parent;
        !way.contains(&other.id)
            && hangs_on_the_way
            && mount.mount_point.starts_with(&other.mount_point)
            && (!is_beside || at > index)
    })
}

/// Whether it is there on demand only: then a look each second would keep it there.
fn is_on_demand(mount: &Mount, mounts: &[Mount]) -> bool {
    // An indirect map mounts below its own mount, a direct one in its place.
    mounts.iter().any(|one| {
        one.fs_type == "autofs" && (one.id == mount.parent || one.mount_point == mount.mount_point)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_what_an_indirect_map_mounts_is_there_on_demand_too() {
        let mounts = parse_mountinfo(
            b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 0:40 / /auto rw - autofs map rw\n\
            22 21 8:2 / /auto/data rw - ext4 /dev/sdb rw\n23 20 0:41 / /direct rw - autofs map rw\n\
            24 23 8:3 / /direct rw - xfs /dev/sdc rw\n25 20 8:4 / /srv rw - xfs /dev/sdd rw\n",
        );
        let real = mounts.iter().filter(|mount| mount.fs_type != "autofs");
        let on_demand: Vec<u64> =
            real.filter(|mount| is_on_demand(mount, &mounts)).map(|mount| mount.id).collect();
        assert_eq!(on_demand, [22, 24]);
    }

    #[test]
    fn mounts_of_one_file_system_are_together_and_later_ones_cover_earlier_ones() {
        let text = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 8:1 /srv /srv rw - ext4 /dev/sda1 rw\n\
            22 20 0:5 / /proc rw - proc proc rw\n23 20 8:2 / /home rw - xfs /dev/sda2 rw\n\
            24 20 8:3 / /home rw - xfs /dev/sda3 rw\n25 20 0:40 /@ /b rw - btrfs /dev/sdb rw\n\
            26 20 0:40 /@x /c rw - btrfs /dev/sdb rw\n";
        let mounts = parse_mountinfo(text);
        let together = by_file_system(&mounts);
        let sizes: Vec<_> = together.iter().map(|(numbers, mounts)| (*numbers, mounts.len())).collect();
        assert_eq!(sizes, [((0, 40), 2), ((8, 1), 2), ((8, 2), 1), ((8, 3), 1)]);
        let early = parse_mountinfo(
            b"22 27 0:5 / /proc rw - proc proc rw\n23 27 8:9 / /overlay rw - ext4 /dev/sdc rw\n\
            27 1 8:1 / / rw - ext4 /dev/sda1 rw\n28 23 8:4 / /overlay rw - xfs /dev/sdd rw\n\
            29 27 0:50 / /srv rw - tmpfs none rw\n30 27 8:5 / /srv/data rw - xfs /dev/sde rw\n",
        );
        let covered: Vec<u64> =
            early.iter().filter(|mount| is_covered(mount, &early)).map(|mount| mount.id).collect();
        assert_eq!(covered, [23, 30], "not by the root, which is listed later");
        assert!(
            is_covered(&mounts[3], &mounts)
                && !is_covered(&mounts[4], &mounts)
                && !is_covered(&mounts[1], &mounts)
        );
    }
}
