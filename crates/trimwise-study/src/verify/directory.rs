//! Does TRIM reach the disk below a mounted file system?

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

use serde::Serialize;
use trimwise::failure::{Failure, Mistake, argument};
use trimwise::units::Bytes;
use trimwise_linux::block_device::BlockDeviceError;
use trimwise_linux::code::Code;
use trimwise_linux::mounted_verify::{self, Counts, FILE_BYTES, Report, Verdict, VerifyError};
use trimwise_linux::path_error::PathError;
use trimwise_linux::privilege::advice;

use super::{VerifyRequest, refuse};
use crate::caller::{Caller, OnInterrupt};
use crate::command_text::CommandText;
use crate::input::expect_mount;
use crate::trim;

#[derive(Clone, Debug, Serialize)]
pub struct DirectoryReport {
    pub trimwise: &'static str,
    pub settings: DirectorySettings,
    /// The trim failed or was stopped, so there is no conclusion.
    pub partial: bool,
    pub failed: Option<String>,
    pub verdict: &'static str,
    /// Code of what is wrong or unknown.
    pub code: Option<Code>,
    pub sentence: String,
    pub mount_point: String,
    pub file_system: String,
    pub device: String,
    /// Size of the file that was written.
    pub file_bytes: u64,
    /// Extents of the file that was written.
    pub file_extents: usize,
    /// Number of times that the file system was trimmed.
    pub trims: u32,
    /// The sum of FITRIM's return values.
    pub trim_answered_bytes: u64,
    /// Contents of the file's blocks after its removal.
    pub after_delete: Units,
    /// Contents of the file's blocks after the trim.
    pub after_trim: Units,
    /// What became of freed pieces of a second file, by their size; empty if they were not tested.
    pub pieces: Vec<Pieces>,
    pub disks: Vec<Disk>,
    pub notes: Vec<String>,
    /// Why the verification counts as failed, if it does.
    #[serde(skip)]
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DirectorySettings {
    /// As given.
    pub target: String,
    pub command: String,
}

/// Units of 4 KiB by their contents.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Units {
    pub old_data_units: u64,
    pub zero_units: u64,
    /// Units with other contents, which were reused.
    pub other_units: u64,
    pub unreadable_units: u64,
}

impl From<Counts> for Units {
    fn from(counts: Counts) -> Self {
        Self {
            old_data_units: counts.old_data,
            zero_units: counts.zeros,
            other_units: counts.other,
            unreadable_units: counts.unreadable,
        }
    }
}

/// Freed pieces of one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pieces {
    pub piece_bytes: u64,
    pub judged_units: u64,
    /// Units of those whose data are gone.
    pub gone_units: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Disk {
    /// The kernel's name.
    pub name: String,
    pub promises_zeros: bool,
    /// The source of that promise, or why nothing is promised.
    pub promise: String,
    /// Discards that the kernel counted meanwhile, whoever sent them; `None` if it does not count them.
    pub discards: Option<u64>,
    pub discarded_bytes: Option<u64>,
}

pub(super) fn run(request: &VerifyRequest, caller: &dyn Caller) -> Result<DirectoryReport, Failure> {
    refuse(
        request,
        "is a mounted file system, where nothing is destroyed",
        &[
            ("fault", request.fault.is_some()),
            ("content", request.content.is_some()),
            ("torture_percent", request.torture_percent.is_some()),
            ("rest_s", request.rest_s.is_some()),
            ("region", request.region.is_some()),
            ("seed", request.seed.is_some()),
            ("destroy", request.destroy.is_some()),
        ],
    )?;
    let path = request.target.trim_start_matches("dir:");
    if path.is_empty() {
        let expected = "dir:PATH, a directory of a mounted file system";
        return Err(Mistake::of(argument("target"), "dir:").expected(expected).fail());
    }
    expect_mount("target", Path::new(path))?;
    let bytes = request.size.unwrap_or(FILE_BYTES);
    let stop = caller.stop(OnInterrupt::Stop)?;
    let progress = caller.progress(1, "files");
    let found = mounted_verify::run(Path::new(path), bytes, &stop);
    progress.finish();
    let found = found.map_err(failure_of)?;
    Ok(DirectoryReport::new(request, &found, stop.load(Ordering::Relaxed)))
}

/// A place where nothing can be found out is a usage error.
fn failure_of(error: VerifyError) -> Failure {
    match error {
        VerifyError::Io(PathError { ref source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            let advice = advice("only root may do that");
            let why = format!("{error}; this test reads the disk below the file system: {advice}");
            Mistake::that(why).fail()
        }
        VerifyError::Interrupted => Failure::Interrupted,
        VerifyError::Trim(error) => trim::refused(error),
        VerifyError::Mount(_)
        | VerifyError::Device(BlockDeviceError::None { .. })
        | VerifyError::Logical { .. }
        | VerifyError::Encrypted { .. }
        | VerifyError::TooFull { .. }
        | VerifyError::Occupied { .. } => Mistake::that(error.to_string()).fail(),
        _ => Failure::run(error),
    }
}

impl DirectoryReport {
    /// Combines the request with the results. After a stop there is no conclusion.
    pub fn new(request: &VerifyRequest, found: &Report, is_stopped: bool) -> Self {
        let failure = match (&found.failed, found.verdict()) {
            _ if is_stopped => Some(Failure::Interrupted),
            (Some(failed), _) => Some(Failure::run(failed)),
            (
                None,
                Verdict::Stops | Verdict::InPart | Verdict::Ignored | Verdict::NotSent | Verdict::Failed,
            ) => Some(Failure::run(format!("{}: {}", found.mount_point, found.verdict()))),
            (None, Verdict::Arrives | Verdict::Consistent | Verdict::Unproven | Verdict::Unknown) => None,
        };
        let mut command = CommandText::new("verify");
        command.argument(&request.target);
        if let Some(size) = request.size {
            command.option("--size", size.0);
        }
        let disks = found.disks.iter().map(|disk| Disk {
            name: disk.name.clone(),
            promises_zeros: disk.promise.is_zeros(),
            promise: disk.promise.to_string(),
            discards: disk.counted.map(|counted| counted.commands),
            discarded_bytes: disk.counted.map(|counted| counted.bytes.0),
        });
        Self {
            trimwise: trimwise::VERSION,
            settings: DirectorySettings { target: request.target.clone(), command: command.into_text() },
            partial: found.failed.is_some(),
            failed: found.failed.clone(),
            verdict: found.verdict().name(),
            code: found.code().filter(|_| !is_stopped),
            sentence: found.verdict().to_string(),
            mount_point: found.mount_point.clone(),
            file_system: found.fs_type.clone(),
            device: found.device.clone(),
            file_bytes: Bytes::from_units(found.file_units).0,
            file_extents: found.extents,
            trims: found.trims,
            trim_answered_bytes: found.answered.0,
            after_delete: found.after_delete().into(),
            after_trim: found.after_trim().into(),
            pieces: found
                .pieces
                .iter()
                .map(|one| Pieces {
                    piece_bytes: one.bytes.0,
                    judged_units: one.judged,
                    gone_units: one.gone,
                })
                .collect(),
            disks: disks.collect(),
            notes: found
                .stops
                .iter()
                .map(|stop| format!("TRIM stops at {stop}"))
                .chain(found.of_pieces())
                .chain(found.notes.clone())
                .collect(),
            failure,
        }
    }
}
