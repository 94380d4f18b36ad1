//! `trimwise kernel`: builds, lists and removes the Linux kernels that run as guests in virtual time, and runs programs
//! on them.

pub mod arguments;
mod run;
pub mod table;

use crate::requests::kernel::{self, failure};
use trimwise::failure::Failure;
use trimwise::units::Bytes;
use trimwise_study::caller::Caller;
use trimwise_uml::images::Cache;

use crate::commands::kernel::arguments::{KernelCommand, KernelRemoveArguments};
use trimwise_cli::arguments::{JsonArguments, TableArguments};
use trimwise_cli::output::Destinations;

pub fn run(command: &KernelCommand, caller: &dyn Caller) -> Result<String, Failure> {
    match command {
        KernelCommand::Run(arguments) => run::run(arguments, caller),
        KernelCommand::Build(arguments) => {
            let json = JsonArguments { json: arguments.json.clone(), force: arguments.force };
            show((&json, &arguments.tables), || kernel::build(&arguments.request(), caller))
        }
        KernelCommand::List(arguments) => show((&arguments.json, &arguments.tables), kernel::list),
        KernelCommand::Remove(arguments) => remove(arguments),
    }
}

fn show(
    (json, tables): (&JsonArguments, &TableArguments),
    kernels: impl FnOnce() -> Result<kernel::KernelsReport, Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check_forms(json, tables)?;
    let report = kernels()?;
    destinations.deliver(&report, || table::render(&report))
}

fn remove(arguments: &KernelRemoveArguments) -> Result<String, Failure> {
    let cache = Cache::of_user().map_err(failure)?;
    let folder = cache.directory().display();
    if let Some(version) = &arguments.source {
        let freed = cache.remove_kept(version).map_err(failure)?;
        return Ok(format!("removed source and objects of {version} in {folder}: {} freed\n", Bytes(freed)));
    }
    let kernel = arguments.kernel.as_deref().unwrap_or_default();
    let removed = cache.remove(kernel).map_err(failure)?;
    let what = if removed == 0 { "the log of a failed build" } else { "the kernel" };
    Ok(format!("removed {what}: {kernel} in {folder}\n"))
}
