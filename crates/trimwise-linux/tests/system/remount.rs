//! Changing `discard` changes nothing else: each option of ext4, XFS, btrfs and f2fs alone, then random sets.
//!
//! `REMOUNT_SETS` is the number of random sets on each file system (by default as many as a minute permits), and
//! `REMOUNT_ON` a block device to use instead of loop devices, in a guest whose kernel has f2fs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{XattrFlags, setxattr};
use trimwise_linux::mount::{Mount, mount_of};
use trimwise_linux::remount;
use trimwise_testing::loops::{Loop, can_run, sh};
use trimwise_testing::skipped;

const MIB: u64 = 1 << 20;
/// Random sets on each file system without `REMOUNT_SETS`.
const SETS: u64 = 10;
const SET_MAX: u64 = 8;

/// Options of every file system. Of each line, one option at most is in a set.
const OF_ALL: &str = "nosuid
nodev
noexec
noatime nodiratime strictatime
lazytime nolazytime
sync
dirsync
ro";

const EXT4: &str = "discard nodiscard
acl noacl
user_xattr
data=journal data=writeback data=ordered
commit=7
errors=remount-ro errors=panic errors=continue
nobarrier barrier=1
nodelalloc delalloc
grpid
minixdf
resuid=7
resgid=9
stripe=16
journal_checksum
journal_async_commit
journal_ioprio=2
noauto_da_alloc
block_validity noblock_validity
dioread_lock dioread_nolock
max_batch_time=1000
min_batch_time=100
inode_readahead_blks=8
init_itable=20 noinit_itable
nombcache
mb_optimize_scan=0
no_prefetch_block_bitmaps
max_dir_size_kb=900
usrquota quota noquota
grpquota
usrjquota=aquota.user,jqfmt=vfsv1
noload,ro
i_version
debug";

const BTRFS: &str = "discard discard=async nodiscard
noacl acl
nodatacow nodatasum compress=zstd:5 compress-force=lzo compress=zlib
commit=7
nobarrier
max_inline=1024
thread_pool=3
ssd nossd ssd_spread
notreelog
flushoncommit
autodefrag
user_subvol_rm_allowed
skip_balance
metadata_ratio=3
fatal_errors=panic
enospc_debug
nospace_cache space_cache=v2 clear_cache,space_cache=v2
degraded
rescan_uuid_tree
subvol=/
ro,rescue=ignoredatacsums ro,rescue=nologreplay rescue=usebackuproot";

const XFS: &str = "discard nodiscard
inode32 inode64
attr2
ikeep
largeio
swalloc
allocsize=1m
logbufs=4
logbsize=64k
noalign
nouuid
uquota uqnoenforce noquota
gquota
pquota
wsync
filestreams
grpid
norecovery,ro";

#[cfg(feature = "f2fs-tests")]
const F2FS: &str = "discard nodiscard
acl noacl
user_xattr nouser_xattr
background_gc=off background_gc=sync
gc_merge
disable_roll_forward norecovery,ro
noinline_xattr
noinline_data
noinline_dentry
noflush_merge
nobarrier
fastboot
noextent_cache
age_extent_cache
data_flush
mode=lfs
active_logs=2 active_logs=4
reserve_root=100,resuid=7
alloc_mode=reuse alloc_mode=default
fsync_mode=strict fsync_mode=nobarrier
nocheckpoint_merge
memory=low
errors=panic errors=remount-ro
discard_unit=segment
atgc
usrquota
grpquota
fault_injection=0
disable_ext_identify";

/// A generator of random numbers, the same in every run: Knuth's MMIX.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A file system on a device of its own.
struct Place {
    fs_type: &'static str,
    device: PathBuf,
    point: PathBuf,
    _disk: Option<Loop>,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new(mkfs: &[&str]) -> Self {
        let fs_type = mkfs[0].strip_prefix("mkfs.").unwrap();
        let fs_type = ["ext4", "xfs", "btrfs", "f2fs"].into_iter().find(|one| *one == fs_type).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let given = std::env::var_os("REMOUNT_ON").map(PathBuf::from);
        let disk = given.is_none().then(|| Loop::blank(400 * MIB));
        let device = given.or_else(|| disk.as_ref().map(Loop::node)).unwrap();
        sh(mkfs[0], &[&mkfs[1..], &[device.to_str().unwrap()]].concat());
        let point = folder.path().join("mounted");
        fs::create_dir(&point).unwrap();
        Self { fs_type, device, point, _disk: disk, _folder: folder }
    }

    /// Mounts it. Returns false if the kernel refuses these options.
    fn mount(&self, options: &str) -> bool {
        let mut command = Command::new("mount");
        command.args(["-t", self.fs_type, "-o", options]).args([&self.device, &self.point]);
        command.stderr(Stdio::null()).status().unwrap().success()
    }

    fn unmount(&self) {
        sh("umount", &[self.point.to_str().unwrap()]);
    }

    fn mounted(&self) -> Mount {
        mount_of(&self.point).unwrap()
    }

    /// Returns the fields of the superblock that no mount changes: no counters, times, generations or checksums.
    fn superblock(&self) -> Vec<u8> {
        let kept: &[(usize, usize)] = match self.fs_type {
            // Sizes, errors, s_def_resuid, features to the volume's name; the default options.
            "ext4" => &[(1024, 1028), (1048, 1068), (1084, 1086), (1100, 1160), (1280, 1288)],
            "xfs" => &[(0, 128), (160, 220)],
            // Magic, sizes, compatibility flags; the label.
            "btrfs" => &[(0x10040, 0x10048), (0x10088, 0x100a0), (0x100ac, 0x100c4), (0x1012b, 0x1022b)],
            _ => &[(1024, 1024 + 0x80)],
        };
        let mut bytes = vec![0; 0x10400];
        File::open(&self.device).unwrap().read_exact(&mut bytes).unwrap();
        kept.iter().flat_map(|&(from, to)| bytes[from..to].to_vec()).collect()
    }

    /// Returns true if the file system accepts ACLs.
    fn has_acls(&self) -> bool {
        let list =
            [(1u16, 6u16, u32::MAX), (2, 4, 1), (4, 4, u32::MAX), (0x10, 6, u32::MAX), (0x20, 4, u32::MAX)];
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in list {
            value.extend(
                tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()),
            );
        }
        let file = self.point.join("file");
        drop(File::create(&file));
        setxattr(&file, "system.posix_acl_access", &value, XattrFlags::empty()).is_ok()
    }

    /// Turns `discard` on and off, and compares everything with what was before. Returns what the kernel did besides,
    /// as far as it was undone.
    fn toggle(&self, options: &str) -> Vec<String> {
        let with_defaults = |mount: &Mount| {
            let device = self.device.file_name().unwrap().to_str().unwrap();
            let all = fs::read_to_string(format!("/proc/fs/ext4/{device}/options")).unwrap_or_default();
            let lines = all.lines().filter(|line| !is_of_discards(line)).map(str::to_owned);
            let shown = mount.options.iter().filter(|option| !is_of_discards(option)).cloned();
            shown.chain(lines).collect::<BTreeSet<_>>()
        };
        let before = self.mounted();
        // What mounting changed is written by the next commit.
        sh("sync", &["-f", self.point.to_str().unwrap()]);
        let (shown, superblock) = (with_defaults(&before), self.superblock());
        let is_on = before.discard() != "nodiscard";
        let (on, was) =
            (remount::on(trimwise_linux::layout::Kind::of(self.fs_type)), before.discard().to_owned());
        let mut undone = Vec::new();
        for option in if is_on { ["nodiscard", &was] } else { [on, "nodiscard"] } {
            let file = File::open(&self.point).unwrap();
            match remount::change(&file, option) {
                Ok(more) => undone.extend(more),
                Err(error) => panic!("{} {options}: {option}: {error}", self.fs_type),
            }
            let now = self.mounted();
            assert_eq!(with_defaults(&now), shown, "{} {options}: {option}", self.fs_type);
            // XFS takes the option and keeps its own.
            let takes = self.fs_type != "xfs";
            assert!(!takes || now.discard() == option, "{} {options}: {option}: {now:?}", self.fs_type);
        }
        assert_eq!(self.mounted().discard(), was, "{} {options}", self.fs_type);
        assert!(self.superblock() == superblock, "{} {options}: the superblock differs", self.fs_type);
        undone
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        drop(command.arg(&self.point).stderr(Stdio::null()).status());
    }
}

fn is_of_discards(option: &str) -> bool {
    option == "nodiscard" || option == "discard" || option.starts_with("discard")
}

/// Toggles `discard` under each option alone and under random sets of them. Returns the number of mounts.
fn nothing_else_changes(mkfs: &[&str], options: &str) -> Option<u64> {
    let fs_type = mkfs[0].strip_prefix("mkfs.").unwrap();
    if std::env::var_os("REMOUNT_ON").is_none() && !can_run(&[mkfs[0]]) {
        return None;
    }
    if !fs::read_to_string("/proc/filesystems").unwrap().lines().any(|line| line.ends_with(fs_type)) {
        skipped(&format!("this kernel has no {fs_type}"));
        return None;
    }
    let place = Place::new(mkfs);
    let choices: Vec<Vec<&str>> =
        OF_ALL.lines().chain(options.lines()).map(|line| line.split(' ').collect()).collect();
    let random: u64 = std::env::var("REMOUNT_SETS").ok().map_or(SETS, |text| text.parse().unwrap());
    let (mut toggled, mut refused) = (0, Vec::new());
    let mut try_with = |set: &str| {
        if !place.mount(set) {
            return false;
        }
        let undone = place.toggle(set);
        assert!(
            undone.is_empty(),
            "{fs_type} {set}: changed and put back, so it should be repeated: {undone:?}"
        );
        if set.split(',').any(|one| one == "noacl") && !set.split(',').any(|one| one == "ro") {
            assert!(!place.has_acls(), "{fs_type} {set}");
        }
        place.unmount();
        toggled += 1;
        true
    };
    assert!(try_with("defaults"));
    for option in choices.iter().flatten() {
        if !try_with(option) {
            refused.push(*option);
        }
    }
    let mut draw = Draw(1);
    let mut sets = 0;
    while sets < random {
        let mut set: Vec<&str> = Vec::new();
        for _ in 0..2 + draw.below(SET_MAX - 1) {
            let line = &choices[draw.below(choices.len() as u64) as usize];
            if !line.iter().any(|one| set.contains(one)) {
                set.push(line[draw.below(line.len() as u64) as usize]);
            }
        }
        set.retain(|option| !refused.contains(option));
        sets += u64::from(!set.is_empty() && try_with(&set.join(",")));
    }
    println!("{fs_type}: toggled on {toggled} mounts, {sets} of them random; refused: {refused:?}");
    Some(toggled)
}

#[test]
fn discard_of_ext4_changes_alone() {
    let mkfs = ["mkfs.ext4", "-q", "-F", "-E", "nodiscard"];
    assert!(nothing_else_changes(&mkfs, EXT4).is_none_or(|mounts| mounts > 50));
}

#[test]
fn discard_of_btrfs_changes_alone() {
    let mkfs = ["mkfs.btrfs", "-q", "-f", "-K"];
    assert!(nothing_else_changes(&mkfs, BTRFS).is_none_or(|mounts| mounts > 40));
}

/// With the older free space cache, which its options can turn off.
#[test]
fn discard_of_btrfs_without_a_free_space_tree_changes_alone() {
    let mkfs = ["mkfs.btrfs", "-q", "-f", "-K", "-R", "^free-space-tree"];
    let options = BTRFS
        .replace("nospace_cache space_cache=v2 clear_cache,space_cache=v2", "nospace_cache space_cache=v1");
    assert!(nothing_else_changes(&mkfs, &options).is_none_or(|mounts| mounts > 40));
}

#[test]
fn what_xfs_takes_changes_alone() {
    assert!(nothing_else_changes(&["mkfs.xfs", "-q", "-f", "-K"], XFS).is_none_or(|mounts| mounts > 25));
}

#[cfg(feature = "f2fs-tests")]
#[test]
fn discard_of_f2fs_changes_alone() {
    let mkfs = ["mkfs.f2fs", "-q", "-f", "-t", "0"];
    assert!(nothing_else_changes(&mkfs, F2FS).is_none_or(|mounts| mounts > 30));
}
