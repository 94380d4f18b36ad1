//! Finds what uses block devices without a mount here: mounts in other mount namespaces (containers), and processes that
//! have a device open (Ceph OSDs, virtual machines, databases). fstrim reaches none of them; the report says what trims each.
//!
//! The work is bounded: one link a process tells its namespace, each namespace's mounts are read once, and descriptors are
//! looked at only if a device that accepts TRIM is left that nothing else explains.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;

use super::Finding;
use super::graph::{Graph, Kind};
use crate::block_device::{SysBlock, devices_in_sysfs, of_node};
use crate::code::Code;
use crate::host_root::HostRoot;
use crate::mount::{Mount, parse_mountinfo};
use crate::privilege::advice;
use crate::text::quoted;

const PROCESSES_MAX: usize = 32_768;
const NAMESPACES_MAX: usize = 512;
const DESCRIPTORS_MAX: usize = 200_000;
const DEVICES_MAX: usize = 4096;
/// Maximum number of devices or mounts that a finding names.
const SHOWN_MAX: usize = 3;

/// Programs that open devices without storing anything there.
const ONLOOKERS: [&str; 10] = [
    "systemd-udevd",
    "udevd",
    "multipathd",
    "smartd",
    "udisksd",
    "dmeventd",
    "lvmetad",
    "iscsid",
    "systemd",
    "trimwised",
];

/// A kind of program that uses devices as they are.
struct User {
    /// Beginnings of its name in /proc/PID/comm.
    programs: &'static [&'static str],
    code: Code,
    what: &'static str,
    mend: &'static str,
    commands: &'static [&'static str],
}

const USERS: [User; 3] = [
    // https://docs.ceph.com/en/latest/rados/configuration/bluestore-config-ref/, https://github.com/rook/rook/issues/6964
    User {
        programs: &["ceph-osd", "bstore"],
        code: Code::CephOsd,
        what: "a Ceph OSD (BlueStore), which discards only if bdev_enable_discard is set; it is off by default",
        mend: "`ceph config get osd bdev_enable_discard` shows it. To switch it on: `ceph config set osd bdev_enable_discard true`, \
               with bdev_async_discard, too, so that writes do not wait; try it on one OSD, since some drives get slow",
        commands: &["ceph config get osd bdev_enable_discard"],
    },
    User {
        programs: &["qemu", "kvm", "cloud-hyperviso", "firecracker"],
        code: Code::DeviceRaw,
        what: "the disk of a virtual machine, whose guest must trim it, and its disk must be set to pass that on (discard=unmap)",
        mend: "run `trimwise doctor` in the guest; on this host look for discard='unmap' in `virsh dumpxml VM`, or in `qm config VMID`",
        commands: &[],
    },
    User {
        programs: &["postgres", "mysqld", "mariadbd", "oracle", "ora_", "asm_", "db2sysc", "scylla"],
        code: Code::DeviceRaw,
        what: "a database on the device itself, which no fstrim reaches",
        mend: "see whether the database discards what it frees; most do not",
        commands: &[],
    },
];

const OTHER: User = User {
    programs: &[],
    code: Code::DeviceRaw,
    what: "used without a file system that is mounted here, so no fstrim reaches it",
    mend: "only the program that uses it can discard what it frees",
    commands: &[],
};

/// Reports what uses block devices elsewhere than in these mounts.
pub(super) fn elsewhere(root: &HostRoot, mounts: &[Mount]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let processes: Vec<String> = root
        .names("/proc")
        .into_iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .take(PROCESSES_MAX)
        .collect();
    let (namespaces, hidden) = in_namespaces(root, mounts, &processes, &mut findings);
    findings.extend(of_pools(root, mounts));
    let mut left = left_over(root, mounts, &namespaces);
    let mut by_user: BTreeMap<(usize, String), BTreeSet<String>> = BTreeMap::new();
    // An OSD whose process is in a container, or not running, is known by its volume's name.
    left.retain(|device| {
        let name = device.text("dm/name").unwrap_or_default();
        let is_osd = name.starts_with("ceph-") && name.contains("-osd-");
        if is_osd {
            by_user.entry((0, String::new())).or_default().insert(device.name());
        }
        !is_osd
    });
    for device in root.names("/var/lib/ceph/osd").iter().take(DEVICES_MAX) {
        let block = root.link(format!("/var/lib/ceph/osd/{device}/block"));
        let block = block.and_then(|node| of_node(root, node.to_str()?).ok().flatten());
        if let Some(at) = block.and_then(|block| left.iter().position(|device| *device == block)) {
            by_user.entry((0, String::new())).or_default().insert(left.remove(at).name());
        }
    }
    // Without a device left over, there is nothing that they could use.
    if !left.is_empty() {
        findings.extend((hidden > 0).then(|| {
            let names = shown(left.iter().map(SysBlock::name));
            Finding::new(
                Code::ProcessesHidden,
                "/proc",
                format!(
                    "{names} may be in use: the mounts and open devices of {hidden} of {} processes could not be looked at",
                    processes.len()
                ),
            )
            .mended_by(advice("run `trimwise doctor` as root"))
        }));
        findings.extend(open_in(root, &processes, &left, DESCRIPTORS_MAX, &mut by_user));
    }
    findings.extend(by_user.into_iter().map(|((index, program), devices)| {
        let user = USERS.get(index).unwrap_or(&OTHER);
        let by = if program.is_empty() { String::new() } else { format!(" ({program})") };
        Finding::new(user.code, shown(devices.into_iter()), format!("{}{by}", user.what))
            .mended_by(user.mend)
            .with_commands(user.commands.iter().map(|&command| command.to_owned()), [])
    }));
    findings
}

fn shown(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let more = if names.len() > SHOWN_MAX {
        format!(" and {} more", names.len() - SHOWN_MAX)
    } else {
        String::new()
    };
    names[..names.len().min(SHOWN_MAX)].join(", ") + &more
}

/// Reports file systems that are mounted only in other mount namespaces. Returns those mounts, and the number of processes
/// whose namespace cannot be seen.
fn in_namespaces(
    root: &HostRoot,
    mounts: &[Mount],
    processes: &[String],
    findings: &mut Vec<Finding>,
) -> (Vec<Mount>, usize) {
    let (mut known, mut hidden) = (BTreeSet::new(), 0_usize);
    let mut found: Vec<(String, Mount)> = Vec::new();
    for process in processes {
        let link = match fs::read_link(root.path(format!("/proc/{process}/ns/mnt"))) {
            Ok(link) => link,
            Err(error) => {
                hidden += usize::from(error.kind() == ErrorKind::PermissionDenied);
                continue;
            }
        };
        if known.len() >= NAMESPACES_MAX || !known.insert(link) {
            continue;
        }
        let text = fs::read(root.path(format!("/proc/{process}/mountinfo"))).unwrap_or_default();
        for mount in parse_mountinfo(&text) {
            let is_known = |other: &Mount| other.is_same_file_system(&mount);
            let is_trimmable = super::TRIMMABLE.contains(&mount.fs_type.as_str()) && mount.has_device();
            if is_trimmable && !mounts.iter().any(is_known) && !found.iter().any(|(_, other)| is_known(other))
            {
                found.push((process.clone(), mount));
            }
        }
    }
    let mut by_container: BTreeMap<(String, String), Vec<&Mount>> = BTreeMap::new();
    for (process, mount) in &found {
        let container = container_of(root, process);
        by_container.entry((container.unwrap_or_default(), process.clone())).or_default().push(mount);
    }
    findings.extend(by_container.into_iter().map(|((container, process), mounts)| {
        let place = shown(mounts.iter().map(|mount| mount.device.clone()));
        let points: Vec<String> =
            mounts.iter().take(SHOWN_MAX).map(|mount| quoted(&mount.mount_point.display().to_string())).collect();
        let enter = |point: &String| format!("nsenter --target {process} --mount fstrim --verbose {point}");
        let (whose, commands) = match container.strip_prefix("lxc ") {
            Some(id) if root.has("/etc/pve") => (format!("the container {id}"), vec![format!("pct fstrim {}", quoted(id))]),
            Some(id) => (format!("the container {id} (LXC)"), points.iter().map(enter).collect()),
            None if container.is_empty() => (format!("process {process}"), points.iter().map(enter).collect()),
            None => (container, points.iter().map(enter).collect()),
        };
        Finding::new(
            Code::NamespaceMount,
            place,
            format!("mounted only in the mount namespace of {whose}, at {}: neither fstrim.timer nor trimwised of this host trims it", points.join(", ")),
        )
        .mended_by("trim it from this host at intervals, since a container may not trim")
        .with_commands(commands, [])
    }));
    (found.into_iter().map(|(_, mount)| mount).collect(), hidden)
}

/// Returns the container of a process by its control group: `lxc 101`, `docker`.
fn container_of(root: &HostRoot, process: &str) -> Option<String> {
    let groups = root.whole_text(format!("/proc/{process}/cgroup"))?;
    let lxc = groups.split(['/', '\n']).zip(groups.split(['/', '\n']).skip(1)).find_map(|(part, next)| {
        let payload = ["lxc.payload.", "lxc.monitor."].iter().find_map(|start| part.strip_prefix(start));
        payload.or_else(|| ["lxc", "lxc.payload", "lxc.monitor"].contains(&part).then_some(next))
    });
    if let Some(id) = lxc.filter(|id| !id.is_empty()) {
        return Some(format!("lxc {id}"));
    }
    let managers = [
        ("kubepods", "a pod of Kubernetes"),
        ("docker", "a container of Docker"),
        ("libpod", "a container of Podman"),
        ("machine.slice", "a machine of systemd-nspawn or libvirt"),
    ];
    managers.iter().find(|(mark, _)| groups.contains(mark)).map(|(_, name)| (*name).to_owned())
}

/// Reports pools of ZFS that are imported and have no file system mounted here: for volumes alone, or for containers.
fn of_pools(root: &HostRoot, mounts: &[Mount]) -> Vec<Finding> {
    let is_mounted =
        |pool: &String| mounts.iter().any(|mount| super::unchecked::pool_of(mount) == Some(pool));
    let folders = root.names("/proc/spl/kstat/zfs").into_iter();
    let pools =
        folders.filter(|name| root.has(format!("/proc/spl/kstat/zfs/{name}/state")) && !is_mounted(name));
    pools.map(|pool| super::unchecked::of_pool(&pool, &[])).collect()
}

/// Returns the devices that accept TRIM and lie below none of these mounts, no swap area and no other device.
fn left_over(root: &HostRoot, mounts: &[Mount], namespaces: &[Mount]) -> Vec<SysBlock> {
    let mounted = mounts.iter().chain(namespaces).filter(|mount| mount.has_device());
    let mut tops: Vec<SysBlock> =
        mounted.filter_map(|mount| devices_in_sysfs(root, mount).ok()).flatten().collect();
    let swaps = root.whole_text("/proc/swaps").unwrap_or_default();
    let swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    tops.extend(swaps.filter_map(|node| of_node(root, node).ok().flatten()));
    let graph = Graph::of(root, &[], &tops);
    let below: BTreeSet<String> = graph.nodes.iter().map(|node| node.name.clone()).collect();
    let devices = root.names("/sys/class/block").into_iter().take(DEVICES_MAX);
    let devices =
        devices.filter(|name| !below.contains(name)).filter_map(|name| SysBlock::named(root, name).ok());
    let is_left = |device: &SysBlock| {
        device.queue("discard_max_bytes").is_ok_and(|max| max > 0)
            && device.number("ro").unwrap_or(0) == 0
            && device.holders().next().is_none()
            && device.partitions().next().is_none()
            && !(device.name().starts_with("loop") && device.backing_file().is_none())
    };
    devices.filter(is_left).collect()
}

/// Finds the processes that have one of these devices open. Returns what could not be looked at.
fn open_in(
    root: &HostRoot,
    processes: &[String],
    devices: &[SysBlock],
    most: usize,
    by_user: &mut BTreeMap<(usize, String), BTreeSet<String>>,
) -> Option<Finding> {
    let mut left = most;
    let mut nodes: BTreeMap<String, Option<SysBlock>> = BTreeMap::new();
    for process in processes {
        let Ok(entries) = fs::read_dir(root.path(format!("/proc/{process}/fd"))) else { continue };
        let mut program = None;
        for entry in entries.flatten() {
            if left == 0 {
                let what = format!("of the processes' open files only the first {most} were looked at");
                return Some(Finding::new(Code::ProcessesHidden, "/proc", what));
            }
            left -= 1;
            let Ok(link) = fs::read_link(entry.path()) else { continue };
            let Some(node) = link.to_str().filter(|link| link.starts_with("/dev/")) else { continue };
            let device = nodes.entry(node.to_owned()).or_insert_with(|| of_node(root, node).ok().flatten());
            let Some(device) = device.as_ref().filter(|device| devices.contains(device)) else { continue };
            let program =
                program.get_or_insert_with(|| root.text(format!("/proc/{process}/comm")).unwrap_or_default());
            if ONLOOKERS.contains(&program.as_str()) {
                break;
            }
            let is_its = |user: &User| user.programs.iter().any(|start| program.starts_with(start));
            let index = USERS.iter().position(is_its).unwrap_or(USERS.len());
            by_user.entry((index, program.clone())).or_default().insert(device.name());
        }
    }
    None
}

/// Notes the cache of a bcache, which only discards buckets if told to (Documentation/admin-guide/bcache.rst).
pub(super) fn of_cache(graph: &Graph) -> Option<Finding> {
    let cache = graph.nodes.iter().find(|node| node.device.has("bcache/discard"))?;
    let is_off = cache.device.number("bcache/discard").is_ok_and(|value| value == 0);
    let file = format!("/sys/block/{}/bcache/discard", cache.name);
    (is_off && !matches!(cache.kind, Kind::Bcache)).then(|| {
        Finding::new(
            Code::BcacheCache,
            cache.name.clone(),
            "the cache of a bcache: no fstrim reaches it, and bcache does not discard the buckets that it frees (it is off by default)",
        )
        .mended_by("switch it on, if the drive's discards are quick: bcache discards each bucket before it uses it again")
        .with_commands([format!("echo 1 > {file}")], [format!("echo 0 > {file}")])
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use trimwise_testing::fake_host::{GIB, Host, SDA};

    use super::*;

    #[test]
    fn open_files_are_looked_at_up_to_a_number() {
        let host = Host::new("");
        host.device(SDA, "8:0", GIB).file("proc/7/comm", "tgtd").file("proc/7/fd/x", "");
        symlink("/dev/sda", host.0.path().join("proc/7/fd/5")).unwrap();
        let root = HostRoot::new(host.0.path());
        let device = [SysBlock::named(&root, "sda").unwrap()];
        for (most, expected) in [(1, Some("unchecked.processes.hidden")), (2, None)] {
            let mut by_user = BTreeMap::new();
            let found = open_in(&root, &["7".to_owned(), "8".to_owned()], &device, most, &mut by_user);
            assert_eq!(found.map(|one| one.code.as_str()), expected, "{most}");
            if most == 2 {
                let user = (USERS.len(), "tgtd".to_owned());
                assert_eq!(by_user, [(user, ["sda".to_owned()].into())].into());
            }
        }
    }
}
