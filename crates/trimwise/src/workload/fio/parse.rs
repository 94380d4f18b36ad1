//! Makes jobs of a job file's sections.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{Plan, laid_out};
use super::options::{self, Engine, Meaning};
use super::text::{
    FioError, FioErrors, Given, Overrides, Place, Section, Surroundings, Text, split_overrides, wrong,
};
use super::values::{self, for_each};
use super::{
    BlockSizes, Distribution, Durable, Ends, FileOrder, Flow, Generator, Io, Job, READ, Rate, Sequence,
    Service, Size, Steps, Strides, TRIM, Verify, WRITE,
};
use crate::content::ContentClass;
use crate::units::{Bytes, SimDuration};
use crate::workload::latency::Operation;

/// Most processes of all jobs together, as in fio.
const PROCESSES_MAX: u64 = 4096;
/// Most operations of one process in flight.
const DEPTH_MAX: u64 = 1024;
/// Most operations of all processes in flight.
const TASKS_MAX: u64 = 65_536;
/// Most files of all processes together.
const FILES_MAX: u64 = 1_000_000;
/// Fineness of direct transfers.
const SECTOR_BYTES: u64 = 512;
const SECOND_NS: u64 = 1_000_000_000;
const MICROSECOND_NS: u64 = 1_000;

/// A parsed job file.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// The file as one text without variables, includes and overrides.
    pub text: String,
    /// Processes in the order in which fio numbers them.
    pub jobs: Vec<Job>,
    /// Notes on ignored options, with their lines.
    pub notes: Vec<String>,
    /// The processes before their sizes were known.
    pub(super) plans: Vec<Plan>,
}

impl JobFile {
    /// Parses a job file that includes no other.
    ///
    /// # Errors
    /// [`FioErrors`] with each line that is wrong or beyond the model.
    pub fn parse(text: &str) -> Result<Self, FioErrors> {
        Self::read(text, &[], &())
    }

    /// Parses a job file, with options that replace its own.
    ///
    /// # Errors
    /// [`FioErrors`] with each line that is wrong or beyond the model.
    pub fn read(
        text: &str,
        overrides: &Overrides,
        surroundings: &dyn Surroundings,
    ) -> Result<Self, FioErrors> {
        let mut text = Text::read(text, overrides, surroundings);
        let mut errors = std::mem::take(&mut text.errors);
        let mut notes = text.notes();
        let mut plans = Vec::new();
        let mut group = 0;
        let (mut processes, mut tasks, mut files) = (0, 0, 0);
        for section in &text.sections {
            let mut reader = Reader::new(section, &mut errors);
            if reader.flag("stonewall", false) && processes > 0 {
                group += 1;
                tasks = 0;
            }
            let copies = reader.number("numjobs", 1, 1, PROCESSES_MAX);
            let Some(first) = plan(&mut reader, &mut notes, group) else { continue };
            processes += copies;
            tasks += copies * u64::from(first.job.depth);
            files += copies * first.names.len() as u64;
            if processes > PROCESSES_MAX || tasks > TASKS_MAX {
                let what = format!("{processes} processes so far, which have {tasks} operations in flight");
                let most = format!(
                    "at most {PROCESSES_MAX} processes, and {TASKS_MAX} operations of all at one time"
                );
                errors.push(wrong(&section.place, what, most));
                break;
            }
            if files > FILES_MAX {
                let what = format!("{files} files of all processes so far");
                errors.push(wrong(&section.place, what, format!("at most {FILES_MAX}")));
                break;
            }
            // fio numbers the copies of a job backwards, after the first.
            for copy in [0].into_iter().chain((1..copies).rev()) {
                plans.push(first.copy(copy, plans.len() as u64 + 1));
            }
        }
        check_waits(&text, &plans, &mut errors);
        let jobs = match laid_out(&plans, None) {
            Ok(jobs) => jobs,
            Err(mut more) => {
                errors.append(&mut more);
                Vec::new()
            }
        };
        if jobs.is_empty() && errors.is_empty() {
            let place = text.sections.first().map_or_else(Place::default, |section| section.place.clone());
            errors.push(wrong(&place, "no job does I/O", "a job with an engine that does"));
        }
        if errors.is_empty() {
            return Ok(Self { text: text.flat(), jobs, notes, plans });
        }
        let mut seen = BTreeSet::new();
        errors.retain(|error| seen.insert((error.place.clone(), error.what.clone())));
        errors.sort_by(|a, b| a.place.cmp(&b.place));
        Err(FioErrors(errors))
    }

    /// Returns true if files have the size of the free space, as nothing else says it.
    pub fn fills_space(&self) -> bool {
        self.plans.iter().any(Plan::fills_space)
    }

    /// Returns the jobs on a file system with this much free space, which files without a size divide.
    ///
    /// # Errors
    /// [`FioErrors`] if a size is too small for the job's blocks.
    pub fn fitted(&self, free: Bytes) -> Result<Self, FioErrors> {
        if !self.fills_space() {
            return Ok(self.clone());
        }
        Ok(Self { jobs: laid_out(&self.plans, Some(free)).map_err(FioErrors)?, ..self.clone() })
    }

    /// Returns the number of operations of all jobs.
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
                ("startdelay", job.starts_after > SimDuration::ZERO),
            ];
            options.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
        };
        self.jobs.iter().find_map(of).or_else(|| self.fills_space().then_some("size, which is missing,"))
    }

    /// Returns true if a job makes such calls.
    pub fn make(&self, operation: Operation) -> bool {
        self.jobs.iter().any(|job| match operation {
            Operation::Read => job.reads() || job.verify.is_some_and(|verify| verify.reads),
            Operation::Write => job.writes(),
            Operation::Fsync => {
                job.fsync > 0 || job.fdatasync > 0 || job.end_fsync || job.durable != Durable::No
            }
            Operation::Unlink => job.unlinks,
            Operation::Create | Operation::Append => false,
        })
    }

    /// Returns the length of each file.
    pub(super) fn files(&self) -> BTreeMap<&str, u64> {
        let mut files = BTreeMap::new();
        for file in self.jobs.iter().flat_map(|job| &job.files) {
            let bytes: &mut u64 = files.entry(file.name.as_str()).or_default();
            *bytes = (*bytes).max(file.length);
        }
        files
    }

    /// Returns the space that the files take; nothing is counted for files that take what is free.
    pub fn needed(&self) -> Bytes {
        let filling: BTreeSet<&str> =
            self.plans.iter().filter(|plan| plan.fills_space()).flat_map(|plan| plan.paths()).collect();
        let sized = self.files().into_iter().filter(|(name, _)| !filling.contains(name));
        Bytes(sized.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes)))
    }

    /// Describes what makes the files fit into `free`, for the end of a sentence; `argument` is what follows `job:`.
    pub fn smaller(&self, argument: &str, free: Bytes) -> String {
        let has_filesize = |plan: &Plan| plan.file_size.is_some();
        let mut offsets = Vec::new();
        if self.plans.iter().any(|plan| plan.offset != Size::Bytes(0)) {
            offsets.push(("offset", 0));
        }
        if self.plans.iter().any(|plan| plan.increment != Size::Bytes(0)) {
            offsets.push(("offset_increment", 0));
        }
        // Files that several processes share are counted once.
        let files: BTreeSet<&str> = self.plans.iter().flat_map(Plan::paths).collect();
        let per_file = self.plans.iter().map(|plan| if has_filesize(plan) { 1 } else { plan.names.len() });
        let processes = files.len() / per_file.min().unwrap_or(1).max(1);
        let power = free.0.checked_div(processes as u64).and_then(u64::checked_ilog2);
        let bytes = power.map_or(0, |power| 1 << power);
        let mut sizes = Vec::new();
        if !self.plans.iter().all(has_filesize) {
            sizes.push(("size", bytes));
        }
        if self.plans.iter().any(has_filesize) {
            sizes.push(("filesize", bytes));
        }
        let both = [&sizes[..], &offsets[..]].concat();
        let fits = |changes: &&[(&str, u64)]| {
            let plans: Vec<Plan> = self.plans.iter().map(|plan| plan.with(changes)).collect();
            let jobs = laid_out(&plans, None);
            jobs.is_ok_and(|jobs| Self { jobs, plans, ..self.clone() }.needed() <= free)
        };
        let Some(changes) = [&offsets[..], &sizes, &both].into_iter().find(fits) else {
            return "fewer processes or smaller blocks".to_owned();
        };
        let (file, overrides) = split_overrides(argument);
        let mut example = file.to_owned();
        for (name, value) in overrides {
            let is_replaced = |known: &str| changes.iter().any(|(change, _)| *change == known);
            match options::find(&name) {
                Some((known, _)) if is_replaced(known) => {}
                _ if value.is_empty() => example += &format!(":{name}"),
                _ => example += &format!(":{name}={value}"),
            }
        }
        for (name, bytes) in changes {
            example += &format!(":{name}={}", values::written(*bytes));
        }
        let names: Vec<String> = changes.iter().map(|(name, _)| format!("{name}=")).collect();
        format!("smaller files: {} after the file's name, as in job:{example}", names.join(" and "))
    }

    /// Returns the number of tasks: the most operations in flight of jobs that run at the same time.
    pub fn tasks(&self) -> u32 {
        let mut of_groups: BTreeMap<u32, u32> = BTreeMap::new();
        self.jobs.iter().for_each(|job| *of_groups.entry(job.group).or_default() += job.depth);
        of_groups.into_values().max().unwrap_or(0)
    }

    /// Returns the kind of data that most of the jobs write.
    pub fn content(&self) -> ContentClass {
        let writers = || self.jobs.iter().filter(|job| job.writes());
        let count = |class| writers().filter(|job| job.class == class).count();
        let classes = ContentClass::ALL.into_iter().filter(|class| count(*class) > 0);
        classes.max_by_key(|class| count(*class)).unwrap_or_default()
    }
}

/// Rejects `wait_for` of a name that no job before has.
fn check_waits(text: &Text, plans: &[Plan], errors: &mut Vec<FioError>) {
    for plan in plans {
        let Some(waits_for) = &plan.job.waits_for else { continue };
        let is_before = |other: &Plan| {
            other.job.thread_number < plan.job.thread_number
                && other.job.name == *waits_for
                && *waits_for != plan.job.name
        };
        if plan.job.copy == 0 && !plans.iter().any(is_before) {
            let section = text.sections.iter().find(|section| section.name == plan.job.name);
            let place =
                section.and_then(|section| section.options.get("wait_for")).and_then(|all| all.last());
            let place = place.map_or_else(|| plan.place.clone(), |given| given.place.clone());
            errors.push(wrong(
                &place,
                format!("no job before this one is called '{waits_for}'"),
                "the name of one",
            ));
        }
    }
}

/// Reads the options of a section. Every error is noted, and the option's default is used in its place.
pub(super) struct Reader<'a> {
    pub section: &'a Section,
    errors: &'a mut Vec<FioError>,
    kb_base: u64,
}

impl<'a> Reader<'a> {
    fn new(section: &'a Section, errors: &'a mut Vec<FioError>) -> Self {
        let mut reader = Self { section, errors, kb_base: 1024 };
        reader.kb_base = reader.word("kb_base", &[("1024", 1024), ("1000", 1000)]).unwrap_or(1024);
        reader
    }

    pub fn given(&self, name: &str) -> Option<&'a Given> {
        debug_assert!(options::find(name).is_some(), "{name}");
        self.section.options.get(name).and_then(|all| all.last()).filter(|given| !given.is_unset())
    }

    pub fn place(&self, names: &[&str]) -> Place {
        let place = names.iter().find_map(|name| self.given(name)).map(|given| given.place.clone());
        place.unwrap_or_else(|| self.section.place.clone())
    }

    pub fn wrong(&mut self, names: &[&str], what: impl Into<String>, expected: impl Into<String>) {
        let error = wrong(&self.place(names), what, expected);
        self.errors.push(error);
    }

    /// Notes that the model cannot follow an option that fio accepts.
    fn beyond(&mut self, names: &[&str], what: impl Into<String>, expected: impl Into<String>) {
        let error = wrong(&self.place(names), what, expected);
        self.errors.push(FioError { is_beyond_model: true, ..error });
    }

    pub fn value<T>(&mut self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let given = self.given(name)?;
        let parsed = parse(&given.value);
        if parsed.is_none() {
            self.wrong(&[name], format!("'{}' is not a value of {name}", given.value), expected);
        }
        parsed
    }

    /// Reads one of these words.
    fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty()).collect();
        let find = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        self.value(name, &format!("one of {}", all.join(", ")), find)
    }

    /// Reads a flag, which is set if it is given without a value.
    fn flag(&mut self, name: &str, default: bool) -> bool {
        let parse = |value: &str| match value {
            "" => Some(true),
            value => value.parse::<u64>().ok().map(|n| n > 0),
        };
        self.value(name, "0 or 1", parse).unwrap_or(default)
    }

    pub fn number(&mut self, name: &str, default: u64, min: u64, max: u64) -> u64 {
        let kb_base = self.kb_base;
        // Further values of a list are for other directions, which such an option does not have.
        let first = |text: &str| values::number(text.split(',').next()?, kb_base);
        let parse = |text: &str| first(text).filter(|n| (min..=max).contains(n));
        self.value(name, &format!("a number from {min} to {max}"), parse).unwrap_or(default)
    }

    pub fn size(&mut self, name: &str) -> Option<Size> {
        let kb_base = self.kb_base;
        let expected = "a size in bytes, with k, m or g for powers of 1,024, or a share such as 50%";
        self.value(name, expected, |text| match values::size(text, kb_base)? {
            // As in fio, whose files end where they end.
            Size::Percent(percent) if name == "size" => Some(Size::Percent(percent.min(100))),
            Size::Percent(101..) => None,
            size => Some(size),
        })
    }

    pub fn file_size(&mut self) -> Option<(u64, u64)> {
        let kb_base = self.kb_base;
        self.value("filesize", "a size, or a range such as 4k-1m", |text| values::file_size(text, kb_base))
    }

    /// Reads one value for all directions, or one for each.
    fn directions<T: Copy>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<[T; 3]> {
        let expected =
            format!("{expected}, or one for reads, one for writes and one for TRIMs, separated by commas");
        self.value(name, &expected, |text| for_each(text, &parse))
    }

    fn time(&mut self, name: &str, unit_ns: u64) -> SimDuration {
        let expected = "a time such as 30, 30s, 5m or 500ms";
        // Of a range, the shorter.
        let first = |text: &str| values::time(text.split('-').next()?, unit_ns);
        self.value(name, expected, first).unwrap_or_default()
    }

    /// Refuses what is beyond the model.
    fn refuse_others(&mut self) {
        for (&name, values) in &self.section.options {
            let Some((_, Meaning::Only(harmless, why))) = options::find(name) else { continue };
            let Some(given) = values.last().filter(|given| !harmless.contains(&given.value.as_str())) else {
                continue;
            };
            let expected = match harmless {
                [] => format!("no {name}"),
                [first, ..] => format!("{name}={first}"),
            };
            self.beyond(&[name], format!("{name}={}: {why}", given.value), expected);
        }
    }
}

fn percent(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n| *n <= 100)
}

/// Reads the order and directions of a job.
fn order(reader: &mut Reader) -> ([bool; 3], bool, Steps) {
    const WORDS: &[(&str, ([bool; 3], bool))] = &[
        ("read", ([true, false, false], false)),
        ("write", ([false, true, false], false)),
        ("trim", ([false, false, true], false)),
        ("rw", ([true, true, false], false)),
        ("readwrite", ([true, true, false], false)),
        ("trimwrite", ([false, true, true], false)),
        ("randread", ([true, false, false], true)),
        ("randwrite", ([false, true, false], true)),
        ("randtrim", ([false, false, true], true)),
        ("randrw", ([true, true, false], true)),
        ("randtrimwrite", ([false, true, true], true)),
    ];
    let kb_base = reader.kb_base;
    let parse = |text: &str| {
        let (word, step) = text.split_once(':').map_or((text, None), |(word, step)| (word, Some(step)));
        let (directions, random) = WORDS.iter().find(|(name, _)| *name == word)?.1;
        let (sign, size) = match step.map(|step| step.strip_prefix('-').map_or((1, step), |step| (-1, step)))
        {
            None => return Some((directions, random, 0, 1)),
            Some((sign, text)) => (sign, i64::try_from(values::number(text, kb_base)?).ok()?),
        };
        match random {
            true if sign > 0 && (1..=u32::MAX.into()).contains(&size) => {
                Some((directions, true, 0, size as u64))
            }
            true => None,
            false => Some((directions, false, sign * size, 1)),
        }
    };
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    let expected = format!("one of {}, with :SKIP or :COUNT where fio has it", words.join(", "));
    let (directions, random, skip, every) =
        reader.value("rw", &expected, parse).unwrap_or(([true, false, false], false, 0, 1));
    let is_identical =
        reader.word("rw_sequencer", &[("sequential", false), ("identical", true)]).unwrap_or(false);
    (directions, random, Steps { skip, every, is_identical })
}

fn block_sizes(reader: &mut Reader) -> BlockSizes {
    let kb_base = reader.kb_base;
    let block = |text: &str| values::block_size(text, kb_base);
    let fixed = reader.directions("bs", "a block size of at most 64m", block).unwrap_or([4096; 3]);
    let range = |text: &str| values::block_range(text, kb_base);
    let ranges = reader.directions("bsrange", "a range of block sizes such as 4k-64k", range);
    let mut ranges = ranges.unwrap_or(fixed.map(|bytes| (bytes, bytes)));
    let expected =
        "SIZE/PERCENT:..., whose shares add up to at most 100, or a list of those for each direction";
    let splits =
        reader.value("bssplit", expected, |text| for_each(text, |text| values::split(text, kb_base)));
    let splits = splits.unwrap_or_default();
    for (range, split) in ranges.iter_mut().zip(&splits) {
        let sizes = || split.iter().map(|(bytes, _)| *bytes);
        if let (Some(least), Some(most)) = (sizes().min(), sizes().max()) {
            *range = (least, most);
        }
    }
    let is_by_order = reader.flag("bs_is_seq_rand", false);
    BlockSizes { ranges, splits, is_unaligned: reader.flag("bs_unaligned", false), is_by_order }
}

fn distribution(reader: &mut Reader) -> Distribution {
    let kb_base = reader.kb_base;
    let expected = "random, zipf[:THETA[:CENTER]], pareto[:H[:CENTER]], normal[:DEVIATION[:CENTER]], \
                    zoned:ACCESSES/SIZE:... in percent, zoned_abs:ACCESSES/SIZE:... or sequence:BLOCK,...";
    let parse = |text: &str| values::distribution(text, kb_base);
    let is_strided = reader.flag("random_sequence_stride", false);
    match reader.value("random_distribution", expected, parse) {
        Some(Distribution::Sequence(blocks, _)) => Distribution::Sequence(blocks, is_strided),
        given => given.unwrap_or(Distribution::Uniform),
    }
}

fn service(reader: &mut Reader) -> Service {
    let expected = "roundrobin, sequential or random, with :COUNT if several operations keep together, zipf[:THETA], \
                    pareto[:H] or normal[:DEVIATION]";
    let parse = |text: &str| {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let run = if rest.is_empty() { Some(1) } else { rest.parse().ok().filter(|run| *run > 0) };
        let order = match name {
            "roundrobin" => FileOrder::RoundRobin,
            "sequential" => FileOrder::Sequential,
            "random" => FileOrder::Random,
            _ => {
                return values::skewed(text).map(|shape| Service { order: FileOrder::Skewed(shape), run: 1 });
            }
        };
        Some(Service { order, run: run? })
    };
    let default = Service { order: FileOrder::RoundRobin, run: 1 };
    reader.value("file_service_type", expected, parse).unwrap_or(default)
}

fn strides(reader: &mut Reader) -> Option<Strides> {
    let kb_base = reader.kb_base;
    let mut bytes = |name| {
        let expected = "a size in bytes";
        reader.value(name, expected, |text| values::number(text, kb_base)).unwrap_or(0)
    };
    let (size, range, skip) = (bytes("zonesize"), bytes("zonerange"), bytes("zoneskip"));
    let mode = reader.given("zonemode").map(|given| given.value.as_str());
    match mode {
        Some("zbd") => {
            let what = "zonemode=zbd: a drive of zones that are written in order";
            reader.beyond(
                &["zonemode"],
                what,
                "zonemode=none or strided; the modelled drives have no such zones",
            );
            None
        }
        Some("none") | None if size == 0 => None,
        Some("strided") | None if size > 0 => {
            Some(Strides { size, range: if range == 0 { size } else { range }, skip })
        }
        Some("strided") => {
            reader.wrong(&["zonemode"], "zonemode=strided without zonesize", "zonesize= as well");
            None
        }
        Some("none") => {
            reader.wrong(&["zonesize"], "zonesize with zonemode=none", "no zonesize, or zonemode=strided");
            None
        }
        _ => {
            reader.word("zonemode", &[("none", ()), ("strided", ())]);
            None
        }
    }
}

fn verify(reader: &mut Reader) -> Option<Verify> {
    let is_off = reader.given("verify").is_none_or(|given| matches!(given.value.as_str(), "0" | "none"));
    let reads = reader.flag("do_verify", true);
    let every = reader.number("verify_backlog", 0, 0, u64::MAX);
    let batch = reader.number("verify_backlog_batch", 0, 0, u64::MAX);
    let backlog = (every > 0).then_some((every, if batch > 0 { batch } else { every }));
    let (is_all, in_order) = (reader.flag("verify_only", false), reader.flag("experimental_verify", false));
    (!is_off).then_some(Verify { reads, backlog, is_all, in_order })
}

fn rates(reader: &mut Reader) -> [Option<Rate>; 3] {
    let kb_base = reader.kb_base;
    let number = |text: &str| if text.is_empty() { Some(0) } else { values::number(text, kb_base) };
    let rate = reader.directions("rate", "bytes per second", number).unwrap_or_default();
    let operations = reader.directions("rate_iops", "operations per second", number).unwrap_or_default();
    if rate.iter().any(|n| *n > 0) && operations.iter().any(|n| *n > 0) {
        reader.wrong(&["rate_iops"], "rate and rate_iops contradict each other", "one of them");
    }
    [READ, WRITE, TRIM].map(|i| match (rate[i], operations[i]) {
        (0, 0) => None,
        (0, operations) => Some(Rate::Operations(operations)),
        (bytes, _) => Some(Rate::Bytes(bytes)),
    })
}

/// Returns the class of data that is nearest to what a job writes.
fn class(reader: &mut Reader) -> ContentClass {
    let compresses = reader.number("buffer_compress_percentage", 0, 0, 100);
    let repeats = reader.number("dedupe_percentage", 0, 0, 100);
    let is_pattern = reader.given("buffer_pattern").is_some_and(|given| !given.value.is_empty());
    let is_zero = reader.flag("zero_buffers", false);
    match compresses {
        _ if repeats >= 50 => ContentClass::Duplicated,
        0 if is_zero || is_pattern => ContentClass::Zeros,
        0..=18 => ContentClass::Incompressible,
        19..=62 => ContentClass::PseudoRandom,
        63..=93 => ContentClass::Compressible,
        _ => ContentClass::Zeros,
    }
}

/// Makes the first process of a section's job; `None` if it does no I/O.
fn plan(reader: &mut Reader, notes: &mut Vec<String>, group: u32) -> Option<Plan> {
    reader.refuse_others();
    let engine = reader.given("ioengine").map_or("psync", |given| given.value.as_str());
    let name = engine.split(':').next().unwrap_or_default();
    let depth = reader.number("iodepth", 1, 1, DEPTH_MAX);
    let (is_asynchronous, is_raw) = match options::engine(name) {
        Some(Engine::Idle) => {
            notes.push(format!("[{}] only computes ({name}); left out", reader.section.name));
            return None;
        }
        Some(engine) => (engine == Engine::Overlapping, options::is_raw(name)),
        None if name == "null" => {
            let expected = "`:ioengine=psync` after the file's name, to do it";
            reader.beyond(&["ioengine"], "ioengine=null does none of its I/O", expected);
            (true, false)
        }
        None => {
            let expected = format!("an engine that reads and writes files: {}", options::engines());
            reader.beyond(&["ioengine"], format!("ioengine={name} is beyond the model"), expected);
            (true, false)
        }
    };
    let (directions, random, steps) = order(reader);
    let sizes = block_sizes(reader);
    let used = |i: usize| directions[i] || (sizes.is_by_order && i != TRIM);
    let used: Vec<(u64, u64)> = (0..3).filter(|i| used(*i)).map(|i| sizes.ranges[i]).collect();
    let least = sizes.ranges.map(|(from, _)| from);
    let kb_base = reader.kb_base;
    let align =
        reader.directions("blockalign", "a number of bytes", |text| values::block_size(text, kb_base));
    let align = align.filter(|_| random).unwrap_or(least);

    let seed = reader.value("randseed", "a number", |text| values::number(text, 1024));
    let own_seed = seed.is_none() && !reader.flag("randrepeat", true);
    let distribution = distribution(reader);
    let generators = [
        ("tausworthe", Generator::Tausworthe),
        ("tausworthe64", Generator::Tausworthe64),
        ("lfsr", Generator::Lfsr),
    ];
    let generator = reader.word("random_generator", &generators).unwrap_or(Generator::Tausworthe);
    if generator == Generator::Lfsr && random && used.iter().any(|(from, to)| from != to) {
        let what = "lfsr with several block sizes writes past the end of what it visits";
        reader.wrong(&["random_generator"], what, "one block size, or tausworthe");
    }
    let no_map = reader.flag("norandommap", false);
    let has_map = !no_map && distribution == Distribution::Uniform && align == least;

    let direct = reader.flag("direct", false) || is_raw;
    let is_whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
    let is_partial = used.iter().any(|(from, to)| !is_whole(*from) || !is_whole(*to))
        || (random && (0..3).any(|i| directions[i] && !is_whole(align[i])))
        || sizes.is_unaligned;
    if direct && is_partial {
        let expected = format!("multiples of {SECTOR_BYTES} bytes, or `:direct=0` after the file's name");
        reader.wrong(
            &["bs", "bsrange", "bssplit", "direct"],
            "direct transfers of parts of sectors",
            expected,
        );
    }
    let read_percent = reader.value("rwmixread", "a percentage", percent).unwrap_or(50);
    let runtime = Some(reader.time("runtime", SECOND_NS)).filter(|time| time.0 > 0);
    let mut time_based = reader.flag("time_based", false);
    if time_based && runtime.is_none() {
        time_based = false;
        notes.push(format!(
            "ignored as in fio, as there is no runtime: time_based of [{}]",
            reader.section.name
        ));
    }
    let shares = reader.directions("percentage_random", "a percentage", percent).unwrap_or([100; 3]);
    let flow = match reader.number("flow", 0, 0, 1000) {
        0 => None,
        weight => {
            let sleep = reader.time("flow_sleep", MICROSECOND_NS);
            Some(Flow { id: reader.number("flow_id", 0, 0, u64::MAX), weight, sleep })
        }
    };
    let ends = [("group", Ends::Group), ("stonewall", Ends::Group), ("all", Ends::All)];
    let ends = reader.word("exit_what", &ends).unwrap_or(Ends::Group);
    let durable = [
        ("none", Durable::No),
        ("0", Durable::No),
        ("1", Durable::Whole),
        ("sync", Durable::Whole),
        ("dsync", Durable::Data),
    ];
    let fsync_on_close = reader.flag("fsync_on_close", false);
    let end_fsync = reader.flag("end_fsync", false);

    let job = Job {
        name: reader.section.name.clone(),
        thread_number: 0,
        copy: 0,
        group,
        waits_for: reader.given("wait_for").map(|given| given.value.clone()),
        starts_after: reader.time("startdelay", SECOND_NS),
        directions,
        random,
        align,
        steps,
        zones: strides(reader),
        files: Vec::new(),
        service: service(reader),
        open_files: 0,
        size: 0,
        io_size: None,
        operations_max: Some(reader.number("number_ios", 0, 0, u64::MAX)).filter(|n| *n > 0),
        depth: if is_asynchronous { depth as u32 } else { 1 },
        fsync: reader.number("fsync", 0, 0, u64::MAX),
        fdatasync: reader.number("fdatasync", 0, 0, u64::MAX),
        end_fsync: end_fsync || fsync_on_close,
        durable: reader.word("sync", &durable).unwrap_or(Durable::No),
        direct,
        rate: rates(reader),
        is_poisson: reader.word("rate_process", &[("linear", false), ("poisson", true)]).unwrap_or(false),
        think: reader.time("thinktime", MICROSECOND_NS),
        think_every: reader.number("thinktime_blocks", 1, 1, u64::MAX),
        runtime,
        time_based,
        ramp: reader.time("ramp_time", SECOND_NS),
        read_percent,
        seed: seed.unwrap_or(0x89),
        repeats: seed.is_none() && !own_seed,
        own_seed,
        has_map,
        may_overwrite: !has_map || reader.flag("softrandommap", false) || steps.skip != 0 || steps.every > 1,
        generator,
        distribution,
        percent_random: shares,
        counts_in_loop: is_asynchronous && !time_based,
        loops: reader.number("loops", 1, 0, 1_000_000_000).max(1),
        verify: verify(reader),
        flow,
        ends: reader.flag("exitall", false).then_some(ends),
        creates_on_open: reader.flag("create_on_open", false),
        unlinks: reader.flag("unlink", false),
        invalidates: reader.flag("invalidate", true),
        class: class(reader),
        sizes,
    };
    Plan::read(job, reader)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> JobFile {
        JobFile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    #[test]
    fn a_job_has_what_the_file_says() {
        let text = "[global]\nsize=2m ; a comment\ngroup_reporting\nname=x\n[a]\nrw=randrw\nbs=4k,8k\niodepth=4\n\
                    ioengine=libaio\nnumjobs=3\n[b]\nstonewall\nreadwrite=read\nnrfiles=3\ndirectory=x/y\n\
                    runtime=90\n[c]\nname=y\n";
        let file = parsed(text);
        assert_eq!(
            file.notes,
            [
                "ignored, as it only changes what fio reports: group_reporting (line 3), name (line 4 and 1 more)"
            ]
        );
        let brief = |job: &Job| (job.name.clone(), job.thread_number, job.group, job.files[0].name.clone());
        // fio numbers the copies of a job backwards, after the first.
        assert_eq!(
            file.jobs.iter().map(brief).collect::<Vec<_>>(),
            [
                ("a".into(), 1, 0, "a.0.0".into()),
                ("a".into(), 2, 0, "a.2.0".into()),
                ("a".into(), 3, 0, "a.1.0".into()),
                ("b".into(), 4, 1, "x/y/b.0.0".into()),
                ("c".into(), 5, 1, "c.0.0".into()),
            ]
        );
        assert_eq!(file.jobs[0].sizes.ranges, [(4096, 4096), (8192, 8192), (8192, 8192)]);
        // A third of 2 MiB, and what is left over in blocks for the first.
        assert_eq!(file.jobs[3].files.iter().map(|file| file.bytes).collect::<Vec<_>>(), [699_050; 3]);
        assert_eq!((file.tasks(), file.jobs[3].runtime), (12, Some(SimDuration::from_secs(90))));
        assert_eq!(JobFile::parse(&file.text).unwrap().jobs, file.jobs);
    }

    #[test]
    fn all_errors_are_told_at_once_with_their_lines() {
        let text = "[a]\nsize=1m\nrw=randwirte\nzonemode=zbd\nbssplit=4k/60:8k/60\nread_iolog=x\nioengine=rbd\n\
                    iodpeth=4\n";
        let errors = JobFile::parse(text).unwrap_err();
        let lines: Vec<(usize, bool)> = errors.0.iter().map(|e| (e.place.line, e.is_beyond_model)).collect();
        assert_eq!(lines, [(3, false), (4, true), (5, false), (6, true), (7, true), (8, false)]);
        let shown = errors.to_string();
        for part in [
            "6 errors\n  line 3: 'randwirte' is not a value of rw; expected one of read",
            "line 5: '4k/60:8k/60' is not a value of bssplit; expected SIZE/PERCENT:..., whose shares add up to at most 100",
            "line 7: ioengine=rbd is beyond the model; expected an engine that reads and writes files: psync",
            "line 8: fio has no option 'iodpeth'; expected `iodepth`?",
            "\nA real kernel runs what is beyond the model, once the other errors are mended: --target kernel:6.12:ext4 \
             --workload 'cmd:fio FILE'",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
    }

    #[test]
    fn a_real_kernel_is_advised_for_what_fio_runs() {
        let shown = |text: &str| JobFile::parse(text).unwrap_err().to_string();
        let beyond = shown("[a]\nsize=1m\nioengine=rados\npool=test");
        assert!(
            beyond.starts_with("line 3: ioengine=rados is beyond the model; expected an engine"),
            "{beyond}"
        );
        assert!(
            !beyond.contains("cpuio") && beyond.contains("\nA real kernel runs it unchanged: "),
            "{beyond}"
        );
        for wrong in ["[a]\nsize=1m\niodpeth=4", "[a]\nsize={{ size }}"] {
            assert!(!shown(wrong).contains("kernel"), "{wrong}");
        }
    }

    #[test]
    fn advice_for_smaller_files_fits_and_replaces_what_was_given() {
        let free = Bytes::mib(100);
        for (text, argument, advice) in [
            ("[a]\nnumjobs=8", "F:size=1g", "F:size=8m"),
            ("[a]\nsize=1g\n[b]\nsize=2g", "F:bs=8k:time_based", "F:bs=8k:time_based:size=32m"),
            ("[a]\nsize=16m\noffset=60g", "F:size=8m", "F:size=8m:offset=0"),
            ("[a]\nsize=200m\noffset=10m", "F", "F:size=64m"),
            ("[a]\nsize=200m\noffset=60g", "F:rw=read", "F:rw=read:size=64m:offset=0"),
            ("[a]\nsize=8m\nnumjobs=4\noffset_increment=1g", "F", "F:offset_increment=0"),
            ("[a]\nfilesize=1g\nnrfiles=10", "F:nr_files=2", "F:nr_files=2:filesize=32m"),
            ("[a]\nsize=1g\nfilename=x\nnumjobs=100", "F", "F:size=64m"),
        ] {
            let read = |argument: &str| JobFile::read(text, &split_overrides(argument).1, &()).unwrap();
            let given = read(argument);
            assert!(given.needed() > free, "{text}");
            let shown = given.smaller(argument, free);
            assert!(shown.ends_with(&format!(", as in job:{advice}")), "{text}: {shown}");
            assert!(read(advice).needed() <= free, "{text}: {advice}");
        }
        let many = parsed("[a]\nsize=1g\nbs=4m\nnumjobs=100");
        assert_eq!(many.smaller("F", free), "fewer processes or smaller blocks");
    }

    #[test]
    fn errors_of_an_included_file_are_in_the_order_of_its_lines() {
        struct Included;
        impl Surroundings for Included {
            fn included(&self, _: &str) -> Result<String, String> {
                Ok("rw=sideways\nszie=1m\n".to_owned())
            }

            fn variable(&self, _: &str) -> Option<String> {
                None
            }
        }
        let text = "[a]\nsize=1m\ninclude x\nbs=0";
        let errors = JobFile::read(text, &[], &Included).unwrap_err().0;
        let places: Vec<String> = errors.iter().map(|error| error.place.to_string()).collect();
        assert_eq!(places, ["line 4", "x, line 1", "x, line 2"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, what) in [
            ("[a]\nsize=1m\nio_size=101%", 3, "'101%' is not a value of io_size"),
            ("[a]\nsize=1k", 2, "a size of 1024 bytes is less than a block of 4096"),
            ("[a]\nsize=1m\ndirect=1\nbs=100", 4, "direct transfers of parts of sectors"),
            (
                "[a]\nsize=1m\nrandom_generator=lfsr\nrw=randread\nbsrange=4k-8k",
                3,
                "lfsr with several block sizes",
            ),
            ("[a\n", 1, "'[a' is not a section header"),
            ("[a]\nsize=1m\nnumjobs=5000", 3, "'5000' is not a value of numjobs"),
            (
                "[a]\nsize=1m\nnumjobs=4096\nioengine=libaio\niodepth=32",
                1,
                "4096 processes so far, which have 131072",
            ),
            ("[a]\nsize=1m\nwait_for=b\n[b]\nsize=1m", 3, "no job before this one is called 'b'"),
            ("[a]\nsize=1m\nrate=1m\nrate_iops=5", 4, "rate and rate_iops contradict"),
            ("[a]\nsize=1m\nfilename=x\n[b]\nsize=1m\nfilename=x/y", 4, "'x' would be a file, and a folder"),
            ("[a]\nsize=18446744073709551615", 2, "a file of 18446744073709551615 bytes"),
            (
                "[a]\nsize=4m\noffset=18446744073709551615",
                3,
                "a file of 4194304 bytes from offset 18446744073709551615",
            ),
            (
                "[a]\nsize=4m\nnumjobs=2\noffset_increment=18446744073709551615",
                4,
                "a file of 4194304 bytes from offset 18446744073709551615",
            ),
            ("[a]\nfilesize=1m\noffset=2m", 3, "offset 2097152 is past the end of a file"),
            ("[a]\nsize=1m\0", 2, "a NUL character"),
            ("[global]\nbs=x\n[a]\nfoo=1\nsize={{ size }}", 5, "'size={{ size }}' is of a template"),
            ("[a]\n{% if x %}\nsize={{ size }}\n{% endif %}\nfoo=1", 2, "'{% if x %}' is of a template"),
            ("[a]\nioengine=cpuio", 1, "no job does I/O"),
            ("", 1, "no job section"),
        ] {
            let errors = JobFile::parse(text).unwrap_err();
            assert_eq!((errors.0.len(), errors.0[0].place.line), (1, line), "{errors}");
            assert!(errors.0[0].what.starts_with(what), "{errors}");
        }
    }

    #[test]
    fn devices_and_absolute_paths_are_files_and_take_what_is_free() {
        let file = parsed(
            "[a]\nfilename=/dev/sda:/dev/sdb\nrw=randread\n[b]\nfilename=/dev/sda\noffset=50%\nsize=25%",
        );
        assert!(file.fills_space());
        assert_eq!(file.needed(), Bytes(0));
        let fitted = file.fitted(Bytes::mib(64)).unwrap();
        let files: Vec<_> = fitted.files().into_iter().collect();
        assert_eq!(files, [("dev/sda", 30 << 20), ("dev/sdb", 30 << 20)]);
        let [a, b] = &fitted.jobs[..] else { panic!("two jobs") };
        assert_eq!((a.size, b.size, b.files[0].offset), (60 << 20, 7_864_320, 15 << 20));
        assert!(file.fitted(Bytes(1000)).unwrap_err().to_string().contains("do not fit"));
        for (text, shown) in [
            ("[a]", "the free space in a.0.0"),
            ("[a]\nsize=50%", "50 % of the free space in a.0.0"),
            ("[a]\nsize=200%", "the free space in a.0.0"),
            ("[a]\nsize=50%\n[b]", "50 % of 1/2 of the free space in a.0.0"),
            ("[a]\nsize=50%\nfilename=x\n[b]\nfilename=x", "50 % of the free space in x"),
            ("[a]\nsize=50%\nfilesize=4m", "2 MiB in a.0.0"),
        ] {
            let description = parsed(text).description().to_string();
            assert!(description.contains(&format!("; {shown}\n")), "{description}");
        }
        let whole = |size: &str| parsed(&format!("[a]\nfilesize=4m\nsize={size}")).needed();
        assert_eq!(whole("200%"), whole("100%"));
    }

    #[test]
    fn groups_share_tasks_and_a_job_that_computes_is_left_out() {
        let file = parsed(
            "[global]\nioengine=io_uring\nsize=1m\niodepth=1000\n[a]\n[b]\nstonewall\n[c]\niodepth=24\n\
             [d]\nioengine=cpuio\ncpuload=50",
        );
        assert_eq!((file.tasks(), file.jobs.len()), (1024, 3));
        assert!(
            file.notes.iter().any(|note| note == "[d] only computes (cpuio); left out"),
            "{:?}",
            file.notes
        );
    }

    #[test]
    fn what_is_written_has_the_class_that_is_nearest() {
        for (text, class) in [
            ("", ContentClass::Incompressible),
            ("buffer_compress_percentage=50", ContentClass::PseudoRandom),
            ("buffer_compress_percentage=90", ContentClass::Compressible),
            ("buffer_compress_percentage=100", ContentClass::Zeros),
            ("zero_buffers", ContentClass::Zeros),
            ("dedupe_percentage=80", ContentClass::Duplicated),
        ] {
            assert_eq!(parsed(&format!("[a]\nrw=write\nsize=1m\n{text}")).content(), class, "{text}");
        }
    }

    /// Lines that are nearly right.
    fn line() -> impl Strategy<Value = String> {
        let key = prop::sample::select(options::names().collect::<Vec<_>>());
        let value = prop_oneof![
            "[0-9]{1,20}[kmgt]?i?b?",
            "-?[0-9]{1,3}%?",
            "[0-9]{1,4}[kmg]?[-,:/][0-9]{1,4}[kmg]?",
            "(read|write|trim|rw|randread|randwrite|randrw|randtrimwrite)(:-?[0-9]{1,2}k?)?",
            "(libaio|lfsr|zipf:[0-9.]{1,4}|pareto:0.[0-9]|zoned:50/50:50/50|normal:5|sequence:3,1|random:4|dsync)",
            "4k/(25|50):8k/:512/",
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
                prop_assert_eq!(&JobFile::parse(&file.text).unwrap().jobs, &file.jobs);
                let file = file.fitted(Bytes::mib(16)).unwrap_or(file);
                for job in file.jobs.iter().filter(|_| file.needed().0 < 1 << 26) {
                    for io in Sequence::new(job, 1).take(100) {
                        let (Io::Transfer { file: index, offset, bytes, .. } | Io::Trim { file: index, offset, bytes }) = io else {
                            continue;
                        };
                        prop_assert!(bytes > 0 && offset + bytes <= job.files[index].length, "{io:?} {job:?}");
                    }
                }
            }
        }
    }
}
