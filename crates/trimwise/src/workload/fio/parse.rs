//! Reads fio job files.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::sequence::random_size;
use super::{Distribution, Generator, Io, Job, JobFileSpec, Sequence};
use crate::units::{Bytes, SimDuration};
use crate::workload::latency::Operation;

/// Maximum number of processes of all jobs together, and of operations of one in flight.
const PROCESSES_MAX: u64 = 64;
const DEPTH_MAX: u64 = 64;
const FILES_MAX: u64 = 10_000;
/// Longest time: 31 years.
const TIME_MAX_NS: u64 = 1_000_000_000_000_000_000;
const BLOCK_MAX: u64 = 64 << 20;

/// Options that only change fio's output or the way to run it.
const IGNORED: &[&str] = &[
    "bwavgtime",
    "clat_percentiles",
    "clocksource",
    "description",
    "disable_bw",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "eta",
    "gtod_reduce",
    "group_reporting",
    "iopsavgtime",
    "lat_percentiles",
    "log_avg_msec",
    "log_hist_msec",
    "log_max_value",
    "log_offset",
    "log_unix_epoch",
    "minimal",
    "new_group",
    "output",
    "output-format",
    "per_job_logs",
    "percentile_list",
    "significant_figures",
    "slat_percentiles",
    "stats",
    "status-interval",
    "thread",
    "unified_rw_reporting",
    "write_bw_log",
    "write_hist_log",
    "write_iops_log",
    "write_lat_log",
];

const SUPPORTED: &str = "rw, bs, bsrange, size, filesize, nrfiles, filename, directory, ioengine, iodepth, \
                         numjobs, direct, fsync, fdatasync, end_fsync, rate, rate_iops, thinktime, runtime, \
                         time_based, ramp_time, rwmixread, rwmixwrite, randseed, randrepeat, allrandrepeat, \
                         norandommap, random_generator, random_distribution, stonewall, loops, unlink, invalidate, \
                         overwrite=0, fallocate=none, file_service_type=roundrobin";

/// Error in a job file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {what}; expected {expected}")]
pub struct FioError {
    /// The line, from 1.
    pub line: usize,
    /// Description of the error.
    pub what: String,
    /// Description of accepted text.
    pub expected: String,
}

fn wrong(line: usize, what: impl Into<String>, expected: impl Into<String>) -> FioError {
    let what = what.into().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    FioError { line, what, expected: expected.into() }
}

/// A parsed job file.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// Text of the file.
    pub text: String,
    /// Processes in the order in which fio numbers them.
    pub jobs: Vec<Job>,
    /// Notes on ignored options, with their lines.
    pub notes: Vec<String>,
}

/// Options of a section by name, without aliases: value and line.
type Options = BTreeMap<String, (String, usize)>;

/// A section: its name, its line and its options with those of `[global]` before it.
struct Section {
    name: String,
    line: usize,
    options: Options,
}

impl JobFile {
    /// Parses a job file.
    ///
    /// # Errors
    /// [`FioError`] for the first line that is not supported.
    pub fn parse(text: &str) -> Result<Self, FioError> {
        let (sections, notes) = sections(text)?;
        let mut jobs = Vec::new();
        let mut group = 0;
        for section in &sections {
            let reader = Reader(&section.options);
            if reader.flag("stonewall")? && !jobs.is_empty() {
                group += 1;
            }
            let copies = reader.number("numjobs", 1, 1, PROCESSES_MAX)?;
            for copy in 0..copies {
                let job = job(section, copy, jobs.len() as u64 + 1, group)?;
                jobs.push(job);
                if jobs.len() as u64 > PROCESSES_MAX {
                    let most = format!("at most {PROCESSES_MAX} processes of all jobs together");
                    return Err(wrong(section.line, "too many jobs", most));
                }
            }
        }
        if jobs.is_empty() {
            return Err(wrong(text.lines().count().max(1), "no job section", "a section such as [job1]"));
        }
        Ok(Self { text: text.to_owned(), jobs, notes })
    }

    /// Returns the number of reads and writes of all jobs.
    pub fn operations(&self, run_seed: u64) -> u64 {
        let transfers =
            |job| Sequence::new(job, run_seed).filter(|io| matches!(io, Io::Transfer { .. })).count();
        self.jobs.iter().map(|job| transfers(job) as u64).sum()
    }

    /// Returns the option by which a job decides itself when its operations happen; `None` if none has one.
    pub fn own_pace(&self) -> Option<&'static str> {
        let of = |job: &Job| {
            let options = [
                ("runtime", job.runtime.is_some() || job.time_based),
                ("rate", job.rate.iter().any(Option::is_some)),
                ("thinktime", job.think > SimDuration::ZERO),
                ("ramp_time", job.ramp > SimDuration::ZERO),
            ];
            options.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
        };
        self.jobs.iter().find_map(of)
    }

    /// Returns true if a job makes such calls.
    pub fn make(&self, operation: Operation) -> bool {
        self.jobs.iter().any(|job| match operation {
            Operation::Read => job.reads,
            Operation::Write => job.writes,
            Operation::Fsync => job.fsync > 0 || job.fdatasync > 0 || job.end_fsync,
            Operation::Unlink => job.unlinks,
            Operation::Create | Operation::Append => false,
        })
    }

    pub(super) fn files(&self) -> BTreeMap<&str, u64> {
        let mut files = BTreeMap::new();
        for file in self.jobs.iter().flat_map(|job| &job.files) {
            let bytes: &mut u64 = files.entry(file.name.as_str()).or_default();
            *bytes = (*bytes).max(file.bytes);
        }
        files
    }

    /// Returns the space that the files take.
    pub fn needed(&self) -> Bytes {
        Bytes(self.files().values().fold(0, |sum, bytes| sum.saturating_add(*bytes)))
    }

    /// Returns the number of tasks of all jobs.
    pub fn tasks(&self) -> u32 {
        self.jobs.iter().map(|job| job.depth).sum()
    }
}

fn canonical(key: &str) -> &str {
    match key {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "nr_files" => "nrfiles",
        "wait_for_previous" => "stonewall",
        "file_name" => "filename",
        "file_size" => "filesize",
        other => other,
    }
}

fn sections(text: &str) -> Result<(Vec<Section>, Vec<String>), FioError> {
    let (mut global, mut sections, mut notes): (Options, Vec<Section>, Vec<String>) = Default::default();
    let mut in_global = false;
    for (line, text) in (1..).zip(text.lines()) {
        // fio ends a line at either character, wherever it is.
        let text = text.split([';', '#']).next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        if let Some(name) = text.strip_prefix('[') {
            let Some(name) = name.strip_suffix(']').filter(|name| !name.is_empty()) else {
                return Err(wrong(line, format!("'{text}' is not a section header"), "[NAME]"));
            };
            in_global = name == "global";
            if !in_global {
                sections.push(Section { name: name.to_owned(), line, options: global.clone() });
            }
            continue;
        }
        let (key, value) = text.split_once('=').map_or((text, ""), |(key, value)| (key.trim(), value.trim()));
        let key = canonical(key);
        if IGNORED.contains(&key) {
            notes.push(format!("line {line}: {key} only changes what fio prints or how it runs; ignored"));
            continue;
        }
        if value.contains('$') {
            let what = format!("'{value}' uses a variable");
            return Err(wrong(line, what, "the value itself"));
        }
        let options = match sections.last_mut() {
            _ if in_global => &mut global,
            Some(section) => &mut section.options,
            None => {
                return Err(wrong(
                    line,
                    format!("'{key}' is outside any section"),
                    "[global] or [NAME] before it",
                ));
            }
        };
        if !Reader::KNOWN.contains(&key) {
            return Err(wrong(line, format!("'{key}' is not supported"), format!("one of {SUPPORTED}")));
        }
        options.insert(key.to_owned(), (value.to_owned(), line));
    }
    Ok((sections, notes))
}

struct Reader<'a>(&'a Options);

impl Reader<'_> {
    const KNOWN: &'static [&'static str] = &[
        "allrandrepeat",
        "bs",
        "bsrange",
        "direct",
        "directory",
        "end_fsync",
        "fallocate",
        "fdatasync",
        "file_service_type",
        "filename",
        "filesize",
        "fsync",
        "invalidate",
        "iodepth",
        "ioengine",
        "loops",
        "norandommap",
        "nrfiles",
        "numjobs",
        "overwrite",
        "ramp_time",
        "random_distribution",
        "random_generator",
        "randrepeat",
        "randseed",
        "rate",
        "rate_iops",
        "runtime",
        "rw",
        "rwmixread",
        "rwmixwrite",
        "size",
        "stonewall",
        "thinktime",
        "time_based",
        "unlink",
    ];

    fn text(&self, key: &str) -> Option<(&str, usize)> {
        self.0.get(key).map(|(value, line)| (value.as_str(), *line))
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, FioError> {
        let Some((value, line)) = self.text(key) else { return Ok(None) };
        let bad = || wrong(line, format!("'{value}' is not a value of {key}"), expected);
        parse(value).map(Some).ok_or_else(bad)
    }

    /// Reads a flag, which is set if it is given without a value.
    fn flag(&self, key: &str) -> Result<bool, FioError> {
        self.flag_or(key, false)
    }

    fn flag_or(&self, key: &str, default: bool) -> Result<bool, FioError> {
        let parse = |value: &str| match value {
            "" | "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        Ok(self.read(key, "0 or 1", parse)?.unwrap_or(default))
    }

    fn number(&self, key: &str, default: u64, min: u64, max: u64) -> Result<u64, FioError> {
        let parse = |value: &str| whole(value).filter(|n| (min..=max).contains(n));
        Ok(self.read(key, &format!("a number from {min} to {max}"), parse)?.unwrap_or(default))
    }

    fn size(&self, key: &str) -> Result<Option<u64>, FioError> {
        self.read(key, "a size in bytes, with k, m or g for powers of 1,024", size)
    }

    /// Reads one value for reads and one for writes, separated by a comma; a single one is for both.
    fn pair<T: Copy>(
        &self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<[T; 2]>, FioError> {
        let both = |value: &str| match value.split_once(',') {
            None => parse(value).map(|v| [v; 2]),
            Some((read, write)) => Some([parse(read)?, parse(write)?]),
        };
        self.read(
            key,
            &format!("{expected}, or one for reads and one for writes, separated by a comma"),
            both,
        )
    }

    fn time(&self, key: &str, unit_ns: u64) -> Result<Option<SimDuration>, FioError> {
        let expected = "a time such as 30, 30s, 5m or 500ms";
        self.read(key, expected, |value| time(value, unit_ns))
    }
}

fn whole(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses fio's sizes: `k` and `kb` are 1,024 bytes, and `ki` and `kib` 1,000 (`kb_base=1024`).
fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.strip_suffix('b').unwrap_or(unit);
    let (unit, base) = unit.strip_suffix('i').map_or((unit, 1024_u64), |unit| (unit, 1000));
    let power = match unit {
        "" if base == 1024 => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    let bytes: u64 = digits.parse().ok()?;
    bytes.checked_mul(base.pow(power))
}

fn time(text: &str, unit_ns: u64) -> Option<SimDuration> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit_ns = match unit {
        "" => unit_ns,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    let ns = digits.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    (ns <= TIME_MAX_NS).then_some(SimDuration(ns))
}

fn block_size(text: &str) -> Option<u64> {
    size(text).filter(|bytes| (1..=BLOCK_MAX).contains(bytes))
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once(['-', ':'])?;
    Some((block_size(from)?, block_size(to)?)).filter(|(from, to)| from <= to)
}

fn is_below(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn distribution(text: &str) -> Option<Distribution> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let number = |default: f64, is_fine: fn(f64) -> bool| {
        let parsed = if rest.is_empty() { Some(default) } else { rest.parse::<f64>().ok() };
        parsed.filter(|n| n.is_finite() && is_fine(*n))
    };
    match name {
        "random" if rest.is_empty() => Some(Distribution::Uniform),
        "zipf" => number(1.1, |theta| theta > 0.0 && theta != 1.0).map(Distribution::Zipf),
        "pareto" => number(0.2, |h| h > 0.0 && h < 1.0).map(Distribution::Pareto),
        "zoned" => {
            let zones: Option<Vec<(u64, u64)>> = rest
                .split(':')
                .map(|zone| {
                    let (accesses, share) = zone.split_once('/')?;
                    Some((accesses.parse().ok()?, share.parse().ok()?))
                })
                .collect();
            let zones = zones?;
            let sum = |of: fn(&(u64, u64)) -> u64| {
                zones.iter().map(of).try_fold(0_u64, |sum, n| sum.checked_add(n)) == Some(100)
            };
            let is_whole = sum(|zone| zone.0) && sum(|zone| zone.1) && zones.iter().all(|zone| zone.1 > 0);
            is_whole.then_some(Distribution::Zoned(zones))
        }
        _ => None,
    }
}

fn refuse_others(reader: &Reader) -> Result<(), FioError> {
    for (key, only) in [
        ("overwrite", &["0"][..]),
        ("fallocate", &["none", "0"]),
        ("file_service_type", &["roundrobin"]),
        ("ioengine", &["psync", "sync", "libaio", "io_uring"]),
    ] {
        reader.read(key, &only.join(" or "), |value| only.contains(&value).then_some(()))?;
    }
    Ok(())
}

fn job(section: &Section, copy: u64, thread_number: u64, group: u32) -> Result<Job, FioError> {
    let reader = Reader(&section.options);
    refuse_others(&reader)?;
    let rw = reader.read("rw", "read, write, rw, randread, randwrite or randrw", |rw| match rw {
        "read" => Some((true, false, false)),
        "write" => Some((false, true, false)),
        "rw" | "readwrite" => Some((true, true, false)),
        "randread" => Some((true, false, true)),
        "randwrite" => Some((false, true, true)),
        "randrw" => Some((true, true, true)),
        // A file system has no TRIM of files' blocks; fio has it for block devices only.
        _ => None,
    })?;
    let (reads, writes, random) = rw.unwrap_or((true, false, false));
    let fixed = reader.pair("bs", "a block size", block_size)?.unwrap_or([4096; 2]);
    let ranges = reader.pair("bsrange", "a range of block sizes such as 4k-64k", range)?;
    let block_bytes = ranges.unwrap_or(fixed.map(|bytes| (bytes, bytes)));
    let used = [reads, writes];
    let used = || block_bytes.iter().zip(used).filter(|(_, used)| *used).map(|(bytes, _)| *bytes);
    let least = used().map(|(from, _)| from).min().unwrap_or(4096);

    let seed = reader.read("randseed", "a number", whole)?;
    let own_seed =
        seed.is_none() && !(reader.flag_or("randrepeat", true)? && reader.flag_or("allrandrepeat", true)?);
    let distribution = reader
        .read(
            "random_distribution",
            "random, zipf[:THETA], pareto[:H] or zoned:ACCESSES/SIZE:..., in percent",
            distribution,
        )?
        .unwrap_or(Distribution::Uniform);
    let generator =
        reader.read("random_generator", "tausworthe, tausworthe64 or lfsr", |text| match text {
            "tausworthe" => Some(Generator::Tausworthe),
            "tausworthe64" => Some(Generator::Tausworthe64),
            "lfsr" => Some(Generator::Lfsr),
            _ => None,
        })?;
    let generator = generator.unwrap_or(Generator::Tausworthe);
    if generator == Generator::Lfsr && random && used().any(|(from, to)| from != to) {
        let line = reader.text("random_generator").map_or(section.line, |(_, line)| line);
        return Err(wrong(
            line,
            "lfsr cannot be combined with several block sizes",
            "one block size, or tausworthe",
        ));
    }

    let is_asynchronous = matches!(reader.text("ioengine"), Some(("libaio" | "io_uring", _)));
    let depth = reader.number("iodepth", 1, 1, DEPTH_MAX)?;
    let direct = reader.flag("direct")?;
    if direct && used().any(|(from, to)| !from.is_multiple_of(4096) || !to.is_multiple_of(4096)) {
        let line = reader.text("direct").map_or(section.line, |(_, line)| line);
        return Err(wrong(line, "direct=1 needs blocks of 4 KiB", "bs in multiples of 4k"));
    }
    let rate = reader.pair("rate", "bytes per second", size)?;
    let rate_iops = reader.pair("rate_iops", "operations per second", whole)?;
    let rate = [0, 1].map(|i| {
        let of_operations = rate_iops.map(|iops| iops[i].saturating_mul(block_bytes[i].0));
        rate.map(|rate| rate[i]).or(of_operations).filter(|rate| *rate > 0)
    });
    let read_percent = match reader.read("rwmixwrite", "a percentage", percent)? {
        Some(writes) => 100 - writes,
        None => reader.read("rwmixread", "a percentage", percent)?.unwrap_or(50),
    };
    let runtime = reader.time("runtime", 1_000_000_000)?.filter(|time| time.0 > 0);
    let time_based = reader.flag("time_based")?;
    if time_based && runtime.is_none() {
        let line = reader.text("time_based").map_or(section.line, |(_, line)| line);
        return Err(wrong(line, "time_based without runtime", "runtime= as well"));
    }

    let mut job = Job {
        name: section.name.clone(),
        thread_number,
        group,
        reads,
        writes,
        random,
        block_bytes,
        files: Vec::new(),
        size: 0,
        depth: if is_asynchronous { depth as u32 } else { 1 },
        fsync: reader.number("fsync", 0, 0, u64::MAX)?,
        fdatasync: reader.number("fdatasync", 0, 0, u64::MAX)?,
        end_fsync: reader.flag("end_fsync")?,
        direct,
        rate,
        think: reader.time("thinktime", 1_000)?.unwrap_or_default(),
        runtime,
        time_based,
        ramp: reader.time("ramp_time", 1_000_000_000)?.unwrap_or_default(),
        read_percent,
        seed: seed.unwrap_or(0x89),
        repeats: seed.is_none() && !own_seed,
        own_seed,
        has_map: !reader.flag("norandommap")? && distribution == Distribution::Uniform,
        generator,
        distribution,
        counts_in_loop: is_asynchronous && !time_based,
        loops: reader.number("loops", 1, 1, 1_000_000)?,
        unlinks: reader.flag("unlink")?,
        invalidates: reader.flag_or("invalidate", true)?,
    };
    files(&mut job, section, copy, least)?;
    Ok(job)
}

fn percent(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n| *n <= 100)
}

/// Names the files of a job and divides its size among them.
fn files(job: &mut Job, section: &Section, copy: u64, least: u64) -> Result<(), FioError> {
    let reader = Reader(&section.options);
    let directory = reader.read("directory", "a relative path without ..", |path| {
        let path = path.trim_end_matches('/');
        is_below(path).then(|| format!("{path}/"))
    })?;
    let directory = directory.unwrap_or_default();
    let given = reader.read("filename", "relative paths without .., separated by colons", |names| {
        names.split(':').all(is_below).then(|| names.split(':').map(str::to_owned).collect::<Vec<_>>())
    })?;
    let count =
        reader.number("nrfiles", given.as_ref().map_or(1, |names| names.len() as u64), 1, FILES_MAX)?;
    let names: Vec<String> = match given {
        Some(names) if names.len() as u64 == count => names,
        Some(names) => {
            let line = reader.text("nrfiles").map_or(section.line, |(_, line)| line);
            return Err(wrong(
                line,
                "nrfiles and filename contradict each other",
                format!("nrfiles={}", names.len()),
            ));
        }
        None => (0..count).map(|file| format!("{}.{copy}.{file}", section.name)).collect(),
    };
    let names: Vec<String> = names.into_iter().map(|name| directory.clone() + &name).collect();
    if let Some(name) = names.iter().find(|name| !is_below(name)) {
        return Err(wrong(
            section.line,
            format!("'{name}' is not a file name"),
            "a job's name without '/' at its ends",
        ));
    }
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        return Err(wrong(section.line, "a file is named twice", "each file once"));
    }
    let size = reader.size("size")?;
    let file_size = reader.read("filesize", "a size, or a range such as 4k-1m", |text| {
        size_range(text).filter(|(from, to)| *from > 0 && from <= to)
    })?;
    let bytes: Vec<u64> = match (file_size, size) {
        (Some(range), _) => random_size(job, range, least, names.len()),
        (None, Some(size)) => {
            let each = size / count;
            let extra = (size - each * count) / least;
            (0..count).map(|file| each + if file < extra { least } else { 0 }).collect()
        }
        (None, None) => return Err(wrong(section.line, "the job has no size", "size= or filesize=")),
    };
    let total = bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    job.size = size.map_or(total, |size| size.min(total));
    if job.size < least || total > 1 << 50 {
        let line = reader.text("size").or(reader.text("filesize")).map_or(section.line, |(_, line)| line);
        return Err(wrong(
            line,
            "the size does not suit the block size",
            "at least one block, at most 1 PiB",
        ));
    }
    job.files = names.into_iter().zip(bytes).map(|(name, bytes)| JobFileSpec { name, bytes }).collect();
    Ok(())
}

fn size_range(text: &str) -> Option<(u64, u64)> {
    match text.split_once('-') {
        Some((from, to)) => Some((size(from)?, size(to)?)),
        None => size(text).map(|bytes| (bytes, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_job_has_what_the_file_says() {
        let text = "[global]\nsize=2m ; a comment\ngroup_reporting\n[a]\nrw=randrw\nbs=4k,8k\niodepth=4\nioengine=libaio\n\
                    numjobs=2\n[b]\nstonewall\nreadwrite=read\nnrfiles=3\ndirectory=x/y\nruntime=90\n";
        let file = JobFile::parse(text).unwrap();
        assert_eq!(
            file.notes,
            ["line 3: group_reporting only changes what fio prints or how it runs; ignored"]
        );
        let brief = |job: &Job| (job.name.clone(), job.thread_number, job.group, job.depth, job.files.len());
        assert_eq!(
            file.jobs.iter().map(brief).collect::<Vec<_>>(),
            [("a".into(), 1, 0, 4, 1), ("a".into(), 2, 0, 4, 1), ("b".into(), 3, 1, 1, 3)]
        );
        assert_eq!(file.jobs[0].block_bytes, [(4096, 4096), (8192, 8192)]);
        assert_eq!(file.jobs[1].files[0].name, "a.1.0");
        // A third of 2 MiB, and what is left over in blocks for the first.
        assert_eq!(file.jobs[2].files[0], JobFileSpec { name: "x/y/b.0.0".into(), bytes: 699_050 });
        assert_eq!((file.tasks(), file.jobs[2].runtime), (9, Some(SimDuration::from_secs(90))));
    }

    #[test]
    fn sizes_and_times_are_fio_s() {
        assert_eq!(["4k", "4kb", "1ki", "2M", "512"].map(size), [4096, 4096, 1000, 2 << 20, 512].map(Some));
        assert_eq!(["", "k", "4x", "-1", "99999999999g", "1i"].map(size), [None; 6]);
        assert_eq!(time("5m", 1), Some(SimDuration::from_secs(300)));
        assert_eq!(time("7", 1_000), Some(SimDuration::from_micros(7)));
    }

    #[test]
    fn what_is_not_supported_is_named_with_its_line() {
        for (text, line, what) in [
            ("[a]\nsize=1m\nrw=randtrim", 3, "'randtrim' is not a value of rw"),
            ("[a]\nsize=1m\n\nzonemode=zbd", 4, "'zonemode' is not supported"),
            ("size=1m", 1, "'size' is outside any section"),
            ("[a]\nrw=read", 1, "the job has no size"),
            ("[a]\nsize=1m\nfilename=/dev/sda", 3, "'/dev/sda' is not a value of filename"),
            ("[a]\nsize=1m\ndirectory=../x", 3, "'../x' is not a value of directory"),
            ("[a]\nsize=50%", 2, "'50%' is not a value of size"),
            ("[a]\nsize=1m\ntime_based", 3, "time_based without runtime"),
            ("[a]\nsize=1m\ndirect=1\nbs=512", 3, "direct=1 needs blocks of 4 KiB"),
            ("[a]\nsize=1m\nrandom_generator=lfsr\nrw=randread\nbsrange=4k-8k", 3, "lfsr cannot be combined"),
            ("[a\n", 1, "'[a' is not a section header"),
            ("[a]\nsize=${SIZE}", 2, "'${SIZE}' uses a variable"),
            ("[a]\nsize=1m\nnrfiles=2\nfilename=x", 3, "nrfiles and filename contradict"),
            ("[global]\nsize=1m\n", 2, "no job section"),
        ] {
            let error = JobFile::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.what.starts_with(what), "{error}");
        }
    }

    /// Lines that are nearly right.
    fn line() -> impl Strategy<Value = String> {
        let key = prop::sample::select(Reader::KNOWN);
        let value = prop_oneof![
            "[0-9]{1,20}[kmgt]?i?b?",
            "[0-9]{1,4}[kmg]?[-,:][0-9]{1,4}[kmg]?",
            "(read|write|rw|randread|randwrite|randrw|libaio|lfsr|zipf:[0-9.]{1,4}|pareto:0.[0-9]|zoned:50/50:50/50)",
            "\\PC{0,12}",
        ];
        prop_oneof![
            8 => (key, value).prop_map(|(key, value)| format!("{key}={value}")),
            1 => "\\[[a-z/.]{0,6}\\]?",
            1 => "\\PC{0,20}",
        ]
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in prop::collection::vec(line(), 0..20)) {
            let text = format!("[global]\nsize=64k\n[a]\n{}", lines.join("\n"));
            if let Ok(file) = JobFile::parse(&text) {
                prop_assert!(file.tasks() >= 1);
                for job in file.jobs.iter().filter(|_| file.needed().0 < 1 << 20) {
                    let mut sequence = super::super::Sequence::new(job, 1);
                    for _ in 0..100 {
                        if sequence.next().is_none() {
                            break;
                        }
                    }
                }
            }
        }
    }
}
