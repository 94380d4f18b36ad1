//! Names the files of jobs, and divides their sizes as fio does (`setup_files`).

use std::collections::BTreeMap;

use super::random::Tausworthe;
use super::reader::Reader;
use super::sequence::file_sizes;
use super::text::{FioError, Place, wrong};
use super::{Job, JobFileSpec, Size};
use crate::units::Bytes;

const FILES_MAX: u64 = 100_000;
const LENGTH_MAX: u64 = 1 << 50;
const NAME_BYTES_MAX: usize = 255;
/// Files that fill the free space leave one part in this many.
const RESERVE: u64 = 16;
const MIB: u64 = 1 << 20;

/// A process before its files have sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub job: Job,
    pub place: Place,
    pub names: Vec<Name>,
    naming: Naming,
    pub size: Option<Size>,
    io_size: Option<Size>,
    pub file_size: Option<(u64, u64)>,
    pub offset: Size,
    pub increment: Size,
    offset_align: u64,
    appends: bool,
    size_place: Place,
    offset_place: Place,
}

/// A file's path below the workload's directory, and fio's own name of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    path: String,
    seed_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Naming {
    directories: Vec<String>,
    given: Vec<String>,
    format: String,
    count: u64,
}

/// Splits at colons. A colon after a backslash belongs to the name.
fn at_colons(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&':') => {
                names.iter_mut().last().into_iter().for_each(|name| name.push(':'))
            }
            '\\' => names.iter_mut().last().into_iter().for_each(|name| name.push(c)),
            ':' => names.push(String::new()),
            c => names.iter_mut().last().into_iter().for_each(|name| name.push(c)),
        }
        if c == '\\' && chars.peek() == Some(&':') {
            chars.next();
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the path below the workload's directory for a file, which in fio may be a device or anywhere else.
fn below(path: &str) -> Option<String> {
    let parts = path.split(['/', '\\']).filter(|part| !matches!(*part, "" | "." | ".."));
    let parts: Vec<String> = parts.map(|part| part.chars().filter(|c| !c.is_control()).collect()).collect();
    let fits = |part: &String| !part.is_empty() && part.len() <= NAME_BYTES_MAX;
    (!parts.is_empty() && parts.iter().all(fits)).then(|| parts.join("/"))
}

impl Naming {
    fn names(&self, job: &str, copy: u64) -> Vec<Option<Name>> {
        let own = |file: u64| {
            let name = replaced(&self.format, "$jobname", job);
            let name = replaced(&name, "$jobnum", &copy.to_string());
            replaced(&replaced(&name, "$filenum", &file.to_string()), "$clientuid", "")
        };
        let names: Vec<String> = match &self.given[..] {
            [] => (0..self.count).map(own).collect(),
            given => given.iter().take(self.count as usize).cloned().collect(),
        };
        let index = if self.given.is_empty() { copy as usize } else { 0 };
        let directory = match self.directories.len() {
            0 => String::new(),
            count => format!("{}/", self.directories[index % count]),
        };
        let named = |name: String| {
            let seed_name = format!("{directory}{name}");
            Some(Name { path: below(&seed_name)?, seed_name })
        };
        names.into_iter().map(named).collect()
    }
}

/// Replaces a word in any case.
fn replaced(text: &str, word: &str, by: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let (mut done, mut from) = (String::new(), 0);
    while let Some(at) = lower[from..].find(word) {
        done += &text[from..from + at];
        done += by;
        from += at + word.len();
    }
    done + &text[from..]
}

impl Plan {
    /// Reads names and sizes of a job's files. Notes errors, and then returns `None`.
    pub(super) fn read(job: Job, reader: &mut Reader) -> Option<Self> {
        let directories = reader.given("directory").map(|given| at_colons(&given.value)).unwrap_or_default();
        let section = reader.section;
        let given = section.options.get("filename").map_or(&[][..], |all| all);
        let given: Vec<String> = given.iter().flat_map(|given| at_colons(&given.value)).collect();
        let default = given.len().max(1) as u64;
        let count = reader.number("nrfiles", default, 1, FILES_MAX);
        let count = if given.is_empty() { count } else { count.min(default) };
        let format = reader.given("filename_format").map(|given| given.value.clone());
        let format = format
            .filter(|format| !format.is_empty())
            .unwrap_or_else(|| "$jobname.$jobnum.$filenum".to_owned());
        let naming = Naming { directories, given, format, count };
        let names = naming.names(&job.name, 0);
        if let Some(bad) = names.iter().position(Option::is_none) {
            let what = format!("the name of file {} is not a path below a directory", bad + 1);
            let expected = format!("a name of at most {NAME_BYTES_MAX} bytes between slashes");
            reader.wrong(&["filename", "filename_format"], what, expected);
            return None;
        }
        let fills = reader.number("fill_device", 0, 0, 1) > 0;
        let io_size = reader.size("io_size");
        let mut plan = Self {
            place: section.place.clone(),
            names: names.into_iter().flatten().collect(),
            naming,
            size: reader.size("size").filter(|size| *size != Size::Bytes(0)),
            io_size: io_size.filter(|size| *size != Size::Bytes(0)),
            file_size: reader.file_size(),
            offset: reader.size("offset").unwrap_or(Size::Bytes(0)),
            increment: reader.size("offset_increment").unwrap_or(Size::Bytes(0)),
            offset_align: reader.number("offset_align", 0, 0, LENGTH_MAX),
            appends: reader.number("file_append", 0, 0, 1) > 0,
            size_place: reader.place(&["size", "filesize", "bs"]),
            offset_place: reader.place(&["offset", "offset_increment"]),
            job,
        };
        if fills {
            plan.size = None;
        }
        let open_files = reader.number("openfiles", count, 0, FILES_MAX);
        plan.job.open_files = if open_files == 0 { count } else { open_files.min(count) } as usize;
        if plan.job.open_files > 1 {
            plan.job.zones = None; // as in fio, whose strides work with one file
        }
        Some(plan)
    }

    /// Returns a copy of the process, with its numbers among those of the job and among all.
    pub fn copy(&self, copy: u64, thread_number: u64) -> Self {
        let names = self.naming.names(&self.job.name, copy).into_iter().flatten().collect();
        let mut plan = Self { names, ..self.clone() };
        (plan.job.copy, plan.job.thread_number) = (copy, thread_number);
        plan
    }

    /// Returns the process with other values of options of its files.
    pub fn with(&self, changes: &[(&str, u64)]) -> Self {
        let mut plan = self.clone();
        for &(name, bytes) in changes {
            match name {
                "filesize" => plan.file_size = Some((bytes, bytes)),
                "offset" => plan.offset = Size::Bytes(bytes),
                "offset_increment" => plan.increment = Size::Bytes(bytes),
                _ => plan.size = Some(Size::Bytes(bytes)),
            }
        }
        plan
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| name.path.as_str())
    }

    /// Returns true if no option says how large the files are.
    pub fn fills_space(&self) -> bool {
        self.file_size.is_none() && !matches!(self.size, Some(Size::Bytes(_)))
    }

    fn error(&self, what: impl Into<String>, expected: impl Into<String>) -> FioError {
        wrong(&self.size_place, what, expected)
    }

    /// Returns the first byte that the job uses of a file of this length (`get_start_offset`).
    fn start(&self, length: u64) -> u64 {
        if self.appends {
            return length;
        }
        let of = |size| match size {
            Size::Bytes(bytes) => (bytes, false),
            Size::Percent(percent) => (share(length, percent), true),
        };
        let ((offset, is_share), (increment, is_increment_share)) = (of(self.offset), of(self.increment));
        let offset = offset.saturating_add(increment.saturating_mul(self.job.copy));
        if !(is_share && offset > 0 || is_increment_share) {
            return offset;
        }
        let align = if self.offset_align > 0 { self.offset_align } else { self.job.least() };
        offset.div_ceil(align.max(1)).saturating_mul(align.max(1))
    }
}

fn share(bytes: u64, percent: u64) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}

/// Free space for which files are laid out until that of the file system is known. They may be larger.
const FREE_NOMINAL: Bytes = Bytes::gib(1);

/// Gives the files of all processes their sizes on a file system with this much free space (`None` if that is not known
/// yet), in the order in which fio makes them. A file that an earlier job has made keeps its length, unless it is too
/// short.
pub fn laid_out(plans: &[Plan], free: Option<Bytes>) -> Result<Vec<Job>, Vec<FioError>> {
    // Files without any given size divide the space that the others leave.
    let mut filling: Vec<&str> =
        plans.iter().filter(|plan| plan.fills_space()).flat_map(Plan::paths).collect();
    filling.sort_unstable();
    filling.dedup();
    let sized = plans.iter().filter(|plan| !plan.fills_space());
    let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
    for plan in sized {
        let bytes = match (plan.size, plan.file_size) {
            (_, Some((_, to))) => to,
            (Some(Size::Bytes(bytes)), None) => bytes / plan.names.len().max(1) as u64,
            _ => 0,
        };
        for path in plan.paths() {
            let most = taken.entry(path).or_default();
            *most = bytes.saturating_add(plan.start(0)).max(*most);
        }
    }
    let taken = taken.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let space = free.unwrap_or(FREE_NOMINAL);
    let each = (space.0 - space.0 / RESERVE).saturating_sub(taken) / filling.len().max(1) as u64;
    let each = if each >= MIB { each / MIB * MIB } else { each };

    let mut lengths: BTreeMap<&str, u64> = filling.iter().map(|path| (*path, each)).collect();
    if free.is_none() {
        for plan in plans.iter().filter(|plan| plan.fills_space()) {
            // A hundredth of it has room for a block.
            let bytes = FREE_NOMINAL.0.max(plan.job.least().saturating_mul(100));
            let end = plan.start(each).saturating_add(bytes).min(LENGTH_MAX);
            for path in plan.paths() {
                lengths.entry(path).and_modify(|length| *length = end.max(*length));
            }
        }
    }
    let (mut jobs, mut errors) = (Vec::new(), Vec::new());
    for plan in plans {
        match sized_job(plan, &mut lengths) {
            Ok(job) => jobs.push(job),
            Err(error) => {
                // The copies of a job have the same error.
                if errors.last() != Some(&error) {
                    errors.push(error);
                }
            }
        }
    }
    let paths: Vec<&str> = lengths.keys().copied().collect();
    let is_folder = |pair: &&[&str]| pair[1].strip_prefix(pair[0]).is_some_and(|rest| rest.starts_with('/'));
    if let Some(pair) = paths.windows(2).find(is_folder) {
        let owner = plans.iter().find(|plan| plan.paths().any(|path| path == pair[1]));
        let place = owner.map_or_else(Place::default, |plan| plan.place.clone());
        let what = format!("'{}' would be a file, and a folder of '{}'", pair[0], pair[1]);
        errors.push(wrong(&place, what, "other names"));
    }
    if errors.is_empty() { Ok(jobs) } else { Err(errors) }
}

fn sized_job<'a>(plan: &'a Plan, lengths: &mut BTreeMap<&'a str, u64>) -> Result<Job, FioError> {
    let mut job = plan.job.clone();
    let (least, count) = (job.least(), plan.names.len().max(1) as u64);
    let size = match plan.size {
        Some(Size::Bytes(bytes)) => bytes,
        _ => 0,
    };
    let too_small = "at least one block of the job, and at most 1 PiB";
    if size > 0 && size < least {
        return Err(plan.error(format!("a size of {size} bytes is less than a block of {least}"), too_small));
    }
    let each = size / count;
    let mut extra = if plan.file_size.is_none() { (size - each * count) / least } else { 0 };
    let mut draw = file_sizes(&job);
    let mut total = 0_u64;
    let mut files = Vec::with_capacity(plan.names.len());
    for name in &plan.names {
        let length = lengths.get(name.path.as_str()).copied().unwrap_or(0);
        let offset = plan.start(length);
        let bad_offset = || {
            wrong(
                &plan.offset_place,
                format!("offset {offset} is past the end of a file"),
                "a smaller offset=",
            )
        };
        let mut bytes = match plan.file_size {
            None => {
                let bytes = each + if extra > 0 { least } else { 0 };
                extra = extra.saturating_sub(1);
                if bytes > 0 { bytes } else { length.checked_sub(offset).ok_or_else(bad_offset)? }
            }
            Some((from, to)) if length < from || length > to => {
                if offset > from {
                    return Err(bad_offset());
                }
                let bytes = if from == to { from } else { drawn(&mut draw, (from, to), least) };
                bytes.saturating_sub(offset)
            }
            Some(_) => length.checked_sub(offset).ok_or_else(bad_offset)?,
        };
        if let Some(Size::Percent(percent)) = plan.size.filter(|size| *size != Size::Percent(100)) {
            bytes = share(bytes + offset, percent).min(bytes);
            bytes -= bytes % least;
        }
        let end = bytes.checked_add(offset).filter(|end| *end <= LENGTH_MAX);
        let end = end.ok_or_else(|| match bytes {
            0..=LENGTH_MAX => {
                let what = format!("a file of {bytes} bytes from offset {offset}");
                wrong(&plan.offset_place, what, "an end of at most 1 PiB")
            }
            _ => plan.error(format!("a file of {bytes} bytes"), too_small),
        })?;
        let real = length.max(end);
        lengths.insert(&name.path, real);
        total = total.saturating_add(match plan.io_size {
            Some(Size::Percent(percent)) => share(bytes, percent),
            _ => bytes,
        });
        let (name, seed_name) = (name.path.clone(), name.seed_name.clone());
        files.push(JobFileSpec { name, seed_name, offset, bytes, length: real });
    }
    job.size = if size == 0 || total > 0 && size > total { total } else { size };
    job.files = files;
    job.io_size = match plan.io_size {
        Some(Size::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    job.may_overwrite |= job.io_size.is_some_and(|bytes| bytes > job.size);
    if job.size < least {
        let what = format!("blocks of {least} bytes do not fit into {} bytes", job.size);
        return Err(plan.error(what, "smaller blocks, or larger files"));
    }
    Ok(job)
}

fn drawn(draw: &mut Tausworthe, (from, to): (u64, u64), least: u64) -> u64 {
    let bytes = from + draw.below(to - from);
    bytes - bytes % least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_behind_a_backslash_belongs_to_the_name() {
        assert_eq!(at_colons("/dev/a:b::c\\:d"), ["/dev/a", "b", "c:d"]);
        assert_eq!(at_colons("\\\\.\\PhysicalDrive1"), ["\\\\.\\PhysicalDrive1"]);
        assert!(at_colons("").is_empty());
    }

    #[test]
    fn every_path_is_below_the_directory() {
        for (path, expected) in [
            ("/dev/nvme0n1", Some("dev/nvme0n1")),
            ("../../etc/passwd", Some("etc/passwd")),
            ("a//b/./c", Some("a/b/c")),
            ("\\\\.\\PhysicalDrive1", Some("PhysicalDrive1")),
            ("/", None),
            ("..", None),
        ] {
            assert_eq!(below(path).as_deref(), expected, "{path}");
        }
        assert_eq!(below(&"x".repeat(256)), None);
    }
}
