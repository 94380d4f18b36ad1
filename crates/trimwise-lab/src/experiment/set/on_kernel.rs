//! `set-1a` and `set-1b` on a real ext4 in virtual time, next to the model of that guest.
//!
//! A run of PostMark on the whole drive takes this computer some three minutes. So by default, drive, files,
//! transactions and memory are a sixteenth of the published ones, as in the tests of the model.
//!
//! The drive is aged once on each side. Every run begins on a copy: of the drive with its clock, and of the bytes. The
//! guest's workloads write zeros, which take no memory here.

use trimwise::compare::cell::{SETTLING, commit_phase};
use trimwise::fs::layout::FormatOptions;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, Utilization};
use trimwise_uml::cell::{KernelPolicy, KernelTarget, new_disk};
use trimwise_uml::job::Step;

use super::{Aged, DEVICE, Run, Setting, age};
use crate::experiment::Request;
use crate::experiment::real_ext4::{RealExt4, mkfs};
use crate::experiment::result::ExperimentResult;
use crate::guests::{self, Ran};
use trimwise::failure::Failure;

/// Returns the published machine's memory, or a sixteenth of it for a sixteenth of the drive.
fn guest_memory(full: bool) -> Bytes {
    if full { Bytes::gib(2) } else { Bytes::mib(128) }
}

/// Memory of this computer that one run takes: guest, both drives' models, and the metadata and small files.
pub(super) const MEMORY_OF_RUN: Bytes = Bytes::mib(4_500);

pub(super) struct Sides {
    pub ext4: RealExt4,
    pub setting: Setting,
    pub kernel: Ran,
    pub model: Aged,
}

pub(super) fn ext4(target: &KernelTarget, full: bool) -> Result<RealExt4, Failure> {
    RealExt4::new(target, guest_memory(full))
}

pub(super) fn with_size(mut result: ExperimentResult, full: bool) -> ExperimentResult {
    if !full {
        result.finding += " On a sixteenth of the drive, with a sixteenth of the files, of the transactions and of the \
                           memory; --full runs it whole.";
    }
    result
}

pub(super) fn age_both(request: &Request, target: &KernelTarget) -> Result<Sides, Failure> {
    let ext4 = ext4(target, request.full)?;
    let setting = if request.full { Setting::published() } else { Setting::published().sixteenth() };
    let setting = Setting { host: ext4.host, format: FormatOptions::TODAY, ..setting };
    let model = age(&setting, request.seed).map_err(Failure::run)?;
    let mut device = Profile::embedded(DEVICE).expect("the drive is built in");
    device.config = setting.ssd.clone();
    let disk = new_disk(&device, request.seed, false).map_err(guests::failure)?;
    let (times, left) = setting.turnovers;
    let mut steps = vec![
        mkfs(),
        ext4.mount(KernelPolicy::Off),
        Step::WriteZeros,
        adjust(Utilization::FULL, request.seed),
    ];
    for turnover in 1..=u64::from(times) {
        // Each step draws different files.
        let seed = request.seed.wrapping_add(turnover << 40);
        steps.extend([adjust(left, seed), adjust(Utilization::FULL, !seed)]);
    }
    let kernel = ext4.run(request, disk, steps)?;
    Ok(Sides { ext4, setting, kernel, model })
}

/// Returns the step that deletes or creates files until this much is in use.
pub(super) fn adjust(utilization: Utilization, seed: u64) -> Step {
    Step::Adjust { utilization, seed }
}

/// Returns the steps of a rest and of PostMark, as in the model; PostMark is the last.
pub(super) fn postmark(setting: &Setting, rep: u32) -> [Step; 2] {
    let rest = SETTLING + commit_phase(rep);
    [Step::Sleep { ns: rest.as_nanos() }, Step::Postmark { config: setting.workload.to_text(), rep }]
}

pub(super) fn run_of(ran: &Ran, step: usize) -> Result<Run, Failure> {
    let total_s = ran.workload(step, |figures| Some(figures.postmark()?.total_s))?;
    let [before, after] = ran.marks.get(step..step + 2).unwrap_or_default() else {
        return Err(Failure::run("the guest did not report when PostMark ran"));
    };
    let stats = after.stats.since(&before.stats);
    let capacity = ran.port.drive().ssd().capacity_units();
    // Stale space and latencies are unknown for the kernel.
    Ok(Run::of(total_s, before.mapped_units, capacity, &stats))
}
