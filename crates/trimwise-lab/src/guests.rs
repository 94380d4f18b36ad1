//! Guests: finds the kernel and the programs that one needs, runs jobs on small drives, and explains failed runs to the
//! user.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use trimwise::block::Port;
use trimwise::compare::result::WorkloadFigures;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, Utilization};
pub use trimwise_linux::real_kernel::{AppliedSet, RealKernel};
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::cell::{KernelCellError, KernelTarget, new_disk};
use trimwise_uml::disk::{Disk, Mark, TraceEntry};
use trimwise_uml::images::{self, BuiltSet, KernelImage, KernelName};
use trimwise_uml::job::{
    BootOptions, FileExtent, FileSystem, Guest, INIT_BYTES, Job, JobError, Outcome, Step, StepReport,
};
use trimwise_uml::machine::{Limits, MachineError};

use trimwise::failure::{Failure, Mistake, key};
use trimwise::words;

/// Finds the kernel of a target, and checks that the programs for its file system are installed.
pub fn image(target: &KernelTarget) -> Result<KernelImage, Failure> {
    target.file_system.check_mkfs().map_err(|e| Mistake::that(e.to_string()).fail())?;
    let image = kernel(&target.kernel)?;
    image.check(Some(target.file_system)).map_err(|e| Mistake::that(e.to_string()).fail())?;
    Ok(image)
}

/// Finds a kernel for guests that make no file system.
pub fn kernel(name: &KernelName) -> Result<KernelImage, Failure> {
    images::find(&name.to_string())
        .map_err(|error| if error.is_usage() { error.mistake().fail() } else { Failure::run(error) })
}

pub fn check_size(device: &Profile, file_system: FileSystem) -> Result<(), Failure> {
    let (size, least) = (Bytes(device.config.capacity_bytes), file_system.least());
    if size >= least {
        return Ok(());
    }
    let why = format!("has {size}, and {} needs {least}", file_system.mkfs().0);
    Err(Mistake::of("devices", &device.name).because(why).expected("a larger device").fail())
}

/// Estimates the memory of this computer that one guest takes besides the model of its drive: its own memory, and its
/// data.
pub fn memory_of_guest(memory: Bytes, device: &Profile, utilization: Option<Utilization>) -> Bytes {
    // An aged file system was full once. For a new one that is unknown, and its working set is in the guest's memory.
    let written = if utilization.is_some() { device.config.capacity_bytes } else { memory.0 };
    Bytes(memory.0.saturating_add(written).saturating_add(INIT_BYTES))
}

#[derive(Clone, Debug, Default)]
pub struct Bounds {
    pub limits: Limits,
    /// Set when the user wants to stop.
    pub stop: Arc<AtomicBool>,
}

/// Prepares a guest of this kernel, whose init is this program.
pub fn guest(image: &KernelImage, memory: Bytes, bounds: &Bounds) -> Result<Guest, Failure> {
    Ok(Guest {
        linux: image.linux.clone(),
        preload: image.preload.clone(),
        seccomp: image.has_seccomp(),
        daemon: None,
        init: this_program()?,
        memory,
        boot: BootOptions::default(),
        limits: bounds.limits,
        interrupted: Arc::clone(&bounds.stop),
    })
}

fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|e| Failure::run(format!("cannot find this program, which guests need: {e}")))
}

/// Returns the SHA-256 of this program. The memory that init takes at the guest's start does not depend on the build.
/// The few MiB that it takes while it works do, and free memory decides which data are read again and when they are
/// written back.
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

/// Returns the kernel of a target, as results name it.
///
/// # Errors
/// If this program's own file cannot be read.
pub fn real_kernel(image: &KernelImage, target: &KernelTarget) -> Result<RealKernel, Failure> {
    named_kernel(image, target.file_system.name(), &target.options)
}

/// Returns a kernel with a file system and its mount options, as results name it.
///
/// # Errors
/// If this program's own file cannot be read.
pub fn named_kernel(image: &KernelImage, file_system: &str, options: &str) -> Result<RealKernel, Failure> {
    let applied = |set: &BuiltSet| AppliedSet { name: set.name.clone(), hash: set.hash.clone() };
    Ok(RealKernel {
        name: image.name.to_string(),
        release: image.release.clone(),
        patches: image.patches.iter().map(applied).collect(),
        source: image.source.clone(),
        recipe: image.recipe.clone(),
        file_system: file_system.to_owned(),
        mount_options: options.to_owned(),
        guest_program: program_hash()?,
    })
}

/// A kernel for tests that judge invented figures.
#[cfg(test)]
pub fn invented_kernel() -> RealKernel {
    let text = |text: &str| text.to_owned();
    RealKernel {
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

/// Returns the path of `trimwised`, which is next to this program and which guests run as their daemon.
pub fn trimwised() -> Result<PathBuf, Failure> {
    let daemon = this_program()?.with_file_name("trimwised");
    if daemon.is_file() {
        return Ok(daemon);
    }
    let expected = "trimwised next to trimwise-lab (cargo build --release -p trimwised makes it)";
    let why = format!("{}: not found, and the guest runs it", daemon.display());
    Err(Mistake::that(why).expected(expected).fail())
}

/// A completed job of a guest, with everything that its drive saw.
pub struct Ran {
    pub steps: Vec<(Step, StepReport)>,
    pub trace: Vec<TraceEntry>,
    /// One mark before the first step and one after each; steps may add their own.
    pub marks: Vec<Mark>,
    pub port: Port,
    pub store: SparseStore,
}

impl Ran {
    /// Runs a job on a built-in profile's drive, scaled down to `capacity`, and audits the drive.
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

    /// Runs a job on this disk, and audits its drive.
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

    /// Returns a disk in the state that the job left, for another guest. The drive's clock continues, so that guest's
    /// first request waits until then.
    pub fn another(&self, is_traced: bool) -> Result<Disk, Failure> {
        let store =
            self.store.duplicate().map_err(|e| Failure::run(format!("cannot copy a drive's bytes: {e}")))?;
        Ok(Disk::new(self.port.clone(), store, "trimwise", is_traced))
    }

    /// Returns the indices of the steps that satisfy `wanted`.
    pub fn all(&self, wanted: impl Fn(&Step) -> bool) -> Vec<usize> {
        (0..self.steps.len()).filter(|&i| wanted(&self.steps[i].0)).collect()
    }

    pub fn duration_ns(&self, step: usize) -> u64 {
        self.steps[step].1.duration().as_nanos()
    }

    /// Returns a step's result, as read by `of`.
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

    /// Returns the figures of a step's workload, as read by `of`.
    pub fn workload<T>(&self, step: usize, of: impl Fn(&WorkloadFigures) -> Option<T>) -> Result<T, Failure> {
        self.outcome(step, |outcome| match outcome {
            Outcome::Cell(cell, _) => of(&cell.workload),
            _ => None,
        })
    }

    /// Returns the text of the file that a step read.
    pub fn text(&self, step: usize) -> Result<&str, Failure> {
        self.outcome(step, |outcome| match outcome {
            Outcome::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Returns the extents of the file that a step located.
    pub fn extents(&self, step: usize) -> Result<&[FileExtent], Failure> {
        self.outcome(step, |outcome| match outcome {
            Outcome::Extents(extents) => Some(extents.as_slice()),
            _ => None,
        })
    }

    /// Returns the requests between the beginning of one step and the end of another.
    pub fn requests(&self, first: usize, last: usize) -> &[TraceEntry] {
        let end = self.marks.get(last + 1).map_or(self.trace.len(), |mark| mark.traced);
        let begin = self.marks.get(first).map_or(end, |mark| mark.traced);
        &self.trace[begin..end]
    }
}

/// Converts a cell's error to a failure for the user.
pub fn failure(error: KernelCellError) -> Failure {
    match error {
        KernelCellError::Job(error) => job_failure(error),
        KernelCellError::Device(error) => Mistake::that(error.to_string()).fail(),
        other => Failure::run(other),
    }
}

/// Converts a job's error to a failure for the user.
pub fn job_failure(error: JobError) -> Failure {
    match error {
        JobError::Machine(MachineError::Interrupted) => Failure::Interrupted,
        unknown @ JobError::UnknownWords { .. } => Mistake::on("boot").because(unknown.to_string()).fail(),
        other if other.lacks_memory() => {
            let help = words!["\ngive the guest more (", key("memory"), "), or have the programs take less"];
            Failure::Run(words![other.to_string(), help])
        }
        other => Failure::run(other),
    }
}
