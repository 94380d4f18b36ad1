//! Runs a program of this computer on a real kernel, in virtual time, in a file system on a modelled drive.
//!
//! However the run ends, the report has the output that the program printed until then.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use crate::guests::{self, Bounds, RealKernel};
use crate::requests::limits;
use serde::{Deserialize, Serialize};
use trimwise::block::{Port, PortCounts};
use trimwise::compare::gauge::{Stale, device_figures};
use trimwise::compare::result::DeviceFigures;
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::profile::Profile;
use trimwise::trace::{Header, TraceDevice};
use trimwise::units::{Bytes, Utilization};
use trimwise_linux::kernel_name::KernelNameError;
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::cell::{KernelTarget, ageing, disk_over, new_disk, settling};
use trimwise_uml::channel::{Says, Stream};
use trimwise_uml::disk::{Disk, Image, Mark, TraceEntry};
use trimwise_uml::images::{KernelImage, KernelName};
use trimwise_uml::job::{
    BootOptions, FileSystem, Job, JobError, JobReport, MOUNT_POINT, Outcome, ProgramEnd, SECOND_NODE, Said,
    Step,
};

use super::trace::DriveTrace;
use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::check::{at_most_one, within};
use trimwise_study::given::Given;
use trimwise_study::guest_limits::GuestLimits;
use trimwise_study::{as_text, defaults, input, programs};

/// Stands for the file system in the target of a run without one.
pub const NO_FILE_SYSTEM: &str = "none";

/// A request to run a program on a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRunRequest {
    /// `KERNEL:FS[:MOUNT_OPTIONS]`, or `KERNEL:none`.
    pub target: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The drive's profile, a name or a file; `None` means the default.
    pub device: Option<String>,
    /// How full the file system is after ageing, in percent; `None` means a new one.
    pub aged_percent: Option<Given<Utilization>>,
    /// An image of a file system to use a copy of, instead of a new file system. Cannot be combined with
    /// `aged_percent`.
    pub image: Option<PathBuf>,
    /// The profile of a second, empty drive, if there is to be one.
    pub disk: Option<String>,
    /// Memory of the guest in MiB; `None` means the default.
    pub memory_mib: Option<u64>,
    /// Seed of the random numbers of drives and ageing.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// Time limits of the guest.
    #[serde(flatten)]
    pub limits: GuestLimits,
    /// Words to add to the kernel's command line.
    #[serde(with = "as_text::option", default)]
    pub boot: Option<BootOptions>,
    /// Whether to record the requests to the first drive.
    #[serde(default)]
    pub is_traced: bool,
    /// Whether to record the requests to the second drive.
    #[serde(default)]
    pub is_disk_traced: bool,
}

/// The result, which does not depend on the speed of this computer. The order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    pub trimwise: &'static str,
    pub seed: u64,
    pub kernel: RealKernel,
    pub device: String,
    pub memory_bytes: u64,
    /// Words added to the kernel's command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub boot: Vec<String>,
    /// How full the file system was after ageing; `None` if it was new.
    pub aged_percent: Option<Utilization>,
    /// The image used instead of a new file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    pub command: Vec<String>,
    /// How the program ended, and its output. Neither exit code nor signal is set if the run broke off.
    pub program: ProgramEnd,
    /// Why the run failed; `None` if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether the program had unmounted the file system and left it unmounted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unmounted_by_program: bool,
    /// Faults in the kernel's log; if there are any, the figures cannot be trusted.
    pub complaints: Vec<String>,
    /// The program, and then the unmount, which writes what was still only in memory; empty if the run broke off.
    pub phases: Vec<Phase>,
    /// The second drive, and what happened to it in these phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<SecondDisk>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SecondDisk {
    /// The node under which programs know it.
    pub node: &'static str,
    /// Its profile.
    pub device: String,
    /// Like the phases of the first drive.
    pub phases: Vec<Phase>,
}

/// A phase of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// `program` or `unmount`.
    pub phase: &'static str,
    /// How long it took in virtual time.
    pub duration_ns: u64,
    /// The kernel's requests to the drive.
    pub requests: PortCounts,
    /// The drive's counters. Stale space is not tracked.
    pub device_stats: DeviceFigures,
}

/// The report of a run, and what is not part of the report.
#[derive(Debug)]
pub struct KernelRun {
    pub report: RunReport,
    /// Why the run counts as failed, if it does: it broke off, the kernel complained, or the program failed.
    pub failure: Option<Failure>,
    /// Real time in seconds.
    pub wall_s: f64,
    /// The requests to the first drive, if recorded.
    pub trace: Option<DriveTrace>,
    /// The requests to the second drive, if recorded.
    pub disk_trace: Option<DriveTrace>,
}

/// A kernel and what it mounts, as given in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RunTarget {
    kernel: KernelName,
    /// `None` leaves the drive to the program.
    file_system: Option<FileSystem>,
    options: String,
}

impl FromStr for RunTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kernel, rest) = text.split_once(':').unwrap_or((text, ""));
        if kernel.is_empty() || rest.is_empty() {
            let names = FileSystem::ALL.map(FileSystem::name).join(", ");
            return Err(format!(
                "'{text}' is not a kernel with a file system; expected KERNEL:FS[:MOUNT_OPTIONS] such as 6.12:ext4, where FS \
                 is one of {names}, or {NO_FILE_SYSTEM} to leave the drive to the program"
            ));
        }
        if rest.split(':').next() != Some(NO_FILE_SYSTEM) {
            let KernelTarget { kernel, file_system, options } = text.parse()?;
            return Ok(Self { kernel, file_system: Some(file_system), options });
        }
        if rest != NO_FILE_SYSTEM {
            return Err(format!(
                "'{text}': without a file system there are no mount options; expected {kernel}:{NO_FILE_SYSTEM}"
            ));
        }
        let kernel = kernel.parse().map_err(|e: KernelNameError| e.to_string())?;
        Ok(Self { kernel, file_system: None, options: String::new() })
    }
}

impl RunTarget {
    /// Finds the kernel and, if `makes` is set, the program that makes the file system.
    fn image(&self, device: &Profile, makes: bool) -> Result<KernelImage, Failure> {
        let Some(file_system) = self.file_system.filter(|_| makes) else {
            return guests::kernel(&self.kernel);
        };
        guests::check_size(device, file_system)?;
        let (kernel, options) = (self.kernel.clone(), self.options.clone());
        guests::image(&KernelTarget { kernel, file_system, options })
    }

    fn file_system_name(&self) -> &'static str {
        self.file_system.map_or(NO_FILE_SYSTEM, FileSystem::name)
    }
}

/// A request whose parts have all been found.
pub struct Plan<'a> {
    request: &'a KernelRunRequest,
    aged: Option<Utilization>,
    target: RunTarget,
    kernel: KernelImage,
    command: Vec<String>,
    device: Profile,
    second: Option<Profile>,
    image: Option<(Image, SparseStore)>,
}

/// Where the program's output and the kernel's log go while a program runs.
pub struct Watch<'a> {
    /// Called with each piece of the program's output as it comes; `None` leaves the output to the report. Progress is
    /// shown until the first piece.
    pub says: Option<&'a mut Says<'a>>,
    /// Receives the kernel's log, even if the run fails.
    pub log: &'a mut Vec<u8>,
}

impl<'a> Plan<'a> {
    /// Finds everything that the request names; the error says what is wrong or missing.
    pub fn of(request: &'a KernelRunRequest) -> Result<Self, Failure> {
        request.limits.check()?;
        let command = match request.command.is_empty() {
            true => Err(Mistake::that("no program").expected("one and its arguments").fail()),
            false => Ok(()),
        };
        let aged = request.aged_percent.as_ref().map(|given| given.get("aged_percent").copied()).transpose();
        let filled = [("aged_percent", request.aged_percent.is_some()), ("image", request.image.is_some())];
        Mistakes::of([
            aged.as_ref().map(drop).map_err(Clone::clone),
            within("memory_mib", request.memory_mib, &defaults::MEMORIES_MIB),
            at_most_one(&filled),
            command,
        ])?;
        let target = request.target.parse::<RunTarget>().map_err(|e| Mistake::that(e).fail())?;
        if target.file_system.is_none() && request.aged_percent.is_some() {
            let expected = format!("{}:FS and not {}", target.kernel, request.target);
            return Err(Mistake::on("aged_percent").that_is("needs a file system").expected(expected).fail());
        }
        let command = programs::in_guest(&request.command)?;
        let device = input::profile(request.device.as_deref().unwrap_or(defaults::DEVICE), "device")?;
        let second = request.disk.as_deref().map(|name| input::profile(name, "disk")).transpose()?;
        let kernel = target.image(&device, request.image.is_none())?;
        let read = |path: &PathBuf| {
            let capacity = Bytes::from_units(device.config.capacity_units());
            Image::read(path, target.file_system, capacity)
                .map_err(|why| Mistake::of("image", path.display()).because(why).fail())
        };
        let image = request.image.as_ref().map(read).transpose()?;
        Ok(Self { request, aged: aged?, target, kernel, command, device, second, image })
    }

    /// Runs the program. Fails only if nothing was run; a run or a program that fails is part of the result.
    pub fn run(self, input: Said, caller: &dyn Caller, watch: Watch<'_>) -> Result<KernelRun, Failure> {
        let Self { request, aged, target, kernel: kernel_image, command, device, second, image } = self;
        let (image, store) = image.unzip();
        let memory = Bytes::mib(request.memory_mib.unwrap_or(defaults::MEMORY_MIB));
        let stop = caller.stop(OnInterrupt::Stop)?;
        let bounds = Bounds { limits: limits(&request.limits), stop };
        let guest = guests::guest(&kernel_image, memory, &bounds)?;
        let kernel = guests::named_kernel(&kernel_image, target.file_system_name(), &target.options)?;
        let mut steps = Vec::new();
        if let Some(file_system) = target.file_system {
            if image.is_none() {
                steps.push(Step::Mkfs { file_system, options: Vec::new() });
            }
            steps.push(Step::Mount { file_system, options: target.options.clone() });
        }
        steps.extend(image.is_some().then(settling));
        steps.extend(aged.into_iter().flat_map(|utilization| ageing(utilization, request.seed)));
        steps.push(Step::TrustRandomness);
        let at = steps.len();
        steps.push(Step::Program { command: command.clone(), input });
        steps.push(Step::UnmountRest);
        let (seed, is_traced) = (request.seed, request.is_traced);
        let first = match store {
            None => new_disk(&device, seed, is_traced),
            Some(store) => disk_over(store, &device, seed, is_traced),
        };
        let mut disks = vec![first.map_err(guests::failure)?];
        // The two drives draw different random numbers.
        let second_disk =
            second.as_ref().map(|profile| new_disk(profile, seed.wrapping_add(1), request.is_disk_traced));
        disks.extend(second_disk.transpose().map_err(guests::failure)?);
        let progress = caller.progress(1, "runs");
        let begin = Instant::now();
        let boot = request.boot.clone().unwrap_or_default();
        let mut said = ProgramEnd::default();
        let Watch { log, mut says } = watch;
        let mut says = |stream, piece: &[u8]| {
            match stream {
                Stream::Output => &mut said.output,
                Stream::Errors => &mut said.errors,
            }
            .0
            .extend(piece);
            if let Some(says) = &mut says {
                progress.finish();
                says(stream, piece);
            }
        };
        let ran = guest.run_logged(&Job { steps }, &mut disks, &boot, log, &mut says);
        let wall_s = begin.elapsed().as_secs_f64();
        progress.finish();
        let mut report = RunReport {
            trimwise: trimwise::VERSION,
            seed: request.seed,
            device: device.name.clone(),
            memory_bytes: memory.0,
            boot: boot.words().map(str::to_owned).collect(),
            aged_percent: aged,
            image,
            command,
            program: said,
            failure: None,
            is_unmounted_by_program: false,
            complaints: Vec::new(),
            phases: Vec::new(),
            disk: None,
            kernel,
        };
        let drives = Drives { disks, at, device: &device, second: second.as_ref(), request };
        let figures = match ran.map_err(guests::job_failure) {
            Err(failure @ Failure::Usage(_)) => return Err(failure),
            ran => ran.and_then(|ran| {
                report.take(ran, at, target.file_system).and_then(|()| drives.figures(&report.kernel))
            }),
        };
        let (failure, [trace, disk_trace]) = match figures {
            Ok(Figures { phases, disk, traces }) => {
                (report.phases, report.disk) = (phases, disk);
                (report.failed(), traces)
            }
            Err(failure) => (Some(failure), [None, None]),
        };
        report.failure = failure.as_ref().map(Failure::to_string);
        Ok(KernelRun { report, failure, wall_s, trace, disk_trace })
    }
}

fn no_report() -> Failure {
    Failure::run("the guest did not report how the program ended")
}

impl RunReport {
    /// Fills in what the guest reported about the program, which was step number `at`, and about the unmount after it.
    fn take(&mut self, ran: JobReport, at: usize, file_system: Option<FileSystem>) -> Result<(), Failure> {
        self.complaints = ran.complaints;
        let mut outcomes = ran.steps.into_iter().skip(at).map(|step| step.outcome);
        let (Some(Outcome::Program(program)), Some(Outcome::Unmounted { was_mounted })) =
            (outcomes.next(), outcomes.next())
        else {
            return Err(no_report());
        };
        self.program = program;
        self.is_unmounted_by_program = file_system.is_some() && !was_mounted;
        Ok(())
    }

    /// Returns why a completed run counts as failed, if it does: the program failed, or the kernel complained.
    fn failed(&self) -> Option<Failure> {
        let of_program = self.program.failure().map(|how| format!("{}: {how}", self.command[0]));
        let of_kernel = (!self.complaints.is_empty())
            .then(|| guests::job_failure(JobError::Complains { complaints: self.complaints.clone() }));
        match (of_program.map(Failure::run), of_kernel) {
            (Some(program), Some(kernel)) => Some(program.and("\n", kernel)),
            (program, kernel) => program.or(kernel),
        }
    }

    /// Returns remarks on a completed run that could otherwise be misunderstood.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.is_unmounted_by_program {
            remarks.push(format!(
                "The program unmounted {MOUNT_POINT}; what that wrote counts for the program."
            ));
        }
        let drives = || std::iter::once(&self.phases).chain(self.disk.iter().map(|disk| &disk.phases));
        let requests = |phase: usize| drives().filter_map(move |phases| Some(phases.get(phase)?.requests));
        if requests(0).all(|of_program| of_program.writes + of_program.discards == 0) {
            let later = Bytes(requests(1).map(|of_unmount| of_unmount.written_bytes).sum());
            remarks.push(match later.0 {
                0 => "Nothing was written to the drive.".to_owned(),
                _ => format!("Nothing was written to the drive before the unmount, which wrote {later}."),
            });
        }
        remarks
    }
}

/// The drives of a completed run.
struct Drives<'a> {
    disks: Vec<Disk>,
    /// Number of the mark at the program's start.
    at: usize,
    device: &'a Profile,
    second: Option<&'a Profile>,
    request: &'a KernelRunRequest,
}

struct Figures {
    phases: Vec<Phase>,
    disk: Option<SecondDisk>,
    traces: [Option<DriveTrace>; 2],
}

impl Drives<'_> {
    fn figures(self, kernel: &RealKernel) -> Result<Figures, Failure> {
        let Self { disks, at, device, second, request } = self;
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
        let first_trace = trace(request.is_traced, "vda", device, entries, &marks)?;
        let (disk, disk_trace) = match (second, parts.next()) {
            (Some(profile), Some((port, _, entries, marks))) => {
                let phases = phases(&port, &marks).ok_or_else(no_report)?;
                let trace = trace(request.is_disk_traced, "vdb", profile, entries, &marks)?;
                (Some(SecondDisk { node: SECOND_NODE, device: profile.name.clone(), phases }), trace)
            }
            _ => (None, None),
        };
        Ok(Figures { phases: phases_of_first, disk, traces: [first_trace, disk_trace] })
    }
}

/// Returns what happened to a drive while the program ran, and then during the unmount: between its last three marks.
fn phases(port: &Port, marks: &[Mark]) -> Option<Vec<Phase>> {
    let [.., before, between, after] = marks else { return None };
    let wear = port.drive().ssd().wear();
    let phase = |phase, from: &Mark, to: &Mark| Phase {
        phase,
        duration_ns: to.at.since(from.at).as_nanos(),
        requests: to.counts - from.counts,
        device_stats: device_figures(&to.stats.since(&from.stats), wear, Stale::default(), Vec::new()),
    };
    Some(vec![phase("program", before, between), phase("unmount", between, after)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_may_leave_the_drive_to_the_program() {
        let parse = |text: &str| text.parse::<RunTarget>();
        let target = parse("6.12+ext4-trim:none").unwrap();
        assert_eq!((target.kernel.to_string().as_str(), target.file_system), ("6.12+ext4-trim", None));
        let target = parse("6.1:btrfs:compress=zstd:3").unwrap();
        assert_eq!((target.file_system, &*target.options), (Some(FileSystem::Btrfs), "compress=zstd:3"));
        for (text, words) in [
            ("6.12", "or none to leave the drive"),
            (":ext4", "or none to leave the drive"),
            ("6.12:none:discard", "expected 6.12:none"),
            ("6.12:ntfs", "'ntfs'"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
