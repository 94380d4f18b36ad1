//! `sweep` on real kernels.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use trimwise::failure::Failure;
use trimwise::policy::PolicyId;
use trimwise::profile::Profile;
use trimwise_linux::kept::hash;
use trimwise_study::caller::Silent;
use trimwise_study::compare::CompareRequest;
use trimwise_study::compare::workload::Workload;
use trimwise_study::defaults;
use trimwise_study::given::Given;
use trimwise_study::sweep::on_kernel::{self as seam, KernelCell, KernelPlans};
use trimwise_study::sweep::{Named, Outcome, Ran, result};
use trimwise_uml::cell::{KernelCellError, KernelTarget};
use trimwise_uml::images::{self, KernelImage};
use trimwise_uml::job::JobError;
use trimwise_uml::machine::MachineError;

use super::compare::on_kernel::{self, Runs};
use super::compare::{file_system, on_chosen};
use crate::{guests, made};

/// The kernels that are built on this computer.
#[derive(Clone, Copy, Debug)]
pub struct Kernels;

impl seam::Kernels for Kernels {
    fn chosen(
        &self,
        request: &CompareRequest,
        workload: &Workload,
    ) -> Result<Option<Box<dyn KernelPlans>>, Failure> {
        let Some(target) = file_system::target(request, workload, None, &Silent::default())? else {
            return Ok(None);
        };
        let image = guests::image(&target)?;
        Ok(Some(Box::new(OnKernel { target, image, plans: Vec::new() })))
    }
}

/// The plans of a sweep on a kernel.
struct OnKernel {
    target: KernelTarget,
    image: KernelImage,
    plans: Vec<(CompareRequest, on_kernel::Plan)>,
}

impl OnKernel {
    fn runs(&self, plan: usize, seed: u64) -> Runs<'_> {
        let (request, plan) = &self.plans[plan];
        Runs::of(plan, request, (&self.target, &self.image), (&plan.policies, seed))
    }

    /// Returns the runs of a cell's device alone.
    fn of(&self, cell: KernelCell) -> Runs<'_> {
        let mut runs = self.runs(cell.plan, cell.seed);
        runs.grid.devices = &runs.grid.devices[cell.device..=cell.device];
        runs
    }
}

impl KernelPlans for OnKernel {
    fn add(&mut self, request: &CompareRequest) -> Result<(), Failure> {
        let request = on_chosen(request, &self.target, None);
        let plan = on_kernel::plan(&request, &self.target, (Workload::of(&request)?, None))?;
        self.plans.push((request, plan));
        Ok(())
    }

    fn check(&self, plan: usize) -> Result<(), Failure> {
        self.runs(plan, defaults::SEED).check()
    }

    fn policy(&self, asked: &Given<PolicyId>) -> Result<(String, PolicyId), Failure> {
        on_kernel::policy(asked, &self.target).map(|(name, policy)| (name, policy.id()))
    }

    fn target(&self) -> String {
        self.target.to_string()
    }

    fn title(&self) -> String {
        on_kernel::title(&self.target)
    }

    fn devices(&self) -> &[(String, Profile)] {
        self.plans.first().map_or(&[], |(_, plan)| &plan.devices)
    }

    fn workload(&self, plan: usize) -> &Workload {
        &self.plans[plan].1.workload
    }

    fn kernel(&self) -> Result<Vec<Named>, Failure> {
        let kernel = guests::real_kernel(&self.image, &self.target)?;
        let mut programs =
            vec![Named { name: kernel.title(), sha256: hash(format!("{kernel:?}").as_bytes()) }];
        if self.plans.iter().any(|(_, plan)| plan.policies.iter().any(|policy| policy.is_daemon())) {
            let sha256 = images::file_hash(&guests::trimwised()?);
            let sha256 = sha256.map_err(|e| Failure::run(format!("trimwised: {e}")))?;
            programs.push(Named { name: "trimwised".to_owned(), sha256 });
        }
        Ok(programs)
    }

    fn made_by(&self) -> String {
        made::code().get("guest").map_or_else(String::new, |hash| format!("guest {hash}"))
    }

    fn jobs(&self) -> usize {
        (0..self.plans.len()).map(|plan| self.runs(plan, defaults::SEED).jobs()).min().unwrap_or(1)
    }

    fn expected(&self, cell: KernelCell) -> Duration {
        self.of(cell).expected(self.plans[cell.plan].1.policies[cell.policy])
    }

    fn run(&self, cell: KernelCell, stop: &Arc<AtomicBool>) -> Result<Ran, Failure> {
        let plan = &self.plans[cell.plan].1;
        let asked = (&plan.devices[cell.device].1, plan.policies[cell.policy], cell.rep);
        match self.of(cell).run(asked, None, stop)? {
            Ok(cell) => Ok(Ran::Done(result(cell))),
            Err(error) => of_guest(error),
        }
    }
}

/// Distinguishes a guest that would always fail from one that was ended, and from a computer that cannot run guests at
/// all.
fn of_guest(error: KernelCellError) -> Result<Ran, Failure> {
    use MachineError::{BrokeOff, Silent, SleepsForEver, TookTooLong};
    match error {
        KernelCellError::Job(
            error @ (JobError::Disk { .. }
            | JobError::NoReport { .. }
            | JobError::Machine(
                BrokeOff { .. } | Silent { .. } | SleepsForEver { .. } | TookTooLong { .. },
            )),
        ) => Ok(Ran::BrokenOff(error.to_string())),
        KernelCellError::Store(_) | KernelCellError::Job(JobError::Folder { .. } | JobError::Machine(_)) => {
            Err(guests::failure(error))
        }
        lasting => Ok(Ran::Done(Outcome::Error(lasting.to_string()))),
    }
}
