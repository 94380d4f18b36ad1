//! Finds the file systems to trim, from mountinfo, each once, and why the others are skipped.
//!
//! A worker does this, since devices, fstab and the paths to them may hang. The daemon asks with [`Wanted`] and
//! receives [`Found`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Places;
use crate::candidate::Candidate;
use crate::journal::{Change, is_of, may_be_there, session_of};
use crate::known::session;
use trimwise_linux::block_device::{BlockDevice, devices_of};
use trimwise_linux::daemon::config::{Config, Manage};
use trimwise_linux::doctor;
use trimwise_linux::fstab;
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::layout::Kind;
use trimwise_linux::mount::{Mount, mounts};
use trimwise_linux::trim::reports_failures;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    #[serde(serialize_with = "trimwise_linux::mount::as_text")]
    pub mount_point: PathBuf,
    /// Empty if nothing is mounted there.
    pub fs_type: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub host: PathBuf,
    pub all: bool,
    pub listed: BTreeSet<PathBuf>,
    /// Changed mount options; the look also locates their mounts.
    pub changes: Vec<Change>,
}

impl Wanted {
    pub fn new(places: &Places, config: &Config, changes: &[Change]) -> Self {
        Self {
            host: places.host.path("/"),
            all: config.manage == Manage::All,
            listed: config.mounts.keys().cloned().collect(),
            changes: changes.to_vec(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whereabouts {
    Gone,
    /// The mount cannot be reached now, but may still exist: below another mount, unmounted lazily, in another
    /// namespace...
    Hidden,
    At(PathBuf),
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub candidates: Vec<Candidate>,
    /// Mounts on block devices that are skipped, and mount points of the configuration where nothing is mounted. Mounts
    /// without a device (proc, tmpfs, network) are omitted.
    pub skipped: Vec<Skipped>,
    /// Id and device of every mount with a device, to tell whether a candidate that is gone is still mounted.
    pub mounted: BTreeSet<(u64, String)>,
    /// Changed mount options, with the location of their mounts.
    pub changed: Vec<(Change, Whereabouts)>,
}

/// File systems on a block device that have no FITRIM.
const NEVER: [&str; 6] = ["squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs"];

/// All mounts, indexed by id and by place: with thousands of them, comparing each with every other would be too slow.
struct Mounts<'a> {
    all: &'a [Mount],
    by_id: HashMap<u64, usize>,
    /// Indices in the list, by parent mount and the bytes of the mount point.
    mounted_on: HashMap<(u64, &'a [u8]), Vec<usize>>,
    automounts: (HashSet<&'a [u8]>, HashSet<u64>),
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl<'a> Mounts<'a> {
    fn new(all: &'a [Mount]) -> Self {
        let mut mounts = Self {
            all,
            by_id: HashMap::new(),
            mounted_on: HashMap::new(),
            automounts: <(HashSet<&[u8]>, HashSet<u64>)>::default(),
        };
        for (index, mount) in all.iter().enumerate() {
            let point = bytes(&mount.mount_point);
            mounts.by_id.entry(mount.id).or_insert(index);
            mounts.mounted_on.entry((mount.parent, point)).or_default().push(index);
            if mount.fs_type == "autofs" {
                mounts.automounts.0.insert(point);
                mounts.automounts.1.insert(mount.id);
            }
        }
        mounts
    }

    /// Returns true if the path of `mount` leads to another mount. The order of the list does not tell: mounts of an
    /// initramfs precede the root that they are moved to.
    fn is_covered(&self, mount: &Mount) -> bool {
        let Some(&index) = self.by_id.get(&mount.id) else { return true };
        let mut way = vec![mount.id];
        let mut next = mount.parent;
        // The parent of the root is not in the list.
        while let Some(&above) = self.by_id.get(&next).filter(|_| !way.contains(&next)) {
            way.push(self.all[above].id);
            next = self.all[above].parent;
        }
        let covers = |at: usize| {
            let other = &self.all[at];
            let is_sibling = other.parent == mount.parent && other.mount_point == mount.mount_point;
            !way.contains(&other.id) && other.id != other.parent && (!is_sibling || at > index)
        };
        way.iter().chain([&next]).any(|&on| {
            mount.mount_point.ancestors().any(|point| {
                let there = self.mounted_on.get(&(on, bytes(point)));
                there.is_some_and(|there| there.iter().any(|&at| covers(at)))
            })
        })
    }

    /// Returns true for an automount: a look every few seconds would keep it mounted.
    fn is_on_demand(&self, mount: &Mount) -> bool {
        // An indirect map mounts below its own mount, a direct one in its place.
        self.automounts.1.contains(&mount.parent) || self.automounts.0.contains(bytes(&mount.mount_point))
    }

    fn why_unusable(&self, mount: &Mount, wanted: &Wanted) -> Option<&'static str> {
        if mount.is_read_only() {
            Some("mounted read-only")
        } else if mount.has_failed() {
            Some("it failed (`emergency_ro` or `shutdown` in its mount options): unmount it and check it")
        } else if self.is_covered(mount) {
            Some("another mount covers it")
        } else if mount.mount_point.to_str().is_none() {
            Some("its mount point is not UTF-8, so requests cannot name it")
        } else if self.is_on_demand(mount) && !wanted.listed.contains(&mount.mount_point) {
            Some(
                "it is mounted on demand (automount), and a look every few seconds would keep it mounted; give it a table \
                 in the \
                 configuration to manage it anyway",
            )
        } else {
            None
        }
    }

    fn whereabouts(&self, change: &Change) -> Whereabouts {
        let mut of_it = self
            .all
            .iter()
            .filter(|mount| change.numbers == mount.numbers && is_of(change, mount, session_of(mount)));
        let mut is_there = false;
        let reached = of_it.find(|mount| {
            is_there = true;
            // A name that is not UTF-8 cannot be reported.
            mount.mount_point.to_str().is_some() && !self.is_covered(mount)
        });
        match reached {
            Some(mount) => Whereabouts::At(mount.mount_point.clone()),
            None if is_there || may_be_there(change) => Whereabouts::Hidden,
            None => Whereabouts::Gone,
        }
    }
}

/// Number of file systems above which the properties of their devices are cached.
const MANY: usize = 64;
/// Lifetime of the cache, in milliseconds per file system: 2,000 file systems are all read again within 500 s.
const KEPT_MS_EACH: u64 = 250;

/// Cached results of earlier looks: with thousands of file systems, reading sysfs for each takes a second.
#[derive(Debug, Default)]
pub struct Known {
    devices: HashMap<(u64, (u32, u32)), (Instant, Candidate)>,
    mounts: usize,
}

impl Known {
    fn of(&self, mount: &Mount, now: Instant) -> Option<&Candidate> {
        let age_max = Duration::from_millis(KEPT_MS_EACH * self.mounts as u64);
        let (at, candidate) = self.devices.get(&(mount.id, mount.numbers))?;
        let is_same = candidate.mount.device == mount.device
            && candidate.mount.mount_point == mount.mount_point
            && now.duration_since(*at) < age_max;
        is_same.then_some(candidate)
    }
}

/// Examines all mounts of the host.
pub fn discover(wanted: &Wanted, known: &mut Known) -> std::io::Result<Found> {
    let host = HostRoot::new(&wanted.host);
    let all = mounts(&host).map_err(std::io::Error::other)?;
    let mounts = Mounts::new(&all);
    let mut listed: HashMap<PathBuf, Vec<fstab::Entry>> = HashMap::new();
    for entry in fstab::entries(&host, &all, |_| true) {
        listed.entry(entry.point.clone()).or_default().push(entry);
    }
    let mut found = Found::default();
    let file_systems = by_file_system(&all);
    let mut before = std::mem::take(known);
    before.mounts = file_systems.len();
    for of_one in file_systems.values() {
        choose(&host, wanted, of_one, &mounts, &listed, &before, &mut found);
    }
    if file_systems.len() > MANY {
        let now = Instant::now();
        let keep = |one: &Candidate| {
            let key = (one.mount.id, one.mount.numbers);
            let at = before.of(&one.mount, now).and(before.devices.get(&key)).map_or(now, |(at, _)| *at);
            (key, (at, one.clone()))
        };
        known.devices = found.candidates.iter().map(keep).collect();
    }
    let there: HashSet<&[u8]> = all.iter().map(|mount| bytes(&mount.mount_point)).collect();
    let absent = wanted.listed.iter().filter(|point| !there.contains(bytes(point)));
    found.skipped.extend(absent.map(|point| Skipped {
        mount_point: point.clone(),
        fs_type: String::new(),
        why: "the configuration names it, but nothing is mounted there".to_owned(),
    }));
    found.changed = wanted.changes.iter().map(|one| (one.clone(), mounts.whereabouts(one))).collect();
    let with_device = all.iter().filter(|mount| mount.has_device());
    found.mounted = with_device.map(|mount| (mount.id, mount.device.clone())).collect();
    Ok(found)
}

fn by_file_system(mounts: &[Mount]) -> BTreeMap<(u32, u32), Vec<&Mount>> {
    let mut file_systems: BTreeMap<_, Vec<&Mount>> = BTreeMap::new();
    for mount in mounts.iter().filter(|mount| mount.has_device()) {
        file_systems.entry(mount.numbers).or_default().push(mount);
    }
    file_systems
}

fn choose(
    host: &HostRoot,
    wanted: &Wanted,
    of_one: &[&Mount],
    mounts: &Mounts<'_>,
    fstab: &HashMap<PathBuf, Vec<fstab::Entry>>,
    known: &Known,
    found: &mut Found,
) {
    let mut skip = |mount: &Mount, why: String| {
        let Mount { mount_point, fs_type, .. } = mount.clone();
        found.skipped.push(Skipped { mount_point, fs_type, why });
    };
    // Prefer one with a table of its own; otherwise take the first usable one.
    let why_not: Vec<_> = of_one.iter().map(|mount| mounts.why_unusable(mount, wanted)).collect();
    let usable = || of_one.iter().zip(&why_not).filter(|(_, why)| why.is_none()).map(|(mount, _)| *mount);
    let listed = usable().find(|mount| wanted.listed.contains(&mount.mount_point));
    let Some(mount) = listed.or_else(|| usable().next()) else {
        return skip(of_one[0], why_not.into_iter().flatten().next().unwrap_or_default().to_owned());
    };
    if NEVER.contains(&mount.fs_type.as_str()) {
        return skip(mount, format!("{} is never written, so it has nothing to trim", mount.fs_type));
    }
    if mount.is_served() {
        return skip(
            mount,
            "a process serves it (FUSE), and the daemon must not wait for that process".to_owned(),
        );
    }
    if !wanted.all && !wanted.listed.contains(&mount.mount_point) {
        return skip(mount, "the configuration manages only listed file systems (`manage`)".to_owned());
    }
    let entries = of_one.iter().filter_map(|mount| fstab.get(&mount.mount_point)).flatten();
    if fstab::is_spared(&entries.collect::<Vec<_>>()) {
        return skip(mount, format!("{} in fstab", doctor::NO_TRIM));
    }
    let session_by = |devices: &[BlockDevice]| session(Kind::of(&mount.fs_type), devices.first()?);
    // The kernel reuses numbers of mounts and devices.
    let known = known.of(mount, Instant::now()).filter(|known| session_by(&known.devices) == known.session);
    let devices = match known.map_or_else(|| devices_of(mount), |known| Ok(known.devices.clone())) {
        Ok(devices) => devices,
        Err(error) => return skip(mount, error.to_string()),
    };
    if let Some(device) = devices.iter().find(|device| device.is_read_only()) {
        return skip(mount, format!("its device {} is read-only", device.name));
    }
    if devices.iter().all(|device| device.limits.max.0 == 0) {
        let why = format!(
            "its device does not accept discards; `trimwise doctor {}` says why",
            mount.mount_point.display()
        );
        return skip(mount, why);
    }
    if let Some(why) = doctor::why_not_on_this_kernel(host, mounts.all, mount) {
        return skip(mount, why);
    }
    for other in of_one.iter().filter(|other| other.id != mount.id) {
        skip(other, format!("the same file system as {}", mount.mount_point.display()));
    }
    found.candidates.push(Candidate {
        path: host.path(&mount.mount_point),
        layers: known.map_or_else(
            || doctor::layers(&HostRoot::default(), devices.iter().map(|device| &device.sysfs)),
            |known| known.layers.clone(),
        ),
        reports_failures: known.map_or_else(|| reports_failures(&devices), |known| known.reports_failures),
        session: session_by(&devices),
        loan: known.map_or_else(
            || {
                let devices: Vec<_> = devices.iter().map(|device| device.sysfs.clone()).collect();
                doctor::loan(&HostRoot::default(), mounts.all, mount, &devices)
            },
            |known| known.loan.clone(),
        ),
        mount: mount.clone(),
        devices,
    });
}

#[cfg(test)]
mod tests {
    use trimwise_linux::mount::parse_mountinfo;

    use super::*;

    #[test]
    fn regression_mounts_of_an_indirect_map_are_on_demand_too() {
        let mounts = parse_mountinfo(
            b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 0:40 / /auto rw - autofs map rw\n\
            22 21 8:2 / /auto/data rw - ext4 /dev/sdb rw\n23 20 0:41 / /direct rw - autofs map rw\n\
            24 23 8:3 / /direct rw - xfs /dev/sdc rw\n25 20 8:4 / /srv rw - xfs /dev/sdd rw\n",
        );
        let real = mounts.iter().filter(|mount| mount.fs_type != "autofs");
        let index = Mounts::new(&mounts);
        let on_demand: Vec<u64> =
            real.filter(|mount| index.is_on_demand(mount)).map(|mount| mount.id).collect();
        assert_eq!(on_demand, [22, 24]);
    }

    #[test]
    fn mounts_of_one_file_system_are_grouped_and_later_ones_cover_earlier_ones() {
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
        let index = Mounts::new(&early);
        let covered: Vec<u64> =
            early.iter().filter(|mount| index.is_covered(mount)).map(|mount| mount.id).collect();
        assert_eq!(covered, [23, 30], "not by the root, which is listed later");
        let index = Mounts::new(&mounts);
        let covered = mounts.iter().filter(|mount| index.is_covered(mount)).map(|mount| mount.id);
        assert_eq!(covered.collect::<Vec<_>>(), [23]);
    }
}
