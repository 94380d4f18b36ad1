//! `trimwise record`, compared with what the kernel counts on the disk and what the file system says of its files.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use trimwise::trace::format::Reader;
use trimwise::trace::{Event, Header, Record, RequestKind, Source as _, TraceError};
use trimwise_linux::fiemap;
use trimwise_linux::files::with_ending;
use trimwise_linux::tracefs::TRACING;
use trimwise_testing::loops::{Loop, can_run, can_trace, sh};
use trimwise_testing::{in_time, scratch};

use crate::common::{command, refused, text};

const MIB: u64 = 1 << 20;
const MKFS_EXT4: [&str; 5] =
    ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];

/// A recording that has begun.
struct Recording(Child);

impl Recording {
    fn of(target: &Path, out: &Path, options: &[&str]) -> Self {
        let words = ["record", target.to_str().unwrap(), "--out", out.to_str().unwrap(), "--json"];
        let mut command = command(&[&words, options].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let recording = Self(child);
        // An instance is on when it is created, and turned off before there is a file.
        let partial = with_ending(out, ".partial");
        in_time(|| if partial.exists() { Ok(()) } else { Err("no file") });
        in_time(|| match fs::read_to_string(recording.instance().join("tracing_on")) {
            Ok(text) if text.trim() == "1" => Ok(()),
            other => Err(format!("tracing_on: {other:?}")),
        });
        recording
    }

    fn instance(&self) -> PathBuf {
        Path::new(TRACING).join(format!("instances/trimwise-record-{}", self.0.id()))
    }

    fn signal(&self, signal: &str) {
        sh("kill", &[&format!("-{signal}"), &self.0.id().to_string()]);
    }

    fn ended(self) -> Output {
        let instance = self.instance();
        let output = self.0.wait_with_output().unwrap();
        assert!(!instance.exists());
        output
    }

    /// Ends it as Ctrl-C does, and returns its figures.
    fn stopped(self) -> serde_json::Value {
        self.signal("INT");
        let output = self.ended();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn read(path: &Path) -> (Header, Vec<Record>, Option<TraceError>) {
    read_so_far(path).unwrap()
}

/// Reads a trace; an error if not even its header has been written.
fn read_so_far(path: &Path) -> Result<(Header, Vec<Record>, Option<TraceError>), TraceError> {
    let plain = zstd::stream::read::Decoder::new(File::open(path).unwrap()).unwrap();
    let mut reader = Reader::new(BufReader::new(plain))?;
    let mut records = Vec::new();
    let error = loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(records.windows(2).all(|pair| pair[0].at <= pair[1].at));
    Ok((reader.header().clone(), records, error))
}

/// The fields of `/sys/class/block/DEV/stat`.
fn stat(device: &str) -> Vec<u64> {
    let text = fs::read_to_string(format!("/sys/class/block/{device}/stat")).unwrap();
    text.split_whitespace().map(|field| field.parse().unwrap()).collect()
}

/// Requests of one kind, and their sectors.
fn requests(records: &[Record], kind: RequestKind) -> (u64, u64) {
    let of_kind = records.iter().filter_map(|record| match record.event {
        Event::Request(request) if request.kind == kind => Some(request.sectors.sectors),
        _ => None,
    });
    of_kind.fold((0, 0), |(count, sum), sectors| (count + 1, sum + sectors))
}

/// Ranges of sectors, sorted and joined.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match all.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => all.push((start, end)),
        }
    }
    all
}

fn ranges(
    records: &[Record],
    wanted: impl Fn(&Event) -> Option<trimwise::units::SectorRange>,
) -> Vec<(u64, u64)> {
    let found = records.iter().filter_map(|record| wanted(&record.event));
    joined(found.map(|range| (range.first.0, range.first.0 + range.sectors)).collect())
}

fn freed(records: &[Record]) -> Vec<(u64, u64)> {
    ranges(records, |event| if let Event::Freed(range) = event { Some(*range) } else { None })
}

fn allocated(records: &[Record]) -> Vec<(u64, u64)> {
    ranges(records, |event| if let Event::Allocated(range) = event { Some(*range) } else { None })
}

/// The sectors of a file on the disk that its partition begins at this sector of.
fn sectors_of(path: &Path, start: u64) -> Vec<(u64, u64)> {
    let extents = fiemap::extents(&File::open(path).unwrap()).unwrap();
    let range = |extent: &fiemap::Extent| {
        (start + extent.physical / 512, start + (extent.physical + extent.bytes) / 512)
    };
    joined(extents.iter().map(range).collect())
}

/// Expects all of `inner` within `outer`, which is larger by at most this many sectors: the metadata of files.
#[track_caller]
fn covers(outer: &[(u64, u64)], inner: &[(u64, u64)], more: u64) {
    let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(start, end)| end - start).sum::<u64>();
    for (start, end) in inner {
        assert!(
            outer.iter().any(|range| range.0 <= *start && *end <= range.1),
            "{start} to {end}: {outer:?}"
        );
    }
    assert!((sum(inner)..=sum(inner) + more).contains(&sum(outer)), "{} in {}", sum(inner), sum(outer));
}

/// Writes to a new file with fio, and returns how often it called fsync.
fn fio(folder: &Path, options: &[&str]) -> u64 {
    let folder = format!("--directory={}", folder.display());
    let job = ["--name=w", &folder, "--rw=randwrite", "--bs=4k", "--direct=1", "--fallocate=none"];
    let format = ["--output-format=json"];
    let figures: serde_json::Value =
        serde_json::from_str(&sh("fio", &[&job, options, &format].concat())).unwrap();
    figures["jobs"][0]["sync"]["total_ios"].as_u64().unwrap()
}

#[test]
fn a_trace_has_what_the_kernel_counts_and_the_file_system_says() {
    if !can_run(&["mkfs.ext4", "fio", "addpart", "sync"]) || !can_trace() {
        return;
    }
    let start = 8192;
    let disk = Loop::partition(512 * MIB, start, &MKFS_EXT4);
    let name = disk.disk_node().file_name().unwrap().to_str().unwrap().to_owned();
    let folder = scratch();
    let out = folder.path().join("trace");
    disk.sync();
    let recording = Recording::of(&disk.point, &out, &[]);
    // It has read the superblock by now.
    let before = stat(&name);
    let syncs = fio(&disk.point, &["--size=32m", "--io_size=8m", "--fsync=8", "--ioengine=psync"]);
    disk.sync();
    let file = disk.point.join("w.0.0");
    let extents = sectors_of(&file, start.into());
    fs::remove_file(&file).unwrap();
    disk.sync();
    let after = stat(&name);
    let figures = recording.stopped();

    let (header, records, error) = read(&out);
    assert!(error.is_none(), "{error:?}");
    assert_eq!((header.devices.len(), header.devices[0].name.as_str()), (1, name.as_str()));
    let file_system = header.file_system.unwrap();
    assert_eq!((file_system.kind.as_str(), file_system.is_traced), ("ext4", true));
    let counted = |field: usize| after[field] - before[field];
    assert_eq!(requests(&records, RequestKind::Read), (counted(0), counted(2)));
    let (writes, written) = requests(&records, RequestKind::Write);
    assert_eq!(written, counted(6));
    // The kernel also counts flushes without data as writes, before they reach the disk.
    assert!((counted(4).saturating_sub(8)..=counted(4)).contains(&writes), "{writes} of {}", counted(4));
    assert_eq!(requests(&records, RequestKind::Discard), (counted(11), counted(13)));
    assert_eq!(requests(&records, RequestKind::Flush).0, counted(15));
    let is_timed =
        |record: &&Record| matches!(record.event, Event::Request(request) if request.latency.is_some());
    let (counts, timed) = (&figures["counts"], records.iter().filter(is_timed).count() as u64);
    assert_eq!(counts["writes"]["requests"], writes);
    assert_eq!(timed, counts["reads"]["requests"].as_u64().unwrap() + writes + counted(11) + counted(15));
    assert_eq!((&counts["lost"], &counts["without_latency"]), (&0.into(), &0.into()));
    let commits = records.iter().filter(|record| record.event == Event::Committed).count() as u64;
    assert!(syncs > 200 && commits >= syncs, "{commits} commits, {syncs} calls of fsync");
    assert!(extents.len() > 100, "{}", extents.len());
    covers(&freed(&records), &extents, 2048);
    covers(&allocated(&records), &extents, 2048);
}

#[test]
fn frees_and_allocations_of_xfs_are_in_a_trace() {
    if !can_run(&["mkfs.xfs", "sync"]) || !can_trace() {
        return;
    }
    let disk = Loop::xfs(512 * MIB);
    let folder = scratch();
    let out = folder.path().join("trace");
    let recording = Recording::of(&disk.point, &out, &[]);
    disk.fill(["file".to_owned()], 32 << 20);
    let extents = sectors_of(&disk.point.join("file"), 0);
    fs::remove_file(disk.point.join("file")).unwrap();
    disk.sync();
    recording.stopped();
    let (header, records, error) = read(&out);
    assert!(error.is_none() && header.file_system.unwrap().is_traced);
    assert!(records.iter().any(|record| record.event == Event::Committed));
    covers(&freed(&records), &extents, 2048);
    covers(&allocated(&records), &extents, 2048);
}

#[test]
fn the_file_system_that_says_nothing_is_told() {
    if !can_run(&["mkfs.btrfs", "sync"]) || !can_trace() {
        return;
    }
    let disk = Loop::new(300 * MIB, &["mkfs.btrfs", "-q", "-f", "-K"]);
    let folder = scratch();
    let out = folder.path().join("trace");
    let recording = Recording::of(&disk.point, &out, &[]);
    disk.fill(["file".to_owned()], 4 << 20);
    let figures = recording.stopped();
    assert!(figures["notes"].to_string().contains("btrfs reports logical addresses"), "{figures:#}");
    let (header, records, _) = read(&out);
    assert!(!header.file_system.unwrap().is_traced);
    assert!(requests(&records, RequestKind::Write).1 >= (4 * MIB) / 512);
}

#[test]
fn two_recordings_see_the_same_and_a_killed_one_leaves_nothing_for_long() {
    if !can_run(&["mkfs.ext4", "fio", "sync"]) || !can_trace() {
        return;
    }
    let disk = Loop::ext4(256 * MIB);
    let folder = scratch();
    let out = |name: &str| folder.path().join(name);
    let one = Recording::of(&disk.point, &out("one"), &[]);
    let other = Recording::of(&disk.node(), &out("other"), &[]);
    fio(&disk.point, &["--size=8m"]);
    disk.sync();
    let (one, other) = (one.stopped(), other.stopped());
    assert_eq!(one["counts"], other["counts"]);
    assert!(one["counts"]["writes"]["bytes"].as_u64() >= Some(8 * MIB), "{one:#}");

    let mut killed = Recording::of(&disk.point, &out("killed"), &[]);
    killed.signal("KILL");
    killed.0.wait().unwrap();
    assert!(killed.instance().exists());
    let again = |options: &[&str]| {
        let (point, out) = (disk.point.to_str().unwrap(), out("killed"));
        let words = ["record", point, "--for", "100ms", "--out", out.to_str().unwrap()];
        command(&[&words, options].concat()).output().unwrap()
    };
    refused(2, &again(&[]), &["killed.partial exists"]);
    assert!(!killed.instance().exists());
    let (header, records, error) = read(&out("killed.partial"));
    assert!(header.file_system.is_some() && records.is_empty());
    assert!(matches!(error, Some(TraceError::Truncated { .. })), "{error:?}");
    assert_eq!(again(&["--force"]).status.code(), Some(0));
    assert!(read(&out("killed")).2.is_none() && !out("killed.partial").exists());
    refused(2, &again(&[]), &["already exists", "--force"]);
}

#[test]
fn a_full_disk_keeps_what_was_written() {
    if !can_run(&["mkfs.ext4", "fio", "sync"]) || !can_trace() {
        return;
    }
    let disk = Loop::ext4(256 * MIB);
    let folder = scratch();
    let small = folder.path().join("small");
    fs::create_dir(&small).unwrap();
    sh("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", small.to_str().unwrap()]);
    let out = small.join("trace");
    let recording = Recording::of(&disk.point, &out, &[]);
    fio(&disk.point, &["--size=64k", "--fsync=1"]);
    // While there is room.
    in_time(|| {
        let (_, records, _) = read_so_far(&small.join("trace.partial")).map_err(|e| e.to_string())?;
        let writes = requests(&records, RequestKind::Write).0;
        if writes >= 16 { Ok(()) } else { Err(format!("{writes} writes are in the file")) }
    });
    fio(&disk.point, &["--size=128m", "--io_size=128m", "--ioengine=libaio", "--iodepth=32"]);
    let output = recording.ended();
    let whole = (output.status.code(), read(&out));
    sh("umount", &[small.to_str().unwrap()]);
    let (code, (_, records, error)) = whole;
    assert_eq!(code, Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the trace ends there"), "{}", text(&output.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures["ended"], "disk-full");
    assert!(error.is_none(), "{error:?}");
    let writes = requests(&records, RequestKind::Write).0;
    assert!(writes >= 16, "{writes}");
    assert_eq!(figures["counts"]["writes"]["requests"], writes);
}

#[test]
fn events_that_do_not_fit_are_counted_and_marked() {
    if !can_run(&["mkfs.ext4", "fio", "sync"]) || !can_trace() {
        return;
    }
    let disk = Loop::ext4(256 * MIB);
    let folder = scratch();
    let out = folder.path().join("trace");
    let recording = Recording::of(&disk.point, &out, &["--buffer", "16KiB"]);
    recording.signal("STOP");
    fio(&disk.point, &["--size=16m"]);
    disk.sync();
    recording.signal("CONT");
    let figures = recording.stopped();
    let lost = figures["counts"]["lost"].as_u64().unwrap();
    let (_, records, error) = read(&out);
    let marked = records.iter().map(|record| if let Event::Lost(events) = record.event { events } else { 0 });
    assert!(error.is_none() && lost > 1000, "{error:?}, {figures:#}");
    assert_eq!(marked.sum::<u64>(), lost);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    if !can_run(&["mkfs.ext4", "unshare"]) || !can_trace() {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let folder = scratch();
    let (point, out) = (disk.point.to_str().unwrap(), folder.path().join("trace"));
    let record = |target: &str, script: &str| {
        let words = [env!("CARGO_BIN_EXE_trimwise"), "record", target, "--for", "100ms", "--out"];
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("{script} exec \"$@\""), "sh"]).args(words).arg(&out);
        command.stdin(Stdio::null()).output().unwrap()
    };
    refused(2, &record("/proc", ""), &["/proc: proc is not on a block device"]);
    let unmounted = record(point, &format!("umount -l {TRACING} &&"));
    refused(1, &unmounted, &["tracefs is not mounted", "mount -t tracefs nodev /sys/kernel/tracing"]);
    let read_only = record(point, &format!("mount -o remount,bind,ro {TRACING} &&"));
    refused(1, &read_only, &["tracefs is read-only here"]);
    assert!(!out.exists() && fs::read_dir(folder.path()).unwrap().count() == 0);
}
