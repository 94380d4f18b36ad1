//! A file system that the daemon may manage.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use trimwise_linux::block_device::BlockDevice;
use trimwise_linux::doctor::Loan;
use trimwise_linux::mount::Mount;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    pub mount: Mount,
    /// Path of the mount point for this process, below the host's root.
    pub path: PathBuf,
    pub devices: Vec<BlockDevice>,
    /// Kernel names of its devices and of all below them, down to the disks.
    pub layers: BTreeSet<String>,
    /// True if the kernel reports every failed discard of them.
    pub reports_failures: bool,
    /// Identifies this mounting of it: see [`session_of`](crate::journal::session_of).
    pub session: Option<u64>,
    /// Who lends its space, if anybody.
    pub loan: Option<Loan>,
}

#[cfg(test)]
impl Candidate {
    /// A mount of `/` in session 7, of which nothing else is known.
    pub fn of_test(mount: &Mount) -> Self {
        Self {
            mount: mount.clone(),
            path: "/".into(),
            devices: Vec::new(),
            layers: [].into(),
            reports_failures: false,
            session: Some(7),
            loan: None,
        }
    }
}
