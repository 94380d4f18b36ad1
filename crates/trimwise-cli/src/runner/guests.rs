//! Guests: finds the kernel and programs that an argument needs, and explains failed runs to the user.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use trimwise::fs::layout::FormatOptions;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_lab::experiment::kernels::observe::Discarded;
use trimwise_uml::cell::{KernelCellError, KernelTarget, MEMORY_MIN, new_disk};
use trimwise_uml::disk::{Disk, TraceEntry, Traced};
use trimwise_uml::images::{self, KernelImage};
use trimwise_uml::job::{FileSystem, Guest, JobError, Outcome};
use trimwise_uml::machine::{Limits, MachineError};

use super::room::Room;
use crate::failure::Failure;

/// Finds the kernel of a target, and checks that the programs for its file system are there too.
pub fn image(target: &KernelTarget) -> Result<KernelImage, Failure> {
    target.file_system.check_mkfs().map_err(Failure::usage)?;
    images::find(&target.version)
        .map_err(|error| if error.is_usage() { Failure::usage(error) } else { Failure::run(error) })
}

/// Rejects a device that is too small for the file system.
pub fn check_size(device: &Profile, file_system: FileSystem) -> Result<(), Failure> {
    let (size, least) = (Bytes(device.config.capacity_bytes), file_system.least());
    if size >= least {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--device {}: has {size}, and {} needs {least}; expected a larger device",
        device.name,
        file_system.mkfs().0
    )))
}

/// Rejects a guest with too little memory for any of the file systems.
pub fn check_memory(memory: Bytes) -> Result<(), Failure> {
    if memory >= MEMORY_MIN {
        return Ok(());
    }
    Err(Failure::usage(format!("--memory: a guest needs at least {MEMORY_MIN}; got {memory}")))
}

/// The room that ext4 has on a device; unknown for the others.
pub fn room(device: &Profile, file_system: FileSystem, utilization: Option<u8>) -> Option<Room> {
    let is_ext4 = file_system == FileSystem::Ext4;
    is_ext4.then(|| Room::of(device, FormatOptions::TODAY, utilization.unwrap_or(0)).ok()).flatten()
}

/// Estimates how much memory of this computer one guest takes besides the model of its drive: its own memory, and what
/// it has written.
pub fn memory_of_guest(memory: Bytes, device: &Profile, utilization: Option<u8>) -> Bytes {
    // An aged file system was full once; for a new one that is unknown, and its working set is in the guest's memory.
    let written = if utilization.is_some() { device.config.capacity_bytes } else { memory.0 };
    Bytes(memory.0.saturating_add(written))
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
pub fn guest(image: &KernelImage, memory: Bytes, bounds: &Bounds) -> Result<Guest, Failure> {
    Ok(Guest {
        linux: image.linux.clone(),
        preload: Some(image.preload.clone()),
        daemon: None,
        init: this_program()?,
        memory,
        limits: bounds.limits,
        interrupted: Arc::clone(&bounds.stop),
    })
}

/// Returns this program, which is also the init of its guests.
fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|e| Failure::run(format!("cannot find this program, which guests need: {e}")))
}

/// Returns the SHA-256 of this program. Another program leaves a guest a different amount of free memory, which decides
/// when it writes back. So even this program without debug information makes a different guest.
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

/// Makes a new drive of a built-in profile, scaled down to `capacity`, that keeps a trace of its requests.
pub fn small_drive(name: &str, capacity: Bytes, seed: u64) -> Result<Disk, Failure> {
    let mut device = Profile::embedded(name).ok_or_else(|| Failure::run("a drive is missing"))?;
    device.config = device.config.shrunk(capacity.0).map_err(Failure::run)?;
    new_disk(&device, seed, true).map_err(failure)
}

/// Extracts the discards from a drive's trace. Times count from `begin_ns`.
pub fn discards(trace: &[TraceEntry], begin_ns: u64) -> Vec<Discarded> {
    let is_discard = |entry: &&TraceEntry| entry.kind == Traced::Discard;
    let discarded = |entry: &TraceEntry| Discarded {
        at_ns: entry.at_ns - begin_ns,
        done_ns: entry.done_ns - begin_ns,
        offset_bytes: entry.offset_bytes,
        length_bytes: entry.length_bytes,
    };
    trace.iter().filter(is_discard).map(discarded).collect()
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
        other => Failure::run(other),
    }
}

/// The error for a guest that answered a different question.
pub fn unexpected(outcome: &Outcome) -> Failure {
    Failure::run(format!("the guest answered {outcome:?} to a different question"))
}
