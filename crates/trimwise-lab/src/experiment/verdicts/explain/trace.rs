//! The text of a kernel's trace (`/sys/kernel/tracing/trace`), as far as it is about ext4's blocks.

use trimwise::failure::Failure;
use trimwise::fs::alloc::GROUP_UNITS;
use trimwise::units::{Lpn, UnitRange};

use super::course::{Allocation, Kind, Seen};

pub(super) const TRACEPOINTS: [&str; 4] = [
    "ext4/ext4_mballoc_alloc",
    "ext4/ext4_mballoc_prealloc",
    "ext4/ext4_mballoc_free",
    "jbd2/jbd2_commit_flushing",
];

/// Fails if the kernel has lost records, according to the text of `per_cpu/cpu*/stats`.
pub(super) fn check_complete(statistics: &str) -> Result<(), Failure> {
    match trimwise_linux::tracefs::lost_in(statistics) {
        0 => Ok(()),
        lost => Err(Failure::run(format!(
            "the workload is too long to compare: the guest's buffer of tracepoints lost {lost} records; give it fewer \
             files or transactions"
        ))),
    }
}

/// Parses a trace. Leaves out allocations for directories and extent trees.
pub(super) fn parse(text: &str) -> Result<Vec<Seen>, Failure> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let parsed = lines.map(|line| {
        of_line(line)
            .ok_or_else(|| Failure::run(format!("a line of the guest's trace cannot be parsed: {line}")))
    });
    parsed.filter_map(Result::transpose).collect()
}

/// Parses `task-pid [cpu] flags seconds: tracepoint: fields`; `Some(None)` if the line is about nothing that counts.
fn of_line(line: &str) -> Option<Option<Seen>> {
    let (head, rest) = line.split_once(": ")?;
    let (name, fields) = rest.split_once(": ")?;
    let (seconds, micros) = head.split_whitespace().next_back()?.split_once('.')?;
    let at_ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000;
    let words: Vec<&str> = fields.split_whitespace().collect();
    let after =
        |key: &str| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1)).copied();
    let kind = match name {
        "ext4_mballoc_alloc" | "ext4_mballoc_prealloc" => {
            let (wanted, page) = place(after("orig")?)?;
            let (blocks, _) = place(after("result")?)?;
            let how = match after("goal").map(place) {
                None => "kept".to_owned(),
                Some(goal) => {
                    if !after("flags")?.split('|').any(|flag| flag == "HINT_DATA") {
                        return Some(None);
                    }
                    format!("search for {}, {}", goal?.0.units, after("cr")?.trim_end_matches(','))
                }
            };
            let inode = after("inode")?.parse().ok()?;
            Kind::Allocated(Allocation { inode, page, goal: wanted.start, wanted: wanted.units, blocks, how })
        }
        "ext4_mballoc_free" => Kind::Freed(place(after("extent")?)?.0),
        "jbd2_commit_flushing" => Kind::Closed,
        _ => return None,
    };
    Some(Some(Seen { at_ns, kind }))
}

/// Parses `group/block/blocks` or `group/block/blocks@page`.
fn place(text: &str) -> Option<(UnitRange, u64)> {
    let (extent, page) = text.split_once('@').unwrap_or((text, "0"));
    let numbers: Vec<u64> = extent.split('/').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [group, block, units] = *numbers else { return None };
    Some((UnitRange::new(Lpn(group * GROUP_UNITS + block), units), page.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of 6.12.117, and of its directories.
    #[test]
    fn allocations_frees_and_commits_are_read_from_a_trace() {
        let text = "# tracer: nop\n#\n\
  kworker/u4:2-25      [000] .....     1.564923: ext4_mballoc_alloc: dev 98,0 inode 131108 orig 17/0/654@0 goal \
  17/9728/512@0 result 17/9728/512@0 blks 1 grps 1 cr CR_POWER2_ALIGNED flags HINT_DATA|DELALLOC_RESV tail 0 broken 0\n\
  kworker/u4:2-25      [000] .....     1.564924: ext4_mballoc_prealloc: dev 98,0 inode 131108 orig 17/10382/324@654 \
  result 17/10382/324@654\n\
            init-1       [000] .....     1.564925: ext4_mballoc_alloc: dev 98,0 inode 12 orig 0/0/1@0 goal 0/0/1@0 \
  result 0/9000/1@0 blks 1 grps 1 cr CR_GOAL_LEN_FAST flags DELALLOC_RESV tail 0 broken 0\n\
            init-1       [000] .....     2.000000: ext4_mballoc_free: dev 98,0 inode 131108 extent 17/9728/512 \n\
     jbd2/vda-8-30      [000] .....     6.570123: jbd2_commit_flushing: dev 98,0 transaction 2 sync 0\n";
        let seen = parse(text).unwrap();
        let group = 17 * GROUP_UNITS;
        let allocated = |page, goal: u64, wanted, start: u64, units, how: &str| {
            let blocks = UnitRange::new(Lpn(group + start), units);
            let (goal, how) = (Lpn(group + goal), how.to_owned());
            Kind::Allocated(Allocation { inode: 131_108, page, goal, wanted, blocks, how })
        };
        let expected = [
            (1_564_923_000, allocated(0, 0, 654, 9_728, 512, "search for 512, CR_POWER2_ALIGNED")),
            (1_564_924_000, allocated(654, 10_382, 324, 10_382, 324, "kept")),
            (2_000_000_000, Kind::Freed(UnitRange::new(Lpn(group + 9_728), 512))),
            (6_570_123_000, Kind::Closed),
        ];
        assert_eq!(seen, expected.map(|(at_ns, kind)| Seen { at_ns, kind }));
    }

    #[test]
    fn what_cannot_be_parsed_and_what_was_lost_is_said() {
        let line = "init-1 [000] ..... 2.000000: ext4_mballoc_free: dev 98,0 inode 12 extent 17/x/512";
        assert!(parse(line).unwrap_err().to_string().contains(line));
        assert!(check_complete("overrun: 0\nread events: 4\n").is_ok());
        let lost = check_complete("overrun: 12\n").unwrap_err().to_string();
        assert!(lost.contains("lost 12 records") && lost.contains("fewer"), "{lost}");
    }
}
