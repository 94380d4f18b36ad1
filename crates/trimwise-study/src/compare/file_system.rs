//! `--fs`, and the file system that `--here` finds: which one answers.
//!
//! The model is an ext4. Any other file system answers for itself, on a real kernel in virtual time: the built one that is
//! closest to the host's. Where none is built, a sentence says what the model's ext4 can and cannot say about it, and which
//! command gets a kernel.

use trimwise::compare::result::Target;
use trimwise::failure::{Failure, Mistake, Words, key, set};
use trimwise::policy::LinuxVersion;
use trimwise::words;
use trimwise_uml::cell::KernelTarget;
use trimwise_uml::images::{self, CATALOGUE, KernelError, KernelName};
use trimwise_uml::job::FileSystem;

use super::CompareRequest;
use super::here::StandIn;
use super::on_kernel;
use super::workload::Workload;
use crate::caller::Caller;
use crate::defaults;

/// Chooses where a request runs. Tells `found` which file system answers, and whoever asked if that is the model's ext4 in
/// place of another.
///
/// # Errors
///
/// If the file system of `--fs` cannot answer.
pub(crate) fn target(
    request: &CompareRequest,
    workload: &Workload,
    found: Option<&mut StandIn>,
    caller: &dyn Caller,
) -> Result<Target, Failure> {
    let of_host = found.as_ref().and_then(|found| found.file_system().parse::<FileSystem>().ok());
    let file_system = request.fs.or(of_host).unwrap_or(FileSystem::Ext4);
    let of = Mistake::of("fs", file_system.name());
    if file_system == FileSystem::Ext4 {
        return Ok(Target::Model);
    }
    if let Some(found) = found.as_ref().filter(|_| of_host != Some(file_system)) {
        let own = of_host.filter(|fs| *fs != FileSystem::Ext4);
        let or_own = own.map_or(String::new(), |own| format!(", or {}", own.name()));
        let why = words![key("here"), format!(" is on {}", found.file_system())];
        return Err(of
            .because(why)
            .expected(words![set("fs", "ext4"), format!(", the model{or_own}")])
            .fail());
    }
    if request.check.is_some() && request.fs.is_some() {
        let why = words!["runs on a kernel, and ", key("check"), " checks the model"];
        return Err(of.because(why).expected("one of them").fail());
    }
    if let Some(linux) = &request.linux {
        linux.parse::<LinuxVersion>().map_err(|e| Mistake::on("linux").because(e.to_string()).fail())?;
    }
    let host = found.as_ref().map(|found| found.kernel().to_owned());
    let wanted = request.linux.clone().or(host).unwrap_or_else(|| defaults::LINUX.to_owned());
    let (reason, remedy) = match kernel(file_system, &wanted) {
        Err((reason, remedy)) => {
            (Words::from(reason), format!("; for {} itself: {remedy}", title(file_system)))
        }
        Ok(target) => {
            // Whoever names the file system hears all that it does not take; for a host's, the model can answer.
            let refusals = on_kernel::refusals(request, workload, &target).into_iter();
            let check = request.check.iter().map(|_| Mistake::on("check").that_is("checks the model"));
            let what = check.chain(refusals).next();
            let Some(what) = what.filter(|_| request.fs.is_none()) else {
                if let Some(found) = found {
                    let (name, kernel) = (title(file_system), &target.kernel);
                    found.answered_by(format!("The file system is {name} itself, that of Linux {kernel}."));
                }
                return Ok(Target::Kernel(target.to_string()));
            };
            // What would be accepted there helps nobody who did not name it.
            (words![Mistake { accepted: None, ..what }.to_string()], String::new())
        }
    };
    let differs = differs(file_system);
    if let Some(found) = found.filter(|_| request.fs.is_none()) {
        let why = format!(
            "{reason}, so the model's ext4 answers: it shows what TRIM is worth to this drive and work, not what {differs}\
             {remedy}"
        );
        caller.note(&why);
        found.answered_by(format!("In place of {}: {why}.", title(file_system)));
        return Ok(Target::Model);
    }
    let rest = format!(") shows what TRIM is worth to this drive and work, not what {differs}{remedy}");
    Err(of.because(words![reason, "; the model's ext4 (", set("fs", "ext4"), rest]).fail())
}

/// Returns a request for the model that names its ext4 where `--here` is on another file system: the command that repeats
/// it does not depend on which kernels are built.
pub(crate) fn on_model(request: &CompareRequest, found: Option<&StandIn>) -> CompareRequest {
    let is_other = found.is_some_and(|found| found.file_system() != FileSystem::Ext4.name());
    let fs = if is_other { Some(FileSystem::Ext4) } else { request.fs };
    CompareRequest { fs, ..request.clone() }
}

/// A file system's name in sentences.
fn title(file_system: FileSystem) -> &'static str {
    match file_system {
        FileSystem::Xfs => "XFS",
        other => other.name(),
    }
}

/// Says in what a file system differs from the model's ext4, as far as TRIM is concerned.
fn differs(file_system: FileSystem) -> &'static str {
    match file_system {
        FileSystem::Ext4 => "this ext4 does differently",
        FileSystem::Xfs => {
            "XFS does differently (where it allocates, its log, an fstrim that sends all free space again)"
        }
        FileSystem::Btrfs => "btrfs does differently (it copies on write, and paces `discard=async` itself)",
        FileSystem::F2fs => "f2fs does differently (it writes as a log, and cleans up itself)",
    }
}

/// Finds the kernel that is closest to a version, for this file system.
///
/// # Errors
///
/// What is missing, and what gets it.
fn kernel(file_system: FileSystem, wanted: &str) -> Result<KernelTarget, (String, String)> {
    let (program, package) = file_system.mkfs();
    let install = format!("`apt-get install {package}`");
    let needs_program = file_system.check_mkfs().is_err();
    let unusable = |error: KernelError| {
        let (reason, remedy) = error.reason_and_remedy();
        (reason, format!("`{}`", remedy.as_deref().unwrap_or("trimwise kernel list")))
    };
    match images::closest(wanted).map_err(unusable)? {
        Some(kernel) if !needs_program => {
            let image = images::find(&kernel.to_string()).map_err(unusable)?;
            image.check(Some(file_system)).map_err(unusable)?;
            return Ok(KernelTarget { kernel, file_system, options: String::new() });
        }
        Some(_) => return Err((format!("{program} is missing"), install)),
        None => {}
    }
    let known = CATALOGUE.iter().filter_map(|series| series.version.parse::<KernelName>().ok());
    let version =
        images::closest_of(known, wanted).map_or(defaults::LINUX.to_owned(), |name| name.to_string());
    let build = format!(
        "`trimwise kernel build --version {version}`, or without a compiler the package trimwise-kernels"
    );
    Err(match needs_program {
        false => ("no kernel is built here".to_owned(), build),
        true => {
            (format!("no kernel is built here, and {program} is missing"), format!("{install}, and {build}"))
        }
    })
}
