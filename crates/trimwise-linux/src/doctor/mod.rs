//! Examines a host for trimming: whether TRIM is on, and whether it reaches the disks.
//!
//! The doctor walks from fstab and the mount's options through partitions, dm-crypt, LVM, RAID and loop devices down to
//! the disks, and names the layer at which TRIM stops, with the change that fixes it. It only looks and sends nothing;
//! `trimwise verify dir:PATH` tests whether blocks really arrive.
//!
//! Everything is read below a [`HostRoot`], so that tests can build fake hosts.

mod calls;
mod crypt;
mod disk;
mod drive;
mod ending;
mod finding;
mod graph;
mod kernels;
mod loan;
mod mapping;
mod purpose;
mod quirks;
mod surroundings;
pub(crate) mod trimmers;
mod unchecked;
mod users;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::ending::Stack;
use self::kernels::{Has, Release};
use self::trimmers::Trimmers;
use crate::block_device::{SysBlock, devices_in_sysfs, of_node};
use crate::code::Code;
use crate::here::{self, Drive};
use crate::host_root::HostRoot;
use crate::mount::{Mount, discard_in, mounts};
use crate::mounted_verify::LOGICAL;
use crate::path_error::PathError;
use crate::systemd;
use crate::text::{is_unprintable, quoted};
use crate::today::{MountedBy, Sends, Today, WhyNot};
pub use calls::NO_TRIM;
pub(crate) use disk::disk_of;
pub use disk::{Disk, Scsi, Transport};
pub(crate) use ending::stops;
pub use finding::Finding;
pub use graph::{Graph, Kind, Node};
pub use kernels::why_not as why_not_on_this_kernel;
pub use loan::{Gauge, Loan, Share, loan};
pub(crate) use purpose::of_mount as purposes;
pub use purpose::{Aim, Lender, Purpose, nothing_returns};
pub use surroundings::LastRun;
pub(crate) use surroundings::is_container;
pub use trimmers::{Periodic, TRIMWISED};

/// File systems that have FITRIM.
const TRIMMABLE: [&str; 13] = [
    "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "gfs2", "jfs", "nilfs2", "ntfs3", "ocfs2", "vfat",
    "xfs",
];

/// The first kernel on which a file system has FITRIM, where that is later than the file system itself: Linux's commits
/// f663b5b38fff (fat), 654762df2ec7 (exfat), 4b2fecc84655 (f2fs).
const FITRIM_SINCE: [(&str, (u32, u32)); 3] = [("vfat", (4, 19)), ("exfat", (5, 13)), ("f2fs", (3, 18))];

/// The first kernel on which FITRIM of XFS covers a real-time device.
const XFS_TRIMS_REALTIME_SINCE: (u32, u32) = (6, 11);

/// Mount options that the kernel shows once a file system has failed.
const FAILED: [&str; 2] = ["emergency_ro", "shutdown"];

/// One device on the path from the file system down to its disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerReport {
    /// Kernel name of the device.
    pub name: String,
    /// Description of the device in words.
    pub what: String,
    /// Number of devices above this one on the path.
    pub depth: usize,
    /// The largest discard that the device accepts, in bytes; 0 if none, `None` if sysfs does not say.
    pub discard_max_bytes: Option<u64>,
    /// Discards counted on the device since boot; `None` if the kernel does not count them.
    pub discards: Option<u64>,
}

/// The doctor's report on one file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Mount point of the file system.
    #[serde(serialize_with = "crate::mount::as_text")]
    pub mount_point: PathBuf,
    /// The device that is mounted.
    pub device: String,
    /// Type of the file system.
    pub fs_type: String,
    /// How it is trimmed today.
    #[serde(flatten)]
    pub today: Today,
    /// True if TRIM of this file system passes down to a disk that accepts it, according to the kernel; `None` if sysfs
    /// does not show its device.
    pub passes: Option<bool>,
    /// The devices, from the mounted one down.
    pub layers: Vec<LayerReport>,
    /// What its discards are for, from the top layer down.
    pub purposes: Vec<Purpose>,
    /// Problems and notes about this file system.
    pub findings: Vec<Finding>,
    /// The drives below.
    #[serde(skip)]
    pub drives: Vec<Drive>,
    /// True if nothing on this host may trim it, as in a container. What the container's host does is unknown.
    #[serde(skip)]
    pub is_host_s: bool,
    /// True if `verify dir:` can read below it what a drive holds: TRIM passes, a file's blocks are at known places,
    /// and nothing encrypts them.
    #[serde(skip)]
    pub is_verifiable: bool,
}

impl Diagnosis {
    /// The finding for which it must not be trimmed, if there is one.
    pub fn forbidden(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.wrong && finding.code.forbids_trim())
    }

    /// The finding for which it may be that it must not be trimmed.
    pub fn doubt(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| !finding.wrong && finding.code.forbids_trim())
    }

    /// What is lent and nothing gives back, unless something speaks, or may speak, against trimming it.
    pub fn lost(&self) -> Option<&Purpose> {
        let is_read_only = self.findings.iter().any(|finding| finding.code == Code::ReadOnly);
        let lost = nothing_returns(&self.purposes, &self.today);
        lost.filter(|_| is_safe(&self.findings) && !is_read_only)
    }
}

/// False if something is known against trimming, or may be.
fn is_safe(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| finding.code.forbids_trim())
}

/// The doctor's report on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Release of the running kernel.
    pub kernel: String,
    /// Names of everything that trims periodically: `fstrim.timer`, `trimwised`, `/etc/cron.weekly/fstrim`.
    pub trimmers: Vec<String>,
    /// Reports on each file system on a block device.
    pub file_systems: Vec<Diagnosis>,
    /// Findings about the whole host.
    pub findings: Vec<Finding>,
    /// What was not checked, why, and how the user can find out.
    pub not_checked: Vec<Finding>,
    /// When fstrim.timer last elapsed; `None` if it never did, or another init runs the host.
    pub last_fstrim: Option<LastRun>,
    /// True if nothing here may trim, or if what matters most was not checked: the file system asked for, `/`, or every
    /// file system but boot partitions.
    #[serde(skip)]
    pub is_unchecked: bool,
}

impl Report {
    /// Returns the number of problems found.
    pub fn wrong(&self) -> usize {
        let of_file_systems = self.file_systems.iter().flat_map(|one| &one.findings);
        self.findings.iter().chain(of_file_systems).filter(|finding| finding.wrong).count()
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The list of mounts cannot be read.
    #[error(transparent)]
    Mounts(#[from] PathError),
    /// No file system on a block device is mounted there.
    #[error("{}: no file system on a block device is mounted there; {}", shown(path), match one {
        Some(one) => format!("expected the mount point of one, such as {one}"),
        None => "this host has none".to_owned(),
    })]
    NoMount {
        /// The path that the user asked for.
        path: PathBuf,
        /// Mount point of a file system with FITRIM, as an example, if there is one.
        one: Option<String>,
    },
}

/// Returns a path for messages, without line breaks and terminal control characters.
fn shown(path: &Path) -> String {
    path.display().to_string().replace(is_unprintable, "\u{fffd}")
}

/// Examines all file systems on block devices, or the one mounted at `only`. Asks a daemon whose sockets are in `run`
/// which file systems it trims.
///
/// # Errors
/// If the mounts cannot be read, or none is at `only`.
pub fn examine(root: &HostRoot, run: &Path, only: Option<&Path>) -> Result<Report, DoctorError> {
    let mounts = mounts(root)?;
    let kernel = root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let trimmers = trimmers::trimmers(root, run, &mounts, is_container(root));
    let forbidden = surroundings::why_forbidden(root);
    let release = Release::of(root, &kernel);
    let host =
        Surroundings { root, mounts: &mounts, kernel: &kernel, release, is_forbidden: forbidden.is_some() };
    let mut file_systems = Vec::new();
    let mut pools: BTreeMap<&str, Vec<&Mount>> = BTreeMap::new();
    let mut is_there = false;
    let mut is_unchecked = forbidden.is_some();
    let mut not_checked: Vec<Finding> = forbidden.into_iter().collect();
    let mut is_any_checked = false;
    for same in by_file_system(&mounts) {
        let listed = || {
            let is_own = |mount: &&&Mount| {
                trimmers.fstab().iter().any(|entry| entry.point == mount.mount_point && !entry.is_bind())
            };
            // If it is mounted several times, its entry in fstab tells which mount is not a bind mount.
            (same.len() > 1).then(|| same.iter().find(is_own)).flatten()
        };
        let mount = match only {
            // The last one covers the others.
            Some(only) => same.iter().rfind(|mount| mount.mount_point == only),
            None => listed().or(same.first()),
        };
        let Some(mount) = mount else { continue };
        let is_checked = if TRIMMABLE.contains(&mount.fs_type.as_str()) {
            let found = host.diagnose(mount, &same, &trimmers);
            not_checked.extend(found.1);
            let is_checked = found.0.passes.is_some();
            file_systems.push(found.0);
            is_checked
        } else if let Some(pool) = unchecked::pool_of(mount) {
            pools.entry(pool).or_default().push(*mount);
            false
        } else if let Some(finding) = unchecked::of_file_system(root, mount) {
            not_checked.push(finding);
            false
        } else {
            continue;
        };
        is_there = true;
        is_any_checked |= is_checked && (only.is_some() || !is_boot_partition(mount));
        is_unchecked |= !is_checked && same.iter().any(|mount| mount.mount_point == Path::new("/"));
    }
    if let (Some(only), false) = (only, is_there) {
        let one = mounts.iter().find(|mount| TRIMMABLE.contains(&mount.fs_type.as_str()));
        let one = one.map(|mount| shown(&mount.mount_point));
        return Err(DoctorError::NoMount { path: only.to_owned(), one });
    }
    not_checked.extend(pools.iter().map(|(pool, mounts)| unchecked::of_pool(pool, mounts)));
    let last_fstrim = systemd::is_running(root).then(|| surroundings::last_run(root)).flatten();
    let mut findings = of_host(&trimmers, &file_systems);
    if only.is_none() {
        let every_s = trimmers.every_s(trimmers::FSTRIM_TIMER);
        let is_on = trimmers.names.iter().any(|name| name == trimmers::FSTRIM_TIMER);
        findings.extend(
            last_fstrim.as_ref().filter(|_| is_on).map(|last| surroundings::of_last_run(last, every_s)),
        );
        findings.extend(unchecked::of_swap(root, &mounts));
        findings.extend(surroundings::of_removed_volumes(root, &mounts));
        if !host.is_forbidden {
            not_checked.extend(users::elsewhere(root, &mounts));
        }
    }
    is_unchecked |= !is_any_checked && (!not_checked.is_empty() || file_systems.is_empty());
    Ok(Report {
        kernel,
        trimmers: trimmers.names,
        file_systems,
        findings,
        not_checked,
        last_fstrim,
        is_unchecked,
    })
}

/// Returns true for a boot partition, which is too small to say anything about the host.
fn is_boot_partition(mount: &Mount) -> bool {
    ["/boot", "/efi"].iter().any(|folder| mount.mount_point.starts_with(folder))
}

/// Groups the mounts by file system, in the order of their first mounts.
fn by_file_system(mounts: &[Mount]) -> Vec<Vec<&Mount>> {
    let mut groups: Vec<Vec<&Mount>> = Vec::new();
    let mut known: HashMap<(u32, u32), usize> = HashMap::new();
    for mount in mounts {
        let index = *known.entry(mount.numbers).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(group) => group.push(mount),
            None => groups.push(vec![mount]),
        }
    }
    groups
}

fn of_host(trimmers: &Trimmers<'_>, file_systems: &[Diagnosis]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let names = |one: &Diagnosis| -> Vec<String> {
        one.today.at_intervals.iter().map(|periodic| periodic.name.clone()).collect()
    };
    if let Some(several) = file_systems.iter().map(names).max_by_key(Vec::len).filter(|names| names.len() > 1)
    {
        findings.push(Finding::new(
            Code::SeveralTrimmers,
            several.join(", "),
            "more than one of them trims the same free space; one is enough",
        ));
    }
    if trimmers.is_daemon_missing {
        findings.push(
            Finding::new(
                Code::DaemonNotRunning,
                "trimwised.service",
                "it is enabled, but trimwised is not running",
            )
            .mended_by("`systemctl status trimwised` says why it does not run")
            .with_commands(["systemctl restart trimwised".to_owned()], []),
        );
    }
    findings
}

/// The host around the file systems that are examined.
struct Surroundings<'a> {
    root: &'a HostRoot,
    mounts: &'a [Mount],
    kernel: &'a str,
    release: Release,
    /// True if nothing on this host may trim.
    is_forbidden: bool,
}

impl Surroundings<'_> {
    /// Examines the file system that `same` lists all mounts of, as seen at `mount`. The finding says what could not be
    /// checked.
    fn diagnose(
        &self,
        mount: &Mount,
        same: &[&Mount],
        trimmers: &Trimmers<'_>,
    ) -> (Diagnosis, Option<Finding>) {
        let mut devices = devices_in_sysfs(self.root, mount).unwrap_or_default();
        let realtime = self.realtime_device(mount).filter(|_| !devices.is_empty());
        devices.extend(realtime.clone());
        let graph = Graph::of(self.root, self.mounts, &devices);
        let today = Today::of(self.root, trimmers, mount, same);
        let mut findings = Vec::new();
        let stack = Stack { root: self.root, mount, mounts: self.mounts, graph: &graph, host: self.root };
        ending::of_graph(&stack, &mut findings);
        let mut purposes = purpose::purposes(&stack);
        findings.extend(kernels::of_stack(&stack, &self.release, self.kernel, &today));
        findings.extend(surroundings::of_errors(self.root, mount, &graph));
        findings.extend(users::of_cache(&graph));
        let passes = graph.passes();
        let why_unknown = passes.is_none().then(|| graph.gap.clone());
        let refuses = self.refuses_fitrim(mount, &today, &graph);
        let passes = if refuses.is_some() { Some(false) } else { passes };
        if refuses.is_some() {
            purposes.iter_mut().for_each(|one| one.is_reached = Some(false));
        }
        findings.extend(refuses);
        if let Some(device) = realtime
            && version(self.kernel).is_some_and(|found| found < XFS_TRIMS_REALTIME_SINCE)
        {
            let what = "it is the real-time device of an XFS, which Linux before 6.11 does not trim";
            findings.push(Finding::new(Code::RealtimeUntrimmed, device.name(), what));
        }
        match passes {
            _ if mount.has_failed() => findings.insert(0, failed(mount)),
            Some(false) if mount.is_read_only() => findings.push(read_only()),
            Some(false) => {}
            _ => self.of_options(mount, &today, &mut findings),
        }
        if !mount.is_read_only() && is_safe(&findings) {
            purpose::findings(&stack, &purposes, &today, systemd::is_running(self.root), &mut findings);
        }
        // In a container, the devices below belong to its host.
        if (mount.is_read_only() || self.is_forbidden) && !mount.has_failed() {
            for finding in &mut findings {
                (finding.wrong, finding.mend) = (false, None);
                finding.commands.clear();
                finding.undo.clear();
            }
        }
        if same.len() > 1 {
            let what = format!(
                "this file system is mounted {0} times (bind mounts), but needs to be trimmed only once",
                same.len()
            );
            findings.push(Finding::new(Code::MountedSeveralTimes, mount.device.clone(), what));
        }
        let not_checked = why_unknown.map(|why| {
            let why = why
                .unwrap_or_else(|| "sysfs does not show this device here, as in some containers".to_owned());
            let place = mount.mount_point.display().to_string();
            Finding::new(Code::LayersHidden, place, format!("{}: {why}", mount.device))
        });
        let diagnosis = Diagnosis {
            mount_point: mount.mount_point.clone(),
            device: mount.device.clone(),
            fs_type: mount.fs_type.clone(),
            today,
            passes,
            layers: graph.tree().into_iter().map(|(depth, node)| told(depth, node)).collect(),
            purposes,
            findings,
            drives: here::drives(self.root, self.mounts, mount),
            is_host_s: self.is_forbidden,
            is_verifiable: passes == Some(true)
                && !LOGICAL.contains(&mount.fs_type.as_str())
                && !graph.nodes.iter().any(|node| matches!(node.kind, Kind::Crypt(..))),
        };
        (diagnosis, not_checked)
    }

    /// Adds findings on mount options: those that contradict each other or a periodic trim, and notes on the others.
    fn of_options(&self, mount: &Mount, today: &Today, findings: &mut Vec<Finding>) {
        let spared = today.is_spared() && today.at_intervals.is_empty();
        if spared {
            findings.push(Finding::new(
                Code::Exempt,
                "/etc/fstab",
                format!("{NO_TRIM}: neither fstrim.timer nor trimwised trims it"),
            ));
        }
        if mount.is_read_only() {
            findings.push(read_only());
            return;
        }
        let point = mount.mount_point.display().to_string();
        let advise = format!("`trimwise advise --here {}`", quoted(&point));
        match (today.is_online(), today.at_intervals.first()) {
            // What a container's host does is unknown.
            (false, None) if self.is_forbidden || spared => {}
            (false, None) if today.not_here.iter().all(|one| one.why == WhyNot::PolicyOff) => findings.push(Finding::new(
                Code::NothingTrims,
                point,
                format!(
                    "nothing trims it: it is mounted without discard, and nothing trims it at intervals. {advise} says whether that costs anything on this drive"
                ),
            )),
            (false, None) => findings.push(self.left_out(point, today)),
            (true, Some(one)) if one.name != trimmers::TRIMWISED => {
                let why = match self.who_turned_discard_on(mount, today) {
                    "" => String::new(),
                    who => format!(" ({who})"),
                };
                findings.push(Finding::new(
                    Code::DiscardAndTimer,
                    today.discard.clone(),
                    format!("it already discards what is freed{why}; {} finds little left to trim", one.name),
                ));
            }
            _ => {}
        }
        let kernel = self.kernel;
        let overtrims = self.release.overtrims();
        if mount.fs_type == "ext4" && today.is_online() && overtrims != Has::Not {
            let (does, more) = match overtrims {
                Has::Known => ("discards", ""),
                _ => (
                    "may discard",
                    " (Linux 6.8 and later do, and so do 5.15.149, 6.1.77, 6.6.16, 6.7.4 and what follows them)",
                ),
            };
            findings.push(Finding::new(
                Code::Ext4DiscardsTooMuch,
                today.discard.clone(),
                format!(
                    "ext4 on Linux {kernel} {does} far more than was freed when scattered files are removed: each discard runs on through the free space that follows{more} (measured on 6.1, 6.12 and 6.18: 256 MiB freed, 128,866 MiB discarded). {advise}, whose model does the same, says whether that costs anything on this drive"
                ),
            ));
        }
        if mount.fs_type == "btrfs" && today.sends("btrfs") == Some(Sends::InCommit) {
            let remount = |option: &str| {
                format!("mount -o remount,{option} {}", quoted(&mount.mount_point.display().to_string()))
            };
            findings.push(
                Finding::new(
                    Code::BtrfsSyncDiscard,
                    today.discard.clone(),
                    "plain `discard` is btrfs's synchronous kind: each commit waits for all discards of what was freed. With \
                     discards of 10 ms, removing 400 files took 12.8 s; 4.5 s with discard=async, 4.8 s without (measured)",
                )
                .mended_by("use discard=async (btrfs's own default since Linux 6.2), or nodiscard with fstrim.timer; change its line in /etc/fstab, too")
                .with_commands([remount("discard=async")], [remount("discard=sync")]),
            );
        }
        if let MountedBy::Fstab { options, .. } = &today.mounted_by
            && discard_in(options).is_some()
            && !today.is_online()
        {
            let why = match mount.fs_type.as_str() {
                "xfs" => {
                    "it lists discard, but the file system is mounted without it: XFS applies it only at mount time, not on remount"
                }
                _ => "it lists discard, but the file system is mounted without it",
            };
            findings.push(Finding::new(Code::DiscardNotInEffect, "/etc/fstab", why));
        }
    }

    /// Reports a file system that every timer, job and daemon leaves out.
    fn left_out(&self, point: String, today: &Today) -> Finding {
        let reasons: Vec<String> = today.not_here.iter().map(ToString::to_string).collect();
        let what = format!("nothing trims it: it is mounted without discard; {}", reasons.join("; "));
        let wrong = |code, mend: &str| Finding::new(code, point, what).mended_by(mend);
        let why_not_timer = today.not_here.iter().find(|one| one.name == trimmers::FSTRIM_TIMER);
        let why_not_timer = why_not_timer.map(|one| &one.why);
        let is_fstrim = |service: &str| service == trimmers::FSTRIM_SERVICE;
        if matches!(why_not_timer, Some(WhyNot::Masked(service)) if is_fstrim(service)) {
            let set = |verb: &str| [format!("systemctl {verb} fstrim.service")];
            return wrong(Code::TimerMasked, "unmask fstrim.service")
                .with_commands(set("unmask"), set("mask"));
        }
        if matches!(why_not_timer, Some(WhyNot::RunsNothing(service)) if is_fstrim(service)) {
            return wrong(
                Code::TimerRunsNothing,
                "remove the file that replaces its command; `systemctl cat fstrim.service` shows which, and `systemctl \
                 revert fstrim.service` removes those in /etc",
            );
        }
        if let Some(script) = today.not_here.iter().find(|one| one.why == WhyNot::NotExecutable) {
            let set = |mode: &str| [format!("chmod {mode} {}", quoted(&script.name))];
            return wrong(Code::CronNotExecutable, "make the script executable")
                .with_commands(set("a+x"), set("a-x"));
        }
        if today.not_here.iter().any(|one| one.why == WhyNot::ReadOnlyInFstab) {
            return wrong(
                Code::ReadOnlyInFstab,
                "remove `ro` from its line in /etc/fstab, or let fstrim.timer follow all mounts",
            );
        }
        if why_not_timer != Some(&WhyNot::NotInFstab) {
            return wrong(
                Code::LeftOut,
                "let one of them cover it, or let trimwised manage it (`trimwise status` says why it does not)",
            );
        }
        let finding = wrong(
            Code::MissingInFstab,
            "add it to /etc/fstab, which fstrim.timer follows; or let the timer follow all mounts instead; or let trimwised \
             manage it (`trimwise status` says why it does not)",
        );
        let program = ["/usr/sbin/fstrim", "/sbin/fstrim", "/usr/bin/fstrim"];
        let program = program.into_iter().find(|file| self.root.has(file)).unwrap_or("/sbin/fstrim");
        let folder = "/etc/systemd/system/fstrim.service.d";
        let file = format!("{folder}/all-mounts.conf");
        let reload = || "systemctl daemon-reload".to_owned();
        finding.with_commands(
            [
                format!("mkdir -p {folder}"),
                format!(
                    "printf '%s\\n' '[Service]' ExecStart= 'ExecStart={program} --listed-in /proc/self/mountinfo \
                     --verbose --quiet-unsupported' > {file}"
                ),
                reload(),
            ],
            [format!("rm {file}"), reload()],
        )
    }

    /// Returns the real-time device of an XFS file system, which also holds data.
    fn realtime_device(&self, mount: &Mount) -> Option<SysBlock> {
        let named = mount.options.iter().find_map(|option| option.strip_prefix("rtdev="));
        of_node(self.root, named.filter(|_| mount.fs_type == "xfs")?).ok().flatten()
    }

    /// Reports a file system that refuses fstrim whatever its devices accept: on a kernel before [`FITRIM_SINCE`], and
    /// ntfs3 without the mount option discard (`ntfs_discard` in Linux's fs/ntfs3/super.c).
    fn refuses_fitrim(&self, mount: &Mount, today: &Today, graph: &Graph) -> Option<Finding> {
        if mount.is_read_only() || today.is_online() {
            return None;
        }
        let fs_type = mount.fs_type.as_str();
        let since = FITRIM_SINCE.into_iter().find(|(name, _)| *name == fs_type).map(|(_, since)| since);
        let since = since.filter(|&since| version(self.kernel).is_some_and(|found| found < since));
        let (code, what, commands, undo) = match since {
            Some((major, minor)) => {
                let what = format!("fstrim cannot trim {fs_type} before Linux {major}.{minor}");
                (Code::KernelTooOld, what, None, None)
            }
            None if fs_type == "ntfs3" => {
                let point = quoted(&mount.mount_point.display().to_string());
                let remount = |option: &str| Some(format!("mount -o remount,{option} {point}"));
                let what = "ntfs3 refuses all TRIM, even from fstrim, unless it is mounted with discard";
                (Code::Ntfs3NeedsDiscard, what.to_owned(), remount("discard"), remount("nodiscard"))
            }
            None => return None,
        };
        let place = graph.tops.first().map_or(&mount.device, |&top| &graph.nodes[top].name);
        let finding = Finding::new(code, place, what)
            .mended_by("mount it with discard, and add that option to its line in /etc/fstab")
            .with_commands(commands, undo);
        // A boot partition has little to trim.
        Some(Finding { wrong: !is_boot_partition(mount), ..finding })
    }

    /// Says what turned `discard` on and how to turn it off; empty if fstab asks for it.
    fn who_turned_discard_on(&self, mount: &Mount, today: &Today) -> &'static str {
        let fstab = match &today.mounted_by {
            MountedBy::Fstab { options, .. } => Some(options),
            MountedBy::Unit { .. } | MountedBy::Unknown => None,
        };
        match mount.fs_type.as_str() {
            _ if fstab.is_some_and(|options| discard_in(options).is_some()) => "",
            "f2fs" => "f2fs does so by default; `nodiscard` turns it off",
            "btrfs" => "btrfs does so by default since Linux 6.2; `nodiscard` turns it off",
            _ if mount.discards_by_default => "its superblock says so; `tune2fs -o ^discard` turns it off",
            _ if fstab.is_some() => {
                "not by /etc/fstab, but by rootflags= or a remount; `nodiscard` turns it off"
            }
            _ => "",
        }
    }
}

fn read_only() -> Finding {
    Finding::new(Code::ReadOnly, "ro", "it is mounted read-only: there is nothing to trim")
}

fn failed(mount: &Mount) -> Finding {
    let option = FAILED.into_iter().find(|failed| mount.options.iter().any(|option| option == failed));
    Finding::new(
        Code::Failed,
        option.unwrap_or_default(),
        "the file system failed and stopped all writes: space that it calls free may hold files that the next mount finds \
         again, so nothing may trim it now, not even fstrim",
    )
    .mended_by(format!(
        "find the cause in the kernel's log, unmount the file system, and check it with `fsck {}` before mounting it again",
        quoted(&mount.device)
    ))
}

fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn told(depth: usize, node: &Node) -> LayerReport {
    let what = match &node.kind {
        Kind::Partition => "partition".to_owned(),
        Kind::Crypt(name, _) => format!("dm-crypt {name}"),
        Kind::Lvm(name) => format!("LVM {name}"),
        Kind::ThinPool(name) => format!("thin pool {name}"),
        Kind::Vdo(name) => format!("VDO {name}"),
        Kind::Snapshot(name) => format!("LVM {name}, with a snapshot"),
        Kind::Integrity(name) => format!("dm-integrity {name}"),
        Kind::Multipath(name) => format!("multipath {name}"),
        Kind::Mapper(name) => format!("device mapper {name}"),
        Kind::Raid(level) => format!("Linux RAID {level}"),
        Kind::Bcache => "bcache".to_owned(),
        Kind::Loop(file) => format!("loop device over {file}"),
        Kind::Disk(disk) => {
            let by = disk.transport.name().unwrap_or("disk");
            format!("{by} {} {}", disk.model, disk.firmware).trim_end().to_owned()
        }
    };
    LayerReport {
        name: node.name.clone(),
        what,
        depth,
        discard_max_bytes: node.discard_max,
        discards: node.discards,
    }
}

/// Returns the kernel names of these devices and of all below them.
pub fn layers<'a>(root: &HostRoot, devices: impl Iterator<Item = &'a SysBlock>) -> BTreeSet<String> {
    let devices: Vec<SysBlock> = devices.cloned().collect();
    Graph::of(root, &[], &devices).nodes.into_iter().map(|node| node.name).collect()
}

/// Returns the kernel names of the disks below these devices, or of the lowest known devices where sysfs shows no disk.
pub fn disks<'a>(root: &HostRoot, devices: impl Iterator<Item = &'a SysBlock>) -> BTreeSet<String> {
    let devices: Vec<SysBlock> = devices.cloned().collect();
    let graph = Graph::of(root, &[], &devices);
    let lowest = graph.nodes.into_iter().filter(|node| node.below.is_empty() && node.beside.is_empty());
    lowest.map(|node| node.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enabled_daemon_that_does_not_run_is_a_problem() {
        let root = HostRoot::new("/nonexistent");
        let mut found = trimmers::trimmers(&root, Path::new("/run/trimwise"), &[], false);
        assert_eq!(of_host(&found, &[]), []);
        found.is_daemon_missing = true;
        let [missing] = &of_host(&found, &[])[..] else { panic!("not one finding") };
        assert_eq!((missing.code.as_str(), missing.wrong), ("daemon.service.not-running", true));
        assert_eq!(missing.commands, ["systemctl restart trimwised"]);
    }
}
