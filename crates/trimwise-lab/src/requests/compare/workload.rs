//! Workloads in the form in which guests run them.

use trimwise::failure::{Failure, Mistake};
use trimwise::workload::program::Program;
use trimwise_study::compare::workload::{Kind, Workload};
use trimwise_study::programs::Programs;
use trimwise_uml::cell::KernelWorkload;
use trimwise_uml::machine::SEARCH_PATH;

/// Converts a workload for a guest.
pub fn to_guest(workload: &Workload) -> Result<KernelWorkload, Failure> {
    match &workload.kind {
        Kind::Postmark(_, text) => Ok(KernelWorkload::Postmark(text.clone())),
        Kind::Timed(timed) => Ok(KernelWorkload::Timed(timed.to_string())),
        Kind::Program(program, text) => {
            // The text already contains what a job file includes, and the overriding options.
            let argument = program.to_string();
            let argument =
                Program::job_file(&argument).map_or(argument.clone(), |file| format!("job:{file}"));
            let scale = if matches!(program, Program::Fio(..)) { workload.scale } else { 1.0 };
            Ok(KernelWorkload::Program { argument, text: text.clone(), scale })
        }
        Kind::Command(programs) => {
            let found = programs.found(true)?;
            found
                .check(SEARCH_PATH.as_ref())
                .map_err(|why| Mistake::of("workload", &workload.argument).because(why).fail())?;
            let Programs { setup, run } = found;
            Ok(KernelWorkload::Command { setup, run })
        }
        Kind::Trace(_) => Err(workload.has_no_files()),
    }
}
