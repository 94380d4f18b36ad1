//! The runs on the kernel.

use serde_json::Value;
use trimwise::compare::result::Target;
use trimwise::units::Bytes;
use trimwise::workload::week::Week;
use trimwise_linux::real_kernel;
use trimwise_uml::cell::KernelTarget;
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{DAEMON_FOLDER, FileSystem, Outcome, ProgramEnd, Said, Step};

use super::{AGED, CAPACITY, Case, DEVICE, FILE_SYSTEMS, KERNEL, Run, Slices, Trimming, cases};
use crate::experiment::kernels::observe::Discarded;
use crate::experiment::result::ExperimentResult;
use crate::experiment::{Experiment, Request};
use crate::guests::{self, Ran};
use trimwise::failure::{Failure, Mistake};

/// The guest's memory: less than the database, so that reads always reach the drive.
const MEMORY: Bytes = Bytes::mib(256);

/// Memory of this computer that one run takes: guest, the drive's model, its trace, and the nonzero data.
const MEMORY_OF_RUN: Bytes = Bytes::mib(1_500);

/// Returns the kernel and the cases that `--only` names as FS or FS:TRIMMING; all by default. A target chooses another
/// kernel and a single file system.
pub(super) fn choice(
    only: &[String],
    target: Option<&KernelTarget>,
) -> Result<(KernelImage, Vec<Case>), Failure> {
    let mut cases = cases();
    if let Some(target) = target {
        cases.retain(|case| case.file_system == target.file_system.name());
        let of = Mistake::of("on", Target::from(target));
        if cases.is_empty() {
            let expected = format!("one of {} as the file system", FILE_SYSTEMS.join(", "));
            return Err(of.expected(expected).fail());
        }
        if !target.options.is_empty() {
            let of = of.because("each way of trimming sets its own mount options");
            let expected = format!("none, as in kernel:{}:{}", target.kernel, target.file_system.name());
            return Err(of.expected(expected).fail());
        }
    }
    let names = |case: &Case| {
        let fs = case.file_system;
        [fs.to_owned(), format!("{fs}:{}", case.trimming.name())]
    };
    if let Some(part) = only.iter().find(|part| !cases.iter().any(|case| names(case).contains(part))) {
        let there = target.map_or(FILE_SYSTEMS.join(", "), |target| target.file_system.name().to_owned());
        let all = Trimming::ALL.map(Trimming::name).join(", ");
        let expected = format!(
            "FS or FS:TRIMMING with FS one of {there} and TRIMMING one of {all} (discard-async: btrfs)"
        );
        return Err(Mistake::of("only", part).expected(expected).fail());
    }
    cases.retain(|case| only.is_empty() || names(case).iter().any(|name| only.contains(name)));
    let kernel = match target {
        Some(target) => target.kernel.clone(),
        None => KERNEL.parse().map_err(Failure::run)?,
    };
    let mut image = None;
    for of_one in cases.chunk_by(|a, b| a.file_system == b.file_system) {
        let file_system = file_system(of_one[0])?;
        let target = KernelTarget { kernel: kernel.clone(), file_system, options: String::new() };
        image = Some(guests::image(&target)?);
    }
    if cases.iter().any(|case| case.trimming == Trimming::Daemon) {
        guests::trimwised()?;
    }
    image.map(|image| (image, cases)).ok_or_else(|| Mistake::on("only").because("nothing to run").fail())
}

fn file_system(case: Case) -> Result<FileSystem, Failure> {
    case.file_system.parse().map_err(Failure::run)
}

/// Returns the steps, and the index of the week among them.
fn steps(case: Case, week: &Week) -> Result<(Vec<Step>, usize), Failure> {
    let file_system = file_system(case)?;
    let options = case.mount_option().to_owned();
    let mut steps = vec![
        Step::Mkfs { file_system, options: Vec::new() },
        Step::Mount { file_system, options },
        Step::Age { utilization: AGED, seed: week.seed },
        Step::PrepareWeek { week: week.clone() },
    ];
    if case.trimming == Trimming::Daemon {
        // An empty configuration stands for the defaults as shipped.
        steps.push(Step::Daemon { config: String::new() });
    }
    if let Some((first, every)) = case.fitrim() {
        let (first_ns, every_ns) = (first.as_nanos(), every.as_nanos());
        steps.push(Step::TrimEvery { first_ns, every_ns, minlen_bytes: 0 });
    }
    steps.push(Step::Week { week: week.clone() });
    let at = steps.len() - 1;
    if case.trimming == Trimming::Daemon {
        let run = format!("{DAEMON_FOLDER}/run");
        let command = ["/proc/self/exe", "status", "--run", &run, "--json", "-"].map(str::to_owned).to_vec();
        steps.push(Step::Program { command, input: Said::default() });
        steps.push(Step::StopDaemon);
    }
    Ok((steps, at))
}

/// Reads the slices from the daemon's status, which covers one file system.
fn slices(status: &ProgramEnd) -> Result<Slices, Failure> {
    let data: Value = serde_json::from_slice(&status.output.0).unwrap_or_default();
    let totals = &data["file_systems"][0]["status"]["totals"];
    let number = |key: &str| {
        let wrong = || Failure::run(format!("the status in the guest has no {key}: {status:?}"));
        totals[key].as_u64().ok_or_else(wrong)
    };
    Ok(Slices {
        count: number("slices")?,
        over_count: number("slices_over")?,
        longest_ns: number("slice_longest_ns")?,
    })
}

/// Runs each way of trimming on each file system, or on the target's alone, in one boot.
pub(super) fn run(
    experiment: &Experiment,
    week: Week,
    request: &Request,
) -> Result<ExperimentResult, Failure> {
    let (image, cases) = choice(&request.only, request.target.as_ref())?;
    let runs = request.boot(MEMORY_OF_RUN, &cases, |case| run_case(request, &image, case, &week))?;
    let mut result = super::evaluate(experiment, &week, &runs, request.reps, request.seed);
    if let Some(target) = &request.target {
        result.finding = format!(
            "On kernel:{target} ({}): {}",
            real_kernel::title(&image.release, &image.recipe),
            result.finding
        );
    }
    Ok(result.made_on([&image]))
}

fn run_case(request: &Request, image: &KernelImage, case: Case, week: &Week) -> Result<Run, Failure> {
    let (steps, at) = steps(case, week)?;
    let mut guest = guests::guest(image, MEMORY, &request.bounds)?;
    if case.trimming == Trimming::Daemon {
        guest.daemon = Some(guests::trimwised()?);
    }
    let ran = Ran::new(&guest, DEVICE, CAPACITY, request.seed, steps)?;
    let done = ran.outcome(at, |outcome| match outcome {
        Outcome::Week(done) => Some(done.clone()),
        _ => None,
    })?;
    let status = |outcome: &Outcome| match outcome {
        Outcome::Program(status) => Some(slices(status)),
        _ => None,
    };
    let slices = match case.trimming {
        Trimming::Daemon => Some(ran.outcome(at + 1, status)??),
        _ => None,
    };
    // One mark precedes the first step and one follows each; the week adds its own at its start and at each look.
    let marks = ran.marks.get(at + 1..at + 1 + done.free_bytes.len()).unwrap_or_default();
    let [first, .., last] = marks else {
        return Err(Failure::run("the guest did not mark the moments at which it looked at the file system"));
    };
    Ok(Run {
        case,
        discards: Discarded::of(&ran.trace[first.traced..last.traced], first.at.0),
        mapped_bytes: marks.iter().map(|m| Bytes::from_units(m.mapped_units).0).collect(),
        capacity_bytes: ran.port.size().0,
        write_amplification: last.stats.since(&first.stats).write_amplification(),
        slices,
        done,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_not_is_refused() {
        for part in ["zfs", "ext4:discard-async", "ext4:sometimes"] {
            let refused = choice(&[part.to_owned()], None);
            assert!(
                matches!(refused, Err(Failure::Usage(m)) if m.to_string().contains("fstrim-weekly")),
                "{part}"
            );
        }
    }

    #[test]
    fn a_target_is_one_file_system_without_options() {
        for (target, only, words) in [
            ("6.1:f2fs", None, "--on kernel:6.1:f2fs: expected one of ext4, xfs, btrfs"),
            (
                "6.1:xfs:nodiscard",
                None,
                "each way of trimming sets its own mount options; expected none, as in kernel:6.1:xfs",
            ),
            (
                "6.1:xfs",
                Some("ext4:daemon"),
                "--only ext4:daemon: expected FS or FS:TRIMMING with FS one of xfs and",
            ),
        ] {
            let only: Vec<String> = only.into_iter().map(str::to_owned).collect();
            let refused = choice(&only, Some(&target.parse().unwrap()));
            assert!(
                matches!(&refused, Err(Failure::Usage(m)) if m.to_string().contains(words)),
                "{refused:?}"
            );
        }
    }
}
