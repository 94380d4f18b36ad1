//! Workloads that this crate does not know.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::files::FileError;
use crate::fs::Ext4;

/// A workload's own figures by name. Put the unit into the name (`fsync_p99_ns`).
pub type OwnFigures = BTreeMap<String, f64>;

pub type OwnRun<'a> = Pin<Box<dyn Future<Output = Result<OwnFigures, FileError>> + 'a>>;

pub type OwnPreparation<'a> = Pin<Box<dyn Future<Output = Result<(), FileError>> + 'a>>;

/// A workload of your own, to compare policies under it.
///
/// The workload is an async function over [`Files`](crate::files::Files), which [`Ext4`] implements, so the same
/// function runs on a real directory.
pub trait OwnWorkload: fmt::Debug + Send + Sync {
    /// Prepares the file system before the workload is measured. By default nothing needs preparation.
    fn prepare<'a>(&'a self, _fs: &'a Ext4, _seed: u64) -> OwnPreparation<'a> {
        Box::pin(async { Ok(()) })
    }

    /// Runs the workload once on a mounted file system. All random choices must depend only on `seed`, which differs
    /// between repetitions. Policies are compared by the duration of this call.
    fn run<'a>(&'a self, fs: &'a Ext4, seed: u64) -> OwnRun<'a>;
}
