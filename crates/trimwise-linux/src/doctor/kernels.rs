//! Kernels on which TRIM destroys data, crashes, or is sent far too often: versions and their sources.
//!
//! Distributions carry backports and keep the number of the release that they started from. A version proves a fault
//! only where it says which patches it has: an upstream release, the one that `/proc/version` (Debian) or
//! `/proc/version_signature` (Ubuntu) names, or Ubuntu's own number. Everything else *may* have it.

use super::Finding;
use super::ending::Stack;
use super::graph::{Graph, Kind, Node};
use super::mapping::table;
use crate::block_device::devices_in_sysfs;
use crate::code::Code;
use crate::host_root::HostRoot;
use crate::mount::Mount;
use crate::text::quoted;
use crate::today::Today;

use Numbering::{Ubuntu, Upstream};

/// How the versions of a range are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbering {
    /// Linux's own releases: 6.1.77.
    Upstream,
    /// Ubuntu's, whose third number counts its builds: 5.4.0-57 is 5.4.57.
    Ubuntu,
}

type Version = [u32; 3];
/// Versions from the first to the second, both included.
type Range = (Numbering, Version, Version);

const LATEST: u32 = u32::MAX;

/// What lies between the file system and its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    Raid10,
    Raid0,
    /// RAID 0 with the layout of Linux before 3.14, over disks of different sizes.
    Raid0Original,
    DeviceMapper,
}

/// A fault of a kernel in the way that it passes discards down.
struct Fault {
    code: Code,
    below: Below,
    known: &'static [Range],
    /// Versions that may or may not have it.
    possible: &'static [Range],
    what: &'static str,
    /// Where it is mended.
    mended: &'static str,
}

const FAULTS: [Fault; 5] = [
    // The patches of "md/raid10: improve raid10 discard request" were in 5.10-rc1 to rc7, and Ubuntu took them at the end of
    // October 2020: https://lists.ubuntu.com/archives/kernel-team/2020-October/114312.html (bug 1896578),
    // https://lkml.iu.edu/hypermail/linux/kernel/2012.1/01288.html, https://bugs.launchpad.net/bugs/1907262.
    Fault {
        code: Code::KernelLosesData,
        below: Below::Raid10,
        known: &[(Ubuntu, [5, 4, 57], [5, 4, 57])],
        possible: &[
            (Ubuntu, [4, 15, 125], [4, 15, 127]),
            (Ubuntu, [5, 4, 55], [5, 4, 56]),
            (Ubuntu, [5, 8, 30], [5, 8, 32]),
        ],
        what: "discards data that are still in use on RAID 10 (the patches of November 2020, taken back in December)",
        mended: "Linux 5.10, and Ubuntu's 4.15.0-128, 5.4.0-58 and 5.8.0-33",
    },
    // Commit d05af90d6218 accounts discards in a set that RAID 10 lacked before commit c567c86b90d4, which 6.1.138 has:
    // https://bugs.debian.org/1104460, https://lore.kernel.org/stable/aBJH6Nsh-7Zj55nN@eldamar.lan;
    // https://bugs.launchpad.net/bugs/2117395, https://github.com/Open-CAS/open-cas-linux/issues/1671.
    Fault {
        code: Code::KernelCrashes,
        below: Below::Raid10,
        known: &[(Ubuntu, [5, 15, 144], [5, 15, 144]), (Upstream, [6, 1, 135], [6, 1, 137])],
        possible: &[(Ubuntu, [5, 15, 145], [5, 15, LATEST]), (Upstream, [5, 15, 181], [5, 15, LATEST])],
        what: "follows a null pointer at the first discard on RAID 10: fstrim never ends, or the host crashes",
        mended: "Linux 6.1.138 and 6.6",
    },
    // https://github.com/manjaro/packages-core/issues/11; commit 47d68979cc96 (4.1) restores the sector.
    Fault {
        code: Code::KernelLosesData,
        below: Below::Raid0,
        known: &[(Upstream, [4, 0, 2], [4, 0, 4]), (Upstream, [3, 14, 41], [3, 14, 43])],
        possible: &[
            (Upstream, [3, 16, 0], [3, 16, LATEST]),
            (Upstream, [3, 18, 13], [3, 18, 16]),
            (Upstream, [3, 19, 7], [3, 19, 8]),
        ],
        what: "discards data that are still in use on RAID 0 (the fault of May 2015)",
        mended: "Linux 4.1",
    },
    // Commit e836007089ba (6.5), https://www.spinics.net/lists/raid/msg73934.html; 5.4.251 has it, and by Debian's lists of
    // changes 5.10.188, 6.1.40 and 6.4.5.
    Fault {
        code: Code::KernelLosesData,
        below: Below::Raid0Original,
        known: &[
            (Upstream, [5, 4, 0], [5, 4, 250]),
            (Upstream, [5, 10, 0], [5, 10, 187]),
            (Upstream, [5, 15, 0], [5, 15, 118]),
            (Upstream, [6, 1, 0], [6, 1, 39]),
            (Upstream, [6, 4, 0], [6, 4, 4]),
        ],
        possible: &[(Upstream, [5, 15, 119], [5, 15, 121]), (Upstream, [6, 2, 0], [6, 3, LATEST])],
        what: "discards the wrong disks of a RAID 0 with the `original` layout over disks of different sizes",
        mended: "Linux 6.5, and 5.4.251 and other stable kernels of July 2023",
    },
    // https://www.redhat.com/archives/dm-devel/2019-May/msg00084.html, https://github.com/zen-kernel/zen-kernel/issues/149;
    // commit 51b86f9a8d1c.
    Fault {
        code: Code::KernelLosesData,
        below: Below::DeviceMapper,
        known: &[(Upstream, [5, 1, 0], [5, 1, 4])],
        possible: &[],
        what: "discards beyond what the device mapper was asked to, also in other volumes (dm-crypt and LVM)",
        mended: "Linux 5.1.5",
    },
];

/// Kernels whose ext4 discards on through the free space behind what was freed: commit 68da4c44b994 (6.8) and its
/// backports, from 5.15 on, where ext4 discards after the commit (`kernel/ext4-overtrim/REPORT.md`). Seen in the stable
/// reviews of 5.15.149 and 6.6.16 and in Debian's list of the changes of 6.1.77; 6.7.4 is of the same week as 6.6.16. What
/// was measured are Debian's 6.1 (later than 6.1.77) and 6.12, and 6.18. 5.10 (from 5.10.210 on), 5.4 and 4.19 have the
/// backport too, and there only FITRIM uses it.
const EXT4_OVERTRIMS: [Range; 5] = [
    (Upstream, [6, 8, 0], [LATEST, LATEST, LATEST]),
    (Upstream, [6, 7, 4], [6, 7, LATEST]),
    (Upstream, [6, 6, 16], [6, 6, LATEST]),
    (Upstream, [6, 1, 77], [6, 1, LATEST]),
    (Upstream, [5, 15, 149], [5, 15, LATEST]),
];

/// Kernels whose ext4 forgets that FITRIM trimmed a group when something in it is freed, even if mounted with discard: commit
/// 20cee68f5b44 (6.12), and 6.1.113 and 5.10.227 by Debian's lists of changes. Whether other stable series have it is unknown.
const EXT4_FORGETS_TRIMS: [Range; 3] = [
    (Upstream, [6, 12, 0], [LATEST, LATEST, LATEST]),
    (Upstream, [6, 1, 113], [6, 1, LATEST]),
    (Upstream, [5, 10, 227], [5, 10, LATEST]),
];

/// What Ubuntu's kernels end with; others, such as `aws`, count their builds by themselves.
const UBUNTU: [&str; 3] = ["generic", "lowlatency", "generic-lpae"];

/// The running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Release {
    series: [u32; 2],
    /// Number of the stable release; `None` if a distribution hides it.
    patch: Option<u32>,
    /// Number of Ubuntu's build.
    ubuntu: Option<u32>,
    /// True for a candidate before the release, such as 5.10.0-rc7.
    is_candidate: bool,
}

/// Whether a version has a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Has {
    Known,
    Possible,
    Not,
}

impl Release {
    pub fn of(root: &HostRoot, release: &str) -> Self {
        let numbers = |text: &str| -> Vec<u32> {
            let digits = text.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
            digits.collect()
        };
        let found = numbers(release);
        let [major, minor, ..] = found[..] else { return Self::default() };
        let (_, suffix) = release.split_once('-').unwrap_or_default();
        // Ubuntu 5.4.0-57.63-generic 5.4.78
        let signature = root.text("/proc/version_signature").unwrap_or_default();
        let signed = signature.strip_prefix("Ubuntu ").and_then(|rest| rest.split(' ').nth(1));
        // ... #1 SMP Debian 6.1.76-1 (2024-02-01)
        let version = root.text("/proc/version").unwrap_or_default();
        let built =
            version.split("Debian ").nth(1).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let named = signed.or(built).map(&numbers).and_then(|numbers| numbers.get(2).copied());
        let is_build = suffix.starts_with(|c: char| c.is_ascii_digit()) && found.get(2) == Some(&0);
        let is_enterprise = [".el", ".oe", "-default"].iter().any(|mark| release.contains(mark));
        let is_ubuntu = is_build && UBUNTU.iter().any(|flavour| release.ends_with(&format!("-{flavour}")));
        Self {
            series: [major, minor],
            patch: named.or_else(|| found.get(2).copied().filter(|_| !is_build && !is_enterprise)),
            ubuntu: numbers(suffix).first().copied().filter(|_| is_ubuntu),
            is_candidate: suffix.starts_with("rc"),
        }
    }

    fn is_in(&self, (numbering, from, to): &Range) -> Has {
        let [major, minor] = self.series;
        let third = match numbering {
            Ubuntu => self.ubuntu,
            Upstream => self.patch,
        };
        let series = |version: &Version| [version[0], version[1]];
        match third {
            Some(third) if (*from..=*to).contains(&[major, minor, third]) => Has::Known,
            Some(_) => Has::Not,
            None if *numbering == Ubuntu => Has::Not,
            // All of the series, or a part of it.
            None if (series(from)..=series(to)).contains(&self.series) => {
                if [major, minor, 0] >= *from && [major, minor, LATEST] <= *to {
                    Has::Known
                } else {
                    Has::Possible
                }
            }
            None => Has::Not,
        }
    }

    fn has(&self, known: &[Range], possible: &[Range]) -> Has {
        // Ubuntu's own numbers tell more than the release that it started from.
        let is_told = |range: &&Range| {
            let is_own = |one: &&Range| one.0 == Ubuntu && one.1[..2] == self.series;
            range.0 == Ubuntu
                || self.ubuntu.is_none()
                || !known.iter().chain(possible).any(|one| is_own(&one))
        };
        let found =
            |ranges: &[Range], is: Has| ranges.iter().filter(is_told).any(|range| self.is_in(range) == is);
        match () {
            () if found(known, Has::Known) => Has::Known,
            () if found(known, Has::Possible)
                || found(possible, Has::Known)
                || found(possible, Has::Possible) =>
            {
                Has::Possible
            }
            () => Has::Not,
        }
    }

    /// Whether ext4 with `discard` sends more than was freed.
    pub fn overtrims(&self) -> Has {
        self.has(&EXT4_OVERTRIMS, &[])
    }

    /// Returns true if fstrim certainly goes over a group again once something in it was freed.
    pub fn forgets_trims(&self) -> bool {
        self.has(&EXT4_FORGETS_TRIMS, &[]) == Has::Known
    }

    fn has_fault(&self, fault: &Fault) -> Has {
        if self.is_candidate && self.series == [5, 10] && fault.below == Below::Raid10 {
            return if fault.code == Code::KernelLosesData { Has::Known } else { Has::Not };
        }
        self.has(fault.known, fault.possible)
    }
}

/// Says why a file system must not be trimmed on this kernel; `None` if nothing is known against it.
pub fn why_not(root: &HostRoot, mounts: &[Mount], mount: &Mount) -> Option<String> {
    let kernel = root.text("/proc/sys/kernel/osrelease")?;
    let release = Release::of(root, &kernel);
    let known = FAULTS.iter().filter(|fault| release.has_fault(fault) == Has::Known).collect::<Vec<_>>();
    // Almost no kernel has one, and then no device is looked at.
    if known.is_empty() {
        return None;
    }
    let devices = devices_in_sysfs(root, mount).ok()?;
    let graph = Graph::of(root, mounts, &devices);
    let stack = Stack { root, mount, mounts, graph: &graph, host: root };
    let fault = known.into_iter().find(|fault| lies_above(&stack, fault).is_some())?;
    Some(format!("Linux {kernel} {}; mended in {}", fault.what, fault.mended))
}

/// Finds the layer through which a discard meets the fault.
fn lies_above<'s>(stack: &'s Stack<'_>, fault: &Fault) -> Option<&'s Node> {
    let mut nodes = stack.graph.holding_data().into_iter().map(|index| &stack.graph.nodes[index]);
    nodes.find(|node| node.takes_trim() == Some(true) && lies_on(stack, node, fault.below))
}

/// Adds what is known against trimming this stack on this kernel.
pub(super) fn of_stack(stack: &Stack<'_>, release: &Release, kernel: &str, today: &Today) -> Vec<Finding> {
    let found =
        FAULTS.iter().filter_map(|fault| Some((fault, lies_above(stack, fault)?, release.has_fault(fault))));
    let found = found.filter(|(_, _, has)| *has != Has::Not).map(|(fault, node, has)| {
        let (does, until) = match has {
            Has::Known => ("", "do not trim it before the kernel is updated"),
            _ => ("may be one that ", "see whether this kernel has the fault before anything trims it"),
        };
        let what = format!("Linux {kernel} {does}{}", fault.what);
        let finding = Finding::new(fault.code, node.name.clone(), what)
            .mended_by(format!("{until}; mended in {}", fault.mended));
        match has {
            Has::Known => {
                let (commands, undo) = untrimmed(stack, today);
                finding.with_commands(commands, undo)
            }
            _ => Finding { wrong: false, ..finding },
        }
    });
    found.chain(tiny(stack)).collect()
}

fn lies_on(stack: &Stack<'_>, node: &Node, below: Below) -> bool {
    let is_level = |expected: &str| match &node.kind {
        Kind::Raid(level) => level == expected,
        Kind::Lvm(_) => table(stack, node).is_some_and(|table| {
            let mut words = table.split_whitespace().skip(2);
            words.next() == Some("raid") && words.next().is_some_and(|level| level.starts_with(expected))
        }),
        _ => false,
    };
    match below {
        Below::Raid10 => is_level("raid10"),
        Below::Raid0 => is_level("raid0"),
        Below::Raid0Original => {
            let sizes = node.below.iter().map(|&below| stack.graph.nodes[below].device.number("size").ok());
            let sizes: std::collections::BTreeSet<_> = sizes.collect();
            is_level("raid0")
                && node.device.number("md/layout").is_ok_and(|layout| layout == 1)
                && sizes.len() > 1
        }
        Below::DeviceMapper => node.device.has("dm"),
    }
}

/// Returns the commands that stop what trims the file system today, and those that start it again.
fn untrimmed(stack: &Stack<'_>, today: &Today) -> (Vec<String>, Vec<String>) {
    let point = quoted(&stack.mount.mount_point.display().to_string());
    let remount = |option: &str| format!("mount -o remount,{option} {point}");
    let timer = |verb: &str| format!("systemctl {verb} --now {}", super::trimmers::FSTRIM_TIMER);
    let is_timer = today.at_intervals.iter().any(|one| one.name == super::trimmers::FSTRIM_TIMER);
    let both = |from: [String; 2]| {
        let [discard, timer] = from;
        today.is_online().then_some(discard).into_iter().chain(is_timer.then_some(timer)).collect()
    };
    (both([remount("nodiscard"), timer("disable")]), both([remount(&today.discard), timer("enable")]))
}

/// A layer's largest discard is tiny if those below take this many times as much, and it is at most [`TINY_MAX`].
const TINY_FACTOR: u64 = 64;
const TINY_MAX: u64 = 16 << 20;

/// Notes layers that cut discards into far smaller pieces than the devices below take: before Linux 5.13, RAID 10 cuts them
/// at its chunks (commit d30588b2731f; https://bugs.launchpad.net/bugs/1896578: 11 minutes instead of 4 s).
fn tiny<'a>(stack: &'a Stack<'_>) -> impl Iterator<Item = Finding> + 'a {
    let nodes = stack.graph.holding_data().into_iter().map(|index| &stack.graph.nodes[index]);
    nodes.filter_map(|node| {
        let below = node.below.iter().filter_map(|&below| stack.graph.nodes[below].discard_max);
        let below = below.filter(|&max| max > 0).min()?;
        let own = node.discard_max.filter(|&own| own > 0 && own <= TINY_MAX && below / own >= TINY_FACTOR)?;
        if node.kind == Kind::Partition {
            return None;
        }
        let size = node.device.number("size").ok().map(|sectors| sectors * 512).filter(|&bytes| bytes > 0);
        let (bytes, of) = size.map_or((1 << 40, "each TiB"), |bytes| (bytes, "it all"));
        let is_raid10 = lies_on(stack, node, Below::Raid10);
        let what = format!(
            "it takes discards of at most {}, and the devices below {}: to trim {of} takes {} commands instead of {}",
            size_of(own),
            size_of(below),
            trimwise::numbers::grouped(bytes.div_ceil(own)),
            trimwise::numbers::grouped(bytes.div_ceil(below)),
        );
        if let Kind::Vdo(_) = node.kind {
            // https://docs.redhat.com/en/documentation/red_hat_enterprise_linux/10/html/deduplicating_and_compressing_logical_volumes_on_rhel/speeding-up-discard-operations
            return Some(
                Finding::new(
                    Code::VdoTrimLoad,
                    node.name.clone(),
                    format!("{what}, each of which VDO looks up and counts: a weekly fstrim of a large volume may load it for hours"),
                )
                .mended_by(
                    "trim at quiet times and in slices (`trimwise trim MOUNT --pause 1000`); `lvchange --vdosettings \
                     vdo_max_discard=N` while it is inactive takes more blocks at a time, at the cost of other writes",
                ),
            );
        }
        let finding = Finding::new(Code::LimitTiny, node.name.clone(), what);
        Some(match is_raid10 {
            true => finding.mended_by(
                "update the kernel: from Linux 5.13 on, RAID 10 passes large discards down whole; until then, trim at quiet times",
            ),
            false => finding.mended_by(format!(
                "trim at quiet times; where the layer allows more, raise /sys/block/{}/queue/discard_max_bytes",
                node.name
            )),
        })
    })
}

fn size_of(bytes: u64) -> String {
    trimwise::units::Bytes(bytes).to_string()
}
