//! What discards of a file system are for, at each layer below it: the speed and life of flash, or space and memory that
//! come back to whoever lends them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use trimwise::units::{Bytes, SECTOR_BYTES};

use super::Finding;
use super::disk::{Disk, Hypervisor, Transport};
use super::ending::Stack;
use super::graph::{Graph, Kind, Node};
use super::kernels::Release;
use super::mapping::is_thin;
use crate::code::Code;
use crate::held::{self, Fill};
use crate::host_root::HostRoot;
use crate::mount::{Mount, nearest};
use crate::text::quoted;
use crate::today::{MountedBy, Today};

/// A pool this full is reported, in percent: dmeventd warns from there on, too (`WARNING_THRESH` in LVM's
/// daemons/dmeventd/plugins/thin/dmeventd_thin.c).
pub(super) const NEARLY_FULL_PERCENT: u64 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// The drive copies less, so it writes faster and lasts longer.
    Flash,
    /// Space comes back to a pool, an image's file system, or a host outside.
    Space,
    /// Memory comes back.
    Memory,
    /// A shingled disk rewrites fewer bands.
    Shingles,
}

/// Who lends space or memory, and gets it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lender {
    /// A pool of this host that several volumes share.
    Pool,
    /// The file system that holds an image.
    File,
    /// This host's memory.
    Memory,
    /// A host outside, a cloud or a storage system. What it does with a discard cannot be seen from here.
    Outside,
}

/// What a discard is for at one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Purpose {
    pub aim: Aim,
    /// Kernel name of the layer.
    pub layer: String,
    /// Who gains, in words: `in thin pool vg-pool`.
    pub whose: String,
    /// The image that the space is lent for.
    pub image: Option<String>,
    /// `None` if nothing is lent.
    pub lender: Option<Lender>,
    /// True if a discard of the file system arrives there; `None` if sysfs does not tell.
    pub is_reached: Option<bool>,
    /// Space or memory that the layer holds for this file system; `None` if unknown.
    pub held_bytes: Option<u64>,
    /// About what trimming would give back: what is held, less what the file system uses and what its own structures take
    /// up at most.
    pub could_free_bytes: Option<u64>,
    /// How full that is which lends the space; `None` if unknown.
    pub fill: Option<Fill>,
    /// The soonest that it can be full, in days, if every write since boot took new space and it goes on so.
    pub full_in_days_min: Option<u64>,
}

impl Purpose {
    /// About what trimming would give back; `None` if that is unknown, or not worth a word.
    pub fn could_free(&self) -> Option<Bytes> {
        const LITTLE: u64 = 16 << 20;
        self.could_free_bytes.filter(|&bytes| bytes >= LITTLE).map(Bytes)
    }

    /// What it is for, in words without a verb: `space in thin pool vg-pool (83 % full)`.
    pub fn words(&self) -> String {
        let full = self.fill.as_ref().map_or(String::new(), |fill| format!(" ({} % full)", fill.percent()));
        let image = self.image.as_ref().map_or(String::new(), |image| format!(", for {image}"));
        match self.aim {
            Aim::Flash => format!("speed and life of {}", self.whose),
            Aim::Space => format!("space {}{full}{image}", self.whose),
            Aim::Memory => format!("memory {}{full}", self.whose),
            Aim::Shingles => format!("speed of {}", self.whose),
        }
    }
}

/// Returns what discards of a file system are for.
pub(crate) fn of_mount(root: &HostRoot, mounts: &[Mount], mount: &Mount, graph: &Graph) -> Vec<Purpose> {
    purposes(&Stack { root, mount, mounts, graph, host: root })
}

/// Returns what discards of the file system are for, from the top layer down.
pub(super) fn purposes(stack: &Stack<'_>) -> Vec<Purpose> {
    let top = stack.graph.tops.first().map(|&top| &stack.graph.nodes[top]);
    let size = top.and_then(|top| top.device.number("size").ok()).unwrap_or(0).saturating_mul(SECTOR_BYTES);
    // What the file system counts as neither used nor free: journal, inode tables.
    let taken = stack.host.usage(&stack.mount.mount_point);
    let taken = taken.map(|[used, _, whole]| used.0.saturating_add(size.saturating_sub(whole.0)));
    let arrives = arrivals(stack);
    let holding_data = stack.graph.holding_data();
    let of = |index: usize| {
        let node = &stack.graph.nodes[index];
        let (aim, lender, whose, image) = aim(stack, node)?;
        let is_reached = match node.kind {
            // Its volume takes the discard; what it passes on is another matter.
            Kind::ThinPool(_) => arrives[index],
            Kind::Vdo(_) => both(arrives[index], node.discard_max.map(|max| max > 0)),
            // Whether holes in its file free anything is unknown.
            Kind::Loop(_) if !node.is_whole => None,
            _ => both(arrives[index], node.takes_trim()),
        };
        let held_bytes = held(stack, index);
        let fill = fill(stack, node);
        Some(Purpose {
            aim,
            layer: node.name.clone(),
            is_reached,
            lender,
            // zram compresses, so that its memory is not to be compared with what is used.
            could_free_bytes: held_bytes
                .zip(taken)
                .filter(|_| matches!(node.kind, Kind::Loop(_) | Kind::ThinPool(_)))
                .map(|(held, taken)| held.saturating_sub(taken)),
            held_bytes,
            full_in_days_min: fill.as_ref().and_then(|fill| full_in_days(stack, node, fill)),
            fill,
            whose,
            image,
        })
    };
    holding_data.into_iter().filter_map(of).collect()
}

/// Tells for each device whether a discard of the file system arrives at it.
fn arrivals(stack: &Stack<'_>) -> Vec<Option<bool>> {
    let graph = stack.graph;
    let mut arrives = vec![Some(false); graph.nodes.len()];
    graph.tops.iter().for_each(|&top| arrives[top] = Some(true));
    // A device is listed after those below it.
    for index in (0..graph.nodes.len()).rev() {
        let node = &graph.nodes[index];
        let passes_on = both(arrives[index], node.takes_trim());
        for &below in &node.below {
            arrives[below] = match (arrives[below], passes_on) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (None, _) | (_, None) => None,
                _ => Some(false),
            };
        }
    }
    arrives
}

fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (one, other) => Some(one? && other?),
    }
}

type Found = (Aim, Option<Lender>, String, Option<String>);

fn aim(stack: &Stack<'_>, node: &Node) -> Option<Found> {
    let space = |lender, whose: String| Some((Aim::Space, Some(lender), whose, None));
    match &node.kind {
        Kind::ThinPool(name) => space(Lender::Pool, format!("in thin pool {name}")),
        Kind::Vdo(name) => space(Lender::Pool, format!("in VDO {name}")),
        // A loop device over a block device lends nothing itself.
        Kind::Loop(file) if node.below.is_empty() => {
            let holder = nearest(stack.mounts, Path::new(file)).map(|index| &stack.mounts[index]);
            match holder {
                Some(mount) if ["tmpfs", "ramfs"].contains(&&*mount.fs_type) => {
                    Some((Aim::Memory, Some(Lender::Memory), format!("that {file} takes up"), None))
                }
                Some(mount) => {
                    let whose = format!("on {}", mount.mount_point.display());
                    Some((Aim::Space, Some(Lender::File), whose, Some(file.clone())))
                }
                None => space(Lender::File, format!("for {file}")),
            }
        }
        Kind::Disk(disk) => of_disk(node, disk),
        _ => None,
    }
}

fn of_disk(node: &Node, disk: &Disk) -> Option<Found> {
    let name = &node.name;
    let space = |whose: String| Some((Aim::Space, Some(Lender::Outside), whose, None));
    match (disk.transport, disk.hypervisor) {
        _ if name.starts_with("zram") || name.starts_with("ram") => {
            Some((Aim::Memory, Some(Lender::Memory), format!("that {name} takes up"), None))
        }
        (_, Some(Hypervisor::Ebs | Hypervisor::Google)) => space(format!("in the cloud's volume {name}")),
        (_, Some(_)) => space(format!("on the host outside, for {name}")),
        (Transport::Network("RBD"), _) => space(format!("in the Ceph pool of {name}")),
        (Transport::Network(protocol), _) => space(format!("on the other end of {name} ({protocol})")),
        (Transport::Zvol, _) => space(format!("in the ZFS pool of {name}")),
        (Transport::Drbd | Transport::Other, _) => None,
        (Transport::Scsi, _) if disk.rotational => space(format!("in the LUN {name}")),
        _ if disk.rotational && node.takes_trim() != Some(true) => None,
        _ if disk.rotational => Some((Aim::Shingles, None, name.clone(), None)),
        _ => Some((Aim::Flash, None, name.clone(), None)),
    }
}

/// Returns the mapping of the thin volume that lies on this pool.
pub(super) fn thin_volume(stack: &Stack<'_>, pool: usize) -> Option<String> {
    let mut above = stack.graph.nodes.iter().filter(|node| node.below.contains(&pool));
    above.find(|node| is_thin(stack, node))?.device.text("dm/name")
}

/// Space that a layer holds for the file system, by its own count.
fn held(stack: &Stack<'_>, index: usize) -> Option<u64> {
    let node = &stack.graph.nodes[index];
    match &node.kind {
        Kind::ThinPool(_) => held::of_thin_volume(&stack.host.status(&thin_volume(stack, index)?)?),
        // Of a part of it, nobody knows what the rest holds.
        Kind::Loop(file) if is_whole_file(stack, index) => held::of_file(&stack.root.path(file)),
        Kind::Disk(_) if node.name.starts_with("zram") => held::of_zram(&node.device),
        _ => None,
    }
}

/// True if a loop device shows its whole file, and the file system lies on all of it.
fn is_whole_file(stack: &Stack<'_>, index: usize) -> bool {
    let node = &stack.graph.nodes[index];
    let is_cut = |file| node.device.number(file).is_ok_and(|bytes| bytes > 0);
    let is_shared =
        stack.graph.nodes.iter().any(|above| above.below.contains(&index) && above.kind == Kind::Partition);
    !is_cut("loop/offset") && !is_cut("loop/sizelimit") && !is_shared
}

fn fill(stack: &Stack<'_>, node: &Node) -> Option<Fill> {
    match &node.kind {
        Kind::ThinPool(name) => Fill::of_thin_pool(&stack.host.status(name)?, &stack.host.table(name)?),
        Kind::Vdo(name) => Fill::of_vdo(&stack.host.status(name)?),
        Kind::Loop(file) => {
            let holder = &stack.mounts[nearest(stack.mounts, Path::new(file))?];
            let [used, size, _] = stack.host.usage(&holder.mount_point)?.map(|bytes| bytes.0);
            let (metadata_percent, chunk_bytes) = (None, None);
            Some(Fill {
                used_bytes: used,
                size_bytes: size,
                metadata_percent,
                chunk_bytes,
                is_stopped: false,
            })
        }
        _ => None,
    }
}

/// The soonest that a pool can be full, by the writes that its data device counted since boot.
fn full_in_days(stack: &Stack<'_>, node: &Node, fill: &Fill) -> Option<u64> {
    const DAY_S: f64 = 86_400.0;
    let data = &stack.graph.nodes[*node.below.first()?].device;
    let written = data.stat().ok()?.written.0;
    let uptime = stack.root.text("/proc/uptime")?;
    let up_s: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let free = fill.size_bytes.saturating_sub(fill.used_bytes);
    // Less than a day of writes says nothing about the next days.
    (written > 0 && up_s >= DAY_S).then(|| (free as f64 / (written as f64 / up_s * DAY_S)) as u64)
}

/// Adds what purposes say of how the file system is trimmed today.
pub(super) fn findings(
    stack: &Stack<'_>,
    purposes: &[Purpose],
    today: &Today,
    has_systemd: bool,
    findings: &mut Vec<Finding>,
) {
    let lost = nothing_returns(purposes, today).map(|one| nothing_comes_back(stack, one, today, has_systemd));
    if let Some(mut lost) = lost {
        // It says the same, and more.
        findings.retain(|one| one.code != Code::NothingTrims);
        // What keeps a timer from it has its own remedy.
        if findings.iter().any(|one| one.wrong && LEFT_OUT.contains(&one.code)) {
            (lost.mend, lost.commands, lost.undo) = (None, Vec::new(), Vec::new());
        }
        findings.push(lost);
    }
    findings.extend(too_coarse(stack, purposes, today));
    of_fill(purposes, findings);
}

/// Why a file system is left out by what would trim it.
const LEFT_OUT: [Code; 6] = [
    Code::TimerMasked,
    Code::TimerRunsNothing,
    Code::CronNotExecutable,
    Code::ReadOnlyInFstab,
    Code::MissingInFstab,
    Code::LeftOut,
];

/// Reports that nothing gives back what is lent: a problem where a pool of this host can run full.
fn nothing_comes_back(stack: &Stack<'_>, one: &Purpose, today: &Today, has_systemd: bool) -> Finding {
    let point = stack.mount.mount_point.display().to_string();
    let what = match one.aim {
        Aim::Memory => "memory of what was removed stays taken",
        _ => "space of what was removed stays taken there",
    };
    let could = match (one.could_free_bytes, one.lender) {
        (Some(_), _) => one.could_free().map_or_else(
            || "today there is hardly any".to_owned(),
            |bytes| format!("trimming could give back about {bytes}"),
        ),
        (None, Some(Lender::Outside)) => "how much cannot be seen from here".to_owned(),
        (None, _) => "how much is unknown".to_owned(),
    };
    let image = one.image.as_ref().filter(|image| held::is_allocated(&stack.root.path(image)));
    let reserved = match image {
        Some(_) => ". All of its image is allocated, perhaps on purpose; a trim gives that up, too",
        None => "",
    };
    let finding = Finding::new(
        Code::NothingComesBack,
        point.clone(),
        format!("nothing gives back the {}: {what}; {could}{reserved}", one.words()),
    );
    let fstrim = format!("fstrim --verbose {}", quoted(&point));
    let is_listed = matches!(today.mounted_by, MountedBy::Fstab { .. });
    let finding = match (one.aim, has_systemd && is_listed) {
        (Aim::Memory, _) if stack.mount.fs_type != "xfs" => finding
            .mended_by("mount it with `discard`, now and wherever it is mounted at boot, and trim once what was freed before")
            .with_commands(
                [format!("mount -o remount,discard {}", quoted(&point)), fstrim],
                [format!("mount -o remount,nodiscard {}", quoted(&point))],
            ),
        (_, true) => finding
            .mended_by("trim it now, and once a week from then on")
            .with_commands(
                [fstrim, "systemctl enable --now fstrim.timer".to_owned()],
                ["systemctl disable --now fstrim.timer".to_owned()],
            ),
        (_, false) => finding
            .mended_by("trim it now; and at intervals, by a job of cron or by trimwised, which needs no line in /etc/fstab")
            .with_commands([fstrim], []),
    };
    // A pool that runs full stops all of its volumes.
    Finding { wrong: one.lender == Some(Lender::Pool), ..finding }
}

/// The loan of which nothing comes back today; `None` if something trims the file system.
pub fn nothing_returns<'p>(purposes: &'p [Purpose], today: &Today) -> Option<&'p Purpose> {
    purposes.iter().find(|one| !today.is_trimmed() && one.lender.is_some() && one.is_reached == Some(true))
}

/// Notes that pieces smaller than what a lender takes back stay there where the file system only discards what it
/// frees, piece by piece.
fn too_coarse(stack: &Stack<'_>, purposes: &[Purpose], today: &Today) -> Option<Finding> {
    /// Smaller granules are those of file systems and drives.
    const COARSE: Bytes = Bytes::kib(64);
    let lender = purposes.iter().find(|one| one.lender.is_some() && one.is_reached == Some(true))?;
    // Each layer down to the lender drops what is smaller than its own granules.
    let holding_data = stack.graph.holding_data();
    let down_to = holding_data.iter().position(|&index| stack.graph.nodes[index].name == lender.layer)?;
    let way = holding_data[..=down_to].iter().map(|&index| &stack.graph.nodes[index]);
    let of_node = |node: &'_ Node| node.device.queue("discard_granularity").ok().map(Bytes);
    let (granule, place) = way.filter_map(|node| Some((of_node(node)?, &node.name))).max()?;
    let kernel = stack.root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let fstrim_skips = stack.mount.fs_type == "ext4" && !Release::of(stack.root, &kernel).forgets_trims();
    if !today.is_online() || granule < COARSE || !today.at_intervals.is_empty() && !fstrim_skips {
        return None;
    }
    let point = quoted(&stack.mount.mount_point.display().to_string());
    let remount = |option: &str| format!("mount -o remount,{option} {point}");
    let timer = |verb: &str| format!("systemctl {verb} --now fstrim.timer");
    let (mend, commands, undo) = match (fstrim_skips, today.at_intervals.is_empty()) {
        (false, _) => (
            "fstrim as well, which sends neighbouring free pieces as one",
            vec![timer("enable")],
            vec![timer("disable")],
        ),
        (true, is_alone) => (
            "fstrim, which sends neighbouring free pieces as one, and no `discard` (change its line in /etc/fstab, too): \
             mounted with it, ext4 of such kernels lets fstrim skip each group that it trimmed once",
            [remount("nodiscard")].into_iter().chain(is_alone.then(|| timer("enable"))).collect(),
            [remount(&today.discard)].into_iter().chain(is_alone.then(|| timer("disable"))).collect(),
        ),
    };
    Some(
        Finding::new(
            Code::GranularityTooCoarse,
            place.clone(),
            format!(
                "only whole, aligned pieces of {granule} come back of the {} (discard_granularity). What its mount option \
                 frees in smaller pieces stays taken: `{}` alone never gives it back",
                lender.words(),
                today.discard
            ),
        )
        .mended_by(mend)
        .with_commands(commands, undo),
    )
}

/// Adds findings on lenders that are nearly full: a problem for a pool, which stops all of its volumes.
fn of_fill(purposes: &[Purpose], findings: &mut Vec<Finding>) {
    for one in purposes {
        let Some(fill) = &one.fill else { continue };
        let metadata = fill.metadata_percent.unwrap_or(0);
        if !fill.is_stopped && fill.percent().max(metadata) < NEARLY_FULL_PERCENT {
            continue;
        }
        let whose = one.whose.strip_prefix("in ").unwrap_or(&one.whose);
        let gain = match one.could_free() {
            Some(bytes) => format!("trimming this file system gives back about {bytes}; "),
            None => String::new(),
        };
        if one.lender != Some(Lender::Pool) {
            let image = one.image.as_deref().unwrap_or("the image");
            let what = format!(
                "the file system {whose} is {} % full; when it is full, {image} cannot grow, and writes to this file \
                 system fail",
                fill.percent()
            );
            let note = Finding::new(Code::PoolNearlyFull, one.layer.clone(), what);
            let note = note.mended_by(format!("{gain}or make room {whose}"));
            findings.push(Finding { wrong: false, ..note });
            continue;
        }
        let shares = match fill.metadata_percent {
            Some(metadata) => {
                format!("{} % of its space and {metadata} % of its metadata are", fill.percent())
            }
            None => format!("{} % of its space is", fill.percent()),
        };
        let then = match (fill.is_stopped, one.full_in_days_min) {
            (true, _) => "it takes no more new writes: all of its volumes stop".to_owned(),
            (false, Some(days)) => format!(
                "when either is used up, all of its volumes stop; at the rate of all writes since boot, not before {days} days"
            ),
            (false, None) => "when it is used up, all of its volumes stop".to_owned(),
        };
        findings.push(
            Finding::new(
                Code::PoolNearlyFull,
                one.layer.clone(),
                format!("{whose} runs full: {shares} used; {then}"),
            )
            .mended_by(format!(
                "{gain}trim every file system that lies on it, remove snapshots that nobody needs, or extend it (`lvextend`, \
                 `lvextend --poolmetadatasize`)"
            )),
        );
    }
}

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::{GIB, Host, SDA};

    use super::*;
    use crate::block_device::SysBlock;
    use crate::doctor::ending::Answers;
    use crate::mount::mounts;

    const TABLE: (&str, &str) = ("vg-pool-tpool", "0 8192 thin-pool 254:0 254:1 128 0 1 skip_block_zeroing");
    /// 3.2 GiB of 4 GiB in chunks of 64 KiB.
    const POOL: &str =
        "0 8388608 thin-pool 1 130/1024 52429/65536 - rw discard_passdown queue_if_no_space - 1024";
    const VOLUME: (&str, &str) = ("vg-thin", "0 8388608 thin 6291456 8388607");

    /// What is found on a thin volume whose pool has this status, a day after boot, when its disk had written 2 KiB.
    fn found(pool: &str) -> (Vec<Purpose>, Vec<Finding>) {
        const VOLUMES: [(&str, &str, &str); 4] = [
            ("dm-0", "vg-pool_tmeta", "LVM-1"),
            ("dm-1", "vg-pool_tdata", "LVM-2"),
            ("dm-2", "vg-pool-tpool", "LVM-3-tpool"),
            ("dm-4", "vg-thin", "LVM-4"),
        ];
        let host = Host::new("22 1 254:4 / /data rw - xfs /dev/mapper/vg-thin rw\n");
        host.device(SDA, "8:0", GIB).file("proc/uptime", "86400.00 1.00\n");
        for (name, mapping, uuid) in VOLUMES {
            let place = format!("virtual/block/{name}");
            host.device(&place, &format!("254:{}", &name[3..]), GIB);
            host.file(&format!("sys/devices/{place}/dm/name"), mapping);
            host.file(&format!("sys/devices/{place}/dm/uuid"), uuid);
        }
        for (above, below) in [
            ("dm-0", SDA),
            ("dm-1", SDA),
            ("dm-2", "virtual/block/dm-0"),
            ("dm-2", "virtual/block/dm-1"),
            ("dm-4", "virtual/block/dm-2"),
        ] {
            host.slave(&format!("virtual/block/{above}"), below);
        }
        let root = HostRoot::new(host.0.path());
        let mounts = mounts(&root).unwrap();
        let graph = Graph::of(&root, &mounts, &[SysBlock::named(&root, "dm-4").unwrap()]);
        let answers = Answers {
            tables: &[TABLE],
            statuses: &[("vg-pool-tpool", pool), VOLUME],
            usages: &[("/data", 1 << 30, 4 << 30)],
        };
        let stack = Stack { root: &root, mount: &mounts[0], mounts: &mounts, graph: &graph, host: &answers };
        let purposes = purposes(&stack);
        let mut findings = Vec::new();
        of_fill(&purposes, &mut findings);
        (purposes, findings)
    }

    #[test]
    fn a_pool_tells_what_it_holds_and_how_soon_it_can_be_full() {
        let (purposes, _) = found(POOL);
        let pool = &purposes[0];
        assert_eq!(pool.words(), "space in thin pool vg-pool-tpool (80 % full)");
        // 6,291,456 sectors are mapped, and the file system uses 1 GiB.
        assert_eq!((pool.held_bytes, pool.could_free_bytes), (Some(3 << 30), Some(2 << 30)));
        // 13,107 chunks of 64 KiB are left; 7 sectors were written in the first day.
        assert_eq!(pool.full_in_days_min, Some(13_107 * 65_536 / (7 * 512)));
        assert_eq!((purposes[1].aim, purposes[1].fill.as_ref()), (Aim::Flash, None));
        // A pool on another host, or without root: unknown, and not empty.
        let (unknown, findings) = found("");
        assert_eq!((unknown[0].fill.as_ref(), findings), (None, Vec::new()));
    }

    #[test]
    fn a_pool_that_runs_full_is_a_problem() {
        let said = |status: &str| {
            let (_, findings) = found(status);
            findings.into_iter().map(|one| (one.code.as_str(), one.wrong, one.what)).collect::<Vec<_>>()
        };
        let with = |data: &str, metadata: &str| {
            said(&POOL.replace("52429/65536", data).replace("130/1024", metadata))
        };
        assert_eq!(with("52428/65536", "819/1024"), [], "79 % of both");
        for (data, metadata, words) in [
            (
                "52429/65536",
                "130/1024",
                "80 % of its space and 12 % of its metadata are used; when either is used up",
            ),
            ("100/65536", "820/1024", "0 % of its space and 80 % of its metadata are used"),
            ("65536/65536", "130/1024", "100 % of its space"),
        ] {
            let [(code, wrong, what)] = &with(data, metadata)[..] else { panic!("{data}, {metadata}") };
            assert_eq!((*code, *wrong), ("space.pool.nearly-full", true));
            assert!(what.contains(words), "{what}");
        }
        let stopped = said(&POOL.replace(" rw ", " out_of_data_space "));
        assert!(
            stopped[0].2.ends_with("it takes no more new writes: all of its volumes stop"),
            "{stopped:?}"
        );
    }
}
