//! The guest's side: this program as the init of a kernel in virtual time.
//!
//! The root is the host's file system, read-only, so that a job can use the host's programs and libraries. Writable
//! files are in a tmpfs at `/tmp`: the mount point of the file system under test, and the run's folder, mounted from
//! the host for the job. What there is to report goes through the [channel](crate::channel). Time comes from the
//! calendar, so `sleep` takes no real time.
//!
//! Whatever happens, the guest powers off at the end: if init returned, the kernel would panic.

mod daemon;
mod programs;
mod tagged;
mod week;

use std::ffi::CString;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MlockAllFlags, ProtFlags, mlockall};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::system::{RebootCommand, reboot};
use trimwise::compare::days::DaysFigures;
use trimwise::compare::result::{Cell, CellId, Target};
use trimwise::files::{FileError, Files as _};
use trimwise::policy::PolicyId;
use trimwise::units::{Bytes, UNIT_BYTES};
use trimwise::workload::ageing::{self, Population};
use trimwise::workload::days::{Days, Pacer, USUAL};
use trimwise::workload::postmark::{self, PostmarkConfig, ReportFormat};
use trimwise::workload::program::Program;
use trimwise::workload::scene::Scene;
use trimwise::workload::stage::Session;
use trimwise::workload::timed::Timed;

use crate::channel::{End, Teller, Told};
use crate::job::{
    FOLDER, FileExtent, FileSystem, INIT_BYTES, INIT_COMMAND, JOB_FILE, Job, MOUNT_POINT, MetadataExtent,
    Outcome, Part, Step, StepReport,
};
use daemon::Daemon;
use trimwise_linux::block_on;
use trimwise_linux::directory::RealDirectory;
use trimwise_linux::ioctl::{Fsmap, FsmapQuery, FstrimRange, credit_randomness, fitrim};
use trimwise_linux::kernel_target::TRIM_TARGET;
use trimwise_linux::mount::{Mount, parse_mountinfo};
use trimwise_linux::tracefs::TRACING;
use vm_memory::MmapRegion;

const DISK: &str = "/dev/vda";

const TRIM_NAME: &str = "trim";
/// Node of the first device-mapper target.
const TRIM_NODE: &str = "/dev/dm-0";
const DISK_NAMES: [&str; 2] = ["vda", "vdb"];
/// Identifier of every file system; a random one would change its hashes.
const IDENTIFIER: &str = "74726d77-6973-6520-6f6e-6520666f7220";
/// Time limit for an unmount while programs have open files; even the longest slices of a daemon take less.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes written at a time to fill a file: 1 MiB.
const FILLED_AT_ONCE: u64 = 1 << 20;
/// MAP_ANONYMOUS, which rustix adds by itself.
const ANONYMOUS: u32 = 0x20;
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Does the job in the run's folder and powers the guest off. Returns, with an error and without having done anything,
/// only if this is not process 1 of a guest.
pub fn run_as_init() -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::other("this command is only for the init of a guest that trimwise boots"));
    }
    if let Err(what) = prepare().and_then(|()| carry_out()) {
        println!("trimwise: {what}");
    }
    let _ = io::stdout().flush();
    Ok(reboot(RebootCommand::PowerOff)?)
}

fn prepare() -> Result<(), Failed> {
    let attach = |source: &str, target: &str, kind: &str, data: &str| {
        let data = CString::new(data)?;
        mount(source, target, kind, MountFlags::empty(), Some(data.as_c_str()))
            .map_err(|errno| Failed::from(format!("cannot mount {kind} on {target}: {errno}")))
    };
    // If the host maps only the user of this run, root's programs belong to another user, including setuid ones. A
    // program that is root already does not need setuid.
    mount_remount("/", MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID, "")
        .map_err(|errno| format!("cannot mount the root without setuid: {errno}"))?;
    attach("proc", "/proc", "proc", "")?;
    attach("sysfs", "/sys", "sysfs", "")?;
    attach("tmpfs", "/tmp", "tmpfs", "")?;
    for directory in [MOUNT_POINT, FOLDER, "/dev/shm", "/dev/pts"] {
        fs::create_dir(directory).map_err(|e| format!("{directory}: {e}"))?;
    }
    // Elsewhere, udev and the first programs of a boot make these.
    for (name, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        symlink(format!("/proc/self/fd{target}"), format!("/dev/{name}"))
            .map_err(|e| format!("/dev/{name}: {e}"))?;
    }
    attach("tmpfs", "/dev/shm", "tmpfs", "mode=1777")?;
    attach("devpts", "/dev/pts", "devpts", "gid=5,mode=620,ptmxmode=666")?;
    be_an_ssd()?;
    hold_memory()?;
    // The host resolves the path for the kernel's own process there. `unmount_disks` takes any later mount for one that
    // a program made.
    attach("run", FOLDER, "hostfs", "/proc/self/cwd")
}

/// Sets what a real drive reports itself: a virtio disk does not report that it is non-rotational, on which mballoc,
/// Btrfs and the write-back throttle depend.
fn be_an_ssd() -> Result<(), Failed> {
    for disk in DISK_NAMES {
        for (attribute, value) in [("rotational", "0"), ("wbt_lat_usec", "-1")] {
            let path = format!("/sys/block/{disk}/queue/{attribute}");
            match fs::write(&path, value) {
                // There is no such disk, or the kernel has no throttle.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                written => written.map_err(|e| format!("{path}: {e}"))?,
            }
        }
    }
    Ok(())
}

/// Makes this program take the same memory however it was built: its pages stay, and it takes the rest of its share.
/// Otherwise a build of another size leaves the page cache another size, which decides how much a workload reads again.
fn hold_memory() -> Result<(), Failed> {
    let hold = |more| {
        mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT | more)
            .map_err(|e| Failed::from(format!("cannot hold this program's memory: {e}")))
    };
    hold(MlockAllFlags::empty())?;
    // Drop pages of this program's file that were read ahead and that nobody maps.
    fs::write("/proc/sys/vm/drop_caches", "1").map_err(|e| format!("/proc/sys/vm/drop_caches: {e}"))?;
    let taken = fs::read_to_string("/proc/self/statm").map_err(|e| format!("/proc/self/statm: {e}"))?;
    let pages: u64 = taken.split(' ').nth(1).unwrap_or_default().parse()?;
    let left = INIT_BYTES.saturating_sub(pages * UNIT_BYTES);
    // Map all at once: to touch each page takes this computer longer than the rest of the boot. Map before holding
    // future memory, since the kernel would not populate that.
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let [flags, protection] = [flags.bits() | ANONYMOUS, protection.bits()].map(u32::cast_signed);
    let rest: MmapRegion = MmapRegion::build(None, (left + UNIT_BYTES) as usize, protection, flags)
        .map_err(|e| format!("cannot take this program's share of memory: {e}"))?;
    std::mem::forget(rest);
    hold(MlockAllFlags::FUTURE)
}

fn carry_out() -> Result<(), Failed> {
    let teller = Teller::open().map_err(|e| format!("cannot open the channel to the host: {e}"))?;
    let tell = |told| teller.tell(&told).map_err(|e| format!("cannot report to the host: {e}"));
    let text = fs::read(Path::new(FOLDER).join(JOB_FILE)).map_err(|e| format!("cannot read the job: {e}"))?;
    let job: Job = serde_json::from_slice(&text).map_err(|e| format!("the job is invalid: {e}"))?;
    let boot = Instant::now();
    let now = || boot.elapsed().as_nanos() as u64;
    let mut background = Background::default();
    mark()?;
    let mut end = End { unknown_words: unknown_words()?, marks: Vec::new() };
    let steps = if end.unknown_words.is_empty() { &*job.steps } else { &[] };
    for step in steps {
        let begin_ns = now();
        let outcome =
            perform(step, &mut background, &teller).unwrap_or_else(|what| Outcome::Failed(what.to_string()));
        let end_ns = now();
        let failed = matches!(outcome, Outcome::Failed(_));
        mark()?;
        tell(Told::Step(StepReport { begin_ns, end_ns, outcome }))?;
        if failed {
            break;
        }
    }
    end.marks =
        MARKS.lock().map_err(|e| e.to_string())?.iter().filter(|marks| !marks.is_empty()).cloned().collect();
    // Threads that mark at the same time may note their marks in a different order.
    end.marks.iter_mut().for_each(|marks| marks.sort_unstable());
    tell(Told::End(end))?;
    // A kernel that halts with a mounted file system goes on writing to a disk that is gone, possibly forever.
    background.stop()?;
    unmount_disks(true).map(drop)
}

/// Returns the words on the kernel's command line that the kernel did not know; init receives them as arguments and
/// variables. Words added by the user come after [`INIT_COMMAND`].
fn unknown_words() -> Result<Vec<String>, Failed> {
    let line = fs::read_to_string("/proc/cmdline").map_err(|e| format!("/proc/cmdline: {e}"))?;
    let added = line.split_whitespace().skip_while(|word| *word != INIT_COMMAND).skip(1);
    let is_unknown = |word: &&str| match word.split_once('=') {
        Some((name, value)) => std::env::var_os(name).is_some_and(|found| found == value),
        None => std::env::args_os().any(|argument| argument == **word),
    };
    Ok(added.filter(is_unknown).map(str::to_owned).collect())
}

/// Numbers of each disk's marks so far.
static MARKS: Mutex<[Vec<usize>; DISK_NAMES.len()]> = Mutex::new([const { Vec::new() }; DISK_NAMES.len()]);

/// Tells the host that a step is over: reading the serial number of a disk reaches it at exactly this moment. The
/// response ends with the mark's number; that of the first disk is returned.
fn mark() -> Result<usize, Failed> {
    let first = mark_disk(0)?;
    for other in 1..DISK_NAMES.len() {
        if has_disk(other) {
            mark_disk(other)?;
        }
    }
    Ok(first)
}

fn mark_disk(disk: usize) -> Result<usize, Failed> {
    let name = DISK_NAMES[disk];
    let wrong = |e: &dyn std::fmt::Display| format!("cannot mark the disk {name}: {e}");
    let serial = fs::read_to_string(format!("/sys/block/{name}/serial")).map_err(|e| wrong(&e))?;
    let number = serial.rsplit('-').next().and_then(|number| number.trim().parse().ok());
    let number = number.ok_or_else(|| wrong(&format!("its serial number is '{serial}'")))?;
    MARKS.lock().map_err(|e| wrong(&e))?[disk].push(number);
    Ok(number)
}

fn has_disk(disk: usize) -> bool {
    Path::new("/sys/block").join(DISK_NAMES[disk]).exists()
}

#[derive(Default)]
struct Background {
    trims: Option<Trims>,
    daemon: Option<Daemon>,
    writes_zeros: bool,
    calls_one_by_one: bool,
}

impl Background {
    fn workload_root(&self) -> Result<RealDirectory, Failed> {
        let root = root()?;
        let root = if self.calls_one_by_one { root } else { root.in_batches() };
        Ok(if self.writes_zeros { root.with_zeros() } else { root })
    }

    fn stop(&mut self) -> Result<(), Failed> {
        self.daemon.take().map_or(Ok(()), |daemon| daemon.stop().map(drop))?;
        self.trims.take().map_or(Ok(()), Trims::stop)
    }
}

fn perform(step: &Step, background: &mut Background, teller: &Teller) -> Result<Outcome, Failed> {
    match step {
        Step::Mkfs { file_system, options } => return make(*file_system, options).map(Outcome::Text),
        Step::Mount { file_system, options } => attach(*file_system, options)?,
        Step::Remount { options } => {
            let (flags, data) = mount_options(options)?;
            mount_remount(MOUNT_POINT, flags, data.as_c_str())?;
        }
        Step::Unmount => {
            background.trims.take().map_or(Ok(()), Trims::stop)?;
            if !unmount_disks(false)? {
                return Err(format!("nothing is mounted on {MOUNT_POINT}: a program has unmounted it").into());
            }
        }
        Step::UnmountRest => return Ok(Outcome::Unmounted { was_mounted: unmount_disks(true)? }),
        Step::Age { utilization, seed } => {
            block_on(ageing::age(&background.workload_root()?, *utilization, *seed))??;
        }
        Step::TurnOver { utilization, bytes, seed } => {
            let (root, mut files) = (background.workload_root()?, population(*seed)?);
            block_on(files.turn_over(&root, *utilization, Bytes(*bytes)))??;
        }
        Step::Adjust { utilization, seed } => {
            let (root, mut files) = (background.workload_root()?, population(*seed)?);
            block_on(files.adjust_to(&root, *utilization))??;
        }
        Step::WriteZeros => background.writes_zeros = true,
        Step::CallOneByOne => background.calls_one_by_one = true,
        Step::Postmark { config, rep } => return run_postmark(&background.workload_root()?, config, *rep),
        Step::Scene { name, seed } => {
            let lasted = block_on(name.parse::<Scene>()?.run(&root()?, *seed))??;
            return Ok(Outcome::Lasted { duration_ns: lasted.as_nanos() });
        }
        Step::Timed { spec, part, rep, seed } => {
            return run_timed(&background.workload_root()?, spec, *part, (*rep, *seed));
        }
        Step::Workload { argument, text, scale, rep, seed } => {
            let outcome =
                run_program(background.workload_root()?, &program_of(argument, text, *scale)?, *rep, *seed);
            if background.daemon.is_none() {
                programs::kill_all()?;
            }
            return outcome;
        }
        Step::OverDays { days, shape, seed, work } => {
            let days = Days::new(*days, shape.parse()?)?;
            return run_over_days(&days, *seed, work, background);
        }
        Step::Scatter { file, extents, extent_bytes, keeps_gaps } => {
            scatter(file, *extents, *extent_bytes, *keeps_gaps)?;
        }
        Step::Remove { file } => return Ok(remove(file)?),
        Step::Extents { file } => return extents(file).map(Outcome::Extents),
        Step::Append { file, bytes } => append(file, *bytes)?,
        Step::Fitrim { minlen_bytes } => {
            return Ok(Outcome::Trimmed { answer_bytes: trim_all(*minlen_bytes)? });
        }
        Step::TrimEvery { first_ns, every_ns, minlen_bytes } => {
            let [first, every] = [*first_ns, *every_ns].map(Duration::from_nanos);
            background.trims = Some(Trims::start(first, every, *minlen_bytes)?);
        }
        Step::PrepareWeek { week } => week::prepare(week)?,
        Step::Week { week } => return week::run(week).map(Outcome::Week),
        Step::Tagged { plan } => return tagged::run(plan).map(Outcome::Logged),
        Step::Examine { file_system, options } => {
            return Ok(Outcome::Examined(tagged::examine(*file_system, options)));
        }
        Step::Daemon { config } => {
            if background.daemon.is_some() {
                return Err("a daemon is already running".into());
            }
            background.daemon = Some(Daemon::start(config)?);
        }
        Step::StopDaemon | Step::KillDaemon => {
            let daemon = background.daemon.take().ok_or("no daemon is running")?;
            let end = if *step == Step::StopDaemon { Daemon::stop } else { Daemon::kill };
            return end(daemon).map(Outcome::Text);
        }
        Step::Sync => {
            rustix::fs::syncfs(open_root()?)?;
        }
        Step::Sleep { ns } => {
            std::thread::sleep(Duration::from_nanos(*ns));
        }
        Step::Record { tracepoints } => record(tracepoints)?,
        Step::Read { path } => return read_pattern(Path::new(path)).map(Outcome::Text),
        Step::Metadata => return metadata().map(Outcome::Metadata),
        Step::FreeSpace => return free_space().map(Outcome::Free),
        Step::TrustRandomness => {
            let source = fs::File::open("/dev/random").map_err(|e| format!("/dev/random: {e}"))?;
            credit_randomness(source.as_fd())?;
        }
        Step::Program { command, input } => {
            // The daemon may be among the processes left running.
            let may_stay = background.daemon.is_some();
            return programs::run_in_mount(command, &input.0, may_stay, teller).map(Outcome::Program);
        }
    }
    Ok(Outcome::Done)
}

fn trim_all(minlen_bytes: u64) -> Result<u64, Failed> {
    let mut range = FstrimRange { start: 0, len: u64::MAX, minlen: minlen_bytes };
    fitrim(open_root()?.as_fd(), &mut range)?;
    Ok(range.len)
}

struct Trims {
    stop: mpsc::Sender<()>,
    /// Number of trims so far, and the duration of the longest in nanoseconds.
    done: Arc<Mutex<(u64, u64)>>,
    thread: std::thread::JoinHandle<Result<(), Failed>>,
}

impl Trims {
    fn start(first: Duration, every: Duration, minlen_bytes: u64) -> Result<Self, Failed> {
        let (stop, stopped) = mpsc::channel();
        let done = Arc::<Mutex<(u64, u64)>>::default();
        let noted = Arc::clone(&done);
        let run = move || {
            let mut next = Instant::now() + first;
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(next - Instant::now()) {
                let begin = Instant::now();
                trim_all(minlen_bytes)?;
                let took_ns = begin.elapsed().as_nanos() as u64;
                if let Ok(mut done) = noted.lock() {
                    *done = (done.0 + 1, done.1.max(took_ns));
                }
                // A trim that takes longer than the interval is followed by the next at once, as with a timer.
                next = (begin + every).max(Instant::now());
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().spawn(run)?;
        Ok(Self { stop, done, thread })
    }

    fn done(&self) -> (u64, u64) {
        self.done.lock().map_or((0, 0), |done| *done)
    }

    fn stop(self) -> Result<(), Failed> {
        // If the receiver is gone, the thread has ended, and reports why.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_else(|_| Err("the thread of FITRIM has died".into()))
    }
}

/// Makes a file system that is identical each time. No blocks of an ext4 are reserved for root, which fills it.
fn make(file_system: FileSystem, options: &[String]) -> Result<String, Failed> {
    let seeded = format!("hash_seed={IDENTIFIER},lazy_itable_init=0,lazy_journal_init=0,nodiscard");
    let fixed: Vec<String> = match file_system {
        FileSystem::Ext4 => {
            ["-q", "-F", "-m", "0", "-U", IDENTIFIER, "-E", &seeded].map(str::to_owned).into()
        }
        FileSystem::Xfs => ["-q", "-f", "-K", "-m", &format!("uuid={IDENTIFIER}")].map(str::to_owned).into(),
        FileSystem::Btrfs => ["-q", "-f", "-K", "-U", IDENTIFIER].map(str::to_owned).into(),
        FileSystem::F2fs => ["-q", "-f", "-t", "0"].map(str::to_owned).into(),
    };
    let mut command = vec![file_system.mkfs().0.to_owned()];
    command.extend(fixed);
    command.extend(options.iter().cloned());
    command.push(DISK.to_owned());
    programs::run_tool(&command)
}

fn attach(file_system: FileSystem, options: &str) -> Result<(), Failed> {
    let (flags, data) = mount_options(options)?;
    let of_target = options.split(',').find_map(|option| match option.strip_prefix(TRIM_TARGET)? {
        "" => Some(""),
        more => more.strip_prefix('='),
    });
    let node = of_target.map_or(Ok(DISK), put_trim_target)?;
    mount(node, MOUNT_POINT, file_system.name(), flags, Some(data.as_c_str())).map_err(|errno| {
        match remove_trim_target() {
            Ok(()) => errno.to_string().into(),
            Err(left) => format!("{errno}; the target below it is left: {left}").into(),
        }
    })
}

/// Puts `kernel/dm-trim` over the disk. Returns the node of the target.
fn put_trim_target(options: &str) -> Result<&'static str, Failed> {
    let sectors = fs::read_to_string("/sys/class/block/vda/size")?;
    let options: Vec<&str> = options.split('+').filter(|option| !option.is_empty()).collect();
    let table = format!("0 {} trim {DISK} 0 {} {}", sectors.trim(), options.len(), options.join(" "));
    // Do not wait for udev, which is missing: the kernel makes the node.
    let create = ["dmsetup", "create", TRIM_NAME, "--noudevsync", "--noudevrules", "--table", &table];
    let created = programs::run_tool(&create.map(str::to_owned));
    created.map(|_| TRIM_NODE).map_err(|failed| {
        let known = programs::run_tool(&["dmsetup", "targets"].map(str::to_owned)).unwrap_or_default();
        if known.lines().any(|line| line.starts_with("trim ")) {
            failed
        } else {
            "no target 'trim' in this kernel; expected one that was built --with kernel/dm-trim".into()
        }
    })
}

/// Removes the target, if there is one, so that nothing is pending for a disk that is not mounted: the host may change
/// its content.
fn remove_trim_target() -> Result<(), Failed> {
    if fs::read_to_string("/sys/class/block/dm-0/dm/name").is_ok_and(|name| name.trim() == TRIM_NAME) {
        let remove = ["dmsetup", "remove", "--retry", "--noudevsync", "--noudevrules", TRIM_NAME];
        programs::run_tool(&remove.map(str::to_owned))?;
    }
    Ok(())
}

/// Unmounts all mounts of disks, the latest first: a kernel that halts would go on writing to them. With `frees_them`,
/// also unmounts other mounts that programs made: such a mount, of a tmpfs or an overlay, may hide a disk's mount or
/// keep files open in it. Returns true if a disk was mounted on [`MOUNT_POINT`].
fn unmount_disks(frees_them: bool) -> Result<bool, Failed> {
    let mounts = fs::read("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    let mounts = parse_mountinfo(&mounts);
    let last_of_boot = mounts.iter().position(|mount| mount.mount_point == Path::new(FOLDER));
    let later = &mounts[last_of_boot.map_or(0, |last| last + 1)..];
    let mut was_mounted = false;
    for Mount { mount_point, device, fs_type, .. } in later.iter().rev() {
        // The root, a hostfs, has no device although it names one.
        if device.starts_with("/dev/") && fs_type != "hostfs" {
            detach(mount_point)?;
            was_mounted |= mount_point == Path::new(MOUNT_POINT);
        } else if frees_them && last_of_boot.is_some() {
            let _ = unmount(mount_point, UnmountFlags::DETACH);
        }
    }
    Ok(was_mounted)
}

/// Unmounts a file system as soon as it is not in use, and removes the target below it.
fn detach(mount_point: impl AsRef<Path>) -> Result<(), Failed> {
    let mount_point = mount_point.as_ref();
    let begin = Instant::now();
    while let Err(errno) = unmount(mount_point, UnmountFlags::empty()) {
        if errno != Errno::BUSY || begin.elapsed() >= UNMOUNT_PATIENCE {
            return Err(format!("cannot unmount {}: {errno}", mount_point.display()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if mount_point == Path::new(MOUNT_POINT) { remove_trim_target() } else { Ok(()) }
}

/// Parses options as mount(8) does: flags of the call, and the file system's own options.
fn mount_options(options: &str) -> Result<(MountFlags, CString), Failed> {
    let mut flags = MountFlags::empty();
    let mut own = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "lazytime" => flags |= MountFlags::LAZYTIME,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "ro" => flags |= MountFlags::RDONLY,
            "defaults" | "rw" => {}
            // Options for user space, such as TRIM_TARGET.
            other if other.starts_with("x-") => {}
            other => own.push(other),
        }
    }
    Ok((flags, CString::new(own.join(","))?))
}

fn root() -> Result<RealDirectory, Failed> {
    Ok(RealDirectory::open(Path::new(MOUNT_POINT), Arc::new(AtomicBool::new(false)))?)
}

fn open_root() -> io::Result<fs::File> {
    fs::File::open(MOUNT_POINT)
}

fn cell_id(rep: u32) -> CellId {
    // Only the host knows the device, policy and kernel.
    CellId { device: String::new(), policy: PolicyId::OFF, target: Target::Model, rep }
}

fn population(seed: u64) -> Result<Population, Failed> {
    let entries = match fs::read_dir(in_mount(ageing::DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(block_on(Population::new(&root()?, seed))??);
        }
        entries => entries?,
    };
    let number = |entry: io::Result<fs::DirEntry>| {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        number.ok_or_else(|| {
            Failed::from(format!("{}/{name:?} is not a file that ageing made", ageing::DIRECTORY))
        })
    };
    Ok(Population::of_existing(entries.map(number).collect::<Result<_, _>>()?, seed))
}

/// Returns the only run of a configuration, with its locations below the root, and the format of its report.
fn postmark_of(root: &RealDirectory, text: &str) -> Result<(PostmarkConfig, ReportFormat), Failed> {
    let parsed = PostmarkConfig::parse(text, "job")?;
    let run = parsed.runs.first().ok_or("the configuration runs nothing")?;
    Ok((root.plan(&run.config)?, run.config.report))
}

fn run_postmark(root: &RealDirectory, text: &str, rep: u32) -> Result<Outcome, Failed> {
    let (config, format) = postmark_of(root, text)?;
    let outcome = block_on(postmark::run(root, &config, &mut |_| ()))??;
    let mut cell = Cell::of_postmark(cell_id(rep), &outcome, format);
    let report = std::mem::take(&mut cell.postmark_report);
    Ok(Outcome::Cell(Box::new(cell), report))
}

fn run_timed(
    root: &RealDirectory,
    spec: &str,
    part: Part,
    (rep, seed): (u32, u64),
) -> Result<Outcome, Failed> {
    let timed: Timed = spec.parse()?;
    let run = async {
        let begin = root.now();
        let mut prepared = match part {
            Part::Measure => timed.resume(root, seed).await?,
            Part::Whole | Part::Prepare => timed.prepare(root, seed).await?,
        };
        if part == Part::Prepare {
            return Ok(None);
        }
        let timing = prepared.measure(root).await?;
        let end = root.now();
        if part == Part::Whole {
            prepared.remove(root).await?;
        }
        Ok::<_, FileError>(Some((timing, end.since(begin))))
    };
    let Some((timing, duration)) = block_on(run)?? else { return Ok(Outcome::Done) };
    Ok(Outcome::Cell(Box::new(Cell::of_timed(cell_id(rep), duration, timed, timing, None)), String::new()))
}

fn program_of(argument: &str, text: &str, scale: f64) -> Result<Program, Failed> {
    let program = Program::parse(argument, text).map_err(|e| e.to_string())?;
    Ok(if scale < 1.0 { program.scaled(scale) } else { program })
}

fn run_program(root: RealDirectory, program: &Program, rep: u32, seed: u64) -> Result<Outcome, Failed> {
    let (root, session) = (root.uninterrupted(), Session::new(program.clone(), seed));
    block_on(session.prepare(&root))??;
    mark()?;
    let begin = root.now();
    let ends = root.run_session(&session, &Arc::default())?;
    let duration = root.now().since(begin);
    mark()?;
    block_on(session.remove(&root))??;
    Ok(Outcome::Cell(Box::new(Cell::of_program(cell_id(rep), duration, ends)), String::new()))
}

/// Runs `work` spread over days. Ends with the last day, or with the work if that takes longer.
fn run_over_days(days: &Days, seed: u64, work: &Step, background: &Background) -> Result<Outcome, Failed> {
    let root = background.workload_root()?.uninterrupted();
    let (begin, cell, report, paced) = match work {
        Step::Postmark { config, rep } => {
            let (config, format) = postmark_of(&root, config)?;
            mark()?;
            let begin = root.now();
            let pacer = Pacer::new(&days.of(USUAL), postmark::operations(&config), 1, begin, seed);
            let outcome = block_on(postmark::run_paced(&root, &config, Some(&pacer), &mut |_| ()))??;
            let mut cell = Cell::of_postmark(cell_id(*rep), &outcome, format);
            let report = std::mem::take(&mut cell.postmark_report);
            (begin, cell, report, pacer.paced())
        }
        Step::Workload { argument, text, scale, rep, seed } => {
            let program = program_of(argument, text, *scale)?;
            let session = Session::new(program, *seed);
            block_on(session.prepare(&root))??;
            mark()?;
            let begin = root.now();
            let session = session.spread(days, begin);
            let ends = root.run_session(&session, &Arc::default())?;
            let cell = Cell::of_program(cell_id(*rep), root.now().since(begin), ends);
            (begin, cell, String::new(), session.paced().unwrap_or_default())
        }
        other => return Err(format!("{} cannot be spread over days", other.name()).into()),
    };
    let left = days.length().as_nanos().saturating_sub(root.now().since(begin).as_nanos());
    std::thread::sleep(Duration::from_nanos(left));
    let mut figures = DaysFigures::of(paced, root.now().since(begin));
    if let Some(trims) = &background.trims {
        (figures.sweeps, figures.fitrim_max_ns) = trims.done();
    }
    Ok(Outcome::Cell(Box::new(cell.over_days(figures, Some(paced.waiting))), report))
}

fn in_mount(file: &str) -> PathBuf {
    Path::new(MOUNT_POINT).join(file.trim_start_matches('/'))
}

/// Makes a file in which every other piece is a hole: writes the whole file, so that its pieces are adjacent, and then
/// punches holes. With `keeps_gaps`, makes two files by writing them in turn.
fn scatter(file: &str, extents: u64, extent_bytes: u64, keeps_gaps: bool) -> io::Result<()> {
    let piece = vec![0x5a; extent_bytes as usize];
    let mut scattered = fs::File::create(in_mount(file))?;
    if keeps_gaps {
        let mut gaps = fs::File::create(in_mount(&format!("{file}.gaps")))?;
        // Preallocation for a growing file (ext4 and XFS: megabytes) would keep each file's pieces together. An
        // allocation by fallocate has exactly its length. F2FS allocates when data are written, in the order of the
        // syncs.
        for i in 0..extents {
            for file in [&scattered, &gaps] {
                rustix::fs::fallocate(file, FallocateFlags::empty(), i * extent_bytes, extent_bytes)?;
            }
        }
        for _ in 0..extents {
            scattered.write_all(&piece)?;
            scattered.sync_data()?;
            gaps.write_all(&piece)?;
            gaps.sync_data()?;
        }
        gaps.sync_all()?;
        return scattered.sync_all();
    }
    rustix::fs::fallocate(&scattered, FallocateFlags::empty(), 0, 2 * extents * extent_bytes)?;
    for _ in 0..2 * extents {
        scattered.write_all(&piece)?;
    }
    scattered.sync_all()?;
    for i in 0..extents {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&scattered, hole, (2 * i + 1) * extent_bytes, extent_bytes)?;
    }
    scattered.sync_all()
}

fn remove(file: &str) -> io::Result<Outcome> {
    let root = open_root()?;
    let begin = Instant::now();
    fs::remove_file(in_mount(file))?;
    let unlink_ns = begin.elapsed().as_nanos() as u64;
    root.sync_all()?;
    Ok(Outcome::Removed { unlink_ns, fsync_ns: begin.elapsed().as_nanos() as u64 - unlink_ns })
}

fn extents(file: &str) -> Result<Vec<FileExtent>, Failed> {
    let file = fs::File::open(in_mount(file))?;
    let mut found: Vec<FileExtent> = Vec::new();
    for extent in trimwise_linux::fiemap::extents(&file)? {
        match found.last_mut() {
            Some(last) if last.offset_bytes + last.length_bytes == extent.physical => {
                last.length_bytes += extent.bytes;
            }
            _ => found.push(FileExtent { offset_bytes: extent.physical, length_bytes: extent.bytes }),
        }
    }
    Ok(found)
}

fn append(file: &str, bytes: u64) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = fs::File::from(rustix::fs::open(in_mount(file), flags, Mode::from_raw_mode(0o644))?);
    fill(&mut file, bytes, 0x5a)?;
    file.sync_all()
}

/// Writes `bytes` bytes of one value, in pieces: the guest's memory can be smaller than the file.
fn fill(file: &mut fs::File, bytes: u64, value: u8) -> io::Result<()> {
    let piece = vec![value; bytes.min(FILLED_AT_ONCE) as usize];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(FILLED_AT_ONCE);
        file.write_all(&piece[..length as usize])?;
        left -= length;
    }
    Ok(())
}

fn record(tracepoints: &[String]) -> Result<(), Failed> {
    let tracing = Path::new(TRACING);
    mount("tracefs", tracing, "tracefs", MountFlags::empty(), None)
        .map_err(|errno| format!("this kernel has no tracepoints (tracefs: {errno})"))?;
    let write = |file: &Path, text: &str| {
        fs::write(file, text).map_err(|e| Failed::from(format!("{}: {e}", file.display())))
    };
    // The default clock has ticks of 10 ms here.
    write(&tracing.join("trace_clock"), "mono")?;
    for tracepoint in tracepoints {
        let enable = tracing.join("events").join(tracepoint).join("enable");
        if !enable.exists() {
            return Err(format!("this kernel has no tracepoint {tracepoint}").into());
        }
        write(&enable, "1")?;
    }
    Ok(())
}

/// Concatenates the text of the files that match a path with asterisks.
fn read_pattern(path: &Path) -> Result<String, Failed> {
    let mut found = vec![PathBuf::from("/")];
    for part in path.components().skip(1) {
        let mut next = Vec::new();
        for directory in found {
            if part.as_os_str() != "*" {
                next.push(directory.join(part));
                continue;
            }
            let entries = fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
            let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            entries.sort();
            next.extend(entries);
        }
        found = next;
    }
    let mut text = String::new();
    for path in found {
        text += &fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(text)
}

fn metadata() -> Result<Vec<MetadataExtent>, Failed> {
    /// FMR_OWN_UNKNOWN: an unknown owner, usually a file.
    const UNKNOWN: u64 = 2;
    /// Owner of the journal: EXT4_FMR_OWN_LOG and XFS_FMR_OWN_LOG.
    const LOG: u64 = ((b'X' as u64) << 32) | 2;
    let is_metadata = |record: &Fsmap| {
        record.flags & Fsmap::SPECIAL_OWNER != 0 && !record.is_free() && record.owner != UNKNOWN
    };
    let extent = |record: &Fsmap| MetadataExtent {
        offset_bytes: record.physical,
        length_bytes: record.length,
        is_journal: record.owner == LOG,
    };
    fsmap(|record| is_metadata(record).then(|| extent(record)))
}

fn free_space() -> Result<Vec<(u64, u64)>, Failed> {
    fsmap(|record| record.is_free().then_some((record.physical, record.length)))
}

/// Applies `take` to each record of GETFSMAP.
fn fsmap<T>(take: impl Fn(&Fsmap) -> Option<T>) -> Result<Vec<T>, Failed> {
    let mut taken = Vec::new();
    FsmapQuery::new().find(open_root()?.as_fd(), |record| {
        taken.extend(take(record));
        None::<()>
    })?;
    Ok(taken)
}
