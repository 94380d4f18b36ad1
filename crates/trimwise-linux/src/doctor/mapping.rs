//! Explains why a mapping (device mapper, RAID, loop device) accepts no TRIM although everything below does, and what
//! helps.

use std::path::Path;

use super::ending::Stack;
use super::graph::{Kind, Node};
use super::{Finding, crypt};
use crate::block_device::{SysBlock, devices_in_sysfs, of_node};
use crate::code::Code;
use crate::mount::{Mount, nearest};
use crate::text::quoted;

const PARITY: &str = "/sys/module/raid456/parameters/devices_handle_discard_safely";
const LVM_PARITY: &str = "/sys/module/dm_raid/parameters/devices_handle_discard_safely";

pub(super) fn ending(stack: &Stack<'_>, stop: usize) -> Finding {
    let node = &stack.graph.nodes[stop];
    let table = table(stack, node);
    let target = table.as_deref().and_then(|table| table.split_whitespace().nth(2));
    let is_crypt = |name: &str| name.starts_with("veracrypt") || name.starts_with("truecrypt");
    let found =
        |code, what: String, mend: String| Finding::new(code, node.name.clone(), what).mended_by(mend);
    let reload = || reload(&node.kind).into_iter().flatten();
    match &node.kind {
        Kind::Raid(_) | Kind::Lvm(_) | Kind::Multipath(_) | Kind::Mapper(_) if !node.is_whole => found(
            Code::MappingCauseUnknown,
            format!("{} accepts no TRIM; the cause is unknown, since sysfs does not show everything below it", node.name),
            format!("see what is missing: `lsblk --inverse {}`", node.device.node().display()),
        ),
        Kind::Crypt(name, _) if table.as_deref().is_some_and(|table| table.contains("allow_discards")) => {
            let what = format!(
                "dm-crypt ({name}) passes TRIM on, but was opened before the devices below accepted any, and still has its \
                 limit from then"
            );
            found(Code::CryptOpenedBeforeTrim, what, "reload its table (cryptsetup asks for the passphrase)".to_owned())
                .with_commands(reload(), [])
        }
        Kind::Crypt(name, format) => crypt::ending(stack, node, name, format),
        Kind::Integrity(name) => {
            let what = format!("dm-integrity ({name}) drops TRIM: a trimmed sector would no longer match its checksum");
            match raid_with_integrity(name) {
                Some(volume) => {
                    let convert = |is_on: &str| [format!("lvconvert --yes --raidintegrity {is_on} {volume}")];
                    found(
                        Code::IntegrityNoTrim,
                        what,
                        "choose between TRIM and checksums: LVM RAID without integrity passes TRIM on, but no longer \
                         notices data that the disk corrupts. Undoing this writes all checksums again"
                            .to_owned(),
                    )
                    .with_commands(convert("n"), convert("y"))
                }
                None => found(
                    Code::IntegrityNoTrim,
                    what,
                    "to open it with `integritysetup open --allow-discards`, if it stands alone".to_owned(),
                )
                .beyond_this_host(),
            }
        }
        Kind::ThinPool(name) => thin_pool(stack, stop, name),
        Kind::Vdo(name) => found(
            Code::VdoKeepsTrim,
            format!(
                "VDO ({name}) reuses trimmed space itself, and does not pass TRIM on to the devices below"
            ),
            "to use the disk without VDO".to_owned(),
        )
        .beyond_this_host(),
        Kind::Snapshot(name) => found(
            Code::SnapshotNoTrim,
            format!("{name} is a snapshot, or has one: neither passes TRIM on, since they share blocks"),
            "to remove the snapshot (`lvs` lists it); thin volumes pass TRIM on even with snapshots".to_owned(),
        )
        .beyond_this_host(),
        Kind::Lvm(name) if target == Some("raid") || is_lvm_raid(stack, node) => lvm_raid(stack, node, name, table.as_deref()),
        Kind::Lvm(_) | Kind::Multipath(_) => older_than_below(node).with_commands(reload(), []),
        // Mappings of VeraCrypt and others have no UUID.
        Kind::Mapper(name) => match target.unwrap_or(if is_crypt(name) { "crypt" } else { "" }) {
            "linear" | "striped" => older_than_below(node).with_commands(reload(), []),
            "" => found(
                Code::MappingKindUnknown,
                format!("the device-mapper mapping {name} drops TRIM, or was loaded before the devices below accepted any"),
                format!(
                    "`dmsetup table {}` shows its kind: linear and striped pass TRIM on, crypt only with \
                     allow_discards, for which the program that opened it has an option",
                    quoted(name)
                ),
            ),
            "crypt" => found(
                Code::CryptDiscardsOff,
                format!("the dm-crypt mapping {name} drops TRIM, as dm-crypt does by default"),
                "open it with allow_discards, for which the program that opened it has an option; but only if others may \
                 see which blocks are free, and if it hides no second volume, whose data TRIM would destroy"
                    .to_owned(),
            ),
            target => found(
                Code::MappingNoTrim,
                format!("the device-mapper mapping {name} ({target}) drops TRIM"),
                "use a kind that passes it on: linear, striped, thin, crypt with allow_discards".to_owned(),
            ),
        },
        Kind::Raid(level) => raid(stack, node, level),
        Kind::Loop(file) => of_loop(stack, node, file),
        Kind::Bcache => found(
            Code::BcacheNoTrim,
            "bcache drops TRIM".to_owned(),
            "newer kernels pass it on to the backing device".to_owned(),
        )
        .beyond_this_host(),
        Kind::Partition | Kind::Disk(_) => found(
            Code::MappingCauseUnknown,
            format!("{} does not accept TRIM", node.name),
            String::new(),
        ),
    }
}

/// Returns the commands that reload the table of a device-mapper device, so that it takes its limits from below again;
/// `None` for other devices. LVM's own refresh skips an unchanged table.
pub(super) fn reload(kind: &Kind) -> Option<Vec<String>> {
    let by_dmsetup = |name: &str| {
        let name = quoted(name);
        vec![format!("dmsetup table {name} | dmsetup reload {name}"), format!("dmsetup resume {name}")]
    };
    Some(match kind {
        Kind::Crypt(name, format) => opened_to_trim(name, format, false)?.0,
        Kind::Multipath(name) => vec![format!("multipath -r {}", quoted(name))],
        Kind::Lvm(name) | Kind::ThinPool(name) | Kind::Mapper(name) | Kind::Snapshot(name) => {
            by_dmsetup(name)
        }
        _ => return None,
    })
}

/// Returns the commands that refresh the limits of a mapping while it is in use, if there are any.
pub(super) fn again(stack: &Stack<'_>, node: &Node) -> Option<Vec<String>> {
    match node.kind {
        Kind::Raid(_) => reassembled(stack, node),
        _ => reload(&node.kind),
    }
}

/// Returns true if this mapping drops TRIM because of its kind or a setting, so that reloading its table does not help.
/// If its table cannot be read, it goes by the kind.
pub(super) fn drops_by_itself(stack: &Stack<'_>, node: &Node) -> bool {
    let table = table(stack, node);
    let target = || table.as_deref().and_then(|table| table.split_whitespace().nth(2));
    match &node.kind {
        Kind::Crypt(..) => !table.as_deref().is_some_and(|table| table.contains("allow_discards")),
        Kind::Integrity(_) | Kind::Snapshot(_) | Kind::Vdo(_) | Kind::Bcache => true,
        Kind::Raid(level) => needs_parameter(stack, level),
        Kind::Lvm(_) => {
            let level = table.as_deref().and_then(|table| table.split_whitespace().nth(3));
            target() == Some("raid") && level.is_some_and(has_parity) && !is_on(stack, LVM_PARITY)
        }
        Kind::Mapper(_) => target().is_some_and(|target| !["linear", "striped"].contains(&target)),
        _ => false,
    }
}

/// Returns true if Linux RAID of this level accepts no TRIM until one of its module parameters is set.
fn needs_parameter(stack: &Stack<'_>, level: &str) -> bool {
    let performance = performance_of(level);
    stack.root.has(&performance) && !is_on(stack, &performance) || has_parity(level) && !is_on(stack, PARITY)
}

fn performance_of(level: &str) -> String {
    format!("/sys/module/{level}/parameters/devices_discard_performance")
}

fn has_parity(level: &str) -> bool {
    ["raid4", "raid5", "raid6"].iter().any(|parity| level.starts_with(parity))
}

pub(super) fn table(stack: &Stack<'_>, node: &Node) -> Option<String> {
    stack.host.table(&node.device.text("dm/name")?)
}

/// Returns the commands that make dm-crypt pass TRIM on while it is in use, and those that undo it; `None` for an
/// unknown format, or one that may hide a second volume in the free space of the first (TrueCrypt, VeraCrypt). With
/// `is_lasting`, a LUKS2 header keeps the setting for later boots.
pub(super) fn opened_to_trim(
    name: &str,
    format: &str,
    is_lasting: bool,
) -> Option<(Vec<String>, Vec<String>)> {
    let name = quoted(name);
    match format {
        // cryptsetup would need the cipher and the key again. The ninth field of the table counts its options.
        "PLAIN" | "LOOPAES" => {
            let load = |change: &str| {
                let table = format!("dmsetup table --showkeys {name} | awk '{change}'");
                vec![format!("{table} | dmsetup reload {name}"), format!("dmsetup resume {name}")]
            };
            Some((
                load(r#"!/allow_discards/ {$9 += 1; $(NF + 1) = "allow_discards"} {print}"#),
                load(r#"sub(/ allow_discards/, "") {$9 -= 1; if ($9 < 1) $9 = ""} {print}"#),
            ))
        }
        // The key may be in the kernel's keyring, so the table cannot be loaded by hand.
        "LUKS1" | "LUKS2" | "" => {
            let lasting = if is_lasting { " --persistent" } else { "" };
            Some((
                vec![format!("cryptsetup refresh --allow-discards{lasting} {name}")],
                vec![format!("cryptsetup refresh{lasting} {name}")],
            ))
        }
        _ => None,
    }
}

/// Reports a loop device that accepts no TRIM, or whose file cannot have holes.
fn of_loop(stack: &Stack<'_>, node: &Node, file: &str) -> Finding {
    let holder = nearest(stack.mounts, Path::new(file)).map(|at| stack.mounts[at].fs_type.as_str());
    let punches = holder.filter(|fs_type| ["ext4", "xfs", "btrfs", "tmpfs", "f2fs"].contains(fs_type));
    let (code, why, mend) = match punches {
        _ if !node.below.is_empty() => (
            Code::LoopNoWriteZeroes,
            format!(
                "accepts no TRIM: it passes TRIM on as Write Zeroes, which {file} lacks, or it is read-only"
            ),
            format!("mount {file} without the loop device"),
        ),
        Some(fs_type) => (
            Code::LoopReadOnly,
            format!(
                "accepts no TRIM, though {fs_type} can punch holes: it is read-only, or was attached by an old kernel"
            ),
            "attach it again, writable".to_owned(),
        ),
        None => (
            Code::LoopNoHoles,
            match node.is_dead_end && node.discard_max != Some(0) {
                true => "accepts TRIM, but to no effect: the file system of that file cannot punch holes",
                false => "accepts no TRIM: its file system cannot punch holes, or it is read-only",
            }
            .to_owned(),
            "put the file on ext4, XFS, btrfs or tmpfs".to_owned(),
        ),
    };
    Finding::new(code, node.name.clone(), format!("the loop device over {file} {why}")).mended_by(mend)
}

/// Reports a mapping that accepts no TRIM only because it was loaded before the devices below did.
fn older_than_below(node: &Node) -> Finding {
    let (what, mend) = match &node.kind {
        Kind::Multipath(name) => (format!("the multipath map {name}"), "reload the map (`multipath -r`)"),
        Kind::Lvm(name) => (
            format!("the logical volume {name}"),
            "reload its table, or deactivate and reactivate it; `lvchange --refresh` skips an unchanged table",
        ),
        Kind::Mapper(name) => (format!("the mapping {name}"), "reload its table"),
        _ => (node.name.clone(), "reassemble it"),
    };
    Finding::new(
        Code::MappingOlder,
        node.name.clone(),
        format!(
            "{what} accepts no TRIM though everything below does: its table was loaded before that, and still has its \
             limits from then"
        ),
    )
    .mended_by(format!("{mend}. If a udev rule sets the mode of the disk below, add that rule to the initramfs, too"))
}

/// Reports a thin pool that stops TRIM: it passes none on, or it ignores TRIM, and then its volumes accept none either.
fn thin_pool(stack: &Stack<'_>, stop: usize, name: &str) -> Finding {
    let node = &stack.graph.nodes[stop];
    let is_lvm = node.device.text("dm/uuid").is_some_and(|uuid| uuid.starts_with("LVM-"));
    let pool = logical_volume(name.strip_suffix("-tpool").unwrap_or(name)).filter(|_| is_lvm);
    let set = |value: &str| {
        pool.iter().map(|pool| format!("lvchange --discards {value} {pool}")).collect::<Vec<_>>()
    };
    let volume =
        stack.graph.nodes.iter().find(|above| above.below.contains(&stop) && above.discard_max == Some(0));
    let Some(volume) = volume else {
        return Finding::new(
            Code::ThinNoPassdown,
            node.name.clone(),
            format!(
                "the thin pool {name} reuses trimmed space itself, and does not pass TRIM on to the devices below, either \
                 because of its setting (nopassdown) or because their largest discard is smaller than the pool's blocks"
            ),
        )
        .mended_by("make the pool pass TRIM on")
        .with_commands(set("passdown"), set("nopassdown"));
    };
    let between = pool.iter().zip(logical_volume(&volume.device.text("dm/name").unwrap_or_default()));
    let between = between.flat_map(|(pool, volume)| {
        [
            format!("lvchange --activate n {volume} {pool}"),
            format!("lvchange --discards passdown {pool}"),
            format!("lvchange --activate y {volume}"),
        ]
    });
    // Other volumes of the pool keep it active; the device that carries the pool's own name does not.
    let own = node.device.path().join("holders");
    let own = std::fs::read_dir(own).into_iter().flatten().flatten().filter(|holder| {
        let holder = std::fs::read_to_string(holder.path().join("dm/name"));
        holder.is_ok_and(|holder| holder.trim() == name.strip_suffix("-tpool").unwrap_or(name))
    });
    let others = holders(node.device.path()) - own.count();
    let commands = Some(between.collect()).filter(|steps: &Vec<_>| !steps.is_empty() && others <= 1);
    let commands = commands.and_then(|steps| without_mount(stack, volume, steps));
    Finding::new(
        Code::ThinIgnores,
        node.name.clone(),
        format!("the thin pool {name} ignores TRIM (its setting is `ignore`)"),
    )
    .mended_by("set it to `passdown`, which needs the pool and all its volumes to be inactive")
    .with_commands(commands.unwrap_or_default(), [])
}

/// Returns the LVM RAID volume to which this leg with integrity belongs.
fn raid_with_integrity(name: &str) -> Option<String> {
    logical_volume(name.split_once("_rimage_")?.0)
}

fn names_below<'a>(stack: &'a Stack<'_>, node: &'a Node) -> impl Iterator<Item = String> + 'a {
    let below = node.below.iter().chain(&node.beside);
    below.filter_map(|&below| stack.graph.nodes[below].device.text("dm/name"))
}

pub(super) fn is_thin(stack: &Stack<'_>, node: &Node) -> bool {
    node.below.iter().any(|&below| matches!(stack.graph.nodes[below].kind, Kind::ThinPool(_)))
}

fn is_lvm_raid(stack: &Stack<'_>, node: &Node) -> bool {
    names_below(stack, node).any(|name| name.contains("_rimage_"))
}

fn lvm_raid(stack: &Stack<'_>, node: &Node, name: &str, table: Option<&str>) -> Finding {
    let level = table.and_then(|table| table.split_whitespace().nth(3)).unwrap_or_default();
    let is_mirror = ["raid0", "raid1"].iter().any(|mirror| level.starts_with(mirror));
    let again = logical_volume(name).and_then(|volume| {
        let steps = ["n", "y"].map(|active| format!("lvchange --activate {active} {volume}"));
        without_mount(stack, node, steps.to_vec())
    });
    let again = again.or_else(|| reload(&node.kind)).unwrap_or_default();
    if is_mirror || !level.is_empty() && !has_parity(level) || is_on(stack, LVM_PARITY) {
        let mut finding = older_than_below(node).with_commands(again, []);
        if has_parity(level) {
            finding.what += ", or from before dm_raid.devices_handle_discard_safely was set";
        }
        return finding;
    }
    if level.is_empty() {
        return Finding::new(
            Code::RaidLevelUnknown,
            node.name.clone(),
            format!(
                "the RAID volume {name} accepts no TRIM though all its disks do; its level is unknown. A mirror has its \
                 limits from before the disks accepted TRIM; a volume with parity (RAID 4, 5, 6) accepts TRIM only if \
                 dm_raid.devices_handle_discard_safely is set"
            ),
        )
        .mended_by(
            "`lvs -o lv_name,segtype` shows the level. Reactivate a mirror; set the parameter only for parity, and only if \
             all disks return zeros for trimmed blocks",
        );
    }
    let what = format!(
        "the RAID volume {name} accepts no TRIM: a volume with parity (RAID 4, 5, 6) does so only if \
         dm_raid.devices_handle_discard_safely is set"
    );
    set(Code::RaidParityNotAllowed, node, what, LVM_PARITY, again)
}

fn is_on(stack: &Stack<'_>, parameter: &str) -> bool {
    stack.root.text(parameter).is_some_and(|value| ["Y", "1"].contains(&value.as_str()))
}

/// Splits the file of a parameter in /sys/module into its module and its name.
fn parameter(file: &str) -> (&str, &str) {
    let mut parts = file.split('/').skip(3);
    (parts.next().unwrap_or_default(), parts.last().unwrap_or_default())
}

/// Reports a module parameter that must be set, now and at each boot, before the array is reassembled.
fn set(code: Code, node: &Node, what: String, file: &str, then: Vec<String>) -> Finding {
    let (module, name) = parameter(file);
    let conf = format!("/etc/modprobe.d/{module}-discard.conf");
    let mend = format!(
        "{}set the parameter, now and at each boot ({module}.{name}=Y on the kernel's command line if the array holds /), \
         and {}",
        if has_no_risk(file) { "" } else { "only if all disks return zeros for trimmed blocks: " },
        if then.is_empty() { "reboot to reassemble the array" } else { "load the array again" }
    );
    let commands = [format!("echo Y > {file}"), format!("echo 'options {module} {name}=Y' > {conf}")]
        .into_iter()
        .chain(then);
    Finding::new(code, node.name.clone(), what)
        .mended_by(mend)
        .with_commands(commands, [format!("echo N > {file}"), format!("rm {conf}")])
}

/// Returns true unless setting this parameter asserts that trimmed blocks read as zeros, on which parity relies.
fn has_no_risk(file: &str) -> bool {
    ![PARITY, LVM_PARITY].contains(&file)
}

fn raid(stack: &Stack<'_>, node: &Node, level: &str) -> Finding {
    let again = reassembled(stack, node).unwrap_or_default();
    let performance = performance_of(level);
    if stack.root.has(&performance) && !is_on(stack, &performance) {
        let what = format!(
            "Linux RAID ({level}) accepts no TRIM because this kernel disables it: {performance} is N"
        );
        return set(Code::RaidSwitchedOff, node, what, &performance, again);
    }
    if has_parity(level) {
        if let Some((largest, stripe)) = too_small_for_stripe(stack, node, level) {
            return Finding::new(
                Code::RaidStripeTooLarge,
                node.name.clone(),
                format!(
                    "Linux RAID ({level}) accepts no TRIM because it trims whole stripes of {stripe} bytes, and a disk \
                     below accepts at most {largest} bytes at a time"
                ),
            )
            .mended_by("an array with smaller chunks")
            .beyond_this_host();
        }
        if !is_on(stack, PARITY) {
            let what = format!(
                "Linux RAID ({level}) accepts no TRIM: with parity, it does so only if \
                 raid456.devices_handle_discard_safely is set"
            );
            return set(Code::RaidParityNotAllowed, node, what, PARITY, again);
        }
    }
    let needed = if has_parity(level) { PARITY } else { &performance };
    let (module, name) = parameter(needed);
    let (before, lasting) = match stack.root.has(needed) {
        true => (
            format!(", or before {module}.{name} was set"),
            format!(
                ", and make sure that the parameter is set at each boot ({module}.{name}=Y on the kernel's command line, \
                 or /etc/modprobe.d and a new initramfs)"
            ),
        ),
        false => (String::new(), String::new()),
    };
    let assemble = if again.is_empty() { "reboot to reassemble it" } else { "reassemble it" };
    Finding::new(
        Code::RaidOlder,
        node.name.clone(),
        format!(
            "Linux RAID ({level}) accepts no TRIM though all its disks do: it was assembled before they did{before}, \
             and still has its limits from then"
        ),
    )
    .mended_by(
        format!(
            "{assemble}{lasting}. If a udev rule enables TRIM on the disks, add that rule to the initramfs \
             (update-initramfs -u, dracut -f), so that it runs before the array is assembled"
        ),
    )
    .with_commands(again, [])
}

/// Returns the smallest limit of a disk and the size of a stripe if RAID with parity refuses TRIM because the limit is
/// below a stripe (`raid5_set_limits` in Linux's drivers/md/raid5.c, once `raid5_run`).
fn too_small_for_stripe(stack: &Stack<'_>, node: &Node, level: &str) -> Option<(u64, u64)> {
    let disks = node.device.number("md/raid_disks").ok()?;
    let chunk = node.device.number("md/chunk_size").ok()?;
    let parity = if level == "raid6" { 2 } else { 1 };
    let stripe = chunk.checked_mul(disks.checked_sub(parity)?)?.checked_next_power_of_two()?;
    // A disk that accepts none today may accept any amount later.
    let limits = node.below.iter().filter_map(|&below| stack.graph.nodes[below].discard_max);
    let largest = limits.filter(|&max| max > 0).min()?;
    (largest < stripe).then_some((largest, stripe))
}

/// Returns the commands that reassemble an array; `None` if it cannot be unmounted for that, if a member is missing (it
/// would start degraded), or if its members belong to a container (Intel or DDF metadata).
fn reassembled(stack: &Stack<'_>, node: &Node) -> Option<Vec<String>> {
    let number = |file: &str| node.device.number(file).unwrap_or(0);
    let is_external =
        node.device.text("md/metadata_version").is_some_and(|kind| kind.starts_with("external"));
    let has_all = node.below.len() as u64 >= number("md/raid_disks") && number("md/degraded") == 0;
    if is_external || !has_all {
        return None;
    }
    let array = node.device.node().display().to_string();
    let members: Vec<String> = node
        .below
        .iter()
        .map(|&below| stack.graph.nodes[below].device.node().display().to_string())
        .collect();
    let steps =
        vec![format!("mdadm --stop {array}"), format!("mdadm --assemble {array} {}", members.join(" "))];
    without_mount(stack, node, steps)
}

/// Wraps commands in those that unmount the file system on a device, or on a partition of it, and mount it again.
/// Returns `None` if the file system is `/`, if another layer lies between, or if more than this one mount would have
/// to go: another mount of it or below it, or another partition in use.
fn without_mount(stack: &Stack<'_>, below: &Node, commands: Vec<String>) -> Option<Vec<String>> {
    let mount = stack.mount;
    let [top] = stack.graph.tops[..] else { return None };
    let top = &stack.graph.nodes[top];
    let is_direct = top.name == below.name || top.device.disk().is_some_and(|disk| disk.name() == below.name);
    let point = mount.mount_point.to_str().filter(|point| is_direct && *point != "/")?;
    let is_in_the_way = |other: &Mount| {
        other.id != mount.id
            && (other.is_same_file_system(mount) || other.mount_point.starts_with(&mount.mount_point))
    };
    let mut others = std::iter::once(below.device.clone()).chain(below.device.partitions());
    let is_in_use = |other: SysBlock| other != top.device && is_in_use(stack, &other);
    if stack.mounts.iter().any(is_in_the_way) || others.any(is_in_use) {
        return None;
    }
    // A mapping keeps its name, while dm-0 may become dm-1.
    let node = match mount.device.starts_with("/dev/mapper/") {
        true => mount.device.clone(),
        false => top.device.node().display().to_string(),
    };
    let (node, options) = (quoted(&node), quoted(&mount.options.join(",")));
    let again = format!("mount -t {} -o {options} {node} {}", mount.fs_type, quoted(point));
    Some([format!("umount --all-targets {node}")].into_iter().chain(commands).chain([again]).collect())
}

/// Counts the holders of a device, even those that sysfs does not show otherwise.
fn holders(device: &Path) -> usize {
    std::fs::read_dir(device.join("holders")).map_or(0, Iterator::count)
}

/// Returns true if a device has holders, is mounted, or is used as swap.
fn is_in_use(stack: &Stack<'_>, device: &SysBlock) -> bool {
    let holds = |mount: &Mount| {
        mount.has_device() && devices_in_sysfs(stack.root, mount).is_ok_and(|found| found.contains(device))
    };
    let swaps = stack.root.whole_text("/proc/swaps").unwrap_or_default();
    let mut swaps = swaps.lines().filter_map(|line| line.split_whitespace().next());
    holders(device.path()) > 0
        || stack.mounts.iter().any(holds)
        || swaps.any(|node| of_node(stack.root, node).is_ok_and(|found| found.as_ref() == Some(device)))
}

/// Returns the name `VG/LV` of a logical volume from its device-mapper name, in which hyphens are doubled.
fn logical_volume(name: &str) -> Option<String> {
    let single = name.replace("--", "\0");
    let (group, volume) = single.split_once('-')?;
    Some(quoted(&format!("{group}/{volume}").replace('\0', "-")))
}

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::{GIB, Host, SDA};

    use super::*;
    use crate::doctor::ending::{self, Answers};
    use crate::doctor::graph::Graph;
    use crate::host_root::HostRoot;

    /// Returns the codes and commands of the findings on a mapping with this table over a disk that accepts TRIM.
    fn found(name: &str, uuid: &str, table: &str, is_parity_on: bool) -> Vec<(&'static str, Vec<String>)> {
        let host = Host::new("22 1 254:9 / /data rw - xfs /dev/mapper/x rw\n");
        let mapping = "virtual/block/dm-9";
        host.device(SDA, "8:0", GIB).device(mapping, "254:9", 0).slave(mapping, SDA);
        host.file(&format!("sys/devices/{mapping}/dm/name"), name);
        host.file(&format!("sys/devices/{mapping}/dm/uuid"), uuid);
        host.file(LVM_PARITY.trim_start_matches('/'), if is_parity_on { "Y" } else { "N" });
        let root = HostRoot::new(host.0.path());
        let mounts = crate::mount::mounts(&root).unwrap();
        let graph = Graph::of(&root, &mounts, &devices_in_sysfs(&root, &mounts[0]).unwrap());
        let host = Answers { tables: &[(name, table)], ..Answers::default() };
        let stack = Stack { root: &root, mount: &mounts[0], mounts: &mounts, graph: &graph, host: &host };
        let mut findings = Vec::new();
        ending::of_graph(&stack, &mut findings);
        findings.into_iter().map(|one| (one.code.as_str(), one.commands)).collect()
    }

    #[test]
    fn the_table_tells_what_stops_trim() {
        let crypt = "0 8 crypt aes-xts-plain64 :64:logon:k 0 8:0 0";
        for (name, uuid, table, is_parity_on, code, command) in [
            (
                "c",
                "CRYPT-LUKS2-1-c",
                crypt,
                false,
                "layer.luks.discards-off",
                "refresh --allow-discards --persistent c",
            ),
            (
                "c",
                "CRYPT-LUKS2-1-c",
                "0 8 crypt aes-xts-plain64 :64:logon:k 0 8:0 0 1 allow_discards",
                false,
                "layer.crypt.opened-before-trim",
                "cryptsetup refresh --allow-discards c",
            ),
            ("m", "", crypt, false, "layer.crypt.discards-off", ""),
            ("m", "", "0 8 linear 8:0 0", false, "layer.mapping.older-than-below", "dmsetup reload m"),
            ("m", "", "0 8 striped 1 128 8:0 0", false, "layer.mapping.older-than-below", "dmsetup reload m"),
            ("m", "", "0 8 cache 8:0 8:1 8:2", false, "layer.mapping.no-trim", ""),
            (
                "vg-r",
                "LVM-1",
                "0 8 raid raid1 3 0 x",
                false,
                "layer.mapping.older-than-below",
                "--activate n vg/r",
            ),
            (
                "vg-r",
                "LVM-1",
                "0 8 raid raid10 3 0 x",
                false,
                "layer.mapping.older-than-below",
                "--activate n vg/r",
            ),
            (
                "vg-r",
                "LVM-1",
                "0 8 raid raid5_ls 3 0 x",
                true,
                "layer.mapping.older-than-below",
                "--activate n vg/r",
            ),
            (
                "vg-r",
                "LVM-1",
                "0 8 raid raid6_zr 3 0 x",
                false,
                "layer.raid.parity-not-allowed",
                "echo Y > /sys/module/dm_raid",
            ),
        ] {
            let found = found(name, uuid, table, is_parity_on);
            let codes: Vec<_> = found.iter().map(|(code, _)| *code).collect();
            assert_eq!(codes, [code], "{uuid} {table}");
            let commands = found[0].1.join("\n");
            assert!(
                commands.contains(command) && commands.is_empty() == command.is_empty(),
                "{table}: {commands}"
            );
        }
    }
}
