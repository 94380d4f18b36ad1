//! Checks the file system against a map of files, under random operations.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proptest::prelude::*;

use super::{Guarded, config, drive, guard, host, hosts, mounted, with_queue};
use crate::block::QueueConfig;
use crate::files::{FileError, Files, OpenMode};
use crate::fs::Ext4;
use crate::policy::PolicySpec;
use crate::units::{Bytes, Lpn, SimDuration, UNIT_BYTES, UnitRange};

/// Room for about 57 MiB of files: a few dozen large writes fill it.
const DRIVE_MIB: u64 = 64;
const BUFFER: usize = 16 << 20;

#[derive(Clone, Debug)]
enum Op {
    Create(u8),
    Append(u8, usize),
    Overwrite(u8, u64, usize),
    Read(u8, u64, usize),
    Unlink(u8),
    Shorten(u8, u64),
    Fsync(u8),
    Fdatasync(u8),
    Rename(u8, u8),
    Direct(u8, u64, u64),
    DropCached(u8),
    Sync,
    Mkdir(u8),
    Rmdir(u8),
    TrimFree(u64, u64, u64),
    Remount,
    Sleep(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let file = 0u8..11;
    prop_oneof![
        3 => file.clone().prop_map(Op::Create),
        3 => (file.clone(), 1usize..20_000).prop_map(|(f, n)| Op::Append(f, n)),
        4 => (file.clone(), 1usize..BUFFER).prop_map(|(f, n)| Op::Append(f, n)),
        3 => (file.clone(), 0u64..8 << 20, 1usize..300_000).prop_map(|(f, at, n)| Op::Overwrite(f, at, n)),
        3 => (file.clone(), 0u64..8 << 20, 1usize..500_000).prop_map(|(f, at, n)| Op::Read(f, at, n)),
        4 => file.clone().prop_map(Op::Unlink),
        2 => file.clone().prop_map(Op::Fsync),
        1 => file.clone().prop_map(Op::Fdatasync),
        2 => (file.clone(), file.clone()).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => (file.clone(), 0u64..2_000, 1u64..64).prop_map(|(f, at, n)| Op::Direct(f, at, n)),
        1 => file.prop_map(Op::DropCached),
        1 => Just(Op::Sync),
        2 => (0u8..3).prop_map(Op::Mkdir),
        1 => (0u8..3).prop_map(Op::Rmdir),
        1 => (0u64..16_384, 0u64..16_384, 0u64..64).prop_map(|(at, n, min)| Op::TrimFree(at, n, min)),
        1 => Just(Op::Remount),
        2 => (0u64..8_000).prop_map(Op::Sleep),
    ]
}

#[derive(Clone, Debug, Default)]
struct File {
    bytes: u64,
    /// Pages that were written and need a block; the others are holes.
    pages: BTreeSet<u64>,
}

struct Model {
    fs: Ext4,
    files: BTreeMap<String, File>,
    directories: BTreeSet<String>,
    guarded: Rc<RefCell<Guarded>>,
    policy: usize,
    /// Free blocks that the mount treated as untrimmed.
    suspected_units: u64,
}

fn directory_of(file: u8) -> Option<String> {
    (!file.is_multiple_of(3)).then(|| format!("d{}", file % 3))
}

fn path_of(file: u8) -> String {
    directory_of(file).map_or(format!("f{file}"), |d| format!("{d}/f{file}"))
}

fn pages_of(at: u64, len: u64) -> std::ops::Range<u64> {
    at / UNIT_BYTES..(at + len).div_ceil(UNIT_BYTES)
}

impl Model {
    async fn step(&mut self, op: &Op) {
        match *op {
            Op::Create(f) => self.create(f).await,
            Op::Append(f, len) => self.write(f, None, len).await,
            Op::Overwrite(f, at, len) => self.write(f, Some(at), len).await,
            Op::Read(f, at, len) => self.read(f, at, len).await,
            Op::Unlink(f) => {
                self.guarded.borrow_mut().freeing(&self.fs, &path_of(f));
                let result = self.fs.unlink(&path_of(f)).await;
                assert_eq!(result.is_ok(), self.files.remove(&path_of(f)).is_some(), "{result:?}");
                self.guarded.borrow_mut().live.remove(&path_of(f));
            }
            Op::Shorten(f, bytes) => self.shorten(f, bytes).await,
            Op::Fsync(f) => {
                if let Ok(mut file) = self.fs.open(&path_of(f), OpenMode::Read).await {
                    self.fs.fsync(&mut file).await.unwrap();
                    self.check_blocks(&path_of(f));
                    assert_eq!(self.fs.state_of(&path_of(f)), (0, 0), "dirty after fsync");
                }
            }
            Op::Fdatasync(f) => {
                if let Ok(mut file) = self.fs.open(&path_of(f), OpenMode::Read).await {
                    self.fs.fdatasync(&mut file).await.unwrap();
                    self.check_blocks(&path_of(f));
                    assert_eq!(self.fs.state_of(&path_of(f)), (0, 0), "dirty after fdatasync");
                    assert!(self.fs.is_readable_after_a_crash(&path_of(f)));
                }
            }
            Op::Rename(from, to) => self.rename(from, to).await,
            Op::Direct(f, at, pages) => self.direct(f, at, pages).await,
            Op::DropCached(f) => {
                if let Ok(mut file) = self.fs.open(&path_of(f), OpenMode::Read).await {
                    self.fs.drop_cached(&mut file).await.unwrap();
                }
            }
            Op::Sync => self.sync().await,
            Op::Mkdir(d) => {
                let path = format!("d{d}");
                match self.fs.mkdir(&path).await {
                    Ok(()) => assert!(self.directories.insert(path.clone())),
                    Err(FileError::Exists { .. }) => assert!(self.directories.contains(&path)),
                    Err(error) => self.is_full(1, &error).await,
                }
                self.guarded.borrow_mut().live.insert(path);
            }
            Op::Rmdir(d) => {
                let path = format!("d{d}");
                let is_empty = !self.files.keys().any(|f| f.starts_with(&format!("{path}/")));
                let expected = self.directories.contains(&path) && is_empty;
                assert_eq!(self.fs.rmdir(&path).await.is_ok(), expected);
                if expected {
                    self.directories.remove(&path);
                    self.guarded.borrow_mut().live.remove(&path);
                }
            }
            Op::TrimFree(at, units, min) => {
                self.fs.trim_free(UnitRange::new(Lpn(at), units), min).await;
            }
            Op::Remount => self.remount().await,
            Op::Sleep(ms) => self.fs.queue().sim().clone().sleep(SimDuration::from_millis(ms)).await,
        }
        self.check().await;
    }

    async fn create(&mut self, f: u8) {
        let path = path_of(f);
        let has_parent = directory_of(f).is_none_or(|d| self.directories.contains(&d));
        self.guarded.borrow_mut().freeing(&self.fs, &path);
        match self.fs.open(&path, OpenMode::Create).await {
            Ok(file) => {
                assert!(has_parent);
                self.fs.close(file).await.unwrap();
                self.files.insert(path.clone(), File::default());
                self.guarded.borrow_mut().live.insert(path);
            }
            Err(FileError::NotFound { .. }) => assert!(!has_parent),
            Err(error) => self.is_full(1, &error).await,
        }
    }

    async fn write(&mut self, f: u8, at: Option<u64>, len: usize) {
        let path = path_of(f);
        let mode = if at.is_some() { OpenMode::CreateKeep } else { OpenMode::Append };
        if !self.files.contains_key(&path) {
            self.create(f).await;
        }
        if !self.files.contains_key(&path) {
            return;
        }
        let mut open = self.fs.open(&path, mode).await.unwrap();
        let model = &self.files[&path];
        let at = at.map_or(model.bytes, |at| at.min(model.bytes + 100_000));
        let missing = pages_of(at, len as u64).filter(|page| !model.pages.contains(page)).count() as u64;
        self.fs.seek(&mut open, at).await.unwrap();
        match self.fs.write(&mut open, &vec![0; len]).await {
            Ok(()) => {
                let model = self.files.get_mut(&path).unwrap();
                model.pages.extend(pages_of(at, len as u64));
                model.bytes = model.bytes.max(at + len as u64);
            }
            Err(error) => self.is_full(missing, &error).await,
        }
        self.fs.close(open).await.unwrap();
    }

    async fn shorten(&mut self, f: u8, bytes: u64) {
        let path = path_of(f);
        let Some(model) = self.files.get_mut(&path) else { return };
        let bytes = bytes.min(model.bytes);
        let open = self.fs.open(&path, OpenMode::CreateKeep).await.unwrap();
        self.guarded.borrow_mut().freeing(&self.fs, &path);
        self.fs.shorten(&open, bytes).await;
        model.pages.retain(|page| *page < bytes.div_ceil(UNIT_BYTES));
        model.bytes = bytes;
        self.fs.close(open).await.unwrap();
    }

    async fn rename(&mut self, from: u8, to: u8) {
        let (old, new) = (path_of(from), path_of(to));
        let has_parent = directory_of(to).is_none_or(|d| self.directories.contains(&d));
        if old != new && self.files.contains_key(&old) {
            self.guarded.borrow_mut().freeing(&self.fs, &new);
        }
        match self.fs.rename(&old, &new).await {
            Ok(()) => {
                let file = self.files.remove(&old).expect("it was there");
                self.files.insert(new.clone(), file);
                let live = &mut self.guarded.borrow_mut().live;
                live.remove(&old);
                live.insert(new);
            }
            Err(FileError::NotFound { .. }) => assert!(!self.files.contains_key(&old) || !has_parent),
            Err(error) => self.is_full(1, &error).await,
        }
    }

    /// Writes and reads past the page cache.
    async fn direct(&mut self, f: u8, at: u64, pages: u64) {
        let path = path_of(f);
        let Some(model) = self.files.get(&path) else { return };
        let at = at.min(model.bytes / UNIT_BYTES + 10);
        let missing = (at..at + pages).filter(|page| !model.pages.contains(page)).count() as u64;
        let (offset, len) = (at * UNIT_BYTES, (pages * UNIT_BYTES) as usize);
        let mut open = self.fs.open(&path, OpenMode::Direct).await.unwrap();
        match self.fs.pwrite(&mut open, offset, &vec![0; len]).await {
            Ok(()) => {
                let model = self.files.get_mut(&path).unwrap();
                model.pages.extend(at..at + pages);
                model.bytes = model.bytes.max(offset + len as u64);
                assert_eq!(
                    self.fs.pread(&mut open, offset, &mut vec![0; len]).await.unwrap(),
                    len.min((model.bytes - offset) as usize)
                );
                let blocks = self.fs.extents(&path).unwrap();
                assert!(blocks.iter().map(|e| e.units).sum::<u64>() >= pages, "written, not only dirty");
            }
            Err(error) => self.is_full(missing, &error).await,
        }
        self.fs.close(open).await.unwrap();
    }

    async fn read(&mut self, f: u8, at: u64, len: usize) {
        let path = path_of(f);
        match self.fs.open(&path, OpenMode::Read).await {
            Ok(mut open) => {
                self.fs.seek(&mut open, at).await.unwrap();
                let expected = self.files[&path].bytes.saturating_sub(at).min(len as u64);
                assert_eq!(self.fs.read(&mut open, &mut vec![0; len]).await.unwrap() as u64, expected);
                self.fs.close(open).await.unwrap();
            }
            Err(_) => assert!(!self.files.contains_key(&path)),
        }
    }

    async fn remount(&mut self) {
        let (policy, generation) = hosts()[self.policy];
        let volume = self.fs.clone().unmount().await;
        self.fs = volume.mount(host(generation), policy.governor()).await;
        self.suspected_units = self.fs.ledger().dropped;
        self.guarded.borrow_mut().freed.clear();
        guard(&self.fs, Rc::clone(&self.guarded));
    }

    async fn sync(&mut self) {
        self.fs.sync().await.unwrap();
        for (path, file) in &self.files {
            self.check_blocks(path);
            let blocks: u64 = self.fs.extents(path).unwrap().iter().map(|e| e.units).sum();
            assert_eq!(blocks, file.pages.len() as u64, "{path}");
        }
    }

    /// Checks that every block of a clean file holds data in the device; a TRIM that hit one would have removed them.
    fn check_blocks(&self, path: &str) {
        self.fs.queue().with_ssd(|ssd| {
            for extent in self.fs.extents(path).unwrap() {
                for lpn in extent.iter() {
                    assert!(ssd.is_mapped(lpn), "{path} has lost {lpn:?}");
                }
            }
        });
    }

    /// Checks that `NoSpace` is returned only if fewer than `needed` blocks are left, counting those that will be
    /// freed.
    async fn is_full(&self, needed: u64, error: &FileError) {
        assert!(matches!(error, FileError::NoSpace { .. }), "{error}");
        let free = self.fs.statfs().await.unwrap().free;
        assert!(free < Bytes::from_units(needed), "{error}, but {free} are free for {needed} blocks");
    }

    async fn check(&self) {
        self.fs.audit().unwrap();
        let space = self.fs.statfs().await.unwrap();
        let in_files: usize = self.files.values().map(|f| f.pages.len()).sum();
        let directories = self.directories.iter().map(String::as_str).chain([""]);
        let in_directories: usize = directories.map(|d| self.fs.extents(d).unwrap().len()).sum();
        let in_trees: usize = self.fs.0.state.borrow().disk.inodes.iter().map(|inode| inode.tree.len()).sum();
        assert!(in_trees <= in_files / 5 || in_trees <= self.files.len(), "{in_trees} blocks of trees");
        let used = Bytes::from_units((in_files + in_trees + in_directories) as u64);
        assert_eq!(space.total.0 - space.free.0, used.0);
        let (policy, _) = hosts()[self.policy];
        let ledger = self.fs.ledger();
        if policy == PolicySpec::OFF {
            assert_eq!(ledger.in_tokens + ledger.pending, 0);
        } else if policy == PolicySpec::IDEAL {
            assert_eq!(ledger.pending + ledger.dropped + ledger.in_tokens, 0);
        } else if policy == PolicySpec::COMMIT {
            // FITRIM trims some of them.
            assert!(ledger.dropped <= self.suspected_units);
        }
    }
}

impl Ext4 {
    /// Returns true if the blocks and the length of a file are in a committed transaction.
    fn is_readable_after_a_crash(&self, path: &str) -> bool {
        let state = self.0.state.borrow();
        let inode = state.disk.names[path].inode;
        state.journal.is_committed(state.disk.inodes[inode as usize].data_transaction)
    }

    /// Dirty pages of a file, and its pages in transfer.
    fn state_of(&self, path: &str) -> (u64, u64) {
        let disk = &self.0.state.borrow().disk;
        let inode = &disk.inodes[disk.names[path].inode as usize];
        (inode.dirty_pages, inode.writeback_pages)
    }
}

fn run(policy: usize, ops: Vec<Op>) {
    with_queue(&drive(DRIVE_MIB), QueueConfig::default(), |queue| async move {
        let (spec, generation) = hosts()[policy];
        let fs = mounted(&queue, spec, generation).await;
        let live = BTreeSet::from([String::new()]);
        let guarded = Rc::new(RefCell::new(Guarded { live, ..Guarded::default() }));
        guard(&fs, Rc::clone(&guarded));
        let mut model = Model {
            fs,
            files: BTreeMap::new(),
            directories: BTreeSet::new(),
            guarded,
            policy,
            suspected_units: 0,
        };
        for op in &ops {
            model.step(op).await;
        }
        model.sync().await;
        // The policy drains what is left; then every freed block is accounted for. Policies with a smallest extent (64
        // KiB at most) leave shorter ones, and `adaptive` those that are not worth a TRIM of 100 ms.
        queue.sim().clone().sleep(SimDuration::from_secs(600)).await;
        let ledger = model.fs.ledger();
        let has_smallest = ["btrfs", "zfs", "f2fs", "adaptive"].contains(&spec.to_string().as_str());
        let left = if has_smallest { model.fs.pending_of_at_least(16) } else { ledger.pending };
        assert_eq!(
            left, 0,
            "units pending under {spec}; if it has a smallest extent, add it to `has_smallest`"
        );
        assert_eq!(ledger.in_tokens, 0, "units in TRIM commands under {spec}");
        model.check().await;
        queue.with_ssd(|ssd| ssd.audit()).unwrap();
        model.remount().await;
        model.sync().await;
        model.check().await;
        let stale = model.fs.stale_units();
        let free_and_mapped = model.fs.free_and_mapped();
        assert_eq!(stale, free_and_mapped);
        queue.trace(None);
    });
}

impl Ext4 {
    fn pending_of_at_least(&self, units: u64) -> u64 {
        self.0.policy.pending_extents().iter().map(|range| range.units).filter(|&u| u >= units).sum()
    }

    fn free_and_mapped(&self) -> u64 {
        let allocator = &self.0.state.borrow().disk.allocator;
        let free = (0..allocator.groups() as u64).flat_map(|g| allocator.free_in_group(g));
        self.0.queue.with_ssd(|ssd| {
            free.flat_map(|e| e.iter().collect::<Vec<_>>()).filter(|&lpn| ssd.is_mapped(lpn)).count() as u64
        })
    }
}

proptest! {
    #![proptest_config(config(150))]
    #[test]
    fn agrees_with_a_map_of_files(policy in 0..hosts().len(), ops in prop::collection::vec(op(), 1..200)) {
        run(policy, ops);
    }

    /// Without TRIM, and with it at each commit.
    #[test]
    fn files_that_are_cut_off_agree_with_a_map_of_files(
        policy in prop_oneof![Just(PolicySpec::OFF), Just(PolicySpec::COMMIT)],
        ops in prop::collection::vec(
            prop_oneof![4 => op(), 1 => (0u8..11, 0u64..16 << 20).prop_map(|(f, at)| Op::Shorten(f, at))],
            1..200,
        ),
    ) {
        run(hosts().iter().position(|(host, _)| *host == policy).unwrap(), ops);
    }
}
