//! `compare` on a real directory, in real time.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trimwise::compare::result::{Cell, CellId, Target, WorkloadFigures};
use trimwise::failure::{Failure, Mistake, Mistakes, key, set};
use trimwise::files::{FileError, Files as _};
use trimwise::policy::PolicyId;
use trimwise::units::{SimDuration, SimTime};
use trimwise::words;
use trimwise::workload::own::OwnFigures;
use trimwise::workload::postmark::{self, RunError};
use trimwise::workload::program::DIRECTORY;
use trimwise::workload::timed::{Timed, Timing};
use trimwise_linux::pool;
use trimwise_linux::program_end::{ProgramEnd, Said, expect_success};
use trimwise_linux::{DirectoryError, RealDirectory, block_on, command, mount_of};

use super::CompareRequest;
use super::workload::{Kind, Workload, bad_location, report_phase};
use super::{Comparison, Mounted, Settings, finish};
use crate::caller::{self, Caller, OnInterrupt, Report};
use crate::defaults::SEED;
use crate::programs::Programs;

/// Runs one column, one run after the other: parallel runs would disturb each other's measurements.
pub fn run(request: &CompareRequest, path: &Path, caller: &dyn Caller) -> Result<Comparison, Failure> {
    let refused = [
        ("policies", !request.policies.is_empty()),
        ("devices", !request.devices.is_empty()),
        ("utilization", request.utilization.is_some()),
        ("linux", request.linux.is_some()),
        ("memory", request.memory.is_some()),
        ("max_silence_s", request.limits.max_silence_s.is_some()),
        ("max_wall_s", request.limits.max_wall_s.is_some()),
        ("seed", request.seed.is_some()),
        ("jobs", request.jobs.is_some_and(|j| j > 1)),
    ];
    Mistakes::of(refused.into_iter().filter(|(_, given)| *given).map(|(field, _)| {
        let why = match field {
            "policies" => {
                "a real directory has the TRIM policy that it is mounted with. To compare policies there, \
                 remount (mount -o remount,discard or nodiscard) and run again, or compare in the model"
            }
            "seed" => {
                "random choices there have a fixed seed; change PostMark's with `set seed` in the workload, a \
                 fio job's with randseed="
            }
            "jobs" => {
                "runs on a real directory are sequential, since parallel runs would measure each other"
            }
            _ => {
                "a real directory comes with its device, utilization and host; these options are for the model"
            }
        };
        let why = words!["cannot be used with ", set("target", "dir:PATH"), ": ", why];
        Err(Mistake::on(field).that_is(why).fail())
    }))?;
    let workload = Workload::of(request)?;
    let mount = check(path, &workload, request.fill)?;
    // A policy that is not one of trimwise's; its name says what the mount does.
    let policy = PolicyId::Named(mount.policy.as_str().into());
    workload.tell_notes(caller);
    let stop = caller.stop(OnInterrupt::Stop)?;
    let progress = caller.progress(request.reps as usize, "runs");
    let ran = pool::run_finished(1, request.reps as usize, |rep| {
        let report = caller::report(&progress, rep);
        run_once(path, &policy, &workload, rep as u32, &stop, &report).inspect(|_| progress.done(rep))
    });
    progress.finish();
    let settings = Settings::of(request, |command| {
        if request.fill {
            command.argument("--fill");
        }
        command.option("--reps", request.reps);
    });
    let target = Target::Directory(path.display().to_string());
    finish(request, Settings { target, mount: Some(mount), ..settings }, None, ran)
}

/// Describes the directory. Rejects one that the workload cannot use. Unless `may_fill`, also rejects a workload that
/// takes all the space there.
fn check(directory: &Path, workload: &Workload, may_fill: bool) -> Result<Mounted, Failure> {
    // Opened read-only, so that a refusal comes before the first file is created.
    let target = Target::Directory(directory.display().to_string());
    let unfit =
        |e: DirectoryError| Mistake::of("target", &target).that_is(format!("cannot be used: {e}")).fail();
    let root = RealDirectory::open(directory, Arc::default()).map_err(unfit)?;
    let argument = &workload.argument;
    let fills = workload.kind.timed().is_some_and(|timed| timed.fills());
    if may_fill && !fills {
        let why = words![set("workload", argument), " fills no file system"];
        return Err(Mistake::on("fill").because(why).fail());
    }
    match &workload.kind {
        Kind::Postmark(run, _) => drop(root.plan(&run.config).map_err(|e| match &e {
            DirectoryError::Location(location) => bad_location(argument, run, location),
            _ => unfit(e),
        })?),
        Kind::Timed(timed) => {
            let space = root.check_timed(*timed).map_err(unfit)?;
            if fills && !may_fill {
                let why = format!(
                    "this fills the file system of {} ({} are free), so that nothing else can write there, and then \
                     removes its file. If nothing else uses that file system, pass ",
                    directory.display(),
                    space.free
                );
                return Err(Mistake::of("workload", argument).because(words![why, key("fill")]).fail());
            }
        }
        Kind::Program(program, _) => root.check_program(program).map_err(unfit)?,
        Kind::Trace(_) => return Err(workload.has_no_files()),
        Kind::Command(programs) => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let missing = |why: String| Mistake::of("workload", argument).because(why).fail();
            programs.found(false)?.check(&path).map_err(missing)?;
            let own = directory.join(DIRECTORY);
            if own.symlink_metadata().is_ok() {
                let what = format!(
                    "{}: already exists, but the program needs a new directory of that name",
                    own.display()
                );
                let expected = words![set("target", "dir:"), " with another directory"];
                return Err(Mistake::that(what).expected(expected).fail());
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

/// Runs the workload once and removes its files, even when told to stop.
fn run_once(
    directory: &Path,
    policy: &PolicyId,
    workload: &Workload,
    rep: u32,
    stop: &Arc<AtomicBool>,
    report: &Report,
) -> Result<Cell, Failure> {
    let root = RealDirectory::open(directory, Arc::clone(stop)).map_err(Failure::run)?;
    let held_by = mount_of(directory).map_or_else(|_| directory.to_path_buf(), |m| m.mount_point);
    let id = CellId {
        device: held_by.display().to_string(),
        policy: policy.clone(),
        target: Target::Directory(directory.display().to_string()),
        rep,
    };
    let waited = |_| Failure::run("the run on the directory stalled: it waits, but nothing is in flight");
    let file_failed = |e| match e {
        FileError::Interrupted => Failure::Interrupted,
        other => Failure::run(format!("--workload {}: {other}", workload.argument)),
    };
    // The removed file, and the actions of programs, are drawn at random, differently in each repetition.
    let seed = SEED ^ u64::from(rep) << 32;
    match &workload.kind {
        Kind::Postmark(run, _) => {
            let config = root.plan(&run.config).map_err(Failure::run)?;
            let mut progress = |p| report_phase(report, p);
            let outcome = block_on(postmark::run(&root, &config, &mut progress))
                .map_err(waited)?
                .map_err(|e| if e.is_interrupt() { interrupted(&e) } else { Failure::run(e) })?;
            Ok(Cell::of_postmark(id, &outcome, run.config.report))
        }
        Kind::Timed(timed) => {
            let begin = root.now();
            let (timing, end) =
                block_on(time_one(&root, *timed, seed)).map_err(waited)?.map_err(file_failed)?;
            Ok(Cell::of_timed(id, end.since(begin), *timed, timing, None))
        }
        Kind::Program(program, _) => {
            let (ends, duration) = root.run_program(program, seed, stop).map_err(file_failed)?;
            Ok(Cell::of_program(id, duration, ends))
        }
        Kind::Trace(_) => Err(workload.has_no_files()),
        Kind::Command(programs) => {
            let own = directory.join(DIRECTORY);
            let failed = |e: std::io::Error| Failure::run(format!("{}: {e}", own.display()));
            std::fs::create_dir(&own).map_err(failed)?;
            let duration = run_programs(&own, &workload.argument, &programs.found(false)?, stop);
            let removed = std::fs::remove_dir_all(&own).map_err(failed);
            let duration = duration?;
            removed.map(|()| Cell::new(id, duration, WorkloadFigures::Own(OwnFigures::default())))
        }
    }
}

/// Runs the setup, syncs, and returns the time of the measured program.
fn run_programs(
    own: &Path,
    argument: &str,
    programs: &Programs,
    stop: &AtomicBool,
) -> Result<SimDuration, Failure> {
    let run = |command: &[String]| {
        let end = command::run(own, command, stop).map_err(|e| {
            let program = command.first().map_or("", String::as_str);
            Failure::run(format!("--workload {argument}: {program}: {e}"))
        })?;
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted);
        }
        let program = ProgramEnd {
            code: end.status.code(),
            signal: end.status.signal(),
            output: Said(end.output),
            errors: Said(end.errors),
            killed_processes: 0,
        };
        expect_success(command, &program).map_err(Failure::run)?;
        Ok(end.duration)
    };
    if !programs.setup.is_empty() {
        run(&programs.setup)?;
        command::sync(own).map_err(|e| Failure::run(format!("{}: {e}", own.display())))?;
    }
    run(&programs.run)
}

/// An interrupted run that cleaned up is reported as interrupted. One that could not clean up reports what it left.
fn interrupted(error: &RunError) -> Failure {
    match error {
        RunError::File { leftovers: Some(_), .. } => Failure::run(error),
        _ => Failure::Interrupted,
    }
}

/// Prepares, measures and removes, even if the measurement failed. Returns its end, before the removal.
async fn time_one(root: &RealDirectory, timed: Timed, seed: u64) -> Result<(Timing, SimTime), FileError> {
    let mut prepared = timed.prepare(root, seed).await?;
    let timing = prepared.measure(root).await;
    let end = root.now();
    let removed = prepared.remove(root).await;
    let timing = timing?;
    removed.map(|()| (timing, end))
}
