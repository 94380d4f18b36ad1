//! Boots the kernel of the experiment `model-ext4` and classifies its commands by where they lie.

use trimwise::units::{Bytes, Lpn, UNIT_BYTES, UnitRange};
use trimwise_lab::experiment::model_ext4::log::{Entry, Places, Traffic};
use trimwise_lab::experiment::model_ext4::{
    self, Case, GUEST_MEMORY, GuestFacts, KERNEL, Pair, SETTLE, Side, cases,
};
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::cell::KernelTarget;
use trimwise_uml::disk::{TraceEntry, Traced};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Job, Outcome, Step, StepReport};

use super::guests::{self, Bounds, unexpected};
use crate::failure::Failure;

/// Memory of this computer that one run takes: guest, model and what the guest writes.
pub const MEMORY_OF_RUN: Bytes = Bytes::mib(2_500);

/// Where the kernel reports its dirty limits.
const VMSTAT: &str = "/proc/vmstat";
/// Where it reports its memory.
const MEMINFO: &str = "/proc/meminfo";
/// Where it reports how many transactions it has committed.
const JOURNAL_INFO: &str = "/proc/fs/jbd2/*/info";

/// Returns the kernel and the cases that `--only` names; all if it names none.
///
/// # Errors
/// An unknown case; a missing kernel or program.
pub fn choice(only: &[String]) -> Result<(KernelImage, Vec<Case>), Failure> {
    let names: Vec<&str> = model_ext4::SHAPES.iter().map(|shape| shape.name).collect();
    if let Some(part) = only.iter().find(|part| !names.contains(&part.as_str())) {
        return Err(Failure::usage(format!("--only {part}: expected one of {}", names.join(", "))));
    }
    let mut cases = cases();
    cases.retain(|case| only.is_empty() || only.iter().any(|part| part == case.shape.name));
    let file_system = FileSystem::Ext4;
    let target = KernelTarget { version: KERNEL.to_owned(), file_system, options: String::new() };
    Ok((guests::image(&target)?, cases))
}

/// Runs one case on the kernel and in the model.
pub fn run(image: &KernelImage, case: Case, seed: u64, bounds: &Bounds) -> Result<Pair, Failure> {
    let (guest, kernel) = run_kernel(image, case, seed, bounds)?;
    Pair::beside(case, guest, kernel, seed).map_err(Failure::run)
}

fn run_kernel(
    image: &KernelImage,
    case: Case,
    seed: u64,
    bounds: &Bounds,
) -> Result<(GuestFacts, Side), Failure> {
    let mut disks = [guests::small_drive(model_ext4::DEVICE, model_ext4::CAPACITY, seed)?];
    let guest = guests::guest(image, GUEST_MEMORY, bounds)?;
    let file_system = FileSystem::Ext4;
    let options = if case.discard { "discard" } else { "nodiscard" }.to_owned();
    let settle = || Step::Sleep { ns: SETTLE.as_nanos() };
    let read = |path: &str| Step::Read { path: path.to_owned() };
    let steps = vec![
        Step::Mkfs { file_system, options: Vec::new() },
        Step::Mount { file_system, options },
        settle(),
        read(VMSTAT),
        read(MEMINFO),
        read(JOURNAL_INFO),
        Step::Postmark { config: case.shape.config.to_owned(), rep: 0 },
        settle(),
        read(JOURNAL_INFO),
        Step::Metadata,
        Step::Extents { file: String::new() },
    ];
    let (begin, end) = (6, 8);
    let report = guest.run(&Job { steps }, &mut disks).map_err(guests::job_failure)?;
    let [disk] = disks;
    let (_, store, trace, marks) = disk.into_parts();

    let mut outcomes = report.steps.into_iter().map(|StepReport { outcome, .. }| outcome).skip(3);
    let mut next = || outcomes.next().ok_or_else(|| Failure::run("the guest did not answer"));
    let vmstat = text(next()?)?;
    let meminfo = text(next()?)?;
    let before = commits(&text(next()?)?)?;
    let duration_ns = match next()? {
        Outcome::Cell(cell, _) => cell.duration_ns,
        other => return Err(unexpected(&other)),
    };
    next()?;
    let commits = commits(&text(next()?)?)?
        .checked_sub(before)
        .ok_or_else(|| Failure::run("the guest's count of commits fell"))?;
    let metadata = match next()? {
        Outcome::Metadata(metadata) => metadata,
        other => return Err(unexpected(&other)),
    };
    let directory = match next()? {
        Outcome::Extents(extents) => extents,
        other => return Err(unexpected(&other)),
    };
    let journal = journal_blocks(&store)?;
    let fixed = metadata.iter().filter(|extent| !extent.is_journal);
    let fixed = fixed.map(|extent| units(extent.offset_bytes, extent.length_bytes));
    let directory = directory.iter().map(|extent| units(extent.offset_bytes, extent.length_bytes));
    let facts = GuestFacts {
        background_pages: field(&vmstat, "nr_dirty_background_threshold")?,
        dirty_pages: field(&vmstat, "nr_dirty_threshold")?,
        cached_pages: field(&meminfo, "Cached:")? * 1024 / UNIT_BYTES,
        journal_blocks: journal.iter().map(|range| range.units).sum(),
    };
    let places = Places::new(journal, fixed.chain(directory));
    let traced = |step: usize| marks.get(step).map(|mark| mark.traced);
    let traced = traced(begin).zip(traced(end)).and_then(|(begin, end)| trace.get(begin..end));
    let traced = traced.ok_or_else(|| Failure::run("the guest did not report when the workload ran"))?;
    let log: Vec<Entry> = traced.iter().map(entry).collect();
    Ok((facts, Side { duration_ns, commits, traffic: Traffic::of(&log, &places) }))
}

pub(super) fn units(offset_bytes: u64, length_bytes: u64) -> UnitRange {
    UnitRange::new(Lpn(offset_bytes / UNIT_BYTES), length_bytes / UNIT_BYTES)
}

pub(super) fn entry(entry: &TraceEntry) -> Entry {
    let range = units(entry.offset_bytes, entry.length_bytes);
    match entry.kind {
        Traced::Read => Entry::Read(range),
        // ext4 and jbd2 send this instead of a write full of zeros.
        Traced::Write | Traced::WriteZeroes => Entry::Write(range),
        Traced::Discard => Entry::Discard(range),
        Traced::Flush => Entry::Flush,
    }
}

fn text(outcome: Outcome) -> Result<String, Failure> {
    match outcome {
        Outcome::Text(text) => Ok(text),
        other => Err(unexpected(&other)),
    }
}

/// Reads a line `NAME NUMBER` of /proc/vmstat, or `NAME NUMBER kB` of /proc/meminfo.
fn field(text: &str, name: &str) -> Result<u64, Failure> {
    let number = |line: &str| line.strip_prefix(name)?.trim_end_matches(" kB").trim().parse().ok();
    let found = text.lines().find_map(number);
    found.ok_or_else(|| Failure::run(format!("the guest's {VMSTAT} or {MEMINFO} has no number {name}")))
}

/// Reads the first number of jbd2's info: `12 transactions (3 requested), each up to 1024 blocks`.
fn commits(info: &str) -> Result<u64, Failure> {
    let number = info.split_whitespace().next().and_then(|word| word.parse().ok());
    number.ok_or_else(|| {
        Failure::run(format!("the guest's {JOURNAL_INFO} does not begin with a number: {info}"))
    })
}

/// Finds the journal: ext4's superblock has a copy of the extents in the journal's inode (`s_jnl_blocks`), a header of
/// 12 bytes and up to four extents of 12 bytes each.
pub(super) fn journal_blocks(store: &SparseStore) -> Result<Vec<UnitRange>, Failure> {
    const SUPERBLOCK: u64 = 1024;
    const JOURNAL_BLOCKS: u64 = 0x10c;
    const EXTENT_MAGIC: u16 = 0xf30a;
    let mut bytes = [0; 60];
    store.read(SUPERBLOCK + JOURNAL_BLOCKS, &mut bytes).map_err(Failure::run)?;
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (magic, entries, depth) = (u16_at(0), usize::from(u16_at(2)), u16_at(6));
    if magic != EXTENT_MAGIC || entries > 4 || depth != 0 {
        return Err(Failure::run("the journal's extents are not in the guest's superblock"));
    }
    let extent = |at: usize| {
        let (length, high) = (u64::from(u16_at(at + 4)), u64::from(u16_at(at + 6)));
        let low = u64::from(u16_at(at + 8)) | u64::from(u16_at(at + 10)) << 16;
        UnitRange::new(Lpn(high << 32 | low), length)
    };
    Ok((0..entries).map(|i| extent(12 + 12 * i)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_the_kernel_says() {
        let vmstat = "nr_dirty 3\nnr_dirty_threshold 8000\nnr_dirty_background_threshold 4000\n";
        assert_eq!(field(vmstat, "nr_dirty_threshold").unwrap(), 8000);
        assert!(field(vmstat, "nr_dirt").is_err());
        assert_eq!(commits("12 transactions (3 requested), each up to 1024 blocks\n").unwrap(), 12);
        assert!(commits("none").is_err());
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let refused = choice(&["tiny".to_owned()]);
        assert!(matches!(refused, Err(Failure::Usage(m)) if m.contains("small, large, mixed")));
    }
}
