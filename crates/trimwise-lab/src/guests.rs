//! Guests: finds the kernel and the programs that one needs, runs jobs on small drives, and explains failed runs to the
//! user.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use trimwise::block::Port;
use trimwise::compare::result::WorkloadFigures;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::cell::{KernelCellError, KernelTarget, new_disk};
use trimwise_uml::disk::{Disk, Mark, TraceEntry};
use trimwise_uml::images::{self, BuiltSet, KernelImage, KernelName};
use trimwise_uml::job::{
    FileExtent, FileSystem, Guest, INIT_BYTES, Job, JobError, Outcome, Step, StepReport,
};
use trimwise_uml::machine::{Limits, MachineError};

use trimwise::failure::{Failure, Mistake};

/// Finds the kernel of a target, and checks that the programs for its file system are there too.
///
/// # Errors
/// A missing kernel or program.
pub fn image(target: &KernelTarget) -> Result<KernelImage, Failure> {
    target.file_system.check_mkfs().map_err(Failure::usage)?;
    let image = kernel(&target.kernel)?;
    image.check(Some(target.file_system)).map_err(Failure::usage)?;
    Ok(image)
}

/// Finds a kernel for a guest in which no file system need be made.
///
/// # Errors
/// A missing kernel.
pub fn kernel(name: &KernelName) -> Result<KernelImage, Failure> {
    images::find(&name.to_string())
        .map_err(|error| if error.is_usage() { error.mistake().fail() } else { Failure::run(error) })
}

/// Rejects a device that is too small for the file system.
///
/// # Errors
/// A device that is too small.
pub fn check_size(device: &Profile, file_system: FileSystem) -> Result<(), Failure> {
    let (size, least) = (Bytes(device.config.capacity_bytes), file_system.least());
    if size >= least {
        return Ok(());
    }
    let why = format!("has {size}, and {} needs {least}", file_system.mkfs().0);
    Err(Mistake::of("devices", &device.name).because(why).expected("a larger device").fail())
}

/// Estimates how much memory of this computer one guest takes besides the model of its drive: its own memory, and what
/// it has written.
pub fn memory_of_guest(memory: Bytes, device: &Profile, utilization: Option<u8>) -> Bytes {
    // An aged file system was full once; for a new one that is unknown, and its working set is in the guest's memory.
    let written = if utilization.is_some() { device.config.capacity_bytes } else { memory.0 };
    Bytes(memory.0.saturating_add(written).saturating_add(INIT_BYTES))
}

/// What ends a guest early.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// How long it may take.
    pub limits: Limits,
    /// Raised when the user wants to stop.
    pub stop: Arc<AtomicBool>,
}

/// Prepares a guest of this kernel, whose init is this program.
///
/// # Errors
/// If this program's own file cannot be found.
pub fn guest(image: &KernelImage, memory: Bytes, bounds: &Bounds) -> Result<Guest, Failure> {
    Ok(Guest {
        linux: image.linux.clone(),
        preload: image.preload.clone(),
        seccomp: image.has_seccomp(),
        daemon: None,
        init: this_program()?,
        memory,
        limits: bounds.limits,
        interrupted: Arc::clone(&bounds.stop),
    })
}

fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|e| Failure::run(format!("cannot find this program, which guests need: {e}")))
}

/// Returns the SHA-256 of this program. What init takes of a guest's memory at its start does not depend on the build; what
/// it takes while it works, a few MiB, does, and free memory decides what is read again and when it is written back.
///
/// # Errors
/// If this program's own file cannot be read.
pub fn program_hash() -> Result<String, Failure> {
    static HASH: OnceLock<String> = OnceLock::new();
    if let Some(hash) = HASH.get() {
        return Ok(hash.clone());
    }
    let program = this_program()?;
    let hash =
        images::file_hash(&program).map_err(|e| Failure::run(format!("{}: {e}", program.display())))?;
    Ok(HASH.get_or_init(|| hash).clone())
}

/// A patch set, as results name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedSet {
    /// Its name.
    pub name: String,
    /// Hash of its patches and their order.
    pub hash: String,
}

impl AppliedSet {
    fn of(set: &BuiltSet) -> Self {
        Self { name: set.name.clone(), hash: set.hash.clone() }
    }
}

/// A real kernel, in virtual time, as results name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealKernel {
    /// Its name, as in the target: `6.12+ext4-trim`.
    pub name: String,
    /// What `uname -r` says in it.
    pub release: String,
    /// The package of its source, or where else that came from.
    pub source: String,
    /// The patch sets applied to it, with their hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<AppliedSet>,
    /// Hash of patches, configuration and build recipe.
    pub recipe: String,
    /// The file system; `none` if there is none.
    pub file_system: String,
    /// Its mount options, apart from those of the policy.
    pub mount_options: String,
    /// The SHA-256 of the program that is the guest's init and runs workloads; a different program makes a different
    /// guest.
    pub guest_program: String,
}

impl RealKernel {
    /// Returns how tables name it: the release and, where that does not say everything, the hash of what it is made from.
    pub fn title(&self) -> String {
        images::title(&self.release, &self.recipe)
    }

    /// Returns the kernel of a target.
    pub fn of(image: &KernelImage, target: &KernelTarget) -> Result<Self, Failure> {
        Self::with(image, target.file_system.name(), &target.options)
    }

    /// Returns a kernel with a file system and its mount options.
    pub fn with(image: &KernelImage, file_system: &str, options: &str) -> Result<Self, Failure> {
        Ok(Self {
            name: image.name.to_string(),
            release: image.release.clone(),
            patches: image.patches.iter().map(AppliedSet::of).collect(),
            source: image.source.clone(),
            recipe: image.recipe.clone(),
            file_system: file_system.to_owned(),
            mount_options: options.to_owned(),
            guest_program: program_hash()?,
        })
    }
}

#[cfg(test)]
impl RealKernel {
    /// A kernel for tests that judge invented figures.
    pub fn invented() -> Self {
        let text = |text: &str| text.to_owned();
        Self {
            name: text("6.12"),
            patches: Vec::new(),
            release: text("6.12.1"),
            source: text("none"),
            recipe: text("none"),
            file_system: text("ext4"),
            mount_options: String::new(),
            guest_program: text("none"),
        }
    }
}

/// Returns `trimwised`, which guests run as their daemon: the program next to this one.
pub fn trimwised() -> Result<PathBuf, Failure> {
    let daemon = this_program()?.with_file_name("trimwised");
    if daemon.is_file() {
        return Ok(daemon);
    }
    Err(Failure::usage(format!(
        "{}: not found, and the guest runs it; expected trimwised next to trimwise (cargo build --release makes both)",
        daemon.display()
    )))
}

/// A job that a guest did on a new drive, with everything that the drive saw.
pub struct Ran {
    /// Each step with its report.
    pub steps: Vec<(Step, StepReport)>,
    /// The kernel's requests.
    pub trace: Vec<TraceEntry>,
    /// One before the first step and one after each; steps may add their own.
    pub marks: Vec<Mark>,
    /// The drive.
    pub port: Port,
    /// Its bytes.
    pub store: SparseStore,
}

impl Ran {
    /// Does a job on a built-in profile's drive, scaled down to `capacity`, and audits the drive.
    ///
    /// # Errors
    /// A failed guest, or a defect of the drive.
    pub fn new(
        guest: &Guest,
        device: &str,
        capacity: Bytes,
        seed: u64,
        steps: Vec<Step>,
    ) -> Result<Self, Failure> {
        let mut device = Profile::embedded(device).ok_or_else(|| Failure::run("a drive is missing"))?;
        device.config = device.config.shrunk(capacity.0).map_err(Failure::run)?;
        Self::on(guest, new_disk(&device, seed, true).map_err(failure)?, steps)
    }

    /// Does a job on this disk, and audits its drive.
    ///
    /// # Errors
    /// A failed guest, or a defect of the drive.
    pub fn on(guest: &Guest, disk: Disk, steps: Vec<Step>) -> Result<Self, Failure> {
        let mut disks = [disk];
        let job = Job { steps };
        let report = guest.run(&job, &mut disks).map_err(job_failure)?;
        let [disk] = disks;
        let (port, store, trace, marks) = disk.into_parts();
        let audited = port.drive().ssd().audit();
        audited.map_err(|e| Failure::run(format!("the audit of the drive failed: {e}")))?;
        Ok(Self { steps: job.steps.into_iter().zip(report.steps).collect(), trace, marks, port, store })
    }

    /// Returns a disk in the state that the job left, for another guest. The drive's clock goes on, so that guest's first
    /// request waits until the drive has come to that time.
    ///
    /// # Errors
    /// If there is no memory for the drive's bytes.
    pub fn another(&self, is_traced: bool) -> Result<Disk, Failure> {
        let store =
            self.store.duplicate().map_err(|e| Failure::run(format!("cannot copy a drive's bytes: {e}")))?;
        Ok(Disk::new(self.port.clone(), store, "trimwise", is_traced))
    }

    /// Returns the steps that satisfy `wanted`.
    pub fn all(&self, wanted: impl Fn(&Step) -> bool) -> Vec<usize> {
        (0..self.steps.len()).filter(|&i| wanted(&self.steps[i].0)).collect()
    }

    /// Returns how long a step took.
    pub fn duration_ns(&self, step: usize) -> u64 {
        self.steps[step].1.duration().as_nanos()
    }

    /// Returns a step's result as `of` reads it.
    pub fn outcome<'a, T>(
        &'a self,
        step: usize,
        of: impl Fn(&'a Outcome) -> Option<T>,
    ) -> Result<T, Failure> {
        let (_, report) = self.steps.get(step).ok_or_else(|| Failure::run("the guest did not answer"))?;
        of(&report.outcome).ok_or_else(|| {
            Failure::run(format!("the guest answered {:?} to a different question", report.outcome))
        })
    }

    /// Returns what the workload of a step measured, as `of` reads it.
    pub fn workload<T>(&self, step: usize, of: impl Fn(&WorkloadFigures) -> Option<T>) -> Result<T, Failure> {
        self.outcome(step, |outcome| match outcome {
            Outcome::Cell(cell, _) => of(&cell.workload),
            _ => None,
        })
    }

    /// Returns the text of a file that a step read.
    pub fn text(&self, step: usize) -> Result<&str, Failure> {
        self.outcome(step, |outcome| match outcome {
            Outcome::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Returns where a file lies that a step asked for.
    pub fn extents(&self, step: usize) -> Result<&[FileExtent], Failure> {
        self.outcome(step, |outcome| match outcome {
            Outcome::Extents(extents) => Some(extents.as_slice()),
            _ => None,
        })
    }

    /// Returns the requests between the beginning of a step and the end of another.
    pub fn requests(&self, first: usize, last: usize) -> &[TraceEntry] {
        let end = self.marks.get(last + 1).map_or(self.trace.len(), |mark| mark.traced);
        let begin = self.marks.get(first).map_or(end, |mark| mark.traced);
        &self.trace[begin..end]
    }
}

/// Explains a failed run to the user.
pub fn failure(error: KernelCellError) -> Failure {
    match error {
        KernelCellError::Job(error) => job_failure(error),
        KernelCellError::Device(error) => Failure::usage(error),
        other => Failure::run(other),
    }
}

/// Does the same for a job.
pub fn job_failure(error: JobError) -> Failure {
    match error {
        JobError::Machine(MachineError::Interrupted) => Failure::Interrupted,
        unknown @ JobError::UnknownWords { .. } => Failure::usage(unknown),
        other => Failure::run(other),
    }
}
