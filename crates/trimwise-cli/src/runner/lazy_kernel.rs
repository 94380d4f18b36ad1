//! Boots the kernel of the experiment `lazy-3-kernel`, and runs the model next to it.

use trimwise::compare::result::WorkloadFigures;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::Fragmenting;
use trimwise::workload::timed::Timed;
use trimwise_lab::experiment::lazy::{self, KernelCase, KernelRun};
use trimwise_uml::cell::{KernelCell, KernelPolicy, KernelTarget, KernelWorkload};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::FileSystem;

use super::guests::{self, Bounds};
use crate::failure::Failure;

/// Memory of this computer that one run takes: guest, the drive's model, and the file's bytes.
pub const MEMORY_OF_RUN: Bytes = Bytes::mib(2_500);

fn target() -> KernelTarget {
    KernelTarget { version: lazy::KERNEL.to_owned(), file_system: FileSystem::Ext4, options: String::new() }
}

/// Returns the kernel and the cases that `--only` names by their append size in KiB; all if it names none.
///
/// # Errors
/// An unknown size; a missing kernel or program.
pub fn choice(only: &[String]) -> Result<(KernelImage, Vec<KernelCase>), Failure> {
    let name = |case: &KernelCase| (case.append.0 >> 10).to_string();
    let mut cases = lazy::kernel_cases();
    if let Some(part) = only.iter().find(|part| !cases.iter().any(|case| name(case) == **part)) {
        let mut names: Vec<String> = cases.iter().map(name).collect();
        names.truncate(names.len() / 2);
        return Err(Failure::usage(format!(
            "--only {part}: expected an append size in KiB, one of {}",
            names.join(", ")
        )));
    }
    cases.retain(|case| only.is_empty() || only.contains(&name(case)));
    Ok((guests::image(&target())?, cases))
}

/// Runs one case on the kernel and in the model.
pub fn run(image: &KernelImage, case: KernelCase, seed: u64, bounds: &Bounds) -> Result<KernelRun, Failure> {
    let device = Profile::embedded(lazy::DEVICE).ok_or_else(|| Failure::run("a drive is missing"))?;
    let workload = KernelWorkload::Timed(Timed::Append(Fragmenting::of_append(case.append)).to_string());
    let cell = KernelCell {
        device: &device,
        target: &target(),
        policy: if case.discard { KernelPolicy::Commit } else { KernelPolicy::Off },
        workload: &workload,
        utilization_percent: None,
        rep: 0,
        seed,
    };
    let cell = cell.run(&guests::guest(image, lazy::GUEST_MEMORY, bounds)?).map_err(guests::failure)?;
    let WorkloadFigures::Append(figures) = cell.workload else {
        return Err(Failure::run("the guest ran a different workload"));
    };
    KernelRun::beside(case, SimDuration(figures.fsync_ns), seed).map_err(Failure::run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_not_is_refused() {
        let refused = choice(&["48".to_owned()]);
        assert!(matches!(refused, Err(Failure::Usage(m)) if m.contains("64, 128") && m.contains("65536")));
    }
}
