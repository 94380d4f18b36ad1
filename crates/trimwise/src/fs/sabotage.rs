//! Broken hosts, which the crash checker must find (with the feature `sabotage`, which only its tests enable).
//!
//! A governor cannot fail in these ways, since it decides only about extents that the pending set holds. A host that
//! bypasses the set, or a journal that skips a step, can. Without the feature nothing here does anything.

use super::Ext4;
use crate::units::UnitRange;

/// A deliberate fault of a host, for the crash checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Freed blocks are trimmed before the transaction that frees them is durable.
    #[cfg(feature = "sabotage")]
    TrimBeforeCommit,
    /// Blocks wait in a queue for their TRIM, and an allocation does not remove them from it.
    #[cfg(feature = "sabotage")]
    ReuseWithoutWithdrawal,
    /// The queue is checked when the TRIM is made, but its blocks can be allocated until it is sent.
    #[cfg(feature = "sabotage")]
    TrimAfterLaterWrite,
    /// Blocks can be allocated while they are in a TRIM.
    #[cfg(feature = "sabotage")]
    ReuseDuringTrim,
    /// Blocks can be allocated while they are in a FITRIM.
    ReuseDuringFitrim,
    /// Two tasks wake each other for ever.
    #[cfg(feature = "sabotage")]
    Livelock,
    /// The commit block is written without a flush of the transaction's blocks.
    NoFlushBeforeCommitBlock,
    /// The commit does not wait for the data of its transaction (ordered mode).
    CommitBeforeData,
    /// The log's tail moves before checkpointed metadata are durable.
    TailBeforeFlush,
    /// Freed metadata blocks are not revoked.
    NoRevoke,
    /// `fsync` and `sync` rely on the flush of a commit that came too early for their data.
    NoFlushInFsync,
}

#[cfg(not(feature = "sabotage"))]
impl Ext4 {
    pub(super) fn is_sabotaged(&self, _how: Sabotage) -> bool {
        false
    }

    pub(super) async fn before_commit_is_durable(&self, _freed: &[UnitRange]) {}
    pub(super) fn after_commit_is_durable(&self, _freed: &[UnitRange]) {}
}

#[cfg(feature = "sabotage")]
impl Ext4 {
    /// Breaks this host from now on; `None` repairs it.
    pub fn sabotage(&self, how: Option<Sabotage>) {
        self.0.sabotage.set(how);
    }

    pub(super) fn is_sabotaged(&self, how: Sabotage) -> bool {
        self.0.sabotage.get() == Some(how)
    }

    pub(super) async fn before_commit_is_durable(&self, freed: &[UnitRange]) {
        if self.is_sabotaged(Sabotage::TrimBeforeCommit) && !freed.is_empty() {
            self.0.queue.trim(freed).await;
        }
    }

    /// Keeps a queue separate from the policy's. An extent is checked after it has waited for `ms`, and sent after `ms`
    /// more.
    pub(super) fn after_commit_is_durable(&self, freed: &[UnitRange]) {
        use crate::units::SimDuration;

        let (checks, ms) = match self.0.sabotage.get() {
            Some(Sabotage::ReuseWithoutWithdrawal) => (false, 50),
            Some(Sabotage::TrimAfterLaterWrite) => (true, 50),
            Some(Sabotage::ReuseDuringTrim) => (true, 0),
            Some(Sabotage::Livelock) => {
                let sim = self.0.sim.clone();
                return self.start_thread(async move {
                    loop {
                        sim.yield_now().await;
                    }
                });
            }
            _ => return,
        };
        let (fs, freed) = (self.clone(), freed.to_vec());
        self.start_thread(async move {
            let sim = fs.0.sim.clone();
            sim.sleep(SimDuration::from_millis(ms)).await;
            let is_free = |range: &UnitRange| {
                let free = fs.0.state.borrow().disk.allocator.free_in(*range);
                free == range.units
            };
            let ranges: Vec<UnitRange> =
                freed.into_iter().filter(|range| !checks || is_free(range)).collect();
            sim.sleep(SimDuration::from_millis(ms)).await;
            if !ranges.is_empty() {
                fs.0.queue.trim(&ranges).await;
            }
        });
    }
}
