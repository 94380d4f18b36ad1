use super::{Ext4, State};
use crate::policy::Availability;
use crate::units::UnitRange;

impl Ext4 {
    /// Checks the invariants that hold whenever no task is between two awaits: owned, free and withheld blocks
    /// partition the device, no owned block can be trimmed, and every count is correct.
    pub fn audit(&self) -> Result<(), String> {
        let state = &*self.0.state.borrow();
        partition(state)?;
        let owned = owners(state)?;
        if let Some(range) = owned.iter().find(|r| state.disk.allocator.free_in(**r) > 0) {
            return Err(format!("{range:?} is owned and free"));
        }
        for range in self.0.policy.pending_extents() {
            let next = owned.partition_point(|owner| owner.end() <= range.start);
            if owned.get(next).is_some_and(|owner| owner.start < range.end()) {
                return Err(format!("{range:?} may be trimmed, but {:?} is owned", owned[next]));
            }
            let run_on = state.held.iter().map(|behind| overlap(*behind, range)).sum::<u64>();
            let free = state.disk.allocator.free_in(range) + run_on;
            let expected =
                if self.0.policy.availability() == Availability::AfterIssue { 0 } else { range.units };
            if free != expected {
                return Err(format!("{free} blocks of {range:?}, which is pending, are free"));
            }
        }
        let ledger = self.ledger();
        if !ledger.balances() {
            return Err(format!("the ledger does not balance: {ledger:?}"));
        }
        counts(state)
    }
}

fn overlap(a: UnitRange, b: UnitRange) -> u64 {
    a.end().min(b.end()).0.saturating_sub(a.start.max(b.start).0)
}

fn partition(state: &State) -> Result<(), String> {
    let disk = &state.disk;
    let in_files: u64 = disk.inodes.iter().flat_map(|i| &i.extents).map(|e| e.blocks.units).sum();
    let in_directories: u64 = disk.directories.values().map(|d| d.blocks.len() as u64).sum();
    let in_trees: u64 = disk.inodes.iter().map(|i| i.tree.len() as u64).sum();
    let (total, fixed, free) = (disk.layout.total_units(), disk.fixed_units, disk.allocator.free_units());
    if fixed + in_files + in_trees + in_directories + free + state.withheld_units != total {
        return Err(format!(
            "{total} blocks, but {fixed} fixed + {in_files} in files + {in_trees} in their trees + {in_directories} in \
             directories + {free} free + {} withheld",
            state.withheld_units
        ));
    }
    Ok(())
}

fn owners(state: &State) -> Result<Vec<UnitRange>, String> {
    let disk = &state.disk;
    let directories = disk.directories.values().flat_map(|d| &d.blocks);
    let mut owned: Vec<UnitRange> = disk.inodes.iter().flat_map(|i| &i.extents).map(|e| e.blocks).collect();
    owned.extend(directories.map(|&block| UnitRange::new(crate::units::Lpn(block), 1)));
    owned.extend(disk.inodes.iter().flat_map(|i| &i.tree).map(|&block| UnitRange::new(block, 1)));
    owned.sort_unstable();
    match owned.windows(2).find(|pair| pair[0].end() > pair[1].start) {
        Some(pair) => Err(format!("{:?} and {:?} overlap", pair[0], pair[1])),
        None => Ok(owned),
    }
}

fn counts(state: &State) -> Result<(), String> {
    let inodes = &state.disk.inodes;
    let sum = |count: fn(&super::inode::Inode) -> u64| inodes.iter().map(count).sum::<u64>();
    for (what, in_files, in_all) in [
        ("reserved", sum(|i| i.reserved_pages), state.reserved_pages),
        ("dirty", sum(|i| i.dirty_pages), state.cache.dirty_pages()),
        ("in write-back", sum(|i| i.writeback_pages), state.cache.writeback_pages()),
    ] {
        if in_files != in_all {
            return Err(format!("{in_files} pages {what} in files, {in_all} in all"));
        }
    }
    let available = state.disk.allocator.free_units() + state.withheld_units;
    if state.reserved_pages > available {
        return Err(format!("{} pages reserved, {available} blocks to come", state.reserved_pages));
    }
    let dirty = inodes.iter().filter(|i| i.dirty_pages > 0).count();
    if dirty != state.dirty.len() || inodes.iter().any(|i| (i.dirty_pages > 0) != i.dirty_key.is_some()) {
        return Err(format!("{dirty} dirty files, {} in the list", state.dirty.len()));
    }
    let unused = state.disk.names.values().map(|e| e.inode).filter(|&i| !inodes[i as usize].in_use).min();
    if let Some(inode) = unused {
        return Err(format!("a name leads to inode {inode}, which is not in use"));
    }
    let live = inodes.iter().skip(super::layout::FIRST_INODE as usize).filter(|i| i.in_use).count();
    if live < state.disk.names.len() {
        return Err(format!("{live} inodes in use for {} names", state.disk.names.len()));
    }
    Ok(())
}
