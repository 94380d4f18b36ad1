//! `trimwise compare`: runs each device, policy and repetition in parallel and evaluates the results.

pub mod arguments;
pub mod check;
mod on_kernel;
pub mod report;
pub mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use trimwise::compare::ledger::compare_with_off;
use trimwise::compare::result::{Cell, Verdict};
use trimwise::compare::summary::{Summary, SummaryRow};
use trimwise::compare::verdict;
use trimwise::fs::host::LinuxVersion;
use trimwise::units::Bytes;
use trimwise_uml::cell::KernelTarget;
use trimwise_uml::images::KernelImage;

use crate::command_line::CommandText;
use crate::commands::compare::arguments::CompareArguments;
use crate::defaults;
use crate::failure::Failure;
use crate::interrupt::OnInterrupt;
use crate::output::{self, Destinations};
use crate::pool;
use crate::progress::Progress;
use crate::runner::{ModelRun, Models, Mounted};
use on_kernel::Runs;

/// What was asked for, as the JSON and the report show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// The workload, as given.
    pub workload: String,
    /// `model`, `kernel:VERSION:FS[:MOUNT_OPTIONS]` or `dir:PATH`.
    pub target: String,
    /// How full the modelled device was made before the run; `None` on a real directory, and of a new file system.
    pub utilization_percent: Option<u8>,
    /// How the modelled host's Linux carries out discard; `None` elsewhere.
    pub linux: Option<Linux>,
    /// Memory of the modelled host that its page cache may fill, or of the guest; `None` on a real directory.
    pub host_memory_bytes: Option<u64>,
    /// Which kernel ran; `None` if none did.
    pub kernel: Option<RealKernel>,
    /// Where a real directory lies; `None` elsewhere.
    pub mount: Option<Mounted>,
    /// Repetitions.
    pub reps: u32,
    /// What policies are judged by: `total`, or a latency such as `p99:fsync`.
    pub judge: String,
    /// What the other policies are compared with.
    pub baseline: String,
    /// The command that repeats this.
    pub command: String,
}

/// The modelled host's Linux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Linux {
    /// The version, as given.
    pub version: String,
    /// The kernels that carry out discard in the same way, which it stands for.
    pub stands_for: &'static str,
}

/// A real kernel, in virtual time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RealKernel {
    /// What `uname -r` says in it.
    pub release: String,
    /// The package of its source, or where else that came from.
    pub source: String,
    /// Hash of configuration and build recipe.
    pub recipe: String,
    /// The file system.
    pub file_system: String,
    /// Its mount options, apart from those of the policy.
    pub mount_options: String,
    /// The SHA-256 of the program that is the guest's init and runs workloads; a different program makes a different
    /// guest.
    pub guest_program: String,
}

impl RealKernel {
    /// The kernel of a target.
    pub fn of(image: &KernelImage, target: &KernelTarget) -> Result<Self, Failure> {
        Ok(Self {
            release: image.release.clone(),
            source: image.source.clone(),
            recipe: image.recipe.clone(),
            file_system: target.file_system.name().to_owned(),
            mount_options: target.options.clone(),
            guest_program: crate::runner::guests::program_hash()?,
        })
    }
}

/// Error for guest limits where no guest runs.
pub const GUEST_LIMITS: &str = "--max-silence and --max-wall are limits of guests";

/// A comparison, as `--json` writes it; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The seed.
    pub seed: u64,
    /// What was asked for.
    pub settings: Settings,
    /// Whether runs are missing, because one failed or the user stopped them.
    pub partial: bool,
    /// Each run.
    pub cells: Vec<Cell>,
    /// A row for each policy on each device: what the tables show.
    pub summary: Vec<SummaryRow>,
    /// Which policy to use.
    pub verdict: Verdict,
    /// The same on a real kernel; `None` if that was not requested.
    pub check: Option<check::Check>,
    /// Why runs are missing.
    #[serde(skip)]
    pub ended_by: Option<Failure>,
}

/// The finished runs, and why there are no more.
type Ran = (Vec<Cell>, Option<Failure>);

const NO_FILL: &str = "--fill is for --target dir:PATH; other targets fill nothing real";

/// Where the workload runs.
enum Target {
    Model,
    Kernel(KernelTarget),
    Directory(PathBuf),
}

/// Runs the command and returns what to print. `on_signal` installs the handler for Ctrl-C and returns the flag that it
/// raises.
pub fn run<M: Models>(
    models: &M,
    arguments: &CompareArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let target = parse_target(&arguments.target)?;
    if arguments.check.is_some() && !matches!(target, Target::Model) {
        return Err(Failure::usage(format!(
            "--check does not go with --target {}: it checks the model; expected --target model",
            arguments.target
        )));
    }
    let destinations = Destinations::check(&arguments.output)?;
    let comparison = match target {
        Target::Model => in_model(models, arguments, on_signal)?,
        Target::Kernel(target) => {
            on_kernel::run(models, arguments, &target, || on_signal(OnInterrupt::Stop))?
        }
        Target::Directory(path) => on_directory(models, arguments, &path, || on_signal(OnInterrupt::Stop))?,
    };
    let text = || {
        let mut text = String::new();
        if arguments.postmark {
            for cell in &comparison.cells {
                text += &format!("{}, {}, repetition {}\n", cell.device, cell.policy, cell.rep + 1);
                text += &format!("{}\n", cell.postmark_report);
            }
        }
        text + &table::render(&comparison)
    };
    let text = destinations.deliver_with_report(&comparison, || report::html(&comparison), text)?;
    match comparison.ended_by {
        None => Ok(text),
        // Report finished runs even if others are missing.
        Some(failure) => output::print(&text).and(Err(failure)),
    }
}

fn parse_target(text: &str) -> Result<Target, Failure> {
    let refused = |what: String| Failure::usage(format!("--target {text}: {what}"));
    match text.split_once(':') {
        _ if text == "model" => Ok(Target::Model),
        Some(("dir", "")) => Err(Failure::usage("--target dir: names no directory; expected dir:PATH")),
        Some(("dir", path)) => Ok(Target::Directory(PathBuf::from(path))),
        Some(("kernel", target)) => Ok(Target::Kernel(target.parse().map_err(refused)?)),
        _ => Err(refused("expected `model`, `kernel:VERSION:FS[:MOUNT_OPTIONS]` or `dir:PATH`".to_owned())),
    }
}

/// Runs every cell in virtual time.
fn in_model<M: Models>(
    models: &M,
    arguments: &CompareArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<Comparison, Failure> {
    let target = arguments.check.as_deref().map(check::parse).transpose()?;
    let mut device_arguments = arguments.devices.clone();
    if device_arguments.is_empty() {
        device_arguments.push(defaults::DEVICE.to_string());
    }
    let mut policy_arguments = arguments.policies.clone();
    if policy_arguments.is_empty() {
        policy_arguments.extend(defaults::POLICIES.map(String::from));
    }
    let policies = named(&policy_arguments, "--policy", |a| models.policy(a))?;
    let devices = named(&device_arguments, "--device", |a| models.device(a))?;
    let workload = workload(models, arguments)?;
    if arguments.fill {
        return Err(Failure::usage(NO_FILL));
    }
    let utilization_percent = arguments.utilization.unwrap_or(defaults::UTILIZATION_PERCENT);
    for (_, device) in &devices {
        for (_, policy) in &policies {
            models.check_policy(device, policy)?;
        }
        models.check_room(device, &workload, utilization_percent)?;
    }
    // The model that is checked on a kernel models that kernel, with as much memory.
    let (option, linux) = match (&arguments.linux, &target) {
        (None, Some(target)) => ("--check", target.version.as_str()),
        (linux, _) => ("--linux", linux.as_deref().unwrap_or(defaults::LINUX)),
    };
    let version: LinuxVersion = linux.parse().map_err(|e| Failure::usage(format!("{option}: {e}")))?;
    let memory_mib = arguments.memory.unwrap_or(defaults::MEMORY_MIB);
    let seed = arguments.seed.unwrap_or(defaults::SEED);
    let names = policies.iter().map(|(name, _)| name);
    let check = target.as_ref().map(|target| check::Planned::of(models, target, names)).transpose()?;
    let runs = check.as_ref().and_then(|check| {
        Some(Runs::<M> {
            devices: &devices,
            policies: &check.policies,
            workload: &workload,
            image: check.image.as_ref().ok()?,
            target: check.target,
            utilization_percent: Some(utilization_percent),
            memory: Bytes::mib(memory_mib),
            reps: arguments.reps,
            seed,
            jobs: arguments.output.jobs,
            limits: arguments.limits.limits(),
        })
    });
    if target.is_none() && arguments.limits.are_given() {
        return Err(Failure::usage(format!("{GUEST_LIMITS}; expected --target kernel:... or --check")));
    }
    runs.as_ref().map_or(Ok(()), |runs| runs.check(models))?;
    let stop = on_signal(OnInterrupt::StopAndShow)?;

    let reps = arguments.reps as usize;
    let count = devices.len() * policies.len() * reps;
    let largest = || devices.iter().map(|(_, d)| models.memory_of_run(d)).max().unwrap_or_default();
    let jobs = arguments.output.jobs.map_or_else(|| pool::default_jobs(largest()), usize::from);
    let progress = Progress::new(count);
    let ran = pool::run_finished(jobs, count, |index| {
        let run = ModelRun::<M> {
            device: &devices[index / reps / policies.len()].1,
            policy: &policies[index / reps % policies.len()].1,
            workload: &workload,
            utilization_percent,
            memory: Bytes::mib(memory_mib),
            linux: version,
            rep: (index % reps) as u32,
            seed,
        };
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted);
        }
        progress.begin_ageing(index);
        let cell = models.run_model(&run, progress.report(index));
        progress.done(index);
        cell
    });
    progress.finish();
    let mut command = CommandText::new("compare");
    command.option("--workload", &arguments.workload);
    device_arguments.iter().for_each(|d| command.option("--device", d));
    policy_arguments.iter().for_each(|p| command.option("--policy", p));
    command.option("--utilization", utilization_percent);
    if arguments.linux.is_some() {
        command.option("--linux", linux);
    }
    if arguments.memory.is_some() || check.is_some() {
        command.option("--memory", memory_mib);
    }
    if let Some(target) = &arguments.check {
        command.option("--check", target);
    }
    arguments.judge.iter().for_each(|judge| command.option("--judge", judge));
    command.option("--reps", arguments.reps);
    command.option("--seed", seed);
    let host = Host {
        utilization_percent: Some(utilization_percent),
        linux: Some(Linux { version: linux.to_string(), stands_for: version.discard().kernels() }),
        memory: Some(Bytes::mib(memory_mib)),
        kernel: None,
        mount: None,
    };
    let mut comparison = finish(arguments, ran, host, command)?;
    let ran = (!comparison.partial).then(|| runs.map_or_else(Ran::default, |runs| runs.cells(models, &stop)));
    if let (Some(check), Some((mut cells, failure))) = (check, ran) {
        judge(arguments, &mut cells)?;
        (comparison.partial, comparison.ended_by) = (failure.is_some(), failure);
        comparison.add_check(check.found(cells)?);
    }
    Ok(comparison)
}

/// Runs one column in real time, one run after the other: parallel runs would measure each other.
fn on_directory<M: Models>(
    models: &M,
    arguments: &CompareArguments,
    path: &std::path::Path,
    on_signal: impl FnOnce() -> Result<Arc<AtomicBool>, Failure>,
) -> Result<Comparison, Failure> {
    let refused = [
        ("--policy", !arguments.policies.is_empty()),
        ("--device", !arguments.devices.is_empty()),
        ("--utilization", arguments.utilization.is_some()),
        ("--linux", arguments.linux.is_some()),
        ("--memory", arguments.memory.is_some()),
        (GUEST_LIMITS, arguments.limits.are_given()),
        ("--seed", arguments.seed.is_some()),
        ("--jobs", arguments.output.jobs.is_some_and(|j| j > 1)),
    ];
    if let Some((option, _)) = refused.into_iter().find(|(_, given)| *given) {
        let why = match option {
            "--policy" => {
                "a real directory has the TRIM policy that it is mounted with. To compare policies there, \
                 remount (mount -o remount,discard or nodiscard) and run again, or compare in the model"
            }
            "--seed" => {
                "what draws at random there has a fixed seed; PostMark's is set with `set seed` in the workload, \
                 and that of a fio job with randseed="
            }
            "--jobs" => {
                "runs on a real directory are sequential, since parallel runs would measure each other"
            }
            _ => {
                "a real directory comes with its device, utilization and host; these options are for the model"
            }
        };
        return Err(Failure::usage(format!("{option} does not go with --target dir:PATH: {why}")));
    }
    let workload = workload(models, arguments)?;
    let mount = models.directory(path, &workload, arguments.fill)?;
    let stop = on_signal()?;
    let progress = Progress::new(arguments.reps as usize);
    let ran = pool::run_finished(1, arguments.reps as usize, |rep| {
        let rep = rep as u32;
        let cell =
            models.run_directory(path, &mount.policy, &workload, rep, &stop, progress.report(rep as usize));
        progress.done(rep as usize);
        cell
    });
    progress.finish();
    let mut command = CommandText::new("compare");
    command.option("--workload", &arguments.workload);
    command.option("--target", &arguments.target);
    if arguments.fill {
        command.argument("--fill");
    }
    arguments.judge.iter().for_each(|judge| command.option("--judge", judge));
    command.option("--reps", arguments.reps);
    let host =
        Host { utilization_percent: None, linux: None, memory: None, kernel: None, mount: Some(mount) };
    finish(arguments, ran, host, command)
}

/// Reads the workload, which must be PostMark if its report is requested.
fn workload<M: Models>(models: &M, arguments: &CompareArguments) -> Result<M::Workload, Failure> {
    let workload = models.workload(&arguments.workload)?;
    if arguments.postmark && !models.is_postmark(&workload) {
        return Err(Failure::usage(format!(
            "--postmark: --workload {} is not PostMark and has no report of its own",
            arguments.workload
        )));
    }
    Ok(workload)
}

/// Resolves arguments and rejects duplicates, which would give the table two columns of one name.
pub fn named<T>(
    arguments: &[String],
    option: &str,
    resolve: impl Fn(&str) -> Result<(String, T), Failure>,
) -> Result<Vec<(String, T)>, Failure> {
    let mut resolved: Vec<(String, T)> = Vec::new();
    for argument in arguments {
        let (name, value) = resolve(argument)?;
        if resolved.iter().any(|(n, _)| *n == name) {
            return Err(Failure::usage(format!("{option} {argument}: '{name}' is given twice")));
        }
        resolved.push((name, value));
    }
    Ok(resolved)
}

/// Has the runs judged by what `--judge` says.
fn judge(arguments: &CompareArguments, cells: &mut [Cell]) -> Result<(), Failure> {
    let Some(measure) = arguments.judge else { return Ok(()) };
    let judged = cells.iter_mut().try_for_each(|cell| cell.judge_by(measure));
    judged.map_err(|e| Failure::usage(format!("--judge {measure}: {e}")))
}

/// The host, modelled or real.
struct Host {
    utilization_percent: Option<u8>,
    linux: Option<Linux>,
    memory: Option<Bytes>,
    kernel: Option<RealKernel>,
    mount: Option<Mounted>,
}

fn finish(
    arguments: &CompareArguments,
    (mut cells, ended_by): Ran,
    host: Host,
    command: CommandText,
) -> Result<Comparison, Failure> {
    if let (true, Some(failure)) = (cells.is_empty(), &ended_by) {
        return Err(failure.clone());
    }
    judge(arguments, &mut cells)?;
    compare_with_off(&mut cells);
    let summary = Summary::of(&cells);
    let rows = summary.rows();
    let (baseline, measure) = (summary.baseline.clone(), summary.measure);
    let verdict = verdict::of_summary(&summary).ok_or_else(|| Failure::run("no run gave a result"))?;
    Ok(Comparison {
        trimwise: trimwise::VERSION,
        seed: arguments.seed.unwrap_or(defaults::SEED),
        settings: Settings {
            workload: arguments.workload.clone(),
            target: arguments.target.clone(),
            utilization_percent: host.utilization_percent,
            linux: host.linux,
            host_memory_bytes: host.memory.map(|m| m.0),
            kernel: host.kernel,
            mount: host.mount,
            reps: arguments.reps,
            judge: measure.to_string(),
            baseline,
            command: command.into_text(),
        },
        partial: ended_by.is_some(),
        cells,
        summary: rows,
        verdict,
        check: None,
        ended_by,
    })
}

#[cfg(test)]
mod tests;
