//! Boots the kernels of the experiment `verdicts-ext4`: each repetition of each cell is one boot.

use trimwise::compare::cell::{SETTLING, commit_phase};
use trimwise::units::Bytes;
use trimwise_lab::experiment::model_ext4::log::{Entry, Places, Traffic};
use trimwise_lab::experiment::verdicts::{
    self, CAPACITY, Case, DRIVES, KERNELS, MEMORY, POLICIES, Row, Side, UTILIZATIONS, WORKLOADS, Work,
};
use trimwise_uml::cell::{KernelPolicy, KernelTarget, new_disk, stale_units};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Job, Outcome, Step, StepReport};

use super::guests::{self, Bounds, unexpected};
use super::model_ext4::{entry, journal_blocks, units};
use crate::failure::Failure;

/// Memory of this computer that one run takes: the guest, what it has written, and the drive's model.
pub const MEMORY_OF_RUN: Bytes = Bytes(CAPACITY.0 + MEMORY.0 + (1 << 30));

fn target(version: &str) -> KernelTarget {
    KernelTarget { version: version.to_owned(), file_system: FileSystem::Ext4, options: String::new() }
}

/// Returns the kernels and the cells that `--only` names: those of these workloads, drives, kernels, policies or
/// degrees of ageing; all if it names none.
///
/// # Errors
/// An unknown name; a missing kernel or program.
pub fn choice(only: &[String]) -> Result<(Vec<KernelImage>, Vec<Case>), Failure> {
    let workloads = WORKLOADS.map(|workload| workload.name.to_owned());
    let degrees = UTILIZATIONS.map(|percent| format!("{percent}%"));
    let fixed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let parts = [workloads.to_vec(), fixed(&DRIVES), fixed(&KERNELS), fixed(&POLICIES), degrees.to_vec()];
    if let Some(unknown) = only.iter().find(|part| !parts.iter().any(|names| names.contains(part))) {
        let all = parts.map(|names| names.join(", ")).join("; ");
        return Err(Failure::usage(format!("--only {unknown}: expected one of {all}")));
    }
    let mut cases = verdicts::cases();
    cases.retain(|case| {
        let degree = format!("{}%", case.utilization_percent);
        let own = [case.workload.name, case.drive, case.linux, case.policy, &degree];
        parts.iter().zip(own).all(|(names, own)| {
            let mut asked = only.iter().filter(|part| names.contains(part)).peekable();
            asked.peek().is_none() || asked.any(|part| part == own)
        })
    });
    let needed = KERNELS.into_iter().filter(|version| cases.iter().any(|case| case.linux == *version));
    let images = needed.map(|version| guests::image(&target(version))).collect::<Result<_, _>>()?;
    Ok((images, cases))
}

/// Runs all repetitions of a cell on the kernel and in the model, and reports progress after each.
pub fn run(
    images: &[KernelImage],
    case: Case,
    reps: u32,
    seed: u64,
    bounds: &Bounds,
    step: &dyn Fn(),
) -> Result<Row, Failure> {
    let image = images.iter().find(|image| image.version == case.linux);
    let image = image.ok_or_else(|| Failure::run(format!("kernel {} is missing", case.linux)))?;
    let (mut kernel, mut model) = (Vec::new(), Vec::new());
    for rep in 0..reps {
        kernel.push(run_kernel(image, case, rep, seed, bounds)?);
        model.push(verdicts::run_model(case, rep, seed).map_err(Failure::run)?);
        step();
    }
    Ok(Row::new(case, kernel, model))
}

fn run_kernel(
    image: &KernelImage,
    case: Case,
    rep: u32,
    seed: u64,
    bounds: &Bounds,
) -> Result<Side, Failure> {
    let profile = case.profile().map_err(Failure::run)?;
    let mut disks = [new_disk(&profile, seed, true).map_err(guests::failure)?];
    let guest = guests::guest(image, MEMORY, bounds)?;
    let file_system = FileSystem::Ext4;
    let policy = KernelPolicy::parse(case.policy, file_system).map_err(Failure::run)?;
    let draw = Case::draw_seed(seed, rep);
    let mut steps = vec![
        Step::Mkfs { file_system, options: Vec::new() },
        Step::Mount { file_system, options: policy.mount_option(file_system).to_owned() },
    ];
    steps.extend(policy.trim_every());
    steps.extend([
        Step::Age { utilization_percent: case.utilization_percent.into(), seed: draw },
        Step::Sleep { ns: SETTLING.as_nanos() },
        Step::Sleep { ns: commit_phase(rep).as_nanos() },
    ]);
    let work = steps.len();
    steps.push(match case.workload.work {
        Work::Postmark(config) => Step::Postmark { config: format!("{config}run\n"), rep },
        Work::Scene(scene) => Step::Scene { name: scene.to_string(), seed: draw },
    });
    steps.extend([Step::FreeSpace, Step::Metadata]);
    let report = guest.run(&Job { steps }, &mut disks).map_err(guests::job_failure)?;
    let [disk] = disks;
    let (port, store, trace, marks) = disk.into_parts();
    let ssd = port.drive().ssd();
    ssd.audit().map_err(Failure::run)?;

    let mut outcomes = report.steps.into_iter().map(|StepReport { outcome, .. }| outcome).skip(work);
    let mut next = || outcomes.next().ok_or_else(|| Failure::run("the guest did not answer"));
    let duration_ns = match next()? {
        Outcome::Cell(cell, _) => cell.duration_ns,
        Outcome::Lasted { duration_ns } => duration_ns,
        other => return Err(unexpected(&other)),
    };
    let stale = match next()? {
        Outcome::Free(extents) => stale_units(ssd, &extents),
        other => return Err(unexpected(&other)),
    };
    let metadata = match next()? {
        Outcome::Metadata(metadata) => metadata,
        other => return Err(unexpected(&other)),
    };
    let fixed = metadata.iter().filter(|extent| !extent.is_journal);
    let fixed = fixed.map(|extent| units(extent.offset_bytes, extent.length_bytes));
    let places = Places::new(journal_blocks(&store)?, fixed);
    let (Some(before), Some(after)) = (marks.get(work), marks.get(work + 1)) else {
        return Err(Failure::run("the guest did not report when the workload ran"));
    };
    let log: Vec<Entry> = trace[before.traced..after.traced].iter().map(entry).collect();
    Ok(Side::new(duration_ns, Traffic::of(&log, &places), &after.stats.since(&before.stats), stale))
}
