//! The part of a grid that needs real kernels, which the laboratory runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use trimwise::failure::Failure;
use trimwise::policy::PolicyId;
use trimwise::profile::Profile;

use super::{Named, Ran};
use crate::compare::CompareRequest;
use crate::compare::workload::Workload;
use crate::given::Given;

/// The kernels of this computer.
pub trait Kernels {
    /// Returns plans on the kernel that a grid needs; `None` if its cells run in the model. `request` is the request of
    /// one cell.
    ///
    /// # Errors
    ///
    /// If no kernel here can run the cells.
    fn chosen(
        &self,
        request: &CompareRequest,
        workload: &Workload,
    ) -> Result<Option<Box<dyn KernelPlans>>, Failure>;
}

/// A grid's plans on a kernel: one for each workload and utilization.
pub trait KernelPlans: Send + Sync {
    fn add(&mut self, request: &CompareRequest) -> Result<(), Failure>;
    fn check(&self, plan: usize) -> Result<(), Failure>;
    /// Returns the kernel's way to follow a policy: its name in messages, and in results.
    fn policy(&self, asked: &Given<PolicyId>) -> Result<(String, PolicyId), Failure>;
    /// The kernel and its file system, as results name them.
    fn target(&self) -> String;
    /// The file system and the kernel in a sentence.
    fn title(&self) -> String;
    /// The devices, each with the name for tables.
    fn devices(&self) -> &[(String, Profile)];
    fn workload(&self, plan: usize) -> &Workload;
    /// The kernel, and the programs of this computer that its guests run, with their hashes.
    fn kernel(&self) -> Result<Vec<Named>, Failure>;
    /// The part of the code that runs in guests, with its hash.
    fn made_by(&self) -> String;
    /// Default number of parallel cells.
    fn jobs(&self) -> usize;
    fn expected(&self, cell: KernelCell) -> Duration;
    fn run(&self, cell: KernelCell, stop: &Arc<AtomicBool>) -> Result<Ran, Failure>;
}

/// A cell on a kernel. Plan, device and policy are indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCell {
    pub plan: usize,
    pub device: usize,
    pub policy: usize,
    pub seed: u64,
    pub rep: u32,
}
