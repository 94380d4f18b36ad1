//! What a grid needs of real kernels, which the laboratory runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use trimwise::failure::Failure;
use trimwise::policy::PolicyId;
use trimwise::profile::Profile;

use super::{Named, Ran};
use crate::compare::CompareRequest;
use crate::compare::workload::Workload;

/// The kernels of this computer.
pub trait Kernels {
    /// Returns plans on the kernel that a grid needs, of whose cells this is the request of one; `None` if they run in the
    /// model.
    ///
    /// # Errors
    ///
    /// If no kernel here can run them.
    fn chosen(
        &self,
        request: &CompareRequest,
        workload: &Workload,
    ) -> Result<Option<Box<dyn KernelPlans>>, Failure>;
}

/// A grid's plans on a kernel: one for each workload and utilization.
pub trait KernelPlans: Send + Sync {
    /// Adds the plan of a request.
    fn add(&mut self, request: &CompareRequest) -> Result<(), Failure>;
    /// Rejects a plan that cannot run.
    fn check(&self, plan: usize) -> Result<(), Failure>;
    /// Parses a policy of the kernel: how it is called in messages, and in results.
    fn policy(&self, text: &str) -> Result<(String, PolicyId), Failure>;
    /// Returns the kernel and its file system, as results name them.
    fn target(&self) -> String;
    /// Names the file system and the kernel in a sentence.
    fn title(&self) -> String;
    /// Returns the devices, each with the name that tables show.
    fn devices(&self) -> &[(String, Profile)];
    /// Returns the workload of a plan.
    fn workload(&self, plan: usize) -> &Workload;
    /// Returns the kernel, and the programs of this computer that its guests run, with their hashes.
    fn kernel(&self) -> Result<Vec<Named>, Failure>;
    /// Returns the part of the code that runs in guests, with its hash.
    fn made_by(&self) -> String;
    /// Returns how many cells run at a time if nobody says otherwise.
    fn jobs(&self) -> usize;
    /// Returns how long a cell may take.
    fn expected(&self, cell: KernelCell) -> Duration;
    /// Runs a cell.
    fn run(&self, cell: KernelCell, stop: &Arc<AtomicBool>) -> Result<Ran, Failure>;
}

/// A cell on a kernel: the numbers of its plan, device and policy, and what is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCell {
    /// Number of the plan.
    pub plan: usize,
    /// Number of the device.
    pub device: usize,
    /// Number of the policy.
    pub policy: usize,
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// The repetition.
    pub rep: u32,
}
