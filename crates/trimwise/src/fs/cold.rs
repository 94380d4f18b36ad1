//! Metadata that are not in memory. All are, until a workload drops the caches; then a removal reads what it needs.
//!
//! Linux reads the block of a directory that holds the name, the inode with its neighbours, blocks of the extent tree
//! (`ext4_find_extent`), and the bitmaps of the groups that get blocks or an inode back, each when it needs it and one
//! after the other. Here they are all read before the transaction. Other calls find everything in memory.

use std::collections::BTreeSet;

use super::alloc::group_of;
use super::names::parent;
use super::{Ext4, State};
use crate::units::{Lpn, UnitRange};

impl Ext4 {
    /// Syncs, and drops all clean pages and metadata.
    pub(super) async fn drop_all_cached(&self) {
        self.sync_all().await;
        let state = &mut *self.0.state.borrow_mut();
        let State { disk, cache, .. } = state;
        for entry in disk.inodes.iter_mut() {
            if entry.dirty_pages + entry.writeback_pages + entry.reads == 0 {
                cache.forget(&mut entry.chunks);
            }
        }
        state.in_memory = Some(BTreeSet::new());
    }

    /// Reads the metadata that the removal of a file or directory needs, as far as they are not in memory.
    pub(super) async fn read_for_removal(&self, path: &str) {
        for range in self.needed_for_removal(path) {
            let is_there = |state: &State| {
                state
                    .in_memory
                    .as_ref()
                    .is_none_or(|blocks| range.iter().all(|block| blocks.contains(&block)))
            };
            if is_there(&self.0.state.borrow()) {
                continue;
            }
            self.0.queue.read(range).await;
            self.0.state.borrow_mut().in_memory.iter_mut().for_each(|blocks| blocks.extend(range.iter()));
        }
    }

    /// Returns the blocks in the order in which Linux comes to them; nothing if all metadata are in memory.
    fn needed_for_removal(&self, path: &str) -> Vec<UnitRange> {
        let state = &*self.0.state.borrow();
        let disk = &state.disk;
        let Some(entry) = state.in_memory.as_ref().and_then(|_| disk.names.get(path)) else {
            return Vec::new();
        };
        let one = |block: Lpn| UnitRange::new(block, 1);
        let mut needed = Vec::new();
        needed.extend(disk.directory_inode(parent(path)).map(|inode| disk.layout.inodes_read_with(inode)));
        needed.push(one(Lpn(entry.block)));
        needed.push(disk.layout.inodes_read_with(entry.inode));
        let own = disk.directories.get(path).filter(|_| entry.is_directory);
        let own: Vec<Lpn> = own.into_iter().flat_map(|own| &own.blocks).map(|&block| Lpn(block)).collect();
        let inode = &disk.inodes[entry.inode as usize];
        let freed = inode.extents.iter().map(|extent| extent.blocks.start);
        let of_metadata = own.iter().chain(&inode.tree).copied();
        needed.extend(of_metadata.clone().map(one));
        let groups: BTreeSet<u64> = freed.chain(of_metadata).map(|block| group_of(block.0)).collect();
        needed.extend(groups.into_iter().map(|group| one(disk.layout.block_bitmap(group))));
        needed.push(one(disk.layout.inode_bitmap(disk.layout.inode_group(entry.inode))));
        needed
    }
}

#[cfg(test)]
mod tests {
    use crate::block::{BlockQueue, QueueConfig};
    use crate::engine::Sim;
    use crate::files::{Files, OpenMode};
    use crate::fs::{Volume, host::HostConfig, layout::FormatOptions};
    use crate::policy::{LinuxVersion, PolicySpec};
    use crate::ssd::{Ssd, SsdConfig};
    use crate::units::Bytes;

    /// Removes three files and their directory. Returns the units that each removal reads, and how many blocks of inodes
    /// are read together there.
    fn units_read(drops_caches: bool) -> (Vec<u64>, u64) {
        let config = SsdConfig { capacity_bytes: Bytes::gib(1).0, ..SsdConfig::default() };
        let sim = Sim::new();
        let queue = BlockQueue::new(&sim, Ssd::new(&config, 1).unwrap(), QueueConfig::default());
        let ran = sim.run(async move {
            let volume = Volume::format(&queue, FormatOptions::TODAY).await.unwrap();
            let host = HostConfig::of(LinuxVersion::TODAY, Bytes::gib(1));
            let fs = volume.mount(host, PolicySpec::OFF.governor()).await;
            fs.mkdir("d").await.unwrap();
            for (path, pieces) in [("d/a", 1), ("d/b", 1), ("d/holey", 10)] {
                let mut file = fs.open(path, OpenMode::Create).await.unwrap();
                for piece in 0..pieces {
                    fs.pwrite(&mut file, piece * 8192, &[0; 4096]).await.unwrap();
                }
                fs.close(file).await.unwrap();
            }
            if drops_caches {
                fs.drop_caches().await.unwrap()
            } else {
                fs.sync().await.unwrap()
            }
            let inodes = {
                let disk = &fs.0.state.borrow().disk;
                disk.layout.inodes_read_with(disk.directory_inode("d").unwrap()).units
            };
            let read = || queue.with_ssd(|ssd| ssd.stats().host_units_read);
            let mut units = Vec::new();
            for path in ["d/a", "d/b", "d/holey", "d"] {
                let before = read();
                if path == "d" {
                    fs.rmdir(path).await.unwrap()
                } else {
                    fs.unlink(path).await.unwrap()
                }
                units.push(read() - before);
            }
            fs.audit().unwrap();
            (units, inodes)
        });
        ran.unwrap()
    }

    /// The first removal reads inodes, the directory's block and two bitmaps; that of a file with ten extents its tree;
    /// that of the directory the root's block and the bitmap of its own.
    #[test]
    fn metadata_are_read_once_after_the_caches_were_dropped() {
        let (units, inodes) = units_read(true);
        assert_eq!(units, [inodes + 3, 0, 1, 2]);
        // The table begins in the middle of 32 blocks.
        assert_eq!(inodes, 31);
        assert_eq!(units_read(false).0, [0, 0, 0, 0]);
    }
}
