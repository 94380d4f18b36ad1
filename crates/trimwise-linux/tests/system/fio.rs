//! fio and ours do the same: a job's operations in fio's own log, against those that the job file means here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use trimwise::workload::fio::{Io, JobFile, Sequence};
use trimwise_testing::{directory, program, skipped};

/// Jobs with one operation in flight, whose order depends on no clock.
const JOBS: [&str; 56] = [
    "rw=randwrite\nbs=4k\nsize=4m",
    "rw=randread\nbs=8k\nsize=4m\nrandseed=77",
    "rw=randwrite\nbs=4k\nsize=4m\nnorandommap",
    "rw=randrw\nbs=4k\nsize=2m\nrwmixread=70",
    "rw=randrw\nbs=4k,16k\nsize=4m\nrandseed=5\nrwmixwrite=20\nnorandommap",
    "rw=randwrite\nbsrange=4k-64k\nsize=4m",
    "rw=randwrite\nbs=4k\nsize=4m\nrandom_generator=lfsr",
    "rw=randwrite\nbs=4k\nsize=3m\nrandom_generator=tausworthe64\nrandseed=12345678901",
    "rw=write\nbs=64k\nsize=1m\nfsync=3",
    "rw=write\nbsrange=1k-16k\nsize=512k\nfdatasync=2",
    "rw=rw\nbs=16k\nsize=1m",
    "rw=randwrite\nbs=4k\nsize=4m\nnrfiles=3\nfsync=5",
    "rw=randwrite\nbs=4k\nsize=1m\nloops=3",
    "rw=randread\nbs=4k\nsize=1m\nloops=2\nrandseed=3",
    "rw=randwrite\nbs=4k\nfilesize=64k-1m\nnrfiles=4",
    "rw=randwrite\nbs=4k\nsize=8m\nrandom_distribution=zoned:50/5:30/15:20/80",
    "rw=randwrite\nbs=4k\nsize=1m\nnumjobs=3",
    "rw=write:8k\nbs=4k\nsize=1m",
    "rw=read:-8k\nbs=4k\nsize=1m\noffset=512k",
    "rw=randread:8\nbs=4k\nsize=1m",
    "rw=randwrite:4\nrw_sequencer=identical\nbs=4k\nsize=1m",
    "rw=randrw\npercentage_random=60,20\nbs=4k\nsize=2m",
    "rw=randwrite\nbssplit=4k/50:8k/30:64k/20\nsize=4m",
    "rw=randrw\nbssplit=4k/50:8k/,16k/10:32k/90\nsize=4m\nnorandommap",
    "rw=randwrite\nbs=8k\nblockalign=4k\nsize=2m",
    "rw=randread\nbs=4k\nsize=1m\noffset=1m",
    "rw=randwrite\nbs=4k\nsize=1m\nio_size=2m\nnorandommap",
    "rw=randwrite\nbs=4k\nsize=1m\nnumber_ios=100",
    "rw=randwrite\nbs=4k\nnrfiles=5\nsize=2m\nfile_service_type=random:3",
    "rw=write\nbs=4k\nnrfiles=5\nsize=1m\nfile_service_type=sequential",
    "rw=randread\nbs=4k\nnrfiles=5\nopenfiles=2\nsize=1m",
    "rw=write\nbs=4k\nsize=1m\nverify=crc32c",
    "rw=randwrite\nbs=4k\nsize=1m\nverify=md5\nnorandommap",
    "rw=randwrite\nbs=4k\nsize=1m\nverify=md5\nverify_backlog=16",
    "rw=write\nbs=4k\nsize=4m\nzonemode=strided\nzonesize=256k\nzoneskip=256k",
    "rw=randread\nbs=4k\nsize=4m\nzonemode=strided\nzonesize=64k\nzonerange=128k\nzoneskip=128k",
    "rw=randwrite\nbs=4k\nsize=4m\nrandseed=2\nrandom_generator=lfsr",
    "rw=randwrite\nbsrange=1k-8k\nbs_unaligned\nsize=1m",
    "rw=randread\nbs=4k\nsize=2m\nrandom_distribution=zoned_abs:60/256k:40/512k",
    "filename=x:y\nrw=randrw\nbs=4k\nsize=1m",
    "rw=randrw\nbssplit=4k/33:8k/33:16k/33,\nsize=2m",
    "rw=randrw\nbs=,8k\npercentage_random=,50,\nsize=2m",
    "rw=write\nbs=64k\nsize=1m\nloops=3\nunlink_each_loop=1",
    "rw=randrw\nbs=4k-16k\nsize=2m",
    "rw=randrw\nbs=4k:8k\nsize=2m",
    "rw=randwrite\nbsrange=16k-4k\nsize=1m",
    "rw=write\nbs=4k\nsize=64k-128k",
    "rw=write\nbs=4k\nsize=1Mi",
    "rw=randwrite\nbs=4kbytes\nsize=1m\nend_fsync=1",
    "rw=randwrite\nbs=4k\nsize=64k\nverify=crc32c\nend_fsync=1",
    "rw=randwrite\nbs=4k\nsize=64k\nverify=crc32c\nend_fsync=1\nloops=2\nnrfiles=2",
    "rw=write\nbs=4k\nsize=64k\nend_fsync=1\nfsync=16",
    "rw=write\nbs=4k\nsize=64k\nend_fsync=1\nfsync=5\nloops=3",
    "rw=read\nbs=4k\nsize=64k\nend_fsync=1",
    "rw=randwrite\nbs=4k\nsize=64k\nend_fsync=1\nio_size=256k\nnorandommap=1",
    "rw=randrw\nrwmixread=70:30\nbs=4k\nsize=1m",
];

/// A job file with a seed that fio takes unchanged: before 3.35, offsets otherwise come from a seed of their own.
fn text_of(job: &str) -> String {
    let seed = if job.contains("randseed") { "" } else { "\nrandseed=0x89" };
    let job = format!("{job}{seed}\nrandrepeat=0");
    format!("[global]\nioengine=psync\nfallocate=none\ngroup_reporting\n[job]\n{job}\n")
}

/// Our operations of each process, in the notation of fio's log.
fn ours(text: &str) -> Vec<String> {
    let file = JobFile::parse(text).unwrap();
    let one = |job| {
        let mut sequence = Sequence::new(job, 0);
        let mut lines = String::new();
        while let Some(io) = sequence.next() {
            let _ = match io {
                Io::Transfer { file, writes, offset, bytes } => {
                    let what = if writes { "write" } else { "read" };
                    writeln!(lines, "{} {what} {offset} {bytes}", sequence.file_name(file))
                }
                Io::Trim { file, offset, bytes } => {
                    writeln!(lines, "{} trim {offset} {bytes}", sequence.file_name(file))
                }
                Io::Fsync(file) => writeln!(lines, "{} sync", sequence.file_name(file)),
                Io::Fdatasync(file) => writeln!(lines, "{} datasync", sequence.file_name(file)),
                Io::FsyncAll => sequence.file_names().try_for_each(|file| writeln!(lines, "{file} sync")),
                Io::Unlink => Ok(()),
            };
        }
        lines
    };
    file.jobs.iter().map(one).collect()
}

/// fio's operations of each process, which are given as jobs of their own: only these have a log each.
fn theirs(fio: &Path, text: &str) -> Vec<String> {
    let work = directory(false);
    let processes = JobFile::parse(text).unwrap().jobs.len();
    let global = text.replacen("[job]\n", "", 1).replace(&format!("numjobs={processes}\n"), "");
    // fio numbers the copies of a job backwards, after the first.
    let number = |job| if job == 0 { 0 } else { processes - job };
    let prefix =
        |job| if processes > 1 { format!("filename=job.{}.0\n", number(job)) } else { String::new() };
    let jobs = (0..processes).map(|job| format!("[job]\nwrite_iolog=log.{job}\n{}", prefix(job)));
    std::fs::write(work.path().join("a.fio"), global + &jobs.collect::<String>()).unwrap();
    run(fio, work.path());
    let log = |job| std::fs::read_to_string(work.path().join(format!("log.{job}"))).unwrap();
    (0..processes).map(|job| operations(&log(job))).collect()
}

fn run(fio: &Path, folder: &Path) {
    let output = Command::new(fio).arg("a.fio").current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The transfers and syncs of a log, without the times of its third version.
fn operations(log: &str) -> String {
    let mut lines = String::new();
    let is_third = log.starts_with("fio version 3");
    for line in log.lines().skip(1) {
        let line = if is_third { line.split_once(' ').map_or("", |(_, line)| line) } else { line };
        let fields: Vec<&str> = line.split(' ').collect();
        let _ = match fields[..] {
            [file, what @ ("read" | "write"), offset, bytes] => {
                writeln!(lines, "{file} {what} {offset} {bytes}")
            }
            [file, what @ ("sync" | "datasync"), ..] => writeln!(lines, "{file} {what}"),
            _ => Ok(()),
        };
    }
    lines
}

#[test]
fn the_same_operations_in_the_same_order() {
    let Some(fio) = program("fio") else { return skipped("fio is not installed") };
    for job in JOBS {
        let text = text_of(job);
        let (ours, theirs) = (ours(&text), theirs(&fio, &text));
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let differ = ours.lines().zip(theirs.lines()).position(|(ours, theirs)| ours != theirs);
            let at = differ.map(|at| (at, ours.lines().nth(at), theirs.lines().nth(at)));
            let counts = (ours.lines().count(), theirs.lines().count());
            assert!(ours == theirs, "{job}:\n{counts:?} operations, {at:?}");
        }
    }
}

/// The operations on each file, in the notation of fio's log.
fn by_file(lines: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, operation) in lines.lines().filter_map(|line| line.split_once(' ')) {
        files.entry(file).or_default().push(operation);
    }
    files
}

#[test]
fn copies_of_a_job_have_the_numbers_that_fio_gives_them() {
    let Some(fio) = program("fio") else { return skipped("fio is not installed") };
    let job = "rw=randwrite\nbs=4k\nsize=64k\noffset_increment=64k\nnumjobs=4";
    let work = directory(false);
    // Each log is short, so fio's processes write it at once.
    std::fs::write(work.path().join("a.fio"), text_of(job) + "write_iolog=log\n").unwrap();
    run(&fio, work.path());
    let log = std::fs::read_to_string(work.path().join("log")).unwrap();
    let (ours, theirs) = (ours(&text_of(job)).concat(), operations(&log));
    assert_eq!(by_file(&theirs).len(), 4, "{log}");
    assert_eq!(by_file(&ours), by_file(&theirs));
}
