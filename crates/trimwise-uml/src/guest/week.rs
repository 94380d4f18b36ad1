//! Carries out a week ([`trimwise::workload::week`]): accesses, chores and the clock each have their own thread, so
//! that they wait for each other only in the file system.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use trimwise::units::SimDuration;
use trimwise::workload::week::{Access, Chore, Week, WeekDone};

use super::{Failed, MOUNT_POINT, fill, mark};

const PAGE: usize = 4096;

fn path(name: &str) -> PathBuf {
    Path::new(MOUNT_POINT).join(name)
}

fn folder(day: u64) -> PathBuf {
    path(&format!("day{day}"))
}

/// Creates the files that exist when the week begins: the database, and the files of the day before.
pub fn prepare(week: &Week) -> io::Result<()> {
    let mut database = File::create(path("database"))?;
    fill(&mut database, week.database.0, 0)?;
    database.sync_all()?;
    for number in 0..week.files_a_day {
        make(week, 0, number)?;
    }
    sync()
}

fn sync() -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(MOUNT_POINT)?)?)
}

fn make(week: &Week, day: u64, number: u64) -> io::Result<()> {
    let folder = folder(day);
    fs::create_dir_all(&folder)?;
    fill(&mut File::create(folder.join(number.to_string()))?, week.file.0, 0)
}

fn remove(day: u64) -> io::Result<u64> {
    let folder = folder(day);
    let mut names: Vec<PathBuf> =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    names.sort(); // hash order differs between file systems
    let mut bytes = 0;
    for name in names {
        bytes += fs::symlink_metadata(&name)?.blocks() * 512;
        fs::remove_file(&name)?;
    }
    fs::remove_dir(&folder)?;
    Ok(bytes)
}

/// Carries out the week, starting now. Marks the disk at the start and at each look.
pub fn run(week: &Week) -> Result<WeekDone, Failed> {
    let begin = Instant::now();
    let until = |at: SimDuration| {
        let due = begin + Duration::from_nanos(at.as_nanos());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    };
    mark()?;
    let first = free_bytes()?;
    std::thread::scope(|scope| {
        let accesses = scope.spawn(|| access_all(week, &until));
        let chores = scope.spawn(|| {
            let mut removed_bytes = 0;
            for (at, chore) in week.chores() {
                until(at);
                match chore {
                    Chore::Make { day, number } => make(week, day, number)?,
                    Chore::Remove { day } => removed_bytes += remove(day)?,
                }
            }
            Ok::<u64, io::Error>(removed_bytes)
        });
        let mut free = vec![first];
        for at in week.looks() {
            until(at);
            free.push(free_bytes()?);
            mark()?;
        }
        let died = |_| "a thread of the week has died".to_owned();
        let latencies_ns = accesses.join().map_err(died)?.map_err(|e| format!("an access: {e}"))?;
        let removed_bytes = chores.join().map_err(died)?.map_err(|e| format!("making or removing: {e}"))?;
        Ok(WeekDone { latencies_ns, free_bytes: free, removed_bytes })
    })
}

fn access_all(week: &Week, until: &impl Fn(SimDuration) -> Instant) -> io::Result<Vec<u64>> {
    let flag = |flag: OFlags| flag.bits().cast_signed();
    // Not DSYNC, whose value in rustix on Linux is that of O_SYNC anyway.
    let write = fs::OpenOptions::new().write(true).custom_flags(flag(OFlags::SYNC)).open(path("database"))?;
    let read = fs::OpenOptions::new().read(true).custom_flags(flag(OFlags::DIRECT)).open(path("database"))?;
    let length = week.access.0 as usize;
    let mut buffer = vec![0; length + PAGE];
    let from = buffer.as_ptr().align_offset(PAGE);
    let buffer = &mut buffer[from..from + length];
    let mut latencies_ns = Vec::new();
    for Access { at, offset, reads } in week.accesses() {
        let due = until(at);
        if reads {
            read.read_exact_at(buffer, offset.0)?;
        } else {
            write.write_all_at(buffer, offset.0)?;
        }
        latencies_ns.push(due.elapsed().as_nanos() as u64);
    }
    Ok(latencies_ns)
}

fn free_bytes() -> Result<u64, Failed> {
    let space = rustix::fs::statvfs(MOUNT_POINT)?;
    Ok(space.f_bfree * space.f_frsize)
}
