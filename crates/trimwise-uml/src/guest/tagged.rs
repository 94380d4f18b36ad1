//! Carries out random operations ([`trimwise::workload::tagged`]), each task in its own thread, and examines their
//! files after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, fallocate, statvfs};
use rustix::mount::mount_remount;
use trimwise::workload::tagged::bytes::{Run, attribute, written};
use trimwise::workload::tagged::{Logged, Operation, Plan, operation_id};

use super::{Failed, MOUNT_POINT, attach, detach, in_mount, mark, mount_options, open_root, trim_all};
use crate::job::{Examined, FileSystem, FoundFile};
use crate::machine::complains;

const PAGE: usize = 4096;
const LOG_LINES: usize = 8;
/// Name of the file that takes up space and is never touched.
const BALLAST: &str = "ballast";

/// Prepares the file system, and runs all tasks to their end.
pub fn run(plan: &Plan) -> Result<Vec<Logged>, Failed> {
    for directory in plan.first_directories() {
        fs::create_dir(in_mount(&directory))?;
    }
    let space = statvfs(MOUNT_POINT)?;
    let ballast_bytes = space.f_bavail * space.f_frsize / 100 * plan.ballast_percent;
    if ballast_bytes > 0 {
        // On a file system that keeps reserves, less may fit than it reports.
        let file = File::create(in_mount(BALLAST))?;
        match fallocate(&file, FallocateFlags::empty(), 0, ballast_bytes) {
            Ok(()) | Err(rustix::io::Errno::NOSPC) => {}
            Err(errno) => return Err(format!("cannot make the ballast: {errno}").into()),
        }
    }
    rustix::fs::syncfs(open_root()?)?;
    std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..plan.tasks).map(|task| scope.spawn(move || run_task(plan, task))).collect();
        let mut logged = Vec::new();
        for task in tasks {
            logged.extend(task.join().map_err(|_| Failed::from("a task has died"))??);
        }
        Ok(logged)
    })
}

fn run_task(plan: &Plan, task: u32) -> Result<Vec<Logged>, Failed> {
    let mut logged = Vec::new();
    for (index, mut operation) in (0..plan.operations).zip(plan.task(task)) {
        let id = operation_id(task, index);
        let begin = mark()?;
        let done = perform(&mut operation, id);
        let end = mark()?;
        let (found, error) = match done {
            Ok(found) => (found, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        logged.push(Logged { id, operation, begin, end, error, found });
    }
    Ok(logged)
}

/// Carries out an operation. Returns the contents that a read found. Records the place of a write, and the length that
/// was written.
fn perform(operation: &mut Operation, id: u32) -> Result<Vec<Run>, Failed> {
    match operation {
        Operation::Create { path, truncates } => {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(*truncates).open(in_mount(path))?;
        }
        Operation::Write { path, offset_bytes, length_bytes, direct } => {
            let flags = if *direct { OFlags::DIRECT.bits().cast_signed() } else { 0 };
            let asked_bytes = std::mem::take(length_bytes);
            let file = OpenOptions::new().write(true).custom_flags(flags).open(in_mount(path))?;
            let at = *offset_bytes.get_or_insert(file.metadata()?.len());
            write(&file, &written(id, at, asked_bytes), at, length_bytes)?;
        }
        Operation::Read { path } => return Ok(attribute(&fs::read(in_mount(path))?)),
        Operation::Truncate { path, length_bytes } => {
            OpenOptions::new().write(true).open(in_mount(path))?.set_len(*length_bytes)?;
        }
        Operation::Punch { path, offset_bytes, length_bytes } => {
            let file = OpenOptions::new().write(true).open(in_mount(path))?;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, hole, *offset_bytes, *length_bytes)?;
        }
        Operation::Fsync { path, data_only } => {
            let file = File::open(in_mount(path))?;
            if *data_only { file.sync_data()? } else { file.sync_all()? }
        }
        Operation::Sync => rustix::fs::syncfs(open_root()?)?,
        Operation::Rename { from, to } => fs::rename(in_mount(from), in_mount(to))?,
        Operation::Unlink { path } => fs::remove_file(in_mount(path))?,
        Operation::Mkdir { path } => fs::create_dir(in_mount(path))?,
        Operation::Rmdir { path } => fs::remove_dir(in_mount(path))?,
        Operation::Trim => drop(trim_all(0)?),
        Operation::Remount { options } => {
            let (flags, data) = mount_options(options)?;
            mount_remount(MOUNT_POINT, flags, data.as_c_str())?;
        }
        Operation::Sleep { ms } => std::thread::sleep(Duration::from_millis(*ms)),
    }
    Ok(Vec::new())
}

/// Writes bytes at a place, from a buffer that direct writes can use. Adds the length written to `length_bytes`, also
/// if it fails.
fn write(file: &File, bytes: &[u8], mut at: u64, length_bytes: &mut u64) -> io::Result<()> {
    let mut buffer = vec![0; bytes.len() + PAGE];
    let from = buffer.as_ptr().align_offset(PAGE);
    let mut left = &mut buffer[from..from + bytes.len()];
    left.copy_from_slice(bytes);
    while !left.is_empty() {
        match file.write_at(left, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                left = &mut left[count..];
                at += count as u64;
                *length_bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Mounts the file system on the disk, reads all its files and unmounts it.
pub fn examine(file_system: FileSystem, options: &str) -> Examined {
    let mut examined = Examined::default();
    // The first call skips earlier messages of the kernel.
    let earlier = kernel_log();
    let mut outcome = earlier.map(drop).and_then(|()| attach(file_system, options));
    if outcome.is_ok() {
        outcome = list(Path::new(MOUNT_POINT), Path::new(""), &mut examined.files);
        outcome = outcome.and(detach(MOUNT_POINT));
    }
    match kernel_log() {
        Ok(mut log) => {
            examined.complaints = log.iter().filter(|line| complains(line)).cloned().collect();
            log.truncate(LOG_LINES);
            examined.log = log;
        }
        Err(error) => outcome = outcome.and(Err(error)),
    }
    examined.error = outcome.err().map(|error| error.to_string());
    examined
}

/// Lists a directory and its subdirectories, ordered by name.
fn list(root: &Path, folder: &Path, files: &mut Vec<FoundFile>) -> Result<(), Failed> {
    let failed = |e: io::Error| Failed::from(format!("directory '{}': {e}", folder.display()));
    let names = fs::read_dir(root.join(folder)).map_err(failed)?;
    let mut names =
        names.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    names.sort();
    for name in names {
        let path: PathBuf = folder.join(&name);
        let is_ours = folder != Path::new("") || (name != BALLAST && name != "lost+found");
        let kind = fs::symlink_metadata(root.join(&path));
        let kind = kind.map_err(|e| Failed::from(format!("'{}': {e}", path.display())))?;
        if kind.is_dir() && is_ours {
            list(root, &path, files)?;
        } else if is_ours {
            let mut bytes = Vec::new();
            let read = File::open(root.join(&path)).and_then(|mut file| file.read_to_end(&mut bytes));
            let error = read.err().map(|error| error.to_string());
            files.push(FoundFile { path: path.display().to_string(), runs: attribute(&bytes), error });
        }
    }
    Ok(())
}

/// The kernel's log, read up to the end of the last result of [`kernel_log`].
static LOG: Mutex<Option<File>> = Mutex::new(None);

/// Returns the kernel's messages since the last call; none at the first call.
fn kernel_log() -> Result<Vec<String>, Failed> {
    let mut log = LOG.lock().map_err(|e| e.to_string())?;
    let log = match &mut *log {
        Some(log) => log,
        none => {
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let mut file = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            none.insert(file)
        }
    };
    let mut lines = Vec::new();
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&record[..length]);
                let line = text.split_once(';').map_or("", |(_, said)| said);
                lines.push(line.lines().next().unwrap_or_default().to_owned());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(lines),
            // EPIPE: older records were overwritten; the next read continues behind them.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => return Err(format!("/dev/kmsg: {error}").into()),
        }
    }
}
