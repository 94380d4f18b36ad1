//! Chooses the kernel that runs the requested file system: the built one closest to the host's.

use trimwise::failure::{Failure, Mistake, Words, key, set};
use trimwise::policy::LinuxVersion;
use trimwise::words;
use trimwise_study::caller::Caller;
use trimwise_study::compare::CompareRequest;
use trimwise_study::compare::file_system::{answer_by_model, asked, differs, title};
use trimwise_study::compare::here::StandIn;
use trimwise_study::compare::workload::Workload;
use trimwise_study::defaults;
use trimwise_uml::cell::KernelTarget;
use trimwise_uml::images::{self, CATALOGUE, KernelError, KernelName};
use trimwise_uml::job::FileSystem;

use super::on_kernel;

/// Chooses the kernel that a request runs on; `None` for the model. Records in `found` which file system answers, and
/// notes to the caller if the model's ext4 stands in for another one. Fails if the file system of `--fs` cannot answer.
pub(crate) fn target(
    request: &CompareRequest,
    workload: &Workload,
    found: Option<&mut StandIn>,
    caller: &dyn Caller,
) -> Result<Option<KernelTarget>, Failure> {
    let (file_system, of_host) = asked(request, found.as_deref());
    let of = Mistake::of("fs", file_system.name());
    if file_system == FileSystem::Ext4 {
        return Ok(None);
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
            // If the user named the file system, report everything that it cannot do; for a host's file system the
            // model can answer.
            let refusals = on_kernel::refusals(request, workload, &target).into_iter();
            let check = request.check.iter().map(|_| Mistake::on("check").that_is("checks the model"));
            let what = check.chain(refusals).next();
            let Some(what) = what.filter(|_| request.fs.is_none()) else {
                if let Some(found) = found {
                    let (name, kernel) = (title(file_system), &target.kernel);
                    found.answered_by(format!("The file system is {name} itself, that of Linux {kernel}."));
                }
                return Ok(Some(target));
            };
            // The alternatives accepted by that kernel are of no use to users who did not choose it.
            (words![Mistake { accepted: None, ..what }.to_string()], String::new())
        }
    };
    if let Some(found) = found.filter(|_| request.fs.is_none()) {
        answer_by_model(file_system, (&reason.to_string(), &remedy), (found, caller));
        return Ok(None);
    }
    let differs = differs(file_system);
    let rest = format!(") shows what TRIM is worth to this drive and work, not what {differs}{remedy}");
    Err(of.because(words![reason, "; the model's ext4 (", set("fs", "ext4"), rest]).fail())
}

/// Finds the kernel closest to a version for this file system. The error says what is missing and how to get it.
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
