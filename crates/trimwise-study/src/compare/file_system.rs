//! Chooses the file system that answers, from `--fs` and what `--here` finds.
//!
//! The model is an ext4. Other file systems run on a real kernel in virtual time, in the
//! [laboratory](crate::laboratory). Where that is impossible, a sentence says what the model's ext4 can and cannot tell
//! about the file system, and which command helps.

use trimwise_linux::file_system::FileSystem;

use super::CompareRequest;
use super::here::StandIn;
use crate::caller::Caller;
use crate::laboratory::Laboratory;

/// Returns the file system that a request is about, and the host's if a guest can make it.
pub fn asked(request: &CompareRequest, found: Option<&StandIn>) -> (FileSystem, Option<FileSystem>) {
    let of_host = found.and_then(|found| found.file_system().parse::<FileSystem>().ok());
    (request.fs.or(of_host).unwrap_or(FileSystem::Ext4), of_host)
}

/// Returns whether to ask the laboratory. Without one, the model's ext4 answers for a host with another file system,
/// unless `--fs` names that.
pub(crate) fn needs_laboratory(
    request: &CompareRequest,
    found: Option<&mut StandIn>,
    (caller, laboratory): (&dyn Caller, &dyn Laboratory),
) -> bool {
    let (file_system, _) = asked(request, found.as_deref());
    if file_system == FileSystem::Ext4 {
        return request.check.is_some();
    }
    match (found, laboratory.missing()) {
        (Some(found), Some((reason, remedy))) if request.fs.is_none() && request.check.is_none() => {
            let remedy = format!("; for {} itself: {remedy}", title(file_system));
            answer_by_model(file_system, (&reason, &remedy), (found, caller));
            false
        }
        _ => true,
    }
}

/// Notes that the model's ext4 answers in place of the host's file system, and why.
pub fn answer_by_model(
    file_system: FileSystem,
    (reason, remedy): (&str, &str),
    (found, caller): (&mut StandIn, &dyn Caller),
) {
    let differs = differs(file_system);
    let why = format!(
        "{reason}, so the model's ext4 answers: it shows what TRIM is worth to this drive and work, not what {differs}\
         {remedy}"
    );
    caller.note(&why);
    found.answered_by(format!("In place of {}: {why}.", title(file_system)));
}

/// Returns a request for the model that names ext4 where `--here` is on another file system, so that the command that
/// repeats it does not depend on which kernels are built.
pub fn on_model(request: &CompareRequest, found: Option<&StandIn>) -> CompareRequest {
    let is_other = found.is_some_and(|found| found.file_system() != FileSystem::Ext4.name());
    let fs = if is_other { Some(FileSystem::Ext4) } else { request.fs };
    CompareRequest { fs, ..request.clone() }
}

/// A file system's name in sentences.
pub fn title(file_system: FileSystem) -> &'static str {
    match file_system {
        FileSystem::Xfs => "XFS",
        other => other.name(),
    }
}

/// How a file system differs from the model's ext4, as far as TRIM is concerned.
pub fn differs(file_system: FileSystem) -> &'static str {
    match file_system {
        FileSystem::Ext4 => "this ext4 does differently",
        FileSystem::Xfs => {
            "XFS does differently (where it allocates, its log, an fstrim that sends all free space again)"
        }
        FileSystem::Btrfs => "btrfs does differently (it copies on write, and paces `discard=async` itself)",
        FileSystem::F2fs => "f2fs does differently (it writes as a log, and cleans up itself)",
    }
}
