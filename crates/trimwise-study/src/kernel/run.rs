//! A program of this computer on a real kernel, in virtual time, in a file system on a modelled drive.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use trimwise::block::{Port, PortCounts};
use trimwise::compare::gauge::{Stale, device_figures};
use trimwise::compare::result::DeviceFigures;
use trimwise::profile::Profile;
use trimwise::trace::{Header, TraceDevice};
use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_lab::guests::{self, Bounds, RealKernel};
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::cell::{KernelTarget, ageing, disk_over, new_disk, settling};
use trimwise_uml::disk::{Disk, Image, Mark, TraceEntry};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{BootOptions, Job, JobError, Outcome, ProgramEnd, SECOND_NODE, Said, Step};

use super::trace::DriveTrace;
use crate::caller::{Caller, OnInterrupt};
use crate::check::{at_most_one, within};
use crate::guest_limits::GuestLimits;
use crate::{as_text, defaults, input, programs};

/// How full an aged file system can be, in percent.
pub const AGED_PERCENT: RangeInclusive<u8> = 0..=100;

/// A program to run on a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRunRequest {
    /// `KERNEL:FS[:MOUNT_OPTIONS]`.
    pub target: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The drive's profile, a name or a file; `None`: the usual one.
    pub device: Option<String>,
    /// How full the file system is after ageing, in percent; `None`: it is new.
    pub aged_percent: Option<u8>,
    /// An image of a file system, a copy of which is used instead of a new one; not with `aged_percent`.
    pub image: Option<PathBuf>,
    /// The profile of a second, empty drive.
    pub disk: Option<String>,
    /// Memory of the guest, in MiB; `None`: the usual size.
    pub memory_mib: Option<u64>,
    /// Seed of everything that drives and ageing draw.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// When the guest is ended.
    #[serde(flatten)]
    pub limits: GuestLimits,
    /// Words that are added to the kernel's command line.
    #[serde(with = "as_text::option", default)]
    pub boot: Option<BootOptions>,
    /// Whether the requests to the first drive are recorded.
    #[serde(default)]
    pub is_traced: bool,
    /// Whether those to the second drive are.
    #[serde(default)]
    pub is_disk_traced: bool,
}

/// What happened; nothing in it depends on the speed of this computer. The order of the keys is part of the format.
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

/// A program that was run.
#[derive(Debug)]
pub struct KernelRun {
    /// What happened.
    pub report: RunReport,
    /// This computer's time, in seconds.
    pub wall_s: f64,
    /// The requests to the first drive, if asked for.
    pub trace: Option<DriveTrace>,
    /// Those to the second drive.
    pub disk_trace: Option<DriveTrace>,
}

impl RunReport {
    /// Why the run counts as failed, if it does: the kernel complained, or the program failed.
    pub fn failure(&self) -> Option<Failure> {
        if !self.complaints.is_empty() {
            return Some(guests::job_failure(JobError::Complains { complaints: self.complaints.clone() }));
        }
        match (self.program.code, self.program.signal) {
            (Some(0), _) => None,
            (Some(code), _) => Some(Failure::run(format!("{}: exit code {code}", self.command[0]))),
            (None, signal) => {
                let signal = signal.unwrap_or(0);
                Some(Failure::run(format!("{}: ended by signal {signal}", self.command[0])))
            }
        }
    }
}

/// A request of which everything was found.
pub struct Plan<'a> {
    request: &'a KernelRunRequest,
    target: KernelTarget,
    kernel: KernelImage,
    command: Vec<String>,
    device: Profile,
    second: Option<Profile>,
    image: Option<(Image, SparseStore)>,
}

impl<'a> Plan<'a> {
    /// Finds what the request names.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that names what is wrong or missing.
    pub fn of(request: &'a KernelRunRequest) -> Result<Self, Failure> {
        request.limits.check()?;
        within("--aged", request.aged_percent, &AGED_PERCENT)?;
        within("--memory", request.memory_mib, &defaults::MEMORIES_MIB)?;
        at_most_one(&[("--aged", request.aged_percent.is_some()), ("--image", request.image.is_some())])?;
        if request.command.is_empty() {
            return Err(Failure::usage("no program; expected one and its arguments"));
        }
        let target: KernelTarget = request.target.parse().map_err(Failure::usage)?;
        let command = programs::in_guest(&request.command)?;
        let device = input::profile(request.device.as_deref().unwrap_or(defaults::DEVICE), "device")?;
        let second = request.disk.as_deref().map(|name| input::profile(name, "disk")).transpose()?;
        let kernel = match request.image {
            None => {
                guests::check_size(&device, target.file_system)?;
                guests::image(&target)?
            }
            // Nothing is made, so the program that makes it need not be there.
            Some(_) => guests::kernel(&target)?,
        };
        let read = |path: &PathBuf| {
            let capacity = Bytes::from_units(device.config.capacity_units());
            Image::read(path, target.file_system, capacity)
                .map_err(|what| Failure::usage(format!("--image {}: {what}", path.display())))
        };
        let image = request.image.as_ref().map(read).transpose()?;
        Ok(Self { request, target, kernel, command, device, second, image })
    }

    /// Runs the program. `log` receives the kernel's log, even if the run fails.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if the guest fails. A program that fails is in the [report](RunReport::failure).
    pub fn run(self, input: Said, caller: &dyn Caller, log: &mut Vec<u8>) -> Result<KernelRun, Failure> {
        let Self { request, target, kernel: kernel_image, command, device, second, image } = self;
        let (image, store) = image.unzip();
        let memory = Bytes::mib(request.memory_mib.unwrap_or(defaults::MEMORY_MIB));
        let stop = caller.stop(OnInterrupt::Stop)?;
        let bounds = Bounds { limits: request.limits.limits(), stop };
        let guest = guests::guest(&kernel_image, memory, &bounds)?;
        let kernel = RealKernel::of(&kernel_image, &target)?;
        let file_system = target.file_system;
        let mut steps = Vec::new();
        if image.is_none() {
            steps.push(Step::Mkfs { file_system, options: Vec::new() });
        }
        steps.push(Step::Mount { file_system, options: target.options.clone() });
        steps.extend(image.is_some().then(settling));
        steps.extend(request.aged_percent.into_iter().flat_map(|percent| ageing(percent, request.seed)));
        steps.push(Step::TrustRandomness);
        let at = steps.len();
        steps.push(Step::Program { command: command.clone(), input });
        steps.push(Step::Unmount);
        let (seed, is_traced) = (request.seed, request.is_traced);
        let first = match store {
            None => new_disk(&device, seed, is_traced),
            Some(store) => disk_over(store, &device, seed, is_traced),
        };
        let mut disks = vec![first.map_err(guests::failure)?];
        // The two draw apart.
        let second_disk =
            second.as_ref().map(|profile| new_disk(profile, seed.wrapping_add(1), request.is_disk_traced));
        disks.extend(second_disk.transpose().map_err(guests::failure)?);
        let progress = caller.progress(1, "runs");
        let begin = Instant::now();
        let boot = request.boot.clone().unwrap_or_default();
        let report = guest.run_logged(&Job { steps }, &mut disks, &boot, log);
        let wall_s = begin.elapsed().as_secs_f64();
        progress.finish();
        let report = report.map_err(guests::job_failure)?;
        let no_report = || Failure::run("the guest did not report how the program ended");
        let Some(Outcome::Program(program)) = report.steps.into_iter().nth(at).map(|step| step.outcome)
        else {
            return Err(no_report());
        };
        if let Some(failure) = disks.iter().find_map(Disk::failure) {
            return Err(Failure::run(format!("a block request failed: {failure}")));
        }
        let mut parts = disks.into_iter().map(Disk::into_parts);
        let (port, _, entries, marks) = parts.next().ok_or_else(no_report)?;
        let header = |node: &str, device: &Profile| Header {
            made_by: format!("trimwise kernel run {}, {}", trimwise::VERSION, kernel.file_system),
            devices: vec![TraceDevice {
                name: node.to_owned(),
                capacity_bytes: Some(device.config.capacity_bytes),
                model: Some(device.name.clone()),
            }],
            file_system: None,
            kernel: Some(kernel.release.clone()),
            has_prelude: true,
        };
        let trace = |is_traced: bool, node, device: &Profile, entries: Vec<TraceEntry>, marks: &[Mark]| {
            let begin = is_traced.then(|| marks.get(at).cloned().ok_or_else(no_report)).transpose()?;
            Ok(begin.map(|begin| DriveTrace { header: header(node, device), entries, begin }))
        };
        let phases_of_first = phases(&port, &marks).ok_or_else(no_report)?;
        let first_trace = trace(is_traced, "vda", &device, entries, &marks)?;
        let (disk, disk_trace) = match (second, parts.next()) {
            (Some(profile), Some((port, _, entries, marks))) => {
                let phases = phases(&port, &marks).ok_or_else(no_report)?;
                let trace = trace(request.is_disk_traced, "vdb", &profile, entries, &marks)?;
                (Some(SecondDisk { node: SECOND_NODE, device: profile.name, phases }), trace)
            }
            _ => (None, None),
        };
        let report = RunReport {
            trimwise: trimwise::VERSION,
            seed: request.seed,
            device: device.name.clone(),
            memory_bytes: memory.0,
            boot: boot.words().map(str::to_owned).collect(),
            aged_percent: request.aged_percent,
            image,
            command,
            program,
            complaints: report.complaints,
            phases: phases_of_first,
            disk,
            kernel,
        };
        Ok(KernelRun { report, wall_s, trace: first_trace, disk_trace })
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
