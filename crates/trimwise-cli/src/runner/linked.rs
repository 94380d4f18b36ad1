//! The models and the host compiled into this build.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::compare::cell::{CellError, CellSpec, run_cell};
use trimwise::compare::result::{Cell, CellId};
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimTime, UNIT_BYTES};
use trimwise::workload::apps;
use trimwise::workload::files::{FileError, Files as _};
use trimwise::workload::postmark::{
    self, LocationError, Phase, PlannedRun, PostmarkConfig, Progress, footprint,
};
use trimwise::workload::program::Program;
use trimwise::workload::timed::{Timed, Timing};
use trimwise_lab::bench::{Results, Settings, Test};
use trimwise_lab::crash::{CrashReport, CrashTest};
use trimwise_lab::experiment::result::ExperimentResult;
use trimwise_linux::{DirectoryError, RealDirectory, block_on, mount_of};
use trimwise_uml::cell::{KernelCell, KernelPolicy, KernelTarget, KernelWorkload};
use trimwise_uml::images::KernelImage;

use super::bench;
use super::devices;
use super::experiments::{self, Experiment, OnKernel};
use super::guests::{self, Bounds};
use super::room::Room;
use super::{
    BenchProgress, KernelRun, Listed, ModelRun, Models, Mounted, RealTarget, Report, Reproduction, input,
    workloads,
};
use crate::defaults::SEED;
use crate::failure::Failure;
use crate::table;

/// Operations per progress report: an operation takes about a microsecond, a report a little less.
const OPERATIONS_PER_REPORT: u64 = 256;

/// The models of this build.
#[derive(Clone, Copy, Debug)]
pub struct Linked;

/// A workload, and where it came from.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its file or name, as given.
    argument: String,
    /// The configuration file; empty if the workload is not PostMark.
    text: String,
    kind: Kind,
}

/// What to run.
#[derive(Clone, Debug)]
enum Kind {
    Postmark(PlannedRun),
    Timed(Timed),
    /// A named application, or a fio job.
    Program(Program),
}

impl Workload {
    /// The error for a location that the target does not have, with the file and the line that set it.
    fn bad_location(&self, error: &LocationError) -> Failure {
        let line = match &self.kind {
            Kind::Postmark(run) => run.line_of_location(&error.path),
            Kind::Timed(_) | Kind::Program(_) => None,
        };
        let at = line.map_or(String::new(), |line| format!(":{line}"));
        Failure::usage(format!("{}{at}: {error}", self.argument))
    }
}

/// Translates the name of a policy in mount options and elsewhere.
pub fn usual_name(policy: &str) -> String {
    match policy {
        "discard" => "commit".to_owned(),
        "nodiscard" | "none" => "off".to_owned(),
        // The interval of the timer that distributions ship.
        "fstrim" => "batch:1w".to_owned(),
        other => other.strip_prefix("fstrim:").map_or(other.to_owned(), |every| format!("batch:{every}")),
    }
}

/// Estimates how much memory of this computer one run on the device takes.
pub(super) fn memory_of_run(device: &Profile) -> Bytes {
    // Maps of the device and of the file system, with entries per unit, and caches.
    const BYTES_PER_UNIT: u64 = 12;
    const BESIDES: Bytes = Bytes::mib(200);
    Bytes(device.config.capacity_bytes / UNIT_BYTES * BYTES_PER_UNIT + BESIDES.0)
}

impl Models for Linked {
    type Device = Profile;
    type Policy = PolicySpec;
    type Workload = Workload;

    fn device(&self, argument: &str) -> Result<(String, Profile), Failure> {
        let profile = devices::profile(argument, "device")?;
        Ok((profile.name.clone(), profile))
    }

    fn check_policy(&self, device: &Profile, policy: &PolicySpec) -> Result<(), Failure> {
        // `ideal` sends nothing: the modelled device already knows.
        if device.config.trim.is_supported() || *policy == PolicySpec::OFF || !policy.is_usable() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--policy {policy}: {} does not support TRIM; expected --policy off there, or off and the bound ideal",
            device.name
        )))
    }

    fn policy(&self, argument: &str) -> Result<(String, PolicySpec), Failure> {
        let policy: PolicySpec = usual_name(argument).parse().map_err(Failure::usage)?;
        Ok((policy.to_string(), policy))
    }

    fn workload(&self, argument: &str) -> Result<Workload, Failure> {
        if Timed::is_meant(argument) {
            let timed = argument.parse().map_err(|e| Failure::usage(format!("--workload: {e}")))?;
            return Ok(Workload {
                argument: argument.to_string(),
                text: String::new(),
                kind: Kind::Timed(timed),
            });
        }
        if Program::is_meant(argument) {
            let read = |file| input::read(file, "workload", "a fio job file", &[]);
            let text = Program::job_file(argument).map_or(Ok(String::new()), read)?;
            let program = Program::parse(argument, &text);
            let program = program.map_err(|e| Failure::usage(format!("--workload: {e}")))?;
            if let Program::Fio(name, jobs) = &program {
                jobs.notes.iter().for_each(|note| eprintln!("note: {name}, {}", table::plain(note)));
            }
            return Ok(Workload { argument: argument.to_string(), text, kind: Kind::Program(program) });
        }
        let names: Vec<&str> = workloads::EMBEDDED
            .iter()
            .map(|(name, _)| *name)
            .chain(apps::ALL.iter().map(|spec| spec.name))
            .chain(workloads::OTHERS)
            .collect();
        let text = match workloads::EMBEDDED.iter().find(|(name, _)| *name == argument) {
            Some((_, text)) => (*text).to_owned(),
            None => input::read(argument, "workload", "a PostMark configuration", &names)?,
        };
        let mut runs = PostmarkConfig::parse(&text, argument).map_err(Failure::usage)?.runs;
        match (runs.pop(), runs.len()) {
            (Some(run), 0) if run.line.is_none() => Err(Failure::usage(format!(
                "--workload {argument}: has no line `run`, so nothing would be done; add one"
            ))),
            (Some(run), 0) => {
                let location = run.config.for_model().err();
                let workload = Workload { argument: argument.to_string(), text, kind: Kind::Postmark(run) };
                location.map_or(Ok(()), |e| Err(workload.bad_location(&e)))?;
                Ok(workload)
            }
            (_, more) => Err(Failure::usage(format!(
                "--workload {argument}: has {} lines `run`; keep one per file, so that it is clear what is compared",
                more + 1
            ))),
        }
    }

    fn is_postmark(&self, workload: &Workload) -> bool {
        matches!(workload.kind, Kind::Postmark(_))
    }

    fn check_room(
        &self,
        device: &Profile,
        workload: &Workload,
        utilization_percent: u8,
    ) -> Result<(), Failure> {
        let room = Room::of(device, FormatOptions::TODAY, utilization_percent)?;
        let checked = match &workload.kind {
            Kind::Postmark(run) => room.check(&run.config),
            Kind::Timed(timed) => room.check_timed(*timed),
            Kind::Program(program) => room.check_program(program.needed()),
        };
        checked
            .map_err(|e| Failure::usage(format!("--workload {} on {}: {e}", workload.argument, device.name)))
    }

    fn memory_of_run(&self, device: &Profile) -> Bytes {
        memory_of_run(device)
    }

    fn run_model(&self, run: &ModelRun<Self>, report: Report) -> Result<Cell, Failure> {
        let spec = CellSpec {
            device: run.device.name.clone(),
            ssd: run.device.config.clone(),
            faults: run.device.faults,
            policy: (*run.policy).into(),
            workload: match &run.workload.kind {
                Kind::Postmark(run) => run.config.clone().into(),
                Kind::Timed(timed) => (*timed).into(),
                Kind::Program(program) => program.clone().into(),
            },
            host: HostConfig::of(run.linux, run.memory),
            format: FormatOptions::TODAY,
            utilization_percent: Some(run.utilization_percent.into()),
            rep: run.rep,
            seed: run.seed,
        };
        run_cell(&spec, Box::new(move |progress| report_phase(&report, progress))).map_err(|e| {
            let no_space = match &e {
                CellError::Device(_) | CellError::Format(_) | CellError::Location(_) => {
                    return Failure::usage(format!("{}: {e}", spec.device));
                }
                CellError::Workload { source, .. } => is_full(source),
                CellError::File { source, .. } => matches!(**source, FileError::NoSpace { .. }),
                _ => false,
            };
            if !no_space {
                return Failure::run(e);
            }
            let room = match Room::of(run.device, spec.format, run.utilization_percent) {
                Ok(room) => room,
                Err(failure) => return failure,
            };
            let why = match &run.workload.kind {
                Kind::Postmark(run) => room.when_full(footprint(&run.config).bytes_max),
                Kind::Timed(timed) => room.when_full(timed.needed()),
                Kind::Program(program) => room.when_full(program.needed()),
            };
            let argument = &run.workload.argument;
            Failure::run(format!("--workload {argument} on {}, policy {}: {why}", spec.device, spec.policy))
        })
    }

    fn kernel(&self, target: &KernelTarget) -> Result<KernelImage, Failure> {
        guests::image(target)
    }

    fn check_kernel_run(&self, run: &KernelRun<Self>) -> Result<(), Failure> {
        let KernelRun { device, workload, target, policy, .. } = *run;
        guests::check_memory(run.memory)?;
        guests::check_size(device, target.file_system)?;
        if !device.config.trim.is_supported() && policy != KernelPolicy::Off {
            return Err(Failure::usage(format!(
                "--policy {policy}: {} does not support TRIM; expected --policy off there",
                device.name
            )));
        }
        let Some(room) = guests::room(device, target.file_system, run.utilization_percent) else {
            return Ok(());
        };
        let checked = match &workload.kind {
            Kind::Postmark(run) => room.check(&run.config),
            Kind::Timed(timed) => room.check_timed(*timed),
            Kind::Program(program) => room.check_program(program.needed()),
        };
        checked
            .map_err(|e| Failure::usage(format!("--workload {} on {}: {e}", workload.argument, device.name)))
    }

    fn run_kernel(&self, run: &KernelRun<Self>) -> Result<Cell, Failure> {
        let workload = match &run.workload.kind {
            Kind::Postmark(_) => KernelWorkload::Postmark(run.workload.text.clone()),
            Kind::Timed(timed) => KernelWorkload::Timed(timed.to_string()),
            Kind::Program(program) => KernelWorkload::Program(program.to_string(), run.workload.text.clone()),
        };
        let cell = KernelCell {
            device: run.device,
            target: run.target,
            policy: run.policy,
            workload: &workload,
            utilization_percent: run.utilization_percent,
            rep: run.rep,
            seed: run.seed,
        };
        let bounds = Bounds { limits: run.limits, stop: Arc::clone(run.stop) };
        cell.run(&guests::guest(run.image, run.memory, &bounds)?).map_err(guests::failure)
    }

    fn kernel_memory(&self, run: &KernelRun<Self>) -> Bytes {
        let guest = guests::memory_of_guest(run.memory, run.device, run.utilization_percent);
        Bytes(memory_of_run(run.device).0.saturating_add(guest.0))
    }

    fn directory(&self, directory: &Path, workload: &Workload, may_fill: bool) -> Result<Mounted, Failure> {
        // Opened read-only: a refusal comes before the first file is created.
        let root = RealDirectory::open(directory, Arc::default()).map_err(Failure::usage)?;
        let fills = matches!(&workload.kind, Kind::Timed(timed) if timed.fills());
        if may_fill && !fills {
            let argument = &workload.argument;
            return Err(Failure::usage(format!("--fill: --workload {argument} fills no file system")));
        }
        match &workload.kind {
            Kind::Program(program) => root.check_program(program).map_err(Failure::usage)?,
            Kind::Postmark(run) => drop(root.plan(&run.config).map_err(|e| match &e {
                DirectoryError::Location(location) => workload.bad_location(location),
                _ => Failure::usage(e),
            })?),
            Kind::Timed(timed) => {
                let space = root.check_timed(*timed).map_err(Failure::usage)?;
                if fills && !may_fill {
                    return Err(Failure::usage(format!(
                        "--workload {}: on {} this writes {}, all that is free there, until nothing can write any \
                         more, and then removes it. If nothing else uses that file system, pass --fill",
                        workload.argument,
                        directory.display(),
                        space.free
                    )));
                }
            }
        }
        Ok(match mount_of(directory) {
            Ok(m) => Mounted {
                point: Some(m.mount_point.display().to_string()),
                policy: m.discard().to_string(),
                file_system: Some(m.fs_type),
            },
            Err(_) => Mounted { point: None, file_system: None, policy: "mounted".to_string() },
        })
    }

    fn run_directory(
        &self,
        directory: &Path,
        policy: &str,
        workload: &Workload,
        rep: u32,
        stop: &Arc<AtomicBool>,
        report: Report,
    ) -> Result<Cell, Failure> {
        let root = RealDirectory::open(directory, Arc::clone(stop)).map_err(Failure::run)?;
        let held_by = mount_of(directory).map_or_else(|_| directory.to_path_buf(), |m| m.mount_point);
        let id = CellId {
            device: held_by.display().to_string(),
            policy: policy.to_string(),
            target: format!("dir:{}", directory.display()),
            rep,
        };
        let waited = |_| Failure::run("the run on the directory waited for nothing");
        let file_failed = |e| match e {
            FileError::Interrupted => Failure::Interrupted,
            other => Failure::run(format!("--workload {}: {other}", workload.argument)),
        };
        match &workload.kind {
            Kind::Postmark(run) => {
                let config = root.plan(&run.config).map_err(Failure::run)?;
                let mut progress = |p| report_phase(&report, p);
                let outcome = block_on(postmark::run(&root, &config, &mut progress))
                    .map_err(waited)?
                    .map_err(|e| if e.is_interrupt() { interrupted(&e) } else { Failure::run(e) })?;
                Ok(Cell::of_postmark(id, &outcome, run.config.report))
            }
            Kind::Program(program) => {
                let (ends, duration) =
                    root.run_program(program, draw_seed(rep), stop).map_err(file_failed)?;
                Ok(Cell::of_program(id, duration, ends))
            }
            Kind::Timed(timed) => {
                let begin = root.now();
                // The removed file is drawn at random, a different one in each repetition.
                let run = time_one(&root, *timed, draw_seed(rep));
                let (timing, end) = block_on(run).map_err(waited)?.map_err(file_failed)?;
                Ok(Cell::of_timed(id, end.since(begin), *timed, timing))
            }
        }
    }

    fn crash_policies(&self) -> Vec<String> {
        PolicySpec::examples().iter().map(ToString::to_string).collect()
    }

    fn crash_run(&self, policy: &PolicySpec, seed: u64, cuts: u64, run: u64) -> Result<CrashReport, Failure> {
        let test = CrashTest { policy: (*policy).into(), seed, cuts };
        test.one_run(run).map_err(|e| Failure::run(format!("policy {policy}, seed {seed}, run {run}: {e}")))
    }

    fn bench_model(
        &self,
        device: &Profile,
        tests: &[Test],
        settings: &Settings,
        stop: &Arc<AtomicBool>,
        on_progress: BenchProgress,
    ) -> Result<Results, Failure> {
        bench::in_model(device, tests, settings, stop, on_progress)
    }

    fn bench_real(
        &self,
        target: &RealTarget,
        tests: &[Test],
        settings: &Settings,
        stop: &Arc<AtomicBool>,
        on_progress: BenchProgress,
    ) -> Result<Results, Failure> {
        bench::on_real(target, tests, settings, stop, on_progress)
    }

    fn experiments(&self) -> Vec<Listed> {
        let listed = |e: &Experiment| Listed {
            name: e.name.to_string(),
            summary: e.question.to_string(),
            boots: e.boots,
        };
        experiments::ALL.iter().map(listed).collect()
    }

    fn check_reproduction(&self, asked: &Reproduction) -> Result<(), Failure> {
        let experiment = experiment(asked)?;
        if let Some(target) = asked.target {
            on_kernel(experiment, target)?;
        }
        match experiment.check {
            Some(check) => check(asked.only, asked.target)?,
            None if asked.only.is_empty() => {}
            None => {
                return Err(Failure::usage(format!("--only: '{}' has no parts to choose from", asked.name)));
            }
        }
        let Some(target) = asked.target else { return Ok(()) };
        target.check_for_policies().map_err(|e| Failure::usage(format!("--target kernel:{target}: {e}")))?;
        guests::image(target).map(drop)
    }

    fn reproduce(&self, asked: &Reproduction, report: Report) -> Result<ExperimentResult, Failure> {
        let experiment = experiment(asked)?;
        // Runs of a guest differ only in the phase of its commit timer, so one stands for all.
        let reps = if asked.target.is_some() { 1 } else { experiment.reps };
        let request = experiments::Request {
            reps: asked.reps.unwrap_or(reps),
            seed: SEED,
            jobs: asked.jobs.map(usize::from),
            only: asked.only.to_vec(),
            bounds: asked.bounds.clone(),
            report,
        };
        match asked.target {
            None => (experiment.run)(&request),
            Some(target) => on_kernel(experiment, target)?(&request, target),
        }
    }
}

/// Returns how an experiment runs on a real kernel, or why it cannot.
fn on_kernel(experiment: &Experiment, target: &KernelTarget) -> Result<OnKernel, Failure> {
    experiment.on_kernel.ok_or_else(|| {
        let able: Vec<&str> =
            experiments::ALL.iter().filter(|e| e.on_kernel.is_some()).map(|e| e.name).collect();
        Failure::usage(format!(
            "{} --target kernel:{target}: it uses policies or a host that no real kernel has, or boots kernels \
             by itself; expected --target model, or one of {} on a kernel",
            experiment.name,
            able.join(", ")
        ))
    })
}

/// Finds the experiment of this name.
fn experiment(asked: &Reproduction) -> Result<&'static Experiment, Failure> {
    let found = experiments::ALL.iter().find(|e| e.name == asked.name);
    found.ok_or_else(|| Failure::usage(format!("there is no experiment '{}'", asked.name)))
}

/// An interrupted run that cleaned up is just interrupted; one that could not says what it left.
fn interrupted(error: &postmark::RunError) -> Failure {
    match error {
        postmark::RunError::File { leftovers: Some(_), .. } => Failure::run(error),
        _ => Failure::Interrupted,
    }
}

/// Whether a run ended because the file system was full.
fn is_full(error: &postmark::RunError) -> bool {
    matches!(error, postmark::RunError::File { source: FileError::NoSpace { .. }, .. })
}

/// The three phases get equal shares: which one takes longest is not known in advance.
fn report_phase(report: &Report, progress: Progress) {
    if !progress.done.is_multiple_of(OPERATIONS_PER_REPORT) {
        return;
    }
    let phase = match progress.phase {
        Phase::Create => 0,
        Phase::Transactions => 1,
        Phase::Delete => 2,
    };
    let of = progress.of.max(1);
    report(phase * of + progress.done.min(of), 3 * of);
}

/// What a repetition on a real directory draws.
fn draw_seed(rep: u32) -> u64 {
    SEED ^ u64::from(rep) << 32
}

/// Prepares, measures and removes, even if the measurement failed; returns when it ended, before the removal.
async fn time_one(root: &RealDirectory, timed: Timed, seed: u64) -> Result<(Timing, SimTime), FileError> {
    let mut prepared = timed.prepare(root, seed).await?;
    let timing = prepared.measure(root).await;
    let end = root.now();
    let removed = prepared.remove(root).await;
    let timing = timing?;
    removed.map(|()| (timing, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_a_terabyte_takes_three_gigabytes() {
        let (_, device) = Linked.device("nvme-generic").unwrap();
        let bytes = Linked.memory_of_run(&device);
        assert!((Bytes::gib(2)..Bytes::gib(4)).contains(&bytes), "{bytes}");
    }
}
