//! `trimwise kernel run`: a program of this computer on a real kernel, in virtual time.

use std::io::{IsTerminal, Read, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::Serialize;
use trimwise::block::{Port, PortCounts};
use trimwise::compare::gauge::{Stale, device_figures};
use trimwise::compare::result::DeviceFigures;
use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_lab::guests::RealKernel;
use trimwise_lab::guests::{self, Bounds};
use trimwise_uml::cell::{KernelTarget, ageing, disk_over, new_disk, settling};
use trimwise_uml::disk::{Disk, Image, Mark};
use trimwise_uml::job::{Job, JobError, Outcome, ProgramEnd, SECOND_NODE, Said, Step};

use super::table;
use super::trace::TraceFile;
use crate::arguments::JsonArguments;
use crate::commands::kernel::arguments::KernelRunArguments;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::defaults;
use trimwise_study::input;
use trimwise_study::programs;

/// Most bytes of standard input for a program: they are held in memory.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// What `--json` writes; nothing in it depends on the speed of this computer.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The seed of the drive.
    pub seed: u64,
    /// The kernel.
    pub kernel: RealKernel,
    /// The device.
    pub device: String,
    /// Memory of the guest.
    pub memory_bytes: u64,
    /// Options added to the kernel's command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub boot: Vec<String>,
    /// How much of the file system was in use after ageing; `None` if it was new.
    pub aged_percent: Option<u8>,
    /// The image that was there instead of a new file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How it ended, and its output.
    pub program: ProgramEnd,
    /// Faults in the kernel's log; if there are any, the figures cannot be trusted.
    pub complaints: Vec<String>,
    /// The program's run, and then the unmount, which writes what was only in memory.
    pub phases: [Phase; 2],
    /// The second drive and what happened to it in these phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<SecondDisk>,
}

/// A second drive.
#[derive(Clone, Debug, Serialize)]
pub struct SecondDisk {
    /// What programs call it.
    pub node: &'static str,
    /// Its profile.
    pub device: String,
    /// As those of the first drive.
    pub phases: [Phase; 2],
}

/// A part of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// `program` or `unmount`.
    pub phase: &'static str,
    /// How long it took, in virtual time.
    pub duration_ns: u64,
    /// The kernel's requests to the drive.
    pub requests: PortCounts,
    /// What the drive did; stale space is not followed.
    pub device_stats: DeviceFigures,
}

/// Runs the command; prints the program's output, and returns what is left to print.
pub fn run(
    arguments: &KernelRunArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let target: KernelTarget = arguments.target.parse().map_err(Failure::usage)?;
    let destinations =
        Destinations::check_json(&JsonArguments { json: arguments.json.clone(), force: arguments.force })?;
    let to_trace = |option: &'static str, path: &Option<PathBuf>| {
        path.as_deref().map(|path| TraceFile::check(option, path, &destinations)).transpose()
    };
    let trace_to = to_trace("--trace", &arguments.trace)?;
    let disk_trace_to = to_trace("--disk-trace", &arguments.disk_trace)?;
    if let Some(log) = &arguments.kernel_log {
        destinations.check_another("--kernel-log", log)?;
    }
    let files = [
        ("--trace", arguments.trace.as_deref()),
        ("--disk-trace", arguments.disk_trace.as_deref()),
        ("--kernel-log", arguments.kernel_log.as_deref()),
    ];
    let files: Vec<_> = files.into_iter().filter_map(|(option, file)| Some((option, file?))).collect();
    for (at, one) in files.iter().enumerate() {
        files[..at].iter().try_for_each(|other| output::expect_two_files(*other, *one))?;
    }
    let command = programs::in_guest(&arguments.command)?;
    let device = input::profile(arguments.device.as_deref().unwrap_or(defaults::DEVICE), "device")?;
    let memory = Bytes::mib(arguments.memory.unwrap_or(defaults::MEMORY_MIB));
    let second = arguments.disk.as_deref().map(|name| input::profile(name, "disk")).transpose()?;
    let kernel_image = match arguments.image {
        None => {
            guests::check_size(&device, target.file_system)?;
            guests::image(&target)?
        }
        // Nothing is made, so the program that makes it need not be there.
        Some(_) => guests::kernel(&target)?,
    };
    let (image, store) = arguments
        .image
        .as_deref()
        .map(|path| {
            let capacity = Bytes::from_units(device.config.capacity_units());
            Image::read(path, target.file_system, capacity)
                .map_err(|what| Failure::usage(format!("--image {}: {what}", path.display())))
        })
        .transpose()?
        .unzip();
    let input = input()?;
    let stop = on_signal(OnInterrupt::Stop)?;

    let guest = guests::guest(&kernel_image, memory, &Bounds { limits: arguments.limits.limits(), stop })?;
    let kernel = RealKernel::of(&kernel_image, &target)?;
    let file_system = target.file_system;
    let mut steps = Vec::new();
    if image.is_none() {
        steps.push(Step::Mkfs { file_system, options: Vec::new() });
    }
    steps.push(Step::Mount { file_system, options: target.options.clone() });
    steps.extend(image.is_some().then(settling));
    steps.extend(arguments.aged.into_iter().flat_map(|percent| ageing(percent, arguments.seed)));
    steps.push(Step::TrustRandomness);
    let at = steps.len();
    steps.push(Step::Program { command: command.clone(), input });
    steps.push(Step::Unmount);
    let (seed, is_traced) = (arguments.seed, trace_to.is_some());
    let first = match store {
        None => new_disk(&device, seed, is_traced),
        Some(store) => disk_over(store, &device, seed, is_traced),
    };
    let mut disks = vec![first.map_err(guests::failure)?];
    // The two draw apart.
    let second_disk =
        second.as_ref().map(|profile| new_disk(profile, seed.wrapping_add(1), disk_trace_to.is_some()));
    disks.extend(second_disk.transpose().map_err(guests::failure)?);
    let progress = Progress::new(1);
    let begin = Instant::now();
    let boot = arguments.boot.clone().unwrap_or_default();
    let mut log = Vec::new();
    let report = guest.run_logged(&Job { steps }, &mut disks, &boot, &mut log);
    let wall_s = begin.elapsed().as_secs_f64();
    progress.finish();
    let logged = arguments.kernel_log.as_deref().map_or(Ok(()), |path| {
        destinations.write_result("--kernel-log", path, &String::from_utf8_lossy(&log).replace('\r', ""))
    });
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            return output::both(logged, Err(guests::job_failure(error))).map(|()| String::new());
        }
    };
    let no_report = || Failure::run("the guest did not report how the program ended");
    let Some(Outcome::Program(program)) = report.steps.into_iter().nth(at).map(|step| step.outcome) else {
        return Err(no_report());
    };
    if let Some(failure) = disks.iter().find_map(Disk::failure) {
        return Err(Failure::run(format!("a block request failed: {failure}")));
    }
    let mut parts = disks.into_iter().map(Disk::into_parts);
    let (port, _, trace, marks) = parts.next().ok_or_else(no_report)?;
    let on_first = phases(&port, &marks).ok_or_else(no_report)?;
    let before = marks.get(at).ok_or_else(no_report)?;
    let on_second = parts.next();
    let disk = match (&second, &on_second) {
        (Some(profile), Some((port, _, _, marks))) => Some(SecondDisk {
            node: SECOND_NODE,
            device: profile.name.clone(),
            phases: phases(port, marks).ok_or_else(no_report)?,
        }),
        _ => None,
    };
    let report = RunReport {
        trimwise: trimwise::VERSION,
        seed: arguments.seed,
        kernel,
        device: device.name.clone(),
        memory_bytes: memory.0,
        boot: boot.words().map(str::to_owned).collect(),
        aged_percent: arguments.aged,
        image,
        command,
        program,
        complaints: report.complaints,
        phases: on_first,
        disk,
    };
    // One destination that fails costs no other one its result.
    let traced = trace_to
        .map_or(Ok(()), |file| file.write(&destinations, &report, ("vda", &device), (&trace, before)));
    let disk_traced = match (disk_trace_to, &second, &on_second) {
        (Some(file), Some(profile), Some((_, _, trace, marks))) => {
            let before = marks.get(at).ok_or_else(no_report)?;
            file.write(&destinations, &report, ("vdb", profile), (trace, before))
        }
        _ => Ok(()),
    };
    let traced = output::both(traced, disk_traced);
    let printed = if destinations.json_to_stdout() {
        Ok(())
    } else {
        // A closed standard error is no failure.
        let _ = std::io::stderr().write_all(&report.program.errors.0);
        output::print_always(&report.program.output.0)
    };
    let delivered = destinations.deliver(&report, || table::run(&report, wall_s));
    let delivered = delivered.and_then(|text| output::print(&text));
    output::both(logged, output::both(traced, output::both(printed, delivered)))?;
    if !report.complaints.is_empty() {
        return Err(guests::job_failure(JobError::Complains { complaints: report.complaints }));
    }
    match (report.program.code, report.program.signal) {
        (Some(0), _) => Ok(String::new()),
        (Some(code), _) => Err(Failure::run(format!("{}: exit code {code}", report.command[0]))),
        (None, signal) => {
            Err(Failure::run(format!("{}: ended by signal {}", report.command[0], signal.unwrap_or(0))))
        }
    }
}

/// Returns what happened to a drive while the program ran, and then during the unmount: between its last three marks.
fn phases(port: &Port, marks: &[Mark]) -> Option<[Phase; 2]> {
    let [.., before, between, after] = marks else { return None };
    let wear = port.drive().ssd().wear();
    let phase = |phase, from: &Mark, to: &Mark| Phase {
        phase,
        duration_ns: to.at.since(from.at).as_nanos(),
        requests: to.counts - from.counts,
        device_stats: device_figures(&to.stats.since(&from.stats), wear, Stale::default(), Vec::new()),
    };
    Some([phase("program", before, between), phase("unmount", between, after)])
}

/// Reads the program's input: standard input, unless that is a terminal.
fn input() -> Result<Said, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(Said::default());
    }
    let mut bytes = Vec::new();
    let read = stdin.lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::usage(format!("standard input: {e}")))?;
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        return Err(Failure::usage(format!("standard input: larger than {}", Bytes(INPUT_BYTES_MAX))));
    }
    Ok(Said(bytes))
}
