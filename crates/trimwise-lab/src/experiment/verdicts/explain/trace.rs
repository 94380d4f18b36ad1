//! The text of a kernel's trace (`/sys/kernel/tracing/trace`), as far as it is about ext4's blocks.

use trimwise::failure::Failure;
use trimwise::fs::alloc::GROUP_UNITS;
use trimwise::units::{Lpn, UnitRange};

use super::{Kind, Seen};

pub(super) const TRACEPOINTS: [&str; 6] = [
    "ext4/ext4_mballoc_alloc",
    "ext4/ext4_mballoc_prealloc",
    "ext4/ext4_mballoc_discard",
    "ext4/ext4_mballoc_free",
    "ext4/ext4_discard_blocks",
    "jbd2/jbd2_commit_flushing",
];

/// Fails if the kernel has lost records, according to the text of `per_cpu/cpu*/stats`.
pub(super) fn check_complete(statistics: &str) -> Result<(), Failure> {
    let lost = trimwise_linux::tracefs::lost_in(statistics);
    if lost == 0 {
        return Ok(());
    }
    Err(Failure::run(format!(
        "the guest's buffer of tracepoints lost {lost} records: the workload is too long to be compared; give fewer \
         transactions or files"
    )))
}

pub(super) fn parse(text: &str) -> Result<Vec<Seen>, Failure> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let parsed = lines.map(|line| {
        let wrong = || Failure::run(format!("a line of the guest's trace cannot be parsed: {line}"));
        of_line(line).ok_or_else(wrong)
    });
    parsed.collect()
}

/// Parses `task-pid [cpu] flags seconds: tracepoint: fields`.
fn of_line(line: &str) -> Option<Seen> {
    let (head, fields) = line.split_once(": ")?;
    let (name, fields) = fields.split_once(": ")?;
    let (seconds, fraction) = head.split_whitespace().next_back()?.split_once('.')?;
    let digits: u64 = fraction.parse().ok()?;
    let at_ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + digits * 10_u64.pow(9 - fraction.len() as u32);
    let words: Vec<&str> = fields.split_whitespace().collect();
    let after = |key: &str| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1)).copied();
    let number = |key: &str| after(key)?.parse::<u64>().ok();
    let kind = match name.trim() {
        "ext4_mballoc_alloc" | "ext4_mballoc_prealloc" => {
            let ([goal, wanted], page) = place(after("orig")?)?;
            let ([start, units], _) = place(after("result")?)?;
            let how = match after("goal").and_then(place) {
                None => "kept".to_owned(),
                Some(([_, units], _)) => {
                    format!("search for {units}, {}, {}", after("cr")?, after("flags").unwrap_or_default())
                }
            };
            let blocks = UnitRange::new(Lpn(start), units);
            Kind::Allocated { inode: number("inode")? as u32, page, goal: Lpn(goal), wanted, blocks, how }
        }
        "ext4_mballoc_free" => {
            let ([start, units], _) = place(after("extent")?)?;
            Kind::Freed { blocks: UnitRange::new(Lpn(start), units) }
        }
        "ext4_mballoc_discard" => {
            let ([start, units], _) = place(after("extent")?)?;
            Kind::GivenBack { blocks: UnitRange::new(Lpn(start), units) }
        }
        "ext4_discard_blocks" => {
            Kind::Trimmed { blocks: UnitRange::new(Lpn(number("blk")?), number("count")?) }
        }
        "jbd2_commit_flushing" => Kind::Closed { tid: number("transaction")? },
        _ => return None,
    };
    Some(Seen { at_ns, kind })
}

/// Parses `group/block/blocks` or `group/block/blocks@page`.
fn place(text: &str) -> Option<([u64; 2], u64)> {
    let (extent, page) = text.split_once('@').map_or((text, 0), |(extent, page)| (extent, page.parse().unwrap_or(0)));
    let mut numbers = extent.split('/').map(|number| number.parse::<u64>());
    let (Ok(group), Ok(block), Ok(units)) = (numbers.next()?, numbers.next()?, numbers.next()?) else { return None };
    Some(([group * GROUP_UNITS + block, units], page))
}
